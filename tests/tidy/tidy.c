/* tidy.c: checks the house rules for the sources in a folder: `tidy ROOT LAW`. `tidy --self-test`
 * checks that each rule reports a bad snippet and accepts a good one. Prints "file:line: what";
 * exit status 1 if there are problems. The rules are in tidy_rules.c, tidy_law.c and tidy_cycles.c;
 * this file walks the tree and runs clang-format. */
#include "tidy.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Versions differ in layout; the sources have the layout of this version. */
#define FORMAT_VERSION "14"
enum { FORMAT_BATCH = 64 }; /* files per run of clang-format */

void tidy_report(source_tree *tree, const char *path, int line, const char *format, ...) {
    tree->n_problems++;
    if (tree->quiet) return;
    va_list args;
    va_start(args, format);
    printf("%s:%d: ", path, line);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static bool add_file(source_tree *tree, const char *path, const char *text, size_t n_bytes) {
    if (tree->n_files == TIDY_FILES_MAX) return false;
    source_file *f = &tree->files[tree->n_files];
    snprintf(f->path, sizeof f->path, "%s", path);
    tidy_module_of(&tree->law, path, f->module, sizeof f->module);
    f->text = malloc(n_bytes + 1);
    if (!f->text) return false;
    memcpy(f->text, text, n_bytes);
    f->text[n_bytes] = '\0';
    f->n_bytes = strlen(f->text);
    tree->n_files++;
    return true;
}

/* Returns a file's bytes and a NUL; NULL: it cannot be read. */
static char *read_text(const char *path, size_t *n_bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *text = NULL;
    if (fseek(f, 0, SEEK_END) == 0) {
        long n = ftell(f);
        rewind(f);
        text = n >= 0 ? calloc((size_t)n + 1, 1) : NULL;
        if (text && fread(text, 1, (size_t)n, f) != (size_t)n) {
            free(text);
            text = NULL;
        }
        *n_bytes = (size_t)n;
    }
    fclose(f);
    return text;
}

static bool load_file(source_tree *tree, const char *path) {
    size_t n;
    char *text = read_text(path, &n);
    bool ok = text && add_file(tree, path, text, n);
    free(text);
    return ok;
}

static bool is_source(const char *name) {
    static const char *const endings[] = {".c",   ".h",   ".cu",    ".cpp",
                                          ".inc", ".txt", ".cmake", ".sh"};
    if (path_ends(name, ".txt") && strcmp(name, "CMakeLists.txt") != 0) return false; /* data */
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (path_ends(name, endings[i])) return true;
    }
    return false;
}

static bool walk(source_tree *tree, const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return true; /* a tree may lack folders */
    bool ok = true;
    for (struct dirent *e = readdir(dir); e && ok; e = readdir(dir)) {
        char path[TIDY_PATH_MAX];
        struct stat st;
        if (e->d_name[0] == '.') continue;
        int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        ok = n > 0 && (size_t)n < sizeof path && lstat(path, &st) == 0;
        if (!ok) continue;
        if (S_ISDIR(st.st_mode)) {
            ok = walk(tree, path);
        } else if (S_ISREG(st.st_mode) && is_source(e->d_name)) {
            ok = load_file(tree, path);
        }
    }
    closedir(dir);
    return ok;
}

