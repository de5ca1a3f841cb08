/* inspect_text.c: the description of a model file as text: a summary of ten lines, and with
 * `verbose` every key and every tensor. Text from the file may control terminals and may be
 * megabytes long, so all of it goes through print_text, which escapes control bytes. */
#include "inspect.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "printable.h"
#include "sparse_keys.h"

enum {
    SHOWN_STRING = 72, /* bytes of a string value */
    SHOWN_ITEM = 24,   /* bytes of a string within an array */
    SHOWN_ITEMS = 8,   /* items of an array */
    LABEL = 14         /* columns before the facts of the summary */
};

/* At most `max` bytes, cut between UTF-8 sequences, with escapes for unprintable bytes. */
static void print_text(FILE *out, gguf_string s, uint64_t max) {
    uint64_t n = s.n_bytes < max ? s.n_bytes : max;
    if (n < s.n_bytes) {
        while (n > 0 && ((unsigned char)s.data[n] & 0xc0) == 0x80) n--; /* not inside a sequence */
    }
    printable_print(out, s.data, (size_t)n);
    if (n < s.n_bytes) fprintf(out, "... (%" PRIu64 " bytes)", s.n_bytes);
}

static void print_bytes(FILE *out, uint64_t n) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    int unit = 0;
    for (; v >= 1024 && unit < 4; unit++) v /= 1024;
    fprintf(out, unit ? "%.2f %s" : "%.0f %s", v, units[unit]);
}

static void print_count(FILE *out, uint64_t n) {
    if (n >= 1000000000)
        fprintf(out, "%.2f billion", (double)n / 1e9);
    else if (n >= 1000000)
        fprintf(out, "%.1f million", (double)n / 1e6);
    else
        fprintf(out, "%" PRIu64, n);
}

/* ---- summary --------------------------------------------------------------------------------- */

static void label(FILE *out, const char *text) {
    fprintf(out, "%-*s", LABEL, text);
}

static void print_range(FILE *out, const char *before, inspect_range r, const char *after) {
    if (r.max < 0) return;
    fprintf(out, "%s%" PRId64, before, r.min);
    if (r.max != r.min) fprintf(out, " to %" PRId64, r.max);
    fputs(after, out);
}

static void print_number(FILE *out, const char *before, int64_t n, const char *after) {
    print_range(out, before, (inspect_range){n, n}, after);
}

static void print_file(const gguf_file *f, const inspect_summary *s, FILE *out) {
    label(out, "file");
    printable_print(out, gguf_path(f), strlen(gguf_path(f)));
    fputs(", ", out);
    print_bytes(out, gguf_file_bytes(f));
    if (gguf_n_parts(f) > 1) fprintf(out, " in %d parts", gguf_n_parts(f));
    fprintf(out, ", GGUF version %u%s\n", gguf_version(f),
            gguf_is_pwri(f) ? " with PowerInfer's magic PWRI" : "");
    if (!s->complete) {
        label(out, "incomplete");
        fputs("tensor data is missing at the end: the model cannot be run\n", out);
    }
}

static void print_shape(const inspect_summary *s, FILE *out) {
    if (s->n_layer < 0 && s->n_embd < 0) return;
    label(out, "shape");
    print_number(out, "", s->n_layer, s->n_layer == 1 ? " layer" : " layers");
    print_number(out, ", n_embd ", s->n_embd, "");
    print_range(out, ", n_ff ", s->n_ff, "");
    print_range(out, ", ", s->n_head, " heads");
    print_number(out, " of ", s->head_dim, "");
    print_range(out, ", ", s->n_head_kv, s->n_head_kv.max == 1 ? " KV head" : " KV heads");
    if (s->n_expert > 0) {
        print_number(out, ", ", s->n_expert, " experts");
        print_number(out, ", ", s->n_expert_used, " used");
    }
    fputc('\n', out);
}

static void print_vocabulary(const inspect_summary *s, FILE *out) {
    if (s->n_vocab < 0 && s->tokenizer.n_bytes == 0) return;
    label(out, "vocabulary");
    print_number(out, "", s->n_vocab, " tokens, ");
    fputs("tokenizer ", out);
    if (s->tokenizer.n_bytes)
        print_text(out, s->tokenizer, SHOWN_ITEM);
    else
        fputs("none", out);
    if (s->pre.n_bytes) {
        fputs(", pre ", out);
        print_text(out, s->pre, SHOWN_ITEM);
    }
    fputs(s->has_chat_template ? ", chat template\n" : "\n", out);
}

