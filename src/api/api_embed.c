/* api_embed.c: embeddings of texts from the hidden states of their tokens. */
#include "powerinfer_embed.h"

#include <math.h>
#include <string.h>

#include "api_types.h"
#include "mem.h"
#include "quant.h"

static const char *const names[] = {"none", "mean", "cls", "last", "rank", "model"};

const char *pi_pooling_name(pi_pooling pooling) {
    return (unsigned)pooling <= PI_POOLING_MODEL ? names[pooling] : "unknown";
}

pi_pooling pi_model_pooling(const pi_model *m, bool *named) {
    model_pooling pooling = m->weights ? m->weights->hp.pooling : MODEL_POOLING_UNKNOWN;
    *named = pooling != MODEL_POOLING_UNKNOWN;
    return *named ? (pi_pooling)pooling : PI_POOLING_NONE;
}

bool pi_model_is_encoder(const pi_model *m) {
    return m->weights && m->weights->arch->encoder;
}

static bool has_classifier(const model *m) {
    return m->t[ROLE_CLS].data || m->t[ROLE_CLS_OUT].data;
}

int32_t pi_embedding_width(const pi_model *m, pi_pooling pooling) {
    bool named;
    if (!m->weights) return 0;
    const model_tensor *t = m->weights->t;
    if (pooling == PI_POOLING_MODEL) pooling = pi_model_pooling(m, &named);
    if (pooling != PI_POOLING_RANK) {
        const model_tensor *last = t[ROLE_DENSE_3].data ? &t[ROLE_DENSE_3] : &t[ROLE_DENSE_2];
        return last->data ? (int32_t)last->n_out : m->weights->hp.n_embd;
    }
    if (!has_classifier(m->weights)) return 0;
    return (int32_t)(t[ROLE_CLS_OUT].data ? t[ROLE_CLS_OUT].n_out : t[ROLE_CLS].n_out);
}

/* ---- layers of a text's vector --------------------------------------------------------------- */

/* y [n_out] = W x + bias; row: room for a row of W. A few rows once per text need no kernels. */
static void multiply(const model_tensor *w, const model_tensor *bias, const float *x, float *row,
                     float *y) {
    const quant_traits *traits = quant_find((uint32_t)w->type);
    for (int64_t r = 0; r < w->n_out; r++) {
        double sum = 0;
        traits->dequantize((const uint8_t *)w->data + (size_t)r * w->row_bytes, row, w->n_in);
        for (int64_t i = 0; i < w->n_in; i++) sum += (double)row[i] * (double)x[i];
        sum *= (double)w->scale;
        if (bias->data) sum += (double)((const float *)bias->data)[r];
        y[r] = (float)sum;
    }
}

static double activate(const model *m, double x) {
    if (m->arch->classifier != CLASSIFIER_MEAN) return tanh(x);
    const double root = 0.79788456080286541, cubic = 0.044715; /* GELU's usual approximation */
    return 0.5 * x * (1 + tanh(root * x * (1 + cubic * x * x)));
}

static void layer_norm(const float *weight, float *x, int64_t n, double eps) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; i++) mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] - mean) / sqrt(variance + eps) * (double)weight[i]);
}

static void softmax(float *x, size_t n) {
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, (double)x[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - largest);
    for (size_t i = 0; i < n; i++) x[i] = (float)(exp((double)x[i] - largest) / sum);
}

/* x [n_embd]: a text's vector. room [2 * n_embd]. out [pi_embedding_width]. */
static void classify(const model *m, const float *x, float *room, float *out) {
    const model_tensor *t = m->t;
    size_t n = (size_t)m->hp.n_embd;
    float *hidden = room + n;
    memcpy(hidden, x, n * sizeof *hidden);
    if (t[ROLE_CLS].data) {
        multiply(&t[ROLE_CLS], &t[ROLE_CLS_BIAS], x, room, hidden);
        n = (size_t)t[ROLE_CLS].n_out;
        for (size_t i = 0; i < n; i++) hidden[i] = (float)activate(m, (double)hidden[i]);
        if (t[ROLE_CLS_NORM].data)
            layer_norm(t[ROLE_CLS_NORM].data, hidden, m->hp.n_embd, (double)m->hp.norm_eps);
    }
    if (t[ROLE_CLS_OUT].data) {
        multiply(&t[ROLE_CLS_OUT], &t[ROLE_CLS_OUT_BIAS], hidden, room, out);
        n = (size_t)t[ROLE_CLS_OUT].n_out;
    } else {
        memcpy(out, hidden, n * sizeof *out);
    }
    if (m->arch->classifier == CLASSIFIER_LAST) softmax(out, n);
}

