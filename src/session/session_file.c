/* session_file.c: saving and loading a session, whole or in ranges of tokens.
 *
 * Only the rows of existing tokens are written, so that any session of the same model and cache
 * types with enough positions can load the file; a shorter session loads its beginning. Everything
 * is checked before the session changes; only a GPU error or a failed allocation leaves it empty.
 * The file does not depend on the devices of the layers. */
#include "session_file.h"

#include <assert.h>
#include <string.h>

#include "file.h"
#include "mem.h"
#include "session.h"

static_assert((int)SESSION_RATIOS == (int)MODEL_RATIOS, "a ratio without its number of bytes");

static const char magic[8] = {'P', 'I', 'S', 'E', 'S', 'S', 'N', '\n'};

enum { /* offsets in the header */
       AT_VERSION = 8,
       AT_TOKENS = 12,
       AT_TYPE_K = 16,
       AT_TYPE_V = 20,
       AT_MODEL = 24,
       AT_TOKEN_BYTES = 32,
       AT_PAYLOAD_HASH = 40,
       AT_SETTINGS = 48,
       AT_HEADER_HASH = 56
};

/* ---- header ---------------------------------------------------------------------------------- */

static void put_u32(uint8_t *p, uint32_t v) {
    memcpy(p, &v, sizeof v);
}
static void put_u64(uint8_t *p, uint64_t v) {
    memcpy(p, &v, sizeof v);
}
static uint32_t get_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static uint64_t get_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

void session_header_write(uint8_t header[SESSION_HEADER_BYTES], const session_shape *shape,
                          int32_t n_tokens, uint64_t payload_hash) {
    memcpy(header, magic, sizeof magic);
    put_u32(header + AT_VERSION, SESSION_VERSION);
    put_u32(header + AT_TOKENS, (uint32_t)n_tokens);
    put_u32(header + AT_TYPE_K, shape->type_k);
    put_u32(header + AT_TYPE_V, shape->type_v);
    put_u64(header + AT_MODEL, shape->model);
    put_u64(header + AT_SETTINGS, shape->settings);
    put_u64(header + AT_TOKEN_BYTES, shape->token_bytes);
    put_u64(header + AT_PAYLOAD_HASH, payload_hash);
    put_u64(header + AT_HEADER_HASH, session_hash_of(header, AT_HEADER_HASH));
}

static pi_status check_header(const uint8_t *h, size_t n, const char *name,
                              const session_shape *shape, pi_error *err) {
    if (n < sizeof magic || memcmp(h, magic, sizeof magic) != 0)
        return error_set(err, PI_ERR_FORMAT, "not a saved session: %s: name another file", name);
    if (n < SESSION_HEADER_BYTES)
        return error_set(err, PI_ERR_FORMAT, "saved session is truncated: %s: delete it", name);
    if (get_u32(h + AT_VERSION) != SESSION_VERSION)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "saved session has version %u: %s: this library reads version %d; delete "
                         "it",
                         get_u32(h + AT_VERSION), name, SESSION_VERSION);
    if (get_u64(h + AT_HEADER_HASH) != session_hash_of(h, AT_HEADER_HASH))
        return error_set(err, PI_ERR_FORMAT, "saved session is damaged: header of %s: delete it",
                         name);
    if (get_u64(h + AT_MODEL) != shape->model)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "saved with another model: %s: delete it or name another file", name);
    if (get_u64(h + AT_SETTINGS) != shape->settings)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "saved with other settings of this model: %s: use the same overridden "
                         "keys, adapters and sparse FFN mode, or name another file",
                         name);
    if (get_u32(h + AT_TYPE_K) != shape->type_k || get_u32(h + AT_TYPE_V) != shape->type_v ||
        get_u64(h + AT_TOKEN_BYTES) != shape->token_bytes)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "saved with other cache types: %s: use the same types, or name "
                         "another file",
                         name);
    return PI_OK;
}

static int32_t token_at(const session_view *v, int32_t i) {
    return (int32_t)get_u32(v->tokens + 4 * (size_t)i);
}

