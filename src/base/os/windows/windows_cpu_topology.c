/* windows_cpu_topology.c: cores, caches and nodes as the system describes them.
 *
 * The system numbers CPUs in groups of up to 64. Here CPU 64 g + i is CPU i of group g. A thread
 * runs in one group at a time, and the groups of a process with default settings depend on the
 * release of Windows. Threads are therefore placed in groups when they start, in turn. */
#include <errno.h>
#include <stdatomic.h>

#include "cpu_topology.h"
#include "windows_call.h"
#include "windows_thread.h"

enum { GROUP_CPUS = 64, GROUPS = CPU_TOPOLOGY_MAX / GROUP_CPUS };

typedef SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX cpu_record;

/* All records of a kind; NULL: not described. */
static cpu_record *read_records(LOGICAL_PROCESSOR_RELATIONSHIP kind, DWORD *n_bytes) {
    *n_bytes = 0;
    (void)GetLogicalProcessorInformationEx(kind, NULL, n_bytes);
    cpu_record *records = *n_bytes ? LocalAlloc(LMEM_FIXED, *n_bytes) : NULL;
    if (records && GetLogicalProcessorInformationEx(kind, records, n_bytes)) return records;
    LocalFree(records);
    *n_bytes = 0;
    return NULL;
}

/* The record after r; NULL: r is the last one. */
static const cpu_record *after(const cpu_record *r, const cpu_record *records, DWORD n_bytes) {
    const char *next = (const char *)r + r->Size;
    return next < (const char *)records + n_bytes ? (const cpu_record *)(const void *)next : NULL;
}

static void add_group(cpu_set *set, unsigned group, KAFFINITY mask) {
    for (unsigned i = 0; i < GROUP_CPUS && group < GROUPS; i++)
        if (mask >> i & 1) set->has[group * GROUP_CPUS + i] = true;
}

static KAFFINITY group_mask(const cpu_set *set, unsigned group) {
    KAFFINITY mask = 0;
    for (unsigned i = 0; i < GROUP_CPUS; i++)
        if (set->has[group * GROUP_CPUS + i]) mask |= (KAFFINITY)1 << i;
    return mask;
}

static bool group_meets(const GROUP_AFFINITY *g, const cpu_set *set) {
    return g->Group < GROUPS && (group_mask(set, g->Group) & g->Mask);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static void add_all(cpu_set *set) {
    unsigned n_groups = GetActiveProcessorGroupCount();
    for (unsigned g = 0; g < n_groups && g < GROUPS; g++) {
        DWORD n = GetActiveProcessorCount((WORD)g);
        add_group(set, g, n >= GROUP_CPUS ? ~(KAFFINITY)0 : ((KAFFINITY)1 << n) - 1);
    }
}

static void place_new(void);

/* A process that was started with fewer CPUs has one group and a smaller mask. */
void cpu_set_own(cpu_set *set) {
    thread_settings *own = windows_thread_settings();
    DWORD_PTR process = 0, machine = 0;
    GROUP_AFFINITY at;
    *set = (cpu_set){0};
    if (own->has_set)
        *set = own->set;
    else if (GetProcessAffinityMask(GetCurrentProcess(), &process, &machine) &&
             process != machine && GetThreadGroupAffinity(GetCurrentThread(), &at))
        add_group(set, at.Group, process);
    else
        add_all(set);
    if (cpu_set_count(set) == 0) set->has[0] = true;
    /* Threads of the pool, which asks for its CPUs first, must be spread over the groups. */
    if (GetActiveProcessorGroupCount() > 1) own->place = place_new;
}

/* Moves the calling thread to one of the set's groups: threads that share a set take turns, in
 * proportion to the CPUs of each group. */
static int place_thread(const cpu_set *set) {
    static atomic_uint turn;
    unsigned n = (unsigned)cpu_set_count(set);
    if (n == 0) return EINVAL;
    unsigned at = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % n, cpu = 0;
    for (;; cpu++)
        if (set->has[cpu] && at-- == 0) break;
    GROUP_AFFINITY group = {.Group = (WORD)(cpu / GROUP_CPUS)};
    group.Mask = group_mask(set, group.Group);
    return windows_result(SetThreadGroupAffinity(GetCurrentThread(), &group, NULL));
}

/* Places a thread that has just started. */
static void place_new(void) {
    cpu_set set;
    cpu_set_own(&set);
    (void)place_thread(&set);
}

int cpu_set_use(const cpu_set *set) {
    thread_settings *own = windows_thread_settings();
    int problem = place_thread(set);
    if (problem) return problem;
    own->has_set = true;
    own->set = *set;
    own->place = place_new;
    return 0;
}

/* ---- cores, caches, nodes -------------------------------------------------------------------- */

/* Counts the cores of the set that have the highest class: on hybrid CPUs the performance cores. */
static int count_cores(const cpu_set *set) {
    DWORD n_bytes;
    cpu_record *records = read_records(RelationProcessorCore, &n_bytes);
    int n = 0, best = -1;
    for (const cpu_record *r = records; r; r = after(r, records, n_bytes)) {
        const PROCESSOR_RELATIONSHIP *core = &r->Processor;
        if (!group_meets(&core->GroupMask[0], set)) continue;
        int efficiency = core->Reserved[0]; /* EfficiencyClass, which mingw's headers lack */
        if (efficiency > best) n = 0;
        if (efficiency > best) best = efficiency;
        n += efficiency == best;
    }
    LocalFree(records);
    return n ? n : cpu_set_count(set);
}

/* A job may limit the CPU time of its processes, in ten thousandths of the machine's. */
static int cap(int n) {
    JOBOBJECT_CPU_RATE_CONTROL_INFORMATION rate = {0};
    const DWORD hard = JOB_OBJECT_CPU_RATE_CONTROL_ENABLE | JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP;
    if (!QueryInformationJobObject(NULL, JobObjectCpuRateControlInformation, &rate, sizeof rate,
                                   NULL) ||
        (rate.ControlFlags & hard) != hard)
        return n;
    int granted = (int)(GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) * rate.CpuRate / 10000);
    if (granted < 1) granted = 1;
    return granted < n ? granted : n;
}

