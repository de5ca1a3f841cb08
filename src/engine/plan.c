/* plan.c: from an architecture row and bound weights to steps. A layer is its attention half
 * (norm, QKV, rotation and cache, attention, output) and its feed-forward half (norm, gate and up,
 * down); both end by adding to the residual stream. */
#include "plan.h"

#include <inttypes.h>
#include <string.h>

#include "mem.h"

enum {
    STEPS_PER_LAYER = 11,
    STEPS_GLOBAL = 3 /* embedding, final norm, head */
};

static plan_step *add_step(plan *p, plan_op op, int layer, plan_buffer in) {
    plan_step *s = &p->steps[p->n_steps++];
    *s = (plan_step){.op = op, .layer = layer, .in = in};
    return s;
}

static void add_matrix(const plan *p, plan_step *s, tensor_role role, tensor_role bias,
                       plan_buffer out) {
    const model_tensor *tensors = s->layer < 0 ? p->model->t : p->model->layers[s->layer].t;
    const arch_tensor *row = arch_tensor_of(p->model->arch, role);
    const model_tensor *t = &tensors[role];
    s->matrix[s->n_matrices++] = (plan_matrix){
        .w = {t->data, t->row_bytes, t->n_in, t->n_out, t->type},
        .bias = tensors[bias].data,
        .scale = t->scale,
        .scale_last = row && row->flags & TENSOR_SCALE_LAST, /* parts of fused ones have no row */
        .out = out,
        .role = role,
    };
    s->weight_bytes += t->n_bytes;
}

/* The norm that a half begins with. */
static void add_norm(plan *p, int layer, tensor_role weight, tensor_role bias) {
    const model_tensor *t = p->model->layers[layer].t;
    plan_step *s = add_step(p, OP_NORM, layer, BUF_X);
    s->norm_weight = t[weight].data;
    s->norm_bias = t[bias].data;
}

/* Q, K and V share one encoded input and one step. Where the halves run in parallel, the residual
 * stays as it was for the other half, and the result waits in a buffer of its own. */
static void plan_attention(plan *p, int layer) {
    const model_tensor *t = p->model->layers[layer].t;
    bool parallel = p->model->arch->parallel;
    if (t[ROLE_ATTN_NORM_2].data)
        add_norm(p, layer, ROLE_ATTN_NORM_2, ROLE_ATTN_NORM_2_BIAS);
    else
        add_norm(p, layer, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);

    plan_step *s = add_step(p, OP_MATMUL, layer, BUF_Y);
    add_matrix(p, s, ROLE_ATTN_Q, ROLE_ATTN_Q_BIAS, BUF_Q);
    add_matrix(p, s, ROLE_ATTN_K, ROLE_ATTN_K_BIAS, BUF_K);
    add_matrix(p, s, ROLE_ATTN_V, ROLE_ATTN_V_BIAS, BUF_V);

    s = add_step(p, OP_ROPE_STORE, layer, BUF_Q);
    s->q_norm = t[ROLE_ATTN_Q_NORM].data;
    s->k_norm = t[ROLE_ATTN_K_NORM].data;
    add_step(p, OP_ATTENTION, layer, BUF_Q);

    add_step(p, OP_ENCODE, layer, BUF_ATTN);
    s = add_step(p, OP_MATMUL, layer, BUF_ATTN);
    add_matrix(p, s, ROLE_ATTN_OUT, ROLE_ATTN_OUT_BIAS, parallel ? BUF_ATTN_OUT : BUF_Y);
    s->add_to_x = !parallel;
}

