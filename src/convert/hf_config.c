/* hf_config.c: reads config.json: the model type, the shape, the activation; writes the keys. */
#include "hf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "os_file.h"

enum { PATH_BYTES = 4096, FP8_BLOCK = 128 };

/* A multimodal model has a text part, whose model type may differ. */
static void read_model_type(hf_reader *r, hf_config *c) {
    const char *type = hf_text(r->root, "model_type"), *class = NULL;
    size_t n;
    json_as_string(json_at(hf_get(r->root, "architectures"), 0), &class, &n);
    if (!type) {
        hf_fail(r, "model_type", "is missing or not a string");
        return;
    }
    const json_node *text = hf_get(r->root, "text_config");
    if (json_kind_of(text) == JSON_OBJECT) r->text = text;
    /* Qwen2-VL has no separate text part */
    c->multimodal = r->text == text || hf_get(r->root, "vision_config");
    c->family = class ? hf_family_find(class) : NULL;
    if (!c->family) c->family = hf_family_find(type);
    if (c->family && c->family->with_experts && hf_has(r, "n_routed_experts"))
        c->family = hf_family_find(c->family->with_experts);
    r->family = c->family;
    if (c->family) {
        c->arch = hf_family_arch(c->family);
        return;
    }
    char known[HF_LIST_TEXT];
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "unknown model type '%.60s': %s: this version converts %s", type, r->path,
                          hf_family_list(known));
}

/* ---- activation ------------------------------------------------------------------------------ */

/* Names from transformers' ACT2FN and from sparse models' code. */
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
    {"swigluoai", ACTIVATION_SILU}, /* clamped by ARCH_FFN_CLAMP */
    {"xielu", ACTIVATION_SILU},     /* arch_row.xielu */
    {"gelu_pytorch_tanh", ACTIVATION_GELU},
    {"gelu_new", ACTIVATION_GELU},
    {"gelu_fast", ACTIVATION_GELU},
    {"gelu", ACTIVATION_GELU},
};

static bool find_activation(hf_reader *r, const char *key, const char *name, activation *out) {
    size_t i = 0, n = sizeof hidden_acts / sizeof hidden_acts[0];
    while (i < n && strcmp(hidden_acts[i].name, name) != 0) i++;
    if (i < n) {
        *out = hidden_acts[i].activation;
        return true;
    }
    r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                          "unknown activation '%.60s': %s: %s can be silu, relu, relu2, drelu, "
                          "fatrelu or gelu",
                          name, r->path, key);
    return false;
}

static void read_activation(hf_reader *r, hf_config *c) {
    static hf_names names = {"hidden_activation", "hidden_act", "activation_function",
                             "mlp_hidden_act"};
    if (r->status != PI_OK) return;
    c->activation = c->arch->default_activation;
    const char *key, *name;
    size_t n;
    const json_node *node = hf_find(r, names, &key);
    if (!node) return;
    if (!json_as_string(node, &name, &n)) {
        hf_fail(r, key, "is not a string");
        return;
    }
    if (!find_activation(r, key, name, &c->activation)) return;
    if (strcmp(name, "swigluoai") == 0 && !(c->arch->has & ARCH_FFN_CLAMP)) {
        hf_fail(r, key, "is swigluoai, which this model type cannot have");
        return;
    }
    if ((strcmp(name, "xielu") == 0) != c->arch->xielu) {
        hf_fail(r, key,
                c->arch->xielu ? "is not xielu" : "is xielu, which this model type cannot have");
        return;
    }
    /* TurboSparse's checkpoints have "relu" but apply it to both gate and up, like their
     * architecture */
    if (c->activation == ACTIVATION_RELU && c->arch->default_activation == ACTIVATION_DRELU)
        c->activation = ACTIVATION_DRELU;
    if (strcmp(name, "gelu") == 0)
        notify(r->notifier,
               "hidden_act gelu: the tanh approximation is used, which differs by 0.001");
    if (c->activation == ACTIVATION_FATRELU) {
        c->has_threshold = true;
        c->threshold = hf_number(r, (hf_names){"hidden_act_param"}, NAN, -1e6, 1e6);
    }
    if (c->activation != c->arch->default_activation)
        notify(r->notifier,
               "%s is recorded in the key %s.hidden_activation; programs that ignore it would "
               "run this model with %s",
               name, c->arch->name, activation_name(c->arch->default_activation));
}

/* ---- configuration --------------------------------------------------------------------------- */

