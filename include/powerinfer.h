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
 *     pi_model *model; pi_context *context; pi_session *session; pi_generated result;
 *     pi_model_open("model.gguf", NULL, &model, NULL);
 *     pi_context_create(model, NULL, &context, NULL);
 *     pi_session_create(context, 4096, &session, NULL);
 *     pi_generate_options options = pi_generate_default_options();
 *     options.prompt = "Once upon a time";
 *     options.piece = print; // bool print(void *user, int32_t token, const char *text, size_t n)
 *     pi_generate(context, session, &options, &result, NULL);
 *
 * pi_generate samples with default options; pi_sampler_create makes another sampler. A program with
 * its own loop calls pi_tokenize, pi_forward, pi_sampler_sample; see powerinfer_generation.h.
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
#include "powerinfer_cluster.h"
#include "powerinfer_grammar.h"
#include "powerinfer_memory.h"
#include "powerinfer_metadata.h"
#include "powerinfer_placement.h"
#include "powerinfer_sampler.h"
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
    /* True: each context merges the adapters into its own layers when it is created (for ranks of a
     * cluster). False (default): they are merged into all layers when the model is opened. */
    bool adapters_by_context;
    size_t n_overrides, n_adapters; /* <= 1024 */
    pi_progress progress;           /* of copying and locking, by bytes; NULL: none */
    void *progress_user;
} pi_model_options;

PI_API pi_model_options pi_model_default_options(void);

/* Opens a GGUF file (one part of a split model finds the others). PI_ERR_IO, PI_ERR_FORMAT (what is
 * wrong and where), PI_ERR_UNSUPPORTED (architecture, type, version), PI_ERR_NOT_FOUND (vocab_only
 * of a file without a vocabulary), PI_ERR_RANGE (check_tensors), PI_ERR_ARG (an override whose
 * type differs from the file's), PI_ERR_NOMEM, PI_ERR_CANCELLED (by `progress`). */
PI_API pi_status pi_model_open(const char *path, const pi_model_options *options, pi_model **out,
                               pi_error *err);
/* Opens an unsplit file in memory. The bytes must stay valid until the model is closed and be
 * aligned to 32 bytes (else PI_ERR_ARG); with no_mmap, which copies them, neither is required. */
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
    int32_t n_draft_layer;        /* layers for multi-token prediction: see pi_model_open_drafter;
                                     heads: number of such layers in the head's file */
    bool is_drafter;              /* a head */
    int32_t n_features;           /* heads: floats of a token's features (pi_session_features) */
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
    PI_MODE_AUTO,     /* the fastest as pi_tune measured on this machine, else by a cost model;
                         loss within max_loss */
    PI_MODE_DENSE,    /* all neurons */
    PI_MODE_EXACT,    /* skip up and down of inactive neurons; lossless */
    PI_MODE_PREDICT,  /* only the neurons that the predictor selects */
    PI_MODE_THRESHOLD /* treat small activations as zero */
} pi_mode;

/* Which rows of the output matrix are read, see docs/sparse.md. */
typedef enum pi_head {
    PI_HEAD_AUTO,   /* PREDICT, where it is faster by the cost model (or as pi_tune measured) and
                       the measured losses of head and mode are within max_loss; else DENSE */
    PI_HEAD_DENSE,  /* all */
    PI_HEAD_PREDICT /* those of the tokens that the model's predictor selects; on a GPU all */
} pi_head;

/* Types of four and five bits rotate heads before they quantize them: docs/performance.md. */
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
    ROW(VULKAN, "vulkan", "Vulkan", true)                                                          \
    ROW(SIM, "sim", "the simulated GPU", false)

typedef enum pi_device_choice {
    PI_DEVICE_AUTO, /* the best GPU found, or several of its kind */
    PI_DEVICE_CPU,
#define PI_DEVICE_ROW(id, name, title, real) PI_DEVICE_##id,
    PI_BACKENDS(PI_DEVICE_ROW) /* PI_DEVICE_CUDA, PI_DEVICE_HIP, PI_DEVICE_SIM */
#undef PI_DEVICE_ROW
    PI_DEVICE_COUNT
} pi_device_choice;

