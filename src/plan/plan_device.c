/* plan_device.c: divides a plan among GPUs: checks the splits, extracts one GPU's part, and fuses
 * messages with the kernels that write or read their contents. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "mem.h"
#include "plan_impl.h"
#include "plan_support.h"

int plan_device_of(const plan *p, int layer) {
    return p->splits[layer >= 0 ? layer : p->model->hp.n_layer - 1].device;
}

void plan_need_bits(plan *p, int device, int64_t words) {
    if (words > p->bits_words[device]) p->bits_words[device] = words;
}

/* ---- splits ---------------------------------------------------------------------------------- */

int64_t plan_split_unit(const model *m, int layer) {
    const model_layer *l = &m->layers[layer];
    if (l->hp.ffn_top_k) return l->hp.n_ff; /* a cutoff depends on all neurons */
    if (!l->t[ROLE_FFN_DOWN].data || l->t[ROLE_ROUTER].data) return 1;
    int64_t block = (int64_t)quant_find(l->t[ROLE_FFN_DOWN].type)->block_elems;
    /* int8 inputs come in whole groups */
    int64_t unit = block > 1 && block < CPU_ACT_GROUP ? CPU_ACT_GROUP : block;
    return l->hp.n_ff % unit == 0 ? unit : l->hp.n_ff;
}

static pi_status check_split(const plan *p, int layer, int64_t at, pi_error *err) {
    int64_t n = model_layer_units(p->model, layer), unit = plan_split_unit(p->model, layer);
    if (at >= 0 && at <= n && (at == n || at % unit == 0)) return PI_OK;
    return error_set(err, PI_ERR_ARG,
                     "bad placement: layer %d: the split point %" PRId64 " of %" PRId64
                     " %s is not a multiple of %" PRId64,
                     layer, at, n,
                     p->model->layers[layer].t[ROLE_ROUTER].data ? "experts" : "neurons", unit);
}

/* Checks every split point after a helper's range. */
static pi_status check_helpers(plan *p, int layer, const plan_split *c, pi_error *err) {
    pi_status status = PI_OK;
    int64_t at = c->hot, n = model_layer_units(p->model, layer);
    for (int i = 0; i < PLAN_MAX_DEVICES && status == PI_OK; i++) {
        if (c->helpers[i] == 0) continue;
        if (c->helpers[i] < 0 || c->helpers[i] > n || i == c->device ||
            p->model->layers[layer].t[ROLE_ROUTER].data)
            return error_set(err, PI_ERR_ARG,
                             "bad placement: layer %d: %" PRId64 " neurons on device %d: helpers "
                             "are other devices, in layers without experts",
                             layer, c->helpers[i], i);
        at += c->helpers[i];
        status = check_split(p, layer, at, err);
        if (i >= p->n_devices) p->n_devices = i + 1;
    }
    return status;
}

/* Whether the backend supports the parts that the splits place on the GPU. */
static pi_status check_support(const plan *p, const plan_options *o, pi_error *err) {
    int n = p->model->hp.n_layer;
    for (int i = 0; i <= n; i++) {
        pi_mode mode = i < n ? plan_choose_mode(p->model, i, o) : o->mode;
        bool placed[PLAN_PARTS] = {
            [PLAN_PART_PRIMARY] = (i < n ? p->splits[i].primary : p->head) == SIDE_GPU,
            [PLAN_PART_NEURONS] = i < n && plan_split_end(&p->splits[i]) > 0};
        for (int part = 0; part < PLAN_PARTS; part++) {
            plan_lack lack;
            char text[PLAN_LACK_TEXT];
            if (!placed[part] ||
                plan_is_supported(p->model, i, mode, (plan_layer_part)part, o->supports, &lack))
                continue;
            return error_set(err, PI_ERR_UNSUPPORTED, "not supported on the GPU: %s: %s",
                             gguf_path(p->model->file), plan_lack_text(&lack, text));
        }
    }
    return PI_OK;
}

pi_status plan_set_splits(plan *p, const plan_options *o, pi_error *err) {
    p->supports = o->supports;
    for (int i = 0; i < p->model->hp.n_layer && o->splits; i++) {
        pi_status status = check_split(p, i, o->splits[i].hot, err);
        if (status != PI_OK) return status;
        int before = i > 0 ? o->splits[i - 1].device : 0, device = o->splits[i].device;
        if (device < before || device >= PLAN_MAX_DEVICES)
            return error_set(err, PI_ERR_ARG,
                             "bad placement: layer %d: device %d after device %d: use ascending "
                             "ones below %d",
                             i, device, before, PLAN_MAX_DEVICES);
        if (i > model_shared_from(p->model) &&
            (o->splits[i].primary != o->splits[i - 1].primary || device != before))
            return error_set(err, PI_ERR_ARG,
                             "bad placement: layer %d: shares a KV cache with layers of another "
                             "device",
                             i);
        p->splits[i] = o->splits[i];
        if (!plan_owns(p, i)) {
            p->splits[i] = (plan_split){.primary = SIDE_CPU, .device = device};
            continue;
        }
        if (device >= p->n_devices) p->n_devices = device + 1;
        status = check_helpers(p, i, &o->splits[i], err);
        if (status != PI_OK) return status;
    }
    p->head = o->splits && !plan_is_stage(p) ? o->head : SIDE_CPU;
    return o->splits ? check_support(p, o, err) : PI_OK;
}

/* ---- a device's part ------------------------------------------------------------------------- */

