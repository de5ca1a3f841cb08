/* convert_match.c: matches the architecture's table with the weights of a folder. Every tensor of
 * the table is searched under the names in the family's row, checked, and added to the plan. A
 * remaining tensor is an error: the model computes something that the table does not describe, so
 * the converted model would be different. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "affix.h"
#include "convert_tensors.h"
#include "mem.h"
#include "model_scale.h"

enum { HF_NAME_MAX = 256 };

typedef struct matcher {
    hf_config *config;
    const safetensors *weights;
    quant_type type;
    const notifier *notifier;
    const convert_lora *adapter;  /* adapter with pairs for some of the matrices; NULL: a model */
    bool *taken;                  /* [safetensors_count] */
    bool found[ROLE_COUNT];       /* roles found in the current layer */
    bool told_fallback, told_fp4; /* printed the message about tensors that keep another type */
    convert_plan *plan;
    pi_error *err;
} matcher;

/* ---- names ----------------------------------------------------------------------------------- */

/* Tensors that one pattern names: the items of a stack, letters, or 1. */
static size_t count_sources(const char *pattern, uint64_t n_stack) {
    const char *letters = strstr(pattern, "%[");
    if (letters) return strcspn(letters + 2, "]");
    return strstr(pattern, "%e") ? (size_t)n_stack : 1;
}

static void append_text(char out[HF_NAME_MAX], const char *text, size_t n) {
    size_t used = strlen(out);
    if (n >= HF_NAME_MAX - used) n = HF_NAME_MAX - used - 1;
    memcpy(out + used, text, n);
    out[used + n] = 0;
}

/* Expands "model.layers.%d.x.%e.y" with the numbers; the pattern comes from the converter's
 * tables. */
static void hf_name(char out[HF_NAME_MAX], const char *pattern, int layer, uint64_t item) {
    out[0] = 0;
    for (const char *at = pattern; *at;) {
        size_t n = strcspn(at, "%");
        append_text(out, at, n);
        at += n;
        if (!*at) break;
        if (at[1] == '[') { /* one of the letters */
            append_text(out, at + 2 + item, 1);
            at += strcspn(at, "]") + 1;
            continue;
        }
        char number[24];
        snprintf(number, sizeof number, "%llu",
                 at[1] == 'd' ? (unsigned long long)layer : (unsigned long long)item);
        append_text(out, number, strlen(number));
        at += 2;
    }
}

/* Checkpoints saved from the bare network lack the prefix "model."; text parts of multimodal models
 * have an additional prefix. */
static size_t find_source(const matcher *m, const char *name) {
    static const char prefix[] = "model.";
    /* possible prefixes instead of "model.": none, or the prefixes of multimodal models */
    static const char *const inside[] = {"", "language_model.model.", "model.language_model.",
                                         "backbone."};
    bool whole = !starts_with(name, prefix);
    const char *bare = whole ? name : name + sizeof prefix - 1;
    const char *outer = m->adapter ? "base_model.model." : ""; /* prefix in PEFT's files */
    char other[HF_NAME_MAX + 64];
    snprintf(other, sizeof other, "%s%s", outer, name);
    size_t at = safetensors_find(m->weights, other);
    for (size_t i = 0; i < (whole ? 1 : 4) && at == SIZE_MAX; i++) {
        snprintf(other, sizeof other, "%s%s%s", outer, inside[i], bare);
        at = safetensors_find(m->weights, other);
    }
    if (at != SIZE_MAX || !whole) return at;
    snprintf(other, sizeof other, "%slanguage_model.%s", outer, name);
    return safetensors_find(m->weights, other);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static size_t shape_text(char *out, size_t n_out, const uint64_t *dims, int n) {
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < n && used < n_out; i++)
        used += (size_t)snprintf(out + used, n_out - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)dims[i]);
    return used;
}

/* Drops dimensions of size 1, which carry no information. */
static int squeeze(const uint64_t *dims, int n, uint64_t out[SAFETENSORS_MAX_DIMS]) {
    int n_out = 0;
    for (int i = 0; i < n; i++)
        if (dims[i] != 1) out[n_out++] = dims[i];
    return n_out;
}

static pi_status check_shape(const safetensor *s, const uint64_t *want, int n_want, pi_error *err) {
    uint64_t a[SAFETENSORS_MAX_DIMS], b[SAFETENSORS_MAX_DIMS];
    int n_a = squeeze(s->dims, s->n_dims, a), n_b = squeeze(want, n_want, b);
    bool same = n_a == n_b;
    for (int i = 0; i < n_a && same; i++) same = a[i] == b[i];
    if (same) return PI_OK;
    char is[160], expected[128];
    shape_text(is, sizeof is, s->dims, s->n_dims);
    shape_text(expected, sizeof expected, want, n_want);
    return error_set(err, PI_ERR_FORMAT,
                     "unexpected shape: %s: tensor %.100s is [%s], config.json needs [%s]", s->file,
                     s->name, is, expected);
}

/* Checks a source with the whole stack, or with one item. */
static pi_status check_source(const convert_tensor *t, const safetensor *s, pi_error *err) {
    uint64_t want[4];
    int n = 0;
    bool fp8 = s->dtype == SAFETENSORS_F8_E4M3 || s->dtype == SAFETENSORS_F8_E5M2;
    bool plain = s->dtype == SAFETENSORS_F32 || s->dtype == SAFETENSORS_F16 ||
                 s->dtype == SAFETENSORS_BF16 || (fp8 && t->form == HF_PLAIN && !t->vector);
    bool fp4 = t->form == HF_MXFP4 || t->form == HF_NVFP4;
    if (fp4 ? s->dtype != SAFETENSORS_U8 : !plain)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "data type %s: %s: tensor %.100s: F32, F16, BF16, FP8 with scales, "
                         "MXFP4 and NVFP4 can be converted",
                         safetensors_dtype_name(s->dtype), s->file, s->name);
    if (t->n_stack > 1 && t->n_sources == 1 && !t->head_rows) want[n++] = t->n_stack;
    if (t->form == HF_TRANSPOSED) want[n++] = t->n_in;
    want[n++] = t->source_rows;
    if (t->form == HF_PLAIN && !t->vector) want[n++] = t->source_in;
    if (t->form == HF_NVFP4) want[n++] = t->n_in / 2;
    if (t->vector && s->n_dims == 1 && n > 1) { /* vectors are concatenated to one */
        want[0] *= want[1];
        n = 1;
    }
    if (t->vector && t->n_stack == 1 && s->n_dims == 2) { /* a row per head */
        want[0] = s->dims[0];
        want[n++] = t->source_rows / (s->dims[0] ? s->dims[0] : 1);
    }
    if (t->form == HF_MXFP4) {
        want[n++] = t->n_in / mxfp4_elems;
        want[n++] = mxfp4_elems / 2;
    }
    return check_shape(s, want, n, err);
}

