/* route_info.c: the page, and routes that describe the server: health, models, properties. */
#include <string.h>

#include "dialects.h"
#include "fields.h"

enum MHD_Result route_page(exchange *x) {
    const page *p = &x->server->page;
    if (!x->server->options.has_page)
        return http_reply_error(x, 404, "this server was started without its page");
    struct MHD_Response *response = MHD_create_response_from_buffer(
        p->document.used, p->document.data, MHD_RESPMEM_PERSISTENT);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "Content-Security-Policy", p->policy);
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    return http_send(x, 200, response);
}

enum MHD_Result route_health(exchange *x) {
    const registry *r = x->server->registry;
    const bool draining = atomic_load(&x->server->draining);
    const int starting = draining ? -1 : registry_starting(x->server->registry);
    const bool ready = !draining && starting < 0;
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_text(&j.writer, "status", ready ? "ok" : draining ? "draining" : "loading model");
    if (starting >= 0) json_put_text(&j.writer, "model", registry_model(r, starting)->name);
    if (!ready)
        http_put_error(&j.writer, "error", 503,
                       draining ? "the server is shutting down" : "Loading model");
    json_end_object(&j.writer);
    if (bytes_json_end(&j))
        return http_reply_text(x, ready ? 200 : 503, "application/json; charset=utf-8", &body);
    bytes_free(&body);
    return http_reply_error(x, 500, "out of memory");
}

/* ---- models ---------------------------------------------------------------------------------- */

/* The states have the names that llama.cpp's router gives them. */
static void put_status(json_writer *w, const model_view *v) {
    static const char *const names[] = {[MODEL_UNLOADED] = "unloaded",
                                        [MODEL_SLEEPING] = "sleeping",
                                        [MODEL_LOADING] = "loading",
                                        [MODEL_LOADED] = "loaded"};
    json_put_object(w, "status");
    json_put_text(w, "value", names[v->state]);
    if (v->leaves) json_put_bool(w, "unloading", true);
    if (v->error.status != PI_OK) {
        json_put_bool(w, "failed", true);
        json_put_text(w, "error", v->error.message);
    }
    if (v->n_waiting > 0) json_put_int(w, "waiting", v->n_waiting);
    json_end_object(w);
}

static void put_model(json_writer *w, const server *s, int index) {
    const server_model *source = registry_model(s->registry, index);
    model_view view;
    registry_view(s->registry, index, &view);
    served_model *m = registry_peek(s->registry, index);
    json_put_object(w, NULL);
    json_put_text(w, "id", source->name);
    if (source->n_aliases > 0) {
        json_put_array(w, "aliases");
        for (int i = 0; i < source->n_aliases; i++) json_put_text(w, NULL, source->aliases[i]);
        json_end_array(w);
    }
    json_put_text(w, "object", "model");
    json_put_int(w, "created", s->created);
    json_put_text(w, "owned_by", "powerinfer");
    if (s->options.routes) json_put_text(w, "path", source->path);
    put_status(w, &view);
    if (m) {
        json_put_object(w, "meta");
        json_put_int(w, "n_vocab", m->info.n_vocab);
        json_put_int(w, "n_ctx_train", m->info.n_ctx_train);
        json_put_int(w, "n_embd", m->info.n_embd);
        json_put_int(w, "n_layer", m->info.n_layer);
        json_put_int(w, "n_params", (int64_t)m->info.n_params);
        json_put_int(w, "size", (int64_t)m->info.weight_bytes);
        pi_placement placement;
        pi_context_get_placement(scheduler_context(m->scheduler), &placement);
        json_put_text(w, "device", placement.device);
        json_put_int(w, "memory", (int64_t)view.bytes);
        json_end_object(w);
    }
    json_end_object(w);
    registry_release(s->registry, m);
}

enum MHD_Result route_models(exchange *x) {
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_text(&j.writer, "object", "list");
    json_put_array(&j.writer, "data");
    for (int i = 0; i < registry_count(x->server->registry); i++)
        put_model(&j.writer, x->server, i);
    json_end_array(&j.writer);
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}

enum MHD_Result route_model(exchange *x) {
    const char *name = x->path + strlen("/v1/models/");
    const int index = registry_find(x->server->registry, name);
    bytes body = {0};
    bytes_json j;
    x->error_code = "model_not_found";
    if (index < 0) return http_reply_error(x, 404, "there is no model %s", name);
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    put_model(&j.writer, x->server, index);
    return http_reply_json(x, &j, &body);
}

static enum MHD_Result change_model(exchange *x, bool (*change)(registry *r, int index),
                                    const char *unchanged) {
    const json_node *request = NULL;
    const char *name = NULL;
    enum MHD_Result result;
    bytes body = {0};
    bytes_json j;
    pi_error err = {.status = PI_OK};
    if (!x->server->options.routes)
        return http_reply_error(x, 501, "the server has one model, which stays loaded");
    if (!http_parse_body(x, &request, &result)) return result;
    if (field_text(request, "model", &name, &err) != PI_OK) return http_reply_failed(x, &err);
    if (!name) return http_reply_error(x, 400, "model: must be the name of a model");
    x->model = registry_find(x->server->registry, name);
    if (x->model < 0) return http_reply_error(x, 404, "there is no model %s", name);
    if (!change(x->server->registry, x->model))
        return http_reply_error(x, 400, "the model %s %s", name, unchanged);
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_bool(&j.writer, "success", true);
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}

