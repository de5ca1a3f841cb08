/* posix_parts.h: parts of a read as the kernel takes them. */
#ifndef BASE_POSIX_PARTS_H
#define BASE_POSIX_PARTS_H

#include <stddef.h>
#include <sys/uio.h>

#include "os_reads.h"

_Static_assert(sizeof(os_read_part) == sizeof(struct iovec) &&
                   offsetof(os_read_part, to) == offsetof(struct iovec, iov_base) &&
                   offsetof(os_read_part, n) == offsetof(struct iovec, iov_len),
               "a part is a struct iovec");

static inline const struct iovec *posix_parts(const os_read_part *parts) {
    return (const struct iovec *)(const void *)parts;
}

#endif
