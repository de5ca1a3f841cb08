// choice.glsl: the choices of experts (gpu_ops.h): an expert's index and its weight.
uint expert_of(uint64_t choices, int64_t pair) { return load_word(at4(choices, 2 * pair)); }
float weight_of(uint64_t choices, int64_t pair) { return load_float(at4(choices, 2 * pair + 1)); }

// Scale and bias of an expert for a row's product; 0: none.
float scaled(float sum, uint64_t scales, uint64_t bias, float weight, int expert, int64_t at) {
    float scale = scales != 0 ? load_float(at4(scales, expert)) : 1.0;
    return sum * (scale * weight) + (bias != 0 ? load_float(at4(bias, at)) : 0.0);
}
