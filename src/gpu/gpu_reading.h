/* gpu_reading.h: measures how fast a GPU reads its memory, with its own operations. */
#ifndef GPU_GPU_READING_H
#define GPU_GPU_READING_H

#include "gpu.h"

typedef struct gpu_reading_options {
    uint64_t most_bytes; /* device memory to use at most */
    double long_ms;      /* the matrix grows until reading it takes so long */
    double least_gbps;   /* slower than this is no rate of a GPU: gives up; 0: any rate */
    int repeats;         /* the fastest counts */
} gpu_reading_options;

typedef struct gpu_reading {
    double stream_gbps; /* 1e9 bytes per second of a matrix-vector product; 0: gave up */
    double gather_gbps; /* of the sum over rows of 2,304 bytes, one in ten; stream_gbps where the
                           backend lacks down_rows */
} gpu_reading;

/* The device must be idle. Frees what it allocates, at most 2.4 GiB. PI_ERR_NOMEM: not even the
 * first matrix (1 MiB, with its vectors) fits; PI_ERR_DEVICE. */
pi_status gpu_reading_measure(const gpu_backend *b, gpu_device *d, const gpu_reading_options *o,
                              gpu_reading *out, pi_error *err);

/* Seconds from a submission of a small piece of work to the host's knowledge that it is done, the
 * median of several: what an exchange takes where kernels may not wait. PI_ERR_NOMEM,
 * PI_ERR_DEVICE. */
pi_status gpu_reading_sync(const gpu_backend *b, gpu_device *d, double *seconds, pi_error *err);

#endif
