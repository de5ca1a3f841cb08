/* gpu_exec_impl.h: the inside of gpu_exec. Private to src/exec/gpu. */
#ifndef EXEC_GPU_EXEC_IMPL_H
#define EXEC_GPU_EXEC_IMPL_H

#include "gpu_exec.h"

enum {
    GPU_EXEC_LOGIT_ROWS = 8, /* computed at a time */
    GPU_EXEC_TILE_ROWS =
        1024, /* cold neurons that are copied at a time: whole blocks of any type */
    /* Experts are multiplied in tiles from this average number of pairs per expert on. By counted
     * bytes: c pairs, spread over n experts at random, use n (1 - e^(-c / n)) of them; tiles read
     * these once, matrix-vector products read c. At one pair per expert that is 1.6 times as much;
     * below, five further launches per layer and tiles that are mostly empty outweigh the gain. */
    GPU_EXEC_EXPERT_PAIRS = 1,
    GPU_EXEC_STAGES = 2,
    GPU_EXEC_STAGE_BYTES = 2 << 20 /* of a stage: long enough to copy at full speed */
};

/* The operands of one step; all addresses are the device's. */
typedef struct gpu_exec_step {
    gpu_mat w[PLAN_MAX_GROUP];
    const float *bias[PLAN_MAX_GROUP];
    const float *norm_weight, *norm_bias, *q_norm, *k_norm, *sinks, *slopes;
    gpu_mat down, fc2;
    const float *down_bias, *score_bias, *cut_weight, *divisors;
    const uint8_t *sign;
    const float *coefficients; /* of streams */
    gpu_kv_layout kv;          /* OP_COMPRESS: of index keys */
    gpu_kv_layout compressed;
    const float *positions[2], *key_norm[2]; /* of compressed keys and index keys */
    const float *scales[PLAN_MAX_GROUP];     /* of experts' matrices; NULL: 1 */
    const float *select_bias;
    const int32_t *perm, *by_token;
    const float *taps[3], *dt_bias, *decay, *skip; /* of recurrent layers */
    int64_t state_at; /* offset in floats of the layer's state in a session's state on the GPU */
} gpu_exec_step;

/* The host writes this before a ubatch, and the device reads it during the ubatch. */
typedef struct gpu_exec_header {
    uint64_t epoch;
    uint64_t unused; /* aligns the columns to 16 bytes */
    gpu_column columns[];
} gpu_exec_header;

static inline size_t gpu_exec_header_bytes(int n_cols) {
    return sizeof(gpu_exec_header) + (size_t)n_cols * sizeof(gpu_column);
}

/* The CPU's share of a layer whose primary is the GPU; all NULL if there is none. */
typedef struct gpu_exec_cold {
    const plan_step *in;                /* gate and up */
    plan_matrix down;                   /* rows or columns of these neurons */
    const float *bias[PLAN_MAX_GROUP];  /* on the device, for the matrices of the step */
    const float *down_bias;             /* [n_embd] */
    const float *cut_weight, *divisors; /* of these neurons, or NULL */
} gpu_exec_cold;

/* What the steps of a ubatch depend on; the rest they read from device memory. */
typedef struct gpu_exec_shape {
    int n_cols;
    int n_splits; /* of attention: a power of two */
    plan_form form;
    /* The rows of X whose logits a program computes: n_out of them from first_out on. n_out 0: the
     * head is on another device, or the wanted rows are none, not contiguous or more than
     * GPU_EXEC_LOGIT_ROWS. In the head's steps n_out is n_cols. */
    int first_out, n_out;
} gpu_exec_shape;

/* The programs that were used last, one for each shape of a ubatch of few tokens. */
typedef struct gpu_exec_programs {
    struct gpu_exec_recorded {
        gpu_program *program;
        gpu_exec_shape shape;
        uint64_t used; /* epoch of the last launch */
    } of[GPU_EXEC_PROGRAMS];
    int n;
} gpu_exec_programs;

/* Where kernels may not wait for their host: recorded pieces of segments, each up to a message to
 * the host or the end of the segment. They do not depend on which logits are wanted. */
typedef struct gpu_exec_piece {
    gpu_program *program;
    gpu_exec_shape shape;
    int first, end; /* steps */
} gpu_exec_piece;

typedef struct gpu_exec_pieces {
    gpu_exec_piece *of;
    size_t n, capacity;
} gpu_exec_pieces;

