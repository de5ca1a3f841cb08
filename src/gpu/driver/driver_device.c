/* driver_device.c: devices, memory and errors of the backends over a driver's library, and their
 * tables. Every function makes its device current: that is a property of the calling thread. */
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "driver_backend.h"
#include "driver_images.h"
#include "file.h"
#include "gpu_amd.h"

static const uint32_t NS_CLOCK_KHZ = 1000000; /* NVIDIA: gpu_clock_ns reads nanoseconds */
static const uint32_t AMD_CLOCK_KHZ = 100000; /* where the runtime does not report it */

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *text_of(const driver_vendor *v, int result) {
    const char *text = NULL;
    if (v->calls.error_text && v->calls.error_text(result, &text) == DRIVER_OK && text) return text;
    return "error";
}

pi_status driver_error(const driver_vendor *v, pi_error *err, int result, const char *doing) {
    return error_set(err, result == DRIVER_NO_MEMORY ? PI_ERR_NOMEM : PI_ERR_DEVICE,
                     "%s: %s: %s (%d)", doing, v->name, text_of(v, result), result);
}

void driver_stick(gpu_device *d, int result, const char *doing) {
    if (result == DRIVER_OK) return;
    pi_error err;
    pi_status status = driver_error(d->vendor, &err, result, doing);
    os_mutex_lock(&d->mutex);
    if (d->status == PI_OK) {
        d->status = status;
        memcpy(d->text, err.message, sizeof d->text);
    }
    os_mutex_unlock(&d->mutex);
}

static int make_current(const driver_vendor *v, int index) {
    return v->amd ? v->calls.device_use(index) : v->calls.context_use(v->slots[index].context);
}

bool driver_use(gpu_device *d) {
    os_mutex_lock(&d->mutex);
    const bool lost = d->status != PI_OK;
    os_mutex_unlock(&d->mutex);
    if (lost) return false;
    const int e = make_current(d->vendor, d->index);
    driver_stick(d, e, "device lost");
    return e == DRIVER_OK;
}

static struct gpu_fault *fault_of(const gpu_device *d) {
    return d->fault.host;
}

pi_status driver_status(gpu_device *d, pi_error *err) {
    os_mutex_lock(&d->mutex);
    const pi_status status = d->status;
    if (status) error_set(err, status, "%s", d->text);
    os_mutex_unlock(&d->mutex);
    if (status) return status;
    if (gpu_flag_get(&fault_of(d)->released))
        return error_set(err, PI_ERR_CANCELLED, "wait aborted: device %s: reset it",
                         d->vendor->name);
    if (gpu_flag_get(&fault_of(d)->timed_out))
        return error_set(err, PI_ERR_DEVICE, "timed out: device %s: waited %.3g s for the host",
                         d->vendor->name, (double)d->wait_ns * 1e-9);
    return PI_OK;
}

static void driver_release(gpu_device *d) {
    gpu_flag_raise(&fault_of(d)->released, 1);
}

static pi_status driver_reset(gpu_device *d, pi_error *err) {
    gpu_flag_raise(&fault_of(d)->released, 0);
    gpu_flag_raise(&fault_of(d)->timed_out, 0);
    return driver_status(d, err);
}

struct gpu_fault *driver_stream_fault(const gpu_stream *s) {
    return s->device->fault.device;
}
uint64_t driver_stream_wait_ns(const gpu_stream *s) {
    return s->device->wait_ns;
}
uint32_t driver_stream_clock_khz(const gpu_stream *s) {
    return s->device->slot->clock_khz;
}
bool driver_stream_tensor_cores(const gpu_stream *s) {
    return s->device->slot->tensor_cores;
}

/* ---- devices --------------------------------------------------------------------------------- */

static pi_status driver_count(driver_vendor *v, int *n, pi_error *err) {
    *n = 0;
    if (v->error.status) return error_set(err, v->error.status, "%s", v->error.message);
    const int e = v->calls.device_count(n);
    if (e == DRIVER_OK && *n > DRIVER_MAX_DEVICES) *n = DRIVER_MAX_DEVICES;
    if (e == DRIVER_OK && *n > 0) return PI_OK;
    *n = 0;
    return error_set(err, PI_ERR_NOT_FOUND, "no device: %s: %s", v->name,
                     e == DRIVER_OK ? "none found" : text_of(v, e));
}

