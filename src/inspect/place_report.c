/* place_report.c: a placement as JSON (a stable form, see docs/placement.md) and as text. */
#include <inttypes.h>
#include <string.h>

#include "json_writer.h"
#include "place_tool.h"
#include "printable.h"

static const char *const primary_names[PLAN_SIDES] = {"cpu", "gpu"};

/* Whether experts are placed: some layer has experts. */
static bool places_experts(const place_workload *w) {
    for (int i = 0; i < w->n_layers; i++)
        if (w->layers[i].experts) return true;
    return false;
}

/* Nothing is read, or the drive has been measured. */
static bool is_known(const place_memory *m) {
    return m->drive > 0 || !(m->bytes > 0);
}

static void put_memory(json_writer *w, const place_memory *m) {
    json_put_object(w, "memory");
    json_put_int(w, "budget_bytes", (int64_t)m->budget);
    json_put_int(w, "needed_bytes", (int64_t)m->needed);
    json_put_int(w, "buffer_bytes", (int64_t)m->beside);
    json_put_int(w, "weight_bytes", (int64_t)m->weights);
    json_put_number(w, "drive_reads", m->reads);
    json_put_number(w, "drive_read", m->bytes);
    if (is_known(m)) json_put_number(w, "drive", m->drive);
    if (is_known(m)) json_put_number(w, "seconds_per_token", m->seconds);
    json_end_object(w);
}

/* The parts of several GPUs; "reaches": the other GPUs whose memory a GPU writes to directly. */
static void put_devices(json_writer *w, const place_report *r) {
    json_put_array(w, "devices");
    for (int i = 0, first = 0; i < r->n_devices; first = r->end[i++]) {
        json_put_object(w, NULL);
        json_put_int(w, "budget_bytes", (int64_t)r->budgets[i]);
        json_put_int(w, "gpu_bytes", (int64_t)r->prediction->on_device[i]);
        json_put_int(w, "first_layer", first);
        json_put_int(w, "end_layer", r->end[i]);
        if (r->peers) {
            json_put_array(w, "reaches");
            for (int k = 0; k < r->n_devices; k++)
                if (k != i && r->peers[i] >> k & 1) json_put_int(w, NULL, k);
            json_end_array(w);
        }
        json_end_object(w);
    }
    json_end_array(w);
}

