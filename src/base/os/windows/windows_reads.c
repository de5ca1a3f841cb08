/* windows_reads.c: overlapped reads, whose completions arrive at a port. */
#include <errno.h>

#include "mem.h"
#include "os_reads.h"
#include "windows_call.h"

/* A read in flight. The system has a pointer to `state` until the read completes. */
typedef struct one_read {
    OVERLAPPED state;
    DWORD error; /* of a read that did not start; 0: the system has it */
} one_read;

struct os_reads {
    HANDLE file, port;
    size_t n_seen, n_given;              /* of seen[]: filled, given to the caller */
    OVERLAPPED_ENTRY seen[OS_READS_MAX]; /* completions from the port */
    one_read reads[OS_READS_MAX];
};

const char *os_reads_name(void) {
    return "overlapped";
}

/* A handle belongs to one port, so every os_reads has its own handle. */
int os_reads_create(os_file f, size_t most, os_reads **out) {
    os_reads *r = *out = mem_calloc(1, sizeof *r);
    (void)most;
    if (!r) return ENOMEM;
    const DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    DWORD flags = FILE_FLAG_OVERLAPPED | (f & WINDOWS_DIRECT ? FILE_FLAG_NO_BUFFERING : 0);
    r->file = ReOpenFile(windows_handle(f), GENERIC_READ, share, flags);
    int problem = r->file == INVALID_HANDLE_VALUE ? windows_last() : 0;
    if (!problem) {
        r->port = CreateIoCompletionPort(r->file, NULL, 0, 1);
        problem = r->port ? 0 : windows_last();
        if (problem) CloseHandle(r->file);
    }
    if (!problem) return 0;
    mem_free(r);
    *out = NULL;
    return problem;
}

void os_reads_destroy(os_reads *r) {
    CloseHandle(r->file);
    CloseHandle(r->port);
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
    if (os_reads_create(f, 1, &r) != 0) return true; /* os_reads_create will report it */
    for (int i = 0; i < ATTEMPTS && !overlap; i++) {
        os_read_done done;
        os_reads_add(r, 0, &part, 1, 0);
        overlap = !HasOverlappedIoCompleted(&r->reads[0].state);
        while (os_reads_take(r, &done, 1) == 0) os_reads_wait(r);
    }
    os_reads_destroy(r);
    return overlap;
}

/* Windows divides reads only into pages. */
size_t os_reads_parts(void) {
    return 1;
}

/* Starts the read at once. One that fails sends its own completion, so that a waiting thread sees
 * it. */
void os_reads_add(os_reads *r, size_t place, const os_read_part *parts, size_t n_parts,
                  uint64_t offset) {
    (void)n_parts;
    one_read *one = &r->reads[place];
    *one = (one_read){.state = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)}};
    if (ReadFile(r->file, parts->to, (DWORD)parts->n, NULL, &one->state)) return;
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

static int64_t result_of(const os_reads *r, one_read *one) {
    DWORD n = 0, error = one->error;
    if (!error && !GetOverlappedResult(r->file, &one->state, &n, FALSE)) error = GetLastError();
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