/* Runs a program and returns its exit status; 127: no such program. */
static int run(char *const argv[], int output) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (output >= 0) dup2(output, STDOUT_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool right_version(const char *program) {
    char text[256] = {0};
    int ends[2];
    if (pipe(ends) != 0) return false;
    char name[32], option[] = "--version";
    snprintf(name, sizeof name, "%s", program);
    int rc = run((char *[]){name, option, NULL}, ends[1]);
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    return rc == 0 && n > 0 && strstr(text, "version " FORMAT_VERSION ".") != NULL;
}

static bool has_layout(const char *path) {
    return path_ends(path, ".c") || path_ends(path, ".h") || path_ends(path, ".cu") ||
           path_ends(path, ".cpp");
}

static void check_format(source_tree *tree) {
    const char *program = NULL;
    if (right_version("clang-format-" FORMAT_VERSION)) program = "clang-format-" FORMAT_VERSION;
    if (!program && right_version("clang-format")) program = "clang-format";
    if (!program) {
        fprintf(stderr, "*** SKIPPED: no clang-format %s here, layout is not checked ***\n",
                FORMAT_VERSION);
        return;
    }
    char name[32], dry_run[] = "--dry-run", strict[] = "-Werror";
    snprintf(name, sizeof name, "%s", program);
    for (int i = 0; i < tree->n_files;) {
        char *argv[FORMAT_BATCH + 4] = {name, dry_run, strict};
        int n = 3;
        for (; i < tree->n_files && n < FORMAT_BATCH + 3; i++) {
            char *path = tree->files[i].path;
            if (has_layout(path)) argv[n++] = path;
        }
        argv[n] = NULL;
        if (n > 3 && run(argv, -1) != 0) {
            tidy_report(tree, "layout", 0, "differs from clang-format: run `make format`");
        }
    }
}

/* --- self-test ------------------------------------------------------------------------------- */

typedef struct snippet {
    const char *path;
    const char *text;
    int n_problems;
} snippet;

static const char self_law[] = "base:\nquant: base\ntext: base quant\nengine: base quant\n"
                               "api: base quant text engine public\ncli: base public\n"
                               "text/inner: base text\n";

static const snippet snippets[] = {
    {"src/base/good.c", "int good(void) {\n    return 0; /* malloc(1) */\n}\n", 0},
    {"src/base/good.c", "/* é */\nstatic const char *s = \"exit(1)\"; // printf(\n", 0},
    {"src/base/good.c", "void f(table *t) {\n    t->free(t->x);\n    t->o.exit(1);\n}\n", 0},
    {"src/base/good.c", "char q = '\"';\nint n = malloc_count(3);\n", 0},
    {"src/base/mem.c", "void *f(void) {\n    return malloc(1);\n}\n", 0},
    {"src/base/bad.c", "void *f(void) {\n    return malloc(1);\n}\n", 1},
    {"src/base/bad.c", "char q = '\"';\nvoid *p = calloc (1, 1);\n", 1},
    {"src/base/bad.c", "/*/ x */\nint n = atoi(s);\n", 1},
    {"src/base/bad.c", "int f(void) {\n    strcpy(a, b); strcat(a, b); gets(a);\n}\n", 3},
    {"src/engine/bad.c", "int f(void) {\n    exit(1);\n    puts(\"x\");\n}\n", 2},
    {"src/engine/bad.c", "int f(void) {\n    return getenv(\"x\") != 0;\n}\n", 1},
    {"src/base/bad.cpp", "int f() {\n    return atoi(s);\n}\n", 1},
    {"src/base/bad.cu", "int f() {\n    return atoi(s);\n}\n", 1},
    {"src/cli/option_environment.c", "int f(void) {\n    return getenv(\"x\") != 0;\n}\n", 0},
    {"src/cli/bad.c", "int f(void) {\n    return getenv(\"x\") != 0;\n}\n", 1},
    {"src/base/bad.c", "char *s = \"use --pre\", *t = \"less (-c)\";\n", 2},
    {"src/base/good.c", "char *s = \"a -- b\", *t = \"(-1)\"; /* --pre */\n", 0},
    {"src/cli/good.c", "char *s = \"use --pre\";\n", 0},
    {"src/cli/good.c", "int f(void) {\n    printf(\"x\");\n}\n", 0},
    {"tests/t/test_x.c", "int f(void) {\n    free(malloc(1));\n}\n", 0},
    {"src/base/bad.c", "int x;\t\n", 2},
    {"src/base/bad.c", "int x;  \n", 1},
    {"src/base/bad.c", "int x;", 1},
    {"src/base/bad.c",
     "/* TO"
     "DO: later */\n",
     1},
    {"src/base/good.c",
     "/* mkstemp takes XX"
     "XXXX */\n",
     0},
    {"src/nowhere/bad.c", "int x;\n", 1},
    {"src/quant/good.c", "#include \"mem.h\"\n#include <stdio.h>\n#include \"quant.h\"\n", 0},
    {"src/base/bad.c", "#include \"quant.h\"\n", 1},
    {"src/engine/bad.c", "#include \"tokenizer.h\"\n", 1},
    {"src/engine/bad.c", "#include \"powerinfer.h\"\n", 1},
    {"src/cli/good.c", "#include \"powerinfer.h\"\n#include \"mem.h\"\n", 0},
    {"src/cli/bad.c", "#include \"quant.h\"\n", 1},
    {"src/api/good.c", "#include \"tokenizer.h\"\n#include \"powerinfer.h\"\n", 0},
    {"tests/t/test_x.c", "#include \"quant.h\"\n#include \"powerinfer.h\"\n", 0},
    {"tests/t/test_x.c", "#include \"mem.c\"\n", 1},
    {"src/base/good.c", "#include <stdio.h>\n#include <string.h>\n", 0},
    {"src/base/bad.c", "#include <unistd.h>\n#include <sys/stat.h>\n#include <threads.h>\n", 3},
    {"src/quant/bad.c", "#include <jansson.h>\n# include <pthread.h>\n", 2},
    {"src/base/os/linux/good.c", "#include <unistd.h>\nint f(void) {\n    kill(1, 2);\n}\n", 0},
    {"src/cli/chat_input.c", "#include <histedit.h>\n", 0},
    {"tests/t/test_x.c", "#include <unistd.h>\nint f(void) {\n    kill(1, 2);\n}\n", 0},
    {"src/text/inner/good.c", "#include \"tokenizer.h\"\n#include \"mem.h\"\n", 0},
    {"src/text/inner/bad.c", "#include \"quant.h\"\n", 1},
    {"src/text/deep/good.c", "#include \"quant.h\"\n#include \"tokenizer.h\"\n", 0},
};

static bool run_snippet(const char *path, const char *text, int expected) {
    static source_file files[8];
    memset(files, 0, sizeof files);
    source_tree tree = {.files = files, .quiet = true};
    if (!tidy_law_read(&tree.law, self_law)) return false;
    static const char *const headers[] = {"src/base/mem.h", "src/quant/quant.h",
                                          "src/text/tokenizer.h", "include/powerinfer.h"};
    bool ok = add_file(&tree, path, text, strlen(text));
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        ok = ok && add_file(&tree, headers[i], "", 0);
    }
    if (ok) tidy_check_file(&tree, &files[0]);
    for (int i = 0; i < tree.n_files; i++) free(files[i].text);
    if (ok && tree.n_problems == expected) return true;
    printf("self-test: %s: %d problems found, %d expected in:\n%.300s\n", path, tree.n_problems,
           expected, text);
    return false;
}

