/* safetensors.c: header of a shard: u64 length, JSON {"name": {"dtype", "shape", "data_offsets"}};
 * then the data. Names and paths are in the arena, data in the mappings, one mapping per shard. */
#include "safetensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affix.h"
#include "arena.h"
#include "file.h"
#include "json.h"
#include "mem.h"
#include "text_table.h"
#include "torch_zip.h"

enum { LENGTH_BYTES = 8, PATH_BYTES = 4096, PREFIX_BYTES = 32 };

struct safetensors {
    arena names;
    file_map *maps; /* [n_maps] */
    size_t n_maps, maps_capacity;
    safetensor *items; /* [n_items], ordered by name after opening */
    size_t n_items, items_capacity;
    const char *prefix; /* prefix of names in the current file */
};

static pi_status bad_file(pi_error *err, const char *file, const char *problem) {
    return error_set(err, PI_ERR_FORMAT, "%s: %s: download the file again", problem, file);
}

static pi_status bad_tensor(pi_error *err, const char *file, const char *name,
                            const char *problem) {
    return error_set(err, PI_ERR_FORMAT, "%s: %s: tensor %.100s: download the file again", problem,
                     file, name);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static bool parse_dtype(const json_node *node, safetensors_dtype *out) {
    const char *text;
    size_t n;
    if (!json_as_string(node, &text, &n)) return false;
    for (int i = 0; i < SAFETENSORS_DTYPE_COUNT; i++) {
        if (strcmp(safetensors_dtype_name((safetensors_dtype)i), text) != 0) continue;
        *out = (safetensors_dtype)i;
        return true;
    }
    return false;
}

static pi_status parse_shape(const json_node *shape, safetensor *t, size_t *n_bytes,
                             pi_error *err) {
    if (json_kind_of(shape) != JSON_ARRAY)
        return bad_tensor(err, t->file, t->name, "shape is not an array");
    size_t n_dims = json_count(shape);
    if (n_dims > SAFETENSORS_MAX_DIMS)
        return bad_tensor(err, t->file, t->name, "shape has more than 8 dimensions");
    t->n_dims = (int)n_dims;
    size_t total = safetensors_dtype_bytes(t->dtype);
    for (size_t i = 0; i < n_dims; i++) {
        int64_t dim;
        if (!json_as_int(json_at(shape, i), &dim) || dim < 0)
            return bad_tensor(err, t->file, t->name, "shape has an item that is not a size");
        t->dims[i] = (uint64_t)dim;
        if (!size_mul(total, (size_t)dim, &total))
            return bad_tensor(err, t->file, t->name, "shape overflows");
    }
    *n_bytes = total;
    return PI_OK;
}

static pi_status parse_tensor(const json_node *node, const uint8_t *data, size_t n_data,
                              safetensor *t, pi_error *err) {
    if (json_kind_of(node) != JSON_OBJECT)
        return bad_tensor(err, t->file, t->name, "header entry is not an object");
    const json_node *dtype = json_get(node, "dtype");
    if (!parse_dtype(dtype, &t->dtype)) {
        const char *text = "(none)";
        size_t n;
        json_as_string(dtype, &text, &n);
        return error_set(err, PI_ERR_UNSUPPORTED,
                         "unknown data type '%.20s': %s: tensor %.100s: F32, F16 and BF16 can be "
                         "converted",
                         text, t->file, t->name);
    }
    size_t n_bytes = 0;
    pi_status status = parse_shape(json_get(node, "shape"), t, &n_bytes, err);
    if (status != PI_OK) return status;
    const json_node *offsets = json_get(node, "data_offsets");
    int64_t begin, end;
    if (json_count(offsets) != 2 || !json_as_int(json_at(offsets, 0), &begin) ||
        !json_as_int(json_at(offsets, 1), &end) || begin < 0 || end < begin)
        return bad_tensor(err, t->file, t->name, "data_offsets are not a range");
    if ((uint64_t)end > n_data)
        return error_set(err, PI_ERR_FORMAT,
                         "truncated file: %s: tensor %.100s ends at byte %lld of %zu: download the "
                         "file again",
                         t->file, t->name, (long long)end, n_data);
    if ((uint64_t)(end - begin) != n_bytes)
        return error_set(err, PI_ERR_FORMAT,
                         "size and shape disagree: %s: tensor %.100s has %lld bytes, its shape "
                         "needs %zu: download the file again",
                         t->file, t->name, (long long)(end - begin), n_bytes);
    t->data = data + begin;
    t->n_bytes = n_bytes;
    return PI_OK;
}

/* ---- one shard ------------------------------------------------------------------------------- */

static int compare_data(const void *a, const void *b) {
    const safetensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* The format forbids holes, overlaps, and bytes after the data. */
static pi_status check_cover(safetensor *items, size_t n_items, const uint8_t *data, size_t n_data,
                             const char *file, pi_error *err) {
    if (n_items > 0) qsort(items, n_items, sizeof *items, compare_data);
    const uint8_t *next = data;
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].data < next)
            return bad_tensor(err, file, items[i].name, "data overlaps another tensor's");
        if (items[i].data > next)
            return bad_tensor(err, file, items[i].name, "unused bytes before the data");
        next += items[i].n_bytes;
    }
    if (next != data + n_data)
        return error_set(err, PI_ERR_FORMAT,
                         "%zu bytes after the last tensor: %s: download the file again",
                         (size_t)(data + n_data - next), file);
    return PI_OK;
}

