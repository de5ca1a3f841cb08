/* quant_formats.h: the tensor types, one row each. Every table of types is generated from these
 * lists; a type whose row is here but that lacks a part elsewhere does not compile. `name` forms
 * function and struct names: block_NAME (quant_blocks.h), quant_quantize_NAME, decode_NAME, the CPU
 * tiers' NAME_quants, the GPU's gpu_NAME.
 *
 * type       quant_type is QUANT_type
 * name       as in the program's options
 * number     in GGUF files (ggml_type)
 * elems      elements per block; 1 for plain types
 * bytes      per block
 * file_type  general.file_type of a file whose matrices have this type; -1: none
 * sub        elements that share a scale
 * has_min    1: values are scale * q - minimum; 0: scale * q
 * at, halfs  a block has `halfs` half-precision scales, starting at member `at`. Its other
 *            bytes are integers, so they are always finite. */
#ifndef QUANT_QUANT_FORMATS_H
#define QUANT_QUANT_FORMATS_H

/* X(type, name, number, elems, bytes, file_type) */
#define QUANT_PLAIN(X)                                                                             \
    X(F32, f32, 0, 1, 4, 0)                                                                        \
    X(F16, f16, 1, 1, 2, 1)                                                                        \
    X(BF16, bf16, 30, 1, 2, 32)

/* X(type, name, number, elems, bytes, file_type, sub, has_min, at, halfs) */
#define QUANT_BLOCKS(X)                                                                            \
    X(Q4_0, q4_0, 2, 32, 18, 2, 32, 0, d, 1)                                                       \
    X(Q4_1, q4_1, 3, 32, 20, 3, 32, 1, d, 2)                                                       \
    X(Q5_0, q5_0, 6, 32, 22, 8, 32, 0, d, 1)                                                       \
    X(Q5_1, q5_1, 7, 32, 24, 9, 32, 1, d, 2)                                                       \
    X(Q8_0, q8_0, 8, 32, 34, 7, 32, 0, d, 1)                                                       \
    X(Q2_K, q2_k, 10, 256, 84, 10, 16, 1, d, 2)                                                    \
    X(Q3_K, q3_k, 11, 256, 110, 11, 16, 0, d, 1)                                                   \
    X(Q4_K, q4_k, 12, 256, 144, 14, 32, 1, d, 2)                                                   \
    X(Q5_K, q5_k, 13, 256, 176, 16, 32, 1, d, 2)                                                   \
    X(Q6_K, q6_k, 14, 256, 210, 18, 16, 0, d, 1)                                                   \
    X(IQ4_NL, iq4_nl, 20, 32, 18, 25, 32, 0, d, 1)                                                 \
    X(IQ4_XS, iq4_xs, 23, 256, 136, 30, 32, 0, d, 1)                                               \
    X(MXFP4, mxfp4, 39, 32, 17, 38, 32, 0, e, 0)

/* Three bits and less. quant_low.h defines the values of these blocks once for all CPU tiers and
 * the GPU. The columns are those of QUANT_BLOCKS. */
#define QUANT_LOW(X)                                                                               \
    X(IQ2_XXS, iq2_xxs, 16, 256, 66, 19, 32, 0, d, 1)                                              \
    X(IQ2_XS, iq2_xs, 17, 256, 74, 20, 16, 0, d, 1)                                                \
    X(IQ3_XXS, iq3_xxs, 18, 256, 98, 23, 32, 0, d, 1)                                              \
    X(IQ1_S, iq1_s, 19, 256, 50, 24, 32, 0, d, 1)                                                  \
    X(IQ3_S, iq3_s, 21, 256, 110, 26, 32, 0, d, 1)                                                 \
    X(IQ2_S, iq2_s, 22, 256, 82, 29, 16, 0, d, 1)                                                  \
    X(IQ1_M, iq1_m, 29, 256, 56, 31, 16, 0, scales, 0)                                             \
    X(TQ1_0, tq1_0, 34, 256, 54, 36, 32, 0, d, 1)                                                  \
    X(TQ2_0, tq2_0, 35, 256, 66, 37, 32, 0, d, 1)                                                  \
    X(NVFP4, nvfp4, 40, 64, 36, 39, 16, 0, d, 0)                                                   \
    X(Q1_0, q1_0, 41, 128, 18, 40, 32, 0, d, 1)                                                    \
    X(Q2_0, q2_0, 42, 64, 18, 41, 32, 0, d, 1)

/* Known by size only: X(type, name, number, elems, bytes, file_type). */
#define QUANT_OPAQUE(X)                                                                            \
    X(I8, i8, 24, 1, 1, -1)                                                                        \
    X(I16, i16, 25, 1, 2, -1)                                                                      \
    X(I32, i32, 26, 1, 4, -1)                                                                      \
    X(I64, i64, 27, 1, 8, -1)                                                                      \
    X(F64, f64, 28, 1, 8, -1)

#define QUANT_QUANTIZED(X)                                                                         \
    QUANT_BLOCKS(X)                                                                                \
    QUANT_LOW(X)

/* Types that kernels can compute with. */
#define QUANT_COMPUTED(X)                                                                          \
    QUANT_PLAIN(X)                                                                                 \
    QUANT_QUANTIZED(X)

/* A block's shape as constants: NAME_elems, NAME_bytes, NAME_sub, NAME_min. */
#define QUANT_SHAPE(type, name, number, elems, bytes, file_type, sub, has_min, at, halfs)          \
    name##_elems = elems, name##_bytes = bytes, name##_sub = sub, name##_min = has_min,

#endif
