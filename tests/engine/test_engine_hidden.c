/* test_engine_hidden.c: hidden states are the input of the output matrix, for every split into
 * ubatches and every placement; and the counts of active neurons are those of the down product. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "activity.h"
#include "engine.h"
#include "quant.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_hidden.gguf"

enum { N_TOKENS = 21, N_BATCH = 24, N_CTX = 64, MAX_EMBD = 64, MAX_VOCAB = 64, MAX_FF = 608 };

static gpu_library library;
static gpu_device *device;
static plan_split splits[TINY_MAX_LAYERS];
static int32_t tokens[N_TOKENS];
static float hidden[N_TOKENS * MAX_EMBD], logits[N_TOKENS * MAX_VOCAB];

static model *open_model(const tiny_model *t) {
    run_random_tokens(t->seed, t->n_vocab, tokens, N_TOKENS);
    return run_engine_open_tiny(t, MODEL_PATH);
}

static tiny_model base_model(const char *arch) {
    tiny_model t = tiny_default();
    t.arch = arch;
    t.n_embd = MAX_EMBD;
    t.head_dim = t.n_rot = 16;
    t.n_layer = 3;
    t.n_head[2] = t.n_head[0];
    t.n_head_kv[2] = t.n_head_kv[0];
    t.n_ff[0] = MAX_FF;
    t.n_ff[1] = 96;
    t.n_ff[2] = 320;
    return t;
}

static engine_context *make_context(const model *m, pi_mode mode, bool gpu, plan_side head) {
    engine_options o = {.n_threads = 2,
                        .n_batch = N_BATCH,
                        .tier = CPU_TIER_AUTO,
                        .type_k = QUANT_F32,
                        .type_v = QUANT_F32,
                        .plan = {.mode = mode, .max_loss = 1}};
    if (gpu) {
        for (int i = 0; i < m->hp.n_layer; i++)
            splits[i] = (plan_split){.primary = i == 1 ? SIDE_CPU : SIDE_GPU,
                                     .hot = m->layers[i].hp.n_ff / 2};
        o.plan.splits = splits;
        o.plan.head = head;
        o.gpu = library.backend;
        o.devices[0] = device;
    }
    return run_engine_context(m, &o);
}

/* ---- hidden states --------------------------------------------------------------------------- */

/* NMSE of the logits of a row against the output matrix times its hidden state, in double. */
static double head_error(const model *m, const float *h, const float *got) {
    const model_tensor *w = &m->t[ROLE_OUTPUT];
    const float *bias = m->t[ROLE_OUTPUT_BIAS].data;
    float row[MAX_EMBD];
    double away = 0, all = 0;
    for (int64_t i = 0; i < w->n_out; i++) {
        double sum = 0;
        quant_find(w->type)->dequantize((const uint8_t *)w->data + (size_t)i * w->row_bytes, row,
                                        w->n_in);
        for (int64_t k = 0; k < w->n_in; k++) sum += (double)row[k] * (double)h[k];
        sum = sum * (double)w->scale * (double)m->hp.logit_scale + (bias ? (double)bias[i] : 0);
        away += (sum - (double)got[i]) * (sum - (double)got[i]);
        all += sum * sum;
    }
    return away / all;
}

/* Logits and hidden states of all tokens, `piece` at a time. */
static void run(engine_context *c, const model *m, int piece) {
    pi_session *s = run_engine_session(c, N_CTX);
    size_t n_embd = (size_t)m->hp.n_embd, n_vocab = (size_t)m->hp.n_vocab;
    memset(hidden, 0xff, sizeof hidden);
    for (int done = 0; done < N_TOKENS;) {
        int n = piece < N_TOKENS - done ? piece : N_TOKENS - done;
        const pi_input in = {.session = s,
                             .tokens = tokens + done,
                             .n_tokens = n,
                             .logits = PI_LOGITS_ALL,
                             .hidden = PI_HIDDEN_ALL};
        run_engine_forward(c, &in, 1);
        assert_int_equal(engine_hidden_rows(c), n);
        assert_int_equal(engine_logits_rows(c), n);
        for (int i = 0; i < n; i++) {
            memcpy(hidden + (size_t)(done + i) * n_embd, engine_hidden(c, i),
                   n_embd * sizeof *hidden);
            memcpy(logits + (size_t)(done + i) * n_vocab, engine_logits(c, i),
                   n_vocab * sizeof *logits);
        }
        done += n;
    }
    engine_session_destroy(s);
}

