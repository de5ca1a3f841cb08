/* option_llama.c: the environment of llama.cpp's server, as data. LLAMA_ARG_CTX_SIZE is --ctx-size,
 * and so on: here are those that are named otherwise. */
#include "options.h"

const option_variable llama_variables[] = {
    {"LLAMA_API_KEY", "--api-key"},
    {"LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", "--checkpoint-min-step"},
    {"LLAMA_ARG_ENDPOINT_METRICS", "--metrics"},
    {"LLAMA_ARG_ENDPOINT_PROPS", "--props"},
    {"LLAMA_ARG_ENDPOINT_SLOTS", "--slots"},
    {"LLAMA_ARG_N_PARALLEL", "--parallel"},
    {"LLAMA_ARG_ROPE_SCALING_TYPE", "--rope-scaling"},
    {"LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", "--spec-draft-type-k"},
    {"LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", "--spec-draft-type-v"},
    {"LLAMA_ARG_STATIC_PATH", "--path"},
    {"LLAMA_ARG_THINK", "--reasoning-format"},
    {"LLAMA_ARG_THINK_BUDGET", "--reasoning-budget"},
    {"LLAMA_ARG_THINK_BUDGET_MESSAGE", "--reasoning-budget-message"},
    {"LLAMA_ARG_UBATCH", "--ubatch-size"},
};

const size_t llama_variable_count = sizeof llama_variables / sizeof llama_variables[0];
