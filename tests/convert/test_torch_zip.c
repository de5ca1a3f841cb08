/* test_torch_zip.c: pytorch_model.bin: the output of torch.save is read, and converts to the same
 * file as safetensors; other pickles and damaged archives are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "hf_folder.h"
#include "quant.h"
#include "safetensors.h"
#include "torch_archive.h"

static torch_archive archive;

static const float numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void begin_with_two(torch_archive *a) {
    torch_begin(a);
    torch_item(a, "b", "FloatStorage", 2, 2, 3, 3, numbers, sizeof numbers);
    torch_item(a, "a", "HalfStorage", 0, 0, 4, 1, numbers, 8);
}

static pi_status open_folder(hf_folder *f, safetensors **s, pi_error *err) {
    folder_write(f, "pytorch_model.bin", archive.out, archive.n_out);
    *s = NULL;
    return safetensors_open(f->dir, s, err);
}

static void test_table(void **state) {
    (void)state;
    hf_folder f;
    safetensors *s;
    pi_error err = {0};
    folder_open(&f);
    begin_with_two(&archive);
    torch_end(&archive);
    torch_finish(&archive);
    if (open_folder(&f, &s, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(safetensors_count(s), 2);
    const safetensor *a = safetensors_at(s, safetensors_find(s, "a"));
    const safetensor *b = safetensors_at(s, safetensors_find(s, "b"));
    assert_int_equal(a->dtype, SAFETENSORS_F16);
    assert_int_equal(a->n_dims, 1);
    assert_int_equal(a->dims[0], 4);
    assert_memory_equal(a->data, numbers, 8);
    assert_int_equal(b->dtype, SAFETENSORS_F32);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dims[0], 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->n_bytes, 24);
    assert_memory_equal(b->data, &numbers[2], 24);
    safetensors_close(s);
    failing each = failing_each(1);
    while (failing_next(&each)) {
        pi_status status = open_folder(&f, &s, &err);
        if (!failing_hit(&each, status, &err)) safetensors_close(s);
    }
    folder_close(&f);
}

static void assert_refused(pi_status expected, const char *words) {
    hf_folder f;
    safetensors *s;
    pi_error err = {0};
    folder_open(&f);
    assert_int_equal(open_folder(&f, &s, &err), expected);
    if (!strstr(err.message, words)) fail_msg("message '%s' lacks '%s'", err.message, words);
    folder_close(&f);
}

#define PICKLE(bytes) torch_raw(&archive, bytes, sizeof(bytes) - 1)

static void test_other_pickles(void **state) {
    (void)state;
    begin_with_two(&archive);
    PICKLE("X\x01\x00\x00\x00zcos\nsystem\n(X\x02\x00\x00\x00idtRu.");
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "names os.system");
    begin_with_two(&archive);
    PICKLE("X\x01\x00\x00\x00zK\x05u.");
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "an item that is not a tensor");
    begin_with_two(&archive);
    PICKLE("X\x01\x00\x00\x00z}X\x01\x00\x00\x00yNsu.");
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "an item that is not a tensor");
    begin_with_two(&archive);
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "the end of the file");
    begin_with_two(&archive);
    PICKLE("\x8c");
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "an unsupported opcode");
    begin_with_two(&archive);
    PICKLE("X\xff\xff\xff\xff");
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "the end of the file");
    static const char *const starts[] = {"\x80\x02h\x07.", "\x80\x02R.",   "\x80\x02t.",
                                         "\x80\x02.",      "\x80\x02Q.",   "\x80\x02s.",
                                         "\x80\x02u.",     "\x80\x02q\x01"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        torch_begin(&archive);
        archive.n_pickle = 0;
        torch_raw(&archive, starts[i], strlen(starts[i]));
        torch_finish(&archive);
        assert_refused(PI_ERR_UNSUPPORTED, "not a plain table of tensors");
    }
}

static void test_tensors_that_do_not_fit(void **state) {
    (void)state;
    torch_begin(&archive);
    torch_item(&archive, "a", "FloatStorage", 3, 2, 3, 3, numbers, sizeof numbers);
    torch_end(&archive);
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "a tensor beyond its storage");
    torch_begin(&archive);
    torch_item(&archive, "a", "FloatStorage", 0, 2, 3, 4, numbers, sizeof numbers);
    torch_end(&archive);
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "a tensor that is not contiguous");
    torch_begin(&archive);
    torch_item(&archive, "a", "QInt8Storage", 0, 2, 3, 3, numbers, sizeof numbers);
    torch_end(&archive);
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "names torch.QInt8Storage");
}

/* Every truncation of an archive, and every changed byte of its list: an error, or the same
 * tensors. */
