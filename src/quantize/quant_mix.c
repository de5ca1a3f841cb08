/* quant_mix.c: see quant_mix.h. Read the tables first: mixes, then classes of tensors, then rules.
 * A rule names mixes, classes and conditions. The first rule that applies determines the type;
 * without one, the mix's base type is used. All data is constant or local.
 *
 * The rules are llama.cpp's (src/llama-quant.cpp), whose file names promise these mixes. */
#include "quant_mix.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affix.h"
#include "ascii_case.h"
#include "mem.h"
#include "os_text.h"

/* ---- mixes ----------------------------------------------------------------------------------- */

/* X(bit, name, base type, file type); file types are llama.cpp's enum llama_ftype. */
#define MIXES(X)                                                                                   \
    X(F32, "F32", F32, 0)                                                                          \
    X(F16, "F16", F16, 1)                                                                          \
    X(BF16, "BF16", BF16, 32)                                                                      \
    X(Q4_0, "Q4_0", Q4_0, 2)                                                                       \
    X(Q4_1, "Q4_1", Q4_1, 3)                                                                       \
    X(Q5_0, "Q5_0", Q5_0, 8)                                                                       \
    X(Q5_1, "Q5_1", Q5_1, 9)                                                                       \
    X(Q8_0, "Q8_0", Q8_0, 7)                                                                       \
    X(Q2_K, "Q2_K", Q2_K, 10)                                                                      \
    X(Q2_K_S, "Q2_K_S", Q2_K, 21)                                                                  \
    X(Q3_K_S, "Q3_K_S", Q3_K, 11)                                                                  \
    X(Q3_K_M, "Q3_K_M", Q3_K, 12)                                                                  \
    X(Q3_K_L, "Q3_K_L", Q3_K, 13)                                                                  \
    X(Q4_K_S, "Q4_K_S", Q4_K, 14)                                                                  \
    X(Q4_K_M, "Q4_K_M", Q4_K, 15)                                                                  \
    X(Q5_K_S, "Q5_K_S", Q5_K, 16)                                                                  \
    X(Q5_K_M, "Q5_K_M", Q5_K, 17)                                                                  \
    X(Q6_K, "Q6_K", Q6_K, 18)                                                                      \
    X(TQ1_0, "TQ1_0", TQ1_0, 36)                                                                   \
    X(TQ2_0, "TQ2_0", TQ2_0, 37)                                                                   \
    X(Q1_0, "Q1_0", Q1_0, 40)                                                                      \
    X(Q2_0, "Q2_0", Q2_0, 41)                                                                      \
    X(IQ1_S, "IQ1_S", IQ1_S, 24)                                                                   \
    X(IQ1_M, "IQ1_M", IQ1_M, 31)                                                                   \
    X(IQ2_XXS, "IQ2_XXS", IQ2_XXS, 19)                                                             \
    X(IQ2_XS, "IQ2_XS", IQ2_XS, 20)                                                                \
    X(IQ2_S, "IQ2_S", IQ2_XS, 28)                                                                  \
    X(IQ2_M, "IQ2_M", IQ2_S, 29)                                                                   \
    X(IQ3_XXS, "IQ3_XXS", IQ3_XXS, 23)                                                             \
    X(IQ3_XS, "IQ3_XS", IQ3_S, 22)                                                                 \
    X(IQ3_S, "IQ3_S", IQ3_S, 26)                                                                   \
    X(IQ3_M, "IQ3_M", IQ3_S, 27)                                                                   \
    X(IQ4_NL, "IQ4_NL", IQ4_NL, 25)                                                                \
    X(IQ4_XS, "IQ4_XS", IQ4_XS, 30)                                                                \
    X(MXFP4_MOE, "MXFP4_MOE", MXFP4, 38)                                                           \
    X(MXFP4, "MXFP4", MXFP4, 38)

#define NUMBER(bit, name, base, file_type) NUMBER_##bit,
enum { MIXES(NUMBER) N_MIXES };
#undef NUMBER

