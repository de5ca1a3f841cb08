/* test_cli_eval.c: eval, convert and synth, whose results are files. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adapter_file.h"
#include "cli_shell.h"
#include "cli_test_model.h"
#include "file.h"
#include "mem.h"
#include "shared_data.h"

#define EVAL "$PI eval -q -m $M --tokens ids "

static void write_ids(const char *text) {
    shell_write("ids", text, strlen(text));
}

static float *read_floats(const char *name, size_t n) {
    size_t n_bytes;
    const char *data = shell_read(name, &n_bytes);
    assert_int_equal(n_bytes, n * sizeof(float));
    float *values = mem_alloc(n_bytes);
    assert_non_null(values);
    memcpy(values, data, n_bytes);
    return values;
}

/* Normalised mean square error of a against b. */
static double nmse(const float *a, const float *b, size_t n) {
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)b[i] * (double)b[i];
    }
    return error / power;
}

/* Checks that a command fails with this message and leaves no file. */
static void fails(const char *line, const char *message) {
    assert_int_equal(sh(line), 1);
    assert_err(message);
    assert_out("");
    assert_false(shell_has("logits"));
    assert_int_equal(shell_temporaries(), 0);
}

static void test_any_split_gives_the_same_logits(void **state) {
    (void)state;
    enum { N = 12, COUNT = N * TEST_MODEL_VOCAB };
    write_ids("1 260 261 262\n263 264\t259 265 266 267\n268 3\n");
    assert_int_equal(sh(EVAL "--logits-out whole"), 0);
    assert_out("");
    assert_err("");
    float *whole = read_floats("whole", COUNT);
    double power = 0;
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(isfinite(whole[i]));
        power += fabs((double)whole[i]);
    }
    assert_true(power > 1);
    static const char *const lines[] = {EVAL "--logits-out part --batch 1",
                                        EVAL "--logits-out part -b 5",
                                        EVAL "--logits-out part --batch-size=11 -t 1",
                                        EVAL "--logits-out part -ctk f32 -ctv f32 --no-mmap",
                                        "POWERINFER_BATCH_SIZE=2 " EVAL "--logits-out part",
                                        EVAL "--logits-out /dev/stdout >part",
                                        EVAL "--logits-out - | cat >part",
                                        "cat ids | $PI eval -q -m $M --tokens - --logits-out part"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(sh(lines[i]), 0);
        float *part = read_floats("part", COUNT);
        assert_true(nmse(part, whole, COUNT) < 1e-5);
        mem_free(part);
        assert_int_equal(sh("rm part"), 0);
    }
    mem_free(whole);
}

/* RoPE options override keys, whether or not the file has these keys. */
static void test_rope_options(void **state) {
    (void)state;
    static const struct {
        const char *options, *keys;
    } cases[] = {
        {"--rope-freq-base 5e5", "--override-kv llama.rope.freq_base=float:5e5"},
        {"--rope-scale 4", "--override-kv llama.rope.scaling.factor=float:4"},
        /* heads of 16 elements: 1e4 * 128^(16 / 14) */
        {"--rope-freq-base 2.56e6", "--override-kv llama.rope.scaling.alpha=float:128"},
        {"--rope-freq-scale 0.25", "--override-kv llama.rope.scaling.factor=float:4"},
        {"--rope-scaling yarn --rope-scale 8 --yarn-orig-ctx 32 --yarn-beta-fast 4 "
         "--yarn-beta-slow 0.5 --yarn-attn-factor 1.5 --yarn-ext-factor 0.5",
         "--override-kv llama.rope.scaling.type=str:yarn "
         "--override-kv llama.rope.scaling.factor=float:8 "
         "--override-kv llama.rope.scaling.original_context_length=int:32 "
         "--override-kv llama.rope.scaling.yarn_beta_fast=float:4 "
         "--override-kv llama.rope.scaling.yarn_beta_slow=float:0.5 "
         "--override-kv llama.rope.scaling.attn_factor=float:1.5 "
         "--override-kv llama.rope.scaling.yarn_ext_factor=float:0.5"},
    };
    char line[1024];
    write_ids("1 260 261 262 263 264 259 265 266 267 268 3");
    assert_int_equal(sh(EVAL "--logits-out plain"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(line, sizeof line, EVAL "--logits-out a %s", cases[i].options);
        assert_int_equal(sh(line), 0);
        assert_err(""); /* no warning about missing keys */
        snprintf(line, sizeof line, EVAL "--logits-out b %s && cmp a b && ! cmp -s a plain",
                 cases[i].keys);
        assert_int_equal(sh(line), 0);
    }
    assert_int_equal(sh(EVAL "--logits-out a --rope-scale 4 --rope-scaling none && cmp a plain"),
                     0);
    assert_int_equal(sh(EVAL "--logits-out a --rope-freq-base 0 --rope-scale 0 --yarn-ext-factor "
                             "-1 --yarn-attn-factor -1 && cmp a plain"),
                     0); /* llama.cpp's defaults change nothing */
    assert_int_equal(sh(EVAL "--logits-out a --rope-scaling magic"), 2);
    assert_contains("err", "expected one of model, none, linear, yarn");
    assert_int_equal(sh("rm plain a b"), 0);
}

/* Whether the logits of a reference model differ for two values of a key. */
static bool values_matter(const char *path, const char *key, const char *one, const char *other) {
    char line[2 * PATH_MAX];
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "$PI eval -q -m %s --tokens ids --logits-out base%d --override-kv \"*.%s:%s\"",
                 path, i, key, i ? other : one);
        assert_int_equal(sh(line), 0);
    }
    const bool same = sh("cmp -s base0 base1") == 0;
    assert_int_equal(sh("rm base0 base1"), 0);
    return !same;
}

