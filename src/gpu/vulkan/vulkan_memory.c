/* vulkan_memory.c: device memory and pinned memory. Drivers allow few allocations, some only 4,096:
 * so device memory is handed out from chunks, each with one buffer over all of it. A large piece
 * has a chunk to itself. Each pinned or imported piece also has its own chunk. */
#include <stdio.h>
#include <string.h>

#include "vulkan.h"

enum {
    ALIGN = 256,
    PAGE = 4096,
    ROW = 16, /* GPU_ROW_ALIGN: rows are read by 16-byte loads */
    CHUNK_BYTES = 32 << 20,
    OWN_BYTES = 8 << 20, /* pieces from this size on have their own chunk */
};

/* ---- chunks ---------------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t n, uint64_t align) {
    return (n + align - 1) / align * align;
}

/* A type of memory with all of `needs` and, if there is one, `wants`; -1: none. */
static int find_type(const vulkan_abilities *can, uint32_t allowed, VkMemoryPropertyFlags needs,
                     VkMemoryPropertyFlags wants) {
    int found = -1;
    for (uint32_t i = 0; i < can->memory.memoryTypeCount; i++) {
        const VkMemoryPropertyFlags has = can->memory.memoryTypes[i].propertyFlags;
        if (!(allowed >> i & 1) || (has & needs) != needs) continue;
        if ((has & wants) == wants) return (int)i;
        if (found < 0) found = (int)i;
    }
    return found;
}

static void free_chunk(vulkan_slot *slot, vulkan_chunk *c) {
    while (c->blocks) {
        vulkan_block *b = c->blocks;
        c->blocks = b->next;
        slot->host->free(b);
    }
    slot->call.DestroyBuffer(slot->device, c->buffer, NULL);
    slot->call.FreeMemory(slot->device, c->memory, NULL); /* also unmaps it */
    slot->host->free(c);
}

/* Creates a chunk of n_bytes, not yet in the list. host_pages not NULL: imports that memory. */
static VkResult make_chunk(vulkan_slot *slot, uint64_t n_bytes, bool pinned, void *host_pages,
                           vulkan_chunk **out) {
    const VkExternalMemoryHandleTypeFlagBits from_host =
        VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = from_host};
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = host_pages ? &external : NULL,
        .size = n_bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    const VkImportMemoryHostPointerInfoEXT pages = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = from_host,
        .pHostPointer = host_pages};
    const VkMemoryAllocateFlagsInfo addresses = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .pNext = host_pages ? &pages : NULL,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                       VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkMemoryRequirements needs;
    *out = NULL;
    if (n_bytes > slot->can->most_alloc) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    vulkan_chunk *c = slot->host->alloc(sizeof *c);
    if (!c) return VK_ERROR_OUT_OF_HOST_MEMORY;
    *c = (vulkan_chunk){.n_bytes = n_bytes};
    VkResult r = slot->call.CreateBuffer(slot->device, &info, NULL, &c->buffer);
    if (r == VK_SUCCESS) {
        slot->call.GetBufferMemoryRequirements(slot->device, c->buffer, &needs);
        VkMemoryHostPointerPropertiesEXT found = {
            .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT,
            .memoryTypeBits = UINT32_MAX};
        if (host_pages &&
            slot->host_pointer(slot->device, from_host, host_pages, &found) != VK_SUCCESS)
            found.memoryTypeBits = 0;
        const int type = find_type(slot->can, needs.memoryTypeBits & found.memoryTypeBits,
                                   pinned       ? host
                                   : host_pages ? 0
                                                : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                   pinned ? VK_MEMORY_PROPERTY_HOST_CACHED_BIT : 0);
        const VkMemoryAllocateInfo alloc = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                            .pNext = &addresses,
                                            .allocationSize = host_pages ? n_bytes : needs.size,
                                            .memoryTypeIndex = (uint32_t)type};
        r = type < 0 ? VK_ERROR_OUT_OF_DEVICE_MEMORY
                     : slot->call.AllocateMemory(slot->device, &alloc, NULL, &c->memory);
    }
    if (r == VK_SUCCESS) r = slot->call.BindBufferMemory(slot->device, c->buffer, c->memory, 0);
    if (r == VK_SUCCESS && pinned) {
        void *p = NULL;
        r = slot->call.MapMemory(slot->device, c->memory, 0, VK_WHOLE_SIZE, 0, &p);
        c->host = p;
    }
    if (r != VK_SUCCESS) {
        free_chunk(slot, c);
        return r;
    }
    const VkBufferDeviceAddressInfo address = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = c->buffer};
    c->address = slot->call.GetBufferDeviceAddress(slot->device, &address);
    *out = c;
    return VK_SUCCESS;
}

