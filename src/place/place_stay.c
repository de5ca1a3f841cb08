/* place_stay.c: see place_stay.h. */
#include "place_stay.h"

#include <string.h>

#include "log.h"
#include "mem.h"
#include "name_pattern.h"
#include "plan_support.h"

enum { MAX_RULES = 1024, TEXT_MAX = 120 /* bytes of a pattern in a message */ };

typedef struct rule {
    const char *text; /* [n] patterns, without the device */
    int n;
    name_pattern *pattern;
    bool on_cpu, used;
} rule;

typedef struct rules {
    rule *items; /* [n] */
    int n;
    char widened[64], ignored[64]; /* first tensor that keeps others on the CPU; first tensor whose
                                      pattern is ignored; "": none */
} rules;

/* ---- patterns -------------------------------------------------------------------------------- */

/* Reads a device name: the CPU, its pinned buffers (CUDA_Host), or a GPU of any vendor. */
static bool read_device(const char *name, size_t n, bool *on_cpu) {
    static const char host[] = "_Host";
    static const char *const gpus[] = {"CUDA", "ROCm",  "HIP",  "Vulkan", "SYCL",
                                       "MUSA", "Metal", "CANN", "OpenCL", "GPU"};
    size_t n_host = strlen(host);
    *on_cpu = (n >= 3 && strncmp(name, "CPU", 3) == 0) ||
              (n > n_host && memcmp(name + n - n_host, host, n_host) == 0);
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus && !*on_cpu; i++)
        if (n >= strlen(gpus[i]) && strncmp(name, gpus[i], strlen(gpus[i])) == 0) return true;
    return *on_cpu;
}

/* Reads one "PATTERN=DEVICE" at *text (the pattern may contain commas), and moves *text after
 * it. */
static pi_status add_rule(rules *all, const char **text, pi_error *err) {
    const char *at = *text, *equals = strchr(at, '=');
    size_t n = equals ? (size_t)(equals - at) : 0;
    if (n == 0)
        return error_set(err, PI_ERR_ARG,
                         "invalid value: override-tensor \"%.120s\": expected PATTERN=DEVICE, such "
                         "as exps=CPU",
                         at);
    const char *device = equals + 1;
    size_t n_device = strcspn(device, ",");
    rule *r = &all->items[all->n];
    *r = (rule){.text = at, .n = n < TEXT_MAX ? (int)n : TEXT_MAX};
    if (!read_device(device, n_device, &r->on_cpu))
        return error_set(err, PI_ERR_ARG,
                         "invalid value: override-tensor: no such device: \"%.*s\": use CPU",
                         n_device < TEXT_MAX ? (int)n_device : TEXT_MAX, device);
    pi_status status = name_pattern_create(at, n, "override-tensor", &r->pattern, err);
    if (status != PI_OK) return status;
    all->n++;
    *text = device + n_device + (device[n_device] == ',');
    return PI_OK;
}

static void free_rules(rules *all) {
    for (int i = 0; i < all->n; i++) name_pattern_free(all->items[i].pattern);
    mem_free(all->items);
}

static pi_status read_rules(const place_stay_request *r, rules *out, pi_error *err) {
    size_t n = 0;
    pi_status status = PI_OK;
    *out = (rules){.n = 0};
    for (int i = 0; i < r->n_overrides; i++)
        for (const char *c = r->overrides[i]; *c; c++) n += *c == '=';
    if (n > MAX_RULES)
        return error_set(err, PI_ERR_ARG, "too many patterns: override-tensor: at most %d",
                         MAX_RULES);
    out->items = mem_calloc(n + 1, sizeof *out->items);
    if (!out->items) return error_nomem(err, n * sizeof *out->items, "patterns");
    for (int i = 0; i < r->n_overrides && status == PI_OK; i++) {
        const char *text = r->overrides[i];
        do {
            status = add_rule(out, &text, err);
        } while (status == PI_OK && *text);
    }
    return status;
}