/* Appends an item for a tensor of this name. */
static pi_status add_item(safetensors *s, const char *file, const char *name, size_t n_name,
                          pi_error *err) {
    if (n_name == 0 || n_name > SAFETENSORS_MAX_NAME)
        return bad_file(err, file, "a tensor name is empty or longer than 512 bytes");
    if (s->n_items >= SAFETENSORS_MAX_TENSORS)
        return error_set(err, PI_ERR_LIMIT, "more than %d tensors: %s: is it a model?",
                         SAFETENSORS_MAX_TENSORS, file);
    if (!mem_grow((void **)&s->items, &s->items_capacity, s->n_items + 1, sizeof *s->items,
                  SAFETENSORS_MAX_TENSORS))
        return error_nomem(err, sizeof *s->items * (s->n_items + 1), "list of tensors");
    safetensor *t = &s->items[s->n_items];
    char whole[SAFETENSORS_MAX_NAME + PREFIX_BYTES];
    int n = snprintf(whole, sizeof whole, "%s%.*s", s->prefix, (int)n_name, name);
    *t = (safetensor){.file = file, .name = arena_strndup(&s->names, whole, (size_t)n)};
    return t->name ? PI_OK : error_nomem(err, n_name, "tensor name");
}

static pi_status parse_entries(safetensors *s, const json_node *root, const uint8_t *data,
                               size_t n_data, const char *file, pi_error *err) {
    size_t first = s->n_items;
    void *iter = NULL;
    const char *name;
    const json_node *value;
    while (json_next(root, &iter, &name, &value)) {
        if (strcmp(name, "__metadata__") == 0) continue;
        pi_status status = add_item(s, file, name, strlen(name), err);
        if (status == PI_OK) status = parse_tensor(value, data, n_data, &s->items[s->n_items], err);
        if (status != PI_OK) return status;
        s->n_items++;
    }
    if (s->n_items == first) return bad_file(err, file, "no tensors");
    return check_cover(s->items + first, s->n_items - first, data, n_data, file, err);
}

static pi_status parse_shard(safetensors *s, const uint8_t *bytes, size_t n_bytes, const char *file,
                             pi_error *err) {
    if (n_bytes < LENGTH_BYTES) return bad_file(err, file, "shorter than its 8-byte length field");
    uint64_t n_header = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) n_header |= (uint64_t)bytes[i] << (8 * i);
    if (n_header > SAFETENSORS_MAX_HEADER || n_header > n_bytes - LENGTH_BYTES)
        return error_set(err, PI_ERR_FORMAT,
                         "header length %llu is beyond the file or the limit of %d: %s: is it a "
                         "safetensors file?",
                         (unsigned long long)n_header, SAFETENSORS_MAX_HEADER, file);
    const char *header = (const char *)bytes + LENGTH_BYTES;
    if (n_header == 0 || header[0] != '{')
        return bad_file(err, file, "header is not a JSON object");
    json_doc *doc = NULL;
    pi_status status = json_parse(header, (size_t)n_header, file, &doc, err);
    if (status != PI_OK) return status;
    if (json_kind_of(json_root(doc)) != JSON_OBJECT) {
        status = bad_file(err, file, "header is not a JSON object");
    } else {
        status = parse_entries(s, json_root(doc), bytes + LENGTH_BYTES + n_header,
                               n_bytes - LENGTH_BYTES - (size_t)n_header, file, err);
    }
    json_free(doc);
    return status;
}

/* Adds one tensor of a file of torch.save. */
static pi_status add_torch_tensor(void *user, const safetensor *t, size_t n_name, pi_error *err) {
    safetensors *s = user;
    pi_status status = add_item(s, t->file, t->name, n_name, err);
    if (status != PI_OK) return status;
    safetensor *item = &s->items[s->n_items++];
    const char *name = item->name;
    *item = *t;
    item->name = name;
    return PI_OK;
}

