/* driver.h: inside of the backends `cuda` and `hip`: one host side over the libraries that come
 * with the GPUs' drivers. Nothing of the vendors is needed to build it.
 *
 * Files: driver_calls.h, the functions of the driver; driver_open.c, opens its library;
 * driver_device.c, devices, memory, errors, and the tables; driver_stream.c, streams, events,
 * copies, programs; driver_images.c, kernels; driver_free_memory.c, free memory of a device that is
 * not open. The functions of gpu_ops are in ../cuda/op_*.cu, which clang also compiles for the
 * host. */
#ifndef GPU_DRIVER_DRIVER_H
#define GPU_DRIVER_DRIVER_H

#include "driver_calls.h"
#include "driver_kernels.h"
#include "error.h"
#include "gpu.h"
#include "gpu_late.h"
#include "gpu_order.h"
#include "os_thread.h"

enum { DRIVER_MAX_DEVICES = 64 };

/* What a device keeps from its first opening to the end of the process. */
typedef struct driver_slot {
    driver_context context;     /* the primary one */
    driver_function *functions; /* one for each of driver_kernels */
    bool overlaps;              /* kernels wait by griddepcontrol: they may overlap */
    bool tensor_cores;
    uint32_t clock_khz; /* of gpu_clock_ns */
} driver_slot;

/* All but the errors, the functions and the slots is constant. */
typedef struct driver_vendor {
    const char *name;   /* "cuda" */
    const char *oldest; /* version of the driver that has all of driver_calls */
    const char *access; /* what to do about DRIVER_NO_ACCESS; begins with ": " */
    bool amd;
    int attribute_units, attribute_integrated, attribute_major, attribute_minor;
    int attribute_memory_clock, attribute_memory_bus; /* kHz, bits */
    int attribute_clock;                              /* of gpu_clock_ns, kHz; 0: none */
    unsigned pinned;                                  /* flags of host_alloc */
    int first_index;                                  /* of its devices in gpu_late */
    uint64_t (*free_memory)(const char *bus, uint64_t total);
    driver_calls calls;
    pi_error error; /* why there are no calls; PI_OK: there are */
    int driver_version;
    driver_slot slots[DRIVER_MAX_DEVICES]; /* guarded by the lock of driver_device.c */
} driver_vendor;

struct gpu_device {
    os_mutex mutex; /* guards what is sticky, the memory in use and its amount */
    driver_vendor *vendor;
    const driver_calls *calls; /* the vendor's */
    const gpu_host *host;
    int index;
    driver_slot *slot;
    uint64_t limit, used; /* bytes; limit 0: none */
    uint64_t wait_ns;
    gpu_pinned fault;            /* gpu_fault */
    struct driver_block *blocks; /* device memory that is handed out, the last one first */
    bool overlaps;    /* kernels of a program may begin before the one before has ended */
    pi_status status; /* what stuck */
    char text[PI_ERROR_TEXT_MAX];
};

struct gpu_stream {
    gpu_device *device;
    driver_stream stream;
    bool recording; /* a program */
    gpu_order order;
    bool busy; /* gpu_late: work that may wait for the host is under way */
};

/* driver_open.c. The first call opens the library; `error` says why it cannot. */
driver_vendor *driver_cuda(void);
driver_vendor *driver_hip(void);

/* driver_device.c. The status and text for what a call said: PI_ERR_NOMEM or PI_ERR_DEVICE. */
pi_status driver_error(const driver_vendor *v, pi_error *err, int result, const char *doing);
/* driver_error for enqueued work: the error sticks to the device. DRIVER_OK does nothing. */
void driver_stick(gpu_device *d, int result, const char *doing);
/* Makes the device current in this thread; false, and stuck, when it is lost. */
bool driver_use(gpu_device *d);
pi_status driver_status(gpu_device *d, pi_error *err);

/* driver_images.c. Loads all kernels of a device, which is current, to its slot.
 * PI_ERR_UNSUPPORTED: there are none for it, or the driver is too old for them. */
pi_status driver_load_kernels(driver_vendor *v, int index, const gpu_info *info,
                              const gpu_host *host, pi_error *err);

/* driver_images.c. Whether kernels of such a device overlap. */
bool driver_overlaps(const driver_vendor *v, const gpu_info *info);

/* driver_free_memory.c. Free bytes of a device of `total`; bus: "0000:01:00.0". */
uint64_t driver_nvidia_free(const char *bus, uint64_t total);
uint64_t driver_amd_free(const char *bus, uint64_t total);

/* driver_stream.c */
pi_status driver_stream_create(gpu_device *d, gpu_stream **out, pi_error *err);
void driver_stream_destroy(gpu_stream *s);
pi_status driver_stream_sync(gpu_stream *s, pi_error *err);
pi_status driver_event_create(gpu_device *d, gpu_event **out, pi_error *err);
void driver_event_destroy(gpu_event *e);
void driver_event_record(gpu_stream *s, gpu_event *e);
bool driver_event_done(gpu_event *e);
void driver_stream_wait(gpu_stream *s, gpu_event *e);
double driver_event_elapsed(gpu_event *from, gpu_event *to);
void driver_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes);
void driver_download(gpu_stream *s, void *host, const void *device, size_t n_bytes);
void driver_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes);
void driver_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes);
pi_status driver_record_begin(gpu_stream *s, pi_error *err);
pi_status driver_record_end(gpu_stream *s, gpu_program **out, pi_error *err);
void driver_program_launch(gpu_stream *s, gpu_program *p);
void driver_program_free(gpu_program *p);

#endif
