/* route_ollama.c: routes of Ollama's API that describe the server and its model. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "clock.h"
#include "dialects.h"
#include "mem.h"
#include "powerinfer_metadata.h"
#include "sha256.h"

/* Ollama's version with this API; clients check it before they use newer fields. */
static const char api_version[] = "0.12.0";

void ollama_put_time(json_writer *w, const char *key, int64_t unix_seconds) {
    const int64_t second = 1000000000; /* ns */
    const int64_t now = unix_seconds ? unix_seconds * second : clock_unix_ns();
    struct tm utc = {.tm_mday = 1};
    char text[64], whole[96];
    clock_utc_time((time_t)(now / second), &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(whole, sizeof whole, "%s.%06dZ", text, (int)(now % second / 1000));
    json_put_text(w, key, whole);
}

static bool begin(exchange *x, bytes_json *j, bytes *body, enum MHD_Result *result) {
    if (bytes_json_begin(j, body)) {
        json_put_object(&j->writer, NULL);
        return true;
    }
    *result = http_reply_error(x, 500, "out of memory");
    return false;
}

static enum MHD_Result end(exchange *x, bytes_json *j, bytes *body) {
    json_end_object(&j->writer);
    return http_reply_json(x, j, body);
}

/* Writes a number of parameters as Ollama shows it: "7.2B", "268.10M". */
static void put_size(json_writer *w, uint64_t n) {
    char text[32];
    if (n >= 1000000000)
        snprintf(text, sizeof text, "%.1fB", (double)n / 1e9);
    else if (n >= 1000000)
        snprintf(text, sizeof text, "%.2fM", (double)n / 1e6);
    else
        snprintf(text, sizeof text, "%.2fK", (double)n / 1e3);
    json_put_text(w, "parameter_size", text);
}

static void put_details(json_writer *w, const pi_model_info *info) {
    char type[32];
    snprintf(type, sizeof type, "%s", info->type);
    for (char *c = type; *c; c++) *c = (char)toupper((unsigned char)*c);
    json_put_object(w, "details");
    json_put_text(w, "parent_model", "");
    json_put_text(w, "format", "gguf");
    json_put_text(w, "family", info->architecture);
    json_put_array(w, "families");
    json_put_text(w, NULL, info->architecture);
    json_end_array(w);
    put_size(w, info->n_params);
    json_put_text(w, "quantization_level", type);
    json_end_object(w);
}

/* Writes what /api/tags and /api/ps have in common. The digest identifies name, shape and type; the
 * file is not hashed. */
static void put_model(json_writer *w, const served_model *s) {
    const pi_model_info *info = &s->info;
    char identity[512], digest[SHA256_HEX + 1];
    snprintf(identity, sizeof identity, "%s %s %s %llu %llu", s->options.model_name,
             info->architecture, info->type, (unsigned long long)info->n_params,
             (unsigned long long)info->weight_bytes);
    sha256_hex(identity, strlen(identity), digest);
    json_put_text(w, "name", s->options.model_name);
    json_put_text(w, "model", s->options.model_name);
    json_put_int(w, "size", (int64_t)info->weight_bytes);
    json_put_text(w, "digest", digest);
    put_details(w, info);
}

/* Writes a model that is not loaded: its shape is not known. */
static void put_unloaded(json_writer *w, const server_model *source) {
    char identity[512], digest[SHA256_HEX + 1];
    const pi_model_info unknown = {.architecture = "", .type = ""};
    snprintf(identity, sizeof identity, "%s %llu", source->name, (unsigned long long)source->bytes);
    sha256_hex(identity, strlen(identity), digest);
    json_put_text(w, "name", source->name);
    json_put_text(w, "model", source->name);
    json_put_int(w, "size", (int64_t)source->bytes);
    json_put_text(w, "digest", digest);
    put_details(w, &unknown);
}

enum MHD_Result route_ollama_tags(exchange *x) {
    registry *r = x->server->registry;
    bytes body = {0};
    bytes_json j;
    enum MHD_Result result;
    if (!begin(x, &j, &body, &result)) return result;
    json_put_array(&j.writer, "models");
    for (int i = 0; i < registry_count(r); i++) {
        served_model *m = registry_peek(r, i);
        json_put_object(&j.writer, NULL);
        if (m)
            put_model(&j.writer, m);
        else
            put_unloaded(&j.writer, registry_model(r, i));
        ollama_put_time(&j.writer, "modified_at", x->server->created);
        json_end_object(&j.writer);
        registry_release(r, m);
    }
    json_end_array(&j.writer);
    return end(x, &j, &body);
}

enum MHD_Result route_ollama_ps(exchange *x) {
    registry *r = x->server->registry;
    bytes body = {0};
    bytes_json j;
    enum MHD_Result result;
    if (!begin(x, &j, &body, &result)) return result;
    json_put_array(&j.writer, "models");
    for (int i = 0; i < registry_count(r); i++) {
        pi_placement placement;
        model_view view;
        served_model *m = registry_peek(r, i);
        if (!m) continue;
        pi_context_get_placement(scheduler_context(m->scheduler), &placement);
        registry_view(r, i, &view);
        json_put_object(&j.writer, NULL);
        put_model(&j.writer, m);
        json_put_int(&j.writer, "size_vram", (int64_t)placement.gpu_weights);
        json_put_int(&j.writer, "context_length", m->options.n_ctx);
        if (view.idle_left < 0)
            json_put_text(&j.writer, "expires_at", "9999-12-31T23:59:59Z");
        else
            ollama_put_time(&j.writer, "expires_at",
                            (int64_t)time(NULL) + (int64_t)ceil(view.idle_left));
        json_end_object(&j.writer);
        registry_release(r, m);
    }
    json_end_array(&j.writer);
    return end(x, &j, &body);
}

enum MHD_Result route_ollama_version(exchange *x) {
    bytes body = {0};
    bytes_json j;
    enum MHD_Result result;
    if (!begin(x, &j, &body, &result)) return result;
    json_put_text(&j.writer, "version", api_version);
    return end(x, &j, &body);
}

/* Writes the keys of the file. Their values are known as texts only: what reads as a number or a
 * truth value becomes one. Arrays, such as the vocabulary, and long texts are null, as arrays are
 * in Ollama without `verbose`. */
static void put_metadata(json_writer *w, const pi_model *model) {
    char key[256], text[1024];
    size_t n = 0;
    json_put_object(w, "model_info");
    for (size_t i = 0; i < pi_model_n_metadata(model); i++) {
        if (pi_model_metadata_key(model, i, key, sizeof key - 1, &n, NULL) != PI_OK) continue;
        key[n] = 0;
        pi_status status = pi_model_metadata(model, key, text, sizeof text - 1, &n, NULL);
        text[status == PI_OK ? n : 0] = 0;
        if (status == PI_ERR_LIMIT || text[0] == '[') {
            json_put_text(w, key, NULL);
            continue;
        }
        if (status != PI_OK) continue;
        json_doc *doc = NULL;
        char list[1100]; /* the parser takes documents; a single value is not one */
        snprintf(list, sizeof list, "[%s]", text);
        json_parse(list, strlen(list), key, &doc, NULL);
        const json_node *value = json_at(json_root(doc), 0);
        const json_kind kind = json_count(json_root(doc)) == 1 ? json_kind_of(value) : JSON_NULL;
        if (kind == JSON_BOOL || kind == JSON_INT || kind == JSON_REAL)
            bytes_json_put(w, key, value);
        else
            json_put_string(w, key, text, n);
        json_free(doc);
    }
    json_end_object(w);
}

static void put_capabilities(json_writer *w, const served_model *s) {
    const char *source = s->prompts.is_fallback ? NULL
                                                : pi_chat_template_source(s->prompts.chat, false);
    json_put_array(w, "capabilities");
    json_put_text(w, NULL, "completion");
    json_put_text(w, NULL, "tools");
    if (pi_model_token(s->options.model, PI_TOKEN_FIM_MID) >= 0) json_put_text(w, NULL, "insert");
    if (source && (strstr(source, "enable_thinking") || strstr(source, "reasoning_content")))
        json_put_text(w, NULL, "thinking");
    json_end_array(w);
}

enum MHD_Result route_ollama_show(exchange *x) {
    const served_model *s = x->served;
    const json_node *request = NULL;
    bytes body = {0};
    bytes_json j;
    enum MHD_Result result;
    const pi_model_info unknown = {.architecture = "", .type = ""};
    char license[4096] = "", parameters[128];
    size_t n = 0;
    if (!http_parse_body(x, &request, &result) || !begin(x, &j, &body, &result)) return result;
    if (!s) { /* describing a model does not load it */
        ollama_put_time(&j.writer, "modified_at", x->server->created);
        put_details(&j.writer, &unknown);
        json_put_object(&j.writer, "model_info");
        json_end_object(&j.writer);
        json_put_array(&j.writer, "capabilities");
        json_end_array(&j.writer);
        return end(x, &j, &body);
    }
    if (pi_model_metadata(s->options.model, "general.license", license, sizeof license - 1, &n,
                          NULL) != PI_OK)
        n = 0;
    license[n] = 0;
    snprintf(parameters, sizeof parameters, "num_ctx %d\ntemperature %g\ntop_k %d\ntop_p %g\n",
             s->options.n_ctx, (double)s->options.sampling.temp, s->options.sampling.top_k,
             (double)s->options.sampling.top_p);
    json_put_text(&j.writer, "license", license);
    json_put_text(&j.writer, "modelfile", "");
    json_put_text(&j.writer, "parameters", parameters);
    json_put_text(&j.writer, "template",
                  s->prompts.is_fallback ? "" : pi_chat_template_source(s->prompts.chat, false));
    ollama_put_time(&j.writer, "modified_at", x->server->created);
    put_details(&j.writer, &s->info);
    put_metadata(&j.writer, s->options.model);
    put_capabilities(&j.writer, s);
    return end(x, &j, &body);
}
