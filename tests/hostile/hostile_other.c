/* hostile_other.c: importance matrices, prompt caches, base runs and token ids: the program writes
 * a valid file, which the case then damages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_inside.h"
#include "gguf_writer.h"
#include "hostile.h"

#define N(array) (sizeof(array) / sizeof *(array))

/* ---- damage ---------------------------------------------------------------------------------- */

static void run_well(const char *const *words, int n) {
    cli_result r = cli_inside(n, words);
    if (r.status != 0) fail_msg("%s: %s", words[0], r.err);
    cli_result_free(&r);
}

/* "cut N" keeps N bytes; "set AT VALUE" writes an int32 at byte AT; "flip AT" flips the lowest bit
 * of byte AT; "add N" appends N bytes. A negative AT counts from the end. */
static void damage(const char *name, const char *how) {
    size_t n;
    unsigned char *data = hostile_read(name, &n);
    long at = 0, value = 0;
    char verb[8] = "";
    if (sscanf(how, "%7s %ld %ld", verb, &at, &value) < 2) abort();
    size_t place = at < 0 ? n - (size_t)-at : (size_t)at;
    if (strcmp(verb, "cut") == 0) {
        hostile_write(name, data, place);
    } else if (strcmp(verb, "add") == 0) {
        unsigned char *more = calloc(1, n + place);
        assert_non_null(more);
        memcpy(more, data, n);
        hostile_write(name, more, n + place);
        free(more);
    } else {
        int32_t word = (int32_t)value;
        if (strcmp(verb, "set") == 0)
            memcpy(data + place, &word, sizeof word);
        else
            data[place] ^= 1;
        hostile_write(name, data, n);
    }
    free(data);
}

/* ---- prompt caches --------------------------------------------------------------------------- */

#define CACHE "run -q -m model.gguf -p abc -n 1 -t 1 --prompt-cache cache"

static void cache_of(const char *how) {
    static const char *const words[] = {"run", "-q", "-m", "model.gguf",     "-p",   "abc", "-n",
                                        "2",   "-t", "1",  "--prompt-cache", "cache"};
    run_well(words, N(words));
    damage("cache", how);
}

static void cache_text(const char *text) {
    hostile_write_text("cache", text);
}

static void cache_of_other_types(const char *nothing) {
    (void)nothing;
    static const char *const words[] = {
        "run", "-q", "-m", "model.gguf",     "-p",    "abc",  "-n",
        "2",   "-t", "1",  "--prompt-cache", "cache", "-ctk", "f32"};
    run_well(words, N(words));
}

static void cache_of_other_model(const char *nothing) {
    cache_of_other_types(nothing);
    static const char *const words[] = {"quantize", "-q", "model.gguf", "other.gguf", "F16"};
    run_well(words, N(words));
}

/* ---- base runs ------------------------------------------------------------------------------- */

#define KL "perplexity -q -m model.gguf -t 1 --kl-divergence --kl-divergence-base base"

static void base_of(const char *how) {
    static const char *const words[] = {
        "perplexity", "-q", "-m", "model.gguf",           "-t",  "1", "-f",
        "text",       "-c", "16", "--kl-divergence-base", "base"};
    run_well(words, N(words));
    damage("base", how);
}

static void base_text(const char *text) {
    hostile_write_text("base", text);
}

/* ---- importance matrices --------------------------------------------------------------------- */

#define QUANTIZE "quantize -q model.gguf result Q4_0 1 --imatrix matrix"

static void matrix_of(const char *how) {
    static const char *const words[] = {"imatrix", "-q",   "-m", "model.gguf", "-t", "1",
                                        "-f",      "text", "-c", "16",         "-o", "matrix"};
    run_well(words, N(words));
    damage("matrix", how);
}

static void matrix_text(const char *text) {
    hostile_write_text("matrix", text);
}

static void matrix_is_model(const char *name) {
    if (rename(name, "matrix") != 0 || symlink("matrix", name) != 0) abort();
}

