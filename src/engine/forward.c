/* forward.c: feeding tokens: checks the request, cuts it into ubatches of at most n_batch tokens,
 * and runs the plan's steps on all threads for each. Sessions only grow when every ubatch has
 * succeeded.
 */
#include <limits.h>
#include <string.h>

#include "clock.h"
#include "context.h"
#include "trace_impl.h"

static void run_step(engine_context *c, const plan_step *s, int ith) {
    if (s->cold && gpu_exec_is_streaming(c->gpu)) return;
    switch (s->op) {
    case OP_EMBED:
        cpu_exec_embed(c);
        break;
    case OP_NORM:
        cpu_exec_norm(c, s);
        break;
    case OP_QUANTIZE:
        cpu_exec_quantize(c, s);
        break;
    case OP_MATMUL:
        cpu_exec_matmul(c, s, ith);
        break;
    case OP_FFN_IN:
        cpu_exec_ffn_in(c, s, ith);
        break;
    case OP_ROPE_STORE:
        cpu_exec_rope_store(c, s);
        break;
    case OP_ATTENTION:
        cpu_exec_attention(c, s, ith);
        break;
    case OP_ADD:
        cpu_exec_add(c, s);
        break;
    case OP_SOFTCAP:
        cpu_exec_softcap(c, s);
        break;
    case OP_FFN_SPARSE:
        cpu_exec_ffn_sparse(c, s, ith);
        break;
    case OP_FFN_DOWN:
        cpu_exec_ffn_down(c, s, ith);
        break;
    case OP_HEAD_NORM:
        cpu_exec_head_norm(c, s);
        break;
    case OP_ROUTE:
        cpu_exec_route(c, s);
        break;
    case OP_GROUP:
        cpu_exec_group(c, s);
        break;
    case OP_EXPERTS_GATHER:
        cpu_exec_experts_gather(c, s);
        break;
    case OP_EXPERTS_IN:
        cpu_exec_experts_in(c, s, ith);
        break;
    case OP_EXPERTS_QUANTIZE:
        cpu_exec_experts_quantize(c, s);
        break;
    case OP_EXPERTS_DOWN:
        cpu_exec_experts_down(c, s, ith);
        break;
    case OP_EXPERTS_SUM:
        cpu_exec_experts_sum(c, s);
        break;
    case OP_SELECT:
        cpu_exec_select(c, s, ith);
        break;
    case OP_SEND:
        cpu_exec_send(c, s);
        break;
    case OP_RECEIVE:
        cpu_exec_receive(c, s);
        break;
    case OP_COUNT:
        break;
    }
}

static uint64_t read_by_need(const engine_context *c, int row) {
    return c->scratch[row].counts.ffn + c->scratch[row].counts.predictor;
}

/* A step on thread `row`; `ith`: which part of the work is its own. */
static void run_traced(engine_context *c, int index, int ith, int row) {
    const plan_step *s = &c->plan->steps[index];
    engine_trace *t = c->trace;
    if (!t || !t->on || (s->cold && gpu_exec_is_streaming(c->gpu))) {
        run_step(c, s, ith);
        return;
    }
    trace_event e = {.step = index, .start = clock_seconds(), .bytes = read_by_need(c, row)};
    run_step(c, s, ith);
    e.end = clock_seconds();
    e.bytes = trace_counts_reads(s) ? read_by_need(c, row) - e.bytes : s->weight_bytes;
    if (s->op == OP_RECEIVE) {
        const trace_event wait = {
            .step = index, .kind = TRACE_WAIT, .start = e.start, .end = t->wait_end};
        trace_put(t, row, &wait);
    }
    trace_put(t, row, &e);
}

void engine_observe(engine_context *c, engine_observer observer, void *user) {
    c->observer = observer;
    c->observer_user = user;
}

/* No product writes the buffer that it reads, so that looking needs no barrier. The hidden vector
 * of a layer that goes neuron by neuron is never whole. */
