/* convert_predictors.c: see convert_predictors.h. Names and shapes follow
 * https://github.com/SJTU-IPADS/PowerInfer. */
#include "convert_predictors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "mem.h"
#include "sparse_keys.h"

enum { PATH_BYTES = 4096, NAME_BYTES = 32 };

static pi_status check_model(const hf_config *c, pi_error *err) {
    const char *problem = NULL;
    if (c->experts.n > 0)
        problem = "a model with experts";
    else if (!arch_tensor_of(c->arch, ROLE_FC1) || !arch_tensor_of(c->arch, ROLE_FFN_DOWN_T))
        problem = "this architecture";
    else if (!model_has_zeros(c->activation))
        problem = "an activation that is never zero";
    if (!problem) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "predictors do not apply: architecture %s, activation %s: %s", c->arch->name,
                     activation_name(c->activation), problem);
}

static pi_status read_threshold(const char *dir, convert_predictors *out, pi_error *err) {
    char path[PATH_BYTES];
    double value = 0;
    if (!file_join(path, sizeof path, dir, "config.json") || !file_exists(path)) return PI_OK;
    json_doc *doc = NULL;
    pi_status status = json_parse_file(path, &doc, err);
    if (status != PI_OK) return status;
    const json_node *node = hf_get(json_root(doc), "sparse_threshold");
    out->has_threshold = node != NULL;
    if (node && (!json_as_double(node, &value) || !(fabs(value) <= 1e6)))
        status = error_set(err, PI_ERR_FORMAT,
                           "bad configuration: %.300s: sparse_threshold is not a usable number",
                           path);
    out->threshold = (float)value;
    json_free(doc);
    return status;
}

pi_status convert_predictors_read(const char *dir, hf_config *c, safetensors *weights,
                                  convert_predictors *out, pi_error *err) {
    char path[PATH_BYTES], name[NAME_BYTES], prefix[NAME_BYTES];
    pi_status status = check_model(c, err);
    if (status == PI_OK) status = read_threshold(dir, out, err);
    for (int i = 0; i < c->n_layer && status == PI_OK; i++) {
        snprintf(name, sizeof name, "model_%d.pt", i);
        snprintf(prefix, sizeof prefix, "blk.%d.", i);
        if (!file_join(path, sizeof path, dir, name))
            return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
        if (!file_exists(path))
            return error_set(err, PI_ERR_NOT_FOUND,
                             "no predictor: %.300s: a folder of predictors has one for each of %d "
                             "layers",
                             path, c->n_layer);
        status = safetensors_add(weights, path, prefix, err);
    }
    c->predictors = status == PI_OK;
    return status;
}

static void put_layers(gguf_writer *w, const char *key, gguf_string *texts, int n,
                       const char *text) {
    for (int i = 0; i < n; i++) texts[i] = (gguf_string){.data = text, .n_bytes = strlen(text)};
    gguf_put_strings(w, key, texts, (uint64_t)n);
}

pi_status convert_predictors_put(const convert_predictors *p, const hf_config *c, gguf_writer *w,
                                 pi_error *err) {
    gguf_string *texts = mem_calloc((size_t)c->n_layer, sizeof *texts);
    if (!texts) return error_nomem(err, (size_t)c->n_layer * sizeof *texts, "keys of layers");
    gguf_put_u32(w, SPARSE_KEY_VERSION, SPARSE_VERSION);
    put_layers(w, SPARSE_KEY_PREDICTOR_KIND, texts, c->n_layer,
               predictor_kind_name(PREDICTOR_RELU_MLP));
    put_layers(w, SPARSE_KEY_PREDICTOR_INPUT, texts, c->n_layer, "residual");
    if (p->has_threshold) gguf_put_f32(w, SPARSE_KEY_PREDICTOR_THRESHOLD, p->threshold);
    mem_free(texts);
    return PI_OK;
}
