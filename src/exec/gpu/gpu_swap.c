/* gpu_swap.c: copies an expert's weights into a slot of the GPU while ubatches run. A separate
 * stream sends slices of rows through two stages in pinned memory and packs them into place. A
 * ubatch never waits for it. */
#include <string.h>

#include "gpu_exec_impl.h"
#include "mem.h"

enum { STAGES = 2, STAGE_BYTES = 512 << 10, MAX_PARTS = 10 };

/* The expert's rows of a matrix, or (to.data NULL) the elements of a vector. */
typedef struct swap_part {
    const uint8_t *from;
    size_t row_bytes, from_step; /* bytes of a row, and to the next one */
    int64_t n_rows, row0;        /* rows of `to`, from row0 on */
    gpu_mat to;
    uint8_t *vector; /* [n_rows] rows */
} swap_part;

struct gpu_exec_swap {
    gpu_stream *stream;
    gpu_event *sent[STAGES];
    gpu_pinned host;  /* [STAGES][STAGE_BYTES] */
    uint8_t *device;  /* [STAGES][STAGE_BYTES] */
    gpu_pinned slots; /* [n_layer][n_expert]: the copy that is uploaded */
    int stage;        /* the next one */
    swap_part parts[MAX_PARTS];
    int n_parts, part; /* the current part */
    int64_t row;       /* of the current part: the next row */
};

/* ---- creation -------------------------------------------------------------------------------- */

static size_t n_slots(const gpu_exec *g) {
    return (size_t)g->model->hp.n_layer * (size_t)g->plan->n_expert;
}

static pi_status make_stages(gpu_exec *g, gpu_exec_swap *w, pi_error *err) {
    pi_status status = g->b->stream_create(g->d, &w->stream, err);
    for (int i = 0; i < STAGES && status == PI_OK; i++) {
        status = g->b->event_create(g->d, &w->sent[i], err);
        if (status == PI_OK) g->b->event_record(w->stream, w->sent[i]);
    }
    if (status == PI_OK)
        status = g->b->host_alloc(g->d, (size_t)STAGES * STAGE_BYTES, &w->host, err);
    if (status != PI_OK) return status;
    return g->b->host_alloc(g->d, n_slots(g) * sizeof(int32_t), &w->slots, err);
}

pi_status gpu_exec_swap_create(gpu_exec *g, pi_error *err) {
    void *device, *slots;
    const char *what = "experts being moved";
    pi_status status = gpu_exec_alloc(g, (size_t)STAGES * STAGE_BYTES, what, &device, err);
    if (status == PI_OK)
        status = gpu_exec_alloc(g, n_slots(g) * sizeof(int32_t), what, &slots, err);
    if (status != PI_OK || !g->d) return status;
    g->slots = slots;
    gpu_exec_swap *w = g->swap = mem_calloc(1, sizeof *w);
    if (!w) return error_nomem(err, sizeof *w, what);
    w->device = device;
    return make_stages(g, w, err);
}

void gpu_exec_swap_free(gpu_exec *g) {
    gpu_exec_swap *w = g->swap;
    if (!w) return;
    if (w->stream) g->b->stream_destroy(w->stream);
    for (int i = 0; i < STAGES; i++)
        if (w->sent[i]) g->b->event_destroy(w->sent[i]);
    if (w->host.host) g->b->host_free(g->d, &w->host);
    if (w->slots.host) g->b->host_free(g->d, &w->slots);
    mem_free(w);
}

void gpu_exec_swap_map(gpu_exec *g, int layer, const int32_t *slots) {
    size_t n = (size_t)g->plan->n_expert, at = (size_t)layer * n;
    if (!g->swap) return; /* none of the device's layers is adapted */
    int32_t *host = g->swap->slots.host;
    memcpy(host + at, slots, n * sizeof *host);
    g->b->upload(g->stream, g->slots + at, host + at, n * sizeof *host);
}

/* ---- one expert ------------------------------------------------------------------------------ */

/* Adds a part: an expert's rows of a matrix, which has n_rows for each expert. */
static void add_rows(gpu_exec *g, int layer, const plan_matrix *m, int64_t n_rows, int32_t expert,
                     int32_t slot, const gpu_mat *to) {
    gpu_exec_swap *w = g->swap;
    if (!m->w.data) return;
    const uint8_t *from = (const uint8_t *)m->w.data + (size_t)expert * m->expert_bytes;
    if (g->paging && paging_has_experts(g->paging, layer))
        from = paging_held(g->paging, layer, m, expert);
    w->parts[w->n_parts++] = (swap_part){.from = from,
                                         .row_bytes = m->row_size,
                                         .from_step = m->w.row_bytes,
                                         .n_rows = n_rows,
                                         .row0 = slot * n_rows,
                                         .to = *to};
}

