/* paging.h: reads weights from the drive when they are needed, for models that do not fit into
 * memory. A context with a budget (engine_options.ram_budget) has:
 *
 *   always-on   vectors, output matrix, predictors: read once, stay
 *   tables      of embeddings: the rows of a ubatch's tokens are read when the ubatch begins
 *               (paging_rows.c)
 *   pinned      matrices of layers that the budget has room for: read once, stay
 *   streamed    all other matrices: they pass through a ring in the order of the plan's steps, read
 *               ahead of the computation, once per ubatch (paging.c)
 *   neurons     of layers with bundles: a hot prefix stays, the others have a cache
 *               (paging_neurons.c)
 *   experts     a cache of experts' matrices; the least used are evicted (paging_experts.c)
 *
 * The mapped file is not read after the context was created. Kernels and steps are the same as for
 * models in memory, and results are equal bit for bit if the router prefers no experts in memory
 * (paging_resident_experts).
 *
 * The pager makes a copy of the model's table of tensors. Tensors that stay have their new
 * addresses there; the pager writes the addresses of the others into the steps of the plan. */
#ifndef PAGING_PAGING_H
#define PAGING_PAGING_H

#include "plan.h"

typedef struct paging paging;

/* Bytes, rounded up to pages. */
typedef struct paging_sizes {
    uint64_t always, pinned, ring, cache;
    uint64_t hot;      /* prefixes of neurons that stay */
    uint64_t streamed; /* bytes that pass through the ring in every ubatch */
    uint64_t cached;   /* bytes of all experts and neurons that go through the cache */
    uint64_t needed;   /* the least budget for weights */
    uint64_t beside;   /* other memory of the context */
    uint64_t lent;     /* separate memory of paging_lent, if the cache can lend none */
} paging_sizes;

/* Reads from the drive, and cache hits, since the context was created. */
typedef struct paging_counts {
    uint64_t reads, bytes;   /* reads of the drive, their bytes */
    double busy;             /* seconds in which the drive was reading */
    uint64_t hits, misses;   /* experts' matrices and neurons that were, or were not, in the cache
                                when they were needed */
    uint64_t ahead, in_vain; /* experts' matrices and neurons that were prefetched; those of them
                                that were never selected */
} paging_counts;

typedef struct paging_options {
    int n_batch;     /* the most tokens of a ubatch */
    bool sizes_only; /* computes sizes, reads nothing */
    bool adapts;     /* experts move between CPU and GPU (adapt.h) */
} paging_options;

/* `p` is a plan of the model as it is in the file. PI_ERR_ARG: the model is not in a file;
 * PI_ERR_IO, PI_ERR_NOMEM. */
pi_status paging_create(const model *m, const plan *p, const paging_options *o, paging **out,
                        pi_error *err);
void paging_destroy(paging *g); /* accepts NULL */
const model *paging_model(const paging *g);

/* Divides `budget` bytes among the weights of the CPU's steps, reads those that stay, and writes
 * addresses into the plan, which is one of paging_model. PI_ERR_LIMIT: the budget is too small; the
 * message names the least one, including the other memory of the context. */
pi_status paging_fit(paging *g, plan *p, uint64_t budget, uint64_t beside, uint64_t lent,
                     pi_error *err);
/* Whether prefill's working buffers can use memory of the neuron cache, at most `lent` bytes.
 * paging_lent: the address of this memory, after paging_fit. */
bool paging_lends(const paging *g, const plan *p);
void *paging_lent(const paging *g);
paging_sizes paging_get_sizes(const paging *g);
paging_counts paging_get_counts(const paging *g);
const char *paging_backend(const paging *g); /* drive_backend_name */
/* drive_measure, of the first part of the model's file. */
pi_status paging_measure(paging *g, size_t n_bytes, double seconds, double *rate, pi_error *err);

/* ---- while a ubatch runs --------------------------------------------------------------------- */

/* Before the steps, on the calling thread. many: FORM_MANY. ngrams: rows of n-grams, as in
 * engine_ubatch. lent: bytes of paging_lent in use; they keep their contents until a call with a
 * smaller `lent`. */
void paging_begin(paging *g, bool many, const int32_t *tokens, const int32_t *ngrams, int n_tokens,
                  size_t lent);
/* On any thread: the row of the ubatch's k-th token in a table of embeddings, or the k-th row of
 * its n-grams. */
const void *paging_row(const paging *g, tensor_role role, int32_t row, int64_t k);
/* Before a step, on one thread, when all threads have finished earlier steps: evicts weights that
 * only earlier steps read, and requests the next units that fit. */
void paging_advance(paging *g, int step);
/* On every thread of the step: waits for its weights. */
void paging_wait(paging *g, int step);
/* After the steps; complete: all of them have run. PI_ERR_IO: the drive failed, or the file
 * changed; the results are invalid. */
pi_status paging_end(paging *g, bool complete, pi_error *err);

/* ---- neurons of bundled layers (paging_neurons.c) -------------------------------------------- */

/* Whether the ubatch's selected neurons of a layer are fetched one by one. Then paging_pick takes
 * the selected neurons of a part of the layer, ascending, and requests the missing ones.
 * paging_picked, on any thread, waits for them and returns the selection as rows of the layer's
 * matrices. mark: a byte per neuron, reordered like the neurons; NULL: none. */
bool paging_picks(const paging *g, int layer);
void paging_pick(paging *g, int layer, int part, const int32_t *rows, const uint8_t *mark,
                 int64_t n);
int64_t paging_picked(paging *g, int layer, int part, int32_t *rows, uint8_t *mark);
/* Optional, earlier: neurons (experts) that the layer will probably select in this ubatch. Requests
 * as many as the drive can read before the layer runs. A layer prefetches if enough of the neurons
 * (experts) prefetched in earlier ubatches were selected. */
bool paging_prefetches(const paging *g, int layer);
void paging_prefetch(paging *g, int layer, int part, const int32_t *rows, int64_t n);
/* The neuron of a row that paging_picked returned. */
int32_t paging_neuron(const paging *g, int layer, int32_t row);

/* ---- experts (paging_experts.c) -------------------------------------------------------------- */

/* Whether a layer's experts go through the cache. */
bool paging_has_experts(const paging *g, int layer);
/* On any thread: whether each expert of a layer is in the cache, or on its way [n_expert]. */
void paging_resident_experts(paging *g, int layer, bool *out);
/* On one thread, while no expert is in use: experts that will probably be active, best first
 * [n_tokens][n_used]. */
void paging_prefetch_experts(paging *g, int layer, const int32_t *chosen, int n_tokens, int n_used);
/* On one thread: the experts that are active in this ubatch, [n]. Requests the missing ones and
 * sorts the list: experts in memory come first. */
void paging_activate(paging *g, int layer, int32_t *active, int n);
/* Rows of an expert's part of gate, up or down (a matrix of plan_experts); waits for them. */
const void *paging_expert(paging *g, int layer, const plan_matrix *m, int expert);
/* Marks n of these rows as used. */
void paging_expert_used(paging *g, int layer, const plan_matrix *m, int expert, int64_t n);

/* Between ubatches: reads an expert that moves to the GPU into the cache, and holds it there until
 * the next call or paging_let_go. */
void paging_hold(paging *g, int layer, int expert);
void paging_let_go(paging *g);
/* The held expert's rows of a matrix, after they have arrived. */
const void *paging_held(const paging *g, int layer, const plan_matrix *m, int expert);

#endif