static int attribute(const driver_vendor *v, int attribute, int device) {
    int value = 0;
    return v->calls.device_attribute(&value, attribute, device) == DRIVER_OK ? value : 0;
}

/* "gfx90a:sramecc+:xnack-". HIP has no other call for it than the one that fills in all properties.
 * Where the text is: offsetof(hipDeviceProp_t, gcnArchName) with the headers of ROCm 5.2 (792
 * bytes) and 6.3 (1,472 bytes), which name the layout of the struct by the function: R0600. */
static int read_amd_arch(const driver_vendor *v, int index, char *arch, size_t n_arch) {
    enum { AT_R0600 = 1160, AT_5 = 396, PROPERTIES_BYTES = 4096 };
    _Alignas(16) char properties[PROPERTIES_BYTES] = "";
    int e = DRIVER_NOT_FOUND;
    const char *at = properties + (v->calls.device_properties ? AT_R0600 : AT_5);
    if (v->calls.device_properties)
        e = v->calls.device_properties(properties, index);
    else if (v->calls.device_properties_5)
        e = v->calls.device_properties_5(properties, index);
    if (e == DRIVER_OK)
        snprintf(arch, n_arch, "%.31s", strncmp(at, "gfx", 3) == 0 ? at : "unknown");
    return e;
}

/* Makes no context, which would take some hundred megabytes of every GPU that is looked at. */
static pi_status driver_describe(driver_vendor *v, int index, gpu_info *info, pi_error *err) {
    int device = 0;
    char bus[32] = "";
    size_t total = 0;
    memset(info, 0, sizeof *info);
    int e = v->calls.device_get(&device, index);
    if (e == DRIVER_OK) e = v->calls.device_name(info->name, sizeof info->name, device);
    if (e == DRIVER_OK) e = v->calls.device_memory(&total, device);
    if (e == DRIVER_OK && v->amd) e = read_amd_arch(v, index, info->arch, sizeof info->arch);
    if (e != DRIVER_OK) return driver_error(v, err, e, "cannot query the device");
    const bool has_bus = v->calls.device_bus(bus, sizeof bus, device) == DRIVER_OK;
    info->memory_total = total;
    info->memory_free = has_bus ? v->free_memory(bus, total) : total;
    info->n_units = attribute(v, v->attribute_units, device);
    info->capability_major = attribute(v, v->attribute_major, device);
    info->capability_minor = attribute(v, v->attribute_minor, device);
    info->shared_memory = attribute(v, v->attribute_integrated, device) != 0;
    info->tensor_cores = v->amd ? gpu_amd_matrix_units(info->arch) : info->capability_major >= 7;
    if (!v->amd)
        snprintf(info->arch, sizeof info->arch, "sm_%d%d", info->capability_major,
                 info->capability_minor);
    info->overlaps = driver_overlaps(v, info);
    /* Transfers per clock, as data sheets count them. */
    info->bandwidth = (v->amd ? gpu_amd_transfers(info->arch) : 2.0) * 1000.0 *
                      attribute(v, v->attribute_memory_clock, device) *
                      (attribute(v, v->attribute_memory_bus, device) / 8.0);
    return PI_OK;
}

static bool driver_reaches(driver_vendor *v, int from, int to) {
    int can = 0, from_device = 0, to_device = 0;
    if (from == to) return true;
    return v->calls.device_get(&from_device, from) == DRIVER_OK &&
           v->calls.device_get(&to_device, to) == DRIVER_OK &&
           v->calls.device_reaches(&can, from_device, to_device) == DRIVER_OK && can != 0;
}

/* The device of Windows' driver, in WSL. */
static bool submits_late(void) {
    return file_exists("/dev/dxg");
}

static pi_status driver_host_alloc(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    const driver_calls *call = d->calls;
    gpu_pinned p = {.n_bytes = n_bytes};
    int e = make_current(d->vendor, d->index);
    if (e == DRIVER_OK) e = call->host_alloc(&p.host, n_bytes ? n_bytes : 1, d->vendor->pinned);
    if (e == DRIVER_OK) {
        memset(p.host, 0, n_bytes);
        e = call->host_address(&p.device, p.host, 0);
        if (e != DRIVER_OK) call->host_free(p.host);
    }
    if (e != DRIVER_OK) return driver_error(d->vendor, err, e, "cannot pin memory");
    *out = p;
    return PI_OK;
}

