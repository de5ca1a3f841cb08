/* test_base_windows.c: what only Windows has: long paths, files that other programs hold open, the
 * console's events. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include <windows.h>

#include <cmocka.h>

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "os_error.h"
#include "os_file.h"
#include "os_signal.h"
#include "os_terminal.h"
#include "os_text.h"
#include "os_thread.h"

/* ---- paths ----------------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text) {
    pi_error err;
    file_writer *w;
    if (file_writer_open(path, &w, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(file_writer_write(w, text, strlen(text), &err), PI_OK);
    if (file_writer_commit(w, &err) != PI_OK) fail_msg("%s", err.message);
}

static void expect_text(const char *path, const char *text) {
    char *data;
    size_t n;
    pi_error err;
    if (file_read(path, 1000, &data, &n, &err) != PI_OK) fail_msg("%s", err.message);
    assert_string_equal(data, text);
    mem_free(data);
}

/* Names in German, Chinese and with a character of two UTF-16 units. */
static void test_names(void **state) {
    (void)state;
    static const char *const names[] = {"Gr\xc3\xb6\xc3\x9f"
                                        "e.txt",
                                        "\xe6\xa8\xa1\xe5\x9e\x8b.txt", "\xf0\x9f\x8c\x8d.txt"};
    char path[OS_PATH_MAX], real[OS_PATH_MAX];
    int n_seen = 0;
    int problem = os_folder_create("w_\xc3\xbc\xe6\xa8\xa1");
    assert_true(problem == 0 || problem == EEXIST);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "w_\xc3\xbc\xe6\xa8\xa1\\%s", names[i]); /* with a backslash */
        write_text(path, names[i]);
        snprintf(path, sizeof path, "w_\xc3\xbc\xe6\xa8\xa1/%s", names[i]);
        expect_text(path, names[i]);
        assert_true(os_path_real(path, real));
        assert_true(os_path_is_absolute(real));
        assert_null(strchr(real, '\\'));
        assert_string_equal(file_name(real), names[i]);
    }
    os_folder *f = os_folder_open("w_\xc3\xbc\xe6\xa8\xa1");
    assert_non_null(f);
    for (const char *name; (name = os_folder_next(f)); n_seen++) {
        bool known = false;
        for (int i = 0; i < 3; i++) known |= strcmp(name, names[i]) == 0;
        if (!known) fail_msg("%s", name);
    }
    os_folder_close(f);
    assert_int_equal(n_seen, 3);
}

static void test_long_paths(void **state) {
    (void)state;
    enum { LEVELS = 5, LEVEL = 100 };
    char path[OS_PATH_MAX] = "w_long", other[OS_PATH_MAX];
    for (int i = 0; i < LEVELS; i++) {
        size_t n = strlen(path);
        path[n] = '/';
        memset(path + n + 1, 'a' + i, LEVEL);
        path[n + 1 + LEVEL] = '\0';
    }
    memcpy(path + strlen(path), "/file", 6);
    assert_true(strlen(path) > 500);
    assert_int_equal(file_create_folders(path, false, NULL), PI_OK);
    write_text(path, "one");
    write_text(path, "two"); /* replaces it */
    expect_text(path, "two");
    snprintf(other, sizeof other, "%s2", path);
    assert_int_equal(os_path_rename(path, other), 0);
    assert_false(file_exists(path));
    expect_text(other, "two");
    assert_int_equal(os_path_remove(other), 0);
    assert_int_equal(os_path_remove(other), ENOENT);
}

/* ---- files that other programs hold open ----------------------------------------------------- */

/* What another program's handle permits: `share`. */
static HANDLE hold(const char *path, DWORD share) {
    HANDLE h = CreateFileA(path, GENERIC_READ, share, NULL, OPEN_EXISTING, 0, NULL);
    assert_ptr_not_equal(h, INVALID_HANDLE_VALUE);
    return h;
}

static void let_go(void *arg) {
    os_sleep(0.3);
    CloseHandle(arg);
}

/* A scanner that holds the target for a moment delays its replacement. */
static void test_held_for_a_moment(void **state) {
    (void)state;
    static const DWORD shares[] = {0, FILE_SHARE_READ, FILE_SHARE_READ | FILE_SHARE_WRITE};
    for (int i = 0; i < 3; i++) {
        os_thread thread;
        write_text("w_held", "old");
        HANDLE h = hold("w_held", shares[i]);
        assert_int_equal(os_thread_start(&thread, let_go, h), 0);
        write_text("w_held", "new");
        os_thread_join(&thread);
        expect_text("w_held", "new");
    }
}

/* One that holds it for long: an error in words, and the old bytes stay. */
static void test_held_for_long(void **state) {
    (void)state;
    pi_error err;
    file_writer *w;
    write_text("w_held", "old");
    HANDLE h = hold("w_held", FILE_SHARE_READ | FILE_SHARE_WRITE);
    assert_int_equal(file_writer_open("w_held", &w, &err), PI_OK);
    assert_int_equal(file_writer_write(w, "new", 3, &err), PI_OK);
    assert_int_equal(file_writer_commit(w, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "cannot replace file: "));
    assert_non_null(strstr(err.message, "/w_held: another program has it open"));
    CloseHandle(h);
    expect_text("w_held", "old");
    h = hold("w_held", FILE_SHARE_READ);
    assert_int_equal(file_writer_open("w_held", &w, &err), PI_ERR_IO);
    assert_string_equal(err.message, "cannot overwrite file: w_held: another program has it open");
    CloseHandle(h);
}

