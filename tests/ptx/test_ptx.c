/* test_ptx.c: small PTX texts, each with a fault that must be reported, or with results that are
 * compared with plain C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx.h"
#include "rng.h"

enum { N_WORDS = 4096 };

/* A kernel whose parameter is the address of N_WORDS words, in %rd1; %r1 is the thread. */
static const char head[] = ".version 9.0\n.target sm_80\n.address_size 64 "
                           ".shared .align 16 .b8 common[256];\n"
                           ".entry test(\n\t.param .u64 data\n)\n{\n"
                           "\t.reg .pred %p<8>;\n\t.reg .b32 %r<40>;\n\t.reg .b64 %rd<16>;\n"
                           "\t.reg .f32 %f<8>;\n"
                           "\t.shared .align 16 .b8 tile[4096];\n\t.local .align 8 .b8 own[64];\n"
                           "\tld.param.u64 %rd1, [data];\n\tmov.u32 %r1, %tid.x;\n"
                           "\tmul.wide.u32 %rd2, %r1, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n"
                           "\tshl.b32 %r2, %r1, 2;\n\tmov.u32 %r3, tile;\n"
                           "\tadd.s32 %r4, %r3, %r2;\n"; /* %rd3: address of the thread's word */

/* Runs a body. False: a fault, in `error`. */
static bool run(const char *body, uint32_t *data, size_t n_defined, uint32_t blocks,
                uint32_t threads, ptx_error *error) {
    char text[8192];
    snprintf(text, sizeof text, "%s%s\tret;\n}\n", head, body);
    ptx_memory *memory = ptx_memory_create();
    assert_non_null(memory);
    error->text[0] = '\0';
    assert_true(ptx_memory_add(memory, data, N_WORDS * sizeof *data, PTX_UNDEFINED, 0));
    ptx_memory_written(memory, data, n_defined * sizeof *data);
    ptx_module *m = ptx_module_parse("test.ptx", text, memory, error);
    ptx_kernel *k = m ? ptx_module_kernel(m, "test", error) : NULL;
    const bool fine = k && ptx_launch(k, (ptx_grid){blocks, 1, 1, threads, 1}, &data, sizeof data,
                                      error);
    ptx_module_free(m);
    ptx_memory_free(memory);
    return fine;
}

static void expect_fault_of(const char *body, uint32_t blocks, uint32_t threads,
                            const char *message) {
    uint32_t *data = calloc(N_WORDS, sizeof *data);
    ptx_error error;
    assert_non_null(data);
    if (run(body, data, N_WORDS / 2, blocks, threads, &error))
        fail_msg("not reported: %s", message);
    if (!strstr(error.text, message)) fail_msg("%s, should be %s", error.text, message);
    free(data);
}

static void expect_fault(const char *body, uint32_t threads, const char *message) {
    expect_fault_of(body, 1, threads, message);
}

static void expect_fine(const char *body, uint32_t *data, size_t n_defined, uint32_t threads) {
    ptx_error error;
    if (!run(body, data, n_defined, 1, threads, &error)) fail_msg("%s", error.text);
}

/* Sizes of a grid and a block that a driver refuses. */
static void test_launch_limits(void **state) {
    (void)state;
    static const ptx_grid grids[] = {{0x80000000u, 1, 1, 32, 1}, {1, 65536, 1, 32, 1},
                                     {1, 1, 65536, 32, 1},       {1, 1, 0, 32, 1},
                                     {1, 1, 1, 1056, 1},         {1, 65535, 1, 32, 1}};
    static const char *const bodies[] = {"", ".shared .align 4 .b8 more[45056];",
                                         ".shared .align 4 .b8 more[45060];"};
    enum { N_GRIDS = sizeof grids / sizeof *grids, N_BODIES = sizeof bodies / sizeof *bodies };
    uint32_t *data = calloc(N_WORDS, sizeof *data);
    ptx_memory *memory = ptx_memory_create();
    assert_non_null(data);
    assert_true(ptx_memory_add(memory, data, N_WORDS * sizeof *data, PTX_DEFINED, 0));
    for (int i = 0; i < N_GRIDS + N_BODIES; i++) {
        const bool sized = i < N_GRIDS, fine = i == N_GRIDS - 1 || i == N_GRIDS || i == N_GRIDS + 1;
        const ptx_grid grid = sized ? grids[i] : (ptx_grid){1, 1, 1, 1024, 1};
        ptx_error error = {""};
        char text[8192];
        snprintf(text, sizeof text, "%s%s\tret;\n}\n", head, bodies[sized ? 0 : i - N_GRIDS]);
        ptx_module *m = ptx_module_parse("test.ptx", text, memory, &error);
        ptx_kernel *k = m ? ptx_module_kernel(m, "test", &error) : NULL;
        if (!k) fail_msg("%s", error.text);
        const bool runs = ptx_launch(k, grid, &data, sizeof data, &error);
        if (runs != fine || (!runs && !strstr(error.text, "invalid launch")))
            fail_msg("launch %d: %s", i, error.text);
        ptx_module_free(m);
    }
    ptx_memory_free(memory);
    free(data);
}

