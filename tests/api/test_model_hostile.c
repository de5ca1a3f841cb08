/* test_model_hostile.c: damaged and inconsistent model files. Opening one gives either an error (a
 * documented status and a message of the usual form) or a model that runs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_writer.h"
#include "rng.h"
#include "run_model.h"
#include "tiny_model.h"

#define GOOD_PATH TEST_BINARY_DIR "/test_model_hostile.good.gguf"
#define BAD_PATH  TEST_BINARY_DIR "/test_model_hostile.bad.gguf"

static pi_error err;

/* ---- trying ---------------------------------------------------------------------------------- */

/* Opens the bad file and runs two tokens if possible; checks messages. */
static pi_status try_model(const pi_model_options *options) {
    pi_model *m = NULL;
    pi_context *c = NULL;
    pi_session *s = NULL;
    pi_context_options o = run_exact_options();
    o.n_batch = 2;
    memset(&err, 0, sizeof err);
    pi_status status = pi_model_open(BAD_PATH, options, &m, &err);
    if (status != PI_OK) {
        assert_null(m);
        run_check_message(&err, status);
        bool text_missing = options && options->vocab_only && status == PI_ERR_NOT_FOUND;
        assert_true(text_missing || status == PI_ERR_FORMAT || status == PI_ERR_UNSUPPORTED ||
                    status == PI_ERR_IO || status == PI_ERR_NOMEM);
        assert_int_equal(pi_model_open(BAD_PATH, options, &m, NULL), status);
        return status;
    }
    pi_model_info info;
    pi_model_get_info(m, &info);
    if (!options || !options->vocab_only) {
        status = pi_context_create(m, &o, &c, &err);
        if (status == PI_OK) status = pi_session_create(c, 4, &s, &err);
        int32_t ids[2] = {0, info.n_vocab - 1};
        pi_input in = {.session = s, .tokens = ids, .n_tokens = 2, .logits = PI_LOGITS_LAST};
        if (status == PI_OK) status = pi_forward(c, &in, 1, &err);
        if (status != PI_OK) run_check_message(&err, status);
    }
    if (info.has_tokenizer) {
        int32_t ids[64];
        size_t n;
        assert_int_equal(pi_tokenize(m, "some text", 9, PI_TOKENIZE_BOS, ids, 64, &n, NULL), PI_OK);
        for (size_t i = 0; i < n; i++) assert_in_range(ids[i], 0, info.n_vocab - 1);
    }
    pi_session_destroy(s);
    pi_context_destroy(c);
    pi_model_close(m);
    return status;
}

static void expect(const char *what, pi_status want) {
    pi_status status = try_model(NULL);
    if (status != want)
        fail_msg("%s: %s instead of %s: %s", what, pi_status_name(status), pi_status_name(want),
                 err.message);
}

/* ---- editing --------------------------------------------------------------------------------- */

/* A change to a copy of the good file; unset fields have no effect. */
typedef struct edit {
    const char *drop_key, *drop_tensor;
    void (*put)(gguf_writer *w, const void *arg); /* adds or replaces keys */
    const void *arg;
    const char *tensor; /* tensor that gets this type, these dimensions, and zeros as data */
    quant_type type;
    int n_dims;
    uint64_t dims[4];
    const char *extra; /* additional tensor of one float */
} edit;

static void must(pi_status status, const pi_error *e) {
    if (status != PI_OK) fail_msg("%s", e->message);
}

static bool is_dropped(const edit *e, const gguf_tensor *t) {
    return e->drop_tensor && strcmp(t->name, e->drop_tensor) == 0;
}
static bool is_replaced(const edit *e, const gguf_tensor *t) {
    return e->tensor && strcmp(t->name, e->tensor) == 0;
}

