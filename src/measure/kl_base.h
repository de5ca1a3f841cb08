/* kl_base.h: base runs: the log-probabilities of one model for every scored token of a text, saved
 * so that another model, or another quantization, can be compared with it.
 *
 * The file, little-endian, without gaps:
 *
 *     8 bytes   "PIKLBASE"
 *     uint32    version, 1
 *     uint32    flags: 1 = windows of llama.cpp
 *     int32     n_vocab
 *     int32     n_ctx, tokens of a window
 *     int32     n_windows
 *     int32     0
 *     int32     tokens[n_windows][n_ctx], as evaluated
 *     row       rows[n_windows][scored], window by window, in the order of the text
 *
 * A row holds the logarithms of all probabilities after one position:
 *
 *     float32   top: log p of the most likely token, in nats
 *     float32   step, in nats
 *     uint16    q[n_vocab], and a padding 0 when n_vocab is odd
 *
 * so that log p[i] = top - step * q[i]. The steps cover the range from the most to the least likely
 * token, but at most KL_BASE_RANGE nats; tokens below that (p under 1e-14 of the best) get the last
 * step. The error of a log p is half a step, at most 32 / 65535 / 2 = 2.5e-4 nats.
 * Readers scale the probabilities to a sum of 1 again, which makes a divergence computed from them
 * non-negative and its error for two equal models of second order: about step^2 / 24, 1e-8. */
#ifndef MEASURE_KL_BASE_H
#define MEASURE_KL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file.h"

#define KL_BASE_RANGE 32.0 /* nats */

typedef struct kl_base_info {
    int32_t n_vocab, n_ctx, n_windows;
    bool llama_windows;
} kl_base_info;

/* Rows before the first scored one, and scored rows of a window. Row i predicts token i + 1.
 * llama.cpp leaves out the first half, whose tokens have little context. */
static inline int32_t kl_base_first(const kl_base_info *info) {
    return info->llama_windows ? info->n_ctx / 2 : 0;
}
static inline int32_t kl_base_scored(const kl_base_info *info) {
    return info->n_ctx - 1 - kl_base_first(info);
}

/* Bytes of a row. n_vocab >= 1. */
size_t kl_base_row_bytes(int32_t n_vocab);

/* Writes a row from logits[n_vocab]; `most` is the largest of them and log_sum the logarithm of the
 * sum of their exponentials. Thread-safe. */
void kl_base_pack(uint8_t *row, const float *logits, int32_t n_vocab, float most, double log_sum);

/* Compares a row with another model's logits at that position. */
typedef struct kl_base_difference {
    double divergence;    /* sum p_base (log p_base - log p), nats */
    double base_surprise; /* -log p_base[target] */
    bool same_top;        /* the other model's best token is the base's, or within a step of it */
} kl_base_difference;

/* False when the row is damaged. Thread-safe. */
bool kl_base_compare(const uint8_t *row, const float *logits, int32_t n_vocab, double log_sum,
                     int32_t target, kl_base_difference *out);

/* Writes header and tokens; rows follow with file_writer_write, then file_writer_commit. */
pi_status kl_base_create(const char *path, const kl_base_info *info,
                         const int32_t *tokens /* [n_windows][n_ctx] */, file_writer **out,
                         pi_error *err);

typedef struct kl_base {
    file_map map;
    kl_base_info info;
    const int32_t *tokens; /* [n_windows][n_ctx], each within the vocabulary */
    const uint8_t *rows;
} kl_base;

/* Checks everything except the rows, which kl_base_compare checks. PI_ERR_IO, PI_ERR_FORMAT,
 * PI_ERR_UNSUPPORTED (another version). */
pi_status kl_base_open(kl_base *b, const char *path, pi_error *err);
/* Opens a base run in memory that the caller owns, aligned to 4; `b` is zeroed, `name` is for
 * messages. */
pi_status kl_base_parse(kl_base *b, const uint8_t *data, size_t n_data, const char *name,
                        pi_error *err);
void kl_base_close(kl_base *b); /* a zeroed one is fine */
/* Row `i` of all windows. */
const uint8_t *kl_base_row(const kl_base *b, int64_t i);

#endif
