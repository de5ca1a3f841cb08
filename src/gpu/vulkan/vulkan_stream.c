/* vulkan_stream.c: streams, events, copies, launches and programs.
 *
 * All streams of a device share one queue, which runs submissions in their order; so what one
 * stream has submitted comes before what another submits later. Commands collect in a batch
 * (vulkan_commands.c), which is submitted when an event is recorded, a program is launched or the
 * stream is synchronized. */
#include <assert.h>
#include <string.h>

#include "vulkan.h"
#include "vulkan_ops.h"

enum {
    STAGING_BYTES = 64 << 10, /* of stored arguments, at a time */
    STAGING_ALIGN = 16,
    SYNC_NS = 100000000 /* between looks at a device that does not finish */
};

/* ---- batches --------------------------------------------------------------------------------- */

static void free_staging(gpu_device *d, vulkan_staging *s) {
    while (s) {
        vulkan_staging *next = s->next;
        vulkan_host_free(d, &s->memory);
        d->host->free(s);
        s = next;
    }
}

/* Makes the copies of a batch that is done; with `deliver` false drops them. Keeps one piece of
 * staging memory. */
static void clear_batch(gpu_device *d, vulkan_batch *b, bool deliver) {
    while (b->deliveries) {
        vulkan_delivery *c = b->deliveries;
        b->deliveries = c->next;
        if (deliver) memcpy(c->to, c->from, c->n_bytes);
        d->host->free(c);
    }
    if (b->staging) {
        free_staging(d, b->staging->next);
        b->staging->next = NULL;
        b->staging->used = 0;
    }
    b->n_listed = 0;
    b->n_ticks = 0;
}

static void free_batch(gpu_device *d, vulkan_batch *b) {
    clear_batch(d, b, false);
    free_staging(d, b->staging);
    d->host->free(b->list);
    d->slot->call.DestroyQueryPool(d->slot->device, b->ticks, NULL);
    b->staging = NULL;
}

/* Pinned memory of the batch, for the host to fill; NULL, and stuck: none. */
static void *take_staging(gpu_device *d, vulkan_batch *b, size_t n_bytes, void **device) {
    vulkan_staging *s = b->staging;
    if (!s || s->memory.n_bytes - s->used < n_bytes) {
        pi_error err;
        s = d->host->alloc(sizeof *s);
        if (s) *s = (vulkan_staging){.next = b->staging};
        const size_t size = n_bytes > STAGING_BYTES ? n_bytes : STAGING_BYTES;
        if (!s || vulkan_host_alloc(d, size, &s->memory, &err) != PI_OK) {
            d->host->free(s);
            vulkan_stick(d, VK_ERROR_OUT_OF_HOST_MEMORY, "no memory for a launch");
            return NULL;
        }
        b->staging = s;
    }
    void *host = (uint8_t *)s->memory.host + s->used;
    *device = (uint8_t *)s->memory.device + s->used;
    s->used += (n_bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    if (s->used > s->memory.n_bytes) s->used = s->memory.n_bytes;
    return host;
}

static VkResult make_commands(gpu_device *d, VkCommandPool pool, VkCommandBuffer *out) {
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    return d->slot->call.AllocateCommandBuffers(d->slot->device, &info, out);
}

static VkResult make_pool(gpu_device *d, VkCommandPool *out) {
    const VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = d->slot->can->family};
    return d->slot->call.CreateCommandPool(d->slot->device, &info, NULL, out);
}

/* Takes back the batches that are done. */
static void collect(gpu_stream *s) {
    gpu_device *d = s->device;
    uint64_t done = 0;
    if (!s->under_way) return;
    const VkResult r = d->slot->call.GetSemaphoreCounterValue(d->slot->device, s->semaphore, &done);
    vulkan_stick(d, r, "work on the device failed");
    if (r != VK_SUCCESS) return;
    while (s->under_way && s->under_way->value <= done) {
        vulkan_batch *b = s->under_way;
        s->under_way = b->next;
        clear_batch(d, b, true);
        b->next = s->spare;
        s->spare = b;
    }
}

