/* windows_reads.c: overlapped reads, whose completions arrive at a port; reads by threads. */
#include <errno.h>
#include <string.h>

#include "mem.h"
#include "os_reads.h"
#include "windows_call.h"

enum { N_BUFFERS = 16 }; /* of reads with several parts that an os_reads has in flight */

/* A read in flight. The system has a pointer to `state` until the read completes. */
typedef struct one_read {
    OVERLAPPED state;
    DWORD error; /* of a read that did not start; 0: the system has it */
    const os_read_part *parts;
    uint8_t *buffer; /* of several parts */
} one_read;

struct os_reads {
    HANDLE file, port;
    const void *dropped;
    uint8_t *buffers; /* [N_BUFFERS][OS_READS_JOINED] */
    uint8_t *free[N_BUFFERS];
    size_t n_free;
    size_t n_seen, n_given;              /* of seen[]: filled, given to the caller */
    OVERLAPPED_ENTRY seen[OS_READS_MAX]; /* completions from the port */
    one_read reads[OS_READS_MAX];
};

const char *os_reads_name(void) {
    return "overlapped";
}

/* Another handle of an open file, for reading. 0 or an error number. */
static int reopen(os_file f, DWORD flags, HANDLE *out) {
    const DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    if (f & WINDOWS_DIRECT) flags |= FILE_FLAG_NO_BUFFERING;
    *out = ReOpenFile(windows_handle(f), GENERIC_READ, share, flags);
    return *out == INVALID_HANDLE_VALUE ? windows_last() : 0;
}

/* Windows divides reads only into pages, so a read with several parts goes to a buffer. Copies its
 * first n bytes to the parts. */
static void copy_to_parts(const uint8_t *from, size_t n, const os_read_part *parts,
                          const void *dropped) {
    for (size_t part; n > 0; parts++, from += part, n -= part) {
        part = n < parts->n ? n : parts->n;
        if (parts->to != dropped) memcpy(parts->to, from, part);
    }
}

static DWORD size_of(const os_read_part *parts, size_t n_parts) {
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++) n += parts[i].n;
    return (DWORD)n;
}

/* A handle belongs to one port, so every os_reads has its own handle. */
int os_reads_create(os_file f, size_t most, const void *dropped, os_reads **out) {
    os_reads *r = *out = mem_calloc(1, sizeof *r);
    (void)most;
    if (!r) return ENOMEM;
    r->dropped = dropped;
    r->file = INVALID_HANDLE_VALUE;
    r->buffers = mem_map((size_t)N_BUFFERS * OS_READS_JOINED);
    for (size_t i = 0; i < N_BUFFERS && r->buffers; i++)
        r->free[r->n_free++] = r->buffers + i * OS_READS_JOINED;
    int problem = r->buffers ? reopen(f, FILE_FLAG_OVERLAPPED, &r->file) : ENOMEM;
    if (!problem) {
        r->port = CreateIoCompletionPort(r->file, NULL, 0, 1);
        problem = r->port ? 0 : windows_last();
    }
    if (!problem) return 0;
    os_reads_destroy(r);
    *out = NULL;
    return problem;
}

void os_reads_destroy(os_reads *r) {
    if (r->file != INVALID_HANDLE_VALUE) CloseHandle(r->file);
    if (r->port) CloseHandle(r->port);
    mem_unmap(r->buffers, (size_t)N_BUFFERS * OS_READS_JOINED);
    mem_free(r);
}

/* A read from a drive ends microseconds after ReadFile returns. Several reads are tried, since this
 * thread may be interrupted after one of them. */
bool os_reads_overlap(os_file f) {
    enum { PAGE = 4096, ATTEMPTS = 4 }; /* a page is a multiple of every drive's block size */
    _Alignas(PAGE) char page[PAGE];
    const os_read_part part = {page, PAGE};
    os_reads *r;
    bool overlap = false;
    if (os_reads_create(f, 1, NULL, &r) != 0) return true; /* os_reads_create will report it */
    for (int i = 0; i < ATTEMPTS && !overlap; i++) {
        os_read_done done;
        os_reads_add(r, 0, &part, 1, 0);
        overlap = !HasOverlappedIoCompleted(&r->reads[0].state);
        while (os_reads_take(r, &done, 1) == 0) os_reads_wait(r);
    }
    os_reads_destroy(r);
    return overlap;
}

