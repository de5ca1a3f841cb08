/* powerinfer_tools.h: tools around a model: convert, quantize, prepare, tune, synth, place,
 * inspect, bench, perplexity. Same conventions as powerinfer.h. These functions may take minutes;
 * those with a progress callback can be cancelled by it (PI_ERR_CANCELLED). Output files appear
 * complete or not at all. */
#ifndef POWERINFER_TOOLS_H
#define POWERINFER_TOOLS_H

#include <stdio.h>
#include <time.h>

#include "powerinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Messages for the user ("vocabulary has no scores"), one line each. NULL: no messages. */
typedef void (*pi_message)(void *user, const char *line);

/* ---- convert: Hugging Face folder -> GGUF ---------------------------------------------------- */

typedef struct pi_convert_options {
    const char *type;  /* of the matrices: "f16" (default), "bf16", "f32", "q8_0", "q4_0", ... */
    int32_t n_threads; /* 0: physical cores */
    pi_progress progress;
    pi_message message;
    void *user;
    const char *base; /* of a LoRA adapter: folder with the config.json of the adapted model; NULL:
                         the adapter's own, or the folder that it names */
    const char *predictors; /* folder of predictors, model_0.pt and so on as for the original
                               PowerInfer; the file is a prepared one then. NULL: none */
} pi_convert_options;

PI_API pi_convert_options pi_convert_default_options(void);
/* Reads dir/config.json, the safetensors and the tokenizer. A folder with adapter_config.json
 * (PEFT, LoRA) becomes an adapter for pi_adapter, in F32. PI_ERR_UNSUPPORTED names the model type
 * and lists the known ones. */
PI_API pi_status pi_convert(const char *dir, const char *out_path,
                            const pi_convert_options *options, pi_error *err);

/* ---- quantize: GGUF -> GGUF of another type -------------------------------------------------- */

typedef struct pi_tensor_type {
    const char *pattern; /* with * ? or [: matches the whole name; otherwise a substring */
    const char *type;    /* "q8_0" */
} pi_tensor_type;

/* The result for one tensor. */
typedef struct pi_quantize_tensor {
    char name[64];
    const char *from, *to; /* types, static strings */
    uint64_t n_elems, bytes_in, bytes_out;
    bool fallback;       /* fallback type: rows are not a multiple of the intended type's block */
    float relative_rmse; /* sqrt(sum (new - old)^2 / sum old^2); 0 for a copy; -1: not measured */
} pi_quantize_tensor;

typedef struct pi_quantize_options {
    const char *type; /* a mix as llama.cpp names them, any case: "Q4_K_M", "Q8_0", ..., "COPY" */
    bool pure;        /* one type for all matrices */
    bool allow_requantize;                    /* requantize matrices that are quantized already */
    bool leave_output;                        /* keep the type of output.weight */
    const char *output_type, *embedding_type; /* NULL: the mix decides */
    const pi_tensor_type *tensor_types;       /* [n_tensor_types]; the first match counts */
    size_t n_tensor_types;
    const char *imatrix; /* path of an importance matrix; NULL: none */
    /* Jinja, n_chat_template bytes of UTF-8, in place of the input's chat templates (0 bytes:
     * none); NULL: keep them */
    const char *chat_template;
    size_t n_chat_template;
    bool measure;      /* compute relative_rmse */
    bool dry_run;      /* report types and sizes, write nothing */
    int32_t n_threads; /* 0: physical cores */
    /* Called on the calling thread for each finished tensor (dry run: for each type chosen). */
    void (*tensor)(void *user, const pi_quantize_tensor *t);
    pi_progress progress;
    pi_message message;
    void *user;
} pi_quantize_options;

typedef struct pi_quantize_result {
    uint64_t n_tensors, n_quantized, n_fallback; /* n_quantized: tensors whose type changed */
    uint64_t n_elems, bytes_in, bytes_out;       /* sums over all tensors */
} pi_quantize_result;

PI_API pi_quantize_options pi_quantize_default_options(void); /* Q4_K_M */
/* Canonical name of a type: "Q4_K_M" for "q4_k_m", "Q4_K" or "15"; NULL: unknown. */
PI_API const char *pi_quantize_type_name(const char *name);
/* `result` may be NULL; out_path too in a dry run. All keys are copied, split models are merged.
 * PI_ERR_ARG: an unknown type (the message lists the known ones), the output is the input, or a
 * quantized matrix without allow_requantize; PI_ERR_RANGE: a NaN or infinite weight. */
