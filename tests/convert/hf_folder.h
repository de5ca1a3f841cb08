/* hf_folder.h: small Hugging Face folders, written by the tests themselves. Values of a tensor
 * follow from its name and the index alone and are exact in F32, F16 and BF16, so that a test can
 * say what must stand where without keeping anything. */
#ifndef TEST_HF_FOLDER_H
#define TEST_HF_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf.h"
#include "powerinfer_tools.h"

enum { FOLDER_PATH = 1024, FOLDER_MAX_MESSAGES = 32 };

typedef struct hf_folder {
    char dir[FOLDER_PATH]; /* fresh and empty */
    char out[FOLDER_PATH]; /* dir + ".gguf"; not there yet */
    char messages[FOLDER_MAX_MESSAGES][512];
    int n_messages;
} hf_folder;

void folder_open(hf_folder *f);
void folder_close(hf_folder *f); /* removes everything */
void folder_path(const hf_folder *f, const char *name, char path[FOLDER_PATH]);
void folder_write(const hf_folder *f, const char *name, const void *data, size_t n_bytes);
void folder_write_text(const hf_folder *f, const char *name, const char *text);
void folder_copy(const hf_folder *f, const char *from, const char *name);

/* Converts into f->out, collecting the messages. */
pi_status folder_convert(hf_folder *f, const char *type, pi_error *err);
/* The same, and opens the result; without one the test fails. */
gguf_file *folder_convert_open(hf_folder *f, const char *type);
/* It has to fail with one line that has these words, and to leave no output. */
void folder_refuse(hf_folder *f, const char *type, pi_status expected, const char *words);
bool folder_said(const hf_folder *f, const char *part); /* a message with these words */
bool folder_has_output(const hf_folder *f);             /* f->out or a remainder of it */

/* ---- weights --------------------------------------------------------------------------------- */

enum { SHARD_MAX_HEADER = 1 << 16, SHARD_MAX_DATA = 4 << 20 };

typedef struct shard {
    char header[SHARD_MAX_HEADER]; /* JSON so far, without the last brace */
    size_t n_header;
    uint8_t data[SHARD_MAX_DATA];
    size_t n_data;
} shard;

/* Element i of a tensor: multiples of 1/64 between -2 and 2. */
float tensor_value(const char *name, uint64_t i);

void shard_begin(shard *s);
/* rows 0: a vector of `cols`. dtype: "F32", "F16", "BF16". */
void shard_add(shard *s, const char *name, const char *dtype, uint64_t rows, uint64_t cols);
/* An entry with a header of the caller's making, "{...}", and n_data bytes of zeros. */
void shard_add_raw(shard *s, const char *name, const char *entry, size_t n_data);
void shard_write(const shard *s, const hf_folder *f, const char *name);

/* ---- a model --------------------------------------------------------------------------------- */

typedef struct model_shape {
    const char *model_type, *dtype;
    int n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_vocab;
    bool qkv_bias, qk_norm, head; /* head: lm_head.weight is there */
    const char *extra;            /* members of config.json, each followed by a comma */
} model_shape;

model_shape shape_tiny(const char *model_type); /* 64 / 96 / 2 layers / 4 heads, 2 KV / 40 tokens */
void folder_write_config(const hf_folder *f, const model_shape *shape);
/* All tensors of layers first..last-1; the global ones go with layer 0. */
void shard_add_layers(shard *s, const model_shape *shape, int first, int last);
/* config.json and model.safetensors. */
void folder_write_model(const hf_folder *f, const model_shape *shape);
/* A new folder with the tiny model of that type. */
void folder_open_model(hf_folder *f, const char *model_type);

/* A byte-level BPE over bytes 'a'..'z' and the space, with a few merges and two added tokens:
 * 0..26 letters and space, then "he", "hel", "ll", then <|end|> (special) and <tool> (not). */
extern const char tiny_bpe_json[];

#endif
