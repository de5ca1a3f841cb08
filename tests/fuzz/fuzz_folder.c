/* fuzz_folder.c: whole conversions of damaged Hugging Face folders: safetensors in one file or in
 * several with an index, a pickle of PyTorch, tokenizer.json, and the folder of a PEFT adapter with
 * its base model.
 *
 * An input is a recipe: a byte for the folder, then changes of eight bytes each: the file, where
 * (3), how, and a number (3). A change replaces, inserts or removes bytes, truncates the file,
 * replaces the decimal number at that place with a hostile one, or exchanges two quoted names. A
 * conversion must either succeed, with an output that opens, or fail with one message and leave no
 * output; sanitizers check the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz_target.h"
#include "gguf.h"
#include "hf_folder.h"
#include "torch_archive.h"

enum {
    N_KINDS = 5,
    MAX_FILES = 6,
    MAX_BYTES = 4 << 20,
    MAX_CHANGES = 12,
    CHANGE_BYTES = 8,
    TEXT_SHARE = 4096 /* most changes hit these first bytes, which hold headers and texts */
};

typedef struct made_file {
    const char *name;
    uint8_t *data;
    size_t n;
} made_file;

typedef struct made_folder {
    made_file files[MAX_FILES];
    int n_files;
    bool adapter; /* an adapter of the model in `base` */
} made_folder;

static made_folder kinds[N_KINDS];
static hf_folder work, base;

/* ---- valid folders --------------------------------------------------------------------------- */

static void keep(made_folder *k, const hf_folder *f, const char *name) {
    char path[FOLDER_PATH];
    folder_path(f, name, path);
    FILE *file = fopen(path, "rb");
    made_file *out = &k->files[k->n_files++];
    *out = (made_file){.name = name, .data = malloc(MAX_BYTES)};
    if (!file || !out->data) abort();
    out->n = fread(out->data, 1, MAX_BYTES, file);
    fclose(file);
}

static void make_whole(made_folder *k, const char *model_type) {
    hf_folder f;
    model_shape shape = shape_tiny(model_type);
    shape.qk_norm = strcmp(model_type, "qwen3") == 0;
    folder_open(&f);
    folder_write_model(&f, &shape);
    folder_write_text(&f, "tokenizer.json", tiny_bpe_json);
    folder_write_text(&f, "generation_config.json", "{\"eos_token_id\":[30,31],\"top_k\":20}");
    keep(k, &f, "config.json");
    keep(k, &f, "model.safetensors");
    keep(k, &f, "tokenizer.json");
    keep(k, &f, "generation_config.json");
    folder_close(&f);
}

static void make_split(made_folder *k) {
    static shard s;
    hf_folder f;
    model_shape shape = shape_tiny("llama");
    char index[8192] = "{\"weight_map\":{\"none\":\"a.safetensors\"";
    folder_open(&f);
    folder_write_config(&f, &shape);
    for (int layer = 0; layer < 2; layer++) {
        const char *name = layer ? "b.safetensors" : "a.safetensors";
        shard_begin(&s);
        shard_add_layers(&s, &shape, layer, layer + 1);
        shard_write(&s, &f, name);
        for (const char *p = s.header; (p = strstr(p, ",\"")); p++) {
            const int n = (int)strcspn(p + 2, "\"");
            if (p[n + 3] != ':' || p[n + 4] != '{') continue;
            size_t used = strlen(index);
            snprintf(index + used, sizeof index - used, ",\"%.*s\":\"%s\"", n, p + 2, name);
        }
    }
    char *first = strstr(index, "\"none\"");
    memmove(first, first + strlen("\"none\":\"a.safetensors\","),
            strlen(first + strlen("\"none\":\"a.safetensors\",")) + 1);
    snprintf(index + strlen(index), sizeof index - strlen(index), "}}");
    folder_write_text(&f, "model.safetensors.index.json", index);
    keep(k, &f, "config.json");
    keep(k, &f, "model.safetensors.index.json");
    keep(k, &f, "a.safetensors");
    keep(k, &f, "b.safetensors");
    folder_close(&f);
}

