/* hf_reader.h: numbers of a config.json, every one with a range, so that nothing hostile reaches
 * the arithmetic of the converter. Readers do nothing once an error is set. A value is looked for
 * under several names, in the part about text of a model that also sees or hears, then outside,
 * then among the defaults of the family. */
#ifndef CONVERT_HF_READER_H
#define CONVERT_HF_READER_H

#include "hf_family.h"
#include "json.h"
#include "notifier.h"

enum { HF_MAX_NAMES = 8 };
typedef const char *const hf_names[HF_MAX_NAMES]; /* the first that is there counts */

typedef struct hf_reader {
    const json_node *root, *text; /* `text` is text_config, or root */
    const hf_family *family;      /* NULL: not known yet */
    const char *path;             /* for messages */
    const notifier *notifier;
    pi_error *err;
    pi_status status;
} hf_reader;

void hf_fail(hf_reader *r, const char *key, const char *problem);
/* Absent and null are the same thing in these files. */
const json_node *hf_get(const json_node *object, const char *key);
/* NULL when none is there; *name: which one. */
const json_node *hf_find(const hf_reader *r, hf_names names, const char **name);
bool hf_has(const hf_reader *r, const char *key);
/* An integer in min..max; `fallback` < 0: required. A list must hold one number for all layers. */
int32_t hf_int(hf_reader *r, hf_names names, int32_t fallback, int32_t min, int32_t max);
/* A finite number in min..max; NaN as fallback: required. */
double hf_number(hf_reader *r, hf_names names, double fallback, double min, double max);
/* The same from an object, without defaults. */
double hf_number_in(hf_reader *r, const json_node *object, const char *key, double fallback,
                    double min, double max);
/* The first name in the object, else all of them in the file, as hf_number. */
double hf_number_near(hf_reader *r, const json_node *object, hf_names names, double fallback,
                      double min, double max);
bool hf_flag(hf_reader *r, hf_names names, bool fallback);
const char *hf_text(const json_node *object, const char *key); /* NULL: no such text */

#endif
