/* registry.c: see registry.h. */
#include "registry.h"

#include <math.h>
#include <string.h>

#include "affix.h"
#include "clock.h"
#include "log.h"
#include "mem.h"

/* Seconds between two looks at the socket of a client that waits for a model. */
#define WATCH_SECONDS 0.1

enum { MAX_WAITING = 256 /* requests for one model; each has a connection */ };

/* A request that waits for a model; on its thread's stack. */
typedef struct waiter {
    served_model *served; /* set with a reference when the model is loaded */
    bool done;
    pi_error error; /* with `done` and without `served` */
    struct waiter *next;
} waiter;

typedef struct entry {
    const server_model *source;
    model_state state;
    served_model *served; /* MODEL_LOADED */
    void *opened;         /* of source->open */
    /* [n_adapters] scales that were asked for; scales of the model that was opened last. NULL: no
     * adapters */
    float *scales, *applied;
    uint64_t bytes; /* what it counts for max_model_bytes */
    int references;
    waiter *first, *last; /* requests in order of arrival */
    int n_waiting;
    uint64_t order;  /* counter value when the model was first wanted; 0: nobody wants it */
    bool to_load;    /* asked for without a request */
    bool to_unload;  /* asked to leave */
    bool evicted;    /* leaves for another model */
    bool closing;    /* it is being freed */
    bool starting;   /* the server is not ready without it */
    bool needs_room; /* memory was exhausted in the last attempt: another model has to leave */
    double used;     /* clock_seconds of the last request's begin or end */
    double keep;     /* seconds; -1: always */
    double load_seconds;
    pi_error error; /* status PI_OK: none */
} entry;

struct registry {
    const server_options *options;
    server_model only; /* without options.models */
    int n;
    entry *entries;  /* [n] */
    double *weights; /* [n_api_keys + 1] shares of the accounts */
    os_thread thread;
    bool has_thread;
    os_mutex lock;              /* of all that follows, and of the entries */
    os_condition wake, changed; /* for the registry's thread; for waiting requests */
    uint64_t order;
    atomic_bool stopping; /* changes under the lock */
};

/* ---- names ----------------------------------------------------------------------------------- */

int registry_count(const registry *r) {
    return r->n;
}

const server_model *registry_model(const registry *r, int index) {
    return r->entries[index].source;
}

static bool is_name(const server_model *m, const char *name, size_t n) {
    if (strlen(m->name) == n && memcmp(m->name, name, n) == 0) return true;
    for (int i = 0; i < m->n_aliases; i++)
        if (strlen(m->aliases[i]) == n && memcmp(m->aliases[i], name, n) == 0) return true;
    return false;
}

int registry_find(const registry *r, const char *name) {
    static const char *const endings[] = {"", ".gguf", ":latest"};
    for (size_t k = 0; k < sizeof endings / sizeof *endings; k++) {
        if (!ends_with(name, endings[k])) continue;
        const size_t n = strlen(name) - strlen(endings[k]);
        for (int i = 0; i < r->n; i++)
            if (is_name(r->entries[i].source, name, n)) return i;
    }
    return -1;
}

int registry_default(const registry *r) {
    for (int i = 0; i < r->n; i++)
        if (r->entries[i].source->is_default) return i;
    return r->n == 1 ? 0 : -1;
}

/* ---- what follows is called under the lock --------------------------------------------------- */

static bool leaves(const entry *e) {
    return e->to_unload || e->evicted || e->closing;
}

/* Hands a loaded model to the requests that wait for it. */
static void grant(registry *r, entry *e) {
    if (e->state != MODEL_LOADED || leaves(e)) return;
    e->to_load = false;
    e->order = 0;
    if (!e->first) return;
    e->used = clock_seconds();
    for (waiter *w = e->first; w; w = w->next) {
        w->served = e->served;
        w->done = true;
        e->references++;
    }
    e->first = e->last = NULL;
    e->n_waiting = 0;
    os_condition_broadcast(&r->changed);
}

static void refuse(registry *r, entry *e, const pi_error *why) {
    for (waiter *w = e->first; w; w = w->next) {
        w->error = *why;
        w->done = true;
    }
    e->first = e->last = NULL;
    e->n_waiting = 0;
    e->order = 0;
    e->to_load = e->starting = false;
    os_condition_broadcast(&r->changed);
}

static void want(registry *r, entry *e) {
    if (e->order == 0) e->order = ++r->order;
    os_condition_signal(&r->wake);
}

