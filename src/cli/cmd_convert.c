/* cmd_convert.c: converts a Hugging Face folder to GGUF. */
#include "cli.h"
#include "file.h"
#include "terminal.h"

int cmd_convert(const cli_options *o) {
    if (!o->n_positionals)
        return cli_wrong("no folder: convert: name one, as in convert DIR -o FILE");
    if (!o->out) return cli_wrong("no output: convert: name a file with -o");
    terminal_progress progress;
    pi_error err = {.status = PI_OK};
    pi_convert_options options = pi_convert_default_options();
    options.type = o->type;
    options.base = o->base;
    options.predictors = o->predictors;
    options.n_threads = (int32_t)o->threads;
    options.progress = terminal_progress_step;
    options.message = terminal_progress_message;
    options.user = &progress;
    terminal_progress_begin(&progress, o->quiet);
    pi_status status = pi_convert(o->positionals[0], o->out, &options, &err);
    terminal_progress_end(&progress);
    if (status != PI_OK) return cli_failed(&err);
    char path[OPTION_PATH_BYTES];
    bool adapter = file_join(path, sizeof path, o->positionals[0], "adapter_config.json") &&
                   file_exists(path);
    cli_say_written(o, o->out, adapter ? "adapter" : o->type);
    return EXIT_DONE;
}
