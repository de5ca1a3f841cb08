/* tune.c: finds the fastest settings of a model on this machine by trying them.
 *
 * Speeds are compared by timing: each round times every setting once, in turn, so that a change of
 * the machine's speed affects all of them; a setting's speed is the median of the rounds. */
#include "tune.h"

#include <math.h>
#include <string.h>

#include "cpu_features.h"
#include "cpu_topology.h"
#include "error.h"
#include "file.h"
#include "gguf.h"
#include "median.h"
#include "mem.h"
#include "memory_room.h"
#include "notifier.h"
#include "plan.h"
#include "pool.h"
#include "rng.h"
#include "sparse_keys.h"

enum {
    MAX_SETTINGS = 24,
    CONTEXT_DEFAULT = 256,
    LEAST = 32, /* tokens of a context */
    TEXT_MAX_BYTES = 256 << 20
};
static const double ROUND_SECONDS = 0.7;

/* Another setting must be faster by more than the noise of the speeds. */
static const double MARGIN = 1.03;

typedef struct tune {
    const pi_tune_options *o;
    const char *in_path, *out_path;
    notifier notifier;
    progress progress;
    file_scratch *converted, *prepared;
    const char *input, *ready; /* GGUF files: as it is; prepared, NULL: there is none */
    bool input_prepared, pwri; /* the input is prepared; is of the original PowerInfer */
    bool sketch, bundled;      /* the input has a predictor of the output head; has bundles */
    int threads;               /* by default */
    bool can_calibrate;        /* there are a text and a tokenizer */
    tune_text text;
    tune_setting settings[MAX_SETTINGS]; /* [n]; the first is the input as it runs by default */
    int n;
    pi_tune_result result;
} tune;

pi_tune_options pi_tune_default_options(void) {
    return (pi_tune_options){.context = pi_context_default_options(),
                             .calibration_tokens = pi_prepare_default_options().calibration_tokens};
}

/* The text is read twice. */
static pi_status check_text(const char *path, pi_error *err) {
    os_info info;
    if (!path || (os_path_info(path, &info) == 0 && info.kind == OS_REGULAR)) return PI_OK;
    return error_set(err, PI_ERR_ARG, "not a file: calibration text: %.300s: tune needs a file",
                     path);
}

/* ---- the models ------------------------------------------------------------------------------ */

static pi_status convert_input(tune *t, pi_error *err) {
    os_info info;
    t->input = t->in_path;
    if (os_path_info(t->in_path, &info) != 0 || info.kind != OS_FOLDER) return PI_OK;
    pi_convert_options options = pi_convert_default_options();
    options.n_threads = t->o->context.n_threads;
    options.progress = t->o->progress;
    options.message = t->o->message;
    options.user = t->o->user;
    pi_status status = file_scratch_create(t->out_path, &t->converted, err);
    if (status != PI_OK) return status;
    t->input = file_scratch_path(t->converted);
    return pi_convert(t->in_path, t->input, &options, err);
}

static pi_status look_at_input(tune *t, pi_error *err) {
    gguf_file *f = NULL;
    pi_status status = gguf_open(t->input, NULL, &f, err);
    if (status == PI_OK) status = gguf_refuse_output(f, t->out_path, err);
    if (status == PI_OK) {
        t->pwri = gguf_is_pwri(f);
        t->input_prepared = gguf_find(f, SPARSE_KEY_VERSION) != NULL;
        t->sketch = gguf_find(f, SPARSE_KEY_HEAD_DISTANCE) != NULL;
        t->bundled = gguf_find(f, SPARSE_KEY_BUNDLE_DOWN_TYPE) != NULL ||
                     gguf_find(f, SPARSE_KEY_BUNDLE_EXPERT_FF) != NULL;
    }
    gguf_close(f);
    return status;
}

