/* vulkan_pipelines.c: a pipeline for each combination of shader and specialization constants in
 * use. An operation that is enqueued for the first time adds one to a list; before its commands are
 * written, the pipelines of the list are made by several threads. They live as long as the logical
 * device. */
#include <stdatomic.h>
#include <string.h>

#include "mem.h"
#include "vulkan.h"
#include "vulkan_shaders.h"

static const uint32_t threads_of[] = {
#define THREADS(name, NAME, threads) threads,
    VULKAN_KERNELS(THREADS)
#undef THREADS
};

static VkResult make_module(vulkan_slot *slot, vulkan_kernel k) {
    const vulkan_shader *shader = &vulkan_shaders[k];
    const bool dot = slot->can->int_dot && shader->dot_begin;
    const uint8_t *begin = dot ? shader->dot_begin : shader->begin,
                  *end = dot ? shader->dot_end : shader->end;
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize = (size_t)(end - begin),
                                           .pCode = (const uint32_t *)(const void *)begin};
    return slot->call.CreateShaderModule(slot->device, &info, NULL, &slot->modules[k]);
}

static VkResult make_pipeline(vulkan_slot *slot, vulkan_kernel k, const vulkan_variant *v,
                              VkPipeline *out) {
    const uint32_t values[] = {threads_of[k], v->weights, v->cols, v->way};
    enum { N = sizeof values / sizeof *values };
    VkSpecializationMapEntry entries[N];
    for (uint32_t i = 0; i < N; i++)
        entries[i] = (VkSpecializationMapEntry){
            .constantID = i, .offset = i * (uint32_t)sizeof *values, .size = sizeof *values};
    const VkSpecializationInfo constants = {
        .mapEntryCount = N, .pMapEntries = entries, .dataSize = sizeof values, .pData = values};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT lanes = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = slot->can->lanes};
    const bool chosen = slot->can->least_lanes != slot->can->most_lanes;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = chosen ? &lanes : NULL,
                  .flags = chosen ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT
                                  : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = slot->modules[k],
                  .pName = "main",
                  .pSpecializationInfo = &constants},
        .layout = slot->layout};
    return slot->call.CreateComputePipelines(slot->device, slot->cache, 1, &info, NULL, out);
}

VkResult vulkan_pipeline_number(vulkan_slot *slot, vulkan_kernel k, const vulkan_variant *v,
                                size_t *out) {
    for (*out = 0; *out < slot->n_pipelines; ++*out) {
        const vulkan_pipeline *p = &slot->pipelines[*out];
        if (p->kernel == k && memcmp(&p->variant, v, sizeof *v) == 0) return VK_SUCCESS;
    }
    if (slot->n_pipelines == slot->max_pipelines) {
        const size_t max = slot->max_pipelines ? 2 * slot->max_pipelines : 64;
        vulkan_pipeline *more = slot->host->alloc(max * sizeof *more);
        if (!more) return VK_ERROR_OUT_OF_HOST_MEMORY;
        if (slot->n_pipelines) memcpy(more, slot->pipelines, slot->n_pipelines * sizeof *more);
        slot->host->free(slot->pipelines);
        slot->pipelines = more;
        slot->max_pipelines = max;
    }
    slot->pipelines[slot->n_pipelines++] = (vulkan_pipeline){.kernel = k, .variant = *v};
    return VK_SUCCESS;
}

/* Threads that make pipelines [n_made, n_pipelines). */
typedef struct making {
    vulkan_slot *slot;
    atomic_size_t next;
    atomic_int result; /* of one that failed, or VK_SUCCESS */
} making;

static void make_some(void *arg) {
    making *m = arg;
    for (size_t i; (i = atomic_fetch_add(&m->next, 1)) < m->slot->n_pipelines;) {
        vulkan_pipeline *p = &m->slot->pipelines[i];
        if (p->pipeline) continue; /* another failed at the last attempt */
        const VkResult r = make_pipeline(m->slot, p->kernel, &p->variant, &p->pipeline);
        if (r != VK_SUCCESS) atomic_store(&m->result, (int)r);
    }
}

VkResult vulkan_pipelines_make(vulkan_slot *slot) {
    enum { MOST = 8 };
    os_thread threads[MOST - 1];
    size_t n_threads = 0;
    VkResult r = VK_SUCCESS;
    for (size_t i = slot->n_made; i < slot->n_pipelines && r == VK_SUCCESS; i++) {
        const vulkan_kernel k = slot->pipelines[i].kernel;
        if (!slot->modules[k]) r = make_module(slot, k);
    }
    if (r != VK_SUCCESS) return r;
    making m = {.slot = slot, .next = slot->n_made, .result = VK_SUCCESS};
    while (n_threads < MOST - 1 && slot->n_made + n_threads + 1 < slot->n_pipelines &&
           os_thread_start(&threads[n_threads], make_some, &m) == 0)
        n_threads++;
    make_some(&m);
    while (n_threads > 0) os_thread_join(&threads[--n_threads]);
    r = (VkResult)atomic_load(&m.result);
    if (r == VK_SUCCESS) slot->n_made = slot->n_pipelines;
    return r;
}

pi_status vulkan_pipelines_open(vulkan_slot *slot, pi_error *err) {
    const VkPushConstantRange pushed = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                        .size = PUSHED_BYTES + sizeof slot->books};
    const VkPipelineLayoutCreateInfo layout = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &pushed};
    char *data;
    VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                       .initialDataSize = vulkan_cache_read(slot, &data)};
    cache.pInitialData = data;
    VkResult r = slot->call.CreatePipelineLayout(slot->device, &layout, NULL, &slot->layout);
    if (r == VK_SUCCESS)
        r = slot->call.CreatePipelineCache(slot->device, &cache, NULL, &slot->cache);
    mem_free(data);
    return r == VK_SUCCESS ? PI_OK : vulkan_error(err, r, "cannot make pipelines");
}

void vulkan_pipelines_close(vulkan_slot *slot) {
    for (size_t i = 0; i < slot->n_pipelines; i++)
        slot->call.DestroyPipeline(slot->device, slot->pipelines[i].pipeline, NULL);
    for (int k = 0; k < VULKAN_KERNEL_COUNT; k++)
        slot->call.DestroyShaderModule(slot->device, slot->modules[k], NULL);
    slot->call.DestroyPipelineCache(slot->device, slot->cache, NULL);
    slot->call.DestroyPipelineLayout(slot->device, slot->layout, NULL);
    slot->host->free(slot->pipelines);
}
