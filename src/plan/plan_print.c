/* plan_print.c: a plan as a text table. */
#include <inttypes.h>

#include "plan_build.h"
#include "recurrent_slots.h"

const char *plan_op_name(plan_op op) {
    static const char *const names[OP_COUNT] = {
        [OP_EMBED] = "embed",
        [OP_EMBED_LAYERS] = "embed_layers",
        [OP_SPREAD] = "spread",
        [OP_PREDICT] = "predict",
        [OP_CORRECT] = "correct",
        [OP_MERGE] = "merge",
        [OP_TOP_K] = "top_k",
        [OP_NORM] = "norm",
        [OP_QUANTIZE] = "quantize",
        [OP_MATMUL] = "matmul",
        [OP_FFN_IN] = "ffn_in",
        [OP_INDEX_STORE] = "index_store",
        [OP_FIND_BLOCKS] = "find_blocks",
        [OP_ROPE_STORE] = "rope_store",
        [OP_HEADS] = "heads",
        [OP_LATENT_STORE] = "latent_store",
        [OP_ATTENTION] = "attention",
        [OP_GATE_HEADS] = "gate_heads",
        [OP_CONV] = "conv",
        [OP_RECUR] = "recur",
        [OP_GATE_SSM] = "gate_ssm",
        [OP_ADD] = "add",
        [OP_SOFTCAP] = "softcap",
        [OP_HEAD_NORM] = "head_norm",
        [OP_FFN_SPARSE] = "ffn_sparse",
        [OP_FFN_DOWN] = "ffn_down",
        [OP_ROUTE] = "route",
        [OP_GROUP] = "group",
        [OP_EXPERTS_GATHER] = "experts_gather",
        [OP_EXPERTS_IN] = "experts_in",
        [OP_EXPERTS_QUANTIZE] = "experts_quant",
        [OP_EXPERTS_DOWN] = "experts_down",
        [OP_EXPERTS_SUM] = "experts_sum",
        [OP_PREFETCH] = "prefetch",
        [OP_PREFETCH_EXPERTS] = "prefetch_experts",
        [OP_SELECT] = "select",
        [OP_SEND] = "send",
        [OP_RECEIVE] = "receive",
    };
    return (unsigned)op < OP_COUNT ? names[op] : "unknown";
}

static const char *buffer_name(plan_buffer b) {
    static const char *const names[BUF_COUNT] = {[BUF_X] = "x",
                                                 [BUF_STREAMS] = "streams",
                                                 [BUF_Y] = "y",
                                                 [BUF_Q] = "q",
                                                 [BUF_K] = "k",
                                                 [BUF_V] = "v",
                                                 [BUF_INDEX_Q] = "index_q",
                                                 [BUF_INDEX_K] = "index_k",
                                                 [BUF_LATENT_Q] = "latent_q",
                                                 [BUF_ATTN_GATE] = "attn_gate",
                                                 [BUF_ATTN] = "attn",
                                                 [BUF_ATTN_OUT] = "attn_out",
                                                 [BUF_FFN_OUT] = "ffn_out",
                                                 [BUF_SSM_IN] = "ssm_in",
                                                 [BUF_SSM_GATE] = "ssm_gate",
                                                 [BUF_SSM_STEP] = "ssm_step",
                                                 [BUF_SSM_BETA] = "ssm_beta",
                                                 [BUF_SSM_CONV] = "ssm_conv",
                                                 [BUF_SSM_OUT] = "ssm_out",
                                                 [BUF_GATE] = "gate",
                                                 [BUF_UP] = "up",
                                                 [BUF_PRED] = "predictor",
                                                 [BUF_SCORE] = "score",
                                                 [BUF_LAYER_EMBD] = "layer_embd",
                                                 [BUF_ROUTER] = "router",
                                                 [BUF_SHARED] = "shared",
                                                 [BUF_EXPERT_IN] = "expert_in",
                                                 [BUF_EXPERT_GATE] = "expert_gate",
                                                 [BUF_EXPERT_UP] = "expert_up",
                                                 [BUF_EXPERT_OUT] = "expert_out",
                                                 [BUF_LOGITS] = "logits"};
    return names[b];
}

