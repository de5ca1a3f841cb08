/* test_ptx_program.c: the program on the fake driver (fake_cuda.cpp): what it says and does when
 * the driver refuses, is old, has too little memory, or loses the GPU; several GPUs; the first
 * translation of the kernels. The reference is the text that the CPU writes. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_shell.h"

#define DRIVER(folder) "LD_LIBRARY_PATH='" TEST_BINARY_DIR "/" folder "' "
#define FAKE           DRIVER("fake_driver")
#define RUN            "$PI run -m $M -p ab -n 6 --temp 0 -t 1 "

static char expected[256];

/* Whether the CPU's text is in the file `text`. */
static bool has_text(void) {
    return strcmp(shell_read("text", NULL), expected) == 0;
}

static int make_expected(void **state) {
    const int failed = shell_setup(state);
    if (failed || sh(RUN "-q --device cpu >text") != 0) return -1;
    snprintf(expected, sizeof expected, "%s", shell_read("text", NULL));
    return expected[0] ? 0 : -1;
}

static bool says(const char *text) {
    return strstr(shell_read("err", NULL), text) != NULL;
}

/* Runs with these variables and options; returns the exit status. */
static int run(const char *variables, const char *options) {
    char line[1024];
    snprintf(line, sizeof line, "%s " RUN "%s >text", variables, options);
    return sh(line);
}

/* As `run`; the text must be the CPU's. */
static void same_text(const char *variables, const char *options) {
    const int status = run(variables, options);
    if (status != 0 || !has_text())
        fail_msg("%s %s: status %d: %s", variables, options, status, shell_read("err", NULL));
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* `seen`: the reason concerns a GPU that is there, so that --device auto says it. Without a driver
 * of the system the others are no news. */
static const struct refusal {
    const char *variables, *reason;
    bool seen;
} refusals[] = {
    {FAKE "FAKE_CUDA_INIT=100",
     "no device: cuda: the driver says: no CUDA-capable device is detected (100)", false},
    {FAKE "FAKE_CUDA_INIT=304",
     "no device: cuda: the driver says: OS call failed or operation not supported on this OS "
     "(304): "
     "check that the files /dev/nvidia* exist and that your user may open them",
     false},
    {FAKE "FAKE_CUDA_INIT=803",
     "no device: cuda: the driver says: unsupported display driver / cuda driver combination (803)",
     false},
    {FAKE "FAKE_CUDA_DEVICES=0", "no device: cuda: none found", false},
    {DRIVER("fake_driver_old"),
     "no device: cuda: driver too old, without cuGraphInstantiateWithFlags: update it to 470 or "
     "later",
     false},
    {FAKE "FAKE_CUDA_PTX=62",
     "driver too old: cuda: it cannot translate the kernels for sm_80: update it", true},
    {FAKE "FAKE_CUDA_ARCH=70",
     "GPU too old: fake GPU: compute capability 7.0: needs 7.5 or later; the "
     "backend vulkan supports older GPUs",
     true},
};

static void test_refusals(void **state) {
    (void)state;
    if (access("/proc/driver/nvidia", F_OK) == 0) skip(); /* it changes reasons */
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        char line[1024], message[1024];
        snprintf(message, sizeof message, "powerinfer: %s\n", r->reason);
        assert_int_equal(run(r->variables, "--device cuda"), 1);
        assert_string_equal(shell_read("text", NULL), "");
        assert_true(says(message));
        same_text(r->variables, "--device auto");
        if (says(r->reason) != r->seen) fail_msg("auto: %s", shell_read("err", NULL));
        snprintf(line, sizeof line, "%s $PI inspect --devices", r->variables);
        assert_int_equal(sh(line), 0);
        /* a translation that fails is found when the device is opened */
        if (!strstr(r->reason, "translate")) assert_contains("out", r->reason);
    }
}

/* A driver that knows only older PTX gets that of an older architecture. */
static void test_older_ptx(void **state) {
    (void)state;
    same_text(FAKE "FAKE_CUDA_ARCH=90 FAKE_CUDA_PTX=70", "--device cuda");
    assert_true(says("fake GPU"));
}

/* Without functions that old drivers lack: kernels do not overlap, programs are uploaded by their
 * first launch, errors are numbers. */
