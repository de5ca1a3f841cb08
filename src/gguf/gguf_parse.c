/* gguf_parse.c: parses one part of a GGUF file from bytes to checked keys and tensors.
 *
 * Layout: magic, version, counts; keys; tensor infos; padding; tensor data. The file is untrusted:
 * counts are compared with the remaining bytes before anything is allocated for them (so memory is
 * bounded by a small multiple of the file size), all arithmetic is checked, and every message names
 * the byte where the problem starts. */
#include <stdarg.h>
#include <stdio.h>

#include "gguf_impl.h"

enum {
    /* Minimum bytes of one item; they bound counts by the file size. */
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,            /* length, one byte, type, u8 */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, one byte, n_dims, dim, type, offset */
    ARRAY_HEAD_BYTES = 4 + 8,                 /* item type, count */
    MIN_ALIGNMENT = 8,                        /* required by the format */
    SHOWN_NAME = 80,                          /* bytes of a key shown in messages */
    PWRI_TYPE_I8 = 16,
    PWRI_TYPE_I16 = 17,
    PWRI_TYPE_I32 = 18
};

/* The unread bytes. A failed read leaves `pos` unchanged; no read passes the end. */
typedef struct cursor {
    const gguf_part *part;
    size_t pos;
    pi_error *err;
} cursor;

static pi_status fail(const cursor *c, pi_status status, size_t at, const char *format, ...)
    BASE_PRINTF(4, 5);

/* "WHAT: PATH, byte N": the path is truncated so that the offset always fits. */
static pi_status fail(const cursor *c, pi_status status, size_t at, const char *format, ...) {
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(c->err, status,
                     "%s: %.200s, byte %zu: fetch the file again, or convert it again", what,
                     c->part->path, at);
}

static pi_status fail_truncated(const cursor *c, const char *what) {
    return error_set(c->err, PI_ERR_FORMAT,
                     "file ends inside %s: %.200s, byte %zu of %zu: it is incomplete or damaged, "
                     "fetch it again",
                     what, c->part->path, c->pos, c->part->size);
}

static size_t bytes_left(const cursor *c) {
    return c->part->size - c->pos;
}

static pi_status read_u32(cursor *c, const char *what, uint32_t *out) {
    if (bytes_left(c) < 4) return fail_truncated(c, what);
    *out = gguf_load_u32(c->part->data + c->pos);
    c->pos += 4;
    return PI_OK;
}

static pi_status read_u64(cursor *c, const char *what, uint64_t *out) {
    if (bytes_left(c) < 8) return fail_truncated(c, what);
    *out = gguf_load_u64(c->part->data + c->pos);
    c->pos += 8;
    return PI_OK;
}

static pi_status read_string(cursor *c, const char *what, gguf_string *out) {
    if (bytes_left(c) < 8) return fail_truncated(c, what);
    uint64_t n = gguf_load_u64(c->part->data + c->pos);
    if (n > bytes_left(c) - 8) return fail_truncated(c, what);
    *out = (gguf_string){.data = (const char *)c->part->data + c->pos + 8, .n_bytes = n};
    c->pos += 8 + n;
    return PI_OK;
}

/* Length of a key in messages, truncated, for %.*s. */
static int shown(gguf_string key) {
    return key.n_bytes < SHOWN_NAME ? (int)key.n_bytes : SHOWN_NAME;
}

static pi_status check_bools(const cursor *c, gguf_string key, uint64_t count) {
    const uint8_t *p = c->part->data + c->pos;
    for (uint64_t i = 0; i < count; i++) {
        if (p[i] > 1) {
            return fail(c, PI_ERR_FORMAT, c->pos + i, "key '%.*s' has a bool of %d, not 0 or 1",
                        shown(key), key.data, p[i]);
        }
    }
    return PI_OK;
}

