/* test_engine_drafter.c: heads that draft: layers for multi-token prediction and EAGLE-3 files.
 * What a model's sessions keep for a head, the head's logits, and its features for the tokens that
 * it drafts are compared with a plain pass in double precision, for all kernels and ways of feeding
 * tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "plain_forward.h"
#include "powerinfer_placement.h"
#include "powerinfer_session.h"
#include "powerinfer_speculate.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_drafter.gguf"
#define HEAD_PATH  TEST_BINARY_DIR "/test_engine_drafter_head.gguf"
#define SAVED_PATH TEST_BINARY_DIR "/test_engine_drafter.session"

enum { N_TOKENS = 21, MAX_VOCAB = 64, MAX_EMBD = 64 };
#ifdef TEST_HAS_SIM
enum { HAS_SIM = 1 };
#else
enum { HAS_SIM = 0 };
#endif

/* The GPU rounds the activations of F16 weights. */
static double sim_gate(const tiny_model *t) {
    if (strcmp(t->type, "f32") == 0) return 1e-9;
    return fmax(5e-6, plain_gate(t, PI_KERNELS_AUTO));
}

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* A model and its head. */
typedef struct pair {
    tiny_model target, head; /* head: the target, with layers that draft, or an eagle3 */
    bool eagle;
    int number; /* of the layer that drafts */
} pair;

static pair mtp_pair(const char *arch) {
    pair p = {.target = tiny_default()};
    p.target.arch = arch;
    p.target.n_embd = 64;
    p.target.head_dim = p.target.n_rot = 16;
    p.target.draft.n = 1;
    p.head = p.target;
    return p;
}

static pair eagle_pair(int n_embd) {
    pair p = mtp_pair("llama");
    p.target.draft.n = 0;
    p.eagle = true;
    p.head = p.target;
    p.head.arch = "eagle3";
    p.head.n_layer = 1;
    p.head.n_embd = n_embd;
    p.head.two_norms = true;
    p.head.n_ff[0] = 96;
    p.head.seed = 5;
    p.head.draft = (tiny_draft){.reads = {0, 1, 2}, .n_target = 64};
    return p;
}

static void write_pair(const pair *p) {
    tiny_write(&p->target, MODEL_PATH);
    if (p->eagle) tiny_write(&p->head, HEAD_PATH);
}

typedef struct opened {
    run_model target;
    pi_model *drafter;
    pi_context *context, *of_head;
} opened;

static opened open_pair(const pair *p, pi_kernels kernels, pi_device_choice device) {
    opened o;
    pi_context_options options = run_exact_options();
    options.kernels = kernels;
    options.device = device;
    o.target = run_open(MODEL_PATH, &options);
    ok(pi_model_open_drafter(o.target.model, p->eagle ? HEAD_PATH : NULL, p->number, &o.drafter,
                             &err));
    ok(pi_context_create(o.drafter, &options, &o.of_head, &err));
    options.drafter = o.drafter;
    ok(pi_context_create(o.target.model, &options, &o.context, &err));
    return o;
}

static void close_pair(opened *o) {
    pi_context_destroy(o->context);
    pi_context_destroy(o->of_head);
    pi_model_close(o->drafter);
    run_close(&o->target);
}

static pi_session *new_session(pi_context *c, int n_ctx) {
    pi_session *s;
    ok(pi_session_create(c, n_ctx, &s, &err));
    return s;
}

static void feed(pi_context *c, pi_session *s, const int32_t *tokens, const float *features,
                 int n_embd, int n, int piece, float *logits, int n_vocab) {
    for (int done = 0; done < n;) {
        int k = piece && piece < n - done ? piece : n - done;
        pi_input in = {.session = s,
                       .tokens = tokens + done,
                       .n_tokens = k,
                       .logits = logits ? PI_LOGITS_ALL : PI_LOGITS_NONE,
                       .features = features ? features + done * n_embd : NULL};
        ok(pi_forward(c, &in, 1, &err));
        for (int i = 0; i < k && logits; i++)
            memcpy(logits + (done + i) * n_vocab, pi_logits(c, i),
                   (size_t)n_vocab * sizeof *logits);
        done += k;
    }
}