/* The next call to the device reports errors of these calls. */
void gpu_free_now(const gpu_put_off *m, bool idle) {
    (void)idle;
    driver_vendor *v = m->index < DRIVER_MAX_DEVICES ? driver_cuda() : driver_hip();
    if (make_current(v, m->index - v->first_index) != DRIVER_OK) return;
    if (m->pinned.host)
        v->calls.host_free(m->pinned.host);
    else
        v->calls.memory_free(m->p);
}

static void driver_host_free(gpu_device *d, gpu_pinned *p) {
    const gpu_put_off m = {.device = d, .index = d->vendor->first_index + d->index, .pinned = *p};
    if (p->host) gpu_late_put(&m);
    *p = (gpu_pinned){0};
}

static void driver_close(gpu_device *d) {
    if (!d) return;
    driver_host_free(d, &d->fault);
    os_mutex_destroy(&d->mutex);
    d->host->free(d);
}

static os_mutex slots_mutex;
static void make_slots_mutex(void) {
    os_mutex_init(&slots_mutex);
}

/* Retains the context and loads the kernels when the device is opened first. They stay: a context
 * is the process's, and freeing what was deferred needs it. */
static pi_status fill_slot(driver_vendor *v, int index, const gpu_host *host, pi_error *err) {
    static os_once once;
    os_once_run(&once, make_slots_mutex);
    os_mutex_lock(&slots_mutex);
    driver_slot *slot = &v->slots[index];
    int device = 0, e = DRIVER_OK;
    gpu_info info;
    pi_status status = driver_describe(v, index, &info, err);
    if (status == PI_OK && !v->amd && !slot->context) {
        e = v->calls.device_get(&device, index);
        if (e == DRIVER_OK) e = v->calls.context_retain(&slot->context, device);
    }
    if (status == PI_OK && e == DRIVER_OK) e = make_current(v, index);
    if (e != DRIVER_OK) status = driver_error(v, err, e, "cannot open the device");
    if (status == PI_OK && !slot->functions)
        status = driver_load_kernels(v, index, &info, host, err);
    if (status == PI_OK) {
        slot->tensor_cores = info.tensor_cores;
        slot->clock_khz = NS_CLOCK_KHZ;
        const int khz = v->amd ? attribute(v, v->attribute_clock, index) : 0;
        if (v->amd) slot->clock_khz = khz > 0 ? (uint32_t)khz : AMD_CLOCK_KHZ;
    }
    os_mutex_unlock(&slots_mutex);
    return status;
}

static pi_status driver_open(driver_vendor *v, int index, const gpu_host *host,
                             const gpu_open_options *options, gpu_device **out, pi_error *err) {
    if (host->version != GPU_VERSION || host->size != sizeof *host)
        return error_set(err, PI_ERR_UNSUPPORTED, "backend %s has version %d, the program %u",
                         v->name, GPU_VERSION, host->version);
    int n = 0;
    pi_status status = driver_count(v, &n, err);
    if (status) return status;
    if (index < 0 || index >= n)
        return error_set(err, PI_ERR_RANGE, "no device %d: %s: there are %d", index, v->name, n);
    gpu_device *d = host->alloc(sizeof *d);
    if (!d) return error_nomem(err, sizeof *d, v->name);
    *d = (gpu_device){.vendor = v,
                      .calls = &v->calls,
                      .host = host,
                      .index = index,
                      .slot = &v->slots[index],
                      .limit = options ? options->memory_limit : 0};
    os_mutex_init(&d->mutex);
    d->wait_ns = (options && options->wait_ms ? options->wait_ms : (uint32_t)GPU_WAIT_MS) *
                 UINT64_C(1000000);
    status = fill_slot(v, index, host, err);
    if (status == PI_OK) status = driver_host_alloc(d, sizeof(struct gpu_fault), &d->fault, err);
    if (status) {
        driver_close(d);
        return status;
    }
    d->overlaps = d->slot->overlaps;
    *out = d;
    return PI_OK;
}

