/* powerinfer.h: run large language models on ordinary machines.
 *
 *   model    an opened file: hyperparameters, vocabulary, mapped weights. Immutable; share it
 *            between threads.
 *   context  the working memory of one plan: activations, logits, worker threads. For one thread at
 *            a time.
 *   session  one sequence: KV cache and position. Belongs to its context. Any number per context.
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
 * After fork() the child can use models, but contexts and sessions only to destroy them: their
 * threads stay with the parent. Other calls return PI_ERR_ARG.
 *
 * Errors: functions that can fail return a pi_status and fill an optional pi_error; see
 * powerinfer_status.h. Invalid pointers and other programmer errors assert. The library never
 * prints, exits or aborts because of its input. Strings are NUL-terminated UTF-8 unless a length is
 * given. Free functions accept NULL.
 *
 * Options structs: start from the defaults function, change fields; NULL means all defaults. */
#ifndef POWERINFER_H
#define POWERINFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_activity.h"
#include "powerinfer_grammar.h"
#include "powerinfer_memory.h"
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

/* Called on the calling thread a few times a second; fraction in 0..1. Return false to cancel. */
typedef bool (*pi_progress)(void *user, const char *stage, double fraction);

typedef struct pi_model_options {
    bool no_mmap;       /* copy the weights into huge pages instead of mapping the file */
    bool mlock;         /* lock the weights in RAM */
    bool vocab_only;    /* load the tokenizer only: no tensors needed, no contexts possible */
    bool check_tensors; /* check all weights for NaN and infinity; not with vocab_only */
    const char *pre;    /* pre-tokenizer name that overrides the file's; NULL: the file's */
    const pi_metadata_override *overrides; /* [n_overrides]; the last one for a key counts */
    const pi_adapter *adapters;            /* [n_adapters] LoRA, merged; not with vocab_only */
    size_t n_overrides, n_adapters;        /* <= 1024 */
    pi_progress progress;                  /* of copying and locking, by bytes; NULL: none */
    void *progress_user;
} pi_model_options;

PI_API pi_model_options pi_model_default_options(void);

/* Opens a GGUF file (one part of a split model finds the others). PI_ERR_IO, PI_ERR_FORMAT (what is
 * wrong and where), PI_ERR_UNSUPPORTED (architecture, type, version), PI_ERR_NOT_FOUND (vocab_only
 * of a file without a vocabulary), PI_ERR_RANGE (check_tensors), PI_ERR_ARG (an override whose
 * type differs from the file's), PI_ERR_NOMEM, PI_ERR_CANCELLED (by `progress`). */
PI_API pi_status pi_model_open(const char *path, const pi_model_options *options, pi_model **out,
                               pi_error *err);
/* The same from the bytes of an unsplit file, which must stay valid until the model is closed and
 * be aligned to 32 bytes, else PI_ERR_ARG. With no_mmap they are copied, and neither is needed. */
PI_API pi_status pi_model_open_memory(const void *data, size_t n_bytes,
                                      const pi_model_options *options, pi_model **out,
                                      pi_error *err);
/* Destroy all contexts and samplers of the model first. */
PI_API void pi_model_close(pi_model *model);
/* Path of the open model whose mapping contains `address`, or NULL. For SIGBUS handlers (si_addr):
 * when a mapped file is truncated, reading the weights raises SIGBUS in the reading thread; the
 * library installs no handler. Async-signal-safe. pi_model_options.no_mmap avoids the problem. */
PI_API const char *pi_mapped_file(const void *address);

typedef struct pi_model_info {
    const char *name;         /* general.name, or "" */
    const char *architecture; /* "llama" */
    const char *type;         /* the most common type of the weights: "q4_0" */
    int32_t n_layer, n_embd, n_vocab;
    int32_t n_ff, n_head, n_head_kv; /* the largest over layers */
    int32_t n_ctx_train;             /* context length of training, tokens */
    uint64_t n_params;               /* elements of all weights */
    uint64_t weight_bytes;           /* bytes of all weights */
    bool has_tokenizer;
    int32_t token_bos, token_eos; /* -1: none */
    bool add_bos;                 /* a text starts with BOS */
    bool recurrent;               /* sessions keep snapshots only: see pi_session_rewind_point */
} pi_model_info;

