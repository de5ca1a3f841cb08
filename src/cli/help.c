/* help.c: --help, generated from the tables of commands and options. */
#include <string.h>

#include "cli.h"
#include "terminal.h"

enum {
    WIDTH = 96,        /* maximum columns; lines of the sources are a little longer */
    NARROW = 66,       /* with fewer columns, descriptions begin on the next line */
    HELP_COLUMN = 30,  /* where descriptions begin */
    HELP_INDENT = 6,   /* where they begin on a narrow terminal */
    TITLE_COLUMN = 13, /* where titles of commands begin */
    LEFT_MAX = 160     /* bytes of "-n, --predict, --n-predict N" */
};

static int width_of(FILE *out) {
    int columns = terminal_columns(out, WIDTH);
    return columns < WIDTH ? columns : WIDTH;
}

/* Prints `text`, wrapped at words, from column `at` on; further lines are indented to `indent`. */
static void print_wrapped(FILE *out, const char *text, int at, int indent) {
    const int width = width_of(out);
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > indent && at + 1 + length > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_heading(FILE *out, const char *text) {
    fprintf(out, "\n%s", terminal_style(out, TERMINAL_BOLD));
    print_wrapped(out, text, 0, 0);
    fputs(terminal_style(out, TERMINAL_PLAIN), out);
}

void help_option_text(const option *o, char *buf, size_t n_buf) {
    size_t n = (size_t)snprintf(buf, n_buf, "%s", o->help);
    const char *sign = " (";
    for (const char *c = o->choices ? o->choices : ""; *c && n < n_buf;) {
        int length = (int)strcspn(c, "|");
        n += (size_t)snprintf(buf + n, n_buf - n, "%s%.*s", sign, length, c);
        sign = ", ";
        c += length + (c[length] == '|');
    }
    if (o->standard && n < n_buf)
        n += (size_t)snprintf(buf + n, n_buf - n, "%sdefault: %s", o->choices ? "; " : " (",
                              o->standard);
    if ((o->choices || o->standard) && n < n_buf) snprintf(buf + n, n_buf - n, ")");
}

static void print_option(FILE *out, const option *o) {
    char left[LEFT_MAX], right[HELP_TEXT_MAX];
    int n = snprintf(left, sizeof left, "  %s%s%s--%s", o->short_name ? "-" : "    ",
                     o->short_name ? o->short_name : "", o->short_name ? ", " : "", o->long_name);
    for (int a = 0; a < OPTION_MAX_ALIASES && o->aliases[a]; a++) {
        n += snprintf(left + n, sizeof left - (size_t)n, ", %s", o->aliases[a]);
    }
    if (o->argument) n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->argument);
    help_option_text(o, right, sizeof right);
    if (width_of(out) < NARROW) {
        fputs("  ", out);
        print_wrapped(out, left + strspn(left, " "), 2, HELP_INDENT - 2);
        fprintf(out, "%*s", HELP_INDENT, "");
        print_wrapped(out, right, HELP_INDENT, HELP_INDENT);
        return;
    }
    fputs(left, out);
    if (n + 2 > HELP_COLUMN) {
        fputc('\n', out);
        n = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - n, "");
    print_wrapped(out, right, HELP_COLUMN, HELP_COLUMN);
}

const char *help_group_title(uint32_t bit, option_group group) {
    static const char *const titles[GROUP_COUNT] = {
        [GROUP_COMMAND] = "Options",
        [GROUP_MODEL] = "Model",
        [GROUP_CONTEXT] = "Context and KV cache",
        [GROUP_CPU] = "CPU",
        [GROUP_ENGINE] = "GPU and memory",
        [GROUP_SPARSE] = "Sparsity",
        [GROUP_DRAFT] = "Speculative decoding",
        [GROUP_SAMPLING] = "Sampling",
        [GROUP_GRAMMAR] = "Grammars",
        [GROUP_COMMON] = "Output",
    };
    if (group == GROUP_COMMAND && bit == COMMAND_SERVE) return "Server";
    if (group == GROUP_COMMAND && bit & (COMMAND_RUN | COMMAND_CHAT)) return "Text";
    return titles[group];
}

static void print_group(FILE *out, uint32_t bit, option_group group) {
    bool headed = false;
    for (size_t i = 0; i < option_count; i++) {
        const option *o = &option_table[i];
        if (!(o->commands & bit) || o->group != group) continue;
        if (!headed) print_heading(out, help_group_title(bit, group));
        headed = true;
        print_option(out, o);
    }
}