pi_status session_parse(const uint8_t *data, size_t n_bytes, const char *name,
                        const session_shape *shape, session_view *view, pi_error *err) {
    pi_status status = check_header(data, n_bytes, name, shape, err);
    if (status != PI_OK) return status;
    uint32_t n = get_u32(data + AT_TOKENS);
    size_t per_token, need, rows;
    bool fits = n >= 1 && n <= INT32_MAX && size_add(shape->token_bytes, 4, &per_token) &&
                size_mul(n, per_token, &need) && size_add(need, SESSION_HEADER_BYTES, &need) &&
                size_add(need, shape->state_bytes, &need);
    for (int i = 1; i < SESSION_RATIOS && fits; i++) /* as kv_layer_room */
        fits = size_mul((size_t)(n >> i) + 1, shape->row_bytes[i], &rows) &&
               size_add(need, rows, &need);
    if (!fits || need != n_bytes)
        return error_set(err, PI_ERR_FORMAT,
                         "saved session has a wrong length: %s: %zu bytes for %u tokens: delete it",
                         name, n_bytes, n);
    *view = (session_view){.n_tokens = (int32_t)n,
                           .tokens = data + SESSION_HEADER_BYTES,
                           .cache = data + SESSION_HEADER_BYTES + 4 * (size_t)n,
                           .state = data + n_bytes - shape->state_bytes};
    session_hash h = {0};
    session_hash_add(&h, data + SESSION_HEADER_BYTES, n_bytes - SESSION_HEADER_BYTES);
    if (get_u64(data + AT_PAYLOAD_HASH) != session_hash_end(&h))
        return error_set(err, PI_ERR_FORMAT, "saved session is damaged: %s: delete it", name);
    for (int32_t i = 0; i < view->n_tokens; i++) {
        int32_t id = token_at(view, i);
        if (id < 0 || id >= shape->n_vocab)
            return error_set(
                err, PI_ERR_FORMAT,
                "saved session has a token outside the vocabulary: %s: id %d at %d: delete it",
                name, id, i);
    }
    return PI_OK;
}

/* ---- shape ----------------------------------------------------------------------------------- */

/* Bytes of n tokens in the cache. */
static size_t cache_bytes(const pi_session *s, int64_t n) {
    size_t sum = 0;
    for (int i = 0; i < s->host->model->hp.n_layer; i++) sum += kv_layer_bytes(&s->kv.layers[i], n);
    return sum;
}

/* Of the recurrent layers of all machines. */
static uint64_t state_bytes(const pi_session *s) {
    const model *m = s->host->model;
    uint64_t n = 0;
    for (int i = 0; i < m->hp.n_layer; i++) n += (uint64_t)model_state(&m->hp, &m->layers[i].hp);
    return n * sizeof(float);
}