static void read_features(const pi_session *s, int n, int n_embd, float *out) {
    for (int i = 0; i < n; i++) {
        const float *row = pi_session_features(s, i);
        assert_non_null(row);
        memcpy(out + i * n_embd, row, (size_t)n_embd * sizeof *out);
    }
}

static void check_near(const char *what, const float *got, const double *want, int n, double gate) {
    double square = 0, error = 0;
    for (int i = 0; i < n; i++) {
        if (isinf(want[i])) {
            assert_true(isinf(got[i]) && got[i] < 0);
            continue;
        }
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        square += want[i] * want[i];
    }
    if (!(error <= gate * square)) fail_msg("%s: NMSE %g is above %g", what, error / square, gate);
}

static double features[N_TOKENS * MAX_EMBD], reads[N_TOKENS * 3 * MAX_EMBD];
static double logits[N_TOKENS * MAX_VOCAB], next[N_TOKENS * MAX_EMBD];
static float got[N_TOKENS * MAX_VOCAB], kept[N_TOKENS * MAX_EMBD], given[N_TOKENS * MAX_EMBD];

/* Row i of a head's session has token i + 1 with the features of token i. */
static void check(const char *what, const pair *p) {
    int32_t tokens[N_TOKENS + 1];
    int n_embd = p->head.n_embd, n_vocab = p->target.n_vocab;
    write_pair(p);
    run_random_tokens(3, n_vocab, tokens, N_TOKENS + 1);
    plain_reads(&p->target, MODEL_PATH, p->eagle ? p->head.draft.reads : NULL, tokens, N_TOKENS,
                p->eagle ? reads : features);
    if (p->eagle) plain_fuse(&p->head, HEAD_PATH, reads, N_TOKENS, features);
    plain_draft(&p->head, p->eagle ? HEAD_PATH : MODEL_PATH, MODEL_PATH, p->number, features,
                tokens + 1, N_TOKENS, logits, next);
    for (int i = 0; i < N_TOKENS * n_embd; i++) given[i] = (float)features[i];
    for (int k = 0; k < RUN_KERNELS + HAS_SIM; k++) { /* all kernels, then the simulated GPU */
        bool sim = k == RUN_KERNELS;
        pi_kernels kernels = sim ? PI_KERNELS_SCALAR : run_kernels[k];
        if (!run_has_kernels(MODEL_PATH, kernels)) continue;
        opened o = open_pair(p, kernels, sim ? PI_DEVICE_SIM : PI_DEVICE_CPU);
        double gate = sim ? sim_gate(&p->target) : plain_gate(&p->target, kernels);
        for (int piece = 0; piece < 8; piece += piece ? 6 : 1) { /* 0, 1, 7 */
            pi_session *s = new_session(o.context, N_TOKENS);
            pi_session *h = new_session(o.of_head, N_TOKENS);
            feed(o.context, s, tokens, NULL, 0, N_TOKENS, piece, NULL, 0);
            read_features(s, N_TOKENS, n_embd, kept);
            check_near(what, kept, features, N_TOKENS * n_embd, gate);
            feed(o.of_head, h, tokens + 1, given, n_embd, N_TOKENS, piece, got, n_vocab);
            check_near(what, got, logits, N_TOKENS * n_vocab, gate);
            read_features(h, N_TOKENS, n_embd, kept);
            check_near(what, kept, next, N_TOKENS * n_embd, gate);
            pi_session_destroy(s);
            pi_session_destroy(h);
        }
        pi_placement placement;
        pi_context_get_placement(o.context, &placement);
        assert_true(!sim || placement.gpu_layers > 0);
        close_pair(&o);
    }
}

static void test_mtp(void **state) {
    (void)state;
    pair p = mtp_pair("llama");
    check("llama", &p);
    p.target.draft.own_norm = p.target.draft.own_head = true;
    p.head = p.target;
    check("own norm and head", &p);
    p = mtp_pair("qwen3");
    p.target.type = "f16";
    p.head = p.target;
    check("qwen3, f16", &p);
    p = mtp_pair("qwen2");
    p.target.qkv_bias = true;
    p.target.type = "q8_0";
    p.target.n_ff[2] = 128; /* of the layer that drafts */
    p.target.n_ff[3] = 96;
    p.target.draft.n = 2;
    p.head = p.target;
    check("qwen2, q8_0", &p);
    p.number = 1;
    check("qwen2, q8_0, second layer", &p);
}

