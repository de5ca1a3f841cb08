/* test_gpu_cache.c: the file of the Vulkan backend's pipeline cache: it is written once, a damaged
 * file is replaced, and a folder that cannot be written to does no harm. Every use is a process:
 * within a process a device keeps its pipelines. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"
#include "gpu.h"
#include "mem.h"
#include "sha256.h"

enum { PATH_BYTES = 1024, NO_DEVICE = 77, MOST_BYTES = 256 << 20 };

static char parent[PATH_BYTES], folder[PATH_BYTES]; /* the backend creates both */

/* Opens the device, runs an operation and closes it. */
static int use_device(const char *cache_folder) {
    const gpu_open_options options = {.cache_folder = cache_folder};
    gpu_library library;
    gpu_device *device;
    gpu_stream *stream;
    pi_error err;
    int n;
    if (gpu_library_open("vulkan", NULL, &library, &err) != PI_OK ||
        library.backend->count(&n, &err) != PI_OK)
        return NO_DEVICE;
    const gpu_backend *b = library.backend;
    void *x, *q8;
    if (b->open(0, gpu_host_default(), &options, &device, &err) != PI_OK ||
        b->stream_create(device, &stream, &err) != PI_OK ||
        b->alloc(device, 32 * sizeof(float), "x", &x, &err) != PI_OK ||
        b->alloc(device, gpu_q8_bytes(32), "q8", &q8, &err) != PI_OK)
        return 1;
    const gpu_quantize q = {.x = x, .ldx = 32, .n = 32, .n_cols = 1, .q8 = q8};
    b->fill(stream, x, 0, 32 * sizeof(float));
    b->ops.quantize(stream, &q);
    const pi_status status = b->stream_sync(stream, &err);
    b->free(device, x);
    b->free(device, q8);
    b->stream_destroy(stream);
    b->close(device);
    return status != PI_OK;
}

/* Calls use_device in another process; false: there is no device. */
static bool use(const char *cache_folder) {
    int status;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(use_device(cache_folder));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_DEVICE) return false;
    assert_int_equal(WEXITSTATUS(status), 0);
    return true;
}

/* The only file in the folder. */
static void find_file(char path[PATH_BYTES]) {
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        assert_true(file_join(path, PATH_BYTES, folder, e->d_name));
        n++;
    }
    closedir(d);
    assert_int_equal(n, 1);
}

/* Checks the digest and the header of the driver's data. */
static void check_file(const char *path, char **data, size_t *n_bytes) {
    char hex[SHA256_HEX + 1];
    uint32_t header[2];
    assert_int_equal(file_read(path, MOST_BYTES, data, n_bytes, NULL), PI_OK);
    assert_true(*n_bytes >= SHA256_HEX + 32);
    sha256_hex(*data + SHA256_HEX, *n_bytes - SHA256_HEX, hex);
    assert_memory_equal(*data, hex, SHA256_HEX);
    memcpy(header, *data + SHA256_HEX, sizeof header);
    assert_int_equal(header[0], 32); /* VkPipelineCacheHeaderVersionOne */
    assert_int_equal(header[1], 1);
}

static void write_bytes(const char *path, const char *data, size_t n_bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

static void test_file(void **state) {
    (void)state;
    char path[PATH_BYTES], again[PATH_BYTES], *data, *other;
    size_t n_bytes, n_other;
    struct stat first, second;
    if (!use(NULL)) skip();
    assert_int_equal(access(folder, F_OK), -1); /* without the option there is no file */
    use(folder);
    find_file(path);
    check_file(path, &data, &n_bytes);
    assert_int_equal(stat(path, &first), 0);
    use(folder);
    assert_int_equal(stat(path, &second), 0);
    assert_true(first.st_ino == second.st_ino); /* nothing new, so it is not written again */
    const size_t cuts[] = {0, SHA256_HEX / 2, SHA256_HEX, n_bytes - 1, n_bytes};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        data[n_bytes - 1] ^= 1; /* the last file is complete, but its content is wrong */
        write_bytes(path, data, cuts[i]);
        data[n_bytes - 1] ^= 1;
        use(folder);
        find_file(again);
        assert_string_equal(again, path);
        check_file(path, &other, &n_other);
        assert_int_equal(n_other, n_bytes);
        mem_free(other);
    }
    mem_free(data);
    unlink(path);
    rmdir(folder);
    write_bytes(folder, "a file", 6); /* in place of the folder */
    use(folder);
    assert_int_equal(stat(folder, &first), 0);
    assert_int_equal(first.st_size, 6);
    unlink(folder);
    rmdir(parent);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_file),
};

int main(void) {
    snprintf(parent, sizeof parent, "%s/test_gpu_cache_%d", TEST_BINARY_DIR, (int)getpid());
    if (!file_join(folder, sizeof folder, parent, "new")) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
