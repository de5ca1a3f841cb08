/* sampling.c: options of samplers. options.c checks the ranges; this file parses the texts:
 * ID+BIAS, names of samplers, sequence breakers, grammars. */
#include "sampling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "log.h"
#include "mem.h"

/* "15043+1.5", "15043-inf": the sign separates id and bias. */
static pi_status parse_bias(const char *text, pi_logit_bias *out, pi_error *err) {
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    bool good = end != text && *text >= '0' && *text <= '9' && errno == 0 && id <= INT32_MAX &&
                (*end == '+' || *end == '-');
    double bias = 0;
    if (good) {
        const char *number = end;
        bias = strtod(number, &end);
        good = end != number && *end == 0 && !isnan(bias);
    }
    if (!good) {
        return error_set(err, PI_ERR_ARG,
                         "invalid value: --logit-bias \"%.200s\": expected ID+BIAS or ID-BIAS, "
                         "such as 15043+1 or 15043-inf",
                         text);
    }
    *out = (pi_logit_bias){.token = (int32_t)id, .bias = (float)bias};
    return PI_OK;
}

static pi_status set_breakers(const cli_options *o, sampling *s, pi_error *err) {
    if (o->dry_breakers.count == 0) return PI_OK; /* NULL: the defaults */
    pi_status status = text_list_create(&s->breakers, o->dry_breakers.values, o->dry_breakers.count,
                                        !o->no_escape, err);
    if (status != PI_OK) return status;
    s->options.dry_breakers = s->breaker_texts;
    for (int i = 0; i < s->breakers.n; i++) {
        const char *text = s->breakers.items[i].data;
        if (strcmp(text, "none") != 0) s->breaker_texts[s->options.n_dry_breakers++] = text;
    }
    return PI_OK;
}

/* Names and letters are llama.cpp's; the first name is what messages show. */
static const struct {
    char letter;
    const char *names[4];
} sampler_words[PI_SAMPLER_KINDS] = {
    [PI_SAMPLER_PENALTIES] = {'e', {"penalties"}},
    [PI_SAMPLER_DRY] = {'d', {"dry"}},
    [PI_SAMPLER_TOP_N_SIGMA] = {'s', {"top_n_sigma", "top-n-sigma"}},
    [PI_SAMPLER_TOP_K] = {'k', {"top_k", "top-k"}},
    [PI_SAMPLER_TYPICAL] = {'y', {"typ_p", "typ-p", "typical_p", "typical"}},
    [PI_SAMPLER_TOP_P] = {'p', {"top_p", "top-p", "nucleus"}},
    [PI_SAMPLER_MIN_P] = {'m', {"min_p", "min-p"}},
    [PI_SAMPLER_XTC] = {'x', {"xtc"}},
    [PI_SAMPLER_TEMPERATURE] = {'t', {"temperature", "temp"}},
};

/* Returns the kind with this name of n bytes, or this letter; -1: none. */
static int find_sampler(const char *word, size_t n, bool letters) {
    for (int kind = 0; kind < PI_SAMPLER_KINDS; kind++) {
        if (letters && sampler_words[kind].letter == *word) return kind;
        for (int i = 0; i < 4 && sampler_words[kind].names[i] && !letters; i++) {
            const char *name = sampler_words[kind].names[i];
            if (strlen(name) == n && strncmp(name, word, n) == 0) return kind;
        }
    }
    return -1;
}

static pi_status no_sampler(const char *word, size_t n, bool letters, pi_error *err) {
    char known[256] = "";
    size_t used = 0;
    for (size_t kind = 0; kind < PI_SAMPLER_KINDS; kind++) {
        const char *name = sampler_words[kind].names[0], *comma = kind ? ", " : "";
        int more = letters ? snprintf(known + used, sizeof known - used, "%s%c %s", comma,
                                      sampler_words[kind].letter, name)
                           : snprintf(known + used, sizeof known - used, "%s%s", comma, name);
        used += (size_t)more;
    }
    return error_set(err, PI_ERR_ARG, "unknown sampler \"%.*s\": %s: expected one of %s", (int)n,
                     word, letters ? "--sampling-seq" : "--samplers", known);
}

/* Reads the order from --samplers or --sampling-seq; the command line takes precedence over the
 * environment. */
static pi_status set_chain(const cli_options *o, sampling *s, pi_error *err) {
    if (options_typed(o, &o->samplers) && options_typed(o, &o->sampling_seq))
        return error_set(err, PI_ERR_ARG,
                         "two orders: --samplers and --sampling-seq: give one of them");
    bool letters = options_typed(o, &o->sampling_seq) || !o->samplers;
    const char *text = letters ? o->sampling_seq : o->samplers;
    if (!text) return PI_OK;
    s->options.samplers = s->chain;
    while (*text) {
        size_t n = letters ? 1 : strcspn(text, ";");
        int kind = find_sampler(text, n, letters);
        if (kind < 0) return no_sampler(text, n < 64 ? n : 64, letters, err);
        if (s->options.n_samplers == PI_SAMPLER_CHAIN_MAX)
            return error_set(err, PI_ERR_ARG, "too many samplers: give at most %d",
                             PI_SAMPLER_CHAIN_MAX);
        s->chain[s->options.n_samplers++] = (pi_sampler_kind)kind;
        text += n + (!letters && text[n] == ';');
    }
    return PI_OK;
}

