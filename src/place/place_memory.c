/* place_memory.c: reads from the drive per token.
 *
 *   T = T in memory + long reads / BW + single reads * cost of a read
 *
 * The model assumes no overlap of reads and computation: on the measured machines, reads cost as
 * much CPU time and memory bandwidth as overlap saves (docs/memory.md). Long reads are the matrices
 * that are streamed through the ring. Experts and neurons in bundles are in memory if their
 * probability of being selected exceeds a limit common to all layers; each of the others is read
 * when selected. */
#include "place_memory.h"

#include <math.h>

/* Seconds of one read of n_bytes among many, interpolated linearly between the two known rates; 0:
 * no known rate. */
static double read_seconds(const place_machine *m, double n_bytes) {
    if (!(m->drive_gbps > 0)) return 0;
    const double long_read = PLACE_DRIVE_LONG;
    double per_long = long_read / (m->drive_gbps * 1e9), per_short = 1 / m->drive_reads;
    double slope = (per_long - per_short) / (long_read - PLACE_DRIVE_READ);
    double seconds = per_short + (n_bytes - PLACE_DRIVE_READ) * slope;
    return fmax(seconds, n_bytes / (m->drive_gbps * 1e9));
}

/* ---- groups in memory ------------------------------------------------------------------------ */

/* Groups in memory, and reads of the other groups. */
typedef struct kept {
    double bytes;        /* in memory */
    double reads, moved; /* reads of the other groups per token; bytes */
    double seconds;      /* drive time for these reads */
} kept;

/* Whether groups of a layer are read one by one when selected. */
static bool is_picked(const model *m, const place_layer *l, int layer, bool experts) {
    if (l->experts != experts || l->n == 0) return false;
    return experts || (m->layers[layer].bundle && l->predictor_bytes > 0);
}

/* Bytes of a group in the file. */
static double bytes_of(const model *m, const place_layer *l, int layer) {
    return l->experts ? (double)l->unit_bytes : (double)m->layers[layer].t[ROLE_FFN_UP].row_bytes;
}

/* Reads of an expert's bundle: gate and up, then down. */
static double bundle_reads(const model_layer *l, int64_t n_expert) {
    const model_tensor *down =
        &l->t[l->t[ROLE_EXPERT_DOWN].data ? ROLE_EXPERT_DOWN : ROLE_EXPERT_DOWN_T];
    double n_down = (double)down->n_bytes / (double)n_expert;
    return ceil(((double)l->expert_bundle->dims[0] - n_down) / PLACE_DRIVE_LONG) +
           ceil(n_down / PLACE_DRIVE_LONG);
}

/* Reads of a group: one for a bundle of neurons (at most: the engine joins reads of neighbours);
 * one per matrix of an expert (two if bundled), in pieces. */
static double reads_of(const model *m, const place_layer *l, int layer) {
    static const tensor_role roles[] = {ROLE_EXPERT_GATE_UP, ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
                                        ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN_T};
    double n = 0;
    if (!l->experts) return 1;
    if (m->layers[layer].expert_bundle) return bundle_reads(&m->layers[layer], l->n);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const model_tensor *t = &m->layers[layer].t[roles[i]];
        if (t->data) n += ceil((double)t->n_bytes / (double)l->n / PLACE_DRIVE_LONG);
    }
    return n;
}

