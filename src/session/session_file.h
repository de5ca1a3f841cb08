/* session_file.h: the file that a session is saved in. Private to src/session and its tests.
 *
 * Little-endian, no padding:
 *
 *     offset  bytes
 *          0      8  magic "PISESSN" and a newline
 *          8      4  version, 2
 *         12      4  number of tokens, n >= 1
 *         16      4  type of keys, as in GGUF
 *         20      4  type of values
 *         24      8  hash of the model: architecture and tensors
 *         32      8  bytes of one token in the cache, all layers: b
 *         40      8  hash of the tokens and the cache
 *         48      8  hash of the settings: hyperparameters, adapters, modes that leave neurons out
 *         56      8  hash of the 56 bytes above
 *         64    4 n  token ids, int32
 *     64+4 n    b n  cache: for every layer, for every KV head: keys [n][row_k], values [n][row_v];
 *                    with sparse attention, then its index [n][row]. Compressed keys and
 *                    their index have a row for every `ratio` tokens: [n / ratio + 1][row]; the
 *                    last row is zeros; b does not count these rows
 *                    the state of recurrent layers after n tokens, float32; other models have none
 *
 * The hashes detect damage, not forgery: a forged file can put any numbers into the cache, which
 * only changes the logits. Ids and sizes are checked in any case. */
#ifndef SESSION_SESSION_FILE_H
#define SESSION_SESSION_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { SESSION_HEADER_BYTES = 64, SESSION_VERSION = 2, SESSION_RATIOS = 11 /* MODEL_RATIOS */ };

struct model;
struct pi_session;

/* The header values that a session expects. */
typedef struct session_shape {
    uint64_t model, settings; /* hashes */
    uint32_t type_k, type_v;
    uint64_t token_bytes;               /* of one token in the cache */
    uint64_t row_bytes[SESSION_RATIOS]; /* of the rows that belong to 2^i tokens each; [0]: 0 */
    uint64_t state_bytes;               /* of recurrent layers, after the cache */
    int32_t n_vocab;
} session_shape;

typedef struct session_view {
    int32_t n_tokens;
    const uint8_t *tokens; /* [n_tokens] int32, not aligned */
    const uint8_t *cache;  /* [n_tokens * token_bytes] */
    const uint8_t *state;  /* [state_bytes] */
} session_view;

/* A running hash of 64 bits over pieces; only the last piece may have a length that is not a
 * multiple of 8. */
typedef struct session_hash {
    uint64_t state, n_bytes;
} session_hash;
void session_hash_add(session_hash *h, const void *data, size_t n_bytes);
uint64_t session_hash_end(const session_hash *h);
uint64_t session_hash_of(const void *data, size_t n_bytes); /* of one piece */

/* A cache depends on the tokens, the model file, and its settings. The model's hash covers the
 * first bytes of each tensor, which tells fine-tunes apart. */
enum { SESSION_SAMPLE_BYTES = 64 };
uint64_t session_model_hash(const struct model *m);
uint64_t session_settings_hash(const struct pi_session *s);

void session_header_write(uint8_t header[SESSION_HEADER_BYTES], const session_shape *shape,
                          int32_t n_tokens, uint64_t payload_hash);

/* Checks the bytes of a whole file; the view points into them. PI_ERR_FORMAT: not a saved session,
 * or a damaged one; PI_ERR_UNSUPPORTED: another version, model, settings or cache types. */
pi_status session_parse(const uint8_t *data, size_t n_bytes, const char *name,
                        const session_shape *shape, session_view *view, pi_error *err);

#endif
