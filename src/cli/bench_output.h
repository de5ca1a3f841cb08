/* bench_output.h: results of bench as a Markdown table, JSON, JSON lines and CSV. */
#ifndef CLI_BENCH_OUTPUT_H
#define CLI_BENCH_OUTPUT_H

#include <stddef.h>

#include "powerinfer.h"
#include "powerinfer_tools.h"

enum { BENCH_COLUMNS = 80 }; /* width of tables without -v */

/* In the order of the choices of --output. */
typedef enum bench_format { BENCH_MD, BENCH_JSON, BENCH_JSONL, BENCH_CSV } bench_format;

/* A result and its settings. */
typedef struct bench_row {
    pi_bench_result result;
    char model[256], architecture[32], type[32];
    const char *cache_type_k, *cache_type_v; /* static strings */
    uint64_t weight_bytes, n_params;
    int32_t threads, n_batch, gpu_layers;
    bool in_cache;
} bench_row;

typedef struct bench_results {
    bench_row *rows; /* [n], in the order they were measured; owned */
    size_t n, capacity;
    pi_bench_report last; /* last combination: machine and timeline */
} bench_results;

void bench_print(FILE *out, const bench_results *r, bench_format format, bool verbose);
/* What ranks have and did, as an array "ranks"; seconds are of all ubatches. */
struct json_writer;
void bench_put_ranks(struct json_writer *w, const pi_rank *ranks, int n);
/* Summary of the traced ubatches, as text. */
void bench_print_traced(FILE *out, const char *path, const pi_bench_report *r);

#endif
