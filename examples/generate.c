/* generate.c: continues a prompt with an installed libpowerinfer.
 *
 *     cc generate.c $(pkg-config --cflags --libs powerinfer) -o generate
 *     ./generate model.gguf "The old lighthouse keeper" 60
 *
 * Sampling is greedy, so a prompt always gives the same text. Every call that can fail returns a
 * status and fills `err` with one line; free functions accept NULL, so one place cleans up. */
#include <stdio.h>
#include <stdlib.h>

#include <powerinfer.h>

/* Called for every token with the text that is final; return false to stop. */
static bool print(void *user, int32_t token, const char *text, size_t n_bytes) {
    (void)user, (void)token;
    fwrite(text, 1, n_bytes, stdout);
    return fflush(stdout) == 0;
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
    pi_generated result;
    pi_error err;
    pi_sampler_options greedy = pi_sampler_default_options();
    greedy.temp = 0;
    pi_status status = pi_model_open(argv[1], NULL, &model, &err);
    if (status == PI_OK) status = pi_context_create(model, NULL, &context, &err);
    if (status == PI_OK) status = pi_session_create(context, 2048, &session, &err);
    if (status == PI_OK) status = pi_sampler_create(model, &greedy, &sampler, &err);

    pi_generate_options options = pi_generate_default_options();
    options.prompt = argv[2];
    options.sampler = sampler;
    options.max_tokens = argc > 3 ? (int32_t)strtol(argv[3], NULL, 10) : 100;
    options.piece = print;
    if (status == PI_OK) status = pi_generate(context, session, &options, &result, &err);
    if (status == PI_OK) putchar('\n');
    if (status != PI_OK) fprintf(stderr, "%s\n", err.message);

    pi_sampler_destroy(sampler);
    pi_session_destroy(session);
    pi_context_destroy(context);
    pi_model_close(model);
    return status == PI_OK ? 0 : 1;
}
