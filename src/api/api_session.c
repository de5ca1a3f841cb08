/* api_session.c: the public functions of sessions. A pi_session is the engine's session. */
#include "api_types.h"
#include "powerinfer_speculate.h"

pi_status pi_session_create(pi_context *c, int32_t n_ctx, pi_session **out, pi_error *err) {
    *out = NULL;
    return engine_session_create(c->engine, n_ctx, out, err);
}
void pi_session_destroy(pi_session *s) {
    engine_session_destroy(s);
}
int32_t pi_session_length(const pi_session *s) {
    return (int32_t)session_length(s);
}
int32_t pi_session_capacity(const pi_session *s) {
    return (int32_t)session_capacity(s);
}

const float *pi_session_features(const pi_session *s, int32_t position) {
    const session_features *f = &s->features;
    bool kept = f->rows && position >= f->first && position < f->end;
    return kept ? session_features_row(s, position) : NULL;
}
int32_t pi_session_features_first(const pi_session *s) {
    return (int32_t)session_features_first(s);
}

pi_status pi_session_rewind(pi_session *s, int32_t length, pi_error *err) {
    return session_rewind(s, length, err);
}
int32_t pi_session_rewind_point(const pi_session *s, int32_t length) {
    return (int32_t)session_rewind_point(s, length);
}
pi_status pi_session_remove(pi_session *s, int32_t first, int32_t end, pi_error *err) {
    return session_remove(s, first, end, err);
}
pi_status pi_session_copy(pi_session *to, const pi_session *from, int32_t length, pi_error *err) {
    return session_copy(to, from, length, err);
}

pi_status pi_session_save(const pi_session *s, const char *path, const int32_t *tokens,
                          int32_t n_tokens, pi_error *err) {
    return session_save(s, path, tokens, n_tokens, err);
}

pi_status pi_session_load(pi_session *s, const char *path, int32_t *tokens, int32_t capacity,
                          int32_t *n_tokens, pi_error *err) {
    int64_t n = 0;
    *n_tokens = 0;
    pi_status status = session_load(s, path, tokens, capacity, &n, err);
    if (status == PI_OK) *n_tokens = (int32_t)n;
    return status;
}

pi_status pi_session_get_state(const pi_session *s, const int32_t *tokens, int32_t n_tokens,
                               void *data, size_t capacity, size_t *n_bytes, pi_error *err) {
    return session_get_state(s, tokens, n_tokens, data, capacity, n_bytes, err);
}

pi_status pi_session_set_state(pi_session *s, const void *data, size_t n_bytes, int32_t *tokens,
                               int32_t capacity, int32_t *n_tokens, pi_error *err) {
    int64_t n = 0;
    *n_tokens = 0;
    pi_status status = session_set_state(s, data, n_bytes, tokens, capacity, &n, err);
    if (status == PI_OK) *n_tokens = (int32_t)n;
    return status;
}

size_t pi_session_range_bytes(const pi_session *s, int32_t n_tokens) {
    return session_range_bytes(s, n_tokens);
}
uint64_t pi_session_state_id(const pi_session *s) {
    return session_state_id(s);
}
size_t pi_session_recurrent_bytes(const pi_session *s) {
    return session_recurrent_bytes(s);
}
pi_status pi_session_get_range(const pi_session *s, int32_t first, int32_t n_tokens, void *data,
                               pi_error *err) {
    return session_get_range(s, first, n_tokens, data, err);
}
pi_status pi_session_get_recurrent(const pi_session *s, int32_t length, void *data, pi_error *err) {
    return session_get_recurrent(s, length, data, err);
}
pi_status pi_session_put_ranges(pi_session *s, int32_t first, const pi_session_range *ranges,
                                size_t n_ranges, const int32_t *tokens, const void *recurrent,
                                pi_error *err) {
    return session_put_ranges(s, first, ranges, n_ranges, tokens, recurrent, err);
}
