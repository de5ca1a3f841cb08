/* hparams.c: reads hyperparameters from a file's keys and checks each against the limits of
 * model.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hparams_reader.h"

const gguf_value *hparams_find(const key_reader *r, const char *suffix, char key[KEY_TEXT]) {
    snprintf(key, KEY_TEXT, "%s.%s", r->arch, suffix);
    return gguf_find(r->file, key);
}

void hparams_fail(key_reader *r, const char *key, const char *problem) {
    r->status = error_set(r->err, PI_ERR_FORMAT,
                          "bad hyperparameter: %s: key %s %s; is the file complete?",
                          gguf_path(r->file), key, problem);
}

int32_t hparams_int(key_reader *r, const char *suffix, int index, int32_t fallback, int32_t min,
                    int32_t max) {
    char key[KEY_TEXT];
    if (r->status != PI_OK) return min;
    const gguf_value *v = hparams_find(r, suffix, key);
    if (!v) {
        if (fallback >= 0) return fallback;
        hparams_fail(r, key, "is missing");
        return min;
    }
    int64_t value;
    bool ok = v->type == GGUF_ARRAY ? gguf_item_i64(v, (uint64_t)index, &value)
                                    : gguf_as_i64(v, &value);
    if (!ok) {
        hparams_fail(r, key, "is not an integer for every layer");
        return min;
    }
    if (value < min || value > max) {
        char problem[96];
        snprintf(problem, sizeof problem, "is %lld, not in %d..%d", (long long)value, min, max);
        hparams_fail(r, key, problem);
        return min;
    }
    return (int32_t)value;
}

float hparams_float(key_reader *r, const char *suffix, double fallback, double min, double max) {
    char key[KEY_TEXT];
    if (r->status != PI_OK) return 1;
    const gguf_value *v = hparams_find(r, suffix, key);
    double value = fallback;
    if (!v && isnan(fallback)) {
        hparams_fail(r, key, "is missing");
        return 1;
    }
    if (v && !gguf_as_f64(v, &value)) {
        hparams_fail(r, key, "is not a number");
        return 1;
    }
    if (!(value > min && value <= max)) {
        char problem[96];
        if (min < 0 && min > -1e-20) /* callers pass this `min` for a range that includes 0 */
            snprintf(problem, sizeof problem, "is %g, not in 0..%g", value, max);
        else
            snprintf(problem, sizeof problem, "is %g, not above %g and at most %g", value, min,
                     max);
        hparams_fail(r, key, problem);
        return 1;
    }
    return (float)value;
}

static void read_activation(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    bool experts = hparams_find(r, "expert_count", key);
    hp->activation = arch_activation(arch, gguf_is_pwri(r->file), experts);
    const gguf_value *v = hparams_find(r, "hidden_activation", key);
    if (v && r->status == PI_OK) {
        gguf_string text = {"", 0};
        int found = -1;
        if (gguf_as_string(v, &text)) {
            for (int i = 0; i < ACTIVATION_COUNT; i++)
                if (gguf_string_is(text, activation_name((activation)i))) found = i;
        }
        if (found < 0) {
            r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                                  "unknown activation '%.*s': %s: key %s must be relu, silu, gelu, "
                                  "relu_squared, drelu or fatrelu",
                                  (int)(text.n_bytes < 40 ? text.n_bytes : 40), text.data,
                                  gguf_path(r->file), key);
            return;
        }
        hp->activation = (activation)found;
    }
    hp->activation_threshold = hparams_float(r, "hidden_activation_threshold", 0, -1e30, 1e30);
}

/* YaRN's mscale for rotated vectors is 0.1 ln(factor) + 1. Some models apply a multiplier to the
 * scores instead (DeepSeek-V2's mscale_all_dim; files store a tenth of it); the factor is then
 * divided by the same formula with that multiplier. */
static void read_yarn_scale(key_reader *r, model_hparams *hp) {
    double log_factor = hp->rope_scaling_factor > 1 ? log((double)hp->rope_scaling_factor) : 0;
    double multiplier = (double)hparams_float(r, "rope.scaling.yarn_log_multiplier", 0, -1e-30,
                                              1e3);
    hp->yarn_scale = (float)(1 + 0.1 * log_factor);
    hp->yarn_score_scale = 1;
    if (hp->rope == ROPE_NONE) return;
    if (hp->n_latent > 0) {
        if (multiplier > 0) hp->yarn_scale = 1;
        double scale = (double)(hp->yarn_attn_factor * hp->yarn_scale) *
                       (1 + multiplier * log_factor);
        hp->yarn_score_scale = (float)(scale * scale);
    } else if (multiplier > 0) {
        hp->yarn_scale /= (float)(1 + 0.1 * multiplier * log_factor);
    }
}

/* Linear scaling divides positions by the factor; YaRN (Peng et al. 2023, arXiv 2309.00071) mixes
 * scaled and unscaled frequencies. Llama 3's rule comes as the tensor rope_freqs instead. */
static void read_rope_scaling(key_reader *r, model_hparams *hp) {
    char key[KEY_TEXT];
    hp->rope_scaling = ROPE_SCALING_NONE;
    hp->rope_scaling_factor = 1;
    hp->yarn_scale = hp->yarn_score_scale = 1;
    hp->rope_orig_ctx = hparams_int(r, "rope.scaling.original_context_length", 0, hp->n_ctx_train,
                                    0, INT32_MAX);
    if (hp->rope_orig_ctx == 0) hp->rope_orig_ctx = hp->n_ctx_train;
    hp->yarn_attn_factor = hparams_float(r, "rope.scaling.attn_factor", 1, 0, 1e3);
    const gguf_value *v = hparams_find(r, "rope.scaling.type", key);
    gguf_string type = {"none", 4};
    if (v && !gguf_as_string(v, &type)) {
        hparams_fail(r, key, "is not a string");
        return;
    }
    if (v && gguf_string_is(type, "none")) return;
    const char *factor = hparams_find(r, "rope.scaling.factor", key) ? "rope.scaling.factor"
                                                                     : "rope.scale_linear";
    hp->rope_scaling_factor = hparams_float(r, factor, 1, -1e-30, 1e6);
    if (hp->rope_scaling_factor <= 0) hp->rope_scaling_factor = 1; /* writers' value for none */
    if (!v || gguf_string_is(type, "linear")) {
        hp->rope_scaling = ROPE_SCALING_LINEAR;
    } else if (gguf_string_is(type, "yarn")) {
        hp->rope_scaling = ROPE_SCALING_YARN;
        hp->rope_orig_ctx = hparams_int(r, "rope.scaling.original_context_length", 0,
                                        hp->n_ctx_train, 1, INT32_MAX);
        hp->yarn_ext_factor = hparams_float(r, "rope.scaling.yarn_ext_factor", 1, -1e3, 1e3);
        if (hp->yarn_ext_factor < 0) hp->yarn_ext_factor = 1; /* writers' value for absent */
        hp->yarn_beta_fast = hparams_float(r, "rope.scaling.yarn_beta_fast", 32, 0, 1e6);
        hp->yarn_beta_slow = hparams_float(r, "rope.scaling.yarn_beta_slow", 1, 0, 1e6);
        read_yarn_scale(r, hp);
    } else if (gguf_string_is(type, "longrope")) {
        hp->rope_scaling = ROPE_SCALING_LONGROPE;
    } else if (r->status == PI_OK) {
        hparams_find(r, "rope.scaling.type", key);
        r->status = error_set(
            r->err, PI_ERR_UNSUPPORTED,
            "unknown rope scaling '%.*s': %s: key %s must be none, linear, yarn or longrope",
            (int)(type.n_bytes < 40 ? type.n_bytes : 40), type.data, gguf_path(r->file), key);
    }
}

