/* test_convert_forms.c: weights that are not plain matrices (FP8, MXFP4, separate experts), and
 * what config.json says about rotation, sampling and further layers. Expected values follow the
 * definitions of the formats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"
#include "hf_folder.h"

enum { N_EMBD = 64, N_FF = 96, N_VOCAB = 40 };

static double number(const gguf_file *g, const char *key) {
    double value = 0;
    const gguf_value *v = gguf_find(g, key);
    if (!v || !gguf_as_f64(v, &value)) fail_msg("no number %s", key);
    return value;
}

static void read_row(const gguf_file *g, const char *name, uint64_t row, float *out) {
    const gguf_tensor *t = gguf_find_tensor(g, name);
    size_t row_bytes;
    if (!t) fail_msg("no tensor %s", name);
    assert_true(quant_row_bytes(t->type, t->dims[0], &row_bytes));
    quant_find(t->type)->dequantize(t->data + row * row_bytes, out, (int64_t)t->dims[0]);
}

typedef struct tensor_row {
    const char *name;
    uint64_t rows, cols; /* rows 0: a vector */
} tensor_row;

static void add_all(shard *s, const tensor_row *rows, size_t n, const char *dtype) {
    for (size_t i = 0; i < n; i++) shard_add(s, rows[i].name, dtype, rows[i].rows, rows[i].cols);
}

/* ---- FP8 ------------------------------------------------------------------------------------- */

/* A llama of one layer; the caller adds the up projection. */
static void add_llama_without_up(shard *s) {
    static const tensor_row tensors[] = {
        {"model.embed_tokens.weight", N_VOCAB, N_EMBD},
        {"model.norm.weight", 0, N_EMBD},
        {"lm_head.weight", N_VOCAB, N_EMBD},
        {"model.layers.0.input_layernorm.weight", 0, N_EMBD},
        {"model.layers.0.post_attention_layernorm.weight", 0, N_EMBD},
        {"model.layers.0.self_attn.q_proj.weight", N_EMBD, N_EMBD},
        {"model.layers.0.self_attn.k_proj.weight", N_EMBD / 2, N_EMBD},
        {"model.layers.0.self_attn.v_proj.weight", N_EMBD / 2, N_EMBD},
        {"model.layers.0.self_attn.o_proj.weight", N_EMBD, N_EMBD},
        {"model.layers.0.mlp.gate_proj.weight", N_FF, N_EMBD},
        {"model.layers.0.mlp.down_proj.weight", N_EMBD, N_FF},
    };
    shard_begin(s);
    add_all(s, tensors, sizeof tensors / sizeof tensors[0], "BF16");
}

#define UP "model.layers.0.mlp.up_proj.weight"

static uint8_t fp8_byte(uint64_t i) {
    uint8_t byte = (uint8_t)(i * 37 + i / 64);
    return (byte & 127) == 127 ? 0 : byte; /* no NaN */
}

/* E4M3: sign, four bits of exponent with bias 7, three of mantissa. */
static double fp8_value(uint8_t byte) {
    double sign = byte & 128 ? -1 : 1, mantissa = byte & 7;
    int exponent = byte >> 3 & 15;
    return sign * (exponent ? exp2(exponent - 7) * (1 + mantissa / 8) : exp2(-6) * mantissa / 8);
}

