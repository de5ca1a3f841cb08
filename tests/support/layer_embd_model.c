/* layer_embd_model.c: see layer_embd_model.h. */
#include "layer_embd_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "rng.h"
#include "tiny_model.h"

const bool ple_windowed[PLE_LAYERS] = {true, true, false, true, false};
const double ple_softcap = 20, ple_eps = 1e-6, ple_base_full = 1e6, ple_base_window = 1e4;

static int dim_full = PLE_DIM_FULL;

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

int ple_head_dim(int layer) {
    return ple_windowed[layer] ? PLE_DIM_WINDOW : dim_full;
}

int ple_ff(int layer) {
    return layer < PLE_OWN ? PLE_FF : 2 * PLE_FF;
}

typedef struct output {
    gguf_writer *w;
    rng rng;
    quant_type table;   /* type of the table of per-layer embeddings */
    quant_type weights; /* type of matrices */
    int n_zero;         /* number of zero rows at the end of the next tensor */
    bool data;
} output;

/* Writes a stack of matrices with weights around `around`: 1 for norms. */
static void put_stack(output *o, const char *name, quant_type type, int n_in, int n_out,
                      int n_stack, float around) {
    enum { MAX_ELEMS = PLE_LAYERS * PLE_WIDTH * PLE_VOCAB };
    static float x[MAX_ELEMS];
    static uint8_t bytes[MAX_ELEMS * sizeof *x];
    bool whole = n_out > 0 && n_in % quant_find((uint32_t)o->weights)->block_elems == 0;
    if (type == QUANT_F32 && whole) type = o->weights;
    uint64_t dims[3] = {(uint64_t)n_in, (uint64_t)n_out, (uint64_t)n_stack};
    if (!o->data) {
        ok(gguf_add_tensor(o->w, name, type, n_stack > 1 ? 3 : n_out > 0 ? 2 : 1, dims, &err));
        return;
    }
    int rows = (n_out > 0 ? n_out : 1) * n_stack;
    assert_true(n_in * rows <= MAX_ELEMS);
    float scale = n_out > 0 ? 1 / sqrtf((float)n_in) : 0.3f;
    for (int i = 0; i < n_in * rows; i++) x[i] = around + scale * rng_normal(&o->rng);
    for (int i = n_in * (rows - o->n_zero); i < n_in * rows; i++) x[i] = 0;
    size_t row_bytes;
    assert_true(quant_row_bytes(type, (uint64_t)n_in, &row_bytes));
    for (int r = 0; r < rows; r++)
        quant_find(type)->quantize(x + r * n_in, bytes + (size_t)r * row_bytes, n_in, NULL);
    ok(gguf_write_data(o->w, bytes, row_bytes * (size_t)rows, &err));
}

static void put(output *o, const char *name, quant_type type, int n_in, int n_out, float around) {
    put_stack(o, name, type, n_in, n_out, 1, around);
}

static void put_layer(output *o, int layer) {
    int d = ple_head_dim(layer), f = ple_ff(layer);
    const struct {
        const char *name;
        int n_in, n_out;
        float around;
        bool own; /* only in layers with a cache */
    } list[] = {{"attn_norm.weight", PLE_EMBD, 0, 1, false},
                {"attn_q.weight", PLE_EMBD, PLE_HEADS * d, 0, false},
                {"attn_k.weight", PLE_EMBD, PLE_KV_HEADS * d, 0, true},
                {"attn_v.weight", PLE_EMBD, PLE_KV_HEADS * d, 0, true},
                {"attn_q_norm.weight", d, 0, 1, false},
                {"attn_k_norm.weight", d, 0, 1, true},
                {"attn_output.weight", PLE_HEADS * d, PLE_EMBD, 0, false},
                {"post_attention_norm.weight", PLE_EMBD, 0, 1, false},
                {"ffn_norm.weight", PLE_EMBD, 0, 1, false},
                {"ffn_gate.weight", PLE_EMBD, f, 0, false},
                {"ffn_up.weight", PLE_EMBD, f, 0, false},
                {"ffn_down.weight", f, PLE_EMBD, 0, false},
                {"post_ffw_norm.weight", PLE_EMBD, 0, 1, false},
                {"inp_gate.weight", PLE_EMBD, PLE_WIDTH, 0, false},
                {"proj.weight", PLE_WIDTH, PLE_EMBD, 0, false},
                {"post_norm.weight", PLE_EMBD, 0, 1, false},
                {"layer_output_scale.weight", 1, 0, 0.7f, false}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, list[i].name);
        if (list[i].own && layer >= PLE_OWN) continue;
        put(o, name, QUANT_F32, list[i].n_in, list[i].n_out, list[i].around);
    }
}

