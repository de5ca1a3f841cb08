/* prompt.c: renders chat templates and tokenizes prompts. */
#include "prompt.h"

#include <string.h>

#include "clock.h"
#include "mem.h"

size_t prompt_token_text(const pi_model *model, int32_t token, char *text, size_t room) {
    size_t n = 0;
    return pi_token_text(model, token, true, text, room, &n, NULL) == PI_OK ? n : 0;
}

static pi_status take_token(const pi_model *model, pi_token_role role, char **out, pi_error *err) {
    char text[256];
    int32_t token = pi_model_token(model, role);
    size_t n = token < 0 ? 0 : prompt_token_text(model, token, text, sizeof text);
    *out = mem_strndup(text, n);
    return *out ? PI_OK : error_nomem(err, n, "token");
}

pi_status prompt_maker_create(prompt_maker *p, const pi_model *model,
                              const pi_chat_template_options *options, pi_error *err) {
    *p = (prompt_maker){.model = model};
    pi_status status = take_token(model, PI_TOKEN_BOS, &p->bos, err);
    if (status == PI_OK) status = take_token(model, PI_TOKEN_EOS, &p->eos, err);
    if (status != PI_OK) return status;
    status = pi_chat_template_create(model, options, &p->chat, err);
    if (status != PI_ERR_NOT_FOUND || options->source || options->name) return status;
    const pi_chat_template_options plain = {.name = PI_CHAT_TEMPLATE_PLAIN};
    p->is_fallback = true;
    return pi_chat_template_create(model, &plain, &p->chat, err);
}

void prompt_maker_free(prompt_maker *p) {
    pi_chat_template_free(p->chat);
    mem_free(p->bos);
    mem_free(p->eos);
    *p = (prompt_maker){.model = NULL};
}

pi_status prompt_render(const prompt_maker *p, const char *request, size_t n, bytes *out,
                        pi_error *err) {
    char *text = NULL;
    size_t n_text = 0;
    if (p->deadline > 0 && clock_seconds() > p->deadline)
        return error_set(err, PI_ERR_LIMIT, "the chat template takes too long");
    pi_status status = pi_chat_template_render(p->chat, request, n, NULL, &text, &n_text, err);
    if (status == PI_OK && !bytes_append(out, text, n_text))
        status = error_nomem(err, n_text, "prompt");
    pi_text_free(text);
    return status;
}

/* Tokens beyond the context that are still counted for the error message. */
enum { COUNTED_TOO_MANY = 1 << 16 };

prompt_text prompt_rendered(const prompt_maker *p, const bytes *rendered) {
    size_t n_bos = strlen(p->bos);
    bool begins = n_bos && rendered->used >= n_bos && memcmp(rendered->data, p->bos, n_bos) == 0;
    return (prompt_text){.text = rendered->data,
                         .n = rendered->used,
                         .flags = PI_TOKENIZE_SPECIAL | (begins ? 0u : PI_TOKENIZE_BOS),
                         .n_ctx = p->n_ctx};
}

pi_status prompt_tokens(const pi_model *model, const prompt_text *text, int32_t **tokens,
                        size_t *n_tokens, pi_error *err) {
    pi_status status = PI_OK;
    const size_t most = (size_t)text->n_ctx + COUNTED_TOO_MANY;
    size_t room = text->n + 2; /* enough for most texts; longer ones need a second call */
    *tokens = NULL;
    for (int i = 0; i < 2; i++) {
        bool last = text->n_ctx && room >= most;
        if (last) room = most;
        mem_free(*tokens);
        *tokens = mem_calloc(room, sizeof **tokens);
        if (!*tokens) return error_nomem(err, room * sizeof **tokens, "prompt");
        status = pi_tokenize(model, text->text, text->n,
                             text->flags | (last ? PI_TOKENIZE_STOP : 0u), *tokens, room, n_tokens,
                             err);
        if (status == PI_OK) return PI_OK;
        if (status == PI_ERR_LIMIT && last)
            status = error_set(
                err, PI_ERR_LIMIT,
                "the prompt has at least %zu tokens, more than the context of %d holds", *n_tokens,
                text->n_ctx);
        if (status != PI_ERR_LIMIT || last) break;
        room = *n_tokens;
    }
    mem_free(*tokens);
    *tokens = NULL;
    return status;
}

pi_status prompt_read(const prompt_maker *p, const json_node *prompt, const char *name,
                      int32_t **tokens, size_t *n_tokens, pi_error *err) {
    *tokens = NULL;
    prompt_text part = {.flags = PI_TOKENIZE_SPECIAL | PI_TOKENIZE_BOS, .n_ctx = p->n_ctx};
    if (json_as_string(prompt, &part.text, &part.n))
        return prompt_tokens(p->model, &part, tokens, n_tokens, err);
    size_t n_ids = 0, capacity = 0;
    int32_t *ids = NULL;
    pi_status status = PI_OK;
    if (json_kind_of(prompt) != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG, "%s: must be a string, token ids, or an array of them",
                         name);
    if (!mem_grow((void **)&ids, &capacity, json_count(prompt) + 1, sizeof *ids, BYTES_MAX))
        return error_nomem(err, json_count(prompt) * sizeof *ids, name);
    for (size_t i = 0; i < json_count(prompt) && status == PI_OK; i++) {
        int32_t *piece = NULL;
        int64_t token = -1;
        size_t n_piece = 1;
        if (i > 0) part.flags = PI_TOKENIZE_SPECIAL;
        if (json_as_string(json_at(prompt, i), &part.text, &part.n))
            status = prompt_tokens(p->model, &part, &piece, &n_piece, err);
        else if (!json_as_int(json_at(prompt, i), &token) || token < 0 || token > INT32_MAX)
            status = error_set(err, PI_ERR_ARG,
                               "%s: must be a string, token ids, or an array of them", name);
        if (status == PI_OK &&
            !mem_grow((void **)&ids, &capacity, n_ids + n_piece, sizeof *ids, BYTES_MAX))
            status = error_nomem(err, n_piece * sizeof *ids, name);
        for (size_t k = 0; k < n_piece && status == PI_OK; k++)
            ids[n_ids++] = piece ? piece[k] : (int32_t)token;
        mem_free(piece);
    }
    if (status != PI_OK) {
        mem_free(ids);
        return status;
    }
    *tokens = ids;
    *n_tokens = n_ids;
    return PI_OK;
}

pi_status prompt_check(const pi_model *model, const int32_t *tokens, size_t n, int32_t n_ctx,
                       pi_error *err) {
    pi_model_info info;
    pi_model_get_info(model, &info);
    if (n == 0) return error_set(err, PI_ERR_ARG, "the prompt is empty");
    if (n > (size_t)n_ctx)
        return error_set(err, PI_ERR_LIMIT,
                         "the prompt has %zu tokens, more than the context of %d holds", n, n_ctx);
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= info.n_vocab)
            return error_set(err, PI_ERR_ARG, "prompt: there is no token %d", tokens[i]);
    }
    return PI_OK;
}
