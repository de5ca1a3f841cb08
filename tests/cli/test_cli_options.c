/* test_cli_options.c: unit tests of the option parser, and properties of the whole table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

static const uint32_t commands[] = {COMMAND_RUN,   COMMAND_EVAL,    COMMAND_TOKENIZE,
                                    COMMAND_BENCH, COMMAND_INSPECT, COMMAND_CONVERT,
                                    COMMAND_SYNTH, COMMAND_CHAT,    COMMAND_SERVE};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static cli_options parsed; /* too large for the stack */

static parse_result parse(uint32_t command, const char *const *words, pi_error *err) {
    int n = 0;
    while (words[n]) n++;
    return options_parse(&parsed, command, "name", 1, n, (char *const *)(uintptr_t)words, err);
}

#define PARSE(command, ...) parse(command, (const char *const[]){__VA_ARGS__, NULL}, NULL)

static void test_defaults_are_valid(void **state) {
    (void)state;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *const nothing[] = {NULL};
        pi_error err = {0};
        if (parse(commands[i], nothing, &err) != PARSE_OK) fail_msg("%s", err.message);
        assert_int_equal(parsed.n_positionals, 0);
    }
    const char *const nothing[] = {NULL};
    parse(COMMAND_RUN, nothing, NULL);
    assert_true(parsed.temp == 0.8 && parsed.top_k == 40 && parsed.top_p == 0.95);
    assert_true(parsed.min_p == 0.05 && parsed.repeat_penalty == 1 && parsed.repeat_last_n == 64);
    assert_true(parsed.seed == -1 && parsed.predict == -1 && parsed.ctx_size == -1);
    assert_true(parsed.cache_type_k == PI_CACHE_F16 && parsed.mode == PI_MODE_AUTO);
    assert_null(parsed.model);
    parse(COMMAND_SYNTH, nothing, NULL);
    assert_true(parsed.skew.first == 0.26 && parsed.skew.second == 0.8 && parsed.seed == 0);
    assert_string_equal(parsed.type, "q4_0");
    parse(COMMAND_BENCH, nothing, NULL);
    assert_true(parsed.prompts.count == 1 && parsed.prompts.values[0] == 512);
}

/* Within a command names are unique, and every row has the fields that its type needs. */
static void test_names_are_unique(void **state) {
    (void)state;
    for (size_t c = 0; c < N_COMMANDS; c++) {
        for (size_t i = 0; i < option_count; i++) {
            const option *a = &option_table[i];
            if (!(a->commands & commands[c])) continue;
            assert_true(a->type == OPTION_FLAG || a->argument);
            assert_true(a->type != OPTION_CHOICE || (a->choices && a->standard));
            assert_non_null(a->help);
            for (size_t j = i + 1; j < option_count; j++) {
                const option *b = &option_table[j];
                if (!(b->commands & commands[c])) continue;
                assert_string_not_equal(a->long_name, b->long_name);
                if (a->short_name && b->short_name) {
                    assert_string_not_equal(a->short_name, b->short_name);
                }
                for (int k = 0; k < OPTION_MAX_ALIASES && b->aliases[k]; k++) {
                    assert_string_not_equal(a->long_name, b->aliases[k] + 2);
                }
            }
        }
    }
}

