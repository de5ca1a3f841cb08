/* sim_device.cpp: the simulated device: memory, errors, and the backend's table.
 *
 * There are four devices; every open gives an independent one. 0 and 1 reach each other's memory,
 * and so do 2 and 3, like pairs of GPUs on two sockets. Device memory comes from the host's
 * allocator, one block per allocation, so that AddressSanitizer sees every access out of bounds.
 * Results are exact; times are not meaningful. */
#include "sim_fiber.h"
#include "sim_runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(SIM_ASAN)
#include <sanitizer/asan_interface.h>
#endif

/* ---- errors ---------------------------------------------------------------------------------- */

void sim_device_stick(gpu_device *d, pi_status status, const char *format, ...) {
    pthread_mutex_lock(&d->mutex);
    if (d->status == PI_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(d->text, sizeof d->text, format, args);
        va_end(args);
        d->status = status;
    }
    pthread_mutex_unlock(&d->mutex);
}

static bool device_stuck(gpu_device *d) {
    pthread_mutex_lock(&d->mutex);
    bool stuck = d->status != PI_OK;
    pthread_mutex_unlock(&d->mutex);
    return stuck;
}

bool sim_device_tick(gpu_device *d) {
    pthread_mutex_lock(&d->mutex);
    bool lost = d->fail_at > 0 && --d->fail_at == 0;
    pthread_mutex_unlock(&d->mutex);
    if (lost) sim_device_stick(d, PI_ERR_DEVICE, "device lost: sim: by the test hook");
    return !device_stuck(d);
}

pi_status sim_device_status(gpu_device *d, pi_error *err) {
    pthread_mutex_lock(&d->mutex);
    pi_status status = d->status;
    if (status) error_set(err, status, "%s", d->text);
    pthread_mutex_unlock(&d->mutex);
    if (status) return status;
    if (gpu_flag_load(&d->fault.released))
        return error_set(err, PI_ERR_CANCELLED, "wait aborted: device sim: reset it");
    if (gpu_flag_load(&d->fault.timed_out)) {
        return error_set(err, PI_ERR_DEVICE, "timed out: device sim: waited %.3g s for the host",
                         static_cast<double>(d->wait_ns) * 1e-9);
    }
    return PI_OK;
}

static void sim_release(gpu_device *d) {
    gpu_flag_store(&d->fault.released, 1);
}

static pi_status sim_reset(gpu_device *d, pi_error *err) {
    gpu_flag_store(&d->fault.released, 0);
    gpu_flag_store(&d->fault.timed_out, 0);
    return sim_device_status(d, err);
}

static void sim_fail_at(gpu_device *d, int64_t n) {
    pthread_mutex_lock(&d->mutex);
    d->fail_at = n;
    pthread_mutex_unlock(&d->mutex);
}

gpu_fault *gpu_stream_fault(gpu_stream *s) {
    return &s->device->fault;
}

uint64_t gpu_stream_wait_ns(const gpu_stream *s) {
    return s->device->wait_ns;
}
uint32_t gpu_stream_clock_khz(const gpu_stream *) {
    return 1000000;
}
bool gpu_stream_tensor_cores(const gpu_stream *) {
    return GPU_MMA;
}

/* ---- devices --------------------------------------------------------------------------------- */

static pi_status sim_count(int *n, pi_error *err) {
    (void)err;
    *n = SIM_DEVICES;
    return PI_OK;
}

static pi_status check_index(int index, pi_error *err) {
    if (index >= 0 && index < SIM_DEVICES) return PI_OK;
    return error_set(err, PI_ERR_RANGE, "no device %d: sim: there are %d", index,
                     static_cast<int>(SIM_DEVICES));
}

/* Every device has half the memory of the one before. */
static size_t memory_of(int index) {
    return SIM_MEMORY >> index;
}

static pi_status sim_describe(int index, gpu_info *info, pi_error *err) {
    pi_status status = check_index(index, err);
    if (status) return status;
    *info = gpu_info();
    snprintf(info->name, sizeof info->name, "simulated GPU");
    snprintf(info->arch, sizeof info->arch, "sim");
    info->memory_total = info->memory_free = memory_of(index);
    info->n_units = 1;
    info->tensor_cores = GPU_MMA;
    return PI_OK;
}