static const char *kernel_name(plan_kernel kernel) {
    static const char *const names[KERNEL_COUNT] = {
        [KERNEL_SKIP] = "skip",   [KERNEL_PLAIN] = "-",       [KERNEL_VECTOR] = "vector",
        [KERNEL_UNION] = "union", [KERNEL_MASKED] = "masked", [KERNEL_TILED] = "tiled"};
    return names[kernel];
}

static void print_matrix(const plan_matrix *pm, FILE *out) {
    fprintf(out, " %s = %s[%" PRId64 ", %" PRId64 "] %s%s", buffer_name(pm->out),
            tensor_role_name(pm->role), pm->w.n_in, pm->w.n_out, quant_find(pm->w.type)->name,
            pm->bias ? " + bias" : "");
}

static void print_ffn(const plan_step *s, FILE *out) {
    const plan_ffn *f = s->ffn;
    if (s->op == OP_FFN_DOWN) print_matrix(&f->down, out);
    if (s->op != OP_FFN_SPARSE) return;
    if (f->fc2.w.data) print_matrix(&f->fc2, out);
    fprintf(out, " %s", ffn_mode_name(f->mode));
    if (f->mode == PI_MODE_PREDICT)
        fprintf(out, " by %s >= %g", predictor_kind_name(f->predictor), (double)f->threshold);
    if (f->mode == PI_MODE_THRESHOLD) fprintf(out, " above %g", (double)f->cut);
    fprintf(out, ", %d parts", f->n_parts);
}

/* What steps run as stands under the sizes of ubatches, in tokens. */
static void print_header(int many_from, FILE *out) {
    char few[16], many[16];
    snprintf(few, sizeof few, "2-%d", many_from - 1);
    snprintf(many, sizeof many, "%d+", many_from);
    fprintf(out, "%-5s %-6s %-7s %-12s %-7s %-7s %-7s %-9s %10s  %s\n", "step", "device", "layer",
            "op", "1 token", few, many, "in", "MB", "operands");
}

/* "gpu", or "gpu1" where there are several. */
static void name_device(const plan *p, int device, char *out, size_t n_out) {
    snprintf(out, n_out, p->n_devices > 1 ? "gpu%d" : "gpu", device);
}

static void print_message(const plan *p, plan_side side, const plan_step *s, FILE *out) {
    char device[16];
    bool direct = s->peer >= 0;
    name_device(p, direct ? s->peer : s->device, device, sizeof device);
    if (!direct)
        fprintf(out, " message %d%s", s->exchange, s->bits ? " with selected neurons" : "");
    if (direct || (side == SIDE_CPU && p->n_devices > 1))
        fprintf(out, " %s %s", s->op == OP_SEND ? "to" : "from", device);
}

