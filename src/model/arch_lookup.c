/* arch_lookup.c: look-ups in the architecture table (arch_table.h). */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "arch_table.h"
#include "edit_distance.h"

static const arch_rows *const parts[] = {&arch_rows_dense, &arch_rows_experts, &arch_rows_recurrent,
                                         &arch_rows_encoder};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

int arch_count(void) {
    int n = 0;
    for (int i = 0; i < N_PARTS; i++) n += parts[i]->n;
    return n;
}

const arch_row *arch_at(int i) {
    for (int part = 0; part < N_PARTS && i >= 0; part++) {
        if (i < parts[part]->n) return &parts[part]->rows[i];
        i -= parts[part]->n;
    }
    return NULL;
}

const arch_row *arch_find(const char *name, uint64_t n_bytes) {
    const arch_row *row;
    for (int i = 0; (row = arch_at(i)); i++)
        if (strlen(row->name) == n_bytes && memcmp(row->name, name, n_bytes) == 0) return row;
    return NULL;
}

activation arch_activation(const arch_row *row, bool pwri, bool experts) {
    if (pwri && experts) return ACTIVATION_DRELU;
    return pwri ? row->pwri_activation : row->default_activation;
}

bool arch_has_window(const arch_row *row, int period, int layer) {
    return period == 1 || (period > 1 && (row->window_after ? layer : layer + 1) % period != 0);
}

/* Edit distance of two names, minus the length of their common prefix. */
static int unlikeness(const char *a, const char *b) {
    int common = 0;
    while (a[common] && a[common] == b[common]) common++;
    return (int)edit_distance(a, b) - common;
}

const char *arch_closest_names(const char *name, size_t n_name, char text[ARCH_CLOSEST_TEXT]) {
    char given[EDIT_DISTANCE_MAX + 1];
    const arch_row *row, *best[ARCH_CLOSEST];
    int score[ARCH_CLOSEST], n = 0;
    size_t used = 0;
    snprintf(given, sizeof given, "%.*s", (int)(n_name < INT_MAX ? n_name : INT_MAX), name);
    for (int i = 0; (row = arch_at(i)); i++) {
        int s = unlikeness(given, row->name), at = n;
        while (at > 0 && score[at - 1] > s) at--;
        if (at == ARCH_CLOSEST) continue;
        if (n < ARCH_CLOSEST) n++;
        for (int k = n - 1; k > at; k--) score[k] = score[k - 1], best[k] = best[k - 1];
        score[at] = s;
        best[at] = row;
    }
    text[0] = 0;
    for (int i = 0; i < n && used < ARCH_CLOSEST_TEXT; i++)
        used += (size_t)snprintf(text + used, ARCH_CLOSEST_TEXT - used, "%s%s", i ? ", " : "",
                                 best[i]->name);
    return text;
}

/* Sizes of sparse attention and of recurrent mixers; 1 for DIM_ONE and DIM_NONE. */
static int64_t recurrent_dim_size(arch_dim dim, const arch_sizes *s) {
    switch (dim) {
    case DIM_INDEX:
        return s->index_dim;
    case DIM_INDEX_Q:
        return s->n_index_head * s->index_dim;
    case DIM_INDEX_HEADS:
        return s->n_index_head;
    case DIM_TAPS:
        return s->n_taps;
    case DIM_CONV:
        return s->n_conv;
    case DIM_2EMBD:
        return 2 * s->n_embd;
    case DIM_3EMBD:
        return 3 * s->n_embd;
    case DIM_SSM_IN:
        return s->n_inner + s->n_conv + s->n_ssm_head;
    case DIM_SSM_QKVZ:
        return s->n_conv + s->n_inner;
    case DIM_SSM_INNER:
        return s->n_inner;
    case DIM_SSM_HEADS:
        return s->n_ssm_head;
    case DIM_SSM_2HEADS:
        return 2 * s->n_ssm_head;
    case DIM_SSM_GROUPS:
        return s->n_ssm_group;
    case DIM_SSM_GROUP_INNER:
        return s->n_ssm_group > 0 ? s->n_inner / s->n_ssm_group : 0;
    case DIM_SSM_HEAD:
        return s->n_ssm_head > 0 ? s->n_inner / s->n_ssm_head : 0;
    case DIM_SSM_2INNER:
        return 2 * s->n_inner;
    case DIM_SSM_STATE:
        return s->n_state;
    case DIM_SSM_RANK:
        return s->n_step_rank;
    case DIM_SSM_X:
        return s->n_step_rank + 2 * s->n_state;
    case DIM_SSM_KEYS:
        return s->n_ssm_group * s->n_state;
    case DIM_FIVE:
        return 5;
    default:
        return 1;
    }
}