/* Reads a number that only architectures with `bit` have. Writers use 0 for none. */
static float read_own(key_reader *r, const arch_row *arch, uint32_t bit, const char *suffix,
                      double fallback, double none) {
    if (!(arch->has & bit)) return (float)none;
    double value = (double)hparams_float(r, suffix, fallback, -1e-30, 1e6);
    return (float)(value == 0 ? none : value);
}

/* Reads scales and soft caps. By default scores are divided by sqrt(head_dim). */
static void read_scales(key_reader *r, const arch_row *arch, model_hparams *hp) {
    double root = sqrt((double)hp->n_embd);
    hp->embd_scale = arch->has & ARCH_EMBD_SQRT
                         ? (float)root
                         : read_own(r, arch, ARCH_EMBD_SCALE, "embedding_scale",
                                    (double)arch->default_embd_scale, 1);
    hp->residual_scale = read_own(r, arch, ARCH_RESIDUAL_SCALE, "residual_scale",
                                  arch->default_depth_scale / sqrt((double)hp->n_layer), 1);
    hp->logit_scale = read_own(r, arch, ARCH_LOGIT_MULTIPLIED | ARCH_LOGIT_DIVIDED, "logit_scale",
                               arch->default_logit_scale > 0
                                   ? (double)arch->default_logit_scale
                                   : (double)(arch->default_logit_width / (float)hp->n_embd),
                               1);
    if (arch->has & ARCH_LOGIT_DIVIDED) hp->logit_scale = 1 / hp->logit_scale;
    hp->logit_softcap = read_own(r, arch, ARCH_LOGIT_SOFTCAP, "final_logit_softcapping",
                                 (double)arch->default_softcap, 0);
    hp->attn_softcap = read_own(r, arch, ARCH_ATTN_SOFTCAP, "attn_logit_softcapping",
                                (double)arch->default_attn_softcap, 0);
    double root_dim = sqrt((double)hp->q_dim);
    double by_head = hp->n_layer == arch->wide_scale_layers ? sqrt((double)hp->n_head / hp->n_embd)
                     : hp->n_head == 0                      ? 1
                                       : 1 / (arch->scale_by_dim ? (double)hp->q_dim : root_dim);
    hp->attn_scale = hp->yarn_score_scale *
                     read_own(r, arch, ARCH_ATTN_SCALE,
                              arch->attn_scale_key ? arch->attn_scale_key : "attention.scale",
                              (double)arch->default_attn_scale, by_head);
    if (arch->alibi && (!arch->alibi_layers || arch->alibi_layers == hp->n_layer))
        hp->alibi_bias = hparams_float(r, "attention.max_alibi_bias", (double)arch->default_alibi,
                                       -1e-30, 1e3);
    hp->qkv_clamp = read_own(r, arch, ARCH_QKV_CLAMP, "attention.clamp_kqv", 0, 0);
    hp->value_scale = read_own(r, arch, ARCH_VALUE_SCALE, "attention.value_scale", 1, 1);
    hp->attn_temperature = read_own(r, arch, ARCH_ATTN_TEMPERATURE, "attention.temperature_scale",
                                    (double)arch->default_temperature, 0);
    hp->attn_temperature_length = 1;
    hp->attn_temperature_offset = arch->temperature_offset;
    if (hp->attn_temperature != 0 && arch->temperature_length > 0)
        hp->attn_temperature_length = arch->temperature_length;
    else if (hp->attn_temperature != 0)
        hp->attn_temperature_length = hparams_int(r, "rope.scaling.original_context_length", 0,
                                                  hp->n_ctx_train, 1, INT32_MAX);
    int32_t length = hp->attn_temperature != 0 && hp->n_latent > 0
                         ? hparams_int(r, "attention.temperature_length", 0, 0, 0, INT32_MAX)
                         : 0;
    if (length > 0) hp->attn_temperature_length = length;
}

/* Refuses a per-layer list whose items differ: this version supports one value for all layers. */
static void check_alike(key_reader *r, const char *suffix, int n_layer, int32_t value) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, suffix, key);
    int64_t of_layer = value;
    if (!v || v->type != GGUF_ARRAY) return;
    for (int i = 0; i < n_layer && r->status == PI_OK; i++)
        if (!gguf_item_i64(v, (uint64_t)i, &of_layer) || of_layer != value)
            r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                                  "not supported: %s: key %s: different values per layer",
                                  gguf_path(r->file), key);
}

