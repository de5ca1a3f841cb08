/* sys/mman.h: memory by pages, for tests of Windows: anonymous memory only. */
#ifndef TEST_SYS_MMAN_H
#define TEST_SYS_MMAN_H

#include <stddef.h>

enum { PROT_NONE = 0, PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 1, MAP_ANONYMOUS = 2 };
enum { MADV_HUGEPAGE = 1, MADV_NOHUGEPAGE = 2 };
#define MAP_FAILED ((void *)-1)

void *mmap(void *at, size_t n, int access, int how, int fd, long offset);
int munmap(void *p, size_t n);
int mprotect(void *p, size_t n, int access);
int madvise(void *p, size_t n, int hint); /* a hint: nothing */

#endif
