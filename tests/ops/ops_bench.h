/* ops_bench.h: the benchmark behind `test_ops --bench`. */
#ifndef OPS_BENCH_H
#define OPS_BENCH_H

/* Prints attention's bandwidth (decode) and arithmetic (prompt) for every tier; 0 when it ran. */
int ops_bench_run(void);

#endif
