/* api_cluster_file.c: a model on ranks that do not have its file. Rank 0 sends such a rank
 *
 *   the list of files, and their first bytes: metadata and tensor tables; adapters: all bytes
 *   all vectors, and the first bytes of the other tensors, which session_model_hash reads
 *   then the tensors of the layers that the rank measures, and of the layers that it gets
 *
 * in messages of at most CHUNK_BYTES. Both ends derive their sizes from the table of tensors. The
 * rank writes the bytes to files of the full size without names, with holes for all other
 * tensors, so the rest of the program maps and reads them like the model's files. */
#include <stdio.h>
#include <string.h>

#include "api_cluster.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "memory_room.h"
#include "session_file.h"

/* A message: several are under way, which a network of 10 Gbit/s and 1 ms needs. */
enum { CHUNK_BYTES = 1 << 20 };

typedef struct file_list {
    int32_t n_parts, n_files; /* files: the parts, then the adapters */
} file_list;

typedef struct file_entry {
    uint64_t size, n_first; /* bytes; n_first of them come with the list */
} file_entry;

struct api_received {
    file_scratch **files; /* [n_files] */
    const char **paths;   /* [n_files] */
    file_list list;
    uint8_t *have; /* [tensors] 1: all bytes of the tensor are here */
    bool in_memory;
    uint64_t n_bytes; /* that were received */
};

/* ---- which bytes ----------------------------------------------------------------------------- */

typedef struct layer_range {
    const model *m; /* NULL: what comes with the metadata */
    int first, end;
} layer_range;

static bool is_in_range(const layer_range *r, const gguf_tensor *t) {
    int layer, used = 0;
    char name[64] = "";
    if (sscanf(t->name, "blk.%9d.%n", &layer, &used) == 1 && used > 0)
        return layer >= r->first && layer < r->end;
    const arch_tensor *table = arch_tensor_of(r->m->arch, ROLE_NGRAM_EMBD);
    if (table) arch_tensor_name(table, 0, name);
    for (int i = r->first; i < r->end && strcmp(name, t->name) == 0; i++)
        if (r->m->layers[i].hp.ngrams) return true;
    return false;
}

static uint64_t wanted_bytes(const layer_range *r, const gguf_tensor *t, bool have) {
    if (r->m) return have || !is_in_range(r, t) ? 0 : t->n_bytes;
    bool all = t->n_dims == 1 || t->n_bytes < SESSION_SAMPLE_BYTES;
    return all ? t->n_bytes : SESSION_SAMPLE_BYTES;
}

static uint64_t sum_wanted(const gguf_file *f, const layer_range *r, const uint8_t *have) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++)
        sum += wanted_bytes(r, gguf_tensor_at(f, i), have[i]);
    return sum;
}

/* Sends or receives bytes of a file. */
typedef pi_status (*move_fn)(void *user, int file, uint64_t offset, uint64_t n, pi_error *err);

