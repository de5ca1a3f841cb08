/* api_cluster.h: contexts on several machines. Private to src/api. */
#ifndef API_API_CLUSTER_H
#define API_API_CLUSTER_H

#include "api_types.h"

enum {
    CLUSTER_SETTINGS_BYTES = 2048,
    CLUSTER_ADAPTERS = 64 /* that can be sent: bits of a mask */
};

struct pi_cluster {
    cluster *ranks;
    pi_cluster_options options;
    char settings[CLUSTER_SETTINGS_BYTES];
    /* Rank 0: for ranks that have no file of the model: [tensors] 1: the rank has all bytes. */
    uint8_t *sent[CLUSTER_MAX_RANKS];
    cluster_buffer start; /* other ranks: the command that pi_cluster_receive took; n 0: none */
};

/* On rank 0, before api_place: compares the ranks of o->cluster and divides the layers; fills in
 * c->options and c->stages. The other ranks then create their parts. */
pi_status api_cluster_begin(pi_context *c, const pi_context_options *o, pi_error *err);
/* After api_place: whether all other ranks have their parts. */
pi_status api_cluster_end(pi_context *c, pi_error *err);
/* Receives the answer of a rank, of type work_answer. out: may be NULL. */
struct work_answer;
pi_status api_cluster_hear(cluster *ranks, int rank, struct work_answer *out, pi_error *err);

/* ---- api_cluster_file.c: a model on ranks without its file ----------------------------------- */

/* Rank 0 sends a rank everything that opening the model needs, and then tensors of layers
 * [first, end) that the rank does not have. adapters: bit i: the rank needs adapter i. An answer of
 * the rank meanwhile is the error. */
pi_status api_file_send_head(pi_cluster *group, int rank, const pi_model *m, uint64_t adapters,
                             pi_error *err);
pi_status api_file_send_layers(pi_cluster *group, int rank, const pi_model *m, int first, int end,
                               pi_error *err);
/* The other ends. folder: of the files; NULL: in memory. The model owns the files. After an error
 * rank 0 still sends. PI_ERR_NOMEM: the layers do not fit into memory. */
pi_status api_file_receive_head(cluster *ranks, const char *folder, const pi_model_options *o,
                                uint64_t adapters, pi_model **out, pi_error *err);
pi_status api_file_receive_layers(cluster *ranks, const pi_model *m, int first, int end,
                                  pi_error *err);

#endif