/* Kernels reach memory of their device, of its peers, and of the host. */
static void test_devices(void **state) {
    (void)state;
    static const struct {
        int device;
        uint32_t reached;
        bool fine;
    } cases[] = {{0, 1, true}, {0, 2, false}, {1, 1, false}, {1, 3, true}, {PTX_HOST, 1, true}};
    char text[8192];
    snprintf(text, sizeof text, "%s\tst.global.u32 [%%rd3], %%r1;\n\tret;\n}\n", head);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t *data = calloc(32, sizeof *data);
        ptx_memory *memory = ptx_memory_create();
        ptx_error error = {""};
        const ptx_grid grid = {1, 1, 1, 32, cases[i].reached};
        assert_non_null(data);
        assert_true(ptx_memory_add(memory, data, 32 * sizeof *data, PTX_DEFINED, cases[i].device));
        ptx_module *m = ptx_module_parse("test.ptx", text, memory, &error);
        ptx_kernel *k = m ? ptx_module_kernel(m, "test", &error) : NULL;
        if (!k) fail_msg("%s", error.text);
        assert_int_equal(ptx_launch(k, grid, &data, sizeof data, &error), cases[i].fine);
        if (!cases[i].fine) assert_non_null(strstr(error.text, "which the kernel does not reach"));
        assert_int_equal(data[31], cases[i].fine ? 31 : 0);
        ptx_module_free(m);
        ptx_memory_free(memory);
        free(data);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void test_misaligned(void **state) {
    (void)state;
    expect_fault("ld.global.u32 %r5, [%rd1+2];", 32, "misaligned access to 4 bytes of global");
    expect_fault("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3];", 32,
                 "thread 1: misaligned access to 16 bytes");
    expect_fault("st.shared.v2.u32 [%r4], {%r1, %r1};", 32, "8 bytes of shared memory at 0x4");
    expect_fault("add.s32 %r4, %r4, 2;"
                 "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];",
                 32, "misaligned access to 16 bytes of shared");
}

static void test_out_of_bounds(void **state) {
    (void)state;
    expect_fault("ld.global.u32 %r5, [%rd1+-4];", 32, "out of bounds: read of 4 bytes of global");
    expect_fault("st.global.u8 [%rd1+16384], %r1;", 32, "out of bounds: write of 1 bytes");
    expect_fault("st.shared.u32 [%r4+4096], %r1;", 32, "shared memory at 0x1000");
    expect_fault("st.shared.u32 [%r4+3972], %r1;", 32, "thread 31: out of bounds");
    expect_fault("mov.u64 %rd4, own; st.local.u32 [%rd4+64], %r1;", 32, "local memory at 64 of 64");
    expect_fault("ld.param.u64 %rd4, [data+8];", 32, "8 bytes of parameters at 8 of 8");
    expect_fault("prefetch.global.L2 [%rd1+16384];", 32, "out of bounds: read of 1 bytes");
    expect_fault("cvta.shared.u64 %rd4, 4092; st.u32 [%rd4+4], %r1;", 32, "out of bounds");
}

static void test_uninitialized(void **state) {
    (void)state;
    expect_fault("ld.global.u32 %r5, [%rd1+8192];", 32, "uninitialized read of 4 bytes of global");
    expect_fault("ld.shared.u32 %r5, [%r4];", 32, "uninitialized read of 4 bytes of shared");
    expect_fault("mov.u64 %rd4, own; st.local.u32 [%rd4], %r1; ld.local.u64 %rd5, [%rd4];", 32,
                 "uninitialized read of 8 bytes of local");
    /* An asynchronous copy is visible after its wait, for other threads after a barrier. */
    expect_fault("shl.b32 %r5, %r1, 4; add.s32 %r5, %r5, %r3;"
                 "cp.async.cg.shared.global [%r5], [%rd1], 16, 16; ld.shared.u32 %r6, [%r5];"
                 "cp.async.wait_all;",
                 32, "uninitialized read of 4 bytes of shared");
    expect_fault("shl.b32 %r5, %r1, 4; add.s32 %r5, %r5, %r3;"
                 "cp.async.cg.shared.global [%r5], [%rd1], 16, 16;",
                 32, "nothing waits for");
}

static void test_races(void **state) {
    (void)state;
    expect_fault("st.shared.u32 [%r3], %r1;", 32, "data race on shared memory at 0x0");
    expect_fault("st.global.u32 [%rd1], %r1;", 32, "thread 1: data race on global memory at 0x");
    /* Each thread writes its word and reads that of its neighbour, or a word of the warp that ran
     * before. */
    expect_fault("st.shared.u32 [%r4], %r1; xor.b32 %r5, %r4, 4; ld.shared.u32 %r6, [%r5];", 32,
                 "thread 0: data race on shared memory at 0x4 with thread 1");
    expect_fault("st.shared.u32 [%r4], %r1; setp.eq.s32 %p1, %r1, 40; xor.b32 %r5, %r4, 128;"
                 "@%p1 ld.shared.u32 %r6, [%r5];",
                 64, "thread 40: data race on shared memory at 0x20 with thread 8");
    /* A word that all threads have read is overwritten. */
    expect_fault("ld.global.u32 %r5, [%rd1]; setp.eq.s32 %p1, %r1, 7;"
                 "@%p1 st.global.u32 [%rd1], %r5;",
                 32, "thread 7: data race on global memory");
    expect_fault("setp.eq.s32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], %r1;"
                 "@!%p1 atom.global.add.u32 %r5, [%rd1], 1;",
                 32, "data race on global memory");
    /* A warp operation orders the lanes of its warp only. */
    expect_fault("st.shared.u32 [%r4], %r1; bar.warp.sync -1; setp.eq.s32 %p1, %r1, 40;"
                 "xor.b32 %r5, %r4, 128; @%p1 ld.shared.u32 %r6, [%r5];",
                 64, "thread 40: data race on shared memory at 0x20 with thread 8");
    expect_fault("ld.global.u32 %r5, [%rd1]; shfl.sync.bfly.b32 %r6|%p2, %r5, 1, 31, -1;"
                 "setp.eq.s32 %p1, %r1, 40; @%p1 st.global.u32 [%rd1], %r5;",
                 64, "thread 40: data race on global memory at 0x");
    expect_fault("setp.eq.s32 %p1, %r1, 7; @%p1 st.global.u32 [%rd1], %r1;"
                 "shfl.sync.bfly.b32 %r6|%p2, %r1, 1, 31, -1;"
                 "@%p1 st.global.u32 [%rd1], %r1; ld.global.u32 %r5, [%rd1];",
                 32, "with thread 7");
}

static void test_no_race(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    memset(data, 0, sizeof data);
    expect_fine("st.shared.u32 [%r4], %r1; bar.sync 0; xor.b32 %r5, %r4, 128;"
                "ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3+256], %r6;"
                "atom.global.add.u32 %r7, [%rd1], %r1;",
                data, 64, 64);
    assert_int_equal(data[0], 63 * 64 / 2);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(data[64 + i], i ^ 32);
    expect_fine("st.shared.u32 [%r4], %r1; bar.warp.sync -1; xor.b32 %r5, %r4, 4;"
                "ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3+256], %r6;",
                data, 64, 64);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(data[64 + i], i ^ 1);
    /* All lanes read a word, one lane writes it, all lanes read it. */
    expect_fine("ld.global.u32 %r5, [%rd1]; shfl.sync.bfly.b32 %r6|%p2, %r5, 1, 31, -1;"
                "setp.eq.s32 %p1, %r1, 9; @%p1 st.global.u32 [%rd1], %r1;"
                "vote.sync.ballot.b32 %r6, %p1, -1; ld.global.u32 %r7, [%rd1];"
                "st.global.u32 [%rd3+256], %r7;",
                data, 64, 32);
    for (uint32_t i = 0; i < 32; i++) assert_int_equal(data[64 + i], 9);
}

/* %p1: true in block `n`; [%rd5]: a separate word for each block. */
#define BLOCK(n)                                                                                   \
    "mov.u32 %r5, %ctaid.x; setp.eq.s32 %p1, %r5, " n "; mul.wide.u32 %rd4, %r5, 4;"               \
    "add.s64 %rd5, %rd1, %rd4; setp.eq.s32 %p2, %r1, 0;"

static void test_races_of_blocks(void **state) {
    (void)state;
    expect_fault_of("setp.eq.s32 %p2, %r1, 0; @%p2 st.global.u32 [%rd1], %r1;", 2, 32,
                    "block 1,0,0 thread 0: data race on global memory at 0x");
    expect_fault_of(BLOCK("2") "@%p1 ld.global.u32 %r6, [%rd1]; @!%p1 st.global.u8 [%rd5+3], %r1;",
                    3, 32, "data race on global memory");
    expect_fault_of(BLOCK("2") "@%p2 st.global.u32 [%rd5], %r1; @%p1 ld.global.u32 %r6, [%rd1+4];",
                    3, 32, "block 2,0,0 thread 0: data race on global memory at 0x");
    expect_fault_of(BLOCK("2") "@%p2 st.global.u32 [%rd5], %r1; @%p1 ld.global.u32 %r6, [%rd1+4];",
                    3, 32, "with thread 0 of block 1,0,0");
    /* A word that one block or several blocks have read is overwritten, with and without a read by
     * the writer. */
    expect_fault_of(BLOCK("1") "@!%p1 ld.global.u32 %r6, [%rd1]; bar.sync 0;"
                               "@%p1 st.global.u32 [%rd3], %r6;",
                    2, 32, "with several threads of block 0,0,0");
    expect_fault_of(BLOCK("3") "ld.global.u32 %r6, [%rd1]; bar.sync 0;"
                               "@%p1 st.global.u32 [%rd3], %r6;",
                    4, 32, "with several blocks");
    /* Only one of the two accesses is atomic. */
    expect_fault_of(BLOCK("1") "@%p1 ld.global.u32 %r6, [%rd1];"
                               "@!%p1 atom.global.add.u32 %r5, [%rd1], 1;",
                    2, 32, "of block 0,0,0");
}

/* The last block adds up the words of all blocks, 100 + 101 + 102, or overwrites words that all
 * blocks have read. */
#define COUNTS "@%p2 atom.global.add.u32 %r6, [%rd1+64], 1;"
#define FENCES "@%p2 membar.gl;"
#define SYNCS  "bar.sync 0;"
#define WRITES                                                                                     \
    BLOCK("2")                                                                                     \
    "setp.eq.s32 %p3, %r1, 7; add.s32 %r7, %r5, 100; @%p3 st.global.u32 [%rd5], %r7;"
#define READS                                                                                      \
    "setp.eq.s32 %p3, %r1, 9; @!%p1 bra end; @!%p3 bra end; ld.global.u32 %r8, [%rd1];"            \
    "ld.global.u32 %r9, [%rd1+4]; add.s32 %r8, %r8, %r9; ld.global.u32 %r9, [%rd1+8];"             \
    "add.s32 %r8, %r8, %r9; st.global.u32 [%rd1+128], %r8; end:"

#define READS_ALL "ld.global.u32 %r7, [%rd1];"
#define OVERWRITES                                                                                 \
    BLOCK("2") "setp.eq.s32 %p3, %r1, 9; and.pred %p3, %p3, %p1; @%p3 st.global.u32 [%rd1], %r5;"

static void test_order_of_blocks(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    ptx_error error;
    memset(data, 0, sizeof data);
    if (!run(WRITES SYNCS FENCES COUNTS FENCES SYNCS READS, data, N_WORDS, 3, 32, &error))
        fail_msg("%s", error.text);
    assert_int_equal(data[16], 3);
    assert_int_equal(data[32], 303);
    const char *race = "data race on global memory";
    expect_fault_of(WRITES SYNCS COUNTS FENCES SYNCS READS, 3, 32, race);
    expect_fault_of(WRITES SYNCS FENCES COUNTS SYNCS READS, 3, 32, race);
    expect_fault_of(WRITES FENCES COUNTS FENCES SYNCS READS, 3, 32, race);
    expect_fault_of(WRITES SYNCS FENCES COUNTS FENCES READS, 3, 32, race);
    expect_fault_of(WRITES SYNCS FENCES SYNCS FENCES SYNCS READS, 3, 32, race);
    expect_fault_of(BLOCK("2") SYNCS FENCES COUNTS SYNCS WRITES FENCES SYNCS READS, 3, 32, race);
    /* Reads by all blocks. */
    data[16] = 0;
    if (!run(BLOCK("2") READS_ALL SYNCS FENCES COUNTS FENCES SYNCS OVERWRITES, data, N_WORDS, 3, 32,
             &error))
        fail_msg("%s", error.text);
    assert_int_equal(data[0], 2);
    expect_fault_of(BLOCK("2") READS_ALL SYNCS COUNTS FENCES SYNCS OVERWRITES, 3, 32, race);
    expect_fault_of(BLOCK("2") READS_ALL SYNCS FENCES COUNTS SYNCS OVERWRITES, 3, 32, race);
    expect_fault_of(BLOCK("2") READS_ALL FENCES COUNTS FENCES SYNCS OVERWRITES, 3, 32, race);
    expect_fault_of(BLOCK("2") SYNCS FENCES COUNTS FENCES SYNCS READS_ALL SYNCS OVERWRITES, 3, 32,
                    race);
    /* Each block counts in a separate word. */
    expect_fault_of(WRITES SYNCS FENCES
                    "@%p2 atom.global.add.u32 %r6, [%rd5+64], 1;" FENCES SYNCS READS,
                    3, 32, race);
}

static void test_deadlocks(void **state) {
    (void)state;
    expect_fault("setp.lt.u32 %p1, %r1, 9; @%p1 bra end; bar.sync 0; end:", 64,
                 "55 threads wait at a barrier, 9 have ended");
    expect_fault("setp.eq.s32 %p1, %r1, 0; @%p1 bra end;"
                 "shfl.sync.bfly.b32 %r5|%p2, %r1, 1, 31, -1; end:",
                 32, "deadlock");
}

static void test_unknown(void **state) {
    (void)state;
    expect_fault("\n\n\tfma.rz.f32 %f1, %f1, %f1, %f1;", 32, "test.ptx:23: unknown instruction");
    expect_fault("add.s32 %r5, %r5, %rd1;", 32, "other operands: add.s32");
    expect_fault("bra nowhere;", 32, "unknown label: nowhere");
    expect_fault("mov.u32 %r5, %clock;", 32, "unknown name: %clock");
}

/* ---- results --------------------------------------------------------------------------------- */

/* Lanes diverge, reconverge, and run loops of different lengths. */
static void test_branches(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    expect_fine("mov.u32 %r5, 0; mov.u32 %r6, 0;\n"
                "again: setp.ge.u32 %p1, %r6, %r1; @%p1 bra done;\n"
                "and.b32 %r7, %r6, 1; setp.eq.s32 %p2, %r7, 0; @%p2 bra even;\n"
                "add.s32 %r5, %r5, 100; bra.uni next;\n"
                "even: add.s32 %r5, %r5, 1;\n"
                "next: add.s32 %r6, %r6, 1; bra again;\n"
                "done: shfl.sync.bfly.b32 %r8|%p3, %r5, 1, 31, -1;\n"
                "st.global.u32 [%rd3], %r8;",
                data, 0, 64);
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t n = i ^ 1;
        assert_int_equal(data[i], (n + 1) / 2 + n / 2 * 100);
    }
}

