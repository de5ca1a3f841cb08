/* message.h: what a model's text consists of: reasoning, content, calls of tools. Text is fed as it
 * comes, in whole characters; what it turns out to be grows in three places, so that a stream sends
 * what is new of each. One thread at a time. */
#ifndef SERVER_MESSAGE_H
#define SERVER_MESSAGE_H

#include "bytes.h"
#include "call_pairs.h"

enum { MESSAGE_MAX_CALLS = 64, MESSAGE_SHORT_ID = 9 /* letters and digits */ };

typedef struct tool_call {
    char id[128]; /* the model's, where it writes one that later turns need; else a new one */
    bytes name, arguments; /* arguments: a JSON text */
} tool_call;

/* How calls look in the text. Texts are NUL-terminated and outlive the message. */
typedef struct call_format {
    const char *open;        /* begins a call; "": a call is the whole text */
    const char *name_key;    /* of the JSON object: "name"; "": the name is the key of arguments */
    const char *args_key;    /* "arguments", "parameters" */
    const char *id_key;      /* of an id that the template writes, too; "": none */
    bool id_first;           /* the id stands before the name, else behind the arguments */
    bool list;               /* the JSON is an array of such objects */
    bool further;            /* more such objects may follow before `close` */
    const char *close;       /* follows the JSON; "" none */
    const call_pairs *pairs; /* the name stands before the arguments: of the above only open counts;
                                NULL: JSON */
    bool single;             /* the template writes one call per answer */
    bool short_ids;          /* of MESSAGE_SHORT_ID characters, as some templates demand */
} call_format;

typedef enum message_phase {
    MESSAGE_START,  /* nothing but white space so far */
    MESSAGE_HEADER, /* of one of several messages: <|channel|>final<|message|> */
    MESSAGE_REASONING,
    MESSAGE_CONTENT,
    MESSAGE_CALL
} message_phase;

typedef struct model_text {
    /* in */
    bool splits_reasoning;     /* else reasoning stays in the content */
    const call_format *format; /* NULL: there are no calls */
    bool cut;                  /* with `last`: the text ends at a limit, perhaps within a call */
    const json_node *tools;    /* what arguments without types are read by; NULL: none */
    /* out */
    bytes reasoning, content;
    tool_call calls[MESSAGE_MAX_CALLS];
    int n_calls; /* arguments of the last one may be a beginning, where the text was cut */
    bool failed; /* out of memory */
    /* own */
    message_phase phase;
    const struct reasoning_mark *mark; /* of the reasoning */
    bool headers;                      /* the answer is messages with headers */
    bool within;                       /* a further call may follow before pairs->end, or close */
    bytes held;                        /* what is not decided yet */
    call_scan scan;                    /* of the call that it begins with */
} model_text;

/* Whether a control token's text belongs to the marks of reasoning, messages or calls, which are
 * looked for in the text. Others say nothing to a client. */
bool message_is_mark(const call_format *format, const char *text);
/* What ends the reasoning that a prompt ends within, begun by its template; NULL: it does not. */
const char *message_open_reasoning(const char *prompt, size_t n);
/* Where that reasoning begins; n: nowhere. */
size_t message_open_reasoning_at(const char *prompt, size_t n);
/* Length of the reasoning that a text begins with, or only ends, with the blanks around it. */
size_t message_reasoning_extent(const char *text, size_t n);
/* Writes n letters and digits of an id, at most ten, which `bits` decides; no NUL. */
void message_id_letters(char *id, int n, uint64_t bits);
/* The text follows this prompt. */
void message_begin(model_text *m, const char *prompt, size_t n_prompt);
/* `last`: nothing will follow. */
void message_feed(model_text *m, const char *text, size_t n, bool last);
void message_free(model_text *m);

#endif
