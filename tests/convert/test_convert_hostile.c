/* test_convert_hostile.c: folders that cannot be converted. Each gives one clear line and leaves no
 * output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "hf_folder.h"

static void assert_refused(hf_folder *f, pi_status expected, const char *words) {
    folder_refuse(f, "f16", expected, words);
}

static void test_no_folder(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    pi_error err = {0};
    assert_int_equal(pi_convert("/nonexistent/model", f.out, NULL, &err), PI_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nonexistent/model"));
    assert_refused(&f, PI_ERR_NOT_FOUND, "no config.json");
    model_shape shape = shape_tiny("llama");
    folder_write_config(&f, &shape);
    assert_refused(&f, PI_ERR_NOT_FOUND, "no weights");
    folder_close(&f);
}

static void test_unwritable_output(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    pi_error err = {0};
    assert_int_equal(pi_convert(f.dir, "/nonexistent/out.gguf", NULL, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "/nonexistent/out.gguf"));
    assert_int_equal(pi_convert(f.dir, f.dir, NULL, &err), PI_ERR_IO); /* a folder */
    folder_close(&f);
}

static void test_options(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_refuse(&f, "q9_0", PI_ERR_ARG, "q9_0");
    folder_refuse(&f, "i32", PI_ERR_ARG, "i32");
    folder_refuse(&f, "", PI_ERR_ARG, "q8_0");
    pi_convert_options options = pi_convert_default_options();
    pi_error err = {0};
    options.n_threads = 1000000;
    assert_int_equal(pi_convert(f.dir, f.out, &options, &err), PI_ERR_ARG);
    options.n_threads = -1;
    assert_int_equal(pi_convert(f.dir, f.out, &options, &err), PI_ERR_ARG);
    assert_false(folder_has_output(&f));
    folder_close(&f);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static void test_config_text(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "config.json"},
        {"{", "config.json"},
        {"[1]", "not a JSON object"},
        {"{\"model_type\":\"llama\",\"hidden_size\":NaN}", "config.json"},
        {"{\"model_type\":\"llama\",\"rms_norm_eps\":1e999}", "config.json"},
        {"{\"model_type\":7}", "model_type"},
        {"{}", "model_type"},
        {"{\"model_type\":\"llama\"}", "hidden_size is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder_write_text(&f, "config.json", cases[i].text);
        assert_refused(&f, PI_ERR_FORMAT, cases[i].words);
    }
    folder_close(&f);
}

static void test_model_type(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "mamba\\nx");
    assert_refused(&f, PI_ERR_UNSUPPORTED, "mamba\\nx");
    assert_refused(&f, PI_ERR_UNSUPPORTED, "llama, sparsellama, mistral");
    folder_close(&f);
}

/* Members that override those of a good file are in `extra`; duplicates would be refused, so the
 * good file omits them. */
static void test_config_values(void **state) {
    (void)state;
    static const struct {
        const char *extra;
        pi_status status;
        const char *words;
    } cases[] = {
        {"\"hidden_act\":\"mish\",", PI_ERR_UNSUPPORTED, "mish"},
        {"\"hidden_act\":1,", PI_ERR_FORMAT, "hidden_act"},
        {"\"hidden_act\":\"fatrelu\",", PI_ERR_FORMAT, "hidden_act_param"},
        {"\"rope_theta\":0,", PI_ERR_FORMAT, "rope_theta"},
        {"\"rope_theta\":\"x\",", PI_ERR_FORMAT, "rope_theta"},
        {"\"rope_scaling\":7,", PI_ERR_FORMAT, "rope_scaling"},
        {"\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2},", PI_ERR_UNSUPPORTED, "longrope"},
        {"\"rope_scaling\":{\"type\":\"linear\"},", PI_ERR_FORMAT, "factor is missing"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":-1},", PI_ERR_FORMAT, "factor"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8},", PI_ERR_FORMAT,
         "low_freq_factor"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":1},",
         PI_ERR_FORMAT, "high_freq_factor"},
        {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
         "\"original_max_position_embeddings\":\"4k\"},",
         PI_ERR_FORMAT, "original_max_position_embeddings is not a number"},
        {"\"rope_parameters\":{\"other_layers\":{\"rope_theta\":1}},", PI_ERR_FORMAT, "layers"},
        {"\"partial_rotary_factor\":0.5,", PI_ERR_UNSUPPORTED, "partial_rotary_factor"},
        {"\"tie_word_embeddings\":\"yes\",", PI_ERR_FORMAT, "tie_word_embeddings"},
        {"\"quantization_config\":{\"quant_method\":\"gptq\"},", PI_ERR_UNSUPPORTED, "quantiz"},
        {"\"sliding_window\":-3,", PI_ERR_FORMAT, "sliding_window"},
    };
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    folder_write_model(&f, &shape);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        shape.extra = cases[i].extra;
        folder_write_config(&f, &shape);
        assert_refused(&f, cases[i].status, cases[i].words);
    }
    folder_close(&f);
}

