/* gpu_program.c: the GPU's part of a ubatch: a recorded program for few tokens; segments of steps
 * for many, and where a program cannot wait for its host, if possible of recorded pieces; then the
 * results: logits and the ubatch's counters. A program begins with the copy of the header and ends
 * with the head and the copy of the results, so a token is one launch and one wait. */
#include <assert.h>
#include <string.h>

#include "gpu_exec_impl.h"
#include "mem.h"

/* ---- starting -------------------------------------------------------------------------------- */

/* The number of next rows, at most `most`, that are contiguous in X. */
static int count_run(const int32_t *rows, int n_rows, int most) {
    int n = n_rows > 0;
    while (n < n_rows && n < most && rows[n] == rows[0] + n) n++;
    return n;
}

static gpu_exec_shape shape_of(const gpu_exec *g) {
    const engine_ubatch *u = g->sides->ubatch;
    int64_t longest = 0;
    for (int i = 0; i < u->n_tokens; i++)
        if (u->positions[i] + 1 > longest) longest = u->positions[i] + 1;
    int n_out = g->plan->head == SIDE_GPU ? u->n_out : 0;
    bool whole = n_out > 0 && count_run(u->out_rows, n_out, GPU_EXEC_LOGIT_ROWS) == n_out;
    return (gpu_exec_shape){.n_cols = u->n_tokens,
                            .n_splits = gpu_attention_splits_of(longest, u->n_tokens),
                            .form = plan_form_of(g->plan, SIDE_GPU, u->n_tokens),
                            .first_out = whole ? u->out_rows[0] : 0,
                            .n_out = whole ? n_out : 0};
}

static void write_header(gpu_exec *g) {
    const engine_ubatch *u = g->sides->ubatch;
    gpu_exec_header *to = g->header_host.host;
    to->epoch = g->epoch += 2; /* flags with the next odd number say that there is nothing to do */
    for (int i = 0; i < u->n_tokens; i++) {
        const ubatch_item *item = u->item_of_row[i];
        const pi_session *s = item->session;
        to->columns[i] = (gpu_column){.kv = s->device_kv[gpu_exec_device(g)],
                                      .n_ctx = s->kv.n_ctx,
                                      .token = u->tokens[i],
                                      .pos = (int32_t)u->positions[i],
                                      .at = i - item->row,
                                      .run = item->n_tokens,
                                      .n_before = item->n_before,
                                      .state_from = gpu_exec_state_at(g, s, item->state_from),
                                      .state_to = gpu_exec_state_at(g, s, item->state_to),
                                      .state_before = gpu_exec_state_at(g, s, item->state_before)};
    }
}

static int end_of_layers(const gpu_exec *g) {
    return g->plan->head == SIDE_GPU ? gpu_exec_head_at(g) : g->plan->n_gpu_steps;
}

static void enqueue_steps(gpu_exec *g, const gpu_exec_shape *shape, int first, int end) {
    for (int i = first; i < end; i++) {
        gpu_exec_enqueue_step(g, i, shape);
        gpu_exec_mark_step(g, i, false);
    }
}

/* Whether no kernel may wait for a message: in ubatches of many tokens, and where launches wait for
 * kernels. All devices have one driver, so this holds for all of them or for none. */
static bool never_waits(const gpu_exec *g, const gpu_exec_shape *shape) {
    return shape->form == FORM_MANY || g->serial;
}

/* Whether the segment ends before the step, because its message has not arrived. In ubatches of few
 * tokens a kernel may wait for the previous stage, as in a program. */
static bool ends_segment(const gpu_exec *g, const plan_step *s, const gpu_exec_shape *shape) {
    return s->op == OP_RECEIVE && (STEP_ARGS(s, message)->peer < 0 || never_waits(g, shape));
}

