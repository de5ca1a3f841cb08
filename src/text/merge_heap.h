/* merge_heap.h: used by both BPE tokenizers: a chain of symbols, and a queue of possible merges of
 * neighbours, best first; among equals the leftmost first. Scratch memory of one encode call; not
 * shared between threads. */
#ifndef TEXT_MERGE_HEAP_H
#define TEXT_MERGE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Symbols stay at their index; a merge extends the left symbol and empties the right one. */
typedef struct merge_symbol {
    int32_t prev, next;   /* indices of the neighbours, -1: none */
    uint32_t begin, size; /* bytes; size 0: merged into its neighbour */
    uint32_t value;       /* the tokenizer's number of the symbol */
} merge_symbol;

typedef struct merge_candidate {
    uint64_t key;    /* rank << 32 | index of the left symbol: smaller is better */
    uint32_t right;  /* index of the right symbol */
    uint32_t size;   /* of both symbols when queued; differs once one of them changed */
    uint32_t result; /* value of the merged symbol */
} merge_candidate;

typedef struct merge_work {
    merge_symbol *symbols; /* [n_symbols] */
    size_t n_symbols, symbol_capacity;
    merge_candidate *heap; /* [n_heap], binary min-heap by key */
    size_t n_heap, heap_capacity;
} merge_work;

/* Finds the merge of two neighbouring symbols: true with its rank and value. */
typedef bool (*merge_lookup)(const void *user, const merge_symbol *left, const merge_symbol *right,
                             uint32_t *rank, uint32_t *result);

bool merge_reserve(merge_work *w, size_t n_symbols); /* false when out of memory */
/* Appends a symbol to the chain; room must have been reserved. */
void merge_append(merge_work *w, uint32_t begin, uint32_t size, uint32_t value);
/* Merges until nothing can be merged. O(n log n) look-ups and steps. False when out of memory. */
bool merge_run(merge_work *w, merge_lookup lookup, const void *user);
void merge_free(merge_work *w);

#endif
