/* hub_cache.c: see hub_cache.h. Names from a server are checked character by character, so that no
 * path that contains them leaves its folder. */
#include "hub_cache.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affix.h"
#include "ascii_case.h"
#include "file.h"
#include "mem.h"

enum {
    PART_NUMBER = 5,     /* digits of -00001-of-00003 */
    PART_SUFFIX = 15,    /* bytes of it */
    LIST_DEPTH = 8,      /* folders within a snapshot */
    DESCRIBED_FILES = 16 /* at most, in a message */
};

static const char model_suffix[] = ".gguf";

/* Companions of a model that are also GGUF files. */
static const char *const companions[] = {"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-"};

/* ---- valid names ----------------------------------------------------------------------------- */

static bool is_hex(const char *text, size_t n) {
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

bool hub_commit_valid(const char *commit) {
    return is_hex(commit, HUB_COMMIT);
}

bool hub_etag_is_sha256(const char *etag) {
    return is_hex(etag, 64);
}

static bool etag_valid(const char *etag) {
    size_t n = strlen(etag);
    if (n == 0 || n >= HUB_NAME_MAX / 2 || etag[0] == '.') return false;
    for (; *etag; etag++)
        if (!isalnum((unsigned char)*etag) && !strchr("-_.", *etag)) return false;
    return true;
}

bool hub_etag_plain(const char *etag, char *buf, size_t n_buf) {
    if (starts_with(etag, "W/")) etag += 2;
    size_t n = strlen(etag);
    if (n >= 2 && etag[0] == '"' && etag[n - 1] == '"') etag++, n -= 2;
    snprintf(buf, n_buf, "%.*s", (int)n, etag);
    return etag_valid(buf);
}

bool hub_file_valid(const char *name) {
    if (strlen(name) >= HUB_NAME_MAX * 2) return false;
    for (const char *part = name;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > OS_NAME_MAX || part[0] == '.') return false; /* also "..", hidden files */
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < 0x20 || part[i] == 0x7f || part[i] == '\\') return false;
        part += n;
        if (!*part) return true;
    }
}

/* USER or REPO of "USER/REPO". */
static bool repo_part_valid(const char *part, size_t n) {
    if (n == 0 || n > 96) return false;
    for (size_t i = 0; i < n; i++) {
        char c = part[i];
        bool edge = i == 0 || i + 1 == n;
        if (isalnum((unsigned char)c) || c == '_') continue;
        if ((c != '-' && c != '.') || edge || part[i + 1] == c) return false; /* no "--", ".." */
    }
    return true;
}

pi_status hub_repo_parse(const char *text, hub_repo *out, pi_error *err) {
    *out = (hub_repo){.name = ""};
    size_t n = strcspn(text, ":"), n_user = strcspn(text, "/");
    const char *quant = text[n] ? text + n + 1 : "";
    bool good = n_user < n && repo_part_valid(text, n_user) &&
                repo_part_valid(text + n_user + 1, n - n_user - 1) &&
                strlen(quant) < sizeof out->quant;
    for (const char *c = quant; good && *c; c++)
        good = isalnum((unsigned char)*c) || strchr("-_.", *c);
    if (!good || (text[n] && !*quant))
        return error_set(err, PI_ERR_ARG,
                         "invalid repository: \"%.200s\": expected USER/REPO or USER/REPO:QUANT, "
                         "such as Qwen/Qwen3-4B-GGUF:Q4_K_M",
                         text);
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, text);
    snprintf(out->quant, sizeof out->quant, "%s", quant);
    return PI_OK;
}

/* ---- choice of a file ------------------------------------------------------------------------ */

pi_status hub_files_add(hub_files *f, const char *name, pi_error *err) {
    if (!hub_file_valid(name)) return PI_OK;
    if (f->n == HUB_MAX_FILES)
        return error_set(err, PI_ERR_LIMIT, "too many files in the repository: at most %d",
                         HUB_MAX_FILES);
    char *copy = mem_strdup(name);
    if (!copy ||
        !mem_grow((void **)&f->names, &f->capacity, f->n + 1, sizeof *f->names, HUB_MAX_FILES)) {
        mem_free(copy);
        return error_nomem(err, strlen(name) + 1, "list of files");
    }
    f->names[f->n++] = copy;
    return PI_OK;
}

void hub_files_free(hub_files *f) {
    for (size_t i = 0; i < f->n; i++) mem_free(f->names[i]);
    mem_free(f->names);
    *f = (hub_files){.n = 0};
}

