/* fuzz_request.c: any bytes as the body of a chat request: its parameters, tools and messages.
 * After a NUL follows the text of a model, which is read in pieces for reasoning and calls.
 * Parameters must be within their ranges, templates must get JSON, and reading in pieces must give
 * the result of reading at once. */
#include <stdlib.h>
#include <string.h>

#include "chat_request.h"
#include "fields.h"
#include "fuzz_target.h"
#include "message.h"

#define MODEL_PATH TEST_SOURCE_DIR "/models/novella-7m.q8_0.powerinfer.gguf"

static pi_model *model_of_all(void) {
    static pi_model *m;
    pi_error err;
    if (!m && pi_model_open(MODEL_PATH, NULL, &m, &err) != PI_OK) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return m;
}

static void try_params(const json_node *body) {
    static const char *const limits[] = {"max_completion_tokens", "max_tokens", NULL};
    pi_sampler_options sampling = pi_sampler_default_options();
    pi_model *m = model_of_all();
    pi_sampler *sampler = NULL;
    params p;
    pi_error err;
    if (params_read(&p, body, &sampling, -1, true, limits, m, &err) == PI_OK) {
        if (p.n < 1 || p.n > PARAMS_MAX_CHOICES || p.n_top > SEQUENCE_MAX_TOP || p.max_tokens < -1)
            abort();
        pi_sampler_create(m, &p.sampling, &sampler, &err);
        pi_sampler_destroy(sampler);
    }
    params_free(&p);
}

static const call_format json_calls = {.open = "<tool_call>",
                                       .name_key = "name",
                                       .args_key = "arguments",
                                       .id_key = "",
                                       .close = "</tool_call>"};
static const call_format keyed_calls = {
    .open = "", .name_key = "", .args_key = "", .id_key = "", .list = true, .close = ""};
static const call_pairs marks = {.open = "<calls>",
                                 .begin = "<f=",
                                 .name_end = {">", ">"},
                                 .key_begin = "<p=",
                                 .key_end = {">\n", ">\n"},
                                 .value_end = "\n</p>",
                                 .close = "</f>",
                                 .again = "<f=",
                                 .end = "</calls>"};
static const call_pairs object_marks = {.open = "<calls>",
                                        .begin = "",
                                        .name_end = {":" CALL_WORD "<x>", "<y>"},
                                        .key_begin = "",
                                        .key_end = {"", ""},
                                        .value_end = "",
                                        .close = "</f>",
                                        .again = "",
                                        .end = "",
                                        .has_id = true,
                                        .id_begin = "f."};
static const call_pairs python_marks = {.open = "<calls>",
                                        .begin = "[",
                                        .name_end = {"(", "("},
                                        .key_begin = "",
                                        .key_end = {"", ""},
                                        .value_end = "",
                                        .close = "",
                                        .again = ",",
                                        .end = "]</calls>",
                                        .literal = {.equals = '=', .quote = ""}};
static const call_pairs bare_marks = {.open = "<calls>",
                                      .begin = "call:",
                                      .name_end = {"{", "{"},
                                      .key_begin = "",
                                      .key_end = {"", ""},
                                      .value_end = "",
                                      .close = "</f>",
                                      .again = "",
                                      .end = "",
                                      .literal = {.equals = ':', .quote = "<q>"}};
static const call_pairs tree_marks = {.open = "<calls>",
                                      .begin = "call:",
                                      .name_end = {">", ">"},
                                      .key_begin = "|<",
                                      .key_end = {">", ">"},
                                      .value_end = "|</",
                                      .elements = true,
                                      .close = "</f>",
                                      .again = "",
                                      .end = "",
                                      .literal = {.quote = ""}};
static const call_format formats[] = {
    {.open = "<calls>", .close = "</f>", .pairs = &marks},
    {.open = "<calls>", .close = "</f>", .pairs = &object_marks},
    {.open = "<calls>", .close = "", .pairs = &python_marks},
    {.open = "<calls>", .close = "</f>", .pairs = &bare_marks},
    {.open = "<calls>", .close = "</f>", .pairs = &tree_marks},
};

