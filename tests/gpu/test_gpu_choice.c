/* test_gpu_choice.c: the selection of neurons per column on a device: bitmaps and lists from scores
 * and bits; activations masked by the selection; bits and columns sent to the host and back. From
 * one column to a prompt. */
#include "activation_formula.h"
#include "gpu_case.h"

#define OPS (&the_case.b->ops)

static const int column_counts[] = {1, 3, GPU_MAX_COLS, GPU_MAX_COLS + 1, 70};
enum { COUNTS = sizeof column_counts / sizeof column_counts[0] };

static bool bit_of(const uint32_t *bits, int64_t n_words, int c, int64_t i) {
    return bits[c * n_words + i / 32] >> i % 32 & 1;
}

/* ---- selecting ------------------------------------------------------------------------------- */

/* n_list ends within a word; more words than threads of a block. */
enum { N = 17003, N_LIST = 16410, N_WORDS = (N + 31) / 32, NAN_AT = 97 };

/* Scores with ties, NaN and runs of equal values; the expected selection of each column. */
static float *make_scores(int n_cols, float cut, const float *bias, uint32_t *want) {
    float *v = case_host((size_t)n_cols * N * sizeof *v);
    for (int c = 0; c < n_cols; c++) {
        for (int i = 0; i < N; i++) {
            float x = rng_normal(&the_case.r) - 2.4f;
            if (i % NAN_AT == c % NAN_AT) x = (float)NAN;
            if (i % 50 == 7) x = cut; /* a score equal to the threshold is selected */
            if (i > 500 && i < 700) x = c == 1 ? 3 : -9;
            v[c * N + i] = x;
            float seen = bias ? v[c * N + i] + bias[i] : v[c * N + i];
            bool yes = isnan(seen) || seen >= cut;
            want[c * N_WORDS + i / 32] |= (uint32_t)yes << i % 32;
        }
    }
    return v;
}

/* The list of neurons below n_list in the union of bitmaps. */
static void check_list(const gpu_select *a, const uint32_t *bits) {
    int32_t *list = case_host((size_t)a->n_list * sizeof *list), count, want = 0;
    case_download(list, a->list, (size_t)a->n_list * sizeof *list);
    case_download(&count, a->count, sizeof count);
    for (int i = 0; i < a->n_list; i++) {
        bool any = false;
        for (int c = 0; c < a->n_cols; c++) any = any || bit_of(bits, (a->n + 31) / 32, c, i);
        if (any) assert_int_equal(list[want++], i);
    }
    assert_int_equal(count, want);
}

static void check_select(int n_cols, float cut, bool biased) {
    const size_t n_bytes = (size_t)n_cols * N_WORDS * sizeof(uint32_t);
    float *bias = biased ? case_random(N, 0.3f) : NULL;
    uint32_t *want = case_host(n_bytes), *got = case_host(n_bytes);
    float *v = make_scores(n_cols, cut, bias, want);
    gpu_select a = {.v = case_upload(v, (size_t)n_cols * N * sizeof *v),
                    .bias = bias ? case_upload(bias, N * sizeof *bias) : NULL,
                    .ldv = N,
                    .n = N,
                    .n_list = N_LIST,
                    .n_cols = n_cols,
                    .cut = cut,
                    .bitmap = case_alloc(n_bytes)};
    OPS->select(the_case.stream, &a);
    case_download(got, a.bitmap, n_bytes);
    assert_memory_equal(got, want, n_bytes);
    for (int c = 0; c < n_cols; c++) /* bits after the last neuron are undefined */
        want[c * N_WORDS + N_WORDS - 1] |= UINT32_MAX << N % 32;
    gpu_select from_bits = {.bits_in = case_upload(want, n_bytes),
                            .n = N,
                            .n_list = N_LIST,
                            .n_cols = n_cols,
                            .list = case_alloc(N_LIST * sizeof(int32_t)),
                            .count = case_alloc(sizeof(int32_t))};
    OPS->select(the_case.stream, &from_bits);
    check_list(&from_bits, want);
}

