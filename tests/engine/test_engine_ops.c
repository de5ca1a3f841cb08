/* test_engine_ops.c: a new operation is a row in the list of operations (ops.def) and a function
 * per device. This test adds the row of dummy_op.def, compiles the engine's files that expand the
 * list with it, and checks that the operation is planned, printed, counted, traced and run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "gpu_exec_impl.h"
#include "plan_impl.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_ops.gguf"

enum { N_TOKENS = 3, N_CTX = 8 };

static const float CAP = 7;

/* ---- the operation's functions --------------------------------------------------------------- */

void test_dummy_on_cpu(cpu_exec *c, const plan_step *s, const args_softcap *a) {
    for (int i = 0; i < c->ubatch.n_out; i++) cpu_exec_row(c, s->in, i)[0] = a->cap;
}

static int n_enqueued; /* columns */

void test_dummy_on_gpu(gpu_exec *g, const plan_step *s, const args_softcap *a,
                       const gpu_exec_step *w, const gpu_exec_shape *p) {
    assert_ptr_equal(s, &g->plan->gpu_steps[w - g->steps]);
    assert_true(a->cap == CAP);
    n_enqueued += p->n_cols;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static model *open_model(void) {
    const tiny_model t = tiny_default();
    return run_engine_open_tiny(&t, MODEL_PATH);
}

/* The last step of a side; plans have room for a few more steps than they need. */
static plan_step *add_dummy(plan *p, plan_side side) {
    plan_step *s = plan_add_step(p, side, OP_DUMMY, -1, BUF_LOGITS);
    STEP_ARGS(s, softcap)->cap = CAP;
    return s;
}

static void check_printed(const plan *p, const char *line) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    plan_print(p, out);
    fclose(out);
    if (!strstr(text, line)) fail_msg("no line '%s' in:\n%s", line, text);
    free(text);
}

static void test_cpu(void **state) {
    (void)state;
    model *m = open_model();
    const engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, 1);
    engine_context *c = run_engine_context(m, &o);
    cpu_kernels kernels;
    pi_error err;
    int32_t tokens[N_TOKENS];
    run_random_tokens(1, m->hp.n_vocab, tokens, N_TOKENS);
    cpu_kernels_get(CPU_TIER_AUTO, &kernels);

    const plan_step *s = add_dummy(c->cpu.plan, SIDE_CPU);
    const int index = c->cpu.plan->n_steps - 1;
    plan_set_forms(c->cpu.plan, &kernels, false);
    assert_string_equal(plan_op_name(OP_DUMMY), "dummy");
    assert_true(s->kernel[FORM_ONE] == KERNEL_PLAIN && s->kernel[FORM_MANY] == KERNEL_PLAIN);
    assert_true(s->alone[FORM_ONE] && s->alone[FORM_FEW] && !s->alone[FORM_MANY]);
    check_printed(c->cpu.plan,
                  "dummy        -       -       -       logits          0.00  soft cap 7\n");

    if (engine_trace_start(c, 1, &err)) fail_msg("%s", err.message);
    pi_session *session = run_engine_session(c, N_CTX);
    const pi_input in = {
        .session = session, .tokens = tokens, .n_tokens = N_TOKENS, .logits = PI_LOGITS_LAST};
    run_engine_forward(c, &in, 1);
    assert_true(engine_logits(c, 0)[0] == CAP);
    assert_true(engine_logits(c, 0)[1] != CAP);

    const engine_trace *t = engine_get_trace(c);
    int n_traced = 0;
    for (int row = 0; row < t->n_threads; row++)
        for (int i = 0; i < t->rows[row].n; i++) n_traced += t->rows[row].events[i].step == index;
    assert_int_equal(n_traced, 1); /* by the thread that ran it alone */
    assert_int_equal(t->plan->steps[index].op, OP_DUMMY);
    engine_session_destroy(session);
    engine_context_destroy(c);
    model_close(m);
}

static void test_gpu(void **state) {
    (void)state;
    model *m = open_model();
    plan_split splits[TINY_MAX_LAYERS] = {{0}};
    plan_options o = {.mode = PI_MODE_DENSE, .splits = splits, .head = SIDE_GPU};
    cpu_kernels kernels;
    plan *p;
    pi_error err;
    cpu_kernels_get(CPU_TIER_AUTO, &kernels);
    for (int i = 0; i < m->hp.n_layer; i++)
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = m->layers[i].hp.n_ff};
    if (plan_create(m, &kernels, &o, &p, &err)) fail_msg("%s", err.message);

    const int32_t before = gpu_exec_count_kernels(p, 1);
    add_dummy(p, SIDE_GPU);
    assert_int_equal(gpu_exec_count_kernels(p, 1), before + 2);
    check_printed(p, "dummy        -       -       skip    logits          0.00  soft cap 7\n");

    gpu_exec_step steps[64];
    gpu_exec g = {.plan = p, .model = m, .steps = steps};
    assert_true(p->n_gpu_steps <= 64);
    for (int form = 0; form < PLAN_FORMS; form++) { /* left out for many tokens */
        const gpu_exec_shape shape = {.n_cols = form + 1, .form = (plan_form)form};
        gpu_exec_enqueue_step(&g, p->n_gpu_steps - 1, &shape);
    }
    assert_int_equal(n_enqueued, 1 + 2);
    plan_free(p);
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
