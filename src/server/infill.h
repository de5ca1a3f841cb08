/* infill.h: prompts that ask for the text between a prefix and a suffix, by the fill-in-the-middle
 * (FIM) tokens of the model:
 *
 *     BOS, other files, FIM_PRE, prefix, FIM_SUF, suffix, FIM_MID
 *
 * as in llama.cpp's server, which has BOS after the files. Text that does not fit into the context
 * is dropped far from the gap: the beginning of the prefix, the end of the suffix. Files get at
 * most half of the room. */
#ifndef SERVER_INFILL_H
#define SERVER_INFILL_H

#include "prompt.h"

typedef struct infill {
    const char *prefix, *suffix; /* [n_prefix], [n_suffix] */
    size_t n_prefix, n_suffix;
    const json_node *extra; /* [{"text", "filename"}] of other files; NULL: none */
    int32_t max_tokens;     /* of the answer, for which the context keeps room; -1: no limit */
} infill;

/* Free *tokens with mem_free. PI_ERR_UNSUPPORTED: the model has no FIM tokens; PI_ERR_ARG: extra is
 * not as described; PI_ERR_NOMEM. */
pi_status infill_tokens(const prompt_maker *p, const infill *f, int32_t **tokens, size_t *n_tokens,
                        pi_error *err);

#endif
