/* string.h: with functions of GNU and POSIX, for tests of Windows. */
#include_next <string.h>

#ifndef TEST_WINDOWS_STRING_H
#define TEST_WINDOWS_STRING_H

void *memmem(const void *in, size_t n, const void *what, size_t n_what);
char *strndup(const char *text, size_t n);
char *strcasestr(const char *in, const char *what);

#endif
