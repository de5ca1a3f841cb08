/* hf_recurrent.c: models with recurrent layers: recurrent layers, the sizes of their mixers, and
 * the keys for both. Every family has different names for these numbers. */
#include <math.h>
#include <string.h>

#include "hf_config.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

static int32_t read_size(hf_reader *r, hf_names names) {
    return hf_int(r, names, -1, 1, MODEL_MAX_DIM);
}

/* Mamba-2: the head size is given, or the inner size is the width times a factor. */
static void read_ssm(hf_reader *r, hf_config *c) {
    hf_recurrent *s = &c->recurrent;
    s->n_taps = read_size(r, (hf_names){"mamba_d_conv", "conv_kernel"});
    s->n_state = read_size(r, (hf_names){"mamba_d_state", "ssm_state_size", "state_size"});
    s->n_head = read_size(r, (hf_names){"mamba_n_heads", "mamba_num_heads", "num_heads"});
    s->n_group = read_size(r, (hf_names){"mamba_n_groups", "n_groups"});
    if (r->status != PI_OK) return;
    if (hf_has(r, "mamba_d_ssm")) {
        s->n_inner = read_size(r, (hf_names){"mamba_d_ssm"});
    } else if (hf_has(r, "mamba_head_dim")) {
        int32_t dim = hf_int(r, (hf_names){"mamba_head_dim"}, -1, 1, MODEL_MAX_DIM / s->n_head);
        s->n_inner = dim * s->n_head;
    } else {
        s->n_inner = c->n_embd * hf_int(r, (hf_names){"mamba_expand", "expand"}, 2, 1,
                                        MODEL_MAX_DIM / c->n_embd);
    }
    bool norm = hf_flag(r, (hf_names){"mamba_rms_norm"}, true);
    if (norm && hf_flag(r, (hf_names){"mamba_norm_before_gate"}, false))
        hf_fail(r, "mamba_norm_before_gate", "is true, which is not supported");
}

static void read_delta(hf_reader *r, hf_config *c) {
    hf_recurrent *s = &c->recurrent;
    s->n_taps = read_size(r, (hf_names){"linear_conv_kernel_dim"});
    s->n_state = read_size(r, (hf_names){"linear_key_head_dim"});
    s->n_group = read_size(r, (hf_names){"linear_num_key_heads"});
    s->n_head = read_size(r, (hf_names){"linear_num_value_heads"});
    if (r->status == PI_OK)
        s->n_inner = s->n_head * hf_int(r, (hf_names){"linear_value_head_dim"}, -1, 1,
                                        MODEL_MAX_DIM / s->n_head);
}

/* KDA: one value head per key head; the numbers are in a separate object. */
static void read_kda(hf_reader *r, hf_config *c) {
    const char *name;
    const json_node *node = hf_find(r, (hf_names){"linear_attn_config"}, &name);
    hf_recurrent *s = &c->recurrent;
    s->n_taps = (int32_t)hf_number_in(r, node, "short_conv_kernel_size", NAN, 2, 64);
    s->n_state = (int32_t)hf_number_in(r, node, "head_dim", NAN, 1, HF_MAX_HEAD_DIM);
    s->n_head = s->n_group = (int32_t)hf_number_in(r, node, "num_heads", NAN, 1, MODEL_MAX_HEADS);
    s->n_inner = s->n_head * s->n_state;
    if (node && hf_get(node, "gate_lower_bound"))
        s->least_decay = hf_number_in(r, node, "gate_lower_bound", 0, -1e3, -1e-3);
    if (r->status == PI_OK && s->n_head != c->n_head)
        hf_fail(r, "linear_attn_config", "differs from the heads of attention");
}

/* RWKV: heads as wide as their states. */
static void read_wkv(hf_reader *r, hf_config *c) {
    hf_recurrent *s = &c->recurrent;
    s->n_state = hf_int(r, (hf_names){"head_size", "head_dim"}, 64, 1, HF_MAX_HEAD_DIM);
    s->halve_period = hf_int(r, (hf_names){"rescale_every"}, 0, 0, MODEL_MAX_LAYERS);
    if (r->status != PI_OK) return;
    s->n_inner = c->n_embd;
    s->n_head = s->n_group = c->n_embd / s->n_state;
    if (c->n_embd % s->n_state != 0) hf_fail(r, "head_size", "does not divide hidden_size");
}