/* Removes the waiter of a request that waits no longer. */
static void give_up(entry *e, const waiter *gone) {
    waiter *before = NULL;
    for (waiter *w = e->first; w != gone; w = w->next) before = w;
    if (before)
        before->next = gone->next;
    else
        e->first = gone->next;
    if (e->last == gone) e->last = before;
    e->n_waiting--;
    if (e->first || e->to_load) return;
    e->order = 0;
    e->needs_room = false;
}

/* The model that was wanted first of those that are not loaded; NULL: none. */
static entry *next_wanted(registry *r) {
    entry *first = NULL;
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->entries[i];
        if (e->state == MODEL_LOADED || e->order == 0) continue;
        if (!first || e->order < first->order) first = e;
    }
    return first;
}

/* Whether `a` leaves before `b`: a model that nobody uses, then the one that was chosen before,
 * whose new requests wait already, then the least recently used. */
static bool leaves_before(const entry *a, const entry *b) {
    if ((a->references > 0) != (b->references > 0)) return a->references == 0;
    if (a->evicted != b->evicted) return a->evicted;
    return a->used < b->used;
}

/* The model that leaves so that `wanted` has room. NULL: there is room, or nothing to unload. */
static entry *next_victim(registry *r, const entry *wanted) {
    const server_options *o = r->options;
    entry *best = NULL;
    int n_loaded = 0;
    uint64_t n_bytes = wanted->bytes;
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->entries[i];
        if (e->state != MODEL_LOADED) continue;
        n_loaded++;
        n_bytes += e->bytes;
        if (!best || leaves_before(e, best)) best = e;
    }
    const bool full = (o->max_models > 0 && n_loaded >= o->max_models) ||
                      (o->max_model_bytes > 0 && n_bytes > o->max_model_bytes) ||
                      wanted->needs_room;
    return full ? best : NULL;
}

/* A model that nobody uses and that was asked to leave; NULL: none. */
static entry *next_asked(registry *r) {
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->entries[i];
        if (e->state == MODEL_LOADED && e->references == 0 && e->to_unload) return e;
    }
    return NULL;
}

/* The least recently used model that nobody uses, when the loaded ones are larger than they may be:
 * the size of a model is known after it was loaded once. NULL: none. */
static entry *next_above(registry *r) {
    const uint64_t most = r->options->max_model_bytes;
    entry *best = NULL;
    uint64_t n_bytes = 0;
    int n_loaded = 0;
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->entries[i];
        if (e->state != MODEL_LOADED) continue;
        n_bytes += e->bytes;
        n_loaded++;
        if (e->references == 0 && (!best || e->used < best->used)) best = e;
    }
    return most > 0 && n_bytes > most && n_loaded > 1 ? best : NULL;
}

/* Returns an unused model whose idle time is over. *next: when the next idle time ends,
 * clock_seconds; 0: never. */
static entry *next_expired(registry *r, double *next) {
    const double now = clock_seconds();
    *next = 0;
    for (int i = 0; i < r->n; i++) {
        entry *e = &r->entries[i];
        if (e->state != MODEL_LOADED || e->references > 0) continue;
        if (e->keep < 0) continue;
        const double end = e->used + e->keep;
        if (now >= end) return e;
        if (*next == 0 || end < *next) *next = end;
    }
    return NULL;
}

/* ---- the registry's thread ------------------------------------------------------------------- */

static void unload(registry *r, entry *e) {
    const bool sleeps = !leaves(e);
    served_model *m = e->served;
    e->served = NULL;
    e->closing = true;
    os_mutex_unlock(&r->lock);
    served_destroy(m);
    if (e->source->close) e->source->close(e->opened);
    log_line(LOG_LEVEL_INFO, "model %s unloaded", e->source->name);
    os_mutex_lock(&r->lock);
    e->opened = NULL;
    e->state = sleeps ? MODEL_SLEEPING : MODEL_UNLOADED;
    e->to_unload = e->evicted = e->closing = false;
    e->keep = e->source->idle_seconds;
    if (e->first || e->to_load) want(r, e);
}

/* Whether the scales that were asked for are not those of the opened model. */
static bool is_rescaled(const entry *e) {
    const size_t n = (size_t)e->source->n_adapters;
    return n > 0 && memcmp(e->scales, e->applied, n * sizeof *e->scales) != 0;
}

