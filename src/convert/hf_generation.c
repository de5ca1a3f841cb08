/* hf_generation.c: see hf_generation.h. */
#include "hf_generation.h"

#include "file.h"

enum { PATH_BYTES = 4096 };

static const struct {
    const char *name, *key;
    bool whole; /* an integer */
    double min, max;
} settings[HF_GENERATION_KEYS] = {
    {"temperature", "general.sampling.temp", false, 0, 1000},
    {"top_k", "general.sampling.top_k", true, 0, 1 << 24},
    {"top_p", "general.sampling.top_p", false, 0, 1},
    {"min_p", "general.sampling.min_p", false, 0, 1},
    {"repetition_penalty", "general.sampling.penalty_repeat", false, 0, 1000},
};

pi_status hf_generation_parse(const json_node *root, const char *path, hf_generation *out,
                              pi_error *err) {
    *out = (hf_generation){0};
    bool samples = true;
    json_as_bool(json_get(root, "do_sample"), &samples);
    for (int i = 0; i < HF_GENERATION_KEYS && samples; i++) {
        const json_node *node = json_get(root, settings[i].name);
        int64_t whole;
        if (json_kind_of(node) == JSON_NULL) continue;
        double value;
        if (!json_as_double(node, &value) || !(value >= settings[i].min) ||
            !(value <= settings[i].max) || (settings[i].whole && !json_as_int(node, &whole)))
            return error_set(err, PI_ERR_FORMAT, "bad setting: %s: %s is not %s in %g..%g", path,
                             settings[i].name, settings[i].whole ? "an integer" : "a number",
                             settings[i].min, settings[i].max);
        out->has[i] = true;
        out->values[i] = value;
    }
    return PI_OK;
}

pi_status hf_generation_read(const char *dir, hf_generation *out, pi_error *err) {
    char path[PATH_BYTES];
    *out = (hf_generation){0};
    if (!file_join(path, sizeof path, dir, "generation_config.json"))
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
    if (!file_exists(path)) return PI_OK;
    json_doc *doc = NULL;
    pi_status status = json_parse_file(path, &doc, err);
    if (status != PI_OK) return status;
    status = hf_generation_parse(json_root(doc), path, out, err);
    json_free(doc);
    return status;
}

void hf_generation_put(const hf_generation *g, gguf_writer *w) {
    for (int i = 0; i < HF_GENERATION_KEYS; i++) {
        if (!g->has[i]) continue;
        if (settings[i].whole)
            gguf_put_i32(w, settings[i].key, (int32_t)g->values[i]);
        else
            gguf_put_f32(w, settings[i].key, (float)g->values[i]);
    }
}
