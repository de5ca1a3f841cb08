/* gguf.h: reads GGUF files: strict, lazy, mapped.
 *
 * Reads versions 2 and 3, little-endian, single and split files (-00001-of-0000N.gguf, opened by
 * any part), and PowerInfer's `PWRI` magic (its integer types 16, 17, 18 are renumbered to I8, I16,
 * I32). gguf_open checks every offset, so callers can use keys and tensors without further checks.
 * Nothing is copied: strings and data point into the mapping and are NOT NUL-terminated. A
 * gguf_file is immutable after opening and may be shared between threads.
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "pool.h"
#include "quant.h"

enum {
    GGUF_MAX_DIMS = 4,
    GGUF_MAX_NAME = 64,   /* of a tensor, bytes with the NUL */
    GGUF_MAX_KEY = 65535, /* bytes of a key */
    GGUF_MAX_TENSORS = 1 << 20,
    GGUF_MAX_KEYS = 1 << 20,
    GGUF_MAX_PARTS = 1 << 10,
    GGUF_MAX_OVERRIDES = 1 << 10,
    GGUF_MAX_ARRAY_DEPTH = 4, /* nesting of arrays */
    GGUF_DEFAULT_ALIGNMENT = 32
};

typedef enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_VALUE_TYPE_COUNT
} gguf_value_type;

typedef struct gguf_string {
    const char *data; /* not NUL-terminated */
    uint64_t n_bytes;
} gguf_string;

typedef struct gguf_value {
    gguf_string key;
    gguf_value_type type;
    gguf_value_type item_type; /* of an array */
    uint64_t count;            /* items of an array, otherwise 1 */
    const uint8_t *data;       /* the raw little-endian value, or the array's first item */
} gguf_value;

typedef struct gguf_tensor {
    char name[GGUF_MAX_NAME]; /* NUL-terminated */
    quant_type type;
    int n_dims;                   /* 1..4 */
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous; unused dims are 1 */
    const uint8_t *data;          /* in the mapping; NULL with header_only */
    uint64_t n_elems;
    size_t n_bytes;
    uint64_t file_offset; /* of the data, in bytes from the start of its part */
    int part;             /* index of the part in a split file */
} gguf_tensor;

typedef struct gguf_file gguf_file;

struct progress; /* progress.h */

/* Overrides the value of `key`. "*." at the start of the key is replaced by the architecture's name
 * and a dot. */
typedef struct gguf_override {
    const char *key;
    gguf_value_type type; /* GGUF_I64, GGUF_F64, GGUF_BOOL or GGUF_STRING; the file's value may have
                             any type of the same kind */
    int64_t integer;      /* also for GGUF_BOOL */
    double number;
    const char *text;
} gguf_override;

typedef struct gguf_open_options {
    bool copy;               /* read into huge-page memory instead of mapping (--no-mmap) */
    bool lock;               /* lock the mapping in memory (mlock) */
    bool header_only;        /* accept a file whose tensor data is missing (vocabulary, inspect) */
    struct progress *report; /* progress of copying and locking, and a final report; NULL: none */
    const gguf_override *overrides; /* [n_overrides]; copied; the last one for a key applies */
    size_t n_overrides;
    /* [n_parts] paths of the parts of a split file, in order; their names do not matter. NULL: the
     * names follow from the path of any part. */
    const char *const *parts;
    int n_parts;
} gguf_open_options;

/* `options` may be NULL. Errors: PI_ERR_IO, PI_ERR_FORMAT (the message has the byte offset),
 * PI_ERR_UNSUPPORTED (version, tensor type, big-endian), PI_ERR_ARG (an override has another kind
 * than the file's value), PI_ERR_NOMEM, PI_ERR_CANCELLED. */
pi_status gguf_open(const char *path, const gguf_open_options *options, gguf_file **out,
                    pi_error *err);
/* Opens bytes in memory, which must outlive the file; `name` is for messages. No split files. */
pi_status gguf_open_memory(const void *data, size_t n_bytes, const char *name, gguf_file **out,
                           pi_error *err);
/* Overrides values of the file, once, before any other access; copies the values. */
pi_status gguf_override_values(gguf_file *f, const gguf_override *overrides, size_t n,
                               pi_error *err);