static void copy_data(gguf_writer *w, const gguf_file *f, const edit *e) {
    static const uint8_t zeros[1 << 20];
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (is_dropped(e, t)) continue;
        if (!is_replaced(e, t)) {
            must(gguf_write_data(w, t->data, t->n_bytes, &err), &err);
            continue;
        }
        size_t n;
        assert_true(quant_row_bytes(e->type, e->dims[0], &n));
        for (int d = 1; d < e->n_dims; d++) n *= (size_t)e->dims[d];
        assert_true(n <= sizeof zeros);
        must(gguf_write_data(w, zeros, n, &err), &err);
    }
    if (e->extra) must(gguf_write_data(w, zeros, sizeof(float), &err), &err);
}

static void write_bad(const edit *e) {
    gguf_file *f;
    gguf_writer *w;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    must(gguf_writer_create(BAD_PATH, &w, &err), &err);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        bool drop = e->drop_key && strlen(e->drop_key) == v->key.n_bytes &&
                    memcmp(e->drop_key, v->key.data, v->key.n_bytes) == 0;
        if (!drop) gguf_put_value(w, v);
    }
    if (e->put) e->put(w, e->arg);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (is_dropped(e, t)) continue;
        if (is_replaced(e, t))
            must(gguf_add_tensor(w, t->name, e->type, e->n_dims, e->dims, &err), &err);
        else
            must(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), &err);
    }
    uint64_t one = 1;
    if (e->extra) must(gguf_add_tensor(w, e->extra, QUANT_F32, 1, &one, &err), &err);
    must(gguf_writer_begin_data(w, &err), &err);
    copy_data(w, f, e);
    must(gguf_writer_finish(w, &err), &err);
    gguf_close(f);
}

static void try_edit(const char *what, edit e, pi_status want) {
    write_bad(&e);
    expect(what, want);
}

/* ---- missing parts --------------------------------------------------------------------------- */

static void test_missing_keys(void **state) {
    (void)state;
    static const char *const required[] = {"general.architecture",
                                           "llama.block_count",
                                           "llama.embedding_length",
                                           "llama.context_length",
                                           "llama.attention.head_count",
                                           "llama.feed_forward_length",
                                           "llama.attention.layer_norm_rms_epsilon"};
    enum { N_REQUIRED = sizeof required / sizeof required[0] };
    gguf_file *f;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    int n_failed = 0;
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        char name[96];
        const gguf_value *v = gguf_value_at(f, i);
        snprintf(name, sizeof name, "%.*s", (int)v->key.n_bytes, v->key.data);
        write_bad(&(edit){.drop_key = name});
        bool is_required = false;
        for (int k = 0; k < N_REQUIRED; k++) is_required |= strcmp(name, required[k]) == 0;
        pi_status status = try_model(NULL);
        if (is_required) {
            assert_int_equal(status, PI_ERR_FORMAT);
            if (!strstr(err.message, name)) fail_msg("%s is not named: %s", name, err.message);
            n_failed++;
        }
    }
    assert_int_equal(n_failed, N_REQUIRED);
    gguf_close(f);
}

static void test_missing_tensors(void **state) {
    (void)state;
    gguf_file *f;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    assert_true(gguf_n_tensors(f) > 20);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const char *name = gguf_tensor_at(f, i)->name;
        bool optional = strcmp(name, "output.weight") == 0 || strstr(name, ".bias") ||
                        strcmp(name, "rope_freqs.weight") == 0;
        try_edit(name, (edit){.drop_tensor = name}, optional ? PI_OK : PI_ERR_FORMAT);
        if (!optional && !strstr(err.message, name))
            fail_msg("%s is not named: %s", name, err.message);
    }
    gguf_close(f);
}

/* ---- wrong tensors --------------------------------------------------------------------------- */

static void test_wrong_shapes(void **state) {
    (void)state;
    gguf_file *f;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        for (int d = 0; d < 3; d++) {
            for (int change = -1; change <= 1; change += 2) {
                edit e = {.tensor = t->name,
                          .type = QUANT_F32,
                          .n_dims = d < t->n_dims ? t->n_dims : d + 1};
                for (int k = 0; k < 4; k++) e.dims[k] = t->dims[k];
                if (e.dims[d] == 1 && change < 0) continue;
                e.dims[d] = (uint64_t)((int64_t)e.dims[d] + change);
                /* The vocabulary must equal the rows of the embedding table; otherwise the head
                 * does not match, which is also an error. */
                try_edit(t->name, e, PI_ERR_FORMAT);
            }
        }
    }
    gguf_close(f);
}

