/* posix_dynlib.c: wrappers of dlopen. */
#include "dynlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posix_system.h"

/* Libraries are never unloaded: threads and exit handlers of GPU drivers outlive their last use.
 * Reopening a library returns the same handle. */
pi_status dynlib_open(const char *path, void **handle, pi_error *err) {
    dlerror();
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!h) {
        const char *why = dlerror();
        return error_set(err, PI_ERR_NOT_FOUND, "%s", why ? why : path);
    }
    *handle = h;
    return PI_OK;
}

void dynlib_close(void *handle) {
    if (handle) dlclose(handle);
}

dynlib_function dynlib_symbol(void *handle, const char *name) {
    dynlib_function f = NULL;
    void *p = dlsym(handle, name);
    memcpy(&f, &p, sizeof f);
    return f;
}

void dynlib_environment(const char *name, const char *value) {
    setenv(name, value, 0);
}

/* Removes the last path component; false when there is no slash. */
static bool cut_name(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *(slash == path ? slash + 1 : slash) = '\0';
    return true;
}

bool dynlib_program_folder(char *buf, size_t n_buf) {
    return posix_program_path(buf, n_buf) && cut_name(buf);
}

bool dynlib_folder_of(const void *address, char *buf, size_t n_buf) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return false;
    int n = snprintf(buf, n_buf, "%s", info.dli_fname);
    return n >= 0 && (size_t)n < n_buf && cut_name(buf);
}
