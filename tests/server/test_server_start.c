/* test_server_start.c: the effects of start options: defaults of requests, which routes exist and
 * where, files that are served, slots that are saved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server_case.h"

static server_case c;
static char folder[256];

static int open_all(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/server_start_XXXXXX", TEST_BINARY_DIR);
    if (!mkdtemp(folder)) return -1;
    case_open(&c);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    case_close(&c);
    char line[300];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

static void begin(void) {
    c.options.served.n_slots = 2;
    case_start(&c);
}

/* Restores the options that a test has changed. */
static void end(const server_options *before) {
    case_stop(&c);
    c.options = *before;
}

static void check_prompt(const char *body, const char *has, bool wanted) {
    http_reply r = http_post(&c, "/apply-template", body);
    assert_int_equal(r.status, 200);
    if ((strstr(http_text(&r, "prompt"), has) != NULL) != wanted)
        fail_msg("%s: %s", body, http_text(&r, "prompt"));
    http_free(&r);
}

/* Default variables of the template; a request may override each. */
static void test_variables(void **state) {
    (void)state;
    const server_options before = c.options;
    static const char source[] = "{{ enable_thinking }} {{ reasoning_effort }} {{ mood }}|";
    c.options.served.template_name = NULL;
    c.options.served.template_source = source;
    c.options.served.n_template = strlen(source);
    c.options.served.template_variables =
        "{\"enable_thinking\": false, \"reasoning_effort\": \"low\", \"mood\": \"calm\"}";
    begin();
    check_prompt("{" HELLO "}", "False low calm|", true);
    check_prompt("{" HELLO ",\"enable_thinking\":true}", "True low calm|", true);
    check_prompt("{" HELLO ",\"reasoning_effort\":\"high\"}", "False high calm|", true);
    check_prompt("{" HELLO ",\"chat_template_kwargs\":{\"mood\":\"wild\"}}", "False low wild|",
                 true);
    end(&before);
    pi_error err = {.status = PI_OK};
    c.options.served.template_variables = "{\"a\": }";
    assert_int_equal(server_start(&c.options, &c.server, &err), PI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "chat-template-kwargs"));
    c.options.served.template_variables = "[1]";
    assert_int_equal(server_start(&c.options, &c.server, &err), PI_ERR_FORMAT);
    c.options = before;
}

static int64_t cached_again(const char *extra) {
    char body[256];
    int64_t n = 0;
    snprintf(body, sizeof body,
             "{\"prompt\":\"Once upon a time there was a small cat\",\"n_predict\":2%s}", extra);
    for (int i = 0; i < 2; i++) {
        http_reply r = http_post(&c, "/completion", body);
        assert_int_equal(r.status, 200);
        n = http_int(&r, "tokens_cached");
        http_free(&r);
    }
    return n;
}

static void test_defaults(void **state) {
    (void)state;
    const server_options before = c.options;
    begin();
    assert_true(cached_again("") > 4);
    assert_int_equal(cached_again(",\"cache_prompt\":false"), 0);
    check_prompt("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                 "\"content\":\"b\"}]}",
                 "b<|im_end|>", false);
    http_reply r = http_ask(&c, "GET", "/slots", NULL, NULL);
    assert_int_equal(r.status, 200);
    http_free(&r);
    http_refused(&c, "/slots/0?action=save", "{\"filename\":\"a\"}", 501);
    end(&before);
    c.options.served.evaluates_all = c.options.served.completes_messages = c.options.hides_slots =
        true;
    begin();
    assert_int_equal(cached_again(""), 0);
    assert_true(cached_again(",\"cache_prompt\":true") > 4);
    check_prompt("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                 "\"content\":\"b\"}]}",
                 "b<|im_end|>", true);
    r = http_ask(&c, "GET", "/slots", NULL, NULL);
    assert_int_equal(r.status, 404);
    http_free(&r);
    end(&before);
}

/* A template that opens reasoning, which the model continues. */
static void test_reasoning_format(void **state) {
    (void)state;
    static const char source[] = "{{ messages[0].content }}<think>";
    const server_options before = c.options;
    c.options.served.template_name = NULL;
    c.options.served.template_source = source;
    c.options.served.n_template = strlen(source);
    for (int keeps = 0; keeps < 2; keeps++) {
        c.options.served.keeps_reasoning = keeps;
        begin();
        http_reply r = http_post(&c, "/v1/chat/completions", "{" HELLO ",\"max_tokens\":4}");
        assert_int_equal(http_json(&r, "choices.0.message.reasoning_content") == NULL, keeps);
        http_free(&r);
        r = http_post(&c, "/v1/chat/completions",
                      "{" HELLO ",\"max_tokens\":4,\"reasoning_format\":\"auto\"}");
        assert_non_null(http_json(&r, "choices.0.message.reasoning_content"));
        http_free(&r);
        case_stop(&c);
    }
    c.options = before;
}

