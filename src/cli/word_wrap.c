/* word_wrap.c: a word is held back until its width is known, then written on this line or the next.
 * East Asian text has no blanks: a line may end after each of its characters, which are two columns
 * wide. */
#include "word_wrap.h"

#include <string.h>

#include "os_terminal.h"
#include "printable.h"
#include "terminal.h"

enum {
    COLUMNS_UNKNOWN = 80,
    TAB = 8,
    CHARACTER_BYTES = 5 /* an escaped byte, or a character, and a NUL */
};

/* Columns of a character in the locale (terminal_use_locale); 1 for characters that it does not
 * know. Escaped bytes are ASCII. */
static int width_of(const char *character, size_t n) {
    if (n == 1 || character[0] == '\\') return (int)n;
    int width = os_character_width(character, n);
    return width >= 0 ? width : 1;
}

void word_wrap_flush(word_wrap *w) {
    if (w->column > 0 && w->n_word > 0 && w->column + w->blanks + w->width > w->columns) {
        fputc('\n', w->out);
        w->column = w->blanks = 0;
    }
    fprintf(w->out, "%*s", w->blanks, "");
    fwrite(w->word, 1, w->n_word, w->out);
    w->column += w->blanks + w->width;
    w->n_word = 0;
    w->blanks = w->width = 0;
}

static void put_character(word_wrap *w, const char *character, size_t n) {
    int width = width_of(character, n);
    if (width == 2 || w->n_word + n > WORD_WRAP_BYTES || w->width + width > w->columns)
        word_wrap_flush(w);
    memcpy(w->word + w->n_word, character, n);
    w->n_word += n;
    w->width += width;
    if (width == 2) word_wrap_flush(w);
}

void word_wrap_put(word_wrap *w, const char *text, size_t n) {
    if (!w->terminal) {
        fwrite(text, 1, n, w->out);
        return;
    }
    w->columns = terminal_columns(w->out, COLUMNS_UNKNOWN);
    for (size_t i = 0; i < n;) {
        char character[CHARACTER_BYTES];
        size_t length = printable_length(text + i, n - i);
        size_t taken = length ? length : 1;
        if (text[i] == '\n') {
            word_wrap_flush(w);
            fputc('\n', w->out);
            w->column = 0;
        } else if (text[i] == ' ' || text[i] == '\t') {
            if (w->n_word) word_wrap_flush(w);
            w->blanks += text[i] == ' ' ? 1 : TAB - (w->column + w->blanks) % TAB;
        } else {
            size_t n_shown = printable_copy(character, sizeof character, text + i, taken);
            put_character(w, character, n_shown);
        }
        i += taken;
    }
}
