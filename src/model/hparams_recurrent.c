/* hparams_recurrent.c: sizes of recurrent mixers. Tensor shapes bound all of them. */
#include <math.h>

#include "hparams_reader.h"

/* Mamba-1. Every channel is a head, or heads are as in Mamba-2 and the latent vector of time steps
 * has a fixed size (PLaMo-2). */
static void read_scan(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    hp->n_taps = hparams_int(r, "ssm.conv_kernel", 0, -1, 2, MAX_TAPS);
    hp->n_inner = hp->n_conv = hparams_int(r, "ssm.inner_size", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_state = hparams_int(r, "ssm.state_size", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_step_rank = hparams_int(r, "ssm.time_step_rank", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_ssm_head = hp->n_inner;
    hp->n_ssm_group = 1;
    if (arch->scan_heads) {
        hp->n_ssm_head = hp->n_step_rank;
        hp->n_step_rank = hp->n_embd / 16 > 64 ? hp->n_embd / 16 : 64;
        hparams_int(r, "ssm.group_count", 0, 0, 0, 0);
        if (r->status == PI_OK && hp->n_inner % hp->n_ssm_head != 0) {
            hparams_find(r, "ssm.time_step_rank", key);
            hparams_fail(r, key, "does not divide ssm.inner_size");
        }
    }
    const gguf_value *v = hparams_find(r, "ssm.dt_b_c_rms", key);
    bool own = arch_tensor_of(arch, ROLE_SSM_DT_NORM);
    if (v && !own && r->status == PI_OK && !gguf_as_bool(v, &hp->scan_norms))
        hparams_fail(r, key, "is not a bool");
}

/* Lightning attention has the heads of attention. */
static void read_lightning(key_reader *r, model_hparams *hp) {
    char key[KEY_TEXT];
    int32_t n = hp->n_head ? hp->n_embd / hp->n_head : 0;
    n = hparams_int(r, "attention.key_length", 0, n, 1, MODEL_MAX_HEAD_DIM);
    if (r->status == PI_OK && (hp->n_head == 0 || hp->n_layer < 2)) {
        hparams_find(r, "attention.head_count", key);
        hparams_fail(r, key, "is 0 in all layers with attention");
    }
    hp->n_taps = 1;
    hp->n_state = n;
    hp->n_ssm_head = hp->n_ssm_group = hp->n_head;
    hp->n_inner = hp->n_head * n;
    hp->n_conv = 3 * hp->n_inner;
}

/* The state of a layer is the last input, the heads' states, and the FFN's last input. */
static void read_wkv(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    int32_t n = hparams_int(r, "wkv.head_size", 0, -1, 1, MODEL_MAX_HEAD_DIM);
    bool shifts = arch_tensor_of(arch, ROLE_FFN_SHIFT);
    if (r->status == PI_OK && hp->n_embd % n != 0) {
        hparams_find(r, "wkv.head_size", key);
        hparams_fail(r, key, "does not divide embedding_length");
    }
    if (r->status != PI_OK) return;
    hp->n_taps = 2;
    hp->n_conv = hp->n_inner = hp->n_embd;
    hp->n_state = n;
    hp->n_ssm_head = hp->n_embd / n;
    hp->n_ssm_group = 0;
    if (arch_tensor_of(arch, ROLE_SSM_IN_K_BIAS)) /* RWKV-6 in Qwen2's layers */
        hp->n_ssm_group = hparams_int(r, "attention.head_count_kv", 0, 0, 0, hp->n_ssm_head);
    if (hp->n_ssm_group == 0) hp->n_ssm_group = hp->n_ssm_head;
    hp->n_ffn_shift = shifts ? hp->n_embd : 0;
    if (arch_tensor_of(arch, ROLE_FFN_RECEPTANCE))
        hp->halve_period = hparams_int(r, "rescale_every_n_layers", 0, 0, 0, INT32_MAX);
    hparams_int(r, "token_shift_count", 0, shifts ? 2 : 1, shifts ? 2 : 1, shifts ? 2 : 1);
    if (r->status == PI_OK && hp->n_ssm_head % hp->n_ssm_group != 0) {
        hparams_find(r, "attention.head_count_kv", key);
        hparams_fail(r, key, "does not divide the number of heads");
    }
}

void hparams_read_recurrent(key_reader *r, const arch_row *arch, model_hparams *hp) {
    char key[KEY_TEXT];
    if (arch->mixers & MIXER_WKV) read_wkv(r, arch, hp);
    if (arch->mixers & MIXER_SCAN) read_scan(r, arch, hp);
    if (arch->mixers & MIXER_LIGHTNING) read_lightning(r, hp);
    if (arch->mixers & MIXER_CONV) {
        hp->n_taps = hparams_int(r, "shortconv.l_cache", 0, -1, 2, MAX_TAPS);
        hp->n_conv = hp->n_embd;
    }
    if (arch->mixers & MIXER_KDA) {
        int32_t n = hparams_int(r, "kda.head_dim", 0, -1, 1, MODEL_MAX_HEAD_DIM);
        const gguf_value *v = hparams_find(r, "kda.safe_gate", key);
        bool safe = false, known = v && gguf_as_bool(v, &safe) && !arch->decays_bounded;
        double least;
        v = hparams_find(r, "kda.gate_lower_bound", key); /* minus infinity: no bound */
        bool bounded = v && !(gguf_as_f64(v, &least) && isinf(least));
        if (safe || (!known && bounded))
            hp->least_decay = hparams_float(r, "kda.gate_lower_bound", (double)NAN, -1e3, 0);
        if (r->status == PI_OK && safe && !(hp->least_decay < 0)) {
            hparams_find(r, "kda.gate_lower_bound", key);
            hparams_fail(r, key, "is not below 0");
        }
        hp->n_taps = hparams_int(r, "ssm.conv_kernel", 0, -1, 2, MAX_TAPS);
        hp->n_state = n;
        hp->n_ssm_head = hp->n_ssm_group = hp->n_head;
        hp->n_inner = hp->n_head * n;
        hp->n_conv = 3 * hp->n_inner;
    }
    if (!(arch->mixers & (MIXER_SSM | MIXER_DELTA))) return;
    hp->n_taps = hparams_int(r, "ssm.conv_kernel", 0, -1, 2, MAX_TAPS);
    hp->n_inner = hparams_int(r, "ssm.inner_size", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_state = hparams_int(r, "ssm.state_size", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_ssm_head = hparams_int(r, "ssm.time_step_rank", 0, -1, 1, MODEL_MAX_DIM);
    hp->n_ssm_group = hparams_int(r, "ssm.group_count", 0, -1, 1, MODEL_MAX_DIM);
    if (r->status != PI_OK) return;
    if (hp->n_inner % hp->n_ssm_head != 0) {
        hparams_find(r, "ssm.time_step_rank", key);
        hparams_fail(r, key, "does not divide ssm.inner_size");
    } else if (hp->n_ssm_head % hp->n_ssm_group != 0) {
        hparams_find(r, "ssm.group_count", key);
        hparams_fail(r, key, "does not divide ssm.time_step_rank");
    } else if (hp->n_state > (INT32_MAX - hp->n_inner) / 2 / hp->n_ssm_group) {
        hparams_find(r, "ssm.state_size", key);
        hparams_fail(r, key, "is too large");
    } else {
        hp->n_conv = hp->n_inner + 2 * hp->n_ssm_group * hp->n_state;
    }
}
