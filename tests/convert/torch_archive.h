/* torch_archive.h: writes files in torch.save's format, byte by byte from the descriptions of the
 * formats: a table of tensors with one storage each. */
#ifndef TEST_TORCH_ARCHIVE_H
#define TEST_TORCH_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

enum { TORCH_MAX_FILES = 64, TORCH_MAX_PICKLE = 1 << 16, TORCH_MAX_BYTES = 4 << 20 };

typedef struct torch_archive {
    uint8_t pickle[TORCH_MAX_PICKLE];
    size_t n_pickle;
    struct {
        char name[64];
        size_t at, n_bytes; /* in `data` */
    } files[TORCH_MAX_FILES];
    int n_files;
    uint8_t data[TORCH_MAX_BYTES];
    size_t n_data;
    uint8_t out[TORCH_MAX_BYTES]; /* the finished archive */
    size_t n_out;
    int method; /* compression of the archive's files: 0 stored, 8 deflated */
} torch_archive;

void torch_begin(torch_archive *a);
/* Adds raw bytes of the pickle. */
void torch_raw(torch_archive *a, const char *bytes, size_t n_bytes);
/* Adds an item to the table: `storage` is "FloatStorage", ...; rows 0: a vector. The storage holds
 * n_bytes of `data`; the tensor begins at element `offset`; stride0: distance of rows in
 * elements. */
void torch_item(torch_archive *a, const char *name, const char *storage, int64_t offset,
                int64_t rows, int64_t cols, int64_t stride0, const void *data, size_t n_bytes);
void torch_end(torch_archive *a);    /* ends the table; no more items may follow */
void torch_finish(torch_archive *a); /* builds the archive */

#endif
