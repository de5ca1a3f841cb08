/* plan_mode.c: chooses the mode of each FFN layer.
 *
 * A layer with the data for the requested mode runs in it; other layers run in an exact mode:
 * `exact` if activations have exact zeros, else `dense`. PI_MODE_AUTO selects the mode with the
 * least decode cost. The cost is computed, never timed, so that a file gets equal modes in every
 * run on a machine. The cost depends on sizes, on the statistics that `prepare` recorded, and on
 * whether the weights stay in the last-level cache. The head's predictor is chosen likewise.
 *
 * Cost of a layer's FFN weights for one token, in nanoseconds of one thread (all terms shrink alike
 * with more threads):
 *
 *   dense      B(gate, up, down)
 *   exact      B(gate) + n fires * R(up, down)
 *   threshold  B(gate) + n above * R(up) + n above both * R(down)
 *   predict    P + n * S + B(predictor) + n selected * R(gate) + n fires * R(up, down)
 *
 * In layers with experts these are the experts of a token, each with its predictor.
 *
 * B: bytes read in order; R: non-contiguous rows, each with a separate start; S: computing and
 * comparing a score; P: the predictor's separate steps. A down matrix without a row per neuron is
 * read as a whole. */
#include <math.h>

#include "cpu_topology.h"
#include "plan_impl.h"

/* Medians over types and sizes of one thread's products on a Xeon with AVX-512 (Q4_0 and Q8_0 rows
 * of 272 to 2,304 bytes, density 0.1 and 0.25):
 *
 *                                   in the last-level cache     from memory
 *   row in order, 272/1152/2304 B   17.9 / 69.7 / -             21.6 / 78.3 / 147 ns
 *   row of gate apart               34 / 78 / -                 84 / 138 / 213
 *   row of down apart               61 / 103 / -                92 / 138 / 238
 *   score of 256/1024/2048 signs    38 / 15 / 26                35 / - / 29
 *
 * So a byte takes 1/17 ns (cache) and 1/15 ns (memory), and a separate row 17 to 46 ns and 62 to 91
 * ns more than its bytes. A score takes about 15 ns in addition to the predictor's bytes. The
 * predictor's quantization and first product end with two barriers of about a microsecond on each
 * of two threads. */
typedef struct read_cost {
    double byte, row; /* ns: per byte read in order; per separate row, in addition to its bytes */
} read_cost;

static const read_cost from_cache = {1 / 17.0, 30}, from_memory = {1 / 15.0, 65};
static const double SCORE = 15, PREDICTOR = 4000; /* ns */

/* Weights stay in a cache if they take at most half of it: activations, KV cache and other cores'
 * work need the rest. */
static const double CACHE_SHARE = 0.5;

/* A lossy mode must be faster by more than the error of the cost. */
static const double LOSSY_GAIN = 0.9;

static const read_cost *cost_of_reads(const model *m, const plan_options *o) {
    uint64_t cache = o->cache_bytes ? o->cache_bytes : cpu_last_cache();
    return (double)m->weight_bytes <= CACHE_SHARE * (double)cache ? &from_cache : &from_memory;
}

static bool can_run(const model *m, const model_layer *l, pi_mode mode) {
    bool experts = l->t[ROLE_ROUTER].data;
    bool zeros = model_layer_has_zeros(m, (int)(l - m->layers));
    bool pairs = (experts ? l->hp.expert_clamp : l->hp.ffn_clamp) > 0; /* of gate and up */
    if (pairs || m->arch->xielu || l->t[ROLE_FFN_ACT_SCALE].data) return mode == PI_MODE_DENSE;
    switch (mode) {
    case PI_MODE_EXACT:
        return zeros;
    case PI_MODE_PREDICT:
        if (!zeros || l->sparse.predictor == PREDICTOR_NONE) return false;
        return experts ? !(m->arch->has & ARCH_EXPERT_INPUT) : l->t[ROLE_FFN_DOWN_T].data != NULL;
    case PI_MODE_THRESHOLD:
        return !isnan(l->sparse.cut);
    default:
        return true;
    }
}

