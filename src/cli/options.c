/* options.c: parses the command line by the rows of option_table.
 *
 * Every value, whether a default, from the environment or typed, goes through option_set, so that
 * all of them obey the same rules. No function here allocates or prints; messages go into a
 * pi_error. */
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ascii_case.h"
#include "edit_distance.h"
#include "error.h"
#include "file.h"

enum { SUGGESTION_WORDS = 1024 /* maximum number of names of one command */ };

/* ---- values ---------------------------------------------------------------------------------- */

bool option_parse_integer(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno) return false;
    *out = value;
    return true;
}

static bool parse_number(const char *text, double *out) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || isnan(value)) return false;
    *out = value;
    return true;
}

bool option_parse_bool(const char *text, bool *out) {
    static const char *const words[2][5] = {{"0", "false", "off", "no", "disabled"},
                                            {"1", "true", "on", "yes", "enabled"}};
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 5; i++) {
            if (strcmp(text, words[value][i]) == 0) {
                *out = value;
                return true;
            }
        }
    }
    return false;
}

/* %g prints limits such as 0 and 1 plainly. The limits of float are not printed: any number is
 * valid. */
static pi_status bad_number(const option *o, const char *text, const char *where, pi_error *err) {
    if (fabs(o->max) > 1e30) {
        return error_set(err, PI_ERR_ARG, "invalid value: %s \"%.200s\": expected a number%s",
                         where, text, o->min == 0 ? " that is not negative" : "");
    }
    return error_set(err, PI_ERR_ARG,
                     "invalid value: %s \"%.200s\": expected a number from %g to %g", where, text,
                     o->min, o->max);
}

static pi_status set_integer(const option *o, int64_t *out, const char *text, const char *where,
                             pi_error *err) {
    int64_t value;
    if (!option_parse_integer(text, &value) || (double)value < o->min || (double)value > o->max)
        return error_set(err, PI_ERR_ARG,
                         "invalid value: %s \"%.200s\": expected an integer from %.0f to %.0f",
                         where, text, o->min, o->max);
    *out = value;
    return PI_OK;
}

static pi_status set_number(const option *o, double *out, const char *text, const char *where,
                            pi_error *err) {
    double value;
    if (!parse_number(text, &value) || value < o->min || value > o->max) {
        return bad_number(o, text, where, err);
    }
    *out = value;
    return PI_OK;
}