static void test_forms(void **state) {
    (void)state;
    assert_int_equal(PARSE(COMMAND_RUN, "-n", "5", "--top-k=7", "--temp", "-1", "-ctk", "q8_0"),
                     PARSE_OK);
    assert_true(parsed.predict == 5 && parsed.top_k == 7 && parsed.temp == -1);
    assert_true(parsed.cache_type_k == PI_CACHE_Q8_0 && parsed.cache_type_v == PI_CACHE_F16);
    static const struct {
        const char *name;
        pi_cache_type type;
    } caches[] = {{"f16", PI_CACHE_F16},   {"f32", PI_CACHE_F32},   {"bf16", PI_CACHE_BF16},
                  {"q8_0", PI_CACHE_Q8_0}, {"q4_0", PI_CACHE_Q4_0}, {"q4_1", PI_CACHE_Q4_1},
                  {"q5_0", PI_CACHE_Q5_0}, {"q5_1", PI_CACHE_Q5_1}, {"iq4_nl", PI_CACHE_IQ4_NL}};
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        assert_int_equal(PARSE(COMMAND_RUN, "-ctk", caches[i].name, "-ctv", caches[i].name, "-ctkd",
                               caches[i].name, "-ctvd", caches[i].name),
                         PARSE_OK);
        assert_true(parsed.cache_type_k == caches[i].type && parsed.cache_type_v == caches[i].type);
        assert_true(parsed.cache_type_k_draft == caches[i].type);
        assert_true(parsed.cache_type_v_draft == caches[i].type);
        assert_string_equal(option_cache_types[caches[i].type], caches[i].name);
    }
    assert_int_equal(PARSE(COMMAND_RUN, "--n_predict", "6", "--ctx_size=9", "-n", "8"), PARSE_OK);
    assert_true(parsed.predict == 8 && parsed.ctx_size == 9);       /* the last one counts */
    assert_int_equal(PARSE(COMMAND_RUN, "-p", "--help"), PARSE_OK); /* --help is the value of -p */
    assert_string_equal(parsed.prompt, "--help");
    assert_int_equal(PARSE(COMMAND_RUN, "--prompt=a=b"), PARSE_OK);
    assert_string_equal(parsed.prompt, "a=b");
    assert_int_equal(PARSE(COMMAND_RUN, "-q", "--json=1", "--mlock=off"), PARSE_OK);
    assert_true(parsed.quiet && parsed.json && !parsed.mlock);
    assert_int_equal(PARSE(COMMAND_RUN, "-n", "1", "-h"), PARSE_HELP);
    assert_int_equal(PARSE(COMMAND_INSPECT, "--", "-file"), PARSE_OK);
    assert_string_equal(parsed.positionals[0], "-file");
    assert_int_equal(PARSE(COMMAND_INSPECT, "-"), PARSE_OK);
    assert_int_equal(PARSE(COMMAND_INSPECT, "a", "b"), PARSE_WRONG);
    assert_int_equal(PARSE(COMMAND_BENCH, "-p", "1,2,3", "-d", "0,16"), PARSE_OK);
    assert_true(parsed.prompts.count == 3 && parsed.prompts.values[2] == 3);
    assert_true(parsed.depths.count == 2 && parsed.depths.values[1] == 16);
}

