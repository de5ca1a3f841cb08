/* option_table.c: every option of every command, as data. Options that llama.cpp has keep its
 * names.
 *
 * --help shows the rows in this order, by group. Two rows may share a name when their commands
 * differ (-p is a text for run and a list of lengths for bench). Within one command, long names and
 * the environment variables made from them are unique. */
#include "options.h"
#include "powerinfer_speculate.h"

#define FIELD(name) offsetof(cli_options, name)

enum {
    TALK = COMMAND_RUN | COMMAND_CHAT,
    GENERATE = TALK | COMMAND_SERVE,
    DRAFTING = GENERATE | COMMAND_BENCH,
    COMPUTE = GENERATE | COMMAND_EMBED | COMMAND_EVAL | COMMAND_BENCH | COMMAND_PERPLEXITY,
    PLANNED = COMPUTE | COMMAND_INSPECT | COMMAND_PLACE,
    DEVICES = PLANNED | COMMAND_TUNE, /* commands with the options of devices and memory */
    MODEL = COMPUTE | COMMAND_TOKENIZE | COMMAND_INSPECT,
    STAGED = (COMPUTE & ~COMMAND_EMBED) | COMMAND_PLACE, /* on several machines */
    OUTPUT = COMMAND_CONVERT | COMMAND_SYNTH | COMMAND_PREPARE | COMMAND_TUNE,
    WRITERS = OUTPUT | COMMAND_QUANTIZE | COMMAND_IMATRIX,
    /* commands whose model can be downloaded */
    SOURCES = MODEL | COMMAND_IMATRIX | COMMAND_PLACE | COMMAND_TEMPLATE | COMMAND_PREPARE |
              COMMAND_QUANTIZE | COMMAND_TUNE,
    ALL = MODEL | WRITERS | COMMAND_PLACE | COMMAND_TEMPLATE,
    /* option.llama: all commands of the row that have a counterpart in llama.cpp */
    EVERYWHERE = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY |
                 COMMAND_QUANTIZE | COMMAND_IMATRIX | COMMAND_TOKENIZE | COMMAND_EMBED
};

/* Ranges. Threads: the pool's limit. Tokens: positions are int32_t. Float options end where a
 * float does. */
#define MAX_THREADS  512
#define MAX_TOKENS   2147483647.0
#define MAX_SEED     9223372036854774784.0 /* largest double below 2^63 */
#define MAX_PENALTY  1e30                  /* sums with scores stay finite */
#define MAX_MIROSTAT 1e6
#define MAX_WINDOW   1048576.0 /* DRY needs three numbers per token */
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
/* Types as in overrides.c. */
#define ROPE_CHOICES "model|none|linear|yarn"
const char *const option_cache_types[] = {
    [PI_CACHE_F16] = "f16",   [PI_CACHE_F32] = "f32",   [PI_CACHE_Q8_0] = "q8_0",
    [PI_CACHE_BF16] = "bf16", [PI_CACHE_Q4_0] = "q4_0", [PI_CACHE_Q4_1] = "q4_1",
    [PI_CACHE_Q5_0] = "q5_0", [PI_CACHE_Q5_1] = "q5_1", [PI_CACHE_IQ4_NL] = "iq4_nl"};

