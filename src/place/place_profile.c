/* place_profile.c: a machine description as a file, written by hand or saved after a measurement:
 *
 *   {"name": "desk", "cpu": {"stream_gbps": 45, "gather_gbps": 27, "step_us": 1},
 *    "gpu": {"memory_gib": 24, "stream_gbps": 800, "gather_gbps": 700, "step_us": 2.3,
 *            "runtime_mib": 400, "margin_mib": 256, "overlaps": false},
 *    "sync_us": 6.1, "bus_gbps": 12, "shared": false}
 *
 * Without "gpu" the machine has no GPU; overlaps: kernels of a program overlap. With "sync_us" and
 * without "bus_gbps" the time of an exchange does not depend on its bytes. Unknown keys are errors,
 * so that a misspelt key is not silently ignored. */
#include <string.h>

#include "cpu_features.h"
#include "file.h"
#include "json.h"
#include "json_writer.h"
#include "mem.h"
#include "os_text.h"
#include "place_profile.h"

static const double MICRO = 1e-6, MIB = 1048576, GIB = 1073741824;

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct number {
    const char *key;
    double *value;
    bool required;
} number;

/* `others`: further allowed keys, NULL-terminated; or NULL. */
static pi_status read_numbers(const json_node *object, const char *where, const number *numbers,
                              size_t n, const char *const *others, pi_error *err) {
    void *iter = NULL;
    const char *key;
    const json_node *node;
    while (json_next(object, &iter, &key, &node)) {
        size_t i = 0;
        while (i < n && strcmp(key, numbers[i].key) != 0) i++;
        if (i < n && !json_as_double(node, numbers[i].value))
            return error_set(err, PI_ERR_FORMAT, "invalid value: %s: %s must be a number", where,
                             key);
        for (size_t k = 0; i == n && others && others[k]; k++)
            if (strcmp(key, others[k]) == 0) i = n + 1;
        if (i == n)
            return error_set(err, PI_ERR_FORMAT, "unknown key %.40s: %s: see docs/placement.md",
                             key, where);
    }
    for (size_t i = 0; i < n; i++)
        if (numbers[i].required && !json_get(object, numbers[i].key))
            return error_set(err, PI_ERR_FORMAT, "missing key %s: %s", numbers[i].key, where);
    return PI_OK;
}

/* Bytes from a number in larger units; false when the value is not a number. */
static bool to_bytes(double value, double unit, uint64_t *out) {
    const double most = 1ull << 52; /* petabytes, and exact integers in a double */
    if (!(value >= 0 && value * unit <= most)) return false;
    *out = (uint64_t)(value * unit);
    return true;
}

static pi_status read_device(const json_node *object, const char *where, place_device *d,
                             place_machine *m, pi_error *err) {
    double memory = 0, step = d->step / MICRO;
    double runtime = (double)m->runtime_bytes / MIB, margin = (double)m->margin_bytes / MIB;
    const number numbers[] = {
        {"stream_gbps", &d->stream_gbps, true},
        {"gather_gbps", &d->gather_gbps, true},
        {"step_us", &step, false},
        {"memory_gib", &memory, false},
        {"runtime_mib", &runtime, false},
        {"margin_mib", &margin, false},
    };
    bool gpu = d == &m->device[SIDE_GPU];
    static const char *const others[] = {"name", "overlaps", NULL};
    const json_node *overlaps = gpu ? json_get(object, "overlaps") : NULL;
    if (overlaps && !json_as_bool(overlaps, &m->overlaps))
        return error_set(err, PI_ERR_FORMAT, "invalid value: %s: overlaps must be true or false",
                         where);
    pi_status status = read_numbers(object, where, numbers, gpu ? 6 : 4, gpu ? others : NULL, err);
    if (status != PI_OK) return status;
    const char *name;
    size_t n_name;
    if (gpu && json_as_string(json_get(object, "name"), &name, &n_name))
        snprintf(m->gpu_name, sizeof m->gpu_name, "%s", name);
    d->step = step * MICRO;
    if (!to_bytes(memory, GIB, &d->memory_bytes) || !to_bytes(runtime, MIB, &m->runtime_bytes) ||
        !to_bytes(margin, MIB, &m->margin_bytes))
        return error_set(err, PI_ERR_RANGE, "invalid memory size: %s", where);
    return PI_OK;
}

static pi_status read_drive(const json_node *object, place_machine *m, pi_error *err) {
    const number numbers[] = {{"stream_gbps", &m->drive_gbps, true},
                              {"reads_per_second", &m->drive_reads, true}};
    pi_status status = read_numbers(object, "drive", numbers, 2, NULL, err);
    if (status != PI_OK || (m->drive_gbps > 0 && m->drive_reads > 0)) return status;
    return error_set(err, PI_ERR_RANGE, "invalid rates: drive: use numbers above 0");
}

