/* test_golden_sharp.c: compares the logits of models with sharp attention with recorded logits, and
 * checks that the gates detect every error: each tensor and each hyperparameter of each model is
 * changed, one at a time, and the logits must miss the gate. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sharp_model.h"

static engine_options options(cpu_tier tier) {
    return (engine_options){.n_threads = 1,
                            .n_threads_batch = 1,
                            .n_batch = 512,
                            .n_logits = 512,
                            .tier = tier,
                            .type_k = QUANT_F32,
                            .type_v = QUANT_F32};
}

static double nmse_of(const sharp_model *s, engine_options o, const int *pieces, int n_pieces) {
    engine_context *c;
    pi_error err;
    if (engine_context_create(s->m, &o, &c, &err)) fail_msg("%s: %s", s->name, err.message);
    double nmse = golden_nmse(c, &s->r, pieces, n_pieces);
    engine_context_destroy(c);
    return nmse;
}

/* ---- every tier ------------------------------------------------------------------------------ */

static const int whole[] = {REFERENCE_MAX_TOKENS}, uneven[] = {61, 1, 1, 7, 2, 40};

static bool visit_tiers(const char *folder, const char *name) {
    static const cpu_tier tiers[] = {CPU_TIER_SCALAR, CPU_TIER_REFERENCE, CPU_TIER_AVX2,
                                     CPU_TIER_AVX512, CPU_TIER_NEON};
    sharp_model s;
    if (!sharp_open(folder, name, &s)) return false;
    for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++) {
        cpu_kernels k;
        if (!cpu_kernels_get(tiers[i], &k)) continue;
        double batch = nmse_of(&s, options(tiers[i]), whole, 1);
        double parts = nmse_of(&s, options(tiers[i]), uneven, 6);
        printf("%-20s %-9s in batch %.1e, in parts %.1e (gate %.0e)\n", name,
               cpu_tier_name(tiers[i]), batch, parts, s.gate);
        if (!(batch <= s.gate) || !(parts <= s.gate))
            fail_msg("%s: NMSE %g, in parts %g: above %g", name, batch, parts, s.gate);
    }
    sharp_close(&s);
    return true;
}

static void test_tiers(void **state) {
    (void)state;
    sharp_each(3, 61, visit_tiers);
}

/* ---- detected changes ------------------------------------------------------------------------ */

/* Makes one change to the model; returns false if the change does not apply to it. */
typedef bool change(model *m);

enum { N_TOKENS = 200 }; /* length of every recorded text */

#ifdef TEST_SAMPLED
enum { STEP = 5 };
#else
enum { STEP = 1 };
#endif

static bool rotates(const model *m, rope_set set) {
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.mixers & MIXER_ATTENTION && m->layers[i].hp.rope == set) return true;
    return false;
}

static bool rope_base(model *m) {
    m->hp.rope_freq_base = 3;
    return rotates(m, ROPE_SET_GLOBAL) && m->hp.n_rots[ROPE_SET_GLOBAL] > 2;
}

static bool rope_local_base(model *m) {
    m->hp.rope_local_base = 3;
    return rotates(m, ROPE_SET_LOCAL) && m->hp.n_rots[ROPE_SET_LOCAL] > 2;
}

static bool rope_of_windows(model *m) {
    bool any = rotates(m, ROPE_SET_LOCAL) && m->hp.n_rots[0] == m->hp.n_rots[1];
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.rope == ROPE_SET_LOCAL) m->layers[i].hp.rope = ROPE_SET_GLOBAL;
    return any && m->hp.rope_local_base != m->hp.rope_freq_base;
}

static bool rope_kind_(model *m) {
    bool pairs = m->hp.rope == ROPE_INTERLEAVED;
    m->hp.rope = pairs ? ROPE_NEOX : ROPE_INTERLEAVED;
    return m->hp.n_rot > 2 && (rotates(m, ROPE_SET_GLOBAL) || rotates(m, ROPE_SET_LOCAL));
}

static bool rope_elements(model *m) {
    if (m->hp.n_latent > 0 || m->hp.n_rot <= 2) return false;
    m->hp.n_rots[0] = m->hp.n_rots[1] = 2;
    return rotates(m, ROPE_SET_GLOBAL) || rotates(m, ROPE_SET_LOCAL);
}

