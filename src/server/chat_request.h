/* chat_request.h: the messages and tools of a chat as templates want them: contents as plain text,
 * arguments of calls as objects, one name for each role. */
#ifndef SERVER_CHAT_REQUEST_H
#define SERVER_CHAT_REQUEST_H

#include "bytes.h"
#include "tool_style.h"

enum { CHAT_MAX_MESSAGES = 65536, CHAT_MAX_TOOLS = 256 };

typedef enum tool_choice {
    TOOLS_NONE,     /* there are none, or they are not to be used */
    TOOLS_AUTO,     /* the model decides */
    TOOLS_REQUIRED, /* at least one call */
    TOOLS_NAMED     /* a call of chat_tools.name */
} tool_choice;

typedef struct chat_tools {
    tool_choice choice;
    const json_node *list;    /* an array, checked; NULL: none */
    const char *name;         /* of TOOLS_NAMED; belongs to the body */
    const json_node *allowed; /* tools that may be called, by name; NULL: all */
    bool parallel;            /* several calls in one answer */
} chat_tools;

/* Whether the choice allows a call of list[i]. */
bool chat_tool_allowed(const chat_tools *tools, size_t i);
/* PI_ERR_ARG: what is wrong with tools, tool_choice or parallel_tool_calls. */
pi_status chat_read_tools(const json_node *body, chat_tools *out, pi_error *err);

/* Whether the answer continues the last message, which is the assistant's. */
bool chat_continues(const json_node *body);
/* Appends the request for the template. tag: follows the content of the last message, which then is
 * the end of the prompt; NULL: there is a new one. defaults: variables of the template that the
 * request may change; NULL: none. PI_ERR_ARG: what is wrong with the messages;
 * PI_ERR_UNSUPPORTED: contents that are no text. */
pi_status chat_write_request(const json_node *body, const chat_tools *tools,
                             const tool_style *style, const json_node *defaults, const char *tag,
                             bytes *out, pi_error *err);
/* The template has refused the request: says so of calls whose arguments are no objects. */
void chat_explain(const json_node *body, pi_error *err);

#endif
