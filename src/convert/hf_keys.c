/* hf_keys.c: numbers of architectures with a certain property (arch.h's ARCH_*), and switches of
 * config.json with only one supported value. */
#include <math.h>
#include <string.h>

#include "hf_config.h"

typedef enum number_form {
    AS_IT_IS,
    INVERSE_ROOT,    /* 1 / sqrt(x) */
    PER_ROOT_LAYERS, /* x / sqrt(n_layer) */
    WIDTH_OVER       /* n_embd / x */
} number_form;

/* One row per key; among rows with equal suffixes, the first with a name in config.json is used. */
static const struct {
    uint32_t has; /* at least one of these properties */
    const char *suffix, *name;
    number_form form;
} numbers[] = {
    {ARCH_EMBD_SCALE, "embedding_scale", "embedding_multiplier", AS_IT_IS},
    {ARCH_EMBD_SCALE, "embedding_scale", "scale_emb", AS_IT_IS},
    {ARCH_RESIDUAL_SCALE, "residual_scale", "residual_multiplier", AS_IT_IS},
    {ARCH_RESIDUAL_SCALE, "residual_scale", "scale_depth", PER_ROOT_LAYERS},
    {ARCH_LOGIT_MULTIPLIED, "logit_scale", "logit_scale", AS_IT_IS},
    {ARCH_LOGIT_DIVIDED, "logit_scale", "logits_scaling", AS_IT_IS},
    {ARCH_LOGIT_DIVIDED, "logit_scale", "dim_model_base", WIDTH_OVER},
    {ARCH_LOGIT_SOFTCAP, "final_logit_softcapping", "final_logit_softcapping", AS_IT_IS},
    {ARCH_ATTN_SOFTCAP, "attn_logit_softcapping", "attn_logit_softcapping", AS_IT_IS},
    {ARCH_ATTN_SCALE, "attention.scale", "attention_multiplier", AS_IT_IS},
    {ARCH_ATTN_SCALE, "attention.scale", "query_pre_attn_scalar", INVERSE_ROOT},
    {ARCH_ATTN_TEMPERATURE, "attention.temperature_scale", "attn_scale", AS_IT_IS},
    {ARCH_ATTN_TEMPERATURE, "attention.temperature_scale", "llama_4_scaling_beta", AS_IT_IS},
    {ARCH_QKV_CLAMP, "attention.clamp_kqv", "clip_qkv", AS_IT_IS},
    {ARCH_VALUE_SCALE, "attention.value_scale", "attention_value_scale", AS_IT_IS},
};

enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };

static double convert(const hf_config *c, double x, number_form form) {
    return form == INVERSE_ROOT      ? 1 / sqrt(x)
           : form == PER_ROOT_LAYERS ? x / sqrt((double)c->n_layer)
           : form == WIDTH_OVER      ? c->n_embd / x
                                     : x;
}

static bool is_there(const hf_config *c, const char *suffix) {
    for (int i = 0; i < c->n_numbers; i++)
        if (strcmp(c->numbers[i].suffix, suffix) == 0) return true;
    return false;
}

/* ---- multipliers of weights ------------------------------------------------------------------ */

/* Falcon-H1's multipliers of products, folded into weights (and biases, if the product's output is
 * multiplied, not its input). */
static const struct {
    tensor_role role;
    const char *name;
    int index; /* index in a list; -1: a number */
} multipliers[] = {
    {ROLE_TOKEN_EMBD, "embedding_multiplier", -1},
    {ROLE_OUTPUT, "lm_head_multiplier", -1},
    {ROLE_ATTN_Q, "attention_in_multiplier", -1},
    {ROLE_ATTN_K, "attention_in_multiplier", -1},
    {ROLE_ATTN_K, "key_multiplier", -1},
    {ROLE_ATTN_K_BIAS, "key_multiplier", -1},
    {ROLE_ATTN_V, "attention_in_multiplier", -1},
    {ROLE_ATTN_OUT, "attention_out_multiplier", -1},
    {ROLE_ATTN_OUT_BIAS, "attention_out_multiplier", -1},
    {ROLE_SSM_IN, "ssm_in_multiplier", -1},
    {ROLE_SSM_OUT, "ssm_out_multiplier", -1},
    {ROLE_FFN_GATE, "mlp_multipliers", 0},
    {ROLE_FFN_GATE_BIAS, "mlp_multipliers", 0},
    {ROLE_FFN_DOWN, "mlp_multipliers", 1},
    {ROLE_FFN_DOWN_BIAS, "mlp_multipliers", 1},
};

