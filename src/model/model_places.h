/* model_places.h: a model whose neurons change places while it is used, for one context.
 *
 * A layer's places are the rows of its FFN matrices and predictor, and the elements of its vectors.
 * At first each place has the neuron that the file has there. The places before `hot` are those of
 * the GPU. Two neurons are exchanged by writing their rows: matrices and predictors are mapped
 * again, privately, so that only pages that are written take memory, and vectors are copies. The
 * model as opened, which other contexts may use, does not change. */
#ifndef MODEL_MODEL_PLACES_H
#define MODEL_MODEL_PLACES_H

#include "model.h"

typedef struct model_places model_places;

/* hot: [n_layer] places of each layer before the others; 0: its neurons stay. Layers stay as well
 * (model_layer.fixed) whose matrices are not in a mapped file: it was copied to memory, or adapters
 * were merged. PI_ERR_NOMEM, PI_ERR_IO. */
pi_status model_places_create(const model *m, const int64_t *hot, model_places **out,
                              pi_error *err);
void model_places_free(model_places *p); /* NULL is fine */
/* The model with these places; valid until model_places_free. */
const model *model_places_view(const model_places *p);

/* Exchanges the neurons of two places, one before `hot` and one after it. The rows of gate, up and
 * down before `hot`, which the GPU has, are not written: only their vectors and the predictor's
 * rows are. Nobody may read the view meanwhile. */
void model_places_exchange(model_places *p, int layer, int64_t hot, int64_t cold);

#endif
