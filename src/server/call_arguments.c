/* call_arguments.c: parses the arguments of earlier calls, which clients send back. */
#include "call_arguments.h"

#include <string.h>

#include "bytes.h"

/* Returns the end of the string that begins at s[at]: its second quote, or n. */
static size_t string_end(const char *s, size_t n, size_t at) {
    for (at++; at < n && s[at] != '"'; at++)
        if (s[at] == '\\' && at + 1 < n) at++;
    return at;
}

/* Appends the JSON object that s[n] begins; the answer may have been truncated there. Arguments are
 * kept up to the last complete value; {} for an empty text. False: not an object, or out of
 * memory. */
static bool complete_object(const char *s, size_t n, bytes *out) {
    char closers[JSON_MAX_DEPTH], kept[JSON_MAX_DEPTH];
    size_t depth = 0, n_kept = 0, whole = 0, i = 0;
    bool key = true; /* the next string is a key */
    while (i < n && bytes_is_space(s[i])) i++;
    if (i == n) return bytes_append_text(out, "{}");
    if (s[i] != '{') return false;
    for (; i < n; i++) {
        const bool opens = s[i] == '{' || s[i] == '[', closes = s[i] == '}' || s[i] == ']';
        const bool string = s[i] == '"', comma = s[i] == ',';
        if (opens && depth == JSON_MAX_DEPTH) return false;
        if (opens) closers[depth++] = s[i] == '{' ? '}' : ']';
        if (closes && (depth == 0 || closers[--depth] != s[i])) return false;
        if (string) i = string_end(s, n, i);
        if (opens || comma) key = depth && closers[depth - 1] == '}';
        if (i < n && s[i] == ':') key = false;
        if (i == n || !(opens || closes || comma || (string && !key))) continue;
        whole = i + !comma;
        n_kept = depth;
        memcpy(kept, closers, depth);
    }
    bool good = bytes_append(out, s, whole);
    while (n_kept > 0 && good) good = bytes_append(out, &kept[--n_kept], 1);
    return good;
}

json_doc *call_arguments_parse(const char *s, size_t n) {
    json_doc *doc = NULL;
    bytes text = {0};
    if (json_parse(s, n, "arguments", &doc, NULL) != PI_OK && complete_object(s, n, &text))
        json_parse(text.data, text.used, "arguments", &doc, NULL);
    bytes_free(&text);
    if (json_kind_of(json_root(doc)) == JSON_OBJECT) return doc;
    json_free(doc);
    return NULL;
}