static session_shape shape_of(const pi_session *s) {
    const model *m = s->host->model;
    session_shape shape = {.model = session_model_hash(m),
                           .settings = session_settings_hash(s),
                           .type_k = (uint32_t)s->kv.type_k,
                           .type_v = (uint32_t)s->kv.type_v,
                           .state_bytes = state_bytes(s),
                           .n_vocab = m->hp.n_vocab};
    for (int i = 0; i < m->hp.n_layer; i++) {
        const kv_layer *l = &s->kv.layers[i];
        for (int part = 0; part < KV_PARTS; part++) {
            uint64_t bytes = (uint64_t)kv_layer_heads(l, (kv_part)part) * l->row[part];
            int k = 0;
            while (1 << k < l->per[part]) k++;
            *(k == 0 ? &shape.token_bytes : &shape.row_bytes[k]) += bytes;
        }
    }
    return shape;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* A stream of bytes to a file or memory, and into the hash. Pieces of the cache may have any
 * length; the stream joins them into words for the hash. */
typedef struct payload {
    bool unhashed;
    file_writer *file; /* NULL: to memory */
    uint8_t *memory;   /* position of the next bytes */
    session_hash hash;
    uint8_t word[8];
    size_t n_word;
} payload;

static pi_status put_bytes(payload *p, const void *data, size_t n_bytes, pi_error *err) {
    if (p->file) return file_writer_write(p->file, data, n_bytes, err);
    memcpy(p->memory, data, n_bytes);
    p->memory += n_bytes;
    return PI_OK;
}

static pi_status payload_write(payload *p, const void *data, size_t n_bytes, pi_error *err) {
    const uint8_t *at = data;
    size_t left = n_bytes;
    if (p->unhashed) return put_bytes(p, data, n_bytes, err);
    while (left && (p->n_word || left < sizeof p->word)) {
        p->word[p->n_word++] = *at++;
        left--;
        if (p->n_word < sizeof p->word) continue;
        session_hash_add(&p->hash, p->word, sizeof p->word);
        p->n_word = 0;
    }
    size_t whole = left & ~(size_t)7;
    session_hash_add(&p->hash, at, whole);
    memcpy(p->word, at + whole, left - whole);
    if (left > whole) p->n_word = left - whole;
    return put_bytes(p, data, n_bytes, err);
}

/* Positions of a session's cache. */
typedef struct positions {
    int64_t first, n;
} positions;

/* Writes zeros where the room has more rows than these positions. */
static pi_status fill_room(payload *p, const kv_layer *l, kv_part part, positions at,
                           pi_error *err) {
    static const uint8_t zeros[64] = {0};
    int64_t n = kv_layer_room(l, part, at.n) - kv_layer_rows_at(l, part, at.first, at.n).n;
    pi_status status = PI_OK;
    for (size_t left = (size_t)n * l->row[part]; left > 0 && status == PI_OK;) {
        size_t piece = left < sizeof zeros ? left : sizeof zeros;
        status = payload_write(p, zeros, piece, err);
        left -= piece;
    }
    return status;
}

static pi_status write_layer(payload *p, const pi_session *s, int layer, positions at,
                             pi_error *err) {
    const kv_layer *l = &s->kv.layers[layer];
    pi_status status = PI_OK;
    for (int32_t i = 0; i < kv_layer_pieces(l) && status == PI_OK; i++) {
        const kv_piece piece = kv_layer_piece(l, i);
        const kv_row_range rows = kv_layer_rows_at(l, piece.part, at.first, at.n);
        status = payload_write(p, kv_cache_row(&s->kv, layer, piece.part, piece.head, rows.first),
                               (size_t)rows.n * l->row[piece.part], err);
        if (status == PI_OK) status = fill_room(p, l, piece.part, at, err);
    }
    return status;
}

/* A host copy of a layer's cache on the GPU: keys, values, index. On the GPU the heads of a
 * position are contiguous; in the file, the positions of a head. */
typedef struct device_layer {
    const kv_layer *layer;
    uint8_t *data[KV_PARTS]; /* [n][heads][row] */
    positions at;
} device_layer;

static pi_status device_layer_alloc(device_layer *d, const pi_session *s, int layer, positions p,
                                    pi_error *err) {
    const kv_layer *l = &s->kv.layers[layer];
    *d = (device_layer){.layer = l, .at = p};
    size_t bytes = kv_layer_bytes(l, p.n);
    uint8_t *at = mem_alloc(bytes + 1);
    if (!at) return error_nomem(err, bytes, "a layer of the KV cache");
    for (int part = 0; part < KV_PARTS; part++) {
        d->data[part] = at;
        at += (size_t)kv_layer_room(l, (kv_part)part, p.n) *
              (size_t)kv_layer_heads(l, (kv_part)part) * l->row[part];
    }
    return PI_OK;
}

/* The rows of a part on the GPU. */
static kv_range device_range(const device_layer *d, int layer, kv_part part) {
    const kv_row_range rows = kv_layer_rows_at(d->layer, part, d->at.first, d->at.n);
    return (kv_range){.layer = layer, .part = part, .first = rows.first, .n = rows.n};
}

static uint8_t *device_row(const device_layer *d, kv_piece piece, size_t pos) {
    size_t heads = (size_t)kv_layer_heads(d->layer, piece.part);
    return d->data[piece.part] + (pos * heads + (size_t)piece.head) * d->layer->row[piece.part];
}

static pi_status write_device_layer(payload *p, const pi_session *s, int layer, positions at,
                                    pi_error *err) {
    device_layer d;
    pi_status status = device_layer_alloc(&d, s, layer, at, err);
    for (int part = 0; part < KV_PARTS && status == PI_OK; part++) {
        const kv_range range = device_range(&d, layer, (kv_part)part);
        status = s->host->gpus->read(s, &range, d.data[part], err);
    }
    for (int32_t i = 0; i < kv_layer_pieces(d.layer); i++) {
        const kv_piece piece = kv_layer_piece(d.layer, i);
        const size_t n = (size_t)device_range(&d, layer, piece.part).n;
        for (size_t row = 0; row < n && status == PI_OK; row++)
            status = payload_write(p, device_row(&d, piece, row), d.layer->row[piece.part], err);
        if (status == PI_OK) status = fill_room(p, d.layer, piece.part, at, err);
    }
    mem_free(d.data[0]);
    return status;
}

/* A layer of another machine. */
static pi_status write_distant_layer(payload *p, const pi_session *s, int layer, positions at,
                                     pi_error *err) {
    size_t n_bytes = kv_layer_bytes(&s->kv.layers[layer], at.n);
    if (n_bytes == 0) return PI_OK;
    void *rows = mem_alloc(n_bytes);
    if (!rows) return error_nomem(err, n_bytes, "a layer of the KV cache");
    pi_status status = s->host->ranks->get(s, layer, at.first, at.n, rows, err);
    if (status == PI_OK) status = payload_write(p, rows, n_bytes, err);
    mem_free(rows);
    return status;
}

static pi_status write_cache(payload *p, const pi_session *s, positions at, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < s->host->model->hp.n_layer && status == PI_OK; i++) {
        if (!plan_owns(s->host->plan, i))
            status = write_distant_layer(p, s, i, at, err);
        else
            status = session_on_gpu(s, i) ? write_device_layer(p, s, i, at, err)
                                          : write_layer(p, s, i, at, err);
    }
    return status;
}

