/* linux_text.c: extensions of the GNU C library. */
#include <fnmatch.h>
#include <string.h>

#include "mem.h"
#include "os_text.h"

void *os_find(const void *in, size_t n, const void *what, size_t n_what) {
    return memmem(in, n, what, n_what);
}

bool os_pattern_matches(const char *pattern, const char *name) {
    return fnmatch(pattern, name, 0) == 0;
}

bool os_text_open(os_text *t) {
    *t = (os_text){.n = 0};
    t->file = open_memstream(&t->text, &t->n);
    return t->file != NULL;
}

bool os_text_close(os_text *t) {
    return os_stream_close(t->file);
}

typedef struct text_target {
    os_stream_write *write;
    void *user;
} text_target;

static ssize_t write_piece(void *cookie, const char *data, size_t n) {
    const text_target *target = cookie;
    return target->write(target->user, data, n) ? (ssize_t)n : 0;
}

static int free_target(void *cookie) {
    mem_free(cookie);
    return 0;
}

FILE *os_stream_open(os_stream_write *write, void *user) {
    text_target *target = mem_alloc(sizeof *target);
    if (!target) return NULL;
    *target = (text_target){write, user};
    FILE *stream = fopencookie(target, "w",
                               (cookie_io_functions_t){.write = write_piece, .close = free_target});
    if (!stream) mem_free(target);
    return stream;
}

bool os_stream_flush(FILE *stream) {
    return fflush(stream) == 0;
}

bool os_stream_close(FILE *stream) {
    bool failed = ferror(stream) != 0;
    return fclose(stream) == 0 && !failed;
}
