/* cuda_device.cu: devices, memory and errors of the HIP backend, in CUDA's names (hip_alias.h); its
 * table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_backend.h"

/* ---- errors ---------------------------------------------------------------------------------- */

pi_status cuda_error(pi_error *err, cudaError_t e, const char *doing) {
    (void)cudaGetLastError(); /* clears an error that is not sticky */
    return error_set(err, e == cudaErrorMemoryAllocation ? PI_ERR_NOMEM : PI_ERR_DEVICE,
                     "%s: " GPU_BACKEND_NAME ": %s", doing, cudaGetErrorString(e));
}

void cuda_stick(gpu_device *d, cudaError_t e, const char *doing) {
    if (e == cudaSuccess) return;
    pi_error err;
    pi_status status = cuda_error(&err, e, doing);
    pthread_mutex_lock(&d->mutex);
    if (d->status == PI_OK) {
        d->status = status;
        memcpy(d->text, err.message, sizeof d->text);
    }
    pthread_mutex_unlock(&d->mutex);
}

bool cuda_use(gpu_device *d) {
    pthread_mutex_lock(&d->mutex);
    bool lost = d->status != PI_OK;
    pthread_mutex_unlock(&d->mutex);
    if (lost) return false;
    cudaError_t e = cudaSetDevice(d->index);
    cuda_stick(d, e, "device lost");
    return e == cudaSuccess;
}

static gpu_fault *fault_of(gpu_device *d) {
    return static_cast<gpu_fault *>(d->fault.host);
}

pi_status cuda_status(gpu_device *d, pi_error *err) {
    pthread_mutex_lock(&d->mutex);
    pi_status status = d->status;
    if (status) error_set(err, status, "%s", d->text);
    pthread_mutex_unlock(&d->mutex);
    if (status) return status;
    if (gpu_flag_get(&fault_of(d)->released)) {
        return error_set(err, PI_ERR_CANCELLED,
                         "wait aborted: device " GPU_BACKEND_NAME ": reset it");
    }
    if (gpu_flag_get(&fault_of(d)->timed_out)) {
        return error_set(err, PI_ERR_DEVICE,
                         "timed out: device " GPU_BACKEND_NAME ": waited %.3g s for the host",
                         static_cast<double>(d->wait_ns) * 1e-9);
    }
    return PI_OK;
}

static void cuda_release(gpu_device *d) {
    gpu_flag_raise(&fault_of(d)->released, 1);
}

static pi_status cuda_reset(gpu_device *d, pi_error *err) {
    gpu_flag_raise(&fault_of(d)->released, 0);
    gpu_flag_raise(&fault_of(d)->timed_out, 0);
    return cuda_status(d, err);
}

gpu_fault *gpu_stream_fault(gpu_stream *s) {
    return static_cast<gpu_fault *>(s->device->fault.device);
}

uint64_t gpu_stream_wait_ns(const gpu_stream *s) {
    return s->device->wait_ns;
}
uint32_t gpu_stream_clock_khz(const gpu_stream *s) {
    return s->device->clock_khz;
}
bool gpu_stream_tensor_cores(const gpu_stream *s) {
    return s->device->tensor_cores;
}

/* ---- devices --------------------------------------------------------------------------------- */

static pi_status cuda_count(int *n, pi_error *err) {
    cudaError_t e = cudaGetDeviceCount(n);
    if (e == cudaSuccess && *n > 0) return PI_OK;
    (void)cudaGetLastError();
    *n = 0;
    const char *why = e == cudaErrorInsufficientDriver
                          ? "no driver, or one too old for this build: install or update it"
                      : e == cudaSuccess ? "none found"
                                         : cudaGetErrorString(e);
    return error_set(err, PI_ERR_NOT_FOUND, "no device: " GPU_BACKEND_NAME ": %s", why);
}

/* Creates no context, which would keep some hundred megabytes on every GPU listed: so no
 * cudaSetDevice, no cudaMemGetInfo. */
