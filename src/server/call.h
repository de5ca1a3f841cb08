/* call.h: a request that generates: its sequences, their results, and the form of the answer. The
 * forms of the APIs are dialects: tables of functions that write JSON, for a stream and for an
 * answer in one piece. All functions run on the connection's thread. */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include "exchange.h"
#include "fields.h"
#include "message.h"

typedef struct answer_choice {
    int index;
    sequence *q;
    model_text message;
    size_t n_read; /* bytes of the sequence's text that were fed to the message */
    /* Copies; they let the writer work without the lock. */
    token_record *tokens; /* [n_tokens], tokens whose text is released */
    token_choice *tops;   /* [n_tokens][n_top] */
    size_t n_tokens, n_generated;
    size_t tokens_capacity, tops_capacity;
    finish_reason finish;
    const char *stopped_by;
    int32_t n_prompt, n_cached, n_reasoning, slot;
    int64_t n_drafted, n_draft_accepted;
    sequence_times times;
    pi_error error;
    /* counts of the next event; n_ubatches 0: no event is due; NULL: not requested */
    neuron_counts *neurons;
    double neurons_sent; /* clock_seconds */
    /* Parts that the stream has sent. */
    bool begun, ended;
    size_t sent_content, sent_reasoning, sent_tokens;
    int sent_calls;
    bool call_begun;       /* the head of call number sent_calls was sent */
    size_t sent_arguments; /* bytes of its arguments */
    int open_item;         /* for dialects whose streams send one item after the other; -1: none */
    int n_items;
} answer_choice;

typedef struct server_call server_call;

typedef struct dialect {
    /* called before the first text; NULL: nothing */
    void (*begin)(server_call *c, answer_choice *k);
    void (*delta)(server_call *c, answer_choice *k); /* the message or its tokens have grown */
    void (*end)(server_call *c, answer_choice *k);   /* the choice has ended */
    void (*done)(server_call *c);                    /* all choices have ended; NULL: nothing */
    void (*failed)(server_call *c, unsigned status, const char *message);
    void (*whole)(server_call *c, json_writer *w);
    const char *ping; /* text to send when a stream is silent; NULL: a comment; "": nothing */
    bool whole_calls; /* streams contain a call when it is complete */
    bool lines;       /* streams are lines of JSON, without names; otherwise server-sent events */
} dialect;

struct server_call {
    server *server;
    served_model *served; /* a reference */
    exchange *exchange;   /* the request; valid until its answer is complete */
    const dialect *dialect;
    struct MHD_Connection *connection;
    int owner, key; /* owner of the sequences, and number of the key; -1: none */
    params params;
    char id[40], model[128];
    int64_t created;
    answer_choice *choices; /* [n_choices] */
    int n_choices;
    call_format format; /* format of tool calls */
    /* definitions of the tools, for formats that read calls with them; NULL: not needed */
    json_doc *tools;
    pi_grammar *grammar; /* grammar of the answers; NULL: none */
    bool parallel_calls; /* parallel_tool_calls of the request */
    bool splits_reasoning;
    /* length of the next prompt's text; SIZE_MAX: the prompt is given as tokens */
    size_t echo_bytes;
    size_t n_too_long; /* tokens of a prompt that does not fit; 0: all prompts fit */
    os_condition news;
    /* State of a stream. */
    bytes out;
    size_t n_sent;
    uint64_t n_events;
    bool finished, broken; /* the stream is complete; writing failed */
    bytes_json event;      /* appended to `out` */
};

/* Creates a call for a request whose params have been read, and takes ownership of params. NULL:
 * out of memory; params is freed. id: prefix of the answer's id, "chatcmpl-". */
server_call *call_create(exchange *x, const dialect *d, const char *id, params *p);

/* Adds params.n choices of one prompt. Always takes ownership of the tokens. PI_ERR_LIMIT: the
 * prompt is longer than a slot. Also the errors of pi_sampler_create. */
pi_status call_add_prompt(server_call *c, int32_t *tokens, size_t n_tokens, pi_error *err);
/* Passes the text of the prompt to the messages, which need its end. */
void call_begin_messages(server_call *c, const char *prompt, size_t n);

/* Submits all sequences to the scheduler and answers, in one piece or as a stream. Frees the
 * call. */
enum MHD_Result call_answer(exchange *x, server_call *c);
/* Frees the call and answers with an error. */
enum MHD_Result call_refuse(exchange *x, server_call *c, const pi_error *err);

/* How a stream sends call number k->sent_calls: its head, parts of its arguments, its end. */
typedef struct call_events {
    void (*begin)(server_call *c, answer_choice *k);
    void (*arguments)(server_call *c, answer_choice *k, const char *text, size_t n);
    void (*end)(server_call *c, answer_choice *k); /* NULL: nothing */
} call_events;
/* Sends the new calls, and what the last one has grown by. */
void call_send_tools(server_call *c, answer_choice *k, const call_events *events);
/* Begins an event whose data is a JSON object; returns the writer for its members. name NULL: no
 * name. */
json_writer *call_event(server_call *c, const char *name);
void call_event_end(server_call *c);
/* Appends text unchanged to the stream. */
void call_put(server_call *c, const char *text);

/* Number of tokens of all prompts (each prompt once) and of all choices; generated includes
 * reasoning. */
typedef struct call_usage {
    int64_t prompt, cached, generated, reasoning;
} call_usage;
call_usage call_get_usage(const server_call *c);
/* Writes "timings" in the form of llama.cpp's server. */
void call_put_timings(const answer_choice *k, json_writer *w);

#endif
