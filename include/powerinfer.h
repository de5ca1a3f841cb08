/* powerinfer.h: run large language models on ordinary machines.
 *
 *   model    an opened file: hyperparameters, vocabulary, mapped weights. Immutable; share it
 *            between threads.
 *   context  the working memory of one plan: scratch, logits, worker threads. Used by one thread at
 *            a time.
 *   session  one timeline: KV cache and position. Belongs to its context. Any number per context.
 *   sampler  turns logits into a token; holds the random state and the history for penalties.
 *
 * Typical use (error handling left out):
 *
 *     pi_model *model; pi_context *context; pi_session *session; pi_sampler *sampler;
 *     pi_model_open("model.gguf", NULL, &model, NULL);
 *     pi_context_create(model, NULL, &context, NULL);
 *     pi_session_create(context, 4096, &session, NULL);
 *     pi_sampler_create(model, NULL, &sampler, NULL);
 *     pi_tokenize(model, text, strlen(text), PI_TOKENIZE_BOS, tokens, capacity, &n, NULL);
 *     pi_input input = {.session = session, .tokens = tokens, .n_tokens = n,
 *                       .logits = PI_LOGITS_LAST};
 *     for (;;) {
 *         pi_forward(context, &input, 1, NULL);
 *         int32_t next = pi_sampler_sample(sampler, pi_logits(context, 0));
 *         if (pi_token_is_end(model, next)) break;
 *         ... print pi_token_text(model, next, ...), then feed it:
 *         input.tokens = &next; input.n_tokens = 1;
 *     }
 *
 * After fork() the child can use models; contexts and sessions it can only destroy, because their
 * threads stay with the parent (other calls give PI_ERR_ARG).
 *
 * Errors: functions that can fail return a pi_status and fill an optional pi_error; see
 * powerinfer_status.h. Wrong pointers and other programmer errors assert. The library never prints,
 * exits or aborts for a problem of its input. Strings are NUL-terminated UTF-8 unless a length is
 * given. Free functions accept NULL.
 *
 * Options structs: start from the defaults function, change fields; NULL means all defaults. */
#ifndef POWERINFER_H
#define POWERINFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_metadata.h"
#include "powerinfer_session.h"
#include "powerinfer_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PI_VERSION_MAJOR 0
#define PI_VERSION_MINOR 1
#define PI_VERSION_PATCH 0

/* "0.1.0" of the library that is linked. */
PI_API const char *pi_version(void);

/* ---- model --------------------------------------------------------------------------------- */

typedef struct pi_model pi_model;

/* Called on the calling thread a few times a second; fraction in 0..1. False: stop. */
typedef bool (*pi_progress)(void *user, const char *stage, double fraction);

typedef struct pi_model_options {
    bool no_mmap;       /* copy the weights into huge pages instead of mapping the file */
    bool mlock;         /* keep the weights in memory */
    bool vocab_only;    /* tokenizer only: no tensors needed; such a model has no contexts */
    bool check_tensors; /* read all weights and refuse NaN and infinity; not with vocab_only */
    const char *pre;    /* pre-tokenizer name that overrides the file's; NULL: as the file says */
    const pi_metadata_override *overrides; /* [n_overrides]; of one key the last one counts */
    size_t n_overrides;                    /* <= 1024 */
    pi_progress progress; /* of copying and locking, the long part, by bytes; NULL: none */
    void *progress_user;
} pi_model_options;

PI_API pi_model_options pi_model_default_options(void);

/* Opens a GGUF file (one part of a split model finds the others). PI_ERR_IO, PI_ERR_FORMAT (what is
 * wrong and where), PI_ERR_UNSUPPORTED (architecture, type, version), PI_ERR_NOT_FOUND (vocab_only
 * of a file without a vocabulary), PI_ERR_RANGE (check_tensors), PI_ERR_ARG (an override of another
 * type than the file's value), PI_ERR_NOMEM, PI_ERR_CANCELLED (by `progress`). */
PI_API pi_status pi_model_open(const char *path, const pi_model_options *options, pi_model **out,
                               pi_error *err);
/* The same from the bytes of a file, not split, which the caller keeps until the model is closed.
 * Their address is a multiple of 32, else PI_ERR_ARG. With no_mmap they are copied, and neither of
 * these is needed. */
