/* template_builtin.c: templates of well-known formats, with llama.cpp's names, for models without a
 * template, and "plain". They write the text around messages but no BOS at the very start, which
 * the tokenizer adds. These formats have no tools. */
#include <string.h>

#include "template.h"

/* text(m): the content of a message, which may be a list of parts, or null. Within EACH, m is the
 * message and c its text. The newline after %} is dropped, as in every template. */
#define TEXT                                                                                       \
    "{% macro text(m) %}{% if m.content is string %}{{ m.content }}"                               \
    "{% elif m.content is iterable %}{% for part in m.content if part.type == 'text' %}"           \
    "{{ part.text }}{% endfor %}{% endif %}{% endmacro %}"
#define EACH(body) TEXT "{% for m in messages %}{% set c = text(m) %}" body "{% endfor %}"
/* Writes the start of the answer. */
#define ANSWER(begin) "{% if add_generation_prompt %}" begin "{% endif %}"
/* Selects by the role of the message: system, user, any other. */
#define ROLES(system, user, other)                                                                 \
    "{% if m.role == 'system' %}" system "{% elif m.role == 'user' %}" user "{% else %}" other     \
    "{% endif %}"
/* Keeps system messages for the next user message. */
#define KEPT_SYSTEM(system, body)                                                                  \
    "{% set kept = namespace(text='') %}" EACH(                                                    \
        "{% if m.role == 'system' %}{% set kept.text = kept.text ~ " system " %}{% else %}" body   \
        "{% endif %}")
/* [INST] opens a turn; the answer ends it. */
#define TURNS(first, open, system, user, other)                                                    \
    "{% set turn = namespace(open=" first                                                          \
    ") %}" EACH("{% if not turn.open %}" open "{% set turn.open = true %}{% endif %}" ROLES(       \
        system, user, other "{% set turn.open = false %}"))
#define LLAMA2(open, system, content)                                                              \
    "[INST] " TURNS("true", open, system, content " [/INST]", content "</s>")
#define MISTRAL_V3                                                                                 \
    TURNS("false", "[INST] ", "{{ c }}\n\n", "{{ c }}[/INST]", "{{ ' ' ~ (c|trim) }}</s>")
#define MISTRAL_V7(blank)                                                                          \
    EACH(ROLES("[SYSTEM_PROMPT]" blank "{{ c }}[/SYSTEM_PROMPT]", "[INST]" blank "{{ c }}[/INST]", \
               blank "{{ c }}</s>"))
#define HEADERS(open, close, end)                                                                  \
    EACH(open "{{ m.role }}" close "{{ c|trim }}" end) ANSWER(open "assistant" close)
#define SYS "<<SYS>>\n{{ c }}\n<</SYS>>\n\n"

