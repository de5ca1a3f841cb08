/* driver_calls.h: the functions of the drivers' libraries, which are opened at run time: CUDA's
 * driver API and HIP's module API, which follows it. Where they differ, a function has no name in
 * the other column. Symbols of CUDA name the version of a function (_v2), so that its parameters
 * are the same with every driver; those of HIP have been the same from ROCm 5 to 7. */
#ifndef GPU_DRIVER_DRIVER_CALLS_H
#define GPU_DRIVER_DRIVER_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* Results that the backend tells apart; equal in CUDA and HIP, as are the flags below but one. */
enum {
    DRIVER_OK = 0,
    DRIVER_NO_MEMORY = 2,
    DRIVER_NO_DEVICE = 100,
    DRIVER_OLD_FOR_PTX = 222, /* than the version of the PTX */
    DRIVER_NO_ACCESS = 304,   /* the system refuses the device's nodes */
    DRIVER_NOT_FOUND = 500,
    DRIVER_NOT_READY = 600,
    DRIVER_HAS_PEER = 704
};
/* Flags. */
enum {
    DRIVER_STREAM_APART = 1,   /* from the legacy stream */
    DRIVER_PINNED = 1 | 2,     /* for all contexts, mapped */
    DRIVER_COHERENT = 1 << 30, /* HIP, pinned memory: the GPU does not cache it */
    DRIVER_FINE_GRAINED = 1,   /* HIP, device memory: no device caches what another one stores */
    DRIVER_CAPTURE_FREELY = 2  /* restricts no other thread */
};

/* Handles: the driver's own. */
typedef struct driver_context_of *driver_context;
typedef struct driver_stream_of *driver_stream;
typedef struct driver_event_of *driver_event;
typedef struct driver_graph_of *driver_graph;
typedef struct driver_program_of *driver_program;
typedef struct driver_module_of *driver_module;
typedef struct driver_function_of *driver_function;

/* CUlaunchAttribute, CUlaunchConfig. */
typedef struct driver_attribute {
    int id;
    char unused[8 - sizeof(int)];
    union {
        char bytes[64];
        int flag;
    } value;
} driver_attribute;
enum { DRIVER_OVERLAP = 6 }; /* id: programmatic stream serialization */

typedef struct driver_config {
    unsigned grid[3], block[3], shared_bytes;
    driver_stream stream;
    driver_attribute *attributes;
    unsigned n_attributes;
} driver_config;

/* CALL(name, CUDA's symbol, HIP's, parameters); MAY: a feature is off without it. NULL: the vendor
 * has no such function. All return a result.
 *
 * hipGraphUpload is not used: ROCm before 5.3 lacks it, and the first launch does the same. */
