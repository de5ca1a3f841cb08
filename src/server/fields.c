/* fields.c: reads the options of a generation from JSON. Names are OpenAI's; options that only
 * llama.cpp's server has keep llama.cpp's names. */
#include "fields.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "prompt.h"

static const json_node *find(const json_node *body, const char *name) {
    const json_node *node = json_get(body, name);
    return json_kind_of(node) == JSON_NULL ? NULL : node;
}

pi_status field_bool(const json_node *body, const char *name, bool *out, pi_error *err) {
    const json_node *node = find(body, name);
    if (!node || json_as_bool(node, out)) return PI_OK;
    return error_set(err, PI_ERR_ARG, "%s: must be true or false", name);
}

pi_status field_int(const json_node *body, const char *name, int64_t min, int64_t max, int64_t *out,
                    pi_error *err) {
    const json_node *node = find(body, name);
    int64_t value = 0;
    if (!node) return PI_OK;
    if (!json_as_int(node, &value))
        return error_set(err, PI_ERR_ARG, "%s: must be a whole number", name);
    if (value < min || value > max)
        return error_set(err, PI_ERR_ARG, "%s: %lld is not in %lld..%lld", name, (long long)value,
                         (long long)min, (long long)max);
    *out = value;
    return PI_OK;
}

pi_status field_number(const json_node *body, const char *name, double min, double max, double *out,
                       pi_error *err) {
    const json_node *node = find(body, name);
    double value = 0;
    if (!node) return PI_OK;
    if (!json_as_double(node, &value))
        return error_set(err, PI_ERR_ARG, "%s: must be a number", name);
    if (!(value >= min && value <= max))
        return error_set(err, PI_ERR_ARG, "%s: %g is not in %g..%g", name, value, min, max);
    *out = value;
    return PI_OK;
}

pi_status field_text(const json_node *body, const char *name, const char **out, pi_error *err) {
    const json_node *node = find(body, name);
    const char *text = NULL;
    size_t n = 0;
    if (!node) return PI_OK;
    if (!json_as_string(node, &text, &n) || strlen(text) != n)
        return error_set(err, PI_ERR_ARG, "%s: must be a string", name);
    *out = text;
    return PI_OK;
}

pi_status field_kind(const json_node *body, const char *name, json_kind kind, pi_error *err) {
    static const char *const names[] = {
        [JSON_STRING] = "a string", [JSON_ARRAY] = "an array", [JSON_OBJECT] = "an object"};
    const json_node *node = find(body, name);
    if (!node || json_kind_of(node) == kind) return PI_OK;
    return error_set(err, PI_ERR_ARG, "%s: must be %s", name, names[kind]);
}

/* ---- sampling -------------------------------------------------------------------------------- */

typedef enum number_kind { NUMBER_FLOAT, NUMBER_INT, NUMBER_BOOL } number_kind;

typedef struct sampling_field {
    const char *name;
    number_kind kind;
    size_t offset; /* offset in pi_sampler_options */
    double min, max;
} sampling_field;

