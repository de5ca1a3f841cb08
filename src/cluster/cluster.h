/* cluster.h: the processes (ranks) that run a model together, each with a range of its layers.
 *
 * Rank 0 has the command line, the sampler, the embeddings and the output head. It tells the others
 * what to do by commands, which they carry out in order. The residual stream goes from rank to rank
 * and back to rank 0. src/engine/stage.h defines the messages.
 *
 * One thread at a time uses a cluster. After a failure, which is final, every call fails with
 * PI_ERR_DEVICE and a message that names the lost rank and its machine. */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include <stdbool.h>

#include "cluster_transport.h"
#include "error.h"

enum { CLUSTER_MAX_RANKS = 64 };

typedef struct cluster cluster;

/* A growing buffer for received messages; zeroed at first. */
typedef struct cluster_buffer {
    uint8_t *data;
    size_t n, capacity; /* bytes */
} cluster_buffer;

/* Seconds and bytes of a rank since it was opened. */
typedef struct cluster_usage {
    double waiting, sending;
    uint64_t sent_bytes;
} cluster_usage;

/* Opens the transport of the shared library `path` and joins the other ranks. PI_ERR_NOT_FOUND: no
 * such library, or MPI is missing; PI_ERR_UNSUPPORTED: of another version, or too many ranks;
 * PI_ERR_DEVICE: MPI reports a failure. */
pi_status cluster_open(const char *path, const cluster_transport_options *options, cluster **out,
                       pi_error *err);
/* As cluster_open, of libpowerinfer_mpi.so in the default folders. */
pi_status cluster_open_mpi(const cluster_transport_options *options, cluster **out, pi_error *err);
/* Leaves; after a failure this ends all ranks. NULL is fine. */
void cluster_close(cluster *c);

int cluster_rank(const cluster *c);
int cluster_ranks(const cluster *c);
const char *cluster_host(const cluster *c, int rank);
bool cluster_failed(const cluster *c);
/* From now on the cluster has failed, for a reason on this rank. */
void cluster_fail(cluster *c);
/* Ends all ranks because this one cannot go on; the others report `why` with this rank's name.
 * Async-signal-safe. Returns only if the cluster is being closed. */
void cluster_abort(const cluster *c, const char *why);
cluster_usage cluster_get_usage(const cluster *c);

/* Memory for a message of n bytes, which cluster_send sends. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status cluster_reserve(cluster *c, size_t n, void **out, pi_error *err);
pi_status cluster_send(cluster *c, int to, cluster_channel channel, pi_error *err);
/* Waits for the next message. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status cluster_receive(cluster *c, int from, cluster_channel channel, cluster_buffer *to,
                          pi_error *err);
bool cluster_arrived(cluster *c, int from, cluster_channel channel); /* false after a failure */
void cluster_buffer_free(cluster_buffer *b);

/* Any number of bytes on CLUSTER_BULK, in messages of a limited size. The receiver knows n. */
pi_status cluster_send_bulk(cluster *c, int to, const void *data, size_t n, pi_error *err);
pi_status cluster_receive_bulk(cluster *c, int from, void *data, size_t n, pi_error *err);

/* error_set with the rank and its machine in front: "rank 1 (node-b): ...". */
pi_status cluster_name_rank(const cluster *c, int rank, pi_status status, const char *message,
                            pi_error *err);

#endif
