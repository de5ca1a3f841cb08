/* context_session.c: the sessions of a context: memory on the host and on the GPUs. Layers whose
 * primary device is a GPU have their KV cache and recurrent states there. */
#include "mem.h"
#include "stage.h"

/* ---- parts of sessions on GPUs --------------------------------------------------------------- */

/* Also called if the GPU executors could not be created again. */
void context_gpus_drop_session(const engine_context *c, pi_session *s) {
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) {
        if (s->device_kv[i]) c->options.gpu->free(c->options.devices[i], s->device_kv[i]);
        s->device_kv[i] = NULL;
    }
}

static pi_status read_rows(const pi_session *s, const kv_range *r, void *rows, pi_error *err) {
    gpu_exec *g = context_gpu(s->context, r->layer);
    return gpu_exec_kv_read(g, s, r->layer, r->part, r->first, r->n, rows, err);
}

static pi_status write_rows(pi_session *s, const kv_range *r, const void *rows, pi_error *err) {
    gpu_exec *g = context_gpu(s->context, r->layer);
    return gpu_exec_kv_write(g, s, r->layer, r->part, r->first, r->n, rows, err);
}

static pi_status copy_rows(pi_session *to, const pi_session *from, int64_t n, pi_error *err) {
    const engine_context *c = to->context;
    pi_status status = PI_OK;
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++)
        if (c->gpu.gpus[i]) status = gpu_exec_kv_copy(c->gpu.gpus[i], to, from, n, err);
    return status;
}

static pi_status read_state(const pi_session *s, const float *floats, pi_error *err) {
    const engine_context *c = s->context;
    pi_status status = PI_OK;
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++)
        if (c->gpu.gpus[i]) status = gpu_exec_state_read(c->gpu.gpus[i], s, floats, err);
    return status;
}

static pi_status write_state(const pi_session *s, const float *floats, pi_error *err) {
    const engine_context *c = s->context;
    pi_status status = PI_OK;
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++)
        if (c->gpu.gpus[i]) status = gpu_exec_state_write(c->gpu.gpus[i], s, floats, err);
    return status;
}

const session_gpus context_session_gpus = {.read = read_rows,
                                           .write = write_rows,
                                           .copy = copy_rows,
                                           .read_state = read_state,
                                           .write_state = write_state};

/* Creates the session's part on every GPU. If a GPU lacks memory, neurons move from it to the CPU;
 * if that is not enough, the context falls back to the CPU. */
static pi_status add_gpu_parts(engine_context *c, pi_session *s, pi_error *err) {
    size_t n_bytes = (size_t)s->kv.n_ctx * sizeof *s->tokens;
    s->tokens = mem_alloc(n_bytes);
    if (!s->tokens) return error_nomem(err, n_bytes, "session");
    pi_status status = PI_OK;
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++) {
        if (!c->gpu.gpus[i]) continue;
        status = gpu_exec_kv_create(c->gpu.gpus[i], s->kv.n_ctx, &s->device_kv[i], err);
        if (status != PI_ERR_NOMEM) continue;
        uint64_t need = gpu_exec_kv_bytes(c->gpu.gpus[i], s->kv.n_ctx);
        status = context_make_gpu_room(c, i, need, err);
        if (status == PI_OK)
            status = gpu_exec_kv_create(c->gpu.gpus[i], s->kv.n_ctx, &s->device_kv[i], err);
    }
    if (status == PI_OK) return PI_OK;
    pi_error why = {.status = PI_OK};
    if (err) why = *err;
    context_gpus_drop_session(c, s);
    status = context_fall_back(c, &why, err);
    return status == PI_OK ? session_renew(s, err) : status;
}

/* ---- creating and destroying ----------------------------------------------------------------- */

static void free_session(pi_session *s) {
    session_free(s);
    block_scores_free(&s->blocks);
    key_bounds_free(&s->bounds);
    mem_free(s);
}

pi_status engine_session_create(engine_context *c, int64_t n_ctx, pi_session **out, pi_error *err) {
    *out = NULL;
    if (n_ctx < 1 || n_ctx > INT32_MAX)
        return error_set(err, PI_ERR_ARG, "bad context size: %lld tokens: use 1 or more",
                         (long long)n_ctx);
    if (c->cpu.model->hp.n_pos && n_ctx > c->cpu.model->hp.n_pos)
        return error_set(
            err, PI_ERR_LIMIT,
            "context too long: %lld tokens: %s has %d learned positions; use a smaller context",
            (long long)n_ctx, gguf_path(c->cpu.model->file), c->cpu.model->hp.n_pos);
    if (!c->cpu.plan) return context_unusable(c, err);
    pi_status status = context_check_process(c, "session", err);
    if (status != PI_OK) return status;
    pi_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "session");
    s->context = c;
    status = session_init(s, &c->host, n_ctx, err);
    if (status == PI_OK)
        status = block_scores_create(&s->blocks, &c->cpu.model->hp, c->options.plan.attn_blocks,
                                     c->n_batch, n_ctx, err);
    if (status == PI_OK)
        status = key_bounds_create(&s->bounds, c->cpu.model, c->options.plan.attn_blocks, n_ctx,
                                   err);
    if (status == PI_OK) status = session_features_create(s, c->n_batch, err);
    if (status == PI_OK && c->gpu.n_gpus > 0) status = add_gpu_parts(c, s, err);
    if (status == PI_OK && c->stage) status = stage_session_create(c, s, err);
    if (status != PI_OK) {
        context_gpus_drop_session(c, s);
        free_session(s);
        return status;
    }
    s->next = c->sessions;
    c->sessions = s;
    *out = s;
    return PI_OK;
}

void engine_session_destroy(pi_session *s) {
    if (!s) return;
    if (s->context->stage) stage_session_destroy(s);
    pi_session **link = &s->context->sessions;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    if (engine_has_threads(s->context)) context_gpus_drop_session(s->context, s);
    free_session(s);
}