static void driver_limit(gpu_device *d, uint64_t n_bytes) {
    os_mutex_lock(&d->mutex);
    d->limit = n_bytes;
    os_mutex_unlock(&d->mutex);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { GRANULARITY = 2 << 20 }; /* pages of the driver; only small allocations share one */

static bool reserve(gpu_device *d, size_t n_bytes) {
    os_mutex_lock(&d->mutex);
    const bool fits = !d->limit || (d->used <= d->limit && n_bytes <= d->limit - d->used);
    if (fits) d->used += n_bytes;
    os_mutex_unlock(&d->mutex);
    return fits;
}

static void unreserve(gpu_device *d, size_t n_bytes) {
    os_mutex_lock(&d->mutex);
    d->used -= n_bytes;
    os_mutex_unlock(&d->mutex);
}

/* Sizes are kept here, so that a free does not query the device, which may be busy. */
typedef struct driver_block {
    void *p;
    size_t n_bytes;
    struct driver_block *next;
} driver_block;

static void keep_block(gpu_device *d, driver_block *block) {
    os_mutex_lock(&d->mutex);
    block->next = d->blocks;
    d->blocks = block;
    os_mutex_unlock(&d->mutex);
}

/* Removes the block of p from the list; NULL: there is none. */
static driver_block *take_block(gpu_device *d, const void *p) {
    os_mutex_lock(&d->mutex);
    driver_block **at = &d->blocks;
    while (*at && (*at)->p != p) at = &(*at)->next;
    driver_block *block = *at;
    if (block) *at = block->next;
    os_mutex_unlock(&d->mutex);
    return block;
}

static int allocate(const gpu_device *d, bool shared, size_t n_bytes, void **out) {
    const size_t n = n_bytes ? n_bytes : 1;
    return shared && d->vendor->amd ? d->calls->memory_alloc_with(out, n, DRIVER_FINE_GRAINED)
                                    : d->calls->memory_alloc(out, n);
}

/* shared: another device also writes there. On NVIDIA's GPUs its writes are always visible at once,
 * on AMD's only in fine-grained memory, which not all of them have. */
static pi_status alloc_for(gpu_device *d, bool shared, size_t n_bytes, const char *what, void **out,
                           pi_error *err) {
    if (!driver_use(d)) return driver_status(d, err);
    driver_block *block = d->host->alloc(sizeof *block);
    if (!block) return error_nomem(err, sizeof *block, what);
    const bool fits = reserve(d, n_bytes);
    *block = (driver_block){.n_bytes = n_bytes};
    int e = fits ? allocate(d, shared, n_bytes, &block->p) : DRIVER_NO_MEMORY;
    if (fits && e == DRIVER_NO_MEMORY && gpu_late_flush(NULL) && driver_use(d))
        e = allocate(d, shared, n_bytes, &block->p);
    if (e == DRIVER_OK) {
        keep_block(d, block);
        *out = block->p;
        return PI_OK;
    }
    d->host->free(block);
    if (fits) unreserve(d, n_bytes);
    if (e != DRIVER_NO_MEMORY) return driver_error(d->vendor, err, e, what);
    return error_set(err, PI_ERR_NOMEM, "out of device memory: %s: %zu bytes asked of %s", what,
                     n_bytes, d->vendor->name);
}

static pi_status driver_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out,
                              pi_error *err) {
    return alloc_for(d, false, n_bytes, what, out, err);
}

static void driver_free(gpu_device *d, void *p) {
    driver_block *block = p ? take_block(d, p) : NULL;
    if (!block) return;
    unreserve(d, block->n_bytes);
    const gpu_put_off m = {
        .device = d, .index = d->vendor->first_index + d->index, .p = p, .n_bytes = block->n_bytes};
    d->host->free(block);
    if (driver_use(d)) gpu_late_put(&m);
}

/* Access stays enabled: other code of the process may want it. */
static pi_status driver_peer_alloc(gpu_device *from, gpu_device *to, size_t n_bytes,
                                   const char *what, void **out, pi_error *err) {
    const driver_calls *call = from->calls;
    if (!driver_use(from)) return driver_status(from, err);
    int e = from->index == to->index ? DRIVER_OK
            : from->vendor->amd      ? call->device_peer(to->index, 0)
                                     : call->context_peer(to->slot->context, 0);
    if (e == DRIVER_HAS_PEER) e = DRIVER_OK;
    pi_status status = e == DRIVER_OK ? alloc_for(to, true, n_bytes, what, out, err)
                                      : driver_error(from->vendor, err, e, "no peers");
    if (status != PI_OK) return status;
    e = call->fill(*out, 0, n_bytes ? n_bytes : 1, NULL);
    if (e == DRIVER_OK) e = call->stream_sync(NULL);
    if (e == DRIVER_OK) return PI_OK;
    driver_free(to, *out);
    return driver_error(from->vendor, err, e, what);
}

