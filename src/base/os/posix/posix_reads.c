/* posix_reads.c: for systems and builds without asynchronous reads of files: threads read. */
#include <errno.h>

#include "os_reads.h"

const char *os_reads_name(void) {
    return "asynchronous reads";
}

bool os_reads_overlap(os_file f) {
    (void)f;
    return false;
}

/* This function always fails, so nobody calls the other ones. */
int os_reads_create(os_file f, size_t most, const void *dropped, os_reads **out) {
    (void)f;
    (void)most;
    (void)dropped;
    *out = NULL;
    return ENOSYS;
}
void os_reads_destroy(os_reads *r) {
    (void)r;
}
size_t os_reads_parts(const os_reads *r) {
    (void)r;
    return 1;
}
void os_reads_add(os_reads *r, size_t place, const os_read_part *parts, size_t n_parts,
                  uint64_t offset) {
    (void)r;
    (void)place;
    (void)parts;
    (void)n_parts;
    (void)offset;
}
void os_reads_submit(os_reads *r) {
    (void)r;
}
size_t os_reads_prepared(const os_reads *r) {
    (void)r;
    return 0;
}
size_t os_reads_take(os_reads *r, os_read_done *done, size_t most) {
    (void)r;
    (void)done;
    (void)most;
    return 0;
}
void os_reads_wait(os_reads *r) {
    (void)r;
}
