/* file.c: reads files: mapped, copied into memory, or read as text. Writing is in file_writer.c.
 *
 * Ownership: a file_map owns its mapping (or its copy) until file_map_close; the descriptor is
 * closed as soon as the bytes are reachable, so an open model holds no descriptor. A file_map is
 * immutable after opening and may be read from any number of threads.
 *
 * A fixed table lists the live mappings; a SIGBUS handler can read it at any moment. The address of
 * an entry is written last and cleared first. Only a thread that faults inside a mapping reads its
 * path, and no thread closes a mapping that another one reads. */
#include "file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "os_memory.h"
#include "os_terminal.h"
#include "progress.h"

enum { REPORT_PIECE = 16 << 20 };   /* bytes between two progress reports */
enum { HEAD_READAHEAD = 16 << 20 }; /* bytes; a model's metadata and vocabulary */

static const uint8_t empty_file[1] = {0};

/* ---- live mappings --------------------------------------------------------------------------- */

/* A split model has one mapping per part. Mappings beyond this number work as well, but a SIGBUS
 * handler cannot find their paths. */
enum { MAPPINGS_LISTED = 1024 };

typedef struct listed_mapping {
    atomic_uintptr_t begin; /* 0: free; 1: being written */
    size_t size;            /* bytes */
    char *path;             /* owned */
} listed_mapping;

static listed_mapping listed[MAPPINGS_LISTED];

static void list_mapping(const void *data, size_t size, char *path) {
    for (int i = 0; i < MAPPINGS_LISTED; i++) {
        uintptr_t expected = 0;
        if (!atomic_compare_exchange_strong(&listed[i].begin, &expected, 1)) continue;
        listed[i].size = size;
        listed[i].path = path;
        atomic_store(&listed[i].begin, (uintptr_t)data);
        return;
    }
    mem_free(path);
}

static void unlist_mapping(const void *data) {
    for (int i = 0; i < MAPPINGS_LISTED; i++) {
        if (atomic_load(&listed[i].begin) != (uintptr_t)data) continue;
        char *path = listed[i].path;
        atomic_store(&listed[i].begin, 0);
        mem_free(path);
        return;
    }
}