/* Writes the tensors of a shard as torch.save does. */
static void make_pickle(made_folder *k) {
    static shard s;
    static torch_archive archive;
    hf_folder f;
    model_shape shape = shape_tiny("llama");
    shape.dtype = "BF16";
    folder_open(&f);
    folder_write_config(&f, &shape);
    shard_begin(&s);
    shard_add_layers(&s, &shape, 0, shape.n_layer);
    torch_begin(&archive);
    for (const char *p = s.header; (p = strstr(p, ",\"")); p++) {
        char name[128];
        long long dims[2], from, to;
        if (sscanf(p,
                   ",\"%127[^\"]\":{\"dtype\":\"BF16\",\"shape\":[%lld,%lld],"
                   "\"data_offsets\":[%lld,%lld]}",
                   name, &dims[0], &dims[1], &from, &to) != 5) {
            dims[0] = 0;
            if (sscanf(p,
                       ",\"%127[^\"]\":{\"dtype\":\"BF16\",\"shape\":[%lld],"
                       "\"data_offsets\":[%lld,%lld]}",
                       name, &dims[1], &from, &to) != 4)
                continue;
        }
        torch_item(&archive, name, "BFloat16Storage", 0, dims[0], dims[1], dims[0] ? dims[1] : 1,
                   s.data + from, (size_t)(to - from));
    }
    torch_end(&archive);
    torch_finish(&archive);
    folder_write(&f, "pytorch_model.bin", archive.out, archive.n_out);
    keep(k, &f, "config.json");
    keep(k, &f, "pytorch_model.bin");
    folder_close(&f);
}

static void make_adapter(made_folder *k) {
    static shard s;
    hf_folder f;
    folder_open_model(&base, "llama");
    folder_open(&f);
    shard_begin(&s);
    shard_add(&s, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "F32", 4, 64);
    shard_add(&s, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", "F32", 64, 4);
    shard_add(&s, "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", "F32", 2, 96);
    shard_add(&s, "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight", "F32", 64, 2);
    shard_write(&s, &f, "adapter_model.safetensors");
    folder_write_text(&f, "adapter_config.json",
                      "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"bias\":\"none\","
                      "\"use_dora\":false,\"use_rslora\":true,\"alpha_pattern\":{\"q_proj\":3},"
                      "\"rank_pattern\":{\"down_proj\":2},\"modules_to_save\":null}");
    keep(k, &f, "adapter_config.json");
    keep(k, &f, "adapter_model.safetensors");
    k->adapter = true;
    folder_close(&f);
}

/* ---- a conversion ---------------------------------------------------------------------------- */

static bool convert(const made_folder *k) {
    pi_error err = {0};
    pi_convert_options options = pi_convert_default_options();
    options.type = "q8_0";
    options.n_threads = 1;
    if (k->adapter) options.base = base.dir;
    pi_status status = pi_convert(work.dir, work.out, &options, &err);
    if (status == PI_OK) {
        gguf_file *g;
        if (gguf_open(work.out, NULL, &g, &err) != PI_OK) abort();
        gguf_close(g);
        unlink(work.out);
        return true;
    }
    if (err.message[0] == '\0' || strchr(err.message, '\n') || folder_has_output(&work)) abort();
    return false;
}

static void clean_up(void) {
    folder_close(&work);
    folder_close(&base);
}

static void begin(void) {
    if (kinds[0].n_files) return;
    make_whole(&kinds[0], "llama");
    make_whole(&kinds[1], "qwen3");
    make_split(&kinds[2]);
    make_pickle(&kinds[3]);
    make_adapter(&kinds[4]);
    folder_open(&work);
    atexit(clean_up);
}

/* ---- changes --------------------------------------------------------------------------------- */

static void splice(made_file *f, size_t at, size_t n_out, const void *in, size_t n_in) {
    if (n_out > f->n - at) n_out = f->n - at;
    if (f->n - n_out + n_in > MAX_BYTES) return;
    memmove(f->data + at + n_in, f->data + at + n_out, f->n - at - n_out);
    memcpy(f->data + at, in, n_in);
    f->n = f->n - n_out + n_in;
}

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

/* Replaces the next decimal number from `at` on. */
static void change_number(made_file *f, size_t at, uint32_t value) {
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "3",
                                          "65",
                                          "4294967296",
                                          "9223372036854775807",
                                          "18446744073709551616",
                                          "1e400",
                                          "-0.5",
                                          "null",
                                          "\"8\"",
                                          "[]",
                                          "{}",
                                          "true"};
    while (at < f->n && !is_digit(f->data[at])) at++;
    size_t end = at;
    while (end < f->n && is_digit(f->data[end])) end++;
    const char *number = numbers[value % (sizeof numbers / sizeof *numbers)];
    splice(f, at, end - at, number, strlen(number));
}

