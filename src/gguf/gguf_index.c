/* gguf_index.c: the hash index over keys and tensor names. */
#include "gguf_internal.h"
#include "rng.h"

/* Odd 64-bit constants with about half their bits set (fractional parts of square roots of 2 and
 * 3): they only have to spread bits. */
#define HASH_MUL_A UINT64_C(0x6a09e667f3bcc909)
#define HASH_MUL_B UINT64_C(0xbb67ae8584caa73b)

/* The high half of a 64 x 64 bit product folded onto the low one: every input bit reaches every
 * output bit, and without the seed an outsider cannot aim at a slot. */
static uint64_t hash_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_name(uint64_t seed, gguf_string name) {
    uint64_t h = hash_mix(seed ^ HASH_MUL_A, name.n_bytes ^ HASH_MUL_B);
    uint64_t i = 0;
    for (; name.n_bytes - i >= 8; i += 8) {
        h = hash_mix(h ^ gguf_load_u64((const uint8_t *)name.data + i), seed ^ HASH_MUL_B);
    }
    uint64_t tail = 0;
    for (int shift = 0; i < name.n_bytes; i++, shift += 8) {
        tail |= (uint64_t)(uint8_t)name.data[i] << shift;
    }
    return hash_mix(h ^ tail, seed ^ HASH_MUL_A);
}

bool gguf_index_init(gguf_index *index, uint64_t n_names) {
    size_t n_slots = 8;
    while (n_slots < 2 * n_names) n_slots *= 2; /* n_names is capped far below overflow */
    index->slots = mem_calloc(n_slots, sizeof *index->slots);
    index->n_slots = index->slots ? n_slots : 0;
    index->seed = rng_entropy();
    return index->slots != NULL;
}

void gguf_index_free(gguf_index *index) {
    mem_free(index->slots);
    *index = (gguf_index){0};
}

int64_t gguf_index_find(const gguf_index *index, gguf_string name, gguf_index_name name_of,
                        const void *owner) {
    if (index->n_slots == 0) return GGUF_INDEX_NONE;
    size_t mask = index->n_slots - 1;
    for (size_t i = hash_name(index->seed, name) & mask; index->slots[i]; i = (i + 1) & mask) {
        gguf_string other = name_of(owner, index->slots[i] - 1);
        if (other.n_bytes == name.n_bytes && memcmp(other.data, name.data, name.n_bytes) == 0) {
            return (int64_t)index->slots[i] - 1;
        }
    }
    return GGUF_INDEX_NONE;
}

void gguf_index_insert(gguf_index *index, gguf_string name, uint32_t number) {
    size_t mask = index->n_slots - 1;
    size_t i = hash_name(index->seed, name) & mask;
    while (index->slots[i]) i = (i + 1) & mask;
    index->slots[i] = number + 1;
}

gguf_string gguf_name_of_value(const void *values, uint32_t number) {
    return ((const gguf_value *)values)[number].key;
}

gguf_string gguf_name_of_tensor(const void *tensors, uint32_t number) {
    return gguf_string_of(((const gguf_tensor *)tensors)[number].name);
}
