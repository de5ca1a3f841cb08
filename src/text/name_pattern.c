/* name_pattern.c: see name_pattern.h. */
#include "name_pattern.h"

#ifdef TEXT_HAVE_PCRE2

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "mem.h"

struct name_pattern {
    pcre2_general_context *general;
    pcre2_code *code;
    pcre2_match_data *match;
};

static void *pattern_alloc(size_t n_bytes, void *user) {
    (void)user;
    return mem_alloc(n_bytes);
}

static void pattern_release(void *p, void *user) {
    (void)user;
    mem_free(p);
}

static pi_status compile(name_pattern *p, const char *text, size_t n, const char *what,
                         pi_error *err) {
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE offset = 0;
    PCRE2_UCHAR why[128] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(p->general);
    if (context) p->code = pcre2_compile((PCRE2_SPTR)text, n, 0, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (p->code) p->match = pcre2_match_data_create_from_pattern(p->code, p->general);
    if (p->match) return PI_OK;
    if (p->code || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return error_nomem(err, n, "pattern");
    pcre2_get_error_message(code, why, sizeof why);
    return error_set(err, PI_ERR_ARG, "%s: not a regular expression: \"%.*s\": %s (at %zu)", what,
                     n < 200 ? (int)n : 200, text, (const char *)why, (size_t)offset);
}

pi_status name_pattern_create(const char *text, size_t n, const char *what, name_pattern **out,
                              pi_error *err) {
    name_pattern *p = *out = mem_calloc(1, sizeof *p);
    if (!p) return error_nomem(err, sizeof *p, "pattern");
    p->general = pcre2_general_context_create(pattern_alloc, pattern_release, NULL);
    pi_status status = p->general ? compile(p, text, n, what, err)
                                  : error_nomem(err, sizeof *p, "pattern");
    if (status == PI_OK) return PI_OK;
    name_pattern_free(p);
    *out = NULL;
    return status;
}

void name_pattern_free(name_pattern *p) {
    if (!p) return;
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->general);
    mem_free(p);
}

bool name_pattern_found(const name_pattern *p, const char *name) {
    return pcre2_match(p->code, (PCRE2_SPTR)name, strlen(name), 0, 0, p->match, NULL) >= 0;
}

#else

pi_status name_pattern_create(const char *text, size_t n, const char *what, name_pattern **out,
                              pi_error *err) {
    (void)text;
    (void)n;
    *out = NULL;
    return error_set(err, PI_ERR_UNSUPPORTED, "%s: this program was built without PCRE2", what);
}

void name_pattern_free(name_pattern *p) {
    (void)p;
}

bool name_pattern_found(const name_pattern *p, const char *name) {
    (void)p;
    (void)name;
    return false;
}

#endif
