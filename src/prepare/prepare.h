/* prepare.h: the parts of `prepare`, which creates a sparse model. Private to src/prepare.
 *
 *   prepare_text.c       calibration text -> windows of tokens
 *   prepare_layers.c     the windows through one layer after another: active neurons, predictors
 *   prepare_experts.c    predictors within the experts of a layer
 *   prepare_threshold.c  for models without exact zeros: the loss from zeroing small activations
 *   prepare_head.c       a predictor of the output head
 *   prepare_spill.c      stores predictors until they are written
 *   prepare_matrix.c     decoding, transposing, permuting matrices, on all threads
 *   prepare_write.c      the prepared file
 *   prepare_measure.c    quality of the file against its source
 *   prepare_bundle.c     neurons' matrices in the output: bundled or separate; conversion
 *   prepare_undo.c       undo
 *   prepare.c            runs these steps in order
 *
 * Neurons: `order[i]` is the index, in the input's tensors, of the neuron that is stored i-th. In a
 * mixture of experts, experts are sorted instead, by how often the router chooses them; neurons and
 * dense layers keep their order. One thread calls all functions; they use the pool's workers. */
#ifndef PREPARE_PREPARE_H
#define PREPARE_PREPARE_H

#include "bundle.h"
#include "engine.h"
#include "gguf_writer.h"
#include "model.h"
#include "notifier.h"
#include "pool.h"
#include "powerinfer_tools.h"
#include "predictor.h"
#include "progress.h"
#include "sha256.h"

/* ---- calibration text ------------------------------------------------------------------------ */

typedef struct prepare_text {
    int32_t n_window;            /* tokens of a window */
    int32_t n_windows, n_held;   /* the last n_held are held out */
    int32_t *tokens;             /* [n_windows][n_window] */
    char sha256[SHA256_HEX + 1]; /* hash of the file */
} prepare_text;

/* Windows are spread over the whole text; each begins with BOS if the model uses it. PI_ERR_FORMAT:
 * empty, or not UTF-8 text; PI_ERR_LIMIT: shorter than two windows. */
pi_status prepare_text_read(const model *m, const pi_prepare_options *options, const notifier *t,
                            prepare_text *out, pi_error *err);
void prepare_text_free(prepare_text *t);
static inline int64_t prepare_text_count(const prepare_text *t) {
    return (int64_t)t->n_windows * t->n_window;
}

