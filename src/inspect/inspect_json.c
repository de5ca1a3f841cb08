/* inspect_json.c: the description of a model file as one JSON object:
 *
 *   file, bytes, parts, version, magic, alignment, complete
 *   kind: "model"; "prepared": by this program; "pwri": made for the original PowerInfer;
 *     "gpu_index": a list of neurons for a GPU, made for the original PowerInfer
 *   name, architecture, layers, n_embd, n_ff, n_head, n_head_kv, head_dim, experts, experts_used,
 *   context, vocabulary, tokenizer, pre, chat_template, activation, predictor: null where the file
 *     has none; [min, max] where layers differ
 *   predictor_rank: null, or per layer the rank or null; predictor_threshold: null, or the least
 *     score that selects; prepared_version, gpu_index_layers, gpu_index_bytes: null in files of
 *     other kinds
 *   neurons: null without statistics, else {tokens, loss, and as means over the layers density,
 *     share_50, share_80, share_95, kind, rank, selected, recall}; with `verbose` also layers: for
 *     each layer the last eight fields and neurons
 *   bundles: null, or {layers, stride, bytes, padding_bytes} where neurons or experts are bundled
 *   head: null, or the output head's predictor {kind: "sketch" or "profiler", rank, distance, rows,
 *     loss}; the last three may be null
 *   parameters, tensor_bytes, types: [{type, tensors, bytes}], most bytes first
 *   kv: {key: value}; an array of more than KV_ITEMS items is {"type", "count"} unless `verbose`
 *   tensors: [{name, type, shape (contiguous first), offset, bytes, part (from 1)}]
 *
 * New versions only add fields. */

#include <math.h>

#include "inspect.h"
#include "json_writer.h"
#include "mem.h"

enum { KV_ITEMS = 64 }; /* per-layer arrays are written, vocabularies are not */

static void write_u64(json_writer *w, const char *key, uint64_t v) {
    if (v <= INT64_MAX)
        json_put_int(w, key, (int64_t)v);
    else
        json_put_number(w, key, (double)v);
}

static void write_known(json_writer *w, const char *key, int64_t v) {
    if (v >= 0)
        json_put_int(w, key, v);
    else
        json_put_text(w, key, NULL);
}

static void write_range(json_writer *w, const char *key, inspect_range r) {
    if (r.min == r.max) {
        write_known(w, key, r.max);
        return;
    }
    json_put_array(w, key);
    json_put_int(w, NULL, r.min);
    json_put_int(w, NULL, r.max);
    json_end_array(w);
}

static void write_text(json_writer *w, const char *key, gguf_string s) {
    if (s.n_bytes)
        json_put_string(w, key, s.data, s.n_bytes);
    else
        json_put_text(w, key, NULL);
}

/* Unknown values are null: JSON has no NaN. */
static void write_share(json_writer *w, const char *key, double v) {
    if (isnan(v))
        json_put_text(w, key, NULL);
    else
        json_put_number(w, key, v);
}

static void write_layer(json_writer *w, const neuron_stats_layer *l) {
    const double nothing = (double)NAN;
    bool known = l->n_neurons > 0;
    write_share(w, "density", known ? l->density : nothing);
    write_share(w, "share_50", known ? l->share_50 : nothing);
    write_share(w, "share_80", known ? l->share_80 : nothing);
    write_share(w, "share_95", known ? l->share_95 : nothing);
    json_put_text(w, "kind", l->predictor[0] ? l->predictor : NULL);
    write_u64(w, "rank", l->rank);
    write_share(w, "selected", l->selected);
    write_share(w, "recall", l->recall);
}

static void write_neurons(json_writer *w, const neuron_stats *n, bool verbose) {
    if (n->n_layers == 0) {
        json_put_text(w, "neurons", NULL);
        return;
    }
    json_put_object(w, "neurons");
    write_known(w, "tokens", n->tokens);
    write_share(w, "loss", n->loss);
    write_layer(w, &n->mean);
    if (verbose) json_put_array(w, "layers");
    for (int i = 0; verbose && i < n->n_layers; i++) {
        json_put_object(w, NULL);
        write_u64(w, "neurons", n->layers[i].n_neurons);
        write_layer(w, &n->layers[i]);
        json_end_object(w);
    }
    if (verbose) json_end_array(w);
    json_end_object(w);
}

