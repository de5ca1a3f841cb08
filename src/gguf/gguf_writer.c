/* gguf_writer.c: collects keys and tensor infos in memory, then writes the header at once, then
 * streams tensor data without keeping it.
 *
 * Values are stored as the file encodes them, so copied and new values are handled alike. Numbers
 * are encoded through their bits; arrays are in the file's order already because the host is
 * little-endian. The writer owns copies of everything it receives; base/file.h owns the output
 * file, which appears only on commit. */
#include <assert.h>
#include <stdio.h>

#include "gguf_impl.h"
#include "gguf_writer.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "arrays are written in host order, which must be the file's"
#endif

typedef struct writer_key {
    gguf_value value; /* key and data point into `bytes` */
    uint8_t *bytes;   /* key, then encoded value */
    size_t n_data;    /* bytes of the encoded value */
    uint64_t offset;  /* of the value in the file, once the header is written */
} writer_key;

struct gguf_writer {
    file_writer *file;
    char *path;
    writer_key *keys; /* [n_keys] */
    size_t n_keys, cap_keys;
    gguf_index key_index;
    gguf_tensor *tensors; /* [n_tensors]; file_offset is relative to the data section */
    size_t n_tensors, cap_tensors;
    gguf_index tensor_index;
    size_t alignment;
    size_t current;     /* tensor that receives data */
    size_t n_written;   /* bytes of the current tensor */
    bool data_begun;    /* the header is written */
    pi_error first_err; /* sticky; status PI_OK: no error */
};

static gguf_string name_of_key(const void *keys, uint32_t number) {
    return ((const writer_key *)keys)[number].value.key;
}

/* Keeps the first error; later errors follow from it. */
static pi_status stick(gguf_writer *w, const pi_error *err) {
    if (w->first_err.status == PI_OK) w->first_err = *err;
    return w->first_err.status;
}

static pi_status report(const gguf_writer *w, pi_error *err) {
    if (err && w->first_err.status) *err = w->first_err;
    return w->first_err.status;
}

pi_status gguf_writer_create(const char *path, gguf_writer **out, pi_error *err) {
    gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w) return error_nomem(err, sizeof *w, "a GGUF writer");
    w->path = mem_strdup(path);
    pi_status status = w->path ? file_writer_open(path, &w->file, err)
                               : error_nomem(err, strlen(path), "a path");
    if (status) {
        gguf_writer_abort(w);
        return status;
    }
    *out = w;
    return PI_OK;
}

void gguf_writer_abort(gguf_writer *w) {
    if (!w) return;
    file_writer_abort(w->file);
    for (size_t i = 0; i < w->n_keys; i++) mem_free(w->keys[i].bytes);
    mem_free(w->keys);
    mem_free(w->tensors);
    gguf_index_free(&w->key_index);
    gguf_index_free(&w->tensor_index);
    mem_free(w->path);
    mem_free(w);
}

/* Enlarges `index` to n names; when it moves, enters the first `n_old` names again. */
static bool index_reserve(gguf_index *index, size_t n, size_t n_old, gguf_index_name name_of,
                          const void *owner) {
    if (2 * n <= index->n_slots) return true;
    gguf_index wider;
    if (!gguf_index_init(&wider, 2 * n)) return false;
    for (size_t i = 0; i < n_old; i++) {
        gguf_index_insert(&wider, name_of(owner, (uint32_t)i), (uint32_t)i);
    }
    gguf_index_free(index);
    *index = wider;
    return true;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Adds an entry for a key. Returns the space for its n_data encoded bytes; NULL: an error. */
static uint8_t *put(gguf_writer *w, gguf_string key, gguf_value_type type,
                    gguf_value_type item_type, uint64_t count, size_t n_data) {
    assert(!w->data_begun);
    pi_error err = {0};
    if (w->first_err.status) return NULL;
    if (key.n_bytes == 0 || key.n_bytes > GGUF_MAX_KEY) {
        error_set(&err, PI_ERR_ARG, "a key has %llu bytes instead of 1 to %d: %.200s",
                  (unsigned long long)key.n_bytes, GGUF_MAX_KEY, w->path);
        stick(w, &err);
        return NULL;
    }
    size_t n_bytes;
    uint8_t *bytes = size_add(key.n_bytes, n_data, &n_bytes) ? mem_alloc(n_bytes) : NULL;
    bool ok = bytes && mem_grow((void **)&w->keys, &w->cap_keys, w->n_keys + 1, sizeof *w->keys,
                                GGUF_MAX_KEYS);
    if (ok) {
        ok = index_reserve(&w->key_index, w->n_keys + 1, w->n_keys, name_of_key, w->keys);
    }
    if (!ok) {
        mem_free(bytes);
        error_nomem(&err, n_data, "keys of a GGUF file");
        stick(w, &err);
        return NULL;
    }
    memcpy(bytes, key.data, key.n_bytes);
    int64_t old = gguf_index_find(&w->key_index, key, name_of_key, w->keys);
    writer_key *k = &w->keys[old < 0 ? w->n_keys : (size_t)old];
    if (old >= 0) mem_free(k->bytes);
    gguf_string own = {.data = (const char *)bytes, .n_bytes = key.n_bytes};
    *k = (writer_key){
        .value = {own, type, item_type, count, bytes + key.n_bytes},
        .bytes = bytes,
        .n_data = n_data,
    };
    if (old < 0) gguf_index_insert(&w->key_index, own, (uint32_t)w->n_keys++);
    return bytes + key.n_bytes;
}

static void put_scalar(gguf_writer *w, const char *key, gguf_value_type type, const void *v) {
    size_t n_bytes = gguf_scalar_bytes(type);
    uint8_t *p = put(w, gguf_string_of(key), type, type, 1, n_bytes);
    if (p) memcpy(p, v, n_bytes);
}

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t v) {
    put_scalar(w, key, GGUF_U32, &v);
}

