/* route_adapters.c: scales of LoRA adapters, in the form of llama.cpp's server. Adapters are merged
 * into the weights, so that new scales mean that the model is opened again: after the running
 * answers, and before those of later requests. */
#include <math.h>

#include "dialects.h"
#include "http.h"
#include "mem.h"

enum { MAX_SCALE = 1000000 };

enum MHD_Result route_adapters(exchange *x) {
    const server_model *m = registry_model(x->server->registry, x->model);
    const size_t n = (size_t)m->n_adapters;
    bytes body = {0};
    bytes_json j;
    float *scales = mem_calloc(n + 1, sizeof *scales);
    if (!scales || !bytes_json_begin(&j, &body)) {
        mem_free(scales);
        return http_reply_error(x, 500, "out of memory");
    }
    if (n > 0) registry_get_scales(x->server->registry, x->model, scales);
    json_put_array(&j.writer, NULL);
    for (size_t i = 0; i < n; i++) {
        json_put_object(&j.writer, NULL);
        json_put_int(&j.writer, "id", (int64_t)i);
        json_put_text(&j.writer, "path", m->adapters[i].path);
        json_put_float(&j.writer, "scale", scales[i]);
        json_end_object(&j.writer);
    }
    json_end_array(&j.writer);
    mem_free(scales);
    return http_reply_json(x, &j, &body);
}

/* Reads [{"id", "scale"}, ...]; adapters that are not listed get 0. scales: [n] zeroed. */
static pi_status read_scales(const json_node *list, const char *name, size_t n, float *scales,
                             pi_error *err) {
    if (json_kind_of(list) != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG, "%s: must be an array of {\"id\", \"scale\"}", name);
    for (size_t i = 0; i < json_count(list); i++) {
        int64_t id = -1;
        double scale = NAN;
        if (!json_as_int(json_get(json_at(list, i), "id"), &id) || id < 0 || id >= (int64_t)n)
            return error_set(err, PI_ERR_ARG,
                             "%s[%zu].id: must be the number of an adapter, of %zu", name, i, n);
        if (!json_as_double(json_get(json_at(list, i), "scale"), &scale) ||
            !(fabs(scale) <= MAX_SCALE))
            return error_set(err, PI_ERR_ARG, "%s[%zu].scale: must be a number from -%d to %d",
                             name, i, (int)MAX_SCALE, (int)MAX_SCALE);
        scales[id] = (float)scale;
    }
    return PI_OK;
}

pi_status adapters_check(exchange *x, const json_node *body, pi_error *err) {
    const size_t n = (size_t)registry_model(x->server->registry, x->model)->n_adapters;
    const json_node *list = json_get(body, "lora");
    if (json_kind_of(list) == JSON_NULL) return PI_OK;
    float *scales = mem_calloc(n + 1, sizeof *scales);
    if (!scales) return error_nomem(err, n * sizeof *scales, "lora");
    pi_status status = read_scales(list, "lora", n, scales, err);
    if (status == PI_OK && !registry_has_scales(x->server->registry, x->model, scales))
        status = error_set(err, PI_ERR_UNSUPPORTED,
                           "lora: other scales than the server's are not supported: adapters are "
                           "merged into the weights; change the scales of all requests with POST "
                           "/lora-adapters");
    mem_free(scales);
    return status;
}

enum MHD_Result route_adapters_change(exchange *x) {
    const size_t n = (size_t)registry_model(x->server->registry, x->model)->n_adapters;
    pi_error err = {.status = PI_OK};
    enum MHD_Result result = MHD_NO;
    bytes body = {0};
    bytes_json j;
    float *scales = mem_calloc(n + 1, sizeof *scales);
    if (!scales) return http_reply_error(x, 500, "out of memory");
    pi_status status = json_parse(x->body.data ? x->body.data : "", x->body.used, "request",
                                  &x->doc, &err);
    if (status == PI_OK) status = read_scales(json_root(x->doc), "request", n, scales, &err);
    http_release_model(x); /* the model must be free to leave */
    const bool again = status == PI_OK && n > 0 &&
                       registry_set_scales(x->server->registry, x->model, scales);
    mem_free(scales);
    if (status != PI_OK) return http_reply_failed(x, &err);
    if (again && !http_acquire_model(x, &result)) return result;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_bool(&j.writer, "success", true);
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}
