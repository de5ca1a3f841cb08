/* inflate.c: see inflate.h. Codes are decoded by a table of FAST bits; longer ones, which are rare,
 * bit by bit in the canonical order. */
#include "inflate.h"

#include <stdbool.h>
#include <string.h>

enum {
    FAST = 10,     /* bits */
    MAX_BITS = 15, /* of a code */
    N_LITERALS = 288,
    N_DISTANCES = 32,
    GZIP_HEAD = 10,
    GZIP_TAIL = 8,
    GZIP_DEFLATE = 8 /* the method */
};

typedef struct code {
    uint16_t fast[1 << FAST]; /* symbol << 4 | bits of its code; 0: a longer one */
    uint16_t count[MAX_BITS + 1];
    uint16_t symbols[N_LITERALS]; /* by length, then by value */
} code;

typedef struct inflater {
    const uint8_t *at, *end;
    uint64_t bits; /* read ahead, the next one lowest */
    unsigned n_bits;
    uint8_t *out;
    size_t n_out, done;
    bool wrong;
    code literals, distances;
} inflater;

/* Behind the end there are zeros: a code that takes them is noticed by `need`. */
static void fill(inflater *f) {
    while (f->n_bits <= 56 && f->at < f->end) {
        f->bits |= (uint64_t)*f->at++ << f->n_bits;
        f->n_bits += 8;
    }
}

static void drop(inflater *f, unsigned n) {
    if (n > f->n_bits) {
        f->wrong = true;
        return;
    }
    f->bits >>= n;
    f->n_bits -= n;
}

static unsigned take(inflater *f, unsigned n) {
    fill(f);
    const unsigned v = (unsigned)(f->bits & ((UINT64_C(1) << n) - 1));
    drop(f, n);
    return v;
}

static unsigned reversed(unsigned v, unsigned n) {
    unsigned r = 0;
    for (unsigned i = 0; i < n; i++) r |= (v >> i & 1) << (n - 1 - i);
    return r;
}

/* From the lengths of n symbols' codes; 0: a symbol that does not occur. False: more codes than
 * there is room for. */
static bool make_code(code *c, const uint8_t *lengths, unsigned n) {
    uint16_t first[MAX_BITS + 2] = {0}, at[MAX_BITS + 2] = {0};
    int left = 1;
    memset(c, 0, sizeof *c);
    for (unsigned i = 0; i < n; i++) c->count[lengths[i]]++;
    c->count[0] = 0;
    for (unsigned l = 1; l <= MAX_BITS; l++) {
        left = 2 * left - c->count[l];
        if (left < 0) return false;
        first[l + 1] = (uint16_t)((first[l] + c->count[l]) << 1);
        at[l + 1] = (uint16_t)(at[l] + c->count[l]);
    }
    for (unsigned i = 0; i < n; i++) {
        const unsigned l = lengths[i];
        if (l == 0) continue;
        c->symbols[at[l]++] = (uint16_t)i;
        const unsigned bits = reversed(first[l]++, l);
        if (l > FAST) continue;
        for (unsigned k = bits; k < 1u << FAST; k += 1u << l) c->fast[k] = (uint16_t)(i << 4 | l);
    }
    return true;
}

static unsigned decode(inflater *f, const code *c) {
    fill(f);
    const unsigned quick = c->fast[f->bits & ((1u << FAST) - 1)];
    if (quick) {
        drop(f, quick & 15);
        return quick >> 4;
    }
    unsigned bits = 0, first = 0, at = 0;
    for (unsigned l = 1; l <= MAX_BITS; l++) {
        bits |= (unsigned)(f->bits >> (l - 1) & 1);
        if (bits - first < c->count[l]) {
            drop(f, l);
            return c->symbols[at + bits - first];
        }
        at += c->count[l];
        first = (first + c->count[l]) << 1;
        bits <<= 1;
    }
    f->wrong = true;
    return 0;
}

