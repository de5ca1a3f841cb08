/* kernel_tests.h: the parts of the program test_kernel. */
#ifndef TEST_KERNEL_TESTS_H
#define TEST_KERNEL_TESTS_H

/* kernel_act.c: act_encode. */
void kernel_test_encode_meaning(void **state);
void kernel_test_encode_tiers(void **state);
void kernel_test_encode_ranges(void **state);

/* kernel_mat.c: matvec and matmul. */
void kernel_test_decode(void **state);
void kernel_test_sizes(void **state);
void kernel_test_random_bits(void **state);
void kernel_test_long_rows(void **state);
void kernel_test_many_blocks(void **state);
void kernel_test_split_rows(void **state);
void kernel_test_hostile(void **state);

/* kernel_mat_t.c: axpy_rows and matmul_t. */
void kernel_test_mat_t_sizes(void **state);
void kernel_test_mat_t_many_blocks(void **state);
void kernel_test_mat_t_cuts(void **state);
void kernel_test_mat_t_hostile(void **state);
/* kernel_rows.c: matvec_rows, and matrices interleaved with the rows of another matrix. */
void kernel_test_rows(void **state);
void kernel_test_rows_hostile(void **state);

/* kernel_select.c: select, keep, sign_dot. */
void kernel_test_select(void **state);
void kernel_test_keep(void **state);
void kernel_test_sign_dot(void **state);

/* kernel_bench.c: `--bench [type] [rows] [cols]`; the exit status. */
int kernel_bench(int argc, char **argv);
/* `--bench columns [type]`: the number of vectors from which the tiled product is faster. */
int kernel_bench_columns(int argc, char **argv);
/* kernel_bench_axpy.c: `--bench axpy|matmul_t [type] [rows] [cols]`. */
int kernel_bench_mat_t(int argc, char **argv);

/* kernel_gather.c: `--bench gather [type] [n_in] [density]`; the exit status. */
int kernel_gather(int argc, char **argv);

/* kernel_share.c: `--bench share [type] [tier]`. */
int kernel_share(int argc, char **argv);

#endif
