/* test_cli_json.c: documents of --json, read with jansson: exactly these members and types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cli_shell.h"
#include "cli_test_model.h"

/* Runs a line whose standard output must be exactly one document. */
static json_t *json_of(const char *line) {
    assert_int_equal(sh(line), 0);
    size_t n;
    const char *text = shell_read("out", &n);
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root) fail_msg("%s: %s", error.text, text);
    assert_int_equal(text[n - 1], '\n');
    return root;
}

/* types: all members as "name:type ..."; s(tring) i(nteger) n(umber) b(oolean) a(rray) o(bject). */
static void assert_members(const json_t *object, const char *types) {
    assert_true(json_is_object(object));
    size_t count = 0;
    while (*types) {
        char name[32];
        size_t length = strcspn(types, ":");
        assert_true(length < sizeof name);
        memcpy(name, types, length);
        name[length] = 0;
        const json_t *value = json_object_get(object, name);
        if (!value) fail_msg("no member %s", name);
        switch (types[length + 1]) {
        case 's':
            assert_true(json_is_string(value));
            break;
        case 'i':
            assert_true(json_is_integer(value));
            break;
        case 'n':
            assert_true(json_is_number(value));
            break;
        case 'b':
            assert_true(json_is_boolean(value));
            break;
        case 'a':
            assert_true(json_is_array(value));
            break;
        case 'o':
            assert_true(json_is_object(value));
            break;
        default:
            fail();
        }
        count++;
        types += length + 2;
        types += strspn(types, " ");
    }
    assert_int_equal(json_object_size(object), count);
}

static const char run_members[] = "text:s prompt_tokens:i cached_tokens:i "
                                  "tokens:a stop:s context_full:b mode:s prompt_tps:n tps:n";

static const char *text_of(const json_t *root, const char *name) {
    return json_string_value(json_object_get(root, name));
}

static void test_run(void **state) {
    (void)state;
    json_t *root = json_of("$PI run -m $M -p abc -n 6 --temp 0 --ignore-eos --json");
    assert_members(root, run_members);
    assert_int_equal(json_integer_value(json_object_get(root, "prompt_tokens")), 5);
    assert_int_equal(json_array_size(json_object_get(root, "tokens")), 6);
    assert_string_equal(text_of(root, "stop"), "length");
    assert_true(json_number_value(json_object_get(root, "tps")) > 0);
    assert_true(json_number_value(json_object_get(root, "prompt_tps")) > 0);
    json_decref(root);
    root = json_of("$PI run -m $M -p abc -n 0 --json -q");
    assert_members(root, run_members);
    assert_string_equal(text_of(root, "text"), "");
    assert_int_equal(json_array_size(json_object_get(root, "tokens")), 0);
    assert_err("");
    json_decref(root);
    root = json_of("$PI run -m $M -p abc -n 2 --json -q --adapt");
    assert_int_equal(json_integer_value(json_object_get(root, "neurons_moved")), 0);
    assert_int_equal(json_integer_value(json_object_get(root, "active_gpu_neurons")), 0);
    assert_true(json_is_integer(json_object_get(root, "active_neurons")));
    assert_true(json_is_integer(json_object_get(root, "neuron_bytes_moved")));
    assert_int_equal(json_integer_value(json_object_get(root, "experts_moved")), 0);
    json_decref(root);
}

/* Uniform draws from 286 tokens include the end-of-text token sooner or later. */
static void test_end_of_text(void **state) {
    (void)state;
    int found = 0;
    for (int seed = 0; seed < 60 && !found; seed++) {
        char line[256];
        snprintf(line, sizeof line,
                 "$PI run -m $M -p abc --temp 1000 --top-k 0 --top-p 1 --min-p 0 -s %d -c 400 "
                 "--json -q",
                 seed);
        json_t *root = json_of(line);
        found = strcmp(text_of(root, "stop"), "eos") == 0;
        if (found) { /* the end-of-text token is not part of the text */
            const json_t *tokens = json_object_get(root, "tokens");
            size_t n = json_array_size(tokens);
            assert_true(n < 396);
            for (size_t i = 0; i < n; i++) {
                assert_int_not_equal(json_integer_value(json_array_get(tokens, i)), TEST_MODEL_EOS);
            }
            size_t end = strlen(line);
            snprintf(line + end, sizeof line - end, " --ignore-eos");
            json_t *more = json_of(line);
            assert_string_equal(text_of(more, "stop"), "length");
            assert_int_equal(json_array_size(json_object_get(more, "tokens")), 396);
            json_decref(more);
        } else {
            assert_string_equal(text_of(root, "stop"), "length");
        }
        json_decref(root);
    }
    assert_true(found);
}

