/* grammar_state.c: sets, states and transitions. Functions that allocate return false on failure;
 * `status` has the reason. */
#include "grammar_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

/* ---- tables ---------------------------------------------------------------------------------- */

static bool fail(grammar_machine *m, pi_status status) {
    m->status = status;
    return false;
}

static bool grow(grammar_machine *m, void **items, size_t *capacity, size_t need, size_t bytes) {
    if (need <= *capacity) return true;
    if (grammar_machine_bytes(m) + need * bytes > GRAMMAR_TABLES_HARD) return fail(m, PI_ERR_LIMIT);
    return mem_grow(items, capacity, need, bytes, GRAMMAR_TABLES_HARD / bytes) ||
           fail(m, PI_ERR_NOMEM);
}

/* Doubles the table of numbers; hash(m, number) determines a number's place. */
static bool index_grow(grammar_machine *m, grammar_index *index,
                       uint64_t (*hash)(const grammar_machine *m, int32_t number)) {
    if (2 * (index->used + 1) <= index->n_slots) return true;
    size_t n = index->n_slots ? 2 * index->n_slots : 64;
    int32_t *slots = mem_calloc(n, sizeof *slots);
    if (!slots) return fail(m, PI_ERR_NOMEM);
    for (size_t i = 0; i < index->n_slots; i++) {
        if (!index->slots[i]) continue;
        size_t at = hash(m, index->slots[i] - 1) & (n - 1);
        while (slots[at]) at = (at + 1) & (n - 1);
        slots[at] = index->slots[i];
    }
    mem_free(index->slots);
    index->slots = slots;
    index->n_slots = n;
    return true;
}

