/* bandwidth.c: timed passes over memory with the tier's own reading loop. */
#include "bandwidth.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "mem.h"
#include "rng.h"

enum {
    KIND_HUGE,
    KIND_MAPPED,
    KIND_COUNT,
    STREAM_CHUNK = 1 << 20, /* bytes a thread takes at a time when streaming */
    GATHER_CHUNK = 64       /* rows, likewise */
};

struct bandwidth {
    pool *pool;
    cpu_kernels kernels;
    uint8_t *memory[KIND_COUNT]; /* [BANDWIDTH_BYTES] */
    int mapped_file;
    uint32_t *rows; /* chosen rows of the last gather */
    size_t n_rows, rows_capacity, row_bytes;
    double density;
    atomic_uint_fast64_t sink; /* what was read, so that reading cannot be optimised away */
};

typedef struct read_job {
    bandwidth *b;
    const uint8_t *memory;
    bool gather;
} read_job;

static void read_all(void *arg, int ith, int nth) {
    read_job *job = arg;
    bandwidth *b = job->b;
    uint64_t sum = 0;
    (void)ith;
    (void)nth;
    if (!job->gather) {
        for (;;) {
            int64_t at = pool_take(b->pool, STREAM_CHUNK);
            if (at >= (int64_t)BANDWIDTH_BYTES) break;
            sum += b->kernels.stream_read(job->memory + at, STREAM_CHUNK);
        }
    } else {
        for (;;) {
            int64_t at = pool_take(b->pool, GATHER_CHUNK);
            if (at >= (int64_t)b->n_rows) break;
            for (int64_t i = at; i < at + GATHER_CHUNK && i < (int64_t)b->n_rows; i++)
                sum += b->kernels.stream_read(job->memory + (size_t)b->rows[i] * b->row_bytes,
                                              b->row_bytes);
        }
    }
    atomic_fetch_add(&b->sink, sum);
}

/* The best rate of `bytes` over kinds of memory and thread counts, in GB/s. */
static double best_rate(bandwidth *b, bool gather, double bytes) {
    double best = 0;
    int most = pool_size(b->pool);
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        read_job job = {.b = b, .memory = b->memory[kind], .gather = gather};
        for (int nth = 1;; nth = nth * 2 < most ? nth * 2 : most) {
            double start = clock_seconds();
            pool_run(b->pool, nth, read_all, &job);
            double rate = bytes / (clock_seconds() - start) / 1e9;
            if (rate > best) best = rate;
            if (nth == most) break;
        }
    }
    return best;
}

double bandwidth_read(bandwidth *b) {
    return best_rate(b, false, (double)BANDWIDTH_BYTES);
}

double bandwidth_gather(bandwidth *b, size_t row_bytes, double density) {
    size_t padded = (row_bytes + MEM_CACHE_LINE - 1) / MEM_CACHE_LINE * MEM_CACHE_LINE;
    if (padded != b->row_bytes || density != b->density) {
        rng r;
        rng_seed(&r, 1);
        b->row_bytes = padded;
        b->density = density;
        b->n_rows = 0;
        for (uint32_t i = 0; i < BANDWIDTH_BYTES / padded && b->n_rows < b->rows_capacity; i++)
            if (rng_uniform(&r) < density) b->rows[b->n_rows++] = i;
    }
    return best_rate(b, true, (double)b->n_rows * (double)b->row_bytes);
}

static void touch(void *arg, int ith, int nth) {
    bandwidth *b = arg;
    (void)ith;
    (void)nth;
    for (;;) {
        int64_t at = pool_take(b->pool, STREAM_CHUNK);
        if (at >= (int64_t)BANDWIDTH_BYTES) break;
        for (int kind = 0; kind < KIND_COUNT; kind++)
            memset(b->memory[kind] + at, (int)(at >> 20) + 1, STREAM_CHUNK);
    }
}

/* A file that exists in the page cache only: mapped in small pages as a model's file is. */
static pi_status map_file(bandwidth *b, pi_error *err) {
    b->mapped_file = memfd_create("bandwidth", MFD_CLOEXEC);
    if (b->mapped_file < 0 || ftruncate(b->mapped_file, (off_t)BANDWIDTH_BYTES) != 0)
        return error_set_errno(err, errno, "cannot make a file in memory: bandwidth test");
    void *p = mmap(NULL, BANDWIDTH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->mapped_file, 0);
    if (p == MAP_FAILED) return error_nomem(err, BANDWIDTH_BYTES, "bandwidth test");
    b->memory[KIND_MAPPED] = p;
    return PI_OK;
}

pi_status bandwidth_create(int n_threads, cpu_tier tier, bandwidth **out, pi_error *err) {
    *out = NULL;
    bandwidth *b = mem_calloc(1, sizeof *b);
    if (!b) return error_nomem(err, sizeof *b, "bandwidth test");
    b->mapped_file = -1;
    b->rows_capacity = BANDWIDTH_BYTES / MEM_CACHE_LINE / 4; /* rows of 256 bytes and more */
    b->rows = mem_alloc(b->rows_capacity * sizeof *b->rows);
    b->memory[KIND_HUGE] = mem_map(BANDWIDTH_BYTES);
    pi_status status = PI_OK;
    if (!cpu_kernels_get(tier, &b->kernels))
        status = error_set(err, PI_ERR_UNSUPPORTED, "no such instructions: kernels %s",
                           cpu_tier_name(tier));
    else if (!b->rows || !b->memory[KIND_HUGE])
        status = error_nomem(err, BANDWIDTH_BYTES, "bandwidth test");
    if (status == PI_OK) status = map_file(b, err);
    if (status == PI_OK) status = pool_create(n_threads, &b->pool, err);
    if (status != PI_OK) {
        bandwidth_free(b);
        return status;
    }
    pool_run(b->pool, n_threads, touch, b);
    *out = b;
    return PI_OK;
}

void bandwidth_free(bandwidth *b) {
    if (!b) return;
    pool_destroy(b->pool);
    mem_unmap(b->memory[KIND_HUGE], BANDWIDTH_BYTES);
    if (b->memory[KIND_MAPPED]) munmap(b->memory[KIND_MAPPED], BANDWIDTH_BYTES);
    if (b->mapped_file >= 0) close(b->mapped_file);
    mem_free(b->rows);
    mem_free(b);
}