/* The strings are valid until the model is closed. */
PI_API void pi_model_get_info(const pi_model *model, pi_model_info *info);

/* ---- text and tokens ------------------------------------------------------------------------ */

enum {
    PI_TOKENIZE_BOS = 1,       /* add BOS (and EOS) if the model's metadata says so */
    PI_TOKENIZE_FORCE_BOS = 2, /* add BOS in any case */
    PI_TOKENIZE_SPECIAL = 4,   /* parse control tokens in the text ("<|im_end|>") */
    PI_TOKENIZE_STOP = 8       /* stop once there are more than `capacity` tokens */
};

/* Writes at most `capacity` ids; *n_tokens is the number of tokens of the text, so a call with
 * capacity 0 counts them. Most texts have fewer tokens than bytes, the worst case is three per
 * byte. PI_ERR_LIMIT: capacity is too small (with PI_TOKENIZE_STOP *n_tokens is a lower bound
 * then); PI_ERR_UNSUPPORTED: the model has no tokenizer. Any bytes are accepted as text.
 * Thread-safe. */
PI_API pi_status pi_tokenize(const pi_model *model, const char *text, size_t n_text, uint32_t flags,
                             int32_t *tokens, size_t capacity, size_t *n_tokens, pi_error *err);

/* Bytes of one token as it appears inside a text: possibly an incomplete UTF-8 sequence, not
 * NUL-terminated. Control tokens have no bytes unless `special`. PI_ERR_RANGE: id outside the
 * vocabulary; PI_ERR_LIMIT: capacity is below *n_bytes, which is always set. */
PI_API pi_status pi_token_text(const pi_model *model, int32_t token, bool special, char *text,
                               size_t capacity, size_t *n_bytes, pi_error *err);

/* Text of a sequence, the inverse of pi_tokenize (a leading space that the tokenizer added is
 * removed). *n_bytes is always set; PI_ERR_LIMIT: capacity is below it. */
PI_API pi_status pi_detokenize(const pi_model *model, const int32_t *tokens, size_t n_tokens,
                               bool special, char *text, size_t capacity, size_t *n_bytes,
                               pi_error *err);

/* True for end-of-generation tokens (EOS, EOT, ...). */
PI_API bool pi_token_is_end(const pi_model *model, int32_t token);

/* ---- context -------------------------------------------------------------------------------- */

typedef struct pi_context pi_context;

typedef enum pi_kernels {
    PI_KERNELS_AUTO,   /* the best that this CPU supports */
    PI_KERNELS_SCALAR, /* float reference: slow, activations not quantized */
    PI_KERNELS_AVX2,
    PI_KERNELS_AVX512,
    PI_KERNELS_NEON
} pi_kernels;

/* How FFN layers are computed, see docs/sparse.md. */
typedef enum pi_mode {
    PI_MODE_AUTO,     /* the fastest by a cost model, loss within max_loss */
    PI_MODE_DENSE,    /* all neurons */
    PI_MODE_EXACT,    /* skip up and down of inactive neurons; lossless */
    PI_MODE_PREDICT,  /* only the neurons that the predictor selects */
    PI_MODE_THRESHOLD /* treat small activations as zero */
} pi_mode;

/* Those of four and five bits rotate heads before they are quantized, see docs/performance.md. */
typedef enum pi_cache_type {
    PI_CACHE_F16,
    PI_CACHE_F32,
    PI_CACHE_Q8_0,
    PI_CACHE_BF16,
    PI_CACHE_Q4_0,
    PI_CACHE_Q4_1,
    PI_CACHE_Q5_0,
    PI_CACHE_Q5_1,
    PI_CACHE_IQ4_NL
} pi_cache_type;

/* GPU backends (docs/gpu.md), best first: ROW(ID of PI_DEVICE_ID, NAME of --device and of
 * libpowerinfer_NAME.so, title, whether its GPUs are real: PI_DEVICE_AUTO ignores others). */
#define PI_BACKENDS(ROW)                                                                           \
    ROW(CUDA, "cuda", "CUDA", true)                                                                \
    ROW(HIP, "hip", "HIP", true)                                                                   \
    ROW(SIM, "sim", "the simulated GPU", false)

