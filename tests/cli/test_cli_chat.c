/* test_cli_chat.c: powerinfer chat without a terminal: messages as lines, commands, JSON, reuse
 * between turns, saved conversations, refusals; and run with a grammar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"

#define CHAT "$PI chat -q -m $M --chat-template chatml --temp 0 --ignore-eos -c 512 "

/* Returns the number for a key in the n-th line of JSON (from 0). */
static int number(int line, const char *key) {
    const char *at = shell_read("out", NULL);
    char name[64];
    for (int i = 0; i < line && at; i++) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *found = at ? strstr(at, name) : NULL;
    if (!found) fail_msg("line %d has no %s", line, key);
    return (int)strtol(found + strlen(name), NULL, 10);
}

static int n_lines(void) {
    int n = 0;
    for (const char *c = shell_read("out", NULL); *c; c++) n += *c == '\n';
    return n;
}

static void test_lines(void **state) {
    (void)state;
    assert_int_equal(sh("printf 'ab\\n\\ncd\\n' | " CHAT "-n 4 --json"), 0);
    assert_int_equal(n_lines(), 2);
    assert_contains("out", "{\"role\":\"assistant\",");
    assert_int_equal(number(0, "tokens"), 4);
    assert_int_equal(number(0, "cached_tokens"), 0);
    /* The second prompt begins with the first prompt and its answer; tokens that were never fed are
     * not cached. */
    assert_true(number(1, "cached_tokens") >= number(0, "prompt_tokens"));
    assert_true(number(1, "prompt_tokens") > number(0, "prompt_tokens") + 4);
    assert_err("");
    /* A last line without newline is a message; empty input is no message. */
    assert_int_equal(sh("printf 'ab' | " CHAT "-n 2 --json"), 0);
    assert_int_equal(n_lines(), 1);
    assert_int_equal(sh(CHAT "-n 2 --json </dev/null"), 0);
    assert_out("");
}

/* Reuse changes no answer: the second answer equals the answer to the whole conversation. */
static void test_same_answer(void **state) {
    (void)state;
    assert_int_equal(sh("printf 'ab\\n/save talk\\ncd\\n' | " CHAT "-n 6 --json | tail -n 1 | "
                        "sed 's/\"prompt_tokens.*//' >first"),
                     0);
    assert_int_equal(sh("printf '/load talk\\ncd\\n' | " CHAT "-n 6 --json | "
                        "sed 's/\"prompt_tokens.*//' >second"),
                     0);
    assert_int_equal(sh("cmp first second && test -s first"), 0);
    assert_contains("talk", "{\"role\":\"user\",\"content\":\"ab\"}\n{\"role\":\"assistant\",");
}

static void test_commands(void **state) {
    (void)state;
    assert_int_equal(sh("printf 'ab\\n/regen\\n/clear\\nab\\n' | " CHAT "-n 3 --json"), 0);
    assert_int_equal(n_lines(), 3);
    assert_int_equal(number(1, "prompt_tokens"), number(0, "prompt_tokens"));
    assert_int_equal(number(1, "cached_tokens"), number(0, "prompt_tokens") - 1);
    assert_int_equal(number(2, "prompt_tokens"), number(0, "prompt_tokens"));
    assert_int_equal(sh("printf 'ab\\n/edit abcdefgh\\n' | " CHAT "-n 3 --json"), 0);
    assert_true(number(1, "prompt_tokens") > number(0, "prompt_tokens"));
    assert_int_equal(sh("printf '/system be\\nab\\n/save talk\\n' | " CHAT "-n 1 --json"), 0);
    assert_contains("talk", "{\"role\":\"system\",\"content\":\"be\"}\n");
    assert_int_equal(
        sh("printf '/system be\\n/system is\\nab\\n/save talk\\n' | " CHAT "-n 1 --json"), 0);
    assert_contains("talk", "{\"role\":\"system\",\"content\":\"is\"}\n{\"role\":\"user\"");
    assert_int_equal(sh("printf '/help\\n/stats\\n/exit\\nab\\n' | " CHAT "-n 1 --json"), 0);
    assert_out("");
    assert_contains("err", "/regen ");
    assert_contains("err", "context: 0 of 512 tokens\n");
    assert_int_equal(sh("echo /regne | " CHAT), 1);
    assert_err("powerinfer: no such command: /regne: did you mean /regen?\n");
    assert_int_equal(sh("echo /regen | " CHAT), 1);
    assert_err("powerinfer: there is no message yet\n");
    assert_int_equal(sh("echo /load nothing | " CHAT), 1);
    assert_contains("err", "powerinfer: ");
    shell_write("bad", "{\"role\": \"user\"}\n", 17);
    assert_int_equal(sh("echo /load bad | " CHAT), 1);
    assert_err("powerinfer: not a message of a saved conversation: bad, line 1\n");
}

