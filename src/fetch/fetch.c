/* fetch.c: chooses the file and its path in the cache; download.c downloads it if it is missing. */
#include "fetch.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "ascii_case.h"
#include "download.h"
#include "file.h"
#include "hex_digit.h"
#include "hub_cache.h"
#include "json.h"
#include "mem.h"
#include "notifier.h"
#include "os_file.h"
#include "sha256.h"

enum {
    LISTING_MAX = 64 << 20, /* bytes of the hub's description of a repository */
    HASH_KEPT = 16          /* digits of a URL's hash in names */
};

static const char main_branch[] = "main";

typedef struct fetcher {
    const fetch_options *options;
    const char *endpoint; /* the first n_endpoint bytes, without a slash at the end */
    int n_endpoint;
    http_client *http;                               /* NULL: only files that are there already */
    pi_error no_network;                             /* why */
    char repo[HUB_NAME_MAX], revision[HUB_NAME_MAX]; /* of the hub */
} fetcher;

static pi_status open_fetcher(const fetch_options *o, fetcher *f, pi_error *err) {
    *f = (fetcher){.options = o, .endpoint = fetch_endpoint(o)};
    f->n_endpoint = (int)strlen(f->endpoint);
    while (f->n_endpoint > 0 && f->endpoint[f->n_endpoint - 1] == '/') f->n_endpoint--;
    for (const char *c = o->token; c && *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return error_set(err, PI_ERR_ARG,
                             "invalid token: it has characters that no token has: check HF_TOKEN "
                             "or -hft");
    pi_status status = o->offline ? PI_OK : fetch_http_open(&f->http, &f->no_network);
    if (status == PI_OK || status == PI_ERR_UNSUPPORTED) return PI_OK;
    return error_set(err, status, "%s", f->no_network.message);
}

static void close_fetcher(fetcher *f) {
    fetch_http_close(f->http);
}

bool fetch_is_url(const char *text) {
    return ascii_same_n(text, "https://", 8) || ascii_same_n(text, "http://", 7);
}

static pi_status too_long(const char *what, pi_error *err) {
    return error_set(err, PI_ERR_ARG, "the path or URL is too long: %.200s", what);
}

/* ---- the hub --------------------------------------------------------------------------------- */

/* `text` with %XX for bytes that are not allowed in the path of a URL. */
static bool escape_path(const char *text, char *buf, size_t n_buf) {
    size_t n = 0;
    for (; *text; text++) {
        bool plain = isalnum((unsigned char)*text) || strchr("-._~/", *text);
        if (n + 4 > n_buf) return false;
        n += (size_t)snprintf(buf + n, n_buf - n, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
    return true;
}

typedef struct text_body {
    char *data;
    size_t n, capacity;
    const fetch_options *options;
} text_body;

static bool take_text(void *user, const char *data, size_t n) {
    text_body *b = user;
    if (!mem_grow((void **)&b->data, &b->capacity, b->n + n, 1, LISTING_MAX)) return false;
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return true;
}

static bool tick_text(void *user) {
    const text_body *b = user;
    return download_tick((void *)(uintptr_t)b->options);
}

/* {"sha": COMMIT, "siblings": [{"rfilename": NAME}, ...]} */
static pi_status read_listing(const char *text, size_t n, char commit[HUB_COMMIT + 1],
                              hub_files *files, pi_error *err) {
    json_doc *doc = NULL;
    pi_status status = json_parse(text, n, "the hub's response", &doc, err);
    if (status != PI_OK) return status;
    const json_node *root = json_root(doc), *list = json_get(root, "siblings");
    const char *sha = "", *name;
    size_t n_name;
    json_as_string(json_get(root, "sha"), &sha, &n_name);
    if (hub_commit_valid(sha)) memcpy(commit, sha, HUB_COMMIT + 1);
    if (!hub_commit_valid(sha) || json_kind_of(list) != JSON_ARRAY)
        status = error_set(err, PI_ERR_FORMAT,
                           "the hub's response has no list of files: check HF_ENDPOINT");
    for (size_t i = 0; status == PI_OK && i < json_count(list); i++)
        if (json_as_string(json_get(json_at(list, i), "rfilename"), &name, &n_name) &&
            strlen(name) == n_name)
            status = hub_files_add(files, name, err);
    json_free(doc);
    return status;
}

/* Current commit and files of the repository. *refused: the hub responded with an error. */
static pi_status list_hub(fetcher *f, char commit[HUB_COMMIT + 1], hub_files *files, bool *refused,
                          pi_error *err) {
    char url[HTTP_URL_MAX];
    http_reply reply;
    text_body body = {.options = f->options};
    snprintf(url, sizeof url, "%.*s/api/models/%s/revision/%s", f->n_endpoint, f->endpoint, f->repo,
             main_branch);
    http_request r = {.url = url,
                      .token = f->options->token,
                      .home = f->endpoint,
                      .body = take_text,
                      .tick = tick_text,
                      .user = &body};
    pi_status status = fetch_http_send(f->http, &r, &reply, err);
    *refused = status == PI_OK && reply.status != 200 && reply.status != 429 && reply.status < 500;
    if (status == PI_ERR_CANCELLED && tick_text(&body))
        status = error_set(err, PI_ERR_LIMIT, "the hub's response is too long: %.200s", url);
    else if (status == PI_OK && reply.status != 200)
        status = download_refused(f->options, &reply, url, err);
    else if (status == PI_OK)
        status = read_listing(body.data ? body.data : "", body.n, commit, files, err);
    mem_free(body.data);
    return status;
}

static pi_status send_head(fetcher *f, const char *url, http_reply *reply, pi_error *err) {
    http_request r = {.url = url,
                      .token = f->options->token,
                      .home = f->endpoint,
                      .head = true,
                      .tick = download_tick,
                      .user = (void *)(uintptr_t)f->options};
    return fetch_http_send(f->http, &r, reply, err);
}

/* A file of the hub as the server describes it. */
typedef struct hub_entry {
    char commit[HUB_COMMIT + 1], etag[HUB_NAME_MAX];
    int64_t size;
} hub_entry;

static pi_status ask_hub(fetcher *f, const char *url, hub_entry *e, pi_error *err) {
    http_reply reply;
    pi_status status = send_head(f, url, &reply, err);
    if (status != PI_OK) return status;
    if (reply.status >= 400 || reply.status < 200)
        return download_refused(f->options, &reply, url, err);
    bool linked = reply.linked_etag[0] != 0;
    e->size = reply.linked_size >= 0 ? reply.linked_size : reply.length;
    if (!hub_etag_plain(linked ? reply.linked_etag : reply.etag, e->etag, sizeof e->etag) ||
        !hub_commit_valid(reply.commit) || e->size < 0)
        return error_set(err, PI_ERR_FORMAT,
                         "the server does not answer as Hugging Face's hub does: %.300s: check "
                         "HF_ENDPOINT",
                         url);
    memcpy(e->commit, reply.commit, sizeof e->commit);
    return PI_OK;
}

/* Downloads a file of the revision unless it is there; `commit` ("": ask) becomes its commit. */
static pi_status get_hub_file(fetcher *f, const char *file, char commit[HUB_COMMIT + 1],
                              pi_error *err) {
    const char *hub = f->options->hub_folder;
    char path[OS_PATH_MAX], blob[OS_PATH_MAX], lock[OS_PATH_MAX], partial[OS_PATH_MAX];
    char escaped[HTTP_URL_MAX / 2], url[HTTP_URL_MAX];
    hub_entry e;
    if (*commit && hub_snapshot_path(hub, f->repo, commit, file, path) && file_exists(path))
        return PI_OK;
    if (!escape_path(file, escaped, sizeof escaped)) return too_long(file, err);
    snprintf(url, sizeof url, "%.*s/%s/resolve/%s/%s", f->n_endpoint, f->endpoint, f->repo,
             *commit ? commit : f->revision, escaped);
    pi_status status = ask_hub(f, url, &e, err);
    if (status != PI_OK) return status;
    if (!hub_blob_path(hub, f->repo, e.etag, blob) || !hub_lock_path(hub, f->repo, e.etag, lock) ||
        snprintf(partial, sizeof partial, "%s.incomplete", blob) >= (int)sizeof partial)
        return too_long(hub, err);
    download d = {.options = f->options,
                  .http = f->http,
                  .url = url,
                  .name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file,
                  .path = blob,
                  .lock = lock,
                  .partial = partial,
                  .size = e.size,
                  .sha256 = hub_etag_is_sha256(e.etag) ? e.etag : NULL,
                  .resumable = true};
    if (!hub_snapshot_path(hub, f->repo, e.commit, file, path)) return too_long(hub, err);
    if (!file_exists(path)) status = download_run(&d, err);
    if (status == PI_OK) status = hub_link(hub, f->repo, e.commit, file, e.etag, err);
    memcpy(commit, e.commit, sizeof e.commit);
    return status;
}

/* Fetches all parts of a file; `path` is that of the first. */
static pi_status get_hub_parts(fetcher *f, const char *file, char commit[HUB_COMMIT + 1],
                               char *path, size_t n_path, pi_error *err) {
    char name[HUB_NAME_MAX * 2], first[OS_PATH_MAX];
    pi_status status = PI_OK;
    for (int i = 0; status == PI_OK && i < hub_parts(file); i++) {
        if (!hub_part_name(file, i, name, sizeof name)) return too_long(file, err);
        status = get_hub_file(f, name, commit, err);
    }
    if (status != PI_OK) return status;
    /* The branch refers to this commit only now, so that offline use finds a complete model. */
    if (!hub_commit_valid(f->revision))
        status = hub_write_ref(f->options->hub_folder, f->repo, f->revision, commit, err);
    if (status != PI_OK) return status;
    if (!hub_part_name(file, 0, name, sizeof name) ||
        !hub_snapshot_path(f->options->hub_folder, f->repo, commit, name, first) ||
        strlen(first) >= n_path)
        return too_long(file, err);
    memcpy(path, first, strlen(first) + 1);
    return PI_OK;
}

/* Finds a file in the cache: its first part, if all parts are there. */
static bool find_cached(const fetcher *f, const char *quant, const char *file, char *path,
                        size_t n_path) {
    const char *hub = f->options->hub_folder;
    char commit[HUB_COMMIT + 1], name[HUB_NAME_MAX * 2], full[OS_PATH_MAX] = "";
    hub_files files = {.n = 0};
    bool found = false;
    if (hub_commit_valid(f->revision))
        memcpy(commit, f->revision, sizeof commit);
    else if (!hub_read_ref(hub, f->repo, f->revision, commit))
        return false;
    if (!file && hub_list(hub, f->repo, commit, &files, NULL) == PI_OK)
        file = hub_files_choose(&files, quant);
    for (int i = 0; file && i < hub_parts(file); i++) {
        found = hub_part_name(file, i, name, sizeof name) &&
                hub_snapshot_path(hub, f->repo, commit, name, full) && file_exists(full);
        if (!found) break;
    }
    found = found && hub_part_name(file, 0, name, sizeof name) &&
            hub_snapshot_path(hub, f->repo, commit, name, full) && strlen(full) < n_path;
    if (found) memcpy(path, full, strlen(full) + 1);
    hub_files_free(&files);
    return found;
}

static pi_status not_there(const fetcher *f, const char *what, pi_error *err) {
    if (!f->options->offline)
        return error_set(err, f->no_network.status, "%s", f->no_network.message);
    return error_set(err, PI_ERR_NOT_FOUND,
                     "not downloaded yet: %.200s: %.200s does not have it: run the command without "
                     "--offline, with a connection",
                     what, f->options->hub_folder);
}

/* With a connection: finds the file by its name, or in the list of files. */
static pi_status get_from_hub(fetcher *f, const char *quant, const char *file, char *path,
                              size_t n_path, bool *refused, pi_error *err) {
    char commit[HUB_COMMIT + 1] = "";
    hub_files files = {.n = 0};
    *refused = false;
    if (file) return get_hub_parts(f, file, commit, path, n_path, err);
    pi_status status = list_hub(f, commit, &files, refused, err);
    if (status == PI_OK) {
        *refused = true; /* later errors are not connection errors */
        char choices[HUB_NAME_MAX];
        file = hub_files_choose(&files, quant);
        hub_files_describe(&files, choices, sizeof choices);
        if (file)
            status = get_hub_parts(f, file, commit, path, n_path, err);
        else if (!choices[0])
            status = error_set(
                err, PI_ERR_NOT_FOUND,
                "no GGUF file in the repository: %s: look for one whose name ends in "
                "-GGUF, or convert the model with powerinfer convert",
                f->repo);
        else
            status = error_set(err, PI_ERR_NOT_FOUND, "no file for %s in %s: it has %s", quant,
                               f->repo, choices);
    }
    hub_files_free(&files);
    return status;
}

static pi_status fetch_from_hub(fetcher *f, const char *quant, const char *file, char *path,
                                size_t n_path, pi_error *err) {
    bool refused = false;
    if (!f->http)
        return find_cached(f, quant, file, path, n_path) ? PI_OK : not_there(f, f->repo, err);
    pi_error why = {.status = PI_OK};
    pi_status status = get_from_hub(f, quant, file, path, n_path, &refused, &why);
    bool no_connection = status == PI_ERR_IO && !refused;
    if (no_connection && find_cached(f, quant, file, path, n_path)) {
        notify(&(notifier){f->options->message, f->options->user}, "%s: using earlier downloads",
               why.message);
        return PI_OK;
    }
    if (status != PI_OK && err) *err = why;
    return status;
}

pi_status fetch_hub(const fetch_options *o, const char *repo, const char *file, char *path,
                    size_t n_path, pi_error *err) {
    fetcher f;
    hub_repo r;
    pi_status status = hub_repo_parse(repo, &r, err);
    if (status != PI_OK) return status;
    if (file && !hub_file_valid(file))
        return error_set(
            err, PI_ERR_ARG,
            "invalid file name: \"%.200s\": expected a path in the repository, such as "
            "model-Q4_K_M.gguf",
            file);
    status = open_fetcher(o, &f, err);
    if (status == PI_OK) {
        snprintf(f.repo, sizeof f.repo, "%s", r.name);
        snprintf(f.revision, sizeof f.revision, "%s", main_branch);
        status = fetch_from_hub(&f, r.quant, file, path, n_path, err);
    }
    close_fetcher(&f);
    return status;
}

/* ---- URLs ------------------------------------------------------------------------------------ */

/* Decodes %XX; false: not the path of a URL, or too long. */
static bool unescape(const char *text, size_t n, char *buf, size_t n_buf) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t value = (unsigned char)text[i];
        if (text[i] == '%') {
            value = hex_number(text + i + 1, text + n, 2);
            i += 2;
        }
        if (value <= 0 || used + 1 >= n_buf) return false;
        buf[used++] = (char)value;
    }
    buf[used] = 0;
    return true;
}

/* HUB/USER/REPO/resolve/REVISION/FILE; the page of a file (blob) is accepted as the file. */
static bool read_hub_url(fetcher *f, const char *url, char *file, size_t n_file) {
    size_t n = (size_t)f->n_endpoint;
    if (strncmp(url, f->endpoint, n) != 0 || url[n] != '/') return false;
    const char *repo = url + n + 1, *slash = strchr(repo, '/');
    const char *kind = slash ? strchr(slash + 1, '/') : NULL, *revision = NULL;
    if (kind && starts_with(kind, "/resolve/")) revision = kind + strlen("/resolve/");
    if (kind && starts_with(kind, "/blob/")) revision = kind + strlen("/blob/");
    if (!revision) return false;
    const char *name = revision + strcspn(revision, "/?#");
    size_t n_revision = (size_t)(name - revision), n_repo = (size_t)(kind - repo);
    hub_repo parsed;
    if (*name != '/' || n_repo >= sizeof f->repo || n_revision >= sizeof f->revision) return false;
    snprintf(f->repo, sizeof f->repo, "%.*s", (int)n_repo, repo);
    snprintf(f->revision, sizeof f->revision, "%.*s", (int)n_revision, revision);
    return unescape(name + 1, strcspn(name + 1, "?#"), file, n_file) && hub_file_valid(file) &&
           hub_file_valid(f->revision) && hub_repo_parse(f->repo, &parsed, NULL) == PI_OK &&
           !parsed.quant[0];
}

/* The cached file of a URL: FOLDER/HASH/NAME. */
static bool url_path(const char *folder, const char *url, const char *name,
                     char path[OS_PATH_MAX]) {
    char hash[SHA256_HEX + 1];
    size_t n = strcspn(url, "?#");
    while (n > 0 && url[n - 1] != '/') n--;
    sha256_hex(url, n, hash);
    int written = snprintf(path, OS_PATH_MAX, "%s/%.*s/%s", folder, HASH_KEPT, hash, name);
    return written > 0 && written < OS_PATH_MAX;
}

/* Fetches a file of another server. A HEAD request returns its version; if the server refuses HEAD,
 * the file is downloaded in one piece. */
static pi_status get_url_file(fetcher *f, const char *url, const char *name, pi_error *err) {
    char path[OS_PATH_MAX], lock[OS_PATH_MAX], partial[OS_PATH_MAX], hash[SHA256_HEX + 1];
    http_reply reply;
    if (!url_path(f->options->urls_folder, url, name, path)) return too_long(url, err);
    if (file_exists(path)) return PI_OK;
    if (!f->http) return not_there(f, url, err);
    pi_status status = send_head(f, url, &reply, err);
    if (status != PI_OK) return status;
    if (reply.status == 401 || reply.status == 404)
        return download_refused(f->options, &reply, url, err);
    bool good = reply.status == 200;
    const char *version = good && reply.etag[0] == '"' ? reply.etag : NULL; /* a strong one */
    sha256_hex(version ? version : "", version ? strlen(version) : 0, hash);
    if (snprintf(lock, sizeof lock, "%s.lock", path) >= (int)sizeof lock ||
        snprintf(partial, sizeof partial, "%s.%.*s.incomplete", path, HASH_KEPT, hash) >=
            (int)sizeof partial)
        return too_long(url, err);
    download d = {.options = f->options,
                  .http = f->http,
                  .url = url,
                  .name = name,
                  .path = path,
                  .lock = lock,
                  .partial = partial,
                  .size = good ? reply.length : -1,
                  .version = version,
                  .resumable = version && reply.length >= 0};
    return download_run(&d, err);
}

static pi_status fetch_other(fetcher *f, const char *url, char *path, size_t n_path,
                             pi_error *err) {
    char file[HUB_NAME_MAX * 2], name[HUB_NAME_MAX * 2], part[HTTP_URL_MAX], first[OS_PATH_MAX];
    size_t n = strcspn(url, "?#"), at = n;
    while (at > 0 && url[at - 1] != '/') at--;
    if (!unescape(url + at, n - at, file, sizeof file) || !hub_file_valid(file) ||
        !ends_with(file, ".gguf"))
        return error_set(err, PI_ERR_ARG,
                         "not the URL of a GGUF file: %.300s: it must end in .gguf; a "
                         "repository of Hugging Face is named with -hf USER/REPO",
                         url);
    pi_status status = PI_OK;
    for (int i = 0; status == PI_OK && i < hub_parts(file); i++) {
        char escaped[HTTP_URL_MAX / 2];
        int written = hub_part_name(file, i, name, sizeof name) &&
                              escape_path(name, escaped, sizeof escaped)
                          ? snprintf(part, sizeof part, "%.*s%s%s", (int)at, url, escaped, url + n)
                          : -1;
        if (written < 0 || (size_t)written >= sizeof part) return too_long(url, err);
        status = get_url_file(f, part, name, err);
    }
    if (status != PI_OK) return status;
    if (!hub_part_name(file, 0, name, sizeof name) ||
        !url_path(f->options->urls_folder, url, name, first) || strlen(first) >= n_path)
        return too_long(url, err);
    memcpy(path, first, strlen(first) + 1);
    return PI_OK;
}

pi_status fetch_url(const fetch_options *o, const char *url, char *path, size_t n_path,
                    pi_error *err) {
    fetcher f;
    char file[HUB_NAME_MAX * 2];
    if (strlen(url) >= HTTP_URL_MAX / 2) return too_long(url, err);
    pi_status status = open_fetcher(o, &f, err);
    if (status == PI_OK && read_hub_url(&f, url, file, sizeof file))
        status = fetch_from_hub(&f, "", file, path, n_path, err);
    else if (status == PI_OK)
        status = fetch_other(&f, url, path, n_path, err);
    close_fetcher(&f);
    return status;
}
