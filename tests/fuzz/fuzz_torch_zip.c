/* fuzz_torch_zip.c: any bytes as pytorch_model.bin, and as the pickle inside: the result is an
 * error, or tensors whose bytes can all be read and whose sizes match their shapes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "torch_pickle.h"
#include "torch_zip.h"

enum { STORAGE_BYTES = 256 };

static const uint8_t storage_bytes[STORAGE_BYTES];
static volatile unsigned sink; /* keeps the reads */

static pi_status read_tensor(void *user, const safetensor *t, size_t n_name, pi_error *err) {
    (void)user;
    (void)err;
    unsigned sum = 0;
    for (size_t i = 0; i < n_name; i++) sum += (unsigned)t->name[i];
    for (size_t i = 0; i < t->n_bytes; i++) sum += t->data[i];
    if (t->n_dims < 0 || t->n_dims > SAFETENSORS_MAX_DIMS) abort();
    sink = sum;
    return PI_OK;
}

static const uint8_t *any_storage(void *user, pickle_text key, size_t *n_bytes) {
    (void)user;
    *n_bytes = STORAGE_BYTES;
    return key.n < 4 ? storage_bytes : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pi_error err = {0};
    torch_pickle_reader reader = {"fuzz", any_storage, read_tensor, NULL, NULL};
    if (n == 0) return 0;
    if (data[0] == 0x80)
        torch_pickle_parse(data, n, &reader, &err);
    else
        torch_zip_parse(data, n, "fuzz", read_tensor, NULL, &err);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char pickle[] =
        "\x80\x02}q\x00(X\x01\x00\x00\x00"
        "actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nHalfStorage\n"
        "X\x01\x00\x00\x00"
        "0X\x03\x00\x00\x00"
        "cpuK\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86\x89NtRu.";
    if (i > 0 || sizeof pickle - 1 > max) return 0;
    memcpy(data, pickle, sizeof pickle - 1);
    return sizeof pickle - 1;
}