/* Predictors within experts run on the CPU only: layers with experts on a GPU run in `exact`. */
static bool can_run_placed(const model *m, int layer, pi_mode mode, const plan_options *o) {
    const model_layer *l = &m->layers[layer];
    bool experts = l->t[ROLE_ROUTER].data;
    if (mode == PI_MODE_PREDICT && experts && o->splits &&
        (o->splits[layer].primary == SIDE_GPU || plan_split_end(&o->splits[layer]) > 0))
        return false;
    return can_run(m, l, mode);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* Fraction of active neurons per token; NaN: unknown. In mode threshold only if `prepare` did not
 * measure the rows. */
static double fired_share(const model_layer *l) {
    if (!l->sparse.freq) return NAN;
    double sum = 0;
    for (int64_t i = 0; i < l->hp.n_ff; i++) sum += (double)l->sparse.freq[i];
    return sum / (double)l->hp.n_ff;
}

static double in_order(const model_layer *l, tensor_role role, const read_cost *c) {
    return (double)l->t[role].n_bytes * c->byte;
}

/* Cost of a fraction of the rows of n neurons, `bytes` in all; 0 bytes: there is no such matrix. */
static double apart_of(double bytes, double n, double share, const read_cost *c) {
    return bytes > 0 ? share * (bytes * c->byte + n * c->row) : 0;
}

/* Cost of a fraction of the rows of a tensor with a row per neuron. */
static double apart(const model_layer *l, tensor_role role, double share, const read_cost *c) {
    return apart_of((double)l->t[role].n_bytes, (double)l->hp.n_ff, share, c);
}

/* The experts of a token. Gate and up may be one tensor. */
static double cost_of_experts(const model *m, const model_layer *l, pi_mode mode,
                              const read_cost *c) {
    double share = (double)m->hp.n_expert_used / m->hp.n_expert;
    double n = (double)m->hp.n_expert_used * l->hp.n_ff_expert;
    double fired = (double)l->sparse.expert_active, selected = (double)l->sparse.density;
    double half = share * (double)l->t[ROLE_EXPERT_GATE_UP].n_bytes / 2;
    double gate = half + share * (double)l->t[ROLE_EXPERT_GATE].n_bytes;
    double up = half + share * (double)l->t[ROLE_EXPERT_UP].n_bytes;
    double down_t = share * (double)l->t[ROLE_EXPERT_DOWN_T].n_bytes;
    double cost = share * in_order(l, ROLE_EXPERT_DOWN, c);
    double first = gate > 0 ? gate : up, second = gate > 0 ? up : 0;
    if (mode == PI_MODE_DENSE) return cost + (first + second + down_t) * c->byte;
    if (mode == PI_MODE_PREDICT) {
        cost += PREDICTOR + n * SCORE + apart_of(first, n, selected, c);
        cost += share * (in_order(l, ROLE_EXPERT_FC1, c) + in_order(l, ROLE_EXPERT_FC2, c) +
                         in_order(l, ROLE_EXPERT_SIGN, c));
        fired = fmin(fired, selected);
    } else {
        cost += first * c->byte;
    }
    return cost + apart_of(second, n, fired, c) + apart_of(down_t, n, fired, c);
}

static double cost_of(const model *m, const model_layer *l, pi_mode mode, const read_cost *c) {
    if (l->t[ROLE_ROUTER].data) return cost_of_experts(m, l, mode, c);
    tensor_role first = l->t[ROLE_FFN_GATE].data ? ROLE_FFN_GATE : ROLE_FFN_UP;
    double fired = fired_share(l), selected = (double)l->sparse.density, cost;
    double up = fired, down = fired;
    if (mode == PI_MODE_DENSE)
        return in_order(l, ROLE_FFN_GATE, c) + in_order(l, ROLE_FFN_UP, c) +
               in_order(l, ROLE_FFN_DOWN, c) + in_order(l, ROLE_FFN_DOWN_T, c);
    if (mode == PI_MODE_PREDICT) {
        cost = PREDICTOR + (double)l->hp.n_ff * SCORE + in_order(l, ROLE_FC1, c) +
               in_order(l, ROLE_FC2, c) + in_order(l, ROLE_FFN_SIGN, c) +
               apart(l, first, selected, c);
        up = down = fmin(fired, selected);
    } else {
        cost = in_order(l, first, c);
    }
    if (mode == PI_MODE_THRESHOLD && !isnan(l->sparse.up_rows)) {
        up = (double)l->sparse.up_rows;
        down = (double)l->sparse.down_rows;
    }
    if (first == ROLE_FFN_GATE)
        cost += up >= 1 ? in_order(l, ROLE_FFN_UP, c) : apart(l, ROLE_FFN_UP, up, c);
    return cost + apart(l, ROLE_FFN_DOWN_T, down, c) + in_order(l, ROLE_FFN_DOWN, c);
}

/* An unmeasured loss (NaN) exceeds every limit. A limit of 0 excludes all modes with a loss, also
 * those whose measured loss happens to be 0 or below. */
static bool loss_allowed(const model *m, pi_mode mode, float max_loss) {
    if (mode >= PI_MODE_PREDICT && max_loss == 0) return false;
    if (mode == PI_MODE_PREDICT) return m->sparse.predict_loss <= max_loss;
    return mode != PI_MODE_THRESHOLD || m->sparse.threshold_loss <= max_loss;
}

/* Without statistics costs are NaN and all comparisons are false: layers with exact zeros then run
 * `exact`, the others `threshold` if its loss is within the limit. */
static pi_mode choose_auto(const model *m, int layer, const plan_options *o) {
    const model_layer *l = &m->layers[layer];
    const read_cost *c = cost_of_reads(m, o);
    pi_mode best = can_run(m, l, PI_MODE_EXACT) ? PI_MODE_EXACT : PI_MODE_DENSE;
    if (best == PI_MODE_EXACT && cost_of(m, l, PI_MODE_DENSE, c) < cost_of(m, l, PI_MODE_EXACT, c))
        best = PI_MODE_DENSE;
    double limit = LOSSY_GAIN * cost_of(m, l, best, c);
    for (int mode = PI_MODE_PREDICT; mode <= PI_MODE_THRESHOLD; mode++) {
        double cost = cost_of(m, l, (pi_mode)mode, c);
        if (!can_run_placed(m, layer, (pi_mode)mode, o) ||
            !loss_allowed(m, (pi_mode)mode, o->max_loss))
            continue;
        if (!(cost < limit) && !(isnan(cost) && best == PI_MODE_DENSE)) continue;
        best = (pi_mode)mode;
        limit = cost;
    }
    return best;
}

/* Files of the original PowerInfer, and files with its predictors, record no loss; mode predict is
 * intended for them, unless no loss is allowed. */
pi_mode plan_choose_mode(const model *m, int layer, const plan_options *o) {
    const model_layer *l = &m->layers[layer];
    pi_mode mode = o->mode;
    if (mode == PI_MODE_AUTO) {
        bool given = m->sparse.given && o->max_loss > 0;
        if (!given || !can_run_placed(m, layer, PI_MODE_PREDICT, o))
            return choose_auto(m, layer, o);
        mode = PI_MODE_PREDICT;
    }
    if (can_run_placed(m, layer, mode, o)) return mode;
    return can_run(m, l, PI_MODE_EXACT) ? PI_MODE_EXACT : PI_MODE_DENSE;
}

pi_status plan_check_mode(const model *m, pi_mode mode, pi_error *err) {
    static const char *const lacks[PLAN_MODES] = {
        [PI_MODE_EXACT] = "its values are never exactly zero; use dense",
        [PI_MODE_PREDICT] = "the model has no predictors; `powerinfer prepare` adds them where the "
                            "activation is ReLU-like",
        [PI_MODE_THRESHOLD] =
            "the model has no calibrated thresholds; `powerinfer prepare` adds them "
            "where the activation is never zero"};
    for (int i = 0; i < m->hp.n_layer; i++)
        if (mode == PI_MODE_AUTO || can_run(m, &m->layers[i], mode)) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED, "mode %s does not apply: activation %s: %s",
                     ffn_mode_name(mode), model_activation_name(m), lacks[mode]);
}

