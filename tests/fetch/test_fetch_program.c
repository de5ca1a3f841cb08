/* test_fetch_program.c: models from a hub and from addresses on the command line: -hf, -hff, -hfd,
 * -mu, -m https://..., the environment, signals during downloads, and the messages for option names
 * of other programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_shell.h"
#include "hub_server.h"
#include "mem.h"

static hub_server server;
static char *model;
static size_t n_model;

static int setup(void **state) {
    if (shell_setup(state) != 0) return -1;
    size_t n;
    const char *bytes = shell_read("model.gguf", &n);
    model = malloc(n);
    if (!model) return -1;
    memcpy(model, bytes, n);
    n_model = n;
    hub_server_start(&server);
    hub_server_add(&server, "tiny-Q4_K_M.gguf", model, n_model);
    hub_server_add(&server, "tiny-Q8_0.gguf", model, n_model);
    setenv("HF_ENDPOINT", server.endpoint, 1);
    setenv("HF_HUB_CACHE", "hub", 1);
    unsetenv("HF_TOKEN");
    unsetenv("HF_HUB_OFFLINE");
    setenv("no_proxy", "*", 1);
    char url[128];
    snprintf(url, sizeof url, "%s/plain/tiny-Q8_0.gguf", server.endpoint);
    setenv("URL", url, 1);
    setenv("XDG_CACHE_HOME", "/nonexistent", 1);
    return 0;
}

static int teardown(void **state) {
    hub_server_stop(&server);
    free(model);
    return shell_teardown(state);
}

static void test_commands(void **state) {
    (void)state;
    static const char *const lines[] = {
        "$PI run -hf test/tiny-GGUF -p a -n 2 -q",
        "$PI run -hfr test/tiny-GGUF -hff tiny-Q8_0.gguf -p a -n 2 -q",
        "$PI tokenize -hf test/tiny-GGUF:q8_0 --ids -p a",
        "$PI inspect -hf test/tiny-GGUF",
        "$PI bench -hf test/tiny-GGUF -p 4 -n 2 -r 1 -q",
        "$PI run -hf test/tiny-GGUF -hfd test/tiny-GGUF:Q8_0 -p a -n 2 -q",
        "$PI place -hf test/tiny-GGUF --vram-budget 1 --profile cpu-only",
        "$PI quantize -hf test/tiny-GGUF out.gguf COPY",
        "POWERINFER_HF_REPO=test/tiny-GGUF $PI run -p a -n 2 -q",
        "$PI run --hf-repo test/tiny-GGUF --offline -p a -n 2 -q",
        "HF_HUB_OFFLINE=1 $PI run -hf test/tiny-GGUF -p a -n 2 -q",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (sh(lines[i]) != 0) fail_msg("%s: %s", lines[i], shell_read("err", NULL));
    assert_int_equal(hub_server_count(&server, "GET /cdn/"), 1); /* both files share one blob */
    assert_true(shell_has("out.gguf"));
    assert_int_equal(sh("$PI quantize -q -hf test/tiny-GGUF q8_0 && ls ggml-model-*.gguf"), 0);
    assert_int_equal(sh("rm -rf other; HF_HUB_CACHE=other $PI prepare -hf test/tiny-GGUF"), 2);
    assert_int_equal(sh("HF_HUB_CACHE=other $PI quantize -hf test/tiny-GGUF"), 2);
    assert_false(shell_has("other")); /* nothing is downloaded for a wrong command line */
    assert_int_equal(sh("$PI run -hf test/tiny-GGUF -m $M"), 2);
    assert_int_equal(sh("$PI run -hf test/tiny-GGUF $M"), 2);
    assert_int_equal(sh("$PI run -hff tiny.gguf"), 2);
    assert_int_equal(sh("$PI run -hf nothing"), 2);
    assert_int_equal(sh("$PI run -hf test/tiny-GGUF:Q2_K"), 1);
}

