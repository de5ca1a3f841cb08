/* test_cli_template.c: powerinfer template: templates of a model, from a file and by name, and the
 * messages about wrong requests, templates and command lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "gguf_writer.h"

static void write_text(const char *name, const char *text) {
    shell_write(name, text, strlen(text));
}

/* A model file with only a vocabulary of three tokens and two templates. */
static void write_model(const char *path) {
    static const char *const texts[] = {"<unk>", "<s>", "</s>"};
    gguf_string tokens[3];
    gguf_writer *w;
    for (int i = 0; i < 3; i++)
        tokens[i] = (gguf_string){.data = texts[i], .n_bytes = strlen(texts[i])};
    assert_int_equal(gguf_writer_create(path, &w, NULL), PI_OK);
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, 3);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_string(
        w, "tokenizer.chat_template",
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
    gguf_put_string(w, "tokenizer.chat_template.tool_use", "{{ bos_token }}{{ tools|tojson }}");
    assert_int_equal(gguf_writer_begin_data(w, NULL), PI_OK);
    assert_int_equal(gguf_writer_finish(w, NULL), PI_OK);
}

static void test_model(void **state) {
    (void)state;
    write_model("chat.gguf");
    assert_int_equal(sh("$PI template -m chat.gguf -f request.json"), 0);
    assert_out("<s>Hi é</s>");
    assert_err("");
    assert_int_equal(sh("$PI template -m chat.gguf -f request.json --bos A --eos ''"), 0);
    assert_out("AHi é");
    assert_int_equal(sh("$PI template -m chat.gguf -f tools.json"), 0);
    assert_out("<s>[{\"name\": \"f\"}]");
    /* Another template also uses the model's tokens. */
    assert_int_equal(sh("$PI template -m chat.gguf --chat-template-file t.jinja -f request.json"),
                     0);
    assert_out("<s>|Hi é|True");
    assert_int_equal(sh("$PI template -m $M -f request.json"), 1);
    assert_out("");
    assert_contains("err", "powerinfer: the model has no chat template: ");
    assert_contains("err", ": choose one with --chat-template NAME or --chat-template-file FILE\n");
}

static void test_file_and_name(void **state) {
    (void)state;
    assert_int_equal(sh("$PI template --chat-template-file t.jinja -f request.json"), 0);
    assert_out("|Hi é|True");
    assert_int_equal(sh("$PI template --chat-template-file t.jinja -f - <request.json"), 0);
    assert_out("|Hi é|True");
    assert_int_equal(sh("$PI template --chat-template chatml -f request.json"), 0);
    assert_out("<|im_start|>user\nHi é<|im_end|>\n<|im_start|>assistant\n");
    assert_int_equal(sh("$PI template --chat-template list"), 0);
    assert_contains("out", "chatml\n");
    assert_contains("out", "\nllama3\n");
    assert_int_equal(sh("$PI template --chat-template nothing -f request.json"), 1);
    assert_err("powerinfer: no chat template has the name nothing: see --chat-template list\n");
}

static void test_time(void **state) {
    (void)state;
    write_text("now.jinja", "{{ strftime_now('%a %d %b %Y %H:%M:%S %j') }}");
#define NOW "$PI template --chat-template-file now.jinja -f request.json --now "
    assert_int_equal(sh(NOW "2025-07-26T09:05:03"), 0);
    assert_out("Sat 26 Jul 2025 09:05:03 207");
    assert_int_equal(sh(NOW "2024-02-29T23:59:59.5+02:00"), 0);
    assert_out("Thu 29 Feb 2024 23:59:59 060");
    assert_int_equal(sh(NOW "2025-01-01"), 0);
    assert_out("Wed 01 Jan 2025 00:00:00 001");
    assert_wrong(NOW "2025-02-30", "powerinfer: not a time: --now: 2025-02-30: write it as "
                                   "2025-07-26T09:05:03\n");
    assert_wrong(NOW "noon", "powerinfer: not a time: --now: noon: write it as "
                             "2025-07-26T09:05:03\n");
#undef NOW
}

static void test_refused(void **state) {
    (void)state;
    write_text("no.jinja", "some text\n{{ raise_exception('No system role here.') }}");
    assert_int_equal(sh("$PI template --chat-template-file no.jinja -f request.json"), 1);
    assert_out("");
    assert_err("powerinfer: No system role here.\n");
    write_text("wrong.jinja", "some text\n{{ nope.x }}");
    assert_int_equal(sh("$PI template --chat-template-file wrong.jinja -f request.json"), 1);
    assert_out("");
    assert_err("powerinfer: 'nope' is undefined: template line 2\n");
    write_text("syntax.jinja", "{% if %}");
    assert_int_equal(sh("$PI template --chat-template-file syntax.jinja -f request.json"), 1);
    assert_err("powerinfer: expected an expression, got '%}': template line 1\n");
    write_text("endless.jinja", "{% for i in range(99999) %}{% for j in range(99999) %}"
                                "{% endfor %}{% endfor %}");
    assert_int_equal(sh("$PI template --chat-template-file endless.jinja -f request.json"), 1);
    assert_contains("err", "the template ");
    write_text("list.json", "[]");
    assert_int_equal(sh("$PI template --chat-template chatml -f list.json"), 1);
    assert_err("powerinfer: the request is not a JSON object\n");
    write_text("bad.json", "{");
    assert_int_equal(sh("$PI template --chat-template chatml -f bad.json"), 1);
    assert_contains("err", "powerinfer: bad JSON: request line 1");
    assert_int_equal(sh("$PI template --chat-template chatml -f missing.json"), 1);
    assert_contains("err", "missing.json");
}

static void test_command_line(void **state) {
    (void)state;
    assert_wrong("$PI template --chat-template chatml",
                 "powerinfer: no request: template: give one with -f FILE\n");
    assert_wrong("$PI template --chat-template chatml --chat-template-file t.jinja -f request.json",
                 "powerinfer: two templates: --chat-template and --chat-template-file: give one of "
                 "them\n");
}

static int setup(void **state) {
    int status = shell_setup(state);
    if (status != 0) return status;
    write_text("request.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi é\"}],"
                               "\"add_generation_prompt\": true}");
    write_text("tools.json", "{\"messages\": [], \"tools\": [{\"name\": \"f\"}]}");
    write_text("t.jinja",
               "{{ bos_token }}|{{ messages[0].content }}|{{ add_generation_prompt }}\n");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),        cmocka_unit_test(test_file_and_name),
        cmocka_unit_test(test_time),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_command_line),
    };
    return cmocka_run_group_tests_name("cli_template", tests, setup, shell_teardown);
}
