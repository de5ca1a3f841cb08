/* run_model.c: see run_model.h. */
#include "run_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rng.h"

const pi_kernels run_kernels[RUN_KERNELS] = {PI_KERNELS_SCALAR, PI_KERNELS_AVX2, PI_KERNELS_AVX512,
                                             PI_KERNELS_NEON};

pi_context_options run_exact_options(void) {
    pi_context_options o = pi_context_default_options();
    o.n_threads = 1;
    o.n_batch = 64;
    o.kernels = PI_KERNELS_SCALAR;
    o.cache_k = o.cache_v = PI_CACHE_F32;
    o.device = PI_DEVICE_CPU;
    return o;
}

run_model run_open(const char *path, const pi_context_options *options) {
    run_model r = {0};
    pi_error err;
    if (pi_model_open(path, NULL, &r.model, &err) != PI_OK) fail_msg("%s", err.message);
    if (pi_context_create(r.model, options, &r.context, &err) != PI_OK) fail_msg("%s", err.message);
    pi_model_info info;
    pi_model_get_info(r.model, &info);
    r.n_vocab = info.n_vocab;
    return r;
}

void run_close(run_model *r) {
    pi_context_destroy(r->context);
    pi_model_close(r->model);
    *r = (run_model){0};
}

pi_memory run_memory(const run_model *r) {
    pi_memory n;
    pi_context_get_memory(r->context, &n);
    return n;
}

pi_session *run_session(const run_model *r, int n_ctx) {
    pi_session *s;
    pi_error err;
    if (pi_session_create(r->context, n_ctx, &s, &err) != PI_OK) fail_msg("%s", err.message);
    return s;
}

void run_feed(const run_model *r, pi_session *s, const int32_t *tokens, int n_tokens, int piece,
              float *logits) {
    pi_error err;
    for (int done = 0; done < n_tokens;) {
        int n = piece > 0 && piece < n_tokens - done ? piece : n_tokens - done;
        pi_input in = {
            .session = s, .tokens = tokens + done, .n_tokens = n, .logits = PI_LOGITS_ALL};
        if (pi_forward(r->context, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
        assert_int_equal(pi_logits_rows(r->context), n);
        size_t row = (size_t)r->n_vocab;
        for (int i = 0; i < n; i++)
            memcpy(logits + (size_t)(done + i) * row, pi_logits(r->context, i),
                   row * sizeof(float));
        done += n;
    }
}

void run_tokens(const run_model *r, const int32_t *tokens, int n_tokens, int piece, float *logits) {
    pi_session *s = run_session(r, n_tokens);
    run_feed(r, s, tokens, n_tokens, piece, logits);
    assert_int_equal(pi_session_length(s), n_tokens);
    pi_session_destroy(s);
}

double run_nmse(const float *a, const float *b, int64_t n) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        error += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return error / norm; /* NaN when anything is: no bound accepts it */
}

bool run_has_kernels(const char *path, pi_kernels kernels) {
    pi_context_options o = run_exact_options();
    o.kernels = kernels;
    pi_model *m;
    pi_context *c;
    pi_error err;
    if (pi_model_open(path, NULL, &m, &err) != PI_OK) fail_msg("%s", err.message);
    pi_status status = pi_context_create(m, &o, &c, &err);
    if (status != PI_OK) run_check_message(&err, PI_ERR_UNSUPPORTED);
    pi_context_destroy(c);
    pi_model_close(m);
    return status == PI_OK;
}

void run_random_tokens(uint64_t seed, int n_vocab, int32_t *tokens, int n_tokens) {
    rng random;
    rng_seed(&random, seed);
    for (int i = 0; i < n_tokens; i++) tokens[i] = (int32_t)(rng_u64(&random) % (uint64_t)n_vocab);
}

void run_check_message(const pi_error *err, pi_status status) {
    if (err->status != status)
        fail_msg("%s instead of %s: %s", pi_status_name(err->status), pi_status_name(status),
                 err->message);
    const char *first = strstr(err->message, ": ");
    if (!first || !strstr(first + 2, ": "))
        fail_msg("not of the form \"what: where: what to do\": %s", err->message);
    assert_null(strchr(err->message, '\n'));
}