static double list_item(hf_reader *r, const char *key, const json_node *list, int index) {
    double x = 1;
    if (!json_as_double(json_at(list, (size_t)index), &x) || !(fabs(x) <= 1e6))
        hf_fail(r, key, "is not a list of numbers");
    return x;
}

static void read_multipliers(hf_reader *r, hf_config *c) {
    const char *key;
    if (!(c->family->flags & HF_MULTIPLIED)) return;
    for (size_t i = 0; i < sizeof multipliers / sizeof multipliers[0]; i++) {
        hf_names names = {multipliers[i].name};
        const json_node *node = hf_find(r, names, &key);
        if (!node) continue;
        float *x = &c->multipliers[multipliers[i].role];
        double by = multipliers[i].index < 0 ? hf_number(r, names, 1, -1e6, 1e6)
                                             : list_item(r, key, node, multipliers[i].index);
        *x = (float)by * (*x == 0 ? 1 : *x);
    }
    const json_node *list = hf_find(r, (hf_names){"ssm_multipliers"}, &key);
    for (int i = 0; i < HF_SSM_PARTS && list; i++)
        c->ssm_multipliers[i] = (float)list_item(r, key, list, i);
    if (hf_flag(r, (hf_names){"tie_word_embeddings"}, false) &&
        c->multipliers[ROLE_OUTPUT] != c->multipliers[ROLE_TOKEN_EMBD])
        hf_fail(r, "lm_head_multiplier",
                "differs from the multiplier of the embeddings, which are also the head");
}

/* ---- sparse attention, rotary sections ------------------------------------------------------- */

static int32_t size_in(hf_reader *r, const json_node *node, const char *key, double fallback) {
    return (int32_t)hf_number_in(r, node, key, fallback, 0, 1 << 20);
}

static void read_indexer(hf_reader *r, hf_config *c) {
    const char *key;
    if (!arch_tensor_of(c->arch, ROLE_INDEX_Q)) return;
    if (arch_tensor_of(c->arch, ROLE_INDEX_WEIGHTS)) { /* DSA */
        c->n_index_head = hf_int(r, (hf_names){"index_n_heads"}, -1, 1, MODEL_MAX_HEADS);
        c->index_dim = hf_int(r, (hf_names){"index_head_dim"}, -1, 1, HF_MAX_HEAD_DIM);
        c->n_index_blocks = hf_int(r, (hf_names){"index_topk"}, -1, 1, INT32_MAX);
        const json_node *types = hf_find(r, (hf_names){"indexer_types"}, &key);
        c->index_types = types && c->arch->index_by_layer;
        for (int i = 0; i < c->n_layer && r->status == PI_OK; i++) {
            const char *type = "full";
            size_t n;
            if (c->index_types && !json_as_string(json_at(types, (size_t)i), &type, &n))
                hf_fail(r, key, "is not a list of \"full\" and \"shared\"");
            c->index_own[i] = strcmp(type, "full") == 0;
        }
        return;
    }
    if (c->arch->index_pools) { /* Qwen4: keys of several positions */
        if (!hf_has(r, "indexer_n_heads")) return;
        c->n_index_head = hf_int(r, (hf_names){"indexer_n_heads"}, -1, 1, MODEL_MAX_HEADS);
        c->index_dim = hf_int(r, (hf_names){"indexer_head_dim"}, -1, 1, HF_MAX_HEAD_DIM);
        c->n_index_blocks = hf_int(r, (hf_names){"indexer_budget"}, -1, 1, INT32_MAX);
        c->index_ratio = hf_int(r, (hf_names){"indexer_compress_ratio"}, -1, 1, 1 << 16);
        hf_int(r, (hf_names){"indexer_kv_heads"}, 1, 1, 1);
        for (int i = 0; i < c->n_layer; i++) c->index_own[i] = c->parts[i] & HF_ATTENDS;
        return;
    }
    const json_node *node = hf_find(r, (hf_names){"sparse_attention_config"}, &key);
    c->n_index_head = size_in(r, node, "sparse_num_index_heads", NAN);
    c->index_dim = size_in(r, node, "sparse_index_dim", NAN);
    c->n_index_blocks = size_in(r, node, "sparse_topk_blocks", NAN);
    c->index_block = size_in(r, node, "sparse_block_size", NAN);
    c->n_index_local = size_in(r, node, "sparse_local_block", 1);
}

