/* adapter_file.c: the pairs of an adapter, A [rank][n_in] and B [n_out][rank]. */
#include "adapter_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gguf_writer.h"

enum { RANK = 2 };

static void ok(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

void adapter_file_write(const char *path, const char *architecture, const adapter_matrix *matrices,
                        int n) {
    uint64_t longest = 0;
    gguf_writer *w;
    pi_error err;
    ok(gguf_writer_create(path, &w, &err), &err);
    gguf_put_string(w, "general.type", "adapter");
    gguf_put_string(w, "general.architecture", architecture);
    gguf_put_string(w, "adapter.type", "lora");
    for (int i = 0; i < n; i++) {
        const adapter_matrix *m = &matrices[i];
        const uint64_t dims[2][2] = {{m->n_in, RANK}, {RANK, m->n_out}};
        for (int half = 0; half < 2; half++) {
            char name[96];
            snprintf(name, sizeof name, "%s.lora_%c", m->name, "ab"[half]);
            ok(gguf_add_tensor(w, name, QUANT_F32, 2, dims[half], &err), &err);
        }
        if (m->n_in > longest) longest = m->n_in;
        if (m->n_out > longest) longest = m->n_out;
    }
    float *values = malloc(longest * RANK * sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < longest * RANK; i++) values[i] = (float)((i * 7) % 11) / 3 - 1.5f;
    ok(gguf_writer_begin_data(w, &err), &err);
    for (int i = 0; i < n; i++) {
        ok(gguf_write_data(w, values, matrices[i].n_in * RANK * sizeof *values, &err), &err);
        ok(gguf_write_data(w, values, matrices[i].n_out * RANK * sizeof *values, &err), &err);
    }
    ok(gguf_writer_finish(w, &err), &err);
    free(values);
}
