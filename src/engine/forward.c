/* forward.c: the forward pass, from the bottom up: a step, the loop over the plan's steps, a
 * ubatch, all ubatches of a call, the call (engine_forward).
 *
 * All threads run the loop over steps. The ubatch's form (plan.h) selects the kernel of a step; the
 * functions are in cpu_exec.h, in the order in which a layer needs them. The GPUs run their steps
 * at the same time (gpu_exec.h). Sessions grow only when every ubatch has succeeded. */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "clock.h"
#include "stage.h"

/* ---- a step ---------------------------------------------------------------------------------- */

static plan_kernel kernel_of(const engine_context *c, int index) {
    const plan_step *s = &c->cpu.plan->steps[index];
    bool skip = s->cold && c->cpu.ubatch.streaming[s->device];
    return skip ? KERNEL_SKIP : s->kernel[cpu_exec_form(&c->cpu, s)];
}

/* Calls the step's function for this kernel. */
static void call_kernel(cpu_exec *c, const plan_step *s, plan_kernel kernel, int ith) {
    switch (s->op) {
/* clang-format off */
#define PLAN_OP(name, text, args, print, reads, alone, cpu, gpu)                                   \
    STEP_CASE(name, args, switch (kernel) { cpu default: assert(!"the kernel has no function"); })
#define ON_CPU(one, few, many, ways) ways
#define BY(its_kernel, call) case KERNEL_##its_kernel: call; break;
#define BY_BOTH(call) case KERNEL_VECTOR: case KERNEL_TILED: call; break;
/* clang-format on */
#include "ops.def"
    case OP_COUNT:
        break;
    }
}

/* Bytes that a thread has read so far in steps that do not always read all their weights. */
static uint64_t bytes_read(const engine_context *c, int ith) {
    const ubatch_bytes *b = &c->cpu.scratch[ith].counts;
    return b->ffn + b->predictor + b->head;
}

/* Whether the step belongs to a prefetch of a layer that prefetches nothing in this ubatch. */
static inline bool prefetches_nothing(const engine_context *c, const plan_step *s) {
    return s->early && !paging_prefetches(c->cpu.paging, s->layer);
}

/* Runs a step on one thread. While a trace is recorded, it also gets the time of the step, and the
 * bytes that the thread read. */
static inline void run_step(engine_context *c, int index, int ith) {
    const plan_step *s = &c->cpu.plan->steps[index];
    plan_kernel kernel = kernel_of(c, index);
    /* CPU share of a GPU layer whose chosen experts are all on the GPU */
    bool idle = s->layer == c->cpu.idle_layer && c->cpu.plan->splits[s->layer].primary == SIDE_GPU;
    if (kernel == KERNEL_SKIP || idle || prefetches_nothing(c, s)) return;
    engine_trace *t = c->cpu.trace;
    if (t && !t->on) t = NULL;
    trace_event e = {.step = index};
    if (t) {
        e.start = clock_seconds();
        e.bytes = bytes_read(c, ith);
    }
    if (c->cpu.paging) paging_wait(c->cpu.paging, index);
    call_kernel(&c->cpu, s, kernel, ith);
    if (!t) return;
    e.end = clock_seconds();
    e.bytes = trace_counts_reads(s) ? bytes_read(c, ith) - e.bytes : s->weight_bytes;
    if (s->op == OP_RECEIVE) {
        const trace_event wait = {
            .step = index, .kind = TRACE_WAIT, .start = e.start, .end = t->wait_end};
        trace_put(t, ith, &wait);
    }
    trace_put(t, ith, &e);
}

void engine_observe(engine_context *c, engine_observer observer, void *user) {
    c->observer = observer;
    c->observer_user = user;
    c->cpu.decodes = observer != NULL;
}

/* A product never writes the buffer that it reads, so the observer needs no barrier. The hidden
 * vector of selected neurons is never complete. Hidden vectors of experts have a row per pair. */
