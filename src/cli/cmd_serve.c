/* cmd_serve.c: starts and ends the HTTP server of src/server. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "cli_text.h"
#include "drafting.h"
#include "file.h"
#include "mem.h"
#include "memory_room.h"
#include "os_file.h"
#include "os_signal.h"
#include "os_text.h"
#include "sampling.h"
#include "server.h"
#include "signals.h"
#include "template_variables.h"

enum {
    GRACE_SECONDS = 5, /* seconds for running answers after a signal */
    TICK_SECONDS = 1,
    MAX_WORDS = 1024,
    MAX_KEY_FILE = 1 << 20,
    MAX_PEM_FILE = 1 << 20
};

typedef struct word_list {
    char *text; /* all values, each NUL-terminated */
    const char *words[MAX_WORDS];
    int n;
} word_list;

typedef struct job {
    const cli_options *options;
    pi_model *model;
    sampling sampling;
    drafting drafting;
    char *variables; /* variables of the template; NULL: none */
    char *template_source;
    size_t n_template;
    word_list keys, origins;
    char *tls_key, *tls_cert;     /* PEM; NULL: no TLS */
    char path[OPTION_PATH_BYTES]; /* path of the model */
    os_event asked;               /* set by SIGINT, SIGTERM and SIGHUP */
    bool has_asked;
    server *server;
} job;

/* ---- keys and origins ------------------------------------------------------------------------ */

/* Splits `text`, which ends with a NUL, at `separators`. comments: words that begin with # are
 * skipped. */
static pi_status cut_words(word_list *list, char *text, const char *separators, bool comments,
                           const char *where, pi_error *err) {
    for (char *at = text; *at;) {
        size_t n = strcspn(at, separators);
        bool last = at[n] == 0;
        at[n] = 0;
        if (*at && (!comments || *at != '#')) {
            if (list->n == MAX_WORDS)
                return error_set(err, PI_ERR_ARG, "more than %d values: %s", MAX_WORDS, where);
            list->words[list->n++] = at;
        }
        at += n + !last;
    }
    return PI_OK;
}

/* Collects the values of an option, which may be lists with commas, and the lines of a file (NULL:
 * none). */
static pi_status read_words(word_list *list, const option_texts *values, const char *file,
                            size_t n_file, const char *where, pi_error *err) {
    size_t n = 0;
    pi_status status = PI_OK;
    for (int i = 0; i < values->count; i++) n += strlen(values->values[i]) + 1;
    char *at = list->text = mem_calloc(n + n_file + 1, 1);
    if (!at) return error_nomem(err, n + n_file, "values");
    for (int i = 0; i < values->count && status == PI_OK; i++) {
        size_t m = strlen(values->values[i]) + 1;
        memcpy(at, values->values[i], m);
        status = cut_words(list, at, ",", false, where, err);
        at += m;
    }
    if (status != PI_OK || !file) return status;
    memcpy(at, file, n_file);
    return cut_words(list, at, "\r\n", true, where, err);
}