PI_API pi_status pi_model_open_memory(const void *data, size_t n_bytes,
                                      const pi_model_options *options, pi_model **out,
                                      pi_error *err);
/* All contexts of the model must be gone. */
PI_API void pi_model_close(pi_model *model);
/* Weights are mapped. When somebody cuts the file meanwhile, reading them raises SIGBUS in the
 * thread that does; the library installs no handler. A host's handler can ask here which open
 * model's file holds the address (si_addr); NULL: none, so that the signal is the host's own.
 * Async-signal-safe. pi_model_options.no_mmap avoids all this. */
PI_API const char *pi_mapped_file(const void *address);

typedef struct pi_model_info {
    const char *name;         /* general.name, or "" */
    const char *architecture; /* "llama" */
    const char *type;         /* the type most weights have: "q4_0" */
    int32_t n_layer, n_embd, n_ff, n_head, n_head_kv, n_vocab;
    int32_t n_ctx_train;   /* tokens the model was trained for */
    uint64_t n_params;     /* elements of all weights */
    uint64_t weight_bytes; /* bytes of all weights */
    bool has_tokenizer;
    int32_t token_bos, token_eos; /* -1: none */
    bool add_bos;                 /* the model wants BOS at the start of a text */
} pi_model_info;

/* The strings live as long as the model. */
PI_API void pi_model_get_info(const pi_model *model, pi_model_info *info);

/* ---- text and tokens ------------------------------------------------------------------------ */

enum {
    PI_TOKENIZE_BOS = 1,       /* BOS (and EOS) where the model asks for it */
    PI_TOKENIZE_FORCE_BOS = 2, /* BOS at the start whatever the model says */
    PI_TOKENIZE_SPECIAL = 4 /* control tokens written in the text ("<|im_end|>") are recognised */
};

/* Writes at most `capacity` ids; *n_tokens is how many the text has, so that a call with capacity 0
 * counts them. Most texts have fewer than bytes, but some have up to three per byte. PI_ERR_LIMIT
 * when they did not fit, PI_ERR_UNSUPPORTED when the model has no tokenizer. Any bytes are accepted
 * as text. Thread-safe. */
PI_API pi_status pi_tokenize(const pi_model *model, const char *text, size_t n_text, uint32_t flags,
                             int32_t *tokens, size_t capacity, size_t *n_tokens, pi_error *err);

/* Bytes of one token as it appears inside a text (a lone token may be part of a UTF-8 sequence; not
 * NUL-terminated). Control tokens give no bytes unless `special`. PI_ERR_RANGE for an id outside
 * the vocabulary, PI_ERR_LIMIT when capacity is below *n_bytes. */
PI_API pi_status pi_token_text(const pi_model *model, int32_t token, bool special, char *text,
                               size_t capacity, size_t *n_bytes, pi_error *err);

/* Text of a whole sequence, the reverse of pi_tokenize (a leading space that the tokenizer added is
 * taken off). *n_bytes is set in every case; PI_ERR_LIMIT when capacity is below it. */
PI_API pi_status pi_detokenize(const pi_model *model, const int32_t *tokens, size_t n_tokens,
                               bool special, char *text, size_t capacity, size_t *n_bytes,
                               pi_error *err);

/* True for tokens that end a generation (EOS, EOT and their kin). */
PI_API bool pi_token_is_end(const pi_model *model, int32_t token);

/* ---- context -------------------------------------------------------------------------------- */

typedef struct pi_context pi_context;

typedef enum pi_kernels {
    PI_KERNELS_AUTO,   /* the best this processor has */
    PI_KERNELS_SCALAR, /* the float reference: slow, exact */
    PI_KERNELS_AVX2,
    PI_KERNELS_AVX512,
    PI_KERNELS_NEON
} pi_kernels;

typedef enum pi_mode { /* how the feed-forward layers are computed; see docs/sparse.md */
                       PI_MODE_AUTO,     /* the fastest by a fixed cost, loss within max_loss */
                       PI_MODE_DENSE,    /* everything */
                       PI_MODE_EXACT,    /* skips what an activation of zero makes useless */
                       PI_MODE_PREDICT,  /* computes the neurons that a predictor chooses */
                       PI_MODE_THRESHOLD /* takes small activations for zero */
} pi_mode;

