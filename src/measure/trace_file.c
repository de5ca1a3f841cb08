/* trace_file.c: a trace as Chrome trace events: complete events ("X") in microseconds since the
 * first ubatch began, a process per device, a row per thread, and a row for the ubatches
 * themselves. */
#include <math.h>
#include <stdio.h>

#include "cpu_features.h"
#include "file.h"
#include "json_writer.h"
#include "trace_tool.h"

/* Numbers of the processes in the file. */
enum { ROW_UBATCHES, ROW_CPU, ROW_GPU };

/* Whole nanoseconds, so that nested events stay nested in the file. */
static double nanoseconds(const engine_trace *t, double seconds) {
    return round((seconds - t->ubatches[0].start) * 1e9);
}

static void put_name(json_writer *w, const char *kind, int process, int thread, const char *name) {
    json_put_object(w, NULL);
    json_put_text(w, "name", kind);
    json_put_text(w, "ph", "M");
    json_put_int(w, "pid", process);
    json_put_int(w, "tid", thread);
    json_put_object(w, "args");
    json_put_text(w, "name", name);
    json_end_object(w);
    json_end_object(w);
}

static void put_names(json_writer *w, const engine_trace *t) {
    put_name(w, "process_name", ROW_UBATCHES, 0, "ubatches");
    put_name(w, "process_name", ROW_CPU, 0, cpu_model_name());
    for (int i = 0; i < t->n_threads; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread %d", i);
        put_name(w, "thread_name", ROW_CPU, i, name);
    }
    if (t->n_gpus > 0) put_name(w, "process_name", ROW_GPU, 0, "GPU");
    for (int i = 0; i < t->n_gpus; i++) {
        char name[32] = "stream";
        if (t->n_gpus > 1) snprintf(name, sizeof name, "stream of GPU %d", i);
        put_name(w, "thread_name", ROW_GPU, i, name);
    }
}

/* Leaves its object open for "args". */
static void begin_event(json_writer *w, const engine_trace *t, const char *name, int process,
                        int thread, double start, double end) {
    double from = nanoseconds(t, start), to = nanoseconds(t, end);
    json_put_object(w, NULL);
    json_put_text(w, "name", name);
    json_put_text(w, "ph", "X");
    json_put_int(w, "pid", process);
    json_put_int(w, "tid", thread);
    json_put_number(w, "ts", from / 1e3);
    json_put_number(w, "dur", (to - from) / 1e3);
    json_put_object(w, "args");
}

static void end_event(json_writer *w) {
    json_end_object(w);
    json_end_object(w);
}

static const char *event_name(const trace_event *e, const plan_step *s) {
    if (e->kind == TRACE_WAIT) return "wait for the GPU";
    if (e->kind == TRACE_STREAM) return "cold neurons";
    return plan_op_name(s->op);
}

static void put_row(json_writer *w, const engine_trace *t, int row) {
    bool gpu = row >= t->n_threads;
    const plan_step *steps = gpu ? t->plan->gpu_steps : t->plan->steps;
    for (int i = 0; i < t->rows[row].n; i++) {
        const trace_event *e = &t->rows[row].events[i];
        const plan_step *s = &steps[e->step];
        begin_event(w, t, event_name(e, s), gpu ? ROW_GPU : ROW_CPU, gpu ? row - t->n_threads : row,
                    e->start, e->end);
        json_put_int(w, "layer", s->layer);
        json_put_int(w, "bytes", (int64_t)e->bytes);
        end_event(w);
    }
}

static void put_ubatches(json_writer *w, const engine_trace *t) {
    for (int i = 0; i < t->n_ubatches; i++) {
        const trace_ubatch *p = &t->ubatches[i];
        begin_event(w, t, p->n_tokens == 1 ? "token" : "prompt", ROW_UBATCHES, 0, p->start, p->end);
        json_put_int(w, "tokens", p->n_tokens);
        end_event(w);
    }
}

static bool write_piece(void *user, const char *data, size_t n_bytes) {
    return file_writer_write(user, data, n_bytes, NULL) == PI_OK;
}

/* False: writing failed. */
static bool put_all(const engine_trace *t, file_writer *file) {
    json_writer w;
    json_begin_into(&w, write_piece, file, false);
    json_put_object(&w, NULL);
    json_put_text(&w, "displayTimeUnit", "ns");
    json_put_object(&w, "otherData");
    json_put_number(&w, "clock_error_us", t->clock_error * 1e6);
    json_end_object(&w);
    json_put_array(&w, "traceEvents");
    put_names(&w, t);
    put_ubatches(&w, t);
    for (int row = 0; row < t->n_threads + t->n_gpus; row++) put_row(&w, t, row);
    json_end_array(&w);
    json_end_object(&w);
    return !w.failed;
}

pi_status trace_write(const engine_trace *t, const char *path, pi_error *err) {
    file_writer *w;
    pi_status status = file_writer_open(path, &w, err);
    if (status != PI_OK) return status;
    if (put_all(t, w)) return file_writer_commit(w, err);
    file_writer_abort(w);
    return error_set(err, PI_ERR_IO, "cannot write file: %s: is the disk full?", path);
}