static int get(const char *path, const char *method) {
    http_reply r = http_ask(&c, method, path, NULL, NULL);
    int status = r.status;
    http_free(&r);
    return status;
}

static void test_prefix(void **state) {
    (void)state;
    static const char *const keys[] = {"secret"};
    const server_options before = c.options;
    c.options.api_prefix = "/llm";
    c.options.api_keys = keys;
    c.options.n_api_keys = 1;
    begin();
    assert_int_equal(get("/llm/health", "GET"), 200);
    assert_int_equal(get("//llm//health/", "GET"), 200);
    assert_int_equal(get("/llm/", "GET"), 200);
    assert_int_equal(get("/llm/v1/models", "GET"), 401);
    assert_int_equal(get("/health", "GET"), 404);
    assert_int_equal(get("/v1/models", "GET"), 404);
    assert_int_equal(get("/llmhealth", "GET"), 404);
    assert_int_equal(get("/", "GET"), 404);
    http_reply r = http_ask(&c, "GET", "/llm", NULL, NULL);
    assert_int_equal(r.status, 308);
    assert_non_null(strstr(r.headers, "ocation: /llm/\r\n"));
    http_free(&r);
    end(&before);
}

/* "localhost": pages of this machine, by any of its loopback names. */
static void test_local_origins(void **state) {
    (void)state;
    static const char *const origins[] = {"localhost"};
    static const struct {
        const char *origin;
        int status;
    } rows[] = {{"http://localhost:5173", 200}, {"https://127.0.0.1:8443", 200},
                {"http://[::1]:3000", 200},     {"http://localhost.example.org", 403},
                {"http://example.org", 403},    {"null", 403}};
    const server_options before = c.options;
    for (int named = 0; named < 2; named++) {
        c.options.origins = origins;
        c.options.n_origins = named;
        begin();
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char header[128];
            snprintf(header, sizeof header, "Origin: %s\r\n", rows[i].origin);
            http_reply r = http_ask(&c, "GET", "/v1/models", header, NULL);
            assert_int_equal(r.status, named ? rows[i].status : 403);
            http_free(&r);
        }
        case_stop(&c);
    }
    c.options = before;
}