static pi_status open_shard(safetensors *s, const char *path, pi_error *err) {
    const char *file = arena_strndup(&s->names, path, strlen(path));
    if (!file) return error_nomem(err, strlen(path), "file name");
    if (!mem_grow((void **)&s->maps, &s->maps_capacity, s->n_maps + 1, sizeof *s->maps,
                  SAFETENSORS_MAX_SHARDS))
        return error_nomem(err, sizeof *s->maps * (s->n_maps + 1), "list of files");
    file_map *map = &s->maps[s->n_maps];
    *map = (file_map){0};
    pi_status status = file_map_open(map, path, false, err);
    if (status != PI_OK) return status;
    s->n_maps++;
    return ends_with(file, ".bin") || ends_with(file, ".pt")
               ? torch_zip_parse(map->data, map->size, file, add_torch_tensor, s, err)
               : parse_shard(s, map->data, map->size, file, err);
}

/* ---- the index of a model in several shards -------------------------------------------------- */

/* The name comes from a file: the path must stay inside the folder. */
static bool shard_name_is_safe(const char *name, const char *ending) {
    return strlen(name) < 256 && name[0] != '.' && !strpbrk(name, "/\\") && ends_with(name, ending);
}

/* Opens the file that the index names for a tensor, unless `seen` has it. */
static pi_status open_named(safetensors *s, text_table *seen, const char *dir, const char *index,
                            const char *tensor, const json_node *file, pi_error *err) {
    const char *shard;
    size_t n_shard, before = seen->count;
    char path[PATH_BYTES];
    const char *ending = ends_with(index, ".bin.index.json") ? ".bin" : ".safetensors";
    if (!json_as_string(file, &shard, &n_shard) || !shard_name_is_safe(shard, ending))
        return error_set(err, PI_ERR_FORMAT,
                         "bad file name: %s: tensor %.100s must be in a %s file of the same folder",
                         index, tensor, ending);
    if (text_table_add(seen, shard, n_shard) == TEXT_TABLE_NONE)
        return error_nomem(err, n_shard, "file name");
    if (seen->count == before) return PI_OK;
    if (!file_join(path, sizeof path, dir, shard))
        return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
    if (s->n_maps >= SAFETENSORS_MAX_SHARDS)
        return error_set(err, PI_ERR_LIMIT, "more than %d files: %s: is it a model?",
                         SAFETENSORS_MAX_SHARDS, index);
    if (!file_exists(path))
        return error_set(err, PI_ERR_NOT_FOUND, "missing file: %s: named by %s: download it too",
                         path, file_name(index));
    return open_shard(s, path, err);
}

static pi_status open_listed(safetensors *s, const json_node *map, const char *dir,
                             const char *index, pi_error *err) {
    text_table seen; /* names of files */
    pi_status status = text_table_init(&seen, 0) ? PI_OK
                                                 : error_nomem(err, sizeof seen, "list of files");
    void *iter = NULL;
    const char *name;
    const json_node *value;
    while (status == PI_OK && json_next(map, &iter, &name, &value))
        status = open_named(s, &seen, dir, index, name, value, err);
    text_table_free(&seen);
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const safetensor *)a)->name, ((const safetensor *)b)->name);
}

static pi_status sort_names(safetensors *s, pi_error *err) {
    if (s->n_items == 0) return PI_OK;
    qsort(s->items, s->n_items, sizeof *s->items, compare_names);
    for (size_t i = 1; i < s->n_items; i++)
        if (strcmp(s->items[i - 1].name, s->items[i].name) == 0)
            return bad_tensor(err, s->items[i].file, s->items[i].name, "name occurs twice");
    return PI_OK;
}

/* Every tensor of the index must be in the file that the index names. */
static pi_status check_index(const safetensors *s, const json_node *map, const char *index,
                             pi_error *err) {
    void *iter = NULL;
    const char *name;
    const json_node *value;
    while (json_next(map, &iter, &name, &value)) {
        const char *shard = "";
        size_t n_shard = 0;
        json_as_string(value, &shard, &n_shard);
        size_t at = safetensors_find(s, name);
        if (at == SIZE_MAX || strcmp(file_name(s->items[at].file), shard) != 0)
            return error_set(err, PI_ERR_FORMAT,
                             "missing tensor: %s: %.100s is not in %.100s as the index says: "
                             "download the files again",
                             index, name, shard);
    }
    return PI_OK;
}

