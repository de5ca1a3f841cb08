/* hostile_weights.c: NaN and infinity in every tensor, through every command that reads all
 * weights, and through the commands that check the weights only on request. The values replace the
 * floats of each type: elements of plain types, scales of quantized types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli_inside.h"
#include "cli_shell.h"
#include "gguf.h"
#include "hostile.h"
#include "shared_data.h"

enum { MAX_BAD_BYTES = 4, ROOM = 512 };

typedef struct bad_number {
    size_t n;
    uint8_t bytes[MAX_BAD_BYTES]; /* little-endian */
} bad_number;

enum { N_BAD = 3 }; /* NaN, infinity, minus infinity */

static const bad_number bad_float[N_BAD] = {
    {4, {0, 0, 0xc0, 0x7f}}, {4, {0, 0, 0x80, 0x7f}}, {4, {0, 0, 0x80, 0xff}}};
static const bad_number bad_bfloat[N_BAD] = {
    {2, {0xc0, 0x7f}}, {2, {0x80, 0x7f}}, {2, {0x80, 0xff}}};
static const bad_number bad_half[N_BAD] = {{2, {0, 0x7e}}, {2, {0, 0x7c}}, {2, {0, 0xfc}}};

/* Checks for one message that contains `part` and for no output file. */
static void check_refusal(const char *line, const cli_result *r, const char *part) {
    if (r->status != 1 || !cli_is_message(r->err) || !strstr(r->err, part))
        fail_msg("%s: status %d: expected \"...%s\", was: %s", line, r->status, part, r->err);
    if (shell_has("result") || shell_temporaries() != 0) fail_msg("%s: a file is left", line);
}

static const char *const refusing[] = {
    "prepare -q bad.gguf -o result --calibration text -t 1",
    "quantize -q bad.gguf result q8_0 1 --allow-requantize",
    "quantize -q bad.gguf result copy 1",
    "imatrix -q -m bad.gguf -f text -c 16 -o result -t 1",
    "eval -q -m bad.gguf --tokens ids --logits-out result -t 1 --check-tensors",
};

/* Commands that open models in the same way; these run with the first tensor only. */
static const char *const refusing_too[] = {
    "run -q -m bad.gguf -p a -n 1 --check-tensors -t 1",
    "perplexity -q -m bad.gguf -f text -c 16 --check-tensors -t 1",
    "bench -q -m bad.gguf -p 0 -n 1 -r 1 --check-tensors -t 1",
};

/* Commands that must end, whatever they find. */
static const char *const ending[] = {
    "run -q -m bad.gguf -p a -n 2 -t 1",
    "perplexity -q -m bad.gguf -f text -c 16 -t 1",
    "inspect bad.gguf -v",
};

#define N(array) (sizeof(array) / sizeof *(array))

static void refuse_all(const char *const *lines, size_t n, const char *end) {
    for (size_t i = 0; i < n; i++) {
        cli_result r = hostile_run(lines[i]);
        check_refusal(lines[i], &r, end);
        cli_result_free(&r);
    }
}

static const bad_number *bad_of(quant_type type) {
    if (type == QUANT_F32) return bad_float;
    return type == QUANT_BF16 ? bad_bfloat : bad_half;
}

