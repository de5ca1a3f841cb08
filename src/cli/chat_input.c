/* chat_input.c: libedit reads from the terminal byte by byte, and line_edit key by key, so unread
 * input stays in the terminal. Unread input right after a newline means a paste. */
#include "chat_input.h"

#include <string.h>

#include "file.h"
#include "line_edit.h"
#include "mem.h"
#include "os_file.h"
#include "os_signal.h"
#include "os_terminal.h"
#include "terminal.h"

#ifdef CLI_HAVE_LIBEDIT
#include <histedit.h>
#endif

enum {
    PASTE_WAIT = 30,      /* milliseconds; nobody types so fast */
    HISTORY_LINES = 1000, /* kept in the history */
    PROMPT_BYTES = 128
};

struct chat_input {
    bool terminal, more;       /* more: the message continues on the next line */
    bool interrupted, cleared; /* by Ctrl-C, while a message was read */
    const char *question;      /* NULL: a message is read */
    char *line;                /* last line that read_line returned without libedit */
    size_t capacity;
    const char *(*command)(size_t i);
    line_edit *keys; /* NULL: not a console of Windows */
#ifdef CLI_HAVE_LIBEDIT
    EditLine *edit;
    History *history;
    char *path; /* history file; NULL: none */
    char prompt[PROMPT_BYTES];
#endif
};

static const char *prompt_text(const chat_input *in) {
    return in->question ? in->question : in->more ? ". " : "> ";
}

/* ---- completion ------------------------------------------------------------------------------ */

enum { FILE_NAME_MAX = 1024 };

/* The names that begin with word[n]. */
typedef struct completion {
    const char *word;
    size_t n, n_found, common; /* common: bytes that all names share */
    char first[FILE_NAME_MAX]; /* the first name */
    const char *mark;          /* printed before a name */
    FILE *list;                /* NULL: names are compared, not printed */
} completion;

static void add_name(completion *c, const char *name) {
    if (strncmp(name, c->word, c->n) != 0 || strlen(name) >= sizeof c->first) return;
    if (c->list) {
        fprintf(c->list, "%s%s  ", c->mark, name);
        return;
    }
    if (c->n_found++ == 0) {
        c->common = strlen(name);
        memcpy(c->first, name, c->common + 1);
    }
    while (strncmp(name, c->first, c->common) != 0) c->common--;
}

static void add_commands(completion *c, const chat_input *in) {
    c->mark = "/";
    for (size_t i = 0; in->command(i); i++) add_name(c, in->command(i));
}

/* Appends what all names share after the word, and a blank if there is only one name. */
static void finish_word(const completion *c, text_buffer *rest) {
    if (c->common > c->n) (void)text_append(rest, c->first + c->n, c->common - c->n, NULL);
    if (c->n_found == 1) (void)text_append(rest, " ", 1, NULL);
}

#ifdef CLI_HAVE_LIBEDIT

/* ---- keys ------------------------------------------------------------------------------------ */

enum { CTRL_Z = 26 };

static chat_input *input_of(EditLine *edit) {
    chat_input *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    return in;
}

/* Bytes \1 enclose styles, which have no width. */
static char *prompt(EditLine *edit) {
    chat_input *in = input_of(edit);
    snprintf(in->prompt, sizeof in->prompt, "\1%s\1%s\1%s\1",
             terminal_style(stdout, TERMINAL_GREEN), prompt_text(in),
             terminal_style(stdout, TERMINAL_PLAIN));
    return in->prompt;
}

/* While a line is edited, Ctrl-C is a key, not a signal. It clears the line; on an empty line it
 * ends the reading. */
static unsigned char on_interrupt(EditLine *edit, int key) {
    const LineInfoW *line = el_wline(edit);
    (void)key;
    if (line->lastchar == line->buffer) {
        input_of(edit)->interrupted = true;
        return CC_EOF;
    }
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    el_deletestr(edit, (int)(line->lastchar - line->buffer));
    input_of(edit)->cleared = true;
    return CC_REFRESH;
}

/* Keys that send other signals: libedit restores the terminal when it receives the signal. */
static unsigned char on_signal_key(EditLine *edit, int key) {
    (void)edit;
    if (key == CTRL_Z)
        os_signal_suspend();
    else
        os_signal_quit();
    return CC_REDISPLAY;
}

static unsigned char complete_command(EditLine *edit, const char *word, size_t n) {
    completion c = {.word = word, .n = n};
    add_commands(&c, input_of(edit));
    if (c.n_found == 0) return CC_ERROR;
    text_buffer rest = {.data = NULL};
    finish_word(&c, &rest);
    unsigned char result = CC_REFRESH;
    if (rest.used == 0) {
        fputc('\n', stdout);
        c.list = stdout;
        add_commands(&c, input_of(edit));
        fputc('\n', stdout);
        result = CC_REDISPLAY;
    } else if (el_insertstr(edit, rest.data) != 0) {
        result = CC_ERROR;
    }
    text_free(&rest);
    return result;
}

