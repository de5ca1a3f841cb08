/* test_server_adapters.c: scales of LoRA adapters that change between requests: answers are those
 * of a model that was opened with the scales, running answers keep theirs, and prompts that were
 * read with other scales are not reused. Properties that clients change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapter_file.h"
#include "server_case.h"

#define ADAPTER TEST_BINARY_DIR "/test_server_adapters.gguf"
#define FOLDER  TEST_BINARY_DIR "/test_server_adapters.cache"

enum { N_ADAPTERS = 2 };

static server_case c;
static pi_model_info info;
static const server_adapter adapters[N_ADAPTERS] = {{ADAPTER, 0}, {ADAPTER, 0}};
static int n_opened;
static char *alone[3]; /* answers of servers that were started with these scales */
static const float scales_of[3][N_ADAPTERS] = {{0, 0}, {1, 0}, {0.5f, -1}};

static pi_status open_scaled(void *user, const model_opening *how, served_options *out,
                             void **opened, pi_error *err) {
    pi_adapter items[N_ADAPTERS];
    pi_model_options o = pi_model_default_options();
    pi_model *model = NULL;
    (void)user;
    n_opened++;
    for (int i = 0; i < N_ADAPTERS; i++)
        items[i] = (pi_adapter){.path = adapters[i].path, .scale = how->scales[i]};
    o.adapters = items;
    o.n_adapters = N_ADAPTERS;
    const pi_status status = pi_model_open(CASE_MODEL, &o, &model, err);
    if (status != PI_OK) return status;
    *out = c.options.served;
    out->model = model;
    *opened = model;
    return PI_OK;
}

static void close_scaled(void *opened) {
    pi_model_close(opened);
}

static server_adapter at_start[N_ADAPTERS];
static const server_model only = {.name = "novella",
                                  .path = CASE_MODEL,
                                  .adapters = at_start,
                                  .n_adapters = N_ADAPTERS,
                                  .idle_seconds = -1,
                                  .at_start = true,
                                  .is_default = true,
                                  .open = open_scaled,
                                  .close = close_scaled};

static void start(const float *scales) {
    for (int i = 0; i < N_ADAPTERS; i++) at_start[i] = (server_adapter){ADAPTER, scales[i]};
    n_opened = 0;
    case_start(&c);
}

#define QUESTION                                                                                   \
    "{\"prompt\":\"Once upon a time there was a king who had three daughters, and the\","          \
    "\"max_tokens\":16,\"ignore_eos\":true}"

static char *ask(void) {
    http_reply r = http_post(&c, "/v1/completions", QUESTION);
    if (r.status != 200) fail_msg("%s", r.body);
    char *text = strdup(http_text(&r, "choices.0.text"));
    http_free(&r);
    return text;
}

static int set_up(void **state) {
    case_open_model(state);
    pi_model_get_info(case_model, &info);
    const adapter_matrix out = {"blk.1.attn_output.weight", (uint64_t)info.n_embd,
                                (uint64_t)info.n_embd};
    adapter_file_write(ADAPTER, info.architecture, &out, 1);
    case_open(&c);
    c.options.served.store.max_bytes = 64 << 20;
    c.options.served.n_ctx = 2048;
    c.options.models = &only;
    c.options.n_models = 1;
    for (int i = 0; i < 3; i++) {
        start(scales_of[i]);
        alone[i] = ask();
        case_stop(&c);
    }
    return 0;
}

static int tear_down(void **state) {
    for (int i = 0; i < 3; i++) free(alone[i]);
    case_close(&c);
    unlink(ADAPTER);
    return case_close_model(state);
}

static void expect(int i) {
    char *text = ask();
    assert_string_equal(text, alone[i]);
    free(text);
}

static void set_scales(const char *body) {
    http_reply r = http_post(&c, "/lora-adapters", body);
    if (r.status != 200) fail_msg("%s", r.body);
    http_free(&r);
}

