/* fuzz_lora.c: any bytes as a LoRA adapter of a small model: the result is an error with a message,
 * or a model that opens. Changes of a whole file mostly break its header, so each input also runs
 * as the tail of a valid file, from the directory of tensors on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz_target.h"
#include "gguf_writer.h"
#include "powerinfer.h"
#include "tiny_model.h"

enum { PATH_ROOM = 256, MAX_FILE = 1 << 16, RANK = 2 };

static char folder[PATH_ROOM], model_path[PATH_ROOM], adapter_path[PATH_ROOM];
static uint8_t good[MAX_FILE];
static size_t n_good, directory; /* directory: where the tensor infos begin in `good` */

static void clean_up(void) {
    unlink(model_path);
    unlink(adapter_path);
    rmdir(folder);
}

/* Writes one pair per form: a matrix, sorted neurons, embeddings. */
static void write_good(void) {
    static const struct {
        const char *name;
        uint64_t dims[2];
    } halves[] = {
        {"blk.0.attn_q.weight.lora_a", {32, RANK}},   {"blk.0.attn_q.weight.lora_b", {RANK, 32}},
        {"blk.0.ffn_down.weight.lora_a", {64, RANK}}, {"blk.0.ffn_down.weight.lora_b", {RANK, 32}},
        {"token_embd.weight.lora_a", {RANK, 40}},     {"token_embd.weight.lora_b", {RANK, 32}}};
    enum { N_HALVES = sizeof halves / sizeof *halves };
    static const float zeros[64 * RANK];
    pi_error err;
    gguf_writer *w;
    if (gguf_writer_create(adapter_path, &w, &err) != PI_OK) abort();
    gguf_put_string(w, "general.type", "adapter");
    gguf_put_string(w, "adapter.type", "lora");
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_f32(w, "adapter.lora.alpha", 4);
    for (int i = 0; i < N_HALVES; i++)
        if (gguf_add_tensor(w, halves[i].name, QUANT_F32, 2, halves[i].dims, &err) != PI_OK)
            abort();
    if (gguf_writer_begin_data(w, &err) != PI_OK) abort();
    for (int i = 0; i < N_HALVES; i++) {
        size_t n = (size_t)(halves[i].dims[0] * halves[i].dims[1]);
        if (gguf_write_data(w, zeros, n * sizeof *zeros, &err) != PI_OK) abort();
    }
    if (gguf_writer_finish(w, &err) != PI_OK) abort();
}

/* Returns whether the model opens with this adapter. */
static bool try_file(const uint8_t *start, size_t n_start, const uint8_t *data, size_t n) {
    FILE *f = fopen(adapter_path, "wb");
    if (!f || (n_start && fwrite(start, 1, n_start, f) != n_start) ||
        (n && fwrite(data, 1, n, f) != n) || fclose(f))
        abort();
    pi_error err = {0};
    pi_model *m;
    pi_model_options options = pi_model_default_options();
    options.adapters = &(pi_adapter){adapter_path, 0.5f};
    options.n_adapters = 1;
    if (pi_model_open(model_path, &options, &m, &err) == PI_OK) {
        pi_model_close(m);
        return true;
    }
    if (err.message[0] == '\0' || strchr(err.message, '\n'))
        abort(); /* every error has a message of one line */
    return false;
}

static void begin(void) {
    const char *tmp = getenv("TMPDIR");
    if (folder[0]) return;
    snprintf(folder, sizeof folder - 32, "%s/fuzz_lora.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) abort();
    snprintf(model_path, sizeof model_path, "%.200s/model.gguf", folder);
    snprintf(adapter_path, sizeof adapter_path, "%.200s/adapter.gguf", folder);
    atexit(clean_up);
    tiny_model t = tiny_default();
    t.sparse = (tiny_sparse){.down_t = true, .cut = 0.1f};
    t.tied = true;
    tiny_write(&t, model_path);
    write_good();
    FILE *f = fopen(adapter_path, "rb");
    if (!f) abort();
    n_good = fread(good, 1, sizeof good, f);
    fclose(f);
    while (memcmp(good + directory, "blk.0.attn_q", 12) != 0) directory++;
    directory -= 8; /* the length of the name */
    if (!try_file(good, n_good, NULL, 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    begin();
    if (n > MAX_FILE) return 0;
    try_file(NULL, 0, data, n);
    try_file(good, directory, data, n);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    begin();
    size_t from = i == 1 ? directory : 0;
    if (i > 1 || n_good - from > max) return 0;
    memcpy(data, good + from, n_good - from);
    return n_good - from;
}