/* config.json of models with recurrent layers or several streams. */
static void test_recurrent_values(void **state) {
    (void)state;
#define SHAPE                                                                                      \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3,\"vocab_size\":32,"       \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":64,"
#define MAMBA "\"num_heads\":4,\"head_dim\":32,\"n_groups\":2,\"conv_kernel\":4,"
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"\"model_type\":\"gemma3n_text\"," SHAPE "\"altup_active_idx\":1",
         "altup_active_idx is not 0"},
        {"\"model_type\":\"gemma3n_text\"," SHAPE "\"altup_num_inputs\":99",
         "altup_num_inputs is 99, not in 2..8"},
        {"\"model_type\":\"gemma3n_text\"," SHAPE "\"altup_correct_scale\":false",
         "altup_correct_scale is false"},
        {"\"model_type\":\"gemma3n_text\"," SHAPE "\"activation_sparsity_pattern\":[0.95]",
         "activation_sparsity_pattern is not a fraction of neurons for every layer"},
        {"\"model_type\":\"mamba2\"," SHAPE MAMBA "\"expand\":2", "mamba_d_state is missing"},
        {"\"model_type\":\"mamba2\"," SHAPE MAMBA "\"state_size\":0",
         "state_size is 0, not in 1.."},
        {"\"model_type\":\"mamba2\"," SHAPE
         "\"num_heads\":3,\"n_groups\":2,\"conv_kernel\":4,\"state_size\":8",
         "heads that do not divide the recurrent layers' width"},
        {"\"model_type\":\"mamba2\"," SHAPE MAMBA "\"state_size\":8,\"expand\":20000",
         "expand is 20000, not in 1.."},
        {"\"model_type\":\"nemotron_h\"," SHAPE MAMBA
         "\"state_size\":8,\"hybrid_override_pattern\":\"M*\"",
         "hybrid_override_pattern does not have a letter for each layer"},
        {"\"model_type\":\"nemotron_h\"," SHAPE MAMBA
         "\"state_size\":8,\"hybrid_override_pattern\":\"M*X\"",
         "hybrid_override_pattern has an unknown kind of layer"},
        {"\"model_type\":\"nemotron_h\"," SHAPE MAMBA
         "\"state_size\":8,\"layers_block_type\":[\"mamba\",7,\"mlp\"]",
         "layers_block_type is not a list of layer kinds"},
        {"\"model_type\":\"nemotron_h\"," SHAPE MAMBA
         "\"state_size\":8,\"hybrid_override_pattern\":\"M*-\",\"moe_latent_size\":64",
         "moe_latent_size has a value that is not supported"},
        {"\"model_type\":\"lfm2\"," SHAPE "\"conv_L_cache\":3,\"full_attn_idxs\":[0,3]",
         "full_attn_idxs has a layer outside the model"},
        {"\"model_type\":\"lfm2\"," SHAPE "\"conv_L_cache\":3", "full_attn_idxs is missing"},
        {"\"model_type\":\"lfm2\"," SHAPE
         "\"conv_L_cache\":3,\"layer_types\":[\"conv\",\"conv\",\"mlp\"]",
         "layer_types has a layer without a mixer"},
        {"\"model_type\":\"lfm2\"," SHAPE
         "\"conv_L_cache\":3,\"full_attn_idxs\":[0],\"block_multiple_of\":256,"
         "\"block_ffn_dim_multiplier\":0.001",
         "impossible width"},
        {"\"model_type\":\"granitemoehybrid\"," SHAPE MAMBA
         "\"mamba_d_state\":8,\"mamba_rms_norm\":true,\"mamba_norm_before_gate\":true,"
         "\"layer_types\":[\"mamba\",\"attention\",\"mamba\"]",
         "mamba_norm_before_gate is true, which is not supported"},
        {"\"model_type\":\"falcon_h1\"," SHAPE MAMBA
         "\"mamba_d_state\":8,\"mlp_multipliers\":[0.5]",
         "mlp_multipliers is not a list of numbers"},
        {"\"model_type\":\"falcon_h1\"," SHAPE MAMBA
         "\"mamba_d_state\":8,\"lm_head_multiplier\":2,\"tie_word_embeddings\":true",
         "lm_head_multiplier differs from the multiplier of the embeddings"},
        {"\"model_type\":\"qwen3_next\"," SHAPE "\"linear_conv_kernel_dim\":4",
         "linear_key_head_dim is missing"},
        {"\"model_type\":\"kimi_linear\"," SHAPE
         "\"kv_lora_rank\":16,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":8,\"v_head_dim\":8",
         "short_conv_kernel_size is missing"},
        {"\"model_type\":\"minimax_m3\"," SHAPE "\"head_dim\":16",
         "sparse_num_index_heads is missing"},
        {"\"model_type\":\"gpt_oss\"," SHAPE "\"head_dim\":16,\"swiglu_limit\":8",
         "swiglu_limit has a value that is not supported"},
        {"\"model_type\":\"llama\"," SHAPE "\"hidden_act\":\"swigluoai\"",
         "hidden_act is swigluoai, which this model type cannot have"},
    };
    hf_folder f;
    folder_open_model(&f, "llama");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s}", cases[i].text);
        folder_write_text(&f, "config.json", text);
        assert_refused(&f, PI_ERR_FORMAT, cases[i].words);
    }
    folder_close(&f);
}

