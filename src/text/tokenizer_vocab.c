/* tokenizer_vocab.c: builds a tokenizer from the keys of a GGUF file. The file is untrusted: the
 * type and length of every array and the range of every id are checked before use. Token texts stay
 * in the file's memory. */
#include <ctype.h>
#include <string.h>

#include "mem.h"
#include "tokenizer_impl.h"

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n_bytes) {
    uint32_t symbol = text_table_find(&t->table, text, n_bytes);
    return symbol == TEXT_TABLE_NONE ? -1 : t->symbol_token[symbol];
}

pi_status tokenizer_bad_key(pi_error *err, const char *key, const char *what) {
    return error_set(err, PI_ERR_FORMAT, "bad vocabulary: %s: %s: convert the model again", key,
                     what);
}

/* An array of n_vocab numbers; NULL: the key is absent. */
static pi_status number_array(const gguf_file *file, const char *key, uint64_t n_vocab,
                              const gguf_value **out, pi_error *err) {
    const gguf_value *v = *out = gguf_find(file, key);
    if (!v) return PI_OK;
    if (v->type != GGUF_ARRAY || v->item_type == GGUF_STRING || v->item_type == GGUF_ARRAY) {
        return tokenizer_bad_key(err, key, "not an array of numbers");
    }
    if (v->count != n_vocab)
        return tokenizer_bad_key(err, key, "length differs from the number of tokens");
    return PI_OK;
}

static pi_status load_tokens(tokenizer *t, const gguf_file *file, pi_error *err) {
    const char *key = "tokenizer.ggml.tokens";
    const gguf_value *texts = gguf_find(file, key), *types, *scores;
    if (!texts) return tokenizer_bad_key(err, key, "missing");
    if (texts->type != GGUF_ARRAY || texts->item_type != GGUF_STRING) {
        return tokenizer_bad_key(err, key, "not an array of strings");
    }
    if (texts->count == 0 || texts->count > TOKENIZER_MAX_VOCAB) {
        return tokenizer_bad_key(err, key, "no tokens or too many");
    }
    pi_status status = number_array(file, "tokenizer.ggml.token_type", texts->count, &types, err);
    if (!status) status = number_array(file, "tokenizer.ggml.scores", texts->count, &scores, err);
    if (status) return status;

    size_t n = (size_t)texts->count;
    t->info.n_vocab = (int32_t)n;
    t->tokens = arena_calloc(&t->memory, n, sizeof *t->tokens);
    if (!t->tokens) return error_nomem(err, n * sizeof *t->tokens, "vocabulary");
    const uint8_t *cursor = texts->data;
    for (size_t i = 0; i < n; i++) {
        token_entry *token = &t->tokens[i];
        token->text = gguf_next_string(&cursor);
        int64_t type = TOKEN_NORMAL;
        double score = 0;
        if (types && !gguf_item_i64(types, i, &type)) {
            return tokenizer_bad_key(err, "tokenizer.ggml.token_type", "not integers");
        }
        if (type < TOKEN_UNDEFINED || type > TOKEN_BYTE) type = TOKEN_UNDEFINED;
        if (scores && !gguf_item_f64(scores, i, &score)) {
            return tokenizer_bad_key(err, "tokenizer.ggml.scores", "not numbers");
        }
        token->type = (uint8_t)type;
        token->score = (float)score;
        if (token->text.n_bytes > UINT32_MAX)
            return tokenizer_bad_key(err, key, "a token is too long");
        if (token->text.n_bytes > t->longest_token) t->longest_token = token->text.n_bytes;
    }
    return PI_OK;
}

/* Numbers all token texts. Among tokens with equal texts, look-ups find the last one; they never
 * find empty texts. */
static pi_status build_table(tokenizer *t, pi_error *err) {
    size_t n = (size_t)t->info.n_vocab;
    if (!text_table_init(&t->table, n + TOKENIZER_BYTES)) {
        return error_nomem(err, n * sizeof(text_slot), "vocabulary");
    }
    t->symbol_token = mem_alloc(n * sizeof *t->symbol_token);
    if (!t->symbol_token) return error_nomem(err, n * sizeof *t->symbol_token, "vocabulary");
    for (size_t i = 0; i < n; i++) {
        gguf_string text = t->tokens[i].text;
        if (text.n_bytes == 0) continue;
        uint32_t symbol = text_table_add(&t->table, text.data, (size_t)text.n_bytes);
        if (symbol == TEXT_TABLE_NONE) return error_nomem(err, n, "vocabulary");
        t->symbol_token[symbol] = (int32_t)i;
    }
    return PI_OK;
}

