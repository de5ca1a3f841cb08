/* test_base_file.c: mapping, reading and atomic writing, and above all what remains after a
 * failure. Each test works in a fresh folder, which must contain only the expected files at the
 * end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "mem.h"

static char folder[PATH_MAX];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/base-file-XXXXXX", TEST_BINARY_DIR);
    return mkdtemp(folder) ? 0 : -1;
}

static int count_entries(void) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = -2; /* "." and ".." */
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static int remove_folder(void **state) {
    (void)state;
    DIR *dir = opendir(folder);
    if (!dir || chdir(TEST_BINARY_DIR) != 0) return -1;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char path[PATH_MAX];
        if (e->d_name[0] == '.' && strlen(e->d_name) <= 2) continue;
        if (file_join(path, sizeof path, folder, e->d_name) && remove(path) != 0) (void)rmdir(path);
    }
    closedir(dir);
    return rmdir(folder);
}

/* The last four results stay valid. */
static const char *in_folder(const char *name) {
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    assert_true(file_join(path, PATH_MAX, folder, name));
    return path;
}

static void write_file(const char *path, const char *text) {
    file_writer *w = NULL;
    assert_int_equal(file_writer_open(path, &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, text, strlen(text), NULL), PI_OK);
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
}

static void expect_content(const char *path, const char *text) {
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 1000, &data, &n, NULL), PI_OK);
    assert_int_equal(n, strlen(text));
    assert_string_equal(data, text);
    mem_free(data);
}

static void test_write_then_read(void **state) {
    (void)state;
    enum { N = 700001 }; /* bytes: more than two buffers, odd */
    uint8_t *bytes = mem_alloc(N);
    assert_non_null(bytes);
    for (size_t i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    file_writer *w = NULL;
    const char *path = in_folder("data.bin");
    assert_int_equal(file_writer_open(path, &w, NULL), PI_OK);
    assert_false(file_exists(path));
    size_t pieces[] = {1, 0, 300000, 99999, 262144, 37857};
    size_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        assert_int_equal(file_writer_write(w, bytes + at, pieces[i], NULL), PI_OK);
        at += pieces[i];
        assert_int_equal(file_writer_offset(w), at);
    }
    assert_int_equal(at, N);
    assert_int_equal(file_writer_zeros(w, 10000, NULL), PI_OK);
    assert_int_equal(file_writer_patch(w, 299990, "patched", 7, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, "end", 3, NULL), PI_OK);
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
    memcpy(bytes + 299990, "patched", 7);

    for (int copy = 0; copy < 2; copy++) {
        file_map map;
        assert_int_equal(file_map_open(&map, path, copy, NULL), PI_OK);
        assert_int_equal(map.copied, copy);
        assert_int_equal(map.size, N + 10003);
        assert_memory_equal(map.data, bytes, N);
        for (size_t i = N; i < N + 10000; i++) assert_int_equal(map.data[i], 0);
        assert_memory_equal(map.data + N + 10000, "end", 3);
        file_map_close(&map);
        assert_null(map.data);
        file_map_close(&map);
    }
    mem_free(bytes);
    assert_int_equal(count_entries(), 1);
}

#if !defined(_WIN32) /* permissions and links of POSIX */
static void test_replaces_and_keeps_links(void **state) {
    (void)state;
    char target[PATH_MAX], link[PATH_MAX];
    snprintf(target, sizeof target, "%s", in_folder("target"));
    snprintf(link, sizeof link, "%s", in_folder("link"));
    write_file(target, "old");
    assert_int_equal(chmod(target, 0640), 0);
    assert_int_equal(symlink("target", link), 0);
    write_file(link, "new");
    expect_content(target, "new");
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(count_entries(), 2);
}

#endif

static void test_abort_leaves_the_old_file(void **state) {
    (void)state;
    const char *path = in_folder("kept");
    write_file(path, "old");
    file_writer *w = NULL;
    assert_int_equal(file_writer_open(path, &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, "half", 4, NULL), PI_OK);
    expect_content(path, "old");
    file_writer_abort(w);
    file_writer_abort(NULL);
    assert_int_equal(count_entries(), 1);
    expect_content(path, "old");
}

static void test_failures_to_open(void **state) {
    (void)state;
    const struct {
        const char *path;
        const char *message;
    } cases[] = {
        {"no/such/folder/file", "No such file"},
        {".", "folder"},
        {"", "not a file name"},
        {"slash/", "not a file name"},
    };
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pi_error err = {0};
        file_writer *w = NULL;
        assert_int_equal(file_writer_open(cases[i].path, &w, &err), PI_ERR_IO);
        assert_null(w);
        assert_non_null(strstr(err.message, cases[i].message));
    }
    assert_int_equal(count_entries(), 0);