static bool rope_nowhere(model *m) {
    bool any = rotates(m, ROPE_SET_GLOBAL) || rotates(m, ROPE_SET_LOCAL);
    for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].hp.rope = ROPE_SET_NONE;
    return any;
}

static bool rope_everywhere(model *m) {
    bool any = rotates(m, ROPE_SET_NONE) && m->hp.rope != ROPE_NONE;
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.rope == ROPE_SET_NONE) m->layers[i].hp.rope = ROPE_SET_GLOBAL;
    return any;
}

static bool rope_scaling_(model *m) {
    bool any = m->hp.rope_scaling != ROPE_SCALING_NONE && m->hp.rope_scaling_factor != 1;
    m->hp.rope_scaling_factor = 1;
    m->hp.rope_scaling = ROPE_SCALING_NONE;
    return any && rotates(m, ROPE_SET_GLOBAL);
}

/* Returns 0 if no window is shorter than the recorded text. */
static int largest_window(const model *m) {
    int window = 0;
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.window > window) window = m->layers[i].hp.window;
    return window < N_TOKENS ? window : 0;
}

static bool window_size(model *m) {
    bool any = largest_window(m) > 1;
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.window > 1) m->layers[i].hp.window--;
    return any;
}

static bool window_none(model *m) {
    bool any = largest_window(m) > 0;
    for (int i = 0; i < m->hp.n_layer; i++) m->layers[i].hp.window = 0;
    return any;
}

/* Moves the window to the other layers. */
static bool window_pattern(model *m) {
    int window = largest_window(m);
    for (int i = 0; i < m->hp.n_layer && window > 0; i++)
        m->layers[i].hp.window = m->layers[i].hp.window > 0 ? 0 : window;
    return window > 0;
}

static bool halve(float *number, float none) {
    bool any = *number != none;
    *number /= 2;
    return any;
}

static bool embd_scale(model *m) {
    return halve(&m->hp.embd_scale, 1);
}
static bool residual_scale(model *m) {
    return halve(&m->hp.residual_scale, 1);
}
static bool logit_scale(model *m) {
    return halve(&m->hp.logit_scale, 1);
}
static bool logit_softcap(model *m) {
    return halve(&m->hp.logit_softcap, 0);
}
static bool attn_softcap(model *m) {
    return halve(&m->hp.attn_softcap, 0);
}
static bool value_scale(model *m) {
    return halve(&m->hp.value_scale, 1);
}
static bool attn_temperature(model *m) {
    return m->hp.attn_temperature_length < N_TOKENS && halve(&m->hp.attn_temperature, 0);
}
static bool expert_scale(model *m) {
    return halve(&m->hp.expert_scale, m->hp.n_expert > 0 ? 0 : m->hp.expert_scale);
}
static bool attn_scale(model *m) {
    m->hp.attn_scale /= 2;
    return m->hp.n_head > 0;
}
static bool norm_eps(model *m) {
    m->hp.norm_eps = 0.01f;
    return true;
}
static bool norm_kind_(model *m) {
    m->hp.norm = m->hp.norm == NORM_RMS ? NORM_LAYER : NORM_RMS;
    return true;
}

static bool experts_used(model *m) {
    m->hp.n_expert_used -= m->hp.n_expert_used > 1 ? 1 : -1;
    return m->hp.n_expert > 0;
}
static bool expert_groups(model *m) {
    bool any = m->hp.n_expert_group > 1 && m->hp.n_group_used < m->hp.n_expert_group;
    m->hp.n_expert_group = m->hp.n_group_used = 0;
    return any;
}
static bool expert_gating_(model *m) {
    m->hp.gating = m->hp.gating == GATING_SIGMOID ? GATING_SOFTMAX : GATING_SIGMOID;
    return m->hp.n_expert > 0;
}
static bool expert_norm(model *m) {
    bool softmax = m->hp.gating == GATING_SOFTMAX_CHOSEN; /* its weights always sum to 1 */
    m->hp.expert_norm = !m->hp.expert_norm;
    return m->hp.n_expert > 0 && !softmax;
}

