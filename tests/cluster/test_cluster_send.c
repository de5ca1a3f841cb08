/* test_cluster_send.c: ranks without the model's file receive their part from rank 0: results have
 * the bits of one process, and a failure meanwhile ends all ranks with one line that names the
 * machine, and leaves no file. With --all for every architecture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter_file.h"
#include "cluster_shell.h"
#include "gguf_writer.h"
#include "mem.h"
#include "shared_data.h"

enum { SAMPLE = 11 /* every SAMPLE-th architecture */ };

static bool all; /* --all */

/* The name of rank 1, as errors have it. */
static const char *name_rank(int rank) {
    static char text[160];
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "rank %d (%s): ", rank, host);
    return text;
}

/* ---- equal bits ------------------------------------------------------------------------------ */

static void check_logits(const char *model, const char *tokens, int n_ranks) {
    int status = sh_mpi("tr '\\n' ' ' <'%s' >ids; a='eval -q -t 1 --tokens ids'; "
                        "$PI $a -m '%s' --logits-out one || exit 99; "
                        "ranks -n 1 $PI $a -m '%s' --logits-out many : -n %d $PI $a -m none.gguf "
                        "--logits-out many --mpi-send",
                        tokens, model, model, n_ranks - 1);
    if (status == 99) return; /* an architecture that this version does not know */
    if (status)
        fail_msg("%s: %d ranks: status %d: %s", model, n_ranks, status, shell_read("err", NULL));
    if (sh("cmp one many")) fail_msg("%s: %d ranks: other logits", model, n_ranks);
}

static void check_architecture(const char *model, const char *tokens) {
    check_logits(model, tokens, 2);
}

static void test_architectures(void **state) {
    (void)state;
    cluster_each_model(all ? 1 : SAMPLE, check_architecture);
}

/* Layers that share caches, experts, old files of compressed attention, embeddings of n-grams. */
static void test_layers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int n_ranks; /* at most one for each layer */
    } cases[] = {{"more/gemma4-dense", 3},
                 {"more/llama4-moe", 3},
                 {"next/glm-dsa-topk-moe", 2},
                 {"more/qwen3next-moe", 2}};
    char model[512], tokens[512], name[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(name, sizeof name, "conformance/%s.gguf", cases[i].name);
        if (!shared_path(model, sizeof model, name)) skip();
        snprintf(tokens, sizeof tokens, "%.*s.tokens.txt", (int)strlen(model) - 5, model);
        for (int n = 2; n <= cases[i].n_ranks; n++) check_logits(model, tokens, n);
    }
}

/* `ranks` are mpirun's arguments, in which $A is the command without a model; its text is that of
 * one process with the model. No rank leaves a file. */
static void check_text(const char *model, const char *arguments, const char *ranks) {
    int status = sh_mpi(
        "rm -rf kept; mkdir kept; export TMPDIR=$PWD/kept; "
        "A='run -q -t 1 --temp 0 -p Once -n 30 %s' F=%s; "
        "export A F; $PI $A -m $F >one 2>/dev/null || exit 99; ranks %s >many || exit; "
        "[ -z \"$(ls -A kept)\" ] || exit 98; cmp one many || exit 97",
        arguments, model, ranks);
    if (status)
        fail_msg("%s: %s: status %d: %s", arguments, ranks, status, shell_read("err", NULL));
}

#define FIRST "-n 1 $PI $A -m $F : "
#define SENT  "$PI $A -m none.gguf --mpi-send "

static void test_ranks(void **state) {
    (void)state;
    static const char bundled[] = CLUSTER_BUNDLED;
    check_text(bundled, "", FIRST "-n 1 " SENT);
    check_text(bundled, "", FIRST "-n 2 " SENT);
    check_text(bundled, "", FIRST "-n 1 $PI $A -m $F : -n 1 " SENT);
    check_text(bundled, "", FIRST "-n 1 " SENT ": -n 1 $PI $A -m $F");
    check_text(bundled, "", FIRST "-n 1 " SENT "--mpi-folder kept");
    check_text(bundled, "", FIRST "-n 1 " SENT "--ram-budget 0.05");
    check_text(bundled, "", FIRST "-n 1 " SENT "--no-mmap --mlock --check-tensors");
    check_text(bundled, "--mpi-split 1,5", FIRST "-n 1 " SENT);
    check_text(bundled, "--override-kv powerinfer.sparse_threshold=float:0.5", FIRST "-n 1 " SENT);
    /* One command for all ranks; the file is where rank 0 is. */
    check_text(bundled, "--mpi-send",
               "-n 3 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || F=none.gguf; exec $PI $A -m $F'");
    if (access(TEST_BINARY_DIR "/libpowerinfer_sim.so", R_OK) != 0) return;
    /* a GPU rounds differently: the same layers on it */
    int status = sh_mpi("A='run -q -t 1 --temp 0 -p Once -n 30 --mpi-split 1,1' F=%s; "
                        "ranks -n 1 $PI $A -m $F : -n 1 $PI $A -m $F --device sim >one && "
                        "ranks -n 1 $PI $A -m $F : -n 1 $PI $A -m none.gguf --mpi-send "
                        "--device sim >many && cmp one many",
                        bundled);
    if (status) fail_msg("sim: status %d: %s", status, shell_read("err", NULL));
}

