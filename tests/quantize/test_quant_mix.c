/* test_quant_mix.c: the type of every tensor. Files quantized by llama.cpp give the expected types
 * of a small model; this file states them for the shapes of large models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mem.h"
#include "quant_mix.h"
#include "quantize_files.h"
#include "shared_data.h"

#define PATH TEST_BINARY_DIR "/test_quant_mix.gguf"

enum { MAX_TENSORS = 1024 };

static quant_mix_choice choices[MAX_TENSORS];

static void choose(const gguf_file *f, quant_mix_request r) {
    pi_error err = {0};
    assert_non_null(r.mix);
    assert_in_range(gguf_n_tensors(f), 0, MAX_TENSORS);
    if (quant_mix_choose(f, &r, choices, &err) != PI_OK) fail_msg("%s", err.message);
}

static quant_type type_of(const gguf_file *f, const char *name) {
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++)
        if (strcmp(gguf_tensor_at(f, i)->name, name) == 0) return choices[i].type;
    fail_msg("no tensor %s", name);
    return QUANT_F32;
}

static quant_mix_request mix(const char *name) {
    return (quant_mix_request){.mix = quant_mix_find(name)};
}

/* ---- llama.cpp's files ----------------------------------------------------------------------- */

static gguf_file *open_shared(const char *relative) {
    char path[1024];
    if (!shared_path(path, sizeof path, relative)) skip();
    return made_open(path);
}

static void test_same_as_files(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool pure; /* files with 32-element types have no mixture */
    } files[] = {
        {"BF16", false}, {"Q8_0", false},  {"Q4_0", true},    {"Q4_1", true},    {"Q5_0", true},
        {"Q5_1", true},  {"Q2_K", false},  {"Q3_K_M", false}, {"Q4_K_M", false}, {"Q5_K_M", false},
        {"Q6_K", false}, {"IQ4_NL", true}, {"IQ4_XS", false},
    };
    gguf_file *f = open_shared("conformance/arch/llama-dense.gguf");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, "conformance/quant/llama-dense.%s.gguf", files[i].name);
        gguf_file *expected = open_shared(path);
        quant_mix_request r = mix(files[i].name);
        r.pure = files[i].pure;
        choose(f, r);
        for (uint64_t k = 0; k < gguf_n_tensors(f); k++) {
            const gguf_tensor *t = gguf_tensor_at(f, k);
            const gguf_tensor *e = gguf_find_tensor(expected, t->name);
            if (!e) fail_msg("no %s in %s", t->name, path);
            if (e->type != choices[k].type)
                fail_msg("%s of %s: %s, not %s", t->name, files[i].name,
                         quant_find((uint32_t)choices[k].type)->name,
                         quant_find((uint32_t)e->type)->name);
        }
        uint64_t file_type = 0;
        assert_true(gguf_as_u64(gguf_find(expected, "general.file_type"), &file_type));
        assert_int_equal(r.mix->file_type, file_type);
        gguf_close(expected);
    }
    gguf_close(f);
}

/* ---- explicit rules -------------------------------------------------------------------------- */

typedef struct shape {
    const char *arch;
    uint32_t n_layer, n_head, n_head_kv, n_expert;
    uint64_t width; /* length of rows */
    bool tied;
} shape;

static shape current;

static void put_shape(gguf_writer *w) {
    char key[64];
    gguf_put_string(w, "general.architecture", current.arch);
    snprintf(key, sizeof key, "%s.block_count", current.arch);
    gguf_put_u32(w, key, current.n_layer);
    snprintf(key, sizeof key, "%s.attention.head_count", current.arch);
    gguf_put_u32(w, key, current.n_head);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", current.arch);
    gguf_put_u32(w, key, current.n_head_kv);
    snprintf(key, sizeof key, "%s.expert_count", current.arch);
    gguf_put_u32(w, key, current.n_expert);
}

/* Writes layers from last to first: the order in the file must not matter. */
static gguf_file *make(const shape *s) {
    enum { NAMES = 8 };
    static const char *const parts[NAMES] = {"attn_norm",   "attn_q",      "attn_k",
                                             "attn_v",      "attn_output", "ffn_gate_inp",
                                             "ffn_up_exps", "ffn_down"};
    static char names[MAX_TENSORS][GGUF_MAX_NAME];
    static made_tensor tensors[MAX_TENSORS];
    int n = 0;
    current = *s;
    tensors[n++] = (made_tensor){"token_embd.weight", QUANT_F16, 2, {s->width, 2, 1, 1}};
    if (!s->tied) tensors[n++] = (made_tensor){"output.weight", QUANT_F16, 2, {s->width, 2, 1, 1}};
    for (uint32_t l = s->n_layer; l-- > 0;) {
        for (int i = 0; i < NAMES; i++) {
            snprintf(names[n], sizeof names[n], "blk.%u.%s.weight", l, parts[i]);
            bool stack = strstr(parts[i], "exps") != NULL;
            tensors[n] = (made_tensor){names[n],
                                       QUANT_F16,
                                       i == 0  ? 1
                                       : stack ? 3
                                               : 2,
                                       {s->width, 2, 2, 1}};
            n++;
        }
    }
    made_write(PATH, tensors, n, 1, put_shape);
    return made_open(PATH);
}

