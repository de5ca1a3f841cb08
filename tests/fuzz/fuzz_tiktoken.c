/* fuzz_tiktoken.c: any text as NAME.tiktoken: the result is an error, or tokens with texts, and
 * merges of two tokens into a third. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "hf_tiktoken.h"

enum { N_TOKENS = 64 };

static void check(const vocab *v) {
    for (size_t i = 0; i < v->n_merges; i++) {
        const char *text = v->merges[i].data;
        size_t n = (size_t)v->merges[i].n_bytes;
        const char *space = memchr(text, ' ', n);
        if (!space || space == text || space == text + n - 1) abort();
        size_t left = (size_t)(space - text);
        char joined[2 * VOCAB_MAX_TEXT];
        memcpy(joined, text, left);
        memcpy(joined + left, space + 1, n - left - 1);
        if (vocab_find(v, joined, n - 1) < 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    vocab v;
    pi_error err = {0};
    if (vocab_init(&v, N_TOKENS, &err) != PI_OK) return 0;
    if (hf_tiktoken_parse((const char *)data, n, "fuzz", &v, &err) == PI_OK) check(&v);
    vocab_free(&v);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const seeds[] = {
        "YQ== 0\nYg== 1\nYWI= 2\nYWJhYg== 3\n",
        "IA== 0\r\nICA= 1\r\n/w== 2\r\n/yA= 3",
    };
    if (i >= sizeof seeds / sizeof seeds[0] || strlen(seeds[i]) > max) return 0;
    memcpy(data, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
