/* fuzz_grammar.c: any bytes as a grammar in GBNF; what follows a NUL is a text that is read by it,
 * and masks are asked for on the way. */
#include "fuzz_target.h"

#include <string.h>

#include "fuzz_grammar.h"
#include "grammar_gbnf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *source = (const char *)data, *nul = n ? memchr(source, 0, n) : NULL;
    size_t n_source = nul ? (size_t)(nul - source) : n;
    grammar_tree t;
    if (grammar_tree_init(&t)) {
        grammar_parse_gbnf(&t, source, n_source);
        fuzz_use_grammar(&t, nul ? nul + 1 : "", nul ? n - n_source - 1 : 0);
    }
    grammar_tree_free(&t);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const seeds[] = {
        "root ::= (\"a\" | [b-d]{2,3})* x?\nx ::= \"\\u00e9\" | \"(\" root \")\"",
        "root ::= \"{\" (s \":\" v (\",\" s \":\" v)*)? \"}\"\nv ::= s | root\ns ::= \"\\\"\" "
        "[^\"\\\\\\x00-\\x1f]* \"\\\"\" # text",
        "root ::= .{1,40} \"end\" | [^a]+"};
    static const char text[] = "{\"a\":\"b\"}";
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    size_t n = strlen(seeds[i]) + 1;
    if (n + sizeof text > max) return 0;
    memcpy(data, seeds[i], n);
    memcpy(data + n, text, sizeof text - 1);
    return n + sizeof text - 1;
}
