/* powerinfer_cluster.h: a model on several machines: every process (rank) that an MPI launcher
 * started has a range of its layers. Included by powerinfer.h; docs/cluster-mpi.md.
 *
 * All ranks call pi_cluster_open and open the same model, or receive it from rank 0. Rank 0 creates
 * contexts with pi_context_options.cluster and uses them as if the model were on one machine. All
 * other ranks call pi_cluster_work, which returns when rank 0 closes the cluster.
 *
 * When a rank is lost, calls on the others fail with PI_ERR_DEVICE, and pi_cluster_close ends all
 * processes with exit status 1. */
#ifndef POWERINFER_CLUSTER_H
#define POWERINFER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_model;
struct pi_model_options;
struct pi_context;
struct pi_context_options;
typedef struct pi_cluster pi_cluster;

enum { PI_MAX_RANKS = 64 };

typedef struct pi_cluster_options {
    double timeout; /* seconds without an answer after which a rank is lost; default 30 */
    /* Lines "name=value" that must be equal on all ranks, in addition to version and model; NULL:
     * none. */
    const char *settings;
    /* Proportions of the layers, one for each rank; n_split 0 (default): by the speed that every
     * rank measures for some of its layers, and by its memory. */
    float split[PI_MAX_RANKS];
    int32_t n_split;
    bool measure_prefill; /* rank 0: also predict prefill; default false */
    /* Called on another thread when a rank is lost, with one line; NULL: nothing. The process must
     * close the cluster within five seconds; otherwise give_up is called and the process ends. */
    void (*lost)(void *user, const char *why);
    void (*give_up)(void *user, const char *why);
    void *user;
} pi_cluster_options;

PI_API pi_cluster_options pi_cluster_default_options(void);

/* Joins the other ranks, with libpowerinfer_mpi.so. Once per process. PI_ERR_NOT_FOUND: it was
 * built without MPI; PI_ERR_DEVICE: MPI failed. */
PI_API pi_status pi_cluster_open(const pi_cluster_options *options, pi_cluster **out,
                                 pi_error *err);
/* Destroy the contexts first. On rank 0 the other ranks' pi_cluster_work returns. */
PI_API void pi_cluster_close(pi_cluster *cluster);
/* Ends all processes when the cluster is closed: this rank cannot go on. */
PI_API void pi_cluster_fail(pi_cluster *cluster);
/* Ends all processes at once, with exit status 1, because this one cannot go on. Calls on the other
 * ranks fail with `why` and this rank's name; give_up of this process gets the same line.
 * Async-signal-safe. Returns only if the cluster is being closed. */
PI_API void pi_cluster_abort(pi_cluster *cluster, const char *why);
PI_API int32_t pi_cluster_rank(const pi_cluster *cluster);
PI_API int32_t pi_cluster_size(const pi_cluster *cluster); /* ranks */

/* On a rank above 0 without the model's file: waits until rank 0 creates a context, and opens the
 * model with the metadata that rank 0 then sends; pi_cluster_work receives the weights of the
 * rank's layers. They are kept in memory, or in a file without a name in `folder` (NULL: in
 * memory). Adapters of `options` that are not here come from rank 0 as well, if it opened them with
 * adapters_by_context. Rank 0 must have opened the model from its file. *out is NULL if rank 0
 * closed the cluster before. PI_ERR_DEVICE. */
PI_API pi_status pi_cluster_receive(pi_cluster *cluster, const char *folder,
                                    const struct pi_model_options *options, struct pi_model **out,
                                    pi_error *err);
/* On a rank above 0: computes for the contexts of rank 0. Threads, memory budgets and devices are
 * those of `options`; everything that results depend on comes from rank 0. */
PI_API pi_status pi_cluster_work(pi_cluster *cluster, const struct pi_model *model,
                                 const struct pi_context_options *options, pi_error *err);

typedef struct pi_rank {
    const char *host; /* valid until the cluster is closed */
    int32_t first_layer, end_layer;
    uint64_t weight_bytes;    /* of its layers; rank 0: and of embeddings and output matrix */
    double predicted_seconds; /* for its layers of one token, from its measurement; 0: none */
    /* Likewise for a ubatch of predicted_tokens; 0: not measured. */
    double predicted_prefill_seconds;
    int32_t predicted_tokens;
    /* Since the cluster was opened (computing, ubatches: since the context was created). */
    double computing, waiting, sending; /* seconds */
    uint64_t sent_bytes, ubatches;
} pi_rank;

/* Number of ranks of a context; 1: it has no cluster. */
PI_API int32_t pi_context_ranks(const struct pi_context *context);
/* What the ranks have and did [pi_context_ranks]; asks them. PI_ERR_DEVICE. */
PI_API pi_status pi_context_get_ranks(struct pi_context *context, pi_rank *out, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
