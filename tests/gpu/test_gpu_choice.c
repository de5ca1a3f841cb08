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

static void check_list(const gpu_select *a, const uint32_t *bits, int n_cols) {
    int32_t *list = case_host(N_LIST * sizeof *list), count, want = 0;
    case_download(list, a->list, N_LIST * sizeof *list);
    case_download(&count, a->count, sizeof count);
    for (int i = 0; i < N_LIST; i++) {
        bool any = false;
        for (int c = 0; c < n_cols; c++) any = any || bit_of(bits, N_WORDS, c, i);
        if (any) assert_int_equal(list[want++], i);
    }
    assert_int_equal(count, want);
    assert_true(want > 100 && want <= N_LIST);
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
                    .list = case_alloc(N_LIST * sizeof(int32_t)),
                    .count = case_alloc(sizeof(int32_t)),
                    .bitmap = case_alloc(n_bytes)};
    OPS->select(the_case.stream, &a);
    case_download(got, a.bitmap, n_bytes);
    assert_memory_equal(got, want, n_bytes);
    check_list(&a, want, n_cols);
    gpu_select only_bits = a, only_list = a, from_bits = a;
    only_bits.list = only_bits.count = NULL;
    only_bits.bitmap = case_alloc(n_bytes);
    OPS->select(the_case.stream, &only_bits);
    case_download(got, only_bits.bitmap, n_bytes);
    assert_memory_equal(got, want, n_bytes);
    only_list.bitmap = NULL;
    only_list.list = case_alloc(N_LIST * sizeof(int32_t));
    only_list.count = case_alloc(sizeof(int32_t));
    OPS->select(the_case.stream, &only_list);
    check_list(&only_list, want, n_cols);
    for (int c = 0; c < n_cols; c++) /* bits after the last neuron are undefined */
        want[c * N_WORDS + N_WORDS - 1] |= UINT32_MAX << N % 32;
    from_bits.v = NULL;
    from_bits.bits_in = case_upload(want, n_bytes);
    from_bits.bitmap = NULL;
    from_bits.list = case_alloc(N_LIST * sizeof(int32_t));
    from_bits.count = case_alloc(sizeof(int32_t));
    OPS->select(the_case.stream, &from_bits);
    check_list(&from_bits, want, n_cols);
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

/* ---- activations ----------------------------------------------------------------------------- */

/* Activations in place. given: the input has activations, not gates. by_bits: masks by bits that
 * begin within a word. gated: with `up` and the int8 form; up is not finite at some elements, where
 * zeros must stay zero. */
static void check_activate(activation f, int n_cols, bool given, bool gated, bool by_bits,
                           float cut) {
    enum { MOST = 320, FIRST = 37, WORDS = (FIRST + MOST + 31) / 32 };
    const int64_t width = gated ? MOST : MOST - 19;
    const size_t n = (size_t)(n_cols * width), n_bits = (size_t)n_cols * WORDS;
    float *gate = case_random((int64_t)n, 2), *up = case_random((int64_t)n, 2);
    float *y = case_host(n * sizeof *y);
    uint32_t *bits = case_host(n_bits * sizeof *bits);
    for (size_t i = 0; i < n_bits; i++) bits[i] = (uint32_t)rng_u64(&the_case.r);
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
        if (cut > 0 && fabs(fabs(want) - (double)cut) < 1e-5) continue; /* depends on rounding */
        if (fabs(want) <= (double)cut) want = 0;
        if (by_bits && !bit_of(bits, WORDS, c, FIRST + (int64_t)i % width)) want = 0;
        if (want != 0 && gated) want *= f == ACTIVATION_DRELU && u < 0 ? 0 : u;
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

/* The activation of gate and up of gpt-oss. */
static void check_clamp(int n_cols) {
    enum { N_PAIRS = 70 };
    size_t n = (size_t)(n_cols * N_PAIRS);
    float *gate = case_random(n_cols * N_PAIRS, 6), *up = case_random(n_cols * N_PAIRS, 6);
    float *got = case_host(n * sizeof *got);
    gpu_activate a = {.gate = case_upload(gate, n * sizeof *gate),
                      .up = case_upload(up, n * sizeof *up),
                      .ldg = N_PAIRS,
                      .ldu = N_PAIRS,
                      .ldy = N_PAIRS,
                      .n = N_PAIRS,
                      .n_cols = n_cols,
                      .f = ACTIVATION_SILU,
                      .clamp = true,
                      .cut = -1,
                      .y = case_alloc(n * sizeof *got)};
    OPS->activate(the_case.stream, &a);
    case_download(got, a.y, n * sizeof *got);
    for (size_t i = 0; i < n; i++) {
        double g = fmin((double)gate[i], 7), u = fmax(-7, fmin((double)up[i], 7));
        double want = g / (1 + exp(-1.702 * g)) * (u + 1);
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
        check_clamp(column_counts[i]);
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
    while (gpu_flag_get(here(&e, 0)) < 3) { /* the flag guarantees that the message is complete */
    }
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
    OPS->receive(the_case.stream, &a);
    memcpy(here(&e, e.x_at), x, (size_t)(n_cols * n) * sizeof *x);
    memcpy(here(&e, e.bits_at), bits, n_bits);
    gpu_flag_raise(here(&e, 0), 3);
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
    OPS->receive(the_case.stream, &in);
    case_download(got, in.bits, n_bits);
    assert_memory_equal(got, bits, n_bits);
    the_case.b->host_free(the_case.device, &e.pinned);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_select),   CASE_TEST(test_select_ends), CASE_TEST(test_activate),
    CASE_TEST(test_handoffs), CASE_TEST(test_idle),        CASE_TEST(test_bits_alone),
    CASE_TEST(test_stamps),
};
CASE_MAIN(tests)
