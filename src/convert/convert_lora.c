/* convert_lora.c: see convert_lora.h. */
#include "convert_lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "json.h"

static const char config_name[] = "adapter_config.json";

bool convert_lora_is(const char *dir) {
    char path[sizeof((convert_lora *)0)->base];
    return file_join(path, sizeof path, dir, config_name) && file_exists(path);
}

static bool is_set(const json_node *root, const char *key) {
    const json_node *node = hf_get(root, key);
    bool flag;
    if (!node) return false;
    if (json_as_bool(node, &flag)) return flag;
    return json_count(node) > 0;
}

static pi_status check_kind(const json_node *root, const char *path, pi_error *err) {
    /* what makes of A and B something other than alpha / rank times their product */
    static const char *const others[] = {"use_dora", "fan_in_fan_out", "alpha_pattern",
                                         "alora_invocation_tokens", "use_qalora"};
    const char *kind = hf_text(root, "peft_type");
    if (!kind || strcmp(kind, "LORA") != 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "not a LoRA adapter: %.300s: peft_type is %.40s, and must be LORA", path,
                         kind ? kind : "missing");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_set(root, others[i]))
            return error_set(err, PI_ERR_UNSUPPORTED,
                             "cannot be converted: %.300s: %s: GGUF adapters do not support it",
                             path, others[i]);
    if (is_set(root, "use_rslora") && is_set(root, "rank_pattern"))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "cannot be converted: %.300s: use_rslora with rank_pattern: GGUF adapters "
                         "have one alpha",
                         path);
    return PI_OK;
}

static pi_status read_alpha(const json_node *root, const char *path, float *alpha, pi_error *err) {
    double value;
    int64_t rank = 1;
    const char *bad = NULL;
    if (!json_as_double(hf_get(root, "lora_alpha"), &value) || !(fabs(value) <= 1e6) || value == 0)
        bad = "lora_alpha";
    bool rooted = is_set(root, "use_rslora"); /* alpha / sqrt(rank) */
    if (!bad && rooted &&
        (!json_as_int(hf_get(root, "r"), &rank) || rank < 1 || rank > MODEL_MAX_DIM))
        bad = "r";
    if (bad)
        return error_set(err, PI_ERR_FORMAT, "bad configuration: %.300s: %s is not a usable number",
                         path, bad);
    *alpha = (float)(rooted ? value * sqrt((double)rank) : value);
    return PI_OK;
}

static bool has_config(const char *dir) {
    char path[sizeof((convert_lora *)0)->base];
    return file_join(path, sizeof path, dir, "config.json") && file_exists(path);
}

static pi_status find_base(const json_node *root, const char *dir, const char *base,
                           convert_lora *out, pi_error *err) {
    const char *named = hf_text(root, "base_model_name_or_path");
    const char *found = base;
    if (!found && has_config(dir)) found = dir;
    if (!found && named && has_config(named)) found = named;
    if (!found)
        return error_set(
            err, PI_ERR_NOT_FOUND,
            "no configuration of the adapted model (%.200s): %.300s: name its folder as "
            "the base",
            named ? named : "unnamed", dir);
    if ((size_t)snprintf(out->base, sizeof out->base, "%s", found) >= sizeof out->base)
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", found);
    return PI_OK;
}

pi_status convert_lora_read(const char *dir, const char *base, convert_lora *out, pi_error *err) {
    char path[sizeof out->base];
    if (!file_join(path, sizeof path, dir, config_name))
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
    json_doc *doc = NULL;
    pi_status status = json_parse_file(path, &doc, err);
    if (status != PI_OK) return status;
    const json_node *root = json_root(doc);
    status = check_kind(root, path, err);
    if (status == PI_OK) status = read_alpha(root, path, &out->alpha, err);
    if (status == PI_OK) status = find_base(root, dir, base, out, err);
    json_free(doc);
    return status;
}

void convert_lora_put(const convert_lora *l, const hf_config *c, gguf_writer *w) {
    gguf_put_string(w, "general.type", "adapter");
    gguf_put_string(w, "general.architecture", c->arch->name);
    gguf_put_string(w, "general.name", c->name);
    gguf_put_string(w, "adapter.type", "lora");
    gguf_put_f32(w, "adapter.lora.alpha", l->alpha);
}
