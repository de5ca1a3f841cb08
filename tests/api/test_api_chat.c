/* test_api_chat.c: chat templates of an open model: the choice of the template, its tokens, and
 * refusals. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failing.h"
#include "gguf_writer.h"
#include "powerinfer_chat.h"
#include "run_model.h"
#include "tiny_model.h"

#define TINY_PATH  TEST_BINARY_DIR "/test_api_chat_tiny.gguf"
#define MODEL_PATH TEST_BINARY_DIR "/test_api_chat.gguf"

static pi_error err;

static void ok(pi_status status) {
    if (status != PI_OK) fail_msg("%s", err.message);
}

/* Writes a model with these templates; NULL: none. */
static pi_model *open_model(const char *plain, const char *tools) {
    tiny_model t = tiny_default();
    gguf_file *from;
    gguf_writer *w;
    pi_model *m;
    pi_model_options o = pi_model_default_options();
    o.vocab_only = true;
    t.n_vocab = 300;
    t.vocabulary = true;
    tiny_write(&t, TINY_PATH);
    ok(gguf_open(TINY_PATH, NULL, &from, &err));
    ok(gguf_writer_create(MODEL_PATH, &w, &err));
    for (uint64_t i = 0; i < gguf_n_values(from); i++) gguf_put_value(w, gguf_value_at(from, i));
    if (plain) gguf_put_string(w, "tokenizer.chat_template", plain);
    if (tools) gguf_put_string(w, "tokenizer.chat_template.tool_use", tools);
    ok(gguf_writer_begin_data(w, &err));
    ok(gguf_writer_finish(w, &err));
    gguf_close(from);
    ok(pi_model_open(MODEL_PATH, &o, &m, &err));
    return m;
}

