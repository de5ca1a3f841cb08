/* http_routes.c: the table of routes. */
#include <string.h>

#include "dialects.h"
#include "http.h"

static const http_route routes[] = {
    {"GET", "/", route_page, USE_NONE, true, false},
    {"GET", "/health", route_health, USE_NONE, true, false},
    {"GET", "/v1/health", route_health, USE_NONE, true, false},
    {"GET", "/v1/models", route_models, USE_NONE, false, false},
    {"GET", "/v1/models/", route_model, USE_NONE, false, false},
    {"POST", "/models/load", route_model_load, USE_CHANGE, false, false},
    {"POST", "/models/unload", route_model_unload, USE_CHANGE, false, false},
    {"GET", "/lora-adapters", route_adapters, USE_QUERY, false, false},
    {"POST", "/lora-adapters", route_adapters_change, USE_QUERY, false, false},
    {"GET", "/models", route_models, USE_NONE, false, false},
    {"GET", "/props", route_props, USE_PROPS, false, false},
    {"POST", "/props", route_props_change, USE_PROPS, false, false},
    {"GET", "/slots", route_slots, USE_LOADED, false, false},
    {"POST", "/slots/", route_slot_action, USE_MODEL, false, false},
    {"GET", "/metrics", route_metrics, USE_NONE, false, false},
    {"POST", "/v1/chat/completions", route_chat, USE_MODEL, false, true},
    {"POST", "/chat/completions", route_chat, USE_MODEL, false, true},
    {"POST", "/v1/completions", route_completions, USE_MODEL, false, true},
    {"POST", "/completions", route_completions, USE_MODEL, false, true},
    {"POST", "/completion", route_native, USE_MODEL, false, true},
    {"POST", "/v1/embeddings", route_embeddings, USE_MODEL, false, false},
    {"POST", "/embeddings", route_embeddings, USE_MODEL, false, false},
    {"POST", "/embedding", route_embedding, USE_MODEL, false, false},
    {"POST", "/v1/rerank", route_rerank, USE_MODEL, false, false},
    {"POST", "/rerank", route_rerank, USE_MODEL, false, false},
    {"POST", "/v1/reranking", route_rerank, USE_MODEL, false, false},
    {"POST", "/reranking", route_rerank, USE_MODEL, false, false},
    {"POST", "/v1/messages", route_messages, USE_MODEL, false, true},
    {"POST", "/v1/messages/count_tokens", route_count_tokens, USE_MODEL, false, false},
    {"POST", "/v1/responses", route_responses, USE_MODEL, false, true},
    {"POST", "/responses", route_responses, USE_MODEL, false, true},
    {"POST", "/v1/responses/input_tokens", route_input_tokens, USE_MODEL, false, false},
    {"POST", "/responses/input_tokens", route_input_tokens, USE_MODEL, false, false},
    {"POST", "/infill", route_infill, USE_MODEL, false, true},
    {"POST", "/api/chat", route_ollama_chat, USE_MODEL, false, true},
    {"POST", "/api/generate", route_ollama_generate, USE_MODEL, false, true},
    {"POST", "/api/embed", route_ollama_embed, USE_MODEL, false, false},
    {"POST", "/api/embeddings", route_ollama_embeddings, USE_MODEL, false, false},
    {"GET", "/api/tags", route_ollama_tags, USE_NONE, false, false},
    {"GET", "/api/ps", route_ollama_ps, USE_NONE, false, false},
    {"POST", "/api/show", route_ollama_show, USE_KNOWN, false, false},
    {"GET", "/api/version", route_ollama_version, USE_NONE, false, false},
    {"POST", "/tokenize", route_tokenize, USE_MODEL, false, false},
    {"POST", "/detokenize", route_detokenize, USE_MODEL, false, false},
    {"POST", "/apply-template", route_apply_template, USE_MODEL, false, false},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

static bool is_path(const http_route *r, const char *path) {
    const size_t n = strlen(r->path);
    return strcmp(r->path, path) == 0 ||
           (n > 1 && r->path[n - 1] == '/' && strncmp(r->path, path, n) == 0);
}

const http_route *http_find_route(const char *method, const char *path, const char **allowed) {
    *allowed = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!is_path(&routes[i], path)) continue;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
        *allowed = routes[i].method;
    }
    return NULL;
}
