/* kl_base.c: see kl_base.h. */
#include "kl_base.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "base runs are written in host byte order, and the format is little-endian");

static const char magic[8] = {'P', 'I', 'K', 'L', 'B', 'A', 'S', 'E'};

enum { VERSION = 1, FLAG_LLAMA_WINDOWS = 1 };
enum { Q_MAX = UINT16_MAX };

/* Probabilities that sum to 1 were rounded by half a step each, and the tokens beyond the range add
 * n_vocab * 1e-14: their sum is within 2.5e-4 of 1. */
static const double max_log_sum = 1e-3;

typedef struct file_header {
    char magic[8];
    uint32_t version, flags;
    int32_t n_vocab, n_ctx, n_windows, reserved;
} file_header;
_Static_assert(sizeof(file_header) == 32, "no padding");

typedef struct row_header {
    float top, step;
} row_header;

/* ---- rows ------------------------------------------------------------------------------------ */

size_t kl_base_row_bytes(int32_t n_vocab) {
    assert(n_vocab >= 1);
    size_t n = (size_t)n_vocab + (size_t)(n_vocab & 1); /* rows stay aligned to 4 bytes */
    return sizeof(row_header) + n * sizeof(uint16_t);
}

void kl_base_pack(uint8_t *row, const float *logits, int32_t n_vocab, float most, double log_sum) {
    float least = most;
    for (int32_t i = 0; i < n_vocab; i++) least = logits[i] < least ? logits[i] : least;
    double range = (double)most - (double)least;
    if (!(range < KL_BASE_RANGE)) range = KL_BASE_RANGE;
    row_header h = {.top = (float)((double)most - log_sum), .step = (float)(range / Q_MAX)};
    /* Divides by the step that readers multiply with. Equal logits have no range: all are 0. */
    double per_nat = h.step > 0 ? 1 / (double)h.step : 0;
    uint16_t *q = (uint16_t *)(row + sizeof h);
    memcpy(row, &h, sizeof h);
    for (int32_t i = 0; i < n_vocab; i++) {
        double steps = ((double)most - (double)logits[i]) * per_nat + 0.5;
        q[i] = (uint16_t)(steps < Q_MAX ? steps : Q_MAX); /* floor of a positive number */
    }
    if (n_vocab & 1) q[n_vocab] = 0;
}

/* Largest and smallest values that kl_base_pack can write, with room for rounding to float. */
static bool row_is_possible(const row_header *h, int32_t n_vocab) {
    static const float slack = 1e-3f;
    return h->top <= slack && h->top >= -logf((float)n_vocab) - slack && h->step >= 0 &&
           h->step <= (float)(KL_BASE_RANGE / Q_MAX) * (1 + slack);
}

bool kl_base_compare(const uint8_t *row, const float *logits, int32_t n_vocab, double log_sum,
                     int32_t target, kl_base_difference *out) {
    row_header h;
    memcpy(&h, row, sizeof h);
    if (!row_is_possible(&h, n_vocab)) return false; /* also rejects NaN */
    const uint16_t *q = (const uint16_t *)(row + sizeof h);
    double top = (double)h.top, step = (double)h.step;
    double sum = 0, weighted = 0;
    int32_t best = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double log_base = top - step * q[i];
        double base = exp(log_base);
        sum += base;
        weighted += base * (log_base - ((double)logits[i] - log_sum));
        if (logits[i] > logits[best]) best = i;
    }
    double log_base_sum = log(sum);
    if (!(fabs(log_base_sum) <= max_log_sum)) return false;
    /* With p = base / sum: sum p (log p - log other) = weighted / sum - log sum. */
    out->divergence = weighted / sum - log_base_sum;
    out->base_surprise = log_base_sum - (top - step * q[target]);
    out->same_top = q[best] == 0;
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

