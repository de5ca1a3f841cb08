/* gpu_trace.h: stamps of a GPU's clock around its steps. */
#ifndef EXEC_GPU_TRACE_H
#define EXEC_GPU_TRACE_H

#include "gpu_exec.h"
#include "trace.h"

int gpu_exec_marks_capacity(const gpu_exec *g); /* steps that a ubatch may have */
pi_status gpu_exec_marks_create(gpu_exec *g, pi_error *err);
void gpu_exec_marks_destroy(gpu_exec *g); /* does nothing where there are no marks */
/* Marks the ubatch that begins; the stream is idle. Raises t->clock_error if the clocks could not
 * be compared as exactly. */
void gpu_exec_marks_begin(gpu_exec *g, engine_trace *t);
/* Puts the steps of the ubatch into the device's row of t; NULL: drops them. */
void gpu_exec_marks_end(gpu_exec *g, engine_trace *t);

#endif
