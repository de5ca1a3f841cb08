/* test_gpu_kfd.c: AMD's GPUs: in folders like those of its kernel driver, checked against builds
 * for some families; and their bandwidths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu_amd.h"
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

/* Bandwidths of data sheets, from the clock and the bus that the runtime reports. */
static void test_bandwidths(void **state) {
    (void)state;
    static const struct {
        const char *arch; /* a card with it */
        double mhz, bits, gbps;
    } cards[] = {{"gfx906", 1000, 4096, 1024},                 /* MI50 */
                 {"gfx908", 1200, 4096, 1229},                 /* MI100 */
                 {"gfx90a:sramecc+:xnack-", 1600, 4096, 1638}, /* a half of MI250X */
                 {"gfx942:sramecc+:xnack-", 1300, 8192, 5325}, /* MI300X */
                 {"gfx1010:xnack-", 875, 256, 448},            /* RX 5700 XT */
                 {"gfx1030", 1000, 256, 512},                  /* RX 6900 XT */
                 {"gfx1100", 1250, 384, 960},                  /* RX 7900 XTX */
                 {"gfx1201", 1258, 256, 644},                  /* RX 9070 XT */
                 {"gfx1036", 2400, 128, 77}}; /* inside of a Ryzen 7000: DDR5-4800 */
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        double is = gpu_amd_transfers(cards[i].arch) * cards[i].mhz * 1e6 * cards[i].bits / 8 / 1e9;
        if (is < 0.99 * cards[i].gbps || is > 1.01 * cards[i].gbps)
            fail_msg("%s: %.0f GB/s, not %.0f", cards[i].arch, is, cards[i].gbps);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes),
                                       cmocka_unit_test(test_bandwidths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
