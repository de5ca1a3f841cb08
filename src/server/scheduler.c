/* scheduler.c: the step loop.
 *
 * Only the scheduler's thread uses the slots. The lock guards the queue, the second part of the
 * sequences, and the copies of statistics and slots for other threads. The lock is never held
 * during a forward pass or while a token is sampled. */
#include "scheduler.h"

#include <math.h>
#include <string.h>

#include "clock.h"
#include "log_sum_exp.h"
#include "mem.h"
#include "os_socket.h"
#include "scheduler_slot.h"

/* Maximum prompt tokens of a step in which other sequences generate: they take about as long as a
 * few decode steps, and are enough for the kernels that read weights once for many tokens. */
enum { PIECE_TOKENS = 64 };
/* Maximum prompt tokens of such a step in a deterministic context: its ubatches have 8 tokens. */
enum { DETERMINISTIC_PIECE = 8 };
/* Rows of logits per step for prompt tokens whose probabilities are requested. */
enum { ECHO_ROWS = 32 };
/* Ubatches of a prompt in a step, if there is only this sequence and several machines compute
 * ubatches at the same time. */
enum { STAGED_UBATCHES = 8 };

/* A step: a forward pass, and the slots that take part in it. */
typedef struct pass {
    pi_input *inputs; /* [n_slots] */
    slot **slots;     /* [n_slots] slots of these inputs */
    int n;
    int32_t n_piece; /* prompt tokens among the inputs */
    double begun;    /* time */
} pass;

struct scheduler {
    scheduler_options options;
    pi_context *context;
    slot *slots;  /* [n_slots] */
    pass *passes; /* [n_passes] ring of the passes under way */
    int n_passes, first_pass, n_begun;
    double last_end;     /* time when the last pass ended */
    uint64_t n_steps;    /* passes that began */
    slot **ready;        /* [n_slots] slots that the next step may take */
    pi_draft *drafts;    /* [n_slots] */
    prompt_store *store; /* NULL: none */
    float *forced;       /* [n_vocab] logits: -inf, but 0 for a token that must be sampled */
    bool watching;       /* the step counts active neurons */
    os_socket *watched;  /* [n_slots + max_queue] clients' sockets */
    sequence **watchers; /* [n_slots + max_queue] sequences of these sockets */
    bool *closed;        /* [n_slots + max_queue] */
    uint64_t order;
    int32_t n_vocab, n_embd;
    double *served, *weights; /* [shares.n] tokens of each account over its weight; weights */
    double level;             /* served[] of the account that was the last to have sequences */
    int32_t *n_sequences;     /* [shares.n] sequences that wait or have a slot */

    os_thread thread;
    bool has_thread, has_lock;
    os_mutex lock;
    os_condition wake;      /* work has arrived */
    sequence *first, *last; /* the queue */
    slot_job *jobs;         /* jobs that wait for their slot */
    os_condition job_done;
    bool stopping;
    scheduler_stats stats;
    slot_view *views; /* [n_slots] */
};

/* Maximum drafted tokens of a step: half of the batch that remains after one token of each slot;
 * prompts need the other half. */
static int32_t draft_rows(const scheduler_options *o) {
    int32_t half = (o->context.n_batch - o->n_slots) / 2;
    return half < SLOT_DRAFT_ROWS ? half : SLOT_DRAFT_ROWS;
}

/* Rows of logits of a step: one token of each slot, drafts, and prompt tokens. */
static int32_t logits_rows(const scheduler_options *o) {
    return o->n_slots + (o->speculator ? draft_rows(o) : 0) + ECHO_ROWS;
}

/* ---- ends of sequences; all called under the lock -------------------------------------------- */

/* Counts tokens that were computed for a sequence. */
static void charge(scheduler *s, const sequence *q, int32_t n_tokens) {
    s->served[q->account] += (double)n_tokens / s->weights[q->account];
}

/* Counts a sequence that arrives. An account that had none starts level with the least served of
 * those that have some, or, if there are none, with the one that was the last to have some: neither
 * silence nor use while the others were silent counts. */
static void enter(scheduler *s, const sequence *q) {
    double least = INFINITY;
    if (s->n_sequences[q->account]++ > 0) return;
    for (int i = 0; i < s->options.shares.n; i++)
        if (i != q->account && s->n_sequences[i] > 0 && s->served[i] < least) least = s->served[i];
    if (!isfinite(least)) least = s->level;
    if (s->served[q->account] < least) s->served[q->account] = least;
}

/* Counts a sequence that ends. */
static void leave(scheduler *s, const sequence *q) {
    if (--s->n_sequences[q->account] == 0) s->level = s->served[q->account];
}

static void unreference(sequence *q) {
    if (--q->references == 0) sequence_free(q);
}

/* Signals the reader, and drops the scheduler's reference. */
static void let_go(scheduler *s, sequence *q) {
    q->times.last_token = clock_seconds();
    if (q->times.first_token > 0) {
        s->stats.prompt_seconds += q->times.first_token - q->times.started;
        s->stats.generated_seconds += q->times.last_token - q->times.first_token;
    }
    if (q->finish == FINISH_GONE) s->stats.left++;
    leave(s, q);
    if (!q->abandoned) os_condition_signal(q->news);
    unreference(q);
}

