/* session.h: one sequence: its KV cache, the state of its recurrent layers, its tokens. It can be
 * rewound, copied and shortened (session_edit.c), saved and loaded (session_file.c).
 *
 * The sessions of a context share a session_host: the model, the plan, and the CPU's pool and
 * kernels for editing. Caches of layers whose primary is a GPU are in the memory of that GPU; a
 * table of functions (session_gpus) copies them from and to the host. The context fills in both,
 * creates sessions and feeds them tokens. One thread at a time uses a context and its sessions. */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "kv_cache.h"
#include "plan.h"
#include "pool.h"
#include "powerinfer.h"
#include "recurrent_state.h"
#include "rope_angles.h"

struct engine_context; /* opaque in src/session */

/* Rows [first, first + n) of one part of a layer's cache. In parts with one row per position, rows
 * are positions. */
typedef struct kv_range {
    int layer;
    kv_part part;
    int64_t first, n;
} kv_range;

/* Copies parts of sessions from and to GPUs. Rows are [n][heads][row bytes]. */
typedef struct session_gpus {
    pi_status (*read)(const pi_session *s, const kv_range *r, void *rows, pi_error *err);
    pi_status (*write)(pi_session *s, const kv_range *r, const void *rows, pi_error *err);
    /* Copies the first n positions of all layers on GPUs. */
    pi_status (*copy)(pi_session *to, const pi_session *from, int64_t n, pi_error *err);
    /* Copy the state of recurrent layers between GPUs and `floats`, a slot of the session's state
     * on the host. */
    pi_status (*read_state)(const pi_session *s, const float *floats, pi_error *err);
    pi_status (*write_state)(const pi_session *s, const float *floats, pi_error *err);
} session_gpus;

/* The parts of sessions that other machines hold: layers outside of the plan. A machine that calls
 * them is the first one; the others do what it tells them, in the same order. */
typedef struct session_ranks {
    /* Copies positions [first, first + n) of a layer's cache, as a saved session has them, from the
     * machine whose plan has the layer, or to all other machines that hold it. put: the layer has
     * n_stored positions in `from`. */
    pi_status (*get)(const pi_session *s, int layer, int64_t first, int64_t n, void *to,
                     pi_error *err);
    pi_status (*put)(pi_session *s, int layer, int64_t first, int64_t n, const void *from,
                     int64_t n_stored, pi_error *err);
    /* Copies the state of the recurrent layers of all other machines after `length` tokens, in the
     * order of the layers. put also ends the loading of tokens from `first` on: the session then
     * has `length` tokens. */
    pi_status (*get_state)(const pi_session *s, int64_t length, float *to, pi_error *err);
    pi_status (*put_state)(pi_session *s, int64_t first, int64_t length, const float *from,
                           pi_error *err);
    pi_status (*rewind)(pi_session *s, int64_t length, pi_error *err);
    pi_status (*copy)(pi_session *to, const pi_session *from, int64_t length, pi_error *err);
    pi_status (*remove)(pi_session *s, int64_t first, int64_t end, pi_error *err);
} session_ranks;

/* Shared by the sessions of a context. */
typedef struct session_host {
    const model *model;
    const plan *plan;            /* NULL: the sessions cannot be used (check) */
    const plan_options *options; /* options of the plan: modes of the FFN layers */
    quant_type type_k, type_v;
    const rope_frequencies *rope;
    const cpu_kernels *kernels;
    pool *pool;
    int n_threads; /* threads for moving a session's cache */
    const session_gpus *gpus;
    const session_ranks
        *ranks; /* NULL: no other machine holds anything, or this is not the first */
    /* PI_ERR_ARG: the process was forked from the one that created the context; PI_ERR_DEVICE:
     * there is no plan. `call` is for the message. */
    pi_status (*check)(const struct engine_context *c, const char *call, pi_error *err);
} session_host;

/* Sparse attention on the CPU: scores of one layer's blocks, while the layer is computed and until
 * the last layer that shares its selection. */
typedef struct block_scores {
    float *data; /* [tokens][n_heads][n_blocks + n_list]; NULL: a token attends to all blocks */
    int64_t n_heads, n_blocks;
    int64_t n_list; /* blocks of one position (DSA): the attended positions, ascending, as int32
                       after the scores; 0: there is no list */
    size_t n_bytes;
} block_scores;

/* Per block, the minimum and the maximum of each element of its cached keys (plan_blocks.bounds). A
 * row of QUANT_Q8_0 has a head's maxima, then its minima. */
typedef struct key_bounds {
    uint8_t *data; /* [n_layer][heads][n_blocks] rows; NULL: not used */
    size_t n_bytes;
    size_t row;        /* bytes */
    int64_t heads;     /* KV heads, maximum over layers */
    int64_t n_blocks;  /* whole blocks that fit into the cache */
    int64_t positions; /* rows of [0, positions) are up to date in all layers; whole blocks */
} key_bounds;

/* What a head that drafts reads of the session's tokens: their features (model_draft). Only the
 * last rows are kept; a head that missed older ones drafts without them. */
typedef struct session_features {
    float *rows; /* [n_rows][width], position p in row p % n_rows; NULL: none are kept */
    int64_t width, n_rows;
    int64_t first, end; /* positions whose rows are kept, if `end` is the session's length */
} session_features;

enum { SESSION_FEATURES_MIN = 4096 }; /* rows, unless the session is shorter */

