/* dialect_openai.c: writes the answers of /v1/chat/completions and /v1/completions. */
#include <math.h>
#include <string.h>

#include "dialects.h"

static const char *finish_name(const answer_choice *k) {
    if (k->finish == FINISH_LENGTH) return "length";
    return k->message.n_calls > 0 ? "tool_calls" : "stop";
}

static void put_usage(const server_call *c, json_writer *w) {
    call_usage u = call_get_usage(c);
    json_put_object(w, "usage");
    json_put_int(w, "prompt_tokens", u.prompt);
    json_put_int(w, "completion_tokens", u.generated);
    json_put_int(w, "total_tokens", u.prompt + u.generated);
    json_put_object(w, "prompt_tokens_details");
    json_put_int(w, "cached_tokens", u.cached);
    json_end_object(w);
    json_put_object(w, "completion_tokens_details");
    json_put_int(w, "reasoning_tokens", u.reasoning);
    json_end_object(w);
    json_end_object(w);
}

static void put_head(const server_call *c, json_writer *w, const char *object) {
    json_put_text(w, "id", c->id);
    json_put_text(w, "object", object);
    json_put_int(w, "created", c->created);
    json_put_text(w, "model", c->model);
    json_put_text(w, "system_fingerprint", pi_version());
}

/* ---- logprobs -------------------------------------------------------------------------------- */

static size_t token_text(const server_call *c, int32_t token, char *text, size_t room) {
    return prompt_token_text(c->served->options.model, token, text, room);
}

/* Opens the object of a token. */
static void begin_logprob(const server_call *c, json_writer *w, token_choice t) {
    char text[256];
    size_t n = token_text(c, t.token, text, sizeof text);
    json_put_object(w, NULL);
    json_put_int(w, "id", t.token);
    json_put_string(w, "token", text, n);
    json_put_number(w, "logprob", isfinite(t.logprob) ? (double)t.logprob : -9999.0);
    json_put_array(w, "bytes");
    for (size_t i = 0; i < n; i++) json_put_int(w, NULL, (unsigned char)text[i]);
    json_end_array(w);
}