static void write_bundles(json_writer *w, const inspect_bundles *b) {
    if (b->n_layers == 0) {
        json_put_text(w, "bundles", NULL);
        return;
    }
    json_put_object(w, "bundles");
    json_put_int(w, "layers", b->n_layers);
    write_range(w, "stride", b->stride);
    write_u64(w, "bytes", b->n_bytes);
    write_u64(w, "padding_bytes", b->n_bytes - b->n_own_bytes);
    json_end_object(w);
}

static void write_head(json_writer *w, const inspect_summary *s) {
    if (s->head_rank < 0) {
        json_put_text(w, "head", NULL);
        return;
    }
    json_put_object(w, "head");
    json_put_text(w, "kind", s->head_given ? "profiler" : "sketch");
    json_put_int(w, "rank", s->head_rank);
    write_share(w, "distance", s->head_distance);
    write_share(w, "rows", s->head_rows);
    write_share(w, "loss", s->head_loss);
    json_end_object(w);
}

/* One rank per layer: all may differ. */
static void write_sparse(json_writer *w, const gguf_file *f, const inspect_summary *s) {
    if (s->rank.max < 0) {
        json_put_text(w, "predictor_rank", NULL);
    } else {
        json_put_array(w, "predictor_rank");
        for (int64_t i = 0; i < s->n_layer && i < NEURONS_MAX_LAYERS; i++)
            write_known(w, NULL, inspect_rank(f, i));
        json_end_array(w);
    }
    if (isnan(s->predictor_threshold))
        json_put_text(w, "predictor_threshold", NULL);
    else
        json_put_number(w, "predictor_threshold", s->predictor_threshold);
    write_known(w, "prepared_version", s->prepared_version);
    write_known(w, "gpu_index_layers", s->gpu_layers);
    write_known(w, "gpu_index_bytes", s->gpu_bytes);
}

