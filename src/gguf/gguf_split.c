/* gguf_split.c: models in several files: file names and split.* keys.
 *
 * Part k of n (from 1) is called PREFIX-0000k-of-0000n.gguf and contains split.no (from 0),
 * split.count and split.tensors.count (of all parts together). The first part has all other keys.
 * The keys decide whether a file is split, not its name; the name must then agree with the keys,
 * because it is the only way to find the other parts. */
#include <stdio.h>

#include "gguf_impl.h"

enum {
    SUFFIX_BYTES = 20, /* "-00001-of-00003.gguf" */
    DIGITS = 5
};

static bool parse_digits(const char *s, int *out) {
    int value = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        value = value * 10 + (s[i] - '0');
    }
    *out = value;
    return true;
}

/* Parses "PREFIX-00002-of-00003.gguf": number from 1, count, bytes of PREFIX. */
static bool parse_name(const char *path, int *number, int *count, size_t *n_prefix) {
    size_t n = strlen(path);
    if (n < SUFFIX_BYTES) return false;
    const char *s = path + n - SUFFIX_BYTES;
    if (s[0] != '-' || memcmp(s + 6, "-of-", 4) != 0 || strcmp(s + 15, ".gguf") != 0) return false;
    if (!parse_digits(s + 1, number) || !parse_digits(s + 10, count)) return false;
    *n_prefix = n - SUFFIX_BYTES;
    return true;
}

static pi_status read_key(const gguf_part *p, const char *key, uint64_t max, uint64_t *out,
                          pi_error *err) {
    const gguf_value *v = gguf_part_find(p, key);
    if (!v) {
        return error_set(err, PI_ERR_FORMAT,
                         "a split file without %s: %.200s: split the model again", key, p->path);
    }
    if (!gguf_as_u64(v, out) || *out > max) {
        return error_set(
            err, PI_ERR_FORMAT,
            "%s is not a number from 0 to %llu: %.200s, byte %zu: split the model again", key,
            (unsigned long long)max, p->path, (size_t)(v->data - p->data));
    }
    return PI_OK;
}

pi_status gguf_split_read(const gguf_part *p, gguf_split *split, pi_error *err) {
    *split = (gguf_split){.count = 1};
    if (!gguf_part_find(p, "split.count")) return PI_OK;
    uint64_t count = 0, no = 0;
    pi_status status = read_key(p, "split.count", GGUF_MAX_PARTS, &count, err);
    if (status) return status;
    if (count <= 1) return PI_OK;
    status = read_key(p, "split.no", count - 1, &no, err);
    if (!status) {
        status = read_key(p, "split.tensors.count", GGUF_MAX_TENSORS, &split->n_tensors, err);
    }
    if (status) return status;
    int number, of;
    if (!parse_name(p->path, &number, &of, &split->n_prefix) || number != (int)no + 1 ||
        of != (int)count) {
        return error_set(err, PI_ERR_FORMAT,
                         "part %d of a model split in %d has another name: %.200s: "
                         "call it NAME-%05d-of-%05d.gguf and keep all parts in one folder",
                         (int)no + 1, (int)count, p->path, (int)no + 1, (int)count);
    }
    split->no = (int)no;
    split->count = (int)count;
    return PI_OK;
}

char *gguf_split_path(const char *path, const gguf_split *split, int no) {
    size_t n = strlen(path) + 1;
    char *s = mem_alloc(n);
    if (!s) return NULL;
    memcpy(s, path, split->n_prefix);
    snprintf(s + split->n_prefix, n - split->n_prefix, "-%05d-of-%05d.gguf", no + 1, split->count);
    return s;
}