/* A token id, or `fallback` (-1: none) when the key is absent. Files write "none" as -1, or as -1
 * in unsigned 32 bits. */
static pi_status load_id(const tokenizer *t, const gguf_file *file, const char *key,
                         int32_t fallback, int32_t *out, pi_error *err) {
    const gguf_value *v = gguf_find(file, key);
    int64_t id = fallback < t->info.n_vocab ? fallback : -1;
    if (v && !gguf_as_i64(v, &id)) return tokenizer_bad_key(err, key, "not an integer");
    if (id == UINT32_MAX) id = -1;
    if (id < -1 || id >= t->info.n_vocab)
        return tokenizer_bad_key(err, key, "not a token of the vocabulary");
    *out = (int32_t)id;
    return PI_OK;
}

pi_status tokenizer_load_flag(const gguf_file *file, const char *key, bool *flag, pi_error *err) {
    const gguf_value *v = gguf_find(file, key);
    if (v && !gguf_as_bool(v, flag)) return tokenizer_bad_key(err, key, "not a boolean");
    return PI_OK;
}

static pi_status load_info(tokenizer *t, const gguf_file *file, pi_error *err) {
    tokenizer_info *info = &t->info;
    /* The defaults of each kind; byte-level vocabularies have no common ones. */
    static const struct {
        int32_t unk, bos, eos, pad;
    } defaults[] = {[KIND_SPM] = {0, 1, 2, -1},
                    [KIND_BPE] = {-1, -1, -1, -1},
                    [KIND_WORDPIECE] = {100, 101, -1, 0},
                    [KIND_UNIGRAM] = {2, -1, 1, 0},
                    [KIND_LONGEST] = {-1, -1, -1, -1}};
    int32_t bos = defaults[t->kind].bos;
    /* BERT's name of the first token */
    if (t->kind == KIND_WORDPIECE) {
        pi_status status = load_id(t, file, "tokenizer.ggml.cls_token_id", bos, &bos, err);
        if (status) return status;
    }
    struct {
        const char *key;
        int32_t fallback, *out;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", bos, &info->bos},
        {"tokenizer.ggml.eos_token_id", defaults[t->kind].eos, &info->eos},
        {"tokenizer.ggml.eot_token_id", -1, &info->eot},
        {"tokenizer.ggml.unknown_token_id", defaults[t->kind].unk, &info->unk},
        {"tokenizer.ggml.padding_token_id", defaults[t->kind].pad, &info->pad},
    };
    pi_status status = PI_OK;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && !status; i++) {
        status = load_id(t, file, ids[i].key, ids[i].fallback, ids[i].out, err);
    }
    if (!status)
        status = tokenizer_load_flag(file, "tokenizer.ggml.add_bos_token", &info->add_bos, err);
    if (!status)
        status = tokenizer_load_flag(file, "tokenizer.ggml.add_eos_token", &info->add_eos, err);
    /* The keys do not change WordPiece. */
    if (t->kind == KIND_WORDPIECE) info->add_bos = info->add_eos = true;
    bool prefix = t->kind == KIND_SPM;
    if (!status)
        status = tokenizer_load_flag(file, "tokenizer.ggml.add_space_prefix", &prefix, err);
    info->add_space_prefix = (t->kind == KIND_SPM || t->kind == KIND_UNIGRAM) && prefix;
    return status;
}

/* Texts with a known role. Vocabularies often declare a wrong type for them, and a prompt that
 * merely quotes one must not end a turn: they are control tokens whatever the file declares. */
