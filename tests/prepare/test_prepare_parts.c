/* test_prepare_parts.c: parts of prepare: digests, scratch files, output files that are read and
 * patched before they appear, and transposed matrices. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "gguf_writer.h"
#include "mem.h"
#include "prepare.h"
#include "prepare_files.h"
#include "rng.h"
#include "sha256.h"

#define PATH      TEST_BINARY_DIR "/test_prepare_parts.gguf"
#define TEXT_PATH TEST_BINARY_DIR "/test_prepare_parts.txt"

/* ---- digests --------------------------------------------------------------------------------- */

/* Examples of FIPS 180-4, and lengths around the end of a block, computed by another
 * implementation. */
static void test_digests(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n_ascending; /* instead of text: bytes 0, 1, 2, ... */
        const char *digest;
    } cases[] = {
        {"", -1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", -1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", -1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {NULL, 55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59"},
        {NULL, 56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562"},
        {NULL, 64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108"},
    };
    uint8_t ascending[64];
    char digest[SHA256_HEX + 1];
    for (int i = 0; i < 64; i++) ascending[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].text)
            sha256_hex(cases[i].text, strlen(cases[i].text), digest);
        else
            sha256_hex(ascending, (size_t)cases[i].n_ascending, digest);
        assert_string_equal(digest, cases[i].digest);
    }
    /* The digest does not depend on the division into pieces. */
    for (size_t step = 1; step < 200; step += 7) {
        uint8_t text[1000];
        sha256 s;
        for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)i;
        sha256_begin(&s);
        for (size_t at = 0; at < sizeof text; at += step)
            sha256_add(&s, text + at, sizeof text - at < step ? sizeof text - at : step);
        sha256_end(&s, digest);
        assert_string_equal(digest,
                            "a8af099bf2e878609558dbf69d8f88f4a31040a8cf84b549a0cfa912f12ffc3f");
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_scratch(void **state) {
    (void)state;
    pi_error err = {0};
    file_scratch *a = NULL, *b = NULL;
    assert_int_equal(file_scratch_create(PATH, &a, &err), PI_OK);
    assert_int_equal(file_scratch_create(PATH, &b, &err), PI_OK);
    assert_string_not_equal(file_scratch_path(a), file_scratch_path(b));
    const char *const texts[2] = {"x", "why"};
    file_scratch *const both[2] = {a, b};
    for (int i = 0; i < 2; i++) { /* a reader finds the bytes of the writer */
        file_writer *w = NULL;
        file_map map;
        size_t n = strlen(texts[i]);
        assert_int_equal(file_writer_open(file_scratch_path(both[i]), &w, &err), PI_OK);
        assert_int_equal(file_writer_write(w, texts[i], n, &err), PI_OK);
        assert_int_equal(file_writer_commit(w, &err), PI_OK);
        assert_int_equal(file_map_open(&map, file_scratch_path(both[i]), false, &err), PI_OK);
        assert_int_equal(map.size, n);
        assert_memory_equal(map.data, texts[i], n);
        file_map_close(&map);
    }
    file_scratch_remove(a);
    file_scratch_remove(b);
    file_scratch_remove(NULL);
    mem_fail_at(1);
    assert_int_equal(file_scratch_create(PATH, &a, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
}

/* A file in memory: bytes that were not written are zeros, and a mapping sees later writes. */
static void test_scratch_memory(void **state) {
    (void)state;
    enum { N_BYTES = 1 << 20, AT = 700000 };
    pi_error err = {0};
    file_scratch *s = NULL;
    file_map map;
    pi_status status = file_scratch_create_memory(&s, &err);
    if (status == PI_ERR_IO) skip(); /* this system has none */
    assert_int_equal(status, PI_OK);
    assert_int_equal(os_file_resize(file_scratch_file(s), N_BYTES), 0);
    assert_int_equal(file_map_open(&map, file_scratch_path(s), false, &err), PI_OK);
    assert_int_equal(map.size, N_BYTES);
    assert_int_equal(map.data[AT], 0);
    assert_int_equal(os_file_write_at(file_scratch_file(s), "why", 3, AT), 0);
    assert_memory_equal(map.data + AT, "why", 4);
    file_map_close(&map);
    file_scratch_remove(s);
    mem_fail_at(1);
    assert_int_equal(file_scratch_create_memory(&s, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
}

static gguf_writer *start_file(void) {
    gguf_writer *w = NULL;
    pi_error err = {0};
    static const float numbers[3] = {1, 2, 3};
    static const uint64_t dims[1] = {4};
    assert_int_equal(gguf_writer_create(PATH, &w, &err), PI_OK);
    gguf_put_string(w, "a", "text");
    gguf_put_array(w, "b", GGUF_F32, numbers, 3);
    gguf_put_f32(w, "c", 5);
    assert_int_equal(gguf_add_tensor(w, "t", QUANT_F32, 1, dims, &err), PI_OK);
    assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    return w;
}

static void test_patch(void **state) {
    (void)state;
    static const float data[4] = {1, 2, 3, 4}, numbers[3] = {7, 8, 9}, number = -5;
    pi_error err = {0};
    const char *path = NULL;
    gguf_writer *w = start_file();
    assert_int_equal(gguf_writer_settle(w, &path, &err), PI_ERR_ARG); /* no data yet */
    gguf_writer_abort(w);
    w = start_file();
    assert_int_equal(gguf_write_data(w, data, sizeof data, &err), PI_OK);
    assert_int_equal(gguf_writer_settle(w, &path, &err), PI_OK);
    gguf_file *f = files_open(path); /* readable, but not yet under its final name */
    assert_false(file_exists(PATH));
    gguf_close(f);
    assert_int_equal(gguf_writer_patch(w, "b", numbers, sizeof numbers, &err), PI_OK);
    assert_int_equal(gguf_writer_patch(w, "c", &number, sizeof number, &err), PI_OK);
    assert_int_equal(gguf_writer_patch(w, "b", numbers, sizeof number, &err), PI_ERR_ARG);
    assert_int_equal(gguf_writer_patch(w, "d", &number, sizeof number, &err), PI_ERR_ARG);
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    f = files_open(PATH);
    double x;
    gguf_string s;
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(gguf_item_f64(gguf_find(f, "b"), i, &x));
        assert_true(x == (double)numbers[i]);
    }
    assert_true(gguf_as_f64(gguf_find(f, "c"), &x) && x == -5);
    assert_true(gguf_as_string(gguf_find(f, "a"), &s) && s.n_bytes == 4);
    assert_memory_equal(files_find(f, "t")->data, data, sizeof data);
    gguf_close(f);
    unlink(PATH);
}

/* ---- matrices -------------------------------------------------------------------------------- */

enum { MOST = 512 * 96 };

static float values[MOST], back[MOST], again[MOST];
static uint8_t stored[MOST * 4], moved[MOST * 4];

static model_tensor make_matrix(quant_type type, int64_t n_in, int64_t n_out) {
    rng r;
    rng_seed(&r, 11);
    size_t row = 0;
    const quant_traits *traits = quant_find((uint32_t)type);
    assert_true(quant_row_bytes(type, (uint64_t)n_in, &row));
    for (int64_t i = 0; i < n_in * n_out; i++) values[i] = rng_normal(&r);
    for (int64_t i = 0; i < n_out; i++)
        traits->quantize(values + i * n_in, stored + (size_t)i * row, n_in, NULL);
    for (int64_t i = 0; i < n_out; i++)
        traits->dequantize(stored + (size_t)i * row, values + i * n_in, n_in);
    return (model_tensor){.data = stored,
                          .n_bytes = row * (size_t)n_out,
                          .row_bytes = row,
                          .n_in = n_in,
                          .n_out = n_out,
                          .scale = 1,
                          .type = type};
}

/* A permutation that is neither the identity nor its own inverse. */
static int64_t place_of(int64_t r, int64_t n) {
    return (r * 7 + 3) % n;
}

static void check_transpose(pool *p, quant_type from, quant_type to, int64_t n_in, int64_t n_out,
                            bool move) {
    model_tensor t = make_matrix(from, n_in, n_out);
    const quant_traits *traits = quant_find((uint32_t)to);
    pi_error err = {0};
    int32_t place[512];
    size_t row = 0;
    assert_true(quant_row_bytes(to, (uint64_t)n_out, &row));
    for (int64_t r = 0; r < n_out; r++) place[r] = (int32_t)(move ? place_of(r, n_out) : r);
    assert_int_equal(prepare_transpose(p, &t, move ? place : NULL, to, moved, &err), PI_OK);
    double error = 0, power = 0;
    for (int64_t k = 0; k < n_in; k++) {
        traits->dequantize(moved + (size_t)k * row, back, n_out);
        for (int64_t r = 0; r < n_out; r++) {
            double off = (double)back[place[r]] - (double)values[r * n_in + k];
            error += off * off;
            power += (double)values[r * n_in + k] * (double)values[r * n_in + k];
        }
    }
    if (to == QUANT_F32 || (to == from && traits->block_elems == 1))
        assert_true(error == 0);
    else /* 8 bits in groups of 32: an error of about 1/127/sqrt(12) of the largest element */
        assert_true(error / power < 1e-4);
}

static void test_transpose(void **state) {
    (void)state;
    pi_error err = {0};
    pool *p = NULL;
    assert_int_equal(pool_create(3, &p, &err), PI_OK);
    static const quant_type types[] = {QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_Q8_0,
                                       QUANT_Q4_0, QUANT_Q5_1, QUANT_Q4_K, QUANT_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_transpose(p, types[i], QUANT_F32, 512, 64, false);
        check_transpose(p, types[i], QUANT_Q8_0, 512, 96, true);
    }
    check_transpose(p, QUANT_F32, QUANT_F32, 37, 5, true); /* odd sizes */
    check_transpose(p, QUANT_F16, QUANT_F16, 1, 33, true);
    check_transpose(p, QUANT_BF16, QUANT_BF16, 100, 31, true);
    check_transpose(p, QUANT_F32, QUANT_Q8_0, 33, 32, false);
    pool_destroy(p);
}

static void test_rows_and_norms(void **state) {
    (void)state;
    pi_error err = {0};
    pool *p = NULL;
    int32_t order[96];
    float norms[512], row_norms[96];
    assert_int_equal(pool_create(2, &p, &err), PI_OK);
    model_tensor t = make_matrix(QUANT_Q4_0, 512, 96);
    t.scale = -0.5f;
    for (int i = 0; i < 96; i++) order[i] = (int32_t)place_of(i, 96);
    prepare_decode_rows(p, &t, order, back);
    prepare_decode_rows(p, &t, NULL, again);
    for (int i = 0; i < 96; i++)
        for (int k = 0; k < 512; k++) {
            assert_true(back[i * 512 + k] == -0.5f * values[order[i] * 512 + k]);
            assert_true(again[i * 512 + k] == -0.5f * values[i * 512 + k]);
        }
    /* 96 rows of 512 neurons */
    assert_int_equal(prepare_down_norms(p, &t, false, norms, &err), PI_OK);
    for (int k = 0; k < 512; k++) {
        double sum = 0;
        for (int i = 0; i < 96; i++) sum += pow((double)values[i * 512 + k], 2);
        assert_true(fabs((double)norms[k] / (0.5 * sqrt(sum)) - 1) < 1e-5);
    }
    /* the same data as 96 neurons */
    assert_int_equal(prepare_down_norms(p, &t, true, row_norms, &err), PI_OK);
    for (int i = 0; i < 96; i++) {
        double sum = 0;
        for (int k = 0; k < 512; k++) sum += pow((double)values[i * 512 + k], 2);
        assert_true(fabs((double)row_norms[i] / (0.5 * sqrt(sum)) - 1) < 1e-5);
    }
    assert_int_equal(prepare_convert_rows(p, &t, QUANT_F32, moved, &err), PI_OK);
    assert_memory_equal(moved, values, sizeof(float) * 96 * 512);
    mem_fail_at(1);
    assert_int_equal(prepare_down_norms(p, &t, true, norms, &err), PI_ERR_NOMEM);
    mem_fail_at(1);
    assert_int_equal(prepare_convert_rows(p, &t, QUANT_F32, moved, &err), PI_ERR_NOMEM);
    mem_fail_at(1);
    assert_int_equal(prepare_transpose(p, &t, NULL, QUANT_F32, moved, &err), PI_ERR_NOMEM);
    mem_fail_at(0);
    pool_destroy(p);
}

/* ---- predictors that wait -------------------------------------------------------------------- */

/* The predictor of a finished layer is on the disk, in a file without a name where the system has
 * such files, else in a temporary file. */
static void test_spill(void **state) {
    (void)state;
    static const char *const kinds[] = {"sign", "lowrank"};
#if defined(_WIN32)
    const int n_files = 2;
#else
    const int n_files = 1;
#endif
    tiny_model t = files_tiny("f32");
    tiny_write(&t, PATH);
    files_write_text(TEXT_PATH, 4000);
    for (int i = 0; i < 2; i++) {
        prepare_notes told;
        pi_error err = {0};
        pi_prepare_options o = files_options(TEXT_PATH, &told);
        o.predictor = kinds[i];
        preparation p = {.options = &o, .in_path = PATH, .out_path = PATH, .beside = PATH};
        p.predictor_type = QUANT_Q8_0;
        assert_int_equal(pool_create(2, &p.pool, &err), PI_OK);
        assert_int_equal(model_open(PATH, NULL, &p.model, &err), PI_OK);
        p.layers = mem_calloc((size_t)t.n_layer, sizeof *p.layers);
        assert_int_equal(prepare_text_read(p.model, &o, &p.notifier, &p.text, &err), PI_OK);
        assert_int_equal(prepare_run_layers(&p, &err), PI_OK);
        assert_int_equal(files_count("test_prepare_parts.gguf"), n_files);
        for (int l = 0; l < t.n_layer; l++) {
            const prepare_layer *layer = &p.layers[l];
            const predictor_fit *fit = &layer->fit;
            float bias[128];
            uint8_t row[64 / 32 * 34];
            assert_string_equal(predictor_kind_name(fit->kind), kinds[i]);
            assert_true(!fit->fc1 && !fit->fc2 && !fit->sign && !fit->bias);
            size_t n_bytes = (size_t)t.n_ff[l] * sizeof(float);
            assert_int_equal(prepare_spill_read(&p, layer->at.bias, bias, n_bytes, &err), PI_OK);
            for (int k = 0; k < t.n_ff[l]; k++) assert_true(isfinite(bias[k]) && bias[k] != 0);
            /* signs of the hottest neuron's gate, or the first row of fc1 */
            uint64_t at = i ? layer->at.fc1 : layer->at.sign;
            assert_int_equal(prepare_spill_read(&p, at, row, i ? sizeof row : 8, &err), PI_OK);
            const model_tensor *gate = &p.model->layers[l].t[ROLE_FFN_GATE];
            const float *w = (const float *)gate->data + layer->order[0] * gate->n_in;
            for (int k = 0; k < 64 && i == 0; k++)
                assert_int_equal(row[k / 8] >> (k % 8) & 1, w[k] > 0);
        }
        /* reads beyond the end fail */
        uint8_t beyond;
        assert_int_equal(prepare_spill_read(&p, 1 << 30, &beyond, 1, &err), PI_ERR_IO);
        assert_non_null(strstr(err.message, "cannot read file"));
        prepare_release(&p);
        assert_int_equal(files_count("test_prepare_parts.gguf"), 1);
    }
    unlink(PATH);
    unlink(TEXT_PATH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_scratch_memory), cmocka_unit_test(test_patch),
        cmocka_unit_test(test_transpose),      cmocka_unit_test(test_rows_and_norms),
        cmocka_unit_test(test_spill),
    };
    return cmocka_run_group_tests_name("prepare_parts", tests, NULL, NULL);
}
