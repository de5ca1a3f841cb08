/* posix_clock.c: monotonic time from the operating system. */
#include "clock.h"

#include <time.h>

double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t clock_unix_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool clock_local_time(time_t seconds, struct tm *out) {
    return localtime_r(&seconds, out) != NULL;
}

bool clock_utc_time(time_t seconds, struct tm *out) {
    return gmtime_r(&seconds, out) != NULL;
}

size_t clock_format(char *text, size_t n_text, const char *format, const struct tm *time) {
    return strftime(text, n_text, format, time);
}
