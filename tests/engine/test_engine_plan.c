/* test_engine_plan.c: the kernels of steps in ubatches of one token, of few and of many, on both
 * devices: plans of small models, which nothing runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_ops.h"
#include "plan.h"
#include "tiny_model.h"

#define MODEL_PATH "test_engine_plan.gguf"

enum { N_FF = 64, HOT = 32 };

static cpu_kernels kernels;

typedef struct planned {
    model *m;
    plan *p;
} planned;

/* Both layers' primary devices are `primary`, with the split point in the middle; CPU alone without
 * a primary. */
static planned make(const tiny_model *t, pi_mode mode, const plan_side *primary) {
    planned r;
    pi_error err;
    plan_options o = {.mode = mode};
    plan_split splits[2];
    tiny_write(t, MODEL_PATH);
    if (model_open(MODEL_PATH, NULL, &r.m, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < 2 && primary; i++)
        splits[i] = (plan_split){.primary = *primary, .hot = HOT};
    if (primary) o.splits = splits;
    if (primary) o.head = *primary;
    if (plan_create(r.m, &kernels, &o, &r.p, &err)) fail_msg("%s", err.message);
    return r;
}

static void drop(planned *r) {
    plan_free(r->p);
    model_close(r->m);
}

static tiny_model sparse_model(void) {
    tiny_model t = tiny_default();
    t.activation = "relu";
    t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32};
    return t;
}

/* All steps of an operation have this kernel; there is at least one such step. */
static void check(const plan *p, plan_side side, plan_op op, plan_kernel one, plan_kernel few,
                  plan_kernel many) {
    const plan_step *steps = side == SIDE_CPU ? p->steps : p->gpu_steps;
    int n = side == SIDE_CPU ? p->n_steps : p->n_gpu_steps, found = 0;
    for (int i = 0; i < n; i++) {
        if (steps[i].op != op) continue;
        assert_int_equal(steps[i].kernel[FORM_ONE], one);
        assert_int_equal(steps[i].kernel[FORM_FEW], few);
        assert_int_equal(steps[i].kernel[FORM_MANY], many);
        found++;
    }
    assert_true(found > 0);
}

static const plan_step *find(const plan *p, plan_op op, plan_buffer in) {
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].op == op && p->steps[i].in == in) return &p->steps[i];
    fail_msg("no %s of buffer %d", plan_op_name(op), (int)in);
    return NULL;
}

/* The sizes where forms begin: the tier's constant for the kind of most weights; with sparse
 * layers, above the number of tokens that can have a bit in a byte. */
static void test_sizes(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "bf16", "q8_0"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = tiny_default();
        t.type = types[i];
        planned dense = make(&t, PI_MODE_DENSE, NULL);
        int from = kernels.tiled[kernels.mat[dense.p->steps[2].matrix[0].w.type].act].from;
        assert_int_equal(dense.p->many_from[SIDE_CPU], from);
        assert_int_equal(plan_form_of(dense.p, SIDE_CPU, 1), FORM_ONE);
        assert_int_equal(plan_form_of(dense.p, SIDE_CPU, 2), FORM_FEW);
        assert_int_equal(plan_form_of(dense.p, SIDE_CPU, from - 1), FORM_FEW);
        assert_int_equal(plan_form_of(dense.p, SIDE_CPU, from), FORM_MANY);
        assert_int_equal(plan_form_of(dense.p, SIDE_GPU, GPU_MAX_COLS), FORM_FEW);
        assert_int_equal(plan_form_of(dense.p, SIDE_GPU, GPU_MAX_COLS + 1), FORM_MANY);
        drop(&dense);
        t.activation = "relu";
        planned sparse = make(&t, PI_MODE_EXACT, NULL);
        assert_int_equal(sparse.p->many_from[SIDE_CPU], 8 + 1);
        drop(&sparse);
    }
}

