/* cuda_backend.h: inside of the CUDA backend (and of HIP's, by hip_alias.h). */
#ifndef GPU_CUDA_CUDA_BACKEND_H
#define GPU_CUDA_CUDA_BACKEND_H

#include <pthread.h>

extern "C" {
#include "error.h"
}
#include "gpu_kernel.h"
#include "gpu_late.h"
#include "op_table.h"

struct cuda_block; /* cuda_device.cu */

/* `mutex` guards what is sticky, the memory in use and its amount; CUDA's own calls lock
 * themselves. The current device is a property of the calling thread, so every function sets it. */
struct gpu_device {
    pthread_mutex_t mutex;
    const gpu_host *host;
    int index;
    uint64_t limit, used; /* bytes; limit 0: none */
    uint64_t wait_ns;
    uint32_t clock_khz; /* of gpu_clock_ns */
    bool tensor_cores;
    gpu_pinned fault;   /* gpu_fault */
    cuda_block *blocks; /* device memory that is handed out, the last one first */
    bool overlaps;      /* kernels of a program may begin before the one before has ended */
    pi_status status;   /* what stuck */
    char text[PI_ERROR_TEXT_MAX];
};

struct gpu_stream {
    gpu_device *device;
    cudaStream_t stream;
    bool recording;    /* a program, of which it is the main stream */
    bool branch;       /* it has joined a recording */
    bool after_kernel; /* recorded last: a kernel, and no wait for another stream behind it */
    bool busy;         /* gpu_late: work that may wait for the host is under way */
    gpu_stream *side;  /* of a recording: the stream that joined it last; NULL: none */
};

struct gpu_event {
    gpu_device *device;
    cudaEvent_t event;
    gpu_stream *stream;      /* of the last record */
    bool recorded, captured; /* captured: into a program that is being recorded */
};

struct gpu_program {
    gpu_device *device;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

/* The status and text for what a call said; PI_ERR_NOMEM or PI_ERR_DEVICE. */
pi_status cuda_error(pi_error *err, cudaError_t e, const char *doing);
/* The same for work that was enqueued: sticks to the device. cudaSuccess does nothing. */
void cuda_stick(gpu_device *d, cudaError_t e, const char *doing);
/* Makes the device current; false, and stuck, when it is lost. */
bool cuda_use(gpu_device *d);

/* cuda_look.cu: free bytes of a device of `total`, without making it hold anything. */
uint64_t cuda_look_free(int index, uint64_t total);

/* cuda_stream.cu: their places in the table. */
pi_status cuda_status(gpu_device *d, pi_error *err);
pi_status cuda_stream_create(gpu_device *d, gpu_stream **out, pi_error *err);
void cuda_stream_destroy(gpu_stream *s);
pi_status cuda_stream_sync(gpu_stream *s, pi_error *err);
pi_status cuda_event_create(gpu_device *d, gpu_event **out, pi_error *err);
void cuda_event_destroy(gpu_event *e);
void cuda_event_record(gpu_stream *s, gpu_event *e);
bool cuda_event_done(gpu_event *e);
void cuda_stream_wait(gpu_stream *s, gpu_event *e);
double cuda_event_elapsed(gpu_event *from, gpu_event *to);
void cuda_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes);
void cuda_download(gpu_stream *s, void *host, const void *device, size_t n_bytes);
void cuda_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes);
void cuda_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes);
pi_status cuda_record_begin(gpu_stream *s, pi_error *err);
pi_status cuda_record_end(gpu_stream *s, gpu_program **out, pi_error *err);
void cuda_program_launch(gpu_stream *s, gpu_program *p);
void cuda_program_free(gpu_program *p);

#endif
