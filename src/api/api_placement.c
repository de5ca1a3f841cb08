/* api_placement.c: creates a context on the requested device, or on the CPU with the reason why no
 * GPU is used. A missing GPU is an error only when the device was named: `auto`, a budget and a
 * number of layers apply if there is a GPU. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api_types.h"
#include "log.h"
#include "mem.h"
#include "memory_room.h"
#include "place_choose.h"
#include "place_ranks.h"

/* ---- memory ---------------------------------------------------------------------------------- */

enum {
    LEAST_MARGIN = 192 << 20, /* bytes of free memory to leave free at least */
    MARGIN_SHARE = 12         /* leave at least 1 / MARGIN_SHARE of the free memory */
};

/* The budget for a model that does not fit into the free memory; 0: it fits. */
static uint64_t free_budget(const pi_context *c, uint64_t gpu_weights) {
    const model *m = c->weights;
    uint64_t offset, room = memory_room(), weights = m->weight_bytes, margin = room / MARGIN_SHARE;
    const plan_options *p = &c->options.plan;
    if (p->end_layer > 0) /* of several machines */
        weights = place_layer_bytes(m, p->first_layer, p->end_layer, false) +
                  (p->first_layer == 0 ? place_global_bytes(m, false) : 0);
    int part;
    if (!gguf_locate(m->file, m->t[ROLE_TOKEN_EMBD].data, &part, &offset)) return 0;
    if (margin < LEAST_MARGIN) margin = LEAST_MARGIN;
    room = room > margin ? room - margin : 0;
    weights -= gpu_weights < weights ? gpu_weights : weights;
    return weights <= room ? 0 : room;
}

/* Creates the engine's context on the devices of `o`, within the memory budget. When a budget
 * chosen here (PI_RAM_FREE) turns out to be too small, the weights stay in the mapped file. */
static pi_status create_engine(pi_context *c, engine_options *o, uint64_t gpu_weights,
                               pi_error *err) {
    pi_error why;
    if (c->ram_free) o->ram_budget = free_budget(c, gpu_weights);
    pi_status status = engine_context_create(c->weights, o, &c->engine, &why);
    bool unusable = status == PI_ERR_LIMIT || status == PI_ERR_IO || status == PI_ERR_NOMEM;
    if (o->ram_budget && c->ram_free && unusable) {
        log_line(LOG_LEVEL_WARN, "weights stay in the mapped file: %s", why.message);
        o->ram_budget = 0;
        status = engine_context_create(c->weights, o, &c->engine, &why);
    }
    if (status != PI_OK && err) *err = why;
    c->ram_used = o->ram_budget;
    return status;
}

static pi_status create_on_cpu(pi_context *c, pi_error *err) {
    engine_options options = c->options;
    c->device = "cpu";
    return create_engine(c, &options, 0, err);
}

void api_close(pi_context *c) {
    bool forked = c->engine && !engine_has_threads(c->engine);
    engine_context_destroy(c->engine);
    c->engine = NULL;
    if (forked) /* the device is the parent's */
        c->gpus = (place_gpus){0};
    else
        place_gpus_close(&c->gpus);
    memset(c->gpu, 0, sizeof c->gpu);
}

void api_close_weights(pi_context *c) {
    model_close(c->own);
    c->own = NULL;
}

/* Falls back to a context on the CPU alone; `why` is the reason. */
static pi_status fall_back_to_cpu(pi_context *c, const pi_error *why, pi_error *err) {
    c->reason = *why;
    if (why->status != PI_OK) log_line(LOG_LEVEL_WARN, "running on the CPU: %s", why->message);
    api_close(c);
    return create_on_cpu(c, err);
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* The devices in use, by their --device names. */
static const char *name_devices(const pi_context *c) {
    static const char *const names[][2] = {
#define ROW(id, name, title, real) {name, "cpu+" name},
        PI_BACKENDS(ROW)
#undef ROW
    };
    const plan *p = engine_plan(c->engine);
    bool shared = p->head == SIDE_CPU;
    for (int i = 0; i < p->model->hp.n_layer; i++)
        shared = shared || p->splits[i].primary == SIDE_CPU ||
                 plan_split_end(&p->splits[i]) < model_layer_units(p->model, i);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(c->gpus.gpu[0].library.backend->name, names[i][0]) == 0) return names[i][shared];
    return "gpu";
}

