/* vulkan_open.c: opens the loader, and asks every device what it has. Nothing here takes device
 * memory. */
#include <stdio.h>
#include <string.h>

#include "dynlib.h"
#include "vulkan.h"

static vulkan_all all;

const char *vulkan_result_text(VkResult r) {
    switch (r) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "the driver cannot start";
    case VK_ERROR_DEVICE_LOST:
        return "the device is lost";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "no driver for a device here";
    case VK_ERROR_TOO_MANY_OBJECTS:
        return "too many allocations";
    default:
        return "error";
    }
}

/* ---- what a device has ----------------------------------------------------------------------- */

static void lacks(vulkan_abilities *a, bool there, const char *what) {
    if (!there && !a->lacks[0]) snprintf(a->lacks, sizeof a->lacks, "%s", what);
}

static void read_features(vulkan_abilities *a) {
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &v11};
    all.calls.GetPhysicalDeviceFeatures2(a->physical, &f);
    lacks(a, v12.bufferDeviceAddress, "buffer device addresses");
    lacks(a, v12.timelineSemaphore, "timeline semaphores");
    lacks(a, v12.storageBuffer8BitAccess, "8-bit storage");
    lacks(a, v11.storageBuffer16BitAccess, "16-bit storage");
    lacks(a, v12.shaderInt8, "8-bit integers");
    lacks(a, f.features.shaderInt16, "16-bit integers");
    lacks(a, f.features.shaderInt64, "64-bit integers");
}

static void read_properties(vulkan_abilities *a) {
    const VkSubgroupFeatureFlags wanted = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                          VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                          VK_SUBGROUP_FEATURE_SHUFFLE_BIT |
                                          VK_SUBGROUP_FEATURE_BALLOT_BIT;
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &v11};
    all.calls.GetPhysicalDeviceProperties2(a->physical, &p);
    a->properties = p.properties;
    a->most_alloc = v11.maxMemoryAllocationSize;
    memcpy(a->device_uuid, v11.deviceUUID, sizeof a->device_uuid);
    a->lanes = a->least_lanes = a->most_lanes = v11.subgroupSize;
    a->shared_bytes = p.properties.limits.maxComputeSharedMemorySize;
    lacks(a, (v11.subgroupSupportedOperations & wanted) == wanted, "subgroup operations");
    lacks(a, v11.subgroupSize >= 8 && v11.subgroupSize <= 64, "subgroups of 8 to 64 lanes");
    lacks(a, p.properties.limits.maxComputeWorkGroupInvocations >= 256, "workgroups of 256");
    lacks(a, a->shared_bytes >= 32 << 10, "32 KiB of shared memory");
}

static bool has_extension(const vulkan_abilities *a, const char *name) {
    enum { MOST = 512 };
    static VkExtensionProperties list[MOST]; /* under the os_once of vulkan_find */
    uint32_t n = MOST;
    all.calls.EnumerateDeviceExtensionProperties(a->physical, NULL, &n, list);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].extensionName, name) == 0) return true;
    return false;
}

