/* test_engine_paging.c: weights that are read from the drive on demand. With every budget, answers
 * equal those from memory bit for bit: over architectures, modes, threads, splits of a prompt and
 * sessions that share a step. Failures are reported and have no other effect. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bundled_file.h"
#include "gguf.h"
#include "mem.h"
#include "os_file.h"
#include "powerinfer_tools.h"
#include "recurrent_model.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_paging.gguf"
#define APART_PATH TEST_BINARY_DIR "/test_engine_paging_apart.gguf"

enum { N_TOKENS = 24, MAX_VOCAB = 512, MIB = 1 << 20 };

/* Sanitizers run every other model, prompts whole or token by token, with the least and the largest
 * budget. */
#ifdef TEST_SAMPLED
enum { BUDGET_STEP = 2, MODEL_STEP = 2 };
static const int pieces[] = {1, 0};
#else
enum { BUDGET_STEP = 1, MODEL_STEP = 1 };
static const int pieces[] = {1, 5, 0};
#endif

static float expected[N_TOKENS * MAX_VOCAB], got[N_TOKENS * MAX_VOCAB];
static int32_t tokens[N_TOKENS];

static int remove_model(void **state) {
    (void)state;
    unlink(MODEL_PATH);
    return 0;
}

static pi_context_options options_for(int n_threads) {
    pi_context_options o = run_exact_options();
    o.kernels = PI_KERNELS_AUTO;
    o.ram_budget = PI_RAM_MAPPED;
    o.n_threads = n_threads;
    o.n_ctx = 4 * N_TOKENS;
    return o;
}

/* The least budget for creating a context, which a context with a large budget reports. One byte
 * less is refused. */
static uint64_t least_budget(pi_context_options o) {
    pi_model *m;
    pi_context *c;
    pi_memory n;
    pi_error err;
    o.ram_budget = 1024 * (uint64_t)MIB;
    assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, NULL), PI_OK);
    assert_int_equal(pi_context_create(m, &o, &c, NULL), PI_OK);
    pi_context_get_memory(c, &n);
    pi_context_destroy(c);
    o.ram_budget = n.needed - 1;
    assert_int_equal(pi_context_create(m, &o, &c, &err), PI_ERR_LIMIT);
    run_check_message(&err, PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "memory budget too small"));
    pi_model_close(m);
    return n.needed;
}

static pi_memory feed(const pi_context_options *o, int piece, float *logits) {
    pi_memory n;
    run_model r = run_open(MODEL_PATH, o);
    assert_true(r.n_vocab <= MAX_VOCAB);
    run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, piece, logits);
    pi_context_get_memory(r.context, &n);
    assert_true(n.budget == o->ram_budget && n.needed <= n.budget);
    assert_true(n.buffers + n.always + n.pinned + n.ring + n.cache <= n.budget);
    run_close(&r);
    return n;
}

/* All splits of the prompt with the least budget; token by token with larger budgets. */
static void check_model(const char *what, pi_context_options o) {
    pi_context_options mapped = o;
    mapped.ram_budget = PI_RAM_MAPPED;
    struct stat st;
    assert_int_equal(stat(MODEL_PATH, &st), 0);
    uint64_t least = least_budget(o);
    const uint64_t budgets[] = {least, least + (uint64_t)st.st_size / 3,
                                least + 2 * (uint64_t)st.st_size};
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        pi_memory none = feed(&mapped, pieces[p], expected);
        assert_true(none.budget == 0 && none.reads == 0 && !none.backend);
        for (size_t b = 0; b < (p ? 1 : sizeof budgets / sizeof *budgets); b += BUDGET_STEP) {
            o.ram_budget = budgets[b];
            pi_memory n = feed(&o, pieces[p], got);
            if (memcmp(expected, got, sizeof expected) != 0)
                fail_msg("%s: pieces of %d with %llu bytes differ", what, pieces[p],
                         (unsigned long long)budgets[b]);
            assert_true(n.reads > 0 && n.read_bytes >= (uint64_t)st.st_size / 4);
        }
    }
}