static void test_missing_functions(void **state) {
    (void)state;
    same_text(DRIVER("fake_driver_less") "FAKE_CUDA_ARCH=90", "--device cuda");
    assert_true(says("fake GPU"));
    same_text(DRIVER("fake_driver_less") "FAKE_CUDA_LOST=50", "--device cuda");
    assert_true(says("falling back to the CPU: ") && says(": cuda: error (719)"));
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Runs with a fault, on a GPU that is named and on the one that is found. A named GPU that has the
 * fault when it is opened is an error; otherwise the CPU computes what the GPU does not, and a line
 * says why. False: no fault. */
static bool has_fault(const char *variables, const char *reason, int *n_refused) {
    const int status = run(variables, "--device cuda");
    bool fault = says(reason);
    if (status == 1) {
        assert_true(fault && says("powerinfer: "));
        assert_string_equal(shell_read("text", NULL), "");
        same_text(variables, "--device auto -ngl 99");
        assert_true(says(reason));
        ++*n_refused;
    } else if (status != 0 || !has_text()) {
        fail_msg("%s: status %d: %s", variables, status, shell_read("err", NULL));
    }
    return fault;
}

/* An allocation and all later ones fail: of the measurement at open, of the weights, of the KV
 * cache. */
static void test_no_memory(void **state) {
    (void)state;
    int n_refused = 0;
    bool falls = false;
    for (int k = 1; k < 32 && !falls; k += 2) {
        char variables[512];
        snprintf(variables, sizeof variables, FAKE "FAKE_CUDA_NO_MEMORY=%d", k);
        assert_true(has_fault(variables, "out of device memory: ", &n_refused));
        falls = says("falling back to the CPU: ");
    }
    assert_true(falls && n_refused > 0);
    n_refused = 0;
    assert_false(has_fault(FAKE "FAKE_CUDA_NO_MEMORY=1000", "memory: ", &n_refused));
    assert_int_equal(n_refused, 0);
}

/* The device is lost in the self-test when it is opened, in the prompt, in a token; or not. */
static void test_lost(void **state) {
    (void)state;
    static const char lost[] = "cuda: unspecified launch failure (719)",
                      falls[] = "falling back to the CPU: work on the device failed: cuda: "
                                "unspecified launch failure (719)";
    int n_refused = 0;
    assert_true(has_fault(FAKE "FAKE_CUDA_LOST=1", lost, &n_refused));
    assert_int_equal(n_refused, 1);
    assert_true(has_fault(FAKE "FAKE_CUDA_LOST=20", falls, &n_refused));
    assert_true(has_fault(FAKE "FAKE_CUDA_LOST=100", falls, &n_refused));
    assert_false(has_fault(FAKE "FAKE_CUDA_LOST=100000", lost, &n_refused));
    assert_int_equal(n_refused, 1);
}

/* ---- several GPUs ---------------------------------------------------------------------------- */

static void test_several(void **state) {
    (void)state;
    same_text(FAKE, "--device cuda:0,1 -ngl 99 -v");
    assert_true(says("GPU 0 sends to GPU 1: into its memory"));
    same_text(FAKE, "--device cuda:1,2 -ngl 99 -v");
    assert_true(says("GPU 1 sends to GPU 2: through host memory"));
    same_text(FAKE "FAKE_CUDA_LOST=60", "--device cuda:1,0 -ngl 99 -v");
    assert_true(says("falling back to the CPU: "));
    assert_int_equal(sh(FAKE "FAKE_CUDA_DEVICES=2 " RUN "--device cuda:0,2"), 1);
    assert_true(says("powerinfer: no device 2: cuda: there are 2, from 0 on\n"));
}

/* ---- the first translation ------------------------------------------------------------------- */

/* Runs with standard error on a new terminal, and returns what it shows. */
static const char *show(const char *line) {
    static char shown[1 << 14];
    char whole[2048];
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY); /* keeps what was written */
    assert_true(slave >= 0 && fcntl(master, F_SETFL, O_NONBLOCK) == 0);
    snprintf(whole, sizeof whole, "%s >text 2>%s", line, ptsname(master));
    assert_int_equal(sh(whole), 0);
    size_t n = 0;
    for (ssize_t got; (got = read(master, shown + n, sizeof shown - 1 - n)) > 0;) n += (size_t)got;
    shown[n] = '\0';
    close(slave);
    close(master);
    return shown;
}

/* One line after a second; on a terminal then a bar, which ends before the next line. */
static void test_translation(void **state) {
    (void)state;
    static const char line[] = "warning: the driver translates the kernels for sm_80, once: this "
                               "start takes longer\n";
    static const char slow[] = FAKE "FAKE_CUDA_LOAD_MS=100";
    same_text(slow, "--device cuda");
    assert_true(says(line));
    assert_false(says("translating kernels"));
    same_text(slow, "--device cuda -q");
    assert_err("");
    char command[1024];
    snprintf(command, sizeof command, "%s " RUN "--device cuda", slow);
    const char *shown = show(command);
    const char *bar = strstr(shown, "translating kernels"), *end = strstr(shown, "100%");
    if (!bar || !end || !strstr(shown, "the driver translates")) fail_msg("shown: %s", shown);
    assert_true(strstr(shown, "the driver translates") < bar && bar < end);
    assert_int_equal(strncmp(end, "100%\r\n", 6), 0);
    assert_true(has_text());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_older_ptx),
        cmocka_unit_test(test_missing_functions),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_translation),
    };
    return cmocka_run_group_tests_name("ptx_program", tests, make_expected, shell_teardown);
}