typedef enum pi_cache_type { PI_CACHE_F16, PI_CACHE_F32, PI_CACHE_Q8_0 } pi_cache_type;

typedef enum pi_device_choice {                 /* where to compute; see docs/gpu.md */
                                PI_DEVICE_AUTO, /* the best GPU there is, never PI_DEVICE_SIM */
                                PI_DEVICE_CPU,
                                PI_DEVICE_CUDA,
                                PI_DEVICE_HIP,
                                PI_DEVICE_SIM /* a simulated GPU, for tests */
} pi_device_choice;

#define PI_VRAM_FREE UINT64_MAX

typedef struct pi_context_options {
    int32_t n_threads;       /* for single tokens; 0: physical (performance) cores */
    int32_t n_threads_batch; /* for batches; 0: as n_threads */
    bool pin_threads;        /* keep each worker thread on one CPU of those that may be used */
    int32_t n_batch;         /* most tokens in one pass over the weights; default 512 */
    int32_t n_logits;        /* most rows of logits kept at once; 0: n_batch, within 64 MB */
    pi_kernels kernels;
    pi_mode mode;    /* layers that lack what a mode needs run in an exact one */
    float max_loss;  /* for PI_MODE_AUTO: relative rise of perplexity; default 0.01, 1% */
    float threshold; /* of predictor scores, instead of the model's; NAN (default): the model's */
    pi_cache_type cache_k, cache_v; /* type of the KV cache of sessions; default F16 */
    /* The GPU takes what fits. With PI_DEVICE_AUTO the CPU does all when there is none or it cannot
     * be used (see pi_context_get_placement); a device that is named is used or is an error. One
     * that is lost later is given up in both cases. */
    pi_device_choice device;
    uint64_t vram_budget; /* bytes of GPU memory, 0: none; PI_VRAM_FREE (default): what is free now,
                             less a margin */
    int32_t gpu_layers; /* -1 (default): what is fastest; else so many layers, from the last one on,
                           wholly on the GPU, and the head with them when there are more than
                           layers; as many of these as fit */
    int32_t n_ctx; /* positions of all sessions together that GPU memory is kept for; 0: the smaller
                      of what the model was trained for and 8192 */
    const char *backend_folder; /* of libpowerinfer_cuda.so and its like; NULL: the usual ones */
    const char *machine; /* file with what `powerinfer place --measure` found; NULL, or when it is
                            not there: published figures */
} pi_context_options;

PI_API pi_context_options pi_context_default_options(void);

/* PI_ERR_ARG, PI_ERR_NOMEM. What was asked for by name and cannot be had is an error, never
 * replaced in silence: PI_ERR_UNSUPPORTED for kernels that this CPU lacks and for a mode that no
 * layer of the model has the data for; PI_ERR_NOT_FOUND, PI_ERR_LIMIT (memory), PI_ERR_DEVICE and
 * their like for a device. The auto choices never fail for these reasons. */
PI_API pi_status pi_context_create(const pi_model *model, const pi_context_options *options,
                                   pi_context **out, pi_error *err);
/* All sessions of the context must be gone. */
PI_API void pi_context_destroy(pi_context *context);

/* What became of the wish for a GPU. */
typedef struct pi_placement {
    const char *device;      /* what has work: "cpu", "cuda", "cpu+cuda", ...; a static string */
    const char *device_name; /* "NVIDIA GeForce RTX 4090"; "" without a GPU */
    const char *reason;      /* why no GPU is used; NULL: one is, or none was asked for */
    pi_status status;        /* of that reason: PI_ERR_NOT_FOUND when there is none */
    int32_t n_layers, gpu_layers; /* all; those whose attention and KV cache are on the GPU */
    bool head_on_gpu;
    double neuron_share;  /* of all feed-forward neurons, those that the GPU owns */
    uint64_t gpu_weights; /* bytes of GPU memory, by what for: */
    uint64_t gpu_scratch;
    uint64_t gpu_kv;      /* of n_ctx positions; sessions allocate it */
    uint64_t gpu_runtime; /* driver and kernels; an estimate */
    uint64_t gpu_budget;  /* in which all of these are */
} pi_placement;

