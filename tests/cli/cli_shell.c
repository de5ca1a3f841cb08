/* cli_shell.c: runs sh(1) for tests. All tests of a program share one folder, so they must run one
 * after the other, as cmocka runs them. */
#include "cli_shell.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli_test_model.h"
#include "mem.h"
#include "os_text.h"

enum { NAME_ROOM = 512, LINE_ROOM = 4096 };

static char folder[NAME_ROOM];
static char *last_read;

#if defined(_WIN32)
/* The program under wine, from the host's shell. */
static const char program[] = TEST_SOURCE_DIR "/scripts/wine.sh " TEST_BINARY_DIR "/powerinfer.exe";
#else
static const char program[] = TEST_BINARY_DIR "/powerinfer";
#endif

static int run_line(const char *line) {
    int status = system(line);
    if (status == -1) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int remove_folder(void) {
    char line[NAME_ROOM + 32];
    if (chdir(TEST_BINARY_DIR) != 0) return -1;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

static void remove_own_variables(void) {
    char *const *variables = os_environment();
    for (int i = 0; variables[i];) {
        char name[NAME_ROOM];
        size_t length = strcspn(variables[i], "=");
        bool own = strncmp(variables[i], "POWERINFER_", 11) == 0 ||
                   strncmp(variables[i], "LLAMA_", 6) == 0;
        if (!own || length >= sizeof name) {
            i++;
            continue;
        }
        memcpy(name, variables[i], length);
        name[length] = 0;
        unsetenv(name); /* moves later entries up */
    }
}

int shell_setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/cli_test_XXXXXX", TEST_BINARY_DIR);
    if (!mkdtemp(folder) || chdir(folder) != 0) return -1;
    remove_own_variables();
    char path[NAME_ROOM + 32];
    setenv("PI", program, 1);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    setenv("M", path, 1);
    setenv("POWERINFER_DEVICE", "cpu", 1); /* no warnings about this machine's GPU */
    return test_model_write(path) ? 0 : -1;
}

int shell_teardown(void **state) {
    (void)state;
    mem_free(last_read);
    last_read = NULL;
    return remove_folder();
}

int sh(const char *line) {
    char whole[LINE_ROOM];
    int n = snprintf(whole, sizeof whole, "{ %s\n} </dev/null >out 2>err", line);
    assert_true(n > 0 && (size_t)n < sizeof whole);
    int status = run_line(whole);
    assert_int_not_equal(status, -1);
    return status;
}

const char *shell_read(const char *name, size_t *n_bytes) {
    FILE *file = fopen(name, "rb");
    if (!file) fail_msg("%s is not there", name);
    size_t used = 0, capacity = 0;
    mem_free(last_read);
    last_read = NULL;
    do {
        assert_true(
            mem_grow((void **)&last_read, &capacity, used + LINE_ROOM + 1, 1, SIZE_MAX / 2));
        used += fread(last_read + used, 1, LINE_ROOM, file);
    } while (!feof(file) && !ferror(file));
    fclose(file);
    last_read[used] = 0;
    if (n_bytes) *n_bytes = used;
    return last_read;
}

int shell_has(const char *name) {
    return access(name, F_OK) == 0;
}

int shell_temporaries(void) {
    DIR *dir = opendir(".");
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        size_t length = strlen(e->d_name);
        n += length > 4 && strcmp(e->d_name + length - 4, ".tmp") == 0;
    }
    closedir(dir);
    return n;
}

void shell_write(const char *name, const void *data, size_t n_bytes) {
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

void assert_contains(const char *name, const char *text) {
    const char *all = shell_read(name, NULL);
    if (!strstr(all, text)) fail_msg("no \"%s\" in: %s", text, all);
}

void assert_wrong(const char *line, const char *message) {
    assert_int_equal(sh(line), 2);
    assert_err(message);
    assert_out("");
    assert_int_equal(shell_temporaries(), 0);
}