static unsigned char on_tab(EditLine *edit, int key) {
    const LineInfo *line = el_line(edit);
    size_t n = (size_t)(line->cursor - line->buffer);
    const char *begin = line->buffer;
    if (input_of(edit)->question ||
        (n >= 6 && (strncmp(begin, "/save ", 6) == 0 || strncmp(begin, "/load ", 6) == 0)))
        return _el_fn_complete(edit, key);
    if (n > 0 && *begin == '/' && !memchr(begin, ' ', n))
        return complete_command(edit, begin + 1, n - 1);
    return el_insertstr(edit, "\t") == 0 ? CC_REFRESH : CC_ERROR; /* pasted code has tabs */
}

/* Function names are wide strings: libedit loses its copies of narrow ones. */
static void bind_keys(EditLine *edit) {
    el_wset(edit, EL_ADDFN, L"chat-interrupt", L"clear the line", on_interrupt);
    el_wset(edit, EL_ADDFN, L"chat-signal", L"send the signal of the key", on_signal_key);
    el_wset(edit, EL_ADDFN, L"chat-complete", L"complete a command or a file", on_tab);
    el_set(edit, EL_BIND, "^C", "chat-interrupt", NULL);
    el_set(edit, EL_BIND, "^Z", "chat-signal", NULL);
    el_set(edit, EL_BIND, "^\\", "chat-signal", NULL);
    el_set(edit, EL_BIND, "^I", "chat-complete", NULL);
    el_set(edit, EL_SETTY, "-d", "-isig", NULL); /* -d: while a line is edited */
}

/* ---- history --------------------------------------------------------------------------------- */

static pi_status start_edit(chat_input *in, const char *path, pi_error *err) {
    HistEvent event;
    in->history = history_init();
    in->edit = el_init("powerinfer", stdin, stdout, stderr);
    if (!in->history || !in->edit) return error_nomem(err, 0, "line editor");
    history(in->history, &event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &event, H_SETUNIQUE, 1);
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT_ESC, prompt, '\1');
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_SIGNAL, 1); /* restores the terminal before the program ends */
    el_set(in->edit, EL_HIST, history, in->history);
    el_source(in->edit, NULL);
    bind_keys(in->edit); /* also in the keys of vi, which ~/.editrc may choose */
    if (!path || !*path) return PI_OK;
    in->path = mem_strdup(path);
    if (!in->path) return error_nomem(err, strlen(path), "line editor");
    history(in->history, &event, H_LOAD, path);
    return PI_OK;
}

/* Only the user can read the history file. */
static void remember(chat_input *in, const char *line) {
    HistEvent event;
    if (!*line || *line == '\n' || in->question) return;
    history(in->history, &event, H_ENTER, line);
    if (!in->path) return;
    (void)file_create_folders(in->path, true, NULL);
    unsigned before = os_files_private();
    history(in->history, &event, H_SAVE, in->path);
    os_files_permit(before);
}
#else

/* ---- the console of Windows ------------------------------------------------------------------ */

/* folder: of files; NULL: names of commands. */
static void add_names(completion *c, const chat_input *in, const char *folder) {
    if (!folder) {
        add_commands(c, in);
        return;
    }
    os_folder *f = os_folder_open(folder);
    c->mark = "";
    if (!f) return;
    for (const char *name; (name = os_folder_next(f));) add_name(c, name);
    os_folder_close(f);
}

/* Completes commands, and the files of /save, /load and questions. In other text Tab inserts a tab.
 */
static void on_console_tab(void *user, const char *text, size_t n, text_buffer *insert) {
    chat_input *in = user;
    static const size_t n_save = sizeof "/save " - 1;
    const bool is_file = in->question || (n >= n_save && (strncmp(text, "/save ", n_save) == 0 ||
                                                          strncmp(text, "/load ", n_save) == 0));
    const bool is_command = n > 0 && *text == '/' && !memchr(text, ' ', n);
    char folder[FILE_NAME_MAX] = ".";
    if (!is_file && !is_command) {
        (void)text_append(insert, "\t", 1, NULL);
        return;
    }
    const char *word = text + (!is_file ? 1 : in->question ? 0 : n_save), *end = text + n;
    for (const char *at = word; is_file && at < end; at++) {
        if (*at != '/' && *at != '\\') continue;
        snprintf(folder, sizeof folder, "%.*s", (int)(at + 1 - word), word);
        text = at + 1; /* begins the name */
    }
    if (is_command || text < word) text = word;
    completion c = {.word = text, .n = (size_t)(end - text)};
    add_names(&c, in, is_command ? NULL : folder);
    finish_word(&c, insert);
    if (insert->used > 0 || c.n_found == 0) return;
    c.list = stdout;
    fputc('\n', stdout);
    add_names(&c, in, is_command ? NULL : folder);
    fputc('\n', stdout);
}

static int next_key(void *user) {
    (void)user;
    return os_key_read();
}

