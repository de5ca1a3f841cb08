/* hparams_reader.h: reads keys, for the files that read hyperparameters. Private to src/model. */
#ifndef MODEL_HPARAMS_READER_H
#define MODEL_HPARAMS_READER_H

#include "model.h"

/* The file to read and the first error; after an error all readers do nothing. */
typedef struct key_reader {
    const gguf_file *file;
    const char *arch;
    pi_error *err;
    pi_status status;
    int32_t end; /* end of the model's layers; later layers draft */
} key_reader;

enum { KEY_TEXT = 128, MAX_TAPS = 64 };

/* The value of "ARCH.suffix", or NULL; `key` receives the whole name. */
const gguf_value *hparams_find(const key_reader *r, const char *suffix, char key[KEY_TEXT]);
/* Sets PI_ERR_FORMAT. */
void hparams_fail(key_reader *r, const char *key, const char *problem);
/* Reads an integer in [min, max]; a negative `fallback` makes the key required. `index` selects an
 * item of a per-layer array. */
int32_t hparams_int(key_reader *r, const char *suffix, int index, int32_t fallback, int32_t min,
                    int32_t max);
/* Reads a finite number in (min, max]; NaN as `fallback` makes the key required. */
float hparams_float(key_reader *r, const char *suffix, double fallback, double min, double max);
/* Reads the sizes of recurrent layers (hparams_recurrent.c). */
void hparams_read_recurrent(key_reader *r, const arch_row *arch, model_hparams *hp);
/* Reads the number of positions per index key (hparams_ngram.c); 0: the layer attends to all
 * positions. */
void hparams_read_pools(key_reader *r, const arch_row *arch, model_hparams *hp,
                        model_layer_hparams *layers);
/* Reads the keys of embeddings of n-grams (hparams_ngram.c). One layer may have them: there is one
 * table. */
void hparams_read_ngrams(key_reader *r, const arch_row *arch, model_hparams *hp,
                         model_layer_hparams *layers);

#endif