static pi_status read_keys(job *j, pi_error *err) {
    const cli_options *o = j->options;
    char *file = NULL;
    size_t n_file = 0;
    pi_status status = PI_OK;
    if (o->api_key_file) status = file_read(o->api_key_file, MAX_KEY_FILE, &file, &n_file, err);
    if (status == PI_OK)
        status = read_words(&j->keys, &o->api_keys, file, n_file, "--api-key", err);
    mem_free(file);
    /* A server with key options never runs without keys. */
    if (status == PI_OK && (o->api_keys.count || o->api_key_file) && j->keys.n == 0)
        status = error_set(err, PI_ERR_ARG, "the key is empty: --api-key");
    if (status == PI_OK && o->isolate_keys && j->keys.n == 0)
        status = error_set(err, PI_ERR_ARG, "--isolate-keys: there are no keys: --api-key");
    if (status == PI_OK)
        status = read_words(&j->origins, &o->cors_origins, NULL, 0, "--cors-origin", err);
    return status;
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* A file with a block "-----BEGIN ...KIND-----"; `out` ends with a NUL. */
static pi_status read_pem(const char *path, const char *kind, char **out, pi_error *err) {
    size_t n = 0;
    pi_status status = file_read(path, MAX_PEM_FILE, out, &n, err);
    if (status != PI_OK) return status;
    const char *begin = os_find(*out, n, "-----BEGIN ", 11);
    if (!begin || !os_find(begin, n - (size_t)(begin - *out), kind, strlen(kind)))
        return error_set(err, PI_ERR_FORMAT, "no PEM block %s: %s", kind, path);
    char *text = mem_strndup(*out, n);
    mem_free(*out);
    *out = text;
    return text ? PI_OK : error_nomem(err, n, "TLS file");
}

static pi_status read_tls(job *j, pi_error *err) {
    const cli_options *o = j->options;
    if (!o->ssl_key_file && !o->ssl_cert_file) return PI_OK;
    if (!o->ssl_key_file || !o->ssl_cert_file)
        return error_set(err, PI_ERR_ARG, "HTTPS needs both --ssl-key-file and --ssl-cert-file");
    pi_status status = read_pem(o->ssl_key_file, "PRIVATE KEY-----", &j->tls_key, err);
    if (status == PI_OK) status = read_pem(o->ssl_cert_file, "CERTIFICATE-----", &j->tls_cert, err);
    return status;
}

/* ---- folders --------------------------------------------------------------------------------- */

static pi_status check_folder(const char *path, const char *name, unsigned may, pi_error *err) {
    os_info info;
    if (!path) return PI_OK;
    int problem = os_path_info(path, &info);
    if (!problem && info.kind != OS_FOLDER)
        return error_set(err, PI_ERR_ARG, "not a folder: %s %.200s", name, path);
    if (!problem) problem = os_path_check(path, may);
    return problem ? error_set_errno(err, problem, "%s %.200s", name, path) : PI_OK;
}

static const char metric_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_:";

static pi_status check_texts(const cli_options *o, pi_error *err) {
    const char *prefix = o->api_prefix;
    size_t n = prefix ? strlen(prefix) : 0;
    if (n > 0 && (prefix[0] != '/' || prefix[n - 1] == '/' || strstr(prefix, "//")))
        return error_set(err, PI_ERR_ARG,
                         "invalid value: --api-prefix \"%.200s\": expected a path such as /llm, "
                         "without a slash at its end",
                         prefix);
    pi_status status = check_folder(o->static_path, "--path", OS_MAY_READ | OS_MAY_ENTER, err);
    if (status == PI_OK && o->metrics_prefix[strspn(o->metrics_prefix, metric_characters)])
        status = error_set(
            err, PI_ERR_ARG,
            "invalid value: --metrics-prefix \"%.200s\": expected letters, digits, _ "
            "and :",
            o->metrics_prefix);
    if (status == PI_OK)
        status = check_folder(o->cache_disk, "--cache-disk",
                              OS_MAY_READ | OS_MAY_WRITE | OS_MAY_ENTER, err);
    if (status == PI_OK && o->cache_disk && o->isolate_keys)
        status = error_set(
            err, PI_ERR_ARG,
            "--cache-disk together with --isolate-keys: files do not keep keys apart");
    if (status == PI_OK)
        status = check_folder(o->slot_save_path, "--slot-save-path",
                              OS_MAY_READ | OS_MAY_WRITE | OS_MAY_ENTER, err);
    return status;
}

/* ---- start ----------------------------------------------------------------------------------- */

static pi_status choose_context(const job *j, int32_t *n_slot, pi_error *err) {
    const cli_options *o = j->options;
    pi_model_info info;
    pi_model_get_info(j->model, &info);
    int64_t size = o->ctx_size > 0 ? o->ctx_size / o->parallel : cli_context_size(o, &info);
    if (size < 1)
        return error_set(err, PI_ERR_ARG, "-c %lld: too small for %lld slots: -np",
                         (long long)o->ctx_size, (long long)o->parallel);
    *n_slot = (int32_t)size;
    return PI_OK;
}

/* Bytes of the prompt store (--cache-ram). */
static uint64_t store_bytes(const cli_options *o, const pi_model *model) {
    static const uint64_t most = (uint64_t)8 << 30;
    pi_model_info info;
    if (o->cache_ram == -1) return UINT64_MAX;
    if (o->cache_ram >= 0) return (uint64_t)o->cache_ram << 20;
    if (o->ram_budget > 0) return 0;
    pi_model_get_info(model, &info);
    const uint64_t room = memory_room(); /* includes pages of the mapped weights */
    const uint64_t share = room > info.weight_bytes ? (room - info.weight_bytes) / 4 : 0;
    return share < most ? share : most;
}

static pi_status start(job *j, pi_error *err) {
    const cli_options *o = j->options;
    int32_t n_ctx = 0;
    pi_status status = choose_context(j, &n_ctx, err);
    if (status != PI_OK) return status;
    status = drafting_create(o, j->model, (int32_t)o->parallel, n_ctx, &j->drafting, err);
    if (status != PI_OK) return status;
    int64_t n_all = (int64_t)n_ctx * o->parallel;
    const char *slash = strrchr(j->path, '/');
    pi_context_options context = cli_context_options(o, n_all < INT32_MAX ? (int32_t)n_all
                                                                          : INT32_MAX);
    context.timed_forms = !o->deterministic;
    const server_options options = {
        .model = j->model,
        .model_path = j->path,
        .metrics_prefix = o->metrics_prefix,
        .model_name = o->alias ? o->alias
                      : slash  ? slash + 1
                               : j->path,
        .context = context,
        .sampling = j->sampling.options,
        .n_slots = (int32_t)o->parallel,
        .n_ctx = n_ctx,
        .store = {.max_bytes = store_bytes(o, j->model),
                  .folder = o->cache_disk,
                  .max_file_bytes = (uint64_t)(o->cache_disk_size * (double)(1 << 30))},
        .max_queue = (int32_t)o->queue,
        .max_tokens = (int32_t)o->predict,
        .host = o->host,
        .port = (uint16_t)o->port,
        .api_keys = j->keys.words,
        .n_api_keys = j->keys.n,
        .isolates_keys = o->isolate_keys,
        .tls_key = j->tls_key,
        .tls_cert = j->tls_cert,
        .origins = j->origins.words,
        .n_origins = j->origins.n,
        .template_source = j->template_source,
        .n_template = j->n_template,
        .template_name = o->chat_template,
        .template_variables = j->variables,
        .keeps_reasoning = o->reasoning_format == FORMAT_NONE,
        .evaluates_all = o->no_cache_prompt,
        .completes_messages = o->no_prefill_assistant,
        .has_page = !o->no_webui,
        .static_path = o->static_path,
        .api_prefix = o->api_prefix,
        .hides_slots = o->no_slots,
        .slot_folder = o->slot_save_path,
        .pooling = (server_pooling)o->pooling,
        .ping_seconds = (int32_t)o->ping,
        .read_seconds = (int32_t)o->timeout,
        .max_connections = (int32_t)o->connections,
        .speculator = j->drafting.speculator};
    status = server_start(&options, &j->server, err);
    if (status != PI_OK) return status;
    cli_say(o, "%d slots of %d tokens; mode %s, kernels %s, %d threads", options.n_slots, n_ctx,
            pi_context_mode(server_context(j->server)),
            pi_context_kernels(server_context(j->server)),
            (int)pi_context_threads(server_context(j->server)));
    if (server_lacks_template(j->server)) cli_say_no_template(o);
    return PI_OK;
}

/* ---- until a signal -------------------------------------------------------------------------- */

static int serve(job *j) {
    bool v6 = strchr(j->options->host, ':') != NULL;
    signals_notify(&j->asked);
    printf("listening on %s://%s%s%s:%u\n", j->tls_cert ? "https" : "http", v6 ? "[" : "",
           j->options->host, v6 ? "]" : "", (unsigned)server_port(j->server));
    errno = 0;
    if (fflush(stdout) != 0) {
        signals_restore();
        return cli_output_failed(errno);
    }
    while (!signals_caught()) {
        os_event_wait(&j->asked, TICK_SECONDS);
        server_tick(j->server);
    }
    cli_say(j->options, "shutting down: answers in progress have %d seconds", GRACE_SECONDS);
    server_stop(j->server, GRACE_SECONDS);
    j->server = NULL;
    signals_restore();
    return EXIT_DONE;
}

static void tear_down(job *j) {
    server_stop(j->server, 0);
    drafting_free(&j->drafting);
    sampling_free(&j->sampling);
    pi_model_close(j->model);
    mem_free(j->template_source);
    mem_free(j->variables);
    mem_free(j->keys.text);
    mem_free(j->origins.text);
    mem_free(j->tls_key);
    mem_free(j->tls_cert);
    if (j->has_asked) os_event_close(&j->asked);
}

int cmd_serve(const cli_options *o) {
    if (o->chat_template && o->chat_template_file)
        return cli_wrong("two templates: --chat-template and --chat-template-file: give one of "
                         "them");
    pi_error err = {.status = PI_OK};
    job j = {.options = o};
    pi_status status = sampling_create(o, &j.sampling, &err);
    if (status == PI_OK) status = drafting_check(o, &err);
    if (status == PI_OK) status = read_keys(&j, &err);
    if (status == PI_OK) status = check_texts(o, &err);
    if (status == PI_OK) status = template_variables_create(o, &j.variables, &err);
    if (status == PI_OK) status = read_tls(&j, &err);
    if (status == PI_OK && o->chat_template_file)
        status = file_read_stream(o->chat_template_file, CLI_TEXT_MAX, &j.template_source,
                                  &j.n_template, &err);
    if (status == PI_OK) status = cli_model_path(o, j.path, sizeof j.path, &err);
    if (status == PI_OK) status = cli_model_open(o, false, &j.model, &err);
    if (status == PI_OK) status = sampling_add_grammar(o, j.model, &j.sampling, &err);
    if (status == PI_OK) {
        int problem = os_event_create(&j.asked);
        j.has_asked = !problem;
        if (problem) status = error_set_errno(&err, problem, "no pipe");
    }
    if (status == PI_OK) status = start(&j, &err);
    int result = status == PI_OK ? serve(&j) : cli_failed(&err);
    tear_down(&j);
    return result;
}