static pi_status cuda_describe(int index, gpu_info *info, pi_error *err) {
    cudaDeviceProp p;
    int clock_khz = 0, bus_bits = 0;
    cudaError_t e = cudaGetDeviceProperties(&p, index);
    if (e != cudaSuccess) return cuda_error(err, e, "cannot query the device");
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%.120s", p.name);
    GPU_ARCH_NAME(info->arch, p);
    info->memory_total = p.totalGlobalMem;
    info->memory_free = cuda_look_free(index, info->memory_total);
    info->n_units = p.multiProcessorCount;
    info->capability_major = p.major;
    info->capability_minor = p.minor;
    info->shared_memory = p.integrated != 0;
    info->tensor_cores = GPU_HAS_TENSOR_CORES(p);
    /* Transfers per second times the width of the bus, as in data sheets. */
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, index) == cudaSuccess &&
        cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, index) == cudaSuccess)
        info->bandwidth = GPU_TRANSFERS(info->arch) * 1000.0 * clock_khz * (bus_bits / 8.0);
    (void)cudaGetLastError();
    return PI_OK;
}

static bool cuda_reaches(int from, int to) {
    int can = 0;
    if (from == to) return true;
    if (cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess) can = 0;
    (void)cudaGetLastError();
    return can != 0;
}

/* The device of Windows' driver, in WSL. */
static bool cuda_submits_late() {
    return access("/dev/dxg", F_OK) == 0;
}

static pi_status cuda_host_alloc(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    gpu_pinned p = gpu_pinned();
    cudaError_t e = cudaSetDevice(d->index);
    if (e == cudaSuccess)
        e = cudaHostAlloc(&p.host, n_bytes ? n_bytes : 1,
                          cudaHostAllocMapped | cudaHostAllocPortable);
    if (e == cudaSuccess) {
        memset(p.host, 0, n_bytes);
        e = cudaHostGetDevicePointer(&p.device, p.host, 0);
        if (e != cudaSuccess) cudaFreeHost(p.host);
    }
    if (e != cudaSuccess) return cuda_error(err, e, "cannot pin memory");
    p.n_bytes = n_bytes;
    *out = p;
    return PI_OK;
}

gpu_late gpu_frees;

/* Errors of these calls are reported by the next call for the device. */
void gpu_free_now(const gpu_put_off &m, bool) {
    if (cudaSetDevice(m.index) != cudaSuccess) return;
    if (m.pinned.host)
        cudaFreeHost(m.pinned.host);
    else
        cudaFree(m.p);
}

static void cuda_host_free(gpu_device *d, gpu_pinned *p) {
    const gpu_put_off m = {d, d->index, *p, nullptr, 0};
    if (p->host) gpu_frees.put(m);
    *p = gpu_pinned();
}

static void cuda_close(gpu_device *d) {
    if (!d) return;
    cuda_host_free(d, &d->fault);
    pthread_mutex_destroy(&d->mutex);
    d->host->free(d);
}

gpu_kernel *gpu_kernel::first;

/* Querying a kernel's attributes loads it. */
static pi_status load_kernels(gpu_device *d, pi_error *err) {
    cudaError_t e = cudaSetDevice(d->index);
    d->overlaps = true;
    for (gpu_kernel *k = gpu_kernel::first; k && e == cudaSuccess; k = k->next) {
        cudaFuncAttributes loaded;
        e = cudaFuncGetAttributes(&loaded, k->function);
        d->overlaps = d->overlaps && e == cudaSuccess && gpu_can_overlap(loaded);
    }
    return e == cudaSuccess ? PI_OK : cuda_error(err, e, "cannot load a kernel");
}

