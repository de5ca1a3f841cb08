/* route_rerank.c: POST /v1/rerank: the scores of documents for a query, by a model with a
 * classifier. The form is that of Jina's and Cohere's APIs and of llama.cpp's server; with `texts`
 * in place of `documents` that of Text Embeddings Inference. All functions run on the connection's
 * thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "dialects.h"
#include "encoder.h"
#include "fields.h"
#include "mem.h"

enum { MAX_DOCUMENTS = 2048 };

typedef struct scored {
    size_t index;
    double score;
} scored;

typedef struct rerank_call {
    served_model *served;
    const char *query;
    size_t n_query;
    const char *name;           /* of the field: "documents" or "texts" */
    const json_node *documents; /* [n] strings, or objects with a text */
    pi_embed_text *pairs;       /* [n]; each owns its tokens */
    float *scores;              /* [n][width] */
    scored *order;              /* [n], best first */
    size_t n;
    int64_t top, n_tokens;
    bool bare;         /* the answer is an array without usage */
    bool returns_text; /* the answer repeats the documents */
} rerank_call;

static bool document_text(const json_node *node, const char **text, size_t *n) {
    return json_as_string(node, text, n) || json_as_string(json_get(node, "text"), text, n);
}

static pi_status read_request(rerank_call *c, const json_node *body, pi_error *err) {
    const encoder *e = c->served->encoder;
    if (!e || encoder_pooling(e) != PI_POOLING_RANK)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "the model does not rank: reranking needs a model with a classifier, and "
                         "pooling by it (rank)");
    if (!json_as_string(json_get(body, "query"), &c->query, &c->n_query))
        return error_set(err, PI_ERR_ARG, "query: must be a string");
    c->bare = !json_get(body, "documents") && json_get(body, "texts");
    c->name = c->bare ? "texts" : "documents";
    c->documents = json_get(body, c->name);
    c->n = json_count(c->documents);
    if (json_kind_of(c->documents) != JSON_ARRAY || c->n == 0 || c->n > MAX_DOCUMENTS)
        return error_set(err, PI_ERR_ARG, "%s: must be an array of 1 to %d strings", c->name,
                         MAX_DOCUMENTS);
    c->top = (int64_t)c->n;
    pi_status status = field_int(body, "top_n", 1, INT32_MAX, &c->top, err);
    if (status == PI_OK)
        status = field_bool(body, c->bare ? "return_text" : "return_documents", &c->returns_text,
                            err);
    if (c->top > (int64_t)c->n) c->top = (int64_t)c->n;
    return status;
}

static pi_status tokenize(rerank_call *c, size_t i, pi_error *err) {
    const pi_model *model = c->served->options.model;
    const int32_t n_ctx = c->served->options.n_ctx;
    const char *text = NULL;
    size_t n_text = 0, n = 0, capacity = (size_t)n_ctx;
    if (!document_text(json_at(c->documents, i), &text, &n_text))
        return error_set(err, PI_ERR_ARG, "%s.%zu: must be a string", c->name, i);
    int32_t *tokens = mem_alloc(capacity * sizeof *tokens);
    if (!tokens) return error_nomem(err, capacity * sizeof *tokens, "documents");
    pi_status status = pi_tokenize_pair(model, c->query, c->n_query, text, n_text, tokens, capacity,
                                        &n, err);
    c->pairs[i] = (pi_embed_text){tokens, (int32_t)n};
    c->n_tokens += (int64_t)n;
    if (status == PI_ERR_LIMIT)
        return error_set(err, PI_ERR_ARG,
                         "%s.%zu: query and document have %zu tokens, more than the %d of "
                         "the context",
                         c->name, i, n, (int)n_ctx);
    return status;
}

/* Best first, NaN last; among equal scores the first document. */
static int compare(const void *pa, const void *pb) {
    const scored *a = pa, *b = pb;
    if (isnan(a->score) != isnan(b->score)) return isnan(a->score) ? 1 : -1;
    if (a->score != b->score && !isnan(a->score)) return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static pi_status compute(rerank_call *c, double deadline, pi_error *err) {
    size_t width = (size_t)pi_embedding_width(c->served->options.model, PI_POOLING_RANK);
    c->pairs = mem_calloc(c->n, sizeof *c->pairs);
    c->scores = mem_calloc(c->n * width, sizeof *c->scores);
    c->order = mem_calloc(c->n, sizeof *c->order);
    if (!c->pairs || !c->scores || !c->order)
        return error_nomem(err, c->n * width * sizeof *c->scores, "documents");
    pi_status status = PI_OK;
    for (size_t i = 0; i < c->n && status == PI_OK; i++) status = tokenize(c, i, err);
    if (status == PI_OK)
        status = encoder_embed(c->served->encoder, c->pairs, (int32_t)c->n, deadline, c->scores,
                               err);
    for (size_t i = 0; i < c->n && status == PI_OK; i++)
        c->order[i] = (scored){i, (double)c->scores[i * width]};
    if (status == PI_OK) qsort(c->order, c->n, sizeof *c->order, compare);
    return status;
}

static void put_results(const rerank_call *c, json_writer *w, const char *key) {
    json_put_array(w, key);
    for (int64_t i = 0; i < c->top; i++) {
        const scored *s = &c->order[i];
        const char *text = "";
        size_t n = 0;
        json_put_object(w, NULL);
        json_put_int(w, "index", (int64_t)s->index);
        json_put_float(w, c->bare ? "score" : "relevance_score", (float)s->score);
        document_text(json_at(c->documents, s->index), &text, &n);
        if (c->returns_text && c->bare) json_put_string(w, "text", text, n);
        if (c->returns_text && !c->bare) {
            json_put_object(w, "document");
            json_put_string(w, "text", text, n);
            json_end_object(w);
        }
        json_end_object(w);
    }
    json_end_array(w);
}

static enum MHD_Result answer(const rerank_call *c, exchange *x) {
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_writer *w = &j.writer;
    if (c->bare) {
        put_results(c, w, NULL);
        return http_reply_json(x, &j, &body);
    }
    json_put_object(w, NULL);
    json_put_text(w, "model", c->served->options.model_name);
    json_put_text(w, "object", "list");
    json_put_object(w, "usage");
    json_put_int(w, "prompt_tokens", c->n_tokens);
    json_put_int(w, "total_tokens", c->n_tokens);
    json_end_object(w);
    put_results(c, w, "results");
    json_end_object(w);
    return http_reply_json(x, &j, &body);
}

enum MHD_Result route_rerank(exchange *x) {
    const json_node *body = NULL;
    enum MHD_Result result;
    pi_error err = {.status = PI_OK};
    rerank_call c = {.served = x->served};
    if (!http_parse_body(x, &body, &result)) return result;
    pi_status status = read_request(&c, body, &err);
    if (status == PI_OK) status = compute(&c, x->deadline, &err);
    x->record.prompt_tokens = c.n_tokens;
    if (status == PI_OK) limiter_charge(x->server->limiter, x->key, c.n_tokens);
    if (status == PI_OK)
        result = answer(&c, x);
    else if (status == PI_ERR_CANCELLED && clock_seconds() >= x->deadline)
        result = http_reply_error(x, 504, HTTP_LATE);
    else if (status == PI_ERR_CANCELLED)
        result = http_reply_error(x, 503, "%s", err.message);
    else
        result = http_reply_failed(x, &err);
    for (size_t i = 0; c.pairs && i < c.n; i++) mem_free((void *)(uintptr_t)c.pairs[i].tokens);
    mem_free(c.pairs);
    mem_free(c.scores);
    mem_free(c.order);
    return result;
}