/* Latent attention: the head size is the sum of its two parts. */
static void read_latents(hf_reader *r, hf_config *c) {
    c->n_latent = hf_int(r, (hf_names){"kv_lora_rank"}, -1, 1, HF_MAX_HEAD_DIM);
    c->n_latent_q = hf_int(r, (hf_names){"q_lora_rank"}, 0, 0, MODEL_MAX_DIM);
    c->head_dim = hf_int(r, (hf_names){"qk_nope_head_dim"}, -1, 1, HF_MAX_HEAD_DIM / 2) +
                  hf_int(r, (hf_names){"qk_rope_head_dim"}, -1, 1, HF_MAX_HEAD_DIM / 2);
    c->v_dim = hf_int(r, (hf_names){"v_head_dim"}, -1, 1, HF_MAX_HEAD_DIM);
}

/* Values may be shorter than keys; layers with a window use the same value size. */
static void read_uneven_heads(hf_reader *r, hf_config *c) {
    bool uneven = arch_values_may_differ(c->arch);
    int32_t v_dim = hf_int(r, (hf_names){"v_head_dim"}, c->head_dim, 1, HF_MAX_HEAD_DIM);
    if (v_dim != c->head_dim && (!uneven || v_dim > c->head_dim || v_dim % 2 != 0))
        hf_fail(r, "v_head_dim",
                uneven ? "is neither head_dim nor an even number below it"
                       : "differs from head_dim, which this version cannot run");
    const struct {
        const char *key;
        int32_t wanted;
    } local[] = {{"swa_head_dim", c->head_dim},
                 {"swa_v_head_dim", v_dim},
                 {"swa_num_attention_heads", c->n_head}};
    for (int i = 0; i < 3; i++)
        if (hf_int(r, (hf_names){local[i].key}, local[i].wanted, 1, INT32_MAX) != local[i].wanted)
            hf_fail(r, local[i].key,
                    "differs from that of layers without a window, which this "
                    "version cannot run");
    if (v_dim != c->head_dim) c->v_dim = v_dim;
}

/* Layers without a window have larger heads, and fewer KV heads if values equal keys. */
static void read_local_heads(hf_reader *r, hf_config *c) {
    c->head_dim_window = hf_int(r, (hf_names){"head_dim"}, 256, 2, HF_MAX_HEAD_DIM);
    c->head_dim = hf_int(r, (hf_names){"global_head_dim"}, c->head_dim_window, 2, HF_MAX_HEAD_DIM);
    if (hf_flag(r, (hf_names){"attention_k_eq_v"}, false))
        c->n_head_kv = hf_int(r, (hf_names){"num_global_key_value_heads"}, c->n_head_kv, 1,
                              MODEL_MAX_HEADS);
    c->n_kv_shared = hf_int(r, (hf_names){"num_kv_shared_layers"}, 0, 0, MODEL_MAX_LAYERS - 1);
    c->wide_shared = hf_flag(r, (hf_names){"use_double_wide_mlp"}, false);
    c->n_embd_layer = hf_int(r, (hf_names){"hidden_size_per_layer_input"}, 0, 0, MODEL_MAX_DIM);
    if (r->status != PI_OK) return;
    if (c->head_dim % 2 != 0 || c->head_dim_window % 2 != 0) hf_fail(r, "head_dim", "is odd");
    if (c->n_head % c->n_head_kv != 0)
        hf_fail(r, "num_attention_heads", "is not a multiple of num_global_key_value_heads");
}

/* Quantile of the normal distribution: the number of standard deviations above the mean below which
 * `share` of the values lie. */
static double deviations_of(double share) {
    double low = -40, high = 40;
    if (share <= 0) return -INFINITY;
    for (int i = 0; i < 100; i++) {
        double mid = (low + high) / 2;
        *(erfc(-mid / sqrt(2)) / 2 < share ? &low : &high) = mid;
    }
    return high;
}

/* Reads the fraction of neurons that each layer leaves out; without the list, the first ten layers
 * of deeper models have a fraction. */
static void read_cutoffs(hf_reader *r, hf_config *c) {
    const char *key;
    const json_node *list = hf_find(r, (hf_names){"activation_sparsity_pattern"}, &key);
    for (int i = 0; i < c->n_layer && r->status == PI_OK; i++) {
        int n = c->arch->sparse_layers;
        double share = !list && c->n_layer > n && i < n ? 0.95 : 0;
        bool read = !list ||
                    json_as_double(
                        json_kind_of(list) == JSON_ARRAY ? json_at(list, (size_t)i) : list, &share);
        if (!read || !(share >= 0 && share <= 0.9999))
            hf_fail(r, key, "is not a fraction of neurons for every layer");
        c->cutoffs[i] = (float)deviations_of(share);
    }
}