static quant_type layer_type(const gguf_file *f, int layer, const char *part) {
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return type_of(f, name);
}

/* Checks the layers whose tensor `part` has `type`; `expected` has a "1" for each of them. */
static void assert_layers(const gguf_file *f, const char *part, quant_type type,
                          const char *expected) {
    char found[128] = "";
    size_t n = strlen(expected);
    for (size_t l = 0; l < n; l++) found[l] = layer_type(f, (int)l, part) == type ? '1' : '.';
    assert_string_equal(found, expected);
}

static const shape llama_7b = {"llama", 32, 32, 32, 0, 256, false};

static void test_large_llama(void **state) {
    (void)state;
    /* the first 4 and the last 4 of 32, and every third between them */
    static const char more[] = "1111..1..1..1..1..1..1..1..11111";
    gguf_file *f = make(&llama_7b);
    choose(f, mix("q4_k_m"));
    assert_layers(f, "attn_v", QUANT_Q6_K, more);
    assert_layers(f, "ffn_down", QUANT_Q6_K, more);
    assert_layers(f, "attn_q", QUANT_Q4_K, "11111111111111111111111111111111");
    assert_layers(f, "attn_norm", QUANT_F16, "11111111111111111111111111111111");
    assert_layers(f, "ffn_gate_inp", QUANT_F16, "11111111111111111111111111111111");
    assert_int_equal(type_of(f, "output.weight"), QUANT_Q6_K);
    assert_int_equal(type_of(f, "token_embd.weight"), QUANT_Q4_K);
    choose(f, mix("Q5_K"));
    assert_layers(f, "ffn_down", QUANT_Q6_K, more);
    choose(f, mix("Q4_K_S"));
    assert_layers(f, "attn_v", QUANT_Q5_K, "1111............................");
    assert_layers(f, "ffn_down", QUANT_Q5_K, "1111............................");
    choose(f, mix("Q3_K_M"));
    assert_layers(f, "attn_v", QUANT_Q5_K, "11..............................");
    assert_layers(f, "ffn_down", QUANT_Q5_K, "11..............................");
    assert_layers(f, "attn_output", QUANT_Q4_K, "11111111111111111111111111111111");
    choose(f, mix("Q3_K_L"));
    assert_layers(f, "ffn_down", QUANT_Q5_K, "11111111111111111111111111111111");
    choose(f, mix("Q2_K_S"));
    assert_layers(f, "ffn_down", QUANT_Q4_K, "1111............................");
    choose(f, mix("IQ4_XS"));
    assert_layers(f, "ffn_down", QUANT_Q5_K, "1111............................");
    quant_mix_request r = mix("IQ4_XS");
    r.has_importance = true;
    choose(f, r);
    assert_layers(f, "ffn_down", QUANT_IQ4_XS, "11111111111111111111111111111111");
    r = mix("Q4_0");
    choose(f, r);
    assert_layers(f, "ffn_down", QUANT_Q4_0, "11111111111111111111111111111111");
    assert_int_equal(type_of(f, "output.weight"), QUANT_Q6_K);
    r.has_importance = true;
    choose(f, r);
    assert_layers(f, "ffn_down", QUANT_Q4_1, "1111............................");
    gguf_close(f);
}

