/* windows_memory_room.c: free memory, what the page file adds, and the limits of a job. */
#include "memory_room.h"

#include "windows_call.h"

#include <psapi.h>

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Memory left by the job objects that contain this process. Other processes of the job are not
 * counted. */
static uint64_t job_room(void) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION job = {0};
    PROCESS_MEMORY_COUNTERS used = {.cb = sizeof used};
    uint64_t limit = UINT64_MAX;
    if (!QueryInformationJobObject(NULL, JobObjectExtendedLimitInformation, &job, sizeof job,
                                   NULL) ||
        !K32GetProcessMemoryInfo(GetCurrentProcess(), &used, sizeof used))
        return UINT64_MAX;
    DWORD flags = job.BasicLimitInformation.LimitFlags;
    if (flags & JOB_OBJECT_LIMIT_PROCESS_MEMORY) limit = least(limit, job.ProcessMemoryLimit);
    if (flags & JOB_OBJECT_LIMIT_JOB_MEMORY) limit = least(limit, job.JobMemoryLimit);
    if (limit == UINT64_MAX) return UINT64_MAX;
    return limit > used.PagefileUsage ? limit - used.PagefileUsage : 0;
}

/* ullAvailPageFile is what can still be committed: memory and page file together. */
uint64_t memory_room(void) {
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    if (!GlobalMemoryStatusEx(&memory)) return job_room();
    return least(job_room(), least(memory.ullAvailPhys, memory.ullAvailPageFile));
}
