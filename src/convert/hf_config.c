/* hf_config.c: every number of config.json has a range here, so that nothing hostile reaches the
 * arithmetic of the converter. Readers do nothing once an error is set. */
#include "hf_config.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "model.h"

enum { PATH_BYTES = 4096, KEY_TEXT = 128, MAX_HEAD_DIM = 4096 };

typedef struct config_reader {
    const char *path;
    const talk *talk;
    pi_error *err;
    pi_status status;
} config_reader;

static void fail(config_reader *r, const char *key, const char *problem) {
    if (r->status != PI_OK) return;
    r->status = error_set(r->err, PI_ERR_FORMAT, "bad configuration: %s: %s %s", r->path, key,
                          problem);
}

/* Absent and null are the same thing in these files. */
static const json_node *get(const json_node *object, const char *key) {
    const json_node *node = json_get(object, key);
    return json_kind_of(node) == JSON_NULL ? NULL : node;
}

/* An integer in min..max; `fallback` < 0: required. */
static int32_t get_int(config_reader *r, const json_node *object, const char *key, int32_t fallback,
                       int32_t min, int32_t max) {
    const json_node *node = get(object, key);
    int64_t value;
    char problem[96];
    if (!node && fallback >= 0) return fallback;
    if (!node) {
        fail(r, key, "is missing");
    } else if (!json_as_int(node, &value)) {
        fail(r, key, "is not an integer");
    } else if (value < min || value > max) {
        snprintf(problem, sizeof problem, "is %lld, not in %d..%d", (long long)value, min, max);
        fail(r, key, problem);
    } else {
        return (int32_t)value;
    }
    return min;
}

/* A finite number in min..max; NaN as fallback: required. */
static double get_number(config_reader *r, const json_node *object, const char *key,
                         double fallback, double min, double max) {
    const json_node *node = get(object, key);
    double value;
    char problem[96];
    if (!node && !isnan(fallback)) return fallback;
    if (!node) {
        fail(r, key, "is missing");
    } else if (!json_as_double(node, &value)) {
        fail(r, key, "is not a number");
    } else if (!(value >= min && value <= max)) {
        snprintf(problem, sizeof problem, "is %g, not in %g..%g", value, min, max);
        fail(r, key, problem);
    } else {
        return value;
    }
    return min;
}

static const char *get_text(const json_node *object, const char *key) {
    const char *text;
    size_t n;
    return json_as_string(get(object, key), &text, &n) ? text : NULL;
}

static void list_model_types(char *text, size_t n_text) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < arch_count(); i++) {
        for (const char *const *type = arch_at(i)->hf_types; *type && used < n_text; type++)
            used += (size_t)snprintf(text + used, n_text - used, "%s%s", used ? ", " : "", *type);
    }
}

static void read_model_type(config_reader *r, const json_node *root, hf_config *c) {
    const char *type = get_text(root, "model_type");
    if (!type) {
        fail(r, "model_type", "is missing or not a string");
        return;
    }
    c->arch = arch_find_hf(type);
    if (c->arch) return;
    char known[256];
    list_model_types(known, sizeof known);
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "unknown model type '%.60s': %s: this version converts %s", type, r->path,
                          known);
}

/* ---- activation ------------------------------------------------------------------------------ */

/* Names of transformers' ACT2FN and of sparse models' own code. */
static const struct {
    const char *name;
    activation activation;
} hidden_acts[] = {
    {"silu", ACTIVATION_SILU},
    {"swish", ACTIVATION_SILU},
    {"relu", ACTIVATION_RELU},
    {"relu2", ACTIVATION_RELU_SQUARED},
    {"relu_squared", ACTIVATION_RELU_SQUARED},
    {"drelu", ACTIVATION_DRELU},
    {"fatrelu", ACTIVATION_FATRELU},
    {"gelu_pytorch_tanh", ACTIVATION_GELU},
    {"gelu_new", ACTIVATION_GELU},
    {"gelu_fast", ACTIVATION_GELU},
    {"gelu", ACTIVATION_GELU},
};

