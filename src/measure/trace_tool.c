/* trace_tool.c: public traces: recording by the engine, and its readers. */
#include "trace_tool.h"
#include "api_types.h"

pi_status pi_trace_start(pi_context *c, int32_t n_ubatches, pi_error *err) {
    if (n_ubatches != 0) return engine_trace_start(c->engine, n_ubatches, err);
    engine_trace_stop(c->engine);
    return PI_OK;
}

pi_status pi_trace_write(const pi_context *c, const char *path, pi_trace_summary *summaries,
                         int32_t capacity, int32_t *n_ubatches, pi_error *err) {
    const engine_trace *t = engine_get_trace(c->engine);
    *n_ubatches = t ? t->n_ubatches : 0;
    if (*n_ubatches == 0)
        return error_set(err, PI_ERR_NOT_FOUND,
                         "no trace was recorded: trace: start it before a forward call");
    pi_status status = trace_write(t, path, err);
    for (int32_t i = 0; i < *n_ubatches && i < capacity && status == PI_OK; i++)
        status = trace_summarize(t, i, &summaries[i], err);
    return status;
}