#define BIT(bit, name, base, file_type) M_##bit = UINT64_C(1) << NUMBER_##bit,
enum { MIXES(BIT) M_ANY = (UINT64_C(1) << N_MIXES) - 1 };
#undef BIT
_Static_assert(N_MIXES < 63, "mixes are bits of 64");

#define ROW(bit, name, base, file_type) {name, QUANT_##base, file_type, false},
static const quant_mix mixes[] = {MIXES(ROW){"COPY", QUANT_F32, 0, true}};
#undef ROW

static const struct {
    const char *name, *mix;
} aliases[] = {
    {"Q3_K", "Q3_K_M"},
    {"Q4_K", "Q4_K_M"},
    {"Q5_K", "Q5_K_M"},
};

/* ---- classes --------------------------------------------------------------------------------- */

enum {
    C_OUTPUT = 1,
    C_EMBEDDING = 2,
    C_ATTN_Q = 4,
    C_ATTN_K = 8,
    C_ATTN_V = 16, /* also fused matrices that contain V */
    C_ATTN_OUT = 32,
    C_FFN_DOWN = 64,
    C_FFN_IN = 128, /* gate and up */
    C_OTHER = 256,
    C_ANY = 511
};

typedef enum name_match { NAME_IS, NAME_HAS } name_match;

/* The first match determines the class. */
static const struct {
    name_match match;
    const char *text;
    unsigned class;
} classes[] = {
    {NAME_IS, "output.weight", C_OUTPUT},
    {NAME_IS, "token_embd.weight", C_EMBEDDING},
    {NAME_IS, "per_layer_token_embd.weight", C_EMBEDDING},
    {NAME_HAS, "attn_qkv.weight", C_ATTN_V},
    {NAME_HAS, "attn_kv_b.weight", C_ATTN_V},
    {NAME_HAS, "attn_v.weight", C_ATTN_V},
    {NAME_HAS, "attn_k.weight", C_ATTN_K},
    {NAME_HAS, "attn_q.weight", C_ATTN_Q},
    {NAME_HAS, "attn_output.weight", C_ATTN_OUT},
    {NAME_HAS, "ffn_down", C_FFN_DOWN},
    {NAME_HAS, "ffn_gate", C_FFN_IN},
    {NAME_HAS, "ffn_up", C_FFN_IN},
};

/* Matrices that are too small or too sensitive to quantize: routers, positions, small state-space
 * and recurrent matrices, inputs of image encoders. */
static const struct {
    name_match match;
    const char *text;
} kept[] = {
    {NAME_HAS, "_norm.weight"},
    {NAME_HAS, "ffn_gate_inp.weight"},
    {NAME_HAS, "output_sketch."},
    {NAME_HAS, "ffn_gate_tid2eid.weight"},
    {NAME_IS, "position_embd.weight"},
    {NAME_IS, "token_types.weight"},
    {NAME_HAS, "altup"},
    {NAME_HAS, "laurel"},
    {NAME_HAS, "per_layer_model_proj"},
    {NAME_HAS, "ple_norm_"},
    {NAME_HAS, "ple_conv1d"},
    {NAME_HAS, "ssm_conv1d"},
    {NAME_HAS, "shortconv.conv.weight"},
    {NAME_HAS, "indexer.k_proj.weight"},
    {NAME_HAS, "indexer.q_proj.weight"},
    {NAME_HAS, "time_mix_first.weight"},
    {NAME_HAS, "time_mix_w0.weight"},
    {NAME_HAS, "time_mix_w1.weight"},
    {NAME_HAS, "time_mix_w2.weight"},
    {NAME_HAS, "time_mix_v0.weight"},
    {NAME_HAS, "time_mix_v1.weight"},
    {NAME_HAS, "time_mix_v2.weight"},
    {NAME_HAS, "time_mix_a0.weight"},
    {NAME_HAS, "time_mix_a1.weight"},
    {NAME_HAS, "time_mix_a2.weight"},
    {NAME_HAS, "time_mix_g1.weight"},
    {NAME_HAS, "time_mix_g2.weight"},
    {NAME_HAS, "time_mix_decay_w1.weight"},
    {NAME_HAS, "time_mix_decay_w2.weight"},
    {NAME_HAS, "time_mix_lerp_fused.weight"},
    {NAME_HAS, "attn_rel_b.weight"},
    {NAME_HAS, ".position_embd"},
    {NAME_HAS, "sam.pos_embd"},
    {NAME_HAS, "sam.neck."},
    {NAME_HAS, "sam.net_"},
    {NAME_HAS, ".rel_pos"},
    {NAME_HAS, ".patch_embd"},
    {NAME_HAS, ".patch_merger"},
    {NAME_HAS, "a.rvq.codebook"},
    {NAME_HAS, "mm.a.code_embd"},
};

