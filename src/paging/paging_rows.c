/* paging_rows.c: embedding tables, from which a ubatch needs few rows. The rows of its tokens are
 * read when it begins. */
#include "paging_impl.h"

/* `stays`: tables that stay in memory because the CPU multiplies with them. */
size_t paging_tables_create(paging *g, const bool stays[PAGING_TABLES], int n_batch) {
    size_t n_bytes = 0;
    for (int i = 0; i < PAGING_TABLES; i++) {
        const model_tensor *t = &g->source->t[paging_table_roles[i]];
        paging_span span;
        if (stays[i] || !paging_span_of(g, t->data, t->n_bytes, &span)) continue;
        g->tables[i] = (paging_table){
            .from = t->data,
            .row_bytes = t->row_bytes,
            .part = span.part,
            .n_rows = paging_table_roles[i] == ROLE_NGRAM_EMBD ? g->source->hp.ngrams.n_rows : 1,
            .slot = paging_to_pages(t->row_bytes + PAGING_PAGE - 1),
            .offset = n_bytes};
        n_bytes += (size_t)n_batch * (size_t)g->tables[i].n_rows * g->tables[i].slot;
    }
    return n_bytes;
}

void paging_tables_begin(paging *g, const int32_t *tokens, const int32_t *ngrams, int n_tokens) {
    for (int i = 0; i < PAGING_TABLES; i++) {
        paging_table *t = &g->tables[i];
        const int32_t *rows = paging_table_roles[i] == ROLE_NGRAM_EMBD ? ngrams : tokens;
        for (int k = 0; k < n_tokens * t->n_rows && t->from; k++) {
            paging_span span;
            (void)paging_span_of(g, t->from + (size_t)rows[k] * t->row_bytes, t->row_bytes, &span);
            const drive_request r = {.offset = span.begin,
                                     .n_bytes = span.n_bytes,
                                     .to = g->rows + t->offset + (size_t)k * t->slot,
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

const void *paging_row(const paging *g, tensor_role role, int32_t row, int64_t k) {
    for (int i = 0; i < PAGING_TABLES; i++) {
        const paging_table *t = &g->tables[i];
        uint64_t offset;
        int part;
        if (paging_table_roles[i] != role || !t->from) continue;
        wait_rows(g, t);
        (void)gguf_locate(g->source->file, t->from + (size_t)row * t->row_bytes, &part, &offset);
        return g->rows + t->offset + (size_t)k * t->slot + offset % PAGING_PAGE;
    }
    const model_tensor *t = &g->view.t[role];
    return (const uint8_t *)t->data + (size_t)row * t->row_bytes;
}
