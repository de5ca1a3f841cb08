/* act_put.c: see act_put.h. */
#include "act_put.h"

#include <assert.h>
#include <string.h>

#include "act.h"

void cpu_act_put_q8(const cpu_act *a, int64_t col, const int8_t *q, const float *d,
                    const int32_t *sum) {
    const size_t n = (size_t)a->n, scales = n / CPU_ACT_GROUP * sizeof *d;
    const size_t sums = n / 16 * sizeof *sum;
    char *to = (char *)a->data + (size_t)col * act_column_bytes(a->kind, a->n);
    assert(a->layout == CPU_ACT_COLUMNS && act_form(a->kind, a->layout, a->n_cols) == CPU_ACT_Q8);
    memcpy(to, q, n);
    memset(to + n, 0, act_pad64(n) - n);
    to += act_pad64(n);
    memcpy(to, d, scales);
    memset(to + scales, 0, act_pad64(scales) - scales);
    to += act_pad64(scales);
    memcpy(to, sum, sums);
    memset(to + sums, 0, act_pad64(sums) - sums);
}
