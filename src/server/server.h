/* server.h: an HTTP server around one model: OpenAI's API, llama.cpp's, and Anthropic's messages.
 *
 * libmicrohttpd runs a thread per connection, which parses the request, hands sequences to the
 * scheduler (scheduler.h) and writes what comes back. The program's own thread starts and stops the
 * server and calls server_tick about once a second.
 *
 * Built without libmicrohttpd or jansson, server_start returns PI_ERR_UNSUPPORTED naming it. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "powerinfer_speculate.h"

typedef struct server server;

typedef enum server_pooling {
    SERVER_POOLING_MODEL, /* what the file says (ARCH.pooling_type), else the mean */
    SERVER_POOLING_MEAN,
    SERVER_POOLING_LAST
} server_pooling;

/* Strings and arrays belong to the caller and outlive the server, as the model does. */
typedef struct server_options {
    const pi_model *model;
    const char *model_name;      /* what /v1/models says */
    pi_context_options context;  /* of all slots */
    pi_sampler_options sampling; /* where a request says nothing */
    int32_t n_slots;             /* sequences that are computed together */
    int32_t n_ctx;               /* tokens of one slot */
    int32_t max_queue;           /* sequences that wait for a slot */
    int32_t max_tokens;          /* of an answer, where a request says nothing; -1: no limit */
    const char *host;            /* name or address to listen on */
    uint16_t port;               /* 0: any free one */
    const char *const *api_keys; /* [n_api_keys]; none: everybody may ask */
    int n_api_keys;
    bool isolates_keys;             /* prompt caches and grammars are those of one key */
    const char *tls_key, *tls_cert; /* PEM; NULL: plain HTTP */
    const char *const *origins;     /* [n_origins] that CORS allows; "*": all */
    int n_origins;
    const char *template_source; /* Jinja, n_template bytes; NULL: template_name, or the model's */
    size_t n_template;
    const char *template_name;      /* a built-in one; NULL: the model's */
    const char *template_variables; /* where a request has none: a JSON object; NULL: none */
    bool keeps_reasoning;    /* in the content, where a request does not say reasoning_format */
    bool evaluates_all;      /* of prompts, where a request does not say cache_prompt */
    bool completes_messages; /* a last message of the assistant is not continued */
    bool has_page;           /* GET / answers with a page to chat */
    const char *static_path; /* folder of files that GET answers with instead; NULL: none */
    const char *api_prefix;  /* "/x", which all paths begin with; NULL: nothing */
    bool hides_slots;        /* no GET /slots */
    const char *slot_folder; /* of files of slots' KV caches; NULL: none */
    server_pooling pooling;  /* of embeddings */
    int32_t ping_seconds;    /* a comment in a stream that is silent for so long; 0: none */
    int32_t read_seconds;    /* within which a client sends its request, or takes an answer */
    int32_t max_connections;
    pi_speculator *speculator; /* for n_slots texts of n_ctx tokens; NULL: none */
} server_options;

/* Listens when it returns. PI_ERR_IO: the address, or the TLS key and certificate;
 * PI_ERR_NOT_FOUND: no built-in template of that name; PI_ERR_FORMAT: the template, or its
 * variables; what pi_context_create and pi_session_create say; PI_ERR_ARG: more slots than tokens
 * in a batch. */
pi_status server_start(const server_options *options, server **out, pi_error *err);
uint16_t server_port(const server *s);
/* What one slot holds; how many threads compute: for the log. */
const pi_context *server_context(const server *s);
/* The model has no chat template and none was chosen: answers of chats continue the text. */
bool server_lacks_template(const server *s);
/* Closes connections that are too slow. */
void server_tick(server *s);
/* Takes no new connections, lets answers in progress go on for `seconds`, ends everything, frees.
 * NULL is fine. */
void server_stop(server *s, double seconds);

#endif