static void show_input(const engine_context *c, const plan_step *s) {
    bool whole = s->op == OP_FFN_DOWN && cpu_exec_ffn_is_tiled(c, s->ffn);
    if (s->op != OP_MATMUL && s->op != OP_FFN_IN && s->op != OP_FFN_SPARSE && !whole) return;
    int n_rows = s->matrix[0].out == BUF_LOGITS ? c->ubatch.n_out : c->ubatch.n_tokens;
    if (n_rows > 0) c->observer(c->observer_user, s, c->buf[s->in], c->plan->width[s->in], n_rows);
}

/* Norms and encodings of a few vectors are one piece of work (see cpu_vector.c): the last thread
 * to finish the step before does them on its way through the barrier. So are messages. */
static bool is_one_piece(const engine_context *c, const plan_step *s) {
    if (s->op == OP_SEND || s->op == OP_RECEIVE || s->op == OP_GROUP) return true;
    bool vector_step = s->op == OP_NORM || s->op == OP_QUANTIZE || s->op == OP_ADD ||
                       s->op == OP_HEAD_NORM || s->op == OP_ROUTE || s->op == OP_EXPERTS_GATHER ||
                       s->op == OP_EXPERTS_QUANTIZE || s->op == OP_EXPERTS_SUM;
    return vector_step && c->ubatch.n_tokens < CPU_PANEL;
}

typedef struct step_range {
    engine_context *c;
    int first, end;
    int ith; /* of the thread that runs them */
} step_range;

static void run_pieces(void *arg) {
    const step_range *range = arg;
    for (int i = range->first; i < range->end; i++) {
        pool_restart(range->c->pool);
        run_traced(range->c, i, 0, range->ith);
    }
}

/* The loop over steps, on every thread. Thread 0 publishes a cancellation before its n-th barrier
 * in slot n & 1, and everyone reads that slot after the barrier: the slot is not written again
 * before barrier n + 1, which nobody passes before all have read it. So all threads leave at the
 * same step. */
static void run_worker(void *arg, int ith, int nth) {
    engine_context *c = arg;
    int end = c->ubatch.end_step;
    (void)nth;
    for (int i = c->ubatch.first_step, n_barriers = 0; i < end; n_barriers++) {
        atomic_bool *slot = &c->stop[n_barriers & 1];
        if (ith == 0 && (atomic_load_explicit(&c->cancelled, memory_order_relaxed) ||
                         atomic_load_explicit(&c->gpu_lost, memory_order_relaxed)))
            atomic_store_explicit(slot, true, memory_order_relaxed);
        if (ith == 0 && c->observer) show_input(c, &c->plan->steps[i]);
        run_traced(c, i, ith, ith);
        step_range range = {.c = c, .first = i + 1, .end = i + 1, .ith = ith};
        while (range.end < end && is_one_piece(c, &c->plan->steps[range.end])) range.end++;
        pool_barrier_run(c->pool, run_pieces, &range);
        if (atomic_load_explicit(slot, memory_order_relaxed)) return;
        i = range.end;
    }
}

static void count_ubatch(engine_context *c) {
    const plan *p = c->plan;
    engine_counters *n = &c->counters;
    n->passes++;
    n->tokens += (uint64_t)c->ubatch.n_tokens;
    n->weight_bytes += p->fixed_bytes;
    if (c->ubatch.n_out == 0) n->weight_bytes -= p->head_bytes;
    n->weight_bytes += (uint64_t)c->ubatch.n_tokens * c->model->t[ROLE_TOKEN_EMBD].row_bytes;
    n->ffn_bytes += p->fixed_ffn_bytes;
    n->ffn_total_bytes += p->ffn_bytes;
    for (int i = 0; i < c->ubatch.nth; i++) {
        ubatch_bytes *b = &c->scratch[i].counts;
        n->weight_bytes += b->ffn + b->predictor;
        n->ffn_bytes += b->ffn;
        n->gathered_bytes += b->gathered;
        *b = (ubatch_bytes){0};
    }
    if (c->gpu) {
        uint64_t by_need = gpu_exec_sparse_bytes(c->gpu);
        n->weight_bytes += by_need;
        n->ffn_bytes += by_need;
    }
    for (int i = 0; i < c->ubatch.n_items; i++) {
        const ubatch_item *item = &c->items[i];
        uint64_t positions = (uint64_t)(item->pos + item->n_tokens);
        uint64_t rows = 0;
        for (int l = 0; l < c->model->hp.n_layer; l++) {
            const model_layer_hparams *lhp = &c->model->layers[l].hp;
            uint64_t seen = (uint64_t)lhp->window + (uint64_t)item->n_tokens;
            if (lhp->window == 0 || seen > positions) seen = positions;
            rows += seen * (uint64_t)lhp->n_head_kv;
        }
        n->kv_bytes += rows * (item->session->kv.row_k + item->session->kv.row_v);
    }
}

