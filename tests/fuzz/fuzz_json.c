/* fuzz_json.c: parses any bytes as JSON and visits every node of the result. */
#include "fuzz_target.h"

#include <string.h>

#include "json.h"

static size_t visit(const json_node *node) {
    int64_t i;
    double d;
    bool b;
    const char *s;
    size_t n = 0;
    (void)json_as_int(node, &i);
    (void)json_as_double(node, &d);
    (void)json_as_bool(node, &b);
    size_t sum = json_as_string(node, &s, &n) ? strlen(s) + n : 0;
    for (size_t k = 0; json_kind_of(node) == JSON_ARRAY && k < json_count(node); k++) {
        sum += visit(json_at(node, k));
    }
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(node, &iter, &key, &value)) sum += strlen(key) + visit(value);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_doc *doc;
    if (json_parse((const char *)data, n, "input", &doc, NULL) == PI_OK) {
        (void)visit(json_root(doc));
        json_free(doc);
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const seeds[] = {
        "{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\n\"], \"b\": {\"c\": {}}}",
        "[[[[]]], 12, \"\"]", "\"\\ud83d\\ude42\""};
    if (i >= sizeof seeds / sizeof seeds[0] || strlen(seeds[i]) > max) return 0;
    memcpy(data, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
