/* stage.c: the forward pass on one rank: it receives the residual stream of each ubatch, runs its
 * layers, and sends the stream on. */
#include "stage.h"

#include <math.h>
#include <string.h>

#include "clock.h"
#include "mem.h"

/* ---- the contents of messages
 * ---------------------------------------------------------------------------- */

/* Whether layers from `first` on use the positions that an earlier layer selected. */
static bool continues_selection(const model *m, int first) {
    for (int i = first; i < m->hp.n_layer && !m->layers[i].hp.index_own; i++)
        if (m->layers[i].hp.index_shared) return true;
    return false;
}

/* Bytes that are copied to or from a message, or only counted. */
typedef struct stage_cursor {
    uint8_t *at; /* NULL: counts */
    size_t n;
    bool reads; /* from the message */
} stage_cursor;

static void move_bytes(stage_cursor *k, void *memory, size_t n) {
    if (k->at && k->reads) memcpy(memory, k->at + k->n, n);
    if (k->at && !k->reads) memcpy(k->at + k->n, memory, n);
    k->n += n;
}

static void move_rows(stage_cursor *k, const engine_context *c, plan_buffer b, int64_t at,
                      int64_t n) {
    for (int row = 0; row < c->cpu.ubatch.n_tokens && n > 0; row++)
        move_bytes(k, cpu_exec_row(&c->cpu, b, row) + at, (size_t)n * sizeof(float));
}

/* Everything that the layers from `first` on need of a ubatch from earlier layers: the residual
 * stream, embeddings per layer or the embedding itself, rows of KV caches that earlier layers
 * wrote, and the positions that they selected. */
static void move_ubatch(stage_cursor *k, const engine_context *c, int first) {
    const model *m = c->cpu.model;
    const model_hparams *hp = &m->hp;
    const engine_ubatch *u = &c->cpu.ubatch;
    move_rows(k, c, plan_residual(c->cpu.plan), 0, plan_residual_width(m));
    if (model_keeps_embedding(m) || model_keeps_values(m)) {
        const int64_t n = hp->n_embd_layer;
        move_rows(k, c, BUF_LAYER_EMBD, n > 0 ? first * n : 0,
                  n > 0 ? (hp->n_layer - first) * n : hp->n_embd);
    }
    for (int layer = 0; layer < first; layer++) {
        if (!plan_holds_cache(m, first, hp->n_layer, layer)) continue;
        for (int i = 0; i < u->n_items; i++) {
            const kv_cache *kv = &u->items[i].session->kv;
            const kv_layer *l = &kv->layers[layer];
            for (int32_t j = 0; j < kv_layer_pieces(l); j++) {
                const kv_piece piece = kv_layer_piece(l, j);
                move_bytes(k, kv_cache_row(kv, layer, piece.part, piece.head, u->items[i].pos),
                           (size_t)u->items[i].n_tokens * l->row[piece.part]);
            }
        }
    }
    for (int i = 0; i < u->n_items && continues_selection(m, first); i++) {
        const block_scores *b = &u->items[i].session->blocks;
        for (int j = 0; j < u->items[i].n_tokens && b->data && b->n_list > 0; j++)
            move_bytes(k, cpu_exec_block_list(&u->items[i], j),
                       (size_t)b->n_list * sizeof(int32_t));
    }
}

/* ---- creating -------------------------------------------------------------------------------- */

static pi_status check_gpus(const engine_context *c, int first, pi_error *err) {
    const model *m = c->cpu.model;
    bool shares = continues_selection(m, first);
    for (int i = 0; i < first; i++) shares = shares || plan_holds_cache(m, first, m->hp.n_layer, i);
    if (!shares || c->gpu.n_gpus == 0) return PI_OK;
    return error_set(
        err, PI_ERR_UNSUPPORTED,
        "layers of two machines share a KV cache, which GPUs cannot send: layer %d: use "
        "the CPU, or divide the layers before layer %d",
        first, model_shared_from(m) + 1);
}