/* Copies a model into n_parts files NAME-0000K-of-0000N.gguf. */
static void split_model(const char *from, const char *name, int n_parts) {
    gguf_file *f = NULL;
    pi_error err = {.status = PI_OK};
    char path[128];
    if (gguf_open(from, NULL, &f, &err)) fail_msg("%s", err.message);
    const uint64_t n = gguf_n_tensors(f);
    for (int k = 0; k < n_parts; k++) {
        gguf_writer *w = NULL;
        const uint64_t first = n * (uint64_t)k / (uint64_t)n_parts;
        const uint64_t end = n * (uint64_t)(k + 1) / (uint64_t)n_parts;
        snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", name, k + 1, n_parts);
        assert_int_equal(gguf_writer_create(path, &w, NULL), PI_OK);
        for (uint64_t i = 0; i < gguf_n_values(f) && k == 0; i++)
            gguf_put_value(w, gguf_value_at(f, i));
        gguf_put_u32(w, "split.no", (uint32_t)k);
        gguf_put_u32(w, "split.count", (uint32_t)n_parts);
        gguf_put_i32(w, "split.tensors.count", (int32_t)n);
        for (uint64_t i = first; i < end; i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i);
            assert_int_equal(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, NULL), PI_OK);
        }
        assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
        for (uint64_t i = first; i < end; i++) {
            const gguf_tensor *t = gguf_tensor_at(f, i);
            assert_int_equal(gguf_write_data(w, t->data, t->n_bytes, NULL), PI_OK);
        }
        assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
    }
    gguf_close(f);
}

static void test_split_files(void **state) {
    (void)state;
    split_model(CLUSTER_BUNDLED, "parts", 3);
    check_text("parts-00001-of-00003.gguf", "", FIRST "-n 1 " SENT);
    check_text("parts-00001-of-00003.gguf", "", FIRST "-n 2 " SENT "--mpi-folder kept");
    check_text("parts-00002-of-00003.gguf", "", FIRST "-n 1 " SENT "--ram-budget 0.05");
}

/* An adapter that is here, and one that is not. */
static void test_adapters(void **state) {
    (void)state;
    static const adapter_matrix matrices[] = {{"blk.0.attn_v.weight", 256, 128},
                                              {"blk.5.attn_v.weight", 256, 128}};
    adapter_file_write(TEST_BINARY_DIR "/test_cluster_send.lora", "llama", matrices, 2);
    sh("mv " TEST_BINARY_DIR "/test_cluster_send.lora a; $PI " CLUSTER_RUN "-n 30 >plain");
    check_text(CLUSTER_BUNDLED, "--lora a", FIRST "-n 1 " SENT);
    assert_int_equal(sh("cmp -s plain one"), 1);
    int status = sh_mpi("$PI " CLUSTER_RUN "-n 30 --lora a >one && ranks -n 1 $PI " CLUSTER_RUN
                        "-n 30 --lora a : -n 2 $PI " CLUSTER_RUN "-n 30 --lora none:1 "
                        "-m none.gguf --mpi-send >many && cmp one many");
    if (status) fail_msg("status %d: %s", status, shell_read("err", NULL));
}

/* Every combination of bench's options creates a context: layers come once. */
static void test_contexts(void **state) {
    (void)state;
    int status = sh_mpi("a='bench -q -t 1 -p 8 -n 2 -r 1 -b 64,128 --mpi-split 1,1'; "
                        "ranks -n 1 $PI $a : -n 1 $PI $a -m none.gguf --mpi-send");
    if (status) fail_msg("status %d: %s", status, shell_read("err", NULL));
    assert_contains("out", "computing");
}

