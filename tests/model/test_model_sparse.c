/* test_model_sparse.c: model_open with prepared files and files of the original PowerInfer: the
 * tensors of each role, the meaning of keys, and the exact text of each refusal. Test files are
 * copies of a valid file with one change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bundle.h"
#include "bundled_file.h"
#include "gguf_writer.h"
#include "model.h"
#include "sparse_keys.h"
#include "tiny_model.h"

#define GOOD_PATH  TEST_BINARY_DIR "/test_model_sparse_good.gguf"
#define MODEL_PATH TEST_BINARY_DIR "/test_model_sparse.gguf"

enum { N_LAYER = 2, N_EMBD = 64, N_FF = 96, RANK = 32, MAX_EXTRA = 4, MAX_DROPPED = 3 };

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct extra_tensor {
    const char *name;
    quant_type type;
    uint64_t dims[2]; /* dims[1] 0: a vector */
    const void *data; /* NULL: zeros */
} extra_tensor;

/* A change to the valid file. */
typedef struct change {
    const char *drop[MAX_DROPPED]; /* names of tensors and keys */
    void (*keys)(gguf_writer *w);
    extra_tensor extra[MAX_EXTRA];
} change;

static tiny_model prepared_model(const char *predictor) {
    tiny_model t = tiny_default();
    t.n_embd = N_EMBD;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = t.n_ff[1] = N_FF;
    t.activation = "relu";
    t.sparse.down_t = true;
    t.sparse.predictor = predictor;
    t.sparse.rank = RANK;
    return t;
}

static bool is_dropped(const change *c, gguf_string name) {
    for (int i = 0; i < MAX_DROPPED && c->drop[i]; i++)
        if (gguf_string_is(name, c->drop[i])) return true;
    return false;
}

static void must(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

static void write_extra(gguf_writer *w, const extra_tensor *x) {
    static const uint8_t zeros[1 << 17];
    pi_error err;
    size_t row_bytes, n_bytes;
    assert_true(quant_row_bytes(x->type, x->dims[0], &row_bytes));
    n_bytes = row_bytes * (x->dims[1] ? x->dims[1] : 1);
    assert_true(n_bytes <= sizeof zeros);
    must(gguf_write_data(w, x->data ? x->data : zeros, n_bytes, &err), &err);
}

static void write_changed(const change *c) {
    gguf_file *f;
    gguf_writer *w;
    pi_error err;
    must(gguf_open(GOOD_PATH, NULL, &f, &err), &err);
    must(gguf_writer_create(MODEL_PATH, &w, &err), &err);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        if (!is_dropped(c, v->key)) gguf_put_value(w, v);
    }
    if (c->keys) c->keys(w);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (!is_dropped(c, (gguf_string){t->name, strlen(t->name)}))
            must(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), &err);
    }
    for (int i = 0; i < MAX_EXTRA && c->extra[i].name; i++) {
        const extra_tensor *x = &c->extra[i];
        must(gguf_add_tensor(w, x->name, x->type, x->dims[1] ? 2 : 1, x->dims, &err), &err);
    }
    must(gguf_writer_begin_data(w, &err), &err);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (!is_dropped(c, (gguf_string){t->name, strlen(t->name)}))
            must(gguf_write_data(w, t->data, t->n_bytes, &err), &err);
    }
    for (int i = 0; i < MAX_EXTRA && c->extra[i].name; i++) write_extra(w, &c->extra[i]);
    must(gguf_writer_finish(w, &err), &err);
    gguf_close(f);
}

static model *open_changed(const change *c) {
    model *m;
    pi_error err;
    write_changed(c);
    must(model_open(MODEL_PATH, NULL, &m, &err), &err);
    return m;
}

static void expect_refusal(const change *c, pi_status want, const char *message) {
    model *m;
    pi_error err = {0};
    write_changed(c);
    pi_status status = model_open(MODEL_PATH, NULL, &m, &err);
    assert_null(m);
    if (status != want || strcmp(err.message, message) != 0)
        fail_msg("%s: %s\ninstead of\n%s", pi_status_name(status), err.message, message);
}

/* Replaces GGUF's magic by PowerInfer's. */
static void set_magic(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fwrite("PWRI", 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
}

static float freq[N_FF];
static int32_t perm[N_FF];

static void fill_statistics(void) {
    for (int i = 0; i < N_FF; i++) {
        freq[i] = 1 - (float)i / N_FF;
        perm[i] = (i * 5 + 3) % N_FF; /* 5 and 96 have no common divisor */
    }
}

/* ---- binding --------------------------------------------------------------------------------- */

static void put_quality(gguf_writer *w) {
    const float recall[N_LAYER] = {0.97f, NAN}, density[N_LAYER] = {0.25f, 0.5f};
    const float cuts[N_LAYER] = {NAN, 0.125f}, hidden[N_LAYER] = {NAN, 0.0625f};
    gguf_put_u32(w, SPARSE_KEY_CALIBRATION_TOKENS, 16384);
    gguf_put_string(w, SPARSE_KEY_CALIBRATION_SHA256,
                    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    gguf_put_array(w, SPARSE_KEY_PREDICTOR_RECALL, GGUF_F32, recall, N_LAYER);
    gguf_put_array(w, SPARSE_KEY_PREDICTOR_DENSITY, GGUF_F32, density, N_LAYER);
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_CUT, GGUF_F32, cuts, N_LAYER);
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_DOWN, GGUF_F32, hidden, N_LAYER);
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_UP_ROWS, GGUF_F32, recall, N_LAYER);
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_DOWN_ROWS, GGUF_F32, density, N_LAYER);
    gguf_put_f32(w, SPARSE_KEY_CALIBRATION_LOSS, NAN);
    gguf_put_f32(w, SPARSE_KEY_PREDICTOR_THRESHOLD, -0.5f);
}

