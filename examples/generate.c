/* generate.c: continues a prompt, using an installed libpowerinfer.
 *
 *     cc generate.c $(pkg-config --cflags --libs powerinfer) -o generate
 *     ./generate model.gguf "The old lighthouse keeper" 60
 *
 * Sampling is greedy, so a prompt always gives the same text. Every call that can fail returns a
 * status and fills `err` with one line; free functions accept NULL, so one place cleans up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <powerinfer.h>

enum { MAX_TOKENS = 2048, PIECE_BYTES = 256 };

static pi_status generate(const pi_model *model, pi_context *context, pi_session *session,
                          pi_sampler *sampler, const char *prompt, int n, pi_error *err) {
    int32_t tokens[MAX_TOKENS], next;
    size_t n_tokens, n_bytes;
    char piece[PIECE_BYTES];
    pi_status status = pi_tokenize(model, prompt, strlen(prompt), PI_TOKENIZE_BOS, tokens,
                                   MAX_TOKENS, &n_tokens, err);
    pi_input input = {.session = session, .tokens = tokens, .logits = PI_LOGITS_LAST};
    input.n_tokens = status == PI_OK ? (int32_t)n_tokens : 0;
    for (int i = 0; i < n && status == PI_OK; i++) {
        status = pi_forward(context, &input, 1, err);
        if (status != PI_OK) break;
        next = pi_sampler_sample(sampler, pi_logits(context, 0));
        if (pi_token_is_end(model, next)) break;
        status = pi_token_text(model, next, false, piece, sizeof piece, &n_bytes, err);
        if (status == PI_OK) fwrite(piece, 1, n_bytes, stdout);
        fflush(stdout);
        input.tokens = &next; /* the session has all earlier tokens */
        input.n_tokens = 1;
    }
    putchar('\n');
    return status;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT [TOKENS]\n", argv[0]);
        return 2;
    }
    pi_model *model = NULL;
    pi_context *context = NULL;
    pi_session *session = NULL;
    pi_sampler *sampler = NULL;
    pi_error err;
    pi_sampler_options greedy = pi_sampler_default_options();
    greedy.temp = 0;
    int n = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 100;
    pi_status status = pi_model_open(argv[1], NULL, &model, &err);
    if (status == PI_OK) status = pi_context_create(model, NULL, &context, &err);
    if (status == PI_OK) status = pi_session_create(context, MAX_TOKENS, &session, &err);
    if (status == PI_OK) status = pi_sampler_create(model, &greedy, &sampler, &err);
    if (status == PI_OK) status = generate(model, context, session, sampler, argv[2], n, &err);
    if (status != PI_OK) fprintf(stderr, "%s\n", err.message);
    pi_sampler_destroy(sampler);
    pi_session_destroy(session);
    pi_context_destroy(context);
    pi_model_close(model);
    return status == PI_OK ? 0 : 1;
}
