/* fake_cuda.cpp: a libcuda.so.1 or nvcuda.dll whose GPUs are simulated: modules are PTX, which the
 * interpreter verifies and runs; memory, streams, events and programs are those of src/gpu/sim. So
 * the host side of the backend `cuda` (src/gpu/driver) and the kernels of the build run as on a
 * card.
 *
 * From the environment:
 *   FAKE_CUDA_ARCH=89        the compute capability; default 80
 *   FAKE_CUDA_DEVICES=1      the number of GPUs; default and at most 4
 *   FAKE_CUDA_INIT=100       what cuInit returns
 *   FAKE_CUDA_PTX=70         the newest version of PTX that it translates: 7.0
 *   FAKE_CUDA_LOAD_MS=200    how long loading a module takes
 *   FAKE_CUDA_NO_MEMORY=3    the third allocation of device memory and all later ones fail
 *   FAKE_CUDA_LOST=100       GPU 0 is lost at the hundredth kernel: from then on every call fails
 *   FAKE_CUDA_GBPS=500       events count the time in which a GPU loads the lanes' bytes at this
 * rate (1e9 bytes per second), instead of the time of the interpreter
 *
 * What kernels may read has to follow the copies and fills of a stream in their order, in recorded
 * programs too; so behind each of them a marker is enqueued, a kernel that only this file knows. */
#include "sim_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "ptx.h"
}

/* Results of the driver API. */
enum {
    FAKE_OK = 0,
    FAKE_INVALID = 1,
    FAKE_NO_MEMORY = 2,
    FAKE_NO_PEER = 217,
    FAKE_INVALID_PTX = 218,
    FAKE_OLD_FOR_PTX = 222,
    FAKE_NOT_FOUND = 500,
    FAKE_NOT_READY = 600,
    FAKE_HAS_PEER = 704,
    FAKE_FAILED = 719
};
enum { MAX_MODULES = 64, MAX_KERNELS = 8192, DRIVER_VERSION = 12080, NEWEST_PTX = 87 };

struct fake_context {
    int index;
    gpu_device *device;
    gpu_stream *legacy; /* stream NULL */
    unsigned peers;     /* a bit for each that was enabled */
};

struct fake_module {
    ptx_module *ptx;
};

struct fake_function {
    gpu_kernel kernel;
    ptx_kernel *ptx;
    fake_function *next;
    fake_function() : kernel(nullptr, nullptr), ptx(nullptr), next(nullptr) {}
};

struct fake_graph {
    gpu_program *program;
    bool instantiated; /* then the executable one owns the program */
};

static struct {
    pthread_mutex_t mutex; /* guards contexts, functions and decoding */
    const gpu_backend *sim;
    ptx_memory *memory;
    fake_context contexts[SIM_DEVICES];
    fake_function *functions;
    int n_allocations, n_kernels; /* FAKE_CUDA_NO_MEMORY, FAKE_CUDA_LOST */
    char text[PI_ERROR_TEXT_MAX]; /* of the last error */
} fake = {PTHREAD_MUTEX_INITIALIZER, nullptr, nullptr, {}, nullptr, 0, 0, {}};
static __thread fake_context *current;

extern "C" const gpu_backend *fake_sim_backend(void); /* sim_device.cpp's */

static void *host_alloc(size_t n_bytes) {
    return malloc(n_bytes ? n_bytes : 1);
}
static void host_warn(const char *line) {
    fprintf(stderr, "%s\n", line);
}
static const gpu_host host = {GPU_VERSION, sizeof host, host_alloc, free, host_warn};

static int result_of(pi_status status, const pi_error &err) {
    if (status == PI_OK) return FAKE_OK;
    snprintf(fake.text, sizeof fake.text, "%s", err.message);
    return status == PI_ERR_NOMEM ? FAKE_NO_MEMORY : FAKE_FAILED;
}

static gpu_stream *stream_of(gpu_stream *s) {
    return s ? s : current->legacy;
}

static int env_number(const char *name, int other) {
    const char *text = getenv(name);
    return text ? static_cast<int>(strtol(text, nullptr, 10)) : other;
}

static int n_devices() {
    const int n = env_number("FAKE_CUDA_DEVICES", SIM_DEVICES);
    return n < SIM_DEVICES ? n : SIM_DEVICES;
}