/* Writes the sums of one matrix; argument: "columns value". */
static void matrix_of_columns(const char *argument) {
    gguf_writer *w;
    pi_error err;
    char *end;
    uint64_t columns[2] = {strtoull(argument, &end, 10), 1}, one[2] = {1, 1};
    float value = strtof(end, NULL), sums[256];
    for (size_t i = 0; i < N(sums); i++) sums[i] = value;
    float count = 16;
    if (gguf_writer_create("matrix", &w, &err) != PI_OK) fail_msg("%s", err.message);
    gguf_put_string(w, "general.type", "imatrix");
    gguf_put_u32(w, "imatrix.chunk_count", 1);
    gguf_put_u32(w, "imatrix.chunk_size", 16);
    if (gguf_add_tensor(w, "blk.0.ffn_down.weight.in_sum2", QUANT_F32, 2, columns, &err) ||
        gguf_add_tensor(w, "blk.0.ffn_down.weight.counts", QUANT_F32, 2, one, &err) ||
        gguf_writer_begin_data(w, &err) ||
        gguf_write_data(w, sums, columns[0] * sizeof *sums, &err) ||
        gguf_write_data(w, &count, sizeof count, &err) || gguf_writer_finish(w, &err))
        fail_msg("%s", err.message);
}

/* ---- adapters -------------------------------------------------------------------------------- */

#define LORA "run -q -m model.gguf -p a -n 1 -t 1 --lora adapter"

/* Writes a pair of rank 2 for a 64 x 64 matrix; all numbers are VALUE. Argument: "NAME ALPHA
 * VALUE". */
static void adapter_for(const char *argument) {
    char name[64], full[96];
    float alpha, value, items[2 * 64];
    const uint64_t a[2] = {64, 2}, b[2] = {2, 64};
    gguf_writer *w;
    pi_error err;
    if (sscanf(argument, "%63s %f %f", name, &alpha, &value) != 3) abort();
    for (size_t i = 0; i < N(items); i++) items[i] = value;
    if (gguf_writer_create("adapter", &w, &err) != PI_OK) fail_msg("%s", err.message);
    gguf_put_string(w, "general.type", "adapter");
    gguf_put_string(w, "adapter.type", "lora");
    gguf_put_string(w, "general.architecture", "llama");
    gguf_put_f32(w, "adapter.lora.alpha", alpha);
    for (int half = 0; half < 2; half++) {
        snprintf(full, sizeof full, "%s.lora_%c", name, half ? 'b' : 'a');
        if (gguf_add_tensor(w, full, QUANT_F32, 2, half ? b : a, &err)) fail_msg("%s", err.message);
    }
    if (gguf_writer_begin_data(w, &err) || gguf_write_data(w, items, sizeof items, &err) ||
        gguf_write_data(w, items, sizeof items, &err) || gguf_writer_finish(w, &err))
        fail_msg("%s", err.message);
}

static void adapter_of(const char *how) {
    adapter_for("blk.0.attn_q.weight 2 0");
    damage("adapter", how);
}

static void adapter_is_model(const char *name) {
    size_t n;
    unsigned char *data = hostile_read(name, &n);
    hostile_write("adapter", data, n);
    free(data);
}

/* ---- token ids, texts ------------------------------------------------------------------------ */

#define EVAL "eval -q -m model.gguf -t 1 --tokens list --logits-out result"

static void list(const char *text) {
    hostile_write_text("list", text);
}

static void list_with_nul(const char *nothing) {
    (void)nothing;
    hostile_write("list", "260\0 261", 8);
}

static void odd_text(const char *text) {
    hostile_write_text("odd", text);
}

/* ---- descriptions of machines ---------------------------------------------------------------- */

#define PLACE "place -q -m model.gguf --json --profile machine"

#ifdef TEST_HAS_JSON
static void machine(const char *text) {
    hostile_write_text("machine", text);
}
#endif