static const char *last_part(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* "-00002-of-00003.gguf" at the end of a name; false: it is not split. */
static bool read_part(const char *name, int *part, int *parts) {
    size_t n = strlen(name), n_end = PART_SUFFIX + strlen(model_suffix);
    if (n <= n_end || !ends_with(name, model_suffix)) return false;
    const char *at = name + n - n_end;
    for (int i = 0; i < PART_NUMBER; i++)
        if (!isdigit((unsigned char)at[1 + i]) || !isdigit((unsigned char)at[10 + i])) return false;
    if (at[0] != '-' || strncmp(at + 6, "-of-", 4) != 0) return false;
    *part = (int)strtol(at + 1, NULL, 10);
    *parts = (int)strtol(at + 10, NULL, 10);
    return *part >= 1 && *part <= *parts;
}

int hub_parts(const char *name) {
    int part, parts;
    return read_part(name, &part, &parts) ? parts : 1;
}

bool hub_part_name(const char *name, int i, char *buf, size_t n_buf) {
    int part, parts, n;
    if (!read_part(name, &part, &parts))
        return i == 0 && strlen(name) < n_buf && snprintf(buf, n_buf, "%s", name) > 0;
    size_t n_start = strlen(name) - PART_SUFFIX - strlen(model_suffix);
    n = snprintf(buf, n_buf, "%.*s-%05d-of-%05d%s", (int)n_start, name, i + 1, parts, model_suffix);
    return n > 0 && (size_t)n < n_buf;
}

/* Whether a file is the first file of a model. */
static bool is_model(const char *name) {
    const char *last = last_part(name);
    int part, parts;
    if (!ends_with(name, model_suffix)) return false;
    for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++)
        if (strstr(last, companions[i])) return false;
    return !read_part(name, &part, &parts) || part == 1;
}

/* Whether the name has `quant` as a separate word: "-Q4_K_M." but not "IQ4_K_M.". */
static bool names_quant(const char *name, const char *quant) {
    size_t n = strlen(quant);
    for (const char *at = name; *at; at++) {
        if (!ascii_same_n(at, quant, n) || !at[n] || !strchr(".-/", at[n])) continue;
        if (at == name || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) return true;
    }
    return false;
}

static const char *first_of(const hub_files *f, const char *quant) {
    for (size_t i = 0; i < f->n; i++)
        if (is_model(f->names[i]) && (!quant || names_quant(f->names[i], quant)))
            return f->names[i];
    return NULL;
}

const char *hub_files_choose(const hub_files *f, const char *quant) {
    if (*quant) return first_of(f, quant);
    const char *name = first_of(f, "Q4_K_M");
    if (!name) name = first_of(f, "Q8_0");
    return name ? name : first_of(f, NULL);
}

/* "Q4_K_M" of "Qwen3-4B-Q4_K_M.gguf", without the numbers of a part. */
static void quant_of(const char *name, char *buf, size_t n_buf) {
    const char *last = last_part(name);
    size_t end = strlen(last) - strlen(model_suffix), start;
    if (hub_parts(name) > 1) end -= PART_SUFFIX;
    for (start = end; start > 0 && !strchr("-.", last[start - 1]);) start--;
    snprintf(buf, n_buf, "%.*s", (int)(end - start), last + start);
}

void hub_files_describe(const hub_files *f, char *buf, size_t n_buf) {
    size_t used = 0;
    int shown = 0;
    buf[0] = 0;
    for (size_t i = 0; i < f->n && shown < DESCRIBED_FILES; i++) {
        char quant[HUB_NAME_MAX];
        if (!is_model(f->names[i])) continue;
        quant_of(f->names[i], quant, sizeof quant);
        if (used + strlen(quant) + 3 > n_buf) break;
        used += (size_t)snprintf(buf + used, n_buf - used, "%s%s", shown++ ? ", " : "", quant);
    }
}

/* ---- paths ----------------------------------------------------------------------------------- */

static bool fits(int n) {
    return n > 0 && n < OS_PATH_MAX;
}

/* "models--USER--REPO" */
static void folder_name(const char *repo, char name[HUB_NAME_MAX + 16]) {
    size_t n_user = strcspn(repo, "/");
    snprintf(name, HUB_NAME_MAX + 16, "models--%.*s--%s", (int)n_user, repo, repo + n_user + 1);
}

bool hub_folder(const char *hub, const char *repo, char path[OS_PATH_MAX]) {
    char name[HUB_NAME_MAX + 16];
    folder_name(repo, name);
    return fits(snprintf(path, OS_PATH_MAX, "%s/%s", hub, name));
}

bool hub_blob_path(const char *hub, const char *repo, const char *etag, char path[OS_PATH_MAX]) {
    char folder[OS_PATH_MAX];
    return hub_folder(hub, repo, folder) &&
           fits(snprintf(path, OS_PATH_MAX, "%s/blobs/%s", folder, etag));
}

bool hub_lock_path(const char *hub, const char *repo, const char *etag, char path[OS_PATH_MAX]) {
    char name[HUB_NAME_MAX + 16];
    folder_name(repo, name);
    return fits(snprintf(path, OS_PATH_MAX, "%s/.locks/%s/%s.lock", hub, name, etag));
}

