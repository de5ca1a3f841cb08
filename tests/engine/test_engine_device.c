/* test_engine_device.c: counts the engine's requests to a device: kernels of a program against the
 * numbers that placement uses, calls per token, queries of the driver while the CPU waits, the
 * streams of copies.
 * The device's table is the backend's with counters in front. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "dynlib.h"
#include "engine.h"
#include "gpu_exec_impl.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_device.gguf"

enum { N_CTX = 64, N_TOKENS = 8, N_BATCH = 32 };

static gpu_library library;
static gpu_device *device;
static plan_split splits[TINY_MAX_LAYERS];
static gpu_backend counted; /* the backend's table, with counters */
static int n_queries;

static gpu_stream *computes; /* the stream of products of many tokens */
static size_t uploaded[2];   /* bytes, to that stream and to others */
static gpu_stream *upload_streams[4096];
static size_t upload_bytes[4096];
static int n_uploads;

static void counted_upload(gpu_stream *s, void *to, const void *from, size_t n_bytes) {
    if (n_uploads < 4096) {
        upload_streams[n_uploads] = s;
        upload_bytes[n_uploads++] = n_bytes;
    }
    library.backend->upload(s, to, from, n_bytes);
}

static void counted_matmul(gpu_stream *s, const gpu_matmul *a) {
    computes = s;
    library.backend->ops.matmul(s, a);
}

static int n_programs, most_programs; /* recorded programs that are kept */

static pi_status counted_record_end(gpu_stream *s, gpu_program **out, pi_error *err) {
    pi_status status = library.backend->record_end(s, out, err);
    n_programs += status == PI_OK;
    if (n_programs > most_programs) most_programs = n_programs;
    return status;
}

static void counted_program_free(gpu_program *p) {
    n_programs -= p != NULL;
    library.backend->program_free(p);
}

static int n_launches, n_downloads, n_syncs;

static void counted_program_launch(gpu_stream *s, gpu_program *p) {
    n_launches++;
    library.backend->program_launch(s, p);
}

static void counted_download(gpu_stream *s, void *to, const void *from, size_t n_bytes) {
    n_downloads++;
    library.backend->download(s, to, from, n_bytes);
}

static pi_status counted_sync(gpu_stream *s, pi_error *err) {
    n_syncs++;
    return library.backend->stream_sync(s, err);
}

static bool counted_event_done(gpu_event *e) {
    n_queries++;
    return library.backend->event_done(e);
}

static tiny_model base_model(void) {
    tiny_model t = tiny_default();
    t.type = "f16";
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = t.n_ff[1] = 96;
    return t;
}

static engine_options options_for(pi_mode mode) {
    engine_options o = run_engine_options(mode, N_BATCH, N_TOKENS);
    o.plan.splits = splits;
    o.gpu = &counted;
    o.devices[0] = device;
    return o;
}

/* Every layer with this primary, half of its neurons on each device. */
static void split_all(const model *m, plan_side primary, engine_options *o) {
    for (int i = 0; i < m->hp.n_layer; i++) {
        int64_t n = model_layer_units(m, i), unit = plan_split_unit(m, i);
        splits[i] = (plan_split){.primary = primary, .hot = n / 2 / unit * unit};
    }
    o->plan.head = primary;
}

