/* gpu_move.c: neurons that move between the devices. A neuron's rows and vector elements go through
 * pinned memory in one copy and are packed into its place, between two ubatches: the stream runs
 * the copies after the kernels of the last ubatch and before those of the next one. */
#include <string.h>

#include "gpu_exec_impl.h"

enum { MAX_PARTS = 16, ALIGN = 16 /* of rows that `pack` reads */ };

/* A row for a matrix of the device, or an element for a vector. */
typedef struct move_part {
    const void *from;
    size_t n_bytes;
    bool is_row;
    gpu_mat matrix;
    int64_t row;
    uint8_t *element; /* NULL: the device has no such vector */
} move_part;

typedef struct move_parts {
    move_part of[MAX_PARTS];
    int n;
} move_parts;

/* ---- a neuron -------------------------------------------------------------------------------- */

/* `from`: row of the matrix in the model, whose first rows the device has. */
static void add_row(move_parts *l, const plan_matrix *m, int64_t from, const gpu_mat *to,
                    int64_t row) {
    l->of[l->n++] = (move_part){.from = (const uint8_t *)m->w.data + (size_t)from * m->w.row_bytes,
                                .n_bytes = m->row_size,
                                .is_row = true,
                                .matrix = *to,
                                .row = row};
}

/* vector: the model's, of elements of `size` bytes; NULL: there is none. */
static void add_element(move_parts *l, const void *vector, size_t size, int64_t from,
                        const void *to, int64_t at) {
    if (!vector) return;
    l->of[l->n++] = (move_part){.from = (const uint8_t *)vector + (size_t)from * size,
                                .n_bytes = size,
                                .element = to ? (uint8_t *)(uintptr_t)to + (size_t)at * size
                                              : NULL};
}

/* The neuron in place `from` of the model moves to the place `to` of the device's predictor. */
static void add_predictor(const gpu_exec *g, move_parts *l, const plan_ffn *f,
                          const gpu_exec_step *select, int64_t from, int64_t to) {
    if (f->fc2.w.data) add_row(l, &f->fc2, from, &select->fc2, to);
    add_element(l, f->sign, (size_t)g->model->hp.n_embd / 8, from, select->sign, to);
    add_element(l, f->score_bias, sizeof(float), from, select->score_bias, to);
}

/* What changes on the device when the neurons of two places change places. The model still has them
 * in the old places. */
static void list_parts(const gpu_exec *g, int layer, int64_t hot, int64_t cold, move_parts *l) {
    const plan_ffn *f = &g->plan->gpu_ffn[layer];
    const plan_step *s = f->sparse;
    const gpu_exec_step *in = gpu_exec_step_of(g, layer, OP_FFN_SPARSE);
    const gpu_exec_step *down = gpu_exec_step_of(g, layer, OP_FFN_DOWN);
    const gpu_exec_cold *rest = &g->cold[layer]; /* vectors of the places from n_ff on */
    l->n = 0;
    for (int k = 0; k < s->n_matrices; k++) {
        const float *bias = s->matrix[k].bias;
        add_row(l, &s->matrix[k], cold, &in->w[k], hot);
        add_element(l, bias, sizeof *bias, cold, in->bias[k], hot);
        add_element(l, bias, sizeof *bias, hot, rest->bias[k], cold - f->n_ff);
    }
    add_row(l, &f->down, cold, &down->down, hot);
    add_element(l, f->cut_weight, sizeof(float), cold, in->cut_weight, hot);
    add_element(l, f->cut_weight, sizeof(float), hot, rest->cut_weight, cold - f->n_ff);
    if (f->selection != SELECT_SCORES) return;
    const gpu_exec_step *select = gpu_exec_step_of(g, layer, OP_SELECT);
    add_predictor(g, l, f, select, cold, hot);
    add_predictor(g, l, f, select, hot, cold);
}

