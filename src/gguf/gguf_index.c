/* gguf_index.c: the hash index over keys and tensor names. */
#include "gguf_impl.h"

static size_t slot_of(const gguf_index *index, gguf_string name) {
    return (size_t)hash_bytes(index->key, name.data, name.n_bytes) & (index->n_slots - 1);
}

bool gguf_index_init(gguf_index *index, uint64_t n_names) {
    size_t n_slots = 8;
    while (n_slots < 2 * n_names) n_slots *= 2; /* n_names is capped far below overflow */
    index->slots = mem_calloc(n_slots, sizeof *index->slots);
    index->n_slots = index->slots ? n_slots : 0;
    index->key = hash_key_random();
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
    for (size_t i = slot_of(index, name); index->slots[i]; i = (i + 1) & mask) {
        gguf_string other = name_of(owner, index->slots[i] - 1);
        if (other.n_bytes == name.n_bytes && memcmp(other.data, name.data, name.n_bytes) == 0) {
            return (int64_t)index->slots[i] - 1;
        }
    }
    return GGUF_INDEX_NONE;
}

void gguf_index_insert(gguf_index *index, gguf_string name, uint32_t number) {
    size_t mask = index->n_slots - 1;
    size_t i = slot_of(index, name);
    while (index->slots[i]) i = (i + 1) & mask;
    index->slots[i] = number + 1;
}

gguf_string gguf_name_of_value(const void *values, uint32_t number) {
    return ((const gguf_value *)values)[number].key;
}

gguf_string gguf_name_of_tensor(const void *tensors, uint32_t number) {
    return gguf_string_of(((const gguf_tensor *)tensors)[number].name);
}
