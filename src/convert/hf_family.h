/* hf_family.h: what the Hugging Face folders of a model type are made of: one constant row per
 * family. A row names its architecture and says only what differs from the usual: where tensors of
 * the architecture table lie and how, and numbers that config.json may leave out. The converter
 * asks the row, never for a model type. */
#ifndef CONVERT_HF_FAMILY_H
#define CONVERT_HF_FAMILY_H

#include "arch.h"

/* Which rows of the checkpoint's tensor are those of ours. */
typedef enum hf_rows {
    HF_ALL,
    HF_FIRST_HALF,  /* gate, of gate and up in one */
    HF_SECOND_HALF, /* up */
    HF_EVEN,        /* gate, where gate and up take turns */
    HF_ODD,         /* up */
    /* Of groups: the heads of Q that share a head of K and V, then that head of K, then of V. */
    HF_GROUPED_Q,
    HF_GROUPED_K,
    HF_GROUPED_V,
    HF_GROUPED_QKV, /* all of them, as Q, then K, then V */
    /* The gated delta rule: of every head of keys its query, its key, and the values, then the
     * gates of its heads of values. */
    HF_DELTA_QKV, /* all queries, then keys, then values */
    HF_DELTA_GATE,
    /* Heads of values group by group, where ours are the first one of every group, then the second
     * ones, and so on: of all rows, of those behind queries and keys, of the elements of rows. */
    HF_TURNS,
    HF_TURNS_BEHIND,
    HF_TURNS_COLUMNS,
    /* MLA: of every head's rows of keys, then of values. */
    HF_HEAD_KEYS, /* transposed head by head */
    HF_HEAD_VALUES
} hf_rows;

/* How a tensor is stored. */
typedef enum hf_form {
    HF_PLAIN,
    HF_TRANSPOSED, /* [in][out] */
    HF_MXFP4,      /* NAME_blocks [..][in / 32][16] and NAME_scales [..][in / 32], bytes */
    /* Not in tables: what a plain matrix may be in a folder. NAME_packed or NAME [..][in / 2]
     * bytes, NAME_scale [..][in / 16] E4M3, and one number for all, NAME_global_scale (which
     * divides) or NAME_scale_2 (which multiplies); and these numbers. */
    HF_NVFP4,
    HF_NVFP4_GLOBAL
} hf_form;

typedef struct hf_tensor {
    tensor_role role;
    const char *name; /* "%d": the layer; "%e": the expert or head, one tensor each; otherwise all
                         of them are in one tensor, as its first dimension */
    hf_rows rows;
    hf_form form;
    bool log; /* the logarithm of what is meant, which is negative: A_log */
} hf_tensor;

/* A number of config.json that its files may leave out. */
typedef struct hf_default {
    const char *key; /* NULL ends a list */
    double value;
} hf_default;

enum {
    HF_INTERLEAVED = 1,    /* rotates neighbours as GGUF does: Q and K keep their order */
    HF_NORMS_LESS_ONE = 2, /* norms multiply by 1 + weight */
    HF_MULTIPLIED = 4,     /* config.json has numbers that weights are multiplied by */
    HF_SECTIONS = 8        /* pairs turn in sections: for text all alike */
};

typedef struct hf_family {
    const char *const *types;   /* values of model_type or, where that is shared with other
                                   families, of architectures; NULL ends the list */
    const char *arch;           /* general.architecture */
    const char *with_experts;   /* the family of files with n_routed_experts; NULL: this one */
    const char *pre;            /* as in hf_vocab_read */
    uint32_t flags;             /* HF_* */
    const hf_default *defaults; /* NULL: none */
    const hf_tensor *tensors;   /* [n_tensors], before the architecture table's own names; of a role
                                   that comes several times, the first that is there counts */
    int n_tensors;
} hf_family;

/* By model_type or architecture; NULL when unknown. */
const hf_family *hf_family_find(const char *type);
int hf_family_count(void);
const hf_family *hf_family_at(int i);
const arch_row *hf_family_arch(const hf_family *family);
/* Source `i` of a role, in order of preference; false when there are no more. */
bool hf_family_source(const hf_family *family, const arch_tensor *row, int i, hf_tensor *out);
/* "llama, mistral, ... and others": as many values of model_type as a message has room for. */
enum { HF_LIST_TEXT = 320 };
const char *hf_family_list(char text[HF_LIST_TEXT]); /* returns `text` */

#endif