/* The batch that takes commands now; NULL, and stuck: there is none. */
static vulkan_batch *batch_of(gpu_stream *s) {
    gpu_device *d = s->device;
    if (s->recording) return &s->recording->batch;
    if (s->open) return s->open;
    collect(s);
    vulkan_batch *b = s->spare;
    if (b) {
        s->spare = b->next;
        b->next = NULL;
    } else {
        b = d->host->alloc(sizeof *b);
        if (!b) {
            vulkan_stick(d, VK_ERROR_OUT_OF_HOST_MEMORY, "no memory for a launch");
            return NULL;
        }
        *b = (vulkan_batch){0};
        const VkResult r = make_commands(d, s->pool, &b->commands);
        if (r != VK_SUCCESS) {
            vulkan_stick(d, r, "cannot record commands");
            d->host->free(b);
            return NULL;
        }
    }
    return s->open = b;
}

/* Submits the open batch and then the program; either may be missing. */
static void submit(gpu_stream *s, const gpu_program *program) {
    gpu_device *d = s->device;
    vulkan_batch *b = s->open;
    VkCommandBuffer list[2];
    uint32_t n = 0;
    if (!b && !program) return;
    VkResult r = VK_SUCCESS;
    if (b) r = vulkan_commands_write(d, b, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
    if (b) list[n++] = b->commands;
    if (program) list[n++] = program->batch.commands;
    const uint64_t value = s->value + 1;
    const VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &values,
                               .commandBufferCount = n,
                               .pCommandBuffers = list,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &s->semaphore};
    if (r == VK_SUCCESS) {
        os_mutex_lock(&d->slot->mutex);
        r = d->slot->call.QueueSubmit(d->slot->queue, 1, &info, VK_NULL_HANDLE);
        os_mutex_unlock(&d->slot->mutex);
    }
    vulkan_stick(d, r, "cannot submit work");
    s->open = NULL;
    if (r == VK_SUCCESS) s->value = value;
    if (!b) return;
    b->value = s->value;
    b->next = NULL;
    if (!s->under_way)
        s->under_way = b;
    else
        s->last->next = b;
    s->last = b;
}

/* ---- streams --------------------------------------------------------------------------------- */

pi_status vulkan_stream_create(gpu_device *d, gpu_stream **out, pi_error *err) {
    const VkSemaphoreTypeCreateInfo timeline = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &timeline};
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    gpu_stream *s = d->host->alloc(sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "a stream");
    *s = (gpu_stream){.device = d};
    VkResult r = make_pool(d, &s->pool);
    if (r == VK_SUCCESS)
        r = d->slot->call.CreateSemaphore(d->slot->device, &info, NULL, &s->semaphore);
    if (r == VK_SUCCESS) {
        *out = s;
        return PI_OK;
    }
    vulkan_stream_destroy(s);
    return vulkan_error(err, r, "cannot create a stream");
}

/* Waits until the stream's last submission is done. */
static VkResult wait_idle(gpu_stream *s) {
    gpu_device *d = s->device;
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &s->semaphore,
                                      .pValues = &s->value};
    VkResult r = VK_SUCCESS;
    if (s->value == 0) return r;
    do r = d->slot->call.WaitSemaphores(d->slot->device, &info, SYNC_NS);
    while (r == VK_TIMEOUT && !d->slot->lost);
    return r == VK_TIMEOUT ? VK_ERROR_DEVICE_LOST : r;
}

static void free_batches(gpu_device *d, vulkan_batch *b) {
    while (b) {
        vulkan_batch *next = b->next;
        free_batch(d, b);
        d->host->free(b);
        b = next;
    }
}

void vulkan_stream_destroy(gpu_stream *s) {
    if (!s) return;
    gpu_device *d = s->device;
    vulkan_program_free(s->recording);
    s->recording = NULL;
    if (vulkan_alive(d)) submit(s, NULL);
    if (s->semaphore) vulkan_stick(d, wait_idle(s), "work on the device failed");
    if (s->semaphore) collect(s);
    free_batches(d, s->open);
    free_batches(d, s->under_way);
    free_batches(d, s->spare);
    d->slot->call.DestroySemaphore(d->slot->device, s->semaphore, NULL);
    d->slot->call.DestroyCommandPool(d->slot->device, s->pool, NULL);
    d->host->free(s);
}

