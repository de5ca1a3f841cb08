/* gpu_exchange.c: messages between the CPU and the GPU, as the CPU sees them: buffers in pinned
 * memory and a flag per message. On the GPU the operations publish and receive handle them. */
#include "gpu_exchange.h"

#include "clock.h"
#include "gpu_exec_impl.h"

enum {
    POLLS_AT_ONCE = 256, /* of a flag, before the thread reads the clock and yields the core */
    WAIT_SECONDS = 120   /* for one message: attention in prefill takes seconds on a slow device */
};

/* Only a query of the driver tells that a kernel has failed. The query takes locks that another
 * thread may hold as long as a device has work, and it delays the message. So queries are rare, and
 * the first one comes after a time that no message should take. In seconds. */
static const double query_every = 50e-3;
/* Some drivers delay a launch until they are queried (gpu_backend.submits_late). They are queried
 * once after this time, if the message has not arrived. */
static const double late_after = 200e-6;

static uint8_t *host_flag(const gpu_exec *g, plan_side sender, int exchange) {
    return (uint8_t *)g->flags[sender].host + (size_t)exchange * GPU_FLAG_BYTES;
}

/* Queries all GPUs, so that a failure is recorded: the next stage would wait for a GPU that has
 * failed. True if this GPU has done everything that was enqueued. */
static bool query_drivers(const gpu_exec *g) {
    const gpu_sides *sides = g->sides;
    bool ended = false;
    for (int i = 0; i < sides->n_gpus; i++) {
        if (!sides->gpus[i]) continue;
        bool done = g->b->event_done(sides->gpus[i]->ended);
        ended = ended || (done && sides->gpus[i] == g);
    }
    return ended;
}

static bool has_arrived(const gpu_exec *g, const uint8_t *flag) {
    if (!g->b->kernels_may_wait && !g->b->event_done(g->sent)) return false;
    return gpu_flag_get(flag) >= g->epoch;
}

bool gpu_exec_wait(gpu_exec *g, int exchange) {
    const uint8_t *flag = host_flag(g, SIDE_GPU, exchange);
    double start = 0, query = 0;
    for (int i = 1; !has_arrived(g, flag); i++) {
        if (i % POLLS_AT_ONCE) {
            pool_pause();
            continue;
        }
        double now = clock_seconds();
        if (start == 0) start = query = now;
        bool over = !gpu_sides_are_alive(g->sides) || now - start > WAIT_SECONDS;
        bool late = g->late && !g->asked && now - start > late_after;
        if (!over && (late || now - query > query_every)) {
            over = query_drivers(g);
            g->asked = true;
            query = now;
        }
        if (over) return has_arrived(g, flag);
        pool_yield();
    }
    return true;
}

const void *gpu_exec_received(const gpu_exec *g) {
    return g->message_x[SIDE_GPU].host;
}

float *gpu_exec_outgoing(const gpu_exec *g, plan_buffer b) {
    return gpu_exec_outbox(g, b)->host;
}

bool gpu_exec_is_idle(const gpu_exec *g, int exchange) {
    return gpu_flag_get(host_flag(g, SIDE_GPU, exchange)) != g->epoch;
}

void gpu_exec_raise(gpu_exec *g, int exchange, bool idle) {
    gpu_flag_raise(host_flag(g, SIDE_CPU, exchange), g->epoch + idle);
    gpu_exec_continue(g);
}

void gpu_exec_skip(gpu_exec *g) {
    gpu_exec_continue(g);
}

/* Selected neurons of column `col` in a message of n neurons per token. */
static uint32_t *bits_of(const gpu_exec *g, plan_side sender, int64_t n, int64_t col) {
    return (uint32_t *)g->message_bits[sender].host + col * plan_bits_words(n);
}

const uint32_t *gpu_exec_received_bits(const gpu_exec *g, int layer, int64_t col) {
    return bits_of(g, SIDE_GPU, g->model->layers[layer].hp.n_ff, col);
}

uint32_t *gpu_exec_outgoing_bits(const gpu_exec *g, int layer, int64_t col) {
    return bits_of(g, SIDE_CPU, g->plan->gpu_ffn[layer].n_ff, col);
}

static uint32_t *choices_of(const gpu_exec *g, plan_side sender, const plan_experts *e,
                            int64_t col) {
    return (uint32_t *)g->message_bits[sender].host + col * e->n_used * GPU_CHOICE_WORDS;
}

const uint32_t *gpu_exec_received_choices(const gpu_exec *g, const plan_experts *e, int64_t col) {
    return choices_of(g, SIDE_GPU, e, col);
}

uint32_t *gpu_exec_outgoing_choices(const gpu_exec *g, const plan_experts *e, int64_t col) {
    return choices_of(g, SIDE_CPU, e, col);
}
