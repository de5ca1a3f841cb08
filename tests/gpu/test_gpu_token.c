/* test_gpu_token.c: a decoder layer as the engine runs it: one recorded program per split, launched
 * once per token, with an exchange in the middle. The device computes neurons [0, hot), a host
 * thread the others. For every split point the residual stream equals that of the device alone,
 * which test_gpu_attention and test_gpu_ffn compare with formulas. */
#include "gpu_case.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define B   (the_case.b)
#define OPS (&the_case.b->ops)

enum { EMBD = 64, HEAD = 32, HEADS = 2, KV_HEADS = 1, FF = 96, VOCAB = 11, CTX = 40, TOKENS = 12 };
enum { QKV = (HEADS + 2 * KV_HEADS) * HEAD };

typedef struct network {
    case_mat embd, qkv, out, gate, up, down; /* down: a row per neuron */
    gpu_pinned pinned;                       /* flags, x, the answer */
    atomic_bool stop;
    int64_t hot;
    /* device memory */
    gpu_column *cols;
    uint64_t *epoch;
    float *x, *y, *qkv_out, *attn, *h, *partial, *cs, *inv_freq, *norm;
    void *q8, *kv;
} network;

enum { FLAG_TO_HOST = 0, FLAG_TO_DEVICE = GPU_FLAG_BYTES, AT_X = 1024, AT_ANSWER = 2048 };

static void *host_at(const network *n, size_t at) {
    return (uint8_t *)n->pinned.host + at;
}

static void *device_at(const network *n, size_t at) {
    return (uint8_t *)n->pinned.device + at;
}

/* The cold neurons: relu(gate y) * (up y), multiplied by their rows of down. */
static void compute_cold(const network *n, const float *y, float *answer) {
    double sum[EMBD] = {0};
    for (int64_t i = n->hot; i < FF; i++) {
        double g = 0, u = 0;
        for (int k = 0; k < EMBD; k++) {
            g += (double)n->gate.values[i * EMBD + k] * (double)y[k];
            u += (double)n->up.values[i * EMBD + k] * (double)y[k];
        }
        if (g <= 0) continue;
        for (int k = 0; k < EMBD; k++) sum[k] += g * u * (double)n->down.values[i * EMBD + k];
    }
    for (int k = 0; k < EMBD; k++) answer[k] = (float)sum[k];
}

static void *host_side(void *user) {
    network *n = user;
    for (uint64_t epoch = 1;; epoch++) {
        while (gpu_flag_get(host_at(n, FLAG_TO_HOST)) < epoch) {
            if (atomic_load(&n->stop)) return NULL;
            sched_yield();
        }
        compute_cold(n, host_at(n, AT_X), host_at(n, AT_ANSWER));
        gpu_flag_raise(host_at(n, FLAG_TO_DEVICE), epoch);
    }
}

static gpu_kv_layout kv_layout(void) {
    const size_t row = KV_HEADS * HEAD * 2; /* F16 */
    return (gpu_kv_layout){.v_offset = row,
                           .k_row = row,
                           .v_row = row,
                           .type_k = QUANT_F16,
                           .type_v = QUANT_F16,
                           .n_head_kv = KV_HEADS,
                           .head_dim = HEAD,
                           .v_dim = HEAD};
}

static void enqueue_norm(const network *n) {
    gpu_norm a = {.x = n->x,
                  .w = n->norm,
                  .ldx = EMBD,
                  .ldy = EMBD,
                  .n = EMBD,
                  .eps = 1e-5f,
                  .n_cols = 1,
                  .y = n->y,
                  .q8 = n->q8};
    OPS->norm(the_case.stream, &a);
}

static gpu_input input_of(const network *n, const float *x) {
    return (gpu_input){.x = x, .ldx = EMBD, .q8 = n->q8, .n_cols = 1};
}

