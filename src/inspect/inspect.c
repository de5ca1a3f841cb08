/* inspect.c: pi_inspect: opens a file, gathers its facts, writes them out.
 *
 * A truncated file is opened a second time for its header only, and the description says so. */
#include "inspect.h"

#include <math.h>
#include <string.h>

#include "arch.h"
#include "bundle.h"
#include "file.h"
#include "inspect_plan.h"
#include "kv_cache.h"
#include "mem.h"
#include "model.h"
#include "powerinfer_tools.h"
#include "sparse_keys.h"

enum { KEY_BYTES = 256 };

/* The value of "ARCH.KEY"; NULL when the file has no such key. */
static const gguf_value *find_arch_key(const gguf_file *f, gguf_string arch, const char *key) {
    char name[KEY_BYTES];
    int n = snprintf(name, sizeof name, "%.*s.%s",
                     arch.n_bytes < KEY_BYTES ? (int)arch.n_bytes : KEY_BYTES, arch.data, key);
    return n > 0 && n < KEY_BYTES ? gguf_find(f, name) : NULL;
}

static inspect_range arch_range(const gguf_file *f, gguf_string arch, const char *key) {
    inspect_range r = {-1, -1};
    const gguf_value *v = find_arch_key(f, arch, key);
    if (!v) return r;
    int64_t item;
    if (gguf_as_i64(v, &item)) return (inspect_range){item, item};
    for (uint64_t i = 0; gguf_item_i64(v, i, &item); i++) { /* one per layer */
        if (i == 0 || item < r.min) r.min = item;
        if (i == 0 || item > r.max) r.max = item;
    }
    return r;
}

static int64_t arch_number(const gguf_file *f, gguf_string arch, const char *key) {
    return arch_range(f, arch, key).max;
}

static gguf_string find_string(const gguf_file *f, const char *key) {
    gguf_string s = {.data = ""};
    const gguf_value *v = gguf_find(f, key);
    if (v) gguf_as_string(v, &s);
    return s;
}

/* The activation of the key if it is known, else that of the architecture. */
static const char *find_activation(const gguf_file *f, gguf_string arch) {
    gguf_string s;
    const gguf_value *v = find_arch_key(f, arch, "hidden_activation");
    if (v && gguf_as_string(v, &s)) {
        for (int i = 0; i < ACTIVATION_COUNT; i++) {
            const char *name = activation_name((activation)i);
            if (gguf_string_is(s, name)) return name;
        }
        return NULL;
    }
    const arch_row *row = arch_find(arch.data, arch.n_bytes);
    if (!row) return NULL;
    if (row->xielu) return "xielu";
    return activation_name(
        arch_activation(row, gguf_is_pwri(f), find_arch_key(f, arch, "expert_count") != NULL));
}

static int64_t find_vocabulary(const gguf_file *f, gguf_string arch) {
    const gguf_value *v = gguf_find(f, "tokenizer.ggml.tokens");
    if (v && v->type == GGUF_ARRAY) return (int64_t)v->count; /* bounded by the file's size */
    int64_t n = arch_number(f, arch, "vocab_size");
    if (n >= 0) return n;
    const gguf_tensor *t = gguf_find_tensor(f, "token_embd.weight");
    return t ? (int64_t)t->dims[1] : -1;
}

/* The last two: of all experts, and of one expert in the original PowerInfer's files. */
int64_t inspect_rank(const gguf_file *f, int64_t layer) {
    static const char *const names[] = {"fc1", "fc1_exps", "fc1.0"};
    char name[GGUF_MAX_NAME];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)layer, names[i]);
        const gguf_tensor *t = gguf_find_tensor(f, name);
        if (t) return (int64_t)t->dims[1];
    }
    return -1;
}

static void gather_sparse(const gguf_file *f, inspect_summary *s) {
    const gguf_value *v = gguf_find(f, SPARSE_KEY_VERSION);
    s->prepared_version = -1;
    if (v) gguf_as_i64(v, &s->prepared_version);
    s->rank = (inspect_range){-1, -1};
    for (int64_t i = 0; i < s->n_layer && i < MODEL_MAX_LAYERS; i++) {
        int64_t rank = inspect_rank(f, i);
        if (rank < 0) continue;
        if (s->rank.max < 0 || rank < s->rank.min) s->rank.min = rank;
        if (rank > s->rank.max) s->rank.max = rank;
    }
    s->predictor_threshold = (double)NAN;
    v = gguf_find(f, SPARSE_KEY_PREDICTOR_THRESHOLD);
    if (s->rank.max >= 0 && (gguf_is_pwri(f) || s->prepared_version >= 0))
        s->predictor_threshold = 0; /* unless the file has another value */
    if (v) gguf_as_f64(v, &s->predictor_threshold);
}

