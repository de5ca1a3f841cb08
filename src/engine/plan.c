/* plan.c: from an architecture row and bound weights to steps. A layer is its attention half
 * (norm, QKV, rotation and cache, attention, output) and its feed-forward half (norm, gate and up,
 * down); both end by adding to the residual stream. */
#include <inttypes.h>
#include <string.h>

#include "mem.h"
#include "plan_build.h"

enum {
    STEPS_ATTENTION = 7, /* with the addition of parallel halves */
    STEPS_GLOBAL = 3     /* embedding, final norm, head */
};

plan_step *plan_add_step(plan *p, plan_op op, int layer, plan_buffer in) {
    plan_step *s = &p->steps[p->n_steps++];
    *s = (plan_step){.op = op, .layer = layer, .in = in};
    return s;
}

plan_matrix plan_make_matrix(const plan *p, int layer, tensor_role role, tensor_role bias,
                             plan_buffer out) {
    const model_tensor *tensors = layer < 0 ? p->model->t : p->model->layers[layer].t;
    const arch_tensor *row = arch_tensor_of(p->model->arch, role);
    const model_tensor *t = &tensors[role];
    return (plan_matrix){
        .w = {t->data, t->row_bytes, t->n_in, t->n_out, t->type},
        .row_size = t->n_bytes / (size_t)t->n_out,
        .bias = bias == ROLE_COUNT ? NULL : tensors[bias].data,
        .scale = t->scale,
        .scale_last = row && row->flags & TENSOR_SCALE_LAST, /* parts of fused ones have no row */
        .out = out,
        .role = role,
    };
}

void plan_add_matrix(const plan *p, plan_step *s, tensor_role role, tensor_role bias,
                     plan_buffer out) {
    plan_matrix *m = &s->matrix[s->n_matrices++];
    *m = plan_make_matrix(p, s->layer, role, bias, out);
    s->weight_bytes += m->row_size * (uint64_t)m->w.n_out;
}

/* Q, K and V share one encoded input and one step. Where the halves run in parallel, the residual
 * stays as it was for the other half, and the result waits in a buffer of its own. */
static void plan_attention(plan *p, int layer) {
    const model_tensor *t = p->model->layers[layer].t;
    bool parallel = p->model->arch->parallel, own = t[ROLE_ATTN_NORM_2].data;
    plan_step *s = plan_add_step(p, OP_NORM, layer, BUF_X);
    s->norm_weight = t[own ? ROLE_ATTN_NORM_2 : ROLE_ATTN_NORM].data;
    s->norm_bias = t[own ? ROLE_ATTN_NORM_2_BIAS : ROLE_ATTN_NORM_BIAS].data;

    s = plan_add_step(p, OP_MATMUL, layer, BUF_Y);
    plan_add_matrix(p, s, ROLE_ATTN_Q, ROLE_ATTN_Q_BIAS, BUF_Q);
    plan_add_matrix(p, s, ROLE_ATTN_K, ROLE_ATTN_K_BIAS, BUF_K);
    plan_add_matrix(p, s, ROLE_ATTN_V, ROLE_ATTN_V_BIAS, BUF_V);

    s = plan_add_step(p, OP_ROPE_STORE, layer, BUF_Q);
    s->q_norm = t[ROLE_ATTN_Q_NORM].data;
    s->k_norm = t[ROLE_ATTN_K_NORM].data;
    plan_add_step(p, OP_ATTENTION, layer, BUF_Q);

    plan_add_step(p, OP_ENCODE, layer, BUF_ATTN);
    s = plan_add_step(p, OP_MATMUL, layer, BUF_ATTN);
    plan_add_matrix(p, s, ROLE_ATTN_OUT, ROLE_ATTN_OUT_BIAS, parallel ? BUF_ATTN_OUT : BUF_Y);
    s->add_to_x = !parallel;
}

static pi_status fail_type(const plan *p, const plan_matrix *pm, int layer, pi_error *err) {
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "no kernel: %s: type %s of %s in layer %d; quantize the model to another type",
                     gguf_path(p->model->file), quant_find(pm->w.type)->name,
                     tensor_role_name(pm->role), layer);
}

