/* template_method.c: attributes and methods of strings, lists and dicts, as in Python. Methods that
 * would change a list or a dict exist but fail when used: the sandbox hides them. */
#include "os_text.h"
#include "template_eval.h"
#include "template_unicode.h"
#include "utf8.h"

static const tpl_value missing = {.kind = TPL_MISSING};

/* Checks a string argument and escapes it when the method's string is safe. */
static tpl_value as_argument(tpl *t, tpl_value self, tpl_value v, const char *what) {
    tpl_string_arg(t, v, what);
    return self.str->safe ? tpl_escape(t, v) : v;
}

/* ---- str: case and blanks -------------------------------------------------------------------- */

#define NO_ARGS(name) tpl_bind(t, name, args, "", 0, NULL)

static tpl_value str_upper(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("upper");
    return tpl_change_case(t, self, CASE_UPPER);
}

static tpl_value str_lower(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("lower");
    return tpl_change_case(t, self, CASE_LOWER);
}

static tpl_value str_title(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("title");
    return tpl_change_case(t, self, CASE_TITLE);
}

static tpl_value str_capitalize(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("capitalize");
    return tpl_change_case(t, self, CASE_CAPITALIZE);
}

static tpl_value strip(tpl *t, tpl_value self, const tpl_args *args, tpl_side side) {
    tpl_value chars;
    tpl_bind(t, "strip", args, "chars", 0, &chars);
    return tpl_strip(t, self, chars, side);
}

static tpl_value str_strip(tpl *t, tpl_value self, const tpl_args *args) {
    return strip(t, self, args, SIDE_BOTH);
}

static tpl_value str_lstrip(tpl *t, tpl_value self, const tpl_args *args) {
    return strip(t, self, args, SIDE_LEFT);
}

static tpl_value str_rstrip(tpl *t, tpl_value self, const tpl_args *args) {
    return strip(t, self, args, SIDE_RIGHT);
}

static tpl_value str_removeprefix(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value fix;
    tpl_bind(t, "removeprefix", args, "prefix", 1, &fix);
    const tpl_str *s = self.str, *f = tpl_string_arg(t, fix, "prefix").str;
    tpl_work(t, f->n);
    if (f->n > s->n || memcmp(s->s, f->s, f->n) != 0) return self;
    return tpl_with_safety(t, tpl_string(t, s->s + f->n, s->n - f->n), s->safe);
}

static tpl_value str_removesuffix(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value fix;
    tpl_bind(t, "removesuffix", args, "suffix", 1, &fix);
    const tpl_str *s = self.str, *f = tpl_string_arg(t, fix, "suffix").str;
    tpl_work(t, f->n);
    if (f->n > s->n || memcmp(s->s + s->n - f->n, f->s, f->n) != 0) return self;
    return tpl_with_safety(t, tpl_string(t, s->s, s->n - f->n), s->safe);
}

static tpl_value pad(tpl *t, tpl_value self, const tpl_args *args, tpl_side side) {
    tpl_value a[2];
    tpl_bind(t, "justify", args, "width fillchar", 1, a);
    return tpl_pad(t, self, tpl_int_arg(t, a[0], 0), a[1], side);
}

static tpl_value str_ljust(tpl *t, tpl_value self, const tpl_args *args) {
    return pad(t, self, args, SIDE_LEFT);
}

static tpl_value str_rjust(tpl *t, tpl_value self, const tpl_args *args) {
    return pad(t, self, args, SIDE_RIGHT);
}

static tpl_value str_center(tpl *t, tpl_value self, const tpl_args *args) {
    return pad(t, self, args, SIDE_BOTH);
}

static tpl_value str_zfill(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value width;
    tpl_buffer b = {0};
    tpl_bind(t, "zfill", args, "width", 1, &width);
    int64_t n = (int64_t)tpl_chars(t, self), wanted = tpl_int_arg(t, width, 0);
    if (wanted <= n) return self;
    bool sign = self.str->n && (self.str->s[0] == '-' || self.str->s[0] == '+');
    tpl_value zeros = tpl_repeat(t, tpl_text(t, "0"), wanted - n);
    tpl_put(t, &b, self.str->s, sign);
    tpl_put(t, &b, zeros.str->s, zeros.str->n);
    tpl_put(t, &b, self.str->s + sign, self.str->n - sign);
    return tpl_buffer_string(t, &b);
}