static void test_config_sizes(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape good = shape_tiny("llama");
    folder_write_model(&f, &good);
    static const int bad[] = {0, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        model_shape shape = good;
        int *fields[] = {&shape.n_embd,    &shape.n_ff,     &shape.n_layer, &shape.n_head,
                         &shape.n_head_kv, &shape.head_dim, &shape.n_vocab};
        static const char *const names[] = {
            "hidden_size",         "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim",          "vocab_size"};
        for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            int was = *fields[k];
            *fields[k] = bad[i];
            folder_write_config(&f, &shape);
            assert_refused(&f, PI_ERR_FORMAT, names[k]);
            *fields[k] = was;
        }
    }
    good.n_head_kv = 3;
    folder_write_config(&f, &good);
    assert_refused(&f, PI_ERR_FORMAT, "num_key_value_heads");
    good.n_head_kv = 2;
    good.head_dim = 15;
    folder_write_config(&f, &good);
    assert_refused(&f, PI_ERR_FORMAT, "head_dim");
    folder_close(&f);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void test_shapes_disagree(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    folder_write_model(&f, &shape);
    shape.n_ff = 128;
    folder_write_config(&f, &shape);
    assert_refused(&f, PI_ERR_FORMAT,
                   "mlp.gate_proj.weight is [96, 64], config.json needs [128, 64]");
    shape.n_ff = 96;
    shape.n_vocab = 41;
    folder_write_config(&f, &shape);
    assert_refused(&f, PI_ERR_FORMAT, "model.embed_tokens.weight is [40, 64]");
    shape.n_vocab = 40;
    shape.n_layer = 3; /* one more than exist */
    folder_write_config(&f, &shape);
    assert_refused(&f, PI_ERR_FORMAT, "model.layers.2.input_layernorm.weight");
    shape.n_layer = 1; /* one fewer: its tensors remain */
    folder_write_config(&f, &shape);
    assert_refused(&f, PI_ERR_UNSUPPORTED, "model.layers.1.");
    folder_close(&f);
}

static void test_missing_and_unknown_tensors(void **state) {
    (void)state;
    static shard s;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.head = false; /* and the configuration says that the head is not tied */
    folder_write_model(&f, &shape);
    assert_refused(&f, PI_ERR_FORMAT, "lm_head.weight");

    shape.head = true;
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, 2);
    shard_add(&s, "model.layers.0.self_attn.sinks", "F32", 0, 4);
    shard_write(&s, &f, "model.safetensors");
    assert_refused(&f, PI_ERR_UNSUPPORTED, "model.layers.0.self_attn.sinks");

    shape.model_type = "qwen2"; /* needs biases */
    folder_write_model(&f, &shape);
    assert_refused(&f, PI_ERR_FORMAT, "q_proj.bias");
    folder_close(&f);
}