static void read_activation(config_reader *r, const json_node *root, hf_config *c) {
    if (r->status != PI_OK) return;
    c->activation = c->arch->default_activation;
    const char *name = get_text(root, "hidden_act");
    if (!name && get(root, "hidden_act")) fail(r, "hidden_act", "is not a string");
    if (!name) return;
    size_t i = 0, n = sizeof hidden_acts / sizeof hidden_acts[0];
    while (i < n && strcmp(hidden_acts[i].name, name) != 0) i++;
    if (i == n) {
        r->status = error_set(
            r->err, PI_ERR_UNSUPPORTED,
            "unknown activation '%.60s': %s: hidden_act can be silu, relu, relu2, "
            "drelu, fatrelu or gelu",
            name, r->path);
        return;
    }
    c->activation = hidden_acts[i].activation;
    /* TurboSparse's checkpoints say relu and apply it to both sides, as their architecture does */
    if (c->activation == ACTIVATION_RELU && c->arch->default_activation == ACTIVATION_DRELU)
        c->activation = ACTIVATION_DRELU;
    if (strcmp(name, "gelu") == 0)
        talk_say(r->talk, "hidden_act gelu is computed in its tanh form, which differs by 0.001");
    if (c->activation == ACTIVATION_FATRELU) {
        c->has_threshold = true;
        c->threshold = get_number(r, root, "hidden_act_param", NAN, -1e6, 1e6);
    }
    if (c->activation != c->arch->default_activation)
        talk_say(r->talk,
                 "%s is recorded in the key %s.hidden_activation; programs that ignore it would "
                 "run this model with %s",
                 name, c->arch->name, activation_name(c->arch->default_activation));
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* YaRN's temperature (Peng et al. 2023, arXiv 2309.00071, section 3.4) with a weight. */
static double yarn_mscale(double factor, double weight) {
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static void read_yarn(config_reader *r, const json_node *node, hf_config *c) {
    hf_rope *rope = &c->rope;
    rope->kind = HF_ROPE_YARN;
    rope->beta_fast = get_number(r, node, "beta_fast", 32, 1e-3, 1e6);
    rope->beta_slow = get_number(r, node, "beta_slow", 1, 1e-3, 1e6);
    double usual = yarn_mscale(rope->factor, 1), whole = usual;
    if (get(node, "attention_factor")) {
        whole = get_number(r, node, "attention_factor", 1, 1e-3, 1e3);
    } else if (get(node, "mscale") && get(node, "mscale_all_dim")) {
        whole = yarn_mscale(rope->factor, get_number(r, node, "mscale", 1, 0, 1e3)) /
                yarn_mscale(rope->factor, get_number(r, node, "mscale_all_dim", 1, 0, 1e3));
    }
    rope->attn_factor = whole / usual;
}

static void read_llama3(config_reader *r, const json_node *node, hf_config *c) {
    hf_rope *rope = &c->rope;
    rope->kind = HF_ROPE_LLAMA3;
    rope->low_freq_factor = get_number(r, node, "low_freq_factor", NAN, 1e-6, 1e6);
    rope->high_freq_factor = get_number(r, node, "high_freq_factor", NAN, 1e-6, 1e6);
    if (rope->high_freq_factor <= rope->low_freq_factor)
        fail(r, "rope_scaling", "has a high_freq_factor that is not above low_freq_factor");
}

static void read_scaling(config_reader *r, const json_node *node, hf_config *c) {
    const char *type = get_text(node, "rope_type");
    if (!type) type = get_text(node, "type");
    if (!type || strcmp(type, "default") == 0 || strcmp(type, "none") == 0) return;
    if (strcmp(type, "dynamic") == 0) {
        /* below the trained context this rule changes nothing */
        talk_say(r->talk, "dynamic rope scaling is left out: it only acts beyond %d tokens",
                 c->n_ctx);
        return;
    }
    hf_rope *rope = &c->rope;
    rope->factor = get_number(r, node, "factor", NAN, 1e-3, 1e6);
    rope->orig_ctx = get_int(r, node, "original_max_position_embeddings", c->n_ctx, 1, INT32_MAX);
    if (strcmp(type, "linear") == 0) {
        rope->kind = HF_ROPE_LINEAR;
    } else if (strcmp(type, "llama3") == 0) {
        read_llama3(r, node, c);
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(r, node, c);
    } else if (r->status == PI_OK) {
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown rope scaling '%.60s': %s: rope_scaling can be default, "
                              "linear, dynamic, llama3 or yarn",
                              type, r->path);
    }
}

/* Older files have rope_theta and rope_scaling, newer ones put both into rope_parameters. */
static void read_rope(config_reader *r, const json_node *root, hf_config *c) {
    const json_node *scaling = get(root, "rope_scaling");
    const json_node *parameters = get(root, "rope_parameters");
    if ((scaling && json_kind_of(scaling) != JSON_OBJECT) ||
        (parameters && json_kind_of(parameters) != JSON_OBJECT)) {
        fail(r, "rope_scaling", "is not an object");
        return;
    }
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(parameters, &iter, &key, &value))
        if (json_kind_of(value) == JSON_OBJECT)
            fail(r, "rope_parameters", "differ between layers, which this model type cannot have");
    const json_node *theta_at = get(parameters, "rope_theta") ? parameters : root;
    c->rope = (hf_rope){.theta = get_number(r, theta_at, "rope_theta", 10000, 1e-3, 1e12),
                        .factor = 1,
                        .attn_factor = 1};
    if (r->status == PI_OK) read_scaling(r, scaling ? scaling : parameters, c);
    const json_node *partial_at = get(parameters, "partial_rotary_factor") ? parameters : root;
    if (get_number(r, partial_at, "partial_rotary_factor", 1, 0, 1) < 1 && r->status == PI_OK)
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "partly rotated heads: %s: partial_rotary_factor must be 1", r->path);
}