static bool has_text(const char *text) { /* neither NULL nor empty */
    return text && *text;
}

pi_status sampling_create(const cli_options *o, sampling *s, pi_error *err) {
    *s = (sampling){.options = pi_sampler_default_options()};
    pi_sampler_options *p = &s->options;
    p->temp = (float)o->temp;
    p->dynatemp_range = (float)o->dynatemp_range;
    p->dynatemp_exponent = (float)o->dynatemp_exponent;
    p->top_k = (int32_t)o->top_k;
    p->top_p = (float)o->top_p;
    p->min_p = (float)o->min_p;
    p->typical_p = (float)o->typical;
    p->top_n_sigma = (float)o->top_n_sigma;
    p->repeat_penalty = (float)o->repeat_penalty;
    p->repeat_last_n = (int32_t)o->repeat_last_n;
    p->presence_penalty = (float)o->presence_penalty;
    p->frequency_penalty = (float)o->frequency_penalty;
    p->xtc_probability = (float)o->xtc_probability;
    p->xtc_threshold = (float)o->xtc_threshold;
    p->dry_multiplier = (float)o->dry_multiplier;
    p->dry_base = (float)o->dry_base;
    p->dry_allowed_length = (int32_t)o->dry_allowed_length;
    p->dry_last_n = (int32_t)o->dry_last_n;
    p->mirostat = (int32_t)o->mirostat;
    p->mirostat_tau = (float)o->mirostat_tau;
    p->mirostat_eta = (float)o->mirostat_eta;
    p->ignore_eos = o->ignore_eos;
    p->seed = o->seed < 0 ? UINT64_MAX : (uint64_t)o->seed;
    p->logit_bias = s->bias;
    for (int i = 0; i < o->logit_bias.count; i++) {
        pi_status status = parse_bias(o->logit_bias.values[i], &s->bias[i], err);
        if (status != PI_OK) return status;
        p->n_logit_bias++;
    }
    if (has_text(o->grammar) + has_text(o->grammar_file) + has_text(o->json_schema) +
            has_text(o->json_schema_file) >
        1)
        return error_set(err, PI_ERR_ARG,
                         "two grammars: --grammar, --grammar-file, -j and -jf: give one of them");
    pi_status status = set_chain(o, s, err);
    return status == PI_OK ? set_breakers(o, s, err) : status;
}

pi_status sampling_add_grammar(const cli_options *o, const pi_model *model, sampling *s,
                               pi_error *err) {
    const char *path = has_text(o->grammar_file) ? o->grammar_file : o->json_schema_file;
    const char *text = has_text(o->grammar) ? o->grammar : o->json_schema;
    bool schema = has_text(o->json_schema) || has_text(o->json_schema_file);
    char *read = NULL;
    if (!has_text(path) && !has_text(text)) return PI_OK;
    size_t n = has_text(text) ? strlen(text) : 0;
    pi_status status = PI_OK;
    if (!has_text(text)) {
        status = file_read_stream(path, CLI_TEXT_MAX, &read, &n, err);
        text = read;
    }
    const pi_grammar_schema root = {.rule = "root", .schema = text, .n_schema = n, .widen = true};
    const pi_grammar_options options = {.schemas = &root, .n_schemas = 1};
    if (status == PI_OK)
        status = schema ? pi_grammar_create(model, "", 0, &options, &s->grammar, err)
                        : pi_grammar_create(model, text, n, NULL, &s->grammar, err);
    for (size_t i = 0; status == PI_OK && pi_grammar_widened(s->grammar, i); i++)
        log_line(LOG_LEVEL_WARN, "%s: not enforced: a grammar cannot express it",
                 pi_grammar_widened(s->grammar, i));
    s->options.grammar = s->grammar;
    mem_free(read);
    return status;
}

void sampling_free(sampling *s) {
    pi_grammar_free(s->grammar);
    text_list_free(&s->breakers);
}

void sampling_print(const cli_options *o) {
    if (o->temp <= 0) {
        cli_say(o, "sampling:    greedy");
    } else if (o->mirostat > 0) {
        cli_say(o, "sampling:    temp %g, mirostat %d, entropy %g bits, learning rate %g", o->temp,
                (int)o->mirostat, o->mirostat_tau, o->mirostat_eta);
    } else {
        cli_say(o, "sampling:    top-k %lld, typical %g, top-p %g, min-p %g, temp %g",
                (long long)o->top_k, o->typical, o->top_p, o->min_p, o->temp);
    }
    if (o->temp > 0 && o->dynatemp_range > 0) {
        cli_say(o, "             dynatemp range %g, exponent %g", o->dynatemp_range,
                o->dynatemp_exponent);
    }
    if (o->xtc_probability > 0 && o->mirostat == 0) {
        cli_say(o, "             xtc probability %g, threshold %g", o->xtc_probability,
                o->xtc_threshold);
    }
    if (o->mirostat > 0) return; /* Mirostat uses no penalties */
    cli_say(o, "penalties:   repeat %g, presence %g, frequency %g, over %lld tokens",
            o->repeat_penalty, o->presence_penalty, o->frequency_penalty,
            (long long)o->repeat_last_n);
    if (o->dry_multiplier > 0) {
        cli_say(o, "             dry %g * %g ^ (length - %lld)", o->dry_multiplier, o->dry_base,
                (long long)o->dry_allowed_length);
    }
}
