/* reference.c: see reference.h. */
#include "reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

reference reference_read(const char *tokens_path, const char *logits_path, int n_vocab) {
    reference r = {.n_tokens = 0};
    FILE *f = fopen(tokens_path, "r");
    assert_non_null(f);
    for (int32_t token; fscanf(f, "%d", &token) == 1;) {
        assert_true(r.n_tokens < REFERENCE_MAX_TOKENS);
        r.tokens[r.n_tokens++] = token;
    }
    fclose(f);
    assert_true(r.n_tokens > 1);
    size_t n = (size_t)r.n_tokens * (size_t)n_vocab;
    r.logits = malloc(n * sizeof *r.logits);
    f = fopen(logits_path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(r.logits, sizeof *r.logits, n, f), n);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    return r;
}

void reference_free(reference *r) {
    free(r->logits);
    *r = (reference){.n_tokens = 0};
}
