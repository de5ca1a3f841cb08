/* cpu_ffn_dense.c: FFN layers that compute all neurons: dense layers, and sparse layers in ubatches
 * of many tokens, which need nearly every neuron for one token or another. A sparse layer then sets
 * the neurons that a token did not select to zero, so the result is that of cpu_ffn_sparse.c.
 *
 * Gate and up of the same neurons are in one chunk, so the activation finds both in the cache. */
#include <math.h>

#include "cpu_exec.h"

/* The inputs of gate and up; returns the bytes of a neuron's rows. */
static size_t inputs_of(const cpu_exec *c, const plan_step *s, cpu_act_layout layout,
                        cpu_act x[PLAN_MAX_GROUP]) {
    size_t row_bytes = 0;
    for (int k = 0; k < s->n_matrices; k++) {
        const plan_matrix *pm = &s->matrix[k];
        row_bytes += pm->row_size;
        x[k] = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, c->kernels.mat[pm->w.type].act, layout,
                                 pm->w.n_in, c->ubatch.n_tokens);
    }
    return row_bytes;
}

void cpu_exec_activate(const cpu_exec *c, float limit, float *gate, float *up, int64_t n) {
    const model_hparams *hp = &c->model->hp;
    if (hp->soft_gate > 0) { /* SiTU: SiLU; gate has a soft limit, and up too unless infinite */
        for (int64_t i = 0; i < n; i++) {
            float u = isinf(limit) ? up[i] : limit * tanhf(up[i] / limit);
            gate[i] = hp->soft_gate * tanhf(gate[i] / hp->soft_gate) * cpu_exec_sigmoid(gate[i]) *
                      u;
        }
        return;
    }
    const bool late = limit > 0 && c->model->arch->clamp_late;
    if (limit > 0 && !late) {
        /* gpt-oss also scales both, so that silu(gate) * up is its activation: x / (1 + e^-ax) =
         * silu(ax) / a. */
        const bool shifted = c->model->arch->has & ARCH_FFN_CLAMP;
        const float alpha = shifted ? 1.702f : 1, shift = shifted ? 1 : 0;
        for (int64_t i = 0; i < n; i++) {
            gate[i] = alpha * fminf(gate[i], limit);
            up[i] = (fmaxf(-limit, fminf(up[i], limit)) + shift) / alpha;
        }
    }
    c->kernels.activate(hp->activation, hp->activation_threshold, gate, late ? NULL : up, gate, n);
    for (int64_t i = 0; late && i < n; i++)
        gate[i] = fminf(gate[i], limit) * fmaxf(-limit, fminf(up[i], limit));
}

/* ---- dense layers ---------------------------------------------------------------------------- */

void cpu_exec_ffn_in(cpu_exec *c, const plan_step *s, int ith) {
    const cpu_exec_product *by = cpu_exec_product_of(c, s);
    cpu_act x[PLAN_MAX_GROUP];
    size_t row_bytes = inputs_of(c, s, by->layout, x);
    const float limit = c->model->layers[s->layer].hp.ffn_clamp;
    row_chunks chunks = row_chunks_make(s->matrix[0].w.n_out, row_bytes, c->ubatch.nth, by->layout);
    int64_t r0, r1;
    while (row_chunks_take(c->pool, &chunks, &r0, &r1)) {
        for (int k = 0; k < s->n_matrices; k++)
            cpu_exec_multiply(c, by, &s->matrix[k], &x[k], r0, r1, ith);
        for (int64_t col = 0; col < c->ubatch.n_tokens; col++) {
            float *gate = cpu_exec_row(c, BUF_GATE, col) + r0;
            float *up = s->n_matrices > 1 ? cpu_exec_row(c, BUF_UP, col) + r0 : NULL;
            if (!c->model->arch->xielu) {
                cpu_exec_activate(c, limit, gate, up, r1 - r0);
                continue;
            }
            const model_xielu *a = &c->model->layers[s->layer].hp.xielu;
            for (int64_t i = 0; i < r1 - r0; i++) {
                const float v = gate[i];
                gate[i] = a->beta * v + (v > 0 ? a->positive * v * v
                                               : a->negative * (expm1f(fminf(v, a->eps)) - v));
            }
        }
    }
}

/* ---- a cutoff that depends on all neurons ---------------------------------------------------- */

/* The mean of x, or with minus = mean and `squared` the variance, of all values, not of a
 * sample. */
static float mean_of(const float *x, int64_t n, float minus, bool squared) {
    enum { LANES = 8 };
    float part[LANES] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t k = 0; k < LANES && i + k < n; k++) {
            float v = x[i + k] - minus;
            part[k] += squared ? v * v : v;
        }
    for (int k = 0; k < LANES; k++) sum += part[k];
    return sum / (float)n;
}

/* Gaussian top-k: if values were normally distributed, a fixed share of them would exceed the
 * cutoff. NaN stays NaN. */
