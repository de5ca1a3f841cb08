/* http_model.c: finds the model that a request uses, waits until it is loaded, and applies the
 * limits of the request's key. */
#include <math.h>
#include <string.h>

#include "clock.h"
#include "duration.h"
#include "fields.h"
#include "http.h"
#include "powerinfer_embed.h"

enum {
    LOAD_SECONDS = 600,    /* for a model to be loaded, after which its requests are refused */
    MAX_TIMEOUT = 1 << 20, /* seconds */
    MAX_RETRY = 86400,     /* seconds in Retry-After */
    MAX_KEEP = 1 << 30     /* seconds; longer times are as good as always */
};

static const char *const refusals[] = {[LIMIT_NONE] = "",
                                       [LIMIT_REQUESTS] = "requests per minute",
                                       [LIMIT_TOKENS] = "tokens per minute",
                                       [LIMIT_CONCURRENT] = "requests at a time"};

/* Answers 429 when the key has reached a limit. */
static bool begin_key(exchange *x, enum MHD_Result *result) {
    double retry = 0;
    const limit_refusal refusal = limiter_begin(x->server->limiter, x->key, &x->levels, &retry);
    if (refusal == LIMIT_NONE) {
        x->counted = true;
        return true;
    }
    x->retry_seconds = (int32_t)ceil(fmin(retry, MAX_RETRY));
    x->error_code = "rate_limit_exceeded";
    *result = http_reply_error(x, 429, "the limit of this key is reached: %s: try again in %d s",
                               refusals[refusal], (int)x->retry_seconds);
    return false;
}

/* Reads timeout and priority. */
static pi_status read_order(exchange *x, const json_node *body, pi_error *err) {
    const server_options *o = &x->server->options;
    const key_limits *limits = o->limits && x->key >= 0 ? &o->limits[x->key] : NULL;
    double seconds = 0;
    pi_status status = field_number(body, "timeout", 0, MAX_TIMEOUT, &seconds, err);
    if (status == PI_OK)
        status = field_int(body, "priority", INT32_MIN, INT32_MAX, &x->priority, err);
    if (seconds > 0) x->deadline = x->started + seconds;
    const bool given = json_kind_of(json_get(body, "priority")) != JSON_NULL;
    if (limits && limits->has_priority && (!given || x->priority < limits->priority))
        x->priority = limits->priority;
    return status;
}

static bool names_model(const exchange *x, const json_node *body) {
    const char *name = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "model");
    return (name && *name) || json_kind_of(json_get(body, "model")) != JSON_NULL;
}

/* Finds the model that the query or the body names. body NULL: none. */
static bool find_model(exchange *x, const json_node *body, enum MHD_Result *result) {
    registry *r = x->server->registry;
    pi_error err = {.status = PI_OK};
    const char *name = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "model");
    if (!x->server->options.routes) {
        x->model = 0;
        return true;
    }
    if (field_text(body, "model", &name, &err) != PI_OK) {
        *result = http_reply_failed(x, &err);
        return false;
    }
    x->model = name && *name ? registry_find(r, name) : registry_default(r);
    if (x->model >= 0) return true;
    x->error_code = name && *name ? "model_not_found" : NULL;
    *result =
        name && *name
            ? http_reply_error(x, 404, "there is no model %s: GET /v1/models lists them", name)
            : http_reply_error(x, 400, "model: the server has several: name one of GET /v1/models");
    return false;
}

/* Reads keep_alive of Ollama's API: *keep in seconds, -1: always; unchanged if it is absent. *ends:
 * the request, which could generate, only unloads the model. */
static pi_status read_keep_alive(const json_node *body, bool generates, double *keep, bool *ends,
                                 pi_error *err) {
    const json_node *node = json_get(body, "keep_alive");
    const char *text = NULL;
    size_t n = 0;
    double seconds = 0;
    if (json_kind_of(node) == JSON_NULL) return PI_OK;
    const bool good = json_as_double(node, &seconds) ||
                      (json_as_string(node, &text, &n) && duration_parse(text, &seconds));
    if (!good)
        return error_set(err, PI_ERR_ARG, "keep_alive: must be seconds, or a text such as \"5m\"");
    *keep = seconds < 0 || seconds > MAX_KEEP ? -1 : seconds;
    *ends = generates && seconds == 0 && json_count(json_get(body, "messages")) == 0 &&
            json_kind_of(json_get(body, "prompt")) == JSON_NULL;
    return PI_OK;
}