static void read_experts(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    hp->expert_scale = 1;
    hp->n_expert = hparams_int(r, "expert_count", 0, 0, 0, MODEL_MAX_EXPERTS);
    if (hp->n_expert == 0 || arch->gating == GATING_NONE) {
        hp->n_expert = 0; /* dense architectures do not read the key */
        return;
    }
    hp->n_expert_used = hparams_int(r, "expert_used_count", 0, -1, 1, hp->n_expert);
    check_alike(r, "expert_used_count", hp->n_layer, hp->n_expert_used);
    hp->n_expert_group = hparams_int(r, "expert_group_count", 0, 0, 0, hp->n_expert);
    hp->n_group_used = hparams_int(r, "expert_group_used_count", 0, 0, 0, hp->n_expert);
    int32_t gating = hparams_int(r, "expert_gating_func", 0, 0, 0, INT32_MAX);
    hp->gating = gating == 0 ? arch->gating : (expert_gating)gating;
    if (gating >= GATING_COUNT && hparams_find(r, "expert_gating_func", key))
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown gating %d: %s: key %s must be 1 (softmax), 2 (sigmoid), 3 "
                              "(softmax of the selected) or 4 (square root of softplus)",
                              gating, gguf_path(r->file), key);
    hp->expert_norm = arch->has & ARCH_EXPERT_NORM;
    hp->n_expert_embd = hp->n_embd;
    if (arch_tensor_of(arch, ROLE_EXPERT_LATENT_IN)) /* messages between devices have room for it */
        hp->n_expert_embd = hparams_int(r, "expert_latent_length", 0, -1, 1,
                                        hp->n_stream * hp->n_embd);
    if (arch_tensor_of(arch, ROLE_ADJUGATE_DOWN)) {
        hp->adjugate_share = hparams_int(r, "experts_per_group", 0, -1, 1, hp->n_expert);
        hp->adjugate_scale = hparams_float(r, "expert_group_scale", (double)NAN, -1e6, 1e6);
        if (r->status == PI_OK) hp->n_adjugate = hp->n_expert / hp->adjugate_share;
        if (r->status == PI_OK && hp->n_expert % hp->adjugate_share != 0) {
            hparams_find(r, "experts_per_group", key);
            hparams_fail(r, key, "does not divide expert_count");
        }
    }
    if (r->status != PI_OK) return;
    if (hp->n_expert_group > 1 &&
        (hp->n_expert % hp->n_expert_group != 0 || hp->n_group_used < 1 ||
         hp->n_group_used > hp->n_expert_group ||
         hp->n_expert / hp->n_expert_group * hp->n_group_used < hp->n_expert_used)) {
        hparams_find(r, "expert_group_count", key);
        hparams_fail(r, key, "does not match expert_count and expert_used_count");
        return;
    }
    if (!(arch->has & ARCH_EXPERT_KEYS)) return;
    const gguf_value *v = hp->expert_norm ? NULL : hparams_find(r, "expert_weights_norm", key);
    if (v && !gguf_as_bool(v, &hp->expert_norm)) hparams_fail(r, key, "is not a bool");
    float scale = hparams_float(r, "expert_weights_scale", 0, -1e-30, 1e6);
    if (scale > 0) hp->expert_scale = scale;
}

/* Whether a layer attends within a window. The key has an entry per layer, or the period whose last
 * layer has no window; otherwise the architecture decides. */
static bool has_window(key_reader *r, const arch_row *arch, int layer) {
    char key[KEY_TEXT];
    int period = arch->window_period;
    const gguf_value *v = hparams_find(r, "attention.sliding_window_pattern", key);
    int64_t of_layer;
    if (v && v->type == GGUF_ARRAY && gguf_item_i64(v, (uint64_t)layer, &of_layer))
        return of_layer != 0;
    if (v && v->type != GGUF_ARRAY) {
        period = hparams_int(r, "attention.sliding_window_pattern", 0, period, 0, MODEL_MAX_LAYERS);
        if (period == 0)
            period = 1; /* llama.cpp: all layers */
        else if (period == 1)
            period = 0;
    }
    return arch_has_window(arch, period, layer);
}

/* Whether a layer rotates by attention.rope_pattern, one number for all layers or one per layer. */
static bool rotates(key_reader *r, const arch_row *arch, int layer) {
    char key[KEY_TEXT];
    const gguf_value *v = arch->rope_by_layer ? hparams_find(r, "attention.rope_pattern", key)
                                              : NULL;
    int64_t on = 1;
    if (v && v->type == GGUF_ARRAY && !gguf_item_i64(v, (uint64_t)layer, &on))
        hparams_fail(r, key, "has fewer items than layers");
    else if (v && v->type != GGUF_ARRAY && !gguf_as_i64(v, &on))
        hparams_fail(r, key, "is not a number");
    return on != 0;
}

static bool never_rotates(key_reader *r, const arch_row *arch, const model_hparams *hp) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, "rope.scaling.finetuned", key);
    bool on = true;
    return arch->rope == ROPE_NONE || (arch->rope_layers && arch->rope_layers != hp->n_layer) ||
           (arch->has & ARCH_ROPE_SWITCH && v && gguf_as_bool(v, &on) && !on);
}

static bool has_local_rope(const arch_row *arch, const model_hparams *hp) {
    return arch->has & ARCH_ROPE_LOCAL || hp->rope_local_base != hp->rope_freq_base;
}

bool model_has_local_rope(const model *m) {
    return has_local_rope(m->arch, &m->hp);
}

/* Sets the window and the RoPE variant of every layer. */
static void read_patterns(key_reader *r, const arch_row *arch, const model_hparams *hp,
                          model_layer_hparams *layers) {
    int32_t window = 0;
    if (arch->window_period > 0 && (!arch->window_layers || arch->window_layers == hp->n_layer))
        window = hparams_int(r, "attention.sliding_window", 0, arch->default_window, 0, INT32_MAX);
    bool none = never_rotates(r, arch, hp);
    int32_t n_dense = hparams_int(r, "leading_dense_block_count", 0, 0, 0, INT32_MAX);
    for (int i = 0; i < hp->n_layer && r->status == PI_OK; i++) {
        model_layer_hparams *l = &layers[i];
        bool global = arch->draft_global && i >= r->end;
        bool windowed = window > 0 && !global && has_window(r, arch, i);
        l->window = windowed ? window : 0;
        l->rope = windowed && has_local_rope(arch, hp) ? ROPE_SET_LOCAL : ROPE_SET_GLOBAL;
        l->head_dim = hp->head_dims[windowed];
        l->v_dim = hp->n_latent > 0 || hp->v_dim == 0 ? l->head_dim : hp->v_dim;
        if (none || !rotates(r, arch, i) ||
            (window > 0 && !windowed && !global && i >= n_dense &&
             arch->has & ARCH_ROPE_WINDOWED) ||
            (arch->no_rope_period > 0 && (i + 1) % arch->no_rope_period == 0))
            l->rope = ROPE_SET_NONE;
    }
}

/* Some writers store a float, which is 0. */
static int32_t read_n_shared(key_reader *r, const arch_row *arch, const model_hparams *hp) {
    static const char suffix[] = "attention.shared_kv_layers";
    char key[KEY_TEXT];
    if (!(arch->has & ARCH_SHARED_KV)) return 0;
    const gguf_value *v = hparams_find(r, suffix, key);
    double number;
    int64_t integer;
    if (v && !gguf_as_i64(v, &integer) && gguf_as_f64(v, &number) && number == floor(number))
        return (int32_t)hparams_float(r, suffix, 0, -1e-30, hp->n_layer - 1);
    bool some = arch->own_kv_layers > 0 && hp->n_layer > arch->own_kv_layers;
    return hparams_int(r, suffix, 0, some ? hp->n_layer - arch->own_kv_layers : 0, 0,
                       hp->n_layer - 1);
}

