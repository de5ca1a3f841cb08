/* test_cli_usage.c: help, usage errors, the environment, tokenize, inspect: everything that does
 * not generate. Messages are compared exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"

#define MODEL "$PI tokenize -m $M "

static void test_version_and_help(void **state) {
    (void)state;
    assert_int_equal(sh("$PI --version"), 0);
    assert_out("powerinfer 0.1.0\n");
    assert_err("");
    assert_int_equal(sh("$PI --help"), 0);
    assert_err("");
    static const char *const commands[] = {"run",     "eval",  "tokenize", "bench", "inspect",
                                           "convert", "synth", "template", "serve", "embed"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char text[64], line[64];
        snprintf(text, sizeof text, "\n  %-10s ", commands[i]);
        assert_contains("out", text);
        snprintf(line, sizeof line, "$PI %s --help >help; $PI help %s >help2", commands[i],
                 commands[i]);
        assert_int_equal(sh(line), 0);
        assert_int_equal(sh("cmp help help2"), 0);
        snprintf(text, sizeof text, "usage: powerinfer %s ", commands[i]);
        assert_contains("help", text);
        assert_contains("help", "POWERINFER_");
        sh("$PI --help");
    }
    assert_int_equal(sh("$PI run --help"), 0);
    assert_contains("out", "-n, --predict, --n-predict N");
    assert_contains("out", "(default: 0.8)");
    assert_int_equal(sh("$PI"), 2);
    assert_out("");
    assert_contains("err", "usage: powerinfer COMMAND");
}

static void test_unknown_commands(void **state) {
    (void)state;
    assert_wrong("$PI rum", "powerinfer: unknown command: rum: did you mean run?\n");
    assert_wrong("$PI frobnicate",
                 "powerinfer: unknown command: frobnicate: see powerinfer --help\n");
    assert_wrong("$PI -m x",
                 "powerinfer: no command: -m: name a command first, such as powerinfer run "
                 "-m\n");
}

static void test_wrong_options(void **state) {
    (void)state;
    assert_wrong("$PI run --tmep 1", "powerinfer: unknown option: --tmep: did you mean --temp?\n");
    assert_wrong("$PI run --frobnicate",
                 "powerinfer: unknown option: --frobnicate: see powerinfer run --help\n");
    assert_wrong("$PI tokenize --temp 1",
                 "powerinfer: unknown option: --temp: see powerinfer tokenize --help\n");
    assert_wrong("$PI run -n", "powerinfer: missing value: -n: expected N after it\n");
    assert_wrong(
        "$PI run -n 1x",
        "powerinfer: invalid value: -n \"1x\": expected an integer from -2 to 2147483647\n");
    assert_wrong("$PI run -t 513 -p a",
                 "powerinfer: invalid value: -t \"513\": expected an integer from 0 to 512\n");
    assert_wrong("$PI run --top-p=1.5",
                 "powerinfer: invalid value: --top-p \"1.5\": expected a number from 0 to 1\n");
    assert_wrong("$PI run --temp nan",
                 "powerinfer: invalid value: --temp \"nan\": expected a number\n");
    assert_wrong("$PI run -ctk q4_k",
                 "powerinfer: invalid value: -ctk \"q4_k\": expected one of f16, f32, q8_0, bf16, "
                 "q4_0, q4_1, q5_0, q5_1, iq4_nl\n");
    assert_wrong("$PI run --json=perhaps",
                 "powerinfer: invalid value: --json \"perhaps\": expected 1 or 0\n");
    assert_wrong("$PI run hello",
                 "powerinfer: no such file: hello: name a model here or with -m, a text with -p\n");
    assert_wrong("$PI run $M hello",
                 "powerinfer: unexpected argument: hello: see powerinfer run --help\n");
    assert_wrong("$PI run --keep-it", "powerinfer: unknown option: --keep-it: see powerinfer run "
                                      "--help\n");
    assert_wrong("$PI run --repeat-l 3",
                 "powerinfer: unknown option: --repeat-l: did you mean --repeat-last-n?\n");
    assert_wrong("$PI run -p a -f b", "powerinfer: two prompts: -p and -f: give one of them\n");
    assert_wrong("$PI bench -p 512,x",
                 "powerinfer: invalid value: -p \"512,x\": expected integers such as 512,128\n");
    assert_wrong("$PI synth -o x --skew 2:1", "powerinfer: invalid value: --skew \"2:1\": expected "
                                              "two numbers from 0 to 1, such as 0.26:0.8\n");
    assert_wrong("$PI run --mode fast", "powerinfer: invalid value: --mode \"fast\": expected one "
                                        "of auto, dense, exact, predict, threshold\n");
    assert_wrong("$PI eval", "powerinfer: no token ids: eval: name a file with --tokens\n");
    assert_wrong("$PI eval --tokens x",
                 "powerinfer: no output: eval: name a file with --logits-out\n");
    assert_wrong("$PI convert -o x",
                 "powerinfer: no folder: convert: name one, as in convert DIR -o FILE\n");
    assert_wrong("$PI convert x", "powerinfer: no output: convert: name a file with -o\n");
    assert_wrong("$PI convert x -o y --type q4_k_m",
                 "powerinfer: Q4_K_M is a mix of types: convert gives all matrices one type: "
                 "convert to f16, then quantize that file to Q4_K_M\n");
    assert_wrong("$PI convert x -m z -o y",
                 "powerinfer: two inputs: x and -m z: give one of them\n");
    assert_wrong("$PI synth", "powerinfer: no output: synth: name a file with -o\n");
}

static void test_features_of_later_versions(void **state) {
    (void)state;
    assert_wrong(
        "$PI eval --device gpu",
        "powerinfer: invalid value: --device \"gpu\": expected one of auto, cpu, cuda, hip, "
        "vulkan, sim\n");
    assert_wrong("$PI run --mirostat 3",
                 "powerinfer: invalid value: --mirostat \"3\": expected an integer from 0 to 2\n");
    assert_wrong("$PI run -p a -l 5", "powerinfer: invalid value: --logit-bias \"5\": expected "
                                      "ID+BIAS or ID-BIAS, such as 15043+1 or 15043-inf\n");
    assert_wrong("$PI run -p a -r ''",
                 "powerinfer: the text is empty: --reverse-prompt: give the text to stop at\n");
    assert_wrong("$PI run -j '{}' --grammar x -p a",
                 "powerinfer: two grammars: --grammar, --grammar-file, -j and -jf: give one of "
                 "them\n");
    assert_wrong("$PI run -i", "powerinfer: unknown option: -i: use powerinfer chat\n");
    assert_wrong("$PI run -dr gemma3",
                 "powerinfer: -dr is not supported: models come from Hugging Face: use -hf "
                 "USER/REPO\n");
    assert_wrong("$PI run -np 4", "powerinfer: -np 4 is not supported: run completes one prompt; "
                                  "perplexity and imatrix batch their windows by themselves\n");
}

/* Command lines of scripts for llama.cpp give the same text as the plain command line. */
static void test_compat(void **state) {
    (void)state;
    assert_int_equal(sh("$PI run -q -m $M -p abc -n 5 --temp 0 --ignore-eos >want"), 0);
    static const char *const compat_options[] = {
        "-fa on -ub 512 --no-warmup --mmap -np 1 --no-perf -no-cnv --no-display-prompt "
        "--color auto -t -1 -ngl all --device none -dev none --simple-io --log-colors off -lv 1",
        "-fa --color -ngl auto -tb -1 --flash-attn=auto --warmup --perf --parallel 1 -co",
        "-c 64 --poll 0 --offline --log-disable --ubatch_size 64",
    };
    for (size_t i = 0; i < sizeof compat_options / sizeof compat_options[0]; i++) {
        char line[1024];
        snprintf(line, sizeof line,
                 "$PI run -q -m $M -p abc -n 5 --temp 0 --ignore-eos %s >got; cmp want got",
                 compat_options[i]);
        assert_int_equal(sh(line), 0);
    }
    /* -2: to the end of the context, here ten tokens; the model may be an argument or -m. */
    assert_int_equal(sh("$PI run -q $M -p abc -n -2 --temp 0 --ignore-eos -c 10 >got; "
                        "$PI run -q -m $M -p abc -n 6 --temp 0 --ignore-eos >want; cmp want got"),
                     0);
    assert_wrong("$PI run one -m two", "powerinfer: two files: one and -m two: give one of them\n");
    assert_int_equal(sh("$PI run -q -m $M -p abc -n 2 --temp 0 --display-prompt"), 0);
    assert_int_equal(strncmp(shell_read("out", NULL), "abc", 3), 0);
    assert_int_equal(sh("$PI run -m $M -p abc -n 2 --temp 0 --verbose-prompt"), 0);
    assert_contains("err", "     1 -> '<s>'\n   259 -> ' '\n   260 -> 'a'\n");
    assert_int_equal(sh("$PI bench --list-devices >a; $PI inspect --devices >b; cmp a b"), 0);
}

