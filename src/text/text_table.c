/* text_table.c: open addressing with linear probing. A slot stores 32 bits of the hash, so that a
 * probe rarely touches the strings themselves. */
#include "text_table.h"

#include <string.h>

#include "mem.h"

static uint32_t hash_text(const text_table *t, const char *data, size_t n) {
    return (uint32_t)hash_bytes(t->key, data, n);
}

/* The slot that contains the string, or the free slot where it belongs. */
static size_t probe(const text_table *t, uint32_t hash, const char *data, size_t n_bytes) {
    size_t mask = t->n_slots - 1, i = hash & mask;
    for (; t->slots[i].entry; i = (i + 1) & mask) {
        if (t->slots[i].hash != hash) continue;
        const text_entry *e = &t->entries[t->slots[i].entry - 1];
        if (e->n_bytes == n_bytes && memcmp(e->data, data, n_bytes) == 0) break;
    }
    return i;
}

static bool resize_slots(text_table *t, size_t n_slots) {
    text_slot *slots = mem_calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < t->n_slots; i++) {
        if (!t->slots[i].entry) continue;
        size_t j = t->slots[i].hash & (n_slots - 1);
        while (slots[j].entry) j = (j + 1) & (n_slots - 1);
        slots[j] = t->slots[i];
    }
    mem_free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    return true;
}

bool text_table_init(text_table *t, size_t expected) {
    *t = (text_table){.key = hash_key_random()};
    if (expected > TEXT_TABLE_MAX) return false;
    size_t n_slots = 64;
    while (n_slots < expected * 2) n_slots *= 2;
    return resize_slots(t, n_slots) && mem_grow((void **)&t->entries, &t->capacity, expected,
                                                sizeof *t->entries, TEXT_TABLE_MAX);
}

void text_table_free(text_table *t) {
    mem_free(t->entries);
    mem_free(t->slots);
    *t = (text_table){0};
}

uint32_t text_table_find(const text_table *t, const char *data, size_t n_bytes) {
    uint32_t entry = t->slots[probe(t, hash_text(t, data, n_bytes), data, n_bytes)].entry;
    return entry ? entry - 1 : TEXT_TABLE_NONE;
}

uint32_t text_table_add(text_table *t, const char *data, size_t n_bytes) {
    if (n_bytes > UINT32_MAX) return TEXT_TABLE_NONE;
    if (t->count >= t->n_slots / 2 && !resize_slots(t, t->n_slots * 2)) return TEXT_TABLE_NONE;
    uint32_t hash = hash_text(t, data, n_bytes);
    size_t i = probe(t, hash, data, n_bytes);
    if (t->slots[i].entry) return t->slots[i].entry - 1;
    if (!mem_grow((void **)&t->entries, &t->capacity, t->count + 1, sizeof *t->entries,
                  TEXT_TABLE_MAX)) {
        return TEXT_TABLE_NONE;
    }
    t->entries[t->count] = (text_entry){data, (uint32_t)n_bytes};
    t->slots[i] = (text_slot){hash, (uint32_t)(t->count + 1)};
    return (uint32_t)t->count++;
}
