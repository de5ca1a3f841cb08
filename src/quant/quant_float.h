/* quant_float.h: IEEE half and bfloat16 to and from float. */
#ifndef QUANT_QUANT_FLOAT_H
#define QUANT_QUANT_FLOAT_H

#include <stdint.h>

/* IEEE half and bfloat16; rounds to nearest even, keeps NaN and infinity. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
static inline float quant_bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}
uint16_t quant_f32_to_bf16(float f);

#endif
