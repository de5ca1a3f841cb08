/* prompt_store.c: see prompt_store.h.
 *
 * Invariants: a node is newer than its children, so the least recently used node is a leaf. The
 * parent of a node in a file is in a file, so a node in memory alone has no descendants in files.
 */
#include "prompt_store.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "mem.h"
#include "prompt_disk.h"

/* Snapshots of recurrent layers that a save takes: the latest ones, because a later prompt may lack
 * the last tokens of a text. */
enum { SNAPSHOTS = 3 };

/* Lists of nodes by their last use: all of them, those in memory. */
typedef enum use_list { ALL, IN_MEMORY, USE_LISTS } use_list;

typedef struct node {
    struct node *parent, *children; /* parent of the first nodes: the root */
    struct node *next;              /* sibling */
    struct node *newer[USE_LISTS], *older[USE_LISTS];
    int owner;
    prompt_block block; /* n_recurrent > 0: the state is known */
    void *rows;         /* keys and values; NULL: only in the file */
    void *recurrent;    /* NULL: only in the file, not known, or no recurrent layers */
    bool in_file;
} node;

struct prompt_store {
    node root; /* has no tokens */
    node *newest[USE_LISTS], *oldest[USE_LISTS];
    prompt_store_options options;
    prompt_disk *disk;  /* NULL: none */
    size_t state_bytes; /* of recurrent layers; 0: the model has none */
    prompt_store_stats stats;
};

/* ---- lists ----------------------------------------------------------------------------------- */

static void unlink_use(prompt_store *s, node *d, use_list l) {
    *(d->newer[l] ? &d->newer[l]->older[l] : &s->newest[l]) = d->older[l];
    *(d->older[l] ? &d->older[l]->newer[l] : &s->oldest[l]) = d->newer[l];
    d->newer[l] = d->older[l] = NULL;
}

static void link_newest(prompt_store *s, node *d, use_list l) {
    d->older[l] = s->newest[l];
    if (s->newest[l]) s->newest[l]->newer[l] = d;
    s->newest[l] = d;
    if (!s->oldest[l]) s->oldest[l] = d;
}