static bool sim_reaches(int from, int to) {
    return from / 2 == to / 2;
}

/* Two drivers that need care, for tests: SIM_DRIVER=late keeps launches back until it is asked, as
 * Windows' does; with SIM_DRIVER=serial a launch returns when its kernels have ended. */
static bool is_driver(const char *kind) {
    const char *is = getenv("SIM_DRIVER");
    return is && strcmp(is, kind) == 0;
}

static bool sim_submits_late() {
    return is_driver("late");
}

static void sim_limit(gpu_device *d, uint64_t n_bytes) {
    pthread_mutex_lock(&d->mutex);
    d->limit = n_bytes && n_bytes < d->memory_bytes ? static_cast<size_t>(n_bytes)
                                                    : d->memory_bytes;
    pthread_mutex_unlock(&d->mutex);
}

gpu_kernel *gpu_kernel::first;

/* A real driver that loads a kernel at its first launch may wait until the device is idle: in the
 * simulator such a launch is an error. */
static void load_kernels(int index) {
    for (gpu_kernel *k = gpu_kernel::first; k; k = k->next)
        __atomic_fetch_or(&k->loaded, 1u << index, __ATOMIC_RELAXED);
}

/* Head of the list of open devices. */
static gpu_device *open_devices;
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

static void enlist(gpu_device *d) {
    pthread_mutex_lock(&open_mutex);
    d->next = open_devices;
    open_devices = d;
    pthread_mutex_unlock(&open_mutex);
}

static void delist(gpu_device *d) {
    pthread_mutex_lock(&open_mutex);
    gpu_device **at = &open_devices;
    while (*at != d) at = &(*at)->next;
    *at = d->next;
    pthread_mutex_unlock(&open_mutex);
}

static pi_status sim_open(int index, const gpu_host *host, const gpu_open_options *options,
                          gpu_device **out, pi_error *err) {
    pi_status status = check_index(index, err);
    if (status) return status;
    if (host->version != GPU_VERSION || host->size != sizeof *host) {
        return error_set(err, PI_ERR_UNSUPPORTED, "backend sim has version %d, the program %u",
                         GPU_VERSION, host->version);
    }
    gpu_device *d = static_cast<gpu_device *>(host->alloc(sizeof *d));
    if (!d) return error_nomem(err, sizeof *d, "device sim");
    memset(static_cast<void *>(d), 0, sizeof *d);
    pthread_mutex_init(&d->mutex, nullptr);
    d->host = host;
    d->index = index;
    d->memory_bytes = d->limit = memory_of(index);
    if (options) sim_limit(d, options->memory_limit);
    const uint32_t standard_ms = SIM_WAIT_MS;
    d->wait_ns = (options && options->wait_ms ? options->wait_ms : standard_ms) * 1000000ull;
    d->late = sim_submits_late();
    d->serial = is_driver("serial");
    load_kernels(index);
    enlist(d);
    *out = d;
    return PI_OK;
}

static void memory_release(gpu_device *d, sim_memory *m) {
#if defined(SIM_ASAN)
    __asan_unpoison_memory_region(m->raw, m->n_raw);
#endif
    d->host->free(m->raw);
    d->host->free(m);
}