static bool has_shape(const gpu_exec_shape *a, const gpu_exec_shape *b) {
    return a->n_cols == b->n_cols && a->n_splits == b->n_splits && a->form == b->form &&
           a->first_out == b->first_out && a->n_out == b->n_out;
}

/* ---- recorded pieces of segments ------------------------------------------------------------- */

/* The program of steps [first, end), recorded if it is missing; NULL: it cannot be recorded, or
 * there are very many. None is freed before the context ends, since others may be running. */
static gpu_program *piece_for(gpu_exec *g, const gpu_exec_shape *shape, int first, int end) {
    enum { MOST = 4096 };
    gpu_exec_pieces *all = &g->pieces;
    for (size_t i = 0; i < all->n; i++) {
        const gpu_exec_piece *p = &all->of[i];
        if (p->first == first && p->end == end && has_shape(&p->shape, shape)) return p->program;
    }
    gpu_program *program = NULL;
    if (!mem_grow((void **)&all->of, &all->capacity, all->n + 1, sizeof *all->of, MOST))
        return NULL;
    if (g->b->record_begin(g->stream, NULL) != PI_OK) return NULL;
    enqueue_steps(g, shape, first, end);
    if (g->b->record_end(g->stream, &program, NULL) != PI_OK) return NULL;
    all->of[all->n++] = (gpu_exec_piece){
        .program = program, .shape = *shape, .first = first, .end = end};
    return program;
}

/* Enqueues a segment of a ubatch of few tokens where kernels may not wait, piece by piece: the host
 * reads a message when the piece that ends with it is done. */
static void launch_segment(gpu_exec *g, const gpu_exec_shape *shape) {
    const int first = g->next_step, last = end_of_layers(g);
    gpu_exec_shape any = *shape;
    any.first_out = any.n_out = 0;
    gpu_exec_mark_start(g);
    while (g->next_step < last) {
        const int begin = g->next_step;
        bool sends = false, ends = false;
        while (g->next_step < last && !sends && !ends) {
            const plan_step *s = &g->plan->gpu_steps[g->next_step];
            ends = g->next_step > first && ends_segment(g, s, shape);
            sends = s->op == OP_SEND;
            if (!ends) g->next_step++;
        }
        const bool traced = gpu_exec_is_marked(g);
        gpu_program *p = begin < g->next_step && !traced ? piece_for(g, &any, begin, g->next_step)
                                                         : NULL;
        if (p)
            g->b->program_launch(g->stream, p);
        else
            enqueue_steps(g, shape, begin, g->next_step);
        if (sends) g->b->event_record(g->stream, g->sent);
        if (ends) break;
    }
    g->b->event_record(g->stream, g->ended);
    g->asked = false;
}

/* Enqueues steps up to the next RECEIVE whose message has not arrived. The first step is the
 * RECEIVE whose message the CPU has just sent, or the previous stage has enqueued. */
static void enqueue_segment(gpu_exec *g, const gpu_exec_shape *shape) {
    bool first = true; /* the step's message has arrived */
    if (!g->b->kernels_may_wait && shape->form != FORM_MANY) {
        launch_segment(g, shape);
        return;
    }
    gpu_exec_mark_start(g);
    for (; g->next_step < end_of_layers(g); g->next_step++) {
        const plan_step *s = &g->plan->gpu_steps[g->next_step];
        bool stream = s->cold && g->streaming;
        if (stream && s->op != OP_RECEIVE) continue;
        const bool helpers = stream && STEP_ARGS(s, message)->helpers;
        if (stream && !(first && helpers)) { /* the cold part, from rows that are copied */
            gpu_exec_stream_cold(g, s, shape->n_cols);
            gpu_exec_mark_step(g, g->next_step, true);
        }
        if (stream && !helpers) continue;
        if (ends_segment(g, s, shape) && !first) break;
        gpu_exec_enqueue_step(g, g->next_step, shape);
        gpu_exec_mark_step(g, g->next_step, false);
        if (s->op == OP_SEND && !g->b->kernels_may_wait) g->b->event_record(g->stream, g->sent);
        first = false;
    }
    g->b->event_record(g->stream, g->ended);
    g->asked = false;
}