static void test_bits(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < 96; i++) data[i] = (uint32_t)rng_u64(&r);
    expect_fine("ld.global.u32 %r5, [%rd3]; ld.global.u32 %r6, [%rd3+128];"
                "ld.global.u32 %r7, [%rd3+256];"
                "prmt.b32 %r8, %r5, %r6, %r7; st.global.u32 [%rd3+512], %r8;"
                "lop3.b32 %r8, %r5, %r6, %r7, 0x96; st.global.u32 [%rd3+640], %r8;"
                "lop3.b32 %r8, %r5, %r6, %r7, 0xca; st.global.u32 [%rd3+768], %r8;"
                "dp4a.s32.s32 %r8, %r5, %r6, %r7; st.global.u32 [%rd3+896], %r8;"
                "bfi.b32 %r8, %r5, %r6, 7, 12; st.global.u32 [%rd3+1024], %r8;",
                data, 96, 32);
    for (int l = 0; l < 32; l++) {
        const uint32_t a = data[l], b = data[32 + l], c = data[64 + l];
        uint8_t bytes[8], chosen[4];
        memcpy(bytes, &a, 4);
        memcpy(bytes + 4, &b, 4);
        int32_t dot = (int32_t)c;
        for (int i = 0; i < 4; i++) {
            const uint32_t nibble = c / (1u << 4 * i) % 16;
            chosen[i] = bytes[nibble % 8];
            if (nibble >= 8) chosen[i] = chosen[i] >= 128 ? 255 : 0;
            dot += (int)(int8_t)bytes[i] * (int)(int8_t)bytes[4 + i];
        }
        uint32_t want;
        memcpy(&want, chosen, 4);
        assert_int_equal(data[128 + l], want);
        assert_int_equal(data[160 + l], a ^ b ^ c);
        assert_int_equal(data[192 + l], (a & b) | (~a & c));
        assert_int_equal((int32_t)data[224 + l], dot);
        assert_int_equal(data[256 + l], (b & ~0x7ff80u) | (a & 0xfff) * 128);
    }
}