/* Of residual streams and of embeddings of n-grams. */
static int64_t stream_dim_size(arch_dim dim, const arch_sizes *s) {
    switch (dim) {
    case DIM_STREAMS:
        return s->n_stream;
    case DIM_2STREAMS:
        return 2 * s->n_stream;
    case DIM_STREAM_EMBD:
        return s->n_stream * s->n_embd;
    case DIM_HYPER:
        return (2 + s->n_stream) * s->n_stream;
    case DIM_HYPER_RANK:
        return s->n_hyper_rank;
    case DIM_STREAMS_1:
        return s->n_stream - 1;
    case DIM_STREAMS_2:
        return s->n_stream * s->n_stream;
    case DIM_NGRAM_EMBD:
        return s->n_embd_ngram;
    case DIM_NGRAM_TAPS:
        return s->n_ngram_taps;
    default:
        return recurrent_dim_size(dim, s);
    }
}

int64_t arch_dim_size(arch_dim dim, const arch_sizes *s) {
    int64_t q_dim = s->q_dim ? s->q_dim : s->head_dim, v_dim = s->v_dim ? s->v_dim : s->head_dim;
    switch (dim) {
    case DIM_EMBD:
        return s->n_embd;
    case DIM_VOCAB:
        return s->n_vocab;
    case DIM_FF:
        return s->n_ff;
    case DIM_Q:
        return s->n_head * q_dim;
    case DIM_ATTN:
    case DIM_ATTN_GATE:
        return s->n_head * v_dim;
    case DIM_KV:
        return s->n_head_kv * s->head_dim;
    case DIM_VALUES:
        return s->n_head_kv * v_dim;
    case DIM_HEAD:
        return s->head_dim;
    case DIM_HEADS:
        return s->n_head;
    case DIM_HEADS_KV:
        return s->n_head_kv;
    case DIM_HALF_ROT:
        return s->n_rot / 2;
    case DIM_ROT:
        return s->n_rot;
    case DIM_HALF_ROTS:
        return s->n_rots / 2;
    case DIM_QKV:
        return (s->n_head + s->n_head_kv) * s->head_dim + s->n_head_kv * v_dim;
    case DIM_NOPE:
        return q_dim - s->n_rot;
    case DIM_V:
        return v_dim;
    case DIM_LATENT_Q:
        return s->n_latent_q;
    case DIM_LATENT:
        return s->n_latent;
    case DIM_KV_A:
        return s->n_latent + s->n_rot;
    case DIM_KV_B:
        return s->n_head * (q_dim - s->n_rot + v_dim);
    case DIM_2FF:
        return 2 * s->n_ff;
    case DIM_EMBD_8:
        return s->n_embd / 8;
    case DIM_EXPERTS:
        return s->n_expert;
    case DIM_UNITS:
        return s->n_ff_expert > 0 ? s->n_expert : s->n_ff;
    case DIM_EXPERT_FF:
        return s->n_ff_expert;
    case DIM_EXPERT_EMBD:
        return s->n_expert_embd > 0 ? s->n_expert_embd : s->n_embd;
    case DIM_EXPERT_2FF:
        return 2 * s->n_ff_expert;
    case DIM_SHARED_FF:
        return s->n_ff_shared;
    case DIM_ADJUGATES:
        return s->n_adjugate;
    case DIM_ADJUGATE_FF:
        return s->n_ff_adjugate;
    case DIM_RANK:
        return s->n_rank;
    case DIM_PROFILER:
        return s->n_profiler;
    case DIM_POS:
        return s->n_pos;
    case DIM_BUNDLE:
        return s->n_bundle;
    case DIM_TYPES:
    case DIM_OPEN:
    case DIM_NGRAM_ROWS:
        return 0; /* from the file */
    case DIM_2Q:
        return 2 * s->n_head * s->head_dim;
    case DIM_TWO:
        return 2;
    case DIM_THREE:
        return 3;
    case DIM_COMPRESS:
        return s->n_parts * s->head_dim;
    case DIM_INDEX_COMPRESS:
        return s->n_parts * s->index_dim;
    case DIM_RATIO:
        return s->ratio;
    case DIM_OUT_GROUPS:
        return s->n_out_group;
    case DIM_OUT_GROUP:
        return s->n_out_group > 0 ? s->n_head * v_dim / s->n_out_group : 0;
    case DIM_OUT_RANK:
        return s->n_out_rank;
    case DIM_OUT_RANKS:
        return s->n_out_group * s->n_out_rank;
    case DIM_EXPERTS_USED:
        return s->n_expert_used;
    case DIM_LAUREL:
        return s->n_laurel;
    case DIM_LAYER_EMBD:
        return s->n_embd_layer;
    case DIM_LAYER_EMBDS:
        return s->n_layer * s->n_embd_layer;
    default:
        return stream_dim_size(dim, s);
    }
}