/* After a fault of a kernel every call for the device fails, as with a real driver. */
static int lost() {
    pi_error err;
    return current ? result_of(fake.sim->status(current->device, &err), err) : FAKE_INVALID;
}

/* Counts for a variable with the number of the event at which something fails. */
static bool counted(int *counter, const char *name) {
    const int at = env_number(name, 0);
    return at > 0 && __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED) >= at;
}

/* ---- the interpreter ------------------------------------------------------------------------- */

struct mark {
    const void *to, *from; /* from NULL: written by the host */
    size_t n;
};
static void mark_kernel(mark m) {
    if (m.from)
        ptx_memory_copied(fake.memory, m.to, m.from, m.n);
    else
        ptx_memory_written(fake.memory, m.to, m.n);
}
static void enqueue_mark(gpu_stream *s, const void *to, const void *from, size_t n) {
    gpu_launch<mark_kernel>(s, gpu_grid{1, 1, 1, GPU_WARP}, mark{to, from, n});
}

/* The simulation's streams call these (CMakeLists.txt renames what they name). */
struct ptx_worker {
    gpu_device *device;
};
ptx_worker *ptx_worker_create(gpu_device *d) {
    ptx_worker *w = static_cast<ptx_worker *>(d->host->alloc(sizeof *w));
    if (w) w->device = d;
    return w;
}
void ptx_worker_free(ptx_worker *w) {
    if (w) w->device->host->free(w);
}
void ptx_worker_run(ptx_worker *w, const gpu_grid &grid, gpu_any_kernel kernel,
                    void (*call)(gpu_any_kernel kernel, const void *args), const void *args) {
    if (call) {
        call(kernel, args);
        return;
    }
    ptx_error error;
    ptx_kernel *k = reinterpret_cast<ptx_kernel *>(kernel);
    const fake_context *c = &fake.contexts[w->device->index];
    const ptx_grid blocks = {grid.x, grid.y, grid.z, grid.threads,
                             __atomic_load_n(&c->peers, __ATOMIC_RELAXED) | 1u << c->index};
    if (c->index == 0 && counted(&fake.n_kernels, "FAKE_CUDA_LOST")) {
        sim_device_stick(w->device, PI_ERR_DEVICE, "unspecified launch failure");
        return;
    }
    if (ptx_launch(k, blocks, args, ptx_kernel_params(k), &error)) return;
    fprintf(stderr, "%s\n", error.text);
    sim_device_stick(w->device, PI_ERR_DEVICE, "ptx: %s", error.text);
}

/* The time of an event (sim_stream.cpp). */
uint64_t fake_event_ns(void) {
    const int gbps = env_number("FAKE_CUDA_GBPS", 0);
    return gbps > 0 ? ptx_loaded() / static_cast<uint64_t>(gbps) : gpu_clock_ns();
}

/* ---- devices --------------------------------------------------------------------------------- */

