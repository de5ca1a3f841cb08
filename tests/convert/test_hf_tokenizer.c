/* test_hf_tokenizer.c: names of pre-tokenizers, and vocabularies that split text as the Hugging
 * Face files define. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base64.h"
#include "file.h"
#include "gguf.h"
#include "gguf_writer.h"
#include "hf_folder.h"
#include "hf_pretokenizer.h"
#include "hf_rwkv.h"
#include "hf_tokenizer.h"
#include "mem.h"
#include "pretokenizer.h"
#include "shared_data.h"
#include "tokenizer.h"

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

#define SPLIT(regex)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\","         \
    "\"invert\":false}"
#define BYTES_ONLY    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define BYTE_LEVEL    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}"
#define SEQUENCE(...) "{\"type\":\"Sequence\",\"pretokenizers\":[" __VA_ARGS__ "]}"
#define SPACES        "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS         "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+"
#define MARKS         " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"

static void test_pretokenizer_names(void **state) {
    (void)state;
    static const struct {
        const char *json, *name;
    } cases[] = {
        {BYTE_LEVEL, "gpt-2"},
        {SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL), "starcoder"},
        {SEQUENCE("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," BYTE_LEVEL
                  "," SPLIT("[0-9][0-9][0-9]")),
         "falcon"},
        {SEQUENCE(SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|" WORDS
                        "|\\\\p{N}{1,3}|" MARKS SPACES) "," BYTES_ONLY),
         "llama-bpe"},
        {SEQUENCE(SPLIT("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|" WORDS
                        "|\\\\p{N}{1,3}|" MARKS SPACES) "," BYTES_ONLY),
         "llama-bpe"},
        {SEQUENCE(
             SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|" WORDS "|\\\\p{N}|" MARKS SPACES) "," BYTES_ONLY),
         "qwen2"},
        {SEQUENCE(
             SPLIT("[\\r\\n]") "," SPLIT("\\\\s?\\\\p{L}+") "," SPLIT("\\\\s?\\\\p{P}+") "," SPLIT(
                 "[一-龥ࠀ-一가-퟿]+") ",{\"type\":\"Digits\",\"individual_digits\":true}"
                                             "," BYTES_ONLY),
         NULL}, /* raw line ends within the class: not the model's spelling */
        {SEQUENCE(SPLIT("[\\\\r\\\\n]") "," SPLIT("\\\\s?\\\\p{L}+") "," SPLIT(
             "\\\\s?\\\\p{P}+") "," SPLIT("[一-龥ࠀ-一가-퟿]+") ",{\"type\":\"Digits\","
                                                                      "\"individual_digits\":true}"
                                                                      "," BYTES_ONLY),
         "deepseek-coder"},
        {SEQUENCE(SPLIT(
             "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?(?:\\\\p{L}\\\\p{M}*(?: "
             "\\\\p{L}\\\\p{M}*)*)+|\\\\p{N}| "
             "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]?|\\\\s*[\\\\r\\\\n]"
             "|\\\\s+(?!\\\\S)|\\\\s+") "," BYTES_ONLY),
         "exaone-moe"},
        {SPLIT("a|b"), NULL},
        {"{\"type\":\"Metaspace\"}", NULL},
        {"{}", NULL},
        {SEQUENCE(BYTE_LEVEL "," BYTE_LEVEL), NULL},
        {SEQUENCE(SEQUENCE(SEQUENCE(BYTE_LEVEL))), NULL},
        {SEQUENCE(BYTE_LEVEL "," BYTE_LEVEL "," BYTE_LEVEL "," BYTE_LEVEL "," BYTE_LEVEL
                             "," BYTE_LEVEL "," BYTE_LEVEL "," BYTE_LEVEL "," BYTE_LEVEL),
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_doc *doc = NULL;
        pi_error err = {0};
        const char *name = NULL;
        if (json_parse(cases[i].json, strlen(cases[i].json), "t.json", &doc, &err) != PI_OK)
            fail_msg("%s", err.message);
        pi_status status = hf_pretokenizer_name(json_root(doc), "t.json", &name, &err);
        json_free(doc);
        if (!cases[i].name) {
            if (status != PI_ERR_UNSUPPORTED) fail_msg("case %zu is taken for %s", i, name);
        } else if (status != PI_OK || strcmp(name, cases[i].name) != 0) {
            fail_msg("case %zu, %s: %s", i, cases[i].name, status == PI_OK ? name : err.message);
        } else {
            /* the tokenizer must know the name that the converter writes */
            assert_non_null(pretokenizer_find(name, strlen(name)));
        }
    }
}

