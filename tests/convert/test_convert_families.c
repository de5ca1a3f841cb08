/* test_convert_families.c: for every family, a folder made from a GGUF file of another program
 * (family_folder.h) is converted back: each tensor has the same bytes, and the model gives the same
 * logits. The other program's files have scales per tensor and tables of rotary factors, which no
 * folder of these families can have: the comparison uses the file without them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "affix.h"
#include "encoder_model.h"
#include "family_folder.h"
#include "gguf_writer.h"
#include "hf_family.h"
#include "layer_embd_model.h"
#include "recurrent_model.h"
#include "run_model.h"
#include "shared_data.h"
#include "tiny_model.h"

#define MADE_PATH TEST_BINARY_DIR "/test_convert_families.gguf"

enum { N_TOKENS = 48 };

/* Tensors that the folder cannot have, or that the architecture does not use. Gemma 4's routers
 * have scales. */
static bool scaled_routers;
/* Qwen3-Next's older form; Kimi's biases, which are not added */
static bool old_projection, unused_biases;
static bool no_head_bias; /* an architecture that refuses output.bias */
static bool is_ignored(const char *name) {
    if (scaled_routers &&
        (ends_with(name, "ffn_gate_inp.scale") || ends_with(name, "ffn_down_exps.scale")))
        return false;
    if (old_projection && ends_with(name, ".ssm_in.weight")) return true;
    if (no_head_bias && strcmp(name, "output.bias") == 0) return true;
    if (unused_biases && strstr(name, ".attn_") && ends_with(name, ".bias")) return true;
    return ends_with(name, ".scale") || ends_with(name, ".input_scale") ||
           starts_with(name, "rope_") || strcmp(name, "cls.output.weight") == 0 ||
           strcmp(name, "cls.weight") == 0 || strcmp(name, "cls.bias") == 0 ||
           strcmp(name, "cls.output.bias") == 0;
}

/* Writes the file without those tensors. */
static void write_without(const gguf_file *g, const char *path) {
    gguf_writer *w = NULL;
    pi_error err = {0};
    assert_int_equal(gguf_writer_create(path, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)v->key.n_bytes, v->key.data);
        if (!ends_with(key, ".rope.dimension_sections")) gguf_put_value(w, v);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            if (is_ignored(t->name)) continue;
            if (pass == 0)
                assert_int_equal(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err),
                                 PI_OK);
            else
                assert_int_equal(gguf_write_data(w, t->data, t->n_bytes, &err), PI_OK);
        }
        if (pass == 0) assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
}

static const gguf_tensor *need(const gguf_file *g, const char *file, const char *name) {
    const gguf_tensor *t = gguf_find_tensor(g, name);
    if (!t) fail_msg("%s: no tensor %s", file, name);
    return t;
}

/* Adding and subtracting one rounds a number that is not between a half and two; so do a logarithm
 * and its inverse. */
static bool same_numbers(const gguf_tensor *a, const gguf_tensor *b) {
    if (!ends_with(a->name, "norm.weight") && !ends_with(a->name, "ssm_a")) return false;
    for (uint64_t i = 0; i < a->n_elems; i++) {
        float x, y;
        memcpy(&x, a->data + i * sizeof x, sizeof x);
        memcpy(&y, b->data + i * sizeof y, sizeof y);
        if (!(fabsf(x - y) <= 1.2e-7f)) return false;
    }
    return true;
}

/* Gate and up in one tensor; here they are separate. */
static void compare_fused(const gguf_tensor *want, const gguf_file *got, const char *file) {
    static const char *const parts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight"};
    for (size_t k = 0; k < 2; k++) {
        char name[96];
        snprintf(name, sizeof name, "%.*s%s", (int)(strstr(want->name, "ffn_") - want->name),
                 want->name, parts[k]);
        const gguf_tensor *part = need(got, file, name);
        size_t half = want->n_bytes / (size_t)want->dims[2] / 2;
        assert_int_equal(part->n_bytes, want->n_bytes / 2);
        for (uint64_t e = 0; e < want->dims[2]; e++)
            if (memcmp(part->data + e * half, want->data + (2 * e + k) * half, half) != 0)
                fail_msg("%s: %s, expert %d", file, name, (int)e);
    }
}

