/* gpu.h: GPUs behind one versioned table of functions.
 *
 * A backend is a part of the library (cuda, hip, vulkan), which opens the driver's library at run
 * time, or a shared object, libpowerinfer_NAME.so (sim). So one executable runs everywhere, and
 * uses a GPU where backend and driver are installed. A missing driver, file or device is reported
 * as "no device", with the reason; it never stops the executable.
 *
 * Use by the engine. Once per context: open a device; allocate weights, KV caches, buffers and
 * flags; record one program per number of columns (tokens of a ubatch): all operations (gpu_ops.h)
 * of a decode step, between the copies of its input (gpu_columns, epoch) and of its results. Per
 * step: write the input to pinned memory, launch the program; for every split layer wait for the
 * device's flag, compute the CPU's part, raise the host's flag; wait for the stream. A program
 * reads everything that depends on the token from device memory.
 *
 * Ownership: whoever creates something frees it, before the device is closed. Device addresses are
 * plain pointers marked `device`; the host never dereferences them. Memory, streams, events and
 * programs belong to one device. Threads: any thread may call any function, but only one thread at
 * a time may use a stream. Work on a stream runs in order; streams run concurrently; events report
 * completion. Errors: functions that return a pi_status fill a pi_error. Enqueueing returns
 * nothing: an error is sticky: the device keeps it, drops later work, and the next function with a
 * status reports it. A lost device stays lost; `reset` clears a wait that timed out. Units: bytes,
 * bytes per second, milliseconds, unless the name says otherwise. */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu_support.h"
#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Increase with every change of a struct here, in gpu_data.h or gpu_ops.h. */
enum { GPU_VERSION = 26 };

typedef struct gpu_device gpu_device;
typedef struct gpu_event gpu_event;
typedef struct gpu_program gpu_program;

/* Host functions that a backend calls. Its allocations go through them: they are counted, and tests
 * make them fail. */
typedef struct gpu_host {
    uint32_t version, size; /* GPU_VERSION, sizeof(gpu_host) */
    void *(*alloc)(size_t n_bytes);
    void (*free)(void *p);
    void (*warn)(const char *line); /* a line for the user */
} gpu_host;

typedef struct gpu_info {
    char name[128];                     /* "NVIDIA GeForce RTX 4090" */
    char arch[32];                      /* "sm_89", "gfx1100", "sim" */
    uint64_t memory_total, memory_free; /* device memory, bytes */
    double bandwidth; /* of device memory, bytes/s, from the data sheet; 0: unknown */
    int32_t n_units;  /* multiprocessors, compute units */
    int32_t capability_major, capability_minor;
    bool shared_memory; /* host and device share memory: no copies */
    bool tensor_cores;
    bool int8_prompts; /* matmul multiplies quantized weights with int8 activations, as with tensor
                          cores, also without them */
    bool software;     /* no GPU: a driver that computes on the CPU; PI_DEVICE_AUTO ignores it */
    bool overlaps;     /* kernels of a program overlap: a separate kernel begins at once */
} gpu_info;

typedef struct gpu_open_options {
    uint64_t memory_limit;    /* bytes of device memory to allocate at most; 0: no limit */
    uint32_t wait_ms;         /* how long a kernel waits for a flag; 0: GPU_WAIT_MS */
    const char *cache_folder; /* for what the driver compiles, used by vulkan; NULL: none */
} gpu_open_options;

/* A layer takes milliseconds; with many page faults, seconds. Display drivers that limit kernels
 * end them after 2 to 5 seconds. */
enum { GPU_WAIT_MS = 1500 };

/* Host memory that the device also reaches. */
typedef struct gpu_pinned {
    void *host;
    void *device; /* address of these bytes for kernels */
    size_t n_bytes;
} gpu_pinned;

/* A flag is a counter that only grows, in a separate cache line of pinned memory (between two
 * devices: of peer_alloc memory). The sender raises it to the ubatch's epoch, and the receiver
 * waits for this value. Flags start at 0. */
enum { GPU_FLAG_BYTES = 64 };

