/* test_base_os.c: the layer over the operating system, where no other test reaches it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ascii_case.h"
#include "clock.h"
#include "mem.h"
#include "os_error.h"
#include "os_file.h"
#include "os_memory.h"
#include "os_signal.h"
#include "os_socket.h"
#include "os_text.h"
#include "os_thread.h"

/* ---- files ----------------------------------------------------------------------------------- */

static void make_file(const char *path, const char *text) {
    os_file f;
    assert_int_equal(os_file_open(path, OS_READ | OS_WRITE | OS_CREATE, &f), 0);
    assert_int_equal(os_file_resize(f, 0), 0);
    assert_int_equal(os_file_write(f, text, strlen(text)), 0);
    assert_int_equal(os_file_close(f), 0);
}

static void test_open_files(void **state) {
    (void)state;
    char text[16];
    size_t n;
    os_file f;
    os_info info;
    (void)os_path_remove("os_a");
    assert_int_equal(os_file_open("os_a", OS_READ, &f), ENOENT);
    assert_int_equal(f, OS_FILE_NONE);
    assert_int_equal(os_file_open("os_a", OS_READ | OS_WRITE | OS_CREATE | OS_NEW, &f), 0);
    assert_int_equal(os_file_write(f, "abcdef", 6), 0);
    assert_int_equal(os_file_write_at(f, "XY", 2, 2), 0);
    assert_int_equal(os_file_position(f), 6);
    assert_int_equal(os_file_seek(f, 1), 0);
    assert_int_equal(os_file_read(f, text, sizeof text, &n), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(text, "bXYef", 5);
    assert_int_equal(os_file_read_at(f, text, 2, 6, &n), 0);
    assert_int_equal(n, 0); /* the end */
    assert_true(os_file_is_writable(f));
    assert_false(os_file_appends(f));
    assert_int_equal(os_file_info(f, &info), 0);
    assert_int_equal(info.kind, OS_REGULAR);
    assert_int_equal(info.size, 6);
    assert_int_equal(info.n_names, 1);
    assert_true(os_file_room(f) > 0);
    assert_int_equal(os_file_close(f), 0);
    assert_int_equal(os_file_open("os_a", OS_WRITE | OS_CREATE | OS_NEW, &f), EEXIST);
}

static void test_locks(void **state) {
    (void)state;
    os_file a, b;
    make_file("os_a", "");
    assert_int_equal(os_file_open("os_a", OS_READ | OS_WRITE, &a), 0);
    assert_int_equal(os_file_open("os_a", OS_READ | OS_WRITE, &b), 0);
    assert_int_equal(os_file_lock(a), 0);
    assert_int_equal(os_file_lock(b), EWOULDBLOCK);
    os_file_close(a);
    assert_int_equal(os_file_lock(b), 0);
    os_file_close(b);
}

static void test_names(void **state) {
    (void)state;
    int n_seen = 0;
    os_info info;
    char real[OS_PATH_MAX];
    (void)os_path_remove("os_folder/a");
    (void)os_path_remove("os_folder/b");
    int problem = os_folder_create("os_folder");
    assert_true(problem == 0 || problem == EEXIST);
    assert_int_equal(os_folder_create("os_folder"), EEXIST);
    make_file("os_folder/a", "1");
    make_file("os_folder/b", "22");
    assert_false(os_path_same("os_folder/a", "os_folder/b"));
    os_folder *folder = os_folder_open("os_folder");
    assert_non_null(folder);
    for (const char *name; (name = os_folder_next(folder)); n_seen++)
        assert_true(strcmp(name, "a") == 0 || strcmp(name, "b") == 0);
    os_folder_close(folder);
    assert_int_equal(n_seen, 2);
    assert_int_equal(os_path_rename("os_folder/b", "os_folder/a"), 0); /* replaces it */
    assert_int_equal(os_path_info("os_folder/a", &info), 0);
    assert_int_equal(info.size, 2);
    assert_int_equal(os_path_link("os_folder/a", "os_folder/b"), 0);
    assert_int_equal(os_path_link("os_folder/a", "os_folder/b"), EEXIST);
    assert_true(os_path_same("os_folder/a", "os_folder/b"));
    assert_true(os_path_real("os_folder/../os_folder/a", real));
    assert_true(os_path_same("os_folder/a", real));
    assert_false(os_path_real("os_folder/missing", real));
    assert_int_equal(os_path_check("os_folder/missing", OS_MAY_READ), ENOENT);
    assert_int_equal(os_path_check("os_folder", OS_MAY_READ | OS_MAY_ENTER), 0);
    assert_null(os_folder_open("os_missing"));
    assert_int_equal(os_path_info("os_folder", &info), 0);
    assert_int_equal(info.kind, OS_FOLDER);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The same shared memory at two addresses, and private memory between them. */
static void test_shared_memory(void **state) {
    (void)state;
    size_t page = os_page_size(), unit = os_shared_unit();
    assert_int_equal(unit % page, 0);
    uint8_t *at = os_memory_reserve(4 * unit), *own = at + 2 * unit, *second = at + 3 * unit;
    assert_non_null(at);
    os_shared s = os_shared_create(2 * unit);
    assert_int_not_equal(s, OS_SHARED_NONE);
    assert_int_equal(os_shared_map(s, 0, at, 2 * unit), 0);
    assert_int_equal(os_shared_map(s, unit, second, page), 0);
    assert_int_equal(os_memory_commit(own, page), 0);
    os_shared_close(s);
    at[unit + 7] = 42;
    assert_int_equal(second[7], 42);
    assert_int_equal(own[7], 0);
    own[7] = 1;
    os_memory_forget(at, 2 * unit);
    assert_int_equal(at[unit + 7], 42);
    os_memory_unmap(at, 4 * unit);
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct meeting {
    os_mutex mutex;
    os_condition changed;
    os_event event;
    atomic_uint word;
    int n;
} meeting;

static void take_part(void *arg) {
    meeting *m = arg;
    os_mutex_lock(&m->mutex);
    m->n++;
    os_condition_broadcast(&m->changed);
    os_mutex_unlock(&m->mutex);
    while (atomic_load(&m->word) == 0) os_word_wait(&m->word, 0);
    os_event_set(&m->event);
}

static void test_threads(void **state) {
    (void)state;
    enum { N = 4 };
    os_thread threads[N];
    meeting m = {.n = 0};
    assert_int_equal(os_mutex_init(&m.mutex), 0);
    assert_int_equal(os_condition_init(&m.changed), 0);
    assert_int_equal(os_event_create(&m.event), 0);
    os_mutex_lock(&m.mutex);
    double start = clock_seconds();
    while (os_condition_wait_until(&m.changed, &m.mutex, start + 0.02)) continue;
    assert_true(clock_seconds() - start >= 0.02);
    for (int i = 0; i < N; i++) assert_int_equal(os_thread_start(&threads[i], take_part, &m), 0);
    while (m.n < N) os_condition_wait(&m.changed, &m.mutex);
    os_mutex_unlock(&m.mutex);
    atomic_store(&m.word, 1);
    os_word_wake_all(&m.word);
    for (int i = 0; i < N; i++) os_thread_join(&threads[i]);
    start = clock_seconds();
    os_event_wait(&m.event, 60); /* it is set: returns at once */
    assert_true(clock_seconds() - start < 30);
    os_event_close(&m.event);
    os_condition_destroy(&m.changed);
    os_mutex_destroy(&m.mutex);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void test_streams(void **state) {
    (void)state;
    os_text t;
    assert_true(os_text_open(&t));
    fprintf(t.file, "%d bytes", 7);
    assert_true(os_text_close(&t));
    assert_string_equal(t.text, "7 bytes");
    assert_int_equal(t.n, 7);
    mem_free(t.text);
}

static void test_texts(void **state) {
    (void)state;
    char buf[128];
    const char *text = "one two";
    assert_ptr_equal(os_find(text, 7, "two", 3), text + 4);
    assert_null(os_find(text, 6, "two", 3));
    assert_ptr_equal(os_find(text, 7, "", 0), text);
    assert_true(os_pattern_matches("blk.*.ffn_[ud]*", "blk.3.ffn_up"));
    assert_false(os_pattern_matches("blk.?", "blk.12"));
    assert_true(ascii_same("Content-Length", "content-length"));
    assert_false(ascii_same("abc", "ab"));
    assert_true(ascii_same_n("https://x", "HTTPS://y", 8));
    assert_false(ascii_same_n("http", "https://", 8));
    assert_string_equal(os_error_text(ENOENT, buf, sizeof buf), "No such file or directory");
}

static void test_times(void **state) {
    (void)state;
    const struct tm time = {
        .tm_year = 125, .tm_mon = 6, .tm_mday = 6, .tm_wday = 0, .tm_yday = 186};
    char text[64];
    size_t n = clock_format(text, sizeof text, "%F %T %e %-d %b%n%D %%", &time);
    assert_string_equal(text, "2025-07-06 00:00:00  6 6 Jul\n07/06/25 %");
    assert_int_equal(n, strlen(text));
    assert_int_equal(clock_format(text, 10, "%F", &time), 0); /* no room for the NUL */
}

static void test_addresses(void **state) {
    (void)state;
    assert_true(os_address_is_loopback("127.0.0.1"));
    assert_true(os_address_is_loopback("127.1.2.3"));
    assert_true(os_address_is_loopback("::1"));
    assert_false(os_address_is_loopback("128.0.0.1"));
    assert_false(os_address_is_loopback("localhost"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_files), cmocka_unit_test(test_locks),
        cmocka_unit_test(test_names),      cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_streams),
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
