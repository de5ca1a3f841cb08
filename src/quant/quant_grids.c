/* quant_grids.c: the code books as bytes: the lists, expanded by the compiler to the values of
 * low_point_... (quant_low.h). */
#include "quant_grids.h"

#include "quant_low.h"

/* Moves coordinate i of a point, of 2 or 4 bits, to byte i. */
#define TWO(v, i)  ((uint64_t)((v) >> 2 * (i)&3) << 8 * (i))
#define FOUR(v, i) ((uint32_t)((v) >> 4 * (i)&15) << 8 * (i))
#define EIGHT(v)                                                                                   \
    (TWO(v, 0) | TWO(v, 1) | TWO(v, 2) | TWO(v, 3) | TWO(v, 4) | TWO(v, 5) | TWO(v, 6) | TWO(v, 7))
#define IQ3(v) (FOUR(v, 0) | FOUR(v, 1) | FOUR(v, 2) | FOUR(v, 3))

#define IQ2(v)   (LOW_BYTES(8) + EIGHT(v) * 17 + (EIGHT(v) >> 1 & LOW_BYTES(1)))
#define IQ1(v)   ((EIGHT(v) * 8 + LOW_BYTES(0x78)) ^ LOW_BYTES(0x80))
#define IQ3_S(v) (IQ3(v) * 2 + 0x01010101u)
#define IQ3_XXS(v)                                                                                 \
    (IQ3(v) * 8 + 0x04040404u + (IQ3(v) & IQ3(v) >> 1 & IQ3(v) >> 2 & 0x01010101u) * 2)

#define ROW_IQ2(...)     QUANT_GRID_ROW(IQ2, __VA_ARGS__)
#define ROW_IQ1(...)     QUANT_GRID_ROW(IQ1, __VA_ARGS__)
#define ROW_IQ3_XXS(...) QUANT_GRID_ROW(IQ3_XXS, __VA_ARGS__)
#define ROW_IQ3_S(...)   QUANT_GRID_ROW(IQ3_S, __VA_ARGS__)

const uint64_t quant_grid_iq2_xxs[256] = {QUANT_GRID_IQ2_XXS(ROW_IQ2)};
const uint64_t quant_grid_iq2_xs[512] = {QUANT_GRID_IQ2_XS(ROW_IQ2)};
const uint64_t quant_grid_iq2_s[1024] = {QUANT_GRID_IQ2_S(ROW_IQ2)};
const uint64_t quant_grid_iq1[2048] = {QUANT_GRID_IQ1(ROW_IQ1)};
const uint32_t quant_grid_iq3_xxs[256] = {QUANT_GRID_IQ3_XXS(ROW_IQ3_XXS)};
const uint32_t quant_grid_iq3_s[512] = {QUANT_GRID_IQ3_S(ROW_IQ3_S)};