static void test_bad_values(void **state) {
    (void)state;
    static const char *const bad[][3] = {{"-n", "", NULL},
                                         {"-n", "99999999999999999999", NULL},
                                         {"-n", "2147483648", NULL},
                                         {"-n", "0x10", NULL},
                                         {"-n", "1.5", NULL},
                                         {"-n", "-3", NULL},
                                         {"--temp", "", NULL},
                                         {"--temp", "1,5", NULL},
                                         {"--temp", "inf", NULL},
                                         {"--top-p", "-0.1", NULL},
                                         {"--mode", "", NULL},
                                         {"--mode", "!exact", NULL},
                                         {"--mode", "auto|dense", NULL},
                                         {"--repeat-penalty", "0", NULL},
                                         {"-b", "0", NULL},
                                         {"--typical", "1.1", NULL},
                                         {"--mirostat", "3", NULL},
                                         {"--xtc-threshold", "-1", NULL},
                                         {"--dry-penalty-last-n", "-2", NULL},
                                         {"--presence-penalty", "x", NULL},
                                         {"-c", "-2", NULL},
                                         {"-s", "9223372036854775807", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pi_error err = {0};
        if (parse(COMMAND_RUN, bad[i], &err) != PARSE_WRONG)
            fail_msg("%s %s", bad[i][0], bad[i][1]);
        assert_int_equal(err.status, PI_ERR_ARG);
    }
    static const char *const lists[] = {"",
                                        ",",
                                        "1,",
                                        ",1",
                                        "1,,2",
                                        "1;2",
                                        "-1",
                                        "1,2147483648",
                                        "1,00000000000000000000000000001"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        assert_int_equal(PARSE(COMMAND_BENCH, "-p", lists[i]), PARSE_WRONG);
    }
    char many[3 * PI_BENCH_MAX_LIST];
    for (int i = 0; i <= PI_BENCH_MAX_LIST; i++) memcpy(many + 2 * i, "1,", 2);
    many[2 * PI_BENCH_MAX_LIST - 1] = 0; /* the maximum */
    assert_int_equal(PARSE(COMMAND_BENCH, "-p", many), PARSE_OK);
    many[2 * PI_BENCH_MAX_LIST - 1] = ',';
    many[2 * PI_BENCH_MAX_LIST + 1] = 0;
    assert_int_equal(PARSE(COMMAND_BENCH, "-p", many), PARSE_WRONG);
    static const char *const pairs[] = {"", ":", "0.5", "0.5:", ":0.5", "0.5:0.5:0.5", "2:0.1"};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_int_equal(PARSE(COMMAND_SYNTH, "--skew", pairs[i]), PARSE_WRONG);
    }
    char name[400];
    memset(name, '-', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(PARSE(COMMAND_RUN, name), PARSE_WRONG);
}

static void test_sources(void **state) {
    (void)state;
    setenv("POWERINFER_TOP_K", "3", 1);
    setenv("POWERINFER_TEMP", "0.5", 1);
    assert_int_equal(PARSE(COMMAND_RUN, "--temp", "0.25"), PARSE_OK);
    assert_true(parsed.top_k == 3 && parsed.temp == 0.25 && parsed.min_p == 0.05);
    assert_true(options_given(&parsed, &parsed.top_k) && !options_typed(&parsed, &parsed.top_k));
    assert_true(options_typed(&parsed, &parsed.temp) && options_given(&parsed, &parsed.temp));
    assert_false(options_given(&parsed, &parsed.min_p));
    setenv("POWERINFER_TOP_K", "", 1); /* like unset */
    assert_int_equal(PARSE(COMMAND_RUN, "-q"), PARSE_OK);
    assert_true(parsed.top_k == 40 && !options_given(&parsed, &parsed.top_k));
    setenv("POWERINFER_TOP_K", "3x", 1);
    assert_int_equal(PARSE(COMMAND_RUN, "-q"), PARSE_WRONG);
    assert_int_equal(PARSE(COMMAND_EVAL, "-q"), PARSE_OK); /* eval has no such option */
    unsetenv("POWERINFER_TOP_K");
    unsetenv("POWERINFER_TEMP");
    setenv("POWERINFER_N_PROMPT", "7,8", 1);
    assert_int_equal(PARSE(COMMAND_BENCH, "-q"), PARSE_OK);
    assert_true(parsed.prompts.count == 2 && parsed.prompts.values[1] == 8);
    unsetenv("POWERINFER_N_PROMPT");
}

#define SET(name, value) setenv("LLAMA_ARG_" name, value, 1)
#define UNSET(name)      unsetenv("LLAMA_ARG_" name)

/* llama.cpp's variables have the options' names; POWERINFER_ and the command line take
 * precedence. */
#if !defined(_WIN32) /* the environment is read once there */
static void test_llama_variables(void **state) {
    (void)state;
    SET("CTX_SIZE", "1234");
    SET("N_PARALLEL", "3");
    SET("HOST", "0.0.0.0");
    SET("TOP_K", "7");
    SET("MODEL", "a.gguf");
    SET("THINK", "none");
    SET("STATIC_PATH", "/srv");
    SET("OVERRIDE_TENSOR", "exps=CPU");
    setenv("LLAMA_API_KEY", "secret", 1);
    assert_int_equal(PARSE(COMMAND_SERVE, "--host", "::1"), PARSE_OK);
    assert_true(parsed.ctx_size == 1234 && parsed.parallel == 3 && parsed.top_k == 7);
    assert_string_equal(parsed.host, "::1");
    assert_string_equal(parsed.model, "a.gguf");
    assert_true(parsed.reasoning_format == FORMAT_NONE && parsed.override_tensor.count == 1);
    assert_string_equal(parsed.static_path, "/srv");
    assert_true(parsed.api_keys.count == 1 && strcmp(parsed.api_keys.values[0], "secret") == 0);
    assert_true(options_given(&parsed, &parsed.top_k) && !options_typed(&parsed, &parsed.top_k));
    assert_string_equal(parsed.idle, "");
    setenv("POWERINFER_TOP_K", "3", 1);
    assert_int_equal(PARSE(COMMAND_SERVE, "--api-key", "typed"), PARSE_OK);
    assert_int_equal(parsed.top_k, 3);
    assert_true(parsed.api_keys.count == 1 && strcmp(parsed.api_keys.values[0], "typed") == 0);
    unsetenv("POWERINFER_TOP_K");
    assert_int_equal(PARSE(COMMAND_TOKENIZE, "-q"), PARSE_OK); /* not its variables: ignored */
    assert_string_equal(parsed.idle, "");
    SET("CTX_SIZE", "x");
    pi_error err = {.status = PI_OK};
    assert_int_equal(parse(COMMAND_SERVE, (const char *const[]){"-q", NULL}, &err), PARSE_WRONG);
    assert_non_null(strstr(err.message, "LLAMA_ARG_CTX_SIZE \"x\""));
    static const char *const names[] = {"CTX_SIZE", "N_PARALLEL",  "HOST",  "TOP_K",
                                        "MODEL",    "STATIC_PATH", "THINK", "OVERRIDE_TENSOR"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "LLAMA_ARG_%s", names[i]);
        unsetenv(name);
    }
    unsetenv("LLAMA_API_KEY");
}

