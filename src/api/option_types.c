/* option_types.c: checks the options of a context and translates them. */
#include "option_types.h"

#include <math.h>
#include <string.h>

#include "cpu_topology.h"
#include "place_fit.h"

static const cpu_tier tiers[] = {
    [PI_KERNELS_AUTO] = CPU_TIER_AUTO, [PI_KERNELS_SCALAR] = CPU_TIER_SCALAR,
    [PI_KERNELS_AVX2] = CPU_TIER_AVX2, [PI_KERNELS_AVX512] = CPU_TIER_AVX512,
    [PI_KERNELS_NEON] = CPU_TIER_NEON,
};
static const quant_type cache_types[] = {
    [PI_CACHE_F16] = QUANT_F16,   [PI_CACHE_F32] = QUANT_F32,   [PI_CACHE_Q8_0] = QUANT_Q8_0,
    [PI_CACHE_BF16] = QUANT_BF16, [PI_CACHE_Q4_0] = QUANT_Q4_0, [PI_CACHE_Q4_1] = QUANT_Q4_1,
    [PI_CACHE_Q5_0] = QUANT_Q5_0, [PI_CACHE_Q5_1] = QUANT_Q5_1, [PI_CACHE_IQ4_NL] = QUANT_IQ4_NL,
};

/* Devices must be different and of a named kind, and every share needs a device. */
static pi_status check_devices(const pi_context_options *o, pi_error *err) {
    int n = o->n_devices;
    bool named = o->device >= PI_DEVICE_CUDA;
    if (n < PI_DEVICES_AS_NEEDED || n > PI_MAX_DEVICES || (n > 0 && !named))
        return error_set(err, PI_ERR_ARG, "bad option: %d devices: use 0 to %d, of a named kind", n,
                         PI_MAX_DEVICES);
    for (int i = 0; i < n; i++) {
        bool twice = false;
        for (int k = 0; k < i; k++) twice = twice || o->devices[k] == o->devices[i];
        if (o->devices[i] < 0 || twice)
            return error_set(err, PI_ERR_ARG, "bad option: device %d: %s", o->devices[i],
                             twice ? "it is listed twice" : "use 0 or more");
    }
    for (int i = 0; i < PI_MAX_DEVICES; i++) {
        if (!(o->tensor_split[i] >= 0) || isinf(o->tensor_split[i]))
            return error_set(err, PI_ERR_ARG, "bad option: share %g of a device: use 0 or more",
                             (double)o->tensor_split[i]);
        if (n > 0 && i >= n && o->tensor_split[i] > 0)
            return error_set(err, PI_ERR_ARG, "more shares than devices: %d for %d: leave some out",
                             i + 1, n);
    }
    return PI_OK;
}

static pi_status check(const model *m, const pi_context_options *o, pi_error *err) {
    if (o->n_threads < 0 || o->n_threads > POOL_MAX_THREADS || o->n_threads_batch < 0 ||
        o->n_threads_batch > POOL_MAX_THREADS)
        return error_set(err, PI_ERR_ARG, "bad number of threads: %d, %d: use 1 to %d",
                         o->n_threads, o->n_threads_batch, POOL_MAX_THREADS);
    if ((unsigned)o->kernels > PI_KERNELS_NEON || (unsigned)o->mode > PI_MODE_THRESHOLD ||
        (unsigned)o->head > PI_HEAD_PREDICT || (unsigned)o->cache_k > PI_CACHE_IQ4_NL ||
        (unsigned)o->cache_v > PI_CACHE_IQ4_NL)
        return error_set(
            err, PI_ERR_ARG,
            "bad option: context: kernels, mode, head or cache type is not in its list");
    if (!(o->max_loss >= 0))
        return error_set(err, PI_ERR_ARG, "bad option: max_loss is %g: use 0 or more",
                         (double)o->max_loss);
    if (o->attn_blocks < PI_ATTN_BLOCKS_AUTO ||
        (o->attn_blocks > 0 && o->attn_blocks < PLAN_BOUNDS_LEAST))
        return error_set(err, PI_ERR_ARG, "bad option: attn_blocks is %d: use -1, 0, or %d or more",
                         o->attn_blocks, PLAN_BOUNDS_LEAST);
    if ((unsigned)o->device >= PI_DEVICE_COUNT || o->gpu_layers < -1 || o->n_ctx < 0)
        return error_set(err, PI_ERR_ARG,
                         "bad option: device %d, gpu_layers %d, n_ctx %d: use one of the list, -1 "
                         "or more, 0 or more",
                         (int)o->device, o->gpu_layers, o->n_ctx);
    if (!(o->expert_slack >= 0 && o->expert_slack <= 1))
        return error_set(err, PI_ERR_ARG, "bad option: expert_slack is %g: use 0 to 1",
                         (double)o->expert_slack);
    if (o->deterministic && o->expert_slack > 0)
        return error_set(err, PI_ERR_ARG,
                         "bad option: expert_slack together with deterministic: the choice of "
                         "experts depends on those in memory");
    if (o->deterministic && o->adapt)
        return error_set(err, PI_ERR_ARG,
                         "bad option: adapt together with deterministic: experts and neurons that "
                         "move to another device are rounded differently");
    pi_status status = check_devices(o, err);
    if (status != PI_OK) return status;
    if (o->n_logits < 0)
        return error_set(err, PI_ERR_ARG, "bad option: n_logits is %d: use 0 or more", o->n_logits);
    status = plan_check_head(m, o->head, err);
    return status == PI_OK ? plan_check_mode(m, o->mode, err) : status;
}

