/* test_cli_flags.c: compares docs/llama-flags.md with the program: its tables are those that
 * scripts/llama-flags.sh writes; every row is parsed as a command line by the program's parser,
 * with the result that the row states; --help shows every accepted flag, and no flag of the
 * program's tables is missing. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "options.h"

#define DOCUMENT TEST_SOURCE_DIR "/docs/llama-flags.md"

enum { NAME_ROOM = 64, MAX_COMPAT = 512, HELP_ROOM = 1 << 16, N_TOOLS = 8 };

static const struct {
    const char *name;
    uint32_t bit;
} tools[N_TOOLS] = {{"run", COMMAND_RUN},           {"serve", COMMAND_SERVE},
                    {"bench", COMMAND_BENCH},       {"perplexity", COMMAND_PERPLEXITY},
                    {"quantize", COMMAND_QUANTIZE}, {"imatrix", COMMAND_IMATRIX},
                    {"tokenize", COMMAND_TOKENIZE}, {"embed", COMMAND_EMBED}};

typedef struct row {
    int tool;
    char name[NAME_ROOM]; /* with dashes */
    bool takes_value, may_be_bare;
    const char *what; /* text of the second cell */
} row;

static cli_options parsed;
static char help[N_TOOLS][HELP_ROOM];
static int seen[MAX_COMPAT][N_TOOLS]; /* number of names of a compat option in the document */
static int n_rows[4];                 /* rows: same, accepted, use, not supported */

/* Fails the test unless "NAME [VALUE]" ends with `message`; NULL: no error. */
static void check_line(const row *r, const char *value, const char *message) {
    const char *words[] = {r->name, value};
    pi_error err = {.status = PI_OK};
    parse_result result = options_parse(&parsed, tools[r->tool].bit, tools[r->tool].name, 4,
                                        value ? 2 : 1, (char *const *)(uintptr_t)words, &err);
    const char *got = result == PARSE_WRONG ? err.message : NULL;
    if (!got && !message) return;
    if (!got || !message || strcmp(got, message) != 0)
        fail_msg("%s %s %s: \"%s\", the document says \"%s\"", tools[r->tool].name, r->name,
                 value ? value : "", got ? got : "accepted", message ? message : "accepted");
}

static bool turns_off(const option *o, const char *name) {
    char names[3 * NAME_ROOM], one[NAME_ROOM + 2];
    snprintf(names, sizeof names, " %s ", o->opposite ? o->opposite : "");
    snprintf(one, sizeof one, " %s ", name);
    return strstr(names, one) != NULL;
}

static const option *find_option(const row *r) {
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & tools[r->tool].bit)) continue;
        if (strncmp(r->name, "--", 2) == 0 && strcmp(r->name + 2, o->long_name) == 0) return o;
        if (o->short_name && strcmp(r->name + 1, o->short_name) == 0) return o;
        for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++)
            if (strcmp(r->name, o->aliases[a]) == 0) return o;
        if (turns_off(o, r->name)) return o;
    }
    return NULL;
}

/* Returns a value that this option must accept. */
static const char *sample(const option *o) {
    static char text[NAME_ROOM];
    switch (o->type) {
    case OPTION_INTEGER:
    case OPTION_NUMBER:
    case OPTION_SIZE:
        snprintf(text, sizeof text, "%.0f", o->max < 1 ? 0.0 : 1.0);
        return text;
    case OPTION_CHOICE:
        snprintf(text, sizeof text, "%.*s", (int)strcspn(o->choices, "|"), o->choices);
        return text;
    case OPTION_LIST:
        return "1,2";
    case OPTION_NUMBERS:
        return "3,1";
    case OPTION_PAIR:
        return "0.5:0.5";
    default:
        return "text";
    }
}