/* ---- str: searching -------------------------------------------------------------------------- */

/* The range of a string that two bounds select, as in find(), index() and count(). */
static bool window(tpl *t, tpl_value self, tpl_value from, tpl_value to, size_t *first,
                   size_t *last) {
    int64_t n = (int64_t)tpl_chars(t, self), a = tpl_int_arg(t, from, 0), b = tpl_int_arg(t, to, n);
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (b > n) b = n;
    *first = (size_t)(a > n ? n : a);
    *last = (size_t)(b < a ? *first : (size_t)b);
    return a <= n && a <= b;
}

static tpl_value find(tpl *t, tpl_value self, const tpl_args *args, bool last, bool must) {
    tpl_value a[3];
    size_t from, to;
    tpl_bind(t, "find", args, "sub start end", 1, a);
    const tpl_str *sub = tpl_string_arg(t, a[0], "sub").str;
    const char *found = NULL;
    if (window(t, self, a[1], a[2], &from, &to)) {
        const char *s = tpl_char_at(t, self, from), *end = tpl_char_at(t, self, to);
        tpl_work(t, (size_t)(end - s));
        if (!last) {
            found = sub->n ? os_find(s, (size_t)(end - s), sub->s, sub->n) : s;
        } else if ((size_t)(end - s) >= sub->n) {
            tpl_work(t, (size_t)(end - s) * (sub->n < 64 ? 1 : sub->n / 16));
            for (found = end - sub->n; found >= s && memcmp(found, sub->s, sub->n) != 0;) found--;
            if (found < s) found = NULL;
        }
    }
    if (!found && must) tpl_type_error(t, "substring not found");
    if (!found) return tpl_int(-1);
    tpl_value before = tpl_string(t, self.str->s, (size_t)(found - self.str->s));
    return tpl_int((int64_t)tpl_chars(t, before));
}

static tpl_value str_find(tpl *t, tpl_value self, const tpl_args *args) {
    return find(t, self, args, false, false);
}

static tpl_value str_rfind(tpl *t, tpl_value self, const tpl_args *args) {
    return find(t, self, args, true, false);
}

static tpl_value str_index(tpl *t, tpl_value self, const tpl_args *args) {
    return find(t, self, args, false, true);
}

static tpl_value str_rindex(tpl *t, tpl_value self, const tpl_args *args) {
    return find(t, self, args, true, true);
}

static tpl_value str_count(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value a[3];
    size_t from, to;
    int64_t count = 0;
    tpl_bind(t, "count", args, "sub start end", 1, a);
    const tpl_str *sub = tpl_string_arg(t, a[0], "sub").str;
    if (!window(t, self, a[1], a[2], &from, &to)) return tpl_int(0);
    if (sub->n == 0) return tpl_int((int64_t)(to - from) + 1);
    const char *s = tpl_char_at(t, self, from), *end = tpl_char_at(t, self, to);
    tpl_work(t, (size_t)(end - s));
    while ((s = os_find(s, (size_t)(end - s), sub->s, sub->n)) != NULL) {
        s += sub->n;
        count++;
    }
    return tpl_int(count);
}

static bool has_fix(tpl *t, tpl_value part, tpl_value fix, bool at_end) {
    const tpl_str *s = part.str, *f = fix.str;
    if (!tpl_is_string(fix))
        tpl_type_error(t, "%s first arg must be str or a tuple of str, not %s",
                       at_end ? "endswith" : "startswith", tpl_type(fix));
    tpl_work(t, f->n);
    return f->n <= s->n && memcmp(at_end ? s->s + s->n - f->n : s->s, f->s, f->n) == 0;
}