static void dense_models(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q4_0", "q6_k"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i += MODEL_STEP) {
        tiny_model t = tiny_default();
        t.type = types[i];
        t.n_layer = 4;
        t.n_embd = t.head_dim = t.n_rot = 256;
        tiny_set_heads(&t, 1, 1);
        for (int l = 0; l < t.n_layer; l++) t.n_ff[l] = 512;
        t.tied = i == 1;
        tiny_write(&t, MODEL_PATH);
        check_model(types[i], options_for(1 + (int)i));
    }
}

static void architectures(void **state) {
    (void)state;
    static const char *const archs[] = {"qwen2", "falcon", "opt", "deepseek2"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        tiny_model t = tiny_default();
        t.arch = archs[i];
        if (i == 3) {
            t.n_latent = 32;
            t.n_rot = 16;
            t.head_dim = 32 + 16;
            t.v_dim = 32;
            tiny_set_heads(&t, 4, 4);
        }
        t.qkv_bias = i == 0 || i == 2;
        t.out_bias = t.ffn_bias = t.tied = i == 2;
        t.n_pos = i == 2 ? 64 : 0;
        tiny_write(&t, MODEL_PATH);
        check_model(archs[i], options_for(1));
    }
}

/* Prompts compute keys and values of every head: two matrices at once, here the largest ones. */
static void compressed_attention(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "q8_0"};
    for (int i = 0; i < 2; i++) {
        tiny_model t = tiny_default();
        t.arch = "deepseek2";
        t.type = types[i];
        t.n_layer = 4;
        t.n_latent = 256;
        t.n_rot = 16;
        t.head_dim = 64 + 16;
        t.v_dim = i ? 32 : 96;
        tiny_set_heads(&t, 4, 4);
        tiny_write(&t, MODEL_PATH);
        check_model("compressed attention", options_for(1 + 2 * i));
    }
}

static void recurrent_models(void **state) {
    (void)state;
    const recurrent_keys keys = {0};
    for (int i = 0; i < RECURRENT_ARCHS; i++) {
        recurrent_write(recurrent_archs[i], &keys, MODEL_PATH);
        check_model(recurrent_archs[i], options_for(1));
    }
}

static void sparse_modes(void **state) {
    (void)state;
    static const pi_mode modes[] = {PI_MODE_DENSE, PI_MODE_EXACT, PI_MODE_PREDICT,
                                    PI_MODE_THRESHOLD};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        tiny_model t = tiny_default();
        pi_context_options o = options_for(2);
        t.activation = "relu";
        t.type = "q4_0";
        t.n_layer = 3;
        for (int l = 0; l < t.n_layer; l++) t.n_ff[l] = 768;
        t.sparse = (tiny_sparse){.down_t = true, .predictor = "lowrank", .rank = 32, .cut = 0.05f};
        o.mode = modes[i];
        tiny_write(&t, MODEL_PATH);
        check_model("sparse", o);
    }
}

static void mixtures_of_experts(void **state) {
    (void)state;
    for (int fused = 0; fused < 2; fused++)
        for (int bundled = 0; bundled < 2; bundled++) {
            tiny_model t = tiny_default();
            t.arch = "deepseek2";
            t.type = fused ? "q8_0" : "q4_0";
            t.n_layer = 4;
            t.n_latent = 32;
            t.n_rot = 16;
            t.head_dim = 32 + 16;
            t.v_dim = 32;
            tiny_set_heads(&t, 4, 4);
            t.experts = (tiny_experts){.n = 16,
                                       .n_used = 3,
                                       .n_ff = 96,
                                       .n_dense = 1,
                                       .n_ff_shared = 64,
                                       .fused = fused,
                                       .biased = false};
            tiny_write(&t, bundled ? APART_PATH : MODEL_PATH);
            if (bundled) bundled_write(APART_PATH, MODEL_PATH, fused);
            unlink(APART_PATH);
            check_model("experts", options_for(fused == bundled ? 1 : 4));
        }
}