static void test_wrong_types(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_I8, QUANT_I32, QUANT_I64, QUANT_F64, QUANT_Q8_0};
    gguf_file *f;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            edit e = {.tensor = t->name, .type = types[k], .n_dims = t->n_dims};
            for (int d = 0; d < 4; d++) e.dims[d] = t->dims[d];
            if (types[k] == QUANT_Q8_0 && t->dims[0] % 32 != 0) continue;
            write_bad(&e);
            pi_status status = try_model(NULL);
            bool fine = types[k] == QUANT_Q8_0 && t->n_dims == 2;
            if (fine != (status == PI_OK)) fail_msg("%s: %s", t->name, err.message);
        }
    }
    gguf_close(f);
}

static void test_unknown_tensors(void **state) {
    (void)state;
    static const struct {
        const char *name;
        pi_status status;
    } cases[] = {{"blk.0.attn_sinks.weight", PI_ERR_UNSUPPORTED},
                 {"blk.1.post_ffw_norm.weight", PI_ERR_UNSUPPORTED},
                 {"blk.1.ffn_gate_inp.weight", PI_ERR_FORMAT},
                 {"blk.0.attn_q_norm.weight", PI_ERR_UNSUPPORTED}, /* llama has none */
                 {"blk.0.attn_q.input_scale", PI_OK},
                 {"blk.2.nextn.eh_proj.weight", PI_OK}, /* beyond the last layer */
                 {"vision.patch", PI_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        try_edit(cases[i].name, (edit){.extra = cases[i].name}, cases[i].status);
    /* Vectors with the names of scales that do not have one element. */
    tiny_model t = tiny_default();
    t.scales = true;
    t.vocabulary = true;
    t.n_vocab = 300;
    tiny_write(&t, GOOD_PATH);
    edit e = {.tensor = "blk.0.attn_q.scale", .type = QUANT_F32, .n_dims = 1, .dims = {2, 1, 1, 1}};
    try_edit("scale of two elements", e, PI_ERR_FORMAT);
}

/* Biases that llama.cpp loads but does not add. */
static void test_biases_not_added(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensor;
    } cases[] = {{"qwen2vl", "output.bias"},
                 {"qwen3vl", "output.bias"},
                 {"qwen3vl", "blk.0.attn_q.bias"},
                 {"qwen3vl", "blk.1.attn_v.bias"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_model t = tiny_default();
        t.arch = cases[i].arch;
        t.qkv_bias = strcmp(t.arch, "qwen2vl") == 0;
        tiny_write(&t, GOOD_PATH);
        try_edit(t.arch, (edit){.extra = "vision.patch"}, PI_OK);
        try_edit(cases[i].tensor, (edit){.extra = cases[i].tensor}, PI_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, cases[i].tensor));
    }
}

/* ---- wrong values ---------------------------------------------------------------------------- */

typedef struct key_value {
    const char *key;
    int64_t number;
} key_value;

/* Numbers that do not fit 32 bits are written as 64-bit ones, negative ones as signed. */
static void put_number(gguf_writer *w, const void *arg) {
    const key_value *v = arg;
    if (v->number < 0 && v->number >= INT32_MIN)
        gguf_put_i32(w, v->key, (int32_t)v->number);
    else if (v->number >= 0 && v->number <= UINT32_MAX)
        gguf_put_u32(w, v->key, (uint32_t)v->number);
    else
        gguf_put_u64(w, v->key, (uint64_t)v->number);
}

/* Mixtures of experts in files of dense architectures; the key alone is taken for a mistake. */
static void test_experts_of_dense(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key, *words;
    } cases[] = {{"internlm2", "internlm2.expert_count", "architecture internlm2 is dense"},
                 {"qwen3", "qwen3.expert_count", "its mixtures of experts are qwen3moe"},
                 {"smollm3", "smollm3.expert_count", "architecture smollm3 is dense"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const key_value v = {cases[i].key, 4};
        tiny_model t = tiny_default();
        t.arch = cases[i].arch;
        tiny_write(&t, GOOD_PATH);
        edit e = {.put = put_number, .arg = &v};
        try_edit(cases[i].key, e, PI_OK);
        e.extra = "blk.0.ffn_gate_inp.weight";
        try_edit(cases[i].key, e, PI_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, cases[i].key));
        assert_non_null(strstr(err.message, cases[i].words));
    }
}