/* ---- rules ----------------------------------------------------------------------------------- */

/* Conditions; all conditions of a rule must hold. i is the number of the tensor within its class,
 * counted from the first layer; n is the number of tensors of the class (V) or of layers (down). */
enum {
    IF_GQA_4 = 1,         /* four query heads or more share a KV head: V is small */
    IF_BEFORE_2 = 2,      /* i < 2 */
    IF_BEFORE_4 = 4,      /* i < 4 */
    IF_FIRST_16TH = 8,    /* i < n / 16 */
    IF_FIRST_8TH = 16,    /* i < n / 8 */
    IF_MORE_BITS = 32,    /* the first and last eighth, and every third between them */
    IF_EXPERTS_8 = 64,    /* exactly 8 experts: Mixtral */
    IF_EXPERTS_N = 128,   /* any other number of experts, including none */
    IF_FALCON = 256,      /* architecture falcon */
    IF_NO_FALCON = 512,   /* any other architecture */
    IF_IMPORTANCE = 1024, /* an importance matrix is used */
    IF_NO_IMPORTANCE = 2048,
    IF_70B = 4096,           /* llama and qwen2 with 80 layers and shared K and V heads */
    IF_ODD_ROWS = 8192,      /* rows are not whole blocks of the base type */
    IF_EXPERT_STACK = 16384, /* one matrix per expert */
    IF_EXPERTS_4 = 32768,    /* 4 experts or more */
    IF_MIDDLE = 65536        /* neither in the first nor in the last eighth of the layers */
};

/* Rules of the K mixes for V in models where V has an eighth of Q's size. */
#define M_UP_TO_4_BITS                                                                             \
    (M_Q2_K | M_Q2_K_S | M_Q3_K_S | M_Q3_K_M | M_Q4_K_S | M_Q4_K_M | M_IQ3_XXS | M_IQ3_XS |        \
     M_IQ3_S | M_IQ3_M)
#define M_IQ2_MORE (M_IQ2_S | M_IQ2_M)
#define M_IQ_12    (M_IQ1_S | M_IQ1_M | M_IQ2_XXS | M_IQ2_XS | M_IQ2_MORE)

