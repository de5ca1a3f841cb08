/* powerinfer_tools.h: everything around running a model: converting, synthesising, measuring,
 * inspecting. Same conventions as powerinfer.h. These functions may take minutes; those with a
 * progress callback can be stopped by it (PI_ERR_CANCELLED). Output files appear complete or not at
 * all. */
#ifndef POWERINFER_TOOLS_H
#define POWERINFER_TOOLS_H

#include <stdio.h>
#include <time.h>

#include "powerinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Messages the user should see ("vocabulary has no scores"), one line each. NULL drops them. */
typedef void (*pi_message)(void *user, const char *line);

/* ---- convert: Hugging Face folder -> GGUF ---------------------------------------------------- */

typedef struct pi_convert_options {
    const char *type;  /* of the matrices: "f16" (default), "bf16", "f32", "q8_0", "q4_0", ... */
    int32_t n_threads; /* 0: physical cores */
    pi_progress progress;
    pi_message message;
    void *user;
} pi_convert_options;

PI_API pi_convert_options pi_convert_default_options(void);
/* Reads dir/config.json, the safetensors and the tokenizer. PI_ERR_UNSUPPORTED names the model type
 * and lists the known ones. */
PI_API pi_status pi_convert(const char *dir, const char *out_path,
                            const pi_convert_options *options, pi_error *err);

/* ---- quantize: GGUF -> GGUF of another type -------------------------------------------------- */

typedef struct pi_tensor_type {
    const char *pattern; /* with * ? or [: of the whole name; otherwise a part of it */
    const char *type;    /* "q8_0" */
} pi_tensor_type;

/* What became of one tensor. */
typedef struct pi_quantize_tensor {
    char name[64];
    const char *from, *to; /* types, static strings */
    uint64_t n_elems, bytes_in, bytes_out;
    bool fallback;       /* its rows are not whole blocks of the type that was meant */
    float relative_rmse; /* sqrt(sum (new - old)^2 / sum old^2); 0 for a copy; -1: not measured */
} pi_quantize_tensor;

typedef struct pi_quantize_options {
    const char *type; /* a mix as llama.cpp names them, any case: "Q4_K_M", "Q8_0", ..., "COPY" */
    bool pure;        /* that one type for all matrices, no mixture */
    bool allow_requantize; /* matrices that are quantized already may be quantized again */
    bool leave_output;     /* output.weight keeps its type */
    const char *output_type, *embedding_type; /* NULL: as the mix says */
    const pi_tensor_type *tensor_types;       /* [n_tensor_types]; the first that matches counts */
    size_t n_tensor_types;
    const char *imatrix; /* importance matrix that weights the errors; NULL: none */
    bool measure;        /* fill relative_rmse */
    bool dry_run;        /* decide and report, write nothing */
    int32_t n_threads;   /* 0: physical cores */
    /* Called on the calling thread when a tensor is done (or decided, in a dry run). */
    void (*tensor)(void *user, const pi_quantize_tensor *t);
    pi_progress progress;
    pi_message message;
    void *user;
} pi_quantize_options;

typedef struct pi_quantize_result {
    uint64_t n_tensors, n_quantized, n_fallback; /* quantized: whose type changed */
    uint64_t n_elems, bytes_in, bytes_out;       /* of all tensors */
} pi_quantize_result;

PI_API pi_quantize_options pi_quantize_default_options(void); /* Q4_K_M */
/* "Q4_K_M" for "q4_k_m", "Q4_K" or "15": how a type is written; NULL when it is unknown. */
PI_API const char *pi_quantize_type_name(const char *name);
/* `result` may be NULL; out_path too in a dry run. All keys are copied, parts of a split model are
 * joined. PI_ERR_ARG: an unknown type (the message lists the known ones), the output is the input,
 * or a quantized matrix without allow_requantize; PI_ERR_RANGE: a value that is not finite. */
PI_API pi_status pi_quantize(const char *in_path, const char *out_path,
                             const pi_quantize_options *options, pi_quantize_result *result,
                             pi_error *err);

/* ---- imatrix: which columns of a matrix matter ----------------------------------------------- */

typedef struct pi_imatrix_options {
    int32_t chunk;       /* tokens per window of the text; default 512 */
    int32_t n_chunks;    /* most windows; 0: all */
    bool process_output; /* the head too */
    int32_t n_threads;   /* 0: physical cores */
    pi_progress progress;
    pi_message message;
    void *user;
} pi_imatrix_options;

