/* test_engine_trace.c: timelines of ubatches: every step of both sides appears once, within its
 * ubatch, with the bytes of the counters; the file is valid and nested; figures computed from a
 * constructed timeline are right; recording changes no answer and ends by itself. On the simulated
 * GPU, or the one that --device names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine.h"
#include "failing.h"
#include "json.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"
#include "trace_tool.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_trace.gguf"
#define TRACE_PATH TEST_BINARY_DIR "/test_engine_trace.json"

enum {
    N_PROMPT = 12, /* more than a recorded program takes: enqueued in segments */
    N_TOKENS = N_PROMPT + 1,
    N_CTX = 32,
    MAX_VOCAB = 64,
    N_THREADS = 2
};

static gpu_library library;
static gpu_device *device;
static int32_t tokens[N_TOKENS];
static plan_split splits[TINY_MAX_LAYERS];

static const tiny_sparse sparse = {.down_t = true, .predictor = "lowrank", .rank = 32};

static model *open_model(void) {
    tiny_model t = tiny_default();
    t.type = "f16";
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.n_layer = 3;
    t.n_head[2] = t.n_head[0];
    t.n_head_kv[2] = t.n_head_kv[0];
    t.n_ff[0] = t.n_ff[1] = t.n_ff[2] = 320;
    t.activation = "relu";
    t.sparse = sparse;
    run_random_tokens(t.seed, t.n_vocab, tokens, N_TOKENS);
    assert_true(t.n_vocab <= MAX_VOCAB);
    return run_engine_open_tiny(&t, MODEL_PATH);
}

/* Two split layers with different primary devices, and one that is entirely on the GPU. */
static engine_context *make_context(const model *m, bool gpu, gpu_prompts prompts) {
    engine_options o = {.n_threads = N_THREADS,
                        .n_threads_batch = N_THREADS,
                        .n_batch = N_TOKENS,
                        .n_logits = N_TOKENS,
                        .tier = CPU_TIER_AUTO,
                        .type_k = QUANT_F16,
                        .type_v = QUANT_F16,
                        .prompts = prompts,
                        .plan = {.mode = PI_MODE_PREDICT}};
    if (gpu) {
        splits[0] = (plan_split){.primary = SIDE_GPU, .hot = 160};
        splits[1] = (plan_split){.primary = SIDE_CPU, .hot = 64};
        splits[2] = (plan_split){.primary = SIDE_GPU, .hot = 320};
        o.plan.splits = splits;
        o.plan.head = SIDE_GPU;
        o.gpu = library.backend;
        o.devices[0] = device;
    }
    return run_engine_context(m, &o);
}

/* A prompt and a token. */
static void feed(engine_context *c, float out[2 * MAX_VOCAB]) {
    pi_session *s = run_engine_session(c, N_CTX);
    size_t n = (size_t)engine_plan(c)->model->hp.n_vocab;
    pi_input in = {.session = s, .tokens = tokens, .n_tokens = N_PROMPT, .logits = PI_LOGITS_LAST};
    for (int i = 0; i < 2; i++) {
        run_engine_forward(c, &in, 1);
        memcpy(out + (size_t)i * n, engine_logits(c, 0), n * sizeof *out);
        in.tokens = tokens + N_PROMPT;
        in.n_tokens = 1;
    }
    engine_session_destroy(s);
}

static const engine_trace *record(engine_context *c) {
    float logits[2 * MAX_VOCAB];
    pi_error err;
    if (engine_trace_start(c, 2, &err)) fail_msg("%s", err.message);
    feed(c, logits);
    assert_non_null(engine_get_trace(c));
    assert_int_equal(engine_get_trace(c)->n_ubatches, 2);
    return engine_get_trace(c);
}

/* ---- recorded events ------------------------------------------------------------------------- */

static int count_events(const engine_trace *t, int row, int ubatch, int step, trace_kind kind) {
    int n = 0;
    for (int i = 0; i < t->rows[row].n; i++) {
        const trace_event *e = &t->rows[row].events[i];
        n += e->ubatch == ubatch && e->step == step && e->kind == kind;
    }
    return n;
}

static int find_step(const plan_step *steps, int from, plan_op op, int layer) {
    while (steps[from].op != op || steps[from].layer != layer) from++;
    return from;
}

