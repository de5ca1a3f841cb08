/* tune_write.c: copies a model and adds the settings of its fastest trial. Parts of a split model
 * are joined. */
#include "cpu_topology.h"
#include "error.h"
#include "gguf_writer.h"
#include "sparse_keys.h"
#include "tune.h"

enum { CHUNK_BYTES = 16 << 20 };

static void put_keys(gguf_writer *w, const gguf_file *in, const tune_setting *chosen,
                     const pi_tune_result *r, int32_t n_ctx) {
    const pi_tune_trial *t = &chosen->trial;
    for (uint64_t i = 0; i < gguf_n_values(in); i++) {
        const gguf_value *v = gguf_value_at(in, i);
        if (!gguf_string_starts(v->key, "split.") && !gguf_string_starts(v->key, TUNE_KEYS))
            gguf_put_value(w, v);
    }
    gguf_put_string(w, TUNE_KEY_CPU, r->cpu);
    gguf_put_u32(w, TUNE_KEY_CPUS, (uint32_t)cpu_count_available());
    gguf_put_string(w, TUNE_KEY_MODE, t->mode);
    gguf_put_string(w, TUNE_KEY_HEAD, t->head ? "predict" : "dense");
    gguf_put_u32(w, TUNE_KEY_THREADS, (uint32_t)t->threads);
    gguf_put_u32(w, TUNE_KEY_N_CTX, (uint32_t)n_ctx);
    gguf_put_u32(w, TUNE_KEY_ATTN_BLOCKS, (uint32_t)t->attn_blocks);
    gguf_put_f32(w, TUNE_KEY_LOSS, (float)t->loss);
    gguf_put_f32(w, TUNE_KEY_SPEED, (float)t->tps);
    gguf_put_f32(w, TUNE_KEY_SPEED_BEFORE, (float)r->before.tps);
}

static pi_status copy_tensors(gguf_writer *w, const gguf_file *in, const char *out_path,
                              progress *report, pi_error *err) {
    uint64_t done = 0, all = 1;
    pi_status status = PI_OK;
    for (uint64_t i = 0; i < gguf_n_tensors(in); i++) all += gguf_tensor_at(in, i)->n_bytes;
    for (uint64_t i = 0; i < gguf_n_tensors(in) && status == PI_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(in, i);
        for (size_t at = 0, n; at < t->n_bytes && status == PI_OK; at += n) {
            n = t->n_bytes - at < CHUNK_BYTES ? t->n_bytes - at : CHUNK_BYTES;
            status = gguf_write_data(w, t->data + at, n, err);
            gguf_forget(in, t, at, n);
            done += n;
            if (status == PI_OK && !progress_step(report, "writing", (double)done / (double)all))
                status = error_set(err, PI_ERR_CANCELLED, "cancelled: %.300s: nothing was written",
                                   out_path);
        }
    }
    return status;
}

pi_status tune_write(const char *path, const char *out_path, const tune_setting *chosen,
                     const pi_tune_result *r, int32_t n_ctx, progress *report, pi_error *err) {
    gguf_file *in = NULL;
    gguf_writer *w = NULL;
    pi_status status = gguf_open(path, NULL, &in, err);
    if (status == PI_OK) status = gguf_writer_create(out_path, &w, err);
    if (status == PI_OK) put_keys(w, in, chosen, r, n_ctx);
    for (uint64_t i = 0; status == PI_OK && i < gguf_n_tensors(in); i++) {
        const gguf_tensor *t = gguf_tensor_at(in, i);
        status = gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, err);
    }
    if (status == PI_OK) status = gguf_writer_begin_data(w, err);
    if (status == PI_OK) status = copy_tensors(w, in, out_path, report, err);
    if (status == PI_OK)
        status = gguf_writer_finish(w, err);
    else
        gguf_writer_abort(w);
    gguf_close(in);
    return status;
}
