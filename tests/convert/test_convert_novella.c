/* test_convert_novella.c: the small real model: its folder is converted and compared element by
 * element, its vocabulary is used, and its logits are compared with the recorded ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"
#include "hf_folder.h"
#include "reference.h"
#include "run_model.h"
#include "safetensors.h"
#include "tokenizer.h"

static char model_dir[FOLDER_PATH];
static hf_folder work;

static int set_up(void **state) {
    (void)state;
    folder_open(&work);
    pi_convert_options options = pi_convert_default_options();
    pi_error err = {0};
    if (pi_convert(model_dir, work.out, &options, &err) == PI_OK) return 0;
    fprintf(stderr, "%s\n", err.message);
    return 1;
}

static int tear_down(void **state) {
    (void)state;
    folder_close(&work);
    return 0;
}

static gguf_file *open_output(void) {
    gguf_file *g = NULL;
    pi_error err = {0};
    if (gguf_open(work.out, NULL, &g, &err) != PI_OK) fail_msg("%s", err.message);
    return g;
}

static float half_at(const uint8_t *data, uint64_t i) {
    uint16_t bits = (uint16_t)(data[2 * i] | data[2 * i + 1] << 8);
    return quant_f16_to_f32(bits);
}

static void compare(const gguf_file *g, const safetensors *s, const char *name, const char *hf_name,
                    uint64_t head_dim) {
    const gguf_tensor *t = gguf_find_tensor(g, name);
    size_t at = safetensors_find(s, hf_name);
    if (!t || at == SIZE_MAX) fail_msg("no %s or %s", name, hf_name);
    const uint8_t *source = safetensors_at(s, at)->data;
    uint64_t n_in = t->dims[0];
    for (uint64_t row = 0; row < t->dims[1]; row++) {
        uint64_t from = row;
        if (head_dim)
            from = row / head_dim * head_dim + row % 2 * (head_dim / 2) + row % head_dim / 2;
        for (uint64_t i = 0; i < n_in; i++) {
            float expected = half_at(source, from * n_in + i), found;
            if (t->type == QUANT_F32) {
                memcpy(&found, t->data + 4 * (row * n_in + i), 4);
            } else {
                assert_int_equal(t->type, QUANT_F16);
                found = half_at(t->data, row * n_in + i);
            }
            if (found != expected)
                fail_msg("%s [%d][%d]: %g, not %g", name, (int)row, (int)i, (double)found,
                         (double)expected);
        }
    }
}

static void test_tensors(void **state) {
    (void)state;
    static const struct {
        const char *name, *hf_name;
        uint64_t head_dim;
    } layer_tensors[] = {
        {"attn_norm.weight", "input_layernorm.weight", 0},
        {"attn_q.weight", "self_attn.q_proj.weight", 64},
        {"attn_k.weight", "self_attn.k_proj.weight", 64},
        {"attn_v.weight", "self_attn.v_proj.weight", 0},
        {"attn_output.weight", "self_attn.o_proj.weight", 0},
        {"ffn_norm.weight", "post_attention_layernorm.weight", 0},
        {"ffn_gate.weight", "mlp.gate_proj.weight", 0},
        {"ffn_up.weight", "mlp.up_proj.weight", 0},
        {"ffn_down.weight", "mlp.down_proj.weight", 0},
    };
    gguf_file *g = open_output();
    safetensors *s = NULL;
    pi_error err = {0};
    assert_int_equal(safetensors_open(model_dir, &s, &err), PI_OK);
    assert_int_equal(gguf_n_tensors(g), 2 + 6 * 9);
    compare(g, s, "token_embd.weight", "model.embed_tokens.weight", 0);
    compare(g, s, "output_norm.weight", "model.norm.weight", 0);
    for (int layer = 0; layer < 6; layer++) {
        for (size_t i = 0; i < 9; i++) {
            char name[64], hf_name[128];
            snprintf(name, sizeof name, "blk.%d.%s", layer, layer_tensors[i].name);
            snprintf(hf_name, sizeof hf_name, "model.layers.%d.%s", layer,
                     layer_tensors[i].hf_name);
            compare(g, s, name, hf_name, layer_tensors[i].head_dim);
        }
    }
    safetensors_close(s);
    gguf_close(g);
}

static void test_vocabulary(void **state) {
    (void)state;
    gguf_file *g = open_output();
    tokenizer *t = NULL;
    pi_error err = {0};
    if (tokenizer_create(g, NULL, &t, &err) != PI_OK) fail_msg("%s", err.message);
    const tokenizer_info *info = tokenizer_get_info(t);
    assert_int_equal(info->n_vocab, 4096);
    assert_int_equal(info->unk, 0);
    assert_int_equal(info->bos, 1);
    assert_int_equal(info->eos, 2);
    assert_true(info->add_bos);
    assert_false(info->add_eos);

    static const char text[] =
        "It was the best of times,\n\n  it was \xc3\xa9t\xc3\xa9 \xf0\x9f\x8e\x89!";
    int32_t ids[128];
    char back[256];
    size_t n, n_back;
    assert_int_equal(
        tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL, ids, 128, &n, &err),
        PI_OK);
    assert_int_equal(ids[0], 1);
    assert_true(n > 5 && n < sizeof text);
    assert_int_equal(tokenizer_decode(t, ids, n, false, back, sizeof back, &n_back, &err), PI_OK);
    assert_int_equal(n_back, sizeof text - 1);
    assert_memory_equal(back, text, n_back);
    tokenizer_free(t);
    gguf_close(g);
}

/* A float32 forward pass with the same F16 weights was recorded: [42][4096]. The conversion is
 * right only if the model still computes these logits. */
static void test_logits(void **state) {
    (void)state;
    enum { N_TOKENS = 42, N_VOCAB = 4096 };
    char tokens[FOLDER_PATH + 32], logits[FOLDER_PATH + 32];
    snprintf(tokens, sizeof tokens, "%s/reference.tokens.txt", model_dir);
    snprintf(logits, sizeof logits, "%s/reference.logits.f32", model_dir);
    reference want = reference_read(tokens, logits, N_VOCAB);
    assert_int_equal(want.n_tokens, N_TOKENS);
    pi_context_options options = run_exact_options();
    options.n_threads = 2;
    run_model r = run_open(work.out, &options);
    static float got[N_TOKENS * N_VOCAB];
    run_tokens(&r, want.tokens, N_TOKENS, 0, got);
    double nmse = run_nmse(got, want.logits, N_TOKENS * N_VOCAB);
    if (!(nmse <= 1e-6)) fail_msg("NMSE %g", nmse);
    run_close(&r);
    reference_free(&want);
}

int main(void) {
    /* not shared_path: the path must be that of the folder */
    snprintf(model_dir, sizeof model_dir, "%s/../shared/models/novella-7m", TEST_SOURCE_DIR);
    char config[FOLDER_PATH + 32];
    snprintf(config, sizeof config, "%s/config.json", model_dir);
    FILE *file = fopen(config, "r");
    if (!file) {
        fprintf(stderr, "*** SKIPPED: %s is not there; this test needs the shared data ***\n",
                config);
        return 0;
    }
    fclose(file);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
