/* gpu_exec_impl.h: inside of the GPU's side. Private to the gpu_*.c files. */
#ifndef ENGINE_GPU_EXEC_IMPL_H
#define ENGINE_GPU_EXEC_IMPL_H

#include "context.h"

enum {
    HYBRID_SPLIT_BUCKETS = 6, /* log2 of 1, 2, .. GPU_ATTN_SPLITS, and one for each */
    HYBRID_LOGIT_ROWS = 8,    /* computed at a time */
    HYBRID_TILE_ROWS = 1024,  /* cold neurons that are copied at a time: whole blocks of any type */
    HYBRID_STAGES = 2,
    HYBRID_STAGE_BYTES = 8 << 20 /* on the way to the device: long enough to copy at full speed */
};

/* One plan step's operands; all addresses are the device's. */
typedef struct hybrid_step {
    gpu_mat w[PLAN_MAX_GROUP];
    const float *bias[PLAN_MAX_GROUP];
    const float *norm_weight, *norm_bias, *q_norm, *k_norm;
    gpu_mat down, fc2;
    const float *down_bias, *score_bias;
    const uint8_t *sign;
    gpu_kv_layout kv;
} hybrid_step;

/* What the host writes before a pass and the device reads in it. */
typedef struct hybrid_header {
    uint64_t epoch;
    uint64_t unused; /* columns are aligned to 16 bytes */
    gpu_column columns[];
} hybrid_header;

/* The processor's share of a layer whose home is the GPU: all NULL where there is none. */
typedef struct hybrid_cold {
    const plan_step *in;               /* gate and up */
    plan_matrix down;                  /* rows or columns of these neurons */
    const float *bias[PLAN_MAX_GROUP]; /* of the device, as the step's matrices */
    const float *down_bias;            /* [n_embd] */
} hybrid_cold;

/* One for every shape of a pass of few tokens; NULL: not recorded yet. */
typedef struct hybrid_programs {
    gpu_program *of[GPU_MAX_COLS][HYBRID_SPLIT_BUCKETS];
} hybrid_programs;

typedef struct hybrid_marks hybrid_marks;

struct hybrid {
    const gpu_backend *b;
    gpu_device *d; /* NULL while sizes are only added up */
    gpu_stream *stream;
    const plan *plan;
    const model *model;
    quant_type type_k, type_v;
    int n_batch;
    bool precise;      /* an activation may jump: rounding must not decide on which side it is */
    float angle_scale; /* as the context's */

    hybrid_step *steps; /* [plan->n_gpu_steps] */
    void **blocks;      /* [max_blocks] device memory, to be freed */
    int n_blocks, max_blocks;
    uint8_t *slab; /* one block that all others are parts of; NULL: there is none */
    size_t slab_used;
    uint64_t n_bytes; /* of what was allocated since the last look */
    size_t kv_per_position;

    /* Device memory of a pass. */
    float *buf[BUF_COUNT]; /* [n_batch][gpu_width]; LOGITS [HYBRID_LOGIT_ROWS] */
    void *q8[PLAN_SLOTS];  /* [n_batch] encoded columns */
    hybrid_header *header;
    float *inv_freq, *angles; /* [n_rot / 2], [n_batch][n_rot / 2][2] */
    float *attn_partial, *down_partial;
    int32_t *list;  /* candidates of the layer under way */
    int32_t *count; /* [n_layer] how many there were */
    int32_t *read;  /* [n_layer][2] rows of up and of down that were read */
    int32_t *bad;   /* 0, or n_gpu_steps less the first norm whose input was not finite */
    uint32_t *bits; /* [n_batch][words of the layer] */
    void *halves;   /* inputs of prompt products */
    uint8_t *stage; /* [HYBRID_STAGES][HYBRID_STAGE_BYTES] */

    /* Pinned memory: of the host, as the device sees it too. */
    gpu_pinned header_host, counts_host, logits_host, stage_host;
    gpu_pinned message_x[PLAN_SIDES], message_bits[PLAN_SIDES]; /* by sender */
    gpu_pinned flags[PLAN_SIDES];                               /* by sender, [n_exchanges] */
    gpu_event *staged[HYBRID_STAGES]; /* the copy out of a stage is done */
    int next_stage;
    gpu_event *ended; /* all that was enqueued for the pass is done */