/* Tokens of the calibration text, [*n], to be freed. */
static pi_status tokenize(const pi_model *m, const char *path, int32_t **out, size_t *n,
                          pi_error *err) {
    char *text = NULL;
    size_t n_text = 0;
    pi_status status = file_read_stream(path, TEXT_MAX_BYTES, &text, &n_text, err);
    if (status != PI_OK) return status;
    size_t room = 3 * n_text; /* what a text has at most */
    *out = mem_calloc(room + 1, sizeof **out);
    status = *out ? pi_tokenize(m, text, n_text, 0, *out, room, n, err)
                  : error_nomem(err, room * sizeof **out, "tokens of the calibration text");
    mem_free(text);
    return status;
}

/* Takes the last tokens of the text; without a text or a tokenizer, random ones. */
static pi_status take_tokens(tune *t, const pi_model *m, const pi_model_info *info, pi_error *err) {
    const char *path = t->o->calibration;
    int32_t *all = NULL, *tokens = t->text.tokens;
    size_t n_all = 0, n = (size_t)t->text.n;
    rng random;
    rng_seed(&random, 1);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_uniform(&random) * (double)info->n_vocab);
    t->can_calibrate = path && info->has_tokenizer;
    if (!t->can_calibrate) return PI_OK;
    pi_status status = tokenize(m, path, &all, &n_all, err);
    if (status == PI_OK && n_all < n)
        status = error_set(err, PI_ERR_LIMIT,
                           "the calibration text is too short: %.300s: it has %zu tokens, the "
                           "context %zu: give a longer text",
                           path, n_all, n);
    if (status == PI_OK) memcpy(tokens, all + n_all - n, n * sizeof *tokens);
    mem_free(all);
    return status;
}

static pi_status read_text(tune *t, pi_error *err) {
    pi_model *m = NULL;
    pi_model_info info;
    pi_status status = pi_model_open(t->input, NULL, &m, err);
    if (status != PI_OK) return status;
    pi_model_get_info(m, &info);
    int32_t n = t->o->n_ctx > 0 ? t->o->n_ctx : CONTEXT_DEFAULT;
    if (t->o->n_ctx == 0 && info.n_ctx_train >= LEAST && n > info.n_ctx_train) n = info.n_ctx_train;
    if (info.n_ctx_train > 0 && n > info.n_ctx_train)
        notify(&t->notifier,
               "the model was trained on contexts of %d tokens: losses in longer ones mean little",
               info.n_ctx_train);
    int32_t timed = n >= PI_TUNE_LONG ? TUNE_TIMED_LONG : n / 2 < TUNE_TIMED ? n / 2 : TUNE_TIMED;
    int32_t *tokens = mem_calloc((size_t)n, sizeof *tokens);
    t->text = (tune_text){.tokens = tokens, .n = n, .depth = n - timed};
    status = tokens ? take_tokens(t, m, &info, err)
                    : error_nomem(err, (size_t)n * sizeof *tokens, "tokens");
    pi_model_close(m);
    return status;
}

/* Prepares the input for `ready`. Without allowed loss only exact zeros count. A model larger than
 * memory gets bundles, which make reads from the drive longer. `keep`: of a prepared input only the
 * layout changes. */
static pi_status prepare_input(tune *t, bool larger, bool keep, pi_error *err) {
    pi_error why;
    pi_prepare_options options = pi_prepare_default_options();
    options.calibration = t->o->calibration;
    options.calibration_tokens = t->o->calibration_tokens;
    options.max_loss = t->o->max_loss;
    options.head = t->sketch;
    if (t->o->max_loss == 0 && !t->pwri) options.predictor = "none";
    if (larger) options.bundles = PI_BUNDLES_ALL;
    options.beside = t->out_path;
    options.rearrange = t->input_prepared && keep;
    options.n_threads = t->o->context.n_threads;
    options.progress = t->o->progress;
    options.message = t->o->message;
    options.user = t->o->user;
    pi_status status = file_scratch_create(t->out_path, &t->prepared, err);
    if (status != PI_OK) return status;
    const char *path = file_scratch_path(t->prepared);
    status = pi_prepare(t->input, path, &options, NULL, &why);
    if (status == PI_OK) {
        t->ready = path;
    } else if ((status == PI_ERR_UNSUPPORTED || status == PI_ERR_ARG) && !t->pwri) {
        notify(&t->notifier, "not prepared: %s", why.message);
        status = PI_OK;
    } else {
        *err = why;
    }
    return status;
}

