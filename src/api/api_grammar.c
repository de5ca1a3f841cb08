/* api_grammar.c: public grammars. The first grammar of a model sorts the vocabulary; the sorted
 * vocabulary belongs to the model. */
#include "api_types.h"
#include "grammar.h"
#include "grammar_gbnf.h"
#include "grammar_schema.h"

#include <string.h>

enum { SCHEMAS_MAX = 1024 };

static size_t token_text(const void *user, int32_t token, char *bytes, size_t capacity) {
    const pi_model *m = user;
    size_t n = 0;
    return pi_token_text(m, token, false, bytes, capacity, &n, NULL) == PI_OK ? n : 0;
}

static bool token_is_end(const void *user, int32_t token) {
    return pi_token_is_end(user, token);
}

/* The sorted vocabulary, created by the first thread that asks. Models are const for callers. */
static pi_status find_trie(const pi_model *m, const vocab_trie **out, pi_error *err) {
    _Atomic(vocab_trie *) *place = (_Atomic(vocab_trie *) *)&m->trie;
    vocab_trie *made, *other = NULL;
    *out = atomic_load(place);
    if (*out) return PI_OK;
    if (!m->text) return error_set(err, PI_ERR_UNSUPPORTED, "%s", m->no_text.message);
    const vocab_source source = {m, api_n_vocab(m), token_text, token_is_end};
    pi_status status = vocab_trie_create(&source, &made, err);
    if (status != PI_OK) return status;
    if (!atomic_compare_exchange_strong(place, &other, made)) {
        vocab_trie_free(made); /* another thread was faster */
        made = other;
    }
    *out = made;
    return PI_OK;
}

static pi_status add_schemas(grammar_tree *t, const pi_grammar_options *o, pi_error *err) {
    if (o->n_schemas > SCHEMAS_MAX)
        return error_set(err, PI_ERR_ARG, "too many schemas: grammar: give at most %d",
                         SCHEMAS_MAX);
    for (size_t i = 0; i < o->n_schemas && t->status == PI_OK; i++) {
        const pi_grammar_schema *s = &o->schemas[i];
        int32_t rule = grammar_rule_named(t, s->rule, strlen(s->rule));
        if (rule >= 0) grammar_add_schema(t, rule, s);
    }
    return t->status;
}

static pi_status make(const pi_model *m, const char *gbnf, size_t n_gbnf,
                      const pi_grammar_options *o, grammar_tree *t, pi_grammar **out,
                      pi_error *err) {
    const char *root_name = o->root ? o->root : "root";
    const vocab_trie *trie;
    pi_status status = find_trie(m, &trie, err);
    if (status != PI_OK) return status;
    status = add_schemas(t, o, err);
    if (status != PI_OK && t->status == PI_OK) return status;
    if (status == PI_OK) grammar_parse_gbnf(t, gbnf, n_gbnf);
    int32_t root = grammar_rule_find(t, root_name, strlen(root_name));
    if (t->status == PI_OK && root < 0)
        grammar_fail(t, PI_ERR_FORMAT, "the grammar has no start rule %s", root_name);
    if (t->status != PI_OK) {
        if (err) *err = t->err;
        return t->status;
    }
    return grammar_create(t, root, trie, o, out, err);
}

pi_status pi_grammar_create(const pi_model *m, const char *gbnf, size_t n_gbnf,
                            const pi_grammar_options *options, pi_grammar **out, pi_error *err) {
    const pi_grammar_options none = {.root = NULL};
    grammar_tree t;
    *out = NULL;
    pi_status status = grammar_tree_init(&t)
                           ? make(m, gbnf, n_gbnf, options ? options : &none, &t, out, err)
                           : error_set(err, PI_ERR_NOMEM, "out of memory: grammar");
    grammar_tree_free(&t);
    return status;
}

pi_status pi_grammar_from_schema(const pi_model *m, const char *schema, size_t n_schema,
                                 pi_grammar **out, pi_error *err) {
    const pi_grammar_schema root = {.rule = "root", .schema = schema, .n_schema = n_schema};
    const pi_grammar_options options = {.schemas = &root, .n_schemas = 1};
    return pi_grammar_create(m, "", 0, &options, out, err);
}

void pi_grammar_free(pi_grammar *g) {
    grammar_release(g);
}

pi_grammar *pi_grammar_retain(pi_grammar *g) {
    return grammar_retain(g);
}

size_t pi_grammar_memory(pi_grammar *g) {
    return grammar_memory(g);
}

const char *pi_grammar_widened(const pi_grammar *g, size_t i) {
    return grammar_widened(g, i);
}

pi_status pi_grammar_match(pi_grammar *g, const char *text, size_t n_text, bool *begins,
                           bool *complete, pi_error *err) {
    return grammar_match(g, text, n_text, begins, complete, err);
}