/* ---- checking a request --------------------------------------------------------------------- */

static pi_status check_tokens(const engine_context *c, const engine_input *in, pi_error *err) {
    for (int i = 0; i < in->n_tokens; i++)
        if (in->tokens[i] < 0 || in->tokens[i] >= c->model->hp.n_vocab)
            return error_set(err, PI_ERR_RANGE,
                             "token out of range: id %d at position %lld: the vocabulary has %d",
                             in->tokens[i], (long long)(in->session->length + i),
                             c->model->hp.n_vocab);
    return PI_OK;
}

static pi_status check_input(const engine_context *c, const engine_input *in, pi_error *err) {
    const engine_session *s = in->session;
    if (in->n_tokens < 1)
        return error_set(err, PI_ERR_ARG, "no tokens: forward: give every input at least one");
    if (s->context != c || s->in_call)
        return error_set(err, PI_ERR_ARG,
                         "bad session: forward: a session must belong to the context and appear "
                         "once");
    if (in->n_tokens > s->kv.n_ctx - s->length)
        return error_set(
            err, PI_ERR_LIMIT,
            "context is full: forward: %lld tokens there and %d new ones do not fit into "
            "%lld; use a larger context",
            (long long)s->length, in->n_tokens, (long long)s->kv.n_ctx);
    return check_tokens(c, in, err);
}

/* Marks sessions as it goes, so that one that appears twice is found; the caller clears the marks.
 */
static pi_status check_request(const engine_context *c, const engine_input *inputs, int n_inputs,
                               pi_error *err) {
    int64_t rows = 0;
    if (n_inputs < 1 || n_inputs > c->n_batch)
        return error_set(err, PI_ERR_LIMIT, "bad number of inputs: %d: use 1 to %d", n_inputs,
                         c->n_batch);
    for (int i = 0; i < n_inputs; i++) inputs[i].session->in_call = false;
    for (int i = 0; i < n_inputs; i++) {
        pi_status status = check_input(c, &inputs[i], err);
        if (status != PI_OK) return status;
        inputs[i].session->in_call = true;
        if (inputs[i].want == ENGINE_WANT_LAST) rows += 1;
        if (inputs[i].want == ENGINE_WANT_ALL) rows += inputs[i].n_tokens;
    }
    if (rows > c->n_logits)
        return error_set(
            err, PI_ERR_LIMIT,
            "too many logits: forward: %lld rows wanted, %d fit; ask for fewer per call",
            (long long)rows, c->n_logits);
    return PI_OK;
}

/* ---- ubatches ---------------------------------------------------------------------------------
 */

/* Where the request stands: input `index`, of which `done` tokens were fed by earlier ubatches. */
typedef struct request_cursor {
    int index, done;
} request_cursor;