pi_status session_get_layer(const pi_session *s, int layer, int64_t first, int64_t n, void *to,
                            pi_error *err) {
    payload p = {.unhashed = true, .memory = to};
    const positions at = {first, n};
    return session_on_gpu(s, layer) ? write_device_layer(&p, s, layer, at, err)
                                    : write_layer(&p, s, layer, at, err);
}

pi_status session_get_own_state(const pi_session *s, int64_t length, float *to, pi_error *err) {
    const float *state = recurrent_at(&s->state, length);
    size_t n = (size_t)s->host->plan->n_own_state;
    if (n == 0 || !state) return PI_OK;
    pi_status status = s->host->gpus->read_state(s, state, err);
    if (status == PI_OK) memcpy(to, state, n * sizeof *to);
    return status;
}

/* The state of all machines' recurrent layers after `length` >= 1 tokens: [state_bytes]. */
static pi_status get_state(const pi_session *s, int64_t length, float *to, pi_error *err) {
    pi_status status = session_get_own_state(s, length, to, err);
    if (status != PI_OK || !s->host->ranks || s->state.n_floats == 0) return status;
    return s->host->ranks->get_state(s, length, to + s->host->plan->n_own_state, err);
}

static pi_status write_state(payload *p, const pi_session *s, int64_t length, pi_error *err) {
    size_t n_bytes = (size_t)state_bytes(s);
    if (n_bytes == 0) return PI_OK;
    float *state = mem_alloc(n_bytes);
    if (!state) return error_nomem(err, n_bytes, "the state of recurrent layers");
    pi_status status = get_state(s, length, state, err);
    if (status == PI_OK) status = payload_write(p, state, n_bytes, err);
    mem_free(state);
    return status;
}

/* Writes everything after the header; the hash of the payload completes the header. */
static pi_status write_payload(payload *p, const pi_session *s, const int32_t *tokens, int64_t n,
                               uint8_t header[SESSION_HEADER_BYTES], pi_error *err) {
    pi_status status = payload_write(p, tokens, (size_t)n * sizeof *tokens, err);
    if (status == PI_OK) status = write_cache(p, s, (positions){.n = n}, err);
    if (status == PI_OK) status = write_state(p, s, n, err);
    if (status != PI_OK) return status;
    if (p->n_word) session_hash_add(&p->hash, p->word, p->n_word);
    session_shape shape = shape_of(s);
    session_header_write(header, &shape, (int32_t)n, session_hash_end(&p->hash));
    return PI_OK;
}