const arch_tensor *arch_tensor_of(const arch_row *row, tensor_role role) {
    for (int i = 0; i < row->n_tensors; i++)
        if (row->tensors[i].role == role) return &row->tensors[i];
    return NULL;
}

const arch_tensor *arch_tensor_whole(const arch_row *row, tensor_role role) {
    const arch_tensor *own = arch_tensor_of(row, role);
    if (own) return own;
    if (role == ROLE_FFN_GATE || role == ROLE_FFN_UP) return arch_tensor_of(row, ROLE_FFN_GATE_UP);
    bool heads = role == ROLE_ATTN_Q || role == ROLE_ATTN_K || role == ROLE_ATTN_V;
    return heads ? arch_tensor_of(row, ROLE_ATTN_QKV) : NULL;
}

bool arch_values_may_differ(const arch_row *row) {
    const arch_tensor *out = arch_tensor_of(row, ROLE_ATTN_OUT);
    return out && out->dims[0] == DIM_ATTN;
}

void arch_tensor_name(const arch_tensor *t, int layer, char name[64]) {
    if (t->flags & TENSOR_PER_LAYER) {
        const char *rest = strstr(t->name, "%d");
        snprintf(name, 64, "%.*s%d%s", (int)(rest - t->name), t->name, layer, rest + 2);
    } else {
        snprintf(name, 64, "%s", t->name);
    }
}

