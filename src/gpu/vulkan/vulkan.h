/* vulkan.h: inside of the Vulkan backend, for all GPUs whose driver has Vulkan 1.2.
 *
 * Files: vulkan_calls.h, the functions of the loader; vulkan_open.c, opens the loader and finds out
 * what devices support; vulkan_device.c, logical devices, errors, the table; vulkan_memory.c,
 * memory; vulkan_books.c, tables; vulkan_pipelines.c, pipelines; vulkan_cache.c, their file;
 * vulkan_commands.c, commands; vulkan_stream.c, streams, events, copies, launches, programs. The
 * operations are in vulkan_op_*.c (vulkan_ops.h).
 *
 * A physical device has one logical device in a process, its slot, with one queue; contexts share
 * it. An address of gpu.h is a buffer device address. Vulkan promises neither that a kernel sees
 * what the host writes after the submission, nor the opposite; so kernels never wait for the host,
 * and the host waits for a semaphore before it reads. */
#ifndef GPU_VULKAN_VULKAN_H
#define GPU_VULKAN_VULKAN_H

#include "args.h"
#include "error.h"
#include "gpu.h"
#include "os_thread.h"
#include "vulkan_calls.h"
#include "vulkan_kernels.h"

enum { VULKAN_MAX_DEVICES = 16, VULKAN_PATH_BYTES = 4096 };

/* What a physical device has, and what the backend uses of it. */
typedef struct vulkan_abilities {
    VkPhysicalDevice physical;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    uint8_t device_uuid[VK_UUID_SIZE];
    uint64_t most_alloc;              /* bytes of an allocation */
    uint32_t lanes;                   /* of a subgroup */
    uint32_t least_lanes, most_lanes; /* equal: the size cannot be chosen */
    uint32_t shared_bytes;            /* of shared memory in a workgroup */
    uint32_t family;                  /* of the queue */
    uint32_t stamp_bits;              /* of a time stamp of the queue; 0: there are none */
    uint64_t import_align;            /* of imported host memory; 0: cannot be imported */
    bool int_dot;                     /* VK_KHR_shader_integer_dot_product, packed and signed */
    bool unified;                     /* device and host share memory */
    bool budget;                      /* reports its free memory */
    char lacks[128];                  /* the first thing missing; "": nothing */
} vulkan_abilities;

/* The loader and the devices. */
typedef struct vulkan_all {
    vulkan_calls calls; /* those of a device: through the loader */
    pi_error error;     /* why there is none; PI_OK: there is */
    int n;
    vulkan_abilities device[VULKAN_MAX_DEVICES];
} vulkan_all;

/* A stretch of memory of a chunk. */
typedef struct vulkan_block {
    uint64_t at, n_bytes;
    bool used;
    struct vulkan_block *next; /* of the chunk, by address */
} vulkan_block;

/* An allocation of the driver, with one buffer over all of it. */
typedef struct vulkan_chunk {
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t address, n_bytes;
    uint8_t *host;        /* NULL: the host does not reach it */
    vulkan_block *blocks; /* NULL: handed out as a whole */
    struct vulkan_chunk *next;
} vulkan_chunk;

typedef struct vulkan_pipeline {
    vulkan_kernel kernel;
    vulkan_variant variant;
    VkPipeline pipeline;
} vulkan_pipeline;

/* A logical device. */
typedef struct vulkan_slot {
    os_mutex mutex; /* guards everything below, and submissions */
    const vulkan_abilities *can;
    vulkan_calls call; /* of this device, without the loader */
    VkDevice device;   /* NULL: not open */
    VkQueue queue;
    PFN_vkGetMemoryHostPointerPropertiesEXT host_pointer; /* NULL: nothing can be imported */
    int n_open;
    bool lost;
    uint64_t n_dispatches; /* recorded */
    uint64_t books;        /* device address of the code books (args.h); 0: not yet there */
    VkPipelineLayout layout;
    VkPipelineCache cache;
    char cache_path[VULKAN_PATH_BYTES]; /* of its file; "": none */
    char cached[64];                    /* digest of the file's data, in hexadecimal */
    VkShaderModule modules[VULKAN_KERNEL_COUNT];
    vulkan_pipeline *pipelines;
    size_t n_pipelines, n_made, max_pipelines;
    vulkan_chunk *chunks;
    const gpu_host *host;
} vulkan_slot;

