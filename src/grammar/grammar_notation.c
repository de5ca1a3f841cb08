/* grammar_notation.c: see grammar_notation.h. */
#include "grammar_notation.h"

#include <string.h>

#include "hex_digit.h"
#include "mem.h"
#include "utf8.h"

void notation_fail(notation *n, pi_status status, const char *why) {
    if (n->why) return;
    n->status = status;
    n->why = why;
    n->why_line = n->line;
}

bool notation_take(notation *n, const char *text) {
    size_t length = strlen(text);
    if ((size_t)(n->end - n->at) < length || memcmp(n->at, text, length) != 0) return false;
    n->at += length;
    return true;
}

/* ---- characters ------------------------------------------------------------------------------ */

uint32_t notation_code_point(notation *n) {
    size_t step;
    int32_t code = utf8_decode(n->at, (size_t)(n->end - n->at), &step);
    if (code < 0) notation_fail(n, PI_ERR_FORMAT, "not UTF-8");
    if (code == '\n') n->line++;
    n->at += step;
    return (uint32_t)code;
}

uint32_t notation_hex(notation *n, int n_digits) {
    const int64_t value = hex_number(n->at, n->end, n_digits);
    if (value < 0) {
        notation_fail(n, PI_ERR_FORMAT, "escape with too few hexadecimal digits");
        return 0;
    }
    n->at += n_digits;
    return (uint32_t)value;
}

uint32_t notation_character(notation *n, bool in_class) {
    return notation_take(n, "\\") ? n->dialect->escape(n, in_class) : notation_code_point(n);
}

/* ---- classes --------------------------------------------------------------------------------- */

void notation_add_ranges(notation *n, const grammar_range *ranges, size_t n_ranges, bool negated) {
    const size_t most = n->dialect->max_ranges;
    if (!mem_grow((void **)&n->ranges, &n->capacity, n->n_ranges + n_ranges + 1, sizeof *n->ranges,
                  most + n_ranges + 1)) {
        notation_fail(n, PI_ERR_NOMEM, "out of memory");
        return;
    }
    grammar_range *to = n->ranges + n->n_ranges;
    if (negated) {
        n->n_ranges += grammar_complement(ranges, n_ranges, to);
    } else if (n_ranges) {
        memcpy(to, ranges, n_ranges * sizeof *to);
        n->n_ranges += n_ranges;
    }
    if (n->n_ranges > most) {
        n->n_ranges = most;
        notation_fail(n, PI_ERR_LIMIT, "class of too many ranges");
    }
}

static bool begins_named(const notation *n) {
    return n->dialect->begins_named && n->dialect->begins_named(n);
}

void notation_class(notation *n, bool *negated) {
    *negated = notation_take(n, "^");
    n->n_ranges = 0;
    while (!n->why && notation_peek(n) != ']') {
        if (n->at >= n->end) {
            notation_fail(n, PI_ERR_FORMAT, "class without its closing ]");
            return;
        }
        if (begins_named(n)) {
            n->dialect->add_named(n);
            continue;
        }
        grammar_range r;
        r.first = r.last = notation_character(n, true);
        if (n->end - n->at > 1 && n->at[0] == '-' && n->at[1] != ']') {
            n->at++;
            if (begins_named(n)) notation_fail(n, PI_ERR_FORMAT, "range that ends with a class");
            r.last = notation_character(n, true);
        }
        if (r.last < r.first) notation_fail(n, PI_ERR_FORMAT, "range that ends before it begins");
        notation_add_ranges(n, &r, 1, false);
    }
    n->at++;
}

/* ---- repetitions ----------------------------------------------------------------------------- */

static void skip(notation *n) {
    if (n->dialect->skip) n->dialect->skip(n);
}

static bool take_number(notation *n, uint32_t *out) {
    const char *start = n->at;
    uint32_t value = 0;
    for (; notation_peek(n) >= '0' && notation_peek(n) <= '9'; n->at++) {
        if (value <= GRAMMAR_MAX_REPEAT) value = value * 10 + (uint32_t)(*n->at - '0');
    }
    if (value > GRAMMAR_MAX_REPEAT) notation_fail(n, PI_ERR_LIMIT, "too many repetitions");
    *out = value;
    return n->at > start;
}

static bool take_braces(notation *n, uint32_t *min, uint32_t *max) {
    const char *start = n->at;
    if (!notation_take(n, "{")) return false;
    skip(n);
    bool numbers = take_number(n, min);
    *max = *min;
    skip(n);
    if (numbers && notation_take(n, ",")) {
        skip(n);
        *max = GRAMMAR_NO_BOUND;
        numbers = notation_peek(n) == '}' || take_number(n, max);
        skip(n);
    }
    if (numbers && notation_take(n, "}")) return true;
    n->at = start;
    if (!n->dialect->loose_braces)
        notation_fail(n, PI_ERR_FORMAT,
                      numbers ? "repetition without its closing }" : "repetition without a number");
    return false;
}

bool notation_repeat(notation *n, uint32_t *min, uint32_t *max) {
    *min = 0;
    *max = GRAMMAR_NO_BOUND;
    if (notation_take(n, "?"))
        *max = 1;
    else if (notation_take(n, "+"))
        *min = 1;
    else if (!notation_take(n, "*") && !take_braces(n, min, max))
        return false;
    if (*max < *min) notation_fail(n, PI_ERR_FORMAT, "repetition with a maximum below its minimum");
    return !n->why;
}
