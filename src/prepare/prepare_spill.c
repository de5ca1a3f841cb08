/* prepare_spill.c: keeps predictors of finished layers on the disk until the output's header can be
 * written, which needs the ranks and types of all predictors. So memory contains the predictor of
 * only one layer. The file is in the output's folder, which needs space for the predictors anyway.
 * It has no name, so that it disappears even after a crash. */
#include <errno.h>

#include "file.h"
#include "mem.h"
#include "prepare.h"

struct prepare_spill {
    file_scratch *file;
    uint64_t n_bytes; /* bytes written so far */
};

static pi_status open_spill(preparation *p, pi_error *err) {
    prepare_spill *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, p->out_path);
    pi_status status = file_scratch_create(p->beside, &s->file, err);
    if (status == PI_OK)
        p->spill = s;
    else
        mem_free(s);
    return status;
}

void prepare_spill_free(prepare_spill *s) {
    if (!s) return;
    file_scratch_remove(s->file);
    mem_free(s);
}

static pi_status put(preparation *p, const void *data, size_t n_bytes, uint64_t *at,
                     pi_error *err) {
    *at = p->spill->n_bytes;
    int problem = os_file_write_at(file_scratch_file(p->spill->file), data, n_bytes, *at);
    if (problem)
        return error_set_errno(err, problem, "cannot write file: a temporary one next to %.300s",
                               p->out_path);
    p->spill->n_bytes += n_bytes;
    return PI_OK;
}

pi_status prepare_spill_read(const preparation *p, uint64_t at, void *data, size_t n_bytes,
                             pi_error *err) {
    for (uint8_t *to = data; n_bytes > 0;) {
        size_t n;
        int problem = os_file_read_at(file_scratch_file(p->spill->file), to, n_bytes, at, &n);
        if (!problem && n == 0) problem = EIO;
        if (problem)
            return error_set_errno(err, problem, "cannot read file: a temporary one next to %.300s",
                                   p->out_path);
        to += n;
        n_bytes -= n;
        at += n;
    }
    return PI_OK;
}

/* Sets arrays to NULL when ownership moves, so that only one owner frees them. */
static pi_status give(preparation *p, void **data, size_t row_bytes, int64_t rows, uint64_t *at,
                      pi_error *err) {
    if (!*data) return PI_OK;
    pi_status status = put(p, *data, row_bytes * (size_t)rows, at, err);
    mem_free(*data);
    *data = NULL;
    return status;
}

pi_status prepare_spill_fit(preparation *p, int layer, pi_error *err) {
    prepare_layer *l = &p->layers[layer];
    predictor_fit *fit = &l->fit;
    const model_layer *m = &p->model->layers[layer];
    bool experts = m->t[ROLE_ROUTER].data; /* arrays of all experts */
    int64_t n = experts ? p->model->hp.n_expert : 1, n_embd = p->model->hp.n_embd;
    int64_t n_ff = n * (experts ? m->hp.n_ff_expert : m->hp.n_ff);
    size_t row1 = 0, row2 = 0;
    if (fit->kind == PREDICTOR_NONE) return PI_OK;
    pi_status status = p->spill ? PI_OK : open_spill(p, err);
    if (status != PI_OK) return status;
    (void)quant_row_bytes(fit->type_fc1, (uint64_t)n_embd, &row1); /* rows as packed by the fit */
    (void)quant_row_bytes(fit->type_fc2, (uint64_t)fit->rank, &row2);
    void *bias = fit->bias, *sign = fit->sign;
    fit->bias = NULL;
    fit->sign = NULL;
    status = give(p, &fit->fc1, row1, n * fit->rank, &l->at.fc1, err);
    if (status == PI_OK) status = give(p, &fit->fc2, row2, n_ff, &l->at.fc2, err);
    if (status == PI_OK) status = give(p, &sign, (size_t)n_embd / 8, n_ff, &l->at.sign, err);
    if (status == PI_OK) status = give(p, &bias, sizeof(float), n_ff, &l->at.bias, err);
    mem_free(sign);
    mem_free(bias);
    return status;
}
