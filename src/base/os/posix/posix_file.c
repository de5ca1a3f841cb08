/* posix_file.c: descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "os_file.h"
#include "posix_info.h"

/* Maximum bytes of one read() or write(): Linux limits a call to just under 2 GiB, and at 1 GiB the
 * largest model needs fewer than a few hundred calls. */
enum { PIECE = 1 << 30 };

static int result_of(int returned) {
    return returned == 0 ? 0 : errno;
}

static size_t piece_of(size_t n) {
    return n < PIECE ? n : PIECE;
}

bool os_problem_is_full(int problem) {
    return problem == ENOSPC || problem == EDQUOT;
}

/* ---- opening --------------------------------------------------------------------------------- */

int os_file_close(os_file f) {
    return close((int)f) == 0 || errno == EINTR ? 0 : errno;
}

int os_file_duplicate(os_file f, os_file *out) {
    int fd = fcntl((int)f, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    *out = fd;
    return fd >= 0 ? 0 : errno;
}

/* ---- properties ------------------------------------------------------------------------------ */

int os_file_info(os_file f, os_info *out) {
    struct stat st;
    if (fstat((int)f, &st) != 0) return errno;
    posix_info_fill(out, &st);
    return 0;
}

bool os_file_is_writable(os_file f) {
    int flags = fcntl((int)f, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

bool os_file_appends(os_file f) {
    return fcntl((int)f, F_GETFL) & O_APPEND;
}

void os_file_permit(os_file f, unsigned permissions) {
    (void)fchmod((int)f, (mode_t)permissions);
}

int64_t os_file_position(os_file f) {
    return lseek((int)f, 0, SEEK_CUR);
}

int os_file_seek(os_file f, uint64_t offset) {
    return lseek((int)f, (off_t)offset, SEEK_SET) >= 0 ? 0 : errno;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

int os_file_read(os_file f, void *data, size_t n, size_t *n_read) {
    for (*n_read = 0; *n_read < n;) {
        ssize_t got = read((int)f, (char *)data + *n_read, piece_of(n - *n_read));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) break;
        *n_read += (size_t)got;
    }
    return 0;
}

int os_file_read_at(os_file f, void *data, size_t n, uint64_t offset, size_t *n_read) {
    ssize_t got;
    do {
        got = pread((int)f, data, piece_of(n), (off_t)offset);
    } while (got < 0 && errno == EINTR);
    *n_read = got < 0 ? 0 : (size_t)got;
    return got < 0 ? errno : 0;
}

int os_file_write(os_file f, const void *data, size_t n) {
    for (const char *p = data; n > 0;) {
        ssize_t put = write((int)f, p, piece_of(n));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

int os_file_write_at(os_file f, const void *data, size_t n, uint64_t offset) {
    for (const char *p = data; n > 0;) {
        ssize_t put = pwrite((int)f, p, piece_of(n), (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        p += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

int os_file_resize(os_file f, uint64_t size) {
    return result_of(ftruncate((int)f, (off_t)size));
}

int os_file_lock(os_file f) {
    int rc;
    do {
        rc = flock((int)f, LOCK_EX | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    return result_of(rc);
}

uint64_t os_file_room(os_file f) {
    struct statvfs fs;
    return fstatvfs((int)f, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* ---- mapped files ---------------------------------------------------------------------------- */

static int map_file(os_file f, size_t size, int access, int kind, const void **out) {
    void *data = mmap(NULL, size, access, kind, (int)f, 0);
    *out = data == MAP_FAILED ? NULL : data;
    return data == MAP_FAILED ? errno : 0;
}

int os_file_map(os_file f, size_t size, const void **out) {
    return map_file(f, size, PROT_READ, MAP_SHARED, out);
}

/* Without a reservation: few of the pages are ever written. */
int os_file_map_private(os_file f, size_t size, const void **out) {
    return map_file(f, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, out);
}

void os_file_unmap(const void *data, size_t size) {
    munmap((void *)(uintptr_t)data, size);
}
