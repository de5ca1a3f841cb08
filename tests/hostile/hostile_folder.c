/* hostile_folder.c: Hugging Face folders: configurations, safetensors, vocabularies. hf/ is a valid
 * folder without a vocabulary; each case replaces or adds one file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hf_folder.h"
#include "hostile.h"

#define N(array) (sizeof(array) / sizeof *(array))
#define LINE     "convert -q hf -o result -t 1"
#define WITH     "convert -q hf -o result -t 1 --predictors pred"

/* ---- JSON ------------------------------------------------------------------------------------ */

static void config(const char *text) {
    hostile_write_text("hf/config.json", text);
}

static void no_file(const char *path) {
    if (unlink(path) != 0) abort();
}

/* The pipe has no writer: opening it must not block. */
static void a_pipe(const char *path) {
    unlink(path);
    if (mkfifo(path, 0600) != 0) abort();
}

/* Writes a valid configuration with the replacement "was>is". */
static void config_edit(const char *edit) {
    size_t n;
    unsigned char *text = hostile_read("hf/config.json", &n);
    const char *arrow = strchr(edit, '>');
    size_t n_was = (size_t)(arrow - edit), n_is = strlen(arrow + 1);
    unsigned char *at = memmem(text, n, edit, n_was);
    if (!at) abort();
    size_t before = (size_t)(at - text), after = n - before - n_was;
    char *out = malloc(n - n_was + n_is);
    if (!out) abort();
    memcpy(out, text, before);
    memcpy(out + before, arrow + 1, n_is);
    memcpy(out + before + n_is, at + n_was, after);
    hostile_write("hf/config.json", out, before + n_is + after);
    free(out);
    free(text);
}

/* Writes a configuration of `depth` nested brackets. */
static void config_depth(const char *depth) {
    size_t n = strtoul(depth, NULL, 10);
    char *text = malloc(2 * n + 8);
    if (!text) abort();
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', n);
    memset(text + 5 + n, ']', n);
    text[5 + 2 * n] = '}';
    hostile_write("hf/config.json", text, 6 + 2 * n);
    free(text);
}

