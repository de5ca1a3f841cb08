/* text_table.h: interns byte strings: each distinct string gets a number, 0, 1, 2 …, in the order
 * of insertion. The strings are borrowed and must outlive the table. Look-ups are thread-safe while
 * nobody adds. A file cannot choose strings that collide (hash.h). */
#ifndef TEXT_TEXT_TABLE_H
#define TEXT_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

#define TEXT_TABLE_NONE UINT32_MAX

enum { TEXT_TABLE_MAX = 1 << 27 }; /* entries */

typedef struct text_entry {
    const char *data;
    uint32_t n_bytes;
} text_entry;

typedef struct text_slot {
    uint32_t hash, entry; /* entry: number + 1; 0: free */
} text_slot;

typedef struct text_table {
    text_entry *entries; /* [count] */
    size_t count, capacity;
    text_slot *slots; /* [n_slots], a power of two, at most half full */
    size_t n_slots;
    hash_key key;
} text_table;

/* Reserves space for `expected` strings without rehashing; false when out of memory. A zeroed table
 * may be freed. */
bool text_table_init(text_table *t, size_t expected);
void text_table_free(text_table *t);
uint32_t text_table_find(const text_table *t, const char *data, size_t n_bytes); /* or NONE */
/* The number of the string, which is added if new; NONE when out of memory. */
uint32_t text_table_add(text_table *t, const char *data, size_t n_bytes);

#endif
