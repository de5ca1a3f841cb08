/* api_model.c: the public model: weights and tokenizer. */
#include <assert.h>
#include <string.h>

#include "api_types.h"
#include "bundle.h"
#include "file.h"
#include "mem.h"
#include "model_drafter.h"
#include "powerinfer_speculate.h"
#include "progress.h"

#define TEXT(x)          #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *pi_version(void) {
    return VERSION(PI_VERSION_MAJOR, PI_VERSION_MINOR, PI_VERSION_PATCH);
}

pi_model_options pi_model_default_options(void) {
    return (pi_model_options){0};
}

/* A NUL-terminated copy of a string key, or of `fallback`. */
static char *copy_key(const gguf_file *f, const char *key, const char *fallback) {
    gguf_string s;
    const gguf_value *v = gguf_find(f, key);
    return v && gguf_as_string(v, &s) ? mem_strndup(s.data, (size_t)s.n_bytes)
                                      : mem_strdup(fallback);
}

/* Name of the tensor type with the most bytes; the parts of a bundle count separately. m: NULL with
 * vocab_only. */
static const char *main_type(const gguf_file *f, const model *m) {
    uint64_t bytes[QUANT_TYPE_COUNT] = {0};
    quant_type best = QUANT_F32;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        bytes[t->type] += t->n_bytes;
    }
    for (int i = 0; m && i < BUNDLE_KINDS * m->hp.n_layer; i++) {
        const model_layer *l = &m->layers[i / BUNDLE_KINDS];
        bundle_kind kind = (bundle_kind)(i % BUNDLE_KINDS);
        const gguf_tensor *bundle = model_bundle(l, kind);
        if (!bundle) continue;
        bytes[bundle->type] -= bundle->n_bytes;
        for (int k = 0; k < BUNDLE_PARTS; k++) {
            tensor_role role = bundle_part_role(kind, k);
            if (role != ROLE_COUNT && l->t[role].data) bytes[l->t[role].type] += l->t[role].n_bytes;
        }
    }
    for (int type = 0; type < QUANT_TYPE_COUNT; type++)
        if (bytes[type] > bytes[best] && quant_find((uint32_t)type)->dequantize)
            best = (quant_type)type;
    return gguf_n_tensors(f) ? quant_find(best)->name : "none";
}

static gguf_override inner_override(const pi_metadata_override *o) {
    static const gguf_value_type types[] = {[PI_VALUE_INT] = GGUF_I64,
                                            [PI_VALUE_FLOAT] = GGUF_F64,
                                            [PI_VALUE_BOOL] = GGUF_BOOL,
                                            [PI_VALUE_TEXT] = GGUF_STRING};
    assert((unsigned)o->type <= PI_VALUE_TEXT && o->key && (o->type != PI_VALUE_TEXT || o->text));
    return (gguf_override){.key = o->key,
                           .type = types[o->type],
                           .integer = o->type == PI_VALUE_BOOL ? o->truth : o->integer,
                           .number = o->number,
                           .text = o->text};
}

/* *out: mem_free by the caller; NULL without overrides. */
static pi_status inner_overrides(const pi_model_options *o, gguf_override **out, pi_error *err) {
    *out = NULL;
    if (!o->n_overrides) return PI_OK;
    *out = mem_calloc(o->n_overrides, sizeof **out);
    if (!*out) return error_nomem(err, o->n_overrides * sizeof **out, "overrides");
    for (size_t i = 0; i < o->n_overrides; i++) (*out)[i] = inner_override(&o->overrides[i]);
    return PI_OK;
}