    /* Passes of many tokens. */
    hybrid_cold *cold;   /* [n_layer] */
    uint64_t cold_bytes; /* of all shares; 0: there are none */
    int stream_from;     /* tokens from which cold rows are copied to the GPU */
    void *tile;          /* rows on their way */
    float *tile_out[2];  /* their gate and up */

    hybrid_marks *marks; /* gpu_trace.c; NULL: passes are not traced */

    hybrid_programs programs;
    uint64_t epoch;
    int next_step;  /* of a pass in segments: the first that is not enqueued */
    bool counted;   /* the last pass was of few tokens, and its counts are on the host */
    bool streaming; /* in this pass cold rows are copied to the GPU */
};

/* Numbers that a pass counts on the device: `count`, `read` and `bad` lie one behind the other. */
static inline size_t hybrid_counts(const hybrid *h) {
    return 3 * (size_t)h->model->hp.n_layer + 1;
}

/* gpu_exec.c: no launch is under way. */
void hybrid_programs_free(hybrid *h, hybrid_programs *p);

/* gpu_upload.c */
/* Takes n_bytes (of hybrid_size) at once where many allocations would waste memory. */
pi_status hybrid_take_slab(hybrid *h, uint64_t n_bytes, pi_error *err);
/* Device memory that lives as long as the hybrid; *out stays NULL while sizes are added up. */
pi_status hybrid_alloc(hybrid *h, size_t n_bytes, const char *what, void **out, pi_error *err);
/* All operands of all steps. */
pi_status hybrid_upload(hybrid *h, pi_error *err);
/* from NULL: *out is NULL too. */
pi_status hybrid_upload_floats(hybrid *h, const float *from, int64_t n, const char *what,
                               const float **out, pi_error *err);
/* Rows from the host into a packed matrix, by way of the stages. */
void hybrid_pack_rows(hybrid *h, const plan_matrix *pm, const gpu_mat *to);

/* gpu_prefill.c */
pi_status hybrid_prompts_create(hybrid *h, pi_error *err); /* device memory, biases */
void hybrid_prompts_choose(hybrid *h, const engine_context *c, engine_prompts prompts);
/* Adds the layer's cold neurons to X, computed on the GPU. */
void hybrid_stream_cold(hybrid *h, int layer, int n_cols);

/* gpu_trace.c. The pass under way is traced. */
bool hybrid_is_marked(const hybrid *h);
/* Programs of such passes, with the marks in them. */
hybrid_programs *hybrid_marked_programs(hybrid *h);
/* Called where nothing was enqueued for a while, before the next step; and after each step, whose
 * number this is. Nothing happens in passes that are not traced. */
void hybrid_mark_start(hybrid *h);
void hybrid_mark_step(hybrid *h, int step, bool streamed);
/* A program of the first n steps is launched: they are the pass's, as if each had just been marked.
 */
void hybrid_mark_program(hybrid *h, int n);
/* gpu_exec.c: weights that a step of the last pass read. */
uint64_t hybrid_step_bytes(const hybrid *h, int step);

/* gpu_steps.c: one pass's shape, and enqueueing steps for it. */
typedef struct hybrid_shape {
    int n_cols;
    int n_splits; /* of attention */
    bool few;     /* matrix-vector operations, lists of neurons */
} hybrid_shape;
void hybrid_enqueue_start(hybrid *h, const hybrid_shape *shape);
void hybrid_enqueue_step(hybrid *h, int index, const hybrid_shape *shape);
/* Whether a layer's neurons (its OP_FFN_NEURONS or OP_FFN_IN) go one by one, by lists and counts of
 * rows, or in tiles. */
bool hybrid_by_neuron(const plan_step *s, bool few);
/* Logits of rows [first, first + n) of X into buf[BUF_LOGITS]. */
void hybrid_enqueue_head(hybrid *h, int first, int n);

#endif
