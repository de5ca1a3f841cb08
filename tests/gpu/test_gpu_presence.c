/* test_gpu_presence.c: kernel drivers in folders like /proc, /dev and /sys, and the reasons why a
 * backend finds no device. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "error.h"
#include "gpu_presence.h"

#define ROOT TEST_BINARY_DIR "/gpu_presence"

static const gpu_backend_row cuda = {"cuda", "CUDA", true, true},
                             cuda_not_built = {"cuda", "CUDA", true, false},
                             hip = {"hip", "HIP", true, true},
                             sim = {"sim", "the simulated GPU", false, true};

static int empty_root(void **state) {
    (void)state;
    return system("rm -rf '" ROOT "' && mkdir -p '" ROOT "'");
}

/* Writes a file below ROOT, and its folders. */
static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, ROOT "%s", name);
    for (char *slash = strchr(path + sizeof ROOT, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_nvidia(void) {
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n"
        "GCC version:  gcc version 12.2.0\n");
    put("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: NVIDIA GeForce RTX 4090\n");
    put("/dev/nvidiactl", "");
}

static void test_no_driver(void **state) {
    (void)state;
    const gpu_backend_row *const rows[] = {&cuda, &hip, &sim};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gpu_presence p;
        pi_error err = {PI_ERR_NOT_FOUND, "none"};
        gpu_presence_find(ROOT, rows[i], &p);
        assert_false(p.driver);
        assert_int_equal(p.n_failures, 0);
        assert_int_equal(p.vendor == NULL, rows[i] == &sim);
        gpu_presence_explain(&p, rows[i], true, false, &err);
        assert_int_equal(err.status, PI_ERR_NOT_FOUND);
        assert_string_equal(err.message, "none");
    }
}

static void test_drivers(void **state) {
    (void)state;
    gpu_presence p;
    put_nvidia();
    gpu_presence_find(ROOT, &cuda, &p);
    assert_true(p.driver && !p.windows);
    assert_string_equal(p.vendor, "NVIDIA");
    assert_string_equal(p.version, "535.54.03");
    assert_int_equal(p.n_gpus, 1);
    assert_int_equal(p.node_problem, 0);
    assert_true(p.library_missing); /* it would be in ROOT */
    assert_int_equal(p.n_failures, 1);
    assert_string_equal(p.failures[0].call, "load libcuda.so.1");
    assert_int_equal(unlink(ROOT "/dev/nvidiactl"), 0);
    gpu_presence_find(ROOT, &cuda, &p);
    assert_int_equal(p.node_problem, ENOENT);
    assert_string_equal(p.failures[0].call, "open /dev/nvidiactl");
    assert_string_equal(p.failures[0].error, "No such file or directory");
    /* the open kernel modules */
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                                       "570.86.15  Release Build  (root@)  Thu Jan 23\n");
    gpu_presence_find(ROOT, &cuda, &p);
    assert_string_equal(p.version, "570.86.15");
    put("/proc/driver/nvidia/version", "no version 1234567890.1234567890.1234567890.1234567890\n");
    gpu_presence_find(ROOT, &cuda, &p);
    assert_string_equal(p.version, "");
    gpu_presence_find(ROOT, &hip, &p);
    assert_false(p.driver);
    /* WSL, in a fresh folder */
    assert_int_equal(empty_root(NULL), 0);
    put("/dev/dxg", "");
    gpu_presence_find(ROOT, &cuda, &p);
    assert_true(p.driver && p.windows && p.n_gpus == -1 && p.node_problem == 0);
    assert_string_equal(p.node, "/dev/dxg");
    gpu_presence_find(ROOT, &hip, &p);
    assert_false(p.driver);
    /* AMD: a CPU and a GPU */
    put("/dev/kfd", "");
    put("/sys/module/amdgpu/version", "6.8.5\n");
    put("/sys/class/kfd/kfd/topology/nodes/0/properties", "gfx_target_version 0\n");
    gpu_presence_find(ROOT, &hip, &p);
    assert_true(p.driver && p.n_gpus == 0 && p.node_problem == 0 && p.n_failures == 1);
    assert_true(p.library_missing); /* in each of its versions */
    assert_string_equal(p.failures[0].call, "load libamdhip64.so.7");
    put("/sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 110000\n");
    gpu_presence_find(ROOT, &hip, &p);
    assert_int_equal(p.n_gpus, 1);
    assert_string_equal(p.version, "6.8.5");
}

