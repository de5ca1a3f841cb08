/* quant_codebook.h: chooses code book points for floats. Private to src/quant. */
#ifndef QUANT_QUANT_CODEBOOK_H
#define QUANT_QUANT_CODEBOOK_H

#include <stdint.h>

typedef enum codebook_id {
    CODEBOOK_IQ2_XXS,
    CODEBOOK_IQ2_XS,
    CODEBOOK_IQ2_S,
    CODEBOOK_IQ1,
    CODEBOOK_IQ3_XXS,
    CODEBOOK_IQ3_S,
    CODEBOOK_COUNT
} codebook_id;

typedef struct codebook codebook;

/* A book and its table of nearest points, created at the first call, in any thread, and kept. */
const codebook *codebook_get(codebook_id id);
/* Coordinates per point: 8, or 4 for IQ3. */
int codebook_dims(const codebook *book);
/* The largest coordinate. */
float codebook_top(const codebook *book);

/* Sums over elements of w x q and w q q. */
typedef struct codebook_sums {
    double xq, qq;
} codebook_sums;

/* Chooses the point for x[dims] ~ (point + shift) / inverse with nearly the smallest error,
 * weighted by w[dims]. Adds its terms to the sums, with q = point + shift. */
uint16_t codebook_choose(const codebook *book, const float *x, const float *w, float inverse,
                         float shift, codebook_sums *sums);

#endif
