/* quant_codebook.c: see quant_codebook.h.
 *
 * Every coordinate is rounded to its nearest level. If the result is a point of the book, no other
 * point is nearer, whatever the weights. Otherwise the points nearest to it are tried. A table
 * lists them for all levels^dims rounded positions, a few thousand. */
#include "quant_codebook.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "os_thread.h"
#include "quant_low.h"

enum {
    DIMS_MAX = 8,
    LEVELS_MAX = 8,
    PLACES_MAX = 6561, /* 3^8, more than 8^4 */
    NEAR = 12          /* points to try; twice as many reduce the error by a thousandth */
};

struct codebook {
    int dims, n_levels, n_points;
    int8_t levels[LEVELS_MAX];
    int8_t point[2048][DIMS_MAX];
    uint16_t near[PLACES_MAX][NEAR]; /* nearest first */
    bool exact[PLACES_MAX];          /* near[0] is the rounded position itself */
};

static codebook books[CODEBOOK_COUNT];
static os_once once[CODEBOOK_COUNT];

static void list_near(codebook *b, int place) {
    int at[DIMS_MAX], distance[NEAR], n = 0;
    for (int i = 0, rest = place; i < b->dims; i++, rest /= b->n_levels)
        at[i] = b->levels[rest % b->n_levels];
    for (int p = 0; p < b->n_points; p++) {
        int d = 0;
        for (int i = 0; i < b->dims; i++) d += (at[i] - b->point[p][i]) * (at[i] - b->point[p][i]);
        if (n == NEAR && d >= distance[NEAR - 1]) continue;
        int k = n < NEAR ? n++ : NEAR - 1;
        for (; k > 0 && distance[k - 1] > d; k--) {
            distance[k] = distance[k - 1];
            b->near[place][k] = b->near[place][k - 1];
        }
        distance[k] = d;
        b->near[place][k] = (uint16_t)p;
    }
    b->exact[place] = distance[0] == 0;
}

static void make(codebook_id id, int dims, int n_points, const void *points, int n_levels,
                 const int8_t *levels) {
    codebook *b = &books[id];
    b->dims = dims;
    b->n_points = n_points;
    b->n_levels = n_levels;
    memcpy(b->levels, levels, (size_t)n_levels);
    for (int p = 0; p < n_points; p++)
        memcpy(b->point[p], (const int8_t *)points + p * dims, (size_t)dims);
    int n_places = 1;
    for (int i = 0; i < dims; i++) n_places *= n_levels;
    for (int place = 0; place < n_places; place++) list_near(b, place);
}

static const int8_t iq2_levels[] = {8, 25, 43}, iq1_levels[] = {-8, 0, 8},
                    xxs_levels[] = {4, 12, 20, 28, 36, 44, 52, 62},
                    iq3_levels[] = {1, 3, 5, 7, 9, 11, 13, 15};

static void make_iq2_xxs(void) {
    make(CODEBOOK_IQ2_XXS, 8, 256, quant_grid_iq2_xxs, 3, iq2_levels);
}
static void make_iq2_xs(void) {
    make(CODEBOOK_IQ2_XS, 8, 512, quant_grid_iq2_xs, 3, iq2_levels);
}
static void make_iq2_s(void) {
    make(CODEBOOK_IQ2_S, 8, 1024, quant_grid_iq2_s, 3, iq2_levels);
}
static void make_iq1(void) {
    make(CODEBOOK_IQ1, 8, 2048, quant_grid_iq1, 3, iq1_levels);
}
static void make_iq3_xxs(void) {
    make(CODEBOOK_IQ3_XXS, 4, 256, quant_grid_iq3_xxs, 8, xxs_levels);
}
static void make_iq3_s(void) {
    make(CODEBOOK_IQ3_S, 4, 512, quant_grid_iq3_s, 8, iq3_levels);
}

const codebook *codebook_get(codebook_id id) {
    static void (*const makers[CODEBOOK_COUNT])(void) = {make_iq2_xxs, make_iq2_xs,  make_iq2_s,
                                                         make_iq1,     make_iq3_xxs, make_iq3_s};
    os_once_run(&once[id], makers[id]);
    return &books[id];
}

int codebook_dims(const codebook *book) {
    return book->dims;
}

float codebook_top(const codebook *book) {
    return (float)book->levels[book->n_levels - 1];
}

static int place_of(const codebook *b, const float *y) {
    int place = 0;
    for (int i = b->dims - 1; i >= 0; i--) {
        int level = 0;
        for (int l = 1; l < b->n_levels; l++)
            level += y[i] > 0.5f * (float)(b->levels[l - 1] + b->levels[l]);
        place = place * b->n_levels + level;
    }
    return place;
}

uint16_t codebook_choose(const codebook *book, const float *x, const float *w, float inverse,
                         float shift, codebook_sums *sums) {
    float y[DIMS_MAX];
    for (int i = 0; i < book->dims; i++) y[i] = x[i] * inverse - shift;
    const int place = place_of(book, y);
    const uint16_t *near = book->near[place];
    uint16_t best = near[0];
    float least = INFINITY;
    for (int k = 0; k < (book->exact[place] ? 0 : NEAR); k++) {
        const int8_t *point = book->point[near[k]];
        float error = 0.0f;
        for (int i = 0; i < book->dims; i++) {
            float off = y[i] - (float)point[i];
            error += w[i] * off * off;
        }
        if (error >= least) continue;
        least = error;
        best = near[k];
    }
    for (int i = 0; i < book->dims; i++) {
        float q = (float)book->point[best][i] + shift;
        sums->xq += (double)(w[i] * x[i] * q);
        sums->qq += (double)(w[i] * q * q);
    }
    return best;
}
