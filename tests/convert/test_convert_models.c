/* test_convert_models.c: the output of pi_convert for folders of every supported kind. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"
#include "hf_folder.h"

static void assert_u64(const gguf_file *g, const char *key, uint64_t expected) {
    uint64_t value = 0;
    const gguf_value *v = gguf_find(g, key);
    if (!v || !gguf_as_u64(v, &value)) fail_msg("no number %s", key);
    if (value != expected) fail_msg("%s is %llu", key, (unsigned long long)value);
}

static void assert_number(const gguf_file *g, const char *key, double expected) {
    double value = 0;
    const gguf_value *v = gguf_find(g, key);
    if (!v || !gguf_as_f64(v, &value)) fail_msg("no number %s", key);
    if (fabs(value - expected) > 1e-6 * fabs(expected)) fail_msg("%s is %g", key, value);
}

static void assert_text(const gguf_file *g, const char *key, const char *expected) {
    gguf_string value;
    const gguf_value *v = gguf_find(g, key);
    if (!v || !gguf_as_string(v, &value)) fail_msg("no text %s", key);
    if (!gguf_string_is(value, expected))
        fail_msg("%s is %.*s", key, (int)value.n_bytes, value.data);
}

static void assert_flag(const gguf_file *g, const char *key, bool expected) {
    bool value = false;
    const gguf_value *v = gguf_find(g, key);
    if (!v || !gguf_as_bool(v, &value)) fail_msg("no flag %s", key);
    assert_int_equal(value, expected);
}

static void read_row(const gguf_tensor *t, uint64_t row, float *out) {
    size_t row_bytes;
    assert_true(quant_row_bytes(t->type, t->dims[0], &row_bytes));
    quant_find(t->type)->dequantize(t->data + row * row_bytes, out, (int64_t)t->dims[0]);
}

/* Every element of the tensor equals that of the source; head_dim > 0: rows within heads move from
 * [part][pair] to [pair][part]. A vector is then a column. */
static void assert_tensor(const gguf_file *g, const char *name, const char *hf_name,
                          quant_type type, uint64_t cols, uint64_t rows, uint64_t head_dim) {
    float row[512];
    const gguf_tensor *t = gguf_find_tensor(g, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->type, type);
    assert_int_equal(t->dims[0], cols);
    assert_int_equal(t->dims[1], rows);
    assert_true(cols <= 512);
    bool vector = t->n_dims == 1;
    for (uint64_t r = 0; r < rows; r++) {
        read_row(t, r, row);
        for (uint64_t c = 0; c < cols; c++) {
            uint64_t at = vector ? c : r, source = at;
            if (head_dim) {
                uint64_t head = at / head_dim, pair = at % head_dim / 2, part = at % 2;
                source = head * head_dim + part * (head_dim / 2) + pair;
            }
            float expected = tensor_value(hf_name, vector ? source : source * cols + c);
            if (row[c] != expected)
                fail_msg("%s [%d][%d]: %g, not %g", name, (int)r, (int)c, (double)row[c],
                         (double)expected);
        }
    }
}

