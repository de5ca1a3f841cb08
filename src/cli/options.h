/* options.h: the command line and the environment, by one table.
 *
 * Every option of every command is a row of option_table.c: names, type, range, default, help and
 * commands. Parsing, the environment (POWERINFER_ + the long name in capitals with underscores),
 * error messages, suggestions and --help all read this row, so they cannot disagree. The variables
 * LLAMA_ARG_* of llama.cpp's server also name rows: option_environment.c.
 *
 * Order of precedence: command line, POWERINFER_, LLAMA_ARG_, default of the row. When an option is
 * typed twice, the last value counts, as in llama.cpp. Exceptions: options that collect values
 * (OPTION_TEXTS, OPTION_LIST), whose typed values together replace those of the environment, and
 * bench, which measures all combinations of repeated options. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "powerinfer.h"
#include "powerinfer_tools.h"

enum {
    OPTION_MAX_POSITIONALS = 4,
    OPTION_MAX_ALIASES = 3,
    OPTION_MAX_VARIANTS = 128,
    OPTION_MAX_TEXTS = 256, /* values of one option that may be repeated */
    OPTION_MARK_WORDS = 8,  /* words of 64 bits: a bit per row of the table */
    OPTION_PATH_BYTES = 4096,
    OPTION_IDLE_BYTES = 1024
};

/* Bits of option.commands. */
typedef enum command_bit {
    COMMAND_RUN = 1,
    COMMAND_EVAL = 2,
    COMMAND_TOKENIZE = 4,
    COMMAND_BENCH = 8,
    COMMAND_INSPECT = 16,
    COMMAND_CONVERT = 32,
    COMMAND_SYNTH = 64,
    COMMAND_PERPLEXITY = 128,
    COMMAND_QUANTIZE = 256,
    COMMAND_IMATRIX = 512,
    COMMAND_PREPARE = 1024,
    COMMAND_PLACE = 2048,
    COMMAND_TEMPLATE = 4096,
    COMMAND_CHAT = 8192,
    COMMAND_SERVE = 16384,
    COMMAND_COMPLETION = 32768,
    COMMAND_TUNE = 65536,
    COMMAND_EMBED = 131072
} command_bit;

/* Shares of devices. */
typedef struct option_numbers {
    double values[PI_MAX_DEVICES];
    int count;
} option_numbers;

typedef struct option_list {
    int32_t values[PI_BENCH_MAX_LIST];
    int32_t count;
} option_list;

typedef struct option_texts {
    const char *values[OPTION_MAX_TEXTS];
    int32_t count;
} option_texts;

/* One of several values of an option, for bench. */
typedef struct option_variant {
    size_t row; /* row of option_table */
    const char *text;
} option_variant;

typedef struct option_pair {
    double first, second;
} option_pair;

