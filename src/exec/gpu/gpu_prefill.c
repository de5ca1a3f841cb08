/* gpu_prefill.c: ubatches of many tokens in layers whose primary is the GPU and whose cold neurons
 * are on the CPU. Either the CPU computes the cold neurons, as it does for single tokens, or their
 * rows are copied to the GPU tile by tile and the GPU computes the whole layer. The CPU's time
 * grows with the number of tokens, the time to copy does not. The two ways round differently, so
 * constants alone decide between them: the same context gives the same results. */
#include <limits.h>
#include <math.h>

#include "gpu_exec_impl.h"
#include "plan_support.h"

/* Bytes per second from the host's memory into packed rows. PCIe 4.0 with 16 lanes moves 26 GB/s
 * from pinned memory. Every byte is first copied to pinned memory: it is read, written and read
 * again, so two channels of DDR4 (51 GB/s) limit the rate to a third of theirs. */
static const double copy_rate = 16e9;

/* ---- cold shares ----------------------------------------------------------------------------- */

static bool is_in(const plan_step *s) {
    return s->op == OP_FFN_SPARSE || s->op == OP_FFN_IN;
}

/* Finds the CPU's steps of the layer; false if it has none or the GPU could not compute its
 * neurons. */
static bool find_cold(const plan *p, int layer, gpu_exec_cold *out) {
    plan_lack lack;
    *out = (gpu_exec_cold){0};
    if (!plan_is_supported(p->model, layer, p->ffn[layer].mode, PLAN_PART_NEURONS, p->supports,
                           &lack))
        return false;
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        if (!s->cold || s->layer != layer) continue;
        if (is_in(s)) out->in = s;
        if (s->op == OP_FFN_DOWN) out->down = STEP_ARGS(s, ffn)->ffn->down;
        if (s->op == OP_MATMUL) out->down = s->matrix[0];
    }
    return out->in;
}

static int64_t n_neurons(const gpu_exec_cold *cold) {
    return cold->in->matrix[0].w.n_out;
}

static bool has_rows(const gpu_exec_cold *cold) { /* down has one per neuron */
    return cold->down.role == ROLE_FFN_DOWN_T;
}

static uint64_t cold_bytes(const gpu_exec_cold *cold) {
    uint64_t n = cold->down.row_size * (uint64_t)cold->down.w.n_out;
    for (int k = 0; k < cold->in->n_matrices; k++)
        n += cold->in->matrix[k].row_size * (uint64_t)cold->in->matrix[k].w.n_out;
    return n;
}

static double product_seconds(const cpu_kernels *k, const plan_matrix *pm, bool transposed) {
    cpu_act_kind kind = transposed ? k->mat_t[pm->w.type].act : k->mat[pm->w.type].act;
    return (double)pm->w.n_in * (double)pm->w.n_out / k->tiled[kind].products_per_ns * 1e-9;
}

/* Seconds that one thread of the CPU takes for each token. */
static double cold_seconds(const cpu_kernels *k, const gpu_exec_cold *cold) {
    double seconds = product_seconds(k, &cold->down, has_rows(cold));
    for (int i = 0; i < cold->in->n_matrices; i++)
        seconds += product_seconds(k, &cold->in->matrix[i], false);
    return seconds;
}

/* The part of neurons [r0, r0 + n) in matrix `which` of the input, or in down. */
static plan_matrix tile_of(const gpu_exec_cold *cold, int which, int64_t r0, int64_t n) {
    if (which < cold->in->n_matrices) return plan_take_rows(&cold->in->matrix[which], r0, n);
    return has_rows(cold) ? plan_take_rows(&cold->down, r0, n)
                          : plan_take_columns(&cold->down, r0, n);
}

/* ---- device memory --------------------------------------------------------------------------- */

static pi_status upload_vectors(gpu_exec *g, gpu_exec_cold *cold, pi_error *err) {
    pi_status status = PI_OK;
    for (int k = 0; k < cold->in->n_matrices && status == PI_OK; k++)
        status = gpu_exec_upload_floats(g, cold->in->matrix[k].bias, n_neurons(cold), "a bias",
                                        &cold->bias[k], err);
    if (status == PI_OK)
        status = gpu_exec_upload_floats(g, cold->down.bias, g->model->hp.n_embd, "a bias",
                                        &cold->down_bias, err);
    const plan_ffn *f = plan_ffn_of(cold->in);
    if (status == PI_OK && f)
        status = gpu_exec_upload_floats(g, f->cut_weight, n_neurons(cold), "factors of neurons",
                                        &cold->cut_weight, err);
    const float *divisors = g->sides->plan->ffn[cold->in->layer].divisors;
    if (status == PI_OK)
        status = gpu_exec_upload_floats(g, divisors, n_neurons(cold), "scales of activations",
                                        &cold->divisors, err);
    return status;
}

