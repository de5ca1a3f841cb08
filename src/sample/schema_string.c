/* schema_string.c: strings: length, pattern and format. */
#include <string.h>

#include "schema.h"

static bool holds(const grammar_node *set, uint32_t code) {
    for (size_t i = 0; i < set->n; i++) {
        if (code >= set->ranges[i].first && code <= set->ranges[i].last) return true;
    }
    return false;
}

/* U+0000 is left out: readers refuse it. */
static void add_escapes(grammar_tree *t, const grammar_node *set, grammar_node *choice) {
    for (uint32_t code = 1; code < 0x80; code++) {
        char escape[SCHEMA_ESCAPE_MAX];
        size_t n = holds(set, code) ? schema_escape(escape, code) : 0;
        if (n) grammar_add(t, choice, grammar_bytes(t, escape, n));
    }
}

grammar_node *schema_characters(grammar_tree *t, const grammar_range *ranges, size_t n,
                                bool negated) {
    const grammar_node *set = grammar_class(t, ranges, n, negated);
    grammar_node *choice = grammar_alt(t);
    if (set->kind == GRAMMAR_NEVER) return grammar_never();
    /* What of the set may stand in a string as it is. */
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
    add_escapes(t, set, choice);
    return choice;
}

/* \uXXXX, but for U+0000 and lone halves of a surrogate pair: four classes of digits a row, and
 * what follows them. */
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

/* Days that are there: those of February 29 in leap years only. */
#define DATE                                                                                       \
    "(\\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|\\d{4}-(0[469]|11)-(0[1-9]|[12]\\d|30)|"      \
    "\\d{4}-02-(0[1-9]|1\\d|2[0-8])|"                                                              \
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define HEX  "[0-9a-fA-F]"
#define NAME "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"

/* Of what a format allows, the forms that everybody agrees on. */
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
    {"hostname", "^" NAME "(\\." NAME "){0,3}$"},
    {"email", "^[a-zA-Z0-9_+-]{1,30}(\\.[a-zA-Z0-9_+-]{1,10}){0,3}@" NAME "(\\." NAME "){1,3}$"},
    {"uri", "^https?://" NAME "(\\." NAME "){0,3}(:[1-9]\\d{0,3})?(/[a-zA-Z0-9._~-]{0,64}){0,16}"
            "(\\?[a-zA-Z0-9._~=&-]{0,256})?$"},
};

static const char *find_format(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    }
    return NULL;
}

/* The pattern or format of one part; a second one is an error: a grammar cannot meet both. */
static bool take_pattern(schema_compiler *c, const schema_set *set, size_t i, const char **pattern,
                         size_t *n) {
    static const char *const keywords[] = {"pattern", "format"};
    for (int k = 0; k < 2; k++) {
        const char *text;
        size_t n_text;
        const json_node *node = schema_get(set, i, keywords[k]);
        if (!node) continue;
        if (!json_as_string(node, &text, &n_text)) {
            grammar_fail(c->t, PI_ERR_FORMAT, "JSON Schema: %s is not a string", keywords[k]);
            return false;
        }
        if (k == 1) {
            const char *format = find_format(text);
            if (!format) {
                schema_unsupported(c, "format", text);
                return false;
            }
            text = format;
            n_text = strlen(format);
        }
        if (*pattern && (*n != n_text || memcmp(*pattern, text, n_text) != 0)) {
            schema_unsupported(c, keywords[k], "only one pattern or format for a string");
            return false;
        }
        *pattern = text;
        *n = n_text;
    }
    return true;
}

grammar_node *schema_string(schema_compiler *c, const schema_set *set) {
    const char *pattern = NULL;
    size_t n = 0;
    uint32_t least, most;
    uint32_t min = schema_most(c, set, "minLength", 0);
    uint32_t max = schema_least(c, set, "maxLength", GRAMMAR_NO_BOUND);
    for (size_t i = 0; i < set->n; i++) {
        if (!take_pattern(c, set, i, &pattern, &n)) return grammar_never();
    }
    if (!pattern && min == 0 && max == GRAMMAR_NO_BOUND) return schema_any_string(c);
    if (!pattern) return schema_quoted(c, grammar_repeat(c->t, schema_any_character(c), min, max));
    grammar_node *inside = schema_pattern(c, pattern, n, &least, &most);
    if (c->t->status == PI_OK && (least < min || most > max))
        return schema_unsupported(c, "minLength or maxLength",
                                  "only beside a pattern that has such lengths by itself");
    return schema_quoted(c, inside);
}