static void check_sizes(hf_reader *r, const hf_config *c) {
    const hf_recurrent *s = &c->recurrent;
    if (r->status != PI_OK || c->arch->mixers & MIXER_CONV) return;
    if (s->n_inner % s->n_head != 0 || s->n_head % s->n_group != 0)
        hf_fail(r, "config.json", "has heads that do not divide the recurrent layers' width");
    else if (s->n_state > (INT32_MAX - s->n_inner) / 2 / s->n_group)
        hf_fail(r, "config.json", "has a recurrent state that is too large");
}

static void read_sizes(hf_reader *r, hf_config *c) {
    hf_recurrent *s = &c->recurrent;
    uint32_t mixers = c->arch->mixers;
    if (mixers & MIXER_CONV) s->n_taps = read_size(r, (hf_names){"conv_L_cache"});
    if (mixers & MIXER_SSM) read_ssm(r, c);
    if (mixers & MIXER_DELTA) read_delta(r, c);
    if (mixers & MIXER_KDA) read_kda(r, c);
    if (mixers & MIXER_WKV) read_wkv(r, c);
    check_sizes(r, c);
    if (r->status != PI_OK) return;
    s->n_conv = mixers & MIXER_CONV  ? c->n_embd
                : mixers & MIXER_KDA ? 3 * s->n_inner
                                     : s->n_inner + 2 * s->n_group * s->n_state;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t parts; /* parts of layers with a single part or one mixer */
} kinds[] = {{"full_attention", HF_ATTENDS},
             {"sliding_attention", HF_ATTENDS},
             {"qwen_sparse_attention", HF_ATTENDS},
             {"indexed_attention", HF_ATTENDS},
             {"attention", HF_ATTENDS},
             {"*", HF_ATTENDS},
             {"linear_attention", HF_RECURS},
             {"mamba", HF_RECURS},
             {"M", HF_RECURS},
             {"conv", HF_RECURS},
             {"mlp", HF_FFN},
             {"-", HF_FFN},
             {"moe", HF_FFN},
             {"E", HF_FFN}};

static void set_kind(hf_reader *r, hf_config *c, const char *key, int layer, const char *text,
                     size_t n) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strlen(kinds[i].name) != n || memcmp(kinds[i].name, text, n) != 0) continue;
        c->parts[layer] = kinds[i].parts;
        return;
    }
    hf_fail(r, key, "has an unknown kind of layer");
}

/* Reads ["mamba", "attention", ...], or one letter per layer. */
static void read_kinds(hf_reader *r, hf_config *c, const char *key, const json_node *node) {
    const char *text;
    size_t n;
    if (json_as_string(node, &text, &n)) {
        if (n != (size_t)c->n_layer) hf_fail(r, key, "does not have a letter for each layer");
        for (int i = 0; i < c->n_layer && r->status == PI_OK; i++)
            set_kind(r, c, key, i, text + i, 1);
        return;
    }
    if (json_count(node) != (size_t)c->n_layer) hf_fail(r, key, "does not name each layer");
    for (int i = 0; i < c->n_layer && r->status == PI_OK; i++) {
        if (json_as_string(json_at(node, (size_t)i), &text, &n))
            set_kind(r, c, key, i, text, n);
        else
            hf_fail(r, key, "is not a list of layer kinds");
    }
}

/* Reads the numbers of the layers that attend, counted from `first`. */
static void read_indices(hf_reader *r, hf_config *c, const char *key, const json_node *list,
                         int first) {
    for (int i = 0; i < c->n_layer; i++) c->parts[i] = HF_RECURS;
    if (json_kind_of(list) != JSON_ARRAY) hf_fail(r, key, "is missing or not a list of layers");
    for (size_t i = 0; i < json_count(list) && r->status == PI_OK; i++) {
        int64_t layer;
        if (json_as_int(json_at(list, i), &layer) && layer >= first && layer - first < c->n_layer)
            c->parts[layer - first] = HF_ATTENDS;
        else
            hf_fail(r, key, "has a layer outside the model");
    }
}

static bool attends_by_period(const hf_config *c, int layer) {
    return (layer + 1) % c->recurrent.period == 0;
}

static void read_layers(hf_reader *r, hf_config *c) {
    static hf_names lists = {"hybrid_override_pattern", "layers_block_type", "layer_types"};
    const char *key;
    c->recurrent.period = hf_int(r, (hf_names){"full_attention_interval"}, 4, 1, MODEL_MAX_LAYERS);
    const json_node *node = hf_find(r, lists, &key);
    if (node) {
        read_kinds(r, c, key, node);
    } else if (c->arch->mixers & MIXER_KDA) {
        node = hf_find(r, (hf_names){"linear_attn_config"}, &key);
        read_indices(r, c, "full_attn_layers", hf_get(node, "full_attn_layers"), 1);
    } else if (c->arch->layers == LAYERS_BY_PERIOD) {
        for (int i = 0; i < c->n_layer; i++)
            c->parts[i] = attends_by_period(c, i) ? HF_ATTENDS : HF_RECURS;
    } else {
        node = hf_find(r, (hf_names){"full_attn_idxs", "attn_layer_indices"}, &key);
        read_indices(r, c, key, node, 0);
    }
    for (int i = 0; i < c->n_layer && c->arch->layers != LAYERS_SINGLE; i++) {
        if (c->parts[i] & HF_FFN) hf_fail(r, key, "has a layer without a mixer");
        c->parts[i] |= HF_FFN;
    }
}

