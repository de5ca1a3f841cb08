/* fields.h: reads members of a request and checks their types and ranges. A member that is absent
 * or null leaves the value unchanged. A member with a wrong type or out of range is PI_ERR_ARG,
 * with its name. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include "json.h"
#include "powerinfer.h"
#include "sequence.h"

pi_status field_bool(const json_node *body, const char *name, bool *out, pi_error *err);
pi_status field_int(const json_node *body, const char *name, int64_t min, int64_t max, int64_t *out,
                    pi_error *err);
pi_status field_number(const json_node *body, const char *name, double min, double max, double *out,
                       pi_error *err);
/* *out: NUL-terminated, without NUL inside; valid as long as the body. */
pi_status field_text(const json_node *body, const char *name, const char **out, pi_error *err);
/* PI_ERR_ARG unless the member is absent, null, or of the kind JSON_ARRAY or JSON_OBJECT. */
pi_status field_kind(const json_node *body, const char *name, json_kind kind, pi_error *err);

enum { PARAMS_MAX_BIAS = 4096, PARAMS_MAX_CHOICES = 32 };

/* Parameters of all routes that generate. */
typedef struct params {
    pi_sampler_options sampling; /* sampling.logit_bias points to `bias` */
    pi_logit_bias *bias;
    pi_sampler_kind chain[PI_SAMPLER_CHAIN_MAX];
    const char **breakers;
    int32_t max_tokens;       /* -1: no limit */
    int32_t reasoning_budget; /* tokens of reasoning; -1: no limit */
    int32_t max_draft;        /* tokens drafted per step; -1: the server's limit */
    int32_t slot;             /* preferred slot; -1: any */
    int n;                    /* number of choices */
    int n_top;                /* -1: no logprobs */
    bool stream, include_usage, cache_prompt, timings;
    bool echo;           /* answers begin with the prompt */
    bool returns_tokens; /* answers contain the ids of their tokens */
    double max_seconds;  /* after the first token; then the answer ends, but not within its first
                            line; 0: none */
    int32_t min_indent;  /* least number of blanks at the beginning of each line after the first */
    const json_node *response_fields; /* names of the members of the answer; NULL: all */
    bool neurons;            /* the stream has events with active neurons; needs `stream` */
    const json_node *suffix; /* text after the answer, which FIM tokens announce; NULL: none */
    const json_node *stop;   /* a string or an array of strings; NULL: none */
} params;

/* Reads sampling and limits; `sampling`, `max_tokens` and `cache_prompt` are the server's defaults.
 * limit_names: the API's names of max_tokens, ends with NULL; the first name that is present is
 * used. */
pi_status params_read(params *p, const json_node *body, const pi_sampler_options *sampling,
                      int32_t max_tokens, bool cache_prompt, const char *const *limit_names,
                      const pi_model *model, pi_error *err);
/* Reads only the numbers of the samplers. */
pi_status params_read_sampling(const json_node *body, pi_sampler_options *out, pi_error *err);
void params_free(params *p); /* accepts zeroed params */

/* Adds the stop texts of `stop` to a sequence. */
pi_status params_add_stops(const params *p, sequence *q, pi_error *err);

#endif
