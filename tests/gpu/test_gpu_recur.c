/* test_gpu_recur.c: recurrent layers on a device, compared with formulas in double, column by
 * column: several sessions of several columns, with an earlier state, without one, and in place. */
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

enum { SESSIONS = 3, COLS = 9, AT = 5 }; /* AT: offset of the layer's state, in floats */
static const int runs[SESSIONS] = {4, 1, 4}, kept[SESSIONS] = {2, 0, 3};

/* Session 0 starts without a state and also saves the state after two columns; session 1 also saves
 * the state before its last column; session 2 updates its state in place. */
typedef struct states {
    int64_t n;
    float *from[SESSIONS];                  /* host copies; NULL: zeros */
    float *to[SESSIONS], *before[SESSIONS]; /* device memory */
    gpu_column cols[COLS], *device_cols;
} states;

static states make_states(int64_t n) {
    states s = {.n = n};
    size_t n_bytes = (size_t)(AT + n) * sizeof(float);
    for (int i = 0, c = 0; i < SESSIONS; i++) {
        float *old = case_random(AT + n, 1), *device_old = case_upload(old, n_bytes);
        s.from[i] = i == 0 ? NULL : old;
        s.to[i] = i == 2 ? device_old : case_upload(old, n_bytes);
        s.before[i] = i == 2 ? NULL : case_upload(old, n_bytes);
        for (int t = 0; t < runs[i]; t++, c++)
            s.cols[c] = (gpu_column){.at = t,
                                     .run = runs[i],
                                     .n_before = kept[i],
                                     .state_from = i == 0 ? NULL : device_old,
                                     .state_to = s.to[i],
                                     .state_before = s.before[i]};
    }
    s.device_cols = case_upload(s.cols, sizeof s.cols);
    return s;
}

/* The state of the session before its first column, in double. */
static void start(const states *s, int session, double *state) {
    for (int64_t i = 0; i < s->n; i++)
        state[i] = s->from[session] ? (double)s->from[session][AT + i] : 0;
}

