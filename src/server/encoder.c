/* encoder.c: see encoder.h. */
#include "encoder.h"

#include <stdatomic.h>

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "os_thread.h"

struct encoder {
    const pi_model *model;
    pi_context *context;
    pi_pooling pooling;
    os_mutex lock; /* of the context */
    atomic_bool stopped;
};

static pi_pooling choose_pooling(const served_options *o) {
    bool named;
    pi_pooling pooling = pi_model_pooling(o->model, &named);
    switch (o->pooling) {
    case SERVER_POOLING_MEAN:
        return PI_POOLING_MEAN;
    case SERVER_POOLING_LAST:
        return PI_POOLING_LAST;
    case SERVER_POOLING_CLS:
        return PI_POOLING_CLS;
    case SERVER_POOLING_RANK:
        return PI_POOLING_RANK;
    case SERVER_POOLING_MODEL:
        break;
    }
    return named && pooling != PI_POOLING_NONE ? pooling : PI_POOLING_MEAN;
}

pi_status encoder_create(const served_options *options, encoder **out, pi_error *err) {
    *out = NULL;
    const bool encodes = pi_model_is_encoder(options->model);
    const pi_pooling pooling = choose_pooling(options);
    pi_model_info info;
    pi_model_get_info(options->model, &info);
    bool projects = pi_embedding_width(options->model, PI_POOLING_MEAN) != info.n_embd;
    if (!encodes && pooling != PI_POOLING_RANK && !projects) return PI_OK;
    encoder *e = mem_calloc(1, sizeof *e);
    if (!e) return error_nomem(err, sizeof *e, "encoder");
    os_mutex_init(&e->lock);
    e->model = options->model;
    e->pooling = pooling;
    pi_context_options context = options->context;
    int32_t longest = options->n_ctx < PI_MAX_BATCH ? options->n_ctx : PI_MAX_BATCH;
    if (encodes && context.n_batch < longest) context.n_batch = longest;
    pi_status status = PI_OK;
    if (pi_embedding_width(e->model, e->pooling) == 0)
        status = error_set(err, PI_ERR_UNSUPPORTED,
                           "no classifier: the model cannot rank: use another pooling");
    if (status == PI_OK) status = pi_context_create(e->model, &context, &e->context, err);
    if (status != PI_OK) {
        encoder_destroy(e);
        return status;
    }
    *out = e;
    return PI_OK;
}

pi_pooling encoder_pooling(const encoder *e) {
    return e->pooling;
}

pi_status encoder_embed(encoder *e, const pi_embed_text *texts, int32_t n_texts, double deadline,
                        float *out, pi_error *err) {
    const int32_t width = pi_embedding_width(e->model, e->pooling);
    const int32_t n_batch = pi_context_batch(e->context);
    pi_status status = PI_OK;
    for (int32_t i = 0, n; i < n_texts && status == PI_OK; i += n) {
        int64_t n_tokens = texts[i].n_tokens;
        for (n = 1; i + n < n_texts && n_tokens + texts[i + n].n_tokens <= n_batch; n++)
            n_tokens += texts[i + n].n_tokens;
        os_mutex_lock(&e->lock);
        if (atomic_load(&e->stopped))
            status = error_set(err, PI_ERR_CANCELLED, "the server is shutting down");
        else if (clock_seconds() >= deadline)
            status = error_set(err, PI_ERR_CANCELLED, "the request's timeout passed");
        else
            status = pi_embed(e->context, texts + i, n, e->pooling, out + (size_t)i * (size_t)width,
                              err);
        os_mutex_unlock(&e->lock);
    }
    return status;
}

void encoder_stop(encoder *e) {
    if (!e) return;
    atomic_store(&e->stopped, true);
    pi_context_cancel(e->context);
}

void encoder_destroy(encoder *e) {
    if (!e) return;
    pi_context_destroy(e->context);
    os_mutex_destroy(&e->lock);
    mem_free(e);
}
