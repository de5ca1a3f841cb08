/* api_fields.c: the tables of fields, and the check of a request against a table. */
#include "api_fields.h"

#include <stdio.h>
#include <string.h>

#define USED(name_, note_)                                                                         \
    { name_, FIELD_USED, "", note_ }
#define HARMLESS(name_, note_)                                                                     \
    { name_, FIELD_HARMLESS, "", note_ }
#define REFUSED(name_, allowed_, note_)                                                            \
    { name_, FIELD_REFUSED, allowed_, note_ }

/* llama.cpp's server and this server accept these fields in every API of OpenAI. */
#define SAMPLING                                                                                   \
    USED("temperature", ""), USED("top_k", ""), USED("top_p", ""), USED("min_p", ""),              \
        USED("typical_p", ""), USED("top_n_sigma", ""), USED("repeat_penalty", ""),                \
        USED("repeat_last_n", ""), USED("presence_penalty", ""), USED("frequency_penalty", ""),    \
        USED("dynatemp_range", ""), USED("dynatemp_exponent", ""), USED("xtc_probability", ""),    \
        USED("xtc_threshold", ""), USED("dry_multiplier", ""), USED("dry_base", ""),               \
        USED("dry_allowed_length", ""), USED("dry_penalty_last_n", ""),                            \
        USED("dry_sequence_breakers", ""), USED("mirostat", ""), USED("mirostat_tau", ""),         \
        USED("mirostat_eta", ""), USED("samplers", ""), USED("logit_bias", ""),                    \
        USED("ignore_eos", ""), USED("seed", "")

#define COMMON                                                                                     \
    USED("stream", ""), USED("stream_options", "include_usage; others are harmless"),              \
        USED("stop", "up to 64 strings"), USED("cache_prompt", ""), USED("timings_per_token", ""), \
        USED("neurons", ""), USED("speculative.n_max", ""),                                        \
        USED("id_slot", "the slot to use if it is free"), USED("grammar", "GBNF"),                 \
        USED("json_schema", "a schema"), USED("lora", "must be the scales of /lora-adapters")

/* Of all APIs. */
#define FOR_ALL                                                                                    \
    USED("model", "a model of the server, if it has several"),                                     \
        USED("timeout", "seconds, after which the answer ends"),                                   \
        USED("priority", "lower numbers are served first")

#define FOR_OPENAI                                                                                 \
    FOR_ALL, HARMLESS("metadata", "nothing is stored"), HARMLESS("user", ""),                      \
        HARMLESS("safety_identifier", ""), HARMLESS("service_tier", ""),                           \
        HARMLESS("prompt_cache_key", "prefixes are cached anyway"),                                \
        HARMLESS("prompt_cache_options", ""), HARMLESS("prompt_cache_retention", "")

static const api_field chat_fields[] = {
    USED("messages", ""),
    USED("tools", "functions; strict"),
    USED("tool_choice", "also allowed_tools"),
    USED("parallel_tool_calls", ""),
    USED("response_format", "text, json_object, json_schema"),
    USED("max_completion_tokens", ""),
    USED("max_tokens", ""),
    USED("n_predict", ""),
    USED("n", ""),
    USED("logprobs", ""),
    USED("top_logprobs", ""),
    USED("reasoning_effort", "a variable of the template, else a budget"),
    USED("reasoning_budget_tokens", "maximum tokens of reasoning"),
    USED("thinking_budget_tokens", "the same"),
    COMMON,
    SAMPLING,
    USED("chat_template_kwargs", "variables of the template"),
    USED("enable_thinking", ""),
    USED("add_generation_prompt", ""),
    USED("documents", ""),
    USED("reasoning_format", ""),
    FOR_OPENAI,
    HARMLESS("store", "nothing is stored"),
    HARMLESS("prediction", "only speed"),
    REFUSED("verbosity", "medium", ""),
    REFUSED("modalities", "text", "only text"),
    REFUSED("audio", "", ""),
    REFUSED("functions", "", "use tools"),
    REFUSED("function_call", "none auto", "use tool_choice"),
    REFUSED("moderation", "", ""),
    REFUSED("web_search_options", "", ""),
};

static const api_field completions_fields[] = {
    USED("prompt", "string, token ids, or an array of them"),
    USED("max_tokens", ""),
    USED("max_completion_tokens", ""),
    USED("n_predict", ""),
    USED("n", ""),
    USED("logprobs", ""),
    USED("echo", "also with logprobs of the prompt"),
    USED("response_format", ""),
    COMMON,
    SAMPLING,
    FOR_OPENAI,
    USED("suffix", "text after the answer, for models with FIM tokens"),
    REFUSED("best_of", "1", "use n"),
};