enum MHD_Result route_model_load(exchange *x) {
    return change_model(x, registry_load, "is loaded already, or being loaded");
}

enum MHD_Result route_model_unload(exchange *x) {
    return change_model(x, registry_unload, "is not loaded");
}

/* ---- properties ------------------------------------------------------------------------------ */

void info_put_sampling(json_writer *w, const char *key, const pi_sampler_options *o) {
    json_put_object(w, key);
    json_put_float(w, "temperature", o->temp);
    json_put_int(w, "top_k", o->top_k);
    json_put_float(w, "top_p", o->top_p);
    json_put_float(w, "min_p", o->min_p);
    json_put_float(w, "typical_p", o->typical_p);
    json_put_float(w, "repeat_penalty", o->repeat_penalty);
    json_put_int(w, "repeat_last_n", o->repeat_last_n);
    json_put_float(w, "presence_penalty", o->presence_penalty);
    json_put_float(w, "frequency_penalty", o->frequency_penalty);
    json_end_object(w);
}

/* The server's properties in the form of llama.cpp's router. */
static enum MHD_Result reply_router(exchange *x) {
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_writer *w = &j.writer;
    json_put_object(w, NULL);
    json_put_text(w, "role", "router");
    json_put_int(w, "max_instances", x->server->options.max_models);
    json_put_int(w, "n_models", registry_count(x->server->registry));
    json_put_bool(w, "models_autoload", true);
    json_put_text(w, "model_alias", "powerinfer");
    json_put_text(w, "model_path", "none");
    json_put_object(w, "default_generation_settings");
    json_put_object(w, "params");
    json_end_object(w);
    json_put_int(w, "n_ctx", 0);
    json_end_object(w);
    json_put_text(w, "build_info", pi_version());
    json_end_object(w);
    return http_reply_json(x, &j, &body);
}

enum MHD_Result route_props(exchange *x) {
    served_model *s = x->served;
    if (!s) return reply_router(x);
    const pi_sampler_options sampling = served_sampling(s);
    const pi_context *context = scheduler_context(s->scheduler);
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_writer *w = &j.writer;
    json_put_object(w, NULL);
    json_put_object(w, "default_generation_settings");
    json_put_int(w, "n_ctx", s->options.n_ctx);
    info_put_sampling(w, "params", &sampling);
    json_end_object(w);
    json_put_int(w, "total_slots", s->options.n_slots);
    json_put_text(w, "model", s->options.model_name);
    json_put_text(w, "model_alias", s->options.model_name);
    json_put_text(w, "model_path", s->options.model_path);
    json_put_object(w, "modalities");
    json_put_bool(w, "vision", false);
    json_put_bool(w, "audio", false);
    json_end_object(w);
    json_put_text(w, "architecture", s->info.architecture);
    json_put_text(w, "mode", pi_context_mode(context));
    json_put_text(w, "kernels", pi_context_kernels(context));
    json_put_text(w, "chat_template",
                  s->prompts.is_fallback ? "" : pi_chat_template_source(s->prompts.chat, false));
    json_put_object(w, "chat_template_caps");
    json_put_bool(w, "supports_tools", !s->tools.described);
    json_put_bool(w, "supports_tool_calls", !s->tools.described && !s->tools.written);
    json_put_bool(w, "supports_parallel_tool_calls", !s->tools.format.single);
    json_end_object(w);
    json_put_text(w, "bos_token", s->prompts.bos);
    json_put_text(w, "eos_token", s->prompts.eos);
    json_put_text(w, "build_info", pi_version());
    json_end_object(w);
    return http_reply_json(x, &j, &body);
}

/* Changes the defaults of requests: {"default_generation_settings": {"params": {...}}} with the
 * fields of GET. */
enum MHD_Result route_props_change(exchange *x) {
    const json_node *request = NULL, *value = NULL;
    const char *key = NULL;
    void *member = NULL;
    enum MHD_Result result;
    pi_error err = {.status = PI_OK};
    bytes body = {0};
    bytes_json j;
    if (!x->server->options.changes_props)
        return http_reply_error(
            x, 501,
            "the server was started without the option that lets clients change properties");
    if (!http_parse_body(x, &request, &result)) return result;
    const json_node *settings = json_get(request, "default_generation_settings");
    const json_node *changed = json_get(settings, "params");
    while (json_next(request, &member, &key, &value))
        if (strcmp(key, "default_generation_settings") != 0 && strcmp(key, "model") != 0)
            return http_reply_error(x, 400, "%s: cannot be changed", key);
    for (member = NULL; json_next(settings, &member, &key, &value);)
        if (strcmp(key, "params") != 0)
            return http_reply_error(x, 400, "default_generation_settings.%s: cannot be changed",
                                    key);
    if (!x->served) return http_reply_error(x, 400, "model: name one of GET /v1/models");
    pi_sampler_options sampling = served_sampling(x->served);
    const pi_status status = params_read_sampling(changed, &sampling, &err);
    if (status != PI_OK) return http_reply_failed(x, &err);
    served_set_sampling(x->served, &sampling);
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_bool(&j.writer, "success", true);
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}