const hostile_case hostile_other[] = {
    {"an adapter", adapter_for, "blk.0.attn_q.weight 2 0.5", LORA, 0, NULL},
    {"an adapter that is a model", adapter_is_model, "model.gguf", LORA, 1,
     "not an adapter: adapter: general.type is '', not adapter; give the model itself as the "
     "model"},
    {"an adapter cut within its header", adapter_of, "cut 60", LORA, 1,
     "2 tensors do not fit in a file of 60 bytes: adapter, byte 8: fetch the file again, or "
     "convert it again"},
    {"an adapter cut within its numbers", adapter_of, "cut -8", LORA, 1,
     "tensor 'blk.0.attn_q.weight.lora_b' ends at byte 1344 but the file has 1336: adapter, byte "
     "832: it is incomplete or damaged, fetch it again"},
    {"an adapter of a matrix that is not there", adapter_for, "blk.9.attn_q.weight 2 0", LORA, 1,
     "adapter of another model: adapter: blk.9.attn_q.weight.lora_a matches no matrix of "
     "model.gguf"},
    {"an adapter of a vector", adapter_for, "blk.0.attn_norm.weight 2 0", LORA, 1,
     "adapter of another model: adapter: blk.0.attn_norm.weight.lora_a matches no matrix of "
     "model.gguf"},
    {"an adapter of another shape", adapter_for, "blk.0.attn_k.weight 2 0", LORA, 1,
     "adapter of another model: adapter: tensor blk.0.attn_k.weight.lora_a is [64, 2] and its "
     "counterpart [2, 64], the model's matrix [64, 32]"},
    {"an adapter of embeddings as of a matrix", adapter_for, "token_embd.weight 2 0", LORA, 1,
     "adapter of another model: adapter: tensor token_embd.weight.lora_a is [64, 2] and its "
     "counterpart [2, 64], the model's matrix [64, 286]"},
    {"an adapter whose alpha is no number", adapter_for, "blk.0.attn_q.weight nan 0", LORA, 1,
     "bad adapter: adapter: key adapter.lora.alpha is not a number up to 1e6"},
    {"an adapter of infinite numbers", adapter_for, "blk.0.attn_q.weight 2 inf", LORA, 1,
     "not a finite number: model.gguf with its adapters: tensor blk.0.attn_q.weight in f32"},
    {"an adapter of numbers that overflow", adapter_for, "blk.0.attn_q.weight 2 1e30", LORA, 1,
     "not a finite number: model.gguf with its adapters: tensor blk.0.attn_q.weight in f32"},
#ifdef TEST_HAS_JSON
    {"a machine of nothing", machine, "", PLACE, 1, "*"},
    {"a machine that is a list", machine, "[]", PLACE, 1,
     "not a machine's description: machine: see docs/placement.md"},
    {"a machine without a CPU", machine, "{}", PLACE, 1, "machine: missing key stream_gbps: cpu"},
    {"a machine with a misspelt key", machine, "{\"cpus\": 1}", PLACE, 1,
     "unknown key cpus: machine: see docs/placement.md"},
    {"a machine with a word for a number", machine,
     "{\"cpu\": {\"stream_gbps\": \"fast\", \"gather_gbps\": 1}}", PLACE, 1,
     "machine: invalid value: cpu: stream_gbps must be a number"},
    {"a machine without any speed", machine,
     "{\"name\": \"desk\", \"cpu\": {\"stream_gbps\": 0, \"gather_gbps\": 1}}", PLACE, 1,
     "invalid value: cpu stream_gbps is 0: profile desk"},
    {"a machine of infinite memory", machine,
     "{\"cpu\": {\"stream_gbps\": 1, \"gather_gbps\": 1}, \"gpu\": {\"stream_gbps\": 1, "
     "\"gather_gbps\": 1, \"memory_gib\": 1e300}}",
     PLACE, 1, "machine: invalid memory size: gpu"},
    {"a machine of negative time", machine,
     "{\"sync_us\": -1, \"cpu\": {\"stream_gbps\": 1, \"gather_gbps\": 1}}", PLACE, 1,
     "invalid value: sync_us is -1e-06: profile machine"},
#endif
    {"cache of text", cache_text, "once upon a time", CACHE, 1,
     "not a saved session: cache: name another file"},
    {"empty cache", cache_text, "", CACHE, 1, "not a saved session: cache: name another file"},
    {"cache cut in its header", cache_of, "cut 20", CACHE, 1,
     "saved session is truncated: cache: delete it"},
    {"cache cut in its data", cache_of, "cut -100", CACHE, 1,
     "saved session has a wrong length: cache: 1264 bytes for 5 tokens: delete it"},
    {"cache with more at its end", cache_of, "add 8", CACHE, 1,
     "saved session has a wrong length: cache: 1372 bytes for 5 tokens: delete it"},
    {"cache of version 9", cache_of, "set 8 9", CACHE, 1,
     "saved session has version 9: cache: this library reads version 2; delete it"},
    {"cache of an older version", cache_of, "set 8 1", CACHE, 1,
     "saved session has version 1: cache: this library reads version 2; delete it"},
    {"cache of version -1", cache_of, "set 8 -1", CACHE, 1,
     "saved session has version 4294967295: cache: this library reads version 2; delete it"},
    {"cache with no token", cache_of, "set 12 0", CACHE, 1,
     "saved session is damaged: header of cache: delete it"},
    {"cache with -1 tokens", cache_of, "set 12 -1", CACHE, 1,
     "saved session is damaged: header of cache: delete it"},
    {"cache with other settings in its header", cache_of, "flip 48", CACHE, 1,
     "saved session is damaged: header of cache: delete it"},
    {"cache with a token of id -1", cache_of, "set 64 -1", CACHE, 1,
     "saved session is damaged: cache: delete it"},
    {"cache cut to its header", cache_of, "cut 64", CACHE, 1,
     "saved session has a wrong length: cache: 64 bytes for 5 tokens: delete it"},
    {"cache of fewer rotated elements", cache_of, "add 0",
     CACHE " --override-kv llama.rope.dimension_count=int:4", 1,
     "saved with other settings of this "
     "model: cache: use the same overridden keys, adapters and sparse FFN mode, or name another "
     "file"},
    {"cache of another norm epsilon", cache_of, "add 0",
     CACHE " --override-kv llama.attention.layer_norm_rms_epsilon=float:0.1", 1,
     "saved with other settings of this model: cache: use the same overridden keys, adapters and "
     "sparse FFN mode, or name another file"},
    {"cache with another number of tokens", cache_of, "set 12 2000000000", CACHE, 1,
     "saved session is damaged: header of cache: delete it"},
    {"cache with a bit flipped", cache_of, "flip -5", CACHE, 1,
     "saved session is damaged: cache: delete it"},
    {"cache of other types", cache_of_other_types, "", CACHE, 1,
     "saved with other cache types: cache: use the same types, or name another file"},
    {"cache of another model", cache_of_other_model, "",
     "run -q -m other.gguf -p abc -n 1 -t 1 -ctk f32 --prompt-cache cache", 1,
     "saved with another model: cache: delete it or name another file"},

    {"base run of text", base_text, "once upon a time, and no base run", KL, 1,
     "not a base run: base: write one first"},
    {"empty base run", base_text, "", KL, 1, "not a base run: base: 0 bytes: write one first"},
    {"base run cut in its header", base_of, "cut 20", KL, 1,
     "not a base run: base: 20 bytes: write one first"},
    {"base run cut in its data", base_of, "cut -2", KL, 1,
     "base run is damaged: base: 140254 bytes do not hold 16 windows of 16 tokens and 286 "
     "probabilities: make it again"},
    {"base run of version 9", base_of, "set 8 9", KL, 1,
     "base run of another version: base: version 9, flags 0: make it again with this program"},
    {"base run of 2^31 - 1 windows", base_of, "set 24 2147483647", KL, 1,
     "base run is damaged: base: 140256 bytes do not hold 2147483647 windows of 16 tokens and 286 "
     "probabilities: make it again"},
    {"base run of -1 tokens", base_of, "set 20 -1", KL, 1,
     "base run is damaged: base: 140256 bytes do not hold 16 windows of -1 tokens and 286 "
     "probabilities: make it again"},
    {"base run of another vocabulary", base_of, "set 16 100", KL, 1,
     "base run is damaged: base: 140256 bytes do not hold 16 windows of 16 tokens and 100 "
     "probabilities: make it again"},
    {"base run with a token outside the vocabulary", base_of, "set 36 286", KL, 1,
     "base run is damaged: base: token 1 has id 286 of 286: make it again"},
    {"base run with a row that is no distribution", base_of, "set -8 -1", KL, 1,
     "base run is damaged: base: probabilities of window 15, token 15: make it again"},

    {"matrix of text", matrix_text, "once upon a time, and no matrix", QUANTIZE, 1,
     "importance matrices are read in their GGUF form: not a GGUF file (it begins 6f 6e 63 "
     "65): matrix, byte 0: fetch the file again, or convert it again"},
    {"no matrix", odd_text, "", QUANTIZE, 1, "cannot open file: matrix: No such file or directory"},
    {"matrix cut off", matrix_of, "cut -40", QUANTIZE, 1,
     "importance matrices are read in their GGUF form: tensor 'blk.1.ffn_down.weight.in_sum2' "
     "ends at byte 6368 but the file has 6360: matrix, byte 5984: it is incomplete or damaged, "
     "fetch it again"},
    {"a model in place of a matrix", matrix_is_model, "model.gguf", QUANTIZE, 1,
     "not an importance matrix: matrix: general.type is not imatrix; make one with powerinfer "
     "imatrix"},
    {"matrix of another model", matrix_of_columns, "64 1", QUANTIZE, 1,
     "importance matrix of another model: matrix: blk.0.ffn_down.weight.in_sum2 has 64 numbers for "
     "1 matrices of 96 columns: collect it with this model"},
    {"matrix of NaN", matrix_of_columns, "96 nan", QUANTIZE, 1,
     "importance matrix is damaged: matrix: blk.0.ffn_down.weight.in_sum2 has a sum of squares of "
     "nan: collect it again"},
    {"matrix of negative sums", matrix_of_columns, "96 -1", QUANTIZE, 1,
     "importance matrix is damaged: matrix: blk.0.ffn_down.weight.in_sum2 has a sum of squares of "
     "-1: collect it again"},
    {"matrix of infinite sums", matrix_of_columns, "96 inf", QUANTIZE, 1,
     "importance matrix is damaged: matrix: blk.0.ffn_down.weight.in_sum2 has a sum of squares of "
     "inf: collect it again"},

    {"no ids", list, "", EVAL, 1, "no token ids: list: give at least one"},
    {"only blanks", list, " \n\t\n", EVAL, 1, "no token ids: list: give at least one"},
    {"a word among ids", list, "260\n261 two 262", EVAL, 1,
     "\"two\" is not a token id: list, line 2: give whole numbers separated by white space"},
    {"commas", list, "260,261", EVAL, 1,
     "\"260,261\" is not a token id: list, line 1: give whole numbers separated by white space"},
    {"an id beyond the vocabulary", list, "260\n286\n", EVAL, 1,
     "token id 286 is outside the vocabulary: list, line 2: this model has ids 0 to 285"},
    {"a negative id", list, "-1", EVAL, 1,
     "token id -1 is outside the vocabulary: list, line 1: this model has ids 0 to 285"},
    {"an id of 30 digits", list, "100000000000000000000000000000", EVAL, 1,
     "\"100000000000000000000000000000\" is not a token id: list, line 1: give whole numbers "
     "separated by white space"},
    {"a fraction", list, "1.5", EVAL, 1,
     "\"1.5\" is not a token id: list, line 1: give whole numbers separated by white space"},
    {"a NUL", list_with_nul, "", EVAL, 1,
     "\"260\" is not a token id: list, line 1: give whole numbers separated by white space"},
    {"an escape", list, "\x1b[2J", EVAL, 1,
     "\"\\x1B[2J\" is not a token id: list, line 1: give whole numbers separated by white space"},
    {"a text that is no UTF-8", odd_text, "abc \xff\xfe def and so on and on",
     "perplexity -q -m model.gguf -t 1 -f odd -c 8", 1,
     "not a text: byte 4 is not UTF-8: give a file of UTF-8 text"},
    {"a text shorter than a window", odd_text, "ab", "perplexity -q -m model.gguf -t 1 -f odd -c 8",
     1,
     "the text is too short: perplexity: it has 4 tokens, a window 8: give a longer text or "
     "smaller windows"},
    {"no text for a matrix", odd_text, "", "imatrix -q -m model.gguf -t 1 -f odd -c 8 -o result", 1,
     "the text is empty: odd: give another"},
};
const size_t hostile_n_other = N(hostile_other);