/* Runs `look` while the program waits in the FIFO `prompt`, after it has set up its threads. $! is
 * the program. */
static void assert_while_running(const char *options, const char *look) {
    char line[1024];
    snprintf(line, sizeof line,
             "cpu=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/self/status); "
             "rm -f prompt; mkfifo prompt; $PI run -m $M -f prompt -n 1 %s >text 2>message & "
             "exec 3>prompt; %s; seen=$?; echo abc >&3; exec 3>&-; wait $! && test $seen = 0",
             options, look);
    if (sh(line) != 0) fail_msg("%s: %s", options, shell_read("message", NULL));
}

static void test_cpus_and_priority(void **state) {
    (void)state;
    static const char only[] = "test \"$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' "
                               "/proc/$!/status)\" = $cpu";
    assert_while_running("-C $(printf %x $((1 << cpu)))", only);
    assert_contains("message", " kernels, 1 thread\n");
    assert_while_running("-Cr $cpu-$cpu --cpu-strict 1 -t 2", only);
#if !defined(_WIN32) /* its priorities are not those of the host */
    assert_while_running("--cpu-range 0-4095 --prio -1",
                         "test $(sed 's/.*) //' /proc/$!/stat | cut -d ' ' -f 17) -ge 10");
#endif
    assert_while_running("--numa isolate --cpu-mask 0xffffffffffffffff", "true");
    assert_while_running("--numa numactl --prio 0", "true");
    assert_wrong("$PI run -m $M -p a -C xyz", "powerinfer: invalid value: --cpu-mask \"xyz\": "
                                              "expected a hexadecimal number, bit N for CPU N\n");
    assert_wrong("$PI run -m $M -p a -Cr 3-1",
                 "powerinfer: invalid value: --cpu-range \"3-1\": expected LO-HI, such as 0-3\n");
    assert_wrong("$PI run -m $M -p a -Cr -",
                 "powerinfer: invalid value: --cpu-range \"-\": expected LO-HI, such as 0-3\n");
    assert_int_equal(sh("$PI run -m $M -p a -Cr 4095-"), 1);
    assert_contains("err",
                    "powerinfer: none of these CPUs is available: --cpu-mask, --cpu-range: ");
}

