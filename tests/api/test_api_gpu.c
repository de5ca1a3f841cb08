/* test_api_gpu.c: contexts on the simulated GPU: they take exactly the predicted device memory and
 * stay within the budget; answers equal those of the CPU; after every failure of the GPU the
 * context works and reports the reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api_types.h"
#include "gpu_presence.h"
#include "mem.h"
#include "powerinfer_tools.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_api_gpu.gguf"

#ifdef TEST_SAMPLED
enum { FAIL_STEP = 7 }; /* every seventh allocation */
#else
enum { FAIL_STEP = 1 };
#endif
enum {
    N_TOKENS = 7,
    N_CTX = 24,
    FEED_EVERY = 8 /* checks every 8th answer after a fallback */
};

/* A model with several heads, biases, a predictor whose scores decide, and padded rows. */
static tiny_model test_model(bool sparse) {
    tiny_model t = tiny_default();
    t.arch = sparse ? "bamboo" : "llama";
    t.n_layer = 3;
    for (int i = 0; i < t.n_layer; i++) t.n_ff[i] = 96;
    t.tied = sparse;
    t.sparse.down_t = sparse;
    return t;
}

static pi_context_options gpu_options(uint64_t budget, int32_t layers) {
    pi_context_options o = run_exact_options();
    o.device = PI_DEVICE_SIM;
    o.n_devices = 1; /* number 0 */
    o.vram_budget = budget;
    o.gpu_layers = layers;
    o.n_batch = 8;
    o.n_ctx = N_CTX;
    return o;
}

static uint64_t used(const pi_context *c) {
    uint64_t free_bytes = 0, total = 0;
    pi_error err;
    const gpu_backend *b = c->gpus.gpu[0].library.backend;
    if (b->memory(c->gpus.gpu[0].device, &free_bytes, &total, &err)) fail_msg("%s", err.message);
    return total - free_bytes;
}

static void feed(run_model *r, pi_session *s, float *logits) {
    int32_t tokens[N_TOKENS];
    run_random_tokens(3, r->n_vocab, tokens, N_TOKENS);
    run_feed(r, s, tokens, N_TOKENS, 0, logits);
}

static float *answer_of_cpu(void) {
    pi_context_options o = run_exact_options();
    run_model r = run_open(MODEL_PATH, &o);
    float *logits = mem_calloc((size_t)(N_TOKENS * r.n_vocab), sizeof *logits);
    pi_session *s = run_session(&r, N_CTX);
    feed(&r, s, logits);
    pi_session_destroy(s);
    run_close(&r);
    return logits;
}