const char *file_map_path_at(const void *address, uint64_t *offset) {
    for (int i = 0; i < MAPPINGS_LISTED; i++) {
        uintptr_t begin = atomic_load(&listed[i].begin);
        if (begin <= 1 || (uintptr_t)address - begin >= listed[i].size) continue;
        if (offset) *offset = (uintptr_t)address - begin;
        return listed[i].path;
    }
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static pi_status open_regular(const char *path, os_file *out, os_info *info, pi_error *err) {
    /* OS_NO_WAIT: opening a pipe without a writer must fail the type check instead of hanging. */
    int problem = os_file_open(path, OS_READ | OS_NO_WAIT, out);
    if (problem) return error_set_errno(err, problem, "cannot open file: %s", path);
    pi_status status = PI_OK;
    problem = os_file_info(*out, info);
    if (problem)
        status = error_set_errno(err, problem, "cannot examine file: %s", path);
    else if (info->kind == OS_FOLDER)
        status = error_set(err, PI_ERR_IO, "is a folder: %s: name a file in it", path);
    else if (info->kind != OS_REGULAR)
        status = error_set(err, PI_ERR_IO, "is not a regular file: %s: save it to disk first",
                           path);
    if (status != PI_OK) os_file_close(*out);
    return status;
}

static pi_status map_copy(file_map *map, os_file f, size_t size, const char *path, progress *report,
                          pi_error *err) {
    uint8_t *data = mem_map(size);
    if (!data) return error_nomem(err, size, path);
    size_t n_read = 0, piece = REPORT_PIECE, got = REPORT_PIECE;
    int problem = 0;
    bool stop = false;
    while (n_read < size && got == piece && !problem && !stop) {
        piece = size - n_read < REPORT_PIECE ? size - n_read : REPORT_PIECE;
        problem = os_file_read(f, data + n_read, piece, &got);
        n_read += got;
        stop = !progress_step(report, "reading the model", (double)n_read / (double)size);
    }
    if (problem || stop || n_read < size) {
        mem_unmap(data, size);
        if (stop) return error_set(err, PI_ERR_CANCELLED, "cancelled: %s: loading the model", path);
        if (problem) return error_set_errno(err, problem, "cannot read file: %s", path);
        return error_set(err, PI_ERR_IO, FILE_MAP_CUT "%s", path);
    }
    *map = (file_map){.data = data, .size = size, .copied = true};
    return PI_OK;
}

typedef enum map_kind { MAP_READ_ONLY, MAP_WRITTEN, MAP_COPY } map_kind;

static pi_status map_pages(file_map *map, os_file f, size_t size, const char *path, map_kind kind,
                           pi_error *err) {
    char *name = mem_strdup(path);
    if (!name) return error_nomem(err, strlen(path), path);
    const void *data;
    int problem = kind == MAP_WRITTEN ? os_file_map_private(f, size, &data)
                                      : os_file_map(f, size, &data);
    if (problem) {
        mem_free(name);
        return error_set_errno(err, problem, "cannot map file: %s", path);
    }
    list_mapping(data, size, name);
    *map = (file_map){.data = data, .size = size, .copied = false};
    if (kind == MAP_WRITTEN) return PI_OK;
    /* Two hints. Huge pages: kernels that cache this file system in large folios read 2 MiB per
     * fault instead of 128 KiB and need fewer TLB entries. Read ahead: only the head, because
     * reading everything would block on the disk and would evict other data when the model is
     * larger than memory. */
    os_memory_use_huge_pages(data, size);
    os_memory_read_ahead(data, size < HEAD_READAHEAD ? size : HEAD_READAHEAD);
    return PI_OK;
}

static pi_status open_map(file_map *map, const char *path, map_kind kind, progress *report,
                          pi_error *err) {
    *map = (file_map){0};
    os_file f;
    os_info info;
    pi_status status = open_regular(path, &f, &info, err);
    if (status != PI_OK) return status;
    if (info.size > SIZE_MAX) {
        status = error_set(err, PI_ERR_LIMIT, "file is larger than the address space: %s", path);
    } else if (info.size == 0) {
        *map = (file_map){.data = empty_file};
    } else if (kind == MAP_COPY) {
        status = map_copy(map, f, (size_t)info.size, path, report, err);
    } else {
        status = map_pages(map, f, (size_t)info.size, path, kind, err);
    }
    os_file_close(f);
    return status;
}

pi_status file_map_open(file_map *map, const char *path, bool copy, pi_error *err) {
    return open_map(map, path, copy ? MAP_COPY : MAP_READ_ONLY, NULL, err);
}

pi_status file_map_private(file_map *map, const char *path, pi_error *err) {
    return open_map(map, path, MAP_WRITTEN, NULL, err);
}

pi_status file_map_copy(file_map *map, const char *path, progress *report, pi_error *err) {
    return open_map(map, path, MAP_COPY, report, err);
}

void file_map_close(file_map *map) {
    if (map->size) {
        if (map->copied) {
            mem_unmap((void *)(uintptr_t)map->data, map->size); /* takes no const pointer */
        } else {
            unlist_mapping(map->data);
            os_file_unmap(map->data, map->size);
        }
    }
    *map = (file_map){0};
}

void file_map_forget(const file_map *map, const void *data, size_t n_bytes) {
    uintptr_t page = os_page_size();
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + n_bytes) / page * page;
    if (!map->copied && map->size && begin < end) os_memory_forget((void *)begin, end - begin);
}

pi_status file_map_lock(const file_map *map, progress *report, pi_error *err) {
    size_t done = 0;
    int problem = 0;
    while (done < map->size) { /* reads the pages, which may take as long as copying */
        size_t piece = map->size - done < REPORT_PIECE ? map->size - done : REPORT_PIECE;
        problem = os_memory_lock(map->data + done, piece);
        if (problem) break;
        done += piece;
        if (!progress_step(report, "locking the model", (double)done / (double)map->size))
            return error_set(err, PI_ERR_CANCELLED,
                             "cancelled: loading the model: %zu of %zu bytes", done, map->size);
    }
    if (done == map->size) return PI_OK;
    bool limited = problem == ENOMEM || problem == EPERM || problem == EAGAIN;
    if (!limited || os_memory_lock_limit() == UINT64_MAX)
        return error_set_errno(err, problem, "cannot lock weights in memory: %zu bytes", map->size);
    return error_set(err, PI_ERR_IO,
                     "cannot lock %zu bytes in memory: the limit is %llu KiB: raise it with "
                     "`ulimit -l` or do not lock them",
                     map->size, (unsigned long long)os_memory_lock_limit() / 1024);
}