static pi_status start_edit(chat_input *in, const char *history, pi_error *err) {
    if (!os_keys_begin()) return PI_OK;
    os_keys_end();
    return line_edit_create(&(line_edit_options){.key = next_key,
                                                 .complete = on_console_tab,
                                                 .user = in,
                                                 .screen = stdout,
                                                 .history = history && *history ? history : NULL},
                            &in->keys, err);
}
#endif

pi_status chat_input_create(const char *history, const char *(*command)(size_t i), chat_input **out,
                            pi_error *err) {
    *out = NULL;
    chat_input *in = mem_calloc(1, sizeof *in);
    if (!in) return error_nomem(err, sizeof *in, "input");
    in->terminal = os_is_terminal(stdin);
    in->command = command;
    pi_status status = PI_OK;
    if (in->terminal && os_is_terminal(stdout)) status = start_edit(in, history, err);
    if (status != PI_OK) {
        chat_input_free(in);
        return status;
    }
    *out = in;
    return PI_OK;
}

void chat_input_free(chat_input *in) {
    if (!in) return;
#ifdef CLI_HAVE_LIBEDIT
    if (in->edit) el_end(in->edit);
    if (in->history) history_end(in->history);
    mem_free(in->path);
#endif
    line_edit_free(in->keys);
    mem_free(in->line);
    mem_free(in);
}

bool chat_input_is_terminal(const chat_input *in) {
    return in->terminal;
}

/* Returns a line with its newline, NUL-terminated; NULL: no line. */
static const char *read_line(chat_input *in, size_t *n) {
#ifdef CLI_HAVE_LIBEDIT
    if (in->edit) {
        int count = 0;
        in->interrupted = false;
        el_set(in->edit, EL_PREP_TERM, 1); /* from here on keys are no signals */
        const char *line = el_gets(in->edit, &count);
        if (!line || count <= 0) {
            fputc('\n', stdout);
            fflush(stdout);
            return NULL;
        }
        *n = (size_t)count;
        remember(in, line);
        return line;
    }
#endif
    if (in->keys) {
        const char *line;
        if (!os_keys_begin()) return NULL;
        line_result result = line_edit_read(in->keys, prompt_text(in), !in->question, &line, n);
        os_keys_end();
        in->interrupted = result == LINE_INTERRUPT;
        in->cleared |= line_edit_was_cleared(in->keys);
        return line;
    }
    if (in->terminal) fputs(prompt_text(in), stderr); /* answers may go to a file */
    size_t used = 0;
    for (int c = 0; c != '\n' && (c = os_stdin_get()) != EOF;) {
        if (!mem_grow((void **)&in->line, &in->capacity, used + 2, 1, SIZE_MAX)) return NULL;
        in->line[used++] = (char)c;
    }
    if (used == 0) return NULL;
    in->line[used] = '\0';
    *n = used;
    return in->line;
}

/* Whether unread bytes are waiting: the rest of a paste. A terminal gives a program one line at a
 * time, so no stream has buffered them. */
static bool pasted(const chat_input *in) {
#ifdef CLI_HAVE_LIBEDIT
    const bool edits = in->edit;
#else
    const bool edits = in->terminal;
#endif
    return edits && os_stdin_has_input(PASTE_WAIT * 1e-3);
}

chat_event chat_input_read(chat_input *in, text_buffer *out) {
    out->used = 0;
    in->more = false;
    in->cleared = false;
    for (;;) {
        size_t n = 0;
        const char *line = read_line(in, &n);
        bool drop = !line && in->interrupted;
        if (drop && !in->more) return CHAT_INTERRUPT;
        if (drop) { /* the lines before this one */
            out->used = 0;
            in->more = false;
            continue;
        }
        if (!line) return in->more && out->used > 0 ? CHAT_LINE : CHAT_END;
        bool ended = n > 0 && line[n - 1] == '\n';
        if (ended) n--;
        bool goes_on = in->terminal && n > 0 && line[n - 1] == '\\';
        if (goes_on) n--;
        if (text_append(out, line, n, NULL) != PI_OK) return CHAT_END;
        in->more = goes_on || (ended && pasted(in));
        if (!in->more) return CHAT_LINE;
        if (text_append(out, "\n", 1, NULL) != PI_OK) return CHAT_END;
    }
}

chat_event chat_input_ask(chat_input *in, const char *question, text_buffer *out) {
    size_t n = 0;
    out->used = 0;
    in->more = false;
    in->question = question;
    const char *line = read_line(in, &n);
    in->question = NULL;
    if (!line) return in->interrupted ? CHAT_INTERRUPT : CHAT_END;
    while (n && strchr(" \t\n", line[n - 1])) n--;
    return text_append(out, line, n, NULL) == PI_OK ? CHAT_LINE : CHAT_END;
}

bool chat_input_was_cleared(const chat_input *in) {
    return in->cleared;
}

bool chat_input_prefill(chat_input *in, const char *text) {
#ifdef CLI_HAVE_LIBEDIT
    if (in->edit && !strchr(text, '\n')) {
        el_push(in->edit, text);
        return true;
    }
#endif
    return in->keys && !strchr(text, '\n') && line_edit_prefill(in->keys, text);
}
