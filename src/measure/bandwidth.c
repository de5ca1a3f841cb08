/* bandwidth.c: timed passes of plain loops over a separate buffer. */
#include "bandwidth.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cpu_topology.h"
#include "mem.h"
#include "memory_room.h"
#include "os_memory.h"
#include "pool.h"
#include "rng.h"

enum {
    PAGES_HUGE,
    PAGES_SMALL,
    PAGES_COUNT,
    STREAMS_LOG2 = 3, /* 1, 2, 4, 8 */
    LINE = MEM_CACHE_LINE,
    BLOCK = 1 << 20, /* bytes that buffers are multiples of */
    /* Contiguous reads use rows of 33 lines, 500 at a time: streams at distances of powers of two
     * are 5% slower, smaller blocks up to 10%. */
    UNIT = 33 * LINE,
    UNITS_BLOCK = 500,
    ROWS_BLOCK = 512, /* rows that a thread takes at a time */
    ROOM_PART = 4,    /* takes at most this part of the remaining rows */
    NEIGHBOURS = 8,   /* neighbours of a way: they differ in one property */
    TRIED = 2,        /* neighbours measured with every sample */
    PIECES = 4        /* of the best way in a sample */
};

static const size_t MIB = 1 << 20;
static const double PIECE_SECONDS = 0.005;
static const double FIRST_RATE = 8e9; /* bytes per second and thread: a guess for the first piece */
static const double BETTER = 1.03;    /* a gain that noise does not repeat */
static const double SAME_DENSITY = 0.03; /* relative: the list of rows serves for both */

