/* tidy_rules.c: the rules. They work on the text with comments, strings and character constants
 * blanked (equal length, equal lines), so that a word in a comment is not a call. Counting braces
 * is crude, but sufficient for sources that clang-format lays out: a function starts at a line that
 * begins in column 0 and ends with an opening brace. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidy.h"

enum {
    LINE_MAX_COLUMNS = 100,
    FILE_MAX_LINES = 1000,
    FUNCTION_MAX_LINES = 120,
};

/* Files in src/ that may call the operating system: src/base/os, the only such part of the library,
 * and the GPU backends, which are separate shared objects. */
#define SYSTEM_FILES                                                                               \
    "src/base/os/ src/gpu/cuda/ src/gpu/hip/ src/gpu/sim/ src/cluster/mpi_transport.c"

/* Banned calls, and their exceptions. */
typedef struct banned_call {
    const char *name;
    const char *scope;  /* path prefix within which it is banned */
    const char *except; /* path prefixes in which it is allowed, separated by blanks */
    const char *instead;
} banned_call;

static const banned_call banned[] = {
    {"malloc", "", "src/base/mem.c src/cluster/mpi_transport.c tests/", "mem_alloc"},
    {"calloc", "", "src/base/mem.c src/cluster/mpi_transport.c tests/", "mem_calloc"},
    {"realloc", "", "src/base/mem.c tests/", "mem_realloc"},
    {"free", "", "src/base/mem.c src/cluster/mpi_transport.c tests/ examples/", "mem_free"},
    {"strdup", "", "tests/", "mem_strdup"},
    {"strndup", "", "tests/", "mem_strndup"},
    {"sprintf", "", "", "snprintf"},
    {"vsprintf", "", "", "vsnprintf"},
    {"strcpy", "", "", "snprintf or memcpy"},
    {"strcat", "", "", "snprintf"},
    {"gets", "", "", "fgets"},
    {"atoi", "", "", "strtol and its checks"},
    {"atol", "", "", "strtol and its checks"},
    {"atof", "", "", "strtod and its checks"},
    {"rand", "", "", "rng_u64"},
    {"srand", "", "", "rng_seed"},
    {"strtok", "", "", "strcspn"},
    {"system", "", "tests/", "nothing: the program runs no shell"},
    {"popen", "", "tests/", "nothing: the program runs no shell"},
    {"printf", "src/", "src/cli/", "log_line"},
    {"puts", "src/", "src/cli/", "log_line"},
    {"putchar", "src/", "src/cli/", "log_line"},
    {"exit", "src/", "src/cli/", "a status"},
    {"_exit", "src/", "src/cli/ src/base/os/ src/cluster/mpi_transport.c", "a status"},
    {"abort", "src/", "src/cli/", "a status"},
    {"getenv", "src/", "src/cli/ src/gpu/sim/", "an option"}, /* sim: of its tests */
};

/* Headers of every system: those of ISO C except threads.h, and those of the compiler. */
static const char *const common_headers = "assert.h complex.h ctype.h errno.h fenv.h float.h "
                                          "inttypes.h iso646.h limits.h locale.h math.h "
                                          "setjmp.h signal.h stdalign.h stdarg.h stdatomic.h "
                                          "stdbool.h stddef.h stdint.h stdio.h stdlib.h "
                                          "stdnoreturn.h string.h tgmath.h time.h uchar.h wchar.h "
                                          "wctype.h arm_neon.h cpuid.h immintrin.h";

/* Other headers, and the files that may include them. */
typedef struct library_header {
    const char *names; /* separated by blanks */
    const char *where; /* path prefixes, separated by blanks */
} library_header;