pi_status vulkan_stream_sync(gpu_stream *s, pi_error *err) {
    gpu_device *d = s->device;
    if (vulkan_alive(d)) submit(s, NULL);
    vulkan_stick(d, wait_idle(s), "work on the device failed");
    collect(s);
    return vulkan_status(d, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

pi_status vulkan_event_create(gpu_device *d, gpu_event **out, pi_error *err) {
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 1};
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    gpu_event *e = d->host->alloc(sizeof *e);
    if (!e) return error_nomem(err, sizeof *e, "an event");
    *e = (gpu_event){.device = d};
    VkResult r = VK_SUCCESS;
    if (d->slot->can->stamp_bits)
        r = d->slot->call.CreateQueryPool(d->slot->device, &info, NULL, &e->query);
    if (r != VK_SUCCESS) {
        d->host->free(e);
        return vulkan_error(err, r, "cannot create an event");
    }
    *out = e;
    return PI_OK;
}

void vulkan_event_destroy(gpu_event *e) {
    if (!e) return;
    e->device->slot->call.DestroyQueryPool(e->device->slot->device, e->query, NULL);
    e->device->host->free(e);
}

void vulkan_event_record(gpu_stream *s, gpu_event *e) {
    gpu_device *d = s->device;
    assert(!s->recording);
    vulkan_batch *b = vulkan_alive(d) ? batch_of(s) : NULL;
    if (!b) return;
    const vulkan_command stamp = {.kind = VULKAN_TICK, .ticks = e->query};
    if (e->query && !vulkan_command_add(d, b, &stamp)) return;
    submit(s, NULL);
    e->semaphore = s->semaphore;
    e->value = s->value;
}

bool vulkan_event_done(gpu_event *e) {
    gpu_device *d = e->device;
    uint64_t value = 0;
    if (!e->semaphore || !vulkan_alive(d)) return true;
    const VkResult r = d->slot->call.GetSemaphoreCounterValue(d->slot->device, e->semaphore,
                                                              &value);
    vulkan_stick(d, r, "work on the device failed");
    return r != VK_SUCCESS || value >= e->value;
}

/* Both streams share the queue, and the event is submitted. */
void vulkan_stream_wait(gpu_stream *s, gpu_event *e) {
    (void)e;
    assert(!s->recording && s->device->slot == e->device->slot);
    if (vulkan_alive(s->device)) submit(s, NULL);
}

static bool stamp_of(gpu_event *e, uint64_t *ticks) {
    const vulkan_slot *slot = e->device->slot;
    return e->query && e->semaphore && vulkan_event_done(e) && vulkan_alive(e->device) &&
           slot->call.GetQueryPoolResults(slot->device, e->query, 0, 1, sizeof *ticks, ticks,
                                          sizeof *ticks, VK_QUERY_RESULT_64_BIT) == VK_SUCCESS;
}

double vulkan_event_elapsed(gpu_event *from, gpu_event *to) {
    const vulkan_abilities *can = from->device->slot->can;
    const uint64_t mask = can->stamp_bits < 64 ? ((uint64_t)1 << can->stamp_bits) - 1 : UINT64_MAX;
    uint64_t a, b;
    if (!stamp_of(from, &a) || !stamp_of(to, &b)) return -1;
    return (double)((b - a) & mask) * (double)can->properties.limits.timestampPeriod * 1e-6;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void launch(gpu_stream *s, vulkan_kernel k, const vulkan_variant *v, const void *args,
                   size_t n_args, const int64_t groups[3], bool beside) {
    gpu_device *d = s->device;
    vulkan_command c = {.kind = VULKAN_DISPATCH, .beside = beside};
    for (int i = 0; i < 3; i++) {
        assert(groups[i] >= 0 && groups[i] <= VULKAN_MOST_GROUPS);
        c.groups[i] = (uint32_t)groups[i];
    }
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0 || !vulkan_tick(d)) return;
    vulkan_batch *b = batch_of(s);
    if (!b) return;
    if (n_args > PUSHED_BYTES) {
        void *device, *host = take_staging(d, b, n_args, &device);
        if (!host) return;
        memcpy(host, args, n_args);
        memcpy(c.args, &device, sizeof device);
        c.n_args = sizeof device;
    } else {
        memcpy(c.args, args, n_args);
        c.n_args = (uint32_t)n_args;
    }
    os_mutex_lock(&d->slot->mutex);
    const VkResult r = vulkan_pipeline_number(d->slot, k, v, &c.pipeline);
    d->slot->n_dispatches++;
    os_mutex_unlock(&d->slot->mutex);
    vulkan_stick(d, r, "cannot make a pipeline");
    if (r == VK_SUCCESS) vulkan_command_add(d, b, &c);
}

void vulkan_dispatch(gpu_stream *s, vulkan_kernel k, vulkan_variant v, const void *args,
                     size_t n_args, int64_t x, int64_t y, int64_t z) {
    const int64_t groups[3] = {x, y, z};
    launch(s, k, &v, args, n_args, groups, false);
}

void vulkan_dispatch_beside(gpu_stream *s, vulkan_kernel k, vulkan_variant v, const void *args,
                            size_t n_args, int64_t x, int64_t y, int64_t z) {
    const int64_t groups[3] = {x, y, z};
    launch(s, k, &v, args, n_args, groups, true);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy_buffer(gpu_stream *s, vulkan_batch *b, VkBuffer from, uint64_t from_at,
                        VkBuffer to, uint64_t to_at, size_t n_bytes) {
    const vulkan_command copy = {.kind = VULKAN_COPY,
                                 .from = from,
                                 .to = to,
                                 .from_at = from_at,
                                 .to_at = to_at,
                                 .n_bytes = n_bytes};
    vulkan_command_add(s->device, b, &copy);
}

static void bad_address(gpu_stream *s) {
    pi_error err;
    assert(!"not memory of the device");
    vulkan_error(&err, VK_ERROR_UNKNOWN, "not memory of the device");
    vulkan_stick(s->device, VK_ERROR_UNKNOWN, "not memory of the device");
}

void vulkan_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes) {
    gpu_device *d = s->device;
    VkBuffer from, to;
    uint64_t from_at, to_at;
    if (n_bytes == 0 || !vulkan_tick(d)) return;
    vulkan_batch *b = batch_of(s);
    if (!b) return;
    if (!vulkan_find_host(d->slot, host, n_bytes, &from, &from_at)) {
        void *stage_device, *stage = take_staging(d, b, n_bytes, &stage_device);
        assert(!s->recording); /* programs read pinned memory at each launch */
        if (!stage) return;
        memcpy(stage, host, n_bytes);
        if (!vulkan_find_host(d->slot, stage, n_bytes, &from, &from_at)) return;
    }
    if (vulkan_find_device(d->slot, device, n_bytes, &to, &to_at))
        copy_buffer(s, b, from, from_at, to, to_at, n_bytes);
    else
        bad_address(s);
}

void vulkan_download(gpu_stream *s, void *host, const void *device, size_t n_bytes) {
    gpu_device *d = s->device;
    VkBuffer from, to;
    uint64_t from_at, to_at;
    if (n_bytes == 0 || !vulkan_tick(d)) return;
    vulkan_batch *b = batch_of(s);
    if (!b) return;
    if (!vulkan_find_host(d->slot, host, n_bytes, &to, &to_at)) {
        void *stage_device, *stage = take_staging(d, b, n_bytes, &stage_device);
        vulkan_delivery *c = stage ? d->host->alloc(sizeof *c) : NULL;
        assert(!s->recording);
        if (!c) {
            vulkan_stick(d, VK_ERROR_OUT_OF_HOST_MEMORY, "no memory for a copy");
            return;
        }
        *c = (vulkan_delivery){
            .to = host, .from = stage, .n_bytes = n_bytes, .next = b->deliveries};
        b->deliveries = c;
        if (!vulkan_find_host(d->slot, stage, n_bytes, &to, &to_at)) return;
    }
    if (vulkan_find_device(d->slot, device, n_bytes, &from, &from_at))
        copy_buffer(s, b, from, from_at, to, to_at, n_bytes);
    else
        bad_address(s);
}

void vulkan_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes) {
    gpu_device *d = s->device;
    VkBuffer from, to;
    uint64_t from_at, to_at;
    if (n_bytes == 0 || !vulkan_tick(d)) return;
    vulkan_batch *b = batch_of(s);
    if (!b) return;
    if (vulkan_find_device(d->slot, device_from, n_bytes, &from, &from_at) &&
        vulkan_find_device(d->slot, device_to, n_bytes, &to, &to_at))
        copy_buffer(s, b, from, from_at, to, to_at, n_bytes);
    else
        bad_address(s);
}

