/* main.c: the table of commands, and main, which finds the command, reads its options and calls it.
 * Each command is a file cmd_NAME.c that turns options into calls of the public headers. */
#include <string.h>

#include "affinity.h"
#include "affix.h"
#include "cli.h"
#include "cluster_start.h"
#include "fetch.h"
#include "file.h"
#include "model_source.h"
#include "os_terminal.h"
#include "os_text.h"
#include "overrides.h"
#include "signals.h"
#include "terminal.h"

static const command commands[] = {
    {"run", COMMAND_RUN, "run [-m FILE] [-p TEXT | -f FILE] [options]",
     "complete a prompt: streams the text, then timings",
     "Without -p and -f, the prompt is read from standard input. Only the completion goes to "
     "standard output, with a newline at its end if it has none; on a terminal, its control "
     "characters are printed as escapes. Ctrl-C stops the generation, with exit status 130 "
     "(SIGTERM: 143); a second signal ends the program.",
     1, true, cmd_run},
    {"chat", COMMAND_CHAT, "chat [-m FILE] [-p TEXT] [-sys TEXT] [options]",
     "hold a conversation with a model, with its chat template",
     "On a terminal, lines can be edited and have a history; a \\ at the end of a line continues "
     "the message on the next one, and lines pasted together are one message. Ctrl-C stops an "
     "answer or clears the line; on an empty line it asks whether to leave. /help lists the "
     "commands. Without a terminal, every line of standard input is a message; with -p, TEXT is "
     "the only message.",
     1, true, cmd_chat},
    {"eval", COMMAND_EVAL, "eval [-m FILE] --tokens FILE --logits-out FILE [options]",
     "write the logits of a forward pass over token ids",
     "No BOS is added. --batch 1 evaluates the tokens one by one.", 1, true, cmd_eval},
    {"embed", COMMAND_EMBED, "embed [-m FILE] [-p TEXT | -f FILE | -] [options]",
     "embeddings of texts, or scores of a model that ranks",
     "Every line is a text and gives one line of numbers. Without -p and -f, or with -, the texts "
     "are read from standard input. Encoders (bert, nomic-bert, jina-bert-v2, ...) and language "
     "models both give embeddings; only a model with a classifier ranks.",
     1, true, cmd_embed},
    {"tokenize", COMMAND_TOKENIZE, "tokenize [-m FILE] [--ids] [-p TEXT | --stdin] [options]",
     "convert text to token ids and back",
     "By default no BOS or EOS is added, and control tokens in the text are plain text. A "
     "vocabulary-only file is enough.",
     1, true, cmd_tokenize},
    {"template", COMMAND_TEMPLATE,
     "template [-m FILE | --chat-template NAME | --chat-template-file FILE] -f REQUEST.json",
     "render a chat request with the model's chat template",
     "The template sees messages, tools, documents, add_generation_prompt and enable_thinking of "
     "the request, and everything under chat_template_kwargs. The prompt is printed byte for byte. "
     "When the template rejects the request, the exit status is 1 and the message is the "
     "template's.",
     1, true, cmd_template},
    {"serve", COMMAND_SERVE,
     "serve [-m FILE | --models DIR|FILE] [--host ADDRESS] [--port N] [-np N] [options]",
     "HTTP server with the APIs of OpenAI, llama.cpp and Anthropic",
     "Prints \"listening on http://HOST:PORT\" once it is ready. Sampling options are the defaults "
     "of requests. With --models, requests name one of several models, which is loaded for them. "
     "After Ctrl-C or SIGTERM, the server takes no new requests and gives answers in "
     "progress --drain seconds to end; a second signal ends the program.",
     1, true, cmd_serve},
    {"perplexity", COMMAND_PERPLEXITY, "perplexity [-m FILE] -f TEXT [-c N] [options]",
     "measure perplexity over a text, and KL divergence from a base model",
     "The text is cut into windows of -c tokens; every token of a window but the first is scored, "
     "and a last short window is dropped. To compare two models, write the logits of the first "
     "with --kl-divergence-base FILE and read them for the second with --kl-divergence as well.",
     1, true, cmd_perplexity},
    {"bench", COMMAND_BENCH, "bench [-m FILE] [-p N,...] [-n N] [-d N,...] [-r N] [options]",
     "measure prefill and decode speed, bytes read, share of the memory bandwidth",
     "-m, -b, -t, -tb, -ctk, -ctv, --mode and -ngl also take several values, separated by commas "
     "or as a repeated option; every combination is measured.",
     1, true, cmd_bench},
    {"inspect", COMMAND_INSPECT, "inspect [FILE | -m FILE] [options]",
     "show a model file, the steps of its plan, or this machine's devices", NULL, 1, true,
     cmd_inspect},
    {"prepare", COMMAND_PREPARE, "prepare IN -o FILE [--calibration TEXT] [options]",
     "make a sparse model: profile and sort its FFN neurons, train predictors",
     "IN is a GGUF file, a file of the original PowerInfer, or a Hugging Face folder. Profiles the "
     "neuron activations on a calibration text, sorts the neurons by frequency, trains predictors "
     "(or finds thresholds for models whose activations are never zero), and measures perplexity "
     "before and after on held-out text. --undo writes an ordinary GGUF file from a prepared one.",
     1, false, cmd_prepare},
    {"tune", COMMAND_TUNE, "tune IN -o FILE [--max-loss PCT] [options]",
     "find the fastest settings of a model on this machine, prepared or not",
     "IN is a model as for prepare. Prepares it, times decode with it and without, in every mode "
     "and with several numbers of threads, and writes the faster model with the best settings. "
     "Other commands on this machine use these by default; on other machines they choose as "
     "always.",
     1, false, cmd_tune},
    {"convert", COMMAND_CONVERT, "convert DIR -o FILE [--type TYPE]",
     "convert a Hugging Face folder to GGUF",
     "DIR has config.json, safetensors (F32, F16, BF16, FP8, MXFP4) and a tokenizer; "
     "docs/convert.md lists the model types. MXFP4 matrices keep their type.",
     1, false, cmd_convert},
    {"quantize", COMMAND_QUANTIZE, "quantize IN [OUT] TYPE [THREADS] [options]",
     "convert a GGUF file to another quantization type",
     "TYPE is a mix by llama.cpp's name, in any case: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K "
     "Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K TQ1_0 TQ2_0 Q1_0 Q2_0 IQ1_S "
     "IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_NL IQ4_XS MXFP4 MXFP4_MOE, "
     "or COPY. IQ1, IQ2 and IQ3_XXS need --imatrix. OUT defaults to ggml-model-TYPE.gguf next to "
     "IN.",
     4, false, cmd_quantize},
    {"imatrix", COMMAND_IMATRIX, "imatrix [-m FILE] -f TEXT [-o FILE] [options]",
     "compute an importance matrix for quantize from a text",
     "Evaluates the text in windows of -c tokens and writes, for every matrix, the sums of squares "
     "of its input activations.",
     1, true, cmd_imatrix},
    {"place", COMMAND_PLACE,
     "place [-m FILE | --shape NAME] [--vram-budget SIZE] [--profile NAME] [options]",
     "show the CPU/GPU placement for a VRAM budget, and its predicted speed",
     "Works without a GPU: --profile describes another machine, by a JSON file or by name "
     "(rtx-2080ti-ddr4, rtx-3060-ddr4, rtx-4090-ddr5, rtx-5090-ddr5, cpu-only, ...). Speeds are "
     "predicted from bandwidths.",
     1, true, cmd_place},
    {"synth", COMMAND_SYNTH, "synth -o FILE [--shape NAME] [--type TYPE] [options]",
     "write a random model of a named shape, for benchmarks and tests", NULL, 0, false, cmd_synth},
    {"completion", COMMAND_COMPLETION, "completion bash | zsh | fish | man [COMMAND] | all DIR",
     "print completions for a shell, or man pages",
     "man prints the page of the program or of a command. all writes completions for the three "
     "shells and all man pages below DIR, such as /usr/share, or ~/.local/share for one user.",
     2, false, cmd_completion},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const command *cli_commands(size_t *n) {
    *n = N_COMMANDS;
    return commands;
}

static const command *command_find(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
    }
    return NULL;
}

