/* session.c: creates, frees and rewinds sessions. */
#include "session.h"

#include "mem.h"

pi_status session_init(pi_session *s, const session_host *host, int64_t n_ctx, pi_error *err) {
    s->host = host;
    pi_status status = kv_cache_create(&s->kv, host->plan, host->type_k, host->type_v, n_ctx, err);
    if (status == PI_OK) status = recurrent_create(&s->state, host->plan->n_state, err);
    return status;
}

pi_status session_renew(pi_session *s, pi_error *err) {
    const session_host *h = s->host;
    int64_t n_ctx = s->kv.n_ctx;
    recurrent_rewind(&s->state, 0);
    session_keys_changed(s, 0);
    kv_cache_free(&s->kv);
    return kv_cache_create(&s->kv, h->plan, h->type_k, h->type_v, n_ctx, err);
}

void session_free(pi_session *s) {
    mem_free(s->features.rows);
    kv_cache_free(&s->kv);
    recurrent_free(&s->state);
    mem_free(s->tokens);
    s->tokens = NULL;
}

pi_status session_rewind(pi_session *s, int64_t length, pi_error *err) {
    if (length < 0 || length > s->length)
        return error_set(err, PI_ERR_RANGE, "cannot rewind: to %lld tokens: the session has %lld",
                         (long long)length, (long long)s->length);
    int64_t point = recurrent_point(&s->state, length);
    if (point != length)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot rewind: to %lld tokens: recurrent layers have no snapshot there; "
                         "the nearest one before is at %lld",
                         (long long)length, (long long)point);
    const session_ranks *ranks = s->host->ranks;
    pi_status status = ranks ? ranks->rewind(s, length, err) : PI_OK;
    if (status != PI_OK) return status;
    recurrent_rewind(&s->state, length);
    s->length = length;
    return PI_OK;
}

int64_t session_rewind_point(const pi_session *s, int64_t length) {
    if (length < 0) length = 0;
    if (length > s->length) length = s->length;
    return recurrent_point(&s->state, length);
}

/* ---- features -------------------------------------------------------------------------------- */

size_t session_features_bytes(const plan *p, int64_t n_ctx, int64_t n_batch, int64_t *n_rows) {
    *n_rows = n_batch > SESSION_FEATURES_MIN ? n_batch : SESSION_FEATURES_MIN;
    if (*n_rows > n_ctx) *n_rows = n_ctx;
    return (size_t)(*n_rows * p->n_features) * sizeof(float);
}

pi_status session_features_create(pi_session *s, int64_t n_batch, pi_error *err) {
    session_features *f = &s->features;
    size_t n_bytes = session_features_bytes(s->host->plan, s->kv.n_ctx, n_batch, &f->n_rows);
    if (n_bytes == 0) return PI_OK;
    f->width = s->host->plan->n_features;
    f->rows = mem_alloc(n_bytes);
    return f->rows ? PI_OK : error_nomem(err, n_bytes, "features of a session");
}

void session_features_begin(pi_session *s, int64_t n_tokens) {
    session_features *f = &s->features;
    int64_t least = s->length + n_tokens - f->n_rows;
    if (f->end < s->length || f->first > s->length) f->first = s->length;
    if (f->first < least) f->first = least < s->length ? least : s->length;
    f->end = s->length;
}

void session_features_end(pi_session *s, int64_t n_tokens) {
    session_features *f = &s->features;
    f->end = s->length + n_tokens;
    if (f->first < f->end - f->n_rows) f->first = f->end - f->n_rows;
}

int64_t session_features_first(const pi_session *s) {
    const session_features *f = &s->features;
    return f->rows && f->end >= s->length && f->first < s->length ? f->first : s->length;
}