void hf_recurrent_read(hf_reader *r, hf_config *c) {
    if (r->status != PI_OK) return;
    uint32_t mixers = c->arch->mixers ? c->arch->mixers : MIXER_ATTENTION;
    bool ffn = arch_tensor_of(c->arch, ROLE_FFN_DOWN) || arch_tensor_of(c->arch, ROLE_EXPERT_DOWN);
    for (int i = 0; i < c->n_layer; i++)
        c->parts[i] = (uint8_t)((mixers & MIXER_ATTENTION ? HF_ATTENDS : 0) |
                                (mixers & MIXER_RECURRENT ? HF_RECURS : 0) | (ffn ? HF_FFN : 0));
    if (!(mixers & MIXER_RECURRENT)) return;
    read_sizes(r, c);
    if (r->status == PI_OK && c->arch->layers != LAYERS_ALIKE) read_layers(r, c);
}

bool hf_config_layer_has(const hf_config *c, int layer, tensor_role role) {
    static const uint8_t bits[] = {[PART_ANY] = 0xff,
                                   [PART_ATTENTION] = HF_ATTENDS,
                                   [PART_RECURRENT] = HF_RECURS,
                                   [PART_FFN] = HF_FFN};
    return c->parts[layer] & bits[tensor_role_part(role)];
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* llama.cpp needs the ranks. */
static void put_wkv(const hf_config *c, gguf_writer *w) {
    static const struct {
        tensor_role role;
        const char *suffix;
    } ranks[] = {{ROLE_SSM_ALPHA_A, "attention.decay_lora_rank"},
                 {ROLE_SSM_RATE_A, "attention.iclr_lora_rank"},
                 {ROLE_SSM_FIRST_A, "attention.value_residual_mix_lora_rank"},
                 {ROLE_SSM_GATE_A, "attention.gate_lora_rank"}};
    const int32_t mixed = c->ranks[ROLE_SSM_SHIFT_A];
    hf_put_u32(w, c, "wkv.head_size", c->recurrent.n_state);
    if (c->recurrent.halve_period > 0)
        hf_put_u32(w, c, "rescale_every_n_layers", c->recurrent.halve_period);
    if (mixed > 0) { /* RWKV-6: five ranks in one */
        hf_put_u32(w, c, "time_mix_extra_dim", mixed / 5);
        hf_put_u32(w, c, "time_decay_extra_dim", c->ranks[ROLE_SSM_ALPHA_A]);
        return;
    }
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        hf_put_u32(w, c, ranks[i].suffix, c->ranks[ranks[i].role]);
}

void hf_recurrent_put(const hf_config *c, gguf_writer *w) {
    const hf_recurrent *s = &c->recurrent;
    uint32_t mixers = c->arch->mixers;
    bool recurs[MODEL_MAX_LAYERS], usual = true;
    if (!(mixers & MIXER_RECURRENT)) return;
    if (mixers & MIXER_WKV) {
        put_wkv(c, w);
        return;
    }
    hf_put_u32(w, c, mixers & MIXER_CONV ? "shortconv.l_cache" : "ssm.conv_kernel", s->n_taps);
    if (mixers & MIXER_KDA) hf_put_u32(w, c, "kda.head_dim", s->n_state);
    if (mixers & (MIXER_SSM | MIXER_DELTA)) {
        hf_put_u32(w, c, "ssm.inner_size", s->n_inner);
        hf_put_u32(w, c, "ssm.state_size", s->n_state);
        hf_put_u32(w, c, "ssm.time_step_rank", s->n_head);
        hf_put_u32(w, c, "ssm.group_count", s->n_group);
    }
    if (c->arch->layers != LAYERS_BY_PERIOD) return;
    for (int i = 0; i < c->n_layer; i++) {
        recurs[i] = c->parts[i] & HF_RECURS;
        usual &= recurs[i] != attends_by_period(c, i);
    }
    hf_put_u32(w, c, "full_attention_interval", s->period);
    if (!usual) hf_put_bools(w, c, "attention.recurrent_layers", recurs);
}
