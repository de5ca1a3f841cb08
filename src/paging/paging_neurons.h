/* paging_neurons.h: types of the neurons' cache, for paging_neurons.c and paging_neurons_room.c. */
#ifndef PAGING_PAGING_NEURONS_H
#define PAGING_PAGING_NEURONS_H

#include "os_memory.h"
#include "os_thread.h"
#include "paging_impl.h"

typedef struct neuron_layer {
    const uint8_t *from; /* address of the CPU's first neuron in the file's mapping; NULL: layer
                            without bundles */
    uint64_t offset;     /* offset of that neuron in the file */
    int part, size;      /* part of the file; size class */
    int64_t n, n_hot;    /* neurons on the CPU; neurons of the hot prefix */
    int64_t row;         /* first row in the matrix of the class */
    int64_t part_rows;
    /* Prefetching in this ubatch; set and evaluated between ubatches. */
    bool prefetches, late;     /* late: not all had arrived when neurons were selected */
    int64_t room;              /* reads */
    int64_t n_ahead, n_useful; /* reads; neurons among them that were selected */
    int64_t n_missing;         /* selected neurons that were neither in memory nor prefetched */
    double useful;             /* useful fraction in earlier ubatches */
    double missing;            /* neurons to read per ubatch, average */
    int32_t *slot;             /* [n] slots of neurons outside the prefix; -1: none */
    float *usage;              /* [n] in units of paging_neurons.gain */
    atomic_size_t refilling;   /* bytes of refill that have not arrived */
    bool picks;
} neuron_layer;

typedef struct neuron_slot {
    int32_t layer, neuron; /* layer -1: free */
    uint32_t step;         /* last step that used it */
    float usage;           /* of the neuron */
    bool ahead;            /* prefetched and not used yet */
} neuron_slot;

/* Layers with bundles of one size. */
typedef struct neuron_class {
    size_t stride;
    int64_t whole_rows;    /* this number of rows fills whole mapping units */
    int64_t n_rows;        /* rows of all layers, each padded to whole units */
    int64_t most_rows;     /* maximum over layers */
    bool picks, needs_all; /* true for some layer */
    uint8_t *base;
    size_t reserved;                       /* bytes of addresses */
    os_shared memory;                      /* of the stages and slots */
    size_t stage;                          /* bytes */
    size_t shared;                         /* bytes of `memory` */
    int64_t slot_row, n_slots, first_slot; /* slots before first_slot are always stages */
    int64_t most_slots;                    /* n_slots when enough memory is free */
    int64_t lent_from, lent_to;            /* slots that working buffers use now */
    neuron_slot *slots;
    int64_t hand;
    int64_t gap; /* most neurons in a gap that a joined read spans; -1: reads are
                    not joined */
    float floor; /* usage below which a neuron is evicted */
} neuron_class;

/* Prefetching for a layer in this ubatch. */
typedef struct neuron_ahead {
    atomic_size_t left[PLAN_FFN_MAX_PARTS]; /* bytes that have not arrived */
    atomic_int layer;                       /* -1: none was requested */
    int waiting;                            /* layer whose neurons are not requested yet, or -1 */
    int32_t *rows;                          /* [most rows of a layer] those neurons, part by part */
    int64_t n_rows[PLAN_FFN_MAX_PARTS];
    drive_request *requests; /* [most rows of a layer] */
} neuron_ahead;

struct paging_neurons {
    int n_layer, n_classes;
    neuron_layer *layers; /* [n_layer] */
    neuron_class *classes;
    paging_stream tails;
    paging_unit *units;
    /* Memory that prefill's buffers borrow: after the stages of a class, or separate memory if all
     * neurons of the class are in memory. */
    int lender;  /* size class; -1: none */
    size_t lent; /* bytes */
    uint8_t *lent_at;
    size_t borrowed; /* bytes in use */
    bool refills;    /* prefill has emptied slots: the next begin refills them */

    os_mutex lock;
    uint64_t hits, misses, n_ahead, in_vain;
    float gain; /* usage added per use; it grows over time instead of all usages being halved */
    /* The step's selection, part by part. */
    drive_request *requests; /* [most rows of a layer] */
    int32_t *rows;
    uint8_t *mark;
    int64_t n_rows[PLAN_FFN_MAX_PARTS];
    atomic_uint ready[PLAN_FFN_MAX_PARTS]; /* step that the part is ready for */
    atomic_size_t left[PLAN_FFN_MAX_PARTS];
    int n_picked;          /* parts that are ready */
    neuron_ahead ahead[2]; /* of layers with even and odd numbers */
};

/* Parts of reserved addresses begin at multiples of this number of bytes. */
static inline size_t mapping_unit(void) {
    size_t unit = os_shared_unit();
    return unit > PAGING_PAGE ? unit : PAGING_PAGE;
}

static inline size_t to_units(size_t n_bytes) {
    size_t unit = mapping_unit();
    return (n_bytes + unit - 1) / unit * unit;
}

/* Two stages; plus slots for one layer if every ubatch needs the stages. */
static inline int stages_of(const neuron_class *s) {
    return s->picks && s->needs_all ? 3 : 2;
}

/* Bytes that the class lends. */
static inline size_t lent_of(const paging_neurons *x, const neuron_class *s) {
    return s - x->classes == x->lender ? x->lent : 0;
}

/* Skips the slots that working buffers use. */
static inline int64_t next_slot(const neuron_class *s, int64_t slot) {
    slot++;
    for (int i = 0; i < 2; i++) { /* the lent slots may be the last or the first ones */
        if (slot >= s->n_slots) slot = s->first_slot;
        if (slot >= s->lent_from && slot < s->lent_to) slot = s->lent_to;
    }
    return slot;
}

/* Empties slots [from, to). */
void paging_neurons_empty(paging_neurons *x, neuron_class *s, int64_t from, int64_t to);

#endif