/* Refuses sessions that loading would refuse. */
static pi_status check_save(const pi_session *s, const int32_t *tokens, int64_t n_tokens,
                            pi_error *err) {
    pi_status status = s->host->check(s->context, "save", err);
    if (status != PI_OK) return status;
    if (n_tokens < 1 || n_tokens > s->length)
        return error_set(err, PI_ERR_RANGE,
                         "cannot save: %lld tokens: the session has %lld; give 1 or more of them",
                         (long long)n_tokens, (long long)s->length);
    if (session_rewind_point(s, n_tokens) != n_tokens)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot save: %lld tokens: recurrent layers have no snapshot there; the "
                         "nearest one before is at %lld",
                         (long long)n_tokens, (long long)session_rewind_point(s, n_tokens));
    for (int64_t i = 0; tokens && i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= s->host->model->hp.n_vocab)
            return error_set(err, PI_ERR_RANGE,
                             "cannot save: token %lld has id %d: ids of this model go from 0 to %d",
                             (long long)i, tokens[i], s->host->model->hp.n_vocab - 1);
    return PI_OK;
}

static pi_status save_to_file(const pi_session *s, file_writer *file, const int32_t *tokens,
                              int64_t n_tokens, pi_error *err) {
    payload p = {.file = file};
    uint8_t header[SESSION_HEADER_BYTES] = {0};
    pi_status status = file_writer_write(file, header, sizeof header, err);
    if (status == PI_OK) status = write_payload(&p, s, tokens, n_tokens, header, err);
    if (status == PI_OK) status = file_writer_patch(file, 0, header, sizeof header, err);
    return status;
}

pi_status session_save(const pi_session *s, const char *path, const int32_t *tokens,
                       int64_t n_tokens, pi_error *err) {
    file_writer *file;
    pi_status status = check_save(s, tokens, n_tokens, err);
    if (status == PI_OK) status = file_writer_open(path, &file, err);
    if (status != PI_OK) return status;
    status = save_to_file(s, file, tokens, n_tokens, err);
    if (status == PI_OK) return file_writer_commit(file, err);
    file_writer_abort(file);
    return status;
}

