/* plan_print.c: prints a plan as a text table. */
#include <inttypes.h>

#include "plan_impl.h"
#include "recurrent_slots.h"

static const char *buffer_name(plan_buffer b) {
    static const char *const names[BUF_COUNT] = {[BUF_X] = "x",
                                                 [BUF_STREAMS] = "streams",
                                                 [BUF_Y] = "y",
                                                 [BUF_Q] = "q",
                                                 [BUF_K] = "k",
                                                 [BUF_V] = "v",
                                                 [BUF_INDEX_Q] = "index_q",
                                                 [BUF_INDEX_K] = "index_k",
                                                 [BUF_HYPER_IN] = "hyper_in",
                                                 [BUF_HYPER] = "hyper",
                                                 [BUF_HYPER_LOW] = "hyper_low",
                                                 [BUF_HYPER_GATE] = "hyper_gate",
                                                 [BUF_INDEX_W] = "index_w",
                                                 [BUF_COMPRESS] = "compress",
                                                 [BUF_LATENT_Q] = "latent_q",
                                                 [BUF_ATTN_GATE] = "attn_gate",
                                                 [BUF_ATTN] = "attn",
                                                 [BUF_ATTN_OUT] = "attn_out",
                                                 [BUF_FFN_OUT] = "ffn_out",
                                                 [BUF_SSM_IN] = "ssm_in",
                                                 [BUF_SSM_GATE] = "ssm_gate",
                                                 [BUF_SSM_LATENT] = "ssm_latent",
                                                 [BUF_SSM_KEY] = "ssm_key",
                                                 [BUF_SSM_QUERY] = "ssm_query",
                                                 [BUF_SSM_STEP] = "ssm_step",
                                                 [BUF_SSM_BETA] = "ssm_beta",
                                                 [BUF_SSM_CONV] = "ssm_conv",
                                                 [BUF_SHIFT] = "shift",
                                                 [BUF_SSM_OUT] = "ssm_out",
                                                 [BUF_GATE] = "gate",
                                                 [BUF_UP] = "up",
                                                 [BUF_PRED] = "predictor",
                                                 [BUF_SCORE] = "score",
                                                 [BUF_LAYER_EMBD] = "layer_embd",
                                                 [BUF_ROUTER] = "router",
                                                 [BUF_SHARED] = "shared",
                                                 [BUF_EXPERT_LATENT] = "expert_latent",
                                                 [BUF_EXPERT_IN] = "expert_in",
                                                 [BUF_EXPERT_PRED] = "expert_pred",
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

/* Column titles of the kernels: sizes of ubatches, in tokens. */
static void print_header(int many_from, FILE *out) {
    char few[16], many[16];
    snprintf(few, sizeof few, "2-%d", many_from - 1);
    snprintf(many, sizeof many, "%d+", many_from);
    fprintf(out, "%-5s %-6s %-7s %-12s %-7s %-7s %-7s %-9s %10s  %s\n", "step", "device", "layer",
            "op", "1 token", few, many, "in", "MB", "operands");
}

/* "gpu", or "gpu1" with several GPUs. */
static void name_device(const plan *p, int device, char *out, size_t n_out) {
    snprintf(out, n_out, p->n_devices > 1 ? "gpu%d" : "gpu", device);
}

/* ---- operands of an operation, except its matrices ------------------------------------------- */

typedef struct print_context {
    const plan *p;
    plan_side side;
    FILE *out;
} print_context;

static void print_activation(const print_context *c) {
    fprintf(c->out, " %s", model_activation_name(c->p->model));
}

static void print_top_k(const print_context *c, const args_top_k *a) {
    fprintf(c->out, " above mean + %g sd", (double)a->cutoff);
    print_activation(c);
}

static void print_gate(const print_context *c, bool heads, bool softplus) {
    fprintf(c->out, " * %s(attn_gate%s)", softplus ? "softplus" : "sigmoid",
            heads ? " of each head" : "");
}

static void print_quantize(const print_context *c, const args_quantize *a) {
    if (a->relu) fprintf(c->out, " relu");
    if (a->tanh) fprintf(c->out, " tanh");
    if (a->sigmoid) fprintf(c->out, " sigmoid");
    if (a->silu) fprintf(c->out, " silu");
    if (a->divisors) fprintf(c->out, " / scales");
    if (a->layer_embd) {
        print_activation(c);
        fprintf(c->out, " * layer_embd");
    }
    if (a->gated) print_gate(c, a->head_gates, a->gate_softplus);
}

static void print_matmul(const print_context *c, const args_matmul *a) {
    if (a->relu) fprintf(c->out, " relu");
}

static void print_add(const print_context *c, const plan_step *s, const args_add *a) {
    fprintf(c->out, " -> %s +=", buffer_name(s->out));
    if (a->norm.kind != NORM_NONE) fprintf(c->out, " normed");
    if (a->scale != 1) fprintf(c->out, " * %g", (double)a->scale);
    if (a->gated) print_gate(c, false, false);
    if (a->x_scale != 1) fprintf(c->out, ", x *= %g", (double)a->x_scale);
}

static void print_rope_norm(const print_context *c, const args_rope *a) {
    if (a->q_norm) fprintf(c->out, " QK norm");
}

static void print_rope(const print_context *c, const args_rope *a) {
    print_rope_norm(c, a);
    if (a->clamp > 0) fprintf(c->out, " clamp %g", (double)a->clamp);
    if (a->set == ROPE_SET_LOCAL) fprintf(c->out, " local RoPE");
    if (a->set == ROPE_SET_NONE) fprintf(c->out, " no RoPE");
}

static void print_heads(const print_context *c, const args_heads *a) {
    fprintf(c->out, " of %d heads", a->n);
}

static void print_attention(const print_context *c, const args_attention *a) {
    if (a->gated) print_gate(c, a->head_gates, a->gate_softplus);
    if (a->both_ways) fprintf(c->out, " both ways");
    if (a->window > 0) fprintf(c->out, " window %d", (int)a->window);
    if (a->softcap > 0) fprintf(c->out, " soft cap %g", (double)a->softcap);
    if (a->slopes) fprintf(c->out, " ALiBi");
}

static void print_softcap(const print_context *c, const args_softcap *a) {
    fprintf(c->out, " soft cap %g", (double)a->cap);
}

static void print_head(const print_context *c, const args_head *a) {
    if (a->kind == HEAD_PROFILER)
        fprintf(c->out, " where score > 0");
    else
        fprintf(c->out, " where score >= best - %g", (double)a->distance);
}

static void print_conv(const print_context *c, const plan_recurrent *r) {
    fprintf(c->out, " %d taps", r->n_taps);
}

static void print_recur(const print_context *c, const plan_recurrent *r) {
    fprintf(c->out, " %s, %d heads [%" PRId64 ", %" PRId64 "]",
            r->mixer & (MIXER_SSM | MIXER_SCAN) ? "SSM"
            : r->mixer == MIXER_LIGHTNING       ? "constant decay"
            : r->mixer == MIXER_WKV             ? "RWKV"
                                                : "delta rule",
            r->n_head, r->head_dim, r->n_state);
}

static void print_ffn_sparse(const print_context *c, const plan_ffn *f) {
    if (!f->given) print_activation(c);
    if (f->fc2.w.data) print_matrix(&f->fc2, c->out);
    fprintf(c->out, " %s", ffn_mode_name(f->mode));
    if (f->mode == PI_MODE_PREDICT)
        fprintf(c->out, " by %s >= %g", predictor_kind_name(f->predictor), (double)f->threshold);
    if (f->mode == PI_MODE_THRESHOLD) fprintf(c->out, " above %g", (double)f->cut);
    if (f->cut_down > 0) fprintf(c->out, ", hidden above %g", (double)f->cut_down);
    fprintf(c->out, ", %d parts", f->n_parts);
}

static void print_route(const print_context *c, const plan_experts *e) {
    fprintf(c->out, " %d of %d", e->n_used, e->n_expert);
}

static void print_experts_in(const print_context *c, const plan_experts *e) {
    if (e->gate.w.data) print_matrix(&e->gate, c->out);
    print_matrix(&e->up, c->out);
    if (e->mode == PI_MODE_DENSE) return;
    print_activation(c);
    if (e->predictor == PREDICTOR_NONE) {
        fprintf(c->out, " exact");
        return;
    }
    if (e->fc2.w.data) print_matrix(&e->fc2, c->out);
    fprintf(c->out, " predict by %s >= %g", predictor_kind_name(e->predictor),
            (double)e->threshold);
}

static void print_message(const print_context *c, const plan_step *s, const args_message *a) {
    char device[16];
    bool direct = a->peer >= 0;
    name_device(c->p, direct ? a->peer : s->device, device, sizeof device);
    if (!direct)
        fprintf(c->out, " message %d%s", a->exchange, a->bits ? " with selected neurons" : "");
    if (direct || (c->side == SIDE_CPU && c->p->n_devices > 1))
        fprintf(c->out, " %s %s", s->op == OP_SEND ? "to" : "from", device);
    if (a->add_to_out) fprintf(c->out, " -> %s +=", buffer_name(s->out));
}

static void print_operands(const print_context *c, const plan_step *s) {
    switch (s->op) {
#define PLAN_OP(name, text, args, print, ...) STEP_CASE(name, args, print)
#define NOTHING
#include "ops.def"
    case OP_COUNT:
        break;
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void print_steps(const plan *p, plan_side side, FILE *out) {
    const plan_step *steps = side == SIDE_CPU ? p->steps : p->gpu_steps;
    const print_context context = {.p = p, .side = side, .out = out};
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
        print_operands(&context, s);
        if (s->add_to_x) fprintf(out, " -> x +=");
        if (s->norms) fprintf(out, ", norm");
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
