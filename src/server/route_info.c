/* route_info.c: routes that describe the server: health, models, properties, slots, metrics. */
#include <inttypes.h>
#include <string.h>

#include "dialects.h"
#include "os_text.h"

enum MHD_Result route_page(exchange *x) {
    const page *p = &x->server->page;
    if (!x->server->options.has_page)
        return http_reply_error(x, 404, "this server was started without its page");
    struct MHD_Response *response = MHD_create_response_from_buffer(
        p->document.used, p->document.data, MHD_RESPMEM_PERSISTENT);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "Content-Security-Policy", p->policy);
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    return http_send(x, 200, response);
}

enum MHD_Result route_health(exchange *x) {
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_text(&j.writer, "status", "ok");
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}

static void put_model(json_writer *w, const server *s) {
    json_put_object(w, NULL);
    json_put_text(w, "id", s->options.model_name);
    json_put_text(w, "object", "model");
    json_put_int(w, "created", s->created);
    json_put_text(w, "owned_by", "powerinfer");
    json_put_object(w, "meta");
    json_put_int(w, "n_vocab", s->info.n_vocab);
    json_put_int(w, "n_ctx_train", s->info.n_ctx_train);
    json_put_int(w, "n_embd", s->info.n_embd);
    json_put_int(w, "n_layer", s->info.n_layer);
    json_put_int(w, "n_params", (int64_t)s->info.n_params);
    json_put_int(w, "size", (int64_t)s->info.weight_bytes);
    json_end_object(w);
    json_end_object(w);
}

enum MHD_Result route_models(exchange *x) {
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_put_object(&j.writer, NULL);
    json_put_text(&j.writer, "object", "list");
    json_put_array(&j.writer, "data");
    put_model(&j.writer, x->server);
    json_end_array(&j.writer);
    json_end_object(&j.writer);
    return http_reply_json(x, &j, &body);
}

enum MHD_Result route_model(exchange *x) {
    const char *name = x->path + strlen("/v1/models/");
    bytes body = {0};
    bytes_json j;
    if (strcmp(name, x->server->options.model_name) != 0)
        return http_reply_error(x, 404, "there is no model %s", name);
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    put_model(&j.writer, x->server);
    return http_reply_json(x, &j, &body);
}

void info_put_sampling(json_writer *w, const char *key, const pi_sampler_options *o) {
    json_put_object(w, key);
    json_put_float(w, "temperature", o->temp);
    json_put_int(w, "top_k", o->top_k);
    json_put_float(w, "top_p", o->top_p);
    json_put_float(w, "min_p", o->min_p);
    json_put_float(w, "typical_p", o->typical_p);
    json_put_float(w, "repeat_penalty", o->repeat_penalty);
    json_put_int(w, "repeat_last_n", o->repeat_last_n);
    json_put_float(w, "presence_penalty", o->presence_penalty);
    json_put_float(w, "frequency_penalty", o->frequency_penalty);
    json_end_object(w);
}

enum MHD_Result route_props(exchange *x) {
    const server *s = x->server;
    const pi_context *context = scheduler_context(s->scheduler);
    bytes body = {0};
    bytes_json j;
    if (!bytes_json_begin(&j, &body)) return http_reply_error(x, 500, "out of memory");
    json_writer *w = &j.writer;
    json_put_object(w, NULL);
    json_put_object(w, "default_generation_settings");
    json_put_int(w, "n_ctx", s->options.n_ctx);
    info_put_sampling(w, "params", &s->options.sampling);
    json_end_object(w);
    json_put_int(w, "total_slots", s->options.n_slots);
    json_put_text(w, "model", s->options.model_name);
    json_put_text(w, "model_alias", s->options.model_name);
    json_put_text(w, "model_path", s->options.model_path);
    json_put_object(w, "modalities");
    json_put_bool(w, "vision", false);
    json_put_bool(w, "audio", false);
    json_end_object(w);
    json_put_text(w, "architecture", s->info.architecture);
    json_put_text(w, "mode", pi_context_mode(context));
    json_put_text(w, "kernels", pi_context_kernels(context));
    json_put_text(w, "chat_template",
                  s->prompts.is_fallback ? "" : pi_chat_template_source(s->prompts.chat, false));
    json_put_object(w, "chat_template_caps");
    json_put_bool(w, "supports_tools", !s->tools.described);
    json_put_bool(w, "supports_tool_calls", !s->tools.described && !s->tools.written);
    json_put_bool(w, "supports_parallel_tool_calls", !s->tools.format.single);
    json_end_object(w);
    json_put_text(w, "bos_token", s->prompts.bos);
    json_put_text(w, "eos_token", s->prompts.eos);
    json_put_text(w, "build_info", pi_version());
    json_end_object(w);
    return http_reply_json(x, &j, &body);
}

/* ---- metrics --------------------------------------------------------------------------------- */

typedef struct metrics {
    FILE *file;
    const char *prefix; /* of all names */
} metrics;

