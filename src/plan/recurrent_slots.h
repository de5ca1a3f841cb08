/* recurrent_slots.h: how many states of recurrent layers a session keeps (recurrent_state.h). */
#ifndef PLAN_RECURRENT_SLOTS_H
#define PLAN_RECURRENT_SLOTS_H

enum {
    RECURRENT_KEPT = 4,                  /* snapshots */
    RECURRENT_SLOTS = RECURRENT_KEPT + 2 /* with the state before and after a call */
};

#endif
