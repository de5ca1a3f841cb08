/* windows_path.c: paths and folders. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "os_file.h"
#include "os_thread.h"
#include "windows_call.h"
#include "windows_info.h"

#include <sddl.h>

/* ---- what a path is -------------------------------------------------------------------------- */

/* Ticks of 100 ns from 1601 to 1970. */
static const int64_t ticks_to_1970 = INT64_C(116444736000000000);

int windows_info(HANDLE h, os_info *out) {
    BY_HANDLE_FILE_INFORMATION file;
    FILE_STANDARD_INFO standard = {0};
    DWORD type = GetFileType(h);
    *out = (os_info){.kind = OS_OTHER};
    if (type == FILE_TYPE_UNKNOWN && GetLastError() != NO_ERROR) return windows_last();
    if (type != FILE_TYPE_DISK) return 0;
    if (!GetFileInformationByHandle(h, &file)) return windows_last();
    (void)GetFileInformationByHandleEx(h, FileStandardInfo, &standard, sizeof standard);
    int64_t ticks = (int64_t)((uint64_t)file.ftLastWriteTime.dwHighDateTime << 32 |
                              file.ftLastWriteTime.dwLowDateTime);
    *out = (os_info){.kind = file.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? OS_FOLDER
                                                                              : OS_REGULAR,
                     .size = (uint64_t)file.nFileSizeHigh << 32 | file.nFileSizeLow,
                     .volume = file.dwVolumeSerialNumber,
                     .index = (uint64_t)file.nFileIndexHigh << 32 | file.nFileIndexLow,
                     .n_names = standard.DeletePending ? 0 : file.nNumberOfLinks,
                     .modified = (ticks - ticks_to_1970) * 100};
    return 0;
}

static const DWORD share_all = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/* Opens a file or folder for a call that needs a handle. */
static int open_for(const char *path, DWORD access, HANDLE *out) {
    wchar_t wide[WINDOWS_PATH_MAX];
    int problem = windows_path(path, wide);
    if (problem) return problem;
    *out = CreateFileW(wide, access, share_all, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS,
                       NULL);
    return *out == INVALID_HANDLE_VALUE ? windows_last() : 0;
}

int os_path_info(const char *path, os_info *out) {
    HANDLE h;
    int problem = open_for(path, FILE_READ_ATTRIBUTES, &h);
    if (problem) return problem;
    problem = windows_info(h, out);
    CloseHandle(h);
    return problem;
}

bool os_path_same(const char *a, const char *b) {
    os_info of_a = {0}, of_b = {0};
    return os_path_info(a, &of_a) == 0 && os_path_info(b, &of_b) == 0 &&
           of_a.volume == of_b.volume && of_a.index == of_b.index;
}

int os_path_check(const char *path, unsigned may) {
    HANDLE h;
    DWORD access = FILE_READ_ATTRIBUTES;
    if (may & OS_MAY_READ) access |= FILE_READ_DATA;
    if (may & OS_MAY_WRITE) access |= FILE_WRITE_DATA; /* of a folder: to create files */
    if (may & OS_MAY_ENTER) access |= FILE_TRAVERSE;
    int problem = open_for(path, access, &h);
    if (!problem) CloseHandle(h);
    return problem;
}

bool os_path_separates(char c) {
    return c == '/' || c == '\\' || c == ':';
}

/* "C:name" is relative to the drive's working folder, "/name" to the working drive. */
bool os_path_is_absolute(const char *path) {
    bool drive = path[0] && path[1] == ':' && (path[2] == '/' || path[2] == '\\');
    bool share = (path[0] == '/' || path[0] == '\\') && (path[1] == '/' || path[1] == '\\');
    return drive || share;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int create_folder(const char *path, SECURITY_ATTRIBUTES *security) {
    wchar_t wide[WINDOWS_PATH_MAX];
    int problem = windows_path(path, wide);
    if (problem) return problem;
    problem = windows_result(CreateDirectoryW(wide, security));
    /* A drive's root reports that it may not be created. */
    if (problem == EACCES && GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES) return EEXIST;
    return problem;
}

int os_folder_create(const char *path) {
    return create_folder(path, NULL);
}

/* The owner and the system itself; files in the folder inherit it. */
int os_folder_create_private(const char *path) {
    static const wchar_t access[] = L"D:P(A;OICI;FA;;;OW)(A;OICI;FA;;;SY)";
    SECURITY_ATTRIBUTES security = {.nLength = sizeof security};
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(access, SDDL_REVISION_1,
                                                              &security.lpSecurityDescriptor, NULL))
        return windows_last();
    int problem = create_folder(path, &security);
    LocalFree(security.lpSecurityDescriptor);
    return problem;
}

