/* chat_input.c: libedit reads from the terminal byte by byte, so that what it has not read yet can
 * be asked for: more bytes right after a newline are a paste. */
#include "chat_input.h"

#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

#ifdef CLI_HAVE_LIBEDIT
#include <histedit.h>
#endif

enum {
    PASTE_WAIT = 30,     /* milliseconds; nobody types a line so fast */
    HISTORY_LINES = 1000 /* that are remembered */
};

struct chat_input {
    bool terminal, more; /* more: a line goes on */
    char *line;          /* getline's */
    size_t capacity;
#ifdef CLI_HAVE_LIBEDIT
    EditLine *edit;
    History *history;
    char *path; /* NULL: nothing is kept */
#endif
};

#ifdef CLI_HAVE_LIBEDIT
static char *prompt(EditLine *edit) {
    static char first[] = "> ", next[] = ". ";
    chat_input *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    return in->more ? next : first;
}

/* The folders of a file that is made for the first time. */
static void make_folders(const char *path) {
    char folder[4096];
    size_t n = strlen(path);
    if (n >= sizeof folder) return;
    memcpy(folder, path, n + 1);
    for (char *p = folder + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        mkdir(folder, 0700);
        *p = '/';
    }
}

static pi_status start_edit(chat_input *in, const char *path, pi_error *err) {
    HistEvent event;
    in->history = history_init();
    in->edit = el_init("powerinfer", stdin, stdout, stderr);
    if (!in->history || !in->edit) return error_nomem(err, 0, "line editor");
    history(in->history, &event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &event, H_SETUNIQUE, 1);
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_PROMPT, prompt);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_SIGNAL, 1); /* gives the terminal back before the program ends */
    el_set(in->edit, EL_HIST, history, in->history);
    el_source(in->edit, NULL);
    if (!path || !*path) return PI_OK;
    in->path = mem_strdup(path);
    if (!in->path) return error_nomem(err, strlen(path), "line editor");
    history(in->history, &event, H_LOAD, path);
    return PI_OK;
}

/* What is kept is for its writer alone to read. */
static void remember(chat_input *in, const char *line) {
    HistEvent event;
    if (!*line || *line == '\n') return;
    history(in->history, &event, H_ENTER, line);
    if (!in->path) return;
    make_folders(in->path);
    mode_t before = umask(0077);
    history(in->history, &event, H_SAVE, in->path);
    umask(before);
}
#endif

pi_status chat_input_create(const char *history, chat_input **out, pi_error *err) {
    *out = NULL;
    chat_input *in = mem_calloc(1, sizeof *in);
    if (!in) return error_nomem(err, sizeof *in, "input");
    in->terminal = isatty(STDIN_FILENO) == 1;
    pi_status status = PI_OK;
#ifdef CLI_HAVE_LIBEDIT
    if (in->terminal && isatty(STDOUT_FILENO) == 1) status = start_edit(in, history, err);
#else
    (void)history;
#endif
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
    mem_free(in->line);
    mem_free(in);
}

bool chat_input_is_terminal(const chat_input *in) {
    return in->terminal;
}

/* A line with its newline, NUL-terminated; NULL at the end. */
static const char *read_line(chat_input *in, size_t *n) {
#ifdef CLI_HAVE_LIBEDIT
    if (in->edit) {
        int count = 0;
        const char *line = el_gets(in->edit, &count);
        if (!line || count <= 0) return NULL;
        *n = (size_t)count;
        remember(in, line);
        return line;
    }
#endif
    if (in->terminal) fputs(in->more ? ". " : "> ", stderr); /* answers may go to a file */
    ssize_t count = getline(&in->line, &in->capacity, stdin);
    if (count < 0) return NULL;
    *n = (size_t)count;
    return in->line;
}

/* Bytes are there already: the rest of a paste. A stream's buffer would hide them. */
static bool pasted(const chat_input *in) {
#ifdef CLI_HAVE_LIBEDIT
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    return in->edit && poll(&fd, 1, PASTE_WAIT) == 1 && (fd.revents & POLLIN);
#else
    (void)in;
    return false;
#endif
}

bool chat_input_read(chat_input *in, text_buffer *out) {
    out->used = 0;
    in->more = false;
    for (;;) {
        size_t n = 0;
        const char *line = read_line(in, &n);
        if (!line) return in->more && out->used > 0;
        bool ended = n > 0 && line[n - 1] == '\n';
        if (ended) n--;
        bool goes_on = in->terminal && n > 0 && line[n - 1] == '\\';
        if (goes_on) n--;
        if (text_append(out, line, n, NULL) != PI_OK) return false;
        in->more = goes_on || (ended && pasted(in));
        if (!in->more) return true;
        if (text_append(out, "\n", 1, NULL) != PI_OK) return false;
    }
}

bool chat_input_prefill(chat_input *in, const char *text) {
#ifdef CLI_HAVE_LIBEDIT
    if (in->edit && !strchr(text, '\n')) {
        el_push(in->edit, text);
        return true;
    }
#else
    (void)text;
#endif
    (void)in;
    return false;
}