static void test_keys_of_rotation(void **state) {
    (void)state;
    char path[PATH_MAX];
    write_ids("1 20 30 44 52 63 71 83 92 101 110 121 130 141");
    /* Layers with a window have a separate base, unless the architecture has only one. */
    if (!shared_path(path, sizeof path, "conformance/more/afmoe-moe.gguf")) return;
    assert_true(values_matter(path, "rope.freq_base_swa=float", "1e4", "5e5"));
    if (!shared_path(path, sizeof path, "conformance/more/cohere2-dense.gguf")) return;
    assert_false(values_matter(path, "rope.freq_base_swa=float", "1e4", "5e5"));
    /* rope.scaling.finetuned is a switch in granite files, without effect in others. */
    if (!shared_path(path, sizeof path, "conformance/more/minicpm-dense.gguf")) return;
    assert_false(values_matter(path, "rope.scaling.finetuned=bool", "true", "false"));
}

/* Overridden keys of the file: only results that depend on them change. */
static void test_overridden_keys(void **state) {
    (void)state;
    write_ids("1 260 261 262 263 264 259 265 266 267 268 3");
    assert_int_equal(sh(EVAL "--logits-out plain"), 0);
    assert_int_equal(sh("$PI eval -m $M --tokens ids --logits-out other --override-kv "
                        "llama.rope.freq_base=float:10000 && cmp plain other"),
                     0); /* the default of a missing key */
    assert_contains("err", "warning: override of llama.rope.freq_base: the file has no such key: ");
    assert_int_equal(sh(EVAL "-q --logits-out other --override-kv llama.rope.freq_base=float:5e5"),
                     0);
    assert_err("");
    assert_int_equal(sh("! cmp -s plain other"), 0);
    assert_int_equal(sh("$PI run -m $M -v -p abc -n -1 -r a -c 0 --override-kv "
                        "llama.context_length=int:17 --ignore-eos --temp 0"),
                     0);
    assert_contains("err", "context:     17 tokens");
    assert_int_equal(sh("$PI tokenize -m $M --ids -p ab --override-kv "
                        "tokenizer.ggml.add_space_prefix=bool:false"),
                     0);
    assert_out("260 261\n");
    assert_int_equal(sh("$PI tokenize -m $M --ids -p ab --override-kv "
                        "tokenizer.ggml.model=str:nonesuch"),
                     1);
    assert_int_equal(sh(EVAL "-q --logits-out x --override-kv llama.block_count=float:1"), 2);
    assert_contains("err", "powerinfer: cannot override llama.block_count: it is an integer in ");
    static const char *const bad[][2] = {
        {"a", "invalid value: --override-kv \"a\": expected KEY=TYPE:VALUE with TYPE int, float, "
              "bool or str"},
        {"=int:5", "invalid value: --override-kv \"=int:5\": expected KEY=TYPE:VALUE with TYPE "
                   "int, float, bool or str"},
        {"a=int:5x", "invalid value: --override-kv a \"5x\": expected an integer"},
        {"a=float:", "invalid value: --override-kv a \"\": expected a number"},
        {"a=bool:1", "invalid value: --override-kv a \"1\": expected true or false"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[256], message[256];
        snprintf(line, sizeof line, "$PI run -m $M -p a --override-kv '%s'", bad[i][0]);
        snprintf(message, sizeof message, "powerinfer: %s\n", bad[i][1]);
        assert_wrong(line, message);
    }
}

static void test_progress_goes_to_standard_error(void **state) {
    (void)state;
    write_ids("1 260");
    assert_int_equal(sh("$PI eval -m $M --tokens ids --logits-out /dev/null --kernels scalar -t 1"),
                     0);
    assert_out("");
    const char *line = shell_read("err", NULL);
    assert_int_equal(strncmp(line, "2 tokens, ", 10), 0);
    assert_non_null(strstr(line, "scalar kernels, 1 thread\n"));
}

static void test_bad_ids(void **state) {
    (void)state;
    write_ids("1 2\n286 3");
    fails(EVAL "--logits-out logits",
          "powerinfer: token id 286 is outside the vocabulary: ids, line 2: this model has ids 0 "
          "to 285\n");
    write_ids("1 -2");
    fails(EVAL "--logits-out logits",
          "powerinfer: token id -2 is outside the vocabulary: ids, line 1: this model has ids 0 to "
          "285\n");
    write_ids("1 99999999999999999999");
    fails(EVAL "--logits-out logits",
          "powerinfer: \"99999999999999999999\" is not a token id: ids, line 1: give whole numbers "
          "separated by white space\n");
    write_ids("1, 2");
    fails(
        EVAL "--logits-out logits",
        "powerinfer: \"1,\" is not a token id: ids, line 1: give whole numbers separated by white "
        "space\n");
    write_ids(" \n");
    fails(EVAL "--logits-out logits", "powerinfer: no token ids: ids: give at least one\n");
    fails("$PI eval -m $M --tokens nowhere --logits-out logits",
          "powerinfer: cannot open file: nowhere: No such file or directory\n");
}

/* Models with two sets of RoPE divisors choose by the context length, which -c sets. */
static void test_context_chooses_rotation(void **state) {
    (void)state;
    char path[PATH_MAX], line[2 * PATH_MAX];
    static const char *const lengths[] = {"", "-c 256", "-c 257"}; /* original context 256 */
    if (!shared_path(path, sizeof path, "conformance/more/phi3-dense.gguf")) return;
    write_ids("1 20 30 44 52 63 71 83");
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "$PI eval -q -m %s --tokens ids --logits-out turn%d %s", path,
                 i, lengths[i]);
        assert_int_equal(sh(line), 0);
    }
    assert_int_equal(sh("cmp turn0 turn1 && ! cmp -s turn0 turn2 && rm turn0 turn1 turn2"), 0);
}

