/* torch_zip.h: reads weights written by torch.save (pytorch_model.bin): an uncompressed zip archive
 * with a pickle and the tensors' bytes. A pickle is a program; this reader only accepts a table of
 * names and contiguous tensors, and refuses everything else by name. */
#ifndef CONVERT_TORCH_ZIP_H
#define CONVERT_TORCH_ZIP_H

#include "safetensor.h"

/* Calls `fn` for every tensor of the table, in its order. `file` is for messages and is stored in
 * the tensors, whose data points into `bytes`. PI_ERR_FORMAT, PI_ERR_UNSUPPORTED (compressed,
 * another pickle, tensors that are not contiguous), PI_ERR_LIMIT, PI_ERR_NOMEM; also the errors of
 * the function. */
pi_status torch_zip_parse(const uint8_t *bytes, size_t n_bytes, const char *file, safetensor_fn fn,
                          void *user, pi_error *err);

#endif
