/* file_writer.c: writes files that appear complete or not at all.
 *
 * Bytes go to a temporary file in the target's folder (file_temporary.h); commit calls fsync,
 * renames the file over the target and syncs the folder. There are two exceptions.
 *
 * - Streams are written in place: /dev/stdout, /dev/stderr and /dev/fd/N, which are descriptors
 *   that the program was given, and every existing target that is not a regular file (a terminal, a
 *   pipe, a device).
 * - Where rename cannot replace the target (a file mounted on its own, another user's file in a
 *   sticky folder), the finished bytes are copied onto it. Space is reserved first, and signals
 *   wait for the copy, so only SIGKILL, a crash or a failing disk during the copy can leave a
 *   mixture.
 *
 * file_writer_open already reports every refusal of the target that can be known in advance.
 *
 * Threads: one writer belongs to one thread at a time; different writers are independent. */
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

#include "file_temporary.h"
#include "mem.h"

enum { BUFFER_BYTES = 256 * 1024 }; /* bytes; system calls then cost less than a percent */
enum { WRITE_PIECE = 1 << 30 };     /* bytes; one write() moves less than 2 GiB on Linux */

static atomic_int copies_running; /* onto targets, see above */

struct file_writer {
    int fd;
    bool direct;       /* written in place, no temporary file */
    bool failed;       /* a write failed: commit must not publish the file */
    size_t n_buffered; /* bytes in buffer */
    uint64_t offset;   /* bytes written, buffered ones included */
    off_t start;       /* in place: stream position of byte 0 of the file */
    char target[PATH_MAX];
    file_temporary temporary; /* owns fd; unused with `direct` */
    uint8_t buffer[BUFFER_BYTES];
};

bool file_writer_signal_cleanup(void) {
    static atomic_flag asked = ATOMIC_FLAG_INIT;
    if (atomic_load(&copies_running) > 0 && !atomic_flag_test_and_set(&asked)) return false;
    file_temporary_unlink_all();
    return true;
}

/* The descriptor that a path names; -1: an ordinary path. */
static int stream_number(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0) continue;
        const char *digits = path + n;
        size_t n_digits = strspn(digits, "0123456789");
        if (n_digits > 0 && n_digits < 7 && !digits[n_digits]) return (int)strtol(digits, NULL, 10);
    }
    return -1;
}

/* Duplicates the descriptor instead of opening its path: output is appended where other commands of
 * the shell stopped writing. */
static pi_status open_stream(file_writer *w, int number, const char *path, pi_error *err) {
    int flags = fcntl(number, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
        flags = -1;
        errno = EBADF;
    }
    w->fd = flags < 0 ? -1 : fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (w->fd < 0) return error_set_errno(err, errno, "cannot open file for writing: %s", path);
    off_t at = lseek(w->fd, 0, SEEK_CUR);
    w->start = at < 0 ? 0 : at;
    return PI_OK;
}

static pi_status open_device(file_writer *w, const char *path, pi_error *err) {
    w->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (w->fd < 0) return error_set_errno(err, errno, "cannot open file for writing: %s", path);
    return PI_OK;
}

/* Opens the file for writing and closes it: this detects more than access() (immutable and
 * append-only files, running programs). */
static pi_status check_replaceable(const char *path, pi_error *err) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set_errno(err, errno, "cannot overwrite file: %s", path);
    close(fd);
    return PI_OK;
}

/* Chooses between writing in place and a temporary file, and opens. `path` fits w->target. */
static pi_status open_target(file_writer *w, const char *path, pi_error *err) {
    struct stat st;
    int number = stream_number(path);
    bool exists = stat(path, &st) == 0;
    if (!exists && errno != ENOENT && number < 0)
        return error_set_errno(err, errno, "cannot create file: %s", path);
    if (exists && S_ISDIR(st.st_mode))
        return error_set(err, PI_ERR_IO, "cannot write to a folder: %s: name a file in it", path);
    snprintf(w->target, sizeof w->target, "%s", path);
    w->direct = number >= 0 || (exists && !S_ISREG(st.st_mode));
    if (w->direct)
        return number >= 0 ? open_stream(w, number, path, err) : open_device(w, path, err);
    pi_status status = exists ? check_replaceable(path, err) : PI_OK;
    if (status != PI_OK) return status;
    /* A symbolic link stays: the file it names is replaced. */
    if (exists && !realpath(path, w->target)) snprintf(w->target, sizeof w->target, "%s", path);
    status = file_temporary_open(&w->temporary, w->target, err);
    w->fd = w->temporary.fd;
    if (status == PI_OK && exists) (void)fchmod(w->fd, st.st_mode & 0777);
    return status;
}