void gguf_put_i32(gguf_writer *w, const char *key, int32_t v) {
    put_scalar(w, key, GGUF_I32, &v);
}

void gguf_put_u64(gguf_writer *w, const char *key, uint64_t v) {
    put_scalar(w, key, GGUF_U64, &v);
}

void gguf_put_f32(gguf_writer *w, const char *key, float v) {
    put_scalar(w, key, GGUF_F32, &v);
}

void gguf_put_bool(gguf_writer *w, const char *key, bool v) {
    uint8_t byte = v;
    put_scalar(w, key, GGUF_BOOL, &byte);
}

static uint8_t *append_string(uint8_t *p, const char *data, size_t n_bytes) {
    gguf_store_u64(p, n_bytes);
    if (n_bytes) memcpy(p + 8, data, n_bytes);
    return p + 8 + n_bytes;
}

void gguf_put_bytes(gguf_writer *w, const char *key, const char *v, size_t n_bytes) {
    uint8_t *p = put(w, gguf_string_of(key), GGUF_STRING, GGUF_STRING, 1, 8 + n_bytes);
    if (p) append_string(p, v, n_bytes);
}

void gguf_put_string(gguf_writer *w, const char *key, const char *v) {
    gguf_put_bytes(w, key, v, strlen(v));
}

static void stick_bad_array(gguf_writer *w, const char *key) {
    pi_error err = {0};
    error_set(&err, PI_ERR_ARG, "key '%.80s' is an array that cannot be written: %.200s", key,
              w->path);
    stick(w, &err);
}

void gguf_put_array(gguf_writer *w, const char *key, gguf_value_type item_type, const void *data,
                    uint64_t count) {
    size_t n_bytes, item_bytes = gguf_scalar_bytes(item_type);
    if (item_bytes == 0 || !size_mul(item_bytes, count, &n_bytes)) {
        stick_bad_array(w, key);
        return;
    }
    uint8_t *p = put(w, gguf_string_of(key), GGUF_ARRAY, item_type, count, n_bytes);
    if (p && n_bytes) memcpy(p, data, n_bytes);
}

void gguf_put_strings(gguf_writer *w, const char *key, const gguf_string *items, uint64_t count) {
    size_t n_bytes = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!size_add(n_bytes, 8, &n_bytes) || !size_add(n_bytes, items[i].n_bytes, &n_bytes)) {
            stick_bad_array(w, key);
            return;
        }
    }
    uint8_t *p = put(w, gguf_string_of(key), GGUF_ARRAY, GGUF_STRING, count, n_bytes);
    for (uint64_t i = 0; p && i < count; i++) p = append_string(p, items[i].data, items[i].n_bytes);
}

