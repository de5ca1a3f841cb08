/* test_server_alone.c: a deterministic server gives a client the same text and the same
 * log-probabilities, to the last digit, whether the client is alone, is one of eight, or finds its
 * prompt in the cache. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server_case.h"

enum { N_CLIENTS = 8, MAX_ANSWER = 1 << 15 };

static server_case c;
static char alone[N_CLIENTS][MAX_ANSWER], answers[N_CLIENTS][MAX_ANSWER];

static int set_up(void **state) {
    (void)state;
    case_open(&c);
    c.options.served.n_slots = N_CLIENTS;
    c.options.served.context.deterministic = true;
    c.options.served.context.cache_k = c.options.served.context.cache_v = PI_CACHE_F16;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    case_close(&c);
    return 0;
}

typedef struct question {
    int number;
    bool cached; /* slots may provide the prompt */
    char (*to)[MAX_ANSWER];
} question;

/* Keeps the answer without its id, time and speed. */
static void *ask(void *arg) {
    const question *q = arg;
    static const char *const starts[] = {"Once upon a time", "The old dog", "One day the miller",
                                         "She said that"};
    char body[2048], prompt[1024] = "";
    for (int i = 0; i < 2 + 2 * q->number; i++)
        snprintf(prompt + strlen(prompt), 32, "On day %d it rained. ", i);
    snprintf(body, sizeof body,
             "{\"prompt\":\"%s%s\",\"max_tokens\":24,\"ignore_eos\":true,\"logprobs\":5,"
             "\"temperature\":%g,\"seed\":%d,\"cache_prompt\":%s}",
             prompt, starts[q->number % 4], q->number % 2 ? 0.8 : 0.0, q->number,
             q->cached ? "true" : "false");
    http_reply r = http_post(&c, "/v1/completions", body);
    const char *begin = r.status == 200 ? strstr(r.body, "\"choices\"") : NULL;
    const char *end = begin ? strstr(begin, "\"usage\"") : NULL;
    snprintf(q->to[q->number], MAX_ANSWER, "%.*s", end ? (int)(end - begin) : 100,
             end ? begin : r.body);
    http_free(&r);
    return NULL;
}

static void ask_all(bool together, bool cached, char (*to)[MAX_ANSWER]) {
    pthread_t threads[N_CLIENTS];
    question questions[N_CLIENTS];
    for (int i = 0; i < N_CLIENTS; i++) {
        questions[i] = (question){.number = i, .cached = cached, .to = to};
        if (!together)
            ask(&questions[i]);
        else
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &questions[i]), 0);
    }
    for (int i = 0; i < N_CLIENTS && together; i++) pthread_join(threads[i], NULL);
}

static void check_same(const char *what) {
    for (int i = 0; i < N_CLIENTS; i++) {
        assert_non_null(strstr(alone[i], "\"token_logprobs\""));
        if (strcmp(alone[i], answers[i]) != 0)
            fail_msg("client %d, %s:\n%s\nalone:\n%s", i, what, answers[i], alone[i]);
    }
}

static void test_eight(void **state) {
    (void)state;
    case_start(&c);
    ask_all(false, false, alone);
    ask_all(true, false, answers);
    check_same("one of eight");
    ask_all(false, true, answers);
    check_same("cached");
    ask_all(true, true, answers);
    check_same("cached, one of eight");
    case_stop(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_eight)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