static void test_mtp_of_experts(void **state) {
    (void)state;
    pair p = mtp_pair("llama");
    p.target.experts = (tiny_experts){.n = 6, .n_used = 2, .n_ff = 48};
    p.head = p.target;
    check("experts", &p);
}

static void test_eagle3(void **state) {
    (void)state;
    pair p = eagle_pair(64);
    check("eagle3", &p);
    p.head.draft.normed = true;
    p.head.draft.reads[0] = 1; /* two reads of the same layer, one after the last */
    check("normed residual", &p);
    p.head.draft.newer = true;
    check("norm before fc", &p);
    p.head.tied = true; /* no output matrix */
    check("the model's output", &p);
    p.head.tied = false;
    p.head.draft.n_ids = 17;
    check("d2t", &p);
    p = eagle_pair(32);
    p.head.head_dim = p.head.n_rot = 8;
    p.head.draft.own_table = true;
    p.head.type = "f16";
    p.target.type = "f16";
    check("narrower", &p);
}

/* Rows are kept for the last tokens, follow rewinding, and are forgotten when a session's content
 * comes from elsewhere. */
static void test_kept_rows(void **state) {
    (void)state;
    pair p = mtp_pair("llama");
    write_pair(&p);
    opened o = open_pair(&p, PI_KERNELS_AUTO, PI_DEVICE_CPU);
    enum { LONG = 4096 + 300, N = 12 };
    static int32_t tokens[LONG];
    run_random_tokens(9, p.target.n_vocab, tokens, LONG);
    pi_session *s = new_session(o.context, LONG), *t = new_session(o.context, LONG);
    assert_int_equal(pi_session_features_first(s), 0);
    assert_null(pi_session_features(s, 0));
    feed(o.context, s, tokens, NULL, 0, N, 0, NULL, 0);
    read_features(s, N, 64, kept);
    ok(pi_session_rewind(s, N - 4, &err));
    assert_int_equal(pi_session_features_first(s), 0);
    feed(o.context, s, tokens + N - 4, NULL, 0, 4, 1, NULL, 0);
    static float again[N * 64];
    read_features(s, N, 64, again);
    assert_true(run_nmse(again, kept, N * 64) < 1e-9);

    ok(pi_session_copy(t, s, N, &err));
    assert_int_equal(pi_session_features_first(t), N);
    feed(o.context, t, tokens + N, NULL, 0, 3, 0, NULL, 0);
    assert_int_equal(pi_session_features_first(t), N);
    assert_null(pi_session_features(t, N - 1));
    assert_non_null(pi_session_features(t, N + 2));

    ok(pi_session_remove(s, 2, 5, &err));
    assert_int_equal(pi_session_features_first(s), pi_session_length(s));

    ok(pi_session_rewind(s, 0, &err));
    feed(o.context, s, tokens, NULL, 0, LONG, 0, NULL, 0);
    int32_t first = pi_session_features_first(s);
    assert_in_range(first, LONG - 4096 - 64, LONG - 4096);
    assert_null(pi_session_features(s, first - 1));
    ok(pi_session_rewind(t, 0, &err));
    feed(o.context, t, tokens, NULL, 0, LONG, 1, NULL, 0);
    assert_int_equal(pi_session_features_first(t), LONG - 4096);
    double square = 0, error = 0;
    for (int32_t i = first; i < LONG; i++)
        for (int k = 0; k < 64; k++) {
            double a = (double)pi_session_features(s, i)[k],
                   b = (double)pi_session_features(t, i)[k];
            error += (a - b) * (a - b);
            square += b * b;
        }
    assert_true(error < 1e-9 * square);

    ok(pi_session_save(s, SAVED_PATH, tokens, LONG, &err));
    int32_t n = 0;
    ok(pi_session_load(t, SAVED_PATH, tokens, LONG, &n, &err));
    assert_int_equal(pi_session_features_first(t), LONG);
    pi_session_destroy(s);
    pi_session_destroy(t);
    close_pair(&o);
}

