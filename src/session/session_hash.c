/* session_hash.c: hashes of saved sessions, of models and of settings. A file is refused if
 * evaluating its tokens now would give a different cache.
 *
 * The settings are hashed as keys, not as hyperparameters: every key of the architecture, after
 * overrides. So the hash covers new hyperparameters without a change here. */
#include "session_file.h"

#include <string.h>

#include "session.h"

/* ---- hash ------------------------------------------------------------------------------------ */

/* The 64-bit multiplier of splitmix64: odd, its bits well mixed. */
#define HASH_FACTOR UINT64_C(0xbf58476d1ce4e5b9)

static inline uint64_t hash_word(uint64_t state, uint64_t word) {
    state = (state ^ word) * HASH_FACTOR;
    return state ^ state >> 32;
}

void session_hash_add(session_hash *h, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    h->n_bytes += n_bytes;
    for (; n_bytes >= 8; p += 8, n_bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h->state = hash_word(h->state, word);
    }
    if (n_bytes) {
        uint64_t word = 0;
        memcpy(&word, p, n_bytes);
        h->state = hash_word(h->state, word);
    }
}

uint64_t session_hash_end(const session_hash *h) {
    return hash_word(hash_word(h->state, h->n_bytes), HASH_FACTOR);
}

uint64_t session_hash_of(const void *data, size_t n_bytes) {
    session_hash h = {0};
    session_hash_add(&h, data, n_bytes);
    return session_hash_end(&h);
}

/* ---- model ----------------------------------------------------------------------------------- */

static uint64_t hash_text(const char *text) {
    return session_hash_of(text, strlen(text));
}

static uint64_t hash_tensor(const gguf_tensor *t, uint64_t state) {
    uint64_t fields[] = {state,      hash_text(t->name), t->type,    t->n_bytes,
                         t->dims[0], t->dims[1],         t->dims[2], t->dims[3]};
    size_t n = t->n_bytes < SESSION_SAMPLE_BYTES ? t->n_bytes : SESSION_SAMPLE_BYTES;
    session_hash h = {0};
    session_hash_add(&h, fields, sizeof fields);
    if (t->data) session_hash_add(&h, t->data, n);
    return session_hash_end(&h);
}

uint64_t session_model_hash(const model *m) {
    uint64_t state = hash_word(hash_text(m->arch->name), gguf_file_bytes(m->file));
    for (uint64_t i = 0; i < gguf_n_tensors(m->file); i++)
        state = hash_tensor(gguf_tensor_at(m->file, i), state);
    return state;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Hashes numbers independently of their type. */
static uint64_t hash_float(uint64_t state, double number) {
    float rounded = (float)number; /* as hyperparameters are */
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return hash_word(state, bits);
}

static uint64_t hash_array(uint64_t state, const gguf_value *v) {
    const uint8_t *cursor = v->data;
    state = hash_word(state, v->count);
    for (uint64_t i = 0; i < v->count; i++) {
        int64_t integer;
        double number;
        if (v->item_type == GGUF_STRING) {
            gguf_string text = gguf_next_string(&cursor);
            state = hash_word(state, session_hash_of(text.data, text.n_bytes));
        } else if (gguf_item_i64(v, i, &integer)) {
            state = hash_word(state, (uint64_t)integer);
        } else if (gguf_item_f64(v, i, &number)) {
            state = hash_float(state, number);
        }
    }
    return state;
}

static uint64_t hash_value(uint64_t state, const gguf_value *v) {
    gguf_string text;
    int64_t integer;
    double number;
    bool truth;
    if (v->type == GGUF_ARRAY) return hash_array(state, v);
    if (v->type == GGUF_STRING && gguf_as_string(v, &text))
        return hash_word(state, session_hash_of(text.data, text.n_bytes));
    if (v->type == GGUF_BOOL && gguf_as_bool(v, &truth)) return hash_word(state, truth);
    if (gguf_as_i64(v, &integer)) return hash_word(state, (uint64_t)integer);
    return gguf_as_f64(v, &number) ? hash_float(state, number) : state;
}

/* "ARCHITECTURE.key", and keys of prepared files. */
static bool is_setting(const model *m, gguf_string key) {
    size_t n = strlen(m->arch->name);
    return gguf_string_starts(key, "powerinfer.") ||
           (gguf_string_starts(key, m->arch->name) && key.n_bytes > n && key.data[n] == '.');
}

/* Modes that leave neurons out. All other modes give equal results, apart from rounding. */
static uint64_t hash_mode(uint64_t state, const model *m, int layer, const plan_options *o) {
    pi_mode mode = plan_choose_mode(m, layer, o);
    if (mode != PI_MODE_PREDICT && mode != PI_MODE_THRESHOLD) return hash_word(state, 0);
    float threshold = o->set_threshold ? o->threshold : m->sparse.predictor_threshold;
    return hash_float(hash_word(state, (uint64_t)mode), (double)threshold);
}

uint64_t session_settings_hash(const pi_session *s) {
    const model *m = s->host->model;
    uint64_t state = m->adapters_hash;
    for (uint64_t i = 0; i < gguf_n_values(m->file); i++) {
        const gguf_value *v = gguf_value_at(m->file, i);
        if (!is_setting(m, v->key)) continue;
        state = hash_word(state, session_hash_of(v->key.data, v->key.n_bytes));
        state = hash_value(state, v);
    }
    for (int i = 0; i < m->hp.n_layer; i++) state = hash_mode(state, m, i, s->host->options);
    /* LongRoPE uses different frequencies in long contexts. */
    bool beyond = m->t[ROLE_ROPE_LONG].data && s->kv.n_ctx > m->hp.rope_orig_ctx;
    return hash_word(state, beyond);
}