/* Caches of four bits, in several forms of attention: close to the reference, but not equal. */
static void test_cache_of_four_bits(void **state) {
    (void)state;
    static const char *const names[] = {"gemma3-dense", "deepseek2-moe", "gpt-oss-moe",
                                        "qwen3next-moe"};
    char base[PATH_MAX], relative[64], line[4 * PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(relative, sizeof relative, "conformance/more/%s.gguf", names[i]);
        if (!shared_path(base, sizeof base, relative)) return;
        base[strlen(base) - strlen(".gguf")] = 0;
        snprintf(line, sizeof line,
                 "$PI eval -q -m %s.gguf --tokens %s.tokens.txt --logits-out few -ctk q4_0 -ctv "
                 "iq4_nl && ln -sf %s.logits.f32 all",
                 base, base, base);
        assert_int_equal(sh(line), 0);
        char *few, *all;
        size_t n_few, n_all;
        pi_error err;
        assert_int_equal(file_read("few", 1 << 26, &few, &n_few, &err), PI_OK);
        assert_int_equal(file_read("all", 1 << 26, &all, &n_all, &err), PI_OK);
        assert_int_equal(n_few, n_all);
        double error = nmse((const float *)(const void *)few, (const float *)(const void *)all,
                            n_all / sizeof(float));
        if (!(error > 1e-9 && error < 1e-2)) fail_msg("%s: NMSE %g", names[i], error);
        mem_free(few);
        mem_free(all);
    }
    assert_int_equal(sh("rm few all"), 0);
}

