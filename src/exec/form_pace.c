/* form_pace.c: see form_pace.h. */
#include "form_pace.h"

plan_form form_pace_next(const form_pace *p) {
    if (p->n[FORM_FEW] < FORM_PACE_TRIES) return FORM_FEW;
    if (p->n[FORM_MANY] < FORM_PACE_TRIES) return FORM_MANY;
    bool many = p->seconds[FORM_MANY] < p->seconds[FORM_FEW];
    if (p->n_all % FORM_PACE_AGAIN == 0) many = !many;
    return many ? FORM_MANY : FORM_FEW;
}

/* An outlier (the program was stopped, or another program took the cores) counts as twice the
 * mean. */
void form_pace_add(form_pace *p, plan_form form, double seconds) {
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