/* ---- vocabularies in use --------------------------------------------------------------------- */

static tokenizer *open_tokenizer(hf_folder *f, gguf_file **g) {
    pi_error err = {0};
    tokenizer *t = NULL;
    if (folder_convert(f, "f16", &err) != PI_OK) fail_msg("%s", err.message);
    if (gguf_open(f->out, NULL, g, &err) != PI_OK) fail_msg("%s", err.message);
    pi_status status = tokenizer_create(*g, NULL, &t, &err);
    if (status != PI_OK) fail_msg("%s", err.message);
    return t;
}

static void assert_ids(const tokenizer *t, const char *text, uint32_t flags, const int32_t *ids,
                       size_t n_ids) {
    int32_t found[64];
    size_t n;
    pi_error err = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, found, 64, &n, &err), PI_OK);
    if (n != n_ids) fail_msg("'%s' gives %zu tokens", text, n);
    for (size_t i = 0; i < n; i++)
        if (found[i] != ids[i]) fail_msg("'%s': token %zu is %d", text, i, found[i]);
}

#define ASSERT_IDS(t, text, flags, ...)                                                            \
    do {                                                                                           \
        const int32_t ids[] = {__VA_ARGS__};                                                       \
        assert_ids(t, text, flags, ids, sizeof ids / sizeof ids[0]);                               \
    } while (0)

static void test_byte_level_in_use(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "tokenizer.json", tiny_bpe_json);
    folder_write_text(&f, "generation_config.json",
                      "{\"bos_token_id\":30,\"eos_token_id\":[31,30]}");
    gguf_file *g = NULL;
    tokenizer *t = open_tokenizer(&f, &g);
    /* "h e" goes before "l l", and "he l" is the last merge: hello = hel + l + o or he + ll + o;
     * rank 1 joins l l before rank 2 can use the first of them */
    ASSERT_IDS(t, "hello", 0, 27, 29, 14);
    ASSERT_IDS(t, "helo ab", 0, 28, 14, 26, 0, 1);
    ASSERT_IDS(t, "a<tool>b", 0, 0, 31, 1);
    ASSERT_IDS(t, "a", TOKENIZER_ADD_SPECIAL, 30, 0);
    ASSERT_IDS(t, "a<|end|>", TOKENIZER_PARSE_SPECIAL, 0, 30);
    const tokenizer_info *info = tokenizer_get_info(t);
    assert_int_equal(info->bos, 30);
    assert_int_equal(info->eos, 31);
    assert_string_equal(info->pre, "llama-bpe");
    tokenizer_free(t);
    gguf_close(g);
    folder_close(&f);
}

/* The form of Llama 2 and similar models without tokenizer.model. Ranks decide: "▁a" is merged
 * before "ab", whose rank is higher, so " ab" is "▁a" + "b". */
