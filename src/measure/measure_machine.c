/* measure_machine.c: the source of a machine's description: a name, a JSON file, or a measurement
 * of this machine, new or saved. */
#include "measure_machine.h"

#include <math.h>
#include <string.h>

#include "bandwidth.h"
#include "cpu_features.h"
#include "cpu_topology.h"
#include "drive.h"
#include "file.h"
#include "gpu_rates.h"
#include "place_device.h"
#include "place_profile.h"

enum {
    /* Rows for the gather rate: a neuron's row in Q4_0 at n_embd 4096, one in ten. */
    GATHER_ROW = 2304,
    SAMPLES = 5
};

static const double GATHER_DENSITY = 0.1;

/* ---- measuring ------------------------------------------------------------------------------- */

static void say(const pi_place_options *o, const char *line) {
    if (o->message) o->message(o->user, line);
}

static int threads_of(const pi_place_options *o) {
    return o->n_threads ? o->n_threads : cpu_count_physical();
}

static pi_status measure_cpu(const pi_place_options *o, place_device *cpu, pi_error *err) {
    bandwidth *b;
    bandwidth_options options = {.n_threads = threads_of(o), .row_bytes = GATHER_ROW};
    pi_status status = bandwidth_create(&options, &b, err);
    if (status != PI_OK) return status;
    cpu->stream_gbps = cpu->gather_gbps = 0; /* the best of several: others also use this machine */
    for (int i = 0; i < SAMPLES; i++) {
        cpu->stream_gbps = fmax(cpu->stream_gbps, bandwidth_read(b));
        cpu->gather_gbps = fmax(cpu->gather_gbps, bandwidth_gather(b, GATHER_DENSITY));
    }
    bandwidth_free(b);
    return PI_OK;
}

/* The rate stays unknown when the drive cannot be measured or the file is too small. */
static void measure_drive(const pi_place_options *o, const char *path, place_machine *m) {
    const double seconds = 0.5;
    pi_error why = {.status = PI_OK};
    drive *d;
    double rate = 0, reads = 0;
    if (!path) return;
    pi_status status = drive_open(path, NULL, &d, &why);
    if (status == PI_OK) {
        status = drive_measure(d, PLACE_DRIVE_LONG, seconds, &rate, &why);
        if (status == PI_OK) status = drive_measure(d, PLACE_DRIVE_READ, seconds, &reads, &why);
        drive_close(d);
    }
    if (status != PI_OK) {
        say(o, why.message);
        return;
    }
    m->drive_gbps = rate / 1e9;
    m->drive_reads = reads / PLACE_DRIVE_READ;
}

/* ---- choice of the machine ------------------------------------------------------------------- */

static pi_status load_named(const pi_place_options *o, place_machine *out, pi_error *err) {
    char names[512] = "";
    if (place_machine_find(o->profile, out)) return PI_OK;
    if (file_exists(o->profile)) return place_profile_read(o->profile, out, err);
    for (int i = 0; i < place_machine_count(); i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? " " : "", place_machine_at(i).name);
    }
    return error_set(err, PI_ERR_NOT_FOUND, "unknown profile: %.200s: name a file, or one of %s",
                     o->profile, names);
}

/* The saved measurement of this CPU. An unreadable file is reported and ignored. */
static pi_status load_cached(const pi_place_options *o, place_machine *out, bool *found,
                             pi_error *err) {
    pi_error why = {.status = PI_OK};
    *found = false;
    if (!o->cache || !file_exists(o->cache)) return PI_OK;
    pi_status status = place_profile_read(o->cache, out, &why);
    if (status == PI_ERR_NOMEM) return error_set(err, status, "%s", why.message);
    if (status != PI_OK) say(o, why.message);
    *found = status == PI_OK && place_profile_is_here(out);
    return PI_OK;
}