static void tokenizer_json(const char *text) {
    hostile_write_text("hf/tokenizer.json", text);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

enum { DATA_BYTES = 64 };

/* Writes the header text and 64 bytes of data; the length in front is `n_header`. */
static void write_tensors(const char *header, uint64_t n_header) {
    uint8_t out[4096] = {0};
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(n_header >> (8 * i));
    memcpy(out + 8, header, n);
    hostile_write("hf/model.safetensors", out, 8 + n + DATA_BYTES);
}

static void tensors(const char *header) {
    write_tensors(header, strlen(header));
}

static void tensors_of_length(const char *length) {
    write_tensors("{}", strtoull(length, NULL, 0));
}

static void tensors_cut(const char *keep) {
    size_t n;
    unsigned char *data = hostile_read("hf/model.safetensors", &n);
    long k = strtol(keep, NULL, 10);
    hostile_write("hf/model.safetensors", data, k < 0 ? n - (size_t)-k : (size_t)k);
    free(data);
}

/* Sets element `element` of the first tensor, the embeddings, to NaN. */
static void tensors_with_nan(const char *element) {
    static const uint32_t nan = 0x7FC00000;
    size_t n;
    unsigned char *data = hostile_read("hf/model.safetensors", &n);
    uint64_t n_header = 0;
    for (int i = 0; i < 8; i++) n_header |= (uint64_t)data[i] << (8 * i);
    memcpy(data + 8 + n_header + 4 * strtoul(element, NULL, 10), &nan, sizeof nan);
    hostile_write("hf/model.safetensors", data, n);
    free(data);
}

static void shard_list(const char *text) {
    no_file("hf/model.safetensors");
    hostile_write_text("hf/model.safetensors.index.json", text);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

/* "0a 03 ..." */
static void pieces(const char *hex) {
    uint8_t out[256];
    size_t n = 0;
    for (char *end; *hex; hex = end) out[n++] = (uint8_t)strtoul(hex, &end, 16);
    hostile_write("hf/tokenizer.model", out, n);
}

#define TENSOR(entry) "{\"x\":{" entry "}}"

/* ---- predictors ------------------------------------------------------------------------------ */

/* Writes the first layer's predictor file next to a model whose activation is mostly zero. */
static void predictor(const char *text) {
    config_edit("\"hidden_size\":64>\"hidden_act\":\"relu\",\"hidden_size\":64");
    if (mkdir("pred", 0700) != 0) abort();
    if (text) hostile_write_text("pred/model_0.pt", text);
}

static void predictor_config(const char *text) {
    predictor(NULL);
    hostile_write_text("pred/config.json", text);
}

const hostile_case hostile_folder[] = {
    {"no folder", config, "{}", "convert -q nowhere -o result", 1,
     "not a folder: nowhere: convert needs a Hugging Face model folder"},
    {"a file in place of a folder", config, "{}", "convert -q text -o result", 1,
     "not a folder: text: convert needs a Hugging Face model folder"},
    {"a pipe for config.json", a_pipe, "hf/config.json", LINE, 1,
     "is not a regular file: hf/config.json: save it to disk first"},
    {"a pipe for weights", a_pipe, "hf/model.safetensors", LINE, 1,
     "is not a regular file: hf/model.safetensors: save it to disk first"},
    {"a pipe for the vocabulary", a_pipe, "hf/tokenizer.model", LINE, 1,
     "is not a regular file: hf/tokenizer.model: save it to disk first"},
    {"no config.json", no_file, "hf/config.json", LINE, 1,
     "no config.json: hf: expected a Hugging Face model folder"},
    {"no weights", no_file, "hf/model.safetensors", LINE, 1,
     "no weights: hf: expected model.safetensors or pytorch_model.bin, or the .index.json of one "
     "with its files"},

    {"predictors for an activation that is never zero", config_edit, "5>5", WITH, 1,
     "predictors do not apply: architecture llama, activation silu: an activation that is never "
     "zero"},
    {"predictors that are not there", predictor, NULL, WITH, 1,
     "no predictor: pred/model_0.pt: a folder of predictors has one for each of 2 layers"},
    {"an empty predictor", predictor, "", WITH, 1,
     "not a zip archive: pred/model_0.pt: pytorch_model.bin of torch 1.6 or newer, or safetensors, "
     "can be converted"},
    {"a predictor that is no archive", predictor, "a text that is longer than an archive's end",
     WITH, 1,
     "not a zip archive: pred/model_0.pt: pytorch_model.bin of torch 1.6 or newer, or safetensors, "
     "can be converted"},
    {"a threshold that is text", predictor_config, "{\"sparse_threshold\":\"0\"}", WITH, 1,
     "bad configuration: pred/config.json: sparse_threshold is not a usable number"},
    {"a threshold that is huge", predictor_config, "{\"sparse_threshold\":1e300}", WITH, 1,
     "bad configuration: pred/config.json: sparse_threshold is not a usable number"},

    {"config is empty", config, "", LINE, 1,
     "bad JSON: hf/config.json line 1 column 0: unexpected token near end of file"},
    {"config is cut off", config, "{\"model_type\":\"lla", LINE, 1,
     "bad JSON: hf/config.json line 1 column 18: premature end of input near '\"lla'"},
    {"config is a list", config, "[1,2]", LINE, 1,
     "not a JSON object: hf/config.json: download the file again"},
    {"config is no UTF-8", config, "{\"model_type\":\"\xff\xfe\"}", LINE, 1,
     "bad JSON: hf/config.json line 1 column 15: unable to decode byte 0xff near '\"'"},
    {"config has a key twice", config, "{\"model_type\":\"llama\",\"model_type\":\"qwen3\"}", LINE,
     1, "bad JSON: hf/config.json line 1 column 34: duplicate object key near '\"model_type\"'"},
    {"config has a huge number", config, "{\"model_type\":\"llama\",\"vocab_size\":1e400}", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is missing"},
    {"config has an endless integer", config,
     "{\"model_type\":\"llama\",\"vocab_size\":99999999999999999999999999}", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is missing"},
    {"config nests 100000 deep", config_depth, "100000", LINE, 1,
     "JSON is nested too deeply: hf/config.json: at most 64 levels"},
    {"config nests 60 deep", config_depth, "60", LINE, 1,
     "bad configuration: hf/config.json: model_type is missing or not a string"},
    {"config has more behind it", config_edit, "\"rms_norm_eps\":1e-05}>\"rms_norm_eps\":1e-05}}",
     LINE, 1, "bad JSON: hf/config.json line 1 column 242: end of file expected near '}'"},
    {"config of nothing", config, "{}", LINE, 1,
     "bad configuration: hf/config.json: model_type is missing or not a string"},
    {"type is a number", config, "{\"model_type\":7}", LINE, 1,
     "bad configuration: hf/config.json: model_type is missing or not a string"},
    {"type is unknown", config, "{\"model_type\":\"mamba\\u001b[2J\"}", LINE, 1,
     "unknown model type 'mamba\\x1B[2J': hf/config.json: this version converts *"},
    {"a size is missing", config_edit, "\"hidden_size\":64,>", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is missing"},
    {"a size is text", config_edit, "\"hidden_size\":64>\"hidden_size\":\"64\"", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is not an integer"},
    {"a size is null", config_edit, "\"hidden_size\":64>\"hidden_size\":null", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is missing"},
    {"a size is a fraction", config_edit, "\"hidden_size\":64>\"hidden_size\":64.5", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is not an integer"},
    {"a size is 0", config_edit, "\"num_attention_heads\":4>\"num_attention_heads\":0", LINE, 1,
     "bad configuration: hf/config.json: num_attention_heads is 0, not in 1..1024"},
    {"a size is 2^40", config_edit, "\"hidden_size\":64>\"hidden_size\":1099511627776", LINE, 1,
     "bad configuration: hf/config.json: hidden_size is 1099511627776, not in 1..1048576"},
    {"3 KV heads for 4", config_edit, "\"num_key_value_heads\":2>\"num_key_value_heads\":3", LINE,
     1,
     "bad configuration: hf/config.json: num_attention_heads is not a multiple of "
     "num_key_value_heads"},
    {"epsilon is -1", config_edit, "\"rms_norm_eps\":1e-05>\"rms_norm_eps\":-1", LINE, 1,
     "bad configuration: hf/config.json: rms_norm_eps is -1, not in 0..1"},
    {"another width than the weights", config_edit,
     "\"intermediate_size\":96>"
     "\"intermediate_size\":128",
     LINE, 1,
     "unexpected shape: hf/model.safetensors: tensor model.layers.0.mlp.gate_proj.weight is [96, "
     "64], config.json needs [128, 64]"},
    {"more layers than weights", config_edit, "\"num_hidden_layers\":2>\"num_hidden_layers\":3",
     LINE, 1,
     "missing tensor: model.layers.2.input_layernorm.weight is in no safetensors file of the "
     "folder: model type and config.json need it"},
    {"fewer layers than weights", config_edit, "\"num_hidden_layers\":2>\"num_hidden_layers\":1",
     LINE, 1,
     "unknown tensor: hf/model.safetensors: model.layers.1.input_layernorm.weight has no place in "
     "a model of 1 layers of architecture llama"},
    {"quantized another way", config_edit,
     "1e-05}>1e-05,\"quantization_config\":{\"quant_method\":\"awq\"}}", LINE, 1,
     "quantized checkpoint: hf/config.json: quantization_config has the method 'awq': fp8, "
     "mxfp4 and nvfp4 can be converted; otherwise take the original in F16, BF16 or F32"},
    {"a kind of layer that is not known", config_edit,
     "1e-05}>1e-05,\"sliding_window\":64,\"layer_types\":[\"linear_attention\",\"x\"]}", LINE, 1,
     "bad configuration: hf/config.json: layer_types has an unknown kind of layer"},
    {"windows of too few layers", config_edit,
     "1e-05}>1e-05,\"sliding_window\":64,\"layer_types\":[\"full_attention\"]}", LINE, 1,
     "bad configuration: hf/config.json: layer_types has fewer entries than there are layers"},
    {"more experts used than there are", config_edit,
     "\"llama\">\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":5", LINE, 1,
     "bad configuration: hf/config.json: num_experts_per_tok is 5, not in 1..4"},
    {"experts that are not there", config_edit,
     "\"llama\">\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":2", LINE, 1,
     "missing tensor: model.layers.0.block_sparse_moe.gate.weight is in no safetensors file of the "
     "folder: model type and config.json need it"},

    {"weights are empty", tensors_cut, "0", LINE, 1,
     "shorter than its 8-byte length field: hf/model.safetensors: download the file again"},
    {"weights cut in the length", tensors_cut, "5", LINE, 1,
     "shorter than its 8-byte length field: hf/model.safetensors: download the file again"},
    {"weights cut in the header", tensors_cut, "100", LINE, 1,
     "header length 2110 is beyond the file or the limit of 100000000: hf/model.safetensors: is it "
     "a safetensors file?"},
    {"weights cut in the data", tensors_cut, "-1", LINE, 1,
     "truncated file: hf/model.safetensors: tensor model.layers.1.mlp.down_proj.weight ends at "
     "byte 267520 of 267519: download the file again"},
    {"a header of 2^63 bytes", tensors_of_length, "0x8000000000000000", LINE, 1,
     "header length 9223372036854775808 is beyond the file or the limit of 100000000: "
     "hf/model.safetensors: is it a safetensors file?"},
    {"a header of 2^64 - 8 bytes", tensors_of_length, "0xfffffffffffffff8", LINE, 1,
     "header length 18446744073709551608 is beyond the file or the limit of 100000000: "
     "hf/model.safetensors: is it a safetensors file?"},
    {"a header of 0 bytes", tensors_of_length, "0", LINE, 1,
     "header is not a JSON object: hf/model.safetensors: download the file again"},
    {"a header that is no JSON", tensors, "{x}", LINE, 1,
     "bad JSON: hf/model.safetensors line 1 column 2: string or '}' expected near 'x'"},
    {"a header that is a list", tensors, "[]", LINE, 1,
     "header is not a JSON object: hf/model.safetensors: download the file again"},
    {"a header of nothing", tensors, "{}", LINE, 1,
     "no tensors: hf/model.safetensors: download the file again"},
    {"a tensor that is a number", tensors, "{\"x\":5}", LINE, 1,
     "header entry is not an object: hf/model.safetensors: tensor x: download the file again"},
    {"a tensor without a type", tensors, TENSOR("\"shape\":[16],\"data_offsets\":[0,64]"), LINE, 1,
     "unknown data type '(none)': hf/model.safetensors: tensor x: F32, F16 and BF16 can be "
     "converted"},
    {"a tensor of an unknown type", tensors,
     TENSOR("\"dtype\":\"F3\",\"shape\":[16],\"data_offsets\":[0,64]"), LINE, 1,
     "unknown data type 'F3': hf/model.safetensors: tensor x: F32, F16 and BF16 can be converted"},
    {"a tensor without a shape", tensors, TENSOR("\"dtype\":\"F32\",\"data_offsets\":[0,64]"), LINE,
     1, "shape is not an array: hf/model.safetensors: tensor x: download the file again"},
    {"a negative dimension", tensors,
     TENSOR("\"dtype\":\"F32\",\"shape\":[-16],\"data_offsets\":[0,64]"), LINE, 1,
     "shape has an item that is not a size: hf/model.safetensors: tensor x: download the file "
     "again"},
    {"a shape that overflows", tensors,
     TENSOR("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,64]"), LINE, 1,
     "shape overflows: hf/model.safetensors: tensor x: download the file again"},
    {"one offset", tensors, TENSOR("\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0]"), LINE,
     1, "data_offsets are not a range: hf/model.safetensors: tensor x: download the file again"},
    {"offsets the wrong way round", tensors,
     TENSOR("\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[64,0]"), LINE, 1,
     "data_offsets are not a range: hf/model.safetensors: tensor x: download the file again"},
    {"offsets beyond the file", tensors,
     TENSOR("\"dtype\":\"F32\",\"shape\":[32],\"data_offsets\":[0,128]"), LINE, 1,
     "truncated file: hf/model.safetensors: tensor x ends at byte 128 of 64: download the file "
     "again"},
    {"offsets that are not the shape's", tensors,
     TENSOR("\"dtype\":\"F32\",\"shape\":[15],\"data_offsets\":[0,64]"), LINE, 1,
     "size and shape disagree: hf/model.safetensors: tensor x has 64 bytes, its shape needs 60: "
     "download the file again"},
    {"an overlap", tensors,
     "{\"x\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0,64]},"
     "\"y\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[32,64]}}",
     LINE, 1,
     "data overlaps another tensor's: hf/model.safetensors: tensor y: download the file again"},
    {"a hole", tensors, TENSOR("\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[32,64]"), LINE, 1,
     "unused bytes before the data: hf/model.safetensors: tensor x: download the file again"},
    {"NaN", tensors_with_nan, "130", LINE, 1,
     "not a finite number: hf/model.safetensors: tensor model.embed_tokens.weight, row 2: download "
     "the file again"},
    {"a list of nothing", shard_list, "{}", LINE, 1,
     "no weight_map: hf/model.safetensors.index.json: download the file again"},
    {"a list with a missing file", shard_list,
     "{\"weight_map\":{\"x\":\"model-00001-of-00002.safetensors\"}}", LINE, 1,
     "missing file: hf/model-00001-of-00002.safetensors: named by model.safetensors.index.json: "
     "download it too"},
    {"a list that leads elsewhere", shard_list, "{\"weight_map\":{\"x\":\"../../secret\"}}", LINE,
     1,
     "bad file name: hf/model.safetensors.index.json: tensor x must be in a .safetensors file of "
     "the same folder"},
    {"a list of numbers", shard_list, "{\"weight_map\":{\"x\":5}}", LINE, 1,
     "bad file name: hf/model.safetensors.index.json: tensor x must be in a .safetensors file of "
     "the same folder"},

    {"vocabulary is no JSON", tokenizer_json, "{\"model\":", LINE, 1,
     "bad JSON: hf/tokenizer.json line 1 column 9: unexpected token near end of file"},
    {"vocabulary of nothing", tokenizer_json, "{}", LINE, 1,
     "bad tokenizer: hf/tokenizer.json: model is not an object"},
    {"vocabulary of another kind", tokenizer_json, "{\"model\":{\"type\":\"WordLevel\"}}", LINE, 1,
     "unknown kind of tokenizer: hf/tokenizer.json: model.type is 'WordLevel'; BPE, WordPiece and "
     "Unigram can be converted"},
    {"Unigram without pieces", tokenizer_json, "{\"model\":{\"type\":\"Unigram\"}}", LINE, 1,
     "bad tokenizer: hf/tokenizer.json: model.vocab is not a list of pieces, at most one for each "
     "row of the embedding matrix"},
    {"Unigram with a piece without a score", tokenizer_json,
     "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\"]]}}", LINE, 1,
     "bad tokenizer: hf/tokenizer.json: a piece has no text or no score"},
    {"Unigram with a bad table", tokenizer_json,
     "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"},"
     "\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}}",
     LINE, 1, "bad tokenizer: hf/tokenizer.json: precompiled_charsmap is not text in base64"},
    {"WordPiece without a normalizer", tokenizer_json, "{\"model\":{\"type\":\"WordPiece\"}}", LINE,
     1,
     "unknown kind of tokenizer: hf/tokenizer.json: WordPiece without BertNormalizer, or with "
     "another prefix than ##"},
    {"WordPiece without added tokens", tokenizer_json,
     "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"model\":{\"type\":\"WordPiece\"}}", LINE, 1,
     "bad tokenizer: hf/tokenizer.json: added_tokens is not an array"},
    {"WordPiece without a vocabulary", tokenizer_json,
     "{\"added_tokens\":[5],\"normalizer\":{\"type\":\"BertNormalizer\"},"
     "\"model\":{\"type\":\"WordPiece\"}}",
     LINE, 1, "bad tokenizer: hf/tokenizer.json: model.vocab is not an object of tokens and ids"},
    {"vocabulary with an id beyond the embeddings", tokenizer_json,
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":40},"
     "\"merges\":[]}}",
     LINE, 1,
     "bad tokenizer: hf/tokenizer.json: id of token 'a' is not in 0..39, the rows of the embedding "
     "matrix"},
    {"vocabulary with an id twice", tokenizer_json,
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,"
     "\"b\":1},\"merges\":[]}}",
     LINE, 1, "bad tokenizer: hf/tokenizer.json: two tokens have the id 1"},
    {"vocabulary with merges of unknown tokens", tokenizer_json,
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
     "\"b\":1},\"merges\":[\"a b\"]}}",
     LINE, 1,
     "bad tokenizer: hf/tokenizer.json: merge 0, 'a b' and 'b', is not of tokens of the "
     "vocabulary"},
    {"merges that are numbers", tokenizer_json,
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},"
     "\"merges\":[5]}}",
     LINE, 1, "bad tokenizer: hf/tokenizer.json: merge 0 is not two texts"},

    {"pieces of text", pieces, "6e 6f 74 20 61 20 6d 6f 64 65 6c", LINE, 1,
     "unknown wire type: hf/tokenizer.model at byte 1: is it a SentencePiece model? download it "
     "again"},
    {"pieces cut off", pieces, "0a 09 0a 05 3c 75", LINE, 1,
     "length beyond the end of the message: hf/tokenizer.model at byte 2: is it a SentencePiece "
     "model? download it again"},
    {"a piece of 2^63 bytes", pieces, "0a ff ff ff ff ff ff ff ff ff 01", LINE, 1,
     "length beyond the end of the message: hf/tokenizer.model at byte 11: is it a SentencePiece "
     "model? download it again"},
    {"a number without end", pieces, "0a ff ff ff ff ff ff ff ff ff ff ff ff", LINE, 1,
     "number longer than 64 bits: hf/tokenizer.model at byte 11: is it a SentencePiece model? "
     "download it again"},
    {"no pieces", pieces, "12 02 18 02", LINE, 1,
     "no pieces: hf/tokenizer.model at byte 4: is it a SentencePiece model? download it again"},
    {"empty pieces", pieces, "0a 02 0a 00 12 02 18 02", LINE, 1,
     "piece without text: hf/tokenizer.model at byte 4: is it a SentencePiece model? download it "
     "again"},
    {"pieces for another algorithm", pieces, "0a 03 0a 01 7a", LINE, 1,
     "unknown kind of tokenizer: hf/tokenizer.model: a SentencePiece model of kind 1; BPE (2) can "
     "be converted"},
    {"pieces twice", pieces, "0a 03 0a 01 7a 0a 03 0a 01 7a 12 02 18 02", LINE, 1,
     "duplicate token: hf/tokenizer.model: ids 0 and 1 are both 'z'"},
};
const size_t hostile_n_folder = N(hostile_folder);