/* Whether the tensor must stay on the CPU; writes the tensor's name to name [64]. */
static bool names(rules *all, const arch_tensor *t, int layer, char *name) {
    *name = 0;
    if (!t) return false;
    arch_tensor_name(t, layer, name);
    for (int i = 0; i < all->n; i++) {
        rule *r = &all->items[i];
        if (!name_pattern_found(r->pattern, name)) continue;
        r->used = true;
        return r->on_cpu;
    }
    return false;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static bool is_matrix(const arch_tensor *t, const model_tensor *tensor) {
    return tensor->data && tensor->n_out > 1 && t && !(t->flags & TENSOR_RAW);
}

/* Bytes of a group of matrices, and of those among them that a pattern matches. */
typedef struct share {
    uint64_t all, named;
    char first[64]; /* first matrix that a pattern matches */
} share;

static void add(share *s, const model_tensor *tensor, bool named, const char *name) {
    s->all += tensor->n_bytes;
    if (!named) return;
    if (s->named == 0) memcpy(s->first, name, sizeof s->first);
    s->named += tensor->n_bytes;
}

static void note(char *first, const share *s) {
    if (!*first) memcpy(first, s->first, sizeof s->first);
}

static uint8_t layer_stays(rules *all, const model *m, int layer) {
    const model_layer *l = &m->layers[layer];
    share units = {0}, mixer = {0}, others = {0};
    for (int role = 0; role < ROLE_COUNT; role++) {
        const arch_tensor *t = arch_tensor_whole(m->arch, (tensor_role)role);
        const model_tensor *tensor = &l->t[role];
        if (!tensor->data) continue;
        char name[64];
        bool named = names(all, t, layer, name);
        if (!is_matrix(t, tensor)) continue;
        bool moves = plan_tensor_moves(l, (tensor_role)role, t);
        bool ffn = tensor_role_part((tensor_role)role) == PART_FFN;
        add(moves ? &units : ffn ? &others : &mixer, tensor, named, name);
    }
    bool primary = mixer.named > mixer.all / 2;
    if (units.named < units.all) note(all->widened, &units);
    if (primary && mixer.named < mixer.all) note(all->widened, &mixer);
    if (!primary) note(all->ignored, mixer.named ? &mixer : &others);
    return (uint8_t)((primary ? PLAN_STAY_ALWAYS : 0) | (units.named > 0 ? PLAN_STAY_NEURONS : 0));
}

static void name_globals(rules *all, const model *m, uint8_t *head) {
    char name[64];
    for (int i = 0; i < m->arch->n_tensors; i++) {
        const arch_tensor *t = &m->arch->tensors[i];
        if (t->flags & TENSOR_PER_LAYER || !m->t[t->role].data) continue;
        if (names(all, t, 0, name) && t->role == ROLE_OUTPUT) *head = PLAN_STAY_ALWAYS;
    }
}

/* Writes a line for each pattern that is not applied literally. */
static void warn(const rules *all) {
    for (int i = 0; i < all->n; i++) {
        const rule *r = &all->items[i];
        if (!r->used)
            log_line(LOG_LEVEL_WARN, "override-tensor: no tensor of the model is left for \"%.*s\"",
                     r->n, r->text);
    }
    for (int i = 0; i < all->n; i++) {
        const rule *r = &all->items[i];
        if (r->on_cpu || !r->used) continue;
        log_line(LOG_LEVEL_WARN,
                 "override-tensor: \"%.*s\" names a GPU: choose GPUs, and their shares of the "
                 "layers, instead",
                 r->n, r->text);
        break;
    }
    if (*all->widened)
        log_line(LOG_LEVEL_WARN,
                 "override-tensor: the matrices that belong to %s stay on the CPU as well",
                 all->widened);
    if (*all->ignored)
        log_line(LOG_LEVEL_WARN,
                 "override-tensor: %s cannot stay on the CPU alone: it is placed with its layer's "
                 "attention",
                 all->ignored);
}

pi_status place_stays_create(const model *m, const place_stay_request *r, uint8_t **out,
                             pi_error *err) {
    rules all;
    size_t n = (size_t)m->hp.n_layer;
    *out = NULL;
    if (r->n_overrides == 0 && r->cpu_experts <= 0 && r->cpu_ffn <= 0) return PI_OK;
    pi_status status = read_rules(r, &all, err);
    uint8_t *stays = mem_calloc(n + 1, sizeof *stays);
    if (status == PI_OK && !stays) status = error_nomem(err, n + 1, "layers");
    if (status != PI_OK) {
        mem_free(stays);
        free_rules(&all);
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        bool experts = m->layers[i].t[ROLE_ROUTER].data;
        stays[i] = layer_stays(&all, m, (int)i);
        if ((int64_t)i < (experts ? r->cpu_experts : r->cpu_ffn)) stays[i] |= PLAN_STAY_NEURONS;
    }
    name_globals(&all, m, &stays[n]);
    warn(&all);
    if (r->cpu_experts > 0 && m->hp.n_expert == 0)
        log_line(LOG_LEVEL_WARN, "the model has no experts that could stay on the CPU");
    free_rules(&all);
    *out = stays;
    return PI_OK;
}