/* Adds the up projection, with scales of this shape: 1, 2, 3, ... */
static void add_fp8_up(shard *s, const char *scale_name, const char *scale_shape, int n_scales) {
    char entry[256];
    snprintf(entry, sizeof entry,
             "{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}", N_FF, N_EMBD,
             s->n_data, s->n_data + N_FF * N_EMBD);
    uint8_t *data = s->data + s->n_data;
    shard_add_raw(s, UP, entry, N_FF * N_EMBD);
    for (uint64_t i = 0; i < N_FF * N_EMBD; i++) data[i] = fp8_byte(i);
    size_t n_bytes = (size_t)n_scales * sizeof(float);
    snprintf(entry, sizeof entry, "{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             scale_shape, s->n_data, s->n_data + n_bytes);
    data = s->data + s->n_data;
    shard_add_raw(s, scale_name, entry, n_bytes);
    for (int i = 0; i < n_scales; i++) {
        float scale = (float)(i + 1);
        memcpy(data + (size_t)i * sizeof scale, &scale, sizeof scale);
    }
}

static void open_fp8(hf_folder *f, const char *extra, const char *scale_name, const char *shape,
                     int n_scales) {
    static shard s;
    model_shape config = shape_tiny("llama");
    config.n_layer = 1;
    config.extra = extra;
    folder_open(f);
    folder_write_config(f, &config);
    add_llama_without_up(&s);
    add_fp8_up(&s, scale_name, shape, n_scales);
    shard_write(&s, f, "model.safetensors");
}

#define FP8_BLOCKS                                                                                 \
    "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[40,48]},"
#define FP8_ROWS "\"quantization_config\":{\"quant_method\":\"compressed-tensors\"},"

static void test_fp8(void **state) {
    (void)state;
    /* blocks of 40 x 48 rounded up: 3 x 2; rows; one */
    static const struct {
        const char *extra, *name, *shape;
        int n_scales, high, wide;
    } kinds[] = {{FP8_BLOCKS, UP "_scale_inv", "[3,2]", 6, 40, 48},
                 {FP8_ROWS, UP "_scale", "[96,1]", 96, 1, N_EMBD},
                 {FP8_ROWS, UP "_scale", "[]", 1, N_FF, N_EMBD}};
    for (size_t k = 0; k < 3; k++) {
        hf_folder f;
        float row[N_EMBD];
        open_fp8(&f, kinds[k].extra, kinds[k].name, kinds[k].shape, kinds[k].n_scales);
        gguf_file *g = folder_convert_open(&f, "f32");
        int per_row = (N_EMBD + kinds[k].wide - 1) / kinds[k].wide;
        for (int r = 0; r < N_FF; r++) {
            read_row(g, "blk.0.ffn_up.weight", (uint64_t)r, row);
            for (int c = 0; c < N_EMBD; c++) {
                int scale = r / kinds[k].high * per_row + c / kinds[k].wide + 1;
                double want = scale * fp8_value(fp8_byte((uint64_t)(r * N_EMBD + c)));
                if ((double)row[c] != want)
                    fail_msg("kind %zu [%d][%d]: %g, not %g", k, r, c, (double)row[c], want);
            }
        }
        gguf_close(g);
        folder_close(&f);
    }
}

static void test_fp8_scales_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *shape, *words;
        int n_scales;
    } wrong[] = {{UP "_scale_inv", "[2,3]", "scales of the wrong shape", 6},
                 {UP "_scale_inv", "[95]", "scales of the wrong shape", 95},
                 {"other_scale_inv", "[3,2]", "has no scales", 6}};
    for (size_t i = 0; i < 3; i++) {
        hf_folder f;
        open_fp8(&f, FP8_BLOCKS, wrong[i].name, wrong[i].shape, wrong[i].n_scales);
        folder_refuse(&f, "f16", PI_ERR_FORMAT, wrong[i].words);
        folder_close(&f);
    }
    hf_folder f;
    open_fp8(&f, "\"quantization_config\":{\"quant_method\":\"gptq\"},", UP "_scale", "[]", 1);
    folder_refuse(&f, "f16", PI_ERR_UNSUPPORTED, "'gptq'");
    folder_close(&f);
    open_fp8(&f, "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[0,1]},",
             UP "_scale", "[]", 1);
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "weight_block_size");
    folder_close(&f);
}

/* ---- NVFP4 ----------------------------------------------------------------------------------- */

