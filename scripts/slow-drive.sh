#!/bin/sh
# Runs a command with a simulated slower drive, for measurements:
#   scripts/slow-drive.sh "MB READS" COMMAND...
# Reads of all threads finish one after the other, at MB megabytes and READS reads per second. Unlike
# with the limits of a control group, idle time is lost, as with a real drive. io_uring is refused, so
# that the program reads with threads; mapped files are not slower.
set -eu
[ $# -gt 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
rates=$1
shift
library=$(mktemp)
trap 'rm -f "$library"' EXIT
${CC:-cc} -O2 -shared -fPIC -DMB="${rates% *}" -DREADS="${rates#* }" -x c -o "$library" - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { LATENCY = 80000 }; /* latency of a read in nanoseconds, in addition to its turn */

typedef ssize_t read_at(int fd, void *to, size_t n_bytes, off_t offset);
typedef ssize_t read_parts_at(int fd, const struct iovec *to, int n, off_t offset);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t busy_until; /* nanoseconds */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags) {
    (void)entries, (void)ring, (void)flags;
    return -ENOSYS;
}

/* The time at which the drive completes a read of n_bytes that starts after all earlier reads. */
static int64_t take_turn(size_t n_bytes) {
    double transfer = (double)n_bytes / (MB * 1e6), turn = 1.0 / READS;
    int64_t end, begin = now();
    pthread_mutex_lock(&lock);
    if (busy_until < begin) busy_until = begin;
    busy_until += (int64_t)(1e9 * (transfer > turn ? transfer : turn));
    end = busy_until + LATENCY;
    pthread_mutex_unlock(&lock);
    return end;
}

static void wait_until(int64_t end) {
    const struct timespec t = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    int saved = errno;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
    errno = saved;
}

ssize_t pread(int fd, void *to, size_t n_bytes, off_t offset) {
    read_at *real = (read_at *)(uintptr_t)dlsym(RTLD_NEXT, "pread");
    int64_t end = take_turn(n_bytes);
    ssize_t result = real(fd, to, n_bytes, offset);
    wait_until(end);
    return result;
}

ssize_t preadv(int fd, const struct iovec *to, int n, off_t offset) {
    read_parts_at *real = (read_parts_at *)(uintptr_t)dlsym(RTLD_NEXT, "preadv");
    size_t n_bytes = 0;
    for (int i = 0; i < n; i++) n_bytes += to[i].iov_len;
    int64_t end = take_turn(n_bytes);
    ssize_t result = real(fd, to, n, offset);
    wait_until(end);
    return result;
}
END
LD_PRELOAD=$library "$@"