/* Commands of other programs that manage models. */
static const char *const elsewhere[] = {"pull", "list", "ls",   "ps",   "show",
                                        "rm",   "cp",   "stop", "push", "create"};

static int command_unknown(const char *name) {
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    if (name[0] == '-') {
        return cli_wrong("no command: %.200s: name a command first, such as powerinfer run %.200s",
                         name, name);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        if (strcmp(elsewhere[i], name) != 0) continue;
        return cli_wrong(
            "no command %s: models are GGUF files, named with -m FILE or downloaded with -hf "
            "USER/REPO[:QUANT], such as powerinfer run -hf Qwen/Qwen3-4B-GGUF; downloads are kept "
            "in $HF_HOME or ~/.cache/huggingface; powerinfer inspect FILE shows one "
            "(docs/models.md)",
            name);
    }
    const char *closest = options_closest(name, names, N_COMMANDS);
    if (closest) return cli_wrong("unknown command: %.200s: did you mean %s?", name, closest);
    return cli_wrong("unknown command: %.200s: see powerinfer --help", name);
}

/* For commands that take a model, a positional argument is the model, as with -m. For commands with
 * an input, -m or a download is the first positional argument. EXIT_USAGE: both are given. */
static int take_model(const command *c, cli_options *o) {
    pi_error err;
    char other[256];
    if (model_source_settle(o, &err) != PI_OK) return cli_wrong("%s", err.message);
    bool typed = model_source_typed(o, other, sizeof other);
    if (c->bit == COMMAND_EMBED && o->n_positionals && strcmp(o->positionals[0], "-") == 0) {
        o->from_stdin = true;
        o->n_positionals = 0;
    }
    if (c->model_argument && o->n_positionals) {
        const char *word = o->positionals[0];
        if (typed) return cli_wrong("two files: %.200s and %s: give one of them", word, other);
        bool is_url = fetch_is_url(word), may_be_text = !strchr(word, ':') && !strchr(word, '/');
        if (!is_url && !may_be_text && model_source_refuse_name(word, &err) != PI_OK)
            return cli_wrong("%s", err.message);
        if (c->bit != COMMAND_INSPECT && !is_url && !file_exists(word) && !o->mpi_send)
            return cli_wrong(
                "no such file: %.200s: name a model here or with -m%s", word,
                c->bit & (COMMAND_RUN | COMMAND_CHAT | COMMAND_TOKENIZE) ? ", a text with -p" : "");
        o->model = word;
        o->hf_repo = o->model_url = NULL; /* from the environment */
    } else if (!c->model_argument && typed) {
        if (o->n_positionals >= c->max_positionals)
            return cli_wrong("two inputs: %.200s and %s: give one of them", o->positionals[0],
                             other);
        memmove(o->positionals + 1, o->positionals, sizeof o->positionals - sizeof(char *));
        o->positionals[0] = o->model; /* NULL: downloaded below */
        o->n_positionals++;
    }
    return EXIT_DONE;
}

