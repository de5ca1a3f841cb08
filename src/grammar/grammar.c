/* grammar.c: masks and readers.
 *
 * The mask of a state is computed on first use, in one walk over the trie of tokens: a subtree is
 * skipped as soon as its bytes cannot follow. A state keeps its mask. Counted repetitions make many
 * states that differ only in counts; they share the mask of the state whose counts are limited to
 * the length of the longest token. */
#include "grammar.h"

#include <string.h>

#include "grammar_state.h"
#include "mem.h"
#include "os_thread.h"

enum { TRIGGER_MAX = 1024 }; /* triggers of each kind, bytes of a word (see pi_grammar_options) */

struct pi_grammar {
    os_mutex lock;
    size_t holders;
    const vocab_trie *vocabulary;
    grammar_program program;
    grammar_machine machine;
    grammar_reader *readers; /* linked list: the states of readers stay when others are freed */
    char **words;            /* [n_words] triggers */
    size_t n_words, longest_word;
    int32_t *tokens; /* [n_tokens] triggers */
    size_t n_tokens;
    char **widened; /* [n_widened] see pi_grammar_widened */
    size_t n_widened;
    bool lazy;
};

struct grammar_reader {
    pi_grammar *grammar;
    grammar_reader *next, *previous;
    int32_t state;
    bool waiting, ended; /* waits for a trigger; has read a token that ends the text */
    char *recent;        /* [longest_word - 1 + VOCAB_TOKEN_MAX] text before the trigger */
    size_t n_recent;
    uint64_t *mask; /* [mask_words] copy of the mask for the caller */
    pi_error why;   /* the failure; status PI_OK: none */
};

/* ---- masks; under the lock ------------------------------------------------------------------- */

static size_t mask_words(const vocab_trie *v) {
    return ((size_t)v->n_vocab + 63) / 64;
}

static void set_bit(uint64_t *mask, int32_t token) {
    mask[token >> 6] |= (uint64_t)1 << (token & 63);
}

static bool walk(pi_grammar *g, int32_t from, uint64_t *mask) {
    const vocab_trie *v = g->vocabulary;
    int32_t states[VOCAB_TOKEN_MAX + 1] = {from};
    g->machine.steps = 0;
    for (size_t i = 0; i < v->n_nodes;) {
        const vocab_node *node = &v->nodes[i];
        int32_t to = grammar_next(&g->machine, states[node->depth - 1], node->byte);
        if (to == GRAMMAR_DEAD) {
            i = node->end;
            continue;
        }
        if (to == GRAMMAR_UNKNOWN) return false;
        states[node->depth] = to;
        for (uint32_t t = node->first_token; t < node[1].first_token; t++)
            set_bit(mask, v->tokens[t]);
        i++;
    }
    for (size_t i = 0; g->machine.states[from].accepts && i < v->n_ends; i++)
        set_bit(mask, v->ends[i]);
    return true;
}

/* Frees unused states when the tables are large. */
static pi_status tidy_up(pi_grammar *g) {
    if (grammar_machine_bytes(&g->machine) <= GRAMMAR_TABLES_SOFT) return PI_OK;
    size_t n = 0;
    for (const grammar_reader *r = g->readers; r; r = r->next) n++;
    int32_t **live = mem_calloc(n, sizeof *live);
    if (!live) return PI_ERR_NOMEM;
    n = 0;
    for (grammar_reader *r = g->readers; r; r = r->next) live[n++] = &r->state;
    pi_status status = grammar_machine_collect(&g->machine, live, n);
    mem_free(live);
    return status;
}

/* The mask of a reader's state; NULL: see status. */
static const uint64_t *state_mask(pi_grammar *g, grammar_reader *r, pi_status *status) {
    grammar_machine *m = &g->machine;
    *status = tidy_up(g);
    if (*status != PI_OK) return NULL;
    int32_t masked = m->states[r->state].masked;
    if (masked == GRAMMAR_UNKNOWN) {
        masked = grammar_state_within(m, r->state, g->vocabulary->longest);
        *status = m->status;
        if (masked == GRAMMAR_UNKNOWN) return NULL;
        m->states[r->state].masked = masked;
    }
    if (!m->states[masked].mask) {
        uint64_t *mask = mem_calloc(m->mask_words, sizeof *mask);
        *status = mask ? PI_OK : PI_ERR_NOMEM;
        if (mask && !walk(g, masked, mask)) {
            *status = m->status;
            mem_free(mask);
            mask = NULL;
        }
        if (!mask) return NULL;
        m->states[masked].mask = mask;
        m->mask_bytes += m->mask_words * sizeof *mask;
    }
    *status = PI_OK;
    return m->states[masked].mask;
}

