/* prepare_order.c: the order of tensors in files. A bundle takes the position of one of its
 * matrices; a key records the positions of the others, so that files without bundles regain their
 * order. */
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "prepare.h"
#include "sparse_keys.h"

/* ---- the key --------------------------------------------------------------------------------- */

/* The name in the source of a prepared file's tensor. */
static void source_name(const char *name, char out[GGUF_MAX_NAME]) {
    static const char down_t[] = ".ffn_down_t";
    enum { T_BYTES = 2 }; /* "_t" */
    memcpy(out, name, strlen(name) + 1);
    char *at = strstr(out, down_t);
    char *after = at ? at + sizeof down_t - 1 : NULL;
    if (after && (*after == '.' || *after == '_'))
        memmove(after - T_BYTES, after, strlen(after) + 1);
}

static bool is_added(const model *m, const char *name) {
    int layer;
    const arch_tensor *row = prepare_find_role(m, name, &layer);
    return row && row->flags & TENSOR_SPARSE;
}

static const gguf_value *find_order(const model *m) {
    const gguf_value *v = gguf_find(m->file, SPARSE_KEY_SOURCE_TENSORS);
    return v && v->type == GGUF_ARRAY && v->item_type == GGUF_STRING ? v : NULL;
}

pi_status prepare_put_order(const preparation *p, pi_error *err) {
    typedef char name_text[GGUF_MAX_NAME];
    const model *m = p->model;
    if (model_has_bundles(m)) {
        if (find_order(m)) gguf_put_value(p->writer, find_order(m));
        return PI_OK;
    }
    size_t n = (size_t)gguf_n_tensors(m->file), n_names = 0;
    name_text *texts = mem_calloc(n, sizeof *texts);
    gguf_string *names = mem_calloc(n, sizeof *names);
    for (size_t i = 0; i < n && texts && names; i++) {
        char *text = texts[n_names];
        source_name(gguf_tensor_at(m->file, i)->name, text);
        if (is_added(m, text)) continue;
        names[n_names++] = (gguf_string){.data = text, .n_bytes = strlen(text)};
    }
    bool ok = texts && names;
    if (ok) gguf_put_strings(p->writer, SPARSE_KEY_SOURCE_TENSORS, names, n_names);
    mem_free(texts);
    mem_free(names);
    return ok ? PI_OK : error_nomem(err, n * sizeof *texts, "names of tensors");
}

/* ---- sorting --------------------------------------------------------------------------------- */

typedef struct ranked_name {
    gguf_string name;
    size_t rank;
} ranked_name;

static int compare_names(const void *a, const void *b) {
    const gguf_string x = ((const ranked_name *)a)->name, y = ((const ranked_name *)b)->name;
    int by = memcmp(x.data, y.data, x.n_bytes < y.n_bytes ? x.n_bytes : y.n_bytes);
    return by ? by : (x.n_bytes > y.n_bytes) - (x.n_bytes < y.n_bytes);
}

static int compare_parts(const void *a, const void *b) {
    const prepare_part *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

pi_status prepare_restore_order(prepare_parts *l, pi_error *err) {
    const gguf_value *v = find_order(l->p->model);
    if (l->p->bundles || !v) return PI_OK;
    ranked_name *names = mem_calloc((size_t)v->count + 1, sizeof *names);
    if (!names) return error_nomem(err, (size_t)v->count * sizeof *names, "names of tensors");
    const uint8_t *cursor = v->data;
    for (size_t i = 0; i < v->count; i++)
        names[i] = (ranked_name){.name = gguf_next_string(&cursor), .rank = i};
    qsort(names, (size_t)v->count, sizeof *names, compare_names);
    size_t last = 0; /* tensors that the key does not name stay after all their predecessors */
    for (size_t i = 0; i < l->n; i++) {
        prepare_part *item = &l->items[i];
        char text[GGUF_MAX_NAME];
        source_name(item->name, text);
        ranked_name key = {.name = {.data = text, .n_bytes = strlen(text)}};
        const ranked_name *found = bsearch(&key, names, (size_t)v->count, sizeof *names,
                                           compare_names);
        item->rank = found ? found->rank : last;
        item->place = i;
        if (item->rank > last) last = item->rank;
    }
    qsort(l->items, l->n, sizeof *l->items, compare_parts);
    mem_free(names);
    return PI_OK;
}
