/* test_engine_paging_room.c: free memory falls and rises while a model runs with a memory budget.
 * The linker replaces memory_room (--wrap). The caches give memory back and take it again; logits
 * equal those from memory bit for bit at any time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "log.h"
#include "memory_room.h"
#include "powerinfer_tools.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_paging_room.gguf"

enum { N_CTX = 256, N_BATCH = 16, MAX_VOCAB = 512, MIB = 1 << 20 };
enum { LOOK_US = 300000 }; /* longer than the time between two looks at free memory */

/* ThreadSanitizer's own memory grows by more than the caches return. */
#if defined(__SANITIZE_THREAD__)
enum { SHADOWED = true };
#else
enum { SHADOWED = false };
#endif

static atomic_ullong room; /* bytes */
static int n_messages;

uint64_t __wrap_memory_room(void);
uint64_t __wrap_memory_room(void) {
    return atomic_load(&room);
}

static void count_message(void *user, log_level level, const char *line) {
    (void)user;
    (void)level;
    n_messages += strstr(line, "memory runs out") != NULL;
}

static void write_model(const char *shape) {
    pi_synth_options o = pi_synth_default_options();
    pi_error err;
    o.shape = shape;
    o.type = "f32";
    o.bundle = true;
    o.n_layer = 4;
    if (pi_synth(MODEL_PATH, &o, &err) != PI_OK) fail_msg("%s", err.message);
}

static int remove_model(void **state) {
    (void)state;
    unlink(MODEL_PATH);
    return 0;
}

/* Two contexts with the same sessions: all weights in memory; a budget. */
typedef struct pair {
    run_model mapped, paged;
    pi_session *a, *b;
    int32_t tokens[N_CTX];
    int n;
} pair;

static pi_mode mode;

static run_model open_model(uint64_t budget) {
    pi_context_options o = run_exact_options();
    o.kernels = PI_KERNELS_AUTO;
    o.mode = mode;
    o.n_threads = 2;
    o.n_ctx = N_CTX;
    o.n_batch = N_BATCH;
    o.ram_budget = budget;
    return run_open(MODEL_PATH, &o);
}

/* A budget with which not all weights stay in memory, and the cache is not the smallest one. */
static void open_pair(pair *p) {
    atomic_store(&room, UINT64_MAX);
    run_model r = open_model(1024 * (uint64_t)MIB);
    pi_memory all = run_memory(&r);
    run_close(&r);
    r = open_model(all.needed);
    uint64_t cached = run_memory(&r).cached;
    run_close(&r);
    p->mapped = open_model(PI_RAM_MAPPED);
    p->paged = open_model(all.buffers + all.always + all.pinned + all.ring + all.cache -
                          cached / 16);
    p->a = run_session(&p->mapped, N_CTX);
    p->b = run_session(&p->paged, N_CTX);
    run_random_tokens(5, p->mapped.n_vocab, p->tokens, N_CTX);
    p->n = 0;
}

static void close_pair(pair *p) {
    pi_session_destroy(p->a);
    pi_session_destroy(p->b);
    run_close(&p->mapped);
    run_close(&p->paged);
}

static void feed(pair *p, int n) {
    pi_error err;
    pi_input in = {
        .session = p->a, .tokens = p->tokens + p->n, .n_tokens = n, .logits = PI_LOGITS_LAST};
    assert_int_equal(pi_forward(p->mapped.context, &in, 1, NULL), PI_OK);
    in.session = p->b;
    if (pi_forward(p->paged.context, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
    assert_memory_equal(pi_logits(p->mapped.context, 0), pi_logits(p->paged.context, 0),
                        (size_t)p->mapped.n_vocab * sizeof(float));
    p->n += n;
}

/* Decode, a prompt, decode: the first call looks at free memory. */
static void feed_with_room(pair *p, uint64_t n_bytes) {
    atomic_store(&room, n_bytes);
    usleep(LOOK_US);
    for (int i = 0; i < 4; i++) feed(p, 1);
    feed(p, N_BATCH);
    for (int i = 0; i < 4; i++) feed(p, 1);
}

/* Resident bytes of this process that are not pages of files. */
static uint64_t resident(void) {
    enum { KIB = 1024, LINE = 256 };
    char line[LINE];
    unsigned long long n = 0, one;
    FILE *f = fopen("/proc/self/status", "re");
    if (!f) skip(); /* not Linux */
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %llu", &one) == 1 || sscanf(line, "RssShmem: %llu", &one) == 1)
            n += one;
    fclose(f);
    return n * KIB;
}

static void memory_falls_and_rises(const char *shape) {
    static pair p;
    write_model(shape);
    open_pair(&p);
    n_messages = 0;
    log_set_sink(count_message, NULL, LOG_LEVEL_WARN);
    feed_with_room(&p, 1024 * (uint64_t)MIB);
    uint64_t all = run_memory(&p.paged).cache, before = resident();
    assert_int_equal(n_messages, 0);

    /* 16 MiB should be free; below that the cache returns memory until 32 MiB are free */
    feed_with_room(&p, 32 * MIB - (uint64_t)MIB * 2);
    assert_int_equal(run_memory(&p.paged).cache, all);
    feed_with_room(&p, 16 * MIB - 1);
    uint64_t less = run_memory(&p.paged).cache;
    assert_true(less < all);

    feed_with_room(&p, 0);
    uint64_t least = run_memory(&p.paged).cache;
    assert_true(least > 0 && least <= less && all - least > MIB / 8);
    bool measurable = all - least > MIB && !SHADOWED; /* views of shared memory count as well */
    assert_true(!measurable || before > resident() + (all - least) / 2);
    feed_with_room(&p, 0);
    assert_int_equal(run_memory(&p.paged).cache, least);
    assert_int_equal(n_messages, 1);

    feed_with_room(&p, 40 * MIB); /* enough, but not enough for a larger cache */
    assert_int_equal(run_memory(&p.paged).cache, least);
    feed_with_room(&p, 32 * MIB + (uint64_t)MIB * 36);
    assert_true(run_memory(&p.paged).cache > least);
    feed_with_room(&p, 1024 * (uint64_t)MIB);
    assert_int_equal(run_memory(&p.paged).cache, all);
    log_set_sink(NULL, NULL, LOG_LEVEL_WARN);
    close_pair(&p);
}

static void neurons(void **state) {
    (void)state;
    mode = PI_MODE_PREDICT;
    memory_falls_and_rises("tiny");
}

static void experts(void **state) {
    (void)state;
    mode = PI_MODE_AUTO;
    memory_falls_and_rises("tiny-moe");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(neurons), cmocka_unit_test(experts)};
    return cmocka_run_group_tests(tests, NULL, remove_model);
}
