/* op_exchange.cu: the two ends of an exchange between device and host (gpu_publish, gpu_receive)
 * and the device's clock (gpu_stamp), over pinned memory. An exchange is one bus transfer in each
 * direction, without launch or synchronization: the host spins on the flag that publish, or the
 * kernel with the message (gpu_send), raises; receive spins on the host's flag, reads pinned memory
 * itself, and can norm what it has received. Between devices, publish and receive are the two ends
 * of one message. */
#include <assert.h>

#include "gpu_norm.h"
#include "op_table.h"

enum { THREADS = 512, HELD = 4 };

/* Moves four elements at a time when the length of a column allows it. A thread issues all of its
 * reads before it uses the first: each read over the bus takes more than a microsecond. */
static __device__ __forceinline__ bool by_fours(int64_t n) {
    return n % 4 == 0;
}

/* Writes column c of the message, with one block. */
static __device__ __forceinline__ void publish_column(const gpu_publish &a, int64_t c) {
    const float *x = a.x + c * a.ldx;
    float *to = a.host_x + c * a.n;
    for (int64_t base = threadIdx.x; by_fours(a.n) && base < a.n / 4; base += HELD * THREADS) {
        uint4 v[HELD];
        GPU_UNROLL
        for (int k = 0; k < HELD; k++) {
            const int64_t i = base + k * THREADS;
            v[k] = gpu_load16(x + 4 * (i < a.n / 4 ? i : base));
        }
        GPU_UNROLL
        for (int k = 0; k < HELD; k++) {
            const int64_t i = base + k * THREADS;
            if (i < a.n / 4) ((uint4 *)to)[i] = v[k];
        }
    }
    for (int64_t i = threadIdx.x; !by_fours(a.n) && i < a.n; i += THREADS) to[i] = x[i];
    if (!a.bits) return;
    for (int64_t i = threadIdx.x; i < a.n_words; i += THREADS)
        a.host_bits[c * a.n_words + i] = a.bits[c * a.n_words + i];
}

/* One block, because the flag must follow all data, and only the threads of a block can wait for
 * each other. A few kilobytes need no more. */
static __global__ void __launch_bounds__(THREADS) publish_kernel(gpu_publish a) {
    gpu_begin();
    if (*a.epoch == 0) return;
    const bool idle = gpu_is_idle(a.idle, a.n_cols);
    for (int c = 0; c < a.n_cols && !idle; c++) publish_column(a, c);
    gpu_send_fence();
    gpu_sync();
    if (threadIdx.x == 0) gpu_flag_store(a.flag, *a.epoch + (idle ? 1 : 0));
}

/* Prefill: one block per column. */
static __global__ void __launch_bounds__(THREADS) copy_kernel(gpu_publish a) {
    gpu_begin();
    if (*a.epoch == 0) return;
    publish_column(a, blockIdx.x);
    gpu_fence_system();
}

void gpu_op_publish(gpu_stream *s, const gpu_publish *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->flag && a->epoch);
    assert(!a->idle.choices || a->n_cols <= GPU_MAX_COLS);
    gpu_publish last = *a;
    gpu_stream_writes(s, a->flag, sizeof *a->flag);
    gpu_stream_writes(s, a->host_x, static_cast<size_t>(a->n_cols * a->n) * sizeof *a->host_x);
    if (a->n_cols > GPU_MAX_COLS) { /* a second kernel, without data, raises the flag */
        const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, THREADS};
        gpu_launch<copy_kernel>(s, grid, *a);
        last.n_cols = 0;
    }
    const gpu_grid grid = {1, 1, 1, THREADS};
    gpu_launch<publish_kernel>(s, grid, last);
}

struct receive_args {
    gpu_receive r;
    gpu_fault *fault;
    uint64_t wait_ns;
    uint32_t clock_khz;
};

struct receive_shared {
    bool arrived, empty; /* the flag says that there is no data */
    gpu_norm_shared norm;
};

static __device__ bool arrives(const receive_args &a, uint64_t epoch) {
    enum { POLLS = 64 }; /* polls of the flag between checks of clock and fault record */
    const uint64_t start = gpu_clock_ns(a.clock_khz);
    for (bool first = true;; first = false) {
        for (int i = 0; i < POLLS; i++) {
            if (gpu_flag_load(a.r.flag) >= epoch) return true;
            if (!first && i % 8 == 7) gpu_pause();
        }
        if (gpu_flag_load(&a.fault->released) || gpu_flag_load(&a.fault->timed_out)) return false;
        if (gpu_clock_ns(a.clock_khz) - start > a.wait_ns) {
            gpu_flag_store(&a.fault->timed_out, 1);
            return false;
        }
    }
}

