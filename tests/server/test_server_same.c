/* test_server_same.c: pi_generate, the commands run and chat, and the server's completions give
 * equal texts for equal prompts, seeds and sampling options; and other properties of pi_generate:
 * reasons to stop, pieces, counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "powerinfer_generation.h"
#include "powerinfer_speculate.h"
#include "server_case.h"
#include "utf8.h"

#define PROMPT "The old lighthouse keeper looked at the sea, and the sea"

enum { N_TOKENS = 50, TEXT_ROOM = 1 << 16, N_CTX = 256 };

static server_case c;
static pi_context *context;
static pi_session *session;

/* Equal settings as command-line options, as JSON, and for the library. */
static const struct {
    const char *typed, *json;
    float temp, repeat_penalty, min_p;
    uint64_t seed;
    const char *stop;
} settings[] = {
    {"--temp 0", "\"temperature\":0", 0, 1, 0.05f, 0, NULL},
    {"--temp 0.9 -s 11", "\"temperature\":0.9,\"seed\":11", 0.9f, 1, 0.05f, 11, NULL},
    {"--temp 1.3 --min-p 0.02 --repeat-penalty 1.2 -s 5",
     "\"temperature\":1.3,\"min_p\":0.02,\"repeat_penalty\":1.2,\"seed\":5", 1.3f, 1.2f, 0.02f, 5,
     NULL},
    {"--temp 0.9 -s 11 -r ' the '", "\"temperature\":0.9,\"seed\":11,\"stop\":[\" the \"]", 0.9f, 1,
     0.05f, 11, " the "},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static int set_up(void **state) {
    pi_error err;
    (void)state;
    case_open(&c);
    pi_context_options o = c.options.served.context;
    o.n_logits = 1 + 8;
    if (pi_context_create(c.model, &o, &context, &err) != PI_OK) fail_msg("%s", err.message);
    assert_int_equal(pi_session_create(context, N_CTX, &session, NULL), PI_OK);
    case_start(&c);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pi_session_destroy(session);
    pi_context_destroy(context);
    case_close(&c);
    return 0;
}

/* ---- the library ----------------------------------------------------------------------------- */

typedef struct taken {
    char text[TEXT_ROOM];
    size_t n;
    int32_t tokens[N_CTX];
    int n_tokens;
    bool broken;
    int stop_after; /* tokens; 0: never */
} taken;

static bool take(void *user, int32_t token, const char *text, size_t n) {
    taken *t = user;
    assert_true(t->n + n < sizeof t->text);
    memcpy(t->text + t->n, text, n);
    t->n += n;
    t->text[t->n] = '\0';
    if (token < 0) return true;
    assert_false(t->broken); /* the last piece alone may end within a character */
    t->broken = utf8_complete_prefix(text, n) != n;
    t->tokens[t->n_tokens++] = token;
    return t->n_tokens != t->stop_after;
}

static pi_sampler *make_sampler(int i) {
    pi_sampler *sampler;
    pi_sampler_options o = pi_sampler_default_options();
    o.temp = settings[i].temp;
    o.repeat_penalty = settings[i].repeat_penalty;
    o.min_p = settings[i].min_p;
    o.seed = settings[i].seed;
    assert_int_equal(pi_sampler_create(c.model, &o, &sampler, NULL), PI_OK);
    return sampler;
}

static pi_generated generate(int i, pi_generate_options o, taken *t) {
    pi_generated out;
    pi_error err;
    o.sampler = make_sampler(i);
    o.piece = take;
    o.user = t;
    assert_int_equal(pi_session_rewind(session, 0, NULL), PI_OK);
    if (pi_generate(context, session, &o, &out, &err) != PI_OK) fail_msg("%s", err.message);
    pi_sampler_destroy(o.sampler);
    assert_int_equal(out.n_tokens, t->n_tokens);
    return out;
}

static pi_generate_options usual(int i, pi_stop_text *stop) {
    pi_generate_options o = pi_generate_default_options();
    o.prompt = PROMPT;
    o.max_tokens = N_TOKENS;
    if (settings[i].stop) {
        *stop = (pi_stop_text){settings[i].stop, strlen(settings[i].stop)};
        o.stops = stop;
        o.n_stops = 1;
    }
    return o;
}

/* ---- commands and server --------------------------------------------------------------------- */

/* Returns the member `name` of the JSON that a command line prints. */
static void ask_program(const char *command, const char *typed, const char *name, char *text) {
    char line[1024], json[TEXT_ROOM];
    json_doc *doc;
    const char *value;
    size_t n;
    snprintf(line, sizeof line,
             "%s %s -m '%s' -p '" PROMPT
             "' -n %d -t 2 --device cpu -ctk f32 -ctv f32 -q --json %s </dev/null",
             TEST_PROGRAM, command, CASE_MODEL, N_TOKENS, typed);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    size_t n_json = fread(json, 1, sizeof json, f);
    assert_int_equal(pclose(f), 0);
    assert_int_equal(json_parse(json, n_json, "program", &doc, NULL), PI_OK);
    assert_true(json_as_string(json_get(json_root(doc), name), &value, &n));
    snprintf(text, TEXT_ROOM, "%s", value);
    json_free(doc);
}

/* Returns the answer in a text with the template "plain": its first paragraph. */
static void keep_paragraph(char *text) {
    char *begin = text + strspn(text, "\n "), *end = strstr(begin, "\n\n");
    if (end) *end = '\0';
    size_t n = strlen(text);
    while (n && strchr(" \n", text[n - 1])) text[--n] = '\0';
}

static void test_same_text_everywhere(void **state) {
    static taken shown, cut;
    static char text[TEXT_ROOM];
    (void)state;
    for (int i = 0; i < N_SETTINGS; i++) {
        char body[512];
        pi_stop_text stop;
        pi_generate_options o = usual(i, &stop);
        cut = (taken){.n = 0};
        shown = (taken){.n = 0};
        pi_generated out = generate(i, o, &cut);
        o.keep_stop = true;
        generate(i, o, &shown);
        assert_true(settings[i].stop ? out.stop == PI_STOP_TEXT : out.stop != PI_STOP_TEXT);
        assert_true(shown.n > 10);

        snprintf(body, sizeof body,
                 "{\"prompt\":\"" PROMPT "\",\"cache_prompt\":false,\"max_tokens\":%d,%s}",
                 N_TOKENS, settings[i].json);
        http_reply r = http_post(&c, "/v1/completions", body);
        assert_string_equal(http_text(&r, "choices.0.text"), cut.text);
        assert_string_equal(http_text(&r, "choices.0.finish_reason"),
                            out.stop == PI_STOP_LENGTH ? "length" : "stop");
        http_free(&r);

        ask_program("run", settings[i].typed, "text", text);
        assert_string_equal(text, shown.text);
        ask_program("chat --chat-template plain", settings[i].typed, "content", text);
        keep_paragraph(shown.text);
        assert_string_equal(text, shown.text);
    }
}

/* A stop text across tokens is kept or left out; no part of it is released before it is decided. */
static void test_stop_texts(void **state) {
    static taken whole, kept, cut;
    (void)state;
    whole = kept = cut = (taken){.n = 0};
    pi_generate_options o = usual(1, NULL);
    generate(1, o, &whole);
    const pi_stop_text stop = {whole.text + whole.n / 2, 9};
    const char *first = memmem(whole.text, whole.n, stop.text, stop.n_bytes);
    size_t at = (size_t)(first - whole.text);
    o.stops = &stop;
    o.n_stops = 1;
    assert_int_equal(generate(1, o, &cut).stop, PI_STOP_TEXT);
    assert_int_equal(cut.n, at);
    assert_memory_equal(cut.text, whole.text, at);
    o.keep_stop = true;
    assert_int_equal(generate(1, o, &kept).stop, PI_STOP_TEXT);
    assert_int_equal(kept.n, at + stop.n_bytes);
    assert_memory_equal(kept.text, whole.text, kept.n);
}

/* Prompts as tokens, with their beginning already in the session; cancelling; counts. */
static void test_prompts_and_counts(void **state) {
    static taken whole, again, cancelled;
    int32_t tokens[N_CTX];
    size_t n;
    pi_generated out;
    (void)state;
    whole = again = cancelled = (taken){.n = 0};
    pi_generate_options o = usual(0, NULL);
    generate(0, o, &whole);
    assert_int_equal(
        pi_tokenize(c.model, PROMPT, strlen(PROMPT), PI_TOKENIZE_BOS, tokens, N_CTX, &n, NULL),
        PI_OK);
    o.prompt = NULL;
    o.tokens = tokens;
    o.n_tokens = (int32_t)n;
    o.piece = take;
    o.user = &again;
    o.sampler = make_sampler(0);
    assert_int_equal(pi_session_rewind(session, (int32_t)n - 1, NULL), PI_OK);
    assert_int_equal(pi_generate(context, session, &o, &out, NULL), PI_OK);
    pi_sampler_destroy(o.sampler);
    assert_string_equal(again.text, whole.text);
    assert_int_equal(out.n_prompt, n);
    assert_int_equal(out.n_cached, n - 1);
    assert_int_equal(out.n_decoded, out.n_tokens - (out.stop == PI_STOP_LENGTH));
    assert_int_equal(out.n_steps, out.n_decoded);
    assert_int_equal(pi_session_length(session), (int32_t)n + out.n_decoded);

    cancelled.stop_after = 3;
    out = generate(0, o, &cancelled);
    assert_int_equal(out.stop, PI_STOP_CANCELLED);
    assert_int_equal(cancelled.n_tokens, 3);
    assert_memory_equal(cancelled.text, whole.text, cancelled.n);
    pi_context_cancel(context);
    cancelled = (taken){.n = 0};
    assert_int_equal(generate(0, o, &cancelled).stop, PI_STOP_CANCELLED);
    assert_int_equal(cancelled.n_tokens, 0);
    o.max_tokens = 0;
    assert_int_equal(generate(0, o, &cancelled).stop, PI_STOP_LENGTH);
    assert_int_equal(cancelled.n_tokens, 0);
}

/* A session that is too small ends the text, or is shifted. */
static void test_full_session(void **state) {
    static taken t;
    pi_session *small;
    pi_generated out;
    (void)state;
    assert_int_equal(pi_session_create(context, 24, &small, NULL), PI_OK);
    pi_generate_options o = usual(0, NULL);
    o.piece = take;
    o.user = &t;
    for (int shift = 0; shift < 2; shift++) {
        t = (taken){.n = 0};
        o.sampler = make_sampler(0);
        o.shift = shift;
        o.n_keep = 4;
        assert_int_equal(pi_session_rewind(small, 0, NULL), PI_OK);
        assert_int_equal(pi_generate(context, small, &o, &out, NULL), PI_OK);
        assert_int_equal(out.session_full, !shift);
        assert_true(shift ? out.n_shifts > 0 : out.n_shifts == 0);
        if (!shift) assert_int_equal(out.n_prompt + out.n_tokens, 24 + 1);
        pi_sampler_destroy(o.sampler);
    }
    pi_session_destroy(small);
}

static void test_drafts(void **state) {
    static taken plain, drafted;
    pi_speculator *speculator;
    (void)state;
    pi_speculator_options s = pi_speculator_default_options();
    s.model = c.model;
    s.ngrams = true;
    s.n_ctx = N_CTX;
    s.n_max = 7;
    s.n_min = 2;
    assert_int_equal(pi_speculator_create(&s, &speculator, NULL), PI_OK);
    plain = drafted = (taken){.n = 0};
    pi_generate_options o = usual(0, NULL);
    o.prompt = "the cat, the cat, the cat, the";
    generate(0, o, &plain);
    o.speculator = speculator;
    pi_generated out = generate(0, o, &drafted);
    assert_string_equal(drafted.text, plain.text);
    assert_true(out.n_drafted > 0 && out.n_accepted > 0 && out.n_steps < out.n_decoded);
    pi_speculator_destroy(speculator);
}

static void test_wrong_calls(void **state) {
    pi_generated out;
    pi_error err;
    (void)state;
    pi_generate_options o = pi_generate_default_options();
    assert_int_equal(pi_session_rewind(session, 0, NULL), PI_OK);
    assert_int_equal(pi_generate(context, session, &o, &out, &err), PI_ERR_ARG); /* no prompt */
    const pi_stop_text empty = {"", 0};
    o.prompt = PROMPT;
    o.stops = &empty;
    o.n_stops = 1;
    assert_int_equal(pi_generate(context, session, &o, &out, &err), PI_ERR_ARG);
    o.n_stops = PI_STOP_TEXTS + 1;
    assert_int_equal(pi_generate(context, session, &o, &out, &err), PI_ERR_LIMIT);
    o.n_stops = 0;
    o.n_keep = 1000;
    assert_int_equal(pi_generate(context, session, &o, &out, &err), PI_ERR_ARG);
    o.n_keep = 0;
    o.max_tokens = 4; /* with the default sampler */
    assert_int_equal(pi_generate(context, session, &o, NULL, NULL), PI_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_text_everywhere),
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_prompts_and_counts),
        cmocka_unit_test(test_full_session),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_wrong_calls),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