static void test_llama_keys_and_tensors(void **state) {
    (void)state;
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    for (int i = 0; i < 3; i++) {
        hf_folder f;
        folder_open(&f);
        model_shape shape = shape_tiny("llama");
        shape.dtype = dtypes[i];
        shape.extra = "\"tie_word_embeddings\":false,\"rope_theta\":500000.0,"
                      "\"_name_or_path\":\"someone/Little-Model\",";
        folder_write_model(&f, &shape);
        gguf_file *g = folder_convert_open(&f, "f16");
        assert_text(g, "general.architecture", "llama");
        assert_text(g, "general.name", "Little-Model");
        assert_u64(g, "general.file_type", 1);
        assert_u64(g, "general.quantization_version", 2);
        assert_u64(g, "llama.context_length", 512);
        assert_u64(g, "llama.embedding_length", 64);
        assert_u64(g, "llama.feed_forward_length", 96);
        assert_u64(g, "llama.block_count", 2);
        assert_u64(g, "llama.attention.head_count", 4);
        assert_u64(g, "llama.attention.head_count_kv", 2);
        assert_u64(g, "llama.rope.dimension_count", 16);
        assert_u64(g, "llama.vocab_size", 40);
        assert_number(g, "llama.rope.freq_base", 500000);
        assert_number(g, "llama.attention.layer_norm_rms_epsilon", 1e-5);
        assert_null(gguf_find(g, "llama.attention.key_length"));
        assert_null(gguf_find(g, "llama.hidden_activation"));
        assert_text(g, "tokenizer.ggml.model", "none");
        assert_true(folder_said(&f, "no vocabulary"));
        assert_int_equal(gguf_n_tensors(g), 3 + 2 * 9);
        assert_tensor(g, "token_embd.weight", "model.embed_tokens.weight", QUANT_F16, 64, 40, 0);
        assert_tensor(g, "output.weight", "lm_head.weight", QUANT_F16, 64, 40, 0);
        assert_tensor(g, "output_norm.weight", "model.norm.weight", QUANT_F32, 64, 1, 0);
        assert_tensor(g, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", QUANT_F16,
                      64, 64, 16);
        assert_tensor(g, "blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight", QUANT_F16,
                      64, 32, 16);
        assert_tensor(g, "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", QUANT_F16,
                      64, 32, 0);
        assert_tensor(g, "blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight", QUANT_F16,
                      96, 64, 0);
        assert_tensor(g, "blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight",
                      QUANT_F32, 64, 1, 0);
        gguf_close(g);
        folder_close(&f);
    }
}

static void test_llama_biases_are_permuted(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.qkv_bias = true;
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f32");
    assert_tensor(g, "blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias", QUANT_F32, 64, 1,
                  16);
    assert_tensor(g, "blk.1.attn_k.bias", "model.layers.1.self_attn.k_proj.bias", QUANT_F32, 32, 1,
                  16);
    assert_tensor(g, "blk.1.attn_v.bias", "model.layers.1.self_attn.v_proj.bias", QUANT_F32, 32, 1,
                  0);
    gguf_close(g);
    folder_close(&f);
}

/* Llama 3.1's published numbers. From 2,048 rotations of its longest waves on, the divisor is the
 * factor; short waves are unchanged. */
static void test_llama3_rope_scaling(void **state) {
    (void)state;
    static const char *const extras[] = {
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
        "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192},",
        "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\",\"factor\":8.0,"
        "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192},"};
    for (int i = 0; i < 2; i++) {
        hf_folder f;
        folder_open(&f);
        model_shape shape = shape_tiny("llama");
        shape.extra = extras[i];
        folder_write_model(&f, &shape);
        gguf_file *g = folder_convert_open(&f, "f16");
        assert_number(g, "llama.rope.freq_base", 500000);
        assert_null(gguf_find(g, "llama.rope.scaling.type"));
        const gguf_tensor *t = gguf_find_tensor(g, "rope_freqs.weight");
        assert_non_null(t);
        assert_int_equal(t->type, QUANT_F32);
        assert_int_equal(t->dims[0], 8);
        float factors[8];
        read_row(t, 0, factors);
        /* Wavelengths 2 pi 500000^(i/8): 6.28, 32.4, 167, 861, 4443, 22911, ... Below 8192/4 they
         * stay, above 8192 they get the factor. Between, with s = (8192/4442.9 - 1)/3 = 0.28129,
         * the divisor is 1/((1-s)/8 + s) = 2.69460. */
        for (int k = 0; k < 4; k++) assert_true(factors[k] == 1.0f);
        assert_true(fabsf(factors[4] - 2.6946f) < 2e-4f);
        for (int k = 5; k < 8; k++) assert_true(factors[k] == 8.0f);
        gguf_close(g);
        folder_close(&f);
    }
}

