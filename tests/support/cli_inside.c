/* cli_inside.c: see cli_inside.h. The program's main() is compiled here under another name. */
#include "cli_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <io.h>
#endif

int powerinfer_main(int argc, char **argv);

enum { MAX_WORDS = 512 };

/* Ends the process when the test itself fails, not the tested program. */
static void give_up(const char *what) {
    perror(what);
    abort();
}

#if defined(_WIN32)
/* On Windows streams are not variables, so this changes their descriptors. */
static int redirect(FILE *stream, FILE *to) {
    fflush(stream);
    int kept = _dup(_fileno(stream));
    if (kept < 0 || _dup2(_fileno(to), _fileno(stream)) != 0) give_up("dup");
    return kept;
}

static void restore(FILE *stream, int kept) {
    fflush(stream);
    clearerr(stream);
    if (_dup2(kept, _fileno(stream)) != 0 || _close(kept) != 0) give_up("dup");
}

/* The arguments are those of the call, not of the process. */
char **cli_inside_arguments(int *argc, char **argv);
char **cli_inside_arguments(int *argc, char **argv) {
    (void)argc;
    return argv;
}
#endif

cli_result cli_inside(int n, const char *const *words) {
    static char name[] = "powerinfer";
    char *argv[MAX_WORDS + 2] = {name};
    cli_result r = {0};
    if (n < 0 || n > MAX_WORDS) give_up("too many words");
    /* Arguments are writable, as the kernel passes them. */
    for (int i = 0; i < n; i++)
        if (!(argv[i + 1] = strdup(words[i]))) give_up("strdup");
    /* The libraries of a GPU keep the stdout that they find when loaded, and flush it at the end of
     * the program: it must not be the stream of one command. */
    setenv("POWERINFER_DEVICE", "cpu", 0);
    FILE *out = open_memstream(&r.out, &r.n_out), *err = open_memstream(&r.err, &r.n_err);
    if (!out || !err) give_up("open_memstream");
#if defined(_WIN32)
    int old_out = redirect(stdout, out), old_err = redirect(stderr, err);
    r.status = powerinfer_main(n + 1, argv);
    restore(stdout, old_out);
    restore(stderr, old_err);
#else
    FILE *old_out = stdout, *old_err = stderr;
    stdout = out;
    stderr = err;
    r.status = powerinfer_main(n + 1, argv);
    stdout = old_out;
    stderr = old_err;
#endif
    if (fclose(out) != 0 || fclose(err) != 0) give_up("fclose");
    for (int i = 0; i < n; i++) free(argv[i + 1]);
    return r;
}

void cli_result_free(cli_result *r) {
    free(r->out);
    free(r->err);
    *r = (cli_result){0};
}

bool cli_is_message(const char *text) {
    static const char start[] = "powerinfer: ";
    size_t n = strlen(text), n_start = sizeof start - 1;
    if (n <= n_start || strncmp(text, start, n_start) != 0 || text[n - 1] != '\n') return false;
    for (size_t i = 0; i + 1 < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return false;
    const char *more = strstr(text + n_start, ": "); /* the place, or the action to take */
    return more && more[2] != '\n';
}