static pi_status move_tensors(const gguf_file *f, const layer_range *r, uint8_t *have, move_fn move,
                              void *user, pi_error *err) {
    pi_status status = PI_OK;
    for (uint64_t i = 0; i < gguf_n_tensors(f) && status == PI_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        uint64_t n = wanted_bytes(r, t, have[i]);
        if (n == 0) continue;
        status = move(user, t->part, t->file_offset, n, err);
        have[i] = n == t->n_bytes;
    }
    return status;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

typedef struct sender {
    cluster *ranks;
    int rank;
    const pi_model *m;
    int opened; /* index of `file`; -1: none */
    os_file file;
    char stage[96];
    uint64_t done, total; /* bytes */
} sender;

static const char *source_path(const pi_model *m, int file) {
    int n_parts = gguf_n_parts(m->weights->file);
    return file < n_parts ? gguf_part_path(m->weights->file, file)
                          : m->adapters[file - n_parts].path;
}

/* An error names rank 0's machine, since all machines may have this path. */
static pi_status fail_reading(const sender *s, int file, int problem, pi_error *err) {
    pi_error why;
    pi_status status = problem
                           ? error_set_errno(&why, problem, "cannot read file: %s",
                                             source_path(s->m, file))
                           : error_set(&why, PI_ERR_IO, FILE_MAP_CUT "%s", source_path(s->m, file));
    return cluster_name_rank(s->ranks, 0, status, why.message, err);
}

/* Reads bytes of a file, not of its mapping: an error of the drive is then a status. */
static pi_status read_source(sender *s, int file, uint8_t *to, size_t n, uint64_t offset,
                             pi_error *err) {
    if (s->opened != file) {
        if (s->opened >= 0) os_file_close(s->file);
        s->opened = -1;
        int problem = os_file_open(source_path(s->m, file), OS_READ, &s->file);
        if (problem) return fail_reading(s, file, problem, err);
        s->opened = file;
    }
    for (size_t done = 0, got; done < n; done += got) {
        int problem = os_file_read_at(s->file, to + done, n - done, offset + done, &got);
        if (problem || got == 0) return fail_reading(s, file, problem, err);
    }
    return PI_OK;
}

/* A rank that cannot go on answers meanwhile. */
static pi_status send_bytes(void *user, int file, uint64_t offset, uint64_t n, pi_error *err) {
    sender *s = user;
    pi_status status = PI_OK;
    for (uint64_t part; n > 0 && status == PI_OK; offset += part, n -= part) {
        void *message;
        part = n < CHUNK_BYTES ? n : CHUNK_BYTES;
        if (cluster_arrived(s->ranks, s->rank, CLUSTER_REPLIES)) {
            status = api_cluster_hear(s->ranks, s->rank, NULL, err);
            return status != PI_OK ? status
                                   : cluster_name_rank(s->ranks, s->rank, PI_ERR_FORMAT,
                                                       "an answer that was not expected", err);
        }
        status = cluster_reserve(s->ranks, part, &message, err);
        if (status == PI_OK) status = read_source(s, file, message, part, offset, err);
        if (status == PI_OK) status = cluster_send(s->ranks, s->rank, CLUSTER_BULK, err);
        s->done += part;
        if (s->done < s->total) log_progress(s->stage, (double)s->done / (double)s->total);
    }
    return status;
}

static sender begin_sending(cluster *ranks, int rank, const pi_model *m, uint64_t total) {
    sender s = {.ranks = ranks, .rank = rank, .m = m, .opened = -1, .total = total};
    snprintf(s.stage, sizeof s.stage, "sending the model to rank %d (%.40s)", rank,
             cluster_host(ranks, rank));
    return s;
}

static pi_status end_sending(sender *s, pi_status status) {
    if (s->opened >= 0) os_file_close(s->file);
    if (s->total > 0) log_progress(s->stage, 1);
    return status;
}

static pi_status describe_files(const pi_model *m, uint64_t adapters, file_entry *entries,
                                const sender *s, pi_error *err) {
    const gguf_file *f = m->weights->file;
    const int n_parts = gguf_n_parts(f);
    for (int i = 0; i < n_parts; i++)
        entries[i] = (file_entry){gguf_part_bytes(f, i), gguf_part_bytes(f, i)};
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        if (t->file_offset < entries[t->part].n_first) entries[t->part].n_first = t->file_offset;
    }
    for (size_t i = 0; i < m->n_adapters; i++) {
        os_info info;
        if (i >= CLUSTER_ADAPTERS || !(adapters >> i & 1)) continue;
        int problem = os_path_info(m->adapters[i].path, &info);
        if (problem) return fail_reading(s, n_parts + (int)i, problem, err);
        entries[(size_t)n_parts + i] = (file_entry){info.size, info.size};
    }
    return PI_OK;
}

pi_status api_file_send_head(pi_cluster *group, int rank, const pi_model *m, uint64_t adapters,
                             pi_error *err) {
    const gguf_file *f = m->weights->file;
    const layer_range head = {.m = NULL};
    const file_list list = {gguf_n_parts(f), gguf_n_parts(f) + (int32_t)m->n_adapters};
    file_entry *entries = mem_calloc((size_t)list.n_files, sizeof *entries);
    mem_free(group->sent[rank]);
    group->sent[rank] = mem_calloc(gguf_n_tensors(f) + 1, 1);
    if (!entries || !group->sent[rank]) {
        mem_free(entries);
        return error_nomem(err, gguf_n_tensors(f), "a list of tensors");
    }
    sender s = begin_sending(group->ranks, rank, m, 0);
    pi_status status = describe_files(m, adapters, entries, &s, err);
    if (status == PI_OK) status = cluster_send_bulk(group->ranks, rank, &list, sizeof list, err);
    if (status == PI_OK)
        status = cluster_send_bulk(group->ranks, rank, entries,
                                   (size_t)list.n_files * sizeof *entries, err);
    for (int i = 0; i < list.n_files && status == PI_OK; i++)
        status = send_bytes(&s, i, 0, entries[i].n_first, err);
    if (status == PI_OK) status = move_tensors(f, &head, group->sent[rank], send_bytes, &s, err);
    mem_free(entries);
    return end_sending(&s, status);
}

