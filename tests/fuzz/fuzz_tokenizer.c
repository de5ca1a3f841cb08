/* fuzz_tokenizer.c: any bytes as a vocabulary, and their tail as the text to tokenize. */
#include "fuzz_target.h"

#include <string.h>

#include "../text/vocab_bytes.h"
#include "tokenizer.h"

enum { TAIL = 64, MAX_IDS = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gguf_file *file;
    tokenizer *t;
    if (gguf_open_memory(data, n, "input", &file, NULL)) return 0;
    if (tokenizer_create(file, NULL, &t, NULL) == PI_OK) {
        size_t n_text = n < TAIL ? n : TAIL, n_ids, n_bytes;
        const char *text = (const char *)data + (n - n_text);
        int32_t ids[MAX_IDS];
        char back[MAX_IDS];
        for (uint32_t flags = 0; flags < 8; flags++) {
            if (tokenizer_encode(t, text, n_text, flags, ids, MAX_IDS, &n_ids, NULL)) continue;
            (void)tokenizer_decode(t, ids, n_ids, flags & 1, back, sizeof back, &n_bytes, NULL);
        }
        tokenizer_free(t);
    }
    gguf_close(file);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char *const pres[] = {NULL, "llama-bpe", "deepseek-v3", "falcon"};
    static vocab_bytes bytes;
    const size_t n_pres = sizeof pres / sizeof pres[0];
    if (i > n_pres + 2) return 0;
    if (i == 0)
        vocab_spm(&bytes);
    else if (i == n_pres + 1)
        vocab_wordpiece(&bytes);
    else if (i == n_pres + 2)
        vocab_unigram(&bytes);
    else
        vocab_bpe(&bytes, pres[i - 1]);
    vocab_raw(&bytes, "hello [x] <think> ab 12 <|im_end|>", 34);
    if (bytes.n > max) return 0;
    memcpy(data, bytes.data, bytes.n);
    return bytes.n;
}