static const char metaspace_json[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
    "{\"id\":1,\"content\":\"<s>\",\"special\":true},"
    "{\"id\":2,\"content\":\"</s>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]},"
    "\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"vocab\":{"
    "\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"<0x0A>\":3,\"<0xC3>\":4,\"<0xA9>\":5,\"\\u2581a\":6,"
    "\"ab\":7,\"cab\":8,\"\\u2581\":9,\"a\":10,\"b\":11,\"c\":12},"
    "\"merges\":[\"\\u2581 a\",\"a b\",\"c ab\"]}}";

static void test_metaspace_in_use(void **state) {
    (void)state;
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "tokenizer.json", metaspace_json);
    folder_write_text(&f, "special_tokens_map.json",
                      "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}");
    gguf_file *g = NULL;
    tokenizer *t = open_tokenizer(&f, &g);
    ASSERT_IDS(t, "ab", 0, 6, 11);
    ASSERT_IDS(t, "ab cab", 0, 6, 11, 9, 8);
    ASSERT_IDS(t, "a\n\xc3\xa9", 0, 6, 3, 4, 5);
    ASSERT_IDS(t, "a", TOKENIZER_ADD_SPECIAL, 1, 6);
    const tokenizer_info *info = tokenizer_get_info(t);
    assert_string_equal(info->model, "llama");
    assert_int_equal(info->bos, 1);
    assert_int_equal(info->eos, 2);
    assert_int_equal(info->unk, 0);
    assert_true(info->add_space_prefix);
    assert_false(info->add_eos);
    tokenizer_free(t);
    gguf_close(g);
    folder_close(&f);
}

/* Gemma 4's variant keeps its merges. */
static void test_plain_text_with_merges(void **state) {
    (void)state;
    static const char *const merges[] = {"\u2581 a", "a b", "c ab"};
    json_doc *doc;
    vocab v;
    pi_error err = {0};
    assert_int_equal(json_parse(metaspace_json, strlen(metaspace_json), "t.json", &doc, &err),
                     PI_OK);
    assert_int_equal(vocab_init(&v, 13, &err), PI_OK);
    assert_int_equal(hf_tokenizer_read(json_root(doc), "t.json", "gemma4", NULL, &v, &err), PI_OK);
    assert_string_equal(v.model, "gemma4");
    assert_int_equal(v.n_merges, 3);
    for (int i = 0; i < 3; i++) assert_true(gguf_string_is(v.merges[i], merges[i]));
    assert_int_equal(v.tokens[3].type, TOKEN_BYTE);
    assert_int_equal(v.tokens[0].type, TOKEN_UNKNOWN);
    assert_int_equal(v.tokens[6].type, TOKEN_NORMAL);
    vocab_free(&v);
    json_free(doc);
}

/* tokenizer.model with an added token, pieces that contain U+2581, and settings of
 * tokenizer_config.json that override the model's settings. */
static void test_sentencepiece_in_use(void **state) {
    (void)state;
    static const char pieces[] = "\x0a\x09\x0a\x05<unk>\x18\x02"
                                 "\x0a\x07\x0a\x03<s>\x18\x03"
                                 "\x0a\x08\x0a\x04</s>\x18\x03"
                                 "\x0a\x0a\x0a\x06<0x0A>\x18\x06"
                                 "\x0a\x08\x0a\x01z\x15\x00\x00\x80\xbf"
                                 "\x0a\x08\x0a\x01y\x15\x00\x00\x00\xc0"
                                 "\x0a\x09\x0a\x02zy\x15\x00\x00\x00\xbf"
                                 "\x0a\x0a\x0a\x06\xe2\x96\x81\xe2\x96\x81\x18\x04"
                                 "\x12\x02\x18\x02";
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write(&f, "tokenizer.model", pieces, sizeof pieces - 1);
    folder_write_text(&f, "tokenizer_config.json",
                      "{\"add_bos_token\":false,\"add_eos_token\":true,\"add_prefix_space\":false,"
                      "\"bos_token\":\"<s>\",\"pad_token\":\"<pad>\",\"added_tokens_decoder\":{"
                      "\"0\":{\"content\":\"<unk>\",\"special\":true},"
                      "\"8\":{\"content\":\"<pad>\",\"special\":true}},"
                      "\"chat_template\":\"old\"}");
    folder_write_text(&f, "added_tokens.json", "{\"<pad>\":8,\"<extra>\":9}");
    folder_write_text(&f, "chat_template.jinja", "{{ new }}");
    gguf_file *g = NULL;
    tokenizer *t = open_tokenizer(&f, &g);
    ASSERT_IDS(t, "zyy", 0, 6, 5);
    ASSERT_IDS(t, "z  y", 0, 4, 7, 5);
    ASSERT_IDS(t, "z<extra>", 0, 4, 9);
    ASSERT_IDS(t, "y", TOKENIZER_ADD_SPECIAL, 5, 2);
    const tokenizer_info *info = tokenizer_get_info(t);
    assert_int_equal(info->pad, 8);
    assert_false(info->add_space_prefix);
    const gguf_value *types = gguf_find(g, "tokenizer.ggml.token_type");
    uint64_t type;
    assert_true(gguf_item_u64(types, 0, &type) && type == TOKEN_UNKNOWN);
    assert_true(gguf_item_u64(types, 8, &type) && type == TOKEN_CONTROL);
    gguf_string text;
    assert_true(gguf_as_string(gguf_find(g, "tokenizer.chat_template"), &text));
    assert_true(gguf_string_is(text, "{{ new }}"));
    tokenizer_free(t);
    gguf_close(g);
    folder_close(&f);
}

