/* vulkan_device.c: logical devices and their errors, and the backend's table. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "gpu_fault.h"
#include "vulkan.h"
#include "vulkan_backend.h"
#include "vulkan_ops.h"

static vulkan_slot slots[VULKAN_MAX_DEVICES];

/* ---- errors ---------------------------------------------------------------------------------- */

pi_status vulkan_error(pi_error *err, VkResult r, const char *doing) {
    const bool memory = r == VK_ERROR_OUT_OF_HOST_MEMORY || r == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
                        r == VK_ERROR_TOO_MANY_OBJECTS;
    return error_set(err, memory ? PI_ERR_NOMEM : PI_ERR_DEVICE, "%s: vulkan: %s (%d)", doing,
                     vulkan_result_text(r), (int)r);
}

static void stick(gpu_device *d, const pi_error *err) {
    os_mutex_lock(&d->mutex);
    if (d->status == PI_OK) {
        d->status = err->status;
        memcpy(d->text, err->message, sizeof d->text);
    }
    os_mutex_unlock(&d->mutex);
}

void vulkan_stick(gpu_device *d, VkResult r, const char *doing) {
    pi_error err;
    if (r == VK_SUCCESS) return;
    vulkan_error(&err, r, doing);
    stick(d, &err);
    if (r != VK_ERROR_DEVICE_LOST) return;
    os_mutex_lock(&d->slot->mutex);
    d->slot->lost = true;
    os_mutex_unlock(&d->slot->mutex);
}

bool vulkan_alive(gpu_device *d) {
    os_mutex_lock(&d->mutex);
    const bool alive = d->status == PI_OK;
    os_mutex_unlock(&d->mutex);
    return alive;
}

bool vulkan_tick(gpu_device *d) {
    os_mutex_lock(&d->mutex);
    const bool lost = d->fail_at > 0 && --d->fail_at == 0;
    os_mutex_unlock(&d->mutex);
    if (lost) {
        pi_error err;
        error_set(&err, PI_ERR_DEVICE, "device lost: vulkan: by the test hook");
        stick(d, &err);
    }
    return vulkan_alive(d);
}

uint64_t vulkan_dispatches(gpu_device *d) {
    os_mutex_lock(&d->slot->mutex);
    const uint64_t n = d->slot->n_dispatches;
    os_mutex_unlock(&d->slot->mutex);
    return n;
}

static void vulkan_fail_at(gpu_device *d, int64_t n) {
    os_mutex_lock(&d->mutex);
    d->fail_at = n;
    os_mutex_unlock(&d->mutex);
}

static struct gpu_fault *fault_of(const gpu_device *d) {
    return d->fault.host;
}

pi_status vulkan_status(gpu_device *d, pi_error *err) {
    os_mutex_lock(&d->mutex);
    const pi_status status = d->status;
    if (status) error_set(err, status, "%s", d->text);
    os_mutex_unlock(&d->mutex);
    if (status) return status;
    if (gpu_flag_get(&fault_of(d)->released))
        return error_set(err, PI_ERR_CANCELLED, "wait aborted: device vulkan: reset it");
    if (gpu_flag_get(&fault_of(d)->timed_out))
        return error_set(err, PI_ERR_DEVICE,
                         "message missing: device vulkan: a kernel began "
                         "before the host had sent what it reads");
    return PI_OK;
}

static void vulkan_release(gpu_device *d) {
    gpu_flag_raise(&fault_of(d)->released, 1);
}

static pi_status vulkan_reset(gpu_device *d, pi_error *err) {
    gpu_flag_raise(&fault_of(d)->released, 0);
    gpu_flag_raise(&fault_of(d)->timed_out, 0);
    return vulkan_status(d, err);
}

const vulkan_abilities *vulkan_stream_abilities(const gpu_stream *s) {
    return s->device->slot->can;
}

void *vulkan_stream_fault(const gpu_stream *s) {
    return s->device->fault.device;
}

/* ---- what there is --------------------------------------------------------------------------- */

static pi_status vulkan_count(int *n, pi_error *err) {
    const vulkan_all *all = vulkan_find();
    *n = all->n;
    if (all->error.status) return error_set(err, all->error.status, "%s", all->error.message);
    return PI_OK;
}

static pi_status check_index(int index, pi_error *err) {
    int n;
    pi_status status = vulkan_count(&n, err);
    if (status == PI_OK && (index < 0 || index >= n))
        return error_set(err, PI_ERR_RANGE, "no device %d: vulkan: there are %d", index, n);
    return status;
}

static const char *kind_of(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return "cpu";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return "virtual";
    default:
        return "discrete";
    }
}