/* Predictors within experts stay in memory. */
static void predicted_experts(void **state) {
    (void)state;
    static const char *const kinds[] = {"lowrank", "relu_mlp", "sign"};
    for (int i = 0; i < 3; i++) {
        tiny_model t = tiny_default();
        pi_context_options o = options_for(2);
        t.activation = "relu";
        t.type = i == 1 ? "f16" : "q4_0";
        t.n_layer = 3;
        t.experts = (tiny_experts){.n = 12, .n_used = 2, .n_ff = 288};
        t.sparse = (tiny_sparse){.down_t = true, .predictor = kinds[i], .rank = 32};
        o.mode = PI_MODE_PREDICT;
        tiny_write(&t, MODEL_PATH);
        check_model(kinds[i], o);
    }
}

/* Decoding from a cache that cannot hold all weights: it has hits and misses. */
static void experts_stay(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "qwen3moe";
    t.type = "f32";
    t.n_layer = 2;
    t.experts = (tiny_experts){.n = 16, .n_used = 2, .n_ff = 256};
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = options_for(2);
    uint64_t least = least_budget(o);
    o.ram_budget = least + 1200 * 1024; /* of 3 MB */
    pi_memory n = feed(&o, 1, got);
    uint64_t wanted = (uint64_t)N_TOKENS * 2 * 2 * 3;
    assert_int_equal(n.hits + n.misses, wanted);
    assert_true(n.hits > wanted / 8 && n.misses > 0);
    o.ram_budget = least + 4096 * 1024;
    n = feed(&o, 1, got);
    assert_int_equal(n.hits, wanted);
    assert_int_equal(n.misses, 0);
    /* in bundles gate and up are one read */
    bundled_write(MODEL_PATH, APART_PATH, 0);
    assert_int_equal(os_path_rename(APART_PATH, MODEL_PATH), 0);
    o.ram_budget = least_budget(o) + 1200 * 1024;
    n = feed(&o, 1, got);
    assert_int_equal(n.hits + n.misses, wanted / 3 * 2);
    assert_true(n.hits > wanted / 12 && n.misses > 0);
}

/* ---- prefetched experts ---------------------------------------------------------------------- */

enum { AHEAD_TOKENS = 160, AHEAD_VOCAB = 40, AHEAD_LAYERS = 4 };
static float mapped_logits[AHEAD_TOKENS * AHEAD_VOCAB], paged_logits[AHEAD_TOKENS * AHEAD_VOCAB];

static void scale_tensors(const char *suffix, float factor) {
    static float w[32 * 64 * 64];
    char name[64];
    gguf_file *f;
    int fd = open(MODEL_PATH, O_RDWR);
    assert_int_equal(gguf_open(MODEL_PATH, NULL, &f, NULL), PI_OK);
    for (int i = 0; i < AHEAD_LAYERS; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, suffix);
        const gguf_tensor *t = gguf_find_tensor(f, name);
        assert_true(t && t->n_bytes <= sizeof w);
        assert_int_equal(pread(fd, w, t->n_bytes, (off_t)t->file_offset), t->n_bytes);
        for (size_t k = 0; k < t->n_bytes / sizeof *w; k++) w[k] *= factor;
        assert_int_equal(pwrite(fd, w, t->n_bytes, (off_t)t->file_offset), t->n_bytes);
    }
    close(fd);
    gguf_close(f);
}

/* Counts after half of the tokens and after all of them; answers equal those from memory. */
static void feed_halves(pi_context_options o, int piece, pi_memory out[2]) {
    enum { HALF = AHEAD_TOKENS / 2 };
    int32_t ids[AHEAD_TOKENS];
    o.n_ctx = AHEAD_TOKENS;
    for (int paged = 0; paged < 2; paged++) {
        float *logits = paged ? paged_logits : mapped_logits;
        pi_context_options with = o;
        if (!paged) with.ram_budget = PI_RAM_MAPPED;
        run_model r = run_open(MODEL_PATH, &with);
        pi_session *s = run_session(&r, AHEAD_TOKENS);
        assert_int_equal(r.n_vocab, AHEAD_VOCAB);
        run_random_tokens(7, r.n_vocab, ids, AHEAD_TOKENS);
        for (int half = 0; half < 2; half++) {
            run_feed(&r, s, ids + half * HALF, HALF, piece, logits + half * HALF * AHEAD_VOCAB);
            pi_context_get_memory(r.context, &out[half]);
        }
        pi_session_destroy(s);
        run_close(&r);
    }
    assert_memory_equal(mapped_logits, paged_logits, sizeof mapped_logits);
}