/* Pieces within a word lose "##", the others get U+2581, except special tokens. */
static void test_wordpiece_in_use(void **state) {
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"[PAD]\",\"special\":true},"
        "{\"id\":1,\"content\":\"[UNK]\",\"special\":true},"
        "{\"id\":2,\"content\":\"[CLS]\",\"special\":true},"
        "{\"id\":3,\"content\":\"[SEP]\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true,\"strip_accents\":null},"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
        "\"continuing_subword_prefix\":\"##\",\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,"
        "\"[SEP]\":3,\"[unused0]\":4,\"play\":5,\"##ing\":6,\"##er\":7,\"#\":8,\"##\":9}}}";
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "tokenizer.json", json);
    folder_write_text(&f, "tokenizer_config.json",
                      "{\"cls_token\":\"[CLS]\",\"sep_token\":\"[SEP]\",\"pad_token\":\"[PAD]\"}");
    gguf_file *g = NULL;
    tokenizer *t = open_tokenizer(&f, &g);
    ASSERT_IDS(t, "Playing player", TOKENIZER_ADD_SPECIAL, 2, 5, 6, 5, 7, 3);
    ASSERT_IDS(t, "pl\xC3\xA0ying # x", 0, 5, 6, 8, 1);
    tokenizer_free(t);
    gguf_close(g);
    folder_close(&f);
}

/* XLM-RoBERTa's form. "ab" costs less than "a" and "b"; a table of no entries changes nothing. */
static void test_unigram_in_use(void **state) {
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":2,\"content\":\"</s>\",\"special\":true},"
        "{\"id\":9,\"content\":\"<mask>\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAAAAAA=\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"add_prefix_space\":true}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}]},"
        "\"model\":{\"type\":\"Unigram\",\"unk_id\":3,\"vocab\":[[\"<s>\",0.0],[\"<pad>\",0.0],"
        "[\"</s>\",0.0],[\"<unk>\",0.0],[\"\\u2581\",-2.0],[\"a\",-3.0],[\"b\",-3.0],[\"ab\",-5.4],"
        "[\"\\u2581a\",-4.5],[\"<mask>\",0.0]]}}";
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, "tokenizer.json", json);
    folder_write_text(&f, "tokenizer_config.json",
                      "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"cls_token\":\"<s>\","
                      "\"sep_token\":\"</s>\",\"mask_token\":\"<mask>\"}");
    gguf_file *g = NULL;
    tokenizer *t = open_tokenizer(&f, &g);
    ASSERT_IDS(t, "aba", 0, 4, 7, 5); /* 2 + 5.4 + 3, not 4.5 + 3 + 3 */
    ASSERT_IDS(t, "  ba   a ", TOKENIZER_ADD_SPECIAL, 0, 4, 6, 5, 8, 2);
    ASSERT_IDS(t, "az", 0, 8, 3);
    const tokenizer_info *info = tokenizer_get_info(t);
    assert_string_equal(info->model, "t5");
    assert_int_equal(info->bos, 0);
    assert_int_equal(info->eos, 2);
    const gguf_value *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    uint64_t id;
    assert_true(map && map->count == 11);
    assert_true(gguf_as_u64(gguf_find(g, "tokenizer.ggml.mask_token_id"), &id) && id == 9);
    tokenizer_free(t);
    gguf_close(g);
    folder_close(&f);
}