static pi_status create_with_splits(pi_context *c, const place_gpus_fit *f, pi_error *err) {
    engine_options options = c->options;
    uint64_t weights = 0;
    options.plan.splits = f->plan.splits;
    options.plan.head = f->plan.head;
    options.n_batch = f->n_batch;
    options.plan.merge_norms = f->merge_norms;
    options.gpu = c->gpus.gpu[0].library.backend;
    memcpy(options.peers, c->gpus.peers, sizeof options.peers);
    for (int i = 0; i < c->gpus.n; i++) {
        options.devices[i] = c->gpus.gpu[i].device;
        options.numbers[i] = 1 + c->gpus.gpu[i].index;
        weights += f->stage[i].bytes.weights;
    }
    pi_status status = create_engine(c, &options, weights, err);
    if (status != PI_OK) return status;
    c->device = name_devices(c);
    for (int i = 0; i < c->gpus.n; i++) {
        const place_fit *stage = &f->stage[i];
        c->gpu[i] = (api_gpu){.end_layer = f->end[i],
                              .bytes = stage->bytes,
                              .kv = stage->kv_bytes,
                              .programs = stage->program_bytes};
    }
    return PI_OK;
}

/* Any status but PI_OK is a reason to use the CPU alone. */
static pi_status create_on_gpu(pi_context *c, const pi_context_options *o, const uint8_t *stays,
                               pi_error *why) {
    place_gpus_fit fit;
    engine_options engine = c->options;
    engine.plan.stays = stays;
    engine.ram_budget = 0; /* the placement is the same with and without a memory budget */
    pi_status status = place_gpus_choose(o, c->weights, &engine, &c->gpus, &fit, why);
    if (status != PI_OK) return status;
    status = create_with_splits(c, &fit, why);
    place_gpus_fit_free(&fit);
    return status;
}

/* ", 300 on the GPU 1" for each helper. */
static void describe_helpers(const pi_context *c, const plan_split *split, char *out,
                             size_t n_out) {
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < c->gpus.n && n < n_out; i++)
        if (split->helpers[i] > 0)
            n += (size_t)snprintf(out + n, n_out - n, ", %lld on the GPU %d",
                                  (long long)split->helpers[i], c->gpus.gpu[i].index);
}

/* One log line per run of layers with the same placement. */
static void log_layers(const pi_context *c) {
    const plan *p = engine_plan(c->engine);
    const char *const sides[PLAN_SIDES] = {[SIDE_CPU] = "cpu", [SIDE_GPU] = "gpu"};
    for (int i = 0, end; i < p->model->hp.n_layer; i = end) {
        const plan_split *split = &p->splits[i];
        for (end = i + 1; end < p->model->hp.n_layer; end++)
            if (!plan_split_same(&p->splits[end], split)) break;
        char number[16] = "", helpers[256];
        if (c->gpus.n > 1) snprintf(number, sizeof number, " %d", c->gpus.gpu[split->device].index);
        describe_helpers(c, split, helpers, sizeof helpers);
        log_line(LOG_LEVEL_DEBUG,
                 "layers %d to %d: attention on the %s, %lld of %lld neurons on the GPU%s%s", i,
                 end - 1, sides[split->primary], (long long)split->hot,
                 (long long)model_layer_units(p->model, i), number, helpers);
    }
    log_line(LOG_LEVEL_DEBUG, "head on the %s", sides[p->head]);
    for (int i = 0; i < c->gpus.n; i++) {
        const api_gpu *g = &c->gpu[i];
        log_line(LOG_LEVEL_DEBUG,
                 "GPU %d: memory: weights %llu, buffers %llu, KV cache %llu, programs %llu, "
                 "runtime %llu of %llu bytes",
                 c->gpus.gpu[i].index, (unsigned long long)g->bytes.weights,
                 (unsigned long long)g->bytes.scratch, (unsigned long long)g->kv,
                 (unsigned long long)g->programs, (unsigned long long)c->gpus.gpu[i].runtime,
                 (unsigned long long)c->gpus.gpu[i].budget);
    }
}

/* One log line per hand-off between stages. */
static void log_hand_offs(const pi_context *c) {
    for (int i = 0; i < c->gpus.n; i++) {
        plan part;
        plan_of_device(engine_plan(c->engine), i, &part);
        int from = plan_peer_of(&part);
        if (from < 0) continue;
        bool reached = c->gpus.peers[from] >> i & 1;
        log_line(LOG_LEVEL_DEBUG, "GPU %d sends to GPU %d: %s", c->gpus.gpu[from].index,
                 c->gpus.gpu[i].index,
                 reached ? "into its memory" : "through host memory: no peer access");
    }
}

/* Layers of other machines, and the head, need no GPU here. */
static pi_status keep_distant(const pi_context *c, uint8_t **stays, pi_error *err) {
    const plan_options *p = &c->options.plan;
    size_t n = (size_t)c->weights->hp.n_layer;
    if (p->end_layer == 0) return PI_OK;
    if (!*stays) *stays = mem_calloc(n + 1, sizeof **stays);
    if (!*stays) return error_nomem(err, n + 1, "placement");
    for (size_t i = 0; i <= n; i++)
        if ((int)i < p->first_layer || (int)i >= p->end_layer)
            (*stays)[i] = PLAN_STAY_ALWAYS | PLAN_STAY_NEURONS;
    return PI_OK;
}

