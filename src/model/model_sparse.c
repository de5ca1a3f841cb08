/* model_sparse.c: neuron data of a prepared file or of one from the original PowerInfer: the keys
 * of sparse_keys.h and the additional tensors. Everything is checked here, so that the engine can
 * trust it: predictors have their tensors, frequencies are sorted, permutations are permutations.
 *
 * Files with neither the version key nor the magic PWRI are ordinary files: tensors with these
 * names are then ordinary tensors (ffn_down_t), or unused (predictors). */
#include "model_sparse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "sparse_keys.h"

enum { SIGN_MULTIPLE = 32 }; /* group size for quantizing the activations of sign predictors */

bool model_has_zeros(activation a) {
    return a == ACTIVATION_RELU || a == ACTIVATION_DRELU || a == ACTIVATION_RELU_SQUARED ||
           a == ACTIVATION_FATRELU;
}

bool model_layer_has_zeros(const model *m, int layer) {
    return model_has_zeros(m->hp.activation) || m->layers[layer].hp.ffn_top_k;
}

const char *predictor_kind_name(predictor_kind kind) {
    static const char *const names[PREDICTOR_KIND_COUNT] = {"none", "sign", "lowrank", "relu_mlp"};
    return (unsigned)kind < PREDICTOR_KIND_COUNT ? names[kind] : "unknown";
}

