/* fuzz_kl_base.c: any bytes as a base run: opening must give an error or a run whose tokens are all
 * within the vocabulary and whose rows can all be compared with logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "kl_base.h"
#include "mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    /* A mapping is page-aligned; the driver's buffer need not be. */
    uint8_t *aligned = mem_alloc(n);
    if (!aligned) return 0;
    memcpy(aligned, data, n);
    kl_base b = {0};
    pi_error err = {0};
    if (kl_base_parse(&b, aligned, n, "fuzz", &err) != PI_OK) {
        if (err.message[0] == '\0') abort(); /* every error has a message */
        mem_free(aligned);
        return 0;
    }
    int32_t n_vocab = b.info.n_vocab;
    size_t n_tokens = (size_t)b.info.n_windows * (size_t)b.info.n_ctx;
    for (size_t i = 0; i < n_tokens; i++)
        if (b.tokens[i] < 0 || b.tokens[i] >= n_vocab) abort();
    float *logits = mem_calloc((size_t)n_vocab, sizeof *logits);
    if (!logits) abort(); /* as long as a row of the file */
    double log_sum = log((double)n_vocab);
    int64_t n_rows = (int64_t)b.info.n_windows * kl_base_scored(&b.info);
    for (int64_t i = 0; i < n_rows; i++) {
        kl_base_difference d;
        if (!kl_base_compare(kl_base_row(&b, i), logits, n_vocab, log_sum, n_vocab - 1, &d))
            continue;
        /* An accepted row is a distribution, so its divergence is not negative. */
        if (!(d.divergence > -1e-9 && isfinite(d.divergence) && isfinite(d.base_surprise))) abort();
    }
    mem_free(logits);
    mem_free(aligned);
    return 0;
}

/* A complete run of each kind: two windows over seven tokens. */
size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    enum { N_VOCAB = 7, N_CTX = 6, N_WINDOWS = 2 };
    static const float logits[N_VOCAB] = {1, 0, -3, 2, 8, 5, -40};
    if (i >= 2) return 0;
    kl_base_info info = {
        .n_vocab = N_VOCAB, .n_ctx = N_CTX, .n_windows = N_WINDOWS, .llama_windows = i == 1};
    int32_t header[] = {0, 0, 1, i == 1, N_VOCAB, N_CTX, N_WINDOWS, 0};
    memcpy(header, "PIKLBASE", 8);
    size_t n_tokens = N_CTX * N_WINDOWS * sizeof(int32_t), row_bytes = kl_base_row_bytes(N_VOCAB);
    size_t n_rows = (size_t)N_WINDOWS * (size_t)kl_base_scored(&info);
    if (sizeof header + n_tokens + n_rows * row_bytes > max) return 0;
    memcpy(data, header, sizeof header);
    memset(data + sizeof header, 0, n_tokens);
    double sum = 0;
    for (int k = 0; k < N_VOCAB; k++) sum += exp((double)logits[k]);
    uint32_t row[(8 + 2 * (N_VOCAB + 1)) / 4];
    kl_base_pack((uint8_t *)row, logits, N_VOCAB, 8, log(sum));
    size_t n = sizeof header + n_tokens;
    for (size_t k = 0; k < n_rows; k++, n += row_bytes) memcpy(data + n, row, row_bytes);
    return n;
}