static void test_select(void **state) {
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_select(column_counts[i], i % 2 ? 0.25f : 0, i % 3 == 0);
    }
}

/* No neuron and all neurons; n_list of 0 and of whole words. */
static void test_select_ends(void **state) {
    (void)state;
    enum { SMALL = 64 };
    static const int64_t lengths[] = {0, 1, 32, 63, 64};
    for (uint32_t all = 0; all < 2; all++) {
        const uint32_t bits[2] = {0u - all, 0u - all};
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            int32_t list[SMALL] = {0}, count = -1;
            gpu_select a = {.bits_in = case_upload(bits, sizeof bits),
                            .n = SMALL,
                            .n_list = lengths[k],
                            .n_cols = 1,
                            .list = case_upload(list, sizeof list),
                            .count = case_upload(&count, sizeof count)};
            OPS->select(the_case.stream, &a);
            case_download(list, a.list, sizeof list);
            case_download(&count, a.count, sizeof count);
            assert_int_equal(count, all ? lengths[k] : 0);
            for (int i = 0; i < count; i++) assert_int_equal(list[i], i);
        }
    }
}

/* ---- predictors ------------------------------------------------------------------------------ */

/* Checks bitmaps and list against scores in double, [n_cols][n] with the sums of the terms'
 * magnitudes: bits of scores that are too close to the cut depend on rounding. */
static void check_prediction(const gpu_predict *a, const double *score, const double *size) {
    const gpu_select *s = &a->select;
    const int64_t n_words = (s->n + 31) / 32;
    uint32_t *got = case_host((size_t)(s->n_cols * n_words) * sizeof *got);
    int32_t arrived = 0;
    int64_t n_set = 0, n_close = 0;
    case_download(got, s->bitmap, (size_t)(s->n_cols * n_words) * sizeof *got);
    for (int c = 0; c < s->n_cols; c++) {
        for (int64_t i = 0; i < 32 * n_words; i++) {
            const bool set = bit_of(got, n_words, c, i);
            if (i >= s->n) {
                assert_false(set);
                continue;
            }
            const double above = score[c * s->n + i] - (double)s->cut;
            n_set += set;
            if (fabs(above) < 1e-5 * size[c * s->n + i])
                n_close++;
            else if (set != (above > 0))
                fail_msg("column %d, neuron %d of %d: %g above the cut, bit %d", c, (int)i,
                         (int)s->n, above, set);
        }
    }
    assert_true(n_set > 0 && n_set < s->n_cols * s->n);
    assert_true(n_close <= s->n_cols * s->n / 20);
    if (s->list) check_list(s, got);
    if (a->arrived) case_download(&arrived, a->arrived, sizeof arrived);
    assert_int_equal(arrived, 0);
}

/* w == NULL: signs of neuron i are set where k * 7 + i * 5 is a multiple of 3. The device gets only
 * the form of the input that it is supposed to read. */
static void check_predict(const case_mat *w, int64_t n, int64_t n_in, int n_cols, bool list) {
    case_columns x = case_input(n_in, n_cols);
    float *bias = case_random(n, 0.3f);
    const int32_t zero = 0;
    const size_t n_scores = (size_t)(n_cols * n), n_sign = (size_t)n_in / 8;
    const int64_t n_words = (n + 31) / 32;
    double *score = case_host(n_scores * sizeof *score), *size = case_host(n_scores * sizeof *size);
    uint8_t *signs = case_host((size_t)n * n_sign + 1);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < n_in && !w; k++)
            if ((k * 7 + i * 5) % 3 == 0)
                signs[(size_t)i * n_sign + (size_t)k / 8] |= (uint8_t)(1 << k % 8);
        for (int c = 0; c < n_cols; c++) {
            const float *seen = w ? case_seen(&x, w->mat.type, c) : x.known + c * x.ldx;
            double sum = 0, sizes = 1e-30;
            for (int64_t k = 0; k < n_in; k++) {
                double f = (k * 7 + i * 5) % 3 == 0 ? 1 : -1;
                if (w) f = (double)w->values[i * n_in + k] * 0.5;
                sum += f * (double)seen[k];
                sizes += fabs(f * (double)seen[k]);
            }
            score[c * n + i] = sum + (double)bias[i];
            size[c * n + i] = sizes + fabs((double)bias[i]);
        }
    }
    gpu_predict a = {.w = w ? w->mat : (gpu_mat){.n_in = n_in, .n_out = n},
                     .signs = w ? NULL : case_upload(signs, (size_t)n * n_sign),
                     .in = x.in,
                     .scale = 0.5f,
                     .select = {.bias = case_upload(bias, (size_t)n * sizeof *bias),
                                .n = n,
                                .n_list = n - n / 7,
                                .n_cols = n_cols,
                                .cut = 0.25f,
                                .list = list ? case_alloc((size_t)n * sizeof(int32_t)) : NULL,
                                .count = list ? case_alloc(sizeof(int32_t)) : NULL,
                                .bitmap = case_alloc((size_t)(n_cols * n_words) * 4)},
                     .arrived = list ? case_upload(&zero, sizeof zero) : NULL};
    if (w)
        a.in.q8 = NULL;
    else
        a.in.x = NULL;
    OPS->predict(the_case.stream, &a);
    check_prediction(&a, score, size);
}

