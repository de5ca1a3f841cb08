/* convert_rows.c: reads the rows of GGUF tensors from a checkpoint. Every row has a place: source
 * tensor, matrix of a stack, and row in that matrix. The row may differ from the GGUF row: halves,
 * alternating rows, groups of heads, another rotation order. */
#include <math.h>
#include <string.h>

#include "convert_tensors.h"

/* 8-bit floats: E4M3 has no infinity and one NaN; E5M2 is a float16 without its low byte
 * (Micikevicius et al. 2022, arXiv 2209.05433). */
static float e4m3_value(int byte) {
    int exponent = byte >> 3 & 15, mantissa = byte & 7;
    double value = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    if (exponent == 15 && mantissa == 7) value = (double)NAN;
    return (float)(byte & 128 ? -value : value);
}

void convert_rows_init(convert_plan *p) {
    for (int byte = 0; byte < 256; byte++) {
        p->fp8[0][byte] = e4m3_value(byte);
        p->fp8[1][byte] = quant_f16_to_f32((uint16_t)(byte << 8));
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

/* In a head of d rows, Hugging Face stores the first elements of all pairs, then the second ones;
 * GGUF's interleaved order stores pair after pair. */
static uint64_t permuted_row(uint64_t row, uint64_t d) {
    if (d == 0) return row;
    uint64_t in_head = row % d;
    return row - in_head + in_head / 2 + (in_head % 2) * (d / 2);
}

/* Source row of row `row` of Q, K or V, stored in groups: n_q / n_kv heads of Q, a head of K, a
 * head of V. */
static uint64_t grouped_row(const convert_tensor *t, hf_rows part, uint64_t row) {
    uint64_t per_group = t->n_q / t->n_kv, head = row / t->head_dim, in_head = row % t->head_dim;
    uint64_t group = part == HF_GROUPED_Q ? head / per_group : head;
    uint64_t within = part == HF_GROUPED_Q   ? head % per_group
                      : part == HF_GROUPED_K ? per_group
                                             : per_group + 1;
    return (group * (per_group + 2) + within) * t->head_dim + in_head;
}

/* Source row of row `row` of queries, keys and values, or (gate) of the gates; the source stores
 * all four per key head. */
static uint64_t delta_row(const hf_recurrent *s, bool gate, uint64_t row) {
    uint64_t n_key = (uint64_t)s->n_group * (uint64_t)s->n_state, key = (uint64_t)s->n_state;
    uint64_t values = (uint64_t)(s->n_inner / s->n_group), group = 2 * key + 2 * values;
    if (!gate && row < 2 * n_key) return row % n_key / key * group + row / n_key * key + row % key;
    if (!gate) row -= 2 * n_key;
    return row / values * group + 2 * key + (gate ? values : 0) + row % values;
}

/* Source row of row `row` of tensors with `unit` rows per value head; GGUF interleaves the
 * groups. */
static uint64_t turned_row(const hf_recurrent *s, uint64_t unit, uint64_t row) {
    uint64_t n_group = (uint64_t)s->n_group, per_group = (uint64_t)s->n_head / n_group;
    uint64_t head = row / unit;
    return (head % n_group * per_group + head / n_group) * unit + row % unit;
}

static uint64_t turned_behind(const hf_recurrent *s, uint64_t row) {
    uint64_t first = 2 * (uint64_t)s->n_group * (uint64_t)s->n_state;
    uint64_t unit = (uint64_t)(s->n_inner / s->n_head);
    return row < first ? row : first + turned_row(s, unit, row - first);
}

static uint64_t source_row(const convert_plan *p, const convert_tensor *t, uint64_t row) {
    const hf_recurrent *s = &p->recurrent;
    row = permuted_row(row, t->permute);
    switch (t->rows) {
    case HF_SECOND_HALF:
        return row + t->n_rows;
    case HF_LAST_ROWS:
        return row + t->source_rows - t->n_rows;
    case HF_EVEN:
        return 2 * row;
    case HF_ODD:
        return 2 * row + 1;
    case HF_GROUPED_Q:
    case HF_GROUPED_K:
    case HF_GROUPED_V:
        return grouped_row(t, t->rows, row);
    case HF_GROUPED_QKV:
        if (row < t->n_q) return grouped_row(t, HF_GROUPED_Q, row);
        if (row < t->n_q + t->n_kv) return grouped_row(t, HF_GROUPED_K, row - t->n_q);
        return grouped_row(t, HF_GROUPED_V, row - t->n_q - t->n_kv);
    case HF_DELTA_QKV:
    case HF_DELTA_GATE:
        return delta_row(s, t->rows == HF_DELTA_GATE, row);
    case HF_TURNS:
        return turned_row(s, t->n_rows / (uint64_t)s->n_head, row);
    case HF_TURNS_BEHIND:
        return t->vector ? row : turned_behind(s, row); /* vectors: items are reordered */
    case HF_ALL:
    case HF_FIRST_ROWS:
    case HF_FIRST_HALF:
    case HF_TURNS_COLUMNS: /* see load_turned_row */
    case HF_HEAD_KEYS:
    case HF_HEAD_VALUES: /* see load_head_row */
        break;
    }
    return row;
}

/* Place of the matrix `item` of a tensor's stack. */
typedef struct place {
    const convert_source *source;
    uint64_t item; /* index of the item in the source */
} place;

static place find_place(const convert_plan *p, const convert_tensor *t, uint64_t item) {
    const convert_source *first = &p->sources[t->first_source];
    return t->n_sources > 1 ? (place){first + item, 0} : (place){first, item};
}

const safetensor *convert_source_of(const convert_plan *p, const convert_tensor *t, uint64_t row) {
    return find_place(p, t, t->vector ? row : row / t->n_rows).source->data;
}

/* ---- elements -------------------------------------------------------------------------------- */

static uint16_t half_bits(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

/* Loads n elements of a plain type from element `first` on, `step` apart. */
static void load_plain(const convert_plan *p, const safetensor *s, uint64_t first, uint64_t n,
                       uint64_t step, float *out) {
    const uint8_t *in = s->data;
    if (s->dtype == SAFETENSORS_F32 && step == 1) {
        memcpy(out, in + first * sizeof(float), n * sizeof(float));
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = first + i * step;
        if (s->dtype == SAFETENSORS_F32)
            memcpy(&out[i], in + at * sizeof(float), sizeof(float));
        else if (s->dtype == SAFETENSORS_BF16)
            out[i] = quant_bf16_to_f32(half_bits(in + 2 * at));
        else if (s->dtype == SAFETENSORS_F16)
            out[i] = quant_f16_to_f32(half_bits(in + 2 * at));
        else
            out[i] = p->fp8[s->dtype == SAFETENSORS_F8_E5M2][in[at]];
    }
}

float convert_load_number(const convert_plan *p, const safetensor *s, uint64_t at) {
    float scale;
    load_plain(p, s, at, 1, 1, &scale);
    return scale;
}

/* Multiplies a row of FP8 by its scales. */
static void apply_scales(const convert_plan *p, const convert_tensor *t, place at, uint64_t row,
                         float *out) {
    const convert_source *s = at.source;
    uint64_t block = (uint64_t)p->fp8_block[1];
    uint64_t per_row = s->scaling == SCALING_BLOCKS ? (t->source_in + block - 1) / block : 1;
    uint64_t height = s->scaling == SCALING_BLOCKS ? (uint64_t)p->fp8_block[0] : 1;
    uint64_t n_rows = s->scaling == SCALING_ONE ? 1 : (t->source_rows + height - 1) / height;
    uint64_t first = (at.item * n_rows + (s->scaling == SCALING_ONE ? 0 : row / height)) * per_row;
    for (uint64_t b = 0; b < per_row; b++) {
        float scale = convert_load_number(p, s->scales, first + b);
        uint64_t begin = per_row > 1 ? b * block : 0;
        uint64_t end = per_row > 1 && begin + block < t->source_in ? begin + block : t->source_in;
        for (uint64_t i = begin; i < end; i++) out[i] *= scale;
    }
}

/* Reorders n nibbles. In a checkpoint two neighbours share a byte, the first one in the low nibble;
 * in GGUF elements i and i + n / 2 share a byte. */
static void pair_halves(const uint8_t *in, int n, uint8_t *out) {
    for (int i = 0; i < n / 2; i++) {
        int low = in[i / 2] >> (i % 2 * 4) & 15, high = in[n / 4 + i / 2] >> (i % 2 * 4) & 15;
        out[i] = (uint8_t)(low | high << 4);
    }
}

static void pack_mxfp4(const convert_tensor *t, place at, uint64_t row, uint8_t *out) {
    uint64_t n_blocks = t->n_in / mxfp4_elems;
    uint64_t first = (at.item * t->source_rows + row) * n_blocks;
    const uint8_t *in = at.source->data->data + first * (mxfp4_elems / 2);
    const uint8_t *scales = at.source->scales->data + first;
    block_mxfp4 *b = (block_mxfp4 *)out;
    for (uint64_t k = 0; k < n_blocks; k++, in += mxfp4_elems / 2, b++) {
        b->e = scales[k];
        pair_halves(in, mxfp4_elems, b->qs);
    }
}

bool convert_copy_mxfp4(const convert_plan *p, const convert_tensor *t, uint64_t row,
                        uint8_t *out) {
    pack_mxfp4(t, find_place(p, t, row / t->n_rows), source_row(p, t, row % t->n_rows), out);
    for (uint64_t k = 0; k < t->n_in / mxfp4_elems; k++)
        if (((const block_mxfp4 *)out)[k].e == 255) return false;
    return true;
}

/* ---- NVFP4 ----------------------------------------------------------------------------------- */

bool convert_copy_nvfp4(const convert_plan *p, const convert_tensor *t, uint64_t row,
                        uint8_t *out) {
    place at = find_place(p, t, row / t->n_rows);
    uint64_t from = at.item * t->source_rows + source_row(p, t, row % t->n_rows);
    const uint64_t n_subs = nvfp4_elems / nvfp4_sub; /* per block */
    uint64_t n = t->n_in / nvfp4_sub;
    const uint8_t *in = at.source->data->data + from * t->n_in / 2;
    const uint8_t *scales = at.source->scales->data + from * n;
    bool sound = true;
    for (uint64_t k = 0; k < n; k++, in += nvfp4_sub / 2) {
        block_nvfp4 *b = (block_nvfp4 *)out + k / n_subs;
        b->d[k % n_subs] = scales[k];
        sound = sound && scales[k] < 0x7f; /* neither NaN nor negative */
        pair_halves(in, nvfp4_sub, b->qs + k % n_subs * (nvfp4_sub / 2));
    }
    return sound;
}

static float global_scale(const convert_plan *p, place at) {
    float scale = convert_load_number(p, at.source->global, at.item);
    return at.source->divides ? 1 / scale : scale;
}

static void load_nvfp4_row(const convert_plan *p, const convert_tensor *t, place at, uint64_t row,
                           float *out) {
    static const int8_t doubled[16] = {QUANT_E2M1_VALUES};
    uint64_t from = at.item * t->source_rows + row;
    const uint8_t *in = at.source->data->data + from * t->n_in / 2;
    const uint8_t *scales = at.source->scales->data + from * (t->n_in / nvfp4_sub);
    float all = global_scale(p, at);
    for (uint64_t i = 0; i < t->n_in; i++) {
        int nibble = in[i / 2] >> (i % 2 * 4) & 15;
        float scale = p->fp8[0][scales[i / nvfp4_sub]] * all;
        /* magnitudes of nibble & 7; nibble 8 is -0 */
        float magnitude = 0.5f * (float)doubled[nibble & 7];
        out[i] = (nibble & 8 ? -magnitude : magnitude) * scale;
    }
}

/* ---- other rows ------------------------------------------------------------------------------ */

/* Returns the scale of one FP8 element. */
static float scale_of(const convert_plan *p, const convert_tensor *t, const convert_source *s,
                      uint64_t row, uint64_t column) {
    if (!s->scales) return 1;
    uint64_t high = (uint64_t)p->fp8_block[0], wide = (uint64_t)p->fp8_block[1];
    uint64_t per_row = (t->source_in + wide - 1) / wide;
    uint64_t at = s->scaling == SCALING_ONE    ? 0
                  : s->scaling == SCALING_ROWS ? row
                                               : row / high * per_row + column / wide;
    return convert_load_number(p, s->scales, at);
}

/* Loads row `r` of a head's matrix: a column of its keys, or a row of its values. */
static void load_head_row(const convert_plan *p, const convert_tensor *t, uint64_t row,
                          float *out) {
    const convert_source *s = &p->sources[t->first_source];
    uint64_t first = row / t->n_rows * t->head_rows, r = row % t->n_rows;
    if (t->rows == HF_HEAD_VALUES) {
        uint64_t from = first + t->head_rows - t->n_rows + r;
        load_plain(p, s->data, from * t->n_in, t->n_in, 1, out);
        if (s->scales) apply_scales(p, t, (place){s, 0}, from, out);
        return;
    }
    load_plain(p, s->data, first * t->source_in + r, t->n_in, t->source_in, out);
    for (uint64_t i = 0; i < t->n_in && s->scales; i++) out[i] *= scale_of(p, t, s, first + i, r);
}

/* Loads a row with elements grouped by value heads. */
static void load_turned_row(const convert_plan *p, const convert_tensor *t, uint64_t row,
                            float *out) {
    const convert_source *s = &p->sources[t->first_source];
    const hf_recurrent *sizes = &p->recurrent;
    uint64_t unit = t->n_in / (uint64_t)sizes->n_head;
    for (uint64_t i = 0; i < t->n_in; i += unit) {
        uint64_t from = turned_row(sizes, unit, i);
        load_plain(p, s->data, row * t->n_in + from, unit, 1, out + i);
        for (uint64_t k = 0; k < unit && s->scales; k++)
            out[i + k] *= scale_of(p, t, s, row, from + k);
    }
}

static void load_matrix_row(const convert_plan *p, const convert_tensor *t, uint64_t row,
                            float *out) {
    if (t->rows == HF_TURNS_COLUMNS) {
        load_turned_row(p, t, row, out);
        return;
    }
    if (t->head_rows) {
        load_head_row(p, t, row, out);
        return;
    }
    place at = find_place(p, t, row / t->n_rows);
    uint64_t from = source_row(p, t, row % t->n_rows) + t->first_row;
    uint64_t first = at.item * t->source_rows * t->n_in;
    if (from >= t->source_rows) { /* the table ends with rows of zeros */
        memset(out, 0, t->n_in * sizeof *out);
        return;
    }
    if (t->form == HF_NVFP4) {
        load_nvfp4_row(p, t, at, from, out);
        return;
    }
    if (t->form == HF_TRANSPOSED) {
        load_plain(p, at.source->data, first + from, t->n_in, t->source_rows, out);
        return;
    }
    load_plain(p, at.source->data, first + from * t->n_in, t->n_in, 1, out);
    if (at.source->scales) apply_scales(p, t, at, from, out);
}

/* Multiplier of a row of Mamba-2's input matrix. */
static float ssm_multiplier(const convert_plan *p, uint64_t row) {
    const hf_recurrent *s = &p->recurrent;
    uint64_t inner = (uint64_t)s->n_inner, keys = (uint64_t)s->n_group * (uint64_t)s->n_state;
    const uint64_t ends[] = {inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys};
    int part = 0;
    while (part < HF_SSM_PARTS - 1 && row >= ends[part]) part++;
    return p->ssm_multipliers[part] != 0 ? p->ssm_multipliers[part] : 1;
}

void convert_load_row(const convert_plan *p, const convert_tensor *t, uint64_t row, float *out) {
    if (t->form == HF_NVFP4_GLOBAL) {
        for (uint64_t i = 0; i < t->dims[0]; i++) out[i] = global_scale(p, find_place(p, t, i));
    } else if (!t->vector) {
        load_matrix_row(p, t, row, out);
    } else {
        bool turned = t->rows == HF_TURNS_BEHIND;
        place at = find_place(p, t, turned ? turned_behind(&p->recurrent, row) : row);
        for (uint64_t i = 0; i < t->n_rows; i++)
            load_plain(p, at.source->data, at.item * t->source_rows + source_row(p, t, i), 1, 1,
                       &out[i]);
    }
    float scale = t->scale * (t->role == ROLE_SSM_IN ? ssm_multiplier(p, row) : 1);
    for (uint64_t i = 0; i < t->dims[0] && scale != 1; i++) out[i] *= scale;
    for (uint64_t i = 0; i < t->dims[0] && t->log; i++) out[i] = -(float)exp((double)out[i]);
    if (t->add != 0)
        for (uint64_t i = 0; i < t->dims[0]; i++) out[i] += t->add;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Releases the source pages of converted rows. Rows in order form one range. A head with reordered
 * rows may cross the end of the range; the page cache then serves the few pages that are read
 * again. In other layouts the whole matrix is released, and read again for the next rows. */
void convert_forget_rows(const convert_plan *p, const convert_tensor *t, uint64_t first,
                         uint64_t n) {
    if (t->vector) return;
    bool in_order = (t->form == HF_PLAIN || t->form == HF_NVFP4) && t->rows == HF_ALL;
    for (uint64_t row = first; row < first + n;) {
        place at = find_place(p, t, row / t->n_rows);
        const safetensor *s = at.source->data;
        uint64_t left = t->n_rows - row % t->n_rows,
                 taken = left < first + n - row ? left : first + n - row;
        size_t items = t->n_sources > 1 ? 1 : (size_t)t->n_stack;
        size_t matrix_bytes = s->n_bytes / items, row_bytes = matrix_bytes / (size_t)t->source_rows;
        const uint8_t *matrix = s->data + at.item * matrix_bytes;
        uint64_t in_item = row % t->n_rows + t->first_row,
                 there = t->source_rows; /* later rows have no source */
        if (in_order && in_item < there)
            safetensors_forget(p->weights, matrix + in_item * row_bytes,
                               (size_t)(taken < there - in_item ? taken : there - in_item) *
                                   row_bytes);
        else if (in_order)
            break;
        else
            safetensors_forget(p->weights, matrix, matrix_bytes);
        row += taken;
    }
}
