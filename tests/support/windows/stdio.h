/* stdio.h: with streams that write to memory, for tests of Windows. */
#include_next <stdio.h>

#ifndef TEST_WINDOWS_STDIO_H
#define TEST_WINDOWS_STDIO_H

#include <stddef.h>

/* The text is complete after fclose. */
FILE *open_memstream(char **text, size_t *n_text);
int posix_fclose(FILE *file);
#define fclose(file) posix_fclose(file)

#endif
