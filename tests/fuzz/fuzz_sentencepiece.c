/* fuzz_sentencepiece.c: any bytes as tokenizer.model: the result is an error, or pieces within the
 * input. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_target.h"
#include "sentencepiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    sentencepiece_model m = {0};
    pi_error err = {0};
    if (n == 0 || sentencepiece_parse(data, n, "fuzz", &m, &err) != PI_OK) return 0;
    if (m.n_pieces == 0) abort();
    for (size_t i = 0; i < m.n_pieces; i++) {
        const uint8_t *text = (const uint8_t *)m.pieces[i].text;
        size_t n_text = m.pieces[i].n_bytes;
        if (n_text == 0 || text < data || n_text > (size_t)(data + n - text)) abort();
        if (m.pieces[i].type < TOKEN_NORMAL || m.pieces[i].type > TOKEN_BYTE) abort();
    }
    int32_t ids[] = {m.unk, m.bos, m.eos, m.pad};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i] < -1 || ids[i] >= (int32_t)m.n_pieces) abort();
    sentencepiece_free(&m);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *data, size_t max) {
    static const char model[] = "\x0a\x09\x0a\x05<unk>\x18\x02"
                                "\x0a\x09\x0a\x02"
                                "ab\x15\x00\x00\xc0\xbf"
                                "\x0a\x0a\x0a\x06<0x0A>\x18\x06"
                                "\x12\x08\x18\x02\x98\x02\x01\xc8\x02\x01"
                                "\x1a\x02\x18\x00";
    if (i > 0 || sizeof model - 1 > max) return 0;
    memcpy(data, model, sizeof model - 1);
    return sizeof model - 1;
}