typedef enum pi_device_choice {
    PI_DEVICE_AUTO, /* the best GPU found */
    PI_DEVICE_CPU,
#define PI_DEVICE_ROW(id, name, title, real) PI_DEVICE_##id,
    PI_BACKENDS(PI_DEVICE_ROW) /* PI_DEVICE_CUDA, PI_DEVICE_HIP, PI_DEVICE_SIM */
#undef PI_DEVICE_ROW
    PI_DEVICE_COUNT
} pi_device_choice;

#define PI_VRAM_FREE UINT64_MAX

enum { PI_MAX_DEVICES = 8 }; /* GPUs of a context */

typedef struct pi_context_options {
    int32_t n_threads;       /* for decode; 0: physical (performance) cores */
    int32_t n_threads_batch; /* for prefill; 0: as n_threads */
    bool pin_threads;        /* pin each worker thread to one of the allowed CPUs */
    int32_t n_batch;         /* maximum tokens per ubatch; default 512 */
    int32_t n_logits;        /* maximum rows of logits per call; 0: n_batch, within 64 MB */
    pi_kernels kernels;
    pi_mode mode;    /* layers without the data that a mode needs run in a lossless one */
    float max_loss;  /* for PI_MODE_AUTO: relative increase of perplexity; default 0.01, 1% */
    float threshold; /* predictor threshold; NAN (default): the model's */
    pi_cache_type cache_k, cache_v; /* type of the sessions' KV caches; default F16 */
    /* With PI_DEVICE_AUTO everything runs on the CPU when no GPU is found or usable (see
     * pi_context_get_placement); a named device is used or creation fails. When the GPU is lost
     * later, the context falls back to the CPU in both cases. */
    pi_device_choice device;
    /* Of a named kind of device, as pi_devices lists them. 0 (default): the fastest, by bandwidth
     * and by how much of the model fits. Several split the layers, in this order. */
    int32_t n_devices, devices[PI_MAX_DEVICES];
    /* Proportion of the model for each device; all 0 (default): by free memory. Without n_devices
     * the first devices are used, up to the last nonzero proportion; 0: not used. */
    float tensor_split[PI_MAX_DEVICES];
    uint64_t vram_budget; /* memory to use of each GPU, bytes; 0: none; PI_VRAM_FREE (default): free
                             memory minus a margin */
    int32_t gpu_layers;   /* -1 (default): the fastest placement; N >= 0: offload the last N layers,
                             as many as fit; N > n_layer also offloads the output head */
    int32_t n_ctx; /* positions, of all sessions together, to reserve memory for; 0: the smaller of
                      n_ctx_train and 8192 */
    uint64_t ram_budget; /* memory to use, bytes: weights beyond it are read from the drive when
                            needed; PI_RAM_FREE (default), PI_RAM_MAPPED: powerinfer_memory.h */
    const char *backend_folder; /* of libpowerinfer_cuda.so etc.; NULL: the default folders */
    const char *machine; /* file written by `powerinfer place --measure`; NULL or missing: published
                            bandwidths */
    bool adapt;          /* move experts between CPU and GPU as the text uses them */
    /* Parts that stay on the CPU (docs/placement.md): tensors whose names match, [n_overrides]
     * texts "REGEX=CPU,..." as in llama.cpp's --override-tensor; the experts of the first
     * cpu_experts layers; the neurons of dense FFNs in the first cpu_ffn layers. */
    const char *const *overrides;
    int32_t n_overrides, cpu_experts, cpu_ffn;
    /* The results of a token are equal, bit for bit, however its text is split into calls and
     * whichever other sessions the call evaluates. Prefill is slower: all ubatches run the kernels
     * of decode, with at most 8 tokens (one token with a GPU or recurrent layers). Excludes
     * `adapt`. */
    bool deterministic;
    /* Measure for ubatches of a few sessions whether selected or all neurons are faster, and run
     * the faster form. Results then depend on timing; without it, equal calls give equal results
     * in every run. */
    bool timed_forms;
} pi_context_options;

PI_API pi_context_options pi_context_default_options(void);

