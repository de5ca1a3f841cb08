/* candidates.c: selecting tokens without sorting the vocabulary.
 *
 * A vocabulary may have 150,000 entries, a few dozen of them relevant, so it is never sorted as a
 * whole:
 *
 *   top-k    a heap of the k best seen so far, its worst on top; one comparison for almost every
 *            entry. O(n + k log k) in practice
 *   mass     (top-p, typical) a heap of everything, best on top, from which entries are taken until
 *            they hold the mass p. O(n + m log n) for m entries taken; nothing when already sorted
 *   min-p, XTC, top-n sigma   thresholds: one to three passes in the order that is there
 *
 * `better` is a strict total order (ties go to the lower id), which makes the kept set, and with it
 * the drawn token, independent of the layout of the heaps. */
#include "candidates.h"

#include <assert.h>
#include <float.h>
#include <math.h>

static inline bool better(const candidate *a, const candidate *b) {
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

/* Restores the heap below `i`. The top is the best entry, or the worst one if `worst_first`. */
static void sift_down(candidate *heap, int32_t n, int32_t i, bool worst_first) {
    candidate moving = heap[i];
    while (i < n / 2) {
        int32_t child = 2 * i + 1;
        if (child + 1 < n && better(&heap[child + 1], &heap[child]) != worst_first) child++;
        if (better(&heap[child], &moving) == worst_first) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static void heapify(candidate *heap, int32_t n, bool worst_first) {
    for (int32_t i = n / 2; i-- > 0;) sift_down(heap, n, i, worst_first);
}

static void swap(candidate *a, candidate *b) {
    candidate t = *a;
    *a = *b;
    *b = t;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* False for entries of probability 0. */
static inline bool candidate_make(candidate *c, const float *scores, int32_t i) {
    float x = scores[i];
    if (!(x > -INFINITY)) return false; /* catches NaN */
    if (x > FLT_MAX) x = FLT_MAX;
    *c = (candidate){.logit = x, .id = i, .key = x};
    return true;
}

static void collect_best(candidates *c, const float *scores, int32_t n_vocab, int32_t k) {
    candidate *heap = c->items, next;
    int32_t n = 0, i = 0;
    for (; i < n_vocab && n < k; i++) n += candidate_make(&heap[n], scores, i);
    heapify(heap, n, true);
    /* Ids ascend, so an entry equal to the worst one kept is never better than it. */
    for (; i < n_vocab; i++) {
        if (scores[i] > heap[0].key && candidate_make(&next, scores, i) && next.key > heap[0].key) {
            heap[0] = next;
            sift_down(heap, n, 0, true);
        }
    }
    for (int32_t last = n - 1; last > 0; last--) { /* removing the worst leaves the best first */
        swap(&heap[0], &heap[last]);
        sift_down(heap, last, 0, true);
    }
    c->n = n;
    c->sorted = true;
}

void candidates_collect(candidates *c, const float *scores, int32_t n_vocab, int32_t k) {
    if (k > 0 && k < n_vocab) {
        collect_best(c, scores, n_vocab, k);
        return;
    }
    c->n = 0;
    c->sorted = false;
    for (int32_t i = 0; i < n_vocab; i++) c->n += candidate_make(&c->items[c->n], scores, i);
}

void candidates_to_scores(const candidates *c, float *scores, int32_t n_vocab) {
    for (int32_t i = 0; i < n_vocab; i++) scores[i] = -INFINITY;
    for (int32_t i = 0; i < c->n; i++) scores[c->items[i].id] = c->items[i].logit;
}

void candidates_from_scores(candidates *c, const float *scores) {
    for (int32_t i = 0; i < c->n; i++) {
        candidate *item = &c->items[i];
        item->logit = item->key = fmaxf(fminf(scores[item->id], FLT_MAX), -FLT_MAX);
    }
    c->sorted = false;
}

float candidates_best(const candidates *c) {
    assert(c->n > 0);
    float best = c->items[0].logit;
    for (int32_t i = 1; i < c->n && !c->sorted; i++) {
        if (c->items[i].logit > best) best = c->items[i].logit;
    }
    return best;
}

static inline double weight_of(const candidate *c, double best) {
    return exp((double)c->logit - best);
}

static double total_weight(const candidates *c, double best) {
    double total = 0;
    for (int32_t i = 0; i < c->n; i++) total += weight_of(&c->items[i], best);
    return total;
}

/* ---- taking the best by key ------------------------------------------------------------------ */

/* Moves the best items by key to the front, best first, until their weights (weight_of) sum to
 * `mass` or their number is `wanted`. Returns their number; the others follow in any order. */
static int32_t take_best(candidates *c, double mass, int32_t wanted) {
    candidate *items = c->items;
    double best = (double)candidates_best(c), taken_mass = 0;
    int32_t taken = 0, n = c->n;
    if (c->sorted) {
        while (taken < wanted && (taken == 0 || taken_mass < mass)) {
            taken_mass += weight_of(&items[taken++], best);
        }
        return taken;
    }
    heapify(items, n, false);
    while (taken < wanted && (taken == 0 || taken_mass < mass)) {
        int32_t last = n - 1 - taken++; /* taken items collect at the end, best last */
        swap(&items[0], &items[last]);
        sift_down(items, last, 0, false);
        taken_mass += weight_of(&items[last], best);
    }
    for (int32_t i = 0; i < n / 2; i++) swap(&items[i], &items[n - 1 - i]);
    return taken;
}

void candidates_sort(candidates *c, int32_t wanted) {
    take_best(c, INFINITY, wanted < c->n ? wanted : c->n);
    if (wanted >= c->n) c->sorted = true;
}

void candidates_top_k(candidates *c, int32_t k) {
    if (k >= c->n) return;
    c->n = take_best(c, INFINITY, k);
    c->sorted = true;
}

/* The smallest number of best entries whose probabilities sum to at least p (Holtzman et al. 2020,
 * The Curious Case of Neural Text Degeneration). */
void candidates_top_p(candidates *c, float p) {
    double total = total_weight(c, (double)candidates_best(c));
    c->n = take_best(c, (double)p * total, c->n);
    c->sorted = true;
}

/* Locally typical sampling: keeps the entries whose surprisal is nearest to the entropy, with a
 * total probability of p (Meister et al. 2023, Locally Typical Sampling). */
void candidates_typical(candidates *c, float p) {
    double best = (double)candidates_best(c), total = total_weight(c, best);
    double entropy = candidates_entropy(c), log_total = log(total);
    for (int32_t i = 0; i < c->n; i++) {
        double surprisal = log_total - ((double)c->items[i].logit - best);
        /* Differences of finite logits may exceed a float; such entries are all equally
         * untypical. */
        c->items[i].key = (float)fmax(-fabs(surprisal - entropy), -(double)FLT_MAX);
    }
    c->sorted = false;
    c->n = take_best(c, (double)p * total, c->n);
    for (int32_t i = 0; i < c->n; i++) c->items[i].key = c->items[i].logit;
}

/* ---- thresholds ------------------------------------------------------------------------------ */

/* Entries at least min_p times as likely as the best one, which always stays (Nguyen et al. 2024,
 * Min-p Sampling). Keeps the order. */
void candidates_min_p(candidates *c, float min_p) {
    double floor = (double)candidates_best(c) + fmin(log((double)min_p), 0);
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if ((double)c->items[i].logit >= floor) c->items[kept++] = c->items[i];
    }
    c->n = kept;
}

/* Entries whose logit is at most n standard deviations below the best one (Tang et al. 2024, Top-n
 * sigma: Not All Logits Are You Need). The deviation is the population standard deviation of all
 * entries. Keeps the order. */
void candidates_top_n_sigma(candidates *c, float n) {
    double mean = 0, squares = 0;
    for (int32_t i = 0; i < c->n; i++) mean += (double)c->items[i].logit / c->n;
    for (int32_t i = 0; i < c->n; i++) {
        double away = (double)c->items[i].logit - mean;
        squares += away * away / c->n;
    }
    double floor = (double)candidates_best(c) - (double)n * sqrt(squares);
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if ((double)c->items[i].logit >= floor) c->items[kept++] = c->items[i];
    }
    c->n = kept;
}

/* XTC (exclude top choices): of the entries whose probability reaches the threshold, only the least
 * likely stays; less likely entries also stay (defined by pull request #6335 of
 * text-generation-webui). Keeps the order. */
void candidates_xtc(candidates *c, float threshold) {
    double best = (double)candidates_best(c), wanted = (double)threshold * total_weight(c, best);
    int32_t n_top = 0, least = -1;
    for (int32_t i = 0; i < c->n; i++) {
        if (weight_of(&c->items[i], best) < wanted) continue;
        if (n_top++ == 0 || better(&c->items[least], &c->items[i])) least = i;
    }
    if (n_top < 2) return;
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if (i == least || weight_of(&c->items[i], best) < wanted) c->items[kept++] = c->items[i];
    }
    c->n = kept;
}

void candidates_keep_best(candidates *c) {
    int32_t best = 0;
    for (int32_t i = 1; i < c->n; i++) {
        if (better(&c->items[i], &c->items[best])) best = i;
    }
    c->items[0] = c->items[best];
    c->n = 1;
    c->sorted = true;
}

/* ---- the distribution ------------------------------------------------------------------------ */

double candidates_entropy(const candidates *c) {
    double best = (double)candidates_best(c), total = total_weight(c, best), sum = 0;
    for (int32_t i = 0; i < c->n; i++) {
        double w = weight_of(&c->items[i], best);
        if (w > 0) sum += w * ((double)c->items[i].logit - best);
    }
    return fmax(log(total) - sum / total, 0);
}

void candidates_temperature(candidates *c, double temp) {
    double best = (double)candidates_best(c);
    for (int32_t i = 0; i < c->n; i++) {
        double x = ((double)c->items[i].logit - best) / temp;
        c->items[i].logit = c->items[i].key = (float)fmax(x, -(double)FLT_MAX);
    }
}

/* A number in (0, 1) that depends only on the race and the token: the finalizer of splitmix64. */
static double race_number(uint64_t race, int32_t id) {
    uint64_t z = race + ((uint64_t)id + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

/* A race: an item's time is exponentially distributed, its weight is the rate, and the smallest
 * time wins; an item wins with its probability. Times depend on ids, not on positions, so that two
 * similar distributions, a model's and its draft's, mostly choose the same token from the same
 * random number: in at least (1 - d) / (1 + d) of the draws for a total variation distance of d
 * (Daliri, Musco, Suresh 2024, Coupling without communication and drafter-invariant speculative
 * decoding). */
int32_t candidates_draw(candidates *c, rng *random, double *probability) {
    double best = (double)candidates_best(c), total = 0, first = INFINITY, chosen_weight = 1;
    uint64_t race = rng_u64(random);
    int32_t chosen = 0;
    for (int32_t i = 0; i < c->n; i++) {
        double weight = weight_of(&c->items[i], best);
        total += weight;
        if (!(weight > 0)) continue;
        double u = race_number(race, c->items[i].id);
        if (1 - u >= first * weight) continue; /* -log(u) >= 1 - u: its time is not smaller */
        double time = -log(u) / weight;
        if (!(time < first)) continue;
        first = time;
        chosen = i;
        chosen_weight = weight;
    }
    *probability = chosen_weight / total;
    return chosen;
}
