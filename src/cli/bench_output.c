/* bench_output.c: one list of fields serves JSON, JSON lines and CSV. The table shows the columns
 * that fit into BENCH_COLUMNS, with -v all columns. */
#include "bench_output.h"

#include <string.h>

#include "json_writer.h"
#include "mem.h"
#include "os_text.h"
#include "utf8_length.h"

enum { MIB = 1 << 20 };

/* ---- fields ---------------------------------------------------------------------------------- */

typedef enum field_kind {
    FIELD_CHARS,
    FIELD_STRING,
    FIELD_INT,
    FIELD_COUNT,
    FIELD_NUMBER,
    FIELD_BOOL
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset; /* in a bench_row */
} field;

#define ROW(kind_, name_)                                                                          \
    { #name_, FIELD_##kind_, offsetof(bench_row, name_) }
#define RESULT(kind_, name_)                                                                       \
    { #name_, FIELD_##kind_, offsetof(bench_row, result.name_) }

/* clang-format off */
static const field fields[] = {
    ROW(CHARS, model),
    ROW(INT, threads),
    ROW(INT, n_batch),
    ROW(STRING, cache_type_k),
    ROW(STRING, cache_type_v),
    ROW(INT, gpu_layers),
    RESULT(CHARS, test),
    RESULT(INT, depth),
    RESULT(INT, parallel),
    RESULT(STRING, mode),
    RESULT(STRING, device),
    RESULT(NUMBER, tps),
    RESULT(NUMBER, tps_min),
    RESULT(NUMBER, tps_max),
    RESULT(NUMBER, tps_stddev),
    RESULT(NUMBER, bytes_per_token),
    RESULT(NUMBER, gbps),
    RESULT(NUMBER, read_gbps),
    RESULT(NUMBER, gather_gbps),
    RESULT(NUMBER, bandwidth_share),
    RESULT(NUMBER, floor_share),
    RESULT(NUMBER, ffn_density),
    RESULT(NUMBER, drive_reads),
    RESULT(NUMBER, drive_bytes),
    RESULT(NUMBER, drive_gbps),
    RESULT(NUMBER, drive_share),
    RESULT(NUMBER, drive_busy),
    RESULT(NUMBER, cache_hits),
    RESULT(NUMBER, cache_misses),
    RESULT(NUMBER, drive_ahead),
    RESULT(NUMBER, drive_in_vain),
    RESULT(STRING, drafts),
    RESULT(NUMBER, tokens_per_step),
    RESULT(NUMBER, speedup),
    RESULT(COUNT, n_drafted),
    RESULT(COUNT, n_accepted),
    ROW(BOOL, in_cache),
};
/* clang-format on */
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static const void *value_of(const bench_row *row, const field *f) {
    return (const char *)row + f->offset;
}

static const char *text_of(const bench_row *row, const field *f) {
    if (f->kind == FIELD_CHARS) return value_of(row, f);
    const char *text = *(const char *const *)value_of(row, f);
    return text ? text : "";
}

static void put_row(json_writer *w, const bench_row *row) {
    json_put_object(w, NULL);
    for (int i = 0; i < N_FIELDS; i++) {
        const field *f = &fields[i];
        switch (f->kind) {
        case FIELD_CHARS:
        case FIELD_STRING:
            json_put_text(w, f->name, text_of(row, f));
            break;
        case FIELD_INT:
            json_put_int(w, f->name, *(const int32_t *)value_of(row, f));
            break;
        case FIELD_COUNT:
            json_put_int(w, f->name, (int64_t) * (const uint64_t *)value_of(row, f));
            break;
        case FIELD_NUMBER:
            json_put_number(w, f->name, *(const double *)value_of(row, f));
            break;
        case FIELD_BOOL:
            json_put_bool(w, f->name, *(const bool *)value_of(row, f));
        }
    }
    json_end_object(w);
}

/* ---- JSON, JSON lines, CSV ------------------------------------------------------------------- */

static void put_traced(json_writer *w, const pi_bench_report *r) {
    json_put_array(w, "traced");
    for (int32_t i = 0; i < r->n_traced; i++) {
        const pi_trace_summary *t = &r->traced[i];
        json_put_object(w, NULL);
        json_put_int(w, "tokens", t->n_tokens);
        json_put_number(w, "seconds", t->seconds);
        json_put_number(w, "cpu_seconds", t->cpu_seconds);
        json_put_number(w, "gpu_seconds", t->gpu_seconds);
        json_put_number(w, "both_seconds", t->both_seconds);
        json_put_number(w, "overlap", t->overlap);
        json_put_int(w, "split_layers", t->n_split);
        json_put_number(w, "split_overlap", t->split_overlap);
        json_put_number(w, "exchange_seconds", t->exchange_seconds);
        json_put_number(w, "clock_error", t->clock_error);
        json_end_object(w);
    }
    json_end_array(w);
}

void bench_put_ranks(json_writer *w, const pi_rank *ranks, int n) {
    json_put_array(w, "ranks");
    for (int i = 0; i < n; i++) {
        const pi_rank *r = &ranks[i];
        json_put_object(w, NULL);
        json_put_text(w, "host", r->host);
        json_put_int(w, "first_layer", r->first_layer);
        json_put_int(w, "end_layer", r->end_layer);
        json_put_int(w, "weight_bytes", (int64_t)r->weight_bytes);
        json_put_number(w, "predicted_seconds", r->predicted_seconds);
        json_put_number(w, "predicted_prefill_seconds", r->predicted_prefill_seconds);
        json_put_int(w, "predicted_tokens", r->predicted_tokens);
        json_put_number(w, "computing", r->computing);
        json_put_number(w, "waiting", r->waiting);
        json_put_number(w, "sending", r->sending);
        json_put_int(w, "sent_bytes", (int64_t)r->sent_bytes);
        json_put_int(w, "ubatches", (int64_t)r->ubatches);
        json_end_object(w);
    }
    json_end_array(w);
}

/* With several models, "model" is the first one; each result names its model. */
static void print_json(FILE *out, const bench_results *r) {
    const pi_bench_report *m = &r->last;
    json_writer w;
    json_begin(&w, out);
    json_put_object(&w, NULL);
    json_put_text(&w, "model", r->n > 0 ? r->rows[0].model : "");
    json_put_object(&w, "machine");
    json_put_text(&w, "cpu", m->cpu);
    json_put_int(&w, "threads", m->threads);
    json_put_number(&w, "read_gbps", m->read_gbps);
    json_put_number(&w, "gather_gbps", m->gather_gbps);
    json_put_int(&w, "cache_bytes", (int64_t)m->cache_bytes);
    json_put_int(&w, "yardstick_bytes", (int64_t)m->yardstick_bytes);
    json_put_int(&w, "yardstick_wanted", (int64_t)m->yardstick_wanted);
    json_end_object(&w);
    json_put_array(&w, "results");
    for (size_t i = 0; i < r->n; i++) put_row(&w, &r->rows[i]);
    json_end_array(&w);
    if (m->n_ranks > 0) bench_put_ranks(&w, m->ranks, m->n_ranks);
    if (m->n_traced > 0) put_traced(&w, m);
    json_end_object(&w);
}

/* Removes the JSON writer's newlines and the spaces after them; strings have no newlines. */
static void print_jsonl(FILE *out, const bench_row *row) {
    os_text t;
    if (!os_text_open(&t)) return;
    json_writer w;
    json_begin(&w, t.file);
    put_row(&w, row);
    bool whole = os_text_close(&t);
    for (const char *p = whole ? t.text : ""; *p; p++) {
        if (*p == '\n')
            p += strspn(p + 1, " ");
        else
            fputc(*p, out);
    }
    mem_free(t.text);
    fputc('\n', out);
}

/* RFC 4180: quoted, quotes doubled. */
static void put_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void print_csv(FILE *out, const bench_results *r) {
    for (int i = 0; i < N_FIELDS; i++) fprintf(out, "%s%s", i ? "," : "", fields[i].name);
    fputc('\n', out);
    for (size_t k = 0; k < r->n; k++) {
        for (int i = 0; i < N_FIELDS; i++) {
            const field *f = &fields[i];
            const void *value = value_of(&r->rows[k], f);
            if (i) fputc(',', out);
            if (f->kind == FIELD_INT)
                fprintf(out, "%d", (int)*(const int32_t *)value);
            else if (f->kind == FIELD_COUNT)
                fprintf(out, "%llu", (unsigned long long)*(const uint64_t *)value);
            else if (f->kind == FIELD_NUMBER)
                fprintf(out, "%.9g", *(const double *)value);
            else if (f->kind == FIELD_BOOL)
                fputs(*(const bool *)value ? "true" : "false", out);
            else
                put_quoted(out, text_of(&r->rows[k], f));
        }
        fputc('\n', out);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Prints at most `most` columns of a text; characters stay whole. */
static void print_cut(FILE *out, const char *text, size_t most) {
    size_t n = strlen(text), columns = 0, end = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (columns <= most) {
        fputs(text, out);
        return;
    }
    for (size_t seen = 0; end < n; end++) {
        if (((unsigned char)text[end] & 0xC0) != 0x80 && seen++ == most - 3) break;
    }
    fprintf(out, "%.*s...", (int)end, text);
}

/* Prints "head: name, rest" on one line, at most as wide as the table. */
static void print_head(FILE *out, const char *head, const char *name, const char *rest,
                       bool verbose) {
    size_t used = strlen(head) + strlen(rest), most = verbose ? strlen(name) : 0;
    if (!verbose) most = used + 8 < BENCH_COLUMNS ? BENCH_COLUMNS - used : 8;
    fputs(head, out);
    print_cut(out, name, most > 3 ? most : 4);
    fprintf(out, "%s\n", rest);
}

static bool same_section(const bench_row *a, const bench_row *b) {
    return strcmp(a->model, b->model) == 0 && a->weight_bytes == b->weight_bytes &&
           a->n_batch == b->n_batch && a->gpu_layers == b->gpu_layers &&
           strcmp(a->cache_type_k, b->cache_type_k) == 0 &&
           strcmp(a->cache_type_v, b->cache_type_v) == 0;
}

static void print_section(FILE *out, const bench_row *row, bool options, bool verbose) {
    char rest[160];
    double mib = (double)row->weight_bytes / MIB, millions = (double)row->n_params / 1e6;
    snprintf(rest, sizeof rest, ", %.14s %.12s, %.1f %s, %.1f%s params", row->architecture,
             row->type, mib < 1e4 ? mib : mib / 1024, mib < 1e4 ? "MiB" : "GiB",
             millions < 1e4 ? millions : millions / 1e3, millions < 1e4 ? "M" : "B");
    print_head(out, "model:   ", row->model, rest, verbose);
    if (options) {
        fprintf(out, "options: batch %d, KV cache %s and %s", (int)row->n_batch, row->cache_type_k,
                row->cache_type_v);
        if (row->gpu_layers >= 0) fprintf(out, ", %d layers on the GPU", (int)row->gpu_layers);
        fputc('\n', out);
    }
    if (verbose)
        fputs("\n| test     |  depth |   t | mode      | device |             tokens/s |"
              " MB/token |    GB/s | read GB/s | rows GB/s | bandwidth | of floor | ffn read |\n"
              "|----------|-------:|----:|-----------|--------|---------------------:|"
              "---------:|--------:|----------:|----------:|----------:|---------:|---------:|\n",
              out);
    else
        fputs("\n| test     |  depth |   t | mode      |          tokens/s |    GB/s | of floor |\n"
              "|----------|-------:|----:|-----------|------------------:|--------:|---------:|\n",
              out);
}

static void share_text(const bench_row *row, double share, char buf[16]) {
    if (share <= 0)
        snprintf(buf, 16, "-");
    else if (row->in_cache)
        snprintf(buf, 16, "in cache");
    else
        snprintf(buf, 16, "%.1f%%", 100 * share);
}

static void print_row(FILE *out, const bench_row *row, bool verbose) {
    const pi_bench_result *b = &row->result;
    char speed[64], floor[16], bandwidth[16];
    int digits = b->tps_max < 1000 ? 2 : 0; /* thousands fit */
    char test[32];
    int end = snprintf(test, sizeof test, "%s", b->test);
    if (b->parallel > 1) snprintf(test + end, sizeof test - (size_t)end, " x%d", (int)b->parallel);
    if (b->drafts && strcmp(b->drafts, "off") != 0)
        snprintf(test + end, sizeof test - (size_t)end, " +d");
    snprintf(speed, sizeof speed, "%.*f ± %.*f", digits, b->tps, digits, b->tps_stddev);
    share_text(row, b->floor_share, floor);
    share_text(row, b->bandwidth_share, bandwidth);
    fprintf(out, "| %-8s | %6d | %3d | %-9s |", test, (int)b->depth, (int)row->threads, b->mode);
    /* "±" is two bytes and one column. */
    if (verbose)
        fprintf(out, " %-6s | %21s | %8.1f | %7.2f | %9.1f | %9.1f | %9s | %8s | %7.1f%% |\n",
                b->device, speed, b->bytes_per_token / 1e6, b->gbps, b->read_gbps, b->gather_gbps,
                bandwidth, floor, 100 * b->ffn_density);
    else
        fprintf(out, " %18s | %7.2f | %8s |\n", speed, b->gbps, floor);
}

/* The division of a memory budget, and the reads from the drive of every test. */
static void print_memory(FILE *out, const bench_results *r) {
    const pi_memory *m = &r->last.memory;
    fprintf(out,
            "\nmemory: %.0f of %.0f MiB: buffers %.0f, always %.0f, pinned %.0f, ring %.0f, cache "
            "%.0f\n",
            (double)(m->buffers + m->always + m->pinned + m->ring + m->cache) / MIB,
            (double)m->budget / MIB, (double)m->buffers / MIB, (double)m->always / MIB,
            (double)m->pinned / MIB, (double)m->ring / MIB, (double)m->cache / MIB);
    for (size_t i = 0; i < r->n; i++) {
        const pi_bench_result *b = &r->rows[i].result;
        if (!(b->drive_reads > 0)) continue;
        fprintf(out,
                "%-8s drive: %.1f reads and %.2f MB per token, %.0f%% of %.2f GB/s, "
                "busy %.0f%% of the time",
                b->test, b->drive_reads, b->drive_bytes / 1e6, 100 * b->drive_share, b->drive_gbps,
                100 * b->drive_busy);
        if (b->cache_misses > 0)
            fprintf(out, "; cache hits %.1f%%, %.1f misses per token", 100 * b->cache_hits,
                    b->cache_misses);
        if (b->drive_ahead > 0)
            fprintf(out, "; %.1f read ahead, %.0f%% of them used", b->drive_ahead,
                    100 * (1 - b->drive_in_vain / b->drive_ahead));
        fputc('\n', out);
    }
}

/* Tests with drafts, each after its test without them. */
static void print_drafts(FILE *out, const bench_results *r) {
    for (size_t i = 0; i < r->n; i++) {
        const pi_bench_result *b = &r->rows[i].result;
        if (!b->drafts || strcmp(b->drafts, "off") == 0) continue;
        fprintf(out,
                "\n%s with %s drafts: %.2f tokens/s, %.2f of the speed without drafts;\n"
                "%.2f tokens per step, ",
                b->test, b->drafts, b->tps, b->speedup, b->tokens_per_step);
        if (b->n_drafted > 0)
            fprintf(out, "%llu of %llu drafted tokens accepted (%.0f%%)\n",
                    (unsigned long long)b->n_accepted, (unsigned long long)b->n_drafted,
                    100.0 * (double)b->n_accepted / (double)b->n_drafted);
        else
            fprintf(out, "no token drafted\n");
    }
}

/* Warnings about the shares of bandwidth. */
static void print_notes(FILE *out, const bench_results *r) {
    const pi_bench_report *m = &r->last;
    bool cached = false;
    for (size_t i = 0; i < r->n; i++) cached = cached || r->rows[i].in_cache;
    if (cached)
        fprintf(out,
                "\nin cache: the weights are below twice the last-level cache (%.0f MiB),\n"
                "so bandwidth shares are not meaningful.\n",
                (double)m->cache_bytes / MIB);
    if (m->memory.budget)
        print_memory(out, r);
    else if (m->yardstick_bytes == 0)
        fprintf(out, "\nToo little memory is free to measure bandwidth: no shares.\n");
    else if (m->yardstick_bytes < m->yardstick_wanted)
        fprintf(
            out,
            "\nBandwidth was measured over %.0f instead of %.0f MiB, as little memory is free:\n"
            "more of it is read from cache, so shares may be too low.\n",
            (double)m->yardstick_bytes / MIB, (double)m->yardstick_wanted / MIB);
}

static void print_table(FILE *out, const bench_results *r, bool verbose) {
    const pi_bench_report *m = &r->last;
    bool options = verbose;
    char rest[96];
    for (size_t i = 1; i < r->n; i++) options = options || !same_section(&r->rows[0], &r->rows[i]);
    rest[0] = 0;
    if (m->read_gbps > 0)
        snprintf(rest, sizeof rest, ", reads %.1f GB/s, rows %.1f GB/s", m->read_gbps,
                 m->gather_gbps);
    print_head(out, "machine: ", m->cpu, rest, verbose);
    for (size_t i = 0; i < r->n; i++) {
        if (i == 0 || !same_section(&r->rows[i - 1], &r->rows[i])) {
            if (i > 0) fputc('\n', out);
            print_section(out, &r->rows[i], options, verbose);
        }
        print_row(out, &r->rows[i], verbose);
    }
    print_drafts(out, r);
    print_notes(out, r);
}

void bench_print(FILE *out, const bench_results *r, bench_format format, bool verbose) {
    switch (format) {
    case BENCH_MD:
        print_table(out, r, verbose);
        break;
    case BENCH_JSON:
        print_json(out, r);
        break;
    case BENCH_JSONL:
        for (size_t i = 0; i < r->n; i++) print_jsonl(out, &r->rows[i]);
        break;
    case BENCH_CSV:
        print_csv(out, r);
    }
}

void bench_print_traced(FILE *out, const char *path, const pi_bench_report *r) {
    fprintf(out, "\ntimeline in %s:\n", path);
    for (int32_t i = 0; i < r->n_traced; i++) {
        const pi_trace_summary *t = &r->traced[i];
        fprintf(out, "%5d %s in %.3f ms: CPU busy %.3f ms, GPU %.3f ms", (int)t->n_tokens,
                t->n_tokens == 1 ? "token " : "tokens", 1e3 * t->seconds, 1e3 * t->cpu_seconds,
                1e3 * t->gpu_seconds);
        if (t->gpu_seconds > 0)
            fprintf(out, ", both %.3f ms (overlap %.0f%%)", 1e3 * t->both_seconds,
                    100 * t->overlap);
        fputc('\n', out);
        if (t->n_split > 0)
            fprintf(out, "      %d split layers: overlap %.0f%%, exchange %.1f us per layer\n",
                    (int)t->n_split, 100 * t->split_overlap, 1e6 * t->exchange_seconds);
    }
}