struct pi_session {
    const session_host *host;
    kv_cache kv; /* cache of layers whose primary is the CPU */
    recurrent_state state;
    void *device_kv[PLAN_MAX_DEVICES]; /* caches of the other layers, on their GPUs; NULL: none */
    int32_t *tokens; /* [n_ctx] tokens of the session, to evaluate them again after a GPU is lost;
                        NULL without a GPU */
    int64_t length;  /* tokens fed */

    /* Used by the engine. */
    struct engine_context *context;
    block_scores blocks;
    key_bounds bounds;
    session_features features;
    pi_session *next;      /* list of the context's sessions */
    int32_t number;        /* among the context's sessions, the same on all machines */
    bool in_call, in_pass; /* of this call; of a pass under way (stages) */
};

/* Creates a cache of n_ctx positions and a recurrent state for the host's plan in a zeroed session.
 * PI_ERR_NOMEM; PI_ERR_ARG: kv_cache_create. */
pi_status session_init(pi_session *s, const session_host *host, int64_t n_ctx, pi_error *err);
/* Replaces the cache by an empty one of equal length for the host's new plan; resets the recurrent
 * state to position 0. */
pi_status session_renew(pi_session *s, pi_error *err);
void session_free(pi_session *s); /* frees the allocations of session_init, and `tokens` */

/* Bytes of the features of a session of n_ctx positions, in ubatches of at most n_batch tokens;
 * n_rows: rows that are kept. */
size_t session_features_bytes(const plan *p, int64_t n_ctx, int64_t n_batch, int64_t *n_rows);
/* PI_ERR_NOMEM. Does nothing for plans without features. */
pi_status session_features_create(pi_session *s, int64_t n_batch, pi_error *err);
/* Before and after n_tokens are evaluated: forgets the rows that they replace, adds theirs. */
void session_features_begin(pi_session *s, int64_t n_tokens);
void session_features_end(pi_session *s, int64_t n_tokens);
static inline float *session_features_row(const pi_session *s, int64_t pos) {
    return s->features.rows + pos % s->features.n_rows * s->features.width;
}
/* As pi_session_features (powerinfer_draft.h). */
int64_t session_features_first(const pi_session *s);

/* Invalidates bounds and features of positions from `pos` on; call when their keys change. */
static inline void session_keys_changed(pi_session *s, int64_t pos) {
    if (s->features.end > pos) s->features.end = pos;
    pos -= pos % PLAN_BOUNDS_SIZE;
    if (s->bounds.positions > pos) s->bounds.positions = pos;
}

static inline int64_t session_length(const pi_session *s) {
    return s->length;
}
static inline int64_t session_capacity(const pi_session *s) {
    return s->kv.n_ctx;
}
pi_status session_rewind(pi_session *s, int64_t length, pi_error *err);
/* The last position of at most `length` that the session can be rewound to. */
int64_t session_rewind_point(const pi_session *s, int64_t length);

/* As pi_session_copy and pi_session_remove (powerinfer.h); session_edit.c. */
pi_status session_copy(pi_session *to, const pi_session *from, int64_t length, pi_error *err);
pi_status session_remove(pi_session *s, int64_t first, int64_t end, pi_error *err);

/* As pi_session_save and pi_session_load; session_file.c. */
pi_status session_save(const pi_session *s, const char *path, const int32_t *tokens,
                       int64_t n_tokens, pi_error *err);
pi_status session_load(pi_session *s, const char *path, int32_t *tokens, int64_t capacity,
                       int64_t *n_tokens, pi_error *err);
/* As pi_session_get_state and pi_session_set_state. */
pi_status session_get_state(const pi_session *s, const int32_t *tokens, int64_t n_tokens,
                            void *data, size_t capacity, size_t *n_bytes, pi_error *err);
pi_status session_set_state(pi_session *s, const void *data, size_t n_bytes, int32_t *tokens,
                            int64_t capacity, int64_t *n_tokens, pi_error *err);

/* Copies positions [first, first + n) of a layer that this machine holds to [kv_layer_bytes],
 * as a saved session has them; the other way round, the first n of n_stored positions. */
pi_status session_get_layer(const pi_session *s, int layer, int64_t first, int64_t n, void *to,
                            pi_error *err);
pi_status session_put_layer(pi_session *s, int layer, int64_t first, int64_t n, const void *from,
                            int64_t n_stored, pi_error *err);
/* The state of this machine's recurrent layers [plan.n_own_state]: session_end_load also sets the
 * length to `length` >= first after positions from `first` on were put. */
pi_status session_get_own_state(const pi_session *s, int64_t length, float *to, pi_error *err);
pi_status session_end_load(pi_session *s, int64_t first, int64_t length, const float *state,
                           pi_error *err);

/* As pi_session_range_bytes and the functions after it. */
size_t session_range_bytes(const pi_session *s, int64_t n_tokens);
size_t session_recurrent_bytes(const pi_session *s);
uint64_t session_state_id(const pi_session *s);
pi_status session_get_range(const pi_session *s, int64_t first, int64_t n_tokens, void *data,
                            pi_error *err);
pi_status session_get_recurrent(const pi_session *s, int64_t length, void *data, pi_error *err);
pi_status session_put_ranges(pi_session *s, int64_t first, const pi_session_range *ranges,
                             size_t n_ranges, const int32_t *tokens, const void *recurrent,
                             pi_error *err);

/* Whether a layer's part of the KV cache is on a GPU. */
static inline bool session_on_gpu(const pi_session *s, int layer) {
    return s->host->plan->splits[layer].primary == SIDE_GPU;
}

#endif
