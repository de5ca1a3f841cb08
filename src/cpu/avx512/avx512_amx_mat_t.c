/* avx512_amx_mat_t.c: products over the rows of a matrix by the tile unit (AMX-BF16), for BF16 and
 * quantized rows. Tiles are the second factor as tier_matmul_t.h unpacks them; a panel becomes the
 * first one, so that sums have the order of y. */
#include "avx512_amx.h"
#include "avx512_bf16_unit.h"
#include "avx512_mat.h"
#include "tiers.h"

static void mt_amx_sweep(char *tiles, int64_t n0, int64_t n, int64_t outputs, const cpu_act *h,
                         float *y, int64_t ldy);

#define MT_PAIRS 1
#define MT_SWEEP mt_amx_sweep
#include "tier_matmul_t.h"

enum { MT_STEP_WORDS = AMX_DEPTH / 2, MT_AMX_STEPS = MT_WORDS / MT_STEP_WORDS };

/* n words of a panel as steps of a first factor, [16 columns][32 elements]; zeros behind them. */
static void mt_columns(const char *panel, int64_t n, char *out) {
    for (int64_t at = 0; at < n; at += MT_STEP_WORDS, out += AMX_STEP_BYTES) {
        vi v[MT_STEP_WORDS];
        for (int i = 0; i < MT_STEP_WORDS; i++)
            v[i] = at + i < n ? vi_load(panel + (at + i) * PLAIN_LINE) : vi_zero();
        vi_transpose(v);
        for (int i = 0; i < MT_STEP_WORDS; i++) vi_store(out + i * 64, v[i]);
    }
}

/* The sums of a panel and 16 outputs, y[column][output], of which n_cols and n_out are there. */
typedef struct mt_place {
    float *y;
    int64_t ldy;
    int n_cols, n_out;
    bool first;
} mt_place;

AVX512_INLINE bool mt_whole(const mt_place *p) {
    return p->n_cols == CPU_PANEL && p->n_out == CPU_ROW_TILE;
}

AVX512_INLINE void mt_begin(const int sums, const mt_place *p) {
    if (p->first || !mt_whole(p))
        amx_zero(sums);
    else
        amx_load(sums, p->y, p->ldy);
}

AVX512_INLINE void mt_end(const int sums, const mt_place *p) {
    if (mt_whole(p)) {
        amx_store(sums, p->y, p->ldy);
        return;
    }
    _Alignas(64) float t[CPU_PANEL][CPU_ROW_TILE];
    amx_store(sums, t[0], CPU_ROW_TILE);
    const __mmask16 mask = (__mmask16)((1u << p->n_out) - 1);
    for (int c = 0; c < p->n_cols; c++) {
        float *y = p->y + c * p->ldy;
        vf sum = _mm512_load_ps(t[c]);
        if (!p->first) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
        _mm512_mask_storeu_ps(y, mask, sum);
    }
}

/* Two panels' columns times two tiles. Of either the second may not be there, and is the first. */
AVX512_INLINE void mt_multiply(const char *const x[2], const char *const tile[2], int64_t n_steps,
                               const mt_place p[2][2]) {
    const bool cols = p[1][0].n_cols > 0, outs = p[0][1].n_out > 0;
    mt_begin(4, &p[0][0]);
    if (outs) mt_begin(5, &p[0][1]);
    if (cols) mt_begin(6, &p[1][0]);
    if (cols && outs) mt_begin(7, &p[1][1]);
    amx_multiply(x[0], x[cols], tile[0], tile[outs], true, n_steps);
    mt_end(4, &p[0][0]);
    if (outs) mt_end(5, &p[0][1]);
    if (cols) mt_end(6, &p[1][0]);
    if (cols && outs) mt_end(7, &p[1][1]);
}

static int mt_least(int64_t n, int most) {
    return n < 0 ? 0 : n < most ? (int)n : most;
}

static void mt_amx_sweep(char *tiles, int64_t n0, int64_t n, int64_t outputs, const cpu_act *h,
                         float *y, int64_t ldy) {
    _Alignas(64) char columns[2][MT_AMX_STEPS * AMX_STEP_BYTES]; /* 32 KiB */
    const int64_t n_steps = (n + MT_STEP_WORDS - 1) / MT_STEP_WORDS;
    const int64_t rest = n_steps * MT_STEP_WORDS - n;
    for (int64_t j = 0; j < outputs && rest > 0; j += CPU_ROW_TILE)
        memset(tiles + j / CPU_ROW_TILE * MT_TILE_BYTES + n * PLAIN_LINE, 0,
               (size_t)rest * PLAIN_LINE);
    amx_open();
    for (int64_t col = 0; col < h->n_cols; col += 2 * CPU_PANEL) {
        for (int i = 0; i < 2 && col + i * CPU_PANEL < h->n_cols; i++)
            mt_columns((const char *)act_panel(h, col / CPU_PANEL + i) + n0 * 4 * CPU_PANEL, n,
                       columns[i]);
        const char *tile = tiles;
        for (int64_t j = 0; j < outputs; j += 2 * CPU_ROW_TILE, tile += 2 * MT_TILE_BYTES) {
            mt_place p[2][2];
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++)
                    p[i][k] = (mt_place){
                        .y = y + (col + i * CPU_PANEL) * ldy + j + k * CPU_ROW_TILE,
                        .ldy = ldy,
                        .n_cols = mt_least(h->n_cols - col - i * CPU_PANEL, CPU_PANEL),
                        .n_out = mt_least(outputs - j - k * CPU_ROW_TILE, CPU_ROW_TILE),
                        .first = n0 == 0};
            mt_multiply((const char *const[2]){columns[0], columns[1]},
                        (const char *const[2]){tile, tile + MT_TILE_BYTES}, n_steps, p);
        }
    }
    _tile_release();
}

#define DEFINE(type, name, ...) static MT_DEFINE(avx512_amx, name, name##_format)
QUANT_BLOCKS(DEFINE)
static MT_DEFINE(avx512_amx, bf16, bf16_weights)

#define ENTRY(type, name, ...) k->mat_t[QUANT_##type].matmul_t = avx512_amx_matmul_t_##name;

    void cpu_init_avx512_amx_mat_t(cpu_kernels *k) {
    QUANT_BLOCKS(ENTRY)
    ENTRY(BF16, bf16, )
}