pi_status api_file_send_layers(pi_cluster *group, int rank, const pi_model *m, int first, int end,
                               pi_error *err) {
    const layer_range layers = {m->weights, first, end};
    const gguf_file *f = m->weights->file;
    uint8_t *sent = group->sent[rank];
    if (first < 0 || end > m->weights->hp.n_layer || first > end)
        return cluster_name_rank(group->ranks, rank, PI_ERR_FORMAT, "bad layers", err);
    sender s = begin_sending(group->ranks, rank, m, sum_wanted(f, &layers, sent));
    return end_sending(&s, move_tensors(f, &layers, sent, send_bytes, &s, err));
}

/* ---- the rank that receives ------------------------------------------------------------------ */

typedef struct receiver {
    cluster *ranks;
    api_received *to;
    cluster_buffer message;
} receiver;

static pi_status receive_bytes(void *user, int file, uint64_t offset, uint64_t n, pi_error *err) {
    receiver *r = user;
    os_file to = file_scratch_file(r->to->files[file]);
    for (uint64_t part; n > 0; offset += part, n -= part) {
        part = n < CHUNK_BYTES ? n : CHUNK_BYTES;
        pi_status status = cluster_receive(r->ranks, 0, CLUSTER_BULK, &r->message, err);
        if (status != PI_OK) return status;
        if (r->message.n != part)
            return error_set(err, PI_ERR_FORMAT, "a part of the model has a wrong size");
        int problem = os_file_write_at(to, r->message.data, part, offset);
        if (problem)
            return error_set_errno(err, problem, "cannot keep the model's layers%s",
                                   r->to->in_memory ? " in memory" : "");
        r->to->n_bytes += part;
    }
    return PI_OK;
}

void api_received_free(api_received *r) {
    if (!r) return;
    for (int i = 0; i < r->list.n_files && r->files; i++) file_scratch_remove(r->files[i]);
    mem_free(r->files);
    mem_free((void *)r->paths);
    mem_free(r->have);
    mem_free(r);
}

bool api_received_in_memory(const api_received *r) {
    return r->in_memory;
}

uint64_t api_received_bytes(const api_received *r) {
    return r->n_bytes;
}

/* A file of the full size, without bytes yet. */
static pi_status create_file(api_received *r, int i, const char *folder, uint64_t size,
                             pi_error *err) {
    char beside[OS_PATH_MAX];
    pi_status status;
    if (r->in_memory) {
        status = file_scratch_create_memory(&r->files[i], err);
    } else {
        if (!file_join(beside, sizeof beside, folder, "powerinfer-layers"))
            return error_set(err, PI_ERR_LIMIT, "path is too long: %.200s", folder);
        status = file_scratch_create(beside, &r->files[i], err);
    }
    if (status != PI_OK) return status;
    r->paths[i] = file_scratch_path(r->files[i]);
    int problem = os_file_resize(file_scratch_file(r->files[i]), size);
    if (!problem) return PI_OK;
    return error_set_errno(err, problem, "cannot create file for the model's layers: %s",
                           folder ? folder : "memory");
}

