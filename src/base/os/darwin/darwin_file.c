/* darwin_file.c: operations on files that Linux does differently. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os_file.h"

/* On Darwin reading past the page cache is a property of the descriptor; any address will do. */
int os_file_open(const char *path, unsigned how, os_file *out) {
    static const struct {
        unsigned how;
        int flag;
    } flags[] = {{OS_CREATE, O_CREAT},
                 {OS_NEW, O_EXCL},
                 {OS_NO_WAIT, O_NONBLOCK},
                 {OS_NO_FOLLOW, O_NOFOLLOW},
                 {OS_NO_TERMINAL, O_NOCTTY}};
    int flag = O_CLOEXEC | (!(how & OS_WRITE) ? O_RDONLY : how & OS_READ ? O_RDWR : O_WRONLY);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (how & flags[i].how) flag |= flags[i].flag;
    int fd = open(path, flag, 0666), problem = 0;
    if (fd < 0) problem = errno;
    if (fd >= 0 && how & OS_DIRECT && fcntl(fd, F_NOCACHE, 1) == -1) {
        problem = errno;
        close(fd);
        fd = OS_FILE_NONE;
    }
    *out = fd;
    return problem;
}

/* Darwin has no files without a name. */
int os_file_open_unnamed(const char *folder, os_file *out) {
    (void)folder;
    *out = OS_FILE_NONE;
    return EOPNOTSUPP;
}

int os_file_open_memory(os_file *out) {
    *out = OS_FILE_NONE;
    return EOPNOTSUPP;
}

bool os_file_path(os_file f, char path[OS_PATH_MAX]) {
    snprintf(path, OS_PATH_MAX, "/dev/fd/%d", (int)f);
    return access(path, F_OK) == 0;
}

int os_file_link(os_file f, const char *path) {
    (void)f;
    (void)path;
    return EOPNOTSUPP;
}

/* Reserves one contiguous piece if possible, else any pieces. */
int os_file_reserve(os_file f, uint64_t size) {
    struct stat now;
    if (fstat((int)f, &now) != 0) return errno;
    if ((uint64_t)now.st_size >= size) return 0;
    fstore_t wanted = {.fst_flags = F_ALLOCATECONTIG | F_ALLOCATEALL,
                       .fst_posmode = F_PEOFPOSMODE,
                       .fst_length = (off_t)size - now.st_size};
    if (fcntl((int)f, F_PREALLOCATE, &wanted) == -1) {
        wanted.fst_flags = F_ALLOCATEALL;
        if (fcntl((int)f, F_PREALLOCATE, &wanted) == -1)
            return errno == ENOTSUP ? EOPNOTSUPP : errno;
    }
    return ftruncate((int)f, (off_t)size) == 0 ? 0 : errno;
}

/* fsync() leaves bytes in the drive's cache, but network file systems have only fsync(). */
int os_file_sync(os_file f) {
    if (fcntl((int)f, F_FULLFSYNC) != -1) return 0;
    return fsync((int)f) == 0 ? 0 : errno;
}

/* Darwin has no call to drop a part of a file from the page cache. */
void os_file_forget(os_file f, uint64_t offset, uint64_t n_bytes) {
    (void)f;
    (void)offset;
    (void)n_bytes;
}
