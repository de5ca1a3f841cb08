/* gpu_rates.h: measures a GPU's bandwidth and the cost of an exchange with its own operations. */
#ifndef MEASURE_GPU_RATES_H
#define MEASURE_GPU_RATES_H

#include "gpu.h"

typedef struct gpu_rates {
    double stream_gbps, gather_gbps; /* gpu_reading.h */
    double step;                     /* seconds of an almost empty kernel in a program */
    double sync;     /* seconds of one exchange with all threads of the CPU, without its bytes */
    double bus_gbps; /* 1e9 bytes of exchanges per second; 0: too fast to measure */
} gpu_rates;

/* The device must be idle; n_threads of the CPU take part in exchanges. Allocates up to a quarter
 * of the free memory, at most 2.4 GiB, and frees it. PI_ERR_NOMEM, PI_ERR_DEVICE. */
pi_status gpu_rates_measure(const gpu_backend *b, gpu_device *d, int n_threads, gpu_rates *out,
                            pi_error *err);

#endif
