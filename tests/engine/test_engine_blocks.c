/* test_engine_blocks.c: sparse attention by index: blocks (MiniMax-M3), single positions (DSA), and
 * positions that an earlier layer selected (GLM-5.2). The blocks that the last layer attends to and
 * the resulting sums match the plain definition in double precision. The logits are equal for every
 * way of feeding tokens and every placement, and after going back, copying, saving, loading and
 * removing. Only the blocks that are attended to are read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "context.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_blocks.gguf"
#define SAVED_PATH TEST_BINARY_DIR "/test_engine_blocks.session"

enum { N_TOKENS = 50, N_CTX = 64, V = 40, LAYERS = 3, MAX_BLOCKS = N_CTX, MAX_DIM = 64 };

static gpu_library library;
static gpu_device *device;
static plan_split splits[LAYERS];
static int32_t tokens[N_TOKENS];
static float want[N_TOKENS * V], got[N_TOKENS * V];
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

typedef struct index_shape {
    const char *arch;
    int size, top, local;
} index_shape;

static const index_shape shapes[] = {
    {"minimax-m3", 4, 3, 1},  {"minimax-m3", 1, 5, 2}, {"minimax-m3", 7, 2, 0},
    {"minimax-m3", 16, 1, 1}, {"deepseek32", 1, 5, 0}, {"glm-dsa", 1, 7, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static bool has_positions(const index_shape *x) {
    return strcmp(x->arch, "minimax-m3") != 0;
}

/* One layer that attends to all positions, two that do not. Heads of 32 and an index of 64: blocks
 * of Q8_0. With compressed attention no layer attends to all positions, rows have 64 elements, and
 * the last layer of glm-dsa has no index. */
static tiny_model model_of(const index_shape *x) {
    tiny_model t = tiny_default();
    t.arch = x->arch;
    t.n_layer = LAYERS;
    t.n_embd = 64;
    t.n_vocab = V;
    t.head_dim = 32;
    t.n_rot = 16;
    t.n_ff[2] = t.n_ff[0];
    tiny_set_heads(&t, 6, 2);
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1};
    t.index = (tiny_index){.dim = MAX_DIM, .size = x->size, .top = x->top, .local = x->local};
    if (!has_positions(x)) return t;
    t.head_dim = 48;
    t.n_latent = 48;
    t.n_latent_q = 32;
    t.v_dim = 32;
    tiny_set_heads(&t, 6, 1);
    t.index.heads = 9; /* with few, many scores are 0, and it matters which of them stay */
    t.index.shared[LAYERS - 1] = strcmp(x->arch, "glm-dsa") == 0;
    return t;
}

static model *open_blocks(const index_shape *x) {
    tiny_model t = model_of(x);
    run_random_tokens(11, V, tokens, N_TOKENS);
    return run_engine_open_tiny(&t, MODEL_PATH);
}

static engine_options options_for(cpu_tier tier, quant_type type, bool gpu) {
    engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
    o.tier = tier;
    o.type_k = o.type_v = type;
    if (gpu) {
        o.plan.splits = splits;
        o.plan.head = SIDE_GPU;
        o.gpu = library.backend;
        o.devices[0] = device;
    }
    return o;
}

static void near(const char *what, const float *a, const float *b, int64_t n, double gate) {
    double nmse = run_nmse(a, b, n);
    if (!(nmse <= gate)) fail_msg("%s: NMSE %g is above %g", what, nmse, gate);
}

/* ---- the definition -------------------------------------------------------------------------- */

/* The layer whose index selects for the last one. */
static int index_layer(const model *m) {
    return m->layers[LAYERS - 1].hp.index_shared ? LAYERS - 2 : LAYERS - 1;
}

/* A cached row as doubles, rotated back. Index keys stay rotated, as their queries are. */
static void row_of(const pi_session *s, kv_part part, int head, int64_t pos, int n, double *out) {
    float single[MAX_DIM];
    quant_type type = part == KV_VALUES ? s->kv.type_v : s->kv.type_k;
    int layer = part == KV_INDEX ? index_layer(s->host->model) : LAYERS - 1;
    quant_find(type)->dequantize(kv_cache_row(&s->kv, layer, part, head, pos), single, n);
    if (part != KV_INDEX) kv_rotate(&s->context->cpu.kernels, type, single, n);
    for (int i = 0; i < n; i++) out[i] = (double)single[i];
}

