/* cmd_tokenize.c: converts text to ids and ids to text. Text from -p and standard input is taken
 * byte for byte: this command shows how a tokenizer treats any bytes. */
#include <string.h>

#include "cli.h"
#include "cli_text.h"
#include "file.h"
#include "mem.h"
#include "os_terminal.h"

enum { PIECE_GUESS = 16 }; /* bytes; about four times the mean of real vocabularies */

static pi_status encode(const cli_options *o, const pi_model *model, const char *text,
                        size_t n_text, pi_error *err) {
    uint32_t flags = 0;
    if (o->bos) flags |= PI_TOKENIZE_FORCE_BOS;
    if (o->special) flags |= PI_TOKENIZE_SPECIAL;
    int32_t *tokens;
    size_t n;
    pi_status status = text_tokenize(model, text, n_text, flags, &tokens, &n, err);
    if (status != PI_OK) return status;
    if (o->ids) {
        /* Prints the ids on exactly one line, for comparison with other programs. */
        for (size_t i = 0; i < n; i++) printf(i ? " %d" : "%d", (int)tokens[i]);
        putchar('\n');
    } else {
        status = text_print_tokens(stdout, model, tokens, n, err);
    }
    mem_free(tokens);
    return status;
}

static pi_status decode(const cli_options *o, const pi_model *model, const char *ids, size_t n_ids,
                        pi_error *err) {
    pi_model_info info;
    pi_model_get_info(model, &info);
    int32_t *tokens;
    size_t n, n_bytes = 0;
    const char *where = o->prompt ? "-p" : "standard input";
    pi_status status = text_parse_ids(ids, n_ids, where, info.n_vocab, &tokens, &n, err);
    if (status != PI_OK) return status;
    /* PIECE_GUESS is enough for most tokens; otherwise the call returns the size. */
    size_t room = n * PIECE_GUESS;
    char *text = mem_alloc(room);
    status = text ? pi_detokenize(model, tokens, n, o->special, text, room, &n_bytes, err)
                  : error_nomem(err, room, "text");
    if (status == PI_ERR_LIMIT && n_bytes > room) {
        mem_free(text);
        text = mem_alloc(n_bytes);
        status = text ? pi_detokenize(model, tokens, n, o->special, text, n_bytes, &n_bytes, err)
                      : error_nomem(err, n_bytes, "text");
    }
    if (status == PI_OK && n_bytes) fwrite(text, 1, n_bytes, stdout);
    mem_free(text);
    mem_free(tokens);
    return status;
}

int cmd_tokenize(const cli_options *o) {
    bool from_stdin = o->from_stdin || !o->prompt;
    if (options_typed(o, &o->from_stdin) && options_typed(o, &o->prompt)) {
        return cli_wrong("two texts: -p and --stdin: give one of them");
    }
    if (options_typed(o, &o->prompt)) from_stdin = false;
    if (from_stdin && os_is_terminal(stdin)) {
        return cli_wrong("no text: tokenize: give one with -p, or on standard input");
    }
    pi_error err = {.status = PI_OK};
    char *text = NULL;
    size_t n_text = 0;
    pi_model *model = NULL;
    pi_status status = cli_model_open(o, true, &model, &err);
    if (status == PI_OK && from_stdin) {
        status = file_read_stream("-", CLI_TEXT_MAX, &text, &n_text, &err);
    }
    if (status == PI_OK) {
        const char *source = from_stdin ? text : o->prompt;
        if (!from_stdin) n_text = strlen(source);
        status = o->detok ? decode(o, model, source, n_text, &err)
                          : encode(o, model, source, n_text, &err);
    }
    mem_free(text);
    pi_model_close(model);
    return status == PI_OK ? EXIT_DONE : cli_failed(&err);
}