/* Skips `count` items of one type and checks that all are there. */
static pi_status skip_items(cursor *c, gguf_string key, gguf_value_type type, uint64_t count,
                            int depth) {
    size_t n_bytes = gguf_scalar_bytes(type);
    if (n_bytes) {
        if (count > bytes_left(c) / n_bytes) return fail_truncated(c, "a value");
        if (type == GGUF_BOOL) {
            pi_status status = check_bools(c, key, count);
            if (status) return status;
        }
        c->pos += n_bytes * count;
        return PI_OK;
    }
    size_t least = type == GGUF_STRING ? 8 : ARRAY_HEAD_BYTES;
    if (count > bytes_left(c) / least) {
        return fail_truncated(c, type == GGUF_STRING && count == 1 ? "a string" : "an array");
    }
    for (uint64_t i = 0; i < count; i++) {
        pi_status status;
        if (type == GGUF_STRING) {
            gguf_string s;
            status = read_string(c, "a string", &s);
        } else {
            size_t at = c->pos;
            if (bytes_left(c) < ARRAY_HEAD_BYTES) return fail_truncated(c, "an array");
            uint32_t item_type = gguf_load_u32(c->part->data + at);
            uint64_t n = gguf_load_u64(c->part->data + at + 4);
            if (item_type >= GGUF_VALUE_TYPE_COUNT) {
                return fail(c, PI_ERR_FORMAT, at, "key '%.*s' has items of unknown type %u",
                            shown(key), key.data, item_type);
            }
            if (depth >= GGUF_MAX_ARRAY_DEPTH) {
                return fail(c, PI_ERR_FORMAT, at, "key '%.*s' has arrays nested deeper than %d",
                            shown(key), key.data, GGUF_MAX_ARRAY_DEPTH);
            }
            c->pos += ARRAY_HEAD_BYTES;
            status = skip_items(c, key, (gguf_value_type)item_type, n, depth + 1);
        }
        if (status) return status;
    }
    return PI_OK;
}

static pi_status parse_value(cursor *c, gguf_value *v) {
    size_t at = c->pos;
    pi_status status = read_string(c, "a key", &v->key);
    if (status) return status;
    if (v->key.n_bytes == 0 || v->key.n_bytes > GGUF_MAX_KEY) {
        return fail(c, PI_ERR_FORMAT, at, "a key has %llu bytes instead of 1 to %d",
                    (unsigned long long)v->key.n_bytes, GGUF_MAX_KEY);
    }
    at = c->pos;
    uint32_t type = 0;
    status = read_u32(c, "a value type", &type);
    if (status) return status;
    v->count = 1;
    if (type == GGUF_ARRAY) {
        at = c->pos;
        status = read_u32(c, "an array", &type);
        if (!status) status = read_u64(c, "an array", &v->count);
        if (status) return status;
        v->type = GGUF_ARRAY;
    } else {
        v->type = (gguf_value_type)type;
    }
    if (type >= GGUF_VALUE_TYPE_COUNT) {
        return fail(c, PI_ERR_FORMAT, at, "key '%.*s' has the unknown value type %u", shown(v->key),
                    v->key.data, type);
    }
    v->item_type = (gguf_value_type)type;
    v->data = c->part->data + c->pos;
    return skip_items(c, v->key, v->item_type, v->count, 1);
}

static pi_status parse_keys(cursor *c, gguf_part *p) {
    p->values = mem_calloc(p->n_values, sizeof *p->values);
    if (!p->values || !gguf_index_init(&p->keys, p->n_values)) {
        return error_nomem(c->err, p->n_values * sizeof *p->values, "keys of a GGUF file");
    }
    for (uint64_t i = 0; i < p->n_values; i++) {
        gguf_value *v = &p->values[i];
        size_t at = c->pos;
        pi_status status = parse_value(c, v);
        if (status) return status;
        if (gguf_index_find(&p->keys, v->key, gguf_name_of_value, p->values) >= 0) {
            return fail(c, PI_ERR_FORMAT, at, "key '%.*s' occurs twice", shown(v->key),
                        v->key.data);
        }
        gguf_index_insert(&p->keys, v->key, (uint32_t)i);
    }
    return PI_OK;
}

bool gguf_alignment_ok(uint64_t alignment) {
    return alignment >= MIN_ALIGNMENT && alignment <= UINT32_MAX &&
           (alignment & (alignment - 1)) == 0;
}

