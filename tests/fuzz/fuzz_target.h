/* fuzz_target.h: what a fuzz target offers, to libFuzzer and to fuzz_main.c alike. */
#ifndef FUZZ_FUZZ_TARGET_H
#define FUZZ_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

/* Runs one input; returns 0. What must never happen is a crash, a sanitizer's report or a failed
 * assertion; errors are fine. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Optional: seed number i, written to data (room for max bytes); returns its length, 0 when there
 * is no such seed. For formats whose good inputs are easier built than stored. */
size_t fuzz_seed(size_t i, uint8_t *data, size_t max);

#endif
