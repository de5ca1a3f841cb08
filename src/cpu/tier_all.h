/* tier_all.h: all template kernels between matrix products, and their entries in the table. Each
 * tier's _ops.c includes it once. */
#ifndef CPU_TIER_ALL_H
#define CPU_TIER_ALL_H

#include "tier_act.h"
#include "tier_attn.h"
#include "tier_gemm.h"
#include "tier_ops.h"
#include "tier_recur.h"
#include "tier_select.h"

static void tier_enter(cpu_kernels *k) {
    k->act_encode = tier_act_encode;
    k->rms_norm = tier_rms_norm;
    k->layer_norm = tier_layer_norm;
    k->rope = tier_rope;
    k->hadamard = tier_hadamard;
    k->activate = tier_activate;
    k->add = tier_add;
    k->softcap = tier_softcap;
    k->decay = tier_decay;
    k->gate = tier_gate;
    k->recur = tier_recur;
    k->select = tier_select;
    k->keep = tier_keep;
    k->sign_dot = tier_sign_dot;
    k->gemm_tile = tier_gemm_tile;
    k->kv_store = tier_kv_store;
    k->attention = tier_attention;
}

#endif