pi_status perm_check(const int32_t *perm, int64_t n, const char *where, pi_error *err) {
    uint8_t *seen = mem_calloc((size_t)n, sizeof *seen);
    if (!seen) return error_nomem(err, (size_t)n, "bitmap of neurons");
    pi_status status = PI_OK;
    for (int64_t i = 0; i < n && status == PI_OK; i++) {
        if (perm[i] < 0 || perm[i] >= n)
            status = error_set(
                err, PI_ERR_FORMAT,
                "not a permutation: %s: item %lld is %d, not in 0..%lld; prepare the model "
                "again",
                where, (long long)i, perm[i], (long long)n - 1);
        else if (seen[perm[i]]++)
            status = error_set(err, PI_ERR_FORMAT,
                               "not a permutation: %s: item %lld is %d, a duplicate; prepare the "
                               "model again",
                               where, (long long)i, perm[i]);
    }
    mem_free(seen);
    return status;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static pi_status fail_key(const model *m, const char *key, const char *problem, pi_error *err) {
    return error_set(err, PI_ERR_FORMAT, "bad key: %s: %s %s; prepare the model again",
                     gguf_path(m->file), key, problem);
}

/* Reads one number; NaN only if `nan_ok`. Leaves *value unchanged when the key is missing. */
static pi_status read_number(const model *m, const char *key, bool nan_ok, float *value,
                             pi_error *err) {
    double number;
    const gguf_value *v = gguf_find(m->file, key);
    if (!v) return PI_OK;
    if (!gguf_as_f64(v, &number)) return fail_key(m, key, "is not a number", err);
    if (isinf((float)number) || (isnan(number) && !nan_ok))
        return fail_key(m, key, "is not a finite number", err);
    *value = (float)number;
    return PI_OK;
}

pi_status model_find_array(const model *m, const char *key, bool strings, const gguf_value **v,
                           pi_error *err) {
    char problem[128];
    *v = gguf_find(m->file, key);
    if (!*v) return PI_OK;
    bool is_array = (*v)->type == GGUF_ARRAY;
    bool fits = strings ? is_array && (*v)->item_type == GGUF_STRING
                        : is_array && ((*v)->item_type == GGUF_F32 || (*v)->item_type == GGUF_F64);
    if (!fits) {
        snprintf(problem, sizeof problem, "is not an array of %s",
                 strings ? "strings" : "floating-point numbers");
        return fail_key(m, key, problem, err);
    }
    if ((*v)->count == (uint64_t)m->hp.n_layer) return PI_OK;
    snprintf(problem, sizeof problem, "has %llu items for %d layers",
             (unsigned long long)(*v)->count, m->hp.n_layer);
    return fail_key(m, key, problem, err);
}

/* Reads one float per layer, NaN (unknown) or in [0, max], into the member at `offset` of
 * model_layer_sparse. */
static pi_status read_floats(model *m, const char *key, double max, size_t offset, pi_error *err) {
    const gguf_value *v;
    pi_status status = model_find_array(m, key, false, &v, err);
    if (status != PI_OK || !v) return status;
    for (int i = 0; i < m->hp.n_layer; i++) {
        char problem[96];
        double number = NAN;
        gguf_item_f64(v, (uint64_t)i, &number);
        if (!isnan(number) && !(number >= 0 && number <= max)) {
            snprintf(problem, sizeof problem, "is %g in layer %d, not in 0..%g", number, i, max);
            return fail_key(m, key, problem, err);
        }
        float value = (float)number;
        memcpy((char *)&m->layers[i].sparse + offset, &value, sizeof value);
    }
    return PI_OK;
}

static pi_status fail_word(const model *m, const char *key, int layer, gguf_string word,
                           const char *known, pi_error *err) {
    char problem[160];
    snprintf(problem, sizeof problem, "is '%.*s' in layer %d; this version knows %s",
             (int)(word.n_bytes < 40 ? word.n_bytes : 40), word.data, layer, known);
    return error_set(err, PI_ERR_FORMAT, "bad key: %s: %s %s", gguf_path(m->file), key, problem);
}

static pi_status read_kinds(model *m, pi_error *err) {
    const gguf_value *v;
    pi_status status = model_find_array(m, SPARSE_KEY_PREDICTOR_KIND, true, &v, err);
    if (status != PI_OK || !v) return status;
    const uint8_t *cursor = v->data;
    for (int i = 0; i < m->hp.n_layer; i++) {
        gguf_string word = gguf_next_string(&cursor);
        int kind = 0;
        while (kind < PREDICTOR_KIND_COUNT &&
               !gguf_string_is(word, predictor_kind_name((predictor_kind)kind)))
            kind++;
        if (kind == PREDICTOR_KIND_COUNT)
            return fail_word(m, SPARSE_KEY_PREDICTOR_KIND, i, word, "none, sign, lowrank, relu_mlp",
                             err);
        m->layers[i].sparse.predictor = (predictor_kind)kind;
    }
    return PI_OK;
}

static pi_status read_inputs(model *m, pi_error *err) {
    const gguf_value *v;
    pi_status status = model_find_array(m, SPARSE_KEY_PREDICTOR_INPUT, true, &v, err);
    if (status != PI_OK || !v) return status;
    const uint8_t *cursor = v->data;
    for (int i = 0; i < m->hp.n_layer; i++) {
        gguf_string word = gguf_next_string(&cursor);
        bool residual = gguf_string_is(word, "residual");
        if (!residual && !gguf_string_is(word, "normed"))
            return fail_word(m, SPARSE_KEY_PREDICTOR_INPUT, i, word, "normed, residual", err);
        m->layers[i].sparse.predictor_residual = residual;
    }
    return PI_OK;
}

/* Reads the amount and the hash of the calibration text. */
static pi_status read_calibration(model *m, pi_error *err) {
    const gguf_value *v = gguf_find(m->file, SPARSE_KEY_CALIBRATION_TOKENS);
    model_sparse *s = &m->sparse;
    if (v && (!gguf_as_i64(v, &s->calibration_tokens) || s->calibration_tokens < 0))
        return fail_key(m, SPARSE_KEY_CALIBRATION_TOKENS, "is not a number of tokens", err);
    v = gguf_find(m->file, SPARSE_KEY_CALIBRATION_SHA256);
    if (!v) return PI_OK;
    gguf_string digits;
    bool ok = gguf_as_string(v, &digits) && digits.n_bytes == sizeof s->calibration_sha256 - 1;
    for (uint64_t i = 0; ok && i < digits.n_bytes; i++)
        ok = memchr("0123456789abcdef", digits.data[i], 16) != NULL;
    if (!ok) return fail_key(m, SPARSE_KEY_CALIBRATION_SHA256, "is not 64 hexadecimal digits", err);
    memcpy(s->calibration_sha256, digits.data, digits.n_bytes);
    return PI_OK;
}

static pi_status read_version(model *m, pi_error *err) {
    const gguf_value *v = gguf_find(m->file, SPARSE_KEY_VERSION);
    int64_t version;
    if (!v) return PI_OK;
    if (!gguf_as_i64(v, &version)) return fail_key(m, SPARSE_KEY_VERSION, "is not an integer", err);
    if (m->sparse.pwri)
        return fail_key(m, SPARSE_KEY_VERSION, "is in a file with the magic PWRI, which has none",
                        err);
    if (version != SPARSE_VERSION)
        return error_set(err, PI_ERR_FORMAT,
                         "prepared by another version: %s: key %s is %lld, this program knows %d; "
                         "prepare the model again",
                         gguf_path(m->file), SPARSE_KEY_VERSION, (long long)version,
                         SPARSE_VERSION);
    m->sparse.prepared = true;
    return PI_OK;
}

static pi_status read_keys(model *m, pi_error *err) {
    model_sparse *s = &m->sparse;
    pi_status status = read_version(m, err);
    if (status == PI_OK && (s->prepared || s->pwri))
        status = read_number(m, SPARSE_KEY_PREDICTOR_THRESHOLD, false, &s->predictor_threshold,
                             err);
    if (status != PI_OK || !s->prepared) return status;
    status = read_calibration(m, err);
    if (status == PI_OK)
        status = read_number(m, SPARSE_KEY_CALIBRATION_LOSS, true, &s->predict_loss, err);
    if (status == PI_OK)
        status = read_number(m, SPARSE_KEY_THRESHOLD_LOSS, true, &s->threshold_loss, err);
    s->given = isnan(s->predict_loss) && !gguf_find(m->file, SPARSE_KEY_CALIBRATION_TOKENS);
    if (status == PI_OK) status = read_kinds(m, err);
    if (status == PI_OK) status = read_inputs(m, err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_PREDICTOR_RECALL, 1,
                             offsetof(model_layer_sparse, recall), err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_PREDICTOR_DENSITY, 1,
                             offsetof(model_layer_sparse, density), err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_EXPERT_ACTIVE, 1,
                             offsetof(model_layer_sparse, expert_active), err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_THRESHOLD_CUT, 1e30, offsetof(model_layer_sparse, cut),
                             err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_THRESHOLD_DOWN, 1e30,
                             offsetof(model_layer_sparse, cut_down), err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_THRESHOLD_UP_ROWS, 1,
                             offsetof(model_layer_sparse, up_rows), err);
    if (status == PI_OK)
        status = read_floats(m, SPARSE_KEY_THRESHOLD_DOWN_ROWS, 1,
                             offsetof(model_layer_sparse, down_rows), err);
    return status;
}

/* ---- tensors of a layer ---------------------------------------------------------------------- */

static void role_name(const model *m, tensor_role role, int layer, char name[64]) {
    arch_tensor_name(arch_tensor_of(m->arch, role), layer, name);
}

static pi_status check_freq(const model *m, int layer, const float *freq, int n, pi_error *err) {
    char name[64];
    role_name(m, ROLE_FFN_FREQ, layer, name);
    for (int i = 0; i < n; i++) {
        if (!(freq[i] >= 0 && freq[i] <= 1))
            return error_set(
                err, PI_ERR_FORMAT,
                "bad frequency: %s: tensor %s: item %d is %g, not in 0..1; prepare the "
                "model again",
                gguf_path(m->file), name, i, (double)freq[i]);
        if (i > 0 && freq[i] > freq[i - 1])
            return error_set(err, PI_ERR_FORMAT,
                             "%s out of order: %s: tensor %s: item %d is %g after %g; the "
                             "hottest must come first; prepare the model again",
                             m->layers[layer].t[ROLE_ROUTER].data ? "experts" : "neurons",
                             gguf_path(m->file), name, i, (double)freq[i], (double)freq[i - 1]);
    }
    return PI_OK;
}

static pi_status check_cut(const model *m, int layer, const float *weight, int n, pi_error *err) {
    char name[64];
    role_name(m, ROLE_FFN_CUT, layer, name);
    for (int i = 0; i < n; i++)
        if (!(weight[i] >= 0 && weight[i] < INFINITY))
            return error_set(
                err, PI_ERR_FORMAT,
                "bad factor: %s: tensor %s: item %d is %g, expected 0 or more; prepare "
                "the model again",
                gguf_path(m->file), name, i, (double)weight[i]);
    return PI_OK;
}

static pi_status check_perm(const model *m, int layer, tensor_role role, const int32_t *perm, int n,
                            pi_error *err) {
    char name[64], where[512];
    role_name(m, role, layer, name);
    snprintf(where, sizeof where, "%s: tensor %s", gguf_path(m->file), name);
    return perm_check(perm, n, where, err);
}

/* Checks that a predictor has its tensors. Any rank is valid: rows of fc2 in a block type are whole
 * blocks, and types without blocks allow any length. */
static pi_status check_predictor(model *m, int layer, pi_error *err) {
    static const tensor_role of_layer[] = {ROLE_FFN_SIGN, ROLE_FC1, ROLE_FC2};
    static const tensor_role of_experts[] = {ROLE_EXPERT_SIGN, ROLE_EXPERT_FC1, ROLE_EXPERT_FC2};
    const model_tensor *t = m->layers[layer].t;
    model_layer_sparse *s = &m->layers[layer].sparse;
    char name[64];
    if (s->predictor == PREDICTOR_NONE) return PI_OK;
    bool is_sign = s->predictor == PREDICTOR_SIGN, experts = t[ROLE_ROUTER].data;
    const tensor_role *needed = (experts ? of_experts : of_layer) + !is_sign;
    for (int i = 0; i < (is_sign ? 1 : 2); i++) {
        if (t[needed[i]].data) continue;
        role_name(m, needed[i], layer, name);
        return error_set(err, PI_ERR_FORMAT,
                         "missing tensor: %s: %s is not in the file, but the predictor of layer %d "
                         "is of kind %s; prepare the model again",
                         gguf_path(m->file), name, layer, predictor_kind_name(s->predictor));
    }
    if (is_sign && m->hp.n_embd % SIGN_MULTIPLE != 0)
        return error_set(err, PI_ERR_FORMAT,
                         "bad predictor: %s: layer %d is of kind sign, which needs n_embd to be a "
                         "multiple of %d, not %d; prepare the model again",
                         gguf_path(m->file), layer, SIGN_MULTIPLE, m->hp.n_embd);
    if (experts && s->predictor_residual)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "input not supported: %s: the predictors of the experts of layer %d read "
                         "the residual stream, which this version supports only in dense layers; "
                         "prepare the model again",
                         gguf_path(m->file), layer);
    if (is_sign) return PI_OK;
    int64_t rank = t[needed[0]].n_out / (experts ? m->hp.n_expert : 1);
    role_name(m, needed[0], layer, name);
    if (rank > MODEL_MAX_DIM)
        return error_set(err, PI_ERR_FORMAT,
                         "bad rank: %s: tensor %s has %lld rows, which must be at most %d; prepare "
                         "the model again",
                         gguf_path(m->file), name, (long long)rank, MODEL_MAX_DIM);
    s->rank = (int32_t)rank;
    return PI_OK;
}