/* ---- creating -------------------------------------------------------------------------------- */

static pi_status copy_triggers(pi_grammar *g, const pi_grammar_options *o, pi_error *err) {
    if (o->n_trigger_words > TRIGGER_MAX || o->n_trigger_tokens > TRIGGER_MAX)
        return error_set(err, PI_ERR_ARG, "too many triggers: grammar: give at most %d",
                         TRIGGER_MAX);
    g->lazy = o->n_trigger_words || o->n_trigger_tokens;
    g->words = mem_calloc(o->n_trigger_words, sizeof *g->words);
    g->tokens = mem_calloc(o->n_trigger_tokens, sizeof *g->tokens);
    if (!g->words || !g->tokens) return error_nomem(err, sizeof *g->words, "grammar");
    for (size_t i = 0; i < o->n_trigger_words; i++) {
        size_t n = strlen(o->trigger_words[i]);
        if (n == 0 || n > TRIGGER_MAX)
            return error_set(err, PI_ERR_ARG, "empty or too long: trigger %zu of the grammar", i);
        g->words[g->n_words] = mem_strdup(o->trigger_words[i]);
        if (!g->words[g->n_words]) return error_nomem(err, n, "grammar");
        g->n_words++;
        if (n > g->longest_word) g->longest_word = n;
    }
    for (size_t i = 0; i < o->n_trigger_tokens; i++) {
        int32_t token = o->trigger_tokens[i];
        if (token < 0 || token >= g->vocabulary->n_vocab)
            return error_set(err, PI_ERR_ARG,
                             "no such token: trigger %d of the grammar: use 0 to "
                             "%d",
                             token, g->vocabulary->n_vocab - 1);
        g->tokens[g->n_tokens++] = token;
    }
    return PI_OK;
}

static pi_status copy_widened(pi_grammar *g, const grammar_tree *t, pi_error *err) {
    g->widened = mem_calloc(t->n_widened, sizeof *g->widened);
    if (!g->widened) return error_nomem(err, sizeof *g->widened, "grammar");
    for (; g->n_widened < t->n_widened; g->n_widened++) {
        g->widened[g->n_widened] = mem_strdup(t->widened[g->n_widened]);
        if (!g->widened[g->n_widened]) return error_nomem(err, 1, "grammar");
    }
    return PI_OK;
}

static pi_status status_message(pi_status status, pi_error *err) {
    if (status == PI_ERR_NOMEM) return error_set(err, status, "out of memory: grammar");
    return error_set(err, status,
                     "the grammar is too ambiguous here, or the text is nested too deeply");
}

pi_status grammar_create(grammar_tree *t, int32_t root, const vocab_trie *vocabulary,
                         const pi_grammar_options *options, pi_grammar **out, pi_error *err) {
    *out = NULL;
    if (grammar_tree_check(t, root) != PI_OK) {
        if (err) *err = t->err;
        return t->status;
    }
    pi_grammar *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(err, sizeof *g, "grammar");
    os_mutex_init(&g->lock);
    g->holders = 1;
    g->vocabulary = vocabulary;
    pi_status status = options ? copy_triggers(g, options, err) : PI_OK;
    if (status == PI_OK) status = copy_widened(g, t, err);
    if (status == PI_OK) status = grammar_compile(t, root, &g->program, err);
    if (status == PI_OK) {
        status = grammar_machine_init(&g->machine, &g->program, mask_words(vocabulary));
        if (status != PI_OK) status_message(status, err);
    }
    if (status != PI_OK) {
        grammar_release(g);
        return status;
    }
    *out = g;
    return PI_OK;
}

void grammar_release(pi_grammar *g) {
    if (!g) return;
    os_mutex_lock(&g->lock);
    bool last = --g->holders == 0;
    os_mutex_unlock(&g->lock);
    if (!last) return;
    grammar_machine_free(&g->machine);
    grammar_program_free(&g->program);
    for (size_t i = 0; i < g->n_words; i++) mem_free(g->words[i]);
    mem_free(g->words);
    mem_free(g->tokens);
    for (size_t i = 0; i < g->n_widened; i++) mem_free(g->widened[i]);
    mem_free(g->widened);
    os_mutex_destroy(&g->lock);
    mem_free(g);
}

