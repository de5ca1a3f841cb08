/* test_cli_place.c: the command place: budgets, machines, measuring, errors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"

/* Folders in the environment have a drive on Windows. */
#if defined(_WIN32)
#define DRIVE "Z:"
#else
#define DRIVE ""
#endif

/* Sanitizers and emulators run every fourth budget, up to the largest, the first two shapes of
 * files, and half of the cases of reads. */
#ifdef TEST_SAMPLED
enum { EVERY = 4, FILES = 2, READS = 3 };
#else
enum { EVERY = 1, FILES = 3, READS = 7 };
#endif

/* The number after a key of the last document. */
static double number(const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(shell_read("out", NULL), quoted);
    if (!at) fail_msg("no %s", key);
    return strtod(at + strlen(quoted), NULL);
}

static void place(const char *options) {
    char line[1024];
    snprintf(line, sizeof line, "$PI place -q --json %s", options);
    if (sh(line) != 0) fail_msg("%s: %s", options, shell_read("err", NULL));
    assert_err("");
}

/* Several GPUs of one kind: each has its part, and together they hold more. */
static void test_several(void **state) {
    (void)state;
    const char *const shape = "--shape opt-30b --type q4_0 --profile rtx-2080ti-ddr4 ";
    char line[256];
    place(shape);
    assert_null(strstr(shell_read("out", NULL), "\"devices\""));
    double one = number("seconds_per_token"), bytes = number("gpu_bytes");
    snprintf(line, sizeof line, "%s -ts 1,1", shape);
    place(line);
    assert_true(number("seconds_per_token") < one && number("gpu_bytes") > bytes);
    assert_contains("out", "\"device\": 1,\n");
    assert_contains("out", "\"first_layer\": 0,\n");
    assert_contains("out", "\"end_layer\": 48\n");
    assert_null(strstr(shell_read("out", NULL), "\"reaches\"")); /* another machine */
    snprintf(line, sizeof line, "$PI place %s -ts 2,1", shape);
    assert_int_equal(sh(line), 0);
    assert_contains("out", "\nGPU 0: ");
    assert_contains("out", "MiB, layers 32-47\n");
    assert_contains("out", "\nlayers are divided for 2048 positions, "); /* opt-30b's */
}

/* Cards differ in bandwidth and in the time of a kernel: a token takes the same bytes, and the same
 * steps on the first two. The others have no programmatic launch: norms merged into products save
 * steps, and an exchange behind the last layer, without such a norm, can pay for few neurons. */
static void test_described_cards(void **state) {
    (void)state;
    static const char *const cards[] = {"h200-server", "rtx-5090-ddr5", "rtx-4090-ddr5",
                                        "rx-7900xtx-ddr5"};
    static const double gbps[] = {4800, 1792, 1008, 960}, step_us[] = {1.4, 1.4, 2.3, 4};
    double before = 0, steps[4], read[4];
    for (int i = 0; i < 4; i++) {
        char options[128];
        snprintf(options, sizeof options, "--shape llama-7b --plain --mode dense --profile %s",
                 cards[i]);
        place(options);
        read[i] = number("gpu_read") + number("cpu_read");
        assert_true(read[i] == read[0]);
        assert_true(number("cpu_read") <= (i < 2 ? 0 : 0.005 * read[i]));
        double seconds = number("seconds_per_token");
        assert_true(seconds > before);
        before = seconds;
        steps[i] = (seconds - number("gpu_read") / (0.8 * gbps[i] * 1e9)) / (step_us[i] * 1e-6);
    }
    assert_true(fabs(steps[1] - steps[0]) < 1);
    assert_true(fabs(steps[3] - steps[2]) < 2); /* with the time of the exchange */
    assert_true(steps[2] < 0.9 * steps[0]);
}

