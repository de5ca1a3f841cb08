/* option_habits.c: options of llama.cpp's programs without a row in option_table.c, as data:
 * accepted where no value would change a result, otherwise refused with one line that says what to
 * do. docs/llama-flags.md documents the same list; a test compares the two. */
#include "options.h"

enum {
    RUN = COMMAND_RUN | COMMAND_CHAT,
    BENCH = COMMAND_BENCH,
    PERPLEXITY = COMMAND_PERPLEXITY,
    IMATRIX = COMMAND_IMATRIX,
    QUANTIZE = COMMAND_QUANTIZE,
    SERVE = COMMAND_SERVE,
    GENERATE = RUN | SERVE,
    /* what takes llama.cpp's common options */
    TEXTS = RUN | COMMAND_EVAL | PERPLEXITY | IMATRIX | SERVE,
    MODELS = TEXTS | BENCH
};

/* Features that come later, by the names that the messages give them. */
#define ADAPTERS   "control vectors"
#define PREFIXES   "messages are formatted by the chat template: use --chat-template-file"
#define MULTIMODAL "multimodal models (images, audio)"

#define ROPE     "scaling of RoPE in measuring importance"
#define SWITCHES "on|off|auto|0|1|true|false|enabled|disabled|-1"
#define ONE_MASK "one set of CPUs serves prefill and decode: give it with -C or -Cr"
#define ONE_POOL "both models run with the threads of -t"
#define OWN_TEXT "--spec ngram looks up the text itself"

#define FLAG(names_, commands_)                                                                    \
    { .names = (names_), .commands = (commands_), .accepted = "" }
#define VALUE(names_, commands_, argument_, accepted_)                                             \
    { .names = (names_), .commands = (commands_), .argument = (argument_), .accepted = (accepted_) }
#define BARE(names_, commands_, argument_, accepted_)                                              \
    {                                                                                              \
        .names = (names_), .commands = (commands_), .argument = (argument_),                       \
        .accepted = (accepted_), .may_be_bare = true                                               \
    }
#define ONLY(names_, commands_, argument_, accepted_, refused_)                                    \
    {                                                                                              \
        .names = (names_), .commands = (commands_), .argument = (argument_),                       \
        .accepted = (accepted_), .refused = (refused_)                                             \
    }
#define LATER(names_, commands_, feature_)                                                         \
    { .names = (names_), .commands = (commands_), .later = (feature_) }
#define REFUSED(names_, commands_, why_)                                                           \
    { .names = (names_), .commands = (commands_), .refused = (why_) }
#define CALLED(names_, commands_, meant_)                                                          \
    { .names = (names_), .commands = (commands_), .meant = (meant_) }