PI_API pi_imatrix_options pi_imatrix_default_options(void);
/* Feeds a text through a model and writes the sums of squares of what enters every matrix, in
 * llama.cpp's GGUF form (NAME.in_sum2, NAME.counts). */
PI_API pi_status pi_imatrix(const char *model_path, const char *text_path, const char *out_path,
                            const pi_imatrix_options *options, pi_error *err);

/* ---- prepare: profile, neuron order, predictors, thresholds ---------------------------------- */

/* What became of one layer. Shares are over pairs of a held-out token and a neuron. */
typedef struct pi_prepare_layer {
    double density;             /* share that fires; in threshold mode: that stays above the cut */
    const char *kind;           /* of the predictor: "none", "sign", "lowrank", "relu_mlp" */
    int32_t rank;               /* of the predictor; 0: none */
    double recall;              /* of those that fire, the share that is computed */
    double contribution_recall; /* of what they add to the residual stream, the share */
    double selected;            /* share that is computed at all; 1 without predictor and cut */
} pi_prepare_layer;

typedef struct pi_prepare_options {
    const char *calibration;    /* path of a UTF-8 text; required */
    int32_t calibration_tokens; /* most tokens of it; 16384 */
    int32_t calibration_window; /* tokens per window; 0: 512, or the model's context if shorter */
    const char *type;           /* mix to quantize the matrices to first; NULL: they keep theirs */
    const char *down_type;      /* of ffn_down_t; NULL: as it was when float, else "q8_0" */
    /* "auto", "none", "sign", "lowrank", "relu_mlp"; NULL: "auto", but a file of the original
     * PowerInfer keeps its predictors */
    const char *predictor;
    const char *predictor_type; /* of the predictor's matrices; NULL: "q4_0" */
    double recall;              /* contribution recall that predictors aim at; 0.98 */
    double max_loss;            /* relative rise of perplexity for thresholds; 0.01 */
    bool bundle;                /* rows of up and down_t by turns in one tensor */
    uint64_t seed;              /* of predictor training */
    int32_t n_threads;          /* 0: physical cores */
    /* Called on the calling thread for every layer, in order, when all is done. */
    void (*layer)(void *user, int32_t index, const pi_prepare_layer *layer);
    pi_progress progress;
    pi_message message;
    void *user;
} pi_prepare_options;

typedef struct pi_prepare_result {
    const char *mode;             /* that `auto` would take: "exact", "predict", ... */
    int64_t tokens, held_out;     /* of the calibration text; the latter among the former */
    double density;               /* mean over layers */
    double ppl_before, ppl_after; /* on held-out text: the input in dense mode; the output */
    double kl;                    /* mean divergence of the output from the input, nats */
    uint64_t bytes_in, bytes_out; /* of the weights */
    uint64_t predictor_bytes;     /* of these */
} pi_prepare_result;

PI_API pi_prepare_options pi_prepare_default_options(void);
/* `in`: a GGUF file, one of the original PowerInfer, a prepared one, or a Hugging Face folder.
 * `result` may be NULL. PI_ERR_ARG: options, or the output is the input; PI_ERR_FORMAT: the
 * calibration is no text; PI_ERR_LIMIT: it is too short; PI_ERR_UNSUPPORTED: a model whose
 * feed-forward layers offer nothing to skip, or a predictor for one that is not of the ReLU family.
 */
PI_API pi_status pi_prepare(const char *in, const char *out_path, const pi_prepare_options *options,
                            pi_prepare_result *result, pi_error *err);
/* The way back: neurons in the source's order, ffn_down as it was, no keys and tensors of prepare.
 * Of the options, down_type (NULL: the source's), n_threads, progress, message and
 * user count. */
PI_API pi_status pi_prepare_undo(const char *in_path, const char *out_path,
                                 const pi_prepare_options *options, pi_error *err);

/* ---- synth: a model of a named shape with random weights ------------------------------------- */

typedef struct pi_synth_options {
    const char *shape;           /* "tiny", "llama-1b", "llama-7b", "bamboo-7b", ... */
    const char *type;            /* of every matrix, head included: "q4_0" (default), "f16", ... */
    int32_t n_layer;             /* 0: as the shape has */
    float density;               /* mean fraction of neurons that fire, 0.1; see docs/synth.md */
    float skew_share, skew_mass; /* a fraction 0.26 of the neurons carries 0.8 of activations */
    int32_t rank;                /* of the predictable part of a gate row, 256 */
    uint64_t seed;
    bool plain;  /* an ordinary file without predictor and neuron order */
    bool bundle; /* rows of up and down by turns in one tensor; not with plain */
    int32_t n_threads;
    pi_progress progress;
    void *user;
} pi_synth_options;