/* tokenizer.json of a published vocabulary, made from its GGUF form, gives the recorded ids. */
static void test_published_unigram(void **state) {
    (void)state;
    char path[1024], *text, line[4096];
    gguf_file *g;
    pi_error err = {0};
    if (!shared_path(path, sizeof path, "conformance/encode/unigram.vocab.gguf")) skip();
    assert_int_equal(gguf_open(path, NULL, &g, &err), PI_OK);
    const gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens"),
                     *scores = gguf_find(g, "tokenizer.ggml.scores"),
                     *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    const size_t room = 64 * (size_t)tokens->count + 2 * (size_t)map->count;
    char *json = malloc(room);
    assert_non_null(json);
    size_t n = (size_t)snprintf(json, room,
                                "{\"normalizer\":{\"type\":\"Precompiled\","
                                "\"precompiled_charsmap\":\"");
    n += base64_encode(map->data, (size_t)map->count, json + n);
    n += (size_t)snprintf(json + n, room - n,
                          "\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                          "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\"}]},"
                          "\"model\":{\"type\":\"Unigram\",\"unk_id\":3,\"vocab\":[");
    const uint8_t *cursor = tokens->data;
    for (uint64_t i = 0; i < tokens->count; i++) {
        const gguf_string s = gguf_next_string(&cursor);
        double score;
        assert_true(gguf_item_f64(scores, i, &score));
        n += (size_t)snprintf(json + n, room - n, "%s[\"", i ? "," : "");
        for (size_t k = 0; k < s.n_bytes; k++)
            n += (size_t)snprintf(json + n, room - n, strchr("\"\\", s.data[k]) ? "\\%c" : "%c",
                                  s.data[k]);
        n += (size_t)snprintf(json + n, room - n, "\",%.9g]", score);
        assert_true(n + 4096 < room);
    }
    n += (size_t)snprintf(json + n, room - n, "]}}");
    json_doc *doc;
    vocab v;
    if (json_parse(json, n, "t.json", &doc, &err) != PI_OK) fail_msg("%s", err.message);
    free(json);
    assert_int_equal(vocab_init(&v, (int32_t)tokens->count, &err), PI_OK);
    if (hf_tokenizer_read(json_root(doc), "t.json", NULL, NULL, &v, &err))
        fail_msg("%s", err.message);
    json_free(doc);
    for (int i = 0; i < 3; i++) v.tokens[i].type = TOKEN_CONTROL; /* other files say so */
    v.bos = 0;
    v.eos = 2;
    v.add_bos = v.add_eos = VOCAB_YES;
    static const char made[] = TEST_BINARY_DIR "/test_hf_tokenizer.gguf";
    gguf_writer *w;
    assert_int_equal(gguf_writer_create(made, &w, &err), PI_OK);
    assert_int_equal(vocab_put(&v, w, &err), PI_OK);
    assert_int_equal(gguf_writer_begin_data(w, &err), PI_OK);
    assert_int_equal(gguf_writer_finish(w, &err), PI_OK);
    vocab_free(&v);
    gguf_close(g);
    tokenizer *t;
    if (gguf_open(made, NULL, &g, &err)) fail_msg("%s", err.message);
    if (tokenizer_create(g, NULL, &t, &err)) fail_msg("%s", err.message);
    size_t n_text;
    int n_lines = 0;
    assert_true(shared_path(path, sizeof path, "conformance/encode/texts.txt"));
    assert_int_equal(file_read(path, 1 << 20, &text, &n_text, &err), PI_OK);
    assert_true(shared_path(path, sizeof path, "conformance/encode/unigram.ids.txt"));
    FILE *ids = fopen(path, "r");
    assert_non_null(ids);
    for (char *at = text; at < text + n_text; n_lines++) {
        char *end = memchr(at, '\n', (size_t)(text + n_text - at));
        const size_t length = end ? (size_t)(end - at) : (size_t)(text + n_text - at);
        int32_t found[1024];
        size_t n_found;
        assert_int_equal(
            tokenizer_encode(t, at, length, TOKENIZER_ADD_SPECIAL, found, 1024, &n_found, &err),
            PI_OK);
        assert_non_null(fgets(line, sizeof line, ids));
        char *next = line;
        for (size_t i = 0; i < n_found; i++)
            if (strtol(next, &next, 10) != found[i]) fail_msg("text %d, token %zu", n_lines, i);
        assert_int_equal(strspn(next, " \n"), strlen(next));
        at += length + 1;
    }
    assert_true(n_lines > 5);
    fclose(ids);
    mem_free(text);
    tokenizer_free(t);
    gguf_close(g);
    unlink(made);
}

