/* prompt_disk.h: blocks of the prompt store as files of a folder, so that they survive the server.
 *
 * A file has one block: a header with the tokens and the name of the block before it, then the keys
 * and values, then the state of recurrent layers, if it is known. It appears complete or not at
 * all. Its name is a hash of its tokens and of all tokens before them. Files of another model or
 * other settings are in other folders. */
#ifndef SERVER_PROMPT_DISK_H
#define SERVER_PROMPT_DISK_H

#include "powerinfer.h"

enum { PROMPT_BLOCK = 64 /* maximum tokens of a block */ };

typedef struct prompt_name {
    uint64_t word[2]; /* both 0: no block, before the first one */
} prompt_name;

typedef struct prompt_block {
    prompt_name name, parent;
    int32_t n; /* 1..PROMPT_BLOCK */
    int32_t tokens[PROMPT_BLOCK];
    uint64_t n_rows, n_recurrent; /* bytes; n_recurrent 0: not known */
} prompt_block;

typedef struct prompt_disk prompt_disk;

/* The name of the block with these tokens after `parent`. */
prompt_name prompt_block_name(prompt_name parent, const int32_t *tokens, int32_t n);

/* Creates the folder `id` in `folder`, which must exist. PI_ERR_IO, PI_ERR_NOMEM. */
pi_status prompt_disk_open(const char *folder, uint64_t id, prompt_disk **out, pi_error *err);
void prompt_disk_close(prompt_disk *d); /* accepts NULL */

/* Lists the blocks, oldest first; free *out with mem_free. Damaged files are removed, and files
 * that a killed server has left. PI_ERR_IO, PI_ERR_NOMEM. */
pi_status prompt_disk_list(prompt_disk *d, prompt_block **out, size_t *n, pi_error *err);
/* Bytes of a block's file. */
uint64_t prompt_disk_bytes(const prompt_block *b);

/* Replaces an existing file. False: not written. */
bool prompt_disk_write(const prompt_disk *d, const prompt_block *b, const void *rows,
                       const void *recurrent);
/* rows: [b->n_rows]; recurrent: [b->n_recurrent]. False: the file is missing or damaged. */
bool prompt_disk_read(const prompt_disk *d, const prompt_block *b, void *rows, void *recurrent);
void prompt_disk_remove(const prompt_disk *d, prompt_name name);

#endif