static void refuse(const pair *p, pi_status want, const char *part) {
    pi_model *m, *head = NULL;
    write_pair(p);
    ok(pi_model_open(MODEL_PATH, NULL, &m, &err));
    pi_status status = pi_model_open_drafter(m, p->eagle ? HEAD_PATH : NULL, p->number, &head,
                                             &err);
    run_check_message(&err, status);
    assert_int_equal(status, want);
    assert_null(head);
    if (!strstr(err.message, part)) fail_msg("%s: not about %s", err.message, part);
    pi_model_close(m);
}

static void test_errors(void **state) {
    (void)state;
    pair p = mtp_pair("llama");
    p.target.draft.n = 0;
    refuse(&p, PI_ERR_NOT_FOUND, "nextn_predict_layers");
    p = mtp_pair("llama");
    p.number = 1;
    refuse(&p, PI_ERR_NOT_FOUND, "fewer layers");
    p = eagle_pair(64);
    p.head.draft.reads[2] = 3;
    refuse(&p, PI_ERR_FORMAT, "extract_layers");
    p = eagle_pair(64);
    p.head.draft.n_target = 32;
    refuse(&p, PI_ERR_FORMAT, "target_hidden_size");
    p = eagle_pair(32);
    p.head.head_dim = p.head.n_rot = 8;
    refuse(&p, PI_ERR_FORMAT, "embedding_length");
    p = eagle_pair(64);
    p.head.draft.n_ids = 30; /* up to 58, of 40 tokens */
    refuse(&p, PI_ERR_FORMAT, "d2t");
    p = eagle_pair(64);
    p.head.n_vocab = 48;
    refuse(&p, PI_ERR_FORMAT, "vocabulary");
    pi_model *m, *other, *head;
    p = eagle_pair(64);
    write_pair(&p);
    assert_int_equal(pi_model_open(HEAD_PATH, NULL, &m, &err), PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "EAGLE-3"));
    ok(pi_model_open(MODEL_PATH, NULL, &m, &err));
    ok(pi_model_open(MODEL_PATH, NULL, &other, &err));
    assert_int_equal(pi_model_open_drafter(m, MODEL_PATH, 0, &head, &err), PI_ERR_NOT_FOUND);
    assert_int_equal(pi_model_open_drafter(m, HEAD_PATH, 1, &head, &err), PI_ERR_NOT_FOUND);
    assert_int_equal(pi_model_open_drafter(m, HEAD_PATH, -1, &head, &err), PI_ERR_ARG);
    ok(pi_model_open_drafter(m, HEAD_PATH, 0, &head, &err));
    pi_model_info info;
    pi_model_get_info(head, &info);
    assert_true(info.is_drafter && !info.has_tokenizer && info.n_embd == 64);
    assert_true(info.n_draft_layer == 1 && info.n_features == 64);
    pi_context_options options = run_exact_options();
    pi_context *c;
    options.drafter = head;
    assert_int_equal(pi_context_create(other, &options, &c, &err), PI_ERR_ARG);
    options.drafter = NULL;
    ok(pi_context_create(head, &options, &c, &err));
    pi_session *s = new_session(c, 8);
    const pi_input in = {.session = s, .tokens = (int32_t[]){1}, .n_tokens = 1};
    assert_int_equal(pi_forward(c, &in, 1, &err), PI_ERR_ARG); /* no features */
    pi_session_destroy(s);
    pi_context_destroy(c);
    pi_model_close(head);
    pi_model_close(other);
    pi_model_close(m);
}

static void test_out_of_memory(void **state) {
    (void)state;
    pair p = eagle_pair(64);
    p.head.draft.n_ids = 9;
    p.head.vector_type = "f16"; /* converted: more allocations */
    p.target.draft.n = 1;
    write_pair(&p);
    pi_model *m;
    ok(pi_model_open(MODEL_PATH, NULL, &m, &err));
    for (int own = 0; own < 2; own++) {
        for (failing f = failing_each(1); failing_next(&f);) {
            pi_model *head = NULL;
            pi_status status = pi_model_open_drafter(m, own ? NULL : HEAD_PATH, 0, &head, &err);
            if (failing_hit(&f, status, &err)) assert_null(head);
            pi_model_close(head);
        }
    }
    pi_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp),    cmocka_unit_test(test_mtp_of_experts),
        cmocka_unit_test(test_eagle3), cmocka_unit_test(test_kept_rows),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
