/* generation.c: turns sampled tokens into text that can be shown.
 *
 * `bytes` has the end of the released text (as much as a stop text can include), then the bytes
 * that are held back: an incomplete character, or the beginning of a stop text, which may span any
 * number of tokens. With keep_stop, a stop text is part of the text, so only incomplete characters
 * are held back. */
#include "powerinfer_generation.h"

#include <string.h>

#include "error.h"
#include "mem.h"
#include "os_text.h"
#include "utf8.h"

enum {
    PIECE_GUESS = 256,  /* bytes of a token; longer ones take a second call */
    BYTES_MAX = 1 << 30 /* of `bytes` */
};

struct pi_generation {
    const pi_model *model;
    pi_generation_options options;
    pi_stop_text *stops; /* [options.n_stops], copies */
    size_t look_back;    /* bytes of released text in which a stop text may begin */
    char *bytes;         /* [n_bytes]; the first n_released are released */
    size_t n_bytes, n_released, capacity;
    size_t n_total;   /* bytes of all tokens */
    int32_t n_tokens; /* tokens, not counting the end token */
};

/* ---- making ---------------------------------------------------------------------------------- */

static pi_status copy_stops(pi_generation *g, const pi_generation_options *o, pi_error *err) {
    if (o->n_stops > PI_STOP_TEXTS)
        return error_set(err, PI_ERR_LIMIT, "stop: more than %d texts", PI_STOP_TEXTS);
    g->stops = mem_calloc(o->n_stops + 1, sizeof *g->stops);
    if (!g->stops) return error_nomem(err, o->n_stops * sizeof *g->stops, "stop");
    for (size_t i = 0; i < o->n_stops; i++) {
        size_t n = o->stops[i].n_bytes;
        if (n == 0 || n > PI_STOP_TEXT_BYTES)
            return error_set(err, PI_ERR_ARG, "stop: a text of %zu bytes: 1 to %d are allowed", n,
                             PI_STOP_TEXT_BYTES);
        char *copy = mem_strndup(o->stops[i].text, n);
        if (!copy) return error_nomem(err, n, "stop");
        g->stops[i] = (pi_stop_text){.text = copy, .n_bytes = n};
        if (o->keep_stop && n - 1 > g->look_back) g->look_back = n - 1;
    }
    return PI_OK;
}

pi_status pi_generation_create(const pi_model *model, const pi_generation_options *options,
                               pi_generation **out, pi_error *err) {
    *out = NULL;
    pi_generation *g = mem_calloc(1, sizeof *g);
    if (!g) return error_nomem(err, sizeof *g, "generation");
    g->model = model;
    g->options = *options;
    pi_status status = copy_stops(g, options, err);
    if (status != PI_OK) {
        pi_generation_free(g);
        return status;
    }
    *out = g;
    return PI_OK;
}

void pi_generation_free(pi_generation *g) {
    if (!g) return;
    for (size_t i = 0; g->stops && i < g->options.n_stops; i++) mem_free((char *)g->stops[i].text);
    mem_free(g->stops);
    mem_free(g->bytes);
    mem_free(g);
}

/* ---- text ------------------------------------------------------------------------------------ */

static pi_status append_token(pi_generation *g, int32_t token, pi_error *err) {
    size_t n = PIECE_GUESS, at = g->n_bytes;
    const pi_generation_options *o = &g->options;
    bool special = false;
    for (size_t i = 0; i < o->n_visible && o->visible[i] <= token; i++)
        special = special || o->visible[i] == token;
    pi_status status = PI_ERR_LIMIT;
    while (status == PI_ERR_LIMIT) {
        if (!mem_grow((void **)&g->bytes, &g->capacity, at + n, 1, BYTES_MAX))
            return error_nomem(err, at + n, "text");
        status = pi_token_text(g->model, token, special, g->bytes + at, n, &n, NULL);
    }
    if (status != PI_OK) return PI_OK; /* a token without text */
    g->n_bytes += n;
    g->n_total += n;
    return PI_OK;
}

/* Finds the stop text that ends the text, in the bytes from `from` on, and its beginning: the stop
 * text that begins first (with keep_stop: that ends first); on a tie, the first in the list. */
