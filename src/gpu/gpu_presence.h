/* gpu_presence.h: whether this machine has a GPU, whatever its backend reports: the files and
 * device nodes of the vendors' kernel drivers. A backend without a device only knows that the
 * driver's library did not answer; these files show why. */
#ifndef GPU_GPU_PRESENCE_H
#define GPU_GPU_PRESENCE_H

#include "gpu.h"

enum { GPU_VERSION_TEXT = 32, GPU_FAILURES = 3 };

/* A call that failed, and the error. */
typedef struct gpu_failure {
    char call[64], error[256]; /* "open /dev/kfd", "Permission denied" */
} gpu_failure;

typedef struct gpu_presence {
    const char *vendor;             /* "NVIDIA"; NULL: a simulated GPU, with no kernel driver */
    bool driver;                    /* its kernel driver is loaded */
    bool windows;                   /* the driver is that of Windows (WSL) */
    char version[GPU_VERSION_TEXT]; /* of the kernel driver; "": unknown */
    int n_gpus;                     /* that the driver lists; -1: unknown */
    const char *node;               /* that programs open; NULL: without `driver` */
    int node_problem;               /* opening it for reading and writing: errno, 0: possible */
    const char *library;            /* that the backend opens at run time: its newest version */
    bool library_missing;           /* no version can be loaded */
    gpu_failure failures[GPU_FAILURES];
    int n_failures;
} gpu_presence;

/* The names of the driver's library, the newest version first, NULL after the last; NULL for a
 * backend of simulated GPUs. */
const char *const *gpu_driver_libraries(const char *backend);

/* Fills in what is known of a backend's GPUs. root: the folder that has /proc, /dev and /sys, and
 * unless it is empty, also the driver's library. Without a driver nothing else is looked at. */
void gpu_presence_find(const char *root, const gpu_backend_row *row, gpu_presence *out);

/* Turns the error of a backend that found no device (PI_ERR_NOT_FOUND) into the reason why the GPU
 * is not used, with another status, if there is a driver. Other errors stay, and so do all errors
 * without a driver. opened: the backend's table was found; named: in a folder that the user
 * named. */
void gpu_presence_explain(const gpu_presence *p, const gpu_backend_row *row, bool opened,
                          bool named, pi_error *err);

/* Whether the kernels run on this device. PI_ERR_UNSUPPORTED: its instructions are too old. */
pi_status gpu_device_check(const gpu_backend_row *row, const gpu_info *info, pi_error *err);

#endif