static pi_status read_all(os_file f, const char *name, size_t max_bytes, char **data,
                          size_t *n_bytes, pi_error *err) {
    size_t cap; /* includes one byte for the NUL, which also detects a file that is too long */
    if (!size_add(max_bytes, 1, &cap)) cap = SIZE_MAX;
    void *buf = NULL;
    size_t capacity = 0, used = 0;
    for (;;) {
        if (used == capacity &&
            !mem_grow(&buf, &capacity, used + 4096 < cap ? used + 4096 : cap, 1, cap)) {
            mem_free(buf);
            return error_nomem(err, used + 4096, name);
        }
        size_t n_read = 0;
        int problem = os_file_read(f, (char *)buf + used, capacity - used, &n_read);
        if (problem) {
            mem_free(buf);
            return error_set_errno(err, problem, "cannot read file: %s", name);
        }
        used += n_read;
        if (used < capacity) break;
        if (used == cap) {
            mem_free(buf);
            return error_set(err, PI_ERR_LIMIT, "file is too long: %s: at most %zu bytes are read",
                             name, max_bytes);
        }
    }
    ((char *)buf)[used] = '\0';
    *data = buf;
    *n_bytes = used;
    return PI_OK;
}

pi_status file_read(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                    pi_error *err) {
    os_file f;
    os_info info;
    pi_status status = open_regular(path, &f, &info, err);
    if (status != PI_OK) return status;
    status = read_all(f, path, max_bytes, data, n_bytes, err);
    os_file_close(f);
    return status;
}

pi_status file_read_stream(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                           pi_error *err) {
    os_file f;
    if (strcmp(path, "-") == 0) {
        pi_status status = read_all(OS_STDIN, "standard input", max_bytes, data, n_bytes, err);
        if (status != PI_OK) return status;
        *n_bytes = os_stdin_lines(*data, *n_bytes);
        (*data)[*n_bytes] = '\0';
        return PI_OK;
    }
    int problem = os_file_open(path, OS_READ, &f);
    if (problem) return error_set_errno(err, problem, "cannot open file: %s", path);
    pi_status status = read_all(f, path, max_bytes, data, n_bytes, err);
    os_file_close(f);
    return status;
}

bool file_exists(const char *path) {
    os_info info;
    return os_path_info(path, &info) == 0;
}

bool file_join(char *buf, size_t n_buf, const char *dir, const char *name) {
    size_t n_dir = strlen(dir);
    const char *slash = n_dir && os_path_separates(dir[n_dir - 1]) ? "" : "/";
    int n = snprintf(buf, n_buf, "%s%s%s", dir, slash, name);
    return n >= 0 && (size_t)n < n_buf;
}

size_t file_folder_length(const char *path) {
    size_t n = strlen(path);
    while (n > 0 && !os_path_separates(path[n - 1])) n--;
    return n;
}

const char *file_name(const char *path) {
    return path + file_folder_length(path);
}

pi_status file_create_folders(const char *path, bool is_private, pi_error *err) {
    char folder[OS_PATH_MAX];
    size_t n = file_folder_length(path);
    if (n >= sizeof folder) return error_set(err, PI_ERR_LIMIT, "path is too long: %.200s", path);
    for (size_t i = 1; i < n; i++) {
        if (!os_path_separates(path[i])) continue;
        snprintf(folder, sizeof folder, "%.*s", (int)i, path);
        int problem = is_private ? os_folder_create_private(folder) : os_folder_create(folder);
        /* Some systems have another error for a drive or a share. */
        if (problem && problem != EEXIST && !file_exists(folder))
            return error_set_errno(err, problem, "cannot make the folder: %.300s", folder);
    }
    return PI_OK;
}