static void compare_tensors(const gguf_file *want, const gguf_file *got, const char *file) {
    for (uint64_t i = 0; i < gguf_n_tensors(want); i++) {
        const gguf_tensor *a = gguf_tensor_at(want, i);
        if (strstr(a->name, "ffn_gate_up_exps")) {
            compare_fused(a, got, file);
            continue;
        }
        const gguf_tensor *b = need(got, file, a->name);
        bool same = a->type == b->type && a->n_bytes == b->n_bytes;
        for (int d = 0; d < GGUF_MAX_DIMS; d++) same &= a->dims[d] == b->dims[d];
        if (!same) fail_msg("%s: %s has another shape or type", file, a->name);
        if (memcmp(a->data, b->data, a->n_bytes) == 0) continue;
        if (!same_numbers(a, b)) fail_msg("%s: %s has other numbers", file, a->name);
    }
}

static void feed(const char *path, float **logits, int *n_vocab) {
    pi_context_options options = run_exact_options();
    run_model r = run_open(path, &options);
    int32_t tokens[N_TOKENS];
    run_random_tokens(7, r.n_vocab, tokens, N_TOKENS);
    *n_vocab = r.n_vocab;
    *logits = malloc((size_t)r.n_vocab * N_TOKENS * sizeof **logits);
    assert_non_null(*logits);
    run_tokens(&r, tokens, N_TOKENS, 0, *logits);
    run_close(&r);
}

static void compare_logits(const char *want, const char *got, const char *file) {
    float *a, *b;
    int n_vocab;
    feed(want, &a, &n_vocab);
    feed(got, &b, &n_vocab);
    double nmse = run_nmse(b, a, (int64_t)n_vocab * N_TOKENS);
    if (!(nmse <= 1e-10)) fail_msg("%s: logits differ: NMSE %g", file, nmse);
    free(a);
    free(b);
}

/* Returns the case without the rules of biases that its architecture refuses. */
static const family_case *without_biases(const family_case *c) {
    static family_case copy;
    copy = *c;
    copy.n_rules = 0;
    for (int i = 0; i < c->n_rules; i++)
        if (!is_ignored(c->rules[i].inputs[0])) copy.rules[copy.n_rules++] = c->rules[i];
    return &copy;
}

static void check_case(const family_case *c, const char *path) {
    hf_folder f;
    pi_error err = {0};
    gguf_file *g = NULL, *want = NULL, *got = NULL;
    if (gguf_open(path, NULL, &g, &err) != PI_OK) fail_msg("%s", err.message);
    char reference[FOLDER_PATH + 8];
    scaled_routers = starts_with(c->file, "more/gemma4");
    old_projection = strcmp(c->file, "more/qwen3next-moe") == 0;
    bool qwen3_vl = strstr(c->config, "\"qwen3_vl");
    unused_biases = qwen3_vl || starts_with(c->file, "next/qwen4exp") ||
                    strcmp(c->file, "more/kimi-linear-moe") == 0;
    no_head_bias = qwen3_vl || strstr(c->config, "\"qwen2_vl") || strstr(c->config, "\"qwen2_5_vl");
    if (no_head_bias) c = without_biases(c);
    folder_open(&f);
    snprintf(reference, sizeof reference, "%s.ref", f.out);
    family_write(c, g, is_ignored, &f);
    write_without(g, reference);
    const gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    const char *type = embd->type == QUANT_F32 ? "f32" : "f16";
    if (folder_convert(&f, type, &err) != PI_OK) fail_msg("%s: %s", c->file, err.message);
    if (gguf_open(reference, NULL, &want, &err) != PI_OK) fail_msg("%s", err.message);
    if (gguf_open(f.out, NULL, &got, &err) != PI_OK) fail_msg("%s", err.message);
    compare_tensors(want, got, c->file);
    /* a tiny file has a scale of experts, which SmallThinker's config.json has no name for */
    bool logits = strcmp(c->file, "with a profiler") != 0 && strcmp(c->file, "made/bert") != 0 &&
                  strcmp(c->file, "made/roberta") != 0;
    if (logits) compare_logits(reference, f.out, c->file);
    gguf_close(want);
    gguf_close(got);
    gguf_close(g);
    unlink(reference);
    folder_close(&f);
}