static void add_bytes(shard *s, const char *name, const char *dtype, const char *shape,
                      const void *bytes, size_t n_bytes) {
    char entry[256];
    snprintf(entry, sizeof entry, "{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             dtype, shape, s->n_data, s->n_data + n_bytes);
    uint8_t *data = s->data + s->n_data;
    shard_add_raw(s, name, entry, n_bytes);
    memcpy(data, bytes, n_bytes);
}

/* Two elements per byte, the first in the low nibble; one scale per 16 elements. */
static uint8_t nvfp4_byte(uint64_t row, uint64_t at) {
    return (uint8_t)(row * 7 + at * 29 + at / 16);
}
static uint8_t nvfp4_scale(uint64_t row, uint64_t part) {
    return (uint8_t)((row * 5 + part * 31) % 126 + 1);
}

static double nvfp4_value(uint64_t row, uint64_t column) {
    static const double values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int nibble = nvfp4_byte(row, column / 2) >> (column % 2 * 4) & 15;
    double value = values[nibble & 7] * fp8_value(nvfp4_scale(row, column / 16));
    return nibble & 8 ? -value : value;
}

/* A model whose up projection has compressed-tensors' form, or modelopt's. bad_scale: byte of the
 * last scale; -1: a valid one. */
static void open_nvfp4(hf_folder *f, const char *model_type, bool modelopt, const char *scale_shape,
                       int bad_scale) {
    static shard s;
    static uint8_t bytes[N_FF * N_EMBD / 2], scales[N_FF * N_EMBD / 16];
    const float global = modelopt ? 0.25f : 4;
    model_shape config = shape_tiny(model_type);
    config.n_layer = 1;
    config.extra = modelopt ? "\"quantization_config\":{\"quant_method\":\"modelopt\"},"
                            : "\"quantization_config\":{\"quant_method\":\"compressed-tensors\"},";
    folder_open(f);
    folder_write_config(f, &config);
    add_llama_without_up(&s);
    for (uint64_t r = 0; r < N_FF; r++) {
        for (uint64_t i = 0; i < N_EMBD / 2; i++) bytes[r * N_EMBD / 2 + i] = nvfp4_byte(r, i);
        for (uint64_t i = 0; i < N_EMBD / 16; i++) scales[r * N_EMBD / 16 + i] = nvfp4_scale(r, i);
    }
    if (bad_scale >= 0) scales[sizeof scales - 1] = (uint8_t)bad_scale;
    add_bytes(&s, modelopt ? UP : UP "_packed", "U8", "[96,32]", bytes, sizeof bytes);
    add_bytes(&s, UP "_scale", "F8_E4M3", scale_shape, scales, sizeof scales);
    add_bytes(&s, modelopt ? UP "_scale_2" : UP "_global_scale", "F32", modelopt ? "[]" : "[1]",
              &global, sizeof global);
    add_bytes(&s,
              modelopt ? "model.layers.0.mlp.up_proj.input_scale"
                       : "model.layers.0.mlp.up_proj.input_global_scale",
              "F32", "[1]", &global, sizeof global);
    shard_write(&s, f, "model.safetensors");
}

static void test_nvfp4(void **state) {
    (void)state;
    for (int modelopt = 0; modelopt < 2; modelopt++) {
        hf_folder f;
        float row[N_EMBD], scale;
        open_nvfp4(&f, "llama", modelopt, "[96,4]", -1);
        gguf_file *g = folder_convert_open(&f, "q8_0");
        assert_true(folder_said(&f, "NVFP4"));
        assert_int_equal(gguf_find_tensor(g, "blk.0.ffn_up.weight")->type, QUANT_NVFP4);
        assert_int_equal(gguf_find_tensor(g, "blk.0.ffn_gate.weight")->type, QUANT_Q8_0);
        for (uint64_t r = 0; r < N_FF; r++) {
            read_row(g, "blk.0.ffn_up.weight", r, row);
            for (uint64_t c = 0; c < N_EMBD; c++) assert_true((double)row[c] == nvfp4_value(r, c));
        }
        assert_int_equal(gguf_find_tensor(g, "blk.0.ffn_up.scale")->n_elems, 1);
        read_row(g, "blk.0.ffn_up.scale", 0, &scale);
        assert_true(scale == 0.25f);
        gguf_close(g);
        folder_close(&f);
    }
}

/* An architecture without such scales: floats, in the requested type. */
static void test_nvfp4_unscaled(void **state) {
    (void)state;
    hf_folder f;
    float row[N_EMBD];
    open_nvfp4(&f, "seed_oss", false, "[96,4]", -1);
    gguf_file *g = folder_convert_open(&f, "f32");
    assert_null(gguf_find_tensor(g, "blk.0.ffn_up.scale"));
    for (uint64_t r = 0; r < N_FF; r++) {
        read_row(g, "blk.0.ffn_up.weight", r, row);
        for (uint64_t c = 0; c < N_EMBD; c++)
            assert_true((double)row[c] == 0.25 * nvfp4_value(r, c));
    }
    gguf_close(g);
    folder_close(&f);
}

static void test_nvfp4_refused(void **state) {
    (void)state;
    static const struct {
        const char *shape, *words;
        pi_status status;
        int scale;
    } wrong[] = {{"[4,96]", "unexpected shape", PI_ERR_FORMAT, -1},
                 {"[96,4]", "not a finite number", PI_ERR_RANGE, 0x7f},
                 {"[96,4]", "not a finite number", PI_ERR_RANGE, 0x81}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hf_folder f;
        open_nvfp4(&f, "llama", true, wrong[i].shape, wrong[i].scale);
        folder_refuse(&f, "q8_0", wrong[i].status, wrong[i].words);
        folder_close(&f);
    }
}

/* ---- MXFP4 ----------------------------------------------------------------------------------- */

enum { N_EXPERT = 2, EXPERT_FF = 32 };

static void add_raw(shard *s, const char *name, const char *shape, size_t n_bytes, int seed) {
    char entry[256];
    snprintf(entry, sizeof entry, "{\"dtype\":\"U8\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             shape, s->n_data, s->n_data + n_bytes);
    uint8_t *data = s->data + s->n_data;
    shard_add_raw(s, name, entry, n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        data[i] = (uint8_t)(seed ? 120 + (i * 7 + (size_t)seed) % 13 : i * 73 + i / 16);
}

#define GPT_LAYER   "model.layers.0."
#define GPT_EXPERTS GPT_LAYER "mlp.experts."

static void open_gpt_oss(hf_folder *f, const char *scale_shape) {
    static shard s;
    static const tensor_row tensors[] = {
        {"model.embed_tokens.weight", N_VOCAB, N_EMBD},
        {"model.norm.weight", 0, N_EMBD},
        {"lm_head.weight", N_VOCAB, N_EMBD},
        {GPT_LAYER "input_layernorm.weight", 0, N_EMBD},
        {GPT_LAYER "post_attention_layernorm.weight", 0, N_EMBD},
        {GPT_LAYER "self_attn.q_proj.weight", N_EMBD, N_EMBD},
        {GPT_LAYER "self_attn.k_proj.weight", N_EMBD / 2, N_EMBD},
        {GPT_LAYER "self_attn.v_proj.weight", N_EMBD / 2, N_EMBD},
        {GPT_LAYER "self_attn.o_proj.weight", N_EMBD, N_EMBD},
        {GPT_LAYER "self_attn.sinks", 0, 4},
        {GPT_LAYER "mlp.router.weight", N_EXPERT, N_EMBD},
        {GPT_LAYER "mlp.router.bias", 0, N_EXPERT},
        {GPT_EXPERTS "gate_up_proj_bias", N_EXPERT, 2 * EXPERT_FF},
        {GPT_EXPERTS "down_proj_bias", N_EXPERT, N_EMBD},
    };
    model_shape config = shape_tiny("gpt_oss");
    config.n_layer = 1;
    config.n_ff = EXPERT_FF;
    config.extra = "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"sliding_window\":128,"
                   "\"quantization_config\":{\"quant_method\":\"mxfp4\"},";
    folder_open(f);
    folder_write_config(f, &config);
    shard_begin(&s);
    add_all(&s, tensors, sizeof tensors / sizeof tensors[0], "BF16");
    add_raw(&s, GPT_EXPERTS "gate_up_proj_blocks", "[2,64,2,16]", 2 * 64 * 2 * 16, 0);
    add_raw(&s, GPT_EXPERTS "gate_up_proj_scales", scale_shape, 2 * 64 * 2, 1);
    add_raw(&s, GPT_EXPERTS "down_proj_blocks", "[2,64,1,16]", 2 * 64 * 16, 0);
    add_raw(&s, GPT_EXPERTS "down_proj_scales", "[2,64,1]", 2 * 64, 2);
    shard_write(&s, f, "model.safetensors");
}

/* Element of a row of blocks, low nibble first: E2M1 times a power of two. */
static double mxfp4_value(size_t row, size_t n_blocks, size_t column, int seed) {
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    size_t block = row * n_blocks + column / 32, byte = block * 16 + column % 32 / 2;
    int code = (uint8_t)(byte * 73 + byte / 16) >> (column % 2 * 4) & 15;
    int scale = (uint8_t)(120 + (block * 7 + (size_t)seed) % 13);
    return (code & 8 ? -1 : 1) * values[code & 7] * exp2(scale - 127);
}

static void test_mxfp4(void **state) {
    (void)state;
    hf_folder f;
    float row[N_EMBD];
    open_gpt_oss(&f, "[2,64,2]");
    gguf_file *g = folder_convert_open(&f, "bf16");
    assert_true(folder_said(&f, "MXFP4"));
    assert_int_equal(gguf_find_tensor(g, "blk.0.ffn_up_exps.weight")->type, QUANT_MXFP4);
    assert_int_equal(gguf_find_tensor(g, "blk.0.attn_q.weight")->type, QUANT_BF16);
    for (size_t r = 0; r < N_EXPERT * EXPERT_FF; r++) {
        static const char *const names[] = {"blk.0.ffn_gate_exps.weight",
                                            "blk.0.ffn_up_exps.weight"};
        for (size_t k = 0; k < 2; k++) { /* rows of gate and up alternate */
            read_row(g, names[k], r, row);
            for (size_t c = 0; c < N_EMBD; c++)
                assert_true((double)row[c] == mxfp4_value(2 * r + k, 2, c, 1));
        }
    }
    for (size_t r = 0; r < N_EXPERT * N_EMBD; r++) {
        read_row(g, "blk.0.ffn_down_exps.weight", r, row);
        for (size_t c = 0; c < EXPERT_FF; c++)
            assert_true((double)row[c] == mxfp4_value(r, 1, c, 2));
    }
    for (uint64_t e = 0; e < N_EXPERT; e++) {
        read_row(g, "blk.0.ffn_up_exps.bias", e, row);
        for (uint64_t i = 0; i < EXPERT_FF; i++)
            assert_true(row[i] == tensor_value(GPT_EXPERTS "gate_up_proj_bias",
                                               e * 2 * EXPERT_FF + 2 * i + 1));
    }
    gguf_close(g);
    folder_close(&f);
    open_gpt_oss(&f, "[2,2,64]");
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "gate_up_proj_scales");
    folder_close(&f);
}

/* ---- further layers, experts ----------------------------------------------------------------- */

static void test_layers_that_guess_tokens_are_left_out(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    model_shape shape = shape_tiny("llama");
    shape.n_layer = 1;
    shape.extra = "\"num_nextn_predict_layers\":1,";
    folder_write_config(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_true(folder_said(&f, "multi-token prediction"));
    assert_null(gguf_find_tensor(g, "blk.1.attn_q.weight"));
    gguf_close(g);
    folder_close(&f);
}

static void test_a_missing_expert_is_named(void **state) {
    (void)state;
    static shard s;
    hf_folder f;
    model_shape shape = shape_tiny("mixtral");
    shape.n_layer = 1;
    shape.extra = "\"num_local_experts\":3,\"num_experts_per_tok\":2,";
    folder_open(&f);
    folder_write_config(&f, &shape);
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, 1);
    shard_add(&s, "model.layers.0.block_sparse_moe.gate.weight", "F32", 3, N_EMBD);
    for (int e = 0; e < 2; e++) {
        static const char *const parts[] = {"w1", "w2", "w3"};
        for (int k = 0; k < 3; k++) {
            char name[96];
            bool down = k == 1;
            snprintf(name, sizeof name, "model.layers.0.block_sparse_moe.experts.%d.%s.weight", e,
                     parts[k]);
            shard_add(&s, name, "F32", down ? N_EMBD : N_FF, down ? N_FF : N_EMBD);
        }
    }
    shard_write(&s, &f, "model.safetensors");
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "block_sparse_moe.experts.2.w1.weight");
    folder_close(&f);
}

/* ---- OPT ------------------------------------------------------------------------------------- */

static void test_opt(void **state) {
    (void)state;
    static shard s; /* saved without "model." */
    static const tensor_row tensors[] = {
        {"decoder.embed_tokens.weight", N_VOCAB, N_EMBD},
        {"decoder.embed_positions.weight", 514, N_EMBD},
        {"decoder.final_layer_norm.weight", 0, N_EMBD},
        {"decoder.final_layer_norm.bias", 0, N_EMBD},
        {"decoder.layers.0.self_attn_layer_norm.weight", 0, N_EMBD},
        {"decoder.layers.0.self_attn_layer_norm.bias", 0, N_EMBD},
        {"decoder.layers.0.self_attn.q_proj.weight", N_EMBD, N_EMBD},
        {"decoder.layers.0.self_attn.q_proj.bias", 0, N_EMBD},
        {"decoder.layers.0.self_attn.k_proj.weight", N_EMBD, N_EMBD},
        {"decoder.layers.0.self_attn.k_proj.bias", 0, N_EMBD},
        {"decoder.layers.0.self_attn.v_proj.weight", N_EMBD, N_EMBD},
        {"decoder.layers.0.self_attn.v_proj.bias", 0, N_EMBD},
        {"decoder.layers.0.self_attn.out_proj.weight", N_EMBD, N_EMBD},
        {"decoder.layers.0.self_attn.out_proj.bias", 0, N_EMBD},
        {"decoder.layers.0.final_layer_norm.weight", 0, N_EMBD},
        {"decoder.layers.0.final_layer_norm.bias", 0, N_EMBD},
        {"decoder.layers.0.fc1.weight", N_FF, N_EMBD},
        {"decoder.layers.0.fc1.bias", 0, N_FF},
        {"decoder.layers.0.fc2.weight", N_EMBD, N_FF},
        {"decoder.layers.0.fc2.bias", 0, N_EMBD},
    };
    hf_folder f;
    folder_open(&f);
    shard_begin(&s);
    add_all(&s, tensors, sizeof tensors / sizeof tensors[0], "F16");
    shard_write(&s, &f, "model.safetensors");
    folder_write_text(&f, "config.json",
                      "{\"model_type\":\"opt\",\"hidden_size\":64,\"ffn_dim\":96,"
                      "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":40,"
                      "\"max_position_embeddings\":512,\"activation_function\":\"relu\","
                      "\"do_layer_norm_before\":true,\"word_embed_proj_dim\":64}");
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_int_equal(gguf_n_tensors(g), 20);
    const gguf_tensor *positions = gguf_find_tensor(g, "position_embd.weight");
    assert_int_equal(positions->dims[1], 514);
    assert_int_equal(positions->type, QUANT_F32);
    float row[N_FF];
    read_row(g, "blk.0.ffn_up.bias", 0, row);
    for (uint64_t i = 0; i < N_FF; i++)
        assert_true(row[i] == tensor_value("decoder.layers.0.fc1.bias", i));
    gguf_close(g);
    folder_write_text(&f, "config.json",
                      "{\"model_type\":\"opt\",\"hidden_size\":64,\"ffn_dim\":96,"
                      "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":40,"
                      "\"max_position_embeddings\":512,\"do_layer_norm_before\":false}");
    remove(f.out);
    folder_refuse(&f, "f16", PI_ERR_UNSUPPORTED, "do_layer_norm_before");
    folder_close(&f);
}

/* ---- config.json ----------------------------------------------------------------------------- */

#define PHI_LAYER "model.layers.0."

/* Phi-3: factors for long and for short contexts, and a temperature for the whole. */
static void test_longrope(void **state) {
    (void)state;
    static shard s;
    static const tensor_row tensors[] = {
        {"model.embed_tokens.weight", N_VOCAB, N_EMBD},
        {"model.norm.weight", 0, N_EMBD},
        {"lm_head.weight", N_VOCAB, N_EMBD},
        {PHI_LAYER "input_layernorm.weight", 0, N_EMBD},
        {PHI_LAYER "post_attention_layernorm.weight", 0, N_EMBD},
        {PHI_LAYER "self_attn.qkv_proj.weight", 2 * N_EMBD, N_EMBD},
        {PHI_LAYER "self_attn.o_proj.weight", N_EMBD, N_EMBD},
        {PHI_LAYER "mlp.gate_up_proj.weight", 2 * N_FF, N_EMBD},
        {PHI_LAYER "mlp.down_proj.weight", N_EMBD, N_FF},
    };
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("phi3");
    shape.n_layer = 1;
    shape.extra =
        "\"original_max_position_embeddings\":128,\"rope_scaling\":{\"type\":\"longrope\","
        "\"long_factor\":[1,2,3,4,5,6,7,8],\"short_factor\":[1,1,1,1,1,1,1,1.5]},";
    folder_write_config(&f, &shape);
    shard_begin(&s);
    add_all(&s, tensors, sizeof tensors / sizeof tensors[0], "F32");
    shard_write(&s, &f, "model.safetensors");
    gguf_file *g = folder_convert_open(&f, "f16");
    float factors[8];
    assert_non_null(gguf_find_tensor(g, "blk.0.attn_qkv.weight"));
    read_row(g, "rope_factors_long.weight", 0, factors);
    assert_true(factors[7] == 8);
    read_row(g, "rope_factors_short.weight", 0, factors);
    assert_true(factors[7] == 1.5f);
    double want = sqrt(1 + log(512.0 / 128) / log(128.0));
    assert_true(fabs(number(g, "phi3.rope.scaling.attn_factor") - want) < 1e-6);
    assert_true(number(g, "phi3.rope.scaling.original_context_length") == 128);
    gguf_close(g);
    shape.extra = "\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1,2],"
                  "\"short_factor\":[1,1,1,1,1,1,1,1]},";
    folder_write_config(&f, &shape);
    remove(f.out);
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "long_factor");
    folder_close(&f);
}

