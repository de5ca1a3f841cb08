/* gpu_kfd.h: lists AMD's GPUs from the files of the kernel driver, before the HIP runtime starts:
 * GPUs for which the build has no code, such as one inside a CPU, are hidden from the runtime. */
#ifndef GPU_GPU_KFD_H
#define GPU_GPU_KFD_H

#include "error.h"

#define GPU_KFD_FOLDER "/sys/class/kfd/kfd/topology/nodes"

enum { GPU_KFD_VISIBLE = 256 };

/* Which GPUs in `folder` are one of `targets` ("gfx1030,gfx90a", separated by commas or spaces;
 * features follow a colon). visible: empty if all are; else the numbers of those that are, in the
 * form of ROCR_VISIBLE_DEVICES: "1,2". PI_ERR_UNSUPPORTED: none is. A missing folder has no GPUs.
 */
pi_status gpu_kfd_check(const char *folder, const char *targets, char visible[GPU_KFD_VISIBLE],
                        pi_error *err);

/* Number of GPUs in `folder`; -1: a missing folder. */
int gpu_kfd_count(const char *folder);

#endif
