/* place.h: the placement of a model on a CPU and GPUs. Pure functions on data:
 *
 *   machine  + workload + budget  ->  plan     (place_solve)
 *   machine  + workload + plan    ->  seconds  (place_predict)
 *
 * A workload describes a model as bytes: per layer, the bytes that every token reads (attention,
 * norms, predictor, KV cache) and neurons with their probability of being computed, hottest first.
 * A plan assigns a primary device to every layer's always-read part and a split point to its
 * neurons: the first `hot` are on the GPU, the rest on the CPU, except neurons on helper GPUs
 * (place_add_helpers). docs/placement.md explains model and solver.
 *
 * Everything here is deterministic and without state. Sizes are in bytes, times in seconds, rates
 * in 1e9 bytes per second. */
#ifndef PLACE_PLACE_H
#define PLACE_PLACE_H

#include "model.h"
#include "plan.h"

/* ---- machines -------------------------------------------------------------------------------- */

typedef struct place_device {
    uint64_t memory_bytes; /* 0: unknown */
    double stream_gbps;    /* sequential reads */
    double gather_gbps;    /* reads of non-contiguous rows of single neurons */
    double step;           /* seconds per kernel (GPU) or barrier of all threads (CPU) */
} place_device;

enum {
    PLACE_NAME_BYTES = 64,
    PLACE_GPU_NAME_BYTES = 128,
    PLACE_DRIVE_READ = 8192,   /* bytes: a neuron's bundle */
    PLACE_DRIVE_LONG = 1 << 20 /* bytes: a piece of a matrix */
};

typedef struct place_machine {
    char name[PLACE_NAME_BYTES];
    char gpu_name[PLACE_GPU_NAME_BYTES]; /* name that the driver reports; empty: any GPU */
    bool has_gpu;
    bool shared; /* one memory for CPU and GPU: nothing is stored twice, and both share the
                    bandwidth of the faster one */
    place_device device[PLAN_SIDES];
    double sync;     /* seconds per exchange: input to the other device and partial sum back, with
                        kernels and barriers, without its bytes */
    double bus_gbps; /* bytes of an exchange per second; 0: `sync` includes them */
    /* The drive with the model: rate of reads of PLACE_DRIVE_LONG bytes (1e9 bytes per second), and
     * number of reads of PLACE_DRIVE_READ bytes per second, both with many reads in flight. 0: not
     * measured. */
    double drive_gbps, drive_reads;
    uint64_t runtime_bytes; /* GPU memory for driver and kernels */
    uint64_t margin_bytes;  /* GPU memory that stays free */
    size_t node_bytes;      /* GPU memory of a recorded program per kernel */
    bool overlaps;          /* gpu_info.overlaps */
} place_machine;

/* Described machines, from published figures: "rtx-4090-ddr5", ..., "cpu-only". */
int place_machine_count(void);
place_machine place_machine_at(int i);
bool place_machine_find(const char *name, place_machine *out);
/* How a kernel of a program follows the previous one: after it has ended; with blocks that already
 * wait (programmatic launch, sm_90 and later); by AMD's command processor; after a Vulkan barrier.
 */
typedef enum place_launch {
    PLACE_LAUNCH_GRAPH,
    PLACE_LAUNCH_OVERLAP,
    PLACE_LAUNCH_AMD,
    PLACE_LAUNCH_VULKAN
} place_launch;

/* Adds a GPU with a known published bandwidth, bytes per second (0: unknown). All other figures are
 * the assumptions for the described GPUs. */
void place_machine_add_gpu(place_machine *m, double bandwidth, uint64_t memory_bytes,
                           place_launch launch);
/* Seconds of an exchange with so many bytes. */
double place_machine_sync(const place_machine *m, uint64_t n_bytes);
/* PI_ERR_RANGE for a meaningless figure; the message names machine and field. */
pi_status place_machine_check(const place_machine *m, pi_error *err);

/* ---- workloads ------------------------------------------------------------------------------- */

typedef struct place_layer {
    uint64_t always_bytes;    /* attention and norms */
    uint64_t predictor_bytes; /* on the primary device */
    uint64_t kv_bytes;        /* bytes of the KV cache, on the primary device */
    uint64_t kv_read;         /* bytes of the KV cache that a token reads */
    /* Additional bytes of the GPU's copy, whose rows are padded: for attention, norms and predictor
     * together, and for a group of neurons. */
    uint64_t always_padding, unit_padding;
    int32_t always_steps[PLAN_SIDES], neuron_steps[PLAN_SIDES], merged_norms; /* step_counts */
    bool always_stays, neurons_stay; /* must stay on the CPU: plan_options.stays */
    bool with_previous;  /* must have the previous layer's primary: they share a KV cache */
    bool begins_stage;   /* the previous layer counts as on the CPU, but belongs to another GPU */
    bool experts;        /* experts instead of neurons: gathered bytes are in long runs */
    int64_t n;           /* neurons, or experts */
    int64_t unit;        /* neurons per group, which is placed as a whole; divides n */
    uint64_t unit_bytes; /* bytes of a group */
    double unit_stream;  /* bytes of each group that every token reads in order */
    /* [n / unit + 1]: expected bytes that a token gathers from the first k groups, and expected
     * number of selected neurons (or experts) in these groups. Concave: hottest first. */
    double *gather, *selected;
    uint64_t exchange_bytes; /* that cross the bus in an exchange of its neurons */
} place_layer;