/* Opens the weights. The file then belongs to the model; after an error it is closed. */
static pi_status open_weights(pi_model *m, gguf_file *file, const pi_model_options *o,
                              pi_error *err) {
    model_adapter *adapters = mem_calloc(o->n_adapters + 1, sizeof *adapters);
    if (!adapters) {
        gguf_close(file);
        return error_nomem(err, o->n_adapters * sizeof *adapters, "adapters");
    }
    for (size_t i = 0; i < o->n_adapters; i++)
        adapters[i] = (model_adapter){o->adapters[i].path, o->adapters[i].scale};
    pi_status status = model_open_adapted(file, adapters, o->n_adapters, !o->adapters_by_context,
                                          &m->weights, err);
    if (status != PI_OK || !o->adapters_by_context) {
        mem_free(adapters);
        return status;
    }
    m->adapters = adapters;
    m->n_adapters = o->n_adapters;
    for (size_t i = 0; i < m->n_adapters; i++) {
        adapters[i].path = mem_strdup(adapters[i].path);
        if (!adapters[i].path) status = PI_ERR_NOMEM;
    }
    return status == PI_OK ? PI_OK : error_nomem(err, m->n_adapters, "adapters");
}

/* Bytes in memory, or a file where `data` is NULL. */
typedef struct model_source {
    const char *path; /* or a name for messages */
    const void *data;
    size_t n_bytes;
    const char *const *parts; /* [n_parts] as in gguf_open_options */
    int n_parts;
} model_source;

static pi_status open_memory(pi_model *m, const model_source *from, const pi_model_options *o,
                             pi_error *err) {
    file_map map = {.data = from->data, .size = from->n_bytes, .copied = true};
    progress report = {.fn = o->progress, .user = o->progress_user};
    if (o->no_mmap && from->n_bytes) {
        m->n_memory = from->n_bytes;
        m->memory = mem_map(m->n_memory);
        if (!m->memory) return error_nomem(err, m->n_memory, from->path);
        memcpy(m->memory, from->data, m->n_memory);
        map.data = m->memory;
    }
    gguf_override *overrides;
    gguf_file *file = NULL;
    pi_status status = inner_overrides(o, &overrides, err);
    if (status == PI_OK && o->mlock) status = file_map_lock(&map, &report, err);
    if (status == PI_OK) status = gguf_open_memory(map.data, map.size, from->path, &file, err);
    if (status == PI_OK) status = gguf_override_values(file, overrides, o->n_overrides, err);
    mem_free(overrides);
    if (status == PI_OK && !progress_step(&report, PROGRESS_LOADED, 1))
        status = error_set(err, PI_ERR_CANCELLED, "cancelled: %s: loading the model", from->path);
    if (status != PI_OK) {
        gguf_close(file);
        return status;
    }
    if (!o->vocab_only) return open_weights(m, file, o, err);
    m->vocab_file = file;
    return PI_OK;
}

static pi_status open_file(pi_model *m, const model_source *from, const pi_model_options *o,
                           pi_error *err) {
    progress report = {.fn = o->progress, .user = o->progress_user};
    gguf_open_options file = {.copy = o->no_mmap,
                              .lock = o->mlock,
                              .header_only = o->vocab_only,
                              .n_overrides = o->n_overrides,
                              .parts = from->parts,
                              .n_parts = from->n_parts,
                              .report = &report};
    gguf_override *overrides;
    pi_status status = inner_overrides(o, &overrides, err);
    if (status != PI_OK) return status;
    file.overrides = overrides;
    gguf_file *opened = NULL;
    status = gguf_open(from->path, &file, &opened, err);
    mem_free(overrides);
    if (status != PI_OK) return status;
    if (!o->vocab_only) return open_weights(m, opened, o, err);
    m->vocab_file = opened;
    return PI_OK;
}

/* Tokens of a vocabulary larger than the embedding table would index beyond its end. */
static pi_status check_vocab(const pi_model *m, const char *path, pi_error *err) {
    if (!m->weights || !m->text) return PI_OK;
    int32_t n_text = tokenizer_get_info(m->text)->n_vocab, n_rows = m->weights->hp.n_vocab;
    if (n_text <= n_rows) return PI_OK;
    return error_set(err, PI_ERR_FORMAT,
                     "vocabulary does not fit: %s: %d tokens, but token_embd.weight has %d rows",
                     path, n_text, n_rows);
}