pi_status file_writer_open(const char *path, file_writer **out, pi_error *err) {
    *out = NULL;
    size_t n_path = strlen(path);
    if (n_path == 0 || path[n_path - 1] == '/') {
        return error_set(err, PI_ERR_IO, "not a file name: '%s'", path);
    }
    if (n_path >= PATH_MAX) return error_set_errno(err, ENAMETOOLONG, "cannot create: %s", path);
    file_writer *w = mem_calloc(1, sizeof *w);
    if (!w) return error_nomem(err, sizeof *w, path);
    pi_status status = open_target(w, path, err);
    if (status != PI_OK) {
        mem_free(w);
        return status;
    }
    *out = w;
    return PI_OK;
}

pi_status file_writer_probe(const char *path, pi_error *err) {
    struct stat st;
    /* Not opened: a pipe would wait for a reader, and closing it would end the reader. */
    if (stream_number(path) < 0 && stat(path, &st) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISDIR(st.st_mode))
        return access(path, W_OK) == 0
                   ? PI_OK
                   : error_set_errno(err, errno, "cannot open file for writing: %s", path);
    file_writer *w;
    pi_status status = file_writer_open(path, &w, err);
    if (status == PI_OK) file_writer_abort(w);
    return status;
}

/* EFAULT: bytes of a mapped file that was truncated; the error names that file. */
static pi_status write_failed(file_writer *w, const void *data, int problem, pi_error *err) {
    const char *source = problem == EFAULT ? file_map_path_at(data, NULL) : NULL;
    w->failed = true;
    if (source) return error_set(err, PI_ERR_IO, FILE_MAP_CUT "%s", source);
    return error_set_errno(err, problem, "cannot write file: %s", w->target);
}

