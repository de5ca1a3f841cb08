/* hf_folder.h: small Hugging Face folders that the tests write. The values of a tensor depend only
 * on its name and the index, and are exact in F32, F16 and BF16, so that a test knows the expected
 * values without storing them. */
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
    char out[FOLDER_PATH]; /* dir + ".gguf"; does not exist yet */
    char messages[FOLDER_MAX_MESSAGES][512];
    int n_messages;
} hf_folder;

void folder_open(hf_folder *f);
void folder_close(hf_folder *f); /* removes everything */
void folder_path(const hf_folder *f, const char *name, char path[FOLDER_PATH]);
void folder_write(const hf_folder *f, const char *name, const void *data, size_t n_bytes);
void folder_write_text(const hf_folder *f, const char *name, const char *text);

/* Converts into f->out, collecting the messages. */
pi_status folder_convert(hf_folder *f, const char *type, pi_error *err);
/* Converts like folder_convert, and opens the result; the test fails without a result. */
gguf_file *folder_convert_open(hf_folder *f, const char *type);
/* The conversion must fail with one line that contains these words, and leave no output. */
void folder_refuse(hf_folder *f, const char *type, pi_status expected, const char *words);
bool folder_said(const hf_folder *f, const char *part); /* whether a message contains these words */
bool folder_has_output(const hf_folder *f);             /* f->out or a remainder of it exists */

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
/* Adds an entry with the given header, "{...}", and n_data zero bytes. */
void shard_add_raw(shard *s, const char *name, const char *entry, size_t n_data);
void shard_write(const shard *s, const hf_folder *f, const char *name);

/* ---- a model --------------------------------------------------------------------------------- */

typedef struct model_shape {
    const char *model_type, *dtype;
    int n_embd, n_ff, n_layer, n_head, n_head_kv, head_dim, n_vocab;
    bool qkv_bias, qk_norm, head; /* head: lm_head.weight exists */
    const char *extra;            /* members of config.json, each followed by a comma */
} model_shape;

model_shape shape_tiny(const char *model_type); /* 64 / 96 / 2 layers / 4 heads, 2 KV / 40 tokens */
void folder_write_config(const hf_folder *f, const model_shape *shape);
/* Adds all tensors of layers first..last-1; global tensors are added with layer 0. */
void shard_add_layers(shard *s, const model_shape *shape, int first, int last);
/* Writes config.json and model.safetensors. */
void folder_write_model(const hf_folder *f, const model_shape *shape);
/* A new folder with the tiny model of this type. */
void folder_open_model(hf_folder *f, const char *model_type);

/* A byte-level BPE over the bytes 'a'..'z' and the space, with a few merges and two added tokens:
 * 0..26 letters and space, then "he", "hel", "ll", then <|end|> (special) and <tool> (not
 * special). */
extern const char tiny_bpe_json[];

#endif
