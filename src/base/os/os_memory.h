/* os_memory.h: memory by pages. Sizes are bytes. Hints have no result: a system that does not know
 * one ignores it. */
#ifndef BASE_OS_MEMORY_H
#define BASE_OS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

size_t os_page_size(void);

/* Zeroed private memory at a page boundary; larger amounts use huge pages where the system has
 * them. NULL: no memory. n_bytes > 0. */
void *os_memory_map(size_t n_bytes);
/* Memory of os_memory_map or os_memory_reserve, with its size. */
void os_memory_unmap(void *p, size_t n_bytes);

/* Hint: ordinary pages from now on. */
void os_memory_use_small_pages(void *p, size_t n_bytes);
/* Hint: huge pages where possible. */
void os_memory_use_huge_pages(const void *p, size_t n_bytes);
/* Hint for whole pages of a file or of shared memory: they need not be resident here. A later
 * access reads the same bytes again. Private memory would lose its content. */
void os_memory_forget(void *p, size_t n_bytes);
/* Hint: whole pages of a mapped file will be read soon. */
void os_memory_read_ahead(const void *p, size_t n_bytes);

/* Keeps pages in memory, which reads them first. Returns 0 or an error number: ENOMEM, EPERM or
 * EAGAIN where os_memory_lock_limit (bytes; UINT64_MAX: none) does not permit it. */
int os_memory_lock(const void *p, size_t n_bytes);
uint64_t os_memory_lock_limit(void);

/* Addresses that os_memory_commit and os_shared_map fill with memory, each part once and one thread
 * at a time; NULL: not possible. */
void *os_memory_reserve(size_t n_bytes);
/* Parts of them begin at multiples of this number of bytes, which is a multiple of the page size.
 */
size_t os_shared_unit(void);
/* Makes a part of them zeroed private memory, which is taken when it is first written. Returns 0 or
 * an error number. */
int os_memory_commit(void *at, size_t n_bytes);

/* Memory that can be mapped at several addresses; OS_SHARED_NONE: none. */
typedef intptr_t os_shared;
enum { OS_SHARED_NONE = -1 };

os_shared os_shared_create(size_t n_bytes); /* zeroed; OS_SHARED_NONE: not possible */
void os_shared_close(os_shared s);          /* its mappings stay */
/* Maps bytes [offset, offset + n_bytes) at `at`, a part of a range of os_memory_reserve. offset is
 * a multiple of os_shared_unit, n_bytes of the page size. Returns 0 or an error number. */
int os_shared_map(os_shared s, size_t offset, void *at, size_t n_bytes);
/* Returns whole pages to the system; they read as zeros afterwards. Returns 0 or an error number:
 * ENOTSUP on Windows and Darwin. */
int os_shared_discard(os_shared s, size_t offset, size_t n_bytes);

#endif
