/* drafting.h: speculative decoding from the command line, for every command that generates. */
#ifndef CLI_DRAFTING_H
#define CLI_DRAFTING_H

#include "cli.h"
#include "powerinfer_speculate.h"

typedef struct drafting {
    pi_model *model; /* the draft model or head; NULL: none */
    pi_context *context;
    /* Heads of a chain, without the first. */
    pi_model *chain_models[PI_DRAFT_HEADS - 1];
    pi_context *chain[PI_DRAFT_HEADS - 1];
    int32_t n_chain;           /* heads in each array */
    pi_speculator *speculator; /* NULL: off */
} drafting;

/* Checks --spec and -md without looking at files. PI_ERR_ARG. */
pi_status drafting_check(const cli_options *o, pi_error *err);
/* "off", "ngram", ..., "eagle3": what drafts; a static string. */
const char *drafting_kind(const cli_options *o);
/* Rows of logits that a step of one text may need. */
int32_t drafting_rows(const cli_options *o);
/* Creates drafters for n_texts texts of at most n_ctx tokens, and sets what they need in the
 * options of the model's context. Call it before that context is created, which takes the rest of
 * the GPU's memory; free the drafting after it. */
pi_status drafting_create(const cli_options *o, const pi_model *model, int32_t n_texts,
                          int32_t n_ctx, pi_context_options *context, drafting *out, pi_error *err);
void drafting_free(drafting *d); /* accepts zeroed drafting */

#endif
