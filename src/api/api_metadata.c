/* api_metadata.c: metadata of a model file as text. The output buffer also counts bytes that do not
 * fit, so one call returns length and content. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_types.h"
#include "svg.h"

typedef struct text_out {
    char *text;
    size_t capacity, n; /* n: bytes put, may be larger than capacity */
} text_out;

static void put(text_out *out, const char *text, size_t n) {
    if (out->n < out->capacity) {
        size_t room = out->capacity - out->n;
        memcpy(out->text + out->n, text, n < room ? n : room);
    }
    out->n += n;
}

static void put_text(text_out *out, const char *text) {
    put(out, text, strlen(text));
}

static void put_escaped(text_out *out, gguf_string s) {
    put_text(out, "\"");
    for (uint64_t i = 0; i < s.n_bytes; i++) {
        unsigned char c = (unsigned char)s.data[i];
        char escape[8] = {'\\', (char)c};
        if (c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (c != '"' && c != '\\')
            memcpy(escape, (const char[]){(char)c, 0}, 2);
        put_text(out, escape);
    }
    put_text(out, "\"");
}

/* The shortest decimal number that reads back as the same value. */
static void put_float(text_out *out, double value, bool single) {
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (single ? (float)back == (float)value : back == value) break;
    }
    svg_points(text); /* a decimal point in every locale */
    put_text(out, text);
}

/* Item i of an array. */
static void put_item(text_out *out, const gguf_value *v, uint64_t i) {
    gguf_value_type type = v->item_type;
    char text[24] = "";
    uint64_t u = 0;
    int64_t n = 0;
    double f = 0;
    if (type == GGUF_F32 || type == GGUF_F64) {
        gguf_item_f64(v, i, &f);
        put_float(out, f, type == GGUF_F32);
        return;
    }
    bool fits = gguf_item_i64(v, i, &n);
    if (type == GGUF_BOOL) {
        put_text(out, n ? "true" : "false");
        return;
    }
    if (fits)
        snprintf(text, sizeof text, "%" PRId64, n);
    else if (gguf_item_u64(v, i, &u))
        snprintf(text, sizeof text, "%" PRIu64, u);
    put_text(out, text);
}

/* Arrays of arrays are at most GGUF_MAX_ARRAY_DEPTH deep. */
static void put_array(text_out *out, const gguf_value *v) {
    const uint8_t *cursor = v->data;
    put_text(out, "[");
    for (uint64_t i = 0; i < v->count; i++) {
        if (i > 0) put_text(out, ", ");
        if (v->item_type == GGUF_STRING) {
            put_escaped(out, gguf_next_string(&cursor));
        } else if (v->item_type == GGUF_ARRAY) {
            const gguf_value inner = gguf_next_array(&cursor);
            put_array(out, &inner);
        } else {
            put_item(out, v, i);
        }
    }
    put_text(out, "]");
}

static pi_status finish(const text_out *out, size_t *n_bytes, pi_error *err) {
    *n_bytes = out->n;
    if (out->n <= out->capacity) return PI_OK;
    return error_set(err, PI_ERR_LIMIT, "buffer too small: the text has %zu bytes: capacity %zu",
                     out->n, out->capacity);
}

size_t pi_model_n_metadata(const pi_model *m) {
    return (size_t)gguf_n_values(api_file(m));
}

pi_status pi_model_metadata_key(const pi_model *m, size_t index, char *text, size_t capacity,
                                size_t *n_bytes, pi_error *err) {
    const gguf_file *f = api_file(m);
    *n_bytes = 0;
    if (index >= gguf_n_values(f))
        return error_set(err, PI_ERR_RANGE, "no such key: %s: number %zu of %" PRIu64, gguf_path(f),
                         index, gguf_n_values(f));
    const gguf_value *v = gguf_value_at(f, index);
    text_out out = {.text = text, .capacity = capacity};
    put(&out, v->key.data, (size_t)v->key.n_bytes);
    return finish(&out, n_bytes, err);
}

pi_status pi_model_metadata(const pi_model *m, const char *key, char *text, size_t capacity,
                            size_t *n_bytes, pi_error *err) {
    const gguf_file *f = api_file(m);
    const gguf_value *v = gguf_find(f, key);
    *n_bytes = 0;
    if (!v)
        return error_set(err, PI_ERR_NOT_FOUND, "no such key: %s: %.100s is not in its metadata",
                         gguf_path(f), key);
    text_out out = {.text = text, .capacity = capacity};
    gguf_string s;
    const gguf_value one = {.type = GGUF_ARRAY, .item_type = v->type, .count = 1, .data = v->data};
    if (v->type == GGUF_ARRAY)
        put_array(&out, v);
    else if (gguf_as_string(v, &s))
        put(&out, s.data, (size_t)s.n_bytes);
    else
        put_item(&out, &one, 0);
    return finish(&out, n_bytes, err);
}

int32_t pi_model_token(const pi_model *m, pi_token_role role) {
    static const token_role roles[PI_TOKEN_ROLES] = {
        [PI_TOKEN_BOS] = TOKEN_ROLE_BOS,         [PI_TOKEN_EOS] = TOKEN_ROLE_EOS,
        [PI_TOKEN_EOT] = TOKEN_ROLE_EOT,         [PI_TOKEN_EOM] = TOKEN_ROLE_EOM,
        [PI_TOKEN_UNK] = TOKEN_ROLE_UNK,         [PI_TOKEN_SEP] = TOKEN_ROLE_SEP,
        [PI_TOKEN_PAD] = TOKEN_ROLE_PAD,         [PI_TOKEN_MASK] = TOKEN_ROLE_MASK,
        [PI_TOKEN_NL] = TOKEN_ROLE_NL,           [PI_TOKEN_FIM_PRE] = TOKEN_ROLE_FIM_PRE,
        [PI_TOKEN_FIM_SUF] = TOKEN_ROLE_FIM_SUF, [PI_TOKEN_FIM_MID] = TOKEN_ROLE_FIM_MID,
        [PI_TOKEN_FIM_PAD] = TOKEN_ROLE_FIM_PAD, [PI_TOKEN_FIM_REP] = TOKEN_ROLE_FIM_REP,
        [PI_TOKEN_FIM_SEP] = TOKEN_ROLE_FIM_SEP};
    if (!m->text || (unsigned)role >= PI_TOKEN_ROLES) return -1;
    return tokenizer_role(m->text, roles[role]);
}
