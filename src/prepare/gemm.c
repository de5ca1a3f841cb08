/* gemm.c: float matrix products, and the job that they run in.
 *
 * C is divided into tiles of BLOCK_ROWS x BLOCK_COLS that threads take one by one. Within a tile
 * the inner dimension advances in steps of BLOCK_K: the block of A is packed into the thread's work
 * space (it stays in the L2 cache), then the block of B panel by panel (in L1), and the CPU's
 * gemm_tile multiplies every panel with the whole block of A (after Goto and van de Geijn 2008).
 * Packing costs at most one move per 2 * BLOCK_ROWS operations, and makes every layout of A and B
 * equally fast. */
#include <assert.h>
#include <string.h>

#include "linalg.h"
#include "mem.h"

enum {
    ROWS = CPU_GEMM_ROWS,
    COLS = CPU_GEMM_COLS,
    BLOCK_ROWS = 20 * ROWS,
    BLOCK_COLS = 16 * COLS,
    BLOCK_K = 256, /* a packed panel of B is 32 KiB, a packed block of A 240 KiB */
    WORK_A = BLOCK_ROWS * BLOCK_K,
    WORK_B = BLOCK_K * COLS,
    WORK_C = ROWS * COLS,
    WORK_FLOATS = WORK_A + WORK_B + WORK_C
};
_Static_assert(WORK_A % 16 == 0 && WORK_B % 16 == 0 && WORK_FLOATS % 16 == 0,
               "all parts of the work space are aligned to 64 bytes");

/* ---- the job --------------------------------------------------------------------------------- */

pi_status la_job_init(la_job *job, pool *p, progress *report, pi_error *err) {
    memset(job, 0, sizeof *job);
    job->pool = p;
    job->progress = report;
    atomic_init(&job->done, 0);
    atomic_init(&job->stop, false);
    bool there = cpu_kernels_get(CPU_TIER_AUTO, &job->kernels);
    assert(there);
    (void)there;
    job->work_bytes = (size_t)pool_size(p) * WORK_FLOATS * sizeof(float);
    job->work = mem_map(job->work_bytes);
    if (!job->work) return error_nomem(err, job->work_bytes, "matrix products");
    return PI_OK;
}

void la_job_free(la_job *job) {
    mem_unmap(job->work, job->work_bytes);
    job->work = NULL;
}

void la_job_stage(la_job *job, double to, double operations) {
    job->from = job->to;
    job->to = to;
    job->total = operations;
    atomic_store(&job->done, 0);
}

bool la_job_step(la_job *job, int ith, double operations) {
    int64_t done = atomic_fetch_add(&job->done, (int64_t)operations) + (int64_t)operations;
    if (ith == 0 && !atomic_load(&job->stop)) {
        double share = job->total > 0 ? (double)done / job->total : 0;
        if (share > 1) share = 1;
        double fraction = job->from + (job->to - job->from) * share;
        if (!progress_step(job->progress, "fitting", fraction)) atomic_store(&job->stop, true);
    }
    return !atomic_load_explicit(&job->stop, memory_order_relaxed);
}

