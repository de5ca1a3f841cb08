/* dummy_op.h: the functions of dummy_op.def, which other operations declare in cpu_exec.h and
 * gpu_exec_impl.h. */
#ifndef TEST_DUMMY_OP_H
#define TEST_DUMMY_OP_H

struct args_softcap;
struct cpu_exec;
struct gpu_exec;
struct gpu_exec_shape;
struct gpu_exec_step;
struct plan_step;

void test_dummy_on_cpu(struct cpu_exec *c, const struct plan_step *s, const struct args_softcap *a);
void test_dummy_on_gpu(struct gpu_exec *g, const struct plan_step *s, const struct args_softcap *a,
                       const struct gpu_exec_step *w, const struct gpu_exec_shape *p);

#endif