/* Spoils the last row of each tensor of `path` in turn; `undo`: a prepared file. */
static void spoil_each(const char *path, bool undo) {
    size_t n_bytes;
    unsigned char *data = hostile_read(path, &n_bytes);
    gguf_file *f = NULL;
    assert_int_equal(gguf_open_memory(data, n_bytes, path, &f, NULL), PI_OK);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        const quant_traits *traits = quant_find((uint32_t)t->type);
        if (!traits->dequantize) continue; /* integers */
        uint64_t row = t->n_elems / t->dims[0] - 1;
        size_t at = (size_t)t->file_offset + (size_t)row * (t->n_bytes / (row + 1));
        for (int k = 0; k < N_BAD; k++) {
            const bad_number *bad = &bad_of(t->type)[k];
            unsigned char kept[MAX_BAD_BYTES];
            char end[ROOM];
            memcpy(kept, data + at, bad->n);
            memcpy(data + at, bad->bytes, bad->n);
            hostile_write("bad.gguf", data, n_bytes);
            memcpy(data + at, kept, bad->n);
            snprintf(end, sizeof end,
                     "not a finite number: bad.gguf: tensor %s, row %llu: get the file again\n",
                     t->name, (unsigned long long)row);
            if (strstr(t->name, "ffn_freq")) /* opening a model reads these */
                snprintf(end, sizeof end, ": bad.gguf: tensor %s", t->name);
            static const char *const undoing[] = {"prepare -q --undo bad.gguf -o result -t 1"};
            if (undo) refuse_all(undoing, 1, end);
            refuse_all(refusing, N(refusing), end);
            if (i == 0 && k == 0) refuse_all(refusing_too, N(refusing_too), end);
            for (size_t c = 0; k == 0 && c < N(ending); c++) {
                cli_result r = hostile_run(ending[c]);
                assert_true(r.status == 0 || (r.status == 1 && *r.err));
                cli_result_free(&r);
            }
        }
    }
    gguf_close(f);
    free(data);
}

void test_weights(void **state) {
    (void)state;
    hostile_enter_fresh_folder();
    spoil_each("model.gguf", false);
    cli_result r = hostile_run("quantize -q model.gguf small.gguf q8_0 1");
    assert_int_equal(r.status, 0);
    cli_result_free(&r);
    spoil_each("small.gguf", false);
    r = hostile_run("synth -q --layers 1 --rank 32 -o prepared.gguf -t 1");
    assert_int_equal(r.status, 0);
    cli_result_free(&r);
    spoil_each("prepared.gguf", true);
}

/* A row of bundles and places in it. A bad number at each place, one at a time, must make all
 * commands fail with a message that names tensor and row. */
typedef struct bundle_place {
    const char *synth, *tensor; /* synth: the command that writes the file */
    size_t stride, row;
    size_t at[3];
} bundle_place;

static void refuse_in_bundle(const bundle_place *b, const char *const *lines, size_t n_lines) {
    char message[160];
    hostile_enter_fresh_folder();
    cli_result r = hostile_run(b->synth);
    assert_int_equal(r.status, 0);
    cli_result_free(&r);
    size_t n_bytes;
    unsigned char *data = hostile_read("bundled.gguf", &n_bytes);
    gguf_file *f = NULL;
    assert_int_equal(gguf_open_memory(data, n_bytes, "bundled.gguf", &f, NULL), PI_OK);
    const gguf_tensor *t = gguf_find_tensor(f, b->tensor);
    assert_int_equal(t->dims[0], b->stride);
    snprintf(message, sizeof message,
             "not a finite number: bad.gguf: tensor %s, row %zu: get the file again\n", b->tensor,
             b->row);
    for (size_t i = 0; i < N(b->at); i++) {
        const bad_number *bad = &bad_half[i];
        unsigned char kept[MAX_BAD_BYTES];
        unsigned char *p = data + t->file_offset + b->row * b->stride + b->at[i];
        memcpy(kept, p, bad->n);
        memcpy(p, bad->bytes, bad->n);
        hostile_write("bad.gguf", data, n_bytes);
        memcpy(p, kept, bad->n);
        refuse_all(lines, n_lines, message);
    }
    gguf_close(f);
    free(data);
}

/* Spoils each row of a neuron's bundle. */
void test_bundled_weights(void **state) {
    (void)state;
    static const char *const lines[] = {
        "prepare -q bad.gguf -o result --calibration text -t 1",
        "prepare -q bad.gguf -o result --bundle none -t 1",
        "prepare -q --undo bad.gguf -o result -t 1",
        "imatrix -q -m bad.gguf -f text -c 16 -o result -t 1",
        "eval -q -m bad.gguf --tokens ids --logits-out result -t 1 --check-tensors",
    };
    /* rows of 144 bytes at multiples of 32 */
    static const bundle_place neurons = {
        .synth = "synth -q --layers 1 --rank 32 --bundle -o bundled.gguf -t 1",
        .tensor = "blk.0.ffn_bundle.weight",
        .stride = 512,
        .row = 767,
        .at = {0, 160, 320}};
    refuse_in_bundle(&neurons, lines, N(lines));
}

