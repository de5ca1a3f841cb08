/* posix_path.c: paths and folders. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os_file.h"
#include "posix_info.h"
#include "posix_system.h"

_Static_assert(PATH_MAX <= OS_PATH_MAX, "realpath writes up to PATH_MAX bytes");

static int result_of(int returned) {
    return returned == 0 ? 0 : errno;
}

void posix_info_fill(os_info *out, const struct stat *st) {
    *out = (os_info){.kind = S_ISREG(st->st_mode)   ? OS_REGULAR
                             : S_ISDIR(st->st_mode) ? OS_FOLDER
                                                    : OS_OTHER,
                     .size = (uint64_t)st->st_size,
                     .volume = (uint64_t)st->st_dev,
                     .index = st->st_ino,
                     .n_names = st->st_nlink,
                     .modified = posix_modified(st),
                     .permissions = st->st_mode & 0777};
}

int os_path_info(const char *path, os_info *out) {
    struct stat st;
    if (stat(path, &st) != 0) return errno;
    posix_info_fill(out, &st);
    return 0;
}

bool os_path_same(const char *a, const char *b) {
    os_info of_a = {0}, of_b = {0};
    return os_path_info(a, &of_a) == 0 && os_path_info(b, &of_b) == 0 &&
           of_a.volume == of_b.volume && of_a.index == of_b.index;
}

int os_path_check(const char *path, unsigned may) {
    return result_of(access(path, (may & OS_MAY_READ ? R_OK : 0) | (may & OS_MAY_WRITE ? W_OK : 0) |
                                      (may & OS_MAY_ENTER ? X_OK : 0)));
}

int os_folder_create(const char *path) {
    return result_of(mkdir(path, 0777));
}

int os_folder_create_private(const char *path) {
    return result_of(mkdir(path, 0700));
}

/* os_folder is the system's DIR. */
os_folder *os_folder_open(const char *path) {
    return (os_folder *)opendir(path);
}

const char *os_folder_next(os_folder *f) {
    for (const struct dirent *e; (e = readdir((DIR *)f));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) return e->d_name;
    return NULL;
}

void os_folder_close(os_folder *f) {
    if (f) closedir((DIR *)f);
}

unsigned os_files_private(void) {
    return umask(0077);
}

void os_files_permit(unsigned before) {
    umask((mode_t)before);
}

bool os_path_separates(char c) {
    return c == '/';
}

bool os_path_is_absolute(const char *path) {
    return path[0] == '/';
}

int os_path_remove(const char *path) {
    return result_of(unlink(path));
}

int os_path_rename(const char *from, const char *to) {
    return result_of(rename(from, to));
}

int os_path_link(const char *from, const char *to) {
    return result_of(link(from, to));
}

int os_path_link_symbolic(const char *target, const char *path) {
    return result_of(symlink(target, path));
}

bool os_path_real(const char *path, char real[OS_PATH_MAX]) {
    return realpath(path, real) != NULL;
}

bool os_path_home(const char *user, char path[OS_PATH_MAX]) {
    glob_t found = {.gl_pathc = 0};
    bool ok = glob(user, GLOB_TILDE, NULL, &found) == 0 && found.gl_pathc == 1 &&
              strlen(found.gl_pathv[0]) < OS_PATH_MAX;
    if (ok) snprintf(path, OS_PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
    return ok;
}

void os_folder_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

os_file os_path_stream(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return OS_STDOUT;
    if (strcmp(path, "/dev/stderr") == 0) return OS_STDERR;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0) continue;
        const char *digits = path + n;
        size_t n_digits = strspn(digits, "0123456789");
        if (n_digits > 0 && n_digits < 7 && !digits[n_digits]) return strtol(digits, NULL, 10);
    }
    return OS_FILE_NONE;
}
