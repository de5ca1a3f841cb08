/* gpu_exec.h: one GPU's side of a context: its weights and buffers, its steps of the plan as
 * programs of the device, and its messages to and from the CPU (gpu_exchange.h). A context has one
 * for each of its GPUs, and a gpu_sides that all of them share.
 *
 * A ubatch of few tokens is one recorded program, launched once: where it needs something from the
 * CPU or from the stage before, a kernel polls a flag. A ubatch of many tokens, whose parts take
 * longer than a kernel may wait, is enqueued in segments: each ends before a RECEIVE, and the CPU's
 * SEND that feeds it enqueues the next one; from stage to stage the one before does, at once, and
 * the stream waits until that has run. Either way the CPU polls flags of the GPU's messages to it,
 * and both sides compute at the same time.
 *
 * Functions for ubatches are called by one thread at a time. */
#ifndef EXEC_GPU_EXEC_H
#define EXEC_GPU_EXEC_H

#include "gpu.h"
#include "gpu_size.h"
#include "kv_cache.h"
#include "paging.h"
#include "ubatch.h"

typedef struct gpu_exec gpu_exec;

/* What the GPUs of a context have of it. The engine fills it in before it makes them; it outlives
 * them. */
typedef struct gpu_sides {
    const model *model;
    const plan *plan; /* of all devices */
    const cpu_kernels *kernels;
    const rope_frequencies *rope;
    paging *paging; /* NULL: there is no memory budget */
    quant_type type_k, type_v;
    int n_batch;
    int n_threads; /* of the CPU, in ubatches of many tokens */
    gpu_prompts prompts;
    bool adapts; /* experts move where a layer has some on both devices */
    const gpu_backend *backend;
    gpu_device *const *devices;       /* [n_gpus] */
    const uint32_t *peers;            /* [n_gpus] bit j of peers[i]: device i reaches device j */
    engine_ubatch *ubatch;            /* the one that is set up */
    bool wants_uses;                  /* the counts of experts come to the host after each ubatch */
    int n_gpus;                       /* 0: everything is on the CPU */
    gpu_exec *gpus[PLAN_MAX_DEVICES]; /* [n_gpus]; NULL: one without work */
} gpu_sides;

/* Uploads the weights of the plan's steps of one of the GPUs. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status gpu_exec_create(const gpu_sides *sides, int device, gpu_exec **out, pi_error *err);
void gpu_exec_destroy(gpu_exec *g); /* NULL is fine */
/* What gpu_exec_create would allocate: nothing is, and no device is needed. */
pi_status gpu_exec_size(const gpu_sides *sides, int device, gpu_exec_bytes *out, pi_error *err);

/* The part of a session's cache and state that is on the GPU, which the device frees; *out is NULL
 * when no layer is. */
pi_status gpu_exec_kv_create(gpu_exec *g, int64_t n_ctx, void **out, pi_error *err);
uint64_t gpu_exec_kv_bytes(const gpu_exec *g, int64_t n_ctx); /* of such a part */
/* Copies positions [first, first + n) of a part of a layer, [n][heads][row bytes], from or to the
 * GPU; nothing where there is no such part. */
pi_status gpu_exec_kv_read(gpu_exec *g, const pi_session *s, int layer, kv_part part, int64_t first,
                           int64_t n, void *out, pi_error *err);
pi_status gpu_exec_kv_write(gpu_exec *g, pi_session *s, int layer, kv_part part, int64_t first,
                            int64_t n, const void *from, pi_error *err);
/* Copies the first n positions of all layers on the GPU from one session to another. */
pi_status gpu_exec_kv_copy(gpu_exec *g, pi_session *to, const pi_session *from, int64_t n,
                           pi_error *err);

/* Brings the GPU's layers of a session's state to `floats`, a slot of its state on the host, or
 * from there to the GPU. */
pi_status gpu_exec_state_read(gpu_exec *g, const pi_session *s, const float *floats, pi_error *err);
pi_status gpu_exec_state_write(gpu_exec *g, const pi_session *s, const float *floats,
                               pi_error *err);

/* Records the program of the ubatch that is set up, if it has none yet; otherwise the ubatch does
 * so when it begins. */
void gpu_exec_record(gpu_exec *g);
/* Starts the GPU's part of the ubatch that is set up, and says whether cold rows are copied. */
void gpu_exec_begin(gpu_exec *g);
/* Waits until it is done; logits, when they are made there, are among the ubatch's results. After a
 * ubatch that did not run to its end (`failed`) waits are ended by force. PI_ERR_DEVICE. */
pi_status gpu_exec_end(gpu_exec *g, bool failed, pi_error *err);

bool gpu_sides_are_alive(const gpu_sides *sides); /* all devices can go on after an error */

/* Experts that move to the GPU, between ubatches (adapt.h): an expert of the file into a slot of
 * its layer that no expert is in. */
void gpu_exec_swap_begin(gpu_exec *g, int layer, int32_t expert, int32_t slot);
/* Sends n_bytes more at most; true when all has arrived. */
bool gpu_exec_swap_send(gpu_exec *g, size_t n_bytes);
/* [n_expert] where experts of a layer are from the next ubatch on. */
void gpu_exec_swap_map(gpu_exec *g, int layer, const int32_t *slots);

/* The first of the whole plan's GPU steps that found its input not finite in the last ubatch; -1:
 * none.
 */
int gpu_exec_bad_step(const gpu_exec *g);
/* [n_expert] how often the GPU's router has chosen each expert of a layer, as of the last ubatch
 * for which that was wanted (gpu_sides.wants_uses). */
const int32_t *gpu_exec_uses(const gpu_exec *g, int layer);
/* Neurons of a layer that were active on the GPU in the last ubatch. */
uint64_t gpu_exec_active(const gpu_exec *g, int layer);
/* Bytes of FFN weights that the GPU read of active neurons in the last ubatch. */
uint64_t gpu_exec_sparse_bytes(const gpu_exec *g);

#endif