/* Builds long snippets. */
static bool run_lengths(void) {
    static char text[16384];
    bool ok = true;
    for (int over = 0; over < 2; over++) {
        memset(text, 'x', 100 + (size_t)over);
        snprintf(text + 100 + over, 8, "\n");
        ok = run_snippet("src/base/line.c", text, over) && ok;

        size_t n = (size_t)snprintf(text, sizeof text,
                                    "int f(int a,\n      int b,\n      int c) {\n");
        for (int i = 0; i < 118 + over; i++) n += (size_t)snprintf(text + n, 8, "    a;\n");
        snprintf(text + n, 8, "}\n");
        ok = run_snippet("src/base/function.c", text, over) && ok;

        n = 0;
        for (int i = 0; i < 1000 + over; i++) n += (size_t)snprintf(text + n, 8, "int x;\n");
        ok = run_snippet("src/base/file.c", text, over) && ok;
    }
    return ok;
}

static bool run_names(void) {
    static source_file files[4];
    memset(files, 0, sizeof files);
    source_tree tree = {.files = files, .quiet = true};
    bool ok = add_file(&tree, "src/base/a.c", "", 0) && add_file(&tree, "src/quant/a.c", "", 0) &&
              add_file(&tree, "src/base/CMakeLists.txt", "", 0) &&
              add_file(&tree, "src/quant/CMakeLists.txt", "", 0);
    tidy_check_names(&tree);
    for (int i = 0; i < tree.n_files; i++) free(files[i].text);
    if (tree.n_problems != 1) printf("self-test: equal file names are not told apart\n");
    return ok && tree.n_problems == 1;
}

