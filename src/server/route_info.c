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

static void put_sampling(json_writer *w, const pi_sampler_options *o) {
    json_put_object(w, "params");
    bytes_json_float(w, "temperature", o->temp);
    json_put_int(w, "top_k", o->top_k);
    bytes_json_float(w, "top_p", o->top_p);
    bytes_json_float(w, "min_p", o->min_p);
    bytes_json_float(w, "typical_p", o->typical_p);
    bytes_json_float(w, "repeat_penalty", o->repeat_penalty);
    json_put_int(w, "repeat_last_n", o->repeat_last_n);
    bytes_json_float(w, "presence_penalty", o->presence_penalty);
    bytes_json_float(w, "frequency_penalty", o->frequency_penalty);
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
    put_sampling(w, &s->options.sampling);
    json_end_object(w);
    json_put_int(w, "total_slots", s->options.n_slots);
    json_put_text(w, "model", s->options.model_name);
    json_put_text(w, "model_alias", s->options.model_name);
    json_put_object(w, "modalities");
    json_put_bool(w, "vision", false);
    json_put_bool(w, "audio", false);
    json_end_object(w);
    json_put_text(w, "architecture", s->info.architecture);
    json_put_text(w, "mode", pi_context_mode(context));
    json_put_text(w, "kernels", pi_context_kernels(context));
    json_put_text(w, "chat_template",
                  s->prompts.is_fallback ? "" : pi_chat_template_source(s->prompts.chat, false));
    json_put_text(w, "bos_token", s->prompts.bos);
    json_put_text(w, "eos_token", s->prompts.eos);
    json_put_text(w, "build_info", pi_version());
    json_end_object(w);
    return http_reply_json(x, &j, &body);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void put_metric(FILE *f, const char *name, const char *type, const char *help,
                       double value) {
    fprintf(f, "# HELP powerinfer_%s %s\n# TYPE powerinfer_%s %s\npowerinfer_%s %.17g\n", name,
            help, name, type, name, value);
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

static void put_grammars(FILE *f, const grammar_cache_stats *s) {
    put_metric(f, "grammars_compiled_total", "counter", "Grammars and schemas compiled.",
               (double)s->compiled);
    put_metric(f, "grammars_reused_total", "counter",
               "Requests whose grammar was compiled for an earlier one.", (double)s->reused);
    put_metric(f, "grammars_cached", "gauge", "Compiled grammars kept.", s->n);
}

static void put_metrics(FILE *f, const scheduler_stats *s) {
    static const char counter[] = "counter", gauge[] = "gauge";
    put_metric(f, "requests_total", counter, "Sequences accepted.", (double)s->requests);
    put_metric(f, "requests_refused_total", counter, "Requests refused: the queue was full.",
               (double)s->refused);
    put_metric(f, "requests_left_total", counter, "Sequences whose client left before the end.",
               (double)s->left);
    put_metric(f, "prompt_tokens_total", counter, "Prompt tokens computed.",
               (double)s->prompt_tokens);
    put_metric(f, "prompt_tokens_cached_total", counter, "Prompt tokens taken from the KV cache.",
               (double)s->cached_tokens);
    put_metric(f, "prompt_seconds_total", counter,
               "Seconds from getting a slot to the first token, summed over sequences.",
               s->prompt_seconds);
    put_metric(f, "tokens_predicted_total", counter, "Tokens generated.",
               (double)s->generated_tokens);
    put_metric(f, "tokens_predicted_seconds_total", counter,
               "Seconds from the first token to the last, summed over sequences.",
               s->generated_seconds);
    put_metric(f, "tokens_drafted_total", counter, "Tokens drafted by speculative decoding.",
               (double)s->drafted_tokens);
    put_metric(f, "tokens_drafted_accepted_total", counter, "Drafted tokens that were right.",
               (double)s->accepted_tokens);
    put_metric(f, "decode_total", counter, "Forward passes.", (double)s->steps);
    put_metric(f, "busy_slots_per_decode", gauge, "Sequences in a forward pass, on average.",
               share(s->busy_slots, s->steps));
    put_metric(f, "longest_prompt_piece", gauge,
               "Most prompt tokens in a pass in which others generated.", (double)s->longest_piece);
    put_metric(f, "requests_processing", gauge, "Sequences in a slot.", s->processing);
    put_metric(f, "requests_deferred", gauge, "Sequences waiting for a slot.", s->waiting);
    put_metric(f, "weight_bytes_total", counter, "Bytes of weights read from memory.",
               (double)s->counters.weight_bytes);
    put_metric(f, "ffn_share", gauge,
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
    put_metrics(f, &stats);
    put_grammars(f, &grammars);
    if (os_stream_close(f)) return http_reply_text(x, 200, "text/plain; version=0.0.4", &body);
    bytes_free(&body);
    return http_reply_error(x, 500, "out of memory");
}