/* ---- trials ---------------------------------------------------------------------------------- */

static tune_setting *add(tune *t, const char *path, pi_mode mode) {
    tune_setting *s = &t->settings[t->n++];
    *s = (tune_setting){.path = path, .mode = mode};
    s->trial = (pi_tune_trial){
        .prepared = path == t->ready, .mode = ffn_mode_name(mode), .threads = t->threads};
    return s;
}

/* Adds a setting that the caller changes in one point. */
static tune_setting *add_like(tune *t, const tune_setting *other) {
    tune_setting *s = add(t, other->path, other->mode);
    s->trial.threads = other->trial.threads;
    s->trial.head = other->trial.head;
    return s;
}

static pi_status report(tune *t, double fraction, pi_error *err) {
    if (progress_step(&t->progress, "timing", fraction)) return PI_OK;
    return error_set(err, PI_ERR_CANCELLED, "cancelled: %.300s: nothing was written", t->out_path);
}

/* Whether settings must be open one at a time: each takes the free memory for weights, or the
 * mapped files together would not stay in memory. */
static bool must_be_alone(const tune_setting *s) {
    pi_model_info info;
    pi_model_get_info(s->model, &info);
    return s->from_drive || s->on_gpu || info.weight_bytes > memory_room() / 3;
}

/* Times settings in turn. In long contexts the first round evaluates all tokens, for the loss. A
 * setting that reads from the drive, or has a long prompt and must be alone, is timed once. */
static pi_status time_open(tune *t, tune_setting *const *settings, int n, pi_error *err) {
    bool all = t->text.n >= PI_TUNE_LONG;
    pi_status status = PI_OK;
    for (int i = 0; i < n; i++) settings[i]->trial.rounds = 0;
    for (int round = 0; round < TUNE_ROUNDS; round++) {
        for (int i = 0; i < n && status == PI_OK; i++) {
            tune_setting *s = settings[i];
            if (s->unfit || s->trial.reason[0]) continue;
            if (!s->context && round > 0 && (s->from_drive || all)) continue;
            if (!s->context) status = tune_open(t->o, &t->text, s, err);
            if (status != PI_OK || !s->context) continue;
            status = tune_round(&t->text, all && round == 0 ? INFINITY : ROUND_SECONDS, s, err);
            if (must_be_alone(s)) tune_close(s);
            double done = (round * n + i + 1.0) / (n * TUNE_ROUNDS);
            if (status == PI_OK) status = report(t, done, err);
        }
    }
    return status;
}

static pi_status time_in_turn(tune *t, tune_setting *const *settings, int n, pi_error *err) {
    pi_status status = time_open(t, settings, n, err);
    for (int i = 0; i < n; i++) {
        tune_setting *s = settings[i];
        tune_close(s);
        if (s->trial.rounds > 0) s->trial.tps = median_of(s->tps, s->trial.rounds);
    }
    return status;
}

static bool may_choose(const tune *t, const tune_setting *s) {
    bool writable = s->path != t->input || !t->pwri; /* the output is not of the original's kind */
    return writable && !s->unfit && !s->trial.reason[0];
}

static tune_setting *best_of(tune *t) {
    tune_setting *best = NULL;
    for (int i = 0; i < t->n; i++) {
        tune_setting *s = &t->settings[i];
        if (may_choose(t, s) && (!best || s->trial.tps > MARGIN * best->trial.tps)) best = s;
    }
    return best;
}