#define FAKE extern "C" PI_API int
FAKE cuInit(unsigned);
FAKE cuInit(unsigned) {
    pthread_mutex_lock(&fake.mutex);
    if (!fake.sim) fake.sim = fake_sim_backend();
    if (!fake.memory) fake.memory = ptx_memory_create();
    pthread_mutex_unlock(&fake.mutex);
    return fake.memory ? env_number("FAKE_CUDA_INIT", FAKE_OK) : FAKE_NO_MEMORY;
}
FAKE cuDriverGetVersion(int *version) {
    *version = DRIVER_VERSION;
    return FAKE_OK;
}
FAKE cuGetErrorString(int result, const char **text) {
    *text = result == FAKE_NO_MEMORY   ? "out of memory"
            : result == FAKE_FAILED    ? fake.text
            : result == FAKE_NOT_FOUND ? "named symbol not found"
            : result == 100            ? "no CUDA-capable device is detected"
            : result == 304            ? "OS call failed or operation not supported on this OS"
            : result == 803            ? "unsupported display driver / cuda driver combination"
            : result == FAKE_OLD_FOR_PTX
                ? "the provided PTX was compiled with an unsupported toolchain."
                : "error of the fake driver";
    return FAKE_OK;
}
FAKE cuDeviceGetCount(int *n) {
    *n = n_devices();
    return FAKE_OK;
}
FAKE cuDeviceGet(int *device, int index) {
    *device = index;
    return index >= 0 && index < n_devices() ? FAKE_OK : FAKE_INVALID;
}
FAKE cuDeviceGetName(char *name, int size, int) {
    snprintf(name, static_cast<size_t>(size), "fake GPU");
    return FAKE_OK;
}
FAKE cuDeviceGetPCIBusId(char *bus, int size, int device) {
    snprintf(bus, static_cast<size_t>(size), "0000:%02X:00.0", device);
    return FAKE_OK;
}
FAKE cuDeviceTotalMem_v2(size_t *n_bytes, int device) {
    gpu_info info;
    pi_error err;
    const pi_status status = fake.sim->describe(device, &info, &err);
    *n_bytes = info.memory_total;
    return result_of(status, err);
}
FAKE cuDeviceGetAttribute(int *value, int attribute, int) {
    enum { UNITS = 16, MAJOR = 75, MINOR = 76 };
    const int arch = env_number("FAKE_CUDA_ARCH", 80);
    *value = attribute == UNITS   ? 1
             : attribute == MAJOR ? arch / 10
             : attribute == MINOR ? arch % 10
                                  : 0;
    return FAKE_OK;
}
FAKE cuDeviceCanAccessPeer(int *can, int from, int to) {
    *can = fake.sim->reaches(from, to);
    return FAKE_OK;
}
FAKE cuDevicePrimaryCtxRetain(fake_context **out, int device) {
    fake_context *c = &fake.contexts[device];
    pi_error err;
    pi_status status = PI_OK;
    pthread_mutex_lock(&fake.mutex);
    if (!c->device) {
        c->index = device;
        status = fake.sim->open(device, &host, nullptr, &c->device, &err);
        if (!status) status = fake.sim->stream_create(c->device, &c->legacy, &err);
    }
    pthread_mutex_unlock(&fake.mutex);
    *out = c;
    return result_of(status, err);
}
FAKE cuCtxSetCurrent(fake_context *c) {
    current = c;
    return FAKE_OK;
}
FAKE cuCtxEnablePeerAccess(fake_context *peer, unsigned) {
    if (const int failed = lost()) return failed;
    if (!fake.sim->reaches(current->index, peer->index)) return FAKE_NO_PEER;
    const unsigned bit = 1u << peer->index;
    const unsigned before = __atomic_fetch_or(&current->peers, bit, __ATOMIC_RELAXED);
    return before & bit ? FAKE_HAS_PEER : FAKE_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

FAKE cuMemGetInfo_v2(size_t *available, size_t *total) {
    if (const int failed = lost()) return failed;
    uint64_t free_bytes = 0, total_bytes = 0;
    pi_error err;
    const pi_status status = fake.sim->memory(current->device, &free_bytes, &total_bytes, &err);
    *available = free_bytes;
    *total = total_bytes;
    return result_of(status, err);
}
FAKE cuMemAlloc_v2(void **out, size_t n_bytes) {
    if (const int failed = lost()) return failed;
    pi_error err;
    if (counted(&fake.n_allocations, "FAKE_CUDA_NO_MEMORY")) return FAKE_NO_MEMORY;
    const pi_status status = fake.sim->alloc(current->device, n_bytes, "cuMemAlloc", out, &err);
    if (status) return result_of(status, err);
    return ptx_memory_add(fake.memory, *out, n_bytes, PTX_UNDEFINED, current->index)
               ? FAKE_OK
               : FAKE_NO_MEMORY;
}
FAKE cuMemFree_v2(void *p) {
    if (const int failed = lost()) return failed;
    ptx_memory_remove(fake.memory, p);
    fake.sim->free(current->device, p);
    return FAKE_OK;
}
FAKE cuMemHostAlloc(void **out, size_t n_bytes, unsigned) {
    if (const int failed = lost()) return failed;
    char *raw = static_cast<char *>(malloc(n_bytes + SIM_PAGE + sizeof raw));
    if (!raw) return FAKE_NO_MEMORY;
    const uintptr_t first = reinterpret_cast<uintptr_t>(raw) + sizeof raw;
    char *p = raw + sizeof raw + (SIM_PAGE - first % SIM_PAGE) % SIM_PAGE;
    memcpy(p - sizeof raw, &raw, sizeof raw); /* what cuMemFreeHost frees */
    *out = p;
    return ptx_memory_add(fake.memory, p, n_bytes, PTX_DEFINED, PTX_HOST) ? FAKE_OK
                                                                          : FAKE_NO_MEMORY;
}
FAKE cuMemHostGetDevicePointer_v2(void **device, void *p, unsigned) {
    if (const int failed = lost()) return failed;
    *device = p;
    return FAKE_OK;
}
FAKE cuMemFreeHost(void *p) {
    if (const int failed = lost()) return failed;
    void *raw;
    memcpy(&raw, static_cast<char *>(p) - sizeof raw, sizeof raw);
    ptx_memory_remove(fake.memory, p);
    free(raw);
    return FAKE_OK;
}

/* ---- streams and events ---------------------------------------------------------------------- */

FAKE cuStreamCreate(gpu_stream **out, unsigned) {
    if (const int failed = lost()) return failed;
    pi_error err;
    const pi_status status = fake.sim->stream_create(current->device, out, &err);
    return result_of(status, err);
}
FAKE cuStreamDestroy_v2(gpu_stream *s) {
    fake.sim->stream_destroy(s);
    return FAKE_OK;
}
FAKE cuStreamSynchronize(gpu_stream *s) {
    if (const int failed = lost()) return failed;
    pi_error err;
    const pi_status status = fake.sim->stream_sync(stream_of(s), &err);
    return result_of(status, err);
}
FAKE cuStreamWaitEvent(gpu_stream *s, gpu_event *e, unsigned) {
    if (const int failed = lost()) return failed;
    fake.sim->stream_wait(s, e);
    return FAKE_OK;
}
FAKE cuEventCreate(gpu_event **out, unsigned) {
    if (const int failed = lost()) return failed;
    pi_error err;
    const pi_status status = fake.sim->event_create(current->device, out, &err);
    return result_of(status, err);
}
FAKE cuEventDestroy_v2(gpu_event *e) {
    fake.sim->event_destroy(e);
    return FAKE_OK;
}
FAKE cuEventRecord(gpu_event *e, gpu_stream *s) {
    if (const int failed = lost()) return failed;
    fake.sim->event_record(s, e);
    return FAKE_OK;
}
FAKE cuEventQuery(gpu_event *e) {
    if (const int failed = lost()) return failed;
    return fake.sim->event_done(e) ? FAKE_OK : FAKE_NOT_READY;
}
FAKE cuEventElapsedTime(float *ms, gpu_event *from, gpu_event *to) {
    if (const int failed = lost()) return failed;
    *ms = static_cast<float>(fake.sim->event_elapsed(from, to));
    return *ms < 0 ? FAKE_NOT_READY : FAKE_OK;
}
FAKE cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, gpu_stream *s) {
    if (const int failed = lost()) return failed;
    fake.sim->upload(stream_of(s), to, from, n);
    enqueue_mark(stream_of(s), to, nullptr, n);
    return FAKE_OK;
}
FAKE cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, gpu_stream *s) {
    if (const int failed = lost()) return failed;
    fake.sim->download(stream_of(s), to, from, n);
    return FAKE_OK;
}
FAKE cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t n, gpu_stream *s) {
    if (const int failed = lost()) return failed;
    fake.sim->copy(stream_of(s), to, from, n);
    enqueue_mark(stream_of(s), to, from, n);
    return FAKE_OK;
}
FAKE cuMemsetD8Async(void *to, unsigned char value, size_t n, gpu_stream *s) {
    if (const int failed = lost()) return failed;
    fake.sim->fill(stream_of(s), to, value, n);
    enqueue_mark(stream_of(s), to, nullptr, n);
    return FAKE_OK;
}

