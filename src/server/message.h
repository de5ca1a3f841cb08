/* message.h: splits a model's text into reasoning, content and tool calls. The text arrives in
 * pieces of whole characters and is appended to these three parts, so that a stream sends the
 * growth of each part. One thread at a time. */
#ifndef SERVER_MESSAGE_H
#define SERVER_MESSAGE_H

#include "bytes.h"
#include "call_pairs.h"

enum { MESSAGE_MAX_CALLS = 64, MESSAGE_SHORT_ID = 9 /* length in letters and digits */ };

typedef struct tool_call {
    char id[128];          /* the model's id, where later turns need it; otherwise a new id */
    bytes name, arguments; /* arguments: a JSON text */
} tool_call;

/* Form of calls in the text. Texts are NUL-terminated and outlive the message. */
typedef struct call_format {
    const char *open; /* begins a call; "": the whole text is a call */
    /* key of the name in the JSON object: "name"; "": the name is the key of the arguments */
    const char *name_key;
    const char *args_key;    /* key of the arguments: "arguments", "parameters" */
    const char *id_key;      /* key of an id that the template also writes; "": none */
    bool id_first;           /* the id stands before the name, otherwise after the arguments */
    bool list;               /* the JSON is an array of such objects */
    bool further;            /* further such objects may follow before `close` */
    const char *close;       /* follows the JSON; "": nothing */
    const call_pairs *pairs; /* for calls whose name stands before the arguments: of the fields
                                above only `open` is used; NULL: JSON */
    bool single;             /* the template writes one call per answer */
    bool short_ids;          /* ids have MESSAGE_SHORT_ID characters, as some templates require */
} call_format;

typedef enum message_phase {
    MESSAGE_START,  /* only white space so far */
    MESSAGE_HEADER, /* header of one of several messages: <|channel|>final<|message|> */
    MESSAGE_REASONING,
    MESSAGE_CONTENT,
    MESSAGE_CALL
} message_phase;

typedef struct model_text {
    /* Input. */
    bool splits_reasoning;     /* otherwise reasoning stays in the content */
    const call_format *format; /* NULL: no calls */
    bool cut;                  /* with `last`: the text was truncated, perhaps within a call */
    /* A call that begins is a valid one (a grammar sees to it): its arguments grow as they are
     * written, if the form is JSON with the name before the arguments. */
    bool grows_calls;
    /* definitions that determine the types of untyped arguments; NULL: none */
    const json_node *tools;
    /* Output. */
    bytes reasoning, content;
    tool_call calls[MESSAGE_MAX_CALLS];
    int n_calls;  /* the arguments of the last call may be incomplete when the text was truncated */
    bool growing; /* the last call is being written */
    bool failed;  /* out of memory */
    /* Private. */
    message_phase phase;
    const struct reasoning_mark *mark; /* mark of the reasoning */
    bool headers;                      /* the answer consists of messages with headers */
    bool within;                       /* a further call may follow before pairs->end, or `close` */
    bytes held;                        /* text that is not yet classified */
    /* While `growing`: bytes of the call's JSON so far, state behind them. */
    struct {
        size_t at;
        int depth;
        bool quoted, escaped, complete;
    } growth;
    call_scan scan; /* scan of the call that `held` begins with */
} model_text;

/* Whether a control token's text is part of a mark of reasoning, messages or calls, which the
 * parser searches in the text. Other control tokens are of no use to clients. */
bool message_is_mark(const call_format *format, const char *text);
/* Marks of reasoning in the known models: begin, end, and what may follow the end before the
 * content. */
struct reasoning_mark {
    const char *begin, *end, *after;
};
/* Returns the mark of the reasoning in which a prompt ends; NULL: the prompt ends outside
 * reasoning. */
const struct reasoning_mark *message_open_mark(const char *prompt, size_t n);
/* Returns the mark that an answer begins with, and the length of its beginning with the blanks
 * before it; NULL: none, or not yet (*more). */
const struct reasoning_mark *message_mark_at(const char *text, size_t n, size_t *used, bool *more);
/* Whether the answer to a prompt consists of messages with headers, where several may be
 * reasoning; and the mark of these. */
bool message_has_headers(const char *prompt, size_t n);
const struct reasoning_mark *message_header_mark(void);
/* Number of bytes at the end of s[n] that are a proper prefix of `word`; 0: none. */
size_t message_beginning_at_end(const char *s, size_t n, const char *word);
/* Returns the mark that ends the reasoning in which a prompt ends, because its template began it;
 * NULL: the prompt ends outside reasoning. */
const char *message_open_reasoning(const char *prompt, size_t n);
/* Returns where that reasoning begins; n: nowhere. */
size_t message_open_reasoning_at(const char *prompt, size_t n);
/* Length of the reasoning at the beginning of a text, which may lack its opening mark, with the
 * blanks around the reasoning. */
size_t message_reasoning_extent(const char *text, size_t n);
/* Writes n <= 10 letters and digits of an id, derived from `bits`; no NUL. */
void message_id_letters(char *id, int n, uint64_t bits);
/* Begins a text that follows this prompt. */
void message_begin(model_text *m, const char *prompt, size_t n_prompt);
/* Adds text; `last`: no more text follows. */
void message_feed(model_text *m, const char *text, size_t n, bool last);
void message_free(model_text *m);

#endif