static void test_data_types(void **state) {
    (void)state;
    static const char *const dtypes[] = {"F64", "I8", "F8_E4M3"};
    static const char *const entries[] = {
        "{\"dtype\":\"F64\",\"shape\":[64],\"data_offsets\":[0,512]}",
        "{\"dtype\":\"I8\",\"shape\":[64],\"data_offsets\":[0,64]}",
        "{\"dtype\":\"F8_E4M3\",\"shape\":[64],\"data_offsets\":[0,64]}"};
    static const size_t sizes[] = {512, 64, 64};
    for (int i = 0; i < 3; i++) {
        static shard s;
        hf_folder f;
        folder_open(&f);
        model_shape shape = shape_tiny("llama");
        folder_write_config(&f, &shape);
        shard_begin(&s);
        shard_add_raw(&s, "model.norm.weight", entries[i], sizes[i]);
        shard_add(&s, "model.embed_tokens.weight", "F32", 40, 64);
        shard_add(&s, "lm_head.weight", "F32", 40, 64);
        shape.n_layer = 2;
        /* the layers, without the global tensors */
        shard_add_layers(&s, &shape, 1, 2);
        shape.n_layer = 1;
        char *layer;
        while ((layer = strstr(s.header, "layers.1."))) layer[7] = '0';
        folder_write_config(&f, &shape);
        shard_write(&s, &f, "model.safetensors");
        assert_refused(&f, PI_ERR_UNSUPPORTED, dtypes[i]);
        folder_close(&f);
    }
}

/* Overwrites one float of the first tensor, which is the embedding. */
static void poison(const hf_folder *f, const void *value, size_t n_bytes, uint64_t element) {
    char path[FOLDER_PATH];
    folder_path(f, "model.safetensors", path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    uint8_t length[8];
    assert_int_equal(fread(length, 1, 8, file), 8);
    long header = (long)length[0] | (long)length[1] << 8 | (long)length[2] << 16;
    assert_int_equal(fseek(file, 8 + header + (long)(element * n_bytes), SEEK_SET), 0);
    assert_int_equal(fwrite(value, 1, n_bytes, file), n_bytes);
    fclose(file);
}

static void test_values(void **state) {
    (void)state;
    static const uint32_t nan = 0x7FC00000, infinity = 0xFF800000;
    hf_folder f;
    folder_open_model(&f, "llama");
    poison(&f, &nan, 4, 130);
    assert_refused(&f, PI_ERR_RANGE, "model.embed_tokens.weight, row 2");
    folder_refuse(&f, "q8_0", PI_ERR_RANGE, "finite");
    poison(&f, &infinity, 4, 130);
    folder_refuse(&f, "f32", PI_ERR_RANGE, "finite");
    float large = 1e6f;
    poison(&f, &large, 4, 130);
    assert_refused(&f, PI_ERR_RANGE, "overflow in f16");
    pi_error err = {0};
    assert_int_equal(folder_convert(&f, "bf16", &err), PI_OK);
    folder_close(&f);
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

/* Writes the good tokenizer.json with one text replaced by another. */
static void write_changed(const hf_folder *f, const char *from, const char *to) {
    static char text[16384];
    const char *at = strstr(tiny_bpe_json, from);
    if (!at) fail_msg("no %s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - tiny_bpe_json), tiny_bpe_json, to,
             at + strlen(from));
    folder_write_text(f, "tokenizer.json", text);
}

static void test_tokenizer_json(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        pi_status status;
        const char *words;
    } cases[] = {
        {"\"merges\"", "\"mergers\"", PI_ERR_FORMAT, "merges"},
        {"\"h e\"", "\"he\"", PI_ERR_FORMAT, "merge 0"},
        {"\"h e\"", "7", PI_ERR_FORMAT, "merge 0"},
        {"\"h e\"", "\"h \xc3\xa9\"", PI_ERR_FORMAT, "merge 0"},
        {"[\"l\",\"l\"]", "[\"l\"]", PI_ERR_FORMAT, "merge 1"},
        {"[\"l\",\"l\"]", "[\"l\",\"m\"]", PI_ERR_FORMAT, "merge 1"},
        {"\"ll\":29", "\"ll\":40", PI_ERR_FORMAT, "0..39"},
        {"\"ll\":29", "\"ll\":-1", PI_ERR_FORMAT, "0..39"},
        {"\"ll\":29", "\"ll\":1", PI_ERR_FORMAT, "two tokens"},
        {"\"ll\":29", "\"ll\":\"x\"", PI_ERR_FORMAT, "0..39"},
        {"\"ll\":29", "\"ll\":29,\"\":33", PI_ERR_LIMIT, "0 bytes"},
        {"\"vocab\":{", "\"vocab\":7,\"x\":{", PI_ERR_FORMAT, "vocab"},
        {"\"model\":{", "\"modal\":{", PI_ERR_FORMAT, "model"},
        {"\"BPE\"", "\"WordPiece\"", PI_ERR_UNSUPPORTED, "WordPiece"},
        {"\"ByteLevel\"", "\"Whitespace\"", PI_ERR_UNSUPPORTED, "kind of tokenizer"},
        {"{1,3}", "{1,4}", PI_ERR_UNSUPPORTED, "unknown pre-tokenizer"},
        {"\"Isolated\"", "\"Removed\"", PI_ERR_UNSUPPORTED, "unknown pre-tokenizer"},
        {"\"id\":30,", "", PI_ERR_FORMAT, "added token"},
        {"\"id\":30,", "\"id\":-30,", PI_ERR_FORMAT, "added token"},
        {"{\"version\"", "{{\"version\"", PI_ERR_FORMAT, "tokenizer.json"},
    };
    hf_folder f;
    folder_open_model(&f, "llama");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_changed(&f, cases[i].from, cases[i].to);
        assert_refused(&f, cases[i].status, cases[i].words);
    }
    pi_error err = {0};
    write_changed(&f, "\"id\":31", "\"id\":77"); /* beyond the embedding matrix */
    assert_int_equal(folder_convert(&f, "f16", &err), PI_OK);
    assert_true(folder_said(&f, "<tool>"));
    folder_close(&f);
}