#define DRIVER_CALLS(CALL, MAY)                                                                    \
    CALL(init, "cuInit", "hipInit", (unsigned flags))                                              \
    CALL(version, "cuDriverGetVersion", "hipDriverGetVersion", (int *version))                     \
    CALL(device_count, "cuDeviceGetCount", "hipGetDeviceCount", (int *n))                          \
    CALL(device_get, "cuDeviceGet", "hipDeviceGet", (int *device, int index))                      \
    CALL(device_name, "cuDeviceGetName", "hipDeviceGetName", (char *name, int size, int device))   \
    CALL(device_bus, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId",                                \
         (char *bus, int size, int device))                                                        \
    CALL(device_memory, "cuDeviceTotalMem_v2", "hipDeviceTotalMem",                                \
         (size_t * n_bytes, int device))                                                           \
    CALL(device_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute",                        \
         (int *value, int attribute, int device))                                                  \
    MAY(device_properties, NULL, "hipGetDevicePropertiesR0600", (void *properties, int index))     \
    MAY(device_properties_5, NULL, "hipGetDeviceProperties", (void *properties, int index))        \
    CALL(device_reaches, "cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer",                        \
         (int *reaches, int from, int to))                                                         \
    CALL(device_use, NULL, "hipSetDevice", (int index))                                            \
    CALL(device_peer, NULL, "hipDeviceEnablePeerAccess", (int peer, unsigned flags))               \
    CALL(context_retain, "cuDevicePrimaryCtxRetain", NULL, (driver_context * out, int device))     \
    CALL(context_use, "cuCtxSetCurrent", NULL, (driver_context context))                           \
    CALL(context_peer, "cuCtxEnablePeerAccess", NULL, (driver_context peer, unsigned flags))       \
    CALL(memory_info, "cuMemGetInfo_v2", "hipMemGetInfo", (size_t * free, size_t * total))         \
    CALL(memory_alloc, "cuMemAlloc_v2", "hipMalloc", (void **out, size_t n_bytes))                 \
    CALL(memory_alloc_with, NULL, "hipExtMallocWithFlags",                                         \
         (void **out, size_t n_bytes, unsigned flags))                                             \
    CALL(memory_free, "cuMemFree_v2", "hipFree", (void *p))                                        \
    CALL(host_alloc, "cuMemHostAlloc", "hipHostMalloc",                                            \
         (void **out, size_t n_bytes, unsigned flags))                                             \
    CALL(host_free, "cuMemFreeHost", "hipHostFree", (void *p))                                     \
    CALL(host_address, "cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer",                  \
         (void **device, void *host, unsigned flags))                                              \
    CALL(upload, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                     \
         (void *to, const void *from, size_t n_bytes, driver_stream s))                            \
    CALL(download, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                   \
         (void *to, const void *from, size_t n_bytes, driver_stream s))                            \
    CALL(copy, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync",                                       \
         (void *to, const void *from, size_t n_bytes, driver_stream s))                            \
    CALL(fill, "cuMemsetD8Async", "hipMemsetAsync",                                                \
         (void *to, int value, size_t n_bytes, driver_stream s))                                   \
    CALL(stream_create, "cuStreamCreate", "hipStreamCreateWithFlags",                              \
         (driver_stream * out, unsigned flags))                                                    \
    CALL(stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy", (driver_stream s))              \
    CALL(stream_sync, "cuStreamSynchronize", "hipStreamSynchronize", (driver_stream s))            \
    CALL(stream_wait, "cuStreamWaitEvent", "hipStreamWaitEvent",                                   \
         (driver_stream s, driver_event e, unsigned flags))                                        \
    CALL(event_create, "cuEventCreate", "hipEventCreateWithFlags",                                 \
         (driver_event * out, unsigned flags))                                                     \
    CALL(event_destroy, "cuEventDestroy_v2", "hipEventDestroy", (driver_event e))                  \
    CALL(event_record, "cuEventRecord", "hipEventRecord", (driver_event e, driver_stream s))       \
    CALL(event_query, "cuEventQuery", "hipEventQuery", (driver_event e))                           \
    CALL(event_elapsed, "cuEventElapsedTime", "hipEventElapsedTime",                               \
         (float *ms, driver_event from, driver_event to))                                          \
    CALL(capture_begin, "cuStreamBeginCapture_v2", "hipStreamBeginCapture",                        \
         (driver_stream s, int mode))                                                              \
    CALL(capture_end, "cuStreamEndCapture", "hipStreamEndCapture",                                 \
         (driver_stream s, driver_graph * out))                                                    \
    CALL(graph_destroy, "cuGraphDestroy", "hipGraphDestroy", (driver_graph g))                     \
    CALL(program_create, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags",            \
         (driver_program * out, driver_graph g, unsigned long long flags))                         \
    CALL(program_destroy, "cuGraphExecDestroy", "hipGraphExecDestroy", (driver_program p))         \
    CALL(program_launch, "cuGraphLaunch", "hipGraphLaunch", (driver_program p, driver_stream s))   \
    MAY(program_upload, "cuGraphUpload", NULL, (driver_program p, driver_stream s))                \
    CALL(                                                                                          \
        module_load, "cuModuleLoadDataEx", "hipModuleLoadDataEx",                                  \
        (driver_module * out, const void *image, unsigned n_options, int *options, void **values)) \
    CALL(module_function, "cuModuleGetFunction", "hipModuleGetFunction",                           \
         (driver_function * out, driver_module m, const char *name))                               \
    CALL(launch, "cuLaunchKernel", "hipModuleLaunchKernel",                                        \
         (driver_function f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
          unsigned block_y, unsigned block_z, unsigned shared_bytes, driver_stream s,              \
          void **params, void **extra))                                                            \
    MAY(launch_with, "cuLaunchKernelEx", NULL,                                                     \
        (const driver_config *config, driver_function f, void **params, void **extra))             \
    MAY(error_text, "cuGetErrorString", "hipDrvGetErrorString", (int result, const char **text))

typedef struct driver_calls {
#define DRIVER_MEMBER(name, cuda, hip, params) int(*name) params;
    DRIVER_CALLS(DRIVER_MEMBER, DRIVER_MEMBER)
#undef DRIVER_MEMBER
} driver_calls;

#endif
