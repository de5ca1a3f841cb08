/* route_text.c: converts text to tokens and back, in the form of llama.cpp's server. */
#include "dialects.h"
#include "mem.h"

static void put_pieces(json_writer *w, const served_model *s, const int32_t *tokens, size_t n) {
    char text[256];
    for (size_t i = 0; i < n; i++) {
        size_t length = prompt_token_text(s->options.model, tokens[i], text, sizeof text);
        json_put_object(w, NULL);
        json_put_int(w, "id", tokens[i]);
        json_put_string(w, "piece", text, length);
        json_end_object(w);
    }
}

enum MHD_Result route_tokenize(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    prompt_text content = {.text = NULL};
    size_t n = 0;
    bool add_special = false, parse_special = true, pieces = false;
    int32_t *tokens = NULL;
    bytes reply = {0};
    bytes_json j;
    pi_error err = {.status = PI_OK};
    if (!http_parse_body(x, &body, &result)) return result;
    pi_status status = field_bool(body, "add_special", &add_special, &err);
    if (status == PI_OK) status = field_bool(body, "parse_special", &parse_special, &err);
    if (status == PI_OK) status = field_bool(body, "with_pieces", &pieces, &err);
    if (status == PI_OK && !json_as_string(json_get(body, "content"), &content.text, &content.n))
        status = error_set(&err, PI_ERR_ARG, "content: must be a string");
    content.flags = (add_special ? PI_TOKENIZE_BOS : 0u) |
                    (parse_special ? PI_TOKENIZE_SPECIAL : 0u);
    if (status == PI_OK)
        status = prompt_tokens(x->served->options.model, &content, &tokens, &n, &err);
    if (status != PI_OK) return http_reply_failed(x, &err);
    if (!bytes_json_begin(&j, &reply)) {
        mem_free(tokens);
        return http_reply_error(x, 500, "out of memory");
    }
    json_put_object(&j.writer, NULL);
    json_put_array(&j.writer, "tokens");
    if (pieces) put_pieces(&j.writer, x->served, tokens, n);
    for (size_t i = 0; i < n && !pieces; i++) json_put_int(&j.writer, NULL, tokens[i]);
    json_end_array(&j.writer);
    json_end_object(&j.writer);
    mem_free(tokens);
    return http_reply_json(x, &j, &reply);
}

static pi_status detokenize(const pi_model *model, const json_node *list, bytes *out,
                            pi_error *err) {
    size_t n = json_count(list), need = 0;
    int32_t *tokens = mem_calloc(n + 1, sizeof *tokens);
    if (!tokens) return error_nomem(err, n * sizeof *tokens, "tokens");
    pi_status status = PI_OK;
    for (size_t i = 0; i < n && status == PI_OK; i++) {
        int64_t token = -1;
        if (!json_as_int(json_at(list, i), &token) || token < 0 || token > INT32_MAX)
            status = error_set(err, PI_ERR_ARG, "tokens[%zu]: must be a token id", i);
        tokens[i] = (int32_t)token;
    }
    if (status == PI_OK) {
        status = pi_detokenize(model, tokens, n, true, NULL, 0, &need, err);
        if (status == PI_ERR_LIMIT) status = PI_OK;
    }
    out->data = status == PI_OK ? mem_alloc(need + 1) : NULL;
    if (status == PI_OK && !out->data) status = error_nomem(err, need, "text");
    if (status == PI_OK) {
        out->capacity = need + 1;
        status = pi_detokenize(model, tokens, n, true, out->data, need + 1, &out->used, err);
    }
    mem_free(tokens);
    return status;
}

enum MHD_Result route_detokenize(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    bytes text = {0}, reply = {0};
    bytes_json j;
    pi_error err = {.status = PI_OK};
    if (!http_parse_body(x, &body, &result)) return result;
    const json_node *list = json_get(body, "tokens");
    pi_status status = json_kind_of(list) == JSON_ARRAY
                           ? detokenize(x->served->options.model, list, &text, &err)
                           : error_set(&err, PI_ERR_ARG, "tokens: must be an array");
    if (status == PI_OK && !bytes_json_begin(&j, &reply)) status = error_nomem(&err, 0, "answer");
    if (status == PI_OK) {
        json_put_object(&j.writer, NULL);
        json_put_string(&j.writer, "content", text.used ? text.data : "", text.used);
        json_end_object(&j.writer);
        result = http_reply_json(x, &j, &reply);
    } else {
        result = http_reply_failed(x, &err);
    }
    bytes_free(&text);
    return result;
}