#define PI_VRAM_FREE UINT64_MAX

enum { PI_MAX_DEVICES = 8, PI_DEVICES_AS_NEEDED = -1 }; /* GPUs of a context */

enum { PI_ATTN_BLOCKS_AUTO = -1 };

enum { PI_MAX_BATCH = 8192 /* tokens */ };

typedef struct pi_context_options {
    /* For decode; 0: as pi_tune stored for this machine, else the physical (performance) cores. */
    int32_t n_threads;
    int32_t n_threads_batch; /* for prefill; 0: as n_threads */
    bool pin_threads;        /* pin each worker thread to one of the allowed CPUs */
    int32_t n_batch;         /* maximum tokens per ubatch, 1 to PI_MAX_BATCH; default 512 */
    /* If prefill copies weights to the GPU for every ubatch, and larger ubatches are predicted to
     * be faster, the context has ubatches of up to this many tokens; 0 (default): n_batch. */
    int32_t max_batch;
    int32_t n_logits; /* maximum rows of logits per call; 0: n_batch, at most 64 MB */
    pi_kernels kernels;
    pi_mode mode; /* layers without the data that a mode needs run in a lossless one */
    pi_head head; /* PI_HEAD_PREDICT needs a model with a predictor */
    /* For the auto choices: relative increase of perplexity; default 0.01, 1%; 0: only lossless
     * modes, whatever was measured. */
    float max_loss;
    float threshold;                /* predictor threshold; NAN (default): the model's */
    pi_cache_type cache_k, cache_v; /* type of the sessions' KV caches; default F16 */
    /* Decode attends to this many blocks of 16 positions, 4 or more, in layers on the CPU: the
     * first, the last two, and those with the highest scores (docs/sparse.md). Layers with a
     * window, compressed attention or an index do not change. 0: all positions.
     * PI_ATTN_BLOCKS_AUTO (default): as many as pi_tune stored for this machine, if their loss is
     * within max_loss and n_ctx is not larger than the tuned context; else all positions. */
    int32_t attn_blocks;
    /* With PI_DEVICE_AUTO everything runs on the CPU when no GPU is found or usable (see
     * pi_context_get_placement); a named device is used or creation fails. When the GPU is lost
     * later, the context falls back to the CPU in both cases. */
    pi_device_choice device;
    /* Indices of devices of a named kind, as pi_devices lists them; several devices split the
     * layers, in this order. n_devices 0 (default): the fastest device, by bandwidth and by how
     * much of the model fits. PI_DEVICES_AS_NEEDED, and 0 with PI_DEVICE_AUTO: one device if the
     * model fits into it, else as many as hold the model. */
    int32_t n_devices, devices[PI_MAX_DEVICES];
    /* Proportion of the model for each device; all 0 (default): by free memory. With n_devices 0,
     * the first devices are used, up to the last nonzero proportion; 0: not used. */
    float tensor_split[PI_MAX_DEVICES];
    uint64_t vram_budget; /* memory to use of each GPU, bytes; 0: no GPU; PI_VRAM_FREE (default):
                             free memory minus a margin */
    int32_t gpu_layers;   /* -1 (default): the fastest placement; N >= 0: offload the last N layers,
                             as many as fit; N > n_layer also offloads the output head */
    int32_t n_ctx; /* positions of all sessions together to reserve memory for; 0: the smaller of
                      n_ctx_train and 8192 */
    /* Host memory to use, bytes: weights beyond it are read from the drive when needed;
     * PI_RAM_FREE (default), PI_RAM_MAPPED: powerinfer_memory.h. */
    uint64_t ram_budget;
    /* With ram_budget, where the CPU routes: decode uses experts in memory in place of selected
     * ones that are not. The sum of the router's probabilities of a token's experts falls by at
     * most this fraction, 0 (default: off) to 1. Results depend on earlier calls (docs/memory.md).
     * Excludes `deterministic`. */
    float expert_slack;
    const char *backend_folder; /* of libpowerinfer_cuda.so etc.; NULL: the default folders */
    const char *machine; /* file written by `powerinfer place --measure`; NULL or missing: published
                            bandwidths */
    bool adapt;          /* move experts and neurons between CPU and GPU as the text uses them */
    /* Parts that stay on the CPU (docs/placement.md): tensors whose names match, [n_overrides]
     * texts "REGEX=CPU,..." as in llama.cpp's --override-tensor; the experts of the first
     * cpu_experts layers; the neurons of dense FFNs in the first cpu_ffn layers. */
    const char *const *overrides;
    int32_t n_overrides, cpu_experts, cpu_ffn;
    pi_cluster *cluster; /* powerinfer_cluster.h; NULL (default): this machine has all layers */
    /* Results of a token are bit-identical, however its text is split into calls and whatever other
     * sessions a call evaluates. Prefill is slower: all ubatches run the kernels of decode, with at
     * most 8 tokens (one token with a GPU or recurrent layers). Excludes `adapt` and
     * `expert_slack`. */
    bool deterministic;
    /* In ubatches of a few sessions, measure whether sparse or dense FFNs are faster and run the
     * faster ones. Results then depend on timing; without this option and `expert_slack`, equal
     * calls give equal results in every run. */
    bool timed_forms;
    /* Sessions keep what this head reads of their tokens (powerinfer_speculate.h); it must outlive
     * the context. NULL (default): nothing. */
    const pi_model *drafter;
    /* Folder for files that make later starts faster: the compiled shaders of a Vulkan device. The
     * folder of the first context on a device is used. NULL (default): none. */
    const char *cache_folder;
} pi_context_options;

