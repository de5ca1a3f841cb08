/* hybrid_trace.c: when the GPU ran which step: events of the device, recorded between steps of a
 * pass that is traced.
 *
 * The device's clock is set to the host's at the start of each pass: an event is recorded on the
 * idle stream and polled for. It happened between the look at the clock before and the one after;
 * of several tries the shortest tells best. */
#include "clock.h"
#include "hybrid_impl.h"
#include "mem.h"
#include "trace_impl.h"

enum { ANCHORS = 8 }; /* tries */

/* A step lies between two events, by number. */
typedef struct marked_step {
    int step, from, to;
    trace_kind kind;
} marked_step;

struct hybrid_marks {
    bool on;
    gpu_event **events; /* [max_events] */
    marked_step *steps; /* [max_events] */
    int n_events, max_events, n_steps;
    gpu_event *anchors[ANCHORS];
    int anchor;         /* the one that counts */
    double anchor_time; /* on the host's clock */
};

int hybrid_marks_capacity(const hybrid *h) {
    return h->plan->n_gpu_steps + h->n_batch;
}

pi_status hybrid_marks_create(hybrid *h, pi_error *err) {
    pi_status status = PI_OK;
    hybrid_marks *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(err, sizeof *m, "events of a trace");
    h->marks = m;
    m->max_events = 2 * hybrid_marks_capacity(h);
    size_t n = (size_t)m->max_events;
    m->events = mem_calloc(n, sizeof(gpu_event *));
    m->steps = mem_calloc(n, sizeof *m->steps);
    if (!m->events || !m->steps) return error_nomem(err, n * sizeof *m->steps, "events of a trace");
    for (int i = 0; i < ANCHORS && status == PI_OK; i++)
        status = h->b->event_create(h->d, &m->anchors[i], err);
    for (int i = 0; i < m->max_events && status == PI_OK; i++)
        status = h->b->event_create(h->d, &m->events[i], err);
    return status;
}

void hybrid_marks_destroy(hybrid *h) {
    hybrid_marks *m = h->marks;
    if (!m) return;
    for (int i = 0; i < ANCHORS; i++) h->b->event_destroy(m->anchors[i]);
    for (int i = 0; i < m->max_events && m->events; i++) h->b->event_destroy(m->events[i]);
    mem_free(m->events);
    mem_free(m->steps);
    mem_free(m);
    h->marks = NULL;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

void hybrid_marks_begin(hybrid *h, engine_trace *t) {
    hybrid_marks *m = h->marks;
    double best = 0;
    for (int i = 0; i < ANCHORS; i++) {
        double before = clock_seconds();
        h->b->event_record(h->stream, m->anchors[i]);
        while (!h->b->event_done(m->anchors[i]) && h->b->status(h->d, NULL) == PI_OK) continue;
        double after = clock_seconds();
        if (i > 0 && after - before >= best) continue;
        best = after - before;
        m->anchor = i;
        m->anchor_time = (before + after) / 2;
    }
    if (best / 2 > t->clock_error) t->clock_error = best / 2;
    m->n_events = m->n_steps = 0;
    m->on = true;
}

bool hybrid_is_marked(const hybrid *h) {
    return h->marks && h->marks->on;
}

/* A pass that has more steps than there are events for stays without the last ones. */
static void record(hybrid *h) {
    hybrid_marks *m = h->marks;
    if (m->n_events < m->max_events) h->b->event_record(h->stream, m->events[m->n_events]);
    m->n_events++;
}

void hybrid_mark_start(hybrid *h) {
    if (hybrid_is_marked(h)) record(h);
}

void hybrid_mark_step(hybrid *h, int step, bool streamed) {
    if (!hybrid_is_marked(h)) return;
    hybrid_marks *m = h->marks;
    int from = m->n_events - 1;
    record(h);
    if (m->n_events > m->max_events) return;
    m->steps[m->n_steps++] = (marked_step){
        .step = step, .from = from, .to = from + 1, .kind = streamed ? TRACE_STREAM : TRACE_STEP};
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

void hybrid_marks_end(hybrid *h, engine_trace *t) {
    hybrid_marks *m = h->marks;
    m->on = false;
    for (int i = 0; i < m->n_steps && t; i++) {
        const marked_step *s = &m->steps[i];
        gpu_event *anchor = m->anchors[m->anchor];
        const double ms = 1e-3;
        double start = m->anchor_time + ms * h->b->event_elapsed(anchor, m->events[s->from]);
        double end = m->anchor_time + ms * h->b->event_elapsed(anchor, m->events[s->to]);
        const trace_event e = {
            .step = s->step, .kind = s->kind, .start = start, .end = end, .bytes = bytes_of(h, s)};
        trace_put(t, t->n_threads, &e);
    }
}
