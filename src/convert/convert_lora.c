/* convert_lora.c: see convert_lora.h. */
#include "convert_lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "file.h"

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
    /* options with which the change is not alpha / rank times the product of A and B */
    static const char *const others[] = {
        "use_dora",          "fan_in_fan_out",   "alora_invocation_tokens",
        "use_qalora",        "modules_to_save",  "trainable_token_indices",
        "target_parameters", "layer_replication"};
    /* initializations that also change the base model, as prefixes of their names */
    static const char *const beginnings[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
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
    const char *first = hf_text(root, "init_lora_weights");
    for (size_t i = 0; first && i < sizeof beginnings / sizeof *beginnings; i++)
        if (starts_with(first, beginnings[i]))
            return error_set(err, PI_ERR_UNSUPPORTED,
                             "cannot be converted: %.300s: init_lora_weights is %.40s, which "
                             "changes the model too: save it as an ordinary adapter with PEFT",
                             path, first);
    return PI_OK;
}

static pi_status fail_number(const char *path, const char *key, pi_error *err) {
    return error_set(err, PI_ERR_FORMAT, "bad configuration: %.300s: %.60s is not a usable number",
                     path, key);
}

static bool read_alpha(const json_node *node, double *alpha) {
    return json_as_double(node, alpha) && fabs(*alpha) <= 1e6;
}

static bool read_rank(const json_node *node, int64_t *rank) {
    return json_as_int(node, rank) && *rank >= 1 && *rank <= MODEL_MAX_DIM;
}

/* Patterns are names of modules or suffixes of names; other regular expressions are not
 * supported. */
static pi_status check_pattern(const json_node *root, const char *name, const char *path,
                               pi_error *err) {
    void *iter = NULL;
    const char *key;
    const json_node *value;
    bool ranks = strcmp(name, "rank_pattern") == 0;
    while (json_next(hf_get(root, name), &iter, &key, &value)) {
        double alpha;
        int64_t rank;
        if (ranks ? !read_rank(value, &rank) : !read_alpha(value, &alpha))
            return fail_number(path, name, err);
        if (strcspn(key + (*key == '^'), "^$*+?()[]{}|\\") < strlen(key + (*key == '^')))
            return error_set(err, PI_ERR_UNSUPPORTED,
                             "cannot be converted: %.300s: %s has the expression '%.60s'; only "
                             "names of modules and suffixes of names are supported",
                             path, name, key);
    }
    return PI_OK;
}

static pi_status read_scaling(const json_node *root, const char *path, double *alpha,
                              pi_error *err) {
    int64_t rank = 1;
    bool rooted = is_set(root, "use_rslora"); /* alpha / sqrt(rank) */
    if (!read_alpha(hf_get(root, "lora_alpha"), alpha) || *alpha == 0)
        return fail_number(path, "lora_alpha", err);
    if ((rooted || hf_get(root, "r")) && !read_rank(hf_get(root, "r"), &rank))
        return fail_number(path, "r", err);
    if (rooted) *alpha *= sqrt((double)rank);
    pi_status status = check_pattern(root, "alpha_pattern", path, err);
    return status == PI_OK ? check_pattern(root, "rank_pattern", path, err) : status;
}

/* Returns the value of the first key of a pattern that is the module's name or a suffix of it. */
static const json_node *find_pattern(const json_node *root, const char *name, const char *module,
                                     size_t n) {
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(hf_get(root, name), &iter, &key, &value)) {
        bool whole = *key == '^';
        size_t n_key = strlen(key + whole);
        if (n_key > n || memcmp(module + n - n_key, key + whole, n_key) != 0) continue;
        if (n_key == n || (!whole && module[n - n_key - 1] == '.')) return value;
    }
    return NULL;
}

pi_status convert_lora_factor(const convert_lora *l, const safetensor *b, double *factor,
                              pi_error *err) {
    static const char prefix[] = "base_model.model.";
    const json_node *root = json_root(l->doc);
    const char *module = b->name + (starts_with(b->name, prefix) ? sizeof prefix - 1 : 0);
    const char *end = strstr(module, ".lora_");
    size_t n = end ? (size_t)(end - module) : strlen(module);
    const json_node *own = find_pattern(root, "rank_pattern", module, n);
    int64_t rank = 0;
    double alpha = 0, r = (double)b->dims[1];
    if (read_rank(own ? own : hf_get(root, "r"), &rank) && (uint64_t)rank != b->dims[1])
        return error_set(err, PI_ERR_FORMAT,
                         "adapter of another rank: %s: tensor %.100s has rank %llu, %s says %lld",
                         b->file, b->name, (unsigned long long)b->dims[1], config_name,
                         (long long)rank);
    own = find_pattern(root, "alpha_pattern", module, n);
    read_alpha(own ? own : hf_get(root, "lora_alpha"), &alpha);
    *factor = alpha * (is_set(root, "use_rslora") ? sqrt(r) : 1) / l->alpha;
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
            "no configuration of the adapted model (%.200s): %.300s: set base to its folder",
            named ? named : "unnamed", dir);
    if ((size_t)snprintf(out->base, sizeof out->base, "%s", found) >= sizeof out->base)
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", found);
    return PI_OK;
}

pi_status convert_lora_read(const char *dir, const char *base, convert_lora *out, pi_error *err) {
    char path[sizeof out->base];
    if (!file_join(path, sizeof path, dir, config_name))
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
    pi_status status = json_parse_file(path, &out->doc, err);
    if (status != PI_OK) return status;
    const json_node *root = json_root(out->doc);
    status = check_kind(root, path, err);
    if (status == PI_OK) status = read_scaling(root, path, &out->alpha, err);
    if (status == PI_OK) status = find_base(root, dir, base, out, err);
    return status;
}

void convert_lora_free(convert_lora *l) {
    json_free(l->doc);
    l->doc = NULL;
}

void convert_lora_put(const convert_lora *l, const hf_config *c, gguf_writer *w) {
    gguf_put_string(w, "general.type", "adapter");
    gguf_put_string(w, "general.architecture", c->arch->name);
    gguf_put_string(w, "general.name", c->name);
    gguf_put_string(w, "adapter.type", "lora");
    gguf_put_f32(w, "adapter.lora.alpha", (float)l->alpha);
}
