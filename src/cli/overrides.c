/* overrides.c: see overrides.h. */
#include "overrides.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "mem.h"

/* Parses KEY=TYPE:VALUE, llama.cpp's form. `key` [n_key] receives the key. */
static pi_status parse_override(const char *text, char *key, size_t n_key,
                                pi_metadata_override *out, pi_error *err) {
    static const char *const types[] = {"int:", "float:", "bool:", "str:"};
    const char *equals = strchr(text, '='), *value = NULL;
    size_t n = equals ? (size_t)(equals - text) : 0;
    *out = (pi_metadata_override){.key = key};
    for (int i = 0; i < 4 && n > 0 && n < n_key; i++) {
        if (strncmp(equals + 1, types[i], strlen(types[i])) != 0) continue;
        out->type = (pi_value_type)i;
        value = equals + 1 + strlen(types[i]);
    }
    if (!value)
        return error_set(err, PI_ERR_ARG,
                         "invalid value: --override-kv \"%.200s\": expected KEY=TYPE:VALUE with "
                         "TYPE int, float, bool or str",
                         text);
    memcpy(key, text, n);
    key[n] = 0;
    char *end = NULL;
    errno = 0;
    if (out->type == PI_VALUE_INT) out->integer = strtoll(value, &end, 10);
    if (out->type == PI_VALUE_FLOAT) out->number = strtod(value, &end);
    out->truth = strcmp(value, "true") == 0;
    out->text = value;
    bool good = end ? end != value && !*end && !errno
                    : out->type == PI_VALUE_TEXT || out->truth || strcmp(value, "false") == 0;
    if (good) return PI_OK;
    return error_set(err, PI_ERR_ARG, "invalid value: --override-kv %.200s \"%.200s\": expected %s",
                     key, value,
                     out->type == PI_VALUE_INT     ? "an integer"
                     : out->type == PI_VALUE_FLOAT ? "a number"
                                                   : "true or false");
}

/* An option whose number overrides a key. Values up to `none` change nothing, because scripts pass
 * llama.cpp's defaults. */
typedef struct rope_option {
    double number, none;
    const char *key;
} rope_option;

static void add_rope(const cli_options *o, cli_overrides *out) {
    const double scale = o->rope_freq_scale > 0 ? 1 / o->rope_freq_scale : 0;
    const rope_option options[] = {
        {o->rope_scale, 0, "*.rope.scaling.factor"},
        {scale, 0, "*.rope.scaling.factor"},
        {o->rope_freq_base, 0, "*.rope.freq_base"},
        {o->yarn_ext_factor, -1e-30, "*.rope.scaling.yarn_ext_factor"},
        {o->yarn_attn_factor, 0, "*.rope.scaling.attn_factor"},
        {o->yarn_beta_slow, 0, "*.rope.scaling.yarn_beta_slow"},
        {o->yarn_beta_fast, 0, "*.rope.scaling.yarn_beta_fast"},
    };
    static const char *const types[] = {NULL, "none", "linear", "yarn"};
    if (o->rope_scaling)
        out->items[out->n++] = (pi_metadata_override){
            .key = "*.rope.scaling.type", .type = PI_VALUE_TEXT, .text = types[o->rope_scaling]};
    if (o->yarn_orig_ctx > 0)
        out->items[out->n++] = (pi_metadata_override){
            .key = "*.rope.scaling.original_context_length",
            .type = PI_VALUE_INT,
            .integer = o->yarn_orig_ctx};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].number > options[i].none)
            out->items[out->n++] = (pi_metadata_override){
                .key = options[i].key, .type = PI_VALUE_FLOAT, .number = options[i].number};
}

pi_status cli_overrides_check(const cli_options *o, pi_error *err) {
    char key[CLI_KEY_BYTES];
    pi_metadata_override ignored;
    pi_status status = PI_OK;
    for (int i = 0; i < o->override_kv.count && status == PI_OK; i++)
        status = parse_override(o->override_kv.values[i], key, sizeof key, &ignored, err);
    return status;
}

pi_status cli_overrides_parse(const cli_options *o, cli_overrides *out, pi_error *err) {
    enum { ROPE_OPTIONS = 9 };
    size_t n = (size_t)o->override_kv.count;
    pi_status status = PI_OK;
    *out = (cli_overrides){.keys = mem_calloc(n + 1, sizeof *out->keys),
                           .items = mem_calloc(n + ROPE_OPTIONS, sizeof *out->items)};
    if (!out->keys || !out->items) return error_nomem(err, n * sizeof *out->keys, "overrides");
    add_rope(o, out);
    for (size_t i = 0; i < n && status == PI_OK; i++)
        status = parse_override(o->override_kv.values[i], out->keys[i], sizeof out->keys[i],
                                &out->items[out->n++], err);
    return status;
}

void cli_overrides_clear(cli_options *o) {
    o->override_kv.count = 0;
    o->rope_scaling = o->yarn_orig_ctx = 0;
    o->rope_scale = o->rope_freq_base = o->rope_freq_scale = 0;
    o->yarn_ext_factor = o->yarn_attn_factor = o->yarn_beta_slow = o->yarn_beta_fast = -1;
}

void cli_overrides_free(cli_overrides *overrides) {
    mem_free(overrides->keys);
    mem_free(overrides->items);
    *overrides = (cli_overrides){0};
}
