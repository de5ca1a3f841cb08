/* ptx_parse.c: reads modules: global variables and the positions of functions. Kernels are decoded
 * when they are first requested (ptx_decode.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_text.h"

const char *ptx_kernel_file(const ptx_kernel *k) {
    return k->module->file;
}

size_t ptx_kernel_params(const ptx_kernel *k) {
    return k->n_params;
}

ptx_memory *ptx_kernel_memory(const ptx_kernel *k) {
    return k->module->memory;
}

/* .global .align n .type name[size] = {values}; */
static void read_global(ptx_reader *r, ptx_module *m) {
    const ptx_variable v = ptx_read_variable(r);
    if (r->failed) return;
    uint8_t *bytes = calloc(1, v.n_bytes + 16); /* malloc aligns to 16 */
    if (!bytes || v.align > 16) {
        free(bytes);
        ptx_wrong(r, "no memory for a variable", &v.name);
        return;
    }
    if (ptx_accept(r, "=")) {
        const bool several = ptx_accept(r, "{");
        uint32_t at = 0;
        do {
            const uint64_t value = ptx_read_number(r);
            if (at < v.n_bytes) memcpy(bytes + at, &value, v.element);
            at += v.element;
        } while (several && ptx_accept(r, ","));
        if (several) ptx_expect(r, "}");
        if (at > v.n_bytes) ptx_wrong(r, "too many values", &v.name);
    }
    ptx_expect(r, ";");
    const ptx_symbol s = {.name = v.name, .kind = SYMBOL_GLOBAL, .at = (uintptr_t)bytes};
    if (!ptx_symbols_add(&m->globals, s)) {
        free(bytes);
        ptx_wrong(r, "no memory", NULL);
    } else if (!ptx_memory_add(m->memory, bytes, v.n_bytes, PTX_DEFINED, PTX_HOST)) {
        ptx_wrong(r, "no memory", NULL);
    }
}

/* .shared .align n .type name[size]; which kernels have it is known when they are decoded. */
static void read_shared(ptx_reader *r, ptx_module *m) {
    const ptx_variable v = ptx_read_variable(r);
    ptx_expect(r, ";");
    const ptx_symbol s = {
        .name = v.name, .kind = SYMBOL_SHARED, .n_bytes = v.n_bytes, .at = v.align};
    if (!r->failed && !ptx_symbols_add(&m->shared, s)) ptx_wrong(r, "no memory", NULL);
}

static void skip_parentheses(ptx_reader *r) {
    ptx_word w;
    do {
        w = ptx_next(r);
    } while (w.n && !ptx_is(w, ")"));
}

/* .entry name(parameters) directives {body}; .func (result) name(parameters) {body} or ; */
static void read_function(ptx_reader *r, ptx_module *m, bool entry) {
    ptx_function f = {.entry = entry, .head = *r};
    if (ptx_is(ptx_peek(r), "(")) {
        f.has_result = true;
        skip_parentheses(r);
    }
    f.name = ptx_next(r);
    if (ptx_is(ptx_peek(r), "(")) skip_parentheses(r);
    for (;;) { /* directives for the hardware: .maxntid 512, 1, 1 */
        const ptx_word w = ptx_next(r);
        if (ptx_is(w, ";")) return; /* declared, not defined */
        if (ptx_is(w, "{")) break;
        if (w.n == 0) {
            ptx_wrong(r, "a function has no body", &f.name);
            return;
        }
    }
    f.body = *r;
    ptx_skip_braces(r);
    void *all = m->functions;
    if (!ptx_grow(&all, &m->function_room, m->n_functions, sizeof f)) {
        ptx_wrong(r, "no memory", NULL);
        return;
    }
    m->functions = all;
    m->functions[m->n_functions++] = f;
}

static void read_module(ptx_reader *r, ptx_module *m) {
    while (!r->failed) {
        const ptx_word w = ptx_next(r);
        if (w.n == 0) return;
        if (ptx_is(w, ".version") || ptx_is(w, ".target") || ptx_is(w, ".address_size")) {
            ptx_next(r);
        } else if (ptx_is(w, ".entry") || ptx_is(w, ".func")) {
            read_function(r, m, ptx_is(w, ".entry"));
        } else if (ptx_is(w, ".global") || ptx_is(w, ".const")) {
            read_global(r, m);
        } else if (ptx_is(w, ".shared")) {
            read_shared(r, m);
        } else if (!ptx_is(w, ".visible") && !ptx_is(w, ".weak") && !ptx_is(w, ",")) {
            ptx_wrong(r, "unexpected in a module", &w);
        }
    }
}

ptx_module *ptx_module_parse(const char *name, const char *text, ptx_memory *memory,
                             ptx_error *error) {
    ptx_module *m = calloc(1, sizeof *m);
    if (m) {
        m->memory = memory;
        m->text = strdup(text);
        m->file = strdup(name);
    }
    if (!m || !m->text || !m->file) {
        snprintf(error->text, sizeof error->text, "out of memory: %.200s", name);
        ptx_module_free(m);
        return NULL;
    }
    ptx_reader r = {.at = m->text, .line = 1, .file = m->file, .error = error};
    read_module(&r, m);
    if (!r.failed) return m;
    ptx_module_free(m);
    return NULL;
}

ptx_module *ptx_module_open(const char *path, ptx_memory *memory, ptx_error *error) {
    ptx_module *m = NULL;
    char *text = NULL;
    FILE *f = fopen(path, "rb");
    const bool found = f && fseek(f, 0, SEEK_END) == 0;
    const long n = found ? ftell(f) : -1;
    if (n >= 0) text = calloc(1, (size_t)n + 1);
    if (text) rewind(f);
    if (text && fread(text, 1, (size_t)n, f) == (size_t)n)
        m = ptx_module_parse(path, text, memory, error);
    else
        snprintf(error->text, sizeof error->text, "cannot read %.300s", path);
    if (f) fclose(f);
    free(text);
    return m;
}

static void kernel_free(ptx_kernel *k) {
    free(k->code);
    free(k->fills);
    free((char *)(uintptr_t)k->name);
    free(k);
}

void ptx_module_free(ptx_module *m) {
    if (!m) return;
    while (m->kernels) {
        ptx_kernel *k = m->kernels;
        m->kernels = k->next;
        kernel_free(k);
    }
    for (size_t i = 0; i < m->globals.n; i++) {
        void *bytes = (void *)(uintptr_t)m->globals.all[i].at;
        ptx_memory_remove(m->memory, bytes);
        free(bytes);
    }
    free(m->globals.all);
    free(m->shared.all);
    free(m->functions);
    free(m->text);
    free(m->file);
    free(m);
}

ptx_kernel *ptx_module_kernel(ptx_module *m, const char *name, ptx_error *error) {
    error->text[0] = '\0';
    for (ptx_kernel *k = m->kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0) return k;
    for (size_t i = 0; i < m->n_functions; i++) {
        ptx_function *f = &m->functions[i];
        if (!f->entry || !ptx_is(f->name, name)) continue;
        ptx_kernel *k = calloc(1, sizeof *k);
        if (k) {
            k->module = m;
            k->name = strdup(name);
        }
        if (!k || !k->name) {
            snprintf(error->text, sizeof error->text, "out of memory: %.200s", name);
        } else if (ptx_decode(m, k, f, error)) {
            k->next = m->kernels;
            m->kernels = k;
            return k;
        }
        if (k) kernel_free(k);
        return NULL;
    }
    return NULL;
}
