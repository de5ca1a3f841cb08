/* test_cli_pages.c: pages generated from the tables: --help by topics with examples, completions
 * (run by the shells), man pages (read by groff); and messages of the library in which the program
 * names its options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"

enum { MAX_COMMANDS = 32, NAME_ROOM = 32 };

static char names[MAX_COMMANDS][NAME_ROOM];
static int n_names;

/* The commands that --help lists. */
static int setup(void **state) {
    if (shell_setup(state) != 0 || sh("$PI --help") != 0) return -1;
    const char *line = strstr(shell_read("out", NULL), "\nCommands\n");
    if (!line) return -1;
    for (line += strlen("\nCommands\n"); strncmp(line, "  ", 2) == 0; line++) {
        snprintf(names[n_names++], NAME_ROOM, "%.*s", (int)strcspn(line + 2, " "), line + 2);
        line = strchr(line, '\n');
        if (!line || n_names == MAX_COMMANDS) return -1;
    }
    return n_names > 10 ? 0 : -1;
}

static void run(const char *format, const char *name) {
    char line[2048];
    snprintf(line, sizeof line, format, name);
    if (sh(line) != 0) fail_msg("%s: %s", line, shell_read("err", NULL));
}

/* Two examples first, which must be valid command lines; then the topics. */
static void test_help(void **state) {
    (void)state;
    for (int i = 0; i < n_names; i++) {
        char start[2048];
        run("$PI %s --help", names[i]);
        snprintf(start, sizeof start, "  powerinfer %s ", names[i]);
        const char *help = shell_read("out", NULL), *second = strchr(help, '\n') + 1;
        if (strncmp(help, start, strlen(start)) != 0 || strncmp(second, start, strlen(start)) != 0)
            fail_msg("%s --help begins with no examples: %.200s", names[i], help);
    }
    static const char *const topics[] = {
        "Text",     "Model",    "Context and KV cache", "CPU",   "Sparsity", "GPU and memory",
        "Sampling", "Grammars", "Speculative decoding", "Output"};
    run("$PI %s --help", "run");
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        char heading[64];
        snprintf(heading, sizeof heading, "\n\n%s\n  ", topics[i]);
        assert_contains("out", heading);
    }
    run("$PI %s --help", "serve");
    assert_contains("out", "\n\nServer\n");
    assert_int_equal(sh("$PI --help"), 0);
    assert_int_equal(strncmp(shell_read("out", NULL), "  powerinfer run ", 17), 0);
}

/* Completions by bash for the words. */
static void complete(const char *words, const char *expected) {
    char line[512];
    snprintf(line, sizeof line,
             "bash -c 'source ./completion.bash; COMP_WORDS=(%s); "
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); [[ $1 ]] && COMP_WORDS+=(\"\") && "
             "((COMP_CWORD++)); _powerinfer; echo \"${COMPREPLY[*]}\"' x %s",
             words, words[strlen(words) - 1] == ' ' ? "1" : "");
    if (sh(line) != 0) fail_msg("%s", shell_read("err", NULL));
    const char *got = shell_read("out", NULL);
    if (strncmp(got, expected, strlen(expected)) != 0 || got[strlen(expected)] != '\n')
        fail_msg("%s: %s", words, got);
}

static void test_bash(void **state) {
    (void)state;
    assert_int_equal(sh("$PI completion bash >completion.bash"), 0);
    if (sh("command -v bash") != 0) skip();
    complete("powerinfer qu", "quantize");
    complete("powerinfer run --max-l", "--max-loss");
    complete("powerinfer run --hf-r", "--hf-repo --hf-repo-draft");
    complete("powerinfer run --mode ", "auto dense exact predict threshold");
    complete("powerinfer chat -ctk q", "q8_0 q4_0 q4_1 q5_0 q5_1");
    complete("powerinfer run --mode = p", "predict");
    complete("powerinfer serve --cal", "");
    complete("powerinfer prepare --cal", "--calibration --calibration-tokens --calibration-window");
    complete("powerinfer run mod", "");
    complete("powerinfer completion z", "zsh");
    complete("powerinfer completion man quant", "quantize");
    complete("powerinfer help quant", "quantize");
}

