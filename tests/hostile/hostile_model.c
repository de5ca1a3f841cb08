/* hostile_model.c: valid GGUF files that are wrong as models or vocabularies: copies of a working
 * model with one change. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_test_model.h"
#include "gguf.h"
#include "gguf_writer.h"
#include "hostile.h"

#define N(array) (sizeof(array) / sizeof *(array))
#define RUN      "run -q -m bad.gguf -p a -n 1"
#define TOKENIZE "tokenize -q -m bad.gguf -p a"

/* ---- changed copies -------------------------------------------------------------------------- */

/* A change to the model; unset fields change nothing. */
typedef struct change {
    const char *without_key, *without_tensor;
    void (*keys)(gguf_writer *w, const char *argument);
    const char *argument;
    const char *extra_tensor;  /* additional tensor of 8 floats */
    const char *square_tensor; /* becomes [64, 64] */
} change;

static void must(pi_status status, const pi_error *err) {
    if (status != PI_OK) fail_msg("%s", err->message);
}

static bool is(const char *a, const char *b) {
    return a && strcmp(a, b) == 0;
}

static void add_tensors(gguf_writer *w, const gguf_file *f, const change *c) {
    pi_error err;
    const uint64_t square[2] = {64, 64}, few[1] = {8};
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (is(c->without_tensor, t->name)) continue;
        bool odd = is(c->square_tensor, t->name);
        must(
            gguf_add_tensor(w, t->name, t->type, odd ? 2 : t->n_dims, odd ? square : t->dims, &err),
            &err);
    }
    if (c->extra_tensor) must(gguf_add_tensor(w, c->extra_tensor, QUANT_F32, 1, few, &err), &err);
    must(gguf_writer_begin_data(w, &err), &err);
    static const float zeros[64 * 64];
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (is(c->without_tensor, t->name)) continue;
        if (is(c->square_tensor, t->name))
            must(gguf_write_data(w, zeros, sizeof zeros, &err), &err);
        else
            must(gguf_write_data(w, t->data, t->n_bytes, &err), &err);
    }
    if (c->extra_tensor) must(gguf_write_data(w, zeros, 8 * sizeof *zeros, &err), &err);
}