static void test_keys(void **state) {
    (void)state;
    tiny_model t = prepared_model("lowrank");
    tiny_write(&t, GOOD_PATH);
    fill_statistics();
    change c = {.keys = put_quality,
                .extra = {{"blk.0.ffn_freq", QUANT_F32, {N_FF, 0}, freq},
                          {"blk.0.ffn_perm", QUANT_I32, {N_FF, 0}, perm}}};
    model *m = open_changed(&c);
    assert_true(m->sparse.prepared);
    assert_false(m->sparse.pwri);
    assert_int_equal(m->sparse.calibration_tokens, 16384);
    assert_string_equal(m->sparse.calibration_sha256,
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    assert_true(isnan(m->sparse.predict_loss));
    assert_true(m->sparse.threshold_loss == 0.004f);
    assert_true(m->sparse.predictor_threshold == -0.5f);
    const model_layer_sparse *s = &m->layers[0].sparse;
    assert_int_equal(s->predictor, PREDICTOR_LOWRANK);
    assert_false(s->predictor_residual);
    assert_int_equal(s->rank, RANK);
    assert_true(s->recall == 0.97f && s->density == 0.25f && isnan(s->cut));
    assert_true(isnan(s->cut_down) && s->up_rows == 0.97f && s->down_rows == 0.25f);
    assert_memory_equal(s->freq, freq, sizeof freq);
    assert_memory_equal(s->perm, perm, sizeof perm);
    s = &m->layers[1].sparse;
    assert_true(isnan(s->recall) && s->density == 0.5f && s->cut == 0.125f);
    assert_true(s->cut_down == 0.0625f && isnan(s->up_rows) && s->down_rows == 0.5f);
    assert_null(s->freq);
    assert_null(s->perm);
    model_close(m);
}

static void test_down_t(void **state) {
    (void)state;
    tiny_model t = prepared_model("sign");
    tiny_write(&t, GOOD_PATH);
    model *m = open_changed(&(change){.drop = {NULL}});
    const model_tensor *x = m->layers[1].t;
    assert_null(x[ROLE_FFN_DOWN].data);
    assert_int_equal(x[ROLE_FFN_DOWN_T].n_in, N_EMBD);
    assert_int_equal(x[ROLE_FFN_DOWN_T].n_out, N_FF);
    assert_int_equal(x[ROLE_FFN_SIGN].type, QUANT_I8);
    assert_int_equal(x[ROLE_FFN_SIGN].row_bytes, N_EMBD / 8);
    assert_int_equal(x[ROLE_FFN_SIGN].n_out, N_FF);
    assert_int_equal(m->layers[1].sparse.predictor, PREDICTOR_SIGN);
    assert_int_equal(m->layers[1].sparse.rank, 0);
    assert_non_null(x[ROLE_FC2_BIAS].data);
    /* signs and biases of scores are not parameters of the network */
    uint64_t layer = 2 * N_EMBD + (2 * 64 + 2 * 32) * N_EMBD + 3 * N_EMBD * N_FF;
    assert_int_equal(m->n_params, 2 * layer + N_EMBD + 2 * 40 * N_EMBD);
    model_close(m);
}

/* Without the version key the same tensors belong to an ordinary model. */
static void test_not_prepared(void **state) {
    (void)state;
    tiny_model t = prepared_model("lowrank");
    tiny_write(&t, GOOD_PATH);
    model *m = open_changed(&(change){.drop = {SPARSE_KEY_VERSION}});
    assert_false(m->sparse.prepared);
    assert_int_equal(m->layers[0].sparse.predictor, PREDICTOR_NONE);
    assert_true(isnan(m->layers[0].sparse.recall));
    assert_non_null(m->layers[0].t[ROLE_FFN_DOWN_T].data);
    model_close(m);
}

static void put_threshold(gguf_writer *w) {
    gguf_put_f32(w, SPARSE_KEY_PREDICTOR_THRESHOLD, 0.25f);
}

#define BAD_KEY "bad key: " MODEL_PATH ": powerinfer."

static void test_pwri(void **state) {
    (void)state;
    tiny_model t = prepared_model("relu_mlp");
    tiny_write(&t, GOOD_PATH);
    write_changed(&(change){
        .drop = {SPARSE_KEY_VERSION, "llama.hidden_activation", SPARSE_KEY_PREDICTOR_KIND},
        .keys = put_threshold});
    for (int pwri = 0; pwri < 2; pwri++) {
        model *m;
        pi_error err;
        if (pwri) set_magic(MODEL_PATH);
        must(model_open(MODEL_PATH, NULL, &m, &err), &err);
        assert_int_equal(m->sparse.pwri, pwri);
        assert_int_equal(m->hp.activation, pwri ? ACTIVATION_RELU : ACTIVATION_SILU);
        const model_layer_sparse *s = &m->layers[1].sparse;
        assert_int_equal(s->predictor, pwri ? PREDICTOR_RELU_MLP : PREDICTOR_NONE);
        assert_int_equal(s->predictor_residual, pwri);
        assert_int_equal(s->rank, pwri ? RANK : 0);
        assert_true(m->sparse.predictor_threshold == (pwri ? 0.25f : 0.0f));
        model_close(m);
    }

    /* our keys contradict that magic */
    tiny_model both = prepared_model("sign");
    tiny_write(&both, MODEL_PATH);
    set_magic(MODEL_PATH);
    pi_error err = {0};
    model *none;
    assert_int_equal(model_open(MODEL_PATH, NULL, &none, &err), PI_ERR_FORMAT);
    assert_string_equal(err.message, BAD_KEY "version is in a file with the magic PWRI, which has "
                                             "none; prepare the model again");
}

/* Ranks may differ between layers; fc1 may have a block type when fc2 does not. */
static void test_ranks(void **state) {
    (void)state;
    tiny_model t = prepared_model("relu_mlp");
    tiny_write(&t, GOOD_PATH);
    model *m = open_changed(
        &(change){.drop = {"blk.0.fc1.weight", "blk.0.fc2.weight"},
                  .extra = {{"blk.0.fc1.weight", QUANT_Q8_0, {N_EMBD, 37}, NULL},
                            {"blk.0.fc2.weight", QUANT_F16, {37, N_FF}, NULL}}});
    assert_int_equal(m->layers[0].sparse.rank, 37);
    assert_int_equal(m->layers[0].t[ROLE_FC2].row_bytes, 37 * 2);
    assert_int_equal(m->layers[1].sparse.rank, RANK);
    model_close(m);
}

/* ---- bundles --------------------------------------------------------------------------------- */

static void write_bundled(const tiny_model *t, int extra) {
    tiny_write(t, MODEL_PATH);
    bundled_write(MODEL_PATH, GOOD_PATH, extra);
}

/* Rows of gate, up and down keep their values; bytes between them are ignored. */
static void test_bundles(void **state) {
    (void)state;
    static const tensor_role roles[] = {ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN_T};
    for (int gated = 0; gated < 2; gated++) {
        tiny_model t = prepared_model("lowrank");
        if (!gated) t.arch = "falcon";
        t.type = gated ? "q4_0" : "f32";
        t.scales = gated;
        write_bundled(&t, gated);
        model *m, *plain;
        pi_error err;
        must(model_open(GOOD_PATH, NULL, &m, &err), &err);
        must(model_open(MODEL_PATH, NULL, &plain, &err), &err);
        assert_true(m->n_params == plain->n_params);
        size_t stride = gated ? 1024 : 512; /* 3 * 36 bytes and an extra block; 2 * 256 bytes */
        for (int i = 0; i < N_LAYER; i++) {
            assert_null(m->layers[i].t[ROLE_FFN_BUNDLE].data);
            assert_null(plain->layers[i].bundle);
            assert_int_equal(m->layers[i].bundle->dims[0], stride);
            assert_int_equal(m->layers[i].bundle->file_offset % 4096, 0);
            for (int k = 0; k < 3; k++) {
                const model_tensor *a = &m->layers[i].t[roles[k]];
                const model_tensor *b = &plain->layers[i].t[roles[k]];
                assert_int_equal(a->data != NULL, b->data != NULL);
                if (!a->data) continue;
                assert_int_equal(a->row_bytes, stride);
                assert_true(a->n_bytes == b->n_bytes && a->type == b->type);
                assert_true(a->n_in == b->n_in && a->n_out == b->n_out && a->scale == b->scale);
                for (size_t r = 0; r < N_FF; r++)
                    assert_memory_equal((const char *)a->data + r * stride,
                                        (const char *)b->data + r * b->row_bytes, b->row_bytes);
            }
        }
        model_close(m);
        model_close(plain);
    }
}

static void types_unknown(gguf_writer *w) {
    const gguf_string types[] = {{"f32", 3}, {"guess", 5}};
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_UP_TYPE, types, 2);
}
static void types_of_bytes(gguf_writer *w) {
    const gguf_string types[] = {{"i8", 2}, {"f32", 3}};
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_DOWN_TYPE, types, 2);
}
static void types_short(gguf_writer *w) {
    const gguf_string types[] = {{"f32", 3}};
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_GATE_TYPE, types, 1);
}
static void types_without_gate(gguf_writer *w) {
    const gguf_string types[] = {{"f32", 3}, {"none", 4}};
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_GATE_TYPE, types, 2);
}
static void types_of_wide_blocks(gguf_writer *w) {
    const gguf_string types[] = {{"f32", 3}, {"q4_k", 4}};
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_DOWN_TYPE, types, 2);
}
static void types_wide(gguf_writer *w) {
    const gguf_string types[] = {{"f32", 3}, {"f32", 3}};
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_UP_TYPE, types, 2);
    gguf_put_strings(w, SPARSE_KEY_BUNDLE_DOWN_TYPE, types, 2);
}
static void aligned_less(gguf_writer *w) {
    gguf_put_u32(w, "general.alignment", 32);
}