/* The driver fills whole words, a shader the bytes before and behind them. */
void vulkan_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes) {
    gpu_device *d = s->device;
    const uintptr_t begin = (uintptr_t)device, end = begin + n_bytes;
    const uintptr_t first = (begin + 3) / 4 * 4 < end ? (begin + 3) / 4 * 4 : end,
                    last = end / 4 * 4 > first ? end / 4 * 4 : first;
    VkBuffer buffer;
    uint64_t at;
    if (n_bytes == 0 || !vulkan_tick(d)) return;
    vulkan_batch *b = batch_of(s);
    if (!b) return;
    if (!vulkan_find_device(d->slot, device, n_bytes, &buffer, &at)) {
        bad_address(s);
        return;
    }
    const vulkan_command words = {.kind = VULKAN_FILL_WORDS,
                                  .to = buffer,
                                  .to_at = at + (first - begin),
                                  .n_bytes = last - first,
                                  .word = value * 0x01010101u};
    if (last > first && !vulkan_command_add(d, b, &words)) return;
    const vulkan_fill_args edges = {.at = {begin, last},
                                    .n = {(uint32_t)(first - begin), (uint32_t)(end - last)},
                                    .value = value};
    if (edges.n[0] + edges.n[1] > 0)
        vulkan_dispatch(s, VULKAN_FILL, (vulkan_variant){0}, &edges, sizeof edges, 1, 1, 1);
}

