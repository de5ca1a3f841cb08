/* model_tuning.c: reads the settings that `tune` stored in the file. Settings for another machine
 * are ignored, invalid ones are errors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_features.h"
#include "cpu_topology.h"
#include "model_sparse.h"
#include "sparse_keys.h"

static pi_status fail_key(const model *m, const char *key, const char *problem, pi_error *err) {
    return error_set(err, PI_ERR_FORMAT, "bad key: %s: %s %s; tune the model again",
                     gguf_path(m->file), key, problem);
}

/* A missing key leaves *out 0. */
static pi_status read_count(const model *m, const char *key, int32_t *out, pi_error *err) {
    const gguf_value *v = gguf_find(m->file, key);
    int64_t number = 0;
    if (v && (!gguf_as_i64(v, &number) || number < 0 || number > INT32_MAX))
        return fail_key(m, key, "is not a count", err);
    *out = (int32_t)number;
    return PI_OK;
}

pi_status model_read_tuning(model *m, pi_error *err) {
    model_tuning *t = &m->tuning;
    const gguf_value *cpu = gguf_find(m->file, TUNE_KEY_CPU);
    const gguf_value *mode = gguf_find(m->file, TUNE_KEY_MODE);
    const gguf_value *head = gguf_find(m->file, TUNE_KEY_HEAD);
    const gguf_value *loss = gguf_find(m->file, TUNE_KEY_LOSS);
    gguf_string word;
    double number = 0;
    *t = (model_tuning){.here = false};
    if (!cpu) return PI_OK;
    if (!gguf_as_string(cpu, &word)) return fail_key(m, TUNE_KEY_CPU, "is not a string", err);
    int32_t cpus = 0;
    pi_status status = read_count(m, TUNE_KEY_CPUS, &cpus, err);
    if (status != PI_OK || cpus != cpu_count_available() || !gguf_string_is(word, cpu_model_name()))
        return status;
    if (!mode || !gguf_as_string(mode, &word) || word.n_bytes >= sizeof t->mode)
        return fail_key(m, TUNE_KEY_MODE, "is not the name of a mode", err);
    snprintf(t->mode, sizeof t->mode, "%.*s", (int)word.n_bytes, word.data);
    if (head && !gguf_as_string(head, &word))
        return fail_key(m, TUNE_KEY_HEAD, "is not a string", err);
    t->head = head && gguf_string_is(word, "predict");
    if (loss && (!gguf_as_f64(loss, &number) || !isfinite((float)number)))
        return fail_key(m, TUNE_KEY_LOSS, "is not a finite number", err);
    t->loss = (float)number;
    status = read_count(m, TUNE_KEY_THREADS, &t->threads, err);
    if (status == PI_OK) status = read_count(m, TUNE_KEY_N_CTX, &t->n_ctx, err);
    if (status == PI_OK) status = read_count(m, TUNE_KEY_ATTN_BLOCKS, &t->attn_blocks, err);
    t->here = status == PI_OK;
    return status;
}