/* Prefetch distance in rows, or in lines of a row, where the next row follows the last line. */
static const struct {
    int rows, lines;
} AHEAD[] = {{0, 0}, {1, 8}, {1, 16}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
enum { N_AHEAD = sizeof AHEAD / sizeof *AHEAD };

/* One way of reading; `ahead` is a place in AHEAD. */
typedef struct way {
    int pages, streams_log2, ahead, threads;
} way;

typedef struct reading {
    const uint32_t *rows; /* NULL: all rows in order */
    size_t n_rows, row_bytes;
    size_t block; /* rows that a thread takes at a time */
    size_t at;    /* the next piece begins with this block */
    way best;
    double rate; /* bytes per second, last seen */
    bool found;
    int turn; /* number of the next neighbour to try */
} reading;

struct bandwidth {
    pool *pool;
    uint8_t *memory[PAGES_COUNT]; /* [n_bytes] each */
    size_t n_bytes;
    reading stream, gather;
    uint32_t *rows; /* [capacity] */
    size_t capacity, row_bytes;
    float *share; /* [n_share] share of passes that read a row */
    float *freq;  /* [n_share] */
    int64_t n_share;
    double density;            /* of `rows`; 0: no list yet */
    atomic_uint_fast64_t sink; /* sum of all words read, so that the compiler keeps the reads */
};

/* ---- loops ----------------------------------------------------------------------------------- */

static inline uint64_t word_at(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static inline const uint8_t *row_at(const uint8_t *base, const reading *r, size_t i) {
    return base + (r->rows ? r->rows[i] : i) * r->row_bytes;
}

/* Reads a word of every line of rows [from, to), in `streams` parts at a time. */
static inline __attribute__((always_inline)) uint64_t read_rows(const uint8_t *base,
                                                                const reading *r, size_t from,
                                                                size_t to, size_t streams,
                                                                bool fetch, int ahead) {
    size_t part = (to - from) / streams, last_word = r->row_bytes - sizeof(uint64_t);
    size_t rows = (size_t)AHEAD[ahead].rows, lead = (size_t)AHEAD[ahead].lines * LINE;
    size_t own = lead && lead < r->row_bytes ? (r->row_bytes - lead) / LINE * LINE : 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < part; i++) {
        const uint8_t *row[1 << STREAMS_LOG2], *next[1 << STREAMS_LOG2];
        for (size_t s = 0; s < streams; s++) {
            size_t at = from + s * part + i;
            row[s] = row_at(base, r, at);
            next[s] = row_at(base, r, i + rows < part ? at + rows : at);
        }
        for (size_t at = 0; at < own && fetch; at += LINE)
            for (size_t s = 0; s < streams; s++) {
                __builtin_prefetch(row[s] + at + lead, 0, 3);
                sum += word_at(row[s] + at);
            }
        for (size_t at = own; at < r->row_bytes; at += LINE)
            for (size_t s = 0; s < streams; s++) {
                if (fetch) __builtin_prefetch(next[s] + (at - own), 0, 3);
                sum += word_at(row[s] + (at < last_word ? at : last_word));
            }
        for (size_t s = 0; s < streams; s++) sum += word_at(row[s] + last_word); /* its last line */
    }
    return sum;
}

static uint64_t read_block(const uint8_t *base, const reading *r, size_t from, size_t to, way w) {
    size_t streams = (size_t)1 << w.streams_log2, rest = to - (to - from) % streams;
    uint64_t sum = read_rows(base, r, rest, to, 1, false, 0);
    switch (w.streams_log2 * 2 + (w.ahead > 0)) {
    case 0:
        return sum + read_rows(base, r, from, rest, 1, false, 0);
    case 1:
        return sum + read_rows(base, r, from, rest, 1, true, w.ahead);
    case 2:
        return sum + read_rows(base, r, from, rest, 2, false, 0);
    case 3:
        return sum + read_rows(base, r, from, rest, 2, true, w.ahead);
    case 4:
        return sum + read_rows(base, r, from, rest, 4, false, 0);
    case 5:
        return sum + read_rows(base, r, from, rest, 4, true, w.ahead);
    case 6:
        return sum + read_rows(base, r, from, rest, 8, false, 0);
    default:
        return sum + read_rows(base, r, from, rest, 8, true, w.ahead);
    }
}

typedef struct piece {
    bandwidth *b;
    const reading *r;
    way way;
    int64_t n_blocks;
} piece;

static void read_piece(void *arg, int ith, int nth) {
    piece *p = arg;
    const reading *r = p->r;
    size_t n_blocks = (r->n_rows + r->block - 1) / r->block;
    uint64_t sum = 0;
    (void)ith;
    (void)nth;
    for (;;) {
        int64_t i = pool_take(p->b->pool, 1);
        if (i >= p->n_blocks) break;
        size_t from = (r->at + (size_t)i) % n_blocks * r->block;
        size_t to = from + r->block < r->n_rows ? from + r->block : r->n_rows;
        sum += read_block(p->b->memory[p->way.pages], r, from, to, p->way);
    }
    atomic_fetch_add(&p->b->sink, sum);
}

/* Bytes per second over about PIECE_SECONDS. */
static double time_piece(bandwidth *b, reading *r, way w) {
    size_t n_blocks = (r->n_rows + r->block - 1) / r->block;
    double rate = r->rate > 0 ? r->rate : FIRST_RATE * w.threads;
    double blocks = ceil(rate * PIECE_SECONDS / (double)(r->block * r->row_bytes));
    piece p = {b, r, w, (int64_t)fmax(blocks, w.threads)};
    double start = clock_seconds();
    pool_run(b->pool, w.threads, read_piece, &p);
    double seconds = clock_seconds() - start;
    /* The last block may be short. */
    size_t short_rows = n_blocks * r->block - r->n_rows;
    size_t wraps = (r->at + (size_t)p.n_blocks) / n_blocks;
    double rows = (double)p.n_blocks * (double)r->block - (double)(wraps * short_rows);
    r->at = (r->at + (size_t)p.n_blocks) % n_blocks;
    return rows * (double)r->row_bytes / seconds;
}

/* ---- search for the best way ----------------------------------------------------------------- */

/* The k-th way that differs from `w` in one property; false when there is none. */
static bool neighbour(const bandwidth *b, way w, int k, way *out) {
    int most = pool_size(b->pool);
    *out = w;
    switch (k) {
    case 0:
        out->streams_log2++;
        break;
    case 1:
        out->streams_log2--;
        break;
    case 2:
        out->ahead++;
        break;
    case 3:
        out->ahead--;
        break;
    case 4:
        out->pages = !w.pages;
        break;
    case 5:
        out->threads = w.threads * 2 < most ? w.threads * 2 : most;
        break;
    case 6:
        out->threads = (w.threads + 1) / 2;
        break;
    default: /* any distance, or none */
        out->ahead = w.ahead ? 0 : N_AHEAD / 2;
    }
    return out->streams_log2 >= 0 && out->streams_log2 <= STREAMS_LOG2 && out->ahead >= 0 &&
           out->ahead < N_AHEAD && memcmp(out, &w, sizeof w) != 0;
}

typedef struct tried_way {
    way way;
    double rate;
} tried_way;

static int compare_ways(const void *a, const void *b) {
    double x = ((const tried_way *)a)->rate, y = ((const tried_way *)b)->rate;
    return (x < y) - (x > y);
}

/* Measures all ways with all threads, then the best ones again, so that a short disturbance does
 * not decide, then the best one with fewer threads. */
static void find_best(bandwidth *b, reading *r) {
    enum { FINALISTS = 6, ROUNDS = 2 };
    tried_way tried[PAGES_COUNT * (STREAMS_LOG2 + 1) * N_AHEAD];
    int n = 0, most = pool_size(b->pool);
    for (int pages = 0; pages < PAGES_COUNT; pages++)
        for (int streams = 0; streams <= STREAMS_LOG2; streams++)
            for (int ahead = 0; ahead < N_AHEAD; ahead++, n++) {
                tried[n].way = (way){pages, streams, ahead, most};
                tried[n].rate = time_piece(b, r, tried[n].way);
                r->rate = tried[n].rate;
            }
    qsort(tried, (size_t)n, sizeof *tried, compare_ways);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < FINALISTS; i++) {
            if (round == 0) tried[i].rate = 0;
            tried[i].rate += time_piece(b, r, tried[i].way) / ROUNDS;
        }
    qsort(tried, FINALISTS, sizeof *tried, compare_ways);
    r->best = tried[0].way;
    r->rate = tried[0].rate;
    for (int threads = most / 2; threads >= 1; threads /= 2) {
        way w = r->best;
        w.threads = threads;
        double rate = (time_piece(b, r, w) + time_piece(b, r, w)) / 2;
        if (rate < r->rate * BETTER) continue;
        r->rate = rate;
        r->best = w;
    }
    r->found = true;
}

