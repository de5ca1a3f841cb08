/* linux_memory.c: huge pages, and shared memory without a name. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os_memory.h"

/* Transparent huge pages have 2 MiB on x86-64, and on ARM with 4 KiB pages. An aligned start lets
 * the first huge page be used. */
enum { HUGE_PAGE = 2 << 20 };

void *os_memory_map(size_t n_bytes) {
    const int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    if (n_bytes < HUGE_PAGE) {
        void *p = mmap(NULL, n_bytes, access, kind, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    if (n_bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    size_t padded = n_bytes + HUGE_PAGE;
    char *p = mmap(NULL, padded, access, kind, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t head = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1));
    const size_t page = 4096;
    size_t used = (n_bytes + page - 1) & ~(page - 1);
    size_t tail = (padded - head > used) ? padded - head - used : 0;
    if (head) munmap(p, head);
    if (tail) munmap(p + head + used, tail & ~(page - 1));
    (void)madvise(p + head, used, MADV_HUGEPAGE);
    return p + head;
}

void os_memory_use_small_pages(void *p, size_t n_bytes) {
    (void)madvise(p, n_bytes, MADV_NOHUGEPAGE);
}

void os_memory_use_huge_pages(const void *p, size_t n_bytes) {
    (void)madvise((void *)(uintptr_t)p, n_bytes, MADV_HUGEPAGE);
}

os_shared os_shared_create(size_t n_bytes) {
    int fd = memfd_create("powerinfer", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0) return fd;
    if (fd >= 0) close(fd);
    return OS_SHARED_NONE;
}

int os_shared_discard(os_shared s, size_t offset, size_t n_bytes) {
    const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return fallocate((int)s, how, (off_t)offset, (off_t)n_bytes) == 0 ? 0 : errno;
}