/* All budgets give a placement within the budget, and a larger budget is never slower. */
static void test_budgets(void **state) {
    (void)state;
    const double gib = 1073741824;
    static const char *const budgets[] = {"0",   "1e-9", "0.3", "0.8", "1",   "2.5",
                                          "3.9", "8",    "12",  "100", "1e30"};
    double before = 1e9, seconds = 0;
    enum { N = sizeof budgets / sizeof *budgets };
    for (int i = (N - 1) % EVERY; i < N; i += EVERY) {
        char options[256];
        snprintf(options, sizeof options,
                 "--shape opt-30b --type q4_0 --profile rtx-2080ti-ddr4 --vram-budget %s",
                 budgets[i]);
        place(options);
        seconds = number("seconds_per_token");
        assert_true(seconds <= before * (1 + 2e-5));
        assert_true(number("gpu_bytes") <= strtod(budgets[i], NULL) * gib);
        before = seconds;
    }
    assert_true(number("cpu_read") == 0); /* everything fits */
    double on_gpu = seconds;
    place("--shape opt-30b --profile rtx-2080ti-ddr4 --vram-budget 0");
    assert_true(number("gpu_bytes") == 0 && number("gpu_read") == 0);
    assert_true(number("seconds_per_token") > 5 * on_gpu);
}

/* Experts are placed like neurons: on each device a token reads the experts that it uses. */
static void test_experts(void **state) {
    (void)state;
    const double q4_0 = 18.0 / 32, n_embd = 2048, n_layer = 2, gib = 1073741824;
    double attention = q4_0 * n_embd * (4096 + 2 * 512 + 4096) + 4 * (2 * n_embd + 2 * 128);
    double router = q4_0 * n_embd * 128, expert = q4_0 * 3 * n_embd * 768;
    double head = q4_0 * n_embd * 151936 + 4 * n_embd;
    double reads = n_layer * (attention + router + 8 * expert) + head;
    static const char *const budgets[] = {"0", "0.4", "0.7", "1", "16"};
    double before = 1e9;
    enum { N = sizeof budgets / sizeof *budgets };
    for (int i = (N - 1) % EVERY; i < N; i += EVERY) {
        char options[256];
        snprintf(options, sizeof options,
                 "--shape qwen3-30b-a3b --layers 2 --plain -d 0 -c 64 --profile rtx-2080ti-ddr4 "
                 "--vram-budget %s",
                 budgets[i]);
        place(options);
        assert_non_null(strstr(shell_read("out", NULL), "\"expert\""));
        assert_true(number("of") == 128);
        double is = number("gpu_read") + number("cpu_read"), seconds = number("seconds_per_token");
        assert_true(fabs(is / reads - 1) < 1e-6);
        assert_true(seconds <= before * (1 + 2e-5));
        assert_true(number("gpu_bytes") <= strtod(budgets[i], NULL) * gib);
        before = seconds;
    }
    assert_true(number("cpu_read") == 0);
    /* With sorted experts the GPU holds more of the bytes that are read. */
    const char *half = "--layers 2 -d 0 -c 64 --profile rtx-2080ti-ddr4 --vram-budget 1.1";
    char options[256];
    snprintf(options, sizeof options, "--shape qwen3-30b-a3b --plain %s", half);
    place(options);
    double even = number("cpu_read");
    snprintf(options, sizeof options, "--shape qwen3-30b-a3b %s", half);
    place(options);
    assert_true(even > 0 && number("cpu_read") < 0.7 * even);
}

/* A machine on which even small models use the GPU: kernels and exchanges cost almost nothing. */
static void write_quick(void) {
    static const char text[] =
        "{\"name\": \"quick\", \"sync_us\": 0.1,\n"
        " \"cpu\": {\"stream_gbps\": 43, \"gather_gbps\": 27, \"step_us\": 0.1},\n"
        " \"gpu\": {\"memory_gib\": 12, \"stream_gbps\": 288, \"gather_gbps\": 259,\n"
        "         \"step_us\": 0.1}}";
    shell_write("quick.json", text, strlen(text));
}

