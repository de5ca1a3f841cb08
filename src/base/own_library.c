/* own_library.c: finds the shared objects of this project. Windows has no install folder: a folder
 * such as \usr\local\lib belongs to nobody there, and any user can create it with a DLL in it. */
#include "own_library.h"

#include <stdio.h>

#include "dynlib.h"
#include "file.h"
#include "os_file.h"

#ifndef PI_INSTALL_LIBDIR
#error "PI_INSTALL_LIBDIR, PI_INSTALL_FOLDER and PI_MODULE_SUFFIX are set by the build"
#endif

bool own_library_in(const char *folder, const char *name, char *path, size_t n_path) {
    int n = snprintf(path, n_path, "%s/libpowerinfer_%s" PI_MODULE_SUFFIX, folder, name);
    return n > 0 && (size_t)n < n_path && file_exists(path);
}

pi_status own_library_find(const char *name, char *path, size_t n_path, pi_error *err) {
    static const char *const below[] = {"", "/powerinfer", "/../" PI_INSTALL_LIBDIR "/powerinfer"};
    char near[2][OS_PATH_MAX], folder[OS_PATH_MAX];
    const bool known[2] = {dynlib_program_folder(near[0], sizeof near[0]),
                           dynlib_folder_of(below, near[1], sizeof near[1])};
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; known[i] && j < sizeof below / sizeof *below; j++) {
            int n = snprintf(folder, sizeof folder, "%s%s", near[i], below[j]);
            if (n > 0 && (size_t)n < sizeof folder && own_library_in(folder, name, path, n_path))
                return PI_OK;
        }
    }
#ifdef _WIN32
    return error_set(err, PI_ERR_NOT_FOUND,
                     "libpowerinfer_%s" PI_MODULE_SUFFIX " is not next to the program", name);
#else
    if (own_library_in(PI_INSTALL_FOLDER, name, path, n_path)) return PI_OK;
    return error_set(err, PI_ERR_NOT_FOUND,
                     "libpowerinfer_%s" PI_MODULE_SUFFIX
                     " is neither next to the program nor in " PI_INSTALL_FOLDER,
                     name);
#endif
}