pi_status stage_create(engine_context *c, pi_error *err) {
    const engine_stages *o = c->options.stages;
    engine_stage *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "stage");
    c->stage = s;
    s->cluster = o->cluster;
    s->rank = cluster_rank(o->cluster);
    s->n_ranks = cluster_ranks(o->cluster);
    memcpy(s->end, o->end, sizeof s->end);
    size_t n = (size_t)c->n_batch;
    s->inputs = mem_calloc(n, sizeof *s->inputs);
    s->rows = mem_calloc(n, sizeof *s->rows);
    bool made = s->inputs && s->rows;
    s->max_passes = s->n_ranks < STAGE_PASSES ? s->n_ranks : STAGE_PASSES;
    if (c->cpu.paging) s->max_passes = 1; /* the ring follows one pass */
    for (int i = 0; i < s->max_passes && s->rank == 0 && made; i++) {
        s->passes[i].inputs = mem_calloc(n, sizeof *s->passes[i].inputs);
        made = s->passes[i].inputs != NULL;
    }
    for (int i = 0; i < STAGE_PENDING && s->rank == 0 && made; i++) {
        s->pending[i].out = mem_calloc(2 * n, sizeof *s->pending[i].out);
        made = s->pending[i].out != NULL;
        if (made) s->pending[i].hidden = s->pending[i].out + n;
    }
    if (!made) return error_nomem(err, n * sizeof *s->inputs, "stage");
    if (s->rank == 0) c->host.ranks = &stage_sessions;
    pi_status status = PI_OK;
    if (s->rank > 0) status = check_gpus(c, c->cpu.plan->first_layer, err);
    if (status == PI_OK && s->rank < s->n_ranks - 1)
        status = check_gpus(c, c->cpu.plan->end_layer, err);
    return status;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int next_rank(const engine_stage *s) {
    return s->rank + 1 < s->n_ranks ? s->rank + 1 : 0;
}

static pi_status send_error(engine_context *c, const pi_error *why, pi_error *err) {
    engine_stage *s = c->stage;
    size_t n = strlen(why->message) + 1;
    const stage_header header = {.status = (int32_t)why->status};
    void *message;
    pi_status status = cluster_reserve(s->cluster, sizeof header + n, &message, err);
    if (status != PI_OK) return status;
    memcpy(message, &header, sizeof header);
    memcpy((uint8_t *)message + sizeof header, why->message, n);
    return cluster_send(s->cluster, next_rank(s), CLUSTER_ACTIVATIONS, err);
}

/* The rows of the ubatch for which logits or hidden states are wanted, ascending, in s->rows. */
static int wanted_rows(const engine_context *c) {
    const engine_ubatch *u = &c->cpu.ubatch;
    int n = 0;
    for (int i = 0, j = 0; i < u->n_out || j < u->n_hidden; n++) {
        int32_t a = i < u->n_out ? u->out_rows[i] : INT32_MAX;
        int32_t b = j < u->n_hidden ? u->hidden_rows[j] : INT32_MAX;
        c->stage->rows[n] = a < b ? a : b;
        i += a <= b;
        j += b <= a;
    }
    return n;
}

/* Sends the wanted rows from the last rank to rank 0. */
static pi_status send_wanted(engine_context *c, int n_rows, pi_error *err) {
    engine_stage *s = c->stage;
    const stage_header header = {.status = PI_OK, .n_rows = n_rows};
    size_t row = (size_t)plan_residual_width(c->cpu.model) * sizeof(float);
    void *message;
    pi_status status = cluster_reserve(s->cluster, sizeof header + (size_t)n_rows * row, &message,
                                       err);
    if (status != PI_OK) return status;
    memcpy(message, &header, sizeof header);
    uint8_t *at = (uint8_t *)message + sizeof header;
    for (int i = 0; i < n_rows; i++, at += row)
        memcpy(at, cpu_exec_row(&c->cpu, plan_residual(c->cpu.plan), s->rows[i]), row);
    return cluster_send(s->cluster, 0, CLUSTER_ACTIVATIONS, err);
}

