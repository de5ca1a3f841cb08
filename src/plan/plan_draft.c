/* plan_draft.c: steps for heads that draft (model_drafter.h). The model's plan computes the head's
 * features from the residual stream, and sessions keep them:
 *
 *   MTP       after the last layer: norm -> draft_keep (draft_raw: all streams, without the norm)
 *   EAGLE-3   before some layers: draft_read; after the last of them: quantize -> matmul ->
 *             draft_keep
 *
 * The head's plan reads them with the next token, and keeps features for the tokens that it
 * drafts:
 *
 *   embed -> draft_in -> [quantize -> matmul] -> [the layer] -> norm -> draft_keep -> the head
 *
 * A head with several streams joins the embedding with each stream: draft_in -> (quantize ->
 * matmul) for each stream -> [the layer] -> draft_keep -> the head
 *
 * The layer of an EAGLE-3 head has no norm before attention: Q, K and V read DRAFT_IN. Features are
 * computed on the CPU, where the head is; between layers of a GPU the stream goes there and
 * back. */
#include "plan_impl.h"

bool plan_draft_reads(const model *drafter, int layer) {
    for (int i = 0; drafter && i < drafter->draft.n_reads; i++)
        if (drafter->draft.reads[i] == layer) return true;
    return false;
}

/* FEATURES = X, normed as for the output matrix, or all residual streams without a norm. */
static void add_stream_features(plan *p, bool normed) {
    const model_tensor *t = p->model->t;
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_NORM, -1, plan_residual(p));
    if (normed)
        *STEP_ARGS(s, norm) = plan_make_norm(p, &t[ROLE_OUTPUT_NORM], &t[ROLE_OUTPUT_NORM_BIAS]);
    else
        *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_NONE,
                                          .width = plan_residual_width(p->model)};
    s->out = BUF_FEATURES;
}

/* Quantizes DRAFT_READS, or its norm. */
static void add_reads(plan *p, const model *drafter) {
    const model_tensor *weight = &drafter->t[ROLE_DRAFT_FUSE_NORM];
    bool normed = drafter->draft.normed_reads;
    plan_step *s = plan_add_step(p, SIDE_CPU, normed ? OP_NORM : OP_QUANTIZE, -1, BUF_DRAFT_READS);
    if (!normed) return;
    *STEP_ARGS(s, norm) = (args_norm){.kind = NORM_RMS,
                                      .width = weight->n_in,
                                      .eps = drafter->hp.norm_eps,
                                      .weight = weight->data};
    s->out = BUF_DRAFT_READS;
}

static void add_keep(plan *p, int64_t n) {
    plan_add_step(p, SIDE_CPU, OP_DRAFT_KEEP, -1, BUF_FEATURES);
    p->n_features = n;
}

void plan_add_draft_reads(plan *p, const model *drafter, int layer) {
    const model_draft *d = &drafter->draft;
    const model_tensor *fuse = &drafter->t[ROLE_DRAFT_FUSE];
    for (int i = 0; i < d->n_reads && fuse->data; i++) {
        if (d->reads[i] != layer) continue;
        plan_step *s = plan_add_step(p, SIDE_CPU, OP_DRAFT_READ, -1, BUF_X);
        STEP_ARGS(s, draft_read)->at = i * (int64_t)p->model->hp.n_embd;
    }
    if (layer != d->reads[d->n_reads - 1]) return;
    if (!fuse->data) {
        add_stream_features(p, !p->model->arch->draft_raw);
    } else {
        const plan head = {.model = drafter};
        add_reads(p, drafter);
        plan_step *s = plan_add_step(p, SIDE_CPU, OP_MATMUL, -1, BUF_DRAFT_READS);
        const plan_matrix m = plan_make_matrix(&head, -1, ROLE_DRAFT_FUSE, ROLE_COUNT,
                                               BUF_FEATURES);
        plan_set_matrix(s, &m);
    }
    add_keep(p, plan_residual_width(drafter));
}

void plan_add_draft_in(plan *p) {
    const model_tensor *t = p->model->t;
    bool joined = !t[ROLE_DRAFT_PROJ].data;
    plan_step *s = plan_add_step(p, SIDE_CPU, OP_DRAFT_IN, -1, BUF_X);
    *STEP_ARGS(s, draft_in) = (args_draft_in){
        .embd = plan_make_norm(p, &t[ROLE_DRAFT_EMBD_NORM], NULL),
        .features = plan_make_norm(p, &t[ROLE_DRAFT_NORM], NULL),
        .residual = joined,
        .normed = p->model->draft.normed_residual};
    for (int k = 0; k < p->model->hp.n_stream && !joined; k++) {
        const int64_t n_embd = p->model->hp.n_embd, in_at = 2 * k * n_embd;
        plan_add_step(p, SIDE_CPU, OP_QUANTIZE, -1, BUF_DRAFT_IN)->in_at = in_at;
        s = plan_add_step(p, SIDE_CPU, OP_MATMUL, -1, BUF_DRAFT_IN);
        s->in_at = in_at;
        plan_add_matrix(p, s, ROLE_DRAFT_PROJ, ROLE_COUNT, plan_residual(p));
        s->matrix[0].out_at = k * n_embd;
    }
}

void plan_add_draft_features(plan *p) {
    bool joined = !p->model->t[ROLE_DRAFT_PROJ].data;
    add_stream_features(p, !joined && !p->model->arch->draft_raw);
    add_keep(p, plan_residual_width(p->model));
}

void plan_add_draft_logits(plan *p) {
    plan_add_step(p, SIDE_CPU, OP_DRAFT_LOGITS, -1, BUF_LOGITS);
}
