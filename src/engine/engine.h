/* engine.h: contexts and the forward pass.
 *
 * A context owns the plan, the working buffers and the worker pool; sessions (session.h) own KV
 * caches. One thread at a time uses a context and its sessions. Nothing is allocated on the host
 * after creation.
 *
 * With a GPU, the caller opens the device and decides the placement; the context uploads the GPU's
 * weights and launches its steps once per ubatch (gpu_exec.h). */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "activity.h"
#include "adapt.h"
#include "cluster.h"
#include "cpu.h"
#include "gpu.h"
#include "gpu_size.h"
#include "model.h"
#include "paging.h"
#include "plan.h"
#include "powerinfer.h"
#include "session.h"
#include "step_count.h"
#include "trace.h"

/* The layers of each machine (rank) of a cluster, in order: rank 0 has the first layers. */
typedef struct engine_stages {
    cluster *cluster;
    int end[CLUSTER_MAX_RANKS]; /* after the last layer of each rank */
} engine_stages;

/* What a rank did since its context was created. */
typedef struct engine_rank_usage {
    double computing, waiting, sending; /* seconds */
    uint64_t sent_bytes, ubatches;
} engine_rank_usage;

typedef struct engine_options {
    int n_threads, n_threads_batch; /* 0: physical cores; 0: as n_threads */
    bool pin_threads;               /* pool_pin */
    int n_batch;                    /* tokens per ubatch, 1..PI_MAX_BATCH */
    int n_logits; /* rows of logits per call; 0: n_batch, or what ENGINE_LOGITS_BYTES hold */
    cpu_tier tier;
    quant_type type_k, type_v;
    plan_options plan; /* mode of the FFN layers, placement */
    /* Bytes for weights on the CPU, working buffers, the KV caches of n_positions and the program
     * itself; weights that do not fit are read from the drive (paging.h). 0: no budget, the model's
     * weights are used in place. */
    uint64_t ram_budget;
    int64_t n_positions;
    float expert_slack; /* as in pi_context_options */
    bool sizes_only; /* with ram_budget: reads and uploads nothing; the context can only be used for
                        engine_paging */
    /* With plan.splits: the GPUs, by their numbers in the splits. They must outlive the context. */
    const gpu_backend *gpu;
    gpu_device *devices[PLAN_MAX_DEVICES];
    /* 1 + the device's index: a self-test of it runs once per process (gpu_known.h). 0: it runs for
     * every context. */
    int numbers[PLAN_MAX_DEVICES];
    /* Bit j of peers[i]: device i reaches device j (gpu_backend.reaches). If it does, messages from
     * stage i to stage j use memory of the receiver, otherwise host memory. */
    uint32_t peers[PLAN_MAX_DEVICES];
    gpu_prompts prompts;
    const engine_stages
        *stages;        /* NULL: this machine has all layers; the cluster outlives the context */
    bool timed_forms;   /* form_pace.h; only if everything is on the CPU, and not with few_only */
    adapt_policy adapt; /* no effect if no layer has experts, or neurons that can move, on both
                           devices */
} engine_options;

/* The bytes that engine_context_create would allocate on GPU number `device` of the splits for
 * these options; ignores `devices`. The actual bytes are fewer if a device has no memory for
 * peers. */
pi_status engine_gpu_size(const model *m, const engine_options *options, int device,
                          gpu_exec_bytes *out, pi_error *err);
#define ENGINE_LOGITS_BYTES ((size_t)64 << 20)

typedef struct engine_context engine_context;

/* PI_ERR_LIMIT, PI_ERR_IO: only with a memory budget. After PI_ERR_NOMEM or PI_ERR_DEVICE from a
 * GPU, the caller may use the CPU alone. */
pi_status engine_context_create(const model *m, const engine_options *options, engine_context **out,
                                pi_error *err);
void engine_context_destroy(engine_context *c); /* accepts NULL */
/* False in a process that was forked from the one that created the context: it can only destroy the
 * context. */
bool engine_has_threads(const engine_context *c);

pi_status engine_session_create(engine_context *c, int64_t n_ctx, pi_session **out, pi_error *err);
void engine_session_destroy(pi_session *s); /* accepts NULL */

/* Why a context with a GPU fell back to the CPU; NULL: it did not, or never had a GPU. When a
 * device fails, the CPU evaluates the tokens of all sessions again and runs all layers from then
 * on; sessions and results stay valid. */
const char *engine_gpu_loss(const engine_context *c);

/* Bytes of the context on a GPU after neurons moved to the CPU to free memory for a session's
 * cache; NULL: none moved. */
const gpu_exec_bytes *engine_gpu_kept(const engine_context *c, int device);