static pi_status open_model(registry *r, entry *e, served_model **out, pi_error *err) {
    served_options options = {.model = NULL};
    const model_opening how = {.scales = e->applied, .stopped = &r->stopping};
    const account_shares shares = {.weights = r->weights, .n = r->options->n_api_keys + 1};
    pi_status status = e->source->open(e->source->user, &how, &options, &e->opened, err);
    if (status != PI_OK) return status;
    status = served_create(&options, &shares, out, err);
    if (status == PI_OK) {
        (*out)->index = (int)(e - r->entries);
        return PI_OK;
    }
    if (e->source->close) e->source->close(e->opened);
    e->opened = NULL;
    return status;
}

static void load(registry *r, entry *e) {
    served_model *m = NULL;
    pi_error err = {.status = PI_OK};
    const double start = clock_seconds();
    e->state = MODEL_LOADING;
    e->needs_room = false;
    if (e->scales) memcpy(e->applied, e->scales, (size_t)e->source->n_adapters * sizeof *e->scales);
    os_mutex_unlock(&r->lock);
    const pi_status status = open_model(r, e, &m, &err);
    os_mutex_lock(&r->lock);
    e->used = clock_seconds();
    e->state = m ? MODEL_LOADED : MODEL_UNLOADED;
    if (m) {
        e->served = m;
        e->load_seconds = e->used - start;
        e->error.status = PI_OK;
        e->bytes = m->info.weight_bytes + scheduler_cache_bytes(m->scheduler);
        e->order = 0;
        e->to_unload = e->to_load = is_rescaled(e);
        e->starting = false;
        log_line(LOG_LEVEL_INFO, "model %s loaded in %.1f s", e->source->name, e->load_seconds);
        grant(r, e);
        os_condition_broadcast(&r->changed);
        return;
    }
    if (status == PI_ERR_NOMEM || status == PI_ERR_LIMIT) {
        e->needs_room = true;
        if (next_victim(r, e)) return;
        e->needs_room = false;
    }
    e->error = err;
    if (r->options->routes) /* else the caller of registry_start has the error */
        log_line(LOG_LEVEL_WARN, "model %s cannot be loaded: %s", e->source->name, err.message);
    refuse(r, e, &err);
}

static void run(void *arg) {
    registry *r = arg;
    os_mutex_lock(&r->lock);
    while (!r->stopping) {
        double next = 0;
        entry *asked = next_asked(r);
        if (asked) {
            unload(r, asked);
            continue;
        }
        entry *wanted = next_wanted(r);
        entry *victim = wanted ? next_victim(r, wanted) : next_above(r);
        const bool evicts = victim != NULL;
        if (!wanted && !victim) victim = next_expired(r, &next);
        for (int i = 0; i < r->n; i++) r->entries[i].evicted = false;
        if (victim) victim->evicted = evicts;
        for (int i = 0; i < r->n; i++) grant(r, &r->entries[i]); /* those that stay after all */
        if (victim && victim->references == 0) {
            unload(r, victim);
            if (wanted) wanted->needs_room = false; /* for the next attempt */
            continue;
        }
        if (wanted && !victim) {
            load(r, wanted);
            continue;
        }
        if (next > 0)
            os_condition_wait_until(&r->wake, &r->lock, next);
        else
            os_condition_wait(&r->wake, &r->lock);
    }
    pi_error why;
    error_set(&why, PI_ERR_CANCELLED, "the server is shutting down");
    for (int i = 0; i < r->n; i++) refuse(r, &r->entries[i], &why);
    os_mutex_unlock(&r->lock);
}

/* ---- functions for other threads ------------------------------------------------------------- */

acquire_result registry_acquire(registry *r, int index, os_socket fd, double deadline,
                                served_model **out, pi_error *err) {
    entry *e = &r->entries[index];
    waiter w = {.served = NULL};
    acquire_result result = ACQUIRE_OK;
    *out = NULL;
    os_mutex_lock(&r->lock);
    if (r->stopping) {
        result = ACQUIRE_STOPPED;
    } else if (e->n_waiting >= MAX_WAITING) {
        result = ACQUIRE_FULL;
    } else if (e->state == MODEL_LOADED && !leaves(e)) {
        e->used = clock_seconds();
        e->references++;
        *out = e->served;
    } else {
        if (e->last)
            e->last->next = &w;
        else
            e->first = &w;
        e->last = &w;
        e->n_waiting++;
        want(r, e);
        while (!w.done && result == ACQUIRE_OK) {
            bool closed = false;
            os_condition_wait_until(&r->changed, &r->lock, clock_seconds() + WATCH_SECONDS);
            if (w.done) break;
            if (fd != OS_SOCKET_NONE) os_sockets_find_closed(&fd, 1, &closed);
            if (closed) result = ACQUIRE_GONE;
            if (r->stopping) result = ACQUIRE_STOPPED;
            if (clock_seconds() > deadline) result = ACQUIRE_TIMEOUT;
        }
        if (!w.done) give_up(e, &w);
        *out = w.served;
        if (w.done && !w.served)
            result = w.error.status == PI_ERR_CANCELLED ? ACQUIRE_STOPPED : ACQUIRE_FAILED;
        if (w.done && !w.served && err) *err = w.error;
        os_condition_signal(&r->wake); /* a model may be wanted no longer */
    }
    os_mutex_unlock(&r->lock);
    return result;
}