/* Downloads an input of quantize, prepare, tune or convert that is a URL. */
static int fetch_input(const command *c, cli_options *o) {
    pi_error err;
    if (c->model_argument || !o->n_positionals) return EXIT_DONE;
    if ((c->bit == COMMAND_PREPARE || c->bit == COMMAND_TUNE) && !o->out)
        return EXIT_DONE; /* the command reports what is missing */
    if (c->bit == COMMAND_QUANTIZE && o->n_positionals == 1) return EXIT_DONE;
    if (o->positionals[0] && !fetch_is_url(o->positionals[0])) return EXIT_DONE;
    o->model = o->positionals[0];
    if (model_source_keep(o, &o->positionals[0], &err) == PI_OK) return EXIT_DONE;
    return cli_failed(&err);
}

/* Conversation flags turn `run` into `chat`. */
static bool wants_chat(const cli_options *o) {
    return options_typed(o, &o->conversation) || options_typed(o, &o->single_turn) ||
           options_typed(o, &o->system_prompt) || options_typed(o, &o->system_prompt_file) ||
           options_typed(o, &o->chat_template) || options_typed(o, &o->chat_template_file) ||
           options_typed(o, &o->chat_template_kwargs);
}

/* Parses the options of a command. False: the program ends with *status. */
static bool parse(const command *c, int argc, char *const *argv, cli_options *o, int *status) {
    pi_error err = {.status = PI_OK};
    parse_result result = options_parse(o, c->bit, c->name, c->max_positionals, argc, argv, &err);
    *status = result == PARSE_WRONG ? cli_wrong("%s", err.message) : EXIT_DONE;
    if (result == PARSE_HELP) help_command(stdout, c);
    return result == PARSE_OK;
}