static void check_head(const char *what, const tiny_model *t, bool gpu, plan_side head) {
    static const int pieces[] = {N_TOKENS, 7, 1};
    model *m = open_model(t);
    engine_context *c = make_context(m, PI_MODE_DENSE, gpu, head);
    for (int k = 0; k < 3; k++) {
        run(c, m, pieces[k]);
        for (int i = 0; i < N_TOKENS; i++) {
            double nmse = head_error(m, hidden + i * m->hp.n_embd, logits + i * m->hp.n_vocab);
            if (!(nmse < 1e-11))
                fail_msg("%s, head on %d, pieces of %d, row %d: NMSE %g", what, (int)head,
                         pieces[k], i, nmse);
        }
    }
    engine_context_destroy(c);
    model_close(m);
}

static void check_heads(const char *what, const tiny_model *t) {
    check_head(what, t, false, SIDE_CPU);
    check_head(what, t, true, SIDE_CPU);
    check_head(what, t, true, SIDE_GPU);
}

static void test_output_matrix(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    check_heads("llama", &t);
    t.tied = true;
    check_heads("tied", &t);
    t = base_model("qwen2");
    t.qkv_bias = t.head_bias = true;
    check_heads("qwen2", &t);
    t = base_model("falcon"); /* LayerNorm */
    check_heads("falcon", &t);
}

/* Sessions of one call want rows of different kinds: rows are in the order of the inputs, over
 * several ubatches, and equal those of separate calls. */
static void test_wanted(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    size_t n_bytes = (size_t)m->hp.n_embd * sizeof(float);
    for (int gpu = 0; gpu < 2; gpu++) {
        engine_context *c = make_context(m, PI_MODE_DENSE, gpu, SIDE_GPU);
        pi_session *s[4];
        run(c, m, N_TOKENS);
        for (int i = 0; i < 4; i++) s[i] = run_engine_session(c, N_CTX);
        const pi_input in[] = {
            {.session = s[0], .tokens = tokens, .n_tokens = 9, .logits = PI_LOGITS_LAST},
            {.session = s[1], .tokens = tokens, .n_tokens = 11, .hidden = PI_HIDDEN_ALL},
            {.session = s[2], .tokens = tokens, .n_tokens = N_TOKENS, .hidden = PI_HIDDEN_LAST},
            {.session = s[3], .tokens = tokens, .n_tokens = 5}};
        run_engine_forward(c, in, 4);
        assert_int_equal(engine_logits_rows(c), 1);
        assert_int_equal(engine_hidden_rows(c), 12);
        assert_true(run_nmse(engine_logits(c, 0), logits + 8 * m->hp.n_vocab, m->hp.n_vocab) <
                    1e-10);
        for (int i = 0; i < 11; i++)
            assert_true(run_nmse(engine_hidden(c, i), hidden + i * m->hp.n_embd, m->hp.n_embd) <
                        1e-10);
        assert_true(run_nmse(engine_hidden(c, 11), hidden + (N_TOKENS - 1) * m->hp.n_embd,
                             m->hp.n_embd) < 1e-10);
        /* Without logits the hidden states have the same bits, and the output matrix is not
         * read. */
        uint64_t before = engine_get_counters(c).weight_bytes;
        const pi_input again = {
            .session = s[3], .tokens = tokens, .n_tokens = 1, .hidden = PI_HIDDEN_LAST};
        run_engine_forward(c, &again, 1);
        uint64_t bare = engine_get_counters(c).weight_bytes - before;
        float kept[MAX_EMBD];
        memcpy(kept, engine_hidden(c, 0), n_bytes);
        pi_error err;
        if (session_rewind(s[3], 5, &err)) fail_msg("%s", err.message);
        const pi_input both = {.session = s[3],
                               .tokens = tokens,
                               .n_tokens = 1,
                               .logits = PI_LOGITS_LAST,
                               .hidden = PI_HIDDEN_LAST};
        before = engine_get_counters(c).weight_bytes;
        run_engine_forward(c, &both, 1);
        assert_memory_equal(kept, engine_hidden(c, 0), n_bytes);
        assert_int_equal(engine_get_counters(c).weight_bytes - before,
                         bare + engine_plan(c)->head_bytes);
        for (int i = 0; i < 4; i++) engine_session_destroy(s[i]);
        engine_context_destroy(c);
    }
    model_close(m);
}

