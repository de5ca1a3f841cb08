/* api_fields.h: the fields of the requests, one table per API. The server checks requests against
 * the tables, and docs/api-fields.md shows them. The server ignores fields that no API knows, as
 * other servers do. A field that an API knows and that would change the answer is used or
 * refused. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include <stddef.h>

#include "error.h"
#include "json.h"

typedef enum field_use {
    FIELD_USED,
    FIELD_HARMLESS, /* has no effect here */
    FIELD_REFUSED   /* status 400 */
} field_use;

typedef struct api_field {
    const char *name;
    field_use use;
    const char *allowed; /* for FIELD_REFUSED: values that request nothing, separated by blanks */
    const char *note;    /* for the docs; for FIELD_REFUSED: what to do instead; "": nothing */
} api_field;

typedef struct api_fields {
    const char *route;
    const api_field *fields; /* [n] */
    size_t n;
} api_fields;

enum {
    API_CHAT,
    API_COMPLETIONS,
    API_NATIVE,
    API_RESPONSES,
    API_MESSAGES,
    API_INFILL,
    API_OLLAMA_CHAT,
    API_OLLAMA_GENERATE,
    N_APIS
};
extern const api_fields api_tables[N_APIS];

/* PI_ERR_UNSUPPORTED: names the first field that is refused. null, false, 0 and empty values
 * request nothing. */
pi_status api_fields_check(const json_node *body, const api_fields *api, pi_error *err);

#endif
