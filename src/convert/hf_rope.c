/* hf_rope.c: the rotation of heads. Older config.json files have rope_theta and rope_scaling; newer
 * files have both in rope_parameters, some with separate sets for layers with and without a
 * window. */
#include <math.h>
#include <string.h>

#include "hf_config.h"

/* YaRN's temperature with a weight (Peng et al. 2023, arXiv 2309.00071, section 3.4). */
static double yarn_mscale(double factor, double weight) {
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static void read_yarn(hf_reader *r, const json_node *node, hf_config *c) {
    hf_rope *rope = &c->rope;
    rope->kind = HF_ROPE_YARN;
    rope->beta_fast = hf_number_in(r, node, "beta_fast", 32, 1e-3, 1e6);
    rope->beta_slow = hf_number_in(r, node, "beta_slow", 1, 1e-3, 1e6);
    double usual = yarn_mscale(rope->factor, 1), whole = usual;
    if (hf_get(node, "attention_factor")) {
        whole = hf_number_in(r, node, "attention_factor", 1, 1e-3, 1e3);
    } else if (hf_get(node, "mscale") && hf_get(node, "mscale_all_dim")) {
        whole = yarn_mscale(rope->factor, hf_number_in(r, node, "mscale", 1, 0, 1e3)) /
                yarn_mscale(rope->factor, hf_number_in(r, node, "mscale_all_dim", 1, 0, 1e3));
    }
    rope->attn_factor = whole / usual;
    if (c->n_latent == 0 || !hf_get(node, "mscale_all_dim")) return;
    rope->multiplier = 0.1 * hf_number_in(r, node, "mscale_all_dim", 1, 0, 1e3);
    if (rope->multiplier > 0) rope->attn_factor = whole; /* files omit the default */
}

static void read_llama3(hf_reader *r, const json_node *node, hf_config *c) {
    hf_rope *rope = &c->rope;
    rope->kind = HF_ROPE_LLAMA3;
    rope->low_freq_factor = hf_number_in(r, node, "low_freq_factor", NAN, 1e-6, 1e6);
    rope->high_freq_factor = hf_number_in(r, node, "high_freq_factor", NAN, 1e-6, 1e6);
    /* Llama 4 has both equal: no frequency lies between them */
    if (rope->high_freq_factor < rope->low_freq_factor)
        hf_fail(r, "rope_scaling", "has a high_freq_factor below low_freq_factor");
}

static void read_factors(hf_reader *r, const json_node *node, const char *key, int32_t n,
                         float *out) {
    const json_node *list = hf_get(node, key);
    if (json_kind_of(list) != JSON_ARRAY || json_count(list) != (size_t)n) {
        hf_fail(r, key, "is not a list with one factor per pair of RoPE dimensions");
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        double value;
        if (!json_as_double(json_at(list, (size_t)i), &value) || !(value >= 1e-6 && value <= 1e6)) {
            hf_fail(r, key, "is not a list of numbers");
            return;
        }
        out[i] = (float)value;
    }
}

/* Ding et al. 2024, arXiv 2402.13753: factors by length, and a temperature for the whole context as
 * in Phi-3's code. */
static void read_longrope(hf_reader *r, const json_node *node, hf_config *c) {
    hf_rope *rope = &c->rope;
    if (!arch_tensor_of(c->arch, ROLE_ROPE_LONG)) {
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown rope scaling 'longrope': %s: this model type cannot have it",
                              r->path);
        return;
    }
    rope->kind = HF_ROPE_LONGROPE;
    read_factors(r, node, "long_factor", rope->n_rot / 2, rope->long_factors);
    read_factors(r, node, "short_factor", rope->n_rot / 2, rope->short_factors);
    double growth = (double)c->n_ctx / rope->orig_ctx;
    rope->attn_factor = growth > 1 && rope->orig_ctx > 1
                            ? sqrt(1 + log(growth) / log(rope->orig_ctx))
                            : 1;
    if (hf_get(node, "short_mscale")) /* Phi-3.5-MoE gives the temperature */
        rope->attn_factor = hf_number_in(r, node, "short_mscale", 1, 1e-3, 1e3);
}

/* Within the trained context "dynamic" has no effect, unless the base is already scaled (NTK-aware
 * scaling by alpha, as in Hunyuan's code). */
static void read_dynamic(hf_reader *r, const json_node *node, hf_config *c) {
    double n = c->rope.n_rot;
    if (hf_get(node, "alpha") && n > 2) {
        double alpha = hf_number_in(r, node, "alpha", 1, 1e-3, 1e6);
        c->rope.theta *= pow(alpha, n / (n - 2));
        return;
    }
    notify(r->notifier, "dynamic RoPE scaling is dropped: it only acts beyond %d tokens", c->n_ctx);
}

