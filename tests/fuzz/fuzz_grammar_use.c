/* fuzz_grammar_use.c: see fuzz_grammar.h. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_grammar.h"

static const char *const texts[] = {"ab", "{\"", "\":", "true", "\xc3", "\xa9", "  ", "end"};
enum { N_TOKENS = 256 + sizeof texts / sizeof *texts };

static size_t token_text(const void *user, int32_t token, char *bytes, size_t capacity) {
    (void)user;
    bytes[0] = (char)token;
    if (token < 256) return capacity > 0;
    memcpy(bytes, texts[token - 256], strlen(texts[token - 256]));
    return strlen(texts[token - 256]);
}

static bool token_ends(const void *user, int32_t token) {
    (void)user;
    return token == N_TOKENS;
}

static void read_text(pi_grammar *g, const char *text, size_t n) {
    grammar_reader *r;
    if (grammar_reader_create(g, &r, NULL) != PI_OK) return;
    for (size_t i = 0; i < n && i < 64; i++) {
        const uint64_t *mask = grammar_reader_mask(r);
        unsigned char byte = (unsigned char)text[i];
        bool allowed = mask && (mask[byte >> 6] >> (byte & 63) & 1);
        bool accepted = grammar_reader_accept(r, byte);
        if (mask && allowed != accepted) abort(); /* the mask must match what the grammar accepts */
        if (!accepted) break;
    }
    grammar_reader_free(r);
}

static void use_tree(grammar_tree *t, const char *text, size_t n) {
    static vocab_trie *vocabulary;
    const vocab_source source = {NULL, N_TOKENS + 1, token_text, token_ends};
    pi_grammar *g;
    int32_t root = grammar_rule_find(t, "root", 4);
    if (!vocabulary && vocab_trie_create(&source, &vocabulary, NULL) != PI_OK) return;
    if (t->status != PI_OK || root < 0) return;
    if (grammar_create(t, root, vocabulary, NULL, &g, NULL) != PI_OK) return;
    read_text(g, text, n);
    grammar_release(g);
}

void fuzz_use_grammar(void (*build)(grammar_tree *t, const char *source, size_t n),
                      const uint8_t *data, size_t n) {
    const char *source = (const char *)data, *nul = n ? memchr(source, 0, n) : NULL;
    size_t n_source = nul ? (size_t)(nul - source) : n;
    grammar_tree t;
    if (grammar_tree_init(&t)) {
        build(&t, source, n_source);
        use_tree(&t, nul ? nul + 1 : "", nul ? n - n_source - 1 : 0);
    }
    grammar_tree_free(&t);
}

size_t fuzz_grammar_seed(const char *source, const char *text, uint8_t *data, size_t max) {
    size_t n_source = strlen(source) + 1, n_text = strlen(text);
    if (n_source + n_text > max) return 0;
    memcpy(data, source, n_source);
    memcpy(data + n_source, text, n_text);
    return n_source + n_text;
}