static void show_input(const engine_context *c, int index) {
    const plan_step *s = &c->cpu.plan->steps[index];
    bool whole = s->op == OP_FFN_DOWN && kernel_of(c, index) == KERNEL_TILED;
    bool pairs = s->op == OP_EXPERTS_DOWN;
    const plan_experts *e = plan_experts_of(s);
    if (s->early || (e && e->share > 0)) return;
    if (s->op != OP_MATMUL && s->op != OP_FFN_IN && s->op != OP_FFN_SPARSE &&
        s->op != OP_EXPERTS_IN && !whole && !pairs)
        return;
    int n_rows = (int)cpu_exec_n_rows(&c->cpu, s);
    if (pairs) n_rows = c->cpu.experts.first[STEP_ARGS(s, experts)->experts->n_expert];
    if (n_rows > 0)
        c->observer(c->observer_user, s, c->cpu.buf[s->in] + s->in_at, c->cpu.plan->width[s->in],
                    n_rows);
}

/* ---- the loop over steps --------------------------------------------------------------------- */

typedef struct step_range {
    engine_context *c;
    int first, end;
    int ith; /* index of the thread that runs the steps */
} step_range;

/* Steps that one thread runs: the last thread to finish the previous step runs them inside the
 * barrier. It also decides whether all threads stop: they read `stop` after the barrier, and it is
 * written again only when all of them are at the next barrier. No step runs after a message that
 * has not arrived: a GPU may still write it. */
static void run_alone(void *arg) {
    const step_range *range = arg;
    engine_context *c = range->c;
    for (int i = range->first; i < range->end; i++) {
        pool_restart(c->cpu.pool);
        if (c->cpu.paging) paging_advance(c->cpu.paging, i);
        run_step(c, i, range->ith);
    }
    if (atomic_load_explicit(&c->cancelled, memory_order_relaxed) ||
        atomic_load_explicit(&c->cpu.gpu_lost, memory_order_relaxed))
        atomic_store_explicit(&c->stop, true, memory_order_relaxed);
}

/* On every thread. */
static void run_steps(void *arg, int ith, int nth) {
    engine_context *c = arg;
    int end = c->cpu.ubatch.end_step;
    (void)nth;
    for (int i = c->cpu.ubatch.first_step; i < end;) {
        if (ith == 0 && c->observer) show_input(c, i);
        if (ith == 0 && c->cpu.paging) paging_advance(c->cpu.paging, i);
        run_step(c, i, ith);
        step_range alone = {.c = c, .first = i + 1, .end = i + 1, .ith = ith};
        const plan_step *next = &c->cpu.plan->steps[alone.end];
        while (alone.end < end &&
               (next->alone[cpu_exec_form(&c->cpu, next)] || prefetches_nothing(c, next))) {
            alone.end++; /* no barrier for a step that does nothing */
            next++;
        }
        pool_barrier_run(c->cpu.pool, run_alone, &alone);
        if (atomic_load_explicit(&c->stop, memory_order_relaxed)) return;
        i = alone.end;
    }
}

/* ---- a ubatch -------------------------------------------------------------------------------- */