pi_status gpu_exec_prefill_create(gpu_exec *g, pi_error *err) {
    size_t tile_bytes = 0;
    uint64_t bytes = 0;
    pi_status status = PI_OK;
    for (int i = 0; i < g->model->hp.n_layer && status == PI_OK; i++) {
        gpu_exec_cold *cold = &g->cold[i];
        if (!plan_has(g->plan, i) || !find_cold(g->plan, i, cold)) continue;
        status = upload_vectors(g, cold, err);
        bytes += cold_bytes(cold);
        for (int k = 0; k <= cold->in->n_matrices; k++) {
            const plan_matrix m = tile_of(
                cold, k, 0,
                n_neurons(cold) < GPU_EXEC_TILE_ROWS ? n_neurons(cold) : GPU_EXEC_TILE_ROWS);
            size_t n = gpu_mat_row_bytes(m.row_size) * (size_t)m.w.n_out;
            if (n > tile_bytes) tile_bytes = n;
        }
    }
    g->cold_bytes = bytes;
    if (bytes == 0 || status != PI_OK) return status;
    void *p;
    for (int i = 0; i < GPU_EXEC_STAGES && status == PI_OK; i++) {
        status = gpu_exec_alloc(g, tile_bytes, "staged rows", &g->tile[i], err);
        if (status == PI_OK && g->d) status = g->b->event_create(g->d, &g->arrived[i], err);
        if (status == PI_OK && g->d) status = g->b->event_create(g->d, &g->consumed[i], err);
    }
    for (int i = 0; i < 2 && status == PI_OK; i++) {
        status = gpu_exec_alloc(g, (size_t)g->n_batch * GPU_EXEC_TILE_ROWS * sizeof(float),
                                "staged neurons", &p, err);
        g->tile_out[i] = p;
    }
    return status;
}

/* ---- streaming ------------------------------------------------------------------------------- */

/* Sends rows through a separate stream, as soon as the product before last has read the tile. */
static gpu_mat send_tile(gpu_exec *g, const plan_matrix *pm, int tile) {
    const gpu_mat to = {.data = g->tile[tile],
                        .row_bytes = gpu_mat_row_bytes(pm->row_size),
                        .n_in = pm->w.n_in,
                        .n_out = pm->w.n_out,
                        .type = pm->w.type};
    g->b->stream_wait(g->side, g->consumed[tile]);
    gpu_exec_pack_rows(g, g->side, pm, &to);
    g->b->event_record(g->side, g->arrived[tile]);
    g->b->stream_wait(g->stream, g->arrived[tile]);
    return to;
}

static void product(gpu_exec *g, const plan_matrix *pm, const gpu_input *in, const float *bias,
                    float *y, int64_t ldy, bool add, bool transposed) {
    const int tile = g->next_tile;
    g->next_tile = (tile + 1) % GPU_EXEC_STAGES;
    const gpu_matmul a = {.w = send_tile(g, pm, tile),
                          .in = *in,
                          .bias = bias,
                          .scale = pm->scale,
                          .scale_last = pm->scale_last,
                          .add = add,
                          .y = y,
                          .ldy = ldy,
                          .precise = g->precise,
                          .scratch = g->halves};
    if (transposed)
        g->b->ops.matmul_t(g->stream, &a);
    else
        g->b->ops.matmul(g->stream, &a);
    g->b->event_record(g->stream, g->consumed[tile]);
}

/* Computes neurons [r0, r0 + n), and adds the sum of their rows of down to the buffer of
 * `answer`. */
static void stream_tile(gpu_exec *g, const gpu_exec_cold *cold, const plan_step *answer, int64_t r0,
                        int64_t n, int n_cols) {
    const plan_step *s = cold->in;
    const plan_ffn *f = plan_ffn_of(s); /* NULL: dense */
    const gpu_input in = {.x = g->buf[BUF_Y], .ldx = g->plan->gpu_width[BUF_Y], .n_cols = n_cols};
    for (int k = 0; k < s->n_matrices; k++) {
        const plan_matrix m = tile_of(cold, k, r0, n);
        product(g, &m, &in, cold->bias[k] ? cold->bias[k] + r0 : NULL, g->tile_out[k],
                GPU_EXEC_TILE_ROWS, false, false);
    }
    bool selected = f && f->mode == PI_MODE_PREDICT;
    const gpu_activate a = {.gate = g->tile_out[0],
                            .up = s->n_matrices > 1 ? g->tile_out[1] : NULL,
                            .ldg = GPU_EXEC_TILE_ROWS,
                            .ldu = GPU_EXEC_TILE_ROWS,
                            .ldy = GPU_EXEC_TILE_ROWS,
                            .n = n,
                            .n_cols = n_cols,
                            .f = g->model->hp.activation,
                            .clamp = gpu_exec_clamp(g, g->model->layers[s->layer].hp.ffn_clamp),
                            .threshold = g->model->hp.activation_threshold,
                            .cut = f ? f->cut : -1,
                            .cut_weight = cold->cut_weight ? cold->cut_weight + r0 : NULL,
                            .cut_down = f ? f->cut_down : 0,
                            .divisors = cold->divisors ? cold->divisors + r0 : NULL,
                            .bitmap = selected ? g->bits : NULL,
                            .n_words = plan_bits_words(g->model->layers[s->layer].hp.n_ff),
                            .first_bit = selected ? f->first + r0 : 0,
                            .y = g->tile_out[0]};
    g->b->ops.activate(g->stream, &a);
    const plan_matrix down = tile_of(cold, s->n_matrices, r0, n);
    const gpu_input hidden = {.x = g->tile_out[0], .ldx = GPU_EXEC_TILE_ROWS, .n_cols = n_cols};
    product(g, &down, &hidden, r0 == 0 ? cold->down_bias : NULL, g->buf[answer->out],
            g->plan->gpu_width[answer->out], STEP_ARGS(answer, message)->add_to_out || r0 > 0,
            has_rows(cold));
}

