/* posix_reader.c: reads by threads, which share the descriptor. */
#include <errno.h>

#include "mem.h"
#include "os_reads.h"
#include "posix_parts.h"

struct os_reader {
    int fd;
};

int os_reader_create(os_file f, const void *dropped, os_reader **out) {
    (void)dropped;
    os_reader *r = *out = mem_calloc(1, sizeof *r);
    if (!r) return ENOMEM;
    r->fd = (int)f;
    return 0;
}

void os_reader_destroy(os_reader *r) {
    mem_free(r);
}

int os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                   size_t *n_read) {
    ssize_t got;
    do {
        got = preadv(r->fd, posix_parts(parts), (int)n_parts, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    *n_read = got < 0 ? 0 : (size_t)got;
    return got < 0 ? errno : 0;
}
