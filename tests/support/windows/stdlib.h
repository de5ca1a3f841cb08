/* stdlib.h: with functions of POSIX, for tests of Windows. */
#include_next <stdlib.h>

#ifndef TEST_WINDOWS_STDLIB_H
#define TEST_WINDOWS_STDLIB_H

char *mkdtemp(char *name); /* "..._XXXXXX" */
int setenv(const char *name, const char *value, int replace);
int unsetenv(const char *name);
/* Runs a line with the shell of wine's host; the status is for sys/wait.h, -1: not started. */
int posix_system(const char *line);
#define system(line) posix_system(line)

#endif