/* Waits for the flag. False after a timeout: the ubatch is lost, and its epoch becomes 0; other
 * blocks of this kernel may also clear it. */
static __device__ bool wait_for(const receive_args &a) {
    const uint64_t epoch = gpu_flag_load(a.r.epoch);
    if (epoch == 0) return false;
    const bool there = arrives(a, epoch);
    if (!there) gpu_flag_store(a.r.epoch, 0);
    return there;
}

static __device__ __forceinline__ void receive_column(const gpu_receive &a, int64_t c) {
    const float *x = a.host_x + c * a.n;
    float *y = a.y + c * a.ldy;
    uint8_t *q8 = a.q8 ? (uint8_t *)a.q8 + (size_t)c * gpu_q8_bytes(a.n) : nullptr;
    /* All threads of the block run every round. */
    for (int64_t base = 0; by_fours(a.n) && base < a.n / 4; base += HELD * THREADS) {
        uint4 raw[HELD];
        GPU_UNROLL
        for (int k = 0; k < HELD; k++) {
            const int64_t i = base + k * THREADS + threadIdx.x;
            if (i < a.n / 4) raw[k] = gpu_host_load16(x + 4 * i);
        }
        GPU_UNROLL
        for (int k = 0; k < HELD; k++) {
            const int64_t i = base + k * THREADS + threadIdx.x;
            if (base + k * THREADS >= a.n / 4) break;
            float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (i < a.n / 4) {
                v[0] = gpu_bits_float(raw[k].x), v[1] = gpu_bits_float(raw[k].y);
                v[2] = gpu_bits_float(raw[k].z), v[3] = gpu_bits_float(raw[k].w);
                GPU_UNROLL
                for (int j = 0; j < 4; j++) {
                    if (!a.set) v[j] += y[4 * i + j];
                    y[4 * i + j] = v[j];
                }
            }
            if (q8) gpu_quantize_group(v, i / 8, i < a.n / 4, a.n, q8);
        }
    }
    const volatile float *one = x; /* uncached: the host wrote it */
    for (int64_t i = threadIdx.x; !by_fours(a.n) && i < a.n; i += THREADS)
        y[i] = a.set ? one[i] : y[i] + one[i];
}

/* One block per column; each block waits. For two blocks per multiprocessor, which ptxas would
 * choose, registers would spill. */
static __global__ void GPU_BOUNDS(THREADS, 1) receive_kernel(receive_args a) {
    gpu_begin();
    GPU_SHARED(receive_shared, shared);
    for (int64_t i = threadIdx.x; a.r.clear && i < a.r.n; i += THREADS)
        a.r.clear[blockIdx.x * a.r.ld_clear + i] = 0.0f;
    if (threadIdx.x == 0) {
        shared.arrived = !gpu_is_idle(a.r.idle, a.r.n_cols) && wait_for(a);
        shared.empty = shared.arrived && gpu_flag_load(a.r.flag) != gpu_flag_load(a.r.epoch);
    }
    gpu_sync();
    if (!shared.arrived) return;
    const int64_t c = blockIdx.x;
    if (shared.empty) {
        for (int64_t i = threadIdx.x; a.r.host_bits && i < a.r.n_words; i += THREADS)
            a.r.bits[c * a.r.n_words + i] = UINT32_MAX;
        return;
    }
    receive_column(a.r, c);
    if (!a.r.host_bits) return;
    const volatile uint32_t *bits = a.r.host_bits + c * a.r.n_words;
    for (int64_t i = threadIdx.x; i < a.r.n_words; i += THREADS)
        a.r.bits[c * a.r.n_words + i] = bits[i];
}

struct receive_norm_args {
    receive_args receive;
    gpu_norm_args norm;
};

/* Adds the elements of a message to those that a block holds of column c (with `set` they replace
 * them), and stores the sums. All loads over the bus are issued before the first is used. */
static __device__ __forceinline__ void add_message(const gpu_receive &a, int64_t c, int64_t base,
                                                   gpu_norm_held &held) {
    const float *x = a.host_x + c * a.n;
    float *y = a.y + c * a.ldy;
    uint4 raw[GPU_NORM_HELD];
    GPU_UNROLL
    for (int s = 0; s < GPU_NORM_HELD; s++) {
        const int64_t at = gpu_norm_place(base, s);
        if (at < a.n) raw[s] = gpu_host_load16(x + at);
    }
    GPU_UNROLL
    for (int s = 0; s < GPU_NORM_HELD; s++) {
        const int64_t at = gpu_norm_place(base, s);
        if (at >= a.n) continue;
        const float v[4] = {gpu_bits_float(raw[s].x), gpu_bits_float(raw[s].y),
                            gpu_bits_float(raw[s].z), gpu_bits_float(raw[s].w)};
        GPU_UNROLL
        for (int i = 0; i < 4; i++) held.x[s][i] = a.set ? v[i] : held.x[s][i] + v[i];
        *(uint4 *)(y + at) = {gpu_float_bits(held.x[s][0]), gpu_float_bits(held.x[s][1]),
                              gpu_float_bits(held.x[s][2]), gpu_float_bits(held.x[s][3])};
    }
}