static pi_status cuda_open(int index, const gpu_host *host, const gpu_open_options *options,
                           gpu_device **out, pi_error *err) {
    if (host->version != GPU_VERSION || host->size != sizeof *host) {
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "backend " GPU_BACKEND_NAME " has version %d, the program %u", GPU_VERSION,
                         host->version);
    }
    int n = 0;
    pi_status status = cuda_count(&n, err);
    if (status) return status;
    if (index < 0 || index >= n) {
        return error_set(err, PI_ERR_RANGE, "no device %d: " GPU_BACKEND_NAME ": there are %d",
                         index, n);
    }
    gpu_device *d = static_cast<gpu_device *>(host->alloc(sizeof *d));
    if (!d) return error_nomem(err, sizeof *d, "device " GPU_BACKEND_NAME);
    memset(d, 0, sizeof *d);
    pthread_mutex_init(&d->mutex, nullptr);
    d->host = host;
    d->index = index;
    const uint32_t standard_ms = GPU_WAIT_MS;
    d->wait_ns = (options && options->wait_ms ? options->wait_ms : standard_ms) * 1000000ull;
    d->clock_khz = GPU_CLOCK_KHZ(index);
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess)
        d->tensor_cores = GPU_HAS_TENSOR_CORES(properties);
    (void)cudaGetLastError();
    d->limit = options ? options->memory_limit : 0;
    status = cuda_host_alloc(d, sizeof(gpu_fault), &d->fault, err);
    if (status) {
        pthread_mutex_destroy(&d->mutex);
        host->free(d);
        return status;
    }
    status = load_kernels(d, err);
    if (status) {
        cuda_close(d);
        return status;
    }
    *out = d;
    return PI_OK;
}

static void cuda_limit(gpu_device *d, uint64_t n_bytes) {
    pthread_mutex_lock(&d->mutex);
    d->limit = n_bytes;
    pthread_mutex_unlock(&d->mutex);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Page size of the driver; only small allocations share a page. */
enum : size_t { GRANULARITY = 2 << 20 };

static bool reserve(gpu_device *d, size_t n_bytes) {
    pthread_mutex_lock(&d->mutex);
    bool fits = !d->limit || (d->used <= d->limit && n_bytes <= d->limit - d->used);
    if (fits) d->used += n_bytes;
    pthread_mutex_unlock(&d->mutex);
    return fits;
}

static void unreserve(gpu_device *d, size_t n_bytes) {
    pthread_mutex_lock(&d->mutex);
    d->used -= n_bytes;
    pthread_mutex_unlock(&d->mutex);
}

/* An allocation. Keeps the size, so that a free does not query the device, which may be busy. */
struct cuda_block {
    void *p;
    size_t n_bytes;
    cuda_block *next;
};

static void keep_block(gpu_device *d, cuda_block *block) {
    pthread_mutex_lock(&d->mutex);
    block->next = d->blocks;
    d->blocks = block;
    pthread_mutex_unlock(&d->mutex);
}

/* Removes the block of p from the list; NULL: not found. */
static cuda_block *take_block(gpu_device *d, const void *p) {
    pthread_mutex_lock(&d->mutex);
    cuda_block **at = &d->blocks;
    while (*at && (*at)->p != p) at = &(*at)->next;
    cuda_block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&d->mutex);
    return block;
}

static cudaError_t allocate(void **p, bool shared, size_t n_bytes) {
    if (n_bytes == 0) n_bytes = 1;
    return shared ? GPU_MALLOC_SHARED(p, n_bytes) : cudaMalloc(p, n_bytes);
}

/* shared: another device also writes there. */
static pi_status alloc_for(gpu_device *d, bool shared, size_t n_bytes, const char *what, void **out,
                           pi_error *err) {
    if (!cuda_use(d)) return cuda_status(d, err);
    cuda_block *block = static_cast<cuda_block *>(d->host->alloc(sizeof *block));
    if (!block) return error_nomem(err, sizeof *block, what);
    const bool fits = reserve(d, n_bytes);
    *block = {nullptr, n_bytes, nullptr};
    cudaError_t e = fits ? allocate(&block->p, shared, n_bytes) : cudaErrorMemoryAllocation;
    if (fits && e == cudaErrorMemoryAllocation && gpu_frees.flush(nullptr)) {
        (void)cudaGetLastError();
        e = allocate(&block->p, shared, n_bytes);
    }
    if (e == cudaSuccess) {
        keep_block(d, block);
        *out = block->p;
        return PI_OK;
    }
    d->host->free(block);
    if (fits) unreserve(d, n_bytes);
    (void)cudaGetLastError();
    if (e != cudaErrorMemoryAllocation) return cuda_error(err, e, what);
    return error_set(err, PI_ERR_NOMEM,
                     "out of device memory: %s: %zu bytes requested from " GPU_BACKEND_NAME, what,
                     n_bytes);
}

