/* run_engine.c: see run_engine.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan_support.h"
#include "run_engine.h"

model *run_engine_open(const char *path) {
    model *m;
    pi_error err;
    if (model_open(path, NULL, &m, &err)) fail_msg("%s", err.message);
    return m;
}

model *run_engine_open_tiny(const tiny_model *t, const char *path) {
    tiny_write(t, path);
    return run_engine_open(path);
}

engine_options run_engine_options(pi_mode mode, int n_batch, int n_logits) {
    return (engine_options){.n_threads = 2,
                            .n_threads_batch = 2,
                            .n_batch = n_batch,
                            .n_logits = n_logits,
                            .tier = CPU_TIER_AUTO,
                            .type_k = QUANT_F16,
                            .type_v = QUANT_F16,
                            .plan = {.mode = mode, .max_loss = 1}};
}

engine_context *run_engine_context(const model *m, const engine_options *o) {
    engine_context *c;
    pi_error err;
    if (engine_context_create(m, o, &c, &err)) fail_msg("%s", err.message);
    return c;
}

pi_session *run_engine_session(engine_context *c, int n_ctx) {
    pi_session *s;
    pi_error err;
    if (engine_session_create(c, n_ctx, &s, &err)) fail_msg("%s", err.message);
    return s;
}

void run_engine_check_size(const model *m, const engine_options *o, const gpu_library *library,
                           gpu_device *device, int n_ctx) {
    gpu_exec_bytes bytes;
    uint64_t before, after, total;
    pi_error err;
    if (engine_gpu_size(m, o, 0, &bytes, &err)) fail_msg("%s", err.message);
    engine_context *c = run_engine_context(m, o);
    if (library->backend->memory(device, &before, &total, &err)) fail_msg("%s", err.message);
    pi_session *s = run_engine_session(c, n_ctx);
    if (library->backend->memory(device, &after, &total, &err)) fail_msg("%s", err.message);
    const uint64_t unit = library->backend->granularity; /* of the cache, and of the state */
    const uint64_t want = bytes.kv_per_position * (uint64_t)n_ctx + bytes.state;
    assert_in_range(before - after, want, want + 2 * unit);
    engine_session_destroy(s);
    engine_context_destroy(c);
}

bool run_engine_keep(const model *m, gpu_supports *supports, pi_mode mode, plan_split *splits,
                     plan_side *head) {
    const plan_options o = {.mode = mode, .supports = supports};
    plan_support s;
    pi_error err;
    if (plan_support_create(m, &o, &s, &err)) fail_msg("%s", err.message);
    const bool any = s.stays;
    for (int i = 0; any && i < m->hp.n_layer; i++) {
        if (s.stays[i] & PLAN_STAY_ALWAYS) splits[i].primary = SIDE_CPU;
        if (!(s.stays[i] & PLAN_STAY_NEURONS)) continue;
        splits[i].hot = 0;
        memset(splits[i].helpers, 0, sizeof splits[i].helpers);
    }
    if (any && s.stays[m->hp.n_layer]) *head = SIDE_CPU;
    plan_support_free(&s);
    return any;
}

void run_engine_forward(engine_context *c, const pi_input *in, int n) {
    pi_error err;
    if (engine_forward(c, in, n, &err)) fail_msg("%s", err.message);
}

void run_engine_feed(engine_context *c, pi_session *s, const int32_t *tokens, int n_tokens,
                     int piece, float *logits) {
    const size_t n_vocab = (size_t)engine_plan(c)->model->hp.n_vocab;
    for (int done = 0, n; done < n_tokens; done += n) {
        n = piece && piece < n_tokens - done ? piece : n_tokens - done;
        const pi_input in = {
            .session = s, .tokens = tokens + done, .n_tokens = n, .logits = PI_LOGITS_ALL};
        run_engine_forward(c, &in, 1);
        for (int i = 0; logits && i < n; i++, logits += n_vocab)
            memcpy(logits, engine_logits(c, i), n_vocab * sizeof *logits);
    }
}

void run_engine_tokens(engine_context *c, int n_ctx, const int32_t *tokens, int n_tokens, int piece,
                       float *logits) {
    pi_session *s = run_engine_session(c, n_ctx);
    run_engine_feed(c, s, tokens, n_tokens, piece, logits);
    engine_session_destroy(s);
}