static void put_tensors(output *o) {
    put(o, "token_embd.weight", QUANT_F32, PLE_EMBD, PLE_VOCAB, 0);
    put(o, "per_layer_token_embd.weight", o->table, PLE_LAYERS * PLE_WIDTH, PLE_VOCAB, 0);
    put(o, "per_layer_model_proj.weight", QUANT_F32, PLE_EMBD, PLE_LAYERS * PLE_WIDTH, 0);
    put(o, "per_layer_proj_norm.weight", QUANT_F32, PLE_WIDTH, 0, 1);
    put(o, "rope_freqs.weight", QUANT_F32, dim_full / 2, 0, 3);
    put(o, "output_norm.weight", QUANT_F32, PLE_EMBD, 0, 1);
    for (int layer = 0; layer < PLE_LAYERS; layer++) put_layer(o, layer);
}

static void write_layer_embd(const char *path, quant_type table, int width) {
    output o = {.table = table, .weights = QUANT_F32};
    const uint32_t ffs[PLE_LAYERS] = {PLE_FF, PLE_FF, PLE_FF, 2 * PLE_FF, 2 * PLE_FF};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"gemma4.block_count", PLE_LAYERS},
                   {"gemma4.embedding_length", PLE_EMBD},
                   {"gemma4.context_length", 512},
                   {"gemma4.attention.head_count", PLE_HEADS},
                   {"gemma4.attention.head_count_kv", PLE_KV_HEADS},
                   {"gemma4.attention.key_length", (uint32_t)dim_full},
                   {"gemma4.attention.value_length", (uint32_t)dim_full},
                   {"gemma4.attention.key_length_swa", PLE_DIM_WINDOW},
                   {"gemma4.attention.value_length_swa", PLE_DIM_WINDOW},
                   {"gemma4.attention.shared_kv_layers", PLE_LAYERS - PLE_OWN},
                   {"gemma4.attention.sliding_window", PLE_WINDOW}};
    rng_seed(&o.rng, 4);
    ok(gguf_writer_create(path, &o.w, &err));
    gguf_put_string(o.w, "general.architecture", "gemma4");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gguf_put_u32(o.w, numbers[i].key, numbers[i].value);
    if (width >= 0) gguf_put_u32(o.w, "gemma4.embedding_length_per_layer_input", (uint32_t)width);
    gguf_put_array(o.w, "gemma4.feed_forward_length", GGUF_U32, ffs, PLE_LAYERS);
    gguf_put_array(o.w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, ple_windowed,
                   PLE_LAYERS);
    gguf_put_f32(o.w, "gemma4.attention.layer_norm_rms_epsilon", (float)ple_eps);
    gguf_put_f32(o.w, "gemma4.rope.freq_base", (float)ple_base_full);
    gguf_put_f32(o.w, "gemma4.rope.freq_base_swa", (float)ple_base_window);
    gguf_put_f32(o.w, "gemma4.final_logit_softcapping", (float)ple_softcap);
    tiny_put_vocabulary(o.w, PLE_VOCAB);
    put_tensors(&o);
    ok(gguf_writer_begin_data(o.w, &err));
    o.data = true;
    put_tensors(&o);
    ok(gguf_writer_finish(o.w, &err));
}

void ple_write(const char *path, quant_type table, int width) {
    dim_full = PLE_DIM_FULL;
    write_layer_embd(path, table, width);
}

void ple_write_heads(const char *path, int n) {
    dim_full = n;
    write_layer_embd(path, QUANT_F32, PLE_WIDTH);
}

/* ---- several residual streams ---------------------------------------------------------------- */

const double ple_cutoffs[PLE_LAYERS] = {0.5, -0.25, 1, -INFINITY, -INFINITY};

/* Published files also have K and V weights in layers that read another layer's cache. */
static void put_streams_layer(output *o, int layer) {
    const struct {
        const char *name;
        int n_in, n_out;
        float around;
    } list[] = {{"altup_router_norm.weight", PLE_EMBD, 0, PLE_EMBD}, /* tanh must be nonlinear */
                {"altup_router.weight", PLE_EMBD, PLE_STREAMS, 0},
                {"altup_predict_coef.weight", PLE_STREAMS, PLE_STREAMS * PLE_STREAMS, 0},
                {"attn_norm.weight", PLE_EMBD, 0, 1},
                {"laurel_l.weight", PLE_EMBD, PLE_RANK, 0},
                {"laurel_r.weight", PLE_RANK, PLE_EMBD, 0},
                {"laurel_post_norm.weight", PLE_EMBD, 0, 1},
                {"attn_q.weight", PLE_EMBD, PLE_HEADS * PLE_DIM_FULL, 0},
                {"attn_k.weight", PLE_EMBD, PLE_KV_HEADS * PLE_DIM_FULL, 0},
                {"attn_v.weight", PLE_EMBD, PLE_KV_HEADS * PLE_DIM_FULL, 0},
                {"attn_q_norm.weight", PLE_DIM_FULL, 0, 1},
                {"attn_k_norm.weight", PLE_DIM_FULL, 0, 1},
                {"attn_output.weight", PLE_HEADS * PLE_DIM_FULL, PLE_EMBD, 0},
                {"post_attention_norm.weight", PLE_EMBD, 0, 1},
                {"ffn_norm.weight", PLE_EMBD, 0, 1},
                {"ffn_gate.weight", PLE_EMBD, PLE_FF, 0},
                {"ffn_up.weight", PLE_EMBD, PLE_FF, 0},
                {"ffn_down.weight", PLE_FF, PLE_EMBD, 0},
                {"post_ffw_norm.weight", PLE_EMBD, 0, 1},
                {"altup_correct_coef.weight", PLE_STREAMS, PLE_STREAMS, 0},
                {"altup_correct_scale.weight", PLE_EMBD, 0, 1},
                {"inp_gate.weight", PLE_EMBD, PLE_WIDTH, 0},
                {"proj.weight", PLE_WIDTH, PLE_EMBD, 0},
                {"post_norm.weight", PLE_EMBD, 0, 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, list[i].name);
        put(o, name, QUANT_F32, list[i].n_in, list[i].n_out, list[i].around);
    }
}