/* 8 MB at 0.02 Gbit/s: longer than the time after which a silent rank is lost. */
static void test_slow_network(void **state) {
    (void)state;
    if (!cluster_has_networks()) skip();
    int status = sh_mpi("slow_begin 5 0.02; ranks $slow -n 2 sh -c \"f=none.gguf; [ "
                        "\\$OMPI_COMM_WORLD_RANK = 0 ] && "
                        "f=" CLUSTER_BUNDLED
                        "; exec $PI run -q -t 1 --temp 0 -p Once -n 20 --mpi-timeout 2 -m \\$f "
                        "--mpi-send --mpi-folder .\" >many; r=$?; slow_end; exit $r");
    if (status == 77) {
        fprintf(stderr, "*** SKIPPED: no network namespace can be made: slow networks ***\n");
        skip();
    }
    if (status) fail_msg("status %d: %s", status, shell_read("err", NULL));
    assert_int_equal(sh("$PI run -q -t 1 --temp 0 -p Once -n 20 >one 2>/dev/null && cmp one many"),
                     0);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Status 1, and a line on standard error with these texts. */
static void check_refused(const char *ranks, const char *text, const char *more) {
    int status = sh_mpi("ranks %s", ranks);
    if (status != 1) fail_msg("%s: status %d: %s", ranks, status, shell_read("err", NULL));
    assert_contains("err", text);
    assert_contains("err", more);
}

static void test_differences(void **state) {
    (void)state;
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 : -n 1 $PI " CLUSTER_RUN "-n 3 -m none.gguf",
                  "none.gguf", "");
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 -m $M : -n 1 $PI " CLUSTER_RUN "-n 3 --mpi-send",
                  "another model file", name_rank(1));
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 : -n 1 $PI " CLUSTER_RUN
                  "-n 3 -c 512 -m none.gguf --mpi-send",
                  "other options than on rank 0", name_rank(1));
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 : -n 1 $PI " CLUSTER_RUN
                  "-n 3 -m none.gguf --mpi-send --mpi-folder nowhere",
                  "nowhere", name_rank(1));
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 -m none.gguf --mpi-send : -n 1 $PI " CLUSTER_RUN
                  "-n 3 -m none.gguf --mpi-send",
                  "none.gguf", "");
}

/* A drive that is full: a limit of the size of files, and as root a small drive. */
static void test_full_drive(void **state) {
    (void)state;
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 : -n 1 sh -c \"ulimit -f 64; exec $PI " CLUSTER_RUN
                  "-n 3 -m none.gguf --mpi-send --mpi-folder .\"",
                  "File too large", name_rank(1));
    if (sh("mkdir small && mount -t tmpfs -o size=1m none small") != 0) {
        fprintf(stderr, "*** SKIPPED: a full drive: this user cannot mount one ***\n");
        return;
    }
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 : -n 1 $PI " CLUSTER_RUN
                  "-n 3 -m none.gguf --mpi-send --mpi-folder small",
                  "No space left on device", name_rank(1));
    assert_int_equal(sh("r=1; [ -z \"$(ls -A small)\" ] && r=0; umount small; exit $r"), 0);
}

/* Starts two ranks with a model of 230 MB, $v and $w; rank 1 receives it into a file in
 * `kept`, and is stopped as soon as the file exists. */
#define BEGIN_SENDING                                                                              \
    "rm -rf kept; mkdir kept; [ -f large.gguf ] || $PI synth -q -o large.gguf --shape llama-1b "   \
    "--layers 2 --type q4_0 --plain || exit 99; "                                                  \
    "a='bench -q -t 1 -p 8 -n 2 -r 1 --mpi-timeout 3'; "                                           \
    "mpirun --oversubscribe -n 1 $PI $a -m large.gguf : -n 1 $PI $a -m none.gguf --mpi-send "      \
    "--mpi-folder kept & m=$!; v=$(victim 0) w=$(victim 1); while kill -0 $m; do "                 \
    "find /proc/$w/fd -lname \"$PWD/kept/*\" 2>/dev/null | grep -q . && break; done; "
#define END_SENDING                                                                                \
    "(sleep 60; touch hangs; kill -9 $m) & k=$!; wait $m; r=$?; kill $k; "                         \
    "[ -z \"$(ls -A kept)\" ] || exit 98; exit $r"

static void check_loss(const char *signal, int rank, const char *text) {
    int status = sh_mpi(BEGIN_SENDING "kill -%s %s; " END_SENDING, signal, rank ? "$w" : "$v");
    if (status != 1 && !(strcmp(signal, "KILL") == 0 && status == 137))
        fail_msg("%s of rank %d: status %d: %s", signal, rank, status, shell_read("err", NULL));
    assert_false(shell_has("hangs"));
    assert_contains("err", text);
}

static void test_losses(void **state) {
    (void)state;
    char text[256];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(text, sizeof text, "rank %d with PID", rank); /* mpirun's words */
        check_loss("KILL", rank, text);
        snprintf(text, sizeof text, "%.*s is lost: no answer for 3 seconds",
                 (int)strlen(name_rank(rank)) - 2, name_rank(rank));
        check_loss("STOP", rank, text);
    }
}

int main(int argc, char **argv) {
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    if (system("command -v mpirun >/dev/null") != 0) {
        fprintf(stderr, "*** SKIPPED: there is no mpirun; install openmpi-bin ***\n");
        return SHARED_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),       cmocka_unit_test(test_split_files),
        cmocka_unit_test(test_adapters),    cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_full_drive),
        cmocka_unit_test(test_losses),      cmocka_unit_test(test_slow_network),
        cmocka_unit_test(test_layers),      cmocka_unit_test(test_architectures),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
