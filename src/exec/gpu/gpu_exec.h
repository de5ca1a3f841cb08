/* gpu_exec.h: one GPU's side of a context: its weights and buffers, its steps of the plan as
 * programs of the device, and its messages to and from the CPU (gpu_exchange.h). A context has one
 * for each of its GPUs, and a gpu_sides that all of them share.
 *
 * A ubatch of few tokens is one recorded program, launched once; a kernel of the program polls a
 * flag where it needs a message from the CPU or from the previous stage. A ubatch of many tokens is
 * enqueued in segments, because its parts take longer than a kernel may wait. A segment ends before
 * a RECEIVE, and the CPU's SEND of that message enqueues the next segment. Between stages, the
 * previous stage enqueues the segment at once, and the stream waits until the previous stage is
 * done. In both cases the CPU polls the flags of the GPU's messages, and both sides compute at the
 * same time.
 *
 * One thread at a time calls the functions for ubatches. */
#ifndef EXEC_GPU_EXEC_H
#define EXEC_GPU_EXEC_H

#include "adapt_neurons.h"
#include "gpu.h"
#include "gpu_size.h"
#include "kv_cache.h"
#include "paging.h"
#include "trace.h"
#include "ubatch.h"

typedef struct gpu_exec gpu_exec;

/* What the GPUs of a context share. The engine fills it in before it creates them, and it outlives
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
    bool adapts; /* experts move in layers that have some on both devices */
    bool moves;  /* and neurons (neurons_move) */
    const gpu_backend *backend;
    gpu_device *const *devices; /* [n_gpus] */
    const int *numbers;         /* [n_gpus] 1 + the device's index, or 0 */
    const uint32_t *peers;      /* [n_gpus] bit j of peers[i]: device i reaches device j */
    engine_ubatch *ubatch;      /* the current one */
    bool wants_uses;            /* counts of experts are copied to the host after each ubatch */
    int n_gpus;                 /* 0: everything is on the CPU */
    gpu_exec *gpus[PLAN_MAX_DEVICES]; /* [n_gpus]; NULL: the GPU has no work */
} gpu_sides;

/* Creates one GPU's side and uploads the weights of its steps. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status gpu_exec_create(const gpu_sides *sides, int device, gpu_exec **out, pi_error *err);
void gpu_exec_destroy(gpu_exec *g); /* NULL is fine */
/* The bytes that gpu_exec_create would allocate. It allocates nothing and needs no device. */
pi_status gpu_exec_size(const gpu_sides *sides, int device, gpu_exec_bytes *out, pi_error *err);

/* Allocates the part of a session's cache and state that is on the GPU; the device frees it. *out
 * is NULL if no layer is on the GPU. */
pi_status gpu_exec_kv_create(gpu_exec *g, int64_t n_ctx, void **out, pi_error *err);
uint64_t gpu_exec_kv_bytes(const gpu_exec *g, int64_t n_ctx); /* of such a part */
/* Copies positions [first, first + n) of a part of a layer, [n][heads][row bytes], from or to the
 * GPU; does nothing if the GPU has no such part. */
pi_status gpu_exec_kv_read(gpu_exec *g, const pi_session *s, int layer, kv_part part, int64_t first,
                           int64_t n, void *out, pi_error *err);
pi_status gpu_exec_kv_write(gpu_exec *g, pi_session *s, int layer, kv_part part, int64_t first,
                            int64_t n, const void *from, pi_error *err);
/* Copies the first n positions of all layers on the GPU from one session to another. */
pi_status gpu_exec_kv_copy(gpu_exec *g, pi_session *to, const pi_session *from, int64_t n,
                           pi_error *err);

/* Copies the GPU's layers of a session's state to `floats`, a slot of its state on the host, or
 * from there to the GPU. */
pi_status gpu_exec_state_read(gpu_exec *g, const pi_session *s, const float *floats, pi_error *err);
pi_status gpu_exec_state_write(gpu_exec *g, const pi_session *s, const float *floats,
                               pi_error *err);

/* Records the program of the current ubatch if there is none yet; otherwise gpu_exec_begin does. */
void gpu_exec_record(gpu_exec *g);
/* Starts the GPU's part of the current ubatch and sets its `streaming`. */
void gpu_exec_begin(gpu_exec *g);
/* Waits for the GPU's part of the ubatch. If the head is on the GPU, stores logits and hidden
 * states. failed: the ubatch did not run to its end; kernels that wait for messages are aborted.
 * PI_ERR_DEVICE. */
pi_status gpu_exec_end(gpu_exec *g, bool failed, pi_error *err);

bool gpu_sides_are_alive(const gpu_sides *sides); /* no device has failed */

/* Between ubatches: starts to copy an expert into the spare slot of its layer (adapt.h). `expert`:
 * its number in the file. */
void gpu_exec_swap_begin(gpu_exec *g, int layer, int32_t expert, int32_t slot);
/* Sends at most n_bytes more; true when everything has arrived. */
bool gpu_exec_swap_send(gpu_exec *g, size_t n_bytes);
/* slots: [n_expert] the slots of a layer's experts from the next ubatch on. */
void gpu_exec_swap_map(gpu_exec *g, int layer, const int32_t *slots);

/* Bytes that are copied to the GPU for a neuron that moves there (neurons_move). */
size_t gpu_exec_neuron_bytes(const gpu_exec *g, int layer);
/* Between ubatches: exchanges the neurons of two places on the device, as model_places_exchange
 * does in the model afterwards. The next ubatch waits for the copies. At most ADAPT_MOVES times
 * between two ubatches that succeed; n is the number of exchanges since the last one. */
void gpu_exec_move_neuron(gpu_exec *g, int layer, int64_t hot, int64_t cold, int n);
/* Counts the uses of the GPU's neurons in the last ubatch, one of few tokens, in layers without
 * predictor; the CPU sees the bits of the others. */
void gpu_exec_count_neurons(const gpu_exec *g, neuron_adapter *a);

/* The first GPU step that found its input not finite in the last ubatch, as a number in the whole
 * plan; -1: none. */
int gpu_exec_bad_step(const gpu_exec *g);
/* [n_expert] how often the GPU's router has chosen each expert of a layer, up to the last ubatch
 * with gpu_sides.wants_uses. */
const int32_t *gpu_exec_uses(const gpu_exec *g, int layer);
/* Neurons of a layer that were active on the GPU in the last ubatch. */
uint64_t gpu_exec_active(const gpu_exec *g, int layer);
/* Bytes of FFN weights of active neurons that the GPU read in the last ubatch. */
uint64_t gpu_exec_sparse_bytes(const gpu_exec *g);

/* gpu_trace.c: the timeline: stamps of the GPU's clock around its steps. */
int gpu_exec_marks_capacity(const gpu_exec *g); /* steps that a ubatch may have */
pi_status gpu_exec_marks_create(gpu_exec *g, pi_error *err);
void gpu_exec_marks_destroy(gpu_exec *g); /* does nothing where there are no marks */
/* Marks the ubatch that begins; the stream is idle. Raises t->clock_error if the clocks could not
 * be compared as exactly. */
void gpu_exec_marks_begin(gpu_exec *g, engine_trace *t);
/* Puts the steps of the ubatch into the device's row of t; NULL: drops them. */
void gpu_exec_marks_end(gpu_exec *g, engine_trace *t);

#endif
