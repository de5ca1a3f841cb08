/* sharp_model.c: see sharp_model.h. */
#include "sharp_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- gates ----------------------------------------------------------------------------------- */

/* Most models match their logits to 3e-12, models with compressed attention to 1.5e-11. */
static const double default_gate = 1e-10;
static const struct {
    const char *name;
    double nmse;
} gates[] = {
    /* The reference computes GELU from a table with 16-bit float arguments and values. */
    {"falcon-dense", 1e-6},
    {"gemma-dense", 1e-6},
    {"gemma2-dense", 1e-6},
    {"gemma3-dense", 1e-6},
    {"gemma4-dense", 1e-6},
    {"phi2-dense", 1e-6},
    {"starcoder2-dense", 1e-6},
    /* The reference's RoPE angles are products of floats, divided by the file's factors; ours are
     * computed in double. With the reference's angles NMSE is 1.2e-12 at most. */
    {"arcee-dense", 1e-9},
    {"exaone-moe-moe", 1e-9},
    {"exaone4-dense", 1e-9},
    {"llama-dense", 1e-9},
    {"llama-moe", 1e-9},
    {"llama4-moe", 1e-9},
    {"mistral3-dense", 1e-9},
    {"granite-dense", 2.5e-9},
    {"granitehybrid-dense", 2.5e-9},
    {"granitemoe-moe", 2.5e-9},
    {"minicpm-dense", 2.5e-9},
    {"phi3-dense", 2.5e-9},
    {"phimoe-moe", 2.5e-9},
    /* The attention scores of one token nearly tie: the tiers differ by 6e-10. */
    {"mimo2-moe", 4e-9},
    /* The shared expert adds 4e-12. */
    {"qwen3next-moe", 5e-13},
};

static double gate_of(const char *name) {
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++)
        if (strcmp(gates[i].name, name) == 0) return gates[i].nmse;
    return default_gate;
}

/* ---- weights --------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

static bool is_attention(const gguf_tensor *t) {
    static const char *const ends[] = {"attn_q.weight",   "attn_k.weight",      "attn_v.weight",
                                       "attn_qkv.weight", "attn_output.weight", "attn_gate.weight"};
    if (t->type != QUANT_F32 && t->type != QUANT_F16) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(t->name, ends[i])) return true;
    return false;
}

static void sharpen(const gguf_tensor *t, uint8_t *data) {
    bool attention = is_attention(t);
    bool norm = t->type == QUANT_F32 && strstr(t->name, "norm") && ends_with(t->name, ".weight");
    for (uint64_t i = 0; i < t->n_elems && (attention || norm); i++) {
        if (t->type == QUANT_F16) {
            uint16_t half;
            memcpy(&half, data + 2 * i, sizeof half);
            half = quant_f32_to_f16(12 * quant_f16_to_f32(half));
            memcpy(data + 2 * i, &half, sizeof half);
            continue;
        }
        float w;
        memcpy(&w, data + 4 * i, sizeof w);
        w = attention ? 12 * w : 1 + 2 * w;
        memcpy(data + 4 * i, &w, sizeof w);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void read_file(const char *path, sharp_model *s) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is not there", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    s->n_bytes = (size_t)ftell(f);
    rewind(f);
    s->bytes = malloc(s->n_bytes);
    assert_int_equal(fread(s->bytes, 1, s->n_bytes, f), s->n_bytes);
    fclose(f);
}

bool sharp_open(const char *folder, const char *name, sharp_model *out) {
    char path[GOLDEN_PATH_BYTES];
    gguf_file *file;
    pi_error err;
    *out = (sharp_model){.gate = gate_of(name)};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(path, sizeof path, "%s/../more/%s.gguf", folder, name);
    read_file(path, out);
    if (gguf_open_memory(out->bytes, out->n_bytes, name, &file, &err)) fail_msg("%s", err.message);
    for (uint64_t i = 0; i < gguf_n_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        sharpen(t, out->bytes + (t->data - out->bytes));
    }
    pi_status status = model_open_adapted(file, NULL, 0, true, &out->m, &err);
    if (status == PI_ERR_UNSUPPORTED) {
        printf("not supported yet: %s\n", err.message);
        free(out->bytes);
        return false;
    }
    if (status != PI_OK) fail_msg("%s", err.message);
    out->r = golden_read(folder, name, out->m->hp.n_vocab);
    out->r.n_ctx = 512;
    return true;
}

void sharp_close(sharp_model *s) {
    reference_free(&s->r);
    model_close(s->m);
    free(s->bytes);
}

void sharp_each(int n_own, int n_shared, golden_visit *visit) {
    golden_each("sharp", ".tokens.txt", n_own, n_shared, visit);
}
