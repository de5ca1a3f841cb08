/* line_edit.c: the line is one row of the screen. A longer line scrolls: the row shows the part
 * around the cursor. The row is drawn twice, the second time only up to the cursor, which puts the
 * cursor there: so carriage return is the only control character that the terminal must know.
 * Positions are byte offsets at which characters begin. */
#include "line_edit.h"

#include <string.h>

#include "file.h"
#include "mem.h"
#include "os_terminal.h"
#include "terminal.h"

enum {
    HISTORY_LINES = 1000,
    HISTORY_BYTES = 1 << 20, /* a longer file is not read */
    COLUMNS_UNKNOWN = 80
};

#define CTRL(letter) ((letter) - '@')
enum { ESCAPE = 27, DELETE_LEFT = 127 };

struct line_edit {
    line_edit_options o;
    char **past; /* [n_past], the oldest first */
    size_t n_past, past_capacity;
    text_buffer text; /* the line */
    size_t cursor;
    size_t shown;        /* the line is past[shown]; n_past: the new line */
    text_buffer fresh;   /* the new line, while an older one is shown */
    text_buffer prefill; /* text that the next line starts with */
    size_t first;        /* the first byte on the screen */
    int drawn;           /* cells that were drawn after the prompt */
    bool cleared;
};

/* ---- positions ------------------------------------------------------------------------------- */