static int32_t find_stop(const pi_generation *g, size_t from, size_t *begin) {
    size_t best = SIZE_MAX;
    int32_t found = -1;
    for (size_t i = 0; i < g->options.n_stops; i++) {
        size_t n = g->stops[i].n_bytes, at = from + 1 > n ? from + 1 - n : 0;
        if (at + n > g->n_bytes) continue;
        const char *hit = os_find(g->bytes + at, g->n_bytes - at, g->stops[i].text, n);
        if (!hit) continue;
        size_t where = (size_t)(hit - g->bytes), rank = g->options.keep_stop ? where + n : where;
        if (rank >= best) continue;
        best = rank;
        *begin = where;
        found = (int32_t)i;
    }
    return found;
}

/* Length of the longest suffix of the text that is a prefix of a stop text. */
static size_t stop_beginning(const pi_generation *g) {
    size_t longest = 0, n = g->n_bytes - g->n_released;
    for (size_t i = 0; i < g->options.n_stops; i++) {
        size_t most = g->stops[i].n_bytes - 1 < n ? g->stops[i].n_bytes - 1 : n;
        for (size_t m = most; m > longest; m--)
            if (memcmp(g->bytes + g->n_bytes - m, g->stops[i].text, m) == 0) longest = m;
    }
    return longest;
}

/* Bytes that can be released while the text continues. */
static size_t releasable(const pi_generation *g) {
    const char *held = g->bytes + g->n_released;
    size_t n = g->n_bytes - g->n_released, back = g->options.keep_stop ? 0 : stop_beginning(g);
    size_t complete = utf8_complete_prefix(held, n);
    return complete > n - back ? utf8_complete_prefix(held, n - back) : complete;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

pi_status pi_generation_sample(pi_generation *g, const float *logits, pi_sampled *out,
                               pi_error *err) {
    pi_sampler *sampler = g->options.sampler;
    pi_error why = {.status = PI_OK};
    *out = (pi_sampled){.token = pi_sampler_sample(sampler, logits)};
    pi_grammar_progress grammar = pi_sampler_grammar_progress(sampler, &why);
    if (grammar == PI_GRAMMAR_FAILED) {
        if (err) *err = why;
        return why.status;
    }
    out->complete = grammar == PI_GRAMMAR_COMPLETE;
    out->end = pi_token_is_end(g->model, out->token);
    return PI_OK;
}

/* Drops released text in which no stop text can begin. */
static void forget(pi_generation *g) {
    size_t n = g->n_released > g->look_back ? g->n_released - g->look_back : 0;
    if (n == 0) return;
    memmove(g->bytes, g->bytes + n, g->n_bytes - n);
    g->n_bytes -= n;
    g->n_released -= n;
}

static void release(pi_generation *g, size_t n, pi_released *out) {
    out->text = n ? g->bytes + g->n_released : "";
    out->n_bytes = n;
    out->n_total = g->n_total;
    g->n_released += n;
}

pi_status pi_generation_accept(pi_generation *g, const pi_sampled *sampled, pi_released *out,
                               pi_error *err) {
    *out = (pi_released){.text = "", .stop_text = -1};
    forget(g);
    if (sampled->end) {
        pi_generation_end(g, PI_STOP_EOS, out);
        return PI_OK;
    }
    size_t from = g->n_bytes, begin = 0;
    pi_status status = append_token(g, sampled->token, err);
    if (status != PI_OK) return status;
    g->n_tokens++;
    out->stop_text = find_stop(g, from, &begin);
    if (out->stop_text >= 0) {
        out->stop = PI_STOP_TEXT;
        g->n_bytes = begin + (g->options.keep_stop ? g->stops[out->stop_text].n_bytes : 0);
    } else if (g->options.max_tokens >= 0 && g->n_tokens >= g->options.max_tokens) {
        out->stop = PI_STOP_LENGTH;
    } else if (sampled->complete) {
        out->stop = PI_STOP_EOS;
    }
    release(g, out->stop ? g->n_bytes - g->n_released : releasable(g), out);
    return PI_OK;
}

void pi_generation_end(pi_generation *g, pi_stop stop, pi_released *out) {
    *out = (pi_released){.stop = stop, .stop_text = -1};
    forget(g);
    release(g, g->n_bytes - g->n_released, out);
}
