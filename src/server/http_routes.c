/* http_routes.c: the table of routes. */
#include <string.h>

#include "dialects.h"
#include "http.h"

static const struct route {
    /* a path that ends with a slash matches all paths that begin with it */
    const char *method, *path;
    route_handler handler;
    bool is_public; /* needs no API key */
    bool generates; /* text */
} routes[] = {
    {"GET", "/", route_page, true, false},
    {"GET", "/health", route_health, true, false},
    {"GET", "/v1/health", route_health, true, false},
    {"GET", "/v1/models", route_models, false, false},
    {"GET", "/v1/models/", route_model, false, false},
    {"GET", "/models", route_models, false, false},
    {"GET", "/props", route_props, false, false},
    {"GET", "/slots", route_slots, false, false},
    {"POST", "/slots/", route_slot_action, false, false},
    {"GET", "/metrics", route_metrics, false, false},
    {"POST", "/v1/chat/completions", route_chat, false, true},
    {"POST", "/chat/completions", route_chat, false, true},
    {"POST", "/v1/completions", route_completions, false, true},
    {"POST", "/completions", route_completions, false, true},
    {"POST", "/completion", route_native, false, true},
    {"POST", "/v1/embeddings", route_embeddings, false, false},
    {"POST", "/embeddings", route_embeddings, false, false},
    {"POST", "/embedding", route_embedding, false, false},
    {"POST", "/v1/rerank", route_rerank, false, false},
    {"POST", "/rerank", route_rerank, false, false},
    {"POST", "/v1/reranking", route_rerank, false, false},
    {"POST", "/reranking", route_rerank, false, false},
    {"POST", "/v1/messages", route_messages, false, true},
    {"POST", "/v1/messages/count_tokens", route_count_tokens, false, false},
    {"POST", "/v1/responses", route_responses, false, true},
    {"POST", "/responses", route_responses, false, true},
    {"POST", "/v1/responses/input_tokens", route_input_tokens, false, false},
    {"POST", "/responses/input_tokens", route_input_tokens, false, false},
    {"POST", "/infill", route_infill, false, true},
    {"POST", "/api/chat", route_ollama_chat, false, true},
    {"POST", "/api/generate", route_ollama_generate, false, true},
    {"POST", "/api/embed", route_ollama_embed, false, false},
    {"POST", "/api/embeddings", route_ollama_embeddings, false, false},
    {"GET", "/api/tags", route_ollama_tags, false, false},
    {"GET", "/api/ps", route_ollama_ps, false, false},
    {"POST", "/api/show", route_ollama_show, false, false},
    {"GET", "/api/version", route_ollama_version, false, false},
    {"POST", "/tokenize", route_tokenize, false, false},
    {"POST", "/detokenize", route_detokenize, false, false},
    {"POST", "/apply-template", route_apply_template, false, false},
};
enum { N_ROUTES = sizeof routes / sizeof routes[0] };

static bool is_path(const struct route *r, const char *path) {
    const size_t n = strlen(r->path);
    return strcmp(r->path, path) == 0 ||
           (n > 1 && r->path[n - 1] == '/' && strncmp(r->path, path, n) == 0);
}

route_handler http_find_route(const char *method, const char *path, const char **allowed) {
    *allowed = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!is_path(&routes[i], path)) continue;
        if (strcmp(routes[i].method, method) == 0) return routes[i].handler;
        *allowed = routes[i].method;
    }
    return NULL;
}

bool http_is_public(const char *path) {
    for (size_t i = 0; i < N_ROUTES; i++)
        if (is_path(&routes[i], path)) return routes[i].is_public;
    return false;
}

bool http_generates(const char *path) {
    for (size_t i = 0; i < N_ROUTES; i++)
        if (is_path(&routes[i], path)) return routes[i].generates;
    return false;
}