/* Binds the frequencies and the order of experts, and the predictors within them. */
static pi_status bind_experts(model *m, int layer, pi_error *err) {
    const model_tensor *t = m->layers[layer].t;
    model_layer_sparse *s = &m->layers[layer].sparse;
    pi_status status = check_predictor(m, layer, err);
    s->expert_freq = t[ROLE_FFN_FREQ].data;
    s->expert_perm = t[ROLE_EXPERT_PERM].data;
    if (status == PI_OK && s->expert_freq)
        status = check_freq(m, layer, s->expert_freq, m->hp.n_expert, err);
    if (status != PI_OK || !s->expert_perm) return status;
    return check_perm(m, layer, ROLE_EXPERT_PERM, s->expert_perm, m->hp.n_expert, err);
}

static pi_status bind_layer(model *m, int layer, pi_error *err) {
    const model_tensor *t = m->layers[layer].t;
    model_layer_sparse *s = &m->layers[layer].sparse;
    if (t[ROLE_ROUTER].data) return bind_experts(m, layer, err);
    s->freq = t[ROLE_FFN_FREQ].data;
    s->perm = t[ROLE_FFN_PERM].data;
    s->cut_weight = t[ROLE_FFN_CUT].data;
    pi_status status = check_predictor(m, layer, err);
    int n_ff = m->layers[layer].hp.n_ff;
    if (status == PI_OK && s->cut_weight) status = check_cut(m, layer, s->cut_weight, n_ff, err);
    if (status == PI_OK && s->freq) status = check_freq(m, layer, s->freq, n_ff, err);
    if (status == PI_OK && s->perm)
        status = check_perm(m, layer, ROLE_FFN_PERM, s->perm, n_ff, err);
    return status;
}

