/* names_only.h: disables unnamed temporary files in a process, so that tests cover the fallback to
 * named files. */
#ifndef TEST_NAMES_ONLY_H
#define TEST_NAMES_ONLY_H

#include <stdbool.h>

/* After this call, open with O_TMPFILE fails as on a file system without support, in this process,
 * its children and the programs that they execute. Returns false if not available (an emulator).
 * Cannot be undone: call it in a child of the test. */
bool names_only(void);

#endif