/* ---- threads and events ---------------------------------------------------------------------- */

typedef struct ball {
    atomic_uint word;
} ball;

enum { ROUNDS = 2000 };

/* Waits for odd values and makes them even. */
static void return_ball(void *arg) {
    ball *b = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        while (atomic_load(&b->word) != 2 * i + 1) os_word_wait(&b->word, 2 * i);
        atomic_store(&b->word, 2 * i + 2);
        os_word_wake_all(&b->word);
    }
}

static void test_two_threads_on_a_word(void **state) {
    (void)state;
    ball b = {.word = 0};
    os_thread thread;
    assert_int_equal(os_thread_start(&thread, return_ball, &b), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        atomic_store(&b.word, 2 * i + 1);
        os_word_wake_all(&b.word);
        while (atomic_load(&b.word) != 2 * i + 2) os_word_wait(&b.word, 2 * i + 1);
    }
    os_thread_join(&thread);
}

static atomic_int seen;

static void on_request(int number) {
    atomic_store(&seen, number);
}

/* The part of this program that gets the event, in a separate console. */
static int wait_for_event(void) {
    os_signals_on_request(on_request);
    if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)) return 77;
    double end = clock_seconds() + 20;
    while (!atomic_load(&seen) && clock_seconds() < end) os_sleep(0.01);
    return atomic_load(&seen);
}

static const char page[1];

enum { FAULT_SEEN = 7 };

static void on_fault(const void *address) {
    os_end(address == page ? FAULT_SEEN : 1);
}

/* The part of this program that raises what the system raises for a page that cannot be read. */
static int raise_fault(void) {
    const ULONG_PTR details[3] = {0 /* a read */, (ULONG_PTR)page,
                                  0xC000003Eu /* of a bad drive */};
    os_signals_on_fault(on_fault);
    RaiseException((DWORD)EXCEPTION_IN_PAGE_ERROR, 0, 3, details);
    return 0;
}

/* Runs a part of this program in a separate console; returns its status. */
static DWORD run_part(const wchar_t *part) {
    wchar_t program[MAX_PATH], line[MAX_PATH + 16];
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child;
    DWORD status = 0;
    assert_true(GetModuleFileNameW(NULL, program, MAX_PATH) < MAX_PATH);
    swprintf(line, MAX_PATH + 16, L"\"%ls\" %ls", program, part);
    assert_true(CreateProcessW(NULL, line, NULL, NULL, FALSE, CREATE_NEW_CONSOLE, NULL, NULL,
                               &start, &child));
    WaitForSingleObject(child.hProcess, INFINITE);
    assert_true(GetExitCodeProcess(child.hProcess, &status));
    CloseHandle(child.hProcess);
    CloseHandle(child.hThread);
    return status;
}

static void test_console_event(void **state) {
    (void)state;
    DWORD status = run_part(L"event");
    if (status == 77) skip();    /* no console */
    assert_int_equal(status, 2); /* SIGINT */
}

static void test_unreadable_page(void **state) {
    (void)state;
    assert_int_equal(run_part(L"fault"), FAULT_SEEN);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void test_texts(void **state) {
    (void)state;
    assert_int_equal(os_character_width("a", 1), 1);
    assert_int_equal(os_character_width("\xc3\xbc", 2), 1);         /* u with diaeresis */
    assert_int_equal(os_character_width("\xe6\xa8\xa1", 3), 2);     /* Chinese */
    assert_int_equal(os_character_width("\xf0\x9f\x8c\x8d", 4), 2); /* the globe */
    assert_int_equal(os_character_width("\xcc\x81", 2), 0);         /* a combining accent */
    assert_int_equal(os_character_width("\x07", 1), -1);
    assert_true(os_pattern_matches("[!a-c]*x?z", "dax*z"));
    assert_false(os_pattern_matches("[!a-c]*", "b"));
    assert_true(os_pattern_matches("[]]", "]"));
    assert_true(os_pattern_matches("a**b*", "a--b"));
    assert_true(os_path_is_absolute("C:\\x") && os_path_is_absolute("//host/share"));
    assert_false(os_path_is_absolute("C:x") || os_path_is_absolute("x/y"));
    assert_string_equal(file_name("C:\\models\\a.gguf"), "a.gguf");
    assert_string_equal(file_name("C:a.gguf"), "a.gguf");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "event") == 0) return wait_for_event();
    if (argc == 2 && strcmp(argv[1], "fault") == 0) return raise_fault();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_long_paths),
        cmocka_unit_test(test_held_for_a_moment),
        cmocka_unit_test(test_held_for_long),
        cmocka_unit_test(test_two_threads_on_a_word),
        cmocka_unit_test(test_console_event),
        cmocka_unit_test(test_unreadable_page),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