void gguf_close(gguf_file *f); /* accepts NULL */

uint32_t gguf_version(const gguf_file *f);
uint32_t gguf_alignment(const gguf_file *f);
bool gguf_is_pwri(const gguf_file *f); /* its magic is PWRI */
int gguf_n_parts(const gguf_file *f);
const char *gguf_path(const gguf_file *f);
uint64_t gguf_file_bytes(const gguf_file *f); /* all parts */
const char *gguf_part_path(const gguf_file *f, int part);
/* Finds the part and the byte offset of an address in the tensor data. False: the address is not in
 * a mapped file. */
bool gguf_locate(const gguf_file *f, const void *data, int *part, uint64_t *offset);
/* Whether the address is in the tensor data: in a mapped file, its copy, or the memory that was
 * opened. */
bool gguf_holds(const gguf_file *f, const void *data);
uint64_t gguf_part_bytes(const gguf_file *f, int part);
/* PI_ERR_ARG when `out_path` is one of the file's parts, which an output must not replace. */
pi_status gguf_refuse_output(const gguf_file *f, const char *out_path, pi_error *err);
/* Hint that these bytes of a tensor's data will not be read again (file_map_forget). */
void gguf_forget(const gguf_file *f, const gguf_tensor *t, size_t offset, size_t n_bytes);
/* Like gguf_forget, for an address inside any tensor. */
void gguf_forget_data(const gguf_file *f, const void *data, size_t n_bytes);

uint64_t gguf_n_values(const gguf_file *f);
const gguf_value *gguf_value_at(const gguf_file *f, uint64_t i);
const gguf_value *gguf_find(const gguf_file *f, const char *key); /* NULL: absent; O(1) */

uint64_t gguf_n_tensors(const gguf_file *f);
const gguf_tensor *gguf_tensor_at(const gguf_file *f, uint64_t i);         /* in file order */
const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name); /* NULL: absent; O(1) */

/* Reads all data of a tensor; not for files opened with header_only. PI_ERR_RANGE: a weight is NaN
 * or infinite; the message names the tensor and the first such row. */
pi_status gguf_check_tensor(const gguf_file *f, const gguf_tensor *t, pool *workers, pi_error *err);
/* Rows of weights within a tensor of bytes. */
typedef struct gguf_rows {
    const uint8_t *data;
    quant_type type;
    int64_t n_in, n_rows;
    size_t stride; /* bytes between the starts of two rows */
} gguf_rows;
/* Like gguf_check_tensor, for these rows of the tensor. */
pi_status gguf_check_rows(const gguf_file *f, const gguf_tensor *t, const gguf_rows *rows,
                          pool *workers, pi_error *err);

/* Typed access to a value. Each function returns false when the type does not match (integer
 * getters accept any integer type whose number is in range; float getters accept any number). */
bool gguf_as_u64(const gguf_value *v, uint64_t *out);
bool gguf_as_i64(const gguf_value *v, int64_t *out);
bool gguf_as_f64(const gguf_value *v, double *out);
bool gguf_as_bool(const gguf_value *v, bool *out); /* bool or integer 0/1 */
bool gguf_as_string(const gguf_value *v, gguf_string *out);
/* Whether s equals `text` or starts with it; false when s has no data (NULL). */
bool gguf_string_is(gguf_string s, const char *text);
bool gguf_string_starts(gguf_string s, const char *text);
/* Item i of an array of fixed-size items, as gguf_as_... converts it; bools give 0 and 1. O(1). */
bool gguf_item_u64(const gguf_value *v, uint64_t i, uint64_t *out);
bool gguf_item_i64(const gguf_value *v, uint64_t i, int64_t *out);
bool gguf_item_f64(const gguf_value *v, uint64_t i, double *out);
/* Iterates over an array of strings: start with *cursor = v->data and call v->count times.
 * gguf_open has checked the bounds. */
gguf_string gguf_next_string(const uint8_t **cursor);
/* Like gguf_next_string for an array of arrays; the values have no key. */
gguf_value gguf_next_array(const uint8_t **cursor);

const char *gguf_value_type_name(gguf_value_type type); /* "u32", "string", "array" */

#endif