static family_case cases[FAMILY_MAX_CASES];
static int n_cases;

static void test_families(void **state) {
    (void)state;
    int n_checked = 0;
    for (int i = 0; i < n_cases; i++) {
        char below[128], path[1024];
        if (starts_with(cases[i].file, "made/")) continue;
        snprintf(below, sizeof below, "conformance/%.63s.gguf", cases[i].file);
        if (!shared_path(path, sizeof path, below)) continue;
        check_case(&cases[i], path);
        n_checked++;
    }
    printf("%d families of files checked\n", n_checked);
    if (n_checked == 0) skip();
}

static family_case *find_case(const char *file) {
    int i = 0;
    while (i < n_cases && strcmp(cases[i].file, file) != 0) i++;
    assert_true(i < n_cases);
    return &cases[i];
}

/* Per-layer embeddings and FFNs of two widths; several residual streams. */
static void test_layer_embeddings(void **state) {
    (void)state;
    ple_write(MADE_PATH, QUANT_F32, PLE_WIDTH);
    check_case(find_case("made/gemma4-e2b"), MADE_PATH);
    ple_write_streams(MADE_PATH, QUANT_F32, 0);
    check_case(find_case("made/gemma3n"), MADE_PATH);
}

/* Several value heads per key head, and Nemotron-H's experts. */
static void test_recurrent(void **state) {
    (void)state;
    static const char *const archs[] = {"qwen3next", "qwen35", "nemotron_h_moe"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        recurrent_write(archs[i], NULL, MADE_PATH);
        snprintf(name, sizeof name, "made/%s", archs[i]);
        check_case(find_case(name), MADE_PATH);
    }
}

/* An encoder has no logits. */
static void test_bert(void **state) {
    (void)state;
    encoder_write(MADE_PATH, "bert", 5);
    check_case(find_case("made/bert"), MADE_PATH);
    check_case(find_case("made/roberta"), MADE_PATH);
}

static void test_rwkv(void **state) {
    (void)state;
    recurrent_write("rwkv6", NULL, MADE_PATH);
    check_case(find_case("made/rwkv6"), MADE_PATH);
    recurrent_write("rwkv7", NULL, MADE_PATH);
    check_case(find_case("made/rwkv7"), MADE_PATH);
}

/* Writes MADE_PATH: layers with and without a window have different numbers of heads, rotated
 * elements, bases and limits. */