static void enqueue_attention(const network *n) {
    gpu_rope_angles r = {.cols = n->cols,
                         .inv_freq = n->inv_freq,
                         .scale = 1,
                         .n_cols = 1,
                         .n_half = HEAD / 2,
                         .cs = n->cs};
    OPS->rope_angles(the_case.stream, &r);
    enqueue_norm(n);
    gpu_matmul qkv = {
        .w = n->qkv.mat, .in = input_of(n, n->y), .scale = 0.1f, .y = n->qkv_out, .ldy = QKV};
    OPS->matvec(the_case.stream, &qkv, 1);
    gpu_rope_store s = {.q = n->qkv_out,
                        .k = n->qkv_out + HEADS * HEAD,
                        .v = n->qkv_out + (HEADS + KV_HEADS) * HEAD,
                        .ldq = QKV,
                        .ldk = QKV,
                        .ldv = QKV,
                        .cs = n->cs,
                        .n_rot = HEAD,
                        .n_head = HEADS,
                        .n_cols = 1,
                        .neox = true,
                        .cols = n->cols,
                        .kv = kv_layout()};
    OPS->rope_store(the_case.stream, &s);
    gpu_attention a = {.q = n->qkv_out,
                       .ldq = QKV,
                       .ldo = HEADS * HEAD,
                       .cols = n->cols,
                       .kv = kv_layout(),
                       .n_head = HEADS,
                       .n_cols = 1,
                       .n_splits = gpu_attention_splits(CTX),
                       .scale = 0.17f,
                       .out = n->attn};
    OPS->attention(the_case.stream, &a);
    gpu_matmul out = {.w = n->out.mat,
                      .in = {.x = n->attn, .ldx = HEADS * HEAD, .n_cols = 1},
                      .scale = 0.1f,
                      .add = true,
                      .y = n->x,
                      .ldy = EMBD};
    OPS->matvec(the_case.stream, &out, 1);
}

/* The message is sent first, so that the host computes while the device computes its neurons. */
static void enqueue_ffn(const network *n) {
    bool split = n->hot < FF;
    enqueue_norm(n);
    gpu_publish p = {.x = n->y,
                     .ldx = EMBD,
                     .n = EMBD,
                     .n_cols = 1,
                     .host_x = device_at(n, AT_X),
                     .flag = device_at(n, FLAG_TO_HOST),
                     .epoch = n->epoch};
    if (split) OPS->publish(the_case.stream, &p);
    gpu_ffn_in in = {.gate = n->gate.mat,
                     .up = n->up.mat,
                     .f = ACTIVATION_RELU,
                     .skip = true,
                     .in = input_of(n, n->y),
                     .n = n->hot,
                     .h = n->h,
                     .ldh = FF};
    OPS->ffn_in(the_case.stream, &in);
    gpu_down_rows down = {.w = n->down.mat,
                          .n_max = n->hot,
                          .h = n->h,
                          .ldh = FF,
                          .n_cols = 1,
                          .add = true,
                          .partial = n->partial,
                          .y = n->x,
                          .ldy = EMBD};
    OPS->down_rows(the_case.stream, &down);
}

static void enqueue_receive(const network *n) {
    gpu_receive r = {.host_x = device_at(n, AT_ANSWER),
                     .n = EMBD,
                     .ldy = EMBD,
                     .n_cols = 1,
                     .flag = device_at(n, FLAG_TO_DEVICE),
                     .epoch = n->epoch,
                     .y = n->x};
    OPS->receive(the_case.stream, &r);
}

static void build(network *n, quant_type type) {
    float inv_freq[HEAD / 2];
    *n = (network){0};
    n->embd = case_weights(type, VOCAB, EMBD);
    n->qkv = case_weights(QUANT_F16, QKV, EMBD);
    n->out = case_weights(QUANT_F16, EMBD, HEADS * HEAD);
    n->gate = case_weights(QUANT_F16, FF, EMBD);
    n->up = case_weights(QUANT_F16, FF, EMBD);
    n->down = case_weights(type, FF, EMBD);
    for (int i = 0; i < HEAD / 2; i++) inv_freq[i] = powf(1000, -2.0f * (float)i / HEAD);
    n->inv_freq = case_upload(inv_freq, sizeof inv_freq);
    n->norm = case_upload(case_random(EMBD, 1), EMBD * 4);
    n->cols = case_alloc(sizeof *n->cols);
    n->epoch = case_alloc(sizeof *n->epoch);
    n->x = case_alloc(EMBD * 4);
    n->y = case_alloc(EMBD * 4);
    n->qkv_out = case_alloc(QKV * 4);
    n->attn = case_alloc(HEADS * HEAD * 4);
    n->h = case_alloc(FF * 4);
    n->partial = case_alloc(gpu_down_partial(EMBD, 1) * 4);
    n->cs = case_alloc(HEAD * 4);
    n->q8 = case_alloc(gpu_q8_bytes(EMBD));
    n->kv = case_alloc(CTX * 2 * KV_HEADS * HEAD * 2);
    pi_error err;
    assert_int_equal(B->host_alloc(the_case.device, 4096, &n->pinned, &err), PI_OK);
}

