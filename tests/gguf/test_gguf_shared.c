/* test_gguf_shared.c: files written by other programs open, both whole and header only; with their
 * data cut off, only header only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>

#include "file.h"
#include "gguf.h"
#include "mem.h"
#include "shared_data.h"

#define CUT_PATH TEST_BINARY_DIR "/test_gguf_cut.gguf"

/* Opens the header only and compares every tensor with the whole file's. */
static void check_header_only(const char *path, const gguf_file *whole) {
    const gguf_open_options options = {.header_only = true};
    gguf_file *f;
    pi_error err = {0};
    if (gguf_open(path, &options, &f, &err)) fail_msg("%s", err.message);
    assert_int_equal(gguf_n_tensors(f), gguf_n_tensors(whole));
    assert_int_equal(gguf_n_values(f), gguf_n_values(whole));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        assert_null(gguf_tensor_at(f, i)->data);
        assert_int_equal(gguf_tensor_at(f, i)->file_offset, gguf_tensor_at(whole, i)->file_offset);
    }
    gguf_close(f);
}

static void check_cut(const char *path, const gguf_file *whole) {
    if (gguf_n_tensors(whole) == 0) return;
    char *data;
    size_t n;
    assert_int_equal(file_read(path, 1 << 28, &data, &n, NULL), PI_OK);
    const gguf_tensor *last = gguf_tensor_at(whole, gguf_n_tensors(whole) - 1);
    file_writer *w;
    assert_int_equal(file_writer_open(CUT_PATH, &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, data, last->file_offset + last->n_bytes - 1, NULL),
                     PI_OK);
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
    mem_free(data);
    gguf_file *f;
    pi_error err = {0};
    assert_int_equal(gguf_open(CUT_PATH, NULL, &f, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, last->name));
    check_header_only(CUT_PATH, whole);
    unlink(CUT_PATH);
}

static int open_folder(const char *relative) {
    char folder[512], path[1024];
    if (!shared_path(folder, sizeof folder, relative)) return 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".gguf") != 0) continue;
        assert_true(file_join(path, sizeof path, folder, entry->d_name));
        gguf_file *f;
        pi_error err = {0};
        if (gguf_open(path, NULL, &f, &err)) fail_msg("%s", err.message);
        assert_true(gguf_n_values(f) > 0);
        assert_non_null(gguf_find(f, "general.architecture"));
        assert_int_equal(gguf_is_pwri(f), strstr(path, ".pwri.") != NULL);
        check_header_only(path, f);
        check_cut(path, f);
        gguf_close(f);
        n++;
    }
    closedir(dir);
    return n;
}

static void open_at_least(const char *relative, int least) {
    char folder[512];
    if (!shared_path(folder, sizeof folder, relative)) skip();
    assert_true(open_folder(relative) >= least);
}

static void test_arch(void **state) {
    (void)state;
    open_at_least("conformance/arch", 12);
}

static void test_quant(void **state) {
    (void)state;
    open_at_least("conformance/quant", 13);
}

static void test_pwri(void **state) {
    (void)state;
    open_at_least("conformance/pwri", 5);
}

static void test_tokenizer(void **state) {
    (void)state;
    open_at_least("conformance/tokenizer", 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arch),
        cmocka_unit_test(test_quant),
        cmocka_unit_test(test_pwri),
        cmocka_unit_test(test_tokenizer),
    };
    char folder[512];
    if (!shared_path(folder, sizeof folder, "conformance")) return SHARED_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