/* RoPE sections that are not valid numbers of pairs. */
static void put_sections(gguf_writer *w, const void *arg) {
    gguf_put_array(w, "qwen2vl.rope.dimension_sections", GGUF_I32, arg, 4);
}

static void test_bad_sections(void **state) {
    (void)state;
    static const int32_t good[4] = {2, 1, 1, 0}, negative[4] = {2, -1, 1, 0},
                         many[4] = {2, 1, 1, INT32_MAX};
    tiny_model t = tiny_default();
    t.arch = "qwen2vl";
    t.qkv_bias = true;
    tiny_write(&t, GOOD_PATH);
    try_edit("good sections", (edit){.put = put_sections, .arg = good}, PI_OK);
    try_edit("negative", (edit){.put = put_sections, .arg = negative}, PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "rope.dimension_sections"));
    try_edit("too many", (edit){.put = put_sections, .arg = many}, PI_ERR_FORMAT);
}

static const char *const int_keys[] = {
    "llama.block_count",          "llama.embedding_length",        "llama.context_length",
    "llama.attention.head_count", "llama.attention.head_count_kv", "llama.feed_forward_length",
    "llama.attention.key_length", "llama.attention.value_length",  "llama.rope.dimension_count"};
enum { N_INT_KEYS = sizeof int_keys / sizeof int_keys[0] };

static void test_bad_integers(void **state) {
    (void)state;
    static const int64_t values[] = {0,          -1,        -2,        INT32_MIN, INT32_MAX,
                                     UINT32_MAX, 1ll << 32, INT64_MAX, INT64_MIN, (1ll << 32) + 2};
    for (int k = 0; k < N_INT_KEYS; k++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            key_value v = {int_keys[k], values[i]};
            char what[96];
            snprintf(what, sizeof what, "%s = %lld", v.key, (long long)v.number);
            /* Any positive context length is accepted. */
            bool fine = k == 2 && v.number == INT32_MAX;
            try_edit(what, (edit){.put = put_number, .arg = &v}, fine ? PI_OK : PI_ERR_FORMAT);
        }
    }
}

