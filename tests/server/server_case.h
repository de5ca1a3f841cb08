/* server_case.h: a server with the bundled model in this process, and a client that sends HTTP over
 * a socket. */
#ifndef TEST_SERVER_CASE_H
#define TEST_SERVER_CASE_H

#include "json.h"
#include "server.h"

#define CASE_MODEL TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

/* The model of a group of tests. */
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
/* Checks that a tool's arguments are a JSON text that its schema allows. */
void case_check_weather(const char *arguments);

/* Tokens of the bundled model that case_open_fim makes its FIM tokens. */
enum { CASE_FIM_PRE = 300, CASE_FIM_SUF = 301, CASE_FIM_MID = 302 };

/* Opens the model. Options: chatml, 4 slots of 256 tokens, F32 KV cache, greedy sampling. */
void case_open(server_case *c);
void case_open_fim(server_case *c); /* case_open with FIM tokens */
void case_start(server_case *c);
void case_stop(server_case *c); /* stops the server */
void case_close(server_case *c);

typedef struct http_reply {
    int status;    /* 0: the connection ended without an answer */
    char *headers; /* NUL-terminated */
    char *body;    /* [n_body] and a NUL, chunks joined */
    size_t n_body;
    json_doc *doc; /* parsed body, after the first http_json */
} http_reply;

/* headers: lines with \r\n, or NULL; body NULL: none (GET). */
http_reply http_ask(const server_case *c, const char *method, const char *path, const char *headers,
                    const char *body);
http_reply http_post(const server_case *c, const char *path, const char *body);
void http_free(http_reply *r);

/* Returns the value at a path such as "choices.0.message.content"; NULL: none. */
const json_node *http_json(http_reply *r, const char *path);
/* Return the text or number at a path; the test fails if there is none. */
const char *http_text(http_reply *r, const char *path);
int64_t http_int(http_reply *r, const char *path);
/* Posts, and checks the status and the error object. */
void http_refused(const server_case *c, const char *path, const char *body, int status);

/* Returns the value of powerinfer_NAME in /metrics; the test fails if there is none. */
double case_metric(const server_case *c, const char *name);

/* Returns the data of event number `i` of a stream, valid until the thread's next call; NULL: no
 * such event. */
const char *http_event(http_reply *r, size_t i);
/* Returns the value at a path within the JSON of event `i`; the caller frees *doc. */
const json_node *event_json(http_reply *r, size_t i, const char *path, json_doc **doc);
/* Joins the texts at a path of all events of the choice with this index; free the result with
 * free(). */
char *http_joined(http_reply *r, const char *path, int index);

/* Calls `act` with the path of each file of a prompt store in `folder`; returns their number. */
int store_each_file(const char *folder, void (*act)(const char *path));
/* Creates the folder of a prompt store, or removes its files. */
void store_empty_folder(const char *folder);

/* Raw sockets. */
int socket_open(const server_case *c);
void socket_send(int fd, const char *text);
/* Reads everything up to the end of the connection; free the result with free(). */
char *socket_read_all(int fd, size_t *n);

#endif
