/* route_embeddings.c: POST /v1/embeddings, /embedding in the form of llama.cpp's server, and
 * /api/embed and /api/embeddings of Ollama's API. Every input is a sequence whose tokens the
 * scheduler reads like a prompt, in the same steps as the sequences that generate. At most as many
 * inputs as slots are submitted at a time, so that thousands of inputs do not fill the queue. Texts
 * of an encoder need no slots (encoder.h). All functions run on the connection's thread. */
#include <math.h>
#include <string.h>

#include "base64.h"
#include "clock.h"
#include "dialects.h"
#include "encoder.h"
#include "mem.h"

enum { MAX_INPUTS = 2048 }; /* OpenAI's limit */

typedef struct embedding_input {
    int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    sequence *q;   /* NULL: not started, or ended */
    float *vector; /* [n_out], scaled to length 1 */
} embedding_input;

typedef enum embedding_form {
    FORM_OPENAI,
    FORM_NATIVE,
    FORM_OLLAMA,    /* /api/embed */
    FORM_OLLAMA_ONE /* /api/embeddings: one prompt */
} embedding_form;

typedef struct embedding_call {
    served_model *served;
    exchange *x;
    embedding_input *inputs; /* [n_inputs] */
    size_t n_inputs;
    size_t n_out; /* elements of a vector, n_embd unless the request wants fewer */
    embedding_form form;
    bool base64;
    bool truncates; /* texts longer than a slot are cut */
    os_condition news;
} embedding_call;

/* ---- the request ----------------------------------------------------------------------------- */

static pi_status read_input(embedding_call *c, const json_node *node, pi_error *err) {
    const served_options *o = &c->served->options;
    embedding_input *in = &c->inputs[c->n_inputs++];
    const char *text = NULL;
    size_t n = 0;
    if (json_as_string(node, &text, &n) && n == 0)
        return error_set(err, PI_ERR_ARG, "input: a string is empty");
    prompt_maker prompts = c->served->prompts;
    if (c->truncates) prompts.n_ctx = 0;
    pi_status status = prompt_read(&prompts, node, "input", &in->tokens, &in->n_tokens, err);
    if (c->truncates && in->n_tokens > (size_t)o->n_ctx) {
        const int32_t last = in->tokens[in->n_tokens - 1];
        in->n_tokens = (size_t)o->n_ctx;
        const bool ends = pi_token_is_end(o->model, last) ||
                          last == pi_model_token(o->model, PI_TOKEN_SEP);
        if (ends) in->tokens[in->n_tokens - 1] = last;
    }
    return status == PI_OK ? prompt_check(o->model, in->tokens, in->n_tokens, o->n_ctx, err)
                           : status;
}

/* Reads a string, token ids, or an array of either. */
static pi_status read_inputs(embedding_call *c, const json_node *body, pi_error *err) {
    const json_node *input = json_get(body, "input");
    if (!input) input = json_get(body, "content"); /* name in llama.cpp's server */
    if (c->form == FORM_OLLAMA_ONE) input = json_get(body, "prompt");
    json_kind kind = json_kind_of(input), first = json_kind_of(json_at(input, 0));
    size_t n = json_count(input);
    if (kind != JSON_STRING && (kind != JSON_ARRAY || n == 0))
        return error_set(err, PI_ERR_ARG,
                         "input: must be a string, token ids, or an array of them");
    bool one = kind == JSON_STRING || (first != JSON_STRING && first != JSON_ARRAY);
    if (one) n = 1;
    if (n > MAX_INPUTS)
        return error_set(err, PI_ERR_ARG, "input: %zu texts, at most %d are allowed", n,
                         MAX_INPUTS);
    c->inputs = mem_calloc(n, sizeof *c->inputs);
    if (!c->inputs) return error_nomem(err, n * sizeof *c->inputs, "input");
    pi_status status = PI_OK;
    for (size_t i = 0; i < n && status == PI_OK; i++)
        status = read_input(c, one ? input : json_at(input, i), err);
    return status;
}

static int32_t embedding_width(const embedding_call *c) {
    return pi_embedding_width(c->served->options.model, PI_POOLING_MEAN);
}