/* A GGUF file cannot express layers that compute a stream other than stream 0, or that do not scale
 * the input of the per-layer embedding. */
static void read_streams(hf_reader *r, hf_config *c) {
    if (!arch_tensor_of(c->arch, ROLE_STREAM_PROJ)) return;
    c->n_stream = hf_int(r, (hf_names){"altup_num_inputs"}, 4, 2, MODEL_MAX_STREAMS);
    c->n_laurel = hf_int(r, (hf_names){"laurel_rank"}, 64, 1, MODEL_MAX_DIM);
    c->n_embd_layer = hf_int(r, (hf_names){"hidden_size_per_layer_input"}, 256, 1, MODEL_MAX_DIM);
    c->n_vocab_layer = hf_int(r, (hf_names){"vocab_size_per_layer_input"}, 262144, 1,
                              MODEL_MAX_VOCAB);
    c->n_kv_shared = hf_int(r, (hf_names){"num_kv_shared_layers"}, 15, 0, MODEL_MAX_LAYERS - 1);
    read_cutoffs(r, c);
    if (hf_int(r, (hf_names){"altup_active_idx"}, 0, 0, MODEL_MAX_STREAMS) != 0)
        hf_fail(r, "altup_active_idx", "is not 0, which this version cannot run");
    if (!hf_flag(r, (hf_names){"altup_correct_scale"}, true))
        hf_fail(r, "altup_correct_scale", "is false, which a GGUF file cannot record");
}

static void read_heads(hf_reader *r, hf_config *c) {
    if (c->arch->mixers && !(c->arch->mixers & MIXER_ATTENTION)) return;
    c->n_head = hf_int(r, (hf_names){"num_attention_heads", "n_head"}, -1, 1, MODEL_MAX_HEADS);
    if (r->status != PI_OK) return;
    if (arch_tensor_of(c->arch, ROLE_ATTN_KV_A)) {
        read_latents(r, c);
        c->n_head_kv = 1;
        return;
    }
    static hf_names kv = {"num_key_value_heads", "num_kv_heads", "n_head_kv",
                          "num_attention_groups"};
    c->n_head_kv = hf_int(r, kv, c->n_head, 1, MODEL_MAX_HEADS);
    /* Falcon 7B: one KV head, whatever the number says */
    if (hf_has(r, "multi_query") && !hf_flag(r, (hf_names){"new_decoder_architecture"}, false))
        c->n_head_kv = hf_flag(r, (hf_names){"multi_query"}, true) ? 1 : c->n_head;
    if (c->arch->has & ARCH_HEADS_LOCAL) {
        read_local_heads(r, c);
        return;
    }
    c->head_dim = hf_int(r, (hf_names){"head_dim", "attention_head_dim"}, c->n_embd / c->n_head, 1,
                         HF_MAX_HEAD_DIM);
    if (r->status != PI_OK) return;
    if (c->head_dim % 2 != 0 || c->head_dim < 2 || c->head_dim > HF_MAX_HEAD_DIM)
        hf_fail(r, "head_dim",
                "(or hidden_size / num_attention_heads) is not an even number <= 4096");
    if (!hf_has(r, "head_dim") && c->head_dim == c->n_embd / c->n_head &&
        c->n_embd % c->n_head != 0)
        hf_fail(r, "hidden_size", "is not a multiple of num_attention_heads");
    if (c->n_head % c->n_head_kv != 0)
        hf_fail(r, "num_attention_heads", "is not a multiple of num_key_value_heads");
    read_uneven_heads(r, c);
}

/* LFM2: the FFN width is two thirds of the given width, rounded up to a multiple of another
 * number. */
static void adjust_width(hf_reader *r, hf_config *c) {
    if (!hf_flag(r, (hf_names){"block_auto_adjust_ff_dim"}, hf_has(r, "block_multiple_of"))) return;
    int32_t step = hf_int(r, (hf_names){"block_multiple_of"}, 256, 1, 1 << 16);
    double factor = hf_number(r, (hf_names){"block_ffn_dim_multiplier"}, 1, 1e-3, 1e3);
    double width = floor(factor * floor(2.0 * c->n_ff / 3));
    if (r->status != PI_OK) return;
    if (!(width >= 1 && width <= MODEL_MAX_DIM - step))
        hf_fail(r, "block_ffn_dim_multiplier", "makes FFNs of an impossible width");
    else
        c->n_ff = ((int32_t)width + step - 1) / step * step;
}

