/* fuzz_session.c: any bytes as a saved session: the result is an error, or tokens of the vocabulary
 * and a cache of the right size within the file. Hardly any input has correct hashes, so each input
 * runs unchanged and once more with corrected hashes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "mem.h"
#include "session_file.h"

static const session_shape shape = {
    .model = 5, .settings = 6, .type_k = 1, .type_v = 1, .token_bytes = 20, .n_vocab = 100};

static volatile unsigned sink; /* keeps the reads */

static void try_file(const uint8_t *data, size_t n) {
    session_view v;
    pi_error err = {0};
    if (session_parse(data, n, "fuzz", &shape, &v, &err) != PI_OK) {
        if (err.message[0] == '\0') abort(); /* every error has a message */
        return;
    }
    size_t n_cache = (size_t)v.n_tokens * shape.token_bytes;
    if (v.cache < data || (size_t)(data + n - v.cache) != n_cache) abort();
    unsigned sum = 0;
    for (size_t i = 0; i < n_cache; i++) sum += v.cache[i];
    for (int32_t i = 0; i < v.n_tokens; i++) {
        int32_t id;
        memcpy(&id, v.tokens + 4 * (size_t)i, sizeof id);
        if (id < 0 || id >= shape.n_vocab) abort();
    }
    sink = sum;
}

/* Corrects the hashes in the header. */
static void seal(uint8_t *data, size_t n) {
    session_hash h = {0};
    int32_t n_tokens;
    memcpy(&n_tokens, data + 12, sizeof n_tokens);
    session_hash_add(&h, data + SESSION_HEADER_BYTES, n - SESSION_HEADER_BYTES);
    session_header_write(data, &shape, n_tokens, session_hash_end(&h));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    try_file(data, n);
    if (n < SESSION_HEADER_BYTES) return 0;
    uint8_t *copy = mem_alloc(n);
    if (!copy) return 0;
    memcpy(copy, data, n);
    seal(copy, n);
    try_file(copy, n);
    mem_free(copy);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const int32_t counts[] = {1, 7};
    if (i >= sizeof counts / sizeof *counts) return 0;
    size_t n = SESSION_HEADER_BYTES + (size_t)counts[i] * (4 + (size_t)shape.token_bytes);
    if (n > max) return 0;
    memset(data, 0, n);
    memcpy(data + 12, &counts[i], sizeof counts[i]);
    for (size_t k = SESSION_HEADER_BYTES; k < n; k += 4) data[k] = (uint8_t)(k % 90);
    seal(data, n);
    return n;
}
