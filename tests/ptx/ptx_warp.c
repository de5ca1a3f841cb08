/* ptx_warp.c: operations of all lanes of a warp: shuffles, votes, matrices. The scheduler calls
 * these functions when all lanes have reached the instruction. Layouts of fragments follow the PTX
 * manual, "Matrix Fragments for mma.m8n8k16", "... m16n8k8", "... m16n8k16" and "... m16n8k32". */
#include <string.h>

#include "ptx_inside.h"

static uint32_t *reg(ptx_warp *w, uint32_t at) {
    return (uint32_t *)(void *)(w->registers + at);
}

/* A shuffle or vote of all lanes orders their accesses before it and after it. */
static bool join_lanes(ptx_warp *w, const ptx_insn *i, uint32_t members) {
    for (int l = 0; l < WARP; l++) {
        if (reg(w, members)[l] == (uint32_t)ALL_LANES) continue;
        ptx_fail(w, i, l, "a warp operation of some lanes: not supported");
        return false;
    }
    w->step = (w->step + 1) & TAG_MAX_STEP;
    return true;
}

void ptx_shuffle_bfly(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t *d = reg(w, i->r[0]), *p = reg(w, i->r[1]);
    uint32_t a[WARP], there = 0;
    if (!join_lanes(w, i, i->r[5])) return;
    memcpy(a, reg(w, i->r[2]), sizeof a);
    for (uint32_t l = 0; l < WARP; l++) {
        const uint32_t c = reg(w, i->r[4])[l], segment = c >> 8 & 31, last = c & 31;
        const uint32_t most = (l & segment) | (last & ~segment);
        const uint32_t from = l ^ (reg(w, i->r[3])[l] & 31);
        const bool within = from <= most;
        d[l] = a[within ? from : l];
        there |= (uint32_t)within << l;
    }
    *p = (*p & ~mask) | (there & mask);
}

void ptx_ballot(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const uint32_t votes = *reg(w, i->r[1]) & mask;
    if (!join_lanes(w, i, i->r[2])) return;
    for (int l = 0; l < WARP; l++) reg(w, i->r[0])[l] = votes;
}

void ptx_warp_sync(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    join_lanes(w, i, i->r[0]);
}

/* Lane 8 k + j has the address of row j of matrix k: 8 values of 16 bits. Lane l receives values 2
 * (l % 4) and the next of row l / 4 of each matrix; transposed: rows and values exchanged. */
static void load_matrix(ptx_warp *w, const ptx_insn *i, bool transposed) {
    uint16_t lines[WARP][8];
    for (uint32_t l = 0; l < WARP; l++) {
        const uint8_t *line = ptx_shared_read(w, i, (int)l, reg(w, i->r[0])[l], sizeof lines[l]);
        if (!line) return;
        memcpy(lines[l], line, sizeof lines[l]);
    }
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t l = 0; l < WARP; l++) {
            const uint32_t line = l / 4, at = l % 4 * 2;
            const uint16_t low = transposed ? lines[8 * k + at][line] : lines[8 * k + line][at];
            const uint16_t high = transposed ? lines[8 * k + at + 1][line]
                                             : lines[8 * k + line][at + 1];
            reg(w, i->r[k + 1])[l] = low | (uint32_t)high << 16;
        }
    }
}

void ptx_load_matrix(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    load_matrix(w, i, false);
}

void ptx_load_matrix_t(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    load_matrix(w, i, true);
}

/* ---- products of matrices -------------------------------------------------------------------- */

