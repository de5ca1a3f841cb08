/* static_files.c: see static_files.h. */
#include "static_files.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

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

/* Opens `name`, which begins with a slash, below the folder; -1: no such file. */
static int open_below(const char *folder, const char *name, char path[PATH_MAX], struct stat *st) {
    char whole[PATH_MAX], root[PATH_MAX];
    if (strstr(name, "/.") || !realpath(folder, root)) return -1;
    int n = snprintf(whole, sizeof whole, "%s%s", root, name);
    if (n < 0 || (size_t)n >= sizeof whole || !realpath(whole, path)) return -1;
    size_t n_root = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, n_root) != 0 || (path[n_root] != '/' && path[n_root])) return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, st) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

enum MHD_Result static_files_reply(exchange *x) {
    const char *folder = x->server->options.static_path;
    char path[PATH_MAX], index[HTTP_MAX_PATH + 16];
    struct stat st;
    int fd = open_below(folder, x->path, path, &st);
    if (fd >= 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        snprintf(index, sizeof index, "%s%sindex.html", x->path, x->path[1] ? "/" : "");
        fd = open_below(folder, index, path, &st);
    }
    if (fd >= 0 && !S_ISREG(st.st_mode)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) return http_reply_error(x, 404, "there is no %s", x->path);
    struct MHD_Response *response = MHD_create_response_from_fd64((uint64_t)st.st_size, fd);
    if (!response) {
        close(fd);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type_of(path));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return http_send(x, 200, response);
}
