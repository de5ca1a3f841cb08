/* dialect_native.c: answers of /completion, in the form of llama.cpp's server. */
#include <math.h>

#include "dialects.h"

static const char *stop_type(const answer_choice *k) {
    switch (k->finish) {
    case FINISH_EOS:
        return "eos";
    case FINISH_STOP:
        return "word";
    case FINISH_LENGTH:
        return "limit";
    default:
        return "none";
    }
}

static void put_probabilities(const server_call *c, const answer_choice *k, json_writer *w,
                              size_t first) {
    char text[256];
    if (c->params.n_top < 0) return;
    json_put_array(w, "completion_probabilities");
    for (size_t i = first; i < k->n_tokens; i++) {
        json_put_object(w, NULL);
        int32_t token = k->tokens[i].chosen.token;
        json_put_int(w, "id", token);
        json_put_string(w, "token", text, openai_token_text(c, token, text, sizeof text));
        json_put_number(w, "logprob", (double)k->tokens[i].chosen.logprob);
        json_put_array(w, "top_logprobs");
        for (int t = 0; t < c->params.n_top; t++) {
            token_choice top = k->tops[i * (size_t)c->params.n_top + (size_t)t];
            json_put_object(w, NULL);
            json_put_int(w, "id", top.token);
            json_put_string(w, "token", text, openai_token_text(c, top.token, text, sizeof text));
            json_put_number(w, "logprob", (double)top.logprob);
            json_end_object(w);
        }
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_end(const server_call *c, const answer_choice *k, json_writer *w) {
    json_put_bool(w, "stop", true);
    json_put_text(w, "model", c->model);
    json_put_int(w, "tokens_predicted", (int64_t)k->n_generated);
    json_put_int(w, "tokens_evaluated", k->n_prompt);
    json_put_int(w, "tokens_cached", k->n_cached);
    json_put_bool(w, "truncated", false);
    json_put_text(w, "stop_type", stop_type(k));
    json_put_text(w, "stopping_word", k->stopped_by ? k->stopped_by : "");
    call_put_timings(k, w);
}

static void native_begin(server_call *c, answer_choice *k) {
    (void)c;
    (void)k;
}

static void native_delta(server_call *c, answer_choice *k) {
    const bytes *text = &k->message.content;
    if (text->used == k->sent_content) return;
    json_writer *w = call_event(c, NULL);
    json_put_object(w, NULL);
    json_put_int(w, "index", k->index);
    json_put_string(w, "content", text->data + k->sent_content, text->used - k->sent_content);
    json_put_bool(w, "stop", false);
    put_probabilities(c, k, w, k->sent_tokens);
    if (c->params.timings) call_put_timings(k, w);
    json_end_object(w);
    call_event_end(c);
    k->sent_content = text->used;
    k->sent_tokens = k->n_tokens;
}

static void native_end(server_call *c, answer_choice *k) {
    json_writer *w = call_event(c, NULL);
    json_put_object(w, NULL);
    json_put_int(w, "index", k->index);
    json_put_text(w, "content", "");
    put_probabilities(c, k, w, k->sent_tokens);
    put_end(c, k, w);
    json_end_object(w);
    call_event_end(c);
}

static void native_done(server_call *c) {
    (void)c;
}

static void native_failed(server_call *c, unsigned status, const char *text) {
    json_writer *w = call_event(c, NULL);
    json_put_object(w, NULL);
    http_put_error(w, "error", status, text);
    json_end_object(w);
    call_event_end(c);
}

static void put_whole(const server_call *c, const answer_choice *k, json_writer *w) {
    const bytes *text = &k->message.content;
    json_put_object(w, NULL);
    json_put_int(w, "index", k->index);
    json_put_string(w, "content", text->used ? text->data : "", text->used);
    put_probabilities(c, k, w, 0);
    put_end(c, k, w);
    json_end_object(w);
}

static void native_whole(server_call *c, json_writer *w) {
    if (c->n_choices > 1) json_put_array(w, NULL);
    for (int i = 0; i < c->n_choices; i++) put_whole(c, &c->choices[i], w);
    if (c->n_choices > 1) json_end_array(w);
}

const dialect dialect_native = {.begin = native_begin,
                                .delta = native_delta,
                                .end = native_end,
                                .done = native_done,
                                .failed = native_failed,
                                .whole = native_whole};