/* Fields of words and of pairs of words, with their sign and without, and beyond the end. */
static void test_fields(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    rng r;
    rng_seed(&r, 8);
    for (int i = 0; i < 64; i++) data[i] = (uint32_t)rng_u64(&r);
    expect_fine("ld.global.u32 %r5, [%rd3]; ld.global.u32 %r6, [%rd3+128];"
                "mov.b64 %rd4, {%r5, %r6};"
                "bfe.s32 %r8, %r5, 9, 11; st.global.u32 [%rd3+512], %r8;"
                "bfe.s32 %r8, %r5, 28, 9; st.global.u32 [%rd3+640], %r8;"
                "bfe.u64 %rd5, %rd4, 25, 14; st.global.u32 [%rd3+768], %rd5;"
                "bfe.s64 %rd5, %rd4, 25, 14; st.global.u32 [%rd3+896], %rd5;"
                "cvt.s8.s32 %r8, %r5; st.global.u32 [%rd3+1024], %r8;",
                data, 64, 32);
    for (int l = 0; l < 32; l++) {
        const uint64_t a = data[l], pair = a | (uint64_t)data[32 + l] << 32;
        const uint64_t field = a / 512 % 2048, top = a >> 28, wide = pair / (1 << 25) % (1 << 14);
        assert_int_equal(data[128 + l], (uint32_t)(field < 1024 ? field : field - 2048));
        assert_int_equal(data[160 + l], (uint32_t)(top < 8 ? top : top - 16));
        assert_int_equal(data[192 + l], (uint32_t)wide);
        assert_int_equal(data[224 + l], (uint32_t)(wide < 8192 ? wide : wide - 16384));
        assert_int_equal(data[256 + l], (uint32_t)(int8_t)(a & 0xff));
    }
}