/* `encoder` fills its slot with the input of this product too. */
static void need_encoding(plan *p, plan_step *encoder, cpu_act_kind kind, int64_t width) {
    encoder->encode_kinds |= 1u << kind;
    encoder->encode_width = width;
    p->slots[encoder->slot].kinds |= 1u << kind;
    if (width > p->slots[encoder->slot].width) p->slots[encoder->slot].width = width;
}

/* Every product's input is encoded by the nearest earlier step that writes the slot it reads. */
static pi_status resolve_encodings(plan *p, const cpu_kernels *kernels, pi_error *err) {
    plan_step *encoder[PLAN_SLOTS] = {NULL};
    for (int i = 0; i < p->n_steps; i++) {
        plan_step *s = &p->steps[i];
        if (s->op == OP_NORM || s->op == OP_ENCODE || s->op == OP_SELECT_NORM) {
            encoder[s->slot] = s;
            for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++)
                if (s->encode_kinds & (1u << kind))
                    need_encoding(p, s, (cpu_act_kind)kind, s->encode_width);
        }
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            const cpu_mat_kernels *mk = &kernels->mat[pm->w.type];
            if (!mk->matvec) return fail_type(p, pm, s->layer, err);
            need_encoding(p, encoder[PLAN_SLOT_MAIN], mk->act, pm->w.n_in);
        }
        if (s->op == OP_FFN_NEURONS && s->ffn->fc2.w.data) {
            const plan_matrix *pm = &s->ffn->fc2;
            if (!kernels->mat[pm->w.type].matvec) return fail_type(p, pm, s->layer, err);
            need_encoding(p, encoder[PLAN_SLOT_PREDICTOR], kernels->mat[pm->w.type].act,
                          pm->w.n_in);
        }
        if (s->op == OP_FFN_DOWN) {
            const plan_matrix *pm = &s->ffn->down;
            if (!kernels->mat_t[pm->w.type].axpy_rows) return fail_type(p, pm, s->layer, err);
            need_encoding(p, encoder[PLAN_SLOT_MAIN], kernels->mat_t[pm->w.type].act, pm->w.n_out);
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
            bytes[type] += pm->row_size * (uint64_t)pm->w.n_out;
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

static void widen(plan *p, plan_buffer b, int64_t width) {
    if (width > p->width[b]) p->width[b] = width;
}

static bool is_ffn_weight(tensor_role role) {
    return role == ROLE_FFN_GATE || role == ROLE_FFN_UP || role == ROLE_FFN_DOWN;
}

static void set_widths(plan *p) {
    const model *m = p->model;
    p->width[BUF_X] = p->width[BUF_Y] = m->hp.n_embd;
    p->width[BUF_LOGITS] = m->hp.n_vocab;
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        bool fixed = s->op != OP_FFN_NEURONS && s->op != OP_FFN_DOWN;
        if (fixed) p->fixed_bytes += s->weight_bytes;
        if (!fixed) p->ffn_bytes += s->weight_bytes;
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            widen(p, pm->out, pm->w.n_out);
            if (!fixed || !is_ffn_weight(pm->role)) continue;
            p->ffn_bytes += pm->row_size * (uint64_t)pm->w.n_out;
            p->fixed_ffn_bytes += pm->row_size * (uint64_t)pm->w.n_out;
        }
        if (s->op == OP_FFN_NEURONS && s->ffn->mode == FFN_PREDICT)
            widen(p, BUF_SCORE, s->ffn->n_ff);
    }
    p->width[BUF_ATTN] = p->width[BUF_Q];
}

/* The mode that most layers run in; of equally frequent ones the first in the list. */
static ffn_mode most_frequent_mode(const plan *p) {
    int count[FFN_MODE_COUNT] = {0}, best = FFN_DENSE;
    for (int i = 0; i < p->model->hp.n_layer; i++) count[p->ffn[i].mode]++;
    for (int mode = 0; mode < FFN_MODE_COUNT; mode++)
        if (count[mode] > count[best]) best = mode;
    return (ffn_mode)best;
}