static void test_other_shapes(void **state) {
    (void)state;
    shape s = llama_7b;
    s.n_head_kv = 8;
    gguf_file *f = make(&s);
    choose(f, mix("Q2_K"));
    assert_int_equal(layer_type(f, 9, "attn_v"), QUANT_Q4_K);
    choose(f, mix("IQ4_NL"));
    assert_int_equal(layer_type(f, 9, "attn_v"), QUANT_Q5_K);
    gguf_close(f);

    s.n_layer = 80; /* 70B */
    f = make(&s);
    choose(f, mix("Q3_K_S"));
    assert_int_equal(layer_type(f, 50, "attn_v"), QUANT_Q5_K);
    choose(f, mix("Q4_K_M"));
    assert_int_equal(layer_type(f, 79, "attn_v"), QUANT_Q6_K);
    assert_int_equal(layer_type(f, 10, "attn_v"), QUANT_Q5_K);
    gguf_close(f);

    s = llama_7b;
    s.n_expert = 8;
    f = make(&s);
    choose(f, mix("Q4_K_M"));
    assert_int_equal(layer_type(f, 10, "attn_v"), QUANT_Q8_0);
    assert_int_equal(layer_type(f, 10, "attn_k"), QUANT_Q8_0);
    assert_int_equal(layer_type(f, 10, "attn_output"), QUANT_Q5_K);
    choose(f, mix("MXFP4_MOE"));
    assert_int_equal(layer_type(f, 10, "ffn_up_exps"), QUANT_MXFP4);
    assert_int_equal(layer_type(f, 10, "attn_q"), QUANT_Q8_0);
    gguf_close(f);

    s = llama_7b;
    s.arch = "falcon";
    f = make(&s);
    choose(f, mix("Q4_K_M"));
    assert_int_equal(type_of(f, "output.weight"), QUANT_Q8_0);
    assert_layers(f, "ffn_down", QUANT_Q6_K, "11..............................");
    assert_layers(f, "ffn_down", QUANT_Q5_K, "..11..1..1..1..1..1..1..1..11111");
    gguf_close(f);

    s = llama_7b;
    s.tied = true;
    s.arch = "unheard-of";
    s.n_layer = 2;
    f = make(&s);
    choose(f, mix("Q4_K_M"));
    assert_int_equal(type_of(f, "token_embd.weight"), QUANT_Q6_K);
    choose(f, mix("F16"));
    assert_int_equal(type_of(f, "token_embd.weight"), QUANT_F16);
    gguf_close(f);
}

/* The files were quantized with explicit types for head and embeddings. */
static void test_same_as_low_files(void **state) {
    (void)state;
    static const char *const names[] = {"IQ1_S", "IQ1_M",   "IQ2_XXS", "IQ2_XS", "IQ2_S",
                                        "IQ2_M", "IQ3_XXS", "IQ3_XS",  "IQ3_S",  "IQ3_M",
                                        "TQ1_0", "TQ2_0",   "Q1_0",    "Q2_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "conformance/lowbit/llama-dense.%s.gguf", names[i]);
        gguf_file *f = open_shared(path);
        quant_mix_request r = mix(names[i]);
        r.has_importance = r.has_output_type = r.has_embedding_type = true;
        r.output_type = QUANT_Q6_K;
        r.embedding_type = QUANT_Q4_K;
        choose(f, r);
        uint64_t number;
        assert_true(gguf_as_u64(gguf_find(f, "general.file_type"), &number));
        assert_int_equal(r.mix->file_type, number);
        for (uint64_t k = 0; k < gguf_n_tensors(f); k++) {
            const gguf_tensor *t = gguf_tensor_at(f, k);
            if (t->type != choices[k].type)
                fail_msg("%s of %s: %s, not %s", t->name, names[i],
                         quant_find((uint32_t)choices[k].type)->name,
                         quant_find((uint32_t)t->type)->name);
        }
        gguf_close(f);
    }
}

/* Cases that no file covers: more query heads than KV heads, first and last layers, no
 * importance. */
static void test_low_mixes(void **state) {
    (void)state;
    gguf_file *f = make(&llama_7b);
    choose(f, mix("IQ2_M"));
    assert_int_equal(type_of(f, "output.weight"), QUANT_Q5_K);
    assert_int_equal(type_of(f, "token_embd.weight"), QUANT_IQ3_S);
    assert_layers(f, "ffn_down", QUANT_IQ3_S, "1111............................");
    choose(f, mix("IQ1_S"));
    assert_int_equal(type_of(f, "token_embd.weight"), QUANT_Q2_K);
    assert_layers(f, "ffn_down", QUANT_Q2_K, "1111............................");
    choose(f, mix("IQ3_XS"));
    assert_layers(f, "ffn_up_exps", QUANT_IQ3_XXS, "....111111111111111111111111....");
    choose(f, mix("IQ3_XXS"));
    assert_layers(f, "ffn_down", QUANT_Q4_K, "1111............................");
    assert_layers(f, "ffn_down", QUANT_Q3_K, "....1111111111111111111111111111");
    assert_int_equal(layer_type(f, 0, "attn_v"), QUANT_IQ3_S);
    gguf_close(f);
    assert_true(quant_mix_wants_importance(QUANT_IQ2_S, "blk.0.attn_q.weight"));
    assert_false(quant_mix_wants_importance(QUANT_IQ2_S, "output.weight"));
    assert_false(quant_mix_wants_importance(QUANT_IQ3_S, "blk.0.attn_q.weight"));
}