const char *const *help_examples(uint32_t bit) {
    static const struct {
        uint32_t bit; /* 0: the program itself */
        const char *lines[HELP_EXAMPLES];
    } examples[] = {
        {0, {"run -hf Qwen/Qwen3-4B-GGUF -p \"Once upon a time\" -n 100", "chat -m model.gguf"}},
        {COMMAND_RUN,
         {"run -m model.gguf -p \"Once upon a time\" -n 100",
          "run -hf Qwen/Qwen3-4B-GGUF -f prompt.txt --temp 0"}},
        {COMMAND_CHAT,
         {"chat -hf Qwen/Qwen3-4B-GGUF", "chat -m model.gguf -sys \"Answer in one sentence.\""}},
        {COMMAND_EVAL,
         {"eval -m model.gguf --tokens ids.txt --logits-out logits.f32",
          "eval -m model.gguf --tokens - --logits-out logits.f32 --batch 1"}},
        {COMMAND_EMBED,
         {"embed -m model.gguf -f texts.txt --json",
          "embed -m model.gguf -p \"first text\\nsecond text\""}},
        {COMMAND_TOKENIZE,
         {"tokenize -m model.gguf --ids -p \"Hello\"",
          "tokenize -m model.gguf --detok -p \"9707 11\""}},
        {COMMAND_TEMPLATE,
         {"template -m model.gguf -f request.json", "template --chat-template list"}},
        {COMMAND_SERVE,
         {"serve -m model.gguf --port 8080", "serve -hf Qwen/Qwen3-4B-GGUF -np 8 --api-key KEY"}},
        {COMMAND_PERPLEXITY,
         {"perplexity -m model.gguf -f text.txt",
          "perplexity -m model.gguf -f text.txt --llama-windows"}},
        {COMMAND_BENCH,
         {"bench -m model.gguf -p 512 -n 128", "bench -m a.gguf,b.gguf -t 4,8 -o csv"}},
        {COMMAND_INSPECT, {"inspect model.gguf", "inspect --devices"}},
        {COMMAND_PREPARE,
         {"prepare in.gguf -o out.powerinfer.gguf",
          "prepare --undo out.powerinfer.gguf -o in.gguf"}},
        {COMMAND_TUNE,
         {"tune model.gguf -o model.tuned.gguf",
          "tune model.gguf -o model.tuned.gguf --max-loss 1 -c 16384"}},
        {COMMAND_CONVERT,
         {"convert hf-folder -o model.gguf --type q8_0",
          "convert adapter-folder --base hf-folder -o adapter.gguf"}},
        {COMMAND_QUANTIZE,
         {"quantize in.gguf out.gguf Q4_K_M",
          "quantize --imatrix imatrix.gguf in.gguf out.gguf IQ3_XXS"}},
        {COMMAND_IMATRIX,
         {"imatrix -m model.gguf -f text.txt", "imatrix -m model.gguf -f text.txt --chunks 100"}},
        {COMMAND_PLACE,
         {"place -m model.gguf --vram-budget 8G",
          "place --shape llama-7b --profile rtx-4090-ddr5 --vram-budget 4G"}},
        {COMMAND_SYNTH,
         {"synth -o big.gguf --shape bamboo-7b --density 0.1", "synth -o tiny.gguf --type q8_0"}},
        {COMMAND_COMPLETION,
         {"completion bash >~/.local/share/bash-completion/completions/powerinfer",
          "completion all ~/.local/share"}},
    };
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++)
        if (examples[i].bit == bit) return examples[i].lines;
    return NULL;
}

static void print_examples(FILE *out, uint32_t bit) {
    const char *const *lines = help_examples(bit);
    for (int i = 0; lines && i < HELP_EXAMPLES; i++) {
        fputs("  powerinfer", out);
        print_wrapped(out, lines[i], 12, 6);
    }
    fputc('\n', out);
}

/* The first names of the options that are accepted for compatibility with llama.cpp. */
static void print_compat(FILE *out, uint32_t bit) {
    char list[2048] = "";
    size_t n = 0;
    for (size_t i = 0; i < compat_count; i++) {
        const option_compat *h = &compat_table[i];
        if (!(h->commands & bit) || !h->accepted || n + LEFT_MAX > sizeof list) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", n ? " " : "",
                              (int)strcspn(h->names, " "), h->names);
    }
    if (n == 0) return;
    print_heading(out, "Accepted for compatibility with llama.cpp, without effect");
    fputs("  ", out);
    print_wrapped(out, list, 2, 2);
}

void help_command(FILE *out, const command *c) {
    print_examples(out, c->bit);
    fputs("usage: powerinfer", out);
    print_wrapped(out, c->usage, 17, 7);
    fputc('\n', out);
    print_wrapped(out, c->title, 0, 0);
    if (c->detail) {
        fputc('\n', out);
        print_wrapped(out, c->detail, 0, 0);
    }
    for (int group = 0; group < GROUP_COUNT; group++) print_group(out, c->bit, (option_group)group);
    print_compat(out, c->bit);
    fputc('\n', out);
    print_wrapped(
        out,
        "Every option can also be set in the environment: POWERINFER_ and its long name "
        "in capitals with underscores, such as POWERINFER_MODEL. Variables of llama.cpp's "
        "server, LLAMA_ARG_*, are also read.",
        0, 0);
}

void help_program(FILE *out, const command *commands, size_t n) {
    print_examples(out, 0);
    fprintf(out, "powerinfer %s:", pi_version());
    print_wrapped(out, "run large language models on ordinary machines",
                  (int)strlen(pi_version()) + 12, 0);
    fprintf(out, "\n"
                 "usage: powerinfer COMMAND [options]\n"
                 "       powerinfer COMMAND --help\n"
                 "       powerinfer --version\n");
    print_heading(out, "Commands");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "  %-10s ", commands[i].name);
        print_wrapped(out, commands[i].title, TITLE_COLUMN, TITLE_COLUMN);
    }
    fputc('\n', out);
    print_wrapped(out,
                  "Results go to standard output, progress and timings to standard error. Exit "
                  "status: 0 done, 1 the work failed, 2 the command line was wrong.",
                  0, 0);
}