static void write_step35(void) {
    static const char other[] = TEST_BINARY_DIR "/test_convert_step35.gguf";
    enum { N = TINY_MAX_LAYERS };
    const bool windows[N] = {false, true, false, true};
    const float limits[2][N] = {{0, 0, 0.3f, 0}, {0, 0, 0, 0.2f}};
    tiny_model t = tiny_default();
    t.arch = "bailingmoe2";
    t.n_layer = N;
    t.head_dim = t.n_rot = 16;
    t.n_vocab = 160;
    for (int i = 0; i < N; i++) {
        t.n_head[i] = windows[i] ? 6 : 4;
        t.n_head_kv[i] = windows[i] ? 3 : 2;
        t.n_ff[i] = 64;
    }
    t.experts = (tiny_experts){
        .n = 4, .n_used = 2, .n_ff = 32, .n_dense = 1, .n_ff_shared = 16, .select_bias = true};
    tiny_write(&t, other);
    gguf_file *g;
    gguf_writer *w;
    pi_error err = {0};
    assert_int_equal(gguf_open(other, NULL, &g, &err), PI_OK);
    assert_int_equal(gguf_writer_create(MADE_PATH, &w, &err), PI_OK);
    gguf_put_string(w, "general.architecture", "step35");
    for (uint64_t i = 0; i < gguf_n_values(g); i++) {
        static const char prefix[] = "bailingmoe2.";
        static const char *const own[] = {"rope.freq_base", "expert_weights_scale"};
        gguf_value v = *gguf_value_at(g, i);
        char key[96];
        snprintf(key, sizeof key, "%.*s", (int)v.key.n_bytes, v.key.data);
        if (strcmp(key, "general.architecture") == 0) continue;
        if (starts_with(key, prefix)) {
            const char *suffix = key + sizeof prefix - 1;
            if (strcmp(suffix, own[0]) == 0 || strcmp(suffix, own[1]) == 0) continue;
            snprintf(key, sizeof key, "step35.%.*s", (int)(v.key.n_bytes - sizeof prefix + 1),
                     v.key.data + sizeof prefix - 1);
            v.key = (gguf_string){key, strlen(key)};
        }
        gguf_put_value(w, &v);
    }
    gguf_put_f32(w, "step35.rope.freq_base", 5e6f);
    gguf_put_f32(w, "step35.rope.freq_base_swa", 1e4f);
    gguf_put_f32(w, "step35.expert_weights_scale", 2.5f);
    gguf_put_u32(w, "step35.attention.sliding_window", 16);
    gguf_put_array(w, "step35.attention.sliding_window_pattern", GGUF_BOOL, windows, N);
    gguf_put_array(w, "step35.swiglu_clamp_exp", GGUF_F32, limits[0], N);
    gguf_put_array(w, "step35.swiglu_clamp_shexp", GGUF_F32, limits[1], N);
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *x = gguf_tensor_at(g, i);
            assert_int_equal(data ? gguf_write_data(w, x->data, x->n_bytes, &err)
                                  : gguf_add_tensor(w, x->name, x->type, x->n_dims, x->dims, &err),
                             PI_OK);
        }
        for (int i = 0; i < N; i++) {
            const uint64_t dims[] = {(uint64_t)t.n_embd, (uint64_t)t.n_head[i]};
            const gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
            char name[64];
            snprintf(name, sizeof name, "blk.%d.attn_gate.weight", i);
            assert_int_equal(data ? gguf_write_data(w, embd->data,
                                                    (size_t)(dims[0] * dims[1]) * sizeof(float),
                                                    &err)
                                  : gguf_add_tensor(w, name, QUANT_F32, 2, dims, &err),
                             PI_OK);
        }
        if (!data) assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(g);
    unlink(other);
}

static void test_step35(void **state) {
    (void)state;
    write_step35();
    check_case(find_case("made/step35"), MADE_PATH);
}

static void test_apertus(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "apertus";
    tiny_write(&t, MADE_PATH);
    check_case(find_case("made/apertus"), MADE_PATH);
}

/* EXAONE 3, for which that data has no file. */
static void test_exaone(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.arch = "exaone";
    t.head_dim = t.n_rot = 16;
    t.n_vocab = 160;
    tiny_write(&t, MADE_PATH);
    check_case(find_case("made/exaone"), MADE_PATH);
}

/* Other families without a file: recorded references (tests/golden/reference). */
static void test_recorded(void **state) {
    (void)state;
    static const char *const archs[] = {"chatglm", "deepseek",       "mellum",
                                        "orion",   "pangu-embedded", "maincoder",
                                        "xverse",  "qwen3vlmoe",     "gpt2"};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        char path[1024], name[64];
        snprintf(path, sizeof path, "%s/tests/golden/reference/more/%s-tiny.gguf", TEST_SOURCE_DIR,
                 archs[i]);
        snprintf(name, sizeof name, "made/%s", archs[i]);
        check_case(find_case(name), path);
    }
}

