/* sim_runtime.h: internals of the simulated device.
 *
 * A device has a list of its allocations, to check copies, and its sticky error. A stream is a
 * worker thread with a queue of commands. Blocks run one after the other on the worker
 * (sim_block.cpp), with fibers that the worker makes once and keeps.
 *
 * Locks: gpu_device.mutex guards its fields; gpu_stream.mutex guards queue and counters;
 * gpu_event.mutex guards its counters. A thread holds one lock at a time, except that it takes the
 * lock of the list of open devices before a device's lock. It holds no lock while a command
 * runs. */
#ifndef GPU_SIM_SIM_RUNTIME_H
#define GPU_SIM_SIM_RUNTIME_H

#include <pthread.h>

extern "C" {
#include "error.h"
}
#include "gpu_kernel.h"
#include "gpu_late.h"
#include "gpu_order.h"
#include "op_table.h"

enum : size_t {
    SIM_ALIGN = 256,
    SIM_PAGE = 4096,
    SIM_MEMORY = static_cast<size_t>(4) << 30, /* reported size of device memory */
};
/* Instead of GPU_WAIT_MS: no display driver limits the kernels, and the host may be slow, for
 * example under a sanitizer on a busy machine. */
enum : uint32_t { SIM_WAIT_MS = 60000 };
enum { SIM_DEVICES = 4 };
enum { SIM_MAX_THREADS = 512 }; /* per block: the largest of all kernels */

/* Byte of uninitialised memory: NaN as float, half and bfloat16, -1 as an integer. */
enum { SIM_POISON = 0xff };

struct sim_memory {
    sim_memory *next;
    uint8_t *raw, *data; /* as allocated; aligned */
    size_t n_bytes, n_raw;
    bool freed; /* deferred */
    int writer; /* number of the device whose kernels write here too; -1: none */
};

struct gpu_device {
    gpu_device *next; /* next open device */
    pthread_mutex_t mutex;
    const gpu_host *host;
    int index;
    size_t memory_bytes, limit, used;
    uint64_t wait_ns;
    bool late, serial; /* how the driver launches, see SIM_DRIVER in sim_device.cpp */
    sim_memory *memory;
    int64_t fail_at;  /* operations until the device is lost; 0: never */
    pi_status status; /* sticky error */
    char text[PI_ERROR_TEXT_MAX];
    gpu_fault fault;
};

enum sim_kind { SIM_KERNEL, SIM_COPY, SIM_FILL, SIM_RECORD, SIM_WAIT, SIM_PROGRAM };

/* A queued command; kernels' arguments follow it. */
struct sim_command {
    sim_command *next;
    sim_kind kind;
    /* SIM_KERNEL */
    gpu_grid grid;
    gpu_any_kernel kernel;
    void (*call)(gpu_any_kernel kernel, const void *args);
    bool waits, overlaps; /* waits for its host; may start before the previous kernel has ended */
    /* SIM_COPY, SIM_FILL; addresses in device memory are checked to be within an allocation */
    void *to;
    const void *from;
    size_t n_bytes;
    bool to_device, from_device;
    uint8_t value;
    /* SIM_RECORD, SIM_WAIT: the event, and the number of its record */
    gpu_event *event;
    uint64_t number;
    /* SIM_PROGRAM */
    gpu_program *program;
};
static inline void *sim_args(sim_command *c) {
    return c + 1;
}

struct sim_queue {
    sim_command *first, **end;
};

struct gpu_program {
    gpu_device *device;
    sim_queue commands;
};

struct gpu_event {
    gpu_device *device;
    gpu_stream *stream; /* of the last record */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t enqueued, done; /* records */
    uint64_t time_ns;        /* of the last completed record */
};

struct sim_worker; /* fibers and shared memory of one stream */

struct gpu_stream {
    gpu_device *device;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t work, idle;
    sim_queue queue;
    gpu_program *recording; /* NULL: commands run */
    gpu_order order;
    bool busy, stop;
    uint64_t n_queued; /* commands */
    uint64_t n_held;   /* d->late: last commands of the queue that the driver has not submitted */
    bool waits;        /* gpu_late: has unfinished work that may wait for the host */
    sim_worker *worker;
};

/* Sets the device's sticky error; the first error stays. Any thread. */
void sim_device_stick(gpu_device *d, pi_status status, const char *format, ...) BASE_PRINTF(3, 4);
/* Counts an operation for fail_at. False: the device is lost, and the operation must not run. */
bool sim_device_tick(gpu_device *d);
bool sim_device_owns(gpu_device *d, const void *p, size_t n_bytes);

/* Number of kernels so far that paused, that is waited for their host, on all devices. */
int sim_n_paused();

/* NULL when out of memory. Any thread creates and frees it, one thread uses it. */
sim_worker *sim_worker_create(gpu_device *d);
void sim_worker_free(sim_worker *w);
/* Runs all blocks of a kernel. The device is lost when a kernel breaks the rules of gpu_kernel.h
 * (threads of a block wait at different places). */
void sim_worker_run(sim_worker *w, const gpu_grid &grid, gpu_any_kernel kernel,
                    void (*call)(gpu_any_kernel kernel, const void *args), const void *args);

/* sim_stream.cpp */
GPU_STREAM_MEMBERS(GPU_MEMBER_DECLARE, sim)
pi_status sim_device_status(gpu_device *d, pi_error *err);

#endif
