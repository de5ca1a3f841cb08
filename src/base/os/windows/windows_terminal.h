/* windows_terminal.h: the console, for the other files of this folder. */
#ifndef BASE_WINDOWS_TERMINAL_H
#define BASE_WINDOWS_TERMINAL_H

#include <stddef.h>

#include "windows_call.h"

/* Reads up to n bytes of UTF-8 that the user types, at most a line; the console edits it. 0: the
 * end, Ctrl-Z on an empty line. */
size_t windows_console_read(HANDLE console, char *to, size_t n);
/* Gives the console the settings that it had before os_standard_streams_open. */
void windows_console_restore(void);

#endif