/* -m names a Hugging Face model: the message has the command line that converts it. */
static void test_hugging_face_models(void **state) {
    (void)state;
    assert_int_equal(sh("mkdir -p hf; : >hf/config.json; : >hf/model.safetensors"), 0);
    static const char *const commands[] = {"run -p a -m", "inspect", "quantize -m",
                                           "imatrix -f x -m"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "$PI %s hf/%s", commands[i], i == 2 ? " out Q8_0" : "");
        assert_int_equal(sh(line), 1);
        assert_err("powerinfer: not a GGUF file but a Hugging Face folder: hf/: convert it with "
                   "powerinfer "
                   "convert hf -o model.gguf\n");
        snprintf(line, sizeof line, "$PI %s hf/model.safetensors%s", commands[i],
                 i == 2 ? " out Q8_0" : "");
        assert_int_equal(sh(line), 1);
        assert_err("powerinfer: not a GGUF file but part of a Hugging Face model: "
                   "hf/model.safetensors: convert it with powerinfer convert hf -o model.gguf\n");
    }
    assert_int_equal(sh("cd hf && $PI run -p a config.json"), 1);
    assert_contains("err", "convert it with powerinfer convert . -o model.gguf\n");
}

/* A model file as the only argument, as dragged onto the program's icon, starts chat. */
static void test_model_alone(void **state) {
    (void)state;
    assert_int_equal(sh("cp $M alone.gguf && printf 'Hello\\n' | $PI alone.gguf && test -s out"),
                     0);
    assert_int_equal(sh("$PI missing.gguf"), 2);
    assert_err("powerinfer: unknown command: missing.gguf: see powerinfer --help\n");
    assert_int_equal(sh("$PI serve -m $M --open --no-webui"), 2);
    assert_contains("err", "there is no page to open");
}

