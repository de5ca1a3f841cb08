/* windows_info.h: what an open handle is. */
#ifndef BASE_WINDOWS_INFO_H
#define BASE_WINDOWS_INFO_H

#include "windows_call.h"

/* 0 or an error number. */
int windows_info(HANDLE h, os_info *out);

#endif
