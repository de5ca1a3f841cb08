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

/* A tensor of the new file: the rows of up to three tensors, or (from[0] NULL) random numbers. */
enum { PARTS = 3 };
typedef struct copy {
    const gguf_tensor *from[PARTS];
    char name[GGUF_MAX_NAME];
    uint64_t n_elems;
    float mean, deviation;
} copy;

typedef struct headed {
    const headed_options *o;
    gguf_file *file;
    gguf_writer *writer;
    copy *copies; /* [MAX_COPIES] */
    int n_copies;
    int n_layer, source; /* source: the layer that is copied */
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

/* Lists with an item for each layer grow unless o.short_lists; vocabularies are left out. */
static void put_value(headed *h, const gguf_value *v) {
    char key[128];
    snprintf(key, sizeof key, "%.*s", (int)v->key.n_bytes, v->key.data);
    if (strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0) return;
    if (h->o->short_lists || v->type != GGUF_ARRAY || v->count != (uint64_t)h->n_layer ||
        v->item_type == GGUF_STRING || strstr(key, "sections")) {
        gguf_put_value(h->writer, v);
        return;
    }
    const bool wide = v->item_type != GGUF_BOOL && v->item_type != GGUF_U8;
    const size_t size = wide ? 4 : 1;
    uint8_t items[4 * LAYERS_MAX];
    memcpy(items, v->data, (size_t)v->count * size);
    for (int i = 0; i < h->o->n_heads; i++)
        memcpy(items + (size_t)(h->n_layer + i) * size, v->data + (size_t)h->source * size, size);
    gguf_put_array(h->writer, key, v->item_type, items, (uint64_t)(h->n_layer + h->o->n_heads));
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

static bool ends(const char *name, const char *with) {
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

static bool is_left_out(const headed *h, const char *name) {
    return h->o->unbiased &&
           (ends(name, ".attn_q.bias") || ends(name, ".attn_k.bias") || ends(name, ".attn_v.bias"));
}

/* Q, K, V, router and experts. */
static bool is_replaced(const headed *h, const char *name) {
    static const char *const parts[] = {".attn_q.",       ".attn_k.", ".attn_v.",
                                        ".ffn_gate_inp.", "_exps.",   ".exp_probs_b."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && h->o->fused; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

static void add_fused(headed *h, int layer) {
    static const char parts[PARTS] = {'q', 'k', 'v'};
    const gguf_tensor *from[PARTS];
    char name[GGUF_MAX_NAME];
    uint64_t n_rows = 0;
    for (int i = 0; i < PARTS; i++) {
        snprintf(name, sizeof name, "blk.%d.attn_%c.weight", h->source, parts[i]);
        from[i] = gguf_find_tensor(h->file, name);
        assert_non_null(from[i]);
        n_rows += from[i]->dims[1];
    }
    snprintf(name, sizeof name, "blk.%d.attn_qkv.weight", layer);
    copy *c = add(h, name, 2, (uint64_t[]){from[0]->dims[0], n_rows});
    memcpy(c->from, from, sizeof from);
}

static void add_head(headed *h, int layer, uint64_t n_embd) {
    char start[32], name[GGUF_MAX_NAME];
    snprintf(start, sizeof start, "blk.%d.", h->source);
    for (uint64_t i = 0; i < gguf_n_tensors(h->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(h->file, i);
        if (strncmp(t->name, start, strlen(start)) != 0) continue;
        if (is_left_out(h, t->name) || is_replaced(h, t->name)) continue;
        snprintf(name, sizeof name, "blk.%d.%.40s", layer, t->name + strlen(start));
        add(h, name, t->n_dims, t->dims)->from[0] = t;
    }
    if (h->o->fused) add_fused(h, layer);
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
        float *to = data;
        for (int p = 0; p < PARTS && c->from[p]; p++) {
            const gguf_tensor *from = c->from[p];
            quant_find(from->type)->dequantize(from->data, to, (int64_t)from->n_elems);
            to += from->n_elems;
        }
        for (; to < data + c->n_elems; to++) *to = c->mean + c->deviation * rng_normal(&r);
        ok(gguf_write_data(h->writer, data, (size_t)c->n_elems * sizeof *data, &err), &err);
        free(data);
    }
}

void headed_write(const char *from, const char *to, const headed_options *o) {
    headed h = {.o = o, .copies = calloc(MAX_COPIES, sizeof *h.copies)};
    const int n_heads = o->n_heads;
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
        if (!is_left_out(&h, t->name)) add(&h, t->name, t->n_dims, t->dims)->from[0] = t;
    }
    for (int i = 0; i < n_heads; i++) add_head(&h, h.n_layer + i, n_embd);
    ok(gguf_writer_begin_data(h.writer, &err), &err);
    write_data(&h);
    ok(gguf_writer_finish(h.writer, &err), &err);
    gguf_close(h.file);
    free(h.copies);
}
