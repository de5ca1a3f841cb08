/* gpu_trace.c: when the GPU ran which step: stamps of the device's clock between the steps of a
 * pass that is traced. They are operations, so that such a pass is a recorded program as well and
 * takes as long as others, but for a small kernel per step.
 *
 * The device's clock is set to the host's at the start of each pass: a stamp is enqueued to the
 * idle stream and polled for. It was made between the look at the clock before and the one after;
 * of several tries the shortest tells best. */
#include "clock.h"
#include "gpu_exec_impl.h"
#include "mem.h"
#include "trace_impl.h"

enum {
    ANCHORS = 8,       /* tries */
    ANCHOR_SECONDS = 1 /* for one: a device that takes longer is lost */
};

/* A step lies between two stamps, by number. */
typedef struct marked_step {
    int step, from, to;
    trace_kind kind;
} marked_step;

struct hybrid_marks {
    bool on;
    gpu_pinned stamps;  /* uint64_t [max_stamps], then one for anchors */
    marked_step *steps; /* [max_stamps] */
    int n_stamps, max_stamps, n_steps;
    hybrid_programs programs;
    uint64_t anchor; /* the device's clock and the host's at one moment */
    double anchor_time;
};

int hybrid_marks_capacity(const hybrid *h) {
    return h->plan->n_gpu_steps + h->n_batch;
}

pi_status hybrid_marks_create(hybrid *h, pi_error *err) {
    hybrid_marks *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(err, sizeof *m, "stamps of a trace");
    h->marks = m;
    m->max_stamps = 2 * hybrid_marks_capacity(h);
    size_t n = (size_t)m->max_stamps;
    m->steps = mem_calloc(n, sizeof *m->steps);
    if (!m->steps) return error_nomem(err, n * sizeof *m->steps, "stamps of a trace");
    return h->b->host_alloc(h->d, (n + 1) * sizeof(uint64_t), &m->stamps, err);
}

void hybrid_marks_destroy(hybrid *h) {
    hybrid_marks *m = h->marks;
    if (!m) return;
    hybrid_programs_free(h, &m->programs);
    h->b->host_free(h->d, &m->stamps);
    mem_free(m->steps);
    mem_free(m);
    h->marks = NULL;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static void stamp(hybrid *h, int i) {
    const gpu_stamp a = {.ns = (uint64_t *)h->marks->stamps.device + i};
    h->b->ops.stamp(h->stream, &a);
}

static uint64_t stamped(const hybrid_marks *m, int i) {
    return gpu_flag_get((const uint64_t *)m->stamps.host + i);
}

void hybrid_marks_begin(hybrid *h, engine_trace *t) {
    hybrid_marks *m = h->marks;
    double best = ANCHOR_SECONDS;
    for (int i = 0; i < ANCHORS; i++) {
        gpu_flag_raise((uint64_t *)m->stamps.host + m->max_stamps, 0);
        double before = clock_seconds();
        stamp(h, m->max_stamps);
        while (!stamped(m, m->max_stamps) && clock_seconds() - before < ANCHOR_SECONDS &&
               h->b->status(h->d, NULL) == PI_OK)
            continue;
        double after = clock_seconds(); /* a look that saw the stamp came before */
        if (after - before >= best) continue;
        best = after - before;
        m->anchor = stamped(m, m->max_stamps);
        m->anchor_time = (before + after) / 2;
    }
    if (best / 2 > t->clock_error) t->clock_error = best / 2;
    m->n_stamps = m->n_steps = 0;
    m->on = true;
}

bool hybrid_is_marked(const hybrid *h) {
    return h->marks && h->marks->on;
}

hybrid_programs *hybrid_marked_programs(hybrid *h) {
    return &h->marks->programs;
}

/* A pass that has more steps than there are stamps for stays without the last ones. */
static void record(hybrid *h) {
    hybrid_marks *m = h->marks;
    if (m->n_stamps < m->max_stamps) stamp(h, m->n_stamps);
    m->n_stamps++;
}

/* The step lies between the two stamps made last. */
static void note(hybrid_marks *m, int step, bool streamed) {
    if (m->n_stamps > m->max_stamps) return;
    m->steps[m->n_steps++] = (marked_step){.step = step,
                                           .from = m->n_stamps - 2,
                                           .to = m->n_stamps - 1,
                                           .kind = streamed ? TRACE_STREAM : TRACE_STEP};
}

void hybrid_mark_start(hybrid *h) {
    if (hybrid_is_marked(h)) record(h);
}

void hybrid_mark_step(hybrid *h, int step, bool streamed) {
    if (!hybrid_is_marked(h)) return;
    record(h);
    note(h->marks, step, streamed);
}

void hybrid_mark_program(hybrid *h, int n) {
    if (!hybrid_is_marked(h)) return;
    hybrid_marks *m = h->marks;
    m->n_steps = 0;
    m->n_stamps = 1;
    for (int i = 0; i < n; i++) {
        m->n_stamps++;
        note(m, i, false);
    }
}

static uint64_t bytes_of(const hybrid *h, const marked_step *s) {
    uint64_t sum = 0;
    if (s->kind != TRACE_STREAM) return hybrid_step_bytes(h, s->step);
    for (int i = 0; i < h->plan->n_steps; i++) {
        const plan_step *cold = &h->plan->steps[i];
        if (cold->cold && cold->layer == h->plan->gpu_steps[s->step].layer)
            sum += cold->weight_bytes;
    }
    return sum;
}

/* On the host's clock. */
static double seconds_of(const hybrid_marks *m, int i) {
    const double ns = 1e-9;
    return m->anchor_time + ns * (double)(int64_t)(stamped(m, i) - m->anchor);
}

void hybrid_marks_end(hybrid *h, engine_trace *t) {
    hybrid_marks *m = h->marks;
    m->on = false;
    for (int i = 0; i < m->n_steps && t; i++) {
        const marked_step *s = &m->steps[i];
        const trace_event e = {.step = s->step,
                               .kind = s->kind,
                               .start = seconds_of(m, s->from),
                               .end = seconds_of(m, s->to),
                               .bytes = bytes_of(h, s)};
        trace_put(t, t->n_threads, &e);
    }
}