#define BENCH_RESULT                                                                               \
    "test:s depth:i parallel:i mode:s device:s tps:n tps_min:n tps_max:n tps_stddev:n "            \
    "bytes_per_token:n "                                                                           \
    "gbps:n read_gbps:n gather_gbps:n bandwidth_share:n floor_share:n ffn_density:n model:s "      \
    "drive_reads:n drive_bytes:n drive_gbps:n drive_share:n drive_busy:n cache_hits:n "            \
    "cache_misses:n drive_ahead:n drive_in_vain:n drafts:s tokens_per_step:n speedup:n "           \
    "n_drafted:i n_accepted:i "                                                                    \
    "threads:i n_batch:i cache_type_k:s cache_type_v:s gpu_layers:i in_cache:b"

/* Standard deviation of one repetition, or of two: |a - b| / sqrt 2. */
static void assert_deviation(const json_t *r, int repetitions) {
    double low = json_number_value(json_object_get(r, "tps_min"));
    double high = json_number_value(json_object_get(r, "tps_max"));
    double expected = repetitions == 2 ? (high - low) * 0.70710678118654752 : 0;
    double difference = json_number_value(json_object_get(r, "tps_stddev")) - expected;
    assert_true(difference <= 1e-9 * high && -difference <= 1e-9 * high);
}

static void test_bench(void **state) {
    (void)state;
    json_t *root = json_of("$PI bench -m $M -p 8,0,4 -n 3 -d 0,5 -r 2 --json -q -t 1");
    assert_err("");
    assert_members(root, "model:s machine:o results:a");
    assert_string_equal(text_of(root, "model"), "test model");
    const json_t *machine = json_object_get(root, "machine");
    assert_members(machine, "cpu:s threads:i read_gbps:n gather_gbps:n cache_bytes:i "
                            "yardstick_bytes:i yardstick_wanted:i");
    assert_int_equal(json_integer_value(json_object_get(machine, "threads")), 1);
    const json_t *results = json_object_get(root, "results");
    assert_int_equal(json_array_size(results), 6);
    int generation = 0;
    for (size_t i = 0; i < 6; i++) {
        const json_t *r = json_array_get(results, i);
        assert_members(r, BENCH_RESULT);
        assert_true(json_number_value(json_object_get(r, "tps")) > 0);
        assert_deviation(r, 2);
        generation += strcmp(text_of(r, "test"), "tg3") == 0;
    }
    assert_int_equal(generation, 2);
    json_decref(root);
    root = json_of("$PI bench -m $M -p 0 -n 2 -r 1 --json -q");
    assert_int_equal(json_array_size(json_object_get(root, "results")), 1);
    json_decref(root);
    root = json_of("$PI bench -m $M -p 4 -n 2 -r 1 --json -q --trace t.json");
    const json_t *traced = json_object_get(root, "traced");
    assert_int_equal(json_array_size(traced), 2);
    for (size_t i = 0; i < 2; i++)
        assert_members(json_array_get(traced, i),
                       "tokens:i seconds:n cpu_seconds:n gpu_seconds:n both_seconds:n overlap:n "
                       "split_layers:i split_overlap:n exchange_seconds:n clock_error:n");
    json_decref(root);
    root = json_of("cat t.json");
    assert_members(root, "displayTimeUnit:s otherData:o traceEvents:a");
    assert_true(json_array_size(json_object_get(root, "traceEvents")) > 10);
    json_decref(root);
}

/* Width of the widest line of `out`, in columns. */
static size_t widest_line(void) {
    size_t widest = 0, columns = 0;
    for (const char *p = shell_read("out", NULL); *p; p++) {
        if (((unsigned char)*p & 0xC0) != 0x80 && *p != '\n') columns++;
        if (columns > widest) widest = columns;
        if (*p == '\n') columns = 0;
    }
    return widest;
}

