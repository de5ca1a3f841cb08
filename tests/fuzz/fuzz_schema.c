/* fuzz_schema.c: any bytes as a JSON Schema; after a NUL follows a text that its grammar reads. */
#include "fuzz_target.h"

#include "fuzz_grammar.h"
#include "grammar_schema.h"

static void add_root(grammar_tree *t, const char *source, size_t n) {
    int32_t root = grammar_rule_named(t, "root", 4);
    const pi_grammar_schema schema = {.schema = source, .n_schema = n, .widen = n % 2 == 0};
    if (root >= 0) grammar_add_schema(t, root, &schema);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_use_grammar(add_root, data, n);
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
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    return fuzz_grammar_seed(seeds[i], "{\"a\": 12}", data, max);
}
