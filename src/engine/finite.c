/* finite.c: detects NaN and infinity, and finds the block that produced them.
 *
 * A NaN or infinity in the residual stream remains, whatever a layer adds. So two checks are
 * enough: norms, which compute the sum of squares of the stream anyway, report a sum that is not
 * finite, and the logits are checked. The first such norm of a ubatch leads to the step that wrote
 * the stream before it. A logit of -infinity is legal: models forbid a token by it. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "context.h"

/* A place in a model, numbered by depth: smaller numbers are computed earlier. */
enum {
    PLACE_EMBEDDING = 0,
    PLACE_LAYERS = 1, /* then three for each layer: */
    PLACE_ATTENTION = 0,
    PLACE_FFN = 1,
    PLACE_LAYER = 2, /* attention and FFN, where they run in parallel */
    PLACES_PER_LAYER = 3
};

static const plan_step *step_at(const plan *p, plan_side side, int index) {
    return side == SIDE_CPU ? &p->steps[index] : &p->gpu_steps[index];
}

static int place_in(const plan_step *s, int part) {
    return PLACE_LAYERS + s->layer * PLACES_PER_LAYER + part;
}

/* The step that sends the message that step `s` of a side receives; *side becomes the sender's
 * side. */
static int sender_of(const plan *p, const plan_step *s, plan_side *side) {
    const args_message *message = STEP_ARGS(s, message);
    bool direct = message->peer >= 0;
    if (!direct) *side = *side == SIDE_CPU ? SIDE_GPU : SIDE_CPU;
    int index = *side == SIDE_CPU ? p->n_steps : p->n_gpu_steps;
    for (;;) {
        const plan_step *from = step_at(p, *side, --index);
        if (from->op != OP_SEND) continue;
        const args_message *sent = STEP_ARGS(from, message);
        bool is_it = direct ? sent->peer == s->device && from->device == message->peer
                            : sent->exchange == message->exchange;
        if (is_it) return index;
    }
}

/* The block that last wrote the residual stream before a step of this side. If a step received the
 * whole stream, the search continues before the step that sent it. A layer on another machine
 * is known by its number only. */
static int writer_of(const plan *p, plan_side side, int index) {
    const bool distant = plan_is_stage(p) && (p->first_layer > 0 || index >= p->n_stage_steps);
    const int before = p->first_layer > 0 ? p->first_layer : p->model->hp.n_layer;
    const int end = distant && p->first_layer == 0 ? p->n_stage_steps : 0;
    while (--index >= end) {
        const plan_step *s = step_at(p, side, index);
        if (s->op == OP_EMBED) break;
        if (s->op == OP_ADD && s->out != BUF_SHARED) {
            if (s->in == BUF_ATTN_OUT) return place_in(s, PLACE_LAYER);
            bool attention = s[-1].op == OP_MATMUL && /* the product that is added */
                             tensor_role_part(s[-1].matrix[0].role) == PART_ATTENTION;
            return place_in(s, attention ? PLACE_ATTENTION : PLACE_FFN);
        }
        if (s->op == OP_EXPERTS_SUM && s->add_to_x) return place_in(s, PLACE_FFN);
        if (s->op == OP_FFN_DOWN && s->add_to_x) return place_in(s, PLACE_FFN);
        if (s->op == OP_MATMUL && s->add_to_x)
            return place_in(s, s->matrix[0].role == ROLE_ATTN_OUT ? PLACE_ATTENTION : PLACE_FFN);
        if (s->op != OP_RECEIVE) continue;
        if (!plan_is_residual(s->out)) continue;
        if (STEP_ARGS(s, message)->add_to_out) return place_in(s, PLACE_FFN);
        index = sender_of(p, s, &side);
    }
    if (distant) return PLACE_LAYERS + (before - 1) * PLACES_PER_LAYER + PLACE_LAYER;
    return PLACE_EMBEDDING;
}

pi_status context_check_finite(const engine_context *c, pi_error *err) {
    const plan *p = c->cpu.plan;
    int place = INT_MAX;
    int step = atomic_load(&c->cpu.bad_step);
    if (step < INT_MAX) place = writer_of(p, SIDE_CPU, step);
    for (int i = 0; i < c->gpu.n_gpus; i++) {
        int gpu_step = c->gpu.gpus[i] ? gpu_exec_bad_step(c->gpu.gpus[i]) : -1;
        int there = gpu_step >= 0 ? writer_of(p, SIDE_GPU, gpu_step) : INT_MAX;
        if (there < place) place = there;
    }
    if (place == INT_MAX) {
        const int64_t n_vocab = c->cpu.model->hp.n_vocab, n = c->cpu.ubatch.n_out * n_vocab;
        const float *logits = c->cpu.ubatch.logits + c->cpu.ubatch.first_logits_row * n_vocab;
        int bad = 0; /* no early exit: compilers vectorize the loop */
        for (int64_t i = 0; i < n; i++) bad |= !(logits[i] < INFINITY);
        if (!bad) return PI_OK;
    }
    static const char *const parts[] = {"attention of ", "feed-forward network of ", ""};
    int part = (place - PLACE_LAYERS) % PLACES_PER_LAYER;
    int layer = (place - PLACE_LAYERS) / PLACES_PER_LAYER;
    char where[64];
    if (place == INT_MAX)
        snprintf(where, sizeof where, "output matrix");
    else if (place == PLACE_EMBEDDING)
        snprintf(where, sizeof where, "token embeddings");
    else
        snprintf(where, sizeof where, "%slayer %d", parts[part], layer);
    return error_set(
        err, PI_ERR_RANGE,
        "values are NaN or infinite: %s: they begin in the %s; check the weights of the "
        "model",
        gguf_path(c->cpu.model->file), where);
}
