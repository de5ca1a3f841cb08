/* registry.h: the models of a server: loads them when requests need them, counts who uses them, and
 * unloads them.
 *
 * One thread of the registry opens and closes models, one at a time and without the lock, so that
 * loading never delays the answers of loaded models. A request holds a reference to its model; a
 * model is unloaded only when nobody holds a reference. When a model has to leave for another one,
 * requests for it wait like those for a model that is not loaded, so that running answers end and
 * no model is held forever. All functions may be called by any thread. */
#ifndef SERVER_REGISTRY_H
#define SERVER_REGISTRY_H

#include "os_socket.h"
#include "served.h"

typedef struct registry registry;

/* The options outlive the registry. */
pi_status registry_create(const server_options *options, registry **out, pi_error *err);
/* Starts the thread, which loads the models of at_start. Without options.routes, waits for the only
 * model and returns the errors of loading it. */
pi_status registry_start(registry *r, pi_error *err);
/* Refuses all waiting requests, ends all sequences, and cancels a model that is being opened. */
void registry_stop(registry *r);
void registry_destroy(registry *r); /* after registry_stop, without references; accepts NULL */

int registry_count(const registry *r);
const server_model *registry_model(const registry *r, int index);
/* Returns the number of the model with this name or alias, also with ".gguf" or, as Ollama's
 * clients write it, ":latest" at its end; -1: none. */
int registry_find(const registry *r, const char *name);
/* The model for requests that name none: the one with is_default, else the only one; -1: none. */
int registry_default(const registry *r);

typedef enum acquire_result {
    ACQUIRE_OK,
    ACQUIRE_FAILED,  /* the model cannot be loaded: *err */
    ACQUIRE_GONE,    /* the client has left */
    ACQUIRE_TIMEOUT, /* the deadline has passed */
    ACQUIRE_FULL,    /* too many requests wait for the model */
    ACQUIRE_STOPPED  /* the server stops */
} acquire_result;

/* Returns a reference to a model, which is loaded first if necessary. fd: the client's socket,
 * which is watched for a disconnect; OS_SOCKET_NONE: none. deadline: clock_seconds. */
acquire_result registry_acquire(registry *r, int index, os_socket fd, double deadline,
                                served_model **out, pi_error *err);
/* Returns a reference to a loaded model, without counting as a use of it; NULL: not loaded. */
served_model *registry_peek(registry *r, int index);
void registry_retain(registry *r, served_model *m); /* the caller holds a reference already */
void registry_release(registry *r, served_model *m);
/* Notes that a request for the model has just ended. */
void registry_touch(registry *r, int index);

/* Sets how long model `index` stays loaded after its last request; the time counts until it is
 * unloaded. -1: always; 0: until the running answers end. */
void registry_keep(registry *r, int index, double seconds);
/* Asks for a model to be loaded or unloaded, and returns at once. False: it already is. */
bool registry_load(registry *r, int index);
bool registry_unload(registry *r, int index);

/* Scales of the adapters of model `index`: [n_adapters]. A loaded model is loaded again with the
 * new scales once its running answers have ended; requests that come later wait for it. Returns
 * whether the model has to be loaded again. */
void registry_get_scales(registry *r, int index, float *scales);
bool registry_set_scales(registry *r, int index, const float *scales);
/* Whether the loaded model, to which the caller holds a reference, has these scales. */
bool registry_has_scales(registry *r, int index, const float *scales);

typedef enum model_state {
    MODEL_UNLOADED,
    MODEL_SLEEPING, /* unloaded because no request came; as MODEL_UNLOADED otherwise */
    MODEL_LOADING,
    MODEL_LOADED
} model_state;

typedef struct model_view {
    model_state state;
    bool leaves;            /* loaded, but unloaded as soon as the running answers end */
    pi_error error;         /* of the last attempt to load it; status PI_OK: none failed */
    double load_seconds;    /* of the last successful attempt; 0: none */
    double idle_left;       /* seconds until it is unloaded if no request comes; -1: it stays */
    uint64_t bytes;         /* what it counts for max_model_bytes */
    int n_users, n_waiting; /* references and requests that wait for it */
} model_view;

void registry_view(registry *r, int index, model_view *out);
/* Returns the number of a model that the server needs and that is not loaded yet: the only model,
 * or one of at_start; -1: none, the server is ready. */
int registry_starting(registry *r);

#endif