static void test_ntk_alpha(void **state) {
    (void)state;
    hf_folder f;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.extra = "\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000.0,\"factor\":1.0},";
    folder_write_model(&f, &shape);
    gguf_file *g = folder_convert_open(&f, "f16");
    double want = 10000 * pow(1000, 16.0 / 14);
    assert_true(fabs(number(g, "llama.rope.freq_base") / want - 1) < 1e-6);
    gguf_close(g);
    folder_close(&f);
}

/* The text of Qwen3-VL: the keys that multimodal programs read. */
static void test_seeing(void **state) {
    (void)state;
    static const int32_t sections[] = {3, 3, 2, 0};
    static shard s;
    hf_folder f;
    model_shape shape = shape_tiny("qwen3_vl");
    shape.qk_norm = true;
    shape.extra = "\"vision_config\":{\"deepstack_visual_indexes\":[5]},"
                  "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[3,3,2]},";
    folder_open(&f);
    folder_write_config(&f, &shape);
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, shape.n_layer);
    shard_add(&s, "visual.patch_embed.proj.weight", "F32", 4, 4);
    shard_write(&s, &f, "model.safetensors");
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_true(folder_said(&f, "1 tensors of other modalities are dropped"));
    assert_true(number(g, "qwen3vl.n_deepstack_layers") == 1);
    const gguf_value *v = gguf_find(g, "qwen3vl.rope.dimension_sections");
    assert_non_null(v);
    assert_int_equal(v->count, 4);
    for (uint64_t i = 0; i < 4; i++) {
        double x;
        assert_true(gguf_item_f64(v, i, &x) && x == sections[i]);
    }
    gguf_close(g);
    remove(f.out);
    shape.extra = "\"vision_config\":{\"deepstack_visual_indexes\":[5,6,7]},";
    folder_write_config(&f, &shape);
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "deepstack_visual_indexes");
    folder_close(&f);
    shape = shape_tiny("llama"); /* without such sections */
    shape.extra = "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[3,3,2],\"factor\":1},";
    folder_open(&f);
    folder_write_model(&f, &shape);
    folder_refuse(&f, "f16", PI_ERR_UNSUPPORTED, "mrope");
    folder_close(&f);
}