static void test_other_tokenizer_files(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "tokenizer.model", "not a protobuf");
    assert_refused(&f, PI_ERR_FORMAT, "tokenizer.model");
    /* a unigram model: the default when the type is absent */
    folder_write(&f, "tokenizer.model", "\x0a\x03\x0a\x01z", 5);
    assert_refused(&f, PI_ERR_UNSUPPORTED, "kind 1");
    /* more pieces than the embedding matrix has rows */
    char pieces[41 * 6 + 4];
    for (int i = 0; i < 41; i++) {
        const char piece[] = {0x0a, 4, 0x0a, 2, (char)('A' + i / 8), (char)('a' + i % 8)};
        memcpy(pieces + 6 * i, piece, 6);
    }
    memcpy(pieces + 41 * 6, "\x12\x02\x18\x02", 4);
    folder_write(&f, "tokenizer.model", pieces, sizeof pieces);
    assert_refused(&f, PI_ERR_FORMAT, "41 pieces");
    memcpy(pieces, pieces + 6, 6); /* 40 pieces, two of them equal */
    folder_write(&f, "tokenizer.model", pieces, 6);
    folder_write(&f, "tokenizer.model", "\x0a\x03\x0a\x01z\x0a\x03\x0a\x01z\x12\x02\x18\x02", 14);
    assert_refused(&f, PI_ERR_FORMAT, "duplicate token");
    folder_write(&f, "tokenizer.model", "\x0a\x03\x0a\x01z\x12\x02\x18\x02", 9);
    folder_write_text(&f, "tokenizer_config.json",
                      "{\"added_tokens_decoder\":{\"x\":{\"content\":\"a\"}}}");
    assert_refused(&f, PI_ERR_FORMAT, "added_tokens_decoder");
    folder_write_text(&f, "tokenizer_config.json", "{\"chat_template\":[{\"name\":\"a\"}]}");
    assert_refused(&f, PI_ERR_FORMAT, "chat template");
    folder_write_text(&f, "tokenizer_config.json", "[]");
    assert_refused(&f, PI_ERR_FORMAT, "tokenizer_config.json");
    folder_write_text(&f, "tokenizer_config.json", "{}");
    folder_write_text(&f, "added_tokens.json", "{\"<x>\":\"7\"}");
    assert_refused(&f, PI_ERR_FORMAT, "added_tokens.json");
    folder_write_text(&f, "added_tokens.json", "{}");
    folder_write(&f, "chat_template.jinja", "\xff\xfe", 2);
    assert_refused(&f, PI_ERR_FORMAT, "UTF-8");
    folder_close(&f);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Every allocation fails in turn: each time an error, no file, no crash and no leak. */
static void test_no_memory(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.n_layer = 1;
    shape.n_embd = 32;
    shape.head_dim = 8;
    shape.n_ff = 32;
    folder_write_model(&f, &shape);
    folder_write_text(&f, "tokenizer.json", tiny_bpe_json);
    failing each = failing_each(1);
    while (failing_next(&each)) {
        pi_error err = {0};
        pi_status status = folder_convert(&f, "f16", &err);
        if (!failing_hit(&each, status, &err)) break;
        assert_false(folder_has_output(&f));
    }
    assert_true(each.n > 20);
    folder_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_folder),        cmocka_unit_test(test_unwritable_output),
        cmocka_unit_test(test_options),          cmocka_unit_test(test_config_text),
        cmocka_unit_test(test_model_type),       cmocka_unit_test(test_config_values),
        cmocka_unit_test(test_recurrent_values), cmocka_unit_test(test_config_sizes),
        cmocka_unit_test(test_shapes_disagree),  cmocka_unit_test(test_missing_and_unknown_tensors),
        cmocka_unit_test(test_data_types),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_tokenizer_json),   cmocka_unit_test(test_other_tokenizer_files),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
