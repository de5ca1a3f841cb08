/* paging_rows.c: embedding tables, from which a ubatch needs few rows. The rows of its tokens are
 * read when it begins, into slots for the largest ubatch. Decode finds rows of earlier tokens
 * there: a token of a text is often one of the last few hundred. A table for which the budget has
 * room, when all other weights are in memory, is read once. */
#include "mem.h"
#include "paging_impl.h"

enum { LEAST_SLOTS = 64 };

/* `stays`: tables that stay in memory because the CPU multiplies with them. */
pi_status paging_tables_create(paging *g, const bool stays[PAGING_TABLES], int n_batch,
                               size_t *n_bytes, pi_error *err) {
    *n_bytes = 0;
    for (int i = 0; i < PAGING_TABLES; i++) {
        const model_tensor *m = &g->source->t[paging_table_roles[i]];
        paging_table *t = &g->tables[i];
        paging_span span;
        if (stays[i] || !paging_span_of(g, m->data, m->n_bytes, &span)) continue;
        int n_rows = paging_table_roles[i] == ROLE_NGRAM_EMBD ? g->source->hp.ngrams.n_rows : 1;
        int n_slots = (n_batch > LEAST_SLOTS ? n_batch : LEAST_SLOTS) * n_rows;
        *t = (paging_table){.from = m->data,
                            .row_bytes = m->row_bytes,
                            .part = span.part,
                            .n_rows = n_rows,
                            .slot = paging_to_pages(m->row_bytes + PAGING_PAGE - 1),
                            .offset = *n_bytes,
                            .n_slots = n_slots,
                            .row = mem_calloc((size_t)n_slots, sizeof *t->row),
                            .used = mem_calloc((size_t)n_slots, sizeof *t->used),
                            .place = mem_calloc((size_t)n_slots, sizeof *t->place)};
        if (!t->row || !t->used || !t->place)
            return error_nomem(err, (size_t)n_slots * sizeof *t->used, "rows of embeddings");
        *n_bytes += (size_t)n_slots * t->slot;
    }
    paging_tables_drop(g);
    return PI_OK;
}

void paging_tables_destroy(paging *g) {
    for (int i = 0; i < PAGING_TABLES; i++) {
        mem_free(g->tables[i].row);
        mem_free(g->tables[i].used);
        mem_free(g->tables[i].place);
    }
}

uint64_t paging_tables_pin(paging *g, uint64_t n_bytes) {
    uint64_t total = 0;
    for (int i = 0; i < PAGING_TABLES; i++) {
        paging_table *t = &g->tables[i];
        paging_span span;
        if (!paging_span_of(g, t->from, g->source->t[paging_table_roles[i]].n_bytes, &span) ||
            total + span.n_bytes > n_bytes)
            continue;
        t->pinned = true;
        total += span.n_bytes;
    }
    return total;
}

int paging_tables_place(paging *g, uint8_t *at, paging_span out[PAGING_TABLES]) {
    int n = 0;
    for (int i = 0; i < PAGING_TABLES; i++) {
        paging_table *t = &g->tables[i];
        model_tensor *m = &g->view.t[paging_table_roles[i]];
        paging_span *span = &out[n];
        uint64_t offset;
        if (!t->pinned || !paging_span_of(g, t->from, m->n_bytes, span)) continue;
        (void)gguf_locate(g->source->file, t->from, &span->part, &offset);
        span->at = at;
        m->data = at + (offset - span->begin);
        at += span->n_bytes;
        t->from = NULL;
        n++;
    }
    return n;
}

/* The slot of the k-th row of the ubatch. Decode looks for a row of an earlier token, else takes
 * the slot that was not used for the longest time. */
static int take_slot(const paging *g, const paging_table *t, int32_t row, int k) {
    int oldest = 0;
    if (g->many) return k;
    for (int i = 0; i < t->n_slots; i++) {
        if (t->row[i] == row) return i;
        if (t->used[i] < t->used[oldest]) oldest = i;
    }
    return oldest;
}

void paging_tables_begin(paging *g, const int32_t *tokens, const int32_t *ngrams, int n_tokens) {
    for (int i = 0; i < PAGING_TABLES; i++) {
        paging_table *t = &g->tables[i];
        const int32_t *rows = paging_table_roles[i] == ROLE_NGRAM_EMBD ? ngrams : tokens;
        for (int k = 0; k < n_tokens * t->n_rows && t->from; k++) {
            paging_span span;
            int slot = t->place[k] = take_slot(g, t, rows[k], k);
            t->used[slot] = g->ubatch;
            if (t->row[slot] == rows[k]) continue;
            t->row[slot] = rows[k];
            (void)paging_span_of(g, t->from + (size_t)rows[k] * t->row_bytes, t->row_bytes, &span);
            const drive_request r = {.offset = span.begin,
                                     .n_bytes = span.n_bytes,
                                     .to = g->rows + t->offset + (size_t)slot * t->slot,
                                     .left = &t->left};
            drive_submit(g->drives[t->part], &r, 1);
        }
    }
}

static void wait_rows(const paging *g, const paging_table *t) {
    if (t->from) drive_wait(g->drives[t->part], &t->left);
}

void paging_tables_end(const paging *g) {
    for (int i = 0; i < PAGING_TABLES; i++) wait_rows(g, &g->tables[i]);
}

void paging_tables_drop(paging *g) {
    for (int i = 0; i < PAGING_TABLES; i++)
        for (int k = 0; k < g->tables[i].n_slots; k++) g->tables[i].row[k] = -1;
}

const void *paging_row(const paging *g, tensor_role role, int32_t row, int64_t k) {
    for (int i = 0; i < PAGING_TABLES; i++) {
        const paging_table *t = &g->tables[i];
        uint64_t offset;
        int part;
        if (paging_table_roles[i] != role || !t->from) continue;
        wait_rows(g, t);
        (void)gguf_locate(g->source->file, t->from + (size_t)row * t->row_bytes, &part, &offset);
        return g->rows + t->offset + (size_t)t->place[k] * t->slot + offset % PAGING_PAGE;
    }
    const model_tensor *t = &g->view.t[role];
    return (const uint8_t *)t->data + (size_t)row * t->row_bytes;
}
