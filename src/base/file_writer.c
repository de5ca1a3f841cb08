/* file_writer.c: files that appear complete or not at all.
 *
 * The bytes go to ".NAME.PID.SERIAL.tmp" beside the target, then fsync, rename over the target and
 * fsync of the folder. A target that exists and is not a regular file (a terminal, a pipe,
 * /dev/null) is written in place: nothing could be renamed over it.
 *
 * Threads: one writer belongs to one thread at a time; different writers are independent.
 * Signals: names of open temporary files stand in a fixed table whose entries never move, so that
 * file_writer_signal_cleanup can read them at any moment. An entry is LIVE from before its file
 * exists until after it was renamed or unlinked; unlinking a name that is not there does no harm.
 */
#include "file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

enum { BUFFER_BYTES = 256 * 1024 }; /* large enough that a system call costs under a percent */
enum { WRITE_PIECE = 1 << 30 };     /* bytes; one write() moves less than 2 GiB on Linux */
enum { NAME_KEPT = 200 };           /* bytes of the target's name; NAME_MAX is 255 */
/* Files written at one time that a signal cleans up. More are written just as well, but a signal
 * leaves their temporary file behind. */
enum { TEMPORARY_SLOTS = 8 };
enum { OPEN_ATTEMPTS = 100 }; /* names tried when leftovers of an earlier process are in the way */

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_LIVE };

typedef struct temporary_slot {
    atomic_int state;
    char path[PATH_MAX];
} temporary_slot;

static temporary_slot slots[TEMPORARY_SLOTS];
static atomic_uint next_serial; /* makes names of one process differ */

struct file_writer {
    int fd;
    bool direct;       /* written in place, no temporary file */
    bool failed;       /* a write failed: commit must not publish the file */
    int slot;          /* in slots, or -1 */
    size_t n_buffered; /* bytes in buffer */
    uint64_t offset;   /* bytes written, buffered ones included */
    char target[PATH_MAX];
    char temporary[PATH_MAX];
    uint8_t buffer[BUFFER_BYTES];
};

static int slot_claim(const char *path) {
    for (int i = 0; i < TEMPORARY_SLOTS; i++) {
        int expected = SLOT_FREE;
        if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_FILLING)) {
            snprintf(slots[i].path, sizeof slots[i].path, "%s", path);
            atomic_store(&slots[i].state, SLOT_LIVE);
            return i;
        }
    }
    return -1;
}

static void slot_release(int slot) {
    if (slot >= 0) atomic_store(&slots[slot].state, SLOT_FREE);
}

void file_writer_signal_cleanup(void) {
    int saved = errno;
    for (int i = 0; i < TEMPORARY_SLOTS; i++) {
        if (atomic_load(&slots[i].state) == SLOT_LIVE) unlink(slots[i].path);
    }
    errno = saved;
}

/* Length of the folder part of a path, with its slash; 0: the working folder. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* A name for a temporary file beside `target`; false when it does not fit. */
static bool name_temporary(const char *target, char path[PATH_MAX]) {
    size_t n_folder = folder_length(target);
    unsigned serial = atomic_fetch_add(&next_serial, 1);
    int n = snprintf(path, PATH_MAX, "%.*s.%.*s.%ld.%u.tmp", (int)n_folder, target, NAME_KEPT,
                     target + n_folder, (long)getpid(), serial);
    return n >= 0 && n < PATH_MAX;
}

static pi_status open_temporary(file_writer *w, pi_error *err) {
    for (int i = 0; i < OPEN_ATTEMPTS; i++) {
        if (!name_temporary(w->target, w->temporary)) {
            return error_set_errno(err, ENAMETOOLONG, "cannot create file: %s", w->target);
        }
        /* Claimed first: a signal between open and claim would leave the file. Should the name
         * belong to someone else, the entry is withdrawn again below. */
        w->slot = slot_claim(w->temporary);
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) return PI_OK;
        int problem = errno;
        slot_release(w->slot);
        w->slot = -1;
        if (problem != EEXIST) {
            return error_set_errno(err, problem, "cannot create file: %s", w->target);
        }
    }
    return error_set_errno(err, EEXIST, "cannot create a temporary file: %s", w->temporary);
}

/* Decides between in place and temporary, and opens. `path` fits w->target. */
static pi_status open_target(file_writer *w, const char *path, pi_error *err) {
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) {
        return error_set(err, PI_ERR_IO, "cannot write to a folder: %s: name a file in it", path);
    }
    /* /dev/stdout may lead to a regular file that the shell opened: that one must be written to,
     * not replaced by another file of its name. */
    if (exists && (!S_ISREG(st.st_mode) || strncmp(path, "/dev/", 5) == 0)) {
        w->direct = true;
        w->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (w->fd < 0) return error_set_errno(err, errno, "cannot open file for writing: %s", path);
        return PI_OK;
    }
    if (exists && access(path, W_OK) != 0) {
        return error_set_errno(err, errno, "cannot overwrite file: %s", path);
    }
    /* A link stays a link: what it names is replaced. */
    if (!exists || !realpath(path, w->target)) {
        snprintf(w->target, sizeof w->target, "%s", path);
    }
    pi_status status = open_temporary(w, err);
    if (status == PI_OK && exists) (void)fchmod(w->fd, st.st_mode & 0777);
    return status;
}