/* Parsed values. Strings belong to argv or the environment. */
typedef struct cli_options {
    /* common */
    const char *model;                                    /* file or URL; NULL: the bundled model */
    const char *hf_repo, *hf_file, *hf_token, *model_url; /* NULL: none */
    bool offline;
    option_texts override_kv; /* "KEY=TYPE:VALUE" */
    int64_t rope_scaling, yarn_orig_ctx;
    double rope_scale, rope_freq_base, rope_freq_scale;
    double yarn_ext_factor, yarn_attn_factor, yarn_beta_slow, yarn_beta_fast;
    option_texts lora; /* "FILE:SCALE", or a scale */
    int64_t threads, threads_batch, ctx_size, batch_size, seed;
    int64_t cache_type_k, cache_type_v; /* pi_cache_type */
    bool no_mmap, mlock, check_tensors, verbose, quiet, json, adapt, deterministic;
    const char *cpu_mask, *cpu_range; /* NULL: no restriction */
    int64_t cpu_strict, prio, numa;
    /* engine */
    option_numbers tensor_split;
    bool mpi, mpi_send;
    const char *mpi_folder; /* NULL: in memory, or with --ram-budget the system's folder */
    option_numbers mpi_split;
    double mpi_timeout;   /* seconds */
    pi_cluster *cluster;  /* cluster_start.h; not an option. NULL: the only process */
    int64_t prepare_head; /* 0: none, 1: sketch */
    int64_t mode, head, kernels, device; /* pi_mode, pi_head, pi_kernels, pi_device_choice */
    double threshold, max_loss, vram_budget, ram_budget, cache_disk_size, expert_slack;
    int64_t gpu_layers, attn_blocks;
    option_texts override_tensor, override_tensor_draft; /* "PATTERN=DEVICE,..." */
    bool cpu_moe, cpu_moe_draft;
    int64_t n_cpu_moe, n_cpu_ffn, n_cpu_moe_draft;
    const char *backend_folder; /* NULL: next to the program, or the installation's */
    /* sampling */
    const char *samplers, *sampling_seq; /* NULL: the default order */
    double top_n_sigma;
    double temp, dynatemp_range, dynatemp_exponent, top_p, min_p, typical;
    double repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repeat_last_n;
    double xtc_probability, xtc_threshold;
    double dry_multiplier, dry_base;
    int64_t dry_allowed_length, dry_last_n;
    option_texts dry_breakers; /* empty: the defaults */
    int64_t mirostat;
    double mirostat_eta, mirostat_tau;
    option_texts logit_bias; /* "ID+BIAS" or "ID-BIAS" */
    bool ignore_eos;
    const char *grammar, *grammar_file; /* GBNF; NULL or empty: none */
    const char *json_schema, *json_schema_file;
    /* speculative decoding */
    int64_t spec; /* option_spec */
    const char *model_draft, *hf_repo_draft;
    int64_t draft_max, draft_min, gpu_layers_draft, device_draft;
    int64_t cache_type_k_draft, cache_type_v_draft;
    double draft_p_min;
    /* run, tokenize */
    const char *prompt, *file;
    bool escape, no_escape;
    int64_t predict, keep;
    bool context_shift, verbose_prompt;
    option_texts reverse_prompts;
    const char *prompt_cache; /* NULL: none */
    bool prompt_cache_all, prompt_cache_ro;
    bool display_prompt;
    bool ids, from_stdin, bos, special, detok;
    const char *pre;
    /* eval */
    const char *tokens, *logits_out;
    /* embed */
    int64_t embed_pooling; /* 0: the model's; otherwise a pi_pooling plus 1 */
    int64_t embd_normalize, embd_format;
    const char *embd_separator, *cls_separator; /* cls_separator NULL: none */
    /* perplexity */
    int64_t first, ppl_stride;
    bool llama_windows, kl_divergence;
    const char *kl_base;
    /* bench */
    option_list prompts, depths, parallels;
    option_list n_gen;
    int64_t repetitions, delay, format; /* bench_format */
    bool show_progress;
    const char *trace; /* NULL: none */
    /* inspect, convert, synth */
    bool plan, devices;
    const char *svg;
    const char *out, *type, *base, *predictors, *shape;
    double density, down_density;
    option_pair skew;
    int64_t rank, layers;
    bool plain, synth_bundle;
    int64_t mtp;
    /* quantize, imatrix */
    const char *imatrix, *output_type, *embedding_type;
    option_texts tensor_types;
    bool pure, allow_requantize, leave_output, dry_run, process_output;
    int64_t chunks;
    /* prepare; max_loss above is in percent */
    const char *calibration; /* NULL: the bundled text */
    int64_t calibration_tokens, calibration_window;
    const char *down_type, *predictor, *predictor_type;
    double recall;
    int64_t bundle; /* a pi_bundles */
    bool undo;
    /* place */
    const char *profile; /* NULL: this machine */
    bool measure;
    int64_t depth;
    /* chat */
    const char *system_prompt, *system_prompt_file;
    bool conversation, single_turn, no_history;
    int64_t color; /* terminal_color */
    int64_t reasoning_budget;
    int64_t reasoning;                                   /* option_reasoning */
    const char *reasoning_effort, *chat_template_kwargs; /* NULL: the default of the template */
    /* template, chat */
    const char *chat_template, *chat_template_file;
    const char *bos_text, *eos_text; /* NULL: the model's */
    const char *now;                 /* NULL: the clock */

    /* serve; chat_template and predict above */
    const char *host, *alias, *metrics_prefix, *cache_disk;
    int64_t port, parallel, queue, cache_ram, ping, timeout, connections;
    int64_t pooling; /* server_pooling */
    bool no_webui, no_slots, no_cache_prompt, no_prefill_assistant;
    const char *static_path, *api_prefix, *slot_save_path; /* NULL: none */
    int64_t reasoning_format;                              /* option_reasoning_format */
    option_texts api_keys, cors_origins;
    const char *api_key_file;
    bool isolate_keys, log_json, opens_page, props, lora_init_without_apply;
    const char *ssl_key_file, *ssl_cert_file;
    option_texts models; /* folders and lists */
    int64_t models_max, models_idle, drain;
    double models_memory;

    option_variant variants[OPTION_MAX_VARIANTS]; /* in the order they were typed */
    int n_variants;
    char variant_text[OPTION_PATH_BYTES]; /* texts of variants that were items of a list */
    size_t variant_used;

    const char *positionals[OPTION_MAX_POSITIONALS];
    int n_positionals;
    char *const *words; /* [n_words] that were parsed: argv behind the command */
    int n_words;
    char machine[OPTION_PATH_BYTES]; /* file for the results of `place --measure`; "": none */
    char shaders_folder[OPTION_PATH_BYTES]; /* for compiled shaders; "": none */
    char history[OPTION_PATH_BYTES];        /* file for the lines typed in chats; "": none */
    /* Folders of downloads, "": none; the hub's URL, NULL: Hugging Face. */
    char hub_folder[OPTION_PATH_BYTES], urls_folder[OPTION_PATH_BYTES];
    const char *hf_endpoint;
    struct model_sources *sources; /* model_source.h */
    uint64_t on_command_line[OPTION_MARK_WORDS], in_environment[OPTION_MARK_WORDS];
    char idle[OPTION_IDLE_BYTES]; /* options without effect: "--foo, LLAMA_ARG_BAR" */
} cli_options;

