/* paging.c: weights that stay in memory, and the ring through which the other weights are streamed.
 *
 * Buffers have the same offset within a page as the file, so that direct reads need no copy. A unit
 * is a matrix of a step. Streamed units have fixed places in the ring, one after the other, and
 * start again at its beginning. A unit is requested as soon as the units at its place have been
 * used. So reads continue while layers without streamed weights are computed, and from the end of
 * one ubatch into the next. */
#include "paging.h"

#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "mem.h"
#include "paging_impl.h"

/* ---- places in the file ---------------------------------------------------------------------- */

bool paging_span_of(const paging *g, const void *data, size_t n_bytes, paging_span *out) {
    uint64_t offset;
    int part;
    if (!data || !gguf_locate(g->source->file, data, &part, &offset)) return false;
    uint64_t begin = offset / PAGING_PAGE * PAGING_PAGE;
    *out = (paging_span){.part = part,
                         .begin = begin,
                         .n_bytes = paging_to_pages((size_t)(offset - begin) + n_bytes)};
    return true;
}

pi_status paging_read(paging *g, const paging_span *spans, int n, pi_error *err) {
    pi_status status = PI_OK;
    for (int part = 0; part < g->n_parts && status == PI_OK; part++) {
        atomic_size_t left = 0;
        for (int i = 0; i < n; i++) {
            if (spans[i].part != part) continue;
            const drive_request r = {.offset = spans[i].begin,
                                     .n_bytes = spans[i].n_bytes,
                                     .to = spans[i].at,
                                     .left = &left};
            drive_submit(g->drives[part], &r, 1);
        }
        drive_wait(g->drives[part], &left);
        status = drive_check(g->drives[part], err);
    }
    return status;
}

/* ---- the model as its context sees it -------------------------------------------------------- */

/* Addresses of matrices that the pager serves to the plan's steps, ascending. */
typedef struct matrix_list {
    const uint8_t **data;
    int n;
} matrix_list;

static void list_matrix(matrix_list *l, const plan_matrix *m) {
    if (m->w.data) l->data[l->n++] = m->w.data;
}

static void list_step(matrix_list *l, const plan_step *s) {
    for (int k = 0; k < s->n_matrices; k++)
        if (s->matrix[k].role != ROLE_FC1) list_matrix(l, &s->matrix[k]); /* predictors stay */
    const plan_ffn *f = plan_ffn_of(s);
    const plan_experts *e = plan_experts_of(s);
    if (f) list_matrix(l, &f->down);
    if (!e || e->share > 0) return; /* adjugate experts stay */
    list_matrix(l, &e->gate);
    list_matrix(l, &e->up);
    list_matrix(l, &e->down);
}

static int compare_addresses(const void *a, const void *b) {
    const uint8_t *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Matrices of the layers, wherever they are computed, and the GPU's output matrix. */
static pi_status list_matrices(const plan *p, matrix_list *l, pi_error *err) {
    size_t most = (size_t)(p->n_steps + p->n_gpu_steps) * (PLAN_MAX_GROUP + 4);
    *l = (matrix_list){.data = mem_calloc(most, sizeof *l->data)};
    if (!l->data) return error_nomem(err, most * sizeof *l->data, "weights");
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].layer >= 0) list_step(l, &p->steps[i]);
    for (int i = 0; i < p->n_gpu_steps; i++) list_step(l, &p->gpu_steps[i]);
    qsort(l->data, (size_t)l->n, sizeof *l->data, compare_addresses);
    return PI_OK;
}

static bool holds_matrix(const matrix_list *l, const model_tensor *t) {
    const uint8_t *begin = t->data; /* rows of other matrices may lie between its rows */
    const uint8_t *end = begin + (size_t)(t->n_out - 1) * t->row_bytes +
                         t->n_bytes / (size_t)t->n_out;
    int low = 0, high = l->n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (l->data[mid] < begin)
            low = mid + 1;
        else
            high = mid;
    }
    return low < l->n && l->data[low] < end;
}

static void add_always(paging *g, const void *data, size_t n_bytes) {
    if (paging_span_of(g, data, n_bytes, &g->always[g->n_always])) g->n_always++;
}

static bool is_table(const paging *g, const model_tensor *t) {
    for (int i = 0; i < PAGING_TABLES; i++)
        if (g->tables[i].from && g->tables[i].from == t->data) return true;
    return false;
}

static void add_tensors(paging *g, const model_tensor *t, const matrix_list *l) {
    for (int role = 0; role < ROLE_COUNT; role++) {
        add_always(g, t[role].scales, (size_t)g->view.hp.n_expert * sizeof(float));
        if (t[role].data && !is_table(g, &t[role]) && !holds_matrix(l, &t[role]))
            add_always(g, t[role].data, t[role].n_bytes);
    }
}