const template_builtin template_builtins[] = {
    {"bailing", EACH("<role>{% if m.role == 'user' %}HUMAN{% else %}{{ m.role|upper }}{% endif %}"
                     "</role>{{ c }}") ANSWER("<role>ASSISTANT</role>")},
    {"chatglm3", "[gMASK]sop" EACH("<|{{ m.role }}|>\n {{ c }}") ANSWER("<|assistant|>")},
    {"chatglm4", "[gMASK]<sop>" EACH("<|{{ m.role }}|>\n{{ c }}") ANSWER("<|assistant|>\n")},
    {"chatml",
     EACH("<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>\n") ANSWER("<|im_start|>assistant\n")},
    {"command-r",
     EACH("<|START_OF_TURN_TOKEN|>" ROLES("<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>",
                                          "<|CHATBOT_TOKEN|>") "{{ c|trim }}<|END_OF_TURN_TOKEN|>")
         ANSWER("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")},
    {"deepseek", EACH(ROLES("{{ c }}", "### Instruction:\n{{ c }}\n",
                            "### Response:\n{{ c }}\n<|EOT|>\n")) ANSWER("### Response:\n")},
    {"deepseek2", EACH(ROLES("{{ c }}\n\n", "User: {{ c }}\n\n",
                             "Assistant: {{ c }}<｜end▁of▁sentence｜>")) ANSWER("Assistant:")},
    {"deepseek3",
     EACH(ROLES("{{ c }}\n\n", "<｜User｜>{{ c }}", "<｜Assistant｜>{{ c }}<｜end▁of▁sentence｜>"))
         ANSWER("<｜Assistant｜>")},
    {"exaone3", EACH("[|{{ m.role }}|]{{ c|trim }}{% if m.role != 'user' %}[|endofturn|]{% endif %}"
                     "{{ '\\n' }}") ANSWER("[|assistant|]")},
    {"exaone4", EACH("[|{{ m.role }}|]{{ c|trim }}{% if m.role != 'user' %}[|endofturn|]{% endif %}"
                     "{{ '\\n' }}") ANSWER("[|assistant|]")},
    {"falcon3", EACH("<|{{ m.role }}|>\n{{ c }}\n") ANSWER("<|assistant|>\n")},
    {"gemma", KEPT_SYSTEM("(c|trim)",
                          "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
                          "{% if kept.text and m.role != 'assistant' %}{{ kept.text ~ '\\n\\n' }}"
                          "{% set kept.text = '' %}{% endif %}"
                          "{{ c|trim }}<end_of_turn>\n") ANSWER("<start_of_turn>model\n")},
    {"glmedge", EACH("<|{{ m.role }}|>\n{{ c }}") ANSWER("<|assistant|>")},
    {"gpt-oss", EACH("<|start|>{{ m.role }}<|message|>{{ c }}"
                     "{{ '<|return|>' if m.role == 'assistant' else '<|end|>' }}")
                    ANSWER("<|start|>assistant")},
    {"granite", EACH("<|start_of_role|>{{ m.role }}<|end_of_role|>{{ c }}<|end_of_text|>\n")
                    ANSWER("<|start_of_role|>assistant<|end_of_role|>")},
    {"grok-2", EACH(ROLES("System: {{ c|trim }}", "Human: {{ c|trim }}",
                          "Assistant: {{ c }}") "<|separator|>\n\n") ANSWER("Assistant:")},
    {"kimi-k2", EACH(ROLES("<|im_system|>system", "<|im_user|>user",
                           "{{ '<|im_system|>tool' if m.role == 'tool' else "
                           "'<|im_assistant|>assistant' }}") "<|im_middle|>{{ c }}<|im_end|>")
                    ANSWER("<|im_assistant|>assistant<|im_middle|>")},
    {"llama2", LLAMA2("[INST] ", "{{ c }}\n", "{{ c }}")},
    {"llama2-sys", LLAMA2("[INST] ", SYS, "{{ c }}")},
    {"llama2-sys-bos", LLAMA2("<s>[INST] ", SYS, "{{ c }}")},
    {"llama2-sys-strip", LLAMA2("[INST] ", "<<SYS>>\n{{ c|trim }}\n<</SYS>>\n\n", "{{ c|trim }}")},
    {"llama3", HEADERS("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>")},
    {"llama4", HEADERS("<|header_start|>", "<|header_end|>\n\n", "<|eot|>")},
    {"megrez", EACH("<|role_start|>{{ m.role }}<|role_end|>{{ c }}<|turn_end|>")
                   ANSWER("<|role_start|>assistant<|role_end|>")},
    {"minicpm", EACH("{% if m.role == 'user' %}<用户>{{ c|trim }}<AI>{% else %}{{ c|trim }}"
                     "{% endif %}")},
    {"mistral", MISTRAL_V3},
    {"mistral-v1",
     TURNS("false", "{{ ' [INST] ' }}", "{{ c }}\n\n", "{{ c }} [/INST]", "{{ ' ' ~ c }}</s>")},
    {"mistral-v3", MISTRAL_V3},
    {"mistral-v3-tekken", TURNS("false", "[INST]", "{{ c }}\n\n", "{{ c }}[/INST]", "{{ c }}</s>")},
    {"mistral-v7", MISTRAL_V7("{{ ' ' }}")},
    {"mistral-v7-tekken", MISTRAL_V7("")},
    {"monarch", EACH("{% if not loop.first %}<s>{% endif %}{{ m.role }}\n{{ c }}</s>\n")
                    ANSWER("<s>assistant\n")},
    {"openchat", EACH("{% if m.role != 'system' %}GPT4 Correct {{ m.role|capitalize }}: "
                      "{% endif %}{{ c }}<|end_of_turn|>") ANSWER("GPT4 Correct Assistant:")},
    {"orion", KEPT_SYSTEM("c", "{% if m.role == 'user' %}Human: "
                               "{% if kept.text %}{{ kept.text ~ '\\n\\n' }}"
                               "{% set kept.text = '' %}{% endif %}{{ c }}\n\nAssistant: </s>"
                               "{% else %}{{ c }}</s>{% endif %}")},
    {"phi3", EACH("<|{{ m.role }}|>\n{{ c }}<|end|>\n") ANSWER("<|assistant|>\n")},
    {"phi4", EACH("<|im_start|>{{ m.role }}<|im_sep|>{{ c }}<|im_end|>")
                 ANSWER("<|im_start|>assistant<|im_sep|>")},
    /* Not a chat format: one text in paragraphs that the answer continues. */
    {"plain", EACH("{% if m.role == 'assistant' %}{{ c }}{% else %}"
                   "{% if not loop.first %}{{ '\\n\\n' }}{% endif %}{{ c.rstrip() }}{% endif %}")},
    {"rwkv-world", EACH("{% if m.role == 'user' %}User: {{ c|trim }}\n\nAssistant:{% else %}"
                        "{{ c|trim }}{{ '\\n\\n' }}{% endif %}")},
    {"seed_oss",
     EACH("<seed:bos>{{ m.role }}\n{{ c|trim }}<seed:eos>") ANSWER("<seed:bos>assistant\n")},
    {"smolvlm",
     "<|im_start|>" EACH(ROLES("{{ c }}\n\n", "User: {{ c }}<end_of_utterance>\n",
                               "Assistant: {{ c }}<end_of_utterance>\n")) ANSWER("Assistant:")},
    {"vicuna", EACH(ROLES("{{ c }}\n\n", "USER: {{ c }}\n", "ASSISTANT: {{ c }}</s>\n"))
                   ANSWER("ASSISTANT:")},
    {"vicuna-orca", EACH(ROLES("SYSTEM: {{ c }}\n", "USER: {{ c }}\n", "ASSISTANT: {{ c }}</s>\n"))
                        ANSWER("ASSISTANT:")},
    {"zephyr", EACH("<|{{ m.role }}|>\n{{ c }}<|endoftext|>\n") ANSWER("<|assistant|>\n")},
};

const size_t template_builtin_count = sizeof template_builtins / sizeof template_builtins[0];

const char *template_find_builtin(const char *name) {
    for (size_t i = 0; i < template_builtin_count; i++)
        if (strcmp(template_builtins[i].name, name) == 0) return template_builtins[i].source;
    return NULL;
}