static void check_state(const states *s, const float *device, const double *want) {
    float *got = case_host((size_t)(AT + s->n) * sizeof *got);
    if (!device) return;
    case_download(got, device, (size_t)(AT + s->n) * sizeof *got);
    for (int64_t i = 0; i < s->n; i++)
        case_near((double)got[AT + i], want[i], fabs(want[i]) + 1, 1e-5, "state", i);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* ---- convolution ----------------------------------------------------------------------------- */

static void check_conv(int n, int n_taps, bool is_short, bool parts) {
    enum { MAX_N = 300 };
    static double old[GPU_MAX_TAPS * MAX_N];
    case_teardown(NULL);
    const int ld = n + 4;
    states s = make_states((int64_t)(n_taps - 1) * n);
    float *x = case_random(COLS * ld, 1), *by = case_random(COLS * ld, 1);
    float *gate = case_random(COLS * ld, 1), *bias = case_random(n, 1);
    float *taps = case_random(n * n_taps, 1), *got = case_host((size_t)(COLS * ld) * 4);
    const size_t n_bytes = (size_t)(COLS * ld) * 4;
    const float *device_taps = case_upload(taps, (size_t)(n * n_taps) * 4);
    const int part = parts ? n / 3 : n;
    const gpu_conv a = {
        .x = case_upload(x, n_bytes),
        .by = is_short ? case_upload(by, n_bytes) : NULL,
        .gate = is_short ? case_upload(gate, n_bytes) : NULL,
        .ldx = ld,
        .ldb = ld,
        .ldg = ld,
        .ldy = ld,
        .taps = {device_taps, device_taps + part * n_taps, device_taps + 2 * part * n_taps},
        .bias = is_short ? NULL : case_upload(bias, (size_t)n * 4),
        .n = n,
        .part = part,
        .at = AT,
        .n_taps = n_taps,
        .n_cols = COLS,
        .cols = s.device_cols,
        .y = case_alloc(n_bytes)};
    OPS->conv(the_case.stream, &a);
    case_download(got, a.y, n_bytes);
    for (int session = 0, c = 0; session < SESSIONS; session++) {
        start(&s, session, old);
        for (int t = 0; t < runs[session]; t++, c++) {
            if (t == kept[session]) check_state(&s, s.before[session], old);
            for (int i = 0; i < n; i++) {
                double in = (double)x[c * ld + i] * (is_short ? (double)by[c * ld + i] : 1);
                double y = is_short ? 0 : (double)bias[i];
                for (int j = 0; j < n_taps; j++)
                    y += (double)taps[i * n_taps + j] * (j < n_taps - 1 ? old[j * n + i] : in);
                for (int j = 0; j + 2 < n_taps; j++) old[j * n + i] = old[(j + 1) * n + i];
                if (n_taps > 1) old[(n_taps - 2) * n + i] = in;
                y *= is_short ? (double)gate[c * ld + i] : sigmoid(y);
                case_near((double)got[c * ld + i], y, fabs(y) + 1, 1e-5, "conv", i);
            }
        }
        check_state(&s, s.to[session], old);
    }
}

static void test_conv(void **state) {
    (void)state;
    check_conv(64, 3, true, false);
    check_conv(130, 4, false, false);
    check_conv(300, 2, false, true);
    check_conv(70, 1, false, false);
    check_conv(7, GPU_MAX_TAPS, true, false);
}

/* ---- compressed keys ------------------------------------------------------------------------- */

enum { MAX_KEY = 136, N_CTX = 64 };

/* The key in a row of a session's cache: normed, rotated by its first position. */
static void check_key(const gpu_compress *a, const float *norm, const float *freq,
                      const double *key, const gpu_column *col) {
    double want[MAX_KEY], squares = 0;
    float row[MAX_KEY];
    for (int i = 0; i < a->dim; i++) squares += key[i] * key[i] / a->dim;
    for (int i = 0; i < a->dim; i++)
        want[i] = key[i] / sqrt(squares + (double)a->eps) * (double)norm[i];
    for (int i = 0; i < a->n_rot / 2; i++) {
        int even = a->rot_at + (a->neox ? i : 2 * i);
        int odd = a->neox ? even + a->n_rot / 2 : even + 1;
        double angle = (double)(col->pos + 1 - a->ratio) * (double)freq[i];
        double c = cos(angle) * (double)a->scale, sn = sin(angle) * (double)a->scale;
        double x = want[even], y = want[odd];
        want[even] = x * c - y * sn;
        want[odd] = x * sn + y * c;
    }
    const uint8_t *from = (const uint8_t *)col->kv + (size_t)col->n_ctx * a->kv.k_offset +
                          (size_t)(col->pos / a->ratio) * a->kv.k_row;
    case_download(row, from, (size_t)a->dim * sizeof *row);
    for (int i = 0; i < a->dim; i++)
        case_near((double)row[i], want[i], fabs(want[i]) + 1, 2e-5, "key", i);
}

/* Softmax state of an element of a key; in a mean all weights are 1. */
typedef struct key_sum {
    double m, l, sum;
} key_sum;

static void add_part(key_sum *k, double value, double score, bool mean) {
    const double m = mean ? k->m : fmax(k->m, score), old = mean ? 1 : exp(k->m - m);
    *k = (key_sum){m, k->l * old + (mean ? 1 : exp(score - m)),
                   k->sum * old + (mean ? 1 : exp(score - m)) * value};
}

/* The states of the incomplete key and of the next one. */
static void check_keys(const states *s, const float *device, int dim, int n_parts,
                       const key_sum sums[2][MAX_KEY]) {
    if (!device) return;
    float *got = case_host((size_t)(AT + s->n) * sizeof *got);
    case_download(got, device, (size_t)(AT + s->n) * sizeof *got);
    for (int part = 0; part < n_parts; part++) {
        const float *m = got + AT + 3 * part * dim, *l = m + dim, *sum = l + dim;
        for (int i = 0; i < dim; i++) {
            const key_sum *want = &sums[part][i];
            assert_true(isinf(want->m) ? isinf(m[i]) : fabs((double)m[i] - want->m) < 1e-5);
            case_near((double)l[i], want->l, want->l + 1e-9, 1e-5, "weights", i);
            case_near((double)sum[i], want->sum, 10, 1e-5, "sum", i);
        }
    }
}

typedef struct key_case {
    int dim, n_rot, ratio, n_parts;
    bool mean, neox;
    int pos[SESSIONS]; /* of the first column of each session */
} key_case;

static void check_compress(const key_case *t) {
    case_teardown(NULL);
    const int dim = t->dim, width = t->n_parts * dim, ld = 2 * width + 4;
    const size_t n_bytes = (size_t)(COLS * ld) * 4, row = (size_t)dim * sizeof(float);
    states s = make_states((int64_t)3 * width);
    const float *x = case_random(COLS * ld, 1), *norm = case_random(dim, 1);
    const float *freq = case_random(t->n_rot / 2, 1), *shift = case_random(t->ratio * width, 2);
    float *got = case_host(n_bytes);
    for (int c = 0, i = 0; c < COLS; c++) {
        if (c > 0 && s.cols[c].at == 0) i++;
        s.cols[c].pos = t->pos[i] + s.cols[c].at;
        s.cols[c].n_ctx = N_CTX;
        s.cols[c].kv = s.cols[c].at > 0 ? s.cols[c - 1].kv : case_alloc((size_t)N_CTX * 2 * row);
        float *from = s.from[i];
        if (s.cols[c].at > 0 || !from) continue;
        for (int k = 0; k < width; k++) {
            float *m = from + AT + 3 * dim * (k / dim) + k % dim, *l = m + dim, *sum = l + dim;
            const bool empty = (t->pos[i] % t->ratio == 0) && k >= (t->n_parts - 1) * dim;
            if (empty || t->mean) *m = -INFINITY;
            *l = empty ? 0 : t->mean ? (float)(t->pos[i] % t->ratio) : fabsf(*l) + 0.5f;
            if (empty) *sum = 0;
        }
        the_case.b->upload(the_case.stream, (void *)(uintptr_t)s.cols[c].state_from, from,
                           (size_t)(AT + s.n) * sizeof(float));
    }
    case_sync();
    const gpu_compress a = {
        .x = case_upload(x, n_bytes),
        .ldx = ld,
        .positions = t->mean ? NULL : case_upload(shift, (size_t)(t->ratio * width) * 4),
        .norm = case_upload(norm, row),
        .inv_freq = case_upload(freq, (size_t)(t->n_rot / 2) * 4),
        .scale = 1.25f,
        .eps = 1e-6f,
        .ratio = t->ratio,
        .n_parts = t->n_parts,
        .dim = dim,
        .n_rot = t->n_rot,
        .rot_at = dim - t->n_rot,
        .n_cols = COLS,
        .neox = t->neox,
        .at = AT,
        .cols = case_upload(s.cols, sizeof s.cols),
        .kv = {
            .k_offset = row, .k_row = row, .type_k = QUANT_F32, .n_head_kv = 1, .head_dim = dim}};
    OPS->compress(the_case.stream, &a);
    case_download(got, a.x, n_bytes);
    for (int session = 0, c = 0; session < SESSIONS; session++) {
        static key_sum sums[2][MAX_KEY];
        const float *from = s.from[session];
        for (int k = 0; k < 2 * dim; k++) {
            const float *m = from ? from + AT + 3 * dim * (k / dim) + k % dim : NULL;
            sums[k / dim][k % dim] = m && k < width ? (key_sum){(double)m[0], (double)m[dim],
                                                                (double)m[2 * dim]}
                                                    : (key_sum){-INFINITY, 0, 0};
        }
        for (int at = 0; at <= runs[session]; at++, c++) {
            double key[MAX_KEY];
            if (at == kept[session]) check_keys(&s, s.before[session], dim, t->n_parts, sums);
            if (at == runs[session]) check_keys(&s, s.to[session], dim, t->n_parts, sums);
            if (at == runs[session]) break;
            for (int k = 0; k < width; k++) { /* the first of two parts belongs to the next key */
                const int p = s.cols[c].pos % t->ratio * width + k;
                add_part(&sums[t->n_parts - 1 - k / dim][k % dim], (double)x[c * ld + k],
                         (double)x[c * ld + width + k] + (double)shift[p], t->mean);
            }
            if ((s.cols[c].pos + 1) % t->ratio != 0) continue;
            for (int i = 0; i < dim; i++) {
                key[i] = sums[0][i].sum / sums[0][i].l;
                case_near((double)got[c * ld + width - dim + i], key[i], 5, 1e-5, "key", i);
                sums[0][i] = sums[t->n_parts - 1][i];
                sums[t->n_parts - 1][i] = (key_sum){-INFINITY, 0, 0};
            }
            check_key(&a, norm, freq, key, &s.cols[c]);
        }
    }
}

static void test_compress(void **state) {
    (void)state;
    static const key_case cases[] = {
        {64, 16, 4, 1, true, false, {0, 3, 6}},  {72, 72, 3, 1, true, true, {0, 5, 10}},
        {40, 8, 2, 1, true, true, {0, 7, 2}},    {8, 4, 1, 1, true, false, {0, 7, 2}},
        {64, 16, 4, 2, false, true, {0, 3, 6}},  {136, 8, 2, 2, false, false, {0, 6, 3}},
        {8, 4, 1, 2, false, true, {0, 7, 2}},    {72, 16, 3, 1, false, false, {0, 5, 9}},
        {40, 8, 16, 1, false, true, {0, 15, 29}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_compress(&cases[i]);
}

/* ---- recurrence ------------------------------------------------------------------------------ */

typedef struct recur_case {
    gpu_recur_kind kind;
    int n_head, n_group, head_dim, n_state;
    bool alternate, paired;
    float least;   /* KDA: lower bound of decays; 0: none */
    bool constant; /* SSM: constant decays */
    bool apart;    /* SSM: keys are given separately */
} recur_case;

typedef struct recur_data {
    float *x, *step, *beta, *dt_bias, *a, *skip;
    int ldx, lds, ldb;
} recur_data;

/* Mamba-1: rows have their own steps and decays. */
static void scan_rows(const recur_case *t, const recur_data *d, int c, double *state, double *y) {
    const float *x = d->x + c * d->ldx, *key = x + t->head_dim, *query = key + t->n_state;
    for (int r = 0; r < t->head_dim; r++) {
        double by = log1p(exp((double)d->step[c * d->lds + r] + (double)d->dt_bias[r]));
        y[r] = (double)d->skip[r] * (double)x[r];
        for (int i = 0; i < t->n_state; i++) {
            double *s = &state[r * t->n_state + i];
            *s = *s * exp(by * (double)d->a[r * t->n_state + i]) +
                 by * (double)x[r] * (double)key[i];
            y[r] += *s * (double)query[i];
        }
    }
}

/* One column of one head in double: computes y [head_dim] and updates the state. */
static void step_head(const recur_case *t, const recur_data *d, int c, int head, double *state,
                      double *y) {
    const int n = t->n_state, per = t->n_head / t->n_group;
    const int group = t->alternate ? head % t->n_group : head / per;
    const float *x = d->x + c * d->ldx, *keys = x + t->n_group * n, *queries = x;
    const float *values = keys + t->n_group * n;
    const bool ssm = t->kind == GPU_RECUR_SSM;
    if (ssm) values = x, keys = x + t->n_head * t->head_dim, queries = keys + t->n_group * n;
    double k[GPU_MAX_STATE], q[GPU_MAX_STATE], decay[GPU_MAX_STATE], kk = 0, qq = 0, by = 1;
    double alpha = (double)d->step[c * d->lds + head];
    double beta = (double)d->beta[c * d->ldb + head];
    if (t->paired) {
        beta = (double)d->beta[c * d->ldb + 2 * per * group + head % per];
        alpha = (double)d->beta[c * d->ldb + 2 * per * group + per + head % per];
    }
    for (int i = 0; i < n; i++) {
        k[i] = (double)keys[group * n + i], q[i] = (double)queries[group * n + i];
        kk += k[i] * k[i], qq += q[i] * q[i];
        int at = t->kind == GPU_RECUR_KDA ? head * n + i : head;
        double in = t->kind == GPU_RECUR_KDA ? (double)d->step[c * d->lds + at] : alpha;
        double v = in + (double)d->dt_bias[at], a = (double)d->a[head];
        by = t->constant ? 1 : log1p(exp(v));
        decay[i] = exp(t->least < 0 ? (double)t->least * sigmoid(-a * v) : by * a);
    }
    for (int i = 0; i < n && !ssm; i++) k[i] /= sqrt(kk), q[i] /= sqrt(qq) * sqrt(n);
    for (int r = 0; r < t->head_dim; r++) {
        double *s = state + (head * t->head_dim + r) * n, known = 0;
        double v = (double)values[head * t->head_dim + r];
        for (int i = 0; i < n; i++) known += (s[i] *= decay[i]) * k[i];
        double add = ssm ? by * v : sigmoid(beta) * (v - known);
        y[r] = ssm ? (double)d->skip[head] * v : 0;
        for (int i = 0; i < n; i++) y[r] += (s[i] += add * k[i]) * q[i];
    }
}

static void check_recur(recur_case t) {
    case_teardown(NULL);
    const bool ssm = t.kind == GPU_RECUR_SSM, scan = t.kind == GPU_RECUR_SCAN;
    const int inner = t.n_head * t.head_dim, n_step = scan ? inner : t.n_head * t.n_state;
    const int n_a = scan ? inner * t.n_state : t.n_head, n_skip = scan ? inner : t.n_head;
    const int64_t n = (int64_t)inner * t.n_state;
    recur_data d = {
        .ldx = inner + 2 * t.n_group * t.n_state + 4, .lds = n_step, .ldb = 2 * t.n_head};
    states s = make_states(n);
    d.x = case_random(COLS * d.ldx, 1);
    d.step = case_random(COLS * d.lds, 1);
    d.beta = case_random(COLS * d.ldb, 1);
    d.dt_bias = case_random(n_step, 1);
    d.a = case_random(n_a, 1);
    d.skip = case_random(n_skip, 1);
    for (int i = 0; i < n_a; i++) d.a[i] = -fabsf(d.a[i]);
    float *got = case_host((size_t)(COLS * inner) * 4);
    const float *x = case_upload(d.x, (size_t)(COLS * d.ldx) * 4);
    const gpu_recur a = {.kind = t.kind,
                         .x = x,
                         .keys = scan || t.apart ? x + inner : NULL,
                         .queries = x + inner + t.n_group * t.n_state,
                         .ldk = d.ldx,
                         .step = t.constant ? NULL
                                            : case_upload(d.step, (size_t)(COLS * d.lds) * 4),
                         .beta = case_upload(d.beta, (size_t)(COLS * d.ldb) * 4),
                         .ldx = d.ldx,
                         .lds = d.lds,
                         .ldb = d.ldb,
                         .ldy = inner,
                         .at = AT,
                         .dt_bias = case_upload(d.dt_bias, (size_t)n_step * 4),
                         .a = case_upload(d.a, (size_t)n_a * 4),
                         .skip = ssm || scan ? case_upload(d.skip, (size_t)n_skip * 4) : NULL,
                         .n_head = t.n_head,
                         .n_group = t.n_group,
                         .head_dim = t.head_dim,
                         .n_state = t.n_state,
                         .n_cols = COLS,
                         .groups_alternate = t.alternate,
                         .paired = t.paired,
                         .eps = 1e-6f,
                         .least_decay = t.least,
                         .cols = s.device_cols,
                         .y = case_alloc((size_t)(COLS * inner) * 4)};
    OPS->recur(the_case.stream, &a);
    case_download(got, a.y, (size_t)(COLS * inner) * 4);
    double *state = case_host((size_t)n * sizeof *state), y[GPU_MAX_STATE];
    for (int session = 0, c = 0; session < SESSIONS; session++) {
        start(&s, session, state);
        for (int i = 0; i < runs[session]; i++, c++) {
            if (i == kept[session]) check_state(&s, s.before[session], state);
            for (int h = 0; h < t.n_head; h++) {
                if (scan)
                    scan_rows(&t, &d, c, state, y);
                else
                    step_head(&t, &d, c, h, state, y);
                for (int r = 0; r < t.head_dim; r++)
                    case_near((double)got[c * inner + h * t.head_dim + r], y[r], fabs(y[r]) + 10,
                              1e-5, "recur", h * t.head_dim + r);
            }
        }
        check_state(&s, s.to[session], state);
    }
}

static void test_recur(void **state) {
    (void)state;
    check_recur((recur_case){GPU_RECUR_SSM, 4, 2, 24, 16, false, false, 0, false, false});
    check_recur((recur_case){GPU_RECUR_SSM, 3, 1, 5, GPU_MAX_STATE, false, false, 0, false, false});
    check_recur((recur_case){GPU_RECUR_SSM, 3, 3, 16, 16, false, false, 0, true, false});
    check_recur((recur_case){GPU_RECUR_SSM, 3, 1, 16, 40, false, false, 0, false, true});
    check_recur((recur_case){GPU_RECUR_SCAN, 1, 1, 37, 16, false, false, 0, false, false});
    check_recur((recur_case){GPU_RECUR_SCAN, 1, 1, 18, 130, false, false, 0, false, false});
    check_recur((recur_case){GPU_RECUR_DELTA, 4, 2, 33, 128, true, false, 0, false, false});
    check_recur((recur_case){GPU_RECUR_DELTA, 6, 2, 16, 20, false, true, 0, false, false});
    check_recur((recur_case){GPU_RECUR_KDA, 2, 2, 17, 130, false, false, 0, false, false});
    check_recur((recur_case){GPU_RECUR_KDA, 3, 3, 17, 128, false, false, -5, false, false});
}

/* ---- gates ----------------------------------------------------------------------------------- */

static void check_gate(int n, int width, int share, bool first, bool sigmoids, bool norms) {
    case_teardown(NULL);
    float *x = case_random(COLS * n, 1), *gate = case_random(COLS * n, 1);
    float *norm = case_random(n, 1), *got = case_host((size_t)(COLS * n) * 4);
    const gpu_gate a = {.gate = case_upload(gate, (size_t)(COLS * n) * 4),
                        .norm = norms ? case_upload(norm, (size_t)n * 4) : NULL,
                        .ldg = n,
                        .ldx = n,
                        .n = n,
                        .width = width,
                        .share = share,
                        .first = first,
                        .sigmoid = sigmoids,
                        .eps = 1e-6f,
                        .n_cols = COLS,
                        .x = case_upload(x, (size_t)(COLS * n) * 4)};
    OPS->gate(the_case.stream, &a);
    case_download(got, a.x, (size_t)(COLS * n) * 4);
    for (int g = 0; g < COLS * n; g += width) {
        double squares = 0;
        for (int i = g; i < g + width; i++) {
            double z = (double)gate[i / n * n + i % n / share], v = (double)x[i];
            if (first) v *= z * sigmoid(z);
            squares += v * v / width;
        }
        for (int i = g; i < g + width; i++) {
            double z = (double)gate[i / n * n + i % n / share];
            double want = (double)x[i] * (sigmoids ? sigmoid(z) : z * sigmoid(z));
            if (norms) want *= (double)norm[first ? i % n : i - g] / sqrt(squares + 1e-6);
            case_near((double)got[i], want, fabs(want) + 1, 1e-5, "gate", i);
        }
    }
}

static void test_gate(void **state) {
    (void)state;
    check_gate(96, 48, 1, true, false, true);
    check_gate(600, 600, 1, true, false, false);
    check_gate(128, 32, 1, false, false, true);
    check_gate(33, 11, 1, false, true, true);
    check_gate(96, 96, 32, false, true, false);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_conv),
    CASE_TEST(test_compress),
    CASE_TEST(test_recur),
    CASE_TEST(test_gate),
};
CASE_MAIN(tests)
