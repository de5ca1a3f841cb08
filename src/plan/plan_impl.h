/* plan_impl.h: shared by the files that create plans. Private to src/plan. */
#ifndef PLAN_PLAN_IMPL_H
#define PLAN_PLAN_IMPL_H

#include "plan.h"

enum {
    /* Maximum steps of one layer on one side. */
    PLAN_ATTENTION_STEPS = 30, /* includes a recurrent mixer, receiving the residual stream, an
                                  early router, norms and additions */
    PLAN_FFN_STEPS = 36,
    PLAN_HELPER_STEPS = 8,  /* for each helper on each side */
    PLAN_EMBD_STEPS = 6,    /* embedding of a layer, and receiving it */
    PLAN_STREAM_STEPS = 20, /* prediction, correction, the low-rank branch; hyper-connections,
                               embeddings of n-grams */
    PLAN_LAYER_STEPS = PLAN_ATTENTION_STEPS + PLAN_FFN_STEPS + PLAN_EMBD_STEPS + PLAN_STREAM_STEPS,
    PLAN_DRAFT_STEPS = 8 + 4 * MODEL_DRAFT_READS, /* reads and their messages; a head's input */
    PLAN_GLOBAL_STEPS = 18 + 2 * MODEL_MAX_STREAMS + PLAN_DRAFT_STEPS /* embeddings, streams,
                                                      exchanges, final norm, head, soft cap */
};

/* Whether the CPU's output head computes the logits of candidates only. Call after the layers have
 * their modes. */
bool plan_predicts_head(const plan *p, const plan_options *o);
/* Appends a step to a side's list, which has room. */
plan_step *plan_add_step(plan *p, plan_side side, plan_op op, int layer, plan_buffer in);
/* The GPU of a layer; for steps outside layers (-1), the GPU of the last layer. */
int plan_device_of(const plan *p, int layer);
/* Copies and checks the options' splits; without splits, places everything on the CPU. */
pi_status plan_set_splits(plan *p, const plan_options *o, pi_error *err);
/* Sorts the GPU steps by device; before, helpers' steps are interleaved. */
pi_status plan_sort_by_device(plan *p, pi_error *err);
/* Fuses messages with the GPU's kernels next to them. Call after all quantized forms are known. */
void plan_join_messages(plan *p);
/* Floats per row of the GPU's buffers, from the plan's GPU steps. */
void plan_set_gpu_widths(plan *p);
/* Whether a step quantizes its output. On the GPU these are attention, gate and up before a
 * product, and receiving a layer's input. */
bool plan_quantizes(const plan_step *s, plan_side side);
/* Messages of a device need at least this many words of bits. */
void plan_need_bits(plan *p, int device, int64_t words);
/* Overrides the default kernels of a step (plan_ops.c). */
void plan_set_kernel(plan_step *s, plan_kernel one, plan_kernel few, plan_kernel many);
void plan_set_default_kernel(plan_step *s, plan_side side);
/* Sets the token counts of forms, and the steps that one thread runs. Call after all steps
 * exist. */
void plan_set_forms(plan *p, const cpu_kernels *kernels, bool few_only);
/* The model's norm over n_embd elements; NORM_NONE without weights. bias: NULL: none. */
args_norm plan_make_norm(const plan *p, const model_tensor *weight, const model_tensor *bias);
/* Y = norm of X with the weights of a role, or X unchanged where the model has no such tensor. */
plan_step *plan_add_norm(plan *p, plan_side side, int layer, tensor_role weight, tensor_role bias);
/* X = its norm, and Y = X. */
plan_step *plan_add_normed_residual(plan *p, int layer, tensor_role weight);
/* X = norm of X, where the model has this norm after an addition. */
void plan_add_sum_norm(plan *p, int layer, tensor_role weight, tensor_role bias);
/* Whether the result of a block's last product is scaled or normed before it is added to X. */
bool plan_adds_late(const plan *p, int layer, tensor_role post_norm);
/* The buffer of an FFN's result that is scaled or normed, or of early experts, whose result is
 * added after other steps. */
