/* schema_place.c: problems of schemas, with their paths. A path is computed only for a message, by
 * searching for its node from the root. */
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "schema.h"

enum { PLACE_MAX_BYTES = 512 };

const char *schema_path(schema_compiler *c, const json_node *node, const char *keyword) {
    const char *name = c->options->name ? c->options->name : "JSON Schema";
    const char *root = c->options->path ? c->options->path : "$";
    char path[PLACE_MAX_BYTES], place[3 * PLACE_MAX_BYTES];
    json_path(c->root, node, keyword, path, sizeof path);
    /* Definitions inside a part of a schema belong to the whole schema. */
    bool defined = strncmp(path, ".$defs", 6) == 0 || strncmp(path, ".definitions", 12) == 0;
    snprintf(place, sizeof place, "%.200s: %.500s%s", name, defined ? "$" : root, path);
    return arena_strndup(&c->t->memory, place, strlen(place));
}

static grammar_node *fail(schema_compiler *c, pi_status status, const json_node *node,
                          const char *keyword, const char *what) {
    if (c->t->status != PI_OK) return grammar_never();
    const char *place = schema_path(c, node, keyword);
    if (!place) return grammar_no_memory(c->t);
    c->told = true;
    return grammar_fail(c->t, status, "%s: %s", place, what);
}

grammar_node *schema_wrong(schema_compiler *c, const json_node *node, const char *keyword,
                           const char *what) {
    return fail(c, PI_ERR_FORMAT, node, keyword, what);
}

grammar_node *schema_too_large(schema_compiler *c, const json_node *node, const char *keyword,
                               const char *what) {
    return fail(c, PI_ERR_LIMIT, node, keyword, what);
}

void schema_note(schema_compiler *c, const json_node *node, const char *keyword) {
    grammar_tree *t = c->t;
    if (t->status != PI_OK || c->n_widened == GRAMMAR_MAX_WIDENED ||
        t->n_widened == GRAMMAR_MAX_WIDENED)
        return;
    for (size_t i = 0; i < c->n_widened; i++)
        if (c->widened[i].node == node && strcmp(c->widened[i].keyword, keyword) == 0) return;
    c->widened[c->n_widened++] = (schema_place){node, keyword};
    const char *place = t->n_widened + 1 < GRAMMAR_MAX_WIDENED ? schema_path(c, node, keyword)
                                                               : "and more";
    if (place)
        t->widened[t->n_widened++] = place;
    else
        grammar_no_memory(t);
}

bool schema_widen(schema_compiler *c, const json_node *node, const char *keyword, const char *why) {
    if (c->options->widen) {
        schema_note(c, node, keyword);
        return c->t->status == PI_OK;
    }
    char text[PI_ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "a grammar cannot express it: %s", why);
    fail(c, PI_ERR_UNSUPPORTED, node, keyword, text);
    return false;
}

void schema_tell_place(schema_compiler *c) {
    if (c->told || c->t->status == PI_OK || c->t->status == PI_ERR_NOMEM) return;
    const pi_error why = c->t->err;
    const char *place = schema_path(c, c->now, NULL);
    if (place) error_set(&c->t->err, why.status, "%s: %s", place, why.message);
}