pi_status plan_sort_by_device(plan *p, pi_error *err) {
    if (p->n_devices < 2) return PI_OK;
    size_t n = (size_t)p->n_gpu_steps;
    plan_step *sorted = mem_calloc(n + 1, sizeof *sorted);
    if (!sorted) return error_nomem(err, n * sizeof *sorted, "plan");
    size_t at = 0;
    for (int device = 0; device < p->n_devices; device++)
        for (size_t i = 0; i < n; i++)
            if (p->gpu_steps[i].device == device) sorted[at++] = p->gpu_steps[i];
    assert(at == n);
    memcpy(p->gpu_steps, sorted, n * sizeof *sorted);
    mem_free(sorted);
    for (size_t i = 0; i < n; i++) {
        const plan_step *s = &p->gpu_steps[i];
        if (s->op == OP_FFN_SPARSE) plan_gpu_ffn(p, s->device, s->layer)->sparse = s;
    }
    return PI_OK;
}

void plan_of_device(const plan *p, int device, plan *out) {
    int first = 0, end = p->n_gpu_steps;
    while (first < end && p->gpu_steps[first].device != device) first++;
    while (end > first && p->gpu_steps[end - 1].device != device) end--;
    *out = *p;
    out->device = device;
    out->first_gpu_step = first;
    out->n_gpu_steps = end - first;
    out->gpu_steps = p->gpu_steps + first;
    out->gpu_ffn = out->n_gpu_steps > 0 ? plan_gpu_ffn(p, device, 0) : NULL;
    if (!plan_has(out, -1)) out->head = SIDE_CPU;
    plan_set_gpu_widths(out);
    plan_slot *slots = out->slots[SIDE_GPU];
    memset(slots, 0, sizeof out->slots[SIDE_GPU]);
    for (int i = 0; i < out->n_gpu_steps; i++) {
        const plan_step *s = &out->gpu_steps[i];
        if (!plan_quantizes(s, SIDE_GPU)) continue;
        slots[s->slot].kinds |= s->act_kinds;
        if (s->act_width > slots[s->slot].width) slots[s->slot].width = s->act_width;
    }
}

plan_ffn *plan_gpu_ffn(const plan *p, int device, int layer) {
    assert(p->device < 0);
    return p->gpu_ffn + (size_t)device * (size_t)p->model->hp.n_layer + layer;
}

/* ---- messages of few tokens ------------------------------------------------------------------ */

/* If the CPU only quantizes the message, it crosses the bus in int8 form: 34% of the bytes. A CPU
 * that forwards the message to helpers needs floats. */
static void choose_form(const plan *p, plan_step *send) {
    const unsigned int8 = 1u << CPU_ACT_Q8 | 1u << CPU_ACT_Q8_BF16;
    plan_step *receive = p->steps; /* on the CPU */
    while (receive->op != OP_RECEIVE ||
           STEP_ARGS(receive, message)->exchange != STEP_ARGS(send, message)->exchange)
        receive++;
    plan_step *next = receive + 1;
    bool last = next == p->steps + p->n_steps;
    if (last || next->op != OP_QUANTIZE || next->in != BUF_Y || next->layer != receive->layer)
        return;
    const plan_experts *e = STEP_ARGS(send, message)->experts;
    if (!next->act_kinds || next->act_kinds & ~int8 || (e && e->weigh_input)) return;
    for (const plan_step *s = next; s->layer == next->layer && s < p->steps + p->n_steps; s++)
        if (s->op == OP_SEND && s->in == BUF_Y) return;
    STEP_ARGS(send, message)->q8 = STEP_ARGS(receive, message)->q8 = true;
    STEP_ARGS(next, quantize)->received = true;
}

/* The norm that computes the input of a split layer also sends it, and the step that selects
 * neurons or experts sends these. */
static bool join_send(plan_step *steps, int at) {
    plan_step *send = &steps[at], *bits = NULL;
    for (plan_step *s = send - 1; s >= steps && s->layer == send->layer; s--) {
        if (s->device != send->device) return false;
        if (s->op == OP_SELECT || s->op == OP_ROUTE) bits = s;
        if (s->op != OP_NORM || s->out != BUF_Y) continue;
        if (STEP_ARGS(send, message)->bits != (bits != NULL)) return false;
        s->sends = (int)(send - s);
        if (bits) bits->sends = (int)(send - bits);
        plan_set_kernel(send, KERNEL_SKIP, KERNEL_SKIP, send->kernel[FORM_MANY]);
        return true;
    }
    return false;
}

void plan_join_messages(plan *p) {
    for (int i = 0; i < p->n_gpu_steps; i++) {
        plan_step *s = &p->gpu_steps[i];
        if (s->op == OP_SEND && s->in == BUF_Y && join_send(p->gpu_steps, i)) choose_form(p, s);
        /* If the next step norms the received residual stream, the kernel that waits does both. */
        plan_step *next = s + 1;
        if (s->op != OP_RECEIVE || i + 1 == p->n_gpu_steps || s->out != BUF_X) continue;
        if (next->op != OP_NORM || next->in != BUF_X || next->device != s->device ||
            STEP_ARGS(next, norm)->width % 4)
            continue;
        STEP_ARGS(s, message)->norms = true;
        plan_set_kernel(next, KERNEL_SKIP, KERNEL_SKIP, next->kernel[FORM_MANY]);
    }
}

int plan_peer_of(const plan *part) {
    for (int i = 0; i < part->n_gpu_steps; i++) {
        const plan_step *s = &part->gpu_steps[i];
        if (s->op != OP_RECEIVE) continue;
        int peer = STEP_ARGS(s, message)->peer;
        if (peer >= 0) return peer;
    }
    return -1;
}

bool plan_has(const plan *part, int layer) {
    return part->device < 0 || plan_device_of(part, layer) == part->device;
}
