/* fuzz_main.c: a small driver for fuzz targets, for compilers without libFuzzer.
 *
 *     fuzz_NAME [--seconds S] [--inputs N] [--seed S] [--max-bytes N] [FILE...]
 *     fuzz_NAME --write-seeds FOLDER
 *
 * Seeds are the named files and the seeds of the target's fuzz_seed; the second form writes the
 * latter as files. Each round picks a seed and changes it in one to eight places. The driver stops
 * after S seconds or N inputs. The sequence of inputs depends only on the seed and the files. An
 * input that crashes the target is left in fuzz_NAME.crash in the working folder; --inputs 0
 * fuzz_NAME.crash runs it again. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fuzz_target.h"
#include "rng.h"

enum { MAX_SEEDS = 256, DEFAULT_MAX_BYTES = 64 * 1024, MAX_CHANGES = 8 };

typedef struct seed {
    uint8_t *data;
    size_t n;
} seed;

/* Default for targets that define no fuzz_seed. */
__attribute__((weak)) size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    (void)i, (void)data, (void)max;
    return 0;
}

static char crash_path[256];
static const uint8_t *current;
static size_t n_current;

static void on_crash(int number) {
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
        ssize_t n = write(fd, current, n_current);
        (void)n;
        close(fd);
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Sanitizers print their report and then abort, which calls on_crash; their own handlers stay. The
 * sanitizer libraries must see these functions, even if the build hides symbols. */
#define SEEN __attribute__((visibility("default")))
SEEN const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    /* a huge size in a file must be an error, as without a sanitizer */
    return "abort_on_error=1:allocator_may_return_null=1:max_allocation_size_mb=4096";
}
SEEN const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) {
    return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

static void catch_crashes(void) {
    const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            signal(numbers[i], on_crash);
        }
    }
}

static void run_one(const uint8_t *data, size_t n) {
    /* The block has exactly the right size, so that a sanitizer sees any read beyond it. */
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) return;
    if (n) memcpy(copy, data, n);
    current = copy;
    n_current = n;
    LLVMFuzzerTestOneInput(copy, n);
    n_current = 0;
    free(copy);
}

static size_t below(rng *r, size_t n) {
    return n ? (size_t)(rng_u64(r) % n) : 0;
}

/* Returns a value at which sizes and counts often fail. */
static uint64_t edge_value(rng *r) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     7,
                                     8,
                                     31,
                                     32,
                                     33,
                                     63,
                                     64,
                                     127,
                                     128,
                                     255,
                                     256,
                                     65535,
                                     65536,
                                     INT32_MAX,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT32_MAX,
                                     UINT64_MAX,
                                     UINT64_MAX - 7};
    uint64_t v = edges[below(r, sizeof edges / sizeof *edges)];
    return below(r, 4) == 0 ? UINT64_C(1) << below(r, 64) : v;
}

/* Changes `n` bytes at `data` (room for `max`) in one place; returns the new length. */
static size_t mutate_once(rng *r, uint8_t *data, size_t n, size_t max, const seed *other) {
    size_t at = below(r, n), len = 1 + below(r, 16);
    uint64_t v = edge_value(r);
    size_t width = (size_t)1 << below(r, 4);
    switch (n ? below(r, 8) : 5) {
    case 0:
        data[at] ^= (uint8_t)(1u << below(r, 8));
        break;
    case 1:
        data[at] = (uint8_t)rng_u64(r);
        break;
    case 2: /* an integer of 1 to 8 bytes becomes an edge value */
        if (width <= n - at) memcpy(data + at, &v, width);
        break;
    case 3: /* small step: off by one and similar */
        data[at] = (uint8_t)(data[at] + below(r, 9) - 4);
        break;
    case 4: /* remove a piece */
        if (len > n - at) len = n - at;
        memmove(data + at, data + at + len, n - at - len);
        return n - len;
    case 5: /* insert a piece */
        if (len > max - n) len = max - n;
        memmove(data + at + len, data + at, n - at);
        for (size_t i = 0; i < len; i++) data[at + i] = (uint8_t)rng_u64(r);
        return n + len;
    case 6:
        return at; /* remove the tail */
    default:       /* insert a piece of another seed */
        if (other->n) {
            size_t from = below(r, other->n);
            len = 1 + below(r, 64);
            if (len > other->n - from) len = other->n - from;
            if (len > n - at) len = n - at;
            memcpy(data + at, other->data + from, len);
        }
        break;
    }
    return n;
}