PI_API pi_status pi_quantize(const char *in_path, const char *out_path,
                             const pi_quantize_options *options, pi_quantize_result *result,
                             pi_error *err);

/* ---- imatrix: importance matrix of a model --------------------------------------------------- */

typedef struct pi_imatrix_options {
    int32_t chunk;       /* tokens per window of the text; default 512 */
    int32_t n_chunks;    /* maximum number of windows; 0: all */
    bool process_output; /* also collect for the output head */
    int32_t n_threads;   /* 0: physical cores */
    pi_progress progress;
    pi_message message;
    void *user;
} pi_imatrix_options;

PI_API pi_imatrix_options pi_imatrix_default_options(void);
/* Evaluates a text and writes the sums of squares of each matrix's input activations, in
 * llama.cpp's GGUF format (NAME.in_sum2, NAME.counts). */
PI_API pi_status pi_imatrix(const char *model_path, const char *text_path, const char *out_path,
                            const pi_imatrix_options *options, pi_error *err);

/* ---- prepare: profile, neuron order, predictors, thresholds ---------------------------------- */

/* The result for one layer. Fractions are over (held-out token, neuron) pairs. */
typedef struct pi_prepare_layer {
    double density;             /* active neurons; in threshold mode: above the first threshold,
                                   whose rows of up are read */
    const char *kind;           /* of the predictor: "none", "sign", "lowrank", "relu_mlp" */
    int32_t rank;               /* of the predictor; 0: none */
    double recall;              /* selected fraction of the active neurons */
    double contribution_recall; /* recall weighted by a neuron's share of the FFN output */
    double selected;            /* selected neurons; 1 without predictor and threshold */
    double down; /* neurons whose rows of down are read; in threshold mode: above both thresholds */
} pi_prepare_layer;

/* Whether a neuron's rows of gate, up and down are adjacent in the output: fastest for models
 * larger than memory. */
typedef enum pi_bundles { PI_BUNDLES_KEEP, PI_BUNDLES_NONE, PI_BUNDLES_ALL } pi_bundles;

typedef struct pi_prepare_options {
    const char *calibration;    /* path of a UTF-8 text; required */
    int32_t calibration_tokens; /* maximum number of its tokens; 16384 */
    int32_t calibration_window; /* tokens per window; 0: 512, or the model's context if shorter */
    const char *type;      /* quantize the matrices to this mix first; NULL: keep their types */
    const char *down_type; /* of ffn_down_t; NULL: unchanged if float, else "q8_0" */
    /* "auto", "none", "sign", "lowrank", "relu_mlp"; NULL: "auto", but files of the original
     * PowerInfer keep their predictors */
    const char *predictor;
    const char *predictor_type; /* type of the predictor's matrices; NULL: "q4_0" */
    double recall;              /* target contribution recall of the predictors; 0.98 */
    double max_loss;            /* allowed relative increase of perplexity for thresholds; 0.01 */
    bool head;     /* add a predictor of the output head, if it halves the bytes that are read */
    uint64_t seed; /* of predictor training */
    pi_bundles bundles; /* PI_BUNDLES_KEEP: as in the input */
    bool rearrange;     /* change only `bundles` if the input is prepared: no text is read,
                           nothing measured; otherwise prepare it */
    const char *beside; /* intermediate files go to the folder of this path; NULL: of the
                           output */
    int32_t n_threads;  /* 0: physical cores */
    /* Called on the calling thread for every layer, in order, at the end. */
    void (*layer)(void *user, int32_t index, const pi_prepare_layer *layer);
    pi_progress progress;
    pi_message message;
    void *user;
} pi_prepare_options;

typedef struct pi_prepare_result {
    const char *mode;             /* that `auto` chooses: "exact", "predict", ...; NULL: only
                                     rearranged, measured fields are NAN or 0 */
    int64_t tokens, held_out;     /* calibration tokens; how many of them are held out */
    double density;               /* mean over layers; in threshold mode: of both thresholds */
    double ppl_before, ppl_after; /* on held-out tokens: input in dense mode; output in `mode` */
    double kl;                    /* mean KL divergence of the output from the input, nats */
    int32_t head_rank;            /* of the output head's predictor; 0: none, fields of it are 0 */
    double head_rows;             /* fraction of the vocabulary whose logits are computed */
    double head_bytes;            /* read per token, as a fraction of the output matrix */
    double head_loss;             /* relative increase of perplexity on held-out tokens */
    double head_same;             /* fraction of these with the same most likely token */
    uint64_t bytes_in, bytes_out; /* of the weights */
    uint64_t predictor_bytes;     /* part of bytes_out */
} pi_prepare_result;

