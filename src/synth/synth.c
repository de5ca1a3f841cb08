/* synth.c: pi_synth: writes a model of a named shape with random weights and planted sparsity.
 *
 * The header comes from the architecture's row. Tensors are made one after the other, in blocks of
 * rows: workers make and quantize rows in a buffer, the calling thread writes it. A few blocks of
 * memory are enough for any model. The bytes depend on the options, not on the number of threads.
 *
 * A prepared file has the network of the plain file with the hottest neurons first and `down`
 * transposed. It also has frequencies, the order and a predictor, which are known from the recipe
 * instead of measured. In a bundled file the rows of gate, up and down are next to each other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "cpu_topology.h"
#include "gguf_writer.h"
#include "mem.h"
#include "model_drafter.h"
#include "pool.h"
#include "powerinfer_speculate.h"
#include "powerinfer_tools.h"
#include "progress.h"
#include "sparse_keys.h"
#include "synth.h"

enum {
    BLOCK_BYTES = 4 << 20, /* of quantized rows: for large writes a call costs nothing */
    ROWS_AT_ONCE = 4,      /* rows that a worker takes: enough to make the counter free */
    NAME_BYTES = 128,
    PREDICTOR_RANK_STEP = 32, /* in the file format */
    LAYERS_MAX = 256,         /* of any shape including heads, at most */
    HYPER_ROUNDS = 20,        /* DeepSeek-V4's */
    RESIDUALS_KEPT = 12       /* Kimi-K3 keeps its residual stream after so many layers */
};

static const float NORM_EPS = 1e-5f, ROPE_BASE = 10000.0f, HYPER_EPS = 1e-6f;
/* Contribution recall of the predictor of a prepared model; also the default of `prepare`. */
static const double RECALL = 0.98;

typedef struct synth_job {
    const pi_synth_options *options;
    synth_recipe recipe;
    synth_shape shape;              /* of the file */
    const quant_traits *traits;     /* of matrices */
    const quant_traits *fc2_traits; /* of the predictor's fc2, whose rows may be short */
    bundle_kind kind;               /* of bundles */
    bundle_layout bundle;           /* stride 0: nothing is bundled */
    int32_t layer;                  /* layer of the recipe; -1: none yet */
    gguf_writer *writer;
    pool *pool;
    progress progress;
    uint64_t n_bytes, n_done; /* of all tensors */
    uint8_t *block;           /* [BLOCK_BYTES or one row] */
    float *rows;              /* [threads][widest n_in] */
    uint64_t n_in_max;
} synth_job;

/* One block of rows, for the workers. */
typedef struct synth_block {
    const synth_job *job;
    const arch_tensor *tensor;
    int32_t layer;
    const quant_traits *traits;
    uint64_t n_in, first, n_rows;
    size_t row_bytes;
} synth_block;

pi_synth_options pi_synth_default_options(void) {
    return (pi_synth_options){
        .shape = "tiny",
        .type = "q4_0",
        .density = 0.1f,
        .skew_share = 0.26f,
        .skew_mass = 0.8f,
        .rank = 256,
    };
}

/* ---- options --------------------------------------------------------------------------------- */

/* All layers have equal sizes. */
static pi_status lay_out_bundles(synth_job *job, pi_error *err) {
    const synth_recipe *r = &job->recipe;
    const quant_traits *traits[BUNDLE_PARTS] = {NULL};
    job->kind = r->shape->n_expert > 0 ? BUNDLE_EXPERTS : BUNDLE_NEURONS;
    if (!job->options->bundle) return PI_OK;
    for (int i = 0; i < BUNDLE_PARTS && bundle_part_key(job->kind, i); i++) {
        const arch_tensor *t = arch_tensor_of(r->arch, bundle_part_role(job->kind, i));
        if (t && synth_has_tensor(r->shape, t, r->shape->n_dense, true)) traits[i] = job->traits;
    }
    const int32_t n_in = synth_shape_expert_embd(r->shape);
    if (bundle_lay_out(job->kind, traits, n_in, r->shape->n_ff, &job->bundle)) return PI_OK;
    return error_set(err, PI_ERR_ARG, "rows of %d elements are not a multiple of %s blocks", n_in,
                     job->traits->name);
}

