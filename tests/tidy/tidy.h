/* tidy.h: rules check one file at a time, as text, and report lines. */
#ifndef TIDY_H
#define TIDY_H

#include <stdbool.h>
#include <stddef.h>

enum { TIDY_PATH_MAX = 1024, TIDY_NAME_MAX = 128, TIDY_FILES_MAX = 4096, TIDY_MODULES_MAX = 64 };

typedef struct source_file {
    char path[TIDY_PATH_MAX];   /* from the root: "src/base/mem.c" */
    char module[TIDY_NAME_MAX]; /* "base" for src/base/..., "exec/cpu" for src/exec/cpu/..., else
                                   the first folder: "tests" */
    char *text;                 /* NUL-terminated */
    size_t n_bytes;
} source_file;

typedef struct law_row {
    char module[TIDY_NAME_MAX];
    char sees[TIDY_NAME_MAX]; /* blank-separated modules; "public": the headers in include/ */
} law_row;

typedef struct dependency_law {
    int n_rows;
    law_row rows[TIDY_MODULES_MAX]; /* [n_rows], lowest first */
} dependency_law;

typedef struct source_tree {
    source_file *files; /* [n_files] */
    int n_files;
    dependency_law law;
    bool quiet; /* count only, for the self-test */
    int n_problems;
} source_tree;

const char *path_name(const char *path); /* the part after the last slash */
bool path_ends(const char *path, const char *ending);
bool path_starts(const char *path, const char *start);

/* Whether `word` is one of the blank-separated words of `list`. */
bool list_has(const char *list, const char *word);

void tidy_report(source_tree *tree, const char *path, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Checks all rules for one file; `tree` has the modules of headers. */
void tidy_check_file(source_tree *tree, const source_file *file);
/* Rules for the whole tree. */
void tidy_check_names(source_tree *tree);

/* Reads the dependency law (tidy_law.c). False: a text of another form. */
bool tidy_law_read(dependency_law *law, const char *text);
void tidy_check_includes(source_tree *tree, const source_file *file); /* part of tidy_check_file */
/* Checks the table of modules in a document. */
void tidy_check_table(source_tree *tree, const char *path, const char *text);

/* Reports include cycles (tidy_cycles.c). */
void tidy_check_cycles(source_tree *tree);

/* Returns the module of a path: the innermost module of the law whose folder contains it. */
void tidy_module_of(const dependency_law *law, const char *path, char *module, size_t n_module);

#endif
