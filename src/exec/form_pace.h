/* form_pace.h: chooses the form of ubatches of few tokens by measured time. When several sessions
 * decode with a sparse model, FORM_FEW reads the neurons that any of the sessions selected; from
 * some number of sessions on, FORM_MANY, with tiles of all neurons, is faster. Where that is
 * depends on the text, the kernels and the machine. So both forms are tried, the faster one is
 * used, and the other one is tried again from time to time. */
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

/* The form to run next, FORM_FEW or FORM_MANY. */
static inline plan_form form_pace_next(const form_pace *p) {
    if (p->n[FORM_FEW] < FORM_PACE_TRIES) return FORM_FEW;
    if (p->n[FORM_MANY] < FORM_PACE_TRIES) return FORM_MANY;
    bool many = p->seconds[FORM_MANY] < p->seconds[FORM_FEW];
    if (p->n_all % FORM_PACE_AGAIN == 0) many = !many;
    return many ? FORM_MANY : FORM_FEW;
}

/* Adds the time of a ubatch. An outlier (the program was stopped, or another program took the
 * cores) counts as twice the mean. */
static inline void form_pace_add(form_pace *p, plan_form form, double seconds) {
    const double share = 0.25; /* of the newest time in the mean */
    double *mean = &p->seconds[form];
    p->n_all++;
    if (p->n[form]++ <= 1) {
        *mean = seconds;
        return;
    }
    if (seconds > 2 * *mean) seconds = 2 * *mean;
    *mean += share * (seconds - *mean);
}

#endif
