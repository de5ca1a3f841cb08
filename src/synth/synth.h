/* synth.h: shared by the sources of the synthesiser: shapes, the distribution of firing
 * probabilities, and the recipe that makes any row of any matrix.
 *
 * Planted sparsity. The residual stream of every token is  x = a v + b z:  v is one fixed vector of
 * signs for all tokens and layers, z is the token's own part with unit variance per element. A gate
 * row is  w = r + m v / n_embd  with r orthogonal to v and |r| chosen so that r.norm(x) has
 * variance
 * 1. Then gate = t + (unit normal), where t follows from m, and the neuron fires with probability
 * Phi(t). Most of r lies in a space of low rank, shared by the rows of a layer, which a predictor
 * can represent. Drawing t from a normal distribution N(mu, tau) gives any mean density and skew.
 * Every other matrix that reads the stream is orthogonal to v, and layers add nothing along v to
 * the stream, so that layers do not disturb one another; b grows a little from layer to layer by a
 * known amount, which the recipe accounts for.
 *
 * Without a gate, `up` takes its place, and the input of down, relu(up), has a mean that all tokens
 * share. Every row of down is made orthogonal to these means, so that down adds nothing that all
 * tokens share.
 *
 * Mixtures of experts. Router rows are made like gate rows: the score of an expert is normal around
 * a t for this expert, and the n_expert_used highest are chosen, so that experts differ in
 * frequency like neurons. Inside experts neurons are planted where the activation has exact zeros;
 * other gates are normal around 0. Leading dense layers and shared experts also have random
 * weights. */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "arch.h"
#include "error.h"
#include "powerinfer_tools.h"

typedef struct synth_shape {
    const char *name, *arch;
    int32_t n_embd, n_ff, n_layer, n_head, n_head_kv, n_vocab, n_ctx; /* n_ff: of an expert */
    int32_t head_dim;                                                 /* 0: n_embd / n_head */
    int32_t n_expert, n_expert_used, n_expert_shared;                 /* 0: dense */
    int32_t n_dense, n_ff_dense;    /* leading layers without experts, and their n_ff */
    int32_t n_latent, n_rot, v_dim; /* MLA: as in model_hparams; head_dim is that of queries */
    int32_t n_latent_q;             /* MLA: 0: queries from the input */
    int32_t n_index_head, index_dim, index_top; /* DSA: as in model_hparams, index_top positions */
    int32_t window;                             /* sliding; 0: none */
    /* Compressed keys (DeepSeek-V4): residual streams, groups of heads and their rank, leading
     * layers whose experts follow from the token. */
    int32_t n_stream, n_out_group, n_out_rank, n_hash;
    /* Recurrent layers (KDA): all but the last of every `period` layers, which attends; 0: none.
     * Taps of the convolution, elements of a head's keys and values. */
    int32_t period, n_taps, n_state;
    int32_t n_expert_embd; /* elements of the latent vector that experts read; 0: n_embd */
    /* Qwen4: rank of the gates of hyper-connections (0: another architecture), heads and groups of
     * recurrent layers, positions per index key, parts of an n-gram's embedding, table rows per
     * part. */
    int32_t n_gate_rank, n_ssm_head, n_ssm_group, n_pool, n_part, n_part_rows;
    activation activation;
    int32_t n_main; /* layers of a file without heads that draft; 0: not known */
    bool biased; /* projections, router and experts have (zero) biases, which other programs need */
} synth_shape;

/* NULL when there is no such shape. */
const synth_shape *synth_shape_find(const char *name);
const char *synth_shape_names(void); /* "tiny, llama-1b, ..." */
/* Elements along a symbolic dimension, in a layer. */
uint64_t synth_shape_dim(const synth_shape *shape, arch_dim dim, int32_t layer);
/* Positions per compressed key of a layer; 0: it has none. */
int32_t synth_shape_ratio(const synth_shape *shape, int32_t layer);

bool synth_shape_attends(const synth_shape *shape, int32_t layer);
/* Rows of the table of n-grams. */
uint64_t synth_shape_ngram_rows(const synth_shape *shape);
int32_t synth_shape_expert_embd(const synth_shape *shape);
int32_t synth_shape_head_dim(const synth_shape *shape);
/* Activations inside experts have exact zeros: prepared files store their down a row per neuron. */
bool synth_experts_have_zeros(const synth_shape *shape);
int32_t synth_shape_rot(const synth_shape *shape); /* rotated elements of a head */
/* Whether written files have a tensor of the architecture. layer: for tensors of layers. */
bool synth_has_tensor(const synth_shape *shape, const arch_tensor *tensor, int32_t layer,
                      bool prepared);

/* ---- firing probabilities -------------------------------------------------------------------- */

/* t = mu + tau * (standard normal); a neuron is active with probability Phi(t). */
typedef struct synth_profile {
    double mu, tau;
    /* For h = relu(t + normal) over all neurons: E[h^2], and the mean of the variances. */
    double mean_square, mean_variance;
} synth_profile;

