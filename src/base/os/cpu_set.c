/* cpu_set.c: texts that name CPUs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_topology.h"

bool cpu_set_parse(cpu_set *set, const char *list) {
    const char *p = list;
    while (*p && *p != '\n') {
        char *end;
        errno = 0;
        long first = strtol(p, &end, 10);
        long last = first;
        if (end == p || errno) return false;
        p = end;
        if (*p == '-') {
            last = strtol(p + 1, &end, 10);
            if (end == p + 1 || errno) return false;
            p = end;
        }
        if (first < 0 || last < first || last >= CPU_TOPOLOGY_MAX) return false;
        for (long i = first; i <= last; i++) set->has[i] = true;
        if (*p == ',') p++;
    }
    return true;
}

bool cpu_set_parse_mask(cpu_set *set, const char *mask) {
    if (mask[0] == '0' && (mask[1] == 'x' || mask[1] == 'X')) mask += 2;
    size_t n = strspn(mask, "0123456789abcdefABCDEF");
    if (n == 0 || mask[n] || n > CPU_TOPOLOGY_MAX / 4) return false;
    bool any = false;
    for (size_t i = 0; i < n; i++) { /* the last digit describes CPUs 0 to 3 */
        char digit[2] = {mask[n - 1 - i], '\0'};
        unsigned long bits = strtoul(digit, NULL, 16);
        for (size_t b = 0; b < 4; b++) {
            if (!(bits >> b & 1)) continue;
            set->has[4 * i + b] = any = true;
        }
    }
    return any;
}

int cpu_set_count(const cpu_set *set) {
    int n = 0;
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) n += set->has[i];
    return n;
}
