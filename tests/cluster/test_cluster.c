/* test_cluster.c: a model on several ranks, started by mpirun on this machine: results have the
 * bits of one process, sessions too, and a rank that is lost ends all. A sample of the
 * architectures; with --all every one, every boundary between layers, and every kind of failure of
 * every rank. */
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
#include "shared_data.h"

enum { SAMPLE = 7 /* every SAMPLE-th architecture */ };

static bool all; /* --all */

/* ---- architectures --------------------------------------------------------------------------- */

/* Evaluates the tokens of a conformance model on one and on several ranks; the logits are equal. */
static void check_logits(const char *model, const char *tokens, int n_ranks, int batch,
                         const char *more) {
    int status = sh_mpi("tr '\\n' ' ' <'%s' >ids; $PI eval -q -t 1 -m '%s' --tokens ids -b %d "
                        "--logits-out one || exit 99; "
                        "mpi %d eval -q -t 1 -m '%s' --tokens ids -b %d --logits-out many %s",
                        tokens, model, batch, n_ranks, model, batch, more);
    if (status == 99) return; /* an architecture that this version does not know */
    if (status)
        fail_msg("%s: %d ranks: status %d: %s", model, n_ranks, status, shell_read("err", NULL));
    if (sh("cmp one many")) fail_msg("%s: %d ranks, batch %d: other logits", model, n_ranks, batch);
}

static void check_architecture(const char *model, const char *tokens) {
    check_logits(model, tokens, 2, 512, "");
    if (all) check_logits(model, tokens, 2, 1, "");
}

static void test_architectures(void **state) {
    (void)state;
    cluster_each_model(all ? 1 : SAMPLE, check_architecture);
}

/* More ranks, boundaries between layers that share caches, a recurrent model whose layers of one
 * kind are on one rank, memory budgets and simulated GPUs. */
static void test_ranks(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int n_ranks, batch;
        const char *more;
    } cases[] = {{"more/gemma4-dense", 3, 512, ""},
                 {"more/gemma4-dense", 4, 1, ""},
                 {"more/gemma4-moe", 2, 512, "--mpi-split 3,1"},
                 {"more/gemma4-moe", 2, 512, "--mpi-split 1,3"},
                 {"more/llama4-moe", 4, 7, ""},
                 {"more/nemotron_h-dense", 3, 512, ""},
                 {"next/glm-dsa-topk-moe", 2, 5, ""},
                 {"more/qwen3next-moe", 2, 5, "--ram-budget 0.1"}};
    char model[512], tokens[512], name[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(name, sizeof name, "conformance/%s.gguf", cases[i].name);
        if (!shared_path(model, sizeof model, name)) skip();
        snprintf(tokens, sizeof tokens, "%.*s.tokens.txt", (int)strlen(model) - 5, model);
        check_logits(model, tokens, cases[i].n_ranks, cases[i].batch, cases[i].more);
    }
}

/* ---- commands on the bundled model ----------------------------------------------------------- */

/* A command writes the same on one and on several ranks. */
static void check_same(int n_ranks, const char *arguments) {
    if (sh_mpi("$PI %s >one 2>/dev/null", arguments)) fail_msg("%s", arguments);
    int status = sh_mpi("mpi %d %s >many", n_ranks, arguments);
    if (status)
        fail_msg("%d ranks: %s: status %d: %s", n_ranks, arguments, status,
                 shell_read("err", NULL));
    if (sh("cmp one many")) fail_msg("%d ranks: %s: another text", n_ranks, arguments);
}

static void test_commands(void **state) {
    (void)state;
    check_same(3, CLUSTER_RUN "-n 60");
    check_same(2, CLUSTER_RUN "-n 60 --spec ngram");
    check_same(2, CLUSTER_RUN "-n 60 --spec self");
    check_same(2, CLUSTER_RUN "-n 100 -c 48 --keep 4 --context-shift --ignore-eos");
    check_same(2, CLUSTER_RUN "-n 20 --ram-budget 0.05");
    check_same(2, CLUSTER_RUN "-n 20 --deterministic");
    check_same(2, "chat -q -t 1 --temp 0 -p hello -n 20");
    sh("head -c 4000 " TEST_SOURCE_DIR "/models/calibration.txt >text");
    check_same(3, "perplexity -q -t 1 -c 128 -b 64 -f text --json");
}