#define BUNDLE_0   "blk.0.ffn_bundle.weight"
#define BAD_BUNDLE "bad bundle: " MODEL_PATH ": tensor blk."

static void test_bad_bundles(void **state) {
    (void)state;
    static const struct {
        change change;
        const char *message;
    } cases[] = {
        {{.keys = types_unknown},
         BAD_BUNDLE
         "1.ffn_bundle.weight: key powerinfer.bundle.up_type is 'guess' in layer 1, which "
         "is not a weight type; prepare the model again"},
        {{.keys = types_of_bytes},
         BAD_BUNDLE
         "0.ffn_bundle.weight: key powerinfer.bundle.down_type is 'i8' in layer 0, which "
         "is not a weight type; prepare the model again"},
        {{.keys = types_short},
         BAD_KEY "bundle.gate_type has 1 items for 2 layers; prepare the model again"},
        {{.drop = {SPARSE_KEY_BUNDLE_DOWN_TYPE}},
         BAD_BUNDLE "0.ffn_bundle.weight: key powerinfer.bundle.down_type is missing; prepare the "
                    "model again"},
        {{.keys = types_without_gate},
         BAD_BUNDLE
         "1.ffn_bundle.weight: key powerinfer.bundle.gate_type is 'none' in layer 1, but "
         "the layer has ffn_gate; prepare the model again"},
        {{.keys = types_of_wide_blocks},
         BAD_BUNDLE "1.ffn_bundle.weight: rows of 64 elements are not whole blocks of f16, f16, "
                    "q4_k; prepare the model again"},
        {{.keys = types_wide},
         BAD_BUNDLE "0.ffn_bundle.weight: rows are 512 bytes long, not a multiple of 512 from 1024 "
                    "on; prepare the model again"},
        {{.keys = aligned_less},
         BAD_BUNDLE
         "0.ffn_bundle.weight: begins at byte 33376, not a multiple of 4096; prepare the "
         "model again"},
        {{.drop = {BUNDLE_0}, .extra = {{BUNDLE_0, QUANT_I8, {1000, N_FF}, NULL}}},
         BAD_BUNDLE "0.ffn_bundle.weight: rows are 1000 bytes long, not a multiple of 512 from 512 "
                    "on; prepare the model again"},
        {{.drop = {BUNDLE_0}, .extra = {{BUNDLE_0, QUANT_I8, {512, N_FF - 1}, NULL}}},
         "wrong shape: " MODEL_PATH ": tensor " BUNDLE_0 " is [512, 95], the hyperparameters need "
         "[512, 96]"},
        {{.drop = {BUNDLE_0}, .extra = {{BUNDLE_0, QUANT_F16, {512, N_FF}, NULL}}},
         "wrong type: " MODEL_PATH ": tensor " BUNDLE_0 " must be i8, not f16; prepare the model "
         "again"},
        {{.drop = {BUNDLE_0}},
         "missing tensor: " MODEL_PATH
         ": blk.0.ffn_gate.weight is not in the file; is it complete?"},
        {{.extra = {{"blk.1.ffn_up.weight", QUANT_F16, {N_EMBD, N_FF}, NULL}}},
         "duplicate matrix: " MODEL_PATH ": blk.1.ffn_up.weight and blk.1.ffn_bundle.weight are "
         "both present; remove one"},
        {{.extra = {{"blk.1.ffn_down_t.weight", QUANT_F16, {N_EMBD, N_FF}, NULL}}},
         "duplicate matrix: " MODEL_PATH ": blk.1.ffn_down_t.weight and "
         "blk.1.ffn_bundle.weight are both present; remove one"},
    };
    tiny_model t = prepared_model("lowrank");
    t.type = "f16";
    write_bundled(&t, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(&cases[i].change, PI_ERR_FORMAT, cases[i].message);
}

static void width_lies(gguf_writer *w) {
    gguf_put_array(w, SPARSE_KEY_BUNDLE_EXPERT_FF, GGUF_F32, (const float[]){64, 4096}, 2);
}
static void width_huge(gguf_writer *w) {
    gguf_put_array(w, SPARSE_KEY_BUNDLE_EXPERT_FF, GGUF_F32, (const float[]){64, 1e30f}, 2);
}
static void experts_twice(gguf_writer *w) {
    const gguf_string types[] = {{"f16", 3}, {"none", 4}};
    gguf_put_strings(w, SPARSE_KEYS_BUNDLE_EXPERT "down_t_type", types, 2);
}
static void experts_without_up(gguf_writer *w) {
    const gguf_string types[] = {{"f16", 3}, {"none", 4}};
    gguf_put_strings(w, SPARSE_KEYS_BUNDLE_EXPERT "up_type", types, 2);
}
static void experts_in_wide_blocks(gguf_writer *w) {
    const gguf_string types[] = {{"f16", 3}, {"q4_k", 4}};
    gguf_put_strings(w, SPARSE_KEYS_BUNDLE_EXPERT "down_type", types, 2);
}

#define EXPERTS_0 "blk.0.ffn_bundle_exps.weight"
#define OF_PAGES  " bytes long, not a multiple of 4096 from "

/* Wrong descriptions of bundled experts are refused. */
static void test_bad_expert_bundles(void **state) {
    (void)state;
    static const struct {
        change change;
        const char *message;
    } cases[] = {
        {{.keys = width_lies},
         BAD_BUNDLE "1.ffn_bundle_exps.weight: rows are 24576" OF_PAGES
                    "1572864 on; prepare the model again"},
        {{.keys = width_huge},
         BAD_BUNDLE "1.ffn_bundle_exps.weight: key powerinfer.bundle.expert_ff has no valid "
                    "number of neurons for it; prepare the model again"},
        {{.keys = experts_twice},
         BAD_BUNDLE "0.ffn_bundle_exps.weight: has the same matrix in two forms; prepare the model "
                    "again"},
        {{.keys = experts_without_up},
         "missing tensor: " MODEL_PATH ": blk.1.ffn_up_exps.weight is not in the file; is it "
         "complete?"},
        {{.keys = experts_in_wide_blocks},
         BAD_BUNDLE "1.ffn_bundle_exps.weight: rows of 64 or 64 elements are not whole blocks of "
                    "none, f16, f16, q4_k, none; prepare the model again"},
        {{.keys = aligned_less},
         BAD_BUNDLE
         "0.ffn_bundle_exps.weight: begins at byte 21568, not a multiple of 4096; prepare "
         "the model again"},
        {{.drop = {SPARSE_KEYS_BUNDLE_EXPERT "gate_type"}},
         BAD_BUNDLE "0.ffn_bundle_exps.weight: key powerinfer.bundle.expert_gate_type is missing; "
                    "prepare the model again"},
        {{.drop = {EXPERTS_0}, .extra = {{EXPERTS_0, QUANT_I8, {4096, 4}, NULL}}},
         BAD_BUNDLE "0.ffn_bundle_exps.weight: rows are 4096" OF_PAGES
                    "24576 on; prepare the model again"},
        {{.drop = {EXPERTS_0}, .extra = {{EXPERTS_0, QUANT_I8, {25088, 4}, NULL}}},
         BAD_BUNDLE "0.ffn_bundle_exps.weight: rows are 25088" OF_PAGES
                    "24576 on; prepare the model again"},
        {{.drop = {EXPERTS_0}, .extra = {{EXPERTS_0, QUANT_I8, {24576, 3}, NULL}}},
         "wrong shape: " MODEL_PATH ": tensor " EXPERTS_0 " is [24576, 3], the hyperparameters "
         "need [24576, 4]"},
        {{.drop = {EXPERTS_0}},
         "missing tensor: " MODEL_PATH
         ": blk.0.ffn_down_exps.weight is not in the file; is it complete?"},
    };
    tiny_model t = tiny_default();
    t.n_embd = N_EMBD;
    t.type = "f16";
    t.experts = (tiny_experts){.n = 4, .n_used = 2, .n_ff = 64};
    write_bundled(&t, 0);
    model *m = open_changed(&(change){.keys = NULL});
    assert_int_equal(m->layers[1].hp.n_ff_expert, 64);
    assert_int_equal(m->layers[1].t[ROLE_EXPERT_UP].expert_bytes, 24576);
    model_close(m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(&cases[i].change, PI_ERR_FORMAT, cases[i].message);
}

/* Bundles have a gate, but the architecture has none. */
static void test_bundles_without_gate(void **state) {
    (void)state;
    tiny_model t = prepared_model("lowrank");
    t.arch = "falcon";
    t.type = "f16";
    write_bundled(&t, 0);
    expect_refusal(&(change){.keys = types_without_gate}, PI_ERR_FORMAT,
                   BAD_BUNDLE "0.ffn_bundle.weight: key powerinfer.bundle.gate_type is 'f32' in "
                              "layer 0, but the layer has no ffn_gate; prepare the model again");
}

/* Parts begin at multiples of 32 bytes for rows of any length. */
static void test_bundle_layout(void **state) {
    (void)state;
    bundle_layout l;
    const quant_traits *mxfp4 = quant_find_name("mxfp4"), *f32 = quant_find_name("f32");
    assert_true(bundle_lay_out(
        BUNDLE_NEURONS, (const quant_traits *const[BUNDLE_PARTS]){mxfp4, mxfp4, f32}, 96, 0, &l));
    assert_true(l.part[0].at == 0 && l.part[0].n_bytes == 51 && l.part[1].at == 64);
    assert_true(l.part[2].at == 128 && l.part[2].n_bytes == 384 && l.stride == 512);
    assert_true(bundle_lay_out(
        BUNDLE_NEURONS, (const quant_traits *const[BUNDLE_PARTS]){NULL, f32, f32}, 65, 0, &l));
    assert_true(l.part[1].at == 0 && l.part[2].at == 288 && l.stride == 1024);
    assert_int_equal(l.part[0].n_bytes, 0);
    assert_false(bundle_lay_out(
        BUNDLE_NEURONS, (const quant_traits *const[BUNDLE_PARTS]){mxfp4, f32, f32}, 65, 0, &l));
    /* the experts' down begins at a page, in either form */
    assert_true(bundle_lay_out(BUNDLE_EXPERTS,
                               (const quant_traits *const[BUNDLE_PARTS]){NULL, mxfp4, f32, mxfp4},
                               96, 32, &l));
    assert_true(l.part[1].n_bytes == 32 * 51 && l.part[2].at == 32 * 51 && l.part[3].at == 16384);
    assert_true(l.part[3].n_in == 32 && l.part[3].n_rows == 96 && l.part[3].n_bytes == 96 * 17);
    assert_int_equal(l.stride, 20480);
    assert_true(bundle_lay_out(
        BUNDLE_EXPERTS, (const quant_traits *const[BUNDLE_PARTS]){f32, NULL, NULL, NULL, f32}, 96,
        7, &l));
    assert_true(l.part[0].n_rows == 14 && l.part[4].at == 8192 && l.part[4].n_rows == 7);
    assert_int_equal(l.stride, 12288);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void other_version(gguf_writer *w) {
    gguf_put_u32(w, SPARSE_KEY_VERSION, 2);
}
static void version_text(gguf_writer *w) {
    gguf_put_string(w, SPARSE_KEY_VERSION, "1");
}
static void kinds_unknown(gguf_writer *w) {
    const gguf_string kinds[] = {{"lowrank", 7}, {"guess", 5}};
    gguf_put_strings(w, SPARSE_KEY_PREDICTOR_KIND, kinds, 2);
}
static void kinds_short(gguf_writer *w) {
    const gguf_string kinds[] = {{"lowrank", 7}};
    gguf_put_strings(w, SPARSE_KEY_PREDICTOR_KIND, kinds, 1);
}
static void kinds_single(gguf_writer *w) {
    gguf_put_string(w, SPARSE_KEY_PREDICTOR_KIND, "lowrank");
}
static void kinds_sign(gguf_writer *w) {
    const gguf_string kinds[] = {{"lowrank", 7}, {"sign", 4}};
    gguf_put_strings(w, SPARSE_KEY_PREDICTOR_KIND, kinds, 2);
}
static void inputs_unknown(gguf_writer *w) {
    const gguf_string inputs[] = {{"raw", 3}, {"normed", 6}};
    gguf_put_strings(w, SPARSE_KEY_PREDICTOR_INPUT, inputs, 2);
}
static void recall_integers(gguf_writer *w) {
    const int32_t numbers[N_LAYER] = {1, 1};
    gguf_put_array(w, SPARSE_KEY_PREDICTOR_RECALL, GGUF_I32, numbers, N_LAYER);
}
static void density_large(gguf_writer *w) {
    const float numbers[N_LAYER] = {0.5f, 1.5f};
    gguf_put_array(w, SPARSE_KEY_PREDICTOR_DENSITY, GGUF_F32, numbers, N_LAYER);
}
static void cuts_infinite(gguf_writer *w) {
    const float numbers[N_LAYER] = {INFINITY, 1};
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_CUT, GGUF_F32, numbers, N_LAYER);
}
static void down_negative(gguf_writer *w) {
    const float numbers[N_LAYER] = {0, -1};
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_DOWN, GGUF_F32, numbers, N_LAYER);
}
static void rows_large(gguf_writer *w) {
    const float numbers[N_LAYER] = {0.5f, 1.5f};
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_DOWN_ROWS, GGUF_F32, numbers, N_LAYER);
}
static void cuts_short(gguf_writer *w) {
    const float numbers[1] = {1};
    gguf_put_array(w, SPARSE_KEY_THRESHOLD_CUT, GGUF_F32, numbers, 1);
}
static void threshold_nan(gguf_writer *w) {
    gguf_put_f32(w, SPARSE_KEY_PREDICTOR_THRESHOLD, NAN);
}
static void threshold_text(gguf_writer *w) {
    gguf_put_string(w, SPARSE_KEY_PREDICTOR_THRESHOLD, "0");
}
static void loss_infinite(gguf_writer *w) {
    gguf_put_f32(w, SPARSE_KEY_CALIBRATION_LOSS, INFINITY);
}
static void sum_short(gguf_writer *w) {
    gguf_put_string(w, SPARSE_KEY_CALIBRATION_SHA256, "0123");
}
static void tokens_negative(gguf_writer *w) {
    gguf_put_i32(w, SPARSE_KEY_CALIBRATION_TOKENS, -1);
}