static void plan_ffn(plan *p, int layer) {
    const model_tensor *t = p->model->layers[layer].t;
    bool parallel = p->model->arch->parallel, gated = t[ROLE_FFN_GATE].data != NULL;
    if (parallel)
        add_norm(p, layer, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
    else
        add_norm(p, layer, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS);

    plan_step *s = add_step(p, OP_FFN_IN, layer, BUF_Y);
    if (gated) add_matrix(p, s, ROLE_FFN_GATE, ROLE_FFN_GATE_BIAS, BUF_GATE);
    add_matrix(p, s, ROLE_FFN_UP, ROLE_FFN_UP_BIAS, gated ? BUF_UP : BUF_GATE);

    add_step(p, OP_ENCODE, layer, BUF_GATE);
    s = add_step(p, OP_MATMUL, layer, BUF_GATE);
    add_matrix(p, s, ROLE_FFN_DOWN, ROLE_FFN_DOWN_BIAS, BUF_Y);
    s->add_to_x = true;
}

/* Every product's input is encoded by the nearest earlier norm or encode step. */
static pi_status resolve_encodings(plan *p, const cpu_kernels *kernels, pi_error *err) {
    plan_step *encoder = NULL;
    for (int i = 0; i < p->n_steps; i++) {
        plan_step *s = &p->steps[i];
        if (s->op == OP_NORM || s->op == OP_ENCODE || s->op == OP_SELECT_NORM) encoder = s;
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            const cpu_mat_kernels *mk = &kernels->mat[pm->w.type];
            if (!pm->w.data)
                return error_set(err, PI_ERR_UNSUPPORTED, "no plan: %s: layer %d has no %s",
                                 gguf_path(p->model->file), s->layer, tensor_role_name(pm->role));
            if (!mk->matvec)
                return error_set(err, PI_ERR_UNSUPPORTED,
                                 "no kernel: %s: type %s of %s in layer %d; quantize the model to "
                                 "another type",
                                 gguf_path(p->model->file), quant_find(pm->w.type)->name,
                                 tensor_role_name(pm->role), s->layer);
            encoder->encode_kinds |= 1u << mk->act;
            encoder->encode_width = pm->w.n_in;
            p->encode_kinds |= 1u << mk->act;
            if (pm->w.n_in > p->encode_width) p->encode_width = pm->w.n_in;
        }
    }
    return PI_OK;
}

/* The largest matrix of the type that has the most bytes, per kind of encoded input. */
static void find_typical(plan *p, const cpu_kernels *kernels) {
    uint64_t bytes[QUANT_TYPE_COUNT] = {0};
    const plan_matrix *largest[QUANT_TYPE_COUNT] = {0};
    uint64_t best[CPU_ACT_KIND_COUNT] = {0};
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            quant_type type = pm->w.type;
            bytes[type] += pm->w.row_bytes * (uint64_t)pm->w.n_out;
            if (!largest[type] ||
                pm->w.n_in * pm->w.n_out > largest[type]->w.n_in * largest[type]->w.n_out)
                largest[type] = pm;
        }
    }
    for (int type = 0; type < QUANT_TYPE_COUNT; type++) {
        if (!largest[type]) continue;
        cpu_act_kind kind = kernels->mat[type].act;
        if (bytes[type] >= best[kind]) {
            best[kind] = bytes[type];
            p->typical[kind] = largest[type];
        }
    }
}

static void set_widths(plan *p) {
    const model *m = p->model;
    p->width[BUF_X] = p->width[BUF_Y] = m->hp.n_embd;
    p->width[BUF_LOGITS] = m->hp.n_vocab;
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        p->weight_bytes += s->weight_bytes;
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            if (pm->w.n_out > p->width[pm->out]) p->width[pm->out] = pm->w.n_out;
            if (pm->role == ROLE_FFN_GATE || pm->role == ROLE_FFN_UP || pm->role == ROLE_FFN_DOWN)
                p->ffn_bytes += pm->w.row_bytes * (uint64_t)pm->w.n_out;
        }
    }
    p->width[BUF_ATTN] = p->width[BUF_Q];
}