int cpu_count_available(void) {
    cpu_set set;
    cpu_set_own(&set);
    return cap(cpu_set_count(&set));
}

int cpu_count_physical(void) {
    cpu_set set;
    cpu_set_own(&set);
    return cap(count_cores(&set));
}

size_t cpu_last_cache(void) {
    const size_t usual = (size_t)32 << 20;
    DWORD n_bytes;
    cpu_set set;
    size_t total = 0;
    int last = 0;
    cpu_set_own(&set);
    cpu_record *records = read_records(RelationCache, &n_bytes);
    for (const cpu_record *r = records; r; r = after(r, records, n_bytes)) {
        const CACHE_RELATIONSHIP *cache = &r->Cache;
        if (cache->Type == CacheInstruction || cache->Level < last) continue;
        if (!group_meets(&cache->GroupMask, &set)) continue;
        if (cache->Level > last) total = 0;
        last = cache->Level;
        total += cache->CacheSize;
    }
    LocalFree(records);
    return total ? total : usual;
}

int cpu_nodes(cpu_set *nodes) {
    DWORD n_bytes;
    cpu_record *records = read_records(RelationNumaNode, &n_bytes);
    *nodes = (cpu_set){0};
    for (const cpu_record *r = records; r; r = after(r, records, n_bytes))
        if (r->NumaNode.NodeNumber < CPU_TOPOLOGY_MAX) nodes->has[r->NumaNode.NodeNumber] = true;
    LocalFree(records);
    return cpu_set_count(nodes);
}

/* A node of more than 64 CPUs has a record for each of its groups. */
bool cpu_own_node(cpu_set *set) {
    DWORD n_bytes, own = UINT32_MAX;
    PROCESSOR_NUMBER at;
    cpu_record *records = read_records(RelationNumaNode, &n_bytes);
    *set = (cpu_set){0};
    GetCurrentProcessorNumberEx(&at);
    for (const cpu_record *r = records; r; r = after(r, records, n_bytes)) {
        const GROUP_AFFINITY *cpus = &r->NumaNode.GroupMask;
        if (cpus->Group == at.Group && cpus->Mask >> at.Number & 1) own = r->NumaNode.NodeNumber;
    }
    for (const cpu_record *r = records; r; r = after(r, records, n_bytes))
        if (r->NumaNode.NodeNumber == own)
            add_group(set, r->NumaNode.GroupMask.Group, r->NumaNode.GroupMask.Mask);
    LocalFree(records);
    return cpu_set_count(set) > 0;
}
