/* unistd.h: with functions of POSIX, for tests of Windows. */
#include_next <unistd.h>

#ifndef TEST_WINDOWS_UNISTD_H
#define TEST_WINDOWS_UNISTD_H

/* They move the file's position. */
ssize_t pread(int fd, void *data, size_t n, off_t offset);
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset);
enum { _SC_PAGESIZE = 1 };
long sysconf(int name);
int geteuid(void); /* 0: modes of folders refuse nothing */
int pipe(int ends[2]);
int symlink(const char *target, const char *path); /* by the host's shell: wine follows links */

#endif
