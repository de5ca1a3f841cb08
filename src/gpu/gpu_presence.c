/* gpu_presence.c: see gpu_presence.h. /proc/driver/nvidia/version has a line "NVRM version: NVIDIA
 * UNIX x86_64 Kernel Module  570.86.15  Thu ...", /sys/module/amdgpu/version only a version, and
 * only of drivers that are not part of the kernel. */
#include "gpu_presence.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dynlib.h"
#include "gpu_kfd.h"
#include "os_error.h"
#include "os_file.h"

/* The first compute capability with kernels: Turing, 7.5. */
enum { LEAST_MAJOR = 7, LEAST_MINOR = 5 };

typedef struct vendor_row {
    const char *backend, *vendor;
    const char *driver; /* exists when the kernel driver is loaded; NULL: the library shows it */
    const char *version, *gpus, *node;
    const char *libraries[4]; /* the first that is there; NULL after the last */
    const char *package;      /* that has the library */
    const char *access;       /* how users get access to the node */
} vendor_row;

#if defined(_WIN32) /* the driver has no files that programs look at, only libraries */
static const vendor_row vendors[] = {
    {.backend = "cuda", .vendor = "NVIDIA", .libraries = {"nvcuda.dll"}},
    {.backend = "hip",
     .vendor = "AMD",
     .libraries = {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"}},
};
#else
static const vendor_row vendors[] = {
    {.backend = "cuda",
     .vendor = "NVIDIA",
     .driver = "/proc/driver/nvidia",
     .version = "/proc/driver/nvidia/version",
     .gpus = "/proc/driver/nvidia/gpus",
     .node = "/dev/nvidiactl",
     .libraries = {"libcuda.so.1"},
     .package = "the library of the same version, such as Debian's libcuda1",
     .access = "add your user to the group that owns it, often video, and log in again"},
    {.backend = "hip",
     .vendor = "AMD",
     .driver = "/dev/kfd",
     .version = "/sys/module/amdgpu/version",
     .gpus = GPU_KFD_FOLDER,
     .node = "/dev/kfd",
     .libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
     .package = "ROCm's HIP runtime, such as Debian's libamdhip64-5",
     .access = "add your user to the groups render and video, and log in again"},
};
#endif

/* GPUs of Windows in WSL, where NVIDIA's driver has no files in /proc. */
static const char windows_node[] = "/dev/dxg";

static const vendor_row *find_vendor(const char *backend) {
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (strcmp(vendors[i].backend, backend) == 0) return &vendors[i];
    return NULL;
}

const char *const *gpu_driver_libraries(const char *backend) {
    const vendor_row *v = find_vendor(backend);
    return v ? v->libraries : NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool join(char path[OS_PATH_MAX], const char *root, const char *name) {
    int n = snprintf(path, OS_PATH_MAX, "%s%s", root, name);
    return n >= 0 && n < OS_PATH_MAX;
}

static bool exists(const char *root, const char *name) {
    char path[OS_PATH_MAX];
    os_info info;
    return join(path, root, name) && os_path_info(path, &info) == 0;
}

/* The first word of the file that is numbers with points: "570.86.15". */
static void read_version(const char *root, const char *name, char out[GPU_VERSION_TEXT]) {
    char path[OS_PATH_MAX], line[256];
    FILE *file = join(path, root, name) ? fopen(path, "r") : NULL;
    out[0] = '\0';
    if (!file) return;
    if (fgets(line, sizeof line, file)) {
        for (const char *at = line; *at && !out[0];) {
            size_t n = strcspn(at, " \t\n"), digits = strspn(at, "0123456789.");
            if (n > 0 && n == digits && n < GPU_VERSION_TEXT && memchr(at, '.', n))
                snprintf(out, GPU_VERSION_TEXT, "%.*s", (int)n, at);
            at += n;
            at += strspn(at, " \t\n");
        }
    }
    fclose(file);
}

static int count_names(const char *path) {
    os_folder *folder = os_folder_open(path);
    int n = 0;
    if (!folder) return -1;
    while (os_folder_next(folder)) n++;
    os_folder_close(folder);
    return n;
}

static void add_failure(gpu_presence *p, const char *doing, const char *what, const char *error) {
    gpu_failure *f = &p->failures[p->n_failures++];
    snprintf(f->call, sizeof f->call, "%s %s", doing, what);
    snprintf(f->error, sizeof f->error, "%.255s", error);
}

/* ---- the driver ------------------------------------------------------------------------------ */

static void find_node(const char *root, gpu_presence *out) {
    char path[OS_PATH_MAX], text[128];
    if (!join(path, root, out->node)) return;
    out->node_problem = os_path_check(path, OS_MAY_READ | OS_MAY_WRITE);
    if (out->node_problem)
        add_failure(out, "open", out->node, os_error_text(out->node_problem, text, sizeof text));
}

static void find_library(const char *root, const vendor_row *v, gpu_presence *out) {
    pi_error why, first = {0};
    out->library_missing = true;
    for (int i = 0; v->libraries[i] && out->library_missing; i++) {
        char path[OS_PATH_MAX];
        void *handle = NULL;
        if (!join(path, root, root[0] ? "/" : "")) return;
        snprintf(path + strlen(path), sizeof path - strlen(path), "%s", v->libraries[i]);
        out->library_missing = dynlib_open(path, &handle, &why) != PI_OK;
        if (i == 0) first = why;
        dynlib_close(handle);
    }
    if (out->library_missing) add_failure(out, "load", out->library, first.message);
}

void gpu_presence_find(const char *root, const gpu_backend_row *row, gpu_presence *out) {
    const vendor_row *v = find_vendor(row->name);
    char path[OS_PATH_MAX];
    *out = (gpu_presence){.n_gpus = -1};
    if (!v) return;
    out->vendor = v->vendor;
    if (!v->driver) {
        out->library = v->libraries[0];
        find_library(root, v, out);
        out->driver = !out->library_missing;
        if (!out->driver) out->n_failures = 0; /* this machine has no such GPU */
        return;
    }
    out->driver = exists(root, v->driver);
    out->node = v->node;
    if (!out->driver && strcmp(v->backend, "cuda") == 0 && exists(root, windows_node)) {
        out->driver = out->windows = true;
        out->node = windows_node;
    }
    if (!out->driver) {
        out->node = NULL;
        return;
    }
    out->library = v->libraries[0];
    read_version(root, v->version, out->version);
    if (!out->windows && join(path, root, v->gpus))
        out->n_gpus = strcmp(v->backend, "hip") == 0 ? gpu_kfd_count(path) : count_names(path);
    find_node(root, out);
    find_library(root, v, out);
}

/* ---- reasons --------------------------------------------------------------------------------- */

/* "NVIDIA driver 570.86.15". In WSL only the library shows whose GPU it is. */
static void name_driver(const gpu_presence *p, char *out, size_t n_out) {
    if (p->windows)
        snprintf(out, n_out, "%s driver of Windows", p->library_missing ? "GPU" : p->vendor);
    else
        snprintf(out, n_out, "%s driver%s%s", p->vendor, p->version[0] ? " " : "", p->version);
}

/* Why a loaded driver offers no device to the backend, which says `why`. */
static void explain_driver(const gpu_presence *p, const vendor_row *v, const char *driver,
                           const char *why, pi_error *err) {
    char text[128];
    if (p->node_problem == EACCES || p->node_problem == EPERM)
        error_set(err, PI_ERR_DEVICE, "no permission: %s of the %s: %s", p->node, driver,
                  v->access);
    else if (p->node_problem == ENOENT)
        error_set(
            err, PI_ERR_DEVICE,
            "no device node: %s of the %s: start the container with access to the GPU; without a "
            "container, run nvidia-modprobe",
            p->node, driver);
    else if (p->node_problem)
        error_set(err, PI_ERR_DEVICE, "device node cannot be opened: %s of the %s: %s", p->node,
                  driver, os_error_text(p->node_problem, text, sizeof text));
    else if (p->n_gpus == 0)
        error_set(err, PI_ERR_DEVICE,
                  "no device: the %s lists no GPU: check that it supports this GPU", driver);
    else if (p->library_missing && p->windows)
        error_set(err, PI_ERR_DEVICE,
                  "driver library missing: %s: Windows offers a GPU, but not through NVIDIA's "
                  "driver: install that on Windows",
                  p->library);
    else if (p->library_missing)
        error_set(err, PI_ERR_DEVICE, "driver library missing: %s: for the %s install %s",
                  p->library, driver, v->package);
    else
        error_set(err, PI_ERR_DEVICE, "%.350s (%s)", why, driver);
}

void gpu_presence_explain(const gpu_presence *p, const gpu_backend_row *row, bool opened,
                          bool named, pi_error *err) {
    const vendor_row *v = find_vendor(row->name);
    char driver[64], why[PI_ERROR_TEXT_MAX];
    if (!v || !p->driver || err->status != PI_ERR_NOT_FOUND) return;
    memcpy(why, err->message, sizeof why);
    name_driver(p, driver, sizeof driver);
    if (opened)
        explain_driver(p, v, driver, why, err);
    else if (!row->built && !named)
        error_set(err, PI_ERR_UNSUPPORTED,
                  "built without %s: the %s is loaded: install a build with %s, or build one "
                  "(docs/gpu.md)",
                  row->title, driver, row->title);
    else
        err->status = PI_ERR_UNSUPPORTED; /* the backend's file: the message says what to do */
}

pi_status gpu_device_check(const gpu_backend_row *row, const gpu_info *info, pi_error *err) {
    int major = info->capability_major, minor = info->capability_minor;
    if (strcmp(row->name, "cuda") != 0) return PI_OK;
    if (major > LEAST_MAJOR || (major == LEAST_MAJOR && minor >= LEAST_MINOR)) return PI_OK;
    return error_set(err, PI_ERR_UNSUPPORTED,
                     "GPU too old: %s: compute capability %d.%d: needs %d.%d or later; the backend "
                     "vulkan supports older GPUs",
                     info->name, major, minor, LEAST_MAJOR, LEAST_MINOR);
}