static void write_changed(const change *c) {
    gguf_file *f;
    gguf_writer *w;
    pi_error err;
    must(gguf_open("model.gguf", NULL, &f, &err), &err);
    must(gguf_writer_create("bad.gguf", &w, &err), &err);
    for (uint64_t i = 0; i < gguf_n_values(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        if (!c->without_key || !gguf_string_is(v->key, c->without_key)) gguf_put_value(w, v);
    }
    if (c->keys) c->keys(w, c->argument);
    add_tensors(w, f, c);
    must(gguf_writer_finish(w, &err), &err);
    gguf_close(f);
}

/* ---- kinds of change ------------------------------------------------------------------------- */

static void without_key(const char *key) {
    write_changed(&(change){.without_key = key});
}
static void without_tensor(const char *name) {
    write_changed(&(change){.without_tensor = name});
}
static void extra_tensor(const char *name) {
    write_changed(&(change){.extra_tensor = name});
}
static void square_tensor(const char *name) {
    write_changed(&(change){.square_tensor = name});
}

/* "key=value": the key becomes a string, an integer or a float. */
static void split(const char *argument, char *key, size_t n_key, const char **value) {
    *value = strchr(argument, '=') + 1;
    snprintf(key, n_key, "%.*s", (int)(*value - argument - 1), argument);
}
static void put_text(gguf_writer *w, const char *argument) {
    char key[80];
    const char *value;
    split(argument, key, sizeof key, &value);
    gguf_put_string(w, key, value);
}
static void put_integer(gguf_writer *w, const char *argument) {
    char key[80];
    const char *value;
    split(argument, key, sizeof key, &value);
    gguf_put_i32(w, key, (int32_t)strtol(value, NULL, 10));
}
static void put_float(gguf_writer *w, const char *argument) {
    char key[80];
    const char *value;
    split(argument, key, sizeof key, &value);
    gguf_put_f32(w, key, strtof(value, NULL));
}
static void put_truth(gguf_writer *w, const char *argument) {
    char key[80];
    const char *value;
    split(argument, key, sizeof key, &value);
    gguf_put_bool(w, key, *value == '1');
}
static void bool_key(const char *argument) {
    write_changed(&(change){.keys = put_truth, .argument = argument});
}
static void text_key(const char *argument) {
    write_changed(&(change){.keys = put_text, .argument = argument});
}
/* Replaces the epsilon key by the key of the other kind of norm. */
static void other_epsilon(const char *argument) {
    write_changed(&(change){.without_key = "llama.attention.layer_norm_rms_epsilon",
                            .keys = put_float,
                            .argument = argument});
}
static void integer_key(const char *argument) {
    write_changed(&(change){.keys = put_integer, .argument = argument});
}
static void float_key(const char *argument) {
    write_changed(&(change){.keys = put_float, .argument = argument});
}

/* `argument`: "ARCH KEY=NUMBER ...", another architecture with the model's shape and these keys. */
static void put_arch(gguf_writer *w, const char *argument) {
    static const char *const usual[] = {"block_count=2",          "embedding_length=64",
                                        "context_length=128",     "feed_forward_length=96",
                                        "attention.head_count=4", "attention.head_count_kv=2",
                                        "rope.dimension_count=8"};
    char arch[16], word[64], full[96];
    int used = 0;
    if (sscanf(argument, "%15s%n", arch, &used) != 1) abort();
    gguf_put_string(w, "general.architecture", arch);
    snprintf(full, sizeof full, "%s.attention.layer_norm_rms_epsilon=1e-5", arch);
    put_float(w, full);
    for (size_t i = 0; i < N(usual); i++) {
        snprintf(full, sizeof full, "%s.%s", arch, usual[i]);
        put_integer(w, full);
    }
    for (argument += used; sscanf(argument, "%63s%n", word, &used) == 1; argument += used) {
        snprintf(full, sizeof full, "%s.%s", arch, word);
        put_integer(w, full);
    }
}
static void other_arch(const char *argument) {
    write_changed(&(change){.keys = put_arch, .argument = argument});
}

/* Writes numbers of experts per token that differ between layers. */
static void put_uneven(gguf_writer *w, const char *argument) {
    static const int32_t used[] = {2, 1};
    put_arch(w, argument);
    gguf_put_array(w, "qwen3moe.expert_used_count", GGUF_I32, used, 2);
}
static void uneven_experts(const char *argument) {
    write_changed(&(change){.keys = put_uneven, .argument = argument});
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

/* Writes tokens, scores and types in the given numbers. */
static void put_counts(gguf_writer *w, const char *argument) {
    static gguf_string tokens[TEST_MODEL_VOCAB + 8];
    static float scores[TEST_MODEL_VOCAB + 8];
    char *end;
    unsigned long n_tokens = strtoul(argument, &end, 10), n_scores = strtoul(end, NULL, 10);
    for (size_t i = 0; i < N(tokens); i++) tokens[i] = (gguf_string){"t", 1};
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, n_tokens);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, n_scores);
}
static void counts(const char *argument) {
    write_changed(&(change){
        .without_key = "tokenizer.ggml.token_type", .keys = put_counts, .argument = argument});
}

static void put_tokens_of_numbers(gguf_writer *w, const char *argument) {
    static const float numbers[TEST_MODEL_VOCAB];
    (void)argument;
    gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_F32, numbers, TEST_MODEL_VOCAB);
}
static void tokens_of_numbers(const char *argument) {
    write_changed(&(change){.keys = put_tokens_of_numbers, .argument = argument});
}

