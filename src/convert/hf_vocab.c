/* hf_vocab.c: reads the files of a folder, which overlap. If two files define a value, the
 * precedence follows the transformers library: tokenizer_config.json, special_tokens_map.json, then
 * the ids of generation_config.json and config.json, then the SentencePiece model. */
#include "hf_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "affix.h"
#include "file.h"
#include "hf_rwkv.h"
#include "hf_tiktoken.h"
#include "hf_tokenizer.h"
#include "mem.h"
#include "os_file.h"
#include "sentencepiece.h"
#include "utf8.h"

enum { PATH_BYTES = 4096, MAX_TEMPLATE_BYTES = 4 << 20, MAX_TOKENIZER_BYTES = 256 << 20 };

/* The JSON files of a folder; NULL: absent. */
typedef enum json_file {
    FILE_TOKENIZER,
    FILE_TOKENIZER_CONFIG,
    FILE_SPECIAL_TOKENS,
    FILE_ADDED_TOKENS,
    FILE_GENERATION_CONFIG,
    FILE_CONFIG,
    FILE_COUNT
} json_file;

static const char *const file_names[FILE_COUNT] = {
    [FILE_TOKENIZER] = "tokenizer.json",
    [FILE_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [FILE_SPECIAL_TOKENS] = "special_tokens_map.json",
    [FILE_ADDED_TOKENS] = "added_tokens.json",
    [FILE_GENERATION_CONFIG] = "generation_config.json",
    [FILE_CONFIG] = "config.json",
};

typedef struct folder {
    const char *dir;
    const char *pre; /* see hf_vocab_read */
    const notifier *notifier;
    json_doc *docs[FILE_COUNT];
} folder;

static const json_node *root_of(const folder *f, json_file file) {
    return f->docs[file] ? json_root(f->docs[file]) : NULL;
}

static pi_status folder_path(const folder *f, const char *name, char path[PATH_BYTES],
                             pi_error *err) {
    if (file_join(path, PATH_BYTES, f->dir, name)) return PI_OK;
    return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", f->dir);
}

static pi_status read_json_files(folder *f, pi_error *err) {
    for (int i = 0; i < FILE_COUNT; i++) {
        char path[PATH_BYTES];
        pi_status status = folder_path(f, file_names[i], path, err);
        if (status != PI_OK) return status;
        if (!file_exists(path)) continue;
        status = json_parse_file(path, &f->docs[i], err);
        if (status != PI_OK) return status;
        if (json_kind_of(root_of(f, (json_file)i)) != JSON_OBJECT)
            return error_set(err, PI_ERR_FORMAT, "not a JSON object: %s: download the file again",
                             path);
    }
    return PI_OK;
}

/* ---- tokenizer.model ------------------------------------------------------------------------- */

/* In user-defined pieces the character U+2581 means a space; GGUF stores the space. */
static size_t unmark_spaces(const char *text, size_t n, char *out) {
    static const char mark[] = "\xE2\x96\x81";
    size_t n_out = 0;
    for (size_t i = 0; i < n;) {
        bool is_mark = n - i >= 3 && memcmp(text + i, mark, 3) == 0;
        out[n_out++] = is_mark ? ' ' : text[i];
        i += is_mark ? 3 : 1;
    }
    return n_out;
}

static pi_status take_pieces(const sentencepiece_model *m, const char *path, vocab *v,
                             pi_error *err) {
    if (m->kind != SENTENCEPIECE_BPE)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown kind of tokenizer: %s: a SentencePiece model of kind %d; BPE "
                         "(2) can be converted",
                         path, (int)m->kind);
    if (m->n_pieces > (size_t)v->n_tokens)
        return error_set(err, PI_ERR_FORMAT,
                         "tokenizer and model disagree: %s: %zu pieces, but the embedding matrix "
                         "has %d rows",
                         path, m->n_pieces, v->n_tokens);
    for (size_t i = 0; i < m->n_pieces; i++) {
        const sentencepiece_piece *p = &m->pieces[i];
        char plain[SENTENCEPIECE_MAX_PIECE];
        const char *text = p->text;
        size_t n = p->n_bytes;
        if (p->type == TOKEN_USER_DEFINED) {
            n = unmark_spaces(text, n, plain);
            text = plain;
        }
        pi_status status = vocab_set(v, (int32_t)i, text, n, p->score, p->type, err);
        if (status != PI_OK) return error_prefix(err, status, "%s", path);
    }
    v->model = "llama";
    v->bos = m->bos;
    v->eos = m->eos;
    v->unk = m->unk;
    v->pad = m->pad;
    v->add_space_prefix = m->add_dummy_prefix ? VOCAB_YES : VOCAB_NO;
    return vocab_build_index(v, path, err);
}