/* The last layers may read the KV cache of the last earlier layer of their kind (with or without a
 * window). */
static void read_shared_kv(key_reader *r, const arch_row *arch, const model_hparams *hp,
                           model_layer_hparams *layers) {
    char key[KEY_TEXT];
    int32_t n_own = hp->n_layer - read_n_shared(r, arch, hp);
    for (int i = 0; i < hp->n_layer && r->status == PI_OK; i++) {
        int own = i < n_own ? i : n_own - 1;
        while (i >= n_own && own >= 0 && (layers[own].window > 0) != (layers[i].window > 0)) own--;
        if (own < 0 || layers[own].n_head_kv != layers[i].n_head_kv) {
            hparams_find(r, "attention.shared_kv_layers", key);
            hparams_fail(r, key, "leaves a layer without keys and values");
            return;
        }
        layers[i].kv_layer = own;
    }
}

/* Reads a number of standard deviations per layer; -infinity: no cutoff. */
static void read_cutoffs(key_reader *r, const arch_row *arch, const model_hparams *hp,
                         model_layer_hparams *layers) {
    static const float twentieth = 1.6448534f; /* 1/20 of a normal distribution lies above it */
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, "activation_sparsity_scale", key);
    for (int i = 0; i < hp->n_layer && r->status == PI_OK; i++) {
        double scale = i < arch->sparse_layers ? (double)twentieth : -INFINITY;
        bool read = v && arch->sparse_layers > 0;
        if (read && (v->type != GGUF_ARRAY || !gguf_item_f64(v, (uint64_t)i, &scale)))
            hparams_fail(r, key, "is not a number for every layer");
        else if (!(scale < 1e3) || (scale < -1e3 && scale > -INFINITY))
            hparams_fail(r, key, "has an impossible number of standard deviations");
        layers[i].ffn_top_k = scale > -INFINITY;
        layers[i].ffn_cutoff = layers[i].ffn_top_k ? (float)scale : 0;
    }
}

/* Reads a limit of gate and up: one number for all layers, or one per layer. */
static float read_clamp(key_reader *r, const char *suffix, int layer, double fallback) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, suffix, key);
    double limit = fallback;
    bool ok = !v || (v->type == GGUF_ARRAY ? gguf_item_f64(v, (uint64_t)layer, &limit)
                                           : gguf_as_f64(v, &limit));
    if (!ok) hparams_fail(r, key, "is not a number for every layer");
    return limit > 1e-6 ? (float)limit : 0; /* llama.cpp's least limit */
}

static void read_clamps(key_reader *r, const arch_row *arch, const model_hparams *hp,
                        model_layer_hparams *layers) {
    enum { OSS_LIMIT = 7 };
    bool late = arch->clamp_late, by_key = late || arch->clamp_by_key;
    double fallback = (double)arch->default_swiglu_clamp;
    float soft = hp->soft_gate > 0
                     ? hparams_float(r, "activation.situ_linear_beta", (double)NAN, -1e30, 1e30)
                     : 0;
    for (int i = 0; i < hp->n_layer && r->status == PI_OK; i++) {
        model_layer_hparams *l = &layers[i];
        if (arch->has & ARCH_FFN_CLAMP) l->ffn_clamp = l->expert_clamp = OSS_LIMIT;
        if (by_key || fallback > 0)
            l->expert_clamp = read_clamp(r, "swiglu_clamp_exp", i, fallback);
        if (late) l->ffn_clamp = read_clamp(r, "swiglu_clamp_shexp", i, 0);
        if (arch->clamp_shared)
            l->ffn_clamp = read_clamp(r, "swiglu_clamp_shexp", i, (double)l->expert_clamp);
        if (hp->soft_gate > 0) l->ffn_clamp = l->expert_clamp = soft > 0 ? soft : INFINITY;
    }
}

/* The names of these keys do not begin with the architecture. Each has one number for all layers,
 * or one per layer. */
static void read_xielu(key_reader *r, const arch_row *arch, const model_hparams *hp,
                       model_layer_hparams *layers) {
    enum { NEGATIVE, POSITIVE, BETA, EPS, N_KEYS };
    static const char *const keys[N_KEYS] = {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta",
                                             "xielu.eps"};
    for (int i = 0; i < hp->n_layer && arch->xielu && r->status == PI_OK; i++) {
        double x[N_KEYS] = {0};
        for (int k = 0; k < N_KEYS && r->status == PI_OK; k++) {
            const gguf_value *v = gguf_find(r->file, keys[k]);
            bool ok = v && (v->type == GGUF_ARRAY ? gguf_item_f64(v, (uint64_t)i, &x[k])
                                                  : gguf_as_f64(v, &x[k]));
            if (!v) hparams_fail(r, keys[k], "is missing");
            if (v && !(ok && fabs(x[k]) < 1e6))
                hparams_fail(r, keys[k], "is not a number for every layer");
        }
        layers[i].xielu = (model_xielu){.negative = (float)(x[BETA] + log1p(exp(x[NEGATIVE]))),
                                        .positive = (float)log1p(exp(x[POSITIVE])),
                                        .beta = (float)x[BETA],
                                        .eps = (float)x[EPS]};
    }
}