static void put_types_of_floats(gguf_writer *w, const char *argument) {
    static const float numbers[TEST_MODEL_VOCAB] = {0.5f};
    (void)argument;
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_F32, numbers, TEST_MODEL_VOCAB);
}
static void types_of_floats(const char *argument) {
    write_changed(&(change){.keys = put_types_of_floats, .argument = argument});
}

/* Writes a byte-level vocabulary with the merges of the argument. */
static void put_merges(gguf_writer *w, const char *argument) {
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(w, "tokenizer.ggml.pre", "llama-bpe");
    gguf_string merges[] = {{argument, strlen(argument)}};
    if (*argument) gguf_put_strings(w, "tokenizer.ggml.merges", merges, 1);
}
static void merges(const char *argument) {
    write_changed(&(change){.keys = put_merges, .argument = argument});
}

static void put_pre(gguf_writer *w, const char *argument) {
    put_merges(w, "a b");
    gguf_put_string(w, "tokenizer.ggml.pre", argument);
}
static void pre(const char *argument) {
    write_changed(&(change){.keys = put_pre, .argument = argument});
}

/* ---- splits ---------------------------------------------------------------------------------- */

static void put_split(gguf_writer *w, const char *argument) {
    int no = 0, count = 0, n_tensors = 0;
    if (sscanf(argument, "%d %d %d", &no, &count, &n_tensors) != 3) abort();
    gguf_put_i32(w, "split.no", no);
    gguf_put_i32(w, "split.count", count);
    gguf_put_i32(w, "split.tensors.count", n_tensors);
}
static void write_part(const char *name, const char *argument) {
    write_changed(&(change){.keys = put_split, .argument = argument});
    if (rename("bad.gguf", name) != 0) abort();
}

static void split_alone(const char *argument) {
    write_part("part-00001-of-00002.gguf", argument);
}
static void split_renamed(const char *argument) {
    write_part("part.gguf", argument);
}
static void split_alike(const char *argument) { /* the second part has the tensors of the first */
    write_part("part-00001-of-00002.gguf", argument);
    write_part("part-00002-of-00002.gguf", "1 2 21");
}
static void split_disagreeing(const char *argument) {
    write_part("part-00001-of-00002.gguf", argument);
    write_part("part-00002-of-00002.gguf", "1 2 22");
}

#define FIRST "run -q -m part-00001-of-00002.gguf -p a -n 1"