static void test_rows_that_do_not_fit(void **state) {
    (void)state;
    static const struct {
        const char *mix;
        quant_type type;
    } cases[] = {
        {"Q2_K", QUANT_IQ4_NL}, {"Q3_K_S", QUANT_IQ4_NL}, {"IQ4_XS", QUANT_IQ4_NL},
        {"Q4_K_M", QUANT_Q5_0}, {"Q5_K_M", QUANT_Q5_1},   {"Q6_K", QUANT_Q8_0},
        {"Q4_0", QUANT_Q4_0},
    };
    shape s = llama_7b;
    s.n_layer = 1;
    s.width = 96;
    gguf_file *f = make(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        choose(f, mix(cases[i].mix));
        assert_int_equal(layer_type(f, 0, "attn_q"), cases[i].type);
        assert_int_equal(type_of(f, "output.weight"), QUANT_Q8_0);
    }
    gguf_close(f);
    s.width = 40;
    f = make(&s);
    choose(f, mix("Q4_0"));
    assert_int_equal(layer_type(f, 0, "attn_q"), QUANT_F16);
    assert_int_equal(type_of(f, "output.weight"), QUANT_F16);
    gguf_close(f);
}

static void test_overrides(void **state) {
    (void)state;
    static const pi_tensor_type overrides[] = {
        {"blk.?.attn_v.weight", "f16"}, {"attn_v", "q8_0"}, {"blk.[01].ffn_*", "q5_1"}};
    gguf_file *f = make(&llama_7b);
    quant_mix_request r = mix("Q4_K_M");
    r.overrides = overrides;
    r.n_overrides = 3;
    r.has_output_type = true;
    r.output_type = QUANT_BF16;
    r.has_embedding_type = true;
    r.embedding_type = QUANT_Q8_0;
    choose(f, r);
    assert_layers(f, "attn_v", QUANT_F16, "1111111111......................");
    assert_layers(f, "attn_v", QUANT_Q8_0, "..........1111111111111111111111");
    assert_layers(f, "ffn_down", QUANT_Q5_1, "11..............................");
    assert_layers(f, "ffn_gate_inp", QUANT_F16, "11111111111111111111111111111111");
    assert_int_equal(type_of(f, "output.weight"), QUANT_BF16);
    assert_int_equal(type_of(f, "token_embd.weight"), QUANT_Q8_0);
    r.has_output_type = false;
    r.leave_output = true;
    r.pure = true;
    choose(f, r);
    assert_int_equal(type_of(f, "output.weight"), QUANT_F16);
    /* overrides take precedence over pure */
    assert_int_equal(layer_type(f, 0, "attn_v"), QUANT_F16);
    assert_int_equal(layer_type(f, 31, "ffn_down"), QUANT_Q4_K);
    choose(f, mix("copy"));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) assert_int_equal(choices[i].type, QUANT_F16);
    gguf_close(f);
}

static void test_names(void **state) {
    (void)state;
    char list[512];
    quant_mix_list(list, sizeof list);
    char *rest = list;
    for (char *name; (name = strtok_r(rest, ", ", &rest));) {
        const quant_mix *m = quant_mix_find(name);
        assert_non_null(m);
        assert_string_equal(m->name, name);
        assert_true(m->copy || quant_find((uint32_t)m->base)->quantize);
    }
    assert_string_equal(quant_mix_find("15")->name, "Q4_K_M");
    assert_string_equal(quant_mix_find("38")->name, "MXFP4_MOE");
    assert_string_equal(quant_mix_find("q3_k")->name, "Q3_K_M");
    static const char *const unknown[] = {"", "Q4", "15x", "-1", "q4_k_mm", "99999999999999999999"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_null(quant_mix_find(unknown[i]));
    quant_type type;
    pi_error err = {0};
    assert_int_equal(quant_mix_find_type("i32", "--here", &type, &err), PI_ERR_ARG);
    assert_non_null(strstr(err.message, "--here"));
    assert_non_null(strstr(err.message, "mxfp4"));
}

static void test_no_memory(void **state) {
    (void)state;
    gguf_file *f = make(&llama_7b);
    quant_mix_request r = mix("Q4_K_M");
    pi_error err = {0};
    mem_fail_at(1);
    assert_int_equal(quant_mix_choose(f, &r, choices, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
    gguf_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_files),     cmocka_unit_test(test_large_llama),
        cmocka_unit_test(test_same_as_low_files), cmocka_unit_test(test_low_mixes),
        cmocka_unit_test(test_other_shapes),      cmocka_unit_test(test_rows_that_do_not_fit),
        cmocka_unit_test(test_overrides),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("quant_mix", tests, NULL, NULL);
}