static void check_same(const row *r) {
    n_rows[0]++;
    const char *words[] = {r->name};
    if (strcmp(r->name, "-h") == 0 || strcmp(r->name, "--help") == 0 ||
        strcmp(r->name, "--usage") == 0) {
        assert_int_equal(options_parse(&parsed, tools[r->tool].bit, "name", 0, 1,
                                       (char *const *)(uintptr_t)words, NULL),
                         PARSE_HELP);
        return;
    }
    const option *o = find_option(r);
    if (!o) fail_msg("%s has no option %s", tools[r->tool].name, r->name);
    if ((o->type != OPTION_FLAG) != r->takes_value)
        fail_msg("%s %s: a value or not?", tools[r->tool].name, r->name);
    check_line(r, o->type == OPTION_FLAG ? NULL : sample(o), NULL);
    if (o->type == OPTION_FLAG &&
        *(const bool *)((const char *)&parsed + o->offset) == turns_off(o, r->name))
        fail_msg("%s %s: on or off?", tools[r->tool].name, r->name);
    if (!strstr(help[r->tool], r->name))
        fail_msg("%s --help does not show %s", tools[r->tool].name, r->name);
}

static const option_compat *find_compat(const row *r) {
    const option_compat *h = compat_find(tools[r->tool].bit, r->name);
    if (!h) fail_msg("%s %s is not in compat_table", tools[r->tool].name, r->name);
    seen[h - compat_table][r->tool]++;
    return h;
}

/* Returns the first word of "on|off" or "on/off"; a number for "#" and "*". */
static const char *first_value(const char *values, char *buf) {
    if (*values == '#' || *values == '*') return "7";
    snprintf(buf, NAME_ROOM, "%.*s", (int)strcspn(values, "|/,"), values);
    return buf;
}

static void check_accepted(const row *r) {
    char value[NAME_ROOM], message[512];
    const char *why = strstr(r->what, "; else not supported: ");
    n_rows[1]++;
    const option_compat *h = find_compat(r);
    assert_non_null(h->accepted);
    assert_int_equal(r->takes_value, h->argument != NULL);
    assert_int_equal(r->may_be_bare, h->may_be_bare);
    if (!h->argument || h->may_be_bare) check_line(r, NULL, NULL);
    if (h->argument) check_line(r, first_value(why ? r->what + 12 : h->accepted, value), NULL);
    if (why) {
        snprintf(message, sizeof message, "%s 9 is not supported: %s", r->name, why + 22);
        check_line(r, "9", message);
    }
    snprintf(value, sizeof value, " %.*s", (int)strcspn(h->names, " "), h->names);
    if (!strstr(help[r->tool], value))
        fail_msg("%s --help does not show%s", tools[r->tool].name, value);
}

static void check_refused(const row *r, const char *format) {
    char message[512];
    n_rows[strncmp(r->what, "use ", 4) == 0 ? 2 : 3]++;
    find_compat(r);
    snprintf(message, sizeof message, format, r->name, r->what);
    check_line(r, NULL, message);
}

static void check_row(const row *r) {
    if (strncmp(r->what, "same", 4) == 0 && (!r->what[4] || r->what[4] == ';')) {
        check_same(r);
    } else if (strcmp(r->what, "accepted, no effect") == 0 ||
               strncmp(r->what, "accepted at ", 12) == 0) {
        check_accepted(r);
    } else if (strncmp(r->what, "use ", 4) == 0) {
        check_refused(r, "unknown option: %s: %s");
    } else if (strncmp(r->what, "not supported", 13) == 0) {
        check_refused(r, "%s is %s");
    } else {
        fail_msg("%s: \"%s\" is none of the answers", r->name, r->what);
    }
}

/* Checks every name in backticks of "| `-a`, `--all N` | what |"; the last name has the value. */
static void check_table_line(int tool, char *line) {
    char *end = strstr(line, "` | ");
    assert_non_null(end);
    *end = 0; /* last backtick of the cell */
    char *what = end + 4, *bar = strrchr(what, '|');
    assert_non_null(bar);
    bar[-1] = 0;
    char *last = strrchr(line, '`'), *blank = strchr(last, ' ');
    row r = {.tool = tool, .what = what};
    r.takes_value = blank != NULL;
    r.may_be_bare = blank && blank[1] == '[';
    for (char *name = strchr(line, '`'); name; name = strchr(name, '`')) {
        name++;
        size_t n = strcspn(name, "` ");
        assert_true(n > 1 && n < sizeof r.name && *name == '-');
        memcpy(r.name, name, n);
        r.name[n] = 0;
        check_row(&r);
        name += n;
        if (*name == '`') name++;
    }
}