size_t grammar_machine_bytes(const grammar_machine *m) {
    return m->frames_capacity * sizeof *m->frames + m->sets_capacity * sizeof *m->sets +
           m->items_capacity * sizeof *m->items + m->states_capacity * sizeof *m->states +
           m->next_capacity * sizeof *m->next + m->mask_bytes +
           (m->set_index.n_slots + m->state_index.n_slots) * sizeof(int32_t);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static int compare_frames(const void *a, const void *b) {
    const grammar_frame *x = a, *y = b;
    if (x->pc != y->pc) return x->pc < y->pc ? -1 : 1;
    if (x->below != y->below) return x->below < y->below ? -1 : 1;
    if (x->need != y->need) return x->need < y->need ? -1 : 1;
    return (x->room < y->room) - (x->room > y->room); /* largest room first */
}

/* Sorts the frames and drops redundant ones. A frame is redundant if another frame with the same
 * instruction and set needs no more repetitions and has at least as much room. */
static size_t essential_frames(grammar_frame *f, size_t all) {
    size_t n = 0;
    uint32_t room = 0; /* largest room in the frames with this instruction and set so far */
    if (all > 1) qsort(f, all, sizeof *f, compare_frames);
    for (size_t i = 0; i < all; i++) {
        bool same = n > 0 && f[i].pc == f[n - 1].pc && f[i].below == f[n - 1].below;
        if (same && f[i].room <= room) continue;
        room = f[i].room;
        f[n++] = f[i];
    }
    return n;
}

static uint64_t set_hash(const grammar_machine *m, int32_t set) {
    grammar_span s = m->sets[set];
    return hash_bytes(m->key, m->frames + s.first, s.n * sizeof *m->frames);
}

static bool merge_frame(grammar_machine *m, grammar_frame frame) {
    if (m->n_merged >= GRAMMAR_SET_MAX) return fail(m, PI_ERR_LIMIT);
    if (!grow(m, (void **)&m->merged, &m->merged_capacity, m->n_merged + 1, sizeof frame))
        return false;
    m->merged[m->n_merged++] = frame;
    return true;
}

/* The set of the frames in `merged`, which is empty afterwards; -1 after a failure. */
static int32_t merged_set(grammar_machine *m) {
    grammar_frame *f = m->merged;
    size_t n = essential_frames(f, m->n_merged);
    m->steps += m->n_merged;
    m->n_merged = 0;
    if (n == 0) return 0;
    if (!index_grow(m, &m->set_index, set_hash)) return -1;
    size_t mask = m->set_index.n_slots - 1, at = hash_bytes(m->key, f, n * sizeof *f) & mask;
    for (; m->set_index.slots[at]; at = (at + 1) & mask) {
        int32_t set = m->set_index.slots[at] - 1;
        grammar_span s = m->sets[set];
        if (s.n == n && memcmp(m->frames + s.first, f, n * sizeof *f) == 0) return set;
    }
    if (!grow(m, (void **)&m->sets, &m->sets_capacity, m->n_sets + 1, sizeof *m->sets) ||
        !grow(m, (void **)&m->frames, &m->frames_capacity, m->n_frames + n, sizeof *f))
        return -1;
    memcpy(m->frames + m->n_frames, f, n * sizeof *f);
    m->sets[m->n_sets] = (grammar_span){(uint32_t)m->n_frames, (uint32_t)n};
    m->n_frames += n;
    m->set_index.slots[at] = (int32_t)m->n_sets + 1;
    m->set_index.used++;
    return (int32_t)m->n_sets++;
}

static int32_t single_set(grammar_machine *m, grammar_frame frame) {
    return merge_frame(m, frame) ? merged_set(m) : -1;
}

static bool merge_set(grammar_machine *m, int32_t set) {
    for (uint32_t i = 0; i < m->sets[set].n; i++) {
        if (!merge_frame(m, m->frames[m->sets[set].first + i])) return false;
    }
    return true;
}

/* ---- a search -------------------------------------------------------------------------------- */

static uint64_t pair_key(grammar_item pair) {
    return ((uint64_t)(uint32_t)pair.pc << 32 | (uint32_t)pair.set) * 0x9e3779b97f4a7c15u >> 20;
}

static bool push(grammar_machine *m, grammar_pairs *list, grammar_item pair) {
    if (!grow(m, (void **)&list->items, &list->capacity, list->n + 1, sizeof pair)) return false;
    list->items[list->n++] = pair;
    return true;
}

static void begin_search(grammar_machine *m) {
    m->open.n = m->found.n = m->n_merged = 0;
    if (++m->search == 0) { /* the search number wrapped around: entries of the table are invalid */
        if (m->seen) memset(m->seen, 0, m->n_seen * sizeof *m->seen);
        m->search = 1;
    }
}

static bool seen_grow(grammar_machine *m) {
    if (2 * (m->open.n + 1) <= m->n_seen) return true;
    size_t n = m->n_seen ? 2 * m->n_seen : 64;
    uint64_t *seen = mem_calloc(n, sizeof *seen);
    if (!seen) return fail(m, PI_ERR_NOMEM);
    for (size_t i = 0; i < m->open.n; i++) {
        size_t at = pair_key(m->open.items[i]) & (n - 1);
        while (seen[at]) at = (at + 1) & (n - 1);
        seen[at] = (uint64_t)m->search << 32 | (i + 1);
    }
    mem_free(m->seen);
    m->seen = seen;
    m->n_seen = n;
    return true;
}

/* Adds a pair to `open`, once. A set of -1: an earlier failure. */
static bool visit(grammar_machine *m, int32_t pc, int32_t set) {
    grammar_item pair = {pc, set};
    if (set < 0 || !seen_grow(m)) return false;
    size_t at = pair_key(pair) & (m->n_seen - 1);
    for (; m->seen[at] >> 32 == m->search; at = (at + 1) & (m->n_seen - 1)) {
        grammar_item other = m->open.items[(uint32_t)m->seen[at] - 1];
        if (other.pc == pc && other.set == set) return true;
    }
    if (++m->steps > GRAMMAR_MAX_STEPS) return fail(m, PI_ERR_LIMIT);
    m->seen[at] = (uint64_t)m->search << 32 | (m->open.n + 1);
    return push(m, &m->open, pair);
}

/* Repeats for the frames below their maximum, continues for those that reached their minimum. */
static bool follow_loop(grammar_machine *m, grammar_item at) {
    const grammar_code code = m->program->code[at.pc];
    uint32_t n = m->sets[at.set].n;
    for (uint32_t i = 0; i < n; i++) {
        grammar_frame f = m->frames[m->sets[at.set].first + i];
        if (f.need == 0 && !visit(m, code.b, f.below)) return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        grammar_frame f = m->frames[m->sets[at.set].first + i];
        if (f.room == 0) continue;
        if (f.need) f.need--;
        if (f.room != GRAMMAR_NO_BOUND) f.room--;
        if (!merge_frame(m, f)) return false;
    }
    return m->n_merged == 0 || visit(m, code.a, merged_set(m));
}

static bool follow_return(grammar_machine *m, grammar_item at, bool *accepts) {
    for (uint32_t i = 0; i < m->sets[at.set].n; i++) {
        grammar_frame f = m->frames[m->sets[at.set].first + i];
        if (f.pc == GRAMMAR_ACCEPT)
            *accepts = true;
        else if (!visit(m, f.pc, f.below))
            return false;
    }
    return true;
}

/* Follows all instructions that take no byte; collects the instructions that take one in
 * `found`. */
static bool follow(grammar_machine *m, bool *accepts) {
    for (size_t i = 0; i < m->open.n; i++) {
        grammar_item at = m->open.items[i];
        const grammar_code code = m->program->code[at.pc];
        bool good = true;
        switch ((grammar_op)code.op) {
        case GRAMMAR_OP_BYTE:
            good = push(m, &m->found, at);
            break;
        case GRAMMAR_OP_SPLIT:
            good = visit(m, code.a, at.set) && visit(m, code.b, at.set);
            break;
        case GRAMMAR_OP_JUMP:
            good = visit(m, m->program->start[code.a], at.set);
            break;
        case GRAMMAR_OP_CALL:
            good = visit(m, m->program->start[code.a],
                         single_set(m, (grammar_frame){.pc = code.b, .below = at.set}));
            break;
        case GRAMMAR_OP_REPEAT:
            good = visit(m, code.a,
                         single_set(m, (grammar_frame){code.a, code.min, code.max, at.set}));
            break;
        case GRAMMAR_OP_LOOP:
            good = follow_loop(m, at);
            break;
        case GRAMMAR_OP_RETURN:
            good = follow_return(m, at, accepts);
            break;
        }
        if (!good) return false;
    }
    return true;
}

/* ---- states ---------------------------------------------------------------------------------- */

static int compare_items(const void *a, const void *b) {
    const grammar_item *x = a, *y = b;
    if (x->pc != y->pc) return x->pc < y->pc ? -1 : 1;
    return (x->set > y->set) - (x->set < y->set);
}

static uint64_t state_hash(const grammar_machine *m, int32_t state) {
    const grammar_state *s = &m->states[state];
    return hash_bytes(m->key, m->items + s->items.first, s->items.n * sizeof *m->items) +
           s->accepts;
}

/* Merges items with equal instructions into one item whose set has all their frames. */
static bool join_found(grammar_machine *m) {
    grammar_item *items = m->found.items;
    size_t n = 0;
    if (m->found.n > 1) qsort(items, m->found.n, sizeof *items, compare_items);
    for (size_t i = 0; i < m->found.n;) {
        grammar_item item = items[i];
        size_t end = i + 1;
        while (end < m->found.n && items[end].pc == item.pc) end++;
        if (end > i + 1) {
            for (size_t k = i; k < end; k++) {
                if (!merge_set(m, items[k].set)) return false;
            }
            item.set = merged_set(m);
            if (item.set < 0) return false;
        }
        items[n++] = item;
        i = end;
    }
    m->found.n = n;
    return n <= GRAMMAR_SET_MAX || fail(m, PI_ERR_LIMIT);
}

static bool add_state(grammar_machine *m, const grammar_item *items, size_t n, bool accepts) {
    size_t row = (size_t)m->program->n_classes;
    if (!grow(m, (void **)&m->states, &m->states_capacity, m->n_states + 1, sizeof *m->states) ||
        !grow(m, (void **)&m->items, &m->items_capacity, m->n_items + n, sizeof *items) ||
        !grow(m, (void **)&m->next, &m->next_capacity, (m->n_states + 1) * row, sizeof *m->next))
        return false;
    if (n) memcpy(m->items + m->n_items, items, n * sizeof *items);
    m->states[m->n_states] = (grammar_state){.items = {(uint32_t)m->n_items, (uint32_t)n},
                                             .accepts = accepts,
                                             .masked = GRAMMAR_UNKNOWN};
    for (size_t i = 0; i < row; i++)
        m->next[m->n_states * row + i] = m->n_states == GRAMMAR_DEAD ? GRAMMAR_DEAD
                                                                     : GRAMMAR_UNKNOWN;
    m->n_items += n;
    m->n_states++;
    return true;
}

/* The state of the items found. */
static int32_t found_state(grammar_machine *m, bool accepts) {
    if (!join_found(m)) return GRAMMAR_UNKNOWN;
    const grammar_item *items = m->found.items;
    size_t n = m->found.n;
    if (n == 0 && !accepts) return GRAMMAR_DEAD;
    if (!index_grow(m, &m->state_index, state_hash)) return GRAMMAR_UNKNOWN;
    size_t mask = m->state_index.n_slots - 1;
    size_t at = (hash_bytes(m->key, items, n * sizeof *items) + accepts) & mask;
    for (; m->state_index.slots[at]; at = (at + 1) & mask) {
        int32_t state = m->state_index.slots[at] - 1;
        const grammar_state *s = &m->states[state];
        if (s->items.n == n && s->accepts == accepts &&
            (n == 0 || memcmp(m->items + s->items.first, items, n * sizeof *items) == 0))
            return state;
    }
    if (!add_state(m, items, n, accepts)) return GRAMMAR_UNKNOWN;
    m->state_index.slots[at] = (int32_t)m->n_states;
    m->state_index.used++;
    return (int32_t)m->n_states - 1;
}

int32_t grammar_step(grammar_machine *m, int32_t state, int class_of_byte) {
    uint8_t byte = m->program->byte_of[class_of_byte];
    grammar_span span = m->states[state].items;
    bool accepts = false;
    begin_search(m);
    for (uint32_t i = 0; i < span.n; i++) {
        grammar_item item = m->items[span.first + i];
        const grammar_code *code = &m->program->code[item.pc];
        if (byte < code->low || byte > code->high) continue;
        if (!visit(m, code->a, item.set)) return GRAMMAR_UNKNOWN;
    }
    if (!follow(m, &accepts)) return GRAMMAR_UNKNOWN;
    int32_t to = found_state(m, accepts);
    size_t row = (size_t)state * (size_t)m->program->n_classes;
    if (to != GRAMMAR_UNKNOWN) m->next[row + (size_t)class_of_byte] = to;
    return to;
}

bool grammar_goes_on(const grammar_machine *m, int32_t state) {
    return m->states[state].items.n > 0;
}

/* ---- the whole machine ----------------------------------------------------------------------- */

static bool init(grammar_machine *m) {
    bool accepts = false;
    if (!grow(m, (void **)&m->sets, &m->sets_capacity, 1, sizeof *m->sets)) return false;
    m->sets[m->n_sets++] = (grammar_span){0, 0};
    if (!add_state(m, NULL, 0, false)) return false;
    begin_search(m);
    return visit(m, m->program->root, single_set(m, (grammar_frame){.pc = GRAMMAR_ACCEPT})) &&
           follow(m, &accepts) && found_state(m, accepts) != GRAMMAR_UNKNOWN;
}

pi_status grammar_machine_init(grammar_machine *m, const grammar_program *p, size_t mask_words) {
    *m = (grammar_machine){.program = p, .mask_words = mask_words, .key = hash_key_random()};
    for (size_t i = 0; i < p->n_code; i++) {
        const grammar_code *code = &p->code[i];
        if (code->op == GRAMMAR_OP_REPEAT) m->counts = true;
    }
    if (init(m)) return PI_OK;
    pi_status status = m->status;
    grammar_machine_free(m);
    return status;
}

void grammar_machine_free(grammar_machine *m) {
    for (size_t i = 0; i < m->n_states; i++) mem_free(m->states[i].mask);
    mem_free(m->frames);
    mem_free(m->sets);
    mem_free(m->items);
    mem_free(m->states);
    mem_free(m->next);
    mem_free(m->set_index.slots);
    mem_free(m->state_index.slots);
    mem_free(m->open.items);
    mem_free(m->found.items);
    mem_free(m->merged);
    mem_free(m->seen);
    *m = (grammar_machine){.program = NULL};
}

/* Copies states; `from` and `to` may be the same machine. Counts above `most` become `most`. */
typedef struct state_copy {
    grammar_machine *from, *to;
    int32_t *sets; /* [from->n_sets at the start] numbers of the sets in `to`; -1: not copied */
    bool *wanted;  /* [n_sets] */
    size_t n_sets;
    uint32_t most;
} state_copy;

static void want_state(state_copy *c, int32_t state) {
    grammar_span span = c->from->states[state].items;
    for (uint32_t i = 0; i < span.n; i++) c->wanted[c->from->items[span.first + i].set] = true;
}

/* A set has a higher number than the sets below it. */
static bool copy_sets(state_copy *c) {
    for (size_t s = c->n_sets; s-- > 1;) {
        grammar_span span = c->from->sets[s];
        for (uint32_t i = 0; c->wanted[s] && i < span.n; i++)
            c->wanted[c->from->frames[span.first + i].below] = true;
    }
    c->sets[0] = 0;
    for (size_t s = 1; s < c->n_sets; s++) {
        grammar_span span = c->from->sets[s];
        if (!c->wanted[s]) continue;
        for (uint32_t i = 0; i < span.n; i++) {
            grammar_frame f = c->from->frames[span.first + i];
            f.below = c->sets[f.below];
            if (f.need > c->most) f.need = c->most;
            if (f.room > c->most) f.room = GRAMMAR_NO_BOUND;
            if (!merge_frame(c->to, f)) return false;
        }
        c->sets[s] = merged_set(c->to);
        if (c->sets[s] < 0) return false;
    }
    return true;
}

static int32_t copy_state(state_copy *c, int32_t state) {
    const grammar_state s = c->from->states[state];
    if (state == GRAMMAR_DEAD) return GRAMMAR_DEAD;
    begin_search(c->to);
    for (uint32_t i = 0; i < s.items.n; i++) {
        grammar_item item = c->from->items[s.items.first + i];
        item.set = c->sets[item.set];
        if (!push(c->to, &c->to->found, item)) return GRAMMAR_UNKNOWN;
    }
    return found_state(c->to, s.accepts);
}

static bool copy_begin(state_copy *c) {
    c->n_sets = c->from->n_sets;
    c->sets = mem_calloc(c->n_sets, sizeof *c->sets);
    c->wanted = mem_calloc(c->n_sets, sizeof *c->wanted);
    return (c->sets && c->wanted) || fail(c->to, PI_ERR_NOMEM);
}

static void copy_end(state_copy *c) {
    mem_free(c->sets);
    mem_free(c->wanted);
}

pi_status grammar_machine_collect(grammar_machine *m, int32_t **live, size_t n_live) {
    grammar_machine fresh;
    int32_t *numbers = mem_calloc(n_live, sizeof *numbers);
    if (!numbers) return PI_ERR_NOMEM;
    pi_status status = grammar_machine_init(&fresh, m->program, m->mask_words);
    if (status != PI_OK) {
        mem_free(numbers);
        return status;
    }
    state_copy c = {.from = m, .to = &fresh, .most = GRAMMAR_NO_BOUND - 1};
    bool good = copy_begin(&c);
    for (size_t i = 0; i < n_live && good; i++) want_state(&c, *live[i]);
    good = good && copy_sets(&c);
    for (size_t i = 0; i < n_live && good; i++) {
        numbers[i] = copy_state(&c, *live[i]);
        good = numbers[i] != GRAMMAR_UNKNOWN;
    }
    copy_end(&c);
    status = good ? PI_OK : fresh.status;
    for (size_t i = 0; i < n_live && good; i++) *live[i] = numbers[i];
    if (good) {
        grammar_machine old = *m;
        *m = fresh;
        fresh = old;
    }
    grammar_machine_free(&fresh);
    mem_free(numbers);
    return status;
}

int32_t grammar_state_within(grammar_machine *m, int32_t state, uint32_t n_bytes) {
    if (!m->counts) return state;
    state_copy c = {.from = m, .to = m, .most = n_bytes + 1};
    bool good = copy_begin(&c);
    if (good) want_state(&c, state);
    good = good && copy_sets(&c);
    int32_t result = good ? copy_state(&c, state) : GRAMMAR_UNKNOWN;
    copy_end(&c);
    return result;
}
