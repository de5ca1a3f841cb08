/* gpu.h: GPUs behind one versioned table of functions.
 *
 * A backend (cuda, hip, sim) is a shared object, libpowerinfer_NAME.so, that is opened at run time;
 * so one program runs everywhere and uses a GPU where backend and driver are installed. A missing
 * driver, file or device is a result ("no device", with the reason), never a failure of the
 * program.
 *
 * How an engine uses it. Once per context: open a device, allocate weights, KV caches, buffers and
 * flags; record a program per number of columns: the operations (gpu_ops.h) of a whole token. Per
 * token: upload the gpu_columns and the epoch, launch the program; for every split layer wait for
 * the device's flag, compute the CPU's part, raise the host's flag; download the logits and wait
 * for the stream. A program depends on the token only through device memory.
 *
 * Ownership: whoever creates something frees it, before the device is closed. Device addresses are
 * plain pointers marked `device`; the host never follows them. Memory, streams, events and programs
 * belong to one device.
 * Threads: any thread may call any function, but only one thread at a time may use a stream. Work
 * on a stream runs in order; streams run side by side; events tell what is done. Errors: functions
 * that return a pi_status say what went wrong. Enqueueing returns nothing: an error sticks to the
 * device, later work is dropped, and the next function with a status reports the error. A lost
 * device stays lost; `reset` clears a wait that timed out. Units: bytes, bytes per second,
 * milliseconds, unless the name says otherwise. */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu_ops.h"
#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raise it with every change of a struct here or in gpu_ops.h. */
enum { GPU_VERSION = 16 };

typedef struct gpu_device gpu_device;
typedef struct gpu_event gpu_event;
typedef struct gpu_program gpu_program;

/* The functions of the host that a backend uses: allocations of backends are counted, and tests
 * make them fail, like all others. */
typedef struct gpu_host {
    uint32_t version, size; /* GPU_VERSION, sizeof(gpu_host) */
    void *(*alloc)(size_t n_bytes);
    void (*free)(void *p);
    void (*warn)(const char *line); /* a line for the user */
} gpu_host;

/* Whether machine code of compute capability `code` (89) runs on a GPU of major.minor: it does on
 * GPUs of its major and of its minor or a later one. */
static inline bool gpu_code_runs(int code, int major, int minor) {
    return code / 10 == major && code % 10 <= minor;
}

typedef struct gpu_info {
    char name[128];                     /* "NVIDIA GeForce RTX 4090" */
    char arch[32];                      /* "sm_89", "gfx1100", "sim" */
    uint64_t memory_total, memory_free; /* of the device */
    double bandwidth;                   /* of its memory by the data sheet; 0: not known */
    int32_t n_units;                    /* multiprocessors, compute units */
    int32_t capability_major, capability_minor;
    bool shared_memory; /* the device's memory is the host's: copies are not needed */
    bool tensor_cores;
} gpu_info;

typedef struct gpu_open_options {
    uint64_t memory_limit; /* allocate at most this much device memory; 0: what there is */
    uint32_t wait_ms;      /* how long a kernel waits for a flag; 0: GPU_WAIT_MS */
} gpu_open_options;

/* A layer takes milliseconds, a page fault storm seconds; display drivers end kernels after 2 to 5
 * seconds where they end them. */
enum { GPU_WAIT_MS = 1500 };

/* Host memory that the device also reaches. */
typedef struct gpu_pinned {
    void *host;
    void *device; /* the same bytes as kernels see them */
    size_t n_bytes;
} gpu_pinned;

/* Flags: counters that only grow, each in a separate cache line of pinned memory (between two
 * devices: of peer_alloc's). One side raises it to the ubatch's epoch, the other waits for that.
 * All start at 0. */
enum { GPU_FLAG_BYTES = 64 };

