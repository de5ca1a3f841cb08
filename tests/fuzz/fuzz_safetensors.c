/* fuzz_safetensors.c: any bytes as a safetensors file: the result is an error, or tensors whose
 * bytes can all be read and whose sizes match their shapes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "safetensors.h"

static volatile unsigned sink; /* keeps the reads */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    safetensors *s = NULL;
    pi_error err = {0};
    if (n == 0 || safetensors_open_memory(data, n, "fuzz", &s, &err) != PI_OK) return 0;
    unsigned sum = 0;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const safetensor *t = safetensors_at(s, i);
        if (safetensors_find(s, t->name) != i) abort();
        if (t->data < data || t->n_bytes > (size_t)(data + n - t->data)) abort();
        for (size_t k = 0; k < t->n_bytes; k++) sum += t->data[k];
    }
    sink = sum;
    safetensors_close(s);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"x\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
        "\"y\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}",
    };
    static const size_t n_data[] = {8, 20};
    if (i >= sizeof headers / sizeof headers[0]) return 0;
    size_t n_header = strlen(headers[i]), n = 8 + n_header + n_data[i];
    if (n > max) return 0;
    memset(data, 0, n);
    data[0] = (uint8_t)n_header; /* below 256: the seed would be refused otherwise */
    memcpy(data + 8, headers[i], n_header);
    return n;
}