static void test_disagreeing_integers(void **state) {
    (void)state;
    static const struct {
        key_value v;
        pi_status status;
    } cases[] = {{{"llama.attention.head_count", 3}, PI_ERR_FORMAT},
                 {{"llama.attention.head_count", 1024}, PI_ERR_FORMAT},
                 {{"llama.attention.head_count", 64}, PI_ERR_FORMAT}, /* more than n_embd */
                 {{"llama.attention.head_count_kv", 3}, PI_ERR_FORMAT},
                 {{"llama.attention.head_count_kv", 8}, PI_ERR_FORMAT},
                 {{"llama.attention.head_count_kv", 4}, PI_ERR_FORMAT},
                 {{"llama.attention.key_length", 7}, PI_ERR_FORMAT},
                 {{"llama.attention.key_length", 4096}, PI_ERR_FORMAT},
                 {{"llama.attention.value_length", 16}, PI_ERR_UNSUPPORTED},
                 {{"llama.rope.dimension_count", 10}, PI_ERR_FORMAT},
                 {{"llama.rope.dimension_count", 5}, PI_ERR_FORMAT},
                 {{"llama.rope.dimension_count", 6}, PI_ERR_FORMAT}, /* rope_freqs does not match */
                 {{"llama.block_count", 1}, PI_OK},
                 {{"llama.block_count", 3}, PI_ERR_FORMAT},
                 {{"llama.block_count", 1024}, PI_ERR_FORMAT},
                 {{"llama.block_count", 1025}, PI_ERR_FORMAT},
                 {{"llama.feed_forward_length", 63}, PI_ERR_FORMAT},
                 {{"llama.expert_count", 8}, PI_ERR_FORMAT},
                 {{"llama.expert_count", 0}, PI_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char what[96];
        snprintf(what, sizeof what, "%s = %lld", cases[i].v.key, (long long)cases[i].v.number);
        try_edit(what, (edit){.put = put_number, .arg = &cases[i].v}, cases[i].status);
    }
}

typedef struct key_float {
    const char *key;
    float number;
} key_float;

static void put_float(gguf_writer *w, const void *arg) {
    const key_float *v = arg;
    gguf_put_f32(w, v->key, v->number);
}

static void test_bad_floats(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon",
                                       "llama.rope.freq_base", "llama.hidden_activation_threshold",
                                       "llama.rope.scale_linear"};
    const float values[] = {NAN, INFINITY, -INFINITY, -1e38f, 1e38f};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            key_float v = {keys[k], values[i]};
            char what[96];
            snprintf(what, sizeof what, "%s = %g", v.key, (double)v.number);
            try_edit(what, (edit){.put = put_float, .arg = &v}, PI_ERR_FORMAT);
        }
    }
    key_float zero = {"llama.rope.freq_base", 0};
    try_edit("frequency base 0", (edit){.put = put_float, .arg = &zero}, PI_ERR_FORMAT);
    key_float fraction = {"llama.block_count", 2.5f};
    try_edit("fraction", (edit){.put = put_float, .arg = &fraction}, PI_ERR_FORMAT);
    /* Unusual but valid: these models must run. */
    key_float odd[] = {{"llama.rope.freq_base", 1}, {"llama.attention.layer_norm_rms_epsilon", 0}};
    for (int i = 0; i < 2; i++) try_edit("odd", (edit){.put = put_float, .arg = &odd[i]}, PI_OK);
}

typedef struct key_array {
    const char *key;
    gguf_value_type type;
    uint64_t count;
} key_array;

static void put_short_array(gguf_writer *w, const void *arg) {
    static const int32_t fours[8] = {4, 4, 4, 4, 4, 4, 4, 4};
    const key_array *v = arg;
    gguf_put_array(w, v->key, v->type, fours, v->count);
}
static void put_text(gguf_writer *w, const void *arg) {
    gguf_put_string(w, arg, "4");
}

static void test_arrays(void **state) {
    (void)state;
    for (int k = 0; k < N_INT_KEYS; k++) {
        try_edit(int_keys[k], (edit){.put = put_text, .arg = int_keys[k]}, PI_ERR_FORMAT);
        key_array none = {int_keys[k], GGUF_I32, 0}, floats = {int_keys[k], GGUF_F32, 4};
        try_edit("empty array", (edit){.put = put_short_array, .arg = &none}, PI_ERR_FORMAT);
        try_edit("floats", (edit){.put = put_short_array, .arg = &floats}, PI_ERR_FORMAT);
    }
    key_array one = {"llama.attention.head_count", GGUF_I32, 1}; /* for two layers */
    try_edit("one head count", (edit){.put = put_short_array, .arg = &one}, PI_ERR_FORMAT);
    one.count = 2;
    try_edit("two head counts", (edit){.put = put_short_array, .arg = &one}, PI_OK);
    one.count = 5;
    try_edit("five head counts", (edit){.put = put_short_array, .arg = &one}, PI_OK);
}

/* ---- strings --------------------------------------------------------------------------------- */

typedef struct key_text {
    const char *key, *text;
} key_text;

static void put_key_text(gguf_writer *w, const void *arg) {
    const key_text *v = arg;
    gguf_put_string(w, v->key, v->text);
}