static void test_reasons(void **state) {
    (void)state;
    const gpu_presence nvidia = {.vendor = "NVIDIA",
                                 .driver = true,
                                 .version = "470.82",
                                 .n_gpus = 1,
                                 .node = "/dev/nvidiactl",
                                 .library = "libcuda.so.1"};
    gpu_presence forbidden = nvidia, missing = nvidia, broken = nvidia, empty = nvidia,
                 bare = nvidia, windows = nvidia, amd = nvidia, bare_amd;
    forbidden.node_problem = EACCES;
    missing.node_problem = ENOENT;
    broken.node_problem = EIO;
    empty.n_gpus = 0;
    bare.library_missing = true;
    windows = (gpu_presence){.vendor = "NVIDIA",
                             .driver = true,
                             .windows = true,
                             .n_gpus = -1,
                             .node = "/dev/dxg",
                             .library = "libcuda.so.1",
                             .library_missing = true};
    amd = (gpu_presence){.vendor = "AMD",
                         .driver = true,
                         .n_gpus = 1,
                         .node = "/dev/kfd",
                         .node_problem = EPERM,
                         .library = "libamdhip64.so.7",
                         .library_missing = true};
    bare_amd = amd;
    bare_amd.node_problem = 0;
    static const char old[] = "driver too old: cuda: it has no cuGraphUpload: update it";
    static const char file[] = "no backend cuda: /nowhere: there is no libpowerinfer_cuda.so";
    const struct {
        const gpu_presence *p;
        const gpu_backend_row *row;
        bool opened, named;
        const char *error;
        pi_status status;
        const char *reason;
    } cases[] = {
        {&nvidia, &cuda_not_built, false, false, "built without CUDA", PI_ERR_UNSUPPORTED,
         "built without CUDA: the NVIDIA driver 470.82 is loaded: install a build with CUDA, or "
         "build one (docs/gpu.md)"},
        {&nvidia, &cuda_not_built, false, true, file, PI_ERR_UNSUPPORTED, file},
        {&nvidia, &cuda, false, false, file, PI_ERR_UNSUPPORTED, file},
        {&bare, &cuda, true, false, "no device", PI_ERR_DEVICE,
         "driver library missing: libcuda.so.1: for the NVIDIA driver 470.82 install the library "
         "of "
         "the same version, such as Debian's libcuda1"},
        {&bare_amd, &hip, true, false, "no device", PI_ERR_DEVICE,
         "driver library missing: libamdhip64.so.7: for the AMD driver install ROCm's HIP runtime, "
         "such as Debian's libamdhip64-5"},
        {&nvidia, &cuda, true, false, old, PI_ERR_DEVICE,
         "driver too old: cuda: it has no cuGraphUpload: update it (NVIDIA driver 470.82)"},
        {&forbidden, &cuda, true, false, "no device", PI_ERR_DEVICE,
         "no permission: /dev/nvidiactl of the NVIDIA driver 470.82: add your user to the group "
         "that owns it, often video, and log in again"},
        {&amd, &hip, true, false, "no device", PI_ERR_DEVICE,
         "no permission: /dev/kfd of the AMD driver: add your user to the groups render and "
         "video, and log in again"},
        {&missing, &cuda, true, false, "no device", PI_ERR_DEVICE,
         "no device node: /dev/nvidiactl of the NVIDIA driver 470.82: start the container with "
         "access to the GPU; without a container, run nvidia-modprobe"},
        {&broken, &cuda, true, false, "no device", PI_ERR_DEVICE,
         "device node cannot be opened: /dev/nvidiactl of the NVIDIA driver 470.82: Input/output "
         "error"},
        {&empty, &cuda, true, false, "no device", PI_ERR_DEVICE,
         "no device: the NVIDIA driver 470.82 lists no GPU: check that it supports this GPU"},
        {&windows, &cuda, true, false, "no device", PI_ERR_DEVICE,
         "driver library missing: libcuda.so.1: Windows offers a GPU, but not through NVIDIA's "
         "driver: install that on Windows"},
        {&windows, &cuda_not_built, false, false, "built without CUDA", PI_ERR_UNSUPPORTED,
         "built without CUDA: the GPU driver of Windows is loaded: install a build with CUDA, or "
         "build one (docs/gpu.md)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi_error err;
        error_set(&err, PI_ERR_NOT_FOUND, "%s", cases[i].error);
        gpu_presence_explain(cases[i].p, cases[i].row, cases[i].opened, cases[i].named, &err);
        assert_string_equal(err.message, cases[i].reason);
        assert_int_equal(err.status, cases[i].status);
    }
    /* Errors of a device that was found say enough. */
    pi_error err = {PI_ERR_NOMEM, "out of device memory"};
    gpu_presence_explain(&forbidden, &cuda, true, false, &err);
    assert_int_equal(err.status, PI_ERR_NOMEM);
    assert_string_equal(err.message, "out of device memory");
}

static void test_compute_capability(void **state) {
    (void)state;
    gpu_info info = {.name = "GTX 1080", .capability_major = 6, .capability_minor = 1};
    pi_error err;
    assert_int_equal(gpu_device_check(&cuda, &info, &err), PI_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "GPU too old: GTX 1080: compute capability 6.1: needs 7.5 or later; the "
                        "backend vulkan supports older GPUs");
    assert_int_equal(gpu_device_check(&hip, &info, &err), PI_OK);
    assert_int_equal(gpu_device_check(&sim, &info, &err), PI_OK);
    info.capability_major = 7;
    assert_int_equal(gpu_device_check(&cuda, &info, &err), PI_ERR_UNSUPPORTED);
    info.capability_minor = 5;
    assert_int_equal(gpu_device_check(&cuda, &info, &err), PI_OK);
    info.capability_major = 12;
    info.capability_minor = 0;
    assert_int_equal(gpu_device_check(&cuda, &info, &err), PI_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_no_driver, empty_root),
        cmocka_unit_test_setup(test_drivers, empty_root),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_compute_capability),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
