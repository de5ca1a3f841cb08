/* test_gguf_split.c: models in several files: any part may be named, and every mismatch between
 * parts is reported as such. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "mem.h"

#define PREFIX TEST_BINARY_DIR "/test_gguf_split"

enum { N_PARTS = 3 };

typedef struct part_spec {
    int no, count;       /* split.no, split.count; count 0: no such keys */
    uint32_t n_tensors;  /* split.tensors.count */
    const char *tensors; /* one-letter tensor names, each a tensor of 8 floats */
} part_spec;

static void part_path(char *path, size_t n, int number, int count) {
    snprintf(path, n, PREFIX "-%05d-of-%05d.gguf", number, count);
}

static void write_part(const char *path, const part_spec *spec) {
    gguf_writer *w;
    assert_int_equal(gguf_writer_create(path, &w, NULL), PI_OK);
    if (spec->no == 0) gguf_put_string(w, "general.name", "in the first part only");
    if (spec->count) {
        gguf_put_u32(w, "split.no", (uint32_t)spec->no);
        gguf_put_u32(w, "split.count", (uint32_t)spec->count);
        gguf_put_i32(w, "split.tensors.count", (int32_t)spec->n_tensors);
    }
    const uint64_t dims[] = {8};
    size_t n = strlen(spec->tensors);
    for (size_t i = 0; i < n; i++) {
        const char name[2] = {spec->tensors[i], 0};
        assert_int_equal(gguf_add_tensor(w, name, QUANT_F32, 1, dims, NULL), PI_OK);
    }
    assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
    for (size_t i = 0; i < n; i++) {
        float data[8];
        for (int j = 0; j < 8; j++) data[j] = (float)spec->tensors[i];
        assert_int_equal(gguf_write_data(w, data, sizeof data, NULL), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
}

static const part_spec good[N_PARTS] = {{0, 3, 6, "ab"}, {1, 3, 6, "c"}, {2, 3, 6, "def"}};

static void write_parts(const part_spec *specs) {
    char path[512];
    for (int i = 0; i < N_PARTS; i++) {
        part_path(path, sizeof path, i + 1, N_PARTS);
        write_part(path, &specs[i]);
    }
}

static pi_status open_part(int number, gguf_file **f, pi_error *err) {
    char path[512];
    part_path(path, sizeof path, number, N_PARTS);
    return gguf_open(path, NULL, f, err);
}

static void test_any_part(void **state) {
    (void)state;
    write_parts(good);
    for (int number = 1; number <= N_PARTS; number++) {
        gguf_file *f;
        pi_error err = {0};
        if (open_part(number, &f, &err)) fail_msg("%s", err.message);
        assert_int_equal(gguf_n_parts(f), N_PARTS);
        assert_int_equal(gguf_n_tensors(f), 6);
        assert_non_null(gguf_find(f, "general.name"));
        assert_non_null(strstr(gguf_path(f), "-00001-of-"));
        const int parts[] = {0, 0, 1, 2, 2, 2};
        for (uint64_t i = 0; i < 6; i++) {
            const char name[2] = {(char)('a' + (int)i), 0};
            const gguf_tensor *t = gguf_find_tensor(f, name);
            assert_ptr_equal(t, gguf_tensor_at(f, i));
            assert_int_equal(t->part, parts[i]);
            float v;
            memcpy(&v, t->data, sizeof v);
            assert_true(v == (float)name[0]);
        }
        gguf_close(f);
    }
}

static void expect(int number, pi_status status, const char *fragment) {
    gguf_file *f = NULL;
    pi_error err = {0};
    pi_status got = open_part(number, &f, &err);
    gguf_close(f);
    if (got != status || !strstr(err.message, fragment)) {
        fail_msg("expected %s with '%s', got %s: %s", pi_status_name(status), fragment,
                 pi_status_name(got), err.message);
    }
}

static void test_bad_parts(void **state) {
    (void)state;
    part_spec specs[N_PARTS];
    char path[512];
    part_path(path, sizeof path, 2, N_PARTS);

    write_parts(good);
    unlink(path);
    expect(1, PI_ERR_IO, "part 2 of 3");

    memcpy(specs, good, sizeof specs);
    specs[1].no = 2; /* a renamed part 3 */
    write_parts(specs);
    expect(2, PI_ERR_FORMAT, "part 3 of a model split in 3 has another name");
    expect(3, PI_ERR_FORMAT, "another name");

    memcpy(specs, good, sizeof specs);
    specs[1].tensors = "a";
    write_parts(specs);
    expect(1, PI_ERR_FORMAT, "tensor 'a' is in two parts");

    memcpy(specs, good, sizeof specs);
    specs[1].tensors = "cx";
    write_parts(specs);
    expect(3, PI_ERR_FORMAT, "have 7 tensors but split.tensors.count says 6");

    memcpy(specs, good, sizeof specs);
    specs[2].n_tensors = 7;
    write_parts(specs);
    expect(1, PI_ERR_FORMAT, "split.* keys differ");

    memcpy(specs, good, sizeof specs);
    specs[2].count = 0;
    write_parts(specs);
    expect(1, PI_ERR_FORMAT, "split.* keys differ");

    memcpy(specs, good, sizeof specs);
    specs[0].no = 3;
    write_parts(specs);
    expect(1, PI_ERR_FORMAT, "split.no is not a number from 0 to 2");

    memcpy(specs, good, sizeof specs);
    specs[0].count = GGUF_MAX_PARTS + 1;
    write_parts(specs);
    expect(1, PI_ERR_FORMAT, "split.count is not a number");
}

static void test_names(void **state) {
    (void)state;
    /* A part with an unrelated name cannot lead to the others. */
    const char *path = PREFIX ".gguf";
    write_part(path, &good[1]);
    gguf_file *f;
    pi_error err = {0};
    assert_int_equal(gguf_open(path, NULL, &f, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "NAME-00002-of-00003.gguf"));
    /* A name that looks like a part's does not make a file split. */
    const part_spec alone = {0, 0, 0, "ab"};
    char part[512];
    part_path(part, sizeof part, 2, N_PARTS);
    write_part(part, &alone);
    assert_int_equal(gguf_open(part, NULL, &f, NULL), PI_OK);
    assert_int_equal(gguf_n_parts(f), 1);
    gguf_close(f);
    /* A file with split.count 1 is a single file under any name. */
    const part_spec one = {0, 1, 2, "ab"};
    write_part(path, &one);
    assert_int_equal(gguf_open(path, NULL, &f, NULL), PI_OK);
    assert_int_equal(gguf_n_tensors(f), 2);
    gguf_close(f);
    unlink(path);
}

/* Parts whose names say nothing, in a list. */
static void test_listed_parts(void **state) {
    (void)state;
    static const char *const paths[N_PARTS] = {PREFIX ".a", PREFIX ".b", PREFIX ".c"};
    gguf_open_options options = {.parts = paths, .n_parts = N_PARTS};
    gguf_file *f;
    pi_error err = {0};
    for (int i = 0; i < N_PARTS; i++) write_part(paths[i], &good[i]);
    if (gguf_open(paths[0], &options, &f, &err)) fail_msg("%s", err.message);
    assert_int_equal(gguf_n_parts(f), N_PARTS);
    assert_int_equal(gguf_n_tensors(f), 6);
    assert_int_equal(gguf_find_tensor(f, "e")->part, 2);
    assert_string_equal(gguf_part_path(f, 1), paths[1]);
    assert_non_null(gguf_find(f, "general.name"));
    gguf_close(f);
    const char *const twice[N_PARTS] = {paths[0], paths[1], paths[1]};
    options.parts = twice;
    assert_int_equal(gguf_open(paths[0], &options, &f, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "tensor 'c' is in two parts"));
    for (int i = 0; i < N_PARTS; i++) unlink(paths[i]);
    options.parts = paths;
    assert_int_equal(gguf_open(paths[0], &options, &f, &err), PI_ERR_IO);
}

static void test_allocation_failures(void **state) {
    (void)state;
    write_parts(good);
    int64_t before = mem_count();
    gguf_file *f = NULL;
    assert_int_equal(open_part(2, &f, NULL), PI_OK);
    gguf_close(f);
    int64_t n = mem_count() - before;
    for (int64_t i = 1; i <= n; i++) {
        pi_error err = {0};
        mem_fail_at(i);
        assert_int_equal(open_part(2, &f, &err), PI_ERR_NOMEM);
        assert_non_null(strstr(err.message, "out of memory"));
    }
    mem_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_part),
        cmocka_unit_test(test_bad_parts),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_listed_parts),
        cmocka_unit_test(test_allocation_failures),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 1; i <= N_PARTS; i++) {
        char path[512];
        part_path(path, sizeof path, i, N_PARTS);
        unlink(path);
    }
    return failed;
}