/* Literals, and copies of what was written before, to the end of the block. */
static void read_symbols(inflater *f) {
    static const uint16_t length_from[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                           15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                           67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                          2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_from[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    enum { END = 256, N_LENGTHS = 29, N_FROM = 30 };
    while (!f->wrong) {
        unsigned symbol = decode(f, &f->literals);
        if (symbol == END) return;
        if (symbol < END) {
            if (f->done == f->n_out) f->wrong = true;
            if (!f->wrong) f->out[f->done++] = (uint8_t)symbol;
            continue;
        }
        symbol -= END + 1;
        if (symbol >= N_LENGTHS) break;
        const size_t n = length_from[symbol] + take(f, length_bits[symbol]);
        const unsigned d = decode(f, &f->distances);
        if (d >= N_FROM) break;
        const size_t back = distance_from[d] + take(f, d < 2 ? 0 : d / 2 - 1);
        if (f->wrong || back > f->done || n > f->n_out - f->done) break;
        uint8_t *to = f->out + f->done;
        for (size_t i = 0; i < n; i++) to[i] = to[i - back]; /* they may overlap */
        f->done += n;
    }
    f->wrong = true;
}

static void read_stored(inflater *f) {
    drop(f, f->n_bits % 8);
    const unsigned n = take(f, 16), inverse = take(f, 16);
    if ((n ^ 0xffff) != inverse || n > f->n_out - f->done) f->wrong = true;
    for (unsigned i = 0; i < n && !f->wrong; i++) f->out[f->done++] = (uint8_t)take(f, 8);
}

static void fixed_codes(inflater *f) {
    uint8_t lengths[N_LITERALS];
    memset(lengths, 8, sizeof lengths);
    memset(lengths + 144, 9, 256 - 144);
    memset(lengths + 256, 7, 280 - 256);
    make_code(&f->literals, lengths, N_LITERALS);
    memset(lengths, 5, N_DISTANCES);
    make_code(&f->distances, lengths, N_DISTANCES);
}

/* The lengths of the codes of a block, which are coded themselves. */
static void read_codes(inflater *f) {
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    enum { N_ORDER = 19, AGAIN = 16, ZEROS = 17, MANY_ZEROS = 18 };
    uint8_t lengths[N_LITERALS + N_DISTANCES] = {0};
    const unsigned n_literals = take(f, 5) + 257, n_distances = take(f, 5) + 1;
    const unsigned n_order = take(f, 4) + 4, n = n_literals + n_distances;
    for (unsigned i = 0; i < n_order; i++) lengths[order[i]] = (uint8_t)take(f, 3);
    if (n_literals > N_LITERALS || !make_code(&f->literals, lengths, N_ORDER)) f->wrong = true;
    memset(lengths, 0, sizeof lengths);
    for (unsigned i = 0; i < n && !f->wrong;) {
        const unsigned symbol = decode(f, &f->literals);
        if (symbol < AGAIN) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        const unsigned times = symbol == AGAIN   ? 3 + take(f, 2)
                               : symbol == ZEROS ? 3 + take(f, 3)
                                                 : 11 + take(f, 7);
        if (times > n - i || (symbol == AGAIN && i == 0)) {
            f->wrong = true;
            return;
        }
        memset(lengths + i, symbol == AGAIN ? lengths[i - 1] : 0, times);
        i += times;
    }
    if (f->wrong || !make_code(&f->literals, lengths, n_literals) ||
        !make_code(&f->distances, lengths + n_literals, n_distances))
        f->wrong = true;
}

static void read_blocks(inflater *f) {
    enum { STORED, FIXED, CODED };
    for (bool last = false; !last && !f->wrong;) {
        last = take(f, 1);
        switch (take(f, 2)) {
        case STORED:
            read_stored(f);
            break;
        case FIXED:
            fixed_codes(f);
            read_symbols(f);
            break;
        case CODED:
            read_codes(f);
            if (!f->wrong) read_symbols(f);
            break;
        default:
            f->wrong = true;
        }
    }
}

static uint32_t checksum(const uint8_t *p, size_t n) {
    uint32_t table[256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ table[(crc ^ p[i]) & 0xff];
    return ~crc;
}

pi_status inflate_gzip(const uint8_t *bytes, size_t n_bytes, uint8_t *out, size_t n_out,
                       pi_error *err) {
    /* no name, comment or extra field: the flags are 0 */
    if (n_bytes < GZIP_HEAD + GZIP_TAIL || bytes[0] != 0x1f || bytes[1] != 0x8b ||
        bytes[2] != GZIP_DEFLATE || bytes[3] != 0)
        return error_set(err, PI_ERR_FORMAT, "not gzip");
    const uint8_t *tail = bytes + n_bytes - GZIP_TAIL;
    inflater f = {.at = bytes + GZIP_HEAD, .end = tail, .out = out, .n_out = n_out};
    read_blocks(&f);
    const uint32_t crc = tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 |
                         (uint32_t)tail[3] << 24;
    if (f.wrong || f.done != n_out || checksum(out, n_out) != crc)
        return error_set(err, PI_ERR_FORMAT, "malformed gzip");
    return PI_OK;
}