static pi_status check_options(synth_job *job, pi_error *err) {
    const pi_synth_options *o = job->options;
    synth_recipe *r = &job->recipe;
    if (!o->shape || !(r->shape = synth_shape_find(o->shape))) {
        return error_set(err, PI_ERR_ARG, "shape '%.64s' cannot be written: choose one of %s",
                         o->shape ? o->shape : "", synth_shape_names());
    }
    job->traits = o->type ? quant_find_name(o->type) : NULL;
    if (!job->traits) {
        return error_set(err, PI_ERR_ARG, "unknown tensor type '%.64s'", o->type ? o->type : "");
    }
    if (!job->traits->quantize) {
        return error_set(err, PI_ERR_ARG, "weights cannot be written as %s", job->traits->name);
    }
    if (o->n_layer < 0 || o->n_layer > r->shape->n_layer) {
        return error_set(err, PI_ERR_ARG, "%d layers: shape %s has 1 to %d", o->n_layer,
                         r->shape->name, r->shape->n_layer);
    }
    if (o->rank < 1 || o->rank > r->shape->n_embd) {
        return error_set(err, PI_ERR_ARG, "rank %d: shape %s has ranks from 1 to %d", o->rank,
                         r->shape->name, r->shape->n_embd);
    }
    if (!o->plain && o->rank % PREDICTOR_RANK_STEP != 0) {
        return error_set(
            err, PI_ERR_ARG,
            "rank %d: a predictor's rank must be a multiple of %d; a plain file has none", o->rank,
            PREDICTOR_RANK_STEP);
    }
    if (!o->plain && r->shape->n_stream > 0) {
        return error_set(
            err, PI_ERR_ARG,
            "shape %s: several residual streams cannot be prepared: write a plain file",
            r->shape->name);
    }
    if (o->n_mtp < 0 || o->n_mtp > PI_DRAFT_HEADS)
        return error_set(err, PI_ERR_ARG, "out of range: %d heads that draft: at most %d", o->n_mtp,
                         PI_DRAFT_HEADS);
    if (o->n_mtp > 0 && r->shape->period > 0) {
        return error_set(err, PI_ERR_ARG, "shape %s: there are no heads that draft for it",
                         r->shape->name);
    }
    if (o->bundle && o->plain) {
        return error_set(err, PI_ERR_ARG,
                         "no bundles: a plain file has its matrices as other programs read them");
    }
    if (!(o->down_density >= 0) || o->down_density > o->density)
        return error_set(err, PI_ERR_ARG, "down density %g: choose 0 to the density, %g",
                         (double)o->down_density, (double)o->density);
    r->n_layer = o->n_layer ? o->n_layer : r->shape->n_layer;
    r->n_draft = o->n_mtp;
    job->shape = *r->shape;
    job->shape.n_main = r->n_layer;
    r->shape = &job->shape;
    r->rank = o->rank;
    r->seed = o->seed;
    r->prepared = !o->plain;
    job->layer = -1;
    r->arch = arch_find(r->shape->arch, strlen(r->shape->arch));
    if (!r->arch) {
        return error_set(err, PI_ERR_UNSUPPORTED, "architecture %s is not built in",
                         r->shape->arch);
    }
    bool gated = r->shape->n_expert == 0 && arch_tensor_of(r->arch, ROLE_FFN_GATE);
    if (o->down_density > 0 && (o->plain || !gated))
        return error_set(err, PI_ERR_ARG, "no thresholds: %s has %s", r->shape->name,
                         gated ? "none in a plain file" : "no gates outside experts");
    pi_status status = lay_out_bundles(job, err);
    if (status) return status;
    return synth_profiles_solve(r->shape, o, &r->profile, &r->router_profile, err);
}

/* ---- header ---------------------------------------------------------------------------------- */

static const char *arch_key(const synth_job *job, const char *key, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, "%s.%s", job->recipe.arch->name, key);
    return name;
}

/* One item per layer, all equal. */
static void put_layers(synth_job *job, const char *key, double value, const char *text) {
    float numbers[LAYERS_MAX];
    gguf_string texts[LAYERS_MAX];
    uint64_t n = (uint64_t)job->recipe.n_layer;
    for (uint64_t i = 0; i < n; i++) {
        numbers[i] = (float)value;
        if (text) texts[i] = (gguf_string){.data = text, .n_bytes = strlen(text)};
    }
    if (text)
        gguf_put_strings(job->writer, key, texts, n);
    else
        gguf_put_array(job->writer, key, GGUF_F32, numbers, n);
}