void forward_begin(engine_context *c, int first_step, int end_step) {
    engine_ubatch *u = &c->cpu.ubatch;
    u->form = plan_form_of(c->cpu.plan, SIDE_CPU, u->n_tokens);
    u->head_form = plan_form_of(c->cpu.plan, SIDE_CPU, u->n_out);
    /* A decode ubatch of several sessions may run in either form if all weights are in memory and
     * the CPU of this machine computes all of it; the faster form is measured. */
    bool timed = c->options.timed_forms && !c->options.plan.few_only && c->cpu.plan->is_sparse &&
                 !c->stage && c->gpu.n_gpus == 0 && !c->cpu.paging && !c->cpu.activity &&
                 u->form == FORM_FEW && u->n_items > 1;
    u->pace = timed ? &c->paces[u->n_tokens] : NULL;
    if (timed) u->form = form_pace_next(u->pace);
    if (u->form == FORM_MANY && timed && u->head_form == FORM_FEW) u->head_form = FORM_MANY;
    u->nth = u->form == FORM_ONE ? c->n_threads : c->n_threads_batch;
    u->first_step = first_step;
    u->end_step = end_step;
    key_bounds_begin(&c->cpu);
    c->cpu.idle_layer = CPU_EXEC_NO_LAYER;
    c->cpu.neurons = context_gpus_have_few(c) ? c->moves : NULL;
    /* The CPU waits for the GPU as long as the GPU's kernels run; in prefill that is long enough to
     * sleep. */
    pool_stay_awake(c->cpu.pool, c->gpu.n_gpus > 0 && u->form != FORM_MANY);
    if (c->cpu.plan->ngrams.conv.n_taps > 0) cpu_exec_find_ngrams(&c->cpu);
    if (c->cpu.paging)
        paging_begin(c->cpu.paging, u->form == FORM_MANY, u->tokens, u->ngrams, u->n_tokens,
                     context_place_rows(c));
    atomic_store(&c->stop, false);
    atomic_store(&c->cpu.gpu_lost, false);
    atomic_store(&c->cpu.bad_step, INT_MAX);
}

void forward_run(engine_context *c) {
    pool_run(c->cpu.pool, c->cpu.ubatch.nth, run_steps, c);
}

pi_status forward_end(engine_context *c, pi_error *err) {
    bool cancelled = atomic_exchange(&c->cancelled, false), lost = atomic_load(&c->cpu.gpu_lost);
    pi_status status = PI_OK, paged = PI_OK;
    if (c->gpu.n_gpus > 0) status = context_gpus_end(c, cancelled || lost, err);
    bool dropped = status != PI_OK || cancelled || lost; /* messages to the GPU were lost */
    if (c->cpu.paging) paged = paging_end(c->cpu.paging, !cancelled && !lost, status ? NULL : err);
    if (status == PI_OK) status = paged;
    dropped = dropped || status != PI_OK;
    if (dropped && c->cpu.adapter && gpu_sides_are_alive(&c->gpu)) context_gpus_restart_swaps(c);
    if (status != PI_OK) return status;
    if (lost) return error_set(err, PI_ERR_DEVICE, "GPU timed out: forward: run on the CPU");
    if (cancelled)
        return error_set(err, PI_ERR_CANCELLED, "cancelled: forward: no session has changed");
    if (c->cpu.plan->head == SIDE_CPU) cpu_exec_hidden(&c->cpu);
    return context_check_finite(c, err);
}

void forward_count(engine_context *c) {
    key_bounds_end(&c->cpu);
    context_count(c);
    context_count_routed(c);
    if (c->cpu.activity) context_count_activity(c);
    if (c->cpu.adapter) context_gpus_swap(c);
    if (c->moves) context_gpus_move_neurons(c);
}

pi_status forward_ubatches(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err) {
    request_cursor at = {0};
    c->cpu.ubatch.first_logits_row = c->cpu.ubatch.first_hidden_row = 0;
    c->cpu.n_received = 0;
    c->n_call_logits = request_logits(inputs, n_inputs);
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i].session->features.rows)
            session_features_begin(inputs[i].session, inputs[i].n_tokens);
    for (int i = 0; i < n_inputs; i++)
        recurrent_begin(&inputs[i].session->state, inputs[i].n_tokens, inputs[i].n_drafts);
    if (c->stage) return stage_run(c, inputs, n_inputs, err);
    while (request_next_ubatch(c, inputs, n_inputs, &at)) {
        if (c->cpu.trace) context_trace_begin(c);
        context_gpus_begin(c);
        forward_begin(c, 0,
                      c->cpu.ubatch.n_out > 0 ? c->cpu.plan->n_steps : c->cpu.plan->n_layer_steps);
        double start = clock_seconds();
        forward_run(c);
        if (c->cpu.ubatch.pace)
            form_pace_add(c->cpu.ubatch.pace, c->cpu.ubatch.form, clock_seconds() - start);
        pi_status status = forward_end(c, err);
        if (c->cpu.trace) context_trace_end(c, status == PI_OK);
        if (status != PI_OK) return status;
        forward_count(c);
        c->cpu.ubatch.first_logits_row += c->cpu.ubatch.n_out;
        c->cpu.ubatch.first_hidden_row += c->cpu.ubatch.n_hidden;
    }
    return PI_OK;
}