static const library_header library_headers[] = {
    {"jansson.h", "src/text/json.c"},
    {"pcre2.h", "src/text/"},
    {"utf8proc.h", "src/template/template_unicode.c src/text/tokenizer_wordpiece.c"},
    {"microhttpd.h", "src/server/exchange.h src/server/http_access.h"},
    {"curl/curl.h", "src/fetch/fetch_http.c"},
    {"curl/curl.h", "src/fetch/curl_late.c"},
    {"histedit.h", "src/cli/chat_input.c"},
    {"vulkan/vulkan_core.h", "src/gpu/vulkan/vulkan_calls.h"},
    {"zlib.h", "src/gpu/driver/driver_images.c"},
};

/* The only file of the program that may read the environment. */
static const char *const environment_file = "src/cli/option_environment.c";

const char *path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool path_ends(const char *path, const char *ending) {
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcmp(path + n - m, ending) == 0;
}

bool path_starts(const char *path, const char *start) {
    return strncmp(path, start, strlen(start)) == 0;
}

void tidy_module_of(const dependency_law *law, const char *path, char *module, size_t n_module) {
    if (path_starts(path, "src/") && strchr(path + 4, '/')) path += 4;
    size_t n = strcspn(path, "/");
    for (int i = 0; i < law->n_rows; i++) {
        const char *name = law->rows[i].module;
        size_t length = strlen(name);
        if (length > n && path_starts(path, name) && path[length] == '/') n = length;
    }
    snprintf(module, n_module, "%.*s", (int)n, path);
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

bool list_has(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n) {
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
    }
    return false;
}

static bool list_has_prefix_of(const char *list, const char *path) {
    while (*list) {
        size_t n = strcspn(list, " ");
        if (n && strncmp(list, path, n) == 0) return true;
        list += n + (list[n] == ' ');
    }
    return false;
}

/* Blanks a quoted text that begins with the quote s[i]; returns the index after it. */
static size_t blank_quoted(char *s, size_t i) {
    char quote = s[i++];
    while (s[i] && s[i] != quote && s[i] != '\n') {
        if (s[i] == '\\' && s[i + 1] && s[i + 1] != '\n') s[i++] = ' ';
        s[i++] = ' ';
    }
    return s[i] == quote ? i + 1 : i;
}

static void blank_comments_and_strings(char *s) {
    for (size_t i = 0; s[i];) {
        if (s[i] == '/' && s[i + 1] == '/') {
            while (s[i] && s[i] != '\n') s[i++] = ' ';
        } else if (s[i] == '/' && s[i + 1] == '*') {
            while (s[i] && !(s[i] == '*' && s[i + 1] == '/' && s[i - 1] != '/')) {
                if (s[i] != '\n') s[i] = ' ';
                i++;
            }
            if (s[i]) s[i] = s[i + 1] = ' ';
        } else if (s[i] == '"' || (s[i] == '\'' && (i == 0 || !is_word(s[i - 1])))) {
            i = blank_quoted(s, i);
        } else {
            i++;
        }
    }
}

/* Counts characters, not bytes: comments may have accents. */
static int columns(const char *line, size_t n) {
    int count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)line[i] & 0xc0) != 0x80;
    return count;
}

static bool is_c(const char *path) {
    return path_ends(path, ".c") || path_ends(path, ".h") || path_ends(path, ".cu") ||
           path_ends(path, ".cpp") || path_ends(path, ".inc");
}

/* Generated tables are data, so their length does not matter. Their first line says that they are
 * generated. */
static bool is_generated(const source_file *f) {
    size_t n = strcspn(f->text, "\n");
    const char *word = strstr(f->text, "generated by");
    return word && word < f->text + n;
}

