/* stdio.h: with streams that write to memory, for tests of Windows. */
#include_next <stdio.h>

#ifndef TEST_WINDOWS_STDIO_H
#define TEST_WINDOWS_STDIO_H

#include <stddef.h>

/* The text is complete after fclose. */
FILE *open_memstream(char **text, size_t *n_text);
int posix_fclose(FILE *file);
#define fclose(file) posix_fclose(file)

int posix_rename(const char *from, const char *to); /* replaces a file */
#define rename(from, to) posix_rename(from, to)

/* The output of a line for the host's shell (system, stdlib.h), which has ended; `how` is "r". */
FILE *posix_popen(const char *line, const char *how);
int posix_pclose(FILE *file);
#undef popen
#undef pclose
#define popen(line, how) posix_popen(line, how)
#define pclose(file)     posix_pclose(file)

#endif
