/* call.c: answers a parsed request: waits for the sequences, collects their new text, and lets the
 * dialect write it. */
#include "call.h"

#include <math.h>
#include <string.h>

#include "clock.h"
#include "mem.h"
#include "rng.h"

enum { MAX_CHOICES = 128, STREAM_BLOCK = 16 << 10 };

/* ---- creation and destruction ---------------------------------------------------------------- */

/* Takes the tokens of all sequences from the key's tokens per minute. */
static void charge(const server_call *c) {
    int64_t n = 0;
    os_mutex *lock = scheduler_lock(c->served->scheduler);
    os_mutex_lock(lock);
    for (int i = 0; i < c->n_choices; i++) {
        const sequence *q = c->choices[i].q;
        n += q->n_fed + (int64_t)(q->n_tokens - q->n_echo);
    }
    os_mutex_unlock(lock);
    limiter_charge(c->server->limiter, c->key, n);
}

static void free_call(server_call *c) {
    if (!c) return;
    charge(c);
    for (int i = 0; i < c->n_choices; i++) {
        answer_choice *k = &c->choices[i];
        scheduler_release(c->served->scheduler, k->q);
        message_free(&k->message);
        mem_free(k->tokens);
        mem_free(k->tops);
        mem_free(k->neurons);
    }
    os_condition_destroy(&c->news);
    params_free(&c->params);
    pi_grammar_free(c->grammar);
    json_free(c->tools);
    bytes_free(&c->out);
    mem_free(c->choices);
    registry_touch(c->server->registry, c->served->index); /* a stream ends after its request */
    registry_release(c->server->registry, c->served);
    mem_free(c);
}

server_call *call_create(exchange *x, const dialect *d, const char *id, params *p) {
    server_call *c = mem_calloc(1, sizeof *c);
    if (!c) {
        params_free(p);
        return NULL;
    }
    registry_retain(x->server->registry, x->served);
    *c = (server_call){.server = x->server,
                       .served = x->served,
                       .exchange = x,
                       .dialect = d,
                       .connection = x->connection,
                       .owner = http_owner(x),
                       .key = x->key,
                       .params = *p,
                       .created = (int64_t)time(NULL)};
    os_condition_init(&c->news);
    c->choices = mem_calloc(MAX_CHOICES, sizeof *c->choices);
    if (!c->choices) {
        free_call(c);
        return NULL;
    }
    snprintf(c->id, sizeof c->id, "%s%016llx", id, (unsigned long long)rng_entropy());
    snprintf(c->model, sizeof c->model, "%s", x->served->options.model_name);
    return c;
}