static void test_damaged_archives(void **state) {
    (void)state;
    begin_with_two(&archive);
    torch_end(&archive);
    archive.method = 8;
    torch_finish(&archive);
    assert_refused(PI_ERR_UNSUPPORTED, "compressed archive");
    begin_with_two(&archive);
    torch_end(&archive);
    torch_finish(&archive);
    size_t n = archive.n_out;
    for (size_t keep = 1; keep < n; keep += 7) {
        archive.n_out = keep;
        assert_refused(PI_ERR_UNSUPPORTED, "not a zip archive");
    }
    archive.n_out = n;
    archive.out[n - 6] ^= 1; /* offset of the list */
    assert_refused(PI_ERR_FORMAT, "list of files is damaged");
    archive.out[n - 6] ^= 1;
    archive.out[n - 12] = archive.out[n - 14] = 0; /* number of files */
    assert_refused(PI_ERR_LIMIT, "0 files");
}

static void read_whole(const char *path, char **out, size_t *n) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *out = malloc(4 << 20);
    assert_non_null(*out);
    *n = fread(*out, 1, 4 << 20, file);
    fclose(file);
}

/* The tiny llama of hf_folder.h, from both kinds of files. */
static void test_convert(void **state) {
    (void)state;
    static uint16_t data[96 * 64];
    hf_folder f;
    safetensors *s;
    pi_error err = {0};
    char *a, *b;
    size_t n_a, n_b;
    folder_open(&f);
    model_shape shape = shape_tiny("llama");
    shape.dtype = "BF16";
    shape.extra = "\"tie_word_embeddings\":false,\"_name_or_path\":\"x/same\",";
    folder_write_model(&f, &shape);
    assert_int_equal(folder_convert(&f, "f16", &err), PI_OK);
    read_whole(f.out, &a, &n_a);
    assert_int_equal(safetensors_open(f.dir, &s, &err), PI_OK);
    torch_begin(&archive);
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const safetensor *t = safetensors_at(s, i);
        assert_true(t->n_bytes <= sizeof data);
        memcpy(data, t->data, t->n_bytes);
        bool vector = t->n_dims == 1;
        int64_t cols = (int64_t)t->dims[t->n_dims - 1];
        torch_item(&archive, t->name, "BFloat16Storage", 0, vector ? 0 : (int64_t)t->dims[0], cols,
                   cols, data, t->n_bytes);
    }
    safetensors_close(s);
    torch_end(&archive);
    torch_finish(&archive);
    char path[FOLDER_PATH];
    folder_path(&f, "model.safetensors", path);
    assert_int_equal(remove(path), 0);
    folder_write(&f, "pytorch_model.bin", archive.out, archive.n_out);
    if (folder_convert(&f, "f16", &err) != PI_OK) fail_msg("%s", err.message);
    read_whole(f.out, &b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(b);
    /* and by an index */
    folder_path(&f, "pytorch_model.bin", path);
    assert_int_equal(remove(path), 0);
    folder_write(&f, "pytorch_model-00001-of-00001.bin", archive.out, archive.n_out);
    folder_write_text(&f, "pytorch_model.bin.index.json",
                      "{\"weight_map\":{\"lm_head.weight\":\"pytorch_model-00001-of-00001.bin\"}}");
    if (folder_convert(&f, "f16", &err) != PI_OK) fail_msg("%s", err.message);
    read_whole(f.out, &b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
    folder_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_other_pickles),
        cmocka_unit_test(test_tensors_that_do_not_fit),
        cmocka_unit_test(test_damaged_archives),
        cmocka_unit_test(test_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