PI_API pi_synth_options pi_synth_default_options(void);
PI_API pi_status pi_synth(const char *out_path, const pi_synth_options *options, pi_error *err);

/* ---- inspect --------------------------------------------------------------------------------- */

typedef struct pi_inspect_options {
    bool json;
    bool verbose;                      /* every key and tensor */
    bool plan;                         /* the steps that a context would run */
    const pi_context_options *context; /* of the plan; NULL: the defaults */
    /* Draw hot/cold curves, densities and predictors of a prepared model's layers into this file;
     * NULL: do not. */
    const char *svg;
} pi_inspect_options;

/* Writes a description of a GGUF file to `out`. PI_ERR_NOT_FOUND: svg, but no statistics of neurons
 * to draw. */
PI_API pi_status pi_inspect(const char *path, const pi_inspect_options *options, FILE *out,
                            pi_error *err);

/* ---- place ----------------------------------------------------------------------------------- */

typedef struct pi_place_options {
    /* A described machine ("rtx-4090-ddr5", ...), or the path of a JSON file that describes one.
     * NULL: this machine as measured before (cache), else "cpu-only". */
    const char *profile;
    /* Without a profile: the GPU whose memory and bandwidth count, and where its backend is. */
    pi_device_choice device;
    const char *backend_folder;
    bool measure;      /* measure this machine's memory first, and keep that in `cache` */
    const char *cache; /* path of the file with what was measured; NULL: neither read nor written */
    /* GPU memory that may be used, bytes; PI_PLACE_ALL: what the machine has. */
    uint64_t vram_budget;
    pi_mode mode;
    float max_loss;  /* for PI_MODE_AUTO, as in pi_context_options */
    int32_t n_ctx;   /* positions of the KV cache; 0: the smaller of trained and 8192 */
    int32_t depth;   /* positions that the predicted token attends to */
    int32_t n_batch; /* tokens per pass that buffers are sized for */
    pi_cache_type cache_k, cache_v;
    int32_t n_threads; /* for measuring; 0: physical cores */
    /* Instead of a file: the prepared model that pi_synth would write for these, weights apart. */
    const pi_synth_options *synth;
    double density; /* share of neurons that fire in layers without statistics; 1 */
    bool json;
    const char *svg; /* draw the plan into this file; NULL: do not */
    pi_message message;
    void *user;
} pi_place_options;

#define PI_PLACE_ALL UINT64_MAX

PI_API pi_place_options pi_place_default_options(void);
/* Writes to `out` what would go where, bytes per device, and the predicted time of a token. Without
 * a GPU, or with too small a budget, everything is on the CPU. `path` may be NULL with `synth`.
 * PI_ERR_NOT_FOUND: no such profile; PI_ERR_FORMAT, PI_ERR_RANGE: a bad one. */
PI_API pi_status pi_place(const char *path, const pi_place_options *options, FILE *out,
                          pi_error *err);

/* ---- template: chat request -> prompt ---------------------------------------------------------
 */

/* The template is `source`, or the built-in one `name`, or the model's own. */
typedef struct pi_template_options {
    const char *model;  /* path of a GGUF file: its template, BOS and EOS; NULL: none */
    const char *source; /* Jinja, n_source bytes of UTF-8; NULL: none */
    size_t n_source;
    const char *name;      /* "chatml", "llama3", ...; NULL: none */
    const char *bos, *eos; /* bos_token and eos_token; NULL: the model's, if there is one */
    const struct tm *now;  /* what strftime_now shows; NULL: the local time */
} pi_template_options;

/* Names of the built-in templates, by index; NULL after the last one. */
PI_API const char *pi_template_name(size_t index);
/* Writes the prompt for a request (JSON: messages, tools, add_generation_prompt, ...) to `out`, or
 * nothing when it fails. Rendering has budgets of steps, memory, depth and output.
 * PI_ERR_ARG: the template refuses the request, in its own words; PI_ERR_FORMAT: an error in the
 * template or bad JSON; PI_ERR_LIMIT: a budget; PI_ERR_NOT_FOUND: the model has no template, or
 * there is no such name. */
PI_API pi_status pi_template(const char *request, size_t n_request,
                             const pi_template_options *options, FILE *out, pi_error *err);