pi_grammar *grammar_retain(pi_grammar *g) {
    os_mutex_lock(&g->lock);
    g->holders++;
    os_mutex_unlock(&g->lock);
    return g;
}

size_t grammar_memory(pi_grammar *g) {
    os_mutex_lock(&g->lock);
    size_t n_bytes = grammar_machine_bytes(&g->machine);
    os_mutex_unlock(&g->lock);
    return n_bytes;
}

const char *grammar_widened(const pi_grammar *g, size_t i) {
    return i < g->n_widened ? g->widened[i] : NULL;
}

const vocab_trie *grammar_vocabulary(const pi_grammar *g) {
    return g->vocabulary;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The state after a text; GRAMMAR_UNKNOWN: the machine's status says why. */
static int32_t read_text(pi_grammar *g, int32_t state, const char *text, size_t n) {
    g->machine.steps = 0;
    for (size_t i = 0; i < n && state > GRAMMAR_DEAD; i++)
        state = grammar_next(&g->machine, state, (uint8_t)text[i]);
    return state;
}

enum { MATCH_PIECE = 64 }; /* bytes read between two checks of the tables' size */

pi_status grammar_match(pi_grammar *g, const char *text, size_t n, bool *begins, bool *complete,
                        pi_error *err) {
    grammar_reader *r;
    *begins = *complete = false;
    pi_status status = grammar_reader_create(g, &r, err);
    if (status != PI_OK) return status;
    os_mutex_lock(&g->lock);
    r->state = GRAMMAR_START;
    for (size_t i = 0; i < n && r->state > GRAMMAR_DEAD && status == PI_OK;) {
        size_t piece = n - i < MATCH_PIECE ? n - i : MATCH_PIECE;
        status = tidy_up(g);
        if (status != PI_OK) break;
        int32_t state = read_text(g, r->state, text + i, piece);
        if (state == GRAMMAR_UNKNOWN)
            status = g->machine.status;
        else
            r->state = state;
        i += piece;
    }
    *begins = status == PI_OK && r->state != GRAMMAR_DEAD;
    *complete = *begins && g->machine.states[r->state].accepts;
    os_mutex_unlock(&g->lock);
    grammar_reader_free(r);
    return status == PI_OK ? PI_OK : status_message(status, err);
}

pi_status grammar_reader_create(pi_grammar *g, grammar_reader **out, pi_error *err) {
    grammar_reader *r = mem_calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return error_nomem(err, sizeof *r, "reader of the grammar");
    r->mask = mem_calloc(mask_words(g->vocabulary), sizeof *r->mask);
    r->recent = mem_alloc(g->longest_word + VOCAB_TOKEN_MAX);
    if (!r->mask || !r->recent) {
        mem_free(r->mask);
        mem_free(r->recent);
        mem_free(r);
        return error_nomem(err, mask_words(g->vocabulary) * sizeof *r->mask,
                           "reader of the grammar");
    }
    r->grammar = grammar_retain(g);
    os_mutex_lock(&g->lock);
    r->next = g->readers;
    if (r->next) r->next->previous = r;
    g->readers = r;
    os_mutex_unlock(&g->lock);
    grammar_reader_restart(r);
    *out = r;
    return PI_OK;
}

void grammar_reader_free(grammar_reader *r) {
    if (!r) return;
    pi_grammar *g = r->grammar;
    os_mutex_lock(&g->lock);
    if (r->previous)
        r->previous->next = r->next;
    else
        g->readers = r->next;
    if (r->next) r->next->previous = r->previous;
    os_mutex_unlock(&g->lock);
    grammar_release(g);
    mem_free(r->mask);
    mem_free(r->recent);
    mem_free(r);
}

pi_grammar *grammar_reader_grammar(const grammar_reader *r) {
    return r->grammar;
}

void grammar_reader_copy(grammar_reader *to, const grammar_reader *from) {
    os_mutex_lock(&from->grammar->lock);
    to->state = from->state;
    os_mutex_unlock(&from->grammar->lock);
    to->waiting = from->waiting;
    to->ended = from->ended;
    to->n_recent = from->n_recent;
    memcpy(to->recent, from->recent, from->n_recent);
    to->why = from->why;
}

void grammar_reader_restart(grammar_reader *r) {
    os_mutex_lock(&r->grammar->lock);
    r->state = GRAMMAR_START;
    os_mutex_unlock(&r->grammar->lock);
    r->waiting = r->grammar->lazy;
    r->ended = false;
    r->n_recent = 0;
    r->why.status = PI_OK;
}

pi_grammar_progress grammar_reader_progress(const grammar_reader *r, pi_error *why) {
    if (why) *why = r->why;
    if (r->why.status != PI_OK) return PI_GRAMMAR_FAILED;
    if (r->ended) return PI_GRAMMAR_COMPLETE;
    if (r->waiting) return PI_GRAMMAR_WAITING;
    os_mutex_lock(&r->grammar->lock);
    const grammar_machine *m = &r->grammar->machine;
    bool accepts = m->states[r->state].accepts, on = grammar_goes_on(m, r->state);
    os_mutex_unlock(&r->grammar->lock);
    if (!accepts) return PI_GRAMMAR_OPEN;
    return on ? PI_GRAMMAR_MAY_END : PI_GRAMMAR_COMPLETE;
}

const uint64_t *grammar_reader_mask(grammar_reader *r) {
    pi_status status = PI_OK;
    if (r->waiting || r->why.status != PI_OK) return NULL;
    os_mutex_lock(&r->grammar->lock);
    const uint64_t *mask = state_mask(r->grammar, r, &status);
    if (mask) memcpy(r->mask, mask, r->grammar->machine.mask_words * sizeof *mask);
    os_mutex_unlock(&r->grammar->lock);
    if (status != PI_OK) status_message(status, &r->why);
    return mask ? r->mask : NULL;
}

/* Reads a text from `state` on; the reader's state stays when the text cannot follow. */
static bool advance(grammar_reader *r, int32_t from, const char *text, size_t n) {
    pi_status status = PI_OK;
    os_mutex_lock(&r->grammar->lock);
    int32_t to = read_text(r->grammar, from, text, n);
    if (to == GRAMMAR_UNKNOWN) status = r->grammar->machine.status;
    if (to > GRAMMAR_DEAD) r->state = to;
    os_mutex_unlock(&r->grammar->lock);
    if (status != PI_OK) status_message(status, &r->why);
    return to > GRAMMAR_DEAD;
}

/* Position of the first trigger in the recent text; SIZE_MAX: none. */
static size_t find_trigger(const grammar_reader *r, size_t n) {
    const pi_grammar *g = r->grammar;
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < g->n_words; i++) {
            size_t n_word = strlen(g->words[i]);
            if (n_word <= n - at && memcmp(r->recent + at, g->words[i], n_word) == 0) return at;
        }
    }
    return SIZE_MAX;
}