static void read_shape(hf_reader *r, hf_config *c) {
    static hf_names ffs = {"block_ff_dim",
                           "prefix_dense_intermediate_size",
                           "dense_intermediate_size",
                           "intermediate_size_mlp",
                           "intermediate_size",
                           "ffn_hidden_size",
                           "ffn_dim",
                           "moe_ffn_hidden_size"};
    static hf_names contexts = {"model_max_length", "max_position_embeddings", "n_positions",
                                "seq_length"};
    static hf_names epsilons = {"rms_norm_eps", "layer_norm_eps",    "layer_norm_epsilon",
                                "norm_epsilon", "layernorm_epsilon", "norm_eps"};
    c->n_embd = hf_int(r, (hf_names){"hidden_size", "n_embd", "n_embed"}, -1, 1, MODEL_MAX_DIM);
    /* Falcon 7B, GPT-2 and BLOOM do not give the FFN width: it is four times n_embd */
    bool four = hf_has(r, "multi_query") || c->family->flags & HF_WIDTH_FOUR;
    int32_t usual_ff = four && c->n_embd <= MODEL_MAX_DIM / 4 ? 4 * c->n_embd : -1;
    if (c->family->flags & HF_WIDTH_SEVEN_HALVES && c->n_embd <= MODEL_MAX_DIM / 7)
        usual_ff = 7 * c->n_embd / 2 / 32 * 32;
    usual_ff = hf_int(r, (hf_names){"n_inner"}, usual_ff > 0 ? usual_ff : 0, 0, MODEL_MAX_DIM);
    if (usual_ff == 0) usual_ff = -1;
    if (hf_has(r, "moe_intermediate_size")) /* only the experts' width is given */
        usual_ff = hf_int(r, (hf_names){"moe_intermediate_size"}, -1, 1, MODEL_MAX_DIM);
    bool ffn = arch_tensor_of(c->arch, ROLE_FFN_DOWN) || arch_tensor_of(c->arch, ROLE_EXPERT_DOWN);
    if (ffn) c->n_ff = hf_int(r, ffs, usual_ff, 1, MODEL_MAX_DIM);
    adjust_width(r, c);
    c->n_layer = hf_int(r, (hf_names){"num_hidden_layers", "num_layers", "n_layer"}, -1, 1,
                        MODEL_MAX_LAYERS);
    read_heads(r, c);
    if (r->status == PI_OK) read_streams(r, c);
    if (r->status != PI_OK) return;
    c->n_predictors = hf_int(r, (hf_names){"num_nextn_predict_layers"}, 0, 0, MODEL_MAX_LAYERS);
    c->n_ctx = hf_int(r, contexts, -1, 1, INT32_MAX);
    if (c->family->flags & HF_POSITIONS_AFTER_PAD) {
        c->first_position = hf_int(r, (hf_names){"pad_token_id"}, 1, 0, 1 << 16) + 1;
        if (c->n_ctx <= c->first_position)
            hf_fail(r, "max_position_embeddings", "leaves no position after pad_token_id");
        c->n_ctx -= c->first_position;
    }
    c->n_vocab = hf_int(r, (hf_names){"vocab_size"}, -1, 1, MODEL_MAX_VOCAB);
    if (arch_tensor_of(c->arch, ROLE_TOKEN_TYPES))
        c->n_token_types = hf_int(r, (hf_names){"type_vocab_size"}, 2, 1, 1 << 16);
    c->rms = c->arch->norm == NORM_RMS ||
             (c->arch->has & ARCH_NORM_EITHER && hf_has(r, "rms_norm_eps"));
    c->parallel = c->arch->parallel_by_key && hf_flag(r, (hf_names){"use_parallel_residual"}, true);
    c->norm_eps = hf_number(r, epsilons, c->arch->norm == NORM_RMS ? 1e-6 : 1e-5, 0, 1);
    if (c->arch->pos_offset > 0 &&
        hf_int(r, (hf_names){"word_embed_proj_dim"}, c->n_embd, 1, MODEL_MAX_DIM) != c->n_embd)
        hf_fail(r, "word_embed_proj_dim", "differs from hidden_size, which is not supported");
}

/* Reads the parameters of FP8 with scales, MXFP4 and NVFP4; other methods use different
 * packings. */
