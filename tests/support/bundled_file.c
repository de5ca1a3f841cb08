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

enum { MAX_LAYERS = 64, PARTS = 5, DOWN = 2, EXPERTS_DOWN = 3 };

typedef enum { NEURONS, EXPERTS, NONE } what;

static const char *const part_names[][PARTS] = {
    [NEURONS] = {"ffn_gate", "ffn_up", "ffn_down_t", "", ""},
    [EXPERTS] = {"ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps",
                 "ffn_down_t_exps"}};
static const char *const part_keys[][PARTS] = {
    [NEURONS] = {"gate_type", "up_type", "down_type", NULL, NULL},
    [EXPERTS] = {"expert_gate_up_type", "expert_gate_type", "expert_up_type", "expert_down_type",
                 "expert_down_t_type"}};
static const size_t block[] = {[NEURONS] = 512, [EXPERTS] = 4096};

static void must(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

static const gguf_tensor *find_name(const gguf_file *f, int layer, const char *part) {
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return gguf_find_tensor(f, name);
}

/* True if one tensor has the rows of gate, then the rows of up. */
static bool is_fused(const gguf_file *f, int layer) {
    const gguf_tensor *up = find_name(f, layer, "ffn_up");
    const gguf_tensor *down = find_name(f, layer, "ffn_down_t");
    return up && down && up->dims[1] == 2 * down->dims[1];
}

static const gguf_tensor *find_part(const gguf_file *f, int layer, what kind, int part) {
    bool fused = kind == NEURONS && part == 0 && is_fused(f, layer);
    return find_name(f, layer, part_names[kind][fused ? 1 : part]);
}

/* Finds down in the form that a layer's bundles use. */
static const gguf_tensor *find_down(const gguf_file *f, int layer, what *kind) {
    const gguf_tensor *neurons = find_part(f, layer, NEURONS, DOWN);
    const gguf_tensor *experts = find_part(f, layer, EXPERTS, EXPERTS_DOWN);
    if (!experts) experts = find_part(f, layer, EXPERTS, EXPERTS_DOWN + 1);
    *kind = experts ? EXPERTS : neurons ? NEURONS : NONE;
    return experts ? experts : neurons;
}

static uint64_t units_of(const gguf_tensor *t, what kind) {
    return t->dims[kind == EXPERTS ? 2 : 1];
}

static size_t unit_bytes(const gguf_tensor *t, what kind) {
    return t->n_bytes / (size_t)units_of(t, kind);
}

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static size_t begin_of(what kind, int part, size_t end) {
    return round_up(end, kind == EXPERTS && part >= EXPERTS_DOWN ? 4096 : 32);
}

static size_t stride_of(const gguf_file *f, int layer, what kind, int extra) {
    size_t end = 0;
    for (int k = 0; k < PARTS; k++) {
        const gguf_tensor *t = find_part(f, layer, kind, k);
        if (t) end = begin_of(kind, k, end) + unit_bytes(t, kind);
    }
    return round_up(end, block[kind]) + block[kind] * (size_t)extra;
}

static void put_types(gguf_writer *w, const gguf_file *f, uint64_t n_layer, what kind) {
    gguf_string names[MAX_LAYERS];
    char key[64];
    for (int k = 0; k < PARTS && part_keys[kind][k]; k++) {
        for (uint64_t i = 0; i < n_layer; i++) {
            what of_layer;
            const gguf_tensor *t = find_part(f, (int)i, kind, k);
            bool bundled = t && find_down(f, (int)i, &of_layer) && of_layer == kind;
            const char *name = bundled ? quant_find((uint32_t)t->type)->name : "none";
            names[i] = (gguf_string){name, strlen(name)};
        }
        snprintf(key, sizeof key, "powerinfer.bundle.%s", part_keys[kind][k]);
        gguf_put_strings(w, key, names, n_layer);
    }
}

/* Writes the names of the source's tensors: without those that prepare added, and with ffn_down. */
static void put_order(gguf_writer *w, const gguf_file *f) {
    enum { MAX_TENSORS = 1024 };
    static const char *const added[] = {".ffn_freq", ".ffn_perm", ".ffn_expert_perm", ".ffn_cut",
                                        ".fc1",      ".fc2",      ".ffn_sign"};
    static char texts[MAX_TENSORS][3 * GGUF_MAX_NAME];
    gguf_string names[MAX_TENSORS];
    size_t n = 0;
    assert_true(gguf_n_tensors(f) <= MAX_TENSORS);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const char *name = gguf_tensor_at(f, i)->name, *down_t = strstr(name, "ffn_down_t");
        bool skip = false;
        for (size_t k = 0; k < sizeof added / sizeof *added; k++) skip |= !!strstr(name, added[k]);
        if (skip) continue;
        int before = down_t ? (int)(down_t - name) : 0;
        snprintf(texts[n], sizeof texts[n], "%.*s%s%s", before, name, down_t ? "ffn_down" : "",
                 down_t ? down_t + strlen("ffn_down_t") : name);
        names[n] = (gguf_string){texts[n], strlen(texts[n])};
        n++;
    }
    gguf_put_strings(w, "powerinfer.source.tensors", names, n);
}

