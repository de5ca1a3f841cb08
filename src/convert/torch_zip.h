/* torch_zip.h: reads weights written by torch.save (pytorch_model.bin): an uncompressed zip archive
 * with a pickle and the tensors' bytes. A pickle is a program; this reader only accepts a table of
 * names and contiguous tensors, and refuses everything else by name. */
#ifndef CONVERT_TORCH_ZIP_H
#define CONVERT_TORCH_ZIP_H

#include "safetensors.h"

/* Receives every tensor of the table, in its order; t->name has n_name bytes and is not
 * NUL-terminated. */
typedef pi_status (*torch_tensor_fn)(void *user, const safetensor *t, size_t n_name, pi_error *err);

/* `file` is for messages and is stored in the tensors, whose data points into `bytes`.
 * PI_ERR_FORMAT, PI_ERR_UNSUPPORTED (compressed, another pickle, tensors that are not contiguous),
 * PI_ERR_LIMIT, PI_ERR_NOMEM; also the errors of the function. */
pi_status torch_zip_parse(const uint8_t *bytes, size_t n_bytes, const char *file,
                          torch_tensor_fn fn, void *user, pi_error *err);

#endif
