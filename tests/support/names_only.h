/* names_only.h: a process for which no file system has unnamed temporary files, so that tests meet
 * the other way of making them. */
#ifndef TEST_NAMES_ONLY_H
#define TEST_NAMES_ONLY_H

#include <stdbool.h>

/* From here on, for this process, its children and what they execute: open with O_TMPFILE fails as
 * on a file system without. False: cannot be had here (an emulator). For the rest of the process,
 * so in a child of the test. */
bool names_only(void);

#endif