/* Neurons that move between ubatches. The hidden vectors of few tokens, which say which neurons
 * were active, stay until the end of the ubatch in layers that compute the gate of every neuron. */
typedef struct gpu_exec_moves {
    float *hidden;          /* [GPU_MAX_COLS][n_layers][gpu_width of BUF_GATE] */
    int n_layers;           /* whose vectors are kept */
    gpu_pinned hidden_host; /* the copy of the last ubatch */
    size_t size;            /* of the longest neuron, each part aligned */
    uint8_t *stage;         /* [ADAPT_MOVES][size] */
    gpu_pinned stage_host;
} gpu_exec_moves;

typedef struct gpu_exec_marks gpu_exec_marks;
typedef struct gpu_exec_swap gpu_exec_swap; /* gpu_swap.c */

struct gpu_exec {
    const gpu_sides *sides; /* all GPUs of the context */
    const gpu_backend *b;
    gpu_device *d; /* NULL: sizes are only added up */
    gpu_stream *stream;
    plan part;        /* the device's part of the context's plan */
    const plan *plan; /* &part */
    const model *model;
    quant_type type_k, type_v;
    int n_batch;
    bool precise;      /* predictors, thresholds and FATReLU switch neurons, routers switch experts:
                          rounding must not decide about it */
    float angle_scale; /* of the context's RoPE angles */
    bool serial;       /* gpu_exec_probe: a program cannot wait for its host */
    bool late, asked;  /* gpu_backend.submits_late; the driver was asked since the last launch */

    gpu_exec_step *steps; /* [plan->n_gpu_steps] */
    void **blocks;        /* [max_blocks] device memory that destroy frees */
    int n_blocks, max_blocks;
    uint8_t *slab; /* one block that contains all others; NULL: there is none */
    size_t slab_used;
    uint64_t n_bytes; /* allocated since it was last set to 0 */
    size_t kv_per_position;
    /* Block scores (gpu_sparse): scores_at is the bytes per position before them, scores_bytes the
     * bytes of one block's scores for all columns. Per position they take scores_bytes divided by
     * the size of a block. */
    size_t scores_at, scores_bytes;
    size_t lists_bytes; /* of the lists of positions after them (gpu_sparse.n_list) */
    int64_t n_state; /* floats of a session's recurrent state in layers whose primary is the GPU */

    /* Device memory of a ubatch. */
    float *buf[BUF_COUNT]; /* [n_batch][gpu_width]; LOGITS [GPU_EXEC_LOGIT_ROWS], which follow
                              `count`: a download has both */
    void *q8[PLAN_SLOTS];  /* [n_batch] quantized columns */
    gpu_exec_header *header;
    float *inv_freq; /* [ROPE_SETS + 1][n_rot / 2], the last for contexts beyond the original one */
    float *angles[ROPE_SETS]; /* [n_batch][n_rots / 2][2]; NULL: the model does not use this set */
    float *attn_partial, *down_partial;
    int32_t *list;     /* selected neurons of the current layer */
    int32_t *count;    /* [n_layer] the number of selected neurons */
    int32_t *parts_in; /* [gpu_exec_arrivals] zeros: gpu_send.arrived, then gpu_attention.arrived;
                          before `count` */
    int32_t *read;     /* [n_layer][2] rows of up and of down that were read */
    int32_t *bad;      /* 0, or n_gpu_steps minus the first norm whose input was not finite */
    uint32_t *bits;    /* [n_batch][words of the layer]: selected neurons, or choices of experts */
    int32_t *uses;     /* [n_layer][n_expert] how often the layer's router chose each expert */
    void *expert_scratch; /* of pairs: quantized hidden vectors of experts, or rounded ones */
    void *expert_lists;   /* pairs sorted by expert (gpu_expert_lists_at); NULL: no tiles */
    void *halves;         /* rounded inputs of tiled products */
    uint8_t *stage;       /* [GPU_EXEC_STAGES][GPU_EXEC_STAGE_BYTES] */

