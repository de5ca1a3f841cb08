/* posix.c: calls of POSIX and GNU that tests use and Windows's C library lacks. The headers in this
 * folder, which tests find first, add them to the compiler's. Calls without a counterpart, such as
 * fork, are not here: tests/not_on_windows.cmake lists the tests that need them. */
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <io.h>
#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os_file.h"
#include "os_memory.h"
#include "os_text.h"
#include "rng.h"

#undef fclose
#undef popen
#undef rename
#undef pclose
#undef system
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

/* ---- the host's shell ------------------------------------------------------------------------ */

enum { SHELL_ROOM = 512 };

/* wine cannot tell when a program of the host ends, so a file tells it, with the status. A line may
 * change the folder or exit. */
int posix_system(const char *line) {
    char path[SHELL_ROOM], text[2 * SHELL_ROOM];
    STARTUPINFOA start = {.cb = sizeof start};
    PROCESS_INFORMATION process;
    snprintf(path, sizeof path, TEST_BINARY_DIR "/shell_%lu_%lu", GetCurrentProcessId(),
             GetCurrentThreadId());
    FILE *file = fopen(path, "wb");
    if (!file) return -1;
    fprintf(file, "(\n%s\n)\necho $? >'%s.new'\nmv '%s.new' '%s.status'\n", line, path, path, path);
    bool written = !ferror(file);
    if (fclose(file) != 0 || !written) return -1;
    snprintf(text, sizeof text, "sh \"%s\"", path);
    if (!CreateProcessA("Z:\\bin\\sh", text, NULL, NULL, FALSE, 0, NULL, NULL, &start, &process))
        return -1;
    CloseHandle(process.hProcess);
    CloseHandle(process.hThread);
    snprintf(text, sizeof text, "%s.status", path);
    while (!(file = fopen(text, "rb"))) Sleep(2);
    long status = -1;
    if (fscanf(file, "%ld", &status) != 1) status = -1;
    fclose(file);
    remove(text);
    remove(path);
    return status < 0 ? -1 : (int)status << 8;
}

static struct {
    FILE *file; /* NULL: none is open */
    int status;
} pipes[4];

FILE *posix_popen(const char *line, const char *how) {
    static const char named[] = "{ %s\n} >popen_output";
    size_t n = strlen(line) + sizeof named, i = 0;
    char *whole = malloc(n);
    while (i < sizeof pipes / sizeof *pipes && pipes[i].file) i++;
    if (!whole || *how != 'r' || i == sizeof pipes / sizeof *pipes) return NULL;
    snprintf(whole, n, named, line);
    pipes[i].status = posix_system(whole);
    free(whole);
    return pipes[i].file = pipes[i].status < 0 ? NULL : fopen("popen_output", "rb");
}

int posix_pclose(FILE *file) {
    for (size_t i = 0; i < sizeof pipes / sizeof *pipes; i++) {
        if (pipes[i].file != file) continue;
        fclose(file);
        pipes[i].file = NULL;
        (void)remove("popen_output");
        return pipes[i].status;
    }
    return -1;
}

int posix_rename(const char *from, const char *to) {
    return os_path_rename(from, to) == 0 ? 0 : -1;
}

static int run_tool(const char *tool, const char *a, const char *b) {
    char line[4 * SHELL_ROOM];
    snprintf(line, sizeof line, "%s '%s' '%s'", tool, a, b);
    return posix_system(line) == 0 ? 0 : -1;
}

int symlink(const char *target, const char *path) {
    return run_tool("ln -s", target, path);
}

int mkfifo(const char *path, int mode) {
    (void)mode;
    return run_tool("mkfifo", "-m600", path);
}

int geteuid(void) {
    return 0;
}

int pipe(int ends[2]) {
    enum { ROOM = 64 << 10 }; /* as on Linux */
    return _pipe(ends, ROOM, _O_BINARY);
}

/* ---- names ----------------------------------------------------------------------------------- */

int glob(const char *pattern, int flags, int (*failed)(const char *path, int problem),
         glob_t *out) {
    struct __finddata64_t found;
    const char *last = strrchr(pattern, '/');
    int n_folder = last ? (int)(last + 1 - pattern) : 0;
    intptr_t search = _findfirst64(pattern, &found);
    (void)flags, (void)failed;
    *out = (glob_t){0};
    if (search == -1) return -1;
    do {
        size_t n = (size_t)n_folder + strlen(found.name) + 1;
        char *path = malloc(n),
             **grown = realloc(out->gl_pathv, (out->gl_pathc + 1) * sizeof *grown);
        if (!path || !grown) abort();
        snprintf(path, n, "%.*s%s", n_folder, pattern, found.name);
        out->gl_pathv = grown;
        out->gl_pathv[out->gl_pathc++] = path;
    } while (_findnext64(search, &found) == 0);
    _findclose(search);
    return 0;
}

void globfree(glob_t *g) {
    for (size_t i = 0; i < g->gl_pathc; i++) free(g->gl_pathv[i]);
    free(g->gl_pathv);
}

/* ---- the heap -------------------------------------------------------------------------------- */

struct mallinfo2 mallinfo2(void) {
    enum { HEAPS = 64 };
    HANDLE heaps[HEAPS];
    struct mallinfo2 sum = {0};
    DWORD n = GetProcessHeaps(HEAPS, heaps);
    for (DWORD i = 0; i < n && i < HEAPS; i++) {
        PROCESS_HEAP_ENTRY e = {0};
        HeapLock(heaps[i]);
        while (HeapWalk(heaps[i], &e))
            if (e.wFlags & PROCESS_HEAP_ENTRY_BUSY) sum.uordblks += e.cbData;
        HeapUnlock(heaps[i]);
    }
    return sum;
}

int mallopt(int name, int value) {
    (void)name, (void)value;
    return 1;
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
    fd_set readable;
    struct timeval now = {0};
    FD_ZERO(&readable);
    FD_SET(of(fd), &readable);
    if (how & MSG_DONTWAIT && select(0, &readable, NULL, NULL, &now) == 0) return -1;
    return recv(of(fd), data, (int)n, how & ~MSG_DONTWAIT);
}

int posix_shutdown(int fd, int how) {
    return shutdown(of(fd), how);
}

/* Instead of the C library's, so that no macro changes members of structs. */
int close(int fd) {
    return fd >= SOCKETS ? closesocket(of(fd)) : _close(fd);
}
