/* darwin_cpu.c: CPU features, names and priorities. */
#include <errno.h>
#include <pthread.h>
#include <pthread/qos.h>
#include <sys/sysctl.h>

#include "os_cpu.h"

/* No CPU that runs this system has tile registers. */
bool os_cpu_allow_tiles(void) {
    return false;
}

void os_cpu_features(uint32_t words[2]) {
    words[0] = words[1] = 0;
#ifdef __aarch64__
    static const struct {
        const char *name;
        int word, bit; /* of Linux's elf_hwcaps.rst */
    } features[] = {{"hw.optional.AdvSIMD", 0, 1},
                    {"hw.optional.arm.FEAT_FP16", 0, 10},
                    {"hw.optional.arm.FEAT_DotProd", 0, 20},
                    {"hw.optional.arm.FEAT_I8MM", 1, 13},
                    {"hw.optional.arm.FEAT_BF16", 1, 14}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        int has = 0;
        size_t n = sizeof has;
        if (sysctlbyname(features[i].name, &has, &n, NULL, 0) == 0 && has)
            words[features[i].word] |= UINT32_C(1) << features[i].bit;
    }
    words[0] |= 1u << 1; /* older releases do not name it; every Apple CPU has it */
#endif
}

void os_cpu_name(char *name, size_t n_name) {
    if (sysctlbyname("machdep.cpu.brand_string", name, &n_name, NULL, 0) != 0) name[0] = '\0';
}

/* ---- priorities ------------------------------------------------------------------------------ */

/* Niceness belongs to the process; a thread has a quality-of-service class instead. The table gives
 * the lowest niceness of each class. Threads of the last class run only on efficiency cores. */
static const struct {
    int nice;
    qos_class_t class;
} classes[] = {{-20, QOS_CLASS_USER_INTERACTIVE},
               {-5, QOS_CLASS_USER_INITIATED},
               {0, QOS_CLASS_DEFAULT},
               {1, QOS_CLASS_UTILITY},
               {15, QOS_CLASS_BACKGROUND}};
enum { N_CLASSES = sizeof classes / sizeof *classes };

int os_thread_nice(void) {
    const qos_class_t own = qos_class_self();
    for (int i = 0; i < N_CLASSES; i++)
        if (classes[i].class == own) return classes[i].nice;
    return 0;
}

int os_thread_set_nice(int nice) {
    int i = 0;
    while (i + 1 < N_CLASSES && nice >= classes[i + 1].nice) i++;
    return pthread_set_qos_class_self_np(classes[i].class, 0);
}

/* The system has no such policy. */
int os_memory_interleave(const cpu_set *nodes) {
    (void)nodes;
    return ENOSYS;
}