/* A shared variable of the module is not the kernel's own at the same place. */
static void test_module_shared(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    expect_fine("mov.u32 %r5, common; add.s32 %r5, %r5, %r2;"
                "st.shared.u32 [%r5], %r1; st.shared.u32 [%r4], 7; bar.sync 0;"
                "xor.b32 %r6, %r2, 4; mov.u32 %r7, common; add.s32 %r7, %r7, %r6;"
                "ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd3], %r8;",
                data, 0, 64);
    for (uint32_t l = 0; l < 64; l++) assert_int_equal(data[l], l ^ 1);
    expect_fault("st.shared.u32 [common+252], %r1; mov.u32 %r5, common; ld.shared.u32 %r6, [%r5];",
                 32, "data race");
}

static uint32_t float_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* Sums where rounding to nearest differs, and sums that no double represents. */
static void test_toward_zero(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    const float cases[][3] = {{1.0f, 0x3p-25f, 1.0f},
                              {-1.0f, -0x3p-25f, -1.0f},
                              {0x1p24f, -0x1p-40f, 0xffffffp0f},
                              {-0x1p24f, 0x1p-40f, -0xffffffp0f},
                              {0x1p24f, 0x1p-40f, 0x1p24f},
                              {0x1.fffffep127f, 0x1p110f, 0x1.fffffep127f},
                              {3.0f, -3.0f, 0.0f},
                              {1.5f, 0.25f, 1.75f}};
    const size_t n = sizeof cases / sizeof cases[0];
    for (size_t i = 0; i < n; i++) {
        data[i] = float_bits(cases[i][0]);
        data[32 + i] = float_bits(cases[i][1]);
    }
    expect_fine("ld.global.f32 %f1, [%rd3]; ld.global.f32 %f2, [%rd3+128];"
                "add.rz.f32 %f3, %f1, %f2; st.global.f32 [%rd3+256], %f3;",
                data, 64, 32);
    for (size_t i = 0; i < n; i++) assert_int_equal(data[64 + i], float_bits(cases[i][2]));
}