static void print_weights(const gguf_file *f, const inspect_summary *s, FILE *out) {
    label(out, "weights");
    if (gguf_n_tensors(f) == 0) {
        fputs("none: vocabulary only\n", out);
        return;
    }
    print_count(out, s->n_params);
    fprintf(out, " parameters in %" PRIu64 " tensors, ", gguf_n_tensors(f));
    print_bytes(out, s->tensor_bytes);
    fprintf(out, ", %.2f bits each\n", 8.0 * (double)s->tensor_bytes / (double)s->n_params);
    label(out, "types");
    for (int i = 0; i < s->n_types; i++) {
        fprintf(out, "%s%s %.1f%%", i ? ", " : "", s->types[i].traits->name,
                100.0 * (double)s->types[i].n_bytes / (double)s->tensor_bytes);
    }
    fputs(" of the bytes\n", out);
}

/* Settings that `tune` stored. */
static void print_tuning(const gguf_file *f, FILE *out) {
    const gguf_value *cpu = gguf_find(f, TUNE_KEY_CPU), *mode = gguf_find(f, TUNE_KEY_MODE);
    const gguf_value *head = gguf_find(f, TUNE_KEY_HEAD);
    const gguf_value *threads = gguf_find(f, TUNE_KEY_THREADS);
    const gguf_value *blocks = gguf_find(f, TUNE_KEY_ATTN_BLOCKS);
    const gguf_value *speed = gguf_find(f, TUNE_KEY_SPEED);
    gguf_string name, word;
    int64_t n;
    double rate;
    if (!cpu || !mode || !gguf_as_string(cpu, &name) || !gguf_as_string(mode, &word)) return;
    label(out, "tuned");
    fputs("mode ", out);
    print_text(out, word, SHOWN_ITEM);
    if (head && gguf_as_string(head, &word) && gguf_string_is(word, "predict"))
        fputs(", head predict", out);
    if (threads && gguf_as_i64(threads, &n) && n > 0)
        print_number(out, ", ", n, n == 1 ? " thread" : " threads");
    if (blocks && gguf_as_i64(blocks, &n) && n > 0)
        print_number(out, ", attention to ", n, " blocks");
    if (speed && gguf_as_f64(speed, &rate)) fprintf(out, ", %.4g tokens/s", rate);
    fputs(" on ", out);
    print_text(out, name, SHOWN_ITEM);
    fputc('\n', out);
}

/* Facts of prepared files. */
static void print_neurons(const inspect_summary *s, FILE *out) {
    const neuron_stats_layer *m = &s->neurons.mean;
    if (m->n_neurons > 0) {
        label(out, s->neurons.units);
        fprintf(
            out,
            "%.1f%% active per token; 50/80/95%% of the activations in %.1f/%.1f/%.1f%% of them\n",
            100 * m->density, 100 * m->share_50, 100 * m->share_80, 100 * m->share_95);
    }
    if (s->bundles.n_layers > 0) {
        const inspect_bundles *b = &s->bundles;
        label(out, "bundles");
        print_range(out, "", b->stride, b->experts ? " bytes per expert, " : " bytes per neuron, ");
        fprintf(out, "%.1f%% of them padding",
                100 - 100 * (double)b->n_own_bytes / (double)b->n_bytes);
        if (b->n_layers < s->n_layer)
            fprintf(out, ", in %d of %" PRId64 " layers", b->n_layers, s->n_layer);
        fputc('\n', out);
    }
    if (s->neurons.tokens > 0) {
        label(out, "calibration");
        fprintf(out, "%" PRId64 " tokens", s->neurons.tokens);
        if (!isnan(s->neurons.loss))
            fprintf(out, ", perplexity %+.2f%% in mode %s", 100 * s->neurons.loss,
                    m->predictor[0] && strcmp(m->predictor, "none") != 0 ? "predict" : "exact");
        fputc('\n', out);
    }
    if (s->has_predictor || m->predictor[0]) {
        label(out, "predictor");
        fputs(m->predictor[0] ? m->predictor : "present (fc1, fc2)", out);
        if (!m->predictor[0]) print_range(out, ", rank ", s->rank, "");
        if (m->predictor[0] && m->rank > 0) fprintf(out, " of rank %" PRIu64, m->rank);
        if (m->predictor[0] && s->neurons.n_same_predictor < s->neurons.n_layers)
            fprintf(out, " in %d of %d layers", s->neurons.n_same_predictor, s->neurons.n_layers);
        if (!isnan(s->predictor_threshold) && s->predictor_threshold != 0)
            fprintf(out, ", threshold %g", s->predictor_threshold);
        if (!isnan(m->selected) && m->selected > 0)
            fprintf(out, ", selects %.1f%%", 100 * m->selected);
        if (!isnan(m->recall) && m->recall > 0)
            fprintf(out, ", contribution recall %.1f%%", 100 * m->recall);
        fputc('\n', out);
    }
}