/* Of llama.cpp's own API: /completion and /infill. */
#define NATIVE                                                                                     \
    USED("n_predict", ""), USED("max_tokens", ""), USED("n", ""), USED("n_probs", ""),             \
        USED("response_format", ""), COMMON, SAMPLING,                                             \
        USED("t_max_predict_ms", "time limit; applies after the first line"),                      \
        USED("n_indent", "ends the answer before a line with fewer blanks"),                       \
        USED("return_tokens", ""), USED("response_fields", "of answers in one piece"),             \
        HARMLESS("t_max_prompt_ms", ""), FOR_ALL, HARMLESS("n_keep", "contexts are not shifted"),  \
        HARMLESS("n_discard", "contexts are not shifted"), REFUSED("min_keep", "1", ""),           \
        REFUSED("image_data", "", ""), REFUSED("post_sampling_probs", "", ""),                     \
        REFUSED("grammar_lazy", "", "use tools")

static const api_field native_fields[] = {
    USED("prompt", "string, token ids, or an array of them"),
    NATIVE,
    REFUSED("input_prefix", "", "use /infill"),
    REFUSED("input_suffix", "", "use /infill"),
    REFUSED("input_extra", "", "use /infill"),
};

static const api_field infill_fields[] = {
    USED("input_prefix", ""),
    USED("input_suffix", ""),
    USED("input_extra", "other files: text, filename"),
    USED("prompt", "follows input_prefix"),
    NATIVE,
};

#define OLLAMA                                                                                     \
    USED("options", "num_predict, stop, seed, sampling; num_ctx and others are harmless"),         \
        USED("format", "json, or a schema"),                                                       \
        USED("think", "true, false, a level, or tokens of reasoning"),                             \
        USED("stream", "on by default"), USED("logprobs", ""), USED("top_logprobs", ""), FOR_ALL,  \
        USED("keep_alive", "if the server has several models"), REFUSED("images", "", "only text")

static const api_field ollama_chat_fields[] = {
    USED("messages", "without images"),
    USED("tools", ""),
    USED("tool_choice", "as in /v1/chat/completions"),
    OLLAMA,
};

static const api_field ollama_generate_fields[] = {
    USED("prompt", ""),
    USED("system", ""),
    USED("suffix", "text after the answer, for models with FIM tokens"),
    USED("raw", ""),
    OLLAMA,
    REFUSED("template", "", "use raw"),
    REFUSED("context", "", "use /api/chat"),
};

/* Sampling in /v1/responses and /v1/messages. */
#define FEW_SAMPLING                                                                               \
    USED("temperature", ""), USED("top_p", ""), USED("top_k", ""), USED("min_p", ""),              \
        USED("seed", ""), USED("presence_penalty", ""), USED("frequency_penalty", ""),             \
        USED("repeat_penalty", ""), USED("logit_bias", "")

static const api_field responses_fields[] = {
    USED("input", ""),
    USED("instructions", ""),
    USED("max_output_tokens", ""),
    USED("tools", "functions; strict"),
    USED("tool_choice", "also allowed_tools"),
    USED("parallel_tool_calls", ""),
    USED("text", "format; verbosity only medium"),
    USED("reasoning", "effort; summary is harmless"),
    USED("reasoning_budget_tokens", "maximum tokens of reasoning"),
    USED("include", "encrypted reasoning and the like are harmless; logprobs are refused"),
    FEW_SAMPLING,
    USED("stop", ""),
    USED("cache_prompt", ""),
    USED("chat_template_kwargs", ""),
    USED("stream", ""),
    HARMLESS("stream_options", ""),
    FOR_OPENAI,
    HARMLESS("store", "nothing is stored"),
    HARMLESS("max_tool_calls", "only of tools that a server runs"),
    HARMLESS("truncation", "a prompt that is too long is an error"),
    REFUSED("previous_response_id", "", "responses are not stored: send the conversation"),
    REFUSED("conversation", "", "responses are not stored: send the conversation"),
    REFUSED("prompt", "", "templates are not stored"),
    REFUSED("background", "", ""),
    REFUSED("context_management", "", ""),
    REFUSED("moderation", "", ""),
    REFUSED("top_logprobs", "", "use /v1/chat/completions"),
    REFUSED("response_format", "", "use text.format"),
    REFUSED("messages", "", "use input"),
    REFUSED("max_tokens", "", "use max_output_tokens"),
    REFUSED("max_completion_tokens", "", "use max_output_tokens"),
    REFUSED("n", "1", ""),
    REFUSED("logprobs", "", "use /v1/chat/completions"),
    REFUSED("grammar", "", "use text.format"),
    REFUSED("json_schema", "", "use text.format"),
    REFUSED("functions", "", "use tools"),
};