/* Spoils each matrix of an expert's bundle. */
void test_bundled_experts(void **state) {
    (void)state;
    static const char *const lines[] = {
        "prepare -q bad.gguf -o result --bundle none -t 1",
        "prepare -q --undo bad.gguf -o result -t 1",
        "eval -q -m bad.gguf --tokens ids --logits-out result -t 1 --check-tensors",
    };
    enum { BLOCK = 18 };
    static const bundle_place experts = {
        .synth = "synth -q --shape tiny-moe --layers 1 --bundle -o bundled.gguf -t 1",
        .tensor = "blk.0.ffn_bundle_exps.weight",
        .stride = 57344,
        .row = 13,
        .at = {0, 18432 + 100 * BLOCK, 36864 + 18432 - BLOCK}};
    refuse_in_bundle(&experts, lines, N(lines));
}

/* Spoils each tensor of a Hugging Face folder. */
void test_folder_weights(void **state) {
    (void)state;
#ifdef TEST_HAS_JSON
    static const char key[] = "\"data_offsets\":[";
    hostile_enter_fresh_folder();
    size_t n_bytes, n_tensors = 0;
    uint64_t n_header = 0;
    unsigned char *data = hostile_read("hf/model.safetensors", &n_bytes);
    memcpy(&n_header, data, sizeof n_header);
    char *header = strndup((char *)data + 8, n_header);
    assert_non_null(header);
    for (char *at = header; (at = strstr(at, key)); n_tensors++) {
        at += strlen(key);
        size_t place = 8 + (size_t)n_header + strtoul(at, NULL, 10);
        const char *type = at; /* the type precedes the offsets */
        while (strncmp(type, "\"dtype\":\"", 9) != 0) type--;
        const bad_number *bad = strncmp(type + 9, "F32", 3) == 0    ? bad_float
                                : strncmp(type + 9, "BF16", 4) == 0 ? bad_bfloat
                                                                    : bad_half;
        for (int k = 0; k < N_BAD; k++) {
            static const char *const lines[] = {"convert -q hf -o result --type f16 -t 1",
                                                "convert -q hf -o result --type q8_0 -t 1"};
            unsigned char kept[MAX_BAD_BYTES];
            memcpy(kept, data + place, bad[k].n);
            memcpy(data + place, bad[k].bytes, bad[k].n);
            hostile_write("hf/model.safetensors", data, n_bytes);
            memcpy(data + place, kept, bad[k].n);
            refuse_all(lines, N(lines), ", row 0: download the file again\n");
        }
    }
    assert_true(n_tensors > 10);
    free(header);
    free(data);
#else
    print_message("*** SKIPPED: built without jansson ***\n");
    skip();
#endif
}

/* The file that exposed the missing check: ffn_down has a NaN, and prepare must refuse it with
 * every predictor. */
void test_found_weights(void **state) {
    (void)state;
    char path[ROOM], line[2 * ROOM];
    if (!shared_path(path, sizeof path, "findings/F1-nan-ffn_down.gguf")) skip();
    hostile_enter_fresh_folder();
    static const char *const predictors[] = {"sign", "lowrank", "relu_mlp", "auto", "none"};
    for (size_t i = 0; i < N(predictors); i++) {
        snprintf(line, sizeof line,
                 "prepare -q %s -o result --calibration text -t 2 --predictor %s", path,
                 predictors[i]);
        cli_result r = hostile_run(line);
        check_refusal(line, &r, "tensor blk.1.ffn_down.weight, row 0: get the file again\n");
        cli_result_free(&r);
    }
}