/* Several heads in one matrix of keys and values; no file of that data has this form. */
static void test_latent_heads(void **state) {
    (void)state;
    static family_case c;
    tiny_model t = tiny_default();
    c = *find_case("more/deepseek2-moe");
    snprintf(c.file, sizeof c.file, "several heads");
    snprintf(c.config, sizeof c.config, "%s",
             "{\"model_type\":\"deepseek_v2\",\"hidden_size\":$n_embd,\"intermediate_size\":$n_ff,"
             "\"num_hidden_layers\":$n_layer,\"num_attention_heads\":$n_head,"
             "\"vocab_size\":160,\"q_lora_rank\":null,\"kv_lora_rank\":$n_latent,"
             "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":$n_rot,\"v_head_dim\":$v_dim,"
             "\"max_position_embeddings\":$n_ctx,\"rms_norm_eps\":$eps,\"rope_theta\":$base}");
    t.arch = "deepseek2";
    t.head_dim = 24;
    t.n_rot = 8;
    t.n_latent = 24;
    t.v_dim = 12;
    t.n_vocab = 160;
    tiny_set_heads(&t, 4, 1);
    tiny_write(&t, MADE_PATH);
    check_case(&c, MADE_PATH);
}

/* The original PowerInfer's predictor of the output head: one row, whose length no number gives. */
static void test_profiler(void **state) {
    (void)state;
    static family_case c;
    tiny_model t = tiny_default();
    c = *find_case("more/smallthinker-moe");
    snprintf(c.file, sizeof c.file, "with a profiler");
    snprintf(c.config, sizeof c.config, "%s",
             "{\"model_type\":\"smallthinker\",\"hidden_size\":$n_embd,"
             "\"num_hidden_layers\":$n_layer,\"num_attention_heads\":$n_head,"
             "\"num_key_value_heads\":$n_head_kv,\"head_dim\":$head_dim,\"vocab_size\":40,"
             "\"moe_ffn_hidden_size\":$n_ff_exp,\"moe_num_primary_experts\":$n_expert,"
             "\"moe_num_active_primary_experts\":$n_used,\"norm_topk_prob\":true,"
             "\"moe_primary_router_apply_softmax\":true,\"sliding_window_size\":4096,"
             "\"sliding_window_layout\":[0,1],\"rope_layout\":[0,1],"
             "\"max_position_embeddings\":$n_ctx,\"rms_norm_eps\":$eps,\"rope_theta\":$base}");
    t.arch = "smallthinker";
    t.head_dim = t.n_rot = 16;
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 32};
    t.head = (tiny_head){.rank = 24, .type = "f32", .profiler = true};
    tiny_write(&t, MADE_PATH);
    check_case(&c, MADE_PATH);
}

/* Kimi's decays with a bound; no file of that data has one: the same weights with the key, and with
 * the number in config.json. */
static void test_bounded_decays(void **state) {
    (void)state;
    static family_case c;
    char path[1024];
    gguf_file *g;
    gguf_writer *w;
    pi_error err = {0};
    if (!shared_path(path, sizeof path, "conformance/more/kimi-linear-moe.gguf")) return;
    c = *find_case("more/kimi-linear-moe");
    static const char part[] = "\"linear_attn_config\":{";
    char *at = strstr(c.config, part), rest[sizeof c.config];
    assert_non_null(at);
    at += sizeof part - 1;
    snprintf(rest, sizeof rest, "%s", at);
    snprintf(at, sizeof c.config - (size_t)(at - c.config), "\"gate_lower_bound\":-2.5,%s", rest);
    assert_int_equal(gguf_open(path, NULL, &g, &err), PI_OK);
    assert_int_equal(gguf_writer_create(MADE_PATH, &w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        bool ours = gguf_string_is(v->key, "kimi-linear.kda.safe_gate") ||
                    gguf_string_is(v->key, "kimi-linear.kda.gate_lower_bound");
        if (!ours) gguf_put_value(w, v);
    }
    gguf_put_f32(w, "kimi-linear.kda.gate_lower_bound", -2.5f);
    for (int data = 0; data < 2; data++) {
        for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
            const gguf_tensor *t = gguf_tensor_at(g, i);
            pi_status status = data
                                   ? gguf_write_data(w, t->data, t->n_bytes, &err)
                                   : gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err);
            assert_int_equal(status, PI_OK);
        }
        if (!data) assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(g);
    check_case(&c, MADE_PATH);
    /* the bound changes the result */
    float *bounded, *free_of_it;
    int n;
    feed(MADE_PATH, &bounded, &n);
    feed(path, &free_of_it, &n);
    assert_true(run_nmse(bounded, free_of_it, (int64_t)n * N_TOKENS) > 1e-8);
    free(bounded);
    free(free_of_it);
}

