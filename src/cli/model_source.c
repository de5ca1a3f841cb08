/* model_source.c: see model_source.h. */
#include "model_source.h"

#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "cli_message.h"
#include "fetch.h"
#include "file.h"
#include "mem.h"
#include "signals.h"
#include "terminal.h"

enum { MAX_SOURCES = 1024 };

void model_sources_free(model_sources *s) {
    for (size_t i = 0; i < s->n; i++) {
        mem_free(s->items[i].what);
        mem_free(s->items[i].path);
    }
    mem_free(s->items);
    *s = (model_sources){.n = 0};
}

/* ---- options --------------------------------------------------------------------------------- */

pi_status model_source_settle(cli_options *o, pi_error *err) {
    bool file = options_typed(o, &o->model), repo = options_typed(o, &o->hf_repo);
    bool url = options_typed(o, &o->model_url);
    if (file + repo + url > 1)
        return error_set(err, PI_ERR_ARG, "several models: -m, -hf and -mu: give one of them");
    if (file || url) o->hf_repo = o->hf_file = NULL;
    if (file || repo || (o->hf_repo && !url)) o->model_url = NULL;
    if (repo || url) o->model = NULL;
    if (o->hf_file && !o->hf_repo)
        return error_set(err, PI_ERR_ARG, "no repository: -hff %.200s: name it with -hf USER/REPO",
                         o->hf_file);
    return PI_OK;
}

bool model_source_typed(const cli_options *o, char *buf, size_t n_buf) {
    if (options_typed(o, &o->model))
        snprintf(buf, n_buf, "-m %.200s", o->model);
    else if (options_typed(o, &o->hf_repo))
        snprintf(buf, n_buf, "-hf %.200s", o->hf_repo);
    else if (options_typed(o, &o->model_url))
        snprintf(buf, n_buf, "-mu %.200s", o->model_url);
    else
        return false;
    return true;
}

bool model_source_given(const cli_options *o) {
    return (o->model && fetch_is_url(o->model)) || (!o->model && (o->hf_repo || o->model_url));
}

/* ---- downloads ------------------------------------------------------------------------------- */

static bool stop_asked(void *user) {
    (void)user;
    return signals_caught() != 0;
}

static bool show_progress(void *user, const char *stage, double fraction) {
    return terminal_progress_step(user, stage, fraction) && !signals_caught();
}

static pi_status download(const cli_options *o, const char *url, char *path, size_t n_path,
                          pi_error *err) {
    terminal_progress bar;
    fetch_options options = {.endpoint = o->hf_endpoint,
                             .token = o->hf_token,
                             .hub_folder = o->hub_folder,
                             .urls_folder = o->urls_folder,
                             .offline = o->offline,
                             .progress = show_progress,
                             .message = terminal_progress_message,
                             .stop = stop_asked,
                             .user = &bar};
    if (!o->hub_folder[0] || (url && !o->urls_folder[0]))
        return error_set(err, PI_ERR_ARG,
                         "no folder for downloads: neither HF_HUB_CACHE nor HOME is set");
    terminal_progress_begin(&bar, o->quiet);
    signals_cancel_context(NULL); /* remembers the signal */
    pi_status status = url ? fetch_url(&options, url, path, n_path, err)
                           : fetch_hub(&options, o->hf_repo, o->hf_file, path, n_path, err);
    int number = signals_caught();
    signals_restore();
    terminal_progress_end(&bar);
    if (status == PI_ERR_CANCELLED && number) {
        cli_failed(err);
        signals_end(number);
    }
    return status;
}

pi_status model_source_keep(const cli_options *o, const char **path, pi_error *err) {
    model_sources *s = o->sources;
    char what[OPTION_PATH_BYTES], found[OPTION_PATH_BYTES];
    const char *url = o->model ? o->model : o->hf_repo ? NULL : o->model_url;
    snprintf(what, sizeof what, "%s %s", url ? url : o->hf_repo,
             url || !o->hf_file ? "" : o->hf_file);
    for (size_t i = 0; i < s->n; i++) {
        *path = s->items[i].path;
        if (strcmp(s->items[i].what, what) == 0) return PI_OK;
    }
    pi_status status = download(o, url, found, sizeof found, err);
    if (status != PI_OK) return status;
    model_source item = {.what = mem_strdup(what), .path = mem_strdup(found)};
    if (!item.what || !item.path ||
        !mem_grow((void **)&s->items, &s->capacity, s->n + 1, sizeof *s->items, MAX_SOURCES)) {
        mem_free(item.what);
        mem_free(item.path);
        return error_nomem(err, sizeof what, "path of the model");
    }
    s->items[s->n++] = item;
    *path = item.path;
    return PI_OK;
}

bool model_source_is_ours(const cli_options *o, const char *path) {
    for (size_t i = 0; i < o->sources->n; i++)
        if (strcmp(o->sources->items[i].path, path) == 0) return true;
    return false;
}

pi_status model_source_path(const cli_options *o, char *buf, size_t n_buf, pi_error *err) {
    const char *path;
    pi_status status = model_source_keep(o, &path, err);
    if (status != PI_OK) return status;
    if (strlen(path) >= n_buf)
        return error_set(err, PI_ERR_LIMIT, "path is too long: %.200s", path);
    memcpy(buf, path, strlen(path) + 1);
    return PI_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Finds "USER/REPO" or "USER/REPO:QUANT", also after the hub's host name. NULL: not found. */
static const char *as_repository(const char *word) {
    static const char *const hosts[] = {"hf.co/", "huggingface.co/"};
    bool has_host = false;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        if (!starts_with(word, hosts[i])) continue;
        word += strlen(hosts[i]);
        has_host = true;
    }
    const char *slash = strchr(word, '/');
    bool two = slash && slash > word && slash[1] && !strchr(slash + 1, '/') && *word != '.' &&
               *word != '/' && *word != '~';
    return two && (has_host || strstr(word, "GGUF") || strstr(word, "gguf")) &&
                   !ends_with(word, ".gguf")
               ? word
               : NULL;
}

pi_status model_source_refuse_name(const char *word, pi_error *err) {
    if (file_exists(word)) return PI_OK;
    const char *repo = as_repository(word);
    if (repo)
        return error_set(err, PI_ERR_ARG,
                         "no such file: %.200s: to download the repository's model from Hugging "
                         "Face, use -hf %.200s",
                         word, repo);
    if (strchr(word, '/') || ends_with(word, ".gguf") || (strchr(word, '.') && !strchr(word, ':')))
        return PI_OK; /* a path: opening it gives the message */
    return error_set(err, strchr(word, ':') ? PI_ERR_ARG : PI_ERR_NOT_FOUND,
                     "no such file: %.200s: a model is the name of a GGUF file, or -hf "
                     "USER/REPO[:QUANT] to download one from Hugging Face, such as -hf "
                     "Qwen/Qwen3-4B-GGUF (docs/models.md)",
                     word);
}
