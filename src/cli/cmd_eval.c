/* cmd_eval.c: evaluates given token ids and writes the logits of every position to a file, for
 * conformance tests: no BOS is added, nothing is sampled, the floats are the engine's. */
#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "cli_text.h"
#include "clock.h"
#include "file.h"
#include "mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "logits are written as they are in memory, and the format is little-endian");

typedef struct job {
    const cli_options *options;
    char *text; /* contents of the file of token ids */
    int32_t *tokens;
    size_t n_tokens;
    pi_model *model;
    pi_model_info info;
    pi_context *context;
    pi_session *session;
    file_writer *writer;
} job;

static pi_status read_tokens(job *j, pi_error *err) {
    size_t n_text;
    const char *path = j->options->tokens;
    pi_status status = file_read_stream(path, CLI_TEXT_MAX, &j->text, &n_text, err);
    if (status != PI_OK) return status;
    const char *where = strcmp(path, "-") == 0 ? "standard input" : path;
    return text_parse_ids(j->text, n_text, where, j->info.n_vocab, &j->tokens, &j->n_tokens, err);
}

static pi_status set_up(job *j, pi_error *err) {
    const cli_options *o = j->options;
    pi_status status = cli_model_open(o, false, &j->model, err);
    if (status != PI_OK) return status;
    pi_model_get_info(j->model, &j->info);
    status = read_tokens(j, err);
    if (status != PI_OK) return status;
    int64_t n_ctx = o->ctx_size;
    if (n_ctx < 0) n_ctx = (int64_t)j->n_tokens;
    if (n_ctx == 0) n_ctx = j->info.n_ctx_train > 0 ? j->info.n_ctx_train : CLI_CONTEXT_DEFAULT;
    if ((int64_t)j->n_tokens > n_ctx) {
        return error_set(err, PI_ERR_LIMIT,
                         "%zu tokens do not fit into a context of %" PRId64
                         ": give a larger one with -c, or fewer tokens",
                         j->n_tokens, n_ctx);
    }
    pi_context_options options = cli_context_options(o, (int32_t)j->n_tokens);
    options.max_batch = 0; /* a call's tokens have a row of logits each */
    if ((size_t)options.n_batch > j->n_tokens) options.n_batch = (int32_t)j->n_tokens;
    options.n_logits = options.n_batch;
    if (options.head == PI_HEAD_AUTO) options.head = PI_HEAD_DENSE; /* all logits are printed */
    status = pi_context_create(j->model, &options, &j->context, err);
    if (status != PI_OK) return status;
    /* The context holds only these tokens, but some models choose RoPE factors by the context
     * length. */
    int64_t size = o->ctx_size > 0 ? n_ctx : (int64_t)j->n_tokens;
    return pi_session_create(j->context, (int32_t)size, &j->session, err);
}

static pi_status write_logits(job *j, pi_error *err) {
    int32_t n_batch = (int32_t)j->options->batch_size;
    size_t row_bytes = (size_t)j->info.n_vocab * sizeof(float);
    for (size_t done = 0; done < j->n_tokens;) {
        size_t left = j->n_tokens - done;
        pi_input input = {.session = j->session,
                          .tokens = j->tokens + done,
                          .n_tokens = left < (size_t)n_batch ? (int32_t)left : n_batch,
                          .logits = PI_LOGITS_ALL};
        pi_status status = pi_forward(j->context, &input, 1, err);
        for (int32_t row = 0; row < input.n_tokens && status == PI_OK; row++) {
            status = file_writer_write(j->writer, pi_logits(j->context, row), row_bytes, err);
        }
        if (status != PI_OK) return status;
        done += (size_t)input.n_tokens;
    }
    return PI_OK;
}

static pi_status evaluate(job *j, pi_error *err) {
    const char *out = j->options->logits_out;
    if (strcmp(out, "-") == 0) out = "/dev/stdout";
    pi_status status = file_writer_probe(out, err);
    if (status == PI_OK) status = set_up(j, err);
    if (status != PI_OK) return status;
    status = file_writer_open(out, &j->writer, err);
    if (status != PI_OK) return status;
    double start = clock_seconds();
    status = write_logits(j, err);
    if (status != PI_OK) {
        file_writer_abort(j->writer);
        return status;
    }
    status = file_writer_commit(j->writer, err);
    double seconds = clock_seconds() - start;
    if (status == PI_OK) {
        cli_say(j->options, "%zu token%s, %.1f tokens/s, mode %s, %s kernels, %d thread%s",
                j->n_tokens, j->n_tokens == 1 ? "" : "s",
                seconds > 0 ? (double)j->n_tokens / seconds : 0, pi_context_mode(j->context),
                pi_context_kernels(j->context), (int)pi_context_threads(j->context),
                pi_context_threads(j->context) == 1 ? "" : "s");
    }
    return status;
}

int cmd_eval(const cli_options *o) {
    if (!o->tokens) return cli_wrong("no token ids: eval: name a file with --tokens");
    if (!o->logits_out) return cli_wrong("no output: eval: name a file with --logits-out");
    pi_error err = {.status = PI_OK};
    job j = {.options = o};
    int result = EXIT_DONE;
    if (evaluate(&j, &err) != PI_OK) result = cli_failed(&err);
    pi_session_destroy(j.session);
    pi_context_destroy(j.context);
    pi_model_close(j.model);
    mem_free(j.tokens);
    mem_free(j.text);
    return result;
}