static tpl_value with_fix(tpl *t, tpl_value self, const tpl_args *args, bool at_end) {
    tpl_value a[3];
    size_t from, to;
    tpl_bind(t, at_end ? "endswith" : "startswith", args, "fix start end", 1, a);
    if (a[0].kind == TPL_UNDEFINED) tpl_fail_undefined(t, a[0]);
    bool inside = window(t, self, a[1], a[2], &from, &to);
    tpl_value part = tpl_substring(t, self, from, to);
    if (a[0].kind != TPL_TUPLE) return tpl_bool(has_fix(t, part, a[0], at_end) && inside);
    tpl_work(t, a[0].list->n * sizeof a[0]);
    for (size_t i = 0; i < a[0].list->n; i++)
        if (has_fix(t, part, a[0].list->items[i], at_end) && inside) return tpl_bool(true);
    return tpl_bool(false);
}

static tpl_value str_startswith(tpl *t, tpl_value self, const tpl_args *args) {
    return with_fix(t, self, args, false);
}

static tpl_value str_endswith(tpl *t, tpl_value self, const tpl_args *args) {
    return with_fix(t, self, args, true);
}

static tpl_value str_replace(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value a[3];
    tpl_bind(t, "replace", args, "old new count", 2, a);
    tpl_value from = as_argument(t, self, a[0], "replace() argument 1");
    tpl_value to = as_argument(t, self, a[1], "replace() argument 2");
    return tpl_replace(t, self, from, to, tpl_int_arg(t, a[2], -1));
}

/* ---- str: splitting and joining -------------------------------------------------------------- */

static void add_part(tpl *t, tpl_list *list, tpl_value self, size_t from, size_t to) {
    tpl_value part = tpl_string(t, self.str->s + from, to - from);
    part.str->safe = self.str->safe;
    tpl_list_add(t, list, part);
}

static size_t space_end(const tpl_str *s, size_t at) {
    size_t step;
    while (at < s->n) {
        int32_t c = utf8_decode(s->s + at, s->n - at, &step);
        if (c < 0 || !tpl_is_space((uint32_t)c)) break;
        at += step;
    }
    return at;
}

static size_t word_end(const tpl_str *s, size_t at) {
    size_t step;
    while (at < s->n) {
        int32_t c = utf8_decode(s->s + at, s->n - at, &step);
        if (c >= 0 && tpl_is_space((uint32_t)c)) break;
        at += step;
    }
    return at;
}

static void split_words(tpl *t, tpl_value self, int64_t most, tpl_list *list) {
    const tpl_str *s = self.str;
    tpl_work(t, s->n);
    for (size_t at = space_end(s, 0); at < s->n;) {
        if (most == 0) { /* the rest, including the blanks at its end */
            add_part(t, list, self, at, s->n);
            return;
        }
        size_t end = word_end(s, at);
        add_part(t, list, self, at, end);
        at = space_end(s, end);
        if (most > 0) most--;
    }
}

static void split_at(tpl *t, tpl_value self, const tpl_str *sep, int64_t most, tpl_list *list) {
    const char *s = self.str->s, *end = s + self.str->n, *found;
    tpl_work(t, self.str->n);
    while (most != 0 && (found = os_find(s, (size_t)(end - s), sep->s, sep->n))) {
        add_part(t, list, self, (size_t)(s - self.str->s), (size_t)(found - self.str->s));
        s = found + sep->n;
        if (most > 0) most--;
    }
    add_part(t, list, self, (size_t)(s - self.str->s), self.str->n);
}

static void reverse(tpl_list *list) {
    for (size_t i = 0, j = list->n; i + 1 < j; i++) {
        tpl_value v = list->items[i];
        list->items[i] = list->items[--j];
        list->items[j] = v;
    }
}

static void rsplit_at(tpl *t, tpl_value self, const tpl_str *sep, int64_t most, tpl_list *list) {
    const char *s = self.str->s;
    size_t end = self.str->n, at = end;
    tpl_work(t, end * (sep->n < 64 ? 1 : sep->n / 16));
    while (most != 0 && at >= sep->n) {
        if (memcmp(s + at - sep->n, sep->s, sep->n) != 0) {
            at--;
            continue;
        }
        add_part(t, list, self, at, end);
        end = at = at - sep->n;
        if (most > 0) most--;
    }
    add_part(t, list, self, 0, end);
    reverse(list);
}

