/* cmd_inspect.c: describes a model file, or lists the devices of this machine. */

#include <string.h>

#include "cli.h"
#include "cpu_features.h"
#include "cpu_topology.h"
#include "json_writer.h"
#include "os_file.h"

typedef struct feature {
    const char *name;
    bool present;
} feature;

enum { MAX_DEVICES = 64, MAX_FEATURES = 16 };

/* Names of the CPU's features; returns their number. */
static size_t cpu_feature_names(const char *names[MAX_FEATURES]) {
    const cpu_features *f = cpu_features_get();
    const feature features[] = {
        {"avx2", f->avx2},
        {"fma", f->fma},
        {"f16c", f->f16c},
        {"bmi2", f->bmi2},
        {"avx_vnni", f->avx_vnni},
        {"avx512", f->avx512},
        {"avx512_vnni", f->avx512_vnni},
        {"neon", f->neon},
        {"avx512_bf16", f->avx512_bf16},
        {"amx_bf16", f->amx_bf16},
        {"dotprod", f->dotprod},
        {"i8mm", f->i8mm},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (features[i].present) names[n++] = features[i].name;
    }
    return n;
}

/* "cuda 0: NVIDIA ..., sm_89, 23.6 GiB, 22.9 GiB free, 1008 GB/s", or "cuda: no device: why"; then
 * indented lines with the driver, measured rates, and calls that failed. */
static void print_device(const pi_device *d) {
    const double gib = 1024.0 * 1024.0 * 1024.0, giga = 1e-9, micro = 1e6;
    if (!d->available) printf("%s: %s\n", d->backend, d->reason);
    if (d->name[0]) {
        printf("%s%s %d: %s, %s, %.1f GiB, %.1f GiB free",
               d->available ? "" : "  device: ", d->backend, d->index, d->name, d->arch,
               (double)d->memory_total / gib, (double)d->memory_free / gib);
        if (d->bandwidth > 0) printf(", %.0f GB/s", d->bandwidth * giga);
        puts(d->shared_memory ? ", shared with the CPU" : "");
    }
    if (d->driver[0]) printf("  driver: %s\n", d->driver);
    if (d->measured_stream > 0)
        printf("  measured: %.0f GB/s, %.0f GB/s for single neurons, %.1f us per step, %.1f us "
               "per exchange\n",
               d->measured_stream * giga, d->measured_gather * giga, d->measured_step * micro,
               d->measured_sync * micro);
    for (int i = 0; i < d->n_failures; i++)
        if (d->available || strcmp(d->failures[i].error, d->reason) != 0)
            printf("  failed: %s: %s\n", d->failures[i].call, d->failures[i].error);
}

static void write_device(json_writer *w, const pi_device *d) {
    json_put_object(w, NULL);
    json_put_text(w, "device", d->backend);
    json_put_bool(w, "available", d->available);
    if (!d->available) json_put_text(w, "reason", d->reason);
    if (d->name[0]) {
        json_put_int(w, "index", d->index);
        json_put_text(w, "name", d->name);
        json_put_text(w, "arch", d->arch);
        json_put_int(w, "memory_total", (int64_t)d->memory_total);
        json_put_int(w, "memory_free", (int64_t)d->memory_free);
        json_put_number(w, "bandwidth", d->bandwidth);
        json_put_bool(w, "shared_memory", d->shared_memory);
    }
    if (d->driver[0]) json_put_text(w, "driver", d->driver);
    if (d->measured_stream > 0) {
        json_put_object(w, "measured");
        json_put_number(w, "stream_gbps", d->measured_stream / 1e9);
        json_put_number(w, "gather_gbps", d->measured_gather / 1e9);
        json_put_number(w, "step_us", d->measured_step * 1e6);
        json_put_number(w, "sync_us", d->measured_sync * 1e6);
        json_end_object(w);
    }
    json_put_array(w, "failed");
    for (int i = 0; i < d->n_failures; i++) {
        json_put_object(w, NULL);
        json_put_text(w, "call", d->failures[i].call);
        json_put_text(w, "error", d->failures[i].error);
        json_end_object(w);
    }
    json_end_array(w);
    json_end_object(w);
}

static void write_devices(const pi_device *devices, size_t n) {
    const char *names[MAX_FEATURES];
    size_t n_names = cpu_feature_names(names);
    json_writer w;
    json_begin(&w, stdout);
    json_put_object(&w, NULL);
    json_put_array(&w, "devices");
    json_put_object(&w, NULL);
    json_put_text(&w, "device", "cpu");
    json_put_text(&w, "name", cpu_model_name());
    json_put_int(&w, "cores", cpu_count_physical());
    json_put_array(&w, "features");
    for (size_t i = 0; i < n_names; i++) json_put_text(&w, NULL, names[i]);
    json_end_array(&w);
    json_end_object(&w);
    for (size_t i = 0; i < n; i++) write_device(&w, &devices[i]);
    json_end_array(&w);
    json_end_object(&w);
}

static int list_devices(const cli_options *o) {
    static pi_device devices[MAX_DEVICES];
    const char *names[MAX_FEATURES];
    size_t n = 0;
    pi_error err;
    const char *machine = o->machine[0] ? o->machine : NULL;
    if (pi_devices(o->backend_folder, machine, devices, MAX_DEVICES, &n, &err))
        return cli_failed(&err);
    if (n > MAX_DEVICES) n = MAX_DEVICES;
    if (o->json) {
        write_devices(devices, n);
        return EXIT_DONE;
    }
    printf("cpu: %s, %d physical cores,", cpu_model_name(), cpu_count_physical());
    size_t n_names = cpu_feature_names(names);
    for (size_t i = 0; i < n_names; i++) printf(" %s", names[i]);
    putchar('\n');
    for (size_t i = 0; i < n; i++) print_device(&devices[i]);
    return EXIT_DONE;
}

int cmd_inspect(const cli_options *o) {
    if (o->devices) return list_devices(o);
    char path[OS_PATH_MAX];
    pi_error err = {.status = PI_OK};
    pi_context_options context = cli_context_options(o, o->ctx_size > 0 ? (int32_t)o->ctx_size : 0);
    pi_inspect_options options = {.json = o->json,
                                  .verbose = o->verbose,
                                  .plan = o->plan,
                                  .context = &context,
                                  .svg = o->svg};
    pi_status status = cli_model_path(o, path, sizeof path, &err);
    if (status == PI_OK) status = pi_inspect(path, &options, stdout, &err);
    if (status != PI_OK) return cli_failed(&err);
    if (o->svg) cli_say_written(o, o->svg, "plot of the neurons");
    return EXIT_DONE;
}