/* A file written by synth and its shape have equal placements. */
static void test_shape_is_file(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-opt", "tiny-falcon"};
    write_quick();
    static const char *const modes[] = {"dense", "exact", "predict"};
    static const char *const keys[] = {"gpu_bytes", "cpu_bytes", "gpu_read",
                                       "cpu_read",  "always",    "seconds_per_token"};
    enum { KEYS = sizeof keys / sizeof *keys };
    for (int s = 0; s < FILES; s++) {
        char line[512];
        double file[KEYS];
        snprintf(line, sizeof line, "$PI synth -q --type f16 --rank 32 --shape %s -o s.gguf",
                 shapes[s]);
        assert_int_equal(sh(line), 0);
        for (int m = 0; m < 3; m++) {
            snprintf(line, sizeof line,
                     "-m s.gguf --mode %s --profile quick.json --vram-budget 0.662", modes[m]);
            place(line);
            for (int k = 0; k < KEYS; k++) file[k] = number(keys[k]);
            snprintf(line, sizeof line,
                     "--shape %s --type f16 --rank 32 --mode %s --profile quick.json "
                     "--vram-budget 0.662",
                     shapes[s], modes[m]);
            place(line);
            for (int k = 0; k < KEYS; k++) {
                double off = number(keys[k]) - file[k];
                if (!(off <= 0.02 * file[k] && -off <= 0.02 * file[k]))
                    fail_msg("%s: %s is %g, of a file %g", line, keys[k], file[k] + off, file[k]);
            }
        }
    }
}

/* Bytes that a token reads, as the engine counts them. */
static void test_reads(void **state) {
    (void)state;
    static const struct {
        const char *shape, *mode, *plain;
        double within; /* relative: activity of random tokens is as planned only in the mean */
    } cases[] = {
        /* The engine does not count vectors such as norms. Dense: in a prepared file, rows of down
         * that are multiplied by zero are skipped. */
        {"tiny", "dense", "", 0.05},
        {"tiny", "dense", "--plain --density 0.1", 0.01},
        {"tiny", "exact", "", 0.05},
        {"tiny", "predict", "", 0.05},
        {"tiny", "exact", "--plain --density 0.1", 0.05},
        {"tiny-falcon", "dense", "--plain --density 0.1", 0.01},
        {"tiny-opt", "predict", "", 0.05},
    };
    for (size_t i = 0; i < READS; i++) {
        char line[256];
        snprintf(line, sizeof line, "$PI synth -q --type q8_0 --rank 32 --shape %s %s -o s.gguf",
                 cases[i].shape, cases[i].plain);
        assert_int_equal(sh(line), 0);
        snprintf(line, sizeof line,
                 "$PI bench -q -m s.gguf -t 1 -p 0 -n 100 -d 100 -r 1 --json --mode %s",
                 cases[i].mode);
        assert_int_equal(sh(line), 0);
        double counted = number("bytes_per_token");
        /* tokens at positions 100 to 199 */
        snprintf(line, sizeof line, "-m s.gguf -d 150 --profile cpu-only --mode %s %s",
                 cases[i].mode, cases[i].plain[0] ? "--density 0.1" : "");
        place(line);
        double off = number("cpu_read") / counted - 1;
        if (!(off <= cases[i].within && -off <= cases[i].within))
            fail_msg("%s, %s: %.0f bytes predicted, %.0f counted", cases[i].shape, cases[i].mode,
                     number("cpu_read"), counted);
    }
}

