/* prepare_files.c: see prepare_files.h. */
#include "prepare_files.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_impl.h"
#include "mem.h"
#include "rng.h"
#include "run_model.h"

enum { RUN_TOKENS = 48 };

static void check(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

void files_write(const char *path, const void *data, size_t n_bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

void files_write_text(const char *path, size_t n_bytes) {
    char *text = mem_alloc(n_bytes);
    rng r;
    assert_non_null(text);
    rng_seed(&r, 5);
    for (size_t i = 0; i < n_bytes; i++)
        text[i] = rng_uniform(&r) < 0.2 ? ' ' : (char)('a' + rng_u64(&r) % 26);
    files_write(path, text, n_bytes);
    mem_free(text);
}

tiny_model files_tiny(const char *type) {
    tiny_model t = tiny_default();
    t.type = type;
    t.activation = "relu";
    t.vocabulary = true;
    t.n_vocab = 300;
    t.n_embd = 64;
    t.head_dim = t.n_rot = 16;
    t.n_ff[0] = 128;
    t.n_ff[1] = 96;
    return t;
}

static void keep_layer(void *user, int32_t index, const pi_prepare_layer *layer) {
    prepare_notes *notifier = user;
    assert_int_equal(index, notifier->n_layers);
    assert_in_range(index, 0, FILES_LAYERS - 1);
    notifier->layers[notifier->n_layers++] = *layer;
}

static void keep_message(void *user, const char *line) {
    prepare_notes *notifier = user;
    assert_null(strchr(line, '\n'));
    if (notifier->n_messages < FILES_MESSAGES)
        snprintf(notifier->messages[notifier->n_messages++], sizeof notifier->messages[0], "%s",
                 line);
}

static bool count_progress(void *user, const char *stage, double fraction) {
    prepare_notes *notifier = user;
    assert_true(strlen(stage) > 0 && fraction >= 0 && fraction <= 1);
    return ++notifier->calls != notifier->stop_at;
}

pi_prepare_options files_options(const char *text, prepare_notes *notifier) {
    pi_prepare_options o = pi_prepare_default_options();
    *notifier = (prepare_notes){0};
    o.calibration = text;
    o.calibration_tokens = 1024;
    o.calibration_window = 64;
    o.n_threads = 2;
    o.layer = keep_layer;
    o.message = keep_message;
    o.progress = count_progress;
    o.user = notifier;
    return o;
}

bool files_said(const prepare_notes *notifier, const char *part) {
    for (int i = 0; i < notifier->n_messages; i++)
        if (strstr(notifier->messages[i], part)) return true;
    return false;
}

pi_prepare_result files_prepare(const char *in, const char *out, const pi_prepare_options *o) {
    pi_error err = {0};
    pi_prepare_result result = {0};
    if (o->layer == keep_layer) *(prepare_notes *)o->user = (prepare_notes){0};
    check(pi_prepare(in, out, o, &result, &err), &err);
    return result;
}

void files_undo(const char *in, const char *out) {
    pi_error err = {0};
    check(pi_prepare_undo(in, out, NULL, &err), &err);
}

gguf_file *files_open(const char *path) {
    gguf_file *f = NULL;
    pi_error err = {0};
    check(gguf_open(path, NULL, &f, &err), &err);
    return f;
}

void files_copy_tensors(gguf_file *f, gguf_writer *w) {
    pi_error err;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        assert_int_equal(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        assert_int_equal(gguf_write_data(w, t->data, t->n_bytes, &err), PI_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    gguf_close(f);
}

const gguf_tensor *files_find(const gguf_file *f, const char *name) {
    const gguf_tensor *t = gguf_find_tensor(f, name);
    if (!t) fail_msg("no tensor %s", name);
    return t;
}

/* Values are equal if all their properties are: strings and numbers are compared through their
 * getters. */
static bool same_value(const gguf_value *a, const gguf_value *b) {
    gguf_string s, t;
    double x, y;
    if (a->key.n_bytes != b->key.n_bytes || memcmp(a->key.data, b->key.data, a->key.n_bytes) != 0)
        return false;
    if (a->type != b->type || a->item_type != b->item_type || a->count != b->count) return false;
    if (gguf_as_string(a, &s))
        return gguf_as_string(b, &t) && s.n_bytes == t.n_bytes &&
               memcmp(s.data, t.data, s.n_bytes) == 0;
    if (gguf_as_f64(a, &x)) return gguf_as_f64(b, &y) && x == y;
    if (a->type == GGUF_ARRAY && a->item_type == GGUF_STRING) {
        const uint8_t *p = a->data, *q = b->data;
        for (uint64_t i = 0; i < a->count; i++) {
            s = gguf_next_string(&p);
            t = gguf_next_string(&q);
            if (s.n_bytes != t.n_bytes || memcmp(s.data, t.data, s.n_bytes) != 0) return false;
        }
        return true;
    }
    for (uint64_t i = 0; a->type == GGUF_ARRAY && i < a->count; i++)
        if (!gguf_item_f64(a, i, &x) || !gguf_item_f64(b, i, &y) || x != y) return false;
    return true;
}

void files_same(const char *a, const char *b) {
    gguf_file *f = files_open(a), *g = files_open(b);
    assert_int_equal(gguf_n_values(f), gguf_n_values(g));
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        if (!same_value(v, gguf_value_at(g, i)))
            fail_msg("key %.*s differs", (int)v->key.n_bytes, v->key.data);
    }
    assert_int_equal(gguf_n_tensors(f), gguf_n_tensors(g));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i), *u = gguf_tensor_at(g, i);
        assert_string_equal(t->name, u->name);
        assert_int_equal(t->type, u->type);
        assert_memory_equal(t->dims, u->dims, sizeof t->dims);
        if (memcmp(t->data, u->data, t->n_bytes) != 0) fail_msg("tensor %s differs", t->name);
    }
    gguf_close(f);
    gguf_close(g);
}

void files_same_content(const char *a, const char *b) {
    gguf_file *f = files_open(a), *g = files_open(b);
    assert_int_equal(gguf_n_values(f), gguf_n_values(g));
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)v->key.n_bytes, v->key.data);
        const gguf_value *u = gguf_find(g, key);
        if (!u || u->type != v->type || u->count != v->count ||
            gguf_value_bytes(u) != gguf_value_bytes(v) ||
            memcmp(u->data, v->data, gguf_value_bytes(v)) != 0)
            fail_msg("key %s differs", key);
    }
    assert_int_equal(gguf_n_tensors(f), gguf_n_tensors(g));
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i), *u = files_find(g, t->name);
        assert_int_equal(t->type, u->type);
        assert_memory_equal(t->dims, u->dims, sizeof t->dims);
        if (memcmp(t->data, u->data, t->n_bytes) != 0) fail_msg("tensor %s differs", t->name);
    }
    gguf_close(f);
    gguf_close(g);
}