/* The first group with a lower probability of being selected. */
static int64_t find_colder(const place_layer *l, int64_t first, double probability) {
    int64_t low = first, high = l->n / l->unit;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (l->selected[mid + 1] - l->selected[mid] >= probability)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static kept keep_above(const place_memory_case *c, bool experts, double probability) {
    kept k = {0};
    for (int i = 0; i < c->work->n_layers; i++) {
        const place_layer *l = &c->work->layers[i];
        if (!is_picked(c->model, l, i, experts)) continue;
        int64_t n = l->n / l->unit, first = plan_split_end(&c->plan->splits[i]) / l->unit;
        int64_t cold = find_colder(l, first, probability);
        double missing = l->selected[n] - l->selected[cold];
        double bytes = bytes_of(c->model, l, i), reads = reads_of(c->model, l, i);
        k.bytes += (double)(cold - first) * bytes;
        k.reads += missing * reads;
        k.moved += missing * bytes;
        k.seconds += missing * reads * read_seconds(c->machine, bytes / reads);
    }
    return k;
}

/* Keeps a fraction of all groups' bytes in memory; divides groups with equal probability. */
static kept keep_share(const place_memory_case *c, bool experts, double share) {
    enum { STEPS = 50 };
    double low = 0, high = 1.001;
    kept all = keep_above(c, experts, low), most = all, least = keep_above(c, experts, high);
    double room = all.bytes * fmin(share, 1);
    for (int i = 0; i < STEPS; i++) {
        double middle = (low + high) / 2;
        kept k = keep_above(c, experts, middle);
        if (k.bytes > room) {
            low = middle;
            most = k;
        } else {
            high = middle;
            least = k;
        }
    }
    double part = most.bytes > least.bytes ? (room - least.bytes) / (most.bytes - least.bytes) : 0;
    return (kept){.bytes = room,
                  .reads = least.reads + part * (most.reads - least.reads),
                  .moved = least.moved + part * (most.moved - least.moved),
                  .seconds = least.seconds + part * (most.seconds - least.seconds)};
}

/* ---- the engine's division of the budget ----------------------------------------------------- */

static pi_status divide(const place_memory_case *c, const engine_options *options,
                        paging_sizes *out, pi_error *err) {
    engine_context *context;
    engine_options o = *options;
    o.sizes_only = true;
    o.n_threads = 1;
    o.plan.splits = c->plan->splits;
    o.plan.head = c->plan->head;
    pi_status status = engine_context_create(c->model, &o, &context, err);
    if (status != PI_OK) return status;
    *out = paging_get_sizes(engine_paging(context));
    engine_context_destroy(context);
    return PI_OK;
}

/* Layers of bundles without a predictor: neurons outside the hot prefix are streamed through the
 * stages. */
static double streamed_neurons(const place_memory_case *c, double share) {
    double n = 0;
    for (int i = 0; i < c->work->n_layers; i++) {
        const place_layer *l = &c->work->layers[i];
        if (l->experts || l->predictor_bytes > 0 || !c->model->layers[i].bundle) continue;
        n += (double)(l->n - plan_split_end(&c->plan->splits[i])) * bytes_of(c->model, l, i) *
             (1 - share);
    }
    return n;
}

static double share_of(uint64_t bytes, uint64_t all) {
    return all > 0 ? fmin((double)bytes / (double)all, 1) : 1;
}

pi_status place_memory_predict(const place_memory_case *c, const engine_options *options,
                               const place_prediction *prediction, place_memory *out,
                               pi_error *err) {
    paging_sizes s;
    pi_status status = divide(c, options, &s, err);
    if (status != PI_OK) return status;
    kept experts = keep_share(c, true, share_of(s.cache, s.cached));
    kept neurons = keep_share(c, false, share_of(s.hot + s.cache, s.cached));
    double streamed = (double)s.streamed + streamed_neurons(c, share_of(s.hot, s.cached));
    double pieces = streamed / PLACE_DRIVE_LONG;
    *out = (place_memory){.budget = options->ram_budget,
                          .needed = s.needed + s.beside,
                          .beside = s.beside + s.lent,
                          .weights = s.always + s.pinned + s.ring + s.hot + s.cache,
                          .reads = pieces + experts.reads + neurons.reads,
                          .bytes = streamed + experts.moved + neurons.moved,
                          .drive = pieces * read_seconds(c->machine, PLACE_DRIVE_LONG) +
                                   experts.seconds + neurons.seconds};
    out->seconds = prediction->seconds + out->drive;
    return PI_OK;
}
