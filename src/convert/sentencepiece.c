/* sentencepiece.c: a small protobuf parser for the relevant fields of ModelProto; it skips all
 * other fields. */
#include "sentencepiece.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "mem.h"
#include "utf8.h"

/* Field numbers of the schema. */
enum {
    MODEL_PIECES = 1,
    MODEL_TRAINER_SPEC = 2,
    MODEL_NORMALIZER_SPEC = 3,
    PIECE_TEXT = 1,
    PIECE_SCORE = 2,
    PIECE_TYPE = 3,
    TRAINER_MODEL_TYPE = 3,
    TRAINER_UNK_ID = 40,
    TRAINER_BOS_ID = 41,
    TRAINER_EOS_ID = 42,
    TRAINER_PAD_ID = 43,
    NORMALIZER_ADD_DUMMY_PREFIX = 3
};

typedef enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 } wire;

/* A message being parsed: [at, end) of the file that starts at `base`. */
typedef struct proto {
    const uint8_t *base, *at, *end;
    const char *name;
    pi_error *err;
} proto;

typedef struct proto_field {
    uint64_t number;
    wire type;
    uint64_t value;       /* VARINT, FIXED32 and FIXED64 */
    const uint8_t *bytes; /* BYTES */
    size_t n_bytes;
} proto_field;

static pi_status bad_proto(const proto *p, const char *problem) {
    return error_set(p->err, PI_ERR_FORMAT,
                     "%s: %s at byte %zu: is it a SentencePiece model? download it again", problem,
                     p->name, (size_t)(p->at - p->base));
}

static pi_status read_varint(proto *p, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (p->at == p->end) return bad_proto(p, "truncated number");
        uint8_t byte = *p->at++;
        /* the tenth byte has only one bit */
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return PI_OK;
        }
    }
    return bad_proto(p, "number longer than 64 bits");
}

static pi_status read_fixed(proto *p, size_t n_bytes, uint64_t *out) {
    if ((size_t)(p->end - p->at) < n_bytes) return bad_proto(p, "truncated number");
    *out = 0;
    for (size_t i = 0; i < n_bytes; i++) *out |= (uint64_t)p->at[i] << (8 * i);
    p->at += n_bytes;
    return PI_OK;
}

static pi_status read_field(proto *p, proto_field *f) {
    uint64_t tag;
    pi_status status = read_varint(p, &tag);
    if (status != PI_OK) return status;
    *f = (proto_field){.number = tag >> 3, .type = (wire)(tag & 7)};
    if (f->number == 0) return bad_proto(p, "field number 0");
    switch (f->type) {
    case WIRE_VARINT:
        return read_varint(p, &f->value);
    case WIRE_FIXED32:
        return read_fixed(p, 4, &f->value);
    case WIRE_FIXED64:
        return read_fixed(p, 8, &f->value);
    case WIRE_BYTES:
        status = read_varint(p, &f->value);
        if (status != PI_OK) return status;
        if (f->value > (uint64_t)(p->end - p->at))
            return bad_proto(p, "length beyond the end of the message");
        f->bytes = p->at;
        f->n_bytes = (size_t)f->value;
        p->at += f->n_bytes;
        return PI_OK;
    default:
        return bad_proto(p, "unknown wire type");
    }
}

static pi_status expect_type(const proto *p, const proto_field *f, wire type) {
    return f->type == type ? PI_OK : bad_proto(p, "field of the wrong type");
}

/* ---- the three messages ---------------------------------------------------------------------- */

static pi_status read_piece(proto p, sentencepiece_piece *piece) {
    *piece = (sentencepiece_piece){.type = TOKEN_NORMAL};
    while (p.at < p.end) {
        proto_field f;
        pi_status status = read_field(&p, &f);
        if (status != PI_OK) return status;
        if (f.number == PIECE_TEXT) {
            status = expect_type(&p, &f, WIRE_BYTES);
            piece->text = (const char *)f.bytes;
            piece->n_bytes = f.n_bytes;
        } else if (f.number == PIECE_SCORE) {
            status = expect_type(&p, &f, WIRE_FIXED32);
            uint32_t bits = (uint32_t)f.value;
            memcpy(&piece->score, &bits, sizeof piece->score);
        } else if (f.number == PIECE_TYPE) {
            status = expect_type(&p, &f, WIRE_VARINT);
            /* SentencePiece and GGUF use the same type numbers, from normal (1) to byte (6) */
            if (status == PI_OK && (f.value < TOKEN_NORMAL || f.value > TOKEN_BYTE))
                return bad_proto(&p, "unknown type of piece");
            piece->type = (token_type)f.value;
        }
        if (status != PI_OK) return status;
    }
    if (piece->n_bytes == 0) return bad_proto(&p, "piece without text");
    if (piece->n_bytes > SENTENCEPIECE_MAX_PIECE) return bad_proto(&p, "piece too long");
    if (!utf8_is_valid(piece->text, piece->n_bytes)) return bad_proto(&p, "piece is not UTF-8");
    if (!isfinite(piece->score)) return bad_proto(&p, "score is not a finite number");
    return PI_OK;
}

