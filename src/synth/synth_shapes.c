/* synth_shapes.c: named shapes, and the distribution of firing probabilities over neurons. */
#include <math.h>
#include <string.h>

#include "synth.h"

#define SHAPE(name_, arch_, embd, ff, layers, heads, kv, vocab, ctx)                               \
    .name = (name_), .arch = (arch_), .n_embd = (embd), .n_ff = (ff), .n_layer = (layers),         \
    .n_head = (heads), .n_head_kv = (kv), .n_vocab = (vocab), .n_ctx = (ctx)
#define EXPERTS(head, n, used, f)                                                                  \
    .head_dim = (head), .n_expert = (n), .n_expert_used = (used), .activation = ACTIVATION_##f
#define LATENT(latent, rot, value) .n_latent = (latent), .n_rot = (rot), .v_dim = (value)
#define INDEX(latent_q, heads, dim, top)                                                           \
    .n_latent_q = (latent_q), .n_index_head = (heads), .index_dim = (dim), .index_top = (top)
#define HYPER(streams, groups, rank, hash)                                                         \
    .n_stream = (streams), .n_out_group = (groups), .n_out_rank = (rank), .n_hash = (hash)

#define GATED_HYPER(streams, rank) .n_stream = (streams), .n_gate_rank = (rank)
#define DELTA(state, groups, heads)                                                                \
    .period = 4, .n_taps = 4, .n_state = (state), .n_ssm_group = (groups), .n_ssm_head = (heads)
#define POOLS(heads, dim, top, pool)                                                               \
    .n_index_head = (heads), .index_dim = (dim), .index_top = (top), .n_pool = (pool)
#define NGRAMS(parts, rows) .n_part = (parts), .n_part_rows = (rows)
#define KDA(state, latent)  .period = 4, .n_taps = 4, .n_state = (state), .n_expert_embd = (latent)

enum { NGRAM_LAYER = 1 }; /* this layer adds embeddings of n-grams */
enum { SELECTED = 4 }; /* positions per compressed key: an index selects among keys of this ratio */