static int find_tool(const char *heading) {
    for (int i = 0; i < N_TOOLS; i++)
        if (strcmp(heading, tools[i].name) == 0) return i;
    fail_msg("no command %s", heading);
    return -1;
}

static void read_help(void) {
    for (int i = 0; i < N_TOOLS; i++) {
        char line[64];
        snprintf(line, sizeof line, "$PI %s --help", tools[i].name);
        assert_int_equal(sh(line), 0);
        snprintf(help[i], sizeof help[i], "%s", shell_read("out", NULL));
    }
}

/* The program prints the document from its first section on. */
static void test_document_is_current(void **state) {
    (void)state;
    assert_int_equal(sh("sed -n '/^## /,$p' " DOCUMENT
                        " >doc && $PI completion llama-flags >page && "
                        "diff doc page >&2"),
                     0);
}

static void test_every_row(void **state) {
    (void)state;
    read_help();
    FILE *f = fopen(DOCUMENT, "r");
    if (!f) fail_msg("%s is not there", DOCUMENT);
    char line[512];
    int tool = -1;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *command = strstr(line, ": powerinfer ");
        if (strncmp(line, "## ", 3) == 0 && command) tool = find_tool(command + 13);
        if (strncmp(line, "| `", 3) == 0) check_table_line(tool, line);
    }
    fclose(f);
    assert_true(n_rows[0] > 150 && n_rows[1] > 120 && n_rows[2] > 5 && n_rows[3] > 60);
    assert_true(compat_count <= MAX_COMPAT);
    for (size_t i = 0; i < compat_count; i++) {
        int names = 1;
        for (const char *c = compat_table[i].names; *c; c++) names += *c == ' ';
        for (int t = 0; t < N_TOOLS; t++) {
            int want = compat_table[i].commands & tools[t].bit ? names : 0;
            if (seen[i][t] != want)
                fail_msg("%s of %s: %d names in the document, %d in the table",
                         compat_table[i].names, tools[t].name, seen[i][t], want);
        }
    }
}

/* Every compat option has one result, and no name of another option. */
static void test_compat_are_sound(void **state) {
    (void)state;
    for (size_t i = 0; i < compat_count; i++) {
        const option_compat *h = &compat_table[i];
        int answers = (h->accepted || h->refused || h->later) + (h->meant != NULL);
        if (answers != 1 || (h->argument && !h->accepted)) fail_msg("%s", h->names);
        for (uint32_t bit = 1; bit <= COMMAND_SERVE; bit *= 2) {
            for (size_t k = 0; k < option_count && (h->commands & bit); k++) {
                const option *o = &option_table[k];
                char name[NAME_ROOM], names[3 * NAME_ROOM];
                snprintf(names, sizeof names, " %s ", h->names);
                if (!(o->commands & bit)) continue;
                snprintf(name, sizeof name, " --%s ", o->long_name);
                if (strstr(names, name)) fail_msg("two rows for%s", name);
                snprintf(name, sizeof name, " -%s ", o->short_name ? o->short_name : "-");
                if (strstr(names, name)) fail_msg("two rows for%s", name);
                for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) {
                    snprintf(name, sizeof name, " %s ", o->aliases[a]);
                    if (strstr(names, name)) fail_msg("two rows for%s", name);
                }
                for (const char *w = h->names; o->opposite && *w;) {
                    snprintf(name, sizeof name, "%.*s", (int)strcspn(w, " "), w);
                    if (turns_off(o, name)) fail_msg("two rows for %s", name);
                    w += strlen(name) + (w[strlen(name)] == ' ');
                }
            }
            for (size_t k = i + 1; k < compat_count && (h->commands & bit); k++) {
                char name[NAME_ROOM];
                snprintf(name, sizeof name, "%.*s", (int)strcspn(h->names, " "), h->names);
                if (compat_table[k].commands & bit && strcmp(compat_table[k].names, name) == 0)
                    fail_msg("two rows for %s", name);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document_is_current),
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_compat_are_sound),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