static void test_other_shells(void **state) {
    (void)state;
    assert_int_equal(sh("$PI completion zsh >_powerinfer; $PI completion fish >powerinfer.fish"),
                     0);
    assert_contains("_powerinfer", "#compdef powerinfer\n");
    assert_contains("_powerinfer", "'( -m --model)'{-m,--model}'[");
    assert_contains("_powerinfer", ":MODE:(auto dense exact predict threshold)'");
    assert_contains("powerinfer.fish", " -l mode -x -a 'auto dense exact predict threshold' -d '");
    if (sh("command -v zsh") == 0) {
        assert_int_equal(sh("zsh -n _powerinfer"), 0);
        assert_err("");
    }
    if (sh("command -v fish") == 0) {
        assert_int_equal(sh("fish -n powerinfer.fish"), 0);
        assert_int_equal(sh("HOME=$PWD fish -c 'source powerinfer.fish; complete -C \"powerinfer "
                            "run --max-l\"'"),
                         0);
        assert_contains("out", "--max-loss");
        assert_int_equal(sh("HOME=$PWD fish -c 'source powerinfer.fish; complete -C \"powerinfer "
                            "run -m powerinfer.f\"; complete -C \"powerinfer completion f\"'"),
                         0);
        assert_out("powerinfer.fish\nfish\n");
    }
}

/* Whether the name occurs in text[n] as a whole: names have letters, digits and dashes. */
static bool has_name(const char *text, size_t n, const char *name) {
    static const char part[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t length = strlen(name);
    for (size_t i = 0; i + length <= n; i++)
        if (strncmp(text + i, name, length) == 0 && (i == 0 || !strchr(part, text[i - 1])) &&
            (i + length == n || !strchr(part, text[i + length])))
            return true;
    return false;
}

/* Whether the section of `text` that begins with `start` (NULL: all) has the name. */
static bool section_has(const char *text, const char *start, const char *end, const char *name) {
    const char *from = start ? strstr(text, start) : text;
    if (!from) return false;
    const char *to = end ? strstr(from + 1, end) : NULL;
    return has_name(from, to ? (size_t)(to - from) : strlen(from), name);
}

/* fish has a line per option, with the commands that have it. */
static bool fish_has(const char *text, const char *command, const char *name) {
    char words[64];
    snprintf(words, sizeof words, " -%c %s ",
             name[1] == '-' ? 'l'
             : name[2]      ? 'o'
                            : 's',
             name + strspn(name, "-"));
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *quote = strchr(line, '\''), *close = quote ? strchr(quote + 1, '\'') : NULL;
        if (!close || close > end || !has_name(quote, (size_t)(close - quote), command)) continue;
        const char *found = strstr(close, words);
        if (found && found < end) return true;
    }
    return false;
}

static char *copy_of(const char *name) {
    char *text = strdup(shell_read(name, NULL));
    assert_non_null(text);
    return text;
}

/* Every name of an option that --help lists is in all completions and in the man page. */
static void test_every_option(void **state) {
    (void)state;
    int n = 0;
    assert_int_equal(
        sh("$PI completion bash >b && $PI completion zsh >z && $PI completion fish >f"), 0);
    char *bash = copy_of("b"), *zsh = copy_of("z"), *fish = copy_of("f");
    for (int i = 0; i < n_names; i++) {
        char start[2][128];
        snprintf(start[0], sizeof start[0], "\n    %.32s)\n        options='", names[i]);
        snprintf(start[1], sizeof start[1], "\n    %.32s)\n        _arguments ", names[i]);
        run("$PI completion man %s | tr -d '\\\\' >page", names[i]);
        run("$PI %s --help | sed '/^Accepted for compatibility/,$d' >help", names[i]);
        char *page = copy_of("page"), *help = copy_of("help");
        for (char *line = help, *end; (end = strchr(line, '\n')); line = end + 1) {
            char *at = line + strspn(line, " ");
            *end = 0;
            if (at == line || at - line > 6 || *at != '-') continue;
            for (bool more = true; more && *at == '-'; n++) {
                size_t length = strcspn(at, ", ");
                more = at[length] == ',';
                at[length] = 0;
                if (!section_has(bash, start[0], ";;\n", at) ||
                    !section_has(zsh, start[1], ";;\n", at) || !fish_has(fish, names[i], at) ||
                    !section_has(page, NULL, NULL, at))
                    fail_msg("%s %s: not in all pages", names[i], at);
                at += length + 2;
            }
        }
        free(page);
        free(help);
    }
    free(bash);
    free(zsh);
    free(fish);
    assert_true(n > 500);
}

