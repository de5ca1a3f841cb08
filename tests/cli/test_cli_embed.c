/* test_cli_embed.c: embed, whose numbers must equal each other in all formats; and encoders given
 * to commands that generate text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "encoder_model.h"

#define MEAN_PATH TEST_BINARY_DIR "/test_cli_embed.mean.gguf"
#define RANK_PATH TEST_BINARY_DIR "/test_cli_embed.rank.gguf"

enum { N = ENCODER_N_EMBD, MOST = 16 * N };

/* Reads all numbers of a file's text, whatever stands between them. */
static int numbers(const char *name, double *out) {
    int n = 0;
    for (const char *at = shell_read(name, NULL); *at;) {
        char *after;
        if (!strchr("-0123456789", *at)) {
            at++;
            continue;
        }
        assert_true(n < MOST);
        out[n++] = strtod(at, &after);
        at = after > at ? after : at + 1;
    }
    return n;
}

static void expect_same(const double *a, const double *b, int n) {
    for (int i = 0; i < n; i++) assert_true(fabs(a[i] - b[i]) < 1e-6);
}

static void test_formats(void **state) {
    (void)state;
    double raw[MOST], other[MOST];
    shell_write("texts", "ab cd\n\nx y z\n", 13);
    assert_int_equal(sh("$PI embed -q -m $MEAN -f texts >raw"), 0);
    assert_err("");
    assert_int_equal(numbers("raw", raw), 3 * N); /* an empty line is a text */
    double size = 0;
    for (int i = 0; i < N; i++) size += raw[i] * raw[i];
    assert_true(fabs(size - 1) < 1e-5);
    static const char *const same[] = {
        "$PI embed -q -m $MEAN -p 'ab cd\\n\\nx y z' >same",
        "$PI embed -q -m $MEAN - <texts >same",
        "$PI embed -q -m $MEAN <texts >same",
        "$PI embed -q $MEAN -f - <texts >same",
        "$PI embed -q -m $MEAN -p 'ab cd;;x y z' --embd-separator ';' >same",
        "$PI embed -q -m $MEAN -f texts --format array >same",
        "$PI embed -q -m $MEAN -f texts --pooling mean -t 2 --embd-output-format raw >same"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_int_equal(sh(same[i]), 0);
        assert_int_equal(numbers("same", other), 3 * N);
        expect_same(raw, other, 3 * N);
    }
    assert_int_equal(sh("$PI embed -q -m $MEAN -f texts --json"), 0);
    assert_contains("out", "\"pooling\": \"mean\"");
    assert_contains("out", "\"dimensions\": 32");
    assert_int_equal(numbers("out", other), 3 * N + 1);
    expect_same(raw, other, 3 * N);
    assert_int_equal(sh("$PI embed -q -m $MEAN -f texts --format json+"), 0);
    assert_contains("out", "\"object\": \"list\"");
    assert_contains("out", "\"cosineSimilarity\"");
    assert_int_equal(numbers("out", other), 3 * (N + 1) + 9); /* with indices */
    expect_same(raw, other + 1, N);
    assert_int_equal(sh("$PI embed -q -m $MEAN -p 'ab cd' --pooling none"), 0);
    assert_int_equal(numbers("out", other), 4 * N); /* two words between [CLS] and [SEP] */
    assert_int_equal(sh("$PI embed -q -m $MEAN -p 'ab cd' --embd-normalize 0"), 0);
    assert_int_equal(numbers("out", other), N);
    double largest = 0;
    for (int i = 0; i < N; i++) largest = fmax(largest, fabs(other[i]));
    assert_true(fabs(largest - 32760) < 0.1);
}

static void test_rank(void **state) {
    (void)state;
    double one[MOST], other[MOST];
    assert_int_equal(sh("$PI embed -q -m $RANK -p 'ab cd\\nx y z'"), 0);
    assert_int_equal(numbers("out", one), 2);
    assert_int_equal(sh("$PI embed -q -m $RANK -p 'ab cd' --json"), 0);
    assert_contains("out", "\"pooling\": \"rank\"");
    assert_contains("out", "\"dimensions\": 1");
    assert_int_equal(numbers("out", other), 2);
    expect_same(one, other, 1);
    assert_int_equal(sh("$PI embed -q -m $RANK -p 'ab<>cd' --cls-separator '<>'"), 0);
    assert_int_equal(numbers("out", one), 1);
    assert_int_equal(sh("$PI embed -q -m $RANK -p 'ab [SEP] cd'"), 0);
    assert_int_equal(numbers("out", other), 1);
    expect_same(one, other, 1);
    assert_int_equal(sh("$PI embed -q -m $RANK -p 'ab cd' --pooling cls"), 0);
    assert_int_equal(numbers("out", other), N);
}

static void test_refusals(void **state) {
    (void)state;
    assert_int_equal(sh("$PI embed -q -m $MEAN -p a --pooling rank"), 1);
    assert_err("powerinfer: no classifier: nomic-bert cannot rank: use another --pooling\n");
    assert_int_equal(sh("$PI run -m $MEAN -p a"), 1);
    assert_err("powerinfer: not a language model: nomic-bert is an encoder, which generates no "
               "text: use powerinfer embed\n");
    assert_int_equal(sh("$PI prepare $MEAN -o prepared.gguf"), 1);
    assert_contains("err", "an encoder: run the file as it is\n");
    assert_false(shell_has("prepared.gguf"));
    static const char *const others[] = {"perplexity -m $MEAN -f texts -c 8",
                                         "bench -m $MEAN -n 1 -p 4", "tune $MEAN -o tuned.gguf",
                                         "eval -m $MEAN --tokens ids --logits-out l"};
    shell_write("ids", "5 6 7 8", 7);
    shell_write("texts", "a b c d e f g h i j k l m n o p", 31);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char line[128];
        snprintf(line, sizeof line, "$PI %s", others[i]);
        assert_int_equal(sh(line), 1);
        assert_contains("err", "is an encoder");
    }
    assert_int_equal(sh("$PI chat -m $MEAN -p a"), 1);
    assert_contains("err", "use powerinfer embed\n");
    assert_wrong("$PI embed -m $MEAN -p a -f texts",
                 "powerinfer: two inputs: -p and -f: give one of them\n");
    /* more tokens than learned positions */
    assert_int_equal(sh("$PI embed -q -m $RANK -p \"$(printf 'a %.0s' $(seq 70))\""), 1);
    assert_contains("err", "64");
    /* weights that do not fit into memory are read from the file */
    double all[MOST], paged[MOST];
    assert_int_equal(sh("$PI embed -q -m $MEAN -p 'ab cd' >all"), 0);
    assert_int_equal(sh("$PI embed -q -m $MEAN -p 'ab cd' --ram-budget 0.05 >paged"), 0);
    assert_int_equal(numbers("all", all), N);
    assert_int_equal(numbers("paged", paged), N);
    expect_same(all, paged, N);
    /* a language model gives embeddings as well */
    assert_int_equal(sh("$PI embed -q -m $M -p 'ab' --pooling last"), 0);
}

static int set_up(void **state) {
    encoder_write(MEAN_PATH, "nomic-bert", 3);
    encoder_write_ranking(RANK_PATH, "bert", 3);
    setenv("MEAN", MEAN_PATH, 1);
    setenv("RANK", RANK_PATH, 1);
    return shell_setup(state);
}

static int tear_down(void **state) {
    remove(MEAN_PATH);
    remove(RANK_PATH);
    return shell_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_rank),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
