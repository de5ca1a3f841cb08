/* affinity.c: see affinity.h. Threads inherit these settings from the thread that creates them,
 * so that the library does not need to know them. */
#include "affinity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_topology.h"
#include "error.h"
#include "os_cpu.h"

typedef enum numa_choice { NUMA_NONE, NUMA_DISTRIBUTE, NUMA_ISOLATE, NUMA_NUMACTL } numa_choice;

/* "2-5", "-5", "2-": either end may be missing, as in llama.cpp. */
static bool parse_range(cpu_set *set, const char *text) {
    char list[64];
    size_t n = strlen(text);
    if (n > 1 && n < sizeof list / 2 && (text[0] == '-' || text[n - 1] == '-')) {
        snprintf(list, sizeof list, "%s%s", text[0] == '-' ? "0" : "", text);
        if (text[n - 1] == '-')
            snprintf(list + strlen(list), sizeof list / 2, "%d", CPU_TOPOLOGY_MAX - 1);
        text = list;
    }
    return cpu_set_parse(set, text) && cpu_set_count(set) > 0;
}

static pi_status read_sets(const cli_options *o, cpu_set *wanted, pi_error *err) {
    if (o->cpu_mask && !cpu_set_parse_mask(wanted, o->cpu_mask))
        return error_set(
            err, PI_ERR_ARG,
            "invalid value: --cpu-mask \"%.200s\": expected a hexadecimal number, bit N for CPU N",
            o->cpu_mask);
    if (o->cpu_range && !parse_range(wanted, o->cpu_range))
        return error_set(err, PI_ERR_ARG,
                         "invalid value: --cpu-range \"%.200s\": expected LO-HI, such as 0-3",
                         o->cpu_range);
    return PI_OK;
}

/* Restricts the process to the CPUs of `wanted` that it may use. */
static pi_status use(const cpu_set *wanted, const char *what, pi_error *err) {
    cpu_set both, allowed;
    cpu_set_own(&allowed);
    for (int i = 0; i < CPU_TOPOLOGY_MAX; i++) both.has[i] = wanted->has[i] && allowed.has[i];
    if (cpu_set_count(&both) == 0)
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "none of these CPUs is available: %s: this process may use %d others",
                         what, cpu_set_count(&allowed));
    int problem = cpu_set_use(&both);
    if (problem) return error_set_errno(err, problem, "cannot set the CPU affinity: %s", what);
    return PI_OK;
}

/* Interleaves memory over all nodes, page by page. */
static pi_status interleave(pi_error *err) {
    cpu_set nodes = {0};
    int n = cpu_nodes(&nodes);
    if (n < 2) return PI_OK; /* all memory is equally near */
    int problem = os_memory_interleave(&nodes);
    if (!problem) return PI_OK;
    return error_set_errno(err, problem,
                           "cannot interleave memory over %d nodes: --numa distribute", n);
}

static pi_status apply_numa(const cli_options *o, pi_error *err) {
    cpu_set node;
    if (o->numa == NUMA_DISTRIBUTE) return interleave(err);
    if (o->numa != NUMA_ISOLATE) return PI_OK; /* the policy set by numactl is inherited */
    if (!cpu_own_node(&node)) return PI_OK;    /* one node */
    return use(&node, "--numa isolate", err);
}

/* llama.cpp's steps as nice values; its higher steps are real-time classes, which need more
 * privileges. */
static pi_status apply_priority(const cli_options *o, pi_error *err) {
    static const int nice_values[] = {10, 0, -5, -10,
                                      -20}; /* low, normal, medium, high, realtime */
    if (o->prio == 0) return PI_OK;
    int problem = os_thread_set_nice(nice_values[o->prio + 1]);
    if (!problem) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "cannot set the priority: --prio %d: %s: raising it needs CAP_SYS_NICE",
                     (int)o->prio, strerror(problem));
}

pi_status affinity_apply(const cli_options *o, pi_error *err) {
    cpu_set wanted = {0};
    pi_status status = read_sets(o, &wanted, err);
    if (status == PI_OK && (o->cpu_mask || o->cpu_range))
        status = use(&wanted, "--cpu-mask, --cpu-range", err);
    if (status == PI_OK) status = apply_numa(o, err);
    return status == PI_OK ? apply_priority(o, err) : status;
}