void cpu_exec_top_k(cpu_exec *c, const plan_step *s, const args_top_k *a) {
    const model_hparams *hp = &c->model->hp;
    int64_t col, n = c->model->layers[s->layer].hp.n_ff;
    while ((col = pool_take(c->pool, 1)) < c->ubatch.n_tokens) {
        float *x = cpu_exec_row(c, s->in, col);
        float mean = mean_of(x, n, 0, false);
        float cutoff = mean + a->cutoff * sqrtf(mean_of(x, n, mean, true));
        for (int64_t i = 0; i < n; i++) x[i] = x[i] < cutoff ? 0 : x[i] - cutoff;
        c->kernels.activate(hp->activation, hp->activation_threshold, x, NULL, x, n);
    }
}

/* ---- sparse layers, many tokens -------------------------------------------------------------- */

/* Computes the hidden values of neurons [r0, r1) from gate and up, in the buffer of gate. Neurons
 * that a token did not select are zero, and activations that count as zero. */
static void mask_hidden(cpu_exec *c, const plan_step *s, const plan_ffn *f, int64_t r0,
                        int64_t r1) {
    const model_hparams *hp = &c->model->hp;
    int64_t n = r1 - r0;
    for (int64_t col = 0; col < c->ubatch.n_tokens; col++) {
        float *a = cpu_exec_row(c, BUF_GATE, col);
        if (!f->given)
            c->kernels.activate(hp->activation, hp->activation_threshold, a + r0, NULL, a + r0, n);
        for (int64_t r = r0; r < r1; r++)
            if (fabsf(a[r]) * (f->cut_weight ? f->cut_weight[r] : 1) <= f->cut) a[r] = 0;
        if (f->selection == SELECT_SCORES) {
            const float *score = cpu_exec_row(c, BUF_SCORE, col);
            for (int64_t r = r0; r < r1; r++)
                if (!cpu_exec_selects(f, score, r)) a[r] = 0;
        } else if (f->selection == SELECT_MESSAGE) {
            const uint32_t *bits = gpu_exec_received_bits(cpu_exec_gpu(c, s->layer), s->layer, col);
            for (int64_t r = r0; r < r1; r++)
                if (!cpu_exec_is_selected(bits, f->first + r)) a[r] = 0;
        }
        if (s->n_matrices == 1 && !f->given) continue;
        float *up = cpu_exec_row(c, BUF_UP, col);
        if (hp->activation == ACTIVATION_DRELU)
            c->kernels.activate(ACTIVATION_RELU, 0, up + r0, NULL, up + r0, n);
        for (int64_t r = r0; r < r1; r++) a[r] = cpu_exec_hidden_value(a[r], up[r], f->cut_down);
    }
}

void cpu_exec_ffn_masked(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith) {
    const cpu_exec_product *by = &cpu_exec_by_tile;
    cpu_act x[PLAN_MAX_GROUP];
    size_t row_bytes = inputs_of(c, s, by->layout, x);
    row_chunks chunks = row_chunks_make(f->n_ff, row_bytes, c->ubatch.nth, by->layout);
    int64_t r0, r1;
    while (row_chunks_take(c->pool, &chunks, &r0, &r1)) {
        if (f->selection == SELECT_SCORES)
            cpu_exec_scores(c, by, f, r0, r1, c->buf[BUF_SCORE] + r0, c->plan->width[BUF_SCORE],
                            ith);
        for (int k = 0; k < s->n_matrices; k++)
            cpu_exec_multiply(c, by, &s->matrix[k], &x[k], r0, r1, ith);
        mask_hidden(c, s, f, r0, r1);
        c->scratch[ith].counts.ffn += (uint64_t)(r1 - r0) * row_bytes;
    }
}

/* Multiplies by all rows of down: the product sums over neurons. */
void cpu_exec_ffn_down_tiled(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith) {
    const plan_matrix *down = &f->down;
    const cpu_mat_t_kernels *mk = &c->kernels.mat_t[down->w.type];
    cpu_act h = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, mk->act, CPU_ACT_PANELS, down->w.n_out,
                                  c->ubatch.n_tokens);
    for (int64_t j0; (j0 = pool_take(c->pool, CPU_COL_TILE)) < down->w.n_in;) {
        int64_t j1 = j0 + CPU_COL_TILE < down->w.n_in ? j0 + CPU_COL_TILE : down->w.n_in;
        mk->matmul_t(&down->w, j0, j1, &h, c->buf[BUF_Y], c->plan->width[BUF_Y],
                     c->scratch[ith].kernel);
        for (int64_t col = 0; col < c->ubatch.n_tokens; col++)
            cpu_exec_finish_down(c, s, f, col, j0, j1);
        c->scratch[ith].counts.ffn += (uint64_t)down->row_size * (uint64_t)down->w.n_out *
                                      (uint64_t)(j1 - j0) / (uint64_t)down->w.n_in;
    }
}