static void test_bench_table(void **state) {
    (void)state;
    assert_int_equal(sh("$PI bench -m $M -p 4 -n 2,3 -r 2 -t 1,2 -q"), 0);
    assert_contains("out", "\nmodel:   test model, llama f32, ");
    assert_contains("out", "\n| pp4      |      0 |   1 | dense ");
    assert_contains("out", "\n| tg2      |      0 |   1 | dense ");
    assert_contains("out", "\n| tg3      |      0 |   2 | dense ");
    assert_contains("out", "| in cache |\n");
    assert_true(widest_line() <= 80);
    assert_int_equal(sh("$PI bench -m $M -p 4 -n 0 -r 1 -q -b 16,32"), 0);
    assert_contains("out", "\noptions: batch 32, KV cache f16 and f16\n");
    assert_true(widest_line() <= 80);
    assert_int_equal(sh("$PI bench -m $M -p 0 -n 2 -r 1 -q -v"), 0);
    assert_contains("out", "MB/token");
    assert_wrong("$PI bench -m $M -t 1,x",
                 "powerinfer: invalid value: -t \"x\": expected an integer from 0 to 512\n");
    assert_wrong("$PI bench -o sql",
                 "powerinfer: invalid value: -o \"sql\": expected one of md, json, jsonl, csv\n");
}

/* All combinations, in the order of models, cache types, threads, tests. */
static void test_bench_combinations(void **state) {
    (void)state;
    assert_int_equal(sh("cp $M b.gguf"), 0);
    static const char *const lines[] = {
        "$PI bench -m $M -m b.gguf -p 4 -p 2 -n 2 -r 1 -t 1,2 -b 8 -o json -q --progress --delay 0",
        "$PI bench -m $M,b.gguf -p 4,2 -n 2 -r 1 -t 1 -t 2 -b 8 --json -q"};
    for (int k = 0; k < 2; k++) {
        json_t *root = json_of(lines[k]);
        const json_t *results = json_object_get(root, "results");
        assert_int_equal(json_array_size(results), 12);
        for (size_t i = 0; i < 12; i++) {
            static const char *const names[] = {"pp4", "pp2", "tg2"};
            const json_t *r = json_array_get(results, i);
            assert_string_equal(text_of(r, "test"), names[i % 3]);
            assert_int_equal(json_integer_value(json_object_get(r, "threads")), 1 + i / 3 % 2);
            assert_int_equal(json_integer_value(json_object_get(r, "n_batch")), 8);
            assert_string_equal(text_of(r, "cache_type_k"), "f16");
            assert_deviation(r, 1);
        }
        json_decref(root);
    }
}

static void test_bench_formats(void **state) {
    (void)state;
    assert_int_equal(sh("$PI bench -m $M -p 4 -n 2 -r 1 -t 1 -q -o jsonl --mode dense,auto"), 0);
    const char *line = shell_read("out", NULL);
    int n_lines = 0;
    for (const char *end; (end = strchr(line, '\n')); line = end + 1, n_lines++) {
        json_error_t error;
        json_t *r = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, &error);
        if (!r) fail_msg("%s: %s", error.text, line);
        assert_members(r, BENCH_RESULT);
        assert_string_equal(text_of(r, "model"), "test model");
        json_decref(r);
    }
    assert_int_equal(n_lines, 4);
    assert_int_equal(*line, 0);

    assert_int_equal(sh("$PI bench -m $M -p 4 -n 2 -r 1 -t 1 -q -o csv"), 0);
    line = shell_read("out", NULL);
    assert_int_equal(strncmp(line, "model,threads,", 14), 0);
    int commas[3] = {0}, rows = 0;
    bool quoted = false;
    for (; *line; line++) {
        if (*line == '"') quoted = !quoted;
        if (*line == ',' && !quoted) commas[rows]++;
        if (*line == '\n' && !quoted) assert_true(++rows <= 3);
        if (rows == 3) break;
    }
    assert_int_equal(rows, 3);
    assert_int_equal(commas[0], 36);
    assert_true(commas[1] == commas[0] && commas[2] == commas[0]);
    assert_contains("out",
                    "\n\"test model\",1,512,\"f16\",\"f16\",-1,\"pp4\",0,1,\"dense\",\"cpu\",");
}