static double find_number(const gguf_file *f, const char *key) {
    double number = (double)NAN;
    const gguf_value *v = gguf_find(f, key);
    if (v) gguf_as_f64(v, &number);
    return number;
}

static void gather_head(const gguf_file *f, inspect_summary *s) {
    const gguf_tensor *own = gguf_find_tensor(f, "output_sketch.fc1.weight");
    const gguf_tensor *given = gguf_find_tensor(f, "lm_head_profiler.weight");
    const gguf_tensor *embd = gguf_find_tensor(f, "token_embd.weight");
    s->head_rank = own ? (int64_t)own->dims[1] : -1;
    s->head_given = given && embd;
    if (s->head_given) s->head_rank = (int64_t)(given->n_elems / (embd->dims[0] + embd->dims[1]));
    s->head_distance = find_number(f, SPARSE_KEY_HEAD_DISTANCE);
    s->head_loss = find_number(f, SPARSE_KEY_HEAD_LOSS);
    s->head_rows = find_number(f, SPARSE_KEY_HEAD_ROWS);
}

static void gather_gpu_index(const gguf_file *f, inspect_summary *s) {
    gguf_string arch = s->architecture;
    s->gpu_index = gguf_string_is(arch, MODEL_GPU_INDEX_ARCHITECTURE);
    s->gpu_layers = s->gpu_bytes = -1;
    if (!s->gpu_index) return;
    s->gpu_layers = arch_number(f, arch, "block_count");
    const gguf_value *v = gguf_find(f, "split.vram_capacity");
    if (v) gguf_as_i64(v, &s->gpu_bytes);
}

const char *inspect_kind(const gguf_file *f, const inspect_summary *s) {
    if (s->gpu_index) return "gpu_index";
    if (gguf_is_pwri(f)) return "pwri";
    return s->prepared_version >= 0 ? "prepared" : "model";
}

static void gather_types(const gguf_file *f, inspect_type by_number[QUANT_TYPE_COUNT],
                         inspect_summary *s) {
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        s->n_params += t->n_elems;
        s->tensor_bytes += t->n_bytes;
        by_number[t->type].n_tensors++;
        by_number[t->type].n_bytes += t->n_bytes;
    }
}

/* Adds the contents of the bundle tensors. */
static void gather_bundles(const model *m, inspect_type by_number[QUANT_TYPE_COUNT],
                           inspect_summary *s) {
    inspect_bundles *b = &s->bundles;
    for (int i = 0; i < BUNDLE_KINDS * m->hp.n_layer; i++) {
        const model_layer *l = &m->layers[i / BUNDLE_KINDS];
        bundle_kind kind = (bundle_kind)(i % BUNDLE_KINDS);
        const gguf_tensor *t = model_bundle(l, kind);
        if (!t) continue;
        b->experts = kind == BUNDLE_EXPERTS;
        int64_t stride = (int64_t)t->dims[0];
        if (b->n_layers == 0 || stride < b->stride.min) b->stride.min = stride;
        if (b->n_layers++ == 0 || stride > b->stride.max) b->stride.max = stride;
        b->n_bytes += t->n_bytes;
        s->n_params -= t->n_elems;
        for (int k = 0; k < BUNDLE_PARTS; k++) {
            tensor_role role = bundle_part_role(kind, k);
            const model_tensor *part = role == ROLE_COUNT ? NULL : &l->t[role];
            if (!part || !part->data) continue;
            b->n_own_bytes += part->n_bytes;
            by_number[QUANT_I8].n_bytes -= part->n_bytes;
            by_number[part->type].n_bytes += part->n_bytes;
            s->n_params += (uint64_t)(part->n_in * part->n_out);
        }
    }
}

static void sort_types(const inspect_type by_number[QUANT_TYPE_COUNT], inspect_summary *s) {
    for (int i = 0; i < QUANT_TYPE_COUNT; i++) {
        if (by_number[i].n_bytes == 0) continue;
        int at = s->n_types++;
        for (; at > 0 && s->types[at - 1].n_bytes < by_number[i].n_bytes; at--) {
            s->types[at] = s->types[at - 1];
        }
        s->types[at] = by_number[i];
        s->types[at].traits = quant_find((uint32_t)i);
    }
}