static const api_field messages_fields[] = {
    USED("messages", ""),
    USED("system", ""),
    USED("tools", "those that a client runs; strict"),
    USED("tool_choice", ""),
    USED("thinking", "on or off; budget_tokens"),
    USED("stop_sequences", ""),
    USED("output_config", "format, effort"),
    USED("output_format", "json_schema"),
    USED("max_tokens", ""),
    FEW_SAMPLING,
    USED("cache_prompt", ""),
    USED("chat_template_kwargs", ""),
    USED("stream", ""),
    FOR_ALL,
    HARMLESS("metadata", ""),
    HARMLESS("cache_control", "prefixes are cached anyway"),
    HARMLESS("service_tier", ""),
    HARMLESS("speed", ""),
    HARMLESS("inference_geo", ""),
    HARMLESS("diagnostics", ""),
    HARMLESS("betas", ""),
    HARMLESS("billing_policy", ""),
    HARMLESS("fallback_credit_token", ""),
    HARMLESS("fallbacks", "no other model is tried"),
    HARMLESS("user_profile_id", ""),
    HARMLESS("workspace_id", ""),
    REFUSED("thread", "", "conversations are not stored: send all messages"),
    REFUSED("container", "", ""),
    REFUSED("context_management", "", ""),
    REFUSED("compaction", "", ""),
    REFUSED("mcp_servers", "", "run tools in the client"),
    REFUSED("response_format", "", "use output_config.format"),
    REFUSED("n", "1", ""),
    REFUSED("stop", "", "use stop_sequences"),
    REFUSED("grammar", "", "use output_config.format"),
    REFUSED("json_schema", "", "use output_config.format"),
};

#define TABLE(route_, fields_)                                                                     \
    { route_, fields_, sizeof fields_ / sizeof *fields_ }

const api_fields api_tables[N_APIS] = {
    [API_CHAT] = TABLE("/v1/chat/completions", chat_fields),
    [API_COMPLETIONS] = TABLE("/v1/completions", completions_fields),
    [API_NATIVE] = TABLE("/completion", native_fields),
    [API_RESPONSES] = TABLE("/v1/responses", responses_fields),
    [API_MESSAGES] = TABLE("/v1/messages", messages_fields),
    [API_INFILL] = TABLE("/infill", infill_fields),
    [API_OLLAMA_CHAT] = TABLE("/api/chat", ollama_chat_fields),
    [API_OLLAMA_GENERATE] = TABLE("/api/generate", ollama_generate_fields),
};

static bool is_allowed(const char *allowed, const char *value) {
    size_t n = strlen(value);
    for (const char *at = allowed; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, value, n) == 0) return true;
        at += length;
    }
    return false;
}

static bool asks_for_nothing(const json_node *value, const char *allowed) {
    const char *text = NULL;
    char number[32];
    double x = 0;
    bool truth = false;
    size_t n = 0;
    switch (json_kind_of(value)) {
    case JSON_BOOL:
        return json_as_bool(value, &truth) && !truth;
    case JSON_INT:
    case JSON_REAL:
        json_as_double(value, &x);
        snprintf(number, sizeof number, "%.9g", x);
        return x == 0 || is_allowed(allowed, number);
    case JSON_STRING:
        return json_as_string(value, &text, &n) && (n == 0 || is_allowed(allowed, text));
    case JSON_ARRAY:
        for (size_t i = 0; i < json_count(value); i++)
            if (!json_as_string(json_at(value, i), &text, &n) || !is_allowed(allowed, text))
                return false;
        return true;
    case JSON_OBJECT:
        return json_count(value) == 0;
    case JSON_NULL:
        break;
    }
    return true;
}

pi_status api_fields_check(const json_node *body, const api_fields *api, pi_error *err) {
    for (size_t i = 0; i < api->n; i++) {
        const api_field *f = &api->fields[i];
        if (f->use != FIELD_REFUSED || asks_for_nothing(json_get(body, f->name), f->allowed))
            continue;
        return error_set(err, PI_ERR_UNSUPPORTED, "%s: not supported%s%s", f->name,
                         *f->note ? ": " : "", f->note);
    }
    return PI_OK;
}