static void test_addresses(void **state) {
    (void)state;
    assert_int_equal(sh("XDG_CACHE_HOME=$PWD/cache $PI run -m $URL -p a -n 2 -q"), 0);
    assert_int_equal(sh("XDG_CACHE_HOME=$PWD/cache $PI run -mu $URL --offline -p a -n 2 -q"), 0);
    assert_int_equal(sh("XDG_CACHE_HOME=$PWD/cache $PI run $URL -p a -n 2 -q"), 0);
    assert_int_equal(sh("XDG_CACHE_HOME=$PWD/cache $PI quantize $URL copy.gguf COPY"), 0);
    assert_int_equal(hub_server_count(&server, "GET /plain/"), 1);
    assert_int_equal(sh("$PI run -m ${URL%.gguf}.txt -p a"), 2);
    assert_contains("err", "it must end in .gguf");
}

/* Ctrl-C keeps the partial file and prints a message; SIGKILL keeps it without a message. */
static void test_signals(void **state) {
    (void)state;
    assert_int_equal(sh("rm -rf hub"), 0);
    server.pause_us = 30000;
    assert_int_equal(sh("timeout -s INT 0.4 $PI inspect -hf test/tiny-GGUF; test $? = 124"), 0);
    assert_contains("err", "powerinfer: download stopped: tiny-Q4_K_M.gguf: ");
    assert_contains("err", "run the command again to continue");
    assert_int_equal(sh("test $(ls hub/*/blobs | grep -c incomplete) = 1"), 0);
    assert_int_equal(sh("timeout -s KILL 0.4 $PI inspect -hf test/tiny-GGUF; test $? != 0"), 0);
    server.pause_us = 0;
    server.n_log = 0;
    assert_int_equal(sh("$PI inspect -hf test/tiny-GGUF"), 0);
    assert_true(hub_server_count(&server, "range=bytes=") == 2);
    assert_contains("err", "continuing tiny-Q4_K_M.gguf");
}

/* The token from the environment goes to the hub and never into a message. */
static void test_token(void **state) {
    (void)state;
    assert_int_equal(sh("rm -rf hub"), 0);
    server.token = "hf_secret";
    assert_int_equal(sh("$PI inspect -hf test/tiny-GGUF"), 1);
    assert_contains("err", "give a token with HF_TOKEN or -hft");
    assert_int_equal(sh("HF_TOKEN=hf_secret $PI inspect -v -hf test/tiny-GGUF"), 0);
    assert_null(strstr(shell_read("err", NULL), "secret"));
    assert_int_equal(sh("rm -rf hub; $PI inspect -hft hf_secret -hf test/tiny-GGUF"), 0);
    server.token = NULL;
}

static void test_names_of_others(void **state) {
    (void)state;
    static const char *const lines[] = {"$PI pull qwen3:4b", "$PI list", "$PI ps",
                                        "$PI show qwen3:4b"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(sh(lines[i]), 2);
        assert_contains("err", "-hf USER/REPO[:QUANT]");
        assert_contains("err", "powerinfer inspect FILE");
    }
    assert_int_equal(sh("$PI run qwen3:4b"), 2);
    assert_contains("err", "no such file: qwen3:4b: a model is the name of a GGUF file, or -hf");
    assert_int_equal(sh("$PI run -m qwen3:0.6b -p a"), 2);
    assert_contains("err", "-hf Qwen/Qwen3-4B-GGUF");
    assert_int_equal(sh("$PI run hf.co/Qwen/Qwen3-8B-GGUF:Q8_0"), 2);
    assert_contains("err", "use -hf Qwen/Qwen3-8B-GGUF:Q8_0");
    assert_int_equal(sh("$PI chat -m Qwen/Qwen3-8B-GGUF"), 2);
    assert_contains("err", "use -hf Qwen/Qwen3-8B-GGUF");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_signals),         cmocka_unit_test(test_token),
        cmocka_unit_test(test_names_of_others),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