typedef struct gpu_backend {
    uint32_t version, size; /* GPU_VERSION, sizeof(gpu_backend) */
    const char *name;       /* "cuda" */
    size_t node_bytes;      /* of device memory that a kernel of a recorded program takes, about */
    size_t granularity; /* every allocation takes a multiple of this from the device, in bytes */
    gpu_supports *supports; /* of any device; asked before a plan is made */

    /* Devices. `count` also says why there are none: PI_ERR_NOT_FOUND, such as a missing driver.
     * Neither takes memory of a device. memory_free of `describe` is the free memory at this
     * moment, before the driver has taken its part; all memory, where the amount is unknown while
     * the device is not open. */
    pi_status (*count)(int *n, pi_error *err);
    pi_status (*describe)(int index, gpu_info *info, pi_error *err);
    /* Whether kernels of one device can write to memory of another (peers); always true for its own
     * memory. Takes no memory of the devices. */
    bool (*reaches)(int from, int to);
    /* options NULL: defaults. host must outlive the device. PI_ERR_DEVICE, PI_ERR_NOMEM. */
    pi_status (*open)(int index, const gpu_host *host, const gpu_open_options *options,
                      gpu_device **out, pi_error *err);
    void (*close)(gpu_device *d); /* NULL is fine */
    /* Changes memory_limit of `open`. */
    void (*limit)(gpu_device *d, uint64_t n_bytes);
    /* PI_OK, or the error that stuck to the device. Neither waits nor asks the driver. */
    pi_status (*status)(gpu_device *d, pi_error *err);
    /* Ends every wait for a flag, now and until `reset`: for a host that cannot go on. */
    void (*release)(gpu_device *d);
    /* After all streams are idle: clears a wait that timed out or was released. PI_ERR_DEVICE: the
     * device is lost. */
    pi_status (*reset)(gpu_device *d, pi_error *err);
    /* Test hook: the device is lost at the n-th operation from now; 0: never. NULL: not
     * supported. */
    void (*fail_at)(gpu_device *d, int64_t n);

    /* Memory. alloc: aligned to 256 bytes, contents undefined (sim: NaN in every float type).
     * PI_ERR_NOMEM names `what`. Freed memory must not be in use by work under way. */
    pi_status (*alloc)(gpu_device *d, size_t n_bytes, const char *what, void **out, pi_error *err);
    void (*free)(gpu_device *d, void *p); /* NULL is fine */
    pi_status (*memory)(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes, pi_error *err);
    /* Zeroed memory of `to` (free it there) that kernels of `from` write. A kernel of `to` that has
     * waited for a flag in it (gpu_receive) sees what was written before the flag was raised
     * (gpu_publish), even if the kernel was already running. Kernels of `from` write to no other
     * memory of `to`. PI_ERR_UNSUPPORTED, PI_ERR_DEVICE, PI_ERR_NOMEM: there is none; use pinned
     * memory. */
    pi_status (*peer_alloc)(gpu_device *from, gpu_device *to, size_t n_bytes, const char *what,
                            void **out, pi_error *err);
    /* Zeroed, aligned to a page. All devices of the backend reach it by the same address. */
    pi_status (*host_alloc)(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err);
    void (*host_free)(gpu_device *d, gpu_pinned *p); /* a zeroed one is fine */

    /* Streams and events. */
    pi_status (*stream_create)(gpu_device *d, gpu_stream **out, pi_error *err);
    void (*stream_destroy)(gpu_stream *s); /* waits for its work; NULL is fine */
    /* Waits until everything enqueued is done, and reports what stuck to the device. */
    pi_status (*stream_sync)(gpu_stream *s, pi_error *err);
    pi_status (*event_create)(gpu_device *d, gpu_event **out, pi_error *err);
    void (*event_destroy)(gpu_event *e); /* NULL is fine */
    void (*event_record)(gpu_stream *s, gpu_event *e);
    /* Asks the driver: not for loops in which a device waits for the host. */
    bool (*event_done)(gpu_event *e);
    /* Work enqueued to s from now on waits for the event's last record, by another stream of this
     * or another device. The host does not wait. While one of the two streams is recorded, both are
     * parts of its program: a branch joins where the main stream waits for an event of it. */
    void (*stream_wait)(gpu_stream *s, gpu_event *e);
    /* Milliseconds between two records that are done; < 0 when they are not. */
    double (*event_elapsed)(gpu_event *from, gpu_event *to);

    /* Copies, in the order of the stream. Host memory stays valid until they are done. */
    void (*upload)(gpu_stream *s, void *device, const void *host, size_t n_bytes);
    void (*download)(gpu_stream *s, void *host, const void *device, size_t n_bytes);
    void (*copy)(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes);
    void (*fill)(gpu_stream *s, void *device, uint8_t value, size_t n_bytes);

    /* Programs: operations, copies and fills that are enqueued between begin and end are kept, not
     * run; events only order them. A program may be launched any number of times, on any stream of
     * the device, one launch at a time. Free it when no launch is under way. */
    pi_status (*record_begin)(gpu_stream *s, pi_error *err);
    pi_status (*record_end)(gpu_stream *s, gpu_program **out, pi_error *err);
    void (*program_launch)(gpu_stream *s, gpu_program *p);
    void (*program_free)(gpu_program *p); /* NULL is fine */

    gpu_ops ops;
} gpu_backend;

/* The symbols of a backend: the function that returns its table and, where the runtime would end
 * the process on a GPU that the build has no code for, one that lists the GPUs that it has code
 * for. */
#define GPU_ENTRY   "powerinfer_gpu_backend"
#define GPU_TARGETS "powerinfer_gpu_targets"
typedef const gpu_backend *(*gpu_entry)(void);
typedef const char *(*gpu_targets)(void);

/* ---- flags, seen from the host -------------------------------------------------------------- */

static inline uint64_t gpu_flag_get(const void *flag) {
    return __atomic_load_n((const uint64_t *)flag, __ATOMIC_ACQUIRE);
}

/* Earlier writes are visible to the kernel that waits for the flag. */
static inline void gpu_flag_raise(void *flag, uint64_t epoch) {
    __atomic_store_n((uint64_t *)flag, epoch, __ATOMIC_RELEASE);
}

/* ---- loading (gpu_load.c) ------------------------------------------------------------------- */

typedef struct gpu_library {
    const gpu_backend *backend;
    void *handle; /* of the shared object */
} gpu_library;

/* A row of PI_BACKENDS (powerinfer.h). */
typedef struct gpu_backend_row {
    const char *name, *title; /* "cuda"; "CUDA", in messages */
    bool real;                /* false: simulated GPUs, for tests */
    bool built;               /* with this program */
} gpu_backend_row;

/* Backends in the order of pi_device_choice, from 0 on; NULL after the last. */
const gpu_backend_row *gpu_backend_at(int i);
const gpu_backend_row *gpu_backend_find(const char *name); /* NULL: there is no such backend */

/* Opens libpowerinfer_NAME.so: in `folder` when that is not NULL, else next to the program or
 * library, in the folder where it is installed relative to that, then in the one named at build
 * time. PI_ERR_NOT_FOUND: no such file, or the system cannot load it; PI_ERR_UNSUPPORTED: it has
 * another version. */
pi_status gpu_library_open(const char *name, const char *folder, gpu_library *out, pi_error *err);
void gpu_library_close(gpu_library *l); /* all devices must be closed; a zeroed one is fine */

/* mem_alloc and mem_free, for `open`. */
const gpu_host *gpu_host_default(void);

#ifdef __cplusplus
}
#endif
#endif