#if !defined(_WIN32)
    if (geteuid() != 0) { /* root may write anywhere */
        assert_int_equal(chmod(folder, 0500), 0);
        pi_error err = {0};
        file_writer *w = NULL;
        assert_int_equal(file_writer_open("denied", &w, &err), PI_ERR_IO);
        assert_non_null(strstr(err.message, "denied"));
        assert_int_equal(chmod(folder, 0700), 0);
        assert_int_equal(count_entries(), 0);
    }
#endif
}

static void test_full_device(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        fprintf(stderr, "*** SKIPPED: no /dev/full on this system ***\n");
        skip();
    }
    pi_error err = {0};
    file_writer *w = NULL;
    assert_int_equal(file_writer_open("/dev/full", &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, "x", 1, NULL), PI_OK); /* buffered */
    assert_int_equal(file_writer_commit(w, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "/dev/full: No space"));

    /* A caller that ignores a failed write must still see it at commit. */
    assert_int_equal(file_writer_open("/dev/full", &w, NULL), PI_OK);
    assert_int_equal(file_writer_zeros(w, 1 << 20, &err), PI_ERR_IO);
    assert_int_equal(file_writer_commit(w, &err), PI_ERR_IO);

    assert_int_equal(file_writer_open("/dev/null", &w, NULL), PI_OK);
    assert_int_equal(file_writer_zeros(w, 1 << 20, NULL), PI_OK);
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
}

/* The target becomes a folder during writing: rename fails. */
static void test_failed_rename(void **state) {
    (void)state;
    const char *path = in_folder("becomes");
    file_writer *w = NULL;
    pi_error err = {0};
    assert_int_equal(file_writer_open(path, &w, NULL), PI_OK);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(file_writer_commit(w, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "becomes"));
    assert_int_equal(count_entries(), 1);
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    const char *path = in_folder("file");
    write_file(path, "0123456789");
    file_writer *w = NULL;
    mem_fail_at(1);
    assert_int_equal(file_writer_open(in_folder("other"), &w, NULL), PI_ERR_NOMEM);
    assert_null(w);
    file_map map;
    mem_fail_at(1);
    assert_int_equal(file_map_open(&map, path, true, NULL), PI_ERR_NOMEM);
    char *data = NULL;
    size_t n = 0;
    bool done = false;
    for (int i = 1; !done; i++) {
        mem_fail_at(i);
        pi_status status = file_read(path, 100000, &data, &n, NULL);
        done = status == PI_OK;
        if (!done) assert_int_equal(status, PI_ERR_NOMEM);
        assert_true(i < 100);
    }
    mem_fail_at(0);
    mem_free(data);
    assert_int_equal(count_entries(), 1);
}

static void test_read_limits(void **state) {
    (void)state;
    const char *path = in_folder("ten");
    write_file(path, "0123456789");
    char *data = NULL;
    size_t n = 0;
    pi_error err = {0};
    assert_int_equal(file_read(path, 10, &data, &n, NULL), PI_OK);
    assert_int_equal(n, 10);
    assert_int_equal(data[10], 0);
    mem_free(data);
    assert_int_equal(file_read(path, 9, &data, &n, &err), PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "9 bytes"));
    assert_int_equal(file_read(path, SIZE_MAX, &data, &n, NULL), PI_OK);
    mem_free(data);
    assert_int_equal(file_read(folder, 100, &data, &n, &err), PI_ERR_IO);
    assert_int_equal(file_read(in_folder("none"), 100, &data, &n, &err), PI_ERR_IO);
    write_file(path, "");
    expect_content(path, "");
}

/* Bytes that are written stay with their map. */
static void test_private_map(void **state) {
    (void)state;
    const char *path = in_folder("private");
    file_map map, other;
    uint64_t offset;
    write_file(path, "as in the file");
    assert_int_equal(file_map_private(&map, path, NULL), PI_OK);
    assert_int_equal(map.size, 14);
    assert_memory_equal(map.data, "as in the file", map.size);
    memcpy((uint8_t *)(uintptr_t)map.data + 3, "written", 7);
    assert_memory_equal(map.data, "as writtenfile", map.size);
    assert_int_equal(file_map_open(&other, path, false, NULL), PI_OK);
    assert_memory_equal(other.data, "as in the file", other.size);
    assert_string_equal(file_map_path_at(map.data + 5, &offset), path);
    assert_int_equal(offset, 5);
    file_map_close(&other);
    file_map_close(&map);
    assert_int_equal(file_map_private(&map, folder, NULL), PI_ERR_IO);
}