/* Tests of one sequence run without and with drafts. The model drafts for itself: greedy drafts are
 * all accepted. */
static void test_bench_drafts(void **state) {
    (void)state;
    json_t *root = json_of("$PI bench -m $M -p 4 -n 13,0 -d 3 -np 1,2 -r 2 -t 1 -q --json "
                           "--kernels scalar --spec draft -md $M --draft-min 3 --draft-max 3");
    const json_t *results = json_object_get(root, "results");
    static const char *const tests[] = {"pp4", "tg13", "tg13", "pp4", "tg13"};
    static const char *const drafts[] = {"", "off", "draft", "", ""};
    assert_int_equal(json_array_size(results), 5);
    for (size_t i = 0; i < 5; i++) {
        const json_t *r = json_array_get(results, i);
        assert_members(r, BENCH_RESULT);
        assert_string_equal(text_of(r, "test"), tests[i]);
        assert_string_equal(text_of(r, "drafts"), drafts[i]);
    }
    const json_t *plain = json_array_get(results, 1), *drafted = json_array_get(results, 2);
    assert_int_equal(json_integer_value(json_object_get(plain, "n_drafted")), 0);
    assert_true(json_number_value(json_object_get(plain, "tokens_per_step")) == 1);
    assert_true(json_number_value(json_object_get(plain, "speedup")) == 1);
    /* 12 tokens after the first one, in three steps, in each of two repetitions */
    assert_int_equal(json_integer_value(json_object_get(drafted, "n_drafted")), 18);
    assert_int_equal(json_integer_value(json_object_get(drafted, "n_accepted")), 18);
    assert_true(json_number_value(json_object_get(drafted, "tokens_per_step")) == 4);
    double ratio = json_number_value(json_object_get(drafted, "tps")) /
                   json_number_value(json_object_get(plain, "tps"));
    double said = json_number_value(json_object_get(drafted, "speedup"));
    assert_true(said > 0.999 * ratio && said < 1.001 * ratio);
    json_decref(root);
    assert_int_equal(
        sh("$PI bench -m $M -p 0 -n 13 -r 1 -t 1 -q --kernels scalar --spec draft -md $M "
           "--draft-min 3 --draft-max 3"),
        0);
    assert_contains("out", "\n| tg13 +d  |      0 |");
    assert_contains("out", "\ntg13 with draft drafts: ");
    assert_contains("out", "\n4.00 tokens per step, 9 of 9 drafted tokens accepted (100%)\n");
    assert_true(widest_line() <= 80);
    assert_int_equal(sh("$PI bench -m $M -p 0 -n 9 -r 1 -t 1 -q --spec ngram --temp 5 -s 3"), 0);
    assert_contains("out", "\ntg9 with ngram drafts: ");
    assert_wrong("$PI bench -m $M --spec draft",
                 "powerinfer: no draft model: --spec draft: give one with -md FILE\n");
    assert_int_equal(sh("$PI bench -m $M -p 0 -n 2 -r 1 -q --spec mtp"), 1);
    assert_contains("err", "no layers for multi-token prediction");
}

static void test_bench_text(void **state) {
    (void)state;
    shell_write("text", "one two three", 13);
    assert_int_equal(sh("$PI bench -m $M -p 2 -n 2 -r 1 -t 1 -q -f text"), 0);
    assert_int_equal(sh("$PI bench -m $M -p 0 -n 900 -r 1 -t 1 -q -f text"), 2);
    assert_contains("err", ": bench: a test needs 900");
    assert_int_equal(sh("$PI bench -m $M -p 2 -n 2 -r 1 -t 1 -q -f no-text"), 1);
}