static pi_status parse_alignment(cursor *c, gguf_part *p) {
    p->alignment = GGUF_DEFAULT_ALIGNMENT;
    const gguf_value *v = gguf_part_find(p, "general.alignment");
    if (!v) return PI_OK;
    uint64_t alignment;
    size_t at = (size_t)(v->data - p->data);
    if (!gguf_as_u64(v, &alignment)) {
        return fail(c, PI_ERR_FORMAT, at, "general.alignment is a %s, not an integer",
                    gguf_value_type_name(v->type));
    }
    if (!gguf_alignment_ok(alignment)) {
        return fail(c, PI_ERR_FORMAT, at,
                    "general.alignment is %llu, not a power of two of at least %d",
                    (unsigned long long)alignment, MIN_ALIGNMENT);
    }
    p->alignment = (uint32_t)alignment;
    return PI_OK;
}

static pi_status parse_tensor_name(cursor *c, gguf_part *p, gguf_tensor *t) {
    size_t at = c->pos;
    gguf_string name;
    pi_status status = read_string(c, "a tensor name", &name);
    if (status) return status;
    if (name.n_bytes == 0 || name.n_bytes >= GGUF_MAX_NAME) {
        return fail(c, PI_ERR_FORMAT, at, "a tensor name has %llu bytes instead of 1 to %d",
                    (unsigned long long)name.n_bytes, GGUF_MAX_NAME - 1);
    }
    if (memchr(name.data, 0, name.n_bytes)) {
        return fail(c, PI_ERR_FORMAT, at, "a tensor name contains a NUL byte");
    }
    if (gguf_index_find(&p->names, name, gguf_name_of_tensor, p->tensors) >= 0) {
        return fail(c, PI_ERR_FORMAT, at, "tensor '%.*s' occurs twice", (int)name.n_bytes,
                    name.data);
    }
    memcpy(t->name, name.data, name.n_bytes); /* t is zeroed, so the NUL is there */
    return PI_OK;
}

static pi_status parse_dims(cursor *c, gguf_tensor *t) {
    size_t at = c->pos;
    uint32_t n_dims = 0;
    pi_status status = read_u32(c, "a tensor's dimensions", &n_dims);
    if (status) return status;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS) {
        return fail(c, PI_ERR_FORMAT, at, "tensor '%s' has %u dimensions instead of 1 to %d",
                    t->name, n_dims, GGUF_MAX_DIMS);
    }
    t->n_dims = (int)n_dims;
    size_t n_elems = 1;
    for (int d = 0; d < GGUF_MAX_DIMS; d++) t->dims[d] = 1;
    for (int d = 0; d < t->n_dims; d++) {
        at = c->pos;
        status = read_u64(c, "a tensor's dimensions", &t->dims[d]);
        if (status) return status;
        if (t->dims[d] == 0) {
            return fail(c, PI_ERR_FORMAT, at, "tensor '%s' has a dimension of 0", t->name);
        }
        if (!size_mul(n_elems, t->dims[d], &n_elems) || n_elems > INT64_MAX) {
            return fail(c, PI_ERR_FORMAT, at, "tensor '%s' has more than 2^63 elements", t->name);
        }
    }
    t->n_elems = n_elems;
    return PI_OK;
}

/* PowerInfer forked llama.cpp before the integer types got their numbers. */
static uint32_t type_of_pwri(uint32_t type) {
    switch (type) {
    case PWRI_TYPE_I8:
        return QUANT_I8;
    case PWRI_TYPE_I16:
        return QUANT_I16;
    case PWRI_TYPE_I32:
        return QUANT_I32;
    default:
        return type;
    }
}