/* "8", "8G", "8GiB", "512M", ...: units are powers of 1024. False: not a size. */
static bool parse_size(const char *text, double *out) {
    static const char letters[] = "KMGT";
    char number[OPTION_NAME_BYTES];
    size_t n = strcspn(text, "kKmMgGtT");
    if (n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = 0;
    if (!parse_number(number, out)) return false;
    if (!text[n]) return true;
    int power = (int)(strchr(letters, toupper((unsigned char)text[n])) - letters);
    const char *rest = text + n + 1;
    if (*rest && !ascii_same(rest, "i") && !ascii_same(rest, "iB") && !ascii_same(rest, "B"))
        return false;
    *out = ldexp(*out, 10 * (power - 2)); /* G is 1 */
    return true;
}

static pi_status set_size(const option *o, double *out, const char *text, const char *where,
                          pi_error *err) {
    double value;
    if (!parse_size(text, &value) || value < o->min || value > o->max)
        return error_set(
            err, PI_ERR_ARG,
            "invalid value: %s \"%.200s\": expected a size such as 8 or 8G (GiB), 512M "
            "or 1T",
            where, text);
    *out = value;
    return PI_OK;
}

/* Writes "auto|dense" as "auto, dense", truncated to the buffer. */
static void describe_choices(const char *choices, char *buf, size_t n_buf) {
    size_t used = 0;
    for (; *choices && used + 3 < n_buf; choices++) {
        if (*choices == '|') buf[used++] = ',';
        buf[used++] = *choices == '|' ? ' ' : *choices;
    }
    buf[used] = 0;
}

/* Index of `text` among words separated by `|`; -1: none. */
static int choice_index(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (int i = 0; *choices; i++) {
        size_t length = strcspn(choices, "|");
        if (n == length && strncmp(choices, text, length) == 0) return i;
        choices += length + (choices[length] == '|');
    }
    return -1;
}

/* Parses different numbers, separated by commas. */
static bool read_numbers(const char *text, int64_t *out) {
    for (int i = 0; i < PI_MAX_DEVICES; i++) {
        char digits[4];
        int64_t number;
        size_t n = strcspn(text, ",");
        if (n == 0 || n >= sizeof digits) return false;
        memcpy(digits, text, n);
        digits[n] = 0;
        if (!option_parse_integer(digits, &number) || number < 0 || number > OPTION_MAX_NUMBER)
            return false;
        for (int k = 0; k < i; k++)
            if (option_number_of(*out, k) == number) return false;
        *out |= (number + 1) << (OPTION_CHOICE_BITS + i * OPTION_NUMBER_BITS);
        text += n;
        if (!*text++) return true;
    }
    return false;
}

static pi_status set_choice(const option *o, int64_t *out, const char *text, const char *where,
                            pi_error *err) {
    char known[128], name[32];
    int i = choice_index(o->choices, text);
    size_t n_name = strcspn(text, ":");
    if (o->indexed && text[n_name] == ':' && n_name < sizeof name) {
        memcpy(name, text, n_name);
        name[n_name] = 0;
        i = choice_index(o->choices, name);
        *out = i;
        if (i >= o->indexed && read_numbers(text + n_name + 1, out)) return PI_OK;
        if (i >= o->indexed)
            return error_set(err, PI_ERR_ARG,
                             "invalid value: %s \"%.200s\": expected different numbers of devices "
                             "behind \"%s:\", such as %s:0,1",
                             where, text, name, name);
        i = -1;
    }
    if (i >= 0) {
        *out = i;
        return PI_OK;
    }
    describe_choices(o->choices, known, sizeof known);
    return error_set(err, PI_ERR_ARG, "invalid value: %s \"%.200s\": expected one of %s", where,
                     text, known);
}

/* "3,1" or "3/1". */
static pi_status set_numbers(const option *o, option_numbers *out, const char *text,
                             const char *where, pi_error *err) {
    option_numbers list = {.count = 0};
    for (const char *item = text;; item++) {
        char one[32];
        size_t n = strcspn(item, ",/");
        double *value = &list.values[list.count];
        bool good = n < sizeof one && list.count < PI_MAX_DEVICES;
        if (good) memcpy(one, item, n);
        if (good) one[n] = 0;
        if (!good || !parse_number(one, value) || *value < o->min || *value > o->max)
            return error_set(err, PI_ERR_ARG,
                             "invalid value: %s \"%.200s\": expected at most %d numbers of %g or "
                             "more, such as 3,1",
                             where, text, PI_MAX_DEVICES, o->min);
        list.count++;
        item += n;
        if (!*item) break;
    }
    *out = list;
    return PI_OK;
}

static pi_status set_list(const option *o, option_list *out, const char *text, const char *where,
                          pi_error *err) {
    option_list list = {.count = 0};
    const char *item = text;
    for (;;) {
        char digits[24];
        size_t length = strcspn(item, ",");
        if (list.count == PI_BENCH_MAX_LIST) {
            return error_set(err, PI_ERR_ARG, "too many values: %s: at most %d", where,
                             PI_BENCH_MAX_LIST);
        }
        int64_t value = 0;
        bool fits = length < sizeof digits;
        if (fits) {
            memcpy(digits, item, length);
            digits[length] = 0;
        }
        if (!fits || !option_parse_integer(digits, &value) || (double)value < o->min ||
            (double)value > o->max) {
            return error_set(err, PI_ERR_ARG,
                             "invalid value: %s \"%.200s\": expected integers such as 512,128",
                             where, text);
        }
        list.values[list.count++] = (int32_t)value;
        if (!item[length]) break;
        item += length + 1;
    }
    *out = list;
    return PI_OK;
}

static pi_status set_pair(const option *o, option_pair *out, const char *text, const char *where,
                          pi_error *err) {
    char first[32];
    option_pair pair;
    size_t length = strcspn(text, ":");
    bool good = text[length] == ':' && length < sizeof first;
    if (good) {
        memcpy(first, text, length);
        first[length] = 0;
        good = parse_number(first, &pair.first) && parse_number(text + length + 1, &pair.second);
    }
    if (!good || pair.first < o->min || pair.first > o->max || pair.second < o->min ||
        pair.second > o->max) {
        return error_set(
            err, PI_ERR_ARG,
            "invalid value: %s \"%.200s\": expected two numbers from %g to %g, such as "
            "0.26:0.8",
            where, text, o->min, o->max);
    }
    *out = pair;
    return PI_OK;
}

static pi_status add_text(option_texts *out, const char *text, const char *where, pi_error *err) {
    if (out->count == OPTION_MAX_TEXTS) {
        return error_set(err, PI_ERR_ARG, "too many values: %s: at most %d", where,
                         OPTION_MAX_TEXTS);
    }
    out->values[out->count++] = text;
    return PI_OK;
}

/* Translates `text` by the words of the option ("all=99"); returns other texts unchanged. */
static const char *translate(const option *o, const char *text, char *buf, size_t n_buf) {
    size_t n = strlen(text);
    for (const char *w = o->words; w && *w;) {
        size_t length = strcspn(w, "|"), equals = strcspn(w, "=");
        if (n == equals && strncmp(w, text, n) == 0) {
            snprintf(buf, n_buf, "%.*s", (int)(length - equals - 1), w + equals + 1);
            return buf;
        }
        w += length + (w[length] == '|');
    }
    return text;
}

pi_status option_set(cli_options *out, const option *o, const char *text, const char *where,
                     pi_error *err) {
    void *field = (char *)out + o->offset;
    char meant[OPTION_NAME_BYTES];
    if (o->words) text = translate(o, text, meant, sizeof meant); /* never of a text option */
    switch (o->type) {
    case OPTION_FLAG:
        if (option_parse_bool(text, field)) return PI_OK;
        return error_set(err, PI_ERR_ARG, "invalid value: %s \"%.200s\": expected 1 or 0", where,
                         text);
    case OPTION_INTEGER:
        return set_integer(o, field, text, where, err);
    case OPTION_NUMBER:
        return set_number(o, field, text, where, err);
    case OPTION_SIZE:
        return set_size(o, field, text, where, err);
    case OPTION_TEXT:
        *(const char **)field = text;
        return PI_OK;
    case OPTION_TEXTS:
        return add_text(field, text, where, err);
    case OPTION_CHOICE:
        return set_choice(o, field, text, where, err);
    case OPTION_LIST:
        return set_list(o, field, text, where, err);
    case OPTION_NUMBERS:
        return set_numbers(o, field, text, where, err);
    case OPTION_PAIR:
        return set_pair(o, field, text, where, err);
    }
    return error_set(err, PI_ERR_ARG, "unknown option type: %s: this is a bug", where);
}

/* ---- variants -------------------------------------------------------------------------------- */

/* Options that bench accepts with several values, in the order in which combinations change: the
 * first option changes fastest. */
static const size_t varied[] = {
    offsetof(cli_options, threads),      offsetof(cli_options, threads_batch),
    offsetof(cli_options, mode),         offsetof(cli_options, gpu_layers),
    offsetof(cli_options, cache_type_v), offsetof(cli_options, cache_type_k),
    offsetof(cli_options, batch_size),   offsetof(cli_options, model),
};
enum { N_VARIED = sizeof varied / sizeof varied[0] };

static bool is_varied(uint32_t command, const option *o) {
    if (command != COMMAND_BENCH) return false;
    for (int i = 0; i < N_VARIED; i++)
        if (o->offset == varied[i]) return true;
    return false;
}

static pi_status add_variant(cli_options *out, const option *o, const char *text, const char *where,
                             pi_error *err) {
    if (out->n_variants == OPTION_MAX_VARIANTS)
        return error_set(err, PI_ERR_ARG, "too many values: %s: at most %d can be combined", where,
                         OPTION_MAX_VARIANTS);
    out->variants[out->n_variants++] = (option_variant){(size_t)(o - option_table), text};
    return option_set(out, o, text, where, err);
}

/* Adds the values of a list. The name of an existing file is one value, even if it contains
 * commas. */
static pi_status add_variants(cli_options *out, const option *o, const char *text,
                              const char *where, pi_error *err) {
    if (!strchr(text, ',') || (o->type == OPTION_TEXT && file_exists(text)))
        return add_variant(out, o, text, where, err);
    pi_status status = PI_OK;
    while (status == PI_OK) {
        size_t n = strcspn(text, ",");
        char *copy = out->variant_text + out->variant_used;
        if (n >= sizeof out->variant_text - out->variant_used)
            return error_set(err, PI_ERR_ARG, "too many values: %s: the list is too long", where);
        memcpy(copy, text, n);
        copy[n] = 0;
        out->variant_used += n + 1;
        status = add_variant(out, o, copy, where, err);
        if (!text[n]) break;
        text += n + 1;
    }
    return status;
}

static int count_variants(const cli_options *o, size_t offset) {
    int n = 0;
    for (int i = 0; i < o->n_variants; i++) n += option_table[o->variants[i].row].offset == offset;
    return n;
}

int64_t options_combinations(const cli_options *o) {
    int64_t all = 1; /* n values in k groups: at most (n / k)^k */
    for (int i = 0; i < N_VARIED; i++) {
        int n = count_variants(o, varied[i]);
        if (n > 1) all *= n;
    }
    return all;
}

pi_status options_combination(const cli_options *o, int64_t k, cli_options *out, pi_error *err) {
    *out = *o;
    for (int i = 0; i < N_VARIED; i++) {
        int n = count_variants(o, varied[i]);
        if (n < 2) continue;
        int64_t wanted = k % n;
        k /= n;
        for (int v = 0; v < o->n_variants; v++) {
            const option *row = &option_table[o->variants[v].row];
            if (row->offset != varied[i] || wanted-- != 0) continue;
            pi_status status = option_set(out, row, o->variants[v].text, row->long_name, err);
            if (status != PI_OK) return status;
        }
    }
    return PI_OK;
}

/* Appends the values to the values typed before. */
static pi_status extend_list(const option *o, option_list *list, const char *text,
                             const char *where, pi_error *err) {
    option_list before = *list;
    pi_status status = set_list(o, list, text, where, err);
    if (status != PI_OK) return status;
    if (before.count + list->count > PI_BENCH_MAX_LIST)
        return error_set(err, PI_ERR_ARG, "too many values: %s: at most %d", where,
                         PI_BENCH_MAX_LIST);
    memcpy(before.values + before.count, list->values, (size_t)list->count * sizeof *list->values);
    before.count += list->count;
    *list = before;
    return PI_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *without_dashes(const char *word) {
    return word + strspn(word, "-");
}

/* Returns the only word that begins with `word`; NULL: none, or several. */
static const char *only_completion(const char *word, const char *const *words, size_t n) {
    const char *found = NULL;
    size_t length = strlen(word);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(without_dashes(words[i]), word, length) != 0) continue;
        if (found) return NULL;
        found = words[i];
    }
    return found;
}