    /* Pinned host memory, which the device also sees. */
    gpu_pinned header_host, stage_host, uses_host;
    gpu_pinned results_host;                                    /* `count`, then logits */
    gpu_pinned message_x[PLAN_SIDES], message_bits[PLAN_SIDES]; /* by sender */
    gpu_pinned message_embd;                                    /* BUF_LAYER_EMBD */
    gpu_pinned flags[PLAN_SIDES];                               /* by sender, [n_exchanges] */
    /* The message from the previous stage, and the message to the next stage, which owns its
     * memory: a flag in a separate line, then [n_batch][plan_residual_width]. It is in memory of
     * the receiver if the sender reaches that, so that waiting and reading cross no bus (host is
     * NULL then); otherwise it is in pinned memory. */
    gpu_pinned inbox, outbox;
    gpu_event *staged[GPU_EXEC_STAGES]; /* the copy out of a stage is done */
    int next_stage;
    gpu_stream *side; /* copies cold rows in ubatches of many tokens */
    gpu_event *ended; /* everything that was enqueued for the ubatch is done */
    gpu_event *sent;  /* the last message is there; not recorded where kernels may wait */

    /* Ubatches of many tokens. */
    gpu_exec_cold *cold; /* [n_layer] */
    uint64_t cold_bytes; /* of all shares; 0: there are none */
    int stream_from;     /* minimum tokens of ubatches for which cold rows are copied to the GPU */
    /* Two tiles of rows take turns: while one is multiplied, the next arrives. */
    void *tile[GPU_EXEC_STAGES];
    gpu_event *arrived[GPU_EXEC_STAGES], *consumed[GPU_EXEC_STAGES];
    int next_tile;
    pool *fillers;      /* threads that copy rows into stages; NULL: the calling thread copies */
    float *tile_out[2]; /* gate and up of a tile */

    /* Experts that are swapped while the model runs. */
    bool adapts;
    paging *paging; /* loads the CPU's experts; NULL: they are in memory */
    gpu_exec_swap *swap;
    int32_t *slots; /* [n_layer][n_expert] the slot of each expert; NULL: slots are the experts'
                       numbers */

    /* Neurons that move (gpu_move.c). */
    bool moves;
    gpu_exec_moves moved;

    gpu_exec_marks *marks; /* gpu_trace.c; NULL: ubatches are not traced */

    gpu_exec_programs programs;
    gpu_exec_pieces pieces;
    uint64_t epoch;
    int ready;      /* rows whose logits the launched program computes; -1: none was launched */
    int next_step;  /* of a ubatch in segments: the first that is not enqueued */
    bool counted;   /* the last ubatch had few tokens, and its counts are on the host */
    bool streaming; /* in this ubatch cold rows are copied to the GPU */
};

/* Whether experts are multiplied in tiles, in a ubatch of many tokens. Also experts of other
 * devices count, so that equal ubatches have equal results wherever some experts are. */
static inline bool gpu_exec_tiles_experts(int n_cols, int n_used, int n_expert) {
    return n_cols > GPU_MAX_COLS &&
           (int64_t)n_cols * n_used >= (int64_t)GPU_EXEC_EXPERT_PAIRS * n_expert;
}

/* The number of a ubatch's counters on the device: `count`, `read` and `bad` are contiguous. */
static inline size_t gpu_exec_counts(const gpu_exec *g) {
    return 3 * (size_t)g->model->hp.n_layer + 1;
}
/* Their bytes, padded for the logits that follow. */
static inline size_t gpu_exec_counts_bytes(const gpu_exec *g) {
    size_t n = gpu_exec_counts(g) * sizeof *g->count;
    return (n + GPU_ROW_ALIGN - 1) / GPU_ROW_ALIGN * GPU_ROW_ALIGN;
}
/* Bytes of `count` and the logits. */
static inline size_t gpu_exec_results_bytes(const gpu_exec *g) {
    return gpu_exec_counts_bytes(g) +
           GPU_EXEC_LOGIT_ROWS * (size_t)g->plan->gpu_width[BUF_LOGITS] * sizeof(float);
}
static inline const int32_t *gpu_exec_host_counts(const gpu_exec *g) {
    return g->results_host.host;
}
/* The length of `parts_in`, in front of them: for messages, and for ubatches that split
 * attention. */
static inline size_t gpu_exec_arrivals(const gpu_exec *g) {
    const size_t line = GPU_ROW_ALIGN / sizeof *g->parts_in; /* keeps `count` aligned */
    return line + (size_t)GPU_ATTN_SPLITS / 2 * GPU_MAX_COLS * (size_t)g->model->hp.n_head;
}

/* The message in an inbox or outbox. */
static inline float *gpu_exec_box_x(const gpu_pinned *box) {
    return box->device ? (float *)((uint8_t *)box->device + GPU_FLAG_BYTES) : NULL;
}

