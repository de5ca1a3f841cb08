/* avx512_amx_mat_t.c: products over the rows of a matrix by the tile unit (AMX-BF16), for BF16 and
 * quantized rows. Tiles, unpacked as in tier_matmul_t.h, are the second factor; a panel is the
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

/* n words of a panel as steps of a first factor, [16 columns][32 elements]; zeros follow. */
static void mt_columns(const char *panel, int64_t n, char *out) {
    for (int64_t at = 0; at < n; at += MT_STEP_WORDS, out += AMX_STEP_BYTES) {
        vi v[MT_STEP_WORDS];
        for (int i = 0; i < MT_STEP_WORDS; i++)
            v[i] = at + i < n ? vi_load(panel + (at + i) * PLAIN_LINE) : vi_zero();
        vi_transpose(v);
        for (int i = 0; i < MT_STEP_WORDS; i++) vi_store(out + i * 64, v[i]);
    }
}

/* Sums are in the order of y. */
AVX512_INLINE void mt_end(const int sums, const amx_place *p) {
    if (amx_is_whole(p)) {
        amx_store(sums, p->y, p->ldy);
        return;
    }
    _Alignas(64) float t[CPU_PANEL][CPU_ROW_TILE];
    amx_store(sums, t[0], CPU_ROW_TILE);
    const __mmask16 there = amx_mask(p);
    for (int c = 0; c < p->n_cols; c++)
        amx_put(p->y + c * p->ldy, there, _mm512_load_ps(t[c]), !p->first);
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
            amx_place p[2][2];
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++)
                    p[i][k] = amx_place_at(y, ldy, j + k * CPU_ROW_TILE, outputs,
                                           col + i * CPU_PANEL, h->n_cols, n0 == 0, false);
            amx_products((const void *const[2]){columns[0], columns[1]},
                         (const void *const[2]){tile, tile + MT_TILE_BYTES}, false, n_steps, p,
                         mt_end);
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