const char *options_closest(const char *word, const char *const *words, size_t n) {
    enum { COMPLETED = 3 }; /* minimum letters of an abbreviation */
    word = without_dashes(word);
    size_t length = strlen(word);
    const char *closest = length >= COMPLETED ? only_completion(word, words, n) : NULL;
    if (closest) return closest;
    /* Maximum edits of a typo. A typo in a short word may give another word, so short words allow
     * fewer edits: one in three to five letters, two in up to nine, three in more. */
    size_t best = length < 3 ? 0 : length < 6 ? 1 : length < 10 ? 2 : 3;
    for (size_t i = 0; i < n && best > 0; i++) {
        size_t distance = edit_distance(word, without_dashes(words[i]));
        if (distance < best || (distance == best && !closest)) {
            best = distance;
            closest = words[i];
        }
    }
    return closest;
}

static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    while (*words) {
        size_t length = strcspn(words, " ");
        if (length == n && strncmp(words, word, n) == 0) return true;
        words += length + (words[length] == ' ');
    }
    return false;
}

bool option_is_opposite(const option *o, const char *word) {
    return o->opposite && has_word(o->opposite, word);
}

const option *option_find(uint32_t command, const char *word) {
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & command)) continue;
        if (word[0] == '-' && word[1] == '-' && strcmp(word + 2, o->long_name) == 0) return o;
        if (o->short_name && word[1] != '-' && strcmp(word + 1, o->short_name) == 0) return o;
        for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) {
            if (strcmp(word, o->aliases[a]) == 0) return o;
        }
        if (option_is_opposite(o, word)) return o;
    }
    return NULL;
}