static void read_extensions(vulkan_abilities *a) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT import = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &control};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    if (has_extension(a, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) {
        p.pNext = &import;
        all.calls.GetPhysicalDeviceProperties2(a->physical, &p);
        a->import_align = import.minImportedHostPointerAlignment;
    }
    if (has_extension(a, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) {
        VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR};
        f.pNext = &dot;
        all.calls.GetPhysicalDeviceFeatures2(a->physical, &f);
        a->int_dot = dot.shaderIntegerDotProduct;
        f.pNext = &control;
    }
    a->budget = has_extension(a, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (!has_extension(a, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) return;
    all.calls.GetPhysicalDeviceFeatures2(a->physical, &f);
    p.pNext = &sizes;
    all.calls.GetPhysicalDeviceProperties2(a->physical, &p);
    if (!control.subgroupSizeControl || !control.computeFullSubgroups ||
        !(sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT))
        return;
    a->least_lanes = sizes.minSubgroupSize;
    a->most_lanes = sizes.maxSubgroupSize;
    /* 32 lanes where they can be chosen: shaders are tuned for 32 and 64 */
    if (a->least_lanes <= 32 && a->most_lanes >= 32) a->lanes = 32;
}

static void read_memory(vulkan_abilities *a) {
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    all.calls.GetPhysicalDeviceMemoryProperties2(a->physical, &m);
    a->memory = m.memoryProperties;
    a->unified = a->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                 a->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

/* Prefers a queue without graphics, which no display uses. */
static void find_queue(vulkan_abilities *a) {
    VkQueueFamilyProperties family[16];
    uint32_t n = sizeof family / sizeof *family;
    bool found = false, apart = false;
    all.calls.GetPhysicalDeviceQueueFamilyProperties(a->physical, &n, family);
    for (uint32_t i = 0; i < n; i++) {
        const bool graphics = family[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;
        if (!(family[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || (found && (graphics || apart)))
            continue;
        found = true;
        apart = !graphics;
        a->family = i;
        a->stamp_bits = family[i].timestampValidBits;
    }
    lacks(a, found, "a queue for computing");
}

static void describe_device(vulkan_abilities *a) {
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    all.calls.GetPhysicalDeviceProperties2(a->physical, &p);
    a->properties = p.properties;
    lacks(a, p.properties.apiVersion >= VK_API_VERSION_1_2, "Vulkan 1.2: update its driver");
    read_memory(a);
    if (a->lacks[0]) return;
    read_features(a);
    read_properties(a);
    read_extensions(a);
    find_queue(a);
}

/* ---- the loader ------------------------------------------------------------------------------ */

#if defined(_WIN32)
static const char loader[] = "vulkan-1.dll", package[] = "a driver of the GPU's vendor";
#else
static const char loader[] = "libvulkan.so.1",
                  package[] = "it (Debian, Ubuntu: libvulkan1) and a driver (mesa-vulkan-drivers)";
#endif

static void open_loader(void) {
    void *handle = NULL;
    pi_error why;
    if (dynlib_open(loader, &handle, &why) != PI_OK) {
        error_set(&all.error, PI_ERR_NOT_FOUND, "no device: vulkan: no %s: install %s", loader,
                  package);
        return;
    }
    PFN_vkGetInstanceProcAddr address = (PFN_vkGetInstanceProcAddr)dynlib_symbol(
        handle, "vkGetInstanceProcAddr");
    bool whole = address != NULL;
    VkInstance instance = NULL;
#define FIND(name)                                                                                 \
    all.calls.name = whole ? (PFN_vk##name)address(instance, "vk" #name) : NULL;                   \
    whole = whole && all.calls.name;
    VULKAN_GLOBAL_CALLS(FIND)
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "PowerInfer",
                                           .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    if (!whole) {
        error_set(&all.error, PI_ERR_NOT_FOUND, "no device: vulkan: %s is older than Vulkan 1.1",
                  loader);
        return;
    }
    VkResult r = all.calls.CreateInstance(&info, NULL, &instance);
    if (r == VK_SUCCESS) {
        VULKAN_INSTANCE_CALLS(FIND)
        if (!whole) r = VK_ERROR_INCOMPATIBLE_DRIVER;
    }
#undef FIND
    VkPhysicalDevice physical[VULKAN_MAX_DEVICES];
    uint32_t n = VULKAN_MAX_DEVICES;
    if (r == VK_SUCCESS) r = all.calls.EnumeratePhysicalDevices(instance, &n, physical);
    if (r == VK_INCOMPLETE) r = VK_SUCCESS;
    if (r != VK_SUCCESS || n == 0) {
        error_set(&all.error, PI_ERR_NOT_FOUND, "no device: vulkan: %s",
                  r == VK_SUCCESS ? "none found" : vulkan_result_text(r));
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        all.device[i].physical = physical[i];
        describe_device(&all.device[i]);
    }
    all.n = (int)n;
}

void vulkan_lower_limits(void) {
    vulkan_find();
    for (int i = 0; i < all.n; i++) {
        vulkan_abilities *a = &all.device[i];
        const uint64_t least = (uint64_t)1 << 31;
        if (a->most_alloc > least) a->most_alloc = least;
        a->int_dot = false;
        a->import_align = 0;
    }
}

const vulkan_all *vulkan_find(void) {
    static os_once once;
    os_once_run(&once, open_loader);
    return &all;
}
