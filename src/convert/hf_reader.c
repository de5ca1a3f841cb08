/* hf_reader.c: see hf_reader.h. */
#include "hf_reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void hf_fail(hf_reader *r, const char *key, const char *problem) {
    if (r->status != PI_OK) return;
    r->status = error_set(r->err, PI_ERR_FORMAT, "bad configuration: %s: %s %s", r->path, key,
                          problem);
}

const json_node *hf_get(const json_node *object, const char *key) {
    const json_node *node = json_get(object, key);
    return json_kind_of(node) == JSON_NULL ? NULL : node;
}

const json_node *hf_find(const hf_reader *r, hf_names names, const char **name) {
    const json_node *const places[] = {r->text, r->root};
    for (int place = 0; place < 2; place++) {
        for (int i = 0; i < HF_MAX_NAMES && names[i]; i++) {
            const json_node *node = hf_get(places[place], names[i]);
            *name = names[i];
            if (node) return node;
        }
    }
    *name = names[0];
    return NULL;
}

bool hf_has(const hf_reader *r, const char *key) {
    const char *name;
    return hf_find(r, (hf_names){key}, &name) != NULL;
}

static bool find_default(const hf_reader *r, hf_names names, double *value) {
    const hf_default *list = r->family ? r->family->defaults : NULL;
    for (; list && list->key; list++) {
        for (int i = 0; i < HF_MAX_NAMES && names[i]; i++) {
            if (strcmp(list->key, names[i]) != 0) continue;
            *value = list->value;
            return true;
        }
    }
    return false;
}

/* Returns the number that all layers share. */
static const json_node *one_for_all(hf_reader *r, const char *key, const json_node *node) {
    if (json_kind_of(node) != JSON_ARRAY) return node;
    const json_node *first = json_at(node, 0);
    double one, other;
    for (size_t i = 0; i < json_count(node); i++)
        if (!json_as_double(first, &one) || !json_as_double(json_at(node, i), &other) ||
            one != other)
            hf_fail(r, key, "differs between layers, which this model type cannot have");
    return first;
}

int32_t hf_int(hf_reader *r, hf_names names, int32_t fallback, int32_t min, int32_t max) {
    const char *key;
    const json_node *node = hf_find(r, names, &key);
    int64_t value;
    double usual;
    char problem[96];
    if (!node && find_default(r, names, &usual)) return (int32_t)usual;
    if (!node && fallback >= 0) return fallback;
    node = one_for_all(r, key, node);
    if (!node) {
        hf_fail(r, key, "is missing");
    } else if (!json_as_int(node, &value)) {
        hf_fail(r, key, "is not an integer");
    } else if (value < min || value > max) {
        snprintf(problem, sizeof problem, "is %lld, not in %d..%d", (long long)value, min, max);
        hf_fail(r, key, problem);
    } else {
        return (int32_t)value;
    }
    return min;
}

static double check_number(hf_reader *r, const json_node *node, const char *key, double min,
                           double max) {
    double value;
    char problem[96];
    if (!node) {
        hf_fail(r, key, "is missing");
    } else if (!json_as_double(node, &value)) {
        hf_fail(r, key, "is not a number");
    } else if (!(value >= min && value <= max)) {
        snprintf(problem, sizeof problem, "is %g, not in %g..%g", value, min, max);
        hf_fail(r, key, problem);
    } else {
        return value;
    }
    return min;
}

double hf_number(hf_reader *r, hf_names names, double fallback, double min, double max) {
    const char *key;
    const json_node *node = hf_find(r, names, &key);
    double usual;
    if (!node && find_default(r, names, &usual)) return usual;
    if (!node && !isnan(fallback)) return fallback;
    return check_number(r, node, key, min, max);
}

double hf_number_in(hf_reader *r, const json_node *object, const char *key, double fallback,
                    double min, double max) {
    const json_node *node = hf_get(object, key);
    return !node && !isnan(fallback) ? fallback : check_number(r, node, key, min, max);
}

double hf_number_near(hf_reader *r, const json_node *object, hf_names names, double fallback,
                      double min, double max) {
    const json_node *node = hf_get(object, names[0]);
    return node ? check_number(r, node, names[0], min, max)
                : hf_number(r, names, fallback, min, max);
}

bool hf_flag(hf_reader *r, hf_names names, bool fallback) {
    const char *key;
    const json_node *node = hf_find(r, names, &key);
    bool value = fallback;
    int64_t number;
    double usual;
    if (!node && find_default(r, names, &usual)) return usual != 0;
    if (node && !json_as_bool(node, &value)) {
        if (json_as_int(node, &number)) return number != 0;
        hf_fail(r, key, "is not a boolean");
    }
    return value;
}

const char *hf_text(const json_node *object, const char *key) {
    const char *text;
    size_t n;
    return json_as_string(hf_get(object, key), &text, &n) ? text : NULL;
}