/* Finds the GPUs of this machine if the options use one; false when there is none. */
static bool open_own_gpus(const pi_place_options *o, place_gpus *gpus) {
    pi_context_options options = pi_context_default_options();
    pi_error why = {.status = PI_OK};
    options.device = o->device;
    options.n_devices = o->n_devices;
    memcpy(options.devices, o->devices, sizeof options.devices);
    memcpy(options.tensor_split, o->tensor_split, sizeof options.tensor_split);
    options.backend_folder = o->backend_folder;
    options.machine = o->cache;
    if (!place_wants_gpu(&options)) return false;
    if (place_gpus_open(&options, 0, gpus, &why) == PI_OK) return true;
    if (why.status != PI_ERR_NOT_FOUND || place_expects_gpu(&options)) say(o, why.message);
    return false;
}

/* Sets the memory that is free now. */
static void add_own_gpus(const pi_place_options *o, measured_machines *out) {
    place_gpus gpus;
    out->machine[0].has_gpu = false;
    if (!open_own_gpus(o, &gpus)) return;
    out->n = gpus.n;
    out->here = true;
    memcpy(out->peers, gpus.peers, sizeof out->peers);
    for (int i = 0; i < gpus.n; i++) {
        const place_gpu *gpu = &gpus.gpu[i];
        out->share[i] = gpus.share[i];
        out->machine[i] = gpu->machine;
        out->machine[i].device[SIDE_GPU].memory_bytes = gpu->info.memory_free +
                                                        gpu->machine.runtime_bytes;
    }
    place_gpus_close(&gpus);
}

/* One GPU of the described machine for each share. */
static void add_alike(const pi_place_options *o, measured_machines *out) {
    if (!out->machine[0].has_gpu) return;
    int n = 0;
    for (int i = 0; i < PI_MAX_DEVICES; i++) {
        if (!(o->tensor_split[i] > 0)) continue;
        out->share[n] = (double)o->tensor_split[i];
        out->machine[n++] = out->machine[0];
    }
    if (n > 0) out->n = n;
}

/* A GPU that cannot be measured gets the rates of its data sheet. */
static void measure_own_gpu(const pi_place_options *o, place_machine *m) {
    place_gpus gpus;
    gpu_rates rates;
    pi_error why = {.status = PI_OK};
    m->has_gpu = false;
    if (!open_own_gpus(o, &gpus)) return;
    const place_gpu *gpu = &gpus.gpu[0];
    if (gpu_rates_measure(gpu->library.backend, gpu->device, threads_of(o), &rates, &why) ==
        PI_OK) {
        m->has_gpu = true;
        snprintf(m->gpu_name, sizeof m->gpu_name, "%s", gpu->info.name);
        m->device[SIDE_GPU] = (place_device){
            .stream_gbps = rates.stream_gbps, .gather_gbps = rates.gather_gbps, .step = rates.step};
        m->sync = rates.sync;
        m->bus_gbps = rates.bus_gbps;
    } else {
        say(o, why.message);
    }
    place_gpus_close(&gpus);
}

static pi_status find_machine(const pi_place_options *o, const char *path, place_machine *out,
                              pi_error *err) {
    bool found = false;
    pi_status status = PI_OK;
    if (o->profile)
        status = load_named(o, out, err);
    else if (!o->measure)
        status = load_cached(o, out, &found, err);
    if (status == PI_OK && !o->profile && !found) {
        place_machine_find("cpu-only", out);
        if (!o->measure)
            say(o, "no measurements of this machine: predicting with the bandwidths of a DDR4 "
                   "desktop");
    }
    if (status == PI_OK && o->measure) {
        status = measure_cpu(o, &out->device[SIDE_CPU], err);
        if (status == PI_OK && !o->profile)
            snprintf(out->name, sizeof out->name, "%s", cpu_model_name());
        if (status == PI_OK && !o->profile) measure_own_gpu(o, out);
        if (status == PI_OK) measure_drive(o, path, out);
        if (status == PI_OK && o->cache) status = place_profile_write(o->cache, out, err);
    }
    return status;
}

pi_status measure_machine(const pi_place_options *o, const char *path, measured_machines *out,
                          pi_error *err) {
    *out = (measured_machines){.n = 1};
    pi_status status = find_machine(o, path, &out->machine[0], err);
    if (status == PI_OK && !o->profile) add_own_gpus(o, out);
    if (status == PI_OK && o->profile) add_alike(o, out);
    return status;
}
