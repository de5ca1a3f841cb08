/* windows_cpu.c: CPU features and priorities. */
#include <errno.h>
#include <stdio.h>
#include <wchar.h>

#include "os_cpu.h"
#include "windows_call.h"
#include "windows_thread.h"

/* Windows 11 lets a process use tile registers after it requested them. */
bool os_cpu_allow_tiles(void) {
    const DWORD64 tile_data = (DWORD64)1 << 18; /* XFEATURE 18, as in the processor's manual */
    typedef BOOL WINAPI enable_call(DWORD64 features);
    enable_call *enable = (enable_call *)windows_find(L"kernel32.dll",
                                                      "EnableProcessOptionalXStateFeatures");
    return enable && enable(tile_data);
}

void os_cpu_features(uint32_t words[2]) {
    words[0] = words[1] = 0;
}

void os_cpu_name(char *name, size_t n_name) {
    static const wchar_t key[] = L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0";
    wchar_t value[256] = L"";
    DWORD n = sizeof value;
    if (RegGetValueW(HKEY_LOCAL_MACHINE, key, L"ProcessorNameString", RRF_RT_REG_SZ, NULL, value,
                     &n) != ERROR_SUCCESS ||
        !windows_text(value, name, n_name))
        name[0] = '\0';
}

/* ---- priorities ------------------------------------------------------------------------------ */

/* Steps of a thread's priority within the process's class, from the lowest niceness of each. */
static const struct {
    int nice, priority;
} steps[] = {{-20, THREAD_PRIORITY_TIME_CRITICAL},
             {-15, THREAD_PRIORITY_HIGHEST},
             {-5, THREAD_PRIORITY_ABOVE_NORMAL},
             {0, THREAD_PRIORITY_NORMAL},
             {1, THREAD_PRIORITY_BELOW_NORMAL},
             {10, THREAD_PRIORITY_LOWEST},
             {19, THREAD_PRIORITY_IDLE}};
enum { N_STEPS = sizeof steps / sizeof *steps };

int os_thread_nice(void) {
    return windows_thread_settings()->nice;
}

int os_thread_set_nice(int nice) {
    int step = 0;
    for (int i = 0; i < N_STEPS; i++)
        if (nice >= steps[i].nice) step = i;
    if (!SetThreadPriority(GetCurrentThread(), steps[step].priority)) return windows_last();
    windows_thread_settings()->nice = nice;
    windows_thread_settings()->priority = steps[step].priority;
    return 0;
}

/* The system has no such policy. */
int os_memory_interleave(const cpu_set *nodes) {
    (void)nodes;
    return ENOSYS;
}
