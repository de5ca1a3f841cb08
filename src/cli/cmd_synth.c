/* cmd_synth.c: writes a model of a named shape with random weights, for benchmarks and tests. */
#include "cli.h"
#include "terminal.h"

int cmd_synth(const cli_options *o) {
    if (!o->out) return cli_wrong("no output: synth: name a file with -o");
    terminal_progress progress;
    pi_error err = {.status = PI_OK};
    pi_synth_options options = cli_synth_options(o);
    options.seed = (uint64_t)o->seed;
    options.n_threads = (int32_t)o->threads;
    options.progress = terminal_progress_step;
    options.user = &progress;
    terminal_progress_begin(&progress, o->quiet);
    pi_status status = pi_synth(o->out, &options, &err);
    terminal_progress_end(&progress);
    if (status != PI_OK) return cli_failed(&err);
    char what[128];
    snprintf(what, sizeof what, "shape %.40s, %.40s%s", o->shape, o->type,
             o->plain          ? ""
             : o->synth_bundle ? ", prepared, bundled"
                               : ", prepared");
    cli_say_written(o, o->out, what);
    return EXIT_DONE;
}