static pi_status unknown_option(uint32_t command, const char *name, const char *word,
                                pi_error *err) {
    static const char *const always[] = {"--help"};
    char dashed[SUGGESTION_WORDS / 4][OPTION_NAME_BYTES];
    const char *words[SUGGESTION_WORDS];
    size_t n = 0, n_dashed = 0;
    words[n++] = always[0];
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & command)) continue;
        snprintf(dashed[n_dashed], sizeof dashed[0], "--%s", o->long_name);
        words[n++] = dashed[n_dashed++];
        for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) words[n++] = o->aliases[a];
    }
    assert(n <= SUGGESTION_WORDS && n_dashed <= SUGGESTION_WORDS / 4);
    /* An option of another command is not treated as a typo. */
    const char *closest = option_find(~0u, word) ? NULL : options_closest(word, words, n);
    if (closest) {
        return error_set(err, PI_ERR_ARG, "unknown option: %s: did you mean %s?", word, closest);
    }
    return error_set(err, PI_ERR_ARG, "unknown option: %s: see powerinfer %s --help", word, name);
}

/* ---- compat options -------------------------------------------------------------------------- */

const option_compat *compat_find(uint32_t command, const char *word) {
    for (size_t i = 0; i < compat_count; i++) {
        const option_compat *h = &compat_table[i];
        if ((h->commands & command) && has_word(h->names, word)) return h;
    }
    return NULL;
}