bool http_acquire_model(exchange *x, enum MHD_Result *result) {
    registry *r = x->server->registry;
    const double latest = clock_seconds() + LOAD_SECONDS;
    pi_error err = {.status = PI_OK};
    MHD_set_connection_option(x->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    const acquire_result got = registry_acquire(r, x->model, http_socket(x->connection),
                                                x->deadline < latest ? x->deadline : latest,
                                                &x->served, &err);
    MHD_set_connection_option(x->connection, MHD_CONNECTION_OPTION_TIMEOUT,
                              (unsigned)x->server->options.read_seconds);
    const char *name = registry_model(r, x->model)->name;
    switch (got) {
    case ACQUIRE_OK:
        return true;
    case ACQUIRE_FAILED:
        *result = http_reply_error(x, 500, "the model %s cannot be loaded: %s", name, err.message);
        break;
    case ACQUIRE_GONE:
        *result = http_reply_error(x, 400, HTTP_GONE);
        break;
    case ACQUIRE_TIMEOUT:
        *result = http_reply_error(x, x->deadline < latest ? 504 : 503,
                                   "the model %s was not loaded in time", name);
        break;
    case ACQUIRE_FULL:
        *result = http_reply_error(x, 503, "too many requests wait for the model %s", name);
        break;
    case ACQUIRE_STOPPED:
        *result = http_reply_error(x, 503, "the server is shutting down");
        break;
    }
    return false;
}

bool http_begin_use(exchange *x, const http_route *route, enum MHD_Result *result) {
    const json_node *body = NULL;
    bool ends = false;
    double keep = NAN;
    pi_error err = {.status = PI_OK};
    if (route->use == USE_NONE) return true;
    const bool posts = strcmp(route->method, "POST") == 0;
    /* an action on a slot may have no body */
    const bool has_body = posts && route->use != USE_QUERY &&
                          (x->body.used || route->generates || route->use == USE_KNOWN);
    const bool counts = route->use == USE_MODEL || route->use == USE_CHANGE ||
                        (posts && (route->use == USE_QUERY || route->use == USE_PROPS));
    if (counts && atomic_load(&x->server->draining)) {
        *result = http_reply_error(x, 503, "the server is shutting down");
        return false;
    }
    if (counts && !begin_key(x, result)) return false;
    if (route->use == USE_CHANGE) return true;
    if (has_body && !http_parse_body(x, &body, result)) return false;
    if (route->use == USE_PROPS && !names_model(x, body) && x->server->options.routes &&
        registry_default(x->server->registry) < 0)
        return true;
    if (!find_model(x, body, result)) return false;
    pi_status status = read_order(x, body, &err);
    if (status == PI_OK && x->server->options.routes && strncmp(x->path, "/api/", 5) == 0)
        status = read_keep_alive(body, route->generates, &keep, &ends, &err);
    if (status != PI_OK) {
        *result = http_reply_failed(x, &err);
        return false;
    }
    if (ends) { /* the route answers without the model */
        registry_unload(x->server->registry, x->model);
        return true;
    }
    if (route->use != USE_MODEL) {
        x->served = registry_peek(x->server->registry, x->model);
        if (x->served || route->use == USE_KNOWN || route->use == USE_QUERY) return true;
        *result = http_reply_error(x, 503, "the model %s is not loaded: POST /models/load loads it",
                                   registry_model(x->server->registry, x->model)->name);
        return false;
    }
    if (!http_acquire_model(x, result)) return false;
    if (!isnan(keep)) registry_keep(x->server->registry, x->model, keep);
    if (!pi_model_is_encoder(x->served->options.model) || !route->generates) return true;
    *result = http_reply_error(x, 400,
                               "the model is an encoder (%s), which generates no text: use "
                               "/v1/embeddings or /v1/rerank",
                               x->served->info.architecture);
    return false;
}

void http_release_model(exchange *x) {
    if (x->served && x->counted) registry_touch(x->server->registry, x->model);
    registry_release(x->server->registry, x->served);
    x->served = NULL;
}

void http_end_use(exchange *x) {
    http_release_model(x);
    if (x->counted) limiter_end(x->server->limiter, x->key);
    x->counted = false;
}
