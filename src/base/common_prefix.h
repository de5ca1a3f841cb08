/* common_prefix.h: length of the longest common prefix of two token sequences. */
#ifndef BASE_COMMON_PREFIX_H
#define BASE_COMMON_PREFIX_H

#include <stdint.h>

/* Number of leading tokens that a[n_a] and b[n_b] share; 0 when a length is 0 or less. */
static inline int32_t common_prefix(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
    int32_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

#endif