static void test_llama_flags(void **state) {
    (void)state;
    static const char *const on[] = {"1", "true", "on", "enabled"};
    static const char *const off[] = {"0", "false", "off", "disabled"};
    for (int i = 0; i < 4; i++) {
        SET("WEBUI", off[i]);
        SET("CACHE_PROMPT", on[i]);
        SET("MMAP", off[i]);
        SET("CPU_MOE", on[i]);
        SET("ENDPOINT_SLOTS", off[i]);
        assert_int_equal(PARSE(COMMAND_SERVE, "-q"), PARSE_OK);
        assert_true(parsed.no_webui && !parsed.no_cache_prompt && parsed.no_mmap);
        assert_true(parsed.cpu_moe && parsed.no_slots);
        assert_string_equal(parsed.idle, "");
        SET("WEBUI", on[i]);
        SET("CACHE_PROMPT", off[i]);
        SET("MMAP", on[i]);
        SET("CPU_MOE", off[i]);
        SET("ENDPOINT_SLOTS", on[i]);
        assert_int_equal(PARSE(COMMAND_SERVE, "-q"), PARSE_OK);
        assert_true(!parsed.no_webui && parsed.no_cache_prompt && !parsed.no_mmap);
        assert_true(!parsed.cpu_moe && !parsed.no_slots);
        assert_string_equal(parsed.idle, "LLAMA_ARG_MMAP");
    }
    assert_int_equal(PARSE(COMMAND_SERVE, "--no-webui", "--cache-prompt"), PARSE_OK);
    assert_true(parsed.no_webui && !parsed.no_cache_prompt);
    assert_int_equal(PARSE(COMMAND_SERVE, "--no-webui", "--ui", "--no-slots=0"), PARSE_OK);
    assert_true(!parsed.no_webui && !parsed.no_slots);
    assert_int_equal(PARSE(COMMAND_SERVE, "--slots=0"), PARSE_OK);
    assert_true(parsed.no_slots);
    SET("CPU_MOE", "perhaps");
    assert_int_equal(PARSE(COMMAND_SERVE, "-q"), PARSE_WRONG);
    UNSET("WEBUI");
    UNSET("CACHE_PROMPT");
    UNSET("MMAP");
    UNSET("CPU_MOE");
    UNSET("ENDPOINT_SLOTS");
    SET("NO_MMAP", "0"); /* the value does not matter */
    SET("NO_WEBUI", "1");
    assert_int_equal(PARSE(COMMAND_SERVE, "-q"), PARSE_OK);
    assert_true(parsed.no_mmap && parsed.no_webui);
    UNSET("NO_MMAP");
    UNSET("NO_WEBUI");
}

