/* tokenizer_special.c: tokens that are matched in the text before it is tokenized: user-defined
 * tokens always, control and unknown tokens when the caller requests it.
 *
 * The rule: tokens in order of priority (longest first, then by id) each take their occurrences,
 * from left to right, in the text that earlier tokens left over. Texts and vocabularies are
 * untrusted, so the search takes O(n log n) for a text of n bytes, whatever the tokens:
 *
 * 1. An automaton of the reversed tokens (Aho and Corasick 1975) reads the text once from its end
 *    and finds at every byte the longest token that begins there. Each is a candidate in a heap,
 *    ordered by priority, then place.
 * 2. The best candidate takes its bytes when they are free. It is dropped when its first byte is
 *    taken. When only its end is taken, the longest token that begins at the same place and fits
 *    before the taken bytes becomes a candidate instead.
 *
 * A candidate is never longer than the tokens that took bytes before it, so its bytes are free when
 * its first and last bytes are, and a token of L bytes invalidates at most L - 1 candidates before
 * it: there are at most 2 n candidates. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

enum {
    /* Memory of the automaton: 16 bytes per node. Vocabularies have some hundred KB of such
     * text. */
    SPECIAL_MAX_NODES = 1 << 23,
    /* A candidate is one number: priority << PLACE_BITS | place in the text. */
    PLACE_BITS = 40
};
_Static_assert(TOKENIZER_MAX_VOCAB <= 1 << (64 - PLACE_BITS),
               "a priority and a place fit in 64 bits");
#define PLACE_MAX (((size_t)1 << PLACE_BITS) - 1)

/* Owners of text bytes, in addition to a token's priority + 1. */
#define OWNER_NONE     0u
#define OWNER_STRIPPED UINT32_MAX

/* ---- construction ---------------------------------------------------------------------------- */

/* A special token while the tables are built. */
typedef struct sort_item {
    gguf_string text;
    int32_t id; /* -1: not in the view being built */
    uint32_t text_number;
} sort_item;

bool tokenizer_is_special(const token_entry *token) {
    return token->text.n_bytes > 0 &&
           (token->type == TOKEN_CONTROL || token->type == TOKEN_USER_DEFINED ||
            token->type == TOKEN_UNKNOWN);
}

static uint8_t byte_from_end(gguf_string text, size_t i) {
    return (uint8_t)text.data[text.n_bytes - 1 - i];
}

