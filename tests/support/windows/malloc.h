/* malloc.h: counts of the heap, for tests of Windows. */
#include_next <malloc.h>

#ifndef TEST_WINDOWS_MALLOC_H
#define TEST_WINDOWS_MALLOC_H

#include <stddef.h>

/* Bytes that are allocated, of all heaps of the process; hblkhd is 0. */
struct mallinfo2 {
    size_t uordblks, hblkhd;
};
struct mallinfo2 mallinfo2(void);
enum { M_ARENA_MAX };
int mallopt(int name, int value); /* has no effect */

#endif
