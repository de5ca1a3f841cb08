/* cluster_transport.h: the table of functions by which the program exchanges messages with its
 * other ranks. libpowerinfer_mpi.so, which is linked with MPI, exports it (CLUSTER_ENTRY); the
 * program opens that library only in a process that belongs to a cluster.
 *
 * Messages of a sender on a channel arrive in the order in which they were sent. One thread calls
 * these functions. A thread of the library tells every second that this rank is alive, so a rank
 * that computes for minutes is not taken for lost.
 *
 * Functions that return int return 0, or something else after a failure, which is final: a rank is
 * lost, or the network is. `failure` then says what happened, in one line. */
#ifndef CLUSTER_CLUSTER_TRANSPORT_H
#define CLUSTER_CLUSTER_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_TRANSPORT_VERSION = 2 };
#define CLUSTER_ENTRY "powerinfer_cluster_transport"

typedef enum cluster_channel {
    CLUSTER_COMMANDS,    /* from rank 0 */
    CLUSTER_ACTIVATIONS, /* from a rank to the next one, from the last one to rank 0 */
    CLUSTER_REPLIES,     /* to rank 0 */
    CLUSTER_BULK,        /* parts of sessions and files */
    CLUSTER_CHANNELS
} cluster_channel;

typedef struct cluster_transport_options {
    double timeout; /* seconds of silence after which a rank is lost */
    /* Called once on the library's thread when a rank is lost. If the process has not closed the
     * transport CLUSTER_GRACE seconds later, the library calls give_up and ends it. Not NULL. */
    void (*lost)(void *user, const char *why);
    void (*give_up)(void *user, const char *why);
    void *user;
} cluster_transport_options;

enum { CLUSTER_GRACE = 5 /* seconds */ };

typedef struct cluster_transport {
    uint32_t version, size; /* CLUSTER_TRANSPORT_VERSION, sizeof of this struct */
    /* Joins the other ranks; all of them call it. On failure `error` [n_error] says why. */
    int (*open)(const cluster_transport_options *options, char *error, size_t n_error);
    int (*rank)(void);
    int (*ranks)(void);
    const char *(*host)(int rank); /* name of its machine */
    /* Memory for the next message, of n bytes; NULL: none, or too much. send sends it without
     * waiting for the receiver. */
    void *(*reserve)(size_t n);
    int (*send)(int to, int channel);
    /* Waits for the next message and returns its size; `take` copies it. */
    int (*wait)(int from, int channel, size_t *n);
    int (*take)(void *to);
    int (*arrived)(int from, int channel); /* 1: wait would return at once; 0: not yet */
    const char *(*failure)(void);
    /* This process cannot go on: tells the others why, calls give_up and ends all ranks. Any
     * thread and any signal handler may call it. It returns only if the transport is not open or is
     * being closed. */
    void (*abort)(const char *why);
    /* Leaves. failed: ends all ranks, with exit status 1. */
    void (*close)(int failed);
} cluster_transport;

typedef const cluster_transport *(*cluster_entry)(void);

#endif
