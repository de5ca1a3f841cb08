/* cpu_matmul.c: matmuls. Threads take rows in chunks that shrink towards the end of a step: large
 * chunks stream well, small ones let all threads finish together. A row's result does not depend on
 * the chunks. */
#include "cpu_exec.h"

enum {
    CHUNK_BYTES = 1 << 18, /* of weights in the smallest chunk of a matrix-vector product: at the
                              end of a step a thread waits for half a chunk */
    CHUNKS_PER_THREAD = 4, /* at least, however small the matrix is */
    CHUNK_TILES = 32 /* row tiles per chunk of a tiled product at most: the largest block of rows
                        for which a kernel arranges columns (AVX2) */
};

row_chunks row_chunks_make(int64_t total, size_t row_bytes, int nth, cpu_act_layout layout) {
    bool tiled = layout == CPU_ACT_PANELS;
    int64_t least = tiled ? CPU_ROW_TILE : (int64_t)(CHUNK_BYTES / row_bytes);
    int64_t fair = total / ((int64_t)nth * CHUNKS_PER_THREAD);
    if (!tiled && least > fair) least = fair;
    least -= least % CPU_ROW_TILE;
    if (least < CPU_ROW_TILE) least = CPU_ROW_TILE;
    return (row_chunks){.total = total,
                        .least = least,
                        .most = tiled ? CHUNK_TILES * CPU_ROW_TILE : total,
                        .nth = nth};
}

static int64_t chunk_length(const row_chunks *k) {
    int64_t n = (k->total - k->next) / (2 * (int64_t)k->nth);
    n -= n % CPU_ROW_TILE;
    if (n > k->most) n = k->most;
    if (n < k->least) n = k->least;
    return n < k->total - k->next ? n : k->total - k->next;
}

/* Every thread walks the same sequence of chunks and stops at the one whose number it drew. */
bool row_chunks_take(pool *p, row_chunks *k, int64_t *r0, int64_t *r1) {
    int64_t index = pool_take(p, 1);
    for (; k->index < index && k->next < k->total; k->index++) k->next += chunk_length(k);
    if (k->next >= k->total) return false;
    *r0 = k->next;
    *r1 = k->next + chunk_length(k);
    return true;
}

/* ---- one product ----------------------------------------------------------------------------- */

static void run_matvec(const cpu_mat_kernels *mk, const cpu_mat *w, int64_t r0, int64_t r1,
                       const cpu_act *x, float *y, int64_t ldy, void *scratch) {
    (void)scratch;
    mk->matvec(w, r0, r1, x, y, ldy);
}

static void run_matmul(const cpu_mat_kernels *mk, const cpu_mat *w, int64_t r0, int64_t r1,
                       const cpu_act *x, float *y, int64_t ldy, void *scratch) {
    mk->matmul(w, r0, r1, x, y, ldy, scratch);
}

const cpu_exec_product cpu_exec_by_vector = {CPU_ACT_COLUMNS, run_matvec};
const cpu_exec_product cpu_exec_by_tile = {CPU_ACT_PANELS, run_matmul};

cpu_act cpu_exec_slot_act(const cpu_exec *c, int slot, cpu_act_kind kind, cpu_act_layout layout,
                          int64_t n, int64_t n_cols) {
    return (cpu_act){
        .kind = kind, .layout = layout, .n = n, .n_cols = n_cols, .data = c->act[slot][kind]};
}

void cpu_exec_finish_column(const cpu_exec *c, const plan_matrix *pm, float *y, int64_t r0,
                            int64_t r1) {
    int64_t n = r1 - r0;
    if (!pm->scale_last)
        for (int64_t i = 0; i < n; i++) y[i] *= pm->scale;
    if (pm->bias) c->kernels.add(y, pm->bias + r0, y, n);
    if (pm->scale_last)
        for (int64_t i = 0; i < n; i++) y[i] *= pm->scale;
}

/* ---- the matrices of a step ------------------------------------------------------------------ */

static void add_to_residual(cpu_exec *c, plan_buffer from, int64_t n_cols, int64_t r0, int64_t r1) {
    for (int64_t col = 0; col < n_cols; col++) {
        float *x = cpu_exec_row(c, BUF_X, col) + r0;
        c->kernels.add(x, c->buf[from] + col * c->plan->width[from] + r0, x, r1 - r0);
    }
}

static int64_t padded_rows(const plan_matrix *pm) {
    return (pm->w.n_out + CPU_ROW_TILE - 1) / CPU_ROW_TILE * CPU_ROW_TILE;
}

/* The matrices' rows form one range, each matrix padded to whole tiles. */
void cpu_exec_matmul(cpu_exec *c, const plan_step *s, int ith) {
    const cpu_exec_product *by = cpu_exec_product_of(c, s);
    int64_t n_cols = cpu_exec_n_rows(c, s);
    int64_t total = 0;
    size_t row_bytes = 1;
    for (int k = 0; k < s->n_matrices; k++) {
        total += padded_rows(&s->matrix[k]);
        if (s->matrix[k].w.row_bytes > row_bytes) row_bytes = s->matrix[k].w.row_bytes;
    }
    row_chunks chunks = row_chunks_make(total, row_bytes, c->ubatch.nth, by->layout);
    int64_t begin, end;
    while (row_chunks_take(c->pool, &chunks, &begin, &end)) {
        int64_t base = 0;
        for (int k = 0; k < s->n_matrices; k++) {
            const plan_matrix *pm = &s->matrix[k];
            int64_t r0 = begin > base ? begin - base : 0;
            int64_t r1 = end - base < pm->w.n_out ? end - base : pm->w.n_out;
            base += padded_rows(pm);
            if (r0 >= r1) continue;
            cpu_act x = cpu_exec_slot_act(c, PLAN_SLOT_MAIN, c->kernels.mat[pm->w.type].act,
                                          by->layout, pm->w.n_in, n_cols);
            cpu_exec_multiply(c, by, pm, &x, r0, r1, ith);
            if (s->add_to_x) add_to_residual(c, pm->out, n_cols, r0, r1);
        }
    }
}