PI_API pi_prepare_options pi_prepare_default_options(void);
/* `in`: a GGUF file, one of the original PowerInfer, a prepared one, or a Hugging Face folder.
 * `result` may be NULL. PI_ERR_ARG: invalid options, or the output is the input; PI_ERR_FORMAT: the
 * calibration text is not UTF-8; PI_ERR_LIMIT: it is too short; PI_ERR_UNSUPPORTED: too little
 * sparsity in the FFN, or a predictor for an activation that is not of the ReLU family. */
PI_API pi_status pi_prepare(const char *in, const char *out_path, const pi_prepare_options *options,
                            pi_prepare_result *result, pi_error *err);
/* Restores an ordinary GGUF: neurons in the source's order, ffn_down not transposed, without the
 * keys and tensors that prepare adds. Options used: down_type (NULL: the source's), n_threads,
 * progress, message, user. */
PI_API pi_status pi_prepare_undo(const char *in_path, const char *out_path,
                                 const pi_prepare_options *options, pi_error *err);

/* ---- tune: the settings that are fastest on this machine --------------------------------------
 */

/* A setting that was timed, or why it was not. */
typedef struct pi_tune_trial {
    bool prepared;    /* of the model that tune prepared; otherwise of the input as it is */
    const char *mode; /* "auto", "dense", "exact", "predict", "threshold" */
    bool head;        /* with the predictor of the output head */
    int32_t threads;
    int32_t attn_blocks; /* 0: all positions */
    double tps;          /* decoded tokens per second, the median of `rounds`; 0: not timed */
    int32_t rounds;
    double bytes_per_token; /* weights and KV cache read */
    double loss;            /* relative increase of perplexity; NAN: not measured */
    bool chosen;
    char reason[128]; /* why it was not timed or cannot be chosen; "": it can */
} pi_tune_trial;

typedef struct pi_tune_options {
    /* Device, budgets, cache types, batch. n_threads 0: tune tries several. mode, head, max_loss
     * and attn_blocks are ignored. */
    pi_context_options context;
    const char *calibration;    /* path of a UTF-8 text, for prepare and for the timed tokens; NULL:
                                   the model is not prepared, random tokens are timed */
    int32_t calibration_tokens; /* as in pi_prepare_options */
    double max_loss;            /* allowed relative increase of perplexity; 0 (default): only
                                   modes without loss */
    int32_t n_ctx; /* context to tune for, tokens: its last ones are timed. From PI_TUNE_LONG on,
                      and with max_loss, attention to blocks of positions is tried. 0: 256 */
    /* Called on the calling thread for every setting, in order, at the end. */
    void (*trial)(void *user, const pi_tune_trial *trial);
    pi_progress progress;
    pi_message message;
    void *user;
} pi_tune_options;

enum { PI_TUNE_LONG = 4096 };

typedef struct pi_tune_result {
    char cpu[128];
    pi_tune_trial before, after; /* the input as it runs by default; the chosen */
} pi_tune_result;

PI_API pi_tune_options pi_tune_default_options(void);
/* Prepares the model if it is not prepared, times decode in every mode whose loss is allowed, with
 * several numbers of threads, and writes the faster model with the best settings, which contexts on
 * this machine then use by default. `in`: as for pi_prepare. `result` may be NULL. PI_ERR_ARG:
 * invalid options, or the output is the input; PI_ERR_LIMIT: the calibration text is too short for
 * n_ctx; errors of pi_prepare and pi_context_create. */
PI_API pi_status pi_tune(const char *in, const char *out_path, const pi_tune_options *options,
                         pi_tune_result *result, pi_error *err);

/* ---- synth: a model of a named shape with random weights ------------------------------------- */