/* The residual stream after each token, with the split point `hot`. Where kernels may not wait for
 * the host, a second program receives the answer and is launched after it. */
static void run_tokens(network *n, int64_t hot, float x[TOKENS][EMBD]) {
    const bool split = hot < FF, waits = split && !B->kernels_may_wait;
    gpu_program *program = NULL, *rest = NULL;
    pthread_t host;
    pi_error err;
    n->hot = hot;
    atomic_store(&n->stop, false);
    gpu_flag_raise(host_at(n, FLAG_TO_HOST), 0);
    gpu_flag_raise(host_at(n, FLAG_TO_DEVICE), 0);
    assert_int_equal(B->record_begin(the_case.stream, &err), PI_OK);
    enqueue_attention(n);
    enqueue_ffn(n);
    if (split && !waits) enqueue_receive(n);
    assert_int_equal(B->record_end(the_case.stream, &program, &err), PI_OK);
    if (waits) {
        assert_int_equal(B->record_begin(the_case.stream, &err), PI_OK);
        enqueue_receive(n);
        assert_int_equal(B->record_end(the_case.stream, &rest, &err), PI_OK);
    }
    assert_int_equal(pthread_create(&host, NULL, host_side, n), 0);
    for (int t = 0; t < TOKENS; t++) {
        uint64_t epoch = (uint64_t)t + 1;
        gpu_column col = {.kv = n->kv, .n_ctx = CTX, .token = t * 7 % VOCAB, .pos = t};
        B->upload(the_case.stream, n->cols, &col, sizeof col);
        B->upload(the_case.stream, n->epoch, &epoch, sizeof epoch);
        B->upload(the_case.stream, n->x, n->embd.values + col.token * EMBD, EMBD * 4);
        B->program_launch(the_case.stream, program);
        if (waits) {
            if (B->stream_sync(the_case.stream, &err)) fail_msg("token %d: %s", t, err.message);
            while (gpu_flag_get(host_at(n, FLAG_TO_DEVICE)) < epoch) sched_yield();
            B->program_launch(the_case.stream, rest);
        }
        B->download(the_case.stream, x[t], n->x, EMBD * 4);
        if (B->stream_sync(the_case.stream, &err)) fail_msg("token %d: %s", t, err.message);
    }
    atomic_store(&n->stop, true);
    pthread_join(host, NULL);
    B->program_free(program);
    if (rest) B->program_free(rest);
}

static void check_cuts(quant_type type) {
    static const int64_t cuts[] = {95, 64, 33, 1, 0};
    static float whole[TOKENS][EMBD], again[TOKENS][EMBD], split[TOKENS][EMBD];
    network n;
    build(&n, type);
    run_tokens(&n, FF, whole);
    run_tokens(&n, FF, again);
    assert_memory_equal(whole, again, sizeof whole); /* bit for bit */
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        run_tokens(&n, cuts[i], split);
        for (int t = 0; t < TOKENS; t++) {
            double error = 0, size = 0;
            for (int k = 0; k < EMBD; k++) {
                error += pow((double)split[t][k] - (double)whole[t][k], 2);
                size += pow((double)whole[t][k], 2);
            }
            assert_true(size > 1);
            case_near(sqrt(error), 0, sqrt(size), 1e-5, "token", t);
        }
    }
    B->host_free(the_case.device, &n.pinned);
}

static void test_cuts(void **state) {
    (void)state;
    if (!case_has(GPU_OP_DOWN_ROWS, QUANT_Q8_0)) skip();
    check_cuts(QUANT_F16);
    case_teardown(NULL);
    check_cuts(QUANT_Q8_0);
}

static const struct CMUnitTest tests[] = {
    CASE_TEST(test_cuts),
};
CASE_MAIN(tests)