static void print_head(const inspect_summary *s, FILE *out) {
    if (s->head_rank < 0) return;
    label(out, "output head");
    fprintf(out, "%s of rank %" PRId64,
            s->head_given ? "predictor of the original PowerInfer" : "sketch", s->head_rank);
    if (!isnan(s->head_distance)) fprintf(out, ", distance %g", s->head_distance);
    if (!isnan(s->head_rows))
        fprintf(out, ", computes %.1f%% of the vocabulary", 100 * s->head_rows);
    if (!isnan(s->head_loss)) fprintf(out, ", perplexity %+.2f%%", 100 * s->head_loss);
    fputc('\n', out);
}

static void print_summary(const gguf_file *f, const inspect_summary *s, FILE *out) {
    if (s->name.n_bytes) {
        label(out, "name");
        print_text(out, s->name, SHOWN_STRING);
        fputc('\n', out);
    }
    print_file(f, s, out);
    if (s->prepared_version >= 0) {
        label(out, "prepared");
        fprintf(out, "by PowerInfer in C, version %" PRId64 "\n", s->prepared_version);
    }
    if (s->gpu_index) {
        label(out, "kind");
        fputs("GPU index of the original PowerInfer", out);
        print_number(out, ", of ", s->gpu_layers, s->gpu_layers == 1 ? " layer" : " layers");
        if (s->gpu_bytes >= 0) {
            fputs(", for ", out);
            print_bytes(out, (uint64_t)s->gpu_bytes);
            fputs(" of GPU memory", out);
        }
        fputc('\n', out);
    }
    label(out, "architecture");
    if (s->architecture.n_bytes)
        print_text(out, s->architecture, SHOWN_STRING);
    else
        fputs("not given", out);
    fputc('\n', out);
    print_shape(s, out);
    if (s->activation) {
        label(out, "activation");
        fprintf(out, "%s\n", s->activation);
    }
    print_neurons(s, out);
    print_head(s, out);
    print_tuning(f, out);
    if (s->n_ctx >= 0) {
        label(out, "context");
        print_number(out, "", s->n_ctx, " tokens");
        if (s->kv_bytes > 0) {
            fputs(", for which the KV cache takes ", out);
            print_bytes(out, s->kv_bytes);
            fputs(" (f16)", out);
        }
        fputc('\n', out);
    }
    if (s->state_bytes > 0) {
        label(out, "state");
        print_bytes(out, s->state_bytes);
        fputs(" in recurrent layers, whatever the context\n", out);
    }
    print_vocabulary(s, out);
    print_weights(f, s, out);
    if (s->tried) {
        label(out, "runnable");
        fprintf(out, "%s%s\n", s->runs ? "yes" : "no: ", s->refusal);
    }
}

/* ---- verbose listing ------------------------------------------------------------------------- */

static void print_scalar(FILE *out, const gguf_value *v) {
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    gguf_string s;
    if (gguf_as_string(v, &s))
        print_text(out, s, SHOWN_STRING);
    else if (gguf_as_u64(v, &u))
        fprintf(out, "%" PRIu64, u);
    else if (gguf_as_i64(v, &i))
        fprintf(out, "%" PRId64, i);
    else if (gguf_as_f64(v, &d))
        fprintf(out, "%.9g", d);
    else if (gguf_as_bool(v, &b))
        fputs(b ? "true" : "false", out);
}