/* The status of creating a context with a named device. */
static pi_status refused(const pi_context_options *o, const char *why) {
    pi_model *m;
    pi_context *c;
    pi_error err;
    if (pi_model_open(MODEL_PATH, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    pi_status status = pi_context_create(m, o, &c, &err);
    if (status != PI_OK) {
        run_check_message(&err, status);
        assert_non_null(strstr(err.message, why));
        assert_null(c);
    }
    pi_context_destroy(c);
    pi_model_close(m);
    return status;
}

/* Returns whether the GPU is used: false when the context was refused for its memory. */
static bool check(const pi_context_options *o, const float *expected, pi_placement *p) {
    if (refused(o, "too little memory: simulated GPU: ") == PI_ERR_LIMIT) return false;
    run_model r = run_open(MODEL_PATH, o);
    pi_context_get_placement(r.context, p);
    assert_null(p->reason);
    assert_string_equal(p->device_name, "simulated GPU");
    assert_int_equal(used(r.context), p->gpu_weights + p->gpu_scratch);
    pi_session *s = run_session(&r, N_CTX);
    uint64_t all = p->gpu_weights + p->gpu_scratch + p->gpu_kv + p->gpu_runtime;
    assert_int_equal(used(r.context) + p->gpu_runtime, all);
    assert_true(all <= p->gpu_budget);
    assert_true(o->vram_budget == PI_VRAM_FREE || p->gpu_budget == o->vram_budget);
    float *logits = mem_calloc((size_t)(N_TOKENS * r.n_vocab), sizeof *logits);
    feed(&r, s, logits);
    assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
    mem_free(logits);
    pi_session_destroy(s);
    int64_t hot = 0, n = 0;
    for (int32_t i = 0; i < p->n_layers; i++) {
        pi_layer_placement l;
        pi_context_get_layer(r.context, i, &l);
        hot += l.n_hot;
        n += l.n_neurons;
    }
    assert_true(p->neuron_share * (double)n == (double)hot);
    p->device_name = p->device = p->reason = NULL; /* they are freed with the context */
    run_close(&r);
    return true;
}

static void test_budgets_are_kept_to_the_byte(void **state) {
    (void)state;
    for (int sparse = 0; sparse < 2; sparse++) {
        pi_placement all, p;
        const tiny_model t = test_model(sparse);
        tiny_write(&t, MODEL_PATH);
        float *expected = answer_of_cpu();
        pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
        assert_true(check(&o, expected, &all));
        assert_int_equal(all.gpu_layers, all.n_layers);
        assert_true(all.head_on_gpu && all.neuron_share == 1);
        /* Budgets from the memory of the whole model down to less than the buffers. */
        uint64_t top = all.gpu_weights + all.gpu_scratch + all.gpu_kv;
        double last = 1;
        int used_some = 0;
        for (int step = 0; step <= 8; step++) {
            o.vram_budget = top - all.gpu_weights * (uint64_t)step / 7;
            if (!check(&o, expected, &p)) continue;
            used_some++;
            assert_true(p.neuron_share <= last + 0.35); /* layers may exchange neurons */
            last = p.neuron_share;
            if (step == 0) assert_true(p.neuron_share == 1 && p.head_on_gpu);
            if (step > 0) assert_true(p.neuron_share < 1 || !p.head_on_gpu || p.gpu_layers < 3);
        }
        assert_in_range(used_some, 3, 9);
        o.vram_budget = 4096;
        assert_false(check(&o, expected, &p));
        mem_free(expected);
    }
}

static void test_layers_from_the_last(void **state) {
    (void)state;
    const tiny_model t = test_model(false);
    tiny_write(&t, MODEL_PATH);
    float *expected = answer_of_cpu();
    for (int32_t n = 1; n <= 5; n++) {
        pi_placement p;
        pi_context_options o = gpu_options(PI_VRAM_FREE, n);
        assert_true(check(&o, expected, &p));
        assert_int_equal(p.gpu_layers, n < 3 ? n : 3);
        assert_int_equal(p.head_on_gpu, n > 3);
        assert_true(p.neuron_share == (n < 3 ? n : 3) / 3.0);
        /* One byte less than needed: one layer less, or no head. */
        o.vram_budget = p.gpu_weights + p.gpu_scratch + p.gpu_kv - 1;
        bool any = check(&o, expected, &p);
        assert_int_equal(any, n > 1);
        if (any) assert_int_equal(p.gpu_layers, n > 3 ? 3 : n - 1);
    }
    mem_free(expected);
}

/* Two devices with one budget each, which holds to the byte, down to budgets that are too small.
 * The first device, with one layer, is a helper in the two layers of the other when that has no
 * room for all their neurons. */
static void test_several_devices(void **state) {
    (void)state;
    const tiny_model t = test_model(true);
    tiny_write(&t, MODEL_PATH);
    float *expected = answer_of_cpu();
    pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
    o.n_devices = 2;
    o.devices[0] = 3; /* the second device's memory is reachable */
    o.devices[1] = 2;
    o.tensor_split[0] = 1;
    o.tensor_split[1] = 2;
    float *logits = NULL;
    uint64_t top = 0;
    int n_used = 0, n_helpers = 0;
    for (int step = 0; step <= 12; step++) {
        if (step > 0) o.vram_budget = top - 4000 * (uint64_t)(step - 1);
        if (refused(&o, "too little memory: simulated GPU: ") == PI_ERR_LIMIT) continue;
        run_model r = run_open(MODEL_PATH, &o);
        pi_session *s = run_session(&r, N_CTX);
        pi_placement p;
        pi_context_get_placement(r.context, &p);
        assert_int_equal(p.n_devices, 2);
        uint64_t all = 0;
        for (int i = 0; i < 2; i++) {
            pi_device_placement d;
            uint64_t free_bytes, total;
            const place_gpu *g = &r.context->gpus.gpu[i];
            pi_context_get_device(r.context, i, &d);
            assert_int_equal(d.index, 3 - i);
            assert_int_equal(d.first_layer, i);
            assert_int_equal(d.end_layer, i ? 3 : 1);
            assert_int_equal(g->library.backend->memory(g->device, &free_bytes, &total, NULL),
                             PI_OK);
            assert_int_equal(total - free_bytes, d.bytes);
            assert_true(d.bytes <= d.budget);
            if (step == 0 && d.bytes > top) top = d.bytes;
            all += d.bytes;
        }
        assert_int_equal(all, p.gpu_weights + p.gpu_scratch + p.gpu_kv);
        for (int32_t i = 0; i < p.n_layers; i++) {
            pi_layer_placement l;
            pi_context_get_layer(r.context, i, &l);
            assert_int_equal(l.device, i > 0);
            assert_in_range(l.n_own, 0, l.n_hot);
            n_helpers += l.n_own < l.n_hot;
            assert_true(step > 1 || l.n_own == l.n_hot);
        }
        if (step < 2) assert_true(p.neuron_share == 1 && p.head_on_gpu);
        if (step > 1) assert_true(p.neuron_share < 1 || !p.head_on_gpu || p.gpu_layers < 3);
        logits = mem_calloc((size_t)(N_TOKENS * r.n_vocab), sizeof *logits);
        feed(&r, s, logits);
        assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
        mem_free(logits);
        pi_session_destroy(s);
        run_close(&r);
        n_used++;
    }
    assert_in_range(n_used, 4, 13);
    assert_true(n_helpers > 0);
    mem_free(expected);
}

/* As many devices as needed: one device if the model fits, to the byte; else as many as hold it;
 * else all four. A device that was named is used alone. */
static void test_one_or_several(void **state) {
    (void)state;
    const tiny_model t = test_model(true);
    tiny_write(&t, MODEL_PATH);
    float *expected = answer_of_cpu();
    pi_placement whole, p;
    pi_context_options o = gpu_options(PI_VRAM_FREE, 99);
    assert_true(check(&o, expected, &whole));
    const uint64_t bytes = whole.gpu_weights + whole.gpu_scratch + whole.gpu_kv +
                           whole.gpu_programs + whole.gpu_runtime;
    const struct {
        uint64_t budget;
        int32_t layers, named, n_devices, used[4];
    } cases[] = {
        {PI_VRAM_FREE, -1, 0, 1, {0}}, {PI_VRAM_FREE, 99, 0, 1, {0}},
        {bytes, -1, 0, 1, {0}},        {bytes, 99, 0, 1, {0}},
        {bytes - 1, -1, 0, 2, {0, 1}}, {bytes - 1, 99, 0, 2, {0, 1}},
        {bytes - 1, 1, 0, 1, {0}},     {bytes - 1, -1, 1, 1, {1}},
        {bytes - 1, 99, 1, 1, {1}},    {bytes - whole.gpu_weights * 7 / 10, -1, 0, 4, {0, 1, 2, 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o = gpu_options(cases[i].budget, cases[i].layers);
        o.n_devices = cases[i].named > 0 ? 1 : PI_DEVICES_AS_NEEDED;
        o.devices[0] = cases[i].named;
        run_model r = run_open(MODEL_PATH, &o);
        pi_context_get_placement(r.context, &p);
        assert_null(p.reason);
        assert_int_equal(p.n_devices, cases[i].n_devices);
        if (cases[i].n_devices == 2) {
            assert_true(p.gpu_layers == p.n_layers && p.head_on_gpu && p.neuron_share == 1);
        }
        for (int32_t d = 0; d < p.n_devices; d++) {
            pi_device_placement one;
            pi_context_get_device(r.context, d, &one);
            assert_int_equal(one.index, cases[i].used[d]);
            assert_true(one.bytes <= one.budget);
        }
        float *logits = mem_calloc((size_t)(N_TOKENS * r.n_vocab), sizeof *logits);
        pi_session *s = run_session(&r, N_CTX);
        feed(&r, s, logits);
        assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
        mem_free(logits);
        pi_session_destroy(s);
        run_close(&r);
    }
    /* A larger context fits as little as a larger model. */
    o = gpu_options(bytes, -1);
    o.n_devices = PI_DEVICES_AS_NEEDED;
    o.n_ctx = 40 * N_CTX;
    run_model r = run_open(MODEL_PATH, &o);
    pi_context_get_placement(r.context, &p);
    assert_true(p.n_devices > 1);
    run_close(&r);
    /* Too little for any device. */
    o = gpu_options(4096, -1);
    o.n_devices = PI_DEVICES_AS_NEEDED;
    assert_int_equal(refused(&o, "too little memory: simulated GPU: "), PI_ERR_LIMIT);
    mem_free(expected);
}

static void test_bad_devices(void **state) {
    (void)state;
    const tiny_model t = test_model(false);
    tiny_write(&t, MODEL_PATH);
    const struct {
        pi_device_choice device;
        int32_t n, devices[2];
        float shares[3];
        const char *why;
    } cases[] = {{PI_DEVICE_AUTO, 1, {0, 0}, {0, 0, 0}, "of a named kind"},
                 {PI_DEVICE_CPU, 1, {0, 0}, {0, 0, 0}, "of a named kind"},
                 {PI_DEVICE_SIM, -2, {0, 0}, {0, 0, 0}, "use 0 to 8"},
                 {PI_DEVICE_SIM, 9, {0, 0}, {0, 0, 0}, "use 0 to 8"},
                 {PI_DEVICE_SIM, 2, {1, 1}, {0, 0, 0}, "device 1: it is listed twice"},
                 {PI_DEVICE_SIM, 1, {-1, 0}, {0, 0, 0}, "device -1: use 0 or more"},
                 {PI_DEVICE_SIM, 2, {0, 1}, {1, -1, 0}, "share -1 of a device"},
                 {PI_DEVICE_SIM, 0, {0, 0}, {NAN, 0, 0}, "of a device: use 0 or more"},
                 {PI_DEVICE_SIM, 2, {0, 1}, {1, 1, 1}, "more shares than devices: 3 for 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
        o.device = cases[i].device;
        o.n_devices = cases[i].n;
        memcpy(o.devices, cases[i].devices, sizeof cases[i].devices);
        memcpy(o.tensor_split, cases[i].shares, sizeof cases[i].shares);
        assert_int_equal(refused(&o, cases[i].why), PI_ERR_ARG);
    }
}

static void test_nothing_asked_for(void **state) {
    (void)state;
    const tiny_model t = test_model(false);
    tiny_write(&t, MODEL_PATH);
    pi_context_options options[] = {gpu_options(0, -1), gpu_options(PI_VRAM_FREE, 0),
                                    gpu_options(PI_VRAM_FREE, -1)};
    options[2].device = PI_DEVICE_CPU;
    options[2].n_devices = 0;
    for (int i = 0; i < 3; i++) {
        pi_placement p;
        run_model r = run_open(MODEL_PATH, &options[i]);
        pi_context_get_placement(r.context, &p);
        assert_null(p.reason);
        assert_int_equal(p.status, PI_OK);
        assert_string_equal(p.device, "cpu");
        run_close(&r);
    }
}

/* Whether this machine has a real GPU. */
static bool has_driver(void) {
    const gpu_backend_row *row;
    gpu_presence p = {0};
    for (int i = 0; !p.driver && (row = gpu_backend_at(i)); i++) gpu_presence_find("", row, &p);
    return p.driver;
}

static void test_a_backend_that_is_not_there(void **state) {
    (void)state;
    const tiny_model t = test_model(false);
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
    o.backend_folder = "/nowhere";
    assert_int_equal(refused(&o, "/nowhere"), PI_ERR_NOT_FOUND);
    pi_placement p;
    o.device = PI_DEVICE_AUTO; /* never an error; no message unless a GPU was requested or exists */
    o.n_devices = 0;
    run_model r = run_open(MODEL_PATH, &o);
    pi_context_get_placement(r.context, &p);
    bool driver = has_driver();
    assert_int_equal(p.reason != NULL, driver);
    run_close(&r);
    o.gpu_layers = 1;
    r = run_open(MODEL_PATH, &o);
    pi_context_get_placement(r.context, &p);
    assert_int_equal(p.status, driver ? PI_ERR_UNSUPPORTED : PI_ERR_NOT_FOUND);
    /* A backend that is linked into the library is there, but not its device. */
    gpu_library linked;
    bool is_linked = gpu_library_open("cuda", "/nowhere", &linked, NULL) == PI_OK;
    assert_non_null(strstr(p.reason, is_linked ? "no device: cuda" : "/nowhere"));
    run_close(&r);
}

/* A session longer than planned: the GPU has no room for its cache. */
static void test_a_session_that_does_not_fit(void **state) {
    (void)state;
    const tiny_model t = test_model(false);
    tiny_write(&t, MODEL_PATH);
    pi_placement p;
    float *expected = answer_of_cpu();
    pi_context_options o = gpu_options(PI_VRAM_FREE, 99);
    assert_true(check(&o, expected, &p));
    o.vram_budget = p.gpu_weights + p.gpu_scratch + p.gpu_kv;
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, N_CTX + 1);
    pi_context_get_placement(r.context, &p);
    assert_string_equal(p.device, "cpu+sim"); /* neurons moved to the CPU */
    assert_null(p.reason);
    assert_int_equal(p.gpu_layers, p.n_layers);
    assert_true(p.neuron_share < 1);
    assert_true(used(r.context) > p.gpu_weights + p.gpu_scratch &&
                used(r.context) <= o.vram_budget);
    float *logits = mem_calloc((size_t)(N_TOKENS * r.n_vocab), sizeof *logits);
    feed(&r, s, logits);
    assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
    pi_session_destroy(s);
    run_close(&r);
    /* A cache larger than all neurons. */
    r = run_open(MODEL_PATH, &o);
    s = run_session(&r, 4000);
    pi_context_get_placement(r.context, &p);
    assert_string_equal(p.device, "cpu");
    assert_int_equal(p.status, PI_ERR_DEVICE);
    assert_non_null(strstr(p.reason, "KV cache"));
    assert_int_equal(p.gpu_layers, 0);
    feed(&r, s, logits);
    assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
    pi_session_destroy(s);
    run_close(&r);
    /* A second session. */
    r = run_open(MODEL_PATH, &o);
    s = run_session(&r, N_CTX);
    pi_session *second = run_session(&r, 1);
    pi_context_get_placement(r.context, &p);
    assert_true(!p.reason && p.neuron_share < 1);
    feed(&r, s, logits);
    assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
    pi_session_destroy(second);
    pi_session_destroy(s);
    run_close(&r);
    mem_free(logits);
    mem_free(expected);
}

/* Every allocation (or every `step`-th) of a context for the model at MODEL_PATH fails in turn,
 * including those of the device, which use the same allocator. Returns the number of contexts that
 * fell back to the CPU or moved neurons to it. */
static int fail_each(const pi_context_options *o, int step) {
    float *expected = answer_of_cpu();
    pi_model *m;
    pi_error err;
    int on_cpu = 0, refused = 0;
    if (pi_model_open(MODEL_PATH, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    pi_model_info info;
    pi_model_get_info(m, &info);
    float *logits = mem_calloc((size_t)(N_TOKENS * info.n_vocab), sizeof *logits);
    pi_placement whole;
    run_model all = run_open(MODEL_PATH, o);
    pi_context_get_placement(all.context, &whole);
    const double share = whole.neuron_share;
    run_close(&all);
    for (int64_t n = 1;; n += step) {
        run_model r = {.model = m, .n_vocab = info.n_vocab};
        pi_session *s = NULL;
        pi_placement p = {0};
        mem_fail_at(n);
        pi_status status = pi_context_create(m, o, &r.context, &err);
        if (status == PI_OK) status = pi_session_create(r.context, N_CTX, &s, &err);
        mem_fail_at(0);
        if (status != PI_OK) {
            assert_true(status == PI_ERR_NOMEM || status == PI_ERR_DEVICE);
            run_check_message(&err, status);
            refused++;
        } else {
            pi_context_get_placement(r.context, &p);
            if (!p.reason || n % FEED_EVERY == 0) {
                feed(&r, s, logits);
                assert_true(run_nmse(logits, expected, N_TOKENS * r.n_vocab) < 1e-5);
            }
            assert_true(!p.reason || p.status == PI_ERR_NOMEM || p.status == PI_ERR_DEVICE);
            on_cpu += p.reason || p.neuron_share < share;
        }
        bool done = status == PI_OK && !p.reason && p.neuron_share >= share;
        pi_session_destroy(s);
        pi_context_destroy(r.context);
        if (done) break;
    }
    assert_true(refused > 20 / step); /* device memory alone has more pieces */
    mem_free(logits);
    mem_free(expected);
    pi_model_close(m);
    return on_cpu;
}

static void test_no_memory_at_each_step(void **state) {
    (void)state;
    tiny_model t = test_model(false);
    t.n_layer = 1;
    tiny_write(&t, MODEL_PATH);
    const pi_context_options o = gpu_options(PI_VRAM_FREE, 99);
    assert_true(fail_each(&o, 1) > 0); /* the session's memory on the device */
}

/* Two devices because one is too small. */
static void test_no_memory_for_two_devices(void **state) {
    (void)state;
    tiny_model t = test_model(false);
    t.n_layer = 2;
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
    pi_placement p;
    float *expected = answer_of_cpu();
    assert_true(check(&o, expected, &p));
    mem_free(expected);
    o.n_devices = PI_DEVICES_AS_NEEDED;
    o.vram_budget = p.gpu_weights + p.gpu_scratch + p.gpu_kv + p.gpu_programs + p.gpu_runtime - 1;
    run_model r = run_open(MODEL_PATH, &o);
    pi_context_get_placement(r.context, &p);
    assert_int_equal(p.n_devices, 2);
    run_close(&r);
    fail_each(&o, 5 * FAIL_STEP);
}

/* Experts on both devices that move between them. */
static void test_experts_that_move(void **state) {
    (void)state;
    tiny_model t = test_model(false);
    t.n_layer = 2;
    t.experts = (tiny_experts){.n = 6, .n_used = 2, .n_ff = 768};
    tiny_write(&t, MODEL_PATH);
    float *expected = answer_of_cpu();
    pi_placement all, p;
    pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
    o.adapt = true;
    assert_true(check(&o, expected, &all));
    const uint64_t on_their_way = 1100 << 10; /* buffers of moving experts */
    o.vram_budget = all.gpu_weights / 2 + all.gpu_scratch + all.gpu_kv + on_their_way;
    assert_true(check(&o, expected, &p));
    assert_true(p.neuron_share > 0.2 && p.neuron_share < 0.8);
    mem_free(expected);
    fail_each(&o, 8 * FAIL_STEP);
}

/* ---- place ----------------------------------------------------------------------------------- */

static char said[PI_ERROR_TEXT_MAX]; /* the last message */

static void keep_message(void *user, const char *line) {
    (void)user;
    snprintf(said, sizeof said, "%s", line);
}

/* The JSON output of `place` for the options of a context. */
static void place(const char *path, const pi_context_options *c, char *out, size_t n_out) {
    pi_place_options o = pi_place_default_options();
    pi_error err;
    o.device = c->device;
    o.vram_budget = c->vram_budget;
    o.n_ctx = c->n_ctx;
    o.n_batch = c->n_batch;
    o.max_batch = c->max_batch;
    o.n_threads = c->n_threads;
    o.cpu_ffn = c->cpu_ffn;
    o.cache_k = c->cache_k;
    o.cache_v = c->cache_v;
    o.mode = c->mode;
    o.json = true;
    o.message = keep_message;
    said[0] = '\0';
    FILE *file = tmpfile();
    assert_non_null(file);
    if (pi_place(path, &o, file, &err)) fail_msg("%s", err.message);
    rewind(file);
    out[fread(out, 1, n_out - 1, file)] = '\0';
    fclose(file);
}

static int64_t number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s", key);
    return strtoll(at + strlen(key), NULL, 10);
}

/* `place` and a context agree: on whether anything fits and what would help, on every layer and the
 * head, and on the bytes that the device has handed out, to the byte. Returns whether the GPU is
 * used. */
static bool check_place(const char *path, const pi_context_options *o) {
    static char text[1 << 16];
    pi_model *m;
    pi_context *c;
    pi_session *s;
    pi_error err;
    place(path, o, text, sizeof text);
    if (pi_model_open(path, NULL, &m, &err)) fail_msg("%s", err.message);
    pi_status status = pi_context_create(m, o, &c, &err);
    if (status != PI_OK) {
        assert_int_equal(status, PI_ERR_LIMIT);
        assert_string_equal(said, err.message);
        assert_int_equal(number_after(text, "\"gpu_bytes\": "), 0);
        assert_null(strstr(text, "\"attn\": \"gpu\""));
        pi_model_close(m);
        return false;
    }
    if (pi_session_create(c, o->n_ctx, &s, &err)) fail_msg("%s", err.message);
    assert_int_equal(number_after(text, "\"gpu_bytes\": "), used(c));
    assert_int_equal(number_after(text, "\"batch\": "), pi_context_batch(c));
    const char *at = strstr(text, "\"layers\": ");
    pi_placement p;
    pi_context_get_placement(c, &p);
    for (int32_t i = 0; i < p.n_layers; i++) {
        pi_layer_placement l;
        pi_context_get_layer(c, i, &l);
        at = strstr(at, "\"attn\": ");
        assert_non_null(at);
        assert_int_equal(strncmp(at, "\"attn\": \"gpu\"", 13) == 0, l.attention_on_gpu);
        assert_int_equal(number_after(at, "\"hot\": "), l.n_own);
        at++;
    }
    assert_int_equal(strstr(text, "\"head\": \"gpu\"") != NULL, p.head_on_gpu);
    pi_session_destroy(s);
    pi_context_destroy(c);
    pi_model_close(m);
    return true;
}

static void test_place_agrees(void **state) {
    (void)state;
    static const char bundled[] = TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf";
    static const double shares[] = {0.9, 1.02, 1.1, 1.3, 1.6};
    enum { MODELS = 4, SHARES = sizeof shares / sizeof *shares };
    int n_used = 0, n_refused = 0;
    for (int i = 0; i < MODELS; i++) {
        tiny_model t = test_model(i == 1);
        if (i == 2) t.experts = (tiny_experts){.n = 6, .n_used = 2, .n_ff = 768};
        if (i < 3) tiny_write(&t, MODEL_PATH);
        const char *path = i < 3 ? MODEL_PATH : bundled;
        pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
        o.kernels = PI_KERNELS_AUTO;
        o.n_batch = i % 2 ? 512 : 16;
        assert_true(check_place(path, &o));
        o.vram_budget = 4096;
        assert_false(check_place(path, &o));
        /* Fractions of the least that fits, which the message names. */
        const char *least = strstr(said, "use a budget of at least ");
        assert_non_null(least);
        double mib = strtod(least + strlen("use a budget of at least "), NULL);
        for (int k = 0; k < SHARES; k++) {
            o.vram_budget = (uint64_t)(mib * 1048576 * shares[k]);
            bool fits = check_place(path, &o);
            if (fits != (shares[k] >= 1))
                fail_msg("model %d: %.2f of %.1f MiB: %s", i, shares[k], mib, said);
            n_used += fits;
            n_refused += !fits;
        }
    }
    assert_true(n_used > MODELS && n_refused >= MODELS);
}

/* A smaller batch is named where it would help, and helps; where it would not, it is not. */
static void test_what_helps(void **state) {
    (void)state;
    static const char bundled[] = TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf";
    static char text[1 << 16];
    pi_context_options o = gpu_options(4096, -1);
    o.kernels = PI_KERNELS_AUTO;
    o.n_batch = 4096;
    place(bundled, &o, text, sizeof text);
    assert_non_null(strstr(said, "too little memory: simulated GPU: the budget is 0.0 MiB, "));
    assert_null(strstr(said, "batch"));
    double most = strtod(strstr(said, "at least ") + strlen("at least "), NULL);
    o.n_batch = 1;
    place(bundled, &o, text, sizeof text);
    double least = strtod(strstr(said, "at least ") + strlen("at least "), NULL);
    assert_true(least + 1 < most);
    o.n_batch = 4096;
    o.vram_budget = (uint64_t)((least + most) / 2 * 1048576);
    place(bundled, &o, text, sizeof text);
    const char *batch = strstr(said, "or a batch of at most ");
    assert_non_null(batch);
    o.n_batch = (int32_t)strtol(batch + strlen("or a batch of at most "), NULL, 10);
    if (!check_place(bundled, &o)) fail_msg("batch %d: %s", o.n_batch, said);
    o.n_batch *= 2;
    assert_false(check_place(bundled, &o));
}

/* Ubatches of a prompt, and their maximum number of tokens. */
static uint64_t count_ubatches(const char *path, const pi_context_options *o, int32_t *n_batch) {
    enum { PROMPT = 70 };
    static int32_t tokens[PROMPT];
    pi_model *m;
    pi_context *c;
    pi_session *s;
    pi_error err;
    pi_counters counters;
    if (pi_model_open(path, NULL, &m, &err)) fail_msg("%s", err.message);
    if (pi_context_create(m, o, &c, &err)) fail_msg("%s", err.message);
    if (pi_session_create(c, o->n_ctx, &s, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < PROMPT; i++) tokens[i] = 3 + i % 50;
    const pi_input input = {.session = s, .tokens = tokens, .n_tokens = PROMPT};
    if (pi_forward(c, &input, 1, &err)) fail_msg("%s", err.message);
    pi_context_get_counters(c, &counters);
    *n_batch = pi_context_batch(c);
    pi_session_destroy(s);
    pi_context_destroy(c);
    pi_model_close(m);
    return counters.ubatches;
}

/* Where prefill copies cold rows to the GPU for every ubatch, ubatches get larger: so each row is
 * copied once for the prompt, not twice. `place` chooses the same. */
static void test_larger_ubatches(void **state) {
    (void)state;
    static const char bundled[] = TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf";
    static char text[1 << 16];
    pi_context_options o = gpu_options(PI_VRAM_FREE, -1);
    int32_t n_batch;
    o.kernels = PI_KERNELS_AUTO;
    o.n_batch = 64;
    o.max_batch = 128;
    o.n_ctx = 128;
    assert_int_equal(count_ubatches(bundled, &o, &n_batch), 2); /* no cold rows */
    assert_int_equal(n_batch, 64);
    assert_true(check_place(bundled, &o));
    o.cpu_ffn = INT32_MAX;
    place(bundled, &o, text, sizeof text);
    const int64_t copied = number_after(text, "\"copied_bytes\": ");
    const char *prompt = strstr(text, "\"prompt\": ");
    const double larger = strtod(strstr(prompt, "\"seconds\": ") + 11, NULL);
    assert_true(copied > 1 << 20);
    assert_int_equal(count_ubatches(bundled, &o, &n_batch), 1);
    assert_int_equal(n_batch, 128);
    assert_true(check_place(bundled, &o));
    o.max_batch = 0;
    assert_int_equal(count_ubatches(bundled, &o, &n_batch), 2);
    assert_int_equal(n_batch, 64);
    assert_true(check_place(bundled, &o));
    place(bundled, &o, text, sizeof text);
    assert_int_equal(number_after(text, "\"copied_bytes\": "), copied);
    prompt = strstr(text, "\"prompt\": ");
    assert_true(strtod(strstr(prompt, "\"seconds\": ") + 11, NULL) > 1.5 * larger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budgets_are_kept_to_the_byte),
        cmocka_unit_test(test_layers_from_the_last),
        cmocka_unit_test(test_several_devices),
        cmocka_unit_test(test_one_or_several),
        cmocka_unit_test(test_bad_devices),
        cmocka_unit_test(test_nothing_asked_for),
        cmocka_unit_test(test_a_backend_that_is_not_there),
        cmocka_unit_test(test_a_session_that_does_not_fit),
        cmocka_unit_test(test_no_memory_at_each_step),
        cmocka_unit_test(test_no_memory_for_two_devices),
        cmocka_unit_test(test_experts_that_move),
        cmocka_unit_test(test_place_agrees),
        cmocka_unit_test(test_larger_ubatches),
        cmocka_unit_test(test_what_helps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
