/* chat_request.h: converts the messages and tools of a chat to the form that templates expect:
 * contents as plain text, arguments of calls as objects, one name for each role. */
#ifndef SERVER_CHAT_REQUEST_H
#define SERVER_CHAT_REQUEST_H

#include "bytes.h"
#include "tool_style.h"

enum { CHAT_MAX_MESSAGES = 65536, CHAT_MAX_TOOLS = 256 };

typedef enum tool_choice {
    TOOLS_NONE,     /* no tools, or the model must not use them */
    TOOLS_AUTO,     /* the model decides */
    TOOLS_REQUIRED, /* the model must make at least one call */
    TOOLS_NAMED     /* the model must call chat_tools.name */
} tool_choice;

typedef struct chat_tools {
    tool_choice choice;
    const json_node *list;    /* a checked array; NULL: none */
    const char *name;         /* for TOOLS_NAMED; points into the body */
    const json_node *allowed; /* names of the tools that may be called; NULL: all */
    bool parallel;            /* one answer may have several calls */
} chat_tools;

/* Whether the tool choice allows a call of list[i]. */
bool chat_tool_allowed(const chat_tools *tools, size_t i);
/* PI_ERR_ARG: an error in tools, tool_choice or parallel_tool_calls. */
pi_status chat_read_tools(const json_node *body, chat_tools *out, pi_error *err);

/* Whether the answer continues the last message, which must be the assistant's. */
bool chat_continues(const json_node *body);
/* Appends the request for the template. tag: text appended to the last message, which then ends the
 * prompt; NULL: the answer is a new message. defaults: variables of the template that the request
 * may override; NULL: none. PI_ERR_ARG: an error in the messages; PI_ERR_UNSUPPORTED: a content
 * that is not text. */
pi_status chat_write_request(const json_node *body, const chat_tools *tools,
                             const tool_style *style, const json_node *defaults, const char *tag,
                             bytes *out, pi_error *err);
/* Called after the template has refused the request: adds to the error which call's arguments are
 * not an object. */
void chat_explain(const json_node *body, pi_error *err);

#endif