pi_status kl_base_create(const char *path, const kl_base_info *info, const int32_t *tokens,
                         file_writer **out, pi_error *err) {
    file_header h = {.version = VERSION,
                     .flags = info->llama_windows ? FLAG_LLAMA_WINDOWS : 0,
                     .n_vocab = info->n_vocab,
                     .n_ctx = info->n_ctx,
                     .n_windows = info->n_windows};
    memcpy(h.magic, magic, sizeof magic);
    size_t n_bytes = (size_t)info->n_windows * (size_t)info->n_ctx * sizeof *tokens;
    pi_status status = file_writer_open(path, out, err);
    if (status != PI_OK) return status;
    status = file_writer_write(*out, &h, sizeof h, err);
    if (status == PI_OK) status = file_writer_write(*out, tokens, n_bytes, err);
    if (status != PI_OK) {
        file_writer_abort(*out);
        *out = NULL;
    }
    return status;
}

static pi_status check_header(const file_header *h, const char *path, pi_error *err) {
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return error_set(err, PI_ERR_FORMAT, "not a base run: %s: write one first", path);
    if (h->version != VERSION || (h->flags & ~(uint32_t)FLAG_LLAMA_WINDOWS) || h->reserved)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "base run of another version: %s: version %u, flags %x: make it again "
                         "with this program",
                         path, h->version, h->flags);
    return PI_OK;
}

/* Size of a file with these numbers; false when no such file can exist. */
static bool size_of_file(const kl_base_info *info, size_t *n_tokens, size_t *n_bytes) {
    size_t windows = (size_t)info->n_windows, rows, row_bytes, total;
    if (info->n_vocab < 1 || info->n_ctx < 2 || info->n_windows < 1 || kl_base_scored(info) < 1)
        return false;
    return size_mul(windows, (size_t)info->n_ctx, n_tokens) &&
           size_mul(*n_tokens, sizeof(int32_t), &total) &&
           size_mul(windows, (size_t)kl_base_scored(info), &rows) &&
           size_mul(rows, kl_base_row_bytes(info->n_vocab), &row_bytes) &&
           size_add(total, row_bytes, &total) && size_add(total, sizeof(file_header), n_bytes);
}

pi_status kl_base_parse(kl_base *b, const uint8_t *data, size_t n_data, const char *name,
                        pi_error *err) {
    file_header h;
    if (n_data < sizeof h)
        return error_set(err, PI_ERR_FORMAT, "not a base run: %s: %zu bytes: write one first", name,
                         n_data);
    memcpy(&h, data, sizeof h);
    pi_status status = check_header(&h, name, err);
    if (status != PI_OK) return status;
    b->info = (kl_base_info){.n_vocab = h.n_vocab,
                             .n_ctx = h.n_ctx,
                             .n_windows = h.n_windows,
                             .llama_windows = h.flags & FLAG_LLAMA_WINDOWS};
    size_t n_tokens, n_bytes;
    if (!size_of_file(&b->info, &n_tokens, &n_bytes) || n_bytes != n_data)
        return error_set(err, PI_ERR_FORMAT,
                         "base run is damaged: %s: %zu bytes do not hold %d windows of %d tokens "
                         "and %d probabilities: make it again",
                         name, n_data, h.n_windows, h.n_ctx, h.n_vocab);
    b->tokens = (const int32_t *)(data + sizeof h);
    b->rows = data + sizeof h + n_tokens * sizeof(int32_t);
    for (size_t i = 0; i < n_tokens; i++)
        if (b->tokens[i] < 0 || b->tokens[i] >= h.n_vocab)
            return error_set(err, PI_ERR_FORMAT,
                             "base run is damaged: %s: token %zu has id %d of %d: make it again",
                             name, i, b->tokens[i], h.n_vocab);
    return PI_OK;
}

pi_status kl_base_open(kl_base *b, const char *path, pi_error *err) {
    *b = (kl_base){0};
    pi_status status = file_map_open(&b->map, path, false, err);
    if (status == PI_OK) status = kl_base_parse(b, b->map.data, b->map.size, path, err);
    if (status != PI_OK) kl_base_close(b);
    return status;
}

void kl_base_close(kl_base *b) {
    file_map_close(&b->map);
    *b = (kl_base){0};
}

const uint8_t *kl_base_row(const kl_base *b, int64_t i) {
    return b->rows + (size_t)i * kl_base_row_bytes(b->info.n_vocab);
}