static void test_map_refusals(void **state) {
    (void)state;
    file_map map;
    pi_error err = {0};
    assert_int_equal(file_map_open(&map, folder, false, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "folder"));
    assert_int_equal(file_map_open(&map, "/dev/null", false, &err), PI_ERR_IO);
#if !defined(_WIN32) /* pipes are not in folders */
    const char *fifo = in_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(file_map_open(&map, fifo, false, &err), PI_ERR_IO); /* must not hang */
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(file_read(fifo, 10, &data, &n, &err), PI_ERR_IO); /* must not hang either */
    assert_non_null(strstr(err.message, "fifo: save it to disk first"));
#endif
    const char *empty = in_folder("empty");
    write_file(empty, "");
    assert_int_equal(file_map_open(&map, empty, false, NULL), PI_OK);
    assert_int_equal(map.size, 0);
    assert_non_null(map.data);
    assert_int_equal(file_map_lock(&map, NULL, NULL), PI_OK);
    file_map_close(&map);
}

#if !defined(_WIN32) /* descriptors have no paths */
/* file_read_stream reads a pipe to its end. */
static void test_read_pipe(void **state) {
    (void)state;
    int ends[2];
    char path[32], *data = NULL;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(file_read_stream(path, 10, &data, &n, NULL), PI_OK);
    assert_int_equal(n, 5);
    assert_string_equal(data, "piped");
    mem_free(data);
    close(ends[0]);
}

#endif

/* The look-up that a SIGBUS handler makes. */
static void test_path_of_a_mapping(void **state) {
    (void)state;
    file_map a, b;
    uint64_t offset = 0;
    write_file(in_folder("a"), "aaaaaaaaaa");
    write_file(in_folder("b"), "bbbbb");
    assert_int_equal(file_map_open(&a, in_folder("a"), false, NULL), PI_OK);
    assert_int_equal(file_map_open(&b, in_folder("b"), false, NULL), PI_OK);
    assert_string_equal(file_map_path_at(a.data + 9, &offset), in_folder("a"));
    assert_int_equal(offset, 9);
    assert_string_equal(file_map_path_at(b.data, &offset), in_folder("b"));
    assert_int_equal(offset, 0);
    assert_null(file_map_path_at(a.data + 10, NULL)); /* the end of its last page */
    assert_null(file_map_path_at(&a, NULL));
    assert_null(file_map_path_at(NULL, NULL));
    const uint8_t *gone = a.data;
    file_map_close(&a);
    assert_null(file_map_path_at(gone, NULL));
    assert_string_equal(file_map_path_at(b.data + 4, NULL), in_folder("b"));
    file_map_close(&b);
}

#if !defined(_WIN32) /* a mapped file cannot become shorter */
/* Writes bytes of a mapped file to another file after the mapped file was truncated. */
static void test_write_from_a_file_that_was_cut(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    pi_error err = {0};
    file_writer *w = NULL;
    file_map map;
    assert_int_equal(file_writer_open(in_folder("source"), &w, NULL), PI_OK);
    assert_int_equal(file_writer_zeros(w, N, NULL), PI_OK);
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
    assert_int_equal(file_map_open(&map, in_folder("source"), false, NULL), PI_OK);
    assert_int_equal(truncate(in_folder("source"), 0), 0);
    assert_int_equal(file_writer_open(in_folder("copy"), &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, map.data, N, &err), PI_ERR_IO);
    assert_non_null(strstr(err.message, "became shorter while it was in use: "));
    assert_non_null(strstr(err.message, "/source"));
    file_writer_abort(w);
    file_map_close(&map);
    assert_int_equal(count_entries(), 1);
}

#endif

static void test_join(void **state) {
    (void)state;
    char buf[8];
    assert_true(file_join(buf, sizeof buf, "a", "b"));
    assert_string_equal(buf, "a/b");
    assert_true(file_join(buf, sizeof buf, "a/", "b"));
    assert_string_equal(buf, "a/b");
    assert_true(file_join(buf, sizeof buf, "abc", "def"));
    assert_false(file_join(buf, sizeof buf, "abcd", "def"));
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_write_then_read),
#if !defined(_WIN32)
        IN_FOLDER(test_replaces_and_keeps_links),
#endif
        IN_FOLDER(test_abort_leaves_the_old_file),
        IN_FOLDER(test_failures_to_open),
        IN_FOLDER(test_full_device),
        IN_FOLDER(test_failed_rename),
        IN_FOLDER(test_each_allocation_fails),
        IN_FOLDER(test_read_limits),
        IN_FOLDER(test_private_map),
        IN_FOLDER(test_map_refusals),
#if !defined(_WIN32)
        IN_FOLDER(test_read_pipe),
#endif
        IN_FOLDER(test_path_of_a_mapping),
#if !defined(_WIN32)
        IN_FOLDER(test_write_from_a_file_that_was_cut),
#endif
        IN_FOLDER(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