static void put_keys(gguf_writer *w, const gguf_file *f) {
    uint64_t n_layer = 0;
    char arch_key[64];
    gguf_string arch;
    float widths[MAX_LAYERS] = {0};
    bool any[] = {[NEURONS] = false, [EXPERTS] = false, [NONE] = false};
    assert_true(gguf_as_string(gguf_find(f, "general.architecture"), &arch));
    snprintf(arch_key, sizeof arch_key, "%.*s.block_count", (int)arch.n_bytes, arch.data);
    assert_true(gguf_as_u64(gguf_find(f, arch_key), &n_layer) && n_layer <= MAX_LAYERS);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) gguf_put_value(w, gguf_value_at(f, i));
    gguf_put_u32(w, "general.alignment", 4096);
    for (uint64_t i = 0; i < n_layer; i++) {
        what kind;
        const gguf_tensor *down = find_down(f, (int)i, &kind);
        any[kind] = true;
        if (kind == EXPERTS)
            widths[i] = (float)down->dims[down == find_part(f, (int)i, EXPERTS, EXPERTS_DOWN + 1)];
    }
    put_order(w, f);
    if (any[NEURONS] || !any[EXPERTS]) put_types(w, f, n_layer, NEURONS);
    if (!any[EXPERTS]) return;
    put_types(w, f, n_layer, EXPERTS);
    gguf_put_array(w, "powerinfer.bundle.expert_ff", GGUF_F32, widths, n_layer);
}

/* 0: the tensor is copied; 1: the layer's bundles replace it; 2: it is a part of them. */
static int becomes(const gguf_file *f, const gguf_tensor *t, int *layer, what *kind) {
    if (sscanf(t->name, "blk.%d.", layer) != 1) return 0;
    const gguf_tensor *down = find_down(f, *layer, kind);
    if (!down || t == down) return down != NULL;
    for (int k = 0; k < PARTS; k++)
        if (t == find_part(f, *layer, *kind, k)) return 2;
    return 0;
}

static void write_bundles(gguf_writer *w, const gguf_file *f, int layer, what kind, size_t stride) {
    pi_error err;
    uint8_t *row = mem_alloc(stride);
    what same;
    uint64_t n_units = units_of(find_down(f, layer, &same), kind);
    for (uint64_t i = 0; i < n_units; i++) {
        size_t end = 0;
        memset(row, 0, stride);
        for (int k = 0; k < PARTS; k++) {
            const gguf_tensor *t = find_part(f, layer, kind, k);
            if (!t) continue;
            size_t n = unit_bytes(t, kind);
            end = begin_of(kind, k, end);
            bool second = kind == NEURONS && k == 1 && is_fused(f, layer);
            memcpy(row + end, t->data + (second ? n_units + i : i) * n, n);
            end += n;
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
            what kind = NONE;
            int layer, change = becomes(f, t, &layer, &kind);
            if (change == 2) continue;
            size_t stride = change ? stride_of(f, layer, kind, extra) : 0;
            uint64_t dims[2] = {stride, units_of(t, kind)};
            char name[GGUF_MAX_NAME];
            snprintf(name, sizeof name, "blk.%d.ffn_bundle%s.weight", layer,
                     kind == EXPERTS ? "_exps" : "");
            if (pass == 0 && change)
                must(gguf_add_tensor(w, name, QUANT_I8, 2, dims, &err), &err);
            else if (pass == 0)
                must(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), &err);
            else if (change)
                write_bundles(w, f, layer, kind, stride);
            else
                must(gguf_write_data(w, t->data, t->n_bytes, &err), &err);
        }
        if (pass == 0) must(gguf_writer_begin_data(w, &err), &err);
    }
    must(gguf_writer_finish(w, &err), &err);
    gguf_close(f);
}
