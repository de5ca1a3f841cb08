/* driver_open.c: opens the driver's library, and finds the functions of driver_calls.h in it. */
#include <string.h>

#include "driver.h"
#include "driver_images.h"
#include "dynlib.h"
#include "gpu_kfd.h"
#include "gpu_presence.h"

typedef struct call_row {
    const char *cuda, *hip; /* symbols; NULL: the vendor has no such function */
    size_t at;              /* in driver_calls */
    bool may;               /* be missing */
} call_row;

static const call_row rows[] = {
#define MUST_ROW(name, cuda, hip, params) {cuda, hip, offsetof(driver_calls, name), false},
#define MAY_ROW(name, cuda, hip, params)  {cuda, hip, offsetof(driver_calls, name), true},
    DRIVER_CALLS(MUST_ROW, MAY_ROW)
#undef MUST_ROW
#undef MAY_ROW
};

static pi_status find_calls(driver_vendor *v, void *library, pi_error *err) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *symbol = v->amd ? rows[i].hip : rows[i].cuda;
        if (!symbol) continue;
        dynlib_function f = dynlib_symbol(library, symbol);
        memcpy((char *)&v->calls + rows[i].at, &f, sizeof f);
        if (!f && !rows[i].may)
            return error_set(err, PI_ERR_NOT_FOUND,
                             "no device: %s: driver too old, without %s: update it to %s or later",
                             v->name, symbol, v->oldest);
    }
    return PI_OK;
}

/* The driver's own word for a result; its number, where it has none. */
static pi_status start(driver_vendor *v, pi_error *err) {
    const char *why = NULL;
    const int result = v->calls.init(0);
    if (result == DRIVER_OK && v->calls.version(&v->driver_version) == DRIVER_OK) return PI_OK;
    if (v->calls.error_text) v->calls.error_text(result, &why);
    return error_set(err, PI_ERR_NOT_FOUND, "no device: %s: the driver says: %s (%d)%s", v->name,
                     why ? why : "error", result, result == DRIVER_NO_ACCESS ? v->access : "");
}

static void open_library(driver_vendor *v) {
    const char *const *names = gpu_driver_libraries(v->name);
    void *library = NULL;
    pi_error why;
    pi_status status = PI_ERR_NOT_FOUND;
    for (int i = 0; names[i] && status != PI_OK; i++)
        status = dynlib_open(names[i], &library, i == 0 ? &why : NULL);
    if (status != PI_OK)
        error_set(&v->error, PI_ERR_NOT_FOUND, "no device: %s: %.300s", v->name, why.message);
    else if (find_calls(v, library, &v->error) == PI_OK && start(v, &v->error) == PI_OK)
        v->error.status = PI_OK;
}

/* Values of CUdevice_attribute. */
static driver_vendor cuda = {
    .name = "cuda",
    .oldest = "470",
    .access = ": check that the files /dev/nvidia* exist and that your user may open them",
    .attribute_units = 16,
    .attribute_integrated = 18,
    .attribute_memory_clock = 36,
    .attribute_memory_bus = 37,
    .attribute_major = 75,
    .attribute_minor = 76,
    .pinned = DRIVER_PINNED,
    .free_memory = driver_nvidia_free,
};

/* Values of hipDeviceAttribute_t, equal in the headers of ROCm 5.2, 5.5 and 6.3: later versions
 * keep the places of removed values, and append. The clock has its value since ROCm 5.4. */
static driver_vendor hip = {
    .name = "hip",
    .oldest = "ROCm 5.2",
    .access = ": check that your user may open /dev/kfd and /dev/dri/render*",
    .amd = true,
    .attribute_units = 63,
    .attribute_integrated = 16,
    .attribute_memory_clock = 60,
    .attribute_memory_bus = 59,
    .attribute_major = 23,
    .attribute_minor = 61,
    .attribute_clock = 10017,
    .pinned = DRIVER_PINNED | DRIVER_COHERENT,
    .first_index = DRIVER_MAX_DEVICES,
    .free_memory = driver_amd_free,
};

static void open_cuda(void) {
    open_library(&cuda);
}
driver_vendor *driver_cuda(void) {
    static os_once once;
    os_once_run(&once, open_cuda);
    return &cuda;
}

/* GPUs without kernels in this build, often the one inside a CPU, are hidden from the runtime
 * before it starts, unless the user has chosen GPUs by the same variable. */
static void open_hip(void) {
    char targets[DRIVER_TARGETS_TEXT], visible[GPU_KFD_VISIBLE];
    driver_image_targets("hip", targets);
    if (gpu_kfd_check(GPU_KFD_FOLDER, targets, visible, &hip.error) != PI_OK) return;
    if (visible[0]) dynlib_environment("ROCR_VISIBLE_DEVICES", visible);
    open_library(&hip);
}
driver_vendor *driver_hip(void) {
    static os_once once;
    os_once_run(&once, open_hip);
    return &hip;
}