static void list_chunk(vulkan_slot *slot, vulkan_chunk *c) {
    c->next = slot->chunks;
    slot->chunks = c;
}

static void drop_chunk(vulkan_slot *slot, vulkan_chunk *c) {
    vulkan_chunk **at = &slot->chunks;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    free_chunk(slot, c);
}

void vulkan_free_chunks(vulkan_slot *slot) {
    while (slot->chunks) drop_chunk(slot, slot->chunks);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static vulkan_block *make_block(vulkan_slot *slot, uint64_t at, uint64_t n_bytes) {
    vulkan_block *b = slot->host->alloc(sizeof *b);
    if (b) *b = (vulkan_block){.at = at, .n_bytes = n_bytes};
    return b;
}

/* Takes n_bytes of a free block; the rest stays free. False: no memory for the list. */
static bool split_block(vulkan_slot *slot, vulkan_block *b, uint64_t n_bytes) {
    if (b->n_bytes > n_bytes) {
        vulkan_block *rest = make_block(slot, b->at + n_bytes, b->n_bytes - n_bytes);
        if (!rest) return false;
        rest->next = b->next;
        b->next = rest;
        b->n_bytes = n_bytes;
    }
    b->used = true;
    return true;
}

/* From the chunks there are, the first that fits; NULL: none does. */
static vulkan_block *find_block(const vulkan_slot *slot, uint64_t n_bytes) {
    for (const vulkan_chunk *c = slot->chunks; c; c = c->next)
        for (vulkan_block *b = c->blocks; b; b = b->next)
            if (!b->used && b->n_bytes >= n_bytes) return b;
    return NULL;
}

static VkResult take(vulkan_slot *slot, uint64_t n_bytes, uint64_t *address) {
    const bool own = n_bytes >= OWN_BYTES;
    vulkan_block *b = own ? NULL : find_block(slot, n_bytes);
    if (b) {
        *address = b->at;
        return split_block(slot, b, n_bytes) ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    uint64_t size = own ? n_bytes : CHUNK_BYTES;
    vulkan_chunk *c;
    VkResult r = make_chunk(slot, size + ALIGN, false, NULL, &c);
    if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY && !own) { /* little memory is left */
        size = n_bytes;
        r = make_chunk(slot, size + ALIGN, false, NULL, &c);
    }
    if (r != VK_SUCCESS) return r;
    c->blocks = make_block(slot, align_up(c->address, ALIGN), size);
    if (!c->blocks || !split_block(slot, c->blocks, n_bytes)) {
        free_chunk(slot, c);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    list_chunk(slot, c);
    *address = c->blocks->at;
    return VK_SUCCESS;
}

VkResult vulkan_slot_alloc(vulkan_slot *slot, uint64_t n_bytes, uint64_t *address) {
    return take(slot, align_up(n_bytes, ALIGN), address);
}

/* The bytes of the block that began at the address; 0: there is none. */
static uint64_t give_back(vulkan_slot *slot, uint64_t address) {
    for (vulkan_chunk *c = slot->chunks; c; c = c->next) {
        if (address < c->address || address - c->address >= c->n_bytes) continue;
        vulkan_block *b = c->blocks;
        while (b && !(b->used && b->at == address)) b = b->next;
        if (!b) continue; /* imported ranges may share a page */
        const uint64_t n_bytes = b->n_bytes;
        b->used = false;
        for (vulkan_block *i = c->blocks; i; i = i->next) {
            while (!i->used && i->next && !i->next->used) {
                vulkan_block *rest = i->next;
                i->n_bytes += rest->n_bytes;
                i->next = rest->next;
                slot->host->free(rest);
            }
        }
        if (!c->blocks->used && !c->blocks->next) drop_chunk(slot, c);
        return n_bytes;
    }
    return 0;
}

/* ---- device memory --------------------------------------------------------------------------- */

static bool reserve(gpu_device *d, uint64_t n_bytes) {
    os_mutex_lock(&d->mutex);
    const bool fits = !d->limit || (d->used <= d->limit && n_bytes <= d->limit - d->used);
    if (fits) d->used += n_bytes;
    os_mutex_unlock(&d->mutex);
    return fits;
}

static void unreserve(gpu_device *d, uint64_t n_bytes) {
    os_mutex_lock(&d->mutex);
    d->used -= n_bytes;
    os_mutex_unlock(&d->mutex);
}

pi_status vulkan_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out, pi_error *err) {
    const uint64_t size = align_up(n_bytes ? n_bytes : 1, ALIGN);
    uint64_t address = 0;
    *out = NULL;
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    if (n_bytes > d->slot->can->most_alloc)
        return error_set(err, PI_ERR_NOMEM,
                         "out of device memory: %s: %zu bytes, vulkan allocates at most %llu at a "
                         "time here",
                         what, n_bytes, (unsigned long long)d->slot->can->most_alloc);
    VkResult r = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (reserve(d, size)) {
        os_mutex_lock(&d->slot->mutex);
        r = take(d->slot, size, &address);
        os_mutex_unlock(&d->slot->mutex);
        if (r != VK_SUCCESS) unreserve(d, size);
    }
    *out = (void *)(uintptr_t)address;
    if (r == VK_SUCCESS) return PI_OK;
    if (r != VK_ERROR_OUT_OF_DEVICE_MEMORY && r != VK_ERROR_OUT_OF_HOST_MEMORY)
        return vulkan_error(err, r, what);
    return error_set(err, PI_ERR_NOMEM, "out of device memory: %s: %zu bytes asked of vulkan", what,
                     n_bytes);
}

void vulkan_free(gpu_device *d, void *p) {
    if (!p) return;
    os_mutex_lock(&d->slot->mutex);
    const uint64_t n_bytes = give_back(d->slot, (uint64_t)(uintptr_t)p);
    os_mutex_unlock(&d->slot->mutex);
    if (n_bytes) unreserve(d, n_bytes);
}

/* Imports the pages that hold the bytes. The driver refuses memory that its GPU cannot map. */
pi_status vulkan_import(gpu_device *d, const void *host, size_t n_bytes, const char *what,
                        void **out, pi_error *err) {
    vulkan_slot *slot = d->slot;
    const uint64_t align = slot->can->import_align, size = align_up(n_bytes ? n_bytes : 1, ALIGN);
    vulkan_chunk *c = NULL;
    *out = NULL;
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    if (!slot->host_pointer || !slot->can->unified || align > PAGE || (uintptr_t)host % ROW != 0)
        return error_set(err, PI_ERR_UNSUPPORTED, "cannot be imported: %s", what);
    if (!reserve(d, size))
        return error_set(err, PI_ERR_NOMEM, "out of device memory: %s: %zu bytes", what, n_bytes);
    const uintptr_t begin = (uintptr_t)host / PAGE * PAGE;
    const uint64_t skip = (uintptr_t)host - begin;
    os_mutex_lock(&slot->mutex);
    VkResult r = make_chunk(slot, align_up(skip + n_bytes, PAGE), false, (void *)begin, &c);
    if (r == VK_SUCCESS) c->blocks = make_block(slot, c->address + skip, size);
    if (r == VK_SUCCESS && !c->blocks) {
        free_chunk(slot, c);
        r = VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (r == VK_SUCCESS) {
        c->blocks->used = true;
        list_chunk(slot, c);
        *out = (void *)(uintptr_t)c->blocks->at;
    }
    os_mutex_unlock(&slot->mutex);
    if (r == VK_SUCCESS) return PI_OK;
    unreserve(d, size);
    return error_set(err, PI_ERR_UNSUPPORTED, "cannot be imported: %s: vulkan: %s (%d)", what,
                     vulkan_result_text(r), (int)r);
}

uint64_t vulkan_free_bytes(const vulkan_abilities *can, uint64_t *total) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 m = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = can->budget ? &budget : NULL};
    uint32_t heap = 0;
    *total = 0;
    for (uint32_t i = 0; i < can->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *h = &can->memory.memoryHeaps[i];
        if (!(h->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || h->size <= *total) continue;
        *total = h->size;
        heap = i;
    }
    if (!can->budget) return *total;
    vulkan_find()->calls.GetPhysicalDeviceMemoryProperties2(can->physical, &m);
    const uint64_t most = budget.heapBudget[heap], used = budget.heapUsage[heap];
    return most > used ? most - used : 0;
}

pi_status vulkan_memory(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes, pi_error *err) {
    uint64_t total, available = vulkan_free_bytes(d->slot->can, &total);
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    os_mutex_lock(&d->mutex);
    if (!d->slot->can->budget) available = available > d->used ? available - d->used : 0;
    const uint64_t room = !d->limit ? available : d->used < d->limit ? d->limit - d->used : 0;
    *free_bytes = room < available ? room : available;
    *total_bytes = d->limit && d->limit < total ? d->limit : total;
    os_mutex_unlock(&d->mutex);
    return PI_OK;
}

/* ---- pinned memory --------------------------------------------------------------------------- */

pi_status vulkan_host_alloc(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err) {
    vulkan_slot *slot = d->slot;
    vulkan_chunk *c = NULL;
    *out = (gpu_pinned){0};
    if (!vulkan_alive(d)) return vulkan_status(d, err);
    os_mutex_lock(&slot->mutex);
    const VkResult r = make_chunk(slot, align_up(n_bytes ? n_bytes : 1, PAGE) + PAGE, true, NULL,
                                  &c);
    if (r == VK_SUCCESS) list_chunk(slot, c);
    os_mutex_unlock(&slot->mutex);
    if (r != VK_SUCCESS) return vulkan_error(err, r, "cannot pin memory");
    const size_t skip = (size_t)(align_up((uintptr_t)c->host, PAGE) - (uintptr_t)c->host);
    out->host = c->host + skip;
    out->device = (void *)(uintptr_t)(c->address + skip);
    out->n_bytes = n_bytes;
    memset(out->host, 0, n_bytes);
    return PI_OK;
}

void vulkan_host_free(gpu_device *d, gpu_pinned *p) {
    vulkan_slot *slot = d->slot;
    const uint8_t *host = p->host;
    if (!host) return;
    os_mutex_lock(&slot->mutex);
    vulkan_chunk *c = slot->chunks;
    while (c && !(c->host && host >= c->host && host < c->host + c->n_bytes)) c = c->next;
    if (c) drop_chunk(slot, c);
    os_mutex_unlock(&slot->mutex);
    *p = (gpu_pinned){0};
}

/* ---- addresses ------------------------------------------------------------------------------- */

bool vulkan_find_device(vulkan_slot *slot, const void *p, size_t n_bytes, VkBuffer *buffer,
                        uint64_t *at) {
    const uint64_t address = (uint64_t)(uintptr_t)p;
    os_mutex_lock(&slot->mutex);
    vulkan_chunk *c = slot->chunks;
    while (c && !(address >= c->address && address - c->address <= c->n_bytes &&
                  n_bytes <= c->n_bytes - (address - c->address)))
        c = c->next;
    if (c) *buffer = c->buffer;
    if (c) *at = address - c->address;
    os_mutex_unlock(&slot->mutex);
    return c != NULL;
}

bool vulkan_find_host(vulkan_slot *slot, const void *p, size_t n_bytes, VkBuffer *buffer,
                      uint64_t *at) {
    const uint8_t *host = p;
    os_mutex_lock(&slot->mutex);
    vulkan_chunk *c = slot->chunks;
    while (c && !(c->host && host >= c->host && host <= c->host + c->n_bytes &&
                  n_bytes <= (size_t)(c->host + c->n_bytes - host)))
        c = c->next;
    if (c) *buffer = c->buffer;
    if (c) *at = (uint64_t)(host - c->host);
    os_mutex_unlock(&slot->mutex);
    return c != NULL;
}
