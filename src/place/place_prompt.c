/* place_prompt.c: the time of a ubatch of n tokens:
 *
 *   T = n * cpu + max(n * products / rate, copies)          cold rows are copied to the GPU
 *   T = n * cpu + max(n * products / rate, n * cold)        the CPU computes them meanwhile
 *
 * The number of tokens from which rows are copied comes from gpu_prefill.c. Copies do not depend on
 * n, so ubatches of more tokens take less time per token as long as copies are the slower part. */
#include "place_prompt.h"

#include <math.h>

/* Products per byte of memory bandwidth, assumed: an RTX 4090 would compute 52e12 per second, of at
 * most 83e12 of halves with float sums, and 330e12 of int8. */
static const double products_per_byte = 64;

static double ubatch_seconds(const place_machine *m, const gpu_exec_prompt *p, int n) {
    const bool streams = n >= p->streams_from;
    const double rate = m->device[SIDE_GPU].stream_gbps * 1e9 * products_per_byte;
    const double products = p->products + (streams ? p->cold_products : 0);
    const double beside = streams ? p->copy_seconds : n * p->cold_seconds;
    return n * p->cpu_seconds + fmax(n * products / rate, beside);
}

double place_prompt_seconds(const place_machine *m, const gpu_exec_prompt *p, int n_tokens,
                            int n_batch) {
    const int whole = n_tokens / n_batch, rest = n_tokens % n_batch;
    const double seconds = whole * ubatch_seconds(m, p, n_batch);
    return rest > 0 ? seconds + ubatch_seconds(m, p, rest) : seconds;
}
