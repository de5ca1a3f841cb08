/* hf_layers.c: properties that differ between layers: windows, layers without rotation, experts. */
#include <string.h>

#include "hf_config.h"

/* ---- windows --------------------------------------------------------------------------------- */

/* reads ["sliding_attention", "full_attention", ...] or [1, 0, ...] */
static void read_list(hf_reader *r, const char *key, const json_node *list, hf_config *c) {
    if (json_count(list) < (size_t)c->n_layer) {
        hf_fail(r, key, "has fewer entries than there are layers");
        return;
    }
    for (int i = 0; i < c->n_layer; i++) {
        const json_node *item = json_at(list, (size_t)i);
        const char *text = "";
        size_t n;
        int64_t number;
        bool flag;
        if (!(c->parts[i] & HF_ATTENDS)) {
            c->windowed[i] = arch_has_window(c->arch, c->arch->window_period, i); /* not given */
        } else if (json_as_string(item, &text, &n)) {
            c->windowed[i] = strcmp(text, "sliding_attention") == 0 ||
                             strcmp(text, "chunked_attention") == 0;
            if (!c->windowed[i] && strcmp(text, "full_attention") != 0)
                hf_fail(r, key, "has an unknown kind of layer");
        } else if (json_as_bool(item, &flag)) {
            c->windowed[i] = flag;
        } else if (json_as_int(item, &number)) {
            c->windowed[i] = number != 0;
        } else {
            hf_fail(r, key, "is not a list of layer kinds");
        }
    }
}

/* Determines the layers with a window: from a list, from a text such as "LLLG", or from a period
 * whose last layer has no window; otherwise from the architecture. */
static void read_pattern(hf_reader *r, hf_config *c) {
    static hf_names names = {"layer_types",
                             "sliding_window_layout",
                             "hybrid_layer_pattern",
                             "sliding_window_pattern",
                             "_sliding_window_pattern",
                             "layer_switch"};
    const char *key, *text;
    const json_node *node = hf_find(r, names, &key);
    size_t n;
    int64_t period = c->arch->window_period;
    if (json_kind_of(node) == JSON_ARRAY) {
        read_list(r, key, node, c);
        return;
    }
    if (json_as_string(node, &text, &n)) {
        for (int i = 0; i < c->n_layer && n > 0; i++) c->windowed[i] = text[(size_t)i % n] == 'L';
        return;
    }
    if (node && (!json_as_int(node, &period) || period < 0 || period > MODEL_MAX_LAYERS))
        hf_fail(r, key, "is neither a list nor a number of layers");
    /* check_window refuses a window in an architecture without windows */
    if (!node && period == 0) period = 1;
    for (int i = 0; i < c->n_layer; i++) c->windowed[i] = arch_has_window(c->arch, (int)period, i);
}

/* Refuses a window that the architecture does not support. */
static void check_window(hf_reader *r, hf_config *c) {
    bool any = false;
    for (int i = 0; i < c->n_layer; i++) any |= c->windowed[i];
    if (!any) c->window = 0;
    bool can = c->arch->window_period > 0 &&
               (c->arch->window_layers == 0 || c->arch->window_layers == c->n_layer);
    if (can || c->window == 0) return;
    if (c->window < c->n_ctx)
        notify(r->notifier,
               "sliding window of %d tokens: a GGUF file of %s cannot record it; results are "
               "exact up to %d tokens of context",
               c->window, c->arch->name, c->window);
    c->window = 0;
}

static bool rotates(const hf_config *c, int layer) {
    const arch_row *arch = c->arch;
    if (arch->has & ARCH_ROPE_WINDOWED && c->window > 0 && !c->windowed[layer]) return false;
    return arch->no_rope_period == 0 || (layer + 1) % arch->no_rope_period != 0;
}

/* Checks lists of layers that rotate against the architecture's pattern. */
static void check_rotations(hf_reader *r, const hf_config *c) {
    const char *key;
    const json_node *list = hf_find(r, (hf_names){"no_rope_layers", "rope_layout"}, &key);
    if (json_kind_of(list) != JSON_ARRAY || json_count(list) == 0) return;
    for (int i = 0; i < c->n_layer && r->status == PI_OK; i++) {
        int64_t number;
        if (!json_as_int(json_at(list, (size_t)i), &number)) {
            hf_fail(r, key, "does not hold a number for every layer");
        } else if ((number != 0) != rotates(c, i)) {
            r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                                  "unusual RoPE layers: %s: %s, layer %d: a GGUF file of %s cannot "
                                  "record it",
                                  r->path, key, i, c->arch->name);
        }
    }
}

void hf_window_read(hf_reader *r, hf_config *c) {
    static hf_names sizes = {"sliding_window", "sliding_window_size", "attention_chunk_size"};
    if (r->status != PI_OK || c->n_head == 0) return;
    c->window = hf_int(r, sizes, 0, 0, INT32_MAX);
    /* some models have a window size but disable the window */
    if (!hf_flag(r, (hf_names){"use_sliding_window"}, true)) c->window = 0;
    if (c->window > 0) read_pattern(r, c);
    if (r->status == PI_OK) check_window(r, c);
    const char *key;
    const json_node *other = hf_find(r, (hf_names){"attention_other_setting"}, &key);
    if (other && c->window > 0) { /* Step 3.5 */
        const double most = MODEL_MAX_HEADS;
        c->n_head_window = (int32_t)hf_number_in(r, other, "num_attention_heads", c->n_head, 1,
                                                 most);
        c->n_head_kv_window = (int32_t)hf_number_in(r, other, "num_attention_groups", c->n_head_kv,
                                                    1, most);
        if (hf_number_in(r, other, "head_dim", c->head_dim, 1, HF_MAX_HEAD_DIM) != c->head_dim ||
            c->n_head_window % c->n_head_kv_window != 0)
            hf_fail(r, key, "has heads of another size, or not a multiple of its groups");
        return;
    }
    bool local = c->head_dim_window > 0;
    c->n_head_kv_window = hf_int(
        r, (hf_names){local ? "num_key_value_heads" : "swa_num_key_value_heads"}, c->n_head_kv, 1,
        c->n_head);
    if (r->status == PI_OK && c->n_head % c->n_head_kv_window != 0)
        hf_fail(r, "num_attention_heads", "is not a multiple of swa_num_key_value_heads");
    if (r->status == PI_OK) check_rotations(r, c);
}

