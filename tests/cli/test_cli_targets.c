/* test_cli_targets.c: every command that writes a file, with a target that cannot be written: a
 * full device, a disk that becomes full (a limit on file sizes), a name below a file, a folder, a
 * folder without permission. Expected: status 1, one line with the target and the reason, and an
 * unchanged folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_inside.h"
#include "cli_shell.h"
#include "hf_folder.h"
#include "os_file.h"

enum { LINE_ROOM = 1024 };

/* %s: the target. Outputs are larger than a block of 512 bytes. */
static const char *const writers[] = {
    "$PI synth -q --plain --layers 1 -o %s",
    "$PI synth -q --layers 1 --rank 32 -o %s",
    "$PI inspect -q sparse.gguf --svg %s",
    "$PI quantize -q model.gguf %s q8_0",
    "$PI place -q --shape llama-7b --layers 4 --profile rtx-3060-ddr4 --svg %s",
    "$PI imatrix -q -t 1 -m model.gguf -f text -c 16 -o %s",
    "$PI eval -q -t 1 -m model.gguf --tokens ids --logits-out %s",
    "$PI perplexity -q -t 1 -m model.gguf -f text -c 16 --kl-divergence-base %s",
    "$PI run -q -t 1 -m model.gguf -p abc -n 4 --prompt-cache %s --prompt-cache-all",
#ifdef TEST_HAS_JSON
    "$PI convert -q $F -o %s",
#endif
};
enum { N_WRITERS = sizeof writers / sizeof *writers, RUN = 8 };

static hf_folder folder;

/* before: shell commands that precede the command, in its subshell. */
static void fails(int i, const char *before, const char *target, const char *reason) {
    char command[LINE_ROOM], line[2 * LINE_ROOM], end[LINE_ROOM];
    snprintf(command, sizeof command, writers[i], target);
    snprintf(line, sizeof line,
             "ls -A >../files_before; rm -f o e; (%s %s >../o 2>../e); status=$?; "
             "ls -A >../files_after; cmp ../files_before ../files_after || exit 99; exit $status",
             before, command);
    int status = sh(line);
    if (status != 1) fail_msg("%s %s: status %d", before, command, status);
    const char *said = shell_read("../e", NULL);
    said += *said == '\n';                                 /* run ends the line of its text */
    snprintf(end, sizeof end, "%s: %s\n", target, reason); /* or the whole path */
    size_t n = strlen(said), n_end = strlen(end);
    if (!cli_is_message(said) || n < n_end || strcmp(said + n - n_end, end) != 0)
        fail_msg("%s %s: expected \"...%s\", was: %s", before, command, end, said);
}

static void test_full_device(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("*** SKIPPED: no /dev/full here ***\n");
        skip();
    }
    for (int i = 0; i < N_WRITERS; i++)
        fails(i, "", "/dev/full", i == RUN ? "save it to disk first" : "No space left on device");
}

#if !defined(_WIN32) /* file size limits, mounts, and POSIX's messages for bad paths */
/* Writing beyond the limit fails as on a full disk; SIGXFSZ does not end the program. */
static void test_full_disk(void **state) {
    (void)state;
    for (int i = 0; i < N_WRITERS; i++) fails(i, "ulimit -f 1;", "result", "File too large");
}

/* The existing file is kept. */
static void test_full_disk_keeps_old_file(void **state) {
    (void)state;
    assert_int_equal(sh("echo precious >result"), 0);
    for (int i = 0; i < N_WRITERS; i++) {
        if (i == RUN) continue; /* run reads the file first */
        fails(i, "ulimit -f 1;", "result", "File too large");
    }
    assert_int_equal(sh("test \"$(cat result)\" = precious && rm result"), 0);
}

static void test_below_a_file(void **state) {
    (void)state;
    for (int i = 0; i < N_WRITERS; i++) fails(i, "", "text/result", "Not a directory");
}

#endif

static void test_missing_folder(void **state) {
    (void)state;
    for (int i = 0; i < N_WRITERS; i++) fails(i, "", "none/result", "No such file or directory");
}

