/* sys/stat.h: mkdir with a mode, which Windows does not have, for tests. */
#include_next <sys/stat.h>

#ifndef TEST_WINDOWS_STAT_H
#define TEST_WINDOWS_STAT_H

#include <io.h>

int posix_mkdir(const char *path, int mode);
#define mkdir(path, mode) posix_mkdir(path, mode)
int mkfifo(const char *path, int mode); /* by the host's shell */

#endif