PI_API pi_context_options pi_context_default_options(void);

/* PI_ERR_ARG, PI_ERR_NOMEM. A named choice that is not available is an error, never replaced
 * silently: PI_ERR_UNSUPPORTED for kernels that this CPU does not support and for a mode or head
 * that the model has no data for; PI_ERR_NOT_FOUND, PI_ERR_LIMIT (memory), PI_ERR_DEVICE, ... for a
 * device. The auto choices never fail for these reasons. */
PI_API pi_status pi_context_create(const pi_model *model, const pi_context_options *options,
                                   pi_context **out, pi_error *err);
/* Destroy all sessions of the context first. */
PI_API void pi_context_destroy(pi_context *context);
PI_API const pi_model *pi_context_model(const pi_context *context);

/* Placement: powerinfer_placement.h. Sessions: powerinfer_session.h. */

/* ---- forward -------------------------------------------------------------------------------- */

typedef enum pi_logits_wanted { PI_LOGITS_NONE, PI_LOGITS_LAST, PI_LOGITS_ALL } pi_logits_wanted;
typedef enum pi_hidden_wanted { PI_HIDDEN_NONE, PI_HIDDEN_LAST, PI_HIDDEN_ALL } pi_hidden_wanted;

typedef struct pi_input {
    pi_session *session;   /* of this context; at most once per call */
    const int32_t *tokens; /* [n_tokens], appended at the session's end */
    int32_t n_tokens;      /* >= 1; more than n_batch are split into ubatches */
    pi_logits_wanted logits;
    pi_hidden_wanted hidden; /* hidden states; without logits the output matrix is not read */
    /* The last n_drafts tokens are drafts (speculative decoding), 0 .. n_tokens - 1: PI_LOGITS_LAST
     * gives a row for the token before them and for each of them, and the session can be rewound to
     * the first draft, even with recurrent layers. */
    int32_t n_drafts;
    /* Heads that draft: the features of each token (pi_session_features) [n_tokens][n_features];
     * for other models NULL. */
    const float *features;
} pi_input;

