/* shared_data.h: finds conformance data of other projects. It lies next to the checkout as
 * ../shared; tests that need it print SKIPPED and skip if it is missing. */
#ifndef TEST_SHARED_DATA_H
#define TEST_SHARED_DATA_H

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* Exit status of a program whose tests all need this data: CTest's SKIPPED. */
enum { SHARED_SKIPPED = 77 };

/* Stores the path of a file under ../shared in buf; if the file is missing, prints a line on stderr
 * and returns false. */
static inline bool shared_path(char *buf, size_t n_buf, const char *relative) {
    snprintf(buf, n_buf, "%s/../shared/%s", TEST_SOURCE_DIR, relative);
    if (access(buf, R_OK) == 0) return true;
    fprintf(stderr, "*** SKIPPED: %s is not there; this test needs the shared data ***\n", buf);
    return false;
}

#endif
