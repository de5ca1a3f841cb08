/* template.c: the entry points for parsing and rendering: arenas, budgets, and the setjmp that
 * receives all errors. */
#include "template.h"

#include <limits.h>

#include "clock.h"
#include "mem.h"
#include "os_text.h"
#include "template_eval.h"
#include "utf8.h"

enum { PARSE_BYTES_PER_BYTE = 1024 }; /* bytes of memory per byte of source, including the tree */

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

/* Parsing calls setjmp only here, so that longjmp cannot clobber locals of a caller. */
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

/* Inserts text before a message's content, which may be a string, a list of parts, or absent. */
static tpl_value join_content(tpl *t, tpl_value text, const tpl_entry *content) {
    tpl_value old = content ? content->value : tpl_none();
    if (old.kind == TPL_STRING) return tpl_append(t, tpl_append(t, text, tpl_text(t, "\n\n")), old);
    if (old.kind != TPL_LIST) return text;
    tpl_list *parts = tpl_list_new(t, old.list->n + 1);
    tpl_dict *part = tpl_dict_new(t);
    tpl_dict_set(t, part, tpl_text(t, "type"), tpl_text(t, "text"));
    tpl_dict_set(t, part, tpl_text(t, "text"), text);
    tpl_list_add(t, parts, tpl_of_dict(part));
    for (size_t i = 0; i < old.list->n; i++) tpl_list_add(t, parts, old.list->items[i]);
    return tpl_of_list(TPL_LIST, parts);
}

static bool has_text(tpl *t, tpl_value message, const char *key, const char *text) {
    const tpl_entry *e = message.kind == TPL_DICT ? tpl_dict_find_text(t, message.dict, key) : NULL;
    return e && tpl_is(e->value, text);
}

/* Removes system messages and puts their texts into the following user message. */
static tpl_value move_system(tpl *t, tpl_value messages) {
    if (messages.kind != TPL_LIST) return messages;
    tpl_list *out = tpl_list_new(t, messages.list->n + 1);
    tpl_value held = tpl_text(t, "");
    for (size_t i = 0; i < messages.list->n; i++) {
        tpl_value m = messages.list->items[i];
        const bool system = has_text(t, m, "role", "system");
        const tpl_entry *content = system ? tpl_dict_find_text(t, m.dict, "content") : NULL;
        if (system && content && content->value.kind == TPL_STRING) {
            if (held.str->n) held = tpl_append(t, held, tpl_text(t, "\n\n"));
            held = tpl_append(t, held, content->value);
            continue;
        }
        if (held.str->n && has_text(t, m, "role", "user")) {
            content = tpl_dict_find_text(t, m.dict, "content");
            tpl_dict_set(t, m.dict, tpl_text(t, "content"), join_content(t, held, content));
            held = tpl_text(t, "");
        }
        tpl_list_add(t, out, m);
    }
    if (held.str->n) { /* no user message followed */
        tpl_dict *m = tpl_dict_new(t);
        tpl_dict_set(t, m, tpl_text(t, "role"), tpl_text(t, "user"));
        tpl_dict_set(t, m, tpl_text(t, "content"), held);
        tpl_list_add(t, out, tpl_of_dict(m));
    }
    return tpl_of_list(TPL_LIST, out);
}

static void define_request(tpl *t, const template_input *input) {
    static const char *const members[] = {"messages", "tools", "documents", "add_generation_prompt",
                                          "enable_thinking"};
    void *iter = NULL;
    const char *key;
    const json_node *value, *request = input->request;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        value = json_get(request, members[i]);
        if (!value) continue;
        tpl_value v = tpl_from_json(t, value);
        define(t, members[i], i == 0 && input->moves_system ? move_system(t, v) : v);
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
    define_request(t, input);
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
    if (input->limits.seconds > 0) t.deadline = clock_seconds() + input->limits.seconds;
    t.now = input->now;
    *text = NULL;
    *n_bytes = 0;
    render_guarded(&t, input);
    if (t.status == PI_OK) {
        *text = mem_strndup(out.n ? out.data : "", out.n);
        *n_bytes = out.n;
        if (!*text) t.status = error_nomem(err, out.n, "chat template's text");
    }
    json_free(t.parsed);
    arena_free(&t.small);
    arena_free(&t.large);
    return t.status;
}

#define PROBE "902105 of the system"

/* *shows: the template renders the request and the text contains `word`. */
static pi_status try_request(const template_program *t, const template_input *like,
                             const char *request, const char *word, bool *shows, pi_error *err) {
    template_input input = *like;
    json_doc *doc = NULL;
    char *text = NULL;
    size_t n = 0;
    *shows = false;
    pi_status status = json_parse(request, strlen(request), "request", &doc, err);
    input.request = json_root(doc);
    input.moves_system = false;
    if (status == PI_OK) status = template_render(t, &input, &text, &n, err);
    if (status == PI_OK) *shows = os_find(text, n, word, strlen(word));
    mem_free(text);
    json_free(doc);
    return status == PI_ERR_NOMEM || status == PI_ERR_LIMIT ? status : PI_OK;
}

pi_status template_drops_system(const template_program *t, const template_input *like, bool *drops,
                                pi_error *err) {
    static const char end[] = "",
                      user[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],"
                               "\"add_generation_prompt\":true}",
                      system[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"" PROBE
                                 "\"},{\"role\":\"user\",\"content\":\"q\"}],"
                                 "\"add_generation_prompt\":true}";
    bool renders = false, shows = false;
    pi_status status = try_request(t, like, user, end, &renders, err);
    if (status == PI_OK && renders) status = try_request(t, like, system, PROBE, &shows, err);
    *drops = renders && !shows;
    return status;
}