/* ---- devices --------------------------------------------------------------------------------- */

/* A GPU, or a backend that has none here: then `available` is false and `reason` says why. */
typedef struct pi_device {
    char backend[16]; /* "cuda", "hip", "sim": what --device calls it */
    int32_t index;    /* among the backend's devices */
    bool available;
    bool shared_memory;                 /* its memory is the processor's */
    char name[128], arch[32];           /* "NVIDIA GeForce RTX 4090", "sm_89" */
    uint64_t memory_total, memory_free; /* bytes, at this moment */
    double bandwidth; /* of its memory, bytes per second by the data sheet; 0: not known */
    char reason[PI_ERROR_TEXT_MAX];
} pi_device;

/* Asks every backend that is built for what it finds; `sim`, the simulated GPU, comes last. Writes
 * at most `capacity` entries; *n_devices is how many there are. folder: where the backends
 * (libpowerinfer_NAME.so) lie; NULL: beside the program or where they were installed. */
PI_API pi_status pi_devices(const char *folder, pi_device *devices, size_t capacity,
                            size_t *n_devices, pi_error *err);

/* ---- trace ----------------------------------------------------------------------------------- */

/* How the processor and the GPU shared one pass. A side computes while any of its threads is in a
 * step other than a message; waiting is no computing. */
typedef struct pi_trace_summary {
    int32_t n_tokens;                /* of the pass */
    double seconds;                  /* that it took */
    double cpu_seconds, gpu_seconds; /* in which a side computed */
    double both_seconds;             /* in which both did */
    double overlap;                  /* both_seconds over the shorter side's; 0 without a GPU */
    int32_t n_split;                 /* layers with an exchange */
    double split_overlap;            /* the same, over these layers' neurons only */
    double exchange_seconds;         /* mean per layer with an exchange: from the message to the
                                        answer's end, less the slower side's computing */
    double clock_error;              /* seconds that the sides' clocks may differ by at most */
} pi_trace_summary;

/* Records the timeline of the next n_passes passes of the context (a pass is a pi_forward, or
 * n_batch tokens of one); 0: forgets what was recorded. PI_ERR_ARG, PI_ERR_NOMEM. */
PI_API pi_status pi_trace_start(pi_context *context, int32_t n_passes, pi_error *err);
/* Writes what was recorded as Chrome trace events (JSON, for chrome://tracing or Perfetto), a row
 * per thread and one for the GPU, and summarizes at most `capacity` passes; *n_passes is how many
 * there are. PI_ERR_NOT_FOUND: no pass was recorded; PI_ERR_IO, PI_ERR_NOMEM. */
PI_API pi_status pi_trace_write(const pi_context *context, const char *path,
                                pi_trace_summary *summaries, int32_t capacity, int32_t *n_passes,
                                pi_error *err);

/* ---- bench ----------------------------------------------------------------------------------- */

enum { PI_BENCH_MAX_LIST = 32 };

typedef struct pi_bench_options {
    pi_context_options context;
    int32_t prompts[PI_BENCH_MAX_LIST]; /* prompt lengths to time; 0 entries: no prompt test */
    int32_t n_prompts;
    int32_t gens[PI_BENCH_MAX_LIST]; /* numbers of tokens to generate; 0 entries: no such test */
    int32_t n_gens;
    int32_t depths[PI_BENCH_MAX_LIST]; /* tokens already in the context */
    int32_t n_depths;
    int32_t repetitions;
    int32_t delay_seconds;  /* before each test */
    const char *model_path; /* of the file: which neurons fire how often; NULL: all alike */
    const char *trace; /* write the timeline of a prompt's pass (of the first length) and of one
                          generated token into this file; NULL: do not */
    pi_progress progress;
    void *user;
} pi_bench_options;

PI_API pi_bench_options pi_bench_default_options(void); /* -p 512 -n 128 -d 0 -r 5 */

typedef struct pi_bench_result {
    char test[16]; /* "pp512", "tg128" */
    int32_t depth;
    const char *mode, *device;    /* static strings */
    double tps, tps_min, tps_max; /* tokens per second: median and range over repetitions */
    double tps_stddev;            /* of the sample of repetitions; 0 for a single one */
    double bytes_per_token;       /* weights and KV cache really read */
    double gathered_per_token;    /* of these, rows of single neurons that lay apart in memory */
    double gbps;                  /* bytes_per_token * tps / 1e9 */
    /* What memory delivered during the median repetition, sampled before, between and after. */
    double read_gbps, gather_gbps;
    double bandwidth_share; /* gbps / read_gbps; this and the next are 0 with a GPU */
    /* Time that the floor allows over the time taken; the floor is what was gathered at gather_gbps
     * and the rest at read_gbps. */
    double floor_share;
    double ffn_density; /* feed-forward bytes read / all feed-forward bytes */
} pi_bench_result;

