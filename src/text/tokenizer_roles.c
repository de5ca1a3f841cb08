/* tokenizer_roles.c: special tokens that tokenizing does not need: separators, padding, fill in the
 * middle. A file names them by key; without a key, fill-in-the-middle tokens are found by their
 * text. Nothing here changes how text is tokenized, so a key that names no token of the vocabulary
 * counts as absent. */
#include <string.h>

#include "tokenizer_impl.h"

static const struct {
    const char *key, *old_key; /* after "tokenizer.ggml."; NULL: none */
    const char *texts[5];      /* the first one in the vocabulary is used */
} sources[TOKEN_ROLE_COUNT] = {
    [TOKEN_ROLE_EOM] = {.key = "eom_token_id", .texts = {"<|eom_id|>"}},
    /* the format misspells this key */
    [TOKEN_ROLE_SEP] = {.key = "seperator_token_id"},
    [TOKEN_ROLE_MASK] = {.key = "mask_token_id"},
    [TOKEN_ROLE_FIM_PRE] = {.key = "fim_pre_token_id",
                            .old_key = "prefix_token_id",
                            .texts = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",
                                      "<｜fim▁begin｜>", "<PRE>"}},
    [TOKEN_ROLE_FIM_SUF] = {.key = "fim_suf_token_id",
                            .old_key = "suffix_token_id",
                            .texts = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
                                      "<｜fim▁hole｜>", "<SUF>"}},
    [TOKEN_ROLE_FIM_MID] = {.key = "fim_mid_token_id",
                            .old_key = "middle_token_id",
                            .texts = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",
                                      "<｜fim▁end｜>", "<MID>"}},
    [TOKEN_ROLE_FIM_PAD] = {.key = "fim_pad_token_id",
                            .texts = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"}},
    [TOKEN_ROLE_FIM_REP] = {.key = "fim_rep_token_id",
                            .texts = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>",
                                      "<REPO>"}},
    [TOKEN_ROLE_FIM_SEP] = {.key = "fim_sep_token_id", .texts = {"<|file_sep|>"}},
};

static int32_t id_of_key(const tokenizer *t, const gguf_file *file, const char *name) {
    char key[64] = "tokenizer.ggml.";
    int64_t id = -1;
    if (!name) return -1;
    strncat(key, name, sizeof key - strlen(key) - 1);
    const gguf_value *v = gguf_find(file, key);
    return v && gguf_as_i64(v, &id) && id >= 0 && id < t->info.n_vocab ? (int32_t)id : -1;
}

void tokenizer_roles_load(tokenizer *t, const gguf_file *file) {
    for (int role = 0; role < TOKEN_ROLE_COUNT; role++) {
        int32_t id = id_of_key(t, file, sources[role].key);
        if (id < 0) id = id_of_key(t, file, sources[role].old_key);
        for (size_t i = 0; i < 5 && id < 0 && sources[role].texts[i]; i++)
            id = tokenizer_find(t, sources[role].texts[i], strlen(sources[role].texts[i]));
        t->roles[role] = id;
    }
    enum { BERT_SEP = 102, BERT_MASK = 103 }; /* without the keys */
    if (t->kind == KIND_WORDPIECE && t->info.n_vocab > BERT_MASK) {
        if (t->roles[TOKEN_ROLE_SEP] < 0) t->roles[TOKEN_ROLE_SEP] = BERT_SEP;
        if (t->roles[TOKEN_ROLE_MASK] < 0) t->roles[TOKEN_ROLE_MASK] = BERT_MASK;
    }
    t->roles[TOKEN_ROLE_BOS] = t->info.bos;
    t->roles[TOKEN_ROLE_EOS] = t->info.eos;
    t->roles[TOKEN_ROLE_EOT] = t->info.eot;
    t->roles[TOKEN_ROLE_UNK] = t->info.unk;
    t->roles[TOKEN_ROLE_PAD] = t->info.pad;
    t->roles[TOKEN_ROLE_NL] = t->pre_flags & PRE_RAW ? tokenizer_find(t, "\n", 1)
                                                     : t->byte_token['\n'];
}

int32_t tokenizer_role(const tokenizer *t, token_role role) {
    return t->roles[role];
}