/* Expected distribution of the rows to lanes by ldmatrix. */
static void test_load_matrix(void **state) {
    (void)state;
    static uint32_t data[N_WORDS];
    /* Row i is at 16 i; its value j is 8 i + j. */
    const char *body = "shl.b32 %r5, %r1, 4; add.s32 %r5, %r5, %r3; shl.b32 %r6, %r1, 3;"
                       "mad.lo.s32 %r7, %r6, 65537, 65536; st.shared.u32 [%r5], %r7;"
                       "add.s32 %r7, %r7, 131074; st.shared.u32 [%r5+4], %r7;"
                       "add.s32 %r7, %r7, 131074; st.shared.u32 [%r5+8], %r7;"
                       "add.s32 %r7, %r7, 131074; st.shared.u32 [%r5+12], %r7; bar.sync 0;"
                       "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%r5];"
                       "st.global.u32 [%rd3], %r8; st.global.u32 [%rd3+128], %r9;"
                       "st.global.u32 [%rd3+256], %r10; st.global.u32 [%rd3+384], %r11;"
                       "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r8, %r9, %r10, %r11}, "
                       "[%r5];"
                       "st.global.u32 [%rd3+512], %r8; st.global.u32 [%rd3+896], %r11;";
    expect_fine(body, data, 0, 32);
    for (uint32_t l = 0; l < 32; l++) {
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t first = 8 * (8 * k + l / 4) + 2 * (l % 4);
            assert_int_equal(data[32 * k + l], first | (first + 1) << 16);
        }
        for (uint32_t k = 0; k < 4; k += 3) {
            const uint32_t first = 8 * (8 * k + 2 * (l % 4)) + l / 4;
            assert_int_equal(data[128 + 32 * k + l], first | (first + 8) << 16);
        }
    }
}