/* Two ranks with different options; the text is that of one process. */
static void check_each(const char *arguments, const char *first, const char *second) {
    if (sh_mpi("$PI %s >one 2>/dev/null", arguments)) fail_msg("%s", arguments);
    int status = sh_mpi("ranks -n 1 $PI %s %s : -n 1 $PI %s %s "
                        ">many",
                        arguments, first, arguments, second);
    if (status) fail_msg("%s, %s: status %d: %s", first, second, status, shell_read("err", NULL));
    if (sh("cmp one many")) fail_msg("%s, %s: another text", first, second);
}

/* The number behind the next "name" of a JSON text. */
static double next_number(const char **at, const char *name) {
    char key[64];
    int n = snprintf(key, sizeof key, "\"%s\": ", name);
    assert_non_null(*at = *at ? strstr(*at, key) : NULL);
    *at += n;
    return strtod(*at, NULL);
}

static void test_device(void **state) {
    (void)state;
    check_each(CLUSTER_RUN "-n 20", "--ram-budget 0.05", "");
    check_each(CLUSTER_RUN "-n 20", "", "--ram-budget 0.05");
    if (access(TEST_BINARY_DIR "/libpowerinfer_sim.so", R_OK) != 0) skip();
    check_same(2, CLUSTER_RUN "-n 10 --device sim");
    check_each(CLUSTER_RUN "-n 10", "--device cpu", "--device sim");
    /* `place` measures the ranks' GPUs: the simulated one is hundreds of times slower. */
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sh_mpi("mpi 2 place -t 1 --device %s --json", i == 0 ? "cpu" : "sim"), 0);
        const char *at = shell_read("out", NULL);
        seconds[i] = next_number(&at, "predicted_seconds");
    }
    if (!(seconds[1] > 10 * seconds[0]))
        fail_msg("%g s per token on the CPU, %g on GPUs", seconds[0], seconds[1]);
}

static void test_adapters(void **state) {
    (void)state;
    /* value matrices of the first and of the last layer of the bundled model */
    static const adapter_matrix matrices[] = {{"blk.0.attn_v.weight", 256, 128},
                                              {"blk.5.attn_v.weight", 256, 128}};
    adapter_file_write(TEST_BINARY_DIR "/test_cluster.lora", "llama", matrices, 2);
    assert_int_equal(
        sh("mv " TEST_BINARY_DIR "/test_cluster.lora a; $PI " CLUSTER_RUN "-n 20 >plain"), 0);
    check_same(2, CLUSTER_RUN "-n 20 --lora a");
    assert_int_equal(sh("cmp -s plain one"), 1);
}

/* The session files of one process and of several ranks are equal, and each loads the other's.
 */
static void test_sessions(void **state) {
    (void)state;
    static const char first[] = CLUSTER_RUN "-n 30 --prompt-cache-all --prompt-cache";
    static const char second[] =
        "run -t 1 --temp 0 -p 'Once upon a time, a' -n 10 --prompt-cache-ro "
        "--prompt-cache";
    assert_int_equal(sh_mpi("$PI %s cache1 && mpi 3 %s cache3", first, first), 0);
    assert_int_equal(sh("cmp cache1 cache3"), 0);
    assert_int_equal(
        sh_mpi("$PI %s cache3 >one 2>/dev/null && mpi 2 %s cache1 >many", second, second), 0);
    assert_contains("err", "from the cache");
    assert_int_equal(sh("cmp one many"), 0);
}

static void test_tables(void **state) {
    (void)state;
    assert_int_equal(sh_mpi("mpi 2 place -t 1"), 0);
    assert_contains("out", "predicted");
    assert_int_equal(sh_mpi("mpi 2 bench -q -t 1 -p 32 -n 4 -r 1 --mpi-split 3,1"), 0);
    assert_contains("out", "computing");
    assert_contains("out", "|     0-4 |"); /* of 6 layers */
    assert_int_equal(sh_mpi("mpi 3 bench -q -t 1 -p 8 -n 4 -np 1,5 -r 1 --json"), 0);
    assert_contains("out", "\"parallel\": 5");
    assert_contains("out", "\"first_layer\": 0");
    assert_contains("out", "\"ubatches\": ");
    assert_int_equal(sh_mpi("mpi 2 place -t 1 --json"), 0);
    assert_contains("out", "\"predicted_seconds\": ");
    assert_contains("out", "\"predicted_prefill_seconds\": ");
    assert_int_equal(sh_mpi("mpi 2 bench -q -t 1 -p 8 -n 4 -np 5 -r 1"), 0);
    assert_contains("out", "| tg4 x5 ");
}