/* Times of the GPU may be off by the clocks' error; the clocks are synchronized for each ubatch. */
static void check_times(const engine_trace *t) {
    for (int row = 0; row < t->n_threads + t->n_gpus; row++) {
        double slack = row >= t->n_threads ? t->clock_error + 1e-6 : 0, last = 0;
        int ubatch = 0;
        for (int i = 0; i < t->rows[row].n; i++) {
            const trace_event *e = &t->rows[row].events[i];
            const trace_ubatch *p = &t->ubatches[e->ubatch];
            assert_true(e->start <= e->end);
            assert_true(e->end >= last - (e->ubatch == ubatch ? 0 : 2 * slack));
            ubatch = e->ubatch;
            assert_true(e->start >= p->start - slack && e->end <= p->end + slack);
            last = e->end;
            if (e->kind != TRACE_WAIT) continue;
            const trace_event *receive = e + 1; /* it ended later */
            assert_true(i + 1 < t->rows[row].n && receive->step == e->step);
            assert_true(e->start >= receive->start && e->end <= receive->end);
        }
    }
}

static uint64_t bytes_of_step(const engine_trace *t, bool gpu, int ubatch, int step) {
    for (int row = gpu ? t->n_threads : 0; row < t->n_threads + gpu; row++) {
        for (int i = 0; i < t->rows[row].n; i++) {
            const trace_event *e = &t->rows[row].events[i];
            if (e->ubatch == ubatch && e->step == step && e->kind != TRACE_WAIT) return e->bytes;
        }
    }
    return 0;
}

/* All weights of a ubatch, except the rows of the embeddings. */
static uint64_t bytes_of_ubatch(const engine_trace *t, int ubatch) {
    uint64_t sum = 0;
    for (int i = 0; i < t->plan->n_steps; i++) sum += bytes_of_step(t, false, ubatch, i);
    for (int i = 0; i < t->plan->n_gpu_steps; i++) sum += bytes_of_step(t, true, ubatch, i);
    return sum;
}

/* A step is run by one thread or by all, or left out in this size of ubatch; a message by one
 * thread, which waits for it. */
static void check_processor(const engine_trace *t, int ubatch) {
    plan_form form = plan_form_of(t->plan, SIDE_CPU, t->ubatches[ubatch].n_tokens);
    for (int i = 0; i < t->plan->n_steps; i++) {
        int n = 0, waits = 0;
        for (int row = 0; row < t->n_threads; row++) {
            n += count_events(t, row, ubatch, i, TRACE_STEP);
            waits += count_events(t, row, ubatch, i, TRACE_WAIT);
        }
        plan_op op = t->plan->steps[i].op;
        if (t->plan->steps[i].kernel[form] == KERNEL_SKIP) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_true(n == 1 || (n == N_THREADS && op != OP_SEND && op != OP_RECEIVE));
        assert_int_equal(waits, op == OP_RECEIVE);
    }
}

static void test_both_sides(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_SPLIT);
    const engine_trace *t = record(c);
    const plan *p = t->plan;
    assert_true(t->n_gpus > 0);
    assert_int_equal(t->n_threads, N_THREADS);
    assert_int_equal(t->ubatches[0].n_tokens, N_PROMPT);
    assert_int_equal(t->ubatches[1].n_tokens, 1);
    assert_true(t->ubatches[0].end <= t->ubatches[1].start);
    check_times(t);
    for (int ubatch = 0; ubatch < 2; ubatch++) {
        check_processor(t, ubatch);
        for (int i = 0; i < p->n_gpu_steps; i++)
            assert_int_equal(count_events(t, N_THREADS, ubatch, i, TRACE_STEP), 1);
    }
    uint64_t sum = bytes_of_ubatch(t, 0) + bytes_of_ubatch(t, 1);
    sum += N_TOKENS * m->t[ROLE_TOKEN_EMBD].row_bytes;
    assert_int_equal(sum, engine_get_counters(c).weight_bytes);
    const plan_step *choose = &p->gpu_steps[find_step(p->gpu_steps, 0, OP_SELECT, 0)];
    assert_int_equal(choose->weight_bytes, 320 * STEP_ARGS(choose, select)->ffn->fc2.row_size);
    engine_context_destroy(c);
    model_close(m);
}

