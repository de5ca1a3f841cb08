/* activation.h: the activation functions of FFN layers, in one list. The architecture table, the
 * kernels and the converter share these names. Formulas and sources:
 *   relu    max(0, x)
 *   silu    x / (1 + e^-x)
 *   gelu    0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))       (tanh form)
 *   relu_squared  max(0, x)^2                                      (So et al. 2021)
 *   drelu   relu(gate) * relu(up); relu without a gate             (TurboSparse 2024)
 *   fatrelu x if x > threshold else 0                              (FATReLU, ProSparse 2024) */
#ifndef BASE_ACTIVATION_H
#define BASE_ACTIVATION_H

#define ACTIVATION_LIST(X)                                                                         \
    X(RELU, "relu")                                                                                \
    X(SILU, "silu")                                                                                \
    X(GELU, "gelu")                                                                                \
    X(RELU_SQUARED, "relu_squared")                                                                \
    X(DRELU, "drelu")                                                                              \
    X(FATRELU, "fatrelu")

typedef enum activation {
#define ACTIVATION_ENUM(name, text) ACTIVATION_##name,
    ACTIVATION_LIST(ACTIVATION_ENUM)
#undef ACTIVATION_ENUM
        ACTIVATION_COUNT
} activation;

static inline const char *activation_name(activation a) {
    static const char *const names[] = {
#define ACTIVATION_NAME(name, text) text,
        ACTIVATION_LIST(ACTIVATION_NAME)
#undef ACTIVATION_NAME
    };
    return (unsigned)a < ACTIVATION_COUNT ? names[a] : "unknown";
}

#endif