static pi_status send_ubatch(engine_context *c, pi_error *err) {
    engine_stage *s = c->stage;
    const int first = c->cpu.plan->end_layer;
    const stage_header header = {.status = PI_OK, .n_rows = c->cpu.ubatch.n_tokens};
    stage_cursor count = {0};
    void *message;
    move_ubatch(&count, c, first);
    pi_status status = cluster_reserve(s->cluster, sizeof header + count.n, &message, err);
    if (status != PI_OK) return status;
    memcpy(message, &header, sizeof header);
    stage_cursor out = {.at = (uint8_t *)message + sizeof header};
    move_ubatch(&out, c, first);
    return cluster_send(s->cluster, next_rank(s), CLUSTER_ACTIVATIONS, err);
}

/* Prefixes an error that occurred on this rank with the rank and its machine. */
static void name_rank(const engine_context *c, pi_error *err) {
    const pi_error why = *err;
    if (why.status != PI_ERR_CANCELLED)
        cluster_name_rank(c->stage->cluster, c->stage->rank, why.status, why.message, err);
}

/* Receives a stream into s->in. The status is that of the ubatch on earlier ranks; *is_over: the
 * sender sends nothing more in this pass. */
static pi_status receive(engine_context *c, int from, bool *is_over, pi_error *err) {
    engine_stage *s = c->stage;
    stage_header header;
    *is_over = true;
    pi_status status = cluster_receive(s->cluster, from, CLUSTER_ACTIVATIONS, &s->in, err);
    if (status != PI_OK) return status;
    if (s->in.n < sizeof header)
        return cluster_name_rank(s->cluster, from, PI_ERR_FORMAT, "a message is too short", err);
    memcpy(&header, s->in.data, sizeof header);
    if (header.status == PI_OK) {
        *is_over = false;
        return PI_OK;
    }
    s->in.data[s->in.n - 1] = '\0';
    return error_set(err, (pi_status)header.status, "%s", (const char *)s->in.data + sizeof header);
}

static pi_status wrong_size(engine_context *c, pi_error *err) {
    cluster_fail(c->stage->cluster);
    return error_set(err, PI_ERR_FORMAT, "a stream of another rank has a wrong size");
}

static pi_status receive_ubatch(engine_context *c, bool *is_over, pi_error *err) {
    engine_stage *s = c->stage;
    pi_status status = receive(c, s->rank - 1, is_over, err);
    if (status != PI_OK) return status;
    const int first = c->cpu.plan->first_layer;
    stage_cursor count = {0};
    move_ubatch(&count, c, first);
    if (s->in.n != sizeof(stage_header) + count.n) return wrong_size(c, err);
    stage_cursor in = {.at = s->in.data + sizeof(stage_header), .reads = true};
    move_ubatch(&in, c, first);
    return PI_OK;
}

/* ---- rank 0: the head ------------------------------------------------------------------------ */

/* Stores the rows of the ubatch for the head. */
static void push_pending(engine_context *c, stage_pass *pass, int n_rows) {
    engine_stage *s = c->stage;
    const engine_ubatch *u = &c->cpu.ubatch;
    stage_pending *p = &s->pending[(s->first_pending + s->n_pending++) % STAGE_PENDING];
    pass->n_pending++;
    p->n_rows = n_rows;
    p->form = u->form;
    p->n_out = u->n_out;
    p->n_hidden = u->n_hidden;
    p->first_logits_row = u->first_logits_row;
    p->first_hidden_row = u->first_hidden_row;
    for (int i = 0, k = 0; i < u->n_out; i++) {
        while (s->rows[k] != u->out_rows[i]) k++;
        p->out[i] = k;
    }
    for (int i = 0, k = 0; i < u->n_hidden; i++) {
        while (s->rows[k] != u->hidden_rows[i]) k++;
        p->hidden[i] = k;
    }
}