static void test_processor_alone(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, false, GPU_PROMPTS_SPLIT);
    const engine_trace *t = record(c);
    assert_false(t->n_gpus > 0);
    check_times(t);
    for (int ubatch = 0; ubatch < 2; ubatch++) check_processor(t, ubatch);
    uint64_t sum = bytes_of_ubatch(t, 0) + bytes_of_ubatch(t, 1);
    sum += N_TOKENS * m->t[ROLE_TOKEN_EMBD].row_bytes;
    assert_int_equal(sum, engine_get_counters(c).weight_bytes);
    pi_trace_summary s;
    pi_error err;
    assert_int_equal(trace_summarize(t, 1, &s, &err), PI_OK);
    assert_int_equal(s.n_tokens, 1);
    assert_true(s.cpu_seconds > 0 && s.cpu_seconds <= s.seconds);
    assert_true(s.gpu_seconds == 0 && s.both_seconds == 0 && s.overlap == 0 && s.n_split == 0);
    engine_context_destroy(c);
    model_close(m);
}

/* The GPU's own work includes the copies of cold neurons to it. */
static void test_streamed(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_STREAMED);
    const engine_trace *t = record(c);
    int streamed[2] = {0};
    check_times(t);
    for (int ubatch = 0; ubatch < 2; ubatch++)
        for (int i = 0; i < t->plan->n_gpu_steps; i++)
            streamed[ubatch] += count_events(t, N_THREADS, ubatch, i, TRACE_STREAM);
    assert_int_equal(streamed[0], 1); /* the split layer whose primary is the GPU */
    assert_int_equal(streamed[1], 0);
    pi_trace_summary s;
    pi_error err;
    assert_int_equal(trace_summarize(t, 0, &s, &err), PI_OK);
    assert_int_equal(s.n_split, 1);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct file_event {
    const char *name;
    int64_t pid, tid;
    double start, end;
} file_event;

static double number(const json_node *object, const char *key) {
    double value = 0;
    if (!json_as_double(json_get(object, key), &value)) fail_msg("no number %s", key);
    return value;
}

static const char *text(const json_node *object, const char *key) {
    const char *value = NULL;
    size_t n;
    if (!json_as_string(json_get(object, key), &value, &n)) fail_msg("no text %s", key);
    return value;
}

/* False for metadata. */
static bool read_event(const json_node *node, file_event *e) {
    e->name = text(node, "name");
    e->pid = (int64_t)number(node, "pid");
    e->tid = (int64_t)number(node, "tid");
    assert_int_equal(json_kind_of(json_get(node, "args")), JSON_OBJECT);
    if (strcmp(text(node, "ph"), "M") == 0) return false;
    assert_string_equal(text(node, "ph"), "X");
    e->start = number(node, "ts");
    e->end = e->start + number(node, "dur");
    assert_true(number(node, "dur") >= 0);
    return true;
}

/* Two events of a row are disjoint, or one contains the other; sums of decimal fractions are off by
 * less than the nanosecond that times are rounded to, those of the GPU's clock by the difference
 * between ubatches. */
static bool nested(const file_event *a, const file_event *b, double clock_error) {
    enum { GPU_PROCESS = 2 };
    const double e = a->pid == GPU_PROCESS ? 2e6 * clock_error + 1e-4 : 1e-4; /* us */
    if (a->pid != b->pid || a->tid != b->tid) return true;
    bool apart = a->end <= b->start + e || b->end <= a->start + e;
    bool within = a->start >= b->start - e && a->end <= b->end + e;
    bool around = b->start >= a->start - e && b->end <= a->end + e;
    return apart || within || around;
}