static void test_text(void **state) {
    (void)state;
    assert_int_equal(sh("$PI place --shape llama-7b --profile rtx-3060-ddr4 --vram-budget 2 "
                        "--svg plan.svg"),
                     0);
    assert_contains("out", "predicted: ");
    assert_contains("out", "tokens/s");
    assert_contains("out", "bound by: ");
    assert_contains("out", "budget 2048.0 MiB");
    assert_contains("err", "wrote plan.svg: ");
    assert_contains("err", " KiB, drawing of the placement\n");
    assert_contains("plan.svg", "</svg>");
    assert_contains("plan.svg", "synthetic llama-7b");
    assert_int_equal(sh("$PI place --shape llama-7b --profile rtx-3060-ddr4 --vram-budget 20"), 0);
    assert_contains("err", "exceeds this machine's GPU memory");
    assert_int_equal(sh("$PI place --shape falcon-40b --type f16 --profile rtx-3060-ddr4"), 0);
    assert_contains("err", "exceed this machine's memory");
    assert_int_equal(sh("env -u HOME -u XDG_CACHE_HOME $PI place -m $M"), 0);
    assert_contains("err", "no measurements of this machine");
    assert_contains("out", "no GPU: all of ");
    assert_contains("out", "profile cpu-only");
    assert_contains("out", "with the profile of another machine");
    const char *second = strchr(shell_read("out", NULL), '\n') + 1;
    assert_string_equal(strchr(second, '\n'), "\n"); /* two lines */
}

/* The runtime alone takes more than the budget; with enough for it, the message does not mention
 * it. */
static void test_small_budget(void **state) {
    (void)state;
    assert_int_equal(sh("$PI place --shape tiny --profile rtx-4090-ddr5 --vram-budget 0.1"), 0);
    assert_contains(
        "err", "too little memory: rtx-4090-ddr5: the budget is 102.4 MiB, the runtime takes 400.0 "
               "MiB, the smallest useful placement ");
    assert_int_equal(sh("$PI place --shape tiny --profile rtx-4090-ddr5 --vram-budget 2"), 0);
    assert_err("");
}

/* Width of the first rectangle of a class after the heading of memory. */
static double width_of(const char *class) {
    const char *at = strstr(shell_read("plan.svg", NULL), ">Memory<");
    char quoted[32];
    snprintf(quoted, sizeof quoted, "class=\"%s\"", class);
    while (at && (at = strstr(at + 1, "<rect "))) {
        const char *end = strchr(at, '>'), *found = strstr(at, quoted);
        if (found && found < end) return strtod(strstr(at, "width=\"") + strlen("width=\""), NULL);
    }
    fail_msg("no %s", class);
    return 0;
}

/* Bars of memory have one scale: the ratio of widths is the ratio of bytes. */
static void test_memory_bar(void **state) {
    (void)state;
    const double gib = 1073741824;
    write_quick();
    assert_int_equal(sh("$PI place -q --json --shape tiny --profile quick.json --vram-budget 8 "
                        "--svg plan.svg"),
                     0);
    double share = number("gpu_bytes") / (8 * gib), shown = width_of("gpu") / width_of("free");
    assert_true(share > 0.03 && share < 0.1);
    assert_true(shown > share - 0.005 && shown < share + 0.005);
}

static void test_wrong(void **state) {
    (void)state;
    assert_int_equal(sh("$PI place -m $M --profile abacus"), 1);
    assert_contains("err", "powerinfer: unknown profile: abacus: name a file, or one of cpu-only ");
    assert_int_equal(sh("$PI place --shape pear --profile cpu-only"), 2);
    assert_contains("err", "powerinfer: unknown shape: pear: choose one of ");
    assert_int_equal(sh("$PI place --shape tiny --type q9 --profile cpu-only"), 2);
    assert_err("powerinfer: unknown type of weights: q9: try q4_0 or f16\n");
    assert_int_equal(sh("$PI place --shape tiny --layers 5 --profile cpu-only"), 2);
    assert_err("powerinfer: 5 layers: shape tiny: give 1 to 4\n");
    assert_int_equal(sh("$PI place --shape tiny -m a"), 2);
    assert_err("powerinfer: a file and a shape: -m a and --shape tiny: give one of them\n");
    assert_int_equal(sh("$PI place -m nowhere.gguf"), 1);
    assert_contains("err", "nowhere.gguf");
}

