/* windows_dynlib.c: dynamic-link libraries. */
#include "dynlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "windows_call.h"

/* The system's words for an error, without its line break. */
static void describe(DWORD error, char *text, size_t n_text) {
    wchar_t wide[256];
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                             error, 0, wide, sizeof wide / sizeof *wide, NULL);
    while (n > 0 && (wide[n - 1] <= L' ' || wide[n - 1] == L'.')) n--;
    wide[n] = L'\0';
    if (n == 0 || !windows_text(wide, text, n_text))
        snprintf(text, n_text, "error %lu", (unsigned long)error);
}

/* A library's own folder is searched for its dependencies; a name is never searched for in the
 * working folder. Libraries are never unloaded: threads and exit handlers of GPU drivers outlive
 * their last use. Reopening a library returns the same handle. */
pi_status dynlib_open(const char *path, void **handle, pi_error *err) {
    wchar_t wide[WINDOWS_PATH_MAX], full[WINDOWS_PATH_MAX];
    char why[512];
    bool is_path = strpbrk(path, "/\\") != NULL;
    DWORD before, flags = LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, n = 0;
    HMODULE module = NULL, pinned;
    int problem = windows_path(path, wide);
    if (!problem && is_path) n = GetFullPathNameW(wide, WINDOWS_PATH_MAX, full, NULL);
    if (problem || n >= WINDOWS_PATH_MAX)
        return error_set(err, PI_ERR_NOT_FOUND, "%s: no such file", path);
    if (is_path) flags |= LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR;
    /* Without a window that asks the user for a missing drive. */
    (void)SetThreadErrorMode(SEM_FAILCRITICALERRORS, &before);
    module = LoadLibraryExW(is_path ? full : wide, NULL, flags);
    DWORD error = module ? 0 : GetLastError();
    (void)SetThreadErrorMode(before, NULL);
    if (!module) {
        describe(error, why, sizeof why);
        return error_set(err, PI_ERR_NOT_FOUND, "%s: %s", path, why);
    }
    (void)GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                             (const wchar_t *)module, &pinned);
    *handle = module;
    return PI_OK;
}

void dynlib_close(void *handle) {
    if (handle) FreeLibrary(handle);
}

dynlib_function dynlib_symbol(void *handle, const char *name) {
    dynlib_function f = NULL;
    FARPROC p = GetProcAddress(handle, name);
    memcpy(&f, &p, sizeof f);
    return f;
}

/* For the C library, which has a copy of the environment, and the system. */
void dynlib_environment(const char *name, const char *value) {
    if (GetEnvironmentVariableA(name, NULL, 0) > 0) return;
    (void)_putenv_s(name, value);
    (void)SetEnvironmentVariableA(name, value);
}

static bool folder_of(HMODULE module, char *buf, size_t n_buf) {
    wchar_t path[WINDOWS_PATH_MAX];
    DWORD n = GetModuleFileNameW(module, path, WINDOWS_PATH_MAX);
    if (n == 0 || n >= WINDOWS_PATH_MAX) return false;
    wchar_t *name = wcsrchr(path, L'\\');
    if (!name) return false;
    *(name > path && name[-1] == L':' ? name + 1 : name) = L'\0';
    return windows_path_text(path, buf, n_buf);
}

bool dynlib_program_folder(char *buf, size_t n_buf) {
    return folder_of(NULL, buf, n_buf);
}

bool dynlib_folder_of(const void *address, char *buf, size_t n_buf) {
    HMODULE module;
    return GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                  GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                              address, &module) &&
           folder_of(module, buf, n_buf);
}