/* Clamps t to -+5: means beyond (Phi is within 3e-7 of 0 or 1) only widen the range of weights. */
double synth_clamp_mean(double t);

double synth_phi(double x);                 /* normal distribution function */
double synth_probit(double p);              /* its inverse, 0 < p < 1 */
double synth_relu_mean(double m, double s); /* E[relu(m + s * normal)] */

/* The profile whose mean probability is `density` and in which the most active fraction `share` of
 * the neurons has the fraction `mass` of all activations. PI_ERR_ARG: there is no such profile. */
pi_status synth_profile_solve(double density, double share, double mass, synth_profile *profile,
                              pi_error *err);

/* The profiles of a shape's neurons and, if any, experts. The skew applies to the units of
 * placement, experts or neurons; inside experts all neurons are active equally often. */
pi_status synth_profiles_solve(const synth_shape *shape, const pi_synth_options *options,
                               synth_profile *neurons, synth_profile *experts, pi_error *err);

/* ---- predictor ------------------------------------------------------------------------------- */

/* Share of a gate row's variance in the low-rank part; the rest is noise that no predictor of that
 * rank can see. */
static const double SYNTH_LOW_RANK_SHARE = 0.9;

/* The best estimate of a gate from the stored fc1 and fc2 is  t + slope * (low-rank part, with the
 * errors of its quantization);  a neuron is selected when the estimate reaches `threshold`. */
typedef struct synth_predictor {
    double slope, threshold;
    double recall;  /* of contributions relu(gate) |up| |down| */
    double density; /* share of neurons selected, the mean over tokens */
} synth_predictor;

/* The threshold that selects the fewest neurons and reaches `recall`. The errors are quantization
 * errors, mean squares relative to those of the weights: of the gate's rows, and of fc1 and fc2
 * together. */
synth_predictor synth_predictor_solve(const synth_profile *profile, double recall,
                                      double gate_error, double predictor_error);

/* The second threshold of mode threshold that a fraction `density` of the hidden values relu(gate)
 * up exceeds; up has variance 1. 0 < density < 1. */
double synth_cut_down(const synth_profile *profile, double density);

/* ---- rows ------------------------------------------------------------------------------------ */

enum {
    SYNTH_NORMALS = 4096, /* quantiles in the table: 12 random bits a sample */
    SYNTH_COEFFICIENTS = 32
};

typedef struct synth_recipe {
    const synth_shape *shape;
    const arch_row *arch;
    int32_t n_layer, n_draft; /* layers for multi-token prediction follow the others */
    int32_t rank;
    bool prepared; /* neurons are stored hottest first, except in draft layers */
    uint64_t seed;
    synth_profile profile;        /* of neurons */
    synth_profile router_profile; /* of experts: active when chosen */
    synth_predictor predictor;    /* of prepared models without experts */
    float normals[SYNTH_NORMALS]; /* quantiles of the standard normal distribution */
    float *sign;                  /* [n_embd], v */
    float *pre_mean;              /* [n_ff], t of neurons from the rarest to the most frequent */
    float *basis;                 /* [rank][n_embd], low-rank part of the gate of one layer */
    int32_t *neuron_rank;         /* [n_ff], place in pre_mean of each neuron of that layer */
    int32_t *order;               /* [n_ff], the neuron in each place of the file */
    tensor_role gate;             /* the matrix that decides which neurons are active */
    double hidden_square;         /* mean square of what down reads */
    /* Mixtures of experts: t of experts from the rarest to the most frequent, the place of each
     * expert of the layer in that list, the expert in each place of the file; how often experts
     * are chosen, most often first. [n_expert] each. */
    float *router_mean;
    int32_t *expert_rank, *expert_order;
    float *expert_freq;
    /* Without a gate: the mean of the input of down [n_ff], and the part of it that each row of
     * the layer's down has lost [n_embd]. NULL with a gate. */
    float *hidden_mean, *down_lost;
} synth_recipe;

/* The caller has set all fields before `normals`; `predictor` may follow later. */
pi_status synth_recipe_create(synth_recipe *r, pi_error *err);
void synth_recipe_free(synth_recipe *r);
/* Sets `basis`, `neuron_rank` and `order` for a layer. Not while rows are being made. */
void synth_recipe_set_layer(synth_recipe *r, int32_t layer);
/* The experts of a token in a layer that has a table of them, [n_expert_used]. Thread-safe. */
void synth_make_choices(const synth_recipe *r, int32_t layer, uint64_t token, int32_t *out);
/* Writes row `row` of the tensor in `role` ([n_in] floats); rows of experts come one expert after
 * the other. The row depends on the seed only, not on other rows; thread-safe. */
void synth_make_row(const synth_recipe *r, tensor_role role, int32_t layer, uint64_t row,
                    uint64_t n_in, float *out);

#endif
