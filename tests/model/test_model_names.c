/* test_model_names.c: consistency of the architecture table: suggestions are the closest names,
 * look-ups find every row, and tensor names can be built and are distinct. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arch.h"
#include "gguf.h"

static void test_closest(void **state) {
    (void)state;
    static const struct {
        const char *name, *first;
    } cases[] = {{"mamba3", "mamba"},
                 {"qwen3moee", "qwen3moe, "},
                 {"gemma5", "gemma"},
                 {"llama5", "llama"},
                 {"lama", "llama, "}};
    char text[ARCH_CLOSEST_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].name;
        assert_ptr_equal(arch_closest_names(name, strlen(name), text), text);
        if (strncmp(text, cases[i].first, strlen(cases[i].first)) != 0)
            fail_msg("%s: %s", name, text);
        int commas = 0;
        for (const char *c = text; *c; c++) commas += *c == ',';
        assert_int_equal(commas, ARCH_CLOSEST - 1);
    }
    /* The closest name to a row's name is itself; odd names also get an answer. */
    for (int i = 0; i < arch_count(); i++) {
        const char *name = arch_at(i)->name;
        arch_closest_names(name, strlen(name), text);
        assert_int_equal(strncmp(text, name, strlen(name)), 0);
    }
    char long_name[200];
    memset(long_name, 'x', sizeof long_name);
    assert_true(strlen(arch_closest_names(long_name, sizeof long_name, text)) > 20);
    assert_true(strlen(arch_closest_names("", 0, text)) > 20);
    assert_null(arch_at(-1));
    assert_null(arch_at(arch_count()));
}

static void test_find(void **state) {
    (void)state;
    for (int i = 0; i < arch_count(); i++) {
        const arch_row *row = arch_at(i);
        size_t n = strlen(row->name);
        assert_ptr_equal(arch_find(row->name, n), row);
        assert_ptr_not_equal(arch_find(row->name, n - 1), row);
        assert_null(arch_find(row->name, n + 1)); /* length includes the NUL */
    }
    assert_null(arch_find("", 0));
}

/* Checks which layers have a window if the file does not specify it. */
static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *arch, *windowed; /* layers 0 to 7 */
    } cases[] = {{"gemma3", "11111011"},       {"gpt-oss", "10101010"},    {"cohere2", "11101110"},
                 {"smallthinker", "01110111"}, {"cohere2moe", "01110111"}, {"phi3", "11111111"},
                 {"llama", "00000000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const arch_row *row = arch_find(cases[i].arch, strlen(cases[i].arch));
        for (int layer = 0; layer < 8; layer++)
            assert_int_equal(arch_has_window(row, row->window_period, layer),
                             cases[i].windowed[layer] == '1');
    }
}

/* Every architecture has the tensors that a forward pass needs. */
static void test_required(void **state) {
    (void)state;
    static const tensor_role recurrent[] = {ROLE_SSM_IN, ROLE_SSM_CONV, ROLE_SSM_OUT};
    /* Tensors that `prepare` adds if neurons have their own rows. */
    static const tensor_role sparse[] = {ROLE_FFN_DOWN, ROLE_FC1,      ROLE_FC2,
                                         ROLE_FC2_BIAS, ROLE_FFN_SIGN, ROLE_FFN_DOWN_T,
                                         ROLE_FFN_FREQ, ROLE_FFN_PERM};
    for (int i = 0; i < arch_count(); i++) {
        const arch_row *row = arch_at(i);
        assert_non_null(arch_tensor_of(row, ROLE_TOKEN_EMBD));
        assert_int_not_equal(row->encoder, arch_tensor_of(row, ROLE_OUTPUT) != NULL);
        /* gated hyper-connections norm the streams */
        const bool gated = arch_tensor_of(row, ROLE_HYPER_HEAD_NORM);
        if (!row->encoder)
            assert_int_not_equal(gated, arch_tensor_of(row, ROLE_OUTPUT_NORM) != NULL);
        bool attends = !row->mixers || row->mixers & MIXER_ATTENTION;
        bool recurs = row->mixers & MIXER_RECURRENT, shifts = row->mixers & MIXER_WKV;
        for (size_t k = 0; k < sizeof recurrent / sizeof recurrent[0]; k++) {
            tensor_role role = shifts && recurrent[k] == ROLE_SSM_CONV ? ROLE_SSM_SHIFT
                                                                       : recurrent[k];
            assert_int_equal(recurs, arch_tensor_of(row, role) != NULL);
        }
        assert_true(recurs || row->layers == LAYERS_ALIKE || row->layers == LAYERS_BY_HEADS);
        const arch_tensor *of_neurons = arch_tensor_of(row, ROLE_FFN_UP);
        bool up = of_neurons && of_neurons->flags & TENSOR_NEURON_ROWS,
             experts = arch_tensor_of(row, ROLE_ROUTER);
        bool ffn = up || experts || arch_tensor_of(row, ROLE_FFN_GATE_UP);
        assert_true(ffn || recurs);
        if (row->gating != GATING_NONE) assert_true(experts);
        for (size_t k = 0; up && k < sizeof sparse / sizeof sparse[0]; k++)
            assert_non_null(arch_tensor_of(row, sparse[k]));
        /* Q, K and V are separate or fused (or depend on the file), positions are rotary or
         * learned, and parallel blocks need only one norm. */
        assert_int_equal(attends, arch_tensor_of(row, ROLE_ATTN_Q) ||
                                      arch_tensor_of(row, ROLE_ATTN_QKV) ||
                                      arch_tensor_of(row, ROLE_ATTN_Q_B));
        assert_int_equal(attends, arch_tensor_of(row, ROLE_ATTN_OUT) != NULL);
        if (recurs) /* the order alone may give positions, and a block may be a layer */
            assert_null(arch_tensor_of(row, ROLE_POS_EMBD));
        else if (!row->alibi) /* files with ALiBi may also have learned positions */
            assert_int_not_equal(row->rope != ROPE_NONE,
                                 arch_tensor_of(row, ROLE_POS_EMBD) != NULL);
        if (!ffn || row->layers == LAYERS_SINGLE || row->experts_early || gated) continue;
        assert_int_not_equal(row->parallel, arch_tensor_of(row, ROLE_FFN_NORM) != NULL ||
                                                arch_tensor_of(row, ROLE_FFN_POST_NORM) != NULL ||
                                                arch_tensor_of(row, ROLE_FFN_SUM_NORM) != NULL);
    }
}