/* In all known models with AltUp layers compute stream 0. */
static void read_streams(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    hp->n_stream = 1;
    const bool gated = arch_tensor_of(arch, ROLE_HYPER_HEAD_NORM);
    hp->hyper = gated || arch_tensor_of(arch, ROLE_HYPER_HEAD);
    if (hp->hyper)
        hp->n_stream = hparams_int(r, "hyper_connection.count", 0, -1, 2, MODEL_MAX_STREAMS);
    if (gated) {
        hp->hyper_rank = hparams_int(r, "hyper_connection.low_rank", 0, -1, 1, MODEL_MAX_DIM);
        hp->hyper_magnitude = 2;
    } else if (hp->hyper) {
        hp->hyper_eps = hparams_float(r, "hyper_connection.epsilon", (double)NAN, -1e-30, 1);
        if (arch_tensor_of(arch, ROLE_HYPER_ATTN)->dims[1] == DIM_HYPER) {
            hp->hyper_rounds = hparams_int(r, "hyper_connection.sinkhorn_iterations", 0, -1, 1,
                                           1000);
            hp->hyper_magnitude = 2;
        } else {
            hp->hyper_magnitude = hparams_float(r, "hyper_connection.magnitude", (double)NAN, 0,
                                                1e6);
        }
    }
    if (arch_tensor_of(arch, ROLE_PAST_HEAD)) {
        hp->past_period = hparams_int(r, "attn_res.block_size", 0, -1, 1, MODEL_MAX_LAYERS);
        if (r->status != PI_OK) return;
        hp->n_stream += (hp->n_layer - 1) / hp->past_period + 1;
        if (hp->n_stream <= MODEL_MAX_PASTS) return;
        hparams_find(r, "attn_res.block_size", key);
        hparams_fail(r, key, "is too small for this number of layers");
    }
    if (!arch_tensor_of(arch, ROLE_STREAM_PROJ)) return;
    hp->n_stream = hparams_int(r, "altup.num_inputs", 0, 4, 2, MODEL_MAX_STREAMS);
    if (hparams_int(r, "altup.active_idx", 0, 0, 0, hp->n_stream - 1) == 0 || r->status != PI_OK)
        return;
    hparams_find(r, "altup.active_idx", key);
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "not supported: %s: key %s: layers that compute a residual stream other "
                          "than the first",
                          gguf_path(r->file), key);
}

static void read_rope_kind(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, "rope.dimension_sections", key);
    hp->rope = arch->rope;
    if (!v || v->type != GGUF_ARRAY || arch->axes == AXES_ONE || r->status != PI_OK) return;
    for (int i = 0; i < ROPE_AXES && (uint64_t)i < v->count; i++) {
        int64_t pairs;
        if (gguf_item_i64(v, (uint64_t)i, &pairs) && pairs >= 0 && pairs <= MODEL_MAX_HEAD_DIM) {
            hp->rope_sections[i] = (int32_t)pairs;
            continue;
        }
        hparams_fail(r, key, "is not a list of numbers of pairs");
        return;
    }
    if (hp->rope_sections[0] > 0 && arch->has & ARCH_ROPE_SECTIONS) hp->rope = ROPE_NEOX;
}

/* Refuses experts in an architecture whose row here is dense: the file has no tensors for its
 * FFNs. */
static void check_dense(key_reader *r, const arch_row *arch, const model_hparams *hp) {
    char key[KEY_TEXT], other[2 * GGUF_MAX_NAME], name[GGUF_MAX_NAME];
    int32_t n = hparams_int(r, "expert_count", 0, 0, 0, INT32_MAX);
    bool router = false;
    if (arch->gating != GATING_NONE || n == 0) return;
    for (int i = 0; i < hp->n_layer && !router; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
        router = gguf_find_tensor(r->file, name);
    }
    if (!router || r->status != PI_OK) return; /* some writers put the key into dense models */
    snprintf(other, sizeof other, "%.60smoe", arch->name);
    bool known = arch_find(other, strlen(other));
    hparams_find(r, "expert_count", key);
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "not supported: %s: key %s is %d: architecture %s is dense here%s%s",
                          gguf_path(r->file), key, n, arch->name,
                          known ? ", its mixtures of experts are " : "", known ? other : "");
}

static void check_head(key_reader *r, const arch_row *arch, int32_t head_dim, int32_t value_dim,
                       int32_t n_rot) {
    if (r->status != PI_OK) return;
    const bool may_differ = arch_values_may_differ(arch);
    bool uneven = may_differ && value_dim < head_dim && value_dim % 2 == 0;
    if (value_dim != head_dim && !uneven)
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "K and V heads differ in size: %s: key_length %d, value_length %d; "
                              "this version needs them equal%s",
                              gguf_path(r->file), head_dim, value_dim,
                              may_differ ? ", or value_length even and below key_length" : "");
    else if (head_dim < 2 || n_rot < 2 || head_dim % 2 != 0 || n_rot % 2 != 0 || n_rot > head_dim)
        r->status = error_set(r->err, PI_ERR_FORMAT,
                              "bad head shape: %s: head_dim %d with %d rotated elements; both must "
                              "be even, at least 2, and the second no larger",
                              gguf_path(r->file), head_dim, n_rot);
}

/* Refuses layers with a window whose latent vectors or heads have other sizes. */
static void check_window_latents(key_reader *r, const model_hparams *hp) {
    const struct {
        const char *suffix;
        int32_t value;
    } sizes[] = {{"attention.kv_lora_rank_swa", hp->n_latent},
                 {"attention.key_length_mla_swa", hp->q_dim},
                 {"attention.value_length_mla_swa", hp->v_dim}};
    for (int i = 0; i < 3 && r->status == PI_OK; i++) {
        char key[KEY_TEXT];
        int32_t n = hparams_int(r, sizes[i].suffix, 0, 0, 0, MODEL_MAX_HEAD_DIM);
        if (n == 0 || n == sizes[i].value || r->status != PI_OK) continue;
        hparams_find(r, sizes[i].suffix, key);
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "not supported: %s: key %s is %d, in layers without a window %d",
                              gguf_path(r->file), key, n, sizes[i].value);
    }
}