/* The program for a ubatch of few tokens, recorded if it is missing: it replaces the one that was
 * not used for the longest time. No program is running, because a ubatch begins. NULL: it cannot be
 * recorded. */
static gpu_program *program_for(gpu_exec *g, const gpu_exec_shape *shape) {
    gpu_exec_programs *all = gpu_exec_is_marked(g) ? gpu_exec_marked_programs(g) : &g->programs;
    struct gpu_exec_recorded *e = NULL, *oldest = &all->of[0];
    for (int i = 0; i < all->n && !e; i++) {
        if (has_shape(&all->of[i].shape, shape)) e = &all->of[i];
        if (all->of[i].used < oldest->used) oldest = &all->of[i];
    }
    if (!e) {
        e = all->n < GPU_EXEC_PROGRAMS ? &all->of[all->n++] : oldest;
        g->b->program_free(e->program);
        *e = (struct gpu_exec_recorded){.shape = *shape};
    }
    e->used = g->epoch;
    if (e->program || g->b->record_begin(g->stream, NULL) != PI_OK) return e->program;
    gpu_exec_enqueue_start(g, shape);
    gpu_exec_mark_start(g);
    enqueue_steps(g, shape, 0, end_of_layers(g));
    gpu_exec_enqueue_results(g, shape->first_out, shape->n_out);
    if (g->b->record_end(g->stream, &e->program, NULL) != PI_OK) e->program = NULL;
    return e->program;
}

void gpu_exec_record(gpu_exec *g) {
    const gpu_exec_shape shape = shape_of(g);
    if (!never_waits(g, &shape)) program_for(g, &shape);
}

void gpu_exec_continue(gpu_exec *g) {
    if (g->next_step >= end_of_layers(g)) return;
    const gpu_exec_shape shape = shape_of(g);
    enqueue_segment(g, &shape);
    const plan_step *last = &g->plan->gpu_steps[g->next_step - 1];
    int peer = last->op == OP_SEND ? STEP_ARGS(last, message)->peer : -1;
    if (!never_waits(g, &shape) || peer < 0) return;
    gpu_exec *next = g->sides->gpus[peer];
    assert(STEP_ARGS(&next->plan->gpu_steps[next->next_step], message)->peer == gpu_exec_device(g));
    g->b->stream_wait(next->stream, g->ended);
    gpu_exec_continue(next);
}