/* PI_ERR_ARG, PI_ERR_NOMEM. A named choice that is not available is an error, never replaced
 * silently: PI_ERR_UNSUPPORTED for kernels that this CPU does not support and for a mode that no
 * layer has the data for; PI_ERR_NOT_FOUND, PI_ERR_LIMIT (memory), PI_ERR_DEVICE, ... for a device.
 * The auto choices never fail for these reasons. */
PI_API pi_status pi_context_create(const pi_model *model, const pi_context_options *options,
                                   pi_context **out, pi_error *err);
/* Destroy all sessions of the context first. */
PI_API void pi_context_destroy(pi_context *context);

/* The actual placement, and why a GPU is not used. */
typedef struct pi_placement {
    const char *device;      /* devices in use: "cpu", "cuda", "cpu+cuda", ...; a static string */
    const char *device_name; /* "NVIDIA GeForce RTX 4090", the first one; "" without a GPU */
    int32_t n_devices;       /* GPUs; what follows is of all of them */
    const char *reason;      /* why no GPU is used; NULL: one is, or none was requested */
    pi_status status;        /* of that reason: PI_ERR_NOT_FOUND when no GPU was found */
    int32_t n_layers, gpu_layers; /* all layers; those with attention and KV cache on the GPU */
    bool head_on_gpu;
    double neuron_share;               /* fraction of all FFN neurons that is on the GPU */
    uint64_t gpu_weights, gpu_scratch; /* GPU memory, bytes: weights; buffers */
    uint64_t gpu_kv;                   /* KV cache of n_ctx positions; sessions allocate it */
    uint64_t gpu_programs;             /* recorded programs; an estimate */
    uint64_t gpu_runtime;              /* driver and kernels; an estimate */
    uint64_t gpu_budget;               /* upper bound of the sum of these */
} pi_placement;

/* One of the GPUs: layers [first_layer, end_layer) are shared between it and the CPU. */
typedef struct pi_device_placement {
    const char *name;
    int32_t index; /* as pi_devices lists them */
    int32_t first_layer, end_layer;
    uint64_t bytes, budget; /* of its memory: upper bound of what is used, and of that */
} pi_device_placement;

typedef struct pi_layer_placement {
    bool attention_on_gpu;
    int32_t device;           /* the GPU, from 0 on, of the placement's n_devices */
    int64_t n_hot, n_neurons; /* [0, n_hot) are on GPUs (the hot prefix), the rest on the CPU */
    int64_t n_own;            /* of these the first ones, on `device`; others are on other GPUs */
} pi_layer_placement;

/* Strings are valid until the context is destroyed. When the GPU is lost later, or has no memory
 * for a session, the context falls back to the CPU: sessions keep their tokens, results stay the
 * same. */
PI_API void pi_context_get_placement(const pi_context *context, pi_placement *out);
PI_API void pi_context_get_device(const pi_context *context, int32_t device,
                                  pi_device_placement *out);
PI_API void pi_context_get_layer(const pi_context *context, int32_t layer, pi_layer_placement *out);

/* Sessions: powerinfer_session.h. */

/* ---- forward -------------------------------------------------------------------------------- */

typedef enum pi_logits_wanted { PI_LOGITS_NONE, PI_LOGITS_LAST, PI_LOGITS_ALL } pi_logits_wanted;
typedef enum pi_hidden_wanted { PI_HIDDEN_NONE, PI_HIDDEN_LAST, PI_HIDDEN_ALL } pi_hidden_wanted;

typedef struct pi_input {
    pi_session *session;   /* of this context; at most once per call */
    const int32_t *tokens; /* [n_tokens], appended at the session's end */
    int32_t n_tokens;      /* >= 1; more than n_batch are split into ubatches */
    pi_logits_wanted logits;
    pi_hidden_wanted hidden; /* hidden states; without logits the output matrix is not read */
    /* Of the tokens the last ones, which the caller may take back (speculative decoding); 0 ..
     * n_tokens - 1. PI_LOGITS_LAST gives a row for the token before them and for each of them.
     * The session can be rewound to where they begin, recurrent layers included. */
    int32_t n_drafts;
} pi_input;

