/* cmd_synth.c: a model of a named shape with random weights, for benchmarks and tests. */
#include "cli.h"
#include "terminal.h"

int cmd_synth(const cli_options *o) {
    if (!o->out) return cli_wrong("no output: synth: name a file with -o");
    terminal_progress progress;
    pi_error err = {.status = PI_OK};
    pi_synth_options options = cli_synth_options(o);
    options.seed = (uint64_t)o->seed;
    options.bundle = o->bundle;
    options.n_threads = (int32_t)o->threads;
    options.progress = terminal_progress_step;
    options.user = &progress;
    terminal_progress_begin(&progress, o->quiet);
    pi_status status = pi_synth(o->out, &options, &err);
    terminal_progress_end(&progress);
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
