/* gguf.c: opens a model from one file, several parts or memory, and looks up keys and tensors.
 *
 * The file owns the parts (mappings, keys) and one array of the tensors of all parts. Keys are
 * those of the first part; the other parts matter only for their split.* keys. Nothing changes
 * after opening, so threads can share a gguf_file without locks. */
#include "gguf_impl.h"
#include "progress.h"

struct gguf_file {
    gguf_part *parts; /* [n_parts] */
    char **paths;     /* [n_parts] */
    int n_parts;
    gguf_tensor *tensors; /* [n_tensors], part by part */
    uint64_t n_tensors;
    gguf_index names;
    uint64_t n_bytes;
    uint8_t *overrides; /* memory of overridden keys and values; NULL: no overrides */
};

static pi_status file_alloc(int n_parts, gguf_file **out, pi_error *err) {
    gguf_file *f = mem_calloc(1, sizeof *f);
    if (f) {
        f->parts = mem_calloc((size_t)n_parts, sizeof *f->parts);
        f->paths = mem_calloc((size_t)n_parts, sizeof *f->paths);
        f->n_parts = n_parts;
    }
    if (!f || !f->parts || !f->paths) {
        gguf_close(f);
        return error_nomem(err, (size_t)n_parts * sizeof(gguf_part), "a GGUF file");
    }
    *out = f;
    return PI_OK;
}

void gguf_close(gguf_file *f) {
    if (!f) return;
    for (int i = 0; i < f->n_parts; i++) {
        if (f->parts) gguf_part_free(&f->parts[i]);
        if (f->paths) mem_free(f->paths[i]);
    }
    mem_free(f->parts);
    mem_free(f->paths);
    mem_free(f->tensors);
    gguf_index_free(&f->names);
    mem_free(f->overrides);
    mem_free(f);
}

/* Maps the progress of one part to the progress of all parts. */
typedef struct part_report {
    progress *all;
    int n_done, n_parts;
} part_report;

static bool report_part(void *user, const char *stage, double fraction) {
    const part_report *r = user;
    return progress_step(r->all, stage, (r->n_done + fraction) / r->n_parts);
}

/* Maps and parses the file at `path` (which must live as long as the part). `n_done` of n_parts are
 * already open. */
static pi_status open_part(gguf_part *p, const char *path, int part, int n_done, int n_parts,
                           const gguf_open_options *options, pi_error *err) {
    /* Copying all bytes is useless when the data is not needed. */
    bool copy = options->copy && !options->header_only;
    part_report user = {.all = options->report, .n_done = n_done, .n_parts = n_parts};
    progress report = {.fn = report_part, .user = &user};
    pi_status status = copy ? file_map_copy(&p->map, path, &report, err)
                            : file_map_open(&p->map, path, false, err);
    if (status) return status;
    p->path = path;
    p->data = p->map.data;
    p->size = p->map.size;
    status = gguf_parse_part(p, part, options->header_only, err);
    if (!status && options->lock && !options->header_only)
        status = file_map_lock(&p->map, &report, err);
    return status;
}

/* Number of parts according to the file at `path`; 1 where it cannot be read. Progress reports need
 * it before copying starts, and a copy can be parsed only afterwards. */
static int count_parts(const char *path, const gguf_open_options *options) {
    gguf_part p = {.path = path};
    gguf_split split = {.count = 1};
    if (!options->copy || options->header_only || !options->report || !options->report->fn)
        return 1;
    if (file_map_open(&p.map, path, false, NULL) != PI_OK) return 1;
    p.data = p.map.data;
    p.size = p.map.size;
    bool known = gguf_parse_part(&p, 0, true, NULL) == PI_OK &&
                 gguf_split_read(&p, &split, NULL) == PI_OK;
    gguf_part_free(&p);
    return known ? split.count : 1;
}

/* One part: its tensors become the tensors of the file. */
static void take_tensors(gguf_file *f, gguf_part *p) {
    f->tensors = p->tensors;
    f->n_tensors = p->n_tensors;
    f->names = p->names;
    p->tensors = NULL;
    p->n_tensors = 0;
    p->names = (gguf_index){0};
}

