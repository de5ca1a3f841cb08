/* windows_call.h: what all files of this folder need: the system's header, its errors as error
 * numbers of <errno.h>, and paths and texts in UTF-16. */
#ifndef BASE_WINDOWS_CALL_H
#define BASE_WINDOWS_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include <windows.h>

#include "os_file.h"

/* The error number for an error of the system; EIO for one without an equivalent. */
int windows_errno(DWORD error);
int windows_last(void); /* windows_errno of GetLastError */
/* 0 for a call that succeeded, else windows_last. */
static inline int windows_result(BOOL succeeded) {
    return succeeded ? 0 : windows_last();
}

/* UTF-16 units of a path with its NUL; no path of OS_PATH_MAX bytes needs more, and the prefix of
 * long paths has room. */
enum { WINDOWS_PATH_MAX = OS_PATH_MAX + 64 };

/* A path for the system's functions: with backslashes, and absolute with the prefix of long paths
 * where it would otherwise be too long. "/dev/null" is the null device. 0 or an error number. */
int windows_path(const char *path, wchar_t out[WINDOWS_PATH_MAX]);
/* The other direction, with slashes and without the prefix. False: it does not fit. */
bool windows_path_text(const wchar_t *path, char *out, size_t n_out);
/* Text in UTF-8; unpaired surrogates become U+FFFD. False: it does not fit. */
bool windows_text(const wchar_t *text, char *out, size_t n_out);

enum { WINDOWS_DIRECT = 1 }; /* a flag of an os_file: how it was opened */

/* The system's handle of an open file; the standard streams may change during the program's life.
 */
HANDLE windows_handle(os_file f);
/* Whether the handle is a console's. */
bool windows_is_console(HANDLE h);

/* How often and for how long a call is repeated that fails because another program, such as a virus
 * scanner, has the file open. */
enum { WINDOWS_RETRIES = 40, WINDOWS_RETRY_MS = 50 };

/* A function of a system library that older releases of Windows lack; NULL: this one does. */
typedef void (*windows_function)(void);
windows_function windows_find(const wchar_t *library, const char *name);

#endif
