/* server_options.h: the options of a server (server.h) and of each model that it serves. */
#ifndef SERVER_SERVER_OPTIONS_H
#define SERVER_SERVER_OPTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_speculate.h"
#include "prompt_store.h"

typedef enum server_pooling {
    SERVER_POOLING_MODEL, /* ARCH.pooling_type of the file, else the mean */
    SERVER_POOLING_MEAN,
    SERVER_POOLING_LAST,
    SERVER_POOLING_CLS, /* the first token; encoders only, as the next one */
    SERVER_POOLING_RANK /* a classifier's scores */
} server_pooling;

/* A model with its slots and its template. The opener of the model owns strings and objects; they
 * outlive the loaded model. */
typedef struct served_options {
    const pi_model *model;
    const char *model_name;      /* name in /v1/models */
    const char *model_path;      /* path in /props */
    pi_context_options context;  /* for all slots together */
    pi_sampler_options sampling; /* defaults for requests */
    int32_t n_slots;             /* number of sequences that are computed together */
    int32_t n_ctx;               /* capacity of one slot */
    prompt_store_options
        store;          /* prompt states beyond the slots; its folder needs !isolates_keys */
    int32_t max_queue;  /* maximum number of sequences that wait for a slot */
    int32_t max_tokens; /* default maximum of an answer; -1: no limit */
    /* Jinja source, n_template bytes; NULL: template_name, or the model's template */
    const char *template_source;
    size_t n_template;
    const char *template_name; /* name of a built-in template; NULL: the model's template */
    /* default variables of the template: a JSON object; NULL: none */
    const char *template_variables;
    int32_t reasoning_budget;  /* default maximum of reasoning, in tokens; -1: no limit */
    bool keeps_reasoning;      /* default of reasoning_format: reasoning stays in the content */
    bool evaluates_all;        /* default of cache_prompt: prompts are not reused */
    bool completes_messages;   /* a last message of the assistant is complete and not continued */
    server_pooling pooling;    /* pooling of embeddings */
    pi_speculator *speculator; /* for n_slots texts of n_ctx tokens; NULL: none */
} served_options;

/* A LoRA adapter of a model. */
typedef struct server_adapter {
    const char *path;
    float scale; /* at the start; 0: the adapter is not applied */
} server_adapter;

/* How a model is opened. */
typedef struct model_opening {
    const float *scales;        /* [n_adapters] of the adapters now */
    const atomic_bool *stopped; /* set when the server stops: give up with PI_ERR_CANCELLED */
} model_opening;

/* A model that the server loads when a request needs it. */
typedef struct server_model {
    const char *name;
    const char *const *aliases; /* [n_aliases] further names */
    int n_aliases;
    const char *path;               /* for lists */
    const server_adapter *adapters; /* [n_adapters] */
    int n_adapters;
    uint64_t bytes;      /* size of its files, an estimate of its memory until it was loaded once */
    double idle_seconds; /* it is unloaded after so many seconds without a request; -1: never */
    bool at_start;       /* the server loads it at its start */
    bool is_default;     /* for requests that name no model */
    /* Opens the model and fills *out, which is zeroed; *opened is passed to close. Called by one
     * thread at a time, while other models answer. */
    pi_status (*open)(void *user, const model_opening *how, served_options *out, void **opened,
                      pi_error *err);
    void (*close)(void *opened);
    void *user;
} server_model;

/* What an API key may use; 0: no limit. */
typedef struct key_limits {
    const char *name;        /* for logs, which never have the key; NULL: "key N" */
    double requests, tokens; /* per minute */
    int32_t concurrent;      /* requests at a time */
    double share;            /* weight of the key when requests wait for slots; 0: 1 */
    bool has_priority;       /* requests of this key have at least this priority number */
    int32_t priority;        /* lower numbers are served first */
} key_limits;

/* The caller owns strings and arrays; they outlive the server, as do the models. */
typedef struct server_options {
    served_options served;      /* the only model, which is open; unused with `models` */
    const server_model *models; /* [n_models]; NULL: `served` */
    int n_models;
    bool routes;              /* requests choose a model by its name */
    int32_t max_models;       /* maximum number of loaded models; 0: no limit */
    uint64_t max_model_bytes; /* maximum size of weights and KV caches of loaded models; 0: none */
    const char *metrics_prefix;  /* of the names in /metrics: "powerinfer_" */
    const char *host;            /* name or address to listen on */
    uint16_t port;               /* 0: any free port */
    const char *const *api_keys; /* [n_api_keys]; empty: no key is needed */
    const key_limits *limits;    /* [n_api_keys]; NULL: none */
    int n_api_keys;
    bool isolates_keys;             /* each key has separate prompt caches and grammars */
    const char *tls_key, *tls_cert; /* PEM; NULL: plain HTTP */
    const char *const *origins;     /* [n_origins] that CORS allows; "*": all */
    int n_origins;
    bool has_page;           /* GET / returns the chat page */
    const char *static_path; /* folder whose files GET returns instead of the page; NULL: none */
    const char *api_prefix;  /* "/x", prefix of all paths; NULL: none */
    bool hides_slots;        /* GET /slots is disabled */
    bool changes_props;      /* POST /props is enabled */
    const char *slot_folder; /* folder for the KV caches of slots; NULL: none */
    int32_t ping_seconds;    /* seconds of silence after which a stream sends a comment; 0: none */
    int32_t read_seconds;    /* time limit for a client to send its request, or to take an answer */
    int32_t max_connections;
    /* Takes one line of JSON per request; called by several threads. NULL: none. */
    void (*log_request)(const char *line, size_t n);
} server_options;

#endif