/* Device memory of a recorded program per kernel: parameters (4 KiB at most) and launch commands.
 * An assumption: drivers do not report it; docs/gpu.md has the command to check it. */
enum { GPU_NODE_BYTES = 8 << 10 };

typedef struct gpu_backend {
    uint32_t version, size; /* GPU_VERSION, sizeof(gpu_backend) */
    const char *name;       /* "cuda" */
    size_t node_bytes;      /* device memory of one kernel of a recorded program, approximate */
    size_t granularity;     /* bytes; every device allocation takes a multiple of this */
    /* Whether a kernel may wait for a flag that the host raises meanwhile. Otherwise a receive must
     * be enqueued after the host has raised its flag, and the host reads a message only when an
     * event that was recorded behind it is done. */
    bool kernels_may_wait;
    /* A context uses one device only: another does not reach its pinned memory. */
    bool one_device;
    gpu_supports *supports; /* the answer for all devices; called before planning */

    /* Devices. `count` and `describe` take no device memory. Without a device `count` returns
     * PI_ERR_NOT_FOUND with the reason, such as a missing driver. memory_free of `describe` is the
     * free memory now, before the driver takes its part; where it is unknown until the device is
     * open, it is memory_total. */
    pi_status (*count)(int *n, pi_error *err);
    pi_status (*describe)(int index, gpu_info *info, pi_error *err);
    /* Whether kernels of one device can write to memory of another (peers); always true for its own
     * memory. Takes no device memory. */
    bool (*reaches)(int from, int to);
    /* Whether the driver keeps launches back until it has several or is asked (event_done,
     * stream_sync), as on Windows and in WSL. */
    bool (*submits_late)(void);
    /* options NULL: defaults. host must outlive the device. PI_ERR_DEVICE, PI_ERR_NOMEM. */
    pi_status (*open)(int index, const gpu_host *host, const gpu_open_options *options,
                      gpu_device **out, pi_error *err);
    void (*close)(gpu_device *d); /* NULL is fine */
    /* Changes memory_limit of `open`. */
    void (*limit)(gpu_device *d, uint64_t n_bytes);
    /* PI_OK, or the device's sticky error. Neither waits nor calls the driver. */
    pi_status (*status)(gpu_device *d, pi_error *err);
    /* Ends every wait for a flag, now and until `reset`: for a host that cannot continue. */
    void (*release)(gpu_device *d);
    /* After all streams are idle: clears a wait that timed out or was released. PI_ERR_DEVICE: the
     * device is lost. */
    pi_status (*reset)(gpu_device *d, pi_error *err);
    /* Test hook: the device is lost at the n-th operation from now; 0: never. NULL: not
     * supported. */
    void (*fail_at)(gpu_device *d, int64_t n);

    /* Memory. alloc: aligned to 256 bytes, contents undefined (sim: NaN in every float type).
     * PI_ERR_NOMEM names `what`. Freed memory must not be in use by enqueued work. */
    pi_status (*alloc)(gpu_device *d, size_t n_bytes, const char *what, void **out, pi_error *err);
    void (*free)(gpu_device *d, void *p); /* NULL is fine */
    pi_status (*memory)(gpu_device *d, uint64_t *free_bytes, uint64_t *total_bytes, pi_error *err);
    /* Zeroed memory of `to` (free it there) that kernels of `from` write. A kernel of `to` that has
     * waited for a flag in it (gpu_receive) sees what was written before the flag was raised
     * (gpu_publish), even if the kernel was already running. Kernels of `from` write to no other
     * memory of `to`. PI_ERR_UNSUPPORTED, PI_ERR_DEVICE, PI_ERR_NOMEM: no such memory; use pinned
     * memory. */
    pi_status (*peer_alloc)(gpu_device *from, gpu_device *to, size_t n_bytes, const char *what,
                            void **out, pi_error *err);
    /* Zeroed, aligned to a page. All devices of the backend reach it by the same address. */
    pi_status (*host_alloc)(gpu_device *d, size_t n_bytes, gpu_pinned *out, pi_error *err);
    void (*host_free)(gpu_device *d, gpu_pinned *p); /* a zeroed one is fine */
    /* With shared memory: *out is the device address of n_bytes that the host has mapped, without a
     * copy; kernels only read them. Matrices there have the rows of the file (gpu_mat.in_file). It
     * counts like `alloc`; call `free` before the memory is unmapped. PI_ERR_UNSUPPORTED,
     * PI_ERR_NOMEM, PI_ERR_DEVICE: copy the bytes instead. NULL: never supported. */
    pi_status (*import)(gpu_device *d, const void *host, size_t n_bytes, const char *what,
                        void **out, pi_error *err);

    /* Streams and events. */
    pi_status (*stream_create)(gpu_device *d, gpu_stream **out, pi_error *err);
    void (*stream_destroy)(gpu_stream *s); /* waits for its work; NULL is fine */
    /* Waits until all enqueued work is done, and returns the device's sticky error. */
    pi_status (*stream_sync)(gpu_stream *s, pi_error *err);
    pi_status (*event_create)(gpu_device *d, gpu_event **out, pi_error *err);
    void (*event_destroy)(gpu_event *e); /* NULL is fine */
    void (*event_record)(gpu_stream *s, gpu_event *e);
    /* Calls the driver: do not use in a loop while a device waits for the host. */
    bool (*event_done)(gpu_event *e);
    /* Work enqueued to s after this call waits for the event's last record, made by another stream
     * of this or another device. The host does not wait. */
    void (*stream_wait)(gpu_stream *s, gpu_event *e);
    /* Milliseconds between two completed records; < 0 when one is not complete. */
    double (*event_elapsed)(gpu_event *from, gpu_event *to);

    /* Copies, in the order of the stream. Host memory stays valid until they are done. */
    void (*upload)(gpu_stream *s, void *device, const void *host, size_t n_bytes);
    void (*download)(gpu_stream *s, void *host, const void *device, size_t n_bytes);
    void (*copy)(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes);
    void (*fill)(gpu_stream *s, void *device, uint8_t value, size_t n_bytes);

    /* Programs: operations, copies and fills that are enqueued between record_begin and record_end
     * are recorded, not run; events do not belong to programs: record no event and wait for none in
     * between. A program may be launched any number of times, on any stream of the device, one
     * launch at a time. Free it when no launch is running. */
    pi_status (*record_begin)(gpu_stream *s, pi_error *err);
    pi_status (*record_end)(gpu_stream *s, gpu_program **out, pi_error *err);
    void (*program_launch)(gpu_stream *s, gpu_program *p);
    void (*program_free)(gpu_program *p); /* NULL is fine */

    gpu_ops ops;
} gpu_backend;