static void rsplit_words(tpl *t, tpl_value self, int64_t most, tpl_list *list) {
    tpl_list all = {0};
    split_words(t, self, -1, &all);
    if (most < 0 || all.n <= (size_t)most) {
        *list = all;
        return;
    }
    size_t kept = (size_t)most;
    const char *end = kept ? all.items[all.n - kept].str->s : self.str->s + self.str->n;
    tpl_value rest = tpl_string(t, self.str->s, (size_t)(end - self.str->s));
    rest.str->safe = self.str->safe;
    rest = tpl_strip(t, rest, missing, SIDE_RIGHT);
    if (rest.str->n) tpl_list_add(t, list, rest);
    for (size_t i = all.n - kept; i < all.n; i++) tpl_list_add(t, list, all.items[i]);
}

static tpl_value split(tpl *t, tpl_value self, const tpl_args *args, bool from_right) {
    tpl_value a[2];
    tpl_bind(t, from_right ? "rsplit" : "split", args, "sep maxsplit", 0, a);
    tpl_list *list = tpl_list_new(t, 0);
    int64_t most = tpl_int_arg(t, a[1], -1);
    if (most < 0) most = -1;
    if (a[0].kind == TPL_MISSING || a[0].kind == TPL_NONE) {
        if (from_right)
            rsplit_words(t, self, most, list);
        else
            split_words(t, self, most, list);
        return tpl_of_list(TPL_LIST, list);
    }
    const tpl_str *sep = tpl_string_arg(t, a[0], "sep").str;
    if (sep->n == 0) tpl_type_error(t, "empty separator");
    if (from_right)
        rsplit_at(t, self, sep, most, list);
    else
        split_at(t, self, sep, most, list);
    return tpl_of_list(TPL_LIST, list);
}

static tpl_value str_split(tpl *t, tpl_value self, const tpl_args *args) {
    return split(t, self, args, false);
}

static tpl_value str_rsplit(tpl *t, tpl_value self, const tpl_args *args) {
    return split(t, self, args, true);
}

static tpl_value str_splitlines(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value keep;
    tpl_bind(t, "splitlines", args, "keepends", 0, &keep);
    return tpl_of_list(TPL_LIST, tpl_split_lines(t, self, tpl_bool_arg(keep, false)));
}

static tpl_value partition(tpl *t, tpl_value self, const tpl_args *args, bool last) {
    tpl_value separator;
    tpl_bind(t, "partition", args, "sep", 1, &separator);
    const tpl_str *sep = tpl_string_arg(t, separator, "sep").str;
    if (sep->n == 0) tpl_type_error(t, "empty separator");
    tpl_list *list = tpl_list_new(t, 0), *out = tpl_list_new(t, 3);
    if (last)
        rsplit_at(t, self, sep, 1, list);
    else
        split_at(t, self, sep, 1, list);
    bool found = list->n == 2;
    tpl_value empty = tpl_with_safety(t, tpl_text(t, ""), self.str->safe);
    tpl_list_add(t, out, found || !last ? list->items[0] : empty);
    tpl_list_add(t, out, found ? tpl_with_safety(t, separator, self.str->safe) : empty);
    tpl_list_add(t, out, found ? list->items[1] : last ? list->items[0] : empty);
    return tpl_of_list(TPL_TUPLE, out);
}

static tpl_value str_partition(tpl *t, tpl_value self, const tpl_args *args) {
    return partition(t, self, args, false);
}

static tpl_value str_rpartition(tpl *t, tpl_value self, const tpl_args *args) {
    return partition(t, self, args, true);
}

static tpl_value str_join(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value over;
    tpl_buffer b = {0};
    tpl_bind(t, "join", args, "iterable", 1, &over);
    const tpl_list *items = tpl_iterate(t, over);
    tpl_work(t, items->n * sizeof *items->items);
    for (size_t i = 0; i < items->n; i++) {
        tpl_value item = items->items[i];
        if (!tpl_is_string(item) && !self.str->safe) {
            tpl_type_error(t, "sequence item %zu: expected str instance, %s found", i,
                           tpl_type(item));
        }
        if (self.str->safe) item = tpl_escape(t, item);
        if (i) tpl_put(t, &b, self.str->s, self.str->n);
        tpl_put(t, &b, item.str->s, item.str->n);
    }
    return tpl_with_safety(t, tpl_buffer_string(t, &b), self.str->safe);
}