/* ---- programs -------------------------------------------------------------------------------- */

FAKE cuStreamBeginCapture_v2(gpu_stream *s, int) {
    if (const int failed = lost()) return failed;
    pi_error err;
    const pi_status status = fake.sim->record_begin(s, &err);
    return result_of(status, err);
}
FAKE cuStreamEndCapture(gpu_stream *s, fake_graph **out) {
    pi_error err;
    gpu_program *program = nullptr;
    *out = nullptr;
    const pi_status status = fake.sim->record_end(s, &program, &err);
    if (status) return result_of(status, err);
    *out = static_cast<fake_graph *>(calloc(1, sizeof **out));
    if (!*out) return FAKE_NO_MEMORY;
    (*out)->program = program;
    return FAKE_OK;
}
FAKE cuGraphDestroy(fake_graph *g) {
    if (!g->instantiated) fake.sim->program_free(g->program);
    free(g);
    return FAKE_OK;
}
FAKE cuGraphInstantiateWithFlags(gpu_program **out, fake_graph *g, unsigned long long) {
    *out = g->program;
    g->instantiated = true;
    return FAKE_OK;
}
FAKE cuGraphExecDestroy(gpu_program *p) {
    fake.sim->program_free(p);
    return FAKE_OK;
}
FAKE cuGraphUpload(gpu_program *, gpu_stream *) {
    if (const int failed = lost()) return failed;
    return FAKE_OK;
}
FAKE cuGraphLaunch(gpu_program *p, gpu_stream *s) {
    if (const int failed = lost()) return failed;
    fake.sim->program_launch(s, p);
    return FAKE_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* A text that the interpreter does not understand is an error, whose words go to the log. */
FAKE cuModuleLoadDataEx(ptx_module **out, const void *image, unsigned n, int *options,
                        void **values) {
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6, USEC_PER_MS = 1000 };
    const char *version = strstr(static_cast<const char *>(image), ".version ");
    usleep(static_cast<unsigned>(env_number("FAKE_CUDA_LOAD_MS", 0)) * USEC_PER_MS);
    if (!version) return FAKE_INVALID_PTX;
    char *point = nullptr;
    const long major = strtol(version + strlen(".version "), &point, 10);
    const long number = 10 * major + strtol(point + 1, nullptr, 10); /* 78: 7.8 */
    if (number > env_number("FAKE_CUDA_PTX", NEWEST_PTX)) return FAKE_OLD_FOR_PTX;
    ptx_error error;
    error.text[0] = '\0';
    *out = ptx_module_parse("kernels.ptx", static_cast<const char *>(image), fake.memory, &error);
    char *log = nullptr;
    size_t n_log = 0;
    for (unsigned i = 0; i < n; i++) {
        if (options[i] == ERROR_LOG) log = static_cast<char *>(values[i]);
        if (options[i] == ERROR_LOG_BYTES) n_log = reinterpret_cast<uintptr_t>(values[i]);
    }
    if (!*out && log && n_log) snprintf(log, n_log, "%s", error.text);
    return *out ? FAKE_OK : FAKE_INVALID_PTX;
}
FAKE cuModuleGetFunction(fake_function **out, ptx_module *m, const char *name) {
    ptx_error error;
    pthread_mutex_lock(&fake.mutex);
    ptx_kernel *k = ptx_module_kernel(m, name, &error);
    fake_function *f = k ? new fake_function : nullptr;
    if (f) {
        f->kernel.function = reinterpret_cast<gpu_any_kernel>(k);
        f->kernel.call = nullptr;
        f->kernel.loaded = ~0u;
        f->ptx = k;
        f->next = fake.functions;
        fake.functions = f;
    }
    pthread_mutex_unlock(&fake.mutex);
    *out = f;
    if (f) return FAKE_OK;
    if (!error.text[0]) return FAKE_NOT_FOUND;
    snprintf(fake.text, sizeof fake.text, "%.500s", error.text);
    return FAKE_FAILED;
}
FAKE cuLaunchKernel(fake_function *f, unsigned x, unsigned y, unsigned z, unsigned threads,
                    unsigned, unsigned, unsigned, gpu_stream *s, void **params, void **) {
    if (const int failed = lost()) return failed;
    gpu_launch_any(s, gpu_grid{x, y, z, threads}, f->kernel, params[0], ptx_kernel_params(f->ptx));
    return FAKE_OK;
}
struct fake_config {
    unsigned grid[3], block[3], shared_bytes;
    gpu_stream *stream;
};
FAKE cuLaunchKernelEx(const fake_config *c, fake_function *f, void **params, void **extra) {
    return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], 1, 1, 0, c->stream,
                          params, extra);
}
