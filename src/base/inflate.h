/* inflate.h: decompresses gzip (RFC 1952, of one member; RFC 1951 inside). */
#ifndef BASE_INFLATE_H
#define BASE_INFLATE_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Writes the text, of exactly n_out bytes, to `out`. PI_ERR_FORMAT: the bytes are malformed, or the
 * text has another size. The checksum at the end is compared. */
pi_status inflate_gzip(const uint8_t *bytes, size_t n_bytes, uint8_t *out, size_t n_out,
                       pi_error *err);

#endif
