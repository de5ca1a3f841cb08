/* torch_archive.c: see torch_archive.h. The pickle is the one that torch 2 writes for an
 * OrderedDict of tensors, including memos and the table's _metadata. */
#include "torch_archive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void torch_raw(torch_archive *a, const char *bytes, size_t n_bytes) {
    assert_true(a->n_pickle + n_bytes <= sizeof a->pickle);
    memcpy(a->pickle + a->n_pickle, bytes, n_bytes);
    a->n_pickle += n_bytes;
}

#define RAW(a, bytes) torch_raw(a, bytes, sizeof(bytes) - 1)

static void add_number(torch_archive *a, int64_t number) {
    char bytes[5] = {'J'};
    for (int i = 0; i < 4; i++) bytes[1 + i] = (char)(number >> (8 * i));
    torch_raw(a, bytes, sizeof bytes);
}

static void add_text(torch_archive *a, const char *text) {
    char length[5] = {'X', (char)strlen(text)};
    torch_raw(a, length, sizeof length);
    torch_raw(a, text, strlen(text));
}

static void add_file(torch_archive *a, const char *name, const void *data, size_t n_bytes) {
    assert_true(a->n_files < TORCH_MAX_FILES && a->n_data + n_bytes <= sizeof a->data);
    snprintf(a->files[a->n_files].name, sizeof a->files[0].name, "model/%s", name);
    a->files[a->n_files].at = a->n_data;
    a->files[a->n_files++].n_bytes = n_bytes;
    memcpy(a->data + a->n_data, data, n_bytes);
    a->n_data += n_bytes;
}

void torch_begin(torch_archive *a) {
    memset(a, 0, sizeof *a);
    RAW(a, "\x80\x02"
           "ccollections\nOrderedDict\nq\x00)Rq\x01(");
}

void torch_item(torch_archive *a, const char *name, const char *storage, int64_t offset,
                int64_t rows, int64_t cols, int64_t stride0, const void *data, size_t n_bytes) {
    char text[64];
    add_text(a, name);
    RAW(a, "q\x02"
           "ctorch._utils\n_rebuild_tensor_v2\nq\x03((");
    add_text(a, "storage");
    snprintf(text, sizeof text, "ctorch\n%s\n", storage);
    torch_raw(a, text, strlen(text));
    snprintf(text, sizeof text, "%d", a->n_files);
    add_text(a, text);
    add_text(a, "cpu");
    add_number(a, 1 << 20);
    RAW(a, "tq\x08Q");
    add_number(a, offset);
    if (rows) add_number(a, rows);
    add_number(a, cols);
    torch_raw(a, rows ? "\x86" : "\x85", 1);
    if (rows) add_number(a, stride0);
    add_number(a, 1);
    torch_raw(a, rows ? "\x86" : "\x85", 1);
    RAW(a, "\x89"
           "ccollections\nOrderedDict\nq\x0b)Rq\x0ctq\x0dRq\x0e");
    snprintf(text, sizeof text, "data/%d", a->n_files);
    add_file(a, text, data, n_bytes);
}

void torch_end(torch_archive *a) {
    RAW(a, "u}q\x10X\x09\x00\x00\x00_metadataq\x11h\x00)Rq\x12(X\x00\x00\x00\x00q\x13}q\x14"
           "X\x07\x00\x00\x00versionq\x15K\x01susb.");
}

static void put(torch_archive *a, const char *fields, ...) {
    va_list args;
    va_start(args, fields);
    for (; *fields; fields++) {
        uint64_t value = va_arg(args, uint64_t);
        for (int i = 0; i < *fields - '0'; i++) {
            assert_true(a->n_out < sizeof a->out);
            a->out[a->n_out++] = (uint8_t)(value >> (8 * i));
        }
    }
    va_end(args);
}

#define U(x) ((uint64_t)(x))

static void put_bytes(torch_archive *a, const void *bytes, size_t n) {
    assert_true(a->n_out + n <= sizeof a->out);
    memcpy(a->out + a->n_out, bytes, n);
    a->n_out += n;
}

void torch_finish(torch_archive *a) {
    size_t local[TORCH_MAX_FILES];
    a->n_out = 0;
    add_file(a, "data.pkl", a->pickle, a->n_pickle);
    for (int i = 0; i < a->n_files; i++) {
        size_t n = a->files[i].n_bytes, n_name = strlen(a->files[i].name);
        local[i] = a->n_out;
        put(a, "42222244422", U(0x04034b50), U(20), U(0), U(a->method), U(0), U(0), U(0), U(n),
            U(n), U(n_name), U(5));
        put_bytes(a, a->files[i].name, n_name);
        put_bytes(a, "FB\x01\x00Z", 5); /* torch pads with such a field */
        put_bytes(a, a->data + a->files[i].at, n);
    }
    size_t list = a->n_out;
    for (int i = 0; i < a->n_files; i++) {
        size_t n = a->files[i].n_bytes, n_name = strlen(a->files[i].name);
        put(a, "42222224442222244", U(0x02014b50), U(20), U(20), U(0), U(a->method), U(0), U(0),
            U(0), U(n), U(n), U(n_name), U(0), U(0), U(0), U(0), U(0), U(local[i]));
        put_bytes(a, a->files[i].name, n_name);
    }
    size_t n_list = a->n_out - list;
    put(a, "42222442", U(0x06054b50), U(0), U(0), U(a->n_files), U(a->n_files), U(n_list), U(list),
        U(0));
}
