/* imatrix.c: see imatrix.h. The sums are used in the mapping without a copy, so an open imatrix
 * costs only the pages that are read. */
#include "imatrix.h"

#include <math.h>
#include <stdio.h>

#include "affix.h"

pi_status imatrix_open(const char *path, imatrix *out, pi_error *err) {
    *out = (imatrix){0};
    gguf_file *f = NULL;
    pi_status status = gguf_open(path, NULL, &f, err);
    if (status == PI_ERR_FORMAT)
        return error_prefix(err, status, "importance matrices are read in their GGUF form");
    if (status != PI_OK) return status;
    gguf_string type = {0};
    const gguf_value *v = gguf_find(f, "general.type");
    if (!v || !gguf_as_string(v, &type) || !gguf_string_is(type, "imatrix")) {
        status = error_set(
            err, PI_ERR_FORMAT,
            "not an importance matrix: %.300s: general.type is not imatrix; make one "
            "with powerinfer imatrix",
            path);
        gguf_close(f);
        return status;
    }
    out->file = f;
    return PI_OK;
}

void imatrix_close(imatrix *m) {
    gguf_close(m->file);
    *m = (imatrix){0};
}

pi_status imatrix_find(const imatrix *m, const gguf_tensor *t, const float **out, pi_error *err) {
    *out = NULL;
    if (!m->file) return PI_OK;
    char name[GGUF_MAX_NAME + sizeof IMATRIX_SUMS];
    snprintf(name, sizeof name, "%s%s", t->name, IMATRIX_SUMS);
    const gguf_tensor *sums = gguf_find_tensor(m->file, name);
    if (!sums) return PI_OK;
    /* divides n_elems, so the product cannot overflow */
    uint64_t n_matrices = t->dims[2] * t->dims[3];
    if (sums->type != QUANT_F32 || sums->dims[0] != t->dims[0] ||
        sums->n_elems / t->dims[0] != n_matrices)
        return error_set(err, PI_ERR_FORMAT,
                         "importance matrix of another model: %.200s: %.80s has %llu numbers for "
                         "%llu matrices of %llu columns: collect it with this model",
                         gguf_path(m->file), name, (unsigned long long)sums->n_elems,
                         (unsigned long long)n_matrices, (unsigned long long)t->dims[0]);
    const float *values = (const float *)(const void *)sums->data;
    for (uint64_t i = 0; i < sums->n_elems; i++) {
        if (values[i] >= 0 && isfinite(values[i])) continue;
        return error_set(err, PI_ERR_FORMAT,
                         "importance matrix is damaged: %.200s: %.80s has a sum of squares of %g: "
                         "collect it again",
                         gguf_path(m->file), name, (double)values[i]);
    }
    *out = values;
    return PI_OK;
}

uint64_t imatrix_entries(const imatrix *m) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(m->file); i++)
        n += ends_with(gguf_tensor_at(m->file, i)->name, IMATRIX_SUMS);
    return n;
}

uint32_t imatrix_chunks(const imatrix *m) {
    uint64_t n = 0;
    const gguf_value *v = gguf_find(m->file, "imatrix.chunk_count");
    return v && gguf_as_u64(v, &n) && n <= UINT32_MAX ? (uint32_t)n : 0;
}

gguf_string imatrix_dataset(const imatrix *m) {
    gguf_string none = {.data = "", .n_bytes = 0};
    const gguf_value *v = gguf_find(m->file, "imatrix.datasets");
    if (!v || v->type != GGUF_ARRAY || v->item_type != GGUF_STRING || v->count == 0) return none;
    const uint8_t *cursor = v->data;
    return gguf_next_string(&cursor);
}
