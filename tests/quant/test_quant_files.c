/* test_quant_files.c: files quantized by another program. Its quantized copies of one small model
 * must decode close to the model's F16 original, and where the quantizing rule is exact, our
 * quantizer must give the same bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"
#include "mem.h"
#include "quant.h"
#include "shared_data.h"

static gguf_file *open_or_skip(const char *relative) {
    char path[1024];
    gguf_file *f = NULL;
    pi_error err = {0};
    if (!shared_path(path, sizeof path, relative)) skip();
    if (gguf_open(path, NULL, &f, &err) != PI_OK) fail_msg("%s", err.message);
    return f;
}

static float *as_floats(const gguf_tensor *t) {
    float *out = mem_calloc((size_t)t->n_elems, sizeof *out);
    assert_non_null(out);
    quant_find((uint32_t)t->type)->dequantize(t->data, out, (int64_t)t->n_elems);
    return out;
}

/* Relative RMS error that a type may have on this model's normally distributed weights: the error
 * of a uniform quantizer over the range of a block, plus a third. */
static double bound(quant_type type) {
    switch (type) {
    case QUANT_BF16:
        return 0.0025;
    case QUANT_Q8_0:
        return 0.008;
    case QUANT_Q6_K:
        return 0.025;
    case QUANT_Q5_K:
    case QUANT_Q5_0:
    case QUANT_Q5_1:
        return 0.06;
    case QUANT_Q4_K:
    case QUANT_IQ4_NL:
    case QUANT_IQ4_XS:
        return 0.10;
    case QUANT_Q4_0:
    case QUANT_Q4_1:
        return 0.12;
    case QUANT_Q3_K:
        return 0.20;
    case QUANT_Q2_K:
        return 0.40;
    default:
        return 1e-12; /* F32, F16: same as the original */
    }
}

/* Compares all tensors of a file that we can decode; returns the number of tensors of `type`. */
static int compare_with_original(const char *relative, quant_type type) {
    gguf_file *original = open_or_skip("conformance/arch/llama-dense.gguf");
    gguf_file *f = open_or_skip(relative);
    int n_of_type = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        const gguf_tensor *o = gguf_find_tensor(original, t->name);
        if (quant_find((uint32_t)t->type)->dequantize == NULL) continue;
        assert_non_null(o);
        assert_int_equal(o->n_elems, t->n_elems);
        assert_false(quant_has_nonfinite(t->type, t->data, (int64_t)t->n_elems));
        float *a = as_floats(o), *b = as_floats(t);
        double error = 0.0, norm = 0.0;
        for (uint64_t k = 0; k < t->n_elems; k++) {
            error += pow((double)a[k] - (double)b[k], 2.0);
            norm += pow((double)a[k], 2.0);
        }
        if (sqrt(error) > bound(t->type) * sqrt(norm))
            fail_msg("%s (%s): relative error %g", t->name, quant_find((uint32_t)t->type)->name,
                     sqrt(error / norm));
        n_of_type += t->type == type;
        mem_free(a);
        mem_free(b);
    }
    gguf_close(f);
    gguf_close(original);
    return n_of_type;
}

static void test_close_to_original(void **state) {
    (void)state;
    static const struct {
        const char *file;
        quant_type type;
    } files[] = {
        {"BF16", QUANT_BF16},     {"Q8_0", QUANT_Q8_0},   {"Q4_0", QUANT_Q4_0},
        {"Q4_1", QUANT_Q4_1},     {"Q5_0", QUANT_Q5_0},   {"Q5_1", QUANT_Q5_1},
        {"Q2_K", QUANT_Q2_K},     {"Q3_K_M", QUANT_Q3_K}, {"Q4_K_M", QUANT_Q4_K},
        {"Q5_K_M", QUANT_Q5_K},   {"Q6_K", QUANT_Q6_K},   {"IQ4_NL", QUANT_IQ4_NL},
        {"IQ4_XS", QUANT_IQ4_XS},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, "conformance/quant/llama-dense.%s.gguf", files[i].file);
        assert_true(compare_with_original(path, files[i].type) > 0);
    }
}

/* Dequantizes the other program's blocks and quantizes them again. (They were quantized from
 * weights with more precision than the F16 original, so the original does not give these bytes.) */
static void same_bytes(const char *relative, quant_type type) {
    gguf_file *f = open_or_skip(relative);
    int n_compared = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (t->type != type) continue;
        float *x = as_floats(t);
        uint8_t *bytes = mem_alloc(t->n_bytes);
        assert_non_null(bytes);
        quant_find((uint32_t)type)->quantize(x, bytes, (int64_t)t->n_elems, NULL);
        assert_memory_equal(bytes, t->data, t->n_bytes);
        mem_free(bytes);
        mem_free(x);
        n_compared++;
    }
    assert_true(n_compared > 0);
    gguf_close(f);
}

static void test_same_bytes(void **state) {
    (void)state;
    same_bytes("conformance/quant/llama-dense.BF16.gguf", QUANT_BF16);
    same_bytes("conformance/quant/llama-dense.Q8_0.gguf", QUANT_Q8_0);
    same_bytes("conformance/quant/llama-dense.Q4_0.gguf", QUANT_Q4_0);
    same_bytes("conformance/quant/llama-dense.Q4_1.gguf", QUANT_Q4_1);
    same_bytes("conformance/quant/llama-dense.Q5_0.gguf", QUANT_Q5_0);
    same_bytes("conformance/quant/llama-dense.Q5_1.gguf", QUANT_Q5_1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_to_original),
        cmocka_unit_test(test_same_bytes),
    };
    char folder[1024];
    if (!shared_path(folder, sizeof folder, "conformance/quant")) return SHARED_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
