/* shared_data.h: finds the conformance data that this project did not make. It lies beside the
 * checkout as ../shared; tests that need it skip loudly when it is not there. */
#ifndef TEST_SHARED_DATA_H
#define TEST_SHARED_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* What main returns when nothing but such data would have been tested: CTest's SKIPPED. */
enum { SHARED_SKIPPED = 77 };

/* Path of a file under ../shared into buf; false (and a loud line on stderr) when it is absent. */
static inline bool shared_path(char *buf, size_t n_buf, const char *relative) {
    snprintf(buf, n_buf, "%s/../shared/%s", TEST_SOURCE_DIR, relative);
    if (access(buf, R_OK) == 0) return true;
    fprintf(stderr, "*** SKIPPED: %s is not there; this test needs the shared data ***\n", buf);
    return false;
}

#endif