#ifdef TEST_HAS_JSON
/* Measurements are saved and used afterwards; a damaged file is ignored. */
static void test_measure(void **state) {
    (void)state;
    assert_int_equal(
        sh("env XDG_CACHE_HOME=" DRIVE "$PWD/cache/deep $PI place -m $M --measure -t 1"), 0);
    assert_contains("err", "cache/deep/powerinfer/machine.json: ");
    assert_contains("err", " KiB, bandwidths of this machine\n");
    assert_contains("out", "no GPU: all of ");
    assert_contains("cache/deep/powerinfer/machine.json", "\"stream_gbps\": ");
    assert_int_equal(sh("sed -i 's/\"stream_gbps\": [0-9.e+]*/\"stream_gbps\": 33/' "
                        "cache/deep/powerinfer/machine.json; "
                        "env XDG_CACHE_HOME=" DRIVE "$PWD/cache/deep $PI place -m $M"),
                     0);
    assert_contains("out", "cpu: streams 33.0 GB/s");
    assert_int_equal(sh("echo '{' >cache/deep/powerinfer/machine.json; "
                        "env XDG_CACHE_HOME=" DRIVE "$PWD/cache/deep $PI place -m $M"),
                     0);
    assert_contains("err", "machine.json");
    assert_contains("err", "no measurements of this machine");
}

static void test_file(void **state) {
    (void)state;
    static const char text[] =
        "{\"name\": \"desk\", \"cpu\": {\"stream_gbps\": 45, \"gather_gbps\": 27},\n"
        " \"gpu\": {\"memory_gib\": 6, \"stream_gbps\": 300, \"gather_gbps\": 270,\n"
        "         \"step_us\": 0, \"runtime_mib\": 0, \"margin_mib\": 0}, \"sync_us\": 5}";
    shell_write("desk.json", text, strlen(text));
    assert_int_equal(sh("$PI place --shape llama-7b --profile desk.json"), 0);
    assert_contains("out", "profile desk");
    assert_contains("out", "gpu: streams 300.0 GB/s, gathers 270.0 GB/s");
    assert_contains("out", "budget 6144.0 MiB, including a margin of 0.0 MiB");
}

static void test_drive(void **state) {
    (void)state;
    static const char *const drives[] = {"{\"stream_gbps\": 3.5, \"reads_per_second\": 400000}",
                                         "{\"stream_gbps\": 3.5}",
                                         "{\"stream_gbps\": 0, \"reads_per_second\": 1}"};
    for (size_t i = 0; i < sizeof drives / sizeof *drives; i++) {
        char text[512];
        int n = snprintf(text, sizeof text,
                         "{\"name\": \"d\", \"cpu\": {\"stream_gbps\": 45, \"gather_gbps\": 27}, "
                         "\"drive\": %s}",
                         drives[i]);
        shell_write("drive.json", text, (size_t)n);
        assert_int_equal(sh("$PI place --shape llama-7b --profile drive.json"), i ? 1 : 0);
        if (i)
            assert_contains("err", "drive");
        else
            assert_contains("out",
                            "drive: streams 3.50 GB/s, 400000 reads/s of 8 KiB, 2.5 us each");
    }
    shell_write("drive.json", "", 0);
}
/* A drive of 2 GB/s in long reads and 100,000 short ones per second, and bandwidths that give the
 * rest of a token's time. */
static void write_drive(void) {
    static const char text[] =
        "{\"name\": \"d\", \"cpu\": {\"stream_gbps\": 20, \"gather_gbps\": 15},\n"
        " \"drive\": {\"stream_gbps\": 2, \"reads_per_second\": 100000}}";
    shell_write("drive.json", text, strlen(text));
}

/* The predicted bytes from the drive per token are the bytes that the engine reads within that
 * budget. */
