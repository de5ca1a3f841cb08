/* posix.c: calls of POSIX and GNU that tests use and Windows's C library lacks. The headers in this
 * folder, which tests find first, add them to the compiler's. What has no counterpart, such as
 * fork, is not here: tests that need it are not built for Windows (pi_not_on). */
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os_memory.h"
#include "os_text.h"
#include "rng.h"

#undef fclose
#undef mkdir
#undef socket
#undef connect
#undef send
#undef recv
#undef shutdown

int posix_mkdir(const char *path, int mode) {
    (void)mode;
    return _mkdir(path);
}

char *mkdtemp(char *name) {
    enum { ATTEMPTS = 100 };
    char *digits = name + strlen(name) - 6;
    for (int i = 0; i < ATTEMPTS; i++) {
        char random[7];
        snprintf(random, sizeof random, "%06x", (unsigned)(rng_entropy() & 0xffffff));
        memcpy(digits, random, 6);
        if (_mkdir(name) == 0) return name;
        if (errno != EEXIST) return NULL;
    }
    return NULL;
}

int setenv(const char *name, const char *value, int replace) {
    if (!replace && getenv(name)) return 0;
    return _putenv_s(name, value);
}

int unsetenv(const char *name) {
    return _putenv_s(name, "");
}

void *memmem(const void *in, size_t n, const void *what, size_t n_what) {
    return os_find(in, n, what, n_what);
}

char *strndup(const char *text, size_t n) {
    size_t length = strnlen(text, n);
    char *copy = malloc(length + 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *strcasestr(const char *in, const char *what) {
    size_t n = strlen(what);
    for (; *in; in++)
        if (_strnicmp(in, what, n) == 0) return (char *)(uintptr_t)in;
    return NULL;
}

ssize_t pread(int fd, void *data, size_t n, off_t offset) {
    return _lseeki64(fd, offset, SEEK_SET) == offset ? _read(fd, data, (unsigned)n) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    return _lseeki64(fd, offset, SEEK_SET) == offset ? _write(fd, data, (unsigned)n) : -1;
}

/* Bytes of files are not changed, whatever opens them. */
static void __attribute__((constructor)) open_binary(void) {
    _fmode = _O_BINARY;
}

long sysconf(int name) {
    return name == _SC_PAGESIZE ? (long)os_page_size() : -1;
}

/* ---- streams to memory: a file, which is read when it is closed ------------------------------ */

typedef struct memory_stream {
    FILE *file;
    char **text;
    size_t *n_text;
} memory_stream;

static memory_stream streams[16];

FILE *open_memstream(char **text, size_t *n_text) {
    char name[64];
    snprintf(name, sizeof name, "memory_%016llx.tmp", (unsigned long long)rng_entropy());
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        if (streams[i].file) continue;
        FILE *file = fopen(name, "w+bD"); /* D: removed when it is closed */
        if (!file) return NULL;
        streams[i] = (memory_stream){.file = file, .text = text, .n_text = n_text};
        return file;
    }
    return NULL;
}

int posix_fclose(FILE *file) {
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        memory_stream *s = &streams[i];
        if (s->file != file || !file) continue;
        long n = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
        char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
        rewind(file);
        if (text && fread(text, 1, (size_t)n, file) != (size_t)n) n = -1;
        s->file = NULL;
        if (fclose(file) != 0 || !text || n < 0) return -1;
        text[n] = '\0';
        *s->text = text;
        *s->n_text = (size_t)n;
        return 0;
    }
    return fclose(file);
}

/* ---- memory by pages ------------------------------------------------------------------------- */

static DWORD protection(int access) {
    return access == PROT_NONE   ? PAGE_NOACCESS
           : access & PROT_WRITE ? PAGE_READWRITE
                                 : PAGE_READONLY;
}

void *mmap(void *at, size_t n, int access, int how, int fd, long offset) {
    if (at || fd >= 0 || offset || !(how & MAP_ANONYMOUS)) return MAP_FAILED;
    void *p = VirtualAlloc(NULL, n, MEM_RESERVE | MEM_COMMIT, protection(access));
    return p ? p : MAP_FAILED;
}

int munmap(void *p, size_t n) {
    (void)n;
    return VirtualFree(p, 0, MEM_RELEASE) ? 0 : -1;
}

int mprotect(void *p, size_t n, int access) {
    DWORD before;
    return VirtualProtect(p, n, protection(access), &before) ? 0 : -1;
}

int madvise(void *p, size_t n, int hint) {
    (void)p, (void)n, (void)hint;
    return 0;
}

/* ---- sockets: descriptors from SOCKETS on, so that close() knows them ------------------------ */

enum { SOCKETS = 1 << 24 };

static SOCKET of(int fd) {
    return (SOCKET)(fd - SOCKETS);
}

int posix_socket(int domain, int type, int protocol) {
    WSADATA data;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) return -1;
    SOCKET s = socket(domain, type, protocol);
    return s < (SOCKET)(INT_MAX - SOCKETS) ? (int)s + SOCKETS : -1;
}

int posix_connect(int fd, const struct sockaddr *to, int n) {
    return connect(of(fd), to, n);
}

ssize_t posix_send(int fd, const void *data, size_t n, int how) {
    return send(of(fd), data, (int)n, how);
}

ssize_t posix_recv(int fd, void *data, size_t n, int how) {
    return recv(of(fd), data, (int)n, how);
}

int posix_shutdown(int fd, int how) {
    return shutdown(of(fd), how);
}

/* Instead of the C library's, so that no macro changes members of structs. */
int close(int fd) {
    return fd >= SOCKETS ? closesocket(of(fd)) : _close(fd);
}