static void try_messages(const json_node *body) {
    char close[] = "</tool_call>";
    const tool_style styles[] = {
        {.described = true, .format.open = "<tool_call>", .close.data = close},
        {.written = true,
         .format = {.open = "<calls>", .pairs = &python_marks},
         .close.data = close},
        {.text_arguments = true,
         .null_content = true,
         .full_tools = true,
         .format.short_ids = true},
        {.named_ids = true, .tool_responses = true}};
    chat_tools tools;
    pi_error err;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        bytes request = {0};
        if (chat_read_tools(body, &tools, &err) == PI_OK &&
            chat_write_request(body, &tools, &styles[i], NULL, chat_continues(body) ? "tag" : NULL,
                               &request, &err) == PI_OK) {
            json_doc *doc = NULL;
            if (json_parse(request.data, request.used, "request", &doc, &err) == PI_ERR_FORMAT)
                abort();
            json_free(doc);
        }
        bytes_free(&request);
    }
}

static void read_text(model_text *m, const call_format *format, const char *text, size_t n,
                      size_t piece) {
    static const char prompt[] = "<|start|>assistant";
    *m = (model_text){.splits_reasoning = true, .format = format, .cut = n % 2};
    message_begin(m, prompt, n % 3 ? 0 : sizeof prompt - 1);
    for (size_t at = 0; at < n; at += piece)
        message_feed(m, text + at, piece < n - at ? piece : n - at, false);
    message_feed(m, "", 0, true);
    if (m->n_calls < 0 || m->n_calls > MESSAGE_MAX_CALLS) abort();
}

static void expect_same(const bytes *a, const bytes *b) {
    if (a->used != b->used || (a->used && memcmp(a->data, b->data, a->used) != 0)) abort();
}

static void try_text(const call_format *format, const char *text, size_t n) {
    static model_text whole, pieces;
    read_text(&whole, format, text, n, n ? n : 1);
    read_text(&pieces, format, text, n, 1);
    if (!whole.failed && !pieces.failed) {
        expect_same(&whole.reasoning, &pieces.reasoning);
        expect_same(&whole.content, &pieces.content);
        if (whole.n_calls != pieces.n_calls) abort();
        for (int i = 0; i < whole.n_calls; i++)
            expect_same(&whole.calls[i].arguments, &pieces.calls[i].arguments);
    }
    message_free(&whole);
    message_free(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *source = (const char *)data, *nul = n ? memchr(source, 0, n) : NULL;
    size_t n_body = nul ? (size_t)(nul - source) : n;
    json_doc *doc = NULL;
    pi_error err;
    if (json_parse(source, n_body, "body", &doc, &err) == PI_OK) {
        try_params(json_root(doc));
        try_messages(json_root(doc));
    }
    json_free(doc);
    if (nul) try_text(&json_calls, nul + 1, n - n_body - 1);
    if (nul) try_text(&keyed_calls, nul + 1, n - n_body - 1);
    for (size_t i = 0; nul && i < sizeof formats / sizeof *formats; i++)
        try_text(&formats[i], nul + 1, n - n_body - 1);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const bodies[] = {
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\","
        "\"content\":\"1\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"parameters\":{\"type\":\"object\"}}}],\"tool_choice\":\"auto\"}",
        "{\"temperature\":0.5,\"top_k\":3,\"logit_bias\":{\"5\":-100},\"stop\":[\"a\",\"b\"],"
        "\"n\":2,\"max_tokens\":7,\"seed\":1,\"samplers\":[\"top_k\",\"temperature\"],"
        "\"dry_sequence_breakers\":[\"x\"],\"stream_options\":{\"include_usage\":true}}"};
    static const char *const texts[] = {
        "<think>\nhm\n</think>\n\nyes <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": [1, "
        "\"}\"]}}</tool_call> and <tool_call>{\"name\": \"g\"}</tool_call>\n",
        "<calls>[f(a='x\\n', b=[1, {\"k\": None}], c=True), g()]</calls>",
        "<calls>call:f{a:<q>x}<q>,b:[1.5,{k:null}],c:word}</f><calls>call:g{}</f>",
        "<calls>f:0<x>{\"a\": [{}]}</f> <calls>g<y>{}</f>",
        "<calls><f=g><p=a>\n1\n</p></f><f=h></f></calls>",
        "<calls>call:f>|<a>1|</a>|<l>|<item>2|</item>|<item>|<k>|</k>|</item>|</l></f>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>[{"
        "\"f\": {}}]"};
    if (i >= sizeof texts / sizeof *texts) return 0;
    const char *body = bodies[i % 2], *text = texts[i];
    size_t n = strlen(body) + 1, n_text = strlen(text);
    if (n + n_text > max) return 0;
    memcpy(data, body, n);
    memcpy(data + n, text, n_text);
    return n + n_text;
}