pi_status file_writer_open(const char *path, file_writer **out, pi_error *err) {
    *out = NULL;
    size_t n_path = strlen(path);
    if (n_path == 0 || path[n_path - 1] == '/') {
        return error_set(err, PI_ERR_IO, "not the name of a file: '%s'", path);
    }
    if (n_path >= PATH_MAX) return error_set_errno(err, ENAMETOOLONG, "cannot create: %s", path);
    file_writer *w = mem_calloc(1, sizeof *w);
    if (!w) return error_nomem(err, sizeof *w, path);
    w->slot = -1;
    pi_status status = open_target(w, path, err);
    if (status != PI_OK) {
        mem_free(w);
        return status;
    }
    if (w->direct) snprintf(w->target, sizeof w->target, "%s", path);
    *out = w;
    return PI_OK;
}

static pi_status write_out(file_writer *w, const uint8_t *data, size_t n, pi_error *err) {
    while (n) {
        ssize_t got = write(w->fd, data, n < WRITE_PIECE ? n : WRITE_PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            w->failed = true;
            return error_set_errno(err, errno, "cannot write file: %s", w->target);
        }
        data += got;
        n -= (size_t)got;
    }
    return PI_OK;
}

static pi_status flush(file_writer *w, pi_error *err) {
    pi_status status = write_out(w, w->buffer, w->n_buffered, err);
    w->n_buffered = 0;
    return status;
}

pi_status file_writer_write(file_writer *w, const void *data, size_t n_bytes, pi_error *err) {
    pi_status status = PI_OK;
    if (n_bytes > BUFFER_BYTES - w->n_buffered) status = flush(w, err);
    if (status != PI_OK) return status;
    if (n_bytes >= BUFFER_BYTES) {
        status = write_out(w, data, n_bytes, err);
    } else if (n_bytes) {
        memcpy(w->buffer + w->n_buffered, data, n_bytes);
        w->n_buffered += n_bytes;
    }
    if (status == PI_OK) w->offset += n_bytes;
    return status;
}

pi_status file_writer_zeros(file_writer *w, size_t n_bytes, pi_error *err) {
    static const uint8_t zeros[4096];
    while (n_bytes) {
        size_t n = n_bytes < sizeof zeros ? n_bytes : sizeof zeros;
        pi_status status = file_writer_write(w, zeros, n, err);
        if (status != PI_OK) return status;
        n_bytes -= n;
    }
    return PI_OK;
}

uint64_t file_writer_offset(const file_writer *w) {
    return w->offset;
}

pi_status file_writer_patch(file_writer *w, uint64_t offset, const void *data, size_t n_bytes,
                            pi_error *err) {
    assert(offset <= w->offset && n_bytes <= w->offset - offset);
    pi_status status = flush(w, err);
    if (status != PI_OK) return status;
    const uint8_t *p = data;
    while (n_bytes) {
        size_t piece = n_bytes < WRITE_PIECE ? n_bytes : WRITE_PIECE;
        ssize_t got = pwrite(w->fd, p, piece, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            w->failed = true;
            return error_set_errno(err, errno, "cannot write file: %s", w->target);
        }
        p += got;
        offset += (uint64_t)got;
        n_bytes -= (size_t)got;
    }
    return PI_OK;
}

const char *file_writer_path(const file_writer *w) {
    return w->direct ? w->target : w->temporary;
}

pi_status file_writer_flush(file_writer *w, pi_error *err) {
    return flush(w, err);
}

/* Makes the rename itself durable. Some file systems cannot sync a folder; the file is complete all
 * the same, so a refusal is not an error. */
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    size_t n = folder_length(path);
    snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, n ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

pi_status file_writer_commit(file_writer *w, pi_error *err) {
    pi_status status = PI_OK;
    if (w->failed) {
        status = error_set(err, PI_ERR_IO, "an earlier write failed: %s", w->target);
    }
    if (status == PI_OK) status = flush(w, err);
    if (status == PI_OK && !w->direct && fsync(w->fd) != 0) {
        status = error_set_errno(err, errno, "cannot write file: %s", w->target);
    }
    if (status != PI_OK) {
        file_writer_abort(w);
        return status;
    }
    /* Network file systems report a full disk only here. */
    int closed = close(w->fd);
    w->fd = -1;
    if (closed != 0 && errno != EINTR) {
        status = error_set_errno(err, errno, "cannot write file: %s", w->target);
    } else if (!w->direct && rename(w->temporary, w->target) != 0) {
        status = error_set_errno(err, errno, "cannot replace file: %s", w->target);
    }
    if (status != PI_OK) {
        file_writer_abort(w);
        return status;
    }
    slot_release(w->slot);
    if (!w->direct) sync_folder(w->target);
    mem_free(w);
    return PI_OK;
}

void file_writer_abort(file_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (!w->direct) unlink(w->temporary);
    slot_release(w->slot);
    mem_free(w);
}

/* ---- scratch files --------------------------------------------------------------------------- */

struct file_scratch {
    int slot; /* in slots, or -1 */
    char path[PATH_MAX];
};

pi_status file_scratch_create(const char *beside, file_scratch **out, pi_error *err) {
    *out = NULL;
    file_scratch *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, beside);
    for (int i = 0; i < OPEN_ATTEMPTS; i++) {
        if (!name_temporary(beside, s->path)) {
            mem_free(s);
            return error_set_errno(err, ENAMETOOLONG, "cannot create file: %s", beside);
        }
        if (!file_exists(s->path)) {
            s->slot = slot_claim(s->path);
            *out = s;
            return PI_OK;
        }
    }
    mem_free(s);
    return error_set_errno(err, EEXIST, "cannot create a temporary file: %s", beside);
}

const char *file_scratch_path(const file_scratch *s) {
    return s->path;
}

void file_scratch_remove(file_scratch *s) {
    if (!s) return;
    unlink(s->path);
    slot_release(s->slot);
    mem_free(s);
}
