/* serve_keys.c: see serve_keys.h. */
#include "serve_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "mem.h"

enum { MAX_KEY_FILE = 1 << 20 };

static const char blanks[] = " \t";

/* Splits `text`, which ends with a NUL, at `separators`. comments: words that begin with # are
 * skipped. */
static pi_status cut_words(serve_words *list, char *text, const char *separators, bool comments,
                           const char *where, pi_error *err) {
    for (char *at = text; *at;) {
        size_t n = strcspn(at, separators);
        bool last = at[n] == 0;
        at[n] = 0;
        char *word = at + (comments ? strspn(at, blanks) : 0); /* lines may be indented */
        if (*word && (!comments || *word != '#')) {
            if (list->n == SERVE_MAX_WORDS)
                return error_set(err, PI_ERR_ARG, "more than %d values: %s", SERVE_MAX_WORDS,
                                 where);
            list->words[list->n++] = word;
        }
        at += n + !last;
    }
    return PI_OK;
}

/* Collects the values of an option, which may be lists with commas, and the lines of a file (NULL:
 * none). */
static pi_status read_words(serve_words *list, const option_texts *values, const char *file,
                            size_t n_file, const char *where, pi_error *err) {
    size_t n = 0;
    pi_status status = PI_OK;
    for (int i = 0; i < values->count; i++) n += strlen(values->values[i]) + 1;
    char *at = list->text = mem_calloc(n + n_file + 1, 1);
    if (!at) return error_nomem(err, n + n_file, "values");
    for (int i = 0; i < values->count && status == PI_OK; i++) {
        size_t m = strlen(values->values[i]) + 1;
        memcpy(at, values->values[i], m);
        status = cut_words(list, at, ",", false, where, err);
        at += m;
    }
    if (status != PI_OK || !file) return status;
    memcpy(at, file, n_file);
    return cut_words(list, at, "\r\n", true, where, err);
}

/* Reads NAME=VALUE. False: no such setting, or not a value of it. */
static bool read_setting(key_limits *k, const char *name, size_t n, const char *value) {
    const struct {
        const char *name;
        double *place;
    } numbers[] = {{"rpm", &k->requests}, {"tpm", &k->tokens}, {"share", &k->share}};
    int64_t integer = 0;
    char *end = NULL;
    if (n == 4 && memcmp(name, "name", 4) == 0) {
        k->name = value;
        return *value != 0;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strlen(numbers[i].name) != n || memcmp(numbers[i].name, name, n) != 0) continue;
        *numbers[i].place = strtod(value, &end);
        return end != value && !*end && isfinite(*numbers[i].place) && *numbers[i].place > 0;
    }
    const bool good = option_parse_integer(value, &integer) && integer >= INT32_MIN &&
                      integer <= INT32_MAX;
    if (n == 10 && memcmp(name, "concurrent", n) == 0) k->concurrent = (int32_t)integer;
    if (n == 10 && memcmp(name, "concurrent", n) == 0) return good && integer > 0;
    k->priority = (int32_t)integer;
    k->has_priority = n == 8 && memcmp(name, "priority", n) == 0;
    return good && k->has_priority;
}

/* Reads the settings that follow a key of the file: "KEY name=ci rpm=60". Messages do not show the
 * key. */
static pi_status read_settings(serve_keys *k, int i, const char *path, pi_error *err) {
    char *at = (char *)(uintptr_t)k->keys.words[i];
    at += strcspn(at, blanks);
    while (*at) {
        *at++ = 0;
        at += strspn(at, blanks);
        if (!*at) break;
        char *word = at;
        const size_t n = strcspn(word, "= \t");
        at += strcspn(at, blanks);
        const char after = *at;
        *at = 0;
        if (word[n] != '=' || !read_setting(&k->limits[i], word, n, word + n + 1))
            return error_set(err, PI_ERR_FORMAT,
                             "invalid setting of key %d: %s: \"%.*s\": expected name=TEXT, "
                             "rpm=N, tpm=N, concurrent=N, share=X or priority=N",
                             i + 1, path, word[n] == '=' && n < 100 ? (int)n : 0, word);
        k->limited = true;
        *at = after;
        if (after) continue;
    }
    return PI_OK;
}

pi_status serve_keys_read(serve_keys *k, const cli_options *o, pi_error *err) {
    char *file = NULL;
    size_t n_file = 0;
    pi_status status = PI_OK;
    if (o->api_key_file) status = file_read(o->api_key_file, MAX_KEY_FILE, &file, &n_file, err);
    if (status == PI_OK)
        status = read_words(&k->keys, &o->api_keys, file, n_file, "--api-key", err);
    mem_free(file);
    /* The lines of the file follow the values of the option. */
    int n_typed = 0;
    for (int i = 0; i < o->api_keys.count; i++)
        for (const char *c = o->api_keys.values[i]; *c; c += strcspn(c, ",")) {
            c += strspn(c, ",");
            n_typed += *c != 0;
        }
    for (int i = n_typed; i < k->keys.n && status == PI_OK; i++)
        status = read_settings(k, i, o->api_key_file, err);
    /* A server with key options never runs without keys. */
    if (status == PI_OK && (o->api_keys.count || o->api_key_file) && k->keys.n == 0)
        status = error_set(err, PI_ERR_ARG, "the key is empty: --api-key");
    if (status == PI_OK && o->isolate_keys && k->keys.n == 0)
        status = error_set(err, PI_ERR_ARG, "--isolate-keys: there are no keys: --api-key");
    if (status == PI_OK)
        status = read_words(&k->origins, &o->cors_origins, NULL, 0, "--cors-origin", err);
    return status;
}

void serve_keys_free(serve_keys *k) {
    mem_free(k->keys.text);
    mem_free(k->origins.text);
}