/* A prefix of the vector (`dimensions`) is a good embedding only for models trained for it. */
static pi_status read_form(embedding_call *c, const json_node *body, pi_error *err) {
    const char *format = "float";
    const int64_t width = embedding_width(c);
    int64_t dimensions = width;
    pi_status status = field_text(body, "encoding_format", &format, err);
    if (status == PI_OK) status = field_int(body, "dimensions", 1, INT32_MAX, &dimensions, err);
    c->truncates = c->form >= FORM_OLLAMA;
    if (status == PI_OK && c->form == FORM_OLLAMA)
        status = field_bool(body, "truncate", &c->truncates, err);
    if (status != PI_OK) return status;
    c->base64 = strcmp(format, "base64") == 0;
    if (!c->base64 && strcmp(format, "float") != 0)
        return error_set(err, PI_ERR_ARG, "encoding_format: must be float or base64");
    if (dimensions > width)
        return error_set(err, PI_ERR_ARG, "dimensions: must be at most %lld", (long long)width);
    c->n_out = (size_t)dimensions;
    if (c->served->encoder && encoder_pooling(c->served->encoder) == PI_POOLING_RANK)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "the model ranks texts: use /v1/rerank, or start the server with another "
                         "pooling, such as cls");
    if (!c->served->encoder && c->served->pooling == POOLING_NONE)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "the model's kind of pooling is not supported: start the server with mean "
                         "or last");
    return PI_OK;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static pi_status start(embedding_call *c, embedding_input *in, pi_error *err) {
    size_t n_embd = (size_t)c->served->info.n_embd;
    sequence *q = in->q = sequence_create();
    if (q) q->pooled = mem_calloc(n_embd, sizeof *q->pooled);
    if (!q || !q->pooled) return error_nomem(err, n_embd * sizeof *q->pooled, "embedding");
    q->model = c->served->options.model;
    q->prompt = in->tokens;
    q->n_prompt = (int32_t)in->n_tokens;
    in->tokens = NULL;
    q->pooling = c->served->pooling;
    q->reuse = q->pooling == POOLING_LAST; /* a mean needs the hidden states of all tokens */
    http_label_sequence(c->x, q);
    q->news = &c->news;
    return scheduler_add(c->served->scheduler, &q, 1, err);
}

/* A full queue is not an error while other inputs of the call are running: the queue will have
 * room. */
static pi_status start_more(embedding_call *c, size_t *next, size_t done, pi_error *err) {
    size_t window = (size_t)c->served->options.n_slots;
    while (*next < c->n_inputs && *next - done < window) {
        embedding_input *in = &c->inputs[*next];
        pi_status status = start(c, in, err);
        if (status == PI_ERR_LIMIT && *next > done) {
            in->tokens = in->q->prompt;
            in->q->prompt = NULL;
            scheduler_release(c->served->scheduler, in->q);
            in->q = NULL;
            return PI_OK;
        }
        if (status != PI_OK) return status;
        (*next)++;
    }
    return PI_OK;
}

/* Takes the pooled sum and scales it to length 1, so that a mean needs no division. */
static pi_status take_vector(embedding_call *c, embedding_input *in, pi_error *err) {
    double squares = 0;
    in->vector = mem_calloc(c->n_out, sizeof *in->vector);
    if (!in->vector) return error_nomem(err, c->n_out * sizeof *in->vector, "embedding");
    for (size_t i = 0; i < c->n_out; i++) squares += in->q->pooled[i] * in->q->pooled[i];
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (size_t i = 0; i < c->n_out; i++) in->vector[i] = (float)(in->q->pooled[i] * scale);
    return PI_OK;
}

/* Waits for one input. *reason: why it ended; PI_ERR_CANCELLED: without an embedding. */
static pi_status finish(embedding_call *c, embedding_input *in, finish_reason *reason,
                        pi_error *err) {
    scheduler *s = c->served->scheduler;
    sequence *q = in->q;
    os_mutex_lock(scheduler_lock(s));
    while (q->finish == FINISH_NONE) os_condition_wait(&c->news, scheduler_lock(s));
    *reason = q->finish;
    if (*reason == FINISH_ERROR) *err = q->error;
    os_mutex_unlock(scheduler_lock(s));
    pi_status status = PI_OK;
    if (*reason == FINISH_POOLED)
        status = take_vector(c, in, err);
    else if (*reason == FINISH_ERROR)
        status = err->status;
    else
        status = error_set(err, PI_ERR_CANCELLED, "the server is shutting down");
    scheduler_release(s, q);
    in->q = NULL;
    return status;
}

