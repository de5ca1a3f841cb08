/* download.c: see download.h. A process accesses the partial file only while it holds its lock, so
 * two processes never write one file; the second one to get the lock finds the finished file. */
#include "download.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "file.h"
#include "hub_cache.h"
#include "mem.h"
#include "notifier.h"
#include "os_file.h"
#include "os_thread.h"
#include "progress.h"
#include "sha256.h"

enum {
    MAX_FAILURES = 5,     /* failed attempts in a row without a new byte */
    TICK_MS = 100,        /* between checks of the lock and of the stop flag */
    READ_BYTES = 1 << 20, /* of a partial file, when it is hashed again */
    MAGIC_BYTES = 4
};

typedef struct job {
    const download *d;
    os_file file; /* the partial file */
    int64_t have;
    bool fresh_response; /* no byte of this response has arrived yet */
    bool wrong_bytes;    /* the response is longer than the file, or another part of it */
    int write_error;     /* error number */
    http_reply reply;
    sha256 hash;
    progress report;
    char stage[OS_NAME_MAX + 32];
} job;

const char *fetch_endpoint(const fetch_options *o) {
    return o->endpoint && *o->endpoint ? o->endpoint : FETCH_ENDPOINT;
}

bool download_tick(void *user) {
    const fetch_options *o = user;
    return !o->stop || !o->stop(o->user);
}