static const struct {
    unsigned classes;
    uint64_t mixes;
    unsigned conditions;
    quant_type type;
} rules[] = {
    /* the head, or the embedding matrix if the head shares it */
    {C_OUTPUT, M_MXFP4 | M_MXFP4_MOE | M_Q8_0, 0, QUANT_Q8_0},
    {C_OUTPUT, M_ANY, IF_FALCON, QUANT_Q8_0},
    {C_OUTPUT, M_ANY, IF_ODD_ROWS, QUANT_Q8_0},
    {C_OUTPUT, M_IQ_12 | M_IQ3_XXS, 0, QUANT_Q5_K},
    {C_OUTPUT, M_ANY, 0, QUANT_Q6_K},
    {C_EMBEDDING, M_IQ2_MORE | M_IQ3_XXS, 0, QUANT_IQ3_S},
    {C_EMBEDDING, M_IQ_12, 0, QUANT_Q2_K},
    {C_EMBEDDING, M_TQ1_0 | M_TQ2_0 | M_Q2_0, 0, QUANT_Q4_K},
    /* experts in four bits, everything else in eight */
    {C_ANY, M_MXFP4_MOE, IF_EXPERT_STACK, QUANT_MXFP4},
    {C_ANY, M_MXFP4_MOE, 0, QUANT_Q8_0},
    /* one and two bits */
    {C_ATTN_V, M_IQ_12, IF_GQA_4, QUANT_Q4_K},
    {C_ATTN_V, M_IQ_12, IF_EXPERTS_4, QUANT_Q4_K},
    {C_ATTN_V, M_IQ2_MORE, 0, QUANT_IQ3_S},
    {C_ATTN_V, M_IQ_12, 0, QUANT_Q2_K},
    {C_ATTN_K, M_IQ_12, IF_EXPERTS_8, QUANT_Q4_K},
    {C_ATTN_OUT, M_IQ_12, IF_EXPERTS_8, QUANT_Q5_K},
    {C_ATTN_OUT, M_IQ1_S | M_IQ1_M, 0, QUANT_IQ2_XXS},
    {C_ATTN_OUT, M_IQ2_MORE, 0, QUANT_IQ3_S},
    {C_FFN_DOWN, M_IQ2_MORE, IF_FIRST_8TH, QUANT_IQ3_S},
    {C_FFN_DOWN, M_IQ_12, IF_FIRST_8TH, QUANT_Q2_K},
    /* attention */
    {C_ATTN_V | C_ATTN_K, M_ANY, IF_EXPERTS_8, QUANT_Q8_0},
    {C_ATTN_V, M_Q4_K_M | M_Q5_K_M, IF_MORE_BITS, QUANT_Q6_K},
    {C_ATTN_V, M_UP_TO_4_BITS, IF_70B, QUANT_Q5_K},
    {C_ATTN_V, M_Q2_K | M_Q2_K_S, IF_GQA_4, QUANT_Q4_K},
    {C_ATTN_V, M_Q2_K, 0, QUANT_Q3_K},
    {C_ATTN_V, M_IQ3_XXS | M_IQ3_XS | M_IQ3_S, IF_GQA_4, QUANT_Q4_K},
    {C_ATTN_V, M_IQ3_XXS, IF_NO_IMPORTANCE, QUANT_IQ3_S},
    {C_ATTN_V, M_IQ3_M, 0, QUANT_Q4_K},
    {C_ATTN_Q | C_ATTN_K, M_IQ3_XS, 0, QUANT_IQ3_XXS},
    {C_ATTN_Q | C_ATTN_K, M_IQ3_XXS, 0, QUANT_IQ2_S},
    {C_ATTN_V, M_Q3_K_M, IF_BEFORE_2, QUANT_Q5_K},
    {C_ATTN_V, M_Q3_K_M, 0, QUANT_Q4_K},
    {C_ATTN_V, M_Q3_K_L, 0, QUANT_Q5_K},
    {C_ATTN_V, M_IQ4_NL | M_IQ4_XS, IF_GQA_4, QUANT_Q5_K},
    {C_ATTN_V, M_Q4_K_S, IF_BEFORE_4, QUANT_Q5_K},
    {C_ATTN_OUT,
     M_Q2_K | M_Q3_K_S | M_Q3_K_M | M_IQ4_NL | M_IQ4_XS | M_Q4_K_S | M_Q4_K_M | M_IQ3_XXS |
         M_IQ3_XS | M_IQ3_S | M_IQ3_M,
     IF_EXPERTS_8 | IF_NO_FALCON, QUANT_Q5_K},
    {C_ATTN_OUT, M_Q2_K, IF_EXPERTS_N | IF_NO_FALCON, QUANT_Q3_K},
    {C_ATTN_OUT, M_IQ3_XXS, IF_EXPERTS_N | IF_NO_FALCON, QUANT_IQ3_S},
    {C_ATTN_OUT, M_IQ3_M, IF_EXPERTS_N | IF_NO_FALCON, QUANT_Q4_K},
    {C_ATTN_OUT, M_Q3_K_M, IF_EXPERTS_N | IF_NO_FALCON, QUANT_Q4_K},
    {C_ATTN_OUT, M_Q3_K_L, IF_EXPERTS_N | IF_NO_FALCON, QUANT_Q5_K},
    {C_ATTN_OUT, M_Q3_K_L, IF_FALCON, QUANT_Q4_K},
    /* the matrices that write to the residual stream after the activation */
    {C_FFN_DOWN, M_Q2_K, 0, QUANT_Q3_K},
    {C_FFN_DOWN, M_Q2_K_S, IF_FIRST_8TH, QUANT_Q4_K},
    {C_FFN_DOWN, M_IQ3_XXS, IF_NO_IMPORTANCE | IF_FIRST_8TH, QUANT_Q4_K},
    {C_FFN_DOWN, M_IQ3_XXS, IF_NO_IMPORTANCE, QUANT_Q3_K},
    {C_FFN_DOWN, M_IQ3_M, IF_FIRST_8TH, QUANT_Q4_K},
    {C_FFN_DOWN, M_IQ3_M, IF_EXPERTS_8 | IF_MORE_BITS, QUANT_Q4_K},
    {C_FFN_DOWN, M_Q3_K_M, IF_FIRST_16TH, QUANT_Q5_K},
    {C_FFN_DOWN, M_Q3_K_M, IF_NO_FALCON, QUANT_Q4_K},
    {C_FFN_DOWN, M_Q3_K_M, IF_MORE_BITS, QUANT_Q4_K},
    {C_FFN_DOWN, M_Q3_K_L, IF_FALCON, QUANT_Q4_K},
    {C_FFN_DOWN, M_Q3_K_L, 0, QUANT_Q5_K},
    {C_FFN_DOWN, M_Q4_K_M, IF_FALCON | IF_FIRST_16TH, QUANT_Q6_K},
    {C_FFN_DOWN, M_Q4_K_M, IF_FALCON | IF_MORE_BITS, QUANT_Q5_K},
    {C_FFN_DOWN, M_Q4_K_M | M_Q5_K_M, IF_MORE_BITS, QUANT_Q6_K},
    {C_FFN_DOWN, M_Q4_K_S, IF_NO_FALCON | IF_FIRST_8TH, QUANT_Q5_K},
    {C_FFN_DOWN, M_IQ4_NL | M_IQ4_XS, IF_FIRST_8TH | IF_NO_IMPORTANCE, QUANT_Q5_K},
    {C_FFN_DOWN, M_Q4_0, IF_FIRST_8TH | IF_IMPORTANCE, QUANT_Q4_1},
    {C_FFN_DOWN, M_Q5_0, IF_FIRST_8TH | IF_IMPORTANCE, QUANT_Q5_1},
    {C_FFN_IN, M_IQ3_XS, IF_MIDDLE, QUANT_IQ3_XXS},
};

