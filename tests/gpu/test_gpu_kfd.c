/* test_gpu_kfd.c: GPUs in folders like those of AMD's kernel driver, checked against builds for
 * some families. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu_kfd.h"

#define FOLDER TEST_BINARY_DIR "/gpu_kfd_nodes"

/* A node with this version; 0: a CPU. */
static void add_node(int number, unsigned version) {
    char path[512];
    snprintf(path, sizeof path, FOLDER "/%d", number);
    mkdir(FOLDER, 0777);
    mkdir(path, 0777);
    snprintf(path, sizeof path, FOLDER "/%d/properties", number);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "cpu_cores_count %u\nsimd_count %u\ngfx_target_version %u\nvendor_id 4098\n",
            version ? 0 : 16, version ? 64 : 0, version);
    fclose(f);
}

static void remove_nodes(void) {
    for (int i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof path, FOLDER "/%d/properties", i);
        unlink(path);
        snprintf(path, sizeof path, FOLDER "/%d", i);
        rmdir(path);
    }
    rmdir(FOLDER);
}

/* Something is usable; visible "": everything. */
static void check(const char *targets, const char *visible) {
    char is[GPU_KFD_VISIBLE];
    pi_error err;
    if (gpu_kfd_check(FOLDER, targets, is, &err)) fail_msg("%s: %s", targets, err.message);
    assert_string_equal(is, visible);
}

static void test_nodes(void **state) {
    (void)state;
    pi_error err;
    remove_nodes();
    check("gfx1030", ""); /* no driver */
    add_node(0, 0);
    check("gfx1030", ""); /* CPUs only */
    add_node(1, 100300);
    check("gfx1030 gfx90a", "");
    char visible[GPU_KFD_VISIBLE];
    assert_int_equal(gpu_kfd_check(FOLDER, "gfx103,gfx10300", visible, &err), PI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "gfx1030"));
    add_node(2, 90010);
    check("gfx1030,gfx90a:xnack-", "");
    check("gfx1030", "0"); /* the others have code, and are used */
    check("gfx90a", "1");
    add_node(3, 100306); /* the GPU inside of a CPU */
    check("gfx1030,gfx90a", "0,1");
    check("gfx1036,gfx1030,gfx90a", "");
    assert_int_equal(gpu_kfd_check(FOLDER, "gfx942", visible, &err), PI_ERR_UNSUPPORTED);
    remove_nodes();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