/* Includes leading layers without experts. */
static void put_bundle_keys(synth_job *job) {
    gguf_put_u32(job->writer, GGUF_KEY_ALIGNMENT, BUNDLE_FILE_ALIGN);
    for (int i = 0; i < BUNDLE_PARTS && bundle_part_key(job->kind, i); i++) {
        bool there = job->bundle.part[i].n_bytes > 0;
        put_layers(job, bundle_part_key(job->kind, i), 0, there ? job->traits->name : "none");
    }
    if (job->kind == BUNDLE_EXPERTS)
        put_layers(job, SPARSE_KEY_BUNDLE_EXPERT_FF, job->recipe.shape->n_ff, NULL);
}

/* relu has zeros: the first threshold is 0. */
static void put_thresholds(synth_job *job) {
    const pi_synth_options *o = job->options;
    bool none = o->down_density == 0;
    put_layers(job, SPARSE_KEY_THRESHOLD_CUT, none ? (double)NAN : 0, NULL);
    gguf_put_f32(job->writer, SPARSE_KEY_THRESHOLD_LOSS, none ? NAN : 0);
    if (none) return;
    double cut = synth_cut_down(&job->recipe.profile, (double)o->down_density);
    put_layers(job, SPARSE_KEY_THRESHOLD_DOWN, cut, NULL);
    put_layers(job, SPARSE_KEY_THRESHOLD_UP_ROWS, (double)o->density, NULL);
    put_layers(job, SPARSE_KEY_THRESHOLD_DOWN_ROWS, (double)o->down_density, NULL);
}

/* No calibration text, hence no checksum. Random weights have no perplexity to lose: a loss of 0
 * lets mode `auto` use the predictor. */
static void put_prepared_keys(synth_job *job) {
    const synth_predictor *p = &job->recipe.predictor;
    bool experts = job->recipe.shape->n_expert > 0;
    gguf_put_u32(job->writer, SPARSE_KEY_VERSION, SPARSE_VERSION);
    gguf_put_u32(job->writer, SPARSE_KEY_CALIBRATION_TOKENS, 0);
    gguf_put_f32(job->writer, SPARSE_KEY_CALIBRATION_LOSS, 0);
    if (synth_experts_have_zeros(job->recipe.shape))
        put_layers(job, SPARSE_KEY_SOURCE_DOWN_TYPE, 0, job->traits->name);
    if (job->bundle.stride) put_bundle_keys(job);
    if (experts) return; /* they have no predictors */
    put_layers(job, SPARSE_KEY_PREDICTOR_KIND, 0, "lowrank");
    put_layers(job, SPARSE_KEY_PREDICTOR_INPUT, 0, "normed");
    put_layers(job, SPARSE_KEY_PREDICTOR_RECALL, p->recall, NULL);
    put_layers(job, SPARSE_KEY_PREDICTOR_DENSITY, p->density, NULL);
    put_thresholds(job);
    put_layers(job, SPARSE_KEY_SOURCE_DOWN_TYPE, 0, job->traits->name);
}

static void put_compressed_keys(synth_job *job) {
    int32_t ratios[LAYERS_MAX], n = job->recipe.n_layer + job->recipe.n_draft;
    float clamps[LAYERS_MAX];
    char text[NAME_BYTES];
    for (int32_t i = 0; i < n; i++) {
        ratios[i] = synth_shape_ratio(job->recipe.shape, i);
        clamps[i] = 10;
    }
    gguf_put_array(job->writer, arch_key(job, "attention.compress_ratios", text), GGUF_I32, ratios,
                   (uint64_t)n);
    gguf_put_f32(job->writer, arch_key(job, "attention.compress_rope_freq_base", text), 160000);
    gguf_put_f32(job->writer, arch_key(job, "hyper_connection.epsilon", text), HYPER_EPS);
    gguf_put_f32(job->writer, arch_key(job, "expert_weights_scale", text), 1.5f);
    gguf_put_bool(job->writer, arch_key(job, "expert_weights_norm", text), true);
    gguf_put_array(job->writer, arch_key(job, "swiglu_clamp_exp", text), GGUF_F32, clamps,
                   (uint64_t)n);
}