void gpu_exec_stream_cold(gpu_exec *g, const plan_step *answer, int n_cols) {
    const gpu_exec_cold *cold = &g->cold[answer->layer];
    int64_t total = n_neurons(cold);
    for (int64_t r0 = 0; r0 < total; r0 += GPU_EXEC_TILE_ROWS)
        stream_tile(g, cold, answer, r0,
                    total - r0 < GPU_EXEC_TILE_ROWS ? total - r0 : GPU_EXEC_TILE_ROWS, n_cols);
}

/* ---- which way ------------------------------------------------------------------------------- */

/* Seconds for the cold neurons of a token, with all threads. */
static double all_cold_seconds(const gpu_exec *g) {
    double seconds = 0;
    for (int i = 0; i < g->model->hp.n_layer; i++)
        if (g->cold[i].in) seconds += cold_seconds(g->sides->kernels, &g->cold[i]);
    return seconds / g->sides->n_threads;
}

static int tokens_to_stream_from(const gpu_exec *g) {
    const gpu_prompts prompts = g->sides->prompts;
    if (g->cold_bytes == 0 || prompts == GPU_PROMPTS_SPLIT) return INT_MAX;
    if (prompts == GPU_PROMPTS_STREAMED) return 1;
    double tokens = ceil((double)g->cold_bytes / copy_rate / all_cold_seconds(g));
    return tokens < INT_MAX ? (int)tokens : INT_MAX;
}

static double products(const plan_matrix *pm) {
    return (double)pm->w.n_in * (double)pm->w.n_out;
}

/* Expects all products of the layers' steps; the head has one row per prompt. */
void gpu_exec_prefill_expect(const gpu_exec *g, gpu_exec_prompt *out) {
    const plan *p = g->sides->plan;
    const int n_layer = g->model->hp.n_layer;
    const cpu_kernels *k = g->sides->kernels;
    *out = (gpu_exec_prompt){.cold_bytes = g->cold_bytes,
                             .streams_from = tokens_to_stream_from(g),
                             .copy_seconds = (double)g->cold_bytes / copy_rate,
                             .cold_seconds = all_cold_seconds(g)};
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        const plan_step *s = &g->plan->gpu_steps[i];
        for (int m = 0; m < s->n_matrices && s->layer < n_layer; m++)
            out->products += products(&s->matrix[m]);
    }
    for (int i = 0; i < p->n_steps; i++) {
        const plan_step *s = &p->steps[i];
        for (int m = 0; m < s->n_matrices && s->layer < n_layer && !s->cold; m++)
            out->cpu_seconds += product_seconds(k, &s->matrix[m], false) / g->sides->n_threads;
    }
    for (int i = 0; i < n_layer; i++) {
        const gpu_exec_cold *cold = &g->cold[i];
        if (!cold->in) continue;
        out->cold_products += products(&cold->down);
        for (int m = 0; m < cold->in->n_matrices; m++)
            out->cold_products += products(&cold->in->matrix[m]);
    }
}

/* The context's threads cannot fill stages, because they wait at a barrier while one of them
 * enqueues; so other threads do. */
pi_status gpu_exec_prefill_choose(gpu_exec *g, pi_error *err) {
    g->stream_from = tokens_to_stream_from(g);
    if (g->stream_from > g->n_batch || g->sides->n_threads == 1) return PI_OK;
    return pool_create(g->sides->n_threads, &g->fillers, err);
}

void gpu_exec_prefill_free(gpu_exec *g) {
    for (int i = 0; i < GPU_EXEC_STAGES; i++) {
        if (g->arrived[i]) g->b->event_destroy(g->arrived[i]);
        if (g->consumed[i]) g->b->event_destroy(g->consumed[i]);
    }
    pool_destroy(g->fillers);
}