/* serve --open runs xdg-open with the address. */
static void test_open_page(void **state) {
    (void)state;
    assert_int_equal(sh("mkdir -p bin && printf '#!/bin/sh\\necho \"$1\" >opened.new\\n"
                        "mv opened.new opened\\n' >bin/xdg-open && chmod +x bin/xdg-open"),
                     0);
    assert_int_equal(sh("PATH=$PWD/bin:$PATH $PI serve -m $M --open --host 0.0.0.0 --port 0 "
                        "--api-key k --api-prefix /llm >line & p=$!; i=0; while [ ! -e opened ] && "
                        "[ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done; kill -INT $p; wait $p"),
                     0);
    assert_int_equal(sh("sed 's|listening on http://0.0.0.0|http://127.0.0.1|; s|$|/llm/|' line | "
                        "cmp - opened"),
                     0);
}

static void test_environment(void **state) {
    (void)state;
    assert_wrong("POWERINFER_TOP_K=x $PI run -p a",
                 "powerinfer: invalid value: POWERINFER_TOP_K \"x\": expected an integer from -1 "
                 "to 2147483647\n");
    assert_int_equal(sh("POWERINFER_MODEL=$M $PI tokenize --ids -p ab"), 0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("POWERINFER_MODEL=/nowhere " MODEL "--ids -p ab"), 0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("POWERINFER_IDS=1 POWERINFER_PROMPT=ab " MODEL), 0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("POWERINFER_IDS=off POWERINFER_TOP_K=x POWERINFER_PRE= " MODEL "-p a"), 0);
    assert_out("   259 -> ' '\n   260 -> 'a'\n");
    assert_int_equal(sh("POWERINFER_PROMPT=zz " MODEL "--ids -p ab"), 0);
    assert_out("259 260 261\n");
}

static void test_tokenize(void **state) {
    (void)state;
    assert_int_equal(sh(MODEL "--ids --bos -p 'ab c'"), 0);
    assert_out("1 259 260 261 259 262\n");
    assert_int_equal(sh("printf 'ab\\n' | " MODEL "--ids --stdin"), 0);
    assert_out("259 260 261 13\n"); /* byte for byte, newline included */
    assert_int_equal(sh(MODEL "--ids -p 'a\\n'"), 0);
    assert_out("259 260 95 273\n"); /* also in -p: a backslash and an n */
    assert_int_equal(sh("printf '' | " MODEL "--ids"), 0);
    assert_out("\n");
    assert_int_equal(sh(MODEL "--ids -p '</s>'"), 0);
    assert_out("259 63 50 278 65\n"); /* plain text */
    assert_int_equal(sh(MODEL "--ids --special -p 'a</s>'"), 0);
    assert_out("259 260 2\n");
    assert_int_equal(sh(MODEL "-p \"a'\""), 0);
    assert_out("   259 -> ' '\n   260 -> 'a'\n    42 -> '\\''\n");
    assert_int_equal(sh("printf '\\377' | " MODEL), 0);
    assert_out("   259 -> ' '\n   258 -> '\\xFF'\n");
    assert_wrong(MODEL "-p a --stdin", "powerinfer: two texts: -p and --stdin: give one of them\n");
}

static void test_detokenize(void **state) {
    (void)state;
    assert_int_equal(sh(MODEL "--detok -p '259 260 261 259 262'"), 0);
    assert_out("ab c");
    assert_int_equal(sh("printf ' 260\\n\\t261\\n' | " MODEL "--detok"), 0);
    assert_out("ab");
    assert_int_equal(sh(MODEL "--detok -p '260 2'"), 0);
    assert_out("a");
    assert_int_equal(sh(MODEL "--detok --special -p '260 2'"), 0);
    assert_out("a</s>");
    assert_int_equal(sh("printf '\\303\\266\\001\\377x' >text; " MODEL "--ids <text | " MODEL
                        "--detok | cmp - text"),
                     0);
    assert_int_equal(sh(MODEL "--detok -p '260 x'"), 1);
    assert_err("powerinfer: \"x\" is not a token id: -p, line 1: give whole numbers separated by "
               "white space\n");
    assert_int_equal(sh("printf '1\\n286' | " MODEL "--detok"), 1);
    assert_err("powerinfer: token id 286 is outside the vocabulary: standard input, line 2: this "
               "model has ids 0 to 285\n");
    assert_out("");
}