typedef struct pi_synth_options {
    const char *shape;  /* "tiny", "llama-1b", "llama-7b", "bamboo-7b", ... */
    const char *type;   /* of every matrix, head included: "q4_0" (default), "f16", ... */
    int32_t n_layer;    /* 0: the shape's */
    float density;      /* mean fraction of active neurons, 0.1; see docs/synth.md */
    float down_density; /* mode threshold: fraction of neurons whose row of down is read; 0: no
                           thresholds. Not with plain, experts, or without gates */
    float skew_share, skew_mass; /* a fraction 0.26 of the neurons has 0.8 of the activations */
    int32_t rank;                /* of the predictable part of a gate row, 256 */
    uint64_t seed;
    bool plain;    /* an ordinary file: no predictor, neurons not sorted */
    bool bundle;   /* a neuron's rows of gate, up and down are adjacent; not with plain */
    int32_t n_mtp; /* layers to add for multi-token prediction (heads that draft), at most 16 */
    int32_t n_threads;
    pi_progress progress;
    void *user;
} pi_synth_options;

PI_API pi_synth_options pi_synth_default_options(void);
PI_API pi_status pi_synth(const char *out_path, const pi_synth_options *options, pi_error *err);

/* ---- inspect --------------------------------------------------------------------------------- */

typedef struct pi_inspect_options {
    bool json;
    bool verbose;                      /* list every key and tensor */
    bool plan;                         /* print the steps that a context would run */
    const pi_context_options *context; /* of the plan; NULL: the defaults */
    /* Path of a plot of a prepared model's hot/cold curves, densities, predictors; NULL: none. */
    const char *svg;
} pi_inspect_options;

/* Writes a description of a GGUF file to `out`. PI_ERR_NOT_FOUND: svg, but the file has no neuron
 * statistics. */
PI_API pi_status pi_inspect(const char *path, const pi_inspect_options *options, FILE *out,
                            pi_error *err);

/* ---- place ----------------------------------------------------------------------------------- */

typedef struct pi_place_options {
    /* Machine description: a built-in name ("rtx-4090-ddr5", ...) or the path of a JSON file. NULL:
     * this machine as measured before (cache), else "cpu-only". */
    const char *profile;
    /* Without a profile: the GPU to place on, and the folder of its backend. */
    pi_device_choice device;
    int32_t n_devices, devices[PI_MAX_DEVICES]; /* as in pi_context_options */
    float tensor_split[PI_MAX_DEVICES];
    const char *backend_folder;
    bool measure;      /* measure this machine's memory first, and save the result in `cache` */
    const char *cache; /* path of the saved measurement; NULL: neither read nor written */
    /* GPU memory to use, bytes; PI_PLACE_ALL: what the machine has. */
    uint64_t vram_budget;
    /* Host memory to use, bytes, as in pi_context_options: the prediction includes reads of the
     * drive. PI_RAM_FREE (default), PI_RAM_MAPPED: all weights are in memory. */
    uint64_t ram_budget;
    const char *const *overrides; /* as in pi_context_options, like the next two */
    int32_t n_overrides, cpu_experts, cpu_ffn;
    pi_mode mode;
    float max_loss; /* for PI_MODE_AUTO, as in pi_context_options */
    int32_t n_ctx;  /* positions of the KV cache; 0: the smaller of n_ctx_train and 8192 */
    int32_t depth;  /* context depth of the predicted token */
    int32_t n_batch, max_batch; /* tokens per ubatch, as in pi_context_options */
    pi_cache_type cache_k, cache_v;
    int32_t n_threads; /* for measuring; 0: physical cores */
    /* Instead of a file: place the model that pi_synth would write for these options. */
    const pi_synth_options *synth;
    double density; /* active-neuron fraction of layers without statistics; 1 */
    bool json;
    const char *svg; /* path to draw the placement to; NULL: no drawing */
    pi_message message;
    void *user;
} pi_place_options;

#define PI_PLACE_ALL UINT64_MAX

PI_API pi_place_options pi_place_default_options(void);
/* Writes to `out` the placement, bytes per device, and the predicted time of a token. Without a
 * GPU, or with too small a budget, everything is on the CPU. `path` may be NULL with `synth`.
 * PI_ERR_LIMIT: ram_budget is too small; PI_ERR_ARG: it is for a file, not for `synth`;
 * PI_ERR_NOT_FOUND: no such profile; PI_ERR_FORMAT, PI_ERR_RANGE: an invalid one. */
PI_API pi_status pi_place(const char *path, const pi_place_options *options, FILE *out,
                          pi_error *err);

/* ---- template: chat request -> prompt -------------------------------------------------------- */

