/* driver_calls.h: the functions of NVIDIA's driver (CUDA's driver API), whose library is opened at
 * run time. Symbols name the version of a function (_v2), so that its parameters are the same with
 * every driver. */
#ifndef GPU_DRIVER_DRIVER_CALLS_H
#define GPU_DRIVER_DRIVER_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* Results that the backend tells apart. */
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
    DRIVER_STREAM_APART = 1,  /* from the legacy stream */
    DRIVER_PINNED = 1 | 2,    /* for all contexts, mapped */
    DRIVER_CAPTURE_FREELY = 2 /* restricts no other thread */
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

/* CALL(name, symbol, parameters); MAY: a feature is off without it. All return a result. */
#define DRIVER_CALLS(CALL, MAY)                                                                    \
    CALL(init, "cuInit", (unsigned flags))                                                         \
    CALL(version, "cuDriverGetVersion", (int *version))                                            \
    CALL(device_count, "cuDeviceGetCount", (int *n))                                               \
    CALL(device_get, "cuDeviceGet", (int *device, int index))                                      \
    CALL(device_name, "cuDeviceGetName", (char *name, int size, int device))                       \
    CALL(device_bus, "cuDeviceGetPCIBusId", (char *bus, int size, int device))                     \
    CALL(device_memory, "cuDeviceTotalMem_v2", (size_t * n_bytes, int device))                     \
    CALL(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))        \
    CALL(device_reaches, "cuDeviceCanAccessPeer", (int *reaches, int from, int to))                \
    CALL(context_retain, "cuDevicePrimaryCtxRetain", (driver_context * out, int device))           \
    CALL(context_use, "cuCtxSetCurrent", (driver_context context))                                 \
    CALL(context_peer, "cuCtxEnablePeerAccess", (driver_context peer, unsigned flags))             \
    CALL(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                          \
    CALL(memory_alloc, "cuMemAlloc_v2", (void **out, size_t n_bytes))                              \
    CALL(memory_free, "cuMemFree_v2", (void *p))                                                   \
    CALL(host_alloc, "cuMemHostAlloc", (void **out, size_t n_bytes, unsigned flags))               \
    CALL(host_free, "cuMemFreeHost", (void *p))                                                    \
    CALL(host_address, "cuMemHostGetDevicePointer_v2",                                             \
         (void **device, void *host, unsigned flags))                                              \
    CALL(upload, "cuMemcpyHtoDAsync_v2",                                                           \
         (void *to, const void *from, size_t n_bytes, driver_stream s))                            \
    CALL(download, "cuMemcpyDtoHAsync_v2",                                                         \
         (void *to, const void *from, size_t n_bytes, driver_stream s))                            \
    CALL(copy, "cuMemcpyDtoDAsync_v2",                                                             \
         (void *to, const void *from, size_t n_bytes, driver_stream s))                            \
    CALL(fill, "cuMemsetD8Async",                                                                  \
         (void *to, unsigned char value, size_t n_bytes, driver_stream s))                         \
    CALL(stream_create, "cuStreamCreate", (driver_stream * out, unsigned flags))                   \
    CALL(stream_destroy, "cuStreamDestroy_v2", (driver_stream s))                                  \
    CALL(stream_sync, "cuStreamSynchronize", (driver_stream s))                                    \
    CALL(stream_wait, "cuStreamWaitEvent", (driver_stream s, driver_event e, unsigned flags))      \
    CALL(event_create, "cuEventCreate", (driver_event * out, unsigned flags))                      \
    CALL(event_destroy, "cuEventDestroy_v2", (driver_event e))                                     \
    CALL(event_record, "cuEventRecord", (driver_event e, driver_stream s))                         \
    CALL(event_query, "cuEventQuery", (driver_event e))                                            \
    CALL(event_elapsed, "cuEventElapsedTime", (float *ms, driver_event from, driver_event to))     \
    CALL(capture_begin, "cuStreamBeginCapture_v2", (driver_stream s, int mode))                    \
    CALL(capture_end, "cuStreamEndCapture", (driver_stream s, driver_graph * out))                 \
    CALL(graph_destroy, "cuGraphDestroy", (driver_graph g))                                        \
    CALL(program_create, "cuGraphInstantiateWithFlags",                                            \
         (driver_program * out, driver_graph g, unsigned long long flags))                         \
    CALL(program_destroy, "cuGraphExecDestroy", (driver_program p))                                \
    CALL(program_launch, "cuGraphLaunch", (driver_program p, driver_stream s))                     \
    MAY(program_upload, "cuGraphUpload", (driver_program p, driver_stream s))                      \
    CALL(                                                                                          \
        module_load, "cuModuleLoadDataEx",                                                         \
        (driver_module * out, const void *image, unsigned n_options, int *options, void **values)) \
    CALL(module_function, "cuModuleGetFunction",                                                   \
         (driver_function * out, driver_module m, const char *name))                               \
    CALL(launch, "cuLaunchKernel",                                                                 \
         (driver_function f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
          unsigned block_y, unsigned block_z, unsigned shared_bytes, driver_stream s,              \
          void **params, void **extra))                                                            \
    MAY(launch_with, "cuLaunchKernelEx",                                                           \
        (const driver_config *config, driver_function f, void **params, void **extra))             \
    MAY(error_text, "cuGetErrorString", (int result, const char **text))

typedef struct driver_calls {
#define DRIVER_MEMBER(name, symbol, params) int(*name) params;
    DRIVER_CALLS(DRIVER_MEMBER, DRIVER_MEMBER)
#undef DRIVER_MEMBER
} driver_calls;

#endif
