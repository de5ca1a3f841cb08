/* cli_test_model.c: writes keys, vocabulary and seeded random tensors with the GGUF writer. */
#include "cli_test_model.h"

#include <stdio.h>
#include <string.h>

#include "gguf_writer.h"
#include "mem.h"
#include "rng.h"

enum { N_EMBD = 64, N_FF = 96, N_LAYER = 2, N_HEAD = 4, N_HEAD_KV = 2, HEAD_DIM = 16 };

/* tokenizer.ggml.token_type */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

static void put_vocabulary(gguf_writer *w) {
    static char texts[TEST_MODEL_VOCAB][8];
    gguf_string tokens[TEST_MODEL_VOCAB];
    float scores[TEST_MODEL_VOCAB] = {0};
    int32_t types[TEST_MODEL_VOCAB];
    for (int i = 0; i < TEST_MODEL_VOCAB; i++) {
        types[i] = NORMAL;
        if (i < TEST_MODEL_BYTE0) {
            static const char *const first[] = {"<unk>", "<s>", "</s>"};
            snprintf(texts[i], sizeof texts[i], "%s", first[i]);
            types[i] = i == 0 ? UNKNOWN : CONTROL;
        } else if (i < TEST_MODEL_SPACE) {
            snprintf(texts[i], sizeof texts[i], "<0x%02X>", (unsigned)(i - TEST_MODEL_BYTE0));
            types[i] = BYTE;
        } else if (i == TEST_MODEL_SPACE) {
            snprintf(texts[i], sizeof texts[i], "\xe2\x96\x81");
        } else {
            snprintf(texts[i], sizeof texts[i], "%c", 'a' + (i - TEST_MODEL_LETTER_A));
        }
        tokens[i] = (gguf_string){.data = texts[i], .n_bytes = strlen(texts[i])};
    }
    gguf_put_string(w, "tokenizer.ggml.model", "llama");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, TEST_MODEL_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, TEST_MODEL_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, TEST_MODEL_VOCAB);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", TEST_MODEL_BOS);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", TEST_MODEL_EOS);
}

static void put_keys(gguf_writer *w) {
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_string(w, "general.name", "test model");
    gguf_put_u32(w, "llama.context_length", TEST_MODEL_CONTEXT);
    gguf_put_u32(w, "llama.embedding_length", N_EMBD);
    gguf_put_u32(w, "llama.feed_forward_length", N_FF);
    gguf_put_u32(w, "llama.block_count", N_LAYER);
    gguf_put_u32(w, "llama.attention.head_count", N_HEAD);
    gguf_put_u32(w, "llama.attention.head_count_kv", N_HEAD_KV);
    gguf_put_u32(w, "llama.rope.dimension_count", HEAD_DIM);
    gguf_put_u32(w, "llama.vocab_size", TEST_MODEL_VOCAB);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_vocabulary(w);
}

typedef struct tensor_row {
    const char *name; /* %d: number of the layer */
    uint64_t dims[2]; /* dims[1] 0: a vector */
} tensor_row;

static const tensor_row layer_tensors[] = {
    {"blk.%d.attn_norm.weight", {N_EMBD, 0}},
    {"blk.%d.attn_q.weight", {N_EMBD, N_HEAD *HEAD_DIM}},
    {"blk.%d.attn_k.weight", {N_EMBD, N_HEAD_KV *HEAD_DIM}},
    {"blk.%d.attn_v.weight", {N_EMBD, N_HEAD_KV *HEAD_DIM}},
    {"blk.%d.attn_output.weight", {N_HEAD * HEAD_DIM, N_EMBD}},
    {"blk.%d.ffn_norm.weight", {N_EMBD, 0}},
    {"blk.%d.ffn_gate.weight", {N_EMBD, N_FF}},
    {"blk.%d.ffn_up.weight", {N_EMBD, N_FF}},
    {"blk.%d.ffn_down.weight", {N_FF, N_EMBD}},
};

static const tensor_row other_tensors[] = {
    {"token_embd.weight", {N_EMBD, TEST_MODEL_VOCAB}},
    {"output_norm.weight", {N_EMBD, 0}},
    {"output.weight", {N_EMBD, TEST_MODEL_VOCAB}},
};

enum {
    N_LAYER_TENSORS = sizeof layer_tensors / sizeof layer_tensors[0],
    N_OTHER_TENSORS = sizeof other_tensors / sizeof other_tensors[0],
    N_TENSORS = N_OTHER_TENSORS + N_LAYER * N_LAYER_TENSORS
};

static const tensor_row *tensor_at(int i, char *name, size_t n_name) {
    int layer = (i - N_OTHER_TENSORS) / N_LAYER_TENSORS;
    const tensor_row *row = i < N_OTHER_TENSORS
                                ? &other_tensors[i]
                                : &layer_tensors[(i - N_OTHER_TENSORS) % N_LAYER_TENSORS];
    const char *percent = strstr(row->name, "%d");
    if (percent) {
        snprintf(name, n_name, "%.*s%d%s", (int)(percent - row->name), row->name, layer,
                 percent + 2);
    } else {
        snprintf(name, n_name, "%s", row->name);
    }
    return row;
}

static bool add_tensors(gguf_writer *w, pi_error *err) {
    for (int i = 0; i < N_TENSORS; i++) {
        char name[64];
        const tensor_row *row = tensor_at(i, name, sizeof name);
        int n_dims = row->dims[1] ? 2 : 1;
        if (gguf_add_tensor(w, name, QUANT_F32, n_dims, row->dims, err) != PI_OK) return false;
    }
    return true;
}

/* Norms are 1; matrices keep the variance of their inputs. */
static bool write_tensors(gguf_writer *w, pi_error *err) {
    static float values[TEST_MODEL_VOCAB * N_EMBD];
    rng random;
    rng_seed(&random, 1);
    for (int i = 0; i < N_TENSORS; i++) {
        char name[64];
        const tensor_row *row = tensor_at(i, name, sizeof name);
        size_t n = row->dims[0] * (row->dims[1] ? row->dims[1] : 1);
        for (size_t k = 0; k < n; k++) {
            values[k] = row->dims[1] ? rng_normal(&random) / 8 : 1; /* 8 = sqrt(N_EMBD) */
        }
        if (gguf_write_data(w, values, n * sizeof *values, err) != PI_OK) return false;
    }
    return true;
}

bool test_model_write(const char *path) {
    pi_error err = {.status = PI_OK};
    gguf_writer *w = NULL;
    if (gguf_writer_create(path, &w, &err) == PI_OK) {
        put_keys(w);
        if (add_tensors(w, &err) && gguf_writer_begin_data(w, &err) == PI_OK &&
            write_tensors(w, &err)) {
            if (gguf_writer_finish(w, &err) == PI_OK) return true;
        } else {
            gguf_writer_abort(w);
        }
    }
    fprintf(stderr, "test model: %s\n", err.message);
    return false;
}