#define FIELD(name_, kind_, member_, min_, max_)                                                   \
    { name_, NUMBER_##kind_, offsetof(pi_sampler_options, member_), min_, max_ }

/* Limit of penalties that keeps sums with scores finite. */
#define MAX_PENALTY 1e30
#define MAX_COUNT   2147483647.0

static const sampling_field sampling_fields[] = {
    FIELD("temperature", FLOAT, temp, -FLT_MAX, FLT_MAX),
    FIELD("dynatemp_range", FLOAT, dynatemp_range, 0, MAX_PENALTY),
    FIELD("dynatemp_exponent", FLOAT, dynatemp_exponent, 0, MAX_PENALTY),
    FIELD("top_k", INT, top_k, -1, MAX_COUNT),
    FIELD("top_p", FLOAT, top_p, 0, 1),
    FIELD("min_p", FLOAT, min_p, 0, 1),
    FIELD("typical_p", FLOAT, typical_p, 0, 1),
    FIELD("top_n_sigma", FLOAT, top_n_sigma, -FLT_MAX, FLT_MAX),
    FIELD("repeat_penalty", FLOAT, repeat_penalty, 1e-6, 1e6),
    FIELD("repeat_last_n", INT, repeat_last_n, -1, MAX_COUNT),
    FIELD("presence_penalty", FLOAT, presence_penalty, -MAX_PENALTY, MAX_PENALTY),
    FIELD("frequency_penalty", FLOAT, frequency_penalty, -MAX_PENALTY, MAX_PENALTY),
    FIELD("xtc_probability", FLOAT, xtc_probability, 0, 1),
    FIELD("xtc_threshold", FLOAT, xtc_threshold, 0, 1),
    FIELD("dry_multiplier", FLOAT, dry_multiplier, 0, MAX_PENALTY),
    FIELD("dry_base", FLOAT, dry_base, 0, MAX_PENALTY),
    FIELD("dry_allowed_length", INT, dry_allowed_length, 0, MAX_COUNT),
    FIELD("dry_penalty_last_n", INT, dry_last_n, -1, 1048576),
    FIELD("mirostat", INT, mirostat, 0, 2),
    FIELD("mirostat_tau", FLOAT, mirostat_tau, 0, 1e6),
    FIELD("mirostat_eta", FLOAT, mirostat_eta, 0, 1e6),
    FIELD("ignore_eos", BOOL, ignore_eos, 0, 1),
};

pi_status params_read_sampling(const json_node *body, pi_sampler_options *o, pi_error *err) {
    pi_status status = PI_OK;
    for (size_t i = 0; i < sizeof sampling_fields / sizeof *sampling_fields && !status; i++) {
        const sampling_field *f = &sampling_fields[i];
        void *place = (char *)o + f->offset;
        if (f->kind == NUMBER_BOOL) {
            status = field_bool(body, f->name, place, err);
        } else if (f->kind == NUMBER_INT) {
            int64_t value = *(int32_t *)place;
            status = field_int(body, f->name, (int64_t)f->min, (int64_t)f->max, &value, err);
            *(int32_t *)place = (int32_t)value;
        } else {
            double value = (double)*(float *)place;
            status = field_number(body, f->name, f->min, f->max, &value, err);
            *(float *)place = (float)value;
        }
    }
    int64_t seed = (int64_t)o->seed;
    if (status == PI_OK) status = field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    o->seed = (uint64_t)seed;
    return status;
}

/* Reads samplers: ["top_k", "temperature", ...], with llama.cpp's names. */
static pi_status read_chain(params *p, const json_node *body, pi_error *err) {
    static const struct {
        const char *name;
        pi_sampler_kind kind;
    } known[] = {{"penalties", PI_SAMPLER_PENALTIES},
                 {"dry", PI_SAMPLER_DRY},
                 {"top_n_sigma", PI_SAMPLER_TOP_N_SIGMA},
                 {"top_k", PI_SAMPLER_TOP_K},
                 {"typ_p", PI_SAMPLER_TYPICAL},
                 {"typical_p", PI_SAMPLER_TYPICAL},
                 {"top_p", PI_SAMPLER_TOP_P},
                 {"min_p", PI_SAMPLER_MIN_P},
                 {"xtc", PI_SAMPLER_XTC},
                 {"temperature", PI_SAMPLER_TEMPERATURE}};
    const json_node *list = find(body, "samplers");
    pi_status status = field_kind(body, "samplers", JSON_ARRAY, err);
    if (status != PI_OK || !list) return status;
    if (json_count(list) > PI_SAMPLER_CHAIN_MAX)
        return error_set(err, PI_ERR_ARG, "samplers: more than %d", PI_SAMPLER_CHAIN_MAX);
    p->sampling.samplers = p->chain;
    p->sampling.n_samplers = 0;
    for (size_t i = 0; i < json_count(list); i++) {
        const char *name = "";
        size_t n = 0, k = 0, n_known = sizeof known / sizeof *known;
        json_as_string(json_at(list, i), &name, &n);
        if (strcmp(name, "infill") == 0)
            continue; /* llama.cpp's, in editors' requests: no effect */
        while (k < n_known && strcmp(known[k].name, name) != 0) k++;
        if (k == n_known) return error_set(err, PI_ERR_ARG, "samplers: there is no \"%s\"", name);
        p->chain[p->sampling.n_samplers++] = known[k].kind;
    }
    return PI_OK;
}

static pi_status read_breakers(params *p, const json_node *body, pi_error *err) {
    const json_node *list = find(body, "dry_sequence_breakers");
    pi_status status = field_kind(body, "dry_sequence_breakers", JSON_ARRAY, err);
    if (status != PI_OK || !list) return status;
    size_t n = json_count(list);
    p->breakers = mem_calloc(n + 1, sizeof *p->breakers);
    if (!p->breakers) return error_nomem(err, n * sizeof *p->breakers, "request");
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        if (!json_as_string(json_at(list, i), &p->breakers[i], &length))
            return error_set(err, PI_ERR_ARG, "dry_sequence_breakers: must be an array of strings");
    }
    p->sampling.dry_breakers = p->breakers;
    p->sampling.n_dry_breakers = n;
    return PI_OK;
}

