/* prompt_disk.c: see prompt_disk.h. Files are not synchronized with the drive: after a power
 * failure some may be damaged, which their hashes detect; a process that is killed loses nothing
 * that was written. */
#include "prompt_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "hash.h"
#include "mem.h"
#include "os_file.h"

enum { NAME_CHARS = 32, PATH_ROOM = OS_PATH_MAX + NAME_CHARS + 32 };

static const char magic[8] = {'P', 'I', 'B', 'L', 'O', 'C', 'K', '1'};

typedef struct file_header {
    char magic[8];
    uint64_t id;
    prompt_block block;
    uint64_t payload; /* hash of what follows the header */
    uint64_t header;  /* hash of the header up to here */
} file_header;

struct prompt_disk {
    uint64_t id;
    char folder[OS_PATH_MAX];
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Not secret: whoever can write to the folder can write any block. */
static const hash_key keys[2] = {{{UINT64_C(0x706f776572696e66), UINT64_C(0x65722d626c6f636b)}},
                                 {{UINT64_C(0x70726f6d70742d73), UINT64_C(0x746f72652d66696c)}}};

prompt_name prompt_block_name(prompt_name parent, const int32_t *tokens, int32_t n) {
    int32_t text[4 + PROMPT_BLOCK];
    prompt_name name;
    memcpy(text, &parent, sizeof parent);
    memcpy(text + 4, tokens, (size_t)n * sizeof *tokens);
    for (int i = 0; i < 2; i++)
        name.word[i] = hash_bytes(keys[i], text, (size_t)(4 + n) * sizeof *text);
    return name;
}

static void path_of(const prompt_disk *d, prompt_name name, const char *suffix,
                    char path[PATH_ROOM]) {
    snprintf(path, PATH_ROOM, "%s/%016" PRIx64 "%016" PRIx64 "%s", d->folder, name.word[0],
             name.word[1], suffix);
}

/* ---- the folder ------------------------------------------------------------------------------ */

pi_status prompt_disk_open(const char *folder, uint64_t id, prompt_disk **out, pi_error *err) {
    prompt_disk *d = mem_calloc(1, sizeof *d);
    *out = d;
    if (!d) return error_nomem(err, sizeof *d, "prompt store");
    d->id = id;
    int n = snprintf(d->folder, sizeof d->folder, "%s/%016" PRIx64, folder, id);
    int problem = n < (int)sizeof d->folder ? os_folder_create_private(d->folder) : ENAMETOOLONG;
    if (problem == 0 || problem == EEXIST) return PI_OK;
    pi_status status = error_set_errno(err, problem, "cannot create a folder in %s", folder);
    prompt_disk_close(d);
    *out = NULL;
    return status;
}

void prompt_disk_close(prompt_disk *d) {
    mem_free(d);
}

void prompt_disk_remove(const prompt_disk *d, prompt_name name) {
    char path[PATH_ROOM];
    path_of(d, name, "", path);
    os_path_remove(path);
}

uint64_t prompt_disk_bytes(const prompt_block *b) {
    return sizeof(file_header) + b->n_rows + b->n_recurrent;
}

/* ---- files ----------------------------------------------------------------------------------- */

static uint64_t header_hash(const file_header *h) {
    return hash_bytes(keys[0], h, offsetof(file_header, header));
}

static uint64_t payload_hash(const prompt_block *b, const void *rows, const void *recurrent) {
    const uint64_t parts[2] = {
        hash_bytes(keys[0], rows, (size_t)b->n_rows),
        b->n_recurrent ? hash_bytes(keys[1], recurrent, (size_t)b->n_recurrent) : 0};
    return hash_bytes(keys[0], parts, sizeof parts);
}

bool prompt_disk_write(const prompt_disk *d, const prompt_block *b, const void *rows,
                       const void *recurrent) {
    char path[PATH_ROOM], temporary[PATH_ROOM];
    os_file f;
    file_header h;
    memset(&h, 0, sizeof h); /* also padding */
    memcpy(h.magic, magic, sizeof magic);
    h.id = d->id;
    h.block = *b;
    h.payload = payload_hash(b, rows, recurrent);
    h.header = header_hash(&h);
    path_of(d, b->name, "", path);
    path_of(d, b->name, ".new", temporary);
    os_path_remove(temporary); /* of a server that was killed */
    if (os_file_open(temporary, OS_WRITE | OS_CREATE | OS_NEW, &f) != 0) return false;
    bool good = os_file_write(f, &h, sizeof h) == 0 &&
                os_file_write(f, rows, (size_t)b->n_rows) == 0 &&
                os_file_write(f, recurrent, (size_t)b->n_recurrent) == 0;
    good = os_file_close(f) == 0 && good && os_path_rename(temporary, path) == 0;
    if (!good) os_path_remove(temporary);
    return good;
}

static bool read_all(os_file f, void *data, uint64_t n) {
    size_t got = 0;
    return os_file_read(f, data, (size_t)n, &got) == 0 && got == n;
}

/* Reads and checks a header. */
static bool read_header(const prompt_disk *d, os_file f, file_header *h) {
    return read_all(f, h, sizeof *h) && memcmp(h->magic, magic, sizeof magic) == 0 &&
           h->header == header_hash(h) && h->id == d->id && h->block.n >= 1 &&
           h->block.n <= PROMPT_BLOCK;
}

static bool same_name(prompt_name a, prompt_name b) {
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

bool prompt_disk_read(const prompt_disk *d, const prompt_block *b, void *rows, void *recurrent) {
    char path[PATH_ROOM];
    os_file f;
    file_header h;
    path_of(d, b->name, "", path);
    if (os_file_open(path, OS_READ, &f) != 0) return false;
    bool good = read_header(d, f, &h) && same_name(h.block.name, b->name) &&
                h.block.n_rows == b->n_rows && h.block.n_recurrent == b->n_recurrent &&
                read_all(f, rows, b->n_rows) && read_all(f, recurrent, b->n_recurrent) &&
                h.payload == payload_hash(b, rows, recurrent);
    os_file_close(f);
    return good;
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef struct listed {
    prompt_block block;
    int64_t modified;
} listed;

static int by_age(const void *a, const void *b) {
    const listed *x = a, *y = b;
    return (x->modified > y->modified) - (x->modified < y->modified);
}

/* Reads the header of a file; false: not a block. */
static bool list_file(const prompt_disk *d, const char *name, listed *out) {
    char path[PATH_ROOM], expected[PATH_ROOM];
    os_file f;
    os_info info;
    file_header h;
    if (!file_join(path, sizeof path, d->folder, name) ||
        os_file_open(path, OS_READ | OS_NO_FOLLOW | OS_NO_WAIT, &f) != 0)
        return false;
    bool good = os_file_info(f, &info) == 0 && info.kind == OS_REGULAR && read_header(d, f, &h);
    os_file_close(f);
    if (!good) return false;
    path_of(d, h.block.name, "", expected);
    *out = (listed){.block = h.block, .modified = info.modified};
    return strcmp(path, expected) == 0 && info.size == prompt_disk_bytes(&h.block) &&
           same_name(h.block.name, prompt_block_name(h.block.parent, h.block.tokens, h.block.n));
}

/* Whether this program made a file with this name. */
static bool is_own(const char *name) {
    const size_t n = strspn(name, "0123456789abcdef");
    return n == NAME_CHARS && (name[n] == 0 || strcmp(name + n, ".new") == 0);
}

pi_status prompt_disk_list(prompt_disk *d, prompt_block **out, size_t *n, pi_error *err) {
    os_folder *folder = os_folder_open(d->folder);
    listed *list = NULL;
    size_t capacity = 0;
    char path[PATH_ROOM];
    const char *name;
    pi_status status = PI_OK;
    *out = NULL;
    *n = 0;
    if (!folder) return error_set(err, PI_ERR_IO, "cannot list: %s", d->folder);
    while (status == PI_OK && (name = os_folder_next(folder))) {
        if (!is_own(name)) continue;
        if (!mem_grow((void **)&list, &capacity, *n + 1, sizeof *list, SIZE_MAX / sizeof *list))
            status = error_nomem(err, (*n + 1) * sizeof *list, "prompt store");
        else if (list_file(d, name, &list[*n]))
            (*n)++;
        else if (file_join(path, sizeof path, d->folder, name))
            os_path_remove(path);
    }
    os_folder_close(folder);
    if (*n) qsort(list, *n, sizeof *list, by_age);
    if (status == PI_OK && *n) {
        *out = mem_calloc(*n, sizeof **out);
        if (!*out) status = error_nomem(err, *n * sizeof **out, "prompt store");
        for (size_t i = 0; i < *n && *out; i++) (*out)[i] = list[i].block;
    }
    if (status != PI_OK) *n = 0;
    mem_free(list);
    return status;
}