static void sim_close(gpu_device *d) {
    if (!d) return;
    delist(d);
    gpu_late_flush(d); /* returns everything to the host's allocator */
    while (d->memory) {
        sim_memory *m = d->memory;
        d->memory = m->next;
        memory_release(d, m);
    }
    pthread_mutex_destroy(&d->mutex);
    d->host->free(d);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Aligned memory of exactly n usable bytes: the bytes that alignment adds are out of bounds. */
static sim_memory *memory_create(gpu_device *d, size_t n_bytes, size_t align) {
    sim_memory *m = static_cast<sim_memory *>(d->host->alloc(sizeof *m));
    if (!m) return nullptr;
    m->freed = false;
    m->writer = -1;
    m->n_bytes = n_bytes;
    m->n_raw = n_bytes + align;
    m->raw = static_cast<uint8_t *>(d->host->alloc(m->n_raw));
    if (!m->raw) {
        d->host->free(m);
        return nullptr;
    }
    uintptr_t start = reinterpret_cast<uintptr_t>(m->raw);
    uintptr_t aligned = (start + align - 1) / align * align;
    m->data = m->raw + (aligned - start);
#if defined(SIM_ASAN)
    __asan_poison_memory_region(m->raw, aligned - start);
    __asan_poison_memory_region(m->data + n_bytes, align - (aligned - start));
#endif
    return m;
}

static pi_status alloc_for(gpu_device *d, int writer, size_t n_bytes, const char *what, void **out,
                           pi_error *err) {
    pthread_mutex_lock(&d->mutex);
    bool fits = d->used <= d->limit && n_bytes <= d->limit - d->used;
    if (fits) d->used += n_bytes;
    size_t room = d->used < d->limit ? d->limit - d->used : 0;
    pthread_mutex_unlock(&d->mutex);
    sim_memory *m = fits ? memory_create(d, n_bytes, SIM_ALIGN) : nullptr;
    if (!m) {
        pthread_mutex_lock(&d->mutex);
        if (fits) d->used -= n_bytes;
        pthread_mutex_unlock(&d->mutex);
        return error_set(err, PI_ERR_NOMEM,
                         "out of device memory: %s: %zu bytes requested from sim, %zu free", what,
                         n_bytes, room);
    }
    memset(m->data, writer < 0 ? SIM_POISON : 0, n_bytes);
    m->writer = writer;
    pthread_mutex_lock(&d->mutex);
    m->next = d->memory;
    d->memory = m;
    pthread_mutex_unlock(&d->mutex);
    *out = m->data;
    return PI_OK;
}

static pi_status sim_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out,
                           pi_error *err) {
    return alloc_for(d, -1, n_bytes, what, out, err);
}

static pi_status sim_peer_alloc(gpu_device *from, gpu_device *to, size_t n_bytes, const char *what,
                                void **out, pi_error *err) {
    if (sim_reaches(from->index, to->index))
        return alloc_for(to, from->index, n_bytes, what, out, err);
    return error_set(err, PI_ERR_UNSUPPORTED, "no peers: sim: device %d does not reach device %d",
                     from->index, to->index);
}

/* The allocation that contains these bytes, or NULL. The caller holds the device's mutex. */
static const sim_memory *find_memory(const gpu_device *d, const void *p, size_t n_bytes) {
    const uint8_t *start = static_cast<const uint8_t *>(p);
    for (const sim_memory *m = d->memory; m; m = m->next) {
        size_t offset = static_cast<size_t>(start - m->data);
        if (!m->freed && start >= m->data && offset <= m->n_bytes && n_bytes <= m->n_bytes - offset)
            return m;
    }
    return nullptr;
}

void gpu_stream_writes(gpu_stream *s, const void *p, size_t n_bytes) {
    const int index = s->device->index;
    bool wrong = false;
    pthread_mutex_lock(&open_mutex);
    for (gpu_device *d = open_devices; d; d = d->next) {
        if (d->index == index) continue;
        pthread_mutex_lock(&d->mutex);
        const sim_memory *m = find_memory(d, p, 1);
        wrong = wrong || (m && (m->writer != index || m != find_memory(d, p, n_bytes)));
        pthread_mutex_unlock(&d->mutex);
    }
    pthread_mutex_unlock(&open_mutex);
    if (wrong)
        sim_device_stick(s->device, PI_ERR_DEVICE,
                         "a kernel writes to another device's memory, not from peer_alloc: sim");
}

/* A real driver's free may wait for a kernel that waits for its host: in the simulator that is an
 * error. */