/* The pinned memory where the CPU writes a message with this buffer. */
static inline const gpu_pinned *gpu_exec_outbox(const gpu_exec *g, plan_buffer b) {
    return b == BUF_LAYER_EMBD ? &g->message_embd : &g->message_x[SIDE_CPU];
}

static inline gpu_clamp gpu_exec_clamp(const gpu_exec *g, float most) {
    return (gpu_clamp){.most = most,
                       .shifted = g->model->arch->has & ARCH_FFN_CLAMP,
                       .late = g->model->arch->clamp_late,
                       .soft = g->model->hp.soft_gate};
}

static inline const gpu_column *gpu_exec_columns(const gpu_exec *g) {
    return g->header->columns;
}

static inline const float *gpu_exec_frequencies(const gpu_exec *g, int set) {
    return g->inv_freq + (int64_t)set * (g->model->hp.n_rot / 2);
}

static inline size_t gpu_exec_uses_bytes(const gpu_exec *g) {
    return (size_t)g->model->hp.n_layer * (size_t)g->plan->n_expert * sizeof(int32_t);
}

/* gpu_kv.c: the GPU's part of the slot `floats` of a session's state; NULL if there is none, or
 * floats is NULL. */
float *gpu_exec_state_at(const gpu_exec *g, const pi_session *s, const float *floats);
/* gpu_program.c: enqueues the next segment of a ubatch of many tokens, whose input has arrived, and
 * after the last segment the first one of the next stage. */
void gpu_exec_continue(gpu_exec *g);
/* gpu_exec.c */
static inline int gpu_exec_device(const gpu_exec *g) {
    return g->plan->device;
}
int gpu_exec_rope_sets(const model *m); /* sets of angles by which layers rotate */
/* None of the programs may be running. */
void gpu_exec_programs_free(gpu_exec *g, gpu_exec_programs *p);
/* gpu_upload.c */
/* Allocates n_bytes (gpu_exec_size) at once if many allocations would waste memory. */
pi_status gpu_exec_take_slab(gpu_exec *g, uint64_t n_bytes, pi_error *err);
/* Device memory that lives as long as the gpu_exec; *out stays NULL while sizes are added up. */
pi_status gpu_exec_alloc(gpu_exec *g, size_t n_bytes, const char *what, void **out, pi_error *err);
/* Uploads all operands of all steps. */
pi_status gpu_exec_upload(gpu_exec *g, pi_error *err);
/* If from is NULL, so is *out. */
pi_status gpu_exec_upload_floats(gpu_exec *g, const float *from, int64_t n, const char *what,
                                 const float **out, pi_error *err);
/* Copies rows from the host into a packed matrix, through the stages, in the order of that
 * stream. */
void gpu_exec_pack_rows(gpu_exec *g, gpu_stream *s, const plan_matrix *pm, const gpu_mat *to);
/* gpu_probe.c: sets `serial`. */
pi_status gpu_exec_probe(gpu_exec *g, pi_error *err);
/* gpu_swap.c */
pi_status gpu_exec_swap_create(gpu_exec *g, pi_error *err); /* device memory, a stream */
void gpu_exec_swap_free(gpu_exec *g);
void gpu_exec_swap_wait(gpu_exec *g); /* until its stream is idle */
const gpu_exec_step *gpu_exec_step_of(const gpu_exec *g, int layer, plan_op op);
/* gpu_move.c */
pi_status gpu_exec_moves_create(gpu_exec *g, pi_error *err); /* device and pinned memory */
void gpu_exec_moves_free(gpu_exec *g);
/* Where a layer's kernels for few tokens write hidden vectors, *ld floats apart. */
float *gpu_exec_hidden_of(const gpu_exec *g, int layer, int64_t *ld);
/* Enqueues the copy of hidden vectors to the host. */
void gpu_exec_download_hidden(gpu_exec *g);

/* gpu_prefill.c */
pi_status gpu_exec_prefill_create(gpu_exec *g, pi_error *err); /* device memory, biases */
void gpu_exec_prefill_free(gpu_exec *g);
void gpu_exec_prefill_expect(const gpu_exec *g, gpu_exec_prompt *out);
/* Sets stream_from, and creates the threads that fill stages. */
pi_status gpu_exec_prefill_choose(gpu_exec *g, pi_error *err);
/* Computes a layer's cold neurons on the GPU, instead of the CPU's answer. */
void gpu_exec_stream_cold(gpu_exec *g, const plan_step *answer, int n_cols);

