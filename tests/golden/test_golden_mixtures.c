/* test_golden_mixtures.c: mixtures of experts under architectures that are dense in most files. A
 * copy of a recorded mixture under such a name must have the recorded logits. Skipped loudly
 * without the shared data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf.h"
#include "gguf_writer.h"
#include "golden_case.h"
#include "mem.h"
#include "shared_data.h"

#define COPY_PATH TEST_BINARY_DIR "/test_golden_mixtures.gguf"

static const double gate = 1e-5;
static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* Numbers that minicpm multiplies by, and llama does not; the copy has 1. */
static const char *const scales[] = {".embedding_scale", ".residual_scale", ".logit_scale"};

/* Copies a key with another architecture's prefix. */
static void copy_key(gguf_writer *w, const gguf_value *v, const char *from, const char *to) {
    char name[256];
    const size_t n = strlen(from);
    const bool own = v->key.n_bytes > n && memcmp(v->key.data, from, n) == 0 &&
                     v->key.data[n] == '.';
    if (gguf_string_is(v->key, "general.architecture")) {
        gguf_put_string(w, "general.architecture", to);
        return;
    }
    if (!own) {
        gguf_put_value(w, v);
        return;
    }
    snprintf(name, sizeof name, "%s%.*s", to, (int)(v->key.n_bytes - n), v->key.data + n);
    for (size_t i = 0; i < 3 && strcmp(to, "minicpm") == 0; i++)
        if (strcmp(name + strlen(to), scales[i]) == 0) return;
    gguf_value copy = *v;
    copy.key = (gguf_string){name, strlen(name)};
    gguf_put_value(w, &copy);
}

/* The scales of experts' matrices, which minicpm does not apply: NULL for other tensors. */
static const gguf_tensor *scale_of(const gguf_file *f, const gguf_tensor *t) {
    char name[GGUF_MAX_NAME + 8];
    const char *end = strstr(t->name, "_exps.weight");
    if (!end) return NULL;
    snprintf(name, sizeof name, "%.*s_exps.scale", (int)(end - t->name), t->name);
    return gguf_find_tensor(f, name);
}

/* Writes a matrix of experts in F32, times its scales. */
static void write_scaled(gguf_writer *w, const gguf_tensor *t, const gguf_tensor *scale) {
    const size_t n = (size_t)(t->n_elems / t->dims[2]);
    float *data = mem_alloc(n * sizeof *data);
    assert_non_null(data);
    assert_int_equal(scale->type, QUANT_F32);
    assert_int_equal(scale->n_elems, t->dims[2]);
    for (uint64_t e = 0; e < t->dims[2]; e++) {
        quant_find((uint32_t)t->type)
            ->dequantize(t->data + e * (t->n_bytes / t->dims[2]), data, (int64_t)n);
        for (size_t i = 0; i < n; i++) data[i] *= ((const float *)(const void *)scale->data)[e];
        ok(gguf_write_data(w, data, n * sizeof *data, &err));
    }
    mem_free(data);
}

static void write_copy(const char *path, const char *from, const char *to) {
    const bool minicpm = strcmp(to, "minicpm") == 0;
    gguf_file *f;
    gguf_writer *w;
    ok(gguf_open(path, NULL, &f, &err));
    ok(gguf_writer_create(COPY_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(f); i++) copy_key(w, gguf_value_at(f, i), from, to);
    if (minicpm) {
        gguf_put_f32(w, "minicpm.embedding_scale", 1);
        gguf_put_f32(w, "minicpm.residual_scale", 1);
        gguf_put_f32(w, "minicpm.logit_scale", 1);
    }
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        bool scaled = minicpm && scale_of(f, t);
        ok(gguf_add_tensor(w, t->name, scaled ? QUANT_F32 : t->type, t->n_dims, t->dims, &err));
    }
    ok(gguf_writer_begin_data(w, &err));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i), *scale = minicpm ? scale_of(f, t) : NULL;
        if (scale)
            write_scaled(w, t, scale);
        else
            ok(gguf_write_data(w, t->data, t->n_bytes, &err));
    }
    ok(gguf_writer_finish(w, &err));
    gguf_close(f);
}

static void check(const char *name, const char *from, const char *to) {
    static const int whole[] = {REFERENCE_MAX_TOKENS}, sevens[] = {7}, ones[] = {1};
    const int *const pieces[] = {whole, sevens, ones};
    char folder[GOLDEN_PATH_BYTES], path[GOLDEN_PATH_BYTES + 64];
    model *m;
    if (!shared_path(folder, sizeof folder, "conformance/more")) skip();
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    write_copy(path, from, to);
    ok(model_open(COPY_PATH, NULL, &m, &err));
    assert_true(m->hp.n_expert > 1 && strcmp(m->arch->name, to) == 0);
    reference r = golden_read(folder, name, m->hp.n_vocab);
    const engine_options o = {.n_threads = 1,
                              .n_threads_batch = 1,
                              .n_batch = 128,
                              .n_logits = 128,
                              .tier = CPU_TIER_SCALAR,
                              .type_k = QUANT_F32,
                              .type_v = QUANT_F32};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        engine_context *c;
        ok(engine_context_create(m, &o, &c, &err));
        double nmse = golden_nmse(c, &r, pieces[i], 1);
        printf("%s as %s: NMSE %.2e\n", name, to, nmse);
        if (!(nmse <= gate)) fail_msg("%s as %s: NMSE %g", name, to, nmse);
        engine_context_destroy(c);
    }
    reference_free(&r);
    model_close(m);
    remove(COPY_PATH);
}

static void test_granite(void **state) {
    (void)state;
    check("granitemoe-moe", "granitemoe", "granite"); /* with a shared expert */
}

static void test_minicpm(void **state) {
    (void)state;
    check("llama-moe", "llama", "minicpm");
}

static void test_mistral3(void **state) {
    (void)state;
    check("llama-moe", "llama", "mistral3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_granite),
        cmocka_unit_test(test_minicpm),
        cmocka_unit_test(test_mistral3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