/* Times the best mode with other numbers of threads. */
static pi_status try_threads(tune *t, tune_setting *best, pi_error *err) {
    tune_setting *turn[4] = {&t->settings[0]};
    int n = 1, own = best->trial.threads, all = cpu_count_available();
    if (all > POOL_MAX_THREADS) all = POOL_MAX_THREADS;
    const int others[2] = {own >= 4 ? own / 2 : 0, all > own ? all : 0};
    if (t->o->context.n_threads > 0 || others[0] + others[1] == 0) return PI_OK;
    if (best != turn[0]) turn[n++] = best;
    for (int i = 0; i < 2; i++) {
        if (others[i] == 0) continue;
        turn[n] = add_like(t, best);
        turn[n++]->trial.threads = others[i];
    }
    return time_in_turn(t, turn, n, err);
}

/* Times the predictor of the output head, if the model has one. */
static pi_status try_head(tune *t, tune_setting *best, pi_error *err) {
    tune_setting *turn[2] = {best};
    if (t->o->max_loss == 0 || !t->sketch) return PI_OK;
    turn[1] = add_like(t, best);
    turn[1]->trial.head = true;
    return time_in_turn(t, turn, 2, err);
}

/* The relative rise of perplexity from one setting to another on the same tokens, plus its standard
 * error; at least LEAST_LOSS, because what leaves out positions is never lossless. */
static double rise_of(const tune_setting *from, const tune_setting *to) {
    const double LEAST_LOSS = 1e-4;
    int n = from->n_nats < to->n_nats ? from->n_nats : to->n_nats;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double rise = (double)to->nats[i] - (double)from->nats[i];
        sum += rise;
        squares += rise * rise;
    }
    if (n < 2) return INFINITY;
    double mean = sum / n, variance = (squares - sum * mean) / (n - 1);
    double loss = exp(mean + sqrt(fmax(variance, 0) / n)) - 1;
    return loss > LEAST_LOSS ? loss : LEAST_LOSS;
}

/* Times attention to a sixteenth, an eighth and a quarter of the context, and adds the loss on the
 * timed tokens to that of the mode. */
static pi_status try_blocks(tune *t, tune_setting *best, pi_error *err) {
    enum { POSITIONS = 16, SHARES = 3 };
    tune_setting *turn[1 + SHARES] = {best};
    if (t->text.n < PI_TUNE_LONG || t->o->max_loss == 0) return PI_OK;
    for (int i = 1; i <= SHARES; i++) {
        turn[i] = add_like(t, best);
        turn[i]->trial.attn_blocks = t->text.n / POSITIONS / (32 >> i);
    }
    pi_status status = time_in_turn(t, turn, 1 + SHARES, err);
    for (int i = 1; i <= SHARES && status == PI_OK; i++) {
        tune_setting *s = turn[i];
        s->trial.loss = fmax(best->trial.loss, 0) + rise_of(best, s);
        if (s->trial.loss > t->o->max_loss)
            snprintf(s->trial.reason, sizeof s->trial.reason, "its loss is too large");
    }
    return status;
}