struct gpu_device {
    os_mutex mutex; /* guards what is sticky, and `used` */
    vulkan_slot *slot;
    const gpu_host *host;
    int index;
    uint64_t limit, used; /* bytes; limit 0: none */
    gpu_pinned fault;     /* gpu_fault */
    int64_t fail_at;
    pi_status status; /* what stuck */
    char text[PI_ERROR_TEXT_MAX];
};

/* Memory that the host writes arguments and copies to, and the device reads. */
typedef struct vulkan_staging {
    gpu_pinned memory;
    size_t used;
    struct vulkan_staging *next;
} vulkan_staging;

/* A copy to host memory that is not pinned: made by the host when the batch is done. */
typedef struct vulkan_delivery {
    void *to;
    const void *from;
    size_t n_bytes;
    struct vulkan_delivery *next;
} vulkan_delivery;

enum { VULKAN_STAMPS = 1024 }; /* of a batch */

typedef enum vulkan_command_kind {
    VULKAN_DISPATCH,
    VULKAN_COPY,
    VULKAN_FILL_WORDS,
    VULKAN_TICK /* stores a time stamp in a query, and if `to` is not NULL there */
} vulkan_command_kind;

typedef struct vulkan_command {
    vulkan_command_kind kind;
    bool beside; /* may run together with the command before */
    /* dispatches: number of the pipeline, workgroups, arguments to push */
    size_t pipeline;
    uint32_t groups[3], n_args;
    uint8_t args[PUSHED_BYTES];
    VkBuffer from, to;
    uint64_t from_at, to_at, n_bytes;
    uint32_t word; /* fills */
    uint32_t tick; /* query of `ticks` */
    VkQueryPool ticks;
} vulkan_command;

/* A command buffer with what its commands read. */
typedef struct vulkan_batch {
    VkCommandBuffer commands;
    vulkan_command *list; /* that are not written to `commands` yet */
    size_t n_listed, max_listed;
    VkQueryPool ticks; /* of stamps, VULKAN_STAMPS; NULL: none yet */
    uint32_t n_ticks;
    uint64_t value; /* of the stream's semaphore when it is done */
    vulkan_staging *staging;
    vulkan_delivery *deliveries;
    struct vulkan_batch *next;
} vulkan_batch;

struct gpu_stream {
    gpu_device *device;
    VkCommandPool pool;
    VkSemaphore semaphore;          /* counts submissions */
    uint64_t value;                 /* of the last submission */
    vulkan_batch *open;             /* takes commands; NULL: none */
    vulkan_batch *under_way, *last; /* submitted, the oldest first */
    vulkan_batch *spare;
    gpu_program *recording; /* takes commands instead; NULL: none */
};

struct gpu_event {
    gpu_device *device;
    VkQueryPool query;     /* NULL: no time stamps */
    VkSemaphore semaphore; /* of the stream of the last record; NULL: none */
    uint64_t value;
};

struct gpu_program {
    gpu_device *device;
    VkCommandPool pool;
    vulkan_batch batch;
};

/* vulkan_open.c. The first call opens the loader. */
const vulkan_all *vulkan_find(void);
const char *vulkan_result_text(VkResult r);

/* vulkan_device.c */
pi_status vulkan_error(pi_error *err, VkResult r, const char *doing);
/* Makes the error of enqueued work stick to the device; VK_SUCCESS does nothing. */
void vulkan_stick(gpu_device *d, VkResult r, const char *doing);
/* False when the device is lost. */
bool vulkan_alive(gpu_device *d);
/* Before an operation: also counts for fail_at. */
bool vulkan_tick(gpu_device *d);
pi_status vulkan_status(gpu_device *d, pi_error *err);

/* vulkan_memory.c */
pi_status vulkan_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out, pi_error *err);
void vulkan_free(gpu_device *d, void *p);
pi_status vulkan_memory(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes, pi_error *err);
pi_status vulkan_host_alloc(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err);
void vulkan_host_free(gpu_device *d, gpu_pinned *p);
pi_status vulkan_import(gpu_device *d, const void *host, size_t n_bytes, const char *what,
                        void **out, pi_error *err);