static void read_quantization(hf_reader *r, hf_config *c) {
    const char *name;
    const json_node *node = hf_find(r, (hf_names){"quantization_config"}, &name);
    c->fp8_block[0] = c->fp8_block[1] = FP8_BLOCK;
    if (!node || r->status != PI_OK) return;
    const char *method = hf_text(node, "quant_method");
    static const char *const known[] = {"fp8", "mxfp4", "compressed-tensors", "modelopt"};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        found |= method && strcmp(method, known[i]) == 0;
    if (!found) {
        r->status = error_set(r->err, PI_ERR_UNSUPPORTED,
                              "quantized checkpoint: %s: quantization_config has the method "
                              "'%.40s': fp8, mxfp4 and nvfp4 can be converted; otherwise "
                              "take the original in F16, BF16 or F32",
                              r->path, method ? method : "(none)");
        return;
    }
    const json_node *block = hf_get(node, "weight_block_size");
    for (size_t i = 0; i < 2 && block; i++) {
        int64_t size;
        if (!json_as_int(json_at(block, i), &size) || size < 1 || size > MODEL_MAX_DIM) {
            hf_fail(r, "weight_block_size", "is not a list of two sizes");
            return;
        }
        c->fp8_block[i] = (int32_t)size;
    }
}

pi_status hf_config_parse(const json_node *root, const char *path, const notifier *t,
                          hf_config *out, pi_error *err) {
    hf_reader r = {.root = root, .text = root, .path = path, .notifier = t, .err = err};
    *out = (hf_config){0};
    if (json_kind_of(root) != JSON_OBJECT)
        return error_set(err, PI_ERR_FORMAT, "not a JSON object: %s: download the file again",
                         path);
    read_model_type(&r, out);
    if (r.status == PI_OK) read_shape(&r, out);
    hf_recurrent_read(&r, out);
    hf_rope_read(&r, out);
    read_activation(&r, out);
    hf_window_read(&r, out);
    hf_experts_read(&r, out);
    hf_ngrams_read(&r, out);
    if (r.status == PI_OK) hf_numbers_read(&r, out);
    bool tied = hf_flag(&r, (hf_names){"tie_word_embeddings"}, false);
    out->tied = !hf_has(&r, "tie_word_embeddings") ? HF_TIED_UNSAID
                : tied                             ? HF_TIED_YES
                                                   : HF_TIED_NO;
    read_quantization(&r, out);
    return r.status;
}

/* general.name: the last component of _name_or_path if it is a name, else of the folder. */
static void choose_name(const json_node *root, const char *dir, char *name, size_t n_name) {
    const char *said = hf_text(root, "_name_or_path");
    if (said) said = file_name(said);
    if (said && *said && *said != '.') {
        snprintf(name, n_name, "%s", said);
        return;
    }
    char real[OS_PATH_MAX];
    /* also handles "." and "x/" */
    const char *last = os_path_real(dir, real) ? file_name(real) : "";
    snprintf(name, n_name, "%s", *last ? last : "model");
}

/* Reads 1_Pooling/config.json of sentence-transformers. */
static pi_status read_pooling(const char *dir, hf_config *c, pi_error *err) {
    enum { NONE, MEAN, CLS, LAST };
    static const struct {
        const char *key;
        int32_t pooling;
    } kinds[] = {{"pooling_mode_cls_token", CLS},
                 {"pooling_mode_mean_tokens", MEAN},
                 {"pooling_mode_lasttoken", LAST}};
    char path[PATH_BYTES];
    json_doc *doc = NULL;
    c->pooling = -1;
    if (!file_join(path, sizeof path, dir, "1_Pooling/config.json") || !file_exists(path))
        return PI_OK;
    pi_status status = json_parse_file(path, &doc, err);
    for (size_t i = 0; status == PI_OK && i < sizeof kinds / sizeof kinds[0]; i++) {
        bool yes = false;
        json_as_bool(json_get(json_root(doc), kinds[i].key), &yes);
        if (yes && c->pooling < 0) c->pooling = kinds[i].pooling;
    }
    json_free(doc);
    return status;
}