/* Receives the list and the first bytes of all files. */
static pi_status receive_files(receiver *v, const char *folder, pi_error *err) {
    api_received *r = v->to;
    file_list list;
    pi_status status = cluster_receive_bulk(v->ranks, 0, &list, sizeof list, err);
    if (status != PI_OK) return status;
    if (list.n_parts < 1 || list.n_parts > GGUF_MAX_PARTS || list.n_files < list.n_parts ||
        list.n_files > 2 * GGUF_MAX_PARTS)
        return error_set(err, PI_ERR_FORMAT, "a command of rank 0 has a wrong size");
    const size_t n = (size_t)list.n_files;
    file_entry *entries = mem_calloc(n, sizeof *entries);
    r->files = mem_calloc(n, sizeof *r->files);
    r->paths = mem_calloc(n, sizeof *r->paths);
    r->list = list;
    if (!entries || !r->files || !r->paths)
        status = error_nomem(err, n * sizeof *entries, "a list of files");
    if (status == PI_OK)
        status = cluster_receive_bulk(v->ranks, 0, entries, n * sizeof *entries, err);
    for (int i = 0; i < list.n_files && status == PI_OK; i++)
        status = create_file(r, i, folder, entries[i].size, err);
    for (int i = 0; i < list.n_files && status == PI_OK; i++)
        status = receive_bytes(v, i, 0, entries[i].n_first, err);
    mem_free(entries);
    return status;
}

static pi_status receive_small(receiver *v, pi_error *err) {
    const layer_range head = {.m = NULL};
    api_received *r = v->to;
    const gguf_open_options options = {.parts = r->paths, .n_parts = r->list.n_parts};
    gguf_file *f = NULL;
    pi_status status = gguf_open(r->paths[0], &options, &f, err);
    if (status != PI_OK) return status;
    r->have = mem_calloc(gguf_n_tensors(f) + 1, 1);
    status = r->have ? move_tensors(f, &head, r->have, receive_bytes, v, err)
                     : error_nomem(err, gguf_n_tensors(f), "a list of tensors");
    gguf_close(f);
    return status;
}

static pi_status open_received(const api_received *r, const pi_model_options *options,
                               uint64_t adapters, pi_model **out, pi_error *err) {
    const size_t n = options->n_adapters, n_sent = (size_t)(r->list.n_files - r->list.n_parts);
    pi_model_options o = *options;
    pi_adapter *items = mem_calloc(n + 1, sizeof *items);
    if (!items) return error_nomem(err, n * sizeof *items, "adapters");
    for (size_t i = 0; i < n; i++) {
        items[i] = options->adapters[i];
        if (i < CLUSTER_ADAPTERS && adapters >> i & 1 && i < n_sent)
            items[i].path = r->paths[(size_t)r->list.n_parts + i];
    }
    /* The layers come later: nothing may read, copy or lock all bytes, or merge adapters. */
    o.adapters = items;
    o.adapters_by_context = true;
    o.no_mmap = o.mlock = o.check_tensors = false;
    pi_status status = api_model_open_parts(r->paths, r->list.n_parts, &o, out, err);
    mem_free(items);
    return status;
}

pi_status api_file_receive_head(cluster *ranks, const char *folder, const pi_model_options *o,
                                uint64_t adapters, pi_model **out, pi_error *err) {
    *out = NULL;
    receiver v = {.ranks = ranks, .to = mem_calloc(1, sizeof *v.to)};
    if (!v.to) return error_nomem(err, sizeof *v.to, "files");
    v.to->in_memory = !folder;
    pi_status status = receive_files(&v, folder, err);
    if (status == PI_OK) status = receive_small(&v, err);
    if (status == PI_OK) status = open_received(v.to, o, adapters, out, err);
    cluster_buffer_free(&v.message);
    if (status == PI_OK)
        (*out)->received = v.to;
    else
        api_received_free(v.to);
    return status;
}

pi_status api_file_receive_layers(cluster *ranks, const pi_model *m, int first, int end,
                                  pi_error *err) {
    const double gib = 1 << 30;
    const layer_range layers = {m->weights, first, end};
    api_received *r = m->received;
    receiver v = {.ranks = ranks, .to = r};
    uint64_t n = sum_wanted(m->weights->file, &layers, r->have), room = memory_room();
    if (r->in_memory && n > room)
        return error_set(
            err, PI_ERR_NOMEM,
            "layers %d to %d need %.1f GiB more memory, %.1f GiB are free: name a folder "
            "for them, or give the rank fewer layers",
            first, end - 1, (double)n / gib, (double)room / gib);
    pi_status status = move_tensors(m->weights->file, &layers, r->have, receive_bytes, &v, err);
    cluster_buffer_free(&v.message);
    return status;
}