/* With MLA the cache has one head: the rotated key, then the latent vector. */
static void read_latent_heads(key_reader *r, const arch_row *arch, model_hparams *hp) {
    int32_t n_rot = hp->n_rots[ROPE_SET_GLOBAL];
    int32_t q_dim = hparams_int(r, "attention.key_length_mla", 0, 0, 0, MODEL_MAX_HEAD_DIM);
    int32_t v_dim = hparams_int(r, "attention.value_length_mla", 0, 0, 0, MODEL_MAX_HEAD_DIM);
    hp->q_dim = q_dim > 0 ? q_dim : hp->head_dims[0];
    if (v_dim > 0) hp->v_dim = v_dim;
    if (r->status == PI_OK && hp->q_dim <= n_rot) {
        char key[KEY_TEXT], problem[96];
        hparams_find(r, q_dim > 0 ? "attention.key_length_mla" : "attention.key_length", key);
        snprintf(problem, sizeof problem, "is %d, but must be above the %d rotated elements",
                 hp->q_dim, n_rot);
        hparams_fail(r, key, problem);
    }
    if (arch->window_period > 0) check_window_latents(r, hp);
    hp->head_dims[0] = hp->head_dims[1] = hp->n_latent + n_rot;
    check_head(r, arch, hp->head_dims[0], hp->head_dims[0], n_rot);
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Reads head sizes; layers with a window may have their own. */
static void read_heads(key_reader *r, const arch_row *arch, model_hparams *hp) {
    int32_t max = MODEL_MAX_HEAD_DIM;
    int32_t dim = hparams_int(r, "attention.key_length", 0, hp->n_embd / hp->n_head, 1, max);
    int32_t n_rot = hparams_int(r, "rope.dimension_count", 0, dim, 2, max);
    hp->v_dim = hparams_int(r, "attention.value_length", 0, dim, 1, max);
    hp->head_dims[0] = hp->head_dims[1] = hp->q_dim = dim;
    hp->n_rots[ROPE_SET_GLOBAL] = hp->n_rots[ROPE_SET_LOCAL] = n_rot;
    if (hp->n_latent > 0) {
        read_latent_heads(r, arch, hp);
    } else {
        check_head(r, arch, dim, hp->v_dim, n_rot);
        if (hp->v_dim == dim) hp->v_dim = 0;
    }
    if (arch->has & ARCH_HEADS_LOCAL) {
        int32_t local = hparams_int(r, "attention.key_length_swa", 0, dim, 1, max);
        int32_t value_dim = hparams_int(r, "attention.value_length_swa", 0, local, 1, max);
        int32_t n_local = hparams_int(r, "rope.dimension_count_swa", 0, local, 2, max);
        check_head(r, arch, local, value_dim, n_local);
        hp->head_dims[1] = local;
        hp->n_rots[ROPE_SET_LOCAL] = n_local;
    }
    if (arch->rot_half) {
        hp->n_rots[ROPE_SET_LOCAL] = hparams_int(r, "rope.dimension_count_swa", 0, n_rot, 2, dim);
        hp->n_rots[ROPE_SET_GLOBAL] = n_rot / 2;
        check_head(r, arch, dim, dim, n_rot / 2);
        check_head(r, arch, dim, dim, hp->n_rots[ROPE_SET_LOCAL]);
    }
    hp->head_dim = larger(hp->head_dims[0], hp->head_dims[1]);
    hp->n_rot = larger(hp->n_rots[ROPE_SET_GLOBAL], hp->n_rots[ROPE_SET_LOCAL]);
}

/* Compressed attention (MLA) needs a latent vector of keys and values; queries may have one. */
static void read_latents(key_reader *r, const arch_row *arch, model_hparams *hp) {
    hp->joint_kv = arch_tensor_of(arch, ROLE_COMPRESS_KV);
    if (hp->joint_kv) {
        hp->n_latent_q = hparams_int(r, "attention.q_lora_rank", 0, -1, 1, MODEL_MAX_DIM);
        hp->n_out_group = hparams_int(r, "attention.output_group_count", 0, -1, 1, MODEL_MAX_HEADS);
        hp->n_out_rank = hparams_int(r, "attention.output_lora_rank", 0, -1, 1, MODEL_MAX_DIM);
    }
    if (!arch_tensor_of(arch, ROLE_ATTN_KV_A)) return;
    hp->n_latent = hparams_int(r, "attention.kv_lora_rank", 0, -1, 1, MODEL_MAX_HEAD_DIM);
    hp->n_latent_q = hparams_int(r, "attention.q_lora_rank", 0, 0, 0, MODEL_MAX_DIM);
}

/* Reads the keys of sparse attention. */
static void read_indexer(key_reader *r, const arch_row *arch, model_hparams *hp) {
    if (!arch_tensor_of(arch, ROLE_INDEX_Q)) return;
    hp->index_sums = arch->index_pools || arch_tensor_of(arch, ROLE_INDEX_WEIGHTS);
    hp->block_top = hparams_int(r, "attention.indexer.top_k", 0, -1, 1, INT32_MAX);
    hp->block_size = 1;
    if (hp->joint_kv) hp->block_size = 4; /* read_ratios */
    if (!hp->index_sums) {
        hp->block_size = hparams_int(r, "attention.indexer.block_size", 0, -1, 1, INT32_MAX);
        hp->block_local = hparams_int(r, "attention.indexer.local_blocks", 0, -1, 0, hp->block_top);
    }
    hp->n_index_head = hparams_int(r, "attention.indexer.head_count", 0, -1, 1, MODEL_MAX_HEADS);
    hp->n_index_choice = hp->index_sums ? 1 : hp->n_index_head;
    hp->index_dim = hparams_int(r, "attention.indexer.key_length", 0, -1, 1, MODEL_MAX_HEAD_DIM);
    if (hp->index_sums)
        hp->index_norm_eps = hparams_float(r, "attention.layer_norm_epsilon", 1e-6, -1e-30, 1);
}

/* Reads each layer's number of positions per compressed key. Keys of 4 positions overlap, and an
 * index selects those that a token attends to. */
static void read_ratios(key_reader *r, const model_hparams *hp, model_layer_hparams *layers) {
    enum { SELECTED = 4, LARGEST = 1 << (MODEL_RATIOS - 1) };
    static const char suffix[] = "attention.compress_ratios";
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, suffix, key);
    for (int i = 0; i < hp->n_layer && hp->joint_kv && r->status == PI_OK; i++) {
        model_layer_hparams *l = &layers[i];
        int64_t ratio = 0;
        if (!v || v->type != GGUF_ARRAY || !gguf_item_i64(v, (uint64_t)i, &ratio) || ratio < 0 ||
            ratio == 1 || ratio > LARGEST || (ratio & (ratio - 1)) != 0) {
            hparams_fail(r, key, "is not a list of powers of two, or 0, one for every layer");
            return;
        }
        l->ratio = (int32_t)ratio;
        l->overlaps = l->index_own = ratio == SELECTED;
        l->rope = ratio > 0 ? ROPE_SET_GLOBAL : ROPE_SET_LOCAL;
        l->routes_by_token = i < hparams_int(r, "hash_layer_count", 0, 0, 0, INT32_MAX);
        if (r->status != PI_OK || l->n_head % hp->n_out_group == 0) continue;
        hparams_find(r, "attention.output_group_count", key);
        hparams_fail(r, key, "does not divide attention.head_count");
    }
}

/* Which layers select positions themselves, and which use an earlier layer's selection. Layers with
 * a window do neither. */