static pi_status parse_tensor_type(cursor *c, const gguf_part *p, gguf_tensor *t) {
    size_t at = c->pos;
    uint32_t type = 0;
    pi_status status = read_u32(c, "a tensor type", &type);
    if (status) return status;
    if (p->is_pwri) type = type_of_pwri(type);
    const quant_traits *traits = quant_find(type);
    if (!traits) {
        return fail(c, PI_ERR_UNSUPPORTED, at, "tensor '%s' has the unknown type number %u",
                    t->name, type);
    }
    t->type = traits->type;
    if (t->dims[0] % (uint64_t)traits->block_elems) {
        return fail(c, PI_ERR_FORMAT, at,
                    "tensor '%s' has rows of %llu elements, not a multiple of the %d of a %s block",
                    t->name, (unsigned long long)t->dims[0], traits->block_elems, traits->name);
    }
    size_t row_bytes;
    if (!quant_row_bytes(t->type, t->dims[0], &row_bytes) ||
        !size_mul(row_bytes, t->n_elems / t->dims[0], &t->n_bytes)) {
        return fail(c, PI_ERR_FORMAT, at, "tensor '%s' has more than 2^64 bytes", t->name);
    }
    return PI_OK;
}

/* `*next` is the offset that the next tensor must have: data is consecutive, and gaps are refused,
 * as in other programs. t->file_offset is relative to the data section until all infos are read. */
static pi_status parse_tensor_offset(cursor *c, const gguf_part *p, gguf_tensor *t, size_t *next) {
    size_t at = c->pos, end;
    uint64_t offset = 0;
    pi_status status = read_u64(c, "a tensor offset", &offset);
    if (status) return status;
    if (offset & (p->alignment - 1)) {
        return fail(c, PI_ERR_FORMAT, at, "tensor '%s' has offset %llu, not a multiple of %u",
                    t->name, (unsigned long long)offset, p->alignment);
    }
    if (offset < *next) {
        return fail(c, PI_ERR_FORMAT, at,
                    "tensor '%s' has offset %llu and overlaps the one before, which ends at %zu",
                    t->name, (unsigned long long)offset, *next);
    }
    if (offset > *next) {
        return fail(c, PI_ERR_FORMAT, at, "tensor '%s' has offset %llu and leaves a hole after %zu",
                    t->name, (unsigned long long)offset, *next);
    }
    if (!size_add(offset, t->n_bytes, &end) || !size_align(end, p->alignment, next)) {
        return fail(c, PI_ERR_FORMAT, at, "tensor '%s' ends beyond 2^64 bytes", t->name);
    }
    t->file_offset = offset;
    return PI_OK;
}

/* Converts relative offsets to file offsets and checks that the data is there. */
static pi_status locate_data(cursor *c, gguf_part *p, bool header_only) {
    size_t start;
    if (!size_align(c->pos, p->alignment, &start)) {
        return fail(c, PI_ERR_FORMAT, c->pos, "alignment of %u overflows", p->alignment);
    }
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        gguf_tensor *t = &p->tensors[i];
        size_t begin, end;
        if (!size_add(start, t->file_offset, &begin) || !size_add(begin, t->n_bytes, &end)) {
            return fail(c, PI_ERR_FORMAT, c->pos, "tensor '%s' ends beyond 2^64 bytes", t->name);
        }
        t->file_offset = begin;
        if (header_only) continue;
        if (end > p->size) {
            return error_set(c->err, PI_ERR_FORMAT,
                             "tensor '%s' ends at byte %zu but the file has %zu: %.200s, byte %zu: "
                             "it is incomplete or damaged, fetch it again",
                             t->name, end, p->size, p->path, (size_t)t->file_offset);
        }
        t->data = p->data + t->file_offset;
    }
    return PI_OK;
}

static pi_status parse_tensors(cursor *c, gguf_part *p, int part) {
    p->tensors = mem_calloc(p->n_tensors, sizeof *p->tensors);
    if (!p->tensors || !gguf_index_init(&p->names, p->n_tensors)) {
        return error_nomem(c->err, p->n_tensors * sizeof *p->tensors, "tensors of a GGUF file");
    }
    size_t next = 0;
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        gguf_tensor *t = &p->tensors[i];
        t->part = part;
        pi_status status = parse_tensor_name(c, p, t);
        if (!status) status = parse_dims(c, t);
        if (!status) status = parse_tensor_type(c, p, t);
        if (!status) status = parse_tensor_offset(c, p, t, &next);
        if (status) return status;
        gguf_index_insert(&p->names, gguf_string_of(t->name), (uint32_t)i);
    }
    return PI_OK;
}

