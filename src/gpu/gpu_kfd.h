/* gpu_kfd.h: AMD's GPUs as the kernel driver lists them, without the runtime: older ones end the
 * process in their first call when a build has no code for one of the GPUs. */
#ifndef GPU_GPU_KFD_H
#define GPU_GPU_KFD_H

#include "error.h"

#define GPU_KFD_FOLDER "/sys/class/kfd/kfd/topology/nodes"

/* Whether every GPU that `folder` lists is one of `targets` ("gfx1030,gfx90a", separated by commas
 * or blanks, features behind a colon). PI_ERR_UNSUPPORTED names one that is not. A folder that is
 * missing lists none. */
pi_status gpu_kfd_check(const char *folder, const char *targets, pi_error *err);

#endif