/* Memory for rows of tables. A table that is also the CPU's output matrix stays in memory. */
static pi_status add_tables(paging *g, const matrix_list *l, int n_batch, size_t *n_bytes,
                            pi_error *err) {
    const model_tensor *t = g->source->t;
    bool stays[PAGING_TABLES];
    for (int i = 0; i < PAGING_TABLES; i++) {
        const model_tensor *table = &t[paging_table_roles[i]];
        stays[i] = table->data && table->data == t[ROLE_OUTPUT].data && !holds_matrix(l, table);
    }
    return paging_tables_create(g, stays, n_batch, n_bytes, err);
}

static int compare_spans(const void *a, const void *b) {
    const paging_span *x = a, *y = b;
    if (x->part != y->part) return x->part - y->part;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void merge_always(paging *g) {
    int n = 0;
    qsort(g->always, (size_t)g->n_always, sizeof *g->always, compare_spans);
    for (int i = 0; i < g->n_always; i++) {
        const paging_span *s = &g->always[i];
        paging_span *last = n > 0 ? &g->always[n - 1] : NULL;
        if (!last || last->part != s->part || s->begin > last->begin + last->n_bytes) {
            g->always[n++] = *s;
            continue;
        }
        size_t end = (size_t)(s->begin - last->begin) + s->n_bytes;
        if (end > last->n_bytes) last->n_bytes = end;
    }
    g->n_always = n;
    for (int i = 0; i < n; i++) g->sizes.always += g->always[i].n_bytes;
}

/* The new address of data that stay in memory; other data keep the given address, because a matrix
 * may begin in the page where a vector ends. */
static const void *moved(const paging *g, const void *data, size_t n_bytes) {
    uint64_t offset;
    int part;
    if (!data || !gguf_locate(g->source->file, data, &part, &offset)) return data;
    for (int i = 0; i < g->n_always; i++) {
        const paging_span *s = &g->always[i];
        if (s->part == part && offset >= s->begin && offset + n_bytes <= s->begin + s->n_bytes)
            return s->at + (offset - s->begin);
    }
    return data;
}

/* As `moved`, for vectors that plan_create reads: copies them at once, before the rest is read. */
static const void *moved_now(const paging *g, const void *data, size_t n_bytes) {
    const void *to = moved(g, data, n_bytes);
    if (to != data) memcpy((void *)(uintptr_t)to, data, n_bytes);
    return to;
}

static void move_tensors(const paging *g, model_tensor *t) {
    for (int role = 0; role < ROLE_COUNT; role++) {
        t[role].data = moved(g, t[role].data, t[role].n_bytes);
        t[role].scales = moved(g, t[role].scales, (size_t)g->view.hp.n_expert * sizeof(float));
    }
}

static void move_all(paging *g) {
    move_tensors(g, g->view.t);
    for (int i = 0; i < g->view.hp.n_layer; i++) {
        model_layer *l = &g->view.layers[i];
        move_tensors(g, l->t);
        model_layer_sparse *sparse = &l->sparse;
        size_t n_ff = (size_t)l->hp.n_ff * sizeof(float);
        size_t n_expert = (size_t)g->view.hp.n_expert * sizeof(float);
        static const tensor_role numbers[] = {ROLE_LAYER_SCALE, ROLE_EMBD_SKIP};
        for (int k = 0; k < 2; k++)
            l->t[numbers[k]].data = moved_now(g, g->source->layers[i].t[numbers[k]].data,
                                              sizeof(float));
        sparse->freq = moved_now(g, sparse->freq, n_ff);
        sparse->perm = moved(g, sparse->perm, n_ff);
        sparse->expert_freq = moved(g, sparse->expert_freq, n_expert);
        sparse->expert_perm = moved(g, sparse->expert_perm, n_expert);
    }
}

static pi_status open_drives(paging *g, pi_error *err) {
    const gguf_file *f = g->source->file;
    g->n_parts = gguf_n_parts(f);
    g->drives = mem_calloc((size_t)g->n_parts, sizeof *g->drives);
    if (!g->drives) return error_nomem(err, (size_t)g->n_parts * sizeof *g->drives, "drives");
    pi_status status = PI_OK;
    for (int i = 0; i < g->n_parts && status == PI_OK; i++) {
        drive_options o = {.size = gguf_part_bytes(f, i)};
        status = drive_open(gguf_part_path(f, i), &o, &g->drives[i], err);
        if (status != PI_OK || drive_block(g->drives[i]) <= BUNDLE_BLOCK ||
            !model_has_bundles(g->source))
            continue;
        drive_close(g->drives[i]); /* its blocks are larger than the padding of bundles */
        o.buffered = true;
        status = drive_open(gguf_part_path(f, i), &o, &g->drives[i], err);
    }
    return status;
}

static pi_status make_view(paging *g, const plan *p, int n_batch, pi_error *err) {
    const model *m = g->source;
    size_t n_layer = (size_t)m->hp.n_layer, n_tensors = (n_layer + 1) * ROLE_COUNT;
    size_t rows = 0;
    matrix_list list = {0};
    g->view = *m;
    g->view.layers = mem_alloc(n_layer * sizeof *m->layers);
    g->always = mem_calloc(2 * n_tensors, sizeof *g->always);
    if (!g->view.layers || !g->always)
        return error_nomem(err, n_tensors * sizeof(model_tensor), "weights");
    memcpy(g->view.layers, m->layers, n_layer * sizeof *m->layers);
    pi_status status = list_matrices(p, &list, err);
    if (status == PI_OK) status = add_tables(g, &list, n_batch, &rows, err);
    if (status == PI_OK) {
        add_tensors(g, m->t, &list);
        for (size_t i = 0; i < n_layer; i++) add_tensors(g, m->layers[i].t, &list);
        merge_always(g);
        g->sizes.always += paging_to_pages(rows);
        g->always_memory = mem_map(g->sizes.always);
        if (!g->always_memory) status = error_nomem(err, g->sizes.always, "weights");
    }
    mem_free((void *)list.data);
    if (status != PI_OK) return status;
    uint8_t *at = g->always_memory;
    for (int i = 0; i < g->n_always; i++) {
        g->always[i].at = at;
        at += g->always[i].n_bytes;
    }
    g->rows = at;
    move_all(g);
    return PI_OK;
}

pi_status paging_create(const model *m, const plan *p, const paging_options *o, paging **out,
                        pi_error *err) {
    uint64_t offset;
    int part;
    *out = NULL;
    if (!gguf_locate(m->file, m->t[ROLE_TOKEN_EMBD].data, &part, &offset))
        return error_set(err, PI_ERR_ARG,
                         "no file to read weights from: %s: it was copied to memory; map it, or "
                         "leave out the memory budget",
                         gguf_path(m->file));
    paging *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(err, sizeof *g, "weights");
    g->source = m;
    g->sizes_only = o->sizes_only;
    g->adapts = o->adapts;
    pi_status status = open_drives(g, err);
    if (status == PI_OK) status = make_view(g, p, o->n_batch, err);
    if (status != PI_OK) {
        paging_destroy(g);
        return status;
    }
    *out = g;
    return PI_OK;
}

void paging_destroy(paging *g) {
    if (!g) return;
    for (int i = 0; i < g->n_parts && g->drives; i++) drive_close(g->drives[i]);
    mem_free(g->drives);
    paging_experts_destroy(g->experts);
    paging_neurons_destroy(g->neurons);
    paging_tables_destroy(g);
    paging_stream_free(&g->matrices);
    mem_unmap(g->always_memory, g->sizes.always);
    mem_unmap(g->pinned_memory, g->sizes.pinned);
    mem_unmap(g->ring, g->sizes.ring);
    mem_free(g->always);
    mem_free(g->units);
    mem_free(g->view.layers);
    mem_free(g);
}

const model *paging_model(const paging *g) {
    return &g->view;
}
paging_sizes paging_get_sizes(const paging *g) {
    return g->sizes;
}

const char *paging_backend(const paging *g) {
    return drive_backend_name(g->drives[0]);
}
pi_status paging_measure(paging *g, size_t n_bytes, double seconds, double *rate, pi_error *err) {
    return drive_measure(g->drives[0], n_bytes, seconds, rate, err);
}

bool paging_lends(const paging *g, const plan *p) {
    for (int i = 0; i < g->view.hp.n_layer; i++)
        if (paging_neurons_picks(g, p, i)) return true;
    return paging_experts_lend(g, p);
}

void *paging_lent(const paging *g) {
    void *experts = g->experts ? paging_experts_lent(g->experts) : NULL;
    return experts ? experts : paging_neurons_lent(g->neurons);
}

drive_counts paging_drive_counts(const paging *g) {
    drive_counts n = {0};
    for (int i = 0; i < g->n_parts; i++) {
        drive_counts d = drive_get_counts(g->drives[i]);
        n.reads += d.reads;
        n.bytes += d.bytes;
        n.busy += d.busy;
    }
    return n;
}

paging_counts paging_get_counts(const paging *g) {
    drive_counts d = paging_drive_counts(g);
    paging_counts n = {.reads = d.reads, .bytes = d.bytes, .busy = d.busy};
    if (g->experts) paging_experts_count(g->experts, &n);
    if (g->neurons) paging_neurons_count(g->neurons, &n);
    return n;
}