/* A batch without further queries has no time for further stamps. */
bool vulkan_stream_ticks(gpu_stream *s, uint64_t *to) {
    gpu_device *d = s->device;
    const vulkan_calls *call = &d->slot->call;
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = VULKAN_STAMPS};
    VkBuffer buffer;
    uint64_t at;
    vulkan_batch *b = d->slot->can->stamp_bits && vulkan_alive(d) ? batch_of(s) : NULL;
    if (!b || b->n_ticks == VULKAN_STAMPS) return false;
    if (!b->ticks && call->CreateQueryPool(d->slot->device, &info, NULL, &b->ticks) != VK_SUCCESS)
        return false;
    if (!vulkan_find_device(d->slot, to, sizeof *to, &buffer, &at)) return false;
    const vulkan_command stamp = {
        .kind = VULKAN_TICK, .to = buffer, .to_at = at, .ticks = b->ticks, .tick = b->n_ticks++};
    return vulkan_command_add(d, b, &stamp);
}

/* ---- programs -------------------------------------------------------------------------------- */

pi_status vulkan_record_begin(gpu_stream *s, pi_error *err) {
    gpu_device *d = s->device;
    if (s->recording)
        return error_set(err, PI_ERR_ARG, "a program is being recorded already: end it first");
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    gpu_program *p = d->host->alloc(sizeof *p);
    if (!p) return error_nomem(err, sizeof *p, "a program");
    *p = (gpu_program){.device = d};
    VkResult r = make_pool(d, &p->pool);
    if (r == VK_SUCCESS) r = make_commands(d, p->pool, &p->batch.commands);
    if (r != VK_SUCCESS) {
        vulkan_program_free(p);
        return vulkan_error(err, r, "cannot record a program");
    }
    s->recording = p;
    return PI_OK;
}

pi_status vulkan_record_end(gpu_stream *s, gpu_program **out, pi_error *err) {
    gpu_device *d = s->device;
    gpu_program *p = s->recording;
    if (!p) return error_set(err, PI_ERR_ARG, "no program is being recorded: begin one");
    s->recording = NULL;
    pi_status status = vulkan_status(d, err); /* of what was enqueued */
    const VkResult r = status == PI_OK
                           ? vulkan_commands_write(d, &p->batch,
                                                   VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT)
                           : VK_SUCCESS;
    if (r != VK_SUCCESS) status = vulkan_error(err, r, "cannot record a program");
    d->host->free(p->batch.list);
    p->batch.list = NULL;
    p->batch.max_listed = 0;
    if (status == PI_OK)
        *out = p;
    else
        vulkan_program_free(p);
    return status;
}

void vulkan_program_launch(gpu_stream *s, gpu_program *p) {
    if (vulkan_tick(s->device)) submit(s, p);
}

void vulkan_program_free(gpu_program *p) {
    if (!p) return;
    gpu_device *d = p->device;
    free_batch(d, &p->batch);
    d->slot->call.DestroyCommandPool(d->slot->device, p->pool, NULL);
    d->host->free(p);
}