static void write_summary(json_writer *w, const gguf_file *f, const inspect_summary *s,
                          bool verbose) {
    write_text(w, "name", s->name);
    write_text(w, "architecture", s->architecture);
    write_known(w, "layers", s->n_layer);
    write_known(w, "n_embd", s->n_embd);
    write_range(w, "n_ff", s->n_ff);
    write_range(w, "n_head", s->n_head);
    write_range(w, "n_head_kv", s->n_head_kv);
    write_known(w, "head_dim", s->head_dim);
    write_known(w, "experts", s->n_expert);
    write_known(w, "experts_used", s->n_expert_used);
    write_known(w, "context", s->n_ctx);
    write_known(w, "vocabulary", s->n_vocab);
    write_text(w, "tokenizer", s->tokenizer);
    write_text(w, "pre", s->pre);
    json_put_bool(w, "chat_template", s->has_chat_template);
    json_put_text(w, "activation", s->activation);
    json_put_bool(w, "predictor", s->has_predictor);
    write_sparse(w, f, s);
    write_neurons(w, &s->neurons, verbose);
    write_bundles(w, &s->bundles);
    write_head(w, s);
    write_u64(w, "parameters", s->n_params);
    write_u64(w, "tensor_bytes", s->tensor_bytes);
    json_put_array(w, "types");
    for (int i = 0; i < s->n_types; i++) {
        json_put_object(w, NULL);
        json_put_text(w, "type", s->types[i].traits->name);
        write_u64(w, "tensors", s->types[i].n_tensors);
        write_u64(w, "bytes", s->types[i].n_bytes);
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_array(json_writer *w, const char *key, const gguf_value *v);

static void write_item(json_writer *w, const gguf_value *v, uint64_t i, const uint8_t **cursor) {
    uint64_t u;
    int64_t n;
    double d;
    if (v->item_type == GGUF_STRING) {
        gguf_string s = gguf_next_string(cursor);
        json_put_string(w, NULL, s.data, s.n_bytes);
    } else if (v->item_type == GGUF_ARRAY) {
        gguf_value inner = gguf_next_array(cursor);
        write_array(w, NULL, &inner);
    } else if (gguf_item_u64(v, i, &u)) {
        if (v->item_type == GGUF_BOOL)
            json_put_bool(w, NULL, u != 0);
        else
            write_u64(w, NULL, u);
    } else if (gguf_item_i64(v, i, &n)) {
        json_put_int(w, NULL, n);
    } else if (gguf_item_f64(v, i, &d)) {
        json_put_number(w, NULL, d);
    }
}

/* Depth is capped by the reader (GGUF_MAX_ARRAY_DEPTH), below JSON_WRITER_DEPTH. */
static void write_array(json_writer *w, const char *key, const gguf_value *v) {
    const uint8_t *cursor = v->data;
    json_put_array(w, key);
    for (uint64_t i = 0; i < v->count; i++) write_item(w, v, i, &cursor);
    json_end_array(w);
}

static void write_value(json_writer *w, const char *key, const gguf_value *v, bool verbose) {
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    gguf_string s;
    if (v->type == GGUF_ARRAY && v->count > KV_ITEMS && !verbose) {
        json_put_object(w, key);
        json_put_text(w, "type", gguf_value_type_name(v->item_type));
        write_u64(w, "count", v->count);
        json_end_object(w);
    } else if (v->type == GGUF_ARRAY) {
        write_array(w, key, v);
    } else if (gguf_as_string(v, &s)) {
        json_put_string(w, key, s.data, s.n_bytes);
    } else if (gguf_as_u64(v, &u)) {
        write_u64(w, key, u);
    } else if (gguf_as_i64(v, &i)) {
        json_put_int(w, key, i);
    } else if (gguf_as_f64(v, &d)) {
        json_put_number(w, key, d);
    } else if (gguf_as_bool(v, &b)) {
        json_put_bool(w, key, b);
    }
}

static pi_status write_keys(json_writer *w, const gguf_file *f, bool verbose, pi_error *err) {
    pi_status status = PI_OK;
    json_put_object(w, "kv");
    for (uint64_t i = 0; !status && i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        char *key = mem_strndup(v->key.data, v->key.n_bytes);
        if (key)
            write_value(w, key, v, verbose);
        else
            status = error_nomem(err, v->key.n_bytes, "a key");
        mem_free(key);
    }
    json_end_object(w);
    return status;
}

static void write_tensors(json_writer *w, const gguf_file *f) {
    json_put_array(w, "tensors");
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        json_put_object(w, NULL);
        json_put_text(w, "name", t->name);
        json_put_text(w, "type", quant_find((uint32_t)t->type)->name);
        json_put_array(w, "shape");
        for (int d = 0; d < t->n_dims; d++) write_u64(w, NULL, t->dims[d]);
        json_end_array(w);
        write_u64(w, "offset", t->file_offset);
        write_u64(w, "bytes", t->n_bytes);
        json_put_int(w, "part", t->part + 1);
        json_end_object(w);
    }
    json_end_array(w);
}

pi_status inspect_write_json(const gguf_file *f, const inspect_summary *s, bool verbose, FILE *out,
                             pi_error *err) {
    json_writer w;
    json_begin(&w, out);
    json_put_object(&w, NULL);
    json_put_text(&w, "file", gguf_path(f));
    write_u64(&w, "bytes", gguf_file_bytes(f));
    json_put_int(&w, "parts", gguf_n_parts(f));
    json_put_int(&w, "version", gguf_version(f));
    json_put_text(&w, "magic", gguf_is_pwri(f) ? "PWRI" : "GGUF");
    json_put_int(&w, "alignment", gguf_alignment(f));
    json_put_bool(&w, "complete", s->complete);
    json_put_bool(&w, "runs", s->runs);
    json_put_text(&w, "refusal", s->tried && !s->runs ? s->refusal : NULL);
    json_put_text(&w, "kind", inspect_kind(f, s));
    write_summary(&w, f, s, verbose);
    pi_status status = write_keys(&w, f, verbose, err);
    if (!status) write_tensors(&w, f);
    json_end_object(&w);
    return status;
}
