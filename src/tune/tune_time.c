/* tune_time.c: times decode with one setting, over tokens of a text, because the active neurons
 * depend on the text. */
#include <math.h>
#include <string.h>

#include "clock.h"
#include "log_sum_exp.h"
#include "powerinfer_placement.h"
#include "tune.h"

enum { WARM_UP = 4, LEAST = 8 }; /* tokens */

static pi_status feed(tune_setting *s, const int32_t *tokens, int32_t n, pi_logits_wanted logits,
                      pi_error *err) {
    pi_input in = {.session = s->session, .tokens = tokens, .n_tokens = n, .logits = logits};
    return pi_forward(s->context, &in, 1, err);
}

pi_status tune_open(const pi_tune_options *o, const tune_text *text, tune_setting *s,
                    pi_error *err) {
    pi_tune_trial *t = &s->trial;
    pi_context_options c = o->context;
    pi_memory memory;
    pi_placement placement;
    double head_loss;
    c.mode = s->mode;
    c.max_loss = (float)o->max_loss;
    c.head = t->head ? PI_HEAD_PREDICT : PI_HEAD_DENSE;
    c.n_threads = t->threads;
    c.attn_blocks = t->attn_blocks;
    c.n_ctx = text->n;
    pi_status status = pi_model_open(s->path, NULL, &s->model, err);
    if (status != PI_OK) return status;
    status = pi_context_create(s->model, &c, &s->context, err);
    s->unfit = status == PI_ERR_UNSUPPORTED && (s->mode != PI_MODE_DENSE || t->head);
    if (s->unfit) tune_close(s);
    if (status != PI_OK) return s->unfit ? PI_OK : status;
    pi_context_get_memory(s->context, &memory);
    pi_context_get_placement(s->context, &placement);
    s->from_drive = memory.budget > 0 && (memory.streamed > 0 || memory.cached > memory.cache);
    s->on_gpu = strcmp(placement.device, "cpu") != 0;
    t->threads = pi_context_threads(s->context);
    pi_context_predicts_head(s->context, &head_loss);
    if (t->attn_blocks == 0)
        t->loss = pi_context_loss(s->context) + (head_loss < 0 ? 0 : head_loss);
    if (!(t->loss <= o->max_loss)) {
        snprintf(t->reason, sizeof t->reason, "%s",
                 isnan(t->loss) ? "its loss was never measured" : "its loss is too large");
        tune_close(s);
        return PI_OK;
    }
    status = pi_session_create(s->context, text->n, &s->session, err);
    if (status == PI_OK) status = feed(s, text->tokens, text->depth, PI_LOGITS_NONE, err);
    return status;
}

/* Leaves the prompt in the session. With recurrent layers some of it is evaluated again. */
static pi_status rewind_to_prompt(const tune_text *text, tune_setting *s, pi_error *err) {
    int32_t point = pi_session_rewind_point(s->session, text->depth);
    pi_status status = pi_session_rewind(s->session, point, err);
    if (status != PI_OK || point == text->depth) return status;
    return feed(s, text->tokens + point, text->depth - point, PI_LOGITS_NONE, err);
}

pi_status tune_round(const tune_text *text, double seconds, tune_setting *s, pi_error *err) {
    pi_model_info info;
    pi_counters before, after;
    double total = 0;
    float most;
    int32_t at = text->depth, n = 0;
    pi_model_get_info(s->model, &info);
    pi_status status = rewind_to_prompt(text, s, err);
    for (int32_t i = 0; i < WARM_UP && status == PI_OK; i++)
        status = feed(s, text->tokens + at++, 1, PI_LOGITS_LAST, err);
    pi_context_get_counters(s->context, &before);
    for (; at + 1 < text->n && (n < LEAST || total < seconds) && status == PI_OK; at++, n++) {
        double start = clock_seconds();
        status = feed(s, text->tokens + at, 1, PI_LOGITS_LAST, err);
        total += clock_seconds() - start;
        if (status == PI_OK && isinf(seconds) && n < TUNE_TIMED_LONG) {
            const float *logits = pi_logits(s->context, 0);
            s->nats[n] = (float)(log_sum_exp(logits, info.n_vocab, &most) -
                                 (double)logits[text->tokens[at + 1]]);
        }
    }
    pi_context_get_counters(s->context, &after);
    if (status != PI_OK) return status;
    uint64_t bytes = after.weight_bytes + after.kv_bytes - before.weight_bytes - before.kv_bytes;
    s->tps[s->trial.rounds++] = n / total;
    s->trial.bytes_per_token = (double)bytes / n;
    if (isinf(seconds)) s->n_nats = n < TUNE_TIMED_LONG ? n : TUNE_TIMED_LONG;
    return PI_OK;
}

void tune_close(tune_setting *s) {
    pi_session_destroy(s->session);
    pi_context_destroy(s->context);
    pi_model_close(s->model);
    s->session = NULL;
    s->context = NULL;
    s->model = NULL;
}