static inline plan_buffer plan_late_result(const plan *p, plan_side side) {
    return side == SIDE_GPU || p->model->arch->experts_early ? BUF_FFN_OUT : BUF_Y;
}
/* The GPU kernels of gate and up where all neurons are computed. */
void plan_set_gpu_neurons(const plan *p, plan_step *s);
/* X += the scaled, normed `in`. ROLE_COUNT: without a norm. */
plan_step *plan_add_addition(plan *p, plan_side side, int layer, plan_buffer in,
                             tensor_role post_norm);
/* Sparse attention by index: from the quantized Y to the blocks that attention reads. */
void plan_add_index(plan *p, int layer);
/* Sparse attention by bounds of keys: from Q and the cache to the blocks that attention reads. */
void plan_add_bounds(plan *p, int layer, int64_t q_stride);
/* The matrices of n heads, or groups of heads, stored one after the other. */
args_heads *plan_add_heads(plan *p, int layer, plan_buffer in, tensor_role role, plan_buffer out,
                           int n);
/* Compressed keys: from the quantized Y to queries and keys; then attention's
 * result is rotated back and projected by groups of heads. */
void plan_add_compressed(plan *p, int layer);
void plan_add_groups(plan *p, int layer);
/* MLA: from the normed input to attention's input, and from attention's result to values. */
void plan_add_latents(plan *p, int layer);
void plan_add_values(plan *p, int layer);
/* Heads that draft (plan_draft.c). What `drafter` reads before a layer, n_layer: after the last
 * one; the stream is on the CPU. */
bool plan_draft_reads(const model *drafter, int layer);
void plan_add_draft_reads(plan *p, const model *drafter, int layer);
/* In a head: the layer's input from X; the features of the next token; logits of all tokens. */
void plan_add_draft_in(plan *p);
void plan_add_draft_features(plan *p);
void plan_add_draft_logits(plan *p);
/* Several residual streams (plan_streams.c): before and after all layers, and in each layer. */
bool plan_has_streams(const plan *p);
void plan_add_spread(plan *p);
void plan_add_merge(plan *p);
void plan_add_prediction(plan *p, int layer);
void plan_add_correction(plan *p, int layer);
/* Hyper-connections (plan_streams.c): X from the streams before a block, or before the head (layer
 * -1); a block's result into the streams. fn: the block's projection; its base and scale are the
 * next two roles. */
void plan_add_hyper_start(plan *p);
void plan_add_hyper_in(plan *p, plan_side side, int layer, tensor_role fn);
plan_step *plan_add_hyper_out(plan *p, plan_side side, int layer, tensor_role fn, plan_buffer in);
/* The layer adds embeddings of n-grams to the streams (plan_streams.c). */
void plan_add_ngrams(plan *p, int layer);
/* Attention over earlier residuals (plan_streams.c): X before a block, or before the head (layer
 * -1), by the scores of a role; a block's result into stream 0. */
void plan_add_past_in(plan *p, plan_side side, int layer, tensor_role score);
plan_step *plan_add_past_out(plan *p, plan_side side, int layer, tensor_role score, plan_buffer in);
/* Whether blocks read a sum of streams, and do not add to X. */
static inline bool plan_sums_streams(const plan *p) {
    return p->model->hp.hyper || p->model->hp.past_period > 0;
}
/* The low-rank branch next to attention, whose first product is in GATE, into X. */
void plan_add_branch(plan *p, int layer);
/* The matrix of a role, bound in layer `layer` (-1: global), with its bias. */
plan_matrix plan_make_matrix(const plan *p, int layer, tensor_role role, tensor_role bias,
                             plan_buffer out);
void plan_set_matrix(plan_step *s, const plan_matrix *m); /* becomes the step's next matrix */
/* The whole matrix of a role in the step's layer becomes the step's next matrix. */
void plan_add_matrix(const plan *p, plan_step *s, tensor_role role, tensor_role bias,
                     plan_buffer out);
