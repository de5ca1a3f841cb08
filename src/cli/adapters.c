/* adapters.c: see adapters.h. Values are copied and cut in place. */
#include "adapters.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "mem.h"

static bool is_number(const char *text, float *out) {
    char *end;
    double x = strtod(text, &end);
    *out = (float)x;
    return end != text && !*end && x >= -1e6 && x <= 1e6;
}

/* Adds one adapter. False: the value must name a file, but does not; nothing is added. */
static bool add_item(cli_adapters *a, char *text, bool must_be) {
    char *colon = strrchr(text, ':');
    pi_adapter item = {.path = text, .scale = 1};
    bool whole = file_exists(text), scaled = !whole && colon && is_number(colon + 1, &item.scale);
    if (scaled) *colon = 0;
    if (must_be && !whole && !(scaled && file_exists(text))) {
        if (scaled) *colon = ':';
        return false;
    }
    a->items[a->n++] = item;
    return true;
}

static pi_status parse_value(cli_adapters *a, char *text, pi_error *err) {
    float scale;
    if (is_number(text, &scale) && !file_exists(text)) {
        if (a->n == 0)
            return error_set(err, PI_ERR_ARG, "invalid value: --lora-scaled %.200s: expected FILE",
                             text);
        a->items[a->n - 1].scale = scale;
        return PI_OK;
    }
    if (add_item(a, text, true)) return PI_OK;
    for (char *next = text; next;) {
        char *item = next;
        next = strchr(item, ',');
        if (next) *next++ = 0;
        if (!*item || *item == ':')
            return error_set(err, PI_ERR_ARG,
                             "invalid value: --lora: an empty name: expected FILE[:SCALE]");
        add_item(a, item, false);
    }
    return PI_OK;
}

pi_status cli_adapters_parse(const option_texts *values, cli_adapters *out, pi_error *err) {
    size_t n = 0; /* items of the lists */
    for (int32_t i = 0; i < values->count; i++)
        for (const char *c = values->values[i]; c; c = strchr(c + 1, ',')) n++;
    *out = (cli_adapters){.n = 0};
    if (n == 0) return PI_OK;
    out->items = mem_calloc(n, sizeof *out->items);
    if (!out->items) return error_nomem(err, n * sizeof *out->items, "adapters");
    for (int32_t i = 0; i < values->count; i++) {
        out->texts[i] = mem_strdup(values->values[i]);
        if (!out->texts[i]) return error_nomem(err, strlen(values->values[i]), "adapters");
        pi_status status = parse_value(out, out->texts[i], err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

void cli_adapters_free(cli_adapters *a) {
    for (int i = 0; i < OPTION_MAX_TEXTS; i++) mem_free(a->texts[i]);
    mem_free(a->items);
}
