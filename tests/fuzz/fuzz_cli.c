/* fuzz_cli.c: runs any bytes as a command line of the program's own main(). The linker replaces
 * functions that read, write or compute (--wrap, see CMakeLists.txt) by functions that refuse, so
 * that only the handling of the command line remains: the result is a help text, one error message
 * about the command line, or the refusal.
 *
 * An input is words separated by newlines. A byte 1 is a newline within a word. Words
 * POWERINFER_NAME=VALUE at the beginning go into the environment. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_inside.h"
#include "error.h"
#include "fetch.h"
#include "fuzz_target.h"
#include "options.h"
#include "powerinfer.h"
#include "powerinfer_tools.h"

enum { MAX_WORDS = 300, MAX_BYTES = 16384, NEWLINE = 1, MAX_VARIABLES = 8, NAME_ROOM = 64 };

static pi_status refuse(pi_error *err) {
    return error_set(err, PI_ERR_IO, "not done: sandbox: nothing to do");
}

/* The linker calls these instead of the real functions. */
pi_status __wrap_file_read_stream(const char *path, size_t max, char **out, size_t *n,
                                  pi_error *err);
pi_status __wrap_pi_model_open(const char *path, const pi_model_options *options, pi_model **out,
                               pi_error *err);
pi_status __wrap_pi_convert(const char *dir, const char *out, const pi_convert_options *options,
                            pi_error *err);
pi_status __wrap_pi_quantize(const char *in, const char *out, const pi_quantize_options *options,
                             pi_quantize_result *result, pi_error *err);
pi_status __wrap_pi_imatrix(const char *model, const char *text, const char *out,
                            const pi_imatrix_options *options, pi_error *err);
pi_status __wrap_pi_synth(const char *out, const pi_synth_options *options, pi_error *err);
pi_status __wrap_pi_inspect(const char *path, const pi_inspect_options *options, FILE *out,
                            pi_error *err);
pi_status __wrap_pi_place(const char *path, const pi_place_options *options, FILE *out,
                          pi_error *err);
pi_status __wrap_pi_template(const char *request, size_t n, const pi_template_options *options,
                             FILE *out, pi_error *err);
int __wrap_isatty(int fd);
pi_status __wrap_fetch_hub(const fetch_options *o, const char *repo, const char *file, char *path,
                           size_t n_path, pi_error *err);
pi_status __wrap_fetch_url(const fetch_options *o, const char *url, char *path, size_t n_path,
                           pi_error *err);
int __wrap_mkdir(const char *path, mode_t mode);