pi_status option_engine(const model *m, const pi_context_options *o, engine_options *out,
                        pi_error *err) {
    pi_status status = check(m, o, err);
    if (status != PI_OK) return status;
    *out = (engine_options){.n_threads = o->n_threads,
                            .n_threads_batch = o->n_threads_batch,
                            .pin_threads = o->pin_threads,
                            .n_batch = o->n_batch,
                            .n_logits = o->n_logits,
                            .tier = tiers[o->kernels],
                            .type_k = cache_types[o->cache_k],
                            .type_v = cache_types[o->cache_v],
                            .ram_budget = o->ram_budget == PI_RAM_FREE ? 0 : o->ram_budget,
                            .n_positions = o->n_ctx > 0 ? o->n_ctx : place_default_context(m),
                            .adapt = {.on = o->adapt},
                            .timed_forms = o->timed_forms,
                            .expert_slack = o->expert_slack,
                            .plan = {.mode = o->mode,
                                     .few_only = o->deterministic,
                                     .max_loss = o->max_loss,
                                     .predict_head = o->head,
                                     .attn_blocks = o->attn_blocks > 0 ? o->attn_blocks : 0,
                                     .set_threshold = !isnan(o->threshold),
                                     .threshold = o->threshold}};
    return PI_OK;
}

void option_apply_tuning(const model *m, const pi_context_options *o, engine_options *e) {
    const model_tuning *t = &m->tuning;
    pi_mode mode = PI_MODE_AUTO;
    if (!t->here) return;
    if (o->n_threads == 0 && t->threads > 0 && t->threads <= cpu_count_available()) {
        e->n_threads = t->threads;
        if (o->n_threads_batch == 0) e->n_threads_batch = cpu_count_physical(); /* not tuned */
    }
    while (mode <= PI_MODE_THRESHOLD && strcmp(t->mode, ffn_mode_name(mode)) != 0) mode++;
    if (mode > PI_MODE_THRESHOLD || !(t->loss <= o->max_loss) || o->mode != PI_MODE_AUTO ||
        plan_check_mode(m, mode, NULL) != PI_OK)
        return;
    e->plan.mode = mode;
    /* Adapters may change the output matrix, which the predictor then does not match. */
    pi_head head = t->head && m->adapters_hash == 0 ? PI_HEAD_PREDICT : PI_HEAD_DENSE;
    if (o->head == PI_HEAD_AUTO && plan_check_head(m, head, NULL) == PI_OK)
        e->plan.predict_head = head;
    if (o->attn_blocks == PI_ATTN_BLOCKS_AUTO && t->attn_blocks >= PLAN_BOUNDS_LEAST &&
        e->n_positions <= t->n_ctx && !o->deterministic)
        e->plan.attn_blocks = t->attn_blocks;
}
