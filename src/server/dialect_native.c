/* dialect_native.c: writes the answers of /completion and /infill in the form of llama.cpp's
 * server. */
#include <string.h>

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

/* Writes the ids of the tokens from number `first` on. */
static void put_tokens(const server_call *c, const answer_choice *k, json_writer *w, size_t first) {
    if (!c->params.returns_tokens) return;
    json_put_array(w, "tokens");
    for (size_t i = first; i < k->n_tokens; i++) json_put_int(w, NULL, k->tokens[i].chosen.token);
    json_end_array(w);
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
    info_put_sampling(w, "generation_settings", &c->params.sampling);
    call_put_timings(k, w);
}

static void native_delta(server_call *c, answer_choice *k) {
    const bytes *text = &k->message.content;
    if (text->used == k->sent_content) return;
    json_writer *w = call_event(c, NULL);
    json_put_int(w, "index", k->index);
    json_put_string(w, "content", text->data + k->sent_content, text->used - k->sent_content);
    json_put_bool(w, "stop", false);
    put_tokens(c, k, w, k->sent_tokens);
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
    put_tokens(c, k, w, k->sent_tokens);
    put_probabilities(c, k, w, k->sent_tokens);
    put_end(c, k, w);
    call_event_end(c);
}

static void put_whole(const server_call *c, const answer_choice *k, json_writer *w) {
    const bytes *text = &k->message.content;
    json_put_object(w, NULL);
    json_put_int(w, "index", k->index);
    json_put_string(w, "content", text->used ? text->data : "", text->used);
    put_tokens(c, k, w, 0);
    put_probabilities(c, k, w, 0);
    put_end(c, k, w);
    json_end_object(w);
}

/* Returns the value at a path such as "timings/prompt_n"; NULL: none. */
static const json_node *at_path(const json_node *node, const char *path) {
    char name[128];
    while (node && *path) {
        const size_t n = strcspn(path, "/");
        if (n >= sizeof name) return NULL;
        memcpy(name, path, n);
        name[n] = 0;
        node = json_get(node, name);
        path += n + (path[n] == '/');
    }
    return node;
}

/* Writes the members of the answer that the request names, each under its whole path. */
static void put_fields(const server_call *c, const answer_choice *k, json_writer *w) {
    const json_node *names = c->params.response_fields;
    bytes whole = {0};
    bytes_json j;
    json_doc *doc = NULL;
    if (bytes_json_begin(&j, &whole)) {
        put_whole(c, k, &j.writer);
        if (bytes_json_end(&j)) json_parse(whole.data, whole.used, "answer", &doc, NULL);
    }
    json_put_object(w, NULL);
    for (size_t i = 0; i < json_count(names); i++) {
        const char *path = "", *earlier = "";
        size_t n = 0;
        bool repeated = !json_as_string(json_at(names, i), &path, &n) || n == 0;
        for (size_t other = 0; other < i && !repeated; other++)
            repeated = json_as_string(json_at(names, other), &earlier, &n) &&
                       !strcmp(path, earlier);
        const json_node *value = repeated ? NULL : at_path(json_root(doc), path);
        if (value) bytes_json_put(w, path, value);
    }
    json_end_object(w);
    json_free(doc);
    bytes_free(&whole);
}

static void native_whole(server_call *c, json_writer *w) {
    if (c->n_choices > 1) json_put_array(w, NULL);
    for (int i = 0; i < c->n_choices; i++) {
        if (json_count(c->params.response_fields))
            put_fields(c, &c->choices[i], w);
        else
            put_whole(c, &c->choices[i], w);
    }
    if (c->n_choices > 1) json_end_array(w);
}

const dialect dialect_native = {
    .delta = native_delta, .end = native_end, .failed = openai_failed, .whole = native_whole};
