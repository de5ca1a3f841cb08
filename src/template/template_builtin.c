/* template_builtin.c: templates of well-known formats, by the names that llama.cpp gives them. */
#include <string.h>

#include "template.h"

const template_builtin template_builtins[] = {
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
};
const size_t template_builtin_count = sizeof template_builtins / sizeof template_builtins[0];

const char *template_find_builtin(const char *name) {
    for (size_t i = 0; i < template_builtin_count; i++)
        if (strcmp(template_builtins[i].name, name) == 0) return template_builtins[i].source;
    return NULL;
}