/* Replacements of types whose blocks do not divide a row. */
static const struct {
    quant_type type, instead;
} fallbacks[] = {
    {QUANT_Q2_K, QUANT_IQ4_NL},   {QUANT_Q3_K, QUANT_IQ4_NL},  {QUANT_IQ4_XS, QUANT_IQ4_NL},
    {QUANT_IQ1_S, QUANT_IQ4_NL},  {QUANT_IQ1_M, QUANT_IQ4_NL}, {QUANT_IQ2_XXS, QUANT_IQ4_NL},
    {QUANT_IQ2_XS, QUANT_IQ4_NL}, {QUANT_IQ2_S, QUANT_IQ4_NL}, {QUANT_IQ3_XXS, QUANT_IQ4_NL},
    {QUANT_IQ3_S, QUANT_IQ4_NL},  {QUANT_TQ1_0, QUANT_Q4_0},   {QUANT_TQ2_0, QUANT_Q4_0},
    {QUANT_Q1_0, QUANT_Q4_0},     {QUANT_Q2_0, QUANT_Q4_0},    {QUANT_Q4_K, QUANT_Q5_0},
    {QUANT_Q5_K, QUANT_Q5_1},     {QUANT_Q6_K, QUANT_Q8_0},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- names of mixes and types ---------------------------------------------------------------- */

const quant_mix *quant_mix_find(const char *name) {
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (ascii_same(name, aliases[i].name)) return quant_mix_find(aliases[i].mix);
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    bool is_number = name[0] >= '0' && name[0] <= '9' && *end == 0;
    for (size_t i = 0; i < COUNT(mixes); i++) {
        if (ascii_same(name, mixes[i].name)) return &mixes[i];
        if (is_number && !mixes[i].copy && mixes[i].file_type == number) return &mixes[i];
    }
    return NULL;
}

/* Compares letters and digits, ignoring case. */
static bool same_letters(const char *a, const char *b) {
    for (;;) {
        while (*a && !isalnum((unsigned char)*a)) a++;
        while (*b && !isalnum((unsigned char)*b)) b++;
        if (toupper((unsigned char)*a) != toupper((unsigned char)*b)) return false;
        if (!*a) return true;
        a++;
        b++;
    }
}

const quant_mix *quant_mix_guess(const char *name) {
    for (size_t i = 0; i < COUNT(mixes); i++)
        if (same_letters(name, mixes[i].name)) return &mixes[i];
    return NULL;
}

static void append(char *buf, size_t n_buf, size_t *used, const char *name) {
    int n = snprintf(buf + *used, n_buf - *used, "%s%s", *used ? ", " : "", name);
    if (n > 0 && (size_t)n < n_buf - *used) *used += (size_t)n;
}

void quant_mix_list(char *buf, size_t n_buf) {
    size_t used = 0;
    buf[0] = 0;
    for (size_t i = 0; i < COUNT(mixes); i++) append(buf, n_buf, &used, mixes[i].name);
}

pi_status quant_mix_find_type(const char *name, const char *where, quant_type *out, pi_error *err) {
    const quant_traits *traits = quant_find_name(name);
    if (traits && traits->quantize) {
        *out = traits->type;
        return PI_OK;
    }
    char known[512];
    size_t used = 0;
    for (uint32_t i = 0; i < QUANT_TYPE_COUNT; i++) {
        const quant_traits *row = quant_find(i);
        if (row && row->quantize) append(known, sizeof known, &used, row->name);
    }
    return error_set(err, PI_ERR_ARG, "unknown type '%.40s': %s: choose one of %s", name, where,
                     known);
}

/* ---- facts about a model --------------------------------------------------------------------- */

typedef struct model_facts {
    uint64_t n_layer, n_gqa, n_expert;
    uint64_t n_attn_v; /* tensors of class C_ATTN_V */
    bool is_falcon, is_70b, tied;
} model_facts;

static const gguf_value *find_arch_key(const gguf_file *f, gguf_string arch, const char *suffix) {
    char key[256];
    if (arch.n_bytes > 128) return NULL;
    snprintf(key, sizeof key, "%.*s.%s", (int)arch.n_bytes, arch.data, suffix);
    return gguf_find(f, key);
}

/* Reads a number, or the first item of a per-layer array. */
static uint64_t arch_number(const gguf_file *f, gguf_string arch, const char *suffix,
                            uint64_t otherwise) {
    uint64_t n;
    const gguf_value *v = find_arch_key(f, arch, suffix);
    if (!v) return otherwise;
    if (v->type == GGUF_ARRAY) return v->count > 0 && gguf_item_u64(v, 0, &n) ? n : otherwise;
    return gguf_as_u64(v, &n) ? n : otherwise;
}

/* Returns the layer of "blk.7.attn_v.weight"; -1: the name has another form. */
static int64_t layer_of(const char *name) {
    const char *at = strstr(name, "blk.");
    if (!at || at[4] < '0' || at[4] > '9') return -1;
    char *end;
    unsigned long layer = strtoul(at + 4, &end, 10);
    return *end == '.' && layer < INT32_MAX ? (int64_t)layer : -1;
}

static bool name_matches(name_match match, const char *text, const char *name) {
    return match == NAME_IS ? strcmp(name, text) == 0 : strstr(name, text) != NULL;
}

static unsigned class_of(const char *name) {
    for (size_t i = 0; i < COUNT(classes); i++)
        if (name_matches(classes[i].match, classes[i].text, name)) return classes[i].class;
    return C_OTHER;
}

bool quant_mix_wants_importance(quant_type type, const char *tensor) {
    static const quant_type types[] = {QUANT_IQ1_S,  QUANT_IQ1_M, QUANT_IQ2_XXS,
                                       QUANT_IQ2_XS, QUANT_IQ2_S, QUANT_IQ3_XXS};
    if (class_of(tensor) & (C_OUTPUT | C_EMBEDDING)) return false;
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i] == type) return true;
    return false;
}

