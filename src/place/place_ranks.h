/* place_ranks.h: divides the layers of a model among machines (src/cluster). A pure function. */
#ifndef PLACE_PLACE_RANKS_H
#define PLACE_PLACE_RANKS_H

#include "cluster.h"
#include "model.h"

/* A machine: what it measured, and what it may use. */
typedef struct place_rank {
    double seconds_per_byte; /* for the weights of layers that a token reads */
    uint64_t memory;         /* bytes for weights */
    double head_seconds;     /* rank 0: time of the steps outside of layers; 0: not measured, use
                                seconds_per_byte */
    double gpu_seconds_per_byte; /* of layers on its GPUs, which hold gpu_memory bytes */
    uint64_t gpu_memory;         /* 0: no GPU */
    double prefill_per_byte;     /* like seconds_per_byte, for a prefill ubatch; 0: not measured */
} place_rank;

/* Bytes of the weights of layers [first, end), and of everything outside of layers. `read`: only
 * those that a token reads: of experts the selected ones, of the embeddings nothing. */
uint64_t place_layer_bytes(const model *m, int first, int end, bool read);
uint64_t place_global_bytes(const model *m, bool read);

/* Ends of the ranks' layers, [n_ranks], each rank with at least one, for the lowest time of the
 * slowest rank; rank 0 also has what is outside of layers. Bytes beyond a rank's memory cost
 * PLACE_RANKS_DRIVE times as much. n_ranks <= n_layer. */
void place_ranks_solve(const model *m, const place_rank *ranks, int n_ranks, int *end);
/* By proportions of the number of layers. */
void place_ranks_split(int n_layer, const float *split, int n_ranks, int *end);
/* Seconds of a token on a rank. */
double place_rank_seconds(const model *m, const place_rank *r, int first, int end);
/* Seconds of a prefill ubatch on a rank, with logits of one token; 0: not measured. */
double place_rank_prefill(const model *m, const place_rank *r, int first, int end);

enum { PLACE_RANKS_DRIVE = 20 };

#endif
