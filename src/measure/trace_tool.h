/* trace_tool.h: files and summaries of the engine's traces. */
#ifndef MEASURE_TRACE_TOOL_H
#define MEASURE_TRACE_TOOL_H

#include "powerinfer_tools.h"
#include "trace.h"

/* Chrome trace events; the file appears complete or not at all. PI_ERR_IO, PI_ERR_NOMEM. */
pi_status trace_write(const engine_trace *t, const char *path, pi_error *err);
/* Summary of one ubatch. PI_ERR_NOMEM. */
pi_status trace_summarize(const engine_trace *t, int ubatch, pi_trace_summary *out, pi_error *err);

#endif