/* With a memory budget, each test reports the bytes that it read from the drive. */
static void test_bench_budget(void **state) {
    (void)state;
    json_t *root = json_of("$PI bench -m $M -p 4 -n 2 -r 1 -t 1 -q --json --ram-budget 0.5");
    const json_t *machine = json_object_get(root, "machine");
    assert_int_equal(json_integer_value(json_object_get(machine, "yardstick_bytes")), 0);
    json_decref(root);
    assert_int_equal(sh("$PI bench -m $M -p 4 -n 2 -r 1 -t 1 -q --ram-budget 0.5"), 0);
    assert_contains("out", "\nmemory: ");
    assert_contains("out", " of 512 MiB: buffers ");
    assert_int_equal(sh("$PI bench -m $M -p 4 -n 2 -r 1 -t 1 -q --ram-budget 0"), 0);
    assert_null(strstr(shell_read("out", NULL), "\nmemory: "));
    assert_int_equal(sh("$PI bench -m $M -p 4 -n 2 -r 1 -t 1 -q --ram-budget 0.01"), 1);
    assert_contains("err", "powerinfer: memory budget too small: 0.01 GiB: this model needs ");
}

#if !defined(_WIN32) /* the limits would be those of wine, a process of the host */
/* Under tight memory limits the buffers of bench get smaller, and it still works. */
static void test_bench_limits(void **state) {
    (void)state;
    static const int kib[] = {200000, 80000};
    for (int i = 0; i < 2; i++) {
        char line[128];
        snprintf(line, sizeof line,
                 "ulimit -v %d; $PI bench -m $M -p 4 -n 2 -r 1 -t 2 -q --json || test $? = 1",
                 kib[i]);
#ifdef TEST_SANITIZED
        print_message("*** SKIPPED: sanitizers need address space ***\n");
        return;
#endif
        json_t *root = json_of(line);
        const json_t *machine = json_object_get(root, "machine");
        json_int_t bytes = json_integer_value(json_object_get(machine, "yardstick_bytes"));
        assert_true(bytes < (json_int_t)kib[i] * 1024 / 4);
        assert_true(bytes < json_integer_value(json_object_get(machine, "yardstick_wanted")));
        assert_int_equal(json_array_size(json_object_get(root, "results")), 2);
        json_decref(root);
    }
}
#endif

static void test_inspect(void **state) {
    (void)state;
    json_t *root = json_of("$PI inspect $M --json");
    assert_true(json_is_object(root));
    json_decref(root);
    assert_int_equal(sh("$PI synth -o prepared.gguf --shape tiny --layers 2 -q"), 0);
    root = json_of("$PI inspect prepared.gguf --json -v --svg neurons.svg");
    const json_t *neurons = json_object_get(root, "neurons");
    assert_int_equal(json_array_size(json_object_get(neurons, "layers")), 2);
    assert_string_equal(text_of(neurons, "kind"), "lowrank");
    assert_int_equal(json_integer_value(json_object_get(neurons, "rank")), 256);
    json_decref(root);
    assert_int_equal(sh("grep -q '</svg>' neurons.svg"), 0);
    assert_int_equal(sh("$PI inspect $M --svg none.svg"), 1);
    assert_contains("err", "powerinfer: no neuron statistics: ");
    assert_int_equal(sh("test ! -e none.svg"), 0);
    root = json_of("$PI inspect --devices --json");
    assert_members(root, "devices:a");
    const json_t *cpu = json_array_get(json_object_get(root, "devices"), 0);
    assert_members(cpu, "device:s name:s cores:i features:a");
    assert_string_equal(text_of(cpu, "device"), "cpu");
    /* Each backend has a device or a reason; the simulated device always exists if it is built. */
    bool simulated = false;
    for (size_t i = 1; i < json_array_size(json_object_get(root, "devices")); i++) {
        const json_t *d = json_array_get(json_object_get(root, "devices"), i);
        bool available = json_is_true(json_object_get(d, "available"));
        assert_true(json_is_string(json_object_get(d, available ? "name" : "reason")));
        if (available) assert_true(json_integer_value(json_object_get(d, "memory_total")) > 0);
        simulated = simulated || (available && strcmp(text_of(d, "device"), "sim") == 0);
    }
    assert_int_equal(simulated,
                     sh("test -e " TEST_BINARY_DIR "/libpowerinfer_sim" SHELL_LIBRARY) == 0);
    json_decref(root);
}