static double product(const float *q, const double *k, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)q[i] * k[i];
    return sum;
}

/* The weighted sum of the positive products of a position's index key. */
static double sum_of_heads(const engine_context *c, int64_t pos, const double *key) {
    const model_hparams *hp = &c->cpu.model->hp;
    const float *q = c->cpu.buf[BUF_INDEX_Q] + pos * c->cpu.plan->width[BUF_INDEX_Q];
    const float *w = c->cpu.buf[BUF_INDEX_W] + pos * c->cpu.plan->width[BUF_INDEX_W];
    double sum = 0;
    for (int h = 0; h < hp->n_index_head; h++)
        sum += (double)w[h] * fmax(product(q + h * hp->index_dim, key, hp->index_dim), 0);
    return sum;
}

/* The blocks where the token at pos attends for a head of keys: one after the other, the best of
 * the remaining blocks; the token's own block and those just before it come first. */
static void choose(const engine_context *c, const pi_session *s, int64_t pos, int head,
                   bool chosen[MAX_BLOCKS]) {
    const model_hparams *hp = &c->cpu.model->hp;
    const float *q = c->cpu.buf[BUF_INDEX_Q] + pos * c->cpu.plan->width[BUF_INDEX_Q] +
                     head * hp->index_dim;
    double best[MAX_BLOCKS], key[MAX_DIM];
    int n = (int)(pos / hp->block_size) + 1;
    for (int b = 0; b < n; b++) {
        best[b] = -INFINITY;
        chosen[b] = false;
    }
    for (int64_t p = 0; p <= pos; p++) {
        row_of(s, KV_INDEX, 0, p, hp->index_dim, key);
        int b = (int)(p / hp->block_size);
        best[b] = fmax(best[b],
                       hp->index_sums ? sum_of_heads(c, pos, key) : product(q, key, hp->index_dim));
    }
    for (int k = 0; k < hp->block_top && k < n; k++) {
        int next = -1;
        for (int b = 0; b < n; b++)
            if (!chosen[b] && (next < 0 || best[b] > best[next])) next = b;
        chosen[k < hp->block_local ? n - 1 - k : next] = true;
    }
}

/* The attention result of one head of the token. */
static void attend(const engine_context *c, const pi_session *s, int64_t pos, int head,
                   const bool *chosen, float *out) {
    const model_hparams *hp = &c->cpu.model->hp;
    const model_layer_hparams *l = &c->cpu.model->layers[LAYERS - 1].hp;
    int kv_head = head / (l->n_head / l->n_head_kv), n = l->head_dim;
    bool latent = hp->n_latent > 0; /* values are the keys */
    plan_buffer queries = latent ? BUF_LATENT_Q : BUF_Q;
    const float *q = c->cpu.buf[queries] + pos * c->cpu.plan->width[queries] + head * n;
    double row[MAX_DIM], sum[MAX_DIM] = {0}, all = 0;
    for (int64_t p = 0; p <= pos; p++) {
        if (!chosen[p / hp->block_size]) continue;
        row_of(s, KV_KEYS, kv_head, p, n, row);
        double weight = exp(product(q, row, n) * (double)hp->attn_scale);
        if (!latent) row_of(s, KV_VALUES, kv_head, p, n, row);
        for (int i = 0; i < n; i++) sum[i] += weight * row[i];
        all += weight;
    }
    for (int i = 0; i < n; i++) out[i] = (float)(sum[i] / all);
}

/* Checks all tokens of the last layer, in one ubatch. */
static void check_definition(const model *m, cpu_tier tier, quant_type type) {
    static float exact[N_TOKENS * 6 * MAX_DIM], found[N_TOKENS * 6 * MAX_DIM];
    cpu_kernels k;
    if (!cpu_kernels_get(tier, &k)) return;
    const model_layer_hparams *l = &m->layers[LAYERS - 1].hp;
    int64_t width = (int64_t)l->n_head * l->head_dim;
    engine_options o = options_for(tier, type, false);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    run_engine_feed(c, s, tokens, N_TOKENS, 0, NULL);
    for (int pos = 0; pos < N_TOKENS; pos++) {
        bool chosen[MAX_BLOCKS];
        for (int h = 0; h < l->n_head; h++) {
            if (h % (l->n_head / l->n_head_kv) == 0)
                choose(c, s, pos, h / (l->n_head / l->n_head_kv), chosen);
            attend(c, s, pos, h, chosen, exact + pos * width + h * l->head_dim);
        }
        memcpy(found + pos * width, c->cpu.buf[BUF_ATTN] + pos * c->cpu.plan->width[BUF_ATTN],
               (size_t)width * sizeof(float));
    }
    near("the last layer", found, exact, N_TOKENS * width, 1e-10);
    engine_session_destroy(s);
    engine_context_destroy(c);
}

