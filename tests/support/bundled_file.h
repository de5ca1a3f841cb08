/* bundled_file.h: a file again with its neurons and experts bundled (docs/sparse.md), put together
 * by the format's description alone, for comparison with what the program writes and reads. */
#ifndef TEST_BUNDLED_FILE_H
#define TEST_BUNDLED_FILE_H

/* Layers with ffn_down_t, and those with experts, have bundles in `to`. extra: blocks of 512 bytes,
 * of experts 4,096, that each is longer than it has to be. Failures fail the running test. */
void bundled_write(const char *from, const char *to, int extra);

#endif
