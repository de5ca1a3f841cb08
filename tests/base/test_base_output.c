/* test_base_output.c: where file_writer puts its bytes until they are complete, and how it handles
 * targets that are not simply a name in a folder: leftovers of dead writers, streams, files that
 * cannot be renamed over, targets that will refuse. Each test works in a fresh folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file.h"
#include "mem.h"
#include "names_only.h"

static char folder[PATH_MAX];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/base-output-XXXXXX", TEST_BINARY_DIR);
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char line[PATH_MAX + 16];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return chdir("/") == 0 ? system(line) : -1;
}

static int count_entries(void) {
    DIR *dir = opendir(".");
    if (!dir) return -1;
    int n = -2; /* "." and ".." */
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* These functions return a result instead of asserting, so that a child process can use them. */
static bool put(const char *path, const char *text) {
    file_writer *w = NULL;
    return file_writer_open(path, &w, NULL) == PI_OK &&
           file_writer_write(w, text, strlen(text), NULL) == PI_OK &&
           file_writer_commit(w, NULL) == PI_OK;
}

static bool holds(const char *path, const char *text) {
    char *data = NULL;
    size_t n = 0;
    bool same = file_read(path, 1 << 20, &data, &n, NULL) == PI_OK && n == strlen(text) &&
                memcmp(data, text, n) == 0;
    mem_free(data);
    return same;
}

/* ---- children -------------------------------------------------------------------------------- */

enum { CHILD_FINE = 0, CHILD_WRONG = 1, CHILD_CANNOT = 2 };

/* For a child process: HOLDS must be true; NEEDS is what the system must permit for the test. */
#define HOLDS(x)                                                                                   \
    do {                                                                                           \
        if (x) break;                                                                              \
        fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno));               \
        return CHILD_WRONG;                                                                        \
    } while (0)
#define NEEDS(x)                                                                                   \
    do {                                                                                           \
        if (x) break;                                                                              \
        fprintf(stderr, "*** SKIPPED: not possible here: %s: %s ***\n", #x, strerror(errno));      \
        return CHILD_CANNOT;                                                                       \
    } while (0)

static int status_of_child(int (*work)(void)) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_int_not_equal(pid, -1);
    if (pid == 0) {
        int result = work();
        fflush(NULL);
        _exit(result);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void in_child(int (*work)(void)) {
    int status = status_of_child(work);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_CANNOT) skip();
    assert_int_equal(status, 0);
}

/* ---- named temporary files ------------------------------------------------------------------- */

static int with_names(void) {
    /* More writers than slots in the table of signal names: those beyond it work as well. */
    enum { N = 12 };
    file_writer *writers[N];
    NEEDS(names_only());
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        HOLDS(file_writer_open(name, &writers[i], NULL) == PI_OK);
    }
    HOLDS(count_entries() == N);
    HOLDS(file_writer_signal_cleanup());
    HOLDS(count_entries() < N);
    for (int i = 0; i < N; i++) file_writer_abort(writers[i]);
    HOLDS(count_entries() == 0);
    HOLDS(put("target", "old") && put("target", "new") && holds("target", "new"));
    HOLDS(file_writer_signal_cleanup());
    HOLDS(holds("target", "new") && count_entries() == 1);
    /* Two writers at once: the second does not take the first file for a leftover. */
    file_writer *a = NULL, *b = NULL;
    HOLDS(file_writer_open("target", &a, NULL) == PI_OK);
    HOLDS(file_writer_open("target", &b, NULL) == PI_OK);
    HOLDS(file_writer_write(a, "a", 1, NULL) == PI_OK && file_writer_commit(a, NULL) == PI_OK);
    HOLDS(file_writer_write(b, "b", 1, NULL) == PI_OK && file_writer_commit(b, NULL) == PI_OK);
    HOLDS(holds("target", "b") && count_entries() == 1);
    file_scratch *s = NULL; /* has no name either */
    HOLDS(file_scratch_create("target", &s, NULL) == PI_OK && count_entries() == 1);
    HOLDS(put(file_scratch_path(s), "scratch") && holds(file_scratch_path(s), "scratch"));
    file_scratch_remove(s);
    return CHILD_FINE;
}

static void test_names(void **state) {
    (void)state;
    in_child(with_names);
}