static size_t aligned(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t stage_bytes(const move_parts *l) {
    size_t n = 0;
    for (int i = 0; i < l->n; i++) n += aligned(l->of[i].n_bytes);
    return n;
}

size_t gpu_exec_neuron_bytes(const gpu_exec *g, int layer) {
    move_parts l;
    list_parts(g, layer, 0, g->plan->gpu_ffn[layer].n_ff, &l);
    return stage_bytes(&l);
}

void gpu_exec_move_neuron(gpu_exec *g, int layer, int64_t hot, int64_t cold, int n) {
    move_parts l;
    list_parts(g, layer, hot, cold, &l);
    uint8_t *host = (uint8_t *)g->moved.stage_host.host + (size_t)n * g->moved.size;
    uint8_t *device = g->moved.stage + (size_t)n * g->moved.size;
    size_t at = 0;
    for (int i = 0; i < l.n; i++) {
        memcpy(host + at, l.of[i].from, l.of[i].n_bytes);
        at += aligned(l.of[i].n_bytes);
    }
    g->b->upload(g->stream, device, host, at);
    for (int i = 0; i < l.n; i++) {
        const move_part *p = &l.of[i];
        const gpu_pack pack = {.src = device,
                               .src_row_bytes = p->n_bytes,
                               .dst = p->matrix,
                               .row0 = p->row,
                               .n_rows = 1};
        if (p->is_row)
            g->b->ops.pack(g->stream, &pack);
        else if (p->element)
            g->b->copy(g->stream, p->element, device, p->n_bytes);
        device += aligned(p->n_bytes);
    }
}

/* ---- active neurons -------------------------------------------------------------------------- */

static bool keeps_hidden(const gpu_exec *g, int layer) {
    return g->moves && neurons_move(g->plan, layer) &&
           g->plan->gpu_ffn[layer].selection == SELECT_ALL;
}

static int64_t width_of(const gpu_exec *g) {
    return g->plan->gpu_width[BUF_GATE];
}

float *gpu_exec_hidden_of(const gpu_exec *g, int layer, int64_t *ld) {
    int at = 0;
    *ld = width_of(g);
    if (!keeps_hidden(g, layer)) return g->buf[BUF_GATE];
    *ld *= g->moved.n_layers;
    for (int i = 0; i < layer; i++) at += keeps_hidden(g, i);
    return g->moved.hidden + at * width_of(g);
}

void gpu_exec_download_hidden(gpu_exec *g) {
    int n_cols = g->sides->ubatch->n_tokens;
    if (g->moved.n_layers == 0 || plan_form_of(g->plan, SIDE_GPU, n_cols) == FORM_MANY) return;
    size_t column = (size_t)(g->moved.n_layers * width_of(g)) * sizeof(float);
    g->b->download(g->stream, g->moved.hidden_host.host, g->moved.hidden, (size_t)n_cols * column);
}

void gpu_exec_count_neurons(const gpu_exec *g, neuron_adapter *a) {
    const float *h = g->moved.hidden_host.host;
    for (int i = 0; i < g->model->hp.n_layer; i++) {
        if (!keeps_hidden(g, i)) continue;
        neuron_adapter_count_values(a, i, h, g->moved.n_layers * width_of(g),
                                    g->sides->ubatch->n_tokens, g->plan->gpu_ffn[i].n_ff);
        h += width_of(g);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

pi_status gpu_exec_moves_create(gpu_exec *g, pi_error *err) {
    gpu_exec_moves *m = &g->moved;
    const char *what = "neurons being moved";
    void *p;
    for (int i = 0; i < g->model->hp.n_layer; i++) {
        if (!neurons_move(g->plan, i)) continue;
        size_t n = gpu_exec_neuron_bytes(g, i);
        if (n > m->size) m->size = n;
        m->n_layers += keeps_hidden(g, i);
    }
    size_t hidden = (size_t)(m->n_layers * width_of(g)) * GPU_MAX_COLS * sizeof *m->hidden;
    pi_status status = gpu_exec_alloc(g, hidden, what, &p, err);
    m->hidden = p;
    if (status == PI_OK) status = gpu_exec_alloc(g, ADAPT_MOVES * m->size, what, &p, err);
    m->stage = p;
    if (status == PI_OK && g->d && hidden)
        status = g->b->host_alloc(g->d, hidden, &m->hidden_host, err);
    if (status == PI_OK && g->d)
        status = g->b->host_alloc(g->d, ADAPT_MOVES * m->size, &m->stage_host, err);
    return status;
}

void gpu_exec_moves_free(gpu_exec *g) {
    if (g->moved.hidden_host.host) g->b->host_free(g->d, &g->moved.hidden_host);
    if (g->moved.stage_host.host) g->b->host_free(g->d, &g->moved.stage_host);
}