static pi_status write_out(file_writer *w, const uint8_t *data, size_t n, pi_error *err) {
    while (n) {
        ssize_t got = write(w->fd, data, n < WRITE_PIECE ? n : WRITE_PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return write_failed(w, data, errno, err);
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
    if (w->direct && fcntl(w->fd, F_GETFL) & O_APPEND)
        return error_set(err, PI_ERR_IO,
                         "cannot write file: %s: it is open for appending: name a file", w->target);
    const uint8_t *p = data;
    while (n_bytes) {
        size_t piece = n_bytes < WRITE_PIECE ? n_bytes : WRITE_PIECE;
        ssize_t got = pwrite(w->fd, p, piece, w->start + (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return write_failed(w, p, errno, err);
        p += got;
        offset += (uint64_t)got;
        n_bytes -= (size_t)got;
    }
    return PI_OK;
}

const char *file_writer_path(const file_writer *w) {
    return w->direct ? w->target : w->temporary.path;
}

pi_status file_writer_flush(file_writer *w, pi_error *err) {
    return flush(w, err);
}

/* Makes the rename durable. Some file systems cannot sync a folder; the file is complete anyway, so
 * a failure is not an error. */
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    size_t n = file_folder_length(path);
    snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, n ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* Network file systems report a full disk only when a descriptor is closed. Closes a duplicate; the
 * original keeps the lock. Returns 0 or an errno. */
static int close_copy(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy < 0 || close(copy) == 0 || errno == EINTR ? 0 : errno;
}

/* ---- copy onto a target that cannot be replaced ---------------------------------------------- */

static int copy_bytes(file_writer *w, off_t size, int to) {
    off_t at = 0;
    while (at < size) {
        ssize_t n = pread(w->fd, w->buffer, BUFFER_BYTES, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : EIO;
        for (ssize_t done = 0; done < n;) {
            ssize_t put = pwrite(to, w->buffer + done, (size_t)(n - done), at + done);
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return errno;
            done += put;
        }
        at += n;
    }
    return ftruncate(to, size) != 0 || fsync(to) != 0 ? errno : 0;
}

/* Overwrites the old bytes only after space for the new ones is reserved; a file system that cannot
 * reserve space is overwritten without that. */
static pi_status copy_onto(file_writer *w, int to, pi_error *err) {
    struct stat from, old;
    if (fstat(w->fd, &from) != 0 || fstat(to, &old) != 0)
        return error_set_errno(err, errno, "cannot write file: %s", w->target);
    if (old.st_size < from.st_size && fallocate(to, 0, 0, from.st_size) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS) {
        int problem = errno;
        (void)!ftruncate(to, old.st_size);
        return error_set_errno(err, problem, "cannot write file: %s", w->target);
    }
    int problem = copy_bytes(w, from.st_size, to);
    if (problem)
        return error_set_errno(err, problem, "file is incomplete, write it again: %s", w->target);
    return PI_OK;
}

static pi_status publish_as_copy(file_writer *w, int why, pi_error *err) {
    int to = open(w->target, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (to < 0) return error_set_errno(err, why, "cannot replace file: %s", w->target);
    atomic_fetch_add(&copies_running, 1);
    pi_status status = copy_onto(w, to, err);
    atomic_fetch_sub(&copies_running, 1);
    if (close(to) != 0 && errno != EINTR && status == PI_OK)
        status = error_set_errno(err, errno, "cannot write file: %s", w->target);
    return status;
}

/* ---- commit and abort ------------------------------------------------------------------------ */

static pi_status publish(file_writer *w, pi_error *err) {
    int problem = fsync(w->fd) != 0 ? errno : close_copy(w->fd);
    if (problem) return error_set_errno(err, problem, "cannot write file: %s", w->target);
    problem = file_temporary_publish(&w->temporary, w->target);
    if (problem == EBUSY || problem == EXDEV || problem == EPERM || problem == EACCES)
        return publish_as_copy(w, problem, err);
    if (problem) return error_set_errno(err, problem, "cannot replace file: %s", w->target);
    sync_folder(w->target);
    return PI_OK;
}

static void release(file_writer *w) {
    if (!w->direct)
        file_temporary_close(&w->temporary);
    else if (w->fd >= 0)
        close(w->fd);
    mem_free(w);
}

pi_status file_writer_commit(file_writer *w, pi_error *err) {
    pi_status status = PI_OK;
    if (w->failed) {
        status = error_set(err, PI_ERR_IO, "an earlier write failed: %s", w->target);
    }
    if (status == PI_OK) status = flush(w, err);
    if (status == PI_OK && !w->direct) status = publish(w, err);
    if (status == PI_OK && w->direct) {
        int closed = close(w->fd);
        w->fd = -1;
        if (closed != 0 && errno != EINTR)
            status = error_set_errno(err, errno, "cannot write file: %s", w->target);
    }
    release(w);
    return status;
}

void file_writer_abort(file_writer *w) {
    if (w) release(w);
}

/* ---- scratch files --------------------------------------------------------------------------- */

struct file_scratch {
    file_temporary temporary;
};

pi_status file_scratch_create(const char *beside, file_scratch **out, pi_error *err) {
    *out = NULL;
    file_scratch *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, beside);
    pi_status status = file_temporary_open(&s->temporary, beside, err);
    if (status != PI_OK) {
        mem_free(s);
        return status;
    }
    file_temporary_hide(&s->temporary);
    *out = s;
    return PI_OK;
}

const char *file_scratch_path(const file_scratch *s) {
    return s->temporary.path;
}

int file_scratch_descriptor(const file_scratch *s) {
    return s->temporary.fd;
}

void file_scratch_remove(file_scratch *s) {
    if (!s) return;
    file_temporary_close(&s->temporary);
    mem_free(s);
}
