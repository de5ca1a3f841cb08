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
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "file_temporary.h"
#include "mem.h"

enum { BUFFER_BYTES = 256 * 1024 }; /* bytes; system calls then cost less than a percent */

static atomic_int copies_running; /* onto targets, see above */

struct file_writer {
    os_file file;
    bool direct;       /* written in place, no temporary file */
    bool failed;       /* a write failed: commit must not publish the file */
    size_t n_buffered; /* bytes in buffer */
    uint64_t offset;   /* bytes written, buffered ones included */
    uint64_t start;    /* in place: stream position of byte 0 of the file */
    char target[OS_PATH_MAX];
    file_temporary temporary; /* owns file; unused with `direct` */
    uint8_t buffer[BUFFER_BYTES];
};

bool file_writer_signal_cleanup(void) {
    static atomic_flag asked = ATOMIC_FLAG_INIT;
    if (atomic_load(&copies_running) > 0 && !atomic_flag_test_and_set(&asked)) return false;
    file_temporary_unlink_all();
    return true;
}

/* Duplicates the descriptor instead of opening its path: output is appended where other commands of
 * the shell stopped writing. */
static pi_status open_stream(file_writer *w, os_file stream, const char *path, pi_error *err) {
    int problem = os_file_is_writable(stream) ? os_file_duplicate(stream, &w->file) : EBADF;
    if (problem) return error_set_errno(err, problem, "cannot open file for writing: %s", path);
    int64_t at = os_file_position(w->file);
    w->start = at < 0 ? 0 : (uint64_t)at;
    return PI_OK;
}

/* Chooses between writing in place and a temporary file, and opens. `path` fits w->target. */
static pi_status open_target(file_writer *w, const char *path, pi_error *err) {
    os_info info;
    os_file stream = os_path_stream(path);
    int problem = os_path_info(path, &info);
    bool exists = !problem;
    if (!exists && problem != ENOENT && stream == OS_FILE_NONE)
        return error_set_errno(err, problem, "cannot create file: %s", path);
    if (exists && info.kind == OS_FOLDER)
        return error_set(err, PI_ERR_IO, "cannot write to a folder: %s: name a file in it", path);
    snprintf(w->target, sizeof w->target, "%s", path);
    w->direct = stream != OS_FILE_NONE || (exists && info.kind != OS_REGULAR);
    if (stream != OS_FILE_NONE) return open_stream(w, stream, path, err);
    if (w->direct) {
        problem = os_file_open(path, OS_WRITE | OS_NO_TERMINAL, &w->file);
        if (problem) return error_set_errno(err, problem, "cannot open file for writing: %s", path);
        return PI_OK;
    }
    if (exists) {
        /* Opening the old file detects more than os_path_check: immutable and append-only files,
         * running programs. */
        os_file old;
        problem = os_file_open(path, OS_WRITE | OS_NO_WAIT, &old);
        if (problem) return error_set_errno(err, problem, "cannot overwrite file: %s", path);
        os_file_close(old);
        /* A symbolic link stays: the file it names is replaced. */
        if (!os_path_real(path, w->target)) snprintf(w->target, sizeof w->target, "%s", path);
    }
    pi_status status = file_temporary_open(&w->temporary, w->target, err);
    w->file = w->temporary.file;
    if (status == PI_OK && exists) os_file_permit(w->file, info.permissions);
    return status;
}

pi_status file_writer_open(const char *path, file_writer **out, pi_error *err) {
    *out = NULL;
    size_t n_path = strlen(path);
    if (n_path == 0 || os_path_separates(path[n_path - 1])) {
        return error_set(err, PI_ERR_IO, "not a file name: '%s'", path);
    }
    if (n_path >= OS_PATH_MAX) return error_set_errno(err, ENAMETOOLONG, "cannot create: %s", path);
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
    os_info info;
    file_writer *w;
    /* Not opened: a pipe would wait for a reader, and closing it would end the reader. */
    if (os_path_stream(path) == OS_FILE_NONE && os_path_info(path, &info) == 0 &&
        info.kind == OS_OTHER) {
        int problem = os_path_check(path, OS_MAY_WRITE);
        if (!problem) return PI_OK;
        return error_set_errno(err, problem, "cannot open file for writing: %s", path);
    }
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
    int problem = os_file_write(w->file, data, n);
    return problem ? write_failed(w, data, problem, err) : PI_OK;
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
    if (w->direct && os_file_appends(w->file))
        return error_set(err, PI_ERR_IO,
                         "cannot write file: %s: it is open for appending: name a file", w->target);
    int problem = os_file_write_at(w->file, data, n_bytes, w->start + offset);
    return problem ? write_failed(w, data, problem, err) : PI_OK;
}