static void put_metric(const metrics *m, const char *name, const char *type, const char *help,
                       double value) {
    const char *p = m->prefix;
    fprintf(m->file, "# HELP %s%s %s\n# TYPE %s%s %s\n%s%s %.17g\n", p, name, help, p, name, type,
            p, name, value);
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

static void put_grammars(const metrics *m, const grammar_cache_stats *s) {
    put_metric(m, "grammars_compiled_total", "counter", "Grammars and schemas compiled.",
               (double)s->compiled);
    put_metric(m, "grammars_reused_total", "counter",
               "Requests whose grammar was compiled for an earlier one.", (double)s->reused);
    put_metric(m, "grammars_cached", "gauge", "Compiled grammars kept.", s->n);
}

static void put_metrics(const metrics *m, const scheduler_stats *s) {
    static const char counter[] = "counter", gauge[] = "gauge";
    put_metric(m, "requests_total", counter, "Sequences accepted.", (double)s->requests);
    put_metric(m, "requests_refused_total", counter, "Requests refused: the queue was full.",
               (double)s->refused);
    put_metric(m, "requests_left_total", counter, "Sequences whose client left before the end.",
               (double)s->left);
    put_metric(m, "prompt_tokens_total", counter, "Prompt tokens computed.",
               (double)s->prompt_tokens);
    put_metric(m, "prompt_tokens_cached_total", counter,
               "Prompt tokens taken from a slot or the prompt store.", (double)s->cached_tokens);
    put_metric(m, "prompt_tokens_restored_total", counter,
               "Prompt tokens taken from the prompt store.", (double)s->store.restored);
    put_metric(m, "prompt_store_evicted_total", counter,
               "Tokens evicted from the prompt store, which was full.", (double)s->store.evicted);
    put_metric(m, "prompt_store_bytes", gauge, "Size of the prompt store.",
               (double)s->store.n_bytes);
    put_metric(m, "prompt_store_file_bytes", gauge, "Size of the prompt store's files.",
               (double)s->store.n_file_bytes);
    put_metric(m, "prompt_seconds_total", counter,
               "Seconds from getting a slot to the first token, summed over sequences.",
               s->prompt_seconds);
    put_metric(m, "tokens_predicted_total", counter, "Tokens generated.",
               (double)s->generated_tokens);
    put_metric(m, "tokens_predicted_seconds_total", counter,
               "Seconds from the first token to the last, summed over sequences.",
               s->generated_seconds);
    put_metric(m, "tokens_drafted_total", counter, "Tokens drafted by speculative decoding.",
               (double)s->drafted_tokens);
    put_metric(m, "tokens_drafted_accepted_total", counter, "Drafted tokens that were right.",
               (double)s->accepted_tokens);
    put_metric(m, "decode_total", counter, "Forward passes.", (double)s->steps);
    /* llama.cpp's names of the two metrics above and below, and its rates. */
    put_metric(m, "n_decode_total", counter, "Forward passes.", (double)s->steps);
    put_metric(m, "n_busy_slots_per_decode", gauge, "Sequences in a forward pass, on average.",
               share(s->busy_slots, s->steps));
    put_metric(m, "prompt_tokens_seconds", gauge, "Prompt tokens per second, on average.",
               s->prompt_seconds > 0 ? (double)s->prompt_tokens / s->prompt_seconds : 0);
    put_metric(m, "predicted_tokens_seconds", gauge, "Generated tokens per second, on average.",
               s->generated_seconds > 0 ? (double)s->generated_tokens / s->generated_seconds : 0);
    put_metric(m, "busy_slots_per_decode", gauge, "Sequences in a forward pass, on average.",
               share(s->busy_slots, s->steps));
    put_metric(m, "longest_prompt_piece", gauge,
               "Most prompt tokens in a pass in which others generated.", (double)s->longest_piece);
    put_metric(m, "requests_processing", gauge, "Sequences in a slot.", s->processing);
    put_metric(m, "requests_deferred", gauge, "Sequences waiting for a slot.", s->waiting);
    put_metric(m, "weight_bytes_total", counter, "Bytes of weights read from memory.",
               (double)s->counters.weight_bytes);
    put_metric(m, "ffn_share", gauge,
               "FFN weights read, as a fraction of what dense passes would read.",
               share(s->counters.ffn_bytes, s->counters.ffn_total_bytes));
}

enum MHD_Result route_metrics(exchange *x) {
    scheduler_stats stats;
    grammar_cache_stats grammars = grammar_cache_get_stats(&x->server->grammars);
    bytes body = {0};
    scheduler_get_stats(x->server->scheduler, &stats);
    FILE *f = bytes_stream(&body);
    if (!f) return http_reply_error(x, 500, "out of memory");
    const metrics m = {.file = f, .prefix = x->server->options.metrics_prefix};
    put_metrics(&m, &stats);
    put_grammars(&m, &grammars);
    if (os_stream_close(f)) return http_reply_text(x, 200, "text/plain; version=0.0.4", &body);
    bytes_free(&body);
    return http_reply_error(x, 500, "out of memory");
}
