/* schema_string.c: strings: length, pattern and format. */
#include <string.h>

#include "schema_regex.h"

grammar_node *schema_characters(grammar_tree *t, const grammar_range *ranges, size_t n,
                                bool negated) {
    const grammar_node *set = grammar_class(t, ranges, n, negated);
    grammar_node *choice = grammar_alt(t);
    if (set->kind == GRAMMAR_NEVER) return grammar_never();
    /* Characters of the set that need no escape. */
    grammar_range *raw = arena_calloc(&t->memory, (SCHEMA_N_ESCAPED + 1) * set->n, sizeof *raw);
    size_t n_raw = 0;
    if (!raw) return grammar_no_memory(t);
    for (size_t i = 0; i < set->n; i++) {
        uint32_t next = set->ranges[i].first, last = set->ranges[i].last;
        for (size_t k = 0; k < SCHEMA_N_ESCAPED && next <= last; k++) {
            const grammar_range *out = &schema_escaped[k];
            if (next < out->first)
                raw[n_raw++] = (grammar_range){next, last < out->first ? last : out->first - 1};
            if (next <= out->last) next = out->last + 1;
        }
        if (next <= last) raw[n_raw++] = (grammar_range){next, last};
    }
    if (n_raw) grammar_add(t, choice, grammar_class(t, raw, n_raw, false));
    for (uint32_t code = 1; code < 0x80; code++) { /* excludes U+0000, which readers refuse */
        char escape[SCHEMA_ESCAPE_MAX];
        size_t length = grammar_class_has(set, code) ? schema_escape(escape, code) : 0;
        if (length) grammar_add(t, choice, grammar_bytes(t, escape, length));
    }
    return choice;
}

/* \uXXXX, except U+0000 and lone halves of a surrogate pair: rows of four classes of digits, and
 * the text after them. */
static const char *const hex_rows[][5] = {
    {"19acACefEF", "09afAF", "09afAF", "09afAF", ""},
    {"00", "19afAF", "09afAF", "09afAF", ""},
    {"00", "00", "19afAF", "09afAF", ""},
    {"00", "00", "00", "19afAF", ""},
    {"ddDD", "07", "09afAF", "09afAF", ""},
    {"ddDD", "89abAB", "09afAF", "09afAF", "\\u"},
};

static grammar_node *hex_digits(grammar_tree *t, const char *const *classes) {
    grammar_node *all = grammar_seq(t);
    for (int i = 0; i < 4; i++) {
        grammar_range ranges[5];
        size_t n = strlen(classes[i]) / 2;
        for (size_t k = 0; k < n; k++)
            ranges[k] = (grammar_range){(uint32_t)classes[i][2 * k],
                                        (uint32_t)classes[i][2 * k + 1]};
        grammar_add(t, all, grammar_class(t, ranges, n, false));
    }
    return all;
}

static grammar_node *hex_escape(grammar_tree *t) {
    static const char *const low_half[] = {"ddDD", "cfCF", "09afAF", "09afAF"};
    grammar_node *choice = grammar_alt(t);
    for (size_t i = 0; i < sizeof hex_rows / sizeof *hex_rows; i++) {
        grammar_node *all = hex_digits(t, hex_rows[i]);
        if (*hex_rows[i][4]) {
            grammar_add(t, all, grammar_text(t, hex_rows[i][4]));
            grammar_add(t, all, hex_digits(t, low_half));
        }
        grammar_add(t, choice, all);
    }
    return choice;
}

static int32_t common_rule(schema_compiler *c, int32_t *place, const char *name) {
    if (*place < 0) *place = grammar_rule_new(c->t, name);
    return *place;
}

