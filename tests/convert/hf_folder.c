/* hf_folder.c: see hf_folder.h. A failure to write fails the test. */
#include "hf_folder.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "quant.h"

void folder_open(hf_folder *f) {
    memset(f, 0, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "%s/hf-folder-XXXXXX", TEST_BINARY_DIR);
    assert_non_null(mkdtemp(f->dir));
    assert_true((size_t)snprintf(f->out, sizeof f->out, "%.1000s.gguf", f->dir) < sizeof f->out);
}

void folder_path(const hf_folder *f, const char *name, char path[FOLDER_PATH]) {
    assert_true(snprintf(path, FOLDER_PATH, "%.800s/%s", f->dir, name) < FOLDER_PATH);
}

void folder_close(hf_folder *f) {
    DIR *dir = opendir(f->dir);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[FOLDER_PATH];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        folder_path(f, e->d_name, path);
        unlink(path);
    }
    closedir(dir);
    rmdir(f->dir);
    unlink(f->out);
}

void folder_write(const hf_folder *f, const char *name, const void *data, size_t n_bytes) {
    char path[FOLDER_PATH];
    folder_path(f, name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

void folder_write_text(const hf_folder *f, const char *name, const char *text) {
    folder_write(f, name, text, strlen(text));
}

static void collect(void *user, const char *line) {
    hf_folder *f = user;
    assert_true(f->n_messages < FOLDER_MAX_MESSAGES);
    assert_null(strchr(line, '\n'));
    snprintf(f->messages[f->n_messages++], sizeof f->messages[0], "%s", line);
}

pi_status folder_convert(hf_folder *f, const char *type, pi_error *err) {
    pi_convert_options options = pi_convert_default_options();
    options.type = type;
    options.n_threads = 2;
    options.message = collect;
    options.user = f;
    f->n_messages = 0;
    return pi_convert(f->dir, f->out, &options, err);
}

bool folder_said(const hf_folder *f, const char *part) {
    for (int i = 0; i < f->n_messages; i++)
        if (strstr(f->messages[i], part)) return true;
    return false;
}

/* The output is next to the folder, so every file whose name begins with the folder's name, except
 * the folder itself, is output or a remainder of output. */
bool folder_has_output(const hf_folder *f) {
    const char *base = strrchr(f->dir, '/') + 1;
    bool found = false;
    DIR *dir = opendir(TEST_BINARY_DIR);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        found |= strstr(e->d_name, base) && strcmp(e->d_name, base) != 0;
    closedir(dir);
    return found;
}

gguf_file *folder_convert_open(hf_folder *f, const char *type) {
    pi_error err = {0};
    if (folder_convert(f, type, &err) != PI_OK) fail_msg("%s", err.message);
    gguf_file *g = NULL;
    if (gguf_open(f->out, NULL, &g, &err) != PI_OK) fail_msg("%s", err.message);
    return g;
}

void folder_refuse(hf_folder *f, const char *type, pi_status expected, const char *words) {
    pi_error err = {0};
    pi_status status = folder_convert(f, type, &err);
    if (status != expected)
        fail_msg("status %s (%s), not %s for %s", pi_status_name(status), err.message,
                 pi_status_name(expected), words);
    if (!strstr(err.message, words)) fail_msg("message '%s' lacks '%s'", err.message, words);
    assert_null(strchr(err.message, '\n'));
    assert_false(folder_has_output(f));
}

/* ---- weights --------------------------------------------------------------------------------- */

float tensor_value(const char *name, uint64_t i) {
    uint64_t hash = 1469598103934665603u;
    for (const char *c = name; *c; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    hash = (hash ^ i) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
    hash *= 0xBF58476D1CE4E5B9u;
    return (float)((int)((hash >> 40) % 255) - 127) / 64.0f;
}

void shard_begin(shard *s) {
    s->n_data = 0;
    s->n_header = (size_t)snprintf(s->header, sizeof s->header,
                                   "{\"__metadata__\":{\"format\":\"pt\"}");
}

static void append_header(shard *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->header + s->n_header, sizeof s->header - s->n_header, format, args);
    va_end(args);
    assert_true(n > 0 && s->n_header + (size_t)n < sizeof s->header);
    s->n_header += (size_t)n;
}

void shard_add(shard *s, const char *name, const char *dtype, uint64_t rows, uint64_t cols) {
    size_t item = strcmp(dtype, "F32") == 0 ? 4 : 2;
    uint64_t n = cols * (rows ? rows : 1);
    assert_true(s->n_data + n * item <= SHARD_MAX_DATA);
    append_header(s, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, dtype);
    if (rows) append_header(s, "%d,", (int)rows);
    append_header(s, "%d],\"data_offsets\":[%zu,%zu]}", (int)cols, s->n_data,
                  s->n_data + (size_t)n * item);
    for (uint64_t i = 0; i < n; i++) {
        float value = tensor_value(name, i);
        uint16_t half = strcmp(dtype, "BF16") == 0 ? quant_f32_to_bf16(value)
                                                   : quant_f32_to_f16(value);
        memcpy(s->data + s->n_data, item == 4 ? (const void *)&value : (const void *)&half, item);
        s->n_data += item;
    }
}

void shard_add_raw(shard *s, const char *name, const char *entry, size_t n_data) {
    append_header(s, ",\"%s\":%s", name, entry);
    memset(s->data + s->n_data, 0, n_data);
    s->n_data += n_data;
}

void shard_write(const shard *s, const hf_folder *f, const char *name) {
    size_t n_header = s->n_header + 1, n = 8 + n_header + s->n_data;
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n_header >> (8 * i));
    memcpy(bytes + 8, s->header, s->n_header);
    bytes[8 + s->n_header] = '}';
    memcpy(bytes + 8 + n_header, s->data, s->n_data);
    folder_write(f, name, bytes, n);
    free(bytes);
}

/* ---- a model --------------------------------------------------------------------------------- */

model_shape shape_tiny(const char *model_type) {
    return (model_shape){.model_type = model_type,
                         .dtype = "F32",
                         .n_embd = 64,
                         .n_ff = 96,
                         .n_layer = 2,
                         .n_head = 4,
                         .n_head_kv = 2,
                         .head_dim = 16,
                         .n_vocab = 40,
                         .head = true,
                         .extra = "\"tie_word_embeddings\":false,"};
}

void folder_write_config(const hf_folder *f, const model_shape *shape) {
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "{\"model_type\":\"%s\",\"hidden_size\":%d,\"intermediate_size\":%d,"
                     "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
                     "\"num_key_value_heads\":%d,\"head_dim\":%d,\"vocab_size\":%d,%s"
                     "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-05}",
                     shape->model_type, shape->n_embd, shape->n_ff, shape->n_layer, shape->n_head,
                     shape->n_head_kv, shape->head_dim, shape->n_vocab, shape->extra);
    assert_true(n > 0 && (size_t)n < sizeof text);
    folder_write_text(f, "config.json", text);
}