const char *file_writer_path(const file_writer *w) {
    return w->direct ? w->target : w->temporary.path;
}

pi_status file_writer_flush(file_writer *w, pi_error *err) {
    return flush(w, err);
}

/* ---- copy onto a target that cannot be replaced ---------------------------------------------- */

static int copy_bytes(file_writer *w, uint64_t size, os_file to) {
    for (uint64_t at = 0; at < size;) {
        size_t n;
        int problem = os_file_read_at(w->file, w->buffer, BUFFER_BYTES, at, &n);
        if (!problem && n == 0) problem = EIO;
        if (!problem) problem = os_file_write_at(to, w->buffer, n, at);
        if (problem) return problem;
        at += n;
    }
    int problem = os_file_resize(to, size);
    return problem ? problem : os_file_sync(to);
}

/* Overwrites the old bytes only after space for the new ones is reserved; a file system that cannot
 * reserve space is overwritten without that. */
static pi_status copy_onto(file_writer *w, os_file to, pi_error *err) {
    os_info from, old;
    int problem = os_file_info(w->file, &from);
    if (!problem) problem = os_file_info(to, &old);
    if (problem) return error_set_errno(err, problem, "cannot write file: %s", w->target);
    if (old.size < from.size) problem = os_file_reserve(to, from.size);
    if (problem && problem != EOPNOTSUPP && problem != ENOSYS) {
        (void)os_file_resize(to, old.size);
        return error_set_errno(err, problem, "cannot write file: %s", w->target);
    }
    problem = copy_bytes(w, from.size, to);
    if (problem)
        return error_set_errno(err, problem, "file is incomplete, write it again: %s", w->target);
    return PI_OK;
}

static pi_status publish_as_copy(file_writer *w, int why, pi_error *err) {
    os_file to;
    if (os_file_open(w->target, OS_WRITE | OS_NO_FOLLOW | OS_NO_WAIT, &to) != 0)
        return error_set_errno(err, why, "cannot replace file: %s", w->target);
    atomic_fetch_add(&copies_running, 1);
    pi_status status = copy_onto(w, to, err);
    atomic_fetch_sub(&copies_running, 1);
    int problem = os_file_close(to);
    if (problem && status == PI_OK)
        status = error_set_errno(err, problem, "cannot write file: %s", w->target);
    return status;
}

/* ---- commit and abort ------------------------------------------------------------------------ */

static pi_status publish(file_writer *w, pi_error *err) {
    os_file copy;
    char folder[OS_PATH_MAX];
    int problem = os_file_sync(w->file);
    /* Network file systems report a full disk only when a file is closed. The original stays open
     * and keeps the lock. */
    if (!problem && os_file_duplicate(w->file, &copy) == 0) problem = os_file_close(copy);
    if (problem) return error_set_errno(err, problem, "cannot write file: %s", w->target);
    problem = file_temporary_publish(&w->temporary, w->target);
    if (problem == EBUSY || problem == EXDEV || problem == EPERM || problem == EACCES)
        return publish_as_copy(w, problem, err);
    if (problem) return error_set_errno(err, problem, "cannot replace file: %s", w->target);
    /* Makes the rename durable. Some file systems cannot sync a folder; the file is complete
     * anyway, so a failure is not an error. */
    size_t n = file_folder_length(w->target);
    snprintf(folder, sizeof folder, "%.*s", n ? (int)n : 1, n ? w->target : ".");
    os_folder_sync(folder);
    return PI_OK;
}

static void release(file_writer *w) {
    if (!w->direct)
        file_temporary_close(&w->temporary);
    else if (w->file != OS_FILE_NONE)
        os_file_close(w->file);
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
        int problem = os_file_close(w->file);
        w->file = OS_FILE_NONE;
        if (problem) status = error_set_errno(err, problem, "cannot write file: %s", w->target);
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

pi_status file_scratch_create_memory(file_scratch **out, pi_error *err) {
    *out = NULL;
    file_scratch *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "a file in memory");
    s->temporary.slot = -1;
    int problem = os_file_open_memory(&s->temporary.file);
    if (!problem && os_file_path(s->temporary.file, s->temporary.path)) {
        *out = s;
        return PI_OK;
    }
    file_scratch_remove(s);
    return error_set_errno(err, problem ? problem : ENOENT, "cannot create a file in memory");
}

const char *file_scratch_path(const file_scratch *s) {
    return s->temporary.path;
}

os_file file_scratch_file(const file_scratch *s) {
    return s->temporary.file;
}

void file_scratch_remove(file_scratch *s) {
    if (!s) return;
    file_temporary_close(&s->temporary);
    mem_free(s);
}