/* The symbol of a backend's shared object that returns its table. */
#define GPU_ENTRY "powerinfer_gpu_backend"
typedef const gpu_backend *(*gpu_entry)(void);

/* ---- flags, on the host --------------------------------------------------------------------- */

static inline uint64_t gpu_flag_get(const void *flag) {
    return __atomic_load_n((const uint64_t *)flag, __ATOMIC_ACQUIRE);
}

/* Makes earlier writes visible to the kernel that waits for the flag. */
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

/* Backend i, in the order of pi_device_choice; NULL after the last. */
const gpu_backend_row *gpu_backend_at(int i);
const gpu_backend_row *gpu_backend_find(const char *name); /* NULL: no such backend */

/* Opens libpowerinfer_NAME.so from `folder`. With NULL it searches next to the program or library,
 * in its install folder relative to them, then in the folder named at build time. PI_ERR_NOT_FOUND:
 * no such file, or the system cannot load it; PI_ERR_UNSUPPORTED: another version. */
pi_status gpu_library_open(const char *name, const char *folder, gpu_library *out, pi_error *err);
void gpu_library_close(gpu_library *l); /* all devices must be closed; a zeroed one is fine */

/* mem_alloc and mem_free, for `open`. */
const gpu_host *gpu_host_default(void);

#ifdef __cplusplus
}
#endif
#endif