static bool accept_waiting(grammar_reader *r, int32_t token, const char *text, size_t n) {
    const pi_grammar *g = r->grammar;
    for (size_t i = 0; i < g->n_tokens; i++) {
        if (g->tokens[i] != token) continue;
        if (!advance(r, GRAMMAR_START, text, n)) return false;
        r->waiting = false;
        return true;
    }
    memcpy(r->recent + r->n_recent, text, n);
    size_t all = r->n_recent + n, at = find_trigger(r, all);
    if (at != SIZE_MAX) {
        if (!advance(r, GRAMMAR_START, r->recent + at, all - at)) return false;
        r->waiting = false;
        return true;
    }
    /* An incomplete trigger has at most this many bytes. */
    size_t keep = g->longest_word ? g->longest_word - 1 : 0;
    if (keep > all) keep = all;
    memmove(r->recent, r->recent + all - keep, keep);
    r->n_recent = keep;
    return true;
}

static bool is_end(const vocab_trie *v, int32_t token) {
    for (size_t i = 0; i < v->n_ends; i++) {
        if (v->ends[i] == token) return true;
    }
    return false;
}

bool grammar_reader_accept(grammar_reader *r, int32_t token) {
    const vocab_trie *v = r->grammar->vocabulary;
    size_t n;
    if (r->why.status != PI_OK || token < 0 || token >= v->n_vocab) return false;
    const char *text = vocab_text(v, token, &n);
    if (is_end(v, token)) {
        pi_grammar_progress at = grammar_reader_progress(r, NULL);
        r->ended = r->ended || at != PI_GRAMMAR_OPEN;
        return r->ended;
    }
    if (r->waiting) return accept_waiting(r, token, text, n);
    return n > 0 && advance(r, r->state, text, n);
}

void grammar_reader_stuck(grammar_reader *r) {
    if (r->why.status == PI_OK)
        error_set(&r->why, PI_ERR_NOT_FOUND,
                  "the grammar allows no token of the vocabulary after the text");
}
