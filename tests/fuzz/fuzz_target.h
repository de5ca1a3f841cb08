/* fuzz_target.h: interface of a fuzz target to libFuzzer and to fuzz_main.c. */
#ifndef FUZZ_FUZZ_TARGET_H
#define FUZZ_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

/* Runs one input; returns 0. A crash, a sanitizer report or a failed assertion is a defect; errors
 * are fine. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Optional: writes seed number i to data (room for max bytes); returns its length, or 0 if there is
 * no such seed. For formats whose valid inputs are easier to build than to store. */
size_t fuzz_seed(size_t i, uint8_t *data, size_t max);

#endif
