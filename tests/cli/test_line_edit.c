/* test_line_edit.c: the line editor, with keys from a list. A screen of one row per line follows
 * what it prints: before each key the cursor is where the key's effect will appear, and no row
 * reaches the last column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "line_edit.h"
#include "mem.h"
#include "os_terminal.h"
#include "terminal.h"

#define CTRL(letter) ((letter) - '@')
#define HISTORY      TEST_BINARY_DIR "/line_edit_history"

enum { ROW_CELLS = 200, SHOWN_MAX = 1 << 16, COLUMNS = 20, KEYS_MAX = 100 };

typedef struct typing {
    const int *keys; /* ends with 0 */
    FILE *screen;
    char row[4 *
             ROW_CELLS];  /* the row with the cursor, before the last key; blanks at its end cut */
    int column;           /* of the cursor */
    const char *words[4]; /* that Tab inserts after "a"; one: inserted, more: printed */
} typing;

/* Follows the screen: every cell is a text of at most four bytes. */
static void look(typing *t) {
    static char shown[SHOWN_MAX];
    char cells[ROW_CELLS][8] = {""};
    int column = 0, used = 0;
    fflush(t->screen);
    rewind(t->screen);
    size_t n = fread(shown, 1, SHOWN_MAX - 1, t->screen);
    for (size_t i = 0, length; i < n; i += length) {
        length = 1;
        while (i + length < n && ((unsigned char)shown[i + length] & 0xc0) == 0x80) length++;
        if (shown[i] == '\r') {
            column = 0;
        } else if (shown[i] == '\n') {
            memset(cells, 0, sizeof cells);
            column = used = 0;
        } else {
            int width = os_character_width(shown + i, length);
            assert_true(width == 1 || width == 2);
            snprintf(cells[column], sizeof cells[0], "%.*s", (int)length, shown + i);
            if (width == 2) cells[column + 1][0] = 0;
            column += width;
            assert_true(column < COLUMNS);
            if (column > used) used = column;
        }
    }
    t->row[0] = 0;
    size_t end = 0;
    for (int i = 0; i < used; i++)
        end += (size_t)snprintf(t->row + end, sizeof t->row - end, "%s", cells[i]);
    while (end > 0 && t->row[end - 1] == ' ') t->row[--end] = 0;
    t->column = column;
}

static int next_key(void *user) {
    typing *t = user;
    look(t);
    return *t->keys ? *t->keys++ : -1;
}

static void complete(void *user, const char *text, size_t n, text_buffer *insert) {
    const typing *t = user;
    if (n == 0 || text[n - 1] != 'a') return;
    if (t->words[0] && !t->words[1])
        text_append(insert, t->words[0], strlen(t->words[0]), NULL);
    else
        for (int i = 0; t->words[i]; i++) fprintf(t->screen, "%s%s", i ? " " : "\n", t->words[i]);
    if (t->words[1]) fputc('\n', t->screen);
}

static line_edit *begin(typing *t, const char *history) {
    line_edit *e;
    terminal_set(TERMINAL_COLOR_OFF, COLUMNS);
    t->screen = tmpfile();
    assert_non_null(t->screen);
    line_edit_options o = {
        .key = next_key, .complete = complete, .user = t, .screen = t->screen, .history = history};
    assert_int_equal(line_edit_create(&o, &e, NULL), PI_OK);
    return e;
}

static void end(typing *t, line_edit *e) {
    line_edit_free(e);
    fclose(t->screen);
}

static void expect(typing *t, line_edit *e, const int *keys, const char *line) {
    const char *got;
    size_t n;
    t->keys = keys;
    assert_int_equal(line_edit_read(e, "> ", true, &got, &n), LINE_DONE);
    assert_string_equal(got, line);
    assert_int_equal(strlen(got), n);
}

#define KEYS(...)                                                                                  \
    (const int[]) {                                                                                \
        __VA_ARGS__, 0                                                                             \
    }