/* The first of them, which are for training. */
static inline int64_t prepare_text_train(const prepare_text *t) {
    return (int64_t)(t->n_windows - t->n_held) * t->n_window;
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* Element type, block, name and conversions of a bound tensor. */
static inline const quant_traits *prepare_traits(const model_tensor *t) {
    return quant_find((uint32_t)t->type);
}
/* out[i][k] = row order[i] (NULL: i) of t, decoded and scaled. [n_out][n_in] */
void prepare_decode_rows(pool *p, const model_tensor *t, const int32_t *order, float *out);
/* Rows of t, [n_out] of n_in elements, in another type. The scale is not applied. PI_ERR_NOMEM. */
pi_status prepare_convert_rows(pool *p, const model_tensor *t, quant_type type, void *out,
                               pi_error *err);
/* |down_i| of every neuron: of column i of a down matrix, or of row i of a transposed one. norms:
 * [n_ff] */
pi_status prepare_down_norms(pool *p, const model_tensor *down, bool transposed, float *norms,
                             pi_error *err);
/* The index-th of n experts' rows of a matrix, with its scale. */
model_tensor prepare_expert_of(const model_tensor *all, int64_t n, int64_t index);
/* Transposes t to out, [t->n_in] rows of t->n_out elements in `type`: element (r, k) of t becomes
 * element (k, place[r]); place NULL: r. Elements of types without blocks are copied exactly if the
 * type stays. The scale of t is not applied. n_out must be whole blocks of `type`. PI_ERR_NOMEM. */
pi_status prepare_transpose(pool *p, const model_tensor *t, const int32_t *place, quant_type type,
                            void *out, pi_error *err);

/* ---- layers ---------------------------------------------------------------------------------- */

/* Fractions that thresholds zero: k / PREPARE_CUT_STEPS. */
enum { PREPARE_CUT_STEPS = 32 };

/* Possible thresholds of one layer, and what they zero. Threshold k zeroes the fraction k of all
 * activations f(gate), or of all hidden values f(gate) up, of a sample. */
typedef struct prepare_cuts {
    float activation[PREPARE_CUT_STEPS]; /* model_layer_sparse.cut; [0]: 0 */
    float hidden[PREPARE_CUT_STEPS];     /* model_layer_sparse.cut_down; [0]: 0 */
    /* Sums over the pairs of a token and a neuron whose activation exceeds thresholds up to i, and
     * whose hidden value exceeds those up to j, but not the next ones; without a gate j is 0: */
    double count[PREPARE_CUT_STEPS][PREPARE_CUT_STEPS];  /* 1 */
    double part[PREPARE_CUT_STEPS][PREPARE_CUT_STEPS];   /* |h_i| |down_i| */
    double square[PREPARE_CUT_STEPS][PREPARE_CUT_STEPS]; /* its square */
} prepare_cuts;

/* The fraction of a sum over all pairs that two thresholds keep. */
double prepare_kept(const double sum[PREPARE_CUT_STEPS][PREPARE_CUT_STEPS], int cut, int cut_down);

typedef struct prepare_layer {
    int64_t n;         /* number of sorted neurons or experts; 0: the layer keeps its order */
    int32_t *order;    /* [n] */
    float *freq;       /* [n], in stored order: non-increasing */
    double density;    /* mean of freq; threshold mode: of `up`'s rows, read */
    double summed;     /* threshold mode: of `down`'s rows, read */
    double fires;      /* experts: fraction of a chosen expert's neurons that are active */
    bool transposes;   /* experts: down is written with a row per neuron */
    predictor_fit fit; /* predictor, if any; its arrays are in the spill, or, with keeps_predictor,
                          tensors of the input */
    bool keeps_predictor;
    struct {
        uint64_t fc1, fc2, sign, bias;
    } at; /* offsets in the spill of the predictor's arrays */
    /* Threshold mode only. */
    prepare_cuts *cuts; /* [1], NULL in other modes */
    int cut, cut_down;  /* the chosen ones of `cuts`; both 0: none */
    float *cut_weight;  /* [n], in stored order: model_layer_sparse */
} prepare_layer;

/* A predictor of the output head. */
typedef struct prepare_head {
    int64_t rank; /* 0: none */
    quant_type type_fc1, type_fc2;
    void *fc1, *fc2;   /* [rank] rows of n_embd, [n_vocab] rows of rank */
    float distance;    /* model_head */
    double rows, same; /* on held-out tokens: fraction of candidates; of tokens whose most likely
                          next token is the same */
    double bytes;      /* read per token, as a fraction of the output matrix */
    float loss;        /* of perplexity; NAN until it is measured */
} prepare_head;

/* A file without a name; NULL until the first write. */
typedef struct prepare_spill prepare_spill;

/* All data of a run; one function frees it. */
typedef struct preparation {
    const pi_prepare_options *options;
    const char *in_path, *out_path;
    const char *beside; /* intermediate files go to its folder */
    notifier notifier;
    progress progress;
    model *model; /* the input, or the model converted from it */
    pool *pool;
    gguf_writer *writer;
    prepare_spill *spill;
    prepare_text text;
    prepare_layer *layers; /* [n_layer] */
    prepare_head head;
    quant_type *source_down_type; /* [n_layer] type of ffn_down, before any change */
    bool has_down_type;
    quant_type down_type;      /* as requested */
    quant_type predictor_type; /* type of fc1 and fc2 */
    bool quantized;            /* `prepare` quantized the input's matrices first */
    bool thresholds;           /* SiLU, GELU: thresholds instead of exact zeros */
    bool experts;              /* a mixture of experts */
    bool rearranges;           /* a prepared input: only its bundles change */
    bool bundles;              /* the output's neurons, or experts, are bundled */
    uint64_t bytes_out, predictor_bytes;
} preparation;

/* True when the activation gives exact zeros. */
bool prepare_is_sparse(const model *m);
/* Whether experts of a mixture may have predictors. */
bool prepare_predicts_experts(const model *m);
/* Fills the layers. */
pi_status prepare_run_layers(preparation *p, pi_error *err);
/* Profiles one layer for thresholds: cuts, freq and order. The caller owns the arrays of `in`;
 * hidden is overwritten. */
typedef struct prepare_sample {
    int64_t n;              /* tokens */
    const float *x;         /* [n][n_embd] inputs of the FFN block */
    float *hidden;          /* [n][n_ff] inputs of down */
    const float *down_norm; /* [n_ff] */
} prepare_sample;
pi_status prepare_profile_cuts(preparation *p, int layer, const cpu_kernels *kernels,
                               const prepare_sample *in, pi_error *err);
/* A choice of thresholds for all layers. */
typedef struct prepare_cut_pair {
    int activation, hidden; /* of prepare_cuts */
    double bytes;           /* of up and down, read per token */
    double error; /* sum over layers of the fraction of the sum of squares that is zeroed. As if
                     contributions were orthogonal, that is the squared error of the output */
} prepare_cut_pair;

enum { PREPARE_CUT_PAIRS = PREPARE_CUT_STEPS * PREPARE_CUT_STEPS };

/* The pairs that read fewer bytes than all pairs with less error, by increasing error; returns
 * their number, at least 1. */
int prepare_list_cuts(preparation *p, prepare_cut_pair pairs[PREPARE_CUT_PAIRS]);
/* Sets the thresholds of all layers. Those of hidden values apply to layers with a gate. */
void prepare_choose_cuts(preparation *p, prepare_cut_pair pair);

/* A predictor of the file in float, of a dense layer or of one expert, neurons in the file's order,
 * scales and threshold folded in: score + bias >= threshold is score + (bias - threshold) >= 0.
 * bias: [n_ff] or NULL. The caller frees `out` in every case. */
pi_status prepare_decode_kept(const preparation *p, int layer, const model_tensor *fc1,
                              const model_tensor *fc2, const float *bias, int64_t n_ff,
                              predictor_fit *out, pi_error *err);
/* The tokens that chose each expert of one layer, and their active neurons. */
typedef struct prepare_experts prepare_experts;
pi_status prepare_experts_create(preparation *p, int layer, prepare_experts **out, pi_error *err);
void prepare_experts_free(prepare_experts *x); /* accepts NULL */
/* Adds the pairs of a ubatch; hidden: a row of ld floats per pair; first_token: of the ubatch.
 * PI_ERR_NOMEM, PI_ERR_RANGE as active_add. */
pi_status prepare_experts_add(prepare_experts *x, const engine_pairs *pairs, int64_t first_token,
                              const float *hidden, int64_t ld, pi_error *err);
/* Fits the layer's predictors, of the named kind or (PREDICTOR_KIND_COUNT) the cheapest, and stores
 * them in the spill in the layer's order. input: [n_tokens][n_embd]. */
pi_status prepare_experts_fit(preparation *p, int layer, const prepare_experts *x,
                              const float *input, predictor_kind named, progress *report,
                              pi_error *err);
/* Measures the input's predictors, which are kept. */
pi_status prepare_experts_measure(preparation *p, int layer, const prepare_experts *x,
                                  const float *input, pi_error *err);
/* Fits p->head. x: [tokens][n_embd], the residual stream after the last layer; overwritten.
 * `kernels`: of the context. A message says why there is none. */
pi_status prepare_fit_head(preparation *p, const cpu_kernels *kernels, float *x, pi_error *err);

/* Moves the layer's fitted arrays to the spill. PI_ERR_IO, PI_ERR_NOMEM. */
pi_status prepare_spill_fit(preparation *p, int layer, pi_error *err);
pi_status prepare_spill_read(const preparation *p, uint64_t at, void *data, size_t n_bytes,
                             pi_error *err);
void prepare_spill_free(prepare_spill *s); /* accepts NULL */

/* ---- output ---------------------------------------------------------------------------------- */

typedef enum prepare_part_kind {
    PART_COPY,          /* copy of a tensor of the input */
    PART_ROWS,          /* rows of a tensor in the layer's order */
    PART_DOWN_T,        /* ffn_down_t, from either form of down */
    PART_DOWN,          /* ffn_down, from ffn_down_t */
    PART_EXPERTS_DOWN,  /* either form of experts' down, from the other */
    PART_BUNDLE,        /* gate, up and ffn_down_t neuron by neuron */
    PART_EXPERT_BUNDLE, /* experts' matrices expert by expert */
    PART_BYTES,         /* measured data in memory */
    PART_SPILLED        /* measured data in the spill */
} prepare_part_kind;

/* A tensor of the output. */
typedef struct prepare_part {
    prepare_part_kind kind;
    char name[GGUF_MAX_NAME];
    quant_type type;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    int layer;
    const gguf_tensor *source; /* for COPY */
    model_tensor rows, more;   /* for ROWS; the rows of `more`, if any, follow in the same order */
    bundle_layout layout;      /* for BUNDLE, EXPERT_BUNDLE */
    const void *bytes;         /* for BYTES */
    uint64_t at;               /* for SPILLED */
    size_t rank, place;        /* position in the source, before sorting */
} prepare_part;

typedef struct prepare_parts {
    preparation *p;
    prepare_part *items; /* [n] */
    size_t n, capacity;
    uint64_t bytes_done, bytes_all;
} prepare_parts;

/* The layer and role of a tensor of a layer; NULL for others. */
const arch_tensor *prepare_find_role(const model *m, const char *name, int *layer);
/* Replaces the suffix `ending` of a name; false: no such suffix, the name is copied. */
bool prepare_rename(const char *name, const char *ending, const char *other,
                    char out[GGUF_MAX_NAME]);
/* A part named after a role; the caller fills in its two dimensions. */
prepare_part prepare_name_part(const preparation *p, prepare_part_kind kind, tensor_role role,
                               int layer);
pi_status prepare_add_part(prepare_parts *l, const prepare_part *item, pi_error *err);
pi_status prepare_add_copy(prepare_parts *l, const gguf_tensor *t, const char *name, pi_error *err);
/* A tensor of an expert layer that has a part per expert. */
bool prepare_is_of_experts(const model *m, const gguf_tensor *t, int *layer);
/* A tensor whose rows (elements of a vector) are neurons of the layer, or whose parts are
 * experts. */
pi_status prepare_add_moved(prepare_parts *l, const gguf_tensor *t, const char *name, int layer,
                            pi_error *err);
/* A layer's gate, up, or fused gate and up; their rows may be in bundles. */
pi_status prepare_add_rows(prepare_parts *l, tensor_role role, int layer, pi_error *err);
/* Gate and up, in the form that the architecture's files use. */
pi_status prepare_add_gate_up(prepare_parts *l, int layer, pi_error *err);
/* Adds the output of the input's gate, up, down (either form) or bundle: a bundle or separate
 * matrices, down with a row per neuron. */
pi_status prepare_add_neurons(prepare_parts *l, tensor_role role, int layer, pi_error *err);
/* Adds the output of the input's matrices of experts, in any form: a bundle or a separate tensor,
 * in the layer's order. */
pi_status prepare_add_experts(prepare_parts *l, tensor_role role, int layer, pi_error *err);
/* Whether tensors of this role contain experts' matrices. */
static inline bool prepare_is_expert_matrix(tensor_role role) {
    return role == ROLE_EXPERT_GATE_UP || role == ROLE_EXPERT_GATE || role == ROLE_EXPERT_UP ||
           (role >= ROLE_EXPERT_DOWN && role <= ROLE_EXPERT_BUNDLE);
}
/* A separate tensor of experts' matrices, if the input has them. */
pi_status prepare_add_expert_rows(prepare_parts *l, tensor_role role, int layer, pi_error *err);
/* Declares and writes all parts; always frees the list. */
pi_status prepare_put_parts(prepare_parts *l, pi_error *err);

/* Copies the input's keys, except those that describe the layout of tensors, and without `measured`
 * those that prepare writes. */
void prepare_copy_keys(const model *m, bool measured, gguf_writer *w);
/* general.alignment of the source of the bundled input; 0: the source had no such key. */
uint32_t prepare_source_alignment(const model *m);
/* With bundles: the key with the order of the source's tensors. */
pi_status prepare_put_order(const preparation *p, pi_error *err);
/* Without bundles: sorts the tensors by the input's key. */
pi_status prepare_restore_order(prepare_parts *l, pi_error *err);
/* Keys of bundles, if the output has bundles. */
pi_status prepare_put_bundle_keys(const preparation *p, pi_error *err);
/* Whether the output's neurons, or experts, will be bundled. */
void prepare_choose_bundles(preparation *p);
/* The whole output: a prepared input again, with or without bundles. */
pi_status prepare_write_bundles(preparation *p, pi_prepare_result *result, pi_error *err);
pi_status prepare_write(preparation *p, pi_error *err);
/* Writes the measured values over the placeholders of prepare_write. */
pi_status prepare_patch(preparation *p, double loss, pi_error *err);
/* Whether a tensor is part of the output head's predictor that prepare makes. */
bool prepare_is_sketch(const char *name);

/* ---- quality --------------------------------------------------------------------------------- */

typedef struct prepare_quality {
    double ppl_before, ppl_after, kl;
} prepare_quality;

/* Compares the complete output in `mode` with the input in dense mode on the held-out windows.
 * Progress goes from..to. */
pi_status prepare_measure(preparation *p, pi_mode mode, pi_head head, double from, double to,
                          prepare_quality *out, pi_error *err);

/* ---- shared ---------------------------------------------------------------------------------- */

/* PI_ERR_CANCELLED when the user cancels. */
pi_status prepare_step(preparation *p, const char *stage, double fraction, pi_error *err);
/* Opens p->writer after checking out_path. PI_ERR_ARG: it is the input. */
pi_status prepare_open_output(preparation *p, pi_error *err);
pi_status prepare_check_threads(const pi_prepare_options *o, pi_error *err);
/* The type of a down matrix that is written with a row per neuron. */
quant_type prepare_choose_down_type(const preparation *p, const model_tensor *plain,
                                    const model_tensor *down_t);
/* The type of ffn_down (ffn_down_exps) in the source of a prepared input. */
quant_type prepare_source_down_type(const model *m, int layer);
void prepare_release(preparation *p);

#endif
