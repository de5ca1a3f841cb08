/* cmd_serve.c: starts and ends the HTTP server of src/server. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "file.h"
#include "mem.h"
#include "memory_room.h"
#include "os_file.h"
#include "os_signal.h"
#include "os_terminal.h"
#include "os_text.h"
#include "serve_keys.h"
#include "serve_models.h"
#include "server.h"
#include "signals.h"

enum { TICK_SECONDS = 1, MAX_PEM_FILE = 1 << 20, METRICS_PREFIX_MAX = 64 };

typedef struct job {
    const cli_options *options;
    serve_keys keys;
    serve_models models; /* with --models */
    serve_model only;    /* without */
    server_model one;
    char *tls_key, *tls_cert; /* PEM; NULL: no TLS */
    os_event asked;           /* set by SIGINT, SIGTERM and SIGHUP */
    bool has_asked;
    server *server;
} job;

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
    if (status == PI_OK && (o->metrics_prefix[strspn(o->metrics_prefix, metric_characters)] ||
                            strlen(o->metrics_prefix) > METRICS_PREFIX_MAX))
        status = error_set(err, PI_ERR_ARG,
                           "invalid value: --metrics-prefix \"%.200s\": expected at most %d "
                           "letters, digits, _ and :",
                           o->metrics_prefix, (int)METRICS_PREFIX_MAX);
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

/* Finds the files of all models, and checks their options. */
static pi_status find_models(job *j, pi_error *err) {
    const cli_options *o = j->options;
    const bool named = options_typed(o, &o->model) || options_typed(o, &o->hf_repo) ||
                       options_typed(o, &o->model_url) || o->n_positionals > 0;
    if (named && options_typed(o, &o->models))
        return error_set(err, PI_ERR_ARG, "-m and --models: give one of them, or list the model");
    if (o->models.count > 0 && !named) return serve_models_read(&j->models, o, err);
    j->only.options = o;
    pi_status status = serve_model_find(&j->only, err);
    const char *slash = strrchr(j->only.path, '/');
    j->only.name = o->alias ? o->alias : slash ? slash + 1 : j->only.path;
    j->one = (server_model){.name = j->only.name,
                            .path = j->only.path,
                            .adapters = j->only.adapters,
                            .n_adapters = j->only.n_adapters,
                            .idle_seconds = (double)o->models_idle,
                            .at_start = true,
                            .is_default = true,
                            .open = serve_model_open,
                            .close = serve_model_close,
                            .user = &j->only};
    return status;
}

/* Maximum size of the loaded models; 0: no limit. */
static uint64_t models_bytes(const cli_options *o) {
    if (options_given(o, &o->models_memory))
        return (uint64_t)(o->models_memory * (double)(1 << 30));
    const uint64_t room = memory_room();
    return room == UINT64_MAX ? 0 : room / 4 * 3; /* the rest: KV caches and prompt stores */
}

/* One write per line keeps lines of several threads apart. */
static void log_request(const char *line, size_t n) {
    (void)os_file_write(OS_STDERR, line, n);
}

static pi_status start(job *j, pi_error *err) {
    const cli_options *o = j->options;
    const bool routes = j->models.n > 0;
    const server_options options = {.models = routes ? j->models.items : &j->one,
                                    .n_models = routes ? j->models.n : 1,
                                    .routes = routes,
                                    .max_models = (int32_t)o->models_max,
                                    .max_model_bytes = models_bytes(o),
                                    .metrics_prefix = o->metrics_prefix,
                                    .host = o->host,
                                    .port = (uint16_t)o->port,
                                    .api_keys = j->keys.keys.words,
                                    .limits = j->keys.limited ? j->keys.limits : NULL,
                                    .n_api_keys = j->keys.keys.n,
                                    .isolates_keys = o->isolate_keys,
                                    .tls_key = j->tls_key,
                                    .tls_cert = j->tls_cert,
                                    .origins = j->keys.origins.words,
                                    .n_origins = j->keys.origins.n,
                                    .has_page = !o->no_webui,
                                    .static_path = o->static_path,
                                    .api_prefix = o->api_prefix,
                                    .hides_slots = o->no_slots,
                                    .changes_props = o->props,
                                    .slot_folder = o->slot_save_path,
                                    .ping_seconds = (int32_t)o->ping,
                                    .read_seconds = (int32_t)o->timeout,
                                    .max_connections = (int32_t)o->connections,
                                    .log_request = o->log_json ? log_request : NULL};
    pi_status status = server_start(&options, &j->server, err);
    if (status != PI_OK) return status;
    server_description d;
    server_describe(j->server, &d);
    if (routes)
        cli_say(o, "%d models, which requests load by their names", j->models.n);
    else if (d.n_slots > 0)
        cli_say(o, "%d slots of %d tokens; mode %s, kernels %s, %d threads", d.n_slots, d.n_ctx,
                d.mode, d.kernels, d.n_threads);
    if (d.lacks_template) cli_say_no_template(o);
    return PI_OK;
}

