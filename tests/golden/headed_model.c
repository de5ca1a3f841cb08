/* headed_model.c: see headed_model.h. */
#include "headed_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "quant.h"
#include "rng.h"

enum { MAX_COPIES = 4096, LAYERS_MAX = 64 };

/* A tensor of the new file: a copy, or (from NULL) random numbers. */
typedef struct copy {
    const gguf_tensor *from;
    char name[GGUF_MAX_NAME];
    uint64_t n_elems;
    float mean, deviation;
} copy;

typedef struct headed {
    gguf_file *file;
    gguf_writer *writer;
    copy *copies; /* [MAX_COPIES] */
    int n_copies;
    int n_layer, n_heads, source; /* source: the layer that is copied */
} headed;

static void ok(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

static int64_t number(const gguf_file *f, const char *arch, const char *suffix) {
    char key[128];
    int64_t n = 0;
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    const gguf_value *v = gguf_find(f, key);
    if (!v || !gguf_as_i64(v, &n)) fail_msg("no key %s", key);
    return n;
}

/* Lists with an item for each layer grow; vocabularies are left out. */
static void put_value(headed *h, const gguf_value *v) {
    char key[128];
    snprintf(key, sizeof key, "%.*s", (int)v->key.n_bytes, v->key.data);
    if (strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0) return;
    if (v->type != GGUF_ARRAY || v->count != (uint64_t)h->n_layer || v->item_type == GGUF_STRING ||
        strstr(key, "sections")) {
        gguf_put_value(h->writer, v);
        return;
    }
    const bool wide = v->item_type != GGUF_BOOL && v->item_type != GGUF_U8;
    const size_t size = wide ? 4 : 1;
    uint8_t items[4 * LAYERS_MAX];
    memcpy(items, v->data, (size_t)v->count * size);
    for (int i = 0; i < h->n_heads; i++)
        memcpy(items + (size_t)(h->n_layer + i) * size, v->data + (size_t)h->source * size, size);
    gguf_put_array(h->writer, key, v->item_type, items, (uint64_t)(h->n_layer + h->n_heads));
}

static copy *add(headed *h, const char *name, int n_dims, const uint64_t *dims) {
    pi_error err;
    assert_true(h->n_copies < MAX_COPIES);
    copy *c = &h->copies[h->n_copies++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->n_elems = 1;
    for (int i = 0; i < n_dims; i++) c->n_elems *= dims[i];
    ok(gguf_add_tensor(h->writer, name, QUANT_F32, n_dims, dims, &err), &err);
    return c;
}

static void add_random(headed *h, int layer, const char *end, int n_dims, uint64_t n_in,
                       uint64_t n_out, float mean, float deviation) {
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", layer, end);
    copy *c = add(h, name, n_dims, (uint64_t[]){n_in, n_out});
    c->mean = mean;
    c->deviation = deviation;
}

static void add_head(headed *h, int layer, uint64_t n_embd) {
    char start[32], name[GGUF_MAX_NAME];
    snprintf(start, sizeof start, "blk.%d.", h->source);
    for (uint64_t i = 0; i < gguf_n_tensors(h->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(h->file, i);
        if (strncmp(t->name, start, strlen(start)) != 0) continue;
        snprintf(name, sizeof name, "blk.%d.%.40s", layer, t->name + strlen(start));
        add(h, name, t->n_dims, t->dims)->from = t;
    }
    add_random(h, layer, "enorm", 1, n_embd, 1, 1, 0.2f);
    add_random(h, layer, "hnorm", 1, n_embd, 1, 1, 0.2f);
    add_random(h, layer, "shared_head_norm", 1, n_embd, 1, 1, 0.2f);
    add_random(h, layer, "eh_proj", 2, 2 * n_embd, n_embd, 0, 1 / sqrtf(2 * (float)n_embd));
}

static void write_data(headed *h) {
    pi_error err;
    rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < h->n_copies; i++) {
        const copy *c = &h->copies[i];
        float *data = malloc((size_t)c->n_elems * sizeof *data);
        assert_non_null(data);
        if (c->from)
            quant_find(c->from->type)->dequantize(c->from->data, data, (int64_t)c->n_elems);
        for (uint64_t k = 0; k < c->n_elems && !c->from; k++)
            data[k] = c->mean + c->deviation * rng_normal(&r);
        ok(gguf_write_data(h->writer, data, (size_t)c->n_elems * sizeof *data, &err), &err);
        free(data);
    }
}

void headed_write(const char *from, const char *to, int n_heads) {
    headed h = {.n_heads = n_heads, .copies = calloc(MAX_COPIES, sizeof *h.copies)};
    char arch[64], key[128];
    gguf_string s;
    pi_error err;
    assert_true(h.copies && n_heads <= HEADED_MAX);
    ok(gguf_open(from, NULL, &h.file, &err), &err);
    assert_true(gguf_as_string(gguf_find(h.file, "general.architecture"), &s));
    snprintf(arch, sizeof arch, "%.*s", (int)s.n_bytes, s.data);
    const uint64_t n_embd = (uint64_t)number(h.file, arch, "embedding_length");
    h.n_layer = (int)number(h.file, arch, "block_count");
    assert_in_range(h.n_layer + n_heads, 1, LAYERS_MAX);
    for (int i = 0; i < h.n_layer; i++) {
        snprintf(key, sizeof key, "blk.%d.attn_output.weight", i);
        if (gguf_find_tensor(h.file, key)) h.source = i;
    }
    ok(gguf_writer_create(to, &h.writer, &err), &err);
    for (uint64_t i = 0; i < gguf_n_values(h.file); i++) put_value(&h, gguf_value_at(h.file, i));
    gguf_put_string(h.writer, "tokenizer.ggml.model", "none");
    snprintf(key, sizeof key, "%s.block_count", arch);
    gguf_put_u32(h.writer, key, (uint32_t)(h.n_layer + n_heads));
    snprintf(key, sizeof key, "%s.nextn_predict_layers", arch);
    gguf_put_u32(h.writer, key, (uint32_t)n_heads);
    for (uint64_t i = 0; i < gguf_n_tensors(h.file); i++) {
        const gguf_tensor *t = gguf_tensor_at(h.file, i);
        add(&h, t->name, t->n_dims, t->dims)->from = t;
    }
    for (int i = 0; i < n_heads; i++) add_head(&h, h.n_layer + i, n_embd);
    ok(gguf_writer_begin_data(h.writer, &err), &err);
    write_data(&h);
    ok(gguf_writer_finish(h.writer, &err), &err);
    gguf_close(h.file);
    free(h.copies);
}
