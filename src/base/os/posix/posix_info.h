/* posix_info.h: converts the result of stat() to os_info. */
#ifndef BASE_POSIX_INFO_H
#define BASE_POSIX_INFO_H

#include <sys/stat.h>

#include "os_file.h"

void posix_info_fill(os_info *out, const struct stat *st);

#endif
