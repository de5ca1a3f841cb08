// math.glsl: functions whose precision Vulkan leaves open, and the activations of gpu_ops.h.

float tanh_of(float x) {
    float e = exp(-2.0 * abs(x)), far = (1.0 - e) / (1.0 + e), y = x * x;
    float near = abs(x) * (1.0 - y * (1.0 / 3.0 - y * (2.0 / 15.0 - y * (17.0 / 315.0))));
    float size = abs(x) < 0.25 ? near : far;
    return x < 0.0 ? -size : size; // NaN stays NaN
}

float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }

// ln(1 + e^x); x where e^x dominates. For e^x up to 1 it uses the series of artanh, because
// Vulkan's ln is inexact near 1.
float softplus(float x) {
    if (x > 20.0) return x;
    float e = exp(x), z = e / (2.0 + e), s = z * z;
    if (e > 1.0) return log(1.0 + e);
    return 2.0 * z * (1.0 + s * (1.0 / 3.0 + s * (1.0 / 5.0 + s * (1.0 / 7.0 + s * (1.0 / 9.0 +
                     s * (1.0 / 11.0 + s * (1.0 / 13.0 + s * (1.0 / 15.0))))))));
}

// cos and sin of n * f, n >= 0: exact up to the polynomials. 64 bits are one turn, so products
// lose whole turns by themselves.
vec2 cos_sin(int n, float f) {
    const uint64_t high = 0x28be60dbul, low = 0x9391054aul; // 2^64 / (2 pi), in halves
    uint bits = floatBitsToUint(abs(f));
    uint64_t m = uint64_t(bits & 0x7fffffu | 0x800000u), below = m * low;
    uint64_t above = m * high + (below >> 32);
    below &= 0xfffffffful;
    int shift = 150 - int(bits >> 23); // f = m / 2^shift
    uint64_t step = shift >= 96                ? 0ul
                    : shift >= 32              ? above >> (shift - 32)
                    : shift >= 0               ? above << (32 - shift) | below >> shift
                                               : (above << 32 | below) << -shift;
    uint64_t phase = uint64_t(n) * step;
    uint quarter = uint((phase + (1ul << 61)) >> 62) & 3u;
    phase -= uint64_t(quarter) << 62;
    float r = float(int(uint(phase >> 32))) * 1.4629180792671596e-9; // 2 pi / 2^32
    float s = r * r;
    float y = r + r * s * (-1.6666666e-1 + s * (8.3333310e-3 + s * (-1.9839335e-4 + s * 2.7183114e-6)));
    float x = 1.0 + s * (-0.5 + s * (4.1666646e-2 + s * (-1.3888403e-3 + s * 2.4769883e-5)));
    vec2 v = (quarter & 1u) != 0 ? vec2(y, x) : vec2(x, y);
    if (quarter == 1u || quarter == 2u) v.x = -v.x;
    if (quarter == 2u || quarter == 3u) v.y = -v.y;
    return f < 0.0 ? vec2(v.x, -v.y) : v;
}

#define F_RELU         0
#define F_SILU         1
#define F_GELU         2
#define F_RELU_SQUARED 3
#define F_DRELU        4
#define F_FATRELU      5

float relu(float x) { return x < 0.0 ? 0.0 : x; } // NaN stays NaN

float activation(int f, float threshold, float x) {
    switch (f) {
    case F_SILU: return x / (1.0 + exp(-x));
    case F_GELU: return 0.5 * x * (1.0 + tanh_of(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case F_RELU_SQUARED: return relu(x) * relu(x);
    case F_FATRELU: return x > threshold ? x : 0.0;
    default: return relu(x);
    }
}

// f(gate) * up; an activation of zero gives 0 for every value of up, also NaN.
float hidden(int f, float activated, float up, float cut_down) {
    float h = activated == 0.0 ? 0.0 : activated * (f == F_DRELU ? relu(up) : up);
    return abs(h) <= cut_down ? 0.0 : h;
}

// gpu_clamp: most, how, soft
#define CLAMP_SHIFTED 1
#define CLAMP_LATE    2
#define CLAMP_ALPHA   1.702

float clamp_gate(float most, int how, float x) {
    if (most == 0.0 || (how & CLAMP_LATE) != 0) return x;
    float y = x > most ? most : x;
    return (how & CLAMP_SHIFTED) != 0 ? CLAMP_ALPHA * y : y;
}
float clamp_activation(float most, int how, float soft, int f, float threshold, float gate) {
    if (soft > 0.0) return soft * tanh_of(gate / soft) / (1.0 + exp(-gate));
    float y = activation(f, threshold, clamp_gate(most, how, gate));
    return (how & CLAMP_LATE) != 0 && most > 0.0 && y > most ? most : y;
}
float clamp_up(float most, int how, float soft, float x) {
    if (most == 0.0 || most == INF) return x;
    if (soft > 0.0) return most * tanh_of(x / most);
    float y = x > most ? most : x < -most ? -most : x;
    return (how & CLAMP_SHIFTED) != 0 ? (y + 1.0) / CLAMP_ALPHA : y;
}
