/* test_engine_import.c: weights of a device that shares its memory with the host: matrices of a
 * mapped file, of its copy (--no-mmap) and of a model in memory are read where they are, so that
 * the device allocates no memory for them. The logits are those of the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "file.h"
#include "mem.h"
#include "run_device.h"
#include "run_engine.h"
#include "run_model.h"
#include "tiny_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_import.gguf"

enum { N_TOKENS = 5, N_CTX = 64, V = 40, LAYERS = 2 };

static gpu_library library;
static gpu_device *device;
static plan_split splits[LAYERS];
static gpu_backend counted;
static int n_imports, n_packs;
static size_t n_allocated; /* bytes of the device's memory */

static pi_status counted_import(gpu_device *d, const void *host, size_t n_bytes, const char *what,
                                void **out, pi_error *err) {
    const pi_status status = library.backend->import(d, host, n_bytes, what, out, err);
    n_imports += status == PI_OK;
    return status;
}

static void counted_pack(gpu_stream *s, const gpu_pack *a) {
    n_packs++;
    library.backend->ops.pack(s, a);
}

static pi_status counted_alloc(gpu_device *d, size_t n_bytes, const char *what, void **out,
                               pi_error *err) {
    n_allocated += n_bytes;
    return library.backend->alloc(d, n_bytes, what, out, err);
}

/* The logits of all tokens. */
static void run(const model *m, bool gpu, float *logits) {
    static const int32_t tokens[N_TOKENS] = {3, 1, 4, 1, 5};
    engine_options o = run_engine_options(PI_MODE_DENSE, N_TOKENS, N_TOKENS);
    for (int i = 0; i < LAYERS; i++)
        splits[i] = (plan_split){.primary = SIDE_GPU, .hot = model_layer_units(m, i)};
    if (gpu) {
        o.plan.splits = splits;
        o.plan.head = SIDE_GPU;
        o.gpu = &counted;
        o.devices[0] = device;
    }
    engine_context *c = run_engine_context(m, &o);
    run_engine_tokens(c, N_CTX, tokens, N_TOKENS, 3, logits);
    if (gpu) assert_null(engine_gpu_loss(c));
    engine_context_destroy(c);
}

typedef enum source { MAPPED, COPIED, IN_MEMORY, N_SOURCES } source;

static model *open_model(source from, const char *bytes, size_t n_bytes) {
    const gguf_open_options options = {.copy = from == COPIED};
    gguf_file *file;
    model *m;
    pi_error err;
    pi_status status = from == IN_MEMORY ? gguf_open_memory(bytes, n_bytes, "a test", &file, &err)
                                         : gguf_open(MODEL_PATH, &options, &file, &err);
    if (status == PI_OK) status = model_open_adapted(file, NULL, 0, false, &m, &err);
    if (status != PI_OK) fail_msg("%s", err.message);
    return m;
}

static void check_type(const char *type) {
    enum { MOST_BYTES = 256 << 20 };
    static const char *const names[] = {"mapped", "copied", "in memory"};
    static float want[N_TOKENS * V], got[N_TOKENS * V];
    tiny_model t = tiny_default();
    char *bytes;
    size_t n_bytes;
    t.type = type;
    t.n_embd = 512;
    t.head_dim = t.n_rot = 64;
    tiny_set_heads(&t, 8, 8);
    for (int i = 0; i < LAYERS; i++) t.n_ff[i] = 6144;
    tiny_write(&t, MODEL_PATH);
    assert_int_equal(file_read(MODEL_PATH, MOST_BYTES, &bytes, &n_bytes, NULL), PI_OK);
    for (source from = 0; from < N_SOURCES; from++) {
        model *m = open_model(from, bytes, n_bytes);
        run(m, false, want);
        size_t allocated[2];
        for (int imports = 0; imports < 2; imports++) {
            counted.import = imports ? counted_import : NULL;
            n_imports = n_packs = 0;
            n_allocated = 0;
            run(m, true, got);
            printf("%s, %s, %s: %zu KiB of weights, %zu KiB allocated\n", type, names[from],
                   imports ? "imported" : "packed", n_bytes / 1024, n_allocated / 1024);
            assert_true(run_nmse(got, want, N_TOKENS * V) < 1e-4);
            if ((imports ? n_packs : n_imports) > 0 || n_imports + n_packs == 0)
                fail_msg("%d matrices imported, %d packed", n_imports, n_packs);
            allocated[imports] = n_allocated;
        }
        if (allocated[0] < allocated[1] + n_bytes / 10 * 9) fail_msg("weights were copied");
        model_close(m);
    }
    mem_free(bytes);
    remove(MODEL_PATH);
}

static void test_import(void **state) {
    (void)state;
    gpu_info info;
    pi_error err;
    assert_int_equal(library.backend->describe(0, &info, &err), PI_OK);
    if (!library.backend->import || !info.shared_memory) skip();
    counted = *library.backend;
    counted.alloc = counted_alloc;
    counted.ops.pack = counted_pack;
    check_type("q8_0");
    check_type("f16");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_import)};
    int failed;
    if (!run_device_open(argc, argv, RUN_DEVICE_WAIT_MS, &library, &device, &failed)) return failed;
    failed = cmocka_run_group_tests_name("engine_import", tests, NULL, NULL);
    run_device_close(&library, device);
    return failed;
}