/* Evaluates every input's tokens and appends them to its session; tokens of all inputs share
 * ubatches. On any error no session has changed. PI_ERR_RANGE: a token id outside the vocabulary,
 * or NaN or infinite activations (the message names the layer); PI_ERR_ARG: no tokens, an invalid
 * `logits`, `hidden` or `n_drafts`, a session of another context or given twice, a forked process;
 * PI_ERR_LIMIT: a session is full, more than n_logits rows of logits or n_batch of hidden states;
 * PI_ERR_CANCELLED; PI_ERR_DEVICE: the GPU was lost. */
PI_API pi_status pi_forward(pi_context *context, const pi_input *inputs, int32_t n_inputs,
                            pi_error *err);
/* pi_forward in two calls: with stages on several machines (pi_context_options.cluster), up to
 * pi_context_passes passes may be under way, so that no machine waits. end ends the oldest one; its
 * rows of logits are valid until the next end. Until then its sessions must not be used, and
 * `inputs` with their tokens must stay valid. begin: PI_ERR_LIMIT: too many passes, or too many
 * tokens in them. */
PI_API pi_status pi_forward_begin(pi_context *context, const pi_input *inputs, int32_t n_inputs,
                                  pi_error *err);
PI_API pi_status pi_forward_end(pi_context *context, pi_error *err);
PI_API int32_t pi_context_passes(const pi_context *context); /* 1: no stages */

/* One row of logits of the last pi_forward, [n_vocab] float32, valid until the next one. Rows are
 * in the order of the inputs: 1 + n_drafts for PI_LOGITS_LAST, n_tokens for PI_LOGITS_ALL. */
PI_API const float *pi_logits(const pi_context *context, int32_t row);
PI_API int32_t pi_logits_rows(const pi_context *context);
/* One row of hidden states, [n_embd] float32, in the same order: the residual stream after the last
 * layer and norm, which the output matrix multiplies. Pooled, they are the embedding of a text. */
PI_API const float *pi_hidden(const pi_context *context, int32_t row);
PI_API int32_t pi_hidden_rows(const pi_context *context);

/* Makes a pi_forward in progress (or the next one) return PI_ERR_CANCELLED. May be called from a
 * signal handler or another thread. */
PI_API void pi_context_cancel(pi_context *context);

/* Work done since the context was created. */
typedef struct pi_counters {
    uint64_t ubatches, tokens;
    uint64_t weight_bytes;    /* weights read from memory, all kinds */
    uint64_t ffn_bytes;       /* part of weight_bytes: FFN weights, without predictors */
    uint64_t ffn_total_bytes; /* FFN weights that dense mode would have read */
    uint64_t gathered_bytes;  /* part of ffn_bytes: non-contiguous rows of single neurons */
    uint64_t kv_bytes;        /* KV cache read, and recurrent state */
    uint64_t expert_swaps;    /* experts that `adapt` has moved to the GPU */
    /* Neurons that `adapt` has moved to the GPU, each in exchange for another one, and the bytes
     * sent for them. */
    uint64_t neuron_swaps, neuron_swap_bytes;
    /* Layers with a sparse FFN, in ubatches of few tokens: active neurons (pi_activity_kind), and
     * those of them on GPUs. */
    uint64_t active_neurons, active_gpu_neurons;
} pi_counters;
PI_API void pi_context_get_counters(const pi_context *context, pi_counters *counters);
/* Name of the kernels in use: "avx512". */
PI_API const char *pi_context_kernels(const pi_context *context);
/* The mode that most FFN layers run in: "dense", "exact", "predict", "threshold". */
PI_API const char *pi_context_mode(const pi_context *context);
/* Relative increase of perplexity in the mode in use, as measured by prepare: 0.004 for 0.4%; 0:
 * lossless; NAN: not measured (with this threshold, or these attn_blocks). */
PI_API double pi_context_loss(const pi_context *context);
/* Whether only logits of tokens that the model's predictor selects are computed; *loss: as above,
 * of this alone. */