/* ---- the call -------------------------------------------------------------------------------- */

void forward_grow(const pi_input *in) {
    pi_session *s = in->session;
    if (s->tokens && s->tokens != in->tokens) /* else recover.c evaluates again */
        memcpy(s->tokens + s->length, in->tokens, (size_t)in->n_tokens * sizeof *in->tokens);
    if (s->features.rows) session_features_end(s, in->n_tokens);
    s->length += in->n_tokens;
    recurrent_end(&s->state, s->length);
}

/* A GPU's waits for the CPU time out when the program was suspended, or while weights are first
 * read from a slow disk. Each retry then receives more of the GPU's messages than the tries before
 * it, so many retries are allowed; if the GPU has crashed, no retry receives more. */
enum { GPU_TRIES = 16, GPU_STANDSTILLS = 2 };

pi_status engine_forward(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err) {
    c->n_logits_rows = c->n_hidden_rows = 0;
    if (!c->cpu.plan) return context_unusable(c, err);
    pi_status status = context_check_process(c, "forward", err);
    if (status == PI_OK) status = request_check(c, inputs, n_inputs, err);
    if (status != PI_OK) return status;
    if (c->stage) { /* of rank 0 */
        if (c->stage->n_passes > 0)
            return error_set(err, PI_ERR_ARG, "a forward pass is under way: end it first");
        status = stage_begin(c, inputs, n_inputs, err);
        return status == PI_OK ? engine_forward_end(c, err) : status;
    }
    pi_error why;
    int standstills = 0; /* tries that received no more than an earlier one */
    int64_t most_received = -1;
    for (int tries = 1;; tries++) {
        status = forward_ubatches(c, inputs, n_inputs, &why);
        bool gpu_failed = c->gpu.n_gpus > 0 && status != PI_OK && status != PI_ERR_CANCELLED &&
                          status != PI_ERR_RANGE && status != PI_ERR_IO;
        if (!gpu_failed) break;
        standstills = c->cpu.n_received > most_received ? 0 : standstills + 1;
        if (standstills == 0) most_received = c->cpu.n_received;
        if (tries <= GPU_TRIES && gpu_sides_are_alive(&c->gpu) && standstills < GPU_STANDSTILLS)
            continue;
        status = context_fall_back(c, &why, err);
        if (status != PI_OK) return status;
    }
    if (status != PI_OK) {
        if (err) *err = why;
        return status;
    }
    for (int i = 0; i < n_inputs; i++) forward_grow(&inputs[i]);
    c->n_logits_rows = c->cpu.ubatch.first_logits_row;
    c->n_hidden_rows = c->cpu.ubatch.first_hidden_row;
    return PI_OK;
}

int engine_passes(const engine_context *c) {
    return c->stage ? c->stage->max_passes : 1;
}

pi_status engine_forward_begin(engine_context *c, const pi_input *inputs, int n_inputs,
                               pi_error *err) {
    if (c->stage) {
        pi_status status = context_check_process(c, "forward", err);
        if (status == PI_OK) status = request_check(c, inputs, n_inputs, err);
        return status == PI_OK ? stage_begin(c, inputs, n_inputs, err) : status;
    }
    if (c->begun)
        return error_set(err, PI_ERR_LIMIT, "too many passes under way: one machine runs one");
    c->begun = inputs;
    c->n_begun = n_inputs;
    return PI_OK;
}