static float value_of(uint32_t pair, uint32_t k, bool bf16) {
    const uint32_t bits = k ? pair >> 16 : pair & 0xffff;
    if (!bf16) return ptx_half_float(bits);
    const uint32_t wide = bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

/* d = a b + c with a 16 x n_k, b n_k x 8. Lane l has of a: rows l / 4 and l / 4 + 8 (registers 0
 * and 1; for the upper eight columns 2 and 3), columns 2 (l % 4) and the next; of b: rows like the
 * columns of a, column l / 4; of c: rows like a, two columns each. Sums are float; hardware may
 * round differently. */
static void multiply(ptx_warp *w, const ptx_insn *i, uint32_t n_k, bool bf16) {
    float a[16][16], b[8][16];
    const uint32_t n_a = n_k / 4, n_b = n_k / 8;
    const uint32_t *at_a = i->r + 4, *at_b = at_a + n_a, *at_c = at_b + n_b;
    for (uint32_t l = 0; l < WARP; l++) {
        for (uint32_t part = 0; part < n_a; part++) {
            const uint32_t pair = reg(w, at_a[part])[l];
            for (uint32_t k = 0; k < 2; k++)
                a[l / 4 + part % 2 * 8][l % 4 * 2 + part / 2 * 8 + k] = value_of(pair, k, bf16);
        }
        for (uint32_t part = 0; part < n_b; part++) {
            const uint32_t pair = reg(w, at_b[part])[l];
            for (uint32_t k = 0; k < 2; k++)
                b[l / 4][l % 4 * 2 + part * 8 + k] = value_of(pair, k, bf16);
        }
    }
    for (uint32_t l = 0; l < WARP; l++) {
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t row = l / 4 + k / 2 * 8, col = l % 4 * 2 + k % 2;
            float sum;
            memcpy(&sum, reg(w, at_c[k]) + l, sizeof sum);
            for (uint32_t j = 0; j < n_k; j++) sum += a[row][j] * b[col][j];
            memcpy(reg(w, i->r[k]) + l, &sum, sizeof sum);
        }
    }
}

void ptx_mma_k8_f16(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    multiply(w, i, 8, false);
}

void ptx_mma_k16_f16(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    multiply(w, i, 16, false);
}

void ptx_mma_k16_bf16(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    multiply(w, i, 16, true);
}

static int byte_of(uint32_t word, uint32_t k) {
    return (int8_t)(word >> 8 * k & 0xff);
}

/* d = a b + c for signed bytes, modulo 2^32; a n_rows x n_k, b n_k x 8. Lane l has four bytes in a
 * register, from column 4 (l % 4) of a on, and from this row of b on: of a in rows l / 4 and, with
 * 16 rows, l / 4 + 8, then the columns 16 behind; of b in column l / 4. c is as in `multiply`. */
static void multiply_bytes(ptx_warp *w, const ptx_insn *i, uint32_t n_rows, uint32_t n_k) {
    int a[16][32], b[8][32];
    const uint32_t halves = n_rows / 8, n_a = halves * (n_k / 16), n_b = n_k / 16;
    const uint32_t n_c = 2 * halves;
    const uint32_t *at_a = i->r + n_c, *at_b = at_a + n_a, *at_c = at_b + n_b;
    for (uint32_t l = 0; l < WARP; l++) {
        for (uint32_t part = 0; part < n_a; part++) {
            for (uint32_t k = 0; k < 4; k++)
                a[l / 4 + part % halves * 8][l % 4 * 4 + part / halves * 16 + k] = byte_of(
                    reg(w, at_a[part])[l], k);
        }
        for (uint32_t part = 0; part < n_b; part++) {
            for (uint32_t k = 0; k < 4; k++)
                b[l / 4][l % 4 * 4 + part * 16 + k] = byte_of(reg(w, at_b[part])[l], k);
        }
    }
    for (uint32_t l = 0; l < WARP; l++) {
        for (uint32_t k = 0; k < n_c; k++) {
            const uint32_t row = l / 4 + k / 2 * 8, col = l % 4 * 2 + k % 2;
            uint32_t sum = reg(w, at_c[k])[l];
            for (uint32_t j = 0; j < n_k; j++) sum += (uint32_t)(a[row][j] * b[col][j]);
            reg(w, i->r[k])[l] = sum;
        }
    }
}

void ptx_mma_m8_k16_s8(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    multiply_bytes(w, i, 8, 16);
}

void ptx_mma_k16_s8(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    multiply_bytes(w, i, 16, 16);
}

void ptx_mma_k32_s8(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    multiply_bytes(w, i, 16, 32);
}
