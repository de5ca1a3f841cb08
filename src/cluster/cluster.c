/* cluster.c: messages between ranks, over a transport. */
#include "cluster.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "dynlib.h"
#include "mem.h"
#include "os_file.h"
#include "own_library.h"

struct cluster {
    const cluster_transport *t;
    void *library;
    int rank, n_ranks;
    bool failed;
    cluster_usage usage;
    size_t n_reserved; /* bytes of the reserved message */
    cluster_buffer bulk;
};

/* ---- opening --------------------------------------------------------------------------------- */

static pi_status open_table(const char *path, cluster *c, pi_error *err) {
    pi_status status = dynlib_open(path, &c->library, err);
    if (status != PI_OK) return error_prefix(err, status, "MPI cannot be loaded");
    cluster_entry entry = (cluster_entry)dynlib_symbol(c->library, CLUSTER_ENTRY);
    c->t = entry ? entry() : NULL;
    if (c->t && c->t->version == CLUSTER_TRANSPORT_VERSION && c->t->size == sizeof *c->t)
        return PI_OK;
    c->t = NULL;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "not a transport of this version: %s: install it from the same release", path);
}

pi_status cluster_open(const char *path, const cluster_transport_options *options, cluster **out,
                       pi_error *err) {
    char why[256] = "";
    *out = NULL;
    cluster *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(err, sizeof *c, "cluster");
    pi_status status = open_table(path, c, err);
    if (status == PI_OK && c->t->open(options, why, sizeof why) != 0) {
        status = error_set(err, PI_ERR_DEVICE, "MPI does not start: %s", why);
        c->t = NULL;
    }
    if (status == PI_OK) {
        c->rank = c->t->rank();
        c->n_ranks = c->t->ranks();
        if (c->n_ranks > CLUSTER_MAX_RANKS)
            status = error_set(err, PI_ERR_UNSUPPORTED, "too many ranks: %d: start at most %d",
                               c->n_ranks, CLUSTER_MAX_RANKS);
    }
    if (status == PI_OK) {
        *out = c;
        return PI_OK;
    }
    if (!c->t) dynlib_close(c->library);
    cluster_fail(c);
    cluster_close(c);
    return status;
}

pi_status cluster_open_mpi(const cluster_transport_options *options, cluster **out, pi_error *err) {
    char path[OS_PATH_MAX];
    *out = NULL;
    if (own_library_find("mpi", path, sizeof path, err) == PI_OK)
        return cluster_open(path, options, out, err);
    return error_set(err, PI_ERR_NOT_FOUND,
                     "built without MPI: there is no libpowerinfer_mpi.so: install MPI's compiler "
                     "(Debian: libopenmpi-dev) and build again");
}

void cluster_close(cluster *c) {
    if (!c) return;
    if (c->t) c->t->close(c->failed); /* MPI stays loaded: it cannot start twice in a process */
    cluster_buffer_free(&c->bulk);
    mem_free(c);
}

int cluster_rank(const cluster *c) {
    return c->rank;
}
int cluster_ranks(const cluster *c) {
    return c->n_ranks;
}
const char *cluster_host(const cluster *c, int rank) {
    return c->t->host(rank);
}
bool cluster_failed(const cluster *c) {
    return c->failed;
}
void cluster_fail(cluster *c) {
    c->failed = true;
}
void cluster_abort(const cluster *c, const char *why) {
    c->t->abort(why);
}
cluster_usage cluster_get_usage(const cluster *c) {
    return c->usage;
}

pi_status cluster_name_rank(const cluster *c, int rank, pi_status status, const char *message,
                            pi_error *err) {
    return error_set(err, status, "rank %d (%s): %s", rank, cluster_host(c, rank), message);
}

/* ---- messages -------------------------------------------------------------------------------- */

static pi_status fail(cluster *c, pi_error *err) {
    c->failed = true;
    return error_set(err, PI_ERR_DEVICE, "%s", c->t->failure());
}

pi_status cluster_reserve(cluster *c, size_t n, void **out, pi_error *err) {
    double start = clock_seconds();
    *out = NULL;
    if (c->failed) return fail(c, err);
    *out = c->t->reserve(n);
    c->n_reserved = n;
    c->usage.sending += clock_seconds() - start;
    if (*out) return PI_OK;
    if (c->t->failure()[0]) return fail(c, err);
    return error_nomem(err, n, "a message to another rank");
}

pi_status cluster_send(cluster *c, int to, cluster_channel channel, pi_error *err) {
    double start = clock_seconds();
    if (c->failed || c->t->send(to, channel) != 0) return fail(c, err);
    c->usage.sending += clock_seconds() - start;
    c->usage.sent_bytes += c->n_reserved;
    return PI_OK;
}

static pi_status wait_for(cluster *c, int from, cluster_channel channel, size_t *n, pi_error *err) {
    double start = clock_seconds();
    if (c->failed || c->t->wait(from, channel, n) != 0) return fail(c, err);
    c->usage.waiting += clock_seconds() - start;
    return PI_OK;
}

pi_status cluster_receive(cluster *c, int from, cluster_channel channel, cluster_buffer *to,
                          pi_error *err) {
    size_t n;
    pi_status status = wait_for(c, from, channel, &n, err);
    if (status != PI_OK) return status;
    if (n > to->capacity) {
        cluster_buffer_free(to);
        to->data = mem_alloc(n);
        if (!to->data) {
            c->failed = true; /* the message stays unread */
            return error_nomem(err, n, "a message of another rank");
        }
        to->capacity = n;
    }
    to->n = n;
    if (n > 0 && c->t->take(to->data) != 0) return fail(c, err);
    if (n == 0 && c->t->take(NULL) != 0) return fail(c, err);
    return PI_OK;
}

bool cluster_arrived(cluster *c, int from, cluster_channel channel) {
    return !c->failed && c->t->arrived(from, channel) == 1;
}

void cluster_buffer_free(cluster_buffer *b) {
    mem_free(b->data);
    *b = (cluster_buffer){0};
}

enum { BULK_BYTES = 16 << 20 }; /* of a message */

pi_status cluster_send_bulk(cluster *c, int to, const void *data, size_t n, pi_error *err) {
    const uint8_t *from = data;
    pi_status status = PI_OK;
    for (size_t at = 0, part; at < n && status == PI_OK; at += part) {
        void *message;
        part = n - at < BULK_BYTES ? n - at : BULK_BYTES;
        status = cluster_reserve(c, part, &message, err);
        if (status != PI_OK) break;
        memcpy(message, from + at, part);
        status = cluster_send(c, to, CLUSTER_BULK, err);
    }
    return status;
}

pi_status cluster_receive_bulk(cluster *c, int from, void *data, size_t n, pi_error *err) {
    uint8_t *to = data;
    for (size_t at = 0; at < n;) {
        pi_status status = cluster_receive(c, from, CLUSTER_BULK, &c->bulk, err);
        if (status != PI_OK) return status;
        if (c->bulk.n == 0 || c->bulk.n > n - at) {
            c->failed = true;
            return cluster_name_rank(c, from, PI_ERR_FORMAT, "a message has a wrong size", err);
        }
        memcpy(to + at, c->bulk.data, c->bulk.n);
        at += c->bulk.n;
    }
    return PI_OK;
}
