/* place_fit.c: gets a placement from the solver and its allocation size from the engine, then
 * solves again with the budget reduced by the excess, or increased by the unused bytes, or between
 * a budget that fitted and one that did not. Solver and engine differ by the rounding of
 * allocations, of split rows, and of buffers whose width depends on the splits. */
#include "place_fit.h"

#include <inttypes.h>
#include <string.h>

#include "mem.h"

enum {
    ROUNDS = 24,            /* maximum calls of the solver; most searches end after three */
    SMALLEST_STEP = 1 << 16 /* unused bytes that do not justify another iteration */
};

int64_t place_default_context(const model *m) {
    int32_t trained = m->hp.n_ctx_train;
    return trained > 0 && trained < PLACE_DEFAULT_CONTEXT ? trained : PLACE_DEFAULT_CONTEXT;
}

uint64_t place_fit_bytes(const place_fit *f) {
    return f->bytes.weights + f->bytes.scratch + f->kv_bytes + f->program_bytes;
}

/* ---- the solver's view ----------------------------------------------------------------------- */

pi_status place_make_workload(const model *m, const plan_options *asked, place_use use,
                              place_workload *out, const char **mode, pi_error *err) {
    int n = m->hp.n_layer, count[PLAN_MODES] = {0}, most = PI_MODE_DENSE;
    pi_mode *modes = mem_calloc((size_t)n, sizeof *modes);
    if (!modes) return error_nomem(err, (size_t)n * sizeof *modes, "layers");
    for (int i = 0; i < n; i++) {
        modes[i] = plan_choose_mode(m, i, asked);
        if (++count[modes[i]] > count[most]) most = (int)modes[i];
    }
    *mode = ffn_mode_name((pi_mode)most);
    use.modes = modes;
    use.plan = asked;
    pi_status status = place_workload_create(m, &use, out, err);
    mem_free(modes);
    return status;
}

static pi_status make_workload(const place_fit_options *o, place_fit *f, pi_error *err) {
    const place_use use = {.n_ctx = o->n_ctx,
                           .depth = o->depth,
                           .n_batch = o->engine->n_batch,
                           .type_k = o->engine->type_k,
                           .type_v = o->engine->type_v,
                           .density = o->density};
    pi_status status = place_make_workload(o->model, &o->engine->plan, use, &f->work, &f->mode,
                                           err);
    if (status == PI_OK) place_workload_keep(&f->work, o->first, o->end);
    return status;
}

/* ---- the engine's view ----------------------------------------------------------------------- */

pi_status place_fit_measure(const place_fit_options *o, const place_plan *p, place_fit *f,
                            pi_error *err) {
    size_t kv;
    f->any = p->head == SIDE_GPU;
    for (int i = 0; i < p->n_layers; i++)
        f->any = f->any || p->splits[i].primary == SIDE_GPU || plan_split_end(&p->splits[i]) > 0;
    f->bytes = (gpu_exec_bytes){0};
    f->kv_bytes = f->program_bytes = 0;
    if (!f->any) return PI_OK;
    engine_options engine = *o->engine;
    engine.plan.splits = p->splits;
    engine.plan.head = p->head;
    pi_status status = engine_gpu_size(o->model, &engine, o->device, &f->bytes, err);
    if (status != PI_OK) return status;
    if (!size_mul((size_t)f->bytes.kv_per_position, (size_t)o->n_ctx, &kv))
        return error_set(err, PI_ERR_RANGE,
                         "KV cache too large: %" PRId64 " positions: use a smaller context",
                         o->n_ctx);
    f->kv_bytes = kv + f->bytes.state;
    f->program_bytes = f->bytes.program_nodes * o->node_bytes;
    return PI_OK;
}

static bool fits(const place_fit_options *o, const place_fit *f) {
    return place_fit_bytes(f) <= o->budget;
}

/* ---- the fastest placement ------------------------------------------------------------------- */

static pi_status solve(const place_fit_options *o, uint64_t budget, place_plan *found, place_fit *f,
                       place_prediction *p, pi_error *err) {
    pi_status status = place_solve(&f->work, o->machine, budget, found, err);
    if (status != PI_OK) return status;
    place_predict(&f->work, o->machine, found, p, NULL);
    return place_fit_measure(o, found, f, err);
}

/* Keeps a plan if it is better than the current one. */
static void keep(place_plan *found, double seconds, place_fit *f, double *best) {
    if (seconds < *best) {
        place_plan_free(&f->plan);
        f->plan = *found;
        *best = seconds;
    } else {
        place_plan_free(found);
    }
    *found = (place_plan){0};
}

/* Bounds of the solver's best budget; the lower budget fits. */
typedef struct budget_search {
    uint64_t low, high;
} budget_search;

/* The next budget to try after one whose plan would take `engine` bytes where the solver computed
 * `solver` bytes; false: no better budget. */
