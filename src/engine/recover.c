/* recover.c: continues with less of the GPUs. If a GPU has no memory for another cache, neurons of
 * the hot prefix move to the CPU; primary devices of layers do not change, so all caches stay.
 *
 * If a GPU is lost, or has no neurons to move, its part of every cache is lost. The weights are
 * still in the file, and sessions store their tokens, so the context creates a plan for the CPU
 * alone and evaluates the tokens of every session again. */
#include <stdio.h>

#include "context.h"
#include "log.h"
#include "mem.h"

/* ---- fewer neurons --------------------------------------------------------------------------- */

enum {
    SHARES = 16,       /* number of fractions of the neurons that are tried */
    CACHE_ALIGN = 256, /* a larger granularity is a page of the driver */
    SLACK_PIECES = 4   /* pages of the driver: free memory may be fragmented */
};

/* The largest fraction of a device's neurons, equal in all layers, with which the context takes at
 * most `room` bytes; false: none. */
static bool choose_smaller(const engine_context *c, int device, uint64_t room, plan_split *splits,
                           gpu_exec_bytes *bytes) {
    engine_options o = c->options;
    o.plan.splits = splits;
    o.plan.head = c->cpu.plan->head;
    for (int share = SHARES - 1; share >= 0; share--) {
        bool less = false;
        for (int i = 0; i < c->cpu.model->hp.n_layer; i++) {
            int64_t unit = plan_split_unit(c->cpu.model, i);
            splits[i] = c->cpu.plan->splits[i];
            int64_t *n = splits[i].device == device ? &splits[i].hot : &splits[i].helpers[device];
            *n = *n * share / SHARES / unit * unit;
            less = less || plan_split_end(&splits[i]) < plan_split_end(&c->cpu.plan->splits[i]);
        }
        if (!less) return false;
        if (engine_gpu_size(c->cpu.model, &o, device, bytes, NULL) == PI_OK &&
            bytes->weights + bytes->scratch <= room)
            return true;
    }
    return false;
}

/* Maximum bytes of the context on the device such that `need` bytes are free. */
static bool find_room(const engine_context *c, int device, uint64_t need, uint64_t *room) {
    const gpu_backend *b = c->options.gpu;
    engine_options o = c->options;
    gpu_exec_bytes now;
    uint64_t free_bytes, total;
    o.plan.splits = c->cpu.plan->splits;
    o.plan.head = c->cpu.plan->head;
    if (engine_gpu_size(c->cpu.model, &o, device, &now, NULL) != PI_OK ||
        b->memory(c->options.devices[device], &free_bytes, &total, NULL) != PI_OK)
        return false;
    uint64_t all = now.weights + now.scratch + free_bytes;
    if (b->granularity > CACHE_ALIGN) need += SLACK_PIECES * b->granularity;
    *room = all > need ? all - need : 0;
    return *room > 0;
}

pi_status context_make_gpu_room(engine_context *c, int device, uint64_t need, pi_error *err) {
    uint64_t room;
    gpu_exec_bytes bytes;
    size_t n = (size_t)c->cpu.model->hp.n_layer;
    plan_split *splits = mem_calloc(n, sizeof *splits);
    if (!splits) return error_nomem(err, n * sizeof *splits, "splits");
    pi_status status = error_set(
        err, PI_ERR_NOMEM,
        "out of GPU memory: KV cache: no neurons are left that could move to "
        "the CPU");
    if (!c->cpu.paging && find_room(c, device, need, &room) &&
        choose_smaller(c, device, room, splits, &bytes)) {
        log_line(LOG_LEVEL_WARN, "neurons move from the GPU to the CPU: too little GPU memory for "
                                 "another KV cache");
        engine_trace_stop(c);
        c->options.plan.splits = splits;
        c->options.plan.head = c->cpu.plan->head;
        context_gpus_destroy(c);
        status = context_build(c, err);
        if (status == PI_OK) status = context_gpus_create(c, err);
        if (status == PI_OK) c->gpu_kept[device] = bytes;
        c->options.plan.splits = NULL; /* the plan has a copy */
    }
    mem_free(splits);
    return status;
}

/* ---- the CPU alone --------------------------------------------------------------------------- */

pi_status context_fall_back(engine_context *c, const pi_error *why, pi_error *err) {
    /* On one of several machines the tokens of a session cannot be evaluated again. */
    for (const pi_session *s = c->sessions; s && c->stage; s = s->next)
        if (s->length > 0) return error_set(err, PI_ERR_DEVICE, "%s", why->message);
    snprintf(c->gpu_loss, sizeof c->gpu_loss, "%s", why->message);
    log_line(LOG_LEVEL_WARN, "falling back to the CPU: %s", c->gpu_loss);
    engine_trace_stop(c);
    for (pi_session *s = c->sessions; s; s = s->next) context_gpus_drop_session(c, s);
    context_gpus_destroy(c);
    c->options.plan.splits = NULL;
    pi_status status = context_build(c, err);
    const bool built = status == PI_OK;
    /* Every session gets an empty cache for all layers, also after an error of another one. */
    for (pi_session *s = c->sessions; s && built; s = s->next) {
        pi_status made = session_renew(s, status == PI_OK ? err : NULL);
        if (status == PI_OK) status = made;
    }
    for (pi_session *s = c->sessions; s; s = s->next) {
        const pi_input in = {.session = s,
                             .tokens = s->tokens,
                             .n_tokens = (int32_t)s->length,
                             .logits = PI_LOGITS_NONE};
        s->length = 0;
        if (status == PI_OK && in.n_tokens > 0) status = engine_forward(c, &in, 1, err);
    }
    if (status != PI_OK) { /* context_unusable */
        plan_free(c->cpu.plan);
        c->host.plan = c->cpu.plan = NULL;
    }
    return status;
}

pi_status context_unusable(const engine_context *c, pi_error *err) {
    return error_set(err, PI_ERR_DEVICE, "cannot fall back to the CPU: %s", c->gpu_loss);
}

const gpu_exec_bytes *engine_gpu_kept(const engine_context *c, int device) {
    const gpu_exec_bytes *kept = &c->gpu_kept[device];
    return kept->weights + kept->scratch > 0 ? kept : NULL;
}

const char *engine_gpu_loss(const engine_context *c) {
    return c->gpu_loss[0] ? c->gpu_loss : NULL;
}