/* Where the file system supports it, an unfinished file is not visible. */
static void test_no_names(void **state) {
    (void)state;
    int fd = open(".", O_RDWR | O_TMPFILE, 0600);
    if (fd < 0) {
        print_message("*** SKIPPED: this file system has no unnamed files ***\n");
        skip();
    }
    close(fd);
    file_writer *w = NULL;
    assert_int_equal(file_writer_open("target", &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, "new", 3, NULL), PI_OK);
    assert_int_equal(file_writer_flush(w, NULL), PI_OK);
    assert_int_equal(count_entries(), 0);
    assert_true(holds(file_writer_path(w), "new"));
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
    assert_true(holds("target", "new"));
    struct stat st;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat("target", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
    assert_int_equal(count_entries(), 1);
}

/* ---- leftovers ------------------------------------------------------------------------------- */

static int die_with_a_name(void) {
    file_writer *w = NULL;
    NEEDS(names_only());
    HOLDS(file_writer_open("killed", &w, NULL) == PI_OK);
    HOLDS(file_writer_zeros(w, 1 << 20, NULL) == PI_OK);
    kill(getpid(), SIGKILL);
    return CHILD_WRONG;
}

static void test_killed_writer(void **state) {
    (void)state;
    int status = status_of_child(die_with_a_name);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_CANNOT) skip();
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_entries(), 1);
    assert_true(put("other", "x")); /* not a leftover of "killed" */
    assert_int_equal(count_entries(), 2);
    assert_true(put("killed", "x"));
    assert_true(holds("killed", "x"));
    assert_int_equal(count_entries(), 2);
}