/* Reads the coordinates of rotated pairs, and the layers that image features are added to, for
 * multimodal programs. */
static void read_sections(hf_reader *r, hf_config *c) {
    /* transformers' defaults: Qwen 3.5, Qwen3-VL */
    static const int32_t usual[2][4] = {{11, 11, 10, 0}, {24, 20, 20, 0}};
    const char *key;
    if (!(c->family->flags & HF_SECTIONS)) return;
    memcpy(c->sections, usual[c->rope.n_rot == 128], sizeof usual[0]);
    const json_node *rope = hf_find(r, (hf_names){"rope_parameters", "rope_scaling"}, &key);
    const json_node *list = hf_get(rope, "mrope_section");
    for (int i = 0; i < 3 && list; i++)
        c->sections[i] = (int32_t)fabs(list_item(r, "mrope_section", list, i));
    list = hf_get(hf_get(r->root, "vision_config"), "deepstack_visual_indexes");
    if (json_count(list) > (size_t)c->n_layer)
        hf_fail(r, "deepstack_visual_indexes", "has more entries than there are layers");
    c->n_deepstack = (int32_t)json_count(list);
}

/* ---- switches -------------------------------------------------------------------------------- */

/* Switches; another value means a different model. */
static const struct {
    const char *key;
    bool known;
} switches[] = {
    {"alibi", false},     {"do_layer_norm_before", true}, {"parallel_attn", true},
    {"norm_head", false}, {"mup_enabled", true},          {"mla_use_nope", true},
};

static void check_switches(hf_reader *r, const hf_config *c) {
    static const struct {
        const char *key;
        double known;
    } numbers_known[] = {{"swiglu_alpha", 1.702}, {"swiglu_limit", 7}, {"moe_latent_size", 0}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0] && r->status == PI_OK; i++) {
        if (hf_flag(r, (hf_names){switches[i].key}, switches[i].known) == switches[i].known)
            continue;
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown kind of model: %s: %s must be %s", r->path, switches[i].key,
                              switches[i].known ? "true" : "false");
    }
    for (size_t i = 0; i < sizeof numbers_known / sizeof numbers_known[0]; i++) {
        double x = hf_number(r, (hf_names){numbers_known[i].key}, numbers_known[i].known, -1e9,
                             1e9);
        if (fabs(x - numbers_known[i].known) > 1e-6)
            hf_fail(r, numbers_known[i].key, "has a value that is not supported");
    }
    if (hf_has(r, "clip_qkv") && !(c->arch->has & ARCH_QKV_CLAMP) && r->status == PI_OK)
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown kind of model: %s: clip_qkv is not supported", r->path);
}

void hf_numbers_read(hf_reader *r, hf_config *c) {
    const char *name;
    const json_node *rope = hf_find(r, (hf_names){"rope_parameters"}, &name);
    bool tempered = hf_flag(r, (hf_names){"attn_temperature_tuning"}, true);
    for (int i = 0; i < N_NUMBERS && r->status == PI_OK; i++) {
        if (!(c->arch->has & numbers[i].has) || is_there(c, numbers[i].suffix)) continue;
        if (numbers[i].has & ARCH_ATTN_TEMPERATURE && !tempered) continue;
        double x = hf_number_near(r, rope, (hf_names){numbers[i].name}, 0, 0, 1e6);
        if (x == 0) continue; /* also when the key is missing */
        c->numbers[c->n_numbers++] = (hf_number_key){numbers[i].suffix,
                                                     convert(c, x, numbers[i].form)};
    }
    read_multipliers(r, c);
    read_indexer(r, c);
    read_sections(r, c);
    check_switches(r, c);
}