static void check_file(const engine_trace *t) {
    enum { MAX_EVENTS = 2048 };
    static file_event events[MAX_EVENTS];
    json_doc *doc;
    pi_error err;
    int n = 0, n_written = t->n_ubatches;
    for (int row = 0; row < t->n_threads + t->n_gpus; row++) n_written += t->rows[row].n;
    pi_status status = json_parse_file(TRACE_PATH, &doc, &err);
    if (status == PI_ERR_UNSUPPORTED) {
        fprintf(stderr, "*** SKIPPED: built without jansson ***\n");
        return;
    }
    if (status != PI_OK) fail_msg("%s", err.message);
    const json_node *list = json_get(json_root(doc), "traceEvents");
    assert_true(json_count(list) < MAX_EVENTS);
    for (size_t i = 0; i < json_count(list); i++) n += read_event(json_at(list, i), &events[n]);
    assert_int_equal(n, n_written);
    int waits = 0;
    for (int i = 0; i < n; i++) {
        waits += strcmp(events[i].name, "wait for the GPU") == 0;
        for (int k = 0; k < i; k++)
            if (!nested(&events[i], &events[k], t->clock_error))
                fail_msg("%s and %s overlap", events[i].name, events[k].name);
    }
    assert_int_equal(waits, t->n_gpus > 0 ? 2 * t->plan->n_exchanges[SIDE_GPU] : 0);
    json_free(doc);
}

static void test_file(void **state) {
    (void)state;
    model *m = open_model();
    for (int gpu = 0; gpu < 2; gpu++) {
        engine_context *c = make_context(m, gpu, GPU_PROMPTS_SPLIT);
        const engine_trace *t = record(c);
        pi_error err;
        if (trace_write(t, TRACE_PATH, &err)) fail_msg("%s", err.message);
        check_file(t);
        assert_int_equal(unlink(TRACE_PATH), 0);
        assert_int_equal(trace_write(t, TEST_BINARY_DIR "/no/such/folder", &err), PI_ERR_IO);
        run_check_message(&err, PI_ERR_IO);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* ---- figures --------------------------------------------------------------------------------- */

static void test_summary(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_SPLIT);
    const engine_trace *t = record(c);
    for (int ubatch = 0; ubatch < 2; ubatch++) {
        pi_trace_summary s;
        pi_error err;
        if (trace_summarize(t, ubatch, &s, &err)) fail_msg("%s", err.message);
        assert_int_equal(s.n_split, 2);
        assert_true(s.cpu_seconds > 0 && s.cpu_seconds <= s.seconds);
        assert_true(s.gpu_seconds > 0 && s.gpu_seconds <= s.seconds + 1e-6);
        assert_true(s.overlap >= 0 && s.overlap <= 1);
        assert_true(s.split_overlap >= 0 && s.split_overlap <= 1);
        assert_true(s.exchange_seconds > 0 && s.exchange_seconds < s.seconds);
    }
    engine_context_destroy(c);
    model_close(m);
}

static void put(engine_trace *t, int row, int step, double start, double end) {
    t->rows[row].events[t->rows[row].n++] = (trace_event){.step = step, .start = start, .end = end};
}

/* Layer 0, whose primary is the GPU: it sends in [0, 1], computes in [1, 5] and receives until 10.
 * The CPU waits until 2 and computes on two threads, in [2, 7] and [3, 8]. */
static void test_figures(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_SPLIT);
    const plan *p = engine_plan(c);
    enum { N_EVENTS = 8 };
    trace_event events[N_THREADS + 1][N_EVENTS];
    trace_row rows[N_THREADS + 1] = {
        {.events = events[0]}, {.events = events[1]}, {.events = events[2]}};
    trace_ubatch ubatch = {.n_tokens = 1, .start = 0, .end = 16};
    engine_trace t = {.plan = p,
                      .n_threads = N_THREADS,
                      .n_gpus = 1,
                      .rows = rows,
                      .ubatches = &ubatch,
                      .n_ubatches = 1,
                      .clock_error = 0.5};
    int send = find_step(p->gpu_steps, 0, OP_SEND, 0);
    put(&t, N_THREADS, send, 0, 1);
    put(&t, N_THREADS, find_step(p->gpu_steps, send, OP_FFN_SPARSE, 0), 1, 3);
    put(&t, N_THREADS, find_step(p->gpu_steps, send, OP_FFN_DOWN, 0), 3, 5);
    put(&t, N_THREADS, find_step(p->gpu_steps, send, OP_RECEIVE, 0), 5, 10);
    put(&t, N_THREADS, find_step(p->gpu_steps, send, OP_ATTENTION, 2), 12, 14);
    int receive = find_step(p->steps, 0, OP_RECEIVE, 0);
    int neurons = find_step(p->steps, receive, OP_FFN_SPARSE, 0);
    put(&t, 0, receive, 0, 2);
    put(&t, 0, neurons, 2, 7);
    put(&t, 1, neurons, 3, 8);
    put(&t, 0, find_step(p->steps, neurons, OP_SEND, 0), 8, 9);
    put(&t, 1, find_step(p->steps, receive, OP_NORM, 1), 13, 13.5);
    pi_trace_summary s;
    pi_error err;
    if (trace_summarize(&t, 0, &s, &err)) fail_msg("%s", err.message);
    const double e = 1e-6;
    assert_float_equal(s.seconds, 16, e);
    assert_float_equal(s.cpu_seconds, 6.5, e);
    assert_float_equal(s.gpu_seconds, 6, e);
    assert_float_equal(s.both_seconds, 3.5, e);
    assert_float_equal(s.overlap, 3.5 / 6, e);
    assert_int_equal(s.n_split, 1); /* layer 1 has no events */
    assert_float_equal(s.split_overlap, 0.75, e);
    assert_float_equal(s.exchange_seconds, 4, e);
    assert_float_equal(s.clock_error, 0.5, e);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- effects of recording -------------------------------------------------------------------- */

/* Equal bits with and without recording, and afterwards; a third ubatch finds the trace full. */
static void test_answers(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_SPLIT);
    float want[2 * MAX_VOCAB], got[2 * MAX_VOCAB];
    size_t n_bytes = 2 * (size_t)m->hp.n_vocab * sizeof *want;
    pi_error err;
    feed(c, want);
    for (int i = 0; i < 2; i++) {
        if (i == 0 && engine_trace_start(c, 2, &err)) fail_msg("%s", err.message);
        feed(c, got);
        assert_memory_equal(got, want, n_bytes);
        const engine_trace *t = engine_get_trace(c);
        assert_int_equal(t->n_ubatches, 2);
        check_times(t);
    }
    engine_trace_stop(c);
    assert_null(engine_get_trace(c));
    feed(c, got);
    assert_memory_equal(got, want, n_bytes);
    engine_context_destroy(c);
    model_close(m);
}

