/* torch_zip.h: weights as torch.save writes them (pytorch_model.bin): a zip archive, uncompressed,
 * of a pickle and of the tensors' bytes. A pickle is a program; here only a table of names and
 * contiguous tensors is understood, everything else is refused by name. */
#ifndef CONVERT_TORCH_ZIP_H
#define CONVERT_TORCH_ZIP_H

#include "safetensors.h"

/* Is handed every tensor of the table, in its order; t->name is not NUL-terminated, n_name bytes.
 */
typedef pi_status (*torch_tensor_fn)(void *user, const safetensor *t, size_t n_name, pi_error *err);

/* `file` is for messages and goes into the tensors, whose data points into `bytes`. PI_ERR_FORMAT,
 * PI_ERR_UNSUPPORTED (compressed, another pickle, tensors that are not contiguous), PI_ERR_LIMIT,
 * PI_ERR_NOMEM; what the function returns. */
pi_status torch_zip_parse(const uint8_t *bytes, size_t n_bytes, const char *file,
                          torch_tensor_fn fn, void *user, pi_error *err);

#endif