static void test_keys(void **state) {
    (void)state;
    typing t = {.keys = NULL};
    line_edit *e = begin(&t, NULL);
    expect(&t, e, KEYS('\r'), "\n");
    expect(&t, e, KEYS('a', 'c', OS_KEY_LEFT, 'b', '\r'), "abc\n");
    expect(&t, e, KEYS('a', 0xfc, 0x4f60, 0x1f30d, 8, 127, 'x', '\r'), "a\xc3\xbcx\n");
    expect(&t, e, KEYS('a', 'b', OS_KEY_HOME, OS_KEY_DELETE, OS_KEY_END, 'c', '\r'), "bc\n");
    expect(&t, e, KEYS('a', 'b', CTRL('A'), OS_KEY_RIGHT, CTRL('D'), CTRL('D'), '\r'), "a\n");
    expect(&t, e, KEYS('o', 'n', 'e', ' ', 't', 'w', 'o', ' ', CTRL('W'), '3', '\r'), "one 3\n");
    expect(&t, e, KEYS('o', 'n', 'e', ' ', 't', 'w', 'o', OS_KEY_WORD_LEFT, CTRL('K'), '\r'),
           "one \n");
    expect(&t, e, KEYS('o', ' ', 't', OS_KEY_HOME, OS_KEY_WORD_RIGHT, CTRL('U'), '\r'), " t\n");
    expect(&t, e, KEYS('o', ' ', 27, 'x', '\r'), "x\n");
    expect(&t, e, KEYS(CTRL('E'), CTRL('B'), CTRL('F'), 127, OS_KEY_DELETE, CTRL('L'), 'x', '\r'),
           "x\n");
    end(&t, e);
}

static void test_ends(void **state) {
    (void)state;
    typing t = {.keys = NULL};
    const char *line;
    size_t n;
    line_edit *e = begin(&t, NULL);
    static const struct {
        int key;
        line_result result;
    } cases[] = {
        {CTRL('C'), LINE_INTERRUPT}, {CTRL('D'), LINE_END}, {CTRL('Z'), LINE_END}, {-1, LINE_END}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t.keys = KEYS(cases[i].key);
        assert_int_equal(line_edit_read(e, "> ", true, &line, &n), cases[i].result);
        assert_null(line);
        assert_false(line_edit_was_cleared(e));
    }
    /* On a line, Ctrl-C clears it and Ctrl-Z does nothing. */
    expect(&t, e, KEYS('a', CTRL('Z'), CTRL('C'), 'b', '\r'), "b\n");
    assert_true(line_edit_was_cleared(e));
    assert_true(line_edit_prefill(e, "h\xc3\xa9"));
    expect(&t, e, KEYS('!', '\r'), "h\xc3\xa9!\n");
    assert_false(line_edit_was_cleared(e));
    expect(&t, e, KEYS('\r'), "\n"); /* only once */
    end(&t, e);
}

/* A long line scrolls: 17 cells after the prompt. */
static void test_screen(void **state) {
    (void)state;
    typing t = {.keys = NULL};
    line_edit *e = begin(&t, NULL);
    int keys[KEYS_MAX] = {0};
    for (int i = 0; i < 26; i++) keys[i] = 'a' + i;
    keys[26] = '\r';
    expect(&t, e, keys, "abcdefghijklmnopqrstuvwxyz\n");
    assert_string_equal(t.row, "> jklmnopqrstuvwxyz");
    assert_int_equal(t.column, 19);
    keys[26] = OS_KEY_HOME;
    keys[27] = '\r';
    expect(&t, e, keys, "abcdefghijklmnopqrstuvwxyz\n");
    assert_string_equal(t.row, "> abcdefghijklmnopq");
    assert_int_equal(t.column, 2);
    /* A wide character that does not fit completely is not shown. */
    for (int i = 0; i < 10; i++) keys[i] = 0x4f60;
    keys[10] = '\r';
    keys[11] = 0;
    expect(&t, e, keys,
           "\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0"
           "\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\n");
    assert_int_equal(t.column, 18);
    /* Text that gets shorter leaves nothing behind. */
    expect(&t, e, KEYS('a', 'b', 'c', OS_KEY_LEFT, 127, '\r'), "ac\n");
    assert_string_equal(t.row, "> ac");
    assert_int_equal(t.column, 3);
    end(&t, e);
}