static void put_qwen4_keys(synth_job *job) {
    const synth_shape *s = job->recipe.shape;
    const uint64_t multipliers[] = {23703573157769, 20109073645365, 8052911324071}; /* odd */
    enum { NGRAM = sizeof multipliers / sizeof *multipliers, MAX_PARTS = 64 };
    uint64_t first[MAX_PARTS], rows[MAX_PARTS];
    int32_t ratios[LAYERS_MAX], n = job->recipe.n_layer;
    const int32_t pairs = synth_shape_rot(s) / 2, third = (pairs + 2) / 3;
    const int32_t sections[] = {third, third, pairs - 2 * third, 0};
    const uint32_t ngram_layer = 1;
    char text[NAME_BYTES];
    const struct {
        const char *key;
        int32_t value;
    } numbers[] = {
        {"ssm.inner_size", s->n_ssm_head * s->n_state},
        {"ssm.state_size", s->n_state},
        {"ssm.time_step_rank", s->n_ssm_head},
        {"ssm.group_count", s->n_ssm_group},
        {"full_attention_interval", s->period},
        {"hyper_connection.low_rank", s->n_gate_rank},
        {"expert_shared_feed_forward_length", s->n_ff},
        {"embedding_length_per_layer_input", s->n_embd / s->n_part},
        {"ple.ngram_size", NGRAM},
        {"ple.heads_per_ngram", s->n_part / (NGRAM - 1)},
        {"ple.conv_kernel", s->n_taps},
        {"ple.eos_token_id", s->n_vocab - 1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gguf_put_u32(job->writer, arch_key(job, numbers[i].key, text), (uint32_t)numbers[i].value);
    for (int32_t i = 0; i < n; i++) ratios[i] = synth_shape_ratio(s, i);
    for (int32_t i = 0; i < s->n_part; i++) {
        rows[i] = (uint64_t)s->n_part_rows;
        first[i] = (uint64_t)i * rows[i];
    }
    gguf_put_array(job->writer, arch_key(job, "attention.compress_ratios", text), GGUF_I32, ratios,
                   (uint64_t)n);
    gguf_put_array(job->writer, arch_key(job, "rope.dimension_sections", text), GGUF_I32, sections,
                   4);
    gguf_put_array(job->writer, arch_key(job, "ple.layers", text), GGUF_U32, &ngram_layer, 1);
    gguf_put_array(job->writer, arch_key(job, "ple.layer_multipliers", text), GGUF_U64, multipliers,
                   NGRAM);
    gguf_put_array(job->writer, arch_key(job, "ple.head_offsets", text), GGUF_U64, first,
                   (uint64_t)s->n_part);
    gguf_put_array(job->writer, arch_key(job, "ple.head_vocab_sizes", text), GGUF_U64, rows,
                   (uint64_t)s->n_part);
}

static void put_kda_keys(synth_job *job) {
    const synth_shape *s = job->recipe.shape;
    uint32_t heads[LAYERS_MAX];
    char text[NAME_BYTES];
    for (int32_t i = 0; i < job->recipe.n_layer; i++)
        heads[i] = synth_shape_attends(s, i) ? (uint32_t)s->n_head_kv : 0;
    gguf_put_array(job->writer, arch_key(job, "attention.head_count_kv", text), GGUF_U32, heads,
                   (uint64_t)job->recipe.n_layer);
    gguf_put_f32(job->writer, arch_key(job, "kda.gate_lower_bound", text), -5);
    gguf_put_f32(job->writer, arch_key(job, "activation.situ_beta", text), 4);
    gguf_put_f32(job->writer, arch_key(job, "activation.situ_linear_beta", text), 25);
    gguf_put_bool(job->writer, arch_key(job, "expert_weights_norm", text), true);
}

static void put_keys(synth_job *job) {
    const synth_shape *s = job->recipe.shape;
    gguf_writer *w = job->writer;
    char text[NAME_BYTES];
    bool latent = s->n_latent > 0, qwen4 = s->n_gate_rank > 0, kda = s->period > 0 && !qwen4;
    const struct {
        const char *key;
        int32_t value;
    } numbers[] = {
        {"vocab_size", s->n_vocab},
        {"context_length", s->n_ctx},
        {"embedding_length", s->n_embd},
        {"block_count", job->recipe.n_layer + job->recipe.n_draft},
        {"nextn_predict_layers", job->recipe.n_draft},
        {"feed_forward_length", s->n_ff_dense ? s->n_ff_dense : s->n_ff},
        {"attention.head_count", s->n_head},
        {"attention.head_count_kv", kda ? 0 : s->n_head_kv},
        {"attention.key_length", latent ? s->n_latent + s->n_rot : s->head_dim},
        {"attention.value_length", latent ? s->n_latent : s->head_dim},
        {"attention.key_length_mla", latent ? s->head_dim : 0},
        {"attention.value_length_mla", s->v_dim},
        {"attention.kv_lora_rank", s->n_latent},
        {"attention.q_lora_rank", s->n_latent_q},
        {"attention.indexer.head_count", s->n_index_head},
        {"attention.indexer.key_length", s->index_dim},
        {"attention.indexer.top_k", s->index_top},
        {"attention.sliding_window", s->window},
        {"attention.output_group_count", s->n_out_group},
        {"attention.output_lora_rank", s->n_out_rank},
        {"hyper_connection.count", s->n_stream},
        {"hyper_connection.sinkhorn_iterations", s->n_out_group > 0 ? HYPER_ROUNDS : 0},
        {"hash_layer_count", s->n_hash},
        {"kda.head_dim", kda ? s->n_state : 0},
        {"ssm.conv_kernel", s->n_taps},
        {"attn_res.block_size", kda ? RESIDUALS_KEPT : 0},
        {"expert_latent_length", s->n_expert_embd},
        {"expert_count", s->n_expert},
        {"expert_used_count", s->n_expert_used},
        {"expert_shared_count", qwen4 ? 0 : s->n_expert_shared},
        {"leading_dense_block_count", s->n_dense},
        {"expert_feed_forward_length", s->n_expert ? s->n_ff : 0},
        {"expert_gating_func", s->n_expert ? (int32_t)job->recipe.arch->gating : 0},
    };
    gguf_put_string(w, "general.architecture", job->recipe.arch->name);
    snprintf(text, sizeof text, "synthetic %s", s->name);
    gguf_put_string(w, "general.name", text);
    gguf_put_u32(w, "general.file_type", (uint32_t)job->traits->file_type);
    if (job->traits->is_quantized) gguf_put_u32(w, "general.quantization_version", 2);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value > 0)
            gguf_put_u32(w, arch_key(job, numbers[i].key, text), (uint32_t)numbers[i].value);
    }
    if (s->n_out_group > 0) put_compressed_keys(job);
    if (kda) put_kda_keys(job);
    if (qwen4) put_qwen4_keys(job);
    bool rms = job->recipe.arch->norm == NORM_RMS;
    const char *eps = rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    gguf_put_f32(w, arch_key(job, eps, text), NORM_EPS);
    if (job->recipe.arch->rope != ROPE_NONE || latent)
        gguf_put_u32(w, arch_key(job, "rope.dimension_count", text), (uint32_t)synth_shape_rot(s));
    if (job->recipe.arch->rope != ROPE_NONE) {
        gguf_put_f32(w, arch_key(job, "rope.freq_base", text), ROPE_BASE);
    }
    gguf_put_string(w, arch_key(job, "hidden_activation", text), activation_name(s->activation));
    gguf_put_string(w, "tokenizer.ggml.model", "none");
    if (job->recipe.prepared) put_prepared_keys(job);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const quant_traits *traits_of(const synth_job *job, const arch_tensor *t) {
    if (t->role == bundle_role(job->kind)) return quant_find(QUANT_I8);
    if (t->flags & TENSOR_RAW) return quant_find(QUANT_I32); /* the order */
    if (t->flags & TENSOR_F32) return quant_find(QUANT_F32);
    return t->role == ROLE_FC2 ? job->fc2_traits : job->traits;
}

static uint64_t dim_of(const synth_job *job, arch_dim dim, int32_t layer) {
    const synth_recipe *r = &job->recipe;
    if (dim == DIM_RANK) return (uint64_t)r->rank;
    if (dim == DIM_BUNDLE) return job->bundle.stride;
    if (dim == DIM_POS) return (uint64_t)(r->shape->n_ctx + r->arch->pos_offset);
    return synth_shape_dim(r->shape, dim, layer);
}

/* Draft layers have the tensors of a plain file. */
static bool is_written(const synth_job *job, const arch_tensor *t, int32_t layer) {
    bool plain = !job->recipe.prepared || layer >= job->recipe.n_layer;
    bool bundled = !plain && job->bundle.stride > 0;
    if (t->role == bundle_role(job->kind))
        return bundled && (job->kind == BUNDLE_NEURONS || layer >= job->recipe.shape->n_dense);
    if (t->role == ROLE_FFN_BUNDLE || t->role == ROLE_EXPERT_BUNDLE) return false;
    for (int i = 0; i < BUNDLE_PARTS; i++)
        if (bundled && job->bundle.part[i].n_bytes > 0 && job->bundle.part[i].role == t->role)
            return false;
    return synth_has_tensor(job->recipe.shape, t, layer, !plain);
}

typedef pi_status (*tensor_fn)(synth_job *job, const arch_tensor *t, int32_t layer, pi_error *err);

/* Calls fn for the tensors that a draft layer has in addition to those of a layer. */
static pi_status for_each_of_draft(synth_job *job, tensor_fn fn, int32_t layer, pi_error *err) {
    int n;
    const arch_tensor *t = model_nextn_tensors(&n);
    pi_status status = PI_OK;
    for (int i = 0; i < n && !status; i++)
        if (!(t[i].flags & TENSOR_OPTIONAL)) status = fn(job, &t[i], layer, err);
    return status;
}

/* All tensors in the order of the file: tensors before the layers, layers, tensors after them. */
static pi_status for_each_tensor(synth_job *job, tensor_fn fn, pi_error *err) {
    int32_t n_layer = job->recipe.n_layer + job->recipe.n_draft;
    for (int32_t layer = -1; layer <= n_layer; layer++) {
        bool inside = layer >= 0 && layer < n_layer;
        for (int i = 0; i < job->recipe.arch->n_tensors; i++) {
            const arch_tensor *t = &job->recipe.arch->tensors[i];
            bool per_layer = t->flags & TENSOR_PER_LAYER;
            bool first = t->role == ROLE_TOKEN_EMBD || t->role == ROLE_POS_EMBD;
            if (!is_written(job, t, layer) || per_layer != inside ||
                (!inside && first != (layer < 0)))
                continue;
            /* a head that drafts does not change the tensors after it */
            bool last = layer == n_layer;
            pi_status status = fn(job, t, last ? job->recipe.n_layer : layer, err);
            if (status) return status;
        }
        if (!inside || layer < job->recipe.n_layer) continue;
        pi_status status = for_each_of_draft(job, fn, layer, err);
        if (status) return status;
    }
    return PI_OK;
}

static pi_status declare_tensor(synth_job *job, const arch_tensor *t, int32_t layer,
                                pi_error *err) {
    char name[GGUF_MAX_NAME];
    arch_tensor_name(t, layer, name);
    uint64_t dims[3];
    for (int i = 0; i < 3; i++) dims[i] = dim_of(job, t->dims[i], layer);
    int n_dims = t->dims[1] == DIM_NONE ? 1 : t->dims[2] == DIM_NONE ? 2 : 3;
    const quant_traits *traits = traits_of(job, t);
    pi_status status = gguf_add_tensor(job->writer, name, traits->type, n_dims, dims, err);
    size_t row_bytes = 0;
    if (!status && quant_row_bytes(traits->type, dims[0], &row_bytes)) {
        job->n_bytes += row_bytes * dims[1] * dims[2];
    }
    bool bundle = t->role == ROLE_EXPERT_BUNDLE; /* written row by row from its parts */
    if (dims[0] > job->n_in_max && !bundle) job->n_in_max = dims[0];
    return status;
}

/* One neuron's bundle. row: [n_embd] floats to work in. */
static void make_bundle(const synth_block *b, uint64_t neuron, float *row, uint8_t *out) {
    const synth_job *job = b->job;
    uint64_t n_embd = (uint64_t)job->recipe.shape->n_embd;
    memset(out, 0, job->bundle.stride);
    for (int i = 0; i < BUNDLE_PARTS; i++) {
        const bundle_part *part = &job->bundle.part[i];
        if (part->n_bytes == 0) continue;
        synth_make_row(&job->recipe, part->role, b->layer, neuron, n_embd, row);
        job->traits->quantize(row, out + part->at, (int64_t)n_embd, NULL);
    }
}

static void make_block(void *arg, int ith, int nth) {
    (void)nth;
    const synth_block *b = arg;
    const synth_job *job = b->job;
    float *row = job->rows + (uint64_t)ith * job->n_in_max;
    for (;;) {
        uint64_t at = (uint64_t)pool_take(job->pool, ROWS_AT_ONCE);
        if (at >= b->n_rows) break;
        uint64_t end = at + ROWS_AT_ONCE < b->n_rows ? at + ROWS_AT_ONCE : b->n_rows;
        for (; at < end; at++) {
            uint8_t *out = job->block + at * b->row_bytes;
            if (b->tensor->role == ROLE_FFN_BUNDLE) {
                make_bundle(b, b->first + at, row, out);
                continue;
            }
            if (b->tensor->role == ROLE_ROUTER_TABLE) {
                synth_make_choices(&job->recipe, b->layer, b->first + at, (int32_t *)out);
                continue;
            }
            if (b->tensor->flags & TENSOR_RAW) {
                bool experts = b->tensor->role == ROLE_EXPERT_PERM;
                memcpy(out, experts ? job->recipe.expert_order : job->recipe.order, b->row_bytes);
                continue;
            }
            synth_make_row(&job->recipe, b->tensor->role, b->layer, b->first + at, b->n_in, row);
            b->traits->quantize(row, out, (int64_t)b->n_in, NULL);
        }
    }
}

/* Rows [first, end) of a tensor. */
static pi_status write_rows(synth_job *job, const arch_tensor *t, int32_t layer, uint64_t first,
                            uint64_t end, pi_error *err) {
    synth_block b = {.job = job, .tensor = t, .layer = layer, .traits = traits_of(job, t)};
    b.n_in = dim_of(job, t->dims[0], layer);
    if (!quant_row_bytes(b.traits->type, b.n_in, &b.row_bytes)) {
        return error_set(err, PI_ERR_ARG, "rows of %llu elements are not a multiple of %s blocks",
                         (unsigned long long)b.n_in, b.traits->name);
    }
    if (t->flags & TENSOR_PER_LAYER && layer != job->layer) {
        synth_recipe_set_layer(&job->recipe, layer);
        job->layer = layer;
    }
    uint64_t rows_per_block = b.row_bytes < BLOCK_BYTES ? BLOCK_BYTES / b.row_bytes : 1;
    for (b.first = first; b.first < end; b.first += b.n_rows) {
        uint64_t left = end - b.first;
        b.n_rows = left < rows_per_block ? left : rows_per_block;
        pool_run(job->pool, pool_size(job->pool), make_block, &b);
        size_t n_bytes = b.n_rows * b.row_bytes;
        pi_status status = gguf_write_data(job->writer, job->block, n_bytes, err);
        if (status) return status;
        job->n_done += n_bytes;
        if (!progress_step(&job->progress, "writing weights",
                           (double)job->n_done / (double)job->n_bytes)) {
            return error_set(err, PI_ERR_CANCELLED, "cancelled: no file was written");
        }
    }
    return PI_OK;
}

static pi_status write_expert(synth_job *job, int32_t layer, uint64_t expert, pi_error *err) {
    static const uint8_t zeros[BUNDLE_FILE_ALIGN];
    size_t at = 0;
    pi_status status = PI_OK;
    for (int i = 0; i < BUNDLE_PARTS && !status; i++) {
        const bundle_part *part = &job->bundle.part[i];
        uint64_t first = expert * (uint64_t)part->n_rows;
        if (part->n_bytes == 0) continue;
        status = gguf_write_data(job->writer, zeros, part->at - at, err);
        if (!status)
            status = write_rows(job, arch_tensor_of(job->recipe.arch, part->role), layer, first,
                                first + (uint64_t)part->n_rows, err);
        at = part->at + part->n_bytes;
    }
    return status ? status : gguf_write_data(job->writer, zeros, job->bundle.stride - at, err);
}

static pi_status write_tensor(synth_job *job, const arch_tensor *t, int32_t layer, pi_error *err) {
    pi_status status = PI_OK;
    if (t->role != ROLE_EXPERT_BUNDLE)
        return write_rows(job, t, layer, 0,
                          dim_of(job, t->dims[1], layer) * dim_of(job, t->dims[2], layer), err);
    for (uint64_t i = 0; i < (uint64_t)job->recipe.shape->n_expert && !status; i++)
        status = write_expert(job, layer, i, err);
    return status;
}

static pi_status prepare_buffers(synth_job *job, pi_error *err) {
    int n_threads = job->options->n_threads ? job->options->n_threads : cpu_count_physical();
    pi_status status = pool_create(n_threads, &job->pool, err);
    if (status) return status;
    size_t row_max = job->n_in_max * sizeof(float); /* no type is wider than F32 */
    size_t n_block = row_max > BLOCK_BYTES ? row_max : BLOCK_BYTES;
    job->block = mem_alloc(n_block);
    job->rows = mem_calloc((size_t)n_threads, row_max);
    if (!job->block || !job->rows) {
        return error_nomem(err, n_block + (size_t)n_threads * row_max, "blocks of rows");
    }
    return PI_OK;
}

/* ---- predictor ------------------------------------------------------------------------------- */

/* Mean square error of rows stored in a type, relative to the mean square of the rows. */
static pi_status measure_error(const synth_recipe *r, const quant_traits *traits, uint64_t n,
                               tensor_role role, double *error, pi_error *err) {
    enum { ROWS = 64 };
    uint64_t n_rows = role == ROLE_FC1 && r->rank < ROWS ? (uint64_t)r->rank : ROWS;
    size_t row_bytes = 0;
    if (!quant_row_bytes(traits->type, n, &row_bytes)) {
        return error_set(err, PI_ERR_ARG, "rows of %llu elements are not a multiple of %s blocks",
                         (unsigned long long)n, traits->name);
    }
    float *row = mem_calloc(2 * n, sizeof *row);
    void *stored = mem_alloc(row_bytes);
    double square = 0, lost = 0;
    for (uint64_t i = 0; row && stored && i < n_rows; i++) {
        synth_make_row(r, role, 0, i, n, row);
        traits->quantize(row, stored, (int64_t)n, NULL);
        traits->dequantize(stored, row + n, (int64_t)n);
        for (uint64_t k = 0; k < n; k++) {
            double difference = (double)(row[n + k] - row[k]);
            square += (double)(row[k] * row[k]);
            lost += difference * difference;
        }
    }
    pi_status status = row && stored ? PI_OK : error_nomem(err, row_bytes, "a row");
    mem_free(row);
    mem_free(stored);
    *error = lost / square;
    return status;
}

/* The predictor accounts for the quantization error of gates and scores. */
static pi_status plan_predictor(synth_job *job, pi_error *err) {
    synth_recipe *r = &job->recipe;
    double gate_error = 0, fc1_error = 0, fc2_error = 0;
    uint64_t n_embd = (uint64_t)r->shape->n_embd, rank = (uint64_t)r->rank;
    size_t row_bytes;
    job->fc2_traits = job->traits;
    if (!quant_row_bytes(job->traits->type, rank, &row_bytes))
        job->fc2_traits = quant_find(QUANT_Q8_0); /* its blocks have 32 elements, like ranks */
    if (!r->prepared || r->shape->n_expert > 0) return PI_OK;
    synth_recipe_set_layer(r, 0);
    job->layer = 0;
    r->predictor.slope = 1;
    pi_status status = measure_error(r, job->traits, n_embd, r->gate, &gate_error, err);
    if (!status) status = measure_error(r, job->traits, n_embd, ROLE_FC1, &fc1_error, err);
    if (!status) status = measure_error(r, job->fc2_traits, rank, ROLE_FC2, &fc2_error, err);
    if (!status)
        r->predictor = synth_predictor_solve(&r->profile, RECALL, gate_error,
                                             fc1_error + fc2_error);
    return status;
}

static pi_status write_model(synth_job *job, pi_error *err) {
    pi_status status = synth_recipe_create(&job->recipe, err);
    if (!status) status = plan_predictor(job, err);
    if (status) return status;
    put_keys(job);
    status = for_each_tensor(job, declare_tensor, err);
    if (!status) status = prepare_buffers(job, err);
    if (!status) status = gguf_writer_begin_data(job->writer, err);
    if (!status) status = for_each_tensor(job, write_tensor, err);
    if (status) return status;
    status = gguf_writer_finish(job->writer, err);
    job->writer = NULL;
    return status;
}

pi_status pi_synth(const char *out_path, const pi_synth_options *options, pi_error *err) {
    pi_synth_options defaults = pi_synth_default_options();
    synth_job job = {.options = options ? options : &defaults};
    job.progress = (progress){.fn = job.options->progress, .user = job.options->user};
    pi_status status = check_options(&job, err);
    if (!status) status = gguf_writer_create(out_path, &job.writer, err);
    if (!status) status = write_model(&job, err);
    gguf_writer_abort(job.writer);
    pool_destroy(job.pool);
    synth_recipe_free(&job.recipe);
    mem_free(job.block);
    mem_free(job.rows);
    return status;
}