/* ---- str: predicates ------------------------------------------------------------------------- */

static tpl_value all_are(tpl *t, tpl_value self, const tpl_args *args, bool (*is)(uint32_t),
                         bool when_empty) {
    size_t step;
    NO_ARGS("this method");
    tpl_work(t, self.str->n);
    for (size_t i = 0; i < self.str->n; i += step) {
        int32_t c = utf8_decode(self.str->s + i, self.str->n - i, &step);
        if (c < 0 || !is((uint32_t)c)) return tpl_bool(false);
    }
    return tpl_bool(self.str->n > 0 || when_empty);
}

static bool is_alnum(uint32_t c) {
    return tpl_is_alpha(c) || tpl_is_numeric(c);
}

static bool is_ascii(uint32_t c) {
    return c < 0x80;
}

#define QUESTION(name, test, when_empty)                                                           \
    static tpl_value str_##name(tpl *t, tpl_value self, const tpl_args *args) {                    \
        return all_are(t, self, args, test, when_empty);                                           \
    }
QUESTION(isdigit, tpl_is_digit, false)
QUESTION(isdecimal, tpl_is_decimal, false)
QUESTION(isnumeric, tpl_is_numeric, false)
QUESTION(isalpha, tpl_is_alpha, false)
QUESTION(isalnum, is_alnum, false)
QUESTION(isspace, tpl_is_space, false)
QUESTION(isascii, is_ascii, true)
QUESTION(isprintable, tpl_is_printable, true)

static tpl_value str_isupper(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("isupper");
    return tpl_bool(tpl_all_cased(t, self, true));
}

static tpl_value str_islower(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("islower");
    return tpl_bool(tpl_all_cased(t, self, false));
}

static tpl_value str_format(tpl *t, tpl_value self, const tpl_args *args) {
    return tpl_format_braces(t, self, args);
}

static const tpl_entry_point str_methods[] = {{"strip", str_strip},
                                              {"split", str_split},
                                              {"lstrip", str_lstrip},
                                              {"rstrip", str_rstrip},
                                              {"replace", str_replace},
                                              {"startswith", str_startswith},
                                              {"endswith", str_endswith},
                                              {"upper", str_upper},
                                              {"lower", str_lower},
                                              {"title", str_title},
                                              {"capitalize", str_capitalize},
                                              {"casefold", str_lower},
                                              {"format", str_format},
                                              {"join", str_join},
                                              {"find", str_find},
                                              {"rfind", str_rfind},
                                              {"index", str_index},
                                              {"rindex", str_rindex},
                                              {"count", str_count},
                                              {"rsplit", str_rsplit},
                                              {"splitlines", str_splitlines},
                                              {"partition", str_partition},
                                              {"rpartition", str_rpartition},
                                              {"removeprefix", str_removeprefix},
                                              {"removesuffix", str_removesuffix},
                                              {"ljust", str_ljust},
                                              {"rjust", str_rjust},
                                              {"center", str_center},
                                              {"zfill", str_zfill},
                                              {"isdigit", str_isdigit},
                                              {"isdecimal", str_isdecimal},
                                              {"isnumeric", str_isnumeric},
                                              {"isalpha", str_isalpha},
                                              {"isalnum", str_isalnum},
                                              {"isspace", str_isspace},
                                              {"isascii", str_isascii},
                                              {"isprintable", str_isprintable},
                                              {"isupper", str_isupper},
                                              {"islower", str_islower},
                                              {NULL, NULL}};

/* ---- dict ------------------------------------------------------------------------------------ */

static tpl_value dict_get(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value a[2];
    tpl_bind(t, "get", args, "key default", 1, a);
    tpl_entry *e = tpl_dict_find(t, self.dict, a[0]);
    if (e) return e->value;
    return a[1].kind == TPL_MISSING ? tpl_none() : a[1];
}

static tpl_value view(tpl *t, tpl_value self, const char *type) {
    tpl_list *list = tpl_list_new(t, self.dict->n);
    list->type = type;
    for (size_t i = 0; i < self.dict->n; i++) {
        const tpl_entry *e = &self.dict->entries[i];
        bool keys = type[5] == 'k', values = type[5] == 'v'; /* dict_keys, dict_values */
        tpl_list_add(t, list, keys ? e->key : values ? e->value : tpl_pair(t, e->key, e->value));
    }
    return tpl_of_list(TPL_VIEW, list);
}