static void print_steps(const plan *p, plan_side side, FILE *out) {
    const plan_step *steps = side == SIDE_CPU ? p->steps : p->gpu_steps;
    int n_steps = side == SIDE_CPU ? p->n_steps : p->n_gpu_steps;
    if (n_steps > 0) print_header(p->many_from[side], out);
    for (int i = 0; i < n_steps; i++) {
        const plan_step *s = &steps[i];
        char layer[16] = "-";
        if (s->layer >= 0) snprintf(layer, sizeof layer, "%d", s->layer);
        char device[16] = "cpu";
        if (side == SIDE_GPU) name_device(p, s->device, device, sizeof device);
        fprintf(out, "%-5d %-6s %-7s %-12s ", i, device, layer, plan_op_name(s->op));
        for (int f = 0; f < PLAN_FORMS; f++) fprintf(out, "%-7s ", kernel_name(s->kernel[f]));
        fprintf(out, "%-9s %10.2f ", buffer_name(s->in), (double)s->weight_bytes / 1e6);
        for (int k = 0; k < s->n_matrices; k++) print_matrix(&s->matrix[k], out);
        if (s->op == OP_TOP_K) fprintf(out, " above mean + %g sd", (double)s->cutoff);
        bool given = s->ffn && s->ffn->given;
        if (s->op == OP_FFN_IN || s->op == OP_TOP_K || (s->op == OP_FFN_SPARSE && !given))
            fprintf(out, " %s", activation_name(p->model->hp.activation));
        if (s->ffn) print_ffn(s, out);
        if (s->op == OP_EXPERTS_IN && s->experts->gate.w.data) print_matrix(&s->experts->gate, out);
        if (s->op == OP_EXPERTS_IN) print_matrix(&s->experts->up, out);
        if (s->op == OP_EXPERTS_IN && s->experts->mode == PI_MODE_EXACT)
            fprintf(out, " %s exact", activation_name(p->model->hp.activation));
        if (s->op == OP_EXPERTS_DOWN) print_matrix(&s->experts->down, out);
        if (s->op == OP_ROUTE) fprintf(out, " %d of %d", s->experts->n_used, s->experts->n_expert);
        if (s->op == OP_CONV) fprintf(out, " %d taps", s->recurrent->n_taps);
        if (s->op == OP_RECUR)
            fprintf(out, " %s, %d heads [%" PRId64 ", %" PRId64 "]",
                    s->recurrent->mixer == MIXER_SSM ? "SSM" : "delta rule", s->recurrent->n_head,
                    s->recurrent->head_dim, s->recurrent->n_state);
        if (s->relu) fprintf(out, " relu");
        if (s->layer_embd)
            fprintf(out, " %s * layer_embd", activation_name(p->model->hp.activation));
        if (s->gated) fprintf(out, " * sigmoid(attn_gate)");
        if (s->n_heads) fprintf(out, " of %d heads", s->n_heads);
        if (s->op == OP_SEND || s->op == OP_RECEIVE) print_message(p, side, s, out);
        if (s->add_to_x)
            fprintf(out, " -> x +=");
        else if (s->op == OP_ADD || s->add_to_out)
            fprintf(out, " -> %s +=", buffer_name(s->out));
        if (s->op == OP_ADD && s->norm != NORM_NONE) fprintf(out, " normed");
        if (s->op == OP_ADD && s->add_scale != 1) fprintf(out, " * %g", (double)s->add_scale);
        if (s->op == OP_ADD && s->x_scale != 1) fprintf(out, ", x *= %g", (double)s->x_scale);
        if (s->q_norm) fprintf(out, " QK norm");
        if (s->op == OP_ROPE_STORE && s->rope == ROPE_SET_LOCAL) fprintf(out, " local RoPE");
        if (s->op == OP_ROPE_STORE && s->rope == ROPE_SET_NONE) fprintf(out, " no RoPE");
        if (s->window > 0) fprintf(out, " window %d", (int)s->window);
        if (s->softcap > 0) fprintf(out, " soft cap %g", (double)s->softcap);
        fputc('\n', out);
    }
}

void plan_print(const plan *p, FILE *out) {
    print_steps(p, SIDE_CPU, out);
    print_steps(p, SIDE_GPU, out);
    fprintf(out,
            "weights read per ubatch: %.2f MB always; feed-forward layers have %.2f MB, of which "
            "%.2f MB are always read\n",
            (double)p->fixed_bytes / 1e6, (double)p->ffn_bytes / 1e6,
            (double)p->fixed_ffn_bytes / 1e6);
    if (p->n_state > 0)
        fprintf(out, "recurrent state of a session: %.2f MB, with snapshots at most %.2f MB\n",
                (double)p->n_state * sizeof(float) / 1e6,
                (double)p->n_state * sizeof(float) * RECURRENT_SLOTS / 1e6);
}
