/* gguf_bytes.h: builds valid and invalid GGUF files byte by byte, for tests of the reader. It
 * shares no code with the writer, so that the two check each other. */
#ifndef TEST_GGUF_BYTES_H
#define TEST_GGUF_BYTES_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BYTES_MAX = 1 << 16 };

typedef struct bytes {
    uint8_t data[BYTES_MAX];
    size_t n;
} bytes;

static inline void add_raw(bytes *b, const void *p, size_t n) {
    assert(n <= BYTES_MAX - b->n);
    if (n) memcpy(b->data + b->n, p, n);
    b->n += n;
}

static inline void add_u(bytes *b, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)(v >> (8 * i));
        add_raw(b, &byte, 1);
    }
}

static inline void add_text(bytes *b, const char *s) {
    add_u(b, strlen(s), 8);
    add_raw(b, s, strlen(s));
}

static inline void add_header(bytes *b, const char *magic, uint32_t version, uint64_t n_tensors,
                              uint64_t n_keys) {
    b->n = 0;
    add_raw(b, magic, 4);
    add_u(b, version, 4);
    add_u(b, n_tensors, 8);
    add_u(b, n_keys, 8);
}

/* A key and its type; the caller adds the value. */
static inline void add_key(bytes *b, const char *key, uint32_t type) {
    add_text(b, key);
    add_u(b, type, 4);
}

static inline void add_tensor(bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                              uint32_t type, uint64_t offset) {
    add_text(b, name);
    add_u(b, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) add_u(b, dims[i], 8);
    add_u(b, type, 4);
    add_u(b, offset, 8);
}

static inline void add_padding(bytes *b, size_t align) {
    while (b->n % align) add_u(b, 0, 1);
}

#endif
