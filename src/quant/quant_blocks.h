/* quant_blocks.h: the byte layout of the block formats (GGUF's). Scales `d`, `dmin` are IEEE halfs.
 * All structs are free of padding (asserted in quant.c), little-endian. */
#ifndef QUANT_QUANT_BLOCKS_H
#define QUANT_QUANT_BLOCKS_H

#include <stdint.h>

/* value = d * q */
typedef struct block_q8_0 {
    uint16_t d;
    int8_t qs[32];
} block_q8_0;

/* value = d * (q - 8); element i < 16 in the low nibble of qs[i], element i + 16 in the high one */
typedef struct block_q4_0 {
    uint16_t d;
    uint8_t qs[16];
} block_q4_0;

/* value = d * q + m, nibbles as in q4_0 */
typedef struct block_q4_1 {
    uint16_t d, m;
    uint8_t qs[16];
} block_q4_1;

/* value = d * (q - 16); low nibbles as in q4_0, the fifth bit of element i is bit i of qh */
typedef struct block_q5_0 {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_0;

/* value = d * q + m, bits as in q5_0 */
typedef struct block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_1;

/* 8 sub-blocks of 32; value = d * sc * q - dmin * m, with 6-bit sc and m packed in `scales`.
 * Sub-blocks 2j and 2j+1 share qs[32j .. 32j+31]: low nibbles, then high nibbles. */
typedef struct block_q4_K {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} block_q4_K;

/* 16 sub-blocks of 16; value = d * sc * (q - 32), 6-bit q: low 4 bits in ql, high 2 bits in qh. */
typedef struct block_q6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
} block_q6_K;

enum { QUANT_K = 256 }; /* elements in a block of the K types */

#endif
