/* cmd_imatrix.c: computes an importance matrix from a model and a text. */

#include "cli.h"
#include "os_file.h"
#include "terminal.h"

int cmd_imatrix(const cli_options *o) {
    if (!o->file) return cli_wrong("no text: imatrix: name a file with -f");
    char model[OS_PATH_MAX];
    terminal_progress progress;
    pi_error err = {.status = PI_OK};
    if (cli_model_path(o, model, sizeof model, &err) != PI_OK) return cli_failed(&err);
    pi_imatrix_options options = pi_imatrix_default_options();
    options.chunk = (int32_t)o->ctx_size;
    options.n_chunks = o->chunks > 0 ? (int32_t)o->chunks : 0;
    options.process_output = o->process_output;
    options.n_threads = (int32_t)o->threads;
    options.progress = terminal_progress_step;
    options.message = terminal_progress_message;
    options.user = &progress;
    terminal_progress_begin(&progress, o->quiet);
    pi_status status = pi_imatrix(model, o->file, o->out, &options, &err);
    terminal_progress_end(&progress);
    if (status != PI_OK) return cli_failed(&err);
    cli_say_written(o, o->out, "importance matrix for quantize --imatrix");
    return EXIT_DONE;
}