/* The first entry is found when the folder is opened. The memory is the system's, as in other
 * systems: a list that cannot be made is not an error of the program. */
struct os_folder {
    HANDLE find;
    WIN32_FIND_DATAW entry;
    bool has_entry;
    char name[3 * MAX_PATH]; /* a UTF-16 unit needs up to three bytes */
};

os_folder *os_folder_open(const char *path) {
    wchar_t pattern[WINDOWS_PATH_MAX + 2];
    if (windows_path(path, pattern) != 0) return NULL;
    size_t n = wcslen(pattern);
    bool ended = n > 0 && pattern[n - 1] == L'\\';
    wcscpy_s(pattern + n, 3, ended ? L"*" : L"\\*");
    os_folder *f = LocalAlloc(LPTR, sizeof *f);
    if (!f) return NULL;
    f->find = FindFirstFileW(pattern, &f->entry);
    f->has_entry = f->find != INVALID_HANDLE_VALUE;
    /* The root of an empty drive has no entries, not even ".". */
    if (f->has_entry || GetLastError() == ERROR_FILE_NOT_FOUND) return f;
    LocalFree(f);
    return NULL;
}

const char *os_folder_next(os_folder *f) {
    while (f->has_entry) {
        bool good = windows_text(f->entry.cFileName, f->name, sizeof f->name);
        f->has_entry = FindNextFileW(f->find, &f->entry);
        if (good && strcmp(f->name, ".") != 0 && strcmp(f->name, "..") != 0) return f->name;
    }
    return NULL;
}

void os_folder_close(os_folder *f) {
    if (f && f->find != INVALID_HANDLE_VALUE) FindClose(f->find);
    LocalFree(f);
}

/* The folder decides who may read a file. */
unsigned os_files_private(void) {
    return 0;
}

void os_files_permit(unsigned before) {
    (void)before;
}

