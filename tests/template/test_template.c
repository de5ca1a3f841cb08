/* test_template.c: the output of templates. The cases of template_cases.json cover every statement,
 * operator, method, filter and test; their texts come from Jinja2 3.1 with Hugging Face's settings,
 * and an error is expected where Jinja2 raises one. Further tests: the built-in templates, one
 * template in several threads, and every allocation failing in turn. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "failing.h"
#include "shared_data.h"
#include "template_case.h"

#ifdef TEST_HAS_JSON

static json_doc *cases;

static int open_cases(void **state) {
    pi_error err;
    (void)state;
    if (json_parse_file(TEST_SOURCE_DIR "/tests/template/template_cases.json", &cases, &err) ==
        PI_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return -1;
}

static int close_cases(void **state) {
    (void)state;
    json_free(cases);
    return 0;
}

static void test_cases(void **state) {
    (void)state;
    const json_node *rows = json_get(json_root(cases), "cases");
    template_input input = case_input(json_get(json_root(cases), "input"));
    size_t failed = 0;
    assert_true(json_count(rows) > 300);
    for (size_t i = 0; i < json_count(rows); i++) {
        const json_node *row = json_at(rows, i);
        const char *source, *wanted;
        size_t n_source, n_wanted, n_text;
        char *text;
        pi_error err = {.status = PI_OK};
        bool error = json_get(row, "error") != NULL;
        assert_true(json_as_string(json_get(row, "template"), &source, &n_source));
        assert_true(json_as_string(json_get(row, error ? "error" : "output"), &wanted, &n_wanted));
        pi_status status = case_render(source, n_source, &input, &text, &n_text, &err);
        bool good = status == PI_OK && n_text == n_wanted && memcmp(text, wanted, n_text) == 0;
        if (error) good = status != PI_OK && strcmp(err.message, wanted) == 0;
        if (!good)
            fprintf(stderr, "%s\n  got    %s\n  wanted %s\n", source, status ? err.message : text,
                    wanted);
        failed += !good;
        mem_free(text);
    }
    assert_int_equal(failed, 0);
}

/* ---- built-in templates ---------------------------------------------------------------------- */

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind. \"},"
    "{\"role\": \"user\", \"content\": \" Hi\"}, {\"role\": \"assistant\", \"content\": \"Hello "
    "\"},"
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Bye\"}]}],"
    "\"add_generation_prompt\": true}";