/* The template is `source`, or the built-in one `name`, or the model's own. */
typedef struct pi_template_options {
    const char *model;  /* path of a GGUF file: its template, BOS and EOS; NULL: none */
    const char *source; /* Jinja, n_source bytes of UTF-8; NULL: none */
    size_t n_source;
    const char *name;      /* "chatml", "llama3", ...; NULL: none */
    const char *bos, *eos; /* bos_token and eos_token; NULL: the model's, if any */
    const struct tm *now;  /* time for strftime_now; NULL: the local time */
} pi_template_options;

/* Names of the built-in templates, by index; NULL after the last one. */
PI_API const char *pi_template_name(size_t index);
/* Renders a request (JSON: messages, tools, add_generation_prompt, ...) and writes the prompt to
 * `out`; nothing when it fails. Steps, memory, nesting and output are limited.
 * PI_ERR_ARG: the template rejects the request (the message is the template's); PI_ERR_FORMAT: an
 * error in the template, or invalid JSON; PI_ERR_LIMIT: a limit was exceeded; PI_ERR_NOT_FOUND: the
 * model has no template, or no template of this name. */
PI_API pi_status pi_template(const char *request, size_t n_request,
                             const pi_template_options *options, FILE *out, pi_error *err);

/* ---- devices --------------------------------------------------------------------------------- */

/* A call that failed when devices were listed, and its error: "open /dev/kfd", "Permission
 * denied". */
typedef struct pi_device_failure {
    char call[64], error[256];
} pi_device_failure;

enum { PI_DEVICE_FAILURES = 4 };

/* A GPU, or a backend without one: then `available` is false and `reason` says why. */
typedef struct pi_device {
    char backend[16]; /* "cuda": a name of PI_BACKENDS */
    int32_t index;    /* among the backend's devices */
    bool available;
    bool shared_memory;       /* shares its memory with the CPU */
    char name[128], arch[32]; /* "NVIDIA GeForce RTX 4090"; "sm_89", the target of its kernels */
    uint64_t memory_total, memory_free; /* bytes, at this moment */
    double bandwidth; /* of its memory, bytes per second by the data sheet; 0: unknown */
    char reason[PI_ERROR_TEXT_MAX];
    /* The kernel driver, also without a device: "NVIDIA 570.86.15", or "NVIDIA" where its version
     * is unknown; "Windows" in WSL; "": none is loaded. */
    char driver[48];
    /* As measured on this machine; all 0: never measured. Bytes per second of long reads and of
     * reads of single neurons; seconds of a step, and of an exchange with the CPU. */
    double measured_stream, measured_gather, measured_step, measured_sync;
    int32_t n_failures;
    pi_device_failure failures[PI_DEVICE_FAILURES]; /* in the order of the calls */
} pi_device;

/* Lists the devices of every backend; `sim`, the simulated GPU, comes last. Writes at most
 * `capacity` entries; *n_devices is the number found. folder: of the backends
 * (libpowerinfer_NAME.so); NULL: next to the program, or where they were installed. machine: the
 * file with measured rates, as in pi_context_options. */
PI_API pi_status pi_devices(const char *folder, const char *machine, pi_device *devices,
                            size_t capacity, size_t *n_devices, pi_error *err);

/* ---- trace ----------------------------------------------------------------------------------- */

/* CPU and GPU times of one ubatch. A device is busy while any of its threads is in a step other
 * than a message; waiting does not count. */
typedef struct pi_trace_summary {
    int32_t n_tokens;                /* of the ubatch */
    double seconds;                  /* wall time */
    double cpu_seconds, gpu_seconds; /* busy time of each device */
    double both_seconds;             /* time in which both were busy */
    double overlap;                  /* both_seconds / min(cpu_seconds, gpu_seconds); 0: no GPU */
    int32_t n_split;                 /* layers with an exchange */
    double split_overlap;            /* overlap within the FFN neurons of these layers */
    double exchange_seconds;         /* mean per layer with an exchange: from the start of the
                                        message to the end of the reply, minus the busy time of the
                                        slower device in between */
    double clock_error;              /* maximum offset between the devices' clocks, seconds */
} pi_trace_summary;

/* Records the timeline of the next n_ubatches ubatches of the context; 0: discards the recording.
 * PI_ERR_ARG, PI_ERR_NOMEM. */