/* Floats that project() needs. */
static size_t projection_room(const model *m) {
    const model_tensor *second = &m->t[ROLE_DENSE_2], *third = &m->t[ROLE_DENSE_3];
    int64_t n = third->data ? third->n_in : 0;
    return (size_t)(n + (n > m->hp.n_embd ? n : second->data ? m->hp.n_embd : n));
}

/* The modules 2_Dense and 3_Dense, or a copy. x [n_embd], out [pi_embedding_width]. */
static void project(const model *m, const float *x, float *room, float *out) {
    const model_tensor *second = &m->t[ROLE_DENSE_2], *third = &m->t[ROLE_DENSE_3];
    float *row = third->data ? room + third->n_in : room;
    if (!second->data && !third->data) memcpy(out, x, (size_t)m->hp.n_embd * sizeof *out);
    if (second->data) multiply(second, &m->t[ROLE_DENSE_2_BIAS], x, row, third->data ? room : out);
    if (third->data) multiply(third, &(model_tensor){0}, second->data ? room : x, row, out);
}

/* ---- pooling --------------------------------------------------------------------------------- */

typedef struct embed_call {
    pi_context *context;
    const model *model;
    const pi_embed_text *texts;
    int32_t n_texts;
    pi_pooling pooling;
    float *pooled; /* [n_embd], of the text that is being read */
    float *room;   /* for its classifier or its projections */
    float *out;    /* of the next text */
} embed_call;

/* Adds rows [n_rows][n_embd], each divided by n, to `sum`. */
static void add_mean(float *sum, const float *rows, int32_t n_rows, int32_t n_embd, int32_t n) {
    for (int32_t i = 0; i < n_embd; i++) {
        double y = (double)sum[i];
        for (int32_t k = 0; k < n_rows; k++)
            y += (double)rows[(size_t)k * (size_t)n_embd + (size_t)i] / n;
        sum[i] = (float)y;
    }
}

/* What a classifier reads. */
static pi_pooling classified(const model *m) {
    static const pi_pooling of[] = {[CLASSIFIER_FIRST] = PI_POOLING_CLS,
                                    [CLASSIFIER_MEAN] = PI_POOLING_MEAN,
                                    [CLASSIFIER_LAST] = PI_POOLING_LAST};
    return of[m->arch->classifier];
}

/* Pools one text, whose hidden states are the rows from `row` on; `done` tokens came before. */
static void pool_text(embed_call *c, const pi_embed_text *text, int32_t row, int32_t done,
                      int32_t n_rows) {
    const int32_t n_embd = c->model->hp.n_embd;
    const int32_t width = pi_embedding_width(c->context->model, c->pooling);
    const float *rows = pi_hidden(c->context, row);
    const bool rank = c->pooling == PI_POOLING_RANK;
    if (c->pooling == PI_POOLING_NONE) {
        for (int32_t i = 0; i < n_rows; i++, c->out += width)
            project(c->model, rows + (size_t)i * (size_t)n_embd, c->room, c->out);
        return;
    }
    switch (rank ? classified(c->model) : c->pooling) {
    case PI_POOLING_MEAN:
        if (done == 0) memset(c->pooled, 0, (size_t)n_embd * sizeof *c->pooled);
        add_mean(c->pooled, rows, n_rows, n_embd, text->n_tokens);
        break;
    case PI_POOLING_CLS:
        if (done == 0) memcpy(c->pooled, rows, (size_t)n_embd * sizeof *c->pooled);
        break;
    default:
        memcpy(c->pooled, rows + (size_t)(n_rows - 1) * (size_t)n_embd,
               (size_t)n_embd * sizeof *c->pooled);
        break;
    }
    if (done + n_rows < text->n_tokens) return;
    if (rank)
        classify(c->model, c->pooled, c->room, c->out);
    else
        project(c->model, c->pooled, c->room, c->out);
    c->out += width;
}