static pi_status read_sentencepiece(const char *path, vocab *v, pi_error *err) {
    char *data;
    size_t n_bytes;
    pi_status status = file_read(path, MAX_TOKENIZER_BYTES, &data, &n_bytes, err);
    if (status != PI_OK) return status;
    sentencepiece_model m = {0};
    status = sentencepiece_parse(data, n_bytes, path, &m, err);
    if (status == PI_OK) status = take_pieces(&m, path, v, err);
    sentencepiece_free(&m);
    mem_free(data);
    return status;
}

/* ---- NAME.tiktoken, tiktoken.model ----------------------------------------------------------- */

static bool find_tiktoken(const folder *f, char path[PATH_BYTES]) {
    bool found = false;
    os_folder *names = os_folder_open(f->dir);
    for (const char *name; names && !found && (name = os_folder_next(names));) {
        bool named = ends_with(name, ".tiktoken") || strcmp(name, "tiktoken.model") == 0;
        found = name[0] != '.' && named && file_join(path, PATH_BYTES, f->dir, name);
    }
    os_folder_close(names);
    return found;
}

static pi_status read_tiktoken(const folder *f, const char *path, vocab *v, pi_error *err) {
    if (!f->pre)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown pre-tokenizer: %s: a tiktoken file does not name it, and for "
                         "this model type it is not known: save the tokenizer as tokenizer.json",
                         path);
    char *text;
    size_t n_bytes;
    pi_status status = file_read(path, MAX_TOKENIZER_BYTES, &text, &n_bytes, err);
    if (status != PI_OK) return status;
    status = hf_tiktoken_parse(text, n_bytes, path, v, err);
    v->pre = f->pre;
    mem_free(text);
    return status;
}

static pi_status read_rwkv(const char *path, vocab *v, pi_error *err) {
    char *text;
    size_t n_bytes;
    pi_status status = file_read(path, MAX_TOKENIZER_BYTES, &text, &n_bytes, err);
    if (status != PI_OK) return status;
    status = hf_rwkv_parse(text, n_bytes, path, v, err);
    mem_free(text);
    return status;
}

