/* context_gpus.c: operations of a context on all its GPUs. */
#include "context.h"

gpu_sides context_gpu_sides(engine_context *c) {
    return (gpu_sides){.model = c->cpu.model,
                       .plan = c->cpu.plan,
                       .kernels = &c->cpu.kernels,
                       .rope = &c->cpu.rope,
                       .paging = c->cpu.paging,
                       .type_k = c->cpu.type_k,
                       .type_v = c->cpu.type_v,
                       .n_batch = c->n_batch,
                       .n_threads = c->n_threads_batch,
                       .prompts = c->options.prompts,
                       .adapts = c->options.adapt.on,
                       .moves = context_moves_neurons(&c->options),
                       .backend = c->options.gpu,
                       .devices = c->options.devices,
                       .numbers = c->options.numbers,
                       .peers = c->options.peers,
                       .ubatch = &c->cpu.ubatch,
                       .n_gpus = c->cpu.plan->n_devices};
}

pi_status context_gpus_create(engine_context *c, pi_error *err) {
    pi_status status = PI_OK;
    if (c->cpu.plan->n_gpu_steps == 0) return PI_OK;
    c->gpu = context_gpu_sides(c);
    for (int i = 0; i < c->gpu.n_gpus && status == PI_OK; i++) {
        plan part;
        plan_of_device(c->cpu.plan, i, &part);
        if (part.n_gpu_steps > 0) status = gpu_exec_create(&c->gpu, i, &c->gpu.gpus[i], err);
    }
    if (status == PI_OK && c->options.adapt.on)
        status = adapt_create(c->cpu.plan, &c->options.adapt, &c->cpu.adapter, err);
    if (status == PI_OK && c->cpu.adapter) context_gpus_restart_swaps(c);
    if (status == PI_OK && c->gpu.moves)
        status = neuron_adapter_create(c->cpu.plan, &c->options.adapt, &c->moves, err);
    return status;
}

void context_gpus_destroy(engine_context *c) {
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        gpu_exec_destroy(c->gpu.gpus[i]);
        c->gpu.gpus[i] = NULL;
    }
    c->gpu.n_gpus = 0;
    adapt_free(c->cpu.adapter);
    neuron_adapter_free(c->moves);
    c->cpu.adapter = NULL;
    c->moves = NULL;
}

/* All programs are recorded before the first one is launched. A launched program waits for the CPU;
 * recording allocates device memory, and a driver may wait for the launched program before it
 * allocates. */
void context_gpus_begin(engine_context *c) {
    c->gpu.wants_uses = c->cpu.activity || c->cpu.adapter;
    for (int i = 0; i < c->gpu.n_gpus && c->gpu.n_gpus > 1; i++)
        if (c->gpu.gpus[i]) gpu_exec_record(c->gpu.gpus[i]);
    for (int i = 0; i < c->gpu.n_gpus; i++)
        if (c->gpu.gpus[i]) gpu_exec_begin(c->gpu.gpus[i]);
}

pi_status context_gpus_end(engine_context *c, bool failed, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        if (!c->gpu.gpus[i]) continue;
        /* Stages after a failed one must not wait. */
        bool over = failed || status != PI_OK;
        pi_status one = gpu_exec_end(c->gpu.gpus[i], over, status == PI_OK ? err : NULL);
        if (status == PI_OK) status = one;
    }
    return status;
}

/* ---- experts that move ----------------------------------------------------------------------- */

void context_gpus_swap(engine_context *c) {
    bool begins;
    const adapt_swap *s = adapt_next(c->cpu.adapter, c->cpu.ubatch.n_tokens, &begins);
    if (!s) return;
    gpu_exec *g = context_gpu(c, s->layer);
    if (begins) gpu_exec_swap_begin(g, s->layer, s->in, s->slot);
    if (!gpu_exec_swap_send(g, adapt_slice_bytes(&c->options.adapt))) return;
    if (c->cpu.paging) paging_let_go(c->cpu.paging);
    adapt_finish(c->cpu.adapter, s);
    gpu_exec_swap_map(g, s->layer, adapt_slots(c->cpu.adapter, s->layer));
    c->counters.expert_swaps++;
}

void context_gpus_restart_swaps(engine_context *c) {
    adapt_drop(c->cpu.adapter);
    for (int i = 0; i < c->cpu.model->hp.n_layer; i++) {
        gpu_exec *g = context_gpu(c, i);
        if (g) gpu_exec_swap_map(g, i, adapt_slots(c->cpu.adapter, i));
    }
}

/* ---- neurons that move ----------------------------------------------------------------------- */

bool context_gpus_have_few(const engine_context *c) {
    int n = c->cpu.ubatch.n_tokens;
    return c->cpu.ubatch.form != FORM_MANY &&
           (c->gpu.n_gpus == 0 || plan_form_of(c->cpu.plan, SIDE_GPU, n) != FORM_MANY);
}

void context_gpus_move_neurons(engine_context *c) {
    size_t sent = 0;
    int n_of[PLAN_MAX_DEVICES] = {0};
    if (c->cpu.neurons) {
        for (int i = 0; i < c->gpu.n_gpus; i++)
            if (c->gpu.gpus[i]) gpu_exec_count_neurons(c->gpu.gpus[i], c->moves);
        neuron_adapter_end(c->moves);
    }
    for (int n = 0; n < ADAPT_MOVES; n++) {
        const neuron_move *m = neuron_adapter_next(c->moves);
        if (!m) return;
        gpu_exec *g = context_gpu(c, m->layer);
        size_t bytes = gpu_exec_neuron_bytes(g, m->layer);
        if (sent && sent + bytes > adapt_slice_bytes(&c->options.adapt)) return;
        sent += bytes;
        gpu_exec_move_neuron(g, m->layer, m->hot, m->cold,
                             n_of[c->cpu.plan->splits[m->layer].device]++);
        model_places_exchange(c->places, m->layer, m->hot, m->cold);
        neuron_adapter_finish(c->moves);
        c->counters.neuron_swaps++;
        c->counters.neuron_swap_bytes += bytes;
    }
}