/* One message from one side to the other: returns the SEND there and the RECEIVE here. */
typedef struct plan_message {
    plan_step *send, *receive;
} plan_message;
plan_message plan_add_message(plan *p, plan_side from, int layer, plan_buffer in, plan_buffer out);
/* The sending side's partial sum of an FFN, added to the other side's partial sum (`first`: the
 * other side has none). */
plan_message plan_add_answer(plan *p, plan_side from, int layer, bool first);
/* A recurrent mixer: the first products, which read the quantized Y; then the rest, including the
 * addition to X. */
void plan_add_recurrent_in(plan *p, int layer);
void plan_add_recurrent(plan *p, int layer);
/* RWKV: the mixer of layer `layer`, from Y to X +=; its FFN's input, from the norm's
 * step to the quantized Y. Returns the last step. */
void plan_add_wkv(plan *p, int layer);
plan_step *plan_add_ffn_shift(plan *p, int layer, plan_step *norm);
/* The layer's part of a session's state comes after the parts of earlier layers. */
plan_recurrent *plan_describe_recurrent(plan *p, int layer);
/* The FFN block of a layer that is a mixture of experts; the router may come earlier. */
void plan_add_router(plan *p, int layer, plan_buffer in);
void plan_add_experts(plan *p, int layer, const plan_options *options);
/* After early experts and the addition of attention: the FFN next to them, and both results. */
void plan_add_beside_early(plan *p, int layer);
/* The router on X as it is before the layer, and the request for the experts that it chooses. */
void plan_prefetch_experts(plan *p, int layer);
/* If the layer's neurons or experts are on the drive: OP_PREFETCH and its predictor, or
 * plan_prefetch_experts. */
void plan_add_prefetch(plan *p, int layer, const plan_options *options);
/* Whether its place is before the FFN of the layer before, so that the drive reads while both this
 * FFN and the attention of the layer are computed. */
bool plan_prefetches_early(const plan *p, int layer, const plan_options *options);
/* A layer, on all devices (plan_layer.c). */
void plan_add_layer(plan *p, int layer, const plan_options *options);

/* ---- neurons of a layer, by device (plan_ffn.c, plan_layer.c) -------------------------------- */

/* The neurons of a layer on one device, while steps are created. */
typedef struct plan_slice {
    plan *p;
    int layer;
    plan_side side;
    int device;       /* for SIDE_GPU */
    bool primary;     /* the device is the layer's primary */
    bool biased;      /* adds the bias of down */
    int64_t first, n; /* neurons */
    plan_ffn *ffn;
} plan_slice;

/* The primary's slice, then the slices of the other devices with neurons; if the primary is a GPU,
 * the CPU's slice comes second, even without neurons, because the CPU forwards messages of
 * helpers. */
typedef struct plan_slices {
    pi_mode mode;
    int n;
    plan_slice slice[1 + PLAN_MAX_DEVICES];
} plan_slices;

plan_slices plan_make_slices(plan *p, int layer, pi_mode mode);
plan_step *plan_add_slice_step(const plan_slice *h, plan_op op, plan_buffer in);
/* Gate and up; only up if there is no gate, or if OP_TOP_K has computed the activations. */
void plan_add_neuron_matrices(const plan_slice *h, plan_step *s);
/* The GPU kernels of gate and up. */
void plan_set_neuron_kernel(const plan_slice *h, plan_step *s);
/* Y = the normed input, quantized; also the predictor's input. */
void plan_add_ffn_norm(const plan_slice *h, predictor_kind kind);
/* Scores computed by separate steps before the input is sent: on the GPU for all neurons, on the
 * CPU for neurons on other devices (OP_FFN_SPARSE scores the CPU's neurons part by part). */
void plan_add_selection(const plan_slices *f, const plan_options *o);
/* Exchange: the input to the other devices, their partial sums to the primary. */
void plan_add_arrivals(const plan_slices *f);
void plan_add_answers(const plan_slices *f);
/* A slice's selected or active neurons, from the quantized Y to X +=. */
void plan_add_sparse_neurons(const plan_slice *h);
/* A plain down matrix, to X +=. */
void plan_add_down(const plan_slice *h, plan_step *hidden);

#endif