static bool least_decay(model *m) {
    return halve(&m->hp.least_decay, 0);
}
/* In shorter texts a token attends to all blocks. */
static bool finds_blocks(const model *m) {
    return m->hp.n_index_head > 0 && (int64_t)m->hp.block_top * m->hp.block_size < N_TOKENS;
}
static bool index_top(model *m) {
    bool any = finds_blocks(m);
    m->hp.block_top--;
    return any && m->hp.block_top > m->hp.block_local;
}
static bool matrix_scales(model *m) {
    bool any = false;
    for (int i = -1; i < m->hp.n_layer; i++)
        for (int role = 0; role < ROLE_COUNT; role++) {
            model_tensor *t = i < 0 ? &m->t[role] : &m->layers[i].t[role];
            any |= t->data && (t->scale != 1 || t->scales);
            t->scale = 1;
            t->scales = NULL;
        }
    return any;
}
/* Changes to ReLU, or from ReLU to SiLU: SiLU and GELU are almost equal for the small values of
 * random weights. */
static bool activation_(model *m) {
    bool relu = m->hp.activation == ACTIVATION_RELU || m->hp.activation == ACTIVATION_RELU_SQUARED;
    m->hp.activation = relu ? ACTIVATION_SILU : ACTIVATION_RELU;
    for (int i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].hp.ffn) return true;
    return false;
}
static bool shared_kv(model *m) {
    bool any = false;
    for (int i = 0; i < m->hp.n_layer; i++) {
        int to = m->layers[i].hp.kv_layer;
        any |= to != i;
        if (to != i) m->layers[i].hp.kv_layer = i;
    }
    return any;
}

static const struct {
    const char *name;
    change *apply;
} changes[] = {
    {"rope base", rope_base},
    {"rope base of windows", rope_local_base},
    {"one rope base", rope_of_windows},
    {"rope pairs", rope_kind_},
    {"rotated elements", rope_elements},
    {"no rotation", rope_nowhere},
    {"rotation in all layers", rope_everywhere},
    {"rope scaling", rope_scaling_},
    {"window", window_size},
    {"no window", window_none},
    {"window pattern", window_pattern},
    {"embedding scale", embd_scale},
    {"residual scale", residual_scale},
    {"logit scale", logit_scale},
    {"logit soft cap", logit_softcap},
    {"attention soft cap", attn_softcap},
    {"attention scale", attn_scale},
    {"value scale", value_scale},
    {"temperature", attn_temperature},
    {"norm epsilon", norm_eps},
    {"norm", norm_kind_},
    {"experts used", experts_used},
    {"expert groups", expert_groups},
    {"gating", expert_gating_},
    {"expert weights' sum", expert_norm},
    {"expert scale", expert_scale},
    {"least decay", least_decay},
    {"blocks", index_top},
    {"matrix scales", matrix_scales},
    {"activation", activation_},
    {"shared caches", shared_kv},
};
enum { N_CHANGES = sizeof changes / sizeof *changes, N_BITS = 32 };

/* Returns the bits that the steps depend on; hparams.c reads the others. */
static uint32_t step_bits(const model *m) {
    uint32_t bits = ARCH_QK_NORM_LATE | ARCH_BARE_QK_NORM | ARCH_VALUE_NORM | ARCH_EXPERT_INPUT |
                    ARCH_FFN_CLAMP | ARCH_ROUTER_EARLY;
    return m->arch->has & (largest_window(m) ? bits | ARCH_CHUNKS : bits);
}

/* True for tensors without effect: tensors that are bound but unused, as in llama.cpp, and terms
 * that softmax cancels. */
static bool is_idle(const model *m, tensor_role role) {
    uint32_t has = m->arch->has;
    switch (role) {
    case ROLE_ATTN_K_BIAS:
        if (!rotates(m, ROPE_SET_GLOBAL) && !rotates(m, ROPE_SET_LOCAL)) return true;
        return has & ARCH_QKV_BARE;
    case ROLE_ATTN_Q_BIAS:
    case ROLE_ATTN_V_BIAS:
        return has & ARCH_QKV_BARE;
    case ROLE_ATTN_OUT_BIAS:
        return has & ARCH_OUT_UNBIASED;
    case ROLE_INDEX_Q:
    case ROLE_INDEX_K:
    case ROLE_INDEX_Q_NORM:
    case ROLE_INDEX_K_NORM:
        return !finds_blocks(m);
    case ROLE_ROPE_FREQS:
        return m->arch->rope_undivided;
    case ROLE_ROPE_SHORT: /* the recorded context is long */
        return m->hp.rope_orig_ctx < 512;
    case ROLE_CLS_OUT: /* of vectors of texts */
    case ROLE_DENSE_2:
    case ROLE_DENSE_2_BIAS:
        return true;
    default:
        return false;
    }
}