/* ---- logit bias ------------------------------------------------------------------------------ */

static pi_status add_bias(params *p, int64_t token, const json_node *value, int32_t n_vocab,
                          pi_error *err) {
    double bias = 0;
    bool truth = false;
    if (json_as_bool(value, &truth) && !truth)
        bias = -INFINITY; /* false bans the token, as in llama.cpp */
    else if (!json_as_double(value, &bias) || fabs(bias) > MAX_PENALTY)
        return error_set(err, PI_ERR_ARG, "logit_bias: a bias must be a number");
    if (token < 0 || token >= n_vocab)
        return error_set(err, PI_ERR_ARG, "logit_bias: there is no token %lld", (long long)token);
    if (p->sampling.n_logit_bias == PARAMS_MAX_BIAS)
        return error_set(err, PI_ERR_ARG, "logit_bias: more than %d tokens", PARAMS_MAX_BIAS);
    p->bias[p->sampling.n_logit_bias++] = (pi_logit_bias){.token = (int32_t)token,
                                                          .bias = (float)bias};
    return PI_OK;
}

static pi_status add_text_bias(params *p, const char *text, size_t n, const json_node *value,
                               const pi_model *model, int32_t n_vocab, pi_error *err) {
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    const prompt_text biased = {.text = text, .n = n};
    pi_status status = prompt_tokens(model, &biased, &tokens, &n_tokens, err);
    for (size_t i = 0; i < n_tokens && status == PI_OK; i++)
        status = add_bias(p, tokens[i], value, n_vocab, err);
    mem_free(tokens);
    return status;
}

/* Reads {"15043": -100}, or [[15043, -100], ["text", false]]. */
static pi_status read_bias(params *p, const json_node *body, const pi_model *model, pi_error *err) {
    const json_node *node = find(body, "logit_bias");
    pi_model_info info;
    pi_status status = PI_OK;
    if (!node) return PI_OK;
    pi_model_get_info(model, &info);
    p->bias = mem_calloc(PARAMS_MAX_BIAS, sizeof *p->bias);
    if (!p->bias) return error_nomem(err, PARAMS_MAX_BIAS * sizeof *p->bias, "request");
    p->sampling.logit_bias = p->bias;
    p->sampling.n_logit_bias = 0;
    if (json_kind_of(node) == JSON_OBJECT) {
        void *iter = NULL;
        const char *key = NULL;
        const json_node *value = NULL;
        while (status == PI_OK && json_next(node, &iter, &key, &value)) {
            char *end = NULL;
            long long token = strtoll(key, &end, 10);
            if (end == key || *end) token = -1;
            status = add_bias(p, token, value, info.n_vocab, err);
        }
        return status;
    }
    if (json_kind_of(node) != JSON_ARRAY)
        return error_set(err, PI_ERR_ARG, "logit_bias: must be an object");
    for (size_t i = 0; i < json_count(node) && status == PI_OK; i++) {
        const json_node *pair = json_at(node, i), *value = json_at(pair, 1);
        const char *text = NULL;
        int64_t token = 0;
        size_t n = 0;
        if (json_as_int(json_at(pair, 0), &token))
            status = add_bias(p, token, value, info.n_vocab, err);
        else if (json_as_string(json_at(pair, 0), &text, &n))
            status = add_text_bias(p, text, n, value, model, info.n_vocab, err);
        else
            status = error_set(err, PI_ERR_ARG, "logit_bias: must be pairs of token and bias");
    }
    return status;
}