static void test_bad_keys(void **state) {
    (void)state;
    static const struct {
        void (*keys)(gguf_writer *w);
        const char *message;
    } cases[] = {
        {other_version,
         "prepared by another version: " MODEL_PATH ": key powerinfer.version is 2, this program "
         "knows 1; prepare the model again"},
        {version_text, BAD_KEY "version is not an integer; prepare the model again"},
        {kinds_unknown, BAD_KEY "predictor.kind is 'guess' in layer 1; this version knows none, "
                                "sign, lowrank, relu_mlp"},
        {kinds_short, BAD_KEY "predictor.kind has 1 items for 2 layers; prepare the model again"},
        {kinds_single,
         BAD_KEY "predictor.kind is not an array of strings; prepare the model again"},
        {kinds_sign, "missing tensor: " MODEL_PATH ": blk.1.ffn_sign is not in the file, but the "
                     "predictor of layer 1 is of kind sign; prepare the model again"},
        {inputs_unknown,
         BAD_KEY "predictor.input is 'raw' in layer 0; this version knows normed, residual"},
        {recall_integers, BAD_KEY "predictor.recall is not an array of floating-point numbers; "
                                  "prepare the model again"},
        {density_large,
         BAD_KEY "predictor.density is 1.5 in layer 1, not in 0..1; prepare the model again"},
        {cuts_infinite,
         BAD_KEY "threshold.cut is inf in layer 0, not in 0..1e+30; prepare the model again"},
        {cuts_short, BAD_KEY "threshold.cut has 1 items for 2 layers; prepare the model again"},
        {down_negative,
         BAD_KEY "threshold.down is -1 in layer 1, not in 0..1e+30; prepare the model again"},
        {rows_large,
         BAD_KEY "threshold.down_rows is 1.5 in layer 1, not in 0..1; prepare the model again"},
        {threshold_nan, BAD_KEY "sparse_threshold is not a finite number; prepare the model again"},
        {threshold_text, BAD_KEY "sparse_threshold is not a number; prepare the model again"},
        {loss_infinite, BAD_KEY "calibration.loss is not a finite number; prepare the model again"},
        {sum_short, BAD_KEY "calibration.sha256 is not 64 hexadecimal digits; prepare the model "
                            "again"},
        {tokens_negative,
         BAD_KEY "calibration.tokens is not a number of tokens; prepare the model again"},
    };
    tiny_model t = prepared_model("lowrank");
    tiny_write(&t, GOOD_PATH);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(&(change){.keys = cases[i].keys}, PI_ERR_FORMAT, cases[i].message);
}

