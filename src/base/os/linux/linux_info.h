/* linux_info.h: what stat says, as os_file.h has it. */
#ifndef BASE_LINUX_INFO_H
#define BASE_LINUX_INFO_H

#include <sys/stat.h>

#include "os_file.h"

void linux_info_fill(os_info *out, const struct stat *st);

#endif