/* Computes logits and hidden states of a ubatch from the received rows. With a pager the pass over
 * the weights that began with the layers of this ubatch goes on. */
static pi_status run_head(engine_context *c, const stage_pending *p, pi_error *err) {
    engine_ubatch *u = &c->cpu.ubatch;
    const plan *all = c->cpu.plan;
    size_t row = (size_t)plan_residual_width(c->cpu.model) * sizeof(float);
    if (c->stage->in.n != sizeof(stage_header) + (size_t)p->n_rows * row) return wrong_size(c, err);
    for (int i = 0; i < p->n_rows; i++)
        memcpy(cpu_exec_row(&c->cpu, plan_residual(all), i),
               c->stage->in.data + sizeof(stage_header) + (size_t)i * row, row);
    u->n_tokens = p->n_rows;
    u->n_items = 0;
    u->n_out = p->n_out;
    u->n_hidden = p->n_hidden;
    u->first_logits_row = p->first_logits_row;
    u->first_hidden_row = p->first_hidden_row;
    memcpy(u->out_rows, p->out, (size_t)p->n_out * sizeof *p->out);
    memcpy(u->hidden_rows, p->hidden, (size_t)p->n_hidden * sizeof *p->hidden);
    int end = p->n_out > 0 ? all->n_steps : all->n_layer_steps;
    if (c->cpu.paging) {
        u->first_step = all->n_stage_steps;
        u->end_step = end;
    } else {
        forward_begin(c, all->n_stage_steps, end);
    }
    u->form = p->form; /* rows are joined as in a pass of all tokens */
    u->head_form = plan_form_of(all, SIDE_CPU, p->n_out);
    forward_run(c);
    bool cancelled = atomic_exchange(&c->cancelled, false);
    pi_status status = c->cpu.paging ? paging_end(c->cpu.paging, !cancelled, err) : PI_OK;
    if (status != PI_OK) return status;
    if (cancelled)
        return error_set(err, PI_ERR_CANCELLED, "cancelled: forward: no session has changed");
    cpu_exec_hidden(&c->cpu);
    if (p->n_out > 0) c->counters.weight_bytes += all->head_bytes;
    return context_check_finite(c, err);
}

/* Receives the oldest pending ubatch, which is one of `pass`. */
static pi_status take_pending(engine_context *c, stage_pass *pass, pi_error *err) {
    engine_stage *s = c->stage;
    const stage_pending *p = &s->pending[s->first_pending];
    pi_status status = receive(c, s->n_ranks - 1, &pass->is_over, err);
    s->first_pending = (s->first_pending + 1) % STAGE_PENDING;
    s->n_pending--;
    pass->n_pending--;
    if (status != PI_OK || p->n_rows == 0) return status;
    double start = clock_seconds();
    status = run_head(c, p, err);
    if (status != PI_OK && err) name_rank(c, err);
    s->computing += clock_seconds() - start;
    return status;
}

/* Receives and drops what other ranks still send in a pass that failed. */
static void drain(engine_context *c, stage_pass *pass) {
    engine_stage *s = c->stage;
    while (pass->n_pending > 0) {
        if (!pass->is_over && !cluster_failed(s->cluster))
            (void)receive(c, s->n_ranks - 1, &pass->is_over, NULL);
        s->first_pending = (s->first_pending + 1) % STAGE_PENDING;
        s->n_pending--;
        pass->n_pending--;
    }
}

