/* place_choose.c: see place_choose.h. GPUs are opened one by one, so GPUs that are not needed keep
 * their memory. "Fits" means weights, KV cache, buffers and recorded programs of everything that
 * may be on a GPU: all layers and the output head, or the layers asked for, without what the
 * options or the backend keep on the CPU. */
#include "place_choose.h"

#include "log.h"

/* ---- does it fit? ---------------------------------------------------------------------------- */

typedef struct fit_question {
    const pi_context_options *options;
    const model *model;
    engine_options engine; /* stays: includes what the backend does not support */
} fit_question;

/* Whether the GPUs hold everything that the options offload. */
static pi_status holds_model(const place_gpus *g, const fit_question *q, bool *holds,
                             pi_error *err) {
    const int32_t all = q->model->hp.n_layer + 1;
    place_request r = place_gpus_request(g, q->model, q->options);
    if (r.gpu_layers < 0 || r.gpu_layers > all) r.gpu_layers = all;
    return place_holds_all(&r, q->model, &q->engine, holds, err);
}

/* ---- more GPUs ------------------------------------------------------------------------------- */

typedef struct candidates {
    int n, index[PI_MAX_DEVICES];
    uint64_t memory[PI_MAX_DEVICES]; /* free, bytes */
} candidates;

/* The other devices of the first GPU's backend, most free memory first. A GPU that shares memory
 * with the CPU adds none. */
static void find_candidates(const place_gpu *first, candidates *out) {
    const gpu_backend *b = first->library.backend;
    int n = 0;
    out->n = 0;
    if (b->one_device || b->count(&n, NULL) != PI_OK) return;
    for (int i = 0; i < n; i++) {
        gpu_info info;
        if (i == first->index || b->describe(i, &info, NULL) != PI_OK) continue;
        if (info.shared_memory || out->n == PI_MAX_DEVICES - 1) continue;
        int at = out->n++;
        for (; at > 0 && out->memory[at - 1] < info.memory_free; at--) {
            out->index[at] = out->index[at - 1];
            out->memory[at] = out->memory[at - 1];
        }
        out->index[at] = i;
        out->memory[at] = info.memory_free;
    }
}

/* Only GPU i of g, which keeps owning it. */
static place_gpus alone(const place_gpus *g, int i) {
    place_gpus one = {.n = 1, .share = {g->share[i]}, .peers = {1}};
    one.gpu[0] = g->gpu[i];
    return one;
}

/* Closes all GPUs except i. */
static void keep_only(place_gpus *g, int i) {
    place_gpus one = alone(g, i);
    g->gpu[i] = g->gpu[g->n - 1];
    g->n--;
    place_gpus_close(g);
    *g = one;
}

/* Opens further GPUs until they hold the model. */
static pi_status add_gpus(const fit_question *q, place_gpus *g, pi_error *err) {
    bool holds;
    candidates others;
    pi_status status = holds_model(g, q, &holds, err);
    if (status != PI_OK || holds) return status;
    find_candidates(&g->gpu[0], &others);
    for (int i = 0; i < others.n && !holds && status == PI_OK; i++) {
        pi_error why;
        int at;
        if (place_gpus_add(q->options, others.index[i], g, &at, &why) != PI_OK) {
            log_line(LOG_LEVEL_WARN, "GPU %d is not used: %s", others.index[i], why.message);
            continue;
        }
        const place_gpus one = alone(g, at);
        status = holds_model(&one, q, &holds, err);
        if (status == PI_OK && holds)
            keep_only(g, at); /* larger than the one chosen by its speed */
        else if (status == PI_OK)
            status = holds_model(g, q, &holds, err);
    }
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Whether the number of devices is this module's choice. */
static bool is_free(const pi_context_options *o) {
    bool shares = false;
    for (int i = 0; i < PI_MAX_DEVICES; i++) shares = shares || o->tensor_split[i] > 0;
    return !shares && (o->n_devices == PI_DEVICES_AS_NEEDED ||
                       (o->n_devices == 0 && o->device == PI_DEVICE_AUTO));
}

static pi_status add_gpus_for(const pi_context_options *o, const model *m,
                              const engine_options *engine, place_gpus *g, pi_error *err) {
    plan_support support;
    fit_question q = {.options = o, .model = m, .engine = *engine};
    q.engine.plan.supports = g->gpu[0].library.backend->supports;
    pi_status status = plan_support_create(m, &q.engine.plan, &support, err);
    if (status != PI_OK) return status;
    q.engine.plan.stays = support.stays;
    if (!plan_support_lacks_all(&support)) status = add_gpus(&q, g, err);
    plan_support_free(&support);
    /* The whole model has a part that no GPU computes: placing it finds what they do compute. */
    return status == PI_ERR_UNSUPPORTED ? PI_OK : status;
}

pi_status place_gpus_choose(const pi_context_options *o, const model *m,
                            const engine_options *engine, place_gpus *gpus, place_gpus_fit *fit,
                            pi_error *err) {
    const bool free_choice = is_free(o);
    pi_status status = place_gpus_open(o, m->weight_bytes, gpus, err);
    if (status != PI_OK) return status;
    if (free_choice) status = add_gpus_for(o, m, engine, gpus, err);
    if (status == PI_OK) status = place_gpus_fit_create(gpus, m, engine, o, fit, err);
    if (status == PI_ERR_LIMIT && gpus->n > 1 && free_choice) {
        /* A stage may be too small for a GPU, or slower there; one GPU has all layers. */
        int most = 0;
        for (int i = 1; i < gpus->n; i++)
            if (gpus->gpu[i].budget > gpus->gpu[most].budget) most = i;
        keep_only(gpus, most);
        status = place_gpus_fit_create(gpus, m, engine, o, fit, err);
    }
    if (status != PI_OK) place_gpus_close(gpus);
    return status;
}