served_model *registry_peek(registry *r, int index) {
    entry *e = &r->entries[index];
    os_mutex_lock(&r->lock);
    served_model *m = e->state == MODEL_LOADED && !r->stopping ? e->served : NULL;
    if (m) e->references++;
    os_mutex_unlock(&r->lock);
    return m;
}

void registry_retain(registry *r, served_model *m) {
    os_mutex_lock(&r->lock);
    r->entries[m->index].references++;
    os_mutex_unlock(&r->lock);
}

void registry_release(registry *r, served_model *m) {
    if (!m) return;
    os_mutex_lock(&r->lock);
    if (--r->entries[m->index].references == 0) os_condition_signal(&r->wake);
    os_mutex_unlock(&r->lock);
}

void registry_touch(registry *r, int index) {
    os_mutex_lock(&r->lock);
    r->entries[index].used = clock_seconds();
    os_mutex_unlock(&r->lock);
}

void registry_keep(registry *r, int index, double seconds) {
    os_mutex_lock(&r->lock);
    r->entries[index].keep = seconds;
    os_condition_signal(&r->wake);
    os_mutex_unlock(&r->lock);
}

bool registry_load(registry *r, int index) {
    entry *e = &r->entries[index];
    os_mutex_lock(&r->lock);
    const bool asked = e->state == MODEL_UNLOADED || e->state == MODEL_SLEEPING || leaves(e);
    if (asked) {
        e->to_load = true;
        want(r, e);
    }
    os_mutex_unlock(&r->lock);
    return asked;
}

bool registry_unload(registry *r, int index) {
    entry *e = &r->entries[index];
    os_mutex_lock(&r->lock);
    const bool asked = e->state == MODEL_LOADED && !e->to_unload;
    if (asked) {
        e->to_unload = true;
        os_condition_signal(&r->wake);
    }
    os_mutex_unlock(&r->lock);
    return asked;
}

void registry_get_scales(registry *r, int index, float *scales) {
    const entry *e = &r->entries[index];
    os_mutex_lock(&r->lock);
    memcpy(scales, e->scales, (size_t)e->source->n_adapters * sizeof *scales);
    os_mutex_unlock(&r->lock);
}

bool registry_has_scales(registry *r, int index, const float *scales) {
    const entry *e = &r->entries[index];
    bool same = true;
    os_mutex_lock(&r->lock);
    for (int i = 0; i < e->source->n_adapters; i++) same = same && scales[i] == e->applied[i];
    os_mutex_unlock(&r->lock);
    return same;
}

bool registry_set_scales(registry *r, int index, const float *scales) {
    entry *e = &r->entries[index];
    os_mutex_lock(&r->lock);
    memcpy(e->scales, scales, (size_t)e->source->n_adapters * sizeof *scales);
    const bool again = e->state == MODEL_LOADED && !e->closing && is_rescaled(e);
    const bool loads = e->state == MODEL_LOADING && is_rescaled(e);
    if (again) {
        e->to_unload = e->to_load = true;
        os_condition_signal(&r->wake);
    }
    os_mutex_unlock(&r->lock);
    return again || loads;
}

void registry_view(registry *r, int index, model_view *out) {
    const entry *e = &r->entries[index];
    os_mutex_lock(&r->lock);
    *out = (model_view){.state = e->state,
                        .leaves = e->state == MODEL_LOADED && leaves(e),
                        .error = e->error,
                        .load_seconds = e->load_seconds,
                        .idle_left = -1,
                        .bytes = e->bytes,
                        .n_users = e->references,
                        .n_waiting = e->n_waiting};
    if (e->state == MODEL_LOADED && e->keep >= 0) {
        const double left = e->references > 0 ? e->keep : e->used + e->keep - clock_seconds();
        out->idle_left = left > 0 ? left : 0;
    }
    os_mutex_unlock(&r->lock);
}