static void test_files_that_are_not_there(void **state) {
    (void)state;
    assert_int_equal(sh("$PI run -m nowhere.gguf -p a"), 1);
    assert_contains("err", "nowhere.gguf: No such file or directory\n");
    assert_int_equal(sh("$PI run -m $M -f nowhere.txt"), 1);
    assert_contains("err", "nowhere.txt: No such file or directory\n");
    assert_int_equal(sh("$PI inspect nowhere.gguf"), 1);
    assert_out("");
    assert_int_equal(sh("printf 'GGUF but not really, and long enough' >bad.gguf; "
                        "$PI run -m bad.gguf -p a"),
                     1);
    assert_contains("err", "bad.gguf");
#if !defined(_WIN32) /* $PI has two words; windows_readme uses the bundled model of the zip */
    assert_int_equal(sh("mkdir lonely; cp $PI lonely/; lonely/powerinfer run -p a"), 1);
    assert_err("powerinfer: no model given and the bundled one is missing: "
               "novella-7m.q8_0.powerinfer.gguf "
               "next to the program: give one with -m FILE\n");
#endif
}

#if !defined(_WIN32)
static void test_bundled_model_is_found(void **state) {
    (void)state;
    assert_int_equal(sh("mkdir -p built/bin built/models && cp $PI built/bin/ && "
                        "cp $M built/models/novella-7m.q8_0.powerinfer.gguf && cd / && "
                        "\"$OLDPWD\"/built/bin/powerinfer tokenize --ids -p ab"),
                     0);
    assert_out("259 260 261\n");
    assert_int_equal(sh("mkdir -p used/bin used/share/powerinfer/models && cp $PI used/bin/ && "
                        "cp $M used/share/powerinfer/models/novella-7m.q8_0.powerinfer.gguf && "
                        "PATH=$PWD/used/bin powerinfer tokenize --ids -p ab"),
                     0);
    assert_out("259 260 261\n");
}

#endif

static void test_output_that_cannot_be_written(void **state) {
    (void)state;
    static const char *const lines[] = {MODEL "-p a >/dev/full", "$PI --version >/dev/full",
                                        "$PI run --help >/dev/full",
                                        "$PI inspect --devices --json >/dev/full"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(sh(lines[i]), 1);
        assert_err("powerinfer: writing failed: standard output: " SHELL_FULL "\n");
    }
#if !defined(_WIN32) /* wine has other descriptors and pipes than the host */
    assert_int_equal(sh("$PI --version >&-"), 1);
    assert_err("powerinfer: writing failed: standard output: Bad file descriptor\n");
    /* A reader that has gone causes no message. */
    assert_int_equal(sh("mkfifo pipe; (exec 3<pipe; exec 3<&-) & exec 4>pipe; wait; "
                        "$PI --version >&4"),
                     1);
    assert_err("");
#endif
}

static void test_inspect(void **state) {
    (void)state;
    assert_int_equal(sh("$PI inspect --devices"), 0);
    assert_int_equal(strncmp(shell_read("out", NULL), "cpu: ", 5), 0);
    assert_contains("out", "\ncuda");
    assert_int_equal(sh("$PI inspect --devices --backend-folder /nowhere"), 0);
    assert_contains(
        "out", "\nsim: no backend sim: /nowhere: there is no libpowerinfer_sim" SHELL_LIBRARY "\n");
    assert_int_equal(sh("$PI inspect -m $M"), 0);
    assert_contains("out", "llama");
    assert_int_equal(sh("$PI inspect $M >one; $PI inspect -m $M >two; cmp one two"), 0);
    assert_wrong("$PI inspect a -m b", "powerinfer: two files: a and -m b: give one of them\n");
}

#if !defined(_WIN32) /* wine does not see that a pipe of the host is closed */
/* A reader that has gone causes no message in any command, only the exit status. */
static void test_gone_reader(void **state) {
    (void)state;
    static const char *const lines[] = {"inspect $M",
                                        "inspect -v $M",
                                        "inspect --json $M",
                                        "inspect --plan $M",
                                        "inspect --devices",
                                        "--help",
                                        "tokenize -m $M -p a",
                                        "template --chat-template list",
                                        "place -q --shape tiny --profile cpu-only"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[256];
        snprintf(line, sizeof line, "{ sleep 0.05; $PI %s 2>said; echo $? >status; } | true",
                 lines[i]);
        assert_int_equal(sh(line), 0);
        assert_string_equal(shell_read("said", NULL), "");
        assert_string_equal(shell_read("status", NULL), "1\n");
    }
}

#endif

/* Help has the same words in every width, and no line exceeds the width, unless it is one word. */
static void test_narrow_help(void **state) {
    (void)state;
    static const char *const commands[] = {"",         "run",   "chat",   "serve",
                                           "quantize", "bench", "prepare"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "$PI %s --help | tr -s ' \n' '\n\n' >wide; COLUMNS=40 $PI %s --help "
                 ">narrow; tr -s ' \n' '\n\n' <narrow | cmp - wide",
                 commands[i], commands[i]);
        assert_int_equal(sh(line), 0);
        assert_int_equal(sh("! grep -E '^.{41}' narrow | grep -E '[^ ] +[^ ]'"), 0);
        assert_int_equal(sh("test $(wc -l <narrow) -gt 20"), 0);
    }
}

