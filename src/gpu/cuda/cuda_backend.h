/* cuda_backend.h: internals of the HIP backend; hip_alias.h translates CUDA's names. */
#ifndef GPU_CUDA_CUDA_BACKEND_H
#define GPU_CUDA_CUDA_BACKEND_H

#include <pthread.h>

extern "C" {
#include "error.h"
}
#include "gpu_kernel.h"
#include "gpu_late.h"
#include "gpu_order.h"
#include "op_table.h"

struct cuda_block; /* cuda_device.cu */

/* `mutex` guards the sticky error, the list of blocks and `used`; CUDA calls are thread-safe. The
 * current device is a property of the calling thread, so every function sets it. */
struct gpu_device {
    pthread_mutex_t mutex;
    const gpu_host *host;
    int index;
    uint64_t limit, used; /* bytes; limit 0: no limit */
    uint64_t wait_ns;
    uint32_t clock_khz; /* of gpu_clock_ns */
    bool tensor_cores;
    gpu_pinned fault;   /* gpu_fault */
    cuda_block *blocks; /* allocated device memory, the latest first */
    bool overlaps;      /* kernels of a program may start before the previous kernel ends */
    pi_status status;   /* sticky error */
    char text[PI_ERROR_TEXT_MAX];
};

struct gpu_stream {
    gpu_device *device;
    cudaStream_t stream;
    bool recording; /* records a program; this is its main stream */
    bool branch;    /* is the branch of a recording */
    gpu_order order;
    bool busy;        /* gpu_late: has unfinished work that may wait for the host */
    gpu_stream *side; /* when recording: the branch that was added last; NULL: none */
};

struct gpu_event {
    gpu_device *device;
    cudaEvent_t event;
    gpu_stream *stream;      /* stream of the last record */
    bool recorded, captured; /* captured: the last record is in a program that is being recorded */
};

struct gpu_program {
    gpu_device *device;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

/* Status and message for a CUDA error; PI_ERR_NOMEM or PI_ERR_DEVICE. */
pi_status cuda_error(pi_error *err, cudaError_t e, const char *doing);
/* cuda_error for enqueued work: becomes the device's sticky error. cudaSuccess does nothing. */
void cuda_stick(gpu_device *d, cudaError_t e, const char *doing);
/* Makes the device current; false when it is lost. */
bool cuda_use(gpu_device *d);

/* cuda_look.cu: free memory of a device of `total` bytes, without a context on it. */
uint64_t cuda_look_free(int index, uint64_t total);

/* cuda_stream.cu */
pi_status cuda_status(gpu_device *d, pi_error *err);
GPU_STREAM_MEMBERS(GPU_MEMBER_DECLARE, cuda)

#endif