static pi_status parse_version(cursor *c, gguf_part *p) {
    enum { OLDEST = 2, NEWEST = 3, SWAPPED_MAX = 255 };
    static const char lfs[] = "version https://git-lfs";
    if (p->size < 4) return fail_truncated(c, "the magic number");
    p->is_pwri = memcmp(p->data, "PWRI", 4) == 0;
    if (p->size >= sizeof lfs - 1 && memcmp(p->data, lfs, sizeof lfs - 1) == 0) {
        return error_set(c->err, PI_ERR_FORMAT,
                         "a pointer of Git LFS, not the model: %.200s, byte 0: fetch the file "
                         "itself with git lfs pull",
                         p->path);
    }
    if (!p->is_pwri && memcmp(p->data, "GGUF", 4) != 0) {
        return fail(c, PI_ERR_FORMAT, 0, "not a GGUF file (it begins %02x %02x %02x %02x)",
                    p->data[0], p->data[1], p->data[2], p->data[3]);
    }
    c->pos = 4;
    pi_status status = read_u32(c, "the version", &p->version);
    if (status) return status;
    if (p->version >= OLDEST && p->version <= NEWEST) return PI_OK;
    uint32_t swapped = __builtin_bswap32(p->version);
    if (p->version && swapped <= SWAPPED_MAX && p->version > SWAPPED_MAX) {
        return error_set(c->err, PI_ERR_UNSUPPORTED,
                         "big-endian GGUF (version %u with its bytes swapped): %.200s, byte 4: "
                         "convert it again for a little-endian machine",
                         swapped, p->path);
    }
    return error_set(
        c->err, PI_ERR_UNSUPPORTED,
        "GGUF version %u: %.200s, byte 4: versions %d and %d are read, convert it again",
        p->version, p->path, OLDEST, NEWEST);
}

/* Accepts counts only as far as the remaining bytes could hold that many items. */
static pi_status parse_counts(cursor *c, gguf_part *p) {
    size_t at = c->pos;
    pi_status status = read_u64(c, "the number of tensors", &p->n_tensors);
    if (!status) status = read_u64(c, "the number of keys", &p->n_values);
    if (status) return status;
    if (p->n_tensors > GGUF_MAX_TENSORS || p->n_tensors > bytes_left(c) / MIN_TENSOR_BYTES) {
        return fail(c, PI_ERR_FORMAT, at, "%llu tensors do not fit in a file of %zu bytes",
                    (unsigned long long)p->n_tensors, p->size);
    }
    if (p->n_values > GGUF_MAX_KEYS || p->n_values > bytes_left(c) / MIN_KEY_BYTES) {
        return fail(c, PI_ERR_FORMAT, at + 8, "%llu keys do not fit in a file of %zu bytes",
                    (unsigned long long)p->n_values, p->size);
    }
    return PI_OK;
}

pi_status gguf_parse_part(gguf_part *p, int part, bool header_only, pi_error *err) {
    cursor c = {.part = p, .err = err};
    pi_status status = parse_version(&c, p);
    if (!status) status = parse_counts(&c, p);
    if (!status) status = parse_keys(&c, p);
    if (!status) status = parse_alignment(&c, p);
    if (!status) status = parse_tensors(&c, p, part);
    if (!status) status = locate_data(&c, p, header_only);
    return status;
}

const gguf_value *gguf_part_find(const gguf_part *p, const char *key) {
    int64_t i = gguf_index_find(&p->keys, gguf_string_of(key), gguf_name_of_value, p->values);
    return i < 0 ? NULL : &p->values[i];
}

void gguf_part_free(gguf_part *p) {
    mem_free(p->values);
    mem_free(p->tensors);
    gguf_index_free(&p->keys);
    gguf_index_free(&p->names);
    file_map_close(&p->map);
    *p = (gguf_part){0};
}
