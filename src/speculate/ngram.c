/* ngram.c: a search from the end. One pass over the text per step, a comparison for almost every
 * token of it: some microseconds where a step takes milliseconds, and nothing to keep in step. */
#include "ngram.h"

/* How many tokens before a and b are the same; both ends are within tokens[0, b). */
static int32_t same_before(const int32_t *tokens, int32_t a, int32_t b) {
    int32_t n = 0;
    while (n < a && n < NGRAM_MAX && tokens[a - 1 - n] == tokens[b - 1 - n]) n++;
    return n;
}

int32_t ngram_find(const int32_t *tokens, int32_t n, int32_t *next) {
    int32_t best = 0;
    for (int32_t at = n - 1; at > 0 && best < NGRAM_MAX; at--) {
        if (tokens[at - 1] != tokens[n - 1]) continue;
        int32_t same = same_before(tokens, at, n);
        if (same <= best) continue;
        best = same;
        *next = at;
    }
    return best >= NGRAM_MIN ? best : 0;
}

void ngram_continue(const int32_t *tokens, int32_t n, int32_t next, int32_t *draft,
                    int32_t n_draft) {
    for (int32_t i = 0; i < n_draft; i++)
        draft[i] = next + i < n ? tokens[next + i] : draft[next + i - n];
}