static void test_cancelled(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_SPLIT);
    pi_session *s;
    pi_error err;
    if (engine_session_create(c, N_CTX, &s, &err)) fail_msg("%s", err.message);
    if (engine_trace_start(c, 1, &err)) fail_msg("%s", err.message);
    const pi_input in = {.session = s, .tokens = tokens, .n_tokens = 1, .logits = PI_LOGITS_LAST};
    engine_cancel(c);
    assert_int_equal(engine_forward(c, &in, 1, &err), PI_ERR_CANCELLED);
    const engine_trace *t = engine_get_trace(c);
    assert_int_equal(t->n_ubatches, 0);
    for (int row = 0; row <= N_THREADS; row++) assert_int_equal(t->rows[row].n, 0);
    if (engine_forward(c, &in, 1, &err)) fail_msg("%s", err.message);
    assert_int_equal(t->n_ubatches, 1);
    check_processor(t, 0);
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

static void test_errors(void **state) {
    (void)state;
    model *m = open_model();
    engine_context *c = make_context(m, true, GPU_PROMPTS_SPLIT);
    pi_error err;
    static const int bad[] = {-1, 0, 1000000};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(engine_trace_start(c, bad[i], &err), PI_ERR_ARG);
        run_check_message(&err, PI_ERR_ARG);
    }
    /* Events of the device come in hundreds, all from one call. */
    for (failing f = failing_each(7); failing_next(&f);) {
        pi_status status = engine_trace_start(c, 2, &err);
        if (failing_hit(&f, status, &err)) assert_null(engine_get_trace(c));
    }
    const engine_trace *t = record(c);
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_trace_summary s;
        pi_status status = trace_summarize(t, 0, &s, &err);
        failing_hit(&f, status, &err);
    }
    engine_context_destroy(c);
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides), cmocka_unit_test(test_processor_alone),
        cmocka_unit_test(test_streamed),   cmocka_unit_test(test_file),
        cmocka_unit_test(test_summary),    cmocka_unit_test(test_figures),
        cmocka_unit_test(test_answers),    cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_errors),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    unlink(MODEL_PATH);
    return failed;
}
