/* hf_reader.h: reads numbers of a config.json. Every number has a range, so that no hostile value
 * reaches the converter's arithmetic. Readers do nothing after an error. A value is searched under
 * several names: in the text part of a multimodal model, then outside it, then in the family's
 * defaults. */
#ifndef CONVERT_HF_READER_H
#define CONVERT_HF_READER_H

#include "hf_family.h"
#include "json.h"
#include "notifier.h"

enum { HF_MAX_NAMES = 8 };
typedef const char *const hf_names[HF_MAX_NAMES]; /* the first existing name is used */

typedef struct hf_reader {
    const json_node *root, *text; /* `text` is text_config, or root */
    const hf_family *family;      /* NULL: not known yet */
    const char *path;             /* for messages */
    const notifier *notifier;
    pi_error *err;
    pi_status status;
} hf_reader;

void hf_fail(hf_reader *r, const char *key, const char *problem);
/* Absent and null are equivalent in these files. */
const json_node *hf_get(const json_node *object, const char *key);
/* NULL: not found; *name: the name that was found. */
const json_node *hf_find(const hf_reader *r, hf_names names, const char **name);
bool hf_has(const hf_reader *r, const char *key);
/* An integer in min..max; `fallback` < 0: required. A list must have one number for all layers. */
int32_t hf_int(hf_reader *r, hf_names names, int32_t fallback, int32_t min, int32_t max);
/* A finite number in min..max; fallback NaN: required. */
double hf_number(hf_reader *r, hf_names names, double fallback, double min, double max);
/* Reads from an object, without defaults. */
double hf_number_in(hf_reader *r, const json_node *object, const char *key, double fallback,
                    double min, double max);
/* Reads the first name in the object, else all names in the file, like hf_number. */
double hf_number_near(hf_reader *r, const json_node *object, hf_names names, double fallback,
                      double min, double max);
bool hf_flag(hf_reader *r, hf_names names, bool fallback);
const char *hf_text(const json_node *object, const char *key); /* NULL: no such text */

#endif