/* ---- the output head ------------------------------------------------------------------------- */

/* Splits the tensor of the original PowerInfer: fc1 [n_embd, rank], followed by fc2 [rank,
 * n_vocab]. */
static pi_status split_profiler(model *m, pi_error *err) {
    const model_tensor *whole = &m->t[ROLE_OUTPUT_PROFILER];
    int64_t n_embd = m->hp.n_embd, n_vocab = m->hp.n_vocab, rank = whole->n_in / (n_embd + n_vocab);
    const char *name = arch_tensor_of(m->arch, ROLE_OUTPUT_PROFILER)->name;
    model_tensor fc1 = *whole, fc2 = *whole;
    if (m->t[ROLE_OUTPUT_FC1].data)
        return error_set(err, PI_ERR_FORMAT,
                         "two predictors of the output head: %s: %s and %s are both present; "
                         "remove one",
                         gguf_path(m->file), name, arch_tensor_of(m->arch, ROLE_OUTPUT_FC1)->name);
    if (rank < 1 || rank > MODEL_MAX_DIM || rank * (n_embd + n_vocab) != whole->n_in)
        return error_set(err, PI_ERR_FORMAT,
                         "wrong shape: %s: tensor %s has %lld elements, which must be a multiple "
                         "of n_embd + n_vocab, %lld",
                         gguf_path(m->file), name, (long long)whole->n_in,
                         (long long)(n_embd + n_vocab));
    fc1.n_in = n_embd;
    fc1.n_out = rank;
    fc2.n_in = rank;
    fc2.n_out = n_vocab;
    if (!quant_row_bytes(whole->type, (uint64_t)n_embd, &fc1.row_bytes) ||
        !quant_row_bytes(whole->type, (uint64_t)rank, &fc2.row_bytes))
        return error_set(err, PI_ERR_FORMAT,
                         "row does not fill blocks: %s: tensor %s of type %s has rows of %lld and "
                         "of %lld elements; quantize it to another type",
                         gguf_path(m->file), name, quant_find((uint32_t)whole->type)->name,
                         (long long)n_embd, (long long)rank);
    fc1.n_bytes = fc1.row_bytes * (size_t)rank;
    fc2.n_bytes = fc2.row_bytes * (size_t)n_vocab;
    fc2.data = (const uint8_t *)whole->data + fc1.n_bytes;
    m->t[ROLE_OUTPUT_FC1] = fc1;
    m->t[ROLE_OUTPUT_FC2] = fc2;
    m->t[ROLE_OUTPUT_PROFILER] = (model_tensor){0};
    return PI_OK;
}

