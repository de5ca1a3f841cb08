/* rope_angles.c: RoPE frequencies of a model, and angles of positions. Every scaling rule is linear
 * in the position, so it becomes one factor per pair of dimensions, computed once.
 *
 * Base: Su et al. 2021 (RoFormer), theta_i = base^(-2i/n_rot). Linear scaling divides positions.
 * YaRN: Peng et al. 2023, section 3.3 (ramp between the dimensions that turn beta_fast and
 * beta_slow times within the original context) and the temperature 0.1 ln(s) + 1. Llama 3's rule
 * arrives as divisors in rope_freqs. */
#include "rope_angles.h"

#include <math.h>

/* The (fractional) index of the pair that makes `turns` rotations within the original context. */
static double yarn_pair(const model_hparams *hp, double base, double turns) {
    const double two_pi = 6.283185307179586;
    return hp->n_rots[ROPE_SET_GLOBAL] * log(hp->rope_orig_ctx / (turns * two_pi)) /
           (2 * log(base));
}

/* Weight of the unscaled frequency in pair i: 1 for fast pairs, 0 for slow pairs. */
static double yarn_keep(const model_hparams *hp, double base, int i) {
    double low = fmax(0, floor(yarn_pair(hp, base, hp->yarn_beta_fast)));
    double high = fmin(hp->n_rots[ROPE_SET_GLOBAL] - 1,
                       ceil(yarn_pair(hp, base, hp->yarn_beta_slow)));
    double y = (i - low) / fmax(0.001, high - low);
    return (1 - fmin(1, fmax(0, y))) * hp->yarn_ext_factor;
}

/* Whether a pair belongs to the fourth axis, whose coordinate is 0 for text. */
static bool stands_still(const model *m, int pair) {
    const int32_t *s = m->hp.rope_sections;
    int32_t n = s[0] + s[1] + s[2] + s[3];
    if (n == 0) return false;
    int at = pair % n;
    return m->arch->axes == AXES_INTERLEAVED ? at >= 3 * s[at % 3] : at >= s[0] + s[1] + s[2];
}

/* divisors: [n_rot/2] or NULL. all: also rotate the pairs of the fourth axis. */
static void fill_scaled(const model *m, double base, const float *divisors, bool all,
                        float *inv_freq) {
    const model_hparams *hp = &m->hp;
    int n_rot = hp->n_rots[ROPE_SET_GLOBAL];
    for (int i = 0; i < n_rot / 2; i++) {
        double freq = pow(base, -2.0 * i / n_rot);
        if (divisors) freq /= (double)divisors[i];
        double scaled = freq / (double)hp->rope_scaling_factor;
        if (hp->rope_scaling == ROPE_SCALING_YARN) {
            double keep = yarn_keep(hp, base, i);
            scaled = scaled * (1 - keep) + freq * keep;
        }
        inv_freq[i] = !all && stands_still(m, i) ? 0 : (float)scaled;
    }
}

static void fill_plain(double base, int n_rot, float *inv_freq) {
    for (int i = 0; i < n_rot / 2; i++) inv_freq[i] = (float)pow(base, -2.0 * i / n_rot);
}

void rope_init(rope_frequencies *f, const model *m, float *inv_freq) {
    const model_hparams *hp = &m->hp;
    const int64_t n = hp->n_rot / 2;
    const float *divisors = m->arch->rope_undivided ? NULL : m->t[ROLE_ROPE_FREQS].data;
    const float *small = m->t[ROLE_ROPE_SHORT].data, *big = m->t[ROLE_ROPE_LONG].data;
    float *local = inv_freq + ROPE_SET_LOCAL * n;
    *f = (rope_frequencies){.model = m, .inv_freq = inv_freq, .angle_scale = hp->yarn_attn_factor};
    if (small) divisors = small;
    fill_scaled(m, hp->rope_freq_base, divisors, false, inv_freq + ROPE_SET_GLOBAL * n);
    fill_scaled(m, hp->rope_freq_base, big ? big : divisors, false, inv_freq + ROPE_SETS * n);
    if (model_scales_rope(m, ROPE_SET_LOCAL))
        fill_scaled(m, hp->rope_local_base, divisors, hp->index_ratio > 0, local);
    else
        fill_plain(hp->rope_local_base, hp->n_rots[ROPE_SET_LOCAL], local);
    if (hp->rope_scaling == ROPE_SCALING_YARN && hp->yarn_ext_factor != 0)
        f->angle_scale *= hp->yarn_scale;
}

const float *rope_frequencies_of(const rope_frequencies *f, int64_t n_ctx, rope_set set) {
    const model_hparams *hp = &f->model->hp;
    bool beyond = set == ROPE_SET_GLOBAL && n_ctx > hp->rope_orig_ctx;
    return f->inv_freq + (beyond ? ROPE_SETS : (int64_t)set) * (hp->n_rot / 2);
}

static void fill_set(const rope_frequencies *f, int64_t n_ctx, int64_t pos, rope_set set,
                     float *angles) {
    float scale = model_scales_rope(f->model, set) ? f->angle_scale : 1;
    const float *inv_freq = rope_frequencies_of(f, n_ctx, set);
    for (int i = 0; i < f->model->hp.n_rots[set] / 2; i++) {
        double angle = (double)pos * (double)inv_freq[i];
        angles[2 * i] = (float)cos(angle) * scale;
        angles[2 * i + 1] = (float)sin(angle) * scale;
    }
}

void rope_fill(const rope_frequencies *f, int64_t n_ctx, int64_t pos, float *angles) {
    fill_set(f, n_ctx, pos, ROPE_SET_GLOBAL, angles);
    if (model_has_local_rope(f->model))
        fill_set(f, n_ctx, pos, ROPE_SET_LOCAL, angles + f->model->hp.n_rot);
}