/* Reports by how much `place` is wrong. Whether that is much depends on this machine's other work,
 * so only the numbers' presence is checked. */
static void test_predictions(void **state) {
    (void)state;
    if (!all) skip();
    assert_int_equal(
        sh_mpi("$PI synth -q -o large --shape llama-1b --layers 6 --type q4_0 --plain "
               "&& ranks --bind-to none -n 1 $PI bench -q -m large -t 2 -p 0 -n 64 -r 3 "
               "--json : -n 1 $PI bench -q -m large -t 1; r=$?; rm large; exit $r"),
        0);
    const char *at = strstr(shell_read("out", NULL), "\"ranks\"");
    for (int rank = 0; rank < 2; rank++) {
        const double predicted = next_number(&at, "predicted_seconds");
        const double computing = next_number(&at, "computing");
        const double ubatches = next_number(&at, "ubatches");
        assert_true(predicted > 0 && computing > 0 && ubatches > 0);
        fprintf(stderr, "rank %d: predicted %.3f ms, computing %.3f ms per token: %+.0f%%\n", rank,
                1e3 * predicted, 1e3 * computing / ubatches,
                100 * (computing / ubatches / predicted - 1));
    }
}

/* A rank per NUMA node: all its threads may use the cores of its node and no others, and its
 * anonymous memory is there. A rank per core: one thread by default. With one node the first part
 * shows only that the program changes no binding. */
static void test_binding(void **state) {
    (void)state;
    /* clang-format off */
    static const char look[] =
        "for r in 0 1; do v=$(victim $r); "
        "cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/$v/task/*/status | sort -u); "
        "grep -lx \"$cpus\" /sys/devices/system/node/node*/cpulist | "
        "sed 's/.*node\\([0-9]*\\)\\/cpulist/\\1/' >>nodes; n=$(tail -1 nodes); "
        "grep anon= /proc/$v/numa_maps | grep -o ' N[0-9]*=[0-9]*' | "
        "awk -F'[N=]' -v n=\"$n\" '{ all += $3; if ($2 == n) here += $3 } "
        "END { print (all > 100 && here >= 0.9 * all ? \"here\" : \"elsewhere\") }' >>where; "
        "done; ";
    if (sh("[ -r /proc/self/numa_maps ] && ls /sys/devices/system/node/node0/cpulist")) {
        fprintf(stderr, "*** SKIPPED: binding: the kernel shows no NUMA nodes ***\n");
        skip();
    }
    int status = sh_mpi(
        "rm -f nodes where; "
        "mpirun -n 2 --map-by numa:OVERSUBSCRIBE --bind-to numa:overload-allowed "
        "$PI run -q --temp 0 --ignore-eos -p hello -n 1000000 -c 100000 >text & m=$!; "
        "for i in $(seq 100); do [ -s text ] && break; sleep 0.1; done; %s kill -TERM $m; wait $m; "
        "[ $(wc -l <nodes) = 2 ] && [ \"$(sort -u where)\" = here ]", look);
    /* clang-format on */
    if (status) fail_msg("nodes %s: %s", shell_read("nodes", NULL), shell_read("where", NULL));
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    assert_int_equal(sh_mpi("timeout -k 5 60 mpirun -n 2 --map-by core --bind-to core $PI run -v "
                            "--temp 0 -p hello -n 5 >many 2>log; grep -q '[^0-9]1 thread' log"),
                     0);
}

/* ---- differences and failures ---------------------------------------------------------------- */

/* Status 1, and a line on standard error with this text. */
static void check_refused(const char *ranks, const char *text) {
    int status = sh_mpi("ranks %s", ranks);
    assert_int_equal(status, 1);
    assert_contains("err", text);
}

