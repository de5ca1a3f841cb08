/* prompt_cache.c: saves the KV state of a prompt in a file and reuses it.
 *
 * The longest common prefix of file and prompt is reused, as far as the session can be rewound to
 * it (with recurrent layers: to a snapshot); the rest is evaluated again. The file is written after
 * the text has been streamed, so that the first token does not wait for the disk. A file that is no
 * saved session, or belongs to another model, is an error and stays unchanged: the name may be a
 * typing error. */
#include "prompt_cache.h"

#include "cli_text.h"
#include "common_prefix.h"
#include "mem.h"

pi_status prompt_cache_load(prompt_cache *c, const cli_options *o, pi_session *session,
                            const int32_t *prompt, int32_t n_prompt, pi_error *err) {
    *c = (prompt_cache){.options = o};
    if (!o->prompt_cache) return PI_OK;
    int32_t capacity = pi_session_capacity(session), n_stored = 0;
    int32_t *stored = mem_alloc((size_t)capacity * sizeof *stored);
    if (!stored) return error_nomem(err, (size_t)capacity * sizeof *stored, "prompt cache");
    pi_error why = {.status = PI_OK};
    pi_status status = pi_session_load(session, o->prompt_cache, stored, capacity, &n_stored, &why);
    if (status == PI_OK) {
        int32_t n = common_prefix(stored, n_stored, prompt, n_prompt);
        c->covers_prompt = n == n_prompt;
        c->n_reused = pi_session_rewind_point(session, n < n_prompt ? n : n_prompt - 1);
        status = pi_session_rewind(session, c->n_reused, err);
        cli_say(o, "prompt cache: %d of %d tokens", (int)c->n_reused, (int)n_prompt);
    } else if (status == PI_ERR_NOT_FOUND) {
        status = PI_OK;
        if (o->verbose) cli_say(o, "prompt cache: %s: new", o->prompt_cache);
    } else {
        status = error_set(err, status, "%s", why.message);
    }
    mem_free(stored);
    return status;
}

pi_status prompt_cache_save(const prompt_cache *c, const pi_session *session, const int32_t *prompt,
                            int32_t n_prompt, const int32_t *generated, pi_error *err) {
    const cli_options *o = c->options;
    if (!o->prompt_cache || o->prompt_cache_ro) return PI_OK;
    if (c->covers_prompt && !o->prompt_cache_all) return PI_OK;
    int32_t n = pi_session_length(session);
    if (!o->prompt_cache_all && n > n_prompt) n = n_prompt;
    n = pi_session_rewind_point(session, n);
    if (n <= c->n_reused) return PI_OK; /* stopped before anything new was evaluated */
    int32_t *tokens = mem_alloc((size_t)n * sizeof *tokens);
    if (!tokens) return error_nomem(err, (size_t)n * sizeof *tokens, "prompt cache");
    for (int32_t i = 0; i < n; i++) tokens[i] = i < n_prompt ? prompt[i] : generated[i - n_prompt];
    pi_status status = pi_session_save(session, o->prompt_cache, tokens, n, err);
    mem_free(tokens);
    return status;
}