/* Replaces the tensor's weights by zeros, divisors by ones; false if no layer uses the tensor. */
static bool without(model *m, tensor_role role) {
    enum { LARGEST = 1 << 22 };
    static float zeros[LARGEST], ones[MODEL_MAX_HEAD_DIM];
    const arch_tensor *of = arch_tensor_of(m->arch, role);
    bool any = false, divisors = role >= ROLE_ROPE_FREQS;
    for (int i = 0; i < MODEL_MAX_HEAD_DIM; i++) ones[i] = 1;
    for (int i = -1; i < m->hp.n_layer && !is_idle(m, role); i++) {
        model_tensor *t = i < 0 ? &m->t[role] : &m->layers[i].t[role];
        bool dense = of && of->flags & TENSOR_NO_EXPERTS;
        if (!t->data || (i >= 0 && dense && m->layers[i].t[ROLE_ROUTER].data)) continue;
        assert_true(t->n_bytes <= sizeof zeros);
        t->data = divisors ? ones : zeros;
        any = true;
    }
    return any;
}

/* Applies change number `which`: first the table's changes, then tensors, then bits of the
 * architecture's row, which is copied to *arch. */
static bool apply(model *m, arch_row *arch, int which, char name[GOLDEN_NAME_BYTES]) {
    if (which < N_CHANGES) {
        snprintf(name, GOLDEN_NAME_BYTES, "%s", changes[which].name);
        return changes[which].apply(m);
    }
    which -= N_CHANGES;
    if (which < ROLE_COUNT) {
        snprintf(name, GOLDEN_NAME_BYTES, "no %s", tensor_role_name((tensor_role)which));
        return without(m, (tensor_role)which);
    }
    which -= ROLE_COUNT;
    uint32_t bit = step_bits(m) & (uint32_t)1 << which;
    snprintf(name, GOLDEN_NAME_BYTES, "no ARCH_ bit %d", which);
    *arch = *m->arch;
    arch->has &= ~bit;
    m->arch = arch;
    return bit != 0;
}

static bool visit_changes(const char *folder, const char *name) {
    sharp_model s;
    if (!sharp_open(folder, name, &s)) return false;
    assert_int_equal(s.r.n_tokens, N_TOKENS);
    const model saved = *s.m;
    size_t n_bytes = (size_t)saved.hp.n_layer * sizeof *saved.layers;
    model_layer *layers = malloc(n_bytes);
    memcpy(layers, saved.layers, n_bytes);
    int n = 0;
    double least = INFINITY;
    char which[GOLDEN_NAME_BYTES] = "";
    for (int i = 0; i < N_CHANGES + ROLE_COUNT + N_BITS; i += STEP) {
        char what[GOLDEN_NAME_BYTES];
        arch_row arch;
        if (apply(s.m, &arch, i, what)) {
            double nmse = nmse_of(&s, options(CPU_TIER_AUTO), whole, 1);
            if (!(nmse > s.gate))
                fail_msg("%s: %s: NMSE %g, the gate %g does not see it", name, what, nmse, s.gate);
            if (nmse < least) memcpy(which, what, sizeof which);
            if (nmse < least) least = nmse;
            n++;
        }
        *s.m = saved;
        memcpy(saved.layers, layers, n_bytes);
    }
    printf("%-20s %2d changes seen; least: %s, NMSE %.1e (gate %.1e)\n", name, n, which, least,
           s.gate);
    assert_true(n >= (STEP > 1 ? 15 / STEP - 1 : 15)); /* a sample may miss one */
    free(layers);
    sharp_close(&s);
    return true;
}

static void test_changes(void **state) {
    (void)state;
    sharp_each(3, 61, visit_changes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_changes),
    };
    return cmocka_run_group_tests_name("golden_sharp", tests, NULL, NULL);
}