#ifdef TEST_HAS_JSON
static const char hello[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
static const char with_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [{\"name\": \"f\"}]}";

static void check(const pi_chat_template *t, const char *request, const char *want) {
    char *text;
    size_t n;
    ok(pi_chat_template_render(t, request, strlen(request), NULL, &text, &n, &err));
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
    pi_text_free(text);
}

static void test_own(void **state) {
    pi_model *m = open_model("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
                             "{{ tools | length }} tools");
    pi_chat_template *t;
    (void)state;
    ok(pi_chat_template_create(m, NULL, &t, &err));
    check(t, hello, "<s>Hi</s>");
    check(t, with_tools, "1 tools");
    assert_string_equal(pi_chat_template_source(t, true), "{{ tools | length }} tools");
    assert_non_null(strstr(pi_chat_template_source(t, false), "eos_token"));
    pi_chat_template_free(t);
    pi_chat_template_options o = {.bos = "B", .eos = ""};
    ok(pi_chat_template_create(m, &o, &t, &err));
    check(t, hello, "BHi");
    pi_chat_template_free(t);
    pi_model_close(m);
}

static void test_chosen(void **state) {
    static const char source[] = "{{ strftime_now('%Y-%m-%d') }} unused";
    pi_model *m = open_model("own", NULL);
    const struct tm now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 26};
    pi_chat_template_options o = {.name = "chatml"};
    pi_chat_template *t;
    char *text;
    size_t n;
    (void)state;
    ok(pi_chat_template_create(m, &o, &t, &err));
    check(t, hello, "<|im_start|>user\nHi<|im_end|>\n");
    pi_chat_template_free(t);
    o = (pi_chat_template_options){.source = source, .n_source = sizeof source - 8};
    ok(pi_chat_template_create(m, &o, &t, &err));
    ok(pi_chat_template_render(t, hello, strlen(hello), &now, &text, &n, &err));
    assert_string_equal(text, "2025-07-26");
    pi_text_free(text);
    pi_chat_template_free(t);
    ok(pi_chat_template_create(m, NULL, &t, &err));
    check(t, with_tools, "own");
    pi_chat_template_free(t);
    pi_model_close(m);
}

/* Where a template refuses or drops system messages, the user's message begins with them; other
 * templates get them unchanged. */
static void test_system(void **state) {
    static const char request[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"assistant\","
        "\"content\": \"b\"}, {\"role\": \"system\", \"content\": \"c\"}, {\"role\": \"user\","
        "\"content\": \"d\"}, {\"role\": \"system\", \"content\": \"e\"}, {\"role\": \"user\","
        "\"content\": [{\"type\": \"text\", \"text\": \"f\"}]}, {\"role\": \"system\","
        "\"content\": \"g\"}, {\"role\": \"user\"}, {\"role\": \"system\", \"content\": \"h\"}]}";
#define PARTS                                                                                      \
    "{{ m.role[0] }}={% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content "  \
    "%}<{{ p.text }}>{% endfor %}{% endif %};"
    static const char moved[] = "a=b;u=a\n\nc\n\nd;u=<e><f>;u=g;u=h;";
    static const struct {
        const char *source, *want;
    } rows[] = {
        {"{% for m in messages %}{{ raise_exception('no') if m.role == 'system' }}" PARTS
         "{% endfor %}",
         moved},
        {"{% for m in messages if m.role != 'system' %}" PARTS "{% endfor %}", moved},
        {"{% for m in messages %}" PARTS "{% endfor %}", "s=a;a=b;s=c;u=d;s=e;u=<f>;s=g;u=;s=h;"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pi_model *m = open_model(rows[i].source, NULL);
        pi_chat_template *t;
        ok(pi_chat_template_create(m, NULL, &t, &err));
        check(t, request, rows[i].want);
        pi_chat_template_free(t);
        pi_model_close(m);
    }
}

static void test_refusals(void **state) {
    pi_model *m = open_model("{{ raise_exception('no tea') }}", NULL);
    pi_chat_template *t;
    char *text;
    size_t n;
    (void)state;
    ok(pi_chat_template_create(m, NULL, &t, &err));
    assert_int_equal(pi_chat_template_render(t, hello, strlen(hello), NULL, &text, &n, &err),
                     PI_ERR_ARG);
    assert_non_null(strstr(err.message, "no tea"));
    assert_null(text);
    assert_int_equal(pi_chat_template_render(t, "{", 1, NULL, &text, &n, &err), PI_ERR_FORMAT);
    assert_int_equal(pi_chat_template_render(t, "[]", 2, NULL, &text, &n, &err), PI_ERR_ARG);
    pi_chat_template_free(t);
    pi_model_close(m);
}

/* A template that takes too long for one message is refused when it is opened. One that takes too
 * long only for a longer conversation is refused when it renders that conversation. */
static void test_slow(void **state) {
    static const char always[] = "{% for i in range(99999) %}{% for j in range(99999) %}"
                                 "{% endfor %}{% endfor %}",
                      later[] = "{% if messages[0].content == 'Hi' %}{% for i in range(9999) %}"
                                "{% for j in range(500) %}{% endfor %}{% endfor %}{% endif %}";
    pi_model *m = open_model("own", NULL);
    pi_chat_template_options o = {.source = always, .n_source = sizeof always - 1};
    pi_chat_template *t;
    char *text;
    size_t n;
    (void)state;
    assert_int_equal(pi_chat_template_create(m, &o, &t, &err), PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "more steps than it may"));
    assert_null(t);
    o = (pi_chat_template_options){.source = later, .n_source = sizeof later - 1, .seconds = 1e-3};
    ok(pi_chat_template_create(m, &o, &t, &err));
    assert_int_equal(pi_chat_template_render(t, hello, strlen(hello), NULL, &text, &n, &err),
                     PI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "more time than it may"));
    pi_chat_template_free(t);
    pi_model_close(m);
}

static void test_nomem(void **state) {
    pi_model *m = open_model("{{ messages[0].content }}", "x");
    (void)state;
    for (failing f = failing_each(1); failing_next(&f);) {
        pi_chat_template *t = NULL;
        char *text = NULL;
        size_t n;
        pi_status status = pi_chat_template_create(m, NULL, &t, &err);
        if (status == PI_OK)
            status = pi_chat_template_render(t, hello, strlen(hello), NULL, &text, &n, &err);
        pi_text_free(text);
        pi_chat_template_free(t);
        failing_hit(&f, status, &err);
    }
    pi_model_close(m);
}

enum { N_THREADS = 4, N_RENDERED = 50 };

static void *render_often(void *user) {
    for (int i = 0; i < N_RENDERED; i++) {
        char *text;
        size_t n;
        if (pi_chat_template_render(user, hello, strlen(hello), NULL, &text, &n, NULL) != PI_OK ||
            strcmp(text, "Hi") != 0)
            return user;
        pi_text_free(text);
    }
    return NULL;
}

static void test_threads(void **state) {
    pi_model *m = open_model("{{ messages[0].content }}", NULL);
    pi_chat_template *t;
    pthread_t threads[N_THREADS];
    (void)state;
    ok(pi_chat_template_create(m, NULL, &t, &err));
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, t), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    pi_chat_template_free(t);
    pi_model_close(m);
}
#endif

static void test_none(void **state) {
    pi_model *m = open_model(NULL, NULL);
    pi_chat_template_options o = {.name = "nonsense"};
    pi_chat_template *t;
    (void)state;
    assert_int_equal(pi_chat_template_create(m, NULL, &t, &err), PI_ERR_NOT_FOUND);
    assert_null(t);
    assert_int_equal(pi_chat_template_create(m, &o, &t, &err), PI_ERR_NOT_FOUND);
    o = (pi_chat_template_options){.source = "{% if %}", .n_source = 8};
    assert_int_equal(pi_chat_template_create(m, &o, &t, &err), PI_ERR_FORMAT);
    assert_null(t);
    pi_chat_template_free(NULL);
    pi_text_free(NULL);
    pi_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
#ifdef TEST_HAS_JSON
        cmocka_unit_test(test_own),      cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_slow),
        cmocka_unit_test(test_nomem),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_system),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