static void read_index_layers(key_reader *r, const arch_row *arch, const model_hparams *hp,
                              model_layer_hparams *layers) {
    static const char suffix[] = "attention.indexer.types";
    char key[KEY_TEXT];
    const gguf_value *v = arch->index_by_layer ? hparams_find(r, suffix, key) : NULL;
    bool some = arch->index_period_ctx > 0 && hp->n_ctx_train >= arch->index_period_ctx,
         own = false;
    const bool positions = hp->index_sums && !hp->joint_kv && !arch->index_pools;
    for (int i = 0; i < hp->n_layer && positions && r->status == PI_OK; i++) {
        model_layer_hparams *l = &layers[i];
        if (!(l->mixers & MIXER_ATTENTION) || l->window > 0 || i >= r->end) continue;
        bool selects = v ? hparams_int(r, suffix, i, 1, 0, 1) : !some || i < 2 || i % 4 == 2;
        own = own || selects;
        if (r->status == PI_OK && !own) {
            hparams_find(r, suffix, key);
            hparams_fail(r, key, "leaves a layer without selected positions");
        }
        l->index_own = selects;
        l->index_shared = !selects;
    }
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Whether a layer has attention, in an architecture where layers differ by period. */
static bool attends_by_period(key_reader *r, const arch_row *arch, int layer) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, "attention.recurrent_layers", key);
    int64_t recurrent;
    if (v && v->type == GGUF_ARRAY && gguf_item_i64(v, (uint64_t)layer, &recurrent))
        return recurrent == 0;
    int32_t interval = hparams_int(r, "full_attention_interval", 0, arch->attention_interval, 1,
                                   INT32_MAX);
    return (layer + 1) % interval == 0;
}

static bool has_ffn(const arch_row *arch) {
    return arch_tensor_of(arch, ROLE_FFN_DOWN) || arch_tensor_of(arch, ROLE_EXPERT_DOWN);
}

/* Sets the blocks of a layer from numbers that may be 0. */
static void set_parts(key_reader *r, const arch_row *arch, int layer, model_layer_hparams *l) {
    uint32_t recurrent = arch->mixers & MIXER_RECURRENT;
    bool attends = true;
    l->mixers = arch->mixers ? arch->mixers : MIXER_ATTENTION;
    l->ffn = has_ffn(arch);
    if (arch->layers == LAYERS_ALIKE) return;
    if (arch->layers == LAYERS_BY_PERIOD && layer < r->end)
        attends = attends_by_period(r, arch, layer);
    if (arch->layers == LAYERS_BY_HEADS) attends = l->n_head_kv > 0;
    l->mixers = attends ? MIXER_ATTENTION : recurrent;
    if (!recurrent) l->ffn = l->n_ff > 0;
    if (arch->layers != LAYERS_SINGLE) return;
    l->ffn = l->n_ff > 0;
    l->mixers = l->ffn ? 0 : l->n_head_kv > 0 ? MIXER_ATTENTION : recurrent;
}

static void check_heads(key_reader *r, int layer, const model_layer_hparams *l) {
    char problem[96], key[KEY_TEXT];
    if (r->status != PI_OK || (l->n_head_kv > 0 && l->n_head > 0 && l->n_head % l->n_head_kv == 0))
        return;
    snprintf(problem, sizeof problem, "is %d in layer %d, which does not divide %d heads",
             l->n_head_kv, layer, l->n_head);
    hparams_find(r, "attention.head_count_kv", key);
    hparams_fail(r, key, problem);
}

static void read_layers(key_reader *r, const arch_row *arch, model_hparams *hp,
                        model_layer_hparams *layers) {
    int32_t n_expert = hparams_int(r, "expert_count", 0, 0, 0, MODEL_MAX_EXPERTS);
    bool recurrent = arch->mixers & MIXER_RECURRENT;
    int32_t least = recurrent || arch->layers != LAYERS_ALIKE ? 0 : 1;
    hp->n_head = 0;
    for (int i = 0; i < hp->n_layer && r->status == PI_OK; i++) {
        model_layer_hparams l = {0};
        l.n_head = hparams_int(r, "attention.head_count", i, recurrent ? 0 : -1, least,
                               MODEL_MAX_HEADS);
        l.n_head_kv = hparams_int(r, "attention.head_count_kv", i, l.n_head, least,
                                  MODEL_MAX_HEADS);
        if ((hp->n_latent > 0 || hp->joint_kv) && l.n_head_kv > 0) l.n_head_kv = 1;
        l.n_ff = hparams_int(r, "feed_forward_length", i,
                             !has_ffn(arch) ? 0
                             : n_expert > 0 ? 1
                                            : -1,
                             least, MODEL_MAX_DIM);
        if (arch->ff_of_both) l.n_ff /= 2;
        set_parts(r, arch, i, &l);
        if (!(l.mixers & MIXER_ATTENTION)) l.n_head = l.n_head_kv = 0;
        if (!l.ffn) l.n_ff = 0;
        if (l.mixers & MIXER_ATTENTION) check_heads(r, i, &l);
        if (r->status == PI_OK && l.ffn && l.n_ff == 0 && n_expert == 0) {
            char key[KEY_TEXT];
            hparams_find(r, "feed_forward_length", key);
            hparams_fail(r, key, "is 0 in a layer with an FFN");
        }
        if (l.n_head > hp->n_head) hp->n_head = l.n_head;
        if (layers) layers[i] = l;
    }
}

/* Some files say whether the blocks of a layer are parallel. */
static void read_parallel(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    hp->parallel = arch->parallel;
    const gguf_value *v = arch->parallel_by_key ? hparams_find(r, "use_parallel_residual", key)
                                                : NULL;
    if (v && r->status == PI_OK && !gguf_as_bool(v, &hp->parallel))
        hparams_fail(r, key, "is not a bool");
}

/* Looped models run all layers several times. */
static void check_loops(key_reader *r) {
    char key[KEY_TEXT];
    int32_t n = hparams_int(r, "num_loops", 0, 1, 1, INT32_MAX);
    if (r->status != PI_OK || n == 1) return;
    hparams_find(r, "num_loops", key);
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "not supported: %s: key %s is %d: layers that run several times",
                          gguf_path(r->file), key, n);
}

/* Encoders attend in both directions; models that complete masked text are not supported. */
static void read_causal(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    bool causal = !arch->encoder;
    const gguf_value *v = hparams_find(r, "attention.causal", key);
    if (v) gguf_as_bool(v, &causal);
    hp->bidirectional = !causal;
    if (r->status == PI_OK && !causal && !arch->encoder)
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "not supported: %s: key %s: attention to later tokens",
                              gguf_path(r->file), key);
}

static void read_pooling(key_reader *r, model_hparams *hp) {
    char key[KEY_TEXT];
    const gguf_value *v = hparams_find(r, "pooling_type", key);
    int64_t pooling = -1; /* in unsigned files UINT32_MAX */
    if (v) gguf_as_i64(v, &pooling);
    hp->pooling = pooling >= 0 && pooling < MODEL_POOLINGS ? (model_pooling)pooling
                                                           : MODEL_POOLING_UNKNOWN;
}