static pi_status driver_memory(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes,
                               pi_error *err) {
    size_t available = 0, total = 0;
    if (!driver_use(d)) return driver_status(d, err);
    const int e = d->calls->memory_info(&available, &total);
    if (e != DRIVER_OK) return driver_error(d->vendor, err, e, "cannot query the device's memory");
    /* deferred frees count as free */
    available += gpu_late_bytes(d->vendor->first_index + d->index);
    os_mutex_lock(&d->mutex);
    const uint64_t room = !d->limit ? available : d->used < d->limit ? d->limit - d->used : 0;
    *free_bytes = room < available ? room : available;
    *total_bytes = d->limit && d->limit < total ? d->limit : total;
    os_mutex_unlock(&d->mutex);
    return PI_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Members that know no device. */
#define DRIVER_MEMBERS(vendor)                                                                     \
    static pi_status vendor##_count(int *n, pi_error *err) {                                       \
        return driver_count(driver_##vendor(), n, err);                                            \
    }                                                                                              \
    static pi_status vendor##_describe(int index, gpu_info *info, pi_error *err) {                 \
        return driver_describe(driver_##vendor(), index, info, err);                               \
    }                                                                                              \
    static bool vendor##_reaches(int from, int to) {                                               \
        return driver_reaches(driver_##vendor(), from, to);                                        \
    }                                                                                              \
    static pi_status vendor##_open(int index, const gpu_host *host,                                \
                                   const gpu_open_options *options, gpu_device **out,              \
                                   pi_error *err) {                                                \
        return driver_open(driver_##vendor(), index, host, options, out, err);                     \
    }
DRIVER_MEMBERS(cuda)
DRIVER_MEMBERS(hip)

static gpu_backend cuda = {
    .version = GPU_VERSION,
    .size = sizeof(gpu_backend),
    .name = "cuda",
    .node_bytes = GPU_NODE_BYTES,
    .granularity = GRANULARITY,
    .kernels_may_wait = true,
    .supports = gpu_kernels_support,
    .submits_late = submits_late,
    .count = cuda_count,
    .describe = cuda_describe,
    .reaches = cuda_reaches,
    .open = cuda_open,
    .close = driver_close,
    .limit = driver_limit,
    .status = driver_status,
    .release = driver_release,
    .reset = driver_reset,
    .alloc = driver_alloc,
    .free = driver_free,
    .memory = driver_memory,
    .peer_alloc = driver_peer_alloc,
    .host_alloc = driver_host_alloc,
    .host_free = driver_host_free,
    .stream_create = driver_stream_create,
    .stream_destroy = driver_stream_destroy,
    .stream_sync = driver_stream_sync,
    .event_create = driver_event_create,
    .event_destroy = driver_event_destroy,
    .event_record = driver_event_record,
    .event_done = driver_event_done,
    .stream_wait = driver_stream_wait,
    .event_elapsed = driver_event_elapsed,
    .upload = driver_upload,
    .download = driver_download,
    .copy = driver_copy,
    .fill = driver_fill,
    .record_begin = driver_record_begin,
    .record_end = driver_record_end,
    .program_launch = driver_program_launch,
    .program_free = driver_program_free,
};
static gpu_backend hip;

static void make_tables(void) {
    cuda.ops = driver_ops; /* another object's: not a constant */
    hip = cuda;
    hip.name = "hip";
    hip.count = hip_count;
    hip.describe = hip_describe;
    hip.reaches = hip_reaches;
    hip.open = hip_open;
}

const gpu_backend *driver_backend(const char *name) {
    static os_once once;
    char targets[DRIVER_TARGETS_TEXT];
    os_once_run(&once, make_tables);
    if (!driver_image_targets(name, targets)) return NULL;
    return strcmp(name, hip.name) == 0 ? &hip : &cuda;
}