static void check_row(const arch_row *row) {
    bool seen[ROLE_COUNT] = {false};
    assert_true(row->n_tensors > 0);
    for (int i = 0; i < row->n_tensors; i++) {
        const arch_tensor *t = &row->tensors[i];
        char name[64], other[64];
        assert_in_range(t->role, 0, ROLE_COUNT - 1);
        assert_false(seen[t->role]);
        seen[t->role] = true;
        assert_ptr_equal(arch_tensor_of(row, t->role), t);
        bool per_layer = t->flags & TENSOR_PER_LAYER;
        assert_int_equal(per_layer, strstr(t->name, "blk.%d.") == t->name);
        if (t->hf_name) assert_int_equal(per_layer, strstr(t->hf_name, "%d") != NULL);
        /* Vectors are small floats, except raw integers. */
        if (!(t->flags & TENSOR_RAW) && t->dims[1] == DIM_NONE) assert_true(t->flags & TENSOR_F32);
        if (t->flags & TENSOR_SPARSE) assert_true(t->flags & TENSOR_OPTIONAL);
        arch_tensor_name(t, 1023, name);
        assert_true(strlen(name) < GGUF_MAX_NAME);
        assert_null(strchr(name, '%'));
        for (int k = 0; k < i; k++) {
            if (tensor_role_part(row->tensors[k].role) != tensor_role_part(t->role))
                continue;                                         /* belongs to other layers */
            if (row->tensors[k].flags & TENSOR_IF_FITS) continue; /* told apart by its shape */
            arch_tensor_name(&row->tensors[k], 1023, other);
            assert_string_not_equal(name, other);
        }
    }
}

static void test_tensors(void **state) {
    (void)state;
    for (int i = 0; i < arch_count(); i++) check_row(arch_at(i));
    char name[64];
    arch_tensor_name(arch_tensor_of(arch_at(0), ROLE_FFN_UP), 7, name);
    assert_string_equal(name, "blk.7.ffn_up.weight");
    arch_tensor_name(arch_tensor_of(arch_at(0), ROLE_TOKEN_EMBD), 7, name);
    assert_string_equal(name, "token_embd.weight");
}

static void test_role_names(void **state) {
    (void)state;
    for (int i = 0; i < ROLE_COUNT; i++) {
        const char *name = tensor_role_name((tensor_role)i);
        assert_non_null(name);
        for (int k = 0; k < i; k++) assert_string_not_equal(name, tensor_role_name((tensor_role)k));
    }
    assert_string_equal(tensor_role_name(ROLE_COUNT), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closest), cmocka_unit_test(test_windows),
        cmocka_unit_test(test_find),    cmocka_unit_test(test_required),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_role_names),
    };
    return cmocka_run_group_tests_name("model_names", tests, NULL, NULL);
}