static void read_scaling(hf_reader *r, const json_node *node, hf_config *c) {
    const char *type = hf_text(node, "rope_type");
    if (!type) type = hf_text(node, "type");
    if (!type || strcmp(type, "default") == 0 || strcmp(type, "none") == 0) return;
    if (strcmp(type, "mrope") == 0 && c->family->flags & HF_SECTIONS) return;
    if (strcmp(type, "dynamic") == 0) {
        read_dynamic(r, node, c);
        return;
    }
    hf_rope *rope = &c->rope;
    rope->orig_ctx = hf_int(r, (hf_names){"original_max_position_embeddings"}, c->n_ctx, 1,
                            INT32_MAX);
    if (hf_get(node, "original_max_position_embeddings"))
        rope->orig_ctx = (int32_t)hf_number_in(r, node, "original_max_position_embeddings", 1, 1,
                                               INT32_MAX);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
        read_longrope(r, node, c);
        return;
    }
    if (strcmp(type, "proportional") == 0) {
        rope->kind = HF_ROPE_PROPORTIONAL;
        rope->factor = hf_get(node, "factor") ? hf_number_in(r, node, "factor", 1, 1e-3, 1e6) : 1;
        rope->n_turned = rope->n_rot;
        rope->n_rot = c->head_dim;
        return;
    }
    rope->factor = hf_number_in(r, node, "factor", NAN, 1e-3, 1e6);
    if (strcmp(type, "linear") == 0) {
        rope->kind = HF_ROPE_LINEAR;
    } else if (strcmp(type, "llama3") == 0) {
        read_llama3(r, node, c);
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(r, node, c);
    } else if (r->status == PI_OK) {
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown rope scaling '%.60s': %s: rope_scaling can be default, "
                              "linear, dynamic, llama3, longrope, proportional or yarn",
                              type, r->path);
    }
}

/* Selects the rope_parameters of layers without or with a window. */
static const json_node *pick_parameters(hf_reader *r, const json_node *parameters,
                                        const json_node **local) {
    const json_node *global = hf_get(parameters, "full_attention");
    *local = hf_get(parameters, "sliding_attention");
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(parameters, &iter, &key, &value))
        if (json_kind_of(value) == JSON_OBJECT && value != global && value != *local)
            hf_fail(r, "rope_parameters", "differ between layers in a way that is not known");
    return global ? global : parameters;
}

/* Step 3.5: a base for each layer; layers with a window rotate whole heads, others half of them. */
static void read_lists(hf_reader *r, const json_node *bases, hf_config *c) {
    const char *key;
    const json_node *kinds = hf_find(r, (hf_names){"layer_types"}, &key);
    const json_node *shares = hf_find(r, (hf_names){"partial_rotary_factors"}, &key);
    double found[2] = {0, 0}; /* without a window, with one */
    for (int i = 0; i < c->n_layer && r->status == PI_OK; i++) {
        const char *kind = "full_attention";
        double base = 0, share;
        size_t n;
        json_as_string(json_at(kinds, (size_t)i), &kind, &n);
        const int windowed = strcmp(kind, "sliding_attention") == 0;
        const double usual = windowed ? 1 : 0.5;
        if (!json_as_double(json_at(bases, (size_t)i), &base) || !(base >= 1e-3 && base <= 1e12) ||
            (found[windowed] > 0 && found[windowed] != base))
            hf_fail(r, "rope_theta", "differs between layers of a kind");
        found[windowed] = base;
        if (shares && (!json_as_double(json_at(shares, (size_t)i), &share) || share != usual))
            hf_fail(r, "partial_rotary_factors", "is not 1 with a window and 0.5 without one");
    }
    c->rope.theta = found[0] > 0 ? found[0] : 1e4;
    c->rope.local_theta = found[1];
}

static void read_bases(hf_reader *r, const json_node *parameters, const json_node *local,
                       hf_config *c) {
    hf_rope *rope = &c->rope;
    bool own = c->arch->has & ARCH_ROPE_LOCAL;
    const char *key;
    const json_node *bases = hf_find(r, (hf_names){"rope_theta"}, &key);
    if (c->arch->rot_half && json_kind_of(bases) == JSON_ARRAY) {
        read_lists(r, bases, c);
        return;
    }
    rope->theta = hf_number_near(r, parameters, (hf_names){"rope_theta", "rotary_emb_base"}, 1e4,
                                 1e-3, 1e12);
    if (own)
        rope->local_theta = hf_number(r, (hf_names){"rope_local_base_freq", "swa_rope_theta"}, 0,
                                      1e-3, 1e12);
    if (hf_get(local, "rope_theta"))
        rope->local_theta = hf_number_in(r, local, "rope_theta", 1e4, 1e-3, 1e12);
    if (!own && rope->local_theta != 0 && rope->local_theta != rope->theta)
        hf_fail(r, "rope_parameters", "differ between layers, which this model type cannot have");
}

