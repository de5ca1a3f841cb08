/* hf_family.h: describes the Hugging Face folders of each model type: one constant row per family.
 * A row names its architecture and lists only the differences from the usual form: the names and
 * layouts of tensors of the architecture table, and numbers that config.json may omit. The
 * converter reads the row and never tests for a model type. */
#ifndef CONVERT_HF_FAMILY_H
#define CONVERT_HF_FAMILY_H

#include "arch.h"

/* Selects the rows of a checkpoint's tensor that belong to the GGUF tensor. */
typedef enum hf_rows {
    HF_ALL,
    HF_FIRST_ROWS, /* where other rows follow */
    HF_LAST_ROWS,
    HF_FIRST_HALF,  /* gate, where gate and up are concatenated */
    HF_SECOND_HALF, /* up */
    HF_EVEN,        /* gate, where rows of gate and up alternate */
    HF_ODD,         /* up */
    /* From groups: the Q heads that share a KV head, then its K, then its V. */
    HF_GROUPED_Q,
    HF_GROUPED_K,
    HF_GROUPED_V,
    HF_GROUPED_QKV, /* all of them, in the order Q, K, V */
    /* From the gated delta rule, which stores per key head its query, its key, and the values, then
       the gates of its value heads. */
    HF_DELTA_QKV, /* all queries, then keys, then values */
    HF_DELTA_GATE,
    /* Value heads stored group by group; GGUF stores the first heads of all groups, then the second
       heads, and so on. For all rows; the rows after queries and keys; the elements of rows. */
    HF_TURNS,
    HF_TURNS_BEHIND,
    HF_TURNS_COLUMNS,
    /* MLA: from each head's rows of keys, then of values. */
    HF_HEAD_KEYS, /* each head is transposed */
    HF_HEAD_VALUES
} hf_rows;

/* How a tensor is stored. */
typedef enum hf_form {
    HF_PLAIN,
    HF_TRANSPOSED, /* [in][out] */
    HF_MXFP4,      /* NAME_blocks [..][in / 32][16] and NAME_scales [..][in / 32], bytes */
    /* Not in tables: another form of a plain matrix in a folder. NAME_packed or NAME [..][in/2]
       bytes, NAME_scale [..][in / 16] E4M3, and one global number, NAME_global_scale (which
       divides) or NAME_scale_2 (which multiplies). NVFP4_GLOBAL is these numbers. */
    HF_NVFP4,
    HF_NVFP4_GLOBAL
} hf_form;

typedef struct hf_tensor {
    tensor_role role;
    const char *name; /* "%d": the layer; "%e": the expert or head, one tensor each; "%[abc]": a
                         letter of these, one tensor each; without both one tensor holds all of
                         them in its first dimension */
    hf_rows rows;
    hf_form form;
    bool log; /* A_log: stores the logarithm of the negated value */
} hf_tensor;

/* A number of config.json that files may omit. */
typedef struct hf_default {
    const char *key; /* NULL ends a list */
    double value;
} hf_default;

enum {
    HF_INTERLEAVED = 1,    /* rotates neighbouring elements like GGUF: Q and K keep their order */
    HF_NORMS_LESS_ONE = 2, /* norms multiply by 1 + weight */
    HF_MULTIPLIED = 4,     /* config.json has factors of weights */
    HF_WIDTH_FOUR = 16,    /* without a number, FFNs have 4 * n_embd neurons */
    HF_SECTIONS = 8,       /* pairs rotate in sections, which are identical for text */
    HF_WIDTH_SEVEN_HALVES = 32, /* without a number: 3.5 * n_embd, whole groups of 32 */
    HF_POSITIONS_AFTER_PAD = 64 /* the first position's row follows that of pad_token_id */
};

typedef struct hf_family {
    const char *const *types;   /* values of model_type or, where several families share it, of
                                   architectures; NULL ends the list */
    const char *arch;           /* general.architecture */
    const char *with_experts;   /* family of files that have n_routed_experts; NULL: this one */
    const char *pre;            /* see hf_vocab_read */
    uint32_t flags;             /* HF_* */
    const hf_default *defaults; /* NULL: none */
    const hf_tensor *tensors; /* [n_tensors], searched before the architecture table's names; when a
                                 role occurs several times, the first existing tensor is used */
    int n_tensors;
} hf_family;

/* Finds a family by model_type or architecture; NULL: unknown. */
const hf_family *hf_family_find(const char *type);
int hf_family_count(void);
const hf_family *hf_family_at(int i);
const arch_row *hf_family_arch(const hf_family *family);
/* Returns source `i` of a role, in order of preference; false: no more sources. */
bool hf_family_source(const hf_family *family, const arch_tensor *row, int i, hf_tensor *out);
/* "llama, mistral, ... and others": as many values of model_type as fit into a message. */
enum { HF_LIST_TEXT = 320 };
const char *hf_family_list(char text[HF_LIST_TEXT]); /* returns `text` */

#endif
