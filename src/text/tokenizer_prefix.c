/* tokenizer_prefix.c: finds the tokens that begin at a place of a text, shortest first, in a sorted
 * list of token texts. */
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

typedef struct prefix_item {
    gguf_string text;
    int32_t id;
} prefix_item;

/* Equal texts: the last token comes first, as it is the one that look-ups find. */
static int compare_texts(const void *pa, const void *pb) {
    const prefix_item *a = pa, *b = pb;
    size_t n = (size_t)(a->text.n_bytes < b->text.n_bytes ? a->text.n_bytes : b->text.n_bytes);
    int order = memcmp(a->text.data, b->text.data, n);
    if (order) return order;
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes < b->text.n_bytes ? -1 : 1;
    return a->id > b->id ? -1 : a->id < b->id;
}

pi_status tokenizer_prefixes_build(tokenizer *t, uint32_t types, pi_error *err) {
    size_t n_vocab = (size_t)t->info.n_vocab, n = 0;
    prefix_item *items = mem_alloc(n_vocab * sizeof *items);
    t->prefixes = arena_calloc(&t->memory, n_vocab, sizeof *t->prefixes);
    if (!items || !t->prefixes) {
        mem_free(items);
        return error_nomem(err, n_vocab * sizeof *items, "vocabulary");
    }
    for (int32_t i = 0; i < t->info.n_vocab; i++) {
        const token_entry *token = &t->tokens[i];
        if (token->text.n_bytes > 0 && types >> token->type & 1)
            items[n++] = (prefix_item){token->text, i};
    }
    qsort(items, n, sizeof *items, compare_texts);
    for (size_t i = 0; i < n; i++) t->prefixes[i] = items[i].id;
    t->n_prefixes = (uint32_t)n;
    mem_free(items);
    return PI_OK;
}

/* The byte at `depth` of the i-th text; -1: the text has ended. */
static int byte_at(const tokenizer *t, uint32_t i, size_t depth) {
    gguf_string text = t->tokens[t->prefixes[i]].text;
    return depth < text.n_bytes ? (unsigned char)text.data[depth] : -1;
}

/* The first text in [begin, end) whose byte at `depth` is at least `byte`. */
static uint32_t lower_bound(const tokenizer *t, uint32_t begin, uint32_t end, size_t depth,
                            int byte) {
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (byte_at(t, middle, depth) < byte)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

bool tokenizer_prefix_next(const tokenizer *t, prefix_walk *w, char c, int32_t *id) {
    int byte = (unsigned char)c;
    w->begin = lower_bound(t, w->begin, w->end, w->depth, byte);
    w->end = lower_bound(t, w->begin, w->end, w->depth, byte + 1);
    w->depth++;
    *id = w->begin < w->end && byte_at(t, w->begin, w->depth) < 0 ? t->prefixes[w->begin] : -1;
    return w->begin < w->end;
}