static void add_rows(engine_context *c, const engine_input *in, int done, int n) {
    engine_ubatch *p = &c->ubatch;
    ubatch_item *item = &c->items[p->n_items++];
    *item = (ubatch_item){.session = in->session,
                          .row = p->n_tokens,
                          .n_tokens = n,
                          .pos = in->session->length + in->session->fed};
    for (int i = 0; i < n; i++) {
        int row = p->n_tokens + i;
        c->tokens[row] = in->tokens[done + i];
        c->positions[row] = item->pos + i;
        c->item_of_row[row] = item;
        bool last = done + i == in->n_tokens - 1;
        if (in->want == ENGINE_WANT_ALL || (in->want == ENGINE_WANT_LAST && last))
            c->out_rows[p->n_out++] = row;
    }
    p->n_tokens += n;
}

/* Gathers the next ubatch; false when all tokens have been fed. */
static bool next_ubatch(engine_context *c, const engine_input *inputs, int n_inputs,
                        request_cursor *at) {
    c->ubatch.n_tokens = c->ubatch.n_items = c->ubatch.n_out = 0;
    while (at->index < n_inputs && c->ubatch.n_tokens < c->n_batch) {
        const engine_input *in = &inputs[at->index];
        int room = c->n_batch - c->ubatch.n_tokens;
        int n = in->n_tokens - at->done < room ? in->n_tokens - at->done : room;
        add_rows(c, in, at->done, n);
        at->done += n;
        if (at->done == in->n_tokens) *at = (request_cursor){.index = at->index + 1};
    }
    return c->ubatch.n_tokens > 0;
}

/* Runs the CPU's steps of a ubatch that is set up. False when it was cancelled. */
static bool run_steps(engine_context *c, int first_step, int end_step) {
    c->ubatch.first_step = first_step;
    c->ubatch.end_step = end_step;
    c->ubatch.nth = c->ubatch.n_tokens > 1 ? c->n_threads_batch : c->n_threads;
    atomic_store(&c->stop[0], false);
    atomic_store(&c->stop[1], false);
    atomic_store(&c->bad_step, INT_MAX);
    pool_run(c->pool, c->ubatch.nth, run_worker, c);
    return !atomic_exchange(&c->cancelled, false);
}

static pi_status cancelled(pi_error *err) {
    return error_set(err, PI_ERR_CANCELLED, "cancelled: forward: no session has changed");
}

/* All steps on both sides. */
static pi_status run_both(engine_context *c, pi_error *err) {
    atomic_store(&c->gpu_lost, false);
    if (c->gpu) gpu_exec_begin(c->gpu, c);
    bool done = run_steps(c, 0, c->plan->n_steps);
    bool lost = atomic_load(&c->gpu_lost);
    if (!c->gpu) return done ? PI_OK : cancelled(err);
    pi_status status = gpu_exec_end(c->gpu, c, !done || lost, err);
    if (status != PI_OK) return status;
    if (lost) return error_set(err, PI_ERR_DEVICE, "GPU timed out: forward: try without it");
    return done ? PI_OK : cancelled(err);
}

pi_status context_feed(engine_context *c, const engine_input *inputs, int n_inputs, pi_error *err) {
    request_cursor at = {0};
    c->ubatch.first_logits_row = 0;
    while (next_ubatch(c, inputs, n_inputs, &at)) {
        if (c->trace) trace_begin_pass(c);
        pi_status status = run_both(c, err);
        if (status == PI_OK) status = context_check_finite(c, err);
        if (c->trace) trace_end_pass(c, status == PI_OK);
        if (status != PI_OK) return status;
        count_ubatch(c);
        c->ubatch.first_logits_row += c->ubatch.n_out;
        for (int i = 0; i < c->ubatch.n_items; i++)
            c->items[i].session->fed += c->items[i].n_tokens;
    }
    return PI_OK;
}

static void remember_tokens(const engine_input *in) {
    engine_session *s = in->session;
    if (s->tokens)
        memcpy(s->tokens + s->length, in->tokens, (size_t)in->n_tokens * sizeof *in->tokens);
}

static pi_status feed_inputs(engine_context *c, const engine_input *inputs, int n_inputs,
                             pi_error *err) {
    for (int i = 0; i < n_inputs; i++) inputs[i].session->fed = 0;
    return context_feed(c, inputs, n_inputs, err);
}