static double sample(bandwidth *b, reading *r) {
    if (!r->found) find_best(b, r);
    double sum = 0, others[TRIED];
    way tried[TRIED];
    for (int i = 0; i < PIECES; i++) {
        sum += time_piece(b, r, r->best);
        if (i >= TRIED) continue;
        while (!neighbour(b, r->best, r->turn++ % NEIGHBOURS, &tried[i])) continue;
        others[i] = time_piece(b, r, tried[i]);
    }
    r->rate = sum / PIECES;
    for (int i = 0; i < TRIED; i++) {
        if (others[i] < r->rate * BETTER) continue;
        double again = 0, old = time_piece(b, r, r->best);
        for (int k = 0; k < PIECES; k++) again += time_piece(b, r, tried[i]) / PIECES;
        if (again < fmax(old, r->rate) * BETTER) continue;
        r->best = tried[i];
        r->rate = again;
        break;
    }
    return r->rate / 1e9;
}

double bandwidth_read(bandwidth *b) {
    return sample(b, &b->stream);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* share = min(1, c freq) with c such that the mean is `density`. */
static void set_shares(bandwidth *b, double density) {
    double low = 0, high = 1e9; /* c */
    for (int step = 0; step < 100; step++) {
        double c = step < 60 ? sqrt(fmax(low, 1e-9) * high) : (low + high) / 2, sum = 0;
        for (int64_t i = 0; i < b->n_share; i++) sum += fmin(1, c * (double)b->freq[i]);
        if (sum < density * (double)b->n_share)
            low = c;
        else
            high = c;
    }
    for (int64_t i = 0; i < b->n_share; i++)
        b->share[i] = (float)fmin(1, high * (double)b->freq[i]);
}

/* Fills the list with as many rows as the buffer has, in passes over it that select rows like a
 * sparse layer. A pass selects a row when the sum of the row's shares so far reaches a whole
 * number, so that repeats are far apart; the hottest rows move from pass to pass. */
static void list_rows(bandwidth *b, double density) {
    const double golden = 0.6180339887498949;
    size_t n_all = b->n_bytes / b->row_bytes;
    float *sum = mem_alloc(n_all * sizeof *sum);
    reading *r = &b->gather;
    rng random;
    rng_seed(&random, 1);
    r->n_rows = 0;
    if (!sum) return;
    for (size_t i = 0; i < n_all; i++) sum[i] = (float)rng_uniform(&random);
    set_shares(b, density);
    const size_t max_passes = 1000;
    for (size_t pass = 0; pass < max_passes && r->n_rows < n_all; pass++) {
        double shift = golden * (double)pass;
        size_t j = (size_t)((shift - floor(shift)) * (double)b->n_share);
        for (size_t i = 0; i < n_all && r->n_rows < n_all; i++) {
            if (j >= (size_t)b->n_share) j = 0;
            sum[i] += b->share[j++];
            if (sum[i] < 1) continue;
            sum[i] -= 1;
            b->rows[r->n_rows++] = (uint32_t)i;
        }
    }
    mem_free(sum);
    r->block = ROWS_BLOCK;
    r->at = 0;
    b->density = density;
}

double bandwidth_gather(bandwidth *b, double density) {
    if (!(fabs(density - b->density) <= SAME_DENSITY * b->density)) list_rows(b, density);
    return b->gather.n_rows > 0 ? sample(b, &b->gather) : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void touch(void *arg, int ith, int nth) {
    bandwidth *b = arg;
    (void)ith;
    (void)nth;
    for (;;) {
        size_t at = (size_t)pool_take(b->pool, BLOCK);
        if (at >= b->n_bytes) break;
        for (int pages = 0; pages < PAGES_COUNT; pages++)
            memset(b->memory[pages] + at, (int)(at / BLOCK) + 1, BLOCK);
    }
}

size_t bandwidth_wanted(void) {
    size_t four = 4 * cpu_last_cache(), least = 256 * MIB;
    return (four > least ? four : least) / (PAGES_COUNT * BLOCK) * (PAGES_COUNT * BLOCK);
}

static void unmap(bandwidth *b) {
    for (int pages = 0; pages < PAGES_COUNT; pages++) {
        mem_unmap(b->memory[pages], b->n_bytes);
        b->memory[pages] = NULL;
    }
}

/* Retry with less memory where the address space is short. */
static bool map(bandwidth *b, size_t most) {
    for (size_t n = most / PAGES_COUNT; n * PAGES_COUNT >= BANDWIDTH_LEAST; n /= 2) {
        b->n_bytes = n / BLOCK * BLOCK;
        for (int pages = 0; pages < PAGES_COUNT; pages++) b->memory[pages] = mem_map(b->n_bytes);
        if (b->memory[PAGES_HUGE] && b->memory[PAGES_SMALL]) {
            os_memory_use_small_pages(b->memory[PAGES_SMALL], b->n_bytes);
            return true;
        }
        unmap(b);
    }
    return false;
}

static pi_status take_memory(bandwidth *b, const bandwidth_options *o, pi_error *err) {
    uint64_t room = memory_room(), most = bandwidth_wanted();
    room = room > o->keep_bytes ? (room - o->keep_bytes) / ROOM_PART : 0;
    if (room < most) most = room;
    bool ok = map(b, (size_t)most);
    b->capacity = b->n_bytes / b->row_bytes;
    b->n_share = o->freq ? o->n_freq : 1;
    b->rows = ok ? mem_alloc(b->capacity * sizeof *b->rows) : NULL;
    b->share = mem_alloc((size_t)b->n_share * sizeof *b->share);
    b->freq = mem_alloc((size_t)b->n_share * sizeof *b->freq);
    if (!ok || !b->rows || !b->share || !b->freq)
        return error_nomem(err, BANDWIDTH_LEAST, "bandwidth test");
    double sum = 0;
    for (int64_t i = 0; i < b->n_share && o->freq; i++) sum += (double)o->freq[i];
    for (int64_t i = 0; i < b->n_share; i++) b->freq[i] = sum > 0 ? o->freq[i] : 1;
    return PI_OK;
}

pi_status bandwidth_create(const bandwidth_options *options, bandwidth **out, pi_error *err) {
    *out = NULL;
    bandwidth *b = mem_calloc(1, sizeof *b);
    if (!b) return error_nomem(err, sizeof *b, "bandwidth test");
    b->row_bytes = options->row_bytes < LINE ? LINE : options->row_bytes;
    if (b->row_bytes > BLOCK) b->row_bytes = BLOCK;
    pi_status status = take_memory(b, options, err);
    if (status == PI_OK) status = pool_create(options->n_threads, &b->pool, err);
    if (status != PI_OK) {
        bandwidth_free(b);
        return status;
    }
    pool_run(b->pool, options->n_threads, touch, b);
    b->stream = (reading){.row_bytes = UNIT, .n_rows = b->n_bytes / UNIT, .block = UNITS_BLOCK};
    b->gather = (reading){.rows = b->rows, .row_bytes = b->row_bytes, .block = ROWS_BLOCK};
    *out = b;
    return PI_OK;
}

void bandwidth_free(bandwidth *b) {
    if (!b) return;
    pool_destroy(b->pool);
    unmap(b);
    mem_free(b->rows);
    mem_free(b->share);
    mem_free(b->freq);
    mem_free(b);
}

size_t bandwidth_bytes(const bandwidth *b) {
    return PAGES_COUNT * b->n_bytes;
}