enum { PI_BENCH_TRACED = 2 }; /* a prompt's pass, a token */

typedef struct pi_bench_report {
    char cpu[128];
    int32_t threads;
    /* Medians over the results: the best of several plain loops that read in order, with 1..threads
     * threads, and that read neurons' rows at the density at which they are read. 0: there was no
     * memory to measure with. */
    double read_gbps, gather_gbps;
    uint64_t yardstick_bytes, yardstick_wanted; /* of memory that was taken, and that was wanted */
    uint64_t cache_bytes;                       /* last-level cache */
    bool in_cache; /* the weights are below twice that: shares of memory bandwidth mean nothing */
    int32_t n_traced; /* passes in the file `trace` */
    pi_trace_summary traced[PI_BENCH_TRACED];
    int32_t n_results;
    pi_bench_result results[2 * PI_BENCH_MAX_LIST * PI_BENCH_MAX_LIST];
} pi_bench_report;

/* The report is large; let it live in static or heap memory. */
PI_API pi_status pi_bench(const pi_model *model, const pi_bench_options *options,
                          pi_bench_report *report, pi_error *err);

/* ---- perplexity ------------------------------------------------------------------------------ */

typedef struct pi_perplexity_options {
    pi_context_options context; /* as many windows share a pass as fit n_batch; n_logits 0: n_batch
                                 * within 256 MB */
    int32_t n_ctx;              /* tokens of a window; 0: 512, or as the base run has */
    int32_t n_windows;          /* the first so many; 0: all */
    /* As llama.cpp: a BOS that the model wants replaces the first token of every window, and only
     * the second half of a window is scored. */
    bool llama_windows;
    /* Overlapping windows, as llama.cpp's --ppl-stride has them: each begins `stride` tokens after
     * the one before and has n_ctx + stride / 2 tokens, of which the last `stride` are scored. 0:
     * windows without overlap. Goes with neither llama_windows nor a base run. */
    int32_t stride;
    const char *base_out; /* write a base run here; NULL: none */
    const char *base_in;  /* compare with this base run; NULL: none */
    pi_progress progress;
    pi_message message; /* the perplexity so far, ten times; what is odd about the request */
    void *user;
} pi_perplexity_options;

PI_API pi_perplexity_options pi_perplexity_default_options(void);

/* Kullback-Leibler divergence sum p_base log(p_base / p) per scored token, in nats, and other
 * differences from a base run. */
typedef struct pi_divergence {
    double mean, mean_stderr;
    double median, p90, p95, p99, p99_9, max; /* over tokens; percentiles are interpolated */
    double top1;                      /* share of tokens where both have the same best token */
    double p_diff_mean, p_diff_rms;   /* of p - p_base of the text's own token */
    double base_nll, base_perplexity; /* of the base run on the same tokens */
} pi_divergence;

typedef struct pi_perplexity_report {
    int32_t n_ctx, n_windows;
    int64_t tokens;           /* scored */
    double nll;               /* their mean -log p, nats */
    double perplexity;        /* e^nll */
    double perplexity_stderr; /* perplexity times the standard error of nll */
    bool has_divergence;
    pi_divergence divergence; /* with base_in */
} pi_perplexity_report;

/* How well a model predicts a text. The text is tokenized once, with a BOS at its very start when
 * the model wants one, and cut into windows of n_ctx tokens without overlap; a last short one is
 * dropped. Every token after a window's first is scored. With base_in, `text` may be NULL: the base
 * run has the tokens; otherwise it must begin with the same ones.
 * PI_ERR_FORMAT: not UTF-8 text, or a damaged base run; PI_ERR_LIMIT: shorter than one window;
 * PI_ERR_ARG: options or a base run that do not fit; PI_ERR_RANGE: logits that are no numbers. */
PI_API pi_status pi_perplexity(const pi_model *model, const char *text, size_t n_text,
                               const pi_perplexity_options *options, pi_perplexity_report *report,
                               pi_error *err);

#ifdef __cplusplus
}
#endif
#endif
