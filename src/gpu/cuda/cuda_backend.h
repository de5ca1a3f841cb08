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
    bool recording;    /* a program; this is its main stream */
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
/* cuda_error for enqueued work: the error sticks to the device. cudaSuccess does nothing. */
void cuda_stick(gpu_device *d, cudaError_t e, const char *doing);
/* Makes the device current; false, and stuck, when it is lost. */
bool cuda_use(gpu_device *d);

/* cuda_look.cu: free bytes of a device of `total`, without making it hold anything. */
uint64_t cuda_look_free(int index, uint64_t total);

/* cuda_stream.cu */
pi_status cuda_status(gpu_device *d, pi_error *err);
GPU_STREAM_MEMBERS(GPU_MEMBER_DECLARE, cuda)

#endif