/* A law of another form, and tables that differ from the law. */
static bool run_law(void) {
    source_tree tree = {.quiet = true};
    const char good[] = "| `src/base/` | a | libc |\n| `src/quant/` | b | base |\n"
                        "| `src/text/` | c | base quant, public headers |\n";
    bool ok = !tidy_law_read(&tree.law, "base\n") &&
              tidy_law_read(&tree.law, "base:\nquant: base\ntext: base quant public\n");
    if (ok) tidy_check_table(&tree, "table", good);
    ok = ok && tree.n_problems == 0;
    if (ok) tidy_check_table(&tree, "table", "| `src/base/` | a | quant |\n"); /* two rows lack */
    ok = ok && tree.n_problems == 2;
    if (!ok) printf("self-test: the law is not checked\n");
    return ok;
}

/* A cycle over two files with their headers; includes between a file and its own headers are no
 * cycle. */
static bool run_cycles(void) {
    static source_file files[8];
    static const snippet sources[] = {
        {"src/base/a.c", "#include \"a.h\"\n#include \"a_impl.h\"\n", 0},
        {"src/base/a.h", "#include \"b.h\"\n", 0},
        {"src/base/a_impl.h", "#include \"a.h\"\n", 0},
        {"src/base/b.h", "", 0},
        {"src/base/b.c", "#include \"b.h\"\n#include \"a_impl.h\"\n", 0},
    };
    memset(files, 0, sizeof files);
    source_tree tree = {.files = files, .quiet = true};
    bool ok = true;
    for (int i = 0; i < 4; i++) /* without b.c */
        ok = ok && add_file(&tree, sources[i].path, sources[i].text, strlen(sources[i].text));
    tidy_check_cycles(&tree);
    ok = ok && tree.n_problems == 0;
    ok = ok && add_file(&tree, sources[4].path, sources[4].text, strlen(sources[4].text));
    tidy_check_cycles(&tree);
    ok = ok && tree.n_problems == 1;
    for (int i = 0; i < tree.n_files; i++) free(files[i].text);
    if (!ok) printf("self-test: include cycles are not found\n");
    return ok;
}

static int self_test(void) {
    bool ok = true;
    int n = (int)(sizeof snippets / sizeof snippets[0]);
    for (int i = 0; i < n; i++) {
        ok = run_snippet(snippets[i].path, snippets[i].text, snippets[i].n_problems) && ok;
    }
    ok = run_lengths() && ok;
    ok = run_names() && ok;
    ok = run_law() && ok;
    ok = run_cycles() && ok;
    printf("tidy self-test: %s\n", ok ? "passed" : "FAILED");
    return ok ? 0 : 1;
}

static bool read_law(source_tree *tree, const char *path) {
    size_t n;
    char *text = read_text(path, &n);
    bool ok = text && tidy_law_read(&tree->law, text);
    if (!ok) fprintf(stderr, "tidy: %s is not the list of modules that CMake writes\n", path);
    free(text);
    return ok;
}

static void check_table(source_tree *tree, const char *path) {
    size_t n;
    char *text = read_text(path, &n);
    if (text)
        tidy_check_table(tree, path, text);
    else
        tidy_report(tree, path, 0, "cannot be read");
    free(text);
}

int main(int argc, char **argv) {
    static source_file files[TIDY_FILES_MAX];
    static source_tree tree = {.files = files};
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0) return self_test();
    if (argc != 3) {
        fprintf(stderr, "usage: tidy ROOT LAW | tidy --self-test\n");
        return 2;
    }
    if (!read_law(&tree, argv[2]) || chdir(argv[1]) != 0) return 2;
    static const char *const folders[] = {"src", "include", "tests", "examples", "scripts"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (!walk(&tree, folders[i])) {
            tidy_report(&tree, folders[i], 0, "cannot be read as a whole");
        }
    }
    for (int i = 0; i < tree.n_files; i++) tidy_check_file(&tree, &files[i]);
    tidy_check_names(&tree);
    tidy_check_cycles(&tree);
    check_table(&tree, "ARCHITECTURE.md");
    check_format(&tree);
    printf("tidy: %d files, %d problems\n", tree.n_files, tree.n_problems);
    for (int i = 0; i < tree.n_files; i++) free(files[i].text);
    return tree.n_problems == 0 && tree.n_files > 0 ? 0 : 1;
}