/* ---- scales ---------------------------------------------------------------------------------- */

static uint64_t ceil_div(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

static pi_status check_scales(const matcher *m, const convert_tensor *t, convert_source *source) {
    const safetensor *s = source->scales;
    uint64_t items = t->n_sources == 1 && !t->head_rows ? t->n_stack : 1, n = 1;
    for (int i = 0; i < s->n_dims; i++) n *= s->dims[i];
    const int32_t *block = m->config->fp8_block;
    uint64_t high = ceil_div(t->source_rows, (uint64_t)block[0]);
    uint64_t wide = ceil_div(t->source_in, (uint64_t)block[1]);
    bool blocks = s->n_dims == source->data->n_dims && s->n_dims >= 2 &&
                  s->dims[s->n_dims - 2] == high && s->dims[s->n_dims - 1] == wide &&
                  n == items * high * wide;
    bool types = s->dtype == SAFETENSORS_F32 || s->dtype == SAFETENSORS_BF16 ||
                 s->dtype == SAFETENSORS_F16;
    if (types && n == items) {
        source->scaling = SCALING_ONE;
    } else if (types && blocks) {
        source->scaling = SCALING_BLOCKS;
    } else if (types && n == items * t->source_rows && s->n_dims >= 1) {
        source->scaling = SCALING_ROWS;
    } else {
        char is[160];
        shape_text(is, sizeof is, s->dims, s->n_dims);
        return error_set(m->err, PI_ERR_FORMAT,
                         "scales of the wrong shape or type: %s: tensor %.100s is %s [%s], its "
                         "weights need one scale, %llu (one a row) or [%llu, %llu] (blocks of %d x "
                         "%d)",
                         s->file, s->name, safetensors_dtype_name(s->dtype), is,
                         (unsigned long long)t->source_rows, (unsigned long long)high,
                         (unsigned long long)wide, block[0], block[1]);
    }
    return PI_OK;
}

static bool has_tensor(const matcher *m, const char *name, const char *ending) {
    char other[HF_NAME_MAX + 24];
    snprintf(other, sizeof other, "%s%s", name, ending);
    return find_source(m, other) != SIZE_MAX;
}

static pi_status take_scale(matcher *m, const char *name, const char *ending,
                            const safetensor **out) {
    char other[HF_NAME_MAX + 24];
    snprintf(other, sizeof other, "%s%s", name, ending);
    size_t at = find_source(m, other);
    if (at == SIZE_MAX) return error_set(m->err, PI_ERR_FORMAT, "missing tensor: %s", other);
    m->taken[at] = true;
    *out = safetensors_at(m->weights, at);
    return PI_OK;
}

static pi_status find_nvfp4_scales(matcher *m, const convert_tensor *t, const char *name,
                                   convert_source *source) {
    uint64_t items = t->n_sources == 1 ? t->n_stack : 1, n = 1, want[3];
    int n_want = 0;
    source->divides = has_tensor(m, name, "_global_scale");
    pi_status status = take_scale(m, name, "_scale", &source->scales);
    if (status == PI_OK)
        status = take_scale(m, name, source->divides ? "_global_scale" : "_scale_2",
                            &source->global);
    if (status != PI_OK) return status;
    const safetensor *g = source->global;
    for (int i = 0; i < g->n_dims; i++) n *= g->dims[i];
    if (source->scales->dtype != SAFETENSORS_F8_E4M3 || g->dtype != SAFETENSORS_F32 || n != items)
        return error_set(
            m->err, PI_ERR_FORMAT,
            "scales of the wrong shape or type: %s: tensor %.100s: NVFP4 needs F8_E4M3 "
            "scales, and %llu number%s F32",
            source->data->file, source->data->name, (unsigned long long)items,
            items == 1 ? "" : "s");
    if (items > 1) want[n_want++] = items;
    want[n_want++] = t->source_rows;
    want[n_want++] = t->n_in / nvfp4_sub;
    return check_shape(source->scales, want, n_want, m->err);
}

/* Finds the scales: weights of 8 bits have NAME_scale_inv (which multiplies, despite its name) or
 * NAME_scale; MXFP4 has NAME_scales. */
static pi_status find_scales(matcher *m, const convert_tensor *t, const char *name,
                             convert_source *source) {
    static const char *const endings[] = {"_scale_inv", "_scale"};
    const safetensor *s = source->data;
    bool mxfp4 = t->form == HF_MXFP4;
    if (t->form == HF_NVFP4) return find_nvfp4_scales(m, t, name, source);
    if (!mxfp4 && s->dtype != SAFETENSORS_F8_E4M3 && s->dtype != SAFETENSORS_F8_E5M2) return PI_OK;
    size_t at = SIZE_MAX;
    char other[HF_NAME_MAX + 16];
    for (size_t i = 0; i < 2 && at == SIZE_MAX; i++) {
        snprintf(other, sizeof other, "%s%s", name, mxfp4 ? "_scales" : endings[i]);
        at = find_source(m, other);
    }
    const char *shard = strstr(name, ".shard_"); /* of a table: one scale for all */
    if (at == SIZE_MAX && shard) {
        snprintf(other, sizeof other, "%.*s.weight_scale", (int)(shard - name), name);
        at = find_source(m, other);
    }
    if (at == SIZE_MAX)
        return error_set(m->err, PI_ERR_FORMAT,
                         "missing tensor: %s: tensor %.100s has no scales (%s)", s->file, s->name,
                         other);
    m->taken[at] = true;
    source->scales = safetensors_at(m->weights, at);
    if (!mxfp4) return check_scales(m, t, source);
    uint64_t want[3] = {t->n_stack, t->source_rows, t->n_in / mxfp4_elems};
    if (source->scales->dtype != SAFETENSORS_U8)
        return error_set(m->err, PI_ERR_FORMAT,
                         "scales of the wrong shape or type: %s: tensor %.100s is %s, not U8",
                         source->scales->file, source->scales->name,
                         safetensors_dtype_name(source->scales->dtype));
    return check_shape(source->scales, want, 3, m->err);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* Within a head, rows of Q and K, their biases and norms are reordered if the architecture rotates
 * neighbouring elements: Hugging Face rotates halves. */
static bool is_rotated(tensor_role role) {
    return role == ROLE_ATTN_Q || role == ROLE_ATTN_K || role == ROLE_ATTN_Q_BIAS ||
           role == ROLE_ATTN_K_BIAS || role == ROLE_ATTN_Q_NORM || role == ROLE_ATTN_K_NORM;
}

static bool is_norm(tensor_role role) {
    return role == ROLE_ATTN_NORM || role == ROLE_ATTN_NORM_2 || role == ROLE_ATTN_Q_NORM ||
           role == ROLE_ATTN_K_NORM || role == ROLE_ATTN_POST_NORM || role == ROLE_FFN_NORM ||
           role == ROLE_FFN_POST_NORM || role == ROLE_OUTPUT_NORM || role == ROLE_INDEX_Q_NORM ||
           role == ROLE_INDEX_K_NORM ||
           (role >= ROLE_NGRAM_KEY_NORM && role <= ROLE_NGRAM_CONV_NORM) ||
           role == ROLE_HYPER_ATTN_NORM || role == ROLE_HYPER_FFN_NORM ||
           role == ROLE_HYPER_HEAD_NORM;
}

/* Quantized rows must consist of whole blocks; other rows fall back to F16. Routers and tables of
 * positions and token types are small and keep their type, as in other programs' files. */
static quant_type choose_type(matcher *m, const convert_tensor *t, const arch_tensor *row) {
    bool nvfp4 = t->form == HF_NVFP4 && t->n_in % nvfp4_elems == 0 &&
                 t->role != ROLE_SSM_IN && /* its rows may have multipliers */
                 model_reads_scale(m->config->arch, row);
    if (t->vector || t->role == ROLE_ROUTER || t->role == ROLE_STREAM_ROUTER ||
        t->role == ROLE_POS_EMBD || t->role == ROLE_TOKEN_TYPES)
        return QUANT_F32;
    if (t->form == HF_MXFP4 || nvfp4) {
        if (!m->told_fp4)
            notify(m->notifier, "%s and others stay %s, as the folder has them", t->name,
                   nvfp4 ? "NVFP4" : "MXFP4");
        m->told_fp4 = true;
        return nvfp4 ? QUANT_NVFP4 : QUANT_MXFP4;
    }
    size_t n_bytes;
    if (quant_row_bytes(m->type, t->dims[0], &n_bytes)) return m->type;
    if (!m->told_fallback)
        notify(m->notifier,
               "%s and others keep F16: rows of %llu are not a multiple of %d, the block of %s",
               t->name, (unsigned long long)t->dims[0], quant_find(m->type)->block_elems,
               quant_find(m->type)->name);
    m->told_fallback = true;
    return QUANT_F16;
}

static pi_status append(matcher *m, const convert_tensor *t) {
    convert_plan *p = m->plan;
    if (!mem_grow((void **)&p->tensors, &p->capacity, p->n_tensors + 1, sizeof *p->tensors,
                  GGUF_MAX_TENSORS))
        return error_nomem(m->err, (p->n_tensors + 1) * sizeof *p->tensors, "list of tensors");
    size_t row_bytes;
    bool fits = quant_row_bytes(t->type, t->dims[0], &row_bytes);
    assert(fits);
    (void)fits;
    p->n_bytes += row_bytes * t->dims[1] * t->dims[2];
    p->tensors[p->n_tensors++] = *t;
    return PI_OK;
}

static pi_status add_source(matcher *m, const convert_tensor *t, size_t at, const char *name) {
    convert_plan *p = m->plan;
    convert_source source = {.data = safetensors_at(m->weights, at)};
    m->taken[at] = true;
    pi_status status = check_source(t, source.data, m->err);
    if (status == PI_OK) status = find_scales(m, t, name, &source);
    if (status != PI_OK) return status;
    if (!mem_grow((void **)&p->sources, &p->sources_capacity, p->n_sources + 1, sizeof *p->sources,
                  SAFETENSORS_MAX_TENSORS))
        return error_nomem(m->err, (p->n_sources + 1) * sizeof *p->sources, "list of tensors");
    p->sources[p->n_sources++] = source;
    return PI_OK;
}

/* Returns the number of rows of the source matrix from which the tensor's rows are selected. */
static uint64_t source_rows(const matcher *m, const convert_tensor *t) {
    const hf_recurrent *s = &m->config->recurrent;
    switch (t->rows) {
    case HF_FIRST_HALF:
    case HF_SECOND_HALF:
    case HF_EVEN:
    case HF_ODD:
        return 2 * t->n_rows;
    case HF_GROUPED_Q:
    case HF_GROUPED_K:
    case HF_GROUPED_V:
    case HF_GROUPED_QKV:
        return t->n_q + 2 * t->n_kv;
    case HF_FIRST_ROWS:
    case HF_LAST_ROWS: /* of an indexer: queries, then a key */
        return (uint64_t)(m->config->n_index_head + 1) * (uint64_t)m->config->index_dim;
    case HF_DELTA_QKV:
    case HF_DELTA_GATE:
        return (uint64_t)s->n_conv + (uint64_t)s->n_inner;
    default: /* image and audio tokens may have no per-layer embeddings */
        if (t->role == ROLE_POS_EMBD) return t->n_rows + t->first_row;
        return t->role == ROLE_LAYER_EMBD && m->config->n_vocab_layer > 0
                   ? (uint64_t)m->config->n_vocab_layer
                   : t->n_rows;
    }
}

/* A size that only the folder's tensor tells; NULL: there is none. dim: 0: of rows, 1: their
 * number. */
static uint64_t open_size(const hf_tensor *source, const safetensor *s, int dim) {
    const size_t n_letters = count_sources(source->name, 1);
    if (!s || n_letters > 1) return s ? n_letters : 0;
    const int at = s->n_dims - 1 - (dim ^ (source->form == HF_TRANSPOSED));
    return at >= 0 && s->dims[at] <= MODEL_MAX_DIM ? s->dims[at] : 0;
}

/* Number of tensors that the pattern names. */
static uint64_t count_pieces(const matcher *m, const char *pattern, int layer) {
    char name[HF_NAME_MAX];
    uint64_t n = 0;
    if (!strstr(pattern, "%e")) return 1;
    for (; n < MODEL_MAX_DIM; n++) {
        hf_name(name, pattern, layer, n);
        if (find_source(m, name) == SIZE_MAX) break;
    }
    return n;
}

/* Returns the shape of a tensor of the table with the sizes of config.json, and of s. */
static convert_tensor shape_tensor(const matcher *m, const arch_tensor *row, int layer,
                                   const hf_tensor *source, const safetensor *s) {
    const hf_config *c = m->config;
    convert_tensor t = {.role = row->role, .rows = source->rows, .form = source->form};
    arch_tensor_name(row, layer, t.name);
    for (int i = 0; i < 3; i++) {
        t.dims[i] = row->dims[i] == DIM_OPEN ? open_size(source, s, i)
                                             : hf_config_dim(c, layer, row->dims[i]);
        if (row->dims[i] == DIM_OPEN) m->config->ranks[row->role] = (int32_t)t.dims[i];
        if (row->dims[i] != DIM_NONE) t.n_dims = i + 1;
    }
    t.vector = row->flags & TENSOR_F32;
    t.n_stack = t.vector ? t.dims[1] * t.dims[2] : t.dims[2];
    t.n_rows = t.vector ? t.dims[0] : t.dims[1];
    t.n_in = t.vector ? 1 : t.dims[0];
    t.n_q = hf_config_dim(c, layer, DIM_Q);
    t.n_kv = hf_config_dim(c, layer, DIM_KV);
    t.head_dim = (uint64_t)c->head_dim;
    t.fourth = row->flags & TENSOR_FOURTH;
    if (row->role == ROLE_NGRAM_EMBD && s) { /* in one piece, or in pieces of equal size */
        t.n_stack = count_pieces(m, source->name, layer);
        t.n_rows = s->n_dims == 2 ? s->dims[0] : 0;
        t.dims[1] = t.n_stack * t.n_rows;
    }
    if (row->role == ROLE_POS_EMBD) t.first_row = (uint64_t)c->first_position;
    t.source_rows = source_rows(m, &t);
    t.source_in = t.n_in;
    t.log = source->log;
    t.scale = c->multipliers[row->role] != 0 ? c->multipliers[row->role] : 1;
    if (c->recurrent.halve_period > 0 && (row->role == ROLE_SSM_OUT || row->role == ROLE_FFN_DOWN))
        t.scale = ldexpf(1, -(layer / c->recurrent.halve_period));
    if (t.rows == HF_HEAD_KEYS || t.rows == HF_HEAD_VALUES) {
        t.head_rows = hf_config_dim(c, layer, DIM_NOPE) + hf_config_dim(c, layer, DIM_V);
        t.source_rows = t.n_stack * t.head_rows;
        t.source_in = hf_config_dim(c, layer, DIM_LATENT);
    }
    bool halves = c->arch->rope == ROPE_INTERLEAVED && !(c->family->flags & HF_INTERLEAVED);
    if (halves && is_rotated(row->role)) t.permute = t.head_dim;
    if (c->family->flags & HF_NORMS_LESS_ONE && is_norm(row->role)) t.add = 1;
    return t;
}

/* Takes the width of shared experts from the first shared expert, a predictor's rank from its
 * layer, and the size of the output head's predictor from its single row. */
static void learn_width(matcher *m, const arch_tensor *row, const hf_tensor *source,
                        const safetensor *s) {
    if (row->dims[0] == DIM_PROFILER && s->n_dims == 2 && s->dims[1] <= INT32_MAX)
        m->config->n_profiler = (int64_t)s->dims[1];
    const bool shared = row->dims[1] == DIM_SHARED_FF && m->config->n_ff_shared == 0;
    if ((!shared && row->dims[1] != DIM_RANK) || s->n_dims < 2) return;
    uint64_t rows = s->dims[s->n_dims - 2];
    if (source->rows != HF_ALL) rows /= 2;
    if (rows < 1 || rows > MODEL_MAX_DIM) return;
    *(shared ? &m->config->n_ff_shared : &m->config->rank) = (int32_t)rows;
}

static pi_status check_rotation(const matcher *m, const convert_tensor *t, const char *name) {
    if (!t->permute || m->config->rope.n_rot == m->config->head_dim) return PI_OK;
    return error_set(m->err, PI_ERR_UNSUPPORTED,
                     "partial RoPE: tensor %.100s: partial_rotary_factor must be 1 for this model "
                     "type",
                     name);
}

/* Adds a tensor to the plan; a tensor that stays NVFP4 is followed by its global scales. */
static pi_status append_typed(matcher *m, convert_tensor *t, const arch_tensor *row) {
    t->type = choose_type(m, t, row);
    convert_tensor global = *t;
    bool stays = t->form == HF_NVFP4 && t->type == QUANT_NVFP4;
    if (stays) t->scale = 1;
    pi_status status = append(m, t);
    if (status != PI_OK || !stays) return status;
    size_t n = strlen(global.name) - strlen(".weight");
    memcpy(global.name + n, ".scale", sizeof ".scale");
    global.form = HF_NVFP4_GLOBAL;
    global.type = QUANT_F32;
    global.vector = true; /* one row of numbers, not looked up by index */
    global.n_dims = 1;
    global.dims[0] = t->n_stack;
    global.dims[1] = global.dims[2] = 1;
    return append(m, &global);
}

static pi_status check_nvfp4(const matcher *m, const convert_tensor *t, const char *name) {
    if (t->vector || t->rows == HF_TURNS_COLUMNS || t->head_rows)
        return error_set(m->err, PI_ERR_UNSUPPORTED,
                         "cannot be converted: tensor %.100s: NVFP4 in a matrix that a GGUF file "
                         "stores in another form",
                         name);
    if (t->n_in % nvfp4_sub == 0) return PI_OK;
    return error_set(m->err, PI_ERR_FORMAT,
                     "unexpected shape: tensor %.100s: rows of %llu are not a multiple of %d", name,
                     (unsigned long long)t->n_in, nvfp4_sub);
}

/* Matches a source: the whole stack in one tensor, or one tensor per item. */
static pi_status match_source(matcher *m, const arch_tensor *row, int layer,
                              const hf_tensor *source, bool *found) {
    char pattern[HF_NAME_MAX], name[HF_NAME_MAX];
    hf_name(name, source->name, layer, 0);
    bool plain = source->form == HF_PLAIN, packed = plain && has_tensor(m, name, "_packed");
    bool nvfp4 = packed || (plain && has_tensor(m, name, "_scale_2"));
    const char *blocks = source->form == HF_MXFP4 ? "_blocks" : packed ? "_packed" : "";
    snprintf(pattern, sizeof pattern, "%s%s", source->name, blocks);
    hf_name(name, pattern, layer, 0);
    size_t at = find_source(m, name);
    *found = at != SIZE_MAX;
    if (!*found) return PI_OK;
    /* some checkpoints also store the tied head */
    if (row->role == ROLE_OUTPUT && m->config->tied == HF_TIED_YES) {
        m->taken[at] = true;
        return PI_OK;
    }
    learn_width(m, row, source, safetensors_at(m->weights, at));
    convert_tensor t = shape_tensor(m, row, layer, source, safetensors_at(m->weights, at));
    t.first_source = m->plan->n_sources;
    t.n_sources = count_sources(source->name, t.n_stack);
    if (t.form == HF_MXFP4 && t.n_in % mxfp4_elems != 0)
        return error_set(m->err, PI_ERR_FORMAT,
                         "unexpected shape: tensor %.100s: rows of %llu are not a multiple of 32",
                         name, (unsigned long long)t.n_in);
    pi_status status = check_rotation(m, &t, name);
    if (nvfp4) t.form = HF_NVFP4;
    if (status == PI_OK && nvfp4) status = check_nvfp4(m, &t, name);
    if (status != PI_OK) return status;
    for (uint64_t item = 0; item < t.n_sources; item++) {
        hf_name(name, pattern, layer, item);
        at = find_source(m, name);
        if (at == SIZE_MAX)
            return error_set(m->err, PI_ERR_FORMAT,
                             "missing tensor: %s is in no safetensors file of the folder: %llu of "
                             "them are needed",
                             name, (unsigned long long)t.n_sources);
        hf_name(name, source->name, layer, item); /* scales are stored next to the blocks */
        status = add_source(m, &t, at, name);
        if (status != PI_OK) return status;
    }
    return append_typed(m, &t, row);
}

/* Adds one matrix of a pair: `lower` [rank, n_in], or [n_out, rank]. For embeddings, whose rows are
 * looked up, `base` is transposed, and the lower matrix has a row per token. */
static pi_status add_half(matcher *m, const convert_tensor *base, bool lower, uint64_t rank,
                          const char *pattern, int layer) {
    convert_tensor t = *base;
    uint64_t n_in = lower ? base->n_in : rank;
    bool columns = base->rows == HF_TURNS_COLUMNS;
    size_t n = strlen(t.name);
    if (n + sizeof ".lora_a" > sizeof t.name)
        return error_set(m->err, PI_ERR_LIMIT, "name too long: %s.lora_a", t.name);
    memcpy(t.name + n, lower ? ".lora_a" : ".lora_b", sizeof ".lora_a");
    t.type = QUANT_F32; /* few small numbers */
    t.dims[0] = t.n_in = t.source_in = n_in;
    if (lower) {
        t.dims[1] = t.n_rows = t.source_rows = rank;
        t.role = ROLE_COUNT;
        t.permute = 0;
        t.scale = 1;
    }
    if (lower && base->role == ROLE_TOKEN_EMBD) {
        t.form = HF_TRANSPOSED;
        t.dims[0] = t.n_in = t.source_in = rank;
        t.dims[1] = t.n_rows = t.source_rows = base->n_in;
    }
    /* the upper matrix has the rows of the base matrix, the lower matrix its columns */
    if (lower != columns) t.rows = HF_ALL;
    t.first_source = m->plan->n_sources;
    for (uint64_t item = 0; item < t.n_sources; item++) {
        char name[HF_NAME_MAX];
        hf_name(name, pattern, layer, item);
        size_t at = find_source(m, name);
        if (at == SIZE_MAX)
            return error_set(m->err, PI_ERR_FORMAT, "missing tensor: base_model.model.%s", name);
        pi_status status = add_source(m, &t, at, name);
        if (status != PI_OK) return status;
    }
    return append(m, &t);
}

/* Computes the factor of B of a pair, or of the pairs of all experts. */
static pi_status pair_factor(const matcher *m, const char *pattern, int layer, uint64_t n,
                             double *factor) {
    for (uint64_t item = 0; item < n; item++) {
        char name[HF_NAME_MAX];
        double other;
        hf_name(name, pattern, layer, item);
        size_t at = find_source(m, name);
        if (at == SIZE_MAX) continue; /* add_half reports this error */
        const safetensor *b = safetensors_at(m->weights, at);
        if (b->n_dims != 2) continue;
        pi_status status = convert_lora_factor(m->adapter, b, &other, m->err);
        if (status != PI_OK) return status;
        if (item > 0 && other != *factor)
            return error_set(m->err, PI_ERR_UNSUPPORTED,
                             "cannot be converted: %s: tensor %.100s: experts of a layer need the "
                             "same alpha",
                             b->file, b->name);
        *factor = other;
    }
    return PI_OK;
}

/* Finds the first existing tensor that a pattern matches, and its name; SIZE_MAX: none. */
static size_t first_source(const matcher *m, const char *pattern, int layer, uint64_t n,
                           char name[HF_NAME_MAX]) {
    size_t at = SIZE_MAX;
    for (uint64_t item = 0; item < n && at == SIZE_MAX; item++) {
        hf_name(name, pattern, layer, item);
        at = find_source(m, name);
    }
    return at;
}

/* Matches the adapter's pair for a source of the model. */
static pi_status match_pair(matcher *m, const arch_tensor *row, int layer, const hf_tensor *source,
                            bool *found) {
    char lower[HF_NAME_MAX], upper[HF_NAME_MAX], name[HF_NAME_MAX];
    size_t n = strlen(source->name);
    bool embedding = row->role == ROLE_TOKEN_EMBD;
    if (!ends_with(source->name, ".weight")) return PI_OK;
    n -= strlen(".weight");
    const char *half = embedding ? "lora_embedding_" : "lora_", *end = embedding ? "" : ".weight";
    snprintf(lower, sizeof lower, "%.*s.%sA%s", (int)n, source->name, half, end);
    snprintf(upper, sizeof upper, "%.*s.%sB%s", (int)n, source->name, half, end);
    uint64_t n_items = count_sources(source->name, hf_config_dim(m->config, layer, row->dims[2]));
    size_t at = first_source(m, upper, layer, n_items, name);
    if (at == SIZE_MAX) return PI_OK;
    const safetensor *b = safetensors_at(m->weights, at);
    *found = true;
    bool tied = row->role == ROLE_OUTPUT && m->config->tied == HF_TIED_YES;
    bool plain = source->form == HF_PLAIN && source->rows != HF_HEAD_KEYS &&
                 source->rows != HF_HEAD_VALUES && !(row->flags & TENSOR_F32) && !tied &&
                 b->n_dims == 2 && b->dims[1] >= 1;
    if (!plain)
        return error_set(m->err, PI_ERR_UNSUPPORTED,
                         "cannot be converted: %s: tensor %.100s: an adapter of a matrix that a "
                         "GGUF file stores in another form",
                         b->file, b->name);
    learn_width(m, row, source, b);
    convert_tensor t = shape_tensor(m, row, layer, source, NULL);
    double factor = 1;
    t.n_sources = n_items;
    if (embedding) {
        t.n_in = t.dims[1]; /* tokens */
        t.n_rows = t.source_rows = t.dims[1] = t.dims[0];
    }
    pi_status status = check_rotation(m, &t, name);
    if (status == PI_OK) status = pair_factor(m, upper, layer, n_items, &factor);
    t.scale *= (float)factor;
    if (status == PI_OK) status = add_half(m, &t, true, b->dims[1], lower, layer);
    return status == PI_OK ? add_half(m, &t, false, b->dims[1], upper, layer) : status;
}

static bool has_router(const matcher *m, int layer) {
    const arch_tensor *row = arch_tensor_of(m->config->arch, ROLE_ROUTER);
    hf_tensor source;
    char name[HF_NAME_MAX];
    if (!row || m->config->experts.n <= 0) return false;
    for (int i = 0; hf_family_source(m->config->family, row, i, &source); i++) {
        hf_name(name, source.name, layer, 0);
        if (find_source(m, name) != SIZE_MAX) return true;
    }
    return false;
}

/* Whether the model needs this missing tensor. */
static bool is_needed(const matcher *m, const arch_tensor *row, int layer, bool experts) {
    tensor_role role = row->role;
    int n_own = m->config->n_layer - m->config->n_kv_shared;
    if (row->flags & TENSOR_OWN_KV && layer >= n_own) return false;
    if (row->flags & TENSOR_LAYER_EMBD && m->config->n_embd_layer == 0) return false;
    if (row->flags & TENSOR_OWN_INDEX && !m->config->index_own[layer]) return false;
    if (row->flags & TENSOR_NGRAMS && m->config->ngrams.layer != layer) return false;
    bool part_of_qkv = role == ROLE_ATTN_Q || role == ROLE_ATTN_K || role == ROLE_ATTN_V;
    if (part_of_qkv && m->found[ROLE_ATTN_QKV]) return false;
    if (role == ROLE_ATTN_Q && m->config->n_latent_q > 0) return false;
    if (role == ROLE_ATTN_Q_A || role == ROLE_ATTN_Q_A_NORM || role == ROLE_ATTN_Q_B)
        return m->config->n_latent_q > 0;
    if (role == ROLE_EXPERT_GATE || role == ROLE_EXPERT_UP || role == ROLE_EXPERT_DOWN)
        return experts;
    if (role == ROLE_SHARED_GATE || role == ROLE_SHARED_UP || role == ROLE_SHARED_DOWN)
        return experts && (m->config->experts.n_shared > 0 || m->config->n_ff_shared > 0);
    if (row->flags & (experts ? TENSOR_NO_EXPERTS : TENSOR_NO_DENSE)) return false;
    if (role == ROLE_OUTPUT) return m->config->tied == HF_TIED_NO;
    return !(row->flags & (TENSOR_OPTIONAL | TENSOR_ONES | TENSOR_UNUSED));
}

static pi_status fail_missing(const matcher *m, const char *name) {
    return error_set(m->err, PI_ERR_FORMAT,
                     "missing tensor: %s is in no safetensors file of the folder: model type and "
                     "config.json need it",
                     name);
}

/* Returns the first name under which a tensor is searched. */
static void first_name(const matcher *m, const arch_tensor *row, int layer,
                       char name[HF_NAME_MAX]) {
    hf_tensor source;
    bool known = hf_family_source(m->config->family, row, 0, &source);
    hf_name(name, known ? source.name : row->name, layer, 0);
}

static pi_status match_absent(matcher *m, const arch_tensor *row, int layer, bool experts) {
    char name[HF_NAME_MAX];
    first_name(m, row, layer, name);
    if (row->role == ROLE_OUTPUT && m->config->tied == HF_TIED_UNSAID) {
        notify(m->notifier, "no %s: the head is the embedding matrix", name);
        return PI_OK;
    }
    return is_needed(m, row, layer, experts) ? fail_missing(m, name) : PI_OK;
}

/* One tensor name is the FFN in one model and the shared expert in another (Granite). */
static bool is_shared_expert(const matcher *m, const char *name) {
    for (int role = ROLE_SHARED_GATE; role <= ROLE_SHARED_DOWN; role++) {
        const arch_tensor *row = arch_tensor_of(m->config->arch, (tensor_role)role);
        hf_tensor source;
        for (int i = 0; row && hf_family_source(m->config->family, row, i, &source); i++)
            if (strcmp(source.name, name) == 0) return true;
    }
    return false;
}

/* Matches a matrix of a predictor under its name from convert_predictors.h; checkpoints have no
 * other tensors of prepared files. */
static pi_status match_sparse(matcher *m, const arch_tensor *row, int layer) {
    bool found = false;
    if (!m->config->predictors || (row->role != ROLE_FC1 && row->role != ROLE_FC2)) return PI_OK;
    const hf_tensor source = {.role = row->role, .name = row->name};
    pi_status status = match_source(m, row, layer, &source, &found);
    if (found || status != PI_OK) return status;
    char name[HF_NAME_MAX];
    hf_name(name, row->name, layer, 0);
    return fail_missing(m, name);
}

/* With predictors, the down matrix has a row per neuron. */
static pi_status match_down(matcher *m, int layer, hf_tensor source, bool *found) {
    const arch_tensor *row = arch_tensor_of(m->config->arch, ROLE_FFN_DOWN_T);
    if (source.form == HF_PLAIN) {
        source.form = HF_TRANSPOSED;
        return match_source(m, row, layer, &source, found);
    }
    return error_set(m->err, PI_ERR_UNSUPPORTED,
                     "cannot be converted with predictors: tensor %.100s is not a plain matrix",
                     source.name);
}

static pi_status match_one(matcher *m, const arch_tensor *row, int layer, bool experts) {
    if (row->flags & TENSOR_SPARSE && !row->hf_name) return match_sparse(m, row, layer);
    if (row->flags & TENSOR_PER_LAYER && !hf_config_layer_has(m->config, layer, row->role))
        return PI_OK;
    /* the table of n-grams belongs to a layer of the folder */
    const int ngrams = m->config->ngrams.layer;
    if (row->flags & TENSOR_NGRAMS && !(row->flags & TENSOR_PER_LAYER) && ngrams >= 0)
        layer = ngrams;
    bool of_experts = row->role >= ROLE_ROUTER && row->role <= ROLE_SHARED_DOWN;
    if (of_experts && !experts) return PI_OK;
    if (!m->adapter && hf_config_has_factors(m->config, row->role)) {
        convert_tensor t = shape_tensor(m, row, layer, &(hf_tensor){.role = row->role, .name = ""},
                                        NULL);
        t.type = QUANT_F32;
        return append(m, &t);
    }
    hf_tensor source;
    bool found = false;
    pi_status status = PI_OK;
    for (int i = 0;
         !found && status == PI_OK && hf_family_source(m->config->family, row, i, &source); i++)
        if (!experts || of_experts || !is_shared_expert(m, source.name))
            status = m->adapter ? match_pair(m, row, layer, &source, &found)
                     : m->config->predictors && row->role == ROLE_FFN_DOWN
                         ? match_down(m, layer, source, &found)
                         : match_source(m, row, layer, &source, &found);
    m->found[row->role] = found;
    if (m->adapter) return status;
    return found || status != PI_OK ? status : match_absent(m, row, layer, experts);
}

/* ---- remaining tensors ----------------------------------------------------------------------- */

/* Unused tensors: tables that can be computed, which old checkpoints contain, and ranges for
 * quantized activations. */
static bool is_derived(const char *name) {
    static const char *const endings[] = {".rotary_emb.inv_freq",
                                          ".masked_bias",
                                          ".rotary_emb.cos_cached",
                                          ".rotary_emb.sin_cached",
                                          ".input_scale",
                                          ".input_global_scale",
                                          ".activation_scale",
                                          ".k_scale",
                                          ".v_scale",
                                          ".attn.bias"}; /* GPT-2: the causal mask */
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_with(name, endings[i])) return true;
    return false;
}

/* Multi-token prediction: layers after the last layer, or layers with separate names. */
static bool is_predictor(const matcher *m, const char *name) {
    if (starts_with(name, "mtp.") || starts_with(name, "model.mtp")) return true;
    int layer = -1, n_layer = m->config->n_layer;
    return sscanf(name, "model.layers.%9d.", &layer) == 1 && layer >= n_layer &&
           layer < n_layer + m->config->n_predictors;
}

/* The text part is in "language_model."; the other tensors of a multimodal model belong to other
 * modalities. */
static bool is_other_part(const matcher *m, const char *name) {
    static const char *const starts[] = {
        "vision_tower.", "vision_model.", "multi_modal_projector.", "audio_tower.", "embed_vision.",
        "embed_audio.",  "visual.",       "patch_merge_mlp."};
    if (!m->config->multimodal) return false;
    if (starts_with(name, "model.")) name += strlen("model.");
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (starts_with(name, starts[i])) return true;
    return false;
}

/* Encoders' heads for training, and the pooler: embeddings do not need them. */
static bool is_training_head(const matcher *m, const char *name) {
    if (!m->config->arch->encoder) return false;
    if (starts_with(name, "bert.")) name += strlen("bert.");
    if (starts_with(name, "roberta.")) name += strlen("roberta.");
    return starts_with(name, "cls.") || starts_with(name, "pooler.") ||
           starts_with(name, "lm_head.") || strcmp(name, "embeddings.position_ids") == 0;
}

static pi_status check_leftovers(const matcher *m) {
    size_t n_predictor = 0, n_other = 0;
    for (size_t i = 0; i < safetensors_count(m->weights); i++) {
        const safetensor *s = safetensors_at(m->weights, i);
        if (m->taken[i] || is_derived(s->name) || is_training_head(m, s->name)) continue;
        if (is_predictor(m, s->name)) {
            n_predictor++;
        } else if (is_other_part(m, s->name)) {
            n_other++;
        } else if (m->adapter && !strstr(s->name, ".lora_")) {
            return error_set(
                m->err, PI_ERR_UNSUPPORTED,
                "cannot be converted: %s: tensor %.100s is not part of a pair (a trained "
                "bias or modules_to_save); GGUF adapters have only pairs",
                s->file, s->name);
        } else {
            return error_set(m->err, PI_ERR_UNSUPPORTED,
                             "unknown tensor: %s: %.100s has no place in a model of %d layers of "
                             "architecture %s",
                             s->file, s->name, m->config->n_layer, m->config->arch->name);
        }
    }
    if (n_predictor > 0)
        notify(m->notifier, "%zu tensors of multi-token prediction are dropped", n_predictor);
    if (n_other > 0) notify(m->notifier, "%zu tensors of other modalities are dropped", n_other);
    return PI_OK;
}

/* ---- the whole model ------------------------------------------------------------------------- */

/* The numbers of xIELU are tensors of one element; a GGUF file has them in keys. */
static pi_status take_xielu(matcher *m, int layer) {
    static const struct {
        const char *name;
        float usual; /* NAN: needed */
    } numbers[HF_XIELU] = {{"alpha_n", NAN}, {"alpha_p", NAN}, {"beta", 0.5f}, {"eps", -1e-6f}};
    for (int i = 0; i < HF_XIELU; i++) {
        char name[HF_NAME_MAX];
        snprintf(name, sizeof name, "model.layers.%d.mlp.act_fn.%s", layer, numbers[i].name);
        size_t at = find_source(m, name);
        m->config->xielu[i][layer] = numbers[i].usual;
        if (at == SIZE_MAX && isnan(numbers[i].usual)) return fail_missing(m, name);
        if (at == SIZE_MAX) continue;
        const convert_tensor one = {.vector = true, .n_stack = 1, .source_rows = 1};
        const safetensor *s = safetensors_at(m->weights, at);
        pi_status status = check_source(&one, s, m->err);
        if (status != PI_OK) return status;
        m->taken[at] = true;
        m->config->xielu[i][layer] = convert_load_number(m->plan, s, 0);
    }
    return PI_OK;
}

/* The numbers of the hashes of n-grams. */
static pi_status take_hashes(matcher *m) {
    hf_ngrams *g = &m->config->ngrams;
    const struct {
        const char *name;
        int64_t *to;
        int32_t n;
    } lists[] = {{"layer_multipliers", g->multipliers, g->size},
                 {"ngram_heads_offsets", g->first, g->n_rows},
                 {"ngram_heads_vocab_sizes", g->sizes, g->n_rows}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && g->layer >= 0; i++) {
        char name[HF_NAME_MAX];
        snprintf(name, sizeof name, "model.layers.%d.ple.ple_embedding.%s", g->layer,
                 lists[i].name);
        size_t at = find_source(m, name);
        if (at == SIZE_MAX) return fail_missing(m, name);
        const safetensor *s = safetensors_at(m->weights, at);
        if (s->dtype != SAFETENSORS_I64 || s->n_dims != 1 || s->dims[0] != (uint64_t)lists[i].n)
            return error_set(m->err, PI_ERR_FORMAT,
                             "unexpected shape: %s: tensor %.100s is not %d numbers I64", s->file,
                             s->name, (int)lists[i].n);
        memcpy(lists[i].to, s->data, s->n_bytes);
        m->taken[at] = true;
    }
    return PI_OK;
}

static pi_status match_layer(matcher *m, int layer) {
    const arch_row *arch = m->config->arch;
    bool experts = m->adapter ? m->config->experts.n > 0 : has_router(m, layer);
    pi_status status = PI_OK;
    memset(m->found, 0, sizeof m->found);
    if (!experts && m->config->n_dense_first == layer) m->config->n_dense_first = layer + 1;
    for (int i = 0; i < arch->n_tensors && status == PI_OK; i++)
        if (arch->tensors[i].flags & TENSOR_PER_LAYER)
            status = match_one(m, &arch->tensors[i], layer, experts);
    if (status == PI_OK && arch->xielu && !m->adapter) status = take_xielu(m, layer);
    return status;
}

static pi_status match_all(matcher *m) {
    const arch_row *arch = m->config->arch;
    pi_status status = PI_OK;
    /* order in the file: embedding, layers, the rest */
    for (int i = 0; i < arch->n_tensors && status == PI_OK; i++)
        if (arch->tensors[i].role == ROLE_TOKEN_EMBD)
            status = match_one(m, &arch->tensors[i], 0, false);
    for (int layer = 0; layer < m->config->n_layer && status == PI_OK; layer++)
        status = match_layer(m, layer);
    if (status == PI_OK && !m->adapter && m->config->experts.n > 0 &&
        m->config->n_dense_first >= m->config->n_layer) {
        char name[HF_NAME_MAX];
        first_name(m, arch_tensor_of(arch, ROLE_ROUTER), 0, name);
        status = fail_missing(m, name);
    }
    for (int i = 0; i < arch->n_tensors && status == PI_OK; i++)
        if (!(arch->tensors[i].flags & TENSOR_PER_LAYER) &&
            arch->tensors[i].role != ROLE_TOKEN_EMBD)
            status = match_one(m, &arch->tensors[i], 0, false);
    if (status == PI_OK && !m->adapter) status = take_hashes(m);
    return status == PI_OK ? check_leftovers(m) : status;
}

static pi_status make_plan(hf_config *c, const safetensors *weights, quant_type type,
                           const convert_lora *adapter, const notifier *t, convert_plan *out,
                           pi_error *err) {
    convert_plan plan = {.weights = weights, .recurrent = c->recurrent};
    memcpy(plan.fp8_block, c->fp8_block, sizeof plan.fp8_block);
    memcpy(plan.ssm_multipliers, c->ssm_multipliers, sizeof plan.ssm_multipliers);
    convert_rows_init(&plan);
    matcher m = {.config = c,
                 .weights = weights,
                 .type = type,
                 .notifier = t,
                 .plan = &plan,
                 .err = err,
                 .adapter = adapter};
    m.taken = mem_calloc(safetensors_count(weights), sizeof *m.taken);
    if (!m.taken) return error_nomem(err, safetensors_count(weights), "bitmap of tensors");
    pi_status status = match_all(&m);
    mem_free(m.taken);
    if (status != PI_OK) convert_plan_free(&plan);
    *out = plan;
    return status;
}

pi_status convert_plan_make(hf_config *c, const safetensors *weights, quant_type type,
                            const notifier *t, convert_plan *out, pi_error *err) {
    return make_plan(c, weights, type, NULL, t, out, err);
}

pi_status convert_plan_make_adapter(hf_config *c, const safetensors *weights, const convert_lora *l,
                                    const notifier *t, convert_plan *out, pi_error *err) {
    pi_status status = make_plan(c, weights, QUANT_F32, l, t, out, err);
    if (status != PI_OK || out->n_tensors > 0) return status;
    convert_plan_free(out);
    return error_set(err, PI_ERR_FORMAT, "no adapter: the file has no pairs lora_A and lora_B");
}

void convert_plan_free(convert_plan *p) {
    mem_free(p->tensors);
    mem_free(p->sources);
    *p = (convert_plan){0};
}