bool hub_snapshot_path(const char *hub, const char *repo, const char *commit, const char *file,
                       char path[OS_PATH_MAX]) {
    char folder[OS_PATH_MAX];
    return hub_folder(hub, repo, folder) && fits(snprintf(path, OS_PATH_MAX, "%s/snapshots/%s%s%s",
                                                          folder, commit, *file ? "/" : "", file));
}

static bool hub_ref_path(const char *hub, const char *repo, const char *ref,
                         char path[OS_PATH_MAX]) {
    char folder[OS_PATH_MAX];
    return hub_folder(hub, repo, folder) &&
           fits(snprintf(path, OS_PATH_MAX, "%s/refs/%s", folder, ref));
}

bool hub_read_ref(const char *hub, const char *repo, const char *ref, char commit[HUB_COMMIT + 1]) {
    enum { MOST = 256 };
    char path[OS_PATH_MAX], *text = NULL;
    size_t n = 0;
    if (!hub_ref_path(hub, repo, ref, path) || file_read(path, MOST, &text, &n, NULL) != PI_OK)
        return false;
    snprintf(commit, HUB_COMMIT + 1, "%.*s", (int)strcspn(text, "\r\n"), text);
    mem_free(text);
    return hub_commit_valid(commit);
}

pi_status hub_write_ref(const char *hub, const char *repo, const char *ref, const char *commit,
                        pi_error *err) {
    char path[OS_PATH_MAX], now[HUB_COMMIT + 1];
    file_writer *w = NULL;
    if (hub_read_ref(hub, repo, ref, now) && strcmp(now, commit) == 0) return PI_OK;
    if (!hub_ref_path(hub, repo, ref, path))
        return error_set(err, PI_ERR_ARG, "path is too long: %.200s", hub);
    pi_status status = file_create_folders(path, false, err);
    if (status == PI_OK) status = file_writer_open(path, &w, err);
    if (status == PI_OK) status = file_writer_write(w, commit, strlen(commit), err);
    if (status == PI_OK) return file_writer_commit(w, err);
    file_writer_abort(w);
    return status;
}

pi_status hub_link(const char *hub, const char *repo, const char *commit, const char *file,
                   const char *etag, pi_error *err) {
    char path[OS_PATH_MAX], blob[OS_PATH_MAX], target[OS_PATH_MAX];
    if (!hub_snapshot_path(hub, repo, commit, file, path) || !hub_blob_path(hub, repo, etag, blob))
        return error_set(err, PI_ERR_ARG, "path is too long: %.200s", hub);
    if (file_exists(path)) return PI_OK;
    pi_status status = file_create_folders(path, false, err);
    if (status != PI_OK) return status;
    int n = snprintf(target, sizeof target, "../../");
    for (const char *c = file; *c; c++)
        if (*c == '/') n += snprintf(target + n, sizeof target - (size_t)n, "../");
    snprintf(target + n, sizeof target - (size_t)n, "blobs/%s", etag);
    os_path_remove(path); /* a link whose blob is missing */
    int problem = os_path_link_symbolic(target, path);
    /* Without links, the file itself is moved, as in Hugging Face's tools. */
    if (problem && problem != EEXIST) problem = os_path_link(blob, path);
    if (problem && problem != EEXIST) problem = os_path_rename(blob, path);
    if (!problem || problem == EEXIST) return PI_OK;
    return error_set_errno(err, problem, "cannot link the downloaded file: %.300s", path);
}

/* Adds the files below `folder`; `name` is the path so far. */
static pi_status list_folder(const char *folder, const char *name, int depth, hub_files *out,
                             pi_error *err) {
    os_folder *dir = os_folder_open(folder);
    if (!dir) return PI_OK;
    pi_status status = PI_OK;
    for (const char *entry; status == PI_OK && (entry = os_folder_next(dir));) {
        char path[OS_PATH_MAX], inner[OS_PATH_MAX];
        os_info info;
        if (entry[0] == '.' || !file_join(path, sizeof path, folder, entry) ||
            os_path_info(path, &info) != 0 ||
            !fits(snprintf(inner, sizeof inner, "%s%s%s", name, *name ? "/" : "", entry)))
            continue;
        if (info.kind == OS_FOLDER && depth < LIST_DEPTH)
            status = list_folder(path, inner, depth + 1, out, err);
        else if (info.kind == OS_REGULAR)
            status = hub_files_add(out, inner, err);
    }
    os_folder_close(dir);
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

pi_status hub_list(const char *hub, const char *repo, const char *commit, hub_files *out,
                   pi_error *err) {
    char path[OS_PATH_MAX];
    if (!hub_snapshot_path(hub, repo, commit, "", path)) return PI_OK;
    pi_status status = list_folder(path, "", 0, out, err);
    if (out->n) qsort(out->names, out->n, sizeof *out->names, by_name);
    return status;
}