/* Indexer keys are rotated like the other keys. Every KV head has one indexer query, or the scores
 * of all queries are summed. */
static void check_indexer(key_reader *r, const model_hparams *hp,
                          const model_layer_hparams *layers) {
    bool even = hp->index_dim % 2 == 0 && hp->index_dim >= hp->n_rot;
    if (r->status == PI_OK && hp->n_index_head > 0 && !even)
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "not supported: %s: attention.indexer.key_length %d with %d rotated "
                              "elements",
                              gguf_path(r->file), hp->index_dim, hp->n_rot);
    for (int i = 0; i < hp->n_layer && hp->n_index_head > 0 && r->status == PI_OK; i++)
        if (!hp->index_sums && layers[i].n_head_kv != hp->n_index_head)
            r->status = error_set(
                r->err, PI_ERR_UNSUPPORTED,
                "not supported: %s: attention.indexer.head_count %d with %d heads of keys",
                gguf_path(r->file), hp->n_index_head, layers[i].n_head_kv);
}

/* Files of DeepSeek-V4 may give a number of draft layers but not contain them; block_count then
 * does not include them. */
static bool has_draft_layers(const gguf_file *f, const arch_row *arch, const model_hparams *hp) {
    char name[GGUF_MAX_NAME];
    if (!arch_tensor_of(arch, ROLE_COMPRESS_KV)) return true;
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", hp->n_layer - hp->n_draft_layer);
    return gguf_find_tensor(f, name) != NULL;
}

pi_status model_read_hparams(const gguf_file *f, const arch_row *arch, bool drafts,
                             model_hparams *hp, model_layer_hparams *layers, pi_error *err) {
    key_reader r = {.file = f, .arch = arch->name, .err = err, .status = PI_OK};
    *hp = (model_hparams){0};
    hp->n_layer = hparams_int(&r, "block_count", 0, -1, 1, MODEL_MAX_LAYERS);
    hp->n_draft_layer = hparams_int(&r, "nextn_predict_layers", 0, 0, 0, hp->n_layer - 1);
    if (!has_draft_layers(f, arch, hp)) hp->n_draft_layer = 0;
    r.end = hp->n_layer - hp->n_draft_layer;
    if (!drafts) hp->n_layer = r.end;
    hp->n_embd = hparams_int(&r, "embedding_length", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_ctx_train = hparams_int(&r, "context_length", 0, -1, 1, INT32_MAX);
    if (arch_tensor_of(arch, ROLE_LAYER_EMBD))
        hp->n_embd_layer = hparams_int(&r, "embedding_length_per_layer_input", 0, 0, 0,
                                       MODEL_MAX_DIM);
    read_causal(&r, arch, hp);
    read_pooling(&r, hp);
    check_loops(&r);
    read_parallel(&r, arch, hp);
    check_dense(&r, arch, hp);
    read_streams(&r, arch, hp);
    read_latents(&r, arch, hp);
    read_indexer(&r, arch, hp);
    read_layers(&r, arch, hp, layers);
    if (r.status == PI_OK) hparams_read_recurrent(&r, arch, hp);
    if (r.status != PI_OK) return r.status;
    if (hp->n_head > 0) read_heads(&r, arch, hp);
    hp->norm = arch->norm;
    if (arch->has & ARCH_NORM_EITHER &&
        hparams_float(&r, "attention.layer_norm_rms_epsilon", 0, -1e-30, 1) > 0)
        hp->norm = NORM_RMS;
    const char *eps_key = hp->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                               : "attention.layer_norm_epsilon";
    char key[KEY_TEXT];
    if (!hparams_find(&r, eps_key, key) && hparams_find(&r, "attention.layer_norm_epsilon", key))
        eps_key = "attention.layer_norm_epsilon"; /* in files of nemotron_h */
    double eps = arch->default_norm_eps > 0 ? (double)arch->default_norm_eps : (double)NAN;
    hp->norm_eps = hparams_float(&r, eps_key, eps, -1e-30, 1);
    read_rope_kind(&r, arch, hp);
    if (arch->index_norm_as_all) hp->index_norm_eps = hp->norm_eps;
    if (arch->rot_last) hp->rot_at = hp->head_dim - hp->n_rot;
    if (arch->index_rot_last) hp->index_rot_at = hp->index_dim - hp->n_rot;
    hp->index_rope = arch->index_rope != ROPE_NONE ? arch->index_rope : hp->rope;
    hp->rope_freq_base = hparams_float(&r, "rope.freq_base", 10000, 0, 1e12);
    double base = (double)hp->rope_freq_base;
    if (hp->joint_kv) /* of layers with compressed keys; only they are scaled */
        hp->rope_freq_base = hparams_float(&r, "attention.compress_rope_freq_base", (double)NAN, 0,
                                           1e12);
    /* NTK-aware scaling: the slowest pair rotates at 1/alpha of its frequency */
    double alpha = (double)hparams_float(&r, "rope.scaling.alpha", 0, -1e-30, 1e6);
    int dim = hp->head_dims[0];
    if (alpha > 0 && dim > 2) hp->rope_freq_base *= (float)pow(alpha, dim / (dim - 2.0));
    hp->rope_local_base = arch->local_rope_base > 0 ? arch->local_rope_base
                          : hp->joint_kv            ? (float)base
                                                    : hp->rope_freq_base;
    if (!arch->one_rope_base)
        hp->rope_local_base = hparams_float(&r, "rope.freq_base_swa", (double)hp->rope_local_base,
                                            0, 1e12);
    read_rope_scaling(&r, hp);
    if (arch->yarn_unscaled) hp->yarn_score_scale = 1;
    if (hp->joint_kv) hp->yarn_scale = hp->yarn_attn_factor = 1;
    read_scales(&r, arch, hp);
    read_experts(&r, arch, hp);
    if (layers) read_patterns(&r, arch, hp, layers);
    if (layers) read_shared_kv(&r, arch, hp, layers);
    if (layers) read_cutoffs(&r, arch, hp, layers);
    if (arch->gates_soft)
        hp->soft_gate = hparams_float(&r, "activation.situ_beta", (double)NAN, 0, 1e30);
    if (layers) read_clamps(&r, arch, hp, layers);
    if (layers) read_xielu(&r, arch, hp, layers);
    if (layers) read_index_layers(&r, arch, hp, layers);
    if (layers) read_ratios(&r, hp, layers);
    if (layers) hparams_read_pools(&r, arch, hp, layers);
    if (layers) hparams_read_ngrams(&r, arch, hp, layers);
    if (layers) check_indexer(&r, hp, layers);
    read_activation(&r, arch, hp);
    return r.status;
}