static void test_differences(void **state) {
    (void)state;
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 : -n 1 $PI " CLUSTER_RUN "-n 3 -c 512",
                  "other options than on rank 0");
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 -m $M : -n 1 $PI " CLUSTER_RUN "-n 3",
                  "another model file");
    check_refused("-n 2 $PI " CLUSTER_RUN "-n 3 --mpi-split 1,1,1",
                  "3 proportions of layers for 2 ranks");
    /* a rank without its model is named, whichever it is */
    char host[128] = "", text[256];
    gethostname(host, sizeof host - 1);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(text, sizeof text, "powerinfer: rank %d (%s): cannot open file: none.gguf", rank,
                 host);
        check_refused(rank == 0 ? "-n 1 $PI " CLUSTER_RUN "-n 3 -m none.gguf : "
                                  "-n 1 $PI " CLUSTER_RUN "-n 3"
                                : "-n 1 $PI " CLUSTER_RUN "-n 3 : "
                                  "-n 1 $PI " CLUSTER_RUN "-n 3 -m none.gguf",
                      text);
    }
    /* value matrices of the first and of the last layer of the bundled model */
    static const adapter_matrix matrices[] = {{"blk.0.attn_v.weight", 256, 128},
                                              {"blk.5.attn_v.weight", 256, 128}};
    adapter_file_write(TEST_BINARY_DIR "/test_cluster.lora", "llama", matrices, 2);
    sh("mv " TEST_BINARY_DIR "/test_cluster.lora a");
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 --lora a : -n 1 $PI " CLUSTER_RUN "-n 3",
                  "than on rank 0");
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 --lora a : -n 1 $PI " CLUSTER_RUN
                  "-n 3 --lora a:0.5",
                  "than on rank 0");
}

/* The program of another version: a copy with another number. */
static void test_versions(void **state) {
    (void)state;
    char host[128] = "", text[256];
    gethostname(host, sizeof host - 1);
    int status = sh("v=$($PI --version | sed 's/.* //'); mkdir -p other && LC_ALL=C sed "
                    "\"s/$v/9.8.7/g\" $PI >other/powerinfer && chmod +x other/powerinfer && ln -sf "
                    "$(dirname $PI)/libpowerinfer_mpi.so other && "
                    "other/powerinfer --version | grep -q 9.8.7");
    assert_int_equal(status, 0);
    check_refused("-n 1 $PI " CLUSTER_RUN "-n 3 -m " CLUSTER_BUNDLED
                  " : -n 1 other/powerinfer " CLUSTER_RUN "-n 3 -m " CLUSTER_BUNDLED,
                  "version 9.8.7, rank 0 has ");
    snprintf(text, sizeof text, "rank 1 (%s)", host);
    assert_contains("err", text);
}

/* Sends a signal to a rank of a long run after some seconds; the run ends within 40 seconds, with
 * one of the statuses, a line that has the text, and no file of the prompt cache. */
static void check_loss(const char *signal, int rank, const char *after, const char *arguments,
                       const char *text) {
    int status = sh_mpi("rm -f cache; mpi_in_background 2 run -q -t 1 --ignore-eos --mpi-timeout 3 "
                        "--prompt-cache cache %s; sleep %s; v=$(victim %d); kill -%s $v; "
                        "(sleep 40; kill -9 $m) & w=$!; wait $m; s=$?; kill $w; exit $s",
                        arguments, after, rank, signal);
    if (status != 1 && !(strcmp(signal, "KILL") == 0 && status == 137))
        fail_msg("%s of rank %d: status %d", signal, rank, status);
    assert_contains("err", text);
    assert_false(shell_has("cache"));
    assert_int_equal(shell_temporaries(), 0);
}

static void test_losses(void **state) {
    (void)state;
    static const char decode[] = "-p hello -n 1000000 -c 1000100";
    char host[128] = "", lost[256];
    gethostname(host, sizeof host - 1);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(lost, sizeof lost, "rank %d (%s) is lost: no answer for 3 seconds", rank, host);
        check_loss("STOP", rank, "1.5", decode, lost);
        snprintf(lost, sizeof lost, "rank %d with PID", rank); /* mpirun's words */
        check_loss("KILL", rank, "1.5", decode, lost);
        if (!all) continue;
        check_loss("STOP", rank, "0", decode, host);     /* while the ranks join */
        check_loss("KILL", rank, "0.3", decode, "rank"); /* while it starts */
        sh("for i in $(seq 60000); do printf 'word '; done >text");
        check_loss("KILL", rank, "1", "-f text -c 100000 -n 1", lost);
        snprintf(lost, sizeof lost, "rank %d (%s) is lost: no answer for 3 seconds", rank, host);
        check_loss("STOP", rank, "1", "-f text -c 100000 -n 1", lost);
    }
}