static void test_options(void **state) {
    (void)state;
    assert_int_equal(sh(CHAT "-n 3 -p 'a\\nb' -sys 'x y' --json"), 0);
    assert_int_equal(n_lines(), 1);
    /* -p without a terminal: only this message; standard input is not read. */
    assert_int_equal(sh("yes | " CHAT "-n 1 -p a --json"), 0);
    assert_int_equal(n_lines(), 1);
    assert_int_equal(sh("yes | " CHAT "-n 1 -st --json"), 0);
    assert_int_equal(n_lines(), 1);
    assert_int_equal(sh("$PI run -m $M -cnv --chat-template chatml -n 1 -p a -c 256 --json"), 0);
    assert_contains("err", "run: conversation mode: starting chat\n");
    assert_contains("out", "{\"role\":\"assistant\",");
    assert_int_equal(sh("$PI chat -q -m $M -p a --chat-template nothing"), 1);
    assert_contains("err", "no chat template has the name nothing: see powerinfer template");
    assert_int_equal(sh(CHAT "-c 8 -p 'a long message for a short context'"), 1);
    assert_contains("err", "tokens but the context holds 8: ");
    assert_wrong("$PI chat --chat-template a --chat-template-file b",
                 "powerinfer: two templates: --chat-template and --chat-template-file: give one of "
                 "them\n");
    shell_write("t.jinja", "{{ raise_exception('no tea') }}", 31);
    assert_int_equal(sh("$PI chat -q -m $M -p a --chat-template-file t.jinja"), 1);
    assert_contains("err", "no tea");
}

/* The text is what the grammar says, whatever the model would have written. */
/* A template that refuses system messages, as a built-in one does: the user's message begins with
 * the system message. */
static void test_system(void **state) {
    (void)state;
    assert_int_equal(
        sh("printf '%s' \"{% for m in messages %}{{ raise_exception('no') if m.role == "
           "'system' }}{{ m.role[0] }}{{ m.content }}{% endfor %}\" >refuses.jinja && "
           "printf '%s' \"{% for m in messages %}{{ m.role[0] }}{{ m.content }}"
           "{% endfor %}\" >takes.jinja"),
        0);
#define SYSTEM_CHAT "$PI chat -q -m $M --temp 0 --ignore-eos -n 3 --json --chat-template-file "
    assert_int_equal(sh(SYSTEM_CHAT "refuses.jinja -sys abc -p de"), 0);
    const int moved = number(0, "prompt_tokens");
    assert_int_equal(sh(SYSTEM_CHAT "takes.jinja -p 'abc\n\nde'"), 0);
    assert_int_equal(moved, number(0, "prompt_tokens"));
    /* `template` shows the template's own message. */
    assert_int_equal(
        sh("printf '{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]}' >sys.json && "
           "$PI template --chat-template-file refuses.jinja -f sys.json"),
        1);
    assert_err("powerinfer: no\n");
}

/* A model without a template: the answer continues the text. */
static void test_no_template(void **state) {
    (void)state;
#define PLAIN "$PI chat -m $M --temp 0 --ignore-eos -n 6 -c 256 -p abc "
    assert_int_equal(sh(PLAIN ">first && cat err >said"), 0);
    assert_contains("said", "the model has no chat template: answers continue the text");
    assert_contains("said", "--chat-template NAME");
    assert_contains("said", "--chat-template-file FILE");
    assert_int_equal(sh(PLAIN "-q --chat-template plain >second && cmp first second"), 0);
    assert_err("");
    assert_int_equal(sh("$PI run -q -m $M --temp 0 --ignore-eos -n 6 -c 256 -p abc >third && "
                        "cmp first third && test -s first"),
                     0);
}

/* The bundled model tells a story, one paragraph per answer, of any length. */
static void test_bundled(void **state) {
    (void)state;
    assert_int_equal(sh("printf 'The king\\n%s\\nHe said\\n' \"$(yes 'on and on' | head -n 400 | "
                        "tr '\\n' ' ')\" | $PI chat -q -s 3 --json"),
                     0);
    assert_int_equal(n_lines(), 3);
    assert_err("");
    for (int i = 0; i < 3; i++)
        assert_true(number(i, "tokens") > 0 && number(i, "prompt_tokens") < 700);
    assert_contains("out", "\"stop\":\"stop\"");
    assert_null(strstr(shell_read("out", NULL), "\\n\\n"));
    assert_null(strstr(shell_read("out", NULL), "\"stop\":\"length\""));
    assert_int_equal(sh("echo '{\"messages\":[{\"role\":\"user\",\"content\":\"A king \"},"
                        "{\"role\":\"assistant\",\"content\":\" ate.\"},"
                        "{\"role\":\"user\",\"content\":\"Then\"}]}' | $PI template -f -"),
                     0);
    assert_out("A king ate.\n\nThen");
}