/* A choice with numbers ("cuda:0,1"): the low bits have the choice, then each number plus 1; 0: the
 * end. */
enum { OPTION_CHOICE_BITS = 7, OPTION_NUMBER_BITS = 7, OPTION_MAX_NUMBER = 63 };
static inline int option_choice_of(int64_t value) {
    return (int)(value & ((1 << OPTION_CHOICE_BITS) - 1));
}
static inline int option_number_of(int64_t value, int i) { /* -1: there are at most i */
    int64_t rest = value >> (OPTION_CHOICE_BITS + i * OPTION_NUMBER_BITS);
    return (int)(rest & ((1 << OPTION_NUMBER_BITS) - 1)) - 1;
}

typedef enum option_type {
    OPTION_FLAG,    /* bool */
    OPTION_INTEGER, /* int64_t within min..max */
    OPTION_NUMBER,  /* double within min..max */
    OPTION_SIZE,    /* double in GiB within min..max; a number may have a unit: 512M, 8GiB */
    OPTION_TEXT,    /* const char * */
    OPTION_TEXTS,   /* option_texts: may be given several times, in order */
    OPTION_CHOICE,  /* int64_t, the index in `choices`; option_choice_of */
    OPTION_LIST,    /* option_list of integers within min..max, separated by commas */
    OPTION_NUMBERS, /* option_numbers within min..max, separated by commas or slashes */
    OPTION_PAIR     /* option_pair, "a:b", both within min..max */
} option_type;

/* Topics, in the order in which help shows them; their titles are in help.c. */
typedef enum option_group {
    GROUP_COMMAND, /* options of this command only */
    GROUP_MODEL,
    GROUP_CONTEXT,
    GROUP_CPU,
    GROUP_ENGINE, /* GPU and memory */
    GROUP_SPARSE,
    GROUP_DRAFT,
    GROUP_SAMPLING,
    GROUP_GRAMMAR,
    GROUP_COMMON, /* output */
    GROUP_COUNT
} option_group;

typedef struct option {
    const char *long_name;  /* "ctx-size" */
    const char *short_name; /* "c", "ctk"; NULL: none */
    option_type type;
    option_group group;
    uint32_t commands; /* command_bit */
    size_t offset;     /* offset of the value in cli_options */
    double min, max;
    const char *argument; /* "N", as help shows it; NULL for flags */
    const char *standard; /* the default as text; NULL: zero */
    const char *choices;  /* "auto|dense|exact" */
    const char *words;    /* "all=99|none=0": other spellings of values; NULL: none */
    const char *bare;     /* CHOICE: value of an option without one; NULL: a value is required */
    const char *help;
    uint32_t llama;         /* command_bit: commands in which llama.cpp has the same option */
    const char *llama_note; /* for docs/llama-flags.md; NULL: none */
    const char *aliases[OPTION_MAX_ALIASES]; /* with dashes */
    const char *opposite; /* FLAG: names that turn it off, "--ui --webui"; NULL: none */
    int indexed;          /* CHOICE: first choice that numbers may follow, "cuda:0,1"; 0: none */
    bool number_follows;  /* TEXTS: a number after the value is a further value */
} option;

/* In the order of the choices of --reasoning-format. */
typedef enum option_reasoning_format { FORMAT_AUTO, FORMAT_NONE } option_reasoning_format;

/* In the order of the choices of --reasoning. */
typedef enum option_reasoning { REASONING_AUTO, REASONING_ON, REASONING_OFF } option_reasoning;

