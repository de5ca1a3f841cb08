/* golden_case.c: see golden_case.h. */
#include "golden_case.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "run_model.h"
#include "shared_data.h"

/* Visits the models in `folder` that are not in the folder `besides` (NULL: none). */
static int visit_folder(const char *folder, const char *besides, const char *ending,
                        golden_visit *visit) {
    DIR *dir = opendir(folder);
    if (!dir) return 0; /* no model of this part is committed */
    int n_files = 0;
    size_t n_ending = strlen(ending);
    for (struct dirent *e; (e = readdir(dir));) {
        char name[GOLDEN_NAME_BYTES], twin[GOLDEN_PATH_BYTES];
        size_t n = strlen(e->d_name);
        if (n <= n_ending || strcmp(e->d_name + n - n_ending, ending) != 0) continue;
        snprintf(twin, sizeof twin, "%s/%s", besides ? besides : "", e->d_name);
        if (besides && access(twin, R_OK) == 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - n_ending), e->d_name);
        n_files += visit(folder, name);
    }
    closedir(dir);
    printf("%s: %d models checked\n", folder, n_files);
    return n_files;
}

void golden_each(const char *part, const char *ending, int n_own, int n_shared,
                 golden_visit *visit) {
    char own[GOLDEN_PATH_BYTES / 2], below[GOLDEN_NAME_BYTES], shared[GOLDEN_PATH_BYTES / 2];
    snprintf(own, sizeof own, TEST_SOURCE_DIR "/tests/golden/reference/%s", part);
    int n = visit_folder(own, NULL, ending, visit);
    assert_true(n >= n_own);
    snprintf(below, sizeof below, "conformance/%s", part);
    if (!shared_path(shared, sizeof shared, below)) return;
    assert_true(n + visit_folder(shared, own, ending, visit) >= n_shared);
}

model *golden_open(const char *folder, const char *name, const char *ending) {
    char path[GOLDEN_PATH_BYTES];
    model *m = NULL;
    pi_error err;
    snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
    pi_status status = model_open(path, NULL, &m, &err);
    if (status == PI_ERR_UNSUPPORTED && strstr(err.message, "unknown architecture")) {
        printf("SKIPPED, not supported yet: %s\n", err.message);
        return NULL;
    }
    if (status != PI_OK) fail_msg("%s", err.message);
    return m;
}

reference golden_read(const char *folder, const char *name, int n_vocab) {
    char tokens[GOLDEN_PATH_BYTES], logits[GOLDEN_PATH_BYTES];
    snprintf(tokens, sizeof tokens, "%s/%s.tokens.txt", folder, name);
    if (access(tokens, R_OK) != 0) snprintf(tokens, sizeof tokens, "%s/tokens.txt", folder);
    snprintf(logits, sizeof logits, "%s/%s.logits.f32", folder, name);
    return reference_read(tokens, logits, n_vocab);
}

static golden_check *check_each; /* callback of the running golden_each_model */

static bool visit_model(const char *folder, const char *name) {
    model *m = golden_open(folder, name, ".gguf");
    if (!m) return false;
    reference r = golden_read(folder, name, m->hp.n_vocab);
    bool checked = check_each(name, m, &r);
    reference_free(&r);
    model_close(m);
    return checked;
}

void golden_each_model(const char *part, int n_own, int n_shared, golden_check *check) {
    check_each = check;
    golden_each(part, ".gguf", n_own, n_shared, visit_model);
}

void golden_feed(engine_context *c, const reference *r, const int *pieces, int n_pieces,
                 float *logits) {
    size_t n_vocab = (size_t)engine_plan(c)->model->hp.n_vocab;
    pi_session *s;
    pi_error err;
    if (engine_session_create(c, r->n_ctx ? r->n_ctx : r->n_tokens, &s, &err))
        fail_msg("%s", err.message);
    for (int done = 0, i = 0; done < r->n_tokens; i++) {
        int left = r->n_tokens - done, piece = pieces[i % n_pieces],
            n = piece < left ? piece : left;
        const pi_input in = {
            .session = s, .tokens = r->tokens + done, .n_tokens = n, .logits = PI_LOGITS_ALL};
        if (engine_forward(c, &in, 1, &err)) fail_msg("%s", err.message);
        assert_int_equal(engine_logits_rows(c), n);
        memcpy(logits + (size_t)done * n_vocab, engine_logits(c, 0),
               (size_t)n * n_vocab * sizeof *logits);
        done += n;
    }
    engine_session_destroy(s);
}

double golden_nmse(engine_context *c, const reference *r, const int *pieces, int n_pieces) {
    size_t n = (size_t)r->n_tokens * (size_t)engine_plan(c)->model->hp.n_vocab;
    float *logits = malloc(n * sizeof *logits);
    golden_feed(c, r, pieces, n_pieces, logits);
    double nmse = run_nmse(logits, r->logits, (int64_t)n);
    free(logits);
    return nmse;
}
