/* posix_memory.c: mmap and its relatives. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os_memory.h"

size_t os_page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void os_memory_unmap(void *p, size_t n_bytes) {
    munmap(p, n_bytes);
}

void os_memory_forget(void *p, size_t n_bytes) {
    (void)madvise(p, n_bytes, MADV_DONTNEED);
}

void os_memory_read_ahead(const void *p, size_t n_bytes) {
    (void)madvise((void *)(uintptr_t)p, n_bytes, MADV_WILLNEED);
}

int os_memory_lock(const void *p, size_t n_bytes) {
    return mlock(p, n_bytes) == 0 ? 0 : errno;
}

uint64_t os_memory_lock_limit(void) {
    struct rlimit limit = {0};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

void *os_memory_reserve(size_t n_bytes) {
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* The kernel commits a page when it is first written. */
int os_memory_commit(void *at, size_t n_bytes) {
    (void)at;
    (void)n_bytes;
    return 0;
}

size_t os_shared_unit(void) {
    return os_page_size();
}

void os_shared_close(os_shared s) {
    close((int)s);
}

int os_shared_map(os_shared s, size_t offset, void *at, size_t n_bytes) {
    void *p = mmap(at, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)s,
                   (off_t)offset);
    return p == MAP_FAILED ? errno : 0;
}