/* The stream before a layer's experts predicts the next layer's experts only if these experts and
 * the next layer's attention add little to it. Where they add nothing, all prefetched
 * experts are used, and prefetching continues; where attention dominates the stream, prefetching
 * ends, except for an occasional attempt. */
static void experts_ahead(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    pi_memory n[2];
    t.arch = "qwen3moe";
    t.n_layer = AHEAD_LAYERS;
    t.experts = (tiny_experts){.n = 32, .n_used = 2, .n_ff = 64};
    for (int known = 0; known < 2; known++)
        for (int piece = 1; piece <= (known ? 3 : 1); piece += 2) {
            tiny_write(&t, MODEL_PATH);
            scale_tensors("attn_output", known ? 0 : 1e4f);
            if (known) scale_tensors("ffn_down_exps", 0);
            pi_context_options o = options_for(2);
            o.n_ctx = AHEAD_TOKENS;
            o.ram_budget = least_budget(o) + 300 * 1024; /* of 3.1 MB of experts */
            feed_halves(o, piece, n);
            uint64_t later = n[1].ahead - n[0].ahead, missed = n[1].misses - n[0].misses;
            assert_true(n[0].ahead > 0 && n[1].ahead <= n[1].misses + n[1].in_vain);
            assert_true(missed > AHEAD_TOKENS / 2);
            if (known) {
                assert_int_equal(n[1].in_vain, 0);
                assert_true(later >= missed / 16);
            } else {
                assert_true(n[0].in_vain > n[0].ahead / 4);
                assert_true(later < missed / 8);
            }
        }
}

static void sessions_share_steps(void **state) {
    (void)state;
    enum { N = 3, STEPS = 5 };
    tiny_model t = tiny_default();
    t.arch = "qwen3moe";
    t.n_layer = 3;
    t.experts = (tiny_experts){.n = 8, .n_used = 2, .n_ff = 64};
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = options_for(2);
    uint64_t least = least_budget(o);
    for (int paged = 0; paged < 2; paged++) {
        o.ram_budget = paged ? least : PI_RAM_MAPPED;
        run_model r = run_open(MODEL_PATH, &o);
        float *to = paged ? got : expected;
        pi_input in[N];
        run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
        for (int i = 0; i < N; i++)
            in[i] = (pi_input){.session = run_session(&r, 16), .logits = PI_LOGITS_LAST};
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < N; i++) {
                in[i].tokens = &tokens[(step + i) % 8];
                in[i].n_tokens = 1 + (step + i) % 4;
            }
            assert_int_equal(pi_forward(r.context, in, N, NULL), PI_OK);
            for (int i = 0; i < N; i++, to += r.n_vocab)
                memcpy(to, pi_logits(r.context, i), (size_t)r.n_vocab * sizeof *to);
        }
        for (int i = 0; i < N; i++) pi_session_destroy(in[i].session);
        run_close(&r);
    }
    assert_memory_equal(expected, got, sizeof(float) * N * STEPS * 40);
}

/* ---- bundles --------------------------------------------------------------------------------- */

static void write_bundles(const char *shape, const char *type) {
    pi_synth_options o = pi_synth_default_options();
    pi_error err;
    o.shape = shape;
    o.type = type;
    o.bundle = true;
    o.n_layer = 4;
    if (pi_synth(MODEL_PATH, &o, &err) != PI_OK) fail_msg("%s", err.message);
}

