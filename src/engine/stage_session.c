/* stage_session.c: commands of rank 0 to the other ranks, which create and change sessions or begin
 * a forward pass (stage.c), and the loop in which the other ranks carry them out. */
#include <string.h>

#include "mem.h"
#include "stage.h"

/* ---- rank 0: commands ------------------------------------------------------------------------ */

pi_status stage_send_command(engine_context *c, const stage_command *command, pi_error *err) {
    engine_stage *s = c->stage;
    for (int rank = 1; rank < s->n_ranks; rank++) {
        void *message;
        pi_status status = cluster_reserve(s->cluster, sizeof *command, &message, err);
        if (status != PI_OK) return status;
        memcpy(message, command, sizeof *command);
        status = cluster_send(s->cluster, rank, CLUSTER_COMMANDS, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

pi_status stage_wait_reply(engine_context *c, int rank, pi_error *err) {
    engine_stage *s = c->stage;
    stage_reply reply;
    pi_status status = cluster_receive(s->cluster, rank, CLUSTER_REPLIES, &s->in, err);
    if (status != PI_OK) return status;
    if (s->in.n != sizeof reply) {
        cluster_fail(s->cluster);
        return cluster_name_rank(s->cluster, rank, PI_ERR_FORMAT, "an answer has a wrong size",
                                 err);
    }
    memcpy(&reply, s->in.data, sizeof reply);
    reply.message[sizeof reply.message - 1] = '\0';
    if (reply.status == PI_OK) return PI_OK;
    return cluster_name_rank(s->cluster, rank, (pi_status)reply.status, reply.message, err);
}

static pi_status wait_replies(engine_context *c, pi_error *err) {
    pi_status first = PI_OK;
    for (int rank = 1; rank < c->stage->n_ranks; rank++) {
        pi_status status = stage_wait_reply(c, rank, first == PI_OK ? err : NULL);
        if (first == PI_OK) first = status;
    }
    return first;
}

pi_status stage_run_command(engine_context *c, const stage_command *command, pi_error *err) {
    pi_status status = stage_send_command(c, command, err);
    return status == PI_OK ? wait_replies(c, err) : status;
}

pi_status stage_session_create(engine_context *c, pi_session *s, pi_error *err) {
    engine_stage *stage = c->stage;
    if (stage->rank > 0) return PI_OK;
    s->number = stage->next_number++;
    pi_status status = stage_run_command(
        c, &(stage_command){.op = STAGE_CREATE, .a = {s->number, s->kv.n_ctx}}, err);
    if (status != PI_OK) stage_session_destroy(s);
    return status;
}

void stage_session_destroy(pi_session *s) {
    engine_context *c = s->context;
    if (c->stage->rank > 0 || cluster_failed(c->stage->cluster)) return;
    (void)stage_send_command(c, &(stage_command){.op = STAGE_DESTROY, .a = {s->number}}, NULL);
}

/* ---- rank 0: parts of sessions --------------------------------------------------------------- */

static pi_status get(const pi_session *s, int layer, int64_t first, int64_t n, void *to,
                     pi_error *err) {
    engine_context *c = s->context;
    int rank = 0;
    while (layer >= c->stage->end[rank]) rank++;
    const stage_command command = {.op = STAGE_GET, .a = {s->number, layer, first, n}};
    pi_status status = stage_send_command(c, &command, err);
    if (status == PI_OK) status = stage_wait_reply(c, rank, err);
    if (status != PI_OK) return status;
    size_t n_bytes = kv_layer_bytes(&s->kv.layers[layer], n);
    return cluster_receive_bulk(c->stage->cluster, rank, to, n_bytes, err);
}

static pi_status put(pi_session *s, int layer, int64_t first, int64_t n, const void *from,
                     int64_t n_stored, pi_error *err) {
    engine_context *c = s->context;
    const stage_command command = {.op = STAGE_PUT, .a = {s->number, layer, first, n, n_stored}};
    size_t n_bytes = kv_layer_bytes(&s->kv.layers[layer], n_stored);
    pi_status status = stage_send_command(c, &command, err);
    const int *end = c->stage->end;
    for (int rank = 1; rank < c->stage->n_ranks && status == PI_OK; rank++)
        if (plan_holds_cache(c->cpu.model, end[rank - 1], end[rank], layer))
            status = cluster_send_bulk(c->stage->cluster, rank, from, n_bytes, err);
    return status == PI_OK ? wait_replies(c, err) : status;
}

/* Floats of a rank's recurrent layers. */
static size_t state_floats(const engine_context *c, int rank) {
    const model *m = c->cpu.model;
    size_t n = 0;
    for (int i = rank > 0 ? c->stage->end[rank - 1] : 0; i < c->stage->end[rank]; i++)
        n += (size_t)model_state(&m->hp, &m->layers[i].hp);
    return n;
}

static pi_status get_state(const pi_session *s, int64_t length, float *to, pi_error *err) {
    engine_context *c = s->context;
    pi_status status = stage_run_command(
        c, &(stage_command){.op = STAGE_GET_STATE, .a = {s->number, length}}, err);
    for (int rank = 1; rank < c->stage->n_ranks && status == PI_OK; rank++) {
        size_t n = state_floats(c, rank);
        status = cluster_receive_bulk(c->stage->cluster, rank, to, n * sizeof *to, err);
        to += n;
    }
    return status;
}

static pi_status put_state(pi_session *s, int64_t first, int64_t length, const float *from,
                           pi_error *err) {
    engine_context *c = s->context;
    if (cluster_failed(c->stage->cluster)) return PI_ERR_DEVICE;
    const stage_command command = {.op = STAGE_END_LOAD, .a = {s->number, first, length}};
    pi_status status = stage_send_command(c, &command, err);
    for (int rank = 1; rank < c->stage->n_ranks && status == PI_OK && from; rank++) {
        size_t n = length > 0 ? state_floats(c, rank) : 0;
        status = cluster_send_bulk(c->stage->cluster, rank, from, n * sizeof *from, err);
        from += n;
    }
    return status == PI_OK ? wait_replies(c, err) : status;
}

static pi_status rewind_others(pi_session *s, int64_t length, pi_error *err) {
    const stage_command command = {.op = STAGE_REWIND, .a = {s->number, length}};
    return stage_send_command(s->context, &command, err);
}

static pi_status copy_others(pi_session *to, const pi_session *from, int64_t length,
                             pi_error *err) {
    const stage_command command = {.op = STAGE_COPY, .a = {to->number, from->number, length}};
    return stage_run_command(to->context, &command, err);
}

static pi_status remove_others(pi_session *s, int64_t first, int64_t end, pi_error *err) {
    const stage_command command = {.op = STAGE_REMOVE, .a = {s->number, first, end}};
    return stage_run_command(s->context, &command, err);
}

const session_ranks stage_sessions = {.get = get,
                                      .put = put,
                                      .get_state = get_state,
                                      .put_state = put_state,
                                      .rewind = rewind_others,
                                      .copy = copy_others,
                                      .remove = remove_others};

/* ---- usage ----------------------------------------------------------------------------------- */

static engine_rank_usage own_usage(const engine_context *c) {
    const cluster_usage u = cluster_get_usage(c->stage->cluster);
    return (engine_rank_usage){.computing = c->stage->computing,
                               .waiting = u.waiting,
                               .sending = u.sending,
                               .sent_bytes = u.sent_bytes,
                               .ubatches = c->stage->ubatches};
}

pi_status engine_get_ranks(engine_context *c, engine_rank_usage *out, pi_error *err) {
    out[0] = own_usage(c);
    pi_status status = stage_send_command(c, &(stage_command){.op = STAGE_USAGE}, err);
    for (int rank = 1; rank < c->stage->n_ranks && status == PI_OK; rank++)
        status = cluster_receive_bulk(c->stage->cluster, rank, &out[rank], sizeof *out, err);
    return status;
}

/* ---- other ranks ----------------------------------------------------------------------------- */

static pi_session *find(engine_context *c, int64_t number) {
    pi_session *s = c->sessions;
    while (s && s->number != number) s = s->next;
    return s;
}

static pi_status reply(engine_context *c, pi_status result, const pi_error *why, pi_error *err) {
    void *message;
    pi_status status = cluster_reserve(c->stage->cluster, sizeof(stage_reply), &message, err);
    if (status != PI_OK) return status;
    stage_reply *r = message;
    *r = (stage_reply){.status = (int32_t)result};
    if (result != PI_OK) memcpy(r->message, why->message, sizeof r->message);
    return cluster_send(c->stage->cluster, 0, CLUSTER_REPLIES, err);
}

/* Answers with the bytes that `get_bytes` of STAGE_GET and STAGE_GET_STATE are. */
static pi_status answer_get(engine_context *c, const stage_command *k, pi_session *s,
                            pi_error *err) {
    const bool of_layer = k->op == STAGE_GET;
    if (of_layer && !plan_owns(c->cpu.plan, (int)k->a[1])) return PI_OK; /* another rank answers */
    size_t n = of_layer ? kv_layer_bytes(&s->kv.layers[k->a[1]], k->a[3])
                        : (size_t)c->cpu.plan->n_own_state * sizeof(float);
    pi_error why;
    void *bytes = mem_alloc(n + 1);
    pi_status result = bytes ? PI_OK : error_nomem(&why, n, "a part of a session");
    if (result == PI_OK)
        result = of_layer ? session_get_layer(s, (int)k->a[1], k->a[2], k->a[3], bytes, &why)
                          : session_get_own_state(s, k->a[1], bytes, &why);
    pi_status status = reply(c, result, &why, err);
    if (status == PI_OK && result == PI_OK)
        status = cluster_send_bulk(c->stage->cluster, 0, bytes, n, err);
    mem_free(bytes);
    return status;
}

static pi_status answer_put(engine_context *c, const stage_command *k, pi_session *s,
                            pi_error *err) {
    const bool of_layer = k->op == STAGE_PUT;
    size_t n = (size_t)c->cpu.plan->n_own_state * sizeof(float);
    if (of_layer) {
        const kv_layer *l = &s->kv.layers[k->a[1]];
        n = l->held ? kv_layer_bytes(l, k->a[4]) : 0;
    } else if (k->a[2] == 0) {
        n = 0;
    }
    pi_error why;
    void *bytes = mem_alloc(n + 1);
    if (!bytes) { /* rank 0 sends the bytes in any case */
        cluster_fail(c->stage->cluster);
        return error_nomem(err, n, "a part of a session");
    }
    pi_status result = PI_OK;
    pi_status status = cluster_receive_bulk(c->stage->cluster, 0, bytes, n, err);
    if (status == PI_OK && of_layer && n > 0)
        result = session_put_layer(s, (int)k->a[1], k->a[2], k->a[3], bytes, k->a[4], &why);
    if (status == PI_OK && !of_layer) result = session_end_load(s, k->a[1], k->a[2], bytes, &why);
    mem_free(bytes);
    return status == PI_OK ? reply(c, result, &why, err) : status;
}

/* Evaluates the inputs of a command. An error travels with the ubatches. */
static pi_status run_pass(engine_context *c, const stage_command *k, pi_error *err) {
    engine_stage *s = c->stage;
    const cluster_buffer *b = &s->command;
    const uint8_t *at = b->data + sizeof *k, *end = b->data + b->n;
    bool fits = k->a[0] >= 1 && k->a[0] <= c->n_batch &&
                (size_t)(end - at) >= (size_t)k->a[0] * sizeof(stage_input);
    const uint8_t *tokens = at + (fits ? (size_t)k->a[0] * sizeof(stage_input) : 0);
    for (int64_t i = 0; i < k->a[0] && fits; i++, at += sizeof(stage_input)) {
        stage_input input;
        memcpy(&input, at, sizeof input);
        size_t n_bytes = (size_t)input.n_tokens * sizeof(int32_t);
        fits = input.n_tokens > 0 && n_bytes <= (size_t)(end - tokens);
        s->inputs[i] = (pi_input){.session = find(c, input.session),
                                  .tokens = (const int32_t *)(const void *)tokens,
                                  .n_tokens = input.n_tokens,
                                  .n_drafts = input.n_drafts,
                                  .logits = (pi_logits_wanted)input.logits,
                                  .hidden = (pi_hidden_wanted)input.hidden};
        fits = fits && s->inputs[i].session;
        tokens += n_bytes;
    }
    if (!fits) return error_set(err, PI_ERR_FORMAT, "a command of rank 0 has a wrong size");
    pi_error why;
    pi_status status = request_check(c, s->inputs, (int)k->a[0], &why);
    if (status == PI_OK) status = forward_ubatches(c, s->inputs, (int)k->a[0], &why);
    if (cluster_failed(s->cluster)) return error_set(err, PI_ERR_DEVICE, "%s", why.message);
    for (int64_t i = 0; i < k->a[0] && status == PI_OK; i++) forward_grow(&s->inputs[i]);
    return PI_OK;
}

/* Carries out a command; errors of sessions go back to rank 0. The error returned is one after
 * which the ranks cannot go on. */
static pi_status carry_out(engine_context *c, const stage_command *k, pi_error *err) {
    pi_error why = {.status = PI_OK};
    const engine_rank_usage usage = own_usage(c);
    pi_session *s = find(c, k->a[0]);
    bool of_session = k->op > STAGE_CREATE && k->op < STAGE_USAGE;
    if (of_session && !s) {
        if (k->op == STAGE_DESTROY) return PI_OK; /* it could not be created here */
        return error_set(err, PI_ERR_FORMAT, "a command of rank 0 names no session");
    }
    switch ((stage_op)k->op) {
    case STAGE_FORWARD:
        return run_pass(c, k, err);
    case STAGE_CREATE: {
        pi_status status = engine_session_create(c, k->a[1], &s, &why);
        if (status == PI_OK) s->number = (int32_t)k->a[0];
        return reply(c, status, &why, err);
    }
    case STAGE_DESTROY:
        engine_session_destroy(s);
        return PI_OK;
    case STAGE_REWIND:
        return session_rewind(s, k->a[1], err);
    case STAGE_COPY: {
        pi_session *from = find(c, k->a[1]);
        if (!from) return error_set(err, PI_ERR_FORMAT, "a command of rank 0 names no session");
        return reply(c, session_copy(s, from, k->a[2], &why), &why, err);
    }
    case STAGE_REMOVE:
        return reply(c, session_remove(s, k->a[1], k->a[2], &why), &why, err);
    case STAGE_GET:
    case STAGE_GET_STATE:
        return answer_get(c, k, s, err);
    case STAGE_PUT:
    case STAGE_END_LOAD:
        return answer_put(c, k, s, err);
    case STAGE_USAGE:
        return cluster_send_bulk(c->stage->cluster, 0, &usage, sizeof usage, err);
    case STAGE_END:
        break;
    }
    return PI_OK;
}

pi_status engine_work(engine_context *c, pi_error *err) {
    engine_stage *s = c->stage;
    for (;;) {
        stage_command k;
        cluster_buffer *b = &s->command;
        pi_status status = cluster_receive(s->cluster, 0, CLUSTER_COMMANDS, b, err);
        if (status != PI_OK) return status;
        if (b->n < sizeof k)
            return error_set(err, PI_ERR_FORMAT, "a command of rank 0 has a wrong size");
        memcpy(&k, b->data, sizeof k);
        if (k.op == STAGE_END) return PI_OK;
        status = carry_out(c, &k, err);
        if (status == PI_OK) continue;
        cluster_fail(s->cluster);
        return status;
    }
}
