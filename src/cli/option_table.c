/* option_table.c: every option of every command, as data. Names are llama.cpp's where it has them.
 *
 * Rows appear in --help in this order, by group. Two rows may share a name when their commands
 * differ (-p is a text for run and a list of lengths for bench). Long names are unique among the
 * options of one command, and so are the names of the environment made from them. */
#include "options.h"
#include "powerinfer_speculate.h"

#define FIELD(name) offsetof(cli_options, name)

enum {
    TALK = COMMAND_RUN | COMMAND_CHAT,
    GENERATE = TALK | COMMAND_SERVE,
    COMPUTE = GENERATE | COMMAND_EVAL | COMMAND_BENCH | COMMAND_PERPLEXITY,
    PLANNED = COMPUTE | COMMAND_INSPECT | COMMAND_PLACE,
    MODEL = COMPUTE | COMMAND_TOKENIZE | COMMAND_INSPECT,
    OUTPUT = COMMAND_CONVERT | COMMAND_SYNTH | COMMAND_PREPARE,
    WRITERS = OUTPUT | COMMAND_QUANTIZE | COMMAND_IMATRIX,
    /* whose model can be downloaded */
    SOURCES = MODEL | COMMAND_IMATRIX | COMMAND_PLACE | COMMAND_TEMPLATE | COMMAND_PREPARE |
              COMMAND_QUANTIZE,
    ALL = MODEL | WRITERS | COMMAND_PLACE | COMMAND_TEMPLATE
};

/* Ranges. Threads: the pool's limit. Tokens: positions are int32_t. Float options end where a
 * float does. */
#define MAX_THREADS  512
#define MAX_TOKENS   2147483647.0
#define MAX_SEED     9223372036854774784.0 /* largest double below 2^63 */
#define MAX_PENALTY  1e30                  /* sums with scores stay finite */
#define MAX_MIROSTAT 1e6
#define MAX_WINDOW   1048576.0 /* DRY keeps three numbers per token */
#define MAX_FLOAT    3.4028234663852886e38

/* ROW(type, group, commands, field, the rest by name) */
#define ROW(type_, group_, commands_, field_, ...)                                                 \
    {                                                                                              \
        .type = OPTION_##type_, .group = GROUP_##group_, .commands = (commands_),                  \
        .offset = FIELD(field_), __VA_ARGS__                                                       \
    }
#define NAMES(long_, short_) .long_name = (long_), .short_name = (short_)
#define RANGE(min_, max_)    .min = (min_), .max = (max_)

/* In the order of pi_bundles. */
#define BUNDLE_CHOICES "keep|none|all"

/* In the order of pi_device_choice. */
#define DEVICE_CHOICE(id, name, title, real) "|" name
#define DEVICE_CHOICES                       "auto|cpu" PI_BACKENDS(DEVICE_CHOICE)

/* llama.cpp's names. */
#define DEVICE_WORDS "none=cpu|CUDA0=cuda:0|CUDA1=cuda:1|ROCm0=hip:0|ROCm1=hip:1"

/* In the order of pi_cache_type. */
#define CACHE_CHOICES "f16|f32|q8_0|bf16|q4_0|q4_1|q5_0|q5_1|iq4_nl"
/* As types in overrides.c. */
#define ROPE_CHOICES "model|none|linear|yarn"
const char *const option_cache_types[] = {
    [PI_CACHE_F16] = "f16",   [PI_CACHE_F32] = "f32",   [PI_CACHE_Q8_0] = "q8_0",
    [PI_CACHE_BF16] = "bf16", [PI_CACHE_Q4_0] = "q4_0", [PI_CACHE_Q4_1] = "q4_1",
    [PI_CACHE_Q5_0] = "q5_0", [PI_CACHE_Q5_1] = "q5_1", [PI_CACHE_IQ4_NL] = "iq4_nl"};