/* ---- experts --------------------------------------------------------------------------------- */

static void read_gating(hf_reader *r, hf_config *c) {
    static const char *const keys[] = {"scoring_func",
                                       "score_function",
                                       "score_func",
                                       "expert_selection_fn",
                                       "moe_router_activation_func",
                                       "moe_router_activation"};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !name; i++)
        name = hf_text(r->text, keys[i]);
    hf_experts *e = &c->experts;
    if (name && (strcmp(name, "sigmoid") == 0 || strcmp(name, "noaux_tc") == 0)) {
        e->gating = GATING_SIGMOID;
    } else if (name && strcmp(name, "softmax") == 0) {
        e->gating = GATING_SOFTMAX;
    } else if (name) {
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown gating '%.60s': %s: expected softmax or sigmoid", name,
                              r->path);
    }
    if (hf_has(r, "moe_primary_router_apply_softmax"))
        e->gating = hf_flag(r, (hf_names){"moe_primary_router_apply_softmax"}, true)
                        ? GATING_SOFTMAX
                        : GATING_SIGMOID;
}

/* Checks that the model has the router weighting that the architecture fixes. */
static void check_weights(hf_reader *r, const hf_config *c) {
    bool fixed = c->arch->has & ARCH_EXPERT_NORM;
    if (r->status != PI_OK || c->arch->has & ARCH_EXPERT_KEYS) return;
    if (c->experts.norm == fixed && c->experts.scale == 1) return;
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "unusual weights of experts: %s: norm_topk_prob and "
                          "routed_scaling_factor must be %s and 1: a GGUF file of %s cannot "
                          "record it",
                          r->path, fixed ? "true" : "false", c->arch->name);
}

/* Step 3.5: a limit of hidden values for each layer; null or 0: none. */
static void read_limits(hf_reader *r, hf_config *c) {
    static const char *const keys[] = {"swiglu_limits", "swiglu_limits_shared"};
    const char *key;
    if (!c->arch->clamp_late) return;
    for (int k = 0; k < 2; k++) {
        const json_node *list = hf_find(r, (hf_names){keys[k]}, &key);
        c->clamped |= list != NULL;
        for (int i = 0; i < c->n_layer && list; i++) {
            const json_node *item = json_at(list, (size_t)i);
            double limit = 0;
            if (!item || (json_kind_of(item) != JSON_NULL &&
                          !(json_as_double(item, &limit) && limit >= 0 && limit < 1e30)))
                hf_fail(r, key, "is not a list of limits for every layer");
            c->clamps[k][i] = (float)limit;
        }
    }
}

void hf_experts_read(hf_reader *r, hf_config *c) {
    static hf_names counts = {"num_local_experts", "num_experts", "n_routed_experts",
                              "moe_num_experts", "moe_num_primary_experts"};
    static hf_names used = {"num_experts_per_tok",
                            "num_experts_per_token",
                            "moe_topk",
                            "moe_k",
                            "moe_num_active_primary_experts",
                            "top_k_experts",
                            "moe_top_k"};
    static hf_names widths = {"moe_intermediate_size", "moe_ffn_hidden_size", "intermediate_size"};
    static hf_names shared = {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
                              "num_shared_expert"};
    hf_experts *e = &c->experts;
    if (r->status != PI_OK || c->arch->gating == GATING_NONE) return;
    e->n = hf_int(r, counts, 0, 0, MODEL_MAX_EXPERTS);
    if (e->n == 0 || r->status != PI_OK) return;
    e->n_used = hf_int(r, used, -1, 1, e->n);
    e->n_ff = hf_int(r, widths, -1, 1, MODEL_MAX_DIM);
    e->n_shared = hf_int(r, shared, 0, 0, MODEL_MAX_EXPERTS);
    e->n_group = hf_int(r, (hf_names){"n_group", "num_expert_group"}, 0, 0, e->n);
    e->n_group_used = hf_int(r, (hf_names){"topk_group"}, 0, 0, e->n);
    e->norm = hf_flag(
        r, (hf_names){"norm_topk_prob", "route_norm", "moe_renormalize", "norm_expert_weight"},
        c->arch->has & ARCH_EXPERT_NORM);
    e->scale = hf_number(
        r, (hf_names){"routed_scaling_factor", "route_scale", "moe_router_scaling_factor"}, 1, 1e-6,
        1e6);
    e->spacing = hf_int(r, (hf_names){"interleave_moe_layer_step", "moe_layer_interval"}, 0, 0,
                        MODEL_MAX_LAYERS);
    read_gating(r, c);
    read_limits(r, c);
    check_weights(r, c);
}
