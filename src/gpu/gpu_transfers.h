/* gpu_transfers.h: how often a memory pin transfers per clock that AMD's runtime reports: of GDDR6
 * that clock is a sixteenth of the data rate, of HBM3 a quarter, of HBM2 and system memory a half.
 * Figures: the makers' data sheets, tests/gpu/test_gpu_kfd.c. */
#ifndef GPU_GPU_TRANSFERS_H
#define GPU_GPU_TRANSFERS_H

#include <string.h>

/* arch: "gfx1100", "gfx90a:sramecc+:xnack-". */
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

#endif
