/* gguf_impl.h: types and functions shared within src/gguf.
 *
 * A file is a list of parts (one, unless it is split). Each part is parsed by itself into keys and
 * tensors; gguf.c then joins the parts. Parsing uses a cursor that checks every read against the
 * end of the bytes, so no other code needs to handle truncation. */
#ifndef GGUF_GGUF_IMPL_H
#define GGUF_GGUF_IMPL_H

#include <string.h>

#include "file.h"
#include "gguf.h"
#include "hash.h"
#include "mem.h"

/* 64-bit sizes in files are used directly as sizes in memory. */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a 64-bit platform is needed");

/* ---- little-endian access: values in a file have no alignment -------------------------------- */

static inline uint16_t gguf_load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | (uint16_t)p[1] << 8);
}
static inline uint32_t gguf_load_u32(const uint8_t *p) {
    return (uint32_t)gguf_load_u16(p) | (uint32_t)gguf_load_u16(p + 2) << 16;
}
static inline uint64_t gguf_load_u64(const uint8_t *p) {
    return (uint64_t)gguf_load_u32(p) | (uint64_t)gguf_load_u32(p + 4) << 32;
}
static inline void gguf_store_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}
static inline void gguf_store_u64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
}

/* ---- index: name -> number, O(1) ------------------------------------------------------------- */

/* Open addressing over numbers; the names stay with their owner. A file cannot choose names that
 * collide (hash.h). */
typedef struct gguf_index {
    uint32_t *slots; /* [n_slots], number + 1; 0 is empty */
    size_t n_slots;  /* a power of two, at least twice the number of names */
    hash_key key;
} gguf_index;

typedef gguf_string (*gguf_index_name)(const void *owner, uint32_t number);

enum { GGUF_INDEX_NONE = -1 };

bool gguf_index_init(gguf_index *index, uint64_t n_names); /* false: out of memory */
void gguf_index_free(gguf_index *index);
/* The number stored under `name`, or GGUF_INDEX_NONE. */
int64_t gguf_index_find(const gguf_index *index, gguf_string name, gguf_index_name name_of,
                        const void *owner);
/* Adds a name that is not in the index; at most the n_names of gguf_index_init fit. */
void gguf_index_insert(gguf_index *index, gguf_string name, uint32_t number);

/* Names of an array of gguf_value or gguf_tensor, for the two functions above. */
gguf_string gguf_name_of_value(const void *values, uint32_t number);
gguf_string gguf_name_of_tensor(const void *tensors, uint32_t number);

static inline gguf_string gguf_string_of(const char *s) {
    return (gguf_string){.data = s, .n_bytes = strlen(s)};
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown types. */
size_t gguf_scalar_bytes(gguf_value_type type);
/* Bytes of a checked value as stored in the file (strings with their lengths; arrays without the
 * leading item type and count). */
size_t gguf_value_bytes(const gguf_value *v);

/* ---- parts ----------------------------------------------------------------------------------- */

typedef struct gguf_part {
    file_map map;     /* zeroed when the bytes belong to the caller */
    const char *path; /* for messages; belongs to the file or the caller */
    const uint8_t *data;
    size_t size;
    uint32_t version, alignment;
    bool is_pwri;
    gguf_value *values; /* [n_values] */
    uint64_t n_values;
    gguf_index keys;
    gguf_tensor *tensors; /* [n_tensors] */
    uint64_t n_tensors;
    gguf_index names;
} gguf_part;

/* Parses p->data[0 .. p->size). Stores `part` in the tensors. The caller frees the part, also after
 * an error. */
pi_status gguf_parse_part(gguf_part *p, int part, bool header_only, pi_error *err);
void gguf_part_free(gguf_part *p);
const gguf_value *gguf_part_find(const gguf_part *p, const char *key);

/* Whether an alignment from general.alignment is supported. */
bool gguf_alignment_ok(uint64_t alignment);

/* ---- split files ----------------------------------------------------------------------------- */

typedef struct gguf_split {
    int no, count; /* this part (from 0) and the number of parts; 0 and 1 for a single file */
    uint64_t n_tensors;
    size_t n_prefix; /* bytes of the path before "-00001-of-00003.gguf" */
} gguf_split;

/* Reads the split.* keys of a parsed part and compares them with the file name. */
pi_status gguf_split_read(const gguf_part *p, gguf_split *split, pi_error *err);
/* Path of part `no`, given the path of any part; free with mem_free. NULL: out of memory. */
char *gguf_split_path(const char *path, const gguf_split *split, int no);

/* Replaces values of the part's keys, or adds keys. *memory holds them: free it with mem_free after
 * the part, also after an error. PI_ERR_ARG: a value has another kind in the file. */
pi_status gguf_part_override(gguf_part *p, const gguf_override *overrides, size_t n,
                             uint8_t **memory, pi_error *err);

#endif