/* ---- the whole file -------------------------------------------------------------------------- */

static void read_shape(config_reader *r, const json_node *root, hf_config *c) {
    c->n_embd = get_int(r, root, "hidden_size", -1, 1, MODEL_MAX_DIM);
    c->n_ff = get_int(r, root, "intermediate_size", -1, 1, MODEL_MAX_DIM);
    c->n_layer = get_int(r, root, "num_hidden_layers", -1, 1, MODEL_MAX_LAYERS);
    c->n_head = get_int(r, root, "num_attention_heads", -1, 1, MODEL_MAX_HEADS);
    if (r->status != PI_OK) return;
    c->n_head_kv = get_int(r, root, "num_key_value_heads", c->n_head, 1, MODEL_MAX_HEADS);
    c->head_dim = get_int(r, root, "head_dim", c->n_embd / c->n_head, 1, MAX_HEAD_DIM);
    c->n_ctx = get_int(r, root, "max_position_embeddings", -1, 1, INT32_MAX);
    c->n_vocab = get_int(r, root, "vocab_size", -1, 1, MODEL_MAX_VOCAB);
    c->norm_eps = get_number(r, root, "rms_norm_eps", 1e-6, 0, 1);
    if (r->status != PI_OK) return;
    if (c->head_dim % 2 != 0 || c->head_dim > MAX_HEAD_DIM)
        fail(r, "head_dim", "(or hidden_size / num_attention_heads) is not an even number <= 4096");
    if (!get(root, "head_dim") && c->n_embd % c->n_head != 0)
        fail(r, "hidden_size", "is not a multiple of num_attention_heads");
    if (c->n_head % c->n_head_kv != 0)
        fail(r, "num_attention_heads", "is not a multiple of num_key_value_heads");
}