/* Texts [first, first + n) that fit into one batch. */
static pi_status embed_together(embed_call *c, int32_t first, int32_t n, pi_error *err) {
    pi_input *inputs = mem_calloc((size_t)n, sizeof *inputs);
    pi_status status = inputs ? PI_OK : error_nomem(err, (size_t)n * sizeof *inputs, "texts");
    for (int32_t i = 0; i < n && status == PI_OK; i++) {
        const pi_embed_text *text = &c->texts[first + i];
        inputs[i] = (pi_input){
            .tokens = text->tokens, .n_tokens = text->n_tokens, .hidden = PI_HIDDEN_ALL};
        status = pi_session_create(c->context, text->n_tokens, &inputs[i].session, err);
    }
    if (status == PI_OK) status = pi_forward(c->context, inputs, n, err);
    int32_t row = 0;
    for (int32_t i = 0; i < n && status == PI_OK; i++) {
        pool_text(c, &c->texts[first + i], row, 0, inputs[i].n_tokens);
        row += inputs[i].n_tokens;
    }
    for (int32_t i = 0; inputs && i < n; i++) pi_session_destroy(inputs[i].session);
    mem_free(inputs);
    return status;
}

/* A text of a causal model, batch by batch. */
static pi_status embed_long(embed_call *c, const pi_embed_text *text, pi_error *err) {
    pi_session *session;
    int32_t n_batch = pi_context_batch(c->context);
    pi_status status = pi_session_create(c->context, text->n_tokens, &session, err);
    for (int32_t done = 0, n; done < text->n_tokens && status == PI_OK; done += n) {
        n = text->n_tokens - done < n_batch ? text->n_tokens - done : n_batch;
        const pi_input in = {.session = session,
                             .tokens = text->tokens + done,
                             .n_tokens = n,
                             .hidden = PI_HIDDEN_ALL};
        status = pi_forward(c->context, &in, 1, err);
        if (status == PI_OK) pool_text(c, text, 0, done, n);
    }
    pi_session_destroy(session);
    return status;
}

pi_status pi_embed(pi_context *context, const pi_embed_text *texts, int32_t n_texts,
                   pi_pooling pooling, float *out, pi_error *err) {
    bool named;
    embed_call c = {.context = context,
                    .model = context->weights,
                    .texts = texts,
                    .n_texts = n_texts,
                    .pooling = pooling,
                    .out = out};
    if (pooling == PI_POOLING_MODEL) c.pooling = pi_model_pooling(context->model, &named);
    if ((unsigned)c.pooling > PI_POOLING_RANK)
        return error_set(err, PI_ERR_ARG, "bad pooling: %d: use a value of the list", (int)pooling);
    if (c.pooling == PI_POOLING_RANK && !has_classifier(c.model))
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "no classifier: %s cannot rank: use another pooling or model",
                         context->model->architecture);
    const int32_t n_batch = pi_context_batch(context);
    for (int32_t i = 0; i < n_texts; i++)
        if (texts[i].n_tokens < 1)
            return error_set(err, PI_ERR_ARG, "no tokens: text %d: give at least one", (int)i);
    const size_t n_embd = (size_t)c.model->hp.n_embd;
    const size_t n_room = c.pooling == PI_POOLING_RANK ? 2 * n_embd : projection_room(c.model);
    c.pooled = mem_alloc((n_embd + n_room) * sizeof *c.pooled);
    if (!c.pooled) return error_nomem(err, (n_embd + n_room) * sizeof *c.pooled, "embeddings");
    c.room = c.pooled + n_embd;
    pi_status status = PI_OK;
    for (int32_t i = 0, n; i < n_texts && status == PI_OK; i += n) {
        int64_t n_tokens = texts[i].n_tokens;
        for (n = 1; i + n < n_texts && n_tokens + texts[i + n].n_tokens <= n_batch; n++)
            n_tokens += texts[i + n].n_tokens;
        bool too_long = n_tokens > n_batch && !c.model->hp.bidirectional;
        status = too_long ? embed_long(&c, &texts[i], err) : embed_together(&c, i, n, err);
    }
    mem_free(c.pooled);
    return status;
}