static int compare_priority(const void *pa, const void *pb) {
    const sort_item *a = pa, *b = pb;
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes > b->text.n_bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* By reversed text; equal texts by id. */
static int compare_reversed(const void *pa, const void *pb) {
    const sort_item *a = pa, *b = pb;
    size_t n = (size_t)(a->text.n_bytes < b->text.n_bytes ? a->text.n_bytes : b->text.n_bytes);
    for (size_t i = 0; i < n; i++) {
        int order = byte_from_end(a->text, i) - byte_from_end(b->text, i);
        if (order) return order;
    }
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes < b->text.n_bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Items [begin, end) that share the `depth` bytes on the path to a node. */
typedef struct node_range {
    uint32_t begin, end, depth;
} node_range;

/* Scratch memory of building. A text of several tokens is identified by its first item. */
typedef struct special_build {
    special_index *index;
    const tokenizer *t;
    sort_item *items;    /* [n] ordered by reversed text */
    sort_item *order;    /* [n] texts of a view, by priority */
    uint32_t *beginning; /* [n] per text: its longest proper prefix among the texts */
    uint32_t n;
    node_range *ranges; /* [n_nodes] */
    size_t node_capacity, range_capacity;
} special_build;

static pi_status add_node(special_build *b, uint8_t byte, node_range range, pi_error *err) {
    special_index *index = b->index;
    if (index->n_nodes > SPECIAL_MAX_NODES) {
        return error_set(err, PI_ERR_LIMIT,
                         "bad vocabulary: tokenizer.ggml.tokens: the texts of control and "
                         "user-defined tokens are too long: at most %d bytes",
                         SPECIAL_MAX_NODES);
    }
    size_t n = (size_t)index->n_nodes + 1;
    if (!mem_grow((void **)&index->nodes, &b->node_capacity, n, sizeof *index->nodes, SIZE_MAX) ||
        !mem_grow((void **)&b->ranges, &b->range_capacity, n, sizeof *b->ranges, SIZE_MAX)) {
        return error_nomem(err, n * sizeof *index->nodes, "special tokens");
    }
    b->ranges[index->n_nodes] = range;
    index->nodes[index->n_nodes++] = (special_node){.text = SPECIAL_NONE, .byte = byte};
    return PI_OK;
}

/* Adds the children of a node after those of the previous node, so that nodes are numbered by
 * depth. Items that end at a node come first in its range. */
static pi_status add_children(special_build *b, uint32_t node, pi_error *err) {
    node_range r = b->ranges[node];
    b->index->nodes[node].children = b->index->n_nodes;
    if (r.begin < r.end && b->items[r.begin].text.n_bytes == r.depth)
        b->index->nodes[node].text = r.begin;
    while (r.begin < r.end && b->items[r.begin].text.n_bytes == r.depth) r.begin++;
    pi_status status = PI_OK;
    while (r.begin < r.end && !status) {
        uint8_t byte = byte_from_end(b->items[r.begin].text, r.depth);
        uint32_t end = r.begin + 1;
        while (end < r.end && byte_from_end(b->items[end].text, r.depth) == byte) end++;
        status = add_node(b, byte, (node_range){r.begin, end, r.depth + 1}, err);
        r.begin = end;
    }
    return status;
}

/* The child for a byte; 0 (the root, which is no node's child): none. */
static uint32_t find_child(const special_index *index, uint32_t node, uint8_t byte) {
    if (node == 0) return index->first[byte];
    uint32_t low = index->nodes[node].children, end = index->nodes[node + 1].children, high = end;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (index->nodes[middle].byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && index->nodes[low].byte == byte ? low : 0;
}

/* The node of the longest suffix of the bytes read so far that leads to some token. */
static uint32_t next_node(const special_index *index, uint32_t node, uint8_t byte, size_t *steps) {
    for (;; node = index->nodes[node].fail) {
        uint32_t child = find_child(index, node, byte);
        ++*steps;
        if (child || node == 0) return child;
    }
}

/* Sets the fail links, parents before children. A node where no token ends gets the longest token
 * that ends on its path. */
static void link_nodes(special_build *b) {
    special_index *index = b->index;
    size_t steps = 0;
    for (uint32_t v = 0; v < index->n_nodes; v++) {
        special_node *node = &index->nodes[v];
        uint32_t other = v == 0 ? SPECIAL_NONE : index->nodes[node->fail].text;
        if (node->text == SPECIAL_NONE)
            node->text = other;
        else
            b->beginning[node->text] = other;
        for (uint32_t c = node->children; c < index->nodes[v + 1].children; c++) {
            uint8_t byte = index->nodes[c].byte;
            if (v == 0)
                index->first[byte] = c;
            else
                index->nodes[c].fail = next_node(index, node->fail, byte, &steps);
        }
    }
}

static pi_status build_nodes(special_build *b, pi_error *err) {
    special_index *index = b->index;
    pi_status status = add_node(b, 0, (node_range){0, b->n, 0}, err);
    for (uint32_t v = 0; v < index->n_nodes && !status; v++) status = add_children(b, v, err);
    if (!status) status = add_node(b, 0, (node_range){0}, err); /* end of the last children */
    if (status) return status;
    index->n_nodes--;
    index->nodes[index->n_nodes].children = index->n_nodes;
    link_nodes(b);
    return PI_OK;
}

static uint32_t depth_of(const special_view *view, uint32_t token) {
    return token == SPECIAL_NONE ? 0 : view->tokens[token].depth;
}

static uint32_t jump_of(const special_view *view, uint32_t token) {
    return token == SPECIAL_NONE ? SPECIAL_NONE : view->tokens[token].jump;
}

/* Jumps double where possible, so that the way up takes O(log n) steps (Myers 1983, "An applicative
 * random-access stack"). */
static void link_token(special_view *view, uint32_t number, uint32_t up) {
    special_token *token = &view->tokens[number];
    uint32_t one = jump_of(view, up), two = jump_of(view, one);
    bool equal = depth_of(view, up) - depth_of(view, one) ==
                 depth_of(view, one) - depth_of(view, two);
    token->up = up;
    token->jump = equal ? two : up;
    token->depth = depth_of(view, up) + 1;
}

/* Orders the texts of a view by priority. Texts that are not in the view get id -1. Returns the
 * number of texts. */
static uint32_t order_texts(special_build *b, bool user_defined) {
    uint32_t n_texts = 0;
    for (uint32_t i = 0, end; i < b->n; i = end) {
        sort_item item = {b->items[i].text, -1, i};
        for (end = i; end < b->n && b->items[end].text.n_bytes == item.text.n_bytes &&
                      memcmp(b->items[end].text.data, item.text.data, item.text.n_bytes) == 0;
             end++) {
            int32_t id = b->items[end].id;
            if (item.id < 0 && (!user_defined || b->t->tokens[id].type == TOKEN_USER_DEFINED))
                item.id = id;
        }
        b->order[n_texts++] = item;
    }
    qsort(b->order, n_texts, sizeof *b->order, compare_priority);
    return n_texts;
}

static pi_status build_view(special_build *b, bool user_defined, special_view *view, arena *memory,
                            pi_error *err) {
    view->tokens = arena_calloc(memory, b->n, sizeof *view->tokens);
    view->of_text = arena_calloc(memory, b->n, sizeof *view->of_text);
    if (!view->tokens || !view->of_text) {
        return error_nomem(err, b->n * sizeof *view->tokens, "special tokens");
    }
    uint32_t n_texts = order_texts(b, user_defined);
    for (uint32_t i = 0; i < n_texts; i++) {
        const sort_item *item = &b->order[i];
        view->of_text[item->text_number] = SPECIAL_NONE;
        if (item->id < 0) continue;
        view->of_text[item->text_number] = view->n;
        view->tokens[view->n++] = (special_token){.id = item->id,
                                                  .n_bytes = (uint32_t)item->text.n_bytes};
    }
    for (uint32_t i = n_texts; i-- > 0;) { /* shorter texts first */
        uint32_t text = b->order[i].text_number, other = b->beginning[text];
        uint32_t up = other == SPECIAL_NONE ? SPECIAL_NONE : view->of_text[other];
        if (b->order[i].id < 0)
            view->of_text[text] = up;
        else
            link_token(view, view->of_text[text], up);
    }
    return PI_OK;
}

static pi_status build_index(special_build *b, arena *memory, pi_error *err) {
    uint32_t used = 0;
    for (int32_t i = 0; i < b->t->info.n_vocab; i++) {
        const token_entry *token = &b->t->tokens[i];
        if (tokenizer_is_special(token)) b->items[used++] = (sort_item){token->text, i, 0};
    }
    qsort(b->items, b->n, sizeof *b->items, compare_reversed);
    pi_status status = build_nodes(b, err);
    for (int i = 0; i < SPECIAL_VIEWS && !status; i++)
        status = build_view(b, i == SPECIAL_USER_DEFINED, &b->index->views[i], memory, err);
    return status;
}

pi_status tokenizer_special_build(tokenizer *t, pi_error *err) {
    special_build b = {.index = &t->special, .t = t};
    for (int32_t i = 0; i < t->info.n_vocab; i++) b.n += tokenizer_is_special(&t->tokens[i]);
    if (b.n == 0) return PI_OK;
    b.items = mem_calloc(b.n, sizeof *b.items);
    b.order = mem_calloc(b.n, sizeof *b.order);
    b.beginning = mem_calloc(b.n, sizeof *b.beginning);
    pi_status status = b.items && b.order && b.beginning
                           ? build_index(&b, &t->memory, err)
                           : error_nomem(err, b.n * sizeof *b.items, "special tokens");
    mem_free(b.items);
    mem_free(b.order);
    mem_free(b.beginning);
    mem_free(b.ranges);
    return status;
}

void tokenizer_special_free(special_index *index) {
    mem_free(index->nodes);
}

/* ---- splitting a text ------------------------------------------------------------------------ */

typedef struct split_work {
    const tokenizer *t;
    const special_view *view;
    const char *text;
    size_t n_bytes;
    uint64_t *heap; /* [n_heap] candidates, the smallest on top */
    size_t n_heap, heap_capacity;
    uint32_t *owner; /* [n_bytes] OWNER_..., or the number of a token in the view + 1 */
    size_t steps;
} split_work;

static uint64_t candidate(uint32_t token, size_t place) {
    return (uint64_t)token << PLACE_BITS | place;
}

static bool find_candidates(split_work *w) {
    const special_index *index = &w->t->special;
    uint32_t node = 0;
    for (size_t i = w->n_bytes; i-- > 0;) {
        node = next_node(index, node, (uint8_t)w->text[i], &w->steps);
        uint32_t text = index->nodes[node].text;
        uint32_t token = text == SPECIAL_NONE ? SPECIAL_NONE : w->view->of_text[text];
        if (token == SPECIAL_NONE) continue;
        if (!mem_grow((void **)&w->heap, &w->heap_capacity, w->n_heap + 1, sizeof *w->heap,
                      SIZE_MAX)) {
            return false;
        }
        w->heap[w->n_heap++] = candidate(token, i);
    }
    return true;
}

static void sift_down(split_work *w, size_t i) {
    uint64_t item = w->heap[i];
    for (size_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= item) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = item;
}

static bool is_free_blank(const split_work *w, size_t i) {
    return w->owner[i] == OWNER_NONE && isspace((unsigned char)w->text[i]);
}

static void take_bytes(split_work *w, uint32_t number, size_t place) {
    const special_token *token = &w->view->tokens[number];
    int attributes = w->t->tokens[token->id].attributes;
    size_t end = place + token->n_bytes;
    for (size_t i = place; i < end; i++) w->owner[i] = number + 1;
    if (attributes & TOKEN_STRIP_LEFT)
        for (size_t i = place; i > 0 && is_free_blank(w, i - 1); i--)
            w->owner[i - 1] = OWNER_STRIPPED;
    if (attributes & TOKEN_STRIP_RIGHT)
        for (size_t i = end; i < w->n_bytes && is_free_blank(w, i); i++)
            w->owner[i] = OWNER_STRIPPED;
}

/* Number of free bytes from `place`, which is free, to `last`, which is not; the taken bytes
 * between them are contiguous. */
static size_t free_bytes(split_work *w, size_t place, size_t last) {
    size_t low = place;
    while (last - low > 1) {
        size_t middle = low + (last - low) / 2;
        w->steps++;
        if (w->owner[middle] == OWNER_NONE)
            low = middle;
        else
            last = middle;
    }
    return last - place;
}

/* The longest token of at most `room` bytes that is a prefix of this one. */
static uint32_t shorter_token(split_work *w, uint32_t number, size_t room) {
    const special_token *tokens = w->view->tokens;
    while (number != SPECIAL_NONE && tokens[number].n_bytes > room) {
        uint32_t jump = tokens[number].jump;
        bool far = jump != SPECIAL_NONE && tokens[jump].n_bytes > room;
        number = far ? jump : tokens[number].up;
        w->steps++;
    }
    return number;
}

static void settle_candidates(split_work *w) {
    for (size_t i = w->n_heap / 2; i-- > 0;) sift_down(w, i);
    while (w->n_heap > 0) {
        uint32_t number = (uint32_t)(w->heap[0] >> PLACE_BITS);
        size_t place = (size_t)(w->heap[0] & PLACE_MAX);
        size_t last = place + w->view->tokens[number].n_bytes - 1;
        uint32_t instead = SPECIAL_NONE;
        w->steps++;
        if (w->owner[place] == OWNER_NONE) {
            if (w->owner[last] == OWNER_NONE)
                take_bytes(w, number, place);
            else
                instead = shorter_token(w, number, free_bytes(w, place, last));
        }
        w->heap[0] = instead == SPECIAL_NONE ? w->heap[--w->n_heap] : candidate(instead, place);
        if (w->n_heap > 0) sift_down(w, 0);
    }
}

static bool append_fragment(fragment_list *f, text_fragment item) {
    if (!mem_grow((void **)&f->items, &f->capacity, f->n + 1, sizeof *f->items, SIZE_MAX)) {
        return false;
    }
    f->items[f->n++] = item;
    return true;
}

/* Converts owners of bytes to fragments. */
static bool list_fragments(const split_work *w, fragment_list *f) {
    bool ok = true;
    for (size_t i = 0, begin; i < w->n_bytes && ok;) {
        uint32_t owner = w->owner[i];
        begin = i;
        if (owner == OWNER_STRIPPED) {
            i++;
        } else if (owner == OWNER_NONE) {
            while (i < w->n_bytes && w->owner[i] == OWNER_NONE) i++;
            ok = append_fragment(f, (text_fragment){begin, i - begin, -1});
        } else {
            const special_token *token = &w->view->tokens[owner - 1];
            i += token->n_bytes;
            ok = append_fragment(f, (text_fragment){begin, token->n_bytes, token->id});
        }
    }
    return ok;
}

pi_status tokenizer_special_split(const tokenizer *t, const char *text, size_t n_bytes,
                                  bool parse_special, fragment_list *fragments, pi_error *err) {
    if (n_bytes > PLACE_MAX) {
        return error_set(err, PI_ERR_LIMIT,
                         "text of %zu bytes is too long to tokenize: at most %zu", n_bytes,
                         PLACE_MAX);
    }
    split_work w = {.t = t, .text = text, .n_bytes = n_bytes};
    w.view = &t->special.views[parse_special ? SPECIAL_ALL : SPECIAL_USER_DEFINED];
    fragments->n = 0;
    bool ok = w.view->n == 0 || find_candidates(&w);
    if (ok && w.n_heap == 0) {
        ok = n_bytes == 0 || append_fragment(fragments, (text_fragment){0, n_bytes, -1});
    } else if (ok) {
        w.owner = mem_calloc(n_bytes, sizeof *w.owner);
        ok = w.owner != NULL;
        if (ok) settle_candidates(&w);
        ok = ok && list_fragments(&w, fragments);
    }
    fragments->steps = w.steps;
    mem_free(w.heap);
    mem_free(w.owner);
    return ok ? PI_OK : error_nomem(err, n_bytes * sizeof *w.owner, "special tokens in a text");
}
