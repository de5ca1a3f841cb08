/* ops_bench.h: the benchmark behind `test_ops --bench`. */
#ifndef OPS_BENCH_H
#define OPS_BENCH_H

/* Prints the bandwidth (decode) and arithmetic rate (prefill) of attention for every tier; returns
 * 0 when it ran. */
int ops_bench_run(void);

#endif