static void read_rest(config_reader *r, const json_node *root, hf_config *c) {
    const json_node *tied = get(root, "tie_word_embeddings");
    bool value = false;
    if (tied && !json_as_bool(tied, &value)) fail(r, "tie_word_embeddings", "is not a boolean");
    c->tied = !tied ? HF_TIED_UNSAID : value ? HF_TIED_YES : HF_TIED_NO;

    bool uses_window = true; /* some models have the size but switch it off */
    json_as_bool(get(root, "use_sliding_window"), &uses_window);
    int32_t window = get_int(r, root, "sliding_window", INT32_MAX, 1, INT32_MAX);
    if (r->status == PI_OK && uses_window && window < c->n_ctx)
        talk_say(r->talk,
                 "the model looks back %d tokens only; a GGUF file of %s cannot say so: results "
                 "are the model's own up to %d tokens of context",
                 window, c->arch->name, window);
    if (get(root, "quantization_config") && r->status == PI_OK)
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "quantized checkpoint: %s: has quantization_config; convert the "
                              "original in F16, BF16 or F32 instead",
                              r->path);
}

pi_status hf_config_parse(const json_node *root, const char *path, const talk *t, hf_config *out,
                          pi_error *err) {
    config_reader r = {.path = path, .talk = t, .err = err, .status = PI_OK};
    *out = (hf_config){0};
    if (json_kind_of(root) != JSON_OBJECT)
        return error_set(err, PI_ERR_FORMAT, "not a JSON object: %s: download the file again",
                         path);
    read_model_type(&r, root, out);
    if (r.status == PI_OK) read_shape(&r, root, out);
    if (r.status == PI_OK) read_rope(&r, root, out);
    read_activation(&r, root, out);
    if (r.status == PI_OK) read_rest(&r, root, out);
    return r.status;
}

/* general.name: _name_or_path's last part when it is a name, else the folder's. */
static void choose_name(const json_node *root, const char *dir, char *name, size_t n_name) {
    const char *said = get_text(root, "_name_or_path");
    const char *slash = said ? strrchr(said, '/') : NULL;
    if (slash) said = slash + 1;
    if (said && *said && *said != '.') {
        snprintf(name, n_name, "%s", said);
        return;
    }
    char real[PATH_MAX];
    const char *last = realpath(dir, real) ? strrchr(real, '/') : NULL; /* "." and "x/" too */
    snprintf(name, n_name, "%s", last && last[1] ? last + 1 : "model");
}

pi_status hf_config_read(const char *dir, const talk *t, hf_config *out, pi_error *err) {
    char path[PATH_BYTES];
    if (!file_join(path, sizeof path, dir, "config.json"))
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
    if (!file_exists(path))
        return error_set(err, PI_ERR_NOT_FOUND,
                         "no config.json: %.300s: expected a Hugging Face model folder", dir);
    json_doc *doc = NULL;
    pi_status status = json_parse_file(path, &doc, err);
    if (status != PI_OK) return status;
    status = hf_config_parse(json_root(doc), path, t, out, err);
    if (status == PI_OK) choose_name(json_root(doc), dir, out->name, sizeof out->name);
    json_free(doc);
    return status;
}

/* ---- keys ------------------------------------------------------------------------------------ */

uint64_t hf_config_dim(const hf_config *c, arch_dim dim) {
    arch_sizes sizes = {.n_embd = c->n_embd,
                        .n_vocab = c->n_vocab,
                        .n_ff = c->n_ff,
                        .n_head = c->n_head,
                        .n_head_kv = c->n_head_kv,
                        .head_dim = c->head_dim,
                        .n_rot = c->head_dim};
    return (uint64_t)arch_dim_size(dim, &sizes);
}

static const char *arch_key(char key[KEY_TEXT], const hf_config *c, const char *suffix) {
    snprintf(key, KEY_TEXT, "%s.%s", c->arch->name, suffix);
    return key;
}

