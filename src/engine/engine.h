/* engine.h: contexts, sessions and the forward pass.
 *
 * A context owns the plan, the working buffers and the worker pool; a session owns a KV cache and a
 * position. One thread at a time uses a context and its sessions. Nothing is allocated on the host
 * after creation.
 *
 * With a GPU, the caller opens the device and decides the placement; the context uploads the GPU's
 * weights and enqueues its steps once per ubatch (gpu_exec.h). */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "cpu.h"
#include "gpu.h"
#include "model.h"
#include "paging.h"
#include "plan.h"
#include "pool.h"
#include "powerinfer.h"

/* How ubatches of many tokens treat neurons that are cold in layers whose primary is the GPU. */
typedef enum engine_prompts {
    ENGINE_PROMPTS_AUTO,    /* whichever is expected to be faster for the ubatch's size */
    ENGINE_PROMPTS_SPLIT,   /* the CPU computes them, while the GPU computes the others */
    ENGINE_PROMPTS_STREAMED /* their rows are copied to the GPU, which computes all */
} engine_prompts;

/* Experts move between CPU and GPU while the model runs (adapt.h); numbers that are 0 stand for
 * defaults. */
typedef struct engine_adapt {
    bool on;
    float ratio, margin; /* of uses within the half-life, by which an expert on the CPU must exceed
                            one on the GPU to take its place */
    int32_t half_life;   /* tokens */
    int32_t slice_bytes; /* of weights sent to the GPU after each ubatch, at most */
} engine_adapt;

typedef struct engine_options {
    int n_threads, n_threads_batch; /* 0: physical cores; 0: as n_threads */
    bool pin_threads;               /* pool_pin */
    int n_batch;                    /* tokens per ubatch, 1..ENGINE_MAX_BATCH */
    int n_logits;                   /* rows of logits; 0: n_batch within ENGINE_LOGITS_BYTES */
    cpu_tier tier;
    quant_type type_k, type_v;
    plan_options plan; /* mode of the FFN layers, placement */
    /* Bytes for weights on the CPU, working buffers, the KV caches of n_positions and the program
     * itself; weights that do not fit are read from the drive (paging.h). 0: all weights are where
     * the model has them. */
    uint64_t ram_budget;
    int64_t n_positions;
    bool sizes_only; /* with ram_budget: nothing is read or uploaded, and the context is good for
                        engine_paging alone */
    /* With plan.splits: where the GPUs' parts run, by the splits' numbers. All outlive the context.
     */
    const gpu_backend *gpu;
    gpu_device *devices[PLAN_MAX_DEVICES];
    /* Bit j of peers[i]: device i reaches device j (gpu_backend.reaches). What one stage sends to
     * the next is in memory of the receiver then, else in the host's. */
    uint32_t peers[PLAN_MAX_DEVICES];
    engine_prompts prompts;
    bool timed_forms;   /* form_pace.h, where all of the plan is the CPU's; not with few_only */
    engine_adapt adapt; /* nothing is adapted where no layer has experts on both devices */
} engine_options;

/* What a context and its sessions take of the device's memory, bytes. */
typedef struct engine_gpu_bytes {
    uint64_t weights, scratch; /* of the context */
    uint64_t kv_per_position;  /* of a session, times its n_ctx */
    uint64_t state;            /* of a session: recurrent layers, with snapshots */
    /* Kernels of the recorded programs that are kept: what they take is the device's affair
     * (gpu_backend.node_bytes). */
    uint64_t program_nodes;
} engine_gpu_bytes;
enum { ENGINE_GPU_PROGRAMS = 12 }; /* recorded shapes of ubatches that are kept */
/* Exactly what engine_context_create would allocate of the splits' GPU `device` for these options,
 * in which `devices` are not looked at; less where a device has no memory for peers after all. */
pi_status engine_gpu_size(const model *m, const engine_options *options, int device,
                          engine_gpu_bytes *out, pi_error *err);
/* Of its scratch, with ubatches of n_batch tokens: for what another GPU sends, where it reaches it.
 */
uint64_t engine_inbox_bytes(const model *m, int n_batch);

/* What decoding a token takes of a layer besides its bytes: on the GPU kernels, on the CPU barriers
 * of its threads. Messages between the devices are not among them. */
typedef struct engine_steps {
    int32_t always[PLAN_SIDES];  /* where the layer has its primary */
    int32_t neurons[PLAN_SIDES]; /* where some of its neurons (experts) are */
} engine_steps;
/* out: [n_layer + 1], of which the last is the head. Cuts in the options are not looked at;
 * `depth`: positions that the token attends to. What has no kernels on the GPU has 0 there. */
pi_status engine_count_steps(const model *m, const plan_options *options, int64_t depth,
                             engine_steps *out, pi_error *err);

enum { ENGINE_MAX_BATCH = 8192 };
#define ENGINE_LOGITS_BYTES ((size_t)64 << 20)

typedef struct engine_context engine_context;
typedef struct engine_activity engine_activity; /* activity.h */
typedef struct pi_session engine_session;

