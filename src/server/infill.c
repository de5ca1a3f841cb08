/* infill.c: see infill.h. */
#include "infill.h"

#include <string.h>

#include "fields.h"
#include "mem.h"
#include "powerinfer_metadata.h"

enum { BYTES_PER_TOKEN = 16 /* text beyond this many bytes per token of context is not read */ };

typedef struct token_list {
    int32_t *ids; /* [n] */
    size_t n, capacity;
} token_list;

static pi_status add(token_list *l, const int32_t *ids, size_t n, pi_error *err) {
    if (!mem_grow((void **)&l->ids, &l->capacity, l->n + n, sizeof *l->ids, BYTES_MAX))
        return error_nomem(err, n * sizeof *l->ids, "prompt");
    if (n) memcpy(l->ids + l->n, ids, n * sizeof *ids);
    l->n += n;
    return PI_OK;
}

static pi_status add_token(token_list *l, int32_t token, pi_error *err) {
    return token < 0 ? PI_OK : add(l, &token, 1, err);
}

static pi_status add_text(token_list *l, const pi_model *model, const char *text, size_t n,
                          pi_error *err) {
    const prompt_text plain = {.text = text, .n = n};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    pi_status status = n ? prompt_tokens(model, &plain, &ids, &n_ids, err) : PI_OK;
    if (status == PI_OK) status = add(l, ids, n_ids, err);
    mem_free(ids);
    return status;
}

/* Adds the other files in the form of repositories, or separated by a line if the model has no
 * tokens for them. */
static pi_status add_files(token_list *l, const pi_model *model, const json_node *extra,
                           pi_error *err) {
    static const char repository[] = "myproject\n", snippet[] = "\n\n--- snippet ---\n\n";
    const int32_t rep = pi_model_token(model, PI_TOKEN_FIM_REP);
    const int32_t sep = pi_model_token(model, PI_TOKEN_FIM_SEP);
    pi_status status = PI_OK;
    if (json_kind_of(extra) != JSON_NULL && json_kind_of(extra) != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG, "input_extra: must be an array of files");
    if (rep >= 0) {
        status = add_token(l, rep, err);
        if (status == PI_OK) status = add_text(l, model, repository, strlen(repository), err);
    }
    for (size_t i = 0; i < json_count(extra) && status == PI_OK; i++) {
        const char *text = NULL, *name = "tmp";
        size_t n = 0;
        if (!json_as_string(json_get(json_at(extra, i), "text"), &text, &n))
            return error_set(err, PI_ERR_ARG, "input_extra[%zu]: text must be a string", i);
        status = field_text(json_at(extra, i), "filename", &name, err);
        if (status == PI_OK && sep >= 0) {
            status = add_token(l, sep, err);
            if (status == PI_OK) status = add_text(l, model, name, strlen(name), err);
            if (status == PI_OK) status = add_text(l, model, "\n", 1, err);
        } else if (status == PI_OK) {
            status = add_text(l, model, snippet, strlen(snippet), err);
        }
        if (status == PI_OK) status = add_text(l, model, text, n, err);
    }
    /* The name of the file that the text is in. */
    if (status == PI_OK && sep >= 0) {
        status = add_token(l, sep, err);
        if (status == PI_OK) status = add_text(l, model, "filename\n", 9, err);
    }
    return status;
}

/* Whether a byte continues a UTF-8 character. */
static bool continues(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

static size_t at_most(size_t n, size_t most) {
    return n < most ? n : most;
}

pi_status infill_tokens(const prompt_maker *p, const infill *f, int32_t **tokens, size_t *n_tokens,
                        pi_error *err) {
    const pi_model *model = p->model;
    const int32_t pre = pi_model_token(model, PI_TOKEN_FIM_PRE);
    const int32_t suf = pi_model_token(model, PI_TOKEN_FIM_SUF);
    const int32_t mid = pi_model_token(model, PI_TOKEN_FIM_MID);
    token_list files = {0}, prefix = {0}, suffix = {0}, all = {0};
    pi_model_info info;
    *tokens = NULL;
    if (pre < 0 || suf < 0 || mid < 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "the model has no tokens for the text between a prefix and a suffix");
    pi_model_get_info(model, &info);
    const size_t n_ctx = (size_t)p->n_ctx;
    const size_t answer = f->max_tokens >= 0 ? at_most((size_t)f->max_tokens, n_ctx / 2)
                                             : n_ctx / 4;
    const size_t room = n_ctx > answer + 4 ? n_ctx - answer - 4 : 0;
    size_t from = f->n_prefix > BYTES_PER_TOKEN * n_ctx ? f->n_prefix - BYTES_PER_TOKEN * n_ctx : 0;
    size_t to = at_most(f->n_suffix, BYTES_PER_TOKEN * n_ctx);
    while (from < f->n_prefix && continues(f->prefix[from])) from++;
    while (to > 0 && to < f->n_suffix && continues(f->suffix[to])) to--;
    pi_status status = add_files(&files, model, f->extra, err);
    if (status == PI_OK)
        status = add_text(&prefix, model, f->prefix + from, f->n_prefix - from, err);
    if (status == PI_OK) status = add_text(&suffix, model, f->suffix, to, err);
    /* The cut of the files depends on the context alone, so that prompts begin with the same tokens
     * while the text grows. */
    const size_t n_files = at_most(files.n, room / 2), rest = room - n_files;
    /* A quarter of the rest is for the suffix, or more where the prefix leaves it. */
    const size_t spare = rest > prefix.n ? rest - prefix.n : 0;
    const size_t n_suffix = at_most(suffix.n, spare > rest / 4 ? spare : rest / 4);
    const size_t n_prefix = at_most(prefix.n, rest - n_suffix);
    if (status == PI_OK && info.add_bos) status = add_token(&all, info.token_bos, err);
    if (status == PI_OK && n_files > 0)
        status = add(&all, files.ids + (files.n - n_files), n_files, err);
    if (status == PI_OK) status = add_token(&all, pre, err);
    if (status == PI_OK && n_prefix > 0)
        status = add(&all, prefix.ids + (prefix.n - n_prefix), n_prefix, err);
    if (status == PI_OK) status = add_token(&all, suf, err);
    if (status == PI_OK) status = add(&all, suffix.ids, n_suffix, err);
    if (status == PI_OK) status = add_token(&all, mid, err);
    mem_free(files.ids);
    mem_free(prefix.ids);
    mem_free(suffix.ids);
    if (status != PI_OK) {
        mem_free(all.ids);
        return status;
    }
    *tokens = all.ids;
    *n_tokens = all.n;
    return PI_OK;
}
