/* server_case.h: a server with the bundled model in this process, and a client that speaks HTTP
 * over a socket. */
#ifndef TEST_SERVER_CASE_H
#define TEST_SERVER_CASE_H

#include "json.h"
#include "server.h"

#define CASE_MODEL TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

/* The model alone, around a group of tests. */
extern pi_model *case_model;
int case_open_model(void **state);
int case_close_model(void **state);

typedef struct server_case {
    pi_model *model;
    server_options options;
    server *server;
    uint16_t port;
} server_case;

/* Members of requests. */
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hello there\"}]"
#define WEATHER                                                                                    \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{"        \
    "\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]},\"days\":{"       \
    "\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"city\",\"days\"]}}}]"
/* Arguments of the tool are a JSON text that its schema allows. */
void case_check_weather(const char *arguments);

/* Opens the model. Options: chatml, 4 slots of 256 tokens, a KV cache of float32, greedy sampling.
 */
void case_open(server_case *c);
void case_start(server_case *c);
void case_stop(server_case *c); /* the server */
void case_close(server_case *c);

typedef struct http_reply {
    int status;    /* 0: the connection ended without an answer */
    char *headers; /* NUL-terminated */
    char *body;    /* [n_body] and a NUL, chunks joined */
    size_t n_body;
    json_doc *doc; /* of the body, once http_json asked */
} http_reply;

/* headers: lines with \r\n, or NULL; body NULL: none (GET). */
http_reply http_ask(const server_case *c, const char *method, const char *path, const char *headers,
                    const char *body);
http_reply http_post(const server_case *c, const char *path, const char *body);
void http_free(http_reply *r);

/* The value at a path such as "choices.0.message.content"; NULL: there is none. */
const json_node *http_json(http_reply *r, const char *path);
/* Texts and numbers at a path; fail the test when there is none. */
const char *http_text(http_reply *r, const char *path);
int64_t http_int(http_reply *r, const char *path);
/* Posts, and checks status and error object. */
void http_refused(const server_case *c, const char *path, const char *body, int status);

/* Events of a stream: the data of number `i`, until the next call of the thread; NULL: no more. */
const char *http_event(http_reply *r, size_t i);
/* The path within the JSON of event `i`; *doc is freed by the caller. */
const json_node *event_json(http_reply *r, size_t i, const char *path, json_doc **doc);
/* The texts at a path of all events of the choice with this index, joined; freed by free(). */
char *http_joined(http_reply *r, const char *path, int index);

/* Raw sockets. */
int socket_open(const server_case *c);
void socket_send(int fd, const char *text);
/* Everything up to the end of the connection; freed by free(). */
char *socket_read_all(int fd, size_t *n);

#endif