/* Also PI_ERR_LIMIT and PI_ERR_IO of a memory budget, PI_ERR_NOMEM and PI_ERR_DEVICE of the GPU:
 * the caller may use the CPU alone. */
pi_status engine_context_create(const model *m, const engine_options *options, engine_context **out,
                                pi_error *err);
void engine_context_destroy(engine_context *c); /* NULL is fine */
/* False in a process that was forked from the one that made the context: only destroying works. */
bool engine_has_threads(const engine_context *c);

pi_status engine_session_create(engine_context *c, int64_t n_ctx, engine_session **out,
                                pi_error *err);
void engine_session_destroy(engine_session *s); /* NULL is fine */
int64_t engine_session_length(const engine_session *s);
int64_t engine_session_capacity(const engine_session *s);
pi_status engine_session_rewind(engine_session *s, int64_t length, pi_error *err);
int64_t engine_session_rewind_point(const engine_session *s, int64_t length);
/* As pi_session_save and pi_session_load (powerinfer.h); session_file.c. */
pi_status engine_session_save(const engine_session *s, const char *path, const int32_t *tokens,
                              int64_t n_tokens, pi_error *err);
pi_status engine_session_load(engine_session *s, const char *path, int32_t *tokens,
                              int64_t capacity, int64_t *n_tokens, pi_error *err);

/* The same in memory. */
pi_status engine_session_get_state(const engine_session *s, const int32_t *tokens, int64_t n_tokens,
                                   void *data, size_t capacity, size_t *n_bytes, pi_error *err);
pi_status engine_session_set_state(engine_session *s, const void *data, size_t n_bytes,
                                   int32_t *tokens, int64_t capacity, int64_t *n_tokens,
                                   pi_error *err);
/* As pi_session_copy and pi_session_remove; session_edit.c. */
pi_status engine_session_copy(engine_session *to, const engine_session *from, int64_t length,
                              pi_error *err);
pi_status engine_session_remove(engine_session *s, int64_t first, int64_t end, pi_error *err);

/* Why a context with a GPU fell back to the CPU; NULL: it did not, or never had a GPU. Whatever
 * happens to the device, sessions keep their contents and forward passes their answers: the CPU
 * takes over, after it has evaluated all sessions' tokens again. */
const char *engine_gpu_loss(const engine_context *c);

/* What the context takes of a GPU since its neurons went back to the CPU for want of memory for a
 * session's cache; NULL: none did. */
const engine_gpu_bytes *engine_gpu_kept(const engine_context *c, int device);

/* As pi_forward (powerinfer.h). */
pi_status engine_forward(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);
const float *engine_logits(const engine_context *c, int row); /* [n_vocab] */
int engine_logits_rows(const engine_context *c);
const float *engine_hidden(const engine_context *c, int row); /* [n_embd] */
int engine_hidden_rows(const engine_context *c);
int engine_batch(const engine_context *c); /* tokens per ubatch; also the most inputs per call */
void engine_cancel(engine_context *c);     /* async-signal-safe */

/* Sees what enters the products of a ubatch, before they are computed: the float rows [n_rows] of
 * the step's input, row r at x + r * ldx, of which each matrix of the step reads its n_in elements;
 * of OP_EXPERTS_DOWN hidden vectors, a row for every pair of a token and an expert.
 * On the calling thread, while others compute: it must not touch the context. NULL: none, which
 * costs a test per step. */
typedef void (*engine_observer)(void *user, const plan_step *step, const float *x, int64_t ldx,
                                int n_rows);
void engine_observe(engine_context *c, engine_observer observer, void *user);

/* One layer by itself, for work that goes through a model layer by layer (src/prepare): runs the
 * steps of `layer` for n_tokens <= engine_batch tokens at positions pos .. pos + n_tokens - 1 of a
 * session, whose cache it reads and writes for this layer only; the session's length stays as it
 * is. x: [n_tokens][n_embd], the residual stream before the layer, replaced by the one after it.
 * layer -1: fills x with the embeddings of `tokens`, which other layers of models with embeddings
 * per layer want too; others may have NULL. The observer is called. PI_ERR_ARG
 * for what does not fit, a model with several residual streams, or a context with a GPU;
 * PI_ERR_CANCELLED. */
pi_status engine_run_layer(engine_context *c, engine_session *s, int layer, const int32_t *tokens,
                           float *x, int n_tokens, int64_t pos, pi_error *err);

/* How often tokens have used each expert of a layer since the context was made, [n_expert] in the
 * order of the file; of layers whose primary is the GPU only while activity is watched or experts
 * are adapted. NULL where there are no experts. */
const uint64_t *engine_expert_uses(const engine_context *c, int layer);
/* What a memory budget became; NULL: there is none. */
paging *engine_paging(const engine_context *c);
pi_counters engine_get_counters(const engine_context *c);

const plan *engine_plan(const engine_context *c);
const cpu_kernels *engine_kernels(const engine_context *c);
int engine_threads(const engine_context *c);

#endif