static void test_what_is_no_leftover(void **state) {
    (void)state;
    static const char *const kept[] = {
        ".out.0123456789abcdef.tmp", /* locked below */
        ".out.0123456789abcdeg.tmp",   ".out.0123456789abcde.tmp", ".out.0123456789abcdef.tmp~",
        ".outer.0123456789abcdef.tmp", "out.0123456789abcdef.tmp", ".out.backup.tmp",
    };
    enum { N = sizeof kept / sizeof *kept };
    for (int i = 0; i < N; i++) {
        int fd = open(kept[i], O_CREAT | O_WRONLY, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    int lock = open(kept[0], O_RDONLY);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(symlink(kept[1], ".out.00000000000000ff.tmp"), 0);
    assert_int_equal(mkdir(".out.00000000000000fe.tmp", 0700), 0);
    assert_true(put("out", "x"));
    assert_int_equal(count_entries(), N + 3);
    close(lock); /* its writer is gone */
    assert_true(put("out", "y"));
    assert_int_equal(count_entries(), N + 2);
    assert_false(file_exists(kept[0]));
}

/* ---- streams --------------------------------------------------------------------------------- */

static void test_streams(void **state) {
    (void)state;
    char path[32];
    pi_error err = {0};
    file_writer *w = NULL;
    int fd = open("log", O_RDWR | O_CREAT, 0644);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    assert_int_equal(write(fd, "before ", 7), 7);
    assert_int_equal(file_writer_open(path, &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, "xiddle ", 7, NULL), PI_OK);
    assert_int_equal(file_writer_patch(w, 0, "m", 1, NULL), PI_OK);
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
    assert_int_equal(write(fd, "after", 5), 5);
    assert_true(holds("log", "before middle after"));
    close(fd);
    assert_int_equal(count_entries(), 1);

    assert_int_equal(file_writer_open(path, &w, &err), PI_ERR_IO); /* closed */
    assert_non_null(strstr(err.message, "Bad file descriptor"));
    fd = open("log", O_RDONLY);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(file_writer_open(path, &w, &err), PI_ERR_IO);
    assert_int_equal(file_writer_probe(path, &err), PI_ERR_IO);
    close(fd);

    fd = open("log", O_WRONLY | O_APPEND);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    assert_int_equal(file_writer_open(path, &w, NULL), PI_OK);
    assert_int_equal(file_writer_write(w, "!", 1, NULL), PI_OK);
    assert_int_equal(file_writer_patch(w, 0, "?", 1, &err), PI_ERR_IO); /* would be appended */
    assert_non_null(strstr(err.message, "name a file"));
    assert_int_equal(file_writer_commit(w, NULL), PI_OK);
    close(fd);
    assert_true(holds("log", "before middle after!"));
}

/* An ordinary file in /dev/shm, although its path starts with /dev. */
static void test_below_dev(void **state) {
    (void)state;
    char path[64];
    struct stat before, after;
    snprintf(path, sizeof path, "/dev/shm/base-output-%ld", (long)getpid());
    if (access("/dev/shm", W_OK) != 0) {
        print_message("*** SKIPPED: no /dev/shm here ***\n");
        skip();
    }
    assert_true(put(path, "what was there is longer"));
    assert_int_equal(stat(path, &before), 0);
    assert_true(put(path, "short"));
    assert_int_equal(stat(path, &after), 0);
    bool cut = holds(path, "short");
    unlink(path);
    assert_true(cut);
    assert_int_not_equal(before.st_ino, after.st_ino);
}

/* ---- targets that cannot be renamed over ----------------------------------------------------- */

/* A private mount namespace. */
static bool own_mounts(void) {
    return (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static int over_a_mounted_file(void) {
    NEEDS(own_mounts());
    HOLDS(put("inside", "what was there is longer") && put("outside", ""));
    NEEDS(mount("inside", "outside", NULL, MS_BIND, NULL) == 0);
    HOLDS(put("outside", "shorter") && holds("inside", "shorter"));
    HOLDS(put("outside", "longer than before") && holds("inside", "longer than before"));
    HOLDS(file_writer_probe("outside", NULL) == PI_OK && holds("inside", "longer than before"));
    HOLDS(names_only()); /* also with a named temporary file */
    HOLDS(put("outside", "once more") && holds("inside", "once more"));
    HOLDS(count_entries() == 2);
    return CHILD_FINE;
}

static void test_mounted_file(void **state) {
    (void)state;
    in_child(over_a_mounted_file);
}

/* The disk of the mounted file is too small: the file keeps its old contents. */
static int over_a_small_disk(void) {
    pi_error err = {0};
    file_writer *w = NULL;
    NEEDS(own_mounts());
    HOLDS(mkdir("small", 0700) == 0 && put("outside", ""));
    NEEDS(mount("none", "small", "tmpfs", 0, "size=64k") == 0);
    HOLDS(put("small/inside", "precious"));
    NEEDS(mount("small/inside", "outside", NULL, MS_BIND, NULL) == 0);
    HOLDS(file_writer_open("outside", &w, NULL) == PI_OK);
    HOLDS(file_writer_zeros(w, 1 << 20, NULL) == PI_OK);
    HOLDS(file_writer_commit(w, &err) == PI_ERR_IO);
    HOLDS(strstr(err.message, "outside: No space left on device"));
    HOLDS(holds("small/inside", "precious"));
    return CHILD_FINE;
}

static void test_small_disk(void **state) {
    (void)state;
    in_child(over_a_small_disk);
}

/* ---- refusals before any work starts --------------------------------------------------------- */

static bool refuses(const char *path, const char *reason) {
    pi_error err = {0};
    if (file_writer_probe(path, &err) == PI_ERR_IO && strstr(err.message, reason)) return true;
    fprintf(stderr, "%s: expected \"%s\", was \"%s\"\n", path, reason, err.message);
    return false;
}

static void test_probe(void **state) {
    (void)state;
    char name[NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[NAME_MAX + 1] = 0;
    assert_true(refuses(name, "File name too long"));
    name[NAME_MAX] = 0; /* the longest possible name */
    assert_int_equal(file_writer_probe(name, NULL), PI_OK);
    assert_true(put(name, "x"));
    assert_true(holds(name, "x"));
    assert_int_equal(count_entries(), 1);
    assert_true(refuses("none/out", "No such file"));
    assert_true(refuses(".", "name a file in it"));
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(file_writer_probe("pipe", NULL), PI_OK); /* does not wait for a reader */
    assert_int_equal(file_writer_probe("/dev/null", NULL), PI_OK);
    assert_int_equal(count_entries(), 2);
}

static int on_a_read_only_disk(void) {
    NEEDS(own_mounts());
    HOLDS(mkdir("disk", 0700) == 0);
    NEEDS(mount("none", "disk", "tmpfs", 0, NULL) == 0);
    HOLDS(put("disk/old", "old"));
    NEEDS(mount("none", "disk", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    HOLDS(refuses("disk/old", "Read-only file system"));
    HOLDS(refuses("disk/new", "Read-only file system"));
    return CHILD_FINE;
}

static void test_read_only_disk(void **state) {
    (void)state;
    in_child(on_a_read_only_disk);
}

static void test_immutable(void **state) {
    (void)state;
    assert_true(put("kept", "old"));
    int fd = open("kept", O_RDONLY), flags = 0, set = FS_IMMUTABLE_FL;
    bool marked = ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && ioctl(fd, FS_IOC_SETFLAGS, &set) == 0;
    if (!marked) {
        close(fd);
        print_message("*** SKIPPED: files cannot be made immutable here ***\n");
        skip();
    }
    bool refused = refuses("kept", "Operation not permitted");
    int append = FS_APPEND_FL;
    bool marked_again = ioctl(fd, FS_IOC_SETFLAGS, &append) == 0;
    bool refused_again = refuses("kept", "Operation not permitted");
    ioctl(fd, FS_IOC_SETFLAGS, &flags);
    close(fd);
    assert_true(refused);
    assert_true(!marked_again || refused_again);
    assert_int_equal(file_writer_probe("kept", NULL), PI_OK);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_names),         IN_FOLDER(test_no_names),
        IN_FOLDER(test_killed_writer), IN_FOLDER(test_what_is_no_leftover),
        IN_FOLDER(test_streams),       IN_FOLDER(test_below_dev),
        IN_FOLDER(test_mounted_file),  IN_FOLDER(test_small_disk),
        IN_FOLDER(test_probe),         IN_FOLDER(test_read_only_disk),
        IN_FOLDER(test_immutable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