const option option_table[] = {
    /* run */
    ROW(TEXT, COMMAND, COMMAND_RUN, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .help = "prompt text, with escapes \\n \\r \\t \\\\ \\' \\\" \\xHH"),
    ROW(TEXT, COMMAND, COMMAND_CHAT, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .help = "first message; escapes as for run"),
    ROW(TEXT, COMMAND, TALK, system_prompt, NAMES("system-prompt", "sys"), .argument = "TEXT",
        .help = "system message of a conversation; run: start chat"),
    ROW(TEXT, COMMAND, TALK, system_prompt_file, NAMES("system-prompt-file", "sysf"),
        .argument = "FILE", .help = "system message from a file"),
    ROW(FLAG, COMMAND, TALK, conversation, NAMES("conversation", "cnv"),
        .help = "start a conversation, as chat always does"),
    ROW(FLAG, COMMAND, TALK, single_turn, NAMES("single-turn", "st"),
        .help = "end after the first answer; run: start chat"),
    ROW(FLAG, COMMAND, COMMAND_CHAT, no_history, NAMES("no-history", NULL),
        .help = "do not keep what is typed in the history file"),
    ROW(INTEGER, COMMAND, COMMAND_CHAT | COMMAND_SERVE, reasoning_budget,
        NAMES("reasoning-budget", NULL), .argument = "N", .standard = "-1", RANGE(-1, 0),
        .help = "0: turn reasoning off in the template; -1: the template's default"),
    ROW(CHOICE, COMMAND, COMMAND_CHAT | COMMAND_SERVE, reasoning, NAMES("reasoning", "rea"),
        .argument = "on|off|auto", .choices = "auto|on|off", .standard = "auto",
        .help = "turn reasoning on or off in the template; auto: the template's default"),
    ROW(TEXT, COMMAND, COMMAND_CHAT | COMMAND_SERVE, reasoning_effort,
        NAMES("reasoning-effort", NULL), .argument = "LEVEL",
        .help = "variable reasoning_effort of the template: low, medium, high, ...; none: no "
                "reasoning; default: the template's own"),
    ROW(TEXT, COMMAND, TALK | COMMAND_SERVE, chat_template_kwargs,
        NAMES("chat-template-kwargs", NULL), .argument = "JSON",
        .help = "variables of the chat template, a JSON object; run: start chat"),
    ROW(TEXT, COMMAND, COMMAND_RUN, file, NAMES("file", "f"), .argument = "FILE",
        .help = "read the prompt from FILE, without its last newline (default, without -p: "
                "standard input)"),
    ROW(FLAG, COMMAND, TALK, no_escape, NAMES("no-escape", NULL),
        .help = "do not process escapes in -p"),
    ROW(FLAG, COMMAND, TALK, escape, NAMES("escape", "e"),
        .help = "process escapes in -p (the default)"),
    ROW(INTEGER, COMMAND, TALK, predict, NAMES("predict", "n"), .argument = "N", .standard = "-1",
        RANGE(-2, MAX_TOKENS), .aliases = {"--n-predict"},
        .help = "tokens to generate; -1: until the end of text or a full context; -2: until a full "
                "context"),
    ROW(FLAG, COMMAND, COMMAND_RUN, context_shift, NAMES("context-shift", NULL),
        .help = "when the context is full, keep the first --keep tokens, drop half of the rest, "
                "recompute the others and continue (default: stop)"),
    ROW(INTEGER, COMMAND, COMMAND_RUN, keep, NAMES("keep", NULL), .argument = "N", .standard = "0",
        RANGE(-1, MAX_TOKENS),
        .help = "tokens of the prompt that --context-shift keeps, BOS not counted; -1: all"),
    ROW(FLAG, COMMAND, COMMAND_RUN, verbose_prompt, NAMES("verbose-prompt", NULL),
        .help = "print the prompt's token ids and texts to standard error"),
    ROW(TEXTS, COMMAND, TALK, reverse_prompts, NAMES("reverse-prompt", "r"), .argument = "TEXT",
        .help = "stop after TEXT, which is printed too; may be repeated"),
    ROW(TEXT, COMMAND, COMMAND_RUN, prompt_cache, NAMES("prompt-cache", NULL), .argument = "FILE",
        .help = "cache the prompt's KV state in FILE; a later prompt reuses the longest common "
                "prefix"),
    ROW(FLAG, COMMAND, COMMAND_RUN, prompt_cache_all, NAMES("prompt-cache-all", NULL),
        .help = "also save the generated tokens to --prompt-cache"),
    ROW(FLAG, COMMAND, COMMAND_RUN, prompt_cache_ro, NAMES("prompt-cache-ro", NULL),
        .help = "read --prompt-cache, do not write it"),
    ROW(FLAG, COMMAND, COMMAND_RUN, display_prompt, NAMES("display-prompt", NULL),
        .help = "print the prompt before the completion"),
    ROW(CHOICE, COMMAND, TALK, color, NAMES("color", "co"), .argument = "WHEN",
        .choices = "auto|on|off",
        .words = "1=on|true=on|enabled=on|0=off|false=off|disabled=off|-1=auto", .bare = "on",
        .standard = "auto",
        .help = "colors; auto: on a terminal, unless NO_COLOR is set; without a value: on"),
    /* eval */
    ROW(TEXT, COMMAND, COMMAND_EVAL, tokens, NAMES("tokens", NULL), .argument = "FILE",
        .help = "token ids separated by white space; - is standard input"),
    ROW(TEXT, COMMAND, COMMAND_EVAL, logits_out, NAMES("logits-out", NULL), .argument = "FILE",
        .help = "write the logits after each position: little-endian float32 [n_tokens, n_vocab]"),
    /* tokenize */
    ROW(TEXT, COMMAND, COMMAND_TOKENIZE, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .help = "text to tokenize, byte for byte"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, from_stdin, NAMES("stdin", NULL),
        .help = "read the text from standard input, byte for byte (the default without -p)"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, ids, NAMES("ids", NULL),
        .help = "print the ids only, on one line"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, bos, NAMES("bos", NULL), .help = "add a BOS token"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, special, NAMES("special", NULL),
        .aliases = {"--parse-special"},
        .help = "parse control tokens in the text; with --detok: print them"),
    ROW(TEXT, COMMAND, COMMAND_TOKENIZE, pre, NAMES("pre", NULL), .argument = "NAME",
        .help = "override the model's pre-tokenizer"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, detok, NAMES("detok", NULL),
        .help = "detokenize: ids in, text out"),
    /* perplexity */
    ROW(TEXT, COMMAND, COMMAND_PERPLEXITY, file, NAMES("file", "f"), .argument = "FILE",
        .help = "text to score, UTF-8; - is standard input"),
    ROW(INTEGER, COMMAND, COMMAND_PERPLEXITY, first, NAMES("first", NULL), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS), .aliases = {"--chunks"},
        .help = "score only the first N windows; 0: all"),
    ROW(FLAG, COMMAND, COMMAND_PERPLEXITY, llama_windows, NAMES("llama-windows", NULL),
        .help =
            "score as llama.cpp does: BOS replaces each window's first token, only its second half "
            "counts"),
    ROW(INTEGER, COMMAND, COMMAND_PERPLEXITY, ppl_stride, NAMES("ppl-stride", NULL),
        .argument = "N", .standard = "0", RANGE(0, MAX_TOKENS),
        .help = "overlapping windows of -c + N/2 tokens, N apart, of which the last N tokens are "
                "scored; 0: no overlap"),
    ROW(TEXT, COMMAND, COMMAND_PERPLEXITY, kl_base, NAMES("kl-divergence-base", NULL),
        .argument = "FILE", .aliases = {"--save-all-logits"},
        .help = "write the base model's logits, or read them with --kl-divergence"),
    ROW(FLAG, COMMAND, COMMAND_PERPLEXITY, kl_divergence, NAMES("kl-divergence", NULL),
        .help = "compare with the base run; text and windows default to its own"),
    /* bench */
    ROW(LIST, COMMAND, COMMAND_BENCH, prompts, NAMES("n-prompt", "p"), .argument = "N,...",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "prompt lengths to time (prefill); 0: none"),
    ROW(LIST, COMMAND, COMMAND_BENCH, n_gen, NAMES("n-gen", "n"), .argument = "N,...",
        .standard = "128", RANGE(0, MAX_TOKENS), .help = "tokens to generate (decode); 0: none"),
    ROW(CHOICE, COMMAND, COMMAND_BENCH, format, NAMES("output", "o"), .argument = "FORMAT",
        .choices = "md|json|jsonl|csv", .standard = "md", .help = "output format; json is --json"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, delay, NAMES("delay", NULL), .argument = "S",
        .standard = "0", RANGE(0, 86400), .help = "seconds to wait before each test"),
    ROW(FLAG, COMMAND, COMMAND_BENCH, show_progress, NAMES("progress", NULL),
        .help = "print progress to standard error (the default without -q)"),
    ROW(LIST, COMMAND, COMMAND_BENCH, depths, NAMES("n-depth", "d"), .argument = "N,...",
        .standard = "0", RANGE(0, MAX_TOKENS),
        .help = "context depths to test at: tokens already in the KV cache"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, repetitions, NAMES("repetitions", "r"), .argument = "N",
        .standard = "5", RANGE(1, 10000), .help = "repetitions of each test"),
    ROW(TEXT, COMMAND, COMMAND_BENCH, trace, NAMES("trace", NULL), .argument = "FILE",
        .help =
            "write a timeline of one prefill batch and one decoded token as Chrome trace events"),
    /* inspect */
    ROW(FLAG, COMMAND, COMMAND_INSPECT, plan, NAMES("plan", NULL),
        .help = "print the steps of a forward pass"),
    ROW(TEXT, COMMAND, COMMAND_INSPECT, svg, NAMES("svg", NULL), .argument = "FILE",
        .help = "plot a prepared model's neurons: hot/cold curves, densities, predictors"),
    ROW(FLAG, COMMAND, COMMAND_INSPECT, devices, NAMES("devices", NULL),
        .aliases = {"--list-devices"}, .help = "list CPU and GPUs instead of a file"),
    /* convert, synth */
    ROW(TEXT, COMMAND, OUTPUT, out, NAMES("output", "o"), .argument = "FILE",
        .aliases = {"--outfile"}, .help = "GGUF file to write"),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, type, NAMES("type", NULL), .argument = "TYPE",
        .standard = "f16", .aliases = {"--outtype"},
        .help = "type of the matrices: f32 f16 bf16 q8_0 q4_0 ..."),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, base, NAMES("base", NULL), .argument = "DIR",
        .help = "of a LoRA adapter: folder with the config.json of the adapted model"),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, predictors, NAMES("predictors", NULL), .argument = "DIR",
        .help = "folder of the original's predictors (model_0.pt ...): write a prepared file"),
    ROW(TEXT, COMMAND, COMMAND_SYNTH, shape, NAMES("shape", NULL), .argument = "NAME",
        .standard = "tiny",
        .help = "shape: tiny llama-1b llama-7b bamboo-7b opt-30b falcon-40b tiny-opt tiny-falcon; "
                "experts: mixtral-8x7b qwen3-30b-a3b gpt-oss-20b smallthinker-21b "
                "deepseek-v2-lite tiny-moe tiny-reglu-moe tiny-mla-moe"),
    ROW(TEXT, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, type, NAMES("type", NULL), .argument = "TYPE",
        .standard = "q4_0", .help = "type of all matrices, output head included"),
    ROW(NUMBER, COMMAND, COMMAND_SYNTH, density, NAMES("density", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1), .help = "mean fraction of active neurons"),
    ROW(PAIR, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, skew, NAMES("skew", NULL), .argument = "A:B",
        .standard = "0.26:0.8", RANGE(0, 1),
        .help = "a fraction A of the neurons (experts) makes up B of the activations (choices)"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, rank, NAMES("rank", NULL), .argument = "N",
        .standard = "256", RANGE(1, 65536),
        .help = "rank of the predictable part of the gate matrix"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, layers, NAMES("layers", NULL),
        .argument = "N", .standard = "0", RANGE(0, 65536),
        .help = "number of layers; 0: the shape's"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH, seed, NAMES("seed", "s"), .argument = "N", .standard = "0",
        RANGE(0, MAX_SEED), .help = "random seed; the same seed gives the same file"),
    ROW(FLAG, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, plain, NAMES("plain", NULL),
        .help = "no predictors, no neuron order: an ordinary GGUF file"),
    ROW(FLAG, COMMAND, COMMAND_SYNTH, synth_bundle, NAMES("bundle", NULL),
        .help = "store a neuron's rows, or an expert's matrices, of gate, up and down side by "
                "side, for models that are larger than memory"),
    /* prepare */
    ROW(TEXT, COMMAND, COMMAND_PREPARE, calibration, NAMES("calibration", NULL), .argument = "FILE",
        .help = "calibration text, UTF-8 (default: the bundled one)"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, calibration_tokens, NAMES("calibration-tokens", NULL),
        .argument = "N", .standard = "16384", RANGE(1, MAX_TOKENS),
        .help = "calibration tokens, sampled from the whole text"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, calibration_window, NAMES("calibration-window", NULL),
        .argument = "N", .standard = "0", RANGE(0, 8192),
        .help = "tokens per window; 0: 512, or the model's context if shorter"),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, type, NAMES("type", NULL), .argument = "TYPE",
        .help = "quantize the matrices first, as quantize does: q4_0 q8_0 q4_k_m ..."),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, down_type, NAMES("down-type", NULL), .argument = "TYPE",
        .help = "type of the down matrix (default: unchanged if float, else q8_0)"),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, predictor, NAMES("predictor", NULL), .argument = "KIND",
        .help = "predictor kind: auto, none, sign, lowrank or relu_mlp (default: auto, but files "
                "of the original PowerInfer keep their predictors)"),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, predictor_type, NAMES("predictor-type", NULL),
        .argument = "TYPE", .standard = "q4_0", .help = "type of the predictors' matrices"),
    ROW(NUMBER, COMMAND, COMMAND_PREPARE, recall, NAMES("recall", NULL), .argument = "X",
        .standard = "0.98", RANGE(0, 1),
        .help = "target contribution recall of the predictors: share of the FFN output to keep"),
    ROW(NUMBER, COMMAND, COMMAND_PREPARE, max_loss, NAMES("max-loss", NULL), .argument = "PCT",
        .standard = "1", RANGE(0, 100),
        .help = "perplexity increase, in percent, allowed when choosing activation thresholds"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, seed, NAMES("seed", "s"), .argument = "N",
        .standard = "1", RANGE(0, MAX_SEED), .help = "random seed of predictor training"),
    ROW(CHOICE, COMMAND, COMMAND_PREPARE, bundle, NAMES("bundle", NULL), .argument = "WHICH",
        .choices = BUNDLE_CHOICES, .standard = "keep",
        .help = "all: store a neuron's rows, or an expert's matrices, of gate, up and down side by "
                "side, for models that are larger than memory; none: apart; keep: as in the input. "
                "A prepared file without --calibration is only rearranged"),
    ROW(FLAG, COMMAND, COMMAND_PREPARE, undo, NAMES("undo", NULL),
        .help = "convert a prepared model back to an ordinary GGUF file, for llama.cpp"),
    /* place */
    ROW(TEXT, COMMAND, COMMAND_PLACE, profile, NAMES("profile", NULL), .argument = "NAME|FILE",
        .help = "machine description (default: this machine, as measured)"),
    ROW(FLAG, COMMAND, COMMAND_PLACE, measure, NAMES("measure", NULL),
        .help = "measure this machine's bandwidth first and save it"),
    ROW(INTEGER, COMMAND, COMMAND_PLACE, depth, NAMES("n-depth", "d"), .argument = "N",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "context depth of the predicted token: tokens already in the KV cache"),
    ROW(TEXT, COMMAND, COMMAND_PLACE, svg, NAMES("svg", NULL), .argument = "FILE",
        .help = "draw the placement"),
    ROW(TEXT, COMMAND, COMMAND_PLACE, shape, NAMES("shape", NULL), .argument = "NAME",
        .help = "place the model that synth would write, not a file: llama-7b opt-30b ..."),
    ROW(NUMBER, COMMAND, COMMAND_PLACE, density, NAMES("density", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1),
        .help =
            "active-neuron fraction when unknown; for a file without statistics the default is 1"),
    /* quantize */
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, imatrix, NAMES("imatrix", NULL), .argument = "FILE",
        .help = "importance matrix (see powerinfer imatrix)"),
    ROW(TEXTS, COMMAND, COMMAND_QUANTIZE, tensor_types, NAMES("tensor-type", NULL),
        .argument = "PATTERN=TYPE",
        .help = "type of tensors whose name contains PATTERN, or matches it if it has * ? or [; "
                "may be repeated, the first match counts"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, output_type, NAMES("output-tensor-type", NULL),
        .argument = "TYPE", .help = "type of output.weight"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, embedding_type, NAMES("token-embedding-type", NULL),
        .argument = "TYPE", .help = "type of token_embd.weight"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, leave_output, NAMES("leave-output-tensor", NULL),
        .help = "keep the type of output.weight"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, pure, NAMES("pure", NULL),
        .help = "one type for all matrices, no mix"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, allow_requantize, NAMES("allow-requantize", NULL),
        .help = "requantize quantized matrices; errors add up"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, chat_template_file, NAMES("chat-template-file", NULL),
        .argument = "FILE",
        .help = "write this Jinja chat template into the output; an empty file: none (default: the "
                "input's)"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, dry_run, NAMES("dry-run", NULL),
        .help = "print types and sizes, write nothing"),
    /* imatrix */
    ROW(TEXT, COMMAND, COMMAND_IMATRIX, file, NAMES("file", "f"), .argument = "FILE",
        .help = "calibration text, UTF-8"),
    ROW(TEXT, COMMAND, COMMAND_IMATRIX, out, NAMES("output", "o"), .argument = "FILE",
        .standard = "imatrix.gguf", .aliases = {"--output-file"},
        .help = "importance matrix to write"),
    ROW(INTEGER, CONTEXT, COMMAND_IMATRIX, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "512", RANGE(1, 65536), .help = "tokens per window"),
    ROW(INTEGER, COMMAND, COMMAND_IMATRIX, chunks, NAMES("chunks", NULL), .argument = "N",
        .standard = "0", RANGE(-1, MAX_TOKENS),
        .help = "maximum windows of the text to use; 0: all"),
    ROW(FLAG, COMMAND, COMMAND_IMATRIX, process_output, NAMES("process-output", NULL),
        .help = "also collect for the output head"),
    /* template */
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, file, NAMES("file", "f"), .argument = "FILE",
        .help = "request: a JSON object as for /v1/chat/completions; - is standard input"),
    ROW(TEXT, MODEL, COMMAND_TEMPLATE | GENERATE, chat_template, NAMES("chat-template", NULL),
        .argument = "NAME",
        .help = "built-in template (default: the model's); list: print their names"),
    ROW(TEXT, MODEL, COMMAND_TEMPLATE | GENERATE, chat_template_file,
        NAMES("chat-template-file", NULL), .argument = "FILE",
        .help = "Jinja template (default: the model's)"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, bos_text, NAMES("bos", NULL), .argument = "TEXT",
        .help = "bos_token (default: the model's)"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, eos_text, NAMES("eos", NULL), .argument = "TEXT",
        .help = "eos_token (default: the model's)"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, now, NAMES("now", NULL), .argument = "TIME",
        .help = "time that the template sees, such as 2025-07-26T09:05:03 (default: now)"),
    /* serve */
    ROW(TEXT, COMMAND, COMMAND_SERVE, host, NAMES("host", NULL), .argument = "ADDRESS",
        .standard = "127.0.0.1",
        .help = "address or name to listen on; other machines reach all but loopback addresses"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, port, NAMES("port", NULL), .argument = "N",
        .standard = "8080", RANGE(0, 65535), .help = "TCP port; 0: any free one"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, parallel, NAMES("parallel", "np"), .argument = "N",
        .standard = "4", .words = "-1=4|auto=4", RANGE(1, 256),
        .help = "slots: sequences that are computed together"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, queue, NAMES("queue", NULL), .argument = "N",
        .standard = "256", RANGE(0, 65536),
        .help = "maximum sequences that wait for a slot; more are refused with status 503"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, predict, NAMES("predict", "n"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS), .aliases = {"--n-predict"},
        .help = "maximum tokens of an answer, where a request has no limit; -1: to the end of the "
                "context"),
    ROW(TEXTS, COMMAND, COMMAND_SERVE, api_keys, NAMES("api-key", NULL), .argument = "KEY",
        .help = "key that requests must carry (Authorization: Bearer KEY, or x-api-key); several "
                "separated by commas, or as a repeated option"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, api_key_file, NAMES("api-key-file", NULL), .argument = "FILE",
        .help = "keys, one per line"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, isolate_keys, NAMES("isolate-keys", NULL),
        .help = "share prompt caches and compiled grammars only among requests with the same key: "
                "response times tell no key what others asked"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, ssl_key_file, NAMES("ssl-key-file", NULL), .argument = "FILE",
        .help = "private key (PEM): serve HTTPS; needs --ssl-cert-file"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, ssl_cert_file, NAMES("ssl-cert-file", NULL),
        .argument = "FILE", .help = "certificate (PEM), then those of its chain, for HTTPS"),
    ROW(TEXTS, COMMAND, COMMAND_SERVE, cors_origins, NAMES("cors-origin", NULL),
        .aliases = {"--cors-origins"}, .argument = "ORIGIN",
        .help = "web pages of this origin (https://example.org; *: any; localhost: any of this "
                "machine) may use the server; several "
                "separated by commas, or as a repeated option; default: none but its own"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, alias, NAMES("alias", "a"), .argument = "NAME",
        .help = "name of the model for clients; default: the file's name"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_webui, NAMES("no-webui", NULL), .aliases = {"--no-ui"},
        .opposite = "--webui --ui",
        .help =
            "no web page: GET / is answered with status 404; --webui, --ui: the page (default)"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, static_path, NAMES("path", NULL), .argument = "DIR",
        .help = "serve the files of this folder in place of the web page; they need no key"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, api_prefix, NAMES("api-prefix", NULL), .argument = "PREFIX",
        .help = "all paths begin with PREFIX, such as /llm"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_slots, NAMES("no-slots", NULL), .opposite = "--slots",
        .help = "no GET /slots; --slots: the route is there (default)"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, slot_save_path, NAMES("slot-save-path", NULL),
        .argument = "DIR",
        .help = "let clients save slots' KV caches in files of this folder and restore them: POST "
                "/slots/N?action=save"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_cache_prompt, NAMES("no-cache-prompt", NULL),
        .opposite = "--cache-prompt",
        .help = "evaluate whole prompts, where a request does not say cache_prompt; "
                "--cache-prompt: reuse what a slot has of them (default)"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_prefill_assistant, NAMES("no-prefill-assistant", NULL),
        .opposite = "--prefill-assistant",
        .help = "a last message of the assistant is complete; --prefill-assistant: the answer "
                "continues it (default)"),
    ROW(CHOICE, COMMAND, COMMAND_SERVE, reasoning_format, NAMES("reasoning-format", NULL),
        .argument = "FORMAT", .choices = "auto|none|deepseek|deepseek-legacy", .standard = "auto",
        .help = "reasoning of answers, where a request does not say reasoning_format: none: in the "
                "content; deepseek, auto: in reasoning_content; deepseek-legacy: the same"),
    ROW(CHOICE, COMMAND, COMMAND_SERVE, pooling, NAMES("pooling", NULL), .argument = "TYPE",
        .choices = "model|mean|last", .standard = "model",
        .help = "embeddings: the mean of all tokens' hidden states, or the last token's; model: as "
                "the file says, else mean"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, timeout, NAMES("timeout", "to"), .argument = "S",
        .standard = "60", RANGE(1, 86400),
        .help = "timeout in seconds for receiving a request and for sending to a client"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, ping, NAMES("sse-ping-interval", NULL), .argument = "S",
        .standard = "30", .words = "-1=0", RANGE(0, 86400),
        .help = "send a comment in streams that are silent for S seconds; 0: none"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, connections, NAMES("connections", NULL), .argument = "N",
        .standard = "1024", RANGE(1, 65536), .help = "maximum open connections; each has a thread"),
    /* common */
    ROW(TEXT, MODEL, COMMAND_PREPARE | COMMAND_CONVERT | COMMAND_QUANTIZE, model,
        NAMES("model", "m"), .argument = "IN",
        .help = "input, in place of the positional argument"),
    ROW(TEXT, MODEL, MODEL | COMMAND_IMATRIX | COMMAND_PLACE | COMMAND_TEMPLATE, model,
        NAMES("model", "m"), .argument = "FILE",
        .help = "model file, GGUF, or its address, https://... (default: the bundled model)"),
    ROW(TEXT, MODEL, SOURCES, hf_repo, NAMES("hf-repo", "hf"), .argument = "USER/REPO[:QUANT]",
        .aliases = {"-hfr"},
        .help = "download the model from Hugging Face and keep it; QUANT, any case: which file "
                "(default: Q4_K_M, else Q8_0, else the first)"),
    ROW(TEXT, MODEL, SOURCES, hf_file, NAMES("hf-file", "hff"), .argument = "FILE",
        .help = "file of the repository of -hf, in place of QUANT"),
    ROW(TEXT, MODEL, SOURCES, hf_token, NAMES("hf-token", "hft"), .argument = "TOKEN",
        .help = "token for private and gated repositories (default: $HF_TOKEN, which does not "
                "show in lists of processes)"),
    ROW(TEXT, MODEL, SOURCES, model_url, NAMES("model-url", "mu"), .argument = "URL",
        .help = "download the model from an address and keep it, as -m URL"),
    ROW(FLAG, MODEL, SOURCES, offline, NAMES("offline", NULL),
        .help = "use only what was downloaded before (default: $HF_HUB_OFFLINE)"),
    ROW(INTEGER, CPU, COMPUTE | WRITERS | COMMAND_PLACE, threads, NAMES("threads", "t"),
        .argument = "N", .standard = "0", .words = "-1=0", RANGE(0, MAX_THREADS),
        .help = "number of threads; 0 or -1: one per physical (performance) core"),
    ROW(INTEGER, CPU, COMPUTE, threads_batch, NAMES("threads-batch", "tb"), .argument = "N",
        .standard = "0", .words = "-1=0", RANGE(0, MAX_THREADS),
        .help = "number of threads for prefill; 0 or -1: as -t"),
    ROW(TEXT, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE, cpu_mask, NAMES("cpu-mask", "C"),
        .argument = "HEX", .help = "CPU affinity mask: bit N is CPU N"),
    ROW(TEXT, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE, cpu_range, NAMES("cpu-range", "Cr"),
        .argument = "LO-HI", .help = "CPU affinity range; added to -C"),
    ROW(INTEGER, CPU, COMPUTE, cpu_strict, NAMES("cpu-strict", NULL), .argument = "0|1",
        .standard = "0", RANGE(0, 1), .help = "1: pin each worker thread to one CPU"),
    ROW(INTEGER, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE, prio, NAMES("prio", NULL),
        .argument = "N", .standard = "0", RANGE(-1, 3),
        .help = "scheduling priority: -1 low, 0 normal, 1 medium, 2 high, 3 highest (nice 10, 0, "
                "-5, -10, -20)"),
    ROW(CHOICE, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE, numa, NAMES("numa", NULL),
        .argument = "POLICY", .choices = "none|distribute|isolate|numactl", .standard = "none",
        .help = "NUMA: distribute memory over all nodes, isolate threads on the starting node, or "
                "keep what numactl set"),
    ROW(INTEGER, CONTEXT, TALK | COMMAND_INSPECT | COMMAND_PLACE, ctx_size, NAMES("ctx-size", "c"),
        .argument = "N", .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "context size in tokens; 0: the model's training context; -1: the smaller of that "
                "and 8192"),
    ROW(INTEGER, CONTEXT, COMMAND_SERVE, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "context size in tokens of all slots together; 0: the model's training context for "
                "each slot; -1: the smaller of that and 8192 for each"),
    ROW(INTEGER, CONTEXT, COMMAND_EVAL, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "context size in tokens; -1: the number of tokens given; 0: the model's training "
                "context"),
    ROW(INTEGER, CONTEXT, COMMAND_PERPLEXITY, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "tokens per window; 0: the model's training context"),
    ROW(INTEGER, CONTEXT, PLANNED, batch_size, NAMES("batch-size", "b"), .argument = "N",
        .standard = "512", RANGE(1, 65536), .aliases = {"--batch"},
        .help = "maximum tokens per batch in prefill"),
    ROW(CHOICE, CONTEXT, PLANNED, cache_type_k, NAMES("cache-type-k", "ctk"), .argument = "TYPE",
        .choices = CACHE_CHOICES, .standard = "f16", .help = "KV cache type of the keys"),
    ROW(CHOICE, CONTEXT, PLANNED, cache_type_v, NAMES("cache-type-v", "ctv"), .argument = "TYPE",
        .choices = CACHE_CHOICES, .standard = "f16", .help = "KV cache type of the values"),
    ROW(TEXTS, MODEL, COMPUTE | COMMAND_TOKENIZE, override_kv, NAMES("override-kv", NULL),
        .argument = "KEY=TYPE:VALUE",
        .help = "override a key of the model file's metadata, such as "
                "llama.context_length=int:8192; TYPE is int, float, bool or str; may be repeated"),
    ROW(CHOICE, CONTEXT, COMPUTE, rope_scaling, NAMES("rope-scaling", NULL), .argument = "TYPE",
        .choices = ROPE_CHOICES, .standard = "model", .help = "scaling of RoPE"),
    ROW(NUMBER, CONTEXT, COMPUTE, rope_scale, NAMES("rope-scale", NULL), .argument = "N",
        .standard = "0", RANGE(0, 1e6),
        .help = "factor of RoPE scaling: contexts are N times as long; 0: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, rope_freq_base, NAMES("rope-freq-base", NULL), .argument = "N",
        .standard = "0", RANGE(0, 1e12),
        .help = "base of RoPE (NTK-aware scaling); 0: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, rope_freq_scale, NAMES("rope-freq-scale", NULL), .argument = "N",
        .standard = "0", RANGE(0, 1e6), .help = "--rope-scale as 1/N; 0: the model's"),
    ROW(INTEGER, CONTEXT, COMPUTE, yarn_orig_ctx, NAMES("yarn-orig-ctx", NULL), .argument = "N",
        .standard = "0", RANGE(0, INT32_MAX),
        .help = "YaRN: context before scaling; 0: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_ext_factor, NAMES("yarn-ext-factor", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, 1000),
        .help = "YaRN: share of unscaled frequencies; -1: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_attn_factor, NAMES("yarn-attn-factor", NULL),
        .argument = "N", .standard = "-1", RANGE(-1, 1000),
        .help = "YaRN: factor of rotated vectors; -1: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_beta_slow, NAMES("yarn-beta-slow", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, 1e6),
        .help = "YaRN: turns up to which all is scaled; -1: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_beta_fast, NAMES("yarn-beta-fast", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, 1e6),
        .help = "YaRN: turns from which nothing is; -1: the model's"),
    ROW(TEXTS, MODEL, COMPUTE, lora, NAMES("lora", NULL), .argument = "FILE[:SCALE]",
        .aliases = {"--lora-scaled"}, .number_follows = true,
        .help = "merge a LoRA adapter (GGUF) into the weights, times SCALE (default 1); the merged "
                "matrices become F16; may be repeated, or a list with commas"),
    ROW(FLAG, ENGINE, COMPUTE, no_mmap, NAMES("no-mmap", NULL),
        .help = "copy the weights into memory (huge pages) instead of mapping the file"),
    ROW(FLAG, ENGINE, COMPUTE, mlock, NAMES("mlock", NULL), .help = "lock the weights in RAM"),
    ROW(FLAG, MODEL, COMPUTE, check_tensors, NAMES("check-tensors", NULL),
        .help = "check all weights for NaN and infinity when loading"),
    ROW(FLAG, COMMON,
        TALK | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_INSPECT | COMMAND_QUANTIZE |
            COMMAND_PREPARE | COMMAND_PLACE,
        json, NAMES("json", NULL), .help = "print one JSON document on standard output"),
    ROW(FLAG, COMMON, ALL, verbose, NAMES("verbose", "v"), .aliases = {"--log-verbose"},
        .help = "verbose output"),
    ROW(FLAG, COMMON, ALL, quiet, NAMES("quiet", "q"), .aliases = {"--log-disable"},
        .help = "print only errors on standard error"),
    /* engine */
    ROW(FLAG, ENGINE, COMPUTE, devices, NAMES("list-devices", NULL),
        .help = "list CPU and GPUs and exit"),
    ROW(CHOICE, SPARSE, PLANNED, mode, NAMES("mode", NULL), .argument = "MODE",
        .choices = "auto|dense|exact|predict|threshold", .standard = "auto",
        .help =
            "FFN computation; dense: all neurons; exact: skip inactive neurons, lossless; predict: "
            "only neurons that the predictor selects; threshold: zero small activations; auto: the "
            "fastest within --max-loss. A mode that the model has no data for is an error"),
    ROW(CHOICE, ENGINE, PLANNED, device, NAMES("device", "dev"), .argument = "DEVICE",
        .choices = DEVICE_CHOICES, .words = DEVICE_WORDS, .indexed = 2, .standard = "auto",
        .help = "device; auto: offload to the GPU what fits, if there is one; cuda:1: the second "
                "one of --list-devices, in place of the fastest; cuda:0,1: the layers are split "
                "between both; "
                "a named device that cannot be used is an error; none: cpu; sim: a simulated GPU, "
                "for tests"),
    ROW(NUMBERS, ENGINE, PLANNED, tensor_split, NAMES("tensor-split", "ts"), .argument = "N,...",
        RANGE(0, MAX_FLOAT),
        .help =
            "proportion of the model for each GPU that --device lists, else for GPUs 0, 1, ..., "
            "such as 3,1; 0: do not use the GPU (default: in proportion to free memory)"),
    ROW(CHOICE, CPU, COMPUTE | COMMAND_INSPECT, kernels, NAMES("kernels", NULL), .argument = "TIER",
        .choices = "auto|scalar|avx2|avx512|neon", .standard = "auto",
        .help = "instruction set of the CPU kernels; scalar: the float reference, slow"),
    ROW(NUMBER, SPARSE, COMPUTE | COMMAND_INSPECT, threshold, NAMES("threshold", NULL),
        .argument = "X", RANGE(-MAX_FLOAT, MAX_FLOAT),
        .help = "predictor threshold: skip neurons with a lower score; -1e30: skip none (default: "
                "the model's)"),
    ROW(NUMBER, SPARSE, PLANNED, max_loss, NAMES("max-loss", NULL), .argument = "PCT",
        .standard = "1", RANGE(0, 100),
        .help = "perplexity increase, in percent as measured by prepare, that --mode auto accepts"),
    ROW(SIZE, ENGINE, PLANNED, vram_budget, NAMES("vram-budget", NULL), .argument = "SIZE",
        RANGE(0, MAX_FLOAT),
        .help = "GPU memory to use, in GiB or with a unit (512M, 8G); 0: none (default: free "
                "memory minus a margin)"),
    ROW(SIZE, ENGINE, PLANNED, ram_budget, NAMES("ram-budget", NULL), .argument = "SIZE",
        RANGE(0, MAX_FLOAT),
        .help = "host memory to use, as --vram-budget; weights that do not fit are read from the "
                "drive when they are "
                "needed; 0: no limit, map the file (default: for a model larger than the free "
                "memory, that minus a margin; else no limit)"),
    ROW(INTEGER, ENGINE, COMPUTE | COMMAND_INSPECT, gpu_layers, NAMES("gpu-layers", "ngl"),
        .argument = "N", .standard = "-1", .words = "auto=-1|all=2147483647", RANGE(-1, MAX_TOKENS),
        .aliases = {"--n-gpu-layers"},
        .help = "offload the last N layers to the GPU, as many as fit; N > n_layer (or all) also "
                "offloads the output head; -1 (or auto): the fastest placement"),
    ROW(TEXTS, ENGINE, PLANNED, override_tensor, NAMES("override-tensor", "ot"),
        .argument = "PATTERN=DEVICE,...",
        .help = "keep what regular expressions find in tensors' names on the CPU: exps=CPU; may be "
                "repeated; see docs/placement.md"),
    ROW(FLAG, ENGINE, PLANNED, cpu_moe, NAMES("cpu-moe", "cmoe"),
        .help = "keep all experts on the CPU, attention may be on the GPU"),
    ROW(INTEGER, ENGINE, PLANNED, n_cpu_moe, NAMES("n-cpu-moe", "ncmoe"), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS),
        .help = "keep the experts of the first N layers on the CPU"),
    ROW(INTEGER, ENGINE, PLANNED, n_cpu_ffn, NAMES("n-cpu-ffn", "ncffn"), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS),
        .help = "keep the neurons of dense FFNs in the first N layers on the CPU"),
    ROW(FLAG, ENGINE, COMPUTE, deterministic, NAMES("deterministic", NULL),
        .help = "compute every token alone, bit for bit: answers do not depend on other requests, "
                "batch sizes or cached prefixes; prefill is slower"),
    ROW(FLAG, ENGINE, COMPUTE, adapt, NAMES("adapt", NULL),
        .help = "mixtures of experts on CPU and GPU: move experts to the GPU as the text uses "
                "them, between tokens"),
    ROW(TEXT, ENGINE, PLANNED, backend_folder, NAMES("backend-folder", NULL), .argument = "DIR",
        .help =
            "folder of the GPU backends (default: beside the program, or where it was installed)"),
    /* speculative decoding */
    ROW(CHOICE, DRAFT, GENERATE, spec, NAMES("spec", NULL), .argument = "KIND",
        .choices = "off|ngram|draft|auto",
        .words = "none=off|ngram-simple=ngram|draft-simple=draft", .standard = "off",
        .aliases = {"--spec-type"},
        .help = "speculative decoding: draft tokens and verify them together; the text stays the "
                "same; ngram: draft what followed the last tokens earlier in the text; draft: "
                "use a draft model; auto: the faster of both, default with -md"),
    ROW(TEXT, DRAFT, GENERATE, model_draft, NAMES("model-draft", "md"), .argument = "FILE",
        .aliases = {"--spec-draft-model"}, .help = "draft model of the same vocabulary, GGUF"),
    ROW(TEXT, DRAFT, GENERATE, hf_repo_draft, NAMES("hf-repo-draft", "hfd"),
        .argument = "USER/REPO[:QUANT]", .aliases = {"-hfrd"},
        .help = "draft model from Hugging Face, as -hf"),
    ROW(INTEGER, DRAFT, GENERATE, draft_max, NAMES("draft-max", NULL), .argument = "N",
        .standard = "16", RANGE(1, PI_DRAFT_MAX),
        .aliases = {"--draft", "--draft-n", "--spec-draft-n-max"},
        .help = "maximum tokens of a draft"),
    ROW(INTEGER, DRAFT, GENERATE, draft_min, NAMES("draft-min", NULL), .argument = "N",
        .standard = "0", RANGE(0, PI_DRAFT_MAX), .aliases = {"--draft-n-min", "--spec-draft-n-min"},
        .help = "draft at least N tokens, and use no shorter drafts; 0: measured speeds decide"),
    ROW(NUMBER, DRAFT, GENERATE, draft_p_min, NAMES("draft-p-min", NULL), .argument = "X",
        .standard = "0", RANGE(0, 1), .aliases = {"--spec-draft-p-min"},
        .help = "end a draft before a token that the draft model gives a probability below X"),
    ROW(INTEGER, DRAFT, GENERATE, gpu_layers_draft, NAMES("gpu-layers-draft", "ngld"),
        .argument = "N", .standard = "-1", .words = "auto=-1|all=2147483647", RANGE(-1, MAX_TOKENS),
        .aliases = {"--n-gpu-layers-draft", "--spec-draft-ngl"},
        .help = "as -ngl, for the draft model"),
    ROW(CHOICE, DRAFT, GENERATE, device_draft, NAMES("device-draft", "devd"), .argument = "DEVICE",
        .choices = DEVICE_CHOICES, .words = DEVICE_WORDS, .indexed = 2, .standard = "auto",
        .aliases = {"--spec-draft-device"}, .help = "as --device, for the draft model"),
    ROW(TEXTS, DRAFT, GENERATE, override_tensor_draft, NAMES("override-tensor-draft", "otd"),
        .argument = "PATTERN=DEVICE,...", .aliases = {"--spec-draft-override-tensor"},
        .help = "as -ot, for the draft model"),
    ROW(FLAG, DRAFT, GENERATE, cpu_moe_draft, NAMES("cpu-moe-draft", "cmoed"),
        .aliases = {"--spec-draft-cpu-moe"}, .help = "as -cmoe, for the draft model"),
    ROW(INTEGER, DRAFT, GENERATE, n_cpu_moe_draft, NAMES("n-cpu-moe-draft", "ncmoed"),
        .argument = "N", .standard = "0", RANGE(0, MAX_TOKENS),
        .aliases = {"--spec-draft-n-cpu-moe", "--spec-draft-ncmoe"},
        .help = "as -ncmoe, for the draft model"),
    ROW(CHOICE, DRAFT, GENERATE, cache_type_k_draft, NAMES("cache-type-k-draft", "ctkd"),
        .argument = "TYPE", .choices = CACHE_CHOICES, .standard = "f16",
        .aliases = {"--spec-draft-type-k"}, .help = "as -ctk, for the draft model"),
    ROW(CHOICE, DRAFT, GENERATE, cache_type_v_draft, NAMES("cache-type-v-draft", "ctvd"),
        .argument = "TYPE", .choices = CACHE_CHOICES, .standard = "f16",
        .aliases = {"--spec-draft-type-v"}, .help = "as -ctv, for the draft model"),
    /* sampling */
    ROW(TEXT, SAMPLING, GENERATE, samplers, NAMES("samplers", NULL), .argument = "NAME;...",
        .help = "samplers, in order; those left out are off (default "
                "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"),
    ROW(TEXT, SAMPLING, GENERATE, sampling_seq, NAMES("sampling-seq", NULL), .argument = "LETTERS",
        .aliases = {"--sampler-seq"}, .help = "the same by letters (default edskypmxt)"),
    ROW(NUMBER, SAMPLING, GENERATE, temp, NAMES("temp", NULL), .argument = "X", .standard = "0.8",
        RANGE(-MAX_FLOAT, MAX_FLOAT), .aliases = {"--temperature"},
        .help = "temperature; 0: greedy"),
    ROW(INTEGER, SAMPLING, GENERATE, top_k, NAMES("top-k", NULL), .argument = "N", .standard = "40",
        RANGE(-1, MAX_TOKENS), .help = "top-k: keep the N most likely tokens; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, top_p, NAMES("top-p", NULL), .argument = "X",
        .standard = "0.95", RANGE(0, 1),
        .help =
            "nucleus sampling: keep the most likely tokens with a total probability of X; 1: off"),
    ROW(NUMBER, SAMPLING, GENERATE, min_p, NAMES("min-p", NULL), .argument = "X",
        .standard = "0.05", RANGE(0, 1),
        .help =
            "min-p: keep tokens with at least X times the probability of the top token; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, typical, NAMES("typical", NULL), .argument = "X",
        .standard = "1", RANGE(0, 1), .aliases = {"--typical-p"},
        .help = "locally typical sampling: keep the most typical tokens with a total probability "
                "of X; 1: off"),
    ROW(NUMBER, SAMPLING, GENERATE, top_n_sigma, NAMES("top-nsigma", NULL), .argument = "X",
        .standard = "-1", RANGE(-MAX_FLOAT, MAX_FLOAT), .aliases = {"--top-n-sigma"},
        .help = "top-n-sigma: keep tokens whose logit is within X standard deviations of the top "
                "token's; 0 or less: off"),
    ROW(NUMBER, SAMPLING, GENERATE, repeat_penalty, NAMES("repeat-penalty", NULL), .argument = "X",
        .standard = "1", RANGE(1e-6, 1e6),
        .help = "repetition penalty: divides the logits of repeated tokens; 1: off"),
    ROW(INTEGER, SAMPLING, GENERATE, repeat_last_n, NAMES("repeat-last-n", NULL), .argument = "N",
        .standard = "64", RANGE(-1, MAX_TOKENS),
        .help = "number of last tokens that the penalties apply to; 0: off; -1: all"),
    ROW(NUMBER, SAMPLING, GENERATE, presence_penalty, NAMES("presence-penalty", NULL),
        .argument = "X", .standard = "0", RANGE(-MAX_PENALTY, MAX_PENALTY),
        .help = "presence penalty: subtracted once from a repeated token's logit; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, frequency_penalty, NAMES("frequency-penalty", NULL),
        .argument = "X", .standard = "0", RANGE(-MAX_PENALTY, MAX_PENALTY),
        .help = "frequency penalty: subtracted per occurrence; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dynatemp_range, NAMES("dynatemp-range", NULL), .argument = "X",
        .standard = "0", RANGE(0, MAX_PENALTY),
        .help = "dynamic temperature: --temp +- X, depending on the entropy; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dynatemp_exponent, NAMES("dynatemp-exp", NULL), .argument = "X",
        .standard = "1", RANGE(0, MAX_PENALTY), .help = "exponent of the dynamic temperature"),
    ROW(NUMBER, SAMPLING, GENERATE, xtc_probability, NAMES("xtc-probability", NULL),
        .argument = "X", .standard = "0", RANGE(0, 1),
        .help = "XTC: probability of removing the top tokens; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, xtc_threshold, NAMES("xtc-threshold", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1),
        .help = "XTC: minimum probability of a top token; over 0.5: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dry_multiplier, NAMES("dry-multiplier", NULL), .argument = "X",
        .standard = "0", RANGE(0, MAX_PENALTY),
        .help = "DRY: penalty of X * base ^ (length - allowed length) on a token that continues a "
                "repeated sequence; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dry_base, NAMES("dry-base", NULL), .argument = "X",
        .standard = "1.75", RANGE(0, MAX_PENALTY), .help = "DRY: base; below 1: off"),
    ROW(INTEGER, SAMPLING, GENERATE, dry_allowed_length, NAMES("dry-allowed-length", NULL),
        .argument = "N", .standard = "2", RANGE(0, MAX_TOKENS),
        .help = "DRY: shorter sequences are not penalized"),
    ROW(INTEGER, SAMPLING, GENERATE, dry_last_n, NAMES("dry-penalty-last-n", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_WINDOW),
        .help = "DRY: tokens to look back on; -1: the model's training context; 0: off"),
    ROW(TEXTS, SAMPLING, GENERATE, dry_breakers, NAMES("dry-sequence-breaker", NULL),
        .argument = "TEXT",
        .help =
            "DRY: text that ends a sequence; may be repeated, replaces newline : \" *; none: no "
            "breakers"),
    ROW(INTEGER, SAMPLING, GENERATE, mirostat, NAMES("mirostat", NULL), .argument = "N",
        .standard = "0", RANGE(0, 2),
        .help = "Mirostat 1 or 2, replaces the other samplers; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, mirostat_eta, NAMES("mirostat-lr", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, MAX_MIROSTAT), .help = "Mirostat: learning rate eta"),
    ROW(NUMBER, SAMPLING, GENERATE, mirostat_tau, NAMES("mirostat-ent", NULL), .argument = "X",
        .standard = "5", RANGE(0, MAX_MIROSTAT),
        .help = "Mirostat: target entropy tau, in bits per token"),
    ROW(TEXTS, SAMPLING, GENERATE, logit_bias, NAMES("logit-bias", "l"), .argument = "ID+BIAS",
        .help = "add BIAS to a token's logit (or ID-BIAS); -inf bans the token; may be repeated"),
    ROW(INTEGER, SAMPLING, GENERATE, seed, NAMES("seed", "s"), .argument = "N", .standard = "-1",
        RANGE(-1, MAX_SEED), .help = "random seed; -1: a new one each time"),
    ROW(FLAG, SAMPLING, GENERATE, ignore_eos, NAMES("ignore-eos", NULL),
        .help = "never sample an end-of-generation token"),
    ROW(TEXT, GRAMMAR, GENERATE, grammar, NAMES("grammar", NULL), .argument = "GBNF",
        .help = "constrain the text by a grammar"),
    ROW(TEXT, GRAMMAR, GENERATE, grammar_file, NAMES("grammar-file", NULL), .argument = "FILE",
        .help = "constrain the text by a grammar in FILE"),
    ROW(TEXT, GRAMMAR, GENERATE, json_schema, NAMES("json-schema", "j"), .argument = "SCHEMA",
        .help = "constrain the text to JSON by a JSON Schema; {}: any JSON"),
    ROW(TEXT, GRAMMAR, GENERATE, json_schema_file, NAMES("json-schema-file", "jf"),
        .argument = "FILE", .help = "constrain the text to JSON by a JSON Schema in FILE"),
};

const size_t option_count = sizeof option_table / sizeof option_table[0];

_Static_assert(sizeof option_table / sizeof option_table[0] <= 64 * OPTION_MARK_WORDS,
               "cli_options keeps one bit per row");