static pi_status read_base(const folder *f, vocab *v, pi_error *err) {
    char path[PATH_BYTES];
    pi_status status = folder_path(f, "tokenizer.model", path, err);
    if (status != PI_OK) return status;
    if (file_exists(path)) return read_sentencepiece(path, v, err);
    status = folder_path(f, file_names[FILE_TOKENIZER], path, err);
    if (status != PI_OK) return status;
    const json_node *root = root_of(f, FILE_TOKENIZER);
    if (root) return hf_tokenizer_read(root, path, f->pre, f->notifier, v, err);
    status = folder_path(f, HF_RWKV_FILE, path, err);
    if (status != PI_OK) return status;
    if (file_exists(path)) return read_rwkv(path, v, err);
    if (find_tiktoken(f, path)) return read_tiktoken(f, path, v, err);
    notify(f->notifier,
           "no tokenizer.model or tokenizer.json in %.300s: the model will have no vocabulary",
           f->dir);
    return PI_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Reads tokenizer_config.json: {"32000": {"content": ..., "special": ...}}. */
static pi_status add_decoder_tokens(const folder *f, vocab *v, pi_error *err) {
    const json_node *table = json_get(root_of(f, FILE_TOKENIZER_CONFIG), "added_tokens_decoder");
    const char *file = file_names[FILE_TOKENIZER_CONFIG];
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(table, &iter, &key, &value)) {
        char *end;
        const char *text;
        size_t n;
        bool special = false;
        long long id = strtoll(key, &end, 10);
        if (*key == 0 || *end != 0 || !json_as_string(json_get(value, "content"), &text, &n))
            return error_set(err, PI_ERR_FORMAT,
                             "bad tokenizer: %s: added_tokens_decoder has an entry '%.40s' that "
                             "is not an id with a content",
                             file, key);
        json_as_bool(json_get(value, "special"), &special);
        pi_status status = hf_tokenizer_add_one(v, id, text, n, special, file, f->notifier, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* Reads added_tokens.json, the oldest form: {"<pad>": 32000}. The file does not mark special
 * tokens, so it only defines tokens that no other file defines. */
static pi_status add_listed_tokens(const folder *f, vocab *v, pi_error *err) {
    const char *file = file_names[FILE_ADDED_TOKENS];
    void *iter = NULL;
    const char *key;
    const json_node *value;
    while (json_next(root_of(f, FILE_ADDED_TOKENS), &iter, &key, &value)) {
        int64_t id;
        if (!json_as_int(value, &id))
            return error_set(err, PI_ERR_FORMAT, "bad tokenizer: %s: '%.40s' has no id", file, key);
        if (id >= 0 && id < v->n_tokens && v->tokens[id].text.data) continue;
        pi_status status = hf_tokenizer_add_one(v, id, key, strlen(key), false, file, f->notifier,
                                                err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

/* ---- special tokens -------------------------------------------------------------------------- */

/* Finds a special token given as "text" or as {"content": "text"}; -1: absent or unknown. */
static int32_t find_named(const vocab *v, const json_node *object, const char *key) {
    const json_node *node = json_get(object, key);
    if (json_kind_of(node) == JSON_OBJECT) node = json_get(node, "content");
    const char *text;
    size_t n;
    return json_as_string(node, &text, &n) && n > 0 ? vocab_search(v, text, n) : -1;
}

static int32_t as_token(const vocab *v, const json_node *node) {
    int64_t id;
    return json_as_int(node, &id) && id >= 0 && id < v->n_tokens ? (int32_t)id : -1;
}

/* Reads an id, or the first id of a list. */
static int32_t find_numbered(const vocab *v, const json_node *object, const char *key) {
    const json_node *node = json_get(object, key);
    return as_token(v, json_kind_of(node) == JSON_ARRAY ? json_at(node, 0) : node);
}

/* Models with different tokens for the end of a turn and the end of a text list both as
 * eos_token_id. */
static int32_t find_end_of_turn(const vocab *v, const json_node *object) {
    static const char *const names[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>",
                                        "<|end|>",    "<|eot|>",    "<|endoftext|>"};
    const json_node *list = json_get(object, "eos_token_id");
    for (size_t name = 0; name < sizeof names / sizeof names[0]; name++) {
        for (size_t i = 0; i < json_count(list); i++) {
            int32_t id = as_token(v, json_at(list, i));
            if (id < 0 || id == v->eos) continue;
            if (gguf_string_is(v->tokens[id].text, names[name])) return id;
        }
    }
    return -1;
}

static int32_t find_special(const folder *f, const vocab *v, const char *key) {
    int32_t id = find_named(v, root_of(f, FILE_TOKENIZER_CONFIG), key);
    return id >= 0 ? id : find_named(v, root_of(f, FILE_SPECIAL_TOKENS), key);
}

static void choose_special(const folder *f, vocab *v) {
    const struct {
        const char *token, *id;
        int32_t *out;
    } kinds[] = {{"bos_token", "bos_token_id", &v->bos},
                 {"eos_token", "eos_token_id", &v->eos},
                 {"unk_token", NULL, &v->unk},
                 {"pad_token", "pad_token_id", &v->pad}};
    static const json_file by_name[] = {FILE_TOKENIZER_CONFIG, FILE_SPECIAL_TOKENS};
    static const json_file by_id[] = {FILE_GENERATION_CONFIG, FILE_CONFIG};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int32_t id = -1;
        for (size_t i = 0; i < 2 && id < 0; i++)
            id = find_named(v, root_of(f, by_name[i]), kinds[k].token);
        for (size_t i = 0; i < 2 && id < 0 && kinds[k].id; i++)
            id = find_numbered(v, root_of(f, by_id[i]), kinds[k].id);
        if (id >= 0) *kinds[k].out = id;
    }
    if (strcmp(v->model, "bert") == 0 || strcmp(v->model, "t5") == 0) {
        v->cls = find_special(f, v, "cls_token");
        v->sep = find_special(f, v, "sep_token");
        v->mask = find_special(f, v, "mask_token");
    }
    if (v->eot < 0) v->eot = find_end_of_turn(v, root_of(f, FILE_GENERATION_CONFIG));
    if (v->eot < 0) v->eot = find_end_of_turn(v, root_of(f, FILE_CONFIG));
}

static void choose_flags(const folder *f, vocab *v) {
    const json_node *config = root_of(f, FILE_TOKENIZER_CONFIG);
    bool value;
    if (strcmp(v->model, "bert") == 0) return; /* always [CLS] text [SEP] */
    if (json_as_bool(json_get(config, "add_bos_token"), &value))
        v->add_bos = value ? VOCAB_YES : VOCAB_NO;
    if (json_as_bool(json_get(config, "add_eos_token"), &value))
        v->add_eos = value ? VOCAB_YES : VOCAB_NO;
    if (strcmp(v->model, "llama") == 0 &&
        json_as_bool(json_get(config, "add_prefix_space"), &value))
        v->add_space_prefix = value ? VOCAB_YES : VOCAB_NO;
    hf_tokenizer_post_processor(root_of(f, FILE_TOKENIZER), v);
    if (v->bos < 0) v->add_bos = VOCAB_NO;
    if (v->eos < 0) v->add_eos = VOCAB_NO;
}

/* ---- chat templates -------------------------------------------------------------------------- */

static pi_status add_template(vocab *v, const char *name, const char *text, size_t n_bytes,
                              pi_error *err) {
    if (v->n_templates == VOCAB_MAX_TEMPLATES)
        return error_set(err, PI_ERR_LIMIT, "more than %d chat templates: %s: leave some out",
                         VOCAB_MAX_TEMPLATES, "tokenizer_config.json");
    char *text_copy = arena_strndup(&v->arena, text, n_bytes);
    char *name_copy = arena_strndup(&v->arena, name, strlen(name));
    if (!text_copy || !name_copy) return error_nomem(err, n_bytes, "chat template");
    v->templates[v->n_templates++] = (vocab_template){name_copy, {text_copy, n_bytes}};
    return PI_OK;
}

/* "chat_template" is a text, or a list of {"name", "template"} with one named "default". */
static pi_status read_config_templates(const folder *f, vocab *v, pi_error *err) {
    const json_node *node = json_get(root_of(f, FILE_TOKENIZER_CONFIG), "chat_template");
    const char *text, *name;
    size_t n, n_name;
    if (json_as_string(node, &text, &n)) return add_template(v, "", text, n, err);
    for (size_t i = 0; i < json_count(node); i++) {
        const json_node *item = json_at(node, i);
        if (!json_as_string(json_get(item, "name"), &name, &n_name) ||
            !json_as_string(json_get(item, "template"), &text, &n))
            return error_set(err, PI_ERR_FORMAT,
                             "bad chat template: %s: item %zu has no name or template",
                             file_names[FILE_TOKENIZER_CONFIG], i);
        pi_status status = add_template(v, strcmp(name, "default") == 0 ? "" : name, text, n, err);
        if (status != PI_OK) return status;
    }
    return PI_OK;
}

static pi_status read_templates(const folder *f, vocab *v, pi_error *err) {
    char path[PATH_BYTES];
    pi_status status = folder_path(f, "chat_template.jinja", path, err);
    if (status != PI_OK) return status;
    if (!file_exists(path)) return read_config_templates(f, v, err);
    char *text;
    size_t n;
    status = file_read(path, MAX_TEMPLATE_BYTES, &text, &n, err);
    if (status != PI_OK) return status;
    status = utf8_is_valid(text, n)
                 ? add_template(v, "", text, n, err)
                 : error_set(err, PI_ERR_FORMAT, "bad chat template: %s: not UTF-8", path);
    mem_free(text);
    return status;
}

/* ---- the whole vocabulary -------------------------------------------------------------------- */

static pi_status read_vocab(const folder *f, vocab *v, pi_error *err) {
    pi_status status = read_base(f, v, err);
    if (status != PI_OK || !v->model) return status;
    status = hf_tokenizer_added(root_of(f, FILE_TOKENIZER), file_names[FILE_TOKENIZER], f->notifier,
                                v, err);
    if (status == PI_OK) status = add_decoder_tokens(f, v, err);
    if (status == PI_OK) status = add_listed_tokens(f, v, err);
    if (status != PI_OK) return status;
    int32_t n_padded;
    status = vocab_pad(v, &n_padded, err);
    if (status != PI_OK) return status;
    if (n_padded > 0)
        notify(f->notifier, "%d of %d tokens are in no tokenizer file: unused; they become [PADn]",
               n_padded, v->n_tokens);
    choose_special(f, v);
    choose_flags(f, v);
    return read_templates(f, v, err);
}

pi_status hf_vocab_read(const char *dir, int32_t n_tokens, const char *pre, const notifier *t,
                        vocab *out, pi_error *err) {
    folder f = {.dir = dir, .pre = pre, .notifier = t};
    vocab v;
    pi_status status = vocab_init(&v, n_tokens, err);
    if (status == PI_OK) status = read_json_files(&f, err);
    if (status == PI_OK) status = read_vocab(&f, &v, err);
    for (int i = 0; i < FILE_COUNT; i++) json_free(f.docs[i]);
    if (status != PI_OK) vocab_free(&v);
    *out = v;
    return status;
}
