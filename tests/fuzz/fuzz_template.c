/* fuzz_template.c: any bytes as a chat template, rendered with small budgets. The request is fixed,
 * unless the input has a NUL: then the rest is the request. */
#include "fuzz_target.h"

#include <string.h>

#include "mem.h"
#include "template.h"

static const char request[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi é <b>\"}, {\"role\": \"assistant\","
    "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": "
    "[1,"
    " 2.5, true, null]}}}]}], \"tools\": [{\"name\": \"f\"}], \"add_generation_prompt\": true,"
    "\"chat_template_kwargs\": {\"n\": 7, \"s\": \"Hello World\", \"l\": [3, 1, 2],"
    " \"d\": {\"b\": 2, \"a\": 1}}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *source = (const char *)data, *json = request;
    size_t n_source = n, n_json = sizeof request - 1, n_text;
    const char *nul = n ? memchr(source, 0, n) : NULL;
    template_program *program;
    json_doc *doc;
    char *text;
    if (nul) {
        n_source = (size_t)(nul - source);
        json = nul + 1;
        n_json = n - n_source - 1;
    }
    if (template_parse(source, n_source, &program, NULL) != PI_OK) return 0;
    if (json_parse(json, n_json, "request", &doc, NULL) == PI_OK) {
        const template_limits limits = {.steps = 20000, .memory = 4 << 20, .output = 1 << 16};
        template_input input = {.request = json_root(doc), .bos = "<s>", .limits = limits};
        input.now.tm_mday = 1;
        template_render(program, &input, &text, &n_text, NULL);
        mem_free(text);
        json_free(doc);
    }
    template_free(program);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    if (i >= template_builtin_count || strlen(template_builtins[i].source) > max) return 0;
    memcpy(data, template_builtins[i].source, strlen(template_builtins[i].source));
    return strlen(template_builtins[i].source);
}
