/* place_machine.c: described machines, so that a placement can be planned for another machine.
 * Memory sizes and bandwidths are from the makers (GPU data sheets; dual-channel memory has 2 x 8
 * bytes x transfers per second). The fraction that programs reach is an assumption, equal for all
 * machines; `place --measure` replaces it for this machine. */
#include <string.h>

#include "gpu.h"
#include "place.h"

/* Assumed efficiency: fraction of the published bandwidth. GPU: this project's target for decode
 * (docs/placement.md); rows of neurons of 2 KiB and more are whole memory bursts, so gathering
 * loses little. CPU: 41-47 GB/s streamed and 25 GB/s gathered in rows of 2 KiB were measured on the
 * machine on which kernels were tuned, a ratio of 0.6. */
static const double GPU_STREAM = 0.80, GPU_GATHER = 0.72, CPU_STREAM = 0.85, CPU_GATHER = 0.52;
/* Seconds per kernel of a recorded graph beyond the time of its bytes, by place_launch. The first
 * loads of a kernel arrive 1 microsecond after it has begun. A kernel begins 1.3 after the previous
 * kernel has ended; with programmatic launch its blocks are on the multiprocessors already, and
 * learn of the end within 0.4; AMD's command processor takes 3. With Vulkan it takes
 * 4, because a barrier also writes the caches back: an assumption that no card has confirmed. */
static const double GPU_STEP[] = {[PLACE_LAUNCH_GRAPH] = 2.3e-6,
                                  [PLACE_LAUNCH_OVERLAP] = 1.4e-6,
                                  [PLACE_LAUNCH_AMD] = 4e-6,
                                  [PLACE_LAUNCH_VULKAN] = 5e-6};
/* A barrier of worker threads. */
static const double CPU_STEP = 1e-6;
/* An exchange with spinning threads, counted (docs/performance.md): 6.1 microseconds for flags and
 * first bytes over the bus and for the barriers before and after the CPU's neurons. Its kernels
 * count as the layer's norms, which they also compute. Bytes cross PCIe 4.0 x16 at 20 GB/s, and one
 * core copies them at 30 GB/s. */
static const double SYNC = 6.1e-6, BUS_GBPS = 12;
/* With Vulkan the host waits for one submission and then submits the next. The time is assumed; a
 * context measures it when it is created. */
static const double VULKAN_SYNC = 60e-6;
#define MIB         ((uint64_t)1 << 20)
#define GIB         ((uint64_t)1 << 30)
#define GPU_RUNTIME (400 * MIB) /* a CUDA context with its modules */
#define GPU_MARGIN  (256 * MIB) /* space for desktop windows */
/* GB/s assumed for a GPU that reports none: a small card */
static const double GPU_UNKNOWN = 250;

typedef struct described {
    const char *name;
    double gpu_gbps, cpu_gbps; /* published figures; 0: no GPU; equal: they share one memory */
    uint64_t gpu_gib;
    place_launch launch;
    uint64_t host_gib; /* 0: HOST_GIB */
} described;

enum { HOST_GIB = 64 };
/* DDR4-3200 and DDR5-5600, two channels; a server's DDR5-4800, twelve channels; LPDDR4X-4267 and
 * LPDDR5-5500, 128 bits. */
#define DDR4    51.2
#define DDR5    89.6
#define SERVER  460.8
#define LPDDR4X 68.3
#define LPDDR5  88.0

static const described machines[] = {
    {"cpu-only", 0, DDR4, 0, PLACE_LAUNCH_GRAPH, 0},
    {"cpu-only-ddr5", 0, DDR5, 0, PLACE_LAUNCH_GRAPH, 0},
    {"rtx-2080ti-ddr4", 616, DDR4, 11, PLACE_LAUNCH_GRAPH, 0}, /* GDDR6, 352 bits at 14 Gbit/s */
    {"rtx-2080ti-ddr5", 616, DDR5, 11, PLACE_LAUNCH_GRAPH, 0},
    {"rtx-3060-ddr4", 360, DDR4, 12, PLACE_LAUNCH_GRAPH, 0}, /* GDDR6, 192 bits at 15 Gbit/s */
    {"rtx-3060-ddr5", 360, DDR5, 12, PLACE_LAUNCH_GRAPH, 0},
    {"rtx-4090-ddr4", 1008, DDR4, 24, PLACE_LAUNCH_GRAPH, 0}, /* GDDR6X, 384 bits at 21 Gbit/s */
    {"rtx-4090-ddr5", 1008, DDR5, 24, PLACE_LAUNCH_GRAPH, 0},
    {"rtx-5090-ddr4", 1792, DDR4, 32, PLACE_LAUNCH_OVERLAP, 0}, /* GDDR7, 512 bits at 28 Gbit/s */
    {"rtx-5090-ddr5", 1792, DDR5, 32, PLACE_LAUNCH_OVERLAP, 0},
    {"rx-7900xtx-ddr4", 960, DDR4, 24, PLACE_LAUNCH_AMD, 0}, /* GDDR6, 384 bits at 20 Gbit/s */
    {"rx-7900xtx-ddr5", 960, DDR5, 24, PLACE_LAUNCH_AMD, 0},
    {"arc-b580-ddr5", 456, DDR5, 12, PLACE_LAUNCH_VULKAN, 0}, /* GDDR6, 192 bits at 19 Gbit/s */
    {"rx-6800-ddr4", 512, DDR4, 16, PLACE_LAUNCH_VULKAN, 0},  /* GDDR6, 256 bits at 16 Gbit/s */
    {"gtx-1080-ddr4", 320, DDR4, 8, PLACE_LAUNCH_VULKAN, 0},  /* GDDR5X, 256 bits at 10 Gbit/s */
    /* Drivers give an integrated GPU half of the memory. */
    {"iris-xe", LPDDR4X, LPDDR4X, 8, PLACE_LAUNCH_VULKAN, 16},
    {"steam-deck", LPDDR5, LPDDR5, 8, PLACE_LAUNCH_VULKAN, 16},
    {"h200-server", 4800, SERVER, 140, PLACE_LAUNCH_OVERLAP, 768}, /* HBM3e */
};