/* Finds the next quoted text from `at` on, without its quotes. */
static bool quoted(const made_file *f, size_t at, size_t *begin, size_t *n) {
    const uint8_t *open = at < f->n ? memchr(f->data + at, '"', f->n - at) : NULL;
    if (!open) return false;
    *begin = (size_t)(open - f->data) + 1;
    const uint8_t *close = memchr(f->data + *begin, '"', f->n - *begin);
    if (!close) return false;
    *n = (size_t)(close - f->data) - *begin;
    return *n < 256;
}

static void copy_name(made_file *f, size_t to, size_t from) {
    uint8_t name[256];
    size_t begin, n, old, n_old;
    if (!quoted(f, from, &begin, &n) || !quoted(f, to, &old, &n_old)) return;
    memcpy(name, f->data + begin, n);
    splice(f, old, n_old, name, n);
}

static void change(made_folder *k, const uint8_t *c) {
    made_file *f = &k->files[c[0] % k->n_files];
    const uint32_t where = c[1] | (uint32_t)c[2] << 8 | (uint32_t)c[3] << 16,
                   value = c[5] | (uint32_t)c[6] << 8 | (uint32_t)c[7] << 16;
    if (f->n == 0) return;
    const size_t at = where % (c[4] & 0x80 ? f->n : f->n < TEXT_SHARE ? f->n : TEXT_SHARE);
    switch (c[4] % 7) {
    case 0:
        f->data[at] = (uint8_t)value;
        break;
    case 1:
        splice(f, at, 0, &c[5], 3);
        break;
    case 2:
        splice(f, at, value % 300, "", 0);
        break;
    case 3:
        f->n = at;
        break;
    case 4:
        change_number(f, at, value);
        break;
    case 5:
        copy_name(f, at, value % f->n);
        break;
    default:
        f->data[at] ^= (uint8_t)(1u << (value % 8));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    begin();
    if (n < 1) return 0;
    const made_folder *from = &kinds[data[0] % N_KINDS];
    made_folder k = *from;
    for (int i = 0; i < k.n_files; i++) {
        k.files[i].data = malloc(MAX_BYTES);
        if (!k.files[i].data) abort();
        memcpy(k.files[i].data, from->files[i].data, k.files[i].n);
    }
    size_t n_changes = (n - 1) / CHANGE_BYTES;
    if (n_changes > MAX_CHANGES) n_changes = MAX_CHANGES;
    for (size_t i = 0; i < n_changes; i++) change(&k, data + 1 + i * CHANGE_BYTES);
    for (int i = 0; i < k.n_files; i++)
        folder_write(&work, k.files[i].name, k.files[i].data, k.files[i].n);
    if (!convert(&k) && n_changes == 0) abort(); /* every folder is valid before its changes */
    for (int i = 0; i < k.n_files; i++) {
        char path[FOLDER_PATH];
        folder_path(&work, k.files[i].name, path);
        unlink(path);
        free(k.files[i].data);
    }
    return 0;
}

/* Each folder unchanged, and with one change of every kind. */
size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    enum { SORTS = 8 };
    if (i >= (size_t)N_KINDS * SORTS || max < 1 + CHANGE_BYTES) return 0;
    memset(data, 0, 1 + CHANGE_BYTES);
    data[0] = (uint8_t)(i % N_KINDS);
    if (i < N_KINDS) return 1;
    data[1] = (uint8_t)i;
    data[2] = (uint8_t)(37 * i);
    data[5] = (uint8_t)(i / N_KINDS - 1);
    data[6] = (uint8_t)(3 * i);
    return 1 + CHANGE_BYTES;
}