static void test_bad_statistics(void **state) {
    (void)state;
    tiny_model t = prepared_model("lowrank");
    tiny_write(&t, GOOD_PATH);
    fill_statistics();
    change freqs = {.extra = {{"blk.1.ffn_freq", QUANT_F32, {N_FF, 0}, freq}}};
    change perms = {.extra = {{"blk.1.ffn_perm", QUANT_I32, {N_FF, 0}, perm}}};
    freq[7] = NAN;
    expect_refusal(&freqs, PI_ERR_FORMAT,
                   "bad frequency: " MODEL_PATH ": tensor blk.1.ffn_freq: item 7 is nan, not in "
                   "0..1; prepare the model again");
    freq[7] = -0.25f;
    expect_refusal(&freqs, PI_ERR_FORMAT,
                   "bad frequency: " MODEL_PATH ": tensor blk.1.ffn_freq: item 7 is -0.25, not in "
                   "0..1; prepare the model again");
    freq[0] = 1.25f;
    expect_refusal(&freqs, PI_ERR_FORMAT,
                   "bad frequency: " MODEL_PATH ": tensor blk.1.ffn_freq: item 0 is 1.25, not in "
                   "0..1; prepare the model again");
    change factors = {.extra = {{"blk.1.ffn_cut", QUANT_F32, {N_FF, 0}, freq}}};
    freq[0] = 1.25f; /* may be above 1 */
    expect_refusal(&factors, PI_ERR_FORMAT,
                   "bad factor: " MODEL_PATH
                   ": tensor blk.1.ffn_cut: item 7 is -0.25, expected 0 or "
                   "more; prepare the model again");
    freq[7] = INFINITY;
    expect_refusal(&factors, PI_ERR_FORMAT,
                   "bad factor: " MODEL_PATH ": tensor blk.1.ffn_cut: item 7 is inf, expected 0 or "
                   "more; prepare the model again");
    for (int i = 0; i < N_FF; i++) freq[i] = i == 2 ? 0.75f : 0.5f;
    expect_refusal(&freqs, PI_ERR_FORMAT,
                   "neurons out of order: " MODEL_PATH ": tensor blk.1.ffn_freq: item 2 is 0.75 "
                   "after 0.5; the hottest must come first; prepare the model again");
    perm[4] = N_FF;
    expect_refusal(&perms, PI_ERR_FORMAT,
                   "not a permutation: " MODEL_PATH ": tensor blk.1.ffn_perm: item 4 is 96, not in "
                   "0..95; prepare the model again");
    perm[4] = -1;
    expect_refusal(&perms, PI_ERR_FORMAT,
                   "not a permutation: " MODEL_PATH ": tensor blk.1.ffn_perm: item 4 is -1, not in "
                   "0..95; prepare the model again");
    perm[4] = perm[3];
    expect_refusal(&perms, PI_ERR_FORMAT,
                   "not a permutation: " MODEL_PATH ": tensor blk.1.ffn_perm: item 4 is 18, a "
                   "duplicate; prepare the model again");
    perms.extra[0].type = QUANT_F32;
    expect_refusal(&perms, PI_ERR_FORMAT,
                   "wrong type: " MODEL_PATH ": tensor blk.1.ffn_perm must be i32, not f32; "
                   "prepare the model again");
}

