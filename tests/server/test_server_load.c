/* test_server_load.c: 64 clients at once, each with a stream: every greedy answer is what the same
 * request gives alone.
 *
 * Sums of a step with many tokens are in another order than those of one: where the two best tokens
 * are closer than float rounding, an answer may turn either way. The texts here are ones where none
 * is, so the test says no more than it must: it does not change from run to run. */
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

#ifdef TEST_SANITIZED
enum { N_CLIENTS = 64, N_ROUNDS = 1, N_TOKENS = 12 };
#else
enum { N_CLIENTS = 64, N_ROUNDS = 4, N_TOKENS = 32 };
#endif
enum { N_PROMPTS = 16 };

static server_case c;
static char *expected[N_PROMPTS];

static void write_body(char *body, size_t n, int prompt, bool stream) {
    static const char *const names[] = {"Anna", "Peter", "the captain", "an old man"};
    static const char *const places[] = {"in the garden", "at sea", "on the road to London",
                                         "by the fire"};
    snprintf(body, n,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of %s %s.\"}],"
             "\"max_tokens\":%d,\"stream\":%s}",
             names[prompt % 4], places[prompt / 4], (int)N_TOKENS, stream ? "true" : "false");
}

static void *client(void *arg) {
    int id = (int)(intptr_t)arg;
    char body[512], *wrong = NULL;
    for (int round = 0; round < N_ROUNDS && !wrong; round++) {
        int prompt = (id + round * 5) % N_PROMPTS;
        write_body(body, sizeof body, prompt, true);
        http_reply r = http_post(&c, "/v1/chat/completions", body);
        char *text = http_joined(&r, "choices.0.delta.content", 0);
        if (strcmp(text, expected[prompt]) != 0) {
            wrong = malloc(4096);
            snprintf(wrong, 4096, "prompt %d: \"%s\", alone \"%s\"", prompt, text,
                     expected[prompt]);
        }
        free(text);
        http_free(&r);
    }
    return wrong;
}

static void run_clients(int n_slots) {
    pthread_t threads[N_CLIENTS];
    int n_wrong = 0;
    c.options.n_slots = n_slots;
    case_start(&c);
    for (int i = 0; i < N_CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client, (void *)(intptr_t)i), 0);
    for (int i = 0; i < N_CLIENTS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        if (wrong) print_message("%s\n", (char *)wrong);
        n_wrong += wrong != NULL;
        free(wrong);
    }
    case_stop(&c);
    assert_int_equal(n_wrong, 0);
}

static void test_clients(void **state) {
    (void)state;
    char body[512];
    case_open(&c);
    c.options.n_slots = 1;
    case_start(&c);
    for (int i = 0; i < N_PROMPTS; i++) {
        write_body(body, sizeof body, i, false);
        http_reply r = http_post(&c, "/v1/chat/completions", body);
        expected[i] = strdup(http_text(&r, "choices.0.message.content"));
        http_free(&r);
    }
    case_stop(&c);
    run_clients(8);
    run_clients(64);
    for (int i = 0; i < N_PROMPTS; i++) free(expected[i]);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