pi_status la_job_status(la_job *job, pi_error *err) {
    if (!atomic_load(&job->stop)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: predictor: nothing was fitted");
}

/* ---- packing --------------------------------------------------------------------------------- */

/* dst[k][i] = scale * src[i * s_i + k * s_k] for i < n, 0 for n <= i < width; k < n_k. */
static void pack(float *restrict dst, int64_t width, const float *restrict src, int64_t s_i,
                 int64_t s_k, int64_t n, int64_t n_k, float scale) {
    if (s_i == 1) {
        for (int64_t k = 0; k < n_k; k++) {
            float *to = dst + k * width;
            const float *from = src + k * s_k;
            for (int64_t i = 0; i < n; i++) to[i] = scale * from[i];
            for (int64_t i = n; i < width; i++) to[i] = 0;
        }
        return;
    }
    enum { LINE = 16 }; /* k in steps of a cache line, so that writes stay close together */
    for (int64_t k0 = 0; k0 < n_k; k0 += LINE) {
        int64_t k1 = k0 + LINE < n_k ? k0 + LINE : n_k;
        for (int64_t i = 0; i < n; i++) {
            const float *from = src + i * s_i;
            for (int64_t k = k0; k < k1; k++) dst[k * width + i] = scale * from[k * s_k];
        }
        for (int64_t i = n; i < width; i++)
            for (int64_t k = k0; k < k1; k++) dst[k * width + i] = 0;
    }
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* One step of the inner dimension for a tile, with A packed; rows [i0, i1), columns [j0, j1). */
static void tile_step(la_job *job, float *work, const gemm_args *g, const int64_t at[4],
                      int64_t k0) {
    int64_t i0 = at[0], i1 = at[1], j0 = at[2], j1 = at[3], n_k = least(BLOCK_K, g->n_k - k0);
    float *a = work, *b = a + WORK_A, *c = b + WORK_B;
    bool add = g->add || k0 > 0;
    float scale = g->scale != 0.0f ? g->scale : 1.0f;
    for (int64_t i = i0; i < i1; i += ROWS)
        pack(a + (i - i0) * n_k, ROWS, g->a.data + i * g->a.row + k0 * g->a.column, g->a.row,
             g->a.column, least(ROWS, i1 - i), n_k, scale);
    for (int64_t j = j0; j < j1; j += COLS) {
        int64_t cols = least(COLS, j1 - j);
        pack(b, COLS, g->b.data + k0 * g->b.row + j * g->b.column, g->b.column, g->b.row, cols, n_k,
             1.0f);
        for (int64_t i = i0; i < i1; i += ROWS) {
            int64_t rows = least(ROWS, i1 - i);
            float *to = g->c + i * g->ldc + j;
            if (rows == ROWS && cols == COLS) {
                job->kernels.gemm_tile(a + (i - i0) * n_k, b, n_k, to, g->ldc, add);
                continue;
            }
            job->kernels.gemm_tile(a + (i - i0) * n_k, b, n_k, c, COLS, false);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t s = 0; s < cols; s++)
                    to[r * g->ldc + s] = c[r * COLS + s] + (add ? to[r * g->ldc + s] : 0.0f);
        }
    }
}

static void tile(la_job *job, int ith, const gemm_args *g, const int64_t at[4]) {
    float *work = job->work + (size_t)ith * WORK_FLOATS;
    for (int64_t k0 = 0; k0 < g->n_k; k0 += BLOCK_K) {
        tile_step(job, work, g, at, k0);
        double n_k = (double)least(BLOCK_K, g->n_k - k0);
        if (!la_job_step(job, ith, 2 * n_k * (double)((at[1] - at[0]) * (at[3] - at[2])))) return;
    }
}

void la_gemm_thread(la_job *job, int ith, const gemm_args *g) {
    for (int64_t i = 0; i < g->m; i += BLOCK_ROWS)
        for (int64_t j = 0; j < g->n; j += BLOCK_COLS) {
            const int64_t at[4] = {i, least(i + BLOCK_ROWS, g->m), j, least(j + BLOCK_COLS, g->n)};
            tile(job, ith, g, at);
            if (atomic_load_explicit(&job->stop, memory_order_relaxed)) return;
        }
}

typedef struct gemm_run {
    la_job *job;
    const gemm_args *g;
    int64_t rows, cols; /* size of a tile: smaller when there would be too few tiles */
} gemm_run;

static void gemm_work(void *arg, int ith, int nth) {
    (void)nth;
    gemm_run *r = arg;
    const gemm_args *g = r->g;
    int64_t across = (g->n + r->cols - 1) / r->cols, down = (g->m + r->rows - 1) / r->rows;
    int64_t t;
    while ((t = pool_take(r->job->pool, 1)) < across * down) {
        int64_t i = t / across * r->rows, j = t % across * r->cols;
        const int64_t at[4] = {i, least(i + r->rows, g->m), j, least(j + r->cols, g->n)};
        if (g->lower_only && j >= at[1]) continue;
        tile(r->job, ith, g, at);
        if (atomic_load_explicit(&r->job->stop, memory_order_relaxed)) return;
    }
}

pi_status la_gemm(la_job *job, const gemm_args *g, pi_error *err) {
    if (g->n_k == 0 && !g->add)
        for (int64_t i = 0; i < g->m; i++)
            memset(g->c + i * g->ldc, 0, (size_t)g->n * sizeof(float));
    gemm_run r = {.job = job, .g = g, .rows = BLOCK_ROWS, .cols = BLOCK_COLS};
    enum { TILES_EACH = 4 }; /* so that threads are not idle for long at the end */
    int64_t wanted = TILES_EACH * (int64_t)pool_size(job->pool);
    while (r.cols > 2 * COLS &&
           ((g->m + r.rows - 1) / r.rows) * ((g->n + r.cols - 1) / r.cols) < wanted)
        r.cols /= 2;
    pool_run(job->pool, pool_size(job->pool), gemm_work, &r);
    return la_job_status(job, err);
}

void la_mirror_lower(float *c, int64_t n) {
    enum { BLOCK = 32 };
    for (int64_t i0 = 0; i0 < n; i0 += BLOCK)
        for (int64_t j0 = 0; j0 <= i0; j0 += BLOCK)
            for (int64_t i = i0; i < least(i0 + BLOCK, n); i++)
                for (int64_t j = j0; j < least(j0 + BLOCK, i); j++) c[j * n + i] = c[i * n + j];
}