static model_facts learn_facts(const gguf_file *f) {
    enum { LAYERS_OF_70B = 80 };
    gguf_string arch = {.data = "", .n_bytes = 0};
    const gguf_value *v = gguf_find(f, "general.architecture");
    if (v) gguf_as_string(v, &arch);
    model_facts facts = {.tied = true, .is_falcon = gguf_string_is(arch, "falcon")};
    uint64_t highest = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const char *name = gguf_tensor_at(f, i)->name;
        unsigned class = class_of(name);
        int64_t layer = layer_of(name);
        facts.n_attn_v += class == C_ATTN_V;
        if (class == C_OUTPUT) facts.tied = false;
        if (layer >= 0 && (uint64_t)layer + 1 > highest) highest = (uint64_t)layer + 1;
    }
    facts.n_layer = arch_number(f, arch, "block_count", highest);
    facts.n_expert = arch_number(f, arch, "expert_count", 0);
    uint64_t n_head = arch_number(f, arch, "attention.head_count", 0);
    uint64_t n_head_kv = arch_number(f, arch, "attention.head_count_kv", n_head);
    facts.n_gqa = n_head_kv > 0 ? n_head / n_head_kv : 0;
    facts.is_70b = facts.n_layer == LAYERS_OF_70B && n_head != n_head_kv &&
                   (gguf_string_is(arch, "llama") || gguf_string_is(arch, "qwen2"));
    return facts;
}

