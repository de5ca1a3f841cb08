/* vulkan_commands.c: the commands of a batch. They are a list until the batch is submitted or the
 * program's recording ends: only then all pipelines that they use are known, and those that do not
 * exist yet are made in parallel. Every command waits for all earlier ones by a barrier, unless it
 * may run together with the one before. */
#include <string.h>

#include "vulkan.h"
#include "vulkan_ops.h"

bool vulkan_command_add(gpu_device *d, vulkan_batch *b, const vulkan_command *c) {
    if (b->n_listed == b->max_listed) {
        const size_t max = b->max_listed ? 2 * b->max_listed : 64;
        vulkan_command *more = d->host->alloc(max * sizeof *more);
        if (!more) {
            vulkan_stick(d, VK_ERROR_OUT_OF_HOST_MEMORY, "no memory for commands");
            return false;
        }
        if (b->n_listed) memcpy(more, b->list, b->n_listed * sizeof *more);
        d->host->free(b->list);
        b->list = more;
        b->max_listed = max;
    }
    b->list[b->n_listed++] = *c;
    return true;
}

/* What follows sees everything before; with `host` also the host does, after the semaphore. */
static void barrier(const vulkan_calls *call, VkCommandBuffer to, bool host) {
    const VkPipelineStageFlags work = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
                                      VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkMemoryBarrier all = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = host ? VK_ACCESS_HOST_READ_BIT
                              : VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                    VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    call->CmdPipelineBarrier(to, work, host ? VK_PIPELINE_STAGE_HOST_BIT : work, 0, 1, &all, 0,
                             NULL, 0, NULL);
}

/* pipeline: of a dispatch. */
static void write_command(const vulkan_slot *slot, const vulkan_command *c, VkPipeline pipeline,
                          VkCommandBuffer to) {
    const vulkan_calls *call = &slot->call;
    const VkBufferCopy part = {.srcOffset = c->from_at, .dstOffset = c->to_at, .size = c->n_bytes};
    if (c->kind == VULKAN_TICK) call->CmdResetQueryPool(to, c->ticks, c->tick, 1);
    if (!c->beside) barrier(call, to, false);
    switch (c->kind) {
    case VULKAN_DISPATCH:
        call->CmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        call->CmdPushConstants(to, slot->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, c->n_args,
                               c->args);
        call->CmdDispatch(to, c->groups[0], c->groups[1], c->groups[2]);
        break;
    case VULKAN_COPY:
        call->CmdCopyBuffer(to, c->from, c->to, 1, &part);
        break;
    case VULKAN_FILL_WORDS:
        call->CmdFillBuffer(to, c->to, c->to_at, c->n_bytes, c->word);
        break;
    case VULKAN_TICK:
        call->CmdWriteTimestamp(to, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, c->ticks, c->tick);
        if (c->to)
            call->CmdCopyQueryPoolResults(to, c->ticks, c->tick, 1, c->to, c->to_at,
                                          sizeof(uint64_t),
                                          VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        break;
    }
}

VkResult vulkan_commands_write(gpu_device *d, vulkan_batch *b, VkCommandBufferUsageFlags flags) {
    vulkan_slot *slot = d->slot;
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = flags};
    VkResult r = slot->call.BeginCommandBuffer(b->commands, &info);
    if (r != VK_SUCCESS) return r;
    os_mutex_lock(&slot->mutex);
    r = vulkan_pipelines_make(slot);
    if (r == VK_SUCCESS) { /* the end of all push constants (args.h) */
        slot->call.CmdPushConstants(b->commands, slot->layout, VK_SHADER_STAGE_COMPUTE_BIT,
                                    PUSHED_BYTES, sizeof slot->books, &slot->books);
        for (size_t i = 0; i < b->n_listed; i++) {
            const vulkan_command *c = &b->list[i];
            const bool dispatches = c->kind == VULKAN_DISPATCH;
            write_command(slot, c,
                          dispatches ? slot->pipelines[c->pipeline].pipeline : VK_NULL_HANDLE,
                          b->commands);
        }
    }
    os_mutex_unlock(&slot->mutex);
    b->n_listed = 0;
    if (r != VK_SUCCESS) return r;
    barrier(&slot->call, b->commands, true);
    return slot->call.EndCommandBuffer(b->commands);
}