pi_status plan_create(const model *m, const cpu_kernels *kernels, const plan_options *options,
                      plan **out, pi_error *err) {
    *out = NULL;
    size_t n_layer = (size_t)m->hp.n_layer;
    size_t capacity = n_layer * (STEPS_ATTENTION + PLAN_FFN_STEPS) + STEPS_GLOBAL;
    plan *p = mem_calloc(1, sizeof *p);
    plan_step *steps = mem_calloc(capacity, sizeof *steps);
    plan_ffn *ffn = mem_calloc(n_layer, sizeof *ffn);
    if (!p || !steps || !ffn) {
        mem_free(p);
        mem_free(steps);
        mem_free(ffn);
        return error_nomem(err, capacity * sizeof *steps, "plan");
    }
    p->model = m;
    p->steps = steps;
    p->ffn = ffn;
    plan_add_step(p, OP_EMBED, -1, BUF_X);
    for (int layer = 0; layer < m->hp.n_layer; layer++) {
        plan_attention(p, layer);
        plan_add_ffn(p, layer, options);
        if (m->arch->parallel) plan_add_step(p, OP_ADD, layer, BUF_ATTN_OUT);
    }
    plan_step *s = plan_add_step(p, OP_SELECT_NORM, -1, BUF_X);
    s->norm_weight = m->t[ROLE_OUTPUT_NORM].data;
    s->norm_bias = m->t[ROLE_OUTPUT_NORM_BIAS].data;
    s = plan_add_step(p, OP_MATMUL, -1, BUF_Y);
    plan_add_matrix(p, s, ROLE_OUTPUT, ROLE_OUTPUT_BIAS, BUF_LOGITS);

    p->mode = most_frequent_mode(p);
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
    mem_free(p->ffn);
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
        [OP_ADD] = "add",
        [OP_SELECT_NORM] = "select_norm",
        [OP_FFN_NEURONS] = "ffn_neurons",
        [OP_FFN_DOWN] = "ffn_down",
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
                                                 [BUF_PRED] = "predictor",
                                                 [BUF_SCORE] = "score",
                                                 [BUF_LOGITS] = "logits"};
    return names[b];
}

static void print_matrix(const plan_matrix *pm, FILE *out) {
    fprintf(out, " %s = %s[%" PRId64 ", %" PRId64 "] %s%s", buffer_name(pm->out),
            tensor_role_name(pm->role), pm->w.n_in, pm->w.n_out, quant_find(pm->w.type)->name,
            pm->bias ? " + bias" : "");
}

static void print_ffn(const plan_step *s, FILE *out) {
    const plan_ffn *f = s->ffn;
    if (s->op == OP_FFN_DOWN) print_matrix(&f->down, out);
    if (s->op != OP_FFN_NEURONS) return;
    if (f->fc2.w.data) print_matrix(&f->fc2, out);
    fprintf(out, " %s", ffn_mode_name(f->mode));
    if (f->mode == FFN_PREDICT)
        fprintf(out, " by %s >= %g", predictor_kind_name(f->predictor), (double)f->threshold);
    if (f->mode == FFN_THRESHOLD) fprintf(out, " above %g", (double)f->cut);
    fprintf(out, ", %d parts", f->n_parts);
}

void plan_print(const plan *p, FILE *out) {
    fprintf(out, "%-5s %-6s %-7s %-12s %-9s %10s  %s\n", "step", "device", "layer", "op", "in",
            "MB", "operands");
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        char layer[16] = "-";
        if (s->layer >= 0) snprintf(layer, sizeof layer, "%d", s->layer);
        fprintf(out, "%-5d %-6s %-7s %-12s %-9s %10.2f ", i, "cpu", layer, plan_op_name(s->op),
                buffer_name(s->in), (double)s->weight_bytes / 1e6);
        for (int k = 0; k < s->n_matrices; k++) print_matrix(&s->matrix[k], out);
        if (s->op == OP_FFN_IN || s->op == OP_FFN_NEURONS)
            fprintf(out, " %s", activation_name(p->model->hp.activation));
        if (s->ffn) print_ffn(s, out);
        if (s->relu) fprintf(out, " relu");
        if (s->add_to_x || s->op == OP_ADD) fprintf(out, " -> x +=");
        if (s->q_norm) fprintf(out, " head norms");
        fputc('\n', out);
    }
    fprintf(out,
            "weights read per pass: %.2f MB always; feed-forward layers have %.2f MB, of which "
            "%.2f MB are always read\n",
            (double)p->fixed_bytes / 1e6, (double)p->ffn_bytes / 1e6,
            (double)p->fixed_ffn_bytes / 1e6);
}