typedef struct pi_layer_placement {
    bool attention_on_gpu;
    int64_t n_hot, n_neurons; /* the GPU owns the first n_hot, the processor the others */
} pi_layer_placement;

/* Strings live as long as the context. A GPU that is lost later, or has no room for a session, is
 * given up: sessions keep what they hold, and answers stay the same. */
PI_API void pi_context_get_placement(const pi_context *context, pi_placement *out);
PI_API void pi_context_get_layer(const pi_context *context, int32_t layer, pi_layer_placement *out);

/* Sessions: powerinfer_session.h. */

/* ---- forward -------------------------------------------------------------------------------- */

typedef enum pi_logits_wanted { PI_LOGITS_NONE, PI_LOGITS_LAST, PI_LOGITS_ALL } pi_logits_wanted;

typedef struct pi_input {
    pi_session *session;   /* of this context; at most once per call */
    const int32_t *tokens; /* [n_tokens], appended at the session's end */
    int32_t n_tokens;      /* >= 1; more than n_batch are fed in several passes */
    pi_logits_wanted logits;
} pi_input;

/* Feeds every input's tokens; all inputs share the passes over the weights. Afterwards the sessions
 * are longer by their tokens. On any error no session has changed. PI_ERR_RANGE: a token id outside
 * the vocabulary, or the model gave values that are NaN or infinite (the message names the layer);
 * PI_ERR_ARG: no tokens, `logits` is none of the above, a session of another context or twice, a
 * forked process; PI_ERR_LIMIT: a session or the logits have no room; PI_ERR_CANCELLED;
 * PI_ERR_DEVICE: the GPU was lost. */
PI_API pi_status pi_forward(pi_context *context, const pi_input *inputs, int32_t n_inputs,
                            pi_error *err);

/* Logits of the last pi_forward, [n_vocab] float32, valid until the next one. Rows are in the order
 * of the inputs: one for PI_LOGITS_LAST, n_tokens for PI_LOGITS_ALL. */
PI_API const float *pi_logits(const pi_context *context, int32_t row);
PI_API int32_t pi_logits_rows(const pi_context *context);

/* Makes a pi_forward in progress (or the next one) return PI_ERR_CANCELLED. May be called from a
 * signal handler or another thread. */
PI_API void pi_context_cancel(pi_context *context);

/* What passes have read and done since the context was made; differences tell about one token. */
typedef struct pi_counters {
    uint64_t passes, tokens;
    uint64_t weight_bytes;    /* of weights read from memory, all kinds */
    uint64_t ffn_bytes;       /* of these, feed-forward weights (predictors apart) */
    uint64_t ffn_total_bytes; /* what dense passes would have read of them */
    uint64_t gathered_bytes;  /* of ffn_bytes, rows of single neurons that lay apart in memory */
    uint64_t kv_bytes;        /* of KV cache read */
} pi_counters;
PI_API void pi_context_get_counters(const pi_context *context, pi_counters *counters);
/* Name of the kernels in use ("avx512") and the number of threads for single tokens. */
PI_API const char *pi_context_kernels(const pi_context *context);
/* The mode that most feed-forward layers run in: "dense", "exact", "predict", "threshold". */
PI_API const char *pi_context_mode(const pi_context *context);
/* Relative rise of the perplexity in the mode in use, as measured when the model was prepared:
 * 0.004 for 0.4%; 0: lossless; NAN: not known (not measured, or not with this threshold). */
PI_API double pi_context_loss(const pi_context *context);
PI_API int32_t pi_context_threads(const pi_context *context);

/* ---- sampling ------------------------------------------------------------------------------- */

typedef struct pi_sampler pi_sampler;

/* Added to the logit of one token; -INFINITY bans it. */
typedef struct pi_logit_bias {
    int32_t token;
    float bias;
} pi_logit_bias;

/* The samplers between logit bias, which is always first, and the draw; in llama.cpp's order. */
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
    PI_SAMPLER_KINDS /* how many there are */
} pi_sampler_kind;

enum { PI_SAMPLER_CHAIN_MAX = 32 };