static void print_array(FILE *out, const gguf_value *v) {
    const uint8_t *cursor = v->data;
    fprintf(out, "%" PRIu64 " x %s: ", v->count, gguf_value_type_name(v->item_type));
    for (uint64_t i = 0; i < v->count && i < SHOWN_ITEMS; i++) {
        uint64_t u;
        int64_t n;
        double d;
        if (i) fputs(", ", out);
        if (v->item_type == GGUF_STRING) {
            fputc('"', out);
            print_text(out, gguf_next_string(&cursor), SHOWN_ITEM);
            fputc('"', out);
        } else if (v->item_type == GGUF_ARRAY) {
            gguf_value inner = gguf_next_array(&cursor);
            fprintf(out, "[%" PRIu64 " x %s]", inner.count, gguf_value_type_name(inner.item_type));
        } else if (gguf_item_u64(v, i, &u)) {
            fprintf(out, "%" PRIu64, u);
        } else if (gguf_item_i64(v, i, &n)) {
            fprintf(out, "%" PRId64, n);
        } else if (gguf_item_f64(v, i, &d)) {
            fprintf(out, "%.9g", d);
        }
    }
    if (v->count > SHOWN_ITEMS) fputs(", ...", out);
}

static void print_keys(const gguf_file *f, FILE *out) {
    fprintf(out, "\nkeys (%" PRIu64 ")\n", gguf_n_values(f));
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        fputs("  ", out);
        print_text(out, v->key, SHOWN_STRING);
        fprintf(out, " (%s) = ", gguf_value_type_name(v->type));
        if (v->type == GGUF_ARRAY)
            print_array(out, v);
        else
            print_scalar(out, v);
        fputc('\n', out);
    }
}

static void print_tensors(const gguf_file *f, FILE *out) {
    fprintf(out, "\ntensors (%" PRIu64 "): name, type, shape (contiguous first), offset, bytes%s\n",
            gguf_n_tensors(f), gguf_n_parts(f) > 1 ? ", part" : "");
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        char shape[96];
        int n = 0;
        for (int d = 0; d < t->n_dims; d++) {
            n += snprintf(shape + n, sizeof shape - (size_t)n, d ? " x %" PRIu64 : "%" PRIu64,
                          t->dims[d]);
        }
        fputs("  ", out);
        gguf_string name = {.data = t->name};
        while (t->name[name.n_bytes]) name.n_bytes++;
        print_text(out, name, GGUF_MAX_NAME);
        fprintf(out, "%*s %-7s %-18s %12" PRIu64 " %12zu",
                name.n_bytes < 28 ? 28 - (int)name.n_bytes : 0, "",
                quant_find((uint32_t)t->type)->name, shape, t->file_offset, t->n_bytes);
        if (gguf_n_parts(f) > 1) fprintf(out, " %4d", t->part + 1);
        fputc('\n', out);
    }
}

static void print_percent(FILE *out, double share, int width) {
    if (isnan(share))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.2f", width, 100 * share);
}

static void print_layers(const neuron_stats *n, FILE *out) {
    if (n->n_layers == 0) return;
    fprintf(out,
            "\n%s (%d layers): those with 50, 80, 95%% of the activations, those active per "
            "token,\npredictor, its rank, those it selects, contribution recall; in %%\n",
            n->units, n->n_layers);
    fprintf(out, "  %5s %6s %6s %6s %6s  %-10s %5s %6s %6s\n", "layer", "50", "80", "95", "fire",
            "predictor", "rank", "select", "recall");
    for (int i = 0; i < n->n_layers; i++) {
        const neuron_stats_layer *l = &n->layers[i];
        const double nothing = (double)NAN;
        bool known = l->n_neurons > 0;
        fprintf(out, "  %5d", i);
        print_percent(out, known ? l->share_50 : nothing, 6);
        print_percent(out, known ? l->share_80 : nothing, 6);
        print_percent(out, known ? l->share_95 : nothing, 6);
        print_percent(out, known ? l->density : nothing, 6);
        fprintf(out, "  %-10s %5" PRIu64, l->predictor[0] ? l->predictor : "-", l->rank);
        print_percent(out, l->selected, 6);
        print_percent(out, l->recall, 6);
        fputc('\n', out);
    }
}

void inspect_write_text(const gguf_file *f, const inspect_summary *s, bool verbose, FILE *out) {
    print_summary(f, s, out);
    if (!verbose) return;
    print_layers(&s->neurons, out);
    print_keys(f, out);
    print_tensors(f, out);
}