void gpu_exec_begin(gpu_exec *g) {
    const gpu_exec_shape shape = shape_of(g);
    g->streaming = shape.form == FORM_MANY && shape.n_cols >= g->stream_from;
    g->sides->ubatch->streaming[gpu_exec_device(g)] = g->streaming;
    write_header(g);
    g->next_step = end_of_layers(g);
    g->ready = shape.n_out;
    gpu_program *program = never_waits(g, &shape) ? NULL : program_for(g, &shape);
    if (program) {
        gpu_exec_mark_program(g, shape.n_out > 0 ? g->plan->n_gpu_steps : end_of_layers(g));
        g->b->program_launch(g->stream, program);
        g->b->event_record(g->stream, g->ended);
        g->asked = false;
        return;
    }
    g->ready = -1;
    /* The first step is a RECEIVE: what the GPU begins with comes from the CPU, or another GPU. */
    g->next_step = 0;
    gpu_exec_enqueue_start(g, &shape);
    if (!ends_segment(g, &g->plan->gpu_steps[0], &shape)) enqueue_segment(g, &shape);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static pi_status download_hidden(gpu_exec *g, pi_error *err) {
    const engine_ubatch *u = g->sides->ubatch;
    int64_t n_embd = g->model->hp.n_embd, ld = g->plan->gpu_width[BUF_Y];
    float *to = u->hidden + u->first_hidden_row * n_embd;
    for (int done = 0; done < u->n_hidden;) {
        const int32_t *rows = u->hidden_rows + done;
        int n = count_run(rows, u->n_hidden - done, g->n_batch);
        gpu_exec_enqueue_hidden(g, rows[0], n);
        for (int i = 0; i < n; i++)
            g->b->download(g->stream, to + (done + i) * n_embd, g->buf[BUF_Y] + i * ld,
                           (size_t)n_embd * sizeof *to);
        /* Again: the norm of hidden states also looks for values that are not finite. */
        g->b->download(g->stream, g->results_host.host, g->count, gpu_exec_counts_bytes(g));
        pi_status status = g->b->stream_sync(g->stream, err);
        if (status != PI_OK) return status;
        done += n;
    }
    return PI_OK;
}

/* Waits for the wanted logits and stores them. A program has enqueued the first ones. */
static pi_status wait_for_results(gpu_exec *g, pi_error *err) {
    const engine_ubatch *u = g->sides->ubatch;
    int n_out = g->plan->head == SIDE_GPU ? u->n_out : 0, done = 0;
    do {
        int n = g->ready;
        if (n < 0) {
            n = count_run(u->out_rows + done, n_out - done, GPU_EXEC_LOGIT_ROWS);
            gpu_exec_mark_start(g);
            gpu_exec_enqueue_results(g, n > 0 ? u->out_rows[done] : 0, n);
        }
        g->ready = -1;
        pi_status status = g->b->stream_sync(g->stream, err);
        if (status != PI_OK) return status;
        const int64_t n_vocab = g->model->hp.n_vocab, ld = g->plan->gpu_width[BUF_LOGITS];
        const uint8_t *host = g->results_host.host;
        const float *from = (const float *)(const void *)(host + gpu_exec_counts_bytes(g));
        float *to = u->logits + (u->first_logits_row + done) * n_vocab;
        for (int i = 0; i < n; i++)
            memcpy(to + i * n_vocab, from + i * ld, (size_t)n_vocab * sizeof *to);
        done += n;
    } while (done < n_out);
    return PI_OK;
}

pi_status gpu_exec_end(gpu_exec *g, bool failed, pi_error *err) {
    pi_status status;
    if (failed) {
        status = g->b->status(g->d, err);
    } else {
        if (g->uses && g->sides->wants_uses)
            g->b->download(g->stream, g->uses_host.host, g->uses, gpu_exec_uses_bytes(g));
        gpu_exec_download_hidden(g);
        status = wait_for_results(g, err);
        if (g->plan->head == SIDE_GPU && status == PI_OK) status = download_hidden(g, err);
        g->counted = status == PI_OK &&
                     plan_form_of(g->plan, SIDE_GPU, g->sides->ubatch->n_tokens) != FORM_MANY;
        if (status == PI_OK) return PI_OK;
    }
    /* Releases a kernel that polls for a flag, and whatever waits for that kernel. */
    g->b->release(g->d);
    g->b->stream_sync(g->stream, NULL);
    g->b->stream_sync(g->side, NULL);
    gpu_exec_swap_wait(g);
    pi_status after = g->b->reset(g->d, status == PI_OK ? err : NULL);
    return status == PI_OK ? after : status;
}

bool gpu_sides_are_alive(const gpu_sides *sides) {
    for (int i = 0; i < sides->n_gpus; i++)
        if (sides->gpus[i] && sides->gpus[i]->b->status(sides->gpus[i]->d, NULL) != PI_OK)
            return false;
    return true;
}

/* ---- counts that a program returns ----------------------------------------------------------- */

int gpu_exec_bad_step(const gpu_exec *g) {
    const int32_t *count = gpu_exec_host_counts(g);
    int32_t mark = count[gpu_exec_counts(g) - 1];
    return mark ? g->plan->first_gpu_step + g->plan->n_gpu_steps - mark : -1;
}

const int32_t *gpu_exec_uses(const gpu_exec *g, int layer) {
    return (const int32_t *)g->uses_host.host + (int64_t)layer * g->plan->n_expert;
}

uint64_t gpu_exec_active(const gpu_exec *g, int layer) {
    const plan_ffn *f = &g->plan->gpu_ffn[layer];
    if (!f->sparse) return 0;
    if (!g->counted || f->sparse->kernel[FORM_FEW] == KERNEL_MASKED) return (uint64_t)f->n_ff;
    const int32_t *count = gpu_exec_host_counts(g), *read = count + g->model->hp.n_layer;
    if (f->down.w.data) return (uint64_t)read[2 * layer + 1];
    if (f->sparse->n_matrices > 1 || f->given) return (uint64_t)read[2 * layer];
    return (uint64_t)(f->selection != SELECT_ALL ? count[layer] : f->n_ff);
}

/* The bytes that a sparse step read. */
static uint64_t sparse_bytes(const gpu_exec *g, const plan_step *s) {
    const plan_ffn *f = STEP_ARGS(s, ffn)->ffn;
    if (!g->counted || f->sparse->kernel[FORM_FEW] == KERNEL_MASKED) return s->weight_bytes;
    const int32_t *count = gpu_exec_host_counts(g), *read = count + g->model->hp.n_layer;
    if (s->op == OP_FFN_DOWN) return (uint64_t)read[2 * s->layer + 1] * f->down.row_size;
    if (f->given) return (uint64_t)read[2 * s->layer] * s->matrix[0].row_size;
    uint64_t rows = (uint64_t)(f->selection != SELECT_ALL ? count[s->layer] : f->n_ff);
    uint64_t sum = rows * s->matrix[0].row_size;
    if (s->n_matrices > 1) sum += (uint64_t)read[2 * s->layer] * s->matrix[1].row_size;
    return sum;
}

/* The bytes of the experts that tokens of the last ubatch used, counted for every use. */
static uint64_t expert_bytes(const gpu_exec *g, const plan_step *s) {
    const plan_experts *e = STEP_ARGS(s, experts)->experts;
    if (!g->counted) return 0;
    const int32_t *read = gpu_exec_host_counts(g) + g->model->hp.n_layer;
    uint64_t used = (uint64_t)read[2 * s->layer], fired = (uint64_t)read[2 * s->layer + 1];
    uint64_t neurons = used * (uint64_t)e->n_ff, sum = 0;
    bool gated = e->gate.w.data;
    if (gated) sum += neurons * e->gate.row_size;
    sum += (gated && e->mode == PI_MODE_EXACT ? fired : neurons) * e->up.row_size;
    if (e->down_rows) return sum + fired * e->down.row_size;
    return sum + used * e->down.row_size * (uint64_t)e->down.w.n_out;
}

uint64_t gpu_exec_step_bytes(const gpu_exec *g, int step) {
    const plan_step *s = &g->plan->gpu_steps[step];
    return plan_step_is_sparse(s) ? sparse_bytes(g, s) : s->weight_bytes;
}

uint64_t gpu_exec_sparse_bytes(const gpu_exec *g) {
    uint64_t sum = 0;
    for (int i = 0; i < g->plan->n_steps && g->streaming; i++) {
        const plan_step *s = &g->plan->steps[i];
        if (s->cold && plan_has(g->plan, s->layer) && plan_step_is_sparse(s))
            sum += s->weight_bytes;
    }
    for (int i = 0; i < g->plan->n_gpu_steps; i++) {
        const plan_step *s = &g->plan->gpu_steps[i];
        if (plan_step_is_sparse(s)) sum += sparse_bytes(g, s);
        if (s->op == OP_EXPERTS_SUM && STEP_ARGS(s, experts)->experts->share == 0)
            sum += expert_bytes(g, s);
    }
    return sum;
}