static const struct {
    const char *name, *text;
} named[] = {
    {"chatml", "<|im_start|>system\nBe kind. <|im_end|>\n<|im_start|>user\n "
               "Hi<|im_end|>\n<|im_start|>assistant\nHello "
               "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
    {"command-r",
     "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be "
     "kind.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|><|"
     "START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|"
     "USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
    {"deepseek", "Be kind. ### Instruction:\n Hi\n### Response:\nHello \n<|EOT|>\n### "
                 "Instruction:\nBye\n### Response:\n"},
    {"deepseek2",
     "Be kind. \n\nUser:  Hi\n\nAssistant: Hello <｜end▁of▁sentence｜>User: Bye\n\nAssistant:"},
    {"deepseek3", "Be kind. \n\n<｜User｜> Hi<｜Assistant｜>Hello "
                  "<｜end▁of▁sentence｜><｜User｜>Bye<｜Assistant｜>"},
    {"exaone3",
     "[|system|]Be "
     "kind.[|endofturn|]\n[|user|]Hi\n[|assistant|]Hello[|endofturn|]\n[|user|]Bye\n[|assistant|]"},
    {"falcon3",
     "<|system|>\nBe kind. \n<|user|>\n Hi\n<|assistant|>\nHello \n<|user|>\nBye\n<|assistant|>\n"},
    {"gemma", "<start_of_turn>user\nBe "
              "kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n<start_of_turn>"
              "user\nBye<end_of_turn>\n<start_of_turn>model\n"},
    {"granite", "<|start_of_role|>system<|end_of_role|>Be kind. "
                "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|> "
                "Hi<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hello "
                "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Bye<|end_of_text|>\n<|start_"
                "of_role|>assistant<|end_of_role|>"},
    {"kimi-k2",
     "<|im_system|>system<|im_middle|>Be kind. <|im_end|><|im_user|>user<|im_middle|> "
     "Hi<|im_end|><|im_assistant|>assistant<|im_middle|>Hello "
     "<|im_end|><|im_user|>user<|im_middle|>Bye<|im_end|><|im_assistant|>assistant<|im_middle|>"},
    {"llama2", "[INST] Be kind. \n Hi [/INST]Hello </s>[INST] Bye [/INST]"},
    {"llama2-sys",
     "[INST] <<SYS>>\nBe kind. \n<</SYS>>\n\n Hi [/INST]Hello </s>[INST] Bye [/INST]"},
    {"llama2-sys-bos",
     "[INST] <<SYS>>\nBe kind. \n<</SYS>>\n\n Hi [/INST]Hello </s><s>[INST] Bye [/INST]"},
    {"llama2-sys-strip",
     "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST]Hello</s>[INST] Bye [/INST]"},
    {"llama3", "<|start_header_id|>system<|end_header_id|>\n\nBe "
               "kind.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_"
               "header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>user<|"
               "end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama4", "<|header_start|>system<|header_end|>\n\nBe "
               "kind.<|eot|><|header_start|>user<|header_end|>\n\nHi<|eot|><|header_start|>"
               "assistant<|header_end|>\n\nHello<|eot|><|header_start|>user<|header_end|>\n\nBye<|"
               "eot|><|header_start|>assistant<|header_end|>\n\n"},
    {"minicpm", "Be kind.<用户>Hi<AI>Hello<用户>Bye<AI>"},
    {"mistral", "[INST] Be kind. \n\n Hi[/INST] Hello</s>[INST] Bye[/INST]"},
    {"mistral-v1", " [INST] Be kind. \n\n Hi [/INST] Hello </s> [INST] Bye [/INST]"},
    {"mistral-v3", "[INST] Be kind. \n\n Hi[/INST] Hello</s>[INST] Bye[/INST]"},
    {"mistral-v3-tekken", "[INST]Be kind. \n\n Hi[/INST]Hello </s>[INST]Bye[/INST]"},
    {"mistral-v7",
     "[SYSTEM_PROMPT] Be kind. [/SYSTEM_PROMPT][INST]  Hi[/INST] Hello </s>[INST] Bye[/INST]"},
    {"mistral-v7-tekken",
     "[SYSTEM_PROMPT]Be kind. [/SYSTEM_PROMPT][INST] Hi[/INST]Hello </s>[INST]Bye[/INST]"},
    {"monarch", "system\nBe kind. </s>\n<s>user\n Hi</s>\n<s>assistant\nHello "
                "</s>\n<s>user\nBye</s>\n<s>assistant\n"},
    {"openchat",
     "Be kind. <|end_of_turn|>GPT4 Correct User:  Hi<|end_of_turn|>GPT4 Correct Assistant: Hello "
     "<|end_of_turn|>GPT4 Correct User: Bye<|end_of_turn|>GPT4 Correct Assistant:"},
    {"orion", "Human: Be kind. \n\n Hi\n\nAssistant: </s>Hello </s>Human: Bye\n\nAssistant: </s>"},
    {"phi3", "<|system|>\nBe kind. <|end|>\n<|user|>\n Hi<|end|>\n<|assistant|>\nHello "
             "<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n"},
    {"phi4", "<|im_start|>system<|im_sep|>Be kind. <|im_end|><|im_start|>user<|im_sep|> "
             "Hi<|im_end|><|im_start|>assistant<|im_sep|>Hello "
             "<|im_end|><|im_start|>user<|im_sep|>Bye<|im_end|><|im_start|>assistant<|im_sep|>"},
    {"plain", "Be kind.\n\n HiHello \n\nBye"},
    {"vicuna", "Be kind. \n\nUSER:  Hi\nASSISTANT: Hello </s>\nUSER: Bye\nASSISTANT:"},
    {"zephyr",
     "<|system|>\nBe kind. <|endoftext|>\n<|user|>\n Hi<|endoftext|>\n<|assistant|>\nHello "
     "<|endoftext|>\n<|user|>\nBye<|endoftext|>\n<|assistant|>\n"},
};

static void render_named(const char *name, const char *wanted) {
    json_doc *doc;
    char *text;
    size_t n;
    pi_error err = {.status = PI_OK};
    const char *source = template_find_builtin(name);
    assert_non_null(source);
    assert_int_equal(json_parse(conversation, strlen(conversation), "request", &doc, &err), PI_OK);
    template_input input = {.request = json_root(doc)};
    if (case_render(source, strlen(source), &input, &text, &n, &err))
        fail_msg("%s: %s", name, err.message);
    if (wanted) assert_string_equal(text, wanted);
    /* Every template names the speaker and the text of each message, in order. */
    const char *first = strstr(text, "Be kind."), *last = strstr(text, "Bye");
    if (!first || !last || first > last) fail_msg("%s: %s", name, text);
    mem_free(text);
    json_free(doc);
}

static void test_names(void **state) {
    (void)state;
    for (size_t i = 0; i < template_builtin_count; i++)
        render_named(template_builtins[i].name, NULL);
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        render_named(named[i].name, named[i].text);
    assert_null(template_find_builtin("no such name"));
}

/* ---- threads and memory ---------------------------------------------------------------------- */

static const char everything[] =
    "{%- macro show(x, more='') -%}<{{ x|upper }}{{ more }}{{ caller() if caller }}>{%- endmacro "
    "-%}"
    "{% set ns = namespace(text='', n=0) %}"
    "{% for m in messages if m.role != 'tool' %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.text = ns.text ~ m.role ~ ': ' ~ (m.content|string|trim) ~ ' é' %}"
    "{{ loop.index }}{{ show(m.role, more=loop.cycle('a', 'b')) }}{% endfor %}"
    "{% call show('x') %}{{ ns.text[::-1] }}{% endcall %}{{ tools|tojson(indent=2) }}"
    "{{ '%5.1f %s'|format(2.5, ns) }}{{ '{:>8}'.format(ns.n) }}{{ d|dictsort }}{{ w|sort|join(',') "
    "}}"
    "{% filter replace('a', 'b') %}{{ recs|groupby('k') }}{{ txt.split() }}{% endfilter %}"
    "{{ {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9}.i }}";

typedef struct rendering {
    const template_program *program;
    const template_input *input;
    char *text;
    size_t n;
} rendering;

static void *render_often(void *argument) {
    rendering *r = argument;
    for (int i = 0; i < 20; i++) {
        mem_free(r->text);
        if (template_render(r->program, r->input, &r->text, &r->n, NULL) != PI_OK) break;
    }
    return NULL;
}

static void test_threads(void **state) {
    enum { THREADS = 3 };
    (void)state;
    pthread_t threads[THREADS];
    rendering work[THREADS];
    template_program *program;
    template_input input = case_input(json_get(json_root(cases), "input"));
    assert_int_equal(template_parse(everything, strlen(everything), &program, NULL), PI_OK);
    for (int i = 0; i < THREADS; i++) {
        work[i] = (rendering){.program = program, .input = &input};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_non_null(work[i].text);
        assert_string_equal(work[i].text, work[0].text);
    }
    for (int i = 0; i < THREADS; i++) mem_free(work[i].text);
    template_free(program);
}

static void test_no_memory(void **state) {
    (void)state;
    template_input input = case_input(json_get(json_root(cases), "input"));
    for (failing f = failing_each(1); failing_next(&f);) {
        char *text;
        size_t n;
        pi_error err = {.status = PI_OK};
        pi_status status = case_render(everything, strlen(everything), &input, &text, &n, &err);
        if (failing_hit(&f, status, &err)) assert_null(text);
        mem_free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}

#else /* requests need jansson */

int main(void) {
    fprintf(stderr, "*** SKIPPED: built without jansson ***\n");
    return SHARED_SKIPPED;
}

#endif
