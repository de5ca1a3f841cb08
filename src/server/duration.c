/* duration.c: see duration.h. */
#include "duration.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool duration_parse(const char *text, double *seconds) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    const bool negative = *text == '-';
    double sum = 0;
    text += negative;
    if (!*text) return false;
    while (*text) {
        char *end = NULL;
        if (strchr("0123456789.", *text) == NULL) return false;
        const double value = strtod(text, &end);
        if (end == text || !isfinite(value)) return false;
        const size_t n = strspn(end, "numsh");
        double unit = n == 0 && !*end ? 1 : 0; /* a number alone: seconds */
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (strlen(units[i].name) == n && memcmp(units[i].name, end, n) == 0)
                unit = units[i].seconds;
        if (unit == 0) return false;
        sum += value * unit;
        text = end + n;
    }
    *seconds = negative ? -sum : sum;
    return true;
}

void duration_write(double seconds, char *buf, size_t n_buf) {
    if (seconds < 1)
        snprintf(buf, n_buf, "%.0fms", 1e3 * seconds);
    else if (seconds < 60)
        snprintf(buf, n_buf, "%.3gs", seconds);
    else
        snprintf(buf, n_buf, "%.0fm%.0fs", floor(seconds / 60), floor(fmod(seconds, 60)));
}