/* ---- choice of types ------------------------------------------------------------------------- */

/* Number of dimensions without trailing ones, as ggml counts them. */
static int true_dims(const gguf_tensor *t) {
    int n = GGUF_MAX_DIMS;
    while (n > 1 && t->dims[n - 1] == 1) n--;
    return n;
}

/* Whether this is a matrix whose type may change. */
static bool may_change(const gguf_tensor *t, const quant_mix_request *r) {
    if (r->mix->copy || true_dims(t) < 2 || !ends_with(t->name, "weight")) return false;
    if (!quant_find((uint32_t)t->type)->dequantize) return false;
    if (r->leave_output && strcmp(t->name, "output.weight") == 0) return false;
    for (size_t i = 0; i < COUNT(kept); i++)
        if (name_matches(kept[i].match, kept[i].text, t->name)) return false;
    return true;
}

static unsigned conditions_of(const gguf_tensor *t, const quant_mix_request *r,
                              const model_facts *facts, uint64_t i, uint64_t n) {
    size_t row_bytes;
    unsigned c = 0;
    c |= facts->n_gqa >= 4 ? IF_GQA_4 : 0;
    c |= i < 2 ? IF_BEFORE_2 : 0;
    c |= i < 4 ? IF_BEFORE_4 : 0;
    c |= i < n / 16 ? IF_FIRST_16TH : 0;
    c |= i < n / 8 ? IF_FIRST_8TH : 0;
    c |= i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2 ? IF_MORE_BITS : 0;
    c |= facts->n_expert == 8 ? IF_EXPERTS_8 : IF_EXPERTS_N;
    c |= facts->is_falcon ? IF_FALCON : IF_NO_FALCON;
    c |= r->has_importance ? IF_IMPORTANCE : IF_NO_IMPORTANCE;
    c |= facts->is_70b ? IF_70B : 0;
    c |= quant_row_bytes(r->mix->base, t->dims[0], &row_bytes) ? 0 : IF_ODD_ROWS;
    c |= t->dims[2] > 1 ? IF_EXPERT_STACK : 0;
    c |= facts->n_expert >= 4 ? IF_EXPERTS_4 : 0;
    c |= i >= n / 8 && i < 7 * n / 8 ? IF_MIDDLE : 0;
    return c;
}