static void test_too_many(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    engine_context *c = make_context(m, PI_MODE_DENSE, false, SIDE_CPU);
    pi_session *s[] = {run_engine_session(c, N_CTX), run_engine_session(c, N_CTX)};
    const pi_input in[] = {
        {.session = s[0], .tokens = tokens, .n_tokens = N_TOKENS, .hidden = PI_HIDDEN_ALL},
        {.session = s[1], .tokens = tokens, .n_tokens = 4, .hidden = PI_HIDDEN_ALL}};
    pi_error err;
    assert_int_equal(engine_forward(c, in, 2, &err), PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    assert_int_equal(engine_hidden_rows(c), 0);
    assert_int_equal(session_length(s[0]), 0);
    run_engine_forward(c, in, 1);
    assert_int_equal(engine_hidden_rows(c), N_TOKENS);
    for (int i = 0; i < 2; i++) engine_session_destroy(s[i]);
    engine_context_destroy(c);
    model_close(m);
}

/* ---- active neurons -------------------------------------------------------------------------- */

static uint32_t seen[TINY_MAX_LAYERS][MAX_FF]; /* counts of the down product: tokens with a value */

static void see_hidden_vector(void *user, const plan_step *step, const float *x, int64_t ldx,
                              int n_rows) {
    (void)user;
    if (step->matrix[0].role != ROLE_FFN_DOWN || step->op != OP_MATMUL) return;
    for (int64_t k = 0; k < step->matrix[0].w.n_in; k++) {
        bool any = false;
        for (int i = 0; i < n_rows; i++) any = any || x[i * ldx + k] != 0;
        seen[step->layer][k] += any;
    }
}

/* Feeds pieces of a few tokens, then a prompt of many tokens, which is not counted. */
static void feed_pieces(engine_context *c) {
    static const int pieces[] = {1, 1, 3, 1, 2};
    pi_session *s = run_engine_session(c, N_CTX);
    pi_input in = {.session = s, .tokens = tokens};
    for (int i = 0; i < 5; i++) {
        in.n_tokens = pieces[i];
        run_engine_forward(c, &in, 1);
        in.tokens += pieces[i];
    }
    engine_observe(c, NULL, NULL);
    in.n_tokens = 13;
    run_engine_forward(c, &in, 1);
    engine_session_destroy(s);
    assert_int_equal(engine_watched(c), 5);
}

static void test_neurons(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    t.activation = "relu";
    model *m = open_model(&t);
    engine_context *c = make_context(m, PI_MODE_EXACT, false, SIDE_CPU);
    pi_error err;
    for (int round = 0; round < 2; round++) { /* the second starts at zero */
        memset(seen, 0, sizeof seen);
        assert_int_equal(engine_watch(c, MAX_FF, &err), PI_OK);
        engine_observe(c, see_hidden_vector, NULL);
        feed_pieces(c);
    }
    uint64_t total[TINY_MAX_LAYERS] = {0};
    for (int layer = 0; layer < 3; layer++) {
        pi_layer_activity a;
        uint32_t want[MAX_FF] = {0};
        engine_get_activity(c, layer, &a);
        assert_int_equal(a.kind, PI_ACTIVITY_NEURONS);
        assert_int_equal(a.n_units, t.n_ff[layer]);
        assert_int_equal(a.n_hot, 0);
        for (int k = 0; k < t.n_ff[layer]; k++) {
            want[k * MAX_FF / t.n_ff[layer]] += seen[layer][k];
            total[layer] += seen[layer][k];
        }
        assert_true(total[layer] > 0 && total[layer] < 5u * (unsigned)t.n_ff[layer]);
        assert_memory_equal(a.bins, want, sizeof want);
    }
    engine_context_destroy(c);

    /* With a GPU, the hot prefix is counted there. */
    c = make_context(m, PI_MODE_EXACT, true, SIDE_GPU);
    assert_int_equal(engine_watch(c, 10, &err), PI_OK);
    feed_pieces(c);
    for (int layer = 0; layer < 3; layer++) {
        pi_layer_activity a;
        uint64_t sum = 0, hot = 0;
        engine_get_activity(c, layer, &a);
        assert_int_equal(a.n_hot, t.n_ff[layer] / 2);
        for (int i = 0; i < 10; i++) sum += a.bins[i];
        for (int k = 0; k < a.n_hot; k++) hot += seen[layer][k];
        for (int i = 0; i < 4; i++) assert_int_equal(a.bins[i], 0); /* all hot */
        assert_int_equal(a.hot, hot);
        assert_int_equal(sum, total[layer] - hot);
    }
    assert_int_equal(engine_watch(c, 0, &err), PI_OK);
    assert_int_equal(engine_watched(c), 0);
    assert_int_equal(engine_watch(c, PI_ACTIVITY_MAX_BINS + 1, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    engine_context_destroy(c);
    model_close(m);
}

static void test_dense(void **state) {
    (void)state;
    tiny_model t = base_model("llama");
    model *m = open_model(&t);
    engine_context *c = make_context(m, PI_MODE_DENSE, false, SIDE_CPU);
    pi_layer_activity a;
    engine_get_activity(c, 1, &a);
    assert_int_equal(a.kind, PI_ACTIVITY_DENSE);
    assert_int_equal(a.n_units, t.n_ff[1]);
    assert_null(a.bins);
    engine_context_destroy(c);
    model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_matrix), cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_too_many),      cmocka_unit_test(test_neurons),
        cmocka_unit_test(test_dense),
    };
    int status;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &status)) return status;
    status = cmocka_run_group_tests_name("engine_hidden", tests, NULL, NULL);
    run_device_close(&library, device);
    remove(MODEL_PATH);
    return status;
}