static bool next_budget(const place_fit_options *o, budget_search *b, uint64_t engine,
                        uint64_t solver, uint64_t *budget) {
    if (engine > o->budget) {
        uint64_t over = engine - o->budget;
        b->high = *budget;
        bool inside = *budget > over && *budget - over > b->low;
        *budget = inside ? *budget - over : b->low + (b->high - b->low) / 2;
    } else {
        b->low = *budget;
        if (b->high != UINT64_MAX)
            *budget = b->low + (b->high - b->low) / 2;
        else if (engine < solver)
            *budget += solver - engine; /* the engine needs less than computed: more may fit */
        else
            return false;
    }
    return b->high - b->low > SMALLEST_STEP;
}

static pi_status fit_fastest(const place_fit_options *o, place_fit *f, pi_error *err) {
    double best = 1e300;
    uint64_t budget = 0;
    budget_search search = {.low = 0, .high = UINT64_MAX};
    for (int round = 0; round < ROUNDS; round++) {
        place_plan found = {0};
        place_prediction p;
        pi_status status = solve(o, budget, &found, f, &p, err);
        if (status != PI_OK) {
            place_plan_free(&found);
            return status;
        }
        if (fits(o, f))
            keep(&found, p.seconds, f, &best);
        else
            place_plan_free(&found);
        if (round == 0) /* the CPU alone always fits */
            budget = o->budget;
        else if (!next_budget(o, &search, place_fit_bytes(f), p.resident[SIDE_GPU], &budget))
            break;
    }
    return place_fit_measure(o, &f->plan, f, err);
}

static bool stays(const place_fit_options *o, int layer, int what) {
    const uint8_t *all = o->engine->plan.stays;
    return all && all[layer] & what;
}

/* Offloads the last n layers, except parts that must stay on the CPU; n > n_layer also offloads the
 * output head. If the range has only some of the layers that share a cache, their attention stays
 * on the CPU. */
static void place_last(const place_fit_options *o, int32_t n, place_plan *out) {
    int n_layer = o->model->hp.n_layer, shared = model_shared_from(o->model);
    int whole = n_layer - shared <= n && shared >= o->first && o->end == n_layer ? n_layer : shared;
    bool head = n > n_layer && o->end == n_layer && !stays(o, n_layer, PLAN_STAY_ALWAYS);
    for (int i = shared; i < n_layer; i++)
        if (stays(o, i, PLAN_STAY_ALWAYS)) whole = shared;
    out->head = head ? SIDE_GPU : SIDE_CPU;
    for (int i = 0; i < n_layer; i++) {
        bool gpu = n_layer - i <= n && i >= o->first && i < o->end;
        bool primary = gpu && i < whole && !stays(o, i, PLAN_STAY_ALWAYS);
        bool neurons = gpu && !stays(o, i, PLAN_STAY_NEURONS);
        out->splits[i] = (plan_split){.primary = primary ? SIDE_GPU : SIDE_CPU,
                                      .hot = neurons ? model_layer_units(o->model, i) : 0};
    }
}

/* Widths of buffers depend on the splits; a plan with everything on the GPU has the widest
 * buffers. */
static pi_status size_buffers(const place_fit_options *o, place_fit *f, pi_error *err) {
    place_last(o, o->model->hp.n_layer + 1, &f->plan);
    pi_status status = place_fit_measure(o, &f->plan, f, err);
    if (status == PI_ERR_UNSUPPORTED) return PI_OK; /* unsupported type: the estimate stays */
    f->work.scratch_bytes = f->bytes.scratch + f->program_bytes;
    return status;
}

/* The first layer whose neurons may be on the GPU, else a layer whose primary may be the GPU; -1:
 * everything must stay on the CPU. */
static int least_layer(const place_fit_options *o, bool *neurons) {
    int primary = -1;
    for (int i = o->first; i < o->end; i++) {
        *neurons = model_layer_units(o->model, i) > 0 && !stays(o, i, PLAN_STAY_NEURONS);
        if (*neurons) return i;
        if (primary < 0 && !stays(o, i, PLAN_STAY_ALWAYS)) primary = i;
    }
    return primary;
}

/* The batch and the context with which `least`, the smallest placement, would be within the
 * budget. */
static pi_status find_remedies(const place_fit_options *o, const place_plan *least, place_fit *f,
                               pi_error *err) {
    engine_options engine = *o->engine;
    place_fit_options smaller = *o;
    place_fit one = {0};
    pi_status status = PI_OK;
    int32_t n = 1;
    while (n < engine.n_batch) n *= 2;
    smaller.engine = &engine;
    for (n /= 2; n >= 1 && status == PI_OK && f->least_batch == 0; n /= 2) {
        engine.n_batch = n;
        status = place_fit_measure(&smaller, least, &one, err);
        if (status == PI_OK && one.any && fits(o, &one)) f->least_batch = n;
    }
    return status;
}

/* Takes over the splits of `p` when they take the least bytes so far. */
static pi_status consider_least(const place_fit_options *o, const place_plan *p, place_fit *f,
                                place_plan *least, pi_error *err) {
    place_fit one = {0};
    pi_status status = place_fit_measure(o, p, &one, err);
    uint64_t bytes = place_fit_bytes(&one);
    if (status == PI_ERR_UNSUPPORTED) return PI_OK;
    if (status != PI_OK || !one.any || (f->least > 0 && bytes >= f->least)) return status;
    f->least = bytes;
    f->least_batch = 0;
    f->least_without_kv = bytes - one.kv_bytes <= o->budget;
    f->work.scratch_bytes = one.bytes.scratch + one.program_bytes;
    memcpy(least->splits, p->splits, (size_t)p->n_layers * sizeof *p->splits);
    least->head = p->head;
    return bytes > o->budget ? find_remedies(o, p, f, err) : PI_OK;
}

