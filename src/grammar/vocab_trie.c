/* vocab_trie.c: sorts a vocabulary by bytes and builds the trie. */
#include "vocab_trie.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"

typedef struct sorted_token {
    const char *bytes;
    size_t n;
    int32_t id;
} sorted_token;

static int compare_tokens(const void *a, const void *b) {
    const sorted_token *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static pi_status read_texts(vocab_trie *t, const vocab_source *source, pi_error *err) {
    size_t capacity = 0, n = 0;
    t->offsets = mem_calloc((size_t)t->n_vocab + 1, sizeof *t->offsets);
    t->ends = mem_calloc((size_t)t->n_vocab, sizeof *t->ends);
    if (!t->offsets || !t->ends) return error_nomem(err, (size_t)t->n_vocab * 8, "vocabulary");
    for (int32_t id = 0; id < t->n_vocab; id++) {
        char text[VOCAB_TOKEN_MAX];
        size_t n_text = 0;
        if (source->is_end(source->user, id))
            t->ends[t->n_ends++] = id;
        else
            n_text = source->text(source->user, id, text, sizeof text);
        if (n_text > sizeof text) n_text = 0;
        if (!mem_grow((void **)&t->bytes, &capacity, n + n_text, 1, SIZE_MAX))
            return error_nomem(err, n + n_text, "vocabulary");
        if (n_text) memcpy(t->bytes + n, text, n_text);
        n += n_text;
        t->offsets[id + 1] = n;
    }
    return PI_OK;
}

/* Bytes of the common prefix of a token and the previous token; NULL: there is none. */
static size_t shared_bytes(const sorted_token *token, const sorted_token *before) {
    size_t shared = 0, n_before = before ? before->n : 0;
    while (shared < n_before && shared < token->n && token->bytes[shared] == before->bytes[shared])
        shared++;
    return shared;
}

/* Adds the nodes of a token that the previous token lacks; *open: the nodes of the previous
 * token. */
static void add_nodes(vocab_trie *t, const sorted_token *token, const sorted_token *before,
                      uint32_t *open, uint32_t n_tokens) {
    size_t shared = shared_bytes(token, before), n_before = before ? before->n : 0;
    for (size_t depth = shared; depth < n_before; depth++)
        t->nodes[open[depth]].end = (uint32_t)t->n_nodes;
    for (size_t depth = shared; depth < token->n; depth++) {
        open[depth] = (uint32_t)t->n_nodes;
        t->nodes[t->n_nodes++] = (vocab_node){.first_token = n_tokens,
                                              .depth = (uint16_t)(depth + 1),
                                              .byte = (uint8_t)token->bytes[depth]};
    }
}

static pi_status make_nodes(vocab_trie *t, sorted_token *sorted, pi_error *err) {
    uint32_t open[VOCAB_TOKEN_MAX] = {0}, n = 0;
    size_t n_nodes = 1;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t n_text;
        const char *text = vocab_text(t, id, &n_text);
        if (n_text) sorted[n++] = (sorted_token){text, n_text, id};
        if (n_text > t->longest) t->longest = (uint32_t)n_text;
    }
    qsort(sorted, n, sizeof *sorted, compare_tokens);
    for (uint32_t i = 0; i < n; i++)
        n_nodes += sorted[i].n - shared_bytes(&sorted[i], i ? &sorted[i - 1] : NULL);
    t->nodes = mem_calloc(n_nodes, sizeof *t->nodes);
    t->tokens = mem_calloc(n, sizeof *t->tokens);
    if (!t->nodes || !t->tokens) return error_nomem(err, n_nodes * sizeof *t->nodes, "vocabulary");
    for (uint32_t i = 0; i < n; i++) {
        add_nodes(t, &sorted[i], i ? &sorted[i - 1] : NULL, open, i);
        t->tokens[i] = sorted[i].id;
    }
    for (size_t depth = 0; n && depth < sorted[n - 1].n; depth++)
        t->nodes[open[depth]].end = (uint32_t)t->n_nodes;
    t->nodes[t->n_nodes].first_token = n;
    return PI_OK;
}

pi_status vocab_trie_create(const vocab_source *source, vocab_trie **out, pi_error *err) {
    *out = NULL;
    vocab_trie *t = mem_calloc(1, sizeof *t);
    if (!t) return error_nomem(err, sizeof *t, "vocabulary");
    t->n_vocab = source->n_vocab;
    pi_status status = read_texts(t, source, err);
    sorted_token *sorted = status == PI_OK ? mem_calloc((size_t)t->n_vocab, sizeof *sorted) : NULL;
    if (status == PI_OK && !sorted)
        status = error_nomem(err, (size_t)t->n_vocab * sizeof *sorted, "vocabulary");
    if (status == PI_OK) status = make_nodes(t, sorted, err);
    mem_free(sorted);
    if (status != PI_OK) {
        vocab_trie_free(t);
        return status;
    }
    *out = t;
    return PI_OK;
}

void vocab_trie_free(vocab_trie *t) {
    if (!t) return;
    mem_free(t->nodes);
    mem_free(t->tokens);
    mem_free(t->ends);
    mem_free(t->bytes);
    mem_free(t->offsets);
    mem_free(t);
}