/* Small integers in half and bfloat16, whose products are exact. */
static uint32_t small_float(int v, bool bf16) {
    if (v == 0) return 0;
    uint32_t size = (uint32_t)abs(v), exponent = 0;
    while (size >> exponent > 1) exponent++;
    const uint32_t n = bf16 ? 7 : 10, bias = bf16 ? 127 : 15;
    const uint32_t mantissa = (size << (n - exponent)) & ((1u << n) - 1);
    return (v < 0 ? 0x8000u : 0) | (bias + exponent) << n | mantissa;
}

static void check_mma(const char *body, int n_k, bool bf16) {
    static uint32_t data[N_WORDS];
    int a[16][16] = {{0}}, b[16][8] = {{0}};
    rng r;
    rng_seed(&r, 8);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < n_k; j++) a[i][j] = (int)(rng_u64(&r) % 15) - 7;
        for (int j = 0; j < 8; j++) b[i][j] = (int)(rng_u64(&r) % 15) - 7;
    }
    memset(data, 0, sizeof data);
    for (uint32_t l = 0; l < 32; l++) { /* the manual's layouts, by rows "groupID" and columns */
        const uint32_t group = l >> 2, within = l & 3;
        for (uint32_t i = 0; i < (uint32_t)n_k / 2; i++) {
            const uint32_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            const uint32_t col = within * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            data[32 * (i / 2) + l] |= small_float(a[row][col], bf16) << 16 * (i & 1);
        }
        for (uint32_t i = 0; i < (uint32_t)n_k / 4; i++) {
            const uint32_t row = within * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            data[128 + 32 * (i / 2) + l] |= small_float(b[row][group], bf16) << 16 * (i & 1);
        }
    }
    expect_fine(body, data, 192, 32);
    for (uint32_t l = 0; l < 32; l++) {
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t row = i < 2 ? l >> 2 : (l >> 2) + 8, col = (l & 3) * 2 + (i & 1);
            float got;
            int want = 3;
            for (int k = 0; k < n_k; k++) want += a[row][k] * b[k][col];
            memcpy(&got, &data[256 + 32 * i + l], sizeof got);
            assert_int_equal((int)got, want);
        }
    }
}

#define MMA_LOAD                                                                                   \
    "ld.global.u32 %r5, [%rd3]; ld.global.u32 %r6, [%rd3+128]; ld.global.u32 %r7, [%rd3+256];"     \
    "ld.global.u32 %r8, [%rd3+384]; ld.global.u32 %r9, [%rd3+512]; ld.global.u32 %r10, "           \
    "[%rd3+640];"                                                                                  \
    "mov.f32 %f1, 0f40400000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;"
#define MMA_STORE                                                                                  \
    "st.global.f32 [%rd3+1024], %f1; st.global.f32 [%rd3+1152], %f2;"                              \
    "st.global.f32 [%rd3+1280], %f3; st.global.f32 [%rd3+1408], %f4;"

static void test_mma(void **state) {
    (void)state;
    check_mma(MMA_LOAD "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
                       "{%r5, %r6}, {%r9}, {%f1, %f2, %f3, %f4};" MMA_STORE,
              8, false);
    check_mma(MMA_LOAD "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
                       "{%r5, %r6, %r7, %r8}, {%r9, %r10}, {%f1, %f2, %f3, %f4};" MMA_STORE,
              16, false);
    check_mma(MMA_LOAD "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, "
                       "{%r5, %r6, %r7, %r8}, {%r9, %r10}, {%f1, %f2, %f3, %f4};" MMA_STORE,
              16, true);
}

/* The manual's formulas for a lane's i-th element, of A (groups of four bytes per register), B and
 * C. */
