/* api_cluster.c: contexts on several machines. For every context rank 0 sends its settings, and
 * each other rank compares them with its own, measures, creates its part, and computes until rank 0
 * destroys the context:
 *
 *   rank 0   START ----------> MEASURE ----------> LAYERS ----------> (commands of src/engine)
 *   others         answer              answer             answer
 *
 * A rank measures a decode step of some layers, which it creates for this; rank 0 also measures the
 * output head. A rank without the model's file answers START twice: that it needs the metadata, and
 * then as all others; it receives layers after MEASURE and LAYERS (api_cluster_file.c). */
#include "api_cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cluster.h"
#include "cpu_topology.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "memory_room.h"
#include "option_types.h"
#include "os_thread.h"
#include "place_ranks.h"
#include "session_file.h"

enum { KERNELS_BYTES = 16 };

/* ---- opening --------------------------------------------------------------------------------- */

pi_cluster_options pi_cluster_default_options(void) {
    return (pi_cluster_options){.timeout = 30};
}

static void lost(void *user, const char *why) {
    const pi_cluster *c = user;
    if (c->options.lost) c->options.lost(c->options.user, why);
}

static void give_up(void *user, const char *why) {
    const pi_cluster *c = user;
    if (c->options.give_up) c->options.give_up(c->options.user, why);
}

pi_status pi_cluster_open(const pi_cluster_options *options, pi_cluster **out, pi_error *err) {
    *out = NULL;
    pi_cluster *c = mem_calloc(1, sizeof *c);
    if (!c) return error_nomem(err, sizeof *c, "cluster");
    c->options = options ? *options : pi_cluster_default_options();
    if (c->options.settings) snprintf(c->settings, sizeof c->settings, "%s", c->options.settings);
    const cluster_transport_options transport = {
        .timeout = c->options.timeout, .lost = lost, .give_up = give_up, .user = c};
    pi_status status = cluster_open_mpi(&transport, &c->ranks, err);
    if (status == PI_OK)
        *out = c;
    else
        mem_free(c);
    return status;
}

