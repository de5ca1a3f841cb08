/* gguf_value.c: typed access to values that were checked when the file was opened. */
#include "gguf_impl.h"

static const struct {
    const char *name;
    uint8_t n_bytes; /* per value; 0: varies */
} value_types[GGUF_VALUE_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_value_type_name(gguf_value_type type) {
    return (unsigned)type < GGUF_VALUE_TYPE_COUNT ? value_types[type].name : "unknown";
}

size_t gguf_scalar_bytes(gguf_value_type type) {
    return (unsigned)type < GGUF_VALUE_TYPE_COUNT ? value_types[type].n_bytes : 0;
}

/* Bytes of `count` items; the recursion is bounded because the depth was checked at opening. */
static size_t items_bytes(gguf_value_type type, uint64_t count, const uint8_t *data) {
    if (type != GGUF_STRING && type != GGUF_ARRAY) return gguf_scalar_bytes(type) * count;
    const uint8_t *p = data;
    for (uint64_t i = 0; i < count; i++) {
        if (type == GGUF_STRING)
            gguf_next_string(&p);
        else
            gguf_next_array(&p);
    }
    return (size_t)(p - data);
}

size_t gguf_value_bytes(const gguf_value *v) {
    return items_bytes(v->type == GGUF_ARRAY ? v->item_type : v->type, v->count, v->data);
}

gguf_string gguf_next_string(const uint8_t **cursor) {
    gguf_string s = {.data = (const char *)*cursor + 8, .n_bytes = gguf_load_u64(*cursor)};
    *cursor += 8 + s.n_bytes;
    return s;
}

gguf_value gguf_next_array(const uint8_t **cursor) {
    enum { HEAD = 4 + 8 }; /* item type, count */
    gguf_value v = {
        .type = GGUF_ARRAY,
        .item_type = (gguf_value_type)gguf_load_u32(*cursor),
        .count = gguf_load_u64(*cursor + 4),
        .data = *cursor + HEAD,
    };
    *cursor += HEAD + gguf_value_bytes(&v);
    return v;
}

bool gguf_as_string(const gguf_value *v, gguf_string *out) {
    if (v->type != GGUF_STRING) return false;
    const uint8_t *p = v->data;
    *out = gguf_next_string(&p);
    return true;
}

bool gguf_string_starts(gguf_string s, const char *text) {
    size_t n = strlen(text);
    return s.data && s.n_bytes >= n && memcmp(s.data, text, n) == 0;
}

bool gguf_string_is(gguf_string s, const char *text) {
    return s.n_bytes == strlen(text) && gguf_string_starts(s, text);
}

/* Loads an integer of any type: *bits is its two's complement value, *negative its sign. */
static bool load_integer(gguf_value_type type, const uint8_t *p, uint64_t *bits, bool *negative) {
    int64_t i = 0;
    *negative = false;
    switch (type) {
    case GGUF_U8:
        *bits = *p;
        return true;
    case GGUF_U16:
        *bits = gguf_load_u16(p);
        return true;
    case GGUF_U32:
        *bits = gguf_load_u32(p);
        return true;
    case GGUF_U64:
        *bits = gguf_load_u64(p);
        return true;
    case GGUF_I8:
        i = (int8_t)*p;
        break;
    case GGUF_I16:
        i = (int16_t)gguf_load_u16(p);
        break;
    case GGUF_I32:
        i = (int32_t)gguf_load_u32(p);
        break;
    case GGUF_I64:
        i = (int64_t)gguf_load_u64(p);
        break;
    default:
        return false;
    }
    *bits = (uint64_t)i;
    *negative = i < 0;
    return true;
}

static bool load_u64(gguf_value_type type, const uint8_t *p, uint64_t *out) {
    uint64_t bits;
    bool negative;
    if (!load_integer(type, p, &bits, &negative) || negative) return false;
    *out = bits;
    return true;
}

static bool load_i64(gguf_value_type type, const uint8_t *p, int64_t *out) {
    uint64_t bits;
    bool negative;
    if (!load_integer(type, p, &bits, &negative)) return false;
    if (!negative && bits > INT64_MAX) return false;
    *out = (int64_t)bits;
    return true;
}

static bool load_f64(gguf_value_type type, const uint8_t *p, double *out) {
    if (type == GGUF_F32) {
        uint32_t bits = gguf_load_u32(p);
        float f;
        memcpy(&f, &bits, sizeof f);
        *out = (double)f;
        return true;
    }
    if (type == GGUF_F64) {
        uint64_t bits = gguf_load_u64(p);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    uint64_t bits;
    bool negative;
    if (!load_integer(type, p, &bits, &negative)) return false;
    *out = negative ? (double)(int64_t)bits : (double)bits;
    return true;
}

bool gguf_as_u64(const gguf_value *v, uint64_t *out) {
    return load_u64(v->type, v->data, out);
}

bool gguf_as_i64(const gguf_value *v, int64_t *out) {
    return load_i64(v->type, v->data, out);
}

bool gguf_as_f64(const gguf_value *v, double *out) {
    return load_f64(v->type, v->data, out);
}

bool gguf_as_bool(const gguf_value *v, bool *out) {
    uint64_t u;
    if (v->type == GGUF_BOOL) {
        *out = *v->data != 0;
        return true;
    }
    if (!load_u64(v->type, v->data, &u) || u > 1) return false;
    *out = u == 1;
    return true;
}

/* Address and type of item i of an array; bools become the integers 0 and 1. */
static const uint8_t *array_item(const gguf_value *v, uint64_t i, gguf_value_type *type) {
    size_t n_bytes = gguf_scalar_bytes(v->item_type);
    if (v->type != GGUF_ARRAY || n_bytes == 0 || i >= v->count) return NULL;
    *type = v->item_type == GGUF_BOOL ? GGUF_U8 : v->item_type;
    return v->data + n_bytes * i;
}

bool gguf_item_u64(const gguf_value *v, uint64_t i, uint64_t *out) {
    gguf_value_type type;
    const uint8_t *p = array_item(v, i, &type);
    return p && load_u64(type, p, out);
}

bool gguf_item_i64(const gguf_value *v, uint64_t i, int64_t *out) {
    gguf_value_type type;
    const uint8_t *p = array_item(v, i, &type);
    return p && load_i64(type, p, out);
}

bool gguf_item_f64(const gguf_value *v, uint64_t i, double *out) {
    gguf_value_type type;
    const uint8_t *p = array_item(v, i, &type);
    return p && load_f64(type, p, out);
}
