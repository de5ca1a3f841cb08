/* paging_neurons_room.c: the neurons' cache shrinks while little memory is free. */
#include "paging_neurons.h"

/* Bytes of the first n slots, in whole pages. */
static size_t slot_bytes(const neuron_class *s, int64_t n) {
    size_t bytes = to_units((size_t)n * s->stride);
    return n == s->most_slots || bytes > s->shared ? s->shared : bytes;
}

/* Slots of the stages, of lent memory and of one layer. */
static int64_t least_slots(const paging_neurons *x, const neuron_class *s) {
    size_t bytes = (size_t)stages_of(s) * s->stage + lent_of(x, s);
    int64_t n = (int64_t)((bytes + s->stride - 1) / s->stride);
    return n < s->n_slots ? n : s->n_slots;
}

uint64_t paging_neurons_shrink(paging *g, uint64_t n_bytes) {
    paging_neurons *x = g->neurons;
    uint64_t freed = 0;
    for (int i = 0; i < x->n_classes && freed < n_bytes; i++) {
        neuron_class *s = &x->classes[i];
        int64_t n = s->n_slots - (int64_t)((n_bytes - freed) / s->stride) - 1;
        if (n < least_slots(x, s)) n = least_slots(x, s);
        size_t from = slot_bytes(s, n), end = slot_bytes(s, s->n_slots);
        if (from == end || os_shared_discard(s->memory, from, end - from) != 0) continue;
        paging_neurons_empty(x, s, n, s->n_slots);
        s->n_slots = n;
        s->hand = next_slot(s, s->hand - 1);
        freed += end - from;
    }
    g->sizes.cache -= freed;
    return freed;
}

uint64_t paging_neurons_grow(paging *g, uint64_t n_bytes) {
    paging_neurons *x = g->neurons;
    uint64_t taken = 0;
    for (int i = 0; i < x->n_classes && taken < n_bytes; i++) {
        neuron_class *s = &x->classes[i];
        int64_t before = s->n_slots, n = before + (int64_t)((n_bytes - taken) / s->stride);
        if (n > s->most_slots) n = s->most_slots;
        if (n == before) continue;
        taken += slot_bytes(s, n) - slot_bytes(s, before);
        s->n_slots = n;
        s->hand = next_slot(s, before - 1); /* empty slots are used first */
    }
    g->sizes.cache += taken;
    return taken;
}