static void test_scales(void **state) {
    (void)state;
    assert_string_not_equal(alone[0], alone[1]);
    assert_string_not_equal(alone[1], alone[2]);
    start(scales_of[1]);
    expect(1);
    http_reply r = http_ask(&c, "GET", "/lora-adapters", NULL, NULL);
    assert_string_equal(r.body, "[{\"id\":0,\"path\":\"" ADAPTER
                                "\",\"scale\":1},{\"id\":1,\"path\":\"" ADAPTER "\",\"scale\":0}]");
    http_free(&r);
    set_scales("[]"); /* adapters that are not listed get 0 */
    expect(0);
    set_scales("[{\"id\":1,\"scale\":-1},{\"id\":0,\"scale\":0.5}]");
    expect(2);
    assert_int_equal(n_opened, 3);
    set_scales("[{\"id\":0,\"scale\":0.5},{\"id\":1,\"scale\":-1}]"); /* as they are */
    assert_int_equal(n_opened, 3);
    static const char *const wrong[] = {"{}",
                                        "[{\"id\":2,\"scale\":1}]",
                                        "[{\"id\":-1,\"scale\":1}]",
                                        "[{\"id\":0}]",
                                        "[{\"scale\":1}]",
                                        "[{\"id\":0,\"scale\":\"x\"}]",
                                        "[{\"id\":0,\"scale\":1e9}]",
                                        "[3]",
                                        "[",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        http_refused(&c, "/lora-adapters", wrong[i], 400);
    expect(2);
    case_stop(&c);
}

/* `lora` of a request may only name the scales that the model has. */
static void test_field(void **state) {
    static const char *const routes[] = {"/completion", "/v1/completions", "/v1/chat/completions"};
    static const char *const same[] = {"null", "[{\"id\":0,\"scale\":1}]",
                                       "[{\"id\":1,\"scale\":0},{\"id\":0,\"scale\":1}]"};
    static const char *const other[] = {"[]",
                                        "[{\"id\":0,\"scale\":0.5}]",
                                        "[{\"id\":0,\"scale\":1},{\"id\":1,\"scale\":1}]",
                                        "[{\"id\":2,\"scale\":1}]",
                                        "[{\"id\":0}]",
                                        "7"};
    static const char form[] = "{\"prompt\":\"Once\"," HELLO ",\"max_tokens\":1,\"lora\":%s}";
    char body[512];
    (void)state;
    start(scales_of[1]);
    for (size_t k = 0; k < sizeof routes / sizeof *routes; k++) {
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
            snprintf(body, sizeof body, form, same[i]);
            http_reply r = http_post(&c, routes[k], body);
            if (r.status != 200) fail_msg("%s %s: %s", routes[k], body, r.body);
            http_free(&r);
        }
        for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
            snprintf(body, sizeof body, form, other[i]);
            http_refused(&c, routes[k], body, 400);
        }
    }
    set_scales("[]");
    snprintf(body, sizeof body, form, "[]");
    http_reply r = http_post(&c, "/completion", body);
    assert_int_equal(r.status, 200);
    http_free(&r);
    http_refused(&c, "/completion", "{\"prompt\":\"Once\",\"lora\":[{\"id\":0,\"scale\":1}]}", 400);
    case_stop(&c);
}

/* A running answer ends with its scales; a request that comes meanwhile has the new ones. */
static void test_running(void **state) {
    static const char body[] = "{\"prompt\":\"Once\",\"ignore_eos\":true,\"stream\":true,"
                               "\"n_predict\":300}";
    char request[512], byte;
    size_t n;
    (void)state;
    start(scales_of[0]);
    http_reply r = http_post(&c, "/completion", body);
    char *whole = http_joined(&r, "content", 0);
    http_free(&r);
    snprintf(request, sizeof request,
             "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    int fd = socket_open(&c);
    socket_send(fd, request);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    set_scales("[{\"id\":0,\"scale\":1}]"); /* returns once they apply */
    expect(1);
    char *data = socket_read_all(fd, &n);
    assert_non_null(strstr(data, "\"stop\":true"));
    /* the last words of the answer with the old scales */
    const char *end = whole + strlen(whole) - 12;
    char *text = calloc(1, n + 1), *to = text;
    for (const char *at = data; (at = strstr(at, "\"content\":\"")) != NULL;) {
        at += strlen("\"content\":\"");
        for (; *at != '"' || at[-1] == '\\'; at++) *to++ = *at;
    }
    if (!strchr(end, '\n') && !strchr(end, '"')) assert_non_null(strstr(text, end));
    free(text);
    free(data);
    free(whole);
    close(fd);
    case_stop(&c);
}

/* Prompt states on the drive belong to their scales. */
static void test_cache_on_drive(void **state) {
    (void)state;
    store_empty_folder(FOLDER);
    c.options.served.store.folder = FOLDER;
    c.options.served.store.max_file_bytes = 1 << 30;
    start(scales_of[0]);
    expect(0);
    set_scales("[{\"id\":0,\"scale\":1}]");
    expect(1);
    set_scales("[]");
    expect(0);
    http_reply r = http_post(&c, "/v1/completions", QUESTION);
    assert_true(http_int(&r, "usage.prompt_tokens_details.cached_tokens") > 0);
    http_free(&r);
    case_stop(&c);
    c.options.served.store.folder = NULL;
    store_empty_folder(FOLDER);
}

static void test_props(void **state) {
    (void)state;
    static const char hot[] = "{\"default_generation_settings\":{\"params\":{\"temperature\":2,"
                              "\"top_k\":7,\"seed\":5}}}";
    start(scales_of[0]);
    http_refused(&c, "/props", hot, 501);
    case_stop(&c);
    c.options.changes_props = true;
    start(scales_of[0]);
    http_reply r = http_post(&c, "/props", hot);
    assert_int_equal(r.status, 200);
    http_free(&r);
    r = http_ask(&c, "GET", "/props", NULL, NULL);
    assert_int_equal(http_int(&r, "default_generation_settings.params.top_k"), 7);
    http_free(&r);
    char *text = ask();
    assert_string_not_equal(text, alone[0]);
    free(text);
    r = http_post(&c, "/props",
                  "{\"default_generation_settings\":{\"params\":{\"temperature\":0}}}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    expect(0);
    http_refused(&c, "/props", "{\"chat_template\":\"x\"}", 400);
    http_refused(&c, "/props", "{\"default_generation_settings\":{\"n_ctx\":3}}", 400);
    http_refused(&c, "/props", "{\"default_generation_settings\":{\"params\":{\"top_k\":\"x\"}}}",
                 400);
    r = http_post(&c, "/props", "{}");
    assert_int_equal(r.status, 200);
    http_free(&r);
    case_stop(&c);
    c.options.changes_props = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scales),  cmocka_unit_test(test_field),
        cmocka_unit_test(test_running), cmocka_unit_test(test_cache_on_drive),
        cmocka_unit_test(test_props),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