/* Every page exists, has the contents of --help, and gives no warnings. */
static void test_man(void **state) {
    (void)state;
    assert_int_equal(sh("$PI completion all share"), 0);
    assert_true(shell_has("share/bash-completion/completions/powerinfer"));
    assert_true(shell_has("share/zsh/site-functions/_powerinfer"));
    assert_true(shell_has("share/fish/vendor_completions.d/powerinfer.fish"));
    assert_contains("share/man/man1/powerinfer.1", ".BR powerinfer\\-run (1)");
    assert_contains("share/man/man1/powerinfer-run.1", ".B \\-\\-top\\-k \\fIN\\fP\n");
    assert_contains("share/man/man1/powerinfer-run.1", ".SS Sampling\n");
    for (int i = 0; i < n_names; i++) {
        char name[2048];
        snprintf(name, sizeof name, "share/man/man1/powerinfer-%s.1", names[i]);
        assert_true(shell_has(name));
    }
    if (sh("command -v groff") == 0) {
        assert_int_equal(sh("groff -man -Tascii -ww -z share/man/man1/*.1"), 0);
        assert_err("");
        assert_int_equal(sh("groff -man -Tascii -P-cbou share/man/man1/powerinfer-run.1"), 0);
        assert_contains("out", "--prompt TEXT");
    }
    assert_wrong("$PI completion", "powerinfer: unknown form: completion \"\": expected bash, zsh, "
                                   "fish, man or all\n");
    assert_int_equal(sh("$PI completion man nothing"), 2);
    assert_int_equal(sh("$PI completion all"), 2);
    assert_int_equal(sh("$PI completion all /dev/null/x"), 1);
}

static void test_named_options(void **state) {
    (void)state;
    assert_int_equal(sh("$PI synth -q -o bundled.gguf --bundle --layers 1; "
                        "$PI synth -q -o plain.gguf --plain --layers 1 --type q8_0; mkdir adapter; "
                        "echo some words of text >text; "
                        "echo '{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8}' "
                        ">adapter/adapter_config.json"),
                     0);
    assert_int_equal(sh("$PI quantize plain.gguf o q4_0"), 2);
    assert_contains("err", "start from the F16 or F32 model, or use --allow-requantize\n");
    assert_int_equal(sh("$PI quantize bundled.gguf o q8_0"), 1);
    assert_contains("err", "with powerinfer prepare --bundle none\n");
    assert_int_equal(sh("$PI prepare --bundle none bundled.gguf -o apart.gguf -q"), 0);
    assert_int_equal(sh("$PI quantize -q apart.gguf o q8_0 --allow-requantize; rm -f o"), 0);
    assert_int_equal(sh("$PI run --device auto -ngl 99 -m $M -p a -n 1 --backend-folder /nowhere"),
                     0);
    assert_contains("err", "warning: running on the CPU: ");
    assert_int_equal(sh("$PI quantize apart.gguf o iq2_xs --allow-requantize"), 2);
    assert_contains("err",
                    "make one with powerinfer imatrix for --imatrix, or choose another type\n");
    assert_int_equal(sh("$PI prepare --bundle all apart.gguf -o o && rm o"), 0);
    assert_contains("err", "only bundles change; use --calibration FILE to prepare it again\n");
    assert_int_equal(sh("seq -s ' the ' 400 >text; $PI prepare $M -o o --calibration text "
                        "--calibration-tokens 512 --max-loss 1e-5"),
                     1);
    assert_contains("err", "or allow a larger one with --max-loss\n");
    if (sh("$PI convert adapter -o o") != 1) fail_msg("%s", shell_read("err", NULL));
#ifdef TEST_HAS_JSON
    assert_contains("err", ": name its folder with --base\n");
#endif
}

static void test_sizes(void **state) {
    (void)state;
    static const char *const good[] = {"1",     "1G",      "1GiB",     "1gb",
                                       "1024M", "1024MiB", "1048576K", "0.001T"};
    static const char *const bad[] = {"8x", "G", "1GG", "-1G", "1 G", "1Gi B", "nanG"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        run("$PI run -m $M -p a -n 1 -q --ram-budget %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "$PI run -m $M -p a --vram-budget '%s'", bad[i]);
        assert_int_equal(sh(line), 2);
        assert_contains("err", "expected a size such as 8 or 8G (GiB), 512M or 1T\n");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),         cmocka_unit_test(test_bash),
        cmocka_unit_test(test_other_shells), cmocka_unit_test(test_every_option),
        cmocka_unit_test(test_man),          cmocka_unit_test(test_named_options),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, setup, shell_teardown);
}
