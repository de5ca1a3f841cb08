/* tidy_law.c: the dependency law over includes. The law comes from the build (modules.txt, see
 * cmake/modules.cmake): "module: modules that it sees", lowest first; "public" means the headers in
 * include/. A file must include only headers of modules that its module sees, and the table of
 * ARCHITECTURE.md must equal the law. links.sh checks symbols, and that every grant is used. */
#include <stdio.h>
#include <string.h>

#include "tidy.h"

/* Folders outside src/ that are not modules. Tests see all modules. */
static const law_row outside[] = {{"include", "base public"}, {"examples", "base public"}};

bool tidy_law_read(dependency_law *law, const char *text) {
    law->n_rows = 0;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        law_row *row = &law->rows[law->n_rows];
        const char *colon = memchr(line, ':', n);
        if (law->n_rows == TIDY_MODULES_MAX || !colon || n >= TIDY_NAME_MAX) return false;
        const char *sees = colon + 1 + strspn(colon + 1, " ");
        snprintf(row->module, sizeof row->module, "%.*s", (int)(colon - line), line);
        snprintf(row->sees, sizeof row->sees, "%.*s", (int)(line + n - sees), sees);
        law->n_rows++;
        line += n + (line[n] == '\n');
    }
    return law->n_rows > 0;
}

static const law_row *find_row(const dependency_law *law, const char *module) {
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        if (strcmp(outside[i].module, module) == 0) return &outside[i];
    for (int i = 0; i < law->n_rows; i++)
        if (strcmp(law->rows[i].module, module) == 0) return &law->rows[i];
    return NULL;
}

/* ---- includes -------------------------------------------------------------------------------- */

/* Returns the file of `#include "name"`; -1: not in the tree. */
static int find_header(const source_tree *tree, const char *name) {
    for (int i = 0; i < tree->n_files; i++)
        if (strcmp(path_name(tree->files[i].path), path_name(name)) == 0) return i;
    return -1;
}

static const char *name_of(const source_file *header) {
    return strcmp(header->module, "include") == 0 ? "public" : header->module;
}

static void check_include(source_tree *tree, const source_file *f, const law_row *row, int number,
                          const char *name) {
    int header = find_header(tree, name);
    if (path_ends(name, ".c")) {
        tidy_report(tree, f->path, number, "a .c file is compiled, not included");
    } else if (header >= 0 && row) {
        const char *module = name_of(&tree->files[header]);
        if (strcmp(module, f->module) != 0 && !list_has(row->sees, module))
            tidy_report(tree, f->path, number, "%s may not include %s, which belongs to %s",
                        f->module, name, module);
    }
}

void tidy_check_includes(source_tree *tree, const source_file *f) {
    int number = 0;
    const law_row *row = find_row(&tree->law, f->module);
    bool is_test = strcmp(f->module, "tests") == 0;
    if (!row && !is_test)
        tidy_report(tree, f->path, 1, "module %s is not in the dependency law", f->module);
    for (const char *line = f->text; *line;) {
        size_t n = strcspn(line, "\n");
        char name[TIDY_NAME_MAX];
        number++;
        /* Longer names do not occur; sscanf truncates them. */
        if (line[0] == '#' && sscanf(line, "# include \"%127[^\"\n]\"", name) == 1)
            check_include(tree, f, row, number, name);
        line += n + (line[n] == '\n');
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* "base gguf public" is "base gguf, public headers" there. */
static void describe(const law_row *row, char *text, size_t n) {
    size_t n_sees = strlen(row->sees);
    if (n_sees == 0)
        snprintf(text, n, "libc");
    else if (path_ends(row->sees, " public"))
        snprintf(text, n, "%.*s, public headers", (int)(n_sees - strlen(" public")), row->sees);
    else
        snprintf(text, n, "%s", row->sees);
}

/* Rows "| `src/base/` | contents | sees |", in the order of the law. */
void tidy_check_table(source_tree *tree, const char *path, const char *text) {
    int number = 0, n_rows = 0;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        char module[TIDY_NAME_MAX], said[TIDY_NAME_MAX] = "", expected[TIDY_NAME_MAX];
        number++;
        int n_module = 0;
        if (sscanf(line, "| `src/%100[a-z/]` |%n", module, &n_module) == 1 && n_module > 0 &&
            path_ends(module, "/")) {
            module[strlen(module) - 1] = '\0';
            const law_row *row = n_rows < tree->law.n_rows ? &tree->law.rows[n_rows] : NULL;
            const char *end = line + n;
            if (n > 3 && path_starts(end - 2, " |")) end -= 2;
            const char *start = end;
            while (start > line && start[-1] != '|') start--;
            start += *start == ' ';
            snprintf(said, sizeof said, "%.*s", (int)(end - start), start);
            if (row) describe(row, expected, sizeof expected);
            if (!row || strcmp(row->module, module) != 0 || strcmp(said, expected) != 0)
                tidy_report(tree, path, number, "the law's row is: %s sees %s",
                            row ? row->module : "no module", row ? expected : "");
            n_rows++;
        }
        line += n + (line[n] == '\n');
    }
    if (n_rows < tree->law.n_rows)
        tidy_report(tree, path, number, "the table of modules lacks %s",
                    tree->law.rows[n_rows].module);
}