/* Ordinary files may have the tensor of the original PowerInfer. */
static pi_status bind_head(model *m, pi_error *err) {
    model_head *h = &m->sparse.head;
    pi_status status = PI_OK;
    if (m->t[ROLE_OUTPUT_PROFILER].data) {
        h->kind = HEAD_PROFILER;
        status = split_profiler(m, err);
    } else if (m->t[ROLE_OUTPUT_FC1].data || m->t[ROLE_OUTPUT_FC2].data) {
        h->kind = HEAD_SKETCH;
        status = read_number(m, SPARSE_KEY_HEAD_DISTANCE, false, &h->distance, err);
        if (status == PI_OK) status = read_number(m, SPARSE_KEY_HEAD_LOSS, true, &h->loss, err);
        if (status == PI_OK) status = read_number(m, SPARSE_KEY_HEAD_ROWS, true, &h->rows, err);
        if (status == PI_OK && !(h->distance >= 0))
            status = fail_key(m, SPARSE_KEY_HEAD_DISTANCE, "is missing or below 0", err);
        for (int i = 0; i < 2 && status == PI_OK; i++) {
            const arch_tensor *row = arch_tensor_of(m->arch, i ? ROLE_OUTPUT_FC2 : ROLE_OUTPUT_FC1);
            if (!m->t[row->role].data)
                status = error_set(err, PI_ERR_FORMAT,
                                   "missing tensor: %s: %s is not in the file, but the other half "
                                   "of the output head's predictor is; prepare the model again",
                                   gguf_path(m->file), row->name);
        }
    }
    h->rank = (int32_t)m->t[ROLE_OUTPUT_FC1].n_out;
    return status;
}

