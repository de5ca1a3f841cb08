/* place.h: what goes where when a model is shared between a CPU and a GPU. Pure data to data:
 *
 *   machine  + workload + budget  ->  plan     (place_solve)
 *   machine  + workload + plan    ->  seconds  (place_predict)
 *
 * A workload is a model seen as bytes: per layer, what is read for every token (attention, norms,
 * predictor, KV cache) and neurons with the probability that they are computed, hottest first. A
 * plan gives every layer's always-read part a primary device and its neurons a split point: the
 * first `hot` are on the GPU, the rest on the CPU, but what is given to other GPUs
 * (place_add_helpers). docs/placement.md explains model and solver.
 *
 * Everything here is deterministic and without state. Bytes are bytes, times seconds, rates 1e9
 * bytes per second. */
#ifndef PLACE_PLACE_H
#define PLACE_PLACE_H

#include "model.h"
#include "plan.h"

/* ---- machines -------------------------------------------------------------------------------- */

typedef struct place_device {
    uint64_t memory_bytes; /* 0: unknown */
    double stream_gbps;    /* reading one after the other */
    double gather_gbps;    /* reading non-contiguous rows of single neurons */
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
    char gpu_name[PLACE_GPU_NAME_BYTES]; /* as its driver says it; empty: any */
    bool has_gpu;
    bool shared; /* one memory for both: nothing is stored twice, and both draw on the faster one's
                    bandwidth together */
    place_device device[PLAN_SIDES];
    double sync; /* seconds per exchange: x there and a partial sum back, with the kernels and
                    barriers that belong to it */
    /* The drive with the model: reads of PLACE_DRIVE_LONG, 1e9 bytes per second, and reads of
     * PLACE_DRIVE_READ bytes per second, many at a time. 0: not measured. */
    double drive_gbps, drive_reads;
    uint64_t runtime_bytes; /* of GPU memory that driver and kernels take */
    uint64_t margin_bytes;  /* that are left free */
} place_machine;

/* Described machines, from published figures: "rtx-4090-ddr5", ..., "cpu-only". */
int place_machine_count(void);
place_machine place_machine_at(int i);
bool place_machine_find(const char *name, place_machine *out);
/* Gives a machine a GPU whose published bandwidth alone is known, bytes per second (0: not
 * even that). What it shares with the described ones is assumed. */
void place_machine_add_gpu(place_machine *m, double bandwidth, uint64_t memory_bytes);
/* PI_ERR_RANGE when a figure makes no sense; the message names machine and field. */
pi_status place_machine_check(const place_machine *m, pi_error *err);

/* ---- workloads ------------------------------------------------------------------------------- */

typedef struct place_layer {
    uint64_t always_bytes;    /* attention and norms */
    uint64_t predictor_bytes; /* on the primary device */
    uint64_t kv_bytes;        /* of the KV cache, on the primary device */
    uint64_t kv_read;         /* of these, per token */
    /* What the GPU's copy takes beyond that: its rows are padded. Of attention, norms and predictor
     * together; of a group of neurons. */
    uint64_t always_padding, unit_padding;
    int32_t always_steps[PLAN_SIDES], neuron_steps[PLAN_SIDES]; /* engine_steps */
    bool always_stays, neurons_stay;                            /* on the CPU: plan_options.stays */
    bool with_previous;  /* has the primary of the layer before: they share a KV cache */
    bool begins_stage;   /* the layer before is another GPU's, though it seems to be the CPU's */
    bool experts;        /* instead of neurons: gathered bytes come in long runs */
    int64_t n;           /* neurons, or experts */
    int64_t unit;        /* that move together; divides n */
    uint64_t unit_bytes; /* of such a group */
    double unit_stream;  /* bytes of each group that every token reads in order */
    /* [n / unit + 1]: expected bytes that a token gathers from the first k groups, and neurons (or
     * experts) of them that are selected. Concave: hottest first. */
    double *gather, *selected;
} place_layer;

typedef struct place_workload {
    int n_layers;
    place_layer *layers; /* [n_layers] */
    bool has_predictor;
    uint64_t head_bytes;  /* output matrix and norm, read for every token */
    uint64_t table_bytes; /* embeddings: in host memory always, hardly read */
    uint64_t tied_bytes;  /* of the head that are the embedding table's; 0: it has its own matrix */
    uint64_t head_padding; /* as of a layer */
    int32_t head_steps[PLAN_SIDES];
    bool head_stays;
    uint64_t scratch_bytes; /* working buffers on the GPU, when it has any work; an estimate that
                               who knows better replaces */
    arena arena;
} place_workload;