static quant_type by_rules(const gguf_tensor *t, unsigned class, const quant_mix_request *r,
                           const model_facts *facts, uint64_t i) {
    if (!quant_find((uint32_t)r->mix->base)->is_quantized) return r->mix->base;
    if (class == C_EMBEDDING && facts->tied) class = C_OUTPUT;
    uint64_t n = class == C_ATTN_V ? facts->n_attn_v : facts->n_layer;
    /* a layer with experts may have several such tensors, or none; gate and up are two tensors */
    if (((class == C_FFN_DOWN && facts->n_expert > 1) || class == C_FFN_IN) &&
        layer_of(t->name) >= 0)
        i = (uint64_t)layer_of(t->name);
    unsigned conditions = conditions_of(t, r, facts, i, n);
    uint64_t mix = UINT64_C(1) << (r->mix - mixes);
    for (size_t k = 0; k < COUNT(rules); k++)
        if ((rules[k].classes & class) && (rules[k].mixes & mix) &&
            (rules[k].conditions & ~conditions) == 0)
            return rules[k].type;
    return r->mix->base;
}

/* A pattern with wildcards must match the whole name; any other pattern must be a substring. */
static bool pattern_matches(const char *pattern, const char *name) {
    if (strpbrk(pattern, "*?[")) return os_pattern_matches(pattern, name);
    return strstr(name, pattern) != NULL;
}

static pi_status choose_one(const gguf_tensor *t, const quant_mix_request *r,
                            const model_facts *facts, uint64_t i, quant_mix_choice *out,
                            pi_error *err) {
    unsigned class = class_of(t->name);
    bool chosen = true;
    quant_type type = r->mix->base;
    if (r->has_embedding_type && class == C_EMBEDDING)
        type = r->embedding_type;
    else if (r->has_output_type && (class == C_OUTPUT || (class == C_EMBEDDING && facts->tied)))
        type = r->output_type;
    else
        chosen = false;
    for (size_t k = 0; k < r->n_overrides && !chosen; k++) {
        if (!pattern_matches(r->overrides[k].pattern, t->name)) continue;
        pi_status status = quant_mix_find_type(r->overrides[k].type, "type of tensors", &type, err);
        if (status != PI_OK) return status;
        chosen = true;
    }
    if (!chosen && !r->pure) type = by_rules(t, class, r, facts, i);
    size_t row_bytes;
    *out = (quant_mix_choice){.type = type};
    for (size_t k = 0; k < COUNT(fallbacks); k++)
        if (fallbacks[k].type == type && !quant_row_bytes(type, t->dims[0], &row_bytes))
            out->type = fallbacks[k].instead;
    if (!quant_row_bytes(out->type, t->dims[0], &row_bytes)) out->type = QUANT_F16;
    out->fallback = out->type != type;
    return PI_OK;
}

/* Position of a tensor within its class: by layer, then by name. */
typedef struct tensor_place {
    int64_t layer;
    const char *name;
    uint64_t number; /* number in the file */
} tensor_place;

static int compare_places(const void *a, const void *b) {
    const tensor_place *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return strcmp(x->name, y->name);
}

pi_status quant_mix_choose(const gguf_file *f, const quant_mix_request *r,
                           quant_mix_choice *choices, pi_error *err) {
    uint64_t n = gguf_n_tensors(f), n_v = 0, n_down = 0;
    model_facts facts = learn_facts(f);
    tensor_place *places = mem_calloc(n, sizeof *places);
    if (!places) return error_nomem(err, n * sizeof *places, "order of tensors");
    for (uint64_t i = 0; i < n; i++) {
        const char *name = gguf_tensor_at(f, i)->name;
        places[i] = (tensor_place){.layer = layer_of(name), .name = name, .number = i};
    }
    qsort(places, n, sizeof *places, compare_places);
    pi_status status = PI_OK;
    for (uint64_t k = 0; k < n && status == PI_OK; k++) {
        const gguf_tensor *t = gguf_tensor_at(f, places[k].number);
        quant_mix_choice *choice = &choices[places[k].number];
        *choice = (quant_mix_choice){.type = t->type};
        if (!may_change(t, r)) continue;
        unsigned class = class_of(t->name);
        uint64_t i = class == C_ATTN_V ? n_v++ : class == C_FFN_DOWN ? n_down++ : 0;
        status = choose_one(t, r, &facts, i, choice, err);
    }
    mem_free(places);
    return status;
}