int registry_starting(registry *r) {
    int found = -1;
    os_mutex_lock(&r->lock);
    for (int i = 0; i < r->n && found < 0; i++)
        if (r->entries[i].starting) found = i;
    os_mutex_unlock(&r->lock);
    return found;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

static pi_status open_given(void *user, const model_opening *how, served_options *out,
                            void **opened, pi_error *err) {
    const server_options *o = user;
    (void)how;
    (void)err;
    *out = o->served;
    *opened = NULL;
    return PI_OK;
}

pi_status registry_create(const server_options *options, registry **out, pi_error *err) {
    *out = NULL;
    registry *r = mem_calloc(1, sizeof *r);
    if (!r) return error_nomem(err, sizeof *r, "models");
    r->options = options;
    r->only = (server_model){.name = options->served.model_name,
                             .path = options->served.model_path,
                             .idle_seconds = -1,
                             .at_start = true,
                             .is_default = true,
                             .open = open_given,
                             .user = (void *)(uintptr_t)options};
    r->n = options->models ? options->n_models : 1;
    os_mutex_init(&r->lock);
    os_condition_init(&r->wake);
    os_condition_init(&r->changed);
    const size_t n_accounts = (size_t)options->n_api_keys + 1;
    r->entries = mem_calloc((size_t)r->n + 1, sizeof *r->entries);
    r->weights = mem_calloc(n_accounts, sizeof *r->weights);
    if (!r->entries || !r->weights) {
        registry_destroy(r);
        return error_nomem(err, n_accounts * sizeof *r->weights, "models");
    }
    for (size_t i = 0; i < n_accounts; i++) {
        const double share = i > 0 && options->limits ? options->limits[i - 1].share : 0;
        r->weights[i] = share > 0 ? share : 1;
    }
    for (int i = 0; i < r->n; i++) {
        const server_model *m = options->models ? &options->models[i] : &r->only;
        r->entries[i] = (entry){.source = m, .keep = m->idle_seconds, .starting = m->at_start};
        r->entries[i].to_load = m->at_start;
        r->entries[i].bytes = m->bytes;
        if (m->at_start) r->entries[i].order = ++r->order;
        const size_t n = (size_t)m->n_adapters;
        if (n == 0) continue;
        r->entries[i].scales = mem_calloc(n, sizeof(float));
        r->entries[i].applied = mem_calloc(n, sizeof(float));
        if (!r->entries[i].scales || !r->entries[i].applied) {
            registry_destroy(r);
            return error_nomem(err, n * sizeof(float), "adapters");
        }
        for (size_t k = 0; k < n; k++) r->entries[i].scales[k] = m->adapters[k].scale;
    }
    *out = r;
    return PI_OK;
}

pi_status registry_start(registry *r, pi_error *err) {
    if (os_thread_start(&r->thread, run, r) != 0)
        return error_set(err, PI_ERR_NOMEM, "no thread to load models");
    r->has_thread = true;
    if (r->options->routes) return PI_OK;
    served_model *m = NULL;
    acquire_result result = registry_acquire(r, 0, -1, HUGE_VAL, &m, err);
    registry_release(r, m);
    return result == ACQUIRE_OK ? PI_OK : err ? err->status : PI_ERR_CANCELLED;
}

void registry_stop(registry *r) {
    os_mutex_lock(&r->lock);
    r->stopping = true;
    os_condition_signal(&r->wake);
    os_condition_broadcast(&r->changed);
    for (int i = 0; i < r->n; i++) {
        served_model *m = r->entries[i].served; /* the thread unloads no model any more */
        os_mutex_unlock(&r->lock);
        if (m) served_stop(m);
        os_mutex_lock(&r->lock);
    }
    os_mutex_unlock(&r->lock);
    if (r->has_thread) os_thread_join(&r->thread); /* may have loaded one more */
    r->has_thread = false;
}

void registry_destroy(registry *r) {
    if (!r) return;
    for (int i = 0; r->entries && i < r->n; i++) {
        entry *e = &r->entries[i];
        served_destroy(e->served);
        if (e->served && e->source->close) e->source->close(e->opened);
        mem_free(e->scales);
        mem_free(e->applied);
    }
    os_condition_destroy(&r->wake);
    os_condition_destroy(&r->changed);
    os_mutex_destroy(&r->lock);
    mem_free(r->entries);
    mem_free(r->weights);
    mem_free(r);
}
