/* driver_open.c: opens the driver's library, and finds the functions of driver_calls.h in it. */
#include <string.h>

#include "driver.h"
#include "dynlib.h"

typedef struct call_row {
    const char *symbol;
    size_t at; /* in driver_calls */
    bool may;  /* be missing */
} call_row;

static const call_row rows[] = {
#define MUST_ROW(name, symbol, params) {symbol, offsetof(driver_calls, name), false},
#define MAY_ROW(name, symbol, params)  {symbol, offsetof(driver_calls, name), true},
    DRIVER_CALLS(MUST_ROW, MAY_ROW)
#undef MUST_ROW
#undef MAY_ROW
};

static pi_status find_calls(driver_vendor *v, void *library, pi_error *err) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dynlib_function f = dynlib_symbol(library, rows[i].symbol);
        memcpy((char *)&v->calls + rows[i].at, &f, sizeof f);
        if (!f && !rows[i].may)
            return error_set(err, PI_ERR_NOT_FOUND,
                             "no device: %s: driver too old, without %s: update it to %s or later",
                             v->name, rows[i].symbol, v->oldest);
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
    void *library = NULL;
    pi_error why;
    pi_status status = PI_ERR_NOT_FOUND;
    for (int i = 0; v->libraries[i] && status != PI_OK; i++)
        status = dynlib_open(v->libraries[i], &library, i == 0 ? &why : NULL);
    if (status != PI_OK)
        error_set(&v->error, PI_ERR_NOT_FOUND, "no device: %s: %.300s", v->name, why.message);
    else if (find_calls(v, library, &v->error) == PI_OK && start(v, &v->error) == PI_OK)
        v->error.status = PI_OK;
}

/* Values of CUdevice_attribute. */
static driver_vendor cuda = {
    .name = "cuda",
    .libraries = {"libcuda.so.1"},
    .oldest = "470",
    .access = ": check that the files /dev/nvidia* exist and that your user may open them",
    .attribute_units = 16,
    .attribute_integrated = 18,
    .attribute_clock = 36,
    .attribute_bus = 37,
    .attribute_major = 75,
    .attribute_minor = 76,
};

static void open_cuda(void) {
    open_library(&cuda);
}
driver_vendor *driver_cuda(void) {
    static os_once once;
    os_once_run(&once, open_cuda);
    return &cuda;
}