static void test_rope_scalings(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.extra = "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0},";
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_text(g, "llama.rope.scaling.type", "linear");
    assert_number(g, "llama.rope.scaling.factor", 4);
    assert_null(gguf_find_tensor(g, "rope_freqs.weight"));
    gguf_close(g);

    shape.extra = "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                  "\"original_max_position_embeddings\":128,\"beta_fast\":16,"
                  "\"attention_factor\":2.277258872223978},"; /* twice 0.1 ln 4 + 1 */
    folder_write_config(&f, &shape);
    g = folder_convert_open(&f, "f16");
    assert_text(g, "llama.rope.scaling.type", "yarn");
    assert_number(g, "llama.rope.scaling.factor", 4);
    assert_u64(g, "llama.rope.scaling.original_context_length", 128);
    assert_number(g, "llama.rope.scaling.yarn_beta_fast", 16);
    assert_number(g, "llama.rope.scaling.yarn_beta_slow", 1);
    assert_number(g, "llama.rope.scaling.attn_factor", 2);
    gguf_close(g);

    shape.extra = "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0},";
    folder_write_config(&f, &shape);
    g = folder_convert_open(&f, "f16");
    assert_null(gguf_find(g, "llama.rope.scaling.type"));
    assert_true(folder_said(&f, "dynamic"));
    gguf_close(g);
    folder_close(&f);
}

static void test_qwen2(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("qwen2");
    shape.qkv_bias = true;
    shape.head = false;
    shape.dtype = "BF16";
    shape.extra = "\"tie_word_embeddings\":true,\"sliding_window\":256,"
                  "\"use_sliding_window\":false,";
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "bf16");
    assert_text(g, "general.architecture", "qwen2");
    assert_u64(g, "general.file_type", 32);
    assert_u64(g, "qwen2.block_count", 2);
    assert_false(folder_said(&f, "sliding window"));
    assert_null(gguf_find_tensor(g, "output.weight"));
    /* this architecture rotates halves: nothing is permuted */
    assert_tensor(g, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", QUANT_BF16,
                  64, 64, 0);
    assert_tensor(g, "blk.1.attn_k.bias", "model.layers.1.self_attn.k_proj.bias", QUANT_F32, 32, 1,
                  0);
    gguf_close(g);
    folder_close(&f);
}

static void test_qwen3_with_wide_heads(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("qwen3");
    shape.qk_norm = true;
    shape.head_dim = 32;
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_text(g, "general.architecture", "qwen3");
    assert_u64(g, "qwen3.attention.key_length", 32);
    assert_u64(g, "qwen3.attention.value_length", 32);
    assert_tensor(g, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", QUANT_F16, 64,
                  128, 0);
    assert_tensor(g, "blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight",
                  QUANT_F16, 128, 64, 0);
    assert_tensor(g, "blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight",
                  QUANT_F32, 32, 1, 0);
    gguf_close(g);
    folder_close(&f);
}

static void test_activations(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("sparsellama");
    shape.extra = "\"hidden_act\":\"fatrelu\",\"hidden_act_param\":0.01,";
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_text(g, "general.architecture", "llama");
    assert_text(g, "llama.hidden_activation", "fatrelu");
    assert_number(g, "llama.hidden_activation_threshold", 0.01);
    assert_true(folder_said(&f, "llama.hidden_activation"));
    gguf_close(g);

    shape.model_type = "mistral";
    shape.extra = "\"hidden_act\":\"silu\",\"sliding_window\":128,";
    folder_write_config(&f, &shape);
    g = folder_convert_open(&f, "f16");
    assert_text(g, "general.architecture", "llama");
    assert_null(gguf_find(g, "llama.hidden_activation"));
    assert_true(folder_said(&f, "sliding window of 128 tokens"));
    gguf_close(g);

    /* this type's relu also applies to up, as in the architecture */
    shape.model_type = "bamboo";
    shape.extra = "\"hidden_act\":\"relu\",";
    folder_write_config(&f, &shape);
    g = folder_convert_open(&f, "f16");
    assert_text(g, "general.architecture", "bamboo");
    assert_null(gguf_find(g, "bamboo.hidden_activation"));
    assert_tensor(g, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", QUANT_F16, 64,
                  64, 16);
    gguf_close(g);
    folder_close(&f);
}