grammar_node *schema_any_character(schema_compiler *c) {
    static const grammar_range names[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                          {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    grammar_tree *t = c->t;
    if (c->common.character >= 0) return grammar_ref(t, c->common.character);
    int32_t rule = common_rule(c, &c->common.character, "character");
    if (rule < 0) return grammar_never();
    grammar_node *choice = grammar_alt(t);
    grammar_node *name = grammar_class(t, names, sizeof names / sizeof *names, false);
    grammar_add(t, choice, grammar_class(t, schema_escaped, SCHEMA_N_ESCAPED, true));
    grammar_add(t, choice, grammar_pair(t, grammar_text(t, "\\"), name));
    grammar_add(t, choice, grammar_pair(t, grammar_text(t, "\\u"), hex_escape(t)));
    t->rules[rule].body = choice;
    return grammar_ref(t, rule);
}

grammar_node *schema_quoted(schema_compiler *c, grammar_node *inside) {
    grammar_node *all = grammar_seq(c->t);
    grammar_add(c->t, all, grammar_text(c->t, "\""));
    grammar_add(c->t, all, inside);
    grammar_add(c->t, all, grammar_text(c->t, "\""));
    return all;
}

grammar_node *schema_any_string(schema_compiler *c) {
    if (c->common.string < 0) {
        int32_t rule = common_rule(c, &c->common.string, "string");
        if (rule < 0) return grammar_never();
        grammar_node *inside = grammar_repeat(c->t, schema_any_character(c), 0, GRAMMAR_NO_BOUND);
        c->t->rules[rule].body = schema_quoted(c, inside);
    }
    return grammar_ref(c->t, c->common.string);
}

/* ---- formats --------------------------------------------------------------------------------- */

/* Dates that exist: February 29 in leap years only. */
#define DATE                                                                                       \
    "(\\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|\\d{4}-(0[469]|11)-(0[1-9]|[12]\\d|30)|"      \
    "\\d{4}-02-(0[1-9]|1\\d|2[0-8])|"                                                              \
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define HEX  "[0-9a-fA-F]"
/* Labels without two consecutive hyphens, which names in Punycode have. */
#define LABEL "[a-zA-Z0-9](-?[a-zA-Z0-9]){0,30}"
#define HOST  LABEL "(\\." LABEL "){0,2}\\.[a-zA-Z]{2,18}"
#define CODE  "[A-Za-z0-9_-]"
#define URI                                                                                        \
    "^https?://" HOST                                                                              \
    "(:[1-9]\\d{0,3})?(/[a-zA-Z0-9._~-]{0,64}){0,16}(\\?[a-zA-Z0-9._~=&-]{0,256})?$"
#define EMAIL "^[a-zA-Z0-9_+-]{1,30}(\\.[a-zA-Z0-9_+-]{1,10}){0,3}@" HOST "$"

/* Patterns of formats; all validators accept their texts. Headers of tokens (JWT) are
 * {"alg":"HS256","typ":"JWT"}, also with RS256 or ES256. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(\\d{1,9}W|\\d{1,9}D|\\d{1,9}Y(\\d{1,9}M)?(\\d{1,9}D)?|\\d{1,9}M(\\d{1,9}D)?|"
                 "T\\d{1,9}H(\\d{1,9}M)?(\\d{1,9}S)?|T\\d{1,9}M(\\d{1,9}S)?|T\\d{1,9}S)$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"ipv6", "^" HEX "{1,4}(:" HEX "{1,4}){7}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
    {"idn-hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"uri", URI},
    {"url", URI},
    {"iri", URI},
    {"uri-reference", URI},
    {"iri-reference", URI},
    {"jwt", "^eyJhbGciOiJ(IUzI1NiIsInR5cCI6IkpXVCJ9|SUzI1NiIsInR5cCI6IkpXVCJ9|"
            "FUzI1NiIsInR5cCI6IkpXVCJ9)\\.(" CODE "{4}){1,256}\\.(" CODE "{4}){1,128}$"},
};

static const char *find_format(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    }
    return NULL;
}

/* ---- constraints of a string ----------------------------------------------------------------- */

bool regex_check(regex_pool *p, const json_node *node, const char *keyword) {
    schema_compiler *c = p->c;
    if (p->status == PI_ERR_NOMEM) grammar_no_memory(c->t);
    if (p->status != PI_OK) schema_too_large(c, node, keyword, "too large a pattern");
    return p->status == PI_OK;
}

/* The texts of a pattern. *why: the reason why a grammar cannot express it, NULL: it can. */
static regex find_pattern(regex_pool *p, const char *text, size_t n, bool *malformed,
                          const char **why) {
    regex r = schema_pattern(p, text, n, malformed, why);
    if (!*why) r = regex_find(p, r);
    if (!*why && p->status != PI_OK && p->status != PI_ERR_NOMEM) {
        *why = p->why;
        p->status = PI_OK;
    }
    return r;
}

static bool read_text(schema_compiler *c, const json_node *part, const char *keyword,
                      const char **text, size_t *n) {
    const json_node *node = json_get(part, keyword);
    if (!node) return false;
    if (!json_as_string(node, text, n)) schema_wrong(c, part, keyword, "not a string");
    return c->t->status == PI_OK;
}

static void read_pattern(regex_pool *p, const json_node *part, schema_language *out) {
    const char *text, *why = NULL;
    bool malformed = false;
    size_t n;
    if (!read_text(p->c, part, "pattern", &text, &n)) return;
    regex r = find_pattern(p, text, n, &malformed, &why);
    if (why && malformed && !p->c->options->widen) {
        schema_wrong(p->c, part, "pattern", why);
    } else if (why) {
        schema_widen(p->c, part, "pattern", why);
    } else {
        out->patterns = regex_both(p, out->patterns, r);
        if (!out->pattern_at) out->pattern_at = part;
    }
}

/* A format without a known pattern is an annotation; it is listed as one unless the schema has a
 * pattern. */
static void read_format(regex_pool *p, const json_node *part, bool has_pattern,
                        schema_language *out) {
    const char *name, *why = NULL;
    bool malformed;
    size_t n;
    if (!read_text(p->c, part, "format", &name, &n)) return;
    const char *form = find_format(name);
    if (form) {
        regex r = find_pattern(p, form, strlen(form), &malformed, &why);
        out->formats = regex_both(p, out->formats, r);
        if (!out->format_at) out->format_at = part;
    } else if (!has_pattern) {
        schema_note(p->c, part, "format");
    }
}

static void read_lengths(regex_pool *p, const schema_set *set, schema_language *out) {
    static const char *const keywords[] = {"minLength", "maxLength"};
    uint32_t min = schema_most(p->c, set, "minLength", 0);
    uint32_t max = schema_least(p->c, set, "maxLength", GRAMMAR_NO_BOUND);
    out->lengths = min > max ? REGEX_NEVER : regex_repeat(p, REGEX_CHAR, min, max);
    for (size_t i = 0; i < set->n; i++) {
        for (size_t k = 0; k < 2 && !out->length_at; k++) {
            if (!schema_get(set, i, keywords[k])) continue;
            out->length_at = set->parts[i].node;
            out->length_keyword = keywords[k];
        }
    }
}

/* Excludes the strings that "not" has as constants. */
static void read_refused(regex_pool *p, const json_node *part, schema_language *out) {
    const json_node *no = schema_refused(part);
    for (size_t i = 0; no && i < schema_n_constants(no) && p->status == PI_OK; i++) {
        const char *text;
        size_t n;
        if (!json_as_string(schema_constant(no, i), &text, &n)) continue;
        out->patterns = regex_both(p, out->patterns, regex_not(p, regex_text(p, text, n)));
        if (!out->pattern_at) out->pattern_at = part;
    }
}

bool schema_read_language(regex_pool *p, const schema_set *set, schema_language *out) {
    *out = (schema_language){REGEX_ANY, REGEX_ANY, REGEX_ANY, NULL, NULL, NULL, NULL};
    for (size_t i = 0; i < set->n && p->c->t->status == PI_OK; i++)
        read_pattern(p, set->parts[i].node, out);
    bool has_pattern = out->pattern_at != NULL;
    for (size_t i = 0; i < set->n && p->c->t->status == PI_OK; i++) {
        read_format(p, set->parts[i].node, has_pattern, out);
        read_refused(p, set->parts[i].node, out);
    }
    if (p->c->t->status == PI_OK) read_lengths(p, set, out);
    return regex_check(p, set->n ? set->parts[0].node : p->c->now, NULL) &&
           p->c->t->status == PI_OK;
}

/* Clears a size problem, because the caller then tries fewer constraints. */
static grammar_node *try_to_emit(regex_pool *p, regex r, size_t max_states) {
    grammar_node *node = regex_emit(p, r, max_states);
    if (p->status == PI_ERR_LIMIT) p->status = PI_OK;
    regex narrow = node ? REGEX_NEVER : regex_narrow(p, r);
    if (narrow != REGEX_NEVER) node = regex_emit(p, narrow, max_states);
    if (p->status == PI_ERR_LIMIT) p->status = PI_OK;
    if (p->status == PI_ERR_NOMEM) grammar_no_memory(p->c->t);
    return node;
}

/* Combines patterns, formats and lengths. If that takes too many rules, drops formats first (if
 * there is a pattern), then lengths, then patterns. */
static grammar_node *emit_language(regex_pool *p, const schema_language *l) {
    enum { FORMAT_STATES = 1000 };
    static const char why[] = "together with the other keywords";
    schema_compiler *c = p->c;
    const bool spare = l->format_at && l->pattern_at;
    regex sized = regex_both(p, l->patterns, l->lengths);
    grammar_node *node = try_to_emit(p, regex_both(p, sized, l->formats),
                                     spare ? FORMAT_STATES : REGEX_MAX_STATES);
    if (!node && spare && c->t->status == PI_OK) {
        schema_note(c, l->format_at, "format");
        node = try_to_emit(p, sized, REGEX_MAX_STATES);
    }
    if (!node && l->length_at && c->t->status == PI_OK &&
        schema_widen(c, l->length_at, l->length_keyword, why))
        node = try_to_emit(p, spare ? l->patterns : regex_both(p, l->patterns, l->formats),
                           REGEX_MAX_STATES);
    if (!node && l->pattern_at && c->t->status == PI_OK &&
        schema_widen(c, l->pattern_at, "pattern", "it takes too many rules"))
        node = try_to_emit(p, l->lengths, REGEX_MAX_STATES);
    return node;
}

grammar_node *schema_string(schema_compiler *c, const schema_set *set) {
    static const char *const keywords[] = {"pattern", "format", "minLength", "maxLength", "not"};
    grammar_node *inside = NULL;
    schema_language l;
    regex_pool p;
    bool any = false;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        any = any || schema_has(set, keywords[i]);
    if (!any) return schema_any_string(c);
    if (!regex_pool_init(&p, c))
        grammar_no_memory(c->t);
    else if (schema_read_language(&p, set, &l))
        inside = emit_language(&p, &l);
    if (!inside && c->t->status == PI_OK) regex_check(&p, set->parts[0].node, NULL);
    regex_pool_free(&p);
    if (inside && c->t->status == PI_OK) return schema_quoted(c, inside);
    return c->t->status == PI_OK ? schema_too_large(c, set->parts[0].node, NULL, "too many rules")
                                 : grammar_never();
}