static void check_line(source_tree *tree, const source_file *f, int number, const char *line,
                       size_t n) {
    /* Split so that this file passes its own check. */
    static const char *const marks[] = {"TO"
                                        "DO",
                                        "FIX"
                                        "ME",
                                        "XX"
                                        "X"};
    if (columns(line, n) > LINE_MAX_COLUMNS && is_c(f->path)) {
        tidy_report(tree, f->path, number, "line is %d columns long, at most %d", columns(line, n),
                    LINE_MAX_COLUMNS);
    }
    if (n && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r')) {
        tidy_report(tree, f->path, number, "blank at the end of the line");
    }
    if (is_c(f->path) && memchr(line, '\t', n)) tidy_report(tree, f->path, number, "tab");
    for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++) {
        size_t m = strlen(marks[k]);
        for (size_t i = 0; i + m <= n; i++) {
            if (memcmp(line + i, marks[k], m) == 0 && (i == 0 || !is_word(line[i - 1])) &&
                (i + m == n || !is_word(line[i + m]))) {
                tidy_report(tree, f->path, number, "%s: do it, or open an issue", marks[k]);
            }
        }
    }
}

static void check_lines(source_tree *tree, const source_file *f) {
    int number = 0;
    for (const char *line = f->text; *line;) {
        size_t n = strcspn(line, "\n");
        check_line(tree, f, ++number, line, n);
        if (line[n] == '\0') tidy_report(tree, f->path, number, "no newline at the end");
        line += n + (line[n] == '\n');
    }
    if (number > FILE_MAX_LINES && is_c(f->path) && !is_generated(f)) {
        tidy_report(tree, f->path, number, "file is %d lines long, at most %d", number,
                    FILE_MAX_LINES);
    }
}

static bool continued_list(const char *line, bool after_parenthesis) {
    return line[0] == ' ' && after_parenthesis;
}

/* code: blanked text. A body begins at a line that starts in column 0 and ends with ") ... {", and
 * ends at the next "}" in column 0. */
static void check_functions(source_tree *tree, const source_file *f, const char *code) {
    int number = 0, start = 0;
    bool after_parenthesis = false;
    for (const char *line = code; *line;) {
        size_t n = strcspn(line, "\n"), end = n;
        number++;
        while (end && line[end - 1] == ' ') end--;
        if (end && !start) {
            bool parenthesis = memchr(line, ')', end) != NULL;
            bool opens = line[end - 1] == '{';
            bool continued = continued_list(line, after_parenthesis);
            if (opens && parenthesis && line[0] != '#' && (line[0] != ' ' || continued)) {
                start = number;
            }
            /* A parameter list may continue on any number of indented lines. */
            bool first = line[0] != ' ' && memchr(line, '(', end) && !memchr(line, '=', end);
            after_parenthesis = (first || continued_list(line, after_parenthesis)) &&
                                !memchr(line, ';', end);
        } else if (start && line[0] == '}') {
            int length = number - start + 1;
            if (length > FUNCTION_MAX_LINES) {
                tidy_report(tree, f->path, start, "function is %d lines long, at most %d", length,
                            FUNCTION_MAX_LINES);
            }
            start = 0;
        }
        line += n + (line[n] == '\n');
    }
}

static void check_call(source_tree *tree, const source_file *f, int number, const char *name) {
    for (size_t i = 0; i < sizeof banned / sizeof banned[0]; i++) {
        const banned_call *b = &banned[i];
        if (strcmp(b->name, name) != 0 || !path_starts(f->path, b->scope)) continue;
        if (!list_has_prefix_of(b->except, f->path)) {
            tidy_report(tree, f->path, number, "%s is not called here: use %s", name, b->instead);
        }
    }
    bool environment = strcmp(name, "getenv") == 0 || strcmp(name, "secure_getenv") == 0;
    if (environment && path_starts(f->path, "src/cli/") && strcmp(f->path, environment_file) != 0) {
        tidy_report(tree, f->path, number, "%s is called in %s only", name, environment_file);
    }
}