void gguf_put_value(gguf_writer *w, const gguf_value *v) {
    size_t n_bytes = gguf_value_bytes(v);
    uint8_t *p = put(w, v->key, v->type, v->item_type, v->count, n_bytes);
    if (p && n_bytes) memcpy(p, v->data, n_bytes);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool tensor_size(gguf_tensor *t, const uint64_t *dims) {
    size_t n_elems = 1, row_bytes;
    for (int d = 0; d < GGUF_MAX_DIMS; d++) {
        t->dims[d] = d < t->n_dims ? dims[d] : 1;
        if (t->dims[d] == 0 || !size_mul(n_elems, t->dims[d], &n_elems)) return false;
    }
    t->n_elems = n_elems;
    return t->n_elems <= INT64_MAX && quant_row_bytes(t->type, t->dims[0], &row_bytes) &&
           size_mul(row_bytes, t->n_elems / t->dims[0], &t->n_bytes);
}

pi_status gguf_add_tensor(gguf_writer *w, const char *name, quant_type type, int n_dims,
                          const uint64_t *dims, pi_error *err) {
    assert(!w->data_begun);
    if (report(w, err)) return w->first_err.status;
    gguf_string s = gguf_string_of(name);
    pi_error bad = {0};
    if (s.n_bytes == 0 || s.n_bytes >= GGUF_MAX_NAME) {
        error_set(&bad, PI_ERR_ARG, "tensor name '%.80s' has %zu bytes instead of 1 to %d", name,
                  (size_t)s.n_bytes, GGUF_MAX_NAME - 1);
    } else if (gguf_index_find(&w->tensor_index, s, gguf_name_of_tensor, w->tensors) >= 0) {
        error_set(&bad, PI_ERR_ARG, "tensor '%s' is already there: %.200s", name, w->path);
    }
    gguf_tensor t = {.type = type, .n_dims = n_dims};
    if (!bad.status && (!quant_find((uint32_t)type) || n_dims < 1 || n_dims > GGUF_MAX_DIMS ||
                        !tensor_size(&t, dims))) {
        error_set(&bad, PI_ERR_ARG, "tensor '%s' has dimensions that do not fit its type: %.200s",
                  name, w->path);
    }
    if (!bad.status) {
        bool ok = mem_grow((void **)&w->tensors, &w->cap_tensors, w->n_tensors + 1,
                           sizeof *w->tensors, GGUF_MAX_TENSORS) &&
                  index_reserve(&w->tensor_index, w->n_tensors + 1, w->n_tensors,
                                gguf_name_of_tensor, w->tensors);
        if (!ok) error_nomem(&bad, sizeof t, "tensors of a GGUF file");
    }
    if (bad.status) {
        stick(w, &bad);
        return report(w, err);
    }
    memcpy(t.name, s.data, s.n_bytes);
    w->tensors[w->n_tensors] = t;
    gguf_index_insert(&w->tensor_index, s, (uint32_t)w->n_tensors++);
    return PI_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void emit(gguf_writer *w, const void *data, size_t n_bytes) {
    if (w->first_err.status || n_bytes == 0) return;
    pi_error err = {0};
    if (file_writer_write(w->file, data, n_bytes, &err)) stick(w, &err);
}

static void emit_u32(gguf_writer *w, uint32_t v) {
    uint8_t b[4];
    gguf_store_u32(b, v);
    emit(w, b, sizeof b);
}

static void emit_u64(gguf_writer *w, uint64_t v) {
    uint8_t b[8];
    gguf_store_u64(b, v);
    emit(w, b, sizeof b);
}

static void emit_padding(gguf_writer *w) {
    uint64_t over = file_writer_offset(w->file) & (w->alignment - 1);
    if (w->first_err.status || over == 0) return;
    pi_error err = {0};
    if (file_writer_zeros(w->file, w->alignment - over, &err)) stick(w, &err);
}

static void emit_key(gguf_writer *w, writer_key *k) {
    const gguf_value *v = &k->value;
    emit_u64(w, v->key.n_bytes);
    emit(w, v->key.data, v->key.n_bytes);
    emit_u32(w, (uint32_t)v->type);
    if (v->type == GGUF_ARRAY) {
        emit_u32(w, (uint32_t)v->item_type);
        emit_u64(w, v->count);
    }
    k->offset = file_writer_offset(w->file);
    emit(w, v->data, k->n_data);
}

static void emit_tensor(gguf_writer *w, const gguf_tensor *t) {
    gguf_string name = gguf_string_of(t->name);
    emit_u64(w, name.n_bytes);
    emit(w, name.data, name.n_bytes);
    emit_u32(w, (uint32_t)t->n_dims);
    for (int d = 0; d < t->n_dims; d++) emit_u64(w, t->dims[d]);
    emit_u32(w, (uint32_t)t->type);
    emit_u64(w, t->file_offset);
}

/* Sets the alignment from the keys, and with it the offset of every tensor. */
static pi_status lay_out(gguf_writer *w, pi_error *err) {
    w->alignment = GGUF_DEFAULT_ALIGNMENT;
    int64_t at = gguf_index_find(&w->key_index, gguf_string_of(GGUF_KEY_ALIGNMENT), name_of_key,
                                 w->keys);
    uint64_t alignment;
    if (at >= 0) {
        if (!gguf_as_u64(&w->keys[at].value, &alignment) || !gguf_alignment_ok(alignment)) {
            return error_set(err, PI_ERR_ARG,
                             "general.alignment is not a power of two >= 8: %.200s", w->path);
        }
        w->alignment = alignment;
    }
    size_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        gguf_tensor *t = &w->tensors[i];
        t->file_offset = offset;
        if (!size_add(offset, t->n_bytes, &offset) || !size_align(offset, w->alignment, &offset)) {
            return error_set(err, PI_ERR_ARG, "tensor '%s' ends beyond 2^64 bytes: %.200s", t->name,
                             w->path);
        }
    }
    return PI_OK;
}

pi_status gguf_writer_begin_data(gguf_writer *w, pi_error *err) {
    assert(!w->data_begun);
    pi_error bad = {0};
    if (!w->first_err.status && lay_out(w, &bad)) stick(w, &bad);
    if (report(w, err)) return w->first_err.status;
    emit(w, "GGUF", 4);
    emit_u32(w, 3);
    emit_u64(w, w->n_tensors);
    emit_u64(w, w->n_keys);
    for (size_t i = 0; i < w->n_keys; i++) emit_key(w, &w->keys[i]);
    for (size_t i = 0; i < w->n_tensors; i++) emit_tensor(w, &w->tensors[i]);
    emit_padding(w);
    w->data_begun = true;
    return report(w, err);
}

pi_status gguf_write_data(gguf_writer *w, const void *data, size_t n_bytes, pi_error *err) {
    assert(w->data_begun);
    const uint8_t *p = data;
    while (n_bytes && !w->first_err.status) {
        if (w->current == w->n_tensors) {
            pi_error bad = {0};
            error_set(&bad, PI_ERR_ARG, "%zu bytes more than the tensors have: %.200s", n_bytes,
                      w->path);
            stick(w, &bad);
            break;
        }
        size_t room = w->tensors[w->current].n_bytes - w->n_written;
        size_t n = n_bytes < room ? n_bytes : room;
        emit(w, p, n);
        p += n;
        n_bytes -= n;
        w->n_written += n;
        if (n == room) {
            emit_padding(w);
            w->current++;
            w->n_written = 0;
        }
    }
    return report(w, err);
}

static pi_status check_complete(gguf_writer *w, pi_error *err) {
    if (!w->data_begun) gguf_writer_begin_data(w, NULL);
    pi_error bad = {0};
    if (!w->first_err.status && w->current < w->n_tensors) {
        const gguf_tensor *t = &w->tensors[w->current];
        error_set(&bad, PI_ERR_ARG, "tensor '%s' has %zu of its %zu bytes: %.200s", t->name,
                  w->n_written, t->n_bytes, w->path);
        stick(w, &bad);
    }
    return report(w, err);
}

pi_status gguf_writer_settle(gguf_writer *w, const char **path, pi_error *err) {
    pi_status status = check_complete(w, err);
    if (!status) status = file_writer_flush(w->file, err);
    *path = file_writer_path(w->file);
    return status;
}

pi_status gguf_writer_patch(gguf_writer *w, const char *key, const void *data, size_t n_bytes,
                            pi_error *err) {
    assert(w->data_begun);
    if (report(w, err)) return w->first_err.status;
    int64_t at = gguf_index_find(&w->key_index, gguf_string_of(key), name_of_key, w->keys);
    if (at < 0 || w->keys[at].n_data != n_bytes)
        return error_set(err, PI_ERR_ARG, "key '%.80s' has no %zu bytes to replace: %.200s", key,
                         n_bytes, w->path);
    return file_writer_patch(w->file, w->keys[at].offset, data, n_bytes, err);
}

pi_status gguf_writer_finish(gguf_writer *w, pi_error *err) {
    pi_status status = check_complete(w, err);
    if (!status) {
        status = file_writer_commit(w->file, err); /* frees w->file in every case */
        w->file = NULL;
    }
    gguf_writer_abort(w);
    return status;
}
