/* test_server_load.c: 64 clients at once, each with a stream: every greedy answer must equal the
 * answer to the same request alone.
 *
 * A step with many tokens adds in another order than a step with one token. Kernels that quantize
 * activations amplify this to some thousandths in the logits, enough to change an answer where two
 * tokens are that close. Answers are therefore compared with the scalar kernels, whose activations
 * are floats; with the fast kernels, streams only have to be complete.
 *
 * With the argument "minute" the clients run for a minute, in which memory must not grow (ctest -C
 * long). */
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "server_case.h"

#ifdef TEST_SANITIZED
enum { N_TOKENS = 6, N_FAST_ROUNDS = 1 };
#else
enum { N_TOKENS = 24, N_FAST_ROUNDS = 8 };
#endif
enum {
    N_CLIENTS = 64,
    N_PROMPTS = 16,
    MINUTE = 60,
    WARM_SECONDS = 15,   /* after this time all threads and buffers exist */
    MAX_GROWTH = 1 << 20 /* bytes after that, which running requests hold */
};

static server_case c;
static char *expected[N_PROMPTS]; /* NULL: any text is accepted */
static int n_rounds;
static double end_time; /* clock_seconds until which clients continue after their rounds */

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
    for (int round = 0; (round < n_rounds || clock_seconds() < end_time) && !wrong; round++) {
        int prompt = (int)(((unsigned)id + (unsigned)round * 5) % N_PROMPTS);
        write_body(body, sizeof body, prompt, true);
        http_reply r = http_post(&c, "/v1/chat/completions", body);
        char *text = http_joined(&r, "choices.0.delta.content", 0);
        const char *want = expected[prompt] ? expected[prompt] : text;
        bool whole = strstr(r.body, "\"finish_reason\":\"length\"") &&
                     strstr(r.body, "data: [DONE]\n");
        if (strcmp(text, want) != 0 || !whole) {
            wrong = malloc(4096);
            snprintf(wrong, 4096, "prompt %d: \"%s\", alone \"%s\"", prompt, text, want);
        }
        free(text);
        http_free(&r);
    }
    return wrong;
}

/* Bytes that are allocated and not freed. */
static size_t bytes_in_use(void) {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static void run_clients(int n_slots) {
    pthread_t threads[N_CLIENTS];
    int n_wrong = 0;
    c.options.served.n_slots = n_slots;
    case_start(&c);
    for (int i = 0; i < N_CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client, (void *)(intptr_t)i), 0);
    while (clock_seconds() < end_time - MINUTE + WARM_SECONDS) usleep(10000);
    size_t before = bytes_in_use(), after = before;
    while (clock_seconds() < end_time - 1) {
        usleep(10000);
        after = bytes_in_use();
    }
    if (after > before + MAX_GROWTH) fail_msg("memory grew from %zu to %zu", before, after);
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

/* Records the answer to every prompt alone, with the scalar kernels. */
static void learn_answers(void) {
    char body[512];
    case_open(&c);
    c.options.served.context.kernels = PI_KERNELS_SCALAR;
    c.options.served.n_slots = 1;
    case_start(&c);
    for (int i = 0; i < N_PROMPTS; i++) {
        write_body(body, sizeof body, i, false);
        http_reply r = http_post(&c, "/v1/chat/completions", body);
        expected[i] = strdup(http_text(&r, "choices.0.message.content"));
        http_free(&r);
    }
    case_stop(&c);
}

static void forget_answers(void) {
    for (int i = 0; i < N_PROMPTS; i++) {
        free(expected[i]);
        expected[i] = NULL;
    }
    case_close(&c);
}

static void test_answers(void **state) {
    (void)state;
    learn_answers();
    n_rounds = 1;
    run_clients(8);
    run_clients(64);
    forget_answers();
}

static void test_minute(void **state) {
    (void)state;
    learn_answers();
    n_rounds = 0;
    mallopt(M_ARENA_MAX, 1); /* mallinfo2 counts only the first heap */
    end_time = clock_seconds() + MINUTE;
    run_clients(8);
    forget_answers();
}

static void test_fast(void **state) {
    (void)state;
    case_open(&c);
    n_rounds = N_FAST_ROUNDS;
    run_clients(8);
    case_close(&c);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_fast)};
    const struct CMUnitTest minute[] = {cmocka_unit_test(test_minute)};
    if (argc > 1 && strcmp(argv[1], "minute") == 0)
        return cmocka_run_group_tests(minute, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