pi_status __wrap_fetch_hub(const fetch_options *o, const char *repo, const char *file, char *path,
                           size_t n_path, pi_error *err) {
    (void)o, (void)repo, (void)file, (void)path, (void)n_path;
    return refuse(err);
}
pi_status __wrap_fetch_url(const fetch_options *o, const char *url, char *path, size_t n_path,
                           pi_error *err) {
    (void)o, (void)url, (void)path, (void)n_path;
    return refuse(err);
}
/* `completion all` creates its first folder. */
int __wrap_mkdir(const char *path, mode_t mode) {
    (void)path, (void)mode;
    errno = EACCES;
    return -1;
}
pi_status __wrap_file_read_stream(const char *path, size_t max, char **out, size_t *n,
                                  pi_error *err) {
    (void)path, (void)max;
    *out = NULL;
    *n = 0;
    return refuse(err);
}
pi_status __wrap_pi_model_open(const char *path, const pi_model_options *options, pi_model **out,
                               pi_error *err) {
    (void)path, (void)options;
    *out = NULL;
    return refuse(err);
}
pi_status __wrap_pi_convert(const char *dir, const char *out, const pi_convert_options *options,
                            pi_error *err) {
    (void)dir, (void)out, (void)options;
    return refuse(err);
}
pi_status __wrap_pi_quantize(const char *in, const char *out, const pi_quantize_options *options,
                             pi_quantize_result *result, pi_error *err) {
    (void)in, (void)out, (void)result;
    /* Options that the command line parsed into allocations. */
    for (size_t i = 0; i < options->n_tensor_types; i++)
        if (!options->tensor_types[i].pattern[0] || !options->tensor_types[i].type) abort();
    return refuse(err);
}
pi_status __wrap_pi_imatrix(const char *model, const char *text, const char *out,
                            const pi_imatrix_options *options, pi_error *err) {
    (void)model, (void)text, (void)out, (void)options;
    return refuse(err);
}
pi_status __wrap_pi_synth(const char *out, const pi_synth_options *options, pi_error *err) {
    (void)out, (void)options;
    return refuse(err);
}
pi_status __wrap_pi_inspect(const char *path, const pi_inspect_options *options, FILE *out,
                            pi_error *err) {
    (void)path, (void)options, (void)out;
    return refuse(err);
}
pi_status __wrap_pi_place(const char *path, const pi_place_options *options, FILE *out,
                          pi_error *err) {
    (void)path, (void)options, (void)out;
    return refuse(err);
}
pi_status __wrap_pi_template(const char *request, size_t n, const pi_template_options *options,
                             FILE *out, pi_error *err) {
    (void)request, (void)n, (void)options, (void)out;
    return refuse(err);
}
/* The answers must not depend on the fuzzer's terminal. */
int __wrap_isatty(int fd) {
    (void)fd;
    return 0;
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Sets "POWERINFER_X=value" in the environment; returns false for any other word. */
static bool set_variable(char *word, char name[NAME_ROOM]) {
    char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : 0;
    if (strncmp(word, "POWERINFER_", 11) != 0 || n == 0 || n >= NAME_ROOM) return false;
    memcpy(name, word, n);
    name[n] = 0;
    return setenv(name, equals + 1, 1) == 0;
}

/* True for one error line, possibly after the line with which `run` announces that it starts
 * `chat`. */
static bool is_message(const char *err) {
    static const char chat[] = "run: conversation mode: starting chat\n";
    return cli_is_message(strncmp(err, chat, strlen(chat)) == 0 ? err + strlen(chat) : err);
}

static void check(const cli_result *r, int n_words) {
    switch (r->status) {
    case 0: /* help, version, devices */
        if (r->n_out == 0 || r->n_err != 0) abort();
        break;
    case 1: /* refused, or no model was named and the fuzzer's folder has no bundled model */
        if (r->n_out != 0 || !is_message(r->err)) abort();
        break;
    case 2: /* without any words: the full usage */
        if (r->n_out != 0 || (n_words > 0 && !is_message(r->err))) abort();
        break;
    default:
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static char bytes[MAX_BYTES + 1], names[MAX_VARIABLES][NAME_ROOM];
    const char *words[MAX_WORDS];
    int n_words = 0, n_variables = 0;
    if (n > MAX_BYTES) return 0;
    if (n) memcpy(bytes, data, n);
    bytes[n] = 0;
    for (size_t at = 0; at < n && n_words < MAX_WORDS;) {
        char *word = bytes + at, *end = memchr(word, '\n', n - at);
        if (end) *end = 0;
        at += strlen(word) + 1; /* a NUL also ends a word: no argument can hold one */
        for (char *c = word; *c; c++)
            if (*c == NEWLINE) *c = '\n';
        if (n_words == 0 && n_variables < MAX_VARIABLES && set_variable(word, names[n_variables])) {
            n_variables++;
            continue;
        }
        words[n_words++] = word;
    }
    cli_result r = cli_inside(n_words, words);
    check(&r, n_words);
    cli_result_free(&r);
    for (int i = 0; i < n_variables; i++) unsetenv(names[i]);
    return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

typedef struct seed_text {
    char *data;
    size_t n, max;
} seed_text;

static void add_word(seed_text *o, const char *word) {
    int n = snprintf(o->data + o->n, o->max - o->n, "%s\n", word);
    if (n > 0 && (size_t)n < o->max - o->n) o->n += (size_t)n;
}

/* Adds every option of a command with a valid value. */
static void add_options(seed_text *o, uint32_t command) {
    for (size_t i = 0; i < option_count; i++) {
        const option *row = &option_table[i];
        char word[NAME_ROOM];
        if (!(row->commands & command)) continue;
        snprintf(word, sizeof word, "--%s", row->long_name);
        add_word(o, word);
        if (row->type == OPTION_FLAG) continue;
        if (row->type == OPTION_CHOICE) {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(row->choices, "|"), row->choices);
            add_word(o, word);
        } else if (row->type == OPTION_TEXTS && strcmp(row->long_name, "logit-bias") == 0) {
            add_word(o, "15+1.5");
        } else if (row->type == OPTION_TEXTS && strcmp(row->long_name, "tensor-type") == 0) {
            add_word(o, "ffn_down=q6_k");
        } else {
            add_word(o, row->standard ? row->standard : "word");
        }
    }
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const struct {
        const char *name;
        uint32_t bit;
        const char *words;
    } commands[] = {
        {"run", COMMAND_RUN, "-n\n5"},
        {"eval", COMMAND_EVAL, "-b\n1"},
        {"tokenize", COMMAND_TOKENIZE, "--ids"},
        {"perplexity", COMMAND_PERPLEXITY, "-c\n256"},
        {"bench", COMMAND_BENCH, "-p\n512,128\n-d\n0,2048"},
        {"chat", COMMAND_CHAT, "-p\ntext\n-sys\nbrief\n--chat-template\nchatml"},
        {"inspect", COMMAND_INSPECT, "file.gguf"},
        {"convert", COMMAND_CONVERT, "folder\n-o\nfile.gguf"},
        {"quantize", COMMAND_QUANTIZE, "in.gguf\nout.gguf\nQ4_K_M\n4"},
        {"imatrix", COMMAND_IMATRIX, "-f\ntext"},
        {"synth", COMMAND_SYNTH, "-o\nfile\n--skew\n0.26:0.8"},
        {"place", COMMAND_PLACE, "--shape\ntiny\n--vram-budget\n8"},
    };
    static const char *const others[] = {
        "--version\n",
        "--help\n",
        "help\nrun\n",
        "run\n--help\n",
        "serve\n",
        "rum\n",
        "run\n--tmep\n1\n",
        "run\n-n\n1x\n",
        "run\n--top-p=1.5\n",
        "POWERINFER_TEMP=hot\nrun\n-p\ntext\n",
        "POWERINFER_REVERSE_PROMPT=a\nrun\n-r\n\n-p\nx\n",
        "inspect\n--devices\n--json\n",
        "inspect\na\n-m\nb\n",
        "tokenize\n--pre\nllama-bpe\n--\n-x\n",
        "run\n--two\1lines\n",
    };
    enum { N_COMMANDS = sizeof commands / sizeof *commands };
    seed_text o = {.data = (char *)data, .max = max};
    if (i < N_COMMANDS) {
        add_word(&o, commands[i].name);
        add_word(&o, commands[i].words);
        add_options(&o, commands[i].bit);
    } else if (i < N_COMMANDS + sizeof others / sizeof *others) {
        const char *text = others[i - N_COMMANDS];
        if (strlen(text) > max) return 0;
        memcpy(data, text, o.n = strlen(text));
    }
    return o.n;
}