static void bundles(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-opt"}, *const types[] = {"q4_0", "f16"};
    static const pi_mode modes[] = {PI_MODE_DENSE, PI_MODE_EXACT, PI_MODE_PREDICT};
    for (size_t i = 0; i < 2; i += MODEL_STEP) {
        write_bundles(shapes[i], types[i]);
        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
            pi_context_options o = options_for(1 + (int)k); /* 3 where neurons are selected */
            o.mode = modes[k];
            check_model(shapes[i], o);
        }
    }
}

/* Later tokens use the neurons of one token again, and a prompt takes their slots. */
static void neurons_stay(void **state) {
    (void)state;
    write_bundles("tiny", "q4_0");
    pi_context_options o = options_for(2);
    o.mode = PI_MODE_PREDICT;
    o.n_batch = 16; /* slots that the buffers of larger batches borrow hold all neurons */
    o.ram_budget = least_budget(o);
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, N_TOKENS);
    pi_memory first, prompt, after;
    run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
    run_feed(&r, s, tokens, 6, 1, got);
    pi_context_get_memory(r.context, &first);
    assert_true(first.hits > 0 && first.misses > 0);
    assert_true(first.ahead > 0 && first.ahead <= first.reads && first.in_vain < first.ahead);
    run_feed(&r, s, tokens, 12, 0, got);
    pi_context_get_memory(r.context, &prompt);
    assert_int_equal(prompt.hits, first.hits); /* layers pass as a whole */
    assert_int_equal(prompt.misses, first.misses);
    run_feed(&r, s, tokens, 6, 1, got);
    pi_context_get_memory(r.context, &after);
    assert_true(after.misses > prompt.misses);
    pi_session_destroy(s);
    run_close(&r);
    o.ram_budget *= 2;
    pi_memory all = feed(&o, 1, got); /* everything stays */
    assert_int_equal(all.hits + all.misses, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void write_dense(void) {
    tiny_model t = tiny_default();
    t.n_layer = 4;
    t.n_embd = 256;
    tiny_set_heads(&t, 4, 2);
    for (int l = 0; l < t.n_layer; l++) t.n_ff[l] = 512;
    tiny_write(&t, MODEL_PATH);
}

#if !defined(_WIN32) /* where an open file is neither shortened nor replaced */
/* A call fails, its session stays unchanged, and works again when the file is restored. */
static void the_file_changes(void **state) {
    (void)state;
    write_dense();
    pi_context_options o = options_for(2);
    o.ram_budget = least_budget(o);
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, N_TOKENS);
    pi_error err;
    struct stat st;
    run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
    run_feed(&r, s, tokens, 8, 1, got);
    assert_int_equal(stat(MODEL_PATH, &st), 0);

    int fd = open(MODEL_PATH, O_RDWR);
    uint8_t *all = malloc((size_t)st.st_size);
    assert_true(fd >= 0 && all);
    assert_int_equal(pread(fd, all, (size_t)st.st_size, 0), st.st_size);
    assert_int_equal(ftruncate(fd, st.st_size / 8), 0);
    pi_input in = {.session = s, .tokens = tokens + 8, .n_tokens = 1, .logits = PI_LOGITS_LAST};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_ERR_IO);
        assert_non_null(strstr(err.message, "became shorter"));
        assert_non_null(strstr(err.message, MODEL_PATH));
        assert_int_equal(pi_session_length(s), 8);
    }
    assert_int_equal(pwrite(fd, all, (size_t)st.st_size, 0), st.st_size);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pi_forward(r.context, &in, 1, &err), PI_ERR_IO);
        assert_non_null(strstr(err.message, "changed while it was in use"));
    }
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    free(all);
    run_feed(&r, s, tokens + 8, N_TOKENS - 8, 1, got + 8 * r.n_vocab);
    pi_session_destroy(s);
    run_close(&r);
    o.ram_budget = PI_RAM_MAPPED;
    feed(&o, 1, expected);
    assert_memory_equal(expected, got, sizeof(float) * N_TOKENS * 40);
}