const hostile_case hostile_model[] = {
    {"no architecture", without_key, "general.architecture", RUN, 1,
     "no architecture: bad.gguf: key general.architecture is missing or not a string; is it a "
     "model?"},
    {"unknown architecture", text_key, "general.architecture=wavtokenizer-dec", RUN, 1,
     "unknown architecture 'wavtokenizer-dec': bad.gguf: this version knows *"},
    {"architecture of escapes", text_key, "general.architecture=\x1b[1m\n", RUN, 1,
     "unknown architecture '\\x1B[1m\\n': bad.gguf: this version knows *"},
    {"architecture is a number", integer_key, "general.architecture=1", RUN, 1,
     "no architecture: bad.gguf: key general.architecture is missing or not a string; is it a "
     "model?"},
    {"no layers key", without_key, "llama.block_count", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.block_count is missing; is the file complete?"},
    {"0 layers", integer_key, "llama.block_count=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.block_count is 0, not in 1..1024; is the file "
     "complete?"},
    {"-1 layers", integer_key, "llama.block_count=-1", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.block_count is -1, not in 1..1024; is the file "
     "complete?"},
    {"2147483647 layers", integer_key, "llama.block_count=2147483647", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.block_count is 2147483647, not in 1..1024; is the "
     "file complete?"},
    {"3 layers of 2", integer_key, "llama.block_count=3", RUN, 1,
     "missing tensor: bad.gguf: blk.2.attn_norm.weight is not in the file; is it complete?"},
    {"1 layer of 2", integer_key, "llama.block_count=1", RUN, 0, NULL},
    {"layers in words", text_key, "llama.block_count=two", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.block_count is not an integer for every layer; is "
     "the file complete?"},
    {"0 heads", integer_key, "llama.attention.head_count=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.attention.head_count is 0, not in 1..1024; is the "
     "file complete?"},
    {"heads do not divide", integer_key, "llama.attention.head_count=3", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.attention.head_count_kv is 2 in layer 0, which does "
     "not divide 3 heads; is the file complete?"},
    {"3 KV heads for 4", integer_key, "llama.attention.head_count_kv=3", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.attention.head_count_kv is 3 in layer 0, which does "
     "not divide 4 heads; is the file complete?"},
    {"width of another model", integer_key, "llama.embedding_length=128", RUN, 1,
     "wrong shape: bad.gguf: tensor token_embd.weight is [64, 286], the hyperparameters need [128, "
     "286]"},
    {"width 2^31 - 1", integer_key, "llama.embedding_length=2147483647", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.embedding_length is 2147483647, not in 1..1048576; "
     "is the file complete?"},
    {"epsilon is NaN", float_key, "llama.attention.layer_norm_rms_epsilon=nan", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.attention.layer_norm_rms_epsilon is nan, not in "
     "0..1; is the file complete?"},
    {"epsilon is negative", float_key, "llama.attention.layer_norm_rms_epsilon=-1", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.attention.layer_norm_rms_epsilon is -1, not in 0..1; "
     "is the file complete?"},
    {"no epsilon", without_key, "llama.attention.layer_norm_rms_epsilon", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.attention.layer_norm_rms_epsilon is missing; is the "
     "file complete?"},
    {"the other epsilon", other_epsilon, "llama.attention.layer_norm_epsilon=1e-5", RUN, 0, NULL},
    {"rope base is infinite", float_key, "llama.rope.freq_base=inf", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.rope.freq_base is inf, not above 0 and at most "
     "1e+12; is the file complete?"},
    {"rope base is NaN", float_key, "llama.rope.freq_base=nan", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.rope.freq_base is nan, not above 0 and at most "
     "1e+12; is the file complete?"},
    {"odd rotary dimensions", integer_key, "llama.rope.dimension_count=15", RUN, 1,
     "bad head shape: bad.gguf: head_dim 16 with 15 rotated elements; both must be even, at least "
     "2, and the second no larger"},
    {"context of 0", integer_key, "llama.context_length=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.context_length is 0, not in 1..2147483647; is the "
     "file complete?"},
    {"unknown scaling", text_key, "llama.rope.scaling.type=magic", RUN, 1,
     "unknown rope scaling 'magic': bad.gguf: key llama.rope.scaling.type must be none, linear, "
     "yarn or longrope"},
    {"attention both ways", bool_key, "llama.attention.causal=0", RUN, 1,
     "not supported: bad.gguf: key llama.attention.causal: attention to later tokens"},
    {"layers use different numbers of experts", uneven_experts, "qwen3moe expert_count=4", RUN, 1,
     "not supported: bad.gguf: key qwen3moe.expert_used_count: different values per layer"},
    {"unknown gating", other_arch,
     "qwen3moe expert_count=4 expert_used_count=2 "
     "expert_gating_func=5",
     RUN, 1,
     "unknown gating 5: bad.gguf: key qwen3moe.expert_gating_func must be 1 (softmax), 2 "
     "(sigmoid), 3 (softmax of the selected) or 4 (square root of softplus)"},
    {"all layers predict further tokens", integer_key, "llama.nextn_predict_layers=2", RUN, 1,
     "bad hyperparameter: bad.gguf: key llama.nextn_predict_layers is 2, not in 0..1; is the file "
     "complete?"},
    {"the last layer predicts further tokens", integer_key, "llama.nextn_predict_layers=1", RUN, 0,
     NULL},

    {"no latent vector", other_arch, "deepseek2", RUN, 1,
     "bad hyperparameter: bad.gguf: key deepseek2.attention.kv_lora_rank is missing; is the file "
     "complete?"},
    {"latent vector of 0", other_arch, "deepseek2 attention.kv_lora_rank=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key deepseek2.attention.kv_lora_rank is 0, not in 1..4096; is "
     "the file complete?"},
    {"latent queries of -1", other_arch,
     "deepseek2 attention.kv_lora_rank=8 attention.q_lora_rank=-1", RUN, 1,
     "bad hyperparameter: bad.gguf: key deepseek2.attention.q_lora_rank is -1, not in 0..1048576; "
     "is the file complete?"},
    {"queries that are rotated as a whole", other_arch,
     "deepseek2 attention.kv_lora_rank=8 attention.key_length_mla=8", RUN, 1,
     "bad hyperparameter: bad.gguf: key deepseek2.attention.key_length_mla is 8, but must be above "
     "the 8 rotated elements; is the file complete?"},
    {"odd rows of a latent cache", other_arch,
     "deepseek2 attention.kv_lora_rank=7 attention.key_length_mla=16", RUN, 1,
     "bad head shape: bad.gguf: head_dim 15 with 8 rotated elements; both must be even, at least "
     "2, and the second no larger"},
    {"queries without their matrix", other_arch,
     "deepseek2 attention.kv_lora_rank=8 attention.key_length_mla=24", RUN, 1,
     "wrong shape: bad.gguf: tensor blk.0.attn_q.weight is [64, 64], the hyperparameters need [64, "
     "96]"},
    {"no compressed keys", other_arch,
     "deepseek2 attention.kv_lora_rank=8 attention.key_length_mla=16", RUN, 1,
     "missing tensor: bad.gguf: blk.0.attn_kv_a_mqa.weight is not in the file; is it complete?"},
    {"all layers share keys", other_arch, "gemma4 attention.shared_kv_layers=2", RUN, 1,
     "bad hyperparameter: bad.gguf: key gemma4.attention.shared_kv_layers is 2, not in 0..1; is "
     "the file complete?"},
    {"nothing to share", other_arch,
     "gemma4 attention.shared_kv_layers=1 attention.sliding_window=8 "
     "attention.sliding_window_pattern=2",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key gemma4.attention.shared_kv_layers leaves a layer without "
     "keys and values; is the file complete?"},
    {"heads of 0 in a window", other_arch, "gemma4 attention.key_length_swa=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key gemma4.attention.key_length_swa is 0, not in 1..4096; is "
     "the file complete?"},
    {"values of another size in a window", other_arch,
     "gemma4 attention.key_length_swa=16 attention.value_length_swa=8", RUN, 1,
     "K and V heads differ in size: bad.gguf: key_length 16, value_length 8; this version needs "
     "them equal"},
    {"embeddings per layer without a table", other_arch,
     "gemma4 embedding_length_per_layer_input=64", RUN, 1,
     "missing tensor: bad.gguf: per_layer_token_embd.weight is not in the file; is it complete?"},
    {"embeddings per layer too long", other_arch, "gemma4 embedding_length_per_layer_input=1048577",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key gemma4.embedding_length_per_layer_input is 1048577, not in "
     "0..1048576; is the file complete?"},
    {"one stream of several", other_arch, "gemma3n altup.num_inputs=1", RUN, 1,
     "bad hyperparameter: bad.gguf: key gemma3n.altup.num_inputs is 1, not in 2..8; is the file "
     "complete?"},
    {"layers that compute another stream", other_arch, "gemma3n altup.active_idx=2", RUN, 1,
     "not supported: bad.gguf: key gemma3n.altup.active_idx: layers that compute a residual "
     "stream other than the first"},
    {"one cutoff for all layers", other_arch, "gemma3n activation_sparsity_scale=2", RUN, 1,
     "bad hyperparameter: bad.gguf: key gemma3n.activation_sparsity_scale is not a number for "
     "every layer; is the file complete?"},
    {"streams without a matrix", other_arch, "gemma3n embedding_length_per_layer_input=0", RUN, 1,
     "missing tensor: bad.gguf: altup_proj.weight is not in the file; is it complete?"},
    {"blocks of no positions", other_arch,
     "minimax-m3 attention.indexer.top_k=4 attention.indexer.block_size=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key minimax-m3.attention.indexer.block_size is 0, not in "
     "1..2147483647; is the file complete?"},
    {"no number of blocks", other_arch, "minimax-m3", RUN, 1,
     "bad hyperparameter: bad.gguf: key minimax-m3.attention.indexer.top_k is missing; is the file "
     "complete?"},
    {"more blocks nearby than are chosen", other_arch,
     "minimax-m3 attention.indexer.top_k=4 attention.indexer.block_size=8 "
     "attention.indexer.local_blocks=5",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key minimax-m3.attention.indexer.local_blocks is 5, not in "
     "0..4; is "
     "the file complete?"},
    {"an index of too many heads", other_arch,
     "minimax-m3 attention.indexer.top_k=4 attention.indexer.block_size=8 "
     "attention.indexer.local_blocks=1 attention.indexer.head_count=3 "
     "attention.indexer.key_length=64",
     RUN, 1, "not supported: bad.gguf: attention.indexer.head_count 3 with 2 heads of keys"},
    {"an index that rotation does not fit into", other_arch,
     "minimax-m3 attention.indexer.top_k=4 attention.indexer.block_size=8 "
     "attention.indexer.local_blocks=1 attention.indexer.head_count=2 "
     "attention.indexer.key_length=6",
     RUN, 1, "not supported: bad.gguf: attention.indexer.key_length 6 with 8 rotated elements"},
    {"an index that selects nothing", other_arch,
     "deepseek32 attention.kv_lora_rank=32 attention.q_lora_rank=16 attention.indexer.top_k=0", RUN,
     1,
     "bad hyperparameter: bad.gguf: key deepseek32.attention.indexer.top_k is 0, not in "
     "1..2147483647; is the file complete?"},
    {"a first layer without an index", other_arch,
     "glm-dsa attention.kv_lora_rank=32 attention.q_lora_rank=16 attention.indexer.top_k=9 "
     "attention.indexer.head_count=2 attention.indexer.key_length=32 attention.key_length=16 "
     "attention.key_length_mla=24 attention.indexer.types=0",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key glm-dsa.attention.indexer.types leaves a layer without "
     "selected positions; is the file complete?"},
    {"positions by an index that rotation does not fit into", other_arch,
     "deepseek32 attention.kv_lora_rank=32 attention.q_lora_rank=16 attention.indexer.top_k=9 "
     "attention.indexer.head_count=2 attention.indexer.key_length=6 attention.key_length=16 "
     "attention.key_length_mla=24",
     RUN, 1, "not supported: bad.gguf: attention.indexer.key_length 6 with 8 rotated elements"},
    {"hyper-connections of one stream", other_arch, "hy_v4 hyper_connection.count=1", RUN, 1,
     "bad hyperparameter: bad.gguf: key hy_v4.hyper_connection.count is 1, not in 2..8; is the "
     "file "
     "complete?"},
    {"gated hyper-connections of rank 0", other_arch,
     "qwen4exp hyper_connection.count=4 hyper_connection.low_rank=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key qwen4exp.hyper_connection.low_rank is 0, not in "
     "1..1048576; is the file complete?"},
    {"embeddings of n-grams of no layer", other_arch,
     "qwen4exp hyper_connection.count=4 hyper_connection.low_rank=8 ssm.conv_kernel=4 "
     "ssm.inner_size=64 ssm.state_size=16 ssm.time_step_rank=4 ssm.group_count=4 "
     "attention.indexer.top_k=9 attention.indexer.head_count=2 attention.indexer.key_length=32 "
     "ple.layers=0",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key qwen4exp.ple.layers does not name one recurrent layer; is "
     "the file complete?"},
    {"compressed keys without ratios", other_arch,
     "deepseek4 hyper_connection.count=4 hyper_connection.epsilon=0 "
     "hyper_connection.sinkhorn_iterations=2 attention.q_lora_rank=16 "
     "attention.output_group_count=2 attention.output_lora_rank=16 attention.indexer.top_k=9 "
     "attention.indexer.head_count=2 attention.indexer.key_length=32 "
     "attention.compress_rope_freq_base=10000",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key deepseek4.attention.compress_ratios is not a list of "
     "powers "
     "of two, or 0, one for every layer; is the file complete?"},
    {"no groups of heads", other_arch,
     "deepseek4 hyper_connection.count=4 hyper_connection.epsilon=0 "
     "hyper_connection.sinkhorn_iterations=2 attention.q_lora_rank=16 "
     "attention.output_group_count=0",
     RUN, 1,
     "bad hyperparameter: bad.gguf: key deepseek4.attention.output_group_count is 0, not in "
     "1..1024; "
     "is the file complete?"},
    {"residuals that are never kept", other_arch, "kimi-k3 attn_res.block_size=0", RUN, 1,
     "bad hyperparameter: bad.gguf: key kimi-k3.attn_res.block_size is 0, not in 1..1024; is the "
     "file complete?"},
    {"windows with other latent vectors", other_arch,
     "dots3note attention.kv_lora_rank=32 attention.q_lora_rank=16 attention.indexer.top_k=9 "
     "attention.indexer.head_count=2 attention.indexer.key_length=32 attention.key_length=16 "
     "attention.key_length_mla=24 attention.kv_lora_rank_swa=16",
     RUN, 1,
     "not supported: bad.gguf: key dots3note.attention.kv_lora_rank_swa is 16, in layers without a "
     "window 32"},
    {"no gate of attention", other_arch, "afmoe", RUN, 1,
     "missing tensor: bad.gguf: blk.0.attn_gate.weight is not in the file; is it complete?"},
    {"a tensor is missing", without_tensor, "blk.1.ffn_up.weight", RUN, 1,
     "missing tensor: bad.gguf: blk.1.ffn_up.weight is not in the file; is it complete?"},
    {"no embeddings", without_tensor, "token_embd.weight", RUN, 1,
     "missing tensor: bad.gguf: token_embd.weight is not in the file; is it a vocabulary only?"},
    {"a tensor too many", extra_tensor, "blk.0.attn_sinks.weight", RUN, 1,
     "unknown tensor: bad.gguf: blk.0.attn_sinks.weight is not in this version's tensor list of "
     "architecture llama; ignoring it would give wrong results"},
    {"a tensor too many in no layer", extra_tensor, "output_norm.bias", RUN, 1,
     "unknown tensor: bad.gguf: output_norm.bias is not in this version's tensor list of "
     "architecture llama; ignoring it would give wrong results"},
    {"an encoder of images", extra_tensor, "v.patch_embd.weight", RUN, 0, NULL},
    {"a tensor of another shape", square_tensor, "blk.0.ffn_down.weight", RUN, 1,
     "wrong shape: bad.gguf: tensor blk.0.ffn_down.weight is [64, 64], the hyperparameters need "
     "[96, 64]"},
    {"embeddings of another shape", square_tensor, "token_embd.weight", RUN, 1,
     "wrong shape: bad.gguf: tensor output.weight is [64, 286], the hyperparameters need [64, 64]"},

    /* padding is never sampled, however flat the distribution */
    {"vocabulary smaller than embeddings", counts, "270 270",
     RUN " -n 200 -c 300 --temp 20 --top-k 0 --top-p 1 --min-p 0 --ignore-eos", 0, NULL},
    {"vocabulary larger than embeddings", counts, "288 288", RUN, 1,
     "vocabulary does not fit: bad.gguf: 288 tokens, but token_embd.weight has 286 rows"},
    {"fewer scores than tokens", counts, "286 285", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.scores: length differs from the number of tokens: convert the "
     "model again"},
    {"no tokens", counts, "0 0", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.tokens: no tokens or too many: convert the model again"},
    {"tokens are missing", without_key, "tokenizer.ggml.tokens", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.tokens: missing: convert the model again"},
    {"tokens are numbers", tokens_of_numbers, "", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.tokens: not an array of strings: convert the model again"},
    {"types are fractions", types_of_floats, "", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.token_type: not integers: convert the model again"},
    {"BOS beyond the vocabulary", integer_key, "tokenizer.ggml.bos_token_id=286", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.bos_token_id: not a token of the vocabulary: convert the "
     "model again"},
    {"EOS is -2", integer_key, "tokenizer.ggml.eos_token_id=-2", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.eos_token_id: not a token of the vocabulary: convert the "
     "model again"},
    {"unknown token in words", text_key, "tokenizer.ggml.unknown_token_id=none", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.unknown_token_id: not an integer: convert the model again"},
    {"add BOS in words", text_key, "tokenizer.ggml.add_bos_token=yes", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.add_bos_token: not a boolean: convert the model again"},
    {"unknown kind", text_key, "tokenizer.ggml.model=plamo2", TOKENIZE, 1,
     "unknown kind of vocabulary: tokenizer.ggml.model = plamo2: known are llama, gpt2, gemma4, "
     "bert, t5 and rwkv"},
    {"kind is a number", integer_key, "tokenizer.ggml.model=5", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.model: not a string: convert the model again"},
    {"no vocabulary", text_key, "tokenizer.ggml.model=none", TOKENIZE, 1,
     "no vocabulary: bad.gguf: the file has no tokenizer"},
#ifdef TEST_HAS_PCRE2
    {"byte-level without merges", merges, "", TOKENIZE, 1,
     "bad vocabulary: tokenizer.ggml.merges: missing, not an array of strings, or over 33554432: "
     "convert the model again"},
    {"merges of unknown tokens", merges, "qqq zzz", TOKENIZE, 0, NULL},
    {"a merge of one part", merges, "qqq", TOKENIZE, 0, NULL},
#else
    {"byte-level without PCRE2", merges, "qqq zzz", TOKENIZE, 1,
     "cannot split text for pre-tokenizer llama-bpe: this program was built without PCRE2: build "
     "it with PCRE2 to use byte-level BPE vocabularies"},
#endif
    {"unknown pre-tokenizer", pre, "gpt-5", TOKENIZE, 1,
     "unknown pre-tokenizer: gpt-5: override it with one of: *"},

    {"second part is missing", split_alone, "0 2 21", FIRST, 1,
     "part 2 of 2: cannot open file: part-00002-of-00002.gguf: No such file or directory"},
    {"part has another name", split_renamed, "0 2 21", "run -q -m part.gguf -p a -n 1", 1,
     "part 1 of a model split in 2 has another name: part.gguf: call it NAME-00001-of-00002.gguf "
     "and keep all parts in one folder"},
    {"part 2 of 2 says it is part 5", split_alone, "4 2 21", FIRST, 1,
     "split.no is not a number from 0 to 1: part-00001-of-00002.gguf, byte 6964: split the model "
     "again"},
    {"a split of 2147483647", split_alone, "0 2147483647 21", FIRST, 1,
     "split.count is not a number from 0 to 1024: part-00001-of-00002.gguf, byte 6991: split the "
     "model again"},
    {"parts with the same tensors", split_alike, "0 2 21", FIRST, 1,
     "the parts have 42 tensors but split.tensors.count says 21: part-00001-of-00002.gguf: a part "
     "is from another model"},
    {"parts disagree", split_disagreeing, "0 2 21", FIRST, 1,
     "split.* keys differ from those of part-00001-of-00002.gguf: part-00002-of-00002.gguf: the "
     "parts are not of one model"},
};
const size_t hostile_n_model = N(hostile_model);