/* Calls no function of the library: a target may have replaced it. */
static bool read_seed(const char *path, size_t max, seed *s) {
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    s->data = malloc(max + 1);
    s->n = s->data ? fread(s->data, 1, max + 1, f) : 0;
    bool good = s->data && !ferror(f) && s->n <= max;
    if (!good) free(s->data);
    fclose(f);
    return good;
}

static size_t add_seeds(seed *seeds, char **files, int n_files, size_t max) {
    size_t n = 0;
    for (int i = 0; i < n_files && n < MAX_SEEDS; i++) {
        if (read_seed(files[i], max, &seeds[n]))
            n++;
        else
            fprintf(stderr, "seed not used (too long or not readable): %s\n", files[i]);
    }
    uint8_t *buffer = malloc(max);
    for (size_t i = 0; buffer && n < MAX_SEEDS; i++) {
        size_t length = fuzz_seed(i, buffer, max);
        if (length == 0) break;
        seeds[n].data = malloc(length);
        if (!seeds[n].data) break;
        memcpy(seeds[n].data, buffer, length);
        seeds[n++].n = length;
    }
    free(buffer);
    if (n == 0) seeds[n++] = (seed){.data = malloc(1), .n = 0};
    return n;
}

static uint64_t fuzz_loop(const seed *seeds, size_t n_seeds, uint64_t start, double seconds,
                          uint64_t inputs, size_t max) {
    uint8_t *data = malloc(max);
    if (!data) return 0;
    rng r;
    rng_seed(&r, start);
    uint64_t n_inputs = 0;
    double end = clock_seconds() + seconds;
    while (n_inputs < inputs && (n_inputs % 16 || clock_seconds() < end)) {
        const seed *s = &seeds[below(&r, n_seeds)];
        size_t n = s->n;
        if (n) memcpy(data, s->data, n);
        for (size_t i = 1 + below(&r, MAX_CHANGES); i > 0; i--) {
            n = mutate_once(&r, data, n, max, &seeds[below(&r, n_seeds)]);
        }
        run_one(data, n);
        n_inputs++;
    }
    free(data);
    return n_inputs;
}

static int write_seeds(const char *folder) {
    static uint8_t data[DEFAULT_MAX_BYTES];
    for (size_t i = 0, n; (n = fuzz_seed(i, data, sizeof data)) > 0; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed_%02zu", folder, i);
        FILE *f = fopen(path, "wb");
        bool written = f && fwrite(data, 1, n, f) == n;
        if ((f && fclose(f) != 0) || !written) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    static seed seeds[MAX_SEEDS];
    double seconds = 10;
    uint64_t start = 1, inputs = UINT64_MAX;
    size_t max = DEFAULT_MAX_BYTES;
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0) return write_seeds(argv[2]);
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            start = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--inputs") == 0)
            inputs = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--max-bytes") == 0)
            max = strtoull(argv[i + 1], NULL, 10);
        else {
            fprintf(stderr, "unknown option %s\n", argv[i]);
            return 2;
        }
    }
    const char *slash = strrchr(argv[0], '/');
    snprintf(crash_path, sizeof crash_path, "%.200s.crash", slash ? slash + 1 : argv[0]);
    catch_crashes();

    size_t n_seeds = add_seeds(seeds, argv + i, argc - i, max ? max : 1);
    for (size_t k = 0; k < n_seeds; k++) run_one(seeds[k].data, seeds[k].n);
    uint64_t n = fuzz_loop(seeds, n_seeds, start, seconds, inputs, max ? max : 1);
    printf("%llu inputs from %zu seeds, no crash (seed %llu)\n", (unsigned long long)n + n_seeds,
           n_seeds, (unsigned long long)start);
    for (size_t k = 0; k < n_seeds; k++) free(seeds[k].data);
    return 0;
}
