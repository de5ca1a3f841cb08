/* served.c: see served.h. */
#include "served.h"

#include <string.h>

#include "encoder.h"
#include "mem.h"
#include "message.h"

enum { TEMPLATE_SECONDS = 2 /* for one prompt; a long conversation takes a tenth of a second */ };

/* The pooling of embeddings with these options and this model. */
static pooling choose_pooling(const served_options *options) {
    enum { GGUF_NONE = 0, GGUF_MEAN = 1, GGUF_LAST = 3 }; /* values of ARCH.pooling_type */
    char key[128], text[16] = "";
    size_t n = 0;
    pi_model_info info;
    if (options->pooling == SERVER_POOLING_MEAN) return POOLING_MEAN;
    if (options->pooling == SERVER_POOLING_LAST) return POOLING_LAST;
    if (options->pooling != SERVER_POOLING_MODEL) return POOLING_NONE;
    pi_model_get_info(options->model, &info);
    snprintf(key, sizeof key, "%s.pooling_type", info.architecture);
    if (pi_model_metadata(options->model, key, text, sizeof text - 1, &n, NULL) != PI_OK)
        return POOLING_MEAN;
    text[n] = 0;
    switch (text[1] ? -1 : text[0] - '0') {
    case GGUF_NONE:
    case GGUF_MEAN:
        return POOLING_MEAN;
    case GGUF_LAST:
        return POOLING_LAST;
    default:
        return POOLING_NONE;
    }
}

static pi_status read_variables(served_model *m, pi_error *err) {
    const char *text = m->options.template_variables;
    if (!text) return PI_OK;
    pi_status status = json_parse(text, strlen(text), "chat-template-kwargs", &m->variables, err);
    if (status != PI_OK || json_kind_of(json_root(m->variables)) == JSON_OBJECT) return status;
    return error_set(err, PI_ERR_FORMAT, "chat-template-kwargs: must be a JSON object");
}

/* Finds the control tokens that answers are parsed by. */
static pi_status find_marks(served_model *m, pi_error *err) {
    const pi_model *model = m->options.model;
    size_t capacity = 0, n = 0;
    for (int32_t token = 0; token < m->info.n_vocab; token++) {
        char text[256];
        bool plain = pi_token_text(model, token, false, text, sizeof text, &n, NULL) != PI_OK || n;
        if (plain) continue;
        n = prompt_token_text(model, token, text, sizeof text - 1);
        text[n] = '\0';
        if (n == 0 || !message_is_mark(&m->tools.format, text)) continue;
        if (!mem_grow((void **)&m->marks, &capacity, m->n_marks + 1, sizeof *m->marks, INT32_MAX))
            return error_nomem(err, sizeof *m->marks, "server");
        m->marks[m->n_marks++] = token;
    }
    return PI_OK;
}

pi_status served_create(const served_options *options, const account_shares *shares,
                        served_model **out, pi_error *err) {
    *out = NULL;
    if (options->n_slots >= options->context.n_batch)
        return error_set(err, PI_ERR_ARG, "%d slots need a batch of more than %d tokens",
                         options->n_slots, options->context.n_batch);
    served_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_nomem(err, sizeof *m, "server");
    *m = (served_model){.options = *options};
    grammar_cache_init(&m->grammars);
    os_mutex_init(&m->sampling_lock);
    pi_model_get_info(options->model, &m->info);
    m->pooling = choose_pooling(options);
    const scheduler_options scheduling = {.model = options->model,
                                          .context = options->context,
                                          .n_slots = options->n_slots,
                                          .n_ctx = options->n_ctx,
                                          .max_queue = options->max_queue,
                                          .shares = *shares,
                                          .store = options->store,
                                          .speculator = options->speculator};
    const pi_chat_template_options chat = {.source = options->template_source,
                                           .n_source = options->n_template,
                                           .name = options->template_name,
                                           .seconds = TEMPLATE_SECONDS};
    pi_status status = prompt_maker_create(&m->prompts, options->model, &chat, err);
    m->prompts.n_ctx = options->n_ctx;
    if (status == PI_OK) status = tool_style_find(&m->tools, &m->prompts, err);
    if (status == PI_OK) status = read_variables(m, err);
    if (status == PI_OK) status = find_marks(m, err);
    if (status == PI_OK) status = encoder_create(options, &m->encoder, err);
    if (status == PI_OK && options->pooling == SERVER_POOLING_CLS && !m->encoder)
        status = error_set(err, PI_ERR_ARG, "pooling cls: only encoders have it: use mean or last");
    if (status == PI_OK) status = scheduler_create(&scheduling, &m->scheduler, err);
    if (status != PI_OK) {
        served_destroy(m);
        return status;
    }
    *out = m;
    return PI_OK;
}

void served_stop(served_model *m) {
    if (m->scheduler) scheduler_stop(m->scheduler);
    encoder_stop(m->encoder);
}

void served_destroy(served_model *m) {
    if (!m) return;
    served_stop(m);
    scheduler_destroy(m->scheduler);
    encoder_destroy(m->encoder);
    tool_style_free(&m->tools);
    mem_free(m->marks);
    prompt_maker_free(&m->prompts);
    json_free(m->variables);
    grammar_cache_free(&m->grammars);
    os_mutex_destroy(&m->sampling_lock);
    mem_free(m);
}

pi_sampler_options served_sampling(served_model *m) {
    os_mutex_lock(&m->sampling_lock);
    const pi_sampler_options sampling = m->options.sampling;
    os_mutex_unlock(&m->sampling_lock);
    return sampling;
}

void served_set_sampling(served_model *m, const pi_sampler_options *changed) {
    os_mutex_lock(&m->sampling_lock);
    m->options.sampling = *changed;
    os_mutex_unlock(&m->sampling_lock);
}