static pi_status open_index(safetensors *s, const char *dir, const char *index, pi_error *err) {
    json_doc *doc = NULL;
    pi_status status = json_parse_file(index, &doc, err);
    if (status != PI_OK) return status;
    const json_node *map = json_get(json_root(doc), "weight_map");
    if (json_kind_of(map) != JSON_OBJECT || json_count(map) == 0)
        status = error_set(err, PI_ERR_FORMAT, "no weight_map: %s: download the file again", index);
    if (status == PI_OK) status = open_listed(s, map, dir, index, err);
    if (status == PI_OK) status = sort_names(s, err);
    if (status == PI_OK) status = check_index(s, map, index, err);
    json_free(doc);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static safetensors *new_safetensors(pi_error *err) {
    safetensors *s = mem_calloc(1, sizeof *s);
    if (s) {
        arena_init(&s->names);
        s->prefix = "";
    } else {
        error_nomem(err, sizeof *s, "safetensors reader");
    }
    return s;
}

/* Opens the first existing file of a model or an adapter: a single file, or an index of several. */
static pi_status open_folder(safetensors *s, const char *dir, pi_error *err) {
    static const char *const adapters[] = {"adapter_model.safetensors", "adapter_model.bin"};
    static const char *const names[] = {"model.safetensors", "pytorch_model.bin"};
    static const char *const lists[] = {"model.safetensors.index.json",
                                        "pytorch_model.bin.index.json"};
    char single[PATH_BYTES], index[PATH_BYTES];
    for (size_t i = 0; i < 2; i++) {
        if (!file_join(single, sizeof single, dir, names[i]) ||
            !file_join(index, sizeof index, dir, lists[i]))
            return error_set(err, PI_ERR_LIMIT, "path too long: %.200s: use a shorter one", dir);
        if (file_exists(single)) {
            pi_status status = open_shard(s, single, err);
            return status == PI_OK ? sort_names(s, err) : status;
        }
        if (file_exists(index)) return open_index(s, dir, index, err);
    }
    for (size_t i = 0; i < 2; i++) {
        if (!file_join(single, sizeof single, dir, adapters[i]) || !file_exists(single)) continue;
        pi_status status = open_shard(s, single, err);
        return status == PI_OK ? sort_names(s, err) : status;
    }
    return error_set(err, PI_ERR_NOT_FOUND,
                     "no weights: %s: expected model.safetensors or pytorch_model.bin, or the "
                     ".index.json of one with its files",
                     dir);
}

pi_status safetensors_open(const char *dir, safetensors **out, pi_error *err) {
    assert(dir && out);
    safetensors *s = new_safetensors(err);
    if (!s) return PI_ERR_NOMEM;
    pi_status status = open_folder(s, dir, err);
    if (status != PI_OK) {
        safetensors_close(s);
        return status;
    }
    *out = s;
    return PI_OK;
}

pi_status safetensors_open_memory(const void *data, size_t n_bytes, const char *name,
                                  safetensors **out, pi_error *err) {
    assert(data && name && out);
    safetensors *s = new_safetensors(err);
    if (!s) return PI_ERR_NOMEM;
    const char *file = arena_strndup(&s->names, name, strlen(name));
    pi_status status = file ? parse_shard(s, data, n_bytes, file, err)
                            : error_nomem(err, strlen(name), "file name");
    if (status == PI_OK) status = sort_names(s, err);
    if (status != PI_OK) {
        safetensors_close(s);
        return status;
    }
    *out = s;
    return PI_OK;
}

pi_status safetensors_add(safetensors *s, const char *path, const char *prefix, pi_error *err) {
    assert(strlen(prefix) < PREFIX_BYTES);
    s->prefix = prefix;
    pi_status status = open_shard(s, path, err);
    s->prefix = "";
    return status == PI_OK ? sort_names(s, err) : status;
}

void safetensors_close(safetensors *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_maps; i++) file_map_close(&s->maps[i]);
    mem_free(s->maps);
    mem_free(s->items);
    arena_free(&s->names);
    mem_free(s);
}

size_t safetensors_count(const safetensors *s) {
    return s->n_items;
}

const safetensor *safetensors_at(const safetensors *s, size_t i) {
    assert(i < s->n_items);
    return &s->items[i];
}

void safetensors_forget(const safetensors *s, const uint8_t *data, size_t n_bytes) {
    for (size_t i = 0; i < s->n_maps; i++) {
        const file_map *map = &s->maps[i];
        if (data < map->data || data >= map->data + map->size) continue;
        file_map_forget(map, data, n_bytes);
        return;
    }
}

size_t safetensors_find(const safetensors *s, const char *name) {
    size_t low = 0, high = s->n_items;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(s->items[middle].name, name);
        if (order == 0) return middle;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return SIZE_MAX;
}