static int32_t as_id(uint64_t value) { /* int32 fields are sign-extended to 64 bits */
    int64_t id = (int64_t)value;
    return id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
}

static pi_status read_trainer(proto p, sentencepiece_model *m) {
    while (p.at < p.end) {
        proto_field f;
        pi_status status = read_field(&p, &f);
        if (status != PI_OK) return status;
        if (f.number == TRAINER_MODEL_TYPE ||
            (f.number >= TRAINER_UNK_ID && f.number <= TRAINER_PAD_ID)) {
            status = expect_type(&p, &f, WIRE_VARINT);
            if (status != PI_OK) return status;
        }
        switch (f.number) {
        case TRAINER_MODEL_TYPE:
            if (f.value < SENTENCEPIECE_UNIGRAM || f.value > SENTENCEPIECE_CHAR)
                return bad_proto(&p, "unknown kind of model");
            m->kind = (sentencepiece_kind)f.value;
            break;
        case TRAINER_UNK_ID:
            m->unk = as_id(f.value);
            break;
        case TRAINER_BOS_ID:
            m->bos = as_id(f.value);
            break;
        case TRAINER_EOS_ID:
            m->eos = as_id(f.value);
            break;
        case TRAINER_PAD_ID:
            m->pad = as_id(f.value);
            break;
        default:
            break;
        }
    }
    return PI_OK;
}

static pi_status read_normalizer(proto p, sentencepiece_model *m) {
    while (p.at < p.end) {
        proto_field f;
        pi_status status = read_field(&p, &f);
        if (status != PI_OK) return status;
        if (f.number == NORMALIZER_ADD_DUMMY_PREFIX) {
            status = expect_type(&p, &f, WIRE_VARINT);
            if (status != PI_OK) return status;
            m->add_dummy_prefix = f.value != 0;
        }
    }
    return PI_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

static pi_status read_model(proto *p, sentencepiece_model *m, size_t *capacity) {
    while (p->at < p->end) {
        proto_field f;
        pi_status status = read_field(p, &f);
        if (status != PI_OK) return status;
        if (f.number < MODEL_PIECES || f.number > MODEL_NORMALIZER_SPEC) continue;
        status = expect_type(p, &f, WIRE_BYTES);
        if (status != PI_OK) return status;
        proto message = {p->base, f.bytes, f.bytes + f.n_bytes, p->name, p->err};
        if (f.number == MODEL_PIECES) {
            if (m->n_pieces >= TOKENIZER_MAX_VOCAB)
                return error_set(p->err, PI_ERR_LIMIT,
                                 "more than %d pieces: %s: is it a vocabulary?",
                                 TOKENIZER_MAX_VOCAB, p->name);
            if (!mem_grow((void **)&m->pieces, capacity, m->n_pieces + 1, sizeof *m->pieces,
                          TOKENIZER_MAX_VOCAB))
                return error_nomem(p->err, (m->n_pieces + 1) * sizeof *m->pieces, "vocabulary");
            status = read_piece(message, &m->pieces[m->n_pieces++]);
        } else if (f.number == MODEL_TRAINER_SPEC) {
            status = read_trainer(message, m);
        } else {
            status = read_normalizer(message, m);
        }
        if (status != PI_OK) return status;
    }
    return m->n_pieces > 0 ? PI_OK : bad_proto(p, "no pieces");
}

/* Drops ids of the trainer that the vocabulary lacks. */
static void drop_missing_ids(sentencepiece_model *m) {
    int32_t *ids[] = {&m->unk, &m->bos, &m->eos, &m->pad};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (*ids[i] >= 0 && (size_t)*ids[i] >= m->n_pieces) *ids[i] = -1;
}

pi_status sentencepiece_parse(const void *data, size_t n_bytes, const char *name,
                              sentencepiece_model *out, pi_error *err) {
    assert(data && name && out);
    /* the schema's defaults */
    sentencepiece_model m = {.kind = SENTENCEPIECE_UNIGRAM,
                             .add_dummy_prefix = true,
                             .unk = 0,
                             .bos = 1,
                             .eos = 2,
                             .pad = -1};
    proto p = {data, data, (const uint8_t *)data + n_bytes, name, err};
    size_t capacity = 0;
    pi_status status = read_model(&p, &m, &capacity);
    if (status != PI_OK) {
        sentencepiece_free(&m);
        return status;
    }
    drop_missing_ids(&m);
    *out = m;
    return PI_OK;
}

void sentencepiece_free(sentencepiece_model *m) {
    mem_free(m->pieces);
    *m = (sentencepiece_model){0};
}