/* Files of the original PowerInfer have one kind of predictor and no keys for it. */
static void assume_original(model *m) {
    for (int i = 0; i < m->hp.n_layer; i++) {
        const model_tensor *t = m->layers[i].t;
        model_layer_sparse *s = &m->layers[i].sparse;
        bool experts = t[ROLE_EXPERT_FC1].data || t[ROLE_EXPERT_FC2].data;
        if (!experts && !t[ROLE_FC1].data && !t[ROLE_FC2].data) continue;
        s->predictor = PREDICTOR_RELU_MLP;
        s->predictor_residual = !experts;
    }
}

void model_clear_sparse(model *m) {
    m->sparse = (model_sparse){.predict_loss = NAN,
                               .threshold_loss = NAN,
                               .head = {.distance = NAN, .loss = NAN, .rows = NAN}};
    for (int i = 0; i < m->hp.n_layer; i++)
        m->layers[i].sparse = (model_layer_sparse){.recall = NAN,
                                                   .density = NAN,
                                                   .cut = NAN,
                                                   .cut_down = NAN,
                                                   .up_rows = NAN,
                                                   .down_rows = NAN,
                                                   .expert_active = NAN};
}

pi_status model_bind_sparse(model *m, pi_error *err) {
    model_clear_sparse(m);
    m->sparse.pwri = m->sparse.given = gguf_is_pwri(m->file);
    if (m->sparse.pwri) assume_original(m);
    pi_status status = read_keys(m, err);
    if (status == PI_OK) status = bind_head(m, err);
    if (status != PI_OK) return status;
    if (!m->sparse.pwri && !m->sparse.prepared) return status;
    for (int i = 0; i < m->hp.n_layer && status == PI_OK; i++) status = bind_layer(m, i, err);
    return status;
}
