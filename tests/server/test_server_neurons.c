/* test_server_neurons.c: events with active neurons in a stream, compared with the bytes that the
 * engine counts; clients that do not request them get none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server_case.h"

enum { N_LAYER = 6, N_FF = 1024, N_TOKENS = 40, LEVELS = 128 };

static server_case c;

static int set_up(void **state) {
    (void)state;
    case_open(&c);
    c.options.served.context.mode = PI_MODE_EXACT;
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

static double number_at(const json_node *object, const char *name) {
    double value = NAN;
    assert_true(json_as_double(json_get(object, name), &value));
    return value;
}

/* Checks a layer of an event; returns the fraction of its neurons that was active. */
static double check_layer(const json_node *layer) {
    const char *kind = NULL;
    size_t n = 0;
    double sum = 0;
    assert_true(json_as_string(json_get(layer, "kind"), &kind, &n));
    assert_string_equal(kind, "neurons");
    assert_true(number_at(layer, "units") == N_FF);
    assert_true(number_at(layer, "hot") == 0 && number_at(layer, "hot_active") == 0);
    const json_node *levels = json_get(layer, "levels");
    assert_int_equal(json_count(levels), LEVELS);
    for (size_t i = 0; i < LEVELS; i++) {
        int64_t level = -1;
        assert_true(json_as_int(json_at(levels, i), &level));
        assert_true(level >= 0 && level <= 255);
        sum += (double)level;
    }
    /* Every level is rounded to a 255th. */
    double active = number_at(layer, "active") / N_FF;
    assert_true(active > 0 && active < 1);
    assert_true(fabs(sum / LEVELS / 255 - active) < 0.5 / 255);
    return active;
}

/* In exact mode all rows of gate are read, and the rows of up and down of active neurons. Returns
 * the steps of the event. */
static int check_event(const json_node *event) {
    const json_node *layers = json_get(event, "layers");
    double share = 0;
    assert_int_equal(json_count(layers), N_LAYER);
    for (size_t i = 0; i < N_LAYER; i++) share += check_layer(json_at(layers, i)) / N_LAYER;
    assert_true(fabs(number_at(event, "ffn_share") - (1 + 2 * share) / 3) < 1e-6);
    double weights = number_at(event, "weight_share");
    assert_true(weights > 0 && weights < 1);
    assert_true(number_at(event, "steps") == number_at(event, "tokens"));
    return (int)number_at(event, "steps");
}

/* Steps of all events of a stream. */
static int count_steps(http_reply *r) {
    int n = 0;
    for (size_t i = 0; http_event(r, i); i++) {
        json_doc *doc;
        if (event_json(r, i, "layers", &doc)) n += check_event(json_root(doc));
        json_free(doc);
    }
    return n;
}

static void test_events(void **state) {
    (void)state;
    static const char *const routes[][2] = {
        {"/v1/completions", "\"prompt\":\"Once upon a time\""},
        {"/completion", "\"prompt\":\"Once upon a time\""},
        {"/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"}};
    for (int i = 0; i < 3; i++) {
        char body[256];
        for (int on = 0; on < 2; on++) {
            snprintf(body, sizeof body, "{%s,\"stream\":true,\"max_tokens\":%d,\"neurons\":%s}",
                     routes[i][1], N_TOKENS, on ? "true" : "false");
            http_reply r = http_post(&c, routes[i][0], body);
            assert_int_equal(r.status, 200);
            assert_int_equal(strstr(r.body, "event: powerinfer\n") != NULL, on);
            /* The first token belongs to the prompt, which is not counted. */
            assert_int_equal(count_steps(&r), on ? N_TOKENS - 1 : 0);
            http_free(&r);
        }
    }
    http_refused(&c, "/v1/completions", "{\"prompt\":\"x\",\"neurons\":true}", 400);
    http_refused(&c, "/v1/completions", "{\"prompt\":\"x\",\"stream\":true,\"neurons\":3}", 400);
}

static void test_dense(void **state) {
    (void)state;
    case_stop(&c);
    c.options.served.context.mode = PI_MODE_DENSE;
    case_start(&c);
    http_reply r = http_post(
        &c, "/v1/completions",
        "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4,\"neurons\":true}");
    const char *event = strstr(r.body, "event: powerinfer\n");
    assert_non_null(event);
    assert_non_null(strstr(event, "\"kind\":\"dense\""));
    assert_null(strstr(event, "levels"));
    http_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events), cmocka_unit_test(test_dense)};
    return cmocka_run_group_tests_name("server_neurons", tests, set_up, tear_down);
}
