/* fuzz_schema.c: any bytes as a JSON Schema; what follows a NUL is a text that is read by it. */
#include "fuzz_target.h"

#include <string.h>

#include "fuzz_grammar.h"
#include "grammar_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *source = (const char *)data, *nul = n ? memchr(source, 0, n) : NULL;
    size_t n_source = nul ? (size_t)(nul - source) : n;
    grammar_tree t;
    if (grammar_tree_init(&t)) {
        int32_t root = grammar_rule_named(&t, "root", 4);
        if (root >= 0) grammar_add_schema(&t, root, source, n_source);
        fuzz_use_grammar(&t, nul ? nul + 1 : "", nul ? n - n_source - 1 : 0);
    }
    grammar_tree_free(&t);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const seeds[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-3,"
        "\"maximum\":40},\"b\":{\"$ref\":\"#\"}},\"required\":[\"a\"],\"additionalProperties\":"
        "{\"type\":\"number\",\"exclusiveMinimum\":0.5}}",
        "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^a+[b-d]{2}(x|y)?$\"},{\"prefixItems\":"
        "[true,{\"enum\":[1,\"a\",null]}],\"minItems\":1},{\"format\":\"date-time\"}]}",
        "{\"$defs\":{\"n\":{\"oneOf\":[{\"const\":1},{\"type\":\"string\",\"maxLength\":5}]}},"
        "\"allOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":[\"string\",\"integer\"]}]}"};
    static const char text[] = "{\"a\": 12}";
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    size_t n = strlen(seeds[i]) + 1;
    if (n + sizeof text > max) return 0;
    memcpy(data, seeds[i], n);
    memcpy(data + n, text, sizeof text - 1);
    return n + sizeof text - 1;
}
