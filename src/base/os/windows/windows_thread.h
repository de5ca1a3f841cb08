/* windows_thread.h: what threads pass on to the threads that they start (os_cpu.h,
 * cpu_topology.h). The system itself passes on neither. */
#ifndef BASE_WINDOWS_THREAD_H
#define BASE_WINDOWS_THREAD_H

#include <stdbool.h>

#include "cpu_topology.h"

typedef struct thread_settings {
    void (*place)(void); /* of windows_cpu_topology.c; NULL: the system chooses the thread's CPUs */
    bool has_set;
    cpu_set set; /* of cpu_set_use */
    int nice, priority;
} thread_settings;

/* Those of the calling thread. */
thread_settings *windows_thread_settings(void);

#endif