static void test_generation_config(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "generation_config.json",
                      "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,"
                      "\"min_p\":null}");
    gguf_file *g = folder_convert_open(&f, "f16");
    assert_true(fabs(number(g, "general.sampling.temp") - 0.6) < 1e-6);
    assert_true(number(g, "general.sampling.top_k") == 20);
    assert_true(fabs(number(g, "general.sampling.top_p") - 0.95) < 1e-6);
    assert_null(gguf_find(g, "general.sampling.min_p"));
    gguf_close(g);
    folder_write_text(&f, "generation_config.json", "{\"do_sample\":false,\"top_p\":0.5}");
    g = folder_convert_open(&f, "f16");
    assert_null(gguf_find(g, "general.sampling.top_p"));
    gguf_close(g);
    remove(f.out);
    folder_write_text(&f, "generation_config.json", "{\"top_p\":1.5}");
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "top_p");
    folder_write_text(&f, "generation_config.json", "{\"top_k\":2.5}");
    folder_refuse(&f, "f16", PI_ERR_FORMAT, "top_k");
    folder_close(&f);
}

/* ---- tiktoken -------------------------------------------------------------------------------- */

static void open_hunyuan(hf_folder *f, const char *file, const char *tiktoken) {
    static shard s;
    model_shape shape = shape_tiny("hunyuan_v1_dense");
    folder_open(f);
    folder_write_config(f, &shape);
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, 2);
    for (int layer = 0; layer < 2; layer++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.query_layernorm.weight", layer);
        shard_add(&s, name, "F32", 0, 16);
        snprintf(name, sizeof name, "model.layers.%d.self_attn.key_layernorm.weight", layer);
        shard_add(&s, name, "F32", 0, 16);
    }
    shard_write(&s, f, "model.safetensors");
    folder_write_text(f, file, tiktoken);
}

