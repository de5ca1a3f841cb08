/* cpu_exchange.c: the CPU's steps of an exchange with a GPU. */
#include <string.h>

#include "act_put.h"
#include "clock.h"
#include "cpu_exec.h"
#include "gpu_ops.h"

enum { SELECT_ROWS = 256 }; /* neurons that a thread scores at a time; whole words of bits */

/* Writes the bits of neurons [r0, r1) from a token's scores; r0 is a multiple of 32. */
static void write_bits(const plan_ffn *f, const float *score, int64_t r0, int64_t r1,
                       uint32_t *bits) {
    for (int64_t word = r0 / 32; word * 32 < r1; word++) {
        uint32_t w = 0;
        int64_t end = word * 32 + 32 < r1 ? word * 32 + 32 : r1;
        for (int64_t r = word * 32; r < end; r++)
            if (cpu_exec_selects(f, score, r)) w |= 1u << (r % 32);
        bits[word] = w;
    }
}

void cpu_exec_select(cpu_exec *c, const plan_step *s, const plan_ffn *f, int ith) {
    const cpu_exec_product *by = cpu_exec_product_of(c, s);
    int64_t ld = c->plan->width[BUF_SCORE];
    for (int64_t r0; (r0 = pool_take(c->pool, SELECT_ROWS)) < f->n_scored;) {
        int64_t r1 = r0 + SELECT_ROWS < f->n_scored ? r0 + SELECT_ROWS : f->n_scored;
        cpu_exec_scores(c, by, f, r0, r1, c->buf[BUF_SCORE] + r0, ld, ith);
        for (int64_t col = 0; col < c->ubatch.n_tokens; col++)
            write_bits(f, c->buf[BUF_SCORE] + col * ld, r0, r1,
                       gpu_exec_outgoing_bits(c->gpus[s->device], s->layer, col));
    }
}

/* Passes to a helper GPU its part of the bits that came from the layer's primary. */
static void pass_bits(const cpu_exec *c, const plan_step *s, int64_t col) {
    const plan_ffn *f = plan_gpu_ffn(c->plan, s->device, s->layer);
    const uint32_t *from = gpu_exec_received_bits(cpu_exec_gpu(c, s->layer), s->layer, col);
    uint32_t *to = gpu_exec_outgoing_bits(c->gpus[s->device], s->layer, col);
    int64_t n_words = plan_bits_words(c->model->layers[s->layer].hp.n_ff), at = f->first / 32;
    const int shift = (int)(f->first % 32);
    for (int64_t left = f->n_ff; left > 0; left -= 32, at++) {
        uint64_t two = from[at] | (uint64_t)(at + 1 < n_words ? from[at + 1] : 0) << 32;
        uint32_t word = (uint32_t)(two >> shift);
        *to++ = left < 32 ? word & ((1u << left) - 1) : word;
    }
}

/* Counts the selected neurons of the GPU, whose bits are in a message: one from the layer's
 * primary, which has bits of all neurons, or one to the GPU. */
static void count_remote(const cpu_exec *c, const plan_step *s, bool received) {
    const gpu_exec *g = c->gpus[s->device];
    const int64_t hot = c->plan->splits[s->layer].hot;
    const int64_t n = received ? c->model->layers[s->layer].hp.n_ff : hot;
    if (!c->neurons) return;
    neuron_adapter_count_bits(c->neurons, s->layer,
                              received ? gpu_exec_received_bits(g, s->layer, 0)
                                       : gpu_exec_outgoing_bits(g, s->layer, 0),
                              plan_bits_words(n), c->ubatch.n_tokens, hot);
}

/* Whether a ubatch of few tokens chose no expert of the GPU. */
static bool has_no_remote(const cpu_exec *c, const plan_experts *e, int layer) {
    if (c->ubatch.n_tokens > GPU_MAX_COLS) return false;
    for (int64_t i = 0; i < (int64_t)c->ubatch.n_tokens * e->n_used; i++)
        if (adapt_slot(c->adapter, layer, c->experts.chosen[i]) < e->hot) return false;
    return true;
}