/* Parses the options and applies them: the command (some options turn *c into chat or inspect), the
 * model, colors, CPU affinity. False: the program ends with *status. */
static bool read_options(const command **c, int argc, char *const *argv, cli_options *o,
                         int *status) {
    pi_error err = {.status = PI_OK};
    if (!parse(*c, argc, argv, o, status)) return false;
    if ((*c)->bit == COMMAND_RUN && wants_chat(o)) {
        cli_say(o, "run: conversation mode: starting chat");
        *c = command_find("chat");
        if (!parse(*c, argc, argv, o, status)) return false;
    }
    if (o->color != TERMINAL_COLOR_AUTO) terminal_set((terminal_color)o->color, options_columns());
    if (o->idle[0]) cli_say(o, "powerinfer: no effect here: %s (see docs/llama-flags.md)", o->idle);
    *status = take_model(*c, o);
    if (*status == EXIT_DONE && cli_overrides_check(o, &err) != PI_OK)
        *status = cli_wrong("%s", err.message);
    if (*status != EXIT_DONE) return false;
    cli_log_start(o);
    if (affinity_apply(o, &err) != PI_OK) *status = cli_failed(&err);
    if (o->devices) *c = command_find("inspect"); /* --list-devices */
    return *status == EXIT_DONE;
}

static bool is_word(const char *word, const char *a, const char *b, const char *c) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

/* Whether the only argument is a model file: it was dragged onto the program's icon. */
static bool is_dropped(int argc, char *const *argv) {
    return argc == 2 && ends_with(argv[1], ".gguf") && file_exists(argv[1]);
}

/* Finds the command of the command line; NULL: the program ends with *status. */
static const command *find_command(int argc, char *const *argv, int *status) {
    *status = EXIT_DONE;
    if (argc < 2) {
        help_program(stderr, commands, N_COMMANDS);
        *status = EXIT_USAGE;
        return NULL;
    }
    const char *word = argv[1];
    if (is_word(word, "--version", "-V", "version")) {
        printf("powerinfer %s\n", pi_version());
        return NULL;
    }
    bool help = is_word(word, "--help", "-h", "help");
    if (help && argc == 2) {
        help_program(stdout, commands, N_COMMANDS);
        return NULL;
    }
    const char *name = help ? argv[2] : word;
    const command *c = command_find(name);
    if (!c && is_dropped(argc, argv)) return command_find("chat");
    if (!c) *status = command_unknown(name);
    if (c && help) help_command(stdout, c);
    return help ? NULL : c;
}

/* The user could not read the message before the window closes. */
static void wait_for_enter(void) {
    fputs("Press Enter to close this window.", stderr);
    for (int c = 0; c != '\n' && c != EOF;) c = os_stdin_get();
}

int main(int argc, char **argv) {
    int status;
    cli_options o;
    signals_prepare();
    argv = os_arguments(&argc, argv);
    terminal_use_locale();
    terminal_set(options_no_color() ? TERMINAL_COLOR_OFF : TERMINAL_COLOR_AUTO, options_columns());
    const command *c = find_command(argc, argv, &status);
    int first = c && is_dropped(argc, argv) ? 1 : 2;
    if (c && read_options(&c, argc - first, argv + first, &o, &status)) {
        model_sources sources = {.n = 0};
        o.sources = &sources;
        bool works = false;
        status = fetch_input(c, &o);
        if (status == EXIT_DONE) status = cluster_join(c, &o, &works);
        if (status == EXIT_DONE) status = works ? cluster_work(&o) : c->run(&o);
        cluster_leave(&o, status);
        model_sources_free(&sources);
    }
    if (status == EXIT_DONE) return cli_finish_output();
    fflush(stdout); /* a message about the first failure has been printed */
    /* Explorer starts programs without arguments, or with the file that was dragged onto it. */
    if (argc <= 2 && os_terminal_closes()) wait_for_enter();
    return status;
}
