/* dialect_native.c: writes the answers of /completion in the form of llama.cpp's server. */
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
    if (c->params.n_top >= 0) openai_put_logprobs(c, k, w, "completion_probabilities", first);
}

static void put_end(const server_call *c, const answer_choice *k, json_writer *w) {
    json_put_bool(w, "stop", true);
    json_put_text(w, "model", c->model);
    json_put_int(w, "id_slot", k->slot);
    json_put_int(w, "tokens_predicted", (int64_t)k->n_generated);
    json_put_int(w, "tokens_evaluated", k->n_prompt);
    json_put_int(w, "tokens_cached", k->n_cached);
    json_put_bool(w, "truncated", false);
    json_put_text(w, "stop_type", stop_type(k));
    json_put_text(w, "stopping_word", k->stopped_by ? k->stopped_by : "");
    call_put_timings(k, w);
}

static void native_delta(server_call *c, answer_choice *k) {
    const bytes *text = &k->message.content;
    if (text->used == k->sent_content) return;
    json_writer *w = call_event(c, NULL);
    json_put_int(w, "index", k->index);
    json_put_string(w, "content", text->data + k->sent_content, text->used - k->sent_content);
    json_put_bool(w, "stop", false);
    put_probabilities(c, k, w, k->sent_tokens);
    if (c->params.timings) call_put_timings(k, w);
    call_event_end(c);
    k->sent_content = text->used;
    k->sent_tokens = k->n_tokens;
}

static void native_end(server_call *c, answer_choice *k) {
    json_writer *w = call_event(c, NULL);
    json_put_int(w, "index", k->index);
    json_put_text(w, "content", "");
    put_probabilities(c, k, w, k->sent_tokens);
    put_end(c, k, w);
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

const dialect dialect_native = {
    .delta = native_delta, .end = native_end, .failed = openai_failed, .whole = native_whole};