enum { ROLE_CONTROL = 1, ROLE_END = 2, ROLE_TURN = 4 };
static const struct {
    const char *text;
    int roles;
} known_texts[] = {
    {"<|eot_id|>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<|im_end|>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<|end|>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<end_of_turn>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<|endoftext|>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<EOT>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<｜end▁of▁sentence｜>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    {"<|eom_id|>", ROLE_CONTROL | ROLE_END},
    {"<|fim_pad|>", ROLE_CONTROL | ROLE_END},
    {"<fim-pad>", ROLE_CONTROL | ROLE_END},
    {"<PAD>", ROLE_CONTROL | ROLE_END},
    {"<|fim_repo|>", ROLE_CONTROL | ROLE_END},
    {"<|repo_name|>", ROLE_CONTROL | ROLE_END},
    {"<fim-repo>", ROLE_CONTROL | ROLE_END},
    {"<REPO>", ROLE_CONTROL | ROLE_END},
    {"<|file_sep|>", ROLE_CONTROL | ROLE_END},
    {"<|fim_prefix|>", ROLE_CONTROL},
    {"<fim-prefix>", ROLE_CONTROL},
    {"<｜fim▁begin｜>", ROLE_CONTROL},
    {"<PRE>", ROLE_CONTROL},
    {"<|fim_suffix|>", ROLE_CONTROL},
    {"<fim-suffix>", ROLE_CONTROL},
    {"<｜fim▁hole｜>", ROLE_CONTROL},
    {"<SUF>", ROLE_CONTROL},
    {"<|fim_middle|>", ROLE_CONTROL},
    {"<fim-middle>", ROLE_CONTROL},
    {"<｜fim▁end｜>", ROLE_CONTROL},
    {"<MID>", ROLE_CONTROL},
    {"<|return|>", ROLE_END},
    {"<|call|>", ROLE_END},
    {"<|end_of_text|>", ROLE_END},
    {"<|eos|>", ROLE_END},
    {"<|end_of_turn|>", ROLE_END},
    {"<end_of_utterance>", ROLE_END},
    {"_<EOT>", ROLE_END},
    {"[EOT]", ROLE_END},
    {"[EOS]", ROLE_END},
    {"[e~[", ROLE_CONTROL | ROLE_END},
    {"<|flush|>", ROLE_CONTROL | ROLE_END},
    {"<|calls|>", ROLE_CONTROL | ROLE_END},
    {"<eos>", ROLE_END},
    {"</s>", ROLE_END},
    {"<turn|>", ROLE_CONTROL | ROLE_END | ROLE_TURN},
    /* Gemma 4: the tool call is complete, its result follows. */
    {"<|tool_response>", ROLE_CONTROL | ROLE_END},
};

static int32_t find_text(const tokenizer *t, const char *text) {
    return tokenizer_find(t, text, strlen(text));
}

static void set_attribute(tokenizer *t, int32_t id, int attribute, bool on) {
    if (id < 0) return;
    int value = t->tokens[id].attributes;
    t->tokens[id].attributes = (uint8_t)(on ? value | attribute : value & ~attribute);
}

static void apply_known_texts(tokenizer *t) {
    for (size_t i = 0; i < sizeof known_texts / sizeof known_texts[0]; i++) {
        int32_t id = find_text(t, known_texts[i].text);
        if (id < 0) continue;
        token_entry *token = &t->tokens[id];
        int roles = known_texts[i].roles;
        if (roles & ROLE_CONTROL) token->type = TOKEN_CONTROL;
        if (token->type != TOKEN_CONTROL) continue;
        if (roles & ROLE_END) set_attribute(t, id, TOKEN_ENDS_TURN, true);
        if ((roles & ROLE_TURN) && t->info.eot < 0) t->info.eot = id;
    }
    /* Where messages end with <|end|> and turns with <|return|> or <|call|>, <|end|> does not end a
     * turn. */
    int32_t end = find_text(t, "<|end|>");
    if (end >= 0 && find_text(t, "<|return|>") >= 0 && find_text(t, "<|call|>") >= 0) {
        set_attribute(t, end, TOKEN_ENDS_TURN, false);
        if (t->info.eot == end) t->info.eot = -1;
    }
    set_attribute(t, t->info.eos, TOKEN_ENDS_TURN, true);
    set_attribute(t, t->info.eot, TOKEN_ENDS_TURN, true);
}

static bool contains_ignoring_case(gguf_string text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n_bytes; i++) {
        size_t j = 0;
        while (j < n && tolower((unsigned char)text.data[i + j]) == word[j]) j++;
        if (j == n) return true;
    }
    return false;
}

/* GGUF has no key for tokens that remove the blanks around them; the affected models are recognised
 * by name. */
static void apply_strip_rules(tokenizer *t, const gguf_file *file) {
    gguf_string name;
    const gguf_value *v = gguf_find(file, "general.name");
    if (strncmp(t->info.pre, "jina-v2-", strlen("jina-v2-")) == 0) {
        set_attribute(t, find_text(t, "<mask>"), TOKEN_STRIP_LEFT, true);
    } else if (v && gguf_as_string(v, &name) &&
               (contains_ignoring_case(name, "phi-3") || contains_ignoring_case(name, "phi3"))) {
        for (int32_t i = 0; i < t->info.n_vocab; i++) {
            if (tokenizer_is_special(&t->tokens[i])) set_attribute(t, i, TOKEN_STRIP_RIGHT, true);
        }
        set_attribute(t, find_text(t, "<unk>"), TOKEN_STRIP_RIGHT, false);
        set_attribute(t, find_text(t, "<s>"), TOKEN_STRIP_RIGHT, false);
        set_attribute(t, find_text(t, "<|endoftext|>"), TOKEN_STRIP_RIGHT, false);
    }
}