/* A rank is killed while rank 0 writes the prompt cache, to a file without a name. */
static void test_loss_while_saving(void **state) {
    (void)state;
    if (!all) skip();
    sh("for i in $(seq 8000); do printf 'word '; done >text");
    for (int rank = 0; rank < 2; rank++) {
        int status = 0;
        for (int i = 0; i < 3 && status == 0; i++) /* the file may be whole before the signal */
            status = sh_mpi(
                "rm -f cache; mpi_in_background 2 run -q -t 1 -f text -c 30000 -n 1 --mpi-timeout "
                "3 "
                "--prompt-cache cache; f=$(victim 0) v=$(victim %d); while kill -0 $m 2>/dev/null; "
                "do [ -n \"$(find /proc/$f/fd -lname \"$PWD/*(deleted)\" 2>/dev/null)\" ] && "
                "kill -9 $v && break; done; (sleep 40; kill -9 $m) & w=$!; wait $m; s=$?; kill $w; "
                "exit $s",
                rank);
        if (status != 1 && status != 137) fail_msg("rank %d: status %d", rank, status);
        assert_contains("err", "rank");
        assert_false(shell_has("cache"));
    }
}

/* When the command `until` succeeds, the model file of a rank becomes shorter. The run ends within
 * a minute, and both ranks report that rank and the file. */
static void check_cut_file(int rank, const char *until, const char *arguments) {
    char host[128] = "", text[256];
    int status = sh_mpi(
        "rm -f cache story; cp " CLUSTER_BUNDLED " file0 && cp file0 file1 || exit 99; "
        "o='run -q -t 1 --ignore-eos --prompt-cache cache %s'; "
        "mpirun --oversubscribe -n 1 $PI $o -m file0 : -n 1 $PI $o -m file1 >story & m=$!; "
        "for i in $(seq 300); do %s && break; sleep 0.1; done; truncate -s 4096 file%d; "
        "(sleep 60; kill -9 $m) & w=$!; wait $m; s=$?; kill $w; exit $s",
        arguments, until, rank);
    if (status != 1)
        fail_msg("rank %d: %s: status %d: %s", rank, arguments, status, shell_read("err", NULL));
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text,
             "powerinfer: rank %d (%s): file became shorter while it was in use: file%d\n", rank,
             host, rank);
    int n = 0;
    for (const char *at = shell_read("err", NULL); (at = strstr(at, text)); at++) n++;
    if (n != 2)
        fail_msg("rank %d: %s: %d reports: %s", rank, arguments, n, shell_read("err", NULL));
    assert_false(shell_has("cache"));
    assert_int_equal(shell_temporaries(), 0);
}

static void test_cut_file(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        check_cut_file(rank, "[ -s story ]", "-p hello -n 1000000 -c 1000100");
        if (!all) continue;
        sh("for i in $(seq 60000); do printf 'word '; done >text");
        check_cut_file(rank, "[ $i -gt 20 ]", "-f text -c 100000 -n 1");
    }
}

/* Rank 1 is in a separate network, which is cut after some seconds: all ranks and mpirun end. */
static void check_cut(const char *after, const char *arguments, const char *text) {
    int status = sh_mpi(
        "rm -f cache; n=pi$$ a=10.98.$(($$ %% 250)); ip netns add $n && ip link add $n type veth "
        "peer name eth0 netns $n || exit 77; ip addr add $a.1/24 dev $n; ip link set $n up; "
        "ip -n $n addr add $a.2/24 dev eth0; ip -n $n link set eth0 up; ip -n $n link set lo up; "
        "printf '#!/bin/sh\nshift\nexec ip netns exec %%s sh -c \"$*\"\n' $n >agent; "
        "chmod +x agent; mpirun --mca plm_rsh_agent $PWD/agent --mca btl tcp,self "
        "--mca btl_tcp_if_include $a.0/24 --mca oob_tcp_if_include $a.0/24 --bind-to none "
        "--host $a.1:1,$a.2:1 -n 2 $PI run -q -t 1 --ignore-eos --mpi-timeout 3 "
        "--prompt-cache cache %s & m=$!; sleep %s; ip link set $n down; "
        "(sleep 50; kill -9 $m; touch hangs) & w=$!; wait $m; s=$?; kill $w; "
        "for i in $(seq 20); do [ -z \"$(ip netns pids $n | xargs -r ps -o comm= -p | grep "
        "powerinfer)\" ] && break; sleep 1; done; [ $i -lt 20 ] || touch hangs; "
        "ip netns pids $n | xargs -r kill -9; ip link del $n; ip netns del $n; exit $s",
        arguments, after);
    if (status == 77) {
        fprintf(stderr, "*** SKIPPED: no network namespace can be made: cut networks ***\n");
        skip();
    }
    assert_false(shell_has("hangs"));
    assert_int_not_equal(status, 0);
    assert_contains("err", text);
    assert_false(shell_has("cache"));
    assert_int_equal(shell_temporaries(), 0);
}