int files_count(const char *part) {
    DIR *dir = opendir(TEST_BINARY_DIR);
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) n += strstr(e->d_name, part) != NULL;
    closedir(dir);
    return n;
}

static float *run(const char *path, pi_mode mode, int piece, size_t *n) {
    int32_t tokens[RUN_TOKENS];
    pi_context_options o = run_exact_options();
    o.mode = mode;
    run_model r = run_open(path, &o);
    *n = (size_t)RUN_TOKENS * (size_t)r.n_vocab;
    float *logits = mem_calloc(*n, sizeof *logits);
    assert_non_null(logits);
    run_random_tokens(3, r.n_vocab, tokens, RUN_TOKENS);
    run_tokens(&r, tokens, RUN_TOKENS, piece, logits);
    run_close(&r);
    return logits;
}

double files_distance_of(const char *path, pi_mode mode, int piece, const char *base,
                         pi_mode base_mode) {
    size_t n, m;
    float *a = run(path, mode, piece, &n), *b = run(base, base_mode, 0, &m);
    assert_int_equal(n, m);
    double distance = run_nmse(a, b, (int64_t)n);
    mem_free(a);
    mem_free(b);
    return distance;
}

double files_distance(const char *path, pi_mode mode, int piece, const char *base) {
    return files_distance_of(path, mode, piece, base, PI_MODE_DENSE);
}