static void assert_texts(const gguf_file *g, const char *key, const char *const *texts,
                         uint64_t n) {
    const gguf_value *v = gguf_find(g, key);
    if (!v || v->count < n) fail_msg("no %s", key);
    const uint8_t *cursor = v->data;
    for (uint64_t i = 0; i < n; i++) {
        gguf_string text = gguf_next_string(&cursor);
        if (!gguf_string_is(text, texts[i])) fail_msg("%s[%d] is not %s", key, (int)i, texts[i]);
    }
}

/* "a", "b", " ", byte 0xff, "ab", "abab", " ab"; and "bba", which no merge makes. */
static void test_tiktoken(void **state) {
    (void)state;
    static const char *const tokens[] = {"a",
                                         "b",
                                         "\xC4\xA0",
                                         "\xC3\xBF",
                                         "ab",
                                         "abab",
                                         "\xC4\xA0"
                                         "ab",
                                         "bba"};
    static const char *const merges[] = {"a b", "ab ab", "\xC4\xA0 ab"};
    static const char *const names[] = {"tiktoken.model", "hy.tiktoken"};
    hf_folder f;
    for (int i = 0; i < 2; i++) {
        if (i > 0) folder_close(&f);
        open_hunyuan(&f, names[i],
                     "YQ== 0\nYg== 1\nIA== 2\n/w== 3\nYWI= 4\nYWJhYg== 5\nIGFi 6\nYmJh 7\n");
        gguf_file *g = folder_convert_open(&f, "f16");
        gguf_string pre;
        assert_true(gguf_as_string(gguf_find(g, "tokenizer.ggml.pre"), &pre));
        assert_true(gguf_string_is(pre, "hunyuan-dense"));
        assert_texts(g, "tokenizer.ggml.tokens", tokens, 8);
        assert_texts(g, "tokenizer.ggml.merges", merges, 3);
        assert_int_equal(gguf_find(g, "tokenizer.ggml.merges")->count, 3);
        gguf_close(g);
        remove(f.out);
    }
    static const char *const wrong[][2] = {{"YQ== 0\nYg==\n", "line 2"},
                                           {"!!! 0\n", "base64"},
                                           {"YQ== x\n", "no rank"},
                                           {"YQ== 40\n", "beyond"},
                                           {"YQ== 0\nYg== 0\n", "duplicate rank"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        folder_write_text(&f, "hy.tiktoken", wrong[i][0]);
        folder_refuse(&f, "f16", PI_ERR_FORMAT, wrong[i][1]);
    }
    folder_close(&f);
    folder_open_model(&f, "llama");
    folder_write_text(&f, "some.tiktoken", "YQ== 0\n");
    folder_refuse(&f, "f16", PI_ERR_UNSUPPORTED, "tokenizer.json");
    folder_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_fp8_scales_refused),
        cmocka_unit_test(test_nvfp4),
        cmocka_unit_test(test_nvfp4_unscaled),
        cmocka_unit_test(test_nvfp4_refused),
        cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_layers_that_guess_tokens_are_left_out),
        cmocka_unit_test(test_a_missing_expert_is_named),
        cmocka_unit_test(test_opt),
        cmocka_unit_test(test_longrope),
        cmocka_unit_test(test_ntk_alpha),
        cmocka_unit_test(test_seeing),
        cmocka_unit_test(test_generation_config),
        cmocka_unit_test(test_tiktoken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