static void release_slot(scheduler *s, slot *t) {
    sequence *q = t->sequence;
    t->sequence = NULL;
    t->state = SLOT_FREE;
    t->order = ++s->order;
    s->stats.processing--;
    let_go(s, q);
}

static void drop_queued(scheduler *s, finish_reason (*why)(const sequence *q)) {
    sequence **link = &s->first, *before = NULL;
    while (*link) {
        sequence *q = *link;
        finish_reason reason = why(q);
        if (reason == FINISH_NONE) {
            before = q;
            link = &q->next;
            continue;
        }
        *link = q->next;
        if (s->last == q) s->last = before;
        s->stats.waiting--;
        sequence_end(q, reason);
        let_go(s, q);
    }
}

/* ---- clients that have left ------------------------------------------------------------------ */

static int watch(scheduler *s, sequence *q, int n) {
    if (q->abandoned || q->fd == OS_SOCKET_NONE) return n;
    s->watched[n] = q->fd;
    s->watchers[n] = q;
    return n + 1;
}

/* Called under the lock. Sockets stay open until their sequences are abandoned, which needs this
 * lock. */
static void find_who_left(scheduler *s) {
    int n = 0;
    for (int i = 0; i < s->options.n_slots; i++)
        if (s->slots[i].sequence && !s->slots[i].in_step) n = watch(s, s->slots[i].sequence, n);
    for (sequence *q = s->first; q; q = q->next) n = watch(s, q, n);
    os_sockets_find_closed(s->watched, (size_t)n, s->closed);
    for (int i = 0; i < n; i++)
        if (s->closed[i]) sequence_end(s->watchers[i], FINISH_GONE);
    for (int i = 0; i < s->options.n_slots; i++) {
        slot *t = &s->slots[i];
        if (!t->sequence || t->in_step) continue;
        if (t->sequence->abandoned) sequence_end(t->sequence, FINISH_GONE);
        if (t->sequence->finish != FINISH_NONE) release_slot(s, t);
    }
}

static finish_reason why_gone(const sequence *q) {
    return q->finish == FINISH_NONE && q->abandoned ? FINISH_GONE : q->finish;
}

/* Called under the lock: ends sequences whose time is over. Text generated so far is the answer. */
static void end_late(scheduler *s) {
    const double now = clock_seconds();
    for (int i = 0; i < s->options.n_slots; i++) {
        slot *t = &s->slots[i];
        sequence *q = t->sequence;
        if (!q || t->in_step || q->deadline == 0 || now < q->deadline) continue;
        sequence_end(q, q->n_tokens > q->n_echo ? FINISH_LENGTH : FINISH_TIMEOUT);
        s->stats.late++;
        release_slot(s, t);
    }
    for (sequence *q = s->first; q; q = q->next) {
        if (q->deadline == 0 || now < q->deadline || q->finish != FINISH_NONE) continue;
        sequence_end(q, FINISH_TIMEOUT); /* drop_queued removes it */
        s->stats.late++;
    }
}

