/* torch_zip.c: reads the archive. The list of its files is at the end (PKWARE's APPNOTE 6.3,
 * sections 4.3 and 4.5.3 for archives of more than 4 GB). */
#include "torch_zip.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "torch_pickle.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    MAX_ENTRIES = 1 << 17
};

typedef struct zip_entry {
    pickle_text name;
    const uint8_t *data;
    size_t n_bytes;
} zip_entry;

typedef struct zip {
    const uint8_t *bytes;
    size_t n_bytes;
    const char *file;
    zip_entry *entries; /* [n_entries], ordered by name */
    size_t n_entries;
    pickle_text folder; /* "archive": prefix of data.pkl and data/N */
    pi_error *err;
} zip;

static pi_status bad_zip(const zip *z, const char *problem) {
    return error_set(z->err, PI_ERR_FORMAT, "%s: %s: download the file again", problem, z->file);
}

static uint64_t get(const uint8_t *at, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static bool is_signed(const zip *z, uint64_t at, uint64_t n, uint32_t signature) {
    return n <= z->n_bytes && at <= z->n_bytes - n && get(z->bytes + at, 4) == signature;
}

/* ---- the list of files ----------------------------------------------------------------------- */

/* Finds the list and its number of files. */
static pi_status find_list(zip *z, uint64_t *at, uint64_t *n) {
    size_t end = z->n_bytes >= END_BYTES ? z->n_bytes - END_BYTES : 0;
    size_t first = end > MAX_COMMENT ? end - MAX_COMMENT : 0;
    while (end > first && !is_signed(z, end, END_BYTES, 0x06054b50)) end--;
    if (!is_signed(z, end, END_BYTES, 0x06054b50))
        return error_set(z->err, PI_ERR_UNSUPPORTED,
                         "not a zip archive: %s: pytorch_model.bin of torch 1.6 or newer, or "
                         "safetensors, can be converted",
                         z->file);
    *n = get(z->bytes + end + 10, 2);
    *at = get(z->bytes + end + 16, 4);
    if (end < LOCATOR_BYTES || !is_signed(z, end - LOCATOR_BYTES, LOCATOR_BYTES, 0x07064b50))
        return PI_OK;
    uint64_t end64 = get(z->bytes + end - LOCATOR_BYTES + 8, 8);
    if (!is_signed(z, end64, END64_BYTES, 0x06064b50))
        return bad_zip(z, "the archive's end is damaged");
    *n = get(z->bytes + end64 + 32, 8);
    *at = get(z->bytes + end64 + 48, 8);
    return PI_OK;
}

/* Reads sizes and offset of 64 bits where the fields of 32 bits are saturated. */
static bool widen(const uint8_t *extra, size_t n, uint64_t *fields[3]) {
    while (n >= 4) {
        size_t n_field = (size_t)get(extra + 2, 2);
        bool is_wide = get(extra, 2) == 1;
        extra += 4;
        n -= 4;
        if (n_field > n) return false;
        for (int i = 0, used = 0; i < 3 && is_wide; i++) {
            if (*fields[i] != 0xFFFFFFFF) continue;
            if ((size_t)used + 8 > n_field) return false;
            *fields[i] = get(extra + used, 8);
            used += 8;
        }
        extra += n_field;
        n -= n_field;
    }
    return true;
}

static pi_status read_entry(zip *z, uint64_t *at, zip_entry *out) {
    if (!is_signed(z, *at, ENTRY_BYTES, 0x02014b50))
        return bad_zip(z, "the archive's list of files is damaged");
    const uint8_t *entry = z->bytes + *at;
    uint64_t method = get(entry + 10, 2), packed = get(entry + 20, 4), size = get(entry + 24, 4);
    uint64_t n_name = get(entry + 28, 2), n_extra = get(entry + 30, 2);
    uint64_t local = get(entry + 42, 4),
             n_all = ENTRY_BYTES + n_name + n_extra + get(entry + 32, 2);
    if (n_all > z->n_bytes - *at) return bad_zip(z, "the archive's list of files is truncated");
    uint64_t *fields[3] = {&size, &packed, &local};
    if (!widen(entry + ENTRY_BYTES + n_name, (size_t)n_extra, fields))
        return bad_zip(z, "the archive's list of files is damaged");
    *at += n_all;
    if (method != 0 || packed != size)
        return error_set(z->err, PI_ERR_UNSUPPORTED,
                         "compressed archive: %s: torch.save writes them uncompressed", z->file);
    if (!is_signed(z, local, LOCAL_BYTES, 0x04034b50))
        return bad_zip(z, "a file of the archive is not where its list says");
    uint64_t start = local + LOCAL_BYTES + get(z->bytes + local + 26, 2) +
                     get(z->bytes + local + 28, 2);
    if (start > z->n_bytes || size > z->n_bytes - start)
        return bad_zip(z, "a file of the archive is truncated");
    *out = (zip_entry){
        {(const char *)entry + ENTRY_BYTES, (size_t)n_name}, z->bytes + start, (size_t)size};
    return PI_OK;
}

static int compare_entries(const void *pa, const void *pb) {
    const pickle_text a = ((const zip_entry *)pa)->name, b = ((const zip_entry *)pb)->name;
    int order = memcmp(a.data, b.data, a.n < b.n ? a.n : b.n);
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static pi_status read_list(zip *z) {
    uint64_t at = 0, n = 0;
    pi_status status = find_list(z, &at, &n);
    if (status != PI_OK) return status;
    if (n == 0 || n > MAX_ENTRIES)
        return error_set(z->err, PI_ERR_LIMIT, "%llu files in the archive: %s: is it a model?",
                         (unsigned long long)n, z->file);
    z->entries = mem_calloc((size_t)n, sizeof *z->entries);
    if (!z->entries) return error_nomem(z->err, (size_t)n * sizeof *z->entries, "list of files");
    for (; z->n_entries < n && status == PI_OK; z->n_entries++)
        status = read_entry(z, &at, &z->entries[z->n_entries]);
    if (status == PI_OK) qsort(z->entries, z->n_entries, sizeof *z->entries, compare_entries);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

static const zip_entry *find_entry(const zip *z, pickle_text name) {
    zip_entry key = {.name = name};
    return bsearch(&key, z->entries, z->n_entries, sizeof *z->entries, compare_entries);
}

/* "archive/data/KEY" */
static const uint8_t *find_storage(void *user, pickle_text key, size_t *n_bytes) {
    static const char middle[] = "/data/";
    const zip *z = user;
    char name[512];
    size_t n = z->folder.n + sizeof middle - 1 + key.n;
    if (key.n > sizeof name || n > sizeof name) return NULL;
    memcpy(name, z->folder.data, z->folder.n);
    memcpy(name + z->folder.n, middle, sizeof middle - 1);
    memcpy(name + n - key.n, key.data, key.n);
    const zip_entry *entry = find_entry(z, (pickle_text){name, n});
    if (!entry) return NULL;
    *n_bytes = entry->n_bytes;
    return entry->data;
}

static const zip_entry *find_pickle(zip *z) {
    static const char ending[] = "/data.pkl";
    size_t n_ending = sizeof ending - 1;
    for (size_t i = 0; i < z->n_entries; i++) {
        pickle_text name = z->entries[i].name;
        if (name.n < n_ending || name.n - n_ending > 255 ||
            memcmp(name.data + name.n - n_ending, ending, n_ending) != 0)
            continue;
        z->folder = (pickle_text){name.data, name.n - n_ending};
        return &z->entries[i];
    }
    return NULL;
}

pi_status torch_zip_parse(const uint8_t *bytes, size_t n_bytes, const char *file, safetensor_fn fn,
                          void *user, pi_error *err) {
    zip z = {.bytes = bytes, .n_bytes = n_bytes, .file = file, .err = err};
    pi_status status = read_list(&z);
    const zip_entry *pickle = status == PI_OK ? find_pickle(&z) : NULL;
    torch_pickle_reader reader = {file, find_storage, fn, &z, user};
    if (status == PI_OK)
        status = pickle ? torch_pickle_parse(pickle->data, pickle->n_bytes, &reader, err)
                        : bad_zip(&z, "no data.pkl in the archive");
    mem_free(z.entries);
    return status;
}
