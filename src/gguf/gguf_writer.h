/* gguf_writer.h: writes GGUF v3 in two passes, so that tensors are streamed and never all in
 * memory: first keys and tensor infos, then the data of each tensor in the same order.
 *
 * The file gets its name only when gguf_writer_finish succeeds. Not thread-safe. */
#ifndef GGUF_GGUF_WRITER_H
#define GGUF_GGUF_WRITER_H

#include "gguf.h"

typedef struct gguf_writer gguf_writer;

#define GGUF_KEY_ALIGNMENT "general.alignment" /* of tensors in the file; a power of two */

pi_status gguf_writer_create(const char *path, gguf_writer **out, pi_error *err);

/* Write keys. An existing key is replaced in place. Errors are sticky: the next function that takes
 * a pi_error returns the first one. */
void gguf_put_u32(gguf_writer *w, const char *key, uint32_t v);
void gguf_put_i32(gguf_writer *w, const char *key, int32_t v);
void gguf_put_u64(gguf_writer *w, const char *key, uint64_t v);
void gguf_put_f32(gguf_writer *w, const char *key, float v);
void gguf_put_bool(gguf_writer *w, const char *key, bool v);
void gguf_put_string(gguf_writer *w, const char *key, const char *v); /* NUL-terminated */
void gguf_put_bytes(gguf_writer *w, const char *key, const char *v, size_t n_bytes); /* a string */
/* Arrays of fixed-size items (not strings or arrays); `data` is in host order. */
void gguf_put_array(gguf_writer *w, const char *key, gguf_value_type item_type, const void *data,
                    uint64_t count);
void gguf_put_strings(gguf_writer *w, const char *key, const gguf_string *items, uint64_t count);
/* Copies a value from an open file unchanged. */
void gguf_put_value(gguf_writer *w, const gguf_value *v);

/* Adds a tensor info; data follows in the same order. dims[0] is contiguous. PI_ERR_ARG: the name
 * is too long or already used, or dims do not match the type. */
pi_status gguf_add_tensor(gguf_writer *w, const char *name, quant_type type, int n_dims,
                          const uint64_t *dims, pi_error *err);

/* Writes the header. Afterwards only gguf_write_data adds to the file. */
pi_status gguf_writer_begin_data(gguf_writer *w, pi_error *err);
/* Appends data of the current tensor, in one or more pieces. When the tensor is complete, the
 * writer pads and continues with the next one. PI_ERR_ARG: more bytes than the tensor has. */
pi_status gguf_write_data(gguf_writer *w, const void *data, size_t n_bytes, pi_error *err);
/* Call when all tensors are complete: afterwards the bytes can be read at *path (valid until finish
 * or abort), so that a file can be tested before it gets its name. */
pi_status gguf_writer_settle(gguf_writer *w, const char **path, pi_error *err);
/* After begin_data: replaces the value of a key, a number or an array of numbers, by n_bytes in
 * host order. PI_ERR_ARG: no such key, or its value has another size. */
pi_status gguf_writer_patch(gguf_writer *w, const char *key, const void *data, size_t n_bytes,
                            pi_error *err);
/* Checks that all tensors are complete, syncs, renames. Frees the writer in every case. */
pi_status gguf_writer_finish(gguf_writer *w, pi_error *err);
void gguf_writer_abort(gguf_writer *w); /* frees the writer and leaves no file; accepts NULL */

#endif
