/* cli_message.c: messages on standard error, and the end of standard output. */
#include "cli_message.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "log.h"
#include "os_file.h"
#include "os_terminal.h"
#include "printable.h"
#include "terminal.h"
#include "word_wrap.h"

enum { LINE_ROOM = 4096 }; /* bytes of a message */

/* Prints a line on standard error, with unprintable characters escaped; on a terminal wrapped at
 * words. */
static void put_line(const char *begin, const char *line) {
    char shown[4 * LINE_ROOM + 1];
    size_t n = printable_copy(shown, sizeof shown, line, strlen(line));
    if (!os_is_terminal(stderr)) { /* in one piece, as other programs may write there */
        fprintf(stderr, "%s%s\n", begin, shown);
        return;
    }
    word_wrap w = {.out = stderr, .terminal = true};
    os_stream_lock(stderr);
    word_wrap_put(&w, begin, strlen(begin));
    word_wrap_put(&w, shown, n);
    word_wrap_put(&w, "\n", 1);
    os_stream_unlock(stderr);
}

/* The library's messages name fields of its options structs; the program replaces them with its
 * options. The first match counts. */
static const struct {
    const char *library, *program;
} option_words[] = {
    {"set allow_requantize", "use --allow-requantize"},
    {"with bundles = PI_BUNDLES_NONE", "with powerinfer prepare --bundle none"},
    {"set base to its folder", "name its folder with --base"},
    {"set a larger max_loss", "allow a larger one with --max-loss"},
    {"max_loss allows that; a higher recall", "--max-loss allows that; a higher --recall"},
    {"set predictor to none", "use --predictor none"},
    {"open its model and set adapters", "name its model with -m, and the adapter with --lora"},
    {"give a calibration text to prepare", "use --calibration FILE to prepare"},
    {"make one with imatrix, or", "make one with powerinfer imatrix for --imatrix, or"},
    {"use a smaller context or batch", "use a smaller context (-c) or batch (-b)"},
    {"use a smaller context", "use a smaller context (-c)"},
    {"use a larger context", "use a larger context (-c)"},
    {"use a smaller batch", "use a smaller batch (-b)"},
    {"use a smaller budget", "use a smaller --vram-budget"},
    {"use a budget of at least", "use a --vram-budget of at least"},
    {"leave out the memory budget", "leave out --ram-budget"},
};

void cli_name_options(const char *message, char *buf, size_t n_buf) {
    for (size_t i = 0; i < sizeof option_words / sizeof option_words[0]; i++) {
        const char *at = strstr(message, option_words[i].library);
        if (!at) continue;
        snprintf(buf, n_buf, "%.*s%s%s", (int)(at - message), message, option_words[i].program,
                 at + strlen(option_words[i].library));
        return;
    }
    snprintf(buf, n_buf, "%s", message);
}

int cli_failed(const pi_error *err) {
    if (err->status == PI_ERR_IO && ferror(stdout) && os_stdout_is_broken()) return EXIT_WORK;
    char message[CLI_MESSAGE_ROOM];
    cli_name_options(err->message, message, sizeof message);
    put_line("powerinfer: ", message);
    return err->status == PI_ERR_ARG ? EXIT_USAGE : EXIT_WORK;
}

/* A pi_error stores the message, which keeps typed text on one line. */
int cli_wrong(const char *format, ...) {
    char text[LINE_ROOM];
    pi_error err;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(&err, PI_ERR_ARG, "%s", text);
    put_line("powerinfer: ", err.message);
    return EXIT_USAGE;
}

void cli_say(const cli_options *o, const char *format, ...) {
    char line[LINE_ROOM];
    if (o->quiet) return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    put_line("", line);
}

void cli_say_written(const cli_options *o, const char *path, const char *what) {
    os_info info;
    const double kib = 1024, mib = 1024 * kib;
    bool is_file = os_path_info(path, &info) == 0 && info.kind == OS_REGULAR;
    double size = is_file ? (double)info.size : 0;
    if (is_file && size < mib / 10)
        cli_say(o, "wrote %s: %.1f KiB, %s", path, size / kib, what);
    else if (is_file)
        cli_say(o, "wrote %s: %.2f MiB, %s", path, size / mib, what);
    else
        cli_say(o, "wrote %s: %s", path, what);
}

void cli_say_no_template(const cli_options *o) {
    cli_say(o, "the model has no chat template: answers continue the text; choose a template with "
               "--chat-template NAME (chatml, llama3, ...) or --chat-template-file FILE");
}

/* user: the terminal_progress of show_progress, whose bar the line ends. */
static void print_log_line(void *user, log_level level, const char *line) {
    terminal_progress_end(user);
    put_line(level == LOG_LEVEL_WARN ? "warning: " : "", line);
}

static void show_progress(void *user, const char *stage, double fraction) {
    terminal_progress_step(user, stage, fraction);
    if (fraction >= 1) terminal_progress_end(user);
}

void cli_log_start(const cli_options *o) {
    static terminal_progress bar;
    if (o->quiet) return;
    terminal_progress_begin(&bar, false);
    log_set_sink(print_log_line, &bar, o->verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN);
    /* under mpirun standard error is a pipe: progress in lines */
    if (bar.is_terminal || options_launched_by_mpi()) log_set_progress(show_progress, &bar);
}

int cli_output_failed(int errno_value) {
    if (errno_value == EPIPE || os_stdout_is_broken()) return EXIT_WORK;
    cli_wrong("writing failed: standard output: %s",
              errno_value ? strerror(errno_value) : "redirect it to a place that can be written");
    return EXIT_WORK;
}

int cli_finish_output(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_DONE;
    return cli_output_failed(errno);
}