/* Memory of the slot, until it is closed; no limit counts it. The slot is locked. */
VkResult vulkan_slot_alloc(vulkan_slot *slot, uint64_t n_bytes, uint64_t *address);
uint64_t vulkan_free_bytes(const vulkan_abilities *can, uint64_t *total);
/* The buffer with n_bytes at a device address, and where in it; false: there is none. */
bool vulkan_find_device(vulkan_slot *slot, const void *p, size_t n_bytes, VkBuffer *buffer,
                        uint64_t *at);
/* The buffer with n_bytes of pinned memory, by their address on the host. */
bool vulkan_find_host(vulkan_slot *slot, const void *p, size_t n_bytes, VkBuffer *buffer,
                      uint64_t *at);
void vulkan_free_chunks(vulkan_slot *slot);

/* vulkan_books.c: fills slot->books, unless another context has done so. */
pi_status vulkan_books_open(gpu_device *d, pi_error *err);

/* vulkan_pipelines.c. The slot is locked. */
pi_status vulkan_pipelines_open(vulkan_slot *slot, pi_error *err);
void vulkan_pipelines_close(vulkan_slot *slot);
/* The number of a pipeline, which need not exist yet. */
VkResult vulkan_pipeline_number(vulkan_slot *slot, vulkan_kernel k, const vulkan_variant *v,
                                size_t *out);
/* Makes the pipelines that do not exist yet, in parallel. */
VkResult vulkan_pipelines_make(vulkan_slot *slot);

/* vulkan_cache.c: the file of the pipeline cache. The slot is locked. */
void vulkan_cache_name(const vulkan_abilities *can, char *out, size_t n_out);
/* Bytes of the cache's data, *data (free with mem_free); 0, NULL: there is no file, or a damaged
 * one. */
size_t vulkan_cache_read(vulkan_slot *slot, char **data);
/* Replaces the file if the cache has changed. */
void vulkan_cache_write(vulkan_slot *slot);

/* vulkan_commands.c */
/* False, and stuck: no memory. */
bool vulkan_command_add(gpu_device *d, vulkan_batch *b, const vulkan_command *c);
/* Writes the listed commands to the command buffer; the list is empty then. */
VkResult vulkan_commands_write(gpu_device *d, vulkan_batch *b, VkCommandBufferUsageFlags flags);

/* vulkan_stream.c */
pi_status vulkan_stream_create(gpu_device *d, gpu_stream **out, pi_error *err);
void vulkan_stream_destroy(gpu_stream *s);
pi_status vulkan_stream_sync(gpu_stream *s, pi_error *err);
pi_status vulkan_event_create(gpu_device *d, gpu_event **out, pi_error *err);
void vulkan_event_destroy(gpu_event *e);
void vulkan_event_record(gpu_stream *s, gpu_event *e);
bool vulkan_event_done(gpu_event *e);
void vulkan_stream_wait(gpu_stream *s, gpu_event *e);
double vulkan_event_elapsed(gpu_event *from, gpu_event *to);
void vulkan_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes);
void vulkan_download(gpu_stream *s, void *host, const void *device, size_t n_bytes);
void vulkan_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes);
void vulkan_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes);
pi_status vulkan_record_begin(gpu_stream *s, pi_error *err);
pi_status vulkan_record_end(gpu_stream *s, gpu_program **out, pi_error *err);
void vulkan_program_launch(gpu_stream *s, gpu_program *p);
void vulkan_program_free(gpu_program *p);
/* Stores the clock's ticks when all earlier work is done, at a device address; false: there is no
 * clock. */
bool vulkan_stream_ticks(gpu_stream *s, uint64_t *to);
/* Of the device of the stream. */
const vulkan_abilities *vulkan_stream_abilities(const gpu_stream *s);
void *vulkan_stream_fault(const gpu_stream *s); /* gpu_fault, device address */

/* vulkan_support.c */
bool vulkan_supports(gpu_op op, quant_type type, const gpu_shape *shape);

#endif