static void test_memory_budget(void **state) {
    (void)state;
    const double gib = 1073741824;
    static const struct {
        const char *synth, *run;
        double within; /* relative error of bytes */
        bool of_neurons;
    } cases[] = {{"--shape tiny --type f16 --rank 32 --skew 0.5:0.6 --density 0.4", "--mode dense",
                  0.02, false},
                 {"--shape tiny-moe --type f16", "", 0.5, false},
                 {"--shape tiny --type f16 --rank 32 --skew 0.5:0.6 --density 0.4 --bundle",
                  "--mode predict", 0.35, true}};
    write_drive();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512];
        snprintf(line, sizeof line, "$PI synth -q %s -o m.gguf", cases[i].synth);
        assert_int_equal(sh(line), 0);
        snprintf(line, sizeof line, "-m m.gguf --profile drive.json -c 128 -b 16 %s --ram-budget 9",
                 cases[i].run);
        place(line);
        assert_true(number("drive_reads") == 0 && number("drive") == 0);
        double least = number("needed_bytes");
        double all = number("weight_bytes") + number("buffer_bytes"), seconds = 1e9;
        for (int share = 1; share < 4; share++) { /* quarters between both budgets */
            double budget = (least + (all - least) * share / 4) / gib;
            snprintf(line, sizeof line,
                     "-m m.gguf --profile drive.json -c 128 -b 16 %s --ram-budget %.9f",
                     cases[i].run, budget);
            place(line);
            double bytes = number("drive_read"), reads = number("drive_reads");
            double drive = number("drive"), whole = number("seconds_per_token");
            double memory = strtod(
                strstr(strstr(shell_read("out", NULL), "\"memory\":"), "\"seconds_per_token\":") +
                    20,
                NULL);
            assert_true(bytes > 0 && reads > 0 && fabs(memory - whole - drive) < 1e-9);
            assert_true(memory < seconds); /* more memory, less time */
            seconds = memory;
            /* bundles of 1.5 KiB cost far more than their bytes */
            assert_true(drive >= (cases[i].of_neurons ? 2 : 0.999) * bytes / 2e9);
            snprintf(line, sizeof line,
                     "$PI bench -q -m m.gguf -t 1 -p 0 -n 128 -b 16 -r 1 --json %s "
                     "--ram-budget %.9f",
                     cases[i].run, budget);
            assert_int_equal(sh(line), 0);
            double off = bytes / number("drive_bytes") - 1;
            /* Neighbouring neurons become one read, with the gaps between them: fewer reads than
             * predicted, of more bytes. */
            if (cases[i].of_neurons) assert_true(number("drive_reads") < 1.35 * reads);
            if (cases[i].of_neurons && off < 0) off = 0;
            if (share < 3 && !(off <= cases[i].within && -off <= cases[i].within))
                fail_msg("%s, %d/4: %.0f bytes predicted, %.0f read", cases[i].synth, share, bytes,
                         number("drive_bytes"));
        }
    }
    assert_int_equal(sh("$PI place -m m.gguf --profile drive.json --ram-budget 0.001"), 1);
    assert_contains("err", "memory budget too small: 0.00 GiB: this model needs ");
    assert_int_equal(sh("$PI place -m m.gguf --profile cpu-only -c 128 -b 16 --ram-budget 9"), 0);
    assert_contains("out", "\nmemory budget 9.000 GiB (at least ");
    assert_contains("out", "from the drive, 0.000 ms: predicted ");
    assert_int_equal(sh("$PI place --shape tiny --profile drive.json --ram-budget 1"), 2);
    assert_contains("err", "a memory budget needs a model file: place");
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_described_cards), cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_experts),         cmocka_unit_test(test_shape_is_file),
        cmocka_unit_test(test_reads),           cmocka_unit_test(test_text),
        cmocka_unit_test(test_wrong),           cmocka_unit_test(test_several),
        cmocka_unit_test(test_small_budget),    cmocka_unit_test(test_memory_bar),
#ifdef TEST_HAS_JSON
        cmocka_unit_test(test_measure),         cmocka_unit_test(test_file),
        cmocka_unit_test(test_drive),           cmocka_unit_test(test_memory_budget),
#endif
    };
    return cmocka_run_group_tests_name("cli_place", tests, shell_setup, shell_teardown);
}