static void test_shards(void **state) {
    (void)state;
    static shard s;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    folder_write_config(&f, &shape);
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, 1);
    shard_write(&s, &f, "model-00001-of-00002.safetensors");
    shard_begin(&s);
    shard_add_layers(&s, &shape, 1, 2);
    shard_write(&s, &f, "model-00002-of-00002.safetensors");
    folder_write_text(
        &f, "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{"
        "\"lm_head.weight\":\"model-00001-of-00002.safetensors\","
        "\"model.norm.weight\":\"model-00001-of-00002.safetensors\","
        "\"model.layers.1.mlp.up_proj.weight\":\"model-00002-of-00002.safetensors\"}}");
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_tensor(g, "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", QUANT_F16, 64, 96,
                  0);
    assert_tensor(g, "blk.1.ffn_up.weight", "model.layers.1.mlp.up_proj.weight", QUANT_F16, 64, 96,
                  0);
    gguf_close(g);
    folder_close(&f);
}

static void test_head_said_and_unsaid(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.head = false;
    shape.extra = "";
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_null(gguf_find_tensor(g, "output.weight"));
    assert_true(folder_said(&f, "lm_head.weight"));
    gguf_close(g);

    shape.head = true; /* stored twice: the second copy is dropped */
    shape.extra = "\"tie_word_embeddings\":true,";
    folder_write_model(&f, &shape);
    g = folder_convert_open(&f, "f16");
    assert_null(gguf_find_tensor(g, "output.weight"));
    gguf_close(g);
    folder_close(&f);
}

static void test_old_tables_are_skipped_and_bare_names_found(void **state) {
    (void)state;
    static shard s;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    folder_write_config(&f, &shape);
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, 2);
    shard_add(&s, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 0, 8);
    /* saved from the bare network: this name has no prefix "model." */
    char *name = strstr(s.header, "model.norm.weight");
    assert_non_null(name);
    memmove(name, name + 6, strlen(name + 6) + 1);
    s.n_header -= 6;
    shard_write(&s, &f, "model.safetensors");
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_tensor(g, "output_norm.weight", "model.norm.weight", QUANT_F32, 64, 1, 0);
    assert_int_equal(gguf_n_tensors(g), 3 + 2 * 9);
    gguf_close(g);
    folder_close(&f);
}

/* Every type with a quantizer: matrices have this type where their rows allow it, F16 elsewhere;
 * values stay close. */
static void test_types(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.n_embd = 256;
    shape.head_dim = 64;
    folder_write_model(&f, &shape);
    int n_types = 0;
    for (uint32_t type = 0; type < QUANT_TYPE_COUNT; type++) {
        const quant_traits *traits = quant_find(type);
        if (!traits || !traits->quantize) continue;
        n_types++;
        gguf_file *g = folder_convert_open(&f, traits->name);
        const gguf_tensor *up = gguf_find_tensor(g, "blk.0.ffn_up.weight");     /* rows of 256 */
        const gguf_tensor *down = gguf_find_tensor(g, "blk.0.ffn_down.weight"); /* rows of 96 */
        assert_int_equal(up->type, type);
        bool fits = 96 % traits->block_elems == 0;
        assert_int_equal(down->type, fits ? type : QUANT_F16);
        assert_int_equal(folder_said(&f, "keep F16"), !fits);
        assert_int_equal(gguf_find_tensor(g, "output_norm.weight")->type, QUANT_F32);
        float row[256];
        double error = 0, power = 0;
        for (uint64_t r = 0; r < 96; r++) {
            read_row(up, r, row);
            for (uint64_t c = 0; c < 256; c++) {
                double x = (double)tensor_value("model.layers.0.mlp.up_proj.weight", r * 256 + c);
                error += (x - (double)row[c]) * (x - (double)row[c]);
                power += x * x;
            }
        }
        /* two bits on uniform values leave about a tenth of the power, one bit a quarter */
        double most = 8 * traits->block_bytes < 2 * traits->block_elems ? 0.3 : 0.15;
        if (!(error < most * power)) fail_msg("%s: error %g", traits->name, error / power);
        gguf_close(g);
    }
    assert_true(n_types >= 5); /* at least f32, f16, bf16, q8_0 and q4_0 */
    folder_close(&f);
}

