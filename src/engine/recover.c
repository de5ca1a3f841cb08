/* recover.c: falling back to the CPU. A device that is lost, or has no memory for another cache,
 * takes its part of every cache with it; weights are still in the file, and sessions remember their
 * tokens. So the context makes a plan for the CPU alone and evaluates every session's tokens again.
 */
#include <stdio.h>

#include "context.h"
#include "log.h"

/* The GPU is gone from every session, and each has an empty cache for all layers. */
static pi_status empty_sessions(engine_context *c, pi_error *err) {
    pi_status status = PI_OK;
    for (engine_session *s = c->sessions; s; s = s->next) {
        int64_t n_ctx = s->kv.n_ctx;
        s->device_kv = NULL;
        kv_cache_free(&s->kv);
        pi_status made = kv_cache_create(&s->kv, c->plan, c->type_k, c->type_v, n_ctx,
                                         status == PI_OK ? err : NULL);
        if (status == PI_OK) status = made;
    }
    return status;
}

static pi_status feed_again(engine_session *s, pi_error *err) {
    const pi_input in = {.session = s,
                         .tokens = s->tokens,
                         .n_tokens = (int32_t)s->length,
                         .logits = PI_LOGITS_NONE};
    if (s->length == 0) return PI_OK;
    s->length = 0;
    pi_status status = context_forward(s->context, &in, 1, err);
    if (status == PI_OK) s->length = in.n_tokens;
    return status;
}

pi_status context_leave_gpu(engine_context *c, const pi_error *why, pi_error *err) {
    snprintf(c->gpu_loss, sizeof c->gpu_loss, "%s", why->message);
    log_line(LOG_LEVEL_WARN, "falling back to the CPU: %s", c->gpu_loss);
    engine_trace_stop(c);
    for (engine_session *s = c->sessions; s; s = s->next) gpu_exec_kv_destroy(c->gpu, s->device_kv);
    gpu_exec_destroy(c->gpu);
    adapt_free(c->adapter);
    c->gpu = NULL;
    c->adapter = NULL;
    c->options.plan.cuts = NULL;
    pi_status status = context_build(c, err);
    if (status == PI_OK) status = empty_sessions(c, err);
    for (engine_session *s = c->sessions; s; s = s->next) {
        if (status == PI_OK) status = feed_again(s, err);
        if (status != PI_OK) s->length = 0;
    }
    if (status != PI_OK) {
        plan_free(c->plan);
        c->plan = NULL;
    }
    return status;
}

pi_status context_unusable(const engine_context *c, pi_error *err) {
    return error_set(err, PI_ERR_DEVICE, "cannot fall back to the CPU: %s", c->gpu_loss);
}

const char *engine_gpu_loss(const engine_context *c) {
    return c->gpu_loss[0] ? c->gpu_loss : NULL;
}