static void test_names(void **state) {
    (void)state;
    static const struct {
        key_text v;
        pi_status status;
    } cases[] = {{{"general.architecture", "t5"}, PI_ERR_UNSUPPORTED},
                 {{"general.architecture", ""}, PI_ERR_UNSUPPORTED},
                 {{"general.architecture", "llama2"}, PI_ERR_UNSUPPORTED},
                 {{"general.architecture", "qwen3"}, PI_ERR_FORMAT}, /* keys of llama */
                 {{"general.architecture", "a name\nwith\x01 odd bytes"}, PI_ERR_UNSUPPORTED},
                 {{"general.name", "\xff\n\x02"}, PI_OK},
                 {{"llama.rope.scaling.type", "longrope"}, PI_OK},
                 {{"llama.rope.scaling.type", ""}, PI_ERR_UNSUPPORTED},
                 {{"llama.rope.scaling.type", "none"}, PI_OK},
                 {{"llama.rope.scaling.type", "linear"}, PI_OK},
                 {{"llama.rope.scaling.type", "yarn"}, PI_OK},
                 {{"llama.hidden_activation", "swish"}, PI_ERR_UNSUPPORTED},
                 {{"llama.hidden_activation", ""}, PI_ERR_UNSUPPORTED},
                 {{"llama.hidden_activation", "gelu"}, PI_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        try_edit(cases[i].v.text, (edit){.put = put_key_text, .arg = &cases[i].v}, cases[i].status);
    key_value number = {"general.architecture", 5};
    try_edit("number as name", (edit){.put = put_number, .arg = &number}, PI_ERR_FORMAT);
    number.key = "llama.rope.scaling.type";
    try_edit("number as scaling", (edit){.put = put_number, .arg = &number}, PI_ERR_FORMAT);
    number.key = "llama.hidden_activation";
    try_edit("number as activation", (edit){.put = put_number, .arg = &number}, PI_ERR_UNSUPPORTED);
}

/* YaRN with numbers that give logarithms of zero and reversed ranges. */
typedef struct yarn_keys {
    float factor, fast, slow, base;
    uint32_t original;
} yarn_keys;

static void put_yarn(gguf_writer *w, const void *arg) {
    const yarn_keys *y = arg;
    gguf_put_string(w, "llama.rope.scaling.type", "yarn");
    gguf_put_f32(w, "llama.rope.scaling.factor", y->factor);
    gguf_put_f32(w, "llama.rope.scaling.yarn_beta_fast", y->fast);
    gguf_put_f32(w, "llama.rope.scaling.yarn_beta_slow", y->slow);
    gguf_put_u32(w, "llama.rope.scaling.original_context_length", y->original);
    gguf_put_f32(w, "llama.rope.freq_base", y->base);
}

static void test_yarn(void **state) {
    (void)state;
    static const yarn_keys good[] = {{4, 32, 1, 10000, 64},
                                     {0, 32, 1, 10000, 64},
                                     {4, 1, 32, 10000, 1},
                                     {1e6f, 1e6f, 1e-30f, 1, INT32_MAX},
                                     {1e-30f, 32, 1, 1e12f, 64}};
    static const yarn_keys bad[] = {{-1, 32, 1, 10000, 64},        {4, 0, 1, 10000, 64},
                                    {4, 32, -1, 10000, 64},        {4, 32, 1, 10000, 0},
                                    {4, 32, 1, 10000, UINT32_MAX}, {1e7f, 32, 1, 10000, 64}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        try_edit("yarn", (edit){.put = put_yarn, .arg = &good[i]}, PI_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        try_edit("bad yarn", (edit){.put = put_yarn, .arg = &bad[i]}, PI_ERR_FORMAT);
}

/* A vocabulary may be smaller than the embedding table, which is often padded, but not larger. */
static void test_vocabulary_size(void **state) {
    (void)state;
    for (int change = -3; change <= 3; change += 3) {
        uint64_t rows = (uint64_t)(300 + change);
        edit e = {.tensor = "token_embd.weight",
                  .type = QUANT_F32,
                  .n_dims = 2,
                  .dims = {32, rows, 1, 1},
                  .drop_tensor = "output.weight"};
        try_edit("vocabulary", e, change < 0 ? PI_ERR_FORMAT : PI_OK);
    }
}

/* ---- damaged bytes --------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t *data;
    size_t n, header, end; /* bytes of the file; offset of its data; end of the last tensor */
} bytes;

static bytes read_good(void) {
    bytes b = {0};
    gguf_file *f;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    b.header = (size_t)gguf_tensor_at(f, 0)->file_offset;
    b.n = (size_t)gguf_file_bytes(f);
    const gguf_tensor *last = gguf_tensor_at(f, gguf_n_tensors(f) - 1);
    b.end = (size_t)last->file_offset + last->n_bytes;
    gguf_close(f);
    b.data = malloc(b.n);
    FILE *file = fopen(GOOD_PATH, "rb");
    assert_non_null(file);
    assert_int_equal(fread(b.data, 1, b.n, file), b.n);
    fclose(file);
    return b;
}

static void write_bytes(const uint8_t *data, size_t n) {
    FILE *file = fopen(BAD_PATH, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
}

static void test_truncated(void **state) {
    (void)state;
    bytes b = read_good();
    rng random;
    rng_seed(&random, 1);
    write_bytes(b.data, b.n);
    expect("whole", PI_OK);
    for (size_t i = 0; i < 300; i++) {
        size_t n = i < 64 ? i : i < 200 ? rng_u64(&random) % b.header : rng_u64(&random) % b.end;
        if (i == 299) n = b.end - 1;
        write_bytes(b.data, n);
        if (try_model(NULL) == PI_OK) fail_msg("%zu of %zu bytes were enough", n, b.n);
    }
    free(b.data);
}

/* Other beginnings: the magic of PowerInfer, other versions, no magic. */
static void test_other_magic(void **state) {
    (void)state;
    bytes b = read_good();
    memcpy(b.data, "PWRI", 4);
    write_bytes(b.data, b.n);
    expect("PowerInfer's magic, no predictors", PI_OK);
    memcpy(b.data, "GGML", 4);
    write_bytes(b.data, b.n);
    expect("another magic", PI_ERR_FORMAT);
    memcpy(b.data, "GGUF\1", 5);
    write_bytes(b.data, b.n);
    expect("version 1", PI_ERR_UNSUPPORTED);
    b.data[4] = 4;
    write_bytes(b.data, b.n);
    expect("version 4", PI_ERR_UNSUPPORTED);
    free(b.data);
}

/* Flips one to four bits of the header: any documented result is right. */
static void flip_bits(uint64_t seed, int n_files, const pi_model_options *options) {
    bytes b = read_good();
    rng random;
    rng_seed(&random, seed);
    int n_opened = 0;
    for (int i = 0; i < n_files; i++) {
        size_t at[4];
        int bit[4], n = 1 + (int)(rng_u64(&random) % 4);
        for (int k = 0; k < n; k++) {
            at[k] = rng_u64(&random) % b.header;
            bit[k] = 1 << (rng_u64(&random) % 8);
            b.data[at[k]] = (uint8_t)(b.data[at[k]] ^ bit[k]);
        }
        write_bytes(b.data, b.n);
        n_opened += try_model(options) == PI_OK;
        for (int k = n - 1; k >= 0; k--) b.data[at[k]] = (uint8_t)(b.data[at[k]] ^ bit[k]);
    }
    printf("%d of %d damaged files opened\n", n_opened, n_files);
    assert_true(n_opened < n_files);
    free(b.data);
}

static void test_flipped_bits(void **state) {
    (void)state;
    pi_model_options options = pi_model_default_options();
    flip_bits(1, 300, NULL); /* most of this header is the vocabulary */
    options.vocab_only = true;
    flip_bits(2, 200, &options);
    tiny_model t = tiny_default(); /* most of this header is names and numbers */
    t.n_layer = 1;
    t.rope_freqs = true;
    t.scaling = TINY_SCALING_YARN;
    tiny_write(&t, GOOD_PATH);
    flip_bits(3, 800, NULL);
    options.vocab_only = false;
    options.no_mmap = true;
    flip_bits(4, 200, &options);
}

/* Random bytes as weights: NaN, infinity and absurd scales go through every kernel and every type
 * of cache, and the sampler accepts the resulting logits. */
static void run_anything(pi_kernels kernels, pi_cache_type cache) {
    pi_context_options o = run_exact_options();
    o.kernels = kernels;
    o.cache_k = o.cache_v = cache;
    o.n_batch = 20;
    run_model r = run_open(BAD_PATH, &o);
    pi_session *s = run_session(&r, 24);
    pi_sampler *sampler;
    must(pi_sampler_create(r.model, NULL, &sampler, &err), &err);
    int32_t ids[20];
    run_random_tokens(1, r.n_vocab, ids, 20);
    pi_input in = {.session = s, .tokens = ids, .n_tokens = 20, .logits = PI_LOGITS_LAST};
    for (int i = 0; i < 4; i++) {
        pi_status status = pi_forward(r.context, &in, 1, &err);
        if (status == PI_ERR_RANGE) { /* NaN or infinity: found after all kernels have run */
            run_check_message(&err, status);
            break;
        }
        must(status, &err);
        in.n_tokens = 1;
        ids[0] = pi_sampler_sample(sampler, pi_logits(r.context, 0));
        assert_in_range(ids[0], 0, r.n_vocab - 1);
    }
    pi_sampler_destroy(sampler);
    pi_session_destroy(s);
    run_close(&r);
}

static void test_any_weights(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k"};
    static const pi_kernels kernels[] = {PI_KERNELS_SCALAR, PI_KERNELS_AVX2, PI_KERNELS_AVX512,
                                         PI_KERNELS_NEON};
    rng random;
    rng_seed(&random, 6);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_model t = tiny_default();
        t.type = types[i];
        t.n_layer = 1;
        t.n_embd = t.n_ff[0] = 256;
        t.head_dim = t.n_rot = 64;
        tiny_write(&t, GOOD_PATH);
        bytes b = read_good();
        /* All bytes, or one in a hundred. */
        for (int density = 1; density <= 100; density += 99) {
            for (size_t k = b.header; k < b.end; k++)
                if (rng_u64(&random) % (uint64_t)density == 0)
                    b.data[k] = (uint8_t)rng_u64(&random);
            write_bytes(b.data, b.n);
            for (int n = 0; n < 4; n++)
                for (int cache = 0;
                     cache <= PI_CACHE_IQ4_NL && run_has_kernels(GOOD_PATH, kernels[n]); cache++)
                    run_anything(kernels[n], (pi_cache_type)cache);
        }
        free(b.data);
    }
}

static int write_good(void **state) {
    (void)state;
    tiny_model t = tiny_default();
    t.qkv_bias = t.rope_freqs = true;
    t.n_vocab = 300;
    t.vocabulary = true;
    tiny_write(&t, GOOD_PATH);
    return 0;
}

#define FRESH(test) cmocka_unit_test_setup(test, write_good)

int main(void) {
    const struct CMUnitTest tests[] = {
        FRESH(test_missing_keys),
        FRESH(test_missing_tensors),
        FRESH(test_wrong_shapes),
        FRESH(test_wrong_types),
        FRESH(test_unknown_tensors),
        FRESH(test_biases_not_added),
        FRESH(test_experts_of_dense),
        FRESH(test_bad_sections),
        FRESH(test_bad_integers),
        FRESH(test_disagreeing_integers),
        FRESH(test_bad_floats),
        FRESH(test_arrays),
        FRESH(test_names),
        FRESH(test_yarn),
        FRESH(test_vocabulary_size),
        FRESH(test_truncated),
        FRESH(test_other_magic),
        FRESH(test_flipped_bits),
        FRESH(test_any_weights),
    };
    return cmocka_run_group_tests_name("model_hostile", tests, NULL, NULL);
}