/* All texts of a request, by the model's encoder. */
static pi_status encode(embedding_call *c, pi_error *err) {
    size_t width = (size_t)embedding_width(c);
    pi_embed_text *texts = mem_calloc(c->n_inputs, sizeof *texts);
    float *vectors = mem_calloc(c->n_inputs * width, sizeof *vectors);
    pi_status status = PI_OK;
    if (!texts || !vectors)
        status = error_nomem(err, c->n_inputs * width * sizeof *vectors, "embedding");
    for (size_t i = 0; i < c->n_inputs && status == PI_OK; i++)
        texts[i] = (pi_embed_text){c->inputs[i].tokens, (int32_t)c->inputs[i].n_tokens};
    if (status == PI_OK)
        status = encoder_embed(c->served->encoder, texts, (int32_t)c->n_inputs, c->x->deadline,
                               vectors, err);
    for (size_t i = 0; i < c->n_inputs && status == PI_OK; i++) {
        float *vector = c->inputs[i].vector = mem_calloc(c->n_out, sizeof *vector);
        if (!vector) {
            status = error_nomem(err, c->n_out * sizeof *vector, "embedding");
            break;
        }
        memcpy(vector, vectors + i * width, c->n_out * sizeof *vector);
        pi_normalize(vector, (int32_t)c->n_out, PI_NORM_EUCLID);
    }
    mem_free(texts);
    mem_free(vectors);
    return status;
}