/* Several parts: builds one array and one index over all tensors and checks their total. */
static pi_status join_tensors(gguf_file *f, uint64_t expected, pi_error *err) {
    uint64_t total = 0;
    for (int i = 0; i < f->n_parts; i++) total += f->parts[i].n_tensors; /* each is capped */
    if (total != expected) {
        return error_set(err, PI_ERR_FORMAT,
                         "the parts have %llu tensors but split.tensors.count says %llu: %.200s: "
                         "a part is from another model",
                         (unsigned long long)total, (unsigned long long)expected, f->paths[0]);
    }
    f->tensors = mem_calloc(total, sizeof *f->tensors);
    if (!f->tensors || !gguf_index_init(&f->names, total)) {
        return error_nomem(err, total * sizeof *f->tensors, "tensors of a split GGUF file");
    }
    for (int i = 0; i < f->n_parts; i++) {
        const gguf_part *p = &f->parts[i];
        for (uint64_t j = 0; j < p->n_tensors; j++) {
            gguf_string name = gguf_string_of(p->tensors[j].name);
            if (gguf_index_find(&f->names, name, gguf_name_of_tensor, f->tensors) >= 0) {
                return error_set(
                    err, PI_ERR_FORMAT,
                    "tensor '%s' is in two parts: %.200s: the parts are not of one model",
                    name.data, p->path);
            }
            f->tensors[f->n_tensors] = p->tensors[j];
            gguf_index_insert(&f->names, name, (uint32_t)f->n_tensors++);
        }
    }
    return PI_OK;
}

static pi_status open_others(gguf_file *f, int known, const gguf_split *split,
                             const gguf_open_options *options, pi_error *err) {
    for (int i = 0, n_done = 1; i < f->n_parts; i++) {
        if (i == known) continue;
        f->paths[i] = gguf_split_path(f->paths[known], split, i);
        if (!f->paths[i]) return error_nomem(err, strlen(f->paths[known]), "a path");
        pi_status status = open_part(&f->parts[i], f->paths[i], i, n_done++, f->n_parts, options,
                                     err);
        if (status) {
            return error_prefix(err, status, "part %d of %d", i + 1, split->count);
        }
        gguf_split other;
        status = gguf_split_read(&f->parts[i], &other, err);
        if (status) return status;
        if (other.count != split->count || other.n_tensors != split->n_tensors) {
            return error_set(err, PI_ERR_FORMAT,
                             "split.* keys differ from those of %.200s: %.200s: "
                             "the parts are not of one model",
                             f->paths[known], f->paths[i]);
        }
    }
    return join_tensors(f, split->n_tensors, err);
}

/* The part that the user named was parsed as number 0; moves it to its place among n parts. */
static pi_status spread_parts(gguf_file *f, const gguf_split *split, pi_error *err) {
    gguf_file *wide = NULL;
    pi_status status = file_alloc(split->count, &wide, err);
    if (status) return status;
    wide->parts[split->no] = f->parts[0];
    wide->paths[split->no] = f->paths[0];
    for (uint64_t i = 0; i < f->parts[0].n_tensors; i++) {
        wide->parts[split->no].tensors[i].part = split->no;
    }
    mem_free(f->parts);
    mem_free(f->paths);
    *f = *wide;
    mem_free(wide);
    return PI_OK;
}

pi_status gguf_override_values(gguf_file *f, const gguf_override *overrides, size_t n,
                               pi_error *err) {
    return gguf_part_override(&f->parts[0], overrides, n, &f->overrides, err);
}

static pi_status open_listed(gguf_file *f, const gguf_open_options *options, pi_error *err) {
    uint64_t n_tensors = 0;
    for (int i = 0; i < f->n_parts; i++) {
        f->paths[i] = mem_strdup(options->parts[i]);
        if (!f->paths[i]) return error_nomem(err, strlen(options->parts[i]), "a path");
        pi_status status = open_part(&f->parts[i], f->paths[i], i, i, f->n_parts, options, err);
        if (status) return error_prefix(err, status, "part %d of %d", i + 1, f->n_parts);
        n_tensors += f->parts[i].n_tensors;
    }
    return join_tensors(f, n_tensors, err);
}

static pi_status open_named(gguf_file *f, const char *path, const gguf_open_options *options,
                            pi_error *err) {
    f->paths[0] = mem_strdup(path);
    if (!f->paths[0]) return error_nomem(err, strlen(path), "a path");
    pi_status status = open_part(&f->parts[0], f->paths[0], 0, 0, count_parts(path, options),
                                 options, err);
    gguf_split split;
    if (!status) status = gguf_split_read(&f->parts[0], &split, err);
    if (status) return status;
    if (split.count == 1) {
        take_tensors(f, &f->parts[0]);
        return PI_OK;
    }
    status = spread_parts(f, &split, err);
    return status ? status : open_others(f, split.no, &split, options, err);
}

static pi_status open_all(gguf_file *f, const char *path, const gguf_open_options *options,
                          pi_error *err) {
    pi_status status = options->n_parts > 1 ? open_listed(f, options, err)
                                            : open_named(f, path, options, err);
    if (status) return status;
    for (int i = 0; i < f->n_parts; i++) f->n_bytes += f->parts[i].size;
    if (!progress_step(options->report, PROGRESS_LOADED, 1))
        return error_set(err, PI_ERR_CANCELLED, "cancelled: %s: loading the model", path);
    return gguf_override_values(f, options->overrides, options->n_overrides, err);
}