/* Names, meanings, defaults and order are llama.cpp's: logit bias, the samplers of `samplers`, a
 * draw; with mirostat: logit bias, temperature, mirostat. A temperature of 0 takes the best score
 * after logit bias, penalties and DRY. At least one token is always left. Arrays and strings are
 * copied by pi_sampler_create. */
typedef struct pi_sampler_options {
    /* [n_samplers], in the order in which they are applied; one that is left out is off, whatever
     * its own options say, and one may come twice. NULL: all, in the order of pi_sampler_kind. */
    const pi_sampler_kind *samplers;
    size_t n_samplers;    /* <= PI_SAMPLER_CHAIN_MAX; 0 with an array: logit bias and draw only */
    float temp;           /* 0.8; <= 0: the most likely token, deterministic */
    float dynatemp_range; /* 0: off; else temp -+ this, by the entropy of the distribution */
    float dynatemp_exponent; /* 1; of the share of the greatest entropy */
    int32_t top_k;           /* 40: the most likely tokens; <= 0: off */
    float top_p;             /* 0.95: the most likely tokens that hold this mass; >= 1: off */
    float min_p;             /* 0.05: tokens at least so likely, relative to the best; 0: off */
    float typical_p;         /* 1: off; below, the most typical tokens that hold this mass */
    float top_n_sigma;       /* -1: tokens whose logit is at most so many standard deviations of all
                                logits       below the best; <= 0: off */

    /* Penalties on the tokens of the last repeat_last_n. */
    float repeat_penalty;    /* 1: off; divides positive scores, multiplies negative ones */
    int32_t repeat_last_n;   /* 64; 0: off, -1: the whole history */
    float presence_penalty;  /* 0: off; taken off a score once */
    float frequency_penalty; /* 0: off; taken off for each time the token was there */

    /* XTC: with this chance per token, all but the least of the tokens that reach the threshold
     * are left out. */
    float xtc_probability; /* 0: off */
    float xtc_threshold;   /* 0.1; > 0.5: off */

    /* DRY: a token that continues a repeated sequence of L >= dry_allowed_length tokens loses
     * dry_multiplier * dry_base ^ (L - dry_allowed_length). */
    float dry_multiplier;            /* 0: off */
    float dry_base;                  /* 1.75; < 1: off */
    int32_t dry_allowed_length;      /* 2 */
    int32_t dry_last_n;              /* tokens looked at; 0: off, -1: as many as n_ctx_train */
    const char *const *dry_breakers; /* [n_dry_breakers] texts that no sequence goes across; */
    size_t n_dry_breakers;           /* NULL: "\n", ":", "\"", "*" */

    /* Mirostat takes the place of all filters: it keeps the surprise per token near a target. */
    int32_t mirostat;   /* 0: off; 1, 2: version */
    float mirostat_tau; /* 5: the target, in bits */
    float mirostat_eta; /* 0.1: learning rate */

    const pi_logit_bias *logit_bias; /* [n_logit_bias]; several for one token add up */
    size_t n_logit_bias;
    bool ignore_eos; /* tokens that end a text are never sampled */
    uint64_t seed;   /* UINT64_MAX: from the system's entropy */
} pi_sampler_options;

PI_API pi_sampler_options pi_sampler_default_options(void);

/* PI_ERR_ARG (a value that is NaN or negative where it cannot be, a token that does not exist),
 * PI_ERR_UNSUPPORTED (dry_breakers given, but the model has no tokenizer), PI_ERR_NOMEM. */
PI_API pi_status pi_sampler_create(const pi_model *model, const pi_sampler_options *options,
                                   pi_sampler **out, pi_error *err);
PI_API void pi_sampler_destroy(pi_sampler *sampler);
/* Puts a token of the prompt into the history. Sampled tokens enter by themselves. */
PI_API void pi_sampler_accept(pi_sampler *sampler, int32_t token);
/* logits: [n_vocab], not changed. NaN counts as -inf; token 0 when all are -inf. */
PI_API int32_t pi_sampler_sample(pi_sampler *sampler, const float *logits);
/* The seed in use, also when it came from entropy. */
PI_API uint64_t pi_sampler_seed(const pi_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
