/* test_cli_typing.c: powerinfer chat on a terminal: characters of any language, keys, completion,
 * questions before the end, colors, narrow terminals. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "clock.h"

#define CHAT   "exec $PI chat --no-history --temp 0 -n 24 "
#define CTRL_C "\003"
#define CTRL_D "\004"

enum { SCREEN_MAX = 1 << 16, WAIT_SECONDS = 30 };

static struct {
    int screen;
    pid_t pid;
    char shown[SCREEN_MAX]; /* output since the last wait_for */
    size_t n;
} person;

static void sit_down(const char *line, int columns) {
    int screen = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(screen >= 0 && grantpt(screen) == 0 && unlockpt(screen) == 0);
    const char *name = ptsname(screen);
    struct winsize size = {.ws_row = 30, .ws_col = (unsigned short)columns};
    pid_t pid = fork();
    assert_int_not_equal(pid, -1);
    if (pid == 0) {
        setsid();
        int terminal = open(name, O_RDWR); /* the controlling terminal */
        if (terminal < 0 || ioctl(terminal, TIOCSWINSZ, &size) != 0) _exit(127);
        for (int fd = 0; fd < 3; fd++) dup2(terminal, fd);
        close(terminal);
        close(screen);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    person.screen = screen;
    person.pid = pid;
    person.n = 0;
}

/* Reads until `text` has been shown; returns all output up to its end. */
static const char *wait_for(const char *text) {
    static char before[SCREEN_MAX];
    double end = clock_seconds() + WAIT_SECONDS;
    for (;;) {
        person.shown[person.n] = 0;
        const char *found = strstr(person.shown, text);
        if (found) {
            size_t used = (size_t)(found - person.shown) + strlen(text);
            memcpy(before, person.shown, used);
            before[used] = 0;
            person.n -= used;
            memmove(person.shown, person.shown + used, person.n);
            return before;
        }
        struct pollfd fd = {.fd = person.screen, .events = POLLIN};
        ssize_t n = 0;
        if (poll(&fd, 1, 1000) == 1)
            n = read(person.screen, person.shown + person.n, SCREEN_MAX - 1 - person.n);
        if (n > 0) person.n += (size_t)n;
        if (n < 0 || clock_seconds() > end)
            fail_msg("\"%s\" was not shown, but: %s", text, person.shown);
    }
}

static void type(const char *keys) {
    assert_int_equal(write(person.screen, keys, strlen(keys)), strlen(keys));
}

/* Types a line and waits for the next prompt. */
static void enter(const char *line, const char *answer) {
    type(line);
    type("\r");
    wait_for(answer);
    wait_for("> ");
}

/* Waits for the program's end and returns its exit status. */
static int stand_up(void) {
    int status;
    char rest[256];
    while (read(person.screen, rest, sizeof rest) > 0) continue;
    close(person.screen);
    assert_int_equal(waitpid(person.pid, &status, 0), person.pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- input ----------------------------------------------------------------------------------- */

static void test_any_language(void **state) {
    (void)state;
    static const char *const places[] = {"export LC_ALL=C; ", "export LC_ALL=C.UTF-8; ",
                                         "unset LC_ALL LC_CTYPE LANG; ", "export LANG=POSIX; "};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s" CHAT "--color off", places[i]);
        unlink("talk");
        sit_down(line, 80);
        wait_for("novella-7m: llama, q8_0, context of 1024 tokens");
        wait_for("> ");
        enter("Grüße 你好 café", "\n");
        enter("/save talk", "saved talk: 2 messages");
        type("/edit\r");
        wait_for("\n");
        wait_for("Grüße 你好 café"); /* the line to edit */
        type(CTRL_C);                /* the conversation is unchanged */
        enter("/save talk", "saved talk: 2 messages");
        type("/edit\r");
        wait_for("\n");
        wait_for("café");
        type("s!\r");
        wait_for("\n");
        wait_for("> ");
        enter("/save again", "saved again: 2 messages");
        type("/bye\r");
        assert_int_equal(stand_up(), 0);
        assert_contains("talk", "{\"role\":\"user\",\"content\":\"Grüße 你好 café\"}\n");
        assert_contains("again", "{\"role\":\"user\",\"content\":\"Grüße 你好 cafés!\"}\n");
    }
}

static void test_keys(void **state) {
    (void)state;
    sit_down(CHAT, 80);
    wait_for("> ");
    type("half of a line" CTRL_C);
    enter("The king\\\rof France", "\n"); /* two lines */
    enter("/save talk", "saved talk: 2 messages");
    assert_contains("talk", "{\"role\":\"user\",\"content\":\"The king\\nof France\"}\n");
    type("one\\\r");
    wait_for(". ");
    type("two" CTRL_C CTRL_C); /* clears this line, then the message */
    wait_for("> ");
    type(CTRL_C);
    wait_for("leave? [y/n] ");
    type("n\r");
    wait_for("> ");
    enter("/system Be brief.", "system message set");
    enter("/clear", "new conversation with the same system message");
    enter("/system", "system message removed");
    enter("/clear", "new conversation");
    type(CTRL_C);
    wait_for("leave? [y/n] ");
    type(CTRL_C);
    assert_int_equal(stand_up(), 0);
}

static void test_completion(void **state) {
    (void)state;
    shell_write("conversation-1", "", 0);
    sit_down(CHAT, 80);
    wait_for("> ");
    type("/sa\tconv\t\r");
    wait_for("saved conversation-1: 0 messages");
    wait_for("> ");
    type("/s\t");
    wait_for("/save  /stats  /system");
    type("t\t\r");
    wait_for("context: ");
    wait_for("> ");
    enter("a\tb", "\n"); /* a message, not a command */
    enter("/save conversation-1", "saved");
    assert_contains("conversation-1", "\"content\":\"a\\tb\"");
    type(CTRL_D);
    assert_int_equal(stand_up(), 0);
}

static void test_leaving(void **state) {
    (void)state;
    static const char *const ways[] = {"/bye\r", "/exit\r", CTRL_D, CTRL_C "y\r"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        unlink("kept");
        sit_down(CHAT, 80);
        wait_for("> ");
        enter("The king", "\n");
        type(ways[i]);
        wait_for("save to file (Enter: do not save): ");
        if (i == 0) { /* asks again after a wrong name */
            type("nowhere/kept\r");
            wait_for("powerinfer: ");
            wait_for("save to file (Enter: do not save): ");
        }
        type(i % 2 ? "\r" : "kept\r");
        assert_int_equal(stand_up(), 0);
        assert_int_equal(shell_has("kept"), i % 2 == 0);
    }
    /* Without messages there is no question. */
    sit_down(CHAT, 80);
    wait_for("> ");
    enter("The king", "\n");
    enter("/clear", "new conversation");
    type("/bye\r");
    assert_int_equal(stand_up(), 0);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void test_colors(void **state) {
    (void)state;
    static const struct {
        const char *begin, *options;
        bool colors;
    } cases[] = {{"", "", true},
                 {"NO_COLOR=1 ", "", false},
                 {"NO_COLOR= ", "", true},
                 {"TERM=dumb ", "", false},
                 {"", "--color off", false},
                 {"", "-co 0", false},
                 {"NO_COLOR=1 ", "-co -n 1", true},
                 {"NO_COLOR=1 ", "--color=on", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s$PI chat --no-history %s", cases[i].begin, cases[i].options);
        sit_down(line, 80);
        const char *shown = wait_for("Ctrl-D leaves");
        assert_int_equal(strstr(shown, "\033[1mnovella-7m\033[0m") != NULL, cases[i].colors);
        shown = wait_for("> ");
        assert_int_equal(strstr(shown, "\033[32m") != NULL, cases[i].colors);
        type(CTRL_D);
        assert_int_equal(stand_up(), 0);
    }
    assert_int_equal(sh("$PI chat --temp 0 -n 2 -p a"), 0);
    assert_null(strchr(shell_read("err", NULL), '\033'));
    assert_int_equal(sh("$PI chat --color on --temp 0 -n 2 -p a"), 0);
    assert_contains("err", "\033[1mnovella-7m\033[0m: ");
    assert_wrong("$PI chat --color=red",
                 "powerinfer: invalid value: --color \"red\": expected one of auto, on, off\n");
}

/* No line is wider than the terminal, and no word is broken. */
static void test_narrow(void **state) {
    (void)state;
    char expected[4096] = "", words[4096] = "";
#define STORY "-p 'It was a cold night and the' --temp 0 -n 90 "
    assert_int_equal(sh("$PI chat -q " STORY), 0);
    snprintf(expected, sizeof expected, "%s", shell_read("out", NULL));
    sit_down("exec $PI chat -q -st " STORY, 40);
    int column = 0, lines = 0;
    size_t n = 0;
    for (ssize_t got; n < sizeof words && (got = read(person.screen, words + n, 1)) > 0;) {
        if (words[n] == '\n') {
            lines++;
            column = 0;
        } else if (words[n] != '\r') {
            column++;
        }
        assert_true(column <= 40);
        if (words[n] != '\r') n++;
    }
    stand_up();
    assert_true(lines > 4);
    char *e = expected, *w = words;
    for (;;) { /* compares the words */
        e += strspn(e, " \n");
        w += strspn(w, " \n");
        size_t length = strcspn(e, " \n");
        assert_int_equal(length, strcspn(w, " \n"));
        assert_memory_equal(e, w, length);
        if (length == 0) break;
        e += length;
        w += length;
    }
}

int main(void) {
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_language), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_completion),   cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_colors),       cmocka_unit_test(test_narrow),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
