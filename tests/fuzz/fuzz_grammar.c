/* fuzz_grammar.c: any bytes as a GBNF grammar, and after a NUL a text that the grammar reads. */
#include "fuzz_target.h"

#include "fuzz_grammar.h"
#include "grammar_gbnf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_use_grammar(grammar_parse_gbnf, data, n);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const seeds[] = {
        "root ::= (\"a\" | [b-d]{2,3})* x?\nx ::= \"\\u00e9\" | \"(\" root \")\"",
        "root ::= \"{\" (s \":\" v (\",\" s \":\" v)*)? \"}\"\nv ::= s | root\ns ::= \"\\\"\" "
        "[^\"\\\\\\x00-\\x1f]* \"\\\"\" # text",
        "root ::= .{1,40} \"end\" | [^a]+"};
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    return fuzz_grammar_seed(seeds[i], "{\"a\":\"b\"}", data, max);
}