/* ---- until a signal -------------------------------------------------------------------------- */

/* Opens the page of a server that may listen on all addresses. */
static void open_page(const job *j, const char *scheme) {
    const cli_options *o = j->options;
    const char *host = o->host;
    char address[512];
    if (strcmp(host, "0.0.0.0") == 0) host = "127.0.0.1";
    if (strcmp(host, "::") == 0) host = "::1";
    bool v6 = strchr(host, ':') != NULL;
    snprintf(address, sizeof address, "%s://%s%.200s%s:%u%.200s/", scheme, v6 ? "[" : "", host,
             v6 ? "]" : "", (unsigned)server_port(j->server), o->api_prefix ? o->api_prefix : "");
    int problem = os_open_address(address);
    if (problem) cli_say(o, "cannot open a browser: %s: open %s", strerror(problem), address);
}

static int serve(job *j) {
    const char *scheme = j->tls_cert ? "https" : "http";
    bool v6 = strchr(j->options->host, ':') != NULL;
    signals_notify(&j->asked);
    printf("listening on %s://%s%s%s:%u\n", scheme, v6 ? "[" : "", j->options->host, v6 ? "]" : "",
           (unsigned)server_port(j->server));
    errno = 0;
    if (fflush(stdout) != 0) {
        signals_restore();
        return cli_output_failed(errno);
    }
    if (j->options->opens_page) open_page(j, scheme);
    while (!signals_caught()) {
        os_event_wait(&j->asked, TICK_SECONDS);
        server_tick(j->server);
    }
    server_drain(j->server);
    cli_say(j->options, "shutting down: answers in progress have %lld seconds",
            (long long)j->options->drain);
    server_stop(j->server, (double)j->options->drain);
    j->server = NULL;
    const bool lost = signals_caught() == SIGNALS_ASKED; /* a rank, which was reported */
    signals_restore();
    return lost ? EXIT_WORK : EXIT_DONE;
}

static void tear_down(job *j) {
    server_stop(j->server, 0);
    serve_models_free(&j->models);
    serve_model_free(&j->only);
    serve_keys_free(&j->keys);
    mem_free(j->tls_key);
    mem_free(j->tls_cert);
    if (j->has_asked) os_event_close(&j->asked);
    mem_free(j);
}

int cmd_serve(const cli_options *o) {
    if (o->chat_template && o->chat_template_file)
        return cli_wrong("two templates: --chat-template and --chat-template-file: give one of "
                         "them");
    if (o->cluster && o->models.count > 0)
        return cli_wrong("--models on several machines: they run one model: name it with -m");
    if (o->opens_page && o->no_webui && !o->static_path)
        return cli_wrong("--open and --no-webui: there is no page to open: give one of them");
    pi_error err = {.status = PI_OK};
    job *j = mem_calloc(1, sizeof *j);
    if (!j) {
        error_nomem(&err, sizeof *j, "server");
        return cli_failed(&err);
    }
    j->options = o;
    pi_status status = serve_keys_read(&j->keys, o, &err);
    if (status == PI_OK) status = check_texts(o, &err);
    if (status == PI_OK) status = read_tls(j, &err);
    if (status == PI_OK) status = find_models(j, &err);
    if (status == PI_OK) {
        int problem = os_event_create(&j->asked);
        j->has_asked = !problem;
        if (problem) status = error_set_errno(&err, problem, "no pipe");
    }
    if (status == PI_OK) status = start(j, &err);
    int result = status == PI_OK ? serve(j) : cli_failed(&err);
    tear_down(j);
    return result;
}