void place_write_json(const place_report *r, FILE *out) {
    const place_prediction *t = r->prediction;
    json_writer w;
    json_begin(&w, out);
    json_put_object(&w, NULL);
    json_put_int(&w, "budget_bytes", r->budget > INT64_MAX ? INT64_MAX : (int64_t)r->budget);
    json_put_text(&w, "unit", places_experts(r->work) ? "expert" : "neuron");
    json_put_array(&w, "layers");
    for (int i = 0; i < r->plan->n_layers; i++) {
        const plan_split *split = &r->plan->splits[i];
        json_put_object(&w, NULL);
        json_put_text(&w, "attn", primary_names[split->primary]);
        json_put_int(&w, "hot", split->hot);
        json_put_int(&w, "of", r->work->layers[i].n);
        if (r->n_devices > 1) {
            json_put_int(&w, "device", split->device);
            json_put_array(&w, "helpers"); /* for each GPU, its neurons as a helper */
            for (int k = 0; k < r->n_devices; k++) json_put_int(&w, NULL, split->helpers[k]);
            json_end_array(&w);
        }
        json_end_object(&w);
    }
    json_end_array(&w);
    json_put_text(&w, "head", primary_names[r->plan->head]);
    json_put_text(&w, "kv", primary_names[place_kv_primary(r->work, r->plan)]);
    json_put_text(&w, "predictor", primary_names[place_predictor_primary(r->work, r->plan)]);
    json_put_int(&w, "gpu_bytes", (int64_t)t->resident[SIDE_GPU]);
    json_put_int(&w, "cpu_bytes", (int64_t)t->resident[SIDE_CPU]);
    json_put_number(&w, "gpu_read", t->read[SIDE_GPU]);
    json_put_number(&w, "cpu_read", t->read[SIDE_CPU]);
    json_put_number(&w, "seconds_per_token", t->seconds);
    if (r->prompt_seconds > 0) {
        json_put_object(&w, "prompt");
        json_put_int(&w, "tokens", PLACE_PROMPT_TOKENS);
        json_put_int(&w, "batch", r->n_batch);
        json_put_int(&w, "copied_bytes", (int64_t)r->prompt_copies);
        json_put_number(&w, "seconds", r->prompt_seconds);
        json_end_object(&w);
    }
    json_put_object(&w, "terms");
    json_put_number(&w, "always", t->always);
    json_put_number(&w, "gpu", t->gpu);
    json_put_number(&w, "cpu", t->cpu);
    json_put_number(&w, "sync", t->sync);
    json_put_number(&w, "head", t->head);
    json_put_number(&w, "kv", t->kv);
    json_end_object(&w);
    if (r->n_devices > 1) put_devices(&w, r);
    if (r->memory) put_memory(&w, r->memory);
    json_end_object(&w);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const double MIB = 1048576, MS = 1e3;

/* Both devices compute neurons (experts) at the same time: the slower device is the limit. */
const char *place_bound_name(const place_workload *work, const place_prediction *p) {
    bool experts = places_experts(work);
    const struct {
        const char *name;
        double seconds;
    } terms[] = {
        {"attention, norms and predictor", p->always},
        {experts ? "experts on the GPU" : "neurons on the GPU", p->gpu >= p->cpu ? p->gpu : 0},
        {experts ? "experts on the CPU" : "neurons on the CPU", p->cpu > p->gpu ? p->cpu : 0},
        {"exchanges between CPU and GPU", p->sync},
        {"the head", p->head},
        {"the KV cache", p->kv},
    };
    size_t most = 0;
    for (size_t i = 1; i < sizeof terms / sizeof *terms; i++)
        if (terms[i].seconds > terms[most].seconds) most = i;
    return terms[most].name;
}

static void write_rates(const place_machine *m, int d, FILE *out) {
    fprintf(out, "%s: streams %.1f GB/s, gathers %.1f GB/s", primary_names[d],
            m->device[d].stream_gbps, m->device[d].gather_gbps);
}

static void write_drive(const place_report *r, const char *before, FILE *out) {
    const place_machine *m = r->machine;
    if (m->drive_gbps > 0)
        fprintf(out, "%sdrive: streams %.2f GB/s, %.0f reads/s of %d KiB, %.1f us each", before,
                m->drive_gbps, m->drive_reads, PLACE_DRIVE_READ / 1024, 1e6 / m->drive_reads);
}

static void write_machine(const place_report *r, FILE *out) {
    fprintf(out, "machine ");
    write_rates(r->machine, SIDE_GPU, out);
    fprintf(out, "\n        ");
    write_rates(r->machine, SIDE_CPU, out);
    write_drive(r, "\n        ", out);
    fprintf(out, "\n        profile %s%s\n", r->machine->name,
            r->machine->shared ? ", one memory for both" : "");
}

/* Prints the line on a memory budget. */
static void write_memory(const place_memory *m, FILE *out) {
    const double gib = 1 << 30;
    fprintf(out,
            "memory budget %.3f GiB (at least %.3f): weights %.3f, buffers and KV cache %.3f; %.0f "
            "reads and %.2f MB per token from the drive",
            (double)m->budget / gib, (double)m->needed / gib, (double)m->weights / gib,
            (double)m->beside / gib, m->reads, m->bytes / 1e6);
    if (is_known(m))
        fprintf(out, ", %.3f ms: predicted %.2f tokens/s\n", MS * m->drive, 1 / m->seconds);
    else
        fprintf(out, ", which has not been measured\n");
}

/* Without a GPU there is nothing to place. */
static void write_without_gpu(const place_report *r, FILE *out) {
    const place_prediction *t = r->prediction;
    fprintf(out,
            "no GPU: all of %s (%.1f MiB with its KV cache) is on the CPU, predicted %.2f "
            "tokens/s in mode %s (",
            r->model_name, (double)t->resident[SIDE_CPU] / MIB, 1 / t->seconds, r->mode);
    write_rates(r->machine, SIDE_CPU, out);
    write_drive(r, "; ", out);
    fprintf(out,
            "; profile %s)\nwith the profile of another machine, such as rtx-4090-ddr5, this shows "
            "what its GPU would hold, and the speed\n",
            r->machine->name);
}

/* Equal neighbouring layers share a line. */
static void write_layers(const place_report *r, FILE *out) {
    fprintf(out, "\n%-9s %-9s %-19s %10s %8s %8s %8s %8s\n", "layers", "attention",
            places_experts(r->work) ? "experts on the GPU" : "neurons on the GPU", "always ms",
            "kv ms", "gpu ms", "cpu ms", "sync ms");
    for (int i = 0, end; i < r->plan->n_layers; i = end) {
        const plan_split *c = &r->plan->splits[i];
        const place_layer_time *t = &r->layers[i];
        int64_t n = r->work->layers[i].n;
        for (end = i + 1; end < r->plan->n_layers; end++) {
            const plan_split *next = &r->plan->splits[end];
            if (!plan_split_same(next, c)) break;
        }
        char range[32], where[72];
        snprintf(range, sizeof range, end - i > 1 ? "%d-%d" : "%d", i, end - 1);
        int64_t helpers = plan_split_end(c) - c->hot;
        int at = snprintf(where, sizeof where, "%" PRId64, c->hot);
        if (helpers > 0)
            at += snprintf(where + at, sizeof where - (size_t)at, "+%" PRId64, helpers);
        snprintf(where + at, sizeof where - (size_t)at, " of %" PRId64, n);
        fprintf(out, "%-9s %-9s %-19s %10.3f %8.3f %8.3f %8.3f %8.3f\n", range,
                primary_names[c->primary], where, MS * t->always, MS * t->kv, MS * t->gpu,
                MS * t->cpu, MS * t->sync);
    }
    fprintf(out, "%-9s %-9s %-19s %10.3f\n", "head", primary_names[r->plan->head], "",
            MS * r->prediction->head);
}

static void write_bytes(const place_report *r, FILE *out) {
    const place_prediction *t = r->prediction;
    fprintf(out, "\n%-8s %12s %12s %12s %12s %12s %14s\n", "MiB", "weights", "KV cache", "buffers",
            "runtime", "resident", "read per token");
    for (int d = PLAN_SIDES - 1; d >= 0; d--) {
        bool gpu = d == SIDE_GPU;
        fprintf(out, "%-8s %12.1f %12.1f %12.1f %12.1f %12.1f %14.1f\n", primary_names[d],
                (double)t->weights[d] / MIB, (double)t->kv_cache[d] / MIB,
                gpu ? (double)t->scratch / MIB : 0, gpu ? (double)t->runtime / MIB : 0,
                (double)t->resident[d] / MIB, t->read[d] / MIB);
    }
    if (r->n_devices == 1)
        fprintf(out, "budget %.1f MiB, including a margin of %.1f MiB\n", (double)r->budget / MIB,
                (double)t->margin / MIB);
    for (int i = 0, first = 0; i < r->n_devices && r->n_devices > 1; first = r->end[i++]) {
        fprintf(out, "GPU %d: %.1f of %.1f MiB", i, (double)t->on_device[i] / MIB,
                (double)r->budgets[i] / MIB);
        if (r->end[i] > first) fprintf(out, ", layers %d-%d", first, r->end[i] - 1);
        if (i > 0 && r->peers)
            fprintf(out, ", %s GPU %d", r->peers[i - 1] >> i & 1 ? "reached by" : "not reached by",
                    i - 1);
        fputc('\n', out);
    }
    if (r->n_devices > 1)
        fprintf(out,
                "layers are divided for %d positions, a run of fewer tokens may divide them "
                "otherwise\n",
                (int)r->n_ctx);
}

void place_write_text(const place_report *r, FILE *out) {
    const place_prediction *t = r->prediction;
    double slack = 1 - r->plan->bound / t->seconds;
    if (!r->machine->has_gpu) {
        write_without_gpu(r, out);
        if (r->memory) write_memory(r->memory, out);
        return;
    }
    fprintf(out, "%-8s", "model");
    printable_print(out, r->model_name, strlen(r->model_name));
    fprintf(out, ", mode %s, context %d\n", r->mode, (int)r->n_ctx);
    write_machine(r, out);
    write_layers(r, out);
    write_bytes(r, out);
    fprintf(out,
            "\npredicted: %.2f tokens/s (%.3f ms per token, %d tokens before it): always %.3f, "
            "%s gpu %.3f | cpu %.3f, sync %.3f (%" PRId64 " exchanges), head %.3f, kv %.3f\n",
            1 / t->seconds, MS * t->seconds, (int)r->depth, MS * t->always,
            places_experts(r->work) ? "experts" : "neurons", MS * t->gpu, MS * t->cpu, MS * t->sync,
            t->exchanges, MS * t->head, MS * t->kv);
    fprintf(out, "bound by: %s\n", place_bound_name(r->work, t));
    if (r->prompt_seconds > 0)
        fprintf(out,
                "prompt of %d tokens: at most %.0f tokens/s in ubatches of %d, each copies %.1f "
                "MiB to the GPU\n",
                PLACE_PROMPT_TOKENS, PLACE_PROMPT_TOKENS / r->prompt_seconds, (int)r->n_batch,
                (double)r->prompt_copies / MIB);
    fprintf(out, "optimality gap: at most %.3f%%\n", slack > 0 ? 100 * slack : 0);
    if (r->memory) write_memory(r->memory, out);
}