/* PI_ERR_NOMEM. Call neuron_stats_free for `neurons`, also after an error. */
static pi_status gather(const gguf_file *f, bool complete, inspect_summary *s, pi_error *err) {
    *s = (inspect_summary){.complete = complete};
    gguf_string arch = find_string(f, "general.architecture");
    s->architecture = arch;
    s->name = find_string(f, "general.name");
    s->tokenizer = find_string(f, "tokenizer.ggml.model");
    s->pre = find_string(f, "tokenizer.ggml.pre");
    s->has_chat_template = gguf_find(f, "tokenizer.chat_template") != NULL;
    s->has_predictor = inspect_rank(f, 0) >= 0;
    s->activation = find_activation(f, arch);
    s->n_layer = arch_number(f, arch, "block_count");
    s->n_embd = arch_number(f, arch, "embedding_length");
    s->n_ctx = arch_number(f, arch, "context_length");
    s->n_ff = arch_range(f, arch, "feed_forward_length");
    s->n_head = arch_range(f, arch, "attention.head_count");
    s->n_head_kv = arch_range(f, arch, "attention.head_count_kv");
    if (s->n_head_kv.max < 0) s->n_head_kv = s->n_head;
    s->head_dim = arch_number(f, arch, "attention.key_length");
    if (s->head_dim < 0 && s->n_embd > 0 && s->n_head.max > 0) {
        s->head_dim = s->n_embd / s->n_head.max;
    }
    s->n_expert = arch_number(f, arch, "expert_count");
    s->n_expert_used = arch_number(f, arch, "expert_used_count");
    s->n_vocab = find_vocabulary(f, arch);
    gather_sparse(f, s);
    gather_head(f, s);
    gather_gpu_index(f, s);
    return neuron_stats_gather(f, s->n_layer, &s->neurons, err);
}

/* Bytes of the KV cache for the whole context with the default type. */
static uint64_t kv_bytes(const model *m) {
    uint64_t sum = 0;
    size_t n;
    kv_layer l;
    for (int i = 0; i < m->hp.n_layer; i++)
        if (kv_layer_rows(m, i, QUANT_F16, QUANT_F16, &l) &&
            size_mul(kv_layer_bytes(&l, 1), (size_t)m->hp.n_ctx_train, &n))
            sum += kv_layer_bytes(&l, m->hp.n_ctx_train);
    return sum;
}

/* Whether this program can run the file, as the loader decides. Only a lack of memory is an error
 * here. */
static pi_status try_model(const char *path, const gguf_file *f,
                           inspect_type by_number[QUANT_TYPE_COUNT], inspect_summary *s,
                           pi_error *err) {
    if (!s->complete || gguf_n_tensors(f) == 0) return PI_OK;
    model *m = NULL;
    pi_error why = {.status = PI_OK};
    pi_status status = model_open(path, NULL, &m, &why);
    if (status == PI_ERR_NOMEM) return error_set(err, status, "%s", why.message);
    s->tried = true;
    s->runs = status == PI_OK;
    if (s->runs) s->kv_bytes = kv_bytes(m);
    if (s->runs) gather_bundles(m, by_number, s);
    for (int i = 0; s->runs && i < m->hp.n_layer; i++)
        s->state_bytes += (uint64_t)model_state(&m->hp, &m->layers[i].hp) * sizeof(float);
    memcpy(s->refusal, why.message, sizeof s->refusal);
    model_close(m);
    return PI_OK;
}

/* Opens the file, or only its header when the file is refused; *complete tells which. */
static pi_status open_any(const char *path, gguf_file **f, bool *complete, pi_error *err) {
    pi_error whole = {.status = PI_OK};
    pi_status status = gguf_open(path, NULL, f, &whole);
    *complete = status == PI_OK;
    if (status == PI_OK) return status;
    if (status != PI_ERR_FORMAT) return error_set(err, status, "%s", whole.message);
    const gguf_open_options header = {.header_only = true};
    return gguf_open(path, &header, f, err);
}

pi_status pi_inspect(const char *path, const pi_inspect_options *options, FILE *out,
                     pi_error *err) {
    static const pi_inspect_options defaults = {0};
    if (!options) options = &defaults;
    if (options->plan && options->json) {
        return error_set(err, PI_ERR_ARG, "incompatible options: %.200s: the plan has no JSON form",
                         path);
    }
    const pi_context_options defaults_of_plan = pi_context_default_options();
    const pi_context_options *context = options->context ? options->context : &defaults_of_plan;
    if (options->plan) return inspect_plan(path, context, out, err);
    gguf_file *f = NULL;
    bool complete;
    pi_status status = options->svg ? file_writer_probe(options->svg, err) : PI_OK;
    if (!status) status = open_any(path, &f, &complete, err);
    if (status) return status;
    inspect_summary s;
    inspect_type by_number[QUANT_TYPE_COUNT] = {0};
    status = gather(f, complete, &s, err);
    gather_types(f, by_number, &s);
    if (!status) status = try_model(path, f, by_number, &s, err);
    sort_types(by_number, &s);
    if (!status && options->svg) status = inspect_write_svg(f, &s, options->svg, err);
    if (!status && options->json)
        status = inspect_write_json(f, &s, options->verbose, out, err);
    else if (!status)
        inspect_write_text(f, &s, options->verbose, out);
    neuron_stats_free(&s.neurons);
    gguf_close(f);
    if (!status && (fflush(out) != 0 || ferror(out))) {
        status = error_set(err, PI_ERR_IO, "the description of %.200s could not be written", path);
    }
    return status;
}