/* Whether no value of a list such as "0,1" has an effect (llama-bench takes lists). */
static bool compat_accepts(const option_compat *h, const char *text) {
    char item[OPTION_NAME_BYTES];
    int64_t number;
    if (*h->accepted == '*') return true;
    if (!*h->accepted) return !*text;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        if (length >= sizeof item) return false;
        memcpy(item, text, length);
        item[length] = 0;
        bool good = *h->accepted == '#' ? option_parse_integer(item, &number)
                                        : choice_index(h->accepted, item) >= 0;
        if (!good) return false;
        text += length;
        if (!*text) return true;
    }
}

static pi_status compat_refuses(const option_compat *h, const char *text, const char *word,
                                pi_error *err) {
    char known[128];
    if (h->later) return error_set(err, PI_ERR_ARG, "%s is not supported yet: %s", word, h->later);
    if (h->refused)
        return error_set(err, PI_ERR_ARG, "%s %.200s is not supported: %s", word, text, h->refused);
    if (*h->accepted == '#')
        return error_set(err, PI_ERR_ARG, "invalid value: %s \"%.200s\": expected an integer", word,
                         text);
    describe_choices(h->accepted, known, sizeof known);
    return error_set(err, PI_ERR_ARG, "invalid value: %s \"%.200s\": expected one of %s", word,
                     text, known);
}

void option_add_idle(cli_options *out, const char *word) {
    size_t used = strlen(out->idle), n = strlen(word);
    for (const char *at = out->idle; (at = strstr(at, word)); at++)
        if ((at == out->idle || at[-1] == ' ') && (!at[n] || at[n] == ',')) return;
    if (used + n + sizeof ", " < sizeof out->idle)
        snprintf(out->idle + used, sizeof out->idle - used, "%s%s", used ? ", " : "", word);
}

/* Reads an option of compat_table. value: the text after `=`, or NULL. */
static pi_status read_compat(const option_compat *h, const char *word, const char *value, int argc,
                             char *const *argv, int *at, pi_error *err) {
    if (h->later) return compat_refuses(h, "", word, err);
    if (h->meant) return error_set(err, PI_ERR_ARG, "unknown option: %s: use %s", word, h->meant);
    if (!h->accepted)
        return error_set(err, PI_ERR_ARG, "%s is not supported: %s", word, h->refused);
    if (!h->argument) {
        if (!value) return PI_OK;
        return error_set(err, PI_ERR_ARG, "unexpected value: %s=%.200s: the option takes none",
                         word, value);
    }
    if (!value && h->may_be_bare && (*at >= argc || !compat_accepts(h, argv[*at]))) return PI_OK;
    if (!value && *at >= argc)
        return error_set(err, PI_ERR_ARG, "missing value: %s: expected %s after it", word,
                         h->argument);
    if (!value) value = argv[(*at)++];
    return compat_accepts(h, value) ? PI_OK : compat_refuses(h, value, word, err);
}

/* ---- sources --------------------------------------------------------------------------------- */

void option_mark(uint64_t bits[OPTION_MARK_WORDS], const option *o) {
    size_t row = (size_t)(o - option_table);
    bits[row / 64] |= UINT64_C(1) << (row % 64);
}

static bool marked(const uint64_t bits[OPTION_MARK_WORDS], const cli_options *o,
                   const void *field) {
    size_t offset = (size_t)((const char *)field - (const char *)o);
    for (size_t row = 0; row < option_count; row++) {
        if (option_table[row].offset != offset) continue;
        if (bits[row / 64] >> (row % 64) & 1) return true;
    }
    return false;
}

bool options_typed(const cli_options *o, const void *field) {
    return marked(o->on_command_line, o, field);
}

bool options_given(const cli_options *o, const void *field) {
    return options_typed(o, field) || marked(o->in_environment, o, field);
}

