/* gpu_amd.h: facts about AMD's families of GPUs. arch: "gfx1100", "gfx90a:sramecc+:xnack-". */
#ifndef GPU_GPU_AMD_H
#define GPU_GPU_AMD_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* How often a memory pin transfers per clock that the runtime reports: of GDDR6 that clock is a
 * sixteenth of the data rate, of HBM3 a quarter, of HBM2 and system memory a half. Figures: the
 * makers' data sheets, tests/gpu/test_gpu_kfd.c. */
static inline double gpu_amd_transfers(const char *arch) {
    static const char *const gddr6[] = {"gfx101",  "gfx1030", "gfx1031", "gfx1032", "gfx1034",
                                        "gfx1100", "gfx1101", "gfx1102", "gfx120"};
    static const char *const hbm3[] = {"gfx94", "gfx950"};
    for (size_t i = 0; i < sizeof gddr6 / sizeof *gddr6; i++)
        if (strncmp(arch, gddr6[i], strlen(gddr6[i])) == 0) return 16;
    for (size_t i = 0; i < sizeof hbm3 / sizeof *hbm3; i++)
        if (strncmp(arch, hbm3[i], strlen(hbm3[i])) == 0) return 4;
    return 2;
}

/* Whether kernels use matrix instructions there; hip_intrinsics.h has the same list. */
#define GPU_AMD_UNITS 1 /* 0: float units only, for comparison */
static inline bool gpu_amd_matrix_units(const char *arch) {
    static const char *const families[] = {"gfx908", "gfx90a", "gfx94",
                                           "gfx950", "gfx11",  "gfx120"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strncmp(arch, families[i], strlen(families[i])) == 0) return GPU_AMD_UNITS;
    return false;
}

#endif
