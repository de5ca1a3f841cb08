/* trace_summary.c: times and overlap of both devices in a traced ubatch.
 *
 * The busy time of a device is a set of spans: the union of its threads' steps without messages. An
 * exchange lasts from the start of the primary's SEND to the end of its RECEIVE. In between both
 * sides compute their neurons. This time minus that of the slower side is the cost of the exchange
 * ("sync" of the cost model). It combines spans of one clock only, so that an offset between the
 * clocks has no effect. */
#include <stdlib.h>

#include "mem.h"
#include "trace_tool.h"

typedef struct span {
    double start, end;
} span;

typedef struct span_list {
    span *spans; /* ordered; disjoint after they are joined */
    int n;
} span_list;

/* Steps [first, end) of a side. */
typedef struct step_range {
    int first, end;
} step_range;

/* A layer's exchange with one GPU: the messages of the primary side (with a helper: of the CPU),
 * and each side's steps in between. */
typedef struct exchange {
    plan_side primary;
    int send, receive;
    step_range work[PLAN_SIDES];
} exchange;

static int compare_spans(const void *a, const void *b) {
    const span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static void join(span_list *l) {
    int n = 0;
    qsort(l->spans, (size_t)l->n, sizeof *l->spans, compare_spans);
    for (int i = 0; i < l->n; i++) {
        const span s = l->spans[i];
        if (n == 0 || s.start > l->spans[n - 1].end)
            l->spans[n++] = s;
        else if (s.end > l->spans[n - 1].end)
            l->spans[n - 1].end = s.end;
    }
    l->n = n;
}

static double length(const span_list *l) {
    double sum = 0;
    for (int i = 0; i < l->n; i++) sum += l->spans[i].end - l->spans[i].start;
    return sum;
}

static double length_of_both(const span_list *a, const span_list *b) {
    double sum = 0;
    for (int i = 0, k = 0; i < a->n && k < b->n;) {
        const span *x = &a->spans[i], *y = &b->spans[k];
        double start = x->start > y->start ? x->start : y->start;
        double end = x->end < y->end ? x->end : y->end;
        if (end > start) sum += end - start;
        if (x->end < y->end)
            i++;
        else
            k++;
    }
    return sum;
}

/* Share of the shorter one; sums of equal spans may differ by rounding. */
static double ratio(double part, double a, double b) {
    double shorter = a < b ? a : b;
    if (shorter <= 0) return 0;
    return part < shorter ? part / shorter : 1;
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct reader {
    const engine_trace *t;
    int ubatch;
    span_list side[PLAN_SIDES];
} reader;

static const plan_step *steps_of(const engine_trace *t, plan_side side) {
    return side == SIDE_GPU ? t->plan->gpu_steps : t->plan->steps;
}

static void rows_of(const engine_trace *t, plan_side side, int *first, int *end) {
    *first = side == SIDE_GPU ? t->n_threads : 0;
    *end = side == SIDE_GPU ? t->n_threads + t->n_gpus : t->n_threads;
}

/* The busy time of a device within some of its steps. */
static void collect(reader *r, plan_side side, step_range steps) {
    int first, end;
    span_list *l = &r->side[side];
    l->n = 0;
    rows_of(r->t, side, &first, &end);
    for (int row = first; row < end; row++) {
        for (int i = 0; i < r->t->rows[row].n; i++) {
            const trace_event *e = &r->t->rows[row].events[i];
            if (e->ubatch != r->ubatch || e->step < steps.first || e->step >= steps.end) continue;
            const plan_op op = steps_of(r->t, side)[e->step].op;
            const bool message = op == OP_SEND || op == OP_RECEIVE;
            if (e->kind != TRACE_STREAM && (e->kind != TRACE_STEP || message)) continue;
            l->spans[l->n++] = (span){e->start, e->end};
        }
    }
    join(l);
}

/* A message's event; false when the ubatch has none. */
static bool find_message(const reader *r, plan_side side, int step, span *out) {
    int first, end;
    rows_of(r->t, side, &first, &end);
    for (int row = first; row < end; row++) {
        for (int i = 0; i < r->t->rows[row].n; i++) {
            const trace_event *e = &r->t->rows[row].events[i];
            if (e->ubatch != r->ubatch || e->step != step || e->kind != TRACE_STEP) continue;
            *out = (span){e->start, e->end};
            return true;
        }
    }
    return false;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* The exchange whose answer is step `receive` of the primary side; false for another message. */
static bool find_exchange(const plan *p, plan_side primary, int receive, exchange *out) {
    plan_side secondary = primary == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    const plan_step *here = primary == SIDE_GPU ? p->gpu_steps : p->steps;
    const plan_step *there = primary == SIDE_GPU ? p->steps : p->gpu_steps;
    int n_there = primary == SIDE_GPU ? p->n_steps : p->n_gpu_steps;
    if (here[receive].op != OP_RECEIVE || !STEP_ARGS(&here[receive], message)->answer) return false;
    int send = receive - 1, first = 0, end = 0, device = here[receive].device;
    while (here[send].op != OP_SEND || here[send].device != device) send--;
    for (int i = 0; i < n_there; i++) {
        if (there[i].layer != here[receive].layer || there[i].device != device) continue;
        if (there[i].op == OP_RECEIVE && there[i].out == BUF_Y) first = i + 1;
        if (there[i].op == OP_SEND && first > 0 && end == 0) end = i;
    }
    *out = (exchange){.primary = primary, .send = send, .receive = receive};
    out->work[primary] = (step_range){send + 1, receive};
    out->work[secondary] = (step_range){first, end};
    return true;
}

/* From the start of the first step to the end of the last one, including pauses. */
static double extent(const span_list *l) {
    return l->n ? l->spans[l->n - 1].end - l->spans[0].start : 0;
}

static void add_exchange(reader *r, const exchange *x, double *both, double *shorter,
                         pi_trace_summary *out) {
    span send, receive;
    if (!find_message(r, x->primary, x->send, &send)) return;
    if (!find_message(r, x->primary, x->receive, &receive)) return;
    for (int side = 0; side < PLAN_SIDES; side++) collect(r, (plan_side)side, x->work[side]);
    const span_list *cpu = &r->side[SIDE_CPU], *gpu = &r->side[SIDE_GPU];
    double slower = extent(cpu) > extent(gpu) ? extent(cpu) : extent(gpu);
    out->exchange_seconds += receive.end - send.start - slower;
    *both += length_of_both(cpu, gpu);
    *shorter += length(cpu) < length(gpu) ? length(cpu) : length(gpu);
    out->n_split++;
}

static void add_exchanges(reader *r, pi_trace_summary *out) {
    double both = 0, shorter = 0;
    for (int side = 0; side < PLAN_SIDES; side++) {
        const plan *p = r->t->plan;
        int n = side == SIDE_GPU ? p->n_gpu_steps : p->n_steps;
        for (int i = 0; i < n; i++) {
            exchange x;
            if (find_exchange(p, (plan_side)side, i, &x)) add_exchange(r, &x, &both, &shorter, out);
        }
    }
    if (out->n_split > 0) out->exchange_seconds /= out->n_split;
    out->split_overlap = ratio(both, shorter, shorter);
}

pi_status trace_summarize(const engine_trace *t, int ubatch, pi_trace_summary *out, pi_error *err) {
    const trace_ubatch *p = &t->ubatches[ubatch];
    const step_range all = {0, INT32_MAX};
    reader r = {.t = t, .ubatch = ubatch};
    size_t n[PLAN_SIDES] = {1, 1};
    for (int row = 0; row < t->n_threads + t->n_gpus; row++)
        n[row < t->n_threads ? SIDE_CPU : SIDE_GPU] += (size_t)t->rows[row].n;
    *out = (pi_trace_summary){
        .n_tokens = p->n_tokens, .seconds = p->end - p->start, .clock_error = t->clock_error};
    for (int side = 0; side < PLAN_SIDES; side++)
        r.side[side].spans = mem_calloc(n[side], sizeof(span));
    if (r.side[SIDE_CPU].spans && r.side[SIDE_GPU].spans) {
        for (int side = 0; side < PLAN_SIDES; side++) collect(&r, (plan_side)side, all);
        out->cpu_seconds = length(&r.side[SIDE_CPU]);
        out->gpu_seconds = length(&r.side[SIDE_GPU]);
        out->both_seconds = length_of_both(&r.side[SIDE_CPU], &r.side[SIDE_GPU]);
        out->overlap = ratio(out->both_seconds, out->cpu_seconds, out->gpu_seconds);
        add_exchanges(&r, out);
    }
    bool failed = !r.side[SIDE_CPU].spans || !r.side[SIDE_GPU].spans;
    mem_free(r.side[SIDE_CPU].spans);
    mem_free(r.side[SIDE_GPU].spans);
    return failed ? error_nomem(err, n[SIDE_CPU] * sizeof(span), "a trace's spans") : PI_OK;
}