/* Error that lists only the first of several names with equal patterns and flags. */
static pi_status unknown_pre(gguf_string name, pi_error *err) {
    char known[PI_ERROR_TEXT_MAX];
    size_t used = 0;
    for (size_t i = 0; i < pretokenizer_n_rows; i++) {
        const pretokenizer_row *row = &pretokenizer_rows[i];
        if (i > 0 && row->patterns == row[-1].patterns && row->flags == row[-1].flags) continue;
        size_t n = strlen(row->name);
        if (used + n + 2 > sizeof known) break;
        if (used) known[used++] = ' ';
        memcpy(known + used, row->name, n);
        used += n;
    }
    known[used] = '\0';
    int shown = name.n_bytes < 64 ? (int)name.n_bytes : 64;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "unknown pre-tokenizer: %.*s: override it with one of: %s", shown, name.data,
                     known);
}

/* Chooses the patterns: the override, the one implied by the kind of vocabulary, the file's key, or
 * the default. */
static pi_status choose_pre(tokenizer *t, const gguf_file *file, const char *pre, pi_error *err) {
    gguf_string name = {pretokenizer_default_name, strlen(pretokenizer_default_name)};
    if (!pre && strcmp(t->info.model, "gemma4") == 0) pre = "gemma4";
    const char *key = "tokenizer.ggml.pre";
    const gguf_value *v = gguf_find(file, key);
    if (pre) {
        name = (gguf_string){pre, strlen(pre)};
    } else if (v && !gguf_as_string(v, &name)) {
        return tokenizer_bad_key(err, key, "not a string");
    }
    const pretokenizer_row *row = pretokenizer_find(name.data, (size_t)name.n_bytes);
    if (!row) return unknown_pre(name, err);
    t->info.pre = row->name;
    t->info.add_bos = row->flags & PRE_ADD_BOS;
    t->pre_flags = row->flags;
    return pretokenizer_create(row, &t->pre, err);
}

pi_status tokenizer_load(tokenizer *t, const gguf_file *file, const char *pre, pi_error *err) {
    const char *key = "tokenizer.ggml.model";
    const gguf_value *v = gguf_find(file, key);
    gguf_string model = {"none", strlen("none")};
    if (v && !gguf_as_string(v, &model)) return tokenizer_bad_key(err, key, "not a string");
    if (gguf_string_is(model, "none") || gguf_string_is(model, "no_vocab")) {
        return error_set(err, PI_ERR_NOT_FOUND, "no vocabulary: %s: the file has no tokenizer",
                         gguf_path(file));
    }
    static const struct {
        const char *name;
        tokenizer_kind kind;
    } known[] = {{"llama", KIND_SPM},      {"gpt2", KIND_BPE},   {"gemma4", KIND_BPE},
                 {"bert", KIND_WORDPIECE}, {"t5", KIND_UNIGRAM}, {"rwkv", KIND_LONGEST}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!gguf_string_is(model, known[i].name)) continue;
        t->info.model = known[i].name;
        t->kind = known[i].kind;
    }
    if (!t->info.model) {
        int shown = model.n_bytes < 64 ? (int)model.n_bytes : 64;
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown kind of vocabulary: %s = %.*s: known are llama, gpt2, gemma4, "
                         "bert, t5 and rwkv",
                         key, shown, model.data);
    }
    t->info.pre = "";
    t->info.add_bos = t->kind == KIND_SPM;
    t->info.add_eos = t->kind == KIND_UNIGRAM;
    for (int i = 0; i < TOKENIZER_BYTES; i++) t->byte_token[i] = -1;
    pi_status status = t->kind == KIND_BPE ? choose_pre(t, file, pre, err) : PI_OK;
    if (!status) status = load_tokens(t, file, err);
    if (!status && t->kind == KIND_LONGEST) status = tokenizer_longest_unescape(t, err);
    if (!status) status = build_table(t, err);
    if (!status) status = load_info(t, file, err);
    if (status) return status;
    apply_known_texts(t);
    switch (t->kind) {
    case KIND_SPM:
        status = tokenizer_spm_load(t, err);
        break;
    case KIND_BPE:
        status = tokenizer_bpe_load(t, gguf_find(file, "tokenizer.ggml.merges"), err);
        break;
    case KIND_WORDPIECE:
        status = tokenizer_wordpiece_load(t, file, err);
        break;
    case KIND_UNIGRAM:
        status = tokenizer_unigram_load(t, file, err);
        break;
    case KIND_LONGEST:
        status = tokenizer_longest_load(t, err);
        break;
    }
    if (!status) status = tokenizer_special_build(t, err);
    if (status) return status;
    apply_strip_rules(t, file);
    tokenizer_roles_load(t, file);
    return PI_OK;
}
