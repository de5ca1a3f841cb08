/* option_types.c: see option_types.h. */
#include "option_types.h"

cpu_tier option_tier(pi_kernels kernels) {
    static const cpu_tier tiers[] = {
        [PI_KERNELS_AUTO] = CPU_TIER_AUTO, [PI_KERNELS_SCALAR] = CPU_TIER_SCALAR,
        [PI_KERNELS_AVX2] = CPU_TIER_AVX2, [PI_KERNELS_AVX512] = CPU_TIER_AVX512,
        [PI_KERNELS_NEON] = CPU_TIER_NEON,
    };
    return tiers[kernels];
}

ffn_mode option_mode(pi_mode mode) {
    static const ffn_mode modes[] = {
        [PI_MODE_AUTO] = FFN_AUTO,           [PI_MODE_DENSE] = FFN_DENSE,
        [PI_MODE_EXACT] = FFN_EXACT,         [PI_MODE_PREDICT] = FFN_PREDICT,
        [PI_MODE_THRESHOLD] = FFN_THRESHOLD,
    };
    return modes[mode];
}

quant_type option_cache_type(pi_cache_type type) {
    static const quant_type types[] = {
        [PI_CACHE_F16] = QUANT_F16,
        [PI_CACHE_F32] = QUANT_F32,
        [PI_CACHE_Q8_0] = QUANT_Q8_0,
    };
    return types[type];
}