/* A call is a word followed by "(", except after "." or "->": members may have any name. */
static void check_calls(source_tree *tree, const source_file *f, const char *code) {
    int number = 1;
    for (const char *p = code; *p;) {
        if (*p == '\n') number++;
        if (!is_word(*p)) {
            p++;
            continue;
        }
        size_t n = 0;
        while (is_word(p[n])) n++;
        size_t after = n + strspn(p + n, " ");
        bool member = p > code && (p[-1] == '.' || (p[-1] == '>' && p - 1 > code && p[-2] == '-'));
        char name[64];
        if (p[after] == '(' && !member && n < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            check_call(tree, f, number, name);
        }
        p += n;
    }
}

/* Only src/base/os includes headers of the operating system; only the files that wrap a library
 * include its headers. */
static void check_system_headers(source_tree *tree, const source_file *f) {
    int number = 0;
    if (!path_starts(f->path, "src/") || list_has_prefix_of(SYSTEM_FILES, f->path)) return;
    for (const char *line = f->text; *line;) {
        size_t n = strcspn(line, "\n");
        char name[TIDY_NAME_MAX];
        number++;
        if (line[0] == '#' && sscanf(line, "# include <%127[^>\n]>", name) == 1) {
            bool found = list_has(common_headers, name);
            for (size_t i = 0; i < sizeof library_headers / sizeof library_headers[0]; i++)
                found |= list_has(library_headers[i].names, name) &&
                         list_has_prefix_of(library_headers[i].where, f->path);
            if (!found)
                tidy_report(tree, f->path, number, "<%s> is not included here: use src/base/os",
                            name);
        }
        line += n + (line[n] == '\n');
    }
}

/* "--name", or a short option in parentheses. */
static bool names_flag(const char *s, size_t n) {
    for (size_t i = 0; i + 3 < n; i++) {
        bool begins = i == 0 || !is_word(s[i - 1]);
        if (begins && s[i] == '-' && s[i + 1] == '-' && islower((unsigned char)s[i + 2]))
            return true;
        if (s[i] == '(' && s[i + 1] == '-' && islower((unsigned char)s[i + 2])) return true;
    }
    return false;
}

/* Messages of the library name no options of this program, because other programs also use it. */
static void check_messages(source_tree *tree, const source_file *f, const char *code) {
    if (!path_starts(f->path, "src/") || path_starts(f->path, "src/cli/") ||
        path_starts(f->path, "src/fetch/")) /* parts of the program */
        return;
    int line = 1;
    for (size_t i = 0; code[i]; i++) {
        line += code[i] == '\n';
        if (code[i] != '"') continue;
        size_t n = strcspn(code + i + 1, "\"\n");
        if (names_flag(f->text + i + 1, n))
            tidy_report(tree, f->path, line, "a flag of the program in the library's text");
        i += n + (code[i + 1 + n] == '"');
    }
}

void tidy_check_file(source_tree *tree, const source_file *f) {
    check_lines(tree, f);
    if (!is_c(f->path)) return;
    char *code = malloc(f->n_bytes + 1);
    if (!code) {
        tidy_report(tree, f->path, 0, "out of memory");
        return;
    }
    memcpy(code, f->text, f->n_bytes + 1);
    blank_comments_and_strings(code);
    check_functions(tree, f, code);
    check_calls(tree, f, code);
    check_messages(tree, f, code);
    check_system_headers(tree, f);
    tidy_check_includes(tree, f);
    free(code);
}

void tidy_check_names(source_tree *tree) {
    for (int i = 0; i < tree->n_files; i++) {
        const char *name = path_name(tree->files[i].path);
        if (strcmp(name, "CMakeLists.txt") == 0 || strcmp(name, "README.md") == 0) continue;
        /* Examples are separate programs with names for their readers. */
        if (path_starts(tree->files[i].path, "examples/")) continue;
        for (int j = 0; j < i; j++) {
            const char *other = tree->files[j].path;
            if (strcmp(name, path_name(other)) == 0 && !path_starts(other, "examples/")) {
                tidy_report(tree, tree->files[i].path, 1, "name is taken by %s",
                            tree->files[j].path);
            }
        }
    }
}