/* "2.33 GiB", "512.0 MiB" */
enum { SIZE_TEXT = 32 };
static const char *size_text(int64_t bytes, char buf[SIZE_TEXT]) {
    double mib = (double)bytes / (1024.0 * 1024);
    snprintf(buf, SIZE_TEXT, mib < 1024 ? "%.1f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
    return buf;
}

/* ---- responses ------------------------------------------------------------------------------- */

pi_status download_refused(const fetch_options *o, const http_reply *reply, const char *url,
                           pi_error *err) {
    char origin[HTTP_VALUE_MAX];
    const char *said = reply->error, *colon = *said ? ": " : "";
    fetch_http_origin(url, origin, sizeof origin);
    switch (reply->status) {
    case 401:
        return error_set(err, PI_ERR_NOT_FOUND,
                         "no access (401): %.160s: the repository does not exist, or is private or "
                         "gated%s%.80s: check the name; accept the terms on its page, and give a "
                         "token with HF_TOKEN or -hft",
                         url, colon, said);
    case 403:
        return error_set(err, PI_ERR_NOT_FOUND,
                         "no access (403): %.160s%s%.120s: accept the terms on the repository's "
                         "page with the account of %s",
                         url, colon, said,
                         o->token ? "the token" : "a token, and give it with HF_TOKEN");
    case 404:
        return error_set(err, PI_ERR_NOT_FOUND,
                         "not found (404): %.200s%s%.120s: check the names of repository and file",
                         url, colon, said);
    case 429:
        return error_set(err, PI_ERR_IO,
                         "too many requests (429): %s: wait some minutes, or give a token with "
                         "HF_TOKEN",
                         origin);
    default:
        return error_set(err, PI_ERR_IO, "the server responded with status %ld: %.200s%s%.120s%s",
                         reply->status, url, colon, said,
                         reply->status >= 500 ? ": try again later" : "");
    }
}

/* ---- the partial file ------------------------------------------------------------------------ */

static pi_status no_space(const job *j, int64_t n_free, pi_error *err) {
    char missing[SIZE_TEXT], room[SIZE_TEXT], text[128] = "";
    if (j->d->size > j->have && n_free >= 0)
        snprintf(text, sizeof text, ": %s are missing, %s are free",
                 size_text(j->d->size - j->have, missing), size_text(n_free, room));
    return error_set(err, PI_ERR_IO,
                     "the disk is full: %.200s%s: free some space (the partial download is kept), "
                     "or keep downloads on another disk with HF_HUB_CACHE or XDG_CACHE_HOME",
                     j->d->path, text);
}

static pi_status check_space(const job *j, pi_error *err) {
    if (j->d->size < 0) return PI_OK;
    uint64_t n_free = os_file_room(j->file);
    if (n_free >= (uint64_t)(j->d->size - j->have)) return PI_OK;
    return no_space(j, (int64_t)n_free, err);
}

static pi_status start_over(job *j, pi_error *err) {
    j->have = 0;
    sha256_begin(&j->hash);
    int problem = os_file_resize(j->file, 0);
    if (!problem) problem = os_file_seek(j->file, 0);
    if (!problem) return PI_OK;
    return error_set_errno(err, problem, "cannot write: %.300s", j->d->partial);
}

/* Hashes the partial file and seeks to its end. */
static pi_status take_beginning(job *j, pi_error *err) {
    os_info info;
    int problem = os_file_info(j->file, &info);
    if (problem) return error_set_errno(err, problem, "%.300s", j->d->partial);
    bool usable = j->d->resumable && (j->d->size < 0 || info.size <= (uint64_t)j->d->size);
    if (!usable) return start_over(j, err);
    j->have = 0;
    sha256_begin(&j->hash);
    if (!j->d->sha256) {
        problem = os_file_seek(j->file, info.size);
        if (problem) return error_set_errno(err, problem, "%.300s", j->d->partial);
        j->have = (int64_t)info.size;
        return PI_OK;
    }
    char *buffer = mem_alloc(READ_BYTES);
    if (!buffer) return error_nomem(err, READ_BYTES, "buffer");
    pi_status result = PI_OK;
    for (;;) {
        size_t n = 0;
        problem = os_file_read(j->file, buffer, READ_BYTES, &n);
        if (problem) result = error_set_errno(err, problem, "cannot read: %.300s", j->d->partial);
        if (problem || n == 0) break;
        sha256_add(&j->hash, buffer, n);
        j->have += (int64_t)n;
        if (!progress_step(&j->report, "checking the partial download",
                           (double)j->have / (double)info.size)) {
            result = error_set(err, PI_ERR_CANCELLED, "stopped");
            break;
        }
    }
    mem_free(buffer);
    return result;
}

/* Called at the first byte of a response: decides where to write it. */
static bool begin_response(job *j) {
    j->fresh_response = false;
    if (j->reply.status == 206 && j->reply.range_start == j->have) return true;
    if (j->reply.status == 206 && j->reply.range_start >= 0) return false;
    return j->have == 0 || start_over(j, NULL) == PI_OK;
}

static bool on_body(void *user, const char *data, size_t n) {
    job *j = user;
    if (j->fresh_response && !begin_response(j)) j->wrong_bytes = true;
    if (j->d->size >= 0 && (int64_t)n > j->d->size - j->have) j->wrong_bytes = true;
    if (j->wrong_bytes) return false;
    j->write_error = os_file_write(j->file, data, n);
    if (j->write_error) return false;
    if (j->d->sha256) sha256_add(&j->hash, data, n);
    j->have += (int64_t)n;
    int64_t size = j->d->size >= 0 ? j->d->size : j->reply.length;
    double fraction = size > 0 ? (double)j->have / (double)size : 0;
    return progress_step(&j->report, j->stage, fraction < 1 ? fraction : 1);
}

static bool on_tick(void *user) {
    job *j = user;
    return download_tick((void *)(uintptr_t)j->d->options);
}

/* ---- attempts -------------------------------------------------------------------------------- */

static pi_status wrong_size(job *j, pi_error *err) {
    int64_t got = j->reply.range_total >= 0 ? j->reply.range_total
                  : j->reply.length >= 0    ? j->reply.length
                                            : j->have;
    pi_status status = start_over(j, NULL);
    (void)status;
    return error_set(err, PI_ERR_FORMAT,
                     "the size is wrong: %.200s: the server sends %lld bytes, the file has %lld: "
                     "nothing is kept; try again later",
                     j->d->url, (long long)got, (long long)j->d->size);
}

/* One request for the missing bytes. PI_ERR_IO: worth another try. */
static pi_status attempt(job *j, pi_error *err) {
    const download *d = j->d;
    const fetch_options *o = d->options;
    pi_status status = j->have > 0 && !d->resumable ? start_over(j, err) : PI_OK;
    if (status != PI_OK) return status;
    j->fresh_response = true;
    http_request r = {.url = d->url,
                      .token = o->token,
                      .home = fetch_endpoint(o),
                      .from = j->have,
                      .version = d->version,
                      .body = on_body,
                      .tick = on_tick,
                      .user = j};
    status = fetch_http_send(d->http, &r, &j->reply, err);
    long code = j->reply.status;
    if (os_problem_is_full(j->write_error)) return no_space(j, -1, err);
    if (j->write_error)
        return error_set_errno(err, j->write_error, "cannot write: %.300s", d->partial);
    int64_t total = code == 206 ? j->reply.range_total : j->reply.length;
    bool known = d->size >= 0 && total >= 0 && (code == 200 || code == 206);
    if (j->wrong_bytes || code == 416 || (known && total != d->size)) return wrong_size(j, err);
    if (status != PI_OK) return status;
    if (code != 200 && code != 206) return download_refused(o, &j->reply, d->url, err);
    return d->size >= 0 && j->have != d->size ? wrong_size(j, err) : PI_OK;
}

/* Waits before another request; false: stop. */
static bool wait_seconds(const fetch_options *o, int seconds) {
    for (int i = 0; i < seconds * 1000 / TICK_MS; i++) {
        if (!download_tick((void *)(uintptr_t)o)) return false;
        os_sleep(TICK_MS * 1e-3);
    }
    return true;
}

static pi_status fetch_rest(job *j, pi_error *err) {
    for (int failures = 0;;) {
        if (j->d->size >= 0 && j->have == j->d->size) return PI_OK;
        int64_t had = j->have;
        pi_status status = attempt(j, err);
        bool transient = status == PI_ERR_IO && !j->write_error &&
                         (j->reply.status == 0 || j->reply.status < 400 || j->reply.status >= 500);
        if (!transient) return status;
        failures = j->d->resumable && j->have > had ? 1 : failures + 1;
        if (failures == MAX_FAILURES) return status;
        int seconds = (1 << (failures - 1)) - 1; /* the first retry is immediate */
        notify(&(notifier){j->d->options->message, j->d->options->user},
               "%s: the connection broke (%s): trying again in %d s", j->d->name,
               err ? err->message : "", seconds);
        if (!wait_seconds(j->d->options, seconds))
            return error_set(err, PI_ERR_CANCELLED, "stopped");
    }
}

/* ---- download -------------------------------------------------------------------------------- */

static pi_status check_hash(job *j, pi_error *err) {
    char hex[SHA256_HEX + 1];
    if (!j->d->sha256) return PI_OK;
    sha256_end(&j->hash, hex);
    if (strcmp(hex, j->d->sha256) == 0) return PI_OK;
    os_path_remove(j->d->partial);
    return error_set(err, PI_ERR_FORMAT,
                     "the SHA-256 is wrong: %.160s: %s, expected %s: it was removed; run the "
                     "command again",
                     j->d->name, hex, j->d->sha256);
}

/* Rejects error pages and the page that shows a file. */
static pi_status check_magic(job *j, pi_error *err) {
    static const char *const magics[] = {"GGUF", "PWRI", "IRWP"}; /* gguf.c, gguf_parse.c */
    char magic[MAGIC_BYTES];
    size_t n;
    if (os_file_read_at(j->file, magic, sizeof magic, 0, &n) == 0 && n == sizeof magic)
        for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
            if (memcmp(magic, magics[i], sizeof magic) == 0) return PI_OK;
    os_path_remove(j->d->partial);
    return error_set(err, PI_ERR_FORMAT,
                     "not a GGUF file: %.200s: the server sent %s: give the URL of the file "
                     "itself",
                     j->d->url, j->reply.type[0] ? j->reply.type : "something else");
}

static pi_status stopped(const job *j, pi_error *err) {
    char done[64], size[SIZE_TEXT];
    if (j->d->size > 0)
        snprintf(done, sizeof done, "%d%% done",
                 (int)(100.0 * (double)j->have / (double)j->d->size));
    else
        snprintf(done, sizeof done, "%s done", size_text(j->have, size));
    return error_set(err, PI_ERR_CANCELLED, "download stopped: %.200s: %s%s", j->d->name, done,
                     j->d->resumable ? ": run the command again to continue" : "");
}

static pi_status download_locked(job *j, pi_error *err) {
    const download *d = j->d;
    int problem = os_file_open(d->partial, OS_READ | OS_WRITE | OS_CREATE, &j->file);
    if (problem) return error_set_errno(err, problem, "cannot write: %.300s", d->partial);
    pi_status status = take_beginning(j, err);
    if (status == PI_OK) status = check_space(j, err);
    if (status == PI_OK) {
        char size[SIZE_TEXT] = "size not known";
        if (d->size >= 0) size_text(d->size, size);
        notify(&(notifier){d->options->message, d->options->user}, "%s %s (%s) from %s",
               j->have > 0 ? "continuing" : "downloading", d->name, size, d->url);
        status = fetch_rest(j, err);
    }
    if (status == PI_OK) status = check_hash(j, err);
    if (status == PI_OK && ends_with(d->name, ".gguf")) status = check_magic(j, err);
    if (status == PI_OK) problem = os_file_sync(j->file);
    if (status == PI_OK && !problem) problem = os_path_rename(d->partial, d->path);
    if (problem) status = error_set_errno(err, problem, "cannot write: %.300s", d->path);
    if (status == PI_ERR_CANCELLED) status = stopped(j, err);
    os_file_close(j->file);
    return status;
}

/* Opens and locks the lock file; OS_FILE_NONE: an error, or stopped. */
static os_file take_lock(const download *d, pi_error *err) {
    os_file lock;
    bool said = false;
    int problem = os_file_open(d->lock, OS_READ | OS_WRITE | OS_CREATE, &lock);
    if (problem) {
        error_set_errno(err, problem, "cannot write: %.300s", d->lock);
        return OS_FILE_NONE;
    }
    while (os_file_lock(lock) == EWOULDBLOCK) { /* other errors: a file system without locks */
        if (!said)
            notify(&(notifier){d->options->message, d->options->user},
                   "%s: waiting for another process that downloads it", d->name);
        said = true;
        if (!wait_seconds(d->options, 1)) {
            error_set(err, PI_ERR_CANCELLED, "stopped while another process downloads: %.200s",
                      d->name);
            os_file_close(lock);
            return OS_FILE_NONE;
        }
    }
    return lock;
}

pi_status download_run(const download *d, pi_error *err) {
    pi_status status = file_create_folders(d->lock, false, err);
    if (status == PI_OK) status = file_create_folders(d->path, false, err);
    if (status != PI_OK) return status;
    pi_error why = {.status = PI_ERR_IO};
    os_file lock = take_lock(d, &why);
    if (lock == OS_FILE_NONE) {
        if (err) *err = why;
        return why.status;
    }
    if (!file_exists(d->path)) {
        job *j = mem_calloc(1, sizeof *j);
        if (j) {
            j->d = d;
            j->report = (progress){.fn = d->options->progress, .user = d->options->user};
            snprintf(j->stage, sizeof j->stage, "%s", d->name);
            /* Messages need the error also where the caller passes no err. */
            status = download_locked(j, &why);
            if (status != PI_OK && err) *err = why;
        } else {
            status = error_nomem(err, sizeof *j, "download");
        }
        mem_free(j);
    }
    os_file_close(lock);
    return status;
}
