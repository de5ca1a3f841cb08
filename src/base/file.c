/* file.c: reads files: mapped, copied into memory, or read as text. Writing is in file_writer.c.
 *
 * Ownership: a file_map owns its mapping (or its copy) until file_map_close; the descriptor is
 * closed as soon as the bytes are reachable, so an open model holds no descriptor. A file_map is
 * immutable after opening and may be read from any number of threads.
 *
 * A fixed table lists the live mappings; a SIGBUS handler can read it at any moment. The address of
 * an entry is written last and cleared first. Only a thread that faults inside a mapping reads its
 * path, and nobody closes that mapping meanwhile. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"
#include "progress.h"

/* Maximum bytes of one read(): Linux limits a call to just under 2 GiB, and at 1 GiB the largest
 * model needs fewer than a few hundred calls. */
enum { READ_PIECE = 1 << 30 };      /* bytes */
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

static int open_regular(const char *path, struct stat *st, pi_error *err, pi_status *status) {
    /* O_NONBLOCK: opening a pipe without a writer must fail the type check instead of hanging. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *status = error_set_errno(err, errno, "cannot open file: %s", path);
        return -1;
    }
    if (fstat(fd, st) != 0) {
        *status = error_set_errno(err, errno, "cannot examine file: %s", path);
    } else if (S_ISDIR(st->st_mode)) {
        *status = error_set(err, PI_ERR_IO, "is a folder: %s: name a file in it", path);
    } else if (!S_ISREG(st->st_mode)) {
        *status = error_set(err, PI_ERR_IO, "is not a regular file: %s: save it to disk first",
                            path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

/* Reads up to n bytes; *n_read is less only at the end of the file. Returns 0 or errno. */
static int read_fully(int fd, void *data, size_t n, size_t *n_read) {
    size_t done = 0;
    while (done < n) {
        size_t piece = n - done < READ_PIECE ? n - done : READ_PIECE;
        ssize_t got = read(fd, (char *)data + done, piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) break;
        done += (size_t)got;
    }
    *n_read = done;
    return 0;
}

static pi_status map_copy(file_map *map, int fd, size_t size, const char *path, progress *report,
                          pi_error *err) {
    uint8_t *data = mem_map(size);
    if (!data) return error_nomem(err, size, path);
    size_t n_read = 0, piece = REPORT_PIECE, got = REPORT_PIECE;
    int problem = 0;
    bool stop = false;
    while (n_read < size && got == piece && !problem && !stop) {
        piece = size - n_read < REPORT_PIECE ? size - n_read : REPORT_PIECE;
        problem = read_fully(fd, data + n_read, piece, &got);
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

static pi_status map_shared(file_map *map, int fd, size_t size, const char *path, pi_error *err) {
    char *name = mem_strdup(path);
    if (!name) return error_nomem(err, strlen(path), path);
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        mem_free(name);
        return error_set_errno(err, errno, "cannot map file: %s", path);
    }
    list_mapping(data, size, name);
    /* Two hints; it does not matter when the kernel refuses them. Huge pages: kernels that cache
     * this file system in large folios read 2 MiB per fault instead of 128 KiB and need fewer TLB
     * entries. Read ahead: only the head, because reading everything would block on the disk and
     * would evict other data when the model is larger than memory. */
#ifdef MADV_HUGEPAGE
    (void)madvise(data, size, MADV_HUGEPAGE);
#endif
    (void)madvise(data, size < HEAD_READAHEAD ? size : HEAD_READAHEAD, MADV_WILLNEED);
    *map = (file_map){.data = data, .size = size, .copied = false};
    return PI_OK;
}

static pi_status open_map(file_map *map, const char *path, bool copy, progress *report,
                          pi_error *err) {
    *map = (file_map){0};
    struct stat st;
    pi_status status = PI_ERR_IO;
    int fd = open_regular(path, &st, err, &status);
    if (fd < 0) return status;
    if ((uintmax_t)st.st_size > SIZE_MAX) {
        status = error_set(err, PI_ERR_LIMIT, "file is larger than the address space: %s", path);
    } else if (st.st_size == 0) {
        *map = (file_map){.data = empty_file};
        status = PI_OK;
    } else if (copy) {
        status = map_copy(map, fd, (size_t)st.st_size, path, report, err);
    } else {
        status = map_shared(map, fd, (size_t)st.st_size, path, err);
    }
    close(fd);
    return status;
}

pi_status file_map_open(file_map *map, const char *path, bool copy, pi_error *err) {
    return open_map(map, path, copy, NULL, err);
}

pi_status file_map_copy(file_map *map, const char *path, progress *report, pi_error *err) {
    return open_map(map, path, true, report, err);
}

void file_map_close(file_map *map) {
    if (map->size) {
        void *data = (void *)(uintptr_t)map->data; /* munmap and mem_unmap take no const pointers */
        if (map->copied) {
            mem_unmap(data, map->size);
        } else {
            unlist_mapping(data);
            munmap(data, map->size);
        }
    }
    *map = (file_map){0};
}

void file_map_forget(const file_map *map, const void *data, size_t n_bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + n_bytes) / page * page;
    if (!map->copied && map->size && begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED); /* a hint: failing is harmless */
}

pi_status file_map_lock(const file_map *map, progress *report, pi_error *err) {
    size_t done = 0;
    while (done < map->size) { /* mlock reads the pages, which may take as long as copying */
        size_t piece = map->size - done < REPORT_PIECE ? map->size - done : REPORT_PIECE;
        if (mlock(map->data + done, piece) != 0) break;
        done += piece;
        if (!progress_step(report, "locking the model", (double)done / (double)map->size))
            return error_set(err, PI_ERR_CANCELLED,
                             "cancelled: loading the model: %zu of %zu bytes", done, map->size);
    }
    if (done == map->size) return PI_OK;
    if (errno != ENOMEM && errno != EPERM && errno != EAGAIN) {
        return error_set_errno(err, errno, "cannot lock weights in memory: %zu bytes", map->size);
    }
    struct rlimit limit = {0};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    return error_set(err, PI_ERR_IO,
                     "cannot lock %zu bytes in memory: the limit is %llu KiB: raise it with "
                     "`ulimit -l` or do not lock them",
                     map->size, (unsigned long long)limit.rlim_cur / 1024);
}

static pi_status read_all(int fd, const char *name, size_t max_bytes, char **data, size_t *n_bytes,
                          pi_error *err) {
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
        int problem = read_fully(fd, (char *)buf + used, capacity - used, &n_read);
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
    struct stat st;
    pi_status status = PI_ERR_IO;
    int fd = open_regular(path, &st, err, &status);
    if (fd < 0) return status;
    status = read_all(fd, path, max_bytes, data, n_bytes, err);
    close(fd);
    return status;
}

pi_status file_read_stream(const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                           pi_error *err) {
    if (strcmp(path, "-") == 0) {
        return read_all(STDIN_FILENO, "standard input", max_bytes, data, n_bytes, err);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_set_errno(err, errno, "cannot open file: %s", path);
    pi_status status = read_all(fd, path, max_bytes, data, n_bytes, err);
    close(fd);
    return status;
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_join(char *buf, size_t n_buf, const char *dir, const char *name) {
    size_t n_dir = strlen(dir);
    const char *slash = n_dir && dir[n_dir - 1] == '/' ? "" : "/";
    int n = snprintf(buf, n_buf, "%s%s%s", dir, slash, name);
    return n >= 0 && (size_t)n < n_buf;
}
