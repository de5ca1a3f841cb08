/* fuzz_gguf.c: any bytes as a GGUF file: opening must give an error or a file whose keys, arrays,
 * strings and tensors can all be walked and whose data can all be read. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "gguf.h"

/* Reads bytes so that the compiler cannot drop the reads. */
static unsigned sum_bytes(const void *p, size_t n) {
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((const uint8_t *)p)[i];
    return sum;
}

static unsigned walk_value(const gguf_value *v) {
    unsigned sum = sum_bytes(v->key.data, v->key.n_bytes);
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    gguf_string s;
    sum += (unsigned)(gguf_as_u64(v, &u) + gguf_as_i64(v, &i) + gguf_as_f64(v, &d));
    sum += gguf_as_bool(v, &b);
    if (gguf_as_string(v, &s)) sum += sum_bytes(s.data, s.n_bytes);
    if (v->type != GGUF_ARRAY) return sum;
    const uint8_t *cursor = v->data;
    for (uint64_t k = 0; k < v->count; k++) {
        if (v->item_type == GGUF_STRING) {
            s = gguf_next_string(&cursor);
            sum += sum_bytes(s.data, s.n_bytes);
        } else if (v->item_type == GGUF_ARRAY) {
            gguf_value inner = gguf_next_array(&cursor); /* depth is capped by the reader */
            sum += walk_value(&inner);
        } else {
            sum += (unsigned)(gguf_item_u64(v, k, &u) + gguf_item_i64(v, k, &i));
            sum += gguf_item_f64(v, k, &d);
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gguf_file *f;
    pi_error err = {0};
    if (gguf_open_memory(data, n, "fuzz", &f, &err)) {
        if (err.message[0] == '\0') abort(); /* every error has a message */
        return 0;
    }
    volatile unsigned sum = 0;
    for (uint64_t i = 0; i < gguf_n_values(f); i++) sum += walk_value(gguf_value_at(f, i));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (gguf_find_tensor(f, t->name) != t) abort();
        sum += sum_bytes(t->data, t->n_bytes);
    }
    gguf_close(f);
    return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

typedef struct out {
    uint8_t *data;
    size_t n, max;
} out;

static void add(out *o, const void *p, size_t n) {
    if (n > o->max - o->n) return;
    memcpy(o->data + o->n, p, n);
    o->n += n;
}

static void add_u32(out *o, uint32_t v) {
    add(o, &v, sizeof v);
}

static void add_u64(out *o, uint64_t v) {
    add(o, &v, sizeof v);
}

static void add_text(out *o, const char *s) {
    add_u64(o, strlen(s));
    add(o, s, strlen(s));
}

static void add_tensor(out *o, const char *name, uint64_t dim, uint32_t type, uint64_t offset) {
    add_text(o, name);
    add_u32(o, 1);
    add_u64(o, dim);
    add_u32(o, type);
    add_u64(o, offset);
}

/* Two small files, one per magic, with keys of all shapes and a few tensors. */
size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const magics[] = {"GGUF", "PWRI"};
    static const uint8_t zeros[96];
    if (i >= sizeof magics / sizeof *magics) return 0;
    out o = {.data = data, .max = max};
    add(&o, magics[i], 4);
    add_u32(&o, 3), add_u64(&o, 3), add_u64(&o, 6);
    add_text(&o, "general.architecture"), add_u32(&o, GGUF_STRING), add_text(&o, "llama");
    add_text(&o, "general.alignment"), add_u32(&o, GGUF_U32), add_u32(&o, 32);
    add_text(&o, "f"), add_u32(&o, GGUF_F64), add_u64(&o, 0x3ff0000000000000);
    add_text(&o, "b"), add_u32(&o, GGUF_BOOL), add(&o, "\1", 1);
    add_text(&o, "s"), add_u32(&o, GGUF_ARRAY), add_u32(&o, GGUF_STRING), add_u64(&o, 2);
    add_text(&o, "one"), add_text(&o, "two");
    add_text(&o, "n"), add_u32(&o, GGUF_ARRAY), add_u32(&o, GGUF_ARRAY), add_u64(&o, 1);
    add_u32(&o, GGUF_I16), add_u64(&o, 3), add(&o, zeros, 6);
    add_tensor(&o, "a", 8, QUANT_F32, 0);
    add_tensor(&o, "b", 32, QUANT_Q4_0, 32);
    add_tensor(&o, "c", 8, i ? 18 : QUANT_I32, 64);
    add(&o, zeros, (32 - o.n % 32) % 32);
    add(&o, zeros, sizeof zeros);
    return o.n;
}
