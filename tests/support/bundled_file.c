#include "bundled_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "mem.h"

enum { MAX_LAYERS = 64, PARTS = 3 };

static const char *const part_names[PARTS] = {"ffn_gate", "ffn_up", "ffn_down_t"};
static const char *const part_keys[PARTS] = {
    "powerinfer.bundle.gate_type", "powerinfer.bundle.up_type", "powerinfer.bundle.down_type"};

static void must(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

static const gguf_tensor *find_name(const gguf_file *f, int layer, const char *part) {
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return gguf_find_tensor(f, name);
}

/* A tensor that has the rows of gate, then those of up. */
static bool is_fused(const gguf_file *f, int layer) {
    const gguf_tensor *up = find_name(f, layer, "ffn_up");
    const gguf_tensor *down = find_name(f, layer, "ffn_down_t");
    return up && down && up->dims[1] == 2 * down->dims[1];
}

static const gguf_tensor *find_part(const gguf_file *f, int layer, int part) {
    return find_name(f, layer, part_names[part == 0 && is_fused(f, layer) ? 1 : part]);
}

static size_t row_bytes(const gguf_tensor *t) {
    return t->n_bytes / (size_t)t->dims[1];
}

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static size_t stride_of(const gguf_file *f, int layer, int extra) {
    size_t end = 0;
    for (int k = 0; k < PARTS; k++) {
        const gguf_tensor *t = find_part(f, layer, k);
        if (t) end = round_up(end, 32) + row_bytes(t);
    }
    return round_up(end, 512) + 512 * (size_t)extra;
}

static void put_keys(gguf_writer *w, const gguf_file *f) {
    uint64_t n_layer = 0;
    char arch_key[64];
    gguf_string arch, names[MAX_LAYERS];
    assert_true(gguf_as_string(gguf_find(f, "general.architecture"), &arch));
    snprintf(arch_key, sizeof arch_key, "%.*s.block_count", (int)arch.n_bytes, arch.data);
    assert_true(gguf_as_u64(gguf_find(f, arch_key), &n_layer) && n_layer <= MAX_LAYERS);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    gguf_put_u32(w, "general.alignment", 4096);
    for (int k = 0; k < PARTS; k++) {
        for (uint64_t i = 0; i < n_layer; i++) {
            const gguf_tensor *t = find_part(f, (int)i, k);
            bool bundled = t && find_part(f, (int)i, 2);
            const char *name = bundled ? quant_find((uint32_t)t->type)->name : "none";
            names[i] = (gguf_string){name, strlen(name)};
        }
        gguf_put_strings(w, part_keys[k], names, n_layer);
    }
}

/* 0: as it is; 1: replaced by the layer's bundles; 2: part of them. */
static int becomes(const gguf_file *f, const gguf_tensor *t, int *layer) {
    if (sscanf(t->name, "blk.%d.", layer) != 1 || !find_part(f, *layer, 2)) return 0;
    if (t == find_part(f, *layer, 2)) return 1;
    return t == find_part(f, *layer, 0) || t == find_part(f, *layer, 1) ? 2 : 0;
}

static void write_bundles(gguf_writer *w, const gguf_file *f, int layer, size_t stride) {
    pi_error err;
    uint8_t *row = mem_alloc(stride);
    uint64_t n_ff = find_part(f, layer, 2)->dims[1];
    for (uint64_t i = 0; i < n_ff; i++) {
        size_t end = 0;
        memset(row, 0, stride);
        for (int k = 0; k < PARTS; k++) {
            const gguf_tensor *t = find_part(f, layer, k);
            if (!t) continue;
            end = round_up(end, 32);
            uint64_t from = k == 1 && is_fused(f, layer) ? n_ff + i : i;
            memcpy(row + end, t->data + from * row_bytes(t), row_bytes(t));
            end += row_bytes(t);
        }
        must(gguf_write_data(w, row, stride, &err), &err);
    }
    mem_free(row);
}

void bundled_write(const char *from, const char *to, int extra) {
    gguf_file *f;
    gguf_writer *w;
    pi_error err;
    must(gguf_open(from, NULL, &f, &err), &err);
    must(gguf_writer_create(to, &w, &err), &err);
    put_keys(w, f);
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i);
            int layer, kind = becomes(f, t, &layer);
            if (kind == 2) continue;
            size_t stride = kind ? stride_of(f, layer, extra) : 0;
            uint64_t dims[2] = {stride, t->dims[1]};
            char name[GGUF_MAX_NAME];
            snprintf(name, sizeof name, "blk.%d.ffn_bundle.weight", layer);
            if (pass == 0 && kind)
                must(gguf_add_tensor(w, name, QUANT_I8, 2, dims, &err), &err);
            else if (pass == 0)
                must(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), &err);
            else if (kind)
                write_bundles(w, f, layer, stride);
            else
                must(gguf_write_data(w, t->data, t->n_bytes, &err), &err);
        }
        if (pass == 0) must(gguf_writer_begin_data(w, &err), &err);
    }
    must(gguf_writer_finish(w, &err), &err);
    gguf_close(f);
}