static void test_context_limits(void **state) {
    (void)state;
    write_ids("1 2 3 4 5");
    fails(
        EVAL "--logits-out logits -c 4",
        "powerinfer: 5 tokens do not fit into a context of 4: give a larger one with -c, or fewer "
        "tokens\n");
    assert_int_equal(sh(EVAL "--logits-out logits -c 5"), 0);
    mem_free(read_floats("logits", 5 * TEST_MODEL_VOCAB));
    /* eval accepts more tokens than the training context. */
    char many[4 * TEST_MODEL_CONTEXT];
    size_t n = 0;
    for (int i = 0; i < TEST_MODEL_CONTEXT + 10; i++) {
        memcpy(many + n, "5 ", 3);
        n += 2;
    }
    write_ids(many);
    assert_int_equal(sh(EVAL "--logits-out logits"), 0);
    mem_free(read_floats("logits", (TEST_MODEL_CONTEXT + 10) * TEST_MODEL_VOCAB));
    assert_int_equal(sh("rm logits"), 0);
    fails(EVAL "--logits-out logits -c 0", "powerinfer: 74 tokens do not fit into a context of 64: "
                                           "give a larger one with -c, or fewer "
                                           "tokens\n");
}

static void test_output_that_cannot_be_written(void **state) {
    (void)state;
    write_ids("1 2 3");
    assert_int_equal(sh(EVAL "--logits-out /dev/full"), 1);
    assert_contains("err", "No space left on device\n");
    assert_int_equal(sh(EVAL "--logits-out nofolder/logits"), 1);
    assert_contains("err", "nofolder/logits: No such file or directory");
    assert_int_equal(sh(EVAL "--logits-out /proc/logits"), 1);
    assert_int_equal(sh("mkdir folder; " EVAL "--logits-out folder"), 1);
    assert_int_equal(shell_temporaries(), 0);
    /* A failure keeps the earlier file. */
    shell_write("logits", "old", 3);
    write_ids("1 999");
    assert_int_equal(sh(EVAL "--logits-out logits"), 1);
    assert_string_equal(shell_read("logits", NULL), "old");
}

/* All forms of the options that give scale 0.5. */
static void test_adapters(void **state) {
    (void)state;
    static const char *const ways[] = {"--lora a,b:1.gguf:0.5",
                                       "--lora-scaled a,b:1.gguf 0.5",
                                       "--lora-scaled a,b:1.gguf:0.5",
                                       "--lora a:0.25,a --lora-scaled a:-0.75",
                                       "--lora a:0.75 --lora-scaled a -0.25",
                                       "--lora=a:1,a:-0.5"};
    write_ids("1 260 261 262 263 264");
    static const adapter_matrix value = {"blk.1.attn_v.weight", 64, 32}; /* of the test model */
    adapter_file_write(TEST_BINARY_DIR "/test_cli_eval.lora", "llama", &value, 1);
    assert_int_equal(
        sh("rm -f logits; mv " TEST_BINARY_DIR "/test_cli_eval.lora a; cp a a,b:1.gguf"), 0);
    assert_int_equal(sh(EVAL "--logits-out plain"), 0);
    assert_int_equal(sh(EVAL "--lora a:0.5 --logits-out half"), 0);
    assert_int_equal(sh("cmp -s plain half"), 1);
    float *want = read_floats("half", 6 * TEST_MODEL_VOCAB);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char line[256];
        snprintf(line, sizeof line, EVAL "%s --logits-out other", ways[i]);
        assert_int_equal(sh(line), 0);
        float *got = read_floats("other", 6 * TEST_MODEL_VOCAB);
        assert_true(nmse(got, want, 6 * TEST_MODEL_VOCAB) < 1e-8);
        mem_free(got);
    }
    mem_free(want);
    fails(
        "$PI eval -m a --tokens ids --logits-out logits",
        "powerinfer: a LoRA adapter, not a model: a: name its model with -m, and the adapter with "
        "--lora\n");
    fails(EVAL "--lora nowhere --logits-out logits",
          "powerinfer: cannot open file: nowhere: No such file or directory\n");
    assert_wrong(EVAL "--lora ,a --logits-out logits",
                 "powerinfer: invalid value: --lora: an empty name: expected FILE[:SCALE]\n");
    assert_int_equal(sh(EVAL "--lora $M --logits-out logits"), 1);
    assert_contains("err",
                    ": general.type is '', not adapter; give the model itself as the model\n");
    assert_false(shell_has("logits"));
}