void pi_normalize(float *vector, int32_t n, int32_t norm) {
    enum { INT16_SCALE = 32760 };
    double size = 0;
    if (norm < 0) return;
    for (int32_t i = 0; i < n; i++) {
        double x = fabs((double)vector[i]);
        if (norm == PI_NORM_INT16)
            size = x > size ? x : size;
        else
            size += norm == PI_NORM_EUCLID ? x * x : pow(x, norm);
    }
    if (norm == PI_NORM_INT16) size /= INT16_SCALE;
    if (norm == PI_NORM_EUCLID) size = sqrt(size);
    if (norm > PI_NORM_EUCLID) size = pow(size, 1.0 / norm);
    for (int32_t i = 0; i < n && size > 0; i++) vector[i] = (float)((double)vector[i] / size);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Tokens of a pair: counts all and stores the first `capacity`. */
typedef struct pair_tokens {
    int32_t *tokens;
    size_t capacity, n;
} pair_tokens;

static void put_token(pair_tokens *p, int32_t id) {
    if (id < 0) return;
    if (p->n < p->capacity) p->tokens[p->n] = id;
    p->n++;
}

static pi_status put_text(const pi_model *m, pair_tokens *p, const char *text, size_t n,
                          uint32_t flags, const char *what, pi_error *err) {
    int32_t *tokens;
    size_t n_tokens;
    pi_status status = tokenizer_encode_new(m->text, text, n, flags, what, &tokens, &n_tokens, err);
    if (status != PI_OK) return status;
    for (size_t i = 0; i < n_tokens; i++) put_token(p, tokens[i]);
    mem_free(tokens);
    return PI_OK;
}

/* The file's template, with both texts in place of {query} and {document}. */
static pi_status put_template(const pi_model *m, pair_tokens *p, gguf_string form,
                              const char *const texts[2], const size_t n_texts[2], pi_error *err) {
    static const char *const names_of[2] = {"{query}", "{document}"};
    char *text = NULL;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < form.n_bytes;) {
        const char *from = form.data + i;
        size_t step = 1, n_from = 1;
        for (int k = 0; k < 2; k++) {
            size_t length = strlen(names_of[k]);
            if (length > form.n_bytes - i || memcmp(form.data + i, names_of[k], length) != 0)
                continue;
            from = texts[k];
            n_from = n_texts[k];
            step = length;
        }
        if (!mem_grow((void **)&text, &capacity, n + n_from, 1, SIZE_MAX / 2)) {
            mem_free(text);
            return error_nomem(err, n + n_from, "query and document");
        }
        if (n_from) memcpy(text + n, from, n_from);
        n += n_from;
        i += step;
    }
    pi_status status = put_text(m, p, text, n, TOKENIZER_PARSE_SPECIAL, "query and document", err);
    mem_free(text);
    return status;
}

/* BOS query EOS SEP document EOS, as far as the vocabulary adds these; WordPiece, which has no EOS,
 * has its separator at both places. */
pi_status pi_tokenize_pair(const pi_model *m, const char *query, size_t n_query,
                           const char *document, size_t n_document, int32_t *tokens,
                           size_t capacity, size_t *n_tokens, pi_error *err) {
    pair_tokens p = {tokens, capacity, 0};
    gguf_string form;
    *n_tokens = 0;
    if (!m->text) return error_set(err, PI_ERR_UNSUPPORTED, "%s", m->no_text.message);
    const tokenizer_info *t = tokenizer_get_info(m->text);
    const gguf_value *v = gguf_find(api_file(m), "tokenizer.chat_template.rerank");
    pi_status status;
    if (v && gguf_as_string(v, &form)) {
        const char *const texts[2] = {query, document};
        const size_t sizes[2] = {n_query, n_document};
        status = put_template(m, &p, form, texts, sizes, err);
    } else {
        const gguf_value *key = gguf_find(api_file(m), "tokenizer.ggml.add_sep_token");
        int32_t sep = tokenizer_role(m->text, TOKEN_ROLE_SEP), eos = t->eos;
        bool word_piece = strcmp(t->model, "bert") == 0, adds_sep = false;
        if (key) gguf_as_bool(key, &adds_sep);
        if (word_piece) eos = -1;
        if (t->add_bos) put_token(&p, t->bos);
        status = put_text(m, &p, query, n_query, 0, "query", err);
        if (t->add_eos) put_token(&p, eos);
        if (adds_sep || word_piece) put_token(&p, sep);
        if (status == PI_OK) status = put_text(m, &p, document, n_document, 0, "document", err);
        if (t->add_eos) put_token(&p, word_piece ? sep : eos);
    }
    if (status != PI_OK) return status;
    *n_tokens = p.n;
    if (p.n <= capacity) return PI_OK;
    return error_set(err, PI_ERR_LIMIT, "buffer too small: the pair has %zu tokens: capacity %zu",
                     p.n, capacity);
}