static void test_definition(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_1};
    for (int i = 0; i < N_SHAPES; i++) {
        model *m = open_blocks(&shapes[i]);
        /* with quantized index keys, the queries of positions are also quantized */
        for (int t = 0; t < (has_positions(&shapes[i]) ? 2 : 5); t++) {
            check_definition(m, CPU_TIER_SCALAR, types[t]);
            check_definition(m, CPU_TIER_AUTO, types[t]);
        }
        model_close(m);
    }
}

/* ---- ways of feeding, places ----------------------------------------------------------------- */

/* All runs below have one answer: that of the CPU's float reference, all tokens at once. */
static model *open_wanted(const index_shape *x) {
    model *m = open_blocks(x);
    engine_options o = options_for(CPU_TIER_SCALAR, QUANT_F32, false);
    engine_context *c = run_engine_context(m, &o);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 0, want);
    engine_context_destroy(c);
    return m;
}

/* Layers that share a selection stay together. */
static void place(const model *m, int first) {
    for (int i = 0; i < LAYERS; i++) {
        plan_side side = i < first ? SIDE_CPU : SIDE_GPU;
        if (i > model_shared_from(m)) side = splits[i - 1].primary;
        splits[i] = (plan_split){.primary = side, .hot = i == 0 ? 64 : i + 1};
    }
}

/* Numbers of tokens per call: on the CPU, then with layers on the GPU, one by one only once. */
static void test_pieces(void **state) {
    (void)state;
    static const int pieces[] = {0, 7, 1};
    for (int i = 0; i < N_SHAPES; i++) {
        model *m = open_wanted(&shapes[i]);
        for (int gpu = 0; gpu < 2; gpu++) {
            place(m, i % LAYERS);
            engine_options o = options_for(CPU_TIER_AUTO, QUANT_F32, gpu);
            if (!gpu) o.n_threads = 3;
            engine_context *c = run_engine_context(m, &o);
            for (int k = 0; k < (gpu && i > 0 ? 2 : 3); k++) {
                run_engine_tokens(c, N_CTX, tokens, N_TOKENS, pieces[k], got);
                near("pieces", got, want, N_TOKENS * V, 1e-7);
            }
            assert_null(engine_gpu_loss(c));
            engine_context_destroy(c);
        }
        model_close(m);
    }
}

/* Two sessions in a call: one attends to all positions, the other does not. */
static void check_two(const index_shape *x) {
    enum { AHEAD = 30, STEP = 4 };
    model *m = open_wanted(x);
    for (int gpu = 0; gpu < 2; gpu++) {
        place(m, gpu);
        engine_options o = options_for(CPU_TIER_AUTO, QUANT_F32, gpu);
        engine_context *c = run_engine_context(m, &o);
        pi_session *s[2] = {run_engine_session(c, N_CTX), run_engine_session(c, N_CTX)};
        run_engine_feed(c, s[1], tokens, AHEAD, 0, got);
        for (int at = 0; at + AHEAD + STEP <= N_TOKENS; at += STEP) {
            pi_input in[2];
            for (int k = 0; k < 2; k++)
                in[k] = (pi_input){.session = s[k],
                                   .tokens = tokens + at + k * AHEAD,
                                   .n_tokens = STEP,
                                   .logits = PI_LOGITS_ALL};
            run_engine_forward(c, in, 2);
            for (int k = 0; k < 2; k++)
                near("two sessions", engine_logits(c, k * STEP), want + (at + k * AHEAD) * V,
                     STEP * V, 1e-7);
        }
        engine_session_destroy(s[0]);
        engine_session_destroy(s[1]);
        engine_context_destroy(c);
    }
    model_close(m);
}

