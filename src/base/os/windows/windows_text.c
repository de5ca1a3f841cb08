/* windows_text.c: what the C library lacks. The list of the environment, and the arguments, are
 * allocated once and stay until the program ends.
 *
 * Streams that write to memory are temporary files, because a FILE cannot call other functions
 * here. The system keeps such files in its cache and removes them when they are closed. */
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "os_text.h"
#include "os_thread.h"
#include "windows_call.h"

#include <shellapi.h>

/* ---- searching ------------------------------------------------------------------------------- */

void *os_find(const void *in, size_t n, const void *what, size_t n_what) {
    const char *at = in, *end = at + n;
    if (n_what == 0) return (void *)(uintptr_t)in;
    while ((size_t)(end - at) >= n_what) {
        at = memchr(at, *(const char *)what, (size_t)(end - at) - n_what + 1);
        if (!at) return NULL;
        if (memcmp(at, what, n_what) == 0) return (void *)(uintptr_t)at;
        at++;
    }
    return NULL;
}

/* Whether `c` is in the set that begins after "["; *end is after its "]". Without one, "[" is an
 * ordinary character: *end is NULL. As in POSIX, "]" may be the first member. */
static bool in_set(const char *set, char c, const char **end) {
    bool negated = *set == '!' || *set == '^', found = false;
    const char *at = set + negated;
    *end = NULL;
    do {
        char first = *at, last = first;
        if (!first) return false;
        if (at[1] == '-' && at[2] && at[2] != ']') {
            last = at[2];
            at += 2;
        }
        at++;
        found |= (unsigned char)c >= (unsigned char)first &&
                 (unsigned char)c <= (unsigned char)last;
    } while (*at != ']');
    *end = at + 1;
    return found != negated;
}

/* One pattern item other than "*" against one character; returns the rest of the pattern, or
 * NULL. */
static const char *match_one(const char *pattern, char c) {
    const char *end = NULL;
    if (*pattern == '?') return pattern + 1;
    if (*pattern == '[') {
        bool found = in_set(pattern + 1, c, &end);
        if (end) return found ? end : NULL;
    }
    if (*pattern == '\\' && pattern[1]) pattern++;
    return *pattern == c ? pattern + 1 : NULL;
}

/* After a mismatch the last "*" takes one character more. */
bool os_pattern_matches(const char *pattern, const char *name) {
    const char *after_star = NULL, *taken = NULL;
    while (*name) {
        const char *next;
        if (*pattern == '*') {
            after_star = ++pattern;
            taken = name;
        } else if (*pattern && (next = match_one(pattern, *name))) {
            pattern = next;
            name++;
        } else if (after_star) {
            pattern = after_star;
            name = ++taken;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* ---- streams --------------------------------------------------------------------------------- */

static FILE *open_temporary(void) {
    wchar_t folder[MAX_PATH + 1], path[MAX_PATH];
    uint64_t random;
    FILE *file = NULL;
    DWORD n = GetTempPathW(MAX_PATH + 1, folder);
    if (n == 0 || n > MAX_PATH - 40 || !os_random(&random, sizeof random)) return NULL;
    swprintf(path, MAX_PATH, L"%lspowerinfer-%016llx.tmp", folder, (unsigned long long)random);
    HANDLE h = CreateFileW(path, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_NEW,
                           FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (h == INVALID_HANDLE_VALUE) return NULL;
    int fd = _open_osfhandle((intptr_t)h, _O_BINARY);
    if (fd >= 0) file = _fdopen(fd, "w+b");
    if (file) return file;
    if (fd >= 0)
        _close(fd);
    else
        CloseHandle(h);
    return NULL;
}

bool os_text_open(os_text *t) {
    *t = (os_text){.file = open_temporary()};
    return t->file != NULL;
}

bool os_text_close(os_text *t) {
    int64_t n = fflush(t->file) == 0 && !ferror(t->file) ? _ftelli64(t->file) : -1;
    bool good = n >= 0 && (t->text = mem_alloc((size_t)n + 1)) != NULL;
    if (good) {
        rewind(t->file);
        good = fread(t->text, 1, (size_t)n, t->file) == (size_t)n;
        t->text[n] = '\0';
        t->n = (size_t)n;
    }
    fclose(t->file);
    return good;
}

/* ---- arguments, environment ------------------------------------------------------------------ */

/* NULL: no memory, for a variable that is left out. */
static char *text_of(const wchar_t *wide) {
    size_t n = 3 * wcslen(wide) + 1; /* a UTF-16 unit needs up to three bytes */
    char *text = mem_alloc(n);
    if (text && windows_text(wide, text, n)) return text;
    mem_free(text);
    return NULL;
}

static char **variables;

static void read_environment(void) {
    size_t n = 0, kept = 0;
    wchar_t *block = GetEnvironmentStringsW();
    for (const wchar_t *at = block; at && *at; at += wcslen(at) + 1) n++;
    char **list = mem_calloc(n + 1, sizeof *list);
    for (const wchar_t *at = block; list && at && *at; at += wcslen(at) + 1)
        if (*at != L'=' && (list[kept] = text_of(at))) kept++; /* "=C:" is a drive's folder */
    FreeEnvironmentStringsW(block);
    variables = list;
}

char *const *os_environment(void) {
    static os_once once;
    os_once_run(&once, read_environment);
    return variables;
}

/* The C library converts arguments to the system's code page, which is UTF-8 only in some releases
 * of Windows, and expands "*" and "?" in them. */
char **os_arguments(int *argc, char **argv) {
    int n;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **list = wide ? mem_calloc((size_t)n + 1, sizeof *list) : NULL;
    for (int i = 0; list && i < n; i++)
        if (!(list[i] = text_of(wide[i]))) return argv;
    LocalFree(wide);
    if (!list) return argv;
    *argc = n;
    return list;
}
