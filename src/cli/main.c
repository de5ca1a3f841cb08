/* main.c: the table of commands and the way to them. Each command is a file cmd_NAME.c that turns
 * options into calls of the public headers; this program has no other way into the library. */
#include <string.h>

#include "cli.h"
#include "signals.h"

static const command commands[] = {
    {"run", COMMAND_RUN, "run [-m FILE] [-p TEXT | -f FILE] [options]",
     "complete a prompt: streams the text, then timings",
     "Without -p and -f the prompt is read from standard input. Only the completion goes to "
     "standard output. Ctrl-C ends the text; a second one ends the program.",
     0, cmd_run},
    {"eval", COMMAND_EVAL, "eval [-m FILE] --tokens FILE --logits-out FILE [options]",
     "forward pass over given token ids, writes logits",
     "No BOS is added. --batch 1 feeds the tokens one by one.", 0, cmd_eval},
    {"tokenize", COMMAND_TOKENIZE, "tokenize [-m FILE] [--ids] [-p TEXT | --stdin] [options]",
     "text to token ids, ids to text",
     "No BOS or EOS is added, and control tokens in the text are plain text, unless asked for. A "
     "vocabulary-only file is enough.",
     0, cmd_tokenize},
    {"template", COMMAND_TEMPLATE,
     "template [-m FILE | --chat-template NAME | --chat-template-file FILE] -f REQUEST.json",
     "print the prompt that a chat template makes of a request",
     "The template sees messages, tools, documents, add_generation_prompt and enable_thinking of "
     "the "
     "request, and everything under chat_template_kwargs. The prompt is printed byte for byte. "
     "When "
     "the template refuses the request, the status is 1 and the message is the template's own.",
     0, cmd_template},
    {"perplexity", COMMAND_PERPLEXITY, "perplexity [-m FILE] -f TEXT [-c N] [options]",
     "how well a model predicts a text; distance from a base run",
     "The text is cut into windows of -c tokens; every token after a window's first is scored, and "
     "a "
     "last short window is dropped. To compare two models, write a base run with the first and "
     "read "
     "it with the second.",
     0, cmd_perplexity},
    {"bench", COMMAND_BENCH, "bench [-m FILE] [-p N,...] [-n N] [-d N,...] [-r N] [options]",
     "prompt and generation speed, bytes touched, bandwidth reached", NULL, 0, cmd_bench},
    {"inspect", COMMAND_INSPECT, "inspect [FILE | -m FILE] [options]",
     "what is in a model file, what would run, what this machine has", NULL, 1, cmd_inspect},
    {"prepare", COMMAND_PREPARE, "prepare IN -o FILE [--calibration TEXT] [options]",
     "make a model whose feed-forward neurons can be skipped",
     "IN is a GGUF file, one of the original PowerInfer, or a Hugging Face folder. Finds out on a "
     "text which neurons fire, sorts them, fits predictors (or thresholds for models whose "
     "activations are never zero), and measures what the result loses on held-out text. With "
     "--undo, an ordinary file comes out of a prepared one.",
     1, cmd_prepare},
    {"convert", COMMAND_CONVERT, "convert DIR -o FILE [--type TYPE]", "Hugging Face folder to GGUF",
     NULL, 1, cmd_convert},
    {"quantize", COMMAND_QUANTIZE, "quantize IN OUT TYPE [THREADS] [options]",
     "GGUF to GGUF of another type",
     "TYPE is a mix as llama.cpp names them, any case: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K "
     "Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL IQ4_XS MXFP4 MXFP4_MOE, "
     "or COPY. With --dry-run OUT may be left out.",
     4, cmd_quantize},
    {"imatrix", COMMAND_IMATRIX, "imatrix [-m FILE] -f TEXT [-o FILE] [options]",
     "importance matrix for quantize, from a text",
     "Feeds the text through the model in windows of -c tokens and writes how much every input "
     "column of every matrix carried.",
     0, cmd_imatrix},
    {"place", COMMAND_PLACE,
     "place [-m FILE | --shape NAME] [--vram-budget GIB] [--profile NAME] [options]",
     "what would go where for a GPU memory budget, and how fast it would be",
     "Works without a GPU: --profile describes another machine, as a JSON file or by name "
     "(rtx-2080ti-ddr4, rtx-3060-ddr4, rtx-4090-ddr5, rtx-5090-ddr5, cpu-only, ...). Speeds are "
     "predictions from bandwidths.",
     0, cmd_place},
    {"synth", COMMAND_SYNTH, "synth -o FILE [--shape NAME] [--type TYPE] [options]",
     "write a synthetic model of a named shape", NULL, 0, cmd_synth},
};

/* Promised by the documentation of the command line for later versions. */
static const char *const later[] = {"chat", "serve"};

enum {
    N_COMMANDS = sizeof commands / sizeof commands[0],
    N_LATER = sizeof later / sizeof later[0]
};

static const command *command_find(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
    }
    return NULL;
}

static int command_unknown(const char *name) {
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    for (size_t i = 0; i < N_LATER; i++) {
        if (strcmp(name, later[i]) == 0) {
            return cli_wrong("not in this version: %s: see powerinfer --help for what is", name);
        }
    }
    if (name[0] == '-') {
        return cli_wrong("no command: %.200s: name a command first, such as powerinfer run %.200s",
                         name, name);
    }
    const char *closest = options_closest(name, names, N_COMMANDS);
    if (closest) return cli_wrong("unknown command: %.200s: did you mean %s?", name, closest);
    return cli_wrong("unknown command: %.200s: see powerinfer --help", name);
}

static int run_command(const command *c, int argc, char *const *argv) {
    cli_options options;
    pi_error err = {.status = PI_OK};
    switch (options_parse(&options, c->bit, c->name, c->max_positionals, argc, argv, &err)) {
    case PARSE_HELP:
        help_command(stdout, c);
        return EXIT_DONE;
    case PARSE_WRONG:
        return cli_wrong("%s", err.message);
    case PARSE_OK:
        break;
    }
    cli_log_start(&options);
    return c->run(&options);
}

static bool is_word(const char *word, const char *a, const char *b, const char *c) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static int dispatch(int argc, char *const *argv) {
    if (argc < 2) {
        help_program(stderr, commands, N_COMMANDS);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (is_word(word, "--version", "-V", "version")) {
        printf("powerinfer %s\n", pi_version());
        return EXIT_DONE;
    }
    bool help = is_word(word, "--help", "-h", "help");
    if (help && argc == 2) {
        help_program(stdout, commands, N_COMMANDS);
        return EXIT_DONE;
    }
    const char *name = help ? argv[2] : word;
    const command *c = command_find(name);
    if (!c) return command_unknown(name);
    if (help) {
        help_command(stdout, c);
        return EXIT_DONE;
    }
    return run_command(c, argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    signals_prepare();
    int status = dispatch(argc, argv);
    if (status == EXIT_DONE) return cli_finish_output();
    fflush(stdout); /* one line about what failed first is enough */
    return status;
}
