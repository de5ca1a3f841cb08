/* gguf_override.c: overrides keys of a file and adds keys. The file is not changed; the part's list
 * of values points to memory made here. */
#include <stdio.h>

#include "gguf_impl.h"
#include "log.h"

static const char *const class_names[] = {"an integer", "a float", "a bool", "a string"};

/* Kind of a type: 0 integer, 1 float, 2 bool, 3 string; -1: array. */
static int class_of(gguf_value_type type) {
    if (type == GGUF_ARRAY) return -1;
    if (type == GGUF_STRING) return 3;
    if (type == GGUF_BOOL) return 2;
    return type == GGUF_F32 || type == GGUF_F64 ? 1 : 0;
}

/* Bytes of the value in a file's encoding. */
static size_t stored_bytes(const gguf_override *o) {
    if (o->type == GGUF_STRING) return 8 + strlen(o->text);
    return gguf_scalar_bytes(o->type);
}

static void store(const gguf_override *o, uint8_t *out) {
    uint64_t bits;
    switch (o->type) {
    case GGUF_STRING:
        gguf_store_u64(out, strlen(o->text));
        memcpy(out + 8, o->text, strlen(o->text));
        return;
    case GGUF_F64:
        memcpy(&bits, &o->number, sizeof bits);
        gguf_store_u64(out, bits);
        return;
    case GGUF_BOOL:
        *out = o->integer != 0;
        return;
    default:
        gguf_store_u64(out, (uint64_t)o->integer);
    }
}

enum { FULL_KEY = 256 };

/* The architecture that replaces "*" at the start of a key: the file's, ignoring overrides. */
static gguf_string architecture(const gguf_part *p) {
    gguf_string name = {"", 0};
    const gguf_value *v = gguf_part_find(p, "general.architecture");
    if (v) gguf_as_string(v, &name);
    return name;
}

/* The full key of an override. `text` is a buffer for it. */
static const char *full_key(gguf_string arch, const char *key, char text[FULL_KEY]) {
    if (strncmp(key, "*.", 2) != 0 || arch.n_bytes + strlen(key) > FULL_KEY) return key;
    snprintf(text, FULL_KEY, "%.*s%s", (int)arch.n_bytes, arch.data, key + 1);
    return text;
}

static pi_status check(const gguf_part *p, const gguf_override *o, pi_error *err) {
    char text[FULL_KEY];
    const gguf_value *v = gguf_part_find(p, full_key(architecture(p), o->key, text));
    int want = class_of(o->type);
    if (!v) {
        if (strncmp(o->key, "*.", 2) == 0) return PI_OK; /* files need not have a "*." key */
        log_line(LOG_LEVEL_WARN, "override of %s: the file has no such key: %s", o->key, p->path);
        return PI_OK;
    }
    int has = class_of(v->type);
    if (has == want) return PI_OK;
    return error_set(err, PI_ERR_ARG, "cannot override %.200s: it is %s in %.200s, not %s", o->key,
                     has < 0 ? "an array" : class_names[has], p->path, class_names[want]);
}

/* Makes room for `more` values and builds an index over all of them. */
static pi_status grow(gguf_part *p, size_t more, pi_error *err) {
    size_t n = p->n_values + more; /* both are capped */
    gguf_value *values = mem_calloc(n, sizeof *values);
    gguf_index keys = {0};
    if (!values || !gguf_index_init(&keys, n)) {
        mem_free(values);
        return error_nomem(err, n * sizeof *values, "keys of a GGUF file");
    }
    if (p->n_values) memcpy(values, p->values, p->n_values * sizeof *values);
    for (uint64_t i = 0; i < p->n_values; i++) gguf_index_insert(&keys, values[i].key, (uint32_t)i);
    mem_free(p->values);
    gguf_index_free(&p->keys);
    p->values = values;
    p->keys = keys;
    return PI_OK;
}

static void put(gguf_part *p, const gguf_override *o, const uint8_t *data, const char *key) {
    gguf_string name = {.data = key, .n_bytes = strlen(key)};
    int64_t at = gguf_index_find(&p->keys, name, gguf_name_of_value, p->values);
    if (at < 0) {
        at = (int64_t)p->n_values++;
        p->values[at].key = name;
        gguf_index_insert(&p->keys, name, (uint32_t)at);
    }
    gguf_value *v = &p->values[at];
    *v = (gguf_value){.key = v->key, .type = o->type, .count = 1, .data = data};
}

pi_status gguf_part_override(gguf_part *p, const gguf_override *overrides, size_t n,
                             uint8_t **memory, pi_error *err) {
    const gguf_string arch = architecture(p);
    char text[FULL_KEY];
    size_t n_bytes = 0;
    if (n == 0) return PI_OK;
    if (n > GGUF_MAX_OVERRIDES)
        return error_set(err, PI_ERR_ARG, "too many overrides of keys: %zu: give at most %d", n,
                         GGUF_MAX_OVERRIDES);
    for (size_t i = 0; i < n; i++) {
        pi_status status = check(p, &overrides[i], err);
        if (status != PI_OK) return status;
        n_bytes += strlen(full_key(arch, overrides[i].key, text)) + 1 + stored_bytes(&overrides[i]);
    }
    *memory = mem_alloc(n_bytes);
    if (!*memory) return error_nomem(err, n_bytes, "overrides of keys");
    pi_status status = grow(p, n, err);
    if (status != PI_OK) return status;
    uint8_t *at = *memory;
    for (size_t i = 0; i < n; i++) {
        const char *key = full_key(arch, overrides[i].key, text);
        size_t n_key = strlen(key) + 1, n_value = stored_bytes(&overrides[i]);
        memcpy(at, key, n_key);
        store(&overrides[i], at + n_key);
        put(p, &overrides[i], at + n_key, (const char *)at);
        at += n_key + n_value;
    }
    return PI_OK;
}
