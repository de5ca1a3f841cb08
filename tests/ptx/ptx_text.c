/* ptx_text.c: see ptx_text.h. */
#include "ptx_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_grow(void **items, size_t *room, size_t n, size_t size) {
    if (n < *room) return true;
    const size_t more = 2 * n + 16;
    void *p = realloc(*items, more * size);
    if (!p) return false;
    *items = p;
    *room = more;
    return true;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void skip_blanks(ptx_reader *r) {
    for (;;) {
        if (*r->at == '\n') r->line++;
        if (isspace((unsigned char)*r->at)) {
            r->at++;
        } else if (r->at[0] == '/' && r->at[1] == '/') {
            r->at += strcspn(r->at, "\n");
        } else if (r->at[0] == '/' && r->at[1] == '*') {
            const char *end = strstr(r->at, "*/");
            for (; r->at < end; r->at++) r->line += *r->at == '\n';
            r->at = end ? end + 2 : r->at + strlen(r->at);
        } else {
            return;
        }
    }
}

static bool in_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

ptx_word ptx_next(ptx_reader *r) {
    skip_blanks(r);
    ptx_word w = {r->at, 0};
    if (!*r->at) return w;
    if (*r->at == '"') {
        const char *end = strchr(r->at + 1, '"');
        w.n = end ? (size_t)(end + 1 - r->at) : strlen(r->at);
    } else if (in_name(*r->at)) {
        while (in_name(w.at[w.n])) w.n++;
    } else {
        w.n = 1;
    }
    r->at += w.n;
    return w;
}

ptx_word ptx_peek(ptx_reader *r) {
    ptx_reader copy = *r;
    return ptx_next(&copy);
}

bool ptx_is(ptx_word w, const char *text) {
    return strlen(text) == w.n && memcmp(w.at, text, w.n) == 0;
}

bool ptx_accept(ptx_reader *r, const char *text) {
    if (!ptx_is(ptx_peek(r), text)) return false;
    ptx_next(r);
    return true;
}

void ptx_wrong(ptx_reader *r, const char *what, const ptx_word *word) {
    if (r->failed) return;
    r->failed = true;
    const ptx_word none = {"", 0};
    if (!word) word = &none;
    snprintf(r->error->text, sizeof r->error->text, "%.200s:%u: %s%s%.*s", r->file, r->line, what,
             word->n ? ": " : "", word->n < 100 ? (int)word->n : 100, word->at);
}

void ptx_expect(ptx_reader *r, const char *text) {
    const ptx_word w = ptx_next(r);
    if (!ptx_is(w, text)) ptx_wrong(r, "unexpected", &w);
}

void ptx_skip_braces(ptx_reader *r) {
    for (int depth = 1; depth > 0 && !r->failed;) {
        const ptx_word w = ptx_next(r);
        if (w.n == 0) ptx_wrong(r, "a brace is missing", NULL);
        depth += ptx_is(w, "{") - ptx_is(w, "}");
    }
}

bool ptx_number(ptx_word w, uint64_t *value) {
    char text[40];
    if (w.n == 0 || w.n >= sizeof text || !isdigit((unsigned char)w.at[0])) return false;
    memcpy(text, w.at, w.n);
    text[w.n] = '\0';
    char *end;
    if (text[0] == '0' && strchr("fFdD", text[1]) && text[1])
        *value = strtoull(text + 2, &end, 16);
    else
        *value = strtoull(text, &end, 0);
    if (*end == 'U') end++;
    return *end == '\0';
}

uint64_t ptx_read_number(ptx_reader *r) {
    const bool minus = ptx_accept(r, "-");
    const ptx_word w = ptx_next(r);
    uint64_t v = 0;
    if (!ptx_number(w, &v)) ptx_wrong(r, "not a number", &w);
    return minus ? 0 - v : v;
}

/* ---- names ----------------------------------------------------------------------------------- */

bool ptx_symbols_add(ptx_symbols *s, ptx_symbol symbol) {
    void *all = s->all;
    if (!ptx_grow(&all, &s->room, s->n, sizeof symbol)) return false;
    s->all = all;
    s->all[s->n++] = symbol;
    return true;
}

/* Whether the word consists of the name and a number below count. */
static bool is_one_of(const ptx_symbol *s, ptx_word w, uint32_t *index) {
    if (w.n <= s->name.n || memcmp(w.at, s->name.at, s->name.n) != 0) return false;
    uint64_t v;
    const ptx_word digits = {w.at + s->name.n, w.n - s->name.n};
    if (!ptx_number(digits, &v) || v >= s->count) return false;
    *index = (uint32_t)v;
    return true;
}

const ptx_symbol *ptx_symbols_find(const ptx_symbols *s, ptx_word name, uint32_t *index) {
    for (size_t i = s->n; i-- > 0;) {
        const ptx_symbol *one = &s->all[i];
        *index = 0;
        if (one->count > 0 && is_one_of(one, name, index)) return one;
        if (one->count == 0 && one->name.n == name.n && memcmp(one->name.at, name.at, name.n) == 0)
            return one;
    }
    return NULL;
}

/* ---- variables ------------------------------------------------------------------------------- */

uint32_t ptx_type_bytes(ptx_word type) {
    static const struct {
        const char *ending;
        uint32_t n;
    } sizes[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
    for (int i = 0; i < 4; i++) {
        const size_t n = strlen(sizes[i].ending);
        if (type.n == n + 2 && type.at[0] == '.' && strchr("busf", type.at[1]) &&
            memcmp(type.at + 2, sizes[i].ending, n) == 0)
            return sizes[i].n;
    }
    return 0;
}

ptx_variable ptx_read_variable(ptx_reader *r) {
    ptx_variable v = {.align = 1};
    if (ptx_accept(r, ".align")) v.align = (uint32_t)ptx_read_number(r);
    const ptx_word type = ptx_next(r);
    v.element = ptx_type_bytes(type);
    if (v.element == 0) ptx_wrong(r, "unknown type of a variable", &type);
    v.name = ptx_next(r);
    v.n_bytes = v.element;
    if (v.align < v.element) v.align = v.element;
    if (!ptx_accept(r, "[")) return v;
    if (ptx_is(ptx_peek(r), "]")) ptx_wrong(r, "a variable without a size", &v.name);
    v.n_bytes *= (uint32_t)ptx_read_number(r);
    ptx_expect(r, "]");
    return v;
}
