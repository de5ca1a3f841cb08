/* cli_message.h: exit statuses, messages, and the end of standard output, for all commands. */
#ifndef CLI_CLI_MESSAGE_H
#define CLI_CLI_MESSAGE_H

#include "error.h"
#include "options.h"
#include "powerinfer.h"

enum {
    EXIT_DONE = 0,
    EXIT_WORK = 1,    /* the work failed */
    EXIT_USAGE = 2,   /* the command line was wrong */
    EXIT_SIGNAL = 128 /* plus the number of the signal that ended the work, as shells count */
};

/* Copies a message of the library and replaces the fields that it names with options. */
enum { CLI_MESSAGE_ROOM = PI_ERROR_TEXT_MAX + 128 };
void cli_name_options(const char *message, char *buf, size_t n_buf);

/* Print "powerinfer: message" on standard error and return the exit status of the command.
 * cli_failed is silent when standard output failed because its reader has gone. */
int cli_failed(const pi_error *err); /* EXIT_USAGE for PI_ERR_ARG, which comes from the command
                                      * line; otherwise EXIT_WORK */
int cli_wrong(const char *format, ...) BASE_PRINTF(1, 2); /* EXIT_USAGE */
/* Prints a line on standard error, unless -q. */
void cli_say(const cli_options *o, const char *format, ...) BASE_PRINTF(2, 3);
/* Prints "wrote FILE: 12.34 MiB, WHAT" on standard error, unless -q. */
void cli_say_written(const cli_options *o, const char *path, const char *what);
/* Prints that the model has no chat template and none was chosen. */
void cli_say_no_template(const cli_options *o);
/* Sends the library's log to standard error: warnings, with -v everything, with -q nothing. */
void cli_log_start(const cli_options *o);

/* Flushes standard output. EXIT_DONE, or EXIT_WORK after a message (silent when the reader has
 * gone, as with `| head`). */
int cli_finish_output(void);
/* Prints that writing standard output failed with `errno_value`, unless the reader has gone. */
int cli_output_failed(int errno_value);

#endif
