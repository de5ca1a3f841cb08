/* ngram.c: a search from the end of the text. It compares almost every token once per step, which
 * takes microseconds where a step takes milliseconds, and needs no index to keep up to date. */
#include "ngram.h"

int32_t ngram_find(const int32_t *tokens, int32_t n, int32_t *next) {
    int32_t best = 0;
    for (int32_t at = n - 1; at > 0 && best < NGRAM_MAX; at--) {
        if (tokens[at - 1] != tokens[n - 1]) continue;
        int32_t same = 0; /* tokens before `at` that equal the last ones */
        while (same < at && same < NGRAM_MAX && tokens[at - 1 - same] == tokens[n - 1 - same])
            same++;
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