/* One block per column. Values and weights are loaded before the wait, so that behind it a round
 * trip over the bus and the sums of the norm remain. Without a message the column is normed as it
 * is; after a timeout nothing is: the ubatch is lost. */
static __global__ void __launch_bounds__(GPU_NORM_THREADS)
    receive_norm_kernel(receive_norm_args a) {
    gpu_begin();
    GPU_SHARED(receive_shared, shared);
    const gpu_receive &r = a.receive.r;
    const int64_t c = blockIdx.x;
    /* A message that replaces the column needs none of its values. */
    const float *x = r.set ? nullptr : r.y + c * r.ldy;
    gpu_norm_held held;
    gpu_norm_load(a.norm.norm, x, 0, held);
    if (threadIdx.x == 0) {
        const bool idle = gpu_is_idle(r.idle, r.n_cols);
        shared.arrived = idle || wait_for(a.receive);
        shared.empty = idle || (shared.arrived && gpu_flag_load(r.flag) != gpu_flag_load(r.epoch));
    }
    gpu_sync();
    if (!shared.arrived) return;
    if (shared.empty && !x) gpu_norm_load(a.norm.norm, r.y + c * r.ldy, 0, held);
    for (int64_t base = 0; !shared.empty && base < r.n; base += gpu_norm_step()) {
        if (r.n > gpu_norm_step()) gpu_norm_load(a.norm.norm, x, base, held);
        add_message(r, c, base, held);
    }
    gpu_norm_column(a.norm, c, held, shared.norm);
}

/* Prefill: one block waits first, so that not every block polls over the bus. */
static __global__ void __launch_bounds__(GPU_WARP) wait_kernel(receive_args a) {
    gpu_begin();
    if (threadIdx.x == 0) wait_for(a);
}

void gpu_op_receive(gpu_stream *s, const gpu_receive *a) {
    assert(a->n_cols >= 1 && a->n_cols <= GPU_MAX_BATCH && a->flag && a->epoch);
    assert((!a->host_bits || a->bits) && (!a->q8 || a->n % 32 == 0));
    assert(!a->idle.choices || a->n_cols <= GPU_MAX_COLS);
    const uint64_t wait_ns = a->wait_ms ? a->wait_ms * 1000000ull : gpu_stream_wait_ns(s);
    const receive_args r = {*a, gpu_stream_fault(s), wait_ns, gpu_stream_clock_khz(s)};
    if (a->norm) {
        assert(a->n_cols <= GPU_MAX_COLS && !a->host_bits && !a->q8 && !a->clear && a->n % 4 == 0);
        assert(a->norm->x == a->y && a->norm->n == a->n && a->norm->ldx == a->ldy);
        assert(a->norm->n_cols == a->n_cols && (!a->norm->q8 || a->n % 32 == 0));
        const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, gpu_norm_threads(a->n)};
        const receive_norm_args args = {r, gpu_norm_args_of(a->norm)};
        gpu_stream_waits(s);
        gpu_launch<receive_norm_kernel>(s, grid, args);
        return;
    }
    if (a->n_cols > GPU_MAX_COLS) {
        const gpu_grid one = {1, 1, 1, GPU_WARP};
        gpu_stream_waits(s);
        gpu_launch<wait_kernel>(s, one, r);
    }
    const gpu_grid grid = {(unsigned)a->n_cols, 1, 1, THREADS};
    gpu_stream_waits(s);
    gpu_launch<receive_kernel>(s, grid, r);
}

struct stamp_args {
    gpu_stamp s;
    uint32_t clock_khz;
};

static __global__ void __launch_bounds__(GPU_WARP) stamp_kernel(stamp_args a) {
    gpu_begin();
    if (threadIdx.x == 0) gpu_flag_store(a.s.ns, gpu_clock_ns(a.clock_khz));
}

void gpu_op_stamp(gpu_stream *s, const gpu_stamp *a) {
    assert(a->ns);
    const gpu_grid one = {1, 1, 1, GPU_WARP};
    const stamp_args args = {*a, gpu_stream_clock_khz(s)};
    gpu_launch<stamp_kernel>(s, one, args);
}
