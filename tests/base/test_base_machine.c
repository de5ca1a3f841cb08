/* test_base_machine.c: counts cores of machines described by files, and checks the features of this
 * machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "cpu_features.h"
#include "cpu_topology.h"
#include "file.h"
#include "linux/linux_cpu_topology.h"
#include "linux/linux_memory_room.h"
#include "memory_room.h"
#include "pool.h"

static char root[PATH_MAX - 512];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s/base-machine-XXXXXX", TEST_BINARY_DIR);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int remove_root(void **state) {
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes root/name and creates the folders of its path. */
static void put(const char *name, const char *text) {
    char path[PATH_MAX];
    assert_true(file_join(path, sizeof path, root, name));
    for (char *p = path + strlen(root) + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_cpu(int cpu, const char *file, const char *text) {
    char name[128];
    snprintf(name, sizeof name, "system/cpu/cpu%d/%s", cpu, file);
    put(name, text);
}

static int cores_of(const char *allowed) {
    static cpu_set set;
    set = (cpu_set){0};
    assert_true(cpu_set_parse(&set, allowed));
    return cpu_topology_cores(root, &set);
}

static void test_parse(void **state) {
    (void)state;
    static cpu_set set;
    assert_true(cpu_set_parse(&set, "0-3,8,10-11\n"));
    assert_int_equal(cpu_set_count(&set), 7);
    assert_true(set.has[8] && !set.has[9] && set.has[11]);
    static const char *const bad[] = {"x", "1-", "3-1", "-1", "999999", "1,,2", "0-99999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(cpu_set_parse(&set, bad[i]));
    }
}

static void test_siblings_count_once(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) { /* four cores, the siblings of core k are k and k + 4 */
        char list[16];
        snprintf(list, sizeof list, "%d,%d\n", i % 4, i % 4 + 4);
        put_cpu(i, "topology/thread_siblings_list", list);
    }
    assert_int_equal(cores_of("0-7"), 4);
    assert_int_equal(cores_of("4-7"), 4); /* the first siblings are not allowed */
    assert_int_equal(cores_of("1,5"), 1);
    assert_int_equal(cores_of("0-2,4"), 3);
    assert_int_equal(cores_of("20-22"), 3); /* not described */
}

static void test_hybrid_intel(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) put_cpu(i, "topology/core_cpus_list", i < 2 ? "0-1\n" : "2-3\n");
    for (int i = 4; i < 8; i++) {
        char list[16];
        snprintf(list, sizeof list, "%d\n", i);
        put_cpu(i, "topology/core_cpus_list", list);
    }
    put("cpu_core/cpus", "0-3\n");
    assert_int_equal(cores_of("0-7"), 2);
    assert_int_equal(cores_of("4-6"), 3); /* confined to efficiency cores: they are used */
    assert_int_equal(cores_of("3-6"), 1);
}

static void test_hybrid_arm(void **state) {
    (void)state;
    static const char *const capacities[] = {"300\n", "300\n", "760\n", "760\n", "1024\n"};
    for (int i = 0; i < 5; i++) put_cpu(i, "cpu_capacity", capacities[i]);
    assert_int_equal(cores_of("0-4"), 3);
    assert_int_equal(cores_of("0-1"), 2);
}

static void test_masks(void **state) {
    (void)state;
    static cpu_set set;
    set = (cpu_set){0};
    assert_true(cpu_set_parse_mask(&set, "0x8000000000000000A1"));
    assert_int_equal(cpu_set_count(&set), 4);
    assert_true(set.has[0] && set.has[5] && set.has[7] && set.has[71]);
    set = (cpu_set){0};
    assert_true(cpu_set_parse_mask(&set, "f0"));
    assert_true(cpu_set_count(&set) == 4 && set.has[4] && set.has[7]);
    static const char *const bad[] = {"", "0x", "0", "g", "0x1 ", "-1", "1,2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(cpu_set_parse_mask(&set, bad[i]));
    char longest[CPU_TOPOLOGY_MAX / 4 + 2];
    memset(longest, 'f', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_false(cpu_set_parse_mask(&set, longest));
    assert_true(cpu_set_parse_mask(&set, longest + 1));
    assert_int_equal(cpu_set_count(&set), CPU_TOPOLOGY_MAX);
}

static void test_nodes(void **state) {
    (void)state;
    static cpu_set set;
    assert_int_equal(cpu_topology_nodes(root, &set), 0);
    assert_false(cpu_topology_node(root, 0, &set));
    put("system/node/online", "0,2\n");
    put("system/node/node0/cpulist", "0-3,8-11\n");
    put("system/node/node2/cpulist", "4-7\n");
    assert_int_equal(cpu_topology_nodes(root, &set), 2);
    assert_true(set.has[0] && set.has[2]);
    assert_true(cpu_topology_node(root, 9, &set));
    assert_true(cpu_set_count(&set) == 8 && set.has[3] && set.has[8] && !set.has[4]);
    assert_true(cpu_topology_node(root, 4, &set));
    assert_true(cpu_set_count(&set) == 4 && set.has[7] && !set.has[8]);
    assert_false(cpu_topology_node(root, 12, &set));
    assert_false(cpu_topology_node(root, -1, &set));
}

static void test_quota(void **state) {
    (void)state;
    assert_int_equal(cpu_topology_quota(root, "/a/b"), 0);
    put("cpu.max", "max 100000\n");
    put("a/cpu.max", "350000 100000\n");
    put("a/b/cpu.max", "50000 100000\n");
    put("a/c/cpu.max", "max 100000\n");
    assert_int_equal(cpu_topology_quota(root, ""), 0);
    assert_int_equal(cpu_topology_quota(root, "/a"), 3);
    assert_int_equal(cpu_topology_quota(root, "/a/c"), 3); /* the parent group limits */
    assert_int_equal(cpu_topology_quota(root, "/a/b"), 1); /* half a CPU gives one thread */
}

static void put_cache(int cpu, int index, const char *level, const char *type, const char *size,
                      const char *sharers) {
    const char *const files[][2] = {
        {"level", level}, {"type", type}, {"size", size}, {"shared_cpu_list", sharers}};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "cache/index%d/%s", index, files[i][0]);
        put_cpu(cpu, name, files[i][1]);
    }
}