static void feed(engine_context *c, pi_session *s, int n) {
    static const int32_t tokens[N_BATCH] = {3, 1, 4, 1, 5, 9, 2, 6};
    const pi_input in = {.session = s, .tokens = tokens, .n_tokens = n, .logits = PI_LOGITS_LAST};
    run_engine_forward(c, &in, 1);
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef uint64_t kernel_counter(void);

/* Work enqueued by the first token: its program, which is recorded then. */
static int64_t count_first_token(const model *m, const engine_options *o, kernel_counter *kernels) {
    engine_context *c = run_engine_context(m, o);
    pi_session *s = run_engine_session(c, N_CTX);
    uint64_t before = kernels();
    feed(c, s, 1);
    int64_t n = (int64_t)(kernels() - before);
    engine_session_destroy(s);
    engine_context_destroy(c);
    return n;
}

static int32_t count_of_plan(const model *m, const engine_options *o) {
    plan *p;
    cpu_kernels k;
    int32_t n;
    pi_error err;
    cpu_kernels_get(CPU_TIER_AUTO, &k);
    if (plan_create(m, &k, &o->plan, &p, &err)) fail_msg("%s", err.message);
    n = gpu_exec_count_kernels(p, 1);
    plan_free(p);
    return n;
}

static void check_kernels(const char *what, const tiny_model *t, pi_mode mode, bool merge,
                          kernel_counter *kernels) {
    model *m = run_engine_open_tiny(t, MODEL_PATH);
    engine_options o = options_for(mode);
    step_counts steps[TINY_MAX_LAYERS + 1];
    pi_error err;
    o.plan.merge_norms = merge;
    if (step_count_layers(m, &o.plan, 1, steps, &err)) fail_msg("%s", err.message);
    for (int primary = 0; primary < PLAN_SIDES; primary++) {
        /* Before the layers: a fill, angles, and a message where the head or the first layer has
         * another primary. Per layer: a GPU that is the primary has no kernels for messages only: a
         * norm sends, and the receive runs the next norm; otherwise it receives and publishes. */
        const int64_t start = 3 + (merge ? m->hp.n_layer : 0); /* norms by a receive */
        split_all(m, (plan_side)primary, &o);
        int64_t launched = count_first_token(m, &o, kernels), layers = 0;
        for (int i = 0; i < m->hp.n_layer; i++) {
            layers += steps[i].neurons[SIDE_GPU] + (primary == SIDE_GPU ? 0 : 2);
            layers += primary == SIDE_GPU ? steps[i].always[SIDE_GPU] : 0;
        }
        if (primary == SIDE_GPU) layers += steps[m->hp.n_layer].always[SIDE_GPU];
        /* Placement takes the larger of the counts of the two primary devices' neurons: a
         * difference of up to 2. */
        if (launched < layers - 2 * m->hp.n_layer || launched > layers + start)
            fail_msg("%s, primary %d: %d kernels, placement counts %d", what, primary,
                     (int)launched, (int)layers);
        assert_int_equal(count_of_plan(m, &o), launched);
    }
    model_close(m);
}

/* Layers on the GPU alone have n kernels each, or some fewer: `merged` norms are part of others. */
static void check_layers(const char *what, const tiny_model *t, pi_mode mode, int n, int merged) {
    /* A fill, angles, the first receive, which includes the first norm; norm and product of the
     * head. */
    const int others = 5 - 1;
    model *m = run_engine_open_tiny(t, MODEL_PATH);
    engine_options o = options_for(mode);
    const int want = others + n * m->hp.n_layer;
    split_all(m, SIDE_GPU, &o);
    for (int i = 0; i < m->hp.n_layer; i++) splits[i].hot = model_layer_units(m, i);
    for (int merge = 0; merge < 2; merge++) {
        o.plan.merge_norms = (uint32_t)merge;
        const int found = count_of_plan(m, &o);
        if (found != want - merge * merged)
            fail_msg("%s: %d kernels, expected %d", what, found, want - merge * merged);
    }
    model_close(m);
}

static void check_all_kernels(tiny_model t, bool merge, kernel_counter *kernels) {
    check_kernels(t.type, &t, PI_MODE_DENSE, merge, kernels);
    t.activation = "relu";
    t.sparse.down_t = true;
    check_kernels("exact", &t, PI_MODE_EXACT, merge, kernels);
    t.sparse.predictor = "lowrank";
    t.sparse.rank = 32;
    check_kernels("low rank", &t, PI_MODE_PREDICT, merge, kernels);
    t.sparse.predictor = "relu_mlp";
    check_kernels("low rank with ReLU", &t, PI_MODE_PREDICT, merge, kernels);
    t.sparse.predictor = "sign";
    check_kernels("signs", &t, PI_MODE_PREDICT, merge, kernels);
}

/* Heads of whole groups of int8, which attention quantizes itself. */
static tiny_model quantized_model(void) {
    tiny_model t = base_model();
    t.type = "q4_0";
    t.head_dim = t.n_rot = 32;
    return t;
}

/* The numbers of src/gpu/README.md. With one attention block and one FFN block per layer, all norms
 * of X are merged but the first one and the head's. */
static void test_layers(void **state) {
    (void)state;
    tiny_model t = quantized_model();
    const int n_norms = 2 * t.n_layer;
    check_layers("dense", &t, PI_MODE_DENSE, 7, n_norms - 1);
    t.activation = "relu";
    t.sparse.down_t = true;
    check_layers("exact", &t, PI_MODE_EXACT, 8, n_norms - 1);
    t.sparse.predictor = "lowrank";
    t.sparse.rank = 32;
    check_layers("low rank", &t, PI_MODE_PREDICT, 10, n_norms - 1);
    t.sparse.predictor = "sign";
    check_layers("signs", &t, PI_MODE_PREDICT, 9, n_norms - 1);
    t = quantized_model();
    t.experts = (tiny_experts){.n = 8, .n_used = 2, .n_ff = 32};
    check_layers("experts", &t, PI_MODE_DENSE, 10, t.n_layer);
}

/* ---- Vulkan: dispatches and bytes of a layer --------------------------------------------------
 */

static uint64_t dispatches(void) {
    return run_device_dispatches(&library, device);
}

/* Bytes of weights that operations read, without padding: a shader reads a row once for four
 * columns. */
static uint64_t weight_bytes;

static void weigh(const gpu_mat *w, int64_t n_rows, int32_t n_cols) {
    size_t row;
    if (!w->data) return;
    assert_true(quant_row_bytes(w->type, (uint64_t)w->n_in, &row));
    assert_int_equal(w->row_bytes, w->in_file ? row : gpu_mat_row_bytes(row));
    weight_bytes += (uint64_t)n_rows * row * (uint64_t)((n_cols + 3) / 4);
}
static void weighed_matvec(gpu_stream *s, const gpu_matmul *a, int32_t n) {
    for (int32_t i = 0; i < n; i++) weigh(&a[i].w, a[i].w.n_out, a[i].in.n_cols);
    library.backend->ops.matvec(s, a, n);
}
static void weighed_ffn_in(gpu_stream *s, const gpu_ffn_in *a) {
    weigh(&a->gate, a->n, a->in.n_cols);
    weigh(&a->up, a->n, a->in.n_cols);
    library.backend->ops.ffn_in(s, a);
}

/* One more layer adds n dispatches to the first token; in dense mode it also adds one read of that
 * layer's rows. */
static void check_dispatches(const char *what, tiny_model t, pi_mode mode, int n) {
    int64_t count[2];
    uint64_t bytes[2];
    for (int k = 0; k < 2; k++) {
        t.n_layer = 2 + k;
        t.n_head[k + 1] = t.n_head[0];
        t.n_head_kv[k + 1] = t.n_head_kv[0];
        t.n_ff[k + 1] = t.n_ff[0];
        model *m = run_engine_open_tiny(&t, MODEL_PATH);
        engine_options o = options_for(mode);
        split_all(m, SIDE_GPU, &o);
        for (int i = 0; i < m->hp.n_layer; i++) splits[i].hot = model_layer_units(m, i);
        weight_bytes = 0;
        count[k] = count_first_token(m, &o, dispatches);
        bytes[k] = weight_bytes;
        model_close(m);
    }
    if (count[1] - count[0] != n)
        fail_msg("%s: %d dispatches, expected %d", what, (int)(count[1] - count[0]), n);
    if (mode != PI_MODE_DENSE || t.experts.n) return;
    size_t row, down_row;
    assert_true(quant_row_bytes(QUANT_Q4_0, (uint64_t)t.n_embd, &row));
    assert_true(quant_row_bytes(QUANT_Q4_0, (uint64_t)t.n_ff[0], &down_row));
    size_t out_row;
    assert_true(quant_row_bytes(QUANT_Q4_0, (uint64_t)(t.n_head[0] * t.head_dim), &out_row));
    const size_t rows = (size_t)((t.n_head[0] + 2 * t.n_head_kv[0]) * t.head_dim + 2 * t.n_ff[0]);
    assert_int_equal(bytes[1] - bytes[0], rows * row + (size_t)t.n_embd * (out_row + down_row));
}

/* The numbers of src/gpu/vulkan/README.md. */
static void test_dispatches(void **state) {
    (void)state;
    if (strcmp(library.backend->name, "vulkan") != 0) skip();
    tiny_model t = quantized_model();
    counted.ops.matvec = weighed_matvec;
    counted.ops.ffn_in = weighed_ffn_in;
    check_dispatches("dense", t, PI_MODE_DENSE, 11);
    t.activation = "relu";
    t.sparse.down_t = true;
    check_dispatches("exact", t, PI_MODE_EXACT, 12);
    t.sparse.predictor = "lowrank";
    t.sparse.rank = 32;
    check_dispatches("low rank", t, PI_MODE_PREDICT, 15);
    t.sparse.predictor = "sign";
    check_dispatches("signs", t, PI_MODE_PREDICT, 14);
    t = quantized_model();
    t.experts = (tiny_experts){.n = 8, .n_used = 2, .n_ff = 32};
    check_dispatches("experts", t, PI_MODE_DENSE, 14);
    counted.ops.matvec = library.backend->ops.matvec;
    counted.ops.ffn_in = library.backend->ops.ffn_in;
}

/* ---- kernels of the simulated device ----------------------------------------------------------
 */

/* Placement uses the device's counts. */
static void test_kernels(void **state) {
    (void)state;
    kernel_counter *kernels = (kernel_counter *)dynlib_symbol(library.handle,
                                                              "powerinfer_sim_kernels");
    if (!kernels) skip();
    static const char *const types[] = {"f16", "q4_0"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = base_model();
        t.type = types[i];
        check_all_kernels(t, false, kernels);
        check_all_kernels(t, true, kernels);
        t.type = types[i];
        t.experts = (tiny_experts){.n = 8, .n_used = 2, .n_ff = 32};
        check_kernels("experts", &t, PI_MODE_DENSE, true, kernels);
        t = base_model();
        t.type = types[i];
        t.arch = "deepseek2";
        t.head_dim = 40;
        t.n_rot = 8;
        t.n_latent = t.n_latent_q = t.v_dim = 32;
        tiny_set_heads(&t, 4, 1);
        check_kernels("latent", &t, PI_MODE_DENSE, false, kernels);
    }
}

/* ---- the order of messages ------------------------------------------------------------------- */

/* In front of each layer's neurons the GPU waits for a gate, which the CPU opens when it has the
 * layer's input. */
static gpu_pinned gates; /* a flag per layer */
static uint64_t *gate_epoch;
static int n_gated;

static void wait_at_gate(gpu_stream *s) {
    const gpu_receive wait = {
        .flag = (uint64_t *)((uint8_t *)gates.device + (size_t)n_gated++ * GPU_FLAG_BYTES),
        .epoch = gate_epoch,
        .n_cols = 1,
        .wait_ms = 4000};
    library.backend->ops.receive(s, &wait);
}
static void gated_ffn_in(gpu_stream *s, const gpu_ffn_in *a) {
    wait_at_gate(s);
    library.backend->ops.ffn_in(s, a);
}
static void gated_expert_in(gpu_stream *s, const gpu_expert_in *a) {
    wait_at_gate(s);
    library.backend->ops.expert_in(s, a);
}

typedef struct seen_inputs {
    bool opens; /* gates */
    float first[64];
} seen_inputs;

/* Keeps the input of the first layer's neurons. */
static void see_input(void *user, const plan_step *s, const float *x, int64_t ldx, int n_rows) {
    seen_inputs *seen = user;
    (void)ldx;
    (void)n_rows;
    const bool neurons = s->op == OP_FFN_IN || s->op == OP_FFN_SPARSE;
    if (!neurons && s->op != OP_EXPERTS_DOWN) return;
    if (s->layer == 0 && neurons) memcpy(seen->first, x, sizeof seen->first);
    if (seen->opens) gpu_flag_raise((uint8_t *)gates.host + s->layer * GPU_FLAG_BYTES, 1);
}

/* A wait that times out clears its epoch, and the ubatch is tried again. */
static void check_gates_opened(void) {
    uint64_t epoch;
    gpu_stream *s;
    pi_error err;
    const gpu_backend *b = library.backend;
    assert_int_equal(b->stream_create(device, &s, &err), PI_OK);
    b->download(s, &epoch, gate_epoch, sizeof epoch);
    assert_int_equal(b->stream_sync(s, &err), PI_OK);
    b->stream_destroy(s);
    assert_int_equal(epoch, 1);
}

static void check_order(const tiny_model *t, pi_mode mode) {
    model *m = run_engine_open_tiny(t, MODEL_PATH);
    engine_options o = options_for(mode);
    seen_inputs plain = {.opens = false}, seen = {.opens = true};
    const bool experts = t->experts.n > 0;
    float want[40], got[40];
    assert_int_equal(m->hp.n_embd, 64);
    gpu_backend gated = counted;
    gated.ops.ffn_in = gated_ffn_in;
    gated.ops.expert_in = gated_expert_in;
    n_gated = 0;
    memset(gates.host, 0, TINY_MAX_LAYERS * GPU_FLAG_BYTES);
    split_all(m, SIDE_GPU, &o);
    /* fewer experts than a token uses: no message is empty */
    for (int i = 0; i < m->hp.n_layer && experts; i++) splits[i].hot = 1;
    for (int gpu = 0; gpu < 2; gpu++) {
        o.gpu = gpu ? &gated : NULL;
        o.plan.splits = gpu ? splits : NULL;
        engine_context *c = run_engine_context(m, &o);
        engine_observe(c, see_input, gpu ? &seen : &plain);
        pi_session *s = run_engine_session(c, N_CTX);
        feed(c, s, 1);
        memcpy(gpu ? got : want, engine_logits(c, 0), sizeof want);
        if (gpu) assert_null(engine_gpu_loss(c));
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    assert_int_equal(n_gated, m->hp.n_layer);
    check_gates_opened();
    assert_true(run_nmse(got, want, 40) < 1e-3);
    /* An observer sees floats, even if they have crossed the bus as int8. */
    if (!experts) assert_true(run_nmse(seen.first, plain.first, 64) < 1e-3);
    model_close(m);
}

/* The CPU has a layer's input before the GPU begins with its neurons. */
static void test_order(void **state) {
    (void)state;
    static const uint64_t epoch = 1;
    pi_error err;
    gpu_stream *s;
    const gpu_backend *b = library.backend;
    assert_int_equal(b->host_alloc(device, TINY_MAX_LAYERS * GPU_FLAG_BYTES, &gates, &err), PI_OK);
    assert_int_equal(b->alloc(device, sizeof epoch, "a test", (void **)&gate_epoch, &err), PI_OK);
    assert_int_equal(b->stream_create(device, &s, &err), PI_OK);
    b->upload(s, gate_epoch, &epoch, sizeof epoch);
    assert_int_equal(b->stream_sync(s, &err), PI_OK);
    static const char *const types[] = {"f16", "q4_0"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = base_model();
        t.type = types[i];
        check_order(&t, PI_MODE_DENSE);
        t.experts = (tiny_experts){.n = 8, .n_used = 2, .n_ff = 32};
        check_order(&t, PI_MODE_DENSE);
        t = base_model();
        t.type = types[i];
        t.activation = "relu";
        t.sparse.down_t = true;
        check_order(&t, PI_MODE_EXACT);
        t.sparse.rank = 32;
        t.sparse.predictor = "lowrank";
        check_order(&t, PI_MODE_PREDICT);
        t.sparse.predictor = "sign";
        check_order(&t, PI_MODE_PREDICT);
    }
    b->stream_destroy(s);
    b->free(device, gate_epoch);
    b->host_free(device, &gates);
}

/* ---- a token --------------------------------------------------------------------------------- */

enum { N_VOCAB = 40 };

/* With its program recorded, a token is one launch and one wait: copies of its input and results,
 * and the head, are part of the program. */
static void check_token(engine_context *c, pi_session *s, kernel_counter *kernels) {
    feed(c, s, 1);
    n_launches = n_uploads = n_downloads = n_syncs = 0;
    const uint64_t before = kernels ? kernels() : 0;
    feed(c, s, 1);
    assert_int_equal(n_launches, 1);
    assert_int_equal(n_uploads + n_downloads, 0);
    assert_int_equal(n_syncs, 1);
    if (kernels) assert_int_equal(kernels() - before, 0);
}

static void test_token(void **state) {
    (void)state;
    kernel_counter *kernels = (kernel_counter *)dynlib_symbol(library.handle,
                                                              "powerinfer_sim_kernels");
    tiny_model t = base_model();
    model *m = run_engine_open_tiny(&t, MODEL_PATH);
    engine_options o = options_for(PI_MODE_DENSE);
    for (int head = 0; head < PLAN_SIDES; head++) {
        split_all(m, SIDE_GPU, &o);
        o.plan.head = (plan_side)head;
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        check_token(c, s, kernels);
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    model_close(m);
}

/* Ubatches of three sessions that want logits of no row, of some rows, and of all rows: contiguous
 * rows are computed by the program, others by further launches. out: [..][N_VOCAB], returns the
 * number of rows. */
static int feed_three(const model *m, const engine_options *o, float *out) {
    static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
    static const pi_logits_wanted wants[][3] = {
        {PI_LOGITS_ALL, PI_LOGITS_ALL, PI_LOGITS_ALL},
        {PI_LOGITS_NONE, PI_LOGITS_NONE, PI_LOGITS_NONE},
        {PI_LOGITS_ALL, PI_LOGITS_NONE, PI_LOGITS_NONE},
        {PI_LOGITS_NONE, PI_LOGITS_LAST, PI_LOGITS_NONE},
        {PI_LOGITS_LAST, PI_LOGITS_LAST, PI_LOGITS_LAST}, /* rows 1, 3, 5 */
        {PI_LOGITS_ALL, PI_LOGITS_NONE, PI_LOGITS_ALL},
    };
    engine_context *c = run_engine_context(m, o);
    pi_session *s[3];
    int n = 0;
    for (int k = 0; k < 3; k++) s[k] = run_engine_session(c, N_CTX);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
            pi_input in[3];
            int n_rows = 0;
            for (int k = 0; k < 3; k++) {
                in[k] = (pi_input){.session = s[k],
                                   .tokens = tokens + (i + 3 * (size_t)k) % 10,
                                   .n_tokens = 2,
                                   .logits = wants[i][k]};
                n_rows += wants[i][k] == PI_LOGITS_ALL ? 2 : wants[i][k] == PI_LOGITS_LAST;
            }
            run_engine_forward(c, in, 3);
            for (int row = 0; row < n_rows; row++)
                memcpy(out + n++ * N_VOCAB, engine_logits(c, row), N_VOCAB * sizeof *out);
        }
    }
    for (int k = 0; k < 3; k++) engine_session_destroy(s[k]);
    engine_context_destroy(c);
    return n;
}

static void test_rows(void **state) {
    (void)state;
    static float want[64 * N_VOCAB], got[64 * N_VOCAB];
    tiny_model t = base_model();
    model *m = run_engine_open_tiny(&t, MODEL_PATH);
    engine_options o = run_engine_options(PI_MODE_DENSE, N_BATCH, N_TOKENS);
    int n = feed_three(m, &o, want);
    o = options_for(PI_MODE_DENSE);
    split_all(m, SIDE_GPU, &o);
    assert_int_equal(feed_three(m, &o, got), n);
    for (int i = 0; i < n; i++)
        assert_true(run_nmse(got + i * N_VOCAB, want + i * N_VOCAB, N_VOCAB) < 1e-4);
    model_close(m);
}

/* ---- norms in other kernels ------------------------------------------------------------------ */

/* Token by token, all layers on the GPU: one kernel less for every norm of X but the first layer's;
 * logits as with separate norms. Steps of several tokens have separate norms. */
static void check_merged(const tiny_model *t, pi_mode mode, kernel_counter *kernels) {
    static float logits[2][5 * N_VOCAB];
    model *m = run_engine_open_tiny(t, MODEL_PATH);
    engine_options o = options_for(mode);
    int64_t launched[2];
    split_all(m, SIDE_GPU, &o);
    for (int i = 0; i < m->hp.n_layer; i++) splits[i].hot = model_layer_units(m, i);
    for (int merge = 0; merge < 2; merge++) {
        o.plan.merge_norms = (uint32_t)merge;
        launched[merge] = kernels ? count_first_token(m, &o, kernels) : 0;
        engine_context *c = run_engine_context(m, &o);
        pi_session *s = run_engine_session(c, N_CTX);
        for (int i = 0; i < 5; i++) {
            feed(c, s, i == 2 ? 3 : 1);
            memcpy(logits[merge] + i * N_VOCAB, engine_logits(c, 0), N_VOCAB * sizeof(float));
        }
        engine_session_destroy(s);
        engine_context_destroy(c);
    }
    if (kernels) assert_int_equal(launched[0] - launched[1], 2 * m->hp.n_layer - 1);
    assert_true(run_nmse(logits[1], logits[0], 5 * N_VOCAB) < 1e-8);
    model_close(m);
}

static void test_merged(void **state) {
    (void)state;
    kernel_counter *kernels = (kernel_counter *)dynlib_symbol(library.handle,
                                                              "powerinfer_sim_kernels");
    tiny_model t = base_model();
    check_merged(&t, PI_MODE_DENSE, kernels);
    t.type = "q4_0";
    check_merged(&t, PI_MODE_DENSE, kernels);
    t.activation = "relu";
    t.sparse.down_t = true;
    check_merged(&t, PI_MODE_EXACT, kernels);
    t.sparse.predictor = "lowrank";
    t.sparse.rank = 32;
    check_merged(&t, PI_MODE_PREDICT, kernels);
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Decoding polls flags and makes no queries to the driver. */
static void test_queries(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = run_engine_open_tiny(&t, MODEL_PATH);
    engine_options o = options_for(PI_MODE_DENSE);
    split_all(m, SIDE_GPU, &o);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    feed(c, s, 1);
    n_queries = 0;
    for (int i = 0; i < N_TOKENS; i++) feed(c, s, 1);
#ifndef TEST_SAMPLED /* a sanitizer's kernels may take longer than the time to the first query */
    assert_int_equal(n_queries, 0);
#endif
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Cold rows of a prompt reach the GPU on a separate stream, filled by all threads; the compute
 * stream copies a few numbers. */
static void test_copies(void **state) {
    (void)state;
    tiny_model t = base_model();
    t.n_ff[0] = t.n_ff[1] = 640;
    model *m = run_engine_open_tiny(&t, MODEL_PATH);
    engine_options o = options_for(PI_MODE_DENSE);
    split_all(m, SIDE_GPU, &o);
    o.prompts = GPU_PROMPTS_STREAMED;
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    assert_int_equal(pool_size(c->gpu.gpus[0]->fillers), 2);
    feed(c, s, N_BATCH);
    n_uploads = 0;
    feed(c, s, 16);
    uploaded[0] = uploaded[1] = 0;
    for (int i = 0; i < n_uploads; i++) uploaded[upload_streams[i] != computes] += upload_bytes[i];
    assert_int_equal(uploaded[1], c->gpu.gpus[0]->cold_bytes);
    assert_true(uploaded[0] < 2048);
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void keep_logits(const engine_context *c, float *out) {
    memcpy(out, engine_logits(c, 0), N_VOCAB * sizeof *out);
}

/* Memory that has become too small for a second session's cache: neurons move back to the CPU,
 * layers and the first session's cache stay, and answers are unchanged. */
static void test_shrink(void **state) {
    (void)state;
    tiny_model t = base_model();
    t.n_ff[0] = t.n_ff[1] = 640;
    model *m = run_engine_open_tiny(&t, MODEL_PATH);
    engine_options o = options_for(PI_MODE_DENSE);
    gpu_exec_bytes bytes;
    gpu_device *small;
    pi_error err;
    float want[2 * N_VOCAB], got[2 * N_VOCAB];
    split_all(m, SIDE_GPU, &o);
    for (int run = 0; run < 2; run++) { /* with room, then without room */
        float *out = run ? got : want;
        if (engine_gpu_size(m, &o, 0, &bytes, &err)) fail_msg("%s", err.message);
        uint64_t cache = bytes.kv_per_position * N_CTX;
        small = run_device_another(&library, 0,
                                   bytes.weights + bytes.scratch + (run ? cache : 3 * cache), 0);
        o.devices[0] = small;
        engine_context *c = run_engine_context(m, &o);
        pi_session *first = run_engine_session(c, N_CTX);
        feed(c, first, 5);
        pi_session *second = run_engine_session(c, N_CTX);
        feed(c, second, 3);
        keep_logits(c, out);
        feed(c, first, 1);
        keep_logits(c, out + N_VOCAB);
        assert_null(engine_gpu_loss(c));
        const plan *p = engine_plan(c);
        for (int i = 0; i < m->hp.n_layer; i++) {
            assert_int_equal(p->splits[i].primary, SIDE_GPU);
            assert_true(run ? p->splits[i].hot < splits[i].hot : p->splits[i].hot == splits[i].hot);
            assert_true(p->splits[i].hot > 0);
        }
        engine_session_destroy(second);
        engine_session_destroy(first);
        engine_context_destroy(c);
        library.backend->close(small);
    }
    assert_true(run_nmse(got, want, 2 * N_VOCAB) < 1e-6);
    model_close(m);
}

/* Many shapes of ubatches: at most the accounted number of programs is kept. */
static void test_programs(void **state) {
    (void)state;
    tiny_model t = base_model();
    model *m = run_engine_open_tiny(&t, MODEL_PATH);
    engine_options o = options_for(PI_MODE_DENSE);
    split_all(m, SIDE_GPU, &o);
    engine_context *c = run_engine_context(m, &o);
    n_programs = most_programs = 0;
    for (int i = 0; i < 2; i++) {
        pi_error err;
        pi_session *s;
        if (engine_session_create(c, 400, &s, &err)) fail_msg("%s", err.message);
        for (int n = 1; n <= GPU_MAX_COLS; n++)
            feed(c, s, n); /* up to 128 positions, then beyond */
        while (session_length(s) < 300) feed(c, s, N_BATCH);
        for (int n = 1; n <= GPU_MAX_COLS; n++) feed(c, s, n);
        engine_session_destroy(s);
    }
    assert_int_equal(most_programs, GPU_EXEC_PROGRAMS);
    engine_context_destroy(c);
    assert_int_equal(n_programs, 0);
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dispatches), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_layers),     cmocka_unit_test(test_order),
        cmocka_unit_test(test_merged),     cmocka_unit_test(test_token),
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_queries),
        cmocka_unit_test(test_copies),     cmocka_unit_test(test_shrink),
        cmocka_unit_test(test_programs),
    };
    int status;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    counted = *library.backend;
    counted.event_done = counted_event_done;
    counted.record_end = counted_record_end;
    counted.program_free = counted_program_free;
    counted.upload = counted_upload;
    counted.program_launch = counted_program_launch;
    counted.download = counted_download;
    counted.stream_sync = counted_sync;
    counted.ops.matmul = counted_matmul;
    status = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    return status;
}