static void test_cpu(void **state) {
    (void)state;
    tiny_model t = sparse_model();
    planned r = make(&t, PI_MODE_PREDICT, NULL);
    const plan *p = r.p;
    check(p, SIDE_CPU, OP_FFN_SPARSE, KERNEL_VECTOR, KERNEL_UNION, KERNEL_TILED);
    check(p, SIDE_CPU, OP_FFN_DOWN, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    check(p, SIDE_CPU, OP_MATMUL, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    check(p, SIDE_CPU, OP_EMBED, KERNEL_PLAIN, KERNEL_PLAIN, KERNEL_PLAIN);
    const plan_step *hidden = find(p, OP_QUANTIZE, BUF_GATE),
                    *attn = find(p, OP_QUANTIZE, BUF_ATTN);
    assert_int_equal(hidden->kernel[FORM_ONE],
                     KERNEL_SKIP); /* rows of down are summed unquantized */
    assert_int_equal(hidden->kernel[FORM_MANY], KERNEL_TILED);
    assert_int_equal(attn->kernel[FORM_ONE], KERNEL_VECTOR);
    assert_true(attn->alone[FORM_FEW] && !attn->alone[FORM_MANY]);
    assert_int_equal(p->ffn[0].selection, SELECT_SCORES);
    assert_int_equal(p->steps[p->n_layer_steps].op, OP_HEAD_NORM);
    drop(&r);
    r = make(&t, PI_MODE_EXACT, NULL);
    assert_int_equal(r.p->ffn[0].selection, SELECT_ALL);
    drop(&r);
    t.sparse.predictor = "sign"; /* its products want columns, for any number of tokens */
    r = make(&t, PI_MODE_PREDICT, NULL);
    const plan_step *input = find(r.p, OP_QUANTIZE, BUF_Y);
    assert_int_equal(input->slot, PLAN_SLOT_PREDICTOR);
    assert_int_equal(input->kernel[FORM_MANY], KERNEL_VECTOR);
    drop(&r);
}

static void test_split(void **state) {
    (void)state;
    tiny_model t = sparse_model();
    plan_side primary = SIDE_CPU;
    planned r = make(&t, PI_MODE_PREDICT, &primary);
    assert_int_equal(r.p->ffn[0].selection, SELECT_SCORES);
    assert_int_equal(r.p->gpu_ffn[0].selection, SELECT_MESSAGE);
    check(r.p, SIDE_CPU, OP_SELECT, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    check(r.p, SIDE_GPU, OP_SELECT, KERNEL_UNION, KERNEL_UNION, KERNEL_SKIP);
    check(r.p, SIDE_GPU, OP_FFN_SPARSE, KERNEL_UNION, KERNEL_UNION, KERNEL_TILED);
    check(r.p, SIDE_GPU, OP_FFN_DOWN, KERNEL_UNION, KERNEL_UNION, KERNEL_TILED);
    drop(&r);
    primary = SIDE_GPU;
    r = make(&t, PI_MODE_PREDICT, &primary);
    assert_int_equal(r.p->ffn[0].selection, SELECT_MESSAGE);
    check(r.p, SIDE_GPU, OP_SELECT, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    check(r.p, SIDE_CPU, OP_FFN_SPARSE, KERNEL_VECTOR, KERNEL_UNION, KERNEL_TILED);
    drop(&r);
    r = make(&t, PI_MODE_EXACT, &primary); /* no list: activations decide */
    check(r.p, SIDE_GPU, OP_FFN_SPARSE, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    check(r.p, SIDE_GPU, OP_FFN_DOWN, KERNEL_VECTOR, KERNEL_VECTOR, KERNEL_TILED);
    drop(&r);
    t.scales = true;
    r = make(&t, PI_MODE_EXACT, &primary);
    check(r.p, SIDE_GPU, OP_FFN_SPARSE, KERNEL_MASKED, KERNEL_MASKED, KERNEL_TILED);
    check(r.p, SIDE_GPU, OP_FFN_DOWN, KERNEL_TILED, KERNEL_TILED, KERNEL_TILED);
    drop(&r);
}

static void test_print(void **state) {
    (void)state;
    tiny_model t = sparse_model();
    planned r = make(&t, PI_MODE_EXACT, NULL);
    char few[16], sizes[64], line[256];
    snprintf(few, sizeof few, "2-%d", r.p->many_from[SIDE_CPU] - 1);
    snprintf(sizes, sizeof sizes, "1 token %-7s %d+ ", few, r.p->many_from[SIDE_CPU]);
    FILE *f = tmpfile();
    assert_non_null(f);
    plan_print(r.p, f);
    rewind(f);
    assert_non_null(fgets(line, sizeof line, f));
    if (!strstr(line, sizes)) fail_msg("'%s' is not in: %s", sizes, line);
    int found = 0;
    while (fgets(line, sizeof line, f))
        found += strstr(line, "ffn_sparse   vector  union   tiled") != NULL;
    assert_int_equal(found, 2);
    fclose(f);
    drop(&r);
}

/* Experts with fewer tokens than tiles need have lists of active neurons, one per expert. */
static void test_experts_fit(void **state) {
    (void)state;
    for (int tier = 0; tier < CPU_TIER_COUNT; tier++) {
        cpu_kernels k;
        if (!cpu_kernels_get((cpu_tier)tier, &k)) continue;
        for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++)
            assert_in_range(k.tiled[kind].from, 0, PLAN_EXPERT_MAX_COLS + 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_split),       cmocka_unit_test(test_print),
        cmocka_unit_test(test_experts_fit),
    };
    if (!cpu_kernels_get(CPU_TIER_AUTO, &kernels)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
