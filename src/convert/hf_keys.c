/* hf_keys.c: numbers that only architectures with a certain property have (arch.h's ARCH_*), and
 * switches of config.json that this version knows in one position only. */
#include <math.h>
#include <string.h>

#include "hf_config.h"

typedef enum number_form {
    AS_IT_IS,
    INVERSE_ROOT,    /* 1 / sqrt(x) */
    PER_ROOT_LAYERS, /* x / sqrt(n_layer) */
    WIDTH_OVER       /* n_embd / x */
} number_form;

/* One row a key; of several rows with the same suffix, the first that config.json has counts. */
static const struct {
    uint32_t has; /* any of these */
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

/* Switches whose other position is another model. */
static const struct {
    const char *key;
    bool known;
} switches[] = {
    {"alibi", false},     {"do_layer_norm_before", true}, {"parallel_attn", true},
    {"norm_head", false}, {"mup_enabled", true},
};

static void check_switches(hf_reader *r) {
    for (size_t i = 0; i < sizeof switches / sizeof switches[0] && r->status == PI_OK; i++) {
        if (hf_flag(r, (hf_names){switches[i].key}, switches[i].known) == switches[i].known)
            continue;
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "unknown kind of model: %s: %s must be %s", r->path, switches[i].key,
                              switches[i].known ? "true" : "false");
    }
    if (hf_has(r, "clip_qkv") && r->status == PI_OK)
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
        if (x == 0) continue; /* also: not there */
        c->numbers[c->n_numbers++] = (hf_number_key){numbers[i].suffix,
                                                     convert(c, x, numbers[i].form)};
    }
    check_switches(r);
}