/* RWKV's list: Python's literals become its repr of bytes. */
static void test_rwkv_in_use(void **state) {
    (void)state;
    static const char list[] = "1 'a' 1\n2 \"'\" 1\n3 '\\n\\n' 2\n4 b'\\xe4\\xbd' 2\n5 '\\xa0' 2\n"
                               "6 ' a b' 4\r\n7 '\\u4f60' 3\n8 '\xe4\xbd\xa0"
                               "a' 4\n9 '\\\\' 1\n"
                               "10 '\"\\'' 2\n";
    static const struct {
        int id;
        const char *text;
    } texts[] = {{0, "<s>"},  {2, "'"},    {3, "\\n\\n"}, {4, "\\xe4\\xbd"},     {5, "\\xc2\\xa0"},
                 {6, " a b"}, {9, "\\\\"}, {10, "\"\\'"}, {7, "\\xe4\\xbd\\xa0"}};
    hf_folder f;
    folder_open_model(&f, "llama");
    folder_write_text(&f, HF_RWKV_FILE, list);
    gguf_file *g = NULL;
    tokenizer *t = open_tokenizer(&f, &g);
    const uint8_t *cursor = gguf_find(g, "tokenizer.ggml.tokens")->data;
    for (int id = 0; id <= 10; id++) {
        const gguf_string s = gguf_next_string(&cursor);
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
            if (texts[i].id == id && !gguf_string_is(s, texts[i].text))
                fail_msg("token %d: %.*s", id, (int)s.n_bytes, s.data);
    }
    ASSERT_IDS(t,
               "a\n\n a b\xe4\xbd\xa0"
               "a'\"'",
               0, 1, 3, 6, 8, 2, 10);
    ASSERT_IDS(t, "\xe4\xbd\xa0\xe4\xbd", 0, 7, 4);
    tokenizer_free(t);
    gguf_close(g);
    folder_close(&f);
    static const char *const bad[] = {"1 'a'\n",     "1 'a' 2\n",   "0 'a' 1\n", "1 a 1\n",
                                      "1 'a 1\n",    "99 'a' 1\n",  "1 '' 0\n",  "1 '\\q' 1\n",
                                      "1 'a' 1\n\n", "1 '\\x1' 1\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        vocab v;
        pi_error err = {0};
        assert_int_equal(vocab_init(&v, 40, &err), PI_OK);
        if (hf_rwkv_parse(bad[i], strlen(bad[i]), "list", &v, &err) != PI_ERR_FORMAT)
            fail_msg("accepted: %s", bad[i]);
        vocab_free(&v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pretokenizer_names),   cmocka_unit_test(test_byte_level_in_use),
        cmocka_unit_test(test_metaspace_in_use),     cmocka_unit_test(test_plain_text_with_merges),
        cmocka_unit_test(test_sentencepiece_in_use), cmocka_unit_test(test_wordpiece_in_use),
        cmocka_unit_test(test_unigram_in_use),       cmocka_unit_test(test_published_unigram),
        cmocka_unit_test(test_rwkv_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