#if !defined(_WIN32)
/* Checked before any work, so there is no other output. */
static void test_long_name(void **state) {
    (void)state;
    char name[OS_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[OS_NAME_MAX + 1] = 0;
    for (int i = 0; i < N_WRITERS; i++) {
        fails(i, "", name, "File name too long");
        assert_string_equal(shell_read("../o", NULL), "");
    }
}

/* A file that is a mount point, as in containers, cannot be replaced by rename. */
static void test_mounted_file(void **state) {
    (void)state;
    char command[LINE_ROOM], line[2 * LINE_ROOM];
    if (sh("unshare -m true") != 0) {
        print_message("*** SKIPPED: no private mounts for a test here ***\n");
        skip();
    }
    for (int i = 0; i < N_WRITERS; i++) {
        snprintf(command, sizeof command, writers[i], "outside");
        snprintf(line, sizeof line,
                 "rm -f inside outside plain; : >inside; : >outside; ls -A >../files_before;"
                 "unshare -m sh -c 'mount --bind inside outside || exit 9; exec %s' || exit;"
                 "ls -A >../files_after; cmp ../files_before ../files_after || exit 99;",
                 command);
        if (i == RUN) continue; /* an empty file is not a saved session */
        assert_int_equal(sh(line), 0);
        snprintf(line, sizeof line, "rm outside; %s && cmp inside outside", command);
        assert_int_equal(sh(line), 0);
    }
    assert_int_equal(sh("rm -f inside outside"), 0);
}
#endif

/* Files below /dev/shm are written as in any other folder, and an earlier file is replaced. */
static void test_below_dev(void **state) {
    (void)state;
    char target[64], command[LINE_ROOM], line[2 * LINE_ROOM];
    if (access("/dev/shm", W_OK) != 0) {
        print_message("*** SKIPPED: no /dev/shm here ***\n");
        skip();
    }
    snprintf(target, sizeof target, "/dev/shm/cli-targets-%ld", (long)getpid());
    for (int i = 0; i < N_WRITERS; i++) {
        if (i == RUN) continue;
        snprintf(command, sizeof command, writers[i], target);
        snprintf(line, sizeof line, "head -c 30000000 /dev/zero >%s; %s", target, command);
        assert_int_equal(sh(line), 0);
        snprintf(command, sizeof command, writers[i], "here");
        snprintf(line, sizeof line, "%s && cmp %s here; s=$?; rm -f %s here; exit $s", command,
                 target, target);
        assert_int_equal(sh(line), 0);
    }
}

static void test_a_folder(void **state) {
    (void)state;
    for (int i = 0; i < N_WRITERS; i++) fails(i, "", "sub", "name a file in it");
}

static void test_no_permission(void **state) {
    (void)state;
    if (geteuid() == 0) {
        print_message("*** SKIPPED: root may write anywhere ***\n");
        skip();
    }
    assert_int_equal(sh("chmod 555 sub"), 0);
    for (int i = 0; i < N_WRITERS; i++) fails(i, "", "sub/result", "Permission denied");
    assert_int_equal(sh("chmod 755 sub"), 0);
}

static int setup(void **state) {
    int status = shell_setup(state);
    if (status != 0) return status;
    char text[512];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i % 7 ? 'a' + i * i % 26 : ' ');
    if (sh("mkdir work work/sub; mv model.gguf work") != 0 || chdir("work") != 0) return -1;
    shell_write("text", text, sizeof text);
    model_shape shape = shape_tiny("llama");
    folder_open(&folder);
    folder_write_model(&folder, &shape);
    setenv("F", folder.dir, 1);
    return sh("yes 261 | head -n 9 >ids; $PI synth -q --layers 1 --rank 32 -o sparse.gguf");
}

static int teardown(void **state) {
    folder_close(&folder);
    return shell_teardown(state);
}

#ifdef TEST_HAS_JSON
static void test_converted(void **state) {
    (void)state;
    assert_int_equal(sh("$PI convert $F -o ../made.gguf --type bf16 2>../e"), 0);
    assert_contains("../e", "wrote ../made.gguf: ");
    assert_contains("../e", " MiB, bf16\n");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_device),
#if !defined(_WIN32)
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_full_disk_keeps_old_file),
        cmocka_unit_test(test_below_a_file),
        cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_mounted_file),
#endif
        cmocka_unit_test(test_missing_folder),
        cmocka_unit_test(test_below_dev),
        cmocka_unit_test(test_a_folder),
        cmocka_unit_test(test_no_permission),
#ifdef TEST_HAS_JSON
        cmocka_unit_test(test_converted),
#endif
    };
    return cmocka_run_group_tests_name("cli_targets", tests, setup, teardown);
}
