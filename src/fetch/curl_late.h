/* curl_late.h: libcurl opened at run time, for a program that is to start on systems without it.
 * curl_late.c defines the functions of libcurl that this module calls; they forward to the library
 * that curl_late_open has found. */
#ifndef FETCH_CURL_LATE_H
#define FETCH_CURL_LATE_H

#include "error.h"

/* Opens the system's libcurl; no other function of libcurl may be called before. Later calls do
 * nothing. One thread at a time. PI_ERR_UNSUPPORTED: there is none, or it lacks a function. */
pi_status curl_late_open(pi_error *err);

#endif