size_t os_reads_parts(const os_reads *r) {
    return r->n_free > 0 ? OS_READS_PARTS : 1;
}

/* Starts the read at once. One that fails sends its own completion, so that a waiting thread sees
 * it. */
void os_reads_add(os_reads *r, size_t place, const os_read_part *parts, size_t n_parts,
                  uint64_t offset) {
    one_read *one = &r->reads[place];
    *one = (one_read){.state = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)},
                      .parts = parts,
                      .buffer = n_parts > 1 ? r->free[--r->n_free] : NULL};
    void *to = one->buffer ? one->buffer : parts->to;
    if (ReadFile(r->file, to, size_of(parts, n_parts), NULL, &one->state)) return;
    DWORD error = GetLastError();
    if (error == ERROR_IO_PENDING) return;
    one->error = error;
    while (!PostQueuedCompletionStatus(r->port, 0, 0, &one->state)) Sleep(1); /* no memory */
}

void os_reads_submit(os_reads *r) {
    (void)r;
}

size_t os_reads_prepared(const os_reads *r) {
    (void)r;
    return 0;
}

static void collect(os_reads *r, DWORD ms) {
    ULONG n = 0;
    if (!GetQueuedCompletionStatusEx(r->port, r->seen, OS_READS_MAX, &n, ms, FALSE)) n = 0;
    r->n_given = 0;
    r->n_seen = n;
}

/* The result of a complete read, whose buffer becomes free. */
static int64_t result_of(os_reads *r, one_read *one) {
    DWORD n = 0, error = one->error;
    if (!error && !GetOverlappedResult(r->file, &one->state, &n, FALSE)) error = GetLastError();
    if (one->buffer) {
        if (!error) copy_to_parts(one->buffer, n, one->parts, r->dropped);
        r->free[r->n_free++] = one->buffer;
    }
    if (error == ERROR_HANDLE_EOF) return 0;
    return error ? -(int64_t)windows_errno(error) : n;
}

size_t os_reads_take(os_reads *r, os_read_done *done, size_t most) {
    size_t n = 0;
    if (r->n_given == r->n_seen) collect(r, 0);
    for (; n < most && r->n_given < r->n_seen; n++) {
        one_read *one = (one_read *)(void *)r->seen[r->n_given++].lpOverlapped;
        done[n] = (os_read_done){(size_t)(one - r->reads), result_of(r, one)};
    }
    return n;
}

void os_reads_wait(os_reads *r) {
    if (r->n_given == r->n_seen) collect(r, INFINITE);
}

/* ---- reads by threads ------------------------------------------------------------------------ */

/* Each thread has a handle that is not overlapped: the system runs the reads of a handle one after
 * the other. Reads with an OVERLAPPED, which would have the offset, send a completion: under wine
 * that is a call of its server, 20 us of CPU time. */
struct os_reader {
    HANDLE file;
    const void *dropped;
    uint8_t *buffer; /* [OS_READS_JOINED] */
};

int os_reader_create(os_file f, const void *dropped, os_reader **out) {
    os_reader *r = *out = mem_calloc(1, sizeof *r);
    if (!r) return ENOMEM;
    r->dropped = dropped;
    r->buffer = mem_map(OS_READS_JOINED);
    int problem = r->buffer ? reopen(f, 0, &r->file) : ENOMEM;
    if (!problem) return 0;
    mem_unmap(r->buffer, OS_READS_JOINED);
    mem_free(r);
    *out = NULL;
    return problem;
}

void os_reader_destroy(os_reader *r) {
    CloseHandle(r->file);
    mem_unmap(r->buffer, OS_READS_JOINED);
    mem_free(r);
}

int os_reader_read(os_reader *r, const os_read_part *parts, size_t n_parts, uint64_t offset,
                   size_t *n_read) {
    LARGE_INTEGER at = {.QuadPart = (LONGLONG)offset};
    DWORD got = 0;
    void *to = n_parts > 1 ? r->buffer : parts->to;
    *n_read = 0;
    if (!SetFilePointerEx(r->file, at, NULL, FILE_BEGIN) ||
        !ReadFile(r->file, to, size_of(parts, n_parts), &got, NULL))
        return windows_last();
    if (n_parts > 1) copy_to_parts(r->buffer, got, parts, r->dropped);
    *n_read = got;
    return 0;
}