static pi_status cuda_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out,
                            pi_error *err) {
    return alloc_for(d, false, n_bytes, what, out, err);
}

static void cuda_free(gpu_device *d, void *p) {
    cuda_block *block = p ? take_block(d, p) : nullptr;
    if (!block) return;
    unreserve(d, block->n_bytes);
    const gpu_put_off m = {d, d->index, gpu_pinned(), p, block->n_bytes};
    d->host->free(block);
    if (cuda_use(d)) gpu_frees.put(m);
}

/* Access stays enabled: other code of the process may use it. */
static pi_status cuda_peer_alloc(gpu_device *from, gpu_device *to, size_t n_bytes, const char *what,
                                 void **out, pi_error *err) {
    if (!cuda_use(from)) return cuda_status(from, err);
    cudaError_t e = from->index == to->index ? cudaSuccess
                                             : cudaDeviceEnablePeerAccess(to->index, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        e = cudaSuccess;
    }
    pi_status status = e == cudaSuccess ? alloc_for(to, true, n_bytes, what, out, err)
                                        : cuda_error(err, e, "no peers");
    if (status != PI_OK) return status;
    e = cudaMemset(*out, 0, n_bytes);
    if (e == cudaSuccess) e = cudaStreamSynchronize(nullptr);
    if (e == cudaSuccess) return PI_OK;
    cuda_free(to, *out);
    return cuda_error(err, e, what);
}

static pi_status cuda_memory(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes,
                             pi_error *err) {
    size_t available = 0, total = 0;
    if (!cuda_use(d)) return cuda_status(d, err);
    cudaError_t e = cudaMemGetInfo(&available, &total);
    if (e != cudaSuccess) return cuda_error(err, e, "cannot query the device's memory");
    available += gpu_frees.bytes(d->index); /* deferred frees count as free */
    pthread_mutex_lock(&d->mutex);
    uint64_t room = !d->limit ? available : d->used < d->limit ? d->limit - d->used : 0;
    *free_bytes = room < available ? room : available;
    *total_bytes = d->limit && d->limit < total ? d->limit : total;
    pthread_mutex_unlock(&d->mutex);
    return PI_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const gpu_backend backend = {
    GPU_VERSION,
    sizeof(gpu_backend),
    GPU_BACKEND_NAME,
    GPU_NODE_BYTES,
    GRANULARITY,
    gpu_kernels_support,
    cuda_count,
    cuda_describe,
    cuda_reaches,
    cuda_submits_late,
    cuda_open,
    cuda_close,
    cuda_limit,
    cuda_status,
    cuda_release,
    cuda_reset,
    nullptr, /* fail_at: not supported */
    cuda_alloc,
    cuda_free,
    cuda_memory,
    cuda_peer_alloc,
    cuda_host_alloc,
    cuda_host_free,
    GPU_STREAM_MEMBERS(GPU_MEMBER_ADDRESS, cuda) GPU_OP_TABLE,
};

extern "C" PI_API const gpu_backend *powerinfer_gpu_backend(void);
const gpu_backend *powerinfer_gpu_backend(void) {
    return &backend;
}

#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...)    TEXT_OF(__VA_ARGS__)
extern "C" PI_API const char *powerinfer_gpu_targets(void);
const char *powerinfer_gpu_targets(void) {
    return TEXT(GPU_BUILT_FOR);
}
extern "C" PI_API void powerinfer_gpu_show(const char *visible);
void powerinfer_gpu_show(const char *visible) {
    setenv("ROCR_VISIBLE_DEVICES", visible, 0);
}
