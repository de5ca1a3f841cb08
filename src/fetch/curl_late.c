/* curl_late.c: see curl_late.h. libcurl's names are in parentheses because its header also defines
 * macros of these names. */
#include "curl_late.h"

/* Versions of libcurl differ in whether its first parameter is const. */
#define curl_url_get curl_url_get_of_header
#include <curl/curl.h>
#undef curl_url_get
#include <stdarg.h>
#include <stdlib.h>

#include "dynlib.h"

/* F(result, name without curl_, parameters) */
#define CURL_FUNCTIONS(F)                                                                          \
    F(CURLcode, global_init, (long))                                                               \
    F(void, global_cleanup, (void))                                                                \
    F(CURL *, easy_init, (void))                                                                   \
    F(void, easy_cleanup, (CURL *))                                                                \
    F(void, easy_reset, (CURL *))                                                                  \
    F(CURLcode, easy_perform, (CURL *))                                                            \
    F(CURLcode, easy_setopt, (CURL *, CURLoption, ...))                                            \
    F(CURLcode, easy_getinfo, (CURL *, CURLINFO, ...))                                             \
    F(const char *, easy_strerror, (CURLcode))                                                     \
    F(CURLU *, url, (void))                                                                        \
    F(void, url_cleanup, (CURLU *))                                                                \
    F(CURLUcode, url_set, (CURLU *, CURLUPart, const char *, unsigned))                            \
    F(CURLUcode, url_get, (const CURLU *, CURLUPart, char **, unsigned))                           \
    F(void, free, (void *))                                                                        \
    F(struct curl_slist *, slist_append, (struct curl_slist *, const char *))                      \
    F(void, slist_free_all, (struct curl_slist *))

#define MEMBER(result, name, parameters) result(*name) parameters;
static struct { CURL_FUNCTIONS(MEMBER) } lib;

/* Debian has the second name for libcurl with GnuTLS; the interface is the same. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

pi_status curl_late_open(pi_error *err) {
    static void *handle;
    bool complete = true;
    pi_error why;
    if (handle) return PI_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !handle; i++)
        if (dynlib_open(names[i], &handle, &why) != PI_OK) handle = NULL;
    if (!handle)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "downloading needs libcurl: %s not found: install it (Debian, Ubuntu: "
                         "libcurl4; Fedora: libcurl; Arch: curl), or download the file with "
                         "another program and name it with -m FILE",
                         names[0]);
#define LOAD(result, name, parameters)                                                             \
    lib.name = (result(*) parameters)dynlib_symbol(handle, "curl_" #name);                         \
    complete = complete && lib.name;
    CURL_FUNCTIONS(LOAD)
    if (complete) return PI_OK;
    handle = NULL; /* dynlib.h: libraries are never unloaded */
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "this system's libcurl is too old: 7.62 or later is needed");
}

CURLcode(curl_global_init)(long flags) {
    return lib.global_init(flags);
}

void(curl_global_cleanup)(void) {
    lib.global_cleanup();
}

CURL *(curl_easy_init)(void) {
    return lib.easy_init();
}

void(curl_easy_cleanup)(CURL *curl) {
    lib.easy_cleanup(curl);
}

void(curl_easy_reset)(CURL *curl) {
    lib.easy_reset(curl);
}

CURLcode(curl_easy_perform)(CURL *curl) {
    return lib.easy_perform(curl);
}

/* The number of an option says which type its value has. (Nothing here sets a blob.) */
CURLcode(curl_easy_setopt)(CURL *curl, CURLoption option, ...) {
    va_list list;
    CURLcode code;
    va_start(list, option);
    if (option < CURLOPTTYPE_OBJECTPOINT)
        code = lib.easy_setopt(curl, option, va_arg(list, long));
    else if (option < CURLOPTTYPE_FUNCTIONPOINT)
        code = lib.easy_setopt(curl, option, va_arg(list, void *));
    else if (option < CURLOPTTYPE_OFF_T)
        code = lib.easy_setopt(curl, option, va_arg(list, dynlib_function));
    else
        code = lib.easy_setopt(curl, option, va_arg(list, curl_off_t));
    va_end(list);
    return code;
}

CURLcode(curl_easy_getinfo)(CURL *curl, CURLINFO info, ...) {
    va_list list;
    va_start(list, info);
    CURLcode code = lib.easy_getinfo(curl, info, va_arg(list, void *));
    va_end(list);
    return code;
}

const char *(curl_easy_strerror)(CURLcode code) {
    return lib.easy_strerror(code);
}

CURLU *(curl_url)(void) {
    return lib.url();
}

void(curl_url_cleanup)(CURLU *url) {
    lib.url_cleanup(url);
}

CURLUcode(curl_url_set)(CURLU *url, CURLUPart part, const char *text, unsigned flags) {
    return lib.url_set(url, part, text, flags);
}

CURLUcode curl_url_get(const CURLU *url, CURLUPart part, char **text, unsigned flags);
CURLUcode curl_url_get(const CURLU *url, CURLUPart part, char **text, unsigned flags) {
    return lib.url_get(url, part, text, flags);
}

void(curl_free)(void *memory) {
    lib.free(memory);
}

struct curl_slist *(curl_slist_append)(struct curl_slist *list, const char *text) {
    return lib.slist_append(list, text);
}

void(curl_slist_free_all)(struct curl_slist *list) {
    lib.slist_free_all(list);
}