static void test_completion(void **state) {
    (void)state;
    typing t = {.words = {"bc "}};
    line_edit *e = begin(&t, NULL);
    expect(&t, e, KEYS('a', '\t', 'x', '\r'), "abc x\n");
    expect(&t, e, KEYS('a', '!', OS_KEY_LEFT, '\t', '\r'), "abc !\n");
    t.words[1] = "bd";
    expect(&t, e, KEYS('a', '\t', '\r'), "a\n");
    assert_string_equal(t.row, "> a");
    end(&t, e);
}

static void expect_file(const char *text) {
    char *data;
    size_t n;
    assert_int_equal(file_read(HISTORY, 1000, &data, &n, NULL), PI_OK);
    assert_string_equal(data, text);
    mem_free(data);
}

static void test_history(void **state) {
    (void)state;
    typing t = {.keys = NULL};
    const char *line;
    size_t n;
    unlink(HISTORY);
    line_edit *e = begin(&t, HISTORY);
    expect(&t, e, KEYS(OS_KEY_UP, OS_KEY_DOWN, 'a', '\r'), "a\n");
    expect(&t, e, KEYS('b', '\r'), "b\n");
    expect(&t, e, KEYS('b', '\r'), "b\n"); /* kept once */
    expect(&t, e, KEYS('\r'), "\n");       /* not kept */
    t.keys = KEYS('y', '\r');
    assert_int_equal(line_edit_read(e, "leave? ", false, &line, &n), LINE_DONE);
    expect_file("a\nb\n");
    expect(&t, e, KEYS(OS_KEY_UP, OS_KEY_UP, OS_KEY_UP, '!', '\r'), "a!\n");
    expect(&t, e, KEYS('n', CTRL('P'), CTRL('P'), CTRL('N'), CTRL('N'), CTRL('N'), 'w', '\r'),
           "nw\n");
    expect_file("a\nb\na!\nnw\n");
    line_edit_free(e);
    fclose(t.screen);
    e = begin(&t, HISTORY);
    expect(&t, e, KEYS(OS_KEY_UP, OS_KEY_UP, '\r'), "a!\n");
    end(&t, e);
    unlink(HISTORY);
}

/* Without memory a key has no effect, or the line ends. */
static void test_no_memory(void **state) {
    (void)state;
    typing t = {.words = {"b"}};
    bool failed = true;
    for (int64_t number = 1; failed; number++) {
        line_edit *e = NULL;
        const char *line;
        size_t n;
        t.screen = tmpfile();
        line_edit_options o = {
            .key = next_key, .complete = complete, .user = &t, .screen = t.screen};
        int64_t before = mem_count();
        mem_fail_at(number);
        if (line_edit_create(&o, &e, NULL) == PI_OK) {
            for (int i = 0; i < 2; i++) {
                (void)line_edit_prefill(e, "c");
                t.keys = KEYS('a', '\t', OS_KEY_UP, OS_KEY_DOWN, OS_KEY_LEFT, 127, 'd', '\r');
                if (line_edit_read(e, "> ", true, &line, &n) == LINE_DONE)
                    assert_int_equal(line[n - 1], '\n');
            }
        }
        failed = mem_count() - before >= number;
        mem_fail_at(0);
        end(&t, e);
        assert_true(number < 100);
    }
}

int main(void) {
    terminal_use_locale(); /* widths of characters */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),    cmocka_unit_test(test_ends),
        cmocka_unit_test(test_screen),  cmocka_unit_test(test_completion),
        cmocka_unit_test(test_history), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