static void test_last_cache(void **state) {
    (void)state;
    static cpu_set set;
    for (int i = 0; i < 8; i++) { /* two dies of four cores with a cache each */
        put_cache(i, 0, "1\n", "Data\n", "48K\n", i < 4 ? "0-3\n" : "4-7\n");
        put_cache(i, 1, "2\n", "Unified\n", "2M\n", "0\n");
        put_cache(i, 2, "3\n", "Unified\n", "32768K\n", i < 4 ? "0-3\n" : "4-7\n");
    }
    assert_true(cpu_set_parse(&set, "0-7"));
    assert_int_equal(cpu_topology_cache(root, &set), 64 << 20);
    set = (cpu_set){0};
    assert_true(cpu_set_parse(&set, "2-3"));
    assert_int_equal(cpu_topology_cache(root, &set), 32 << 20);
    set = (cpu_set){0};
    assert_true(cpu_set_parse(&set, "9"));
    assert_int_equal(cpu_topology_cache(root, &set), 0);
    assert_true(cpu_last_cache() > 0);
}

static uint64_t group_room(const char *group) {
    return memory_room_group(root, group);
}

static void test_memory_room(void **state) {
    (void)state;
    char path[PATH_MAX];
    put("meminfo", "MemTotal:       24682416 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n");
    assert_true(file_join(path, sizeof path, root, "meminfo"));
    assert_true(memory_room_machine(path) == 1 << 20);
    assert_true(memory_room_machine("/nowhere") == UINT64_MAX);
    /* version 2: the limit of the parent group applies */
    put("memory.max", "max\n");
    put("memory.current", "5000\n");
    put("a/memory.max", "10000\n");
    put("a/memory.current", "7000\n");
    put("a/memory.stat", "anon 1\nfile 99999\ninactive_file 500\nactive_file 1500\n");
    put("a/b/memory.max", "max\n");
    put("a/b/memory.current", "100\n");
    assert_true(group_room("") == UINT64_MAX);
    assert_true(group_room("/a") == 5000);
    assert_true(group_room("/a/b") == 5000);
    /* version 1 */
    put("c/memory.limit_in_bytes", "9000\n");
    put("c/memory.usage_in_bytes", "8000\n");
    put("c/memory.stat", "inactive_file 1\nactive_file 1\ntotal_inactive_file 1000\n"
                         "total_active_file 2000\n");
    put("d/memory.limit_in_bytes", "9223372036854771712\n");
    put("d/memory.usage_in_bytes", "8000\n");
    put("e/memory.max", "100\n");
    put("e/memory.current", "300\n");
    assert_true(group_room("/c") == 4000);
    assert_true(group_room("/d") > UINT64_C(1) << 62);
    assert_true(group_room("/e") == 0); /* over its limit */
    assert_true(group_room("/none") == UINT64_MAX);
}

static void test_this_machine(void **state) {
    (void)state;
    int physical = cpu_count_physical(), available = cpu_count_available();
    assert_true(physical >= 1 && physical <= available);
    const cpu_features *f = cpu_features_get();
    assert_ptr_equal(f, cpu_features_get());
    assert_true(!f->avx512_vnni || f->avx512);
    assert_true(!f->avx512_bf16 || f->avx512);
    assert_true(!f->amx_bf16 || f->avx512_bf16);
    assert_true(!f->avx_vnni || f->avx2);
#if defined(__x86_64__)
    /* The compiler's own detection is the reference. */
    assert_int_equal(f->avx2, __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(f->fma, __builtin_cpu_supports("fma") != 0);
    assert_int_equal(f->bmi2, f->avx2 && __builtin_cpu_supports("bmi2") != 0);
    assert_int_equal(f->avx512_vnni, f->avx512 && __builtin_cpu_supports("avx512vnni") != 0);
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(f->avx512, avx512);
#endif
    const char *name = cpu_model_name();
    assert_true(strlen(name) > 0);
    assert_true(name[0] != ' ' && name[strlen(name) - 1] != ' ');
    double t = clock_seconds();
    assert_true(clock_seconds() >= t);
}

#define WITH_ROOT(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse), WITH_ROOT(test_siblings_count_once),
        WITH_ROOT(test_hybrid_intel), WITH_ROOT(test_hybrid_arm),
        cmocka_unit_test(test_masks), WITH_ROOT(test_nodes),
        WITH_ROOT(test_quota),        WITH_ROOT(test_last_cache),
        WITH_ROOT(test_memory_room),  cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