static pi_status load(pi_model *m, const model_source *from, const pi_model_options *o,
                      pi_error *err) {
    pi_status status = from->data ? open_memory(m, from, o, err) : open_file(m, from, o, err);
    if (status == PI_OK && o->check_tensors && m->weights)
        status = model_check_tensors(m->weights, 0, err);
    if (status != PI_OK) return status;
    /* A model whose vocabulary is missing or unknown still runs on token ids. */
    status = tokenizer_create(api_file(m), o->pre, &m->text, &m->no_text);
    bool optional = status == PI_ERR_NOT_FOUND || status == PI_ERR_UNSUPPORTED;
    if (status != PI_OK && (o->vocab_only || !optional))
        return error_set(err, status, "%s", m->no_text.message);
    m->name = copy_key(api_file(m), "general.name", "");
    m->architecture = copy_key(api_file(m), "general.architecture", "unknown");
    m->type = mem_strdup(main_type(api_file(m), m->weights));
    if (!m->name || !m->architecture || !m->type) return error_nomem(err, 64, "names");
    return check_vocab(m, from->path, err);
}

static pi_status open_from(const model_source *from, const pi_model_options *options,
                           pi_model **out, pi_error *err) {
    pi_model_options defaults = pi_model_default_options();
    *out = NULL;
    pi_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(err, sizeof *m, "model");
    pi_status status = load(m, from, options ? options : &defaults, err);
    if (status != PI_OK) {
        pi_model_close(m);
        return status;
    }
    *out = m;
    return PI_OK;
}

pi_status pi_model_open(const char *path, const pi_model_options *options, pi_model **out,
                        pi_error *err) {
    const model_source from = {.path = path};
    return open_from(&from, options, out, err);
}

pi_status api_model_open_parts(const char *const *parts, int n_parts, const pi_model_options *o,
                               pi_model **out, pi_error *err) {
    const model_source from = {.path = parts[0], .parts = parts, .n_parts = n_parts};
    return open_from(&from, o, out, err);
}

pi_status pi_model_open_memory(const void *data, size_t n_bytes, const pi_model_options *options,
                               pi_model **out, pi_error *err) {
    enum { ALIGNMENT = 32 }; /* GGUF's default alignment, which kernels rely on */
    const model_source from = {.path = "model in memory", .data = data, .n_bytes = n_bytes};
    *out = NULL;
    if ((uintptr_t)data % ALIGNMENT != 0 && !(options && options->no_mmap))
        return error_set(
            err, PI_ERR_ARG,
            "not aligned: %s: its address is not a multiple of %d; align it, or ask for a copy",
            from.path, ALIGNMENT);
    return open_from(&from, options, out, err);
}

static pi_status open_drafter(pi_model *m, const pi_model *target, const char *path, int32_t layer,
                              pi_error *err) {
    gguf_file *file = NULL;
    const gguf_open_options options = {.report = NULL};
    pi_status status = path ? gguf_open(path, &options, &file, err) : PI_OK;
    if (status == PI_OK)
        status = model_open_drafter(target->weights, file, layer, &m->weights, err);
    if (status != PI_OK) return status;
    m->name = mem_strdup(m->weights->name);
    m->architecture = mem_strdup(m->weights->arch->name);
    m->type = mem_strdup(main_type(m->weights->file, m->weights));
    if (!m->name || !m->architecture || !m->type) return error_nomem(err, sizeof *m, "model");
    error_set(&m->no_text, PI_ERR_UNSUPPORTED, "no tokenizer: %s: a head that drafts",
              gguf_path(m->weights->file));
    return PI_OK;
}

pi_status pi_model_open_drafter(const pi_model *target, const char *path, int32_t layer,
                                pi_model **out, pi_error *err) {
    *out = NULL;
    if (layer < 0)
        return error_set(err, PI_ERR_ARG, "out of range: head that drafts: layer %d", layer);
    if (!target->weights || target->weights->draft.target)
        return error_set(err, PI_ERR_ARG, "no weights: head that drafts: give it a whole model");
    pi_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(err, sizeof *m, "model");
    pi_status status = open_drafter(m, target, path, layer, err);
    if (status != PI_OK) {
        pi_model_close(m);
        return status;
    }
    *out = m;
    return PI_OK;
}