pi_status api_place(pi_context *c, const pi_context_options *o, pi_error *err) {
    uint8_t *stays = NULL;
    const pi_model *m = c->model;
    pi_status status = PI_OK;
    bool in_memory = m->received && api_received_in_memory(m->received);
    c->ram_free = o->ram_budget == PI_RAM_FREE && !in_memory;
    c->weights = m->weights;
    if (m->n_adapters > 0 || m->received) { /* received layers came after the model was opened */
        const plan_options *p = &c->options.plan;
        status = model_open_part(m->weights, m->adapters, m->n_adapters, p->first_layer,
                                 p->end_layer > 0 ? p->end_layer : INT_MAX, &c->own, err);
        c->weights = c->own;
    }
    if (status == PI_OK) status = place_option_stays(c->weights, o, &stays, err);
    if (status == PI_OK) status = keep_distant(c, &stays, err);
    if (status != PI_OK) {
        mem_free(stays);
        return status;
    }
    pi_error why = {.status = PI_OK};
    bool wanted = place_wants_gpu(o);
    if (wanted) status = create_on_gpu(c, o, stays, &why);
    mem_free(stays);
    if (!wanted) return create_on_cpu(c, err);
    if (status == PI_OK) {
        log_layers(c);
        log_hand_offs(c);
        return PI_OK;
    }
    bool encoder = c->weights->arch->encoder && why.status == PI_ERR_UNSUPPORTED;
    if (o->device != PI_DEVICE_AUTO && !encoder)
        return error_set(err, why.status, "%s", why.message);
    /* By default, a GPU is used if there is one; only a machine without one needs no message. */
    if (why.status == PI_ERR_NOT_FOUND && !place_expects_gpu(o)) why = (pi_error){.status = PI_OK};
    return fall_back_to_cpu(c, &why, err);
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Memory of the context on a GPU, as it is now. */
static const gpu_exec_bytes *bytes_of(const pi_context *c, int device) {
    const gpu_exec_bytes *kept = engine_gpu_kept(c->engine, device);
    return kept ? kept : &c->gpu[device].bytes;
}

void pi_context_get_placement(const pi_context *c, pi_placement *out) {
    const plan *p = engine_plan(c->engine);
    const char *loss = engine_gpu_loss(c->engine);
    int64_t n = 0, hot = 0;
    *out = (pi_placement){.device = c->gpus.n > 0 ? name_devices(c) : c->device,
                          .device_name = c->gpus.n > 0 ? c->gpus.gpu[0].info.name : "",
                          .n_devices = c->gpus.n,
                          .reason = c->reason.status == PI_OK ? NULL : c->reason.message,
                          .status = c->reason.status,
                          .n_layers = p->model->hp.n_layer,
                          .head_on_gpu = p->head == SIDE_GPU};
    if (loss) {
        *out = (pi_placement){.device = "cpu",
                              .device_name = "",
                              .reason = loss,
                              .status = PI_ERR_DEVICE,
                              .n_layers = p->model->hp.n_layer};
        return;
    }
    for (int i = 0; i < c->gpus.n; i++) {
        const gpu_exec_bytes *bytes = bytes_of(c, i);
        out->gpu_weights += bytes->weights;
        out->gpu_scratch += bytes->scratch;
        out->gpu_kv += c->gpu[i].kv;
        out->gpu_programs += c->gpu[i].programs;
        out->gpu_runtime += c->gpus.gpu[i].runtime;
        out->gpu_budget += c->gpus.gpu[i].budget;
    }
    for (int i = 0; i < out->n_layers; i++) {
        out->gpu_layers += p->splits[i].primary == SIDE_GPU;
        hot += plan_split_end(&p->splits[i]);
        n += model_layer_units(p->model, i);
    }
    out->neuron_share = (double)hot / (double)n;
}

void pi_context_get_device(const pi_context *c, int32_t device, pi_device_placement *out) {
    assert(device >= 0 && device < c->gpus.n);
    const place_gpu *g = &c->gpus.gpu[device];
    const gpu_exec_bytes *bytes = bytes_of(c, device);
    *out = (pi_device_placement){.name = g->info.name,
                                 .index = g->index,
                                 .first_layer = device > 0 ? c->gpu[device - 1].end_layer : 0,
                                 .end_layer = c->gpu[device].end_layer,
                                 .bytes = bytes->weights + bytes->scratch + c->gpu[device].kv +
                                          c->gpu[device].programs + g->runtime,
                                 .budget = g->budget};
}

void pi_context_get_layer(const pi_context *c, int32_t layer, pi_layer_placement *out) {
    const plan *p = engine_plan(c->engine);
    assert(layer >= 0 && layer < p->model->hp.n_layer);
    *out = (pi_layer_placement){.n_neurons = model_layer_units(p->model, layer)};
    if (engine_gpu_loss(c->engine)) return;
    out->attention_on_gpu = p->splits[layer].primary == SIDE_GPU;
    out->device = p->splits[layer].device;
    out->n_hot = plan_split_end(&p->splits[layer]);
    out->n_own = p->splits[layer].hot;
}