static void test_bad_predictors(void **state) {
    (void)state;
    tiny_model t = prepared_model("lowrank");
    tiny_write(&t, GOOD_PATH);
    static const struct {
        change change;
        const char *message;
    } cases[] = {
        {{.drop = {"blk.0.fc1.weight"}},
         "missing tensor: " MODEL_PATH ": blk.0.fc1.weight is not in the file, but the predictor "
         "of layer 0 is of kind lowrank; prepare the model again"},
        {{.drop = {"blk.1.fc2.weight"}},
         "missing tensor: " MODEL_PATH ": blk.1.fc2.weight is not in the file, but the predictor "
         "of layer 1 is of kind lowrank; prepare the model again"},
        {{.drop = {"blk.1.fc2.weight"},
          .extra = {{"blk.1.fc2.weight", QUANT_F32, {64, N_FF}, NULL}}},
         "wrong shape: " MODEL_PATH ": tensor blk.1.fc2.weight is [64, 96], the "
         "hyperparameters need [32, 96]"},
        {{.drop = {"blk.0.fc1.weight", "blk.0.fc2.weight"},
          .extra = {{"blk.0.fc1.weight", QUANT_F32, {N_EMBD, 40}, NULL},
                    {"blk.0.fc2.weight", QUANT_F32, {41, N_FF}, NULL}}},
         "wrong shape: " MODEL_PATH ": tensor blk.0.fc2.weight is [41, 96], the "
         "hyperparameters need [40, 96]"},
        {{.drop = {"blk.0.fc2.bias"},
          .extra = {{"blk.0.fc2.bias", QUANT_F32, {N_FF - 1, 0}, NULL}}},
         "wrong shape: " MODEL_PATH ": tensor blk.0.fc2.bias is [95], the "
         "hyperparameters need [96]"},
        {{.drop = {"blk.0.ffn_down_t.weight"}},
         "missing tensor: " MODEL_PATH ": blk.0.ffn_down.weight is not in the file; is it "
         "complete?"},
        {{.extra = {{"blk.0.ffn_down.weight", QUANT_F32, {N_FF, N_EMBD}, NULL}}},
         "duplicate matrix: " MODEL_PATH ": blk.0.ffn_down.weight and "
         "blk.0.ffn_down_t.weight are both present; remove one"},
        {{.extra = {{"blk.1.ffn_sign", QUANT_I32, {N_EMBD / 8, N_FF}, NULL}}},
         "wrong type: " MODEL_PATH ": tensor blk.1.ffn_sign must be i8, not i32; prepare the "
         "model again"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(&cases[i].change, PI_ERR_FORMAT, cases[i].message);
}

static void test_perm_check(void **state) {
    (void)state;
    const int32_t good[] = {2, 0, 1}, twice[] = {0, 1, 1}, large[] = {0, 3, 1};
    pi_error err;
    assert_int_equal(perm_check(good, 3, "here", &err), PI_OK);
    assert_int_equal(perm_check(good, 0, "here", &err), PI_OK);
    assert_int_equal(perm_check(twice, 3, "here", &err), PI_ERR_FORMAT);
    assert_string_equal(err.message, "not a permutation: here: item 2 is 1, a duplicate; "
                                     "prepare the model again");
    assert_int_equal(perm_check(large, 3, "here", &err), PI_ERR_FORMAT);
}

static void test_kind_names(void **state) {
    (void)state;
    assert_string_equal(predictor_kind_name(PREDICTOR_NONE), "none");
    assert_string_equal(predictor_kind_name(PREDICTOR_RELU_MLP), "relu_mlp");
    assert_string_equal(predictor_kind_name(PREDICTOR_KIND_COUNT), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_down_t),
        cmocka_unit_test(test_not_prepared),
        cmocka_unit_test(test_pwri),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_bad_statistics),
        cmocka_unit_test(test_bad_predictors),
        cmocka_unit_test(test_perm_check),
        cmocka_unit_test(test_kind_names),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_bundles),
        cmocka_unit_test(test_bad_bundles),
        cmocka_unit_test(test_bundle_layout),
        cmocka_unit_test(test_bundles_without_gate),
        cmocka_unit_test(test_bad_expert_bundles),
    };
    return cmocka_run_group_tests_name("model_sparse", tests, NULL, NULL);
}
