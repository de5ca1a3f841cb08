/* gpu_probe.c: tests whether the kernels of a program can wait for messages of the host. They
 * cannot where a launch returns only after its kernels have ended (CUDA_LAUNCH_BLOCKING,
 * AMD_SERIALIZE_KERNEL, profilers that time single kernels), because the host cannot answer during
 * the launch. The test is a program of one kernel that waits for a flag, which the host raises
 * after the launch. */
#include "gpu_exec_impl.h"
#include "gpu_known.h"
#include "log.h"

enum {
    TRIES = 3,         /* a busy machine may not let the host go on in time */
    TRY_WAIT_MS = 100, /* a launch takes some ten microseconds */
};

/* PI_OK: the program ended, because it saw the flag or, with *late, because it timed out. */
static pi_status try_program(gpu_exec *g, const gpu_pinned *page, uint64_t epoch, bool *late,
                             pi_error *err) {
    uint8_t *host = page->host, *device = page->device;
    const gpu_receive wait = {.n_cols = 1,
                              .wait_ms = TRY_WAIT_MS,
                              .flag = (const uint64_t *)(const void *)device,
                              .epoch = (uint64_t *)(void *)(device + GPU_FLAG_BYTES)};
    gpu_program *program = NULL;
    pi_status status = g->b->record_begin(g->stream, err);
    if (status != PI_OK) return status;
    g->b->ops.receive(g->stream, &wait);
    status = g->b->record_end(g->stream, &program, err);
    if (status != PI_OK) return status;
    gpu_flag_raise(host + GPU_FLAG_BYTES, epoch);
    g->b->program_launch(g->stream, program);
    gpu_flag_raise(host, epoch);
    *late = g->b->stream_sync(g->stream, NULL) != PI_OK;
    g->b->program_free(program);
    return *late ? g->b->reset(g->d, err) : PI_OK;
}

/* PI_OK without *tested: the device records no programs. */
static pi_status probe(gpu_exec *g, bool *tested, pi_error *err) {
    enum { PAGE_BYTES = 2 * GPU_FLAG_BYTES };
    gpu_pinned page = {0};
    bool late = true;
    pi_status status = g->b->host_alloc(g->d, PAGE_BYTES, &page, err);
    for (uint64_t i = 1; i <= TRIES && late && status == PI_OK; i++)
        status = try_program(g, &page, i, &late, err);
    g->b->host_free(g->d, &page);
    if (status != PI_OK && status != PI_ERR_NOMEM) return PI_OK;
    *tested = status == PI_OK;
    g->serial = *tested && late;
    if (g->serial)
        log_line(LOG_LEVEL_WARN,
                 "slow: %s: launches wait until kernels have ended (CUDA_LAUNCH_BLOCKING, "
                 "AMD_SERIALIZE_KERNEL or a profiler), so tokens are launched in segments",
                 g->b->name);
    return status;
}

pi_status gpu_exec_probe(gpu_exec *g, pi_error *err) {
    const int number = g->sides->numbers[gpu_exec_device(g)];
    bool tested = false;
    g->serial = !g->b->kernels_may_wait;
    if (g->serial) return PI_OK;
    if (number == 0) return probe(g, &tested, err);
    gpu_known *known = gpu_known_lock(g->b->name, number - 1);
    pi_status status = PI_OK;
    if (known->probed) {
        g->serial = known->serial;
    } else {
        status = probe(g, &tested, err);
        known->probed = tested;
        known->serial = g->serial;
    }
    gpu_known_unlock();
    return status;
}
