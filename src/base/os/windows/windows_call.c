/* windows_call.c: conversions between the system's texts and errors and those of ISO C. */
#include "windows_call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

int windows_errno(DWORD error) {
    static const struct {
        DWORD error;
        int number;
    } table[] = {
        {ERROR_SUCCESS, 0},
        {ERROR_FILE_NOT_FOUND, ENOENT},
        {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_DRIVE, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},
        {ERROR_BAD_PATHNAME, ENOENT},
        {ERROR_BAD_NETPATH, ENOENT},
        {ERROR_BAD_NET_NAME, ENOENT},
        {ERROR_NO_MORE_FILES, ENOENT},
        {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
        {ERROR_ACCESS_DENIED, EACCES},
        {ERROR_PRIVILEGE_NOT_HELD, EPERM},
        {ERROR_NETWORK_ACCESS_DENIED, EACCES},
        {ERROR_DELETE_PENDING, EACCES},
        {ERROR_CANT_ACCESS_FILE, EACCES},
        {ERROR_WRITE_PROTECT, EROFS},
        {ERROR_SHARING_VIOLATION, ETXTBSY},
        {ERROR_USER_MAPPED_FILE, ETXTBSY},
        {ERROR_BUSY, EBUSY},
        {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
        {ERROR_INVALID_HANDLE, EBADF},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
        {ERROR_OUTOFMEMORY, ENOMEM},
        {ERROR_COMMITMENT_LIMIT, ENOMEM},
        {ERROR_WORKING_SET_QUOTA, ENOMEM},
        {ERROR_NOT_ENOUGH_QUOTA, ENOMEM},
        {ERROR_NO_SYSTEM_RESOURCES, EAGAIN},
        {ERROR_MAX_THRDS_REACHED, EAGAIN},
        {ERROR_NOT_SAME_DEVICE, EXDEV},
        {ERROR_FILE_EXISTS, EEXIST},
        {ERROR_ALREADY_EXISTS, EEXIST},
        {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
        {ERROR_INVALID_PARAMETER, EINVAL},
        {ERROR_NEGATIVE_SEEK, EINVAL},
        {ERROR_DISK_FULL, ENOSPC},
        {ERROR_HANDLE_DISK_FULL, ENOSPC},
        {1295 /* ERROR_DISK_QUOTA_EXCEEDED */, ENOSPC},
        {ERROR_BROKEN_PIPE, EPIPE},
        {ERROR_NO_DATA, EPIPE},
        {ERROR_PIPE_NOT_CONNECTED, EPIPE},
        {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
        {ERROR_BUFFER_OVERFLOW, ENAMETOOLONG},
        {ERROR_FILE_TOO_LARGE, EFBIG},
        {ERROR_NOACCESS, EFAULT},
        {ERROR_INVALID_USER_BUFFER, EFAULT},
        {ERROR_SWAPERROR, EFAULT},
        {ERROR_NOT_SUPPORTED, EOPNOTSUPP},
        {ERROR_INVALID_FUNCTION, EOPNOTSUPP},
        {ERROR_CALL_NOT_IMPLEMENTED, ENOSYS},
        {ERROR_PROC_NOT_FOUND, ENOSYS},
        {ERROR_OPERATION_ABORTED, EINTR},
        {ERROR_CANCELLED, ECANCELED},
        {ERROR_TIMEOUT, ETIMEDOUT},
        {ERROR_NOT_READY, EIO},
        {ERROR_CRC, EIO},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].error == error) return table[i].number;
    return EIO;
}

int windows_last(void) {
    return windows_errno(GetLastError());
}

/* ---- paths ----------------------------------------------------------------------------------- */

static const wchar_t long_prefix[] = L"\\\\?\\", share_prefix[] = L"\\\\?\\UNC\\";

/* Paths of this many units are accepted everywhere without the prefix; folders have the least
 * room, because the system reserves 12 units for a short file name in them. */
enum { SHORT_PATH = MAX_PATH - 12 };

int windows_path(const char *path, wchar_t out[WINDOWS_PATH_MAX]) {
    wchar_t full[WINDOWS_PATH_MAX];
    if (!*path) return ENOENT;
    if (strcmp(path, "/dev/null") == 0) path = "NUL";
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, OS_PATH_MAX))
        return GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
    for (wchar_t *c = out; *c; c++)
        if (*c == L'/') *c = L'\\';
    if (wcsncmp(out, long_prefix, 4) == 0 || wcsncmp(out, L"\\\\.\\", 4) == 0) return 0;
    DWORD n = GetFullPathNameW(out, OS_PATH_MAX, full, NULL);
    if (n == 0) return windows_last();
    if (n >= OS_PATH_MAX) return ENAMETOOLONG;
    if (n < SHORT_PATH || wcsncmp(full, L"\\\\.\\", 4) == 0) return 0;
    bool share = full[0] == L'\\' && full[1] == L'\\';
    const wchar_t *prefix = share ? share_prefix : long_prefix;
    size_t n_prefix = wcslen(prefix), skipped = share ? 2 : 0;
    wmemcpy(out, prefix, n_prefix);
    wmemcpy(out + n_prefix, full + skipped, n - skipped + 1);
    return 0;
}

bool windows_text(const wchar_t *text, char *out, size_t n_out) {
    int room = n_out < INT_MAX ? (int)n_out : INT_MAX;
    return WideCharToMultiByte(CP_UTF8, 0, text, -1, out, room, NULL, NULL) > 0;
}

bool windows_path_text(const wchar_t *path, char *out, size_t n_out) {
    size_t n_share = wcslen(share_prefix);
    bool share = wcsncmp(path, share_prefix, n_share) == 0;
    if (share)
        path += n_share;
    else if (wcsncmp(path, long_prefix, 4) == 0)
        path += 4;
    size_t n_start = share ? 2 : 0;
    if (n_out <= n_start || !windows_text(path, out + n_start, n_out - n_start)) return false;
    memset(out, '/', n_start);
    for (char *c = out; *c; c++)
        if (*c == '\\') *c = '/';
    return true;
}

/* ---- handles --------------------------------------------------------------------------------- */

/* Handles are multiples of four, so that the lowest bit of an os_file has room for a flag. The
 * numbers of the standard streams are no handles. */
HANDLE windows_handle(os_file f) {
    static const DWORD streams[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    if (f >= OS_STDIN && f <= OS_STDERR) return GetStdHandle(streams[f]);
    return f == OS_FILE_NONE ? INVALID_HANDLE_VALUE : (HANDLE)(f & ~(intptr_t)WINDOWS_DIRECT);
}

bool windows_is_console(HANDLE h) {
    DWORD mode;
    return GetConsoleMode(h, &mode) != 0;
}

windows_function windows_find(const wchar_t *library, const char *name) {
    windows_function f = NULL;
    HMODULE module = GetModuleHandleW(library);
    FARPROC found = module ? GetProcAddress(module, name) : NULL;
    memcpy(&f, &found, sizeof f);
    return f;
}
