/* glob.h: names that match a pattern in the last part of a path, for tests of Windows. */
#ifndef TEST_GLOB_H
#define TEST_GLOB_H

#include <stddef.h>

typedef struct glob_t {
    size_t gl_pathc;
    char **gl_pathv;
} glob_t;

/* flags and failed: 0 and NULL. Nonzero: no name matches. */
int glob(const char *pattern, int flags, int (*failed)(const char *path, int problem), glob_t *out);
void globfree(glob_t *g);

#endif