static pi_status vulkan_describe(int index, gpu_info *info, pi_error *err) {
    memset(info, 0, sizeof *info);
    pi_status status = check_index(index, err);
    if (status != PI_OK) return status;
    const vulkan_abilities *can = &vulkan_find()->device[index];
    snprintf(info->name, sizeof info->name, "%.127s", can->properties.deviceName);
    snprintf(info->arch, sizeof info->arch, "%s", kind_of(can->properties.deviceType));
    info->capability_major = (int32_t)VK_API_VERSION_MAJOR(can->properties.apiVersion);
    info->capability_minor = (int32_t)VK_API_VERSION_MINOR(can->properties.apiVersion);
    info->memory_free = vulkan_free_bytes(can, &info->memory_total);
    info->shared_memory = can->unified;
    info->int8_prompts = true;
    info->software = can->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    info->overlaps = true; /* a norm is a separate kernel here, wherever the plan puts it */
    if (can->lacks[0])
        return error_set(err, PI_ERR_UNSUPPORTED, "not supported: %s: it lacks %s", info->name,
                         can->lacks);
    return PI_OK;
}

static bool vulkan_reaches(int from, int to) {
    return from == to;
}

static bool vulkan_submits_late(void) {
    return false;
}

/* ---- logical devices ------------------------------------------------------------------------- */

