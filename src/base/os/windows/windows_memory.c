/* windows_memory.c: VirtualAlloc and its relatives. */
#include <errno.h>
#include <memoryapi.h>

#include "mem.h"
#include "os_memory.h"
#include "os_thread.h"
#include "windows_call.h"

/* ---- pages ----------------------------------------------------------------------------------- */

size_t os_page_size(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

static size_t large_page; /* bytes; 0: this user may not use large pages */

/* Large pages need a privilege that an administrator grants and the program must turn on. */
static void find_large_pages(void) {
    HANDLE token;
    TOKEN_PRIVILEGES wanted = {.PrivilegeCount = 1};
    wanted.Privileges[0].Attributes = SE_PRIVILEGE_ENABLED;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &token))
        return;
    if (LookupPrivilegeValueW(NULL, L"SeLockMemoryPrivilege", &wanted.Privileges[0].Luid) &&
        AdjustTokenPrivileges(token, FALSE, &wanted, 0, NULL, NULL) &&
        GetLastError() == ERROR_SUCCESS) /* it also succeeds without the privilege */
        large_page = GetLargePageMinimum();
    CloseHandle(token);
}

void *os_memory_map(size_t n_bytes) {
    static os_once once;
    os_once_run(&once, find_large_pages);
    const DWORD kind = MEM_RESERVE | MEM_COMMIT;
    size_t rounded;
    if (large_page && n_bytes >= large_page && size_align(n_bytes, large_page, &rounded)) {
        void *p = VirtualAlloc(NULL, rounded, kind | MEM_LARGE_PAGES, PAGE_READWRITE);
        if (p) return p; /* else memory is too fragmented */
    }
    return VirtualAlloc(NULL, n_bytes, kind, PAGE_READWRITE);
}

/* Reserved addresses consist of several regions, and of free ones between them. */
void os_memory_unmap(void *p, size_t n_bytes) {
    char *at = p, *end = at + n_bytes;
    while (at < end) {
        MEMORY_BASIC_INFORMATION region;
        if (!VirtualQuery(at, &region, sizeof region)) return;
        if (region.State != MEM_FREE && region.Type == MEM_MAPPED)
            UnmapViewOfFile(at);
        else if (region.State != MEM_FREE)
            VirtualFree(at, 0, MEM_RELEASE);
        at += region.RegionSize;
    }
}

/* The size of a page is fixed when its memory is allocated. */
void os_memory_use_small_pages(void *p, size_t n_bytes) {
    (void)p;
    (void)n_bytes;
}

void os_memory_use_huge_pages(const void *p, size_t n_bytes) {
    (void)p;
    (void)n_bytes;
}

/* Unlocking pages that are not locked removes them from the working set, and fails. */
void os_memory_forget(void *p, size_t n_bytes) {
    (void)VirtualUnlock(p, n_bytes);
}

void os_memory_read_ahead(const void *p, size_t n_bytes) {
    WIN32_MEMORY_RANGE_ENTRY range = {.VirtualAddress = (void *)(uintptr_t)p,
                                      .NumberOfBytes = n_bytes};
    (void)PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

/* Only pages of the minimal working set can be locked. It grows with them. */
int os_memory_lock(const void *p, size_t n_bytes) {
    HANDLE self = GetCurrentProcess();
    SIZE_T least, most;
    void *at = (void *)(uintptr_t)p;
    if (VirtualLock(at, n_bytes)) return 0;
    if (GetLastError() != ERROR_WORKING_SET_QUOTA) return windows_last();
    if (!GetProcessWorkingSetSize(self, &least, &most)) return windows_last();
    const SIZE_T own = 1 << 20; /* pages of the system's bookkeeping */
    least += n_bytes + own;
    if (most < least + n_bytes) most = least + n_bytes;
    if (!SetProcessWorkingSetSize(self, least, most)) return windows_last();
    return windows_result(VirtualLock(at, n_bytes));
}

uint64_t os_memory_lock_limit(void) {
    return UINT64_MAX;
}

/* ---- reserved addresses -----------------------------------------------------------------------
 */

size_t os_shared_unit(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwAllocationGranularity;
}

/* The system cannot replace a part of a reservation by a mapping, other than by calls of new
 * releases. The range is therefore only found, at a random place where neither the system nor other
 * code places memory that has no given address: such memory lies in the lowest TiB, libraries and
 * stacks at the upper end of the 128 TiB. */
void *os_memory_reserve(size_t n_bytes) {
    enum { ATTEMPTS = 100 };
    const uintptr_t first = (uintptr_t)16 << 40, places = ((uintptr_t)64 << 40) / os_shared_unit();
    for (int i = 0; i < ATTEMPTS; i++) {
        uint64_t random;
        if (!os_random(&random, sizeof random)) return NULL;
        void *at = (void *)(first + random % places * os_shared_unit());
        if (!VirtualAlloc(at, n_bytes, MEM_RESERVE, PAGE_NOACCESS)) continue;
        VirtualFree(at, 0, MEM_RELEASE);
        return at;
    }
    return NULL;
}

int os_memory_commit(void *at, size_t n_bytes) {
    return windows_result(VirtualAlloc(at, n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) !=
                          NULL);
}

os_shared os_shared_create(size_t n_bytes) {
    HANDLE section = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE,
                                        (DWORD)((uint64_t)n_bytes >> 32), (DWORD)n_bytes, NULL);
    return section ? (os_shared)section : OS_SHARED_NONE;
}

void os_shared_close(os_shared s) {
    CloseHandle((HANDLE)s);
}

int os_shared_map(os_shared s, size_t offset, void *at, size_t n_bytes) {
    return windows_result(MapViewOfFileEx((HANDLE)s, FILE_MAP_ALL_ACCESS,
                                          (DWORD)((uint64_t)offset >> 32), (DWORD)offset, n_bytes,
                                          at) != NULL);
}

int os_shared_discard(os_shared s, size_t offset, size_t n_bytes) {
    (void)s;
    (void)offset;
    (void)n_bytes;
    return ENOTSUP;
}