void gpu_free_now(const gpu_put_off *m, bool idle) {
    gpu_device *d = m->device;
    if (idle && sim_n_paused() > 0)
        sim_device_stick(d, PI_ERR_DEVICE, "a free while a program waits for its host: sim");
    if (m->pinned.host) {
        void *raw;
        memcpy(&raw, static_cast<uint8_t *>(m->pinned.host) - sizeof raw, sizeof raw);
        d->host->free(raw);
        return;
    }
    sim_memory *found = nullptr;
    pthread_mutex_lock(&d->mutex);
    sim_memory **at = &d->memory;
    while (*at && (*at)->data != m->p) at = &(*at)->next;
    if (*at) {
        found = *at;
        *at = found->next;
    }
    pthread_mutex_unlock(&d->mutex);
    if (found) memory_release(d, found);
}

static void sim_free(gpu_device *d, void *p) {
    if (!p) return;
    sim_memory *found = nullptr;
    size_t n_bytes = 0;
    pthread_mutex_lock(&d->mutex);
    for (sim_memory *m = d->memory; m && !found; m = m->next)
        if (m->data == p && !m->freed) found = m;
    if (found) {
        found->freed = true;
        d->used -= n_bytes = found->n_bytes;
#if defined(SIM_ASAN)
        __asan_poison_memory_region(found->data, found->n_bytes);
#endif
    }
    pthread_mutex_unlock(&d->mutex);
    if (!found) {
        sim_device_stick(d, PI_ERR_ARG, "invalid free: device sim: %p", p);
        return;
    }
    const gpu_put_off m = {d, d->index, gpu_pinned(), p, n_bytes};
    gpu_late_put(&m);
}

bool sim_device_owns(gpu_device *d, const void *p, size_t n_bytes) {
    pthread_mutex_lock(&d->mutex);
    bool owned = find_memory(d, p, n_bytes) != nullptr;
    pthread_mutex_unlock(&d->mutex);
    return owned;
}

static pi_status sim_memory_state(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes,
                                  pi_error *err) {
    (void)err;
    pthread_mutex_lock(&d->mutex);
    *free_bytes = d->used < d->limit ? d->limit - d->used : 0;
    *total_bytes = d->limit;
    pthread_mutex_unlock(&d->mutex);
    return PI_OK;
}

/* Pinned memory is host memory, aligned to a page; the pointer of its allocation is stored before
 * it. */
static pi_status sim_host_alloc(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    size_t n = n_bytes + SIM_PAGE + sizeof(void *);
    void *raw = n > n_bytes ? d->host->alloc(n) : nullptr;
    if (!raw) return error_nomem(err, n_bytes, "pinned memory of device sim");
    uint8_t *from = static_cast<uint8_t *>(raw) + sizeof raw;
    uint8_t *page = from + (SIM_PAGE - reinterpret_cast<uintptr_t>(from) % SIM_PAGE) % SIM_PAGE;
    memcpy(page - sizeof raw, &raw, sizeof raw);
    memset(page, 0, n_bytes);
    out->host = out->device = page;
    out->n_bytes = n_bytes;
    return PI_OK;
}

static void sim_host_free(gpu_device *d, gpu_pinned *p) {
    const gpu_put_off m = {d, d->index, *p, nullptr, 0};
    if (p->host) gpu_late_put(&m);
    *p = gpu_pinned();
}

/* ---- the table ------------------------------------------------------------------------------- */

static const gpu_backend backend = {
    GPU_VERSION,
    sizeof(gpu_backend),
    "sim",
    0, /* device memory of a program: none, it is the host's */
    SIM_ALIGN,
    true,
    false,
    gpu_kernels_support,
    sim_count,
    sim_describe,
    sim_reaches,
    sim_submits_late,
    sim_open,
    sim_close,
    sim_limit,
    sim_device_status,
    sim_release,
    sim_reset,
    sim_fail_at,
    sim_alloc,
    sim_free,
    sim_memory_state,
    sim_peer_alloc,
    sim_host_alloc,
    sim_host_free,
    nullptr,
    GPU_STREAM_MEMBERS(GPU_MEMBER_ADDRESS, sim)
#if defined(SIM_NO_OPS) /* a driver of tests, which has no operations */
        gpu_ops(),
#else
        GPU_OP_TABLE,
#endif
};

extern "C" PI_API const gpu_backend *powerinfer_gpu_backend(void);
const gpu_backend *powerinfer_gpu_backend(void) {
    return &backend;
}
