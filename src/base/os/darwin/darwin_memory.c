/* darwin_memory.c: memory by pages, and shared memory without a name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os_memory.h"
#include "os_thread.h"

void *os_memory_map(size_t n_bytes) {
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* The system chooses the size of pages: 16 KiB on Apple's CPUs. */
void os_memory_use_small_pages(void *p, size_t n_bytes) {
    (void)p;
    (void)n_bytes;
}

void os_memory_use_huge_pages(const void *p, size_t n_bytes) {
    (void)p;
    (void)n_bytes;
}

/* Creates shared memory with a name, opens it, and removes the name. */
os_shared os_shared_create(size_t n_bytes) {
    enum { ATTEMPTS = 8 };
    int fd = -1;
    for (int i = 0; i < ATTEMPTS && fd < 0; i++) {
        char name[32];
        uint64_t random;
        if (!os_random(&random, sizeof random)) return OS_SHARED_NONE;
        snprintf(name, sizeof name, "/pi%016llx", (unsigned long long)random);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno != EEXIST) return OS_SHARED_NONE;
        if (fd >= 0) (void)shm_unlink(name);
    }
    if (fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0) return fd;
    if (fd >= 0) close(fd);
    return OS_SHARED_NONE;
}

/* On Darwin only files can have holes. */
int os_shared_discard(os_shared s, size_t offset, size_t n_bytes) {
    (void)s;
    (void)offset;
    (void)n_bytes;
    return ENOTSUP;
}