/* 2: the command line was wrong; 1: the work failed. */
static void test_statuses(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *line;
    } cases[] = {
        {1, "run -m none -p a"},
        {1, "run -m $M -f none"},
        {1, "eval -m none --tokens ids --logits-out o"},
        {1, "eval -m $M --tokens none --logits-out o"},
        {1, "tokenize -m none -p a"},
        {1, "perplexity -m none -f text"},
        {1, "perplexity -m $M -f none"},
        {1, "bench -m none"},
        {1, "inspect none"},
        {1, "place -m none"},
        {1, "place --shape llama-7b --profile none.json"},
        {1, "prepare none -o o"},
        {1, "prepare --undo $M -o o"},
        {1, "convert none -o o"},
        {1, "quantize none o q8_0"},
        {1, "quantize $M o q8_0 --imatrix none"},
        {1, "imatrix -m none -f text -o o"},
        {1, "imatrix -m $M -f none -o o"},
        {1, "synth -o none/o --plain"},
        {2, "run -m $M -p a --temp hot"},
        {2, "eval -m $M --tokens ids"},
        {2, "perplexity -m $M -f text -c 1"},
        {2, "place --shape none"},
        {2, "place --shape llama-7b --type none"},
        {2, "prepare $M -o o --predictor none-such"},
        {2, "prepare $M -o o --type none"},
        {2, "prepare $M -o $M"},
        {2, "convert . -o o --type none"},
        {2, "quantize $M o none"},
        {2, "quantize $M $M q8_0"},
        {2, "imatrix -m $M -f text -o o -c 0"},
        {2, "synth -o o --shape none"},
        {2, "synth -o o --type none"},
        {2, "synth -o o --rank 40"},
    };
    assert_int_equal(sh("echo some words >text; echo 260 >ids"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256];
        snprintf(line, sizeof line, "$PI %s", cases[i].line);
        int status = sh(line);
        if (status != cases[i].status)
            fail_msg("%s: status %d: %s", line, status, shell_read("err", NULL));
        assert_false(shell_has("o"));
    }
}

/* One line names all options without effect, and no line with -q; standard output does not
 * change. */
static void test_no_effect(void **state) {
    (void)state;
    assert_int_equal(sh("$PI tokenize -m $M -p ab --no-escape --no-bos --no-bos"), 0);
    assert_err("powerinfer: no effect here: --no-escape, --no-bos (see docs/llama-flags.md)\n");
    assert_int_equal(sh("$PI tokenize -m $M -p ab >with"), 0);
    assert_int_equal(sh("$PI tokenize -q -m $M -p ab --no-escape --no-bos >without"), 0);
    assert_err("");
    assert_int_equal(sh("cmp with without"), 0);
    assert_int_equal(sh("LLAMA_ARG_MODEL=$M LLAMA_ARG_ROUTER=1 $PI tokenize -p ab >variable"), 0);
    assert_err("powerinfer: no effect here: LLAMA_ARG_ROUTER (see docs/llama-flags.md)\n");
    assert_int_equal(sh("cmp with variable"), 0);
    /* Options that run passes on to chat are named once. */
    assert_int_equal(sh("$PI run -m $M -st -p ab -n 1 --chat-template chatml --jinja"), 0);
    const char *first = strstr(shell_read("err", NULL), "no effect here: --jinja ");
    assert_true(first && !strstr(first + 1, "no effect"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_and_help),
        cmocka_unit_test(test_unknown_commands),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_features_of_later_versions),
        cmocka_unit_test(test_compat),
        cmocka_unit_test(test_cpus_and_priority),
        cmocka_unit_test(test_hugging_face_models),
        cmocka_unit_test(test_model_alone),
        cmocka_unit_test(test_open_page),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_detokenize),
        cmocka_unit_test(test_files_that_are_not_there),
#if !defined(_WIN32)
        cmocka_unit_test(test_bundled_model_is_found),
#endif
        cmocka_unit_test(test_output_that_cannot_be_written),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_no_effect),
        cmocka_unit_test(test_statuses),
#if !defined(_WIN32)
        cmocka_unit_test(test_gone_reader),
#endif
        cmocka_unit_test(test_narrow_help),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
