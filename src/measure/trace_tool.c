/* trace_tool.c: public traces: the engine's recording and what reads it. */
#include "trace_tool.h"
#include "api_types.h"

pi_status pi_trace_start(pi_context *c, int32_t n_passes, pi_error *err) {
    if (n_passes != 0) return engine_trace_start(c->engine, n_passes, err);
    engine_trace_stop(c->engine);
    return PI_OK;
}

pi_status pi_trace_write(const pi_context *c, const char *path, pi_trace_summary *summaries,
                         int32_t capacity, int32_t *n_passes, pi_error *err) {
    const engine_trace *t = engine_get_trace(c->engine);
    *n_passes = t ? t->n_passes : 0;
    if (*n_passes == 0)
        return error_set(err, PI_ERR_NOT_FOUND,
                         "nothing was recorded: trace: start it before a pass");
    pi_status status = trace_write(t, path, err);
    for (int32_t i = 0; i < *n_passes && i < capacity && status == PI_OK; i++)
        status = trace_summarize(t, i, &summaries[i], err);
    return status;
}
