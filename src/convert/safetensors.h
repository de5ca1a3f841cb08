/* safetensors.h: a strict reader of the weights of a Hugging Face folder. It reads
 * model.safetensors, or the shards that model.safetensors.index.json names; otherwise
 * pytorch_model.bin or its shards (torch_zip.h); or an adapter's adapter_model.safetensors or .bin.
 * Further files can be added.
 *
 * After opening, every shape, type and offset has been checked, the tensors of a .safetensors file
 * cover its data without holes or overlaps, and every name is unique. Data stays in the mapping and
 * may be unaligned. Immutable after opening; may be shared between threads.
 *
 * Format: https://github.com/huggingface/safetensors#format */
#ifndef CONVERT_SAFETENSORS_H
#define CONVERT_SAFETENSORS_H

#include "safetensor.h"

enum {
    SAFETENSORS_MAX_NAME = 512,         /* bytes of a tensor name */
    SAFETENSORS_MAX_HEADER = 100000000, /* bytes of JSON; the format's limit */
    SAFETENSORS_MAX_TENSORS = 1 << 20,
    SAFETENSORS_MAX_SHARDS = 4096
};

typedef struct safetensors safetensors;

/* PI_ERR_NOT_FOUND: the folder has no weights; PI_ERR_IO, PI_ERR_FORMAT, PI_ERR_LIMIT,
 * PI_ERR_NOMEM. */
pi_status safetensors_open(const char *dir, safetensors **out, pi_error *err);
/* Opens one shard in memory, which must outlive the result; `name` is for messages. */
pi_status safetensors_open_memory(const void *data, size_t n_bytes, const char *name,
                                  safetensors **out, pi_error *err);
/* Adds the tensors of another file (.safetensors, .bin, .pt), with `prefix` before their names.
 * After an error the reader can only be closed. */
pi_status safetensors_add(safetensors *s, const char *path, const char *prefix, pi_error *err);
void safetensors_close(safetensors *s); /* accepts NULL */

size_t safetensors_count(const safetensors *s);
const safetensor *safetensors_at(const safetensors *s, size_t i); /* ordered by name */
/* Index of a name; SIZE_MAX: absent. O(log n). */
size_t safetensors_find(const safetensors *s, const char *name);
/* Hints that these bytes of a tensor will probably not be read again: whole pages within them leave
 * memory; the system reads them again if needed. */
void safetensors_forget(const safetensors *s, const uint8_t *data, size_t n_bytes);

#endif