void place_machine_add_gpu(place_machine *m, double bandwidth, uint64_t memory_bytes,
                           place_launch launch) {
    double gbps = bandwidth > 0 ? bandwidth / 1e9 : GPU_UNKNOWN;
    m->has_gpu = true;
    /* with Vulkan a norm is a separate kernel in any case */
    m->overlaps = launch == PLACE_LAUNCH_OVERLAP || launch == PLACE_LAUNCH_VULKAN;
    m->device[SIDE_GPU] = (place_device){.memory_bytes = memory_bytes,
                                         .stream_gbps = GPU_STREAM * gbps,
                                         .gather_gbps = GPU_GATHER * gbps,
                                         .step = GPU_STEP[launch]};
    m->runtime_bytes = GPU_RUNTIME;
    m->margin_bytes = GPU_MARGIN;
    m->node_bytes = GPU_NODE_BYTES;
}

int place_machine_count(void) {
    return (int)(sizeof machines / sizeof *machines);
}

place_machine place_machine_at(int i) {
    const described *d = &machines[i];
    place_machine m = {.has_gpu = d->gpu_gbps > 0,
                       .shared = d->gpu_gbps == d->cpu_gbps,
                       .sync = d->launch == PLACE_LAUNCH_VULKAN ? VULKAN_SYNC : SYNC,
                       .bus_gbps = BUS_GBPS};
    memcpy(m.name, d->name, strlen(d->name) + 1);
    uint64_t host_gib = d->host_gib ? d->host_gib : HOST_GIB;
    m.device[SIDE_CPU] = (place_device){.memory_bytes = host_gib * GIB,
                                        .stream_gbps = CPU_STREAM * d->cpu_gbps,
                                        .gather_gbps = CPU_GATHER * d->cpu_gbps,
                                        .step = CPU_STEP};
    if (m.has_gpu) place_machine_add_gpu(&m, d->gpu_gbps * 1e9, d->gpu_gib * GIB, d->launch);
    return m;
}

bool place_machine_find(const char *name, place_machine *out) {
    for (int i = 0; i < place_machine_count(); i++) {
        if (strcmp(machines[i].name, name) != 0) continue;
        *out = place_machine_at(i);
        return true;
    }
    return false;
}

double place_machine_sync(const place_machine *m, uint64_t n_bytes) {
    return m->sync + (m->bus_gbps > 0 ? (double)n_bytes / (m->bus_gbps * 1e9) : 0);
}

/* Wide enough for any machine of the next decades, narrow enough to keep sums finite. */
static const double RATE_MIN = 1e-3, RATE_MAX = 1e6, SECONDS_MAX = 10;

static pi_status refuse(const place_machine *m, const char *device, const char *field, double value,
                        pi_error *err) {
    return error_set(err, PI_ERR_RANGE, "invalid value: %s%s is %g: profile %s", device, field,
                     value, m->name);
}

pi_status place_machine_check(const place_machine *m, pi_error *err) {
    static const char *const names[PLAN_SIDES] = {"cpu ", "gpu "};
    if (!(m->sync >= 0 && m->sync <= SECONDS_MAX)) return refuse(m, "", "sync_us", m->sync, err);
    if (m->bus_gbps != 0 && !(m->bus_gbps >= RATE_MIN && m->bus_gbps <= RATE_MAX))
        return refuse(m, "", "bus_gbps", m->bus_gbps, err);
    for (int i = 0; i < PLAN_SIDES; i++) {
        const place_device *d = &m->device[i];
        if (i == SIDE_GPU && !m->has_gpu) continue;
        if (!(d->stream_gbps >= RATE_MIN && d->stream_gbps <= RATE_MAX))
            return refuse(m, names[i], "stream_gbps", d->stream_gbps, err);
        if (!(d->gather_gbps >= RATE_MIN && d->gather_gbps <= RATE_MAX))
            return refuse(m, names[i], "gather_gbps", d->gather_gbps, err);
        if (!(d->step >= 0 && d->step <= SECONDS_MAX))
            return refuse(m, names[i], "step_us", d->step, err);
    }
    return PI_OK;
}