/* Options without effect are reported once, with the name that was used. */
static void test_idle(void **state) {
    (void)state;
    assert_int_equal(PARSE(COMMAND_SERVE, "-fa", "on", "--jinja", "-cb", "--cache-reuse", "256",
                           "--jinja", "--flash_attn=on", "-ngl", "1"),
                     PARSE_OK);
    assert_string_equal(parsed.idle, "-fa, --jinja, -cb, --cache-reuse, --flash-attn");
    SET("FLASH_ATTN", "auto");
    SET("SOMETHING_NEW", "1");
    SET("MMPROJ", "x");
    assert_int_equal(PARSE(COMMAND_SERVE, "-ub", "64"), PARSE_OK);
    assert_non_null(strstr(parsed.idle, "LLAMA_ARG_FLASH_ATTN"));
    assert_non_null(strstr(parsed.idle, "LLAMA_ARG_SOMETHING_NEW"));
    assert_non_null(strstr(parsed.idle, "LLAMA_ARG_MMPROJ"));
    assert_non_null(strstr(parsed.idle, ", -ub"));
    UNSET("FLASH_ATTN");
    UNSET("SOMETHING_NEW");
    UNSET("MMPROJ");
    const char *many[2001] = {NULL};
    for (int i = 0; i < 2000; i++) many[i] = i % 2 ? "--no-ui-mcp-proxy" : "--reasoning-preserve";
    assert_int_equal(parse(COMMAND_SERVE, many, NULL), PARSE_OK);
    assert_string_equal(parsed.idle, "--reasoning-preserve, --no-ui-mcp-proxy");
}

#endif

/* Options that collect values keep their order; typed values replace those of the environment. */
static void test_repeated_options(void **state) {
    (void)state;
    assert_int_equal(PARSE(COMMAND_RUN, "-r", "a", "-n", "1", "--reverse-prompt=b", "-r", ""),
                     PARSE_OK);
    assert_int_equal(parsed.reverse_prompts.count, 3);
    assert_string_equal(parsed.reverse_prompts.values[0], "a");
    assert_string_equal(parsed.reverse_prompts.values[1], "b");
    assert_string_equal(parsed.reverse_prompts.values[2], "");
    setenv("POWERINFER_REVERSE_PROMPT", "env", 1);
    assert_int_equal(PARSE(COMMAND_RUN, "-q"), PARSE_OK);
    assert_int_equal(parsed.reverse_prompts.count, 1);
    assert_string_equal(parsed.reverse_prompts.values[0], "env");
    assert_int_equal(PARSE(COMMAND_RUN, "-r", "a", "-r", "b"), PARSE_OK);
    assert_int_equal(parsed.reverse_prompts.count, 2);
    assert_string_equal(parsed.reverse_prompts.values[0], "a");
    unsetenv("POWERINFER_REVERSE_PROMPT");
    const char *many[2 * (OPTION_MAX_TEXTS + 1) + 1] = {NULL};
    for (int i = 0; i <= 2 * OPTION_MAX_TEXTS; i += 2) {
        many[i] = "-l";
        many[i + 1] = "1+1";
    }
    pi_error err = {0};
    assert_int_equal(parse(COMMAND_RUN, many, &err), PARSE_WRONG);
    assert_non_null(strstr(err.message, "too many values: -l"));
    many[2 * OPTION_MAX_TEXTS] = NULL;
    assert_int_equal(parse(COMMAND_RUN, many, &err), PARSE_OK);
    assert_int_equal(parsed.logit_bias.count, OPTION_MAX_TEXTS);
}

static void test_suggestions(void **state) {
    (void)state;
    static const char *const words[] = {"run", "eval", "tokenize", "bench"};
    assert_string_equal(options_closest("rnu", words, 4), "run");
    assert_string_equal(options_closest("tokenise", words, 4), "tokenize");
    assert_string_equal(options_closest("ebal", words, 4), "eval");
    assert_null(options_closest("xyz", words, 4));
    assert_null(options_closest("", words, 4));
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(options_closest(longest, words, 4));
}

static int remove_variables(void **state) {
    (void)state;
    for (size_t i = 0; i < option_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "POWERINFER_%s", option_table[i].long_name);
        for (char *c = name; *c; c++) {
            if (*c == '-') *c = '_';
            if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        }
        unsetenv(name);
        snprintf(name, sizeof name, "LLAMA_ARG_%s", option_table[i].long_name);
        for (char *c = name; *c; c++) {
            if (*c == '-') *c = '_';
            if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        }
        unsetenv(name);
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_valid),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_sources),
#if !defined(_WIN32)
        cmocka_unit_test(test_llama_variables),
        cmocka_unit_test(test_llama_flags),
        cmocka_unit_test(test_idle),
#endif
        cmocka_unit_test(test_repeated_options),
        cmocka_unit_test(test_suggestions),
    };
    return cmocka_run_group_tests(tests, remove_variables, NULL);
}
