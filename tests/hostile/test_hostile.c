/* test_hostile.c: runs the cases of the tables. Each case gets a fresh folder and runs the
 * program's main() in this process. `test_hostile --print` shows the messages, for writing new
 * cases. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_inside.h"
#include "cli_shell.h"
#include "hf_folder.h"
#include "hostile.h"

enum { MAX_WORDS = 24, LINE_ROOM = 512 };

static bool print_only;
static char home[LINE_ROOM]; /* path of the shell's folder */

void hostile_write(const char *name, const void *data, size_t n_bytes) {
    shell_write(name, data, n_bytes);
}

void hostile_write_text(const char *name, const char *text) {
    hostile_write(name, text, strlen(text));
}

void hostile_write_bytes(const char *name, const bytes *b) {
    hostile_write(name, b->data, b->n);
}

unsigned char *hostile_read(const char *name, size_t *n_bytes) {
    const char *data = shell_read(name, n_bytes);
    unsigned char *copy = malloc(*n_bytes ? *n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, *n_bytes);
    return copy;
}

/* ---- one case -------------------------------------------------------------------------------- */

void hostile_enter_fresh_folder(void) {
    assert_int_equal(chdir(home), 0);
    assert_int_equal(system("rm -rf case && cp -R fresh case"), 0);
    assert_int_equal(chdir("case"), 0);
}

cli_result hostile_run(const char *line) {
    char text[LINE_ROOM];
    const char *words[MAX_WORDS];
    int n = 0;
    assert_true((size_t)snprintf(text, sizeof text, "%s", line) < sizeof text);
    for (char *at = text; *at;) {
        assert_true(n < MAX_WORDS);
        words[n++] = at;
        at += strcspn(at, " ");
        if (*at) *at++ = 0;
    }
    return cli_inside(n, words);
}

/* Compares exactly, or up to a * at the end of `message`. */
static bool is_expected(const char *said, const char *message) {
    static const char start[] = "powerinfer: ";
    if (!message) return *said == 0;
    size_t n = strlen(message);
    if (strncmp(said, start, strlen(start)) != 0) return false;
    said += strlen(start);
    if (message[n - 1] == '*') return strncmp(said, message, n - 1) == 0;
    return strncmp(said, message, n) == 0 && strcmp(said + n, "\n") == 0;
}

static bool check(const hostile_case *c, const cli_result *r) {
    if (print_only) {
        printf("%s\t%d\t%s", c->what, r->status, *r->err ? r->err : "(nothing)\n");
        return true;
    }
    bool good = r->status == c->status && is_expected(r->err, c->message) &&
                (!c->message || cli_is_message(r->err));
    if (!good)
        print_error("%s: expected status %d: %s\n  was %d: %s\n", c->what, c->status,
                    c->message ? c->message : "(nothing)", r->status, r->err);
    return good;
}

static void go_through(const hostile_case *cases, size_t n) {
    int n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        hostile_enter_fresh_folder();
        cases[i].make(cases[i].argument);
        cli_result r = hostile_run(cases[i].line);
        n_bad += !check(&cases[i], &r);
        cli_result_free(&r);
        if (shell_temporaries() != 0 || shell_has("result")) {
            print_error("%s: a file is left\n", cases[i].what);
            n_bad++;
        }
    }
    if (n_bad) fail_msg("%d of %zu cases", n_bad, n);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void test_gguf(void **state) {
    (void)state;
    go_through(hostile_gguf, hostile_n_gguf);
}

static void test_model(void **state) {
    (void)state;
    go_through(hostile_model, hostile_n_model);
}

static void test_folder(void **state) {
    (void)state;
#ifdef TEST_HAS_JSON
    go_through(hostile_folder, hostile_n_folder);
#else
    print_message("*** SKIPPED: built without jansson ***\n");
    skip();
#endif
}

static void test_other(void **state) {
    (void)state;
    go_through(hostile_other, hostile_n_other);
}

/* Writes hf/ with hf_folder.c and moves it here. */
static void make_folder(void) {
    char line[LINE_ROOM + FOLDER_PATH];
    static hf_folder f;
    model_shape shape = shape_tiny("llama");
    folder_open(&f);
    folder_write_model(&f, &shape);
    snprintf(line, sizeof line, "mkdir hf && mv '%s'/* hf/", f.dir);
    assert_int_equal(system(line), 0);
    folder_close(&f);
}

static int setup(void **state) {
    if (shell_setup(state) != 0 || !getcwd(home, sizeof home)) return -1;
    if (sh("mkdir fresh && mv model.gguf fresh/") != 0 || chdir("fresh") != 0) return -1;
    char text[256];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i % 7 ? 'a' + i * i % 26 : ' ');
    hostile_write("text", text, sizeof text);
    hostile_write_text("ids", "260 261 262\n");
    make_folder();
    return 0;
}

int main(int argc, char **argv) {
    print_only = argc > 1 && strcmp(argv[1], "--print") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_other),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_bundled_weights),
        cmocka_unit_test(test_bundled_experts),
        cmocka_unit_test(test_folder_weights),
        cmocka_unit_test(test_found_weights),
    };
    return cmocka_run_group_tests_name("hostile", tests, setup, shell_teardown);
}