void openai_put_logprobs(const server_call *c, const answer_choice *k, json_writer *w,
                         const char *key, size_t first) {
    json_put_array(w, key);
    for (size_t i = first; i < k->n_tokens; i++) {
        begin_logprob(c, w, k->tokens[i].chosen);
        json_put_array(w, "top_logprobs");
        for (int t = 0; t < c->params.n_top; t++) {
            begin_logprob(c, w, k->tops[i * (size_t)c->params.n_top + (size_t)t]);
            json_end_object(w);
        }
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

/* Writes {"content":[...]} with the tokens from number `first` on. */
static void put_chat_logprobs(const server_call *c, const answer_choice *k, json_writer *w,
                              size_t first) {
    if (c->params.n_top < 0) {
        json_put_text(w, "logprobs", NULL);
        return;
    }
    json_put_object(w, "logprobs");
    openai_put_logprobs(c, k, w, "content", first);
    json_put_text(w, "refusal", NULL);
    json_end_object(w);
}

/* Writes the older form: parallel arrays. */
static void put_text_logprobs(const server_call *c, const answer_choice *k, json_writer *w,
                              size_t first) {
    char text[256];
    if (c->params.n_top < 0) {
        json_put_text(w, "logprobs", NULL);
        return;
    }
    json_put_object(w, "logprobs");
    json_put_array(w, "tokens");
    for (size_t i = first; i < k->n_tokens; i++)
        json_put_string(w, NULL, text, token_text(c, k->tokens[i].chosen.token, text, sizeof text));
    json_end_array(w);
    json_put_array(w, "token_logprobs");
    for (size_t i = first; i < k->n_tokens; i++) {
        float logprob = k->tokens[i].chosen.logprob;
        if (isnan(logprob))
            json_put_text(w, NULL, NULL);
        else
            json_put_number(w, NULL, isfinite(logprob) ? (double)logprob : -9999.0);
    }
    json_end_array(w);
    json_put_array(w, "top_logprobs");
    for (size_t i = first; i < k->n_tokens; i++) {
        /* the first token of a prompt has no alternatives */
        if (isnan(k->tokens[i].chosen.logprob)) {
            json_put_text(w, NULL, NULL);
            continue;
        }
        json_put_object(w, NULL);
        for (int t = 0; t < c->params.n_top; t++) {
            token_choice top = k->tops[i * (size_t)c->params.n_top + (size_t)t];
            size_t n = token_text(c, top.token, text, sizeof text - 1);
            text[n] = 0;
            json_put_number(w, text, (double)top.logprob);
        }
        json_end_object(w);
    }
    json_end_array(w);
    json_put_array(w, "text_offset");
    for (size_t i = first; i < k->n_tokens; i++)
        json_put_int(w, NULL, i ? (int64_t)k->tokens[i - 1].text_end : 0);
    json_end_array(w);
    json_end_object(w);
}

/* ---- both APIs ------------------------------------------------------------------------------- */

/* Begins a chunk with one choice, which stays open for its members. */
static json_writer *begin_chunk(server_call *c, const answer_choice *k, const char *object) {
    json_writer *w = call_event(c, NULL);
    put_head(c, w, object);
    json_put_array(w, "choices");
    json_put_object(w, NULL);
    json_put_int(w, "index", k->index);
    return w;
}

static void end_chunk(server_call *c, answer_choice *k, json_writer *w, bool last) {
    k->sent_tokens = k->n_tokens;
    json_put_text(w, "finish_reason", last ? finish_name(k) : NULL);
    json_end_object(w);
    json_end_array(w);
    if (c->params.include_usage) json_put_text(w, "usage", NULL);
    if (last || c->params.timings) call_put_timings(k, w);
    call_event_end(c);
}

static void put_last_chunks(server_call *c, const char *object) {
    if (c->params.include_usage) {
        json_writer *w = call_event(c, NULL);
        put_head(c, w, object);
        json_put_array(w, "choices");
        json_end_array(w);
        put_usage(c, w);
        call_event_end(c);
    }
    call_put(c, "data: [DONE]\n\n");
}

void openai_failed(server_call *c, unsigned status, const char *text) {
    http_put_error(call_event(c, NULL), "error", status, text);
    call_event_end(c);
}

static void put_answer(const server_call *c, json_writer *w, const char *object,
                       void (*put_choice)(const server_call *c, const answer_choice *k,
                                          json_writer *w)) {
    json_put_object(w, NULL);
    put_head(c, w, object);
    json_put_array(w, "choices");
    for (int i = 0; i < c->n_choices; i++) {
        const answer_choice *k = &c->choices[i];
        json_put_object(w, NULL);
        json_put_int(w, "index", i);
        put_choice(c, k, w);
        json_put_text(w, "finish_reason", finish_name(k));
        json_end_object(w);
    }
    json_end_array(w);
    put_usage(c, w);
    call_put_timings(&c->choices[0], w);
    json_end_object(w);
}

/* ---- chat ------------------------------------------------------------------------------------ */

static json_writer *begin_delta(server_call *c, const answer_choice *k) {
    json_writer *w = begin_chunk(c, k, "chat.completion.chunk");
    json_put_object(w, "delta");
    return w;
}

static void end_delta(server_call *c, answer_choice *k, json_writer *w, bool last) {
    json_end_object(w);
    put_chat_logprobs(c, k, w, k->sent_tokens);
    end_chunk(c, k, w, last);
}

static void chat_begin(server_call *c, answer_choice *k) {
    json_writer *w = begin_delta(c, k);
    json_put_text(w, "role", "assistant");
    json_put_text(w, "content", "");
    end_delta(c, k, w, false);
}

static void chat_call_begin(server_call *c, answer_choice *k) {
    const tool_call *t = &k->message.calls[k->sent_calls];
    json_writer *w = begin_delta(c, k);
    json_put_array(w, "tool_calls");
    json_put_object(w, NULL);
    json_put_int(w, "index", k->sent_calls);
    json_put_text(w, "id", t->id);
    json_put_text(w, "type", "function");
    json_put_object(w, "function");
    json_put_string(w, "name", t->name.data, t->name.used);
    json_put_text(w, "arguments", "");
    json_end_object(w);
    json_end_object(w);
    json_end_array(w);
    end_delta(c, k, w, false);
}

static void chat_arguments(server_call *c, answer_choice *k, const char *text, size_t n) {
    json_writer *w = begin_delta(c, k);
    json_put_array(w, "tool_calls");
    json_put_object(w, NULL);
    json_put_int(w, "index", k->sent_calls);
    json_put_object(w, "function");
    json_put_string(w, "arguments", text, n);
    json_end_object(w);
    json_end_object(w);
    json_end_array(w);
    end_delta(c, k, w, false);
}

static const call_events chat_calls = {chat_call_begin, chat_arguments, NULL};

static void chat_delta(server_call *c, answer_choice *k) {
    const model_text *m = &k->message;
    if (m->reasoning.used > k->sent_reasoning) {
        json_writer *w = begin_delta(c, k);
        json_put_string(w, "reasoning_content", m->reasoning.data + k->sent_reasoning,
                        m->reasoning.used - k->sent_reasoning);
        k->sent_reasoning = m->reasoning.used;
        end_delta(c, k, w, false);
    }
    if (m->content.used > k->sent_content) {
        json_writer *w = begin_delta(c, k);
        json_put_string(w, "content", m->content.data + k->sent_content,
                        m->content.used - k->sent_content);
        k->sent_content = m->content.used;
        end_delta(c, k, w, false);
    }
    call_send_tools(c, k, &chat_calls);
}

static void chat_end(server_call *c, answer_choice *k) {
    end_delta(c, k, begin_delta(c, k), true);
}

static void chat_done(server_call *c) {
    put_last_chunks(c, "chat.completion.chunk");
}

static void put_message(const answer_choice *k, json_writer *w) {
    const model_text *m = &k->message;
    json_put_object(w, "message");
    json_put_text(w, "role", "assistant");
    if (m->n_calls && m->content.used == 0)
        json_put_text(w, "content", NULL);
    else
        json_put_string(w, "content", m->content.used ? m->content.data : "", m->content.used);
    json_put_text(w, "refusal", NULL);
    if (m->reasoning.used)
        json_put_string(w, "reasoning_content", m->reasoning.data, m->reasoning.used);
    if (m->n_calls) json_put_array(w, "tool_calls");
    for (int i = 0; i < m->n_calls; i++) {
        json_put_object(w, NULL);
        json_put_text(w, "id", m->calls[i].id);
        json_put_text(w, "type", "function");
        json_put_object(w, "function");
        json_put_string(w, "name", m->calls[i].name.data, m->calls[i].name.used);
        json_put_string(w, "arguments", m->calls[i].arguments.data, m->calls[i].arguments.used);
        json_end_object(w);
        json_end_object(w);
    }
    if (m->n_calls) json_end_array(w);
    json_end_object(w);
}

static void put_chat_choice(const server_call *c, const answer_choice *k, json_writer *w) {
    put_message(k, w);
    put_chat_logprobs(c, k, w, 0);
}

static void chat_whole(server_call *c, json_writer *w) {
    put_answer(c, w, "chat.completion", put_chat_choice);
}

const dialect dialect_chat = {.begin = chat_begin,
                              .delta = chat_delta,
                              .end = chat_end,
                              .done = chat_done,
                              .failed = openai_failed,
                              .whole = chat_whole};

/* ---- completions ----------------------------------------------------------------------------- */

static void text_chunk(server_call *c, answer_choice *k, bool last) {
    const bytes *text = &k->message.content;
    json_writer *w = begin_chunk(c, k, "text_completion");
    json_put_string(w, "text", text->used > k->sent_content ? text->data + k->sent_content : "",
                    text->used - k->sent_content);
    put_text_logprobs(c, k, w, k->sent_tokens);
    end_chunk(c, k, w, last);
    k->sent_content = text->used;
}

static void text_delta(server_call *c, answer_choice *k) {
    if (k->message.content.used > k->sent_content) text_chunk(c, k, false);
}

static void text_end(server_call *c, answer_choice *k) {
    text_chunk(c, k, true);
}

static void text_done(server_call *c) {
    put_last_chunks(c, "text_completion");
}

static void put_text_choice(const server_call *c, const answer_choice *k, json_writer *w) {
    const bytes *text = &k->message.content;
    json_put_string(w, "text", text->used ? text->data : "", text->used);
    put_text_logprobs(c, k, w, 0);
}

static void text_whole(server_call *c, json_writer *w) {
    put_answer(c, w, "text_completion", put_text_choice);
}

const dialect dialect_text = {.delta = text_delta,
                              .end = text_end,
                              .done = text_done,
                              .failed = openai_failed,
                              .whole = text_whole};
