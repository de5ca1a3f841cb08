/* windows_clock.c: the performance counter, which is monotonic. */
#include "clock.h"

#include <stdio.h>
#include <string.h>

#include "windows_call.h"

double clock_seconds(void) {
    LARGE_INTEGER ticks, rate; /* the rate never changes while the system runs */
    QueryPerformanceFrequency(&rate);
    QueryPerformanceCounter(&ticks);
    return (double)ticks.QuadPart / (double)rate.QuadPart;
}

int64_t clock_unix_ns(void) {
    static const int64_t ticks_to_1970 = INT64_C(116444736000000000); /* of 100 ns, from 1601 */
    FILETIME now;
    GetSystemTimePreciseAsFileTime(&now);
    int64_t ticks = (int64_t)((uint64_t)now.dwHighDateTime << 32 | now.dwLowDateTime);
    return (ticks - ticks_to_1970) * 100;
}

bool clock_local_time(time_t seconds, struct tm *out) {
    return localtime_s(out, &seconds) == 0;
}

bool clock_utc_time(time_t seconds, struct tm *out) {
    return gmtime_s(out, &seconds) == 0;
}

/* What C99 added to the formats that the C library knows. */
static const struct {
    char letter;
    const char *as;
} added[] = {{'D', "%m/%d/%y"}, {'F', "%Y-%m-%d"}, {'R', "%H:%M"}, {'T', "%H:%M:%S"},
             {'h', "%b"},       {'n', "\n"},       {'t', "\t"},    {'r', "%I:%M:%S %p"}};

/* One conversion; other letters are copied, as on Linux. */
static void convert(char letter, const struct tm *time, char *text, size_t n_text) {
    static const char known[] = "aAbBcdHIjmMpSUwWxXyYzZ%";
    char format[16];
    snprintf(format, sizeof format, "%%%c", letter);
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        if (added[i].letter == letter) snprintf(format, sizeof format, "%s", added[i].as);
    text[0] = '\0';
    if (letter == 'e')
        snprintf(text, n_text, "%2d", time->tm_mday);
    else if (format[1] == letter && !strchr(known, letter))
        snprintf(text, n_text, "%s", format);
    else if (strftime(text, n_text, format, time) == 0)
        text[0] = '\0';
}

size_t clock_format(char *text, size_t n_text, const char *format, const struct tm *time) {
    size_t n = 0;
    for (const char *at = format; *at; at++) {
        char piece[256] = {*at, '\0'};
        const char *start = piece;
        if (*at == '%' && at[1]) {
            bool bare = at[1] == '-' && at[2];
            at += bare ? 2 : 1;
            convert(*at, time, piece, sizeof piece);
            while (bare && (*start == '0' || *start == ' ') && start[1]) start++;
        }
        size_t length = strlen(start);
        if (length >= n_text - n) return 0;
        memcpy(text + n, start, length);
        n += length;
    }
    if (n < n_text) text[n] = '\0';
    return n;
}