/* Waits for the CPU run out when the program was stopped for a while, or while weights come
 * from a slow disk for the first time. Every try gets further with that, so that there are many. */
enum { GPU_TRIES = 16 };

static bool is_gpu_failure(const engine_context *c, pi_status status) {
    return c->gpu && status != PI_OK && status != PI_ERR_CANCELLED && status != PI_ERR_RANGE;
}

pi_status engine_forward(engine_context *c, const engine_input *inputs, int n_inputs,
                         pi_error *err) {
    pi_error why;
    c->n_logits_rows = 0;
    if (!c->plan) return context_unusable(c, err);
    pi_status status = context_check_process(c, "forward", err);
    if (status == PI_OK) status = check_request(c, inputs, n_inputs, err);
    if (status != PI_OK) return status;
    status = feed_inputs(c, inputs, n_inputs, &why);
    for (int i = 0; i < GPU_TRIES && is_gpu_failure(c, status) && gpu_exec_is_alive(c->gpu); i++)
        status = feed_inputs(c, inputs, n_inputs, &why);
    if (is_gpu_failure(c, status)) {
        status = context_leave_gpu(c, &why, err);
        if (status != PI_OK) return status;
        status = feed_inputs(c, inputs, n_inputs, &why);
    }
    if (status != PI_OK) {
        if (err) *err = why;
        return status;
    }
    for (int i = 0; i < n_inputs; i++) {
        remember_tokens(&inputs[i]);
        inputs[i].session->length += inputs[i].n_tokens;
    }
    c->n_logits_rows = c->ubatch.first_logits_row;
    return PI_OK;
}

/* ---- one layer ------------------------------------------------------------------------------- */

static pi_status check_layer(const engine_context *c, const engine_session *s, int layer,
                             int n_tokens, int64_t pos, pi_error *err) {
    pi_status status = context_check_process(c, "layer", err);
    if (status != PI_OK) return status;
    bool fits = !c->gpu && s->context == c && layer >= -1 && layer < c->model->hp.n_layer &&
                n_tokens >= 1 && n_tokens <= c->n_batch && pos >= 0 &&
                pos <= s->kv.n_ctx - n_tokens;
    if (fits) return PI_OK;
    return error_set(err, PI_ERR_ARG,
                     "bad request: layer %d: %d tokens at position %lld do not fit the session or "
                     "the batch",
                     layer, n_tokens, (long long)pos);
}

pi_status engine_run_layer(engine_context *c, engine_session *s, int layer, const int32_t *tokens,
                           float *x, int n_tokens, int64_t pos, pi_error *err) {
    pi_status status = check_layer(c, s, layer, n_tokens, pos, err);
    engine_input in = {.session = s, .tokens = tokens, .n_tokens = n_tokens};
    if (status == PI_OK && layer < 0) status = check_tokens(c, &in, err);
    if (status != PI_OK) return status;
    int first = 0, end = c->plan->n_steps;
    while (c->plan->steps[first].layer != layer) first++;
    for (int i = first; i < end; i++)
        if (c->plan->steps[i].layer != layer) end = i;

    size_t n_bytes = (size_t)n_tokens * (size_t)c->model->hp.n_embd * sizeof *x;
    c->ubatch.n_tokens = n_tokens;
    c->ubatch.n_items = 1;
    c->ubatch.n_out = 0;
    c->items[0] = (ubatch_item){.session = s, .n_tokens = n_tokens, .pos = pos};
    for (int i = 0; i < n_tokens; i++) {
        c->tokens[i] = layer < 0 ? tokens[i] : 0;
        c->positions[i] = pos + i;
        c->item_of_row[i] = &c->items[0];
        rope_fill_angles(c, i);
    }
    if (layer >= 0) memcpy(c->buf[BUF_X], x, n_bytes);
    if (!run_steps(c, first, end))
        return error_set(err, PI_ERR_CANCELLED, "cancelled: layer %d: it is not complete", layer);
    memcpy(x, c->buf[BUF_X], n_bytes);
    return PI_OK;
}