/* Missing keys default to the values of the described machines. */
static pi_status read_machine(const json_node *root, const char *path, place_machine *m,
                              pi_error *err) {
    place_machine_find("rtx-4090-ddr5", m);
    m->device[SIDE_CPU].memory_bytes = 0;
    double sync = m->sync / MICRO;
    const number numbers[] = {{"sync_us", &sync, false}, {"bus_gbps", &m->bus_gbps, false}};
    static const char *const others[] = {"name", "cpu", "gpu", "drive", "shared", NULL};
    const char *name;
    size_t n_name;
    if (json_kind_of(root) != JSON_OBJECT)
        return error_set(err, PI_ERR_FORMAT,
                         "not a machine's description: %s: see "
                         "docs/placement.md",
                         path);
    pi_status status = read_numbers(root, path, numbers, 2, others, err);
    if (status != PI_OK) return status;
    m->sync = sync * MICRO;
    if (json_get(root, "sync_us") && !json_get(root, "bus_gbps")) m->bus_gbps = 0;
    const json_node *gpu = json_get(root, "gpu"), *shared = json_get(root, "shared");
    if (shared && !json_as_bool(shared, &m->shared))
        return error_set(err, PI_ERR_FORMAT, "invalid value: %s: shared must be true or false",
                         path);
    m->has_gpu = json_kind_of(gpu) == JSON_OBJECT;
    if (!json_as_string(json_get(root, "name"), &name, &n_name)) name = file_name(path);
    snprintf(m->name, sizeof m->name, "%s", name);
    status = read_device(json_get(root, "cpu"), "cpu", &m->device[SIDE_CPU], m, err);
    if (status == PI_OK && m->has_gpu)
        status = read_device(gpu, "gpu", &m->device[SIDE_GPU], m, err);
    const json_node *drive = json_get(root, "drive");
    if (status == PI_OK && json_kind_of(drive) == JSON_OBJECT) status = read_drive(drive, m, err);
    if (status != PI_OK) return error_prefix(err, status, "%.200s", path);
    return place_machine_check(m, err);
}

pi_status place_profile_read(const char *path, place_machine *out, pi_error *err) {
    json_doc *doc;
    pi_status status = json_parse_file(path, &doc, err);
    if (status != PI_OK) return status;
    status = read_machine(json_root(doc), path, out, err);
    json_free(doc);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_rates(json_writer *w, const char *key, const char *name, const place_device *d,
                      bool overlaps) {
    json_put_object(w, key);
    if (name) json_put_text(w, "name", name);
    json_put_number(w, "stream_gbps", d->stream_gbps);
    json_put_number(w, "gather_gbps", d->gather_gbps);
    json_put_number(w, "step_us", d->step / MICRO);
    if (overlaps) json_put_bool(w, "overlaps", true);
    json_end_object(w);
}

/* False: no memory. mem_free out->text. */
static bool describe(const place_machine *m, os_text *out) {
    char name[PLACE_NAME_BYTES];
    snprintf(name, sizeof name, "%s", cpu_model_name());
    if (!os_text_open(out)) return false;
    json_writer w;
    json_begin(&w, out->file);
    json_put_object(&w, NULL);
    json_put_text(&w, "name", name);
    put_rates(&w, "cpu", NULL, &m->device[SIDE_CPU], false);
    if (m->has_gpu) put_rates(&w, "gpu", m->gpu_name, &m->device[SIDE_GPU], m->overlaps);
    if (m->drive_gbps > 0) {
        json_put_object(&w, "drive");
        json_put_number(&w, "stream_gbps", m->drive_gbps);
        json_put_number(&w, "reads_per_second", m->drive_reads);
        json_end_object(&w);
    }
    json_put_number(&w, "sync_us", m->sync / MICRO);
    json_put_number(&w, "bus_gbps", m->bus_gbps);
    json_end_object(&w);
    return os_text_close(out);
}

pi_status place_profile_write(const char *path, const place_machine *m, pi_error *err) {
    file_writer *w = NULL;
    os_text t;
    pi_status status = describe(m, &t) ? PI_OK : error_nomem(err, t.n, "what was measured");
    if (status == PI_OK) status = file_create_folders(path, false, err);
    if (status == PI_OK) status = file_writer_open(path, &w, err);
    if (status == PI_OK) status = file_writer_write(w, t.text, t.n, err);
    mem_free(t.text);
    if (status == PI_OK) return file_writer_commit(w, err);
    file_writer_abort(w);
    return status;
}

/* ---- this machine ---------------------------------------------------------------------------- */

bool place_profile_is_here(const place_machine *m) {
    char name[PLACE_NAME_BYTES];
    snprintf(name, sizeof name, "%s", cpu_model_name());
    return strcmp(m->name, name) == 0;
}

static bool read_own(const char *cache, place_machine *out) {
    return cache && file_exists(cache) && place_profile_read(cache, out, NULL) == PI_OK &&
           place_profile_is_here(out);
}

bool place_profile_has_gpu(const char *cache, const char *gpu_name, place_machine *out) {
    return read_own(cache, out) && out->has_gpu && strcmp(out->gpu_name, gpu_name) == 0;
}

static place_launch launch_of(const gpu_info *info) {
    static const char *const vulkan[] = {"discrete", "integrated", "virtual", "cpu"};
    for (size_t i = 0; i < sizeof vulkan / sizeof *vulkan; i++)
        if (strcmp(info->arch, vulkan[i]) == 0) return PLACE_LAUNCH_VULKAN;
    if (strncmp(info->arch, "gfx", 3) == 0) return PLACE_LAUNCH_AMD;
    return info->overlaps ? PLACE_LAUNCH_OVERLAP : PLACE_LAUNCH_GRAPH;
}

bool place_profile_of_gpu(const gpu_info *info, const char *cache, place_machine *out) {
    place_machine measured;
    bool found = read_own(cache, &measured);
    bool gpu = found && measured.has_gpu && strcmp(measured.gpu_name, info->name) == 0;
    place_machine_find("cpu-only", out);
    snprintf(out->name, sizeof out->name, "%s", cpu_model_name());
    snprintf(out->gpu_name, sizeof out->gpu_name, "%s", info->name);
    place_machine_add_gpu(out, info->bandwidth, info->memory_total, launch_of(info));
    if (found) out->device[SIDE_CPU] = measured.device[SIDE_CPU];
    if (!gpu) return false;
    out->device[SIDE_GPU] = measured.device[SIDE_GPU];
    out->sync = measured.sync;
    out->bus_gbps = measured.bus_gbps;
    return true;
}