#if !defined(_WIN32) /* no program can send a signal to another one */
static void test_signals_leave_no_file(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int status;
    } signals[] = {{"INT", 130}, {"TERM", 143}};
    assert_int_equal(sh("yes 5 | head -n 200000 >many"), 0);
    for (int i = 0; i < 2; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "$PI eval -q -m $M --tokens many --logits-out unborn --batch 1 & "
                 "until ls -l /proc/$!/fd | grep \"$PWD/\\(unborn\\|.*(deleted)\\)\" || ! kill -0 "
                 "$!; do "
                 "sleep 0.1; done >ls 2>&1; "
                 "kill -%s $!; wait $!",
                 signals[i].name);
        assert_int_equal(sh(line), signals[i].status);
        assert_contains("ls", " -> "); /* the link still exists */
        assert_false(shell_has("unborn"));
        assert_int_equal(shell_temporaries(), 0);
    }
}

#endif

static void test_synth_writes_a_model(void **state) {
    (void)state;
    assert_int_equal(sh("$PI synth -o tiny.gguf --shape tiny --type f16 --seed 3 --plain -q"), 0);
    assert_out("");
    assert_err("");
    assert_int_equal(sh("$PI synth -o again.gguf --shape tiny --type f16 --seed 3 --plain"), 0);
    assert_contains("err", "wrote again.gguf: ");
    assert_contains("err", " MiB, shape tiny, f16\n");
    assert_out("");
    assert_int_equal(sh("cmp tiny.gguf again.gguf"), 0);
    assert_int_equal(sh("$PI synth -o other.gguf --shape tiny --type f16 --seed 4 --plain -q"), 0);
    assert_int_equal(sh("cmp -s tiny.gguf other.gguf"), 1);
    write_ids("1 2 3");
    assert_int_equal(sh("$PI eval -q -m tiny.gguf --tokens ids --logits-out logits"), 0);
    assert_int_equal(sh("$PI run -m tiny.gguf -p a"), 1); /* no tokenizer */
    assert_int_equal(strncmp(shell_read("err", NULL), "powerinfer: ", 12), 0);
    assert_int_equal(sh("$PI synth -o x.gguf --shape nothing"), 2);
    assert_int_equal(sh("$PI synth -o nofolder/x.gguf --shape tiny"), 1);
    assert_false(shell_has("x.gguf"));
    assert_int_equal(shell_temporaries(), 0);
}

static void test_convert_and_reference(void **state) {
    (void)state;
    char path[1024], line[4096];
    if (!shared_path(path, sizeof path, "models/novella-7m/reference.logits.f32")) skip();
    snprintf(line, sizeof line,
             "S=%s/../shared/models/novella-7m; $PI convert $S -o novella.gguf --type f16 -q && "
             "$PI eval -q -m novella.gguf --tokens $S/reference.tokens.txt --logits-out logits "
             "-ctk f32 -ctv f32 && cp $S/reference.logits.f32 reference",
             TEST_SOURCE_DIR);
    assert_int_equal(sh(line), 0);
    assert_out("");
    enum { COUNT = 42 * 4096 };
    float *logits = read_floats("logits", COUNT), *reference = read_floats("reference", COUNT);
    assert_true(nmse(logits, reference, COUNT) < 1e-5);
    mem_free(logits);
    mem_free(reference);
    assert_int_equal(sh("mkdir empty; $PI convert empty -o x.gguf"), 1);
    assert_false(shell_has("x.gguf"));
    assert_int_equal(shell_temporaries(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_split_gives_the_same_logits),
        cmocka_unit_test(test_rope_options),
        cmocka_unit_test(test_keys_of_rotation),
        cmocka_unit_test(test_overridden_keys),
        cmocka_unit_test(test_progress_goes_to_standard_error),
        cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_context_chooses_rotation),
        cmocka_unit_test(test_cache_of_four_bits),
        cmocka_unit_test(test_context_limits),
        cmocka_unit_test(test_output_that_cannot_be_written),
        cmocka_unit_test(test_adapters),
#if !defined(_WIN32)
        cmocka_unit_test(test_signals_leave_no_file),
#endif
        cmocka_unit_test(test_synth_writes_a_model),
        cmocka_unit_test(test_convert_and_reference),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
