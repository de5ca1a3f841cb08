/* bundled_file.h: rewrites a file with bundled neurons and experts (docs/prepared-files.md),
 * following only the description of the format, for comparison with the program's writer and
 * reader. */
#ifndef TEST_BUNDLED_FILE_H
#define TEST_BUNDLED_FILE_H

/* Layers with ffn_down_t and layers with experts get bundles in `to`. extra: number of blocks (512
 * bytes for neurons, 4,096 for experts) by which each bundle is longer than necessary. Failures
 * fail the running test. */
void bundled_write(const char *from, const char *to, int extra);

#endif