static void read_rotated(hf_reader *r, const json_node *parameters, hf_config *c) {
    static hf_names shares = {"partial_rotary_factor", "rotary_pct", "rope_pct"};
    if (c->n_latent > 0) {
        c->rope.n_rot = hf_int(r, (hf_names){"qk_rope_head_dim"}, -1, 1, c->head_dim);
        if (c->rope.n_rot % 2 != 0) hf_fail(r, "qk_rope_head_dim", "is odd");
        return;
    }
    double share = hf_number_near(r, parameters, shares, 1, 0, 1);
    c->rope.n_rot = hf_int(r, (hf_names){"rotary_dim"}, (int32_t)(c->head_dim * share + 1e-6), 1,
                           c->head_dim);
    if (r->status != PI_OK) return;
    if (c->rope.n_rot < 2 || c->rope.n_rot % 2 != 0)
        hf_fail(r, "partial_rotary_factor", "leaves an odd number of elements, or none");
}

void hf_rope_read(hf_reader *r, hf_config *c) {
    const char *name;
    const json_node *scaling = hf_find(r, (hf_names){"rope_scaling"}, &name);
    const json_node *parameters = hf_find(r, (hf_names){"rope_parameters"}, &name), *local = NULL;
    if (r->status != PI_OK) return;
    c->rope.n_rot = c->head_dim;
    c->rope.theta = 1e4;
    c->rope.factor = c->rope.attn_factor = 1;
    if (c->arch->rope == ROPE_NONE) {
        if (c->n_latent > 0) read_rotated(r, NULL, c); /* number of elements that would rotate */
        return;
    }
    if ((scaling && json_kind_of(scaling) != JSON_OBJECT) ||
        (parameters && json_kind_of(parameters) != JSON_OBJECT)) {
        hf_fail(r, "rope_scaling", "is not an object");
        return;
    }
    parameters = pick_parameters(r, parameters, &local);
    read_bases(r, parameters, local, c);
    read_rotated(r, parameters, c);
    if (r->status == PI_OK) read_scaling(r, scaling ? scaling : parameters, c);
    const char *position = hf_text(r->text, "position_embedding_type");
    if (position && strcmp(position, "nope") == 0) {
        c->unrotated = true;
        if (!(c->arch->has & ARCH_ROPE_SWITCH))
            hf_fail(r, "position_embedding_type", "is nope, which this model type cannot have");
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

bool hf_config_has_factors(const hf_config *c, tensor_role role) {
    return role == ROLE_ROPE_FREQS
               ? c->rope.kind == HF_ROPE_LLAMA3 || c->rope.kind == HF_ROPE_PROPORTIONAL
               : (role == ROLE_ROPE_LONG || role == ROLE_ROPE_SHORT) &&
                     c->rope.kind == HF_ROPE_LONGROPE;
}

/* Llama 3's rule (Grattafiori et al. 2024, arXiv 2407.21783; the reference code's apply_scaling):
 * long waves are stretched by the factor, short waves are unchanged, waves between are
 * interpolated. */
static void llama3_factors(const hf_rope *rope, int32_t n_rot, float *factors) {
    const double pi = 3.14159265358979323846;
    double longest = rope->orig_ctx / rope->low_freq_factor;
    double shortest = rope->orig_ctx / rope->high_freq_factor;
    for (int i = 0; i < n_rot / 2; i++) {
        double wavelength = 2 * pi * pow(rope->theta, 2.0 * i / n_rot);
        double divisor = 1;
        if (wavelength > longest) {
            divisor = rope->factor;
        } else if (wavelength >= shortest && longest > shortest) {
            double smooth = (rope->orig_ctx / wavelength - rope->low_freq_factor) /
                            (rope->high_freq_factor - rope->low_freq_factor);
            divisor = 1 / ((1 - smooth) / rope->factor + smooth);
        }
        factors[i] = (float)divisor;
    }
}

void hf_config_rope_factors(const hf_config *c, tensor_role role, float *factors) {
    const hf_rope *rope = &c->rope;
    if (role == ROLE_ROPE_FREQS) {
        if (rope->kind != HF_ROPE_PROPORTIONAL) {
            const int32_t n = c->arch->rot_half ? rope->n_rot / 2 : rope->n_rot;
            llama3_factors(rope, n, factors);
            for (int i = n / 2; i < rope->n_rot / 2; i++) factors[i] = 1;
            return;
        }
        /* Gemma 4: pairs that do not rotate get a divisor so large that their frequency is 0. */
        for (int i = 0; i < rope->n_rot / 2; i++)
            factors[i] = i < rope->n_turned / 2 ? (float)rope->factor : 1e30f;
        return;
    }
    memcpy(factors, role == ROLE_ROPE_LONG ? rope->long_factors : rope->short_factors,
           (size_t)(rope->n_rot / 2) * sizeof *factors);
}