static void check_mma_bytes(const char *body, uint32_t n_rows, uint32_t n_k) {
    static uint32_t data[N_WORDS];
    int a[16][32], b[32][8];
    rng r;
    rng_seed(&r, 9);
    for (uint32_t k = 0; k < n_k; k++) {
        for (uint32_t i = 0; i < n_rows; i++) a[i][k] = (int)(rng_u64(&r) % 256) - 128;
        for (uint32_t i = 0; i < 8; i++) b[k][i] = (int)(rng_u64(&r) % 256) - 128;
    }
    memset(data, 0, sizeof data);
    for (uint32_t l = 0; l < 32; l++) {
        const uint32_t group = l >> 2, within = l & 3;
        for (uint32_t i = 0; i < n_rows * n_k / 32; i++) {
            const bool lower = n_rows == 16 && i / 4 % 2; /* groupID + 8 */
            const uint32_t col = within * 4 + (i & 3) + (n_k == 32 && i >= 8 ? 16 : 0);
            const int v = a[lower ? group + 8 : group][col];
            data[32 * (i / 4) + l] |= (uint32_t)(v & 0xff) << 8 * (i & 3);
        }
        for (uint32_t i = 0; i < 8 * n_k / 32; i++) {
            const int v = b[within * 4 + (i & 3) + (i >= 4 ? 16 : 0)][group];
            data[128 + 32 * (i / 4) + l] |= (uint32_t)(v & 0xff) << 8 * (i & 3);
        }
    }
    expect_fine(body, data, 192, 32);
    for (uint32_t l = 0; l < 32; l++) {
        for (uint32_t i = 0; i < n_rows / 4; i++) {
            const uint32_t row = i < 2 ? l >> 2 : (l >> 2) + 8, col = (l & 3) * 2 + (i & 1);
            int want = -5;
            for (uint32_t k = 0; k < n_k; k++) want += a[row][k] * b[k][col];
            assert_int_equal((int)data[256 + 32 * i + l], want);
        }
    }
}

#define MMA_LOAD_BYTES                                                                             \
    "ld.global.u32 %r5, [%rd3]; ld.global.u32 %r6, [%rd3+128]; ld.global.u32 %r7, [%rd3+256];"     \
    "ld.global.u32 %r8, [%rd3+384]; ld.global.u32 %r9, [%rd3+512]; ld.global.u32 %r10, "           \
    "[%rd3+640];"                                                                                  \
    "mov.u32 %r11, -5;"

static void test_mma_bytes(void **state) {
    (void)state;
    check_mma_bytes(MMA_LOAD_BYTES "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, "
                                   "{%r5}, {%r9}, {%r11, %r11};"
                                   "st.global.u32 [%rd3+1024], %r1;"
                                   "st.global.u32 [%rd3+1152], %r2;",
                    8, 16);
    check_mma_bytes(MMA_LOAD_BYTES "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                                   "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r9}, "
                                   "{%r11, %r11, %r11, %r11};"
                                   "st.global.u32 [%rd3+1024], %r1;"
                                   "st.global.u32 [%rd3+1152], %r2;"
                                   "st.global.u32 [%rd3+1280], %r3;"
                                   "st.global.u32 [%rd3+1408], %r4;",
                    16, 16);
    check_mma_bytes(MMA_LOAD_BYTES "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                                   "{%r1, %r2, %r3, %r4}, {%r5, %r6, %r7, %r8}, {%r9, %r10}, "
                                   "{%r11, %r11, %r11, %r11};"
                                   "st.global.u32 [%rd3+1024], %r1;"
                                   "st.global.u32 [%rd3+1152], %r2;"
                                   "st.global.u32 [%rd3+1280], %r3;"
                                   "st.global.u32 [%rd3+1408], %r4;",
                    16, 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_launch_limits),
                                       cmocka_unit_test(test_devices),
                                       cmocka_unit_test(test_misaligned),
                                       cmocka_unit_test(test_out_of_bounds),
                                       cmocka_unit_test(test_uninitialized),
                                       cmocka_unit_test(test_races),
                                       cmocka_unit_test(test_no_race),
                                       cmocka_unit_test(test_races_of_blocks),
                                       cmocka_unit_test(test_order_of_blocks),
                                       cmocka_unit_test(test_deadlocks),
                                       cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_branches),
                                       cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_fields),
                                       cmocka_unit_test(test_module_shared),
                                       cmocka_unit_test(test_toward_zero),
                                       cmocka_unit_test(test_load_matrix),
                                       cmocka_unit_test(test_mma),
                                       cmocka_unit_test(test_mma_bytes)};
    return cmocka_run_group_tests_name("ptx", tests, NULL, NULL);
}