/* Evaluates every input's tokens and appends them to its session; tokens of all inputs share
 * ubatches. On any error no session has changed. PI_ERR_RANGE: a token id outside the vocabulary,
 * or NaN or infinite activations (the message names the layer); PI_ERR_ARG: no tokens, an invalid
 * `logits`, `hidden` or `n_drafts`, a session of another context or given twice, a forked process;
 * PI_ERR_LIMIT: a session is full, more than n_logits rows of logits or n_batch of hidden states;
 * PI_ERR_CANCELLED; PI_ERR_DEVICE: the GPU was lost. */
PI_API pi_status pi_forward(pi_context *context, const pi_input *inputs, int32_t n_inputs,
                            pi_error *err);

/* One row of logits of the last pi_forward, [n_vocab] float32, valid until the next one. Rows are
 * in the order of the inputs: 1 + n_drafts for PI_LOGITS_LAST, n_tokens for PI_LOGITS_ALL. */
PI_API const float *pi_logits(const pi_context *context, int32_t row);
PI_API int32_t pi_logits_rows(const pi_context *context);
/* The same for hidden states, [n_embd] float32: the residual stream after the last layer and norm,
 * which the output matrix multiplies. Pooled, they are the embedding of a text. */
PI_API const float *pi_hidden(const pi_context *context, int32_t row);
PI_API int32_t pi_hidden_rows(const pi_context *context);

/* Makes a pi_forward in progress (or the next one) return PI_ERR_CANCELLED. May be called from a
 * signal handler or another thread. */
PI_API void pi_context_cancel(pi_context *context);

/* Work done since the context was created. */
typedef struct pi_counters {
    uint64_t ubatches, tokens;
    uint64_t weight_bytes;    /* weights read from memory, all kinds */
    uint64_t ffn_bytes;       /* part of it: FFN weights, without predictors */
    uint64_t ffn_total_bytes; /* FFN weights that dense mode would have read */
    uint64_t gathered_bytes;  /* part of ffn_bytes: non-contiguous rows of single neurons */
    uint64_t kv_bytes;        /* KV cache read, and recurrent state */
    uint64_t expert_swaps;    /* experts that `adapt` has moved to the GPU */
} pi_counters;
PI_API void pi_context_get_counters(const pi_context *context, pi_counters *counters);
/* Name of the kernels in use: "avx512". */
PI_API const char *pi_context_kernels(const pi_context *context);
/* The mode that most FFN layers run in: "dense", "exact", "predict", "threshold". */
PI_API const char *pi_context_mode(const pi_context *context);
/* Relative increase of perplexity in the mode in use, as measured by prepare: 0.004 for 0.4%; 0:
 * lossless; NAN: not measured (with this threshold). */
PI_API double pi_context_loss(const pi_context *context);
/* Number of threads for decode. */
PI_API int32_t pi_context_threads(const pi_context *context);

/* ---- sampling ------------------------------------------------------------------------------- */

typedef struct pi_sampler pi_sampler;

/* Added to the logit of one token; -INFINITY bans it. */
typedef struct pi_logit_bias {
    int32_t token;
    float bias;
} pi_logit_bias;

/* The samplers between logit bias, which is always first, and the random draw; llama.cpp's order.
 */
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
 * random draw; with mirostat: logit bias, temperature, mirostat. A temperature of 0 is greedy,
 * after logit bias, penalties and DRY. Filters always keep at least one token. Arrays and strings
 * are copied by pi_sampler_create. */
typedef struct pi_sampler_options {
    /* [n_samplers], applied in this order; one that is left out is off, and one may come twice.
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

    /* XTC: with this probability, removes all tokens above the threshold but the least likely. */
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
    /* NULL: none. A grammar of this model; masks the logits before the chain. Where it allows only
     * end-of-generation tokens, one is sampled whatever the other options say. */
    pi_grammar *grammar;
} pi_sampler_options;

PI_API pi_sampler_options pi_sampler_default_options(void);

/* PI_ERR_ARG (a NaN, a negative value where none is allowed, a token that does not exist, a grammar
 * of another model),
 * PI_ERR_UNSUPPORTED (dry_breakers given, but the model has no tokenizer), PI_ERR_NOMEM. */
PI_API pi_status pi_sampler_create(const pi_model *model, const pi_sampler_options *options,
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
