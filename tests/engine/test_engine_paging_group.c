/* test_engine_paging_group.c: the memory limit of a real control group falls and rises while a
 * model runs in it with a memory budget. The kernel's figures must show that the cache returned
 * memory, and logits equal those from memory bit for bit. Needs root; without root or control
 * groups it is skipped. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "powerinfer_tools.h"
#include "run_model.h"

#define MODEL_PATH TEST_BINARY_DIR "/test_engine_paging_group.gguf"
#define ROOT       "/sys/fs/cgroup"

enum {
    N_CTX = 64,
    N_TOKENS = 20,
    MAX_VOCAB = 151936,
    MIB = 1 << 20,
    ROUNDS = 3,
    TOKENS = 4,
    LOOKS = 8
};
enum { LOOK_US = 300000 }; /* longer than the time between two looks at free memory */

static char group[256];
static const char *parent;
static bool unified;
static float expected[N_TOKENS][MAX_VOCAB];
static int32_t tokens[N_TOKENS];

/* 0 or an error number. */
static int write_number(const char *folder, const char *name, long long n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    if (!f) return errno;
    int problem = fprintf(f, "%lld", n) < 0 || fflush(f) != 0 ? errno : 0;
    fclose(f);
    return problem;
}

static uint64_t read_number(const char *name) {
    char path[512];
    unsigned long long n = 0;
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &n), 1);
    fclose(f);
    return n;
}

static void set_limit(uint64_t n) {
    int problem = write_number(group, unified ? "memory.max" : "memory.limit_in_bytes",
                               (long long)n);
    if (problem) fail_msg("limit of %llu bytes: %s", (unsigned long long)n, strerror(problem));
}

/* Bytes that the group holds, without pages of files, which the kernel may drop. */
static uint64_t usage(void) {
    char path[512], key[64];
    unsigned long long n, files = 0;
    snprintf(path, sizeof path, "%s/memory.stat", group);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fscanf(f, "%63s %llu", key, &n) == 2)
        if (strcmp(key, "active_file") == 0 || strcmp(key, "inactive_file") == 0) files += n;
    fclose(f);
    n = read_number(unified ? "memory.current" : "memory.usage_in_bytes");
    return n > files ? n - files : 0;
}

/* False: no control group can be made here. */
static bool enter_group(void) {
    unified = access(ROOT "/cgroup.controllers", F_OK) == 0;
    parent = unified ? ROOT : ROOT "/memory";
    snprintf(group, sizeof group, "%s/powerinfer-test-%d", parent, (int)getpid());
    if (geteuid() != 0 || mkdir(group, 0755) != 0) return false;
    bool ok = access(unified ? ROOT "/memory.stat" : ROOT "/memory/memory.stat", F_OK) == 0 &&
              write_number(group, "cgroup.procs", getpid()) == 0;
    if (!ok) rmdir(group);
    return ok;
}

static int leave_group(void **state) {
    (void)state;
    write_number(parent, "cgroup.procs", getpid());
    rmdir(group);
    unlink(MODEL_PATH);
    return 0;
}

static run_model open_model(uint64_t budget) {
    pi_context_options o = run_exact_options();
    o.kernels = PI_KERNELS_AUTO;
    o.n_threads = 2;
    o.n_ctx = N_CTX;
    o.n_batch = 16;
    o.ram_budget = budget;
    return run_open(MODEL_PATH, &o);
}

static const float *feed(run_model *r, pi_session *s, int i) {
    pi_error err;
    const pi_input in = {
        .session = s, .tokens = &tokens[i], .n_tokens = 1, .logits = PI_LOGITS_LAST};
    if (pi_forward(r->context, &in, 1, &err) != PI_OK) fail_msg("%s", err.message);
    return pi_logits(r->context, 0);
}

/* Lowers the limit until 8 MiB are left. The kernel then also drops its caches, which leaves
 * more, so this takes a few rounds. Returns the bytes that the group holds. */
static uint64_t tighten(void) {
    uint64_t n;
    int round = 0;
    do {
        n = usage();
        set_limit(n + 8 * MIB);
    } while (usage() + MIB < n && ++round < LOOKS);
    return n;
}

/* Looks at the free memory, then decodes. */
static void decode(run_model *r, pi_session *s, int *n) {
    usleep(LOOK_US);
    for (int i = 0; i < TOKENS; i++, ++*n)
        assert_memory_equal(feed(r, s, *n), expected[*n], (size_t)r->n_vocab * sizeof(float));
}

static void limit_falls_and_rises(void **state) {
    (void)state;
    pi_synth_options o = pi_synth_default_options();
    pi_error err;
    int n = 0;
    if (!enter_group()) {
        print_message("skipped: needs root and a memory control group\n");
        skip();
    }
    o.shape = "qwen3-30b-a3b"; /* nearly all of the cache of experts may shrink */
    o.n_layer = 1;
    if (pi_synth(MODEL_PATH, &o, &err) != PI_OK) fail_msg("%s", err.message);

    run_model r = open_model(PI_RAM_MAPPED);
    assert_true(r.n_vocab <= MAX_VOCAB);
    run_random_tokens(5, r.n_vocab, tokens, N_TOKENS);
    pi_session *s = run_session(&r, N_CTX);
    for (int i = 0; i < N_TOKENS; i++)
        memcpy(expected[i], feed(&r, s, i), (size_t)r.n_vocab * sizeof(float));
    pi_session_destroy(s);
    run_close(&r);

    r = open_model((uint64_t)1024 * MIB);
    pi_memory all = run_memory(&r);
    run_close(&r);
    r = open_model(all.needed + (uint64_t)100 * MIB);
    s = run_session(&r, N_CTX);
    decode(&r, s, &n);
    uint64_t cache = run_memory(&r).cache;
    for (int round = 0; round < ROUNDS; round++) { /* with less than 16 MiB free, until 32 are */
        uint64_t before = tighten();
        decode(&r, s, &n);
        uint64_t less = run_memory(&r).cache;
        print_message("held %llu, then %llu MiB; cache %llu, then %llu MiB\n",
                      (unsigned long long)before / MIB, (unsigned long long)usage() / MIB,
                      (unsigned long long)cache / MIB, (unsigned long long)less / MIB);
        assert_true(less + 16 * MIB < cache);
        assert_true(usage() + 16 * MIB < before);
        cache = less;
    }
    set_limit((uint64_t)4096 * MIB);
    decode(&r, s, &n);
    assert_true(run_memory(&r).cache > cache);
    pi_session_destroy(s);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(limit_falls_and_rises)};
    return cmocka_run_group_tests(tests, NULL, leave_group);
}