pi_status plan_create(const model *m, const cpu_kernels *kernels, plan **out, pi_error *err) {
    *out = NULL;
    size_t capacity = (size_t)m->hp.n_layer * STEPS_PER_LAYER + STEPS_GLOBAL;
    plan *p = mem_calloc(1, sizeof *p);
    plan_step *steps = mem_calloc(capacity, sizeof *steps);
    if (!p || !steps) {
        mem_free(p);
        mem_free(steps);
        return error_nomem(err, capacity * sizeof *steps, "plan");
    }
    p->model = m;
    p->mode = FFN_DENSE;
    p->steps = steps;
    add_step(p, OP_EMBED, -1, BUF_X);
    for (int layer = 0; layer < m->hp.n_layer; layer++) {
        plan_attention(p, layer);
        plan_ffn(p, layer);
        if (m->arch->parallel) add_step(p, OP_ADD, layer, BUF_ATTN_OUT);
    }
    plan_step *s = add_step(p, OP_SELECT_NORM, -1, BUF_X);
    s->norm_weight = m->t[ROLE_OUTPUT_NORM].data;
    s->norm_bias = m->t[ROLE_OUTPUT_NORM_BIAS].data;
    s = add_step(p, OP_MATMUL, -1, BUF_Y);
    add_matrix(p, s, ROLE_OUTPUT, ROLE_OUTPUT_BIAS, BUF_LOGITS);

    set_widths(p);
    pi_status status = resolve_encodings(p, kernels, err);
    if (status != PI_OK) {
        plan_free(p);
        return status;
    }
    find_typical(p, kernels);
    *out = p;
    return PI_OK;
}

void plan_free(plan *p) {
    if (!p) return;
    mem_free(p->steps);
    mem_free(p);
}

const char *ffn_mode_name(ffn_mode mode) {
    static const char *const names[FFN_MODE_COUNT] = {"auto", "dense", "exact", "predict",
                                                      "threshold"};
    return (unsigned)mode < FFN_MODE_COUNT ? names[mode] : "unknown";
}

const char *plan_op_name(plan_op op) {
    static const char *const names[OP_COUNT] = {
        [OP_EMBED] = "embed",
        [OP_NORM] = "norm",
        [OP_ENCODE] = "encode",
        [OP_MATMUL] = "matmul",
        [OP_FFN_IN] = "ffn_in",
        [OP_ROPE_STORE] = "rope_store",
        [OP_ATTENTION] = "attention",
        [OP_SELECT_NORM] = "select_norm",
        [OP_ADD] = "add",
    };
    return (unsigned)op < OP_COUNT ? names[op] : "unknown";
}

static const char *buffer_name(plan_buffer b) {
    static const char *const names[BUF_COUNT] = {[BUF_X] = "x",
                                                 [BUF_Y] = "y",
                                                 [BUF_Q] = "q",
                                                 [BUF_K] = "k",
                                                 [BUF_V] = "v",
                                                 [BUF_ATTN] = "attn",
                                                 [BUF_ATTN_OUT] = "attn_out",
                                                 [BUF_GATE] = "gate",
                                                 [BUF_UP] = "up",
                                                 [BUF_LOGITS] = "logits"};
    return names[b];
}

void plan_print(const plan *p, FILE *out) {
    fprintf(out, "%-5s %-6s %-7s %-12s %-5s %10s  %s\n", "step", "device", "layer", "op", "in",
            "MB", "operands");
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        char layer[16] = "-";
        if (s->layer >= 0) snprintf(layer, sizeof layer, "%d", s->layer);
        fprintf(out, "%-5d %-6s %-7s %-12s %-5s %10.2f ", i, "cpu", layer, plan_op_name(s->op),
                buffer_name(s->in), (double)s->weight_bytes / 1e6);
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            fprintf(out, " %s = %s[%" PRId64 ", %" PRId64 "] %s%s", buffer_name(pm->out),
                    tensor_role_name(pm->role), pm->w.n_in, pm->w.n_out,
                    quant_find(pm->w.type)->name, pm->bias ? " + bias" : "");
        }
        if (s->op == OP_FFN_IN) fprintf(out, " %s", activation_name(p->model->hp.activation));
        if (s->add_to_x || s->op == OP_ADD) fprintf(out, " -> x +=");
        if (s->q_norm) fprintf(out, " head norms");
        fputc('\n', out);
    }
    fprintf(out, "weights read per pass: %.2f MB, feed-forward %.2f MB\n",
            (double)p->weight_bytes / 1e6, (double)p->ffn_bytes / 1e6);
}
