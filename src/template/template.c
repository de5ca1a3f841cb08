/* template.c: parsing and rendering from outside: arenas, budgets and the one place where errors
 * arrive. */
#include "template.h"

#include <limits.h>

#include "mem.h"
#include "template_eval.h"
#include "utf8.h"

enum { PARSE_BYTES_PER_BYTE = 1024 }; /* memory that a byte of source may take, tree and all */

static uint64_t limit(uint64_t wanted, uint64_t standard) {
    return wanted ? wanted : standard;
}

static void parse_into(template_program *program, tpl *t, const char *source, size_t n_bytes) {
    tpl_parser p = {.t = t, .program = program};
    if (!text_table_init(&program->names, 0)) {
        t->status = error_nomem(t->err, 0, "chat template");
        longjmp(t->fail, 1);
    }
    tpl_tokenize(t, source, n_bytes, &p.tokens);
    program->loop = tpl_intern(&p, "loop", 4);
    program->caller = tpl_intern(&p, "caller", 6);
    program->varargs = tpl_intern(&p, "varargs", 7);
    program->kwargs = tpl_intern(&p, "kwargs", 6);
    t->line = p.tokens.items[0].line;
    program->body = tpl_parse_template(&p);
}

/* setjmp lives here alone, so that no local of a caller is at its mercy. */
static pi_status parse_guarded(template_program *program, tpl *t, const char *source,
                               size_t n_bytes) {
    if (setjmp(t->fail) == 0) parse_into(program, t, source, n_bytes);
    program->small = t->small;
    program->large = t->large;
    return t->status;
}

pi_status template_parse(const char *source, size_t n_bytes, template_program **out,
                         pi_error *err) {
    *out = NULL;
    if (n_bytes > TEMPLATE_MAX_BYTES) {
        return error_set(err, PI_ERR_LIMIT, "chat template of %zu bytes is too long: at most %d",
                         n_bytes, TEMPLATE_MAX_BYTES);
    }
    if (!utf8_is_valid(source, n_bytes))
        return error_set(err, PI_ERR_FORMAT, "chat template is not UTF-8 text");
    template_program *program = mem_calloc(1, sizeof *program);
    if (!program) return error_nomem(err, sizeof *program, "chat template");
    tpl t = {.err = err, .status = PI_OK, .line = 1};
    t.memory_left = (uint64_t)(n_bytes + 64) * PARSE_BYTES_PER_BYTE;
    t.steps_left = UINT64_MAX;
    pi_status status = parse_guarded(program, &t, source, n_bytes);
    if (status != PI_OK) {
        template_free(program);
        return status;
    }
    *out = program;
    return PI_OK;
}

void template_free(template_program *t) {
    if (!t) return;
    text_table_free(&t->names);
    arena_free(&t->small);
    arena_free(&t->large);
    mem_free(t);
}

/* ---- rendering ------------------------------------------------------------------------------- */

static void define(tpl *t, const char *name, tpl_value v) {
    uint32_t id = text_table_find(&t->program->names, name, strlen(name));
    if (id != TEXT_TABLE_NONE) t->globals[id] = v;
}

static void define_token(tpl *t, const char *name, const char *text) {
    if (!text) return;
    if (!utf8_is_valid(text, strlen(text))) tpl_fail(t, PI_ERR_ARG, "%s is not UTF-8 text", name);
    define(t, name, tpl_text(t, text));
}

static void define_request(tpl *t, const json_node *request) {
    static const char *const members[] = {"messages", "tools", "documents", "add_generation_prompt",
                                          "enable_thinking"};
    void *iter = NULL;
    const char *key;
    const json_node *value;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        value = json_get(request, members[i]);
        if (value) define(t, members[i], tpl_from_json(t, value));
    }
    const json_node *more = json_get(request, "chat_template_kwargs");
    while (json_next(more, &iter, &key, &value)) define(t, key, tpl_from_json(t, value));
}

static void render(tpl *t, const template_input *input) {
    if (json_kind_of(input->request) != JSON_OBJECT) {
        t->status = error_set(t->err, PI_ERR_ARG, "the request is not a JSON object");
        longjmp(t->fail, 1);
    }
    t->globals = tpl_alloc_array(t, t->program->names.count, sizeof *t->globals);
    tpl_define_globals(t);
    define_token(t, "bos_token", input->bos);
    define_token(t, "eos_token", input->eos);
    define_request(t, input->request);
    tpl_exec(t, t->program->body, NULL);
}

static void render_guarded(tpl *t, const template_input *input) {
    if (setjmp(t->fail) == 0) render(t, input);
}

pi_status template_render(const template_program *program, const template_input *input, char **text,
                          size_t *n_bytes, pi_error *err) {
    tpl_buffer out = {0};
    tpl t = {.err = err, .status = PI_OK, .line = 1, .program = program, .out = &out};
    t.memory_left = limit(input->limits.memory, TEMPLATE_DEFAULT_MEMORY);
    t.steps_left = limit(input->limits.steps, TEMPLATE_DEFAULT_STEPS);
    t.output_left = limit(input->limits.output, TEMPLATE_DEFAULT_OUTPUT);
    t.now = input->now;
    *text = NULL;
    *n_bytes = 0;
    render_guarded(&t, input);
    if (t.status == PI_OK) {
        *text = mem_strndup(out.n ? out.data : "", out.n);
        *n_bytes = out.n;
        if (!*text) t.status = error_nomem(err, out.n, "chat template's text");
    }
    arena_free(&t.small);
    arena_free(&t.large);
    return t.status;
}