static void test_cut_network(void **state) {
    (void)state;
    char lost[256], host[128] = "";
    if (geteuid() != 0 || sh("command -v ip") != 0) {
        fprintf(stderr, "*** SKIPPED: cut networks: they need root and iproute2 ***\n");
        skip();
    }
    gethostname(host, sizeof host - 1);
    snprintf(lost, sizeof lost, "rank 1 (%s) is lost: no answer for 3 seconds", host);
    check_cut("4", "-p hello -n 1000000 -c 1000100", lost);
    if (!all) return;
    sh("for i in $(seq 60000); do printf 'word '; done >text");
    check_cut("4", "-f text -c 100000 -n 1", lost);
}

/* Two ranks in a network with 5 ms and 0.1 Gbit/s of slow_network.c: a round trip takes at least
 * twice the latency, no stream is faster than the rate, and the text is that of one process. */
static void test_slow_network(void **state) {
    (void)state;
    double round_trip = 0, gbit = 0;
    if (!cluster_has_networks()) skip();
    int status = sh_mpi("slow_begin 5 0.1; ip netns exec $n-2 $s echo 7777 & e=$!; sleep 0.5; "
                        "ip netns exec $n-1 $s probe $a.2 7777 >reached; "
                        "ranks $slow -n 2 $PI " CLUSTER_RUN "-n 20 >many; r=$?; "
                        "kill $e; wait $e; slow_end; exit $r");
    if (status == 77) {
        fprintf(stderr, "*** SKIPPED: no network namespace can be made: slow networks ***\n");
        skip();
    }
    if (status) fail_msg("status %d: %s", status, shell_read("err", NULL));
    assert_int_equal(sscanf(shell_read("reached", NULL), "%lf %lf", &round_trip, &gbit), 2);
    assert_true(round_trip >= 10 && gbit > 0 && gbit <= 0.1);
    assert_int_equal(sh("$PI " CLUSTER_RUN "-n 20 >one 2>/dev/null && cmp one many"), 0);
}