typedef struct place_use {
    const plan_options *plan; /* of which the modes below follow */
    const pi_mode *modes;     /* [n_layer], none of them PI_MODE_AUTO */
    int64_t n_ctx;            /* positions that the KV cache has room for */
    int64_t depth;            /* positions that the predicted token attends to */
    int64_t n_batch;          /* tokens per ubatch that scratch is sized for */
    quant_type type_k, type_v;
    double density; /* fraction of active neurons in layers without statistics */
} place_use;

/* Only sizes and statistics of the model are read, no weights. PI_ERR_NOMEM; PI_ERR_RANGE when
 * sizes overflow; PI_ERR_ARG when a head does not fit the cache's type. */
pi_status place_workload_create(const model *m, const place_use *use, place_workload *out,
                                pi_error *err);
void place_workload_free(place_workload *w); /* a zeroed one is fine */

/* ---- plans ----------------------------------------------------------------------------------- */

typedef struct place_plan {
    int n_layers;
    plan_split *splits; /* [n_layers] */
    plan_side head;
    double bound; /* no placement within the budget, of several GPUs without helpers, is predicted
                     to be faster: seconds per token */
} place_plan;

/* The plan with the least predicted time whose bytes are within `budget` (of GPU memory, margin
 * included). Any budget will do: with too little for anything, or without a GPU, all is on the CPU.
 * Machine and workload must have passed their checks. PI_ERR_NOMEM. */
pi_status place_solve(const place_workload *w, const place_machine *m, uint64_t budget,
                      place_plan *out, pi_error *err);
void place_plan_free(place_plan *p); /* a zeroed one is fine */

typedef struct place_layer_time {
    double always, kv, gpu, cpu; /* the last two at the same time; of several GPUs the slowest */
    double sync;
    double total; /* always + kv + max(gpu, cpu) + sync */
} place_layer_time;

typedef struct place_prediction {
    double seconds;                          /* per token */
    double always, gpu, cpu, sync, head, kv; /* sums over layers; gpu and cpu overlap */
    int64_t exchanges;
    uint64_t weights[PLAN_SIDES]; /* bytes resident */
    uint64_t kv_cache[PLAN_SIDES];
    uint64_t scratch, runtime, margin;    /* of GPU memory; 0 when nothing is on the GPU */
    uint64_t resident[PLAN_SIDES];        /* all of these but the margin */
    uint64_t on_device[PLAN_MAX_DEVICES]; /* of resident[SIDE_GPU], by GPU */
    double read[PLAN_SIDES];              /* bytes per token, expected */
} place_prediction;

/* Layers in stages, one for each of n devices (n >= 1, shares > 0): stage d ends before layer
 * end[d]. Bytes follow the shares as closely as whole layers allow, those that share a cache as
 * one; the last stage has the head. Layers before `first` count for nothing. */
void place_choose_stages(const place_workload *w, const double *shares, int n, int first, int *end);
/* As if layers outside of [first, end), and the head where that is not among it, had to stay on the
 * CPU, but for what the stream's way there and back costs: they are of other GPUs' stages. */
void place_workload_keep(place_workload *w, int first, int end);
/* As place_solve, for n GPUs with a stage each (place_choose_stages): their machines, which have
 * the same CPU, and their budgets. What is left of these is for helpers. */
pi_status place_solve_stages(const place_workload *w, const place_machine *m,
                             const uint64_t *budgets, const int *end, int n, place_plan *out,
                             pi_error *err);

/* Gives neurons that the CPU has to GPUs other than their layer's, as long as that is predicted to
 * save time: `room` bytes of each of n GPUs, the CPU's hottest ones to the first of them.
 * PI_ERR_NOMEM. */
pi_status place_add_helpers(const place_workload *w, const place_machine *m, const uint64_t *room,
                            int n, place_plan *p, pi_error *err);

/* m: the machine of each GPU that the splits name, with the same CPU. `layers`: [n_layers] or NULL.
 */
void place_predict(const place_workload *w, const place_machine *m, const place_plan *p,
                   place_prediction *out, place_layer_time *layers);

/* Of a plan, where most bytes of the KV cache are, or of the predictors. A machine-readable plan
 * has one word for each; both follow the layers' attention. */
plan_side place_kv_primary(const place_workload *w, const place_plan *p);
plan_side place_predictor_primary(const place_workload *w, const place_plan *p);

#endif