static void put_streams(output *o) {
    put(o, "token_embd.weight", QUANT_F32, PLE_EMBD, PLE_VOCAB, 0);
    o->n_zero = 4; /* as for image and audio tokens */
    put(o, "per_layer_token_embd.weight", o->table, PLE_LAYERS * PLE_WIDTH, PLE_VOCAB, 0);
    o->n_zero = 0;
    put(o, "per_layer_model_proj.weight", QUANT_F32, PLE_EMBD, PLE_LAYERS * PLE_WIDTH, 0);
    put(o, "per_layer_proj_norm.weight", QUANT_F32, PLE_WIDTH, 0, 1);
    put_stack(o, "altup_proj.weight", QUANT_F32, PLE_EMBD, PLE_EMBD, PLE_STREAMS - 1, 0);
    put_stack(o, "altup_unembd_proj.weight", QUANT_F32, PLE_EMBD, PLE_EMBD, PLE_STREAMS - 1, 0);
    put(o, "output_norm.weight", QUANT_F32, PLE_EMBD, 0, 1);
    for (int layer = 0; layer < PLE_LAYERS; layer++) put_streams_layer(o, layer);
}

static void write_streams(const char *path, quant_type table, quant_type weights, int active) {
    output o = {.table = table, .weights = weights};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"gemma3n.block_count", PLE_LAYERS},
                   {"gemma3n.embedding_length", PLE_EMBD},
                   {"gemma3n.context_length", 512},
                   {"gemma3n.feed_forward_length", PLE_FF},
                   {"gemma3n.attention.head_count", PLE_HEADS},
                   {"gemma3n.attention.head_count_kv", PLE_KV_HEADS},
                   {"gemma3n.attention.key_length", PLE_DIM_FULL},
                   {"gemma3n.attention.value_length", PLE_DIM_FULL},
                   {"gemma3n.embedding_length_per_layer_input", PLE_WIDTH},
                   {"gemma3n.altup.num_inputs", PLE_STREAMS},
                   {"gemma3n.altup.active_idx", (uint32_t)active},
                   {"gemma3n.attention.sliding_window", PLE_WINDOW}};
    float cutoffs[PLE_LAYERS];
    for (int i = 0; i < PLE_LAYERS; i++) cutoffs[i] = (float)ple_cutoffs[i];
    rng_seed(&o.rng, 5);
    ok(gguf_writer_create(path, &o.w, &err));
    gguf_put_string(o.w, "general.architecture", "gemma3n");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gguf_put_u32(o.w, numbers[i].key, numbers[i].value);
    /* as in published files */
    gguf_put_f32(o.w, "gemma3n.attention.shared_kv_layers", PLE_LAYERS - PLE_OWN);
    gguf_put_array(o.w, "gemma3n.attention.sliding_window_pattern", GGUF_BOOL, ple_windowed,
                   PLE_LAYERS);
    gguf_put_array(o.w, "gemma3n.activation_sparsity_scale", GGUF_F32, cutoffs, PLE_LAYERS);
    gguf_put_f32(o.w, "gemma3n.attention.layer_norm_rms_epsilon", (float)ple_eps);
    gguf_put_f32(o.w, "gemma3n.rope.freq_base", (float)ple_base_full);
    tiny_put_vocabulary(o.w, PLE_VOCAB);
    put_streams(&o);
    ok(gguf_writer_begin_data(o.w, &err));
    o.data = true;
    put_streams(&o);
    ok(gguf_writer_finish(o.w, &err));
}

void ple_write_streams(const char *path, quant_type table, int active) {
    write_streams(path, table, QUANT_F32, active);
}

void ple_write_streams_as(const char *path, quant_type weights) {
    write_streams(path, QUANT_F32, weights, 0);
}