/* The link in the queue to the sequence that starts next. */
static sequence **next_queued(scheduler *s) {
    sequence **best = &s->first;
    for (sequence **link = &s->first->next; *link; link = &(*link)->next) {
        const sequence *q = *link, *b = *best;
        const bool less = s->served[q->account] < s->served[b->account];
        if (q->priority < b->priority || (q->priority == b->priority && less)) best = link;
    }
    return best;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Starts sequences that wait while slots are free. Copying states takes time: while others
 * generate, one sequence starts per step. */
static void start_queued(scheduler *s) {
    bool generates = false;
    for (int i = 0; i < s->options.n_slots; i++) generates |= s->slots[i].state == SLOT_DECODE;
    for (bool more = true; more && s->first && !s->stopping; more = !generates || !s->store) {
        sequence **link = next_queued(s), *q = *link;
        slot *t = slot_choose(s->slots, s->options.n_slots, q);
        if (!t) return;
        *link = q->next;
        s->last = NULL;
        for (sequence *left = s->first; left; left = left->next) s->last = left;
        q->next = NULL;
        q->times.started = clock_seconds();
        histogram_add(&s->stats.queue_seconds, q->times.started - q->times.queued);
        s->stats.waiting--;
        s->stats.processing++;
        os_mutex_unlock(&s->lock); /* states are copied; no other thread uses a free slot */
        slot_prepare(t, q, s->store);
        os_mutex_lock(&s->lock);
        if (s->store) s->stats.store = prompt_store_get_stats(s->store);
        slot_start(s->slots, (int)(t - s->slots), q, s->options.speculator, ++s->order);
    }
}

/* Whether the request asks for probabilities of the prompt's tokens. */
static bool echoes(const sequence *q) {
    return q->echo && q->n_top >= 0;
}

/* n_new: tokens that the slot has not fed before. last: the last token ends the text so far, or a
 * draft of its continuation. */
static void add_input(pass *p, slot *t, pi_input in, int32_t n_new, bool last) {
    pooling kind = t->sequence->pooling;
    in.session = t->session;
    if (kind == POOLING_MEAN) in.hidden = PI_HIDDEN_ALL;
    if (kind == POOLING_LAST && last) in.hidden = PI_HIDDEN_LAST;
    if (kind == POOLING_NONE && last) in.logits = PI_LOGITS_LAST;
    if (t->state == SLOT_PROMPT && echoes(t->sequence)) in.logits = PI_LOGITS_ALL;
    t->piece = n_new;
    p->inputs[p->n] = in;
    p->slots[p->n++] = t;
}

/* Finds the slots that can read their prompts in the next step, those with the fewest tokens left
 * first; returns their number. Slots that started earlier are tried first: later ones wait for the
 * prefixes that they have in common. */
static int find_prompts(scheduler *s, slot **found) {
    int n = 0;
    uint64_t after = 0;
    for (;;) {
        slot *next = NULL;
        for (int i = 0; i < s->options.n_slots; i++) {
            slot *t = &s->slots[i];
            if (t->state == SLOT_PROMPT && !t->in_step && t->order > after &&
                (!next || t->order < next->order))
                next = t;
        }
        if (!next) return n;
        after = next->order;
        if (!slot_share(s->slots, s->options.n_slots, next)) continue;
        const int32_t left = next->sequence->n_prompt - next->n_tokens;
        int at = n++;
        for (; at > 0 && found[at - 1]->sequence->n_prompt - found[at - 1]->n_tokens > left; at--)
            found[at] = found[at - 1];
        found[at] = next;
    }
}

/* Moves the slot that started first to the front, so that short prompts which arrive later cannot
 * delay it forever when a step has too few tokens for all prompts. */
static void oldest_first(slot **prompts, int n) {
    int oldest = 0;
    for (int i = 1; i < n; i++)
        if (prompts[i]->order < prompts[oldest]->order) oldest = i;
    slot *t = prompts[oldest];
    memmove(prompts + 1, prompts, (size_t)oldest * sizeof *prompts);
    prompts[0] = t;
}

/* Reduces ready[n] to `most` slots, those whose last step is the oldest; returns the number of the
 * first n_decode slots that are left. */
static int keep_oldest(slot **ready, int n, int n_decode, int most) {
    for (; n > most; n--) {
        int latest = 0;
        for (int i = 1; i < n; i++)
            if (ready[i]->stepped >= ready[latest]->stepped) latest = i;
        memmove(ready + latest, ready + latest + 1, (size_t)(n - 1 - latest) * sizeof *ready);
        n_decode -= latest < n_decode;
    }
    return n_decode;
}

/* Fills the inputs of a step. If several steps can be under way, each takes an equal share of the
 * slots. */
static void gather(scheduler *s, pass *p) {
    const scheduler_options *o = &s->options;
    bool generates = false;
    int n_decode = 0;
    p->n = 0;
    p->n_piece = 0;
    for (int i = 0; i < o->n_slots; i++) {
        slot *t = &s->slots[i];
        generates |= t->state == SLOT_DECODE;
        if (t->state == SLOT_DECODE && !t->in_step) s->ready[n_decode++] = t;
    }
    int n_ready = n_decode + find_prompts(s, s->ready + n_decode);
    const int most = (s->stats.processing + s->n_passes - 1) / s->n_passes;
    if (n_ready > most) {
        n_decode = keep_oldest(s->ready, n_ready, n_decode, most);
        n_ready = most;
    }
    slot **prompts = s->ready + n_decode;
    const int n_prompts = n_ready - n_decode;

    slots_draft(s->slots, s->ready, n_decode, o->speculator, o->n_ctx, draft_rows(o), s->drafts);
    int32_t budget = o->context.n_batch;
    for (int i = 0; i < n_decode; i++) {
        slot *t = s->ready[i];
        pi_input in = {.tokens = t->feed + SLOT_FEED - t->n_again,
                       .n_tokens = t->n_again + 1 + t->n_draft,
                       .n_drafts = t->n_draft};
        add_input(p, t, in, 1 + t->n_draft, true);
        budget -= in.n_tokens;
    }
    const int32_t piece = o->context.deterministic ? DETERMINISTIC_PIECE : PIECE_TOKENS;
    if (generates && budget > piece) budget = piece;
    if (!generates && s->n_passes > 1 && s->stats.processing == 1) budget *= STAGED_UBATCHES;
    int32_t rows = ECHO_ROWS;
    if (n_prompts > budget) oldest_first(prompts, n_prompts);
    for (int i = 0; i < n_prompts && budget > 0; i++) {
        slot *t = prompts[i];
        const int32_t share = (budget + n_prompts - i - 1) / (n_prompts - i);
        int32_t left = t->sequence->n_prompt - t->n_tokens, count = left < share ? left : share;
        if (echoes(t->sequence)) {
            if (rows == 0) continue;
            if (count > rows) count = rows;
            rows -= count;
        }
        pi_input in = {.tokens = t->sequence->prompt + t->n_tokens, .n_tokens = count};
        add_input(p, t, in, count, count == left);
        budget -= count;
        p->n_piece += count;
    }
}

/* Adds hidden states from row `row` on to an embedding; returns the row after them. */
static int32_t pool(const scheduler *s, const slot *t, const pi_input *in, int32_t row) {
    int32_t n = in->hidden == PI_HIDDEN_ALL ? in->n_tokens : in->hidden == PI_HIDDEN_LAST;
    double *sum = t->sequence->pooled;
    for (int32_t i = 0; i < n; i++) {
        const float *hidden = pi_hidden(s->context, row + i);
        for (int32_t k = 0; k < s->n_embd; k++) sum[k] += (double)hidden[k];
    }
    return row + n;
}

typedef struct sampled {
    slot *slot;
    bool drafted; /* the token was drafted, and is already in the session */
    pi_sampled next;
    token_choice chosen; /* `next` with its probability; token -1: the grammar allows none */
    token_choice tops[SEQUENCE_MAX_TOP];
    int32_t n_reasoning; /* tokens of reasoning so far */
} sampled;

/* Returns the logarithm of a token's probability in logits[n_vocab]; finds the n_top most likely
 * tokens and their logarithms. */
static float find_logprobs(const scheduler *s, const float *logits, int32_t token, int n_top,
                           token_choice *tops) {
    float most;
    int n = 0;
    for (int32_t i = 0; i < s->n_vocab && n_top > 0; i++) {
        float x = logits[i];
        if (n == n_top && !(x > tops[n - 1].logprob)) continue;
        if (n < n_top) n++;
        int at = n - 1;
        while (at > 0 && x > tops[at - 1].logprob) {
            tops[at] = tops[at - 1];
            at--;
        }
        tops[at] = (token_choice){.token = i, .logprob = x};
    }
    const double total = log_sum_exp(logits, s->n_vocab, &most);
    for (int i = 0; i < n_top; i++) tops[i].logprob = (float)((double)tops[i].logprob - total);
    return (float)((double)logits[token] - total);
}

/* Records a piece of a prompt whose probabilities are requested. Its logits begin at row `row`;
 * each row gives the probability of the next token. */
static void echo_piece(scheduler *s, const slot *t, const pi_input *in, int32_t row) {
    sequence *q = t->sequence;
    token_choice tops[SEQUENCE_MAX_TOP];
    for (int32_t i = 0; i < in->n_tokens; i++) {
        int32_t next = t->n_tokens + i + 1;
        float logprob = next < q->n_prompt ? find_logprobs(s, pi_logits(s->context, row + i),
                                                           q->prompt[next], q->n_top, tops)
                                           : NAN;
        os_mutex_lock(&s->lock);
        if (next == 1) sequence_echo(q, NAN, NULL);
        if (next < q->n_prompt) sequence_echo(q, logprob, tops);
        os_mutex_unlock(&s->lock);
    }
}

/* Samples a token of the sequence, or the token that ends its reasoning. */
static bool sample_one(scheduler *s, sequence *q, const float *logits, pi_sampled *out) {
    const int32_t forced = reasoning_forced(&q->reasoning);
    if (forced >= 0) {
        s->forced[forced] = 0;
        logits = s->forced;
    }
    const bool good = pi_generation_sample(q->generation, logits, out, NULL) == PI_OK;
    if (forced >= 0) s->forced[forced] = -INFINITY;
    if (good) reasoning_note(&q->reasoning, out->token);
    return good;
}

/* Samples all tokens of a slot from the rows of a step: the accepted tokens of the draft and the
 * one after them. The rest of the draft leaves the session. Returns the number of tokens. */
static int sample_all(scheduler *s, slot *t, const pi_input *in, int32_t row, sampled *out) {
    int n = 0, n_rows = 1 + in->n_drafts;
    int32_t text = (int32_t)(t - s->slots);
    sequence *q = t->sequence;
    if (t->state == SLOT_PROMPT) slot_begin_drafts(s->slots, t, s->options.speculator);
    do {
        sampled *r = &out[n];
        const float *logits = pi_logits(s->context, row + n);
        r->slot = t;
        const bool good = sample_one(s, q, logits, &r->next);
        r->n_reasoning = q->reasoning.n;
        r->chosen = (token_choice){.token = good ? r->next.token : -1, .logprob = NAN};
        if (q->n_top >= 0 && good)
            r->chosen.logprob = find_logprobs(s, logits, r->chosen.token, q->n_top, r->tops);
        r->drafted = t->drafting && r->chosen.token >= 0 &&
                     pi_speculator_accept(s->options.speculator, text, r->chosen.token);
        n++;
    } while (out[n - 1].drafted && !out[n - 1].next.complete);
    if (n < n_rows) {
        int32_t length = pi_session_length(t->session) - (n_rows - n);
        pi_session_rewind(t->session, pi_session_rewind_point(t->session, length), NULL);
        t->piece = n;
    }
    return n;
}

/* Called under the lock: passes the token to its reader; the token is also the next input unless
 * the text has ended. */
static void publish(scheduler *s, sampled *r) {
    slot *t = r->slot;
    sequence *q = t->sequence;
    pi_error why = {.status = PI_OK};
    if (!q) return;            /* the text ended within the draft */
    if (r->chosen.token < 0) { /* the grammar allows no token */
        pi_sampler_grammar_progress(q->sampler, &why);
        sequence_fail(q, &why);
        release_slot(s, t);
        return;
    }
    const double now = clock_seconds();
    if (q->times.first_token <= 0) {
        q->times.first_token = now;
        histogram_add(&s->stats.first_token_seconds, now - q->times.queued);
    } else {
        const uint64_t gap = s->stats.counters.ubatches - q->last_ubatch;
        if (gap > s->stats.longest_gap) s->stats.longest_gap = gap;
        histogram_add(&s->stats.token_seconds, now - q->times.last_token);
    }
    q->times.last_token = now;
    q->last_ubatch = s->stats.counters.ubatches;
    if (q->max_tokens == 0) {
        sequence_end(q, FINISH_LENGTH);
    } else {
        sequence_push(q, &r->next, r->chosen, r->tops);
        q->n_reasoning = r->n_reasoning;
        s->stats.generated_tokens++;
    }
    t->state = SLOT_DECODE;
    t->feed[SLOT_FEED] = r->chosen.token;
    if (q->finish == FINISH_NONE && !r->drafted && t->n_tokens == s->options.n_ctx)
        sequence_end(q, FINISH_LENGTH); /* the context has no room for the token */
    if (!q->abandoned) os_condition_signal(q->news);
    if (q->finish != FINISH_NONE) release_slot(s, t);
}

/* Records in the slots the tokens that a step has fed. */
static void note_fed(scheduler *s, const pass *p) {
    for (int i = 0; i < p->n; i++) {
        slot *t = p->slots[i];
        sequence *q = t->sequence;
        memcpy(t->tokens + t->n_tokens, p->inputs[i].tokens + t->n_again,
               (size_t)t->piece * sizeof(int32_t));
        if (t->state == SLOT_PROMPT) {
            if (q->n_fed == 0) {
                q->n_cached = t->n_tokens;
                s->stats.cached_tokens += (uint64_t)t->n_tokens;
            }
            q->n_fed += t->piece;
            s->stats.prompt_tokens += (uint64_t)t->piece;
        }
        charge(s, q, t->piece);
        t->n_tokens += t->piece;
        q->n_drafted += t->n_draft;
        s->stats.drafted_tokens += (uint64_t)t->n_draft;
        if (t->n_draft > 0) {
            q->n_draft_accepted += t->piece - 1;
            s->stats.accepted_tokens += (uint64_t)t->piece - 1;
        }
    }
}

/* Ends the embeddings whose prompts have been evaluated. */
static void publish_pooled(scheduler *s, const pass *p) {
    for (int i = 0; i < p->n; i++) {
        slot *t = p->slots[i];
        sequence *q = t->sequence;
        if (q->pooling == POOLING_NONE || t->n_tokens < q->n_prompt) continue;
        q->times.first_token = clock_seconds();
        sequence_end(q, FINISH_POOLED);
        release_slot(s, t);
    }
}

static void fail_step(scheduler *s, const pass *p, const pi_error *why) {
    for (int i = 0; i < p->n; i++) {
        slot *t = p->slots[i];
        int32_t length = pi_session_length(t->session);
        if (length < t->n_tokens) t->n_tokens = length;
        sequence_fail(t->sequence, why);
        release_slot(s, t);
    }
}

static void update_views(scheduler *s) {
    for (int i = 0; i < s->options.n_slots; i++) {
        const slot *t = &s->slots[i];
        const sequence *q = t->sequence;
        s->views[i] = (slot_view){.busy = q != NULL,
                                  .owner = t->owner,
                                  .in_prompt = t->state == SLOT_PROMPT,
                                  .n_tokens = t->n_tokens,
                                  .n_prompt = q ? q->n_prompt : 0,
                                  .n_generated = q ? (int32_t)(q->n_tokens - q->n_echo) : 0,
                                  .n_cached = q ? q->n_cached : 0};
    }
}

/* Counts active neurons in the step if one of its sequences is watched. */
static void watch_neurons(scheduler *s, const pass *p) {
    bool before = s->watching, wanted = false;
    for (int i = 0; i < p->n; i++)
        wanted = wanted || (p->slots[i]->sequence->neurons && p->slots[i]->state == SLOT_DECODE);
    if (!wanted && !before) return;
    s->watching = pi_context_watch(s->context, wanted ? NEURON_BINS : 0, NULL) == PI_OK && wanted;
}

/* Called under the lock: adds the counts to all watched sequences. */
static void note_neurons(scheduler *s, const pass *p, const pi_counters *now) {
    const pi_counters *before = &s->stats.counters;
    const pi_counters step = {.tokens = now->tokens - before->tokens,
                              .weight_bytes = now->weight_bytes - before->weight_bytes,
                              .ffn_bytes = now->ffn_bytes - before->ffn_bytes,
                              .ffn_total_bytes = now->ffn_total_bytes - before->ffn_total_bytes};
    for (int i = 0; i < p->n && s->watching; i++) {
        const slot *t = p->slots[i];
        if (t->sequence->neurons && t->state == SLOT_DECODE)
            neurons_add(t->sequence->neurons, s->context, &step);
    }
}

/* Ends the oldest pass and samples. *n_results: number of tokens. */
static pi_status end_pass(scheduler *s, const pass *p, sampled *results, int *n_results,
                          pi_error *err) {
    int32_t n_hidden = 0, row = 0, n_tokens = 0;
    *n_results = 0;
    pi_status status = pi_forward_end(s->context, err);
    const double before = s->last_end > p->begun ? s->last_end : p->begun;
    s->last_end = clock_seconds();
    if (status != PI_OK) return status;
    for (int i = 0; i < p->n; i++) n_tokens += p->inputs[i].n_tokens;
    if (s->options.speculator && p->n_piece == 0)
        pi_speculator_measured(s->options.speculator, n_tokens, s->last_end - before);
    for (int i = 0; i < p->n; i++) {
        const pi_input *in = &p->inputs[i];
        n_hidden = pool(s, p->slots[i], in, n_hidden);
        if (in->logits == PI_LOGITS_NONE) continue;
        if (in->logits == PI_LOGITS_ALL) {
            slot *t = p->slots[i];
            echo_piece(s, t, in, row);
            row += in->n_tokens - 1; /* the last row belongs to the end of the prompt or piece */
            if (t->n_tokens + in->n_tokens < t->sequence->n_prompt) {
                row++;
                continue;
            }
        }
        *n_results += sample_all(s, p->slots[i], in, row, &results[*n_results]);
        row += 1 + in->n_drafts;
    }
    return PI_OK;
}

/* Ends the oldest step. The lock is held before and after, but not during the forward pass. */
static void end_step(scheduler *s, sampled *results) {
    const pass *p = &s->passes[s->first_pass];
    int n_results = 0;
    pi_error err = {.status = PI_OK};
    os_mutex_unlock(&s->lock);
    pi_status status = end_pass(s, p, results, &n_results, &err);
    pi_counters counters;
    pi_context_get_counters(s->context, &counters);
    os_mutex_lock(&s->lock);
    s->first_pass = (s->first_pass + 1) % s->n_passes;
    s->n_begun--;
    for (int i = 0; i < p->n; i++) p->slots[i]->in_step = false;
    if (status == PI_OK && s->n_passes == 1) note_neurons(s, p, &counters);
    s->stats.counters = counters;
    s->stats.steps++;
    s->stats.busy_slots += (uint64_t)p->n;
    bool mixed = p->slots[0]->state == SLOT_DECODE;
    if (mixed && (uint64_t)p->n_piece > s->stats.longest_piece)
        s->stats.longest_piece = (uint64_t)p->n_piece;
    if (status != PI_OK) {
        fail_step(s, p, &err);
        return;
    }
    note_fed(s, p);
    publish_pooled(s, p);
    for (int i = 0; i < n_results; i++) publish(s, &results[i]);
}

/* Begins a step; false: no slot can take part. The lock is held before and after. On several
 * machines this one computes its layers here. */
static bool begin_step(scheduler *s, sampled *results) {
    pass *p = &s->passes[(s->first_pass + s->n_begun) % s->n_passes];
    pi_error err = {.status = PI_OK};
    os_mutex_unlock(&s->lock);
    gather(s, p);
    pi_status status = PI_OK;
    if (p->n > 0) {
        watch_neurons(s, p);
        p->begun = clock_seconds();
        status = pi_forward_begin(s->context, p->inputs, p->n, &err);
    }
    os_mutex_lock(&s->lock);
    while (status == PI_ERR_LIMIT && s->n_begun > 0) { /* too many tokens under way */
        end_step(s, results);
        os_mutex_unlock(&s->lock);
        status = pi_forward_begin(s->context, p->inputs, p->n, &err);
        os_mutex_lock(&s->lock);
    }
    if (p->n == 0) return false;
    if (status != PI_OK) {
        fail_step(s, p, &err);
        return true;
    }
    s->n_begun++;
    s->n_steps++;
    for (int i = 0; i < p->n; i++) {
        p->slots[i]->in_step = true;
        p->slots[i]->stepped = s->n_steps;
    }
    if (s->n_passes > 1 && s->watching) {
        pi_counters counters;
        pi_context_get_counters(s->context, &counters);
        note_neurons(s, p, &counters);
        s->stats.counters = counters;
    }
    return true;
}

static finish_reason why_shutdown(const sequence *q) {
    (void)q;
    return FINISH_SHUTDOWN;
}

static void end_all(scheduler *s) {
    drop_queued(s, why_shutdown);
    for (int i = 0; i < s->options.n_slots; i++) {
        if (!s->slots[i].sequence) continue;
        sequence_end(s->slots[i].sequence, FINISH_SHUTDOWN);
        release_slot(s, &s->slots[i]);
    }
}

/* ---- slots and files ------------------------------------------------------------------------- */

static pi_status save_slot(const slot *t, slot_job *job) {
    int32_t n = pi_session_length(t->session); /* fewer than were fed when a draft was rejected */
    if (n > t->n_tokens) n = t->n_tokens;
    n = t->owner == job->owner ? pi_session_rewind_point(t->session, n) : 0;
    job->n_tokens = n;
    if (n == 0) return error_set(&job->error, PI_ERR_ARG, "slot %d is empty", job->slot);
    return pi_session_save(t->session, job->path, t->tokens, n, &job->error);
}

static pi_status restore_slot(scheduler *s, slot *t, slot_job *job) {
    int32_t n = 0;
    pi_status status = pi_session_load(t->session, job->path, t->tokens, s->options.n_ctx, &n,
                                       &job->error);
    if (s->options.speculator) pi_speculator_forget(s->options.speculator, job->slot);
    t->owner = job->owner;
    t->reusable = true;
    t->n_tokens = status == PI_OK ? n : 0;
    if (status != PI_OK) pi_session_rewind(t->session, 0, NULL);
    job->n_tokens = t->n_tokens;
    return status;
}

/* Called without the lock; no other thread uses a free slot. */
static pi_status do_job(scheduler *s, slot_job *job) {
    slot *t = &s->slots[job->slot];
    if (job->action == SLOT_SAVE) return save_slot(t, job);
    if (job->action == SLOT_RESTORE) return restore_slot(s, t, job);
    job->n_tokens = t->owner == job->owner ? t->n_tokens : 0;
    t->n_tokens = 0;
    return pi_session_rewind(t->session, 0, &job->error);
}

/* Runs the jobs whose slot is free. When the server stops, cancels all jobs. */
static void run_jobs(scheduler *s) {
    slot_job **link = &s->jobs;
    while (*link) {
        slot_job *job = *link;
        if (!s->stopping && s->slots[job->slot].state != SLOT_FREE) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        if (s->stopping) {
            job->status = error_set(&job->error, PI_ERR_CANCELLED, "the server is shutting down");
        } else {
            os_mutex_unlock(&s->lock);
            job->status = do_job(s, job);
            os_mutex_lock(&s->lock);
            link = &s->jobs; /* new jobs may have arrived */
        }
        job->done = true;
        os_condition_broadcast(&s->job_done);
    }
}

/* Saves the contents of all slots, for the next server. */
static void save_slots(scheduler *s) {
    for (int i = 0; i < s->options.n_slots && s->store && s->options.store.folder; i++) {
        const slot *t = &s->slots[i];
        if (t->reusable) prompt_store_save(s->store, t->session, t->tokens, t->n_tokens, t->owner);
    }
}

static void run(void *arg) {
    scheduler *s = arg;
    sampled *results = mem_calloc((size_t)logits_rows(&s->options), sizeof *results);
    os_mutex_lock(&s->lock);
    if (!results) s->stopping = true;
    while (!s->stopping) {
        find_who_left(s);
        end_late(s);
        drop_queued(s, why_gone);
        run_jobs(s);
        start_queued(s);
        if (s->stats.processing > 0) {
            const bool begun = begin_step(s, results);
            if (s->n_begun == s->n_passes || (!begun && s->n_begun > 0)) end_step(s, results);
            update_views(s);
            continue;
        }
        update_views(s);
        if (!s->stopping) os_condition_wait(&s->wake, &s->lock); /* a job may have run unlocked */
    }
    while (s->n_begun > 0) end_step(s, results);
    end_all(s);
    run_jobs(s);
    update_views(s);
    os_mutex_unlock(&s->lock);
    save_slots(s);
    mem_free(results);
}

/* ---- functions for other threads ------------------------------------------------------------- */

pi_status scheduler_run_job(scheduler *s, slot_job *job, pi_error *err) {
    os_mutex_lock(&s->lock);
    job->done = s->stopping;
    if (job->done)
        job->status = error_set(&job->error, PI_ERR_CANCELLED, "the server is shutting down");
    job->next = s->jobs;
    if (!job->done) s->jobs = job;
    os_condition_signal(&s->wake);
    while (!job->done) os_condition_wait(&s->job_done, &s->lock);
    os_mutex_unlock(&s->lock);
    return job->status == PI_OK ? PI_OK : error_set(err, job->status, "%s", job->error.message);
}

pi_status scheduler_add(scheduler *s, sequence *const *sequences, int n, pi_error *err) {
    os_mutex_lock(&s->lock);
    pi_status status = PI_OK;
    int free_slots = s->options.n_slots - s->stats.processing;
    if (s->stopping)
        status = error_set(err, PI_ERR_CANCELLED, "the server is shutting down");
    else if (s->stats.waiting + n > s->options.max_queue + free_slots) {
        status = error_set(err, PI_ERR_LIMIT, "too many requests wait: try again later");
        s->stats.refused++;
    }
    for (int i = 0; i < n && status == PI_OK; i++) {
        sequence *q = sequences[i];
        q->references++;
        q->next = NULL;
        q->times.queued = clock_seconds();
        enter(s, q);
        if (s->last)
            s->last->next = q;
        else
            s->first = q;
        s->last = q;
        s->stats.waiting++;
        s->stats.requests++;
    }
    os_condition_signal(&s->wake);
    os_mutex_unlock(&s->lock);
    return status;
}

void scheduler_release(scheduler *s, sequence *q) {
    if (!q) return;
    os_mutex_lock(&s->lock);
    q->abandoned = true;
    unreference(q);
    os_mutex_unlock(&s->lock);
}

os_mutex *scheduler_lock(scheduler *s) {
    return &s->lock;
}

void scheduler_get_stats(scheduler *s, scheduler_stats *out) {
    os_mutex_lock(&s->lock);
    *out = s->stats;
    os_mutex_unlock(&s->lock);
}

void scheduler_get_slots(scheduler *s, slot_view *out) {
    os_mutex_lock(&s->lock);
    memcpy(out, s->views, (size_t)s->options.n_slots * sizeof *out);
    os_mutex_unlock(&s->lock);
}

uint64_t scheduler_cache_bytes(const scheduler *s) {
    const pi_session *session = s->slots[0].session;
    return (uint64_t)s->options.n_slots * (pi_session_range_bytes(session, s->options.n_ctx) +
                                           pi_session_recurrent_bytes(session));
}

const pi_context *scheduler_context(const scheduler *s) {
    return s->context;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

static pi_status create_slots(scheduler *s, pi_error *err) {
    const scheduler_options *o = &s->options;
    size_t n = (size_t)o->n_slots, watched = n + (size_t)o->max_queue;
    s->slots = mem_calloc(n, sizeof *s->slots);
    s->n_passes = pi_context_passes(s->context);
    if (s->n_passes > o->n_slots) s->n_passes = o->n_slots;
    s->passes = mem_calloc((size_t)s->n_passes, sizeof *s->passes);
    bool made = s->passes != NULL;
    for (int i = 0; i < s->n_passes && made; i++) {
        s->passes[i].inputs = mem_calloc(n, sizeof *s->passes[i].inputs);
        s->passes[i].slots = mem_calloc(n, sizeof *s->passes[i].slots);
        made = s->passes[i].inputs && s->passes[i].slots;
    }
    s->drafts = mem_calloc(n, sizeof *s->drafts);
    s->ready = mem_calloc(n, sizeof *s->ready);
    s->views = mem_calloc(n, sizeof *s->views);
    s->watched = mem_calloc(watched, sizeof *s->watched);
    s->watchers = mem_calloc(watched, sizeof *s->watchers);
    s->closed = mem_calloc(watched, sizeof *s->closed);
    const size_t n_accounts = (size_t)o->shares.n;
    s->served = mem_calloc(n_accounts, sizeof *s->served);
    s->weights = mem_calloc(n_accounts, sizeof *s->weights);
    s->n_sequences = mem_calloc(n_accounts, sizeof *s->n_sequences);
    if (!made || !s->slots || !s->ready || !s->drafts || !s->views || !s->watched || !s->watchers ||
        !s->closed || !s->served || !s->weights || !s->n_sequences)
        return error_nomem(err, watched * sizeof *s->watched, "slots");
    memcpy(s->weights, o->shares.weights, n_accounts * sizeof *s->weights);
    for (int32_t i = 0; i < o->n_slots; i++) {
        slot *t = &s->slots[i];
        t->tokens = mem_calloc((size_t)o->n_ctx, sizeof *t->tokens);
        if (!t->tokens) return error_nomem(err, (size_t)o->n_ctx * sizeof *t->tokens, "slot");
        pi_status status = pi_session_create(s->context, o->n_ctx, &t->session, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

pi_status scheduler_create(const scheduler_options *options, scheduler **out, pi_error *err) {
    *out = NULL;
    scheduler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(err, sizeof *s, "scheduler");
    s->options = *options;
    s->options.context.n_logits = logits_rows(options);
    pi_model_info info;
    pi_model_get_info(options->model, &info);
    s->n_vocab = info.n_vocab;
    s->n_embd = info.n_embd;
    s->forced = mem_calloc((size_t)s->n_vocab, sizeof *s->forced);
    pi_status status = s->forced ? PI_OK : error_nomem(err, (size_t)s->n_vocab * 4, "scheduler");
    for (int32_t i = 0; i < s->n_vocab && status == PI_OK; i++) s->forced[i] = -INFINITY;
    if (status == PI_OK)
        status = pi_context_create(options->model, &s->options.context, &s->context, err);
    if (status == PI_OK) s->options.context.n_batch = pi_context_batch(s->context);
    if (status == PI_OK) status = create_slots(s, err);
    if (status == PI_OK && (options->store.max_bytes > 0 || options->store.folder))
        status = prompt_store_create(&options->store, s->slots[0].session, &s->store, err);
    if (status == PI_OK) {
        os_mutex_init(&s->lock);
        os_condition_init(&s->wake);
        os_condition_init(&s->job_done);
        s->has_lock = true;
        s->has_thread = os_thread_start(&s->thread, run, s) == 0;
        if (!s->has_thread) status = error_set(err, PI_ERR_NOMEM, "no thread for the scheduler");
    }
    if (status != PI_OK) {
        scheduler_destroy(s);
        return status;
    }
    *out = s;
    return PI_OK;
}

void scheduler_stop(scheduler *s) {
    if (!s->has_thread) return;
    os_mutex_lock(&s->lock);
    s->stopping = true;
    os_condition_signal(&s->wake);
    os_mutex_unlock(&s->lock);
    os_thread_join(&s->thread);
    s->has_thread = false;
}

void scheduler_destroy(scheduler *s) {
    if (!s) return;
    scheduler_stop(s);
    for (int32_t i = 0; s->slots && i < s->options.n_slots; i++) {
        pi_session_destroy(s->slots[i].session);
        mem_free(s->slots[i].tokens);
    }
    pi_context_destroy(s->context);
    if (s->has_lock) {
        os_condition_destroy(&s->job_done);
        os_condition_destroy(&s->wake);
        os_mutex_destroy(&s->lock);
    }
    prompt_store_free(s->store);
    mem_free(s->forced);
    mem_free(s->slots);
    for (int i = 0; s->passes && i < s->n_passes; i++) {
        mem_free(s->passes[i].inputs);
        mem_free(s->passes[i].slots);
    }
    mem_free(s->passes);
    mem_free(s->ready);
    mem_free(s->served);
    mem_free(s->weights);
    mem_free(s->n_sequences);
    mem_free(s->drafts);
    mem_free(s->views);
    mem_free(s->watched);
    mem_free(s->watchers);
    mem_free(s->closed);
    mem_free(s);
}
