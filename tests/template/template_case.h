/* template_case.h: renders one template with Hugging Face's settings, at a fixed time, with <BOS>
 * and <EOS>. */
#ifndef TEST_TEMPLATE_CASE_H
#define TEST_TEMPLATE_CASE_H

#include <string.h>

#include "json.h"
#include "mem.h"
#include "template.h"

static inline template_input case_input(const json_node *request) {
    template_input input = {.request = request, .bos = "<BOS>", .eos = "<EOS>"};
    input.now.tm_year = 2025 - 1900; /* Saturday, 2025-07-26 09:05:03 */
    input.now.tm_mon = 6;
    input.now.tm_mday = 26;
    input.now.tm_hour = 9;
    input.now.tm_min = 5;
    input.now.tm_sec = 3;
    input.now.tm_wday = 6;
    input.now.tm_yday = 206;
    return input;
}

/* *text is NULL on failure. */
static inline pi_status case_render(const char *source, size_t n_source,
                                    const template_input *input, char **text, size_t *n_text,
                                    pi_error *err) {
    template_program *program;
    *text = NULL;
    *n_text = 0;
    pi_status status = template_parse(source, n_source, &program, err);
    if (status) return status;
    status = template_render(program, input, text, n_text, err);
    template_free(program);
    return status;
}

#endif