enum MHD_Result call_refuse(exchange *x, server_call *c, const pi_error *err) {
    x->n_too_long = c->n_too_long;
    free_call(c);
    return http_reply_failed(x, err);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static pi_status fill_sequence(server_call *c, sequence *q, const int32_t *tokens, size_t n,
                               int index, pi_error *err) {
    pi_sampler_options sampling = c->params.sampling;
    if (c->grammar) sampling.grammar = c->grammar;
    http_label_sequence(c->exchange, q);
    q->model = c->served->options.model;
    q->prompt = mem_calloc(n, sizeof *q->prompt);
    if (!q->prompt) return error_nomem(err, n * sizeof *q->prompt, "prompt");
    memcpy(q->prompt, tokens, n * sizeof *tokens);
    q->n_prompt = (int32_t)n;
    q->max_tokens = c->params.max_tokens;
    q->max_draft = c->params.max_draft;
    q->preferred = c->params.slot + 1;
    q->max_seconds = c->params.max_seconds;
    q->min_indent = c->params.min_indent;
    q->n_top = c->params.n_top < 0 && c->params.returns_tokens ? 0 : c->params.n_top;
    q->echo = c->params.echo;
    q->echo_bytes = c->echo_bytes;
    q->reuse = c->params.cache_prompt && !(q->echo && q->n_top >= 0);
    q->news = &c->news;
    if (sampling.seed != UINT64_MAX) sampling.seed += (uint64_t)index;
    pi_status status = params_add_stops(&c->params, q, err);
    if (status == PI_OK) status = pi_sampler_create(q->model, &sampling, &q->sampler, err);
    for (size_t i = 0; i < n && status == PI_OK; i++) pi_sampler_accept(q->sampler, tokens[i]);
    bool shows_marks = c->splits_reasoning || c->format.close;
    const pi_generation_options text = {.sampler = q->sampler,
                                        .max_tokens = q->max_tokens,
                                        .stops = q->stops,
                                        .n_stops = q->n_stops,
                                        .visible = c->served->marks,
                                        .n_visible = shows_marks ? c->served->n_marks : 0};
    if (status == PI_OK) status = pi_generation_create(q->model, &text, &q->generation, err);
    for (size_t i = 0; i < n && status == PI_OK && q->echo && q->n_top < 0; i++)
        sequence_echo(q, NAN, NULL);
    return status;
}

pi_status call_add_prompt(server_call *c, int32_t *tokens, size_t n_tokens, pi_error *err) {
    const served_options *o = &c->served->options;
    pi_status status = PI_OK;
    if (c->n_choices + c->params.n > MAX_CHOICES)
        status = error_set(err, PI_ERR_ARG, "more than %d choices of all prompts", MAX_CHOICES);
    if (status == PI_OK && n_tokens > (size_t)o->n_ctx) c->n_too_long = n_tokens;
    if (status == PI_OK) status = prompt_check(o->model, tokens, n_tokens, o->n_ctx, err);
    for (int i = 0; i < c->params.n && status == PI_OK; i++) {
        sequence *q = sequence_create();
        if (!q) {
            status = error_nomem(err, sizeof *q, "request");
            break;
        }
        answer_choice *k = &c->choices[c->n_choices];
        *k = (answer_choice){.index = c->n_choices, .q = q, .open_item = -1};
        k->message.splits_reasoning = c->splits_reasoning;
        k->message.format = c->format.close ? &c->format : NULL;
        k->message.tools = json_root(c->tools);
        k->message.grows_calls = c->params.stream && c->grammar && !c->dialect->whole_calls;
        c->n_choices++;
        status = fill_sequence(c, q, tokens, n_tokens, i, err);
        if (status != PI_OK || !c->params.neurons) continue;
        k->neurons = neurons_create(c->served->info.n_layer);
        q->neurons = neurons_create(c->served->info.n_layer);
        if (!k->neurons || !q->neurons) status = error_nomem(err, sizeof(neuron_layer), "neurons");
    }
    mem_free(tokens);
    return status;
}

void call_begin_messages(server_call *c, const char *prompt, size_t n) {
    for (int i = 0; i < c->n_choices; i++) {
        message_begin(&c->choices[i].message, prompt, n);
        reasoning_begin(&c->choices[i].q->reasoning, c->served->options.model,
                        c->params.reasoning_budget, prompt, n);
    }
}

/* ---- collecting results ---------------------------------------------------------------------- */

/* Takes tokens together with their released text. The answer contains neither tokens after a stop
 * text nor the token that ends the text. */
static bool copy_tokens(answer_choice *k, const sequence *q) {
    size_t n = k->n_tokens, n_top = q->n_top > 0 ? (size_t)q->n_top : 0;
    size_t most = q->n_tokens - q->has_end;
    while (n < most) {
        size_t begin = n ? q->tokens[n - 1].text_end : 0, end = q->tokens[n].text_end;
        if (q->finish == FINISH_NONE ? end > q->text.used : begin > q->text.used) break;
        if (q->finish == FINISH_STOP && begin == q->text.used && end > begin) break;
        n++;
    }
    if (q->n_top < 0 || n == k->n_tokens) return true;
    if (!mem_grow((void **)&k->tokens, &k->tokens_capacity, n, sizeof *k->tokens, BYTES_MAX) ||
        !mem_grow((void **)&k->tops, &k->tops_capacity, n * n_top, sizeof *k->tops, BYTES_MAX))
        return false;
    memcpy(k->tokens + k->n_tokens, q->tokens + k->n_tokens, (n - k->n_tokens) * sizeof *k->tokens);
    if (n_top)
        memcpy(k->tops + k->n_tokens * n_top, q->tops + k->n_tokens * n_top,
               (n - k->n_tokens) * n_top * sizeof *k->tops);
    k->n_tokens = n;
    return true;
}

/* Called under the lock. True: the choice has new results. */
static bool collect(server_call *c, answer_choice *k) {
    const sequence *q = k->q;
    bool ended = q->finish != FINISH_NONE && k->finish == FINISH_NONE;
    bool grown = q->text.used > k->n_read || q->n_tokens - q->n_echo != k->n_generated;
    if (!ended && !grown) return false;
    if (q->neurons && (ended || clock_seconds() - k->neurons_sent > NEURON_SECONDS)) {
        neurons_take(k->neurons, q->neurons);
        k->neurons_sent = clock_seconds();
    }
    k->message.cut = q->finish == FINISH_LENGTH;
    message_feed(&k->message, q->text.data + k->n_read, q->text.used - k->n_read, ended);
    k->n_read = q->text.used;
    if (!copy_tokens(k, q) || k->message.failed) c->broken = true;
    k->n_generated = q->n_tokens - q->n_echo;
    k->finish = q->finish;
    k->stopped_by = q->stopped_by ? q->stopped_by->text : NULL;
    k->n_prompt = q->n_prompt;
    k->n_reasoning = q->n_reasoning;
    k->slot = q->slot;
    k->n_cached = q->n_cached;
    k->n_drafted = q->n_drafted;
    k->n_draft_accepted = q->n_draft_accepted;
    k->times = q->times;
    k->error = q->error;
    return true;
}

static bool all_ended(const server_call *c) {
    for (int i = 0; i < c->n_choices; i++)
        if (c->choices[i].finish == FINISH_NONE) return false;
    return true;
}

/* Returns the HTTP status of an answer that failed; 0: no failure. */
static unsigned find_failure(const server_call *c, const char **message) {
    for (int i = 0; i < c->n_choices; i++) {
        const answer_choice *k = &c->choices[i];
        *message = k->finish == FINISH_SHUTDOWN  ? "the server is shutting down"
                   : k->finish == FINISH_GONE    ? HTTP_GONE
                   : k->finish == FINISH_TIMEOUT ? HTTP_LATE
                                                 : k->error.message;
        if (k->finish == FINISH_SHUTDOWN) return 503;
        if (k->finish == FINISH_TIMEOUT) return 504;
        /* A grammar can prove too ambiguous while the text is generated. */
        if (k->finish == FINISH_ERROR && k->error.status == PI_ERR_DEVICE) return 503; /* a rank */
        if (k->finish == FINISH_ERROR) return k->error.status == PI_ERR_LIMIT ? 400 : 500;
        if (k->finish == FINISH_GONE) return 400;
    }
    *message = "out of memory";
    return c->broken ? 500 : 0;
}

call_usage call_get_usage(const server_call *c) {
    call_usage u = {0};
    for (int i = 0; i < c->n_choices; i++) {
        const answer_choice *k = &c->choices[i];
        u.generated += (int64_t)k->n_generated;
        u.reasoning += k->n_reasoning;
        if (i % c->params.n) continue;
        u.prompt += k->n_prompt;
        u.cached += k->n_cached;
    }
    return u;
}

/* Records the usage of the request so far, for the log. */
static void record(server_call *c) {
    request_record *r = &c->exchange->record;
    const call_usage u = call_get_usage(c);
    const sequence_times *t = &c->choices[0].times;
    r->prompt_tokens = u.prompt;
    r->cached_tokens = u.cached;
    r->generated_tokens = u.generated;
    if (t->started > 0) r->queue_seconds = t->started - t->queued;
    if (t->first_token > 0) r->first_token_seconds = t->first_token - t->queued;
}

static double per_second(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

void call_put_timings(const answer_choice *k, json_writer *w) {
    const sequence_times *t = &k->times;
    double prompt = t->first_token - t->started, rest = t->last_token - t->first_token;
    double n_prompt = k->n_prompt - k->n_cached, n = (double)k->n_generated;
    json_put_object(w, "timings");
    json_put_int(w, "cache_n", k->n_cached);
    json_put_int(w, "prompt_n", k->n_prompt - k->n_cached);
    json_put_number(w, "prompt_ms", 1e3 * prompt);
    json_put_number(w, "prompt_per_second", per_second(n_prompt, prompt));
    json_put_int(w, "predicted_n", (int64_t)k->n_generated);
    json_put_number(w, "predicted_ms", 1e3 * rest);
    /* The time of the first token counts as time of the prompt. */
    json_put_number(w, "predicted_per_second", n > 1 ? per_second(n - 1, rest) : 0);
    if (k->n_drafted > 0) {
        json_put_int(w, "draft_n", k->n_drafted);
        json_put_int(w, "draft_n_accepted", k->n_draft_accepted);
    }
    json_end_object(w);
}

/* ---- streams --------------------------------------------------------------------------------- */

void call_put(server_call *c, const char *text) {
    if (!bytes_append_text(&c->out, text)) c->broken = true;
}

json_writer *call_event(server_call *c, const char *name) {
    c->n_events++;
    if (name) {
        call_put(c, "event: ");
        call_put(c, name);
        call_put(c, "\n");
    }
    if (!c->dialect->lines) call_put(c, "data: ");
    if (!bytes_json_begin(&c->event, &c->out)) c->broken = true;
    json_put_object(&c->event.writer, NULL);
    return &c->event.writer;
}

void call_event_end(server_call *c) {
    json_end_object(&c->event.writer);
    if (!bytes_json_end(&c->event)) c->broken = true;
    call_put(c, c->dialect->lines ? "\n" : "\n\n");
}

void call_send_tools(server_call *c, answer_choice *k, const call_events *events) {
    const model_text *m = &k->message;
    while (k->sent_calls < m->n_calls) {
        const bytes *arguments = &m->calls[k->sent_calls].arguments;
        const bool complete = !m->growing || k->sent_calls + 1 < m->n_calls;
        if (!k->call_begun) events->begin(c, k);
        if (arguments->used > k->sent_arguments || (complete && k->sent_arguments == 0))
            events->arguments(c, k, arguments->data + k->sent_arguments,
                              arguments->used - k->sent_arguments);
        k->call_begun = true;
        k->sent_arguments = arguments->used;
        if (!complete) return;
        if (events->end) events->end(c, k);
        k->call_begun = false;
        k->sent_arguments = 0;
        k->sent_calls++;
    }
}

/* Writes an event that is not part of the APIs, for clients that request it. */
static void write_neurons(server_call *c, answer_choice *k) {
    if (!k->neurons || k->neurons->n_ubatches == 0) return;
    json_writer *w = call_event(c, "powerinfer");
    json_put_int(w, "index", k->index);
    neurons_write(k->neurons, c->served->info.weight_bytes, w);
    call_event_end(c);
    k->neurons->n_ubatches = 0;
}

/* Writes the new results of a choice in the dialect. */
static void write_choice(server_call *c, answer_choice *k) {
    if (!k->begun && c->dialect->begin) c->dialect->begin(c, k);
    k->begun = true;
    c->dialect->delta(c, k);
    write_neurons(c, k);
    if (k->finish == FINISH_NONE || k->ended) return;
    k->ended = true;
    c->dialect->end(c, k);
}

/* Waits for new results, at most `seconds` (0: no limit). False: no new results. */
static bool wait_for_news(server_call *c, int seconds, bool *fresh) {
    double until = clock_seconds() + seconds;
    os_mutex *lock = scheduler_lock(c->served->scheduler);
    bool any = false, in_time = true;
    os_mutex_lock(lock);
    for (;;) {
        for (int i = 0; i < c->n_choices; i++) {
            fresh[i] = collect(c, &c->choices[i]);
            any |= fresh[i];
        }
        if (any || !in_time) break;
        if (seconds > 0)
            in_time = os_condition_wait_until(&c->news, lock, until);
        else
            os_condition_wait(&c->news, lock);
    }
    os_mutex_unlock(lock);
    record(c);
    return any;
}

/* Appends at least one event to `out`. */
static void next_events(server_call *c) {
    bool fresh[MAX_CHOICES] = {false};
    const char *message = NULL;
    if (!wait_for_news(c, c->server->options.ping_seconds, fresh)) {
        call_put(c, c->dialect->ping ? c->dialect->ping : ": ping\n\n");
        return;
    }
    unsigned failure = find_failure(c, &message);
    if (failure) {
        c->dialect->failed(c, failure, message);
        c->finished = true;
    } else {
        for (int i = 0; i < c->n_choices; i++)
            if (fresh[i]) write_choice(c, &c->choices[i]);
        if (!all_ended(c)) return;
        if (c->dialect->done) c->dialect->done(c);
        c->finished = true;
    }
}

/* libmicrohttpd calls this for the next bytes of a stream. The function may block, because each
 * connection has a thread. The time limit of the connection applies to writing, not to waiting. */
static ssize_t read_stream(void *user, uint64_t position, char *block, size_t size) {
    server_call *c = user;
    (void)position;
    if (c->n_sent == c->out.used) {
        c->out.used = c->n_sent = 0;
        MHD_set_connection_option(c->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
        while (c->out.used == 0 && !c->broken && !c->finished) next_events(c);
        MHD_set_connection_option(c->connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                  (unsigned)c->server->options.read_seconds);
        if (c->broken) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (c->out.used == 0) return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = c->out.used - c->n_sent;
    if (n > size) n = size;
    memcpy(block, c->out.data + c->n_sent, n);
    c->n_sent += n;
    return (ssize_t)n;
}

static void free_stream(void *user) {
    free_call(user);
}

/* The status and the headers are sent together with the first event: a request that fails before it
 * has the status of its failure, and a proxy may still send it to another server. */
static enum MHD_Result answer_stream(exchange *x, server_call *c) {
    const char *message = NULL;
    while (c->out.used == 0 && !c->broken && !c->finished) next_events(c);
    const unsigned failure = find_failure(c, &message);
    if (failure) {
        enum MHD_Result result = http_reply_error(x, failure, "%s", message);
        free_call(c);
        return result;
    }
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, c, free_stream);
    if (!response) {
        free_call(c);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            c->dialect->lines ? "application/x-ndjson" : "text/event-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    return http_send(x, 200, response);
}

/* ---- answers in one piece -------------------------------------------------------------------- */

static enum MHD_Result answer_whole(exchange *x, server_call *c) {
    bool fresh[MAX_CHOICES];
    bytes body = {0};
    bytes_json j;
    const char *message = NULL;
    while (!all_ended(c)) wait_for_news(c, 0, fresh);
    unsigned failure = find_failure(c, &message);
    enum MHD_Result result = MHD_NO;
    if (failure) {
        result = http_reply_error(x, failure, "%s", message);
    } else if (bytes_json_begin(&j, &body)) {
        c->dialect->whole(c, &j.writer);
        result = http_reply_json(x, &j, &body);
    }
    free_call(c);
    return result;
}

/* Lists for the client the places of its schemas that are not enforced. */
static void note_widened(exchange *x, const server_call *c) {
    enum { HEADER_MAX = 4096 };
    bool good = true;
    for (size_t i = 0; c->grammar && good && pi_grammar_widened(c->grammar, i); i++) {
        const char *place = pi_grammar_widened(c->grammar, i);
        if (x->widened.used + strlen(place) > HEADER_MAX) break;
        good = (i == 0 || bytes_append_text(&x->widened, ", ")) &&
               bytes_append_text(&x->widened, place);
    }
    for (size_t i = 0; i < x->widened.used; i++)
        if (x->widened.data[i] < ' ' || x->widened.data[i] > '~') x->widened.data[i] = '?';
    if (x->widened.used && !bytes_append(&x->widened, "", 1)) bytes_free(&x->widened);
}

enum MHD_Result call_answer(exchange *x, server_call *c) {
    sequence *all[MAX_CHOICES];
    pi_error err = {.status = PI_OK};
    note_widened(x, c);
    for (int i = 0; i < c->n_choices; i++) all[i] = c->choices[i].q;
    if (scheduler_add(c->served->scheduler, all, c->n_choices, &err) != PI_OK) {
        free_call(c);
        return http_reply_error(x, 503, "%s", err.message);
    }
    MHD_set_connection_option(x->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    enum MHD_Result result = c->params.stream ? answer_stream(x, c) : answer_whole(x, c);
    MHD_set_connection_option(x->connection, MHD_CONNECTION_OPTION_TIMEOUT,
                              (unsigned)x->server->options.read_seconds);
    return result;
}