PI_API pi_status pi_trace_start(pi_context *context, int32_t n_ubatches, pi_error *err);
/* Writes the recording as Chrome trace events (JSON, for chrome://tracing or Perfetto), a row per
 * thread and one for the GPU, and summarizes at most `capacity` ubatches; *n_ubatches is the number
 * recorded. PI_ERR_NOT_FOUND: nothing was recorded; PI_ERR_IO, PI_ERR_NOMEM. */
PI_API pi_status pi_trace_write(const pi_context *context, const char *path,
                                pi_trace_summary *summaries, int32_t capacity, int32_t *n_ubatches,
                                pi_error *err);

/* ---- bench ----------------------------------------------------------------------------------- */

enum { PI_BENCH_MAX_LIST = 32 };

typedef struct pi_bench_options {
    pi_context_options context;
    int32_t prompts[PI_BENCH_MAX_LIST]; /* prompt lengths to time (prefill); 0 entries: no test */
    int32_t n_prompts;
    int32_t gens[PI_BENCH_MAX_LIST]; /* tokens to generate (decode); 0 entries: no test */
    int32_t n_gens;
    int32_t depths[PI_BENCH_MAX_LIST]; /* context depths: tokens already in the KV cache */
    int32_t n_depths;
    /* Numbers of sequences to compute at the same time. On several machines decode is pipelined:
     * the sequences form pi_context_passes groups. */
    int32_t parallels[PI_BENCH_MAX_LIST];
    int32_t n_parallels;
    int32_t repetitions;
    int32_t delay_seconds; /* before each test */
    /* [n_tokens] to evaluate: the first ones fill the context, the tests use those after them in
     * order and start over at the end. NULL: every test uses the same random tokens. */
    const int32_t *tokens;
    int32_t n_tokens;
    /* Drafts for its text 0 (powerinfer_speculate.h); NULL: none. Decode tests of one sequence then
     * sample their tokens, and each runs without and with drafts. The context needs n_logits of
     * 1 + n_max, and a head that drafts as its drafter. */
    struct pi_speculator *speculator;
    const char *drafts; /* kind of these drafts, for results; static string */
    float temp;         /* temperature of sampled tokens; <= 0 (default): the most likely ones */
    uint64_t seed;
    const char *model_path; /* of the model, for its neuron frequencies; NULL: uniform */
    const char *trace; /* path to write the timeline of one prefill ubatch (of the first length) and
                          of one decoded token to; NULL: none */
    pi_progress progress;
    void *user;
} pi_bench_options;

PI_API pi_bench_options pi_bench_default_options(void); /* -p 512 -n 128 -d 0 -np 1 -r 5 */

typedef struct pi_bench_result {
    char test[16]; /* "pp512", "tg128" */
    int32_t depth;
    int32_t parallel;             /* sequences; tps counts the tokens of all */
    const char *mode, *device;    /* static strings */
    double tps, tps_min, tps_max; /* tokens per second: median and range over repetitions */
    double tps_stddev;            /* sample standard deviation; 0 for a single repetition */
    double bytes_per_token;       /* weights and KV cache actually read */
    double gathered_per_token;    /* part of bytes_per_token: scattered rows of single neurons */
    double gbps;                  /* bytes_per_token * tps / 1e9 */
    /* Memory bandwidth around the median repetition: contiguous reads; rows of single neurons. */
    double read_gbps, gather_gbps;
    double bandwidth_share; /* gbps / read_gbps; this and the next are 0 with a GPU */
    /* Roofline time over measured time: gathered bytes at gather_gbps, the rest at read_gbps. */
    double floor_share;
    double ffn_density; /* FFN bytes read / all FFN bytes */
    /* With a memory budget; 0 without one: */
    double drive_reads, drive_bytes; /* per token */
    double drive_gbps;   /* the drive's speed for reads of this size, measured after the test */
    double drive_share;  /* drive_bytes * tps / 1e9 / drive_gbps */
    double drive_busy;   /* share of the test's time in which the drive was reading */
    double cache_hits;   /* share of the experts' matrices and neurons that were in the cache */
    double cache_misses; /* experts' matrices and neurons that were not, per token */
    /* Experts' matrices and neurons per token: read before their layer selected any; those that the
     * layer then did not select. */
    double drive_ahead, drive_in_vain;
    /* Tests that sample their tokens: */
    const char *drafts; /* static string: "off", or pi_bench_options.drafts; NULL: other tests */
    double tokens_per_step;         /* 1 without drafts */
    double speedup;                 /* tps relative to the test without drafts */
    uint64_t n_drafted, n_accepted; /* tokens, in all repetitions; accepted: part of the drafted */
} pi_bench_result;