static const synth_shape shapes[] = {
    {SHAPE("tiny", "llama", 256, 768, 4, 4, 2, 512, 2048)},
    {SHAPE("llama-1b", "llama", 2048, 8192, 16, 32, 8, 32000, 8192)},
    {SHAPE("llama-7b", "llama", 4096, 11008, 32, 32, 32, 32000, 4096)},
    {SHAPE("bamboo-7b", "llama", 4096, 14336, 32, 32, 8, 32000, 4096)},
    {SHAPE("llama-13b", "llama", 5120, 13824, 40, 40, 40, 32000, 4096)},
    {SHAPE("llama-70b", "llama", 8192, 28672, 80, 64, 8, 32000, 4096)},
    {SHAPE("tiny-opt", "opt", 256, 768, 4, 4, 4, 512, 2048)},
    {SHAPE("tiny-falcon", "falcon", 256, 768, 4, 4, 2, 512, 2048)},
    {SHAPE("opt-30b", "opt", 7168, 28672, 48, 56, 56, 50272, 2048)},
    {SHAPE("falcon-40b", "falcon", 8192, 32768, 60, 128, 8, 65024, 2048)},
    {SHAPE("tiny-moe", "qwen3moe", 256, 128, 4, 4, 2, 512, 2048), EXPERTS(64, 16, 4, SILU)},
    {SHAPE("tiny-reglu-moe", "smallthinker", 256, 128, 4, 4, 2, 512, 2048),
     EXPERTS(64, 16, 4, RELU)},
    {SHAPE("mixtral-8x7b", "llama", 4096, 14336, 32, 32, 8, 32000, 32768),
     EXPERTS(128, 8, 2, SILU)},
    {SHAPE("qwen3-30b-a3b", "qwen3moe", 2048, 768, 48, 32, 4, 151936, 40960),
     EXPERTS(128, 128, 8, SILU)},
    {SHAPE("gpt-oss-20b", "gpt-oss", 2880, 2880, 24, 64, 8, 201088, 131072),
     EXPERTS(64, 32, 4, SILU), .window = 128, .biased = true},
    {SHAPE("smallthinker-21b", "smallthinker", 2560, 768, 52, 28, 4, 151936, 16384),
     EXPERTS(128, 64, 6, RELU), .window = 4096},
    {SHAPE("tiny-mla-moe", "deepseek2", 256, 128, 4, 4, 1, 512, 2048), EXPERTS(96, 16, 4, SILU),
     .n_expert_shared = 1, .n_dense = 1, .n_ff_dense = 384, LATENT(128, 32, 64)},
    {SHAPE("deepseek-v2-lite", "deepseek2", 2048, 1408, 27, 16, 1, 102400, 163840),
     EXPERTS(192, 64, 6, SILU), .n_expert_shared = 2, .n_dense = 1, .n_ff_dense = 10944,
     LATENT(512, 64, 128)},
    {SHAPE("tiny-dsa-moe", "deepseek32", 256, 128, 4, 4, 1, 512, 2048), EXPERTS(96, 16, 4, SILU),
     .n_expert_shared = 1, .n_dense = 1, .n_ff_dense = 384, LATENT(128, 32, 64),
     INDEX(64, 4, 64, 128)},
    {SHAPE("deepseek-v3.2", "deepseek32", 7168, 2048, 61, 128, 1, 129280, 163840),
     EXPERTS(192, 256, 8, SILU), .n_expert_shared = 1, .n_dense = 3, .n_ff_dense = 18432,
     LATENT(512, 64, 128), INDEX(1536, 64, 128, 2048)},
    {SHAPE("glm-5", "glm-dsa", 6144, 2048, 78, 64, 1, 154880, 202752), EXPERTS(256, 256, 8, SILU),
     .n_expert_shared = 1, .n_dense = 3, .n_ff_dense = 12288, LATENT(512, 64, 256),
     INDEX(2048, 32, 128, 2048)},
    {SHAPE("tiny-csa-moe", "deepseek4", 256, 128, 4, 4, 1, 512, 2048), EXPERTS(64, 16, 4, SILU),
     .n_expert_shared = 1, .n_rot = 32, .window = 32, INDEX(128, 4, 64, 16), HYPER(4, 2, 64, 1)},
    {SHAPE("deepseek-v4-flash", "deepseek4", 4096, 2048, 43, 64, 1, 129280, 1048576),
     EXPERTS(512, 256, 6, SILU), .n_expert_shared = 1, .n_rot = 64, .window = 128,
     INDEX(1024, 64, 128, 512), HYPER(4, 8, 1024, 3)},
    {SHAPE("tiny-kda-moe", "kimi-k3", 256, 128, 4, 4, 1, 512, 2048), EXPERTS(96, 16, 4, SILU),
     .n_expert_shared = 1, .n_dense = 1, .n_ff_dense = 384, LATENT(128, 32, 64), .n_latent_q = 64,
     KDA(32, 128)},
    {SHAPE("kimi-k3", "kimi-k3", 7168, 3072, 93, 96, 1, 163840, 1048576),
     EXPERTS(192, 896, 16, SILU), .n_expert_shared = 2, .n_dense = 1, .n_ff_dense = 33792,
     LATENT(512, 64, 128), .n_latent_q = 1536, KDA(128, 3584)},
    {SHAPE("tiny-ngram-moe", "qwen4exp", 256, 128, 4, 4, 2, 512, 2048), EXPERTS(64, 16, 4, SILU),
     .n_expert_shared = 1, .n_rot = 16, GATED_HYPER(4, 32), DELTA(32, 4, 8), POOLS(4, 64, 128, 4),
     NGRAMS(8, 512)},
    {SHAPE("qwen3.8-flash-next", "qwen4exp", 2560, 640, 48, 24, 2, 248320, 262144),
     EXPERTS(256, 512, 10, SILU), .n_expert_shared = 1, .n_rot = 64, GATED_HYPER(4, 320),
     DELTA(128, 16, 48), POOLS(4, 128, 2048, 4), NGRAMS(16, 20000096)},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

const synth_shape *synth_shape_find(const char *name) {
    for (int i = 0; i < N_SHAPES; i++) {
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    }
    return NULL;
}

const char *synth_shape_names(void) {
    return "tiny, llama-1b, llama-7b, bamboo-7b, llama-13b, llama-70b, tiny-opt, opt-30b, "
           "tiny-falcon, falcon-40b, tiny-moe, tiny-reglu-moe, mixtral-8x7b, qwen3-30b-a3b, "
           "gpt-oss-20b, smallthinker-21b, tiny-mla-moe, deepseek-v2-lite, tiny-dsa-moe, "
           "deepseek-v3.2, glm-5, tiny-csa-moe, deepseek-v4-flash, tiny-kda-moe, kimi-k3, "
           "tiny-ngram-moe, qwen3.8-flash-next";
}

int32_t synth_shape_head_dim(const synth_shape *s) {
    return s->head_dim ? s->head_dim : s->n_embd / s->n_head;
}

int32_t synth_shape_rot(const synth_shape *s) {
    return s->n_rot ? s->n_rot : synth_shape_head_dim(s);
}

int32_t synth_shape_expert_embd(const synth_shape *s) {
    return s->n_expert_embd ? s->n_expert_embd : s->n_embd;
}

/* The last layer of every period, and of the whole model. */
bool synth_shape_attends(const synth_shape *s, int32_t layer) {
    return s->period == 0 || (layer + 1) % s->period == 0 || layer == s->n_layer - 1;
}

int32_t synth_shape_ratio(const synth_shape *s, int32_t layer) {
    enum { FIRST = 2, ALL = 128 };
    if (s->n_gate_rank > 0) return synth_shape_attends(s, layer) ? s->n_pool : 0;
    if (s->n_stream == 0 || layer < FIRST) return 0;
    if (s->n_main > 0 && layer >= s->n_main) return 0; /* heads attend to a window only */
    return layer % 2 == 0 ? SELECTED : ALL;
}

uint64_t synth_shape_ngram_rows(const synth_shape *s) {
    return (uint64_t)s->n_part * (uint64_t)s->n_part_rows;
}

uint64_t synth_shape_dim(const synth_shape *s, arch_dim dim, int32_t layer) {
    int32_t ratio = synth_shape_ratio(s, layer);
    const int64_t n_ssm_head = s->n_ssm_head > 0 ? s->n_ssm_head : s->n_head;
    const int64_t n_ssm_group = s->n_ssm_group > 0 ? s->n_ssm_group : s->n_head;
    if (dim == DIM_NGRAM_ROWS) return synth_shape_ngram_rows(s);
    arch_sizes sizes = {.n_embd = s->n_embd,
                        .n_vocab = s->n_vocab,
                        .n_ff = s->n_ff_dense ? s->n_ff_dense : s->n_ff,
                        .n_head = s->n_head,
                        .n_head_kv = s->n_head_kv,
                        .n_expert = s->n_expert,
                        .n_ff_expert = s->n_expert > 0 ? s->n_ff : 0,
                        .n_ff_shared = (int64_t)s->n_expert_shared * s->n_ff,
                        .head_dim = synth_shape_head_dim(s),
                        .v_dim = s->v_dim,
                        .n_latent = s->n_latent,
                        .n_latent_q = s->n_latent_q,
                        .n_stream = s->n_stream,
                        .ratio = ratio,
                        .n_parts = ratio == SELECTED ? 2 : 1,
                        .n_out_group = s->n_out_group,
                        .n_out_rank = s->n_out_rank,
                        .n_expert_used = s->n_expert_used,
                        .n_expert_embd = s->n_expert_embd,
                        .n_taps = s->n_taps,
                        .n_state = s->n_state,
                        .n_inner = n_ssm_head * s->n_state,
                        .n_ssm_head = n_ssm_head,
                        .n_ssm_group = n_ssm_group,
                        .n_conv = (2 * n_ssm_group + n_ssm_head) * s->n_state,
                        .n_hyper_rank = s->n_gate_rank,
                        .n_embd_ngram = s->n_part > 0 ? s->n_embd / s->n_part : 0,
                        .n_ngram_taps = s->n_taps,
                        .n_index_head = s->n_index_head,
                        .index_dim = s->index_dim,
                        .n_rot = synth_shape_rot(s)};
    return (uint64_t)arch_dim_size(dim, &sizes);
}

bool synth_experts_have_zeros(const synth_shape *s) {
    return s->n_expert > 0 && s->activation == ACTIVATION_RELU;
}

/* For models with experts. */
static bool has_expert_tensor(const synth_shape *s, const arch_tensor *t, int32_t layer,
                              bool prepared) {
    int32_t ratio = synth_shape_ratio(s, layer);
    bool dense = layer < s->n_dense;
    bool of_expert = t->role == ROLE_FFN_FREQ ||
                     (t->role >= ROLE_ROUTER && t->role <= ROLE_SHARED_DOWN) ||
                     t->role == ROLE_EXPERT_DOWN_T || t->role == ROLE_EXPERT_PERM;
    if ((dense && of_expert) || t->flags & (TENSOR_ONES | TENSOR_UNUSED)) return false;
    if (dense && t->flags & TENSOR_NO_DENSE) return false;
    if (tensor_role_part(t->role) == PART_RECURRENT) return !synth_shape_attends(s, layer);
    if (tensor_role_part(t->role) == PART_ATTENTION && !synth_shape_attends(s, layer)) return false;
    if (t->flags & TENSOR_COMPRESSED && ratio == 0) return false;
    if (t->flags & TENSOR_NGRAMS) return !(t->flags & TENSOR_PER_LAYER) || layer == NGRAM_LAYER;
    if (t->flags & TENSOR_OWN_INDEX && s->n_out_group > 0 && ratio != SELECTED) return false;
    switch (t->role) {
    case ROLE_ATTN_Q:
        return s->n_latent_q == 0;
    case ROLE_ATTN_Q_A:
    case ROLE_ATTN_Q_A_NORM:
    case ROLE_ATTN_Q_B:
        return s->n_latent_q > 0;
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_FFN_DOWN:
        return dense;
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
    case ROLE_SHARED_DOWN:
        return s->n_expert_shared > 0;
    case ROLE_ATTN_GATE:
        return s->period > 0;
    case ROLE_SHARED_ROUTER:
        return s->n_gate_rank > 0; /* other programs need it */
    case ROLE_EXPERT_LATENT_NORM:
        return s->n_expert_embd > 0;
    case ROLE_ROUTER_TABLE:
        return layer < s->n_hash;
    case ROLE_ROUTER_SELECT_BIAS:
        return s->n_out_group > 0 && layer >= s->n_hash; /* other programs need it */
    case ROLE_ATTN_Q_NORM:
    case ROLE_ATTN_K_NORM:
    case ROLE_ROUTER:
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP:
        return true;
    case ROLE_EXPERT_DOWN:
        return !prepared || !synth_experts_have_zeros(s);
    case ROLE_EXPERT_DOWN_T:
        return prepared && synth_experts_have_zeros(s);
    case ROLE_FFN_FREQ:
    case ROLE_EXPERT_PERM:
        return prepared;
    case ROLE_ATTN_Q_BIAS:
    case ROLE_ATTN_K_BIAS:
    case ROLE_ATTN_V_BIAS:
    case ROLE_ATTN_OUT_BIAS:
    case ROLE_ROUTER_BIAS:
    case ROLE_EXPERT_GATE_BIAS:
    case ROLE_EXPERT_UP_BIAS:
    case ROLE_EXPERT_DOWN_BIAS:
        return s->biased;
    default:
        return !(t->flags & (TENSOR_OPTIONAL | TENSOR_NO_EXPERTS));
    }
}

bool synth_has_tensor(const synth_shape *s, const arch_tensor *t, int32_t layer, bool prepared) {
    switch (t->role) {
    case ROLE_ATTN_NORM_2:
    case ROLE_ATTN_NORM_2_BIAS:
    case ROLE_OUTPUT:
        return true;
    default:
        break;
    }
    if (s->n_expert > 0) return has_expert_tensor(s, t, layer, prepared);
    switch (t->role) {
    case ROLE_FFN_DOWN:
        return !prepared;
    case ROLE_FFN_DOWN_T:
    case ROLE_FC1:
    case ROLE_FC2:
    case ROLE_FC2_BIAS:
    case ROLE_FFN_FREQ:
    case ROLE_FFN_PERM:
        return prepared;
    default:
        return !(t->flags & TENSOR_OPTIONAL);
    }
}

/* ---- firing probabilities -------------------------------------------------------------------- */

double synth_clamp_mean(double t) {
    const double most = 5;
    return t < -most ? -most : t > most ? most : t;
}

double synth_phi(double x) {
    return 0.5 * erfc(-x * 0.70710678118654752); /* 1/sqrt(2) */
}

double synth_probit(double p) {
    double low = -9, high = 9; /* Phi(9) is 1 in double precision */
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (synth_phi(middle) < p)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

enum {
    QUANTILES = 2048, /* points of the integrals over neurons */
    TAU_MAX = 60      /* there, probabilities are 0 or 1 to within a percent */
};

/* The mu at which the mean of Phi(mu + tau n) over standard normal n is `density`: the sum of two
 * normals is normal with variance 1 + tau^2. */
static double mu_of(double density_probit, double tau) {
    return density_probit * sqrt(1 + tau * tau);
}

/* Fraction of all activations that the most active `share` of the neurons has. */
static double mass_of(const double *quantiles, double density_probit, double tau, double share) {
    double mu = mu_of(density_probit, tau), all = 0, top = 0;
    for (int i = 0; i < QUANTILES; i++) {
        double p = synth_phi(mu + tau * quantiles[i]);
        all += p;
        if (i >= QUANTILES * (1 - share)) top += p;
    }
    return top / all;
}

/* E[relu(t + n)^2] for standard normal n. */
static double relu_square(double t) {
    const double inverse_sqrt_two_pi = 0.39894228040143268;
    return (t * t + 1) * synth_phi(t) + t * inverse_sqrt_two_pi * exp(-0.5 * t * t);
}

pi_status synth_profile_solve(double density, double share, double mass, synth_profile *profile,
                              pi_error *err) {
    if (!(density > 0 && density < 1)) {
        return error_set(err, PI_ERR_ARG, "density %g is not between 0 and 1", density);
    }
    if (!(share > 0 && share < 1 && mass < 1 && mass >= share)) {
        return error_set(err, PI_ERR_ARG,
                         "skew %g:%g: both must be between 0 and 1, the second not the smaller",
                         share, mass);
    }
    double quantiles[QUANTILES];
    for (int i = 0; i < QUANTILES; i++) quantiles[i] = synth_probit((i + 0.5) / QUANTILES);
    double probit = synth_probit(density), low = 0, high = TAU_MAX;
    if (mass_of(quantiles, probit, high, share) < mass) {
        return error_set(err, PI_ERR_ARG,
                         "skew %g:%g is impossible at density %g: a fraction %g of the neurons has "
                         "at most %.2f of the activations",
                         share, mass, density, share, mass_of(quantiles, probit, high, share));
    }
    for (int i = 0; i < 40; i++) {
        double middle = 0.5 * (low + high);
        if (mass_of(quantiles, probit, middle, share) < mass)
            low = middle;
        else
            high = middle;
    }
    profile->tau = 0.5 * (low + high);
    profile->mu = mu_of(probit, profile->tau);
    profile->mean_square = profile->mean_variance = 0;
    for (int i = 0; i < QUANTILES; i++) {
        double t = synth_clamp_mean(profile->mu + profile->tau * quantiles[i]);
        double square = relu_square(t), mean = synth_relu_mean(t, 1);
        profile->mean_square += square / QUANTILES;
        profile->mean_variance += (square - mean * mean) / QUANTILES;
    }
    return PI_OK;
}

pi_status synth_profiles_solve(const synth_shape *s, const pi_synth_options *o,
                               synth_profile *neurons, synth_profile *experts, pi_error *err) {
    const double even = 0.5;
    double share = (double)o->skew_share, mass = (double)o->skew_mass;
    if (s->n_expert == 0) return synth_profile_solve((double)o->density, share, mass, neurons, err);
    pi_status status = synth_profile_solve((double)o->density, even, even, neurons, err);
    if (status != PI_OK) return status;
    return synth_profile_solve((double)s->n_expert_used / s->n_expert, share, mass, experts, err);
}