static void test_predict_types(void **state) {
    (void)state;
    for (int t = 0; t < case_n_types; t++) {
        if (!case_has(GPU_OP_PREDICT, case_types[t])) continue;
        case_teardown(NULL);
        const int64_t n_in = case_width(case_types[t], 64);
        const case_mat w = case_weights(case_types[t], 70, n_in);
        check_predict(&w, 70, n_in, t % 2 ? 3 : 1, t % 3 != 0);
    }
}

/* One to all columns; a last word with few neurons; vectors that are quantized one at a time; more
 * words than a block has threads. */
static void test_predict_shapes(void **state) {
    (void)state;
    static const struct {
        int64_t n, n_in;
        int n_cols;
    } shapes[] = {{1, 32, 1}, {32, 96, GPU_MAX_COLS}, {65, 1056, 5}, {40, 4096, 3}, {8330, 32, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n = shapes[i].n + 30 * (i == 0), n_in = shapes[i].n_in;
        for (int kind = 0; kind < 3; kind++) {
            case_teardown(NULL);
            case_mat w = {0};
            if (kind < 2) w = case_weights(kind ? QUANT_F16 : QUANT_Q8_0, n, n_in);
            check_predict(kind < 2 ? &w : NULL, n, n_in, shapes[i].n_cols, true);
        }
        case_teardown(NULL);
        check_predict(NULL, n, n_in, shapes[i].n_cols, false);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Activations in place. given: the input has activations, not gates. by_bits: masks by bits that
 * begin within a word, and a factor per element. gated: with `up` and the int8 form; up is not
 * finite at some elements, where zeros must stay zero. With cut > 0 hidden
 * values also have a threshold. */
static void check_activate(activation f, int n_cols, bool given, bool gated, bool by_bits,
                           float cut) {
    enum { MOST = 320, FIRST = 37, WORDS = (FIRST + MOST + 31) / 32 };
    const int64_t width = gated ? MOST : MOST - 19;
    const float cut_down = cut > 0 ? 0.5f : 0;
    const size_t n = (size_t)(n_cols * width), n_bits = (size_t)n_cols * WORDS;
    float *gate = case_random((int64_t)n, 2), *up = case_random((int64_t)n, 2);
    float *y = case_host(n * sizeof *y), *weight = case_host((size_t)width * sizeof *weight);
    uint32_t *bits = case_host(n_bits * sizeof *bits);
    for (size_t i = 0; i < n_bits; i++) bits[i] = (uint32_t)rng_u64(&the_case.r);
    for (int64_t i = 0; i < width; i++) weight[i] = by_bits ? 0.5f + (float)(i % 4) / 2 : 1;
    for (size_t i = 3; i < n; i += 11) up[i] = i % 2 ? (float)INFINITY : (float)NAN;
    gpu_activate a = {.gate = case_upload(gate, n * sizeof *gate),
                      .up = gated ? case_upload(up, n * sizeof *up) : NULL,
                      .ldg = width,
                      .ldu = width,
                      .ldy = width,
                      .n = width,
                      .n_cols = n_cols,
                      .f = f,
                      .given = given,
                      .threshold = 0.25f,
                      .cut = cut,
                      .cut_weight = by_bits ? case_upload(weight, (size_t)width * 4) : NULL,
                      .cut_down = cut_down,
                      .bitmap = by_bits ? case_upload(bits, n_bits * sizeof *bits) : NULL,
                      .n_words = WORDS,
                      .first_bit = FIRST,
                      .q8 = gated ? case_alloc(gpu_q8_bytes(width) * (size_t)n_cols) : NULL};
    a.y = (float *)(uintptr_t)a.gate;
    OPS->activate(the_case.stream, &a);
    if (gated) case_quantized(a.q8, a.y, width, width, n_cols);
    case_download(y, a.y, n * sizeof *y);
    int zeros = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (int)((int64_t)i / width);
        double want = (double)gate[i], u = (double)up[i];
        if (!given) want = activation_formula(f, 0.25, want);
        const double magnitude = fabs(want) * (double)weight[(int64_t)i % width];
        if (cut > 0 && fabs(magnitude - (double)cut) < 2e-5) continue; /* depends on rounding */
        if (magnitude <= (double)cut) want = 0;
        if (by_bits && !bit_of(bits, WORDS, c, FIRST + (int64_t)i % width)) want = 0;
        if (want != 0 && gated) want *= f == ACTIVATION_DRELU && u < 0 ? 0 : u;
        if (gated && cut > 0 && fabs(fabs(want) - (double)cut_down) < 2e-5) continue;
        if (gated && fabs(want) <= (double)cut_down) want = 0;
        zeros += want == 0;
        if (isnan(want))
            assert_true(isnan(y[i]));
        else if (isinf(want) || want == 0)
            assert_true((double)y[i] == want);
        else
            case_near(y[i], want, fabs(want) + 0.1, 1e-5, "activate", (int64_t)i);
    }
    assert_true(zeros < (int)n && (!by_bits || zeros > (int)n / 4));
}

/* Limits of gate and up with divisors, and the activation of gpt-oss. */
static void check_clamp(int n_cols, float most, bool shifted, bool late, float soft) {
    enum { N_PAIRS = 70 };
    size_t n = (size_t)(n_cols * N_PAIRS);
    float *gate = case_random(n_cols * N_PAIRS, 6), *up = case_random(n_cols * N_PAIRS, 6);
    float *got = case_host(n * sizeof *got), by[N_PAIRS];
    for (int i = 0; i < N_PAIRS; i++) by[i] = 0.5f + (float)i;
    gpu_activate a = {.gate = case_upload(gate, n * sizeof *gate),
                      .up = case_upload(up, n * sizeof *up),
                      .ldg = N_PAIRS,
                      .ldu = N_PAIRS,
                      .ldy = N_PAIRS,
                      .n = N_PAIRS,
                      .n_cols = n_cols,
                      .f = ACTIVATION_SILU,
                      .clamp = {most, shifted, late, soft},
                      .cut = -1,
                      .divisors = shifted ? NULL : case_upload(by, sizeof by),
                      .y = case_alloc(n * sizeof *got)};
    OPS->activate(the_case.stream, &a);
    case_download(got, a.y, n * sizeof *got);
    for (size_t i = 0; i < n; i++) {
        double limit = (double)most, g = fmin((double)gate[i], limit);
        double u = fmax(-limit, fmin((double)up[i], limit)) + (shifted ? 1 : 0);
        double want = g / (1 + exp(shifted ? -1.702 * g : -g)) * u, x = (double)gate[i];
        if (late) want = fmin(x / (1 + exp(-x)), limit) * u;
        if (soft > 0) { /* SiTU */
            u = isinf(limit) ? (double)up[i] : limit * tanh((double)up[i] / limit);
            want = (double)soft * tanh(x / (double)soft) / (1 + exp(-x)) * u;
        }
        if (!shifted) want /= (double)by[i % N_PAIRS];
        case_near((double)got[i], want, fabs(want) + 0.1, 1e-5, "clamp", (int64_t)i);
    }
}

static void test_activate(void **state) {
    (void)state;
    for (int f = 0; f < ACTIVATION_COUNT; f++) {
        for (int k = 0; k < 8; k++) {
            case_teardown(NULL);
            float cut = k / 2 % 2 ? 0.75f : f % 2 ? 0.0f : -1.0f;
            check_activate((activation)f, 2, k == 5, k % 2 == 1, k / 4 == 1, cut);
        }
    }
    for (int i = 0; i < COUNTS; i++) {
        case_teardown(NULL);
        check_activate(ACTIVATION_DRELU, column_counts[i], i == 1, true, true, 0.5f);
        check_clamp(column_counts[i], 7, true, false, 0);
        check_clamp(column_counts[i], 2.5f, false, false, 0);
        check_clamp(column_counts[i], 2.5f, false, true, 0);
        check_clamp(column_counts[i], 2.5f, false, false, 4);
        check_clamp(column_counts[i], (float)INFINITY, false, false, 4);
    }
}

/* ---- messages of many columns ---------------------------------------------------------------- */

enum { BIT_WORDS = 3 };

/* One buffer of pinned memory: flag, columns, bits. */
typedef struct handoff {
    gpu_pinned pinned;
    size_t x_at, bits_at;
    uint64_t *epoch;
} handoff;

static handoff open_handoff(int n_cols, int n) {
    static const uint64_t epoch = 3;
    const size_t n_x = (size_t)n_cols * (size_t)n * sizeof(float);
    handoff e = {.x_at = GPU_FLAG_BYTES, .bits_at = GPU_FLAG_BYTES + n_x};
    pi_error err;
    const size_t n_bytes = e.bits_at + (size_t)n_cols * BIT_WORDS * sizeof(uint32_t);
    assert_int_equal(the_case.b->host_alloc(the_case.device, n_bytes, &e.pinned, &err), PI_OK);
    e.epoch = case_upload(&epoch, sizeof epoch);
    return e;
}

static void *there(const handoff *e, size_t at) {
    return (uint8_t *)e->pinned.device + at;
}
static void *here(const handoff *e, size_t at) {
    return (uint8_t *)e->pinned.host + at;
}

/* The flag guarantees that the message is complete. */
static void await_message(const handoff *e, uint64_t epoch) {
    if (!the_case.b->kernels_may_wait) case_sync(); /* nothing is submitted before */
    while (gpu_flag_get(here(e, 0)) < epoch) {}
}

static uint32_t *random_bits(int n_cols) {
    uint32_t *bits = case_host((size_t)n_cols * BIT_WORDS * sizeof *bits);
    for (int i = 0; i < n_cols * BIT_WORDS; i++) bits[i] = (uint32_t)rng_u64(&the_case.r);
    return bits;
}

static void check_publish(int n_cols, int n, bool with_bits) {
    const int ld = n / 4 * 4 + 4;
    handoff e = open_handoff(n_cols, n);
    const size_t n_bits = (size_t)n_cols * BIT_WORDS * sizeof(uint32_t);
    float *x = case_random(n_cols * ld, 1);
    uint32_t *bits = random_bits(n_cols);
    gpu_publish a = {.x = case_upload(x, (size_t)(n_cols * ld) * sizeof *x),
                     .ldx = ld,
                     .n = n,
                     .n_cols = n_cols,
                     .bits = with_bits ? case_upload(bits, n_bits) : NULL,
                     .n_words = BIT_WORDS,
                     .host_x = there(&e, e.x_at),
                     .host_bits = there(&e, e.bits_at),
                     .flag = there(&e, 0),
                     .epoch = e.epoch};
    OPS->publish(the_case.stream, &a);
    await_message(&e, 3);
    const float *got = here(&e, e.x_at);
    for (int c = 0; c < n_cols; c++)
        assert_memory_equal(got + c * n, x + c * ld, (size_t)n * sizeof *x);
    if (with_bits)
        assert_memory_equal(here(&e, e.bits_at), bits, n_bits);
    else
        assert_true(*(const uint32_t *)here(&e, e.bits_at) == 0);
    case_sync();
    the_case.b->host_free(the_case.device, &e.pinned);
}

/* A predictor's kernel sends its bitmaps itself, twice; with epoch 0 it sends nothing. */
static void test_predict_message(void **state) {
    (void)state;
    enum { N_SENT = 32 * BIT_WORDS - 5, N_IN = 64 };
    static const uint64_t epochs[] = {0, 3};
    for (int n_cols = 1; n_cols <= 3; n_cols += 2) {
        const case_mat w = case_weights(QUANT_Q4_0, N_SENT, N_IN);
        const case_columns x = case_input(N_IN, n_cols);
        const size_t n_bits = (size_t)n_cols * BIT_WORDS * sizeof(uint32_t);
        const int32_t zero = 0;
        handoff e = open_handoff(n_cols, 1);
        gpu_send send = {.host_bits = there(&e, e.bits_at), .flag = there(&e, 0)};
        const gpu_predict a = {.w = w.mat,
                               .in = x.in,
                               .scale = 1,
                               .select = {.n = N_SENT,
                                          .n_list = N_SENT,
                                          .n_cols = n_cols,
                                          .bitmap = case_alloc(n_bits)},
                               .send = &send,
                               .arrived = case_upload(&zero, sizeof zero)};
        uint32_t *got = case_host(n_bits);
        for (int k = 0; k < 2; k++) {
            send.epoch = case_upload(&epochs[k], sizeof epochs[k]);
            OPS->predict(the_case.stream, &a);
            await_message(&e, epochs[k]);
            case_download(got, a.select.bitmap, n_bits);
            const uint32_t *sent = here(&e, e.bits_at);
            for (size_t i = 0; i < n_bits / sizeof *got; i++)
                assert_int_equal(sent[i], k ? got[i] : 0);
        }
        bool any = false;
        for (size_t i = 0; i < n_bits / sizeof *got; i++) any = any || got[i];
        assert_true(any);
        the_case.b->host_free(the_case.device, &e.pinned);
    }
}

/* Both ends of an exchange of experts without work: the flag says so, buffers are unchanged, no
 * device waits, and the received choices name no expert. */
static void check_idle(int n_cols, bool others) {
    enum { N_X = 8, N_USED = 3, N_OWN = 4, N_CHOSEN = N_USED * GPU_CHOICE_WORDS };
    for (int work = 0; work < 2; work++) {
        handoff e = open_handoff(n_cols, N_X);
        const size_t n_choices = (size_t)(n_cols * N_CHOSEN);
        uint32_t *choices = case_host(n_choices * sizeof *choices);
        float *x = case_random(n_cols * N_X, 1),
              *got = case_host((size_t)(n_cols * N_X) * sizeof *got);
        for (size_t i = 0; i < n_choices; i += GPU_CHOICE_WORDS)
            choices[i] = (uint32_t)(others ? N_OWN + i % 3 : i % N_OWN);
        if (work)
            choices[n_choices - GPU_CHOICE_WORDS] = others ? 0 : N_OWN; /* of the other device */
        const gpu_idle idle = {.choices = case_upload(choices, n_choices * sizeof *choices),
                               .n_used = N_USED,
                               .n_own = N_OWN,
                               .others = others};
        gpu_publish a = {.x = case_upload(x, (size_t)(n_cols * N_X) * sizeof *x),
                         .ldx = N_X,
                         .n = N_X,
                         .n_cols = n_cols,
                         .host_x = there(&e, e.x_at),
                         .flag = there(&e, 0),
                         .epoch = e.epoch,
                         .idle = idle};
        OPS->publish(the_case.stream, &a);
        case_sync();
        assert_int_equal(gpu_flag_get(here(&e, 0)), work ? 3 : 4);
        const float *sent = here(&e, e.x_at);
        for (int i = 0; i < n_cols * N_X; i++) assert_true(sent[i] == (work ? x[i] : 0));
        /* the sender's flag: raised for an empty message; or not raised */
        gpu_receive b = {.host_x = there(&e, e.x_at),
                         .n = N_X,
                         .ldy = N_X,
                         .n_cols = n_cols,
                         .set = true,
                         .host_bits = there(&e, e.bits_at),
                         .bits = case_upload(choices, n_choices * sizeof *choices),
                         .n_words = N_CHOSEN,
                         .flag = there(&e, 0),
                         .epoch = e.epoch,
                         .y = case_upload(x, (size_t)(n_cols * N_X) * sizeof *x)};
        gpu_flag_raise(here(&e, 0), 4);
        memset(here(&e, e.x_at), 0xff, (size_t)(n_cols * N_X) * sizeof *x);
        OPS->receive(the_case.stream, &b);
        case_download(choices, b.bits, n_choices * sizeof *choices);
        for (size_t i = 0; i < n_choices; i++) assert_int_equal(choices[i], UINT32_MAX);
        gpu_flag_raise(here(&e, 0), 1); /* an earlier epoch */
        b.idle = idle;
        if (!work) OPS->receive(the_case.stream, &b);
        case_download(got, b.y, (size_t)(n_cols * N_X) * sizeof *got);
        assert_memory_equal(got, x, (size_t)(n_cols * N_X) * sizeof *x);
        the_case.b->host_free(the_case.device, &e.pinned);
    }
}

static void test_idle(void **state) {
    (void)state;
    for (int n_cols = 1; n_cols <= 3; n_cols += 2) {
        check_idle(n_cols, false);
        check_idle(n_cols, true);
    }
}

static void check_receive(int n_cols, int n, bool set, bool with_bits) {
    const int ld = n / 4 * 4 + 8;
    handoff e = open_handoff(n_cols, n);
    const size_t n_bits = (size_t)n_cols * BIT_WORDS * sizeof(uint32_t);
    const size_t n_y = (size_t)(n_cols * ld) * sizeof(float);
    float *y = case_random(n_cols * ld, 1), *x = case_random(n_cols * n, 1);
    const bool quantized = n % 32 == 0;
    uint32_t *bits = random_bits(n_cols), *got_bits = case_host(n_bits);
    gpu_receive a = {.host_x = there(&e, e.x_at),
                     .n = n,
                     .ldy = ld,
                     .n_cols = n_cols,
                     .set = set,
                     .host_bits = with_bits ? there(&e, e.bits_at) : NULL,
                     .bits = with_bits ? case_alloc(n_bits) : NULL,
                     .n_words = BIT_WORDS,
                     .flag = there(&e, 0),
                     .epoch = e.epoch,
                     .y = case_upload(y, n_y),
                     .q8 = quantized ? case_alloc(gpu_q8_bytes(n) * (size_t)n_cols) : NULL,
                     .clear = set ? case_upload(y, n_y) : NULL,
                     .ld_clear = ld};
    if (the_case.b->kernels_may_wait) OPS->receive(the_case.stream, &a);
    memcpy(here(&e, e.x_at), x, (size_t)(n_cols * n) * sizeof *x);
    memcpy(here(&e, e.bits_at), bits, n_bits);
    gpu_flag_raise(here(&e, 0), 3);
    if (!the_case.b->kernels_may_wait) OPS->receive(the_case.stream, &a);
    float *got = case_host(n_y);
    case_download(got, a.y, n_y);
    for (int c = 0; c < n_cols; c++) {
        for (int i = 0; i < ld; i++) {
            float before = y[c * ld + i], answer = i < n ? x[c * n + i] : 0;
            assert_true(got[c * ld + i] == (i >= n ? before : set ? answer : before + answer));
        }
    }
    if (quantized) case_quantized(a.q8, a.y, ld, n, n_cols);
    if (set) case_download(got, a.clear, n_y);
    for (int i = 0; set && i < n_cols * ld; i++) assert_true(got[i] == (i % ld < n ? 0 : y[i]));
    if (with_bits) {
        case_download(got_bits, a.bits, n_bits);
        assert_memory_equal(got_bits, bits, n_bits);
    }
    the_case.b->host_free(the_case.device, &e.pinned);
}

static void test_handoffs(void **state) {
    (void)state;
    for (int i = 0; i < COUNTS; i++) {
        for (int k = 0; k < 4; k++) {
            case_teardown(NULL);
            /* Lengths for vectors of four, for single elements, and for groups of the int8 form. */
            const int n = i == 1 ? 9024 + k : k == 3 ? 96 : 76 + (k + 1) / 2;
            check_publish(column_counts[i], n, k % 2 == 1);
            check_receive(column_counts[i], n, k / 2 == 1, k % 2 == 1);
        }
    }
}

/* The clock increases, also in a program that is launched again; a stamp is written before later
 * steps run. */
static void test_stamps(void **state) {
    (void)state;
    enum { N_STAMPS = 3, N_LAUNCHES = 3 };
    if (!the_case.b->kernels_may_wait) skip(); /* a receive behind a stamp would not wait */
    handoff e = open_handoff(1, 8);
    gpu_program *p;
    pi_error err;
    uint64_t last = 0;
    const gpu_receive wait = {.flag = there(&e, 0), .epoch = e.epoch, .n_cols = 1};
    case_sync();
    assert_int_equal(the_case.b->record_begin(the_case.stream, &err), PI_OK);
    for (size_t i = 0; i < N_STAMPS; i++) {
        const gpu_stamp a = {.ns = there(&e, e.x_at + i * sizeof(uint64_t))};
        if (i == 1) OPS->receive(the_case.stream, &wait);
        OPS->stamp(the_case.stream, &a);
    }
    assert_int_equal(the_case.b->record_end(the_case.stream, &p, &err), PI_OK);
    for (int k = 0; k < N_LAUNCHES; k++) {
        gpu_flag_raise(here(&e, 0), 0);
        memset(here(&e, e.x_at), 0, N_STAMPS * sizeof(uint64_t));
        the_case.b->program_launch(the_case.stream, p);
        while (gpu_flag_get(here(&e, e.x_at)) == 0) { /* visible while the program runs */
        }
        assert_true(gpu_flag_get(here(&e, e.x_at + sizeof(uint64_t))) == 0);
        gpu_flag_raise(here(&e, 0), 3);
        case_sync();
        for (size_t i = 0; i < N_STAMPS; i++) {
            uint64_t now = gpu_flag_get(here(&e, e.x_at + i * sizeof now));
            assert_true(now != 0 && now >= last);
            last = now;
        }
    }
    the_case.b->program_free(p);
    the_case.b->host_free(the_case.device, &e.pinned);
}

/* Messages of bits only, in both directions. */
static void test_bits_alone(void **state) {
    (void)state;
    enum { N_COLS = 9 };
    handoff e = open_handoff(N_COLS, 1);
    const size_t n_bits = N_COLS * BIT_WORDS * sizeof(uint32_t);
    uint32_t *bits = random_bits(N_COLS), *got = case_host(n_bits);
    gpu_publish out = {.n_cols = N_COLS,
                       .bits = case_upload(bits, n_bits),
                       .n_words = BIT_WORDS,
                       .host_bits = there(&e, e.bits_at),
                       .flag = there(&e, 0),
                       .epoch = e.epoch};
    gpu_receive in = {.n_cols = N_COLS,
                      .host_bits = out.host_bits,
                      .bits = case_alloc(n_bits),
                      .n_words = BIT_WORDS,
                      .flag = out.flag,
                      .epoch = e.epoch};
    OPS->publish(the_case.stream, &out);
    if (!the_case.b->kernels_may_wait) case_sync();
    OPS->receive(the_case.stream, &in);
    case_download(got, in.bits, n_bits);
    assert_memory_equal(got, bits, n_bits);
    the_case.b->host_free(the_case.device, &e.pinned);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_select),          CASE_TEST(test_select_ends),   CASE_TEST(test_activate),
    CASE_TEST(test_handoffs),        CASE_TEST(test_idle),          CASE_TEST(test_bits_alone),
    CASE_TEST(test_stamps),          CASE_TEST(test_predict_types), CASE_TEST(test_predict_shapes),
    CASE_TEST(test_predict_message),
};
CASE_MAIN(tests)