/* Marks a node and those before it as used. */
static void touch(prompt_store *s, node *d) {
    for (; d != &s->root; d = d->parent) {
        unlink_use(s, d, ALL);
        link_newest(s, d, ALL);
        if (!d->rows) continue;
        unlink_use(s, d, IN_MEMORY);
        link_newest(s, d, IN_MEMORY);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static size_t memory_bytes(const node *d) {
    return sizeof *d + (size_t)d->block.n_rows + (d->recurrent ? (size_t)d->block.n_recurrent : 0);
}

static void forget_rows(prompt_store *s, node *d) {
    if (!d->rows) return;
    s->stats.n_bytes -= memory_bytes(d);
    unlink_use(s, d, IN_MEMORY);
    mem_free(d->rows);
    mem_free(d->recurrent);
    d->rows = d->recurrent = NULL;
}

/* Frees a leaf; `files`: also removes its file. */
static void remove_leaf(prompt_store *s, node *d, bool files) {
    node **link = &d->parent->children;
    while (*link != d) link = &(*link)->next;
    *link = d->next;
    forget_rows(s, d);
    unlink_use(s, d, ALL);
    if (d->in_file) s->stats.n_file_bytes -= prompt_disk_bytes(&d->block);
    if (d->in_file && files) prompt_disk_remove(s->disk, d->block.name);
    s->stats.n_blocks--;
    mem_free(d);
}

/* Evicts a node and those after it. */
static void remove_tree(prompt_store *s, node *d) {
    for (bool last = false; !last;) {
        node *leaf = d;
        while (leaf->children) leaf = leaf->children;
        last = leaf == d;
        s->stats.evicted += (uint64_t)leaf->block.n;
        remove_leaf(s, leaf, true);
    }
}

void prompt_store_free(prompt_store *s) {
    if (!s) return;
    while (s->oldest[ALL]) remove_leaf(s, s->oldest[ALL], false);
    prompt_disk_close(s->disk);
    mem_free(s);
}

/* Whether a node's tokens begin `tokens` [n]. */
static bool begins(const node *d, const int32_t *tokens, int32_t n, int owner) {
    return d->owner == owner && d->block.n <= n &&
           memcmp(d->block.tokens, tokens, (size_t)d->block.n * sizeof *tokens) == 0;
}

/* Returns the longest child whose tokens are a prefix of `tokens`; NULL: none. */
static node *find_child(const node *d, const int32_t *tokens, int32_t n, int owner) {
    node *best = NULL;
    for (node *c = d->children; c; c = c->next)
        if (begins(c, tokens, n, owner) && (!best || c->block.n > best->block.n)) best = c;
    return best;
}

static void add_to_tree(prompt_store *s, node *d) {
    d->next = d->parent->children;
    d->parent->children = d;
    s->stats.n_blocks++;
    link_newest(s, d, ALL);
    touch(s, d->parent);
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Makes room in memory: the least recently used nodes stay in their files, or are evicted. Stops at
 * `kept`, the last node of the path that is being saved; its ancestors are newer. */
static bool make_room(prompt_store *s, size_t n_bytes, const node *kept) {
    while (n_bytes > s->options.max_bytes || s->stats.n_bytes > s->options.max_bytes - n_bytes) {
        node *oldest = s->oldest[IN_MEMORY];
        if (n_bytes > s->options.max_bytes || !oldest || oldest == kept) return false;
        if (oldest->in_file)
            forget_rows(s, oldest);
        else
            remove_tree(s, oldest);
    }
    return true;
}

/* Makes room in the folder. */
static bool make_file_room(prompt_store *s, uint64_t n_bytes, const node *kept) {
    const uint64_t most = s->options.max_file_bytes;
    while (n_bytes > most || s->stats.n_file_bytes > most - n_bytes) {
        node *oldest = s->oldest[ALL];
        while (oldest && !oldest->in_file) oldest = oldest->newer[ALL];
        if (n_bytes > most || !oldest || oldest == kept) return false;
        if (!oldest->rows) {
            remove_tree(s, oldest);
            continue;
        }
        prompt_disk_remove(s->disk, oldest->block.name);
        s->stats.n_file_bytes -= prompt_disk_bytes(&oldest->block);
        oldest->in_file = false;
        if (!oldest->recurrent) oldest->block.n_recurrent = 0;
    }
    return true;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static bool put_in_memory(prompt_store *s, node *d, void *rows, const node *kept) {
    if (!make_room(s, sizeof *d + (size_t)d->block.n_rows, kept)) return false;
    d->rows = rows;
    s->stats.n_bytes += memory_bytes(d);
    link_newest(s, d, IN_MEMORY);
    return true;
}

/* Writes a node with its state, if it is known, to its file. */
static bool put_in_file(prompt_store *s, node *d, const void *rows, const void *recurrent,
                        const node *kept) {
    const node *parent = d->parent;
    if (!s->disk || (parent != &s->root && !parent->in_file) ||
        !make_file_room(s, prompt_disk_bytes(&d->block), kept) ||
        !prompt_disk_write(s->disk, &d->block, rows, recurrent))
        return false;
    s->stats.n_file_bytes += prompt_disk_bytes(&d->block);
    d->in_file = true;
    return true;
}

/* Returns a copy of the keys and values of tokens [first, first + n); NULL: failed. */
static void *copy_rows(const pi_session *session, int32_t first, int32_t n) {
    void *rows = mem_alloc(pi_session_range_bytes(session, n));
    if (rows && pi_session_get_range(session, first, n, rows, NULL) == PI_OK) return rows;
    mem_free(rows);
    return NULL;
}

/* Adds a node for tokens [first, first + n) of the session. NULL: no memory or no room. */
static node *add_child(prompt_store *s, node *parent, const pi_session *session,
                       const int32_t *tokens, int32_t first, int32_t n, int owner) {
    node *d = mem_calloc(1, sizeof *d);
    void *rows = copy_rows(session, first, n);
    touch(s, parent);
    if (!d || !rows) {
        mem_free(d);
        mem_free(rows);
        return NULL;
    }
    *d = (node){.parent = parent, .owner = owner};
    d->block.parent = parent->block.name;
    d->block.n = n;
    d->block.n_rows = pi_session_range_bytes(session, n);
    memcpy(d->block.tokens, tokens + first, (size_t)n * sizeof *tokens);
    d->block.name = prompt_block_name(d->block.parent, d->block.tokens, n);
    put_in_file(s, d, rows, NULL, parent);
    if (!put_in_memory(s, d, rows, parent)) mem_free(rows);
    if (!d->rows && !d->in_file) {
        mem_free(d);
        return NULL;
    }
    s->stats.saved += (uint64_t)n;
    add_to_tree(s, d);
    return d;
}

/* Keeps the state of recurrent layers after the node's last token, the last of `length`. */
static void keep_recurrent(prompt_store *s, node *d, const pi_session *session, int32_t length) {
    touch(s, d);
    if (s->state_bytes == 0 || d->block.n_recurrent) return;
    void *state = mem_alloc(s->state_bytes);
    if (!state || pi_session_get_recurrent(session, length, state, NULL) != PI_OK) {
        mem_free(state);
        return;
    }
    if (d->in_file) { /* the file is written again */
        void *rows = copy_rows(session, length - d->block.n, d->block.n);
        s->stats.n_file_bytes -= prompt_disk_bytes(&d->block);
        d->block.n_recurrent = s->state_bytes;
        if (!rows || !put_in_file(s, d, rows, state, d)) {
            d->block.n_recurrent = 0;
            s->stats.n_file_bytes += prompt_disk_bytes(&d->block);
        }
        mem_free(rows);
    }
    if (d->rows && (d->block.n_recurrent || !d->in_file) && make_room(s, s->state_bytes, d)) {
        d->block.n_recurrent = s->state_bytes;
        d->recurrent = state;
        s->stats.n_bytes += s->state_bytes;
    } else {
        mem_free(state);
    }
}

/* Removes leaves whose tokens begin those of a new sibling, which replaces them. */
static void drop_shorter(prompt_store *s, const node *d) {
    for (node *c = d->parent->children, *next; c; c = next) {
        next = c->next;
        if (c != d && c->block.n < d->block.n && !c->block.n_recurrent &&
            begins(c, d->block.tokens, d->block.n, d->owner))
            remove_leaf(s, c, true);
    }
}

/* Saves the first n tokens. All nodes of a path except the last have PROMPT_BLOCK tokens, so blocks
 * begin at the same positions in all texts. */
static void save_prefix(prompt_store *s, const pi_session *session, const int32_t *tokens,
                        int32_t n, int owner) {
    node *at = &s->root;
    for (int32_t first = 0; first < n; first += PROMPT_BLOCK) {
        const int32_t n_block = n - first < PROMPT_BLOCK ? n - first : PROMPT_BLOCK;
        node *d = find_child(at, tokens + first, n_block, owner);
        if (!d || d->block.n < n_block) {
            d = add_child(s, at, session, tokens, first, n_block, owner);
            if (!d) return;
            drop_shorter(s, d);
        } else if (!d->rows) {
            void *rows = copy_rows(session, first, n_block);
            touch(s, d);
            if (rows && !put_in_memory(s, d, rows, d)) mem_free(rows);
        }
        at = d;
    }
    if (at != &s->root) keep_recurrent(s, at, session, n);
}

void prompt_store_save(prompt_store *s, const pi_session *session, const int32_t *tokens, int32_t n,
                       int owner) {
    const int most = s->state_bytes ? SNAPSHOTS : 1;
    /* A text that would evict all others is not saved. */
    const uint64_t n_bytes = pi_session_range_bytes(session, n) +
                             (uint64_t)(n / PROMPT_BLOCK + 1) * sizeof(node) + s->state_bytes;
    if (n_bytes > s->options.max_bytes / 2 &&
        !(s->disk && n_bytes <= s->options.max_file_bytes / 2))
        return;
    for (int i = 0; i < most && n > 0; i++, n--) {
        n = pi_session_rewind_point(session, n);
        save_prefix(s, session, tokens, n, owner);
    }
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* Returns the last node of the longest prefix that can be restored; NULL: none. *length: tokens of
 * the prefix. */
static node *find_last(prompt_store *s, const int32_t *tokens, int32_t n, int owner,
                       int32_t *length) {
    node *best = NULL;
    int32_t first = 0;
    *length = 0;
    for (node *at = &s->root; at;) {
        node *full = NULL;
        for (node *c = at->children; c; c = c->next) {
            if (!begins(c, tokens + first, n - first, owner)) continue;
            if (c->block.n == PROMPT_BLOCK) full = c;
            if (first + c->block.n <= *length || (s->state_bytes && !c->block.n_recurrent))
                continue;
            best = c;
            *length = first + c->block.n;
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

/* The pieces of a restored prefix. */
typedef struct pieces {
    pi_session_range *ranges; /* [n] */
    void **read;              /* [n] read from files; NULL: in memory */
    void *recurrent;          /* read from a file */
    int32_t n;
} pieces;

static void free_pieces(pieces *p) {
    for (int32_t i = 0; i < p->n && p->read; i++) mem_free(p->read[i]);
    mem_free(p->recurrent);
    mem_free(p->ranges);
    mem_free(p->read);
}

/* Collects the ranges of p->n nodes up to `last`. A node whose file is missing or damaged leaves
 * the tree, with those after it. */
static bool collect(prompt_store *s, node *last, pieces *p) {
    node *d = last;
    p->ranges = mem_calloc((size_t)p->n, sizeof *p->ranges);
    p->read = mem_calloc((size_t)p->n, sizeof *p->read);
    if (!p->ranges || !p->read) return false;
    for (int32_t i = p->n - 1; i >= 0; i--, d = d->parent) {
        const bool lacks_state = d == last && s->state_bytes && !d->recurrent;
        if (!d->rows || lacks_state) {
            p->read[i] = mem_alloc((size_t)d->block.n_rows);
            void *recurrent = mem_alloc((size_t)d->block.n_recurrent);
            const bool good = p->read[i] && recurrent &&
                              prompt_disk_read(s->disk, &d->block, p->read[i], recurrent);
            if (lacks_state)
                p->recurrent = recurrent;
            else
                mem_free(recurrent);
            if (!good) {
                remove_tree(s, d);
                return false;
            }
        }
        p->ranges[i] = (pi_session_range){.data = d->rows ? d->rows : p->read[i],
                                          .n_tokens = d->block.n};
    }
    return true;
}

int32_t prompt_store_restore(prompt_store *s, pi_session *session, int32_t have,
                             const int32_t *tokens, int32_t n, int owner) {
    int32_t length = 0;
    node *last = find_last(s, tokens, n, owner, &length);
    if (!last || length <= have) return have;
    n = length; /* less than was found if a save has evicted the end */
    /* Whole nodes only: the session keeps what is before the first node that it lacks. */
    const int32_t first = have - have % PROMPT_BLOCK;
    pieces p = {.n = (n - first + PROMPT_BLOCK - 1) / PROMPT_BLOCK};
    pi_status status = PI_ERR_IO;
    if (collect(s, last, &p))
        status = pi_session_put_ranges(session, first, p.ranges, (size_t)p.n, tokens + first,
                                       p.recurrent ? p.recurrent : last->recurrent, NULL);
    free_pieces(&p);
    if (status != PI_OK) return pi_session_length(session) < have ? 0 : have;
    s->stats.restored += (uint64_t)(n - have);
    return n;
}

prompt_store_stats prompt_store_get_stats(const prompt_store *s) {
    return s->stats;
}

/* ---- creation -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    const node *const *x = a, *const *y = b;
    return memcmp(&(*x)->block.name, &(*y)->block.name, sizeof(prompt_name));
}

/* Returns the node with this name; NULL: none. sorted: [n] by name. */
static node *find_name(node *const *sorted, size_t n, const prompt_name *name) {
    size_t low = 0;
    while (n > 0) {
        const int order = memcmp(&sorted[low + n / 2]->block.name, name, sizeof *name);
        if (order == 0) return sorted[low + n / 2];
        if (order < 0) low += n / 2 + 1;
        n = order < 0 ? n - n / 2 - 1 : n / 2;
    }
    return NULL;
}

/* Adds the blocks of the folder, oldest first; removes those without the blocks before them. */
static pi_status add_files(prompt_store *s, const prompt_block *blocks, size_t n,
                           const pi_session *session, pi_error *err) {
    static const prompt_name none = {{0, 0}};
    node **nodes = mem_calloc(n, sizeof *nodes), **sorted = mem_calloc(n, sizeof *sorted);
    pi_status status = PI_OK;
    if (!nodes || !sorted) status = error_nomem(err, n * sizeof *nodes, "prompt store");
    for (size_t i = 0; i < n && status == PI_OK; i++) {
        nodes[i] = sorted[i] = mem_calloc(1, sizeof **nodes);
        if (!nodes[i])
            status = error_nomem(err, sizeof **nodes, "prompt store");
        else
            *nodes[i] = (node){.block = blocks[i], .in_file = true};
    }
    if (status == PI_OK && n > 0) qsort(sorted, n, sizeof *sorted, by_name);
    /* Each turn adds the nodes whose parents are in the tree. */
    for (bool more = status == PI_OK; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            node *d = nodes[i];
            if (!d || d->parent) continue;
            const prompt_block *b = &d->block;
            const bool first = memcmp(&b->parent, &none, sizeof none) == 0;
            node *parent = first ? &s->root : find_name(sorted, n, &b->parent);
            const bool fits = b->n_rows == pi_session_range_bytes(session, b->n) &&
                              (b->n_recurrent == 0 || b->n_recurrent == s->state_bytes);
            if (!parent || !fits || (!first && (!parent->parent || parent->block.n < PROMPT_BLOCK)))
                continue;
            d->parent = parent;
            s->stats.n_file_bytes += prompt_disk_bytes(b);
            add_to_tree(s, d);
            more = true;
        }
    }
    for (size_t i = 0; i < n && nodes; i++) {
        if (!nodes[i] || nodes[i]->parent) continue;
        if (status == PI_OK) prompt_disk_remove(s->disk, nodes[i]->block.name);
        mem_free(nodes[i]);
    }
    mem_free(nodes);
    mem_free(sorted);
    return status;
}

static pi_status open_folder(prompt_store *s, const pi_session *session, pi_error *err) {
    prompt_block *blocks = NULL;
    size_t n = 0;
    pi_status status = prompt_disk_open(s->options.folder, pi_session_state_id(session), &s->disk,
                                        err);
    if (status == PI_OK) status = prompt_disk_list(s->disk, &blocks, &n, err);
    if (status == PI_OK && n > 0) status = add_files(s, blocks, n, session, err);
    mem_free(blocks);
    if (status == PI_OK) make_file_room(s, 0, NULL);
    return status;
}

pi_status prompt_store_create(const prompt_store_options *options, const pi_session *session,
                              prompt_store **out, pi_error *err) {
    prompt_store *s = mem_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return error_nomem(err, sizeof *s, "prompt store");
    s->options = *options;
    s->state_bytes = pi_session_recurrent_bytes(session);
    pi_status status = options->folder ? open_folder(s, session, err) : PI_OK;
    if (status != PI_OK) {
        prompt_store_free(s);
        return status;
    }
    *out = s;
    return PI_OK;
}