static pi_status compute(embedding_call *c, finish_reason *reason, pi_error *err) {
    if (c->served->encoder) return encode(c, err);
    pi_status status = PI_OK;
    size_t next = 0;
    for (size_t done = 0; done < c->n_inputs && status == PI_OK; done++) {
        status = start_more(c, &next, done, err);
        if (status == PI_OK) status = finish(c, &c->inputs[done], reason, err);
    }
    return status;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void put_floats(const embedding_call *c, json_writer *w, const char *key,
                       const float *vector) {
    json_put_array(w, key);
    for (size_t i = 0; i < c->n_out; i++) json_put_float(w, NULL, vector[i]);
    json_end_array(w);
}

/* Writes a vector; base64 holds little-endian floats, as in OpenAI's API. room: space for the bytes
 * and the text of one vector. */
static void put_vector(const embedding_call *c, json_writer *w, const float *vector,
                       uint8_t *room) {
    if (!c->base64) {
        put_floats(c, w, "embedding", vector);
        return;
    }
    for (size_t i = 0; i < c->n_out; i++) {
        uint32_t bits;
        memcpy(&bits, &vector[i], sizeof bits);
        for (int k = 0; k < 4; k++) room[4 * i + (size_t)k] = (uint8_t)(bits >> 8 * k);
    }
    char *text = (char *)room + 4 * c->n_out;
    json_put_string(w, "embedding", text, base64_encode(room, 4 * c->n_out, text));
}

/* Writes an array; each vector is within another array, which would hold one vector per token if
 * nothing were pooled. */
static void put_native(const embedding_call *c, json_writer *w) {
    json_put_array(w, NULL);
    for (size_t i = 0; i < c->n_inputs; i++) {
        json_put_object(w, NULL);
        json_put_int(w, "index", (int64_t)i);
        json_put_array(w, "embedding");
        put_floats(c, w, NULL, c->inputs[i].vector);
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

static void put_ollama(const embedding_call *c, json_writer *w, int64_t n_tokens) {
    json_put_object(w, NULL);
    if (c->form == FORM_OLLAMA_ONE) {
        put_floats(c, w, "embedding", c->inputs[0].vector);
    } else {
        json_put_text(w, "model", c->served->options.model_name);
        json_put_array(w, "embeddings");
        for (size_t i = 0; i < c->n_inputs; i++) put_floats(c, w, NULL, c->inputs[i].vector);
        json_end_array(w);
        json_put_int(w, "total_duration", (int64_t)(1e9 * (clock_seconds() - c->x->started)));
        json_put_int(w, "load_duration", 0);
        json_put_int(w, "prompt_eval_count", n_tokens);
    }
    json_end_object(w);
}

static void put_answer(const embedding_call *c, json_writer *w, int64_t n_tokens, uint8_t *room) {
    json_put_object(w, NULL);
    json_put_text(w, "object", "list");
    json_put_array(w, "data");
    for (size_t i = 0; i < c->n_inputs; i++) {
        json_put_object(w, NULL);
        json_put_text(w, "object", "embedding");
        json_put_int(w, "index", (int64_t)i);
        put_vector(c, w, c->inputs[i].vector, room);
        json_end_object(w);
    }
    json_end_array(w);
    json_put_text(w, "model", c->served->options.model_name);
    json_put_object(w, "usage");
    json_put_int(w, "prompt_tokens", n_tokens);
    json_put_int(w, "total_tokens", n_tokens);
    json_end_object(w);
    json_end_object(w);
}

static enum MHD_Result answer(embedding_call *c, int64_t n_tokens) {
    bytes body = {0};
    bytes_json j;
    uint8_t *room = mem_calloc(4 * c->n_out + BASE64_SIZE(4 * c->n_out), 1);
    if (!room || !bytes_json_begin(&j, &body)) {
        mem_free(room);
        return http_reply_error(c->x, 500, "out of memory");
    }
    if (c->form == FORM_NATIVE)
        put_native(c, &j.writer);
    else if (c->form >= FORM_OLLAMA)
        put_ollama(c, &j.writer, n_tokens);
    else
        put_answer(c, &j.writer, n_tokens, room);
    mem_free(room);
    return http_reply_json(c->x, &j, &body);
}

static enum MHD_Result embed(embedding_call *c) {
    int64_t n_tokens = 0;
    finish_reason reason = FINISH_NONE;
    pi_error err = {.status = PI_OK};
    for (size_t i = 0; i < c->n_inputs; i++) n_tokens += (int64_t)c->inputs[i].n_tokens;
    MHD_set_connection_option(c->x->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    pi_status status = compute(c, &reason, &err);
    MHD_set_connection_option(c->x->connection, MHD_CONNECTION_OPTION_TIMEOUT,
                              (unsigned)c->x->server->options.read_seconds);
    c->x->record.prompt_tokens = n_tokens;
    if (status == PI_OK) limiter_charge(c->x->server->limiter, c->x->key, n_tokens);
    if (reason == FINISH_GONE) return http_reply_error(c->x, 400, HTTP_GONE);
    if (status == PI_ERR_CANCELLED && c->served->encoder && clock_seconds() >= c->x->deadline)
        reason = FINISH_TIMEOUT;
    if (reason == FINISH_TIMEOUT) return http_reply_error(c->x, 504, HTTP_LATE);
    if (status == PI_OK) return answer(c, n_tokens);
    if (status == PI_ERR_LIMIT && c->served->encoder) return http_reply_failed(c->x, &err);
    bool busy = status == PI_ERR_LIMIT || status == PI_ERR_CANCELLED; /* the queue is full */
    return http_reply_error(c->x, busy ? 503 : 500, "%s", err.message);
}

static void tear_down(embedding_call *c) {
    for (size_t i = 0; i < c->n_inputs; i++) {
        scheduler_release(c->served->scheduler, c->inputs[i].q);
        mem_free(c->inputs[i].tokens);
        mem_free(c->inputs[i].vector);
    }
    mem_free(c->inputs);
    os_condition_destroy(&c->news);
}

static enum MHD_Result reply(exchange *x, embedding_form form) {
    const json_node *body = NULL;
    enum MHD_Result result;
    pi_error err = {.status = PI_OK};
    embedding_call c = {.served = x->served, .x = x, .form = form};
    if (!http_parse_body(x, &body, &result)) return result;
    os_condition_init(&c.news);
    pi_status status = read_form(&c, body, &err);
    if (status == PI_OK) status = read_inputs(&c, body, &err);
    result = status == PI_OK ? embed(&c) : http_reply_failed(x, &err);
    tear_down(&c);
    return result;
}

enum MHD_Result route_embeddings(exchange *x) {
    return reply(x, FORM_OPENAI);
}

enum MHD_Result route_embedding(exchange *x) {
    return reply(x, FORM_NATIVE);
}

enum MHD_Result route_ollama_embed(exchange *x) {
    return reply(x, FORM_OLLAMA);
}

enum MHD_Result route_ollama_embeddings(exchange *x) {
    return reply(x, FORM_OLLAMA_ONE);
}
