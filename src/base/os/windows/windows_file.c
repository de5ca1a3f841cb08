/* windows_file.c: open files are handles, which permit other programs everything: reading, writing,
 * renaming and removing, as on other systems. The system runs the reads of a handle one after the
 * other: windows_reads.c opens further ones. */
#include <errno.h>
#include <string.h>
#include <wchar.h>

#include <winternl.h>

#include "os_file.h"
#include "windows_call.h"
#include "windows_info.h"
#include "windows_terminal.h"

/* Maximum bytes of one ReadFile or WriteFile, whose counts have 32 bits; a multiple of every
 * drive's block size. */
enum { PIECE = 1 << 30 };

/* The byte that a lock covers: locks are mandatory, so it is one that no file has. */
static const uint64_t lock_at = INT64_MAX - 1;

static DWORD piece_of(size_t n) {
    return n < PIECE ? (DWORD)n : PIECE;
}

static OVERLAPPED place_of(uint64_t offset) {
    return (OVERLAPPED){.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
}

bool os_problem_is_full(int problem) {
    return problem == ENOSPC;
}

/* ---- opening --------------------------------------------------------------------------------- */

static HANDLE open_once(const wchar_t *path, unsigned how) {
    DWORD access = (how & OS_READ ? GENERIC_READ : 0) | (how & OS_WRITE ? GENERIC_WRITE : 0);
    DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    DWORD create = !(how & OS_CREATE) ? OPEN_EXISTING : how & OS_NEW ? CREATE_NEW : OPEN_ALWAYS;
    /* FILE_FLAG_BACKUP_SEMANTICS also opens folders, which callers recognize by os_file_info. */
    DWORD flags = FILE_ATTRIBUTE_NORMAL | FILE_FLAG_BACKUP_SEMANTICS;
    if (how & OS_DIRECT) flags |= FILE_FLAG_NO_BUFFERING;
    if (how & OS_NO_FOLLOW) flags |= FILE_FLAG_OPEN_REPARSE_POINT;
    return CreateFileW(path, access, share, NULL, create, flags, NULL);
}

int os_file_open(const char *path, unsigned how, os_file *out) {
    wchar_t wide[WINDOWS_PATH_MAX];
    *out = OS_FILE_NONE;
    int problem = windows_path(path, wide);
    if (problem) return problem;
    HANDLE h = open_once(wide, how);
    for (int i = 0; h == INVALID_HANDLE_VALUE && GetLastError() == ERROR_SHARING_VIOLATION &&
                    i < WINDOWS_RETRIES;
         i++) {
        Sleep(WINDOWS_RETRY_MS);
        h = open_once(wide, how);
    }
    if (h == INVALID_HANDLE_VALUE) {
        problem = windows_last();
        DWORD attributes = problem == EACCES ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
        bool folder = attributes != INVALID_FILE_ATTRIBUTES &&
                      attributes & FILE_ATTRIBUTE_DIRECTORY;
        return folder ? EISDIR : problem;
    }
    FILE_ATTRIBUTE_TAG_INFO tag = {0};
    if (how & OS_NO_FOLLOW &&
        GetFileInformationByHandleEx(h, FileAttributeTagInfo, &tag, sizeof tag) &&
        tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT &&
        tag.ReparseTag == IO_REPARSE_TAG_SYMLINK) {
        CloseHandle(h);
        return ELOOP;
    }
    *out = (intptr_t)h | (how & OS_DIRECT ? WINDOWS_DIRECT : 0);
    return 0;
}

/* Files have names here. */
int os_file_open_unnamed(const char *folder, os_file *out) {
    (void)folder;
    *out = OS_FILE_NONE;
    return EOPNOTSUPP;
}

int os_file_open_memory(os_file *out) {
    *out = OS_FILE_NONE;
    return EOPNOTSUPP;
}

int os_file_close(os_file f) {
    return windows_result(CloseHandle(windows_handle(f)));
}

int os_file_duplicate(os_file f, os_file *out) {
    HANDLE self = GetCurrentProcess(), copy;
    *out = OS_FILE_NONE;
    if (!DuplicateHandle(self, windows_handle(f), self, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return windows_last();
    *out = (intptr_t)copy | (f > OS_STDERR ? f & WINDOWS_DIRECT : 0);
    return 0;
}

bool os_file_path(os_file f, char path[OS_PATH_MAX]) {
    (void)f;
    (void)path;
    return false;
}

int os_file_link(os_file f, const char *path) {
    (void)f;
    (void)path;
    return EOPNOTSUPP;
}

/* ---- properties ------------------------------------------------------------------------------ */

int os_file_info(os_file f, os_info *out) {
    return windows_info(windows_handle(f), out);
}

/* The rights with which a handle was opened; 0: unknown. */
static ACCESS_MASK rights_of(os_file f) {
    PUBLIC_OBJECT_BASIC_INFORMATION info = {0};
    NTSTATUS status = NtQueryObject(windows_handle(f), ObjectBasicInformation, &info, sizeof info,
                                    NULL);
    return NT_SUCCESS(status) ? info.GrantedAccess : 0;
}

bool os_file_is_writable(os_file f) {
    return rights_of(f) & (FILE_WRITE_DATA | FILE_APPEND_DATA);
}

bool os_file_appends(os_file f) {
    return (rights_of(f) & (FILE_WRITE_DATA | FILE_APPEND_DATA)) == FILE_APPEND_DATA;
}

/* Access lists come from the folder. */
void os_file_permit(os_file f, unsigned permissions) {
    (void)f;
    (void)permissions;
}

int64_t os_file_position(os_file f) {
    LARGE_INTEGER none = {.QuadPart = 0}, at;
    HANDLE h = windows_handle(f);
    if (GetFileType(h) != FILE_TYPE_DISK || !SetFilePointerEx(h, none, &at, FILE_CURRENT))
        return -1;
    return at.QuadPart;
}

int os_file_seek(os_file f, uint64_t offset) {
    LARGE_INTEGER to = {.QuadPart = (LONGLONG)offset};
    return windows_result(SetFilePointerEx(windows_handle(f), to, NULL, FILE_BEGIN));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What a failed read means: 0 at the end of a file or pipe. */
static int read_problem(DWORD error) {
    return error == ERROR_HANDLE_EOF || error == ERROR_BROKEN_PIPE ? 0 : windows_errno(error);
}

int os_file_read(os_file f, void *data, size_t n, size_t *n_read) {
    HANDLE h = windows_handle(f);
    bool console = windows_is_console(h);
    for (*n_read = 0; *n_read < n;) {
        DWORD got = 0;
        char *to = (char *)data + *n_read;
        if (console)
            got = (DWORD)windows_console_read(h, to, piece_of(n - *n_read));
        else if (!ReadFile(h, to, piece_of(n - *n_read), &got, NULL) &&
                 read_problem(GetLastError()))
            return windows_last();
        if (got == 0) break;
        *n_read += got;
    }
    return 0;
}

/* A read or write at an offset. Every call moves the handle's position, which is set back. */
static int move_at(HANDLE h, bool write, void *data, DWORD n, uint64_t offset, DWORD *moved) {
    LARGE_INTEGER none = {.QuadPart = 0}, before;
    OVERLAPPED o = place_of(offset);
    if (!SetFilePointerEx(h, none, &before, FILE_CURRENT)) return windows_last();
    BOOL done = write ? WriteFile(h, data, n, moved, &o) : ReadFile(h, data, n, moved, &o);
    DWORD error = done ? 0 : GetLastError();
    (void)SetFilePointerEx(h, before, NULL, FILE_BEGIN);
    return error && !write ? read_problem(error) : windows_errno(error);
}

int os_file_read_at(os_file f, void *data, size_t n, uint64_t offset, size_t *n_read) {
    DWORD got = 0;
    int problem = move_at(windows_handle(f), false, data, piece_of(n), offset, &got);
    *n_read = problem ? 0 : got;
    return problem;
}

/* Consoles and pipes refuse large writes when the system is short of memory for them. */
enum { STREAM_PIECE = 32 << 10 };

int os_file_write(os_file f, const void *data, size_t n) {
    HANDLE h = windows_handle(f);
    size_t most = GetFileType(h) == FILE_TYPE_DISK ? PIECE : STREAM_PIECE;
    for (const char *p = data; n > 0;) {
        DWORD put = 0;
        if (!WriteFile(h, p, (DWORD)(n < most ? n : most), &put, NULL)) return windows_last();
        p += put;
        n -= put;
    }
    return 0;
}

int os_file_write_at(os_file f, const void *data, size_t n, uint64_t offset) {
    HANDLE h = windows_handle(f);
    for (char *p = (char *)(uintptr_t)data; n > 0;) {
        DWORD put = 0;
        int problem = move_at(h, true, p, piece_of(n), offset, &put);
        if (problem) return problem;
        p += put;
        offset += put;
        n -= put;
    }
    return 0;
}

int os_file_resize(os_file f, uint64_t size) {
    FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = (LONGLONG)size};
    return windows_result(
        SetFileInformationByHandle(windows_handle(f), FileEndOfFileInfo, &end, sizeof end));
}

/* A longer file has its clusters at once. */
int os_file_reserve(os_file f, uint64_t size) {
    LARGE_INTEGER now;
    if (!GetFileSizeEx(windows_handle(f), &now)) return windows_last();
    return (uint64_t)now.QuadPart < size ? os_file_resize(f, size) : 0;
}

int os_file_sync(os_file f) {
    return windows_result(FlushFileBuffers(windows_handle(f)));
}

int os_file_lock(os_file f) {
    OVERLAPPED o = place_of(lock_at);
    return windows_result(LockFileEx(
        windows_handle(f), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &o));
}

/* The cache of a handle's file cannot be trimmed. */
void os_file_forget(os_file f, uint64_t offset, uint64_t n_bytes) {
    (void)f;
    (void)offset;
    (void)n_bytes;
}

uint64_t os_file_room(os_file f) {
    wchar_t path[WINDOWS_PATH_MAX];
    ULARGE_INTEGER room;
    DWORD n = GetFinalPathNameByHandleW(windows_handle(f), path, WINDOWS_PATH_MAX, 0);
    if (n == 0 || n >= WINDOWS_PATH_MAX) return UINT64_MAX;
    wchar_t *last = wcsrchr(path, L'\\');
    if (last) last[1] = L'\0'; /* the folder */
    return GetDiskFreeSpaceExW(path, &room, NULL, NULL) ? room.QuadPart : UINT64_MAX;
}

/* ---- mapped files ---------------------------------------------------------------------------- */

/* The view keeps its section, and the section its file. */
static int map_file(os_file f, size_t size, DWORD protection, DWORD access, const void **out) {
    *out = NULL;
    HANDLE section = CreateFileMappingW(windows_handle(f), NULL, protection, 0, 0, NULL);
    if (!section) return windows_last();
    *out = MapViewOfFile(section, access, 0, 0, size);
    int problem = *out ? 0 : windows_last();
    CloseHandle(section);
    return problem;
}

int os_file_map(os_file f, size_t size, const void **out) {
    return map_file(f, size, PAGE_READONLY, FILE_MAP_READ, out);
}

/* The system counts all pages of such a view as memory that may be needed (commit charge), although
 * few are ever written. */
int os_file_map_private(os_file f, size_t size, const void **out) {
    return map_file(f, size, PAGE_WRITECOPY, FILE_MAP_COPY, out);
}

void os_file_unmap(const void *data, size_t size) {
    (void)size;
    UnmapViewOfFile(data);
}