/* step_count.c: the kernels (and fills) that one token takes at this depth, in a part of a plan. */
int32_t gpu_exec_count_kernels(const plan *p, int64_t depth);

/* gpu_trace.c: whether the current ubatch is traced. */
bool gpu_exec_is_marked(const gpu_exec *g);
/* The programs of traced ubatches, which include the stamps. */
gpu_exec_programs *gpu_exec_marked_programs(gpu_exec *g);
/* Mark the beginning of a series of steps, and the end of each step. They do nothing in ubatches
 * that are not traced. */
void gpu_exec_mark_start(gpu_exec *g);
void gpu_exec_mark_step(gpu_exec *g, int step, bool streamed);
/* Marks the first n steps, whose program is launched, as if each had just been enqueued. */
void gpu_exec_mark_program(gpu_exec *g, int n);
/* gpu_program.c: bytes of weights that a step read in the last ubatch. */
uint64_t gpu_exec_step_bytes(const gpu_exec *g, int step);

/* gpu_steps.c: enqueueing steps for a ubatch. */
/* The copy of the header, and what comes before the layers. */
void gpu_exec_enqueue_start(gpu_exec *g, const gpu_exec_shape *shape);
void gpu_exec_enqueue_step(gpu_exec *g, int index, const gpu_exec_shape *shape);
/* The first of the head's steps, where the head is on the GPU. */
int gpu_exec_head_at(const gpu_exec *g);
/* Enqueues the logits of rows [first, first + n) of X, into buf[BUF_LOGITS], and the download of
 * counts and logits. n may be 0. */
void gpu_exec_enqueue_results(gpu_exec *g, int first, int n);
/* Enqueues their hidden states, into buf[BUF_Y] from its first row on. */
void gpu_exec_enqueue_hidden(gpu_exec *g, int first, int n);

/* The functions of ops.def: a step as operations of the device. */

/* gpu_steps.c */
void gpu_exec_norm(gpu_exec *g, const plan_step *s, const args_norm *args, const gpu_exec_step *w,
                   const gpu_exec_shape *p);