void stage_destroy(engine_context *c) {
    engine_stage *s = c->stage;
    if (!s) return;
    for (; s->n_passes > 0; s->n_passes--) {
        drain(c, &s->passes[s->first_pass]);
        s->first_pass = (s->first_pass + 1) % s->max_passes;
    }
    if (s->rank == 0 && !cluster_failed(s->cluster))
        (void)stage_send_command(c, &(stage_command){.op = STAGE_END}, NULL);
    cluster_buffer_free(&s->in);
    cluster_buffer_free(&s->command);
    for (int i = 0; i < STAGE_PASSES; i++) mem_free(s->passes[i].inputs);
    for (int i = 0; i < STAGE_PENDING; i++) mem_free(s->pending[i].out);
    mem_free(s->inputs);
    mem_free(s->rows);
    mem_free(s);
    c->stage = NULL;
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* Runs this rank's layers for the ubatch. `open`: the pager does not end its pass over the weights
 * yet, because the head follows. */
static pi_status run_layers(engine_context *c, bool open, pi_error *err) {
    engine_ubatch *u = &c->cpu.ubatch;
    const int n_out = u->n_out, n_hidden = u->n_hidden;
    double start = clock_seconds();
    pi_status status = PI_OK;
    if (c->cpu.trace) context_trace_begin(c);
    u->n_out = u->n_hidden = 0; /* the head has its own steps */
    context_gpus_begin(c);
    forward_begin(c, 0, c->cpu.plan->n_stage_steps);
    forward_run(c);
    if (!open || atomic_load(&c->stop)) status = forward_end(c, err);
    if (c->cpu.trace) context_trace_end(c, status == PI_OK);
    if (status == PI_OK) forward_count(c);
    u->n_out = n_out;
    u->n_hidden = n_hidden;
    c->stage->computing += clock_seconds() - start;
    c->stage->ubatches++;
    return status;
}

/* Sends the inputs of the pass to the other ranks. */
static pi_status send_inputs(engine_context *c, const pi_input *inputs, int n_inputs,
                             pi_error *err) {
    engine_stage *s = c->stage;
    size_t n = 0;
    for (int i = 0; i < n_inputs; i++)
        n += sizeof(stage_input) + (size_t)inputs[i].n_tokens * sizeof(int32_t);
    const stage_command command = {.op = STAGE_FORWARD, .a = {n_inputs}};
    for (int rank = 1; rank < s->n_ranks; rank++) {
        void *message;
        pi_status status = cluster_reserve(s->cluster, sizeof command + n, &message, err);
        if (status != PI_OK) return status;
        memcpy(message, &command, sizeof command);
        uint8_t *at = (uint8_t *)message + sizeof command;
        for (int i = 0; i < n_inputs; i++, at += sizeof(stage_input)) {
            const stage_input input = {.session = inputs[i].session->number,
                                       .n_tokens = inputs[i].n_tokens,
                                       .n_drafts = inputs[i].n_drafts,
                                       .logits = (int32_t)inputs[i].logits,
                                       .hidden = (int32_t)inputs[i].hidden};
            memcpy(at, &input, sizeof input);
        }
        for (int i = 0; i < n_inputs; i++) {
            size_t n_bytes = (size_t)inputs[i].n_tokens * sizeof(int32_t);
            memcpy(at, inputs[i].tokens, n_bytes);
            at += n_bytes;
        }
        status = cluster_send(s->cluster, rank, CLUSTER_COMMANDS, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* Sends the error to the next rank; it comes back through all ranks, as the pass's last message. */
static void send_abort(engine_context *c, stage_pass *pass) {
    engine_stage *s = c->stage;
    (void)send_error(c, &pass->why, NULL);
    s->n_pending++;
    pass->n_pending++;
}

/* Runs the layers of rank 0 for all ubatches of a pass, and the head for those that have come back
 * from the other ranks. The head runs in the order of the passes, so only in the oldest pass; with
 * a pager it runs right after each ubatch. Rows of results are counted before the head runs. */
static void run_first(engine_context *c, stage_pass *pass) {
    engine_stage *s = c->stage;
    request_cursor at = {0};
    const bool oldest = s->n_passes == 1;
    engine_ubatch *u = &c->cpu.ubatch;
    while (pass->status == PI_OK && request_next_ubatch(c, pass->inputs, pass->n_inputs, &at)) {
        int n_rows = wanted_rows(c);
        bool open = c->cpu.paging && n_rows > 0 && oldest;
        u->first_logits_row = pass->logits_rows;
        u->first_hidden_row = pass->hidden_rows;
        pass->status = run_layers(c, open, &pass->why);
        if (pass->status != PI_OK) {
            name_rank(c, &pass->why);
            send_abort(c, pass);
            break;
        }
        pass->status = send_ubatch(c, &pass->why);
        if (pass->status != PI_OK) break;
        pass->logits_rows += u->n_out;
        pass->hidden_rows += u->n_hidden;
        push_pending(c, pass, n_rows);
        while (pass->status == PI_OK && oldest && pass->n_pending > 0 &&
               (open || pass->n_pending > s->n_ranks ||
                cluster_arrived(s->cluster, s->n_ranks - 1, CLUSTER_ACTIVATIONS)))
            pass->status = take_pending(c, pass, &pass->why);
        /* After an error of another rank or of the head the ranks before that one wait for more. */
        if (pass->status != PI_OK && at.index < pass->n_inputs && !cluster_failed(s->cluster))
            send_abort(c, pass);
    }
}

pi_status stage_begin(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err) {
    engine_stage *s = c->stage;
    if (s->n_passes == s->max_passes)
        return error_set(err, PI_ERR_LIMIT, "too many passes under way: %d", s->n_passes);
    /* The ubatches of the pass, at most: tokens that share ubatches, and tokens alone in one. */
    const int room = request_max_tokens(c);
    int64_t together = 0, alone = 0;
    for (int i = 0; i < n_inputs; i++) {
        const pi_session *of = inputs[i].session;
        const bool apart = of->state.n_floats > 0 || of->blocks.data;
        if (c->options.plan.few_only && apart)
            alone += inputs[i].n_tokens;
        else
            together += inputs[i].n_tokens;
    }
    const int64_t n_ubatches = alone + (together + room - 1) / room;
    if (s->n_passes > 0 && n_ubatches > STAGE_PENDING - s->n_pending - s->max_passes)
        return error_set(err, PI_ERR_LIMIT, "too many tokens while another pass is under way");
    pi_status status = send_inputs(c, inputs, n_inputs, err);
    if (status != PI_OK) return status;
    stage_pass *pass = &s->passes[(s->first_pass + s->n_passes++) % s->max_passes];
    *pass = (stage_pass){.inputs = pass->inputs, .n_inputs = n_inputs};
    memcpy(pass->inputs, inputs, (size_t)n_inputs * sizeof *inputs);
    for (int i = 0; i < n_inputs; i++) {
        inputs[i].session->in_pass = true;
        recurrent_begin(&inputs[i].session->state, inputs[i].n_tokens, inputs[i].n_drafts);
    }
    run_first(c, pass);
    return PI_OK;
}

pi_status stage_end(engine_context *c, int *n_logits, int *n_hidden, pi_error *err) {
    engine_stage *s = c->stage;
    if (s->n_passes == 0) return error_set(err, PI_ERR_ARG, "no forward pass is under way");
    stage_pass *pass = &s->passes[s->first_pass];
    while (pass->status == PI_OK && pass->n_pending > 0)
        pass->status = take_pending(c, pass, &pass->why);
    s->first_pass = (s->first_pass + 1) % s->max_passes;
    s->n_passes--;
    for (int i = 0; i < pass->n_inputs; i++) pass->inputs[i].session->in_pass = false;
    if (pass->status == PI_OK) {
        for (int i = 0; i < pass->n_inputs; i++) forward_grow(&pass->inputs[i]);
        *n_logits = pass->logits_rows;
        *n_hidden = pass->hidden_rows;
        return PI_OK;
    }
    drain(c, pass);
    for (int i = 0; i < pass->n_inputs && !cluster_failed(s->cluster); i++) {
        const pi_session *grown = pass->inputs[i].session; /* on other ranks */
        (void)stage_send_command(
            c, &(stage_command){.op = STAGE_REWIND, .a = {grown->number, grown->length}}, NULL);
    }
    if (err) *err = pass->why;
    return pass->status;
}

pi_status stage_run(engine_context *c, const pi_input *inputs, int n_inputs, pi_error *err) {
    engine_stage *s = c->stage;
    request_cursor at = {0};
    bool is_over = false, last = s->rank == s->n_ranks - 1;
    pi_error why = {.status = PI_OK}, text;
    pi_status status = PI_OK;
    while (!is_over && !cluster_failed(s->cluster) &&
           request_next_ubatch(c, inputs, n_inputs, &at)) {
        if (status != PI_OK) { /* of an earlier ubatch: this one is not computed */
            (void)receive(c, s->rank - 1, &is_over, NULL);
            continue;
        }
        status = receive_ubatch(c, &is_over, &why);
        bool own = status == PI_OK;
        if (own) status = run_layers(c, false, &why);
        if (status == PI_OK) {
            status = last ? send_wanted(c, wanted_rows(c), &why) : send_ubatch(c, &why);
            c->cpu.ubatch.first_logits_row += c->cpu.ubatch.n_out;
            c->cpu.ubatch.first_hidden_row += c->cpu.ubatch.n_hidden;
        } else if (!cluster_failed(s->cluster)) {
            text = why;
            if (own) name_rank(c, &text);
            (void)send_error(c, &text, NULL);
        }
    }
    if (status != PI_OK && err) *err = why;
    return status;
}

static void fill_noise(float *x, int64_t n, uint32_t *state) {
    for (int64_t i = 0; i < n; i++, *state = *state * 1664525 + 1013904223)
        x[i] = (float)(*state >> 8) * 0x1p-23f - 1;
}

pi_status engine_time_stage(engine_context *c, const pi_input *in, double *seconds, pi_error *err) {
    const plan *p = c->cpu.plan;
    const bool head = in->logits != PI_LOGITS_NONE;
    const int64_t n_embd = c->cpu.model->hp.n_embd, width = p->width[plan_residual(p)];
    request_cursor at = {0};
    *seconds = 0;
    pi_status status = request_check(c, in, 1, err);
    if (status == PI_OK) recurrent_begin(&in->session->state, in->n_tokens, 0);
    while (status == PI_OK && request_next_ubatch(c, in, 1, &at)) {
        /* The residual stream is made of embeddings, because the number of neurons that a sparse
         * FFN computes depends on the distribution of the inputs; of noise if the file has no
         * embeddings (a rank that received its layers). */
        uint32_t noise = 1;
        for (int row = 0; row < c->cpu.ubatch.n_tokens && (p->first_layer > 0 || head); row++) {
            float *x = cpu_exec_row(&c->cpu, plan_residual(p), row), sum = 0;
            cpu_exec_token_embedding(&c->cpu, c->cpu.ubatch.tokens[row], x);
            for (int64_t i = 0; i < n_embd; i++) sum += fabsf(x[i]);
            if (!(sum > 0)) fill_noise(x, n_embd, &noise);
            for (int64_t i = n_embd; i < width; i++) x[i] = x[i - n_embd]; /* other streams */
            fill_noise(cpu_exec_row(&c->cpu, BUF_LAYER_EMBD, row), p->width[BUF_LAYER_EMBD],
                       &noise);
        }
        double start = clock_seconds();
        if (!head) context_gpus_begin(c);
        forward_begin(c, head ? p->n_stage_steps : 0, head ? p->n_steps : p->n_stage_steps);
        forward_run(c);
        if (!head) status = forward_end(c, err); /* the head runs on the CPU only */
        *seconds += clock_seconds() - start;
    }
    return status;
}