static void put_u32(gguf_writer *w, const hf_config *c, const char *suffix, int32_t value) {
    char key[KEY_TEXT];
    gguf_put_u32(w, arch_key(key, c, suffix), (uint32_t)value);
}

static void put_f32(gguf_writer *w, const hf_config *c, const char *suffix, double value) {
    char key[KEY_TEXT];
    gguf_put_f32(w, arch_key(key, c, suffix), (float)value);
}

static void put_rope(const hf_config *c, gguf_writer *w) {
    char key[KEY_TEXT];
    put_u32(w, c, "rope.dimension_count", c->head_dim);
    put_f32(w, c, "rope.freq_base", c->rope.theta);
    if (c->rope.kind == HF_ROPE_DEFAULT || c->rope.kind == HF_ROPE_LLAMA3) return;
    bool yarn = c->rope.kind == HF_ROPE_YARN;
    gguf_put_string(w, arch_key(key, c, "rope.scaling.type"), yarn ? "yarn" : "linear");
    put_f32(w, c, "rope.scaling.factor", c->rope.factor);
    if (!yarn) return;
    put_u32(w, c, "rope.scaling.original_context_length", c->rope.orig_ctx);
    put_f32(w, c, "rope.scaling.yarn_beta_fast", c->rope.beta_fast);
    put_f32(w, c, "rope.scaling.yarn_beta_slow", c->rope.beta_slow);
    if (c->rope.attn_factor != 1) put_f32(w, c, "rope.scaling.attn_factor", c->rope.attn_factor);
}

void hf_config_put(const hf_config *c, gguf_writer *w) {
    char key[KEY_TEXT];
    gguf_put_string(w, "general.architecture", c->arch->name);
    gguf_put_string(w, "general.name", c->name);
    put_u32(w, c, "context_length", c->n_ctx);
    put_u32(w, c, "embedding_length", c->n_embd);
    put_u32(w, c, "block_count", c->n_layer);
    put_u32(w, c, "feed_forward_length", c->n_ff);
    put_u32(w, c, "attention.head_count", c->n_head);
    put_u32(w, c, "attention.head_count_kv", c->n_head_kv);
    if (c->head_dim * c->n_head != c->n_embd) {
        put_u32(w, c, "attention.key_length", c->head_dim);
        put_u32(w, c, "attention.value_length", c->head_dim);
    }
    put_f32(w, c,
            c->arch->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                      : "attention.layer_norm_epsilon",
            c->norm_eps);
    put_u32(w, c, "vocab_size", c->n_vocab);
    put_rope(c, w);
    if (c->activation != c->arch->default_activation)
        gguf_put_string(w, arch_key(key, c, "hidden_activation"), activation_name(c->activation));
    if (c->has_threshold) put_f32(w, c, "hidden_activation_threshold", c->threshold);
}

/* Llama 3's rule (Grattafiori et al. 2024, arXiv 2407.21783; the reference code's apply_scaling):
 * long waves are stretched by the factor, short ones kept, those between interpolated. */
void hf_config_rope_factors(const hf_config *c, float *factors) {
    const hf_rope *rope = &c->rope;
    const double pi = 3.14159265358979323846;
    double longest = rope->orig_ctx / rope->low_freq_factor;
    double shortest = rope->orig_ctx / rope->high_freq_factor;
    for (int i = 0; i < c->head_dim / 2; i++) {
        double wavelength = 2 * pi * pow(rope->theta, 2.0 * i / c->head_dim);
        double divisor = 1;
        if (wavelength > longest) {
            divisor = rope->factor;
        } else if (wavelength >= shortest) {
            double smooth = (rope->orig_ctx / wavelength - rope->low_freq_factor) /
                            (rope->high_freq_factor - rope->low_freq_factor);
            divisor = 1 / ((1 - smooth) / rope->factor + smooth);
        }
        factors[i] = (float)divisor;
    }
}
