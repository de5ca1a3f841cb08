/* powerinfer_sampler.h: samplers turn logits into tokens. Included by powerinfer.h. */
#ifndef POWERINFER_SAMPLER_H
#define POWERINFER_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_grammar.h"
#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_model;

typedef struct pi_sampler pi_sampler;

/* Added to the logit of one token; -INFINITY bans it. */
typedef struct pi_logit_bias {
    int32_t token;
    float bias;
} pi_logit_bias;

/* Samplers between logit bias, which is always first, and the random draw; llama.cpp's order. */
typedef enum pi_sampler_kind {
    PI_SAMPLER_PENALTIES,
    PI_SAMPLER_DRY,
    PI_SAMPLER_TOP_N_SIGMA,
    PI_SAMPLER_TOP_K,
    PI_SAMPLER_TYPICAL,
    PI_SAMPLER_TOP_P,
    PI_SAMPLER_MIN_P,
    PI_SAMPLER_XTC,
    PI_SAMPLER_TEMPERATURE,
    PI_SAMPLER_KINDS /* number of kinds */
} pi_sampler_kind;

enum { PI_SAMPLER_CHAIN_MAX = 32 };

/* Names, meanings, defaults and order are llama.cpp's: logit bias, the samplers of `samplers`, a
 * random draw; with mirostat: logit bias, temperature, mirostat. A temperature of 0 is greedy,
 * after logit bias, penalties and DRY. Filters always keep at least one token. Arrays and strings
 * are copied by pi_sampler_create. */
typedef struct pi_sampler_options {
    /* [n_samplers], applied in this order; a kind that is left out is off, a kind may come twice.
     * NULL: all, in the order of pi_sampler_kind. */
    const pi_sampler_kind *samplers;
    size_t n_samplers;    /* <= PI_SAMPLER_CHAIN_MAX; 0 with an array: logit bias and draw only */
    float temp;           /* temperature, 0.8; <= 0: greedy, deterministic */
    float dynatemp_range; /* dynamic temperature: temp +- range, depending on the entropy; 0: off */
    float dynatemp_exponent; /* exponent of the normalized entropy; 1 */
    int32_t top_k;           /* keep the k most likely tokens; 40; <= 0: off */
    float top_p;             /* nucleus sampling: total probability to keep; 0.95; >= 1: off */
    float min_p;             /* keep tokens with min_p times the top probability; 0.05; 0: off */
    float typical_p;         /* locally typical sampling: total probability to keep; 1: off */
    float top_n_sigma;       /* keep logits within this many standard deviations of the maximum; -1;
                                <= 0: off */

    /* Penalties for the last repeat_last_n tokens. */
    float repeat_penalty;    /* divides positive logits, multiplies negative ones; 1: off */
    int32_t repeat_last_n;   /* 64; 0: off; -1: the whole history */
    float presence_penalty;  /* subtracted once; 0: off */
    float frequency_penalty; /* subtracted per occurrence; 0: off */

    /* XTC: with this probability, removes all tokens above the threshold except the least likely
     * of them. */
    float xtc_probability; /* 0: off */
    float xtc_threshold;   /* 0.1; > 0.5: off */

    /* DRY: a token that continues a repeated sequence of L >= dry_allowed_length tokens loses
     * dry_multiplier * dry_base ^ (L - dry_allowed_length). */
    float dry_multiplier;            /* 0: off */
    float dry_base;                  /* 1.75; < 1: off */
    int32_t dry_allowed_length;      /* 2 */
    int32_t dry_last_n;              /* number of last tokens to search; 0: off; -1: n_ctx_train */
    const char *const *dry_breakers; /* [n_dry_breakers] texts that end a sequence; */
    size_t n_dry_breakers;           /* NULL: "\n", ":", "\"", "*" */

    /* Mirostat replaces the filters: it keeps the cross-entropy per token near tau. */
    int32_t mirostat;   /* 0: off; 1, 2: version */
    float mirostat_tau; /* target entropy, bits per token; 5 */
    float mirostat_eta; /* learning rate; 0.1 */

    const pi_logit_bias *logit_bias; /* [n_logit_bias]; biases of the same token add up */
    size_t n_logit_bias;
    bool ignore_eos; /* never sample end-of-generation tokens */
    uint64_t seed;   /* UINT64_MAX: a random one */
    /* A grammar of this model, which masks the logits before the chain; NULL: none. Where it allows
     * only end-of-generation tokens, one of them is sampled whatever the other options say. */
    pi_grammar *grammar;
} pi_sampler_options;

PI_API pi_sampler_options pi_sampler_default_options(void);

/* PI_ERR_ARG (a NaN, an invalid negative value, a token outside the vocabulary, a grammar
 * of another model), PI_ERR_UNSUPPORTED (dry_breakers given, but the model has no tokenizer),
 * PI_ERR_NOMEM. */
PI_API pi_status pi_sampler_create(const struct pi_model *model, const pi_sampler_options *options,
                                   pi_sampler **out, pi_error *err);
PI_API void pi_sampler_destroy(pi_sampler *sampler);
/* Adds a token of the prompt to the history; a grammar does not see it. Sampled tokens are added
 * automatically. */
PI_API void pi_sampler_accept(pi_sampler *sampler, int32_t token);
/* logits: [n_vocab], not modified. NaN counts as -inf; token 0 when all are -inf. With a grammar:
 * -1 when no token may follow (see pi_sampler_grammar_progress). */
PI_API int32_t pi_sampler_sample(pi_sampler *sampler, const float *logits);
/* The seed in use. */
PI_API uint64_t pi_sampler_seed(const pi_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
