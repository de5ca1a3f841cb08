/* place_prompt.h: the predicted time of a prompt on a GPU with cold rows on the CPU. */
#ifndef PLACE_PLACE_PROMPT_H
#define PLACE_PLACE_PROMPT_H

#include "gpu_size.h"
#include "place.h"

/* A turn of a conversation, by which sizes of ubatches are compared: larger ones make prompts
 * faster, but their buffers take the place of neurons, which makes answers slower. */
enum { PLACE_PROMPT_TOKENS = 2048, PLACE_ANSWER_TOKENS = 256 };

/* Seconds of the products of n_tokens tokens in ubatches of n_batch, on GPU and CPU, and of the
 * copies of cold rows, without attention. */
double place_prompt_seconds(const place_machine *m, const gpu_exec_prompt *p, int n_tokens,
                            int n_batch);

#endif
