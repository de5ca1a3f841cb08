/* grammar_case.c: see grammar_case.h. */
#include "grammar_case.h"

#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "grammar_gbnf.h"
#include "grammar_schema.h"

static size_t token_text(const void *user, int32_t token, char *bytes, size_t capacity) {
    const case_vocab *v = user;
    if (token < 256) {
        bytes[0] = (char)token;
        return 1;
    }
    size_t n = strlen(v->texts[token - 256]);
    memcpy(bytes, v->texts[token - 256], n < capacity ? n : capacity);
    return n;
}

static bool token_ends(const void *user, int32_t token) {
    return token == case_vocab_end(user);
}

int32_t case_vocab_end(const case_vocab *v) {
    return 256 + v->n;
}

void case_vocab_create(case_vocab *v, const char *const *texts, int32_t n) {
    pi_error err;
    *v = (case_vocab){.texts = texts, .n = n};
    const vocab_source source = {v, 257 + n, token_text, token_ends};
    if (vocab_trie_create(&source, &v->trie, &err) != PI_OK) fail_msg("%s", err.message);
}

void case_vocab_free(case_vocab *v) {
    vocab_trie_free(v->trie);
}

static pi_status finish(const case_vocab *v, grammar_tree *t, const pi_grammar_options *o,
                        pi_grammar **out, pi_error *err) {
    int32_t root = grammar_rule_find(t, "root", 4);
    pi_status status = t->status;
    *out = NULL;
    if (status == PI_OK)
        status = grammar_create(t, root, v->trie, o, out, err);
    else if (err)
        *err = t->err;
    grammar_tree_free(t);
    return status;
}

pi_status case_lazy(const case_vocab *v, const char *text, const pi_grammar_options *o,
                    pi_grammar **out, pi_error *err) {
    grammar_tree t;
    if (!grammar_tree_init(&t)) {
        grammar_tree_free(&t);
        return error_nomem(err, 0, "grammar");
    }
    grammar_parse_gbnf(&t, text, strlen(text));
    return finish(v, &t, o, out, err);
}

pi_status case_gbnf(const case_vocab *v, const char *text, pi_grammar **out, pi_error *err) {
    return case_lazy(v, text, NULL, out, err);
}

static pi_status make_schema(const case_vocab *v, const char *json, bool widen, pi_grammar **out,
                             pi_error *err) {
    grammar_tree t;
    if (!grammar_tree_init(&t)) {
        grammar_tree_free(&t);
        return error_nomem(err, 0, "grammar");
    }
    int32_t root = grammar_rule_named(&t, "root", 4);
    const pi_grammar_schema schema = {.schema = json, .n_schema = strlen(json), .widen = widen};
    if (root >= 0) grammar_add_schema(&t, root, &schema);
    return finish(v, &t, NULL, out, err);
}

pi_status case_schema(const case_vocab *v, const char *json, pi_grammar **out, pi_error *err) {
    return make_schema(v, json, false, out, err);
}

pi_status case_widened(const case_vocab *v, const char *json, pi_grammar **out, pi_error *err) {
    return make_schema(v, json, true, out, err);
}

int case_match(pi_grammar *g, const char *text) {
    bool begins, complete;
    pi_error err;
    if (grammar_match(g, text, strlen(text), &begins, &complete, &err) != PI_OK)
        fail_msg("%s: %s", text, err.message);
    assert_true(begins || !complete);
    return complete ? 1 : begins ? 0 : -1;
}

/* Returns a random allowed token; ends the text with a probability of 1/4 where allowed. */
static int32_t draw(const uint64_t *mask, const case_vocab *v, rng *random) {
    int32_t end = case_vocab_end(v), n = 0, chosen = -1;
    bool may_end = mask[end >> 6] >> (end & 63) & 1;
    if (may_end && rng_u64(random) % 4 == 0) return end;
    for (int32_t i = 0; i < end; i++) {
        if (!(mask[i >> 6] >> (i & 63) & 1)) continue;
        if (rng_u64(random) % (uint64_t)++n == 0) chosen = i;
    }
    return chosen < 0 && may_end ? end : chosen;
}

int case_sample(pi_grammar *g, const case_vocab *v, rng *random, int n_tokens, char *text,
                size_t capacity) {
    grammar_reader *r;
    pi_error err;
    size_t used = 0;
    int result = -1;
    if (grammar_reader_create(g, &r, &err) != PI_OK) fail_msg("%s", err.message);
    for (int i = 0; i < n_tokens; i++) {
        const uint64_t *mask = grammar_reader_mask(r);
        size_t n;
        if (!mask) {
            grammar_reader_progress(r, &err);
            fail_msg("%s", err.message);
        }
        int32_t token = draw(mask, v, random);
        if (token < 0) fail_msg("no token may follow: %.*s", (int)used, text);
        assert_true(grammar_reader_accept(r, token));
        if (token == case_vocab_end(v)) {
            assert_int_equal(grammar_reader_progress(r, NULL), PI_GRAMMAR_COMPLETE);
            result = (int)used;
            break;
        }
        const char *bytes = vocab_text(v->trie, token, &n);
        if (used + n >= capacity) break;
        memcpy(text + used, bytes, n);
        used += n;
    }
    text[used] = '\0';
    grammar_reader_free(r);
    return result;
}