enum { PI_BENCH_TRACED = 2 }; /* a prefill ubatch, a decoded token */

typedef struct pi_bench_report {
    char cpu[128];
    int32_t threads, n_batch;
    /* Medians over the results: the best of several plain loops with 1..threads threads, for
     * contiguous reads and for neurons' rows at the model's density. 0: too little memory was free
     * to measure. */
    double read_gbps, gather_gbps;
    uint64_t yardstick_bytes, yardstick_wanted; /* size of the measured buffer: used; intended */
    uint64_t cache_bytes;                       /* last-level cache */
    bool in_cache;    /* weights < 2 * cache_bytes: bandwidth shares are not meaningful */
    pi_memory memory; /* as it was before the tests */
    int32_t n_ranks;  /* 0: one machine */
    pi_rank ranks[PI_MAX_RANKS]; /* what they did in the repetitions of the last test */
    int32_t n_traced;            /* ubatches in the file `trace` */
    pi_trace_summary traced[PI_BENCH_TRACED];
    int32_t n_results;
    pi_bench_result results[2 * PI_BENCH_MAX_LIST * PI_BENCH_MAX_LIST];
} pi_bench_report;

/* The report is large: put it in static or heap memory. */
PI_API pi_status pi_bench(const pi_model *model, const pi_bench_options *options,
                          pi_bench_report *report, pi_error *err);

/* ---- perplexity ------------------------------------------------------------------------------ */

typedef struct pi_perplexity_options {
    pi_context_options context; /* a ubatch holds as many windows as fit n_batch; n_logits 0:
                                   n_batch within 256 MB */
    int32_t n_ctx;              /* tokens per window; 0: 512, or the base run's */
    int32_t n_windows;          /* score the first n_windows windows; 0: all */
    /* As llama.cpp: BOS, if the model adds one, replaces the first token of every window, and only
     * the second half of a window is scored. */
    bool llama_windows;
    /* Overlapping windows, as llama.cpp's --ppl-stride: each begins `stride` tokens after the
     * previous one, has n_ctx + stride / 2 tokens and scores its last `stride` tokens. 0: no
     * overlap. Not with llama_windows or a base run. */
    int32_t stride;
    const char *base_out; /* write a base run to this path; NULL: none */
    const char *base_in;  /* compare with this base run; NULL: none */
    pi_progress progress;
    pi_message message; /* ten intermediate results, and warnings */
    void *user;
} pi_perplexity_options;

PI_API pi_perplexity_options pi_perplexity_default_options(void);

/* Kullback-Leibler divergence sum p_base log(p_base / p) per scored token, in nats, and other
 * differences from a base run. */
typedef struct pi_divergence {
    double mean, mean_stderr;
    double median, p90, p95, p99, p99_9, max; /* over tokens; percentiles are interpolated */
    double top1;                      /* fraction of tokens with the same top-1 token in both */
    double p_diff_mean, p_diff_rms;   /* of p - p_base of the correct token */
    double base_nll, base_perplexity; /* of the base run on the same tokens */
} pi_divergence;

typedef struct pi_perplexity_report {
    int32_t n_ctx, n_windows;
    int64_t tokens;           /* scored */
    double nll;               /* mean -log p of the scored tokens, nats */
    double perplexity;        /* e^nll */
    double perplexity_stderr; /* perplexity times the standard error of nll */
    bool has_divergence;
    pi_divergence divergence; /* with base_in */
} pi_perplexity_report;

/* Perplexity of a text. The text is tokenized once, with BOS at its start if the model adds one,
 * and cut into windows of n_ctx tokens without overlap; a last short window is dropped. Every token
 * of a window but the first is scored. With base_in, `text` may be NULL: the base run holds the
 * tokens; otherwise it must begin with the same tokens. PI_ERR_FORMAT: not UTF-8 text, or a damaged
 * base run; PI_ERR_LIMIT: shorter than one window; PI_ERR_ARG: invalid options, or a base run that
 * does not match; PI_ERR_RANGE: NaN logits. */
PI_API pi_status pi_perplexity(const pi_model *model, const char *text, size_t n_text,
                               const pi_perplexity_options *options, pi_perplexity_report *report,
                               pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
