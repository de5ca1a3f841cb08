/* drive_rate.c: measures how fast the drive reads requests of one size. */
#include "clock.h"
#include "drive_impl.h"
#include "mem.h"
#include "rng.h"

/* Batches take turns, so that the drive is never idle. They are large enough for any rate, and
 * small compared with a memory budget. */
enum {
    BATCHES = DRIVE_LANES,
    BATCH_BYTES = (16 << 20) / BATCHES,
    BATCH_MOST = DRIVE_DEPTH / BATCHES
};

/* Requests of one batch at random places: sequential reads would be read ahead. */
static void fill(drive *d, drive_request *requests, size_t n, size_t n_bytes, uint8_t *to,
                 rng *random, atomic_size_t *left) {
    uint64_t places = (d->opened.size - n_bytes) / DRIVE_MAX_BLOCK + 1;
    for (size_t i = 0; i < n; i++)
        requests[i] = (drive_request){.offset = rng_u64(random) % places * DRIVE_MAX_BLOCK,
                                      .n_bytes = n_bytes,
                                      .to = to + i * n_bytes,
                                      .left = left};
}

pi_status drive_measure(drive *d, size_t n_bytes, double seconds, double *rate, pi_error *err) {
    size_t size;
    *rate = 0;
    if (n_bytes == 0 || !size_align(n_bytes, d->block, &size) || size > d->opened.size)
        return error_set(err, PI_ERR_ARG, "file is too small to measure reads of %zu bytes: %s",
                         n_bytes, d->path);
    size_t n = BATCH_BYTES / size < 1 ? 1 : BATCH_BYTES / size;
    if (n > BATCH_MOST) n = BATCH_MOST;
    size_t n_memory = BATCHES * n * size;
    uint8_t *to = mem_map(n_memory);
    drive_request *requests = mem_calloc(n, sizeof *requests);
    atomic_size_t left[BATCHES] = {0};
    if (!to || !requests) {
        mem_unmap(to, n_memory);
        mem_free(requests);
        return error_nomem(err, n_memory, "reads");
    }
    rng random;
    rng_seed(&random, 1);
    double start = clock_seconds(), now = start;
    uint64_t bytes = 0;
    for (int i = 0; now - start < seconds; i = (i + 1) % BATCHES) { /* the drive is never idle */
        drive_wait(d, &left[i]);
        fill(d, requests, n, size, to + (size_t)i * n * size, &random, &left[i]);
        drive_submit(d, requests, n);
        bytes += n * size;
        now = clock_seconds();
    }
    for (int i = 0; i < BATCHES; i++) drive_wait(d, &left[i]);
    *rate = (double)bytes / (clock_seconds() - start);
    mem_unmap(to, n_memory);
    mem_free(requests);
    return drive_check(d, err);
}

/* A read of n bytes takes a + b n seconds, so a gap of a / b bytes costs as much
 * as a second read. */
pi_status drive_measure_gap(drive *d, size_t n_bytes, double seconds, size_t *gap, pi_error *err) {
    enum { LONGER = 8 };
    double rate = 0, long_rate = 0, n = (double)n_bytes;
    *gap = 0;
    pi_status status = drive_measure(d, n_bytes, seconds / 2, &rate, err);
    if (status == PI_OK) status = drive_measure(d, LONGER * n_bytes, seconds / 2, &long_rate, err);
    if (status != PI_OK) return status;
    double per_byte = (LONGER / long_rate - 1 / rate) / (LONGER - 1);
    double per_read = n * (1 / rate - per_byte);
    if (per_read <= 0) return PI_OK;
    *gap = per_read < per_byte * DRIVE_MAX_GAP ? (size_t)(per_read / per_byte) : DRIVE_MAX_GAP;
    return PI_OK;
}