static bool continues(char byte) {
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static size_t after(const line_edit *e, size_t at) {
    if (at < e->text.used) at++;
    while (at < e->text.used && continues(e->text.data[at])) at++;
    return at;
}

static size_t before(const line_edit *e, size_t at) {
    if (at > 0) at--;
    while (at > 0 && continues(e->text.data[at])) at--;
    return at;
}

static bool is_blank(const line_edit *e, size_t at) {
    return e->text.data[at] == ' ' || e->text.data[at] == '\t';
}

static size_t word_before(const line_edit *e, size_t at) {
    while (at > 0 && is_blank(e, at - 1)) at--;
    while (at > 0 && !is_blank(e, at - 1)) at--;
    return at;
}

static size_t word_after(const line_edit *e, size_t at) {
    while (at < e->text.used && is_blank(e, at)) at++;
    while (at < e->text.used && !is_blank(e, at)) at++;
    return at;
}

/* ---- screen ---------------------------------------------------------------------------------- */

/* Cells of the character at `at`; one without a width is shown as a blank. */
static int cells(const line_edit *e, size_t at) {
    int width = os_character_width(e->text.data + at, after(e, at) - at);
    return width < 0 ? 1 : width;
}

static void put(const line_edit *e, size_t at) {
    size_t n = after(e, at) - at;
    if (os_character_width(e->text.data + at, n) < 0)
        fputc(' ', e->o.screen);
    else
        fwrite(e->text.data + at, 1, n, e->o.screen);
}

static void put_prompt(const line_edit *e, const char *prompt) {
    fprintf(e->o.screen, "\r%s%s%s", terminal_style(e->o.screen, TERMINAL_GREEN), prompt,
            terminal_style(e->o.screen, TERMINAL_PLAIN));
}

/* The prompt is ASCII. The last column stays empty, because some terminals wrap after it. */
static void draw(line_edit *e, const char *prompt) {
    int room = terminal_columns(e->o.screen, COLUMNS_UNKNOWN) - (int)strlen(prompt) - 1;
    int to_cursor = 0, drawn = 0;
    if (e->cursor < e->first) e->first = e->cursor;
    for (size_t at = e->first; at < e->cursor; at = after(e, at)) to_cursor += cells(e, at);
    for (; to_cursor > room && e->first < e->cursor; e->first = after(e, e->first))
        to_cursor -= cells(e, e->first);
    put_prompt(e, prompt);
    for (size_t at = e->first; at < e->text.used; at = after(e, at)) {
        if (drawn + cells(e, at) > room) break;
        drawn += cells(e, at);
        put(e, at);
    }
    for (int i = drawn; i < e->drawn && i < room; i++) fputc(' ', e->o.screen);
    e->drawn = drawn;
    put_prompt(e, prompt);
    for (size_t at = e->first; at < e->cursor; at = after(e, at)) put(e, at);
    fflush(e->o.screen);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* False: out of memory; the text is unchanged. */
static bool set_text(text_buffer *to, const char *text, size_t n) {
    const size_t used = to->used;
    to->used = 0;
    if (text_append(to, text, n, NULL) == PI_OK) return true;
    to->used = used;
    return false;
}

static void insert(line_edit *e, const char *text, size_t n) {
    size_t tail = e->text.used - e->cursor;
    if (text_append(&e->text, text, n, NULL) != PI_OK) return;
    memmove(e->text.data + e->cursor + n, e->text.data + e->cursor, tail);
    memcpy(e->text.data + e->cursor, text, n);
    e->cursor += n;
}

static void remove_range(line_edit *e, size_t from, size_t to) {
    memmove(e->text.data + from, e->text.data + to, e->text.used - to);
    e->text.used -= to - from;
    e->text.data[e->text.used] = 0;
    e->cursor = from;
}

static void insert_character(line_edit *e, int code) {
    char bytes[4];
    insert(e, bytes, text_put_utf8((uint32_t)code, bytes));
}

static void complete(line_edit *e) {
    text_buffer found = {.data = NULL};
    e->o.complete(e->o.user, e->text.data, e->cursor, &found);
    if (found.used > 0) insert(e, found.data, found.used);
    text_free(&found);
}

/* ---- history --------------------------------------------------------------------------------- */

static void show(line_edit *e, size_t number) {
    if (number > e->n_past) return;
    if (e->shown == e->n_past && !set_text(&e->fresh, e->text.data, e->text.used)) return;
    const text_buffer *fresh = &e->fresh;
    bool is_new = number == e->n_past;
    if (!set_text(&e->text, is_new ? fresh->data : e->past[number],
                  is_new ? fresh->used : strlen(e->past[number])))
        return;
    e->shown = number;
    e->cursor = e->text.used;
}

/* Adds text[n] unless it repeats the last line. */
static void add(line_edit *e, const char *text, size_t n) {
    const char *last = e->n_past ? e->past[e->n_past - 1] : "";
    if (n == 0 || (strlen(last) == n && memcmp(last, text, n) == 0)) return;
    char *copy = mem_alloc(n + 1);
    if (!copy || !mem_grow((void **)&e->past, &e->past_capacity, e->n_past + 1, sizeof *e->past,
                           HISTORY_LINES + 1)) {
        mem_free(copy);
        return;
    }
    memcpy(copy, text, n);
    copy[n] = 0;
    e->past[e->n_past++] = copy;
    if (e->n_past <= HISTORY_LINES) return;
    mem_free(e->past[0]);
    memmove(e->past, e->past + 1, --e->n_past * sizeof *e->past);
}

/* A line of text per line. A file that cannot be read or written is no error. */
static void load(line_edit *e) {
    char *text = NULL;
    size_t n = 0;
    if (file_read(e->o.history, HISTORY_BYTES, &text, &n, NULL) != PI_OK) return;
    for (const char *at = text; at < text + n;) {
        size_t length = strcspn(at, "\n");
        add(e, at, length);
        at += length + 1;
    }
    mem_free(text);
}

static void save(const line_edit *e) {
    file_writer *out = NULL;
    size_t n_bytes = 0, from = e->n_past;
    while (from > 0 && (n_bytes += strlen(e->past[from - 1]) + 1) <= HISTORY_BYTES) from--;
    (void)file_create_folders(e->o.history, true, NULL);
    if (file_writer_open(e->o.history, &out, NULL) != PI_OK) return;
    pi_status status = PI_OK;
    for (size_t i = from; i < e->n_past && status == PI_OK; i++) {
        status = file_writer_write(out, e->past[i], strlen(e->past[i]), NULL);
        if (status == PI_OK) status = file_writer_write(out, "\n", 1, NULL);
    }
    if (status == PI_OK)
        (void)file_writer_commit(out, NULL);
    else
        file_writer_abort(out);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A key that changes the line or moves the cursor. */
static void apply(line_edit *e, int key) {
    const size_t end = e->text.used, left = before(e, e->cursor), right = after(e, e->cursor);
    switch (key) {
    case OS_KEY_LEFT:
    case CTRL('B'):
        e->cursor = left;
        break;
    case OS_KEY_RIGHT:
    case CTRL('F'):
        e->cursor = right;
        break;
    case OS_KEY_WORD_LEFT:
        e->cursor = word_before(e, e->cursor);
        break;
    case OS_KEY_WORD_RIGHT:
        e->cursor = word_after(e, e->cursor);
        break;
    case OS_KEY_HOME:
    case CTRL('A'):
        e->cursor = 0;
        break;
    case OS_KEY_END:
    case CTRL('E'):
        e->cursor = end;
        break;
    case DELETE_LEFT:
    case CTRL('H'):
        remove_range(e, left, e->cursor);
        break;
    case OS_KEY_DELETE:
    case CTRL('D'):
        remove_range(e, e->cursor, right);
        break;
    case CTRL('W'):
        remove_range(e, word_before(e, e->cursor), e->cursor);
        break;
    case CTRL('U'):
        remove_range(e, 0, e->cursor);
        break;
    case CTRL('K'):
        remove_range(e, e->cursor, end);
        break;
    case ESCAPE:
        remove_range(e, 0, end);
        break;
    case OS_KEY_UP:
    case CTRL('P'):
        if (e->shown > 0) show(e, e->shown - 1);
        break;
    case OS_KEY_DOWN:
    case CTRL('N'):
        show(e, e->shown + 1);
        break;
    case CTRL('I'):
        complete(e);
        break;
    default:
        if (key >= ' ' && key < OS_KEY_LEFT) insert_character(e, key);
    }
}

/* Whether the key ends the line; *result. */
static bool ends(line_edit *e, int key, line_result *result) {
    const bool empty = e->text.used == 0;
    *result = LINE_DONE;
    if (key == '\r' || key == '\n') return true;
    *result = key == CTRL('C') ? LINE_INTERRUPT : LINE_END;
    if (key < 0 || (empty && (key == CTRL('C') || key == CTRL('D') || key == CTRL('Z'))))
        return true;
    if (key == CTRL('C')) {
        remove_range(e, 0, e->text.used);
        e->cleared = true;
    }
    return false;
}

line_result line_edit_read(line_edit *e, const char *prompt, bool keep, const char **line,
                           size_t *n) {
    line_result result;
    *line = NULL;
    *n = 0;
    e->cleared = false;
    e->shown = e->n_past;
    e->first = 0;
    e->drawn = 0;
    if (!set_text(&e->text, e->prefill.data, e->prefill.used)) return LINE_END;
    e->prefill.used = 0;
    e->cursor = e->text.used;
    for (;;) {
        draw(e, prompt);
        int key = e->o.key(e->o.user);
        if (ends(e, key, &result)) break;
        apply(e, key);
    }
    fputc('\n', e->o.screen);
    fflush(e->o.screen);
    if (result != LINE_DONE) return result;
    if (keep) add(e, e->text.data, e->text.used);
    if (keep && e->o.history && e->text.used > 0) save(e);
    if (text_append(&e->text, "\n", 1, NULL) != PI_OK) return LINE_END;
    *line = e->text.data;
    *n = e->text.used;
    return LINE_DONE;
}

bool line_edit_prefill(line_edit *e, const char *text) {
    return set_text(&e->prefill, text, strlen(text));
}

bool line_edit_was_cleared(const line_edit *e) {
    return e->cleared;
}

pi_status line_edit_create(const line_edit_options *o, line_edit **out, pi_error *err) {
    line_edit *e = *out = mem_calloc(1, sizeof *e);
    if (!e) return error_nomem(err, sizeof *e, "line editor");
    e->o = *o;
    if (o->history) load(e);
    return PI_OK;
}

void line_edit_free(line_edit *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_past; i++) mem_free(e->past[i]);
    mem_free(e->past);
    text_free(&e->text);
    text_free(&e->fresh);
    text_free(&e->prefill);
    mem_free(e);
}