static void test_two(void **state) {
    (void)state;
    check_two(&shapes[0]);
    check_two(&shapes[N_SHAPES - 1]);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void feed(engine_context *c, pi_session *s, int first, int piece) {
    run_engine_feed(c, s, tokens + first, N_TOKENS - first, piece, got + first * V);
    near("after that", got + first * V, want + first * V, (int64_t)(N_TOKENS - first) * V, 1e-7);
}

/* Rewound, copied, saved on one device and loaded on the other; after tokens are removed, both
 * devices continue alike. */
static void check_sessions(const index_shape *x) {
    enum { PROMPT = 33 };
    model *m = open_wanted(x);
    place(m, 0);
    for (int gpu = 0; gpu < 2; gpu++) {
        engine_options o = options_for(CPU_TIER_AUTO, QUANT_F32, gpu);
        engine_options other = options_for(CPU_TIER_AUTO, QUANT_F32, !gpu);
        engine_context *c = run_engine_context(m, &o), *there = run_engine_context(m, &other);
        pi_session *s = run_engine_session(c, N_CTX), *copy = run_engine_session(c, N_CTX);
        pi_session *loaded = run_engine_session(there, N_CTX);
        int32_t read[N_CTX];
        int64_t n;
        run_engine_feed(c, s, tokens, PROMPT + 5, 9, NULL);
        ok(session_copy(copy, s, PROMPT, &err));
        ok(session_rewind(s, PROMPT, &err));
        ok(session_save(s, SAVED_PATH, tokens, PROMPT, &err));
        ok(session_load(loaded, SAVED_PATH, read, N_CTX, &n, &err));
        assert_int_equal(n, PROMPT);
        feed(c, s, PROMPT, 5);
        feed(c, copy, PROMPT, 0);
        feed(there, loaded, PROMPT, 3);
        ok(session_remove(s, 3, 10, &err));
        ok(session_remove(loaded, 3, 10, &err));
        run_engine_feed(c, s, tokens, 6, 2, got);
        run_engine_feed(there, loaded, tokens, 6, 2, got + 6 * V);
        near("after removing", got, got + 6 * V, 6 * V, 1e-7);
        engine_session_destroy(s);
        engine_session_destroy(copy);
        engine_session_destroy(loaded);
        engine_context_destroy(c);
        engine_context_destroy(there);
    }
    model_close(m);
    remove(SAVED_PATH);
}

static void test_sessions(void **state) {
    (void)state;
    check_sessions(&shapes[0]);
    check_sessions(&shapes[N_SHAPES - 1]);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* One more token at position 49 reads `bytes` of the cache, which is F16. */
static void check_bytes(const index_shape *x, uint64_t bytes) {
    model *m = open_blocks(x);
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, false);
    engine_context *c = run_engine_context(m, &o);
    pi_session *s = run_engine_session(c, N_CTX);
    run_engine_feed(c, s, tokens, N_TOKENS - 1, 0, NULL);
    uint64_t before = engine_get_counters(c).kv_bytes;
    run_engine_feed(c, s, tokens + N_TOKENS - 1, 1, 0, NULL);
    assert_int_equal(engine_get_counters(c).kv_bytes - before, bytes);
    engine_session_destroy(s);
    engine_context_destroy(c);
    model_close(m);
}

/* In the first layer of minimax-m3 50 keys and values, in the others those of 12 positions, and 50
 * keys of the index. With compressed attention the rows of 5 or 7 positions in each layer, and 50
 * keys of each index. */
static void test_bytes(void **state) {
    (void)state;
    const uint64_t head = 2 * 32 * 2, index = MAX_DIM * 2, row = MAX_DIM * 2;
    check_bytes(&shapes[0], 50 * 2 * head + 2 * (12 * 2 * head + 50 * index));
    check_bytes(&shapes[4], 3 * (5 * row + 50 * index));
    check_bytes(&shapes[5], 3 * 7 * row + 2 * 50 * index);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A session takes exactly the predicted device memory. */
static void check_size(const index_shape *x) {
    model *m = open_blocks(x);
    place(m, 0);
    gpu_device *shared = device;
    device = run_device_another(&library, 0, 256 << 20, RUN_DEVICE_WAIT_MS);
    engine_options o = options_for(CPU_TIER_AUTO, QUANT_F16, true);
    run_engine_check_size(m, &o, &library, device, N_CTX);
    library.backend->close(device);
    device = shared;
    model_close(m);
}

static void test_size(void **state) {
    (void)state;
    check_size(&shapes[0]);
    check_size(&shapes[N_SHAPES - 1]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_two),        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_size),
    };
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