void pi_model_close(pi_model *m) {
    if (!m) return;
    tokenizer_free(m->text);
    model_close(m->weights);
    gguf_close(m->vocab_file);
    for (size_t i = 0; i < m->n_adapters; i++) mem_free((void *)m->adapters[i].path);
    mem_free(m->adapters);
    mem_free(m->name);
    mem_free(m->architecture);
    mem_free(m->type);
    mem_unmap(m->memory, m->n_memory);
    api_received_free(m->received);
    vocab_trie_free(m->trie);
    mem_free(m);
}

const char *pi_mapped_file(const void *address) {
    return file_map_path_at(address, NULL);
}

/* Sets the largest values over the layers: widths may differ, and a layer may have no such part. */
static void set_widths(const model *m, pi_model_info *info) {
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_layer_hparams *l = &m->layers[i].hp;
        if (l->n_ff > info->n_ff) info->n_ff = l->n_ff;
        if (l->n_head > info->n_head) info->n_head = l->n_head;
        if (l->n_head_kv > info->n_head_kv) info->n_head_kv = l->n_head_kv;
        info->recurrent = info->recurrent || model_state(&m->hp, l) > 0;
    }
}

void pi_model_get_info(const pi_model *m, pi_model_info *info) {
    *info = (pi_model_info){.name = m->name,
                            .architecture = m->architecture,
                            .type = m->type,
                            .token_bos = -1,
                            .token_eos = -1};
    if (m->weights) {
        const model_hparams *hp = &m->weights->hp;
        info->n_layer = hp->n_layer;
        info->n_embd = hp->n_embd;
        set_widths(m->weights, info);
        info->n_vocab = hp->n_vocab;
        info->n_ctx_train = hp->n_ctx_train;
        info->n_params = m->weights->n_params;
        info->weight_bytes = m->weights->weight_bytes;
        info->n_draft_layer = hp->n_draft_layer;
        info->is_drafter = m->weights->draft.target != NULL;
        if (info->is_drafter) {
            info->n_draft_layer = m->weights->draft.n_layers;
            info->n_features = (int32_t)plan_residual_width(m->weights);
        }
    }
    if (m->text) {
        const tokenizer_info *t = tokenizer_get_info(m->text);
        info->has_tokenizer = true;
        info->token_bos = t->bos;
        info->token_eos = t->eos;
        info->add_bos = t->add_bos;
        if (!m->weights) info->n_vocab = t->n_vocab;
    }
}

/* ---- text and tokens ------------------------------------------------------------------------ */

static pi_status need_tokenizer(const pi_model *m, pi_error *err) {
    if (m->text) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED, "%s", m->no_text.message);
}

pi_status pi_tokenize(const pi_model *m, const char *text, size_t n_text, uint32_t flags,
                      int32_t *tokens, size_t capacity, size_t *n_tokens, pi_error *err) {
    pi_status status = need_tokenizer(m, err);
    *n_tokens = 0;
    if (status != PI_OK) return status;
    uint32_t inner = 0;
    if (flags & PI_TOKENIZE_BOS) inner |= TOKENIZER_ADD_SPECIAL;
    if (flags & PI_TOKENIZE_FORCE_BOS) inner |= TOKENIZER_FORCE_BOS;
    if (flags & PI_TOKENIZE_SPECIAL) inner |= TOKENIZER_PARSE_SPECIAL;
    if (flags & PI_TOKENIZE_STOP) inner |= TOKENIZER_STOP;
    return tokenizer_encode(m->text, text, n_text, inner, tokens, capacity, n_tokens, err);
}

pi_status pi_token_text(const pi_model *m, int32_t token, bool special, char *text, size_t capacity,
                        size_t *n_bytes, pi_error *err) {
    pi_status status = need_tokenizer(m, err);
    if (status != PI_OK) return status;
    return tokenizer_piece(m->text, token, special, text, capacity, n_bytes, err);
}

pi_status pi_detokenize(const pi_model *m, const int32_t *tokens, size_t n_tokens, bool special,
                        char *text, size_t capacity, size_t *n_bytes, pi_error *err) {
    pi_status status = need_tokenizer(m, err);
    if (status != PI_OK) return status;
    return tokenizer_decode(m->text, tokens, n_tokens, special, text, capacity, n_bytes, err);
}

bool pi_token_is_end(const pi_model *m, int32_t token) {
    return m->text && tokenizer_is_end(m->text, token);
}
