/* context_gpus.c: what a context does with all of its GPUs. */
#include "context.h"

pi_status context_gpus_create(engine_context *c, pi_error *err) {
    pi_status status = PI_OK;
    if (c->plan->n_gpu_steps == 0) return PI_OK;
    c->n_gpus = c->plan->n_devices;
    for (int i = 0; i < c->n_gpus && status == PI_OK; i++) {
        plan part;
        plan_of_device(c->plan, i, &part);
        if (part.n_gpu_steps > 0) status = gpu_exec_create(c, i, &c->gpus[i], err);
    }
    return status;
}

void context_gpus_destroy(engine_context *c) {
    for (int i = 0; i < c->n_gpus; i++) {
        gpu_exec_destroy(c->gpus[i]);
        c->gpus[i] = NULL;
    }
    c->n_gpus = 0;
}

/* All programs are recorded before one is launched, which waits for the CPU: recording takes device
 * memory, for which a driver may wait in turn. */
void context_gpus_begin(engine_context *c) {
    for (int i = 0; i < c->n_gpus && c->n_gpus > 1; i++)
        if (c->gpus[i]) gpu_exec_record(c->gpus[i], c);
    for (int i = 0; i < c->n_gpus; i++)
        if (c->gpus[i]) gpu_exec_begin(c->gpus[i], c);
}

pi_status context_gpus_end(engine_context *c, bool failed, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < c->n_gpus; i++) {
        if (!c->gpus[i]) continue;
        /* Behind a stage that has failed the next one waits for nothing. */
        bool over = failed || status != PI_OK;
        pi_status one = gpu_exec_end(c->gpus[i], c, over, status == PI_OK ? err : NULL);
        if (status == PI_OK) status = one;
    }
    return status;
}

bool context_gpus_are_alive(const engine_context *c) {
    for (int i = 0; i < c->n_gpus; i++)
        if (c->gpus[i] && !gpu_exec_is_alive(c->gpus[i])) return false;
    return true;
}

/* ---- sessions -------------------------------------------------------------------------------- */

pi_status context_gpus_add_session(engine_context *c, engine_session *s, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < c->n_gpus && status == PI_OK; i++) {
        if (!c->gpus[i]) continue;
        status = gpu_exec_kv_create(c->gpus[i], s->kv.n_ctx, &s->device_kv[i], err);
        if (status != PI_ERR_NOMEM) continue;
        uint64_t need = gpu_exec_kv_bytes(c->gpus[i], s->kv.n_ctx);
        status = context_shrink_gpu(c, i, need, err);
        if (status == PI_OK)
            status = gpu_exec_kv_create(c->gpus[i], s->kv.n_ctx, &s->device_kv[i], err);
    }
    return status;
}

/* Also where the GPUs' sides could not be made again. */
void context_gpus_drop_session(const engine_context *c, engine_session *s) {
    for (int i = 0; i < PLAN_MAX_DEVICES; i++) {
        if (s->device_kv[i]) c->options.gpu->free(c->options.devices[i], s->device_kv[i]);
        s->device_kv[i] = NULL;
    }
}

pi_status context_gpus_copy(engine_session *to, const engine_session *from, int64_t n,
                            pi_error *err) {
    const engine_context *c = to->context;
    pi_status status = PI_OK;
    for (int i = 0; i < c->n_gpus && status == PI_OK; i++)
        if (c->gpus[i]) status = gpu_exec_kv_copy(c->gpus[i], to, from, n, err);
    return status;
}

pi_status context_gpus_read_state(const engine_session *s, const float *floats, pi_error *err) {
    const engine_context *c = s->context;
    pi_status status = PI_OK;
    for (int i = 0; i < c->n_gpus && status == PI_OK; i++)
        if (c->gpus[i]) status = gpu_exec_state_read(c->gpus[i], s, floats, err);
    return status;
}

pi_status context_gpus_write_state(const engine_session *s, const float *floats, pi_error *err) {
    const engine_context *c = s->context;
    pi_status status = PI_OK;
    for (int i = 0; i < c->n_gpus && status == PI_OK; i++)
        if (c->gpus[i]) status = gpu_exec_state_write(c->gpus[i], s, floats, err);
    return status;
}
