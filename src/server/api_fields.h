/* api_fields.h: the fields of the APIs' requests: one table per API, which requests are checked
 * against and docs/api-fields.md shows. Fields that no API knows are ignored, as other servers do;
 * one that an API knows and that would change the answer is used or refused. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include <stddef.h>

#include "error.h"
#include "json.h"

typedef enum field_use {
    FIELD_USED,
    FIELD_HARMLESS, /* it changes nothing here */
    FIELD_REFUSED   /* status 400 */
} field_use;

typedef struct api_field {
    const char *name;
    field_use use;
    const char *allowed; /* of FIELD_REFUSED: values that ask for nothing, separated by blanks */
    const char *note;    /* for the docs; of FIELD_REFUSED: what to do instead; "": nothing */
} api_field;

typedef struct api_fields {
    const char *route;
    const api_field *fields; /* [n] */
    size_t n;
} api_fields;

enum { API_CHAT, API_COMPLETIONS, API_NATIVE, API_RESPONSES, API_MESSAGES, N_APIS };
extern const api_fields api_tables[N_APIS];

/* PI_ERR_UNSUPPORTED: names the first field that is refused. null, false, 0 and what is empty ask
 * for nothing. */
pi_status api_fields_check(const json_node *body, const api_fields *api, pi_error *err);

#endif
