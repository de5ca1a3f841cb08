/* call.h: a request that generates: its sequences, what they have come to, and the form in which
 * the client wants that. The forms of the APIs are dialects: tables of functions that write JSON,
 * for a stream and for an answer in one piece. All of it runs on the connection's thread. */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include "fields.h"
#include "http.h"
#include "message.h"

typedef struct answer_choice {
    int index;
    sequence *q;
    model_text message;
    size_t n_read; /* bytes of the sequence's text that the message has */
    /* Copies, so that writing takes no lock. */
    token_record *tokens; /* [n_tokens], those whose text is released */
    token_choice *tops;   /* [n_tokens][n_top] */
    size_t n_tokens, n_generated;
    size_t tokens_capacity, tops_capacity;
    finish_reason finish;
    const char *stopped_by;
    int32_t n_prompt, n_cached, slot;
    int64_t n_drafted, n_draft_accepted;
    sequence_times times;
    pi_error error;
    neuron_counts *neurons; /* of the next event; n_ubatches 0: none is due; NULL: not wanted */
    double neurons_sent;    /* clock_seconds */
    /* What a stream has sent. */
    bool begun, ended;
    size_t sent_content, sent_reasoning, sent_tokens;
    int sent_calls;
    int open_item; /* of dialects whose streams have items one after the other; -1: none */
    int n_items;
} answer_choice;

typedef struct server_call server_call;

typedef struct dialect {
    void (*begin)(server_call *c, answer_choice *k); /* before its first text; NULL: nothing */
    void (*delta)(server_call *c, answer_choice *k); /* its message has grown, or its tokens */
    void (*end)(server_call *c, answer_choice *k);   /* it has ended */
    void (*done)(server_call *c);                    /* all have ended; NULL: nothing */
    void (*failed)(server_call *c, unsigned status, const char *message);
    void (*whole)(server_call *c, json_writer *w);
    const char *ping; /* what is sent when there is nothing to send; NULL: a comment */
} dialect;

struct server_call {
    server *server;
    const dialect *dialect;
    struct MHD_Connection *connection;
    int owner; /* of its sequences */
    params params;
    char id[40], model[128];
    int64_t created;
    answer_choice *choices; /* [n_choices] */
    int n_choices;
    call_format format;  /* of tool calls */
    json_doc *tools;     /* their definitions, where calls are read by them; NULL: not needed */
    pi_grammar *grammar; /* that answers obey; NULL: none */
    bool parallel_calls; /* as the request says */
    bool splits_reasoning;
    size_t echo_bytes; /* of the text of the next prompt; SIZE_MAX: it is given as tokens */
    size_t n_too_long; /* tokens of a prompt that does not fit; 0: all do */
    os_condition news;
    /* a stream */
    bytes out;
    size_t n_sent;
    uint64_t n_events;
    bool finished, broken; /* nothing more comes; it could not be written */
    FILE *events;          /* appends to `out` */
    json_writer event;
};

/* A call for a request whose params have been read; takes over params. NULL: no memory, and params
 * is free. id: prefix of the request's name, "chatcmpl-". */
server_call *call_create(exchange *x, const dialect *d, const char *id, params *p);
void call_free(server_call *c);

/* Adds n choices (params.n) of one prompt. Takes the tokens in any case. PI_ERR_LIMIT: the prompt
 * is longer than a slot; what pi_sampler_create says. */
pi_status call_add_prompt(server_call *c, int32_t *tokens, size_t n_tokens, pi_error *err);
/* Tells the messages with what text the prompt ends. */
void call_begin_messages(server_call *c, const char *prompt, size_t n);

/* Hands everything to the scheduler and answers, in one piece or as a stream. Frees the call. */
enum MHD_Result call_answer(exchange *x, server_call *c);
/* Frees the call and answers with an error. */
enum MHD_Result call_refuse(exchange *x, server_call *c, const pi_error *err);

/* One event, whose data is a JSON object: its members are written to the writer that is returned.
 * name NULL: none. */
json_writer *call_event(server_call *c, const char *name);
void call_event_end(server_call *c);
/* Bytes as they are. */
void call_put(server_call *c, const char *text);

/* Tokens of all prompts (each once), and of all choices. */
typedef struct call_usage {
    int64_t prompt, cached, generated;
} call_usage;
call_usage call_get_usage(const server_call *c);
/* "timings", as llama.cpp's server has them. */
void call_put_timings(const answer_choice *k, json_writer *w);

#endif
