/* recurrent_slots.h: number of recurrent states that a session stores (recurrent_state.h). */
#ifndef PLAN_RECURRENT_SLOTS_H
#define PLAN_RECURRENT_SLOTS_H

enum {
    RECURRENT_KEPT = 4,                  /* snapshots */
    RECURRENT_SLOTS = RECURRENT_KEPT + 2 /* plus the state before and after a call */
};

#endif
