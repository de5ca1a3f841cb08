/* prompt_store.c: see prompt_store.h. */
#include "prompt_store.h"

#include <string.h>

#include "mem.h"

/* Snapshots of recurrent layers that a save takes: the latest ones, because a later prompt may lack
 * the last tokens of a text. */
enum { SNAPSHOTS = 3 };

typedef struct node {
    struct node *parent, *children; /* parent of the first nodes: the root */
    struct node *next;              /* sibling */
    struct node *newer, *older;     /* by use; a node is newer than its children */
    int owner;
    int32_t n; /* 1..PROMPT_BLOCK */
    size_t n_bytes;
    void *rows;      /* keys and values: pi_session_get_range */
    void *recurrent; /* state after the last token; NULL: not known, or no recurrent layers */
    int32_t tokens[PROMPT_BLOCK];
} node;

struct prompt_store {
    node root; /* has no tokens */
    node *newest, *oldest;
    uint64_t max_bytes;
    bool needs_state; /* the model has recurrent layers */
    prompt_store_stats stats;
};

prompt_store *prompt_store_create(uint64_t max_bytes, bool needs_state) {
    prompt_store *s = mem_calloc(1, sizeof *s);
    if (!s) return NULL;
    s->max_bytes = max_bytes;
    s->needs_state = needs_state;
    return s;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void unlink_use(prompt_store *s, node *d) {
    *(d->newer ? &d->newer->older : &s->newest) = d->older;
    *(d->older ? &d->older->newer : &s->oldest) = d->newer;
    d->newer = d->older = NULL;
}

static void link_newest(prompt_store *s, node *d) {
    d->older = s->newest;
    if (s->newest) s->newest->newer = d;
    s->newest = d;
    if (!s->oldest) s->oldest = d;
}

/* Marks a node and those before it as used. */
static void touch(prompt_store *s, node *d) {
    for (; d != &s->root; d = d->parent) {
        unlink_use(s, d);
        link_newest(s, d);
    }
}

static void remove_leaf(prompt_store *s, node *d) {
    node **link = &d->parent->children;
    while (*link != d) link = &(*link)->next;
    *link = d->next;
    unlink_use(s, d);
    s->stats.n_bytes -= d->n_bytes;
    s->stats.n_blocks--;
    mem_free(d->rows);
    mem_free(d->recurrent);
    mem_free(d);
}

void prompt_store_free(prompt_store *s) {
    if (!s) return;
    while (s->oldest) remove_leaf(s, s->oldest); /* the oldest node has no children */
    mem_free(s);
}

/* Whether a node's tokens begin `tokens` [n]. */
static bool begins(const node *d, const int32_t *tokens, int32_t n, int owner) {
    return d->owner == owner && d->n <= n &&
           memcmp(d->tokens, tokens, (size_t)d->n * sizeof *tokens) == 0;
}

/* Returns the longest child whose tokens begin `tokens`; NULL: none. */
static node *find_child(const node *d, const int32_t *tokens, int32_t n, int owner) {
    node *best = NULL;
    for (node *c = d->children; c; c = c->next)
        if (begins(c, tokens, n, owner) && (!best || c->n > best->n)) best = c;
    return best;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Makes room by evicting the least recently used leaves, but not `kept`, the last node of the path
 * that is being saved: the nodes before it are newer. */
static bool make_room(prompt_store *s, size_t n_bytes, const node *kept) {
    if (n_bytes > s->max_bytes) return false;
    while (s->stats.n_bytes + n_bytes > s->max_bytes) {
        if (s->oldest == kept) return false;
        s->stats.evicted += (uint64_t)s->oldest->n;
        remove_leaf(s, s->oldest);
    }
    return true;
}

/* Adds a node for tokens [first, first + n) of the session. NULL: no memory or no room. */
static node *add_child(prompt_store *s, node *parent, const pi_session *session,
                       const int32_t *tokens, int32_t first, int32_t n, int owner) {
    const size_t n_rows = pi_session_range_bytes(session, n);
    touch(s, parent);
    if (!make_room(s, sizeof(node) + n_rows, parent)) return NULL;
    node *d = mem_calloc(1, sizeof *d);
    void *rows = mem_alloc(n_rows);
    if (!d || !rows || pi_session_get_range(session, first, n, rows, NULL) != PI_OK) {
        mem_free(d);
        mem_free(rows);
        return NULL;
    }
    *d = (node){.parent = parent,
                .next = parent->children,
                .owner = owner,
                .n = n,
                .n_bytes = sizeof *d + n_rows,
                .rows = rows};
    memcpy(d->tokens, tokens + first, (size_t)n * sizeof *tokens);
    parent->children = d;
    s->stats.n_bytes += d->n_bytes;
    s->stats.n_blocks++;
    s->stats.saved += (uint64_t)n;
    link_newest(s, d);
    touch(s, parent);
    return d;
}

/* Keeps the state of recurrent layers after the node's last token. */
static void keep_recurrent(prompt_store *s, node *d, const pi_session *session, int32_t length) {
    const size_t n_bytes = pi_session_recurrent_bytes(session);
    touch(s, d);
    if (d->recurrent || !s->needs_state || !make_room(s, n_bytes, d)) return;
    d->recurrent = mem_alloc(n_bytes);
    if (!d->recurrent) return;
    if (pi_session_get_recurrent(session, length, d->recurrent, NULL) == PI_OK) {
        d->n_bytes += n_bytes;
        s->stats.n_bytes += n_bytes;
        return;
    }
    mem_free(d->recurrent);
    d->recurrent = NULL;
}

/* Removes leaves whose tokens begin those of a new sibling, which replaces them. */
static void drop_shorter(prompt_store *s, const node *d) {
    for (node *c = d->parent->children, *next; c; c = next) {
        next = c->next;
        if (c != d && c->n < d->n && !c->recurrent && begins(c, d->tokens, d->n, d->owner))
            remove_leaf(s, c);
    }
}

/* Saves the first n tokens. Nodes of a path are at the same positions as in any other text: all but
 * the last have PROMPT_BLOCK tokens. */
static void save_prefix(prompt_store *s, const pi_session *session, const int32_t *tokens,
                        int32_t n, int owner) {
    node *at = &s->root;
    for (int32_t first = 0; first < n; first += PROMPT_BLOCK) {
        const int32_t n_block = n - first < PROMPT_BLOCK ? n - first : PROMPT_BLOCK;
        node *d = find_child(at, tokens + first, n_block, owner);
        if (!d || d->n < n_block) {
            d = add_child(s, at, session, tokens, first, n_block, owner);
            if (!d) return;
            drop_shorter(s, d);
        }
        at = d;
    }
    if (at != &s->root) keep_recurrent(s, at, session, n);
}

void prompt_store_save(prompt_store *s, const pi_session *session, const int32_t *tokens, int32_t n,
                       int owner) {
    const int most = s->needs_state ? SNAPSHOTS : 1;
    for (int i = 0; i < most && n > 0; i++, n--) {
        n = pi_session_rewind_point(session, n);
        save_prefix(s, session, tokens, n, owner);
    }
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* Returns the last node of the longest prefix that can be restored, whose length is *length. NULL:
 * none. */
static node *find_last(prompt_store *s, const int32_t *tokens, int32_t n, int owner,
                       int32_t *length) {
    node *best = NULL;
    int32_t first = 0;
    *length = 0;
    for (node *at = &s->root; at;) {
        node *full = NULL;
        for (node *c = at->children; c; c = c->next) {
            if (!begins(c, tokens + first, n - first, owner)) continue;
            if (c->n == PROMPT_BLOCK) full = c;
            if (first + c->n <= *length || (s->needs_state && !c->recurrent)) continue;
            best = c;
            *length = first + c->n;
        }
        first += PROMPT_BLOCK;
        at = full;
    }
    return best;
}

int32_t prompt_store_find(prompt_store *s, const int32_t *tokens, int32_t n, int owner) {
    int32_t length = 0;
    node *last = find_last(s, tokens, n, owner, &length);
    if (last) touch(s, last);
    return length;
}

int32_t prompt_store_restore(prompt_store *s, pi_session *session, int32_t have,
                             const int32_t *tokens, int32_t n, int owner) {
    int32_t length = 0;
    node *last = find_last(s, tokens, n, owner, &length);
    if (!last || length != n) return have;
    /* Whole nodes only: the session keeps what is before the first node that it lacks. */
    const int32_t first = have - have % PROMPT_BLOCK;
    const int32_t n_ranges = (n - first + PROMPT_BLOCK - 1) / PROMPT_BLOCK;
    pi_session_range *ranges = mem_calloc((size_t)n_ranges, sizeof *ranges);
    if (!ranges) return have;
    node *d = last;
    for (int32_t i = n_ranges - 1; i >= 0; i--, d = d->parent)
        ranges[i] = (pi_session_range){.data = d->rows, .n_tokens = d->n};
    pi_status status = pi_session_put_ranges(session, first, ranges, (size_t)n_ranges,
                                             tokens + first, last->recurrent, NULL);
    mem_free(ranges);
    if (status != PI_OK) return pi_session_length(session) < have ? 0 : have;
    s->stats.restored += (uint64_t)(n - first);
    return n;
}

prompt_store_stats prompt_store_get_stats(const prompt_store *s) {
    return s->stats;
}