static void put_file(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void check_file(const char *path, const char *text, const char *type) {
    http_reply r = http_ask(&c, "GET", path, NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, text);
    if (!strstr(r.headers, type)) fail_msg("%s: %s", path, r.headers);
    http_free(&r);
}

static void test_files(void **state) {
    (void)state;
    static const char *const keys[] = {"secret"};
    static const char *const missing[] = {"/../secret.txt",
                                          "/%2e%2e/secret.txt",
                                          "/site/../../secret.txt",
                                          "/.hidden",
                                          "/out",
                                          "/out/passwd",
                                          "/etc/passwd",
                                          "/none.html",
                                          "/a/..%2f..%2fsecret.txt",
                                          "/%2e%2e%2fsecret.txt",
                                          "/pipe"};
    const server_options before = c.options;
    char path[600], site[512];
    snprintf(site, sizeof site, "%s/site", folder);
    assert_int_equal(mkdir(site, 0700), 0);
    snprintf(path, sizeof path, "%s/a", site);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file("secret.txt", "secret");
    put_file("site/index.html", "<p>own</p>");
    put_file("site/a/index.html", "in a");
    put_file("site/a/x.js", "x()");
    put_file("site/.hidden", "hidden");
    snprintf(path, sizeof path, "%s/out", site);
    assert_int_equal(symlink("/etc", path), 0);
    snprintf(path, sizeof path, "%s/in.js", site);
    assert_int_equal(symlink("a/x.js", path), 0);
    snprintf(path, sizeof path, "%s/pipe", site);
    assert_int_equal(mkfifo(path, 0600), 0);
    c.options.static_path = site;
    c.options.api_keys = keys;
    c.options.n_api_keys = 1;
    begin();
    check_file("/", "<p>own</p>", "text/html");
    check_file("/a", "in a", "text/html");
    check_file("/a/x.js", "x()", "text/javascript");
    check_file("/in.js", "x()", "text/javascript");
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (get(missing[i], "GET") != 404) fail_msg("%s", missing[i]);
    assert_int_equal(get("/health", "GET"), 200);
    assert_int_equal(get("/v1/models", "GET"), 401);
    assert_int_equal(get("/a/x.js", "DELETE"), 401);
    end(&before);
}

/* Slot 0 reads a prompt, is saved and erased, and slot 1 restores the file. */
static void test_slots(void **state) {
    (void)state;
    static const char prompt[] =
        "{\"prompt\":\"The dog ran over the hill to find its ball\",\"n_predict\":3,\"id_slot\":0}";
    static const char *const wrong[] = {"{\"filename\":\"../x\"}", "{\"filename\":\"\"}",
                                        "{\"filename\":\".x\"}",   "{\"filename\":\"a/b\"}",
                                        "{\"filename\":7}",        "{}"};
    const server_options before = c.options;
    char path[512];
    c.options.slot_folder = folder;
    begin();
    http_reply r = http_post(&c, "/completion", prompt);
    assert_int_equal(http_int(&r, "id_slot"), 0);
    http_free(&r);
    r = http_post(&c, "/slots/0?action=save", "{\"filename\":\"dog.bin\"}");
    assert_int_equal(r.status, 200);
    int64_t n = http_int(&r, "n_saved");
    assert_true(n > 8 && http_int(&r, "n_written") > 1000 && http_int(&r, "id_slot") == 0);
    assert_string_equal(http_text(&r, "filename"), "dog.bin");
    http_free(&r);
    snprintf(path, sizeof path, "%s/dog.bin", folder);
    assert_int_equal(access(path, R_OK), 0);
    r = http_post(&c, "/slots/0?action=erase", "");
    assert_int_equal(http_int(&r, "n_erased"), n);
    http_free(&r);
    http_refused(&c, "/slots/0?action=save", "{\"filename\":\"none.bin\"}", 400);
    case_stop(&c); /* another server restores it as well */
    begin();
    r = http_post(&c, "/slots/1?action=restore", "{\"filename\":\"dog.bin\"}");
    assert_int_equal(http_int(&r, "n_restored"), n);
    http_free(&r);
    r = http_post(&c, "/completion",
                  "{\"prompt\":\"The dog ran over the hill to find its ball\",\"n_predict\":3}");
    assert_int_equal(http_int(&r, "id_slot"), 1);
    assert_true(http_int(&r, "tokens_cached") > 8);
    http_free(&r);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        http_refused(&c, "/slots/0?action=save", wrong[i], 400);
    http_refused(&c, "/slots/2?action=save", "{\"filename\":\"a\"}", 404);
    http_refused(&c, "/slots/x?action=save", "{\"filename\":\"a\"}", 404);
    http_refused(&c, "/slots/0?action=burn", "{\"filename\":\"a\"}", 400);
    http_refused(&c, "/slots/0", "{\"filename\":\"a\"}", 400);
    http_refused(&c, "/slots/0?action=restore", "{\"filename\":\"none.bin\"}", 404);
    put_file("bad.bin", "no saved session");
    http_refused(&c, "/slots/1?action=restore", "{\"filename\":\"bad.bin\"}", 400);
    end(&before);
}

/* A slot with a running sequence is saved when the sequence has ended. */
static void test_busy_slot(void **state) {
    (void)state;
    const server_options before = c.options;
    c.options.slot_folder = folder;
    c.options.served.n_slots = 1;
    case_start(&c);
    int fd = socket_open(&c);
    static const char body[] =
        "{\"prompt\":\"One day\",\"n_predict\":120,\"ignore_eos\":true,\"id_slot\":0}";
    char request[512];
    snprintf(request, sizeof request,
             "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    socket_send(fd, request);
    for (int busy = 0; !busy;) {
        http_reply r = http_ask(&c, "GET", "/slots", NULL, NULL);
        busy = strstr(r.body, "\"is_processing\":true") || strstr(r.body, "\"n_tokens\":1");
        http_free(&r);
    }
    http_reply r = http_post(&c, "/slots/0?action=save", "{\"filename\":\"busy.bin\"}");
    assert_int_equal(r.status, 200);
    assert_true(http_int(&r, "n_saved") >= 120);
    http_free(&r);
    size_t n;
    free(socket_read_all(fd, &n));
    close(fd);
    end(&before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_reasoning_format),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_local_origins),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_busy_slot),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