pi_status hf_config_read(const char *dir, const notifier *t, hf_config *out, pi_error *err) {
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
    if (status == PI_OK && out->arch->encoder) status = read_pooling(dir, out, err);
    json_free(doc);
    return status;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int32_t kv_heads(const hf_config *c, int layer) {
    if (!(c->parts[layer] & HF_ATTENDS)) return 0;
    return c->window > 0 && c->windowed[layer] ? c->n_head_kv_window : c->n_head_kv;
}

static int32_t heads(const hf_config *c, int layer) {
    bool windowed = c->window > 0 && c->windowed[layer] && c->n_head_window > 0;
    return windowed ? c->n_head_window : c->n_head;
}

static int32_t ff_width(const hf_config *c, int layer) {
    if (!(c->parts[layer] & HF_FFN)) return 0;
    return c->wide_shared && layer >= c->n_layer - c->n_kv_shared ? 2 * c->n_ff : c->n_ff;
}

uint64_t hf_config_dim(const hf_config *c, int layer, arch_dim dim) {
    if (dim == DIM_TYPES) return (uint64_t)c->n_token_types;
    bool windowed = c->window > 0 && c->windowed[layer];
    int32_t head_dim = windowed && c->head_dim_window > 0 ? c->head_dim_window : c->head_dim;
    arch_sizes sizes = {.n_embd = c->n_embd,
                        .n_vocab = c->n_vocab,
                        .n_ff = ff_width(c, layer),
                        .n_head = heads(c, layer),
                        .n_head_kv = kv_heads(c, layer),
                        .head_dim = head_dim,
                        .v_dim = c->v_dim,
                        .n_latent = c->n_latent,
                        .n_latent_q = c->n_latent_q,
                        .n_rot = c->rope.n_rot,
                        .n_rots = c->rope.n_rot,
                        .n_layer = c->n_layer,
                        .n_embd_layer = c->n_embd_layer,
                        .n_stream = c->n_stream,
                        .n_laurel = c->n_laurel,
                        .n_hyper_rank = c->n_hyper_rank,
                        .n_embd_ngram = c->ngrams.n_embd,
                        .n_ngram_taps = c->ngrams.n_taps,
                        .n_expert = c->experts.n,
                        .n_ff_expert = c->experts.n_ff,
                        .n_ff_shared = c->n_ff_shared,
                        .n_rank = c->rank,
                        .n_profiler = c->n_profiler,
                        .n_taps = c->recurrent.n_taps,
                        .n_conv = c->recurrent.n_conv,
                        .n_inner = c->recurrent.n_inner,
                        .n_ssm_head = c->recurrent.n_head,
                        .n_ssm_group = c->recurrent.n_group,
                        .n_state = c->recurrent.n_state,
                        .n_index_head = c->n_index_head,
                        .index_dim = c->index_dim,
                        .n_pos = (int64_t)c->n_ctx + c->arch->pos_offset};
    return (uint64_t)arch_dim_size(dim, &sizes);
}

const char *hf_key(char key[HF_KEY_TEXT], const hf_config *c, const char *suffix) {
    snprintf(key, HF_KEY_TEXT, "%s.%s", c->arch->name, suffix);
    return key;
}

void hf_put_u32(gguf_writer *w, const hf_config *c, const char *suffix, int32_t value) {
    char key[HF_KEY_TEXT];
    gguf_put_u32(w, hf_key(key, c, suffix), (uint32_t)value);
}

static void put_f32(gguf_writer *w, const hf_config *c, const char *suffix, double value) {
    char key[HF_KEY_TEXT];
    gguf_put_f32(w, hf_key(key, c, suffix), (float)value);
}

static void put_bool(gguf_writer *w, const hf_config *c, const char *suffix, bool value) {
    char key[HF_KEY_TEXT];
    gguf_put_bool(w, hf_key(key, c, suffix), value);
}

void hf_put_bools(gguf_writer *w, const hf_config *c, const char *suffix, const bool *values) {
    char key[HF_KEY_TEXT];
    gguf_put_array(w, hf_key(key, c, suffix), GGUF_BOOL, values, (uint64_t)c->n_layer);
}

static void put_rope(const hf_config *c, gguf_writer *w) {
    static const char *const names[] = {
        [HF_ROPE_LINEAR] = "linear", [HF_ROPE_YARN] = "yarn", [HF_ROPE_LONGROPE] = "longrope"};
    char key[HF_KEY_TEXT];
    const hf_rope *rope = &c->rope;
    if (c->arch->rope != ROPE_NONE || c->n_latent > 0)
        hf_put_u32(w, c, "rope.dimension_count", rope->n_rot);
    if (c->arch->rope == ROPE_NONE) return;
    /* For multimodal programs: which coordinate rotates which pair. */
    if (c->n_deepstack > 0) hf_put_u32(w, c, "n_deepstack_layers", c->n_deepstack);
    if (c->sections[0] > 0)
        gguf_put_array(w, hf_key(key, c, "rope.dimension_sections"), GGUF_I32, c->sections, 4);
    put_f32(w, c, "rope.freq_base", rope->theta);
    if (rope->local_theta > 0) put_f32(w, c, "rope.freq_base_swa", rope->local_theta);
    if (c->unrotated) put_bool(w, c, "rope.scaling.finetuned", false);
    if (c->head_dim_window > 0) hf_put_u32(w, c, "rope.dimension_count_swa", c->head_dim_window);
    if (rope->kind == HF_ROPE_DEFAULT || rope->kind == HF_ROPE_LLAMA3 ||
        rope->kind == HF_ROPE_PROPORTIONAL)
        return;
    gguf_put_string(w, hf_key(key, c, "rope.scaling.type"), names[rope->kind]);
    if (rope->kind != HF_ROPE_LINEAR)
        hf_put_u32(w, c, "rope.scaling.original_context_length", rope->orig_ctx);
    if (rope->kind != HF_ROPE_LONGROPE) put_f32(w, c, "rope.scaling.factor", rope->factor);
    if (rope->attn_factor != 1) put_f32(w, c, "rope.scaling.attn_factor", rope->attn_factor);
    if (rope->kind != HF_ROPE_YARN) return;
    if (rope->multiplier > 0) put_f32(w, c, "rope.scaling.yarn_log_multiplier", rope->multiplier);
    put_f32(w, c, "rope.scaling.yarn_beta_fast", rope->beta_fast);
    put_f32(w, c, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

/* The cache has one head, which includes the values. */
static void put_latents(const hf_config *c, gguf_writer *w) {
    if (c->n_latent_q > 0) hf_put_u32(w, c, "attention.q_lora_rank", c->n_latent_q);
    hf_put_u32(w, c, "attention.kv_lora_rank", c->n_latent);
    hf_put_u32(w, c, "attention.key_length", c->n_latent + c->rope.n_rot);
    hf_put_u32(w, c, "attention.value_length", c->n_latent);
    hf_put_u32(w, c, "attention.key_length_mla", c->head_dim);
    hf_put_u32(w, c, "attention.value_length_mla", c->v_dim);
}

/* Writes the window pattern where it differs from the architecture's default. */
static void put_window(const hf_config *c, gguf_writer *w) {
    if (c->window == 0) return;
    hf_put_u32(w, c, "attention.sliding_window", c->window);
    /* readers of such models expect the list */
    bool usual = c->head_dim_window == 0 && !c->arch->rot_half;
    for (int i = 0; i < c->n_layer; i++)
        usual &= c->windowed[i] == arch_has_window(c->arch, c->arch->window_period, i);
    if (!usual) hf_put_bools(w, c, "attention.sliding_window_pattern", c->windowed);
}

/* Writes one number where all layers have the same value. */
static void put_by_layer(const hf_config *c, gguf_writer *w, const char *suffix,
                         int32_t (*number)(const hf_config *c, int layer)) {
    char key[HF_KEY_TEXT];
    uint32_t list[MODEL_MAX_LAYERS];
    bool same = true;
    for (int i = 0; i < c->n_layer; i++) {
        list[i] = (uint32_t)number(c, i);
        same &= list[i] == list[0];
    }
    if (same)
        hf_put_u32(w, c, suffix, number(c, 0));
    else
        gguf_put_array(w, hf_key(key, c, suffix), GGUF_U32, list, (uint64_t)c->n_layer);
}

static void put_indexer(const hf_config *c, gguf_writer *w) {
    if (c->n_index_head == 0) return;
    hf_put_u32(w, c, "attention.indexer.head_count", c->n_index_head);
    hf_put_u32(w, c, "attention.indexer.key_length", c->index_dim);
    hf_put_u32(w, c, "attention.indexer.top_k", c->n_index_blocks);
    if (c->index_types) hf_put_bools(w, c, "attention.indexer.types", c->index_own);
    char key[HF_KEY_TEXT];
    int32_t ratios[MODEL_MAX_LAYERS];
    for (int i = 0; i < c->n_layer; i++) ratios[i] = c->index_own[i] ? c->index_ratio : 0;
    if (c->index_ratio > 0)
        gguf_put_array(w, hf_key(key, c, "attention.compress_ratios"), GGUF_I32, ratios,
                       (uint64_t)c->n_layer);
    if (c->index_block == 0) return;
    hf_put_u32(w, c, "attention.indexer.block_size", c->index_block);
    hf_put_u32(w, c, "attention.indexer.local_blocks", c->n_index_local);
}

static void put_streams(const hf_config *c, gguf_writer *w) {
    char key[HF_KEY_TEXT];
    if (!arch_tensor_of(c->arch, ROLE_STREAM_PROJ)) return;
    hf_put_u32(w, c, "altup.num_inputs", c->n_stream);
    hf_put_u32(w, c, "altup.active_idx", 0);
    hf_put_u32(w, c, "attention.shared_kv_layers", c->n_kv_shared);
    hf_put_u32(w, c, "embedding_length_per_layer_input", c->n_embd_layer);
    gguf_put_array(w, hf_key(key, c, "activation_sparsity_scale"), GGUF_F32, c->cutoffs,
                   (uint64_t)c->n_layer);
}

static void put_experts(const hf_config *c, gguf_writer *w) {
    const hf_experts *e = &c->experts;
    if (e->n == 0) return;
    hf_put_u32(w, c, "expert_count", e->n);
    hf_put_u32(w, c, "expert_used_count", e->n_used);
    hf_put_u32(w, c, "expert_feed_forward_length", e->n_ff);
    if (c->n_ff_shared > 0) hf_put_u32(w, c, "expert_shared_feed_forward_length", c->n_ff_shared);
    if (e->n_shared > 0) hf_put_u32(w, c, "expert_shared_count", e->n_shared);
    hf_put_u32(w, c, "leading_dense_block_count", c->n_dense_first);
    if (e->spacing > 0) hf_put_u32(w, c, "interleave_moe_layer_step", e->spacing);
    if (e->n_group > 1) {
        hf_put_u32(w, c, "expert_group_count", e->n_group);
        hf_put_u32(w, c, "expert_group_used_count", e->n_group_used);
    }
    expert_gating gating = e->gating == GATING_NONE ? c->arch->gating : e->gating;
    hf_put_u32(w, c, "expert_gating_func", (int32_t)gating);
    put_bool(w, c, "expert_weights_norm", e->norm);
    if (e->scale != 1) put_f32(w, c, "expert_weights_scale", e->scale);
}

void hf_config_put(const hf_config *c, gguf_writer *w) {
    char key[HF_KEY_TEXT];
    gguf_put_string(w, "general.architecture", c->arch->name);
    gguf_put_string(w, "general.name", c->name);
    hf_put_u32(w, c, "context_length", c->n_ctx);
    hf_put_u32(w, c, "embedding_length", c->n_embd);
    hf_put_u32(w, c, "block_count", c->n_layer);
    put_by_layer(c, w, "feed_forward_length", ff_width);
    put_by_layer(c, w, "attention.head_count", heads);
    put_by_layer(c, w, "attention.head_count_kv", kv_heads);
    if (c->n_latent > 0) {
        put_latents(c, w);
    } else if (c->n_head > 0 &&
               (c->head_dim_window > 0 || c->v_dim > 0 || c->head_dim * c->n_head != c->n_embd)) {
        hf_put_u32(w, c, "attention.key_length", c->head_dim);
        hf_put_u32(w, c, "attention.value_length", c->v_dim > 0 ? c->v_dim : c->head_dim);
    }
    if (c->head_dim_window > 0) {
        hf_put_u32(w, c, "attention.key_length_swa", c->head_dim_window);
        hf_put_u32(w, c, "attention.value_length_swa", c->head_dim_window);
        hf_put_u32(w, c, "attention.shared_kv_layers", c->n_kv_shared);
        hf_put_u32(w, c, "embedding_length_per_layer_input", c->n_embd_layer);
    }
    if (c->recurrent.least_decay < 0)
        put_f32(w, c, "kda.gate_lower_bound", c->recurrent.least_decay);
    put_f32(w, c, c->rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
            c->norm_eps);
    if (c->arch->encoder) put_bool(w, c, "attention.causal", false);
    if (c->arch->encoder && c->pooling >= 0) hf_put_u32(w, c, "pooling_type", c->pooling);
    if (c->n_token_types > 0)
        gguf_put_u32(w, "tokenizer.ggml.token_type_count", (uint32_t)c->n_token_types);
    if (c->arch->parallel_by_key) put_bool(w, c, "use_parallel_residual", c->parallel);
    hf_put_u32(w, c, "vocab_size", c->n_vocab);
    put_rope(c, w);
    put_window(c, w);
    put_streams(c, w);
    put_experts(c, w);
    hf_recurrent_put(c, w);
    hf_ngrams_put(c, w);
    put_indexer(c, w);
    for (int i = 0; i < c->n_numbers; i++) put_f32(w, c, c->numbers[i].suffix, c->numbers[i].value);
    if (c->activation != c->arch->default_activation)
        gguf_put_string(w, hf_key(key, c, "hidden_activation"), activation_name(c->activation));
    if (c->has_threshold) put_f32(w, c, "hidden_activation_threshold", c->threshold);
    const uint64_t n_layer = (uint64_t)c->n_layer;
    for (int i = 0; i < 2 && c->clamped; i++)
        gguf_put_array(w, hf_key(key, c, i ? "swiglu_clamp_shexp" : "swiglu_clamp_exp"), GGUF_F32,
                       c->clamps[i], n_layer);
    static const char *const xielu[HF_XIELU] = {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta",
                                                "xielu.eps"};
    for (int i = 0; i < HF_XIELU && c->arch->xielu; i++)
        gguf_put_array(w, xielu[i], GGUF_F32, c->xielu[i], n_layer);
}