const option option_table[] = {
    /* run */
    ROW(TEXT, COMMAND, COMMAND_RUN, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .llama = EVERYWHERE,
        .help = "prompt to continue; escapes: \\n \\r \\t \\\\ \\' \\\" \\xHH"),
    ROW(TEXT, COMMAND, COMMAND_CHAT, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .help = "first message; escapes as in run -p"),
    ROW(TEXT, COMMAND, COMMAND_RUN, system_prompt, NAMES("system-prompt", "sys"),
        .argument = "TEXT", .llama = EVERYWHERE, .llama_note = "starts chat",
        .help = "start chat with this system message"),
    ROW(TEXT, COMMAND, COMMAND_CHAT, system_prompt, NAMES("system-prompt", "sys"),
        .argument = "TEXT", .help = "system message; escapes as in -p"),
    ROW(TEXT, COMMAND, COMMAND_RUN, system_prompt_file, NAMES("system-prompt-file", "sysf"),
        .argument = "FILE", .llama = EVERYWHERE, .llama_note = "starts chat",
        .help = "start chat with the system message in FILE"),
    ROW(TEXT, COMMAND, COMMAND_CHAT, system_prompt_file, NAMES("system-prompt-file", "sysf"),
        .argument = "FILE", .help = "read the system message from FILE"),
    ROW(FLAG, COMMAND, COMMAND_RUN, conversation, NAMES("conversation", "cnv"), .llama = EVERYWHERE,
        .llama_note = "starts chat", .help = "start chat"),
    ROW(FLAG, COMMAND, COMMAND_CHAT, conversation, NAMES("conversation", "cnv"),
        .help = "hold a conversation (chat always does)"),
    ROW(FLAG, COMMAND, COMMAND_RUN, single_turn, NAMES("single-turn", "st"), .llama = EVERYWHERE,
        .llama_note = "starts chat", .help = "start chat and end after the first answer"),
    ROW(FLAG, COMMAND, COMMAND_CHAT, single_turn, NAMES("single-turn", "st"),
        .help = "end after the first answer"),
    ROW(FLAG, COMMAND, COMMAND_CHAT, no_history, NAMES("no-history", NULL),
        .help = "do not save typed lines in the history file"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, reasoning_budget, NAMES("reasoning-budget", NULL),
        .argument = "N", .standard = "-1", RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "maximum tokens of reasoning when the request sets no budget; then the reasoning "
                "is ended; 0: also turn reasoning off in the template; -1: no limit"),
    ROW(INTEGER, COMMAND, COMMAND_CHAT, reasoning_budget, NAMES("reasoning-budget", NULL),
        .argument = "N", .standard = "-1", RANGE(-1, 0), .llama = EVERYWHERE,
        .llama_note = "0 or -1",
        .help = "tokens of reasoning; 0: turn reasoning off in the template; -1: no limit, the "
                "template's default"),
    ROW(CHOICE, COMMAND, COMMAND_CHAT | COMMAND_SERVE, reasoning, NAMES("reasoning", "rea"),
        .argument = "on|off|auto", .choices = "auto|on|off", .standard = "auto",
        .llama = EVERYWHERE,
        .help = "turn reasoning on or off in the template; auto: as the template does"),
    ROW(TEXT, COMMAND, COMMAND_CHAT | COMMAND_SERVE, reasoning_effort,
        NAMES("reasoning-effort", NULL), .argument = "LEVEL", .llama = EVERYWHERE,
        .help = "set the template's variable reasoning_effort: low, medium, high, ...; none: turn "
                "reasoning off; default: as the template does"),
    ROW(TEXT, COMMAND, COMMAND_RUN, chat_template_kwargs, NAMES("chat-template-kwargs", NULL),
        .argument = "JSON", .llama = EVERYWHERE, .llama_note = "starts chat",
        .help = "start chat with these variables of the chat template, a JSON object"),
    ROW(TEXT, COMMAND, COMMAND_CHAT | COMMAND_SERVE, chat_template_kwargs,
        NAMES("chat-template-kwargs", NULL), .argument = "JSON", .llama = EVERYWHERE,
        .help = "variables of the chat template, a JSON object: {\"enable_thinking\": false}"),
    ROW(TEXT, COMMAND, COMMAND_RUN, file, NAMES("file", "f"), .argument = "FILE",
        .llama = EVERYWHERE,
        .help = "read the prompt from FILE, without its last newline (default, without -p: "
                "standard input)"),
    ROW(FLAG, COMMAND, TALK, no_escape, NAMES("no-escape", NULL), .llama = EVERYWHERE,
        .help = "do not process escapes in -p"),
    ROW(FLAG, COMMAND, TALK, escape, NAMES("escape", "e"), .llama = EVERYWHERE,
        .help = "process escapes in -p (default)"),
    ROW(INTEGER, COMMAND, TALK, predict, NAMES("predict", "n"), .argument = "N", .standard = "-1",
        RANGE(-2, MAX_TOKENS), .aliases = {"--n-predict"}, .llama = EVERYWHERE,
        .help = "number of tokens to generate; -1: until the text ends or the context is full; -2: "
                "until the context is full"),
    ROW(FLAG, COMMAND, COMMAND_RUN, context_shift, NAMES("context-shift", NULL),
        .llama = EVERYWHERE, .llama_note = "off by default; the kept tokens are evaluated again",
        .help = "when the context is full, keep the first --keep tokens, drop the older half of "
                "the others, evaluate the rest again and continue (default: stop)"),
    ROW(INTEGER, COMMAND, COMMAND_RUN, keep, NAMES("keep", NULL), .argument = "N", .standard = "0",
        RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .llama_note = "counts where --context-shift is on",
        .help = "number of prompt tokens that --context-shift keeps, besides BOS; -1: all"),
    ROW(FLAG, COMMAND, COMMAND_RUN, verbose_prompt, NAMES("verbose-prompt", NULL),
        .llama = EVERYWHERE, .llama_note = "on standard error",
        .help = "print the prompt's token ids and texts to standard error"),
    ROW(TEXTS, COMMAND, TALK, reverse_prompts, NAMES("reverse-prompt", "r"), .argument = "TEXT",
        .llama = EVERYWHERE, .help = "stop after TEXT, which is printed as well; may be repeated"),
    ROW(TEXT, COMMAND, COMMAND_RUN, prompt_cache, NAMES("prompt-cache", NULL), .argument = "FILE",
        .llama = EVERYWHERE,
        .help = "cache the prompt's KV state in FILE; a later prompt reuses the longest common "
                "prefix"),
    ROW(FLAG, COMMAND, COMMAND_RUN, prompt_cache_all, NAMES("prompt-cache-all", NULL),
        .llama = EVERYWHERE, .help = "also save the generated tokens to --prompt-cache"),
    ROW(FLAG, COMMAND, COMMAND_RUN, prompt_cache_ro, NAMES("prompt-cache-ro", NULL),
        .llama = EVERYWHERE, .help = "read --prompt-cache, do not write it"),
    ROW(FLAG, COMMAND, COMMAND_RUN, display_prompt, NAMES("display-prompt", NULL),
        .llama = EVERYWHERE, .help = "print the prompt before the completion"),
    ROW(CHOICE, COMMAND, TALK, color, NAMES("color", "co"), .argument = "WHEN",
        .choices = "auto|on|off",
        .words = "1=on|true=on|enabled=on|0=off|false=off|disabled=off|-1=auto", .bare = "on",
        .standard = "auto", .llama = EVERYWHERE,
        .help = "use colors; auto: on a terminal, unless NO_COLOR is set; without a value: on"),
    /* eval */
    ROW(TEXT, COMMAND, COMMAND_EVAL, tokens, NAMES("tokens", NULL), .argument = "FILE",
        .help = "token ids separated by white space; - is standard input"),
    ROW(TEXT, COMMAND, COMMAND_EVAL, logits_out, NAMES("logits-out", NULL), .argument = "FILE",
        .help = "write the logits after each position: little-endian float32 [n_tokens, n_vocab]"),
    /* embed */
    ROW(TEXT, COMMAND, COMMAND_EMBED, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .llama = EVERYWHERE, .help = "texts, one per line; escapes as in run -p"),
    ROW(TEXT, COMMAND, COMMAND_EMBED, file, NAMES("file", "f"), .argument = "FILE",
        .llama = EVERYWHERE, .help = "read the texts from FILE, one per line; - is standard input"),
    ROW(FLAG, COMMAND, COMMAND_EMBED, no_escape, NAMES("no-escape", NULL), .llama = EVERYWHERE,
        .help = "do not process escapes in -p"),
    ROW(FLAG, COMMAND, COMMAND_EMBED, escape, NAMES("escape", "e"), .llama = EVERYWHERE,
        .help = "process escapes in -p (default)"),
    ROW(CHOICE, COMMAND, COMMAND_EMBED, embed_pooling, NAMES("pooling", NULL), .argument = "KIND",
        .choices = "model|none|mean|cls|last|rank", .standard = "model", .llama = EVERYWHERE,
        .help = "how the vectors of a text's tokens become one; none: a vector per token; mean: of "
                "all tokens; cls: the first token; last: the last token; rank: the classifier's "
                "scores; model: what the file says, else mean"),
    ROW(INTEGER, COMMAND, COMMAND_EMBED, embd_normalize, NAMES("embd-normalize", NULL),
        .argument = "N", .standard = "2", RANGE(-1, 1024), .llama = EVERYWHERE,
        .help = "norm by which vectors are divided; -1: none; 0: the largest value becomes 32760; "
                "1: sum of absolute values; 2: length; other N: p-norm; scores of rank are never "
                "divided"),
    ROW(CHOICE, COMMAND, COMMAND_EMBED, embd_format, NAMES("embd-output-format", NULL),
        .argument = "FORMAT", .choices = "raw|array|json|json+", .standard = "raw",
        .aliases = {"--format"}, .llama = EVERYWHERE, .llama_note = "default: raw",
        .help = "output format; raw: a line per vector; array: an array of arrays; json: as "
                "OpenAI's API; json+: json with cosine similarities"),
    ROW(TEXT, COMMAND, COMMAND_EMBED, embd_separator, NAMES("embd-separator", NULL),
        .argument = "TEXT", .llama = EVERYWHERE,
        .help = "text between two texts (default: a newline)"),
    ROW(TEXT, COMMAND, COMMAND_EMBED, cls_separator, NAMES("cls-separator", NULL),
        .argument = "TEXT", .llama = EVERYWHERE, .llama_note = "default: none",
        .help = "with rank: text between query and document of a line (default: a line is one "
                "text)"),
    /* tokenize */
    ROW(TEXT, COMMAND, COMMAND_TOKENIZE, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .llama = EVERYWHERE, .help = "text to tokenize, byte for byte"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, from_stdin, NAMES("stdin", NULL), .llama = EVERYWHERE,
        .help = "read the text from standard input, byte for byte (default without -p)"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, ids, NAMES("ids", NULL), .llama = EVERYWHERE,
        .help = "print the ids only, on one line"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, bos, NAMES("bos", NULL),
        .help = "add a BOS token; with WordPiece and unigram vocabularies also the token "
                "at the end"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, special, NAMES("special", NULL),
        .aliases = {"--parse-special"},
        .help = "parse control tokens in the text; with --detok: print them"),
    ROW(TEXT, COMMAND, COMMAND_TOKENIZE, pre, NAMES("pre", NULL), .argument = "NAME",
        .help = "override the model's pre-tokenizer"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, detok, NAMES("detok", NULL),
        .help = "detokenize: ids in, text out"),
    /* perplexity */
    ROW(TEXT, COMMAND, COMMAND_PERPLEXITY, file, NAMES("file", "f"), .argument = "FILE",
        .llama = EVERYWHERE, .help = "text to score, UTF-8; - is standard input"),
    ROW(INTEGER, COMMAND, COMMAND_PERPLEXITY, first, NAMES("first", NULL), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS), .aliases = {"--chunks"}, .llama = EVERYWHERE,
        .help = "score only the first N windows; 0: all"),
    ROW(FLAG, COMMAND, COMMAND_PERPLEXITY, llama_windows, NAMES("llama-windows", NULL),
        .help =
            "score as llama.cpp does: BOS replaces each window's first token, only its second half "
            "counts"),
    ROW(INTEGER, COMMAND, COMMAND_PERPLEXITY, ppl_stride, NAMES("ppl-stride", NULL),
        .argument = "N", .standard = "0", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .llama_note = "as llama.cpp with -b no larger than -c",
        .help = "overlapping windows of -c + N/2 tokens, N apart; the last N tokens of each are "
                "scored; 0: no overlap"),
    ROW(TEXT, COMMAND, COMMAND_PERPLEXITY, kl_base, NAMES("kl-divergence-base", NULL),
        .argument = "FILE", .aliases = {"--save-all-logits"}, .llama = EVERYWHERE,
        .llama_note = "in the program's format",
        .help = "write the base model's logits, or read them with --kl-divergence"),
    ROW(FLAG, COMMAND, COMMAND_PERPLEXITY, kl_divergence, NAMES("kl-divergence", NULL),
        .llama = EVERYWHERE,
        .help = "compare with the base run of --kl-divergence-base; text and windows default to "
                "those of the base run"),
    /* bench */
    ROW(LIST, COMMAND, COMMAND_BENCH, prompts, NAMES("n-prompt", "p"), .argument = "N,...",
        .standard = "512", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "prompt lengths in tokens to measure prefill with; 0: none"),
    ROW(LIST, COMMAND, COMMAND_BENCH, n_gen, NAMES("n-gen", "n"), .argument = "N,...",
        .standard = "128", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "numbers of tokens to measure decode with; 0: none"),
    ROW(CHOICE, COMMAND, COMMAND_BENCH, format, NAMES("output", "o"), .argument = "FORMAT",
        .choices = "md|json|jsonl|csv", .standard = "md", .llama = EVERYWHERE,
        .llama_note = "md, json, jsonl or csv", .help = "output format; json is --json"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, delay, NAMES("delay", NULL), .argument = "S",
        .standard = "0", RANGE(0, 86400), .llama = EVERYWHERE,
        .help = "seconds to wait before each test"),
    ROW(FLAG, COMMAND, COMMAND_BENCH, show_progress, NAMES("progress", NULL), .llama = EVERYWHERE,
        .help = "print progress to standard error (default, unless -q)"),
    ROW(LIST, COMMAND, COMMAND_BENCH, depths, NAMES("n-depth", "d"), .argument = "N,...",
        .standard = "0", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "context depths to measure at: tokens already in the KV cache"),
    ROW(LIST, COMMAND, COMMAND_BENCH, parallels, NAMES("parallel", "np"), .argument = "N,...",
        .standard = "1", RANGE(1, 256), .aliases = {"-npl"},
        .help = "numbers of sequences that are computed at the same time"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, repetitions, NAMES("repetitions", "r"), .argument = "N",
        .standard = "5", RANGE(1, 10000), .llama = EVERYWHERE, .help = "repetitions of each test"),
    ROW(TEXT, COMMAND, COMMAND_BENCH, file, NAMES("file", "f"), .argument = "FILE",
        .help = "evaluate the tokens of this text, UTF-8, one part after the other (default: the "
                "same random tokens in every test); - is standard input"),
    ROW(NUMBER, COMMAND, COMMAND_BENCH, temp, NAMES("temp", NULL), .argument = "X", .standard = "0",
        RANGE(0, MAX_FLOAT),
        .help = "with --spec: temperature of the text that decode tests sample; 0: greedy"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, seed, NAMES("seed", "s"), .argument = "N", .standard = "1",
        RANGE(-1, MAX_SEED),
        .help = "with --spec: random seed of this text; -1: a new one each time"),
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
    /* convert */
    ROW(TEXT, COMMAND, OUTPUT, out, NAMES("output", "o"), .argument = "FILE",
        .aliases = {"--outfile"}, .help = "GGUF file to write"),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, type, NAMES("type", NULL), .argument = "TYPE",
        .standard = "f16", .aliases = {"--outtype"},
        .help = "type of the matrices: f32 f16 bf16 q8_0 q4_0 ..."),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, base, NAMES("base", NULL), .argument = "DIR",
        .help = "for a LoRA adapter: folder with the config.json of the adapted model"),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, predictors, NAMES("predictors", NULL), .argument = "DIR",
        .help = "folder of the original's predictors (model_0.pt ...): write a prepared file"),
    /* place */
    ROW(TEXT, COMMAND, COMMAND_PLACE, profile, NAMES("profile", NULL), .argument = "NAME|FILE",
        .help = "machine description (default: this machine, as measured)"),
    ROW(FLAG, COMMAND, COMMAND_PLACE, measure, NAMES("measure", NULL),
        .help = "measure this machine's bandwidth first and save it"),
    ROW(INTEGER, COMMAND, COMMAND_PLACE, depth, NAMES("n-depth", "d"), .argument = "N",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "context depth at which to predict the speed: tokens already in the KV cache"),
    ROW(TEXT, COMMAND, COMMAND_PLACE, svg, NAMES("svg", NULL), .argument = "FILE",
        .help = "draw the placement"),
    ROW(TEXT, COMMAND, COMMAND_PLACE, shape, NAMES("shape", NULL), .argument = "NAME",
        .help = "place the model that synth would write, instead of a file: llama-7b opt-30b ..."),
    ROW(NUMBER, COMMAND, COMMAND_PLACE, density, NAMES("density", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1),
        .help = "mean fraction of active neurons of --shape, or of a file without statistics "
                "(default for such a file: 1)"),
    /* synth, and the shapes of place */
    ROW(TEXT, COMMAND, COMMAND_SYNTH, shape, NAMES("shape", NULL), .argument = "NAME",
        .standard = "tiny",
        .help = "shape: tiny llama-1b llama-7b bamboo-7b llama-13b opt-30b falcon-40b llama-70b "
                "tiny-opt tiny-falcon; experts: mixtral-8x7b qwen3-30b-a3b gpt-oss-20b "
                "smallthinker-21b deepseek-v2-lite deepseek-v3.2 glm-5 tiny-moe tiny-reglu-moe "
                "tiny-mla-moe tiny-dsa-moe"),
    ROW(TEXT, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, type, NAMES("type", NULL), .argument = "TYPE",
        .standard = "q4_0", .help = "type of all matrices, output head included"),
    ROW(NUMBER, COMMAND, COMMAND_SYNTH, density, NAMES("density", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1), .help = "mean fraction of active neurons"),
    ROW(NUMBER, COMMAND, COMMAND_SYNTH, down_density, NAMES("down-density", NULL), .argument = "X",
        .standard = "0", RANGE(0, 1),
        .help = "thresholds for --mode threshold: fraction of the neurons whose row of down is "
                "read; 0: none"),
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
        .help = "store a neuron's rows, or an expert's matrices, of gate, up and down next to each "
                "other: faster for models larger than memory"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH, mtp, NAMES("mtp", NULL), .argument = "N", .standard = "0",
        RANGE(0, PI_DRAFT_HEADS),
        .help = "add N layers for multi-token prediction: heads for --spec-type mtp"),
    /* prepare */
    ROW(TEXT, COMMAND, COMMAND_PREPARE | COMMAND_TUNE, calibration, NAMES("calibration", NULL),
        .argument = "FILE", .help = "calibration text, UTF-8 (default: the bundled text)"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE | COMMAND_TUNE, calibration_tokens,
        NAMES("calibration-tokens", NULL), .argument = "N", .standard = "16384",
        RANGE(1, MAX_TOKENS), .help = "calibration tokens, sampled from the whole text"),
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
    ROW(CHOICE, COMMAND, COMMAND_PREPARE, prepare_head, NAMES("head", NULL), .argument = "KIND",
        .choices = "none|sketch", .standard = "none",
        .help = "predictor of the output head; sketch: a low-rank approximation of the output "
                "matrix, left out if it saves less than half of the bytes; none: remove it"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, seed, NAMES("seed", "s"), .argument = "N",
        .standard = "1", RANGE(0, MAX_SEED), .help = "random seed of predictor training"),
    ROW(CHOICE, COMMAND, COMMAND_PREPARE, bundle, NAMES("bundle", NULL), .argument = "WHICH",
        .choices = BUNDLE_CHOICES, .standard = "keep",
        .help = "layout of a neuron's rows, or an expert's matrices, of gate, up and down; all: "
                "next to each other, faster for models larger than memory; none: separate; keep: "
                "as in the input. A prepared file without --calibration is only rearranged"),
    ROW(FLAG, COMMAND, COMMAND_PREPARE, undo, NAMES("undo", NULL),
        .help = "convert a prepared model back to an ordinary GGUF file, for llama.cpp"),
    /* tune */
    ROW(NUMBER, COMMAND, COMMAND_TUNE, max_loss, NAMES("max-loss", NULL), .argument = "PCT",
        .standard = "0", RANGE(0, 100),
        .help = "perplexity increase, in percent, that faster settings may cost; 0: none"),
    ROW(INTEGER, CONTEXT, COMMAND_TUNE, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS),
        .help = "context to tune for, in tokens; from 4096 on, and with --max-loss, attention to "
                "blocks of positions is tried too; 0: 256"),
    /* quantize */
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, imatrix, NAMES("imatrix", NULL), .argument = "FILE",
        .llama = EVERYWHERE, .help = "importance matrix (see powerinfer imatrix)"),
    ROW(TEXTS, COMMAND, COMMAND_QUANTIZE, tensor_types, NAMES("tensor-type", NULL),
        .argument = "PATTERN=TYPE", .llama = EVERYWHERE,
        .help = "type of tensors whose name contains PATTERN, or matches it if it has * ? or [; "
                "may be repeated, the first match counts"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, output_type, NAMES("output-tensor-type", NULL),
        .argument = "TYPE", .llama = EVERYWHERE, .help = "type of output.weight"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, embedding_type, NAMES("token-embedding-type", NULL),
        .argument = "TYPE", .llama = EVERYWHERE, .help = "type of token_embd.weight"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, leave_output, NAMES("leave-output-tensor", NULL),
        .llama = EVERYWHERE, .help = "keep the type of output.weight"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, pure, NAMES("pure", NULL), .llama = EVERYWHERE,
        .help = "one type for all matrices, no mix"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, allow_requantize, NAMES("allow-requantize", NULL),
        .llama = EVERYWHERE, .help = "requantize quantized matrices; errors add up"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, chat_template_file, NAMES("chat-template-file", NULL),
        .argument = "FILE",
        .help = "write this Jinja chat template into the output; an empty file: none (default: the "
                "input's)"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, dry_run, NAMES("dry-run", NULL), .llama = EVERYWHERE,
        .help = "print types and sizes, write nothing"),
    /* imatrix */
    ROW(TEXT, COMMAND, COMMAND_IMATRIX, file, NAMES("file", "f"), .argument = "FILE",
        .llama = EVERYWHERE, .help = "calibration text, UTF-8"),
    ROW(TEXT, COMMAND, COMMAND_IMATRIX, out, NAMES("output", "o"), .argument = "FILE",
        .standard = "imatrix.gguf", .aliases = {"--output-file"}, .llama = EVERYWHERE,
        .help = "importance matrix to write"),
    ROW(INTEGER, CONTEXT, COMMAND_IMATRIX, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "512", RANGE(1, 65536), .llama = EVERYWHERE, .llama_note = "tokens per window",
        .help = "tokens per window"),
    ROW(INTEGER, COMMAND, COMMAND_IMATRIX, chunks, NAMES("chunks", NULL), .argument = "N",
        .standard = "0", RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "maximum windows of the text to use; 0: all"),
    ROW(FLAG, COMMAND, COMMAND_IMATRIX, process_output, NAMES("process-output", NULL),
        .llama = EVERYWHERE, .help = "also collect for the output head"),
    /* template */
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, file, NAMES("file", "f"), .argument = "FILE",
        .help = "request: a JSON object as for /v1/chat/completions; - is standard input"),
    ROW(TEXT, MODEL, COMMAND_RUN, chat_template, NAMES("chat-template", NULL), .argument = "NAME",
        .llama = EVERYWHERE, .llama_note = "a name; starts chat",
        .help = "start chat with a built-in chat template"),
    ROW(TEXT, MODEL, COMMAND_CHAT | COMMAND_SERVE, chat_template, NAMES("chat-template", NULL),
        .argument = "NAME", .llama = EVERYWHERE, .llama_note = "a name",
        .help = "built-in chat template (default: the model's); powerinfer template "
                "--chat-template list prints the names"),
    ROW(TEXT, MODEL, COMMAND_TEMPLATE, chat_template, NAMES("chat-template", NULL),
        .argument = "NAME",
        .help = "built-in chat template (default: the model's); list: print the names"),
    ROW(TEXT, MODEL, COMMAND_RUN, chat_template_file, NAMES("chat-template-file", NULL),
        .argument = "FILE", .llama = EVERYWHERE, .llama_note = "starts chat",
        .help = "start chat with the Jinja chat template in FILE"),
    ROW(TEXT, MODEL, COMMAND_TEMPLATE | COMMAND_CHAT | COMMAND_SERVE, chat_template_file,
        NAMES("chat-template-file", NULL), .argument = "FILE", .llama = EVERYWHERE,
        .help = "read a Jinja chat template from FILE (default: the model's)"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, bos_text, NAMES("bos", NULL), .argument = "TEXT",
        .help = "bos_token (default: the model's)"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, eos_text, NAMES("eos", NULL), .argument = "TEXT",
        .help = "eos_token (default: the model's)"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, now, NAMES("now", NULL), .argument = "TIME",
        .help = "time that the template sees, such as 2025-07-26T09:05:03 (default: now)"),
    /* serve */
    ROW(TEXT, COMMAND, COMMAND_SERVE, host, NAMES("host", NULL), .argument = "ADDRESS",
        .standard = "127.0.0.1", .llama = EVERYWHERE, .llama_note = "one address",
        .help = "address or name to listen on; only this machine reaches loopback addresses"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, port, NAMES("port", NULL), .argument = "N",
        .standard = "8080", RANGE(0, 65535), .llama = EVERYWHERE, .llama_note = "default 8080",
        .help = "TCP port; 0: any free one"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, parallel, NAMES("parallel", "np"), .argument = "N",
        .standard = "4", .words = "-1=4|auto=4", RANGE(1, 256), .llama = EVERYWHERE,
        .llama_note = "-1: 4", .help = "number of slots: sequences that are decoded together"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, cache_ram, NAMES("cache-ram", "cram"), .argument = "MIB",
        .standard = "auto", .words = "auto=-2", RANGE(-2, 1 << 30), .llama = EVERYWHERE,
        .help =
            "memory for prompt states that no slot holds any more, so that a client who returns "
            "need not wait for its prompt; 0: none, -1: no limit (default: a quarter of the "
            "memory that the weights leave, at most 8192; none with --ram-budget)"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, cache_disk, NAMES("cache-disk", NULL), .argument = "DIR",
        .help = "folder for prompt states, which then also survive a restart; not with "
                "--isolate-keys (default: none)"),
    ROW(SIZE, COMMAND, COMMAND_SERVE, cache_disk_size, NAMES("cache-disk-size", NULL),
        .argument = "SIZE", .standard = "16", RANGE(0, MAX_FLOAT),
        .help = "maximum size of the model's files in this folder, in GiB or with a unit (500M, "
                "64G)"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, queue, NAMES("queue", NULL), .argument = "N",
        .standard = "256", RANGE(0, 65536),
        .help =
            "maximum number of sequences that wait for a slot; more are refused with status 503"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, predict, NAMES("predict", "n"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS), .aliases = {"--n-predict"}, .llama = EVERYWHERE,
        .help = "maximum tokens of an answer when the request sets no limit; -1: to the end of the "
                "context"),
    ROW(TEXTS, COMMAND, COMMAND_SERVE, api_keys, NAMES("api-key", NULL), .argument = "KEY",
        .llama = EVERYWHERE,
        .help = "key that requests must carry (Authorization: Bearer KEY, or x-api-key); several "
                "keys: separated by commas, or repeat the option"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, api_key_file, NAMES("api-key-file", NULL), .argument = "FILE",
        .llama = EVERYWHERE,
        .help = "read keys from FILE, one per line; settings may follow a key: name=TEXT rpm=N "
                "tpm=N (requests and tokens per minute) concurrent=N share=X priority=N"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, isolate_keys, NAMES("isolate-keys", NULL),
        .help = "share prompt caches and compiled grammars only among requests with the same key: "
                "response times tell no key what others asked"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, ssl_key_file, NAMES("ssl-key-file", NULL), .argument = "FILE",
        .llama = EVERYWHERE, .help = "private key (PEM): serve HTTPS; needs --ssl-cert-file"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, ssl_cert_file, NAMES("ssl-cert-file", NULL),
        .argument = "FILE", .llama = EVERYWHERE,
        .help = "certificate (PEM) for HTTPS, followed by its chain"),
    ROW(TEXTS, COMMAND, COMMAND_SERVE, cors_origins, NAMES("cors-origin", NULL),
        .aliases = {"--cors-origins"}, .argument = "ORIGIN", .llama = EVERYWHERE,
        .llama_note = "default: the server's own page; localhost: any of this machine",
        .help = "allow web pages of this origin to use the server (https://example.org; *: any; "
                "localhost: any of this machine); several origins: separated by commas, or repeat "
                "the option (default: only the server's own page)"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, alias, NAMES("alias", "a"), .argument = "NAME",
        .llama = EVERYWHERE, .llama_note = "one name",
        .help = "name of the model for clients (default: the file's name)"),
    ROW(TEXTS, COMMAND, COMMAND_SERVE, models, NAMES("models", NULL), .argument = "DIR|FILE",
        .aliases = {"--models-dir", "--models-preset"}, .llama = EVERYWHERE,
        .llama_note = "downloads are not listed",
        .help = "serve several models, which are loaded when requests name them: all GGUF files of "
                "a folder, or those of a list, which also sets options of each; may be repeated"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, models_max, NAMES("models-max", NULL), .argument = "N",
        .standard = "4", RANGE(0, 1024), .llama = EVERYWHERE,
        .help = "with --models: maximum number of loaded models; the least recently used one is "
                "unloaded for another; 0: no limit"),
    ROW(SIZE, COMMAND, COMMAND_SERVE, models_memory, NAMES("models-memory", NULL),
        .argument = "SIZE", RANGE(0, MAX_FLOAT),
        .help = "with --models: maximum size of weights and KV caches of the loaded models "
                "together, in GiB or with a unit; 0: no limit (default: three quarters of the "
                "memory that is free at the "
                "start)"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, models_idle, NAMES("models-idle", NULL), .argument = "S",
        .aliases = {"--sleep-idle-seconds"}, .standard = "-1", RANGE(-1, MAX_TOKENS),
        .llama = EVERYWHERE,
        .help = "unload a model after S seconds without a request; the next one loads it again; "
                "-1: never"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, props, NAMES("props", NULL), .llama = EVERYWHERE,
        .help = "let clients change the defaults of sampling with POST /props"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, lora_init_without_apply,
        NAMES("lora-init-without-apply", NULL), .llama = EVERYWHERE,
        .help = "begin with scale 0 for all LoRA adapters; POST /lora-adapters sets the scales"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, drain, NAMES("drain", NULL), .argument = "S",
        .standard = "5", RANGE(0, 86400),
        .help = "after SIGTERM or Ctrl-C, let running answers continue for at most S seconds, and "
                "refuse new requests with status 503"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, log_json, NAMES("log-json", NULL),
        .help = "write a line of JSON for each request to standard error: id, route, model, name "
                "of the key, status, tokens, times"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, metrics_prefix, NAMES("metrics-prefix", NULL),
        .argument = "PREFIX", .standard = "powerinfer_",
        .help = "prefix of all names in GET /metrics; \"llamacpp:\" gives the names of llama.cpp"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_webui, NAMES("no-webui", NULL), .aliases = {"--no-ui"},
        .opposite = "--webui --ui", .llama = EVERYWHERE,
        .help =
            "turn the web page off: GET / returns status 404; --webui, --ui: turn it on (default)"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, opens_page, NAMES("open", NULL),
        .help = "open the web page in the browser when the server is ready"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, static_path, NAMES("path", NULL), .argument = "DIR",
        .llama = EVERYWHERE, .llama_note = "in place of the page; files need no key",
        .help = "serve the files of this folder instead of the web page; they need no key"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, api_prefix, NAMES("api-prefix", NULL), .argument = "PREFIX",
        .llama = EVERYWHERE, .help = "prefix of all paths, such as /llm"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_slots, NAMES("no-slots", NULL), .opposite = "--slots",
        .llama = EVERYWHERE, .help = "turn GET /slots off; --slots: turn it on (default)"),
    ROW(TEXT, COMMAND, COMMAND_SERVE, slot_save_path, NAMES("slot-save-path", NULL),
        .argument = "DIR", .llama = EVERYWHERE,
        .help = "let clients save KV caches of slots to files in this folder and restore them: "
                "POST /slots/N?action=save"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_cache_prompt, NAMES("no-cache-prompt", NULL),
        .opposite = "--cache-prompt", .llama = EVERYWHERE,
        .help = "evaluate whole prompts unless the request sets cache_prompt; --cache-prompt: "
                "reuse the common prefix of a slot (default)"),
    ROW(FLAG, COMMAND, COMMAND_SERVE, no_prefill_assistant, NAMES("no-prefill-assistant", NULL),
        .opposite = "--prefill-assistant", .llama = EVERYWHERE,
        .help = "treat a last message of the assistant as complete; --prefill-assistant: the "
                "answer continues it (default)"),
    ROW(CHOICE, COMMAND, COMMAND_SERVE, reasoning_format, NAMES("reasoning-format", NULL),
        .argument = "FORMAT", .choices = "auto|none|deepseek|deepseek-legacy", .standard = "auto",
        .llama = EVERYWHERE, .llama_note = "deepseek-legacy is deepseek",
        .help = "field of an answer that gets its reasoning, unless the request sets "
                "reasoning_format; none: content; deepseek, deepseek-legacy, auto: "
                "reasoning_content"),
    ROW(CHOICE, COMMAND, COMMAND_SERVE, pooling, NAMES("pooling", NULL), .argument = "TYPE",
        .choices = "model|mean|last|cls|rank", .standard = "model", .llama = EVERYWHERE,
        .llama_note = "mean, last; encoders also: cls; models with a classifier: rank",
        .help = "pooling of hidden states for embeddings; mean: of all tokens; last: the last "
                "token; model: the file's pooling, else mean; cls: the first token (encoders); "
                "rank: the classifier's scores, for /v1/rerank"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, timeout, NAMES("timeout", "to"), .argument = "S",
        .standard = "60", RANGE(1, 86400), .llama = EVERYWHERE, .llama_note = "default 60",
        .help = "timeout in seconds for receiving a request and for sending to a client"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, ping, NAMES("sse-ping-interval", NULL), .argument = "S",
        .standard = "30", .words = "-1=0", RANGE(0, 86400), .llama = EVERYWHERE,
        .help = "send a comment in streams that are silent for S seconds; 0: none"),
    ROW(INTEGER, COMMAND, COMMAND_SERVE, connections, NAMES("connections", NULL), .argument = "N",
        .standard = "1024", RANGE(1, 65536), .help = "maximum open connections; each has a thread"),
    /* common */
    ROW(TEXT, MODEL, COMMAND_PREPARE | COMMAND_CONVERT | COMMAND_QUANTIZE, model,
        NAMES("model", "m"), .argument = "IN", .help = "input, instead of the positional argument"),
    ROW(TEXT, MODEL, MODEL | COMMAND_IMATRIX | COMMAND_PLACE | COMMAND_TEMPLATE, model,
        NAMES("model", "m"), .argument = "FILE", .llama = EVERYWHERE,
        .help = "model file (GGUF), or its URL, https://... (default: the bundled model)"),
    ROW(TEXT, MODEL, SOURCES, hf_repo, NAMES("hf-repo", "hf"), .argument = "USER/REPO[:QUANT]",
        .aliases = {"-hfr"},
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .llama_note = "see docs/models.md",
        .help = "download the model from Hugging Face and keep it; QUANT selects the file, in any "
                "case (default: Q4_K_M, else Q8_0, else the first)"),
    ROW(TEXT, MODEL, SOURCES, hf_file, NAMES("hf-file", "hff"), .argument = "FILE",
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .help = "file in the repository of -hf, instead of QUANT"),
    ROW(TEXT, MODEL, SOURCES, hf_token, NAMES("hf-token", "hft"), .argument = "TOKEN",
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .llama_note = "default: HF_TOKEN",
        .help = "token for private and gated repositories (default: $HF_TOKEN, which process lists "
                "do not show)"),
    ROW(TEXT, MODEL, SOURCES, model_url, NAMES("model-url", "mu"), .argument = "URL",
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .llama_note = "-m takes addresses as well",
        .help = "download the model from a URL and keep it, as -m URL does"),
    ROW(FLAG, MODEL, SOURCES, offline, NAMES("offline", NULL),
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .help = "use only files that were downloaded before (default: $HF_HUB_OFFLINE)"),
    ROW(INTEGER, CPU, COMPUTE | WRITERS | COMMAND_PLACE, threads, NAMES("threads", "t"),
        .argument = "N", .standard = "0", .words = "-1=0", RANGE(0, MAX_THREADS),
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .help = "number of threads; 0 or -1: one per physical (performance) core"),
    ROW(INTEGER, CPU, COMPUTE, threads_batch, NAMES("threads-batch", "tb"), .argument = "N",
        .standard = "0", .words = "-1=0", RANGE(0, MAX_THREADS), .llama = EVERYWHERE,
        .help = "number of threads for prefill; 0 or -1: same as -t"),
    ROW(TEXT, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE | COMMAND_TUNE, cpu_mask,
        NAMES("cpu-mask", "C"), .argument = "HEX", .llama = EVERYWHERE,
        .help = "CPU affinity mask: bit N is CPU N"),
    ROW(TEXT, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE | COMMAND_TUNE, cpu_range,
        NAMES("cpu-range", "Cr"), .argument = "LO-HI", .llama = EVERYWHERE,
        .help = "CPU affinity range, added to -C"),
    ROW(INTEGER, CPU, COMPUTE, cpu_strict, NAMES("cpu-strict", NULL), .argument = "0|1",
        .standard = "0", RANGE(0, 1), .llama = EVERYWHERE, .llama_note = "for worker threads",
        .help = "1: pin each worker thread to one CPU"),
    ROW(INTEGER, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE | COMMAND_TUNE, prio,
        NAMES("prio", NULL), .argument = "N", .standard = "0", RANGE(-1, 3), .llama = EVERYWHERE,
        .llama_note = "as nice values",
        .help = "scheduling priority: -1 low, 0 normal, 1 medium, 2 high, 3 highest (nice 10, 0, "
                "-5, -10, -20)"),
    ROW(CHOICE, CPU, COMPUTE | COMMAND_IMATRIX | COMMAND_PREPARE | COMMAND_TUNE, numa,
        NAMES("numa", NULL), .argument = "POLICY", .choices = "none|distribute|isolate|numactl",
        .standard = "none", .llama = EVERYWHERE, .llama_note = "distribute interleaves the memory",
        .help = "NUMA: distribute memory over all nodes, isolate threads on the starting node, or "
                "keep what numactl set"),
    ROW(INTEGER, CONTEXT, TALK | COMMAND_INSPECT | COMMAND_PLACE, ctx_size, NAMES("ctx-size", "c"),
        .argument = "N", .standard = "-1", RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .llama_note = "default: the model's, at most 8192",
        .help = "context size in tokens; 0: the model's training context; -1: the training "
                "context, at most 8192"),
    ROW(INTEGER, CONTEXT, COMMAND_SERVE, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .llama_note = "of all slots; default: the model's, at most 8192 for each",
        .help = "context size in tokens of all slots together; 0: the model's training context for "
                "each slot; -1: the training context, at most 8192, for each slot"),
    ROW(INTEGER, CONTEXT, COMMAND_EVAL, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "context size in tokens; -1: the number of tokens given; 0: the model's training "
                "context"),
    ROW(INTEGER, CONTEXT, COMMAND_PERPLEXITY, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "512", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .llama_note = "tokens per window",
        .help = "tokens per window; 0: the model's training context"),
    ROW(INTEGER, CONTEXT, DEVICES, batch_size, NAMES("batch-size", "b"), .argument = "N",
        .standard = "512", RANGE(1, 65536), .aliases = {"--batch"}, .llama = EVERYWHERE,
        .llama_note = "batch and ubatch in one",
        .help = "maximum tokens per batch in prefill; if not given, up to 2048 where a GPU copies "
                "weights for every batch"),
    ROW(CHOICE, CONTEXT, DEVICES, cache_type_k, NAMES("cache-type-k", "ctk"), .argument = "TYPE",
        .choices = CACHE_CHOICES, .standard = "f16", .llama = EVERYWHERE,
        .llama_note = "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1",
        .help = "KV cache type of the keys"),
    ROW(CHOICE, CONTEXT, DEVICES, cache_type_v, NAMES("cache-type-v", "ctv"), .argument = "TYPE",
        .choices = CACHE_CHOICES, .standard = "f16", .llama = EVERYWHERE,
        .llama_note = "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1",
        .help = "KV cache type of the values"),
    ROW(TEXTS, MODEL, COMPUTE | COMMAND_TOKENIZE, override_kv, NAMES("override-kv", NULL),
        .argument = "KEY=TYPE:VALUE", .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_PERPLEXITY,
        .help = "override a key of the model file's metadata, such as "
                "llama.context_length=int:8192; TYPE is int, float, bool or str; may be repeated"),
    ROW(CHOICE, CONTEXT, COMPUTE, rope_scaling, NAMES("rope-scaling", NULL), .argument = "TYPE",
        .choices = ROPE_CHOICES, .standard = "model", .llama = EVERYWHERE,
        .help = "RoPE scaling method"),
    ROW(NUMBER, CONTEXT, COMPUTE, rope_scale, NAMES("rope-scale", NULL), .argument = "N",
        .standard = "0", RANGE(0, 1e6), .llama = EVERYWHERE,
        .help = "RoPE scaling factor: contexts are N times as long; 0: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, rope_freq_base, NAMES("rope-freq-base", NULL), .argument = "N",
        .standard = "0", RANGE(0, 1e12), .llama = EVERYWHERE,
        .help = "RoPE base frequency (NTK-aware scaling); 0: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, rope_freq_scale, NAMES("rope-freq-scale", NULL), .argument = "N",
        .standard = "0", RANGE(0, 1e6), .llama = EVERYWHERE,
        .help = "RoPE frequency scale: --rope-scale is 1/N; 0: the model's"),
    ROW(INTEGER, CONTEXT, COMPUTE, yarn_orig_ctx, NAMES("yarn-orig-ctx", NULL), .argument = "N",
        .standard = "0", RANGE(0, INT32_MAX), .llama = EVERYWHERE,
        .help = "YaRN: original context size; 0: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_ext_factor, NAMES("yarn-ext-factor", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, 1000), .llama = EVERYWHERE,
        .help =
            "YaRN: extrapolation mix factor, the share of unscaled frequencies; -1: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_attn_factor, NAMES("yarn-attn-factor", NULL),
        .argument = "N", .standard = "-1", RANGE(-1, 1000), .llama = EVERYWHERE,
        .help = "YaRN: attention magnitude factor; -1: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_beta_slow, NAMES("yarn-beta-slow", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, 1e6), .llama = EVERYWHERE,
        .help = "YaRN: low correction dim (beta slow): rotations up to which frequencies are fully "
                "scaled; -1: the model's"),
    ROW(NUMBER, CONTEXT, COMPUTE, yarn_beta_fast, NAMES("yarn-beta-fast", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, 1e6), .llama = EVERYWHERE,
        .help = "YaRN: high correction dim (beta fast): rotations from which frequencies are not "
                "scaled; -1: the model's"),
    ROW(TEXTS, MODEL, COMPUTE, lora, NAMES("lora", NULL), .argument = "FILE[:SCALE]",
        .aliases = {"--lora-scaled"}, .number_follows = true, .llama = EVERYWHERE,
        .llama_note = "merged into the weights when loading; also FNAME:SCALE",
        .help = "merge a LoRA adapter (GGUF), scaled by SCALE (default: 1), into the weights; "
                "merged matrices become F16; may be repeated, or a list with commas"),
    ROW(FLAG, ENGINE, COMPUTE, no_mmap, NAMES("no-mmap", NULL), .llama = EVERYWHERE,
        .llama_note = "into huge pages",
        .help = "copy the weights into memory (huge pages) instead of mapping the file: slower "
                "load"),
    ROW(FLAG, ENGINE, COMPUTE, mlock, NAMES("mlock", NULL), .llama = EVERYWHERE,
        .help = "lock the weights in RAM: they are never swapped out"),
    ROW(FLAG, MODEL, COMPUTE, check_tensors, NAMES("check-tensors", NULL),
        .llama = COMMAND_RUN | COMMAND_SERVE, .llama_note = "also for infinity",
        .help = "check all weights for NaN and infinity when loading"),
    ROW(FLAG, COMMON,
        TALK | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_INSPECT | COMMAND_QUANTIZE |
            COMMAND_PREPARE | COMMAND_TUNE | COMMAND_PLACE | COMMAND_EMBED,
        json, NAMES("json", NULL), .help = "print one JSON document on standard output"),
    ROW(FLAG, COMMON, ALL, verbose, NAMES("verbose", "v"), .aliases = {"--log-verbose"},
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_IMATRIX,
        .help = "print settings and log messages to standard error; bench and quantize: all "
                "columns and tensors"),
    ROW(FLAG, COMMON, ALL, quiet, NAMES("quiet", "q"), .aliases = {"--log-disable"},
        .llama = COMMAND_RUN | COMMAND_SERVE | COMMAND_PERPLEXITY | COMMAND_IMATRIX |
                 COMMAND_TOKENIZE,
        .help = "print only errors on standard error"),
    /* engine */
    ROW(FLAG, ENGINE, COMPUTE, devices, NAMES("list-devices", NULL), .llama = EVERYWHERE,
        .help = "list CPU and GPUs and exit"),
    ROW(CHOICE, SPARSE, PLANNED, mode, NAMES("mode", NULL), .argument = "MODE",
        .choices = "auto|dense|exact|predict|threshold", .standard = "auto",
        .help = "sparsity of the FFN; dense: compute all neurons; exact: skip inactive neurons, "
                "lossless; predict: compute the neurons that the predictor selects; threshold: "
                "treat small activations as zero; auto: the fastest mode within --max-loss. A "
                "mode that the model has no data for is an error"),
    ROW(CHOICE, SPARSE, PLANNED & ~COMMAND_PLACE, head, NAMES("head", NULL), .argument = "HEAD",
        .choices = "auto|dense|predict", .standard = "auto",
        .help = "output head on the CPU; dense: compute all logits; predict: compute the logits "
                "of the tokens that the model's predictor selects; auto: predict where its "
                "measured loss is within --max-loss, together with the mode's; for eval and "
                "perplexity: dense"),
    ROW(CHOICE, ENGINE, DEVICES, device, NAMES("device", "dev"), .argument = "DEVICE",
        .choices = DEVICE_CHOICES, .words = DEVICE_WORDS, .indexed = 2, .standard = "auto",
        .llama = EVERYWHERE,
        .help = "device to run on; auto: offload what fits to the GPU, if there is one; cuda:1: "
                "the second GPU of --list-devices instead of the fastest; cuda:0,1: split the "
                "layers between both; none: cpu; sim: a simulated GPU, for tests. A named device "
                "that cannot be used is an error"),
    ROW(NUMBERS, ENGINE, DEVICES, tensor_split, NAMES("tensor-split", "ts"), .argument = "N,...",
        RANGE(0, MAX_FLOAT), .llama = EVERYWHERE,
        .help =
            "proportion of the model for each GPU that --device lists, else for GPUs 0, 1, ..., "
            "such as 3,1; 0: do not use the GPU (default: in proportion to free memory)"),
    ROW(FLAG, ENGINE, STAGED, mpi, NAMES("mpi", NULL),
        .help =
            "run as a rank of MPI, with some of the layers (default: if mpirun or srun started the "
            "program)"),
    ROW(NUMBERS, ENGINE, STAGED, mpi_split, NAMES("mpi-split", NULL), .argument = "N,...",
        RANGE(0, MAX_FLOAT),
        .help =
            "proportion of the layers for each rank, such as 3,1 (default: by the speed that each "
            "rank measures, and its memory)"),
    ROW(FLAG, ENGINE, STAGED, mpi_send, NAMES("mpi-send", NULL),
        .help = "ranks that do not have the model file receive their layers from rank 0 when they "
                "start, and keep them in memory, with --ram-budget in a file"),
    ROW(TEXT, ENGINE, STAGED, mpi_folder, NAMES("mpi-folder", NULL), .argument = "DIR",
        .help = "with --mpi-send: keep received layers in a file without a name in DIR (default: "
                "in memory; with --ram-budget: $TMPDIR, or /var/tmp)"),
    ROW(NUMBER, ENGINE, STAGED, mpi_timeout, NAMES("mpi-timeout", NULL), .argument = "SECONDS",
        .standard = "30", RANGE(1, 86400),
        .help = "end all ranks when one has not answered for so long"),
    ROW(CHOICE, CPU, COMPUTE | COMMAND_INSPECT, kernels, NAMES("kernels", NULL), .argument = "TIER",
        .choices = "auto|scalar|avx2|avx512|neon", .standard = "auto",
        .help = "instruction set of the CPU kernels; scalar: the float reference, slow"),
    ROW(NUMBER, SPARSE, COMPUTE | COMMAND_INSPECT, threshold, NAMES("threshold", NULL),
        .argument = "X", RANGE(-MAX_FLOAT, MAX_FLOAT),
        .help = "predictor threshold: skip neurons with a lower score; -1e30: skip none (default: "
                "the model's)"),
    ROW(NUMBER, SPARSE, PLANNED, max_loss, NAMES("max-loss", NULL), .argument = "PCT",
        .standard = "1", RANGE(0, 100),
        .help = "perplexity increase, in percent as measured by prepare or tune, that the defaults "
                "may cost"),
    ROW(NUMBER, SPARSE, COMPUTE, expert_slack, NAMES("expert-slack", NULL), .argument = "PCT",
        .standard = "0", RANGE(0, 100),
        .help =
            "with --ram-budget: decode uses experts in memory in place of selected ones that are "
            "not, while the router's probabilities of a token's experts fall by at most PCT "
            "percent; changes the text; 0: off"),
    ROW(INTEGER, SPARSE, COMPUTE | COMMAND_INSPECT, attn_blocks, NAMES("attn-blocks", NULL),
        .argument = "N", .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "decode attends to N blocks of 16 positions (4 or more) instead of all: faster in "
                "long contexts, with some loss; 0: all; -1: as tune found, else all"),
    ROW(SIZE, ENGINE, DEVICES, vram_budget, NAMES("vram-budget", NULL), .argument = "SIZE",
        RANGE(0, MAX_FLOAT),
        .help = "GPU memory to use, in GiB or with a unit (512M, 8G); 0: none (default: free "
                "memory minus a margin)"),
    ROW(SIZE, ENGINE, DEVICES, ram_budget, NAMES("ram-budget", NULL), .argument = "SIZE",
        RANGE(0, MAX_FLOAT),
        .help = "host memory to use, in GiB or with a unit; weights that do not fit are read from "
                "the drive when needed; 0: no limit, map the file (default: no limit; for a model "
                "larger than the free memory: free memory minus a margin)"),
    ROW(INTEGER, ENGINE, COMPUTE | COMMAND_INSPECT | COMMAND_TUNE, gpu_layers,
        NAMES("gpu-layers", "ngl"), .argument = "N", .standard = "-1",
        .words = "auto=-1|all=2147483647", RANGE(-1, MAX_TOKENS), .aliases = {"--n-gpu-layers"},
        .llama = EVERYWHERE, .llama_note = "see docs/gpu.md",
        .help = "offload the last N layers to the GPU, as many as fit; N > n_layer (or all) also "
                "offloads the output head; -1 (or auto): the fastest placement"),
    ROW(TEXTS, ENGINE, DEVICES, override_tensor, NAMES("override-tensor", "ot"),
        .argument = "PATTERN=DEVICE,...", .llama = EVERYWHERE,
        .llama_note = "layers' experts, neurons and attention: docs/placement.md",
        .help = "keep tensors whose names match a regular expression on the CPU: exps=CPU; may be "
                "repeated; see docs/placement.md"),
    ROW(FLAG, ENGINE, DEVICES, cpu_moe, NAMES("cpu-moe", "cmoe"), .llama = EVERYWHERE,
        .help = "keep all experts on the CPU; attention may be on the GPU"),
    ROW(INTEGER, ENGINE, DEVICES, n_cpu_moe, NAMES("n-cpu-moe", "ncmoe"), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "keep the experts of the first N layers on the CPU"),
    ROW(INTEGER, ENGINE, DEVICES, n_cpu_ffn, NAMES("n-cpu-ffn", "ncffn"), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "keep the neurons of dense FFNs in the first N layers on the CPU"),
    ROW(FLAG, ENGINE, COMPUTE, deterministic, NAMES("deterministic", NULL),
        .help = "compute every token alone: bit-identical results for all batch sizes, cached "
                "prefixes and concurrent requests, but slower prefill"),
    ROW(FLAG, ENGINE, COMPUTE, adapt, NAMES("adapt", NULL),
        .help = "for experts, or neurons of sparse layers, on CPU and GPU: between tokens, move "
                "those that the text uses to the GPU"),
    ROW(TEXT, ENGINE, DEVICES, backend_folder, NAMES("backend-folder", NULL), .argument = "DIR",
        .help = "folder of the GPU backends (default: next to the program, or the installation's)"),
    /* speculative decoding */
    ROW(CHOICE, DRAFT, DRAFTING, spec, NAMES("spec", NULL), .argument = "KIND",
        .choices = "off|ngram|draft|auto|self|mtp|eagle3",
        .words = "none=off|ngram-simple=ngram|draft-simple=draft|model=draft|draft-mtp=mtp|"
                 "draft-eagle3=eagle3",
        .standard = "off", .aliases = {"--spec-type"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .llama_note = "none, ngram-simple, draft-simple, draft-mtp, draft-eagle3, or off, ngram, "
                      "draft, auto, self, mtp, eagle3: see docs/speculative.md",
        .help = "speculative decoding: draft tokens and verify them together; the text does not "
                "change; ngram: draft the tokens that followed the last ones earlier in the text; "
                "draft: use a draft model; auto: the faster of both (default with -md); mtp: the "
                "model's layers for multi-token prediction; eagle3: the EAGLE-3 head of -md"),
    ROW(TEXT, DRAFT, DRAFTING, model_draft, NAMES("model-draft", "md"), .argument = "FILE",
        .aliases = {"--spec-draft-model"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .llama_note = "also turns on --spec auto",
        .help = "draft model of the same vocabulary, or head for --spec mtp or eagle3, GGUF"),
    ROW(TEXT, DRAFT, DRAFTING, hf_repo_draft, NAMES("hf-repo-draft", "hfd"),
        .argument = "USER/REPO[:QUANT]", .aliases = {"-hfrd"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .help = "draft model from Hugging Face, as -hf"),
    ROW(INTEGER, DRAFT, DRAFTING, draft_max, NAMES("draft-max", NULL), .argument = "N",
        .standard = "16", RANGE(1, PI_DRAFT_MAX),
        .aliases = {"--draft", "--draft-n", "--spec-draft-n-max"},
        .llama = COMMAND_RUN | COMMAND_SERVE,
        .llama_note = "default 16; the measured speeds decide how many of them are drafted",
        .help = "maximum tokens of a draft"),
    ROW(INTEGER, DRAFT, DRAFTING, draft_min, NAMES("draft-min", NULL), .argument = "N",
        .standard = "0", RANGE(0, PI_DRAFT_MAX), .aliases = {"--draft-n-min", "--spec-draft-n-min"},
        .llama = COMMAND_RUN | COMMAND_SERVE, .llama_note = "and at least so many are drafted",
        .help = "minimum tokens of a draft; shorter drafts are dropped; 0: measured speeds decide"),
    ROW(NUMBER, DRAFT, DRAFTING, draft_p_min, NAMES("draft-p-min", NULL), .argument = "X",
        .standard = "0", RANGE(0, 1), .aliases = {"--spec-draft-p-min"},
        .llama = COMMAND_RUN | COMMAND_SERVE, .llama_note = "default 0",
        .help = "end a draft before a token that the draft model gives a probability below X"),
    ROW(INTEGER, DRAFT, DRAFTING, gpu_layers_draft, NAMES("gpu-layers-draft", "ngld"),
        .argument = "N", .standard = "-1", .words = "auto=-1|all=2147483647", RANGE(-1, MAX_TOKENS),
        .aliases = {"--n-gpu-layers-draft", "--spec-draft-ngl"},
        .llama = COMMAND_RUN | COMMAND_SERVE, .help = "as -ngl, for the draft model"),
    ROW(CHOICE, DRAFT, DRAFTING, device_draft, NAMES("device-draft", "devd"), .argument = "DEVICE",
        .choices = DEVICE_CHOICES, .words = DEVICE_WORDS, .indexed = 2, .standard = "auto",
        .aliases = {"--spec-draft-device"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .help = "as --device, for the draft model"),
    ROW(TEXTS, DRAFT, DRAFTING, override_tensor_draft, NAMES("override-tensor-draft", "otd"),
        .argument = "PATTERN=DEVICE,...", .aliases = {"--spec-draft-override-tensor"},
        .llama = COMMAND_RUN | COMMAND_SERVE, .help = "as -ot, for the draft model"),
    ROW(FLAG, DRAFT, DRAFTING, cpu_moe_draft, NAMES("cpu-moe-draft", "cmoed"),
        .aliases = {"--spec-draft-cpu-moe"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .help = "as -cmoe, for the draft model"),
    ROW(INTEGER, DRAFT, DRAFTING, n_cpu_moe_draft, NAMES("n-cpu-moe-draft", "ncmoed"),
        .argument = "N", .standard = "0", RANGE(0, MAX_TOKENS),
        .aliases = {"--spec-draft-n-cpu-moe", "--spec-draft-ncmoe"},
        .llama = COMMAND_RUN | COMMAND_SERVE, .help = "as -ncmoe, for the draft model"),
    ROW(CHOICE, DRAFT, DRAFTING, cache_type_k_draft, NAMES("cache-type-k-draft", "ctkd"),
        .argument = "TYPE", .choices = CACHE_CHOICES, .standard = "f16",
        .aliases = {"--spec-draft-type-k"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .llama_note = "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1",
        .help = "as -ctk, for the draft model"),
    ROW(CHOICE, DRAFT, DRAFTING, cache_type_v_draft, NAMES("cache-type-v-draft", "ctvd"),
        .argument = "TYPE", .choices = CACHE_CHOICES, .standard = "f16",
        .aliases = {"--spec-draft-type-v"}, .llama = COMMAND_RUN | COMMAND_SERVE,
        .llama_note = "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1",
        .help = "as -ctv, for the draft model"),
    /* sampling */
    ROW(TEXT, SAMPLING, GENERATE, samplers, NAMES("samplers", NULL), .argument = "NAME;...",
        .llama = EVERYWHERE,
        .help = "samplers to apply, in order; all others are off (default: "
                "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)"),
    ROW(TEXT, SAMPLING, GENERATE, sampling_seq, NAMES("sampling-seq", NULL), .argument = "LETTERS",
        .aliases = {"--sampler-seq"}, .llama = EVERYWHERE,
        .help = "samplers to apply by letter, in order (default: edskypmxt)"),
    ROW(NUMBER, SAMPLING, GENERATE, temp, NAMES("temp", NULL), .argument = "X", .standard = "0.8",
        RANGE(-MAX_FLOAT, MAX_FLOAT), .aliases = {"--temperature"}, .llama = EVERYWHERE,
        .help = "temperature; 0: greedy"),
    ROW(INTEGER, SAMPLING, GENERATE, top_k, NAMES("top-k", NULL), .argument = "N", .standard = "40",
        RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "top-k: keep the N most likely tokens; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, top_p, NAMES("top-p", NULL), .argument = "X",
        .standard = "0.95", RANGE(0, 1), .llama = EVERYWHERE,
        .help =
            "nucleus sampling: keep the most likely tokens with a total probability of X; 1: off"),
    ROW(NUMBER, SAMPLING, GENERATE, min_p, NAMES("min-p", NULL), .argument = "X",
        .standard = "0.05", RANGE(0, 1), .llama = EVERYWHERE,
        .help =
            "min-p: keep tokens with at least X times the probability of the top token; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, typical, NAMES("typical", NULL), .argument = "X",
        .standard = "1", RANGE(0, 1), .aliases = {"--typical-p"}, .llama = EVERYWHERE,
        .help = "locally typical sampling: keep the most typical tokens with a total probability "
                "of X; 1: off"),
    ROW(NUMBER, SAMPLING, GENERATE, top_n_sigma, NAMES("top-nsigma", NULL), .argument = "X",
        .standard = "-1", RANGE(-MAX_FLOAT, MAX_FLOAT), .aliases = {"--top-n-sigma"},
        .llama = EVERYWHERE,
        .help = "top-n-sigma: keep tokens whose logit is within X standard deviations of the top "
                "token's; 0 or less: off"),
    ROW(NUMBER, SAMPLING, GENERATE, repeat_penalty, NAMES("repeat-penalty", NULL), .argument = "X",
        .standard = "1", RANGE(1e-6, 1e6), .llama = EVERYWHERE,
        .help = "repetition penalty: divides the logits of repeated tokens; 1: off"),
    ROW(INTEGER, SAMPLING, GENERATE, repeat_last_n, NAMES("repeat-last-n", NULL), .argument = "N",
        .standard = "64", RANGE(-1, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "number of last tokens that the penalties apply to; 0: off; -1: all"),
    ROW(NUMBER, SAMPLING, GENERATE, presence_penalty, NAMES("presence-penalty", NULL),
        .argument = "X", .standard = "0", RANGE(-MAX_PENALTY, MAX_PENALTY), .llama = EVERYWHERE,
        .help = "presence penalty: subtracted once from a repeated token's logit; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, frequency_penalty, NAMES("frequency-penalty", NULL),
        .argument = "X", .standard = "0", RANGE(-MAX_PENALTY, MAX_PENALTY), .llama = EVERYWHERE,
        .help = "frequency penalty: subtracted per occurrence; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dynatemp_range, NAMES("dynatemp-range", NULL), .argument = "X",
        .standard = "0", RANGE(0, MAX_PENALTY), .llama = EVERYWHERE,
        .help = "dynamic temperature: --temp +- X, depending on the entropy; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dynatemp_exponent, NAMES("dynatemp-exp", NULL), .argument = "X",
        .standard = "1", RANGE(0, MAX_PENALTY), .llama = EVERYWHERE,
        .help = "exponent of the dynamic temperature"),
    ROW(NUMBER, SAMPLING, GENERATE, xtc_probability, NAMES("xtc-probability", NULL),
        .argument = "X", .standard = "0", RANGE(0, 1), .llama = EVERYWHERE,
        .help = "XTC: probability of removing the top tokens; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, xtc_threshold, NAMES("xtc-threshold", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1), .llama = EVERYWHERE,
        .help = "XTC: minimum probability of a top token; over 0.5: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dry_multiplier, NAMES("dry-multiplier", NULL), .argument = "X",
        .standard = "0", RANGE(0, MAX_PENALTY), .llama = EVERYWHERE,
        .help = "DRY: penalty of X * base ^ (length - allowed length) on a token that continues a "
                "repeated sequence; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dry_base, NAMES("dry-base", NULL), .argument = "X",
        .standard = "1.75", RANGE(0, MAX_PENALTY), .llama = EVERYWHERE,
        .help = "DRY: base; below 1: off"),
    ROW(INTEGER, SAMPLING, GENERATE, dry_allowed_length, NAMES("dry-allowed-length", NULL),
        .argument = "N", .standard = "2", RANGE(0, MAX_TOKENS), .llama = EVERYWHERE,
        .help = "DRY: repetitions shorter than N tokens are not penalized"),
    ROW(INTEGER, SAMPLING, GENERATE, dry_last_n, NAMES("dry-penalty-last-n", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_WINDOW), .llama = EVERYWHERE,
        .help = "DRY: tokens to look back on; -1: the model's training context; 0: off"),
    ROW(TEXTS, SAMPLING, GENERATE, dry_breakers, NAMES("dry-sequence-breaker", NULL),
        .argument = "TEXT", .llama = EVERYWHERE,
        .help =
            "DRY: text that ends a sequence, instead of newline : \" *; may be repeated; none: no "
            "breakers"),
    ROW(INTEGER, SAMPLING, GENERATE, mirostat, NAMES("mirostat", NULL), .argument = "N",
        .standard = "0", RANGE(0, 2), .llama = EVERYWHERE,
        .help = "use Mirostat 1 or 2 instead of the other samplers; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, mirostat_eta, NAMES("mirostat-lr", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, MAX_MIROSTAT), .llama = EVERYWHERE,
        .help = "Mirostat: learning rate eta"),
    ROW(NUMBER, SAMPLING, GENERATE, mirostat_tau, NAMES("mirostat-ent", NULL), .argument = "X",
        .standard = "5", RANGE(0, MAX_MIROSTAT), .llama = EVERYWHERE,
        .help = "Mirostat: target entropy tau, in bits per token"),
    ROW(TEXTS, SAMPLING, GENERATE, logit_bias, NAMES("logit-bias", "l"), .argument = "ID+BIAS",
        .llama = EVERYWHERE,
        .help = "add BIAS to a token's logit (or ID-BIAS); -inf bans the token; may be repeated"),
    ROW(INTEGER, SAMPLING, GENERATE, seed, NAMES("seed", "s"), .argument = "N", .standard = "-1",
        RANGE(-1, MAX_SEED), .llama = EVERYWHERE, .help = "random seed; -1: a new one each time"),
    ROW(FLAG, SAMPLING, GENERATE, ignore_eos, NAMES("ignore-eos", NULL), .llama = EVERYWHERE,
        .help = "never sample an end-of-generation token: generate on to -n"),
    ROW(TEXT, GRAMMAR, GENERATE, grammar, NAMES("grammar", NULL), .argument = "GBNF",
        .llama = EVERYWHERE, .help = "constrain the text by a grammar (GBNF)"),
    ROW(TEXT, GRAMMAR, GENERATE, grammar_file, NAMES("grammar-file", NULL), .argument = "FILE",
        .llama = EVERYWHERE, .help = "constrain the text by the grammar in FILE"),
    ROW(TEXT, GRAMMAR, GENERATE, json_schema, NAMES("json-schema", "j"), .argument = "SCHEMA",
        .llama = EVERYWHERE, .help = "constrain the text to JSON by a JSON Schema; {}: any JSON"),
    ROW(TEXT, GRAMMAR, GENERATE, json_schema_file, NAMES("json-schema-file", "jf"),
        .argument = "FILE", .llama = EVERYWHERE,
        .help = "constrain the text to JSON by the JSON Schema in FILE"),
};

const size_t option_count = sizeof option_table / sizeof option_table[0];

_Static_assert(sizeof option_table / sizeof option_table[0] <= 64 * OPTION_MARK_WORDS,
               "cli_options keeps one bit per row");