static const char *const role_names[ROLE_COUNT] = {
    [ROLE_TOKEN_EMBD] = "token_embd",
    [ROLE_POS_EMBD] = "position_embd",
    [ROLE_LAYER_EMBD] = "per_layer_token_embd",
    [ROLE_LAYER_EMBD_PROJ] = "per_layer_model_proj",
    [ROLE_LAYER_EMBD_NORM] = "per_layer_proj_norm",
    [ROLE_STREAM_PROJ] = "altup_proj",
    [ROLE_STREAM_ROUTER_NORM] = "altup_router_norm",
    [ROLE_STREAM_ROUTER] = "altup_router",
    [ROLE_STREAM_PREDICT] = "altup_predict_coef",
    [ROLE_STREAM_CORRECT] = "altup_correct_coef",
    [ROLE_STREAM_CORRECT_SCALE] = "altup_correct_scale",
    [ROLE_STREAM_UNEMBD] = "altup_unembd_proj",
    [ROLE_HYPER_ATTN] = "hc_attn_fn",
    [ROLE_HYPER_ATTN_BASE] = "hc_attn_base",
    [ROLE_HYPER_ATTN_SCALE] = "hc_attn_scale",
    [ROLE_HYPER_FFN] = "hc_ffn_fn",
    [ROLE_HYPER_FFN_BASE] = "hc_ffn_base",
    [ROLE_HYPER_FFN_SCALE] = "hc_ffn_scale",
    [ROLE_HYPER_ATTN_NORM] = "hc_attn_norm",
    [ROLE_HYPER_ATTN_DOWN] = "hc_attn_down",
    [ROLE_HYPER_ATTN_UP] = "hc_attn_up",
    [ROLE_HYPER_ATTN_INJECT] = "hc_attn_inject",
    [ROLE_HYPER_FFN_NORM] = "hc_ffn_norm",
    [ROLE_HYPER_FFN_DOWN] = "hc_ffn_down",
    [ROLE_HYPER_FFN_UP] = "hc_ffn_up",
    [ROLE_HYPER_FFN_INJECT] = "hc_ffn_inject",
    [ROLE_HYPER_HEAD_NORM] = "output_hc_norm",
    [ROLE_HYPER_HEAD_DOWN] = "output_hc_down",
    [ROLE_HYPER_HEAD_UP] = "output_hc_up",
    [ROLE_NGRAM_EMBD] = "ngram_embd",
    [ROLE_NGRAM_KEY] = "ple_key",
    [ROLE_NGRAM_VALUE] = "ple_value",
    [ROLE_NGRAM_KEY_NORM] = "ple_norm_key",
    [ROLE_NGRAM_QUERY_NORM] = "ple_norm_query",
    [ROLE_NGRAM_CONV_NORM] = "ple_norm_conv",
    [ROLE_NGRAM_CONV] = "ple_conv1d",
    [ROLE_HYPER_HEAD] = "output_hc_fn",
    [ROLE_HYPER_HEAD_BASE] = "output_hc_base",
    [ROLE_HYPER_HEAD_SCALE] = "output_hc_scale",
    [ROLE_PAST_ATTN] = "attn_res_score",
    [ROLE_PAST_FFN] = "ffn_res_score",
    [ROLE_PAST_HEAD] = "output_res_score",
    [ROLE_EXPERT_LATENT_IN] = "ffn_routed_down",
    [ROLE_EXPERT_LATENT_NORM] = "ffn_routed_norm",
    [ROLE_EXPERT_LATENT_OUT] = "ffn_routed_up",
    [ROLE_LAUREL_A] = "laurel_l",
    [ROLE_LAUREL_B] = "laurel_r",
    [ROLE_LAUREL_NORM] = "laurel_post_norm",
    [ROLE_LAYER_EMBD_GATE] = "inp_gate",
    [ROLE_LAYER_EMBD_OUT] = "proj",
    [ROLE_LAYER_EMBD_POST_NORM] = "post_norm",
    [ROLE_ATTN_NORM_BIAS] = "attn_norm.bias",
    [ROLE_ATTN_NORM_2] = "attn_norm_2",
    [ROLE_ATTN_NORM_2_BIAS] = "attn_norm_2.bias",
    [ROLE_ATTN_QKV] = "attn_qkv",
    [ROLE_ATTN_QKV_BIAS] = "attn_qkv.bias",
    [ROLE_FFN_NORM_BIAS] = "ffn_norm.bias",
    [ROLE_FC1] = "fc1",
    [ROLE_FC2] = "fc2",
    [ROLE_FC2_BIAS] = "fc2.bias",
    [ROLE_FFN_SIGN] = "ffn_sign",
    [ROLE_FFN_DOWN_T] = "ffn_down_t",
    [ROLE_FFN_BUNDLE] = "ffn_bundle",
    [ROLE_FFN_FREQ] = "ffn_freq",
    [ROLE_FFN_PERM] = "ffn_perm",
    [ROLE_FFN_CUT] = "ffn_cut",
    [ROLE_OUTPUT_NORM_BIAS] = "output_norm.bias",
    [ROLE_ATTN_NORM] = "attn_norm",
    [ROLE_ATTN_Q] = "attn_q",
    [ROLE_ATTN_Q_BIAS] = "attn_q.bias",
    [ROLE_ATTN_K] = "attn_k",
    [ROLE_ATTN_K_BIAS] = "attn_k.bias",
    [ROLE_ATTN_V] = "attn_v",
    [ROLE_ATTN_V_BIAS] = "attn_v.bias",
    [ROLE_TOKEN_TYPES] = "token_types",
    [ROLE_ATTN_SUM_NORM] = "attn_output_norm",
    [ROLE_ATTN_SUM_NORM_BIAS] = "attn_output_norm.bias",
    [ROLE_ATTN_SUM_NORM_2] = "attn_output_norm_2",
    [ROLE_ATTN_SUM_NORM_2_BIAS] = "attn_output_norm_2.bias",
    [ROLE_FFN_SUM_NORM] = "layer_output_norm",
    [ROLE_FFN_SUM_NORM_BIAS] = "layer_output_norm.bias",
    [ROLE_CLS] = "cls",
    [ROLE_CLS_BIAS] = "cls.bias",
    [ROLE_CLS_NORM] = "cls.norm",
    [ROLE_CLS_OUT] = "cls.output",
    [ROLE_CLS_OUT_BIAS] = "cls.output.bias",
    [ROLE_DENSE_2] = "dense_2",
    [ROLE_DENSE_2_BIAS] = "dense_2.bias",
    [ROLE_DENSE_3] = "dense_3",
    [ROLE_EMBD_NORM] = "token_embd_norm",
    [ROLE_EMBD_NORM_BIAS] = "token_embd_norm.bias",
    [ROLE_ATTN_SLOPES] = "attn_slopes",
    [ROLE_ATTN_GATE] = "attn_gate",
    [ROLE_ATTN_Q_A] = "attn_q_a",
    [ROLE_ATTN_Q_A_NORM] = "attn_q_a_norm",
    [ROLE_ATTN_Q_B] = "attn_q_b",
    [ROLE_ATTN_KV_A] = "attn_kv_a_mqa",
    [ROLE_ATTN_KV_A_NORM] = "attn_kv_a_norm",
    [ROLE_ATTN_KV_B] = "attn_kv_b",
    [ROLE_ATTN_K_B] = "attn_k_b",
    [ROLE_ATTN_V_B] = "attn_v_b",
    [ROLE_ATTN_Q_NORM] = "attn_q_norm",
    [ROLE_ATTN_Q_NORM_BIAS] = "attn_q_norm.bias",
    [ROLE_ATTN_K_NORM] = "attn_k_norm",
    [ROLE_ATTN_K_NORM_BIAS] = "attn_k_norm.bias",
    [ROLE_ATTN_OUT] = "attn_output",
    [ROLE_ATTN_OUT_BIAS] = "attn_output.bias",
    [ROLE_INDEX_Q] = "indexer.q_proj",
    [ROLE_INDEX_K] = "indexer.k_proj",
    [ROLE_INDEX_Q_NORM] = "indexer.q_norm",
    [ROLE_INDEX_K_NORM] = "indexer.k_norm",
    [ROLE_INDEX_K_NORM_BIAS] = "indexer.k_norm.bias",
    [ROLE_INDEX_WEIGHTS] = "indexer.proj",
    [ROLE_COMPRESS_KV] = "attn_compressor_kv",
    [ROLE_COMPRESS_GATE] = "attn_compressor_gate",
    [ROLE_COMPRESS_POS] = "attn_compressor_ape",
    [ROLE_COMPRESS_NORM] = "attn_compressor_norm",
    [ROLE_INDEX_COMPRESS_KV] = "indexer_compressor_kv",
    [ROLE_INDEX_COMPRESS_GATE] = "indexer_compressor_gate",
    [ROLE_INDEX_COMPRESS_POS] = "indexer_compressor_ape",
    [ROLE_INDEX_COMPRESS_NORM] = "indexer_compressor_norm",
    [ROLE_ATTN_OUT_A] = "attn_output_a",
    [ROLE_ATTN_POST_NORM] = "post_attention_norm",
    [ROLE_FFN_POST_NORM] = "post_ffw_norm",
    [ROLE_FFN_POST_NORM_1] = "post_ffw_norm_1",
    [ROLE_FFN_NORM] = "ffn_norm",
    [ROLE_FFN_SHIFT] = "ffn_shift",
    [ROLE_FFN_SHIFT_R] = "ffn_shift_r",
    [ROLE_FFN_RECEPTANCE] = "ffn_receptance",
    [ROLE_FFN_GATE_UP] = "ffn_gate_up",
    [ROLE_FFN_GATE] = "ffn_gate",
    [ROLE_FFN_GATE_BIAS] = "ffn_gate.bias",
    [ROLE_FFN_UP] = "ffn_up",
    [ROLE_FFN_UP_BIAS] = "ffn_up.bias",
    [ROLE_FFN_ACT_SCALE] = "ffn.act.scales",
    [ROLE_FFN_DOWN] = "ffn_down",
    [ROLE_FFN_DOWN_BIAS] = "ffn_down.bias",
    [ROLE_FFN_DOWN_T_BIAS] = "ffn_down_t.bias",
    [ROLE_ATTN_SINKS] = "attn_sinks",
    [ROLE_SSM_IN] = "ssm_in",
    [ROLE_SSM_QKVZ] = "ssm_qkvz",
    [ROLE_SSM_IN_K] = "ssm_in_k",
    [ROLE_SSM_IN_V] = "ssm_in_v",
    [ROLE_SSM_GATE] = "ssm_gate",
    [ROLE_SSM_GATE_A] = "ssm_g_a",
    [ROLE_SSM_GATE_B] = "ssm_g_b",
    [ROLE_SSM_ALPHA_A] = "ssm_f_a",
    [ROLE_SSM_ALPHA_B] = "ssm_f_b",
    [ROLE_SSM_CONV_K] = "ssm_conv1d_k",
    [ROLE_SSM_CONV_V] = "ssm_conv1d_v",
    [ROLE_SSM_BETA_ALPHA] = "ssm_ba",
    [ROLE_SSM_BETA] = "ssm_beta",
    [ROLE_SSM_ALPHA] = "ssm_alpha",
    [ROLE_SSM_X] = "ssm_x",
    [ROLE_SSM_DT] = "ssm_dt",
    [ROLE_SSM_DT_NORM] = "ssm_dt_norm",
    [ROLE_SSM_B_NORM] = "ssm_b_norm",
    [ROLE_SSM_C_NORM] = "ssm_c_norm",
    [ROLE_SSM_CONV] = "ssm_conv1d",
    [ROLE_SSM_CONV_BIAS] = "ssm_conv1d.bias",
    [ROLE_SSM_DT_BIAS] = "ssm_dt.bias",
    [ROLE_SSM_A] = "ssm_a",
    [ROLE_SSM_D] = "ssm_d",
    [ROLE_SSM_NORM] = "ssm_norm",
    [ROLE_SSM_NORM_BIAS] = "ssm_norm.bias",
    [ROLE_SSM_SHIFT] = "ssm_shift",
    [ROLE_SSM_SHIFT_W] = "ssm_shift_w",
    [ROLE_SSM_SHIFT_K] = "ssm_shift_k",
    [ROLE_SSM_SHIFT_V] = "ssm_shift_v",
    [ROLE_SSM_SHIFT_R] = "ssm_shift_r",
    [ROLE_SSM_SHIFT_G] = "ssm_shift_g",
    [ROLE_SSM_SHIFT_X] = "ssm_shift_x",
    [ROLE_SSM_SHIFT_A] = "ssm_shift_a",
    [ROLE_SSM_SHIFT_B] = "ssm_shift_b",
    [ROLE_SSM_IN_BIAS] = "ssm_in.bias",
    [ROLE_SSM_IN_K_BIAS] = "ssm_in_k.bias",
    [ROLE_SSM_IN_V_BIAS] = "ssm_in_v.bias",
    [ROLE_SSM_RATE_A] = "ssm_rate_a",
    [ROLE_SSM_RATE_B] = "ssm_rate_b",
    [ROLE_SSM_RATE_BIAS] = "ssm_rate.bias",
    [ROLE_SSM_FIRST_A] = "ssm_first_a",
    [ROLE_SSM_FIRST_B] = "ssm_first_b",
    [ROLE_SSM_FIRST_BIAS] = "ssm_first.bias",
    [ROLE_SSM_ERASE] = "ssm_erase",
    [ROLE_SSM_RATE_KEY] = "ssm_rate_key",
    [ROLE_SSM_BONUS] = "ssm_bonus",
    [ROLE_SSM_OUT] = "ssm_out",
    [ROLE_ROUTER] = "ffn_gate_inp",
    [ROLE_ROUTER_BIAS] = "ffn_gate_inp.bias",
    [ROLE_ROUTER_SCALE] = "ffn_gate_inp.scale",
    [ROLE_EXPERT_PRE_NORM] = "pre_ffw_norm_2",
    [ROLE_EXPERT_DOWN_SCALE] = "ffn_down_exps.scale",
    [ROLE_EXPERT_POST_NORM] = "post_ffw_norm_2",
    [ROLE_EMBD_SKIP] = "embd_skip",
    [ROLE_LAYER_SCALE] = "layer_output_scale",
    [ROLE_ROUTER_SELECT_BIAS] = "exp_probs_b.bias",
    [ROLE_ROUTER_TABLE] = "ffn_gate_tid2eid",
    [ROLE_EXPERT_GATE_UP] = "ffn_gate_up_exps",
    [ROLE_EXPERT_GATE] = "ffn_gate_exps",
    [ROLE_EXPERT_GATE_BIAS] = "ffn_gate_exps.bias",
    [ROLE_EXPERT_UP] = "ffn_up_exps",
    [ROLE_EXPERT_UP_BIAS] = "ffn_up_exps.bias",
    [ROLE_EXPERT_DOWN] = "ffn_down_exps",
    [ROLE_EXPERT_DOWN_T] = "ffn_down_t_exps",
    [ROLE_EXPERT_BUNDLE] = "ffn_bundle_exps",
    [ROLE_EXPERT_DOWN_BIAS] = "ffn_down_exps.bias",
    [ROLE_EXPERT_PERM] = "ffn_expert_perm",
    [ROLE_EXPERT_FC1] = "fc1_exps",
    [ROLE_EXPERT_FC2] = "fc2_exps",
    [ROLE_EXPERT_FC2_BIAS] = "fc2_exps.bias",
    [ROLE_EXPERT_SIGN] = "ffn_sign_exps",
    [ROLE_ADJUGATE_GATE] = "ffn_gate_chexps",
    [ROLE_ADJUGATE_UP] = "ffn_up_chexps",
    [ROLE_ADJUGATE_DOWN] = "ffn_down_chexps",
    [ROLE_SHARED_ROUTER] = "ffn_gate_inp_shexp",
    [ROLE_SHARED_GATE] = "ffn_gate_shexp",
    [ROLE_SHARED_UP] = "ffn_up_shexp",
    [ROLE_SHARED_DOWN] = "ffn_down_shexp",
    [ROLE_OUTPUT_NORM] = "output_norm",
    [ROLE_OUTPUT] = "output",
    [ROLE_OUTPUT_BIAS] = "output.bias",
    [ROLE_OUTPUT_FC1] = "output_sketch.fc1",
    [ROLE_OUTPUT_FC2] = "output_sketch.fc2",
    [ROLE_OUTPUT_PROFILER] = "lm_head_profiler",
    [ROLE_ROPE_FREQS] = "rope_freqs",
    [ROLE_ROPE_LONG] = "rope_factors_long",
    [ROLE_ROPE_SHORT] = "rope_factors_short",
    [ROLE_DRAFT_EMBD_NORM] = "enorm",
    [ROLE_DRAFT_NORM] = "hnorm",
    [ROLE_DRAFT_PROJ] = "eh_proj",
    [ROLE_DRAFT_FUSE] = "fc",
    [ROLE_DRAFT_FUSE_NORM] = "enc.output_norm",
};

const char *tensor_role_name(tensor_role role) {
    return (unsigned)role < ROLE_COUNT ? role_names[role] : "unknown";
}

bool tensor_role_is_predictor(tensor_role role) {
    return (role >= ROLE_FC1 && role <= ROLE_FFN_SIGN) ||
           (role >= ROLE_EXPERT_FC1 && role <= ROLE_EXPERT_SIGN);
}

arch_part tensor_role_part(tensor_role role) {
    if (role >= ROLE_ATTN_NORM_2 && role <= ROLE_INDEX_WEIGHTS) return PART_ATTENTION;
    if (role >= ROLE_SSM_IN && role <= ROLE_SSM_OUT) return PART_RECURRENT;
    if (role >= ROLE_FFN_NORM && role <= ROLE_SHARED_DOWN) return PART_FFN;
    return PART_ANY;
}