/* Nothing is on the GPU: finds the smallest placement there: the fewest neurons of one layer, or a
 * layer where no layer has neurons; or everything, which needs no buffers for neurons of the CPU.
 * The workload keeps the buffers of that placement. */
static pi_status find_least(const place_fit_options *o, place_fit *f, place_plan *least,
                            pi_error *err) {
    bool neurons;
    int layer = least_layer(o, &neurons);
    if (layer < 0) return PI_OK;
    plan_split *split = &f->plan.splits[layer];
    if (neurons)
        split->hot = plan_split_unit(o->model, layer);
    else
        split->primary = SIDE_GPU;
    pi_status status = consider_least(o, &f->plan, f, least, err);
    place_last(o, o->model->hp.n_layer + 1, &f->plan);
    if (status == PI_OK) status = consider_least(o, &f->plan, f, least, err);
    place_last(o, 0, &f->plan);
    return status;
}

/* Nothing was found: the smallest placement, where it is within the budget, and a search with its
 * buffers, since those for a few neurons need not be as wide as those for all. The solver's steps
 * may be too large to find the smallest one. */
static pi_status fit_least(const place_fit_options *o, place_fit *f, pi_error *err) {
    size_t n = (size_t)o->model->hp.n_layer;
    place_plan least = {.n_layers = (int)n, .splits = mem_calloc(n, sizeof *least.splits)};
    if (!least.splits) return error_nomem(err, n * sizeof *least.splits, "splits");
    pi_status status = find_least(o, f, &least, err);
    if (status == PI_OK && f->least > 0 && f->least <= o->budget) {
        place_prediction slow, fast;
        double bound = f->plan.bound;
        place_plan_free(&f->plan);
        f->plan = (place_plan){0};
        status = fit_fastest(o, f, err);
        if (status == PI_OK && !f->any) {
            place_predict(&f->work, o->machine, &f->plan, &slow, NULL);
            place_predict(&f->work, o->machine, &least, &fast, NULL);
            if (o->always || fast.seconds < slow.seconds) {
                least.bound = bound;
                place_plan_free(&f->plan);
                f->plan = least;
                return place_fit_measure(o, &f->plan, f, err);
            }
        }
    }
    place_plan_free(&least);
    return status;
}

/* ---- a given number of layers ---------------------------------------------------------------- */

/* The largest number of layers, at most the requested number, that fits; bytes grow with every
 * layer. */
static pi_status fit_layers(const place_fit_options *o, place_fit *f, pi_error *err) {
    int32_t n_layer = o->model->hp.n_layer;
    int32_t most = o->gpu_layers > n_layer ? n_layer + 1 : o->gpu_layers, least = 0;
    pi_status status = PI_OK;
    for (int32_t n = most; status == PI_OK;) {
        place_last(o, n, &f->plan);
        status = place_fit_measure(o, &f->plan, f, err);
        if (status != PI_OK) break;
        if (f->any) {
            f->least = place_fit_bytes(f); /* finally for one layer */
            f->least_without_kv = f->least - f->kv_bytes <= o->budget;
        }
        f->gpu_layers = n;
        if (fits(o, f))
            least = n;
        else
            most = n - 1;
        if (least == most && n == least) break;
        n = least + (most - least + 1) / 2;
    }
    if (status != PI_OK || f->any || f->least <= o->budget) return status;
    place_last(o, 1, &f->plan);
    status = find_remedies(o, &f->plan, f, err);
    place_last(o, 0, &f->plan);
    return status;
}

/* ---- the whole model ------------------------------------------------------------------------- */

pi_status place_fit_create(const place_fit_options *options, place_fit *out, pi_error *err) {
    place_machine machine = *options->machine;
    place_fit_options o = *options;
    size_t n = (size_t)o.model->hp.n_layer;
    machine.runtime_bytes = machine.margin_bytes = 0;
    o.machine = &machine;
    *out = (place_fit){.budget = o.budget};
    out->plan = (place_plan){.n_layers = (int)n, .splits = mem_calloc(n, sizeof *out->plan.splits)};
    pi_status status = out->plan.splits ? make_workload(&o, out, err)
                                        : error_nomem(err, n * sizeof *out->plan.splits, "splits");
    if (status == PI_OK && o.gpu_layers >= 0) {
        status = fit_layers(&o, out, err);
    } else if (status == PI_OK) {
        status = size_buffers(&o, out, err);
        if (status == PI_OK) status = fit_fastest(&o, out, err);
        if (status == PI_OK && !out->any) status = fit_least(&o, out, err);
    }
    if (status != PI_OK) place_fit_free(out);
    return status;
}

void place_fit_free(place_fit *f) {
    place_plan_free(&f->plan);
    place_workload_free(&f->work);
    *f = (place_fit){0};
}
