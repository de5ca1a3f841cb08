/* option_table.c: every option of every command, as data. Names are llama.cpp's where it has them.
 *
 * Rows appear in --help in this order, by group. Two rows may share a name when their commands
 * differ (-p is a text for run and a list of lengths for bench). Long names are unique among the
 * options of one command, and so are the names of the environment made from them. */
#include "options.h"

#define FIELD(name) offsetof(cli_options, name)

enum {
    GENERATE = COMMAND_RUN,
    COMPUTE = COMMAND_RUN | COMMAND_EVAL | COMMAND_BENCH | COMMAND_PERPLEXITY,
    PLANNED = COMPUTE | COMMAND_INSPECT | COMMAND_PLACE,
    MODEL = COMPUTE | COMMAND_TOKENIZE | COMMAND_INSPECT,
    OUTPUT = COMMAND_CONVERT | COMMAND_SYNTH | COMMAND_PREPARE,
    WRITERS = OUTPUT | COMMAND_QUANTIZE | COMMAND_IMATRIX,
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
/* An option of later versions. */
#define LATER(long_, short_, argument_, neutral_, alias_)                                          \
    {                                                                                              \
        .type = OPTION_NEUTRAL, .group = GROUP_SAMPLING, .commands = GENERATE,                     \
        NAMES(long_, short_), .argument = (argument_), .standard = (neutral_), .aliases = {        \
            alias_                                                                                 \
        }                                                                                          \
    }

const option option_table[] = {
    /* run */
    ROW(TEXT, COMMAND, COMMAND_RUN, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .help = "prompt; \\n \\r \\t \\\\ \\' \\\" \\xHH are escapes"),
    ROW(TEXT, COMMAND, COMMAND_RUN, file, NAMES("file", "f"), .argument = "FILE",
        .help =
            "prompt from a file, without its last newline; standard input when neither is given"),
    ROW(FLAG, COMMAND, COMMAND_RUN, no_escape, NAMES("no-escape", NULL),
        .help = "take -p byte for byte"),
    ROW(FLAG, COMMAND, COMMAND_RUN, escape, NAMES("escape", "e"),
        .help = "process escapes in -p (the default)"),
    ROW(INTEGER, COMMAND, COMMAND_RUN, predict, NAMES("predict", "n"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS), .aliases = {"--n-predict"},
        .help = "tokens to generate; -1: to the end of text or context"),
    ROW(TEXTS, COMMAND, COMMAND_RUN, reverse_prompts, NAMES("reverse-prompt", "r"),
        .argument = "TEXT", .help = "end after this text, which is shown; may be given repeatedly"),
    ROW(TEXT, COMMAND, COMMAND_RUN, prompt_cache, NAMES("prompt-cache", NULL), .argument = "FILE",
        .help = "keep what reading the prompt gave in a file: a later prompt that begins alike is "
                "read from where it differs"),
    ROW(FLAG, COMMAND, COMMAND_RUN, prompt_cache_all, NAMES("prompt-cache-all", NULL),
        .help = "keep the generated tokens in --prompt-cache as well"),
    ROW(FLAG, COMMAND, COMMAND_RUN, prompt_cache_ro, NAMES("prompt-cache-ro", NULL),
        .help = "use --prompt-cache, but do not write it"),
    /* eval */
    ROW(TEXT, COMMAND, COMMAND_EVAL, tokens, NAMES("tokens", NULL), .argument = "FILE",
        .help = "token ids separated by white space; - is standard input"),
    ROW(TEXT, COMMAND, COMMAND_EVAL, logits_out, NAMES("logits-out", NULL), .argument = "FILE",
        .help = "little-endian float32 [n_tokens, n_vocab], the logits after each position"),
    /* tokenize */
    ROW(TEXT, COMMAND, COMMAND_TOKENIZE, prompt, NAMES("prompt", "p"), .argument = "TEXT",
        .help = "the text, byte for byte"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, from_stdin, NAMES("stdin", NULL),
        .help = "the text from standard input, byte for byte (the default without -p)"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, ids, NAMES("ids", NULL),
        .help = "ids on one line; without it, a line per token: id and text"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, bos, NAMES("bos", NULL),
        .help = "begin with the BOS token"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, special, NAMES("special", NULL),
        .aliases = {"--parse-special"},
        .help = "recognise control tokens written in the text (with --detok: write them)"),
    ROW(TEXT, COMMAND, COMMAND_TOKENIZE, pre, NAMES("pre", NULL), .argument = "NAME",
        .help = "pre-tokenizer, in place of the one the model names"),
    ROW(FLAG, COMMAND, COMMAND_TOKENIZE, detok, NAMES("detok", NULL),
        .help = "the other way: ids in, text out"),
    /* perplexity */
    ROW(TEXT, COMMAND, COMMAND_PERPLEXITY, file, NAMES("file", "f"), .argument = "FILE",
        .help = "the text, UTF-8; - is standard input"),
    ROW(INTEGER, COMMAND, COMMAND_PERPLEXITY, first, NAMES("first", NULL), .argument = "N",
        .standard = "0", RANGE(0, MAX_TOKENS), .aliases = {"--chunks"},
        .help = "only the first N windows; 0: all"),
    ROW(FLAG, COMMAND, COMMAND_PERPLEXITY, llama_windows, NAMES("llama-windows", NULL),
        .help = "as llama.cpp: a BOS in place of each window's first token, second halves scored"),
    ROW(TEXT, COMMAND, COMMAND_PERPLEXITY, kl_base, NAMES("kl-divergence-base", NULL),
        .argument = "FILE", .aliases = {"--save-all-logits"},
        .help = "write a base run, or read it with --kl-divergence"),
    ROW(FLAG, COMMAND, COMMAND_PERPLEXITY, kl_divergence, NAMES("kl-divergence", NULL),
        .help = "compare with the base run; its text and windows are used when none are given"),
    /* bench */
    ROW(LIST, COMMAND, COMMAND_BENCH, prompts, NAMES("n-prompt", "p"), .argument = "N,...",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "prompt lengths to time; 0: no prompt test"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, n_gen, NAMES("n-gen", "n"), .argument = "N",
        .standard = "128", RANGE(0, MAX_TOKENS),
        .help = "tokens to generate; 0: no generation test"),
    ROW(LIST, COMMAND, COMMAND_BENCH, depths, NAMES("n-depth", "d"), .argument = "N,...",
        .standard = "0", RANGE(0, MAX_TOKENS), .help = "tokens already in the context"),
    ROW(INTEGER, COMMAND, COMMAND_BENCH, repetitions, NAMES("repetitions", "r"), .argument = "N",
        .standard = "5", RANGE(1, 10000), .help = "times each test is run"),
    ROW(TEXT, COMMAND, COMMAND_BENCH, trace, NAMES("trace", NULL), .argument = "FILE",
        .help = "write the timeline of a prompt's pass and of one token, as Chrome trace events"),
    /* inspect */
    ROW(FLAG, COMMAND, COMMAND_INSPECT, plan, NAMES("plan", NULL),
        .help = "the steps that a forward pass would run"),
    ROW(TEXT, COMMAND, COMMAND_INSPECT, svg, NAMES("svg", NULL), .argument = "FILE",
        .help = "draw a prepared model's neurons: hot/cold curves, densities, predictors"),
    ROW(FLAG, COMMAND, COMMAND_INSPECT, devices, NAMES("devices", NULL),
        .help = "what this machine can compute on, in place of a file"),
    /* convert, synth */
    ROW(TEXT, COMMAND, OUTPUT, out, NAMES("output", "o"), .argument = "FILE",
        .aliases = {"--outfile"}, .help = "the GGUF file to write"),
    ROW(TEXT, COMMAND, COMMAND_CONVERT, type, NAMES("type", NULL), .argument = "TYPE",
        .standard = "f16", .aliases = {"--outtype"},
        .help = "of the matrices: f32 f16 bf16 q8_0 q4_0 ..."),
    ROW(TEXT, COMMAND, COMMAND_SYNTH, shape, NAMES("shape", NULL), .argument = "NAME",
        .standard = "tiny",
        .help = "tiny llama-1b llama-7b bamboo-7b tiny-opt opt-30b tiny-falcon falcon-40b"),
    ROW(TEXT, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, type, NAMES("type", NULL), .argument = "TYPE",
        .standard = "q4_0", .help = "of every matrix, head included"),
    ROW(NUMBER, COMMAND, COMMAND_SYNTH, density, NAMES("density", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1), .help = "mean fraction of neurons that fire"),
    ROW(PAIR, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, skew, NAMES("skew", NULL), .argument = "A:B",
        .standard = "0.26:0.8", RANGE(0, 1),
        .help = "a fraction A of the neurons carries B of the activations"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, rank, NAMES("rank", NULL), .argument = "N",
        .standard = "256", RANGE(1, 65536), .help = "rank of the predictable part of a gate row"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, layers, NAMES("layers", NULL),
        .argument = "N", .standard = "0", RANGE(0, 65536),
        .help = "layers; 0: as many as the shape has"),
    ROW(INTEGER, COMMAND, COMMAND_SYNTH, seed, NAMES("seed", "s"), .argument = "N", .standard = "0",
        RANGE(0, MAX_SEED), .help = "the same seed gives the same file"),
    ROW(FLAG, COMMAND, COMMAND_SYNTH | COMMAND_PLACE, plain, NAMES("plain", NULL),
        .help = "an ordinary file without predictor and neuron order"),
    ROW(FLAG, COMMAND, COMMAND_SYNTH | COMMAND_PREPARE, bundle, NAMES("bundle", NULL),
        .help = "rows of up and down by turns in one tensor"),
    /* prepare */
    ROW(TEXT, COMMAND, COMMAND_PREPARE, calibration, NAMES("calibration", NULL), .argument = "FILE",
        .help = "text to find out what fires, UTF-8; without it, the bundled one"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, calibration_tokens, NAMES("calibration-tokens", NULL),
        .argument = "N", .standard = "16384", RANGE(1, MAX_TOKENS),
        .help = "tokens of it, taken from all over the text"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, calibration_window, NAMES("calibration-window", NULL),
        .argument = "N", .standard = "0", RANGE(0, 8192),
        .help = "tokens of a window; 0: 512, or the model's context if that is shorter"),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, type, NAMES("type", NULL), .argument = "TYPE",
        .help = "quantize the matrices first, as quantize does: q4_0 q8_0 q4_k_m ..."),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, down_type, NAMES("down-type", NULL), .argument = "TYPE",
        .help = "of the down matrix; by default as it was when float, else q8_0"),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, predictor, NAMES("predictor", NULL), .argument = "KIND",
        .help = "auto none sign lowrank relu_mlp; by default auto, but files of the original "
                "PowerInfer keep their predictors"),
    ROW(TEXT, COMMAND, COMMAND_PREPARE, predictor_type, NAMES("predictor-type", NULL),
        .argument = "TYPE", .standard = "q4_0", .help = "of the predictors' matrices"),
    ROW(NUMBER, COMMAND, COMMAND_PREPARE, recall, NAMES("recall", NULL), .argument = "X",
        .standard = "0.98", RANGE(0, 1),
        .help = "share of what neurons contribute that predictors aim to catch"),
    ROW(NUMBER, COMMAND, COMMAND_PREPARE, max_loss, NAMES("max-loss", NULL), .argument = "PCT",
        .standard = "1", RANGE(0, 100),
        .help = "rise of the perplexity that thresholds (of models without zeros) may cost"),
    ROW(INTEGER, COMMAND, COMMAND_PREPARE, seed, NAMES("seed", "s"), .argument = "N",
        .standard = "1", RANGE(0, MAX_SEED), .help = "of predictor training"),
    ROW(FLAG, COMMAND, COMMAND_PREPARE, undo, NAMES("undo", NULL),
        .help = "the way back: an ordinary GGUF file from a prepared one"),
    /* place */
    ROW(TEXT, COMMAND, COMMAND_PLACE, profile, NAMES("profile", NULL), .argument = "NAME|FILE",
        .help = "a described machine; without it, this one as it was measured"),
    ROW(FLAG, COMMAND, COMMAND_PLACE, measure, NAMES("measure", NULL),
        .help = "measure this machine's memory first, and remember it"),
    ROW(INTEGER, COMMAND, COMMAND_PLACE, depth, NAMES("n-depth", "d"), .argument = "N",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "tokens already in the context when the predicted one is computed"),
    ROW(TEXT, COMMAND, COMMAND_PLACE, svg, NAMES("svg", NULL), .argument = "FILE",
        .help = "draw the plan"),
    ROW(TEXT, COMMAND, COMMAND_PLACE, shape, NAMES("shape", NULL), .argument = "NAME",
        .help = "in place of a file, the model that synth would write: llama-7b opt-30b ..."),
    ROW(NUMBER, COMMAND, COMMAND_PLACE, density, NAMES("density", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1),
        .help = "fraction of neurons that fire: of a shape; of a file where it says nothing (there "
                "1 unless given)"),
    /* quantize */
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, imatrix, NAMES("imatrix", NULL), .argument = "FILE",
        .help = "importance matrix that weights the errors (see powerinfer imatrix)"),
    ROW(TEXTS, COMMAND, COMMAND_QUANTIZE, tensor_types, NAMES("tensor-type", NULL),
        .argument = "PATTERN=TYPE",
        .help = "type of the tensors whose name has PATTERN in it, or matches it when it has * ? "
                "or [; may be repeated, the first that fits counts"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, output_type, NAMES("output-tensor-type", NULL),
        .argument = "TYPE", .help = "of output.weight"),
    ROW(TEXT, COMMAND, COMMAND_QUANTIZE, embedding_type, NAMES("token-embedding-type", NULL),
        .argument = "TYPE", .help = "of token_embd.weight"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, leave_output, NAMES("leave-output-tensor", NULL),
        .help = "output.weight keeps its type"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, pure, NAMES("pure", NULL),
        .help = "one type for all matrices, no mixture"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, allow_requantize, NAMES("allow-requantize", NULL),
        .help = "quantize matrices again that are quantized already: errors add up"),
    ROW(FLAG, COMMAND, COMMAND_QUANTIZE, dry_run, NAMES("dry-run", NULL),
        .help = "show types and sizes, write nothing"),
    /* imatrix */
    ROW(TEXT, COMMAND, COMMAND_IMATRIX, file, NAMES("file", "f"), .argument = "FILE",
        .help = "the text"),
    ROW(TEXT, COMMAND, COMMAND_IMATRIX, out, NAMES("output", "o"), .argument = "FILE",
        .standard = "imatrix.gguf", .aliases = {"--output-file"}, .help = "the file to write"),
    ROW(INTEGER, COMMAND, COMMAND_IMATRIX, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "512", RANGE(1, 65536), .help = "tokens of a window"),
    ROW(INTEGER, COMMAND, COMMAND_IMATRIX, chunks, NAMES("chunks", NULL), .argument = "N",
        .standard = "0", RANGE(-1, MAX_TOKENS), .help = "most windows of the text; 0: all"),
    ROW(FLAG, COMMAND, COMMAND_IMATRIX, process_output, NAMES("process-output", NULL),
        .help = "collect for the head too"),
    /* template */
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, file, NAMES("file", "f"), .argument = "FILE",
        .help = "the request, a JSON object as for /v1/chat/completions; - is standard input"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, chat_template, NAMES("chat-template", NULL),
        .argument = "NAME",
        .help = "a built-in template, in place of the model's; list: print their names"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, chat_template_file, NAMES("chat-template-file", NULL),
        .argument = "FILE", .help = "a Jinja template, in place of the model's"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, bos_text, NAMES("bos", NULL), .argument = "TEXT",
        .help = "bos_token, in place of the model's"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, eos_text, NAMES("eos", NULL), .argument = "TEXT",
        .help = "eos_token, in place of the model's"),
    ROW(TEXT, COMMAND, COMMAND_TEMPLATE, now, NAMES("now", NULL), .argument = "TIME",
        .help = "the time that the template sees, such as 2025-07-26T09:05:03; the clock when not "
                "given"),
    /* common */
    ROW(TEXT, COMMON, MODEL | COMMAND_IMATRIX | COMMAND_PLACE | COMMAND_TEMPLATE, model,
        NAMES("model", "m"), .argument = "FILE",
        .help = "model in GGUF; without it, the bundled one"),
    ROW(INTEGER, COMMON, COMPUTE | WRITERS | COMMAND_PLACE, threads, NAMES("threads", "t"),
        .argument = "N", .standard = "0", RANGE(0, MAX_THREADS),
        .help = "threads; 0: as many as there are physical (performance) cores"),
    ROW(INTEGER, COMMON, COMPUTE, threads_batch, NAMES("threads-batch", "tb"), .argument = "N",
        .standard = "0", RANGE(0, MAX_THREADS), .help = "threads for batches; 0: as -t"),
    ROW(INTEGER, COMMON, COMMAND_RUN | COMMAND_INSPECT | COMMAND_PLACE, ctx_size,
        NAMES("ctx-size", "c"), .argument = "N", .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "context in tokens; 0: what the model was trained for; -1: that or 8192, whichever "
                "is smaller"),
    ROW(INTEGER, COMMON, COMMAND_EVAL, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_TOKENS),
        .help = "context in tokens; -1: as many as there are in the file; 0: what the model was "
                "trained for"),
    ROW(INTEGER, COMMON, COMMAND_PERPLEXITY, ctx_size, NAMES("ctx-size", "c"), .argument = "N",
        .standard = "512", RANGE(0, MAX_TOKENS),
        .help = "tokens of a window; 0: what the model was trained for"),
    ROW(INTEGER, COMMON, PLANNED, batch_size, NAMES("batch-size", "b"), .argument = "N",
        .standard = "512", RANGE(1, 65536), .aliases = {"--batch"},
        .help = "most tokens in one pass over the weights"),
    ROW(CHOICE, COMMON, PLANNED, cache_type_k, NAMES("cache-type-k", "ctk"), .argument = "TYPE",
        .choices = "f16|f32|q8_0", .standard = "f16", .help = "type of the keys in the KV cache"),
    ROW(CHOICE, COMMON, PLANNED, cache_type_v, NAMES("cache-type-v", "ctv"), .argument = "TYPE",
        .choices = "f16|f32|q8_0", .standard = "f16", .help = "type of the values in the KV cache"),
    ROW(FLAG, COMMON, COMPUTE, no_mmap, NAMES("no-mmap", NULL),
        .help = "copy the weights into huge pages instead of mapping the file"),
    ROW(FLAG, COMMON, COMPUTE, mlock, NAMES("mlock", NULL), .help = "keep the weights in memory"),
    ROW(FLAG, COMMON,
        COMMAND_RUN | COMMAND_BENCH | COMMAND_PERPLEXITY | COMMAND_INSPECT | COMMAND_QUANTIZE |
            COMMAND_PREPARE | COMMAND_PLACE,
        json, NAMES("json", NULL), .help = "one JSON document on standard output"),
    ROW(FLAG, COMMON, ALL, verbose, NAMES("verbose", "v"), .help = "say more"),
    ROW(FLAG, COMMON, ALL, quiet, NAMES("quiet", "q"),
        .help = "nothing but errors on standard error"),
    /* engine */
    ROW(CHOICE, ENGINE, PLANNED, mode, NAMES("mode", NULL), .argument = "MODE",
        .choices = "auto|dense|exact|predict|threshold", .standard = "auto",
        .help = "how feed-forward layers are computed; auto: the fastest within --max-loss"),
    ROW(CHOICE, ENGINE, PLANNED, device, NAMES("device", NULL), .argument = "DEVICE",
        .choices = "auto|cpu|cuda|hip|sim", .standard = "auto",
        .help = "where to compute; auto: on the GPU, if there is one, what fits there, the rest on "
                "the CPU; sim: a simulated GPU, for tests"),
    ROW(CHOICE, ENGINE, COMPUTE | COMMAND_INSPECT, kernels, NAMES("kernels", NULL),
        .argument = "TIER", .choices = "auto|scalar|avx2|avx512|neon", .standard = "auto",
        .help = "instruction set; scalar keeps activations in float: slow and exact"),
    ROW(NUMBER, ENGINE, COMPUTE | COMMAND_INSPECT, threshold, NAMES("threshold", NULL),
        .argument = "X", RANGE(-MAX_FLOAT, MAX_FLOAT),
        .help = "neurons with a lower score are skipped, in place of the model's own threshold; "
                "-1e30 passes all"),
    ROW(NUMBER, ENGINE, PLANNED, max_loss, NAMES("max-loss", NULL), .argument = "PCT",
        .standard = "1", RANGE(0, 100),
        .help = "rise of the perplexity, as measured by prepare, that --mode auto accepts"),
    ROW(NUMBER, ENGINE, PLANNED, vram_budget, NAMES("vram-budget", NULL), .argument = "GIB",
        .standard = "0", RANGE(0, MAX_FLOAT),
        .help = "GPU memory to use; what is free, less a margin, when not given; 0: none"),
    ROW(INTEGER, ENGINE, COMPUTE | COMMAND_INSPECT, gpu_layers, NAMES("gpu-layers", "ngl"),
        .argument = "N", .standard = "-1", RANGE(-1, MAX_TOKENS), .aliases = {"--n-gpu-layers"},
        .help = "layers wholly on the GPU, from the last one on, and with more than there are the "
                "head too; as many as fit; -1: what is fastest"),
    ROW(TEXT, ENGINE, PLANNED, backend_folder, NAMES("backend-folder", NULL), .argument = "DIR",
        .help = "where the GPU backends are; beside the program or as installed when not given"),
    /* sampling */
    ROW(NUMBER, SAMPLING, GENERATE, temp, NAMES("temp", NULL), .argument = "X", .standard = "0.8",
        RANGE(-MAX_FLOAT, MAX_FLOAT), .aliases = {"--temperature"},
        .help = "temperature; 0: always the most likely token"),
    ROW(INTEGER, SAMPLING, GENERATE, top_k, NAMES("top-k", NULL), .argument = "N", .standard = "40",
        RANGE(-1, MAX_TOKENS), .help = "keep the N most likely tokens; 0: all"),
    ROW(NUMBER, SAMPLING, GENERATE, top_p, NAMES("top-p", NULL), .argument = "X",
        .standard = "0.95", RANGE(0, 1),
        .help = "keep the most likely tokens that together reach X; 1: all"),
    ROW(NUMBER, SAMPLING, GENERATE, min_p, NAMES("min-p", NULL), .argument = "X",
        .standard = "0.05", RANGE(0, 1),
        .help = "keep tokens at least X times as likely as the best; 0: all"),
    ROW(NUMBER, SAMPLING, GENERATE, typical, NAMES("typical", NULL), .argument = "X",
        .standard = "1", RANGE(0, 1), .aliases = {"--typical-p"},
        .help = "keep the tokens nearest to the expected surprise that together reach X; 1: all"),
    ROW(NUMBER, SAMPLING, GENERATE, repeat_penalty, NAMES("repeat-penalty", NULL), .argument = "X",
        .standard = "1", RANGE(1e-6, 1e6), .help = "divides the scores of repeated tokens; 1: off"),
    ROW(INTEGER, SAMPLING, GENERATE, repeat_last_n, NAMES("repeat-last-n", NULL), .argument = "N",
        .standard = "64", RANGE(-1, MAX_TOKENS),
        .help = "tokens that count as repeated; -1: all so far"),
    ROW(NUMBER, SAMPLING, GENERATE, presence_penalty, NAMES("presence-penalty", NULL),
        .argument = "X", .standard = "0", RANGE(-MAX_PENALTY, MAX_PENALTY),
        .help = "taken off the score of a token that was there; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, frequency_penalty, NAMES("frequency-penalty", NULL),
        .argument = "X", .standard = "0", RANGE(-MAX_PENALTY, MAX_PENALTY),
        .help = "taken off for each time that it was there; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dynatemp_range, NAMES("dynatemp-range", NULL), .argument = "X",
        .standard = "0", RANGE(0, MAX_PENALTY),
        .help = "temperature within --temp -+ X, by how sure the model is; 0: fixed"),
    ROW(NUMBER, SAMPLING, GENERATE, dynatemp_exponent, NAMES("dynatemp-exp", NULL), .argument = "X",
        .standard = "1", RANGE(0, MAX_PENALTY), .help = "exponent of that dependence"),
    ROW(NUMBER, SAMPLING, GENERATE, xtc_probability, NAMES("xtc-probability", NULL),
        .argument = "X", .standard = "0", RANGE(0, 1),
        .help = "chance, per token, to leave out all but the least of the likely tokens; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, xtc_threshold, NAMES("xtc-threshold", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, 1), .help = "how likely those are at least; over 0.5: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dry_multiplier, NAMES("dry-multiplier", NULL), .argument = "X",
        .standard = "0", RANGE(0, MAX_PENALTY),
        .help = "penalty on tokens that continue a repeated sequence: X * base ^ (its length - "
                "allowed length); 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, dry_base, NAMES("dry-base", NULL), .argument = "X",
        .standard = "1.75", RANGE(0, MAX_PENALTY), .help = "base of that; below 1: off"),
    ROW(INTEGER, SAMPLING, GENERATE, dry_allowed_length, NAMES("dry-allowed-length", NULL),
        .argument = "N", .standard = "2", RANGE(0, MAX_TOKENS),
        .help = "shorter sequences may be repeated freely"),
    ROW(INTEGER, SAMPLING, GENERATE, dry_last_n, NAMES("dry-penalty-last-n", NULL), .argument = "N",
        .standard = "-1", RANGE(-1, MAX_WINDOW),
        .help = "tokens that are searched; -1: as many as the model was trained for; 0: off"),
    ROW(TEXTS, SAMPLING, GENERATE, dry_breakers, NAMES("dry-sequence-breaker", NULL),
        .argument = "TEXT",
        .help = "sequences end here; may be given repeatedly, in place of newline : \" *; none: "
                "no such text"),
    ROW(INTEGER, SAMPLING, GENERATE, mirostat, NAMES("mirostat", NULL), .argument = "N",
        .standard = "0", RANGE(0, 2),
        .help = "1, 2: Mirostat of this version in place of filters and penalties; 0: off"),
    ROW(NUMBER, SAMPLING, GENERATE, mirostat_eta, NAMES("mirostat-lr", NULL), .argument = "X",
        .standard = "0.1", RANGE(0, MAX_MIROSTAT), .help = "its learning rate (eta)"),
    ROW(NUMBER, SAMPLING, GENERATE, mirostat_tau, NAMES("mirostat-ent", NULL), .argument = "X",
        .standard = "5", RANGE(0, MAX_MIROSTAT),
        .help = "the surprise it aims at, in bits per token (tau)"),
    ROW(TEXTS, SAMPLING, GENERATE, logit_bias, NAMES("logit-bias", "l"), .argument = "ID+BIAS",
        .help = "added to the score of a token, or taken off with ID-BIAS; inf bans or forces; may "
                "be given repeatedly"),
    ROW(INTEGER, SAMPLING, GENERATE, seed, NAMES("seed", "s"), .argument = "N", .standard = "-1",
        RANGE(-1, MAX_SEED), .help = "seed of the draw; -1: a new one each time"),
    ROW(FLAG, SAMPLING, GENERATE, ignore_eos, NAMES("ignore-eos", NULL),
        .help = "never end the text early"),
    /* sampling of later versions: scripts that spell out the neutral value keep working */
    LATER("grammar", NULL, "GRAMMAR", "", NULL),
    LATER("grammar-file", NULL, "FILE", "", NULL),
    LATER("json-schema", "j", "SCHEMA", "", NULL),
};

const size_t option_count = sizeof option_table / sizeof option_table[0];

_Static_assert(sizeof option_table / sizeof option_table[0] <= 64 * OPTION_MARK_WORDS,
               "cli_options keeps one bit per row");