/* MoveFileEx writes names through. */
void os_folder_sync(const char *path) {
    (void)path;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Errors of a program that has the file open for a moment, such as a virus scanner. */
static bool is_passing(DWORD error) {
    return error == ERROR_SHARING_VIOLATION || error == ERROR_ACCESS_DENIED ||
           error == ERROR_USER_MAPPED_FILE || error == ERROR_LOCK_VIOLATION;
}

/* Removes the attribute that forbids changes; false: the file does not have it. */
static bool permit_changes(const wchar_t *path) {
    DWORD attributes = GetFileAttributesW(path);
    return attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_READONLY &&
           SetFileAttributesW(path, attributes & ~(DWORD)FILE_ATTRIBUTE_READONLY);
}

static bool is_folder(const wchar_t *path) {
    DWORD attributes = GetFileAttributesW(path);
    return attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_DIRECTORY;
}

int os_path_remove(const char *path) {
    wchar_t wide[WINDOWS_PATH_MAX];
    int problem = windows_path(path, wide);
    if (problem) return problem;
    for (int i = 0;; i++) {
        if (DeleteFileW(wide)) return 0;
        DWORD error = GetLastError();
        if (error == ERROR_ACCESS_DENIED && permit_changes(wide)) continue;
        if (!is_passing(error) || i == WINDOWS_RETRIES || is_folder(wide))
            return is_folder(wide) ? EISDIR : windows_errno(error);
        Sleep(WINDOWS_RETRY_MS);
    }
}

/* Renames over a file that other programs have open, if they permit its removal: they keep the old
 * bytes. Only NTFS can. */
static bool rename_over_open(const wchar_t *from, const wchar_t *to) {
    const FILE_INFO_BY_HANDLE_CLASS rename_ex =
        22; /* FileRenameInfoEx, which mingw's headers lack */
    struct {
        FILE_RENAME_INFO info;
        wchar_t rest[WINDOWS_PATH_MAX];
    } how = {
        .info = {.Flags = FILE_RENAME_FLAG_REPLACE_IF_EXISTS | FILE_RENAME_FLAG_POSIX_SEMANTICS}};
    size_t n = wcslen(to);
    HANDLE h = CreateFileW(from, DELETE, share_all, NULL, OPEN_EXISTING,
                           FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (h == INVALID_HANDLE_VALUE) return false;
    how.info.FileNameLength = (DWORD)(n * sizeof *to);
    memcpy((char *)&how + offsetof(FILE_RENAME_INFO, FileName), to, (n + 1) * sizeof *to);
    bool done = SetFileInformationByHandle(h, rename_ex, &how, sizeof how);
    CloseHandle(h);
    return done;
}

/* The same in two steps, for other file systems: the old file gets the name of a leftover of
 * file_temporary.c, and disappears when the last program closes it. Between the steps there is no
 * target; if the second one fails, the old file is back. */
static bool rename_aside(const wchar_t *from, const wchar_t *to) {
    enum { NAME_UNITS = 60 }; /* file_temporary.c keeps the name whole: up to 200 bytes */
    wchar_t aside[WINDOWS_PATH_MAX];
    uint64_t number;
    const wchar_t *name = to;
    for (const wchar_t *at = to; *at; at++)
        if (*at == L'\\' || *at == L'/') name = at + 1;
    if (wcslen(name) > NAME_UNITS || !os_random(&number, sizeof number)) return false;
    int n = swprintf(aside, WINDOWS_PATH_MAX, L"%.*ls.%ls.%016llx.tmp", (int)(name - to), to, name,
                     (unsigned long long)number);
    if (n < 0 || !MoveFileExW(to, aside, 0)) return false;
    if (!MoveFileExW(from, to, MOVEFILE_WRITE_THROUGH)) {
        MoveFileExW(aside, to, 0);
        return false;
    }
    DeleteFileW(aside);
    return true;
}

/* Whether this user may remove a file that nobody has open. */
static bool may_remove(const wchar_t *path) {
    HANDLE h = CreateFileW(path, DELETE, share_all, NULL, OPEN_EXISTING,
                           FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (h == INVALID_HANDLE_VALUE) return GetLastError() != ERROR_ACCESS_DENIED;
    CloseHandle(h);
    return true;
}

/* ETXTBSY and not EACCES for a target that stays open: a caller must not overwrite its bytes, which
 * another program may have mapped. */
int os_path_rename(const char *from, const char *to) {
    wchar_t wide_from[WINDOWS_PATH_MAX], wide_to[WINDOWS_PATH_MAX];
    int problem = windows_path(from, wide_from);
    if (!problem) problem = windows_path(to, wide_to);
    if (problem) return problem;
    for (int i = 0;; i++) {
        if (MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
            return 0;
        DWORD error = GetLastError();
        if (!is_passing(error)) return windows_errno(error);
        if (is_folder(wide_to)) return EISDIR;
        if (rename_over_open(wide_from, wide_to) || rename_aside(wide_from, wide_to)) return 0;
        if (i == WINDOWS_RETRIES) return may_remove(wide_to) ? ETXTBSY : EACCES;
        Sleep(WINDOWS_RETRY_MS);
    }
}

int os_path_link(const char *from, const char *to) {
    wchar_t wide_from[WINDOWS_PATH_MAX], wide_to[WINDOWS_PATH_MAX];
    int problem = windows_path(from, wide_from);
    if (!problem) problem = windows_path(to, wide_to);
    return problem ? problem : windows_result(CreateHardLinkW(wide_to, wide_from, NULL));
}

/* A target relative to the link's folder must stay as it is, so it is converted only. */
int os_path_link_symbolic(const char *target, const char *path) {
    wchar_t to[OS_PATH_MAX], at[WINDOWS_PATH_MAX];
    int problem = windows_path(path, at);
    if (problem) return problem;
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, target, -1, to, OS_PATH_MAX))
        return ENAMETOOLONG;
    for (wchar_t *c = to; *c; c++)
        if (*c == L'/') *c = L'\\';
    if (!CreateSymbolicLinkW(at, to, SYMBOLIC_LINK_FLAG_ALLOW_UNPRIVILEGED_CREATE))
        return windows_last();
    /* wine 8 reports success, but makes no link. */
    return GetFileAttributesW(at) == INVALID_FILE_ATTRIBUTES ? ENOTSUP : 0;
}

bool os_path_real(const char *path, char real[OS_PATH_MAX]) {
    HANDLE h;
    wchar_t wide[WINDOWS_PATH_MAX];
    if (open_for(path, FILE_READ_ATTRIBUTES, &h) != 0) return false;
    DWORD n = GetFinalPathNameByHandleW(h, wide, WINDOWS_PATH_MAX, FILE_NAME_NORMALIZED);
    CloseHandle(h);
    return n > 0 && n < WINDOWS_PATH_MAX && windows_path_text(wide, real, OS_PATH_MAX);
}

bool os_path_home(const char *user, char path[OS_PATH_MAX]) {
    wchar_t home[OS_PATH_MAX];
    if (strcmp(user, "~") != 0) return false; /* other users' folders are not known */
    DWORD n = GetEnvironmentVariableW(L"USERPROFILE", home, OS_PATH_MAX);
    return n > 0 && n < OS_PATH_MAX && windows_path_text(home, path, OS_PATH_MAX);
}

os_file os_path_stream(const char *path) {
    if (strcmp(path, "/dev/stdout") == 0) return OS_STDOUT;
    return strcmp(path, "/dev/stderr") == 0 ? OS_STDERR : OS_FILE_NONE;
}
