/* edit_distance.c: see edit_distance.h. */
#include "edit_distance.h"

#include <string.h>

size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    size_t d[EDIT_DISTANCE_MAX + 1][EDIT_DISTANCE_MAX + 1];
    if (n > EDIT_DISTANCE_MAX || m > EDIT_DISTANCE_MAX) return EDIT_DISTANCE_MAX + 1;
    for (size_t i = 0; i <= n; i++) d[i][0] = i;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[n][m];
}
