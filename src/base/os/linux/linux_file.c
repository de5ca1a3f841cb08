/* linux_file.c: operations on files that only Linux has. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os_file.h"

static int result_of(int returned) {
    return returned == 0 ? 0 : errno;
}

int os_file_open(const char *path, unsigned how, os_file *out) {
    static const struct {
        unsigned how;
        int flag;
    } flags[] = {{OS_CREATE, O_CREAT},     {OS_NEW, O_EXCL},           {OS_DIRECT, O_DIRECT},
                 {OS_NO_WAIT, O_NONBLOCK}, {OS_NO_FOLLOW, O_NOFOLLOW}, {OS_NO_TERMINAL, O_NOCTTY}};
    int flag = O_CLOEXEC | (!(how & OS_WRITE) ? O_RDONLY : how & OS_READ ? O_RDWR : O_WRONLY);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (how & flags[i].how) flag |= flags[i].flag;
    int fd = open(path, flag, 0666);
    *out = fd;
    return fd >= 0 ? 0 : errno;
}

int os_file_open_unnamed(const char *folder, os_file *out) {
    int fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    *out = fd;
    return fd >= 0 ? 0 : errno;
}

int os_file_open_memory(os_file *out) {
    int fd = memfd_create("powerinfer", MFD_CLOEXEC);
    *out = fd;
    return fd >= 0 ? 0 : errno;
}

bool os_file_path(os_file f, char path[OS_PATH_MAX]) {
    snprintf(path, OS_PATH_MAX, "/proc/self/fd/%d", (int)f);
    return access(path, F_OK) == 0;
}

int os_file_link(os_file f, const char *path) {
    char own[OS_PATH_MAX];
    (void)os_file_path(f, own);
    return result_of(linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}

int os_file_reserve(os_file f, uint64_t size) {
    return result_of(fallocate((int)f, 0, 0, (off_t)size));
}

int os_file_sync(os_file f) {
    return result_of(fsync((int)f));
}

void os_file_forget(os_file f, uint64_t offset, uint64_t n_bytes) {
    (void)posix_fadvise((int)f, (off_t)offset, (off_t)n_bytes, POSIX_FADV_DONTNEED);
}