static void add_layer(shard *s, const model_shape *m, int layer) {
    uint64_t n_embd = (uint64_t)m->n_embd, n_ff = (uint64_t)m->n_ff;
    uint64_t n_q = (uint64_t)(m->n_head * m->head_dim),
             n_kv = (uint64_t)(m->n_head_kv * m->head_dim);
    const struct {
        const char *name;
        uint64_t rows, cols;
        bool there;
    } tensors[] = {
        {"input_layernorm.weight", 0, n_embd, true},
        {"post_attention_layernorm.weight", 0, n_embd, true},
        {"self_attn.q_proj.weight", n_q, n_embd, true},
        {"self_attn.k_proj.weight", n_kv, n_embd, true},
        {"self_attn.v_proj.weight", n_kv, n_embd, true},
        {"self_attn.o_proj.weight", n_embd, n_q, true},
        {"self_attn.q_proj.bias", 0, n_q, m->qkv_bias},
        {"self_attn.k_proj.bias", 0, n_kv, m->qkv_bias},
        {"self_attn.v_proj.bias", 0, n_kv, m->qkv_bias},
        {"self_attn.q_norm.weight", 0, (uint64_t)m->head_dim, m->qk_norm},
        {"self_attn.k_norm.weight", 0, (uint64_t)m->head_dim, m->qk_norm},
        {"mlp.gate_proj.weight", n_ff, n_embd, true},
        {"mlp.up_proj.weight", n_ff, n_embd, true},
        {"mlp.down_proj.weight", n_embd, n_ff, true},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[128];
        if (!tensors[i].there) continue;
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, tensors[i].name);
        shard_add(s, name, m->dtype, tensors[i].rows, tensors[i].cols);
    }
}

void shard_add_layers(shard *s, const model_shape *m, int first, int last) {
    uint64_t n_vocab = (uint64_t)m->n_vocab, n_embd = (uint64_t)m->n_embd;
    if (first == 0) {
        shard_add(s, "model.embed_tokens.weight", m->dtype, n_vocab, n_embd);
        shard_add(s, "model.norm.weight", m->dtype, 0, n_embd);
        if (m->head) shard_add(s, "lm_head.weight", m->dtype, n_vocab, n_embd);
    }
    for (int layer = first; layer < last; layer++) add_layer(s, m, layer);
}

void folder_write_model(const hf_folder *f, const model_shape *shape) {
    static shard s;
    shard_begin(&s);
    shard_add_layers(&s, shape, 0, shape->n_layer);
    shard_write(&s, f, "model.safetensors");
    folder_write_config(f, shape);
}

void folder_open_model(hf_folder *f, const char *model_type) {
    model_shape shape = shape_tiny(model_type);
    folder_open(f);
    folder_write_model(f, &shape);
}

#define LLAMA3_PATTERN                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "         \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

const char tiny_bpe_json[] =
    "{\"version\":\"1.0\",\"added_tokens\":["
    "{\"id\":30,\"content\":\"<|end|>\",\"special\":true},"
    "{\"id\":31,\"content\":\"<tool>\",\"special\":false}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" LLAMA3_PATTERN
    "\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
    "]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"<|end|>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"byte_fallback\":false,\"vocab\":{"
    "\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"i\":8,\"j\":9,\"k\":10,"
    "\"l\":11,\"m\":12,\"n\":13,\"o\":14,\"p\":15,\"q\":16,\"r\":17,\"s\":18,\"t\":19,\"u\":20,"
    "\"v\":21,\"w\":22,\"x\":23,\"y\":24,\"z\":25,\"\\u0120\":26,\"he\":27,\"hel\":28,\"ll\":29},"
    "\"merges\":[\"h e\",[\"l\",\"l\"],\"he l\"]}}";