static tpl_value dict_items(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("items");
    return view(t, self, "dict_items");
}

static tpl_value dict_keys(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("keys");
    return view(t, self, "dict_keys");
}

static tpl_value dict_values(tpl *t, tpl_value self, const tpl_args *args) {
    NO_ARGS("values");
    return view(t, self, "dict_values");
}

static tpl_value dict_copy(tpl *t, tpl_value self, const tpl_args *args) {
    (void)t;
    NO_ARGS("copy");
    return self; /* both are immutable */
}

static const tpl_entry_point dict_methods[] = {{"get", dict_get},   {"items", dict_items},
                                               {"keys", dict_keys}, {"values", dict_values},
                                               {"copy", dict_copy}, {NULL, NULL}};

/* ---- list and tuple -------------------------------------------------------------------------- */

static tpl_value list_count(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value item;
    int64_t count = 0;
    tpl_bind(t, "count", args, "value", 1, &item);
    for (size_t i = 0; i < self.list->n; i++) count += tpl_equal(t, self.list->items[i], item);
    return tpl_int(count);
}

static tpl_value list_index(tpl *t, tpl_value self, const tpl_args *args) {
    tpl_value a[3];
    tpl_bind(t, "index", args, "value start stop", 1, a);
    int64_t n = (int64_t)self.list->n, from = tpl_int_arg(t, a[1], 0), to = tpl_int_arg(t, a[2], n);
    if (from < 0) from = from + n < 0 ? 0 : from + n;
    if (to < 0) to += n;
    for (int64_t i = from; i < n && i < to; i++)
        if (tpl_equal(t, self.list->items[i], a[0])) return tpl_int(i);
    tpl_type_error(t, "%s is not in list", tpl_cstr(t, a[0]));
}

static tpl_value list_copy(tpl *t, tpl_value self, const tpl_args *args) {
    (void)t;
    NO_ARGS("copy");
    return self;
}

static const tpl_entry_point list_methods[] = {
    {"count", list_count}, {"index", list_index}, {"copy", list_copy}, {NULL, NULL}};

/* ---- attributes ------------------------------------------------------------------------------ */

static bool among(tpl_value name, const char *const *names) {
    for (; *names; names++)
        if (tpl_is(name, *names)) return true;
    return false;
}

static bool is_hidden(tpl_value object, tpl_value name) {
    static const char *const of_dicts[] = {"pop", "popitem", "setdefault", "update", "clear", NULL};
    static const char *const of_lists[] = {"append", "clear",  "pop",    "reverse", "insert",
                                           "sort",   "extend", "remove", NULL};
    static const char *const of_strings[] = {"format_map", "encode",   "translate",
                                             "maketrans",  "istitle",  "isidentifier",
                                             "expandtabs", "swapcase", NULL};
    if (object.kind == TPL_DICT) return among(name, of_dicts);
    if (object.kind == TPL_LIST) return among(name, of_lists);
    return object.kind == TPL_STRING && among(name, of_strings);
}

tpl_value tpl_method(tpl *t, tpl_value object, tpl_value name) {
    const tpl_entry_point *table = NULL;
    if (object.kind == TPL_STRING)
        table = str_methods;
    else if (object.kind == TPL_DICT)
        table = dict_methods;
    else if (object.kind >= TPL_LIST && object.kind <= TPL_RANGE)
        table = list_methods;
    if (object.kind == TPL_TUPLE && object.list->type) { /* items of groupby */
        if (tpl_is(name, "grouper")) return object.list->items[0];
        if (tpl_is(name, "list")) return object.list->items[1];
    }
    if (object.kind == TPL_MACRO && tpl_is(name, "name"))
        return tpl_text(t, object.macro->signature->name);
    tpl_function call = table ? tpl_find_in(table, name.str->s, name.str->n) : NULL;
    if (call) return tpl_of_function(t, TPL_METHOD, name.str->n ? "method" : "", call, object);
    if (is_hidden(object, name)) return tpl_undefined_unsafe(t, tpl_type(object), name);
    return missing;
}
