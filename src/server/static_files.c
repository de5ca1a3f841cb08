/* static_files.c: see static_files.h. */
#include "static_files.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "os_file.h"

static const char *type_of(const char *path) {
    static const struct {
        const char *ending, *type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"},
                 {".mjs", "text/javascript; charset=utf-8"},
                 {".json", "application/json; charset=utf-8"},
                 {".map", "application/json; charset=utf-8"},
                 {".txt", "text/plain; charset=utf-8"},
                 {".md", "text/plain; charset=utf-8"},
                 {".svg", "image/svg+xml"},
                 {".png", "image/png"},
                 {".jpg", "image/jpeg"},
                 {".jpeg", "image/jpeg"},
                 {".gif", "image/gif"},
                 {".webp", "image/webp"},
                 {".ico", "image/x-icon"},
                 {".woff2", "font/woff2"},
                 {".wasm", "application/wasm"}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (strcmp(dot, types[i].ending) == 0) return types[i].type;
    return "application/octet-stream";
}

/* Opens `name`, which begins with a slash, below the folder; OS_FILE_NONE: no such file. */
static os_file open_below(const char *folder, const char *name, char path[OS_PATH_MAX],
                          os_info *info) {
    char whole[OS_PATH_MAX], root[OS_PATH_MAX];
    os_file f;
    if (strstr(name, "/.") || !os_path_real(folder, root)) return OS_FILE_NONE;
    int n = snprintf(whole, sizeof whole, "%s%s", root, name);
    if (n < 0 || (size_t)n >= sizeof whole || !os_path_real(whole, path)) return OS_FILE_NONE;
    size_t n_root = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, n_root) != 0 || (path[n_root] && !os_path_separates(path[n_root])))
        return OS_FILE_NONE;
    if (os_file_open(path, OS_READ | OS_NO_FOLLOW | OS_NO_WAIT, &f) != 0) return OS_FILE_NONE;
    if (os_file_info(f, info) == 0) return f;
    os_file_close(f);
    return OS_FILE_NONE;
}

static ssize_t read_piece(void *user, uint64_t at, char *buf, size_t n_buf) {
    const os_file *f = user;
    size_t n;
    if (os_file_read_at(*f, buf, n_buf, at, &n) != 0) return MHD_CONTENT_READER_END_WITH_ERROR;
    return n ? (ssize_t)n : MHD_CONTENT_READER_END_WITH_ERROR; /* the file became shorter */
}

static void close_file(void *user) {
    const os_file *f = user;
    os_file_close(*f);
    mem_free(user);
}

enum MHD_Result static_files_reply(exchange *x) {
    const char *folder = x->server->options.static_path;
    char path[OS_PATH_MAX], index[HTTP_MAX_PATH + 16];
    os_info info;
    os_file f = open_below(folder, x->path, path, &info);
    if (f != OS_FILE_NONE && info.kind == OS_FOLDER) {
        os_file_close(f);
        snprintf(index, sizeof index, "%s%sindex.html", x->path, x->path[1] ? "/" : "");
        f = open_below(folder, index, path, &info);
    }
    if (f != OS_FILE_NONE && info.kind != OS_REGULAR) {
        os_file_close(f);
        f = OS_FILE_NONE;
    }
    if (f == OS_FILE_NONE) return http_reply_error(x, 404, "there is no %s", x->path);
    enum { PIECE = 64 << 10 }; /* bytes of a read */
    os_file *owned = mem_alloc(sizeof *owned);
    struct MHD_Response *response = owned ? MHD_create_response_from_callback(
                                                info.size, PIECE, read_piece, owned, close_file)
                                          : NULL;
    if (!response) {
        os_file_close(f);
        mem_free(owned);
        return MHD_NO;
    }
    *owned = f;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type_of(path));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return http_send(x, 200, response);
}
