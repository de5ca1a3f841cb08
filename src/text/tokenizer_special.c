/* tokenizer_special.c: tokens that are matched in the text before it is tokenized: user-defined
 * ones always, control and unknown ones when the caller asks for it.
 *
 * The rule: tokens in order of priority (longest first), each takes its occurrences from left to
 * right in what the ones before have left over. Trying thousands of tokens on the whole text would
 * be slow, so a first scan finds out which occur at all; usually none does. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

typedef struct sort_item {
    gguf_string text;
    int32_t id;
    uint32_t rank;
} sort_item;

static int compare_priority(const void *pa, const void *pb) {
    const sort_item *a = pa, *b = pb;
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes > b->text.n_bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int compare_text(const void *pa, const void *pb) {
    const sort_item *a = pa, *b = pb;
    size_t n = (size_t)(a->text.n_bytes < b->text.n_bytes ? a->text.n_bytes : b->text.n_bytes);
    int order = memcmp(a->text.data, b->text.data, n);
    if (order) return order;
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes < b->text.n_bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool is_special(const token_entry *token) {
    return token->text.n_bytes > 0 &&
           (token->type == TOKEN_CONTROL || token->type == TOKEN_USER_DEFINED ||
            token->type == TOKEN_UNKNOWN);
}

pi_status tokenizer_special_build(tokenizer *t, pi_error *err) {
    special_index *index = &t->special;
    size_t n = 0;
    for (int32_t i = 0; i < t->info.n_vocab; i++) n += is_special(&t->tokens[i]);
    index->by_text = arena_calloc(&t->memory, n, sizeof *index->by_text);
    index->by_priority = arena_calloc(&t->memory, n, sizeof *index->by_priority);
    index->rank = arena_calloc(&t->memory, n, sizeof *index->rank);
    sort_item *items = mem_calloc(n, sizeof *items);
    if (!items || !index->by_text || !index->by_priority || !index->rank) {
        mem_free(items);
        return error_nomem(err, n * sizeof *items, "special tokens");
    }
    size_t used = 0;
    for (int32_t i = 0; i < t->info.n_vocab; i++) {
        if (is_special(&t->tokens[i])) items[used++] = (sort_item){t->tokens[i].text, i, 0};
    }
    index->n = (uint32_t)n;
    qsort(items, n, sizeof *items, compare_priority);
    for (size_t i = 0; i < n; i++) {
        index->by_priority[i] = items[i].id;
        items[i].rank = (uint32_t)i;
    }
    qsort(items, n, sizeof *items, compare_text);
    for (size_t i = 0; i < n; i++) {
        index->by_text[i] = items[i].id;
        index->rank[i] = items[i].rank;
        index->bucket[(unsigned char)items[i].text.data[0] + 1] = (uint32_t)i + 1;
    }
    for (int c = 0; c < TOKENIZER_BYTES; c++) {
        if (index->bucket[c + 1] < index->bucket[c]) index->bucket[c + 1] = index->bucket[c];
    }
    mem_free(items);
    return PI_OK;
}

/* First index in [low, high) whose text has at `depth` a byte >= c. All have more than `depth`
 * bytes and share the first `depth`. */
static uint32_t lower_bound(const tokenizer *t, uint32_t low, uint32_t high, size_t depth, int c) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        gguf_string text = t->tokens[t->special.by_text[middle]].text;
        if ((unsigned char)text.data[depth] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Sets seen[rank] for every special token that is a prefix of text[0 .. n). */
static void mark_prefixes(const tokenizer *t, const char *text, size_t n, bool *seen) {
    const special_index *index = &t->special;
    int first = (unsigned char)text[0];
    uint32_t low = index->bucket[first], high = index->bucket[first + 1];
    for (size_t depth = 1; low < high; depth++) {
        /* those that end here come first */
        while (low < high && t->tokens[index->by_text[low]].text.n_bytes == depth) {
            seen[index->rank[low++]] = true;
        }
        if (low == high || depth >= n) break;
        int c = (unsigned char)text[depth];
        low = lower_bound(t, low, high, depth, c);
        high = lower_bound(t, low, high, depth, c + 1);
    }
}

static bool append_fragment(fragment_list *f, text_fragment item) {
    if (item.id < 0 && item.n_bytes == 0) return true;
    if (!mem_grow((void **)&f->items, &f->capacity, f->n + 1, sizeof *f->items, SIZE_MAX / 64)) {
        return false;
    }
    f->items[f->n++] = item;
    return true;
}

/* Cuts one raw fragment at every occurrence of a token. */
static bool cut_fragment(fragment_list *f, const token_entry *token, int32_t id, const char *text,
                         text_fragment raw) {
    size_t n_token = (size_t)token->text.n_bytes;
    for (;;) {
        const char *from = text + raw.begin;
        const char *found = memmem(from, raw.n_bytes, token->text.data, n_token);
        if (!found) return append_fragment(f, raw);
        text_fragment left = {raw.begin, (size_t)(found - from), -1};
        if (token->attributes & TOKEN_STRIP_LEFT) {
            while (left.n_bytes && isspace((unsigned char)from[left.n_bytes - 1])) left.n_bytes--;
        }
        size_t skip = (size_t)(found - from) + n_token;
        raw.begin += skip;
        raw.n_bytes -= skip;
        if (token->attributes & TOKEN_STRIP_RIGHT) {
            while (raw.n_bytes && isspace((unsigned char)text[raw.begin])) {
                raw.begin++;
                raw.n_bytes--;
            }
        }
        if (!append_fragment(f, left) ||
            !append_fragment(f, (text_fragment){(size_t)(found - text), n_token, id})) {
            return false;
        }
    }
}

static bool cut_all(const tokenizer *t, int32_t id, const char *text, fragment_list *f) {
    text_fragment *old = f->items;
    size_t n_old = f->n, old_capacity = f->capacity;
    f->items = f->spare;
    f->capacity = f->spare_capacity;
    f->n = 0;
    f->spare = old;
    f->spare_capacity = old_capacity;
    for (size_t i = 0; i < n_old; i++) {
        bool ok = old[i].id >= 0 ? append_fragment(f, old[i])
                                 : cut_fragment(f, &t->tokens[id], id, text, old[i]);
        if (!ok) return false;
    }
    return true;
}

pi_status tokenizer_special_split(const tokenizer *t, const char *text, size_t n_bytes,
                                  bool parse_special, fragment_list *fragments, pi_error *err) {
    const special_index *index = &t->special;
    fragments->n = 0;
    bool *seen = mem_calloc(index->n, sizeof *seen); /* [n] by priority */
    bool ok = seen && append_fragment(fragments, (text_fragment){0, n_bytes, -1});
    for (size_t i = 0; ok && i < n_bytes; i++) {
        int c = (unsigned char)text[i];
        if (index->bucket[c] < index->bucket[c + 1]) mark_prefixes(t, text + i, n_bytes - i, seen);
    }
    for (uint32_t i = 0; ok && i < index->n; i++) {
        int32_t id = index->by_priority[i];
        bool wanted = parse_special || t->tokens[id].type == TOKEN_USER_DEFINED;
        if (seen[i] && wanted) ok = cut_all(t, id, text, fragments);
    }
    mem_free(seen);
    return ok ? PI_OK
              : error_nomem(err, index->n + fragments->n * sizeof(text_fragment),
                            "special tokens in a text");
}
