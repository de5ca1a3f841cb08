/* posix_text.c: functions of POSIX, and memmem, which POSIX systems also have. */
#include <fnmatch.h>
#include <string.h>

#include "os_text.h"
#include "posix_system.h"

void *os_find(const void *in, size_t n, const void *what, size_t n_what) {
    return memmem(in, n, what, n_what);
}

bool os_pattern_matches(const char *pattern, const char *name) {
    return fnmatch(pattern, name, 0) == 0;
}

bool os_text_open(os_text *t) {
    *t = (os_text){.n = 0};
    t->file = open_memstream(&t->text, &t->n);
    return t->file != NULL;
}

bool os_text_close(os_text *t) {
    bool failed = ferror(t->file) != 0;
    return fclose(t->file) == 0 && !failed;
}

char *const *os_environment(void) {
    return posix_environment();
}

char **os_arguments(int *argc, char **argv) {
    (void)argc;
    return argv;
}