static void test_grammar(void **state) {
    (void)state;
    assert_int_equal(sh("$PI run -q -m $M -p a --grammar 'root ::= \"yes\" | \"no\"'"), 0);
    assert_int_equal(sh("$PI run -q -m $M -p a -s 1 --grammar 'root ::= (\"yes\" | \"no\"){5}' | "
                        "grep -Eqx '(yes|no){5}'"),
                     0);
    assert_int_equal(sh("$PI run -q -m $M -p a --temp 0 --ignore-eos --grammar "
                        "'root ::= \"abc\"' --json"),
                     0);
    assert_contains("out", "\"text\": \"abc\"");
    assert_contains("out", "\"stop\": \"eos\"");
    shell_write("g", "root ::= [0-9]{3}\n", 18);
    assert_int_equal(sh("$PI run -q -m $M -p a --grammar-file g | grep -Eqx '[0-9]{3}'"), 0);
    assert_int_equal(sh("$PI run -q -m $M -p a --grammar 'root ::= ('"), 1);
    assert_err("powerinfer: group without its closing ): grammar, line 1\n");
    assert_int_equal(sh("$PI run -q -m $M -p a --grammar 'root ::= root \"a\"'"), 1);
    assert_contains("err", "left recursion");
#ifdef TEST_HAS_JSON
    assert_int_equal(sh("$PI run -q -m $M -p a -j '{\"type\":\"integer\",\"minimum\":10,"
                        "\"maximum\":12}' | grep -Eqx '1[0-2]'"),
                     0);
    shell_write("s", "{\"enum\":[true,null]}", 20);
    assert_int_equal(sh("$PI run -q -m $M -p a -jf s | grep -Eqx 'true|null'"), 0);
    assert_int_equal(sh(CHAT "-n 9 -p a -j '{\"const\":[1]}'"), 0);
    assert_out("[1]\n");
    assert_int_equal(sh("$PI run -q -m $M -p a -j '{\"not\":{}}'"), 1);
    assert_contains("err", "JSON Schema: $: no text can satisfy the schema");
#endif
}

/* Variables of the template, set by each option that sets some. */
static void test_variables(void **state) {
    (void)state;
    static const char text[] =
        "{%- if want == 'mood' and mood != 'calm' %}{{ raise_exception('no mood') }}{% endif %}"
        "{%- if want == 'off' and enable_thinking %}{{ raise_exception('thinks') }}{% endif %}"
        "{%- if want == 'on' and not enable_thinking %}{{ raise_exception('idles') }}{% endif %}"
        "{%- if want == 'high' and reasoning_effort != 'high' %}{{ raise_exception('low') }}"
        "{% endif %}{{ messages[-1].content }}";
    static const struct {
        const char *options;
        int status;
    } rows[] = {
        {"--chat-template-kwargs '{\"want\":\"mood\",\"mood\":\"calm\"}'", 0},
        {"--chat-template-kwargs '{\"want\":\"mood\"}'", 1},
        {"--chat-template-kwargs '{\"want\":\"off\"}' --reasoning-budget 0", 0},
        {"--chat-template-kwargs '{\"want\":\"off\"}' -rea off", 0},
        {"--chat-template-kwargs '{\"want\":\"off\"}' --reasoning-effort none", 0},
        {"--chat-template-kwargs '{\"want\":\"off\"}' -rea on", 1},
        {"--chat-template-kwargs '{\"want\":\"on\"}' -rea on", 0},
        {"--chat-template-kwargs ' {\"want\":\"on\",\"enable_thinking\":true} ' -rea off", 0},
        {"--chat-template-kwargs '{\"want\":\"high\"}' --reasoning-effort high", 0},
        {"--chat-template-kwargs '{\"want\":\"high\"}' --reasoning-effort low", 1},
        {"--chat-template-kwargs '{ }'", 0},
        {"--chat-template-kwargs '[]'", 2},
        {"--chat-template-kwargs '{\"a\":}'", 2},
        {"--chat-template-kwargs 'mood'", 2}};
    shell_write("kwargs.jinja", text, sizeof text - 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        for (int run = 0; run < 2; run++) {
            snprintf(line, sizeof line,
                     "echo ab | $PI %s -q -m $M --temp 0 -c 512 -n 1 --chat-template-file "
                     "kwargs.jinja %s",
                     run ? "run" : "chat", rows[i].options);
            if (run && !strstr(line, "want\":\"mood")) continue; /* others: chat only */
            if (sh(line) != rows[i].status) fail_msg("%s: %s", line, shell_read("err", NULL));
        }
    }
    assert_contains("err", "powerinfer: invalid value: --chat-template-kwargs \"mood\": expected a "
                           "JSON object");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),   cmocka_unit_test(test_lines),
        cmocka_unit_test(test_same_answer), cmocka_unit_test(test_commands),
        cmocka_unit_test(test_options),     cmocka_unit_test(test_system),
        cmocka_unit_test(test_no_template), cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_grammar),
    };
    return cmocka_run_group_tests(tests, shell_setup, shell_teardown);
}