pi_status session_get_state(const pi_session *s, const int32_t *tokens, int64_t n_tokens,
                            void *data, size_t capacity, size_t *n_bytes, pi_error *err) {
    *n_bytes = 0;
    pi_status status = check_save(s, tokens, n_tokens, err);
    if (status != PI_OK) return status;
    size_t need = SESSION_HEADER_BYTES + (size_t)n_tokens * sizeof *tokens +
                  cache_bytes(s, n_tokens) +
                  (size_t)state_bytes(s); /* cannot overflow: all of it is in memory */
    *n_bytes = need;
    if (capacity < need)
        return error_set(err, PI_ERR_LIMIT,
                         "buffer too small: the session has %zu bytes: capacity %zu", need,
                         capacity);
    payload p = {.memory = (uint8_t *)data + SESSION_HEADER_BYTES};
    return write_payload(&p, s, tokens, n_tokens, data, err);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Reads the first at.n of the n_stored positions that `from` has. */
static void read_layer(pi_session *s, int layer, positions at, const uint8_t *from,
                       int64_t n_stored) {
    const kv_layer *l = &s->kv.layers[layer];
    for (int32_t i = 0; i < kv_layer_pieces(l); i++) {
        const kv_piece p = kv_layer_piece(l, i);
        const kv_row_range rows = kv_layer_rows_at(l, p.part, at.first, at.n);
        memcpy(kv_cache_row(&s->kv, layer, p.part, p.head, rows.first), from,
               (size_t)rows.n * l->row[p.part]);
        from += (size_t)kv_layer_room(l, p.part, n_stored) * l->row[p.part];
    }
}

static pi_status read_device_layer(pi_session *s, int layer, positions at, const uint8_t *from,
                                   int64_t n_stored, pi_error *err) {
    device_layer d;
    pi_status status = device_layer_alloc(&d, s, layer, at, err);
    if (status != PI_OK) return status;
    for (int32_t i = 0; i < kv_layer_pieces(d.layer); i++) {
        const kv_piece p = kv_layer_piece(d.layer, i);
        const size_t bytes = d.layer->row[p.part], n = (size_t)device_range(&d, layer, p.part).n;
        for (size_t row = 0; row < n; row++)
            memcpy(device_row(&d, p, row), from + row * bytes, bytes);
        from += (size_t)kv_layer_room(d.layer, p.part, n_stored) * bytes;
    }
    for (int part = 0; part < KV_PARTS && status == PI_OK; part++) {
        const kv_range range = device_range(&d, layer, (kv_part)part);
        status = s->host->gpus->write(s, &range, d.data[part], err);
    }
    mem_free(d.data[0]);
    return status;
}

pi_status session_put_layer(pi_session *s, int layer, int64_t first, int64_t n, const void *from,
                            int64_t n_stored, pi_error *err) {
    const positions at = {first, n};
    if (session_on_gpu(s, layer)) return read_device_layer(s, layer, at, from, n_stored, err);
    read_layer(s, layer, at, from, n_stored);
    return PI_OK;
}

static pi_status read_cache(pi_session *s, positions at, const uint8_t *from, int64_t n_stored,
                            pi_error *err) {
    const model *m = s->host->model;
    const session_ranks *ranks = s->host->ranks;
    pi_status status = PI_OK;
    for (int i = 0; i < m->hp.n_layer && status == PI_OK; i++) {
        if (s->kv.layers[i].held)
            status = session_put_layer(s, i, at.first, at.n, from, n_stored, err);
        if (status == PI_OK && ranks && kv_layer_bytes(&s->kv.layers[i], n_stored) > 0)
            status = ranks->put(s, i, at.first, at.n, from, n_stored, err);
        from += kv_layer_bytes(&s->kv.layers[i], n_stored);
    }
    return status;
}

pi_status session_end_load(pi_session *s, int64_t first, int64_t length, const float *state,
                           pi_error *err) {
    float *own = recurrent_replace(&s->state, length);
    size_t n_bytes = (size_t)s->host->plan->n_own_state * sizeof *own;
    pi_status status = PI_OK;
    if (own && state && n_bytes > 0) {
        memcpy(own, state, n_bytes);
        status = s->host->gpus->write_state(s, own, err);
    }
    session_keys_changed(s, first);
    if (status != PI_OK) recurrent_rewind(&s->state, 0);
    s->length = status == PI_OK ? length : 0;
    return status;
}

/* Ends loading on all machines; `status` is that of reading the cache. After an error the session
 * is empty. */
static pi_status end_load(pi_session *s, int64_t first, int64_t length, const float *state,
                          pi_status status, pi_error *err) {
    const session_ranks *ranks = s->host->ranks;
    if (status == PI_OK) status = session_end_load(s, first, length, state, err);
    if (status == PI_OK && ranks)
        status = ranks->put_state(s, first, length,
                                  state ? state + s->host->plan->n_own_state : NULL, err);
    if (status == PI_OK) return PI_OK;
    (void)session_end_load(s, 0, 0, NULL, NULL);
    if (ranks) (void)ranks->put_state(s, 0, 0, NULL, NULL);
    return status;
}

/* name: for messages. */
static pi_status load_bytes(pi_session *s, const uint8_t *data, size_t n_bytes, const char *name,
                            int32_t *tokens, int64_t capacity, int64_t *n_tokens, pi_error *err) {
    session_view view;
    session_shape shape = shape_of(s);
    pi_status status = session_parse(data, n_bytes, name, &shape, &view, err);
    if (status != PI_OK) return status;
    int64_t n = view.n_tokens;
    if (n > capacity) n = capacity > 0 ? capacity : 0;
    if (n > s->kv.n_ctx) n = s->kv.n_ctx;
    if (s->state.n_floats && n < view.n_tokens)
        return error_set(err, PI_ERR_LIMIT,
                         "saved session is too long: %s: %d tokens, room for %lld: recurrent "
                         "layers cannot take a part of them; use a larger context",
                         name, (int)view.n_tokens, (long long)n);
    for (int32_t i = 0; i < n; i++) tokens[i] = token_at(&view, i);
    status = read_cache(s, (positions){.n = n}, view.cache, view.n_tokens, err);
    float *state = NULL; /* aligned, unlike the file's */
    size_t n_state = (size_t)shape.state_bytes;
    if (n_state > 0 && status == PI_OK) {
        state = mem_alloc(n_state);
        if (state)
            memcpy(state, view.state, n_state);
        else
            status = error_nomem(err, n_state, "the state of recurrent layers");
    }
    status = end_load(s, 0, n, state, status, err);
    mem_free(state);
    if (s->tokens) memcpy(s->tokens, tokens, (size_t)s->length * sizeof *tokens);
    *n_tokens = s->length;
    return status;
}

pi_status session_set_state(pi_session *s, const void *data, size_t n_bytes, int32_t *tokens,
                            int64_t capacity, int64_t *n_tokens, pi_error *err) {
    pi_status status = s->host->check(s->context, "load", err);
    if (status != PI_OK) return status;
    return load_bytes(s, data, n_bytes, "session in memory", tokens, capacity, n_tokens, err);
}

pi_status session_load(pi_session *s, const char *path, int32_t *tokens, int64_t capacity,
                       int64_t *n_tokens, pi_error *err) {
    file_map map = {0};
    if (!file_exists(path))
        return error_set(err, PI_ERR_NOT_FOUND, "no such file: %s: save a session first", path);
    pi_status status = s->host->check(s->context, "load", err);
    if (status == PI_OK) status = file_map_open(&map, path, false, err);
    if (status != PI_OK) return status;
    status = load_bytes(s, map.data, map.size, path, tokens, capacity, n_tokens, err);
    file_map_close(&map);
    return status;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

size_t session_range_bytes(const pi_session *s, int64_t n_tokens) {
    return cache_bytes(s, n_tokens);
}

uint64_t session_state_id(const pi_session *s) {
    const session_shape shape = shape_of(s);
    const bool by_capacity = s->host->model->t[ROLE_ROPE_LONG].data != NULL;
    const uint64_t words[] = {shape.model,
                              shape.settings,
                              shape.type_k,
                              shape.type_v,
                              shape.token_bytes,
                              shape.state_bytes,
                              by_capacity ? (uint64_t)s->kv.n_ctx : 0};
    return session_hash_of(words, sizeof words);
}

size_t session_recurrent_bytes(const pi_session *s) {
    return (size_t)state_bytes(s);
}

pi_status session_get_range(const pi_session *s, int64_t first, int64_t n_tokens, void *data,
                            pi_error *err) {
    pi_status status = s->host->check(s->context, "save", err);
    if (status != PI_OK) return status;
    if (first < 0 || n_tokens < 0 || n_tokens > s->length - first)
        return error_set(err, PI_ERR_RANGE,
                         "cannot save: tokens %lld to %lld: the session has %lld", (long long)first,
                         (long long)(first + n_tokens), (long long)s->length);
    payload p = {.unhashed = true, .memory = data};
    return write_cache(&p, s, (positions){first, n_tokens}, err);
}

pi_status session_get_recurrent(const pi_session *s, int64_t length, void *data, pi_error *err) {
    pi_status status = s->host->check(s->context, "save", err);
    if (status == PI_OK &&
        (length < 1 || length > s->length || session_rewind_point(s, length) != length))
        status = error_set(err, PI_ERR_RANGE,
                           "cannot save: recurrent layers have no snapshot after %lld tokens",
                           (long long)length);
    if (status != PI_OK || s->state.n_floats == 0) return status;
    return get_state(s, length, data, err);
}

pi_status session_put_ranges(pi_session *s, int64_t first, const pi_session_range *ranges,
                             size_t n_ranges, const int32_t *tokens, const void *recurrent,
                             pi_error *err) {
    int64_t n = 0;
    pi_status status = s->host->check(s->context, "load", err);
    for (size_t i = 0; i < n_ranges; i++) n += ranges[i].n_tokens;
    if (n == 0 && status == PI_OK) return session_rewind(s, first, err);
    if (status == PI_OK && (first < 0 || first > s->length || n > s->kv.n_ctx - first))
        status = error_set(err, PI_ERR_RANGE,
                           "cannot load: %lld tokens after %lld: the session has %lld and room for "
                           "%lld",
                           (long long)n, (long long)first, (long long)s->length,
                           (long long)s->kv.n_ctx);
    if (status == PI_OK && s->state.n_floats && !recurrent)
        status = error_set(err, PI_ERR_ARG,
                           "cannot load: the state of recurrent layers is missing");
    if (status != PI_OK) return status;
    int64_t at = first;
    for (size_t i = 0; i < n_ranges && status == PI_OK; i++) {
        const int64_t n_range = ranges[i].n_tokens;
        status = read_cache(s, (positions){at, n_range}, ranges[i].data, n_range, err);
        at += n_range;
    }
    status = end_load(s, first, first + n, recurrent, status, err);
    if (s->tokens && status == PI_OK) memcpy(s->tokens + first, tokens, (size_t)n * sizeof *tokens);
    return status;
}
