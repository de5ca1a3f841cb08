/* cmd_completion.c: prints completions and man pages, or writes all of them into the folders of an
 * installation. */
#include <string.h>

#include "completion.h"
#include "file.h"
#include "mem.h"
#include "os_text.h"

/* Writes FOLDER/PATH and creates its folders. The text is what `shell` prints, or with NULL the man
 * page of c (NULL: of the program). */
static pi_status write_file(const char *folder, const char *path, void (*shell)(FILE *out),
                            const command *c, pi_error *err) {
    char full[OPTION_PATH_BYTES];
    os_text page;
    file_writer *w = NULL;
    if (!file_join(full, sizeof full, folder, path))
        return error_set(err, PI_ERR_ARG, "path is too long: %.200s", folder);
    pi_status status = file_create_folders(full, false, err);
    if (status != PI_OK) return status;
    if (!os_text_open(&page)) return error_nomem(err, OPTION_PATH_BYTES, "page");
    if (shell)
        shell(page.file);
    else
        man_page(page.file, c);
    status = os_text_close(&page) ? file_writer_open(full, &w, err)
                                  : error_nomem(err, OPTION_PATH_BYTES, "page");
    if (status == PI_OK) status = file_writer_write(w, page.text, page.n, err);
    if (status == PI_OK)
        status = file_writer_commit(w, err);
    else
        file_writer_abort(w);
    mem_free(page.text);
    return status;
}

static pi_status write_all(const char *folder, pi_error *err) {
    size_t n;
    const command *commands = cli_commands(&n);
    pi_status status = write_file(folder, "bash-completion/completions/powerinfer", completion_bash,
                                  NULL, err);
    if (status == PI_OK)
        status = write_file(folder, "zsh/site-functions/_powerinfer", completion_zsh, NULL, err);
    if (status == PI_OK)
        status = write_file(folder, "fish/vendor_completions.d/powerinfer.fish", completion_fish,
                            NULL, err);
    if (status == PI_OK) status = write_file(folder, "man/man1/powerinfer.1", NULL, NULL, err);
    for (size_t i = 0; i < n && status == PI_OK; i++) {
        char path[64];
        snprintf(path, sizeof path, "man/man1/powerinfer-%.32s.1", commands[i].name);
        status = write_file(folder, path, NULL, &commands[i], err);
    }
    return status;
}

static int print_man(const char *name) {
    size_t n;
    const command *commands = cli_commands(&n);
    const command *c = NULL;
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(commands[i].name, name) == 0) c = &commands[i];
    if (name && !c) return cli_wrong("unknown command: %.200s: see powerinfer --help", name);
    man_page(stdout, c);
    return EXIT_DONE;
}

int cmd_completion(const cli_options *o) {
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } forms[] = {{"bash", completion_bash},
                 {"zsh", completion_zsh},
                 {"fish", completion_fish},
                 {"llama-flags", flags_page}}; /* scripts/llama-flags.sh; help does not list it */
    const char *word = o->n_positionals > 0 ? o->positionals[0] : "";
    const char *more = o->n_positionals > 1 ? o->positionals[1] : NULL;
    if (strcmp(word, "man") == 0) return print_man(more);
    if (strcmp(word, "all") == 0) {
        pi_error err = {.status = PI_OK};
        if (!more) return cli_wrong("no folder: completion all: name one, such as ~/.local/share");
        return write_all(more, &err) == PI_OK ? EXIT_DONE : cli_failed(&err);
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(word, forms[i].name) != 0) continue;
        forms[i].print(stdout);
        return EXIT_DONE;
    }
    return cli_wrong("unknown form: completion \"%.200s\": expected bash, zsh, fish, man or all",
                     word);
}