static pi_status read_defaults(cli_options *out, uint32_t command, pi_error *err) {
    pi_status status = PI_OK;
    for (size_t i = 0; i < option_count && status == PI_OK; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & command) || !o->standard) continue;
        status = option_set(out, o, o->standard, o->long_name, err);
    }
    return status;
}

/* Reads the option at argv[*at] and its value, and moves *at past them. */
static pi_status read_option(cli_options *out, uint32_t command, const char *name, int argc,
                             char *const *argv, int *at, pi_error *err) {
    char word[OPTION_NAME_BYTES];
    const char *typed = argv[(*at)++], *value = NULL;
    size_t length = strlen(typed);
    if (typed[1] == '-') {
        const char *equals = strchr(typed, '=');
        if (equals) {
            value = equals + 1;
            length = (size_t)(equals - typed);
        }
    }
    if (length >= sizeof word) {
        return error_set(err, PI_ERR_ARG, "unknown option: %.40s...: see powerinfer %s --help",
                         typed, name);
    }
    memcpy(word, typed, length);
    word[length] = 0;
    for (char *c = word; word[1] == '-' && *c; c++) {
        if (*c == '_') *c = '-';
    }
    const option *o = option_find(command, word);
    if (!o) {
        const option_compat *h = compat_find(command, word);
        if (!h) return unknown_option(command, name, word, err);
        pi_status idle = read_compat(h, word, value, argc, argv, at, err);
        if (idle == PI_OK) option_add_idle(out, word);
        return idle;
    }
    if (!value && o->type == OPTION_FLAG) value = "1";
    if (option_is_opposite(o, word)) {
        bool on;
        if (!option_parse_bool(value, &on)) return option_set(out, o, value, word, err);
        value = on ? "0" : "1";
    }
    char meant[OPTION_NAME_BYTES];
    if (!value && o->bare &&
        (*at >= argc || choice_index(o->choices, translate(o, argv[*at], meant, sizeof meant)) < 0))
        value = o->bare;
    if (!value) {
        if (*at >= argc) {
            return error_set(err, PI_ERR_ARG, "missing value: %s: expected %s after it", word,
                             o->argument);
        }
        value = argv[(*at)++];
    }
    if (o->type == OPTION_TEXTS && !options_typed(out, (char *)out + o->offset)) {
        ((option_texts *)(void *)((char *)out + o->offset))->count =
            0; /* typed values replace them */
    }
    void *field = (char *)out + o->offset;
    bool again = o->type == OPTION_LIST && options_typed(out, field);
    option_mark(out->on_command_line, o);
    if (again) return extend_list(o, field, value, word, err);
    if (is_varied(command, o)) return add_variants(out, o, value, word, err);
    double number;
    pi_status status = option_set(out, o, value, word, err);
    if (status == PI_OK && o->number_follows && *at < argc && parse_number(argv[*at], &number))
        status = option_set(out, o, argv[(*at)++], word, err);
    return status;
}

parse_result options_parse(cli_options *out, uint32_t command, const char *name,
                           int max_positionals, int argc, char *const *argv, pi_error *err) {
    *out = (cli_options){.words = argv, .n_words = argc};
    assert(max_positionals <= OPTION_MAX_POSITIONALS);
    if (read_defaults(out, command, err) != PI_OK) return PARSE_WRONG;
    if (option_read_environment(out, command, err) != PI_OK) return PARSE_WRONG;
    bool only_positionals = false;
    for (int at = 0; at < argc;) {
        const char *word = argv[at];
        if (!only_positionals && word[0] == '-' && word[1]) {
            if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
                strcmp(word, "--usage") == 0)
                return PARSE_HELP;
            if (strcmp(word, "--") == 0) {
                only_positionals = true;
                at++;
            } else if (read_option(out, command, name, argc, argv, &at, err) != PI_OK) {
                return PARSE_WRONG;
            }
            continue;
        }
        if (out->n_positionals == max_positionals) {
            error_set(err, PI_ERR_ARG, "unexpected argument: %.200s: see powerinfer %s --help",
                      word, name);
            return PARSE_WRONG;
        }
        out->positionals[out->n_positionals++] = word;
        at++;
    }
    int n_devices = 0, n_shares = out->tensor_split.count;
    while (n_devices < PI_MAX_DEVICES && option_number_of(out->device, n_devices) >= 0) n_devices++;
    if (n_devices == 0 || n_shares <= n_devices) return PARSE_OK;
    error_set(err, PI_ERR_ARG, "more shares than devices: --tensor-split: %d for %d devices",
              n_shares, n_devices);
    return PARSE_WRONG;
}