/* The name refers to another file: the opened file is still used. */
static void the_file_is_replaced(void **state) {
    (void)state;
    write_dense();
    pi_context_options o = options_for(1);
    feed(&o, 1, expected);
    o.ram_budget = least_budget(o);
    run_model r = run_open(MODEL_PATH, &o);
    unlink(MODEL_PATH);
    run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
    run_tokens(&r, tokens, N_TOKENS, 1, got);
    assert_memory_equal(expected, got, sizeof(float) * N_TOKENS * 40);
    run_close(&r);
}

#endif

static void cancelling(void **state) {
    (void)state;
    write_dense();
    pi_context_options o = options_for(2);
    feed(&o, 1, expected);
    o.ram_budget = least_budget(o);
    run_model r = run_open(MODEL_PATH, &o);
    pi_session *s = run_session(&r, N_TOKENS);
    run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++) {
        pi_input in = {.session = s, .tokens = tokens + i, .n_tokens = 1, .logits = PI_LOGITS_LAST};
        pi_context_cancel(r.context);
        assert_int_equal(pi_forward(r.context, &in, 1, NULL), PI_ERR_CANCELLED);
        run_feed(&r, s, tokens + i, 1, 1, got + i * r.n_vocab);
    }
    assert_memory_equal(expected, got, sizeof(float) * N_TOKENS * 40);
    pi_session_destroy(s);
    run_close(&r);
}

static void models_in_memory(void **state) {
    (void)state;
    write_dense();
    pi_context_options o = options_for(1);
    pi_model_options copy = pi_model_default_options();
    pi_model *m;
    pi_context *c;
    pi_error err;
    copy.no_mmap = true;
    o.ram_budget = 1024 * (uint64_t)MIB;
    assert_int_equal(pi_model_open(MODEL_PATH, &copy, &m, NULL), PI_OK);
    assert_int_equal(pi_context_create(m, &o, &c, &err), PI_ERR_ARG);
    run_check_message(&err, PI_ERR_ARG);
    o.ram_budget = PI_RAM_FREE; /* it has its memory */
    assert_int_equal(pi_context_create(m, &o, &c, &err), PI_OK);
    pi_context_destroy(c);
    pi_model_close(m);
}

static void memory_runs_out(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "qwen3moe";
    t.experts = (tiny_experts){.n = 8, .n_used = 2, .n_ff = 64};
    tiny_write(&t, MODEL_PATH);
    pi_context_options o = options_for(1);
    pi_model *m;
    pi_error err;
    o.ram_budget = least_budget(o) + 4096;
    assert_int_equal(pi_model_open(MODEL_PATH, NULL, &m, NULL), PI_OK);
    int failures = 0;
    bool over = false;
    for (int64_t n = 1; !over; n++) { /* threads replace an io_uring without memory */
        pi_context *c = NULL;
        int64_t before = mem_count();
        mem_fail_at(n);
        pi_status status = pi_context_create(m, &o, &c, &err);
        over = mem_count() - before < n;
        mem_fail_at(0);
        failures += status == PI_ERR_NOMEM;
        if (status != PI_OK && status != PI_ERR_NOMEM) fail_msg("%s", err.message);
        pi_context_destroy(c);
    }
    assert_true(failures > 20);
    pi_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_models),
        cmocka_unit_test(architectures),
        cmocka_unit_test(compressed_attention),
        cmocka_unit_test(recurrent_models),
        cmocka_unit_test(sparse_modes),
        cmocka_unit_test(mixtures_of_experts),
        cmocka_unit_test(predicted_experts),
        cmocka_unit_test(experts_stay),
        cmocka_unit_test(experts_ahead),
        cmocka_unit_test(sessions_share_steps),
        cmocka_unit_test(bundles),
        cmocka_unit_test(neurons_stay),
#if !defined(_WIN32)
        cmocka_unit_test(the_file_changes),
        cmocka_unit_test(the_file_is_replaced),
#endif
        cmocka_unit_test(cancelling),
        cmocka_unit_test(models_in_memory),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, remove_model);
}