/* In the order of the choices of --spec. */
typedef enum option_spec {
    SPEC_OFF,
    SPEC_NGRAM,
    SPEC_DRAFT,
    SPEC_AUTO,
    SPEC_SELF,
    SPEC_MTP,
    SPEC_EAGLE3
} option_spec;

/* Names by pi_cache_type. */
extern const char *const option_cache_types[];
extern const option option_table[];
extern const size_t option_count;

/* An option of llama.cpp's programs that has no row in option_table: accepted without effect, or
 * refused with a reason. One of `accepted`, `later`, `refused` and `meant` is set; with `accepted`,
 * `refused` may give the reason why other values are refused. */
typedef struct option_compat {
    const char *names;    /* "-fa --flash-attn", with dashes, separated by blanks */
    uint32_t commands;    /* command_bit */
    const char *argument; /* as the documentation shows it; NULL: takes no value */
    bool may_be_bare;     /* the value may be missing, as in older versions */
    const char *accepted; /* values without effect: "on|off"; "#": any integer; "*": any text; "":
                             no argument, or an empty one */
    const char *later;    /* the missing feature, "control vectors" */
    const char *refused;  /* reason, and what to use instead */
    const char *meant;    /* the equivalent option: "-ctk f32" */
} option_compat;

extern const option_compat compat_table[];
extern const size_t compat_count;

typedef enum parse_result { PARSE_OK, PARSE_HELP, PARSE_WRONG } parse_result;

/* Fills `out` from defaults, environment and argv[0..argc), the words after the command. command:
 * its bit; name: its name for messages; max_positionals: how many words may stand alone. With
 * PARSE_WRONG, `err` says why. */
parse_result options_parse(cli_options *out, uint32_t command, const char *name,
                           int max_positionals, int argc, char *const *argv, pi_error *err);

/* From the environment: whether NO_COLOR is set or TERM is "dumb"; COLUMNS, 0: not set. */
bool options_no_color(void);
int options_columns(void);
/* From the environment: whether an MPI launcher started this process as one of several. */
bool options_launched_by_mpi(void);
/* From the environment: the folder for large temporary files: TMPDIR, or /var/tmp. */
const char *options_temporary_folder(void);

/* options_typed: whether the value of `field` of `o` was typed; options_given: typed, or set in the
 * environment. */
bool options_typed(const cli_options *o, const void *field);
bool options_given(const cli_options *o, const void *field);

/* ---- options.c and option_environment.c ------------------------------------------------------ */

enum { OPTION_NAME_BYTES = 64 }; /* longest option name, with its prefix */

bool option_parse_integer(const char *text, int64_t *out);
bool option_parse_bool(const char *text, bool *out);

/* Parses `text` by the option's row and stores the value. where: name for messages. PI_ERR_ARG. */
pi_status option_set(cli_options *out, const option *o, const char *text, const char *where,
                     pi_error *err);

/* Returns the row of `word`, which has dashes; --ctx_size equals --ctx-size, as in llama.cpp. NULL:
 * the commands have no such option. */
const option *option_find(uint32_t commands, const char *word);
/* Whether the word turns the flag off. */
bool option_is_opposite(const option *o, const char *word);

/* Sets the option's bit: on_command_line or in_environment of cli_options. */
void option_mark(uint64_t bits[OPTION_MARK_WORDS], const option *o);
/* Adds an option without effect to `idle`, once. */
void option_add_idle(cli_options *out, const char *word);

/* Writes the option that a variable of llama.cpp sets: "LLAMA_ARG_CTX_SIZE" gives "--ctx-size".
 * False: not such a variable. */
bool option_llama_name(const char *variable, size_t n, char word[OPTION_NAME_BYTES]);

/* Fills `out` from the environment. PI_ERR_ARG: a variable has an invalid value. */
pi_status option_read_environment(cli_options *out, uint32_t command, pi_error *err);

/* ---- bench, messages ------------------------------------------------------------------------- */

/* Returns the row of compat_table for `word`, which has dashes; NULL: none. */
const option_compat *compat_find(uint32_t command, const char *word);

/* Number of combinations of bench's values, and the options of combination k: threads change first,
 * models last. `out` refers to texts of `o`. */
int64_t options_combinations(const cli_options *o);
pi_status options_combination(const cli_options *o, int64_t k, cli_options *out, pi_error *err);

/* Returns the word of words[n] that is closest to `word`, ignoring dashes; NULL: none is close. */
const char *options_closest(const char *word, const char *const *words, size_t n);

#endif