/* A disk that is full: limits of file sizes give the same error. */
static void test_full_disk(void **state) {
    (void)state;
    int status = sh_mpi("ranks -n 1 sh -c \"ulimit -f 64; exec $PI " CLUSTER_RUN
                        "-n 200 --prompt-cache-all --prompt-cache cache\" : -n 1 $PI " CLUSTER_RUN
                        "-n 200");
    assert_int_equal(status, 1);
    assert_contains("err", "cache");
    assert_false(shell_has("cache"));
    assert_int_equal(shell_temporaries(), 0);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Starts a server; $port is its port. */
#define SERVE(ranks, size)                                                                         \
    "rm -f log; mpirun --oversubscribe -n " ranks " $PI serve -t 1 " size " --port 0 "             \
    ">log 2>serve_err & m=$!; for i in $(seq 100); do grep -q listening log && break; sleep 0.1; " \
    "done; port=$(sed 's/.*://' log); "

static void test_server(void **state) {
    (void)state;
    if (sh("command -v curl") != 0) skip();
    int status = sh_mpi(SERVE(
        "2",
        "-np 8 -c 2048") "p=; for i in $(seq 16); do (curl -s http://127.0.0.1:$port/completion -d "
                         "'{\"prompt\":\"Once upon a time\",\"n_predict\":16,\"temperature\":0}' "
                         ">answer$i) & p=\"$p $!\"; done; wait $p; kill -TERM $(victim 0); wait "
                         "$m; "
                         "s=$?; for i in $(seq 16); do grep -o '\"content\":\"[^\"]*\"' answer$i; "
                         "done "
                         "| sort | uniq -c >texts; exit $s");
    if (status) fail_msg("status %d: %s", status, shell_read("serve_err", NULL));
    assert_contains("texts", "     16 \"content\"");
}

/* The server on several ranks has a group of sequences in flight for each: the texts and
 * probabilities of four clients are those of one process, and a forward pass has at most a rank's
 * share of them. One prompt is read in several pieces meanwhile. */
static void check_groups(int n_ranks, const char *options) {
    /* clang-format off */
    static const char clients[] =
        "p=; for i in 1 2 3 4; do w=$(seq -s ' ' $((8 * i * i))); "
        "(curl -s http://127.0.0.1:$port/completion -d "
        "\"{\\\"prompt\\\":\\\"$i and $w\\\",\\\"n_predict\\\":50,\\\"ignore_eos\\\":true,"
        "\\\"n_probs\\\":2,\\\"temperature\\\":0}\" >answer$i) & p=\"$p $!\"; done; wait $p; "
        "curl -s http://127.0.0.1:$port/metrics | "
        "sed -n 's/^powerinfer_busy_slots_per_decode //p' >busy; "
        "kill -TERM $(victim 0); wait $m; s=$?; "
        "for i in 1 2 3 4; do sed 's/\"stop\":true,.*//' answer$i; echo; done >answers; ";
    int status = sh_mpi(SERVE("%d", "-np 4 -c 4096 --deterministic %s") "%s mv answers answers%d; "
                        "exit $s", n_ranks, options, clients, n_ranks);
    /* clang-format on */
    if (status) fail_msg("%d ranks: status %d: %s", n_ranks, status, shell_read("serve_err", NULL));
    const double busy = strtod(shell_read("busy", NULL), NULL);
    if (!(busy > 0) || busy > (4 + n_ranks - 1) / n_ranks)
        fail_msg("%d ranks: %g sequences in a forward pass", n_ranks, busy);
}

static void test_server_groups(void **state) {
    (void)state;
    if (sh("command -v curl") != 0) skip();
    check_groups(1, ""); /* four answers with probabilities */
    assert_int_equal(
        sh("grep -c '^{\"index\":0,\"content\":\"..*completion_probabilities.*logprob' "
           "answers1 | grep -qx 4"),
        0);
    for (int n = 2; n <= 3; n++) {
        check_groups(n, "");
        if (sh(n == 2 ? "cmp answers1 answers2" : "cmp answers1 answers3"))
            fail_msg("%d ranks: other answers", n);
    }
    check_groups(2, "--spec ngram");
    if (sh("cmp answers1 answers2")) fail_msg("2 ranks, drafts: other answers");
}

/* Answers that are under way end with 503 when a rank is lost, and the server ends. */
static void test_server_loses(void **state) {
    (void)state;
    if (sh("command -v curl") != 0) skip();
    int status = sh_mpi(
        SERVE("2", "-np 1 -c 200000 --mpi-timeout 3") "(curl -s -o answer -w '%%{http_code}' "
                                                      "http://127.0.0.1:$port/completion -d "
                                                      "'{\"prompt\":\"a\",\"ignore_eos\":true,"
                                                      "\"n_predict\":100000,\"temperature\":0}' "
                                                      ">code) & p=$!; sleep 0.5; "
                                                      "kill -STOP $(victim 1); (sleep 40; kill -9 "
                                                      "$m) & w=$!; wait $p; wait "
                                                      "$m; s=$?; "
                                                      "kill $w; exit $s");
    assert_int_equal(status, 1);
    assert_string_equal(shell_read("code", NULL), "503");
    assert_contains("serve_err", "is lost: no answer for 3 seconds");
}

int main(int argc, char **argv) {
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    if (system("command -v mpirun >/dev/null") != 0) {
        fprintf(stderr, "*** SKIPPED: there is no mpirun; install openmpi-bin ***\n");
        return SHARED_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_loss_while_saving),
        cmocka_unit_test(test_cut_network),
        cmocka_unit_test(test_cut_file),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_slow_network),
        cmocka_unit_test(test_server_groups),
        cmocka_unit_test(test_server_loses),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_architectures),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