PI_API bool pi_context_predicts_head(const pi_context *context, double *loss);
/* Blocks of 16 positions that decode attends to, given or tuned; 0: all positions. */
PI_API int32_t pi_context_attn_blocks(const pi_context *context);
/* Number of threads for decode. */
PI_API int32_t pi_context_threads(const pi_context *context);
/* Maximum tokens per ubatch. */
PI_API int32_t pi_context_batch(const pi_context *context);

/* ---- generation ----------------------------------------------------------------------------- */

typedef enum pi_stop {
    PI_STOP_NONE,     /* not yet */
    PI_STOP_EOS,      /* an end-of-generation token, or the grammar allows nothing more */
    PI_STOP_LENGTH,   /* max_tokens tokens, or the session is full */
    PI_STOP_TEXT,     /* a stop text */
    PI_STOP_CANCELLED /* a callback returned false, or pi_context_cancel */
} pi_stop;

/* A text that ends a generation, 1..PI_STOP_TEXT_BYTES bytes. */
typedef struct pi_stop_text {
    const char *text;
    size_t n_bytes;
} pi_stop_text;
enum { PI_STOP_TEXTS = 64, PI_STOP_TEXT_BYTES = 1024 };

/* Receives every generated token except the end token, with the text that is final by now: complete
 * UTF-8 characters that no stop text can begin with; often n_bytes is 0. Text that is left at the
 * end comes with token -1. Returns false to stop. */
typedef bool (*pi_piece)(void *user, int32_t token, const char *text, size_t n_bytes);

typedef struct pi_generate_options {
    const char *prompt;    /* tokenized with BOS and control tokens; NULL: the prompt is `tokens` */
    const int32_t *tokens; /* [n_tokens >= 1]; tokens that the session holds must be the first ones
                              of the prompt: only the others are evaluated */
    int32_t n_tokens;
    struct pi_sampler *sampler; /* the prompt is added to its history; NULL: a new default one */
    int32_t max_tokens;         /* -1 (default): to the end of the text or the session */
    const pi_stop_text *stops;  /* [n_stops <= PI_STOP_TEXTS] */
    size_t n_stops;
    bool keep_stop; /* the text ends after the stop text; default: before it */
    bool shift; /* in a full session, keep the first n_keep tokens of the prompt, drop half of the
                   others, evaluate the rest again and continue */
    int32_t n_keep;
    struct pi_speculator *speculator; /* drafts for its text 0 (powerinfer_speculate.h); NULL: none.
                                         The context needs n_logits of 1 + n_max */
    pi_piece piece;                   /* NULL: no text is wanted */
    pi_progress progress;             /* after each pi_forward of the prompt; NULL: none */
    void *user;                       /* passed to both callbacks */
} pi_generate_options;

PI_API pi_generate_options pi_generate_default_options(void);

typedef struct pi_generated {
    pi_stop stop;
    bool session_full;          /* the reason of PI_STOP_LENGTH */
    int32_t n_prompt, n_cached; /* tokens of the prompt; how many of them the session held before */
    int32_t n_tokens;           /* generated, without the end token */
    int32_t n_decoded;          /* tokens evaluated after the prompt */
    int32_t n_steps;            /* calls of pi_forward for these tokens */
    int32_t n_shifts;
    uint64_t n_drafted, n_accepted;        /* tokens; accepted: part of the drafted ones */
    double prompt_seconds, decode_seconds; /* decode: everything after the prompt */
    pi_error draft_error; /* error of a draft model, whose drafts are not used from then on; status
                             PI_OK: no error */
} pi_generated;

/* Continues a prompt: samples a token, passes it to `piece` and evaluates it, until the text ends.
 * *out is always set. The session holds prompt and text afterwards, except the last token, which is
 * not evaluated. Errors of pi_tokenize, pi_sampler_create and pi_forward; PI_ERR_ARG: an empty
 * prompt, a session longer than the prompt, an empty stop text; PI_ERR_LIMIT; errors of the
 * grammar, see pi_sampler_grammar_progress. Cancelling is no error. */
PI_API pi_status pi_generate(pi_context *context, pi_session *session,
                             const pi_generate_options *options, pi_generated *out, pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