/* ---- limits and stop texts ------------------------------------------------------------------- */

static pi_status read_limits(params *p, const json_node *body, const char *const *limit_names,
                             pi_error *err) {
    int64_t max_tokens = p->max_tokens, n = 1, max_draft = -1, slot = -1;
    pi_status status = PI_OK;
    for (int i = 0; limit_names[i] && status == PI_OK; i++) {
        if (!find(body, limit_names[i])) continue;
        status = field_int(body, limit_names[i], -1, INT32_MAX, &max_tokens, err);
        break;
    }
    if (status == PI_OK) status = field_int(body, "n", 1, PARAMS_MAX_CHOICES, &n, err);
    if (status == PI_OK)
        status = field_int(body, "speculative.n_max", 0, INT32_MAX, &max_draft, err);
    if (status == PI_OK) status = field_int(body, "id_slot", -1, INT32_MAX - 1, &slot, err);
    p->slot = (int32_t)slot;
    p->max_tokens = (int32_t)max_tokens;
    p->max_draft = (int32_t)max_draft;
    p->reasoning_budget = -1;
    p->n = (int)n;
    p->stop = find(body, "stop");
    json_kind kind = json_kind_of(p->stop);
    if (status == PI_OK && p->stop && kind != JSON_STRING && kind != JSON_ARRAY)
        status = error_set(err, PI_ERR_ARG, "stop: must be a string or an array of strings");
    return status;
}

pi_status params_read(params *p, const json_node *body, const pi_sampler_options *sampling,
                      int32_t max_tokens, bool cache_prompt, const char *const *limit_names,
                      const pi_model *model, pi_error *err) {
    *p = (params){.sampling = *sampling, .max_tokens = max_tokens, .n_top = -1};
    p->cache_prompt = cache_prompt;
    const json_node *stream_options = find(body, "stream_options");
    pi_status status = params_read_sampling(body, &p->sampling, err);
    if (status == PI_OK) status = read_chain(p, body, err);
    if (status == PI_OK) status = read_breakers(p, body, err);
    if (status == PI_OK) status = read_bias(p, body, model, err);
    if (status == PI_OK) status = read_limits(p, body, limit_names, err);
    if (status == PI_OK) status = field_bool(body, "stream", &p->stream, err);
    if (status == PI_OK) status = field_bool(body, "cache_prompt", &p->cache_prompt, err);
    if (status == PI_OK) status = field_bool(body, "timings_per_token", &p->timings, err);
    if (status == PI_OK) status = field_bool(body, "neurons", &p->neurons, err);
    if (status == PI_OK && p->neurons && !p->stream)
        status = error_set(err, PI_ERR_ARG, "neurons: needs stream: true");
    if (status == PI_OK) status = field_kind(body, "stream_options", JSON_OBJECT, err);
    if (status == PI_OK)
        status = field_bool(stream_options, "include_usage", &p->include_usage, err);
    return status;
}

void params_free(params *p) {
    mem_free(p->bias);
    mem_free(p->breakers);
    p->bias = NULL;
    p->breakers = NULL;
}

static pi_status add_stop(sequence *q, const json_node *node, pi_error *err) {
    const char *text = NULL;
    size_t n = 0;
    if (!json_as_string(node, &text, &n))
        return error_set(err, PI_ERR_ARG, "stop: must be a string or an array of strings");
    /* some clients send an empty stop text */
    return n ? sequence_add_stop(q, text, n, err) : PI_OK;
}

pi_status params_add_stops(const params *p, sequence *q, pi_error *err) {
    pi_status status = PI_OK;
    if (!p->stop) return PI_OK;
    if (json_kind_of(p->stop) == JSON_STRING) return add_stop(q, p->stop, err);
    for (size_t i = 0; i < json_count(p->stop) && status == PI_OK; i++)
        status = add_stop(q, json_at(p->stop, i), err);
    return status;
}