pi_status gguf_open(const char *path, const gguf_open_options *options, gguf_file **out,
                    pi_error *err) {
    static const gguf_open_options defaults = {0};
    if (!options) options = &defaults;
    gguf_file *f = NULL;
    pi_status status = file_alloc(options->n_parts > 1 ? options->n_parts : 1, &f, err);
    if (status) return status;
    status = open_all(f, path, options, err);
    if (status) {
        gguf_close(f);
        return status;
    }
    *out = f;
    return PI_OK;
}

pi_status gguf_open_memory(const void *data, size_t n_bytes, const char *name, gguf_file **out,
                           pi_error *err) {
    gguf_file *f = NULL;
    pi_status status = file_alloc(1, &f, err);
    if (status) return status;
    f->paths[0] = mem_strdup(name);
    if (!f->paths[0]) {
        status = error_nomem(err, strlen(name), "a name");
    } else {
        f->parts[0].path = f->paths[0];
        f->parts[0].data = data;
        f->parts[0].size = n_bytes;
        status = gguf_parse_part(&f->parts[0], 0, false, err);
    }
    if (status) {
        gguf_close(f);
        return status;
    }
    take_tensors(f, &f->parts[0]);
    f->n_bytes = n_bytes;
    *out = f;
    return PI_OK;
}

uint32_t gguf_version(const gguf_file *f) {
    return f->parts[0].version;
}

uint32_t gguf_alignment(const gguf_file *f) {
    return f->parts[0].alignment;
}

bool gguf_is_pwri(const gguf_file *f) {
    return f->parts[0].is_pwri;
}

int gguf_n_parts(const gguf_file *f) {
    return f->n_parts;
}

const char *gguf_path(const gguf_file *f) {
    return f->paths[0];
}

const char *gguf_part_path(const gguf_file *f, int part) {
    return f->paths[part];
}

pi_status gguf_refuse_output(const gguf_file *f, const char *out_path, pi_error *err) {
    for (int i = 0; i < gguf_n_parts(f); i++)
        if (os_path_same(gguf_part_path(f, i), out_path))
            return error_set(err, PI_ERR_ARG,
                             "output is the input: %.300s: give another name for the output",
                             gguf_part_path(f, i));
    return PI_OK;
}

void gguf_forget(const gguf_file *f, const gguf_tensor *t, size_t offset, size_t n_bytes) {
    file_map_forget(&f->parts[t->part].map, t->data + offset, n_bytes);
}

void gguf_forget_data(const gguf_file *f, const void *data, size_t n_bytes) {
    for (int i = 0; i < f->n_parts; i++) {
        const file_map *map = &f->parts[i].map;
        const uint8_t *p = data;
        if (p >= map->data && p < map->data + map->size) file_map_forget(map, data, n_bytes);
    }
}

/* -1: in none. */
static int part_with(const gguf_file *f, const void *data) {
    const uint8_t *p = data;
    for (int i = 0; i < f->n_parts; i++) {
        const gguf_part *part = &f->parts[i];
        if (p >= part->data && p < part->data + part->size) return i;
    }
    return -1;
}

bool gguf_locate(const gguf_file *f, const void *data, int *part, uint64_t *offset) {
    const int i = part_with(f, data);
    if (i < 0 || !f->parts[i].map.data || f->parts[i].map.copied) return false;
    *part = i;
    *offset = (uint64_t)((const uint8_t *)data - f->parts[i].data);
    return true;
}

bool gguf_holds(const gguf_file *f, const void *data) {
    return part_with(f, data) >= 0;
}

uint64_t gguf_part_bytes(const gguf_file *f, int part) {
    return f->parts[part].size;
}

uint64_t gguf_file_bytes(const gguf_file *f) {
    return f->n_bytes;
}

uint64_t gguf_n_values(const gguf_file *f) {
    return f->parts[0].n_values;
}

const gguf_value *gguf_value_at(const gguf_file *f, uint64_t i) {
    return &f->parts[0].values[i];
}

const gguf_value *gguf_find(const gguf_file *f, const char *key) {
    return gguf_part_find(&f->parts[0], key);
}

uint64_t gguf_n_tensors(const gguf_file *f) {
    return f->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *f, uint64_t i) {
    return &f->tensors[i];
}

const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name) {
    int64_t i = gguf_index_find(&f->names, gguf_string_of(name), gguf_name_of_tensor, f->tensors);
    return i < 0 ? NULL : &f->tensors[i];
}