/* As pi_forward (powerinfer.h). */
pi_status engine_forward(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err);
/* As pi_forward_begin, pi_forward_end, pi_context_passes. */
pi_status engine_forward_begin(engine_context *c, const pi_input *inputs, int n_inputs,
                               pi_error *err);
pi_status engine_forward_end(engine_context *c, pi_error *err);
int engine_passes(const engine_context *c);
const float *engine_logits(const engine_context *c, int row); /* [n_vocab] */
int engine_logits_rows(const engine_context *c);
const float *engine_hidden(const engine_context *c, int row); /* [n_embd] */
int engine_hidden_rows(const engine_context *c);
int engine_batch(const engine_context *c); /* tokens per ubatch; also the maximum inputs per call */
void engine_cancel(engine_context *c);     /* async-signal-safe */

/* Called with the input of a ubatch's matrix products before they are computed: float rows
 * [n_rows], row r at x + r * ldx. Each matrix of the step reads n_in elements of a row. The rows of
 * OP_EXPERTS_DOWN are hidden vectors, one for every pair of a token and an expert. The calling
 * thread runs the observer while other threads compute: it must not touch the context. NULL: no
 * observer; the cost is one test per step. */
typedef void (*engine_observer)(void *user, const plan_step *step, const float *x, int64_t ldx,
                                int n_rows);
void engine_observe(engine_context *c, engine_observer observer, void *user);

/* Runs one layer, for work that goes through a model layer by layer (src/prepare): the steps of
 * `layer` for n_tokens <= engine_batch tokens at positions pos .. pos + n_tokens - 1 of a session.
 * Reads and writes this layer's part of the session's cache; the session's length does not change.
 * x: [n_tokens][n_embd], the residual stream before the layer, replaced by the one after it. layer
 * -1: fills x with the embeddings of `tokens`. Layers of models with embeddings per layer need
 * `tokens` as well; other layers accept NULL. The observer is called. PI_ERR_ARG: arguments out of
 * range, a model with several residual streams, or a context with a GPU; PI_ERR_CANCELLED. */
pi_status engine_run_layer(engine_context *c, pi_session *s, int layer, const int32_t *tokens,
                           float *x, int n_tokens, int64_t pos, pi_error *err);

/* Number of tokens that used each expert of a layer since the context was created, [n_expert] in
 * the order of the file. Layers whose primary is the GPU count only while activity is watched or
 * experts are adapted. NULL: the layer has no experts. */
const uint64_t *engine_expert_uses(const engine_context *c, int layer);
/* For the observer: the pairs of a token and one of its experts in the present layer, sorted by
 * expert. */
typedef struct engine_pairs {
    int n_tokens;         /* of the ubatch */
    const int32_t *first; /* [n_expert + 1] first pair of each expert */
    const int32_t *token; /* [first[n_expert]] token of each pair, ascending for each expert */
} engine_pairs;
engine_pairs engine_expert_pairs(const engine_context *c);
/* As pi_context_watch, pi_context_watched, pi_context_get_activity. */
pi_status engine_watch(engine_context *c, int n_bins, pi_error *err);
uint64_t engine_watched(const engine_context *c);
void engine_get_activity(const engine_context *c, int layer, pi_layer_activity *out);

/* Starts a trace, replaces the previous one. PI_ERR_ARG, PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status engine_trace_start(engine_context *c, int n_ubatches, pi_error *err);
void engine_trace_stop(engine_context *c); /* forgets the trace */
/* The recorded trace; NULL: none. A fall back to the CPU drops the trace with the plan. */
const engine_trace *engine_get_trace(const engine_context *c);

/* On a rank above 0 of a context with stages: carries out the commands of rank 0 until it destroys
 * its context. PI_ERR_DEVICE: a rank is lost; other errors end the run on all ranks. */
pi_status engine_work(engine_context *c, pi_error *err);
/* On rank 0: the usage of all ranks, [cluster_ranks]. */
pi_status engine_get_ranks(engine_context *c, engine_rank_usage *out, pi_error *err);
/* Runs the context's layers on the embeddings of the tokens or, if `in` wants logits, the output
 * head alone. The session does not grow. *seconds: the time that it took. For contexts with a part
 * of the layers (options.plan) and no stages; logits only if the first layer is among them. */
pi_status engine_time_stage(engine_context *c, const pi_input *in, double *seconds, pi_error *err);

/* The pager; NULL: there is no memory budget. */
paging *engine_paging(const engine_context *c);
pi_counters engine_get_counters(const engine_context *c);

const plan *engine_plan(const engine_context *c);
const cpu_kernels *engine_kernels(const engine_context *c);
int engine_threads(const engine_context *c);

#endif