static void test_default_options(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    pi_error err = {0};
    assert_int_equal(pi_convert(f.dir, f.out, NULL, &err), PI_OK);
    gguf_file *g = NULL;
    assert_int_equal(gguf_open(f.out, NULL, &g, &err), PI_OK);
    assert_int_equal(gguf_find_tensor(g, "token_embd.weight")->type, QUANT_F16);
    gguf_close(g);
    folder_close(&f);
}

static bool stop_at_once(void *user, const char *stage, double fraction) {
    int *calls = user;
    assert_string_equal(stage, "converting");
    assert_true(fraction >= 0 && fraction <= 1);
    ++*calls;
    return false;
}

static void test_cancel(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    int calls = 0;
    pi_convert_options options = pi_convert_default_options();
    options.progress = stop_at_once;
    options.user = &calls;
    pi_error err = {0};
    assert_int_equal(pi_convert(f.dir, f.out, &options, &err), PI_ERR_CANCELLED);
    assert_int_equal(calls, 1);
    assert_false(folder_has_output(&f));
    folder_close(&f);
}

static void test_vocabulary_bpe(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "tokenizer.json", tiny_bpe_json);
    folder_write_text(&f, "tokenizer_config.json",
                      "{\"bos_token\":{\"content\":\"<|end|>\"},\"eos_token\":\"<|end|>\","
                      "\"chat_template\":[{\"name\":\"default\",\"template\":\"{{ x }}\"},"
                      "{\"name\":\"tool_use\",\"template\":\"{{ y }}\"}]}");
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_text(g, "tokenizer.ggml.model", "gpt2");
    assert_text(g, "tokenizer.ggml.pre", "llama-bpe");
    assert_u64(g, "tokenizer.ggml.bos_token_id", 30);
    assert_u64(g, "tokenizer.ggml.eos_token_id", 30);
    assert_flag(g, "tokenizer.ggml.add_bos_token", true); /* from the post-processor */
    assert_flag(g, "tokenizer.ggml.add_eos_token", false);
    assert_text(g, "tokenizer.chat_template", "{{ x }}");
    assert_text(g, "tokenizer.chat_template.tool_use", "{{ y }}");
    assert_null(gguf_find(g, "tokenizer.ggml.scores"));
    const gguf_value *types = gguf_find(g, "tokenizer.ggml.token_type");
    assert_int_equal(types->count, 40);
    static const uint8_t expected[] = {[0] = 1, [29] = 1, [30] = 3, [31] = 4, [32] = 5, [39] = 5};
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t type;
        assert_true(gguf_item_u64(types, i, &type));
        if (expected[i]) assert_int_equal(type, expected[i]);
    }
    const gguf_value *merges = gguf_find(g, "tokenizer.ggml.merges");
    assert_int_equal(merges->count, 3);
    const uint8_t *cursor = merges->data;
    static const char *const texts[] = {"h e", "l l", "he l"};
    for (int i = 0; i < 3; i++) {
        gguf_string text = gguf_next_string(&cursor);
        assert_int_equal(text.n_bytes, strlen(texts[i]));
        assert_memory_equal(text.data, texts[i], text.n_bytes);
    }
    const gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    cursor = tokens->data;
    gguf_string text = {0};
    for (int i = 0; i <= 32; i++) text = gguf_next_string(&cursor);
    assert_int_equal(text.n_bytes, 7);
    assert_memory_equal(text.data, "[PAD32]", 7);
    assert_true(folder_said(&f, "8 of 40 tokens"));
    gguf_close(g);
    folder_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_keys_and_tensors),
        cmocka_unit_test(test_llama_biases_are_permuted),
        cmocka_unit_test(test_llama3_rope_scaling),
        cmocka_unit_test(test_rope_scalings),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_qwen3_with_wide_heads),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_head_said_and_unsaid),
        cmocka_unit_test(test_old_tables_are_skipped_and_bare_names_found),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_default_options),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_vocabulary_bpe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