/* Values shorter than keys, as in the published MiMo-V2-Flash. */
static void test_uneven_heads(void **state) {
    (void)state;
    static family_case c;
    tiny_model t = tiny_default();
    c = *find_case("more/mimo2-moe");
    snprintf(c.file, sizeof c.file, "uneven heads");
    snprintf(c.config, sizeof c.config, "%s",
             "{\"model_type\":\"mimo_v2_flash\",\"hidden_size\":$n_embd,"
             "\"intermediate_size\":$n_ff,\"num_hidden_layers\":$n_layer,"
             "\"num_attention_heads\":$n_head,\"num_key_value_heads\":$n_head_kv,"
             "\"head_dim\":48,\"v_head_dim\":32,\"swa_head_dim\":48,\"swa_v_head_dim\":32,"
             "\"swa_num_attention_heads\":$n_head,\"partial_rotary_factor\":0.334,"
             "\"vocab_size\":160,\"max_position_embeddings\":$n_ctx,"
             "\"layernorm_epsilon\":$eps,\"hidden_act\":\"silu\",\"rope_theta\":$base}");
    t.arch = "mimo2";
    t.head_dim = 48;
    t.n_rot = 16;
    t.v_dim = 32;
    t.n_vocab = 160;
    tiny_write(&t, MADE_PATH);
    check_case(&c, MADE_PATH);
}

/* Every family has a case; the table's rows name existing architectures. */
static void test_all_families_have_a_case(void **state) {
    (void)state;
    for (int i = 0; i < hf_family_count(); i++) {
        const hf_family *family = hf_family_at(i);
        assert_non_null(hf_family_arch(family));
        bool found = false;
        for (int k = 0; k < n_cases && !found; k++) {
            for (const char *const *type = family->types; *type && !found; type++) {
                char quoted[64];
                snprintf(quoted, sizeof quoted, "\"%s\"", *type);
                found = strstr(cases[k].config, quoted) != NULL;
            }
        }
        for (int k = 0; k < hf_family_count() && !found; k++) { /* reached through another family */
            const char *type = hf_family_at(k)->with_experts;
            found = type && strcmp(type, family->types[0]) == 0;
        }
        /* other tests write these: that data has no file of opt and bamboo */
        bool elsewhere = strcmp(family->arch, "opt") == 0 || strcmp(family->arch, "bamboo") == 0;
        if (!found && !elsewhere) fail_msg("no case for %s", family->types[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),       cmocka_unit_test(test_bert),
        cmocka_unit_test(test_rwkv),           cmocka_unit_test(test_step35),
        cmocka_unit_test(test_apertus),        cmocka_unit_test(test_exaone),
        cmocka_unit_test(test_recorded),       cmocka_unit_test(test_latent_heads),
        cmocka_unit_test(test_uneven_heads),   cmocka_unit_test(test_profiler),
        cmocka_unit_test(test_bounded_decays), cmocka_unit_test(test_layer_embeddings),
        cmocka_unit_test(test_recurrent),      cmocka_unit_test(test_all_families_have_a_case),
    };
    n_cases = family_read(cases);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