static VkResult make_device(vulkan_slot *slot) {
    const vulkan_abilities *can = slot->can;
    const vulkan_calls *call = &vulkan_find()->calls;
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = can->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT lanes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
        .subgroupSizeControl = VK_TRUE,
        .computeFullSubgroups = VK_TRUE};
    const bool chosen = can->least_lanes != can->most_lanes;
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = chosen ? &lanes : NULL,
        .bufferDeviceAddress = VK_TRUE,
        .timelineSemaphore = VK_TRUE,
        .storageBuffer8BitAccess = VK_TRUE,
        .shaderInt8 = VK_TRUE};
    VkPhysicalDeviceVulkan11Features v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &v12,
        .storageBuffer16BitAccess = VK_TRUE};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
        .pNext = &v11,
        .shaderIntegerDotProduct = VK_TRUE};
    const VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = can->int_dot ? (void *)&dot : &v11,
        .features = {.shaderInt16 = VK_TRUE, .shaderInt64 = VK_TRUE}};
    const char *extensions[3];
    uint32_t n = 0;
    if (chosen) extensions[n++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    if (can->int_dot) extensions[n++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    if (can->import_align) extensions[n++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &features,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = n,
                                     .ppEnabledExtensionNames = extensions};
    VkResult r = call->CreateDevice(can->physical, &info, NULL, &slot->device);
    if (r != VK_SUCCESS) return r;
#define FIND(name)                                                                                 \
    slot->call.name = (PFN_vk##name)call->GetDeviceProcAddr(slot->device, "vk" #name);             \
    if (!slot->call.name) r = VK_ERROR_INCOMPATIBLE_DRIVER;
    VULKAN_DEVICE_CALLS(FIND)
#undef FIND
    slot->host_pointer = NULL;
    if (can->import_align)
        slot->host_pointer = (PFN_vkGetMemoryHostPointerPropertiesEXT)call->GetDeviceProcAddr(
            slot->device, "vkGetMemoryHostPointerPropertiesEXT");
    if (r == VK_SUCCESS) slot->call.GetDeviceQueue(slot->device, can->family, 0, &slot->queue);
    return r;
}

/* The slot is locked. */
static void close_slot(vulkan_slot *slot) {
    slot->call.DeviceWaitIdle(slot->device);
    vulkan_pipelines_close(slot);
    vulkan_free_chunks(slot);
    slot->call.DestroyDevice(slot->device, NULL);
    slot->device = NULL;
    slot->lost = false;
    slot->books = 0;
    slot->pipelines = NULL;
    slot->n_pipelines = slot->n_made = slot->max_pipelines = 0;
    memset(slot->modules, 0, sizeof slot->modules);
}

static void make_mutexes(void) {
    for (int i = 0; i < VULKAN_MAX_DEVICES; i++) os_mutex_init(&slots[i].mutex);
}

/* The logical device stays for the next context, with its pipelines, unless it is lost. */
static void leave_slot(vulkan_slot *slot) {
    os_mutex_lock(&slot->mutex);
    if (--slot->n_open == 0) vulkan_cache_write(slot);
    if (slot->n_open == 0 && slot->lost) close_slot(slot);
    os_mutex_unlock(&slot->mutex);
}

/* The first context creates the logical device. Its pipeline cache has a file in that context's
 * folder (NULL: no file). */
static pi_status enter_slot(int index, const gpu_host *host, const char *folder, vulkan_slot **out,
                            pi_error *err) {
    char name[64];
    static os_once once;
    os_once_run(&once, make_mutexes);
    vulkan_slot *slot = &slots[index];
    pi_status status = PI_OK;
    os_mutex_lock(&slot->mutex);
    if (!slot->device) {
        slot->can = &vulkan_find()->device[index];
        slot->host = host;
        vulkan_cache_name(slot->can, name, sizeof name);
        if (!folder || !file_join(slot->cache_path, sizeof slot->cache_path, folder, name))
            slot->cache_path[0] = '\0';
        memset(slot->cached, 0, sizeof slot->cached);
        const VkResult r = make_device(slot);
        status = r == VK_SUCCESS ? vulkan_pipelines_open(slot, err)
                                 : vulkan_error(err, r, "cannot open the device");
        if (status != PI_OK && slot->device) close_slot(slot);
    }
    if (status == PI_OK) slot->n_open++;
    os_mutex_unlock(&slot->mutex);
    *out = slot;
    return status;
}

static void vulkan_close(gpu_device *d) {
    if (!d) return;
    vulkan_host_free(d, &d->fault);
    leave_slot(d->slot);
    os_mutex_destroy(&d->mutex);
    d->host->free(d);
}

static pi_status vulkan_open(int index, const gpu_host *host, const gpu_open_options *options,
                             gpu_device **out, pi_error *err) {
    gpu_info info;
    vulkan_slot *slot;
    if (host->version != GPU_VERSION || host->size != sizeof *host)
        return error_set(err, PI_ERR_UNSUPPORTED, "backend vulkan has version %d, the program %u",
                         GPU_VERSION, host->version);
    pi_status status = vulkan_describe(index, &info, err);
    if (status != PI_OK) return status;
    gpu_device *d = host->alloc(sizeof *d);
    if (!d) return error_nomem(err, sizeof *d, "vulkan");
    status = enter_slot(index, host, options ? options->cache_folder : NULL, &slot, err);
    if (status != PI_OK) {
        host->free(d);
        return status;
    }
    *d = (gpu_device){
        .slot = slot, .host = host, .index = index, .limit = options ? options->memory_limit : 0};
    os_mutex_init(&d->mutex);
    status = vulkan_host_alloc(d, sizeof(struct gpu_fault), &d->fault, err);
    if (status == PI_OK) status = vulkan_books_open(d, err);
    if (status != PI_OK) {
        vulkan_close(d);
        return status;
    }
    *out = d;
    return PI_OK;
}

static void vulkan_limit(gpu_device *d, uint64_t n_bytes) {
    os_mutex_lock(&d->mutex);
    d->limit = n_bytes;
    os_mutex_unlock(&d->mutex);
}

/* Devices do not see each other's memory. */
static pi_status vulkan_peer_alloc(gpu_device *from, gpu_device *to, size_t n_bytes,
                                   const char *what, void **out, pi_error *err) {
    if (from->slot != to->slot)
        return error_set(err, PI_ERR_UNSUPPORTED, "no peers: vulkan: %s", what);
    pi_status status = vulkan_alloc(to, n_bytes, what, out, err);
    gpu_stream *s = NULL;
    if (status == PI_OK) status = vulkan_stream_create(to, &s, err);
    if (status == PI_OK) {
        vulkan_fill(s, *out, 0, n_bytes);
        status = vulkan_stream_sync(s, err);
    }
    vulkan_stream_destroy(s);
    if (status != PI_OK) vulkan_free(to, *out);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

const gpu_backend *vulkan_backend(void) {
    static const gpu_backend backend = {.version = GPU_VERSION,
                                        .size = sizeof(gpu_backend),
                                        .name = "vulkan",
                                        .node_bytes = 0, /* recorded programs take host memory */
                                        .granularity = 256,
                                        .kernels_may_wait = false,
                                        .one_device = true,
                                        .supports = vulkan_supports,
                                        .count = vulkan_count,
                                        .describe = vulkan_describe,
                                        .reaches = vulkan_reaches,
                                        .submits_late = vulkan_submits_late,
                                        .open = vulkan_open,
                                        .close = vulkan_close,
                                        .limit = vulkan_limit,
                                        .status = vulkan_status,
                                        .release = vulkan_release,
                                        .reset = vulkan_reset,
                                        .fail_at = vulkan_fail_at,
                                        .alloc = vulkan_alloc,
                                        .free = vulkan_free,
                                        .memory = vulkan_memory,
                                        .peer_alloc = vulkan_peer_alloc,
                                        .host_alloc = vulkan_host_alloc,
                                        .host_free = vulkan_host_free,
                                        .import = vulkan_import,
                                        .stream_create = vulkan_stream_create,
                                        .stream_destroy = vulkan_stream_destroy,
                                        .stream_sync = vulkan_stream_sync,
                                        .event_create = vulkan_event_create,
                                        .event_destroy = vulkan_event_destroy,
                                        .event_record = vulkan_event_record,
                                        .event_done = vulkan_event_done,
                                        .stream_wait = vulkan_stream_wait,
                                        .event_elapsed = vulkan_event_elapsed,
                                        .upload = vulkan_upload,
                                        .download = vulkan_download,
                                        .copy = vulkan_copy,
                                        .fill = vulkan_fill,
                                        .record_begin = vulkan_record_begin,
                                        .record_end = vulkan_record_end,
                                        .program_launch = vulkan_program_launch,
                                        .program_free = vulkan_program_free,
                                        .ops = {
#define ADDRESS(name, NAME) .name = vulkan_op_##name,
                                            VULKAN_OPS(ADDRESS)
#undef ADDRESS
                                        }};
    return &backend;
}