pi_status engine_forward_end(engine_context *c, pi_error *err) {
    if (c->stage) {
        c->n_logits_rows = c->n_hidden_rows = 0;
        return stage_end(c, &c->n_logits_rows, &c->n_hidden_rows, err);
    }
    const pi_input *inputs = c->begun;
    c->begun = NULL;
    if (!inputs) return error_set(err, PI_ERR_ARG, "no forward pass is under way");
    return engine_forward(c, inputs, c->n_begun, err);
}

/* ---- one layer ------------------------------------------------------------------------------- */

pi_status engine_run_layer(engine_context *c, pi_session *s, int layer, const int32_t *tokens,
                           float *x, int n_tokens, int64_t pos, pi_error *err) {
    const plan *p = c->cpu.plan;
    engine_ubatch *u = &c->cpu.ubatch;
    pi_status status = context_check_process(c, "layer", err);
    if (status != PI_OK) return status;
    bool begins = s->state.n_floats == 0 || s->length == 0; /* its recurrent state is written */
    bool fits = c->gpu.n_gpus == 0 && !c->cpu.paging && c->cpu.model->hp.n_stream == 1 && begins &&
                s->context == c && !c->stage && layer >= -1 && layer < c->cpu.model->hp.n_layer &&
                n_tokens >= 1 && n_tokens <= c->n_batch && pos >= 0 &&
                pos <= s->kv.n_ctx - n_tokens;
    if (!fits)
        return error_set(err, PI_ERR_ARG,
                         "bad request: layer %d: %d tokens at position %lld do not fit the session "
                         "or the batch",
                         layer, n_tokens, (long long)pos);
    /* Vectors that steps before the layer compute: the first layer's values, the embeddings. */
    bool values = layer > 0 && model_keeps_values(c->cpu.model);
    bool embeds = layer < 0 || values || model_keeps_embedding(c->cpu.model);
    const pi_input in = {.session = s, .tokens = tokens, .n_tokens = n_tokens};
    if (embeds) status = request_check_tokens(c, &in, err);
    if (status != PI_OK) return status;

    u->n_tokens = n_tokens;
    u->n_items = 1;
    u->n_out = u->n_hidden = 0;
    memset(u->streaming, 0, sizeof u->streaming);
    float *state = recurrent_floats(&s->state, 0);
    u->items[0] = (ubatch_item){.session = s,
                                .n_tokens = n_tokens,
                                .pos = pos,
                                .state_from = pos > 0 ? state : NULL,
                                .state_to = state};
    for (int i = 0; i < n_tokens; i++) {
        u->tokens[i] = embeds ? tokens[i] : 0;
        u->positions[i] = pos + i;
        u->item_of_row[i] = &u->items[0];
        cpu_exec_fill_angles(&c->cpu, i);
    }
    if (layer >= 0 && embeds) { /* not for the observer */
        engine_observer observer = c->observer;
        int end = 0;
        while (p->steps[end].layer < (values ? 1 : 0)) end++;
        c->observer = NULL;
        forward_begin(c, 0, end);
        forward_run(c);
        c->observer = observer;
    }
    size_t n_bytes = (size_t)n_tokens * (size_t)c->cpu.model->hp.n_embd * sizeof *x;
    if (layer >= 0) memcpy(c->cpu.buf[BUF_X], x, n_bytes);
    int first = 0;
    while (p->steps[first].layer != layer) first++;
    int end = first + 1;
    while (end < p->n_steps && p->steps[end].layer == layer) end++;
    forward_begin(c, first, end);
    forward_run(c);
    if (atomic_exchange(&c->cancelled, false))
        return error_set(err, PI_ERR_CANCELLED, "cancelled: layer %d: it is not complete", layer);
    memcpy(x, c->cpu.buf[BUF_X], n_bytes);
    return PI_OK;
}
