/* tidy.h: the rules see one file at a time, as text, and report lines. */
#ifndef TIDY_H
#define TIDY_H

#include <stdbool.h>
#include <stddef.h>

enum { TIDY_PATH_MAX = 1024, TIDY_NAME_MAX = 128, TIDY_FILES_MAX = 4096 };

typedef struct source_file {
    char path[TIDY_PATH_MAX];   /* from the root: "src/base/mem.c" */
    char module[TIDY_NAME_MAX]; /* "base" for src/base/..., else the first folder: "tests" */
    char *text;                 /* NUL-terminated */
    size_t n_bytes;
} source_file;

typedef struct source_tree {
    source_file *files; /* [n_files] */
    int n_files;
    bool quiet; /* count only, for the self-test */
    int n_problems;
} source_tree;

const char *path_name(const char *path); /* behind the last slash */
bool path_ends(const char *path, const char *ending);
bool path_starts(const char *path, const char *start);

void tidy_report(source_tree *tree, const char *path, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Every rule on one file; `tree` tells which module a header belongs to. */
void tidy_check_file(source_tree *tree, const source_file *file);
/* Rules about the whole tree. */
void tidy_check_names(source_tree *tree);

/* Folder of a source_file path as the law sees it. */
void tidy_module_of(const char *path, char *module, size_t n_module);

#endif