int32_t pi_cluster_rank(const pi_cluster *c) {
    return cluster_rank(c->ranks);
}
int32_t pi_cluster_size(const pi_cluster *c) {
    return cluster_ranks(c->ranks);
}
void pi_cluster_fail(pi_cluster *c) {
    cluster_fail(c->ranks);
}
void pi_cluster_abort(pi_cluster *c, const char *why) {
    cluster_abort(c->ranks, why);
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef enum work_op { WORK_START = 100, WORK_MEASURE, WORK_LAYERS, WORK_CLOSE } work_op;

/* Everything that results depend on. */
typedef struct work_start {
    uint32_t op;
    char version[16];
    uint64_t model, adapters; /* hashes */
    char settings[CLUSTER_SETTINGS_BYTES];
    char kernels[KERNELS_BYTES];
    int32_t n_batch, n_logits;
    int32_t type_k, type_v;
    int64_t n_positions;
    float expert_slack;
    int32_t mode, predict_head, attn_blocks;
    bool few_only, set_threshold;
    float max_loss, threshold;
    uint64_t cache_bytes;
    bool measure_prefill; /* WORK_MEASURE: also time prefill */
} work_start;

typedef struct work_layers {
    uint32_t op;
    int32_t end[CLUSTER_MAX_RANKS];
} work_layers;

typedef struct work_answer {
    int32_t status;
    char message[PI_ERROR_TEXT_MAX];
    place_rank measured;
    bool needs_model;   /* the metadata, and then the layers */
    uint64_t adapters;  /* bit i: it needs adapter i */
    int32_t first, end; /* layers that it will measure */
} work_answer;

static pi_status tell_rank(cluster *ranks, int rank, const void *data, size_t n, pi_error *err) {
    void *message;
    pi_status status = cluster_reserve(ranks, n, &message, err);
    if (status != PI_OK) return status;
    memcpy(message, data, n);
    return cluster_send(ranks, rank, CLUSTER_COMMANDS, err);
}

static pi_status tell(cluster *ranks, const void *data, size_t n, pi_error *err) {
    pi_status status = PI_OK;
    for (int rank = 1; rank < cluster_ranks(ranks) && status == PI_OK; rank++)
        status = tell_rank(ranks, rank, data, n, err);
    return status;
}

pi_status api_cluster_hear(cluster *ranks, int rank, work_answer *out, pi_error *err) {
    cluster_buffer b = {0};
    work_answer answer;
    pi_status status = cluster_receive(ranks, rank, CLUSTER_REPLIES, &b, err);
    if (status == PI_OK && b.n != sizeof answer)
        status = error_set(err, PI_ERR_FORMAT,
                           "rank %d (%s) runs another version: install one release on all machines",
                           rank, cluster_host(ranks, rank));
    if (status == PI_OK) {
        memcpy(&answer, b.data, sizeof answer);
        answer.message[sizeof answer.message - 1] = '\0';
        if (answer.status != PI_OK)
            status = cluster_name_rank(ranks, rank, (pi_status)answer.status, answer.message, err);
        if (out) *out = answer;
    }
    cluster_buffer_free(&b);
    return status;
}

/* Receives the answers of all other ranks; returns the first error. out: [ranks], or NULL. */
static pi_status hear(cluster *ranks, work_answer *out, pi_error *err) {
    pi_status first = PI_OK;
    for (int rank = 1; rank < cluster_ranks(ranks) && !cluster_failed(ranks); rank++) {
        pi_status status = api_cluster_hear(ranks, rank, out ? &out[rank] : NULL,
                                            first == PI_OK ? err : NULL);
        if (first == PI_OK) first = status;
    }
    return first;
}

/* content: NULL, or what to answer besides the status. */
static pi_status answer(cluster *ranks, pi_status result, const pi_error *why,
                        const work_answer *content, pi_error *err) {
    void *message;
    pi_status status = cluster_reserve(ranks, sizeof(work_answer), &message, err);
    if (status != PI_OK) return status;
    work_answer *a = message;
    memset(a, 0, sizeof *a);
    if (content) *a = *content;
    a->status = (int32_t)result;
    if (result != PI_OK) memcpy(a->message, why->message, sizeof a->message);
    return cluster_send(ranks, 0, CLUSTER_REPLIES, err);
}

/* Answers with an error in the middle of a transfer, and then receives what rank 0 has already
 * sent. Rank 0 ends all ranks. */
static pi_status refuse(cluster *ranks, const pi_error *why, pi_error *err) {
    cluster_buffer b = {0};
    pi_status status = answer(ranks, why->status, why, NULL, err);
    while (status == PI_OK) status = cluster_receive(ranks, 0, CLUSTER_BULK, &b, err);
    cluster_buffer_free(&b);
    return status;
}

void pi_cluster_close(pi_cluster *c) {
    if (!c) return;
    const work_start close = {.op = WORK_CLOSE};
    if (cluster_rank(c->ranks) == 0 && !cluster_failed(c->ranks))
        (void)tell(c->ranks, &close, sizeof close, NULL);
    cluster_close(c->ranks);
    for (int i = 0; i < CLUSTER_MAX_RANKS; i++) mem_free(c->sent[i]);
    cluster_buffer_free(&c->start);
    mem_free(c);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void describe(const pi_cluster *c, const model *m, const engine_options *o,
                     work_start *out) {
    cpu_kernels kernels;
    memset(out, 0, sizeof *out);
    out->op = WORK_START;
    snprintf(out->version, sizeof out->version, "%s", pi_version());
    out->model = session_model_hash(m);
    out->adapters = m->adapters_hash;
    memcpy(out->settings, c->settings, sizeof out->settings);
    if (cpu_kernels_get(o->tier, &kernels))
        snprintf(out->kernels, sizeof out->kernels, "%s", kernels.name);
    out->n_batch = o->n_batch;
    out->n_logits = o->n_logits;
    out->type_k = (int32_t)o->type_k;
    out->type_v = (int32_t)o->type_v;
    out->n_positions = o->n_positions;
    out->expert_slack = o->expert_slack;
    out->mode = (int32_t)o->plan.mode;
    out->predict_head = (int32_t)o->plan.predict_head;
    out->attn_blocks = o->plan.attn_blocks;
    out->few_only = o->plan.few_only;
    out->set_threshold = o->plan.set_threshold;
    out->max_loss = o->plan.max_loss;
    out->threshold = o->plan.threshold;
    out->cache_bytes = o->plan.cache_bytes;
}

static void take_over(const work_start *k, engine_options *o) {
    o->n_batch = k->n_batch;
    o->n_logits = k->n_logits;
    o->type_k = (quant_type)k->type_k;
    o->type_v = (quant_type)k->type_v;
    o->n_positions = k->n_positions;
    o->expert_slack = k->expert_slack;
    o->plan.mode = (pi_mode)k->mode;
    o->plan.predict_head = (pi_head)k->predict_head;
    o->plan.attn_blocks = k->attn_blocks;
    o->plan.few_only = k->few_only;
    o->plan.set_threshold = k->set_threshold;
    o->plan.max_loss = k->max_loss;
    o->plan.threshold = k->threshold;
    o->plan.cache_bytes = k->cache_bytes;
}

/* The first line of two texts that differs. */
static bool differing_line(const char *a, const char *b, int *at) {
    int line = 0;
    for (int i = 0;; i++) {
        if (a[i] != b[i]) {
            *at = line;
            return true;
        }
        if (!a[i]) return false;
        if (a[i] == '\n') line = i + 1;
    }
}

static pi_status compare_version(const work_start *first, pi_error *err) {
    if (strcmp(pi_version(), first->version) == 0) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED, "version %s, rank 0 has %s: install one release",
                     pi_version(), first->version);
}

static pi_status compare(const work_start *own, const work_start *first, pi_error *err) {
    int at;
    pi_status status = compare_version(first, err);
    if (status != PI_OK) return status;
    if (own->model != first->model)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "another model file than on rank 0: copy that file, or name it");
    if (differing_line(own->settings, first->settings, &at))
        return error_set(err, PI_ERR_ARG, "other options than on rank 0: %.*s instead of %.*s",
                         (int)strcspn(own->settings + at, "\n"), own->settings + at,
                         (int)strcspn(first->settings + at, "\n"), first->settings + at);
    if (own->adapters != first->adapters)
        return error_set(err, PI_ERR_UNSUPPORTED, "other adapters than on rank 0");
    if (strcmp(own->kernels, first->kernels) != 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "%s kernels, rank 0 has %s: choose kernels that all machines have",
                         own->kernels, first->kernels);
    return PI_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* The layers that a rank measures: their weights are large compared with the last-level cache. Rank
 * 0: the first ones; others: the last ones. A rank that receives the model will probably have those
 * around its share of equal ones. */
static void choose_measured(const pi_model *m, int rank, int n_ranks, int *first, int *end) {
    const int n = m->weights->hp.n_layer;
    const uint64_t enough = 4 * cpu_last_cache();
    *first = rank == 0 ? 0 : m->received ? n * rank / n_ranks : n - 1;
    *end = *first + 1;
    while (*end - *first < n && place_layer_bytes(m->weights, *first, *end, true) < enough) {
        if (*end < n)
            ++*end;
        else
            --*first;
    }
}

enum { PREFILL_TOKENS = 128 };

/* Tokens of the ubatch that is timed to predict prefill. */
static int prefill_tokens(const engine_options *o) {
    return o->n_batch < PREFILL_TOKENS ? o->n_batch : PREFILL_TOKENS;
}

/* The mean time of the context's layers, or of the output head, for a ubatch of n_tokens; every
 * round has other tokens. The first rounds do not count: new threads still share cores, and weights
 * are read from the file. Between two tokens a rank pauses, since in decode it waits for others:
 * then its threads sleep, and its core may slow down. */
static pi_status time_rounds(const pi_context *c, int n_tokens, bool head, double *mean,
                             pi_error *err) {
    enum { LEAST = 3, MOST = 100, STRIDE = 7919 /* prime; spreads tokens over the vocabulary */ };
    const double warm_up = 0.15, measured = 0.4, longest_pause = 0.02;
    double elapsed = 0, sum = 0;
    int32_t tokens[PREFILL_TOKENS];
    pi_input in = {
        .tokens = tokens, .n_tokens = n_tokens, .logits = head ? PI_LOGITS_LAST : PI_LOGITS_NONE};
    int n = 0;
    int64_t token = 0;
    pi_status status = engine_session_create(c->engine, n_tokens, &in.session, err);
    while (status == PI_OK && n < MOST && (n < LEAST || sum < measured)) {
        double seconds = 0;
        for (int i = 0; i < n_tokens; i++, token += STRIDE)
            tokens[i] = (int32_t)(token % c->model->weights->hp.n_vocab);
        status = engine_time_stage(c->engine, &in, &seconds, err);
        if (elapsed >= warm_up) {
            sum += seconds;
            n++;
            if (n_tokens == 1) os_sleep(fmin(seconds, longest_pause));
        }
        elapsed += seconds;
    }
    if (status == PI_OK) *mean = sum / n;
    engine_session_destroy(in.session);
    return status;
}

/* Bytes of weights that fit on the context's GPUs together with their KV caches; 0: no GPUs. */
static uint64_t gpu_room(const pi_context *c) {
    double n = 0;
    for (int i = 0; i < c->gpus.n; i++) {
        const api_gpu *g = &c->gpu[i];
        const double weights = (double)g->bytes.weights, budget = (double)c->gpus.gpu[i].budget;
        const double fixed = (double)(c->gpus.gpu[i].runtime + g->bytes.scratch + g->programs);
        if (budget > fixed && weights > 0)
            n += (budget - fixed) * weights / (weights + (double)g->kv);
    }
    return (uint64_t)n;
}

/* Layers [first, end) that are timed, and with `head` the output head. */
typedef struct timed_part {
    int first, end, n_tokens;
    bool head;
} timed_part;

typedef struct timed_rate {
    double seconds_per_byte, head_seconds;
    uint64_t gpu_room; /* of GPUs that computed the layers; 0: none */
} timed_rate;

static pi_status time_part(const pi_context *c, const pi_context_options *o, const timed_part *p,
                           timed_rate *out, pi_error *err) {
    pi_context part = {.model = c->model, .options = c->options};
    double seconds = 0;
    *out = (timed_rate){0};
    part.options.ram_budget = 0;
    part.options.plan.first_layer = p->first;
    part.options.plan.end_layer = p->end;
    pi_status status = api_place(&part, o, err);
    if (status == PI_OK) status = time_rounds(&part, p->n_tokens, false, &seconds, err);
    if (status == PI_OK && p->head)
        status = time_rounds(&part, p->n_tokens, true, &out->head_seconds, err);
    out->seconds_per_byte = seconds /
                            (double)place_layer_bytes(c->model->weights, p->first, p->end, true);
    out->gpu_room = gpu_room(&part);
    api_close(&part);
    api_close_weights(&part);
    return status;
}

/* Measures this rank. Ranks on one machine share its memory. Layers that do not fit on the GPUs run
 * on the CPU, so GPUs and CPU are measured. Prefill depends little on the caches of the CPU: one
 * layer is enough. */
static pi_status measure(const cluster *ranks, const pi_context *c, const pi_context_options *o,
                         bool prefill, place_rank *out, pi_error *err) {
    const int own = cluster_rank(ranks), n = cluster_ranks(ranks);
    const pi_model *m = c->model;
    pi_context_options options = *o;
    timed_part part = {.n_tokens = 1, .head = own == 0};
    timed_rate rate;
    int n_here = 0;
    for (int i = 0; i < n; i++)
        n_here += strcmp(cluster_host(ranks, i), cluster_host(ranks, own)) == 0;
    uint64_t room = memory_room();
    *out = (place_rank){.memory = room == UINT64_MAX ? room : room / 12 * 11 / (uint64_t)n_here};
    if (m->received && api_received_in_memory(m->received) && room != UINT64_MAX)
        out->memory += api_received_bytes(m->received);
    if (c->options.ram_budget > 0 && c->options.ram_budget < out->memory)
        out->memory = c->options.ram_budget;
    options.ram_budget = PI_RAM_MAPPED;
    choose_measured(m, own, n, &part.first, &part.end);
    pi_status status = time_part(c, &options, &part, &rate, err);
    out->seconds_per_byte = rate.seconds_per_byte;
    out->head_seconds = rate.head_seconds;
    part.head = false;
    if (status == PI_OK && rate.gpu_room > 0) {
        out->gpu_seconds_per_byte = rate.seconds_per_byte;
        out->gpu_memory = rate.gpu_room;
        options.device = PI_DEVICE_CPU;
        status = time_part(c, &options, &part, &rate, err);
        out->seconds_per_byte = rate.seconds_per_byte;
        options.device = o->device;
    }
    if (status != PI_OK || !prefill) return status;
    part.end = part.first + 1;
    part.n_tokens = prefill_tokens(&c->options);
    status = time_part(c, &options, &part, &rate, err);
    out->prefill_per_byte = rate.seconds_per_byte;
    return status;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

/* Machines measure at the same time, but ranks of one machine one after the other: a token uses one
 * rank at a time. answers: [ranks], to START; then their `measured` is filled in. */
static pi_status measure_all(const pi_context *c, const pi_context_options *o, pi_cluster *group,
                             work_answer *answers, pi_error *err) {
    const bool prefill = group->options.measure_prefill;
    const work_start ask = {.op = WORK_MEASURE, .measure_prefill = prefill};
    const int n = cluster_ranks(group->ranks);
    int turn[CLUSTER_MAX_RANKS] = {0}, n_turns = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            turn[i] += strcmp(cluster_host(group->ranks, i), cluster_host(group->ranks, j)) == 0;
        if (turn[i] >= n_turns) n_turns = turn[i] + 1;
    }
    pi_status status = PI_OK;
    for (int k = 0; k < n_turns && status == PI_OK; k++) {
        for (int i = 1; i < n && status == PI_OK; i++) {
            if (turn[i] != k) continue;
            status = tell_rank(group->ranks, i, &ask, sizeof ask, err);
            if (status == PI_OK && group->sent[i])
                status = api_file_send_layers(group, i, c->model, answers[i].first, answers[i].end,
                                              err);
        }
        if (k == 0 && status == PI_OK)
            status = measure(group->ranks, c, o, prefill, &answers[0].measured, err);
        for (int i = 1; i < n && status == PI_OK; i++)
            if (turn[i] == k) status = api_cluster_hear(group->ranks, i, &answers[i], err);
    }
    return status;
}

static pi_status divide(pi_context *c, const pi_context_options *o, pi_cluster *group,
                        work_answer *answers, pi_error *err) {
    const model *m = c->model->weights;
    const int n = cluster_ranks(group->ranks);
    place_rank measured[CLUSTER_MAX_RANKS];
    if (group->options.n_split > 0) {
        place_ranks_split(m->hp.n_layer, group->options.split, n, c->stages.end);
        return PI_OK;
    }
    pi_status status = measure_all(c, o, group, answers, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < n; i++) measured[i] = answers[i].measured;
    place_ranks_solve(m, measured, n, c->stages.end);
    for (int i = 0; i < n; i++) {
        const int first = i > 0 ? c->stages.end[i - 1] : 0, end = c->stages.end[i];
        c->predicted[i] = place_rank_seconds(m, &measured[i], first, end);
        c->predicted_prefill[i] = place_rank_prefill(m, &measured[i], first, end);
    }
    return PI_OK;
}

/* The layers of this rank. */
static void set_layers(pi_context *c, const pi_cluster *group) {
    int rank = cluster_rank(group->ranks);
    c->stages.cluster = group->ranks;
    c->options.stages = &c->stages;
    c->options.plan.first_layer = rank > 0 ? c->stages.end[rank - 1] : 0;
    c->options.plan.end_layer = c->stages.end[rank];
}

/* Sends the ranks that need it what opening the model needs, and hears their second answers. */
static pi_status send_heads(pi_context *c, pi_cluster *group, work_answer *answers, pi_error *err) {
    pi_status status = PI_OK;
    for (int i = 1; i < cluster_ranks(group->ranks) && status == PI_OK; i++)
        if (answers[i].needs_model)
            status = api_file_send_head(group, i, c->model, answers[i].adapters, err);
    for (int i = 1; i < cluster_ranks(group->ranks) && status == PI_OK; i++)
        if (answers[i].needs_model) status = api_cluster_hear(group->ranks, i, &answers[i], err);
    return status;
}

static pi_status begin(pi_context *c, const pi_context_options *o, pi_error *err) {
    pi_cluster *group = o->cluster;
    const model *m = c->model->weights;
    const int n = cluster_ranks(group->ranks);
    work_answer answers[CLUSTER_MAX_RANKS];
    work_start start;
    work_layers layers = {.op = WORK_LAYERS};
    if (n > m->hp.n_layer)
        return error_set(err, PI_ERR_ARG,
                         "%d ranks for %d layers: start at most one for each layer", n,
                         m->hp.n_layer);
    if (group->options.n_split > 0 && group->options.n_split != n)
        return error_set(err, PI_ERR_ARG,
                         "%d proportions of layers for %d ranks: give one for each",
                         group->options.n_split, n);
    if (c->options.plan.cache_bytes == 0) c->options.plan.cache_bytes = cpu_last_cache();
    describe(group, m, &c->options, &start);
    pi_status status = tell(group->ranks, &start, sizeof start, err);
    if (status == PI_OK) status = hear(group->ranks, answers, err);
    if (status == PI_OK) status = send_heads(c, group, answers, err);
    if (status == PI_OK) status = divide(c, o, group, answers, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < n; i++) layers.end[i] = c->stages.end[i];
    set_layers(c, group);
    status = tell(group->ranks, &layers, sizeof layers, err);
    for (int i = 1; i < n && status == PI_OK; i++)
        if (group->sent[i])
            status = api_file_send_layers(group, i, c->model, c->stages.end[i - 1],
                                          c->stages.end[i], err);
    return status;
}

/* After an error the other ranks are at an unknown point: the cluster ends. */
pi_status api_cluster_begin(pi_context *c, const pi_context_options *o, pi_error *err) {
    pi_status status = begin(c, o, err);
    c->cluster = o->cluster;
    if (status != PI_OK) cluster_fail(o->cluster->ranks);
    return status;
}

pi_status api_cluster_end(pi_context *c, pi_error *err) {
    pi_status status = hear(c->cluster->ranks, NULL, err);
    if (status != PI_OK) cluster_fail(c->cluster->ranks);
    return status;
}

/* ---- other ranks ----------------------------------------------------------------------------- */

/* Creates this rank's part of a context and computes until rank 0 destroys it. */
static pi_status work_on(pi_cluster *group, pi_context *c, const pi_context_options *o,
                         const work_layers *layers, pi_error *err) {
    const pi_model *m = c->model;
    pi_error why;
    for (int i = 0; i < cluster_ranks(group->ranks); i++) c->stages.end[i] = layers->end[i];
    set_layers(c, group);
    if (m->received && api_file_receive_layers(group->ranks, m, c->options.plan.first_layer,
                                               c->options.plan.end_layer, &why) != PI_OK)
        return refuse(group->ranks, &why, err);
    pi_status made = api_place(c, o, &why);
    pi_status status = answer(group->ranks, made, &why, NULL, err);
    if (status == PI_OK && made == PI_OK) status = engine_work(c->engine, err);
    api_close(c);
    api_close_weights(c);
    return status;
}

static pi_status next_command(cluster *ranks, cluster_buffer *b, uint32_t *op, pi_error *err) {
    pi_status status = cluster_receive(ranks, 0, CLUSTER_COMMANDS, b, err);
    if (status != PI_OK) return status;
    if (b->n < sizeof *op) return error_set(err, PI_ERR_FORMAT, "a command has a wrong size");
    memcpy(op, b->data, sizeof *op);
    return PI_OK;
}

static pi_status obey(pi_cluster *group, const pi_model *opened, const pi_context_options *o,
                      const work_start *first, cluster_buffer *b, pi_error *err) {
    pi_context c = {.model = opened};
    const model *m = opened->weights;
    const int rank = cluster_rank(group->ranks), n_ranks = cluster_ranks(group->ranks);
    work_start own;
    work_answer content = {0};
    uint32_t op = 0;
    pi_error why;
    pi_status result = option_engine(m, o, &c.options, &why);
    if (result == PI_OK) {
        option_apply_tuning(m, o, &c.options);
        describe(group, m, &c.options, &own);
        result = compare(&own, first, &why);
        take_over(first, &c.options);
    }
    choose_measured(opened, rank, n_ranks, &content.first, &content.end);
    pi_status status = answer(group->ranks, result, &why, &content, err);
    if (status == PI_OK) status = next_command(group->ranks, b, &op, err);
    if (status == PI_OK && op == WORK_MEASURE) {
        work_start ask;
        if (b->n != sizeof ask)
            return error_set(err, PI_ERR_FORMAT, "a command of rank 0 has a wrong size");
        memcpy(&ask, b->data, sizeof ask);
        if (opened->received && api_file_receive_layers(group->ranks, opened, content.first,
                                                        content.end, &why) != PI_OK)
            return refuse(group->ranks, &why, err);
        result = measure(group->ranks, &c, o, ask.measure_prefill, &content.measured, &why);
        status = answer(group->ranks, result, &why, &content, err);
        if (status == PI_OK) status = next_command(group->ranks, b, &op, err);
    }
    if (status != PI_OK || op == WORK_CLOSE) return status;
    if (op != WORK_LAYERS || b->n != sizeof(work_layers))
        return error_set(err, PI_ERR_FORMAT, "a command of rank 0 has a wrong size");
    work_layers layers;
    memcpy(&layers, b->data, sizeof layers);
    return work_on(group, &c, o, &layers, err);
}

/* Takes the next START; WORK_CLOSE in *op: rank 0 has left. */
static pi_status next_start(pi_cluster *group, cluster_buffer *b, uint32_t *op, pi_error *err) {
    do { /* other commands: the end of a context that was not created here */
        pi_status status = next_command(group->ranks, b, op, err);
        if (status != PI_OK) return status;
    } while (*op != WORK_START && *op != WORK_CLOSE);
    if (*op == WORK_CLOSE || b->n == sizeof(work_start)) return PI_OK;
    return error_set(err, PI_ERR_FORMAT, "rank 0 runs another version");
}

pi_status pi_cluster_receive(pi_cluster *group, const char *folder, const pi_model_options *options,
                             pi_model **out, pi_error *err) {
    const pi_model_options o = options ? *options : pi_model_default_options();
    work_answer needs = {.needs_model = true};
    work_start first;
    uint32_t op = 0;
    pi_error why = {.status = PI_OK};
    *out = NULL;
    pi_status status = next_start(group, &group->start, &op, err);
    if (status == PI_OK && op == WORK_CLOSE) {
        group->start.n = 0;
        return PI_OK;
    }
    if (status == PI_OK) {
        memcpy(&first, group->start.data, sizeof first);
        for (size_t i = 0; i < o.n_adapters && i < CLUSTER_ADAPTERS; i++)
            if (!file_exists(o.adapters[i].path)) needs.adapters |= UINT64_C(1) << i;
        pi_status result = compare_version(&first, &why);
        status = answer(group->ranks, result, &why, &needs, err);
        if (status == PI_OK && result == PI_OK)
            result = api_file_receive_head(group->ranks, folder, &o, needs.adapters, out, &why);
        if (status == PI_OK && result != PI_OK) status = refuse(group->ranks, &why, err);
    }
    if (status != PI_OK) cluster_fail(group->ranks);
    return status;
}

pi_status pi_cluster_work(pi_cluster *group, const pi_model *opened,
                          const pi_context_options *options, pi_error *err) {
    pi_context_options o = *options;
    cluster_buffer b = group->start; /* pi_cluster_receive took the first one */
    pi_status status = PI_OK;
    o.max_batch = 0; /* ubatches are rank 0's */
    group->start = (cluster_buffer){0};
    for (bool taken = b.n > 0;; taken = false) {
        uint32_t op = WORK_START;
        work_start first;
        if (!taken) status = next_start(group, &b, &op, err);
        if (status != PI_OK || op == WORK_CLOSE) break;
        memcpy(&first, b.data, sizeof first);
        status = obey(group, opened, &o, &first, &b, err);
        if (status != PI_OK) break;
    }
    cluster_buffer_free(&b);
    if (status != PI_OK) cluster_fail(group->ranks);
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

int32_t pi_context_ranks(const pi_context *c) {
    return c->cluster ? cluster_ranks(c->cluster->ranks) : 1;
}

pi_status pi_context_get_ranks(pi_context *c, pi_rank *out, pi_error *err) {
    engine_rank_usage usage[CLUSTER_MAX_RANKS];
    const model *m = c->model->weights;
    if (!c->cluster) return error_set(err, PI_ERR_ARG, "the context has no cluster");
    pi_status status = engine_get_ranks(c->engine, usage, err);
    if (status != PI_OK) return status;
    for (int i = 0; i < cluster_ranks(c->cluster->ranks); i++) {
        int first = i > 0 ? c->stages.end[i - 1] : 0, end = c->stages.end[i];
        out[i] = (pi_rank){.host = cluster_host(c->cluster->ranks, i),
                           .first_layer = first,
                           .end_layer = end,
                           .weight_bytes = place_layer_bytes(m, first, end, false) +
                                           (i == 0 ? place_global_bytes(m, false) : 0),
                           .predicted_seconds = c->predicted[i],
                           .predicted_prefill_seconds = c->predicted_prefill[i],
                           .predicted_tokens = prefill_tokens(&c->options),
                           .computing = usage[i].computing,
                           .waiting = usage[i].waiting,
                           .sending = usage[i].sending,
                           .sent_bytes = usage[i].sent_bytes,
                           .ubatches = usage[i].ubatches};
    }
    return PI_OK;
}