const option_habit habit_table[] = {
    /* accepted: speed and memory */
    BARE("-fa --flash-attn", MODELS, "on|off|auto", SWITCHES),
    VALUE("-ub --ubatch-size", MODELS, "N", "#"),
    FLAG("--warmup", MODELS),
    FLAG("--no-warmup", MODELS),
    FLAG("--mmap", TEXTS),
    ONLY("-mmp --mmap", BENCH, "0|1", "1", "use --no-mmap to copy the weights"),
    ONLY("-np --parallel", RUN | PERPLEXITY | IMATRIX, "N", "1",
         "run completes one prompt; perplexity and imatrix batch their windows by themselves"),
    FLAG("-kvu --kv-unified", TEXTS),
    FLAG("-kvo --kv-offload", TEXTS),
    REFUSED("-nkvo --no-kv-offload", MODELS,
            "the KV cache of a layer is where its attention is computed"),
    FLAG("--repack", TEXTS),
    FLAG("-nr --no-repack", TEXTS),
    FLAG("--op-offload", TEXTS),
    FLAG("--swa-full", TEXTS),
    VALUE("-fit --fit", MODELS, "on|off", "on|off"),
    VALUE("-dt --defrag-thold", TEXTS, "X", "*"),
    VALUE("--poll", MODELS, "N", "#"),
    VALUE("--poll-batch", TEXTS, "N", "#"),
    ONLY("-sm --split-mode", MODELS, "none|layer|row", "none|layer",
         "GPUs have whole layers: choose them with --device cuda:0,1"),
    ONLY("-mg --main-gpu", MODELS, "N", "0", "choose the GPU with --device cuda:1"),
    VALUE("-ot --override-tensor", IMATRIX, "PATTERN=DEVICE", "*"),
    REFUSED("--rpc", MODELS, "the model runs on one machine"),
    FLAG("-cmoe --cpu-moe", IMATRIX),
    VALUE("-ncmoe --n-cpu-moe", IMATRIX, "N", "#"),
    VALUE("-ncffn --n-cpu-ffn", IMATRIX, "N", "#"),
    ONLY("--prio-batch", TEXTS, "N", "0", "one priority serves prefill and decode: use --prio"),
    REFUSED("-Cb --cpu-mask-batch", TEXTS, ONE_MASK),
    REFUSED("-Crb --cpu-range-batch", TEXTS, ONE_MASK),
    ONLY("--cpu-strict-batch", TEXTS, "0|1", "0", ONE_MASK),
    /* accepted: what is printed */
    FLAG("--perf", TEXTS),
    FLAG("--no-perf", TEXTS),
    FLAG("--show-timings", RUN),
    FLAG("--no-show-timings", RUN),
    FLAG("--no-display-prompt", RUN),
    FLAG("--simple-io", RUN),
    BARE("--log-colors", MODELS, "on|off|auto", SWITCHES),
    FLAG("--log-prefix", TEXTS),
    FLAG("--no-log-prefix", TEXTS),
    FLAG("--log-timestamps", TEXTS),
    FLAG("--no-log-timestamps", TEXTS),
    VALUE("-lv --verbosity --log-verbosity", TEXTS, "N", "#"),
    REFUSED("--log-file", TEXTS, "messages go to standard error: redirect it with 2>FILE"),
    /* chat */
    FLAG("-no-cnv --no-conversation", COMMAND_RUN),
    REFUSED("-no-cnv --no-conversation", COMMAND_CHAT, "powerinfer run completes a prompt"),
    FLAG("--no-jinja", COMMAND_RUN),
    REFUSED("--no-jinja", COMMAND_CHAT,
            "templates are Jinja: choose another one with --chat-template"),
    FLAG("--jinja", RUN),
    FLAG("-mli --multiline-input", RUN),
    CALLED("-i --interactive", RUN, "powerinfer chat"),
    CALLED("-if --interactive-first", RUN, "powerinfer chat"),
    ONLY("--reasoning-format", RUN, "FORMAT", "auto|deepseek",
         "reasoning is shown dimmed, and kept out of the conversation"),
    CALLED("--reasoning-budget", COMMAND_RUN, "powerinfer chat --reasoning-budget"),
    LATER("--chat-template-kwargs", RUN, "template variables"),
    REFUSED("--in-prefix", RUN, PREFIXES),
    REFUSED("--in-prefix-bos", RUN, PREFIXES),
    REFUSED("--in-suffix", RUN, PREFIXES),
    /* serve */
    FLAG("-cb --cont-batching", SERVE),
    FLAG("--metrics", SERVE),
    FLAG("--slots", SERVE),
    FLAG("--props", SERVE),
    FLAG("--jinja", SERVE),
    REFUSED("-nocb --no-cont-batching", SERVE, "sequences are always computed together: -np 1"),
    REFUSED("--ssl-key-file", SERVE, "TLS is left to a proxy (docs/server.md)"),
    REFUSED("--ssl-cert-file", SERVE, "TLS is left to a proxy (docs/server.md)"),
    /* other features */
    LATER("--lora --lora-scaled", IMATRIX, "LoRA adapters in imatrix"),
    LATER("--control-vector", MODELS, ADAPTERS),
    LATER("--control-vector-scaled", MODELS, ADAPTERS),
    LATER("--control-vector-layer-range", MODELS, ADAPTERS),
    VALUE("-cd --ctx-size-draft", GENERATE, "N", "#"),
    VALUE("--draft-p-split", GENERATE, "P", "*"),
    REFUSED("-td --threads-draft", GENERATE, ONE_POOL),
    REFUSED("-tbd --threads-batch-draft", GENERATE, ONE_POOL),
    REFUSED("-lcs --lookup-cache-static", GENERATE, OWN_TEXT),
    REFUSED("-lcd --lookup-cache-dynamic", GENERATE, OWN_TEXT),
    REFUSED("--spec-replace", GENERATE, "a draft model must have the model's vocabulary"),
    FLAG("--no-mmproj", RUN),
    LATER("-mm --mmproj", RUN, MULTIMODAL),
    LATER("--image", RUN, MULTIMODAL),
    LATER("--rope-scaling", IMATRIX, ROPE),
    LATER("--rope-scale", IMATRIX, ROPE),
    LATER("--rope-freq-base", IMATRIX, ROPE),
    LATER("--rope-freq-scale", IMATRIX, ROPE),
    LATER("--yarn-orig-ctx", IMATRIX, ROPE),
    LATER("--yarn-ext-factor", IMATRIX, ROPE),
    LATER("--yarn-attn-factor", IMATRIX, ROPE),
    LATER("--yarn-beta-slow", IMATRIX, ROPE),
    LATER("--yarn-beta-fast", IMATRIX, ROPE),
    /* where models come from */
    FLAG("--no-context-shift", TEXTS),
    REFUSED("-dr --docker-repo", MODELS, "models come from Hugging Face: use -hf USER/REPO"),
    /* the text */
    REFUSED("-sp --special", RUN,
            "control tokens are not printed: see tokens in the JSON of --json"),
    REFUSED("-bf --binary-file", RUN | PERPLEXITY, "give the text with -f or on standard input"),
    CALLED("--version", MODELS | QUANTIZE, "powerinfer --version"),
    CALLED("--memory-f32", TEXTS, "-ctk f32 -ctv f32"),
    /* perplexity */
    VALUE("-s --seed", PERPLEXITY | IMATRIX, "N", "#"),
    FLAG("--all-logits --logits-all", PERPLEXITY),
    ONLY("--ppl-output-type", PERPLEXITY, "0|1", "0", "use --json for figures to read by program"),
    REFUSED("--hellaswag", PERPLEXITY, "only texts are scored"),
    REFUSED("--winogrande", PERPLEXITY, "only texts are scored"),
    REFUSED("--multiple-choice", PERPLEXITY, "only texts are scored"),
    /* imatrix */
    VALUE("-ts --tensor-split", IMATRIX, "N0,N1,...", "*"),
    FLAG("--no-ppl", IMATRIX),
    VALUE("-ofreq --output-frequency", IMATRIX, "N", "#"),
    ONLY("--save-frequency", IMATRIX, "N", "0", "the file is written once, at the end"),
    ONLY("--output-format", IMATRIX, "gguf|dat", "gguf", "the file is GGUF"),
    ONLY("--chunk --from-chunk", IMATRIX, "N", "0", "cut the text file instead"),
    REFUSED("--in-file", IMATRIX, "files are not merged: use one longer text"),
    REFUSED("--parse-special", IMATRIX, "the text is plain text"),
    REFUSED("--show-statistics", IMATRIX, "powerinfer inspect shows what is in the file"),
    VALUE("-ngl --gpu-layers --n-gpu-layers", IMATRIX, "N", "*"),
    VALUE("-b --batch-size", IMATRIX, "N", "#"),
    /* bench */
    REFUSED("-pg", BENCH, "time prefill with -p and decode with -n"),
    ONLY("-embd --embeddings", BENCH, "0|1", "0", "embeddings are not computed"),
    ONLY("-oe --output-err", BENCH, "FORMAT", "none", "results go to standard output only"),
    /* tokenize */
    FLAG("--no-bos", COMMAND_TOKENIZE),
    FLAG("--no-parse-special", COMMAND_TOKENIZE),
    FLAG("--no-escape", COMMAND_TOKENIZE),
    CALLED("-f --file", COMMAND_TOKENIZE, "--stdin <FILE"),
    /* quantize */
    REFUSED("--keep-split", QUANTIZE, "one file is written: parts of a split model are joined"),
    REFUSED("--include-weights", QUANTIZE, "all entries of --imatrix are used"),
    REFUSED("--exclude-weights", QUANTIZE, "all entries of --imatrix are used"),
    REFUSED("--prune-layers", QUANTIZE, "all layers are kept"),
    REFUSED("--override-kv", QUANTIZE, "all keys are copied: override them when the model is run"),
};

const size_t habit_count = sizeof habit_table / sizeof habit_table[0];
