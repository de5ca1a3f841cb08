/* driver_ops.cu: the operations' side of driver_kernels.h. Nothing here needs the C++ library. */
#include "gpu_kernel.h"
#include "op_table.h"

const driver_kernel *driver_kernels;

driver_kernel::driver_kernel(const char *name)
    : host_name(name), number(driver_kernels ? driver_kernels->number + 1 : 0),
      next(driver_kernels) {
    driver_kernels = this;
}

extern "C" const gpu_ops driver_ops = GPU_OP_TABLE;

struct gpu_fault *gpu_stream_fault(gpu_stream *s) {
    return driver_stream_fault(s);
}
uint64_t gpu_stream_wait_ns(const gpu_stream *s) {
    return driver_stream_wait_ns(s);
}
uint32_t gpu_stream_clock_khz(const gpu_stream *s) {
    return driver_stream_clock_khz(s);
}
bool gpu_stream_tensor_cores(const gpu_stream *s) {
    return driver_stream_tensor_cores(s);
}
void gpu_stream_waits(gpu_stream *s) {
    driver_stream_waits(s);
}