static void add_vector(gpu_exec_swap *w, const float *from, int64_t n, int32_t expert, int32_t slot,
                       const float *to) {
    if (!from) return;
    w->parts[w->n_parts++] = (swap_part){.from = (const uint8_t *)(from + expert * n),
                                         .row_bytes = sizeof *from,
                                         .from_step = sizeof *from,
                                         .n_rows = n,
                                         .vector = (uint8_t *)(uintptr_t)(to + slot * n)};
}

const gpu_exec_step *gpu_exec_step_of(const gpu_exec *g, int layer, plan_op op) {
    int i = 0;
    while (g->plan->gpu_steps[i].op != op || g->plan->gpu_steps[i].layer != layer) i++;
    return &g->steps[i];
}

void gpu_exec_swap_begin(gpu_exec *g, int layer, int32_t expert, int32_t slot) {
    const plan_experts *e = &g->plan->experts[layer];
    const gpu_exec_step *in = gpu_exec_step_of(g, layer, OP_EXPERTS_IN);
    const gpu_exec_step *down = gpu_exec_step_of(g, layer, OP_EXPERTS_DOWN);
    gpu_exec_swap *w = g->swap;
    int64_t n_down = e->down.w.n_out, n_embd = e->n_embd;
    bool fused = e->up_rows > e->n_ff;
    w->n_parts = w->part = 0;
    w->row = 0;
    if (g->paging && paging_has_experts(g->paging, layer)) paging_hold(g->paging, layer, expert);
    add_rows(g, layer, &e->gate, e->up_rows, expert, slot, &in->w[0]);
    if (!fused) add_rows(g, layer, &e->up, e->up_rows, expert, slot, &in->w[1]);
    add_rows(g, layer, &e->down, n_down, expert, slot, &down->down);
    add_vector(w, e->gate.bias, e->n_ff, expert, slot, in->bias[0]);
    add_vector(w, e->up.bias, e->n_ff, expert, slot, in->bias[1]);
    add_vector(w, e->down.bias, n_embd, expert, slot, down->down_bias);
    add_vector(w, e->gate_scales, 1, expert, slot, in->scales[0]);
    add_vector(w, e->up_scales, 1, expert, slot, in->scales[1]);
    add_vector(w, e->down_scales, 1, expert, slot, down->scales[2]);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static bool stage_is_free(const gpu_exec *g, int stage) {
    return g->b->event_done(g->swap->sent[stage]);
}

/* Sends the next rows of the current part: at most n_bytes, but at least one row. */
static size_t send_rows(gpu_exec *g, size_t at, size_t n_bytes) {
    gpu_exec_swap *w = g->swap;
    const swap_part *p = &w->parts[w->part];
    int64_t n = (int64_t)(n_bytes / p->row_bytes), left = p->n_rows - w->row;
    n = n < 1 ? 1 : n < left ? n : left;
    size_t size = (size_t)n * p->row_bytes, offset = (size_t)w->stage * STAGE_BYTES + at;
    uint8_t *host = (uint8_t *)w->host.host + offset, *device = w->device + offset;
    for (int64_t i = 0; i < n; i++)
        memcpy(host + (size_t)i * p->row_bytes, p->from + (size_t)(w->row + i) * p->from_step,
               p->row_bytes);
    g->b->upload(w->stream, device, host, size);
    if (p->vector) {
        g->b->copy(w->stream, p->vector + (size_t)w->row * p->row_bytes, device, size);
    } else {
        const gpu_pack pack = {.src = device,
                               .src_row_bytes = p->row_bytes,
                               .dst = p->to,
                               .row0 = p->row0 + w->row,
                               .n_rows = n};
        g->b->ops.pack(w->stream, &pack);
    }
    w->row += n;
    if (w->row == p->n_rows) {
        w->part++;
        w->row = 0;
    }
    return size;
}

bool gpu_exec_swap_send(gpu_exec *g, size_t n_bytes) {
    enum { ALIGN = 16 }; /* of rows that `pack` reads, and of vectors */
    gpu_exec_swap *w = g->swap;
    if (w->part == w->n_parts) {
        for (int i = 0; i < STAGES; i++)
            if (!stage_is_free(g, i)) return false;
        return true;
    }
    if (!stage_is_free(g, w->stage)) return false;
    if (n_bytes > STAGE_BYTES) n_bytes = STAGE_BYTES;
    for (size_t used = 0; w->part < w->n_parts;) {
        size_t row = w->parts[w->part].row_bytes;
        if (used > 0 && used + row > n_bytes) break;
        used += send_rows(g, used, n_bytes - used);
        used = (used + ALIGN - 1) / ALIGN * ALIGN;
        if (used >= n_bytes) break;
    }
    g->b->event_record(w->stream, w->sent[w->stage]);
    w->stage = (w->stage + 1) % STAGES;
    return false;
}

void gpu_exec_swap_wait(gpu_exec *g) {
    if (g->swap) g->b->stream_sync(g->swap->stream, NULL);
}