/* What failed, and rates that were measured on this machine. */
static void test_devices(void **state) {
    (void)state;
    json_t *root = json_of("$PI inspect --devices --json --backend-folder /nowhere");
    const json_t *devices = json_object_get(root, "devices");
    const json_t *d = json_array_get(devices, json_array_size(devices) - 1);
    assert_string_equal(text_of(d, "device"), "sim");
    const json_t *failed = json_array_get(json_object_get(d, "failed"), 0);
    assert_members(failed, "call:s error:s");
    assert_string_equal(text_of(failed, "call"), "open the backend");
    assert_string_equal(text_of(failed, "error"), text_of(d, "reason"));
    char file[1024];
    const json_t *cpu = json_array_get(devices, 0);
    int n = snprintf(file, sizeof file,
                     "{\"name\": \"%s\", \"cpu\": {\"stream_gbps\": 20, \"gather_gbps\": 9}, "
                     "\"gpu\": {\"name\": \"simulated GPU\", \"stream_gbps\": 700, "
                     "\"gather_gbps\": 500, \"step_us\": 3}, \"sync_us\": 12}",
                     text_of(cpu, "name"));
    shell_write("machine.json", file, (size_t)n);
    json_decref(root);
    if (sh("test -e " TEST_BINARY_DIR "/libpowerinfer_sim.so") != 0) return;
    assert_int_equal(sh("mkdir -p cache/powerinfer && mv machine.json cache/powerinfer/"), 0);
    root = json_of("XDG_CACHE_HOME=$PWD/cache $PI inspect --devices --json");
    devices = json_object_get(root, "devices");
    d = json_array_get(devices, json_array_size(devices) - 1);
    assert_int_equal(json_array_size(json_object_get(d, "failed")), 0);
    const json_t *measured = json_object_get(d, "measured");
    assert_true(json_number_value(json_object_get(measured, "stream_gbps")) == 700);
    assert_true(json_number_value(json_object_get(measured, "gather_gbps")) == 500);
    assert_true(fabs(json_number_value(json_object_get(measured, "step_us")) - 3) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(measured, "sync_us")) - 12) < 1e-9);
    json_decref(root);
    assert_int_equal(sh("XDG_CACHE_HOME=$PWD/cache $PI inspect --devices"), 0);
    assert_contains("out", "  measured: 700 GB/s, 500 GB/s for single neurons, 3.0 us per step, "
                           "12.0 us per exchange\n");
}

static void test_place(void **state) {
    (void)state;
    json_t *root = json_of("$PI place --shape llama-7b --profile rtx-3060-ddr4 --vram-budget 3 "
                           "--json --svg plan.svg");
    assert_members(root, "budget_bytes:i unit:s layers:a head:s kv:s predictor:s gpu_bytes:i "
                         "cpu_bytes:i gpu_read:n cpu_read:n seconds_per_token:n terms:o prompt:o");
    assert_members(json_object_get(root, "terms"), "always:n gpu:n cpu:n sync:n head:n kv:n");
    const json_t *layers = json_object_get(root, "layers");
    assert_int_equal(json_array_size(layers), 32);
    for (size_t i = 0; i < 32; i++) {
        const json_t *layer = json_array_get(layers, i);
        assert_members(layer, "attn:s hot:i of:i");
        assert_int_equal(json_integer_value(json_object_get(layer, "of")), 11008);
    }
    assert_string_equal(json_string_value(json_object_get(root, "unit")), "neuron");
    assert_int_equal(json_integer_value(json_object_get(root, "budget_bytes")), 3ll << 30);
    assert_true(json_integer_value(json_object_get(root, "gpu_bytes")) <= 3ll << 30);
    json_decref(root);
    assert_true(shell_has("plan.svg"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_end_of_text),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_bench_table),
        cmocka_unit_test(test_bench_combinations),
        cmocka_unit_test(test_bench_formats),
        cmocka_unit_test(test_bench_drafts),
        cmocka_unit_test(test_bench_text),
        cmocka_unit_test(test_bench_budget),
#if !defined(_WIN32)
        cmocka_unit_test(test_bench_limits),
#endif
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_place),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