/* ---- the output head ------------------------------------------------------------------------- */

/* A measured loss; NaN: unknown. Below 0 it is noise. */
static float loss_of(float measured) {
    return measured < 0 ? 0 : measured;
}

/* The measured loss of the layers' modes; NaN: not measured with these options. */
static float loss_of_layers(const plan *p, const plan_options *o) {
    const model_sparse *s = &p->model->sparse;
    bool predicts = false, cuts = false;
    for (int i = 0; i < p->model->hp.n_layer; i++) {
        pi_mode mode = plan_mode_of_layer(p, i);
        predicts = predicts || mode == PI_MODE_PREDICT;
        cuts = cuts || mode == PI_MODE_THRESHOLD;
    }
    if (o->attn_blocks > 0 || (predicts && o->set_threshold)) return NAN;
    return (predicts ? loss_of(s->predict_loss) : 0) + (cuts ? loss_of(s->threshold_loss) : 0);
}

/* Whether the predictor and the rows of the candidates cost less than the whole output matrix, by
 * the margin of lossy modes. */
static bool pays(const model *m, const plan_options *o) {
    const read_cost *c = cost_of_reads(m, o);
    double bytes = (double)m->t[ROLE_OUTPUT].n_bytes, n = m->hp.n_vocab;
    double sketch = (double)(m->t[ROLE_OUTPUT_FC1].n_bytes + m->t[ROLE_OUTPUT_FC2].n_bytes);
    return PREDICTOR + sketch * c->byte + apart_of(bytes, n, (double)m->sparse.head.rows, c) <
           LOSSY_GAIN * bytes * c->byte;
}

/* With PI_HEAD_AUTO the losses of layers and head together must be allowed, and it must pay.
 * Adapters may change the output matrix, which the predictor then does not match. */
bool plan_predicts_head(const plan *p, const plan_options *o) {
    const model_head *h = &p->model->sparse.head;
    if (o->predict_head == PI_HEAD_DENSE || h->kind == HEAD_PLAIN || p->head != SIDE_CPU)
        return false;
    if (o->predict_head == PI_HEAD_PREDICT) return true;
    return p->model->adapters_hash == 0 && o->max_loss > 0 &&
           loss_of(h->loss) + loss_of_layers(p, o) <= o->max_loss && pays(p->model, o);
}

pi_status plan_check_head(const model *m, pi_head head, pi_error *err) {
    if (head != PI_HEAD_PREDICT || m->sparse.head.kind != HEAD_PLAIN) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "the output head has no predictor: %s: `powerinfer prepare` can add one",
                     gguf_path(m->file));
}