typedef struct place_workload {
    int n_layers;
    place_layer *layers; /* [n_layers] */
    bool has_predictor;
    uint64_t stream_bytes; /* a token's residual stream, which moves to another primary */
    uint64_t head_bytes;   /* output matrix and norm, read for every token */
    uint64_t table_bytes;  /* embeddings, predictor of the head: always in host memory */
    uint64_t tied_bytes;   /* bytes of a head that is the embedding table; 0: the head has its own
                              matrix */
    uint64_t head_padding; /* like a layer's always_padding */
    int32_t head_steps[PLAN_SIDES];
    bool head_stays;
    uint64_t scratch_bytes; /* working buffers of a GPU in use: estimate; overwritten by the exact
                               size */
    arena arena;
} place_workload;

typedef struct place_use {
    const plan_options *plan; /* determines the modes below */
    const pi_mode *modes;     /* [n_layer], none of them PI_MODE_AUTO */
    int64_t n_ctx;            /* capacity of the KV cache in positions */
    int64_t depth;            /* positions that the predicted token attends to */
    int64_t n_batch;          /* tokens per ubatch that scratch is sized for */
    quant_type type_k, type_v;
    double density; /* fraction of active neurons in layers without statistics */
} place_use;

/* Reads only sizes and statistics of the model, no weights. PI_ERR_NOMEM; PI_ERR_RANGE: sizes
 * overflow; PI_ERR_ARG: a head is not a multiple of the cache type's block. */
pi_status place_workload_create(const model *m, const place_use *use, place_workload *out,
                                pi_error *err);
void place_workload_free(place_workload *w); /* accepts a zeroed one */

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct place_plan {
    int n_layers;
    plan_split *splits; /* [n_layers] */
    plan_side head;
    double bound; /* lower bound of the predicted seconds per token of any placement within the
                     budget (with several GPUs, without helpers) */
} place_plan;

/* The plan with the least predicted time within `budget` bytes of GPU memory (margin included).
 * Every budget is valid: if it is too small, or without a GPU, everything is on the CPU. Machine
 * and workload must have passed their checks. PI_ERR_NOMEM. */
pi_status place_solve(const place_workload *w, const place_machine *m, uint64_t budget,
                      place_plan *out, pi_error *err);
void place_plan_free(place_plan *p); /* accepts a zeroed one */

typedef struct place_layer_time {
    double always, kv, gpu, cpu; /* gpu and cpu run in parallel; gpu: the slowest GPU */
    double sync;
    double total; /* always + kv + max(gpu, cpu) + sync */
} place_layer_time;

typedef struct place_prediction {
    double seconds;                          /* per token */
    double always, gpu, cpu, sync, head, kv; /* sums over layers; gpu and cpu overlap */
    int64_t exchanges;
    uint64_t weights[PLAN_SIDES]; /* bytes resident */
    uint64_t kv_cache[PLAN_SIDES];
    uint64_t scratch, runtime, margin;    /* GPU memory; 0 when nothing is on the GPU */
    uint64_t resident[PLAN_SIDES];        /* sum of all of these except the margin */
    uint64_t on_device[PLAN_MAX_DEVICES]; /* parts of resident[SIDE_GPU], by GPU */
    double read[PLAN_SIDES];              /* expected bytes per token */
} place_prediction;

/* Divides layers into stages, one for each of n devices (n >= 1, shares > 0): stage d ends before
 * layer end[d]. Bytes follow the shares as closely as whole layers allow; layers that share a cache
 * stay together; the last stage has the head. Layers before `first` do not count. */
void place_choose_stages(const place_workload *w, const double *shares, int n, int first, int *end);
/* Solves as if layers outside [first, end) had to stay on the CPU (the head likewise, unless it is
 * inside): they belong to other GPUs' stages. Only the transfer of the residual stream to and from
 * these stages is cheaper. */
void place_workload_keep(place_workload *w, int first, int end);
/* Like place_solve, for n GPUs with one stage each (place_choose_stages), their machines (with the
 * same CPU) and budgets. Helpers use the rest of the budgets. */
pi_status place_solve_stages(const place_workload *w, const place_machine *m,
                             const uint64_t *budgets, const int *end, int n, place_plan *out,
                             pi_error *err);

/* Moves neurons from the CPU to helper GPUs while that is predicted to save time: at most `room`
 * bytes for each of n GPUs, the hottest neurons to the first GPU. PI_ERR_NOMEM. */
pi_status place_add_helpers(const place_workload *w, const place_machine *m, const uint64_t *room,
                            int n, place_plan *p, pi_error *err);

/* m: the machine of each GPU in the splits, all with the same CPU. `layers`: [n_layers] or NULL. */
void place_predict(const place_workload *w, const place_machine *m, const place_plan *p,
                   place_prediction *out, place_layer_time *layers);

/* The side with most bytes of a plan's KV cache, or of its predictors, for machine-readable plans;
 * both are on the primary devices. */
plan_side place_kv_primary(const place_workload *w, const place_plan *p);
plan_side place_predictor_primary(const place_workload *w, const place_plan *p);

#endif
