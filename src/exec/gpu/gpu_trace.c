/* gpu_trace.c: the GPU's timeline: stamps of the device's clock between the steps of a traced
 * ubatch. Stamps are operations, so a traced ubatch is also a recorded program and takes as long as
 * others, except for a small kernel per step.
 *
 * At the start of each ubatch the device's clock is compared with the host's: a stamp is enqueued
 * to the idle stream, and the host polls for it. The stamp was made between the host's readings of
 * its clock before and after; the shortest of several tries is the most exact. */
#include "clock.h"
#include "gpu_exec_impl.h"
#include "mem.h"

enum {
    ANCHORS = 8,       /* tries */
    ANCHOR_SECONDS = 1 /* for one: a device that takes longer is lost */
};

/* A step lies between stamps `from` and `to`. */
typedef struct marked_step {
    int step, from, to;
    trace_kind kind;
} marked_step;

struct gpu_exec_marks {
    bool on;
    gpu_pinned stamps;  /* uint64_t [max_stamps], then one for anchors */
    marked_step *steps; /* [max_stamps] */
    int n_stamps, max_stamps, n_steps;
    gpu_exec_programs programs;
    uint64_t anchor; /* the device's clock at anchor_time of the host's clock */
    double anchor_time;
};

int gpu_exec_marks_capacity(const gpu_exec *g) {
    enum { HEAD_STEPS = 3 }; /* norm, product, soft cap: once per run of contiguous rows */
    return g->plan->n_gpu_steps + HEAD_STEPS * g->n_batch;
}

pi_status gpu_exec_marks_create(gpu_exec *g, pi_error *err) {
    gpu_exec_marks *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(err, sizeof *m, "trace timestamps");
    g->marks = m;
    m->max_stamps = 2 * gpu_exec_marks_capacity(g);
    size_t n = (size_t)m->max_stamps;
    m->steps = mem_calloc(n, sizeof *m->steps);
    if (!m->steps) return error_nomem(err, n * sizeof *m->steps, "trace timestamps");
    return g->b->host_alloc(g->d, (n + 1) * sizeof(uint64_t), &m->stamps, err);
}

void gpu_exec_marks_destroy(gpu_exec *g) {
    gpu_exec_marks *m = g->marks;
    if (!m) return;
    gpu_exec_programs_free(g, &m->programs);
    g->b->host_free(g->d, &m->stamps);
    mem_free(m->steps);
    mem_free(m);
    g->marks = NULL;
}

/* ---- a ubatch -------------------------------------------------------------------------------- */

static void stamp(gpu_exec *g, int i) {
    const gpu_stamp a = {.ns = (uint64_t *)g->marks->stamps.device + i};
    g->b->ops.stamp(g->stream, &a);
}

static uint64_t stamped(const gpu_exec_marks *m, int i) {
    return gpu_flag_get((const uint64_t *)m->stamps.host + i);
}

void gpu_exec_marks_begin(gpu_exec *g, engine_trace *t) {
    gpu_exec_marks *m = g->marks;
    double best = ANCHOR_SECONDS;
    for (int i = 0; i < ANCHORS; i++) {
        gpu_flag_raise((uint64_t *)m->stamps.host + m->max_stamps, 0);
        double before = clock_seconds();
        stamp(g, m->max_stamps);
        while (!stamped(m, m->max_stamps) && clock_seconds() - before < ANCHOR_SECONDS &&
               g->b->status(g->d, NULL) == PI_OK)
            continue;
        double after = clock_seconds(); /* the host saw the stamp before this */
        if (after - before >= best) continue;
        best = after - before;
        m->anchor = stamped(m, m->max_stamps);
        m->anchor_time = (before + after) / 2;
    }
    if (best / 2 > t->clock_error) t->clock_error = best / 2;
    m->n_stamps = m->n_steps = 0;
    m->on = true;
}

bool gpu_exec_is_marked(const gpu_exec *g) {
    return g->marks && g->marks->on;
}

gpu_exec_programs *gpu_exec_marked_programs(gpu_exec *g) {
    return &g->marks->programs;
}

/* If a ubatch has more steps than there are stamps, its last steps have none. */
static void record(gpu_exec *g) {
    gpu_exec_marks *m = g->marks;
    if (m->n_stamps < m->max_stamps) stamp(g, m->n_stamps);
    m->n_stamps++;
}

/* The step lies between the last two stamps. */
static void note(gpu_exec_marks *m, int step, bool streamed) {
    if (m->n_stamps > m->max_stamps) return;
    m->steps[m->n_steps++] = (marked_step){.step = step,
                                           .from = m->n_stamps - 2,
                                           .to = m->n_stamps - 1,
                                           .kind = streamed ? TRACE_STREAM : TRACE_STEP};
}

void gpu_exec_mark_start(gpu_exec *g) {
    if (gpu_exec_is_marked(g)) record(g);
}

void gpu_exec_mark_step(gpu_exec *g, int step, bool streamed) {
    if (!gpu_exec_is_marked(g)) return;
    record(g);
    note(g->marks, step, streamed);
}

void gpu_exec_mark_program(gpu_exec *g, int n) {
    if (!gpu_exec_is_marked(g)) return;
    gpu_exec_marks *m = g->marks;
    m->n_steps = 0;
    m->n_stamps = 1;
    for (int i = 0; i < n; i++) {
        m->n_stamps++;
        note(m, i, false);
    }
}

static uint64_t bytes_of(const gpu_exec *g, const marked_step *s) {
    uint64_t sum = 0;
    if (s->kind != TRACE_STREAM) return gpu_exec_step_bytes(g, s->step);
    for (int i = 0; i < g->plan->n_steps; i++) {
        const plan_step *cold = &g->plan->steps[i];
        if (cold->cold && cold->layer == g->plan->gpu_steps[s->step].layer)
            sum += cold->weight_bytes;
    }
    return sum;
}

/* The time of a stamp on the host's clock. */
static double seconds_of(const gpu_exec_marks *m, int i) {
    const double ns = 1e-9;
    return m->anchor_time + ns * (double)(int64_t)(stamped(m, i) - m->anchor);
}

void gpu_exec_marks_end(gpu_exec *g, engine_trace *t) {
    gpu_exec_marks *m = g->marks;
    m->on = false;
    for (int i = 0; i < m->n_steps && t; i++) {
        const marked_step *s = &m->steps[i];
        const trace_event e = {.step = g->plan->first_gpu_step + s->step,
                               .kind = s->kind,
                               .start = seconds_of(m, s->from),
                               .end = seconds_of(m, s->to),
                               .bytes = bytes_of(g, s)};
        trace_put(t, t->n_threads + gpu_exec_device(g), &e);
    }
}
