/* place_search.h: shared by the solver's two files: the relaxed problem (place_relax.c) and the
 * search that closes its gap (place_solve.c). Private to src/place. */
#ifndef PLACE_PLACE_SEARCH_H
#define PLACE_PLACE_SEARCH_H

#include "place_cost.h"

/* A placement of all items. The last item is the head. */
typedef struct place_choice {
    double time, bytes;
    plan_side *primary; /* primary devices [n] */
    int64_t *k;         /* groups on the GPU [n] */
} place_choice;

/* A subset of all placements: per item and primary, k within low..high; low > high: this primary is
 * excluded. */
typedef struct place_range {
    int64_t low, high;
} place_range;

typedef struct place_problem {
    int n; /* items: layers and the head */
    const place_item *items;
    double sync;   /* of a change of primary */
    double budget; /* GPU bytes available for items */
    /* Scratch memory of place_relax. */
    struct place_step {
        double value, time, bytes;
        int64_t k;
        plan_side from;
    } (*steps)[PLAN_SIDES]; /* [n] */
    place_choice spare;
} place_problem;

typedef enum place_relaxed {
    PLACE_EMPTY,  /* nothing in the subset fits the budget */
    PLACE_SOLVED, /* `below` is the subset's best placement */
    PLACE_OPEN /* `below` fits, `above` does not; the best time is between bound and below->time */
} place_relaxed;

/* The Lagrangian dual of the subset `ranges` ([n][PLAN_SIDES]): max over price >= 0 of min over
 * placements of time + price * (bytes - budget). Fills the two placements that meet at the best
 * price and the bound. */
place_relaxed place_relax(place_problem *p, place_range (*ranges)[PLAN_SIDES], place_choice *below,
                          place_choice *above, double *bound);
/* Computes a placement's time and bytes from its primary devices and split points. */
void place_choice_sum(const place_problem *p, place_choice *c);
void place_choice_copy(const place_problem *p, place_choice *to, const place_choice *from);
/* The best k within `range` for a price per byte; on a tie, the fewest bytes. */
int64_t place_best_split(const place_item *item, plan_side primary, place_range range,
                         double price);

#endif