/* If there is nothing to do, neither device writes a buffer that the other may still read. */
void cpu_exec_send(cpu_exec *c, const plan_step *s, const args_message *a) {
    if (atomic_load_explicit(&c->gpu_lost, memory_order_relaxed)) return;
    if (a->experts && a->experts->primary == SIDE_CPU && has_no_remote(c, a->experts, s->layer)) {
        c->idle_layer = s->layer;
        gpu_exec_raise(c->gpus[s->device], a->exchange, true);
        return;
    }
    if (s->layer == c->idle_layer) return; /* no answer follows */
    int64_t n = plan_message_width(c->plan, s->in), ld = c->plan->width[s->in];
    float *to = gpu_exec_outgoing(c->gpus[s->device], s->in);
    bool passes = a->bits && c->plan->splits[s->layer].primary == SIDE_GPU;
    for (int64_t col = 0; col < c->ubatch.n_tokens; col++) {
        memcpy(to + col * n, c->buf[s->in] + col * ld, (size_t)n * sizeof *to);
        if (passes) pass_bits(c, s, col);
    }
    if (a->bits && !passes) count_remote(c, s, false);
    gpu_exec_raise(c->gpus[s->device], a->exchange, false);
}

/* A message in int8 form becomes the quantized form that the next step would have made of floats,
 * with the same bits. */
static void take_q8(cpu_exec *c, const plan_step *s) {
    const plan_step *quantize = s + 1;
    const int64_t n = plan_message_width(c->plan, s->out), n_cols = c->ubatch.n_tokens;
    const uint8_t *message = gpu_exec_received(c->gpus[s->device]);
    for (int64_t col = 0; col < n_cols; col++, message += gpu_q8_bytes(n)) {
        const int8_t *q = (const int8_t *)message;
        const float *d = (const float *)(const void *)(message + gpu_q8_d_offset(n));
        const int32_t *sum = (const int32_t *)(const void *)(message + gpu_q8_sum_offset(n));
        for (int kind = 0; kind < CPU_ACT_KIND_COUNT; kind++) {
            if (!(quantize->act_kinds & (1u << kind))) continue;
            cpu_act x = cpu_exec_slot_act(c, quantize->slot, (cpu_act_kind)kind, CPU_ACT_COLUMNS, n,
                                          n_cols);
            cpu_act_put_q8(&x, col, q, d, sum);
        }
        float *y = cpu_exec_row(c, s->out, col);
        for (int64_t i = 0; c->decodes && i < n; i++) y[i] = d[i / CPU_ACT_GROUP] * (float)q[i];
    }
}

void cpu_exec_receive(cpu_exec *c, const plan_step *s, const args_message *a) {
    if (atomic_load_explicit(&c->gpu_lost, memory_order_relaxed)) return;
    if (c->trace) c->trace->wait_end = clock_seconds();
    if (s->layer == c->idle_layer) return; /* the GPU sends no answer */
    /* Before the wait, when nobody needs the CPU. */
    for (int64_t col = 0; a->clear_x && col < c->ubatch.n_tokens; col++)
        memset(cpu_exec_row(c, BUF_X, col), 0, (size_t)c->model->hp.n_embd * sizeof(float));
    if (!gpu_exec_wait(c->gpus[s->device], a->exchange)) {
        atomic_store_explicit(&c->gpu_lost, true, memory_order_relaxed);
        return;
    }
    c->n_received++;
    if (c->trace) c->trace->wait_end = clock_seconds();
    if (gpu_exec_is_idle(c->gpus[s->device], a->exchange)) {
        c->idle_layer = s->layer;
        gpu_exec_skip(c->gpus[s->device]);
        return;
    }
    if (a->bits) count_remote(c, s, true);
    if (plan_message_is_q8(c->plan, a, c->ubatch.n_tokens)) {
        take_q8(c, s);
        return;
    }
    int64_t n = plan_message_width(c->plan, s->out);
    const float *from = gpu_exec_received(c->gpus[s->device]);
    bool alone = a->helpers && c->ubatch.streaming[c->plan->splits[s->layer].device];
    for (int64_t col = 0; col < c->ubatch.n_tokens; col++) {
        float *out = c->buf[s->out] + col * c->plan->width[s->out];
        if (a->add_to_out && !alone)
            c->kernels.add(out, from + col * n, out, n);
        else
            memcpy(out, from + col * n, (size_t)n * sizeof *out);
    }
}