void gpu_exec_head_norm(gpu_exec *g, const plan_step *s, const args_norm *args,
                        const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_activate(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p);
void gpu_exec_quantize(gpu_exec *g, const plan_step *s, const args_quantize *args,
                       const gpu_exec_shape *p);
void gpu_exec_matvec(gpu_exec *g, const plan_step *s, const args_matmul *args,
                     const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_matmul(gpu_exec *g, const plan_step *s, const args_matmul *args,
                     const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_rope_store(gpu_exec *g, const plan_step *s, const args_rope *args,
                         const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_rope_back(gpu_exec *g, const plan_step *s, const args_rope *args,
                        const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_index_store(gpu_exec *g, const plan_step *s, const args_rope *args,
                          const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_compress(gpu_exec *g, const args_compress *args, const gpu_exec_step *w,
                       const gpu_exec_shape *p);
void gpu_exec_find_blocks(gpu_exec *g, const plan_blocks *blocks, const gpu_exec_step *w,
                          const gpu_exec_shape *p);
void gpu_exec_attention(gpu_exec *g, const plan_step *s, const args_attention *args,
                        const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_send(gpu_exec *g, const plan_step *s, const args_message *args,
                   const gpu_exec_shape *p);
void gpu_exec_receive(gpu_exec *g, const plan_step *s, const args_message *args,
                      const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_add(gpu_exec *g, const plan_step *s, const args_add *args, const gpu_exec_step *w,
                  const gpu_exec_shape *p);
void gpu_exec_softcap(gpu_exec *g, const plan_step *s, const args_softcap *args,
                      const gpu_exec_shape *p);
void gpu_exec_heads_vector(gpu_exec *g, const plan_step *s, const args_heads *args,
                           const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_heads_tiled(gpu_exec *g, const plan_step *s, const args_heads *args,
                          const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_latent_store(gpu_exec *g, const plan_step *s, const args_latent_store *args,
                           const gpu_exec_step *w, const gpu_exec_shape *p);
/* gpu_streams.c */
void gpu_exec_mix(gpu_exec *g, const plan_step *s, const gpu_exec_step *w, const gpu_exec_shape *p);
/* OP_PAST_IN before a block, OP_PAST_OUT after it. */
void gpu_exec_past(gpu_exec *g, const plan_step *s, const args_past *args, const gpu_exec_step *w,
                   const gpu_exec_shape *p);
void gpu_exec_hyper(gpu_exec *g, const plan_step *s, const args_hyper *args, const gpu_exec_step *w,
                    const gpu_exec_shape *p);
void gpu_exec_hyper_mean(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p);
void gpu_exec_merge(gpu_exec *g, const plan_step *s, const gpu_exec_shape *p);
/* gpu_recurrent.c */
void gpu_exec_conv(gpu_exec *g, const plan_recurrent *r, const gpu_exec_step *w,
                   const gpu_exec_shape *p);
void gpu_exec_recur(gpu_exec *g, const plan_recurrent *r, const gpu_exec_step *w,
                    const gpu_exec_shape *p);
void gpu_exec_gate_ssm(gpu_exec *g, const plan_recurrent *r, const gpu_exec_step *w,
                       const gpu_exec_shape *p);
/* gpu_ffn.c */
void gpu_exec_select_vector(gpu_exec *g, const plan_step *s, const plan_ffn *f,
                            const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_select_tiled(gpu_exec *g, const plan_ffn *f, const gpu_exec_step *w,
                           const gpu_exec_shape *p);
void gpu_exec_list_message(gpu_exec *g, const plan_step *s, const plan_ffn *f,
                           const gpu_exec_shape *p);
void gpu_exec_top_k(gpu_exec *g, const plan_step *s, const args_top_k *args,
                    const gpu_exec_shape *p);
void gpu_exec_ffn_rows(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                       const gpu_exec_shape *p);
void gpu_exec_ffn_listed(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                         const gpu_exec_shape *p);
void gpu_exec_ffn_masked(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                         const gpu_exec_shape *p);
void gpu_exec_ffn_tiled(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                        const gpu_exec_shape *p);
void gpu_exec_down_rows(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                        const gpu_exec_shape *p);
void gpu_exec_down_listed(gpu_exec *g, const plan_step *s, const plan_ffn *f,
                          const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_down_tiled(gpu_exec *g, const plan_step *s, const plan_ffn *f, const gpu_exec_step *w,
                         const gpu_exec_shape *p);
/* gpu_experts.c */
void gpu_exec_route(gpu_exec *g, const plan_step *s, const plan_experts *e, const gpu_exec_step *w,
                    const gpu_exec_shape *p);
void gpu_exec_experts_in(gpu_exec *g, const plan_step *s, const plan_experts *e,
                         const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_experts_down(gpu_exec *g, const plan_step *s, const plan_experts *e,
                           const gpu_exec_step *w, const gpu_exec_shape *p);
void gpu_exec_experts_sum(gpu_exec *g, const plan_step *s, const plan_experts *e,
                          const gpu_exec_shape *p);

/* The number of parts that attention of one token is split into. n_splits: parts of the whole
 * context. */
int gpu_exec_attention_splits(const args_attention *a, int n_splits);
/* Words of a token's choices of experts, or of its selected neurons: among the layer's neurons
 * where the GPU selects them, among the GPU's neurons where they come in a message. */
int64_t gpu_exec_words(const gpu_exec *g, const plan_step *s);

/* The message, or the part of it, that the kernel of an OP_NORM, OP_SELECT or OP_ROUTE sends.
 * False: none. */
bool gpu_exec_sends(const gpu_exec *g, const plan_step *s, const gpu_exec_shape *p, gpu_send *out);
/* Where the int8 form of a step's result goes; NULL: no step reads it, or only tiled products,
 * which read floats. */
void *gpu_exec_q8(const gpu_exec *g, const plan_step *s, plan_form form);
/* The norm of the next step, in *norm and, if it sends, *send, if the step's kernel includes it
 * (plan_step.norms); NULL: it does not. */
const gpu_norm *gpu_exec_norm_after(const gpu_exec *g, const plan_step *s, const gpu_exec_step *w,
                                    const gpu_exec_shape *p, gpu_norm *norm, gpu_send *send);
gpu_input gpu_exec_input(const gpu_exec *g, plan_buffer b, int slot, int n_cols);
gpu_matmul gpu_exec_product(const gpu_exec *g, const plan_matrix *pm, const gpu_mat *w,
                            const float *bias, const gpu_input *in, plan_buffer out, bool add);

#endif
