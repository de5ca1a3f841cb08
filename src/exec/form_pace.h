/* form_pace.h: chooses the form of ubatches of few tokens by measured time. In a model with sparse
 * layers, decode for several sessions reads the neurons that any of the sessions selected; from
 * some number of sessions on, tiles of all neurons are faster. The break-even depends on the text,
 * the kernels and the machine, so it is measured: both forms are tried, the faster one is kept, and
 * the slower one is tried again now and then. */
#ifndef EXEC_FORM_PACE_H
#define EXEC_FORM_PACE_H

#include "plan.h"

enum {
    FORM_PACE_TRIES = 4, /* of each form before one is preferred; the first try warms up */
    FORM_PACE_AGAIN = 64 /* ubatches after which the slower form is tried again */
};

/* The measurements for one number of tokens; zeroed: none. */
typedef struct form_pace {
    double seconds[PLAN_FORMS]; /* of a ubatch: a mean in which recent ones weigh more */
    int32_t n[PLAN_FORMS], n_all;
} form_pace;

/* FORM_FEW or FORM_MANY. */
plan_form form_pace_next(const form_pace *p);
void form_pace_add(form_pace *p, plan_form form, double seconds);

#endif