/* Times the input as it is, prepares it where that may pay, and times the prepared model. */
static pi_status try_modes(tune *t, pi_error *err) {
    tune_setting *turn[MAX_SETTINGS];
    int last = t->o->max_loss > 0 ? PI_MODE_THRESHOLD : PI_MODE_EXACT, n = 0;
    for (int mode = PI_MODE_AUTO; mode <= (t->input_prepared ? last : PI_MODE_EXACT); mode++)
        turn[n++] = add(t, t->input, (pi_mode)mode);
    pi_status status = time_in_turn(t, turn, n, err);
    if (status != PI_OK) return status;
    bool larger = turn[0]->from_drive && !t->bundled, zeros = !turn[PI_MODE_EXACT]->unfit;
    /* A loss is allowed, but the input was prepared for lossless modes only. */
    bool again = t->input_prepared && t->o->max_loss > 0 && t->can_calibrate &&
                 turn[PI_MODE_PREDICT]->unfit && turn[PI_MODE_THRESHOLD]->unfit;
    bool pays = larger || (t->input_prepared ? again : zeros || t->o->max_loss > 0);
    if (!t->pwri && (!pays || (!t->can_calibrate && !t->input_prepared))) {
        if (!t->input_prepared)
            notify(&t->notifier, "not prepared: %s",
                   t->can_calibrate ? "its activations are never zero, so every sparse mode loses "
                                      "accuracy: set a larger max_loss"
                                    : "no calibration text, or no tokenizer to read it");
        return PI_OK;
    }
    status = prepare_input(t, larger, !again, err);
    for (int mode = larger ? PI_MODE_DENSE : PI_MODE_EXACT; mode <= last && t->ready; mode++)
        turn[n++] = add(t, t->ready, (pi_mode)mode);
    return status == PI_OK && t->ready ? time_in_turn(t, turn, n, err) : status;
}

/* Times the default and the choice once more, side by side; not where a prompt takes long. */
static pi_status compare(tune *t, tune_setting *best, pi_error *err) {
    tune_setting *turn[2] = {&t->settings[0], best};
    if (best == turn[0] || t->text.n >= PI_TUNE_LONG) return PI_OK;
    return time_in_turn(t, turn, 2, err);
}

static pi_status run(tune *t, pi_error *err) {
    pi_status status = check_text(t->o->calibration, err);
    if (status == PI_OK) status = file_writer_probe(t->out_path, err);
    if (status == PI_OK) status = convert_input(t, err);
    if (status == PI_OK) status = look_at_input(t, err);
    if (status == PI_OK) status = read_text(t, err);
    if (status == PI_OK) status = try_modes(t, err);
    if (status == PI_OK) status = try_threads(t, best_of(t), err);
    if (status == PI_OK) status = try_head(t, best_of(t), err);
    if (status == PI_OK) status = try_blocks(t, best_of(t), err);
    if (status != PI_OK) return status;
    tune_setting *best = best_of(t);
    status = compare(t, best, err);
    if (status != PI_OK) return status;
    best->trial.chosen = true;
    t->result.before = t->settings[0].trial;
    t->result.after = best->trial;
    return tune_write(best->path, t->out_path, best, &t->result, t->text.n, &t->progress, err);
}

pi_status pi_tune(const char *in, const char *out_path, const pi_tune_options *options,
                  pi_tune_result *result, pi_error *err) {
    pi_tune_options defaults = pi_tune_default_options();
    const pi_tune_options *o = options ? options : &defaults;
    tune t = {.o = o,
              .in_path = in,
              .out_path = out_path,
              .notifier = {o->message, o->user},
              .progress = {.fn = o->progress, .user = o->user}};
    if (!(o->max_loss >= 0))
        return error_set(err, PI_ERR_ARG, "bad loss: %g: choose 0 or more", o->max_loss);
    if (o->n_ctx < 0 || (o->n_ctx > 0 && o->n_ctx < LEAST))
        return error_set(err, PI_ERR_ARG, "context too small: tune: %d tokens: use %d or more",
                         o->n_ctx, LEAST);
    t.threads = o->context.n_threads > 0 ? o->context.n_threads : cpu_count_physical();
    snprintf(t.result.cpu, sizeof t.result.cpu, "%s", cpu_model_name());
    pi_status status = run(&t, err);
    for (int i = 0; i < t.n && status == PI_OK && o->trial; i++)
        if (!t.settings[i].unfit) o->trial(o->user, &t.settings[i].trial);
    if (status == PI_OK && result) *result = t.result;
    mem_free(t.text.tokens);
    file_scratch_remove(t.prepared);
    file_scratch_remove(t.converted);
    return status;
}
